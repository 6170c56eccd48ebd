// Tangled from book/src/commands.md: edit there, or here and run cargo tangle stitch.
//! Stands here until the chapter "Commands" is written.
fn main() {}
