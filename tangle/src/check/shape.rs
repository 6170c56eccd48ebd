//! The parts that a chapter of the narrative has: question, drawing, worked case, what can go wrong, check, exercises, further
//! reading.

use crate::chapter::Chapter;

/// Whether a chapter belongs to the parts that are read in order.
pub fn in_narrative(chapter: &Chapter) -> bool {
    chapter.part.is_some() && !chapter.in_appendix()
}

/// Whether a chapter develops a subject: not nested in another, and not the opening of a part.
pub fn is_main(chapter: &Chapter) -> bool {
    let nested = chapter.number.as_ref().is_some_and(|number| number.contains('.'));
    in_narrative(chapter) && !nested && chapter.map_line().is_none()
}

/// The first line, if the chapter does not begin with its question.
pub fn without_question(chapter: &Chapter) -> Vec<usize> {
    let lines = (1..=chapter.text.line_count()).map(|line| chapter.text.line(line).trim());
    let mut begin = lines.filter(|line| !line.is_empty() && !line.starts_with("<!--"));
    missing(begin.nth(1).is_some_and(|line| line.starts_with("> ")))
}

/// The first line, if no heading holds one of some words.
pub fn without_heading(chapter: &Chapter, words: &[&str]) -> Vec<usize> {
    let named = |title: &str| words.iter().any(|word| title.to_lowercase().contains(word));
    missing(chapter.headings.iter().skip(1).any(|heading| named(&heading.title)))
}

/// The first line, if a chapter shows no picture.
pub fn without_picture(chapter: &Chapter) -> Vec<usize> {
    missing(chapter.links.iter().any(|link| link.image))
}

/// The first line, if a chapter cites no work.
pub fn without_citation(chapter: &Chapter) -> Vec<usize> {
    missing(!chapter.citations.is_empty())
}

/// The first line, if a chapter has fewer exercises than three.
pub fn few_exercises(chapter: &Chapter) -> Vec<usize> {
    missing(exercises(chapter).len() >= 3)
}

/// The lines of exercises that do not begin with the time that they take: `1. *5 min.* …`.
pub fn unrated_exercises(chapter: &Chapter) -> Vec<usize> {
    exercises(chapter).into_iter().filter(|&line| !is_rated(chapter.text.line(line))).collect()
}

/// The lines of figures of the program whose captions hold no number.
pub fn captions_without_number(chapter: &Chapter) -> Vec<usize> {
    let figures =
        chapter.links.iter().filter(|link| link.image && link.target.contains("figures/"));
    let silent = figures.filter(|link| !link.text.contains(|c: char| c.is_ascii_digit()));
    silent.map(|link| link.position.0).collect()
}

/// The first line where something is missing.
fn missing(present: bool) -> Vec<usize> {
    if present { Vec::new() } else { vec![1] }
}

/// The lines of the numbered items below headings that name exercises.
fn exercises(chapter: &Chapter) -> Vec<usize> {
    crate::check::exercises::of(chapter).into_values().collect()
}

/// Whether an item begins with a time in italics.
fn is_rated(line: &str) -> bool {
    let rating = line.split_once(". *").and_then(|(_, rest)| rest.split_once(".* "));
    let words = rating.and_then(|(rating, _)| rating.split_once(' '));
    words
        .is_some_and(|(number, unit)| number.parse::<u32>().is_ok() && ["min", "h"].contains(&unit))
}

#[cfg(test)]
mod tests {
    use super::is_rated;

    #[test]
    fn exercises_are_rated_by_time() {
        assert!(is_rated("1. *5 min.* What is it?") && is_rated("12. *2 h.* Write it."));
        for line in [
            "1. What is it?",
            "1. *Easy.* What?",
            "1. *5 min* What?",
            "1. *five min.* What?",
            "1. *5 days.* What?",
        ] {
            assert!(!is_rated(line), "{line}");
        }
    }
}
