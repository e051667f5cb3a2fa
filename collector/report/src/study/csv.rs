//! A study as CSV: a line for each quantity of each variant.

use super::compare::Compared;
use super::{Estimate, Row, Study, VariantRuns};
use crate::quote;

/// The names of the columns.
const HEAD: &str = "variant,quantity,unit,runs,mean,standard_deviation,min,max,interval_low,interval_high,ratio,p,p_adjusted,reason\n";

/// Writes a study as CSV, with the names in the first line. What is not known is empty.
pub(super) fn csv(study: &Study) -> String {
    let of_row = |row: &Row| {
        let variants = study.variants.iter().zip(&row.variants);
        variants.map(|(variant, estimate)| line(row, variant, estimate)).collect::<String>()
    };
    [HEAD.to_owned()].into_iter().chain(study.quantities.iter().map(of_row)).collect()
}

/// Writes the line of one quantity of a variant.
fn line(row: &Row, variant: &VariantRuns, estimate: &Estimate) -> String {
    let summary = estimate.summary;
    // Empty for the first variant, which is not compared.
    let compared = |value: fn(Compared) -> f64| estimate.compared.map(value);
    let numbers = [
        summary.mean,
        summary.standard_deviation,
        summary.min,
        summary.max,
        estimate.interval.map(|interval| interval.low),
        estimate.interval.map(|interval| interval.high),
        estimate.ratio,
        compared(|compared| compared.p),
        compared(|compared| compared.p_adjusted),
    ];
    let reason = estimate.reason.as_deref().map(quote::csv_cell).unwrap_or_default();
    let (name, Row { quantity, unit, .. }) = (quote::csv_cell(&variant.name), row);
    format!(
        "{name},{quantity},{unit},{},{},{reason}\n",
        variant.counted,
        numbers.map(quote::csv_plain).join(",")
    )
}
