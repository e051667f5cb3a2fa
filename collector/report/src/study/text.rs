//! The text of a study: the table, what it shows, and what failed.

use super::table::{self, Figures, StudyCell};
use super::{Estimate, Row, Study, sentences};
use crate::quote;
use crate::text::table::aligned;

/// Maximum number of columns of a variant's name.
const NAME_COLUMNS: usize = 40;

/// Writes a study as text.
pub(super) fn text(study: &Study) -> String {
    with_details(study, Vec::new())
}

/// Writes a study as text, with every statistic of each quantity.
pub(super) fn full(study: &Study) -> String {
    let details = study.shown_quantities().map(|row| details(study, row)).collect();
    with_details(study, details)
}

/// Writes the table, the lines of `details` in blocks, then what the study shows, what is unknown, what failed, and remarks.
fn with_details(study: &Study, details: Vec<Vec<String>>) -> String {
    let mut lines = aligned(&table::rows(study, names(study), str::to_owned, cell));
    lines.extend(table::legend(study).map(|legend| quote::escape(&legend)));
    let unknown = sentences::unknown(study).into_iter().chain(sentences::zero(study)).collect();
    let failed = study.failures().chain(missing_runs(study)).collect();
    let parts = [sentences::sentences(study), unknown, failed, study.remarks.clone()];
    // Each part begins with an empty line. Parts without lines are left out.
    for part in details.into_iter().chain(parts).filter(|part| !part.is_empty()) {
        lines.push(String::new());
        lines.extend(part.iter().map(|line| quote::escape(line)));
    }
    lines.join("\n") + "\n"
}

/// The variants' names, cut where they are long.
fn names(study: &Study) -> Vec<String> {
    let names: Vec<String> = study.variants.iter().map(|variant| quote::escape(&variant.name)).collect();
    quote::shorten(&names, NAME_COLUMNS)
}

/// A table of one quantity: a row for each variant, a column for each statistic. The first six are in the
/// quantity's unit, the others compare with the first variant, which has no entry there.
fn details(study: &Study, row: &Row) -> Vec<String> {
    let values = |value: fn(&Estimate) -> Option<f64>| row.variants.iter().map(value).collect::<Vec<_>>();
    let figures = Figures::from_row(
        row,
        &[
            values(|estimate| estimate.summary.mean),
            values(|estimate| estimate.summary.standard_deviation),
            values(|estimate| estimate.summary.min),
            values(|estimate| estimate.summary.max),
            values(|estimate| Some(estimate.interval?.low)),
            values(|estimate| Some(estimate.interval?.high)),
        ],
    );
    let texts = |value: fn(&Estimate) -> Option<String>| -> Vec<String> {
        row.variants.iter().map(|estimate| value(estimate).unwrap_or_default()).collect()
    };
    let compared = [
        texts(|estimate| estimate.compared.and(estimate.ratio).map(|ratio| format!("{ratio:.2}"))),
        texts(|estimate| estimate.compared.map(|compared| sentences::p(compared.p))),
        texts(|estimate| estimate.compared.map(|compared| sentences::p(compared.p_adjusted))),
    ];
    let heads = ["mean", "sd", "min", "max", "95% from", "to", "ratio", "single test", "by Holm"];
    let heads = [figures.head.as_str()].into_iter().chain(heads).map(str::to_owned).collect();
    let row = |(at, name): (usize, String)| {
        let cells = figures.columns.iter().chain(&compared).map(|column| column[at].clone());
        [name].into_iter().chain(cells).collect()
    };
    let rows = names(study).into_iter().enumerate().map(row);
    aligned(&[heads].into_iter().chain(rows).collect::<Vec<_>>())
}

/// Says how many of the planned runs have no report. `None`: each has one.
fn missing_runs(study: &Study) -> Option<String> {
    let missing = study.missing();
    let planned = study.planned_runs * study.variants.len();
    (missing > 0).then(|| format!("not over: {missing} of {planned} runs have no report"))
}

/// Writes `mean ± deviation`, and after it a star if the difference is sure.
fn cell(cell: &StudyCell) -> String {
    let deviation = cell.deviation.as_ref().map(|deviation| format!(" ± {deviation}")).unwrap_or_default();
    format!("{}{deviation}{}", cell.mean, if cell.is_sure { " *" } else { "" })
}
