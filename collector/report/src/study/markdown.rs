//! A study as a table of Markdown (that of GitHub).

use super::Study;
use super::table::{self, StudyCell};
use crate::quote::markdown as escape;

/// Writes the table, and below it what its marks mean and what failed.
pub(super) fn markdown(study: &Study) -> String {
    let names = study.variants.iter().map(|variant| escape(&variant.name));
    let rows = table::rows(study, names, escape, cell);
    let mut lines: Vec<String> = rows.iter().map(|row| format!("| {} |\n", row.join(" | "))).collect();
    // Cells of figures are aligned to the right.
    lines.insert(1, format!("|---|{}\n", "--:|".repeat(rows[0].len() - 1)));
    let below = table::legend(study).into_iter().chain(study.failures());
    lines.extend(below.map(|line| format!("\n{}\n", escape(&line))));
    lines.concat()
}

/// Writes `mean ± deviation`, and after it a star if the difference is sure. A backslash keeps the star from being markup.
fn cell(cell: &StudyCell) -> String {
    let deviation = cell.deviation.as_ref().map(|deviation| format!(" ± {deviation}")).unwrap_or_default();
    format!("{}{deviation}{}", cell.mean, if cell.is_sure { " \\*" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_name_is_acted_on() {
        assert_eq!(escape("a|b*c_d\n<i>"), r"a\|b\*c\_d\\n\<i\>");
    }
}
