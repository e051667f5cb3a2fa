//! `--recover`: reports of runs that were killed together with their launcher and collector.

use std::collections::BTreeSet;
use std::process::ExitCode;

use gpu_track_collector::model::config::ReportTarget;
use gpu_track_collector::model::style::Style;
use gpu_track_collector::report::format::render;
use gpu_track_collector::stale::Stale;
use gpu_track_collector::{NotRecovered, ProcRoot, Recovered, write_report};

use crate::cli::{self, Options, PatternValues, UsageError};
use crate::console::{self, message};

/// A report that was recovered, with the places where it goes, or why there is none.
type Attempt = Result<(Vec<ReportTarget>, Recovered), NotRecovered>;

/// Writes a report for each killed run of this user, and removes the data of each run that has its report. The exit status is 0 if there
/// was a run, and each got a report.
///
/// # Errors
/// If the options name no usable place for a report, or one file for several. Nothing was written or removed then.
pub(crate) fn recover(options: &Options) -> Result<ExitCode, UsageError> {
    let uid = rustix::process::getuid().as_raw();
    let killed = Stale::all(&options.diagnosis.session_dir, uid);
    if killed.is_empty() {
        let dir = options.diagnosis.session_dir.display();
        let problem = format_args!("nothing to recover: there is no killed run of yours in {dir}");
        return Ok(console::failure(problem));
    }
    let mut status = ExitCode::SUCCESS;
    for (run, attempt) in &attempts(options, &killed)? {
        let is_reported = match attempt {
            Ok((targets, recovered)) => report_and_remove(run, targets, recovered, options.report.style),
            Err(reason) => {
                give_up(run, reason);
                false
            }
        };
        if !is_reported {
            status = ExitCode::FAILURE;
        }
    }
    Ok(status)
}

/// Recovers the reports of all killed runs, and checks their places. Nothing is written or removed.
///
/// # Errors
/// If the options name no usable place for a report, or one file for several.
fn attempts<'a>(options: &Options, killed: &'a [Stale]) -> Result<Vec<(&'a Stale, Attempt)>, UsageError> {
    let root = ProcRoot::default();
    let mut files = BTreeSet::new();
    let mut attempts = Vec::new();
    for run in killed {
        let attempt = match gpu_track_collector::recover(run, &root) {
            Ok(recovered) => {
                let targets = targets_of(options, run, &recovered)?;
                for path in targets.iter().filter_map(|target| target.output.file()) {
                    if !files.insert(path.to_owned()) {
                        let problem = "would hold several reports: put %p into its name";
                        return Err(UsageError::of_file("--output", path, problem));
                    }
                }
                Ok((targets, recovered))
            }
            Err(reason) => Err(reason),
        };
        attempts.push((run, attempt));
    }
    Ok(attempts)
}

/// Writes the report of a run to its places, and its bundle if it has one. Then removes the run's data. Returns whether the report
/// was written. If not, the data stays, and a line on stderr says why.
fn report_and_remove(run: &Stale, targets: &[ReportTarget], recovered: &Recovered, style: Style) -> bool {
    for target in targets {
        let output = &target.output;
        if let Err(error) = write_report(output, &render(&recovered.report, target, style)) {
            message(format_args!(
                "cannot write the report to {output}: {error}; the run is kept, so --recover can be tried again"
            ));
            return false;
        }
    }
    if let Err(error) = recovered.write_bundle() {
        message(format_args!("--record: cannot write the bundle of the run: {error}"));
    }
    recovered.clean_up();
    run.remove();
    true
}

/// Says why a run has no report. Removes the run's data if no version of this program can make a report of it.
fn give_up(run: &Stale, reason: &NotRecovered) {
    let result = if reason.is_final() { "removed" } else { "left as it is" };
    if reason.is_final() {
        run.remove();
    }
    message(format_args!("cannot recover {}: {reason}; {result}", run.path.display()));
}

/// Where the report of a recovered run goes. %p and %t in the names are the pid of that run's launcher and its start.
fn targets_of(
    options: &Options,
    run: &Stale,
    recovered: &Recovered,
) -> Result<Vec<ReportTarget>, UsageError> {
    let here = PatternValues::here();
    let pid = run.launcher_pid().unwrap_or(here.pid);
    let values = PatternValues { pid, time: recovered.report.started_at, rank_number: None, ..here };
    cli::targets(&options.places, &values)
}
