// Tangled from book/src/atoms.md: edit there, or here and run cargo tangle stitch.
//! Atoms, and the cell that contains them.

// Imports of atoms
use crate::error::{Invalid, accept};

// An element by its number
/// A chemical element, by its atomic number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Element(u8);

// Elements as text
#[cfg(feature = "serde")]
impl serde::Serialize for Element {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.symbol())
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Element {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let symbol = String::deserialize(deserializer)?;
        Self::of_symbol(&symbol).map_err(serde::de::Error::custom)
    }
}

impl Element {
    /// The element of atomic number `number`, from 1 to 103.
    ///
    /// # Errors
    /// `Invalid` for any other number.
    pub fn new(number: usize) -> Result<Self, Invalid> {
        let good = (1..=103).contains(&number);
        Ok(Self(accept(good, "element", number, "an atomic number from 1 to 103")? as u8))
    }

    /// Its atomic number.
    pub fn number(self) -> usize {
        usize::from(self.0)
    }

    // Symbols of elements
    /// Its symbol, such as `Si`.
    pub fn symbol(self) -> &'static str {
        SYMBOLS[self.number() - 1]
    }

    /// The element of a symbol, in upper or lower case.
    ///
    /// # Errors
    /// `Invalid` where there is none of this symbol up to 103.
    ///
    /// ```
    /// use lenslet::specimen::Element;
    /// assert_eq!(Element::of_symbol("si")?.number(), 14);
    /// assert!(Element::of_symbol("Xx").is_err());
    /// # Ok::<(), lenslet::Invalid>(())
    /// ```
    pub fn of_symbol(symbol: &str) -> Result<Self, Invalid> {
        let place = SYMBOLS.iter().position(|known| known.eq_ignore_ascii_case(symbol));
        let refused = || Invalid::new("element", symbol, "a symbol of the elements from H to Lr");
        Ok(Self(place.ok_or_else(refused)? as u8 + 1))
    }
}

// Symbols of all elements
/// Symbols of the elements from 1 to 103.
#[rustfmt::skip]
pub(crate) const SYMBOLS: [&str; 103] = [
    "H", "He", "Li", "Be", "B", "C", "N", "O", "F", "Ne", "Na", "Mg", "Al", "Si", "P", "S", "Cl", "Ar", "K", "Ca", "Sc",
    "Ti", "V", "Cr", "Mn", "Fe", "Co", "Ni", "Cu", "Zn", "Ga", "Ge", "As", "Se", "Br", "Kr", "Rb", "Sr", "Y", "Zr", "Nb",
    "Mo", "Tc", "Ru", "Rh", "Pd", "Ag", "Cd", "In", "Sn", "Sb", "Te", "I", "Xe", "Cs", "Ba", "La", "Ce", "Pr", "Nd", "Pm",
    "Sm", "Eu", "Gd", "Tb", "Dy", "Ho", "Er", "Tm", "Yb", "Lu", "Hf", "Ta", "W", "Re", "Os", "Ir", "Pt", "Au", "Hg", "Tl",
    "Pb", "Bi", "Po", "At", "Rn", "Fr", "Ra", "Ac", "Th", "Pa", "U", "Np", "Pu", "Am", "Cm", "Bk", "Cf", "Es", "Fm", "Md",
    "No", "Lr",
];

// An atom of a specimen
/// An atom of a specimen.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Atom {
    /// Its element.
    pub element: Element,
    /// Its rest position \[Å\]: x, y, z.
    pub position: [f64; 3],
    /// The share of cells in which it is present, from 0 to 1.
    pub occupancy: f64,
    /// The root mean square of its displacement along each axis \[Å\].
    pub displacement: f64,
}

// A specimen of atoms
/// Atoms in a box with right angles, which repeats along x and y.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Specimen {
    cell: [f64; 3],
    atoms: Vec<Atom>,
}

#[cfg(feature = "serde")]
crate::serial::deserialize_by!(Specimen::new(cell: [f64; 3], atoms: Vec<Atom>)?);

// Atoms brought into the cell
impl Specimen {
    /// The specimen of these atoms in a cell of sides `cell` \[Å\]: x, y, z, the last along the beam.
    ///
    /// Atoms outside the cell are brought into it along x and y; those above or below it by up to 1e-6 of its height are put on its face.
    ///
    /// # Errors
    /// `Invalid` where a side is not a length, where there is no atom, or where one lies above or below the cell, has no finite position, or has an occupancy outside 0 to 1
    /// or a negative displacement.
    pub fn new(cell: [f64; 3], atoms: Vec<Atom>) -> Result<Self, Invalid> {
        // Check the sides of a specimen
        for side in cell {
            accept((1e-3..=1e7).contains(&side), "cell", side, "a length between 1e-3 and 1e7 Å")?;
        }
        accept(!atoms.is_empty(), "atoms", 0, "at least one atom")?;
        let home = |(k, atom)| brought_home(cell, k, atom);
        let atoms = atoms.into_iter().enumerate().map(home).collect::<Result<_, _>>()?;
        Ok(Self { cell, atoms })
    }

