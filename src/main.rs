// Tangled from book/src/commands.md: edit there, or here and run cargo tangle stitch.
//! The command `lenslet`.

use std::process::ExitCode;

fn main() -> ExitCode {
    lenslet::command::run()
}
