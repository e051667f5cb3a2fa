//! A study as a table of LaTeX. It needs no package.

use super::Study;
use super::table::{self, StudyCell};
use crate::quote;

/// Writes the table, and as comments what its marks mean and what failed.
pub(super) fn latex(study: &Study) -> String {
    // `{}` keeps a bracket at the begin of a name from being an argument of the line break before it.
    let names = study.variants.iter().map(|variant| format!("{{}}{}", escape(&variant.name)));
    let rows = table::rows(study, names, escape, cell);
    let mut lines = rows.iter().map(|row| format!("{} \\\\\n", row.join(" & ")));
    let heads = lines.next().unwrap_or_default();
    let right_aligned = "r".repeat(rows[0].len() - 1);
    let text = format!(
        "\\begin{{tabular}}{{l{right_aligned}}}\n\\hline\n{heads}\\hline\n{}\\hline\n\\end{{tabular}}\n",
        lines.collect::<String>()
    );
    let comments = table::legend(study).into_iter().chain(study.failures());
    text + &comments.map(|line| format!("% {}\n", quote::escape(&line))).collect::<String>()
}

/// Writes mean and deviation in mathematical mode, and `n/a` as it is. Braces keep the mode from adding a space after a comma
/// between thousands.
fn cell(cell: &StudyCell) -> String {
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
