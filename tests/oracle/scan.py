"""abTEM beside lenslet: what it reads of a lopsided specimen, and how long it takes for the scans of `lenslet bench stem`.

    python3 -m pip install abTEM
    python3 tests/oracle/scan.py readings > tests/oracle/scan.csv
    python3 tests/oracle/scan.py times target/release/lenslet
"""

import importlib.metadata
import json
import subprocess
import sys
import time

import abtem
import ase
import numpy as np

RADIUS = 0.5292, 0.529177210903  # Å, ours and abTEM's
CHARGE = 14.4, 14.39964548  # V Å, ours and abTEM's
ENERGY = 100e3
CELL, POINTS = (8.0, 6.4, 6.0), (256, 192)
# Number, samples along x and y, and depth in Å below the side where electrons enter. abTEM spreads an atom over four samples unless it
# stands on one.
ATOMS = [(14, 35, 21, 0.5), (79, 106, 87, 1.6), (8, 189, 39, 2.8), (38, 70, 153, 3.9), (22, 214, 132, 4.4), (31, 144, 117, 5.3)]
PLACES = [(x, y) for x in (0.8, 3.2, 5.6) for y in (1.6, 2.9)]
CONES = [(0, 10), (10, 20), (20, 40), (40, 60)]
WAVELENGTH = abtem.core.energy.energy2wavelength(ENERGY)
LENS = WAVELENGTH / (2 * np.pi)
ABERRATED = {
    "C10": 60.0,
    "C30": 2e5,
    "C12": 2 * 2e3 * LENS,
    "phi12": np.deg2rad(30),
    "C21": 3 * 1e5 * LENS,
    "phi21": np.deg2rad(70),
    "C23": 3 * 7e4 * LENS,
    "phi23": np.deg2rad(10),
}
# abTEM looks from the frame of the beam.
TILTED = {"tilt": (2 * 1e3 * WAVELENGTH / CELL[0], -1e3 * WAVELENGTH / CELL[1])}


def potential(factors):
    """The slices of the specimen, with our constants."""
    positions = [(i * CELL[0] / POINTS[0], j * CELL[1] / POINTS[1], depth) for _, i, j, depth in ATOMS]
    atoms = ase.Atoms(numbers=[atom[0] for atom in ATOMS], positions=positions, cell=CELL, pbc=True)
    made = abtem.Potential(atoms, gpts=POINTS, slice_thickness=1.0, projection="infinite", parametrization=factors)
    values = made.build().compute().array * (RADIUS[0] * CHARGE[0] / (RADIUS[1] * CHARGE[1]))
    return abtem.PotentialArray(values, slice_thickness=1.0, sampling=np.divide(CELL[:2], POINTS))


def readings():
    """A row for each case and place: the share of electrons in each cone."""
    abtem.config.set({"precision": "float64", "device": "cpu", "local_diagnostics.progress_bar": False})
    version = importlib.metadata.version("abTEM")
    print(f"# Shares of electrons between angles, by abTEM {version} in double precision; made by tests/oracle/scan.py, which says of what.")
    print("factors,case,x,y," + ",".join(f"from_{low}_to_{high}" for low, high in CONES))
    for factors in "kirkland", "lobato":
        slices = potential(factors)
        for case, options in ("plain", {}), ("aberrated", ABERRATED), ("tilted", TILTED):
            probe = abtem.Probe(energy=ENERGY, semiangle_cutoff=20.0, gpts=POINTS, extent=CELL[:2], **options)
            waves = probe.multislice(slices, scan=abtem.CustomScan(np.array(PLACES)))
            patterns = waves.diffraction_patterns(max_angle=None, block_direct=False).compute().array
            angles = [1e3 * WAVELENGTH * (np.arange(n) - n // 2) / side for n, side in zip(patterns.shape[1:], CELL)]
            angle = np.hypot(angles[0][:, None], angles[1])
            for (x, y), pattern in zip(PLACES, patterns):
                shares = [pattern[(angle >= low) & (angle < high)].sum() for low, high in CONES]
                print(f"{factors},{case},{x},{y}," + ",".join(f"{share:.12e}" for share in shares))


def times(program):
    """Seconds of both programs for the same scans in single precision on the same cores, abTEM's the least of three."""
    abtem.config.set({"precision": "float32", "device": "cpu", "local_diagnostics.progress_bar": False})
    side, quarters = 5.43, [(0, 0, 0), (2, 2, 0), (1, 1, 1), (3, 3, 1), (2, 0, 2), (0, 2, 2), (3, 1, 3), (1, 3, 3)]
    sheet = json.loads(subprocess.check_output([program, "bench", "stem", "--json"]))
    version = importlib.metadata.version("abTEM")
    print(f"Scans of silicon by abTEM {version} and lenslet {sheet['version']}, {sheet['precision']}; the least of 3 runs, in seconds")
    print(f"{sheet['processor']}; {sheet['engine']}, {sheet['date']}")
    print(f"{'case':21}{'abTEM':>9}{'lenslet':>10}{'ratio':>8}")
    for row in sheet["rows"]:
        method, *factor = row["name"].split("-")[1:]
        deep = "deep" in factor
        cells, thickness = {128: ((3, 3, 15), 2.0), 256: ((4, 4, 10), 1.3575), 512: ((8, 8, 10), 1.3575)}[row["points"]]
        atoms = ase.Atoms("Si8", positions=np.add(quarters, (0, 0, 0.5)) * side / 4, cell=[side] * 3, pbc=True) * cells
        if deep:
            atoms.rattle(0.076, seed=1)
        grid = (row["points"],) * 2
        extent = tuple(side * count for count in cells[:2])
        places = abtem.GridScan((0, 0), extent, gpts=round(row["probes"] ** 0.5), endpoint=False)
        rings = abtem.FlexibleAnnularDetector(step_size=1.0)
        seconds = []
        for _ in range(4):
            start = time.perf_counter()
            projection = "finite" if deep else "infinite"
            made = abtem.Potential(atoms, gpts=grid, slice_thickness=thickness, projection=projection, parametrization="kirkland")
            if method == "multislice":
                scan = abtem.Probe(energy=ENERGY, semiangle_cutoff=20.0).scan(made, scan=places, detectors=rings)
            else:
                matrix = abtem.SMatrix(potential=made, energy=ENERGY, semiangle_cutoff=20.0, interpolation=int(factor[0]))
                scan = matrix.scan(scan=places, detectors=rings)
            scan.compute()
            seconds.append(time.perf_counter() - start)
        ratio = min(seconds[1:]) / row["total"]
        print(f"{row['name']:21}{min(seconds[1:]):9.3f}{row['total']:10.4f}{ratio:8.1f}")


if __name__ == "__main__":
    if sys.argv[1:] == ["readings"]:
        readings()
    elif sys.argv[1:2] == ["times"] and len(sys.argv) == 3:
        times(sys.argv[2])
    else:
        sys.exit(__doc__)
