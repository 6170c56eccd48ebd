//! Tables of the pages, so that narrow screens can show them.
//!
//! A table that says what things mean gets the class `stacked` and each of its cells the name of its column: on a phone the style sheet shows
//! its rows below each other instead of its columns side by side. Long names in the code get places where a line may break.

use super::anchors::escape;

const TABLE: (&str, &str) = ("<table>", "</table>");
/// From how many letters a name may break.
const LONG: usize = 16;

/// A page with its tables made ready; formulas and chunks are not yet in it.
pub fn prepare(page: &str) -> String {
    let mut result = String::with_capacity(page.len() + page.len() / 16);
    let mut rest = page;
    while let Some((before, after)) = rest.split_once(TABLE.0) {
        let Some((table, after)) = after.split_once(TABLE.1) else { break };
        result.push_str(before);
        push_table(table, &mut result);
        rest = after;
    }
    result.push_str(rest);
    result
}

/// Adds a table from what is between its tags.
fn push_table(table: &str, result: &mut String) {
    let heads: Vec<String> = table
        .split("<th")
        .skip(1)
        .filter_map(|cell| cell.split_once('>')?.1.split_once("</th>"))
        .map(|(text, _)| text.to_string())
        .collect();
    let stacked = heads.len() > 2 && heads.iter().any(|head| head == "meaning");
    result.push_str(if stacked { "<table class=\"stacked\">" } else { TABLE.0 });
    for (number, row) in table.split("<tr>").enumerate() {
        if number > 0 {
            result.push_str("<tr>");
        }
        let mut cells = row.split("<td");
        result.push_str(cells.next().unwrap_or(""));
        for (column, cell) in cells.enumerate() {
            result.push_str("<td");
            if let Some(head) = heads.get(column).filter(|_| stacked) {
                result.push_str(&format!(" data-label=\"{}\"", escape(head)));
            }
            push_breakable(cell, result);
        }
    }
    result.push_str(TABLE.1);
}

/// Adds a cell in which long names may break after an underscore, a stroke or two colons.
fn push_breakable(cell: &str, result: &mut String) {
    for (number, piece) in cell.split("<code>").enumerate() {
        if number == 0 {
            result.push_str(piece);
            continue;
        }
        let (name, after) = piece.split_once("</code>").unwrap_or((piece, ""));
        result.push_str("<code>");
        match name.len() >= LONG {
            true => result.push_str(
                &name.replace('_', "_<wbr>").replace('/', "/<wbr>").replace("::", "::<wbr>"),
            ),
            false => result.push_str(name),
        }
        result.push_str("</code>");
        result.push_str(after);
    }
}

#[cfg(test)]
mod tests {
    use super::prepare;

    #[test]
    fn tables_of_meanings_name_the_column_of_each_cell() {
        let head = |names: [&str; 3]| {
            let cells = names.map(|name| format!("<th>{name}</th>")).concat();
            format!("<thead><tr>{cells}</tr></thead><tbody>")
        };
        let body = "<tr><td>a</td><td style=\"x\">b</td><td></td></tr>\n<tr><td>c</td></tr></tbody></table><p>";
        let page = |names| format!("<p><table>{}{body}", head(names));
        let names = ["symbol", "meaning", "in <b>"];
        let labelled = "<tr><td data-label=\"symbol\">a</td><td data-label=\"meaning\" style=\"x\">b</td>\
            <td data-label=\"in &lt;b&gt;\"></td></tr>\n<tr><td data-label=\"symbol\">c</td></tr></tbody></table><p>";
        let expected = format!("<p><table class=\"stacked\">{}{labelled}", head(names));
        assert_eq!(prepare(&page(names)), expected);
        // Numbers stay side by side, and so do two columns.
        for other in [page(["run", "time", "memory"]), page(names).replace("<th>in <b></th>", "")] {
            assert_eq!(prepare(&other), other);
        }
        assert_eq!(prepare("<table>open"), "<table>open");
    }

    #[test]
    fn long_names_in_tables_may_break() {
        let page = "<code>direction_of_wind</code><table><tr><td><code>direction_of_wind</code>, <code>a_b</code> c_d_e_f_g_h_i_j \
            <code>Atmosphere::seeing_at</code></td></tr></table>";
        assert_eq!(
            prepare(page),
            page.replacen(
                "<td><code>direction_of_wind",
                "<td><code>direction_<wbr>of_<wbr>wind",
                1
            )
            .replace("Atmosphere::seeing_at", "Atmosphere::<wbr>seeing_<wbr>at")
        );
    }
}
