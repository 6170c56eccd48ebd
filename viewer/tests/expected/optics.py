"""Numbers of optics.test.ts by NumPy: `python3 optics.py > optics.json` in this folder."""

import json

import numpy as np


def wave(shape, a, b):
    """Numbers without a pattern, the same as `wave` of the tests: sin(a k + b cos k) of the index k in C order."""
    k = np.arange(np.prod(shape), dtype=float)
    return np.sin(a * k + b * np.cos(k)).reshape(shape)


out = {}

# Means over rings about a sample, and about a point between samples.
m = wave((7, 9), 0.7, 1.3)
m[2, 3] = np.nan
for name, (ci, cj) in {"rings": (4, 3), "rings_between": (3.5, 2.5)}.items():
    j, i = np.indices(m.shape)
    r = np.hypot(i - ci, j - cj)
    k = np.floor(r + 0.5).astype(int)
    good = np.isfinite(m)
    kept = [n for n in range(k.max() + 1) if (good & (k == n)).any()]
    out[name] = {"radius": [r[good & (k == n)].mean() for n in kept], "mean": [m[good & (k == n)].mean() for n in kept]}
out["statistics"] = [float(f(m)) for f in (np.nanmin, np.nanmax, np.nanmean)] + [float(np.sqrt(np.nanmean(m**2))), float(np.nanstd(m))]

# A wavefront over a lopsided pupil without piston, and without tip and tilt, by least squares.
w = wave((12, 12), 0.31, 2.1) * 1e-7 + 3e-8 * np.indices((12, 12))[1] - 1e-8 * np.indices((12, 12))[0]
x = (np.arange(12) - 5.5) * 0.25
r2 = x[None, :] ** 2 + x[:, None] ** 2
mask = (r2 >= 0.375**2) & (r2 < 1.5**2)
mask[:3, :5] = False
j, i = np.nonzero(mask)
design = np.stack([np.ones(len(i)), i, j], axis=1)
fit = np.linalg.lstsq(design, w[mask], rcond=None)[0]
flat = w[mask] - w[mask].mean()
plane = w[mask] - design @ fit
tilted = w[mask] - fit[1] * (i - i.mean()) - fit[2] * (j - j.mean())
out["wavefront"] = {
    "points": int(mask.sum()),
    "mean": 1e9 * w[mask].mean(),
    "rms": 1e9 * np.sqrt(np.mean(w[mask] ** 2)),
    "rms_piston": 1e9 * flat.std(),
    "rms_plane": 1e9 * np.sqrt(np.mean(plane**2)),
    "rms_tilt_only": 1e9 * np.sqrt(np.mean(tilted**2)),
    "tilt": (1e9 * fit[1:]).tolist(),
    "peak_to_valley": 1e9 * np.ptp(plane),
}
out["pupil"] = int(((r2 >= 0.375**2) & (r2 < 1.5**2)).sum())

# Light of an image in circles and boxes: each pixel divided into 200 × 200 parts.
n, c = 16, 8
j, i = np.indices((n, n))
u, v = i - c, j - c
image = 0.02 * np.exp(-0.5 * ((u * 0.8 + v * 0.6) ** 2 / 2.3**2 + (v * 0.8 - u * 0.6) ** 2 / 1.6**2)) + 1e-4 * wave((n, n), 1.1, 0.4) ** 2
fine = (np.arange(200) + 0.5) / 200 - 0.5
radii = [0.3, 0.5, 1.7, 3.25, 6.1, 12.0]
circles, boxes = np.zeros(len(radii)), np.zeros(len(radii))
for dy in fine:
    py = v + dy
    for k, radius in enumerate(radii):
        px = u[..., None] + fine
        circles[k] += (image[..., None] * (px**2 + py[..., None] ** 2 < radius**2)).sum() / 200**2
        boxes[k] += (image[..., None] * ((abs(px) < radius) & (abs(py[..., None]) < radius))).sum() / 200**2
out["energy"] = {"radii": radii, "encircled": circles.tolist(), "ensquared": boxes.tolist()}
out["width"] = [2.0 * np.sqrt(2 * np.log(2)) * s for s in (2.3, 1.6)] + [float(np.arctan2(0.6, 0.8))]

