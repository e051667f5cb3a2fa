//! When the account is kept, and how a collector goes on from what a killed one has kept.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::model::finding::Finding;
use crate::model::finding::ReadUpTo;
use crate::run::RunState;
use crate::store::state_file::StateFile;
use crate::sys::clock;
use crate::sys::segment::Segment;

/// Keeping takes at most one part in this many of a core.
const SHARE: u64 = 200;
/// Nor is it worth its price more often than this.
const SHORTEST_NS: u64 = 50_000_000;
/// So many records that are in the journal only are kept early: they need room.
const MOST_IN_JOURNAL: u64 = 16_384;

/// The account as a killed collector kept it, with all that is in the journal, and the number of its last snapshot (0:
/// there is none). `segment` tells what was read by others.
pub fn load(
    state: &StateFile,
    segment: Option<&Segment>,
    now_ns: u64,
    new: impl FnOnce() -> RunState,
) -> (u64, RunState) {
    let (sequence, mut account) = state.load().unwrap_or_else(|| (0, new()));
    let journal = state.journal(account.found.count).unwrap_or_default();
    let findings: Vec<_> = journal.iter().map_while(Finding::of_entry).collect();
    let read = segment.map_or_else(ReadUpTo::default, read_by_others);
    account.is_state_lost |= sequence == 0 && findings.is_empty() && read.position > 0;
    if account.is_state_lost {
        account.found = read;
    } else {
        account.apply(&findings, now_ns);
    }
    (sequence, account)
}

/// What is behind this is all that can still be read of a segment if nobody knows what was.
fn read_by_others(segment: &Segment) -> ReadUpTo {
    let position = segment.header().tail.0.load(Ordering::Relaxed);
    ReadUpTo { position, overflow: segment.appended(), ..ReadUpTo::default() }
}

/// Keeps the account in the state file.
#[derive(Debug)]
pub struct CheckpointWriter {
    state: Arc<StateFile>,
    sequence: u64,
    kept: u64,
    next_ns: u64,
}

impl CheckpointWriter {
    /// The account that the state file holds, or a `new` one, and who will keep it. `is_replacement` tells that
    /// another collector was there before.
    pub fn resume(
        state: Arc<StateFile>,
        segment: &Segment,
        is_replacement: bool,
        now_ns: u64,
        new: impl FnOnce() -> RunState,
    ) -> (Self, RunState) {
        let (sequence, mut account) = load(&state, Some(segment), now_ns, new);
        if is_replacement {
            // What the kernel told meanwhile may be lost.
            account.tree.forget_watched();
            account.unsampled_ns += now_ns.saturating_sub(account.sampled_ns);
        }
        let kept = account.found.count;
        let checkpoint = Self { state, sequence, kept, next_ns: 0 };
        (checkpoint, account)
    }

    /// The file.
    #[must_use]
    pub fn state(&self) -> Arc<StateFile> {
        Arc::clone(&self.state)
    }

    /// Keep the account as it is now, if that is due: with each interval's sample, as often as is cheap.
    pub fn save_if_due(&mut self, account: &RunState, is_interval_over: bool) {
        let is_due = is_interval_over && clock::monotonic_ns() >= self.next_ns;
        let in_journal = account.found.count.saturating_sub(self.kept);
        if self.state.is_discarded() || !(is_due || in_journal > MOST_IN_JOURNAL) {
            return;
        }
        let start = clock::thread_cpu_ns();
        self.sequence += 1;
        if self.state.save(self.sequence, &account.found, account).is_err() {
            self.state.discard();
        }
        self.kept = account.found.count;
        let cost = clock::thread_cpu_ns().saturating_sub(start);
        self.next_ns = clock::monotonic_ns().saturating_add(cost.saturating_mul(SHARE).max(SHORTEST_NS));
    }
}
