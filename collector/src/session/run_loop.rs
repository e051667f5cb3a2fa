//! The collector's loop: take in what the sources find, sample, and at the end write the report.
//!
//! It is woken by the doorbell (ring filling up, command ended), by the sampling tick, and every 50 ms at the latest,
//! whatever the interval. All that the sources see goes to the core as observations; what the core wants to know is
//! read and goes back the same way.

use std::sync::Arc;
use std::time::Duration;

use super::error::SessionError;
use super::messages::Messages;
use super::orders::OrderPipe;
use super::readers::Readers;
use super::told::Told;
use super::without_launcher::OwnEnder;
use crate::model::config::{Config, Message};
use crate::model::host_info::HostInfo;
use crate::model::observation::Observation;
use crate::model::record_or_event::Damage;
use crate::run::schedule::{Decision, Facts, Schedule};
use crate::sinks::Sinks;
use crate::sources::pump::Pump;
use crate::store::checkpoint::CheckpointWriter;
use crate::store::replay_journal::JournaledRun;
use crate::sys::clock;
use crate::sys::proc_fs::ProcRoot;
use crate::sys::segment::Segment;

/// Records and messages are looked at this often at least.
const LOOK_NS: u64 = 50_000_000;
/// After this many findings the core checks whether they can be true.
const FINDINGS_AT_ONCE: usize = 1024;

pub(super) struct Session {
    pub(super) config: Config,
    pub(super) host: HostInfo,
    pub(super) segment: Arc<Segment>,
    pub(super) run: JournaledRun,
    pub(super) pump: Pump,
    pub(super) readers: Readers,
    pub(super) checkpoint: CheckpointWriter,
    pub(super) orders: OrderPipe,
    pub(super) sinks: Sinks,
    pub(super) schedule: Schedule,
    /// When the next report-so-far is written, CLOCK_MONOTONIC nanoseconds.
    pub(super) interim_ns: u64,
    /// What was wrong with the records that earlier collectors read.
    pub(super) earlier_damage: Damage,
    pub(super) told: Told,
    pub(super) own_ender: OwnEnder,
}

impl Session {
    /// Runs the loop until the run is over.
    pub(super) fn work(&mut self, messages: &mut Messages) -> Result<(), SessionError> {
        self.attach();
        loop {
            self.listen(messages)?;
            // Before a sample the pump reads what waits, so that the sample knows its processes.
            if matches!(self.decide(), Decision::Sample(_)) {
                self.pump.freshen();
            }
            let complete_ns = self.drain();
            self.finalize(complete_ns, false);
            self.give_orders(messages);
            // By the records that came meanwhile, a sample may have to wait.
            let decision = self.decide();
            if let Decision::Sample(terms) = decision {
                self.sample(terms);
                self.give_orders(messages);
            }
            let is_on_grid = matches!(decision, Decision::Sample(terms) if terms.is_on_grid);
            self.checkpoint.save_if_due(&self.run, is_on_grid);
            if self.is_over(messages, decision) {
                return Ok(());
            }
            let now_ns = clock::monotonic_ns();
            if now_ns >= self.interim_ns {
                self.write_interim(now_ns);
            }
            self.nap();
        }
    }

    /// Decides whether a sample is due now.
    fn decide(&mut self) -> Decision {
        let now_ns = clock::monotonic_ns();
        let facts = Facts {
            sampled_ns: self.run.sampled_ns,
            largest_bytes: self.run.ram.high_water_mark().combined,
            youngest_unreported_ns: self.run.tree.youngest_unreported_ns(self.pump.reported_by_ns(now_ns)),
            ended: self.run.tree.waiting_intervals(),
        };
        self.schedule.decide(now_ns, &facts)
    }

    /// Gives what the core wants done to the launcher, or does it itself where that is gone.
    fn give_orders(&mut self, messages: &Messages) {
        let orders = self.run.take_orders(clock::monotonic_ns());
        if messages.is_closed {
            let (segment, kill_after) = (self.segment.named().path(), self.config.tracking.limits.kill_after);
            self.own_ender.obey(orders, segment, kill_after, self.host.tick_us(), &mut self.run);
            self.own_ender.is_at_work(&mut self.run);
        } else {
            self.orders.send(orders);
        }
    }

    /// Whether the run is over: the launcher said so, or it is gone and a sample found no process alive. `decision` is what was
    /// just done.
    fn is_over(&mut self, messages: &Messages, decision: Decision) -> bool {
        let is_left = messages.is_closed
            && matches!(decision, Decision::Sample(_))
            && self.run.tree.alive().is_empty()
            && !self.own_ender.is_at_work(&mut self.run);
        self.told.exit.is_some() || self.told.is_cancelled || is_left
    }

