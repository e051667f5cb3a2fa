//! The collector's loop: it takes in what the sources find, takes samples, and writes reports so far.
//!
//! The loop wakes when the doorbell rings: the ring fills up, or the command has ended. It also wakes when a sample is due, and at
//! least every 50 ms. All that the sources see goes to the core as observations, and so does what is read because the core has asked
//! for it.

use std::sync::Arc;
use std::time::Duration;

use super::error::SessionError;
use super::messages::Messages;
use super::orders::OrderPipe;
use super::readers::{AbsenceCheck, Readers};
use super::told::Told;
use super::without_launcher::OwnEnder;
use crate::model::config::{Config, Message, ReportConfig};
use crate::model::host_info::HostInfo;
use crate::model::observation::Observation;
use crate::model::record_or_event::Damage;
use crate::recover;
use crate::run::schedule::{Decision, Schedule, Situation};
use crate::sinks::Sinks;
use crate::sources::pump::Pump;
use crate::store::checkpoint::CheckpointWriter;
use crate::store::replay_journal::JournaledRun;
use crate::store::run_directory::RunDirectory;
use crate::sys::clock;
use crate::sys::proc_fs::ProcRoot;
use crate::sys::segment::Segment;

/// Records and messages are looked at this often at least.
const LOOK_NS: u64 = 50_000_000;
/// After this many findings (records and connector events), the core checks whether the records can be true.
const FINDINGS_AT_ONCE: usize = 1024;

/// What the loop works with.
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
    /// When the next report-so-far is due, CLOCK_MONOTONIC nanoseconds.
    pub(super) next_interim_ns: u64,
    /// The damage of the records that earlier collectors of this run read.
    pub(super) earlier_damage: Damage,
    pub(super) told: Told,
    /// The configuration of the report before other nodes were tracked.
    pub(super) alone: Option<ReportConfig>,
    pub(super) own_ender: OwnEnder,
}

impl Session {
    /// Runs the loop until the run is over.
    pub(super) fn work(&mut self, messages: &mut Messages) -> Result<(), SessionError> {
        self.attach();
        loop {
            self.listen(messages)?;
            // If a sample is due, the pump first reads all that waits, so that the sample knows its processes.
            if matches!(self.decide(), Decision::Sample(_)) {
                self.pump.read_pending();
                // The wait for the pump takes its wake-ups, also that of a message that came meanwhile.
                self.listen(messages)?;
            }
            let complete_ns = self.drain();
            self.finalize(complete_ns, AbsenceCheck::Due);
            self.give_orders(messages);
            // Decided again: the records that came meanwhile may put the sample off.
            let decision = self.decide();
            // After the command's exit, the last sample follows at once.
            if let Decision::Sample(terms) = decision
                && self.told.exit.is_none()
            {
                self.sample(terms);
                self.give_orders(messages);
            }
            if self.is_over(messages, decision) {
                return Ok(());
            }
            // On the grid: a sample of the user's interval, and not one more that ended processes have called for.
            let is_on_grid = matches!(decision, Decision::Sample(terms) if terms.is_on_grid);
            self.checkpoint.save_if_due(&self.run, is_on_grid);
            let now_ns = clock::monotonic_ns();
            if now_ns >= self.next_interim_ns {
                self.write_interim(now_ns);
            }
            self.nap();
        }
    }

    /// Decides whether a sample is due now, or until when to wait.
    fn decide(&mut self) -> Decision {
        let now_ns = clock::monotonic_ns();
        let situation = Situation {
            sampled_ns: self.run.sampled_ns,
            largest_bytes: self.run.ram.high_water_mark().combined,
            youngest_unreported_ns: self.run.tree.youngest_unreported_ns(self.pump.reported_by_ns(now_ns)),
            ended: self.run.tree.waiting_intervals(),
        };
        self.schedule.decide(now_ns, &situation)
    }

    /// Sends the core's orders to the launcher. If the launcher is gone, obeys those that are possible without it. It then also
    /// looks after the process that ends the tree (the ender), if one was started.
    fn give_orders(&mut self, messages: &Messages) {
        let orders = self.run.take_orders(clock::monotonic_ns());
        if messages.is_closed {
            let (segment, kill_after) =
                (self.segment.named().known(), self.config.tracking.limits.kill_after);
            self.own_ender.obey(orders, segment, kill_after, self.host.tick_us(), &mut self.run);
            self.own_ender.keep_at_work(&mut self.run);
        } else {
            self.orders.send(orders);
        }
    }

    /// Whether the run is over. It is if the launcher said so. If the launcher is gone, the run is over once a sample has found no
    /// process alive, and no ender is at work. `decision` is what this turn of the loop did.
    fn is_over(&mut self, messages: &Messages, decision: Decision) -> bool {
        let has_died_out = messages.is_closed
            && matches!(decision, Decision::Sample(_))
            && self.run.tree.alive().is_empty()
            && !self.own_ender.keep_at_work(&mut self.run);
        self.told.exit.is_some() || self.told.is_cancelled || has_died_out
    }

    /// Sleeps until the next sample is due or the pump wakes this thread, at most [`LOOK_NS`]. Does not sleep if a sample is due.
    fn nap(&mut self) {
        if let Decision::Wait(until_ns) = self.decide() {
            let wait_ns = until_ns.saturating_sub(clock::monotonic_ns()).min(LOOK_NS);
            std::thread::park_timeout(Duration::from_nanos(wait_ns));
        }
    }

