//! The process connector's events of this tree, held back until the records that were written before them are read.

use std::collections::{HashSet, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::mpsc::Receiver;

use gpu_track_abi::record::Event;
use serde::{Deserialize, Serialize};

use super::connector::{Connector, KernelEvent, Members, What};
use super::kin::Kin;
use super::records::Stored;
use crate::clock;

/// The layer is given up before it takes more than this part of a core, as a divisor.
const SHARE_OF_CORE: u64 = 20;
/// Over which time that is measured.
const WINDOW_NS: u64 = 1_000_000_000;

/// How the layer fares.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectorState {
    /// Why it is not there, or no longer.
    pub absent: Option<String>,
    /// How often events were lost, since the socket's buffer was full.
    pub overruns: u64,
}

/// Reads the connector for one tree.
#[derive(Debug)]
pub struct KernelSide {
    connector: Option<Connector>,
    members: Members,
    kin: Kin,
    pid_ns: u32,
    newcomers: Receiver<u32>,
    pending: VecDeque<KernelEvent>,
    /// Who exec'd and has not spoken since, of those that were handed on last.
    unheard: HashSet<u32>,
    read: Vec<KernelEvent>,
    state: ConnectorState,
    has_proof: bool,
    window: Window,
}

/// CPU time of reading.
#[derive(Debug, Default)]
struct Window {
    since_ns: u64,
    used_ns: u64,
}

impl KernelSide {
    /// A reader for the tree of these processes, in this pid namespace. `newcomers` are others of it that other layers
    /// find; `pending` an earlier collector has read and not handed on. `has_proof` tells that one has seen that events
    /// come.
    #[must_use]
    pub fn new(
        socket: Result<OwnedFd, String>,
        known: Vec<u32>,
        kin: Kin,
        pid_ns: u32,
        newcomers: Receiver<u32>,
        pending: VecDeque<KernelEvent>,
        has_proof: bool,
    ) -> Self {
        let (connector, absent) = match socket {
            Ok(socket) => (Some(Connector::new(socket)), None),
            Err(reason) => (None, Some(reason)),
        };
        let mut members = Members::default();
        known.into_iter().for_each(|pid| members.add(pid));
        for event in &pending {
            members.take(event);
        }
        Self {
            connector,
            members,
            kin,
            pid_ns,
            newcomers,
            pending,
            unheard: HashSet::new(),
            read: Vec::new(),
            state: ConnectorState { absent, overruns: 0 },
            has_proof,
            window: Window::default(),
        }
    }

    /// Whether events come.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.connector.is_some()
    }

    /// How it fares.
    #[must_use]
    pub fn state(&self) -> &ConnectorState {
        &self.state
    }

    /// Read what has come. What is about the tree goes to `take_down` at once, since it can't be read again, and is handed
    /// on when its turn comes.
    pub fn read(&mut self, mut take_down: impl FnMut(&[KernelEvent])) {
        while let Ok(pid) = self.newcomers.try_recv() {
            self.members.add(pid);
        }
        let Some(connector) = &self.connector else { return };
        let start_ns = clock::thread_cpu_ns();
        let own = std::process::id();
        let (mut has_lost, mut has_proof) = (false, self.has_proof);
        loop {
            self.read.clear();
            let batch = connector.read(&mut self.read);
            has_lost |= batch.has_lost;
            self.read.sort_by_key(|event| event.at_ns);
            has_proof = has_proof
                || self.read.iter().any(|event| event.pid == own && matches!(event.what, What::Fork { .. }));
            self.read.retain(|event| self.members.take(event));
            take_down(&self.read);
            self.pending.extend(&self.read);
            if batch.is_last {
                break;
            }
        }
        self.state.overruns += u64::from(has_lost);
        self.has_proof = true;
        if !has_proof && !has_lost {
            self.give_up("the kernel sends no events here (not in the initial namespaces)");
            return;
        }
        self.count_cost(clock::thread_cpu_ns().saturating_sub(start_ns));
    }

    fn count_cost(&mut self, used_ns: u64) {
        let now_ns = clock::monotonic_ns();
        self.window.used_ns += used_ns;
        if self.window.used_ns > WINDOW_NS / SHARE_OF_CORE {
            self.give_up(
                "given up: the machine starts so many processes that reading it would cost 5% of a core",
            );
        }
        if now_ns.saturating_sub(self.window.since_ns) >= WINDOW_NS {
            self.window = Window { since_ns: now_ns, used_ns: 0 };
            self.members.forget_gone(now_ns);
        }
    }

    fn give_up(&mut self, reason: &str) {
        if let Some(connector) = self.connector.take() {
            connector.end();
            self.state.absent = Some(reason.into());
        }
    }

    /// End the subscription.
    pub fn end(&mut self) {
        if let Some(connector) = self.connector.take() {
            connector.end();
        }
    }

    /// The next event that happened before `at_ns`.
    pub fn next_before(&mut self, at_ns: u64) -> Option<KernelEvent> {
        if self.pending.front()?.at_ns > at_ns {
            return None;
        }
        let event = self.pending.pop_front()?;
        match event.what {
            What::Exec => self.unheard.insert(event.pid),
            What::Fork { .. } | What::Exit { .. } => self.unheard.remove(&event.pid),
        };
        Some(event)
    }

    /// How many events were not handed on yet.
    #[must_use]
    pub fn held_back(&self) -> usize {
        self.pending.len()
    }

    /// Whether one of those who exec'd since this was last asked has not spoken: it may be gone soon.
    pub fn take_unheard(&mut self) -> bool {
        let is_there = !self.unheard.is_empty();
        self.unheard.clear();
        is_there
    }

    /// A process of this pid namespace spoke. If the kernel did not tell of it (events were lost, or another brought it
    /// into the session), it is one of the tree if /proc says so, too.
    pub fn hear(&mut self, record: &Stored) {
        let pid = record.origin.pid;
        if self.connector.is_some()
            && record.origin.pid_ns == self.pid_ns
            && matches!(record.event, Event::Start { .. } | Event::Fork { .. })
        {
            let is_known = |pid| self.members.contains(pid);
            if !is_known(pid) && self.kin.is_kin(pid, is_known) == Some(true) {
                self.members.add(pid);
            }
            self.unheard.remove(&pid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_earlier_collector_held_back_is_handed_on_once_and_its_processes_are_members() {
        let fork = |at_ns, parent, pid| KernelEvent { at_ns, pid, what: What::Fork { parent } };
        let held_back = [fork(5, 1, 2), fork(9, 2, 3)];
        let (_newcomers, receiver) = std::sync::mpsc::channel();
        let kin = Kin::new(crate::proc_fs::ProcRoot::default(), std::path::Path::new("segment"), 1);
        let mut kernel =
            KernelSide::new(Err("none".into()), vec![1], kin, 10, receiver, held_back.into(), true);
        assert!(kernel.members.take(&fork(10, 3, 4)), "a child of one of them");
        assert_eq!((kernel.held_back(), kernel.next_before(4)), (2, None));
        assert_eq!((kernel.next_before(5), kernel.next_before(5)), (Some(held_back[0]), None));
        assert_eq!((kernel.next_before(9), kernel.held_back()), (Some(held_back[1]), 0));
    }
}
