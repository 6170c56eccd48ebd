// Tangled from book/src/view-pieces.md: edit there, or here and run cargo tangle stitch.
//! The page of a server: small arrays are in it, and large ones are served in pieces.

// Imports of a served page
use super::encode::Elements;
use super::manifest::{file_json, script_json, table_json, text_json, variable_json};
use super::page::{Page, Store, unstored};
use super::pieces::Pieces;
use super::reduce::Reduction;
use crate::data::{TypedArray, Values, Variable};
use crate::error::{Error, accept};
use serde_json::{Value, json};

// Page of open files
/// Content security policy of a served page, which may also connect to its server.
pub(super) const SERVED_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:; connect-src 'self' data: blob:";

impl Page {
    /// Page of a [server](super::Server) of these files.
    ///
    /// # Errors
    /// `Invalid` without files; `Failed` if compression fails.
    pub fn served(files: &[Pieces]) -> Result<Self, Error> {
        accept(!files.is_empty(), "files", files.len(), "at least one")?;
        let mut store = Store { parts: Vec::new(), arrays: Vec::new(), limit: u64::MAX };
        let (mut entries, mut names) = (Vec::new(), Vec::new());
        for (number, file) in files.iter().enumerate() {
            let variables = file.data().iter().enumerate().map(|(k, variable)| {
                let values = match &variable.values {
                    Values::Text(text) => text_json(text),
                    Values::Table(table) => table_json(table),
                    Values::Array(array) => store.served((file, number, k), variable, array)?,
                };
                Ok(variable_json(variable, &values))
            });
            let variables = variables.collect::<Result<Vec<_>, Error>>()?;
            entries.push(file_json(&file.name(), &file.data().attributes, variables));
            names.push(file.name());
        }
        let program = concat!("lenslet ", env!("CARGO_PKG_VERSION"));
        let manifest = json!({ "format": 1, "program": program, "server": "", "files": entries });
        let (title, manifest) = (names.join(", "), script_json(&manifest));
        let Store { parts, arrays, .. } = store;
        Ok(Self { title, manifest, parts, arrays, policy: SERVED_POLICY })
    }
}

// Array of a served page
impl Store {
    /// Array in JSON; its elements are embedded in the page, or served in pieces.
    fn served(
        &mut self,
        (file, number, k): (&Pieces, usize, usize),
        variable: &Variable,
        array: &TypedArray,
    ) -> Result<Value, Error> {
        let binning = vec![1; array.shape().len()];
        Ok(match file.encoding(k) {
            Some(encoding) => {
                let mut stored = unstored(variable, array, &Reduction { encoding, binning });
                stored.served = Some(format!("{number}/{k}"));
                stored.json()
            }
            None => {
                let elements = Elements::of(array);
                let reduction = Reduction { encoding: elements.exact_encoding(), binning };
                self.array((number, variable), array, &elements, &reduction)?.json()
            }
        })
    }
}