    // Cell and atoms of a specimen
    /// Sides of the cell \[Å\]: x, y, z.
    pub fn cell(&self) -> [f64; 3] {
        self.cell
    }

    /// The atoms, in the order in which they were given; all lie in the cell, 0 ≤ x < L_x, 0 ≤ y < L_y, 0 ≤ z ≤ L_z, but for
    /// those that [tremble](crate::specimen::Phonons) out of it above or below.
    pub fn atoms(&self) -> &[Atom] {
        &self.atoms
    }
}

// A specimen with other atoms
impl Specimen {
    /// The specimen of atoms that have been checked, brought into the cell as by [`new`](Self::new).
    pub(crate) fn checked(cell: [f64; 3], mut atoms: Vec<Atom>) -> Self {
        for atom in &mut atoms {
            wrap(cell, atom);
            atom.position[2] = atom.position[2].clamp(0.0, cell[2]);
        }
        Self { cell, atoms }
    }

    /// This cell with other atoms, which are brought into it across the beam and may lie above or below it.
    pub(crate) fn with(&self, mut atoms: Vec<Atom>) -> Self {
        for atom in &mut atoms {
            wrap(self.cell, atom);
        }
        Self { cell: self.cell, atoms }
    }
}

// An atom brought home
/// Atom `k`, brought into the cell along x and y.
fn brought_home(cell: [f64; 3], k: usize, mut atom: Atom) -> Result<Atom, Invalid> {
    let refuse = |quantity: &str, value: f64, expected: &str| {
        Err(Invalid::new(format!("{quantity} of atom {}", k + 1), value, expected))
    };
    if let Some(&place) = atom.position.iter().find(|place| !place.is_finite()) {
        return refuse("position", place, "a finite number");
    }
    if !(0.0..=1.0).contains(&atom.occupancy) {
        return refuse("occupancy", atom.occupancy, "a number from 0 to 1");
    }
    if !(atom.displacement >= 0.0 && atom.displacement.is_finite()) {
        return refuse("displacement", atom.displacement, "a length in Å, not negative");
    }
    // Wrap or reject an atom
    wrap(cell, &mut atom);
    let (height, slack) = (atom.position[2], 1e-6 * cell[2]);
    if !(-slack..=cell[2] + slack).contains(&height) {
        return refuse("z", height, &format!("a height in the cell, 0 to {} Å", cell[2]));
    }
    atom.position[2] = height.clamp(0.0, cell[2]);
    Ok(atom)
}

// An atom wrapped across the beam
/// Brings an atom into the cell along x and y.
fn wrap(cell: [f64; 3], atom: &mut Atom) {
    for (place, side) in atom.position.iter_mut().zip(cell).take(2) {
        let home = place.rem_euclid(side);
        *place = if home < side { home } else { 0.0 };
    }
}

// Tests of atoms
#[cfg(test)]
mod tests {
    use super::*;

    fn atom(position: [f64; 3]) -> Atom {
        let element = Element::new(14).unwrap();
        Atom { element, position, occupancy: 1.0, displacement: 0.076 }
    }

    #[test]
    fn atoms_come_home_across_the_beam_only() {
        let cell = [2.0, 3.0, 5.0];
        let places = [[-0.5, 7.0, 5.0], [2.0, -1e-17, 5.0 + 1e-7], [0.1, 0.2, -1e-9]];
        let specimen = Specimen::new(cell, places.map(atom).to_vec()).unwrap();
        let found: Vec<[f64; 3]> = specimen.atoms().iter().map(|atom| atom.position).collect();
        assert_eq!(found, [[1.5, 1.0, 5.0], [0.0, 0.0, 5.0], [0.1, 0.2, 0.0]]);
        let refused = Specimen::new(cell, vec![atom([0.0; 3]), atom([0.0, 0.0, 5.1])]).unwrap_err();
        assert_eq!((&*refused.quantity, &*refused.value), ("z of atom 2", "5.1"));
    }

    #[test]
    fn atoms_that_make_no_sense_are_refused() {
        let refused = |change: &dyn Fn(&mut Atom)| {
            let mut bad = atom([0.0; 3]);
            change(&mut bad);
            Specimen::new([1.0; 3], vec![bad]).unwrap_err().quantity
        };
        assert_eq!(refused(&|atom| atom.occupancy = -0.1), "occupancy of atom 1");
        assert_eq!(refused(&|atom| atom.occupancy = f64::NAN), "occupancy of atom 1");
        assert_eq!(refused(&|atom| atom.displacement = -1.0), "displacement of atom 1");
        assert_eq!(refused(&|atom| atom.position[1] = f64::INFINITY), "position of atom 1");
        assert_eq!(Specimen::new([1.0, 0.0, 1.0], vec![]).unwrap_err().quantity, "cell");
        assert_eq!(Specimen::new([1.0; 3], vec![]).unwrap_err().quantity, "atoms");
        assert!(Element::new(0).is_err() && Element::new(104).is_err());
        for number in 1..=103 {
            let element = Element::new(number).unwrap();
            assert_eq!(Element::of_symbol(element.symbol()).unwrap(), element);
        }
    }
}
