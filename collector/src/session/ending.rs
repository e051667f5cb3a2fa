//! The reports of a session: those so far, and the last one, with which the session ends.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::error::SessionError;
use super::run_loop::Session;
use crate::build::{self, Inputs};
use crate::model::config::Config;
use crate::model::observation::Observation;
use crate::model::report::{DiskFull, Report, Stage};
use crate::model::run_end::{CommandExit, RunEnd};
use crate::report::format::{is_complete, is_scraped};
use crate::report::quote;
use crate::run::RunState;
use crate::run::schedule::Terms;
use crate::sinks;
use crate::sources::cgroup::{self, run_cgroup};
use crate::sources::disks;
use crate::sys::clock;

/// Most time between two reports-so-far.
const LONGEST_INTERIM_NS: u64 = 60_000_000_000;
/// Most time between two reports-so-far of a form that a program scrapes: Prometheus does so every 15 to 60 s.
const LONGEST_SCRAPED_NS: u64 = 15_000_000_000;

/// Gives how long the next report-so-far waits after one of a run of this age: until the run is twice as old, or for the most time.
fn wait_of_interim_ns(age_ns: u64, is_scraped: bool) -> u64 {
    age_ns.min(if is_scraped { LONGEST_SCRAPED_NS } else { LONGEST_INTERIM_NS })
}

impl Session {
    /// Writes a report-so-far, if a sink wants one: the report as it would be if the run ended now. Plans the next. If launcher and
    /// collector are killed at once, that report remains.
    pub(super) fn write_interim(&mut self, now_ns: u64) {
        let age_ns = now_ns.saturating_sub(self.run.start_ns);
        let is_scraped = self.config.report.targets.iter().any(|target| is_scraped(&target.format));
        self.interim_ns = now_ns + wait_of_interim_ns(age_ns, is_scraped);
        if !self.sinks.want_report(Stage::SoFar) {
            return;
        }
        // The end is applied to a copy, since the run goes on.
        let mut run = RunState::clone(&self.run);
        run.apply(now_ns, &Observation::FinalizeAll);
        let report = Arc::new(self.report(&run, &self.run_end(now_ns, Stage::SoFar)));
        // A report-so-far that can't be written is no trouble yet; the final one says so.
        let _ = self.sinks.report(&report, Stage::SoFar);
    }

    /// Makes a report of this state of the run.
    fn report(&self, run: &RunState, end: &RunEnd) -> Report {
        build::report(&Inputs { config: &self.config, host_info: &self.host, run, end })
    }

    /// Gives how the run ended, or how it stands if `stage` is [`Stage::SoFar`]. `at_ns`, CLOCK_MONOTONIC nanoseconds, is its
    /// end or the present.
    fn run_end(&self, at_ns: u64, stage: Stage) -> RunEnd {
        RunEnd {
            at_ns,
            stage,
            command_exit: self.told.exit,
            dropped_events: self.segment.ring().dropped(),
            unreachable_programs: self.segment.header().unreachable.0.load(Ordering::Relaxed),
            is_truncated: self.segment.is_lost(),
            cgroups: cgroup::usage(&self.config.cgroups),
            full_disks: self.full_disks(stage),
            largest_rss_bytes: None,
        }
    }

    /// Finds the full file systems among those that the run writes to, as far as they are known. Asks none unless the run is
    /// over and the command exited with a failure: a file system can take long to answer.
    fn full_disks(&self, stage: Stage) -> Vec<DiskFull> {
        let has_failed = |exit: CommandExit| {
            exit.status.is_some_and(|status| libc::WIFEXITED(status) && libc::WEXITSTATUS(status) != 0)
        };
        let is_over = stage == Stage::Over && self.told.exit.is_some_and(has_failed);
        if is_over { disks::full(self.config.report.files()) } else { Vec::new() }
    }

    /// Whether the command could not be executed.
    pub(super) fn is_cancelled(&self) -> bool {
        self.told.is_cancelled
    }

    /// Ends the session: takes in what is left to be read, writes the report, and removes what the session has in shared memory. If
    /// the command could not be executed, there is no report, and the launcher removes that.
    pub(super) fn finish(mut self) -> Result<(), SessionError> {
        if self.told.is_cancelled {
            return Ok(());
        }
        let end_ns = self.take_in_rest();
        let end = self.run_end(end_ns, Stage::Over);
        self.run.end(&end);
        let report = Arc::new(self.report(&self.run, &end));
        let written = self.sinks.report(&report, Stage::Over).map_err(SessionError::Output);
        sinks::warn_where_report_cannot(&self.config, &report);
        // A collector that follows this one only cleans up.
        self.checkpoint.state().note_reported();
        if self.told.exit.is_none()
            && let Some(Ok(cgroup)) = &self.config.cgroups.own
        {
            // The launcher, which made it, is gone.
            run_cgroup::remove(cgroup);
        }
        let late = self.sinks.close();
        tell_late(&self.config, &late);
        let _ = self.checkpoint.state().named().unlink();
        written
    }

    /// Takes in what is left to be read of the run, in three steps, and finalizes all processes. Returns when the run ended,
    /// CLOCK_MONOTONIC nanoseconds: when the command did, or at the last sample if the launcher did not tell.
    fn take_in_rest(&mut self) -> u64 {
        let sampled_ns = self.take_last_sample();
        let end_ns = self.told.exit.map_or(sampled_ns, |exit| exit.at_ns);
        self.run.apply_now(Observation::WindowsEnd { end_ns });
        self.readers.note_survivors(&mut self.run);
        self.take_last_records();
        self.readers.finish(&mut self.run);
        // A process that still runs counts until the last sample, which has the last of its figures. The steps since then can have
        // taken long: they wait for the pump and for drivers.
        self.run.apply(sampled_ns, Observation::FinalizeAll);
        self.hand_on();
        end_ns
    }

    /// Takes the last sample of the live processes, after all that the sources have by now. Returns when it began, CLOCK_MONOTONIC
    /// nanoseconds.
    fn take_last_sample(&mut self) -> u64 {
        // What does not come in time is waited for once more, after the sample.
        let _ = self.pump.await_last(clock::monotonic_ns());
        self.drain();
        let now_ns = clock::monotonic_ns();
        self.sample(Terms::default());
        now_ns
    }

    /// Closes the segment to records, takes in those that were written by then, and finalizes the processes that are over.
    fn take_last_records(&mut self) {
        // Processes are told to write no more records.
        self.segment.close();
        // No process can find the segment by its name any more. It is removed now, so that it can't be left behind.
        let _ = self.segment.named().unlink();
        // Among them are the last records of processes that the sample found dead.
        if !self.pump.await_last(clock::monotonic_ns()) {
            self.run.apply_now(Observation::Unread(self.pump.unread()));
        }
        let complete_ns = self.drain();
        self.finalize(complete_ns, true);
        // What these processes used since the last sample enters the figures over time by one more sample.
        if !self.run.tree.waiting_intervals().is_empty() {
            self.sample(Terms::default());
        }
    }
}

/// Writes what sinks said too late for the report to stderr, unless logs are disabled. If no report is in a form that has warnings,
/// the lines look like gpu_tracker's own.
fn tell_late(config: &Config, late: &[String]) {
    if config.tracking.disable_logs {
        return;
    }
    let has_warnings = config.report.targets.iter().any(|target| is_complete(&target.format));
    let prefix = if has_warnings { "gpu-track-run: " } else { "WARNING:root:" };
    let lines = late.iter().map(|line| format!("{prefix}{}\n", quote::escape(line)));
    let _ = io::stderr().write_all(lines.collect::<String>().as_bytes());
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
