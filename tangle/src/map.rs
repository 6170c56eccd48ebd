//! The map of a part: its chapters in rows, and arrows from each to those that stand on it.
//!
//! The chapters and their arrows come from the module graph ([`flow`]); nested chapters are named in
//! the box of the one that they are nested in. A row is drawn below all that its chapters stand on.
//! An arrow that a longer way implies is left out. Long arrows pass the rows between through places of
//! their own; the order in a row is the one with the fewest crossings that some rounds of averaging
//! find, and the places follow the neighbours in the rows above and below.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use crate::expand::Tangled;
use crate::imports::flow;
use crate::pages::{escape, link};
use crate::volume::Book;

/// How many boxes a row may have.
const MOST_IN_ROW: usize = 5;
/// The widest box, the text column, and the gaps between boxes and between rows, in pixels.
const BOX: f64 = 168.0;
const COLUMN: f64 = 736.0;
const GAP: f64 = 20.0;
const BETWEEN_ROWS: f64 = 44.0;
/// The room that a passing arrow gets.
const PASSAGE: f64 = 14.0;
/// Heights of the lines of a title and of a nested chapter, and the mean width of a letter of each.
const TITLE: (f64, f64) = (18.0, 7.3);
const NESTED: (f64, f64) = (15.0, 6.0);
/// Inside a box, above and below its lines and at their sides.
const PADDING: f64 = 8.0;

/// The maps of all chapters that ask for one, by their indices, as HTML.
pub fn maps(book: &Book, tangled: &Tangled) -> BTreeMap<usize, String> {
    let asking = |&index: &usize| book.chapters[index].map_line().is_some();
    let asking: Vec<usize> = (0..book.chapters.len()).filter(asking).collect();
    if asking.is_empty() {
        return BTreeMap::new();
    }
    let flow = flow(book, tangled);
    asking.into_iter().map(|index| (index, Map::new(book, &flow, index).html())).collect()
}

/// The chapters of a part, apart from the one with its map.
struct Map<'a> {
    book: &'a Book,
    /// The chapter that asks.
    opener: usize,
    /// Each chapter that is nested in no other, followed by those nested in it.
    groups: Vec<Vec<usize>>,
    /// From each group to later ones that stand on it.
    arrows: BTreeSet<(usize, usize)>,
    /// Chapters of other parts that this part stands on.
    outside: BTreeSet<usize>,
}

