//! The processes that crashed: how many for the first line, a line for each kind, and all of them.

use crate::document::{Block, Column, Section, Table, Tone};
use crate::figures::thousands;
use crate::model::counts_in_words::processes;
use crate::model::report::{Cause, Crash, CrashPlace, DeadProcess, Report};

/// Maximum number of kinds of crashes that the summary names.
const MAX_KINDS: usize = 3;
/// Maximum number of lines for each kind.
const MOST_LINES: usize = 1;

/// Makes the text `, but 3 processes crashed,`. Test programs of build systems may crash, so they do not count. `None`: nothing else
/// crashed.
pub(super) fn in_headline(report: &Report) -> Option<String> {
    let count = sum(of_the_job(report));
    (count > 0).then(|| format!(", but {} crashed,", processes(count)))
}

/// The crashes without those of the test programs of build systems (probes).
fn of_the_job(report: &Report) -> impl Iterator<Item = &Crash> {
    report.crashes.iter().flatten().filter(|crash| !crash.is_probe)
}

/// Counts the processes of these crashes.
fn sum<'a>(crashes: impl Iterator<Item = &'a Crash>) -> u64 {
    crashes.fold(0, |sum, crash| sum.saturating_add(crash.count))
}

/// Whether the headline or the evidence already tells of this crash: it is the one process whose end ended the command.
fn is_told(report: &Report, crash: &Crash) -> bool {
    let process = match &report.ending.cause {
        // It is not always known which process the kernel killed, so any single SIGKILL counts as that.
        Some(Cause::OutOfMemory(_)) => return crash.count == 1 && crash.signal_name == "SIGKILL",
        Some(Cause::AddressSpaceLimit(end)) => Some(&end.process),
        Some(Cause::CpuTimeLimit(end)) => Some(&end.process),
        Some(Cause::FileSizeLimit(end)) => Some(&end.process),
        Some(Cause::TimeLimit(end)) => end.process.as_ref(),
        Some(Cause::Signal(end)) => Some(&end.process),
        Some(Cause::Limit(_) | Cause::GpuMemoryExhausted(_) | Cause::DiskFull(_)) | None => None,
    };
    let is_of = |process: &DeadProcess| {
        process.exit.signal == Some(crash.signal) && crash.command.as_ref() == Some(&process.command)
    };
    crash.count == 1 && (report.ending.exit.signal == Some(crash.signal) || process.is_some_and(is_of))
}

/// Makes a line for each signal and command, the first [`MAX_KINDS`] of them. Two more lines count the other crashes and the probes.
/// At most `most_lines` of these lines are returned. A crash of which the headline or the evidence tells has none.
pub(super) fn remarks(report: &Report, most_lines: usize) -> Vec<Block> {
    let kinds: Vec<&Crash> = of_the_job(report).filter(|crash| !is_told(report, crash)).collect();
    let (shown, others) = kinds.split_at(kinds.len().min(MAX_KINDS));
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

/// Formats what ended the processes of one kind: `SIGSEGV ended 3 processes of solve`.
fn sentence(crash: &Crash) -> String {
    let which = match (&crash.command, crash.count) {
        (None, count) => processes(count),
        (Some(command), 1) => command.clone(),
        (Some(command), count) => format!("{} of {command}", processes(count)),
    };
    let places = places(crash).map(|places| format!(" ({places})")).unwrap_or_default();
    match crash.signal_name.as_str() {
        // A SIGKILL is a crash only if the kernel sent it for lack of memory (see `Crash`).
        "SIGKILL" => format!("the kernel killed {which} for lack of memory{places}"),
        signal => format!("{signal} ended {which}{places}"),
    }
}

/// Formats where the processes were: `rank 3 on n2, n4`. `None`: the report is of one node.
fn places(crash: &Crash) -> Option<String> {
    let place = |place: &CrashPlace| match place.rank {
        Some(rank) => format!("rank {rank} on {}", place.node),
        None => place.node.clone(),
    };
    let places: Vec<String> = crash.places.iter().map(place).collect();
    (!places.is_empty()).then(|| places.join(", "))
}

/// Makes a table of all crashes.
pub(super) fn section(report: &Report) -> Section {
    let rows = report.crashes.iter().flatten().map(|crash| {
        let command = match &crash.command {
            None => "(not known which)".to_owned(),
            Some(command) if crash.is_probe => format!("{command} (test program of configure or CMake)"),
            Some(command) => command.clone(),
        };
        let places = places(crash).map(|places| format!(" ({places})")).unwrap_or_default();
        [thousands(crash.count as f64), crash.signal_name.clone(), command + &places]
    });
    let head = [Column::count("Count"), Column::text("Signal"), Column::text("Command")];
    Section::new("Crashed processes").table(Table::new(head, rows))
}

#[cfg(test)]
mod tests {
    use gpu_track_core::fixtures;

    use super::*;
    use crate::model::report::{Ending, Exit, FatalSignal, TimeLimit, TimeLimitSource};
    use crate::model::signal::signal_name;

    const SEGV: i32 = 11;
    const ABRT: i32 = 6;
    const TERM: i32 = 15;

    /// A process of this name that SIGSEGV ended.
    fn dead(command: &str) -> DeadProcess {
        DeadProcess {
            pid: 7,
            command: command.into(),
            args: None,
            is_main: false,
            exit: Exit { code: None, signal: Some(SEGV) },
            at_s: 1.0,
            peak_rss_bytes: None,
            cpu_s: None,
        }
    }

    /// The lines on one process of `helper` and 12 probes that crashed, if the command ended so.
    fn lines(exit: Exit, cause: Option<Cause>) -> Vec<String> {
        let crash = |signal, command: &str, count, is_probe| Crash {
            command: Some(command.into()),
            signal,
            signal_name: signal_name(signal),
            count,
            is_probe,
            places: Vec::new(),
        };
        let crashes = vec![crash(SEGV, "helper", 1, false), crash(ABRT, "conftest", 12, true)];
        let ending = Ending { exit, cause, ..Ending::default() };
        let report = Report { crashes: Some(crashes), ending, ..fixtures::full() };
        let text = |block| match block {
            Block::Remark { text, .. } => text,
            _ => String::new(),
        };
        remarks(&report, 9).into_iter().map(text).collect()
    }

    // Requirement: WHY-9
    #[test]
    fn crash_of_a_failed_command_has_a_line_if_nothing_else_tells_of_it() {
        let probes = "12 test programs of configure or CMake crashed";
        let both = ["SIGSEGV ended helper", probes];
        let failed = Exit { code: Some(1), signal: None };
        assert_eq!(lines(failed, None), both);
        let at_limit = Cause::TimeLimit(TimeLimit {
            process: None,
            signal: TERM,
            signal_name: "SIGTERM".into(),
            set_by: TimeLimitSource::Slurm,
            limit_s: None,
        });
        assert_eq!(lines(Exit { code: None, signal: Some(TERM) }, Some(at_limit)), both);
        let by_signal = |command| {
            let (process, signal_name) = (dead(command), "SIGSEGV".into());
            Some(Cause::Signal(FatalSignal { process, signal: SEGV, signal_name, sender: None }))
        };
        assert_eq!(lines(failed, by_signal("helper")), [probes]);
        assert_eq!(lines(failed, by_signal("solve")), both);
        assert_eq!(lines(Exit { code: None, signal: Some(SEGV) }, None), [probes]);
    }
}
