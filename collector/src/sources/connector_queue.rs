//! The process connector's events of this tree, held back until the records that were written before them are read.

use std::collections::{HashMap, HashSet, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::mpsc::Receiver;

use gpu_track_abi::record::Event;

use super::connector::{Connector, Members};
use super::membership::Membership;
use crate::model::finding::{AbsenceReason, KernelEvent, StoredRecord, What};
use crate::sys::clock;

/// A program that carries the shim has mostly spoken so soon after its exec (half a millisecond by itself). To look at it in
/// /proc before costs it more than all else that we do: while it is being loaded, and again when it ends.
pub const START_GRACE_NS: u64 = 3_000_000;
/// The layer is given up before other people's processes take more than this part of a core, as a divisor. What the tree's
/// own cost is what is to be known.
const SHARE_OF_CORE: u64 = 20;
/// Over which time that is measured.
const WINDOW_NS: u64 = 1_000_000_000;
/// Who is gone is looked for this often.
const GONE_NS: u64 = 200_000_000;

/// Reads the connector for one tree.
#[derive(Debug)]
pub struct ConnectorQueue {
    connector: Option<Connector>,
    members: Members,
    membership: Membership,
    pid_ns: u32,
    newcomers: Receiver<u32>,
    pending: VecDeque<KernelEvent>,
    /// Who exec'd, when (CLOCK_MONOTONIC, nanoseconds), and has not spoken since, as far as nobody was told.
    unheard: HashMap<u32, u64>,
    /// Who was made, or exec'd, and has not spoken since.
    mute: HashSet<u32>,
    /// One of those has ended, and nobody was told.
    has_mute_end: bool,
    read: Vec<KernelEvent>,
    has_proof: bool,
    /// So many events were told to be lost.
    dropped: u32,
    /// An earlier collector may have been killed after it heard that more were, and before it told.
    may_have_dropped_more: bool,
    window: Window,
    /// Who was gone before the last reading: nothing that they did is unread at the next one.
    gone: Vec<(u32, u64)>,
    gone_at_ns: u64,
}

/// CPU time of reading what is not about the tree.
#[derive(Debug, Default)]
struct Window {
    since_ns: u64,
    used_ns: u64,
}

/// What an earlier collector left of the layer.
#[derive(Debug, Default)]
pub struct Earlier {
    /// What it has read and not handed on.
    pub pending: VecDeque<KernelEvent>,
    /// It has seen that events come.
    pub has_proof: bool,
    /// How many it told to be lost.
    pub dropped: u32,
}

impl ConnectorQueue {
    /// A reader for the tree of these members, in this pid namespace. `newcomers` are others of it that other layers
    /// find.
    #[must_use]
    pub fn new(
        socket: Option<OwnedFd>,
        mut members: Members,
        membership: Membership,
        pid_ns: u32,
        newcomers: Receiver<u32>,
        earlier: Earlier,
    ) -> Self {
        let Earlier { pending, has_proof, dropped } = earlier;
        for event in &pending {
            members.take(event);
        }
        let last = pending.iter().rev().find_map(|event| match event.what {
            What::Lost { dropped } => Some(dropped),
            _ => None,
        });
        let dropped = last.unwrap_or(dropped);
        let is_given_up = pending.iter().any(|event| matches!(event.what, What::GivenUp(_)));
        Self {
            connector: socket.filter(|_| !is_given_up).map(Connector::new),
            members,
            membership,
            pid_ns,
            newcomers,
            pending,
            unheard: HashMap::new(),
            mute: HashSet::new(),
            has_mute_end: false,
            read: Vec::new(),
            has_proof,
            dropped,
            may_have_dropped_more: true,
            window: Window::default(),
            gone: Vec::new(),
            gone_at_ns: 0,
        }
    }

    /// Whether events come.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.connector.is_some()
    }

    /// Read what has come. What is about the tree goes to `take_down` at once, since it can't be read again, and is handed
    /// on when its turn comes.
    pub fn read(&mut self, mut take_down: impl FnMut(&[KernelEvent])) {
        while let Ok(pid) = self.newcomers.try_recv() {
            self.members.add(pid);
        }
        self.forget_gone();
        let Some(connector) = &self.connector else { return };
        let start_ns = clock::thread_cpu_ns();
        let own = std::process::id();
        let (mut all, mut ours) = (0, 0);
        let mut has_lost = false;
        loop {
            self.read.clear();
            let batch = connector.read(&mut self.read);
            has_lost |= batch.has_lost;
            all += self.read.len();
            self.read.sort_by_key(|event| event.at_ns);
            self.has_proof |=
                self.read.iter().any(|event| event.pid == own && matches!(event.what, What::Fork { .. }));
            self.read.retain(|event| self.members.take(event));
            ours += self.read.len();
            take_down(&self.read);
            self.pending.extend(&self.read);
            if batch.is_last {
                break;
            }
        }
        let used_ns = clock::thread_cpu_ns().saturating_sub(start_ns);
        if has_lost || self.may_have_dropped_more {
            let dropped = connector.dropped();
            has_lost |= dropped != self.dropped;
            (self.dropped, self.may_have_dropped_more) = (dropped, false);
            if has_lost {
                self.note(What::Lost { dropped }, &mut take_down);
            }
        }
        // Where some were lost, the proof may have been among them.
        if !self.has_proof && !has_lost {
            self.give_up(AbsenceReason::NoEvents, &mut take_down);
        } else if self.count_cost(used_ns * (all - ours) as u64 / all.max(1) as u64) {
            self.give_up(AbsenceReason::Cost, &mut take_down);
        }
        self.has_proof = true;
    }

    /// Count what reading took for others than the tree. True if that is too much.
    fn count_cost(&mut self, used_ns: u64) -> bool {
        let now_ns = clock::monotonic_ns();
        self.window.used_ns += used_ns;
        let is_too_much = self.window.used_ns > WINDOW_NS / SHARE_OF_CORE;
        if now_ns.saturating_sub(self.window.since_ns) >= WINDOW_NS {
            self.window = Window { since_ns: now_ns, used_ns: 0 };
        }
        is_too_much
    }

    fn forget_gone(&mut self) {
        self.members.forget(&self.gone);
        self.gone.clear();
        let now_ns = clock::monotonic_ns();
        if now_ns.saturating_sub(self.gone_at_ns) >= GONE_NS {
            self.gone_at_ns = now_ns;
            self.gone = self.members.gone();
        }
    }

    /// What befell the layer itself takes its turn among the events.
    fn note(&mut self, what: What, take_down: &mut impl FnMut(&[KernelEvent])) {
        let event = KernelEvent { at_ns: clock::monotonic_ns(), pid: 0, what };
        take_down(&[event]);
        self.pending.push_back(event);
    }

    fn give_up(&mut self, reason: AbsenceReason, take_down: &mut impl FnMut(&[KernelEvent])) {
        self.end();
        self.note(What::GivenUp(reason), take_down);
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
            What::Exec => {
                self.unheard.insert(event.pid, event.at_ns);
                self.mute.insert(event.pid);
            }
            What::Fork { .. } => {
                self.unheard.remove(&event.pid);
                self.mute.insert(event.pid);
            }
            What::Exit { .. } => {
                self.unheard.remove(&event.pid);
                self.has_mute_end |= self.mute.remove(&event.pid);
            }
            What::Lost { .. } | What::GivenUp(_) => {}
        }
        Some(event)
    }

    /// How many events were not handed on yet.
    #[must_use]
    pub fn held_back(&self) -> usize {
        self.pending.len()
    }

    /// Whether one who does not speak must be looked at before it is gone: it exec'd by this time, or it has ended, and
    /// what is left of it tells what it used. Each is told of once.
    pub fn take_unheard(&mut self, by_ns: u64) -> bool {
        let before = self.unheard.len();
        self.unheard.retain(|_, at_ns| *at_ns > by_ns);
        std::mem::take(&mut self.has_mute_end) || self.unheard.len() < before
    }

    /// A process of this pid namespace spoke. If the kernel did not tell of it (events were lost, or another brought it
    /// into the session), it is one of the tree if /proc says so, too.
    pub fn hear(&mut self, record: &StoredRecord) {
        let pid = record.origin.pid;
        if self.connector.is_some()
            && record.origin.pid_ns == self.pid_ns
            && matches!(record.event, Event::Start { .. } | Event::Fork { .. })
        {
            let is_known = |pid| self.members.contains(pid);
            if !is_known(pid) && self.membership.is_member(pid, is_known) == Some(true) {
                self.members.add(pid);
            }
            self.unheard.remove(&pid);
            self.mute.remove(&pid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn earlier(pending: VecDeque<KernelEvent>) -> Earlier {
        Earlier { pending, has_proof: true, dropped: 0 }
    }

    #[test]
    fn what_an_earlier_collector_held_back_is_handed_on_once_and_its_processes_are_members() {
        let fork = |at_ns, parent, pid| KernelEvent { at_ns, pid, what: What::Fork { parent } };
        let held_back = [fork(5, 1, 2), fork(9, 2, 3)];
        let (_newcomers, receiver) = std::sync::mpsc::channel();
        let membership =
            Membership::new(crate::sys::proc_fs::ProcRoot::default(), std::path::Path::new("segment"), 1);
        let mut kernel = ConnectorQueue::new(
            None,
            Members::new([1], 0, None),
            membership,
            10,
            receiver,
            earlier(held_back.into()),
        );
        assert!(kernel.members.take(&fork(10, 3, 4)), "a child of one of them");
        assert_eq!((kernel.held_back(), kernel.next_before(4)), (2, None));
        assert_eq!((kernel.next_before(5), kernel.next_before(5)), (Some(held_back[0]), None));
        assert_eq!((kernel.next_before(9), kernel.held_back()), (Some(held_back[1]), 0));
    }

    #[test]
    fn who_has_not_spoken_is_told_of_once_and_not_while_he_may_be_loaded_still() {
        let execs = |at_ns, pid| KernelEvent { at_ns, pid, what: What::Exec };
        let (_newcomers, receiver) = std::sync::mpsc::channel();
        let membership =
            Membership::new(crate::sys::proc_fs::ProcRoot::default(), std::path::Path::new("segment"), 1);
        let pending = [execs(5, 2), execs(8, 3)];
        let mut kernel = ConnectorQueue::new(
            None,
            Members::new([2, 3], 0, None),
            membership,
            10,
            receiver,
            earlier(pending.into()),
        );
        while kernel.next_before(9).is_some() {}
        assert_eq!(
            [4, 5, 7, 8, 9].map(|by_ns| kernel.take_unheard(by_ns)),
            [false, true, false, true, false]
        );
        // And of his end.
        kernel.pending.push_back(KernelEvent { at_ns: 10, pid: 3, what: What::Exit { status: 0 } });
        assert!(kernel.next_before(10).is_some());
        assert_eq!([0, 0].map(|by_ns| kernel.take_unheard(by_ns)), [true, false]);
    }

    #[test]
    fn what_an_earlier_collector_heard_of_losses_and_could_not_tell_is_told() {
        let name = "what_an_earlier_collector_heard_of_losses_and_could_not_tell_is_told";
        let Ok(socket) = super::super::connector::subscribe() else {
            println!("SKIPPED {name}: no process connector here");
            return;
        };
        let fd = std::os::fd::AsRawFd::as_raw_fd(&socket);
        let has_room_for = |bytes: i32| {
            let (place, length) = ((&raw const bytes).cast(), size_of_val(&bytes) as libc::socklen_t);
            // SAFETY: the kernel reads a number that lives through the call.
            let result = unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, place, length) };
            assert_eq!(result, 0);
        };
        // A few events only.
        has_room_for(1);
        for _ in 0..20 {
            std::process::Command::new("true").status().unwrap();
        }
        // One that heard it, and was killed.
        let killed = Connector::new(socket.try_clone().unwrap());
        let mut events = Vec::new();
        let has_lost = killed.read(&mut events).has_lost;
        if events.is_empty() || killed.dropped() == 0 {
            println!("SKIPPED {name}: the kernel sends nothing here, or does not say what it dropped");
            return;
        }
        assert!(has_lost, "it is told once");
        // What the machine does meanwhile finds room, so that nothing is told again.
        has_room_for(200_000);
        let (_newcomers, receiver) = std::sync::mpsc::channel();
        let membership =
            Membership::new(crate::sys::proc_fs::ProcRoot::default(), std::path::Path::new("segment"), 1);
        let members = Members::new([1], 0, None);
        let mut kernel =
            ConnectorQueue::new(Some(socket), members, membership, 10, receiver, earlier(VecDeque::new()));
        let mut down = Vec::new();
        kernel.read(|events| down.extend(events.iter().map(|event| event.what)));
        assert!(matches!(down.last(), Some(What::Lost { dropped: 1.. })), "{down:?}");
        killed.end();
    }

    #[test]
    fn what_an_earlier_collector_has_given_up_stays_so() {
        let given_up = KernelEvent { at_ns: 5, pid: 0, what: What::GivenUp(AbsenceReason::Cost) };
        for (pending, is_active) in [(vec![], true), (vec![given_up], false)] {
            let (_newcomers, receiver) = std::sync::mpsc::channel();
            let membership =
                Membership::new(crate::sys::proc_fs::ProcRoot::default(), std::path::Path::new("segment"), 1);
            let socket = Some(std::fs::File::open("/dev/null").unwrap().into());
            let kernel = ConnectorQueue::new(
                socket,
                Members::new([1], 0, None),
                membership,
                10,
                receiver,
                earlier(pending.into()),
            );
            assert_eq!(kernel.is_active(), is_active);
        }
    }
}