impl<'a> Map<'a> {
    fn new(book: &'a Book, flow: &BTreeMap<usize, BTreeSet<usize>>, opener: usize) -> Map<'a> {
        let part = &book.chapters[opener].part;
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for (index, chapter) in book.chapters.iter().enumerate() {
            if part.is_none() || chapter.part != *part || index == opener {
                continue;
            }
            match groups.last_mut() {
                Some(group) if book.chapters[group[0]].top_number() == chapter.top_number() => {
                    group.push(index);
                }
                _ => groups.push(vec![index]),
            }
        }
        let group = |chapter| groups.iter().position(|group| group.contains(&chapter));
        let (mut arrows, mut outside) = (BTreeSet::new(), BTreeSet::new());
        for (&user, imported) in flow {
            let Some(to) = group(user) else { continue };
            for &chapter in imported {
                match group(chapter) {
                    // What stands on a later chapter is refused by `check`, and would turn the map
                    // upside down.
                    Some(from) if from < to => _ = arrows.insert((from, to)),
                    Some(_) => {}
                    None => _ = outside.insert(chapter),
                }
            }
        }
        outside.remove(&opener);
        let arrows = reduced(&arrows);
        Map { book, opener, groups, arrows, outside }
    }

    fn html(&self) -> String {
        let drawing = Drawing::new(self);
        format!(
            "\n\n<figure class=\"part-map\">\n{}<figcaption>An arrow leads from a chapter to one that \
             depends on it.{}</figcaption>\n</figure>\n\n",
            drawing.svg(self),
            self.stands_on()
        )
    }

    /// What the part needs of other parts, in words.
    fn stands_on(&self) -> String {
        let mut parts: Vec<(&str, Vec<String>)> = Vec::new();
        for &index in &self.outside {
            let part = self.book.chapters[index].part.as_deref().unwrap_or("");
            let title = escape(&self.book.chapters[index].title);
            let named = format!("<a href=\"{}\">{title}</a>", self.address(index));
            match parts.last_mut().filter(|(last, _)| *last == part) {
                Some((_, chapters)) => chapters.push(named),
                None => parts.push((part, vec![named])),
            }
        }
        let parts = parts.into_iter().map(|(part, chapters)| {
            let of = if part.is_empty() { String::new() } else { format!("{}: ", escape(part)) };
            format!("{of}{}", chapters.join(", "))
        });
        let parts: Vec<String> = parts.collect();
        if parts.is_empty() {
            String::new()
        } else {
            format!(" The part depends on {}.", parts.join("; "))
        }
    }

    /// The address of a chapter, at its first heading, as seen from the map.
    fn address(&self, index: usize) -> String {
        let chapter = &self.book.chapters[index];
        let anchor = chapter.headings.first().map_or("", |heading| heading.id.as_str());
        let address = link(&self.book.chapters[self.opener].file, &chapter.file, anchor);
        escape(address.trim_end_matches('#'))
    }
}

/// The arrows that no longer way implies.
fn reduced(arrows: &BTreeSet<(usize, usize)>) -> BTreeSet<(usize, usize)> {
    let leads = |from: usize, to: usize| {
        let mut seen = BTreeSet::from([from]);
        let mut open = vec![from];
        while let Some(node) = open.pop() {
            for &(_, next) in arrows.range((node, 0)..(node + 1, 0)) {
                if (node, next) != (from, to) && seen.insert(next) {
                    open.push(next);
                }
            }
        }
        seen.contains(&to)
    };
    arrows.iter().copied().filter(|&(from, to)| !leads(from, to)).collect()
}

/// A place in a row: a box, or where an arrow passes.
#[derive(Debug, Clone)]
struct Place {
    /// The group in the box.
    group: Option<usize>,
    row: usize,
    /// The middle.
    x: f64,
    width: f64,
}

/// Where everything is.
struct Drawing {
    places: Vec<Place>,
    /// The places of each row, from the left.
    rows: Vec<Vec<usize>>,
    /// From a place to one in the next row.
    links: BTreeSet<(usize, usize)>,
    /// Top and bottom of each row.
    heights: Vec<(f64, f64)>,
    /// The text of each group's box: lines of its title, and its nested chapters with theirs.
    texts: Vec<Text>,
}

/// The lines in a box: of the title, and of each nested chapter.
struct Text {
    title: Vec<String>,
    nested: Vec<(usize, Vec<String>)>,
}

impl Text {
    fn height(&self) -> f64 {
        let nested: usize = self.nested.iter().map(|(_, lines)| lines.len()).sum();
        2.0 * PADDING + TITLE.0 * self.title.len() as f64 + NESTED.0 * nested as f64
    }
}

impl Drawing {
    fn new(map: &Map<'_>) -> Drawing {
        let levels = levels(map.groups.len(), &map.arrows);
        let count = |row| levels.iter().filter(|&&level| level == row).count();
        let most = levels.iter().map(|&row| count(row)).max().unwrap_or(1) as f64;
        let wide = BOX.min((COLUMN - GAP * (most - 1.0)) / most);
        let mut places: Vec<Place> = levels
            .iter()
            .enumerate()
            .map(|(group, &row)| Place { group: Some(group), row, x: 0.0, width: wide })
            .collect();
        let mut links = BTreeSet::new();
        for &(from, to) in &map.arrows {
            let mut last = from;
            for row in levels[from] + 1..levels[to] {
                places.push(Place { group: None, row, x: 0.0, width: PASSAGE });
                links.insert((last, places.len() - 1));
                last = places.len() - 1;
            }
            links.insert((last, to));
        }
        let mut rows = vec![Vec::new(); levels.iter().max().map_or(0, |last| last + 1)];
        for (index, place) in places.iter().enumerate() {
            rows[place.row].push(index);
        }
        let texts: Vec<Text> = map.groups.iter().map(|group| text(map, group, wide)).collect();
        let mut top = 1.0;
        let heights = rows
            .iter()
            .map(|row| {
                let groups = row.iter().filter_map(|&place| places[place].group);
                let height = groups.map(|group| texts[group].height()).fold(0.0, f64::max);
                let bounds = (top, top + height);
                top += height + BETWEEN_ROWS;
                bounds
            })
            .collect();
        let mut drawing = Drawing { places, rows, links, heights, texts };
        drawing.arrange();
        drawing.spread();
        drawing
    }

    /// The places in the rows above and below that an arrow joins to this one.
    fn joined(&self, place: usize) -> impl Iterator<Item = usize> + '_ {
        self.links.iter().filter_map(move |&(from, to)| match place {
            _ if from == place => Some(to),
            _ if to == place => Some(from),
            _ => None,
        })
    }

