"""Numbers of NumPy with which browser/electrons.test.ts compares the pages': python numpy_electrons.py > numpy_electrons.json"""

import json

import numpy as np


def sequence(*shape, first=0):
    """Numbers between 0 and 1 that TypeScript makes exactly alike."""
    k = np.arange(first, first + int(np.prod(shape)))
    return ((k * k * 7919 % 1009) / 1009).reshape(shape)


def complex_sequence(*shape, first=0):
    pairs = sequence(*shape, 2, first=first) - 0.5
    return pairs[..., 0] + 1j * pairs[..., 1]


def rows(image):
    """An image (x, y) as the rows of a table."""
    return np.asarray(image).T.tolist()


PER_MRAD = 1e-3 / 0.037014361993505496  # 1/Å at 100 kV
annular = sequence(2, 8, 6, 20)
four_d = sequence(2, 8, 6, 12, 10, first=11)
segmented = sequence(2, 8, 6, 4, first=5)
centre = (sequence(2, 8, 6, 2, first=3) - 0.5) / 10
potential = sequence(16, 14, 5)
probe = complex_sequence(2, 12, 10)
prism, multislice = complex_sequence(2, 3, 10, 8), complex_sequence(2, 3, 10, 8) + 0.2 * complex_sequence(2, 3, 10, 8, first=40)
image, wave = sequence(2, 16, 12), complex_sequence(16, 12)
x, y = 1.0 + 0.5 * np.arange(8), 0.5 + 0.4 * np.arange(6)


def between(sums, edges, inner, outer):
    running = np.concatenate([np.zeros((*sums.shape[:-1], 1)), sums.cumsum(-1)], -1)
    within = lambda r: np.apply_along_axis(lambda one: np.interp(r, edges, one), -1, running)
    return within(outer) - within(inner)


# Rings of one sample about (0.5, −0.3) mrad
qx, qy = np.meshgrid((-0.3 + 0.05 * np.arange(12)) / PER_MRAD, (-0.25 + 0.05 * np.arange(10)) / PER_MRAD, indexing="ij")
width = 0.05 / PER_MRAD
ring = np.floor(np.hypot(qx - 0.5, qy + 0.3) / width).astype(int)
rings = np.stack([four_d[1][..., ring == k].sum(-1) for k in range(ring.max() + 1)], -1)

u, v = centre[0, ..., 0], centre[0, ..., 1]
signs = np.cos(np.deg2rad(-45) + (np.arange(4) + 0.5) * np.pi / 2)
lasso = (x[:, None] < 2.2) & (y[None, :] < 1.4)

# Widths of the current about the first probe, (1, 0.5) Å, of samples 0.25 Å wide, through periodic edges
px, py = np.meshgrid(0.25 * np.arange(12) - 1.0, 0.25 * np.arange(10) - 0.5, indexing="ij")
px, py = px - 3.0 * np.round(px / 3.0), py - 2.5 * np.round(py / 2.5)
distance = np.floor(np.hypot(px, py) / 0.25 + 1e-9).astype(int)
current = abs(probe[0]) ** 2
running = np.concatenate([[0], np.cumsum([current[distance == k].sum() for k in range(distance.max() + 1)])])


def power(waves):
    return abs(np.fft.fftshift(np.fft.fft2(waves))) ** 2


a, b = abs(prism[1, 2]) ** 2, abs(multislice[1, 2]) ** 2
fa, fb = power(prism[1, 2]), power(multislice[1, 2])
print(
    json.dumps(
        {
            "brightField": rows(between(annular[0], 4.0 * np.arange(21), 0, 10)),
            "dragged": [rows(between(annular[0], 4.0 * np.arange(21), r, 80)) for r in (20, 44.5)],
            "movedRings": rows(between(rings, width * np.arange(rings.shape[-1] + 1), 2, 8)),
            "pattern": rows(four_d[1, 3, 2]),
            "lassoPattern": rows(four_d[0][lasso].mean(0)),
            "lassoCount": int(lasso.sum()),
            "meanPattern": rows(four_d[0].mean((0, 1))),
            "quadrants": rows((segmented[0] * signs).sum(-1) / segmented[0].sum(-1)),
            "pair": rows(segmented[1, ..., 0] + segmented[1, ..., 1] + segmented[1, ..., 3] - segmented[1, ..., 2]),
            "magnitude": rows(np.hypot(u - u.mean(), v - v.mean())),
            "divergence": rows(np.gradient(u, 0.5, axis=0) + np.gradient(v, 0.4, axis=1)),
            "direction": rows(np.arctan2(v, u)),
            "slice": rows(potential[..., 3]),
            "sliceSum": rows(potential[..., 1:4].sum(-1)),
            "depth": potential.mean((0, 1)).tolist(),
            "spectrum": rows(power(image[1] - image[1].mean()) / (16 * 12) ** 2),
            "phase": rows(np.angle(wave)),
            "aperture": rows(power(probe[0]) / 120),
            "halfCurrent": 2 * np.interp(0.5 * running[-1], running, 0.25 * np.arange(len(running))),
            "correlation": [np.corrcoef(a.ravel(), b.ravel())[0, 1], np.corrcoef(fa.ravel(), fb.ravel())[0, 1]],
            "rFactor": [abs(a - b).sum() / b.sum(), abs(fa - fb).sum() / fb.sum()],
            "beam": rows(abs(complex_sequence(5, 6, 6, first=9)[3]) ** 2),
        }
    )
)