    /// Sleeps until the next sample or the pump's doorbell, at most [`LOOK_NS`]. If a sample is due by now, it does not sleep.
    fn nap(&mut self) {
        if let Decision::Wait(until_ns) = self.decide() {
            let wait_ns = until_ns.saturating_sub(clock::monotonic_ns()).min(LOOK_NS);
            std::thread::park_timeout(Duration::from_nanos(wait_ns));
        }
    }

    /// Takes in what the launcher has sent.
    fn listen(&mut self, messages: &mut Messages) -> Result<(), SessionError> {
        while self.told.exit.is_none()
            && let Some(line) = messages.line()?
        {
            let message = serde_json::from_slice(&line)?;
            if matches!(message, Message::Signalled { .. }) {
                // SIGKILL can follow, to all at once: then what is written now remains.
                self.interim_ns = 0;
            }
            self.told.take_in(&message, &self.config, &self.readers.root, &mut self.run);
        }
        Ok(())
    }

    /// Takes in what the pump has read, and acts on what that shows of the sources. Then answers what the core asks. Returns the
    /// time up to which all findings have been taken in, CLOCK_MONOTONIC nanoseconds.
    pub(super) fn drain(&mut self) -> u64 {
        let connector = self.run.health.connector.clone();
        let complete_ns = self.apply_findings();
        self.report_damage();
        // Events were lost, or the connector was given up: processes may be missing that only /proc shows.
        if self.run.health.connector != connector {
            self.readers.scanner.look_again();
        }
        self.look();
        complete_ns
    }

    /// Applies what the pump has read, in order, and checks every [`FINDINGS_AT_ONCE`] whether the records can be true. Returns
    /// the time up to which all findings have come, CLOCK_MONOTONIC nanoseconds.
    fn apply_findings(&mut self) -> u64 {
        let was_forged = self.run.health.forgery.is_some();
        let (batches, complete_ns) = self.pump.take();
        for batch in batches {
            // It may have come while the one before was taken in, with records of that time.
            let now_ns = clock::monotonic_ns();
            for part in batch.chunks(FINDINGS_AT_ONCE) {
                self.run.apply(now_ns, Observation::Findings(part.to_vec()));
                check_suspicion(&mut self.run, &self.readers.root, self.config.start.forks_before, now_ns);
            }
        }
        // The core has ignored all records since. The pump need not read more of them.
        if self.run.health.forgery.is_some() && !was_forged {
            self.pump.distrust();
        }
        complete_ns
    }

    /// Tells the core what was wrong with the records so far, if that is new. The pump knows only what it has read itself, so
    /// that of earlier collectors of this run is added.
    fn report_damage(&mut self) {
        let damage = self.earlier_damage.plus(self.pump.damage());
        if damage != self.run.health.damage {
            self.run.apply_now(Observation::RecordsDamaged(damage));
        }
    }

    /// Answers what the core asks, and tells it which processes ended.
    fn look(&mut self) {
        let now_ns = clock::monotonic_ns();
        self.readers.answer(&mut self.run, self.pump.reported_by_ns(now_ns), now_ns);
        self.run.apply(now_ns, Observation::Tick);
        self.pump.note_uninstrumented(self.run.tree.counts().uninstrumented_programs, now_ns);
        self.readers.take_exits(&mut self.run, now_ns);
    }

    /// Has the core compute the figures of processes that are over. Every record up to `complete_ns` was read. `asks_all`:
    /// looks in /proc for all that ended, due or not.
    pub(super) fn finalize(&mut self, complete_ns: u64, asks_all: bool) {
        self.readers.find_absent(&mut self.run, asks_all);
        self.run.apply_now(Observation::Finalize { complete_ns });
    }
}

/// If records are suspected to be forged, tells the core how many processes the whole machine has made since the run began.
/// `forks_before`: how many it had made by then; `None`: not known.
fn check_suspicion(run: &mut JournaledRun, root: &ProcRoot, forks_before: Option<u64>, now_ns: u64) {
    if run.health.forgery.is_none() && run.suspicion(now_ns).is_some() {
        // Read only now: /proc/stat is long on large machines.
        let made = root.forks().zip(forks_before).map(|(forks, before)| forks.saturating_sub(before));
        run.apply(now_ns, Observation::MachineForks(made));
    }
}
