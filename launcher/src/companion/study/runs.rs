//! Makes the runs that a study still needs.

use std::fmt::Display;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use gpu_track_collector::model::signal::signal_name;
use gpu_track_collector::report::study::plan::PlannedRun;
use gpu_track_collector::report::study::{self, Plan};
use gpu_track_collector::{NoLock, OutputLock, own_program};

use super::directory::{self, Directory, Files, RunKind};
use super::given::words;
use super::runner::{Ended, Runner};
use crate::cli::without_patterns;
use crate::console::message;
use crate::name;

/// How often the study looks whether a run of a killed study is over.
const LEFT_RUN_INTERVAL: Duration = Duration::from_millis(100);

/// A study in the course of its runs.
struct Making<'a> {
    plan: &'a Plan,
    directory: &'a Directory,
    runner: Runner,
    is_quiet: bool,
}

/// What became of a run, with what the user is told about it.
enum Made {
    /// The run has a report, and its command succeeded.
    Well(String),
    /// The run has a report, and its command failed. The text says how the command ended.
    Failed(String),
    /// The run has no report. The text says why.
    Unmade(String),
}

/// Makes the runs that have no report yet. Before them come warm-ups of their variants, which do not count. Returns how many counted
/// runs have no report in the end.
///
/// # Errors
/// The signal that ended the study. A line for the user says so.
pub(super) fn make(plan: &Plan, directory: &Directory, is_quiet: bool) -> Result<usize, i32> {
    let making = Making { plan, directory, runner: Runner::new(), is_quiet };
    making.make_missing().inspect_err(|signal| message(making.line_of_stop(*signal)))
}