    /// Takes in what the launcher has sent, up to the command's exit.
    fn listen(&mut self, messages: &mut Messages) -> Result<(), SessionError> {
        let was_closed = messages.is_closed;
        while self.told.exit.is_none()
            && let Some(line) = messages.line()?
        {
            let message = serde_json::from_slice(&line)?;
            if matches!(message, Message::Signalled(_)) {
                // SIGKILL can follow, to all processes at once. So a report-so-far is written now, which then remains.
                self.next_interim_ns = 0;
            }
            self.note_nodes(message);
            self.told.take_in(&message, &self.config, &self.readers.root, &mut self.run);
        }
        if messages.is_closed
            && !was_closed
            && let Some(directory) = RunDirectory::of_segment(self.segment.named().path())
        {
            // Nothing starts the proxy of docker again.
            directory.stand_back();
        }
        Ok(())
    }

    /// Obeys a message about other nodes: the report can become that of one of several nodes.
    fn note_nodes(&mut self, message: Message) {
        let is_about_nodes = matches!(
            message,
            Message::NodesJoin { .. } | Message::NodesReady { .. } | Message::NodesStayAway
        );
        if !is_about_nodes {
            return;
        }
        let before = self.config.report.clone();
        self.config.note_nodes(message);
        // Told again, the message changes nothing.
        if before.place_of_part.is_some() && self.config.report.place_of_part.is_none() {
            self.sinks.set_report_config(&self.config.report);
            self.alone = Some(before);
            // The launcher's node gets a report among those of the others.
            if !self.run.tree.alive().is_empty() {
                self.next_interim_ns = 0;
            }
        }
        recover::note(&self.checkpoint.state(), &self.config, &self.host);
    }

    /// If the launcher is gone, takes back what only the report of all nodes was to have: terminals and pipes, and the place where
    /// reports are kept.
    pub(super) fn take_back_places(&mut self) {
        if let Some(alone) = self.alone.take().filter(|_| self.told.exit.is_none()) {
            let report = &mut self.config.report;
            report.targets.extend(alone.targets.into_iter().filter(|target| target.output.file().is_none()));
            report.keep = alone.keep;
            self.sinks.set_report_config(report);
        }
    }

    /// Takes in what the pump has read, tells the core about the state of the sources, and answers what the core asks. Returns
    /// the time up to which all findings have been taken in, CLOCK_MONOTONIC nanoseconds.
    pub(super) fn drain(&mut self) -> u64 {
        let connector = self.run.health.connector.clone();
        let complete_ns = self.apply_findings();
        self.report_damage();
        // Events were lost, or the connector was given up. Processes may be missing that only /proc shows.
        if self.run.health.connector != connector {
            self.readers.scanner.look_again();
        }
        self.answer_core();
        complete_ns
    }

    /// Applies what the pump has read, in order, and checks every [`FINDINGS_AT_ONCE`] findings whether the records can be true.
    /// Returns the time up to which all findings have come, CLOCK_MONOTONIC nanoseconds.
    fn apply_findings(&mut self) -> u64 {
        let was_forged = self.run.health.forgery.is_some();
        let (batches, complete_ns) = self.pump.take();
        for batch in batches {
            // Read for each batch: its records may have been written while the previous batch was applied.
            let now_ns = clock::monotonic_ns();
            for part in batch.chunks(FINDINGS_AT_ONCE) {
                self.run.apply(now_ns, Observation::Findings(part.to_vec()));
                check_suspicion(&mut self.run, &self.readers.root, self.config.start.forks_before, now_ns);
            }
        }
        // The core ignores all records from now on, so the pump need not read more of them.
        if self.run.health.forgery.is_some() && !was_forged {
            self.pump.distrust();
        }
        complete_ns
    }

    /// Tells the core the damage of the records so far, if it has grown. The pump knows only the records that it has read itself,
    /// so the damage that earlier collectors saw is added.
    fn report_damage(&mut self) {
        let damage = self.earlier_damage.plus(self.pump.damage());
        if damage != self.run.health.damage {
            self.run.apply_now(Observation::RecordsDamaged(damage));
        }
    }

    /// Answers what the core asks, and tells it the time, and which processes ended. Makes the pump read more often for a while if
    /// programs without the shim (uninstrumented ones) were found.
    fn answer_core(&mut self) {
        let now_ns = clock::monotonic_ns();
        self.readers.answer(&mut self.run, self.pump.reported_by_ns(now_ns), now_ns);
        self.run.apply(now_ns, Observation::Tick);
        // After the tick, which can find programs to be uninstrumented.
        self.pump.note_uninstrumented(self.run.tree.counts().uninstrumented_programs, now_ns);
        self.readers.take_exits(&mut self.run, now_ns);
        self.readers.follow_containers(&mut self.run);
    }

    /// Makes the core compute the final figures of processes that are over. All records up to `complete_ns` (CLOCK_MONOTONIC
    /// nanoseconds) must have been taken in. Before that, looks in /proc for processes that ended (`check`). If a process has left
    /// /proc, its figures can become final without its reaper's record (REAPED).
    pub(super) fn finalize(&mut self, complete_ns: u64, check: AbsenceCheck) {
        self.readers.find_absent(&mut self.run, check);
        self.run.apply_now(Observation::Finalize { complete_ns });
    }
}

/// If the records seem forged by the last count that the core has, gives it a fresh one: how many processes and threads the machine has
/// created since the run began. The core then decides. `forks_before`: how many it had created before; `None`: not known.
fn check_suspicion(run: &mut JournaledRun, root: &ProcRoot, forks_before: Option<u64>, now_ns: u64) {
    // Once forgery is established, it stays.
    if run.health.forgery.is_none() && run.suspicion(now_ns).is_some() {
        // Read only on suspicion, because /proc/stat is long on large machines.
        let made = root.forks().zip(forks_before).map(|(forks, before)| forks.saturating_sub(before));
        run.apply(now_ns, Observation::MachineForks(made));
    }
}
