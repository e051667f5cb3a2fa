//! A study: the same work done in several ways, several times each, and a table of what each way used, as in a paper.

mod compare;
mod csv;
pub mod expand;
mod latex;
mod markdown;
pub mod plan;
mod progress;
mod sentences;
mod table;
#[cfg(test)]
mod tests;
mod text;

use serde::Serialize;

use crate::compare::machines_remark;
use crate::model::report::Report;
use crate::quantities::{self, QUANTITIES, Quantity};
use crate::quote;
use crate::statistics::{Interval, Summary, interval_of_mean, summary};
pub use compare::{Compared, Verdict};
pub use plan::Plan;
use plan::{PlannedRun, Variant};
pub use progress::{failure, is_over, line};

/// A run of a study that is over.
#[derive(Debug)]
pub struct Run {
    /// Its variant, and its number among the runs of that.
    pub planned: PlannedRun,
    /// The file of its report.
    pub file: String,
    /// Its report.
    pub report: Report,
}

/// What the runs of a study used.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Study {
    /// Planned runs of each variant.
    pub planned_runs: usize,
    /// What determines their order.
    pub seed: u64,
    /// The variants; the others are compared with the first one.
    pub variants: Vec<VariantRuns>,
    /// What they used.
    pub quantities: Vec<Row>,
    /// What a reader should know to judge the figures.
    pub remarks: Vec<String>,
}

/// The runs of a variant.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VariantRuns {
    /// Its name.
    pub name: String,
    /// Its command line.
    pub command: String,
    /// Runs that count.
    pub counted: usize,
    /// Runs whose command failed.
    pub failed: Vec<FailedRun>,
    /// Runs that are planned and have no report.
    pub missing: Vec<usize>,
}

/// A run whose command failed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FailedRun {
    /// Its number among the runs of its variant, from 1.
    pub run: usize,
    /// The file of its report.
    pub file: String,
    /// How it ended.
    pub end: String,
}

/// A quantity, with an entry for each variant.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Its name.
    pub quantity: &'static str,
    /// Its unit: `s`, `bytes` or `J`; `%`: percent of one GPU; `1`: a number of things.
    pub unit: &'static str,
    /// What the runs of each variant have.
    pub variants: Vec<Estimate>,
}

/// A quantity of a variant. All but `reason` is null if a run that counts lacks the quantity, or no run counts.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Estimate {
    /// Mean, extremes, and standard deviation.
    #[serde(flatten)]
    pub summary: Summary,
    /// The 95% interval of the mean, by bootstrap.
    pub interval: Option<Interval>,
    /// Its mean over that of the first variant. Null where either is not known, or the first is 0.
    pub ratio: Option<f64>,
    /// Whether it differs from the first variant. Null: it is the first, or either is not known.
    pub compared: Option<Compared>,
    /// Why it is null.
    pub reason: Option<String>,
}

/// Makes the study from the plan and the runs that are over. Failed runs count only if `counts_failed`.
pub fn study(plan: &Plan, runs: &[Run], counts_failed: bool) -> Study {
    let counts = |run: &&Run| counts_failed || failure(&run.report).is_none();
    let mut variants = Vec::with_capacity(plan.variants.len());
    // For each variant, the reports of its runs that count.
    let mut counted: Vec<Vec<&Report>> = Vec::with_capacity(plan.variants.len());
    for (at, variant) in plan.variants.iter().enumerate() {
        let of_variant: Vec<&Run> = runs.iter().filter(|run| run.planned.variant == at).collect();
        let that_count: Vec<&Report> =
            of_variant.iter().copied().filter(counts).map(|run| &run.report).collect();
        variants.push(variant_runs(plan, variant, &of_variant, that_count.len()));
        counted.push(that_count);
    }
    Study {
        planned_runs: plan.runs,
        seed: plan.seed,
        variants,
        quantities: QUANTITIES.iter().map(|quantity| row(quantity, &counted)).collect(),
        remarks: remarks(&counted.concat()),
    }
}

impl Study {
    /// A line for each run that failed: variant, number, how it ended, and the file of its report.
    pub fn failures(&self) -> impl Iterator<Item = String> {
        let of_variant = |variant: &VariantRuns| {
            let name = &variant.name;
            let line =
                |run: &FailedRun| format!("failed: {name} run {}: {} ({})", run.run, run.end, run.file);
            variant.failed.iter().map(line).collect::<Vec<_>>()
        };
        self.variants.iter().flat_map(of_variant)
    }

    /// The quantities that are worth a column: known of a variant, and not 0 in all runs.
    fn shown_quantities(&self) -> impl Iterator<Item = &Row> {
        self.quantities.iter().filter(|row| row.largest().is_some_and(|largest| largest > 0.0))
    }

    /// Counts the planned runs without a report.
    pub fn missing(&self) -> usize {
        self.variants.iter().map(|variant| variant.missing.len()).sum()
    }
}

impl Row {
    /// The largest value of the quantity in all runs. `None`: it is known of no variant.
    fn largest(&self) -> Option<f64> {
        self.variants.iter().filter_map(|variant| variant.summary.max).reduce(f64::max)
    }

