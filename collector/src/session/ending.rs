//! The reports of a session: reports so far, and the last report, with which the session ends.

use std::collections::HashSet;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use gpu_track_abi::task::TaskKind;

use super::error::SessionError;
use super::readers::AbsenceCheck;
use super::run_loop::Session;
use super::torch;
use crate::build::{self, Inputs};
use crate::model::alert::AlertCommandFailure;
use crate::model::config::Config;
use crate::model::observation::Observation;
use crate::model::order::{Action, Order};
use crate::model::report::{DiskFull, Report, Stage};
use crate::model::run_end::{CommandExit, RunEnd};
use crate::report::format::{is_complete, is_scraped};
use crate::report::quote;
use crate::run::RunState;
use crate::run::schedule::Terms;
use crate::sinks;
use crate::sources::cgroup::{self, run_cgroup};
use crate::sources::disks;
use crate::sources::{nextflow, snakemake};
use crate::store::run_directory::RunDirectory;
use crate::sys::clock;
use crate::sys::proc_fs::ProcRoot;

/// Longest time between two reports-so-far.
const LONGEST_INTERIM_NS: u64 = 60_000_000_000;
/// Longest time between two reports-so-far in a format that a program scrapes. Prometheus scrapes every 15 to 60 s.
const LONGEST_SCRAPED_NS: u64 = 15_000_000_000;

/// The time between a report-so-far of a run of this age and the next one. It is the run's age, so the next one comes when
/// the run is twice as old, but at most [`LONGEST_SCRAPED_NS`] or [`LONGEST_INTERIM_NS`].
fn wait_of_interim_ns(age_ns: u64, is_scraped: bool) -> u64 {
    age_ns.min(if is_scraped { LONGEST_SCRAPED_NS } else { LONGEST_INTERIM_NS })
}

impl Session {
    /// Writes a report-so-far if a sink wants one: the report as it would be if the run ended now. It is what the user has if
    /// launcher and collector are killed at once. Plans the next one.
    pub(super) fn write_interim(&mut self, now_ns: u64) {
        let age_ns = now_ns.saturating_sub(self.run.start_ns);
        let is_scraped = self.config.report.targets.iter().any(|target| is_scraped(&target.format));
        self.next_interim_ns = now_ns + wait_of_interim_ns(age_ns, is_scraped);
        if !self.sinks.want_report(Stage::SoFar) {
            return;
        }
        // The end is applied to a copy, since the run goes on.
        let mut run = RunState::clone(&self.run);
        run.apply(now_ns, &Observation::FinalizeAll);
        let report = Arc::new(self.report(&run, &self.run_end(now_ns, Stage::SoFar)));
        // An error here may pass. The last report fails if it does not.
        let _ = self.sinks.report(&report, Stage::SoFar);
    }

    /// Makes a report of this state of the run.
    fn report(&self, run: &RunState, end: &RunEnd) -> Report {
        build::report(&Inputs { config: &self.config, host_info: &self.host, run, end })
    }

    /// How the run ended, or how it stands if `stage` is [`Stage::SoFar`]. `at_ns`, CLOCK_MONOTONIC nanoseconds, is its
    /// end or the present.
    fn run_end(&self, at_ns: u64, stage: Stage) -> RunEnd {
        RunEnd {
            at_ns,
            stage,
            command_exit: self.told.exit,
            dropped_events: self.segment.ring().dropped(),
            // Processes of the tree have counted the programs that they started without the shim.
            shimless: self.segment.shimless_programs(),
            // A process has truncated the segment's file, so its records are lost.
            is_truncated: self.segment.is_lost(),
            cgroups: cgroup::usage(&self.config.cgroups),
            full_disks: self.full_disks(stage),
            // For the report of a run without a collector only.
            largest_rss_bytes: None,
        }
    }

    /// Finds the full file systems among those that the run is known to write to. A file system can take long to answer, so none
    /// is asked unless the run is over and the command exited with a failure.
    fn full_disks(&self, stage: Stage) -> Vec<DiskFull> {
        let exited_with_failure = |exit: CommandExit| {
            exit.status.is_some_and(|status| libc::WIFEXITED(status) && libc::WEXITSTATUS(status) != 0)
        };
        if stage == Stage::Over && self.told.exit.is_some_and(exited_with_failure) {
            disks::full(self.config.report.files())
        } else {
            Vec::new()
        }
    }

