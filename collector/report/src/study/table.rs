//! The table of a study in words: a row for each variant, a column for each quantity. Text, Markdown and LaTeX have it.

use super::compare::{SURE_BELOW, Verdict};
use super::{Estimate, Row, Study};
use crate::figures::{UNKNOWN, column, thousands};
use crate::model::style::{RamUnit, TimeUnit};

/// The column of a quantity.
struct StudyColumn {
    /// What the quantity is called, with its unit.
    head: String,
    /// A cell for each variant.
    cells: Vec<StudyCell>,
}

/// A figure of a variant.
pub(super) struct StudyCell {
    /// Mean.
    pub(super) mean: String,
    /// Standard deviation; `None` for fewer than two runs.
    pub(super) deviation: Option<String>,
    /// The mean surely differs from that of the first variant.
    pub(super) is_sure: bool,
}

/// Says what the mark of a sure difference means. `None`: with a single variant there is none.
pub(super) fn legend(study: &Study) -> Option<String> {
    let first = &study.variants.first().filter(|_| study.variants.len() > 1)?.name;
    Some(format!("*: differs from {first} (Mann-Whitney U test, two-sided, by Holm p < {SURE_BELOW})"))
}

/// The table: a row of heads, then a row for each variant. A row has the name, the number of runs that count, and a cell for each
/// quantity that is worth a column. `names`: those of the variants; `head` and `cell` write a head and a figure.
pub(super) fn rows(
    study: &Study,
    names: impl IntoIterator<Item = String>,
    head: impl Fn(&str) -> String,
    cell: impl Fn(&StudyCell) -> String,
) -> Vec<Vec<String>> {
    let columns: Vec<StudyColumn> = study.shown_quantities().map(column_of).collect();
    let heads = columns.iter().map(|column| head(&column.head));
    let mut rows = vec![["variant", "runs"].map(str::to_owned).into_iter().chain(heads).collect()];
    for (at, (name, variant)) in names.into_iter().zip(&study.variants).enumerate() {
        let cells = columns.iter().map(|column| cell(&column.cells[at]));
        rows.push([name, thousands(variant.counted as f64)].into_iter().chain(cells).collect());
    }
    rows
}

/// The column of a quantity.
fn column_of(row: &Row) -> StudyColumn {
    let means: Vec<_> = row.variants.iter().map(|variant| variant.summary.mean).collect();
    let deviations: Vec<_> = row.variants.iter().map(|variant| variant.summary.standard_deviation).collect();
    // Both are written together, so that they have one unit and the same decimals: a cell shows both.
    let figures = Figures::from_row(row, &[means, deviations]);
    let cell = |((variant, mean), deviation): ((&Estimate, &String), &String)| StudyCell {
        mean: mean.clone(),
        deviation: Some(deviation).filter(|deviation| *deviation != UNKNOWN).cloned(),
        is_sure: variant
            .compared
            .is_some_and(|compared| matches!(compared.verdict, Verdict::Less | Verdict::More)),
    };
    let variants = row.variants.iter().zip(&figures.columns[0]).zip(&figures.columns[1]);
    StudyColumn { cells: variants.map(cell).collect(), head: figures.head }
}

/// Columns of figures of one quantity, all in one unit and with the same decimals.
pub(super) struct Figures {
    /// What the quantity is called, with its unit.
    pub(super) head: String,
    /// The columns.
    pub(super) columns: Vec<Vec<String>>,
}

impl Figures {
    /// Writes columns of this quantity's values, all in the unit that fits its largest mean. Each column has an entry for each
    /// variant.
    pub(super) fn from_row(row: &Row, columns: &[Vec<Option<f64>>]) -> Self {
        let largest = row.variants.iter().filter_map(|variant| variant.summary.mean).fold(0.0, f64::max);
        let (symbol, size) = unit(row.unit, largest);
        // Written as one column, so that all have the same decimals; then that is cut into the columns that were given.
        let values: Vec<_> =
            columns.concat().into_iter().map(|value| value.map(|value| value / size)).collect();
        let written = column(&values);
        let label = row.label();
        Self {
            head: if symbol.is_empty() { label.to_owned() } else { format!("{label} [{symbol}]") },
            columns: written.chunks(row.variants.len().max(1)).map(<[String]>::to_vec).collect(),
        }
    }
}

/// The unit in which a column reads well: its symbol, and its size in the quantity's own `unit`. `largest`: the
/// column's largest mean.
fn unit(unit: &'static str, largest: f64) -> (&'static str, f64) {
    match unit {
        "bytes" => {
            let unit = RamUnit::that_fits(largest);
            (unit.symbol(), unit.bytes())
        }
        "s" => {
            let unit = TimeUnit::that_fits(largest);
            (unit.symbol(), unit.seconds())
        }
        // Joules have up to four digits, as many as `column` shows of any figure.
        "J" if largest >= 1e6 => ("MJ", 1e6),
        "J" if largest >= 1e4 => ("kJ", 1e3),
        "1" => ("", 1.0),
        other => (other, 1.0),
    }
}
