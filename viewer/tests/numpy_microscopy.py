"""Numbers of NumPy with which microscopy.test.ts compares the viewer's: python numpy_microscopy.py > numpy_microscopy.json"""

import json

import numpy as np


def sequence(count, first=0):
    """Numbers between 0 and 1 that TypeScript makes exactly alike."""
    k = np.arange(first, first + count)
    return (k * k * 7919 % 1009) / 1009


def plain(values):
    return np.asarray(values).ravel().tolist()


def pairs(values, at):
    return [[z.real, z.imag] for z in values.ravel()[at].tolist()]


def fourier(count):
    z = np.fft.fft(sequence(count) + 1j * sequence(count, 500))
    return {"length": count, "values": pairs(z, [0, count // 3, count - 1])}


# Rings of patterns (x, y, qx, qy) about a centre between samples
patterns = sequence(3 * 4 * 9 * 7).reshape(3, 4, 9, 7)
i, j = np.meshgrid(np.arange(9), np.arange(7), indexing="ij")
radius = np.hypot((i - 4.25) * 0.05, (j - 2.5) * 0.04)
rings = np.stack([patterns[..., np.floor(radius / 0.05) == k].sum(-1) for k in range(int(radius.max() / 0.05) + 1)], -1)
edges = np.arange(rings.shape[-1] + 1) * 0.05
running = np.concatenate([np.zeros((3, 4, 1)), rings.cumsum(-1)], -1)


def within(r):
    return np.apply_along_axis(lambda sums: np.interp(r, edges, sums), -1, running)


# Fields (y, x)
u, v = sequence(20).reshape(4, 5), sequence(20, 333).reshape(4, 5)
sectors = [sequence(6, 100 * k + 1) for k in range(4)]

# Radial profiles
image = sequence(120).reshape(10, 12)
x, y = np.meshgrid(-0.6 + 0.1 * np.arange(12), -0.45 + 0.1 * np.arange(10))
ring = np.floor(np.hypot(x - 0.02, y + 0.03) / 0.1).astype(int)
dx, dy = x - 0.5, y - 0.4
wrapped = np.hypot(dx - 1.2 * np.round(dx / 1.2), dy - np.round(dy))
wrapped_ring = np.floor(wrapped / 0.1 + 1e-9).astype(int)
t = np.arange(-20, 21) * 0.1
gauss = np.exp(-(t**2) / 0.5)
a, b = sequence(50), sequence(50, 20)
cumulated = np.concatenate([[0], sequence(8, 3).cumsum()])


def wavelength(energy_kev):
    h, m, e, c = 6.62607e-34, 9.109383e-31, 1.602177e-19, 299792458.0
    joule = e * energy_kev * 1e3
    return 1e10 * h / np.sqrt(2 * m * joule * (1 + joule / (2 * m * c * c)))


plane = (sequence(330) + 1j * sequence(330, 77)).reshape(22, 15)
transform = np.fft.fft2(plane)
print(
    json.dumps(
        {
            "fourier": [fourier(n) for n in (1, 2, 7, 12, 27, 30, 34, 60, 96, 101, 105, 128, 192)],
            "fourier2": pairs(transform, [0, 17, 329]),
            "shifted": plain(np.fft.fftshift(transform).real.ravel()[[0, 100, 172, 329]]),
            "frequencies": [np.fft.fftshift(np.fft.fftfreq(n, 0.3))[0] for n in (15, 22)],
            "annulus": plain((within(0.17) - within(0.06)).T),
            "mask": plain(patterns[..., (radius >= 0.05) & (radius < 0.15)].sum(-1).T),
            "radialCurve": plain(rings.mean((0, 1)) / 0.05),
            "divergence": plain(np.gradient(u, 0.4, axis=1) + np.gradient(v, 0.3, axis=0)),
            "curl": plain(np.gradient(v, 0.4, axis=1) - np.gradient(u, 0.3, axis=0)),
            "quadrants": plain((sectors[0] - sectors[2]) / sum(sectors)),
            "profile": [image[ring == k].mean() for k in range(4)],
            "enclosed": [image[ring <= k].sum() for k in range(4)],
            "periodicProfile": [image[wrapped_ring == k].mean() for k in range(4)],
            "halfWidth": np.interp(-0.5, -gauss[20:], t[20:]) - np.interp(0.5, gauss[:21], t[:21]),
            "medianRadius": np.interp(0.5 * cumulated[-1], cumulated, np.arange(9) * 0.2),
            "correlation": np.corrcoef(a, b)[0, 1],
            "rFactor": abs(a - b).sum() / b.sum(),
            "wavelength": [wavelength(energy) for energy in (60, 80, 100, 200, 300)],
        },
        indent=1,
    )
)
