//! Compares what several runs used: in all, by command and by task, each way of doing the work against the first one.

mod tasks;
mod text;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::model::report::{CommandUsage, Report, Stage};
use crate::model::sorting::Sorting;
use crate::quantities::{QUANTITIES, Quantity};
use crate::quote;
pub use crate::statistics::Summary;
use crate::statistics::summary;
pub use text::{markdown, text};

/// Commands that are compared one by one: those with most CPU time.
const MAX_COMMANDS: usize = 10;

/// A run to be compared.
#[derive(Debug, Clone)]
pub struct Run {
    /// The user's name for the way in which the run did the work. Runs of one name are compared as one way. `None`: the run is a
    /// way of its own.
    pub name: Option<String>,
    /// The file of its report.
    pub file: String,
    /// The report.
    pub report: Report,
}

/// Ways of doing the same work, each against the first.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// The ways, in the order of their first runs.
    pub ways: Vec<Way>,
    /// What the whole runs used.
    pub metrics: Vec<Metric>,
    /// What their commands used.
    pub commands: Vec<CommandMetrics>,
    /// What their tasks used; absent if they had none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<TaskMetrics>,
    /// What a reader should know to judge the figures.
    pub remarks: Vec<String>,
}

/// A way of doing the work.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Way {
    /// Its name. Without one it is the command line, or the file's name if another way has the same command line.
    pub name: String,
    /// How many runs.
    pub runs: usize,
    /// The files of their reports.
    pub files: Vec<String>,
}

/// A quantity, with an entry for each way.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Metric {
    /// Its name, as `--fail-above` has it.
    pub metric: &'static str,
    /// Its unit: `s`, `bytes` or `J`; `1`: a number of things.
    pub unit: &'static str,
    /// What the runs of each way have.
    pub ways: Vec<Summary>,
    /// The mean of each way over that of the first. Null where either is not known, or the first is 0.
    pub ratios: Vec<Option<f64>>,
}

/// The quantities of a command name.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CommandMetrics {
    /// The name.
    pub command: String,
    /// Processes, CPU time, peak RSS.
    pub metrics: Vec<Metric>,
}

/// The quantities of the tasks of one kind and name.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TaskMetrics {
    /// Kind and name.
    pub task: String,
    /// The most tasks of that name in one run, which are compared together.
    pub n_tasks: usize,
    /// Wall time, CPU time, peak RAM.
    pub metrics: Vec<Metric>,
}

/// The names of the quantities by which whole runs are compared.
pub fn names() -> impl Iterator<Item = &'static str> {
    QUANTITIES.iter().map(|quantity| quantity.name)
}

/// The name of a way, and its runs.
type RunsOfWay<'a> = (String, Vec<&'a Run>);

/// Compares runs, at least one. Those of one name are a way, and each without a name is a way by itself.
pub fn compare(runs: &[Run]) -> Comparison {
    let mut named: Vec<(Option<&String>, Vec<&Run>)> = Vec::new();
    for run in runs {
        let name = run.name.as_ref();
        match named.iter_mut().find(|(known, _)| name.is_some() && *known == name) {
            Some((_, runs)) => runs.push(run),
            None => named.push((name, vec![run])),
        }
    }
    let name_of =
        |name: Option<&String>, run: &Run| name.cloned().unwrap_or_else(|| name_of_unnamed(run, runs));
    let ways = named.into_iter().map(|(name, of_way)| (name_of(name, of_way[0]), of_way));
    let ways: Vec<RunsOfWay> = ways.collect();
    let of_quantity = |quantity: &Quantity| metric(&ways, quantity.name, quantity.unit, quantity.value);
    // A quantity that no run has is not compared: most machines have no GPU.
    let is_any_known = |metric: &Metric| metric.ways.iter().any(|way| way.known > 0);
    let metrics = QUANTITIES.iter().map(of_quantity).filter(is_any_known).collect();
    Comparison {
        metrics,
        commands: commands(&ways),
        tasks: tasks::tasks(&ways),
        remarks: remarks(runs),
        ways: ways.into_iter().map(way).collect(),
    }
}

/// Names a way without a name: by its command line, or by its file if another run has that line, or is called so.
fn name_of_unnamed(run: &Run, all: &[Run]) -> String {
    let line = run.report.command.join(" ");
    let is_same =
        |other: &&Run| other.report.command == run.report.command || other.name.as_ref() == Some(&line);
    if all.iter().filter(is_same).count() == 1 { line } else { run.file.clone() }
}

fn way((name, runs): RunsOfWay) -> Way {
    Way { name, runs: runs.len(), files: runs.iter().map(|run| run.file.clone()).collect() }
}

/// Compares the commands that used most CPU time.
fn commands(ways: &[RunsOfWay]) -> Vec<CommandMetrics> {
    let all = ways.iter().flat_map(|(_, runs)| runs.iter().flat_map(|run| &run.report.processes.by_command));
    let compared =
        |command: &str| CommandMetrics { command: command.into(), metrics: command_metrics(ways, command) };
    heaviest(all.map(|usage| (usage.command.as_str(), usage.cpu_s)), MAX_COMMANDS).map(compared).collect()
}

