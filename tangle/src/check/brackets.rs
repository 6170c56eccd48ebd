//! Blocks that are cut inside an item: each holds whole items or whole statements.

use crate::block::Block;
use crate::chapter::Chapter;
use crate::finding::Finding;
use crate::rust;
use crate::volume::Book;

pub fn check(book: &Book) -> Vec<Finding> {
    let mut findings = Vec::new();
    for chapter in &book.chapters {
        for block in chapter.blocks.iter().filter(|block| block.is_chunk()) {
            if matches!(block.language.as_str(), "rust" | "cuda") {
                findings.extend(unbalanced(chapter, block));
            }
        }
    }
    findings
}

/// The first bracket of a block that has no partner in it. Strings and comments hold none, and so
/// neither do references; the tokens of CUDA are similar enough to those of Rust.
fn unbalanced(chapter: &Chapter, block: &Block) -> Option<Finding> {
    let text = &chapter.text;
    let start = text.start_of(block.code.start);
    let code = text.as_str().get(start..text.start_of(block.code.end))?;
    let mut open = Vec::new();
    let mut odd = None;
    for token in rust::tokens(code) {
        let opening = match token.text {
            "(" | "[" | "{" => {
                open.push(token);
                continue;
            }
            ")" => "(",
            "]" => "[",
            "}" => "{",
            _ => continue,
        };
        match open.pop() {
            Some(last) if last.text == opening => {}
            Some(last) => {
                odd = Some((
                    last,
                    format!("{} is closed by {} in this block", last.text, token.text),
                ));
                break;
            }
            None => {
                odd = Some((token, format!("{} closes what another block opens", token.text)));
                break;
            }
        }
    }
    let unclosed = || open.first().map(|&t| (t, format!("{} is not closed in this block", t.text)));
    let (token, what) = odd.or_else(unclosed)?;
    let what = format!("{what}: a block holds whole items or whole statements");
    Some(Finding::error(&chapter.path, text.position(start + token.at), what))
}
