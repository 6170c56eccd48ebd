// Tangled from book/src/data-variables.md: edit there, or here and run cargo tangle stitch.
//! Tables: columns of integers, numbers and texts, each with its name and its unit.

// Columns of a table
/// Columns of equal length, each with its name and its unit.
///
/// ```
/// use lenslet::data::Table;
/// let lenslets = [[0.5, 1.5], [-0.5, 2.0]];
/// let table = Table::of(&lenslets).number("x", "m", |centre| centre[0]).number("y", "m", |centre| centre[1]).table();
/// assert_eq!((table.rows(), table.numbers("y")), (2, Some(&[1.5, 2.0][..])));
/// ```
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Table {
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: [usize; 1],
}

#[cfg(feature = "serde")]
crate::serial::deserialize_by!(Table { columns: Vec<Column>, rows: [usize; 1] });

// Check a table from a text
#[cfg(feature = "serde")]
impl Table {
    /// Rejects columns of another length than the table has rows.
    fn check_fields(&self) -> Result<(), crate::error::Invalid> {
        let [rows] = self.rows;
        let expected = format!("{rows}, one for each row");
        self.columns.iter().try_for_each(|column| {
            let cells = column.cells.len();
            let quantity = format!("cells of column {}", column.name);
            crate::error::accept(cells == rows, &quantity, cells, &expected).map(drop)
        })
    }
}

// Column of a table and its cells
/// A column of a table.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Column {
    pub(crate) name: String,
    pub(crate) unit: String,
    pub(crate) cells: Cells,
}

/// The cells of a column.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub(crate) enum Cells {
    Integers(Vec<i32>),
    #[cfg_attr(feature = "serde", serde(with = "crate::serial::list"))]
    Numbers(Vec<f64>),
    /// Short texts, such as the names of terms.
    Texts(Vec<String>),
}

// Length of a column
#[cfg(feature = "serde")]
impl Cells {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Integers(cells) => cells.len(),
            Self::Numbers(cells) => cells.len(),
            Self::Texts(cells) => cells.len(),
        }
    }
}

impl Table {
    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.rows[0]
    }

    // Find a column of a table
    /// The columns, in their order.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The integers of the column of this name; `None` where there is none of integers.
    pub fn integers(&self, name: &str) -> Option<&[i32]> {
        let column = self.columns.iter().find(|column| column.name == name)?;
        if let Cells::Integers(cells) = &column.cells { Some(cells) } else { None }
    }

    /// The numbers of the column of this name; `None` where there is none of numbers.
    pub fn numbers(&self, name: &str) -> Option<&[f64]> {
        let column = self.columns.iter().find(|column| column.name == name)?;
        if let Cells::Numbers(cells) = &column.cells { Some(cells) } else { None }
    }

    /// The texts of the column of this name; `None` where there is none of texts.
    pub fn texts(&self, name: &str) -> Option<&[String]> {
        let column = self.columns.iter().find(|column| column.name == name)?;
        if let Cells::Texts(cells) = &column.cells { Some(cells) } else { None }
    }
}

// Make a table column by column
/// A table in the making, with the list that its columns are taken from.
#[derive(Debug)]
pub struct TableBuilder<'r, R> {
    rows: &'r [R],
    columns: Vec<Column>,
}

impl Table {
    /// Begins a table with a row for each of these.
    pub fn of<R>(rows: &[R]) -> TableBuilder<'_, R> {
        TableBuilder { rows, columns: Vec::new() }
    }
}

impl Column {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The unit of its cells.
    pub fn unit(&self) -> &str {
        &self.unit
    }
}

impl<R> TableBuilder<'_, R> {
    /// Adds a column of integers.
    pub fn integer(mut self, name: &str, cell: impl Fn(&R) -> i32) -> Self {
        let cells = Cells::Integers(self.rows.iter().map(cell).collect());
        self.columns.push(Column { name: name.into(), unit: String::new(), cells });
        self
    }

    /// Adds a column of numbers in a unit.
    pub fn number(mut self, name: &str, unit: &str, cell: impl Fn(&R) -> f64) -> Self {
        let cells = Cells::Numbers(self.rows.iter().map(cell).collect());
        self.columns.push(Column { name: name.into(), unit: unit.into(), cells });
        self
    }

    /// Adds a column of short texts.
    pub fn text(mut self, name: &str, cell: impl Fn(&R) -> String) -> Self {
        let cells = Cells::Texts(self.rows.iter().map(cell).collect());
        self.columns.push(Column { name: name.into(), unit: String::new(), cells });
        self
    }

    /// The table.
    pub fn table(self) -> Table {
        Table { columns: self.columns, rows: [self.rows.len()] }
    }
}