    /// Whether the command could not be executed.
    pub(super) fn is_cancelled(&self) -> bool {
        self.told.is_cancelled
    }

    /// Ends the session. Takes in what is left to be read, writes the report, and waits a little for the other sinks. Then removes
    /// the session's files in shared memory.
    ///
    /// If the command could not be executed, does nothing: there is no report, and the launcher removes the files.
    ///
    /// # Errors
    /// If the report can't be written. All else is done then, too.
    pub(super) fn finish(mut self) -> Result<(), SessionError> {
        if self.told.is_cancelled {
            return Ok(());
        }
        let end_ns = self.take_in_rest();
        self.pump.end();
        let end = self.run_end(end_ns, Stage::Over);
        self.run.end_journal(&end);
        self.take_back_places();
        let report = Arc::new(self.report(&self.run, &end));
        let written = self.sinks.report(&report, Stage::Over).map_err(SessionError::Output);
        // gpu_tracker's format has no place for warnings. Where no report has one, they go to stderr.
        sinks::print_warnings_beside_report(&self.config, &report);
        // If this collector is killed from here on, the next one only cleans up.
        self.checkpoint.state().note_reported();
        if self.told.exit.is_none()
            && let Some(Ok(cgroup)) = &self.config.cgroups.own
        {
            // The launcher made the cgroup and would remove it, but it is gone.
            run_cgroup::remove(cgroup);
        }
        let late = self.sinks.close();
        tell_late(&self.config, &late);
        let _ = self.checkpoint.state().named().unlink();
        if self.told.exit.is_none()
            && let Some(directory) = RunDirectory::of_segment(self.segment.named().path())
        {
            // The launcher would do it, but it is gone.
            directory.leave(&ProcRoot::default());
        }
        written
    }

    /// Takes in what is left to be read of the run, finalizes all processes, and hands on all that is left to the sinks.
    ///
    /// Returns when the run ended, CLOCK_MONOTONIC nanoseconds: when the command did, or at the last sample if the launcher did
    /// not tell.
    fn take_in_rest(&mut self) -> u64 {
        let sampled_ns = self.take_last_sample();
        let end_ns = self.told.exit.map_or(sampled_ns, |exit| exit.at_ns);
        // The last window over which CPU utilisation is measured ends with the run.
        self.run.apply_now(Observation::WindowsEnd { end_ns });
        self.readers.note_survivors(&mut self.run);
        self.take_last_records();
        self.give_up_orders();
        self.readers.finish(&mut self.run);
        self.name_tasks();
        self.take_torch();
        // A process that still runs counts until the last sample, which has its last figures. The time since then does not count:
        // the steps above wait for the pump and for drivers, and can take long.
        self.run.apply(sampled_ns, Observation::FinalizeAll);
        self.hand_on();
        end_ns
    }

    /// Reads what processes told of PyTorch's memory, if the environment names a file for it and a GPU was used.
    fn take_torch(&mut self) {
        if let (Some(path), true) = (&self.config.gpu.metrics, self.run.uses_gpus()) {
            let told = torch::memory(path, self.config.start.realtime_ns as f64 / 1e9);
            self.run.apply_now(Observation::Torch(told));
        }
    }

    /// Finds the rules of Snakemake's jobs and the names of Nextflow's tasks, if there were any and the command's directory has them.
    fn name_tasks(&mut self) {
        if self.config.attached.is_some() {
            return;
        }
        let directory = Path::new(".");
        let jobs: HashSet<u32> = self.run.tasks_of(TaskKind::Snakemake).map(|(hash, _)| hash).collect();
        if !jobs.is_empty() {
            let rules =
                snakemake::rules(directory, &self.config.command, self.config.start.realtime_ns, jobs);
            self.run.apply_now(Observation::SnakemakeRules(rules));
        }
        let tasks = self.run.tasks_of(TaskKind::Nextflow).map(|(hash, name)| (hash, name.to_owned()));
        let tasks: Vec<(u32, String)> = tasks.collect();
        if !tasks.is_empty() {
            let names = nextflow::names(directory, &self.config.command, tasks);
            self.run.apply_now(Observation::NextflowNames(names));
        }
    }