    /// Orders the rows so that few arrows cross: each place goes to the mean of its neighbours in the
    /// row above, then below, and the best order seen is kept.
    fn arrange(&mut self) {
        let mut best = (self.crossings(), self.rows.clone());
        for round in 0..24 {
            let down = round % 2 == 0;
            for step in 0..self.rows.len() {
                let row = if down { step } else { self.rows.len() - 1 - step };
                let order = self.order();
                let mean = |place: usize| {
                    let side = |&other: &usize| (self.places[other].row < row) == down;
                    let at: Vec<f64> = self.joined(place).filter(side).map(|p| order[p]).collect();
                    if at.is_empty() {
                        order[place]
                    } else {
                        at.iter().sum::<f64>() / at.len() as f64
                    }
                };
                let mut sorted = self.rows[row].clone();
                sorted.sort_by(|&a, &b| mean(a).total_cmp(&mean(b)));
                self.rows[row] = sorted;
            }
            let crossings = self.crossings();
            if crossings < best.0 {
                best = (crossings, self.rows.clone());
            }
        }
        self.rows = best.1;
    }

    /// Where each place is in its row, from 0 to 1.
    fn order(&self) -> Vec<f64> {
        let mut order = vec![0.0; self.places.len()];
        for row in &self.rows {
            for (at, &place) in row.iter().enumerate() {
                order[place] = (at as f64 + 0.5) / row.len() as f64;
            }
        }
        order
    }

    fn crossings(&self) -> usize {
        let order = self.order();
        let links: Vec<_> = self.links.iter().collect();
        let cross = |&(a, b): &(usize, usize), &(c, d): &(usize, usize)| {
            self.places[a].row == self.places[c].row
                && (order[a] - order[c]) * (order[b] - order[d]) < 0.0
        };
        let crossed =
            |at: usize| links[..at].iter().filter(|&&other| cross(links[at], other)).count();
        (0..links.len()).map(crossed).sum()
    }

    /// Moves each place towards its neighbours, as far as the others in its row let it.
    fn spread(&mut self) {
        for row in 0..self.rows.len() {
            let middle = vec![COLUMN / 2.0; self.rows[row].len()];
            self.settle(row, &middle);
        }
        for round in 0..16 {
            for step in 0..self.rows.len() {
                let row = if round % 2 == 0 { step } else { self.rows.len() - 1 - step };
                let wanted: Vec<f64> = self.rows[row]
                    .iter()
                    .map(|&place| {
                        let near: Vec<f64> = self.joined(place).map(|p| self.places[p].x).collect();
                        match near.len() {
                            0 => self.places[place].x,
                            count => near.iter().sum::<f64>() / count as f64,
                        }
                    })
                    .collect();
                self.settle(row, &wanted);
            }
        }
    }

    /// Puts a row as near to where it wants to be as the widths of its places allow (least squares: a
    /// regression that keeps the order).
    fn settle(&mut self, row: usize, wanted: &[f64]) {
        let mut start = 0.0;
        let mut starts = Vec::new();
        let mut last: Option<f64> = None;
        for &place in &self.rows[row] {
            let half = self.places[place].width / 2.0;
            start += last.map_or(0.0, |before: f64| before + GAP + half);
            starts.push(start);
            last = Some(half);
        }
        // Groups that touch, each with its mean and its size.
        let mut blocks: Vec<(f64, usize)> = Vec::new();
        for (&wish, &start) in wanted.iter().zip(&starts) {
            blocks.push((wish - start, 1));
            while let [.., (left, few), (right, more)] = blocks[..]
                && left > right
            {
                blocks.pop();
                blocks.pop();
                let size = few + more;
                let mean = (left * few as f64 + right * more as f64) / size as f64;
                blocks.push((mean, size));
            }
        }
        let means = blocks.iter().flat_map(|&(mean, size)| std::iter::repeat_n(mean, size));
        for ((&place, mean), start) in self.rows[row].iter().zip(means).zip(starts) {
            self.places[place].x = mean + start;
        }
    }