/// The `most` names with the most CPU time in a single run of any way, the heaviest first. `used`: the CPU time of each name in each
/// run, seconds.
fn heaviest<N: Ord>(used: impl Iterator<Item = (N, Option<f64>)>, most: usize) -> impl Iterator<Item = N> {
    let mut most_cpu_s: BTreeMap<N, f64> = BTreeMap::new();
    for (name, cpu_s) in used {
        let most_s = most_cpu_s.entry(name).or_default();
        *most_s = most_s.max(cpu_s.unwrap_or(0.0));
    }
    let mut most_cpu_s: Vec<(N, f64)> = most_cpu_s.into_iter().collect();
    most_cpu_s.order_by(|(_, a), (_, b)| b.total_cmp(a));
    most_cpu_s.into_iter().take(most).map(|(name, _)| name)
}

/// The number of a command's processes, their CPU time and peak RSS in each way. A run without the command counts as 0
/// processes and 0 s; it has no peak.
fn command_metrics(ways: &[RunsOfWay], command: &str) -> Vec<Metric> {
    let is_of_command = |usage: &&CommandUsage| usage.command == command;
    let of_command = |name, unit, value: fn(Option<&CommandUsage>) -> Option<f64>| {
        metric(ways, name, unit, |report| value(report.processes.by_command.iter().find(is_of_command)))
    };
    vec![
        of_command("processes", "1", |usage| Some(usage.map_or(0.0, |usage| usage.count as f64))),
        of_command("cpu", "s", |usage| usage.map_or(Some(0.0), |usage| usage.cpu_s)),
        of_command("peak_rss", "bytes", |usage| Some(usage?.peak_rss_bytes? as f64)),
    ]
}

/// Makes a metric from the values of each run, with the ratio of each way's mean to the mean of the first.
fn metric(
    ways: &[RunsOfWay],
    metric: &'static str,
    unit: &'static str,
    value: impl Fn(&Report) -> Option<f64>,
) -> Metric {
    let of_way = |(_, runs): &RunsOfWay| summary(runs.iter().map(|run| value(&run.report)));
    let ways: Vec<Summary> = ways.iter().map(of_way).collect();
    let first = ways.first().and_then(|way| way.mean).filter(|mean| *mean > 0.0);
    let ratios = ways.iter().map(|way| Some(way.mean? / first?)).collect();
    Metric { metric, unit, ways, ratios }
}

/// A sentence for each thing that makes the runs hard to compare.
fn remarks(runs: &[Run]) -> Vec<String> {
    let mut remarks = Vec::from_iter(machines_remark(runs.iter().map(|run| &run.report)));
    for run in runs {
        let file = &run.file;
        match run.report.stage {
            Stage::Over => {}
            Stage::SoFar => remarks.push(format!("{file} is a report so far: its run was not over.")),
            Stage::Recovered => {
                remarks.push(format!("{file} was recovered: the end of its run is not in it."))
            }
        }
        let ending = &run.report.ending;
        // A `reason` says why it is unknown how an attached process ended. That is no failure.
        if run.report.stage == Stage::Over && !ending.is_success() && ending.reason.is_none() {
            remarks.push(format!("{file}: the command did not succeed."));
        }
        if run.report.contention.is_contended == Some(true) {
            remarks.push(format!("{file}: others used the cores meanwhile, so its wall time says less."));
        }
    }
    remarks
}

/// A remark if the reports are not all of one machine: name, cores and RAM tell machines apart.
pub(crate) fn machines_remark<'a>(mut reports: impl Iterator<Item = &'a Report>) -> Option<String> {
    let machine = |report: &'a Report| (&report.host.hostname, report.host.cores, report.host.ram_bytes);
    let first = machine(reports.next()?);
    reports.any(|report| machine(report) != first).then(|| "Not all runs are of the same machine.".to_owned())
}

/// Formats a comparison as JSON, with a newline at its end.
pub fn json(comparison: &Comparison) -> String {
    quote::json_pretty(comparison)
}

/// How much more a way may use than the first one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limit {
    /// One of [`names`].
    pub metric: &'static str,
    /// Percent of the first way's mean.
    pub percent: f64,
}

/// A line for each limit that a way exceeds, and for each that can't be checked: a run lacks the quantity, or the first
/// way's mean is 0 and the other's is not. Means of a part of the runs are not compared.
pub fn exceeded(comparison: &Comparison, limits: &[Limit]) -> Vec<String> {
    let Some(first_way) = comparison.ways.first() else { return Vec::new() };
    let mut lines = Vec::new();
    for Limit { metric: name, percent } in limits {
        let metric = comparison.metrics.iter().find(|metric| metric.metric == *name);
        // The mean over the runs of a way; `None`: it is not known in all of them.
        let mean = |at: usize| {
            let summary = metric.map(|metric| metric.ways[at])?;
            summary.mean.filter(|_| summary.known == comparison.ways[at].runs)
        };
        for (at, way) in comparison.ways.iter().enumerate().skip(1) {
            let problem = match Option::zip(mean(0), mean(at)) {
                None => "can't be compared: it is not known in all runs".to_owned(),
                Some((first, mean)) if first > 0.0 => {
                    let above = (mean / first - 1.0) * 100.0;
                    if above <= *percent {
                        continue;
                    }
                    format!("is {above:.1}% above that of {}; {percent}% are allowed", first_way.name)
                }
                Some((_, mean)) if mean <= 0.0 => continue,
                Some(_) => format!("can't be compared: it is 0 in all runs of {}", first_way.name),
            };
            lines.push(format!("{name} of {} {problem}", way.name));
        }
    }
    lines
}

#[cfg(test)]
mod tests;