    /// Notes the alerts for which the launcher has not run the command of `--on-alert`, and tells the user. Their orders were still
    /// in the pipe when the run ended, or the last sample decided them. Does nothing if the launcher is gone: it would have told
    /// the user of the alerts themselves.
    fn give_up_orders(&mut self) {
        if self.told.exit.is_none() {
            return;
        }
        let line = |order: &Order| match &order.action {
            Action::RunAlertCommand { event, .. } => {
                Some(format!("{}: {}", event.alert_name(), AlertCommandFailure::RunEnded))
            }
            _ => None,
        };
        let lines: Vec<String> = self.run.open_orders().iter().filter_map(line).collect();
        self.run.apply_now(Observation::OrdersEnd);
        // Nobody may read stderr, and the report must not wait for that.
        if !self.config.report.style.quiet {
            lines_for_user(&self.config, &lines).iter().for_each(|line| sinks::write_if_room(line));
        }
    }

    /// Takes in all that the sources have found by now, and then takes the last sample of the live processes. Returns when the sample
    /// began, CLOCK_MONOTONIC nanoseconds.
    fn take_last_sample(&mut self) -> u64 {
        // If records don't come in time, `take_last_records` waits for them once more.
        let _ = self.pump.await_last(clock::monotonic_ns());
        self.drain();
        let now_ns = clock::monotonic_ns();
        // These terms never put the sample off, whatever process is found dead.
        self.sample(Terms::default());
        now_ns
    }

    /// Closes the segment and removes its file. Then takes in the records that were written before, and finalizes the processes
    /// that are over.
    fn take_last_records(&mut self) {
        // A flag in the segment: processes write no more records.
        self.segment.close();
        // From now on no process needs to find the segment by its name.
        let _ = self.segment.named().unlink();
        // The wait also brings the last records of processes that the sample found dead.
        // If there is no time to read all records, the report says how many are missing.
        if !self.pump.await_last(clock::monotonic_ns()) {
            self.run.apply_now(Observation::Unread(self.pump.unread()));
        }
        let complete_ns = self.drain();
        // The loop does not run again, so all ended processes are looked for now.
        self.finalize(complete_ns, AbsenceCheck::All);
        // The time that ended processes lived since the last sample waits for a sample, which brings it into the figures over time.
        if !self.run.tree.waiting_intervals().is_empty() {
            self.sample(Terms::default());
        }
    }
}

/// Writes to stderr what sinks said too late for the report, unless logs are disabled.
fn tell_late(config: &Config, late: &[String]) {
    let _ = io::stderr().write_all(lines_for_user(config, late).concat().as_bytes());
}

/// Makes lines for stderr of what the user is to be told (`told`). There are none if logs are disabled. If no report has a format
/// with warnings, as those of the Python tool gpu_tracker, the lines look like gpu_tracker's own.
fn lines_for_user(config: &Config, told: &[String]) -> Vec<String> {
    if config.tracking.disable_logs {
        return Vec::new();
    }
    let has_warnings = config.report.targets.iter().any(|target| is_complete(&target.format));
    let prefix = if has_warnings { "gpu-track-run: " } else { "WARNING:root:" };
    told.iter().map(|line| format!("{prefix}{}\n", quote::escape(line))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: OUT-40
    #[test]
    fn file_that_is_scraped_is_never_older_than_15_s() {
        for (is_scraped, most_ns) in [(true, 15_000_000_000), (false, 60_000_000_000)] {
            let ages = std::iter::successors(Some(500_000_000), |age_ns| {
                Some(age_ns + wait_of_interim_ns(*age_ns, is_scraped))
            });
            let of_an_hour: Vec<u64> = ages.take_while(|age_ns| *age_ns < 3_600_000_000_000).collect();
            let waits = of_an_hour.windows(2).map(|pair| pair[1] - pair[0]);
            assert_eq!(waits.clone().max(), Some(most_ns));
            assert_eq!(waits.min(), Some(500_000_000), "a short run has one soon");
        }
    }
}
