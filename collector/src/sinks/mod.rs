//! Sinks: what takes the run out of the collector. Each output is one file here and one row of [`SINKS`].
//!
//! The loop calls the live ring and the report file, and waits for them. It also calls the lines of `--every`, which never
//! wait. Every other sink has a thread and a queue ([`worker`]): neither the loop nor the report waits for it.
//!
//! A sink gets everything at least once. Its keys are a sample's `at_ns`, and (host pid, `start_ns`) of a process. After a
//! restart an item may come again, and the process ids of this run may be others.

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
pub mod tracking;
mod worker;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::model::observation::Observation;
use crate::model::report::{Report, Stage};
use crate::model::tree_sample::{TreeSample, Wants};
use crate::run::RunState;
use crate::run::outbox::Outbox;
pub(crate) use report_file::warn_where_report_cannot;
pub use report_file::{has_files, write_everywhere, write_files};
pub(crate) use sink::Place;
use sink::{Resume, Sink};
use worker::Worker;

/// How long the sinks with threads have at the end, all together. Then they are left.
const AT_END: Duration = Duration::from_millis(500);

/// An output that may be asked for.
struct Row {
    /// The sinks that the configuration asks for.
    make: fn(&Place) -> Vec<Box<dyn Sink>>,
    /// The loop calls it, and it gets the last sample while that is still open.
    is_in_loop: bool,
}

/// All outputs.
const SINKS: [Row; 7] = [
    Row { make: live_ring::make, is_in_loop: true },
    // It ends when it gets the report, before that is written.
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
    /// Items of the outbox before this number were handed on.
    handed: u64,
}

impl Sinks {
    /// Opens what the configuration asks for. Gives what the core must know: the sinks of the loop that can't be
    /// opened, and what all sinks want, together.
    pub(crate) fn open(place: &Place, outbox: &Outbox) -> (Self, Vec<Observation>) {
        let resume = if place.config.restarts > 0 { Resume::Continued } else { Resume::New };
        let mut sinks = Self { in_loop: Vec::new(), workers: Vec::new(), handed: outbox.begin() };
        let mut seen = Vec::new();
        let made = SINKS
            .into_iter()
            .flat_map(|row| (row.make)(place).into_iter().map(move |sink| (row.is_in_loop, sink)));
        for (is_in_loop, mut sink) in made {
            if !is_in_loop {
                sinks.workers.push(Worker::start(sink, resume));
                continue;
            }
            match sink.open(resume) {
                Ok(()) => sinks.in_loop.push(sink),
                Err(error) => seen.push(failed(sink.as_ref(), &error)),
            }
        }
        // The sinks of the loop get no items of the outbox, so of what they want only `live` counts.
        let of_loop = sinks.in_loop.iter().map(|sink| Wants { live: sink.wants().live, ..Wants::default() });
        let wants = of_loop.chain(sinks.workers.iter().map(|worker| worker.wants));
        let wants = wants.fold(Wants::default(), Wants::or);
        seen.push(Observation::SinksWant(wants));
        (sinks, seen)
    }

    /// Whether any sink of the loop takes the report of this stage.
    pub(crate) fn want_report(&self, stage: Stage) -> bool {
        self.in_loop.iter().any(|sink| sink.wants_report(stage))
    }

    /// Shows the run and its open sample to the sinks of the loop. Drops those that fail, and gives what tells the core so.
    pub(crate) fn show(&mut self, run: &RunState, now: &TreeSample) -> Vec<Observation> {
        let mut seen = Vec::new();
        self.in_loop.retain_mut(|sink| match sink.sample(now).and_then(|()| sink.look(run, now)) {
            Ok(()) => true,
            Err(error) => {
                seen.push(failed(sink.as_ref(), &error));
                false
            }
        });
        seen
    }

    /// Hands what is new to the sinks with threads. Gives what the core must know, and the number before which all have taken
    /// what they want.
    pub(crate) fn hand_on(&mut self, outbox: &Outbox) -> (Vec<Observation>, u64) {
        // What the outbox itself dropped since the last call counts as lost, too.
        self.workers.iter_mut().for_each(|worker| worker.miss(outbox.missed()));
        for (number, item) in outbox.since(self.handed) {
            let item = Arc::new(item.clone());
            self.workers.iter_mut().for_each(|worker| worker.hand(number, &item));
        }
        self.handed = outbox.end();
        let taken = self.workers.iter().filter_map(Worker::first_open).min();
        let seen = self.workers.iter_mut().flat_map(Worker::news).collect();
        (seen, taken.unwrap_or(self.handed))
    }

    /// Gives the report to those that take it: first to the loop's, which are waited for.
    ///
    /// # Errors
    /// If the loop's can't write it.
    pub(crate) fn report(&mut self, report: &Arc<Report>, stage: Stage) -> io::Result<()> {
        let mut result = Ok(());
        for sink in self.in_loop.iter_mut().filter(|sink| sink.wants_report(stage)) {
            // The first error stays, and the other sinks are called all the same.
            result = result.and(sink.report(report, stage));
        }
        self.workers.iter_mut().for_each(|worker| worker.hand_report(report, stage));
        result
    }

    /// Waits a little for the sinks with threads. Gives lines for the user about what no report tells any more.
    pub(crate) fn close(self) -> Vec<String> {
        let deadline = Instant::now() + AT_END;
        let mut workers = self.workers;
        workers.iter_mut().for_each(Worker::end);
        workers.into_iter().filter_map(|worker| worker.close(deadline)).collect()
    }
}

/// Tells the core that a sink has failed.
fn failed(sink: &dyn Sink, error: &io::Error) -> Observation {
    Observation::SinkFailed { sink: sink.name(), error: error.to_string() }
}
