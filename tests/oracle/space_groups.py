"""Settings of the space groups, and their operations by other programs.

    python3 -m pip install ase spglib moyopy
    python3 tests/oracle/space_groups.py table > book/data/space_groups.csv
    python3 tests/oracle/space_groups.py operations > tests/oracle/space_groups.csv
    python3 tests/oracle/space_groups.py crystals > tests/oracle/space_group_crystals.csv

`table` writes moyo's list of the 530 settings, with the older and shorter spellings of their Hermann-Mauguin symbols. `operations` writes what
spglib's list of operations, which is independent of Hall symbols, makes of a point in general position. `crystals` writes what ASE makes of
CIF files that name their group.
"""

import importlib.metadata
import io
import re
import sys

import numpy as np

# Symbols before 1992, in the order of moyo's settings: a glide plane that is now called e had one of two letters.
OLDER = {
    39: ["A b m 2", "B m a 2", "B 2 c m", "C 2 m b", "C m 2 a", "A c 2 m"],
    41: ["A b a 2", "B b a 2", "B 2 c b", "C 2 c b", "C c 2 a", "A c 2 a"],
    64: ["C m c a", "C c m b", "A b m a", "A c a m", "B b c m", "B m a b"],
    67: ["C m m a", "C m m b", "A b m m", "A c m m", "B m c m", "B m a m"],
    68: [name for name in ["C c c a", "C c c b", "A b a a", "A c a a", "B b c b", "B b a b"] for _ in "12"],
}
# moyo names this setting of group 68 by its older symbol alone.
MENDED = {331: "B b e b"}


def names(entry, order):
    """All spellings of a setting's symbol, the one to print first."""
    short, full = entry.hm_short.replace("_", ""), entry.hm_full.replace("_", "")
    short = MENDED.get(entry.hall_number, short)
    if 3 <= entry.number <= 15:
        brief = " ".join([full.split()[0]] + [part for part in full.split()[1:] if part != "1"])
        found = [full, brief]
    else:
        found = [short, full]
    if entry.number in OLDER:
        found.append(OLDER[entry.number][order])
    if "-3" in short and entry.number >= 200:
        found.append(short.replace("-3", "3"))
    return list(dict.fromkeys(found))


def table():
    import moyopy

    print(f"# Settings of the space groups, by moyo {importlib.metadata.version('moyopy')} (MIT or Apache-2.0); made by tests/oracle/space_groups.py.")
    print("number,setting,hall,names")
    order = {}
    for k in range(1, 531):
        entry = moyopy.HallSymbolEntry(k)
        order[entry.number] = order.get(entry.number, -1) + 1
        print(f"{entry.number},{entry.setting},{entry.hall_symbol.replace('=', chr(34))},{'='.join(names(entry, order[entry.number]))}")
    # Centred cells of the triclinic groups, which mineralogists use
    for number, bar in (1, ""), (2, "-"):
        for centring in "ABCFI":
            print(f"{number},{centring},{bar}{centring} 1,{centring} {bar}1")


PLACE = np.array([0.1234, 0.2718, 0.3391])
REFLECTIONS = [(1, 2, 3), (-4, 1, 2), (3, -5, 7), (2, 2, 6), (0, 4, -3)]


def factors(places):
    """Structure factors of point scatterers."""
    return [np.exp(2j * np.pi * (places @ np.array(hkl))).sum() for hkl in REFLECTIONS]


def written(numbers):
    """Numbers with six digits behind the point, none of them −0."""
    return ",".join(f"{part:.6f}".replace("-0.000000", "0.000000") for z in numbers for part in (z.real, z.imag))


COLUMNS = ",".join(f"{part}_{h}_{k}_{l}" for h, k, l in REFLECTIONS for part in ("re", "im"))


def operations():
    import spglib

    print(f"# A point at {PLACE.tolist()} and its images by spglib {spglib.__version__}'s operations: how many, and structure factors; by tests/oracle/space_groups.py.")
    print(f"number,setting,images,{COLUMNS}")
    for k in range(1, 531):
        kind, found = spglib.get_spacegroup_type(k), spglib.get_symmetry_from_database(k)
        places = found["rotations"] @ PLACE + found["translations"]
        print(f"{kind.number},{kind.choice},{len(places)},{written(factors(places))}")