    fn svg(&self, map: &Map<'_>) -> String {
        let left = self.places.iter().map(|p| p.x - p.width / 2.0).fold(f64::INFINITY, f64::min);
        let right = self.places.iter().map(|p| p.x + p.width / 2.0).fold(0.0, f64::max);
        let (width, height) =
            (right - left + 2.0, self.heights.last().map_or(0.0, |row| row.1) + 1.0);
        if !width.is_finite() {
            return String::new();
        }
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"{:.1} 0 {width:.1} {height:.1}\" \
             width=\"{width:.0}\" height=\"{height:.0}\" aria-label=\"Map of this part\">\n",
            left - 1.0
        );
        for &(from, to) in &self.links {
            svg.push_str(&self.arrow(from, to));
        }
        for place in &self.places {
            if let Some(group) = place.group {
                svg.push_str(&self.chapters(map, place, group));
            }
        }
        svg + "</svg>\n"
    }

    /// A piece of an arrow, from a row to the next; it ends in a tip where it meets a box.
    fn arrow(&self, from: usize, to: usize) -> String {
        let bottom = |place: &Place| match place.group {
            Some(group) => self.heights[place.row].0 + self.texts[group].height(),
            None => self.heights[place.row].1,
        };
        let (start, end) = (&self.places[from], &self.places[to]);
        let (x, y) = (start.x, bottom(start));
        let (to_x, to_y) = (end.x, self.heights[end.row].0);
        let (row_end, middle) =
            (self.heights[start.row].1, self.heights[start.row].1 / 2.0 + to_y / 2.0);
        let mut path = format!(
            "<path d=\"M{x:.1} {y:.1}V{row_end:.1}C{x:.1} {middle:.1} {to_x:.1} {middle:.1} {to_x:.1} {to_y:.1}"
        );
        if end.group.is_none() {
            let _ = write!(path, "V{:.1}", self.heights[end.row].1);
        }
        path.push_str("\"/>\n");
        if end.group.is_some() {
            let _ = writeln!(
                path,
                "<path class=\"tip\" d=\"M{:.1} {:.1}L{to_x:.1} {to_y:.1}L{:.1} {:.1}z\"/>",
                to_x - 3.5,
                to_y - 7.0,
                to_x + 3.5,
                to_y - 7.0
            );
        }
        path
    }

    /// A box with its chapters, each a link.
    fn chapters(&self, map: &Map<'_>, place: &Place, group: usize) -> String {
        let text = &self.texts[group];
        let (left, top) = (place.x - place.width / 2.0, self.heights[place.row].0);
        let mut svg = format!(
            "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"4\"/>\n",
            place.width,
            text.height()
        );
        let mut y = top + PADDING;
        let mut chapter = |index: usize, lines: &[String], height: f64, class: &str| {
            let _ = write!(svg, "<a href=\"{}\"{class}>", map.address(index));
            for line in lines {
                y += height;
                let base = y - 0.28 * height;
                let _ = write!(
                    svg,
                    "<text x=\"{:.1}\" y=\"{base:.1}\">{}</text>",
                    left + PADDING,
                    escape(line)
                );
            }
            svg.push_str("</a>\n");
        };
        chapter(map.groups[group][0], &text.title, TITLE.0, "");
        for (index, lines) in &text.nested {
            chapter(*index, lines, NESTED.0, " class=\"nested\"");
        }
        svg
    }
}

/// The row of each group: below all that it stands on, where there is still room. A chapter that
/// neither stands on another nor carries one goes beside the chapter before it.
fn levels(groups: usize, arrows: &BTreeSet<(usize, usize)>) -> Vec<usize> {
    let mut levels: Vec<usize> = Vec::new();
    for group in 0..groups {
        let below = arrows.iter().filter(|&&(_, to)| to == group);
        let alone = arrows.iter().all(|&(from, to)| from != group && to != group);
        let mut level = match below.map(|&(from, _)| levels[from] + 1).max() {
            Some(level) => level,
            None if alone => levels.last().copied().unwrap_or(0),
            None => 0,
        };
        while levels.iter().filter(|&&other| other == level).count() >= MOST_IN_ROW {
            level += 1;
        }
        levels.push(level);
    }
    // A full row may have pushed a chapter down and left a row between empty.
    let used: BTreeSet<usize> = levels.iter().copied().collect();
    levels.iter().map(|level| used.range(..level).count()).collect()
}

/// The lines of a box of this width.
fn text(map: &Map<'_>, group: &[usize], width: f64) -> Text {
    let room = width - 2.0 * PADDING;
    let lines = |index: usize, letter: f64, mark: &str| {
        let title = format!("{mark}{}", map.book.chapters[index].title);
        wrapped(&title, (room / letter) as usize)
    };
    Text {
        title: lines(group[0], TITLE.1, ""),
        nested: group[1..].iter().map(|&index| (index, lines(index, NESTED.1, "▸ "))).collect(),
    }
}

/// A text in lines of at most so many letters, if its words allow.
fn wrapped(text: &str, letters: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= letters => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_string()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{levels, reduced, wrapped};

    #[test]
    fn arrows_that_others_imply_are_left_out() {
        let arrows = BTreeSet::from([(0, 1), (1, 2), (0, 2), (0, 3), (2, 4), (0, 4)]);
        assert_eq!(reduced(&arrows), BTreeSet::from([(0, 1), (1, 2), (0, 3), (2, 4)]));
    }

    #[test]
    fn chapters_stand_below_what_they_stand_on() {
        let arrows = BTreeSet::from([(0, 1), (1, 3), (0, 3)]);
        assert_eq!(levels(5, &arrows), [0, 1, 1, 2, 2]);
        // Five to a row: the sixth that stands on the first goes one row down.
        let arrows = (1..7).map(|to| (0, to)).collect();
        assert_eq!(levels(7, &arrows), [0, 1, 1, 1, 1, 1, 2]);
    }

    #[test]
    fn titles_are_wrapped_by_words() {
        assert_eq!(
            wrapped("The phase and its covariance", 12),
            ["The phase", "and its", "covariance"]
        );
    }
}
