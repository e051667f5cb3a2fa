//! What a study shows, in a sentence for each quantity.

use super::compare::{Compared, SURE_BELOW, Verdict};
use super::{Estimate, Row, Study, VariantRuns};
use crate::figures::short;
use crate::quantities;
use crate::statistics::least_runs;

/// The sentences. There are none for a single variant.
pub(super) fn sentences(study: &Study) -> Vec<String> {
    study.shown_quantities().flat_map(|row| sentences_of(study, row)).collect()
}

/// The sentences about one quantity, one for each verdict that a variant has: less than the first, more, no difference,
/// too few runs.
fn sentences_of(study: &Study, row: &Row) -> Vec<String> {
    let first = study.variants.first().map_or("", |variant| variant.name.as_str());
    let [less, more] = quantities::named(row.quantity).map_or(["", ""], |quantity| quantity.less_and_more);
    // Each comparison with the first variant is a test. The more tests there are, the more runs each needs.
    let tests = row.variants.iter().filter(|variant| variant.compared.is_some()).count();
    let (label, enough) = (row.label(), least_runs(SURE_BELOW, tests));
    let beginnings = [
        (Verdict::Less, format!("{less} than {first}, sure")),
        (Verdict::More, format!("{more} than {first}, sure")),
        (Verdict::NoneShown, format!("{label}, no difference from {first} shown")),
        (
            Verdict::TooFew,
            format!("{label}, too few runs to be sure ({enough} of each variant can be enough)"),
        ),
    ];
    let sentence = |(verdict, beginning): (Verdict, String)| {
        let with_verdict = |(variant, estimate): (&VariantRuns, &Estimate)| {
            let compared = estimate.compared.filter(|compared| compared.verdict == verdict)?;
            Some(of_variant(&variant.name, estimate, compared))
        };
        let variants = study.variants.iter().zip(&row.variants);
        let variants: Vec<String> = variants.filter_map(with_verdict).collect();
        (!variants.is_empty()).then(|| format!("{beginning}: {}", variants.join(", ")))
    };
    beginnings.into_iter().filter_map(sentence).collect()
}

/// Writes how a variant compares with the first one: `NAME 1.25 x (p = 0.0079)`.
fn of_variant(name: &str, estimate: &Estimate, compared: Compared) -> String {
    let ratio = estimate.ratio.map(|ratio| format!(" {ratio:.2} x")).unwrap_or_default();
    format!("{name}{ratio} ({})", p(compared.p_adjusted))
}

/// Writes a p-value with about two digits: `p = 0.0079`.
pub(super) fn p(p: f64) -> String {
    if p < 0.0001 { "p < 0.0001".to_owned() } else { format!("p = {}", short(p)) }
}

/// A line for each reason for which quantities are not known: `QUANTITIES: VARIANTS REASON`. A line has no variants if
/// the reason is that of all.
pub(super) fn unknown(study: &Study) -> Vec<String> {
    // The end of each line, with the quantities that it is about.
    let mut by_reason: Vec<(String, Vec<&str>)> = Vec::new();
    for row in &study.quantities {
        let label = row.label();
        // Each reason for this quantity, with the variants that have it.
        let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
        for (variant, estimate) in study.variants.iter().zip(&row.variants) {
            let Some(reason) = &estimate.reason else { continue };
            match reasons.iter_mut().find(|(known, _)| known == reason) {
                Some((_, names)) => names.push(&variant.name),
                None => reasons.push((reason, vec![&variant.name])),
            }
        }
        // Quantities whose reason and variants are the same share a line.
        for (reason, names) in reasons {
            let is_of_all = names.len() == study.variants.len();
            let reason = if is_of_all { reason.to_owned() } else { format!("{} {reason}", names.join(", ")) };
            match by_reason.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, labels)) => labels.push(label),
                None => by_reason.push((reason, vec![label])),
            }
        }
    }
    by_reason.into_iter().map(|(reason, labels)| format!("{}: {reason}", labels.join(", "))).collect()
}

/// Says which quantities are 0 in all runs.
pub(super) fn zero(study: &Study) -> Option<String> {
    let labels: Vec<_> =
        study.quantities.iter().filter(|row| row.largest() == Some(0.0)).map(Row::label).collect();
    (!labels.is_empty()).then(|| format!("{}: 0 in all runs", labels.join(", ")))
}
