//! The processes that crashed: how many for the first line, a line for each kind, and all of them.

use crate::document::{Block, Column, Section, Table, Tone};
use crate::figures::thousands;
use crate::model::counts_in_words::processes;
use crate::model::report::{Crash, Exit, Report};

/// Most kinds of crashes that the summary names.
const MOST: usize = 3;
/// Most lines of each of them.
const MOST_LINES: usize = 1;

/// Writes `, but 3 processes crashed,`. The test programs of build systems do not count: they may crash. `None`: no other did.
pub(super) fn in_headline(report: &Report) -> Option<String> {
    let count = count(report);
    (count > 0).then(|| format!(", but {} crashed,", processes(count)))
}

/// Counts the processes that crashed, without the test programs of build systems (probes).
fn count(report: &Report) -> u64 {
    sum(of_the_job(report))
}

/// Gives the crashes without those of test programs of build systems.
fn of_the_job(report: &Report) -> impl Iterator<Item = &Crash> {
    report.crashes.iter().flatten().filter(|crash| !crash.is_probe)
}

/// Counts the processes of these crashes.
fn sum<'a>(crashes: impl Iterator<Item = &'a Crash>) -> u64 {
    crashes.fold(0, |sum, crash| sum.saturating_add(crash.count))
}

/// Makes a line for each signal and command, the first [`MOST`] of them. Two more lines count the other crashes and the probes.
/// Gives the first `most_lines` of all these lines.
///
/// If the command failed and no more than one process crashed, there are no lines. That crash is taken for what the headline and
/// the evidence say.
pub(super) fn remarks(report: &Report, most_lines: usize) -> Vec<Block> {
    let has_succeeded = matches!(report.ending.exit, Exit { code: Some(0), .. });
    if !has_succeeded && count(report) <= 1 {
        return Vec::new();
    }
    let kinds: Vec<&Crash> = of_the_job(report).collect();
    let (shown, others) = kinds.split_at(kinds.len().min(MOST));
    let remark = |tone, text| Block::Remark { tone, text, most_lines: MOST_LINES };
    let mut remarks: Vec<Block> = shown.iter().map(|crash| remark(Tone::Bad, sentence(crash))).collect();
    if !others.is_empty() {
        let rest = sum(others.iter().copied());
        remarks.push(remark(Tone::Plain, format!("and {} of other kinds: --full", processes(rest))));
    }
    let probes = sum(report.crashes.iter().flatten().filter(|crash| crash.is_probe));
    if probes > 0 {
        let plural = if probes == 1 { "" } else { "s" };
        let count = thousands(probes as f64);
        remarks
            .push(remark(Tone::Plain, format!("{count} test program{plural} of configure or CMake crashed")));
    }
    remarks.truncate(most_lines);
    remarks
}

/// Writes what ended the processes of one kind: `SIGSEGV ended 3 processes of solve`.
fn sentence(crash: &Crash) -> String {
    let which = match (&crash.command, crash.count) {
        (None, count) => processes(count),
        (Some(command), 1) => command.clone(),
        (Some(command), count) => format!("{} of {command}", processes(count)),
    };
    match crash.signal_name.as_str() {
        // A SIGKILL is a crash only if the kernel sent it for lack of memory (see `Crash`).
        "SIGKILL" => format!("the kernel killed {which} for lack of memory"),
        signal => format!("{signal} ended {which}"),
    }
}

/// Makes a table of all crashes.
pub(super) fn section(report: &Report) -> Section {
    let rows = report.crashes.iter().flatten().map(|crash| {
        let command = match &crash.command {
            None => "(not known which)".to_owned(),
            Some(command) if crash.is_probe => format!("{command} (test program of configure or CMake)"),
            Some(command) => command.clone(),
        };
        [thousands(crash.count as f64), crash.signal_name.clone(), command]
    });
    let head = [Column::count("Count"), Column::text("Signal"), Column::text("Command")];
    Section::new("Crashed processes").table(Table::new(head, rows))
}
