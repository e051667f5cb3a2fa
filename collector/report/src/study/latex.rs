//! A study as a table of LaTeX. It needs no package.

use super::Study;
use super::table::{self, Cell};
use crate::quote;

/// Writes the table, and as comments what its marks mean and what failed.
pub(super) fn latex(study: &Study) -> String {
    let columns = table::columns(study);
    let heads = columns.iter().map(|column| escape(&column.head));
    let line = |cells: Vec<String>| format!("{} \\\\\n", cells.join(" & "));
    let mut text = format!("\\begin{{tabular}}{{l{}}}\n\\hline\n", "r".repeat(columns.len() + 1));
    text += &line(["variant".to_owned(), "runs".to_owned()].into_iter().chain(heads).collect());
    text += "\\hline\n";
    for (at, (variant, runs)) in study.variants.iter().zip(table::runs(study)).enumerate() {
        let figures = columns.iter().map(|column| cell(&column.cells[at]));
        // A bracket at the begin of a line would be an argument of the line break before it.
        text += &line([format!("{{}}{}", escape(&variant.name)), runs].into_iter().chain(figures).collect());
    }
    text += "\\hline\n\\end{tabular}\n";
    let comments = table::legend(study).into_iter().chain(study.failures());
    text + &comments.map(|line| format!("% {}\n", quote::escape(&line))).collect::<String>()
}

/// Writes mean and deviation in mathematical mode, and `n/a` as it is. Braces keep the mode from adding a space after a comma
/// between thousands.
fn cell(cell: &Cell) -> String {
    let deviation = cell.deviation.as_ref().map(|deviation| format!(r" \pm {deviation}")).unwrap_or_default();
    let mark = if cell.is_sure { "^{*}" } else { "" };
    let figure = format!("{}{deviation}{mark}", cell.mean).replace(',', "{,}");
    if cell.mean.starts_with(|c: char| c.is_ascii_digit()) { format!("${figure}$") } else { figure }
}

/// Escapes what LaTeX would act on.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in quote::escape(text).chars() {
        match c {
            '\\' => out.push_str(r"\textbackslash{}"),
            '~' => out.push_str(r"\textasciitilde{}"),
            '^' => out.push_str(r"\textasciicircum{}"),
            '<' => out.push_str(r"\textless{}"),
            '>' => out.push_str(r"\textgreater{}"),
            '|' => out.push_str(r"\textbar{}"),
            // Two hyphens would be a dash.
            '-' if out.ends_with('-') => out.push_str("{}-"),
            '&' | '%' | '$' | '#' | '_' | '{' | '}' => out.extend(['\\', c]),
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_name_is_acted_on() {
        assert_eq!(
            escape("50% a_b & {c} #1 $x^2 --f\n"),
            r"50\% a\_b \& \{c\} \#1 \$x\textasciicircum{}2 -{}-f\textbackslash{}n"
        );
    }
}
