//! Sinks: the outputs of the collector, such as files and the terminal. Each kind is one file here and one row of [`SINKS`].
//! The outbox is the core's list of items for them: closed samples, ended processes and tasks, and events.
//!
//! The loop calls the live ring and the report file, and waits for them. It also calls the lines of `--every`, which never
//! wait. Every other sink has a thread and a queue ([`worker`]): neither the loop nor the report waits for it.
//!
//! A sink gets everything at least once: after a restart of the collector, an item may come again. A sample's `at_ns`, and pid and
//! `start_ns` of a process, tell a sink what it has already. The core's own ids of processes can differ after a restart. Those of tasks
//! do not: a task that comes again has all figures, and replaces what the sink has of it.

pub mod bundle;
mod events;
mod gpu_trace;
mod grid;
pub mod kept;
mod live_ring;
pub mod output;
mod progress;
mod report_file;
mod sink;
mod spare;
pub mod tracking;
mod worker;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::model::config::ReportConfig;
use crate::model::observation::Observation;
use crate::model::report::{Report, Stage};
use crate::model::tree_sample::{ItemKind, TreeSample, Wants};
use crate::run::RunState;
use crate::run::outbox::Outbox;
pub use live_ring::{cpu_percent as live_cpu_percent, figures as live_figures};
pub(crate) use progress::write_if_room;
pub(crate) use report_file::print_warnings_beside_report;
pub use report_file::{has_files, write_everywhere, write_files};
pub(crate) use sink::SinkContext;
use sink::{Resume, Sink};
use worker::Worker;

/// At the end of the run, the sinks with threads have this time to finish, all together. Then the collector ends without them.
const AT_END: Duration = Duration::from_millis(500);

/// A kind of output.
struct Row {
    /// The sinks of this kind that the configuration asks for.
    make: fn(&SinkContext) -> Vec<Box<dyn Sink>>,
    /// Whether the loop calls these sinks, with the sample that is still open. Other sinks get closed samples, in a thread.
    is_in_loop: bool,
}

/// All outputs.
const SINKS: [Row; 7] = [
    Row { make: live_ring::make, is_in_loop: true },
    // Before the report file: progress lines end when this sink gets the report, so none follows the report.
    Row { make: progress::make, is_in_loop: true },
    Row { make: report_file::make, is_in_loop: true },
    Row { make: tracking::make, is_in_loop: false },
    Row { make: gpu_trace::make, is_in_loop: false },
    Row { make: bundle::make, is_in_loop: false },
    Row { make: events::make, is_in_loop: false },
];

/// The outputs of a run.
pub(crate) struct Sinks {
    in_loop: Vec<Box<dyn Sink>>,
    workers: Vec<Worker>,
    /// The number of the first outbox item that the workers were not yet given.
    handed: u64,
}

impl Sinks {
    /// Opens the sinks that the configuration asks for. Also returns observations for the core: which sinks of the loop can't
    /// be opened, and which items all sinks together want.
    pub(crate) fn open(context: &SinkContext, outbox: &Outbox) -> (Self, Vec<Observation>) {
        let resume = if context.config.restarts > 0 { Resume::Continued } else { Resume::New };
        let mut sinks = Self { in_loop: Vec::new(), workers: Vec::new(), handed: outbox.begin() };
        let mut observations = Vec::new();
        let mut wants = Wants::default();
        for row in SINKS {
            for mut sink in (row.make)(context) {
                if !row.is_in_loop {
                    let worker = Worker::start(sink, resume);
                    wants.extend(&worker.wants);
                    sinks.workers.push(worker);
                    continue;
                }
                match sink.open(resume) {
                    Ok(()) => {
                        // The sinks of the loop get no items of the outbox, so only `live` counts of what they want.
                        wants.extend(sink.wants().into_iter().filter(|kind| *kind == ItemKind::Live));
                        sinks.in_loop.push(sink);
                    }
                    Err(error) => observations.push(failed(sink.as_ref(), &error)),
                }
            }
        }
        observations.push(Observation::SinksWant(wants));
        (sinks, observations)
    }

    /// Has the sinks of the loop write the report as this configuration says, from now on.
    pub(crate) fn set_report_config(&mut self, config: &ReportConfig) {
        self.in_loop.iter_mut().for_each(|sink| sink.set_report_config(config));
    }

    /// Whether any sink of the loop takes the report of this stage.
    pub(crate) fn want_report(&self, stage: Stage) -> bool {
        self.in_loop.iter().any(|sink| sink.wants_report(stage))
    }

    /// Shows the run and its open sample to the sinks of the loop. Closes those that fail, and returns an observation for each.
    pub(crate) fn show(&mut self, run: &RunState, now: &TreeSample) -> Vec<Observation> {
        let mut failures = Vec::new();
        self.in_loop.retain_mut(|sink| {
            let shown = sink.sample(now).and_then(|()| sink.show(run, now));
            if let Err(error) = &shown {
                failures.push(failed(sink.as_ref(), error));
            }
            shown.is_ok()
        });
        failures
    }

    /// Queues the new items of the outbox for the sinks with threads. Returns failures and losses that the core does not know
    /// yet, and the number of the first item that a sink must still write. If there is none, it is the number of the next item.
    pub(crate) fn hand_on(&mut self, outbox: &Outbox) -> (Vec<Observation>, u64) {
        // What the outbox itself dropped since the last call counts as lost, too.
        self.workers.iter_mut().for_each(|worker| worker.miss(outbox));
        for (number, item) in outbox.since(self.handed) {
            let item = Arc::new(item.clone());
            self.workers.iter_mut().for_each(|worker| worker.hand(number, &item));
        }
        self.handed = outbox.end();
        let first_open = self.workers.iter().filter_map(Worker::first_open).min();
        let observations = self.workers.iter_mut().flat_map(Worker::news).collect();
        (observations, first_open.unwrap_or(self.handed))
    }

    /// Hands the report to the sinks that take it. Those of the loop write it at once; then it is queued for the others.
    ///
    /// # Errors
    /// If a sink of the loop can't write it.
    pub(crate) fn report(&mut self, report: &Arc<Report>, stage: Stage) -> io::Result<()> {
        let mut result = Ok(());
        for sink in self.in_loop.iter_mut().filter(|sink| sink.wants_report(stage)) {
            // The first error stays, and the other sinks are called all the same.
            result = result.and(sink.report(report, stage));
        }
        self.workers.iter_mut().for_each(|worker| worker.hand_report(report, stage));
        result
    }

    /// Waits at most [`AT_END`] for the sinks with threads. Returns lines for the user about failures and losses that came too late
    /// for the report.
    pub(crate) fn close(self) -> Vec<String> {
        let deadline = Instant::now() + AT_END;
        let mut workers = self.workers;
        workers.iter_mut().for_each(Worker::end);
        workers.into_iter().filter_map(|worker| worker.close(deadline)).collect()
    }
}

/// Makes the observation that a sink has failed.
fn failed(sink: &dyn Sink, error: &io::Error) -> Observation {
    Observation::SinkFailed { sink: sink.name(), error: error.to_string() }
}
