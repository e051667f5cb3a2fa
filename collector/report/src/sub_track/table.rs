//! Tables as pandas prints a `DataFrame`, which gpu_tracker's texts consist of.

use serde_json::{Number, Value};

use super::python;
use crate::figures::UNKNOWN;
use crate::quote;

/// Maximum number of columns of a name or text: each line of a table is as wide as the widest. A file can have any names.
const MAX_COLUMNS: usize = 256;

/// A column: its head, and a cell for each row.
pub(super) struct PandasColumn {
    head: String,
    cells: Vec<String>,
}

impl PandasColumn {
    /// Makes a column of numbers. Before the head there is a space, as pandas leaves room for a sign.
    pub(super) fn numbers<'a>(head: &str, values: impl IntoIterator<Item = &'a Option<Number>>) -> Self {
        // For a figure that is not known, pandas has NaN.
        let cell = |value: &Option<Number>| value.as_ref().map_or(UNKNOWN.to_owned(), number);
        Self { head: format!(" {}", shown(head)), cells: values.into_iter().map(cell).collect() }
    }

    /// Makes a column of one cell, which is a number or a text; `n/a` for any other value.
    pub(super) fn any(head: &str, value: &Value) -> Self {
        let cell = match value {
            Value::Number(value) => number(value),
            Value::String(text) => format!(" {}", shown(text)),
            _ => format!(" {UNKNOWN}"),
        };
        Self { head: shown(head), cells: vec![cell] }
    }
}

/// A name or text as it is shown.
fn shown(text: &str) -> String {
    quote::cut_middle(&quote::escape(text), MAX_COLUMNS)
}

/// Formats a number. A whole one that is not negative has a space for its sign.
fn number(value: &Number) -> String {
    match value.as_f64() {
        Some(float) if value.is_f64() => python::rounded(float),
        _ => format!("{}{value}", if value.as_i64().is_some_and(|whole| whole < 0) { "" } else { " " }),
    }
}

/// Formats a table: a line of heads, then a line for each row, which begins with its name. `indent` stands before each line.
pub(super) fn table(indent: &str, names: &[&str], columns: &[PandasColumn]) -> String {
    let names: Vec<String> = names.iter().map(|name| shown(name)).collect();
    let name_width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let mut lines = vec![format!("{indent}{}", blanks("", name_width))];
    lines.extend(names.iter().map(|name| format!("{indent}{name}{}", blanks(name, name_width))));
    for PandasColumn { head, cells } in columns {
        let width = cells.iter().chain([head]).map(|text| text.chars().count()).max().unwrap_or(0);
        // A column can have fewer cells than the table has rows.
        let cells = [head].into_iter().chain(cells).map(String::as_str).chain(std::iter::repeat(""));
        for (line, cell) in lines.iter_mut().zip(cells) {
            *line += &format!(" {}{cell}", blanks(cell, width));
        }
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// The blanks that fill `text` up to `width` characters. `format!` is not used for that, because it panics for widths above 65,535.
fn blanks(text: &str, width: usize) -> String {
    " ".repeat(width.saturating_sub(text.chars().count()))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: CMD-41
    #[test]
    fn columns_are_as_wide_as_those_of_pandas() {
        let float = |value| Number::from_f64(value);
        let columns = [
            PandasColumn::numbers("min", &[float(0.25), float(12.0)]),
            PandasColumn::numbers("std", &[None, float(1e-9)]),
        ];
        let expected = "\t        min  std\n\tmain   0.25  n/a\n\tsystem 12.0  0.0\n";
        assert_eq!(table("\t", &["main", "system"], &columns), expected);
        let whole = ["A", "B"].map(|name| PandasColumn::numbers(name, &[Some(15.into())]));
        assert_eq!(table("", &[""], &whole), "   A   B\n  15  15\n");
        let mixed = [
            PandasColumn::any("ram_unit", &"gigabytes".into()),
            PandasColumn::any("ram", &67.25.into()),
            PandasColumn::any("n", &1.into()),
            PandasColumn::any("gpus", &Value::Null),
        ];
        assert_eq!(table("", &[""], &mixed), "   ram_unit   ram  n gpus\n  gigabytes 67.25  1  n/a\n");
    }

    #[test]
    fn long_names_are_cut_in_their_middle() {
        let long = "x".repeat(70_000);
        let text = table("", &[&long, "y"], &[PandasColumn::numbers(&long, &[Some(1.into()), None])]);
        let widths: Vec<usize> = text.lines().map(|line| line.chars().count()).collect();
        assert!(widths.len() == 3 && widths.iter().all(|width| *width == widths[0]), "{widths:?}");
        assert!(widths[0] > 2 * MAX_COLUMNS && widths[0] < 2 * MAX_COLUMNS + 5, "{widths:?}");
    }
}
