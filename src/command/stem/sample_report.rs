// Tangled from book/src/stem-report.md: edit there, or here and run cargo tangle stitch.
//! What a run or a plan reports of its sample.

// Imports of reports of a sample
use crate::command::summary::{align, count, plan_json, plan_text};
use crate::command::watch::complain;
use crate::electrons::SampleSummary;
use crate::plan::Description;
use serde_json::{Value, json};

// Report the sample of a run
/// Warnings on the standard error.
pub(crate) fn warn(summary: &SampleSummary) {
    summary.warnings.iter().for_each(|warning| complain("warning", warning));
}

/// What is reported of the sample, by lines.
pub(crate) fn summary_lines(summary: &SampleSummary) -> Vec<(&'static str, String)> {
    let [x, y, thickness] = summary.cell;
    let [i, j, k] = summary.tile;
    let atoms = summary
        .atoms
        .iter()
        .map(|(element, count)| format!("{} {}", rounded(*count), element.symbol()));
    let ([nx, ny], [px, py]) = (summary.samples, summary.pixel);
    let mut lines = vec![
        ("cell", format!("{x:.4} × {y:.4} Å, {thickness:.4} Å thick, of {i} × {j} × {k} cells")),
        ("atoms", atoms.collect::<Vec<_>>().join(", ")),
        (
            "samples",
            format!(
                "{nx} × {ny} of {px:.4} × {py:.4} Å, {}, angles up to {:.3} mrad",
                count(summary.slices, "slice"),
                summary.largest_angle
            ),
        ),
    ];
    lines.extend(
        summary.pixel_for.as_ref().map(|angle| ("pixel", format!("chosen to keep {angle} mrad"))),
    );
    lines.extend(summary.merged.map(|merged| {
        ("zone axis", format!("{} merged with others within 1e-4 Å", count(merged, "atom")))
    }));
    lines.extend(summary.warnings.iter().map(|warning| ("warning", warning.clone())));
    lines
}

// Report the sample to a program
/// A number of atoms, whole if it is nearly so.
fn rounded(count: f64) -> Value {
    let whole = (count - count.round()).abs() < 1e-6;
    if whole { json!(count.round() as u64) } else { json!(count) }
}

/// Adds what is reported of the sample to an object.
pub(crate) fn add_summary(object: &mut Value, summary: &SampleSummary) {
    let atoms = summary.atoms.iter();
    let atoms = atoms.map(|(element, count)| (element.symbol().to_owned(), rounded(*count)));
    let values = json!({
        "cell": summary.cell,
        "tile": summary.tile,
        "thickness": summary.cell[2],
        "atoms": atoms.collect::<serde_json::Map<_, _>>(),
        "merged_atoms": summary.merged,
        "samples": summary.samples,
        "pixel": summary.pixel,
        "slices": summary.slices,
        "largest_angle": summary.largest_angle,
        "pixel_for": summary.pixel_for,
        "warnings": summary.warnings,
    });
    for (key, value) in values.as_object().into_iter().flatten() {
        object[key] = value.clone();
    }
}

/// A plan, and what is reported of the sample.
pub(crate) fn plan_with_summary(plan: &Description, summary: &SampleSummary, json: bool) -> String {
    if json {
        let mut object = plan_json(plan);
        add_summary(&mut object, summary);
        return format!("{object}\n");
    }
    plan_text(plan, false) + &align(&summary_lines(summary))
}