impl Making<'_> {
    /// Makes the runs. Returns how many counted ones have no report in the end. Warm-ups are made again each time that a
    /// study goes on, for variants that still need runs. A warm-up that fails is only a line on stderr.
    ///
    /// # Errors
    /// The signal that ended the study.
    fn make_missing(&self) -> Result<usize, i32> {
        let has_report = |planned: &PlannedRun| self.directory.report(self.plan, *planned).is_some();
        let missing: Vec<PlannedRun> =
            self.plan.order.iter().copied().filter(|planned| !has_report(planned)).collect();
        let warmups = self.plan.warmup_order();
        let is_needed =
            |warmup: &&PlannedRun| missing.iter().any(|planned| planned.variant == warmup.variant);
        // A killed study can have left runs that go on. Afterwards there are none.
        self.wait_for_left_runs(&warmups, RunKind::Warmup)?;
        self.wait_for_left_runs(&missing, RunKind::Counted)?;
        for warmup in warmups.iter().filter(is_needed) {
            let title = format!("warm-up {} of {}", warmup.run, self.name(*warmup));
            self.make_and_tell(*warmup, RunKind::Warmup, &title)?;
        }
        let mut unmade = 0;
        for (at, planned) in self.plan.order.iter().enumerate() {
            // A run that a killed study had left can have got its report while it was waited for.
            if missing.contains(planned) && !has_report(planned) {
                let title = format!(
                    "{}/{} {} run {}",
                    at + 1,
                    self.plan.order.len(),
                    self.name(*planned),
                    planned.run
                );
                let is_made = self.make_and_tell(*planned, RunKind::Counted, &title)?;
                unmade += usize::from(!is_made);
            }
        }
        Ok(unmade)
    }

    /// The name of a run's variant.
    fn name(&self, planned: PlannedRun) -> &str {
        &self.plan.variants[planned.variant].name
    }

    /// Makes a run and tells the user what became of it. Returns whether it has a report.
    ///
    /// # Errors
    /// The signal that ended the study.
    fn make_and_tell(&self, planned: PlannedRun, kind: RunKind, title: &str) -> Result<bool, i32> {
        let made = self.prepare_and_track(planned, kind)?;
        match &made {
            Made::Well(line) => self.say(format_args!("{title}: {line}")),
            Made::Failed(why) | Made::Unmade(why) => message(format_args!("{title}: {why}")),
        }
        Ok(!matches!(made, Made::Unmade(_)))
    }

    /// Prepares and makes a run. Its report tells what came of it: the exit status of gpu-track-run is only the command's.
    ///
    /// # Errors
    /// The signal that ended the study.
    fn prepare_and_track(&self, planned: PlannedRun, kind: RunKind) -> Result<Made, i32> {
        let files = self.directory.files(self.plan, planned, kind);
        let variant = &self.plan.variants[planned.variant];
        // A report that a stopped run left would be taken for that of this run.
        directory::remove(&files.report);
        if let Some(line) = &variant.prepare
            && let Some(why) = self.not_prepared(line, &files)?
        {
            return Ok(Made::Unmade(why));
        }
        Ok(match self.track(&variant.command, &files) {
            Ok(Ended::With(status)) => match directory::final_report(&files.report) {
                Some(report) => {
                    study::failure(&report).map_or_else(|| Made::Well(study::line(&report)), Made::Failed)
                }
                None => {
                    Made::Unmade(format!("no report was written ({status}): see {}", files.err.display()))
                }
            },
            Ok(Ended::Stopped(signal)) => {
                // The report is of a command that the signal ended before its work was done.
                directory::remove(&files.report);
                return Err(signal);
            }
            Err(error) => Made::Unmade(format!("can't be run: {error}")),
        })
    }

    /// Prepares a run by the command `line`, whose output is kept only if it fails. `None`: the preparation succeeded. Else the run is
    /// not made, and the result says why.
    ///
    /// # Errors
    /// The signal that ended the study.
    fn not_prepared(&self, line: &str, files: &Files) -> Result<Option<String>, i32> {
        Ok(match self.prepare(line, &files.prepare) {
            Ok(Ended::With(status)) if status.success() => {
                directory::remove(&files.prepare);
                None
            }
            Ok(Ended::With(status)) => Some(format!(
                "not run, because its preparation failed ({status}): see {}",
                files.prepare.display()
            )),
            Ok(Ended::Stopped(signal)) => return Err(signal),
            Err(error) => Some(format!("not run, because its preparation can't be: {line}: {error}")),
        })
    }

    /// Runs the command line of a preparation, untracked. Its stdout and stderr go to the file `to`.
    fn prepare(&self, line: &str, to: &Path) -> io::Result<Ended> {
        let words = words(line, self.plan.shell).map_err(io::Error::other)?;
        let output = directory::create(to)?;
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        self.runner.run(&mut command)
    }

    /// Runs a command under gpu-track-run, which is this executable by another name. The run's files get its report, stdout and
    /// stderr. A line of gpu-track-run is on stderr only if tracking goes wrong.
    fn track(&self, line: &str, files: &Files) -> io::Result<Ended> {
        let words = words(line, self.plan.shell).map_err(io::Error::other)?;
        let mut command = own_program::command(name::LAUNCHER);
        command.args(["-q", "-f", "json", "-o"]).arg(without_patterns(files.report.as_os_str()));
        command.arg("--").args(words).stdin(Stdio::null());
        command.stdout(directory::create(&files.out)?).stderr(directory::create(&files.err)?);
        self.runner.run(&mut command)
    }

    /// Waits for those of the runs `planned` that go on because their study was killed. Runs beside them would have wrong figures,
    /// and they may yet get their reports. A run holds the lock of its report as long as it lives.
    ///
    /// # Errors
    /// The signal that ended the study.
    fn wait_for_left_runs(&self, planned: &[PlannedRun], kind: RunKind) -> Result<(), i32> {
        for planned in planned {
            let report = self.directory.files(self.plan, *planned, kind).report;
            let goes_on = || matches!(OutputLock::take(&report), Err(NoLock::InUse));
            if !goes_on() {
                continue;
            }
            self.say(format_args!(
                "waiting for run {} of {}, which goes on because its study was killed",
                planned.run,
                self.name(*planned)
            ));
            while goes_on() {
                if let Some(signal) = self.runner.stopped(LEFT_RUN_INTERVAL) {
                    return Err(signal);
                }
            }
        }
        Ok(())
    }

    /// Makes the line about a study that this signal ended: how many runs are done, and how to go on.
    fn line_of_stop(&self, signal: i32) -> String {
        let done = self.directory.runs(self.plan).len();
        format!(
            "stopped by {} after {done} of {} runs; to go on: gpu-track study -o {}",
            signal_name(signal),
            self.plan.order.len(),
            self.directory.path.display()
        )
    }

    /// Writes a line to stderr, unless the user wants none.
    fn say(&self, line: impl Display) {
        if !self.is_quiet {
            message(line);
        }
    }
}