    /// What the quantity is called in text.
    fn label(&self) -> &'static str {
        quantities::named(self.quantity).map_or(self.quantity, |quantity| quantity.label)
    }
}

/// Tells which of a variant's planned runs failed, and which are missing. `runs`: those that are over; `counted`: how many of
/// them count.
fn variant_runs(plan: &Plan, variant: &Variant, runs: &[&Run], counted: usize) -> VariantRuns {
    let failed = runs.iter().filter_map(|run| {
        let end = failure(&run.report)?;
        Some(FailedRun { run: run.planned.run, file: run.file.clone(), end })
    });
    let is_missing = |number: &usize| !runs.iter().any(|run| run.planned.run == *number);
    VariantRuns {
        name: variant.name.clone(),
        command: variant.command.clone(),
        counted,
        failed: failed.collect(),
        missing: (1..=plan.runs).filter(is_missing).collect(),
    }
}

/// Estimates a quantity of each variant, and compares it with the first one's. `counted` has for each variant the reports of
/// its runs that count. A variant without values has the reason for that instead of figures.
fn row(quantity: &Quantity, counted: &[Vec<&Report>]) -> Row {
    let values: Vec<Result<Vec<f64>, String>> =
        counted.iter().map(|reports| values(quantity, reports)).collect();
    // The values of each variant. `None`: it has none, so it is not compared.
    let known: Vec<Option<&[f64]>> = values.iter().map(|values| values.as_deref().ok()).collect();
    let compared = compare::with_first(&known);
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    // `None`: it is unknown or 0, so there is no ratio to it.
    let first_mean = known.first().copied().flatten().map(mean).filter(|mean| *mean > 0.0);
    let estimate = |(values, compared): (Result<Vec<f64>, String>, Option<Compared>)| match values {
        Ok(values) => Estimate {
            summary: summary(values.iter().copied().map(Some)),
            interval: interval_of_mean(&values),
            ratio: first_mean.map(|first_mean| mean(&values) / first_mean),
            compared,
            reason: None,
        },
        Err(reason) => Estimate { reason: Some(reason), ..Estimate::default() },
    };
    Row {
        quantity: quantity.name,
        unit: quantity.unit,
        variants: values.into_iter().zip(compared).map(estimate).collect(),
    }
}

/// The value of a quantity in each run.
///
/// # Errors
/// If there is no run, or a run lacks the quantity: a mean of the others would leave out what that run used. The text says how
/// many lack it, and the reason of the first of them.
fn values(quantity: &Quantity, reports: &[&Report]) -> Result<Vec<f64>, String> {
    let known: Vec<f64> = reports.iter().filter_map(|report| (quantity.value)(report)).collect();
    let lacks = |report: &&&Report| (quantity.value)(report).is_none();
    match reports.iter().find(lacks) {
        Some(report) => {
            let lacking = match known.len() {
                0 => "any run".to_owned(),
                known => format!("{} of {} runs", reports.len() - known, reports.len()),
            };
            Err(format!("not known of {lacking} ({})", quantity.why_unknown(report)))
        }
        None if known.is_empty() => Err("no run counts".to_owned()),
        None => Ok(known),
    }
}

/// A sentence for each thing that makes the runs hard to compare: several machines, cores that others used, and
/// processes that may be missing.
fn remarks(reports: &[&Report]) -> Vec<String> {
    let count = |holds: fn(&Report) -> bool| reports.iter().filter(|report| holds(report)).count();
    let all = reports.len();
    let contended = count(|report| report.contention.is_contended == Some(true));
    let uncounted = count(|report| report.coverage.uncounted_reason.is_some());
    let reason = reports.iter().find_map(|report| report.coverage.uncounted_reason.as_deref());
    let contended = (contended > 0).then(|| {
        format!("Others used the cores in {contended} of {all} runs, so their wall time says less.")
    });
    let uncounted = reason.map(|reason| {
        format!("Short processes may be missing in the figures of {uncounted} of {all} runs: {reason}.")
    });
    [machines_remark(reports.iter().copied()), contended, uncounted].into_iter().flatten().collect()
}

/// A form of a study: its name, and what writes it.
type StudyForm = (&'static str, fn(&Study) -> String);

/// All forms of a study, the default first. Each text ends with a newline.
const FORMS: [StudyForm; 5] = [
    ("text", text::text),
    ("csv", csv::csv),
    ("markdown", markdown::markdown),
    ("latex", latex::latex),
    ("json", json),
];

/// Writes a study as JSON.
fn json(study: &Study) -> String {
    quote::json_pretty(study)
}

/// The names of the forms.
pub fn forms() -> impl Iterator<Item = &'static str> {
    FORMS.iter().map(|(name, _)| *name)
}

/// Writes a study as text, with every statistic of each quantity.
pub fn full_text(study: &Study) -> String {
    text::full(study)
}

/// Writes a study in the form of this name. The command line refuses other names, so the fallback is never used.
pub fn render(study: &Study, form: &str) -> String {
    let (_, write) = FORMS.iter().find(|(name, _)| *name == form).unwrap_or(&FORMS[0]);
    write(study)
}
