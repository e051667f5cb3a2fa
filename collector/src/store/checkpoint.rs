//! Checkpoints: when the run state is saved, and how a collector resumes from the state of a killed one.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::model::observation::Observation;
use crate::model::record_or_event::{Finding, ReadUpTo};
use crate::run::RunState;
use crate::run::outbox::Outbox;
use crate::store::state_file::StateFile;
use crate::sys::clock;
use crate::sys::segment::Segment;

/// The time to the next checkpoint is at least this many times the CPU time of the last one. So checkpoints take at most 1/200 of a
/// core.
const TIMES_COST: u64 = 200;
/// Shortest time between two checkpoints.
const SHORTEST_NS: u64 = 100_000_000;
/// With more journal entries, a checkpoint is saved at once, to release their space.
const MAX_IN_JOURNAL: u64 = 16_384;

/// Loads the newest snapshot, and applies the journal and the kept items of the outbox to it. Without a snapshot, does so with a
/// `new` state. Returns the snapshot's sequence number (0: there is none), and the run state.
///
/// If records were read before and neither snapshot nor journal has them, the state counts as lost. Reading then continues at the
/// records of `segment` that are still there. Without a segment, such a loss can't be seen. `now_ns`: when the findings of the
/// journal are applied, CLOCK_MONOTONIC nanoseconds.
pub(crate) fn load(
    state: &StateFile,
    segment: Option<&Segment>,
    now_ns: u64,
    new: impl FnOnce() -> Box<RunState>,
) -> (u64, Box<RunState>) {
    let (sequence, mut run_state) = state.load().unwrap_or_else(|| (0, new()));
    // The snapshot includes the first `found.count` entries of the journal.
    let journal = state.journal(run_state.found.count);
    let findings: Vec<_> = journal.iter().map_while(Finding::of_entry).collect();
    let read = segment.map_or_else(ReadUpTo::default, first_unread);
    run_state.health.is_state_lost |= sequence == 0 && findings.is_empty() && read.position > 0;
    restore_outgoing(state, &mut run_state.samples.outbox);
    if run_state.health.is_state_lost {
        run_state.found = read;
    } else {
        run_state.apply(now_ns, &Observation::Findings(findings));
    }
    (sequence, run_state)
}

/// Restores the items of the outbox that were kept since the snapshot.
fn restore_outgoing(state: &StateFile, outbox: &mut Outbox) {
    let (entries, end) = state.read_outgoing(outbox.kept_at);
    outbox.restore(entries.iter().map_while(|entry| postcard::from_bytes(entry).ok()));
    outbox.kept_at = end;
}

/// Where reading continues if it is unknown what was read: at the records that are still there.
fn first_unread(segment: &Segment) -> ReadUpTo {
    let position = segment.header().tail.0.load(Ordering::Relaxed);
    ReadUpTo { position, overflow: segment.appended(), ..ReadUpTo::default() }
}

/// Saves the run state to the state file.
#[derive(Debug)]
pub(crate) struct CheckpointWriter {
    state: Arc<StateFile>,
    sequence: u64,
    /// How many findings (event records and connector events) had been applied when the last snapshot was saved.
    saved: u64,
    /// The earliest time of the next snapshot, CLOCK_MONOTONIC nanoseconds.
    next_ns: u64,
    /// Items of the outbox, which wait for the sinks, are in the state file if they come before this number.
    kept: u64,
    /// How many events of the run (such as alerts) the sinks had got at the last [`Self::save_if_happened`].
    happened: u64,
}

impl CheckpointWriter {
    /// Makes a writer, and loads the run state as [`load`] does. `is_replacement`: an earlier collector was killed, so the run state
    /// is told that it goes on.
    pub(crate) fn resume(
        state: Arc<StateFile>,
        segment: &Segment,
        is_replacement: bool,
        now_ns: u64,
        new: impl FnOnce() -> Box<RunState>,
    ) -> (Self, Box<RunState>) {
        let (sequence, mut run_state) = load(&state, Some(segment), now_ns, new);
        if is_replacement {
            run_state.resume(now_ns);
        }
        let saved = run_state.found.count;
        let kept = run_state.samples.outbox.end();
        let happened = run_state.happened();
        (Self { state, sequence, saved, next_ns: 0, kept, happened }, run_state)
    }

    pub(crate) fn state(&self) -> Arc<StateFile> {
        Arc::clone(&self.state)
    }

    /// Writes the new items of the outbox to the state file. Called before the sinks get them, so that the next collector knows
    /// all that a sink has. If there is no space, discards the content of the state file.
    pub(crate) fn keep(&mut self, outbox: &mut Outbox) {
        // Where the next item goes in the state file. `kept` is the number of that item.
        let mut at = outbox.kept_at;
        for (_, item) in outbox.since(self.kept) {
            // If there was no space, nothing is kept, and the next collector reports the loss.
            if self.state.is_discarded() {
                break;
            }
            let written = postcard::to_stdvec(item).map_err(io::Error::other);
            match written.and_then(|entry| self.state.write_outgoing(at, &entry)) {
                Ok(next) => at = next,
                Err(_) => self.state.discard(),
            }
        }
        (outbox.kept_at, self.kept) = (at, outbox.end());
    }

    /// Saves the run state if an interval is over and the last checkpoint is long enough ago, or if the journal is long.
    /// `is_interval_over`: the sample of an interval was just taken.
    pub(crate) fn save_if_due(&mut self, run_state: &RunState, is_interval_over: bool) {
        let is_due = is_interval_over && clock::monotonic_ns() >= self.next_ns;
        let in_journal = run_state.found.count.saturating_sub(self.saved);
        if is_due || in_journal > MAX_IN_JOURNAL {
            self.save(run_state);
        }
    }

    /// Saves the run state at once if the sinks got new events of the run, because the next collector must not decide them again.
    /// Such events are rare.
    pub(crate) fn save_if_happened(&mut self, run_state: &RunState) {
        let happened = run_state.happened();
        if happened != self.happened {
            self.happened = happened;
            self.save(run_state);
        }
    }

    /// Saves the run state, releases the space of the outbox items that it includes, and plans the next checkpoint. If there is no
    /// space, discards the content of the state file.
    fn save(&mut self, run_state: &RunState) {
        if self.state.is_discarded() {
            return;
        }
        let start = clock::thread_cpu_ns();
        self.sequence += 1;
        if self.state.save(self.sequence, &run_state.found, run_state).is_err() {
            self.state.discard();
        }
        self.state.release_outgoing(run_state.samples.outbox.kept_at);
        self.saved = run_state.found.count;
        let cost_ns = clock::thread_cpu_ns().saturating_sub(start);
        let wait_ns = cost_ns.saturating_mul(TIMES_COST).max(SHORTEST_NS);
        self.next_ns = clock::monotonic_ns().saturating_add(wait_ns);
    }
}