# Number, symbol as a CIF file spells it, ASE's setting, lengths and angles. Atoms: silicon in general position, gold on the origin, oxygen on an axis.
CRYSTALS = [
    (1, "P 1", 1, (4.1, 5.2, 6.3, 81, 97, 103)),
    (2, "P -1", 1, (4.1, 5.2, 6.3, 81, 97, 103)),
    (4, "P 1 21 1", 1, (4.1, 5.2, 6.3, 90, 97, 90)),
    (14, "P 1 21/c 1", 1, (4.1, 5.2, 6.3, 90, 97, 90)),
    (15, "C 2/c", 1, (4.1, 5.2, 6.3, 90, 97, 90)),
    (19, "P 21 21 21", 1, (4.1, 5.2, 6.3, 90, 90, 90)),
    (43, "F d d 2", 1, (4.1, 5.2, 6.3, 90, 90, 90)),
    (48, "P n n n :2", 2, (4.1, 5.2, 6.3, 90, 90, 90)),
    (62, "Pnma", 1, (4.1, 5.2, 6.3, 90, 90, 90)),
    (64, "C m c a", 1, (4.1, 5.2, 6.3, 90, 90, 90)),
    (88, "I41/a:1", 1, (4.1, 4.1, 6.3, 90, 90, 90)),
    (122, "I -4 2 d", 1, (4.1, 4.1, 6.3, 90, 90, 90)),
    (136, "P 42/m n m", 1, (4.1, 4.1, 6.3, 90, 90, 90)),
    (141, "I_41/a_m_d:2", 2, (4.1, 4.1, 6.3, 90, 90, 90)),
    (152, "P 31 2 1", 1, (4.1, 4.1, 6.3, 90, 90, 120)),
    (166, "R -3 m", 1, (4.1, 4.1, 13.3, 90, 90, 120)),
    (167, "R -3 c", 2, (5.1, 5.1, 5.1, 57, 57, 57)),
    (194, "P 63/m m c", 1, (4.1, 4.1, 6.3, 90, 90, 120)),
    (205, "P a -3", 1, (5.1, 5.1, 5.1, 90, 90, 90)),
    (221, "P m 3 m", 1, (5.1, 5.1, 5.1, 90, 90, 90)),
    (225, "F m -3 m", 1, (5.1, 5.1, 5.1, 90, 90, 90)),
    (227, "F d -3 m:1", 1, (5.1, 5.1, 5.1, 90, 90, 90)),
    (227, "F d -3 m:2", 2, (5.1, 5.1, 5.1, 90, 90, 90)),
    (230, "I a -3 d", 1, (5.1, 5.1, 5.1, 90, 90, 90)),
]
ATOMS = {"Si": PLACE, "Au": np.zeros(3), "O": np.array([0, 0, 0.1667]) * np.array([1, 1, 1.2])}


def crystals():
    import ase
    import ase.io

    print(f"# Atoms that ASE {ase.__version__} reads from CIF files that name their space group; by tests/oracle/space_groups.py.")
    print(f"number,symbol,a,b,c,alpha,beta,gamma,Si,Au,O,{COLUMNS}")
    for number, symbol, setting, cell in CRYSTALS:
        names = ["length_a", "length_b", "length_c", "angle_alpha", "angle_beta", "angle_gamma"]
        lines = ["data_x"] + [f"_cell_{name} {value}" for name, value in zip(names, cell)]
        lines += [f"_symmetry_Int_Tables_number {number}", f"_symmetry_space_group_setting {setting}", "loop_", "_atom_site_label"]
        lines += [f"_atom_site_fract_{axis}" for axis in "xyz"]
        lines += [f"{name} {' '.join(f'{x:.4f}' for x in place)}" for name, place in ATOMS.items()]
        made = ase.io.read(io.StringIO("\n".join(lines) + "\n"), format="cif")
        counts = [made.get_chemical_symbols().count(name) for name in ATOMS]
        # Gold weighs thrice as much as oxygen, silicon twice.
        weights = np.array([{"Si": 2, "Au": 3, "O": 1}[name] for name in made.get_chemical_symbols()])
        places = made.get_scaled_positions()
        found = [(weights * np.exp(2j * np.pi * (places @ np.array(hkl)))).sum() for hkl in REFLECTIONS]
        print(f"{number},{symbol},{','.join(map(str, cell))},{','.join(map(str, counts))},{written(found)}")


if __name__ == "__main__":
    {"table": table, "operations": operations, "crystals": crystals}[sys.argv[1]]()