# Means of a matrix by displacement: lenslets of two sensors, the second turned and coarser, or both on one lattice.
fineset = [(r, s) for r in range(4) for s in range(4) if (r, s) not in ((0, 0), (0, 1), (3, 3))]
coarse = [(r, s) for r in range(3) for s in range(3) if (r, s) != (2, 0)]
a = np.array([[(s - 1.5) * 0.5, (r - 1.5) * 0.5] for r, s in fineset])
t = 0.2
b = np.array([[(s - 1) * 0.7 * np.cos(t) - (r - 1) * 0.7 * np.sin(t) + 0.05, (s - 1) * 0.7 * np.sin(t) + (r - 1) * 0.7 * np.cos(t)] for r, s in coarse])
for name, (rows, columns, step) in {"lattice": (a, a, 0.5), "turned": (a, b, 0.7)}.items():
    matrix = wave((len(rows), len(columns)), 0.9, 0.6)
    d = (columns[None] - rows[:, None]) / step
    k = np.floor(d + 0.500001).astype(int)
    half = int(max(np.floor((max(columns[:, q].max() - rows[:, q].min(), rows[:, q].max() - columns[:, q].min())) / step + 0.5) for q in (0, 1)))
    sums, hits = np.zeros((2 * half + 1,) * 2), np.zeros((2 * half + 1,) * 2)
    np.add.at(sums, (k[..., 1] + half, k[..., 0] + half), matrix)
    np.add.at(hits, (k[..., 1] + half, k[..., 0] + half), 1)
    with np.errstate(invalid="ignore"):
        mean = sums / hits
    out[name] = {"rows": rows.tolist(), "columns": columns.tolist(), "half": half, "means": [None if np.isnan(q) else q for q in mean.ravel()]}

# Eigenvalues of a covariance.
g = wave((9, 6), 0.43, 1.7)
values = np.linalg.eigvalsh(g @ g.T + 1e-3 * np.eye(9))
out["spectrum"] = {"values": values.tolist(), "condition": float(np.linalg.cond(g @ g.T + 1e-3 * np.eye(9))), "kept": int((values >= 0.01 * values.max()).sum())}

# Rms slopes of a star with x and y of different means.
s = 1e-6 * wave((10,), 0.8, 0.2) + np.repeat([2e-7, -5e-7], 5)
out["slopes"] = [float(np.sqrt(np.mean(s**2))), float(np.sqrt(np.mean(np.concatenate([s[:5] - s[:5].mean(), s[5:] - s[5:].mean()]) ** 2)))]

# An error budget with a negative term.
rms = np.array([90.116, 53.797, 116.18, -34.702])
variances = np.sign(rms) * rms**2
out["budget"] = {"total": float(np.sqrt(variances.sum())), "percent": (100 * variances / variances.sum()).tolist(), "marechal": float(np.exp(-((2 * np.pi * np.sqrt(variances.sum()) / 1650) ** 2)))}

# What the panels of browser/optics.test.ts print and export.
lens = [(r, s) for r in range(3) for s in range(3) if (r, s) != (1, 1)]
xy = np.array([[(s - 1) * 0.5, (r - 1) * 0.5] for r, s in lens])
count = 2 * len(lens)
dense = wave((count, count), 0.37, 1.9)
dense = dense @ dense.T
d = np.rint((xy[None] - xy[:, None]) / 0.5).astype(int) + 2
sums, hits = np.zeros((5, 5)), np.zeros((5, 5))
np.add.at(sums, (d[..., 1], d[..., 0]), dense[:8, 8:])
np.add.at(hits, (d[..., 1], d[..., 0]), 1)
frames = 1e-7 * wave((3, 1, 12, 12), 0.31, 2.1)
whole = (r2 >= 0.375**2) & (r2 < 1.5**2)
inside = frames[:, 0][:, whole]
slopes = 1e-6 * wave((3, count), 0.8, 0.2)
strehl = 0.5 + 0.3 * wave((1, 3, 3), 1.3, 0.7)
error = 1e-7 * (2 + wave((3, 3, 3), 0.9, 0.3))
error[2] = np.sqrt(error[0] ** 2 + error[1] ** 2)
eigen = 1e-13 * np.exp(5 * wave((8,), 0.6, 1.2))
half_radii = np.arange(8) + 0.5
light = np.zeros(8)
for dy in fine:
    for k, radius in enumerate(half_radii):
        light[k] += (image[..., None] * ((u[..., None] + fine) ** 2 + (v + dy)[..., None] ** 2 < radius**2)).sum() / 200**2
out["page"] = {
    "covariance_xy": (sums / hits).ravel().tolist(),
    "rms": (1e9 * inside.std(axis=1)).tolist(),
    "mean": (1e9 * inside.mean(axis=1)).tolist(),
    "slopes_rms": (648000 / np.pi * np.sqrt((slopes**2).mean(axis=1))).tolist(),
    "encircled": light.tolist(),
    "cut_x": image[8].tolist(),
    "strehl": [float(strehl.min()), float(strehl.mean()), float(strehl.max())],
    "strehl_picked": float(strehl[0, 2, 0]),
    "field_total": float(np.sqrt((1e18 * error[2] ** 2).mean())),
    "row": wave((1, 4, count), 0.5, 0.9)[0, 2].tolist(),
    "error_rms": float(1e9 * np.sqrt(np.mean(1e-14 * (2 + wave((1, 4, 4), 0.4, 0.1))))),
    "condition": float(eigen.max() / eigen.min()),
    "kept": int((eigen >= 0.01 * eigen.max()).sum()),
}

print(json.dumps(out))
