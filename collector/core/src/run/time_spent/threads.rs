//! What the threads of the commands do at a reading, and which of them decides what the run does.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::ByState;
use crate::model::report::TimeState;
use crate::model::thread_state::ThreadState;

/// The threads of each command.
pub(super) type ByCommand = FxHashMap<Arc<str>, Threads>;

/// What the threads of a command do at a reading.
#[derive(Debug, Default)]
pub(super) struct Threads {
    pub ready: u64,
    pub child: u64,
    pub child_or_events: u64,
    pub inner_pipe: u64,
    pub local_socket: u64,
    pub pooled: u64,
    pub by_state: ByState,
    /// How long they waited for a core since the reading before, nanoseconds.
    pub waited_ns: u64,
}

impl Threads {
    pub(super) fn add(&mut self, state: ThreadState, count: u32) {
        let count = u64::from(count);
        match state {
            ThreadState::Ready => self.ready += count,
            ThreadState::Child => self.child += count,
            ThreadState::ChildOrEvents => self.child_or_events += count,
            ThreadState::InnerPipe => self.inner_pipe += count,
            ThreadState::LocalSocket => self.local_socket += count,
            ThreadState::Pooled => self.pooled += count,
            ThreadState::In(state) => self.by_state[state as usize] += count,
        }
    }

    /// How many there are.
    pub(super) fn count(&self) -> u64 {
        self.ready
            + self.child
            + self.child_or_events
            + self.inner_pipe
            + self.local_socket
            + self.pooled
            + self.by_state.iter().sum::<u64>()
    }
}

/// The state that the tree is in while all threads are blocked, and how many threads each command has in it.
pub(super) fn deciding(by_command: &ByCommand) -> (TimeState, Vec<(Arc<str>, u64)>) {
    let holders = |count: &dyn Fn(&Threads) -> u64| -> Vec<(Arc<str>, u64)> {
        let mut holders: Vec<_> =
            by_command.iter().map(|(name, threads)| (Arc::clone(name), count(threads))).collect();
        holders.retain(|(_, count)| *count > 0);
        // In an order of its own, so that a replay gives the same.
        holders.sort_unstable();
        holders
    };
    let known = TimeState::ALL.into_iter().filter(|state| *state != TimeState::Unknown);
    for state in known {
        let in_state = holders(&|threads| threads.by_state[state as usize]);
        if !in_state.is_empty() {
            return (state, in_state);
        }
    }
    // The other end of a local socket is not of the run, or it waits itself. Then come those that may wait for a child, if no child does
    // anything, and threads of a pool that wait for nobody else.
    let on_sockets = holders(&|threads| threads.local_socket);
    if !on_sockets.is_empty() {
        return (TimeState::Network, on_sockets);
    }
    let polling = holders(&|threads| threads.child_or_events);
    if !polling.is_empty() {
        return (TimeState::Events, polling);
    }
    let pooled = holders(&|threads| threads.pooled);
    if !pooled.is_empty() {
        return (TimeState::Lock, pooled);
    }
    (TimeState::Unknown, holders(&|threads| threads.by_state[TimeState::Unknown as usize]))
}
