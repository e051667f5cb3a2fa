//! A study as a table of Markdown (that of GitHub).

use super::Study;
use super::table::{self, Cell};
use crate::quote::markdown as escape;

/// Writes the table, and below it what its marks mean and what failed.
pub(super) fn markdown(study: &Study) -> String {
    let columns = table::columns(study);
    let heads = columns.iter().map(|column| escape(&column.head));
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let mut text = line(["variant".to_owned(), "runs".to_owned()].into_iter().chain(heads).collect());
    // Figures stand at the right.
    text += &format!("|---|{}\n", "--:|".repeat(columns.len() + 1));
    for (at, (variant, runs)) in study.variants.iter().zip(table::runs(study)).enumerate() {
        let figures = columns.iter().map(|column| cell(&column.cells[at]));
        text += &line([escape(&variant.name), runs].into_iter().chain(figures).collect());
    }
    let below: Vec<String> = table::legend(study).into_iter().chain(study.failures()).collect();
    text + &below.iter().map(|line| format!("\n{}\n", escape(line))).collect::<String>()
}

/// Writes `mean ± deviation`, and after it a star if the difference is sure. A backslash keeps that from being markup.
fn cell(cell: &Cell) -> String {
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
