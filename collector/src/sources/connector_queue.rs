//! Holds the process connector's events of one tree until the records that were written before them are read. So the tree sees
//! records and events in one order of time.
//!
//! - A program counts as uninstrumented if it exec'd and wrote no START record in time, or ended without one. Then only what
//!   /proc showed by that time is known of the program.
//! - A child that only a scan of /proc shows is added once all records and events up to its sighting are applied, if it is still
//!   unknown. A scan can be ahead of the events, and an earlier process may have had the pid.
//! - That events were lost, or that the connector was given up, is queued as an event of its own.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::mpsc::Receiver;

use gpu_track_abi::record::Event;

use super::connector::{Connector, Members};
use super::membership::Membership;
use crate::model::kernel_event::{AbsenceReason, KernelEvent, What};
use crate::model::record_or_event::StoredRecord;
use crate::sys::clock::{self, Timer};

/// How long a START or FORK record may take after the kernel's event before the program is read from /proc.
///
/// The shim writes it after about 0.5 ms. To read /proc earlier costs more than all other work on the process: once
/// while the program is loaded, and again at its end.
pub(crate) const START_GRACE_NS: u64 = 3_000_000;
/// The connector is given up when reading events of other processes takes more than one part in this many of a core. Events of the
/// tree do not count: they are what the user asked for.
const COST_DIVISOR: u64 = 20;
/// Time over which that is measured.
const WINDOW_NS: u64 = 1_000_000_000;
/// How often ended processes are removed from the members.
const REMOVE_ENDED_NS: u64 = 200_000_000;

/// Reads the connector for one tree.
#[derive(Debug)]
pub(crate) struct ConnectorQueue {
    /// `None`: there is no connector, or it was given up or ended.
    connector: Option<Connector>,
    /// The processes of the tree, by pid: events of others are dropped.
    members: Members,
    /// Asks /proc whether a process is of the tree.
    membership: Membership,
    /// The collector's pid namespace, which the connector's pids are of.
    pid_ns: u32,
    /// Receives the pids of members that scans of /proc find.
    newcomers: Receiver<u32>,
    /// Events about the tree that were read and not passed on, in order of time.
    pending: VecDeque<KernelEvent>,
    unreported: Unreported,
    /// Buffer of one read.
    read: Vec<KernelEvent>,
    /// Events are known to arrive. Also set after the first read of the run, the only one that checks this.
    has_proof: bool,
    /// Number of lost events in the last [`What::Lost`].
    dropped: u32,
    /// An earlier collector may have been killed after the kernel reported a loss to it, before it journaled the loss.
    may_have_dropped_more: bool,
    cost: Cost,
    /// Members that had ended at the last look, by pid and time of the exit event. The read after that look has their last
    /// events.
    ended: Vec<(u32, u64)>,
    /// When to look for ended members again.
    ended_timer: Timer,
}

/// CPU time of reading events that are not about the tree.
#[derive(Debug, Default)]
struct Cost {
    /// Begin of the current window, CLOCK_MONOTONIC nanoseconds.
    since_ns: u64,
    /// CPU time in it, nanoseconds.
    used_ns: u64,
}

/// What one read of the socket gave.
struct Received {
    /// Number of events of the whole machine.
    all: usize,
    /// Number of those that are about the tree.
    ours: usize,
    /// The socket's buffer was full: events are lost.
    has_lost: bool,
}

impl Cost {
    /// Adds CPU time, nanoseconds. Returns whether the sum of the current window is more than the window divided by
    /// [`COST_DIVISOR`]. Begins a new window after [`WINDOW_NS`]; if nothing was read for a while, the window is longer. `now_ns`:
    /// CLOCK_MONOTONIC.
    fn is_too_much_with(&mut self, used_ns: u64, now_ns: u64) -> bool {
        self.used_ns += used_ns;
        let elapsed_ns = now_ns.saturating_sub(self.since_ns);
        let is_too_much = self.used_ns > elapsed_ns.max(WINDOW_NS) / COST_DIVISOR;
        if elapsed_ns >= WINDOW_NS {
            *self = Self { since_ns: now_ns, used_ns: 0 };
        }
        is_too_much
    }
}

/// Processes without a record of their own since the kernel reported their fork or exec.
#[derive(Debug, Default)]
struct Unreported {
    processes: HashSet<u32>,
    /// Those that no call of [`Self::take`] has counted, with the time of their last fork or exec (CLOCK_MONOTONIC, nanoseconds).
    new: HashMap<u32, u64>,
    /// One of the processes has ended since the last [`Self::take`].
    has_ended: bool,
}

impl Unreported {
    /// Takes in an event. Lists a process that was forked or exec'd. Removes one that exits; if it was still listed, notes for
    /// [`Self::take`] that it ended without a record.
    fn note_event(&mut self, event: &KernelEvent) {
        let pid = event.pid;
        match event.what {
            What::Exec | What::Fork { .. } => {
                self.new.insert(pid, event.at_ns);
                self.processes.insert(pid);
            }
            What::Exit { .. } => {
                self.new.remove(&pid);
                self.has_ended |= self.processes.remove(&pid);
            }
            What::Lost { .. } | What::GivenUp(_) => {}
        }
    }

    /// Takes a process that has written a record off the list.
    fn note_record(&mut self, pid: u32) {
        self.new.remove(&pid);
        self.processes.remove(&pid);
    }

    /// Returns whether /proc must be looked at: a process was forked or exec'd by `by_ns` (CLOCK_MONOTONIC nanoseconds) and has
    /// written no record, or one ended without. Each counts at one call only.
    fn take(&mut self, by_ns: u64) -> bool {
        let before = self.new.len();
        self.new.retain(|_, at_ns| *at_ns > by_ns);
        std::mem::take(&mut self.has_ended) || self.new.len() < before
    }
}

/// The connector's state when an earlier collector was killed.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    /// Events that were read but not passed on.
    pub(crate) pending: VecDeque<KernelEvent>,
    /// Whether events are known to arrive.
    pub(crate) has_proof: bool,
    /// Number of lost events in the last [`What::Lost`] that was passed on.
    pub(crate) dropped: u32,
}

impl ConnectorQueue {
    /// Makes a queue for the tree of these `members`. `connector` is `None` if the kernel offers none. `backlog` is what an earlier
    /// collector left; a run's first collector has an empty one. The other arguments are as the fields.
    pub(crate) fn new(
        connector: Option<Connector>,
        mut members: Members,
        membership: Membership,
        pid_ns: u32,
        newcomers: Receiver<u32>,
        backlog: Backlog,
    ) -> Self {
        let Backlog { pending, has_proof, dropped } = backlog;
        // Events change the members when they are read. An earlier collector read these, so `members` lacks their changes.
        for event in &pending {
            members.take(event);
        }
        // The last loss among the pending events is newer than the last one that was passed on.
        let last_dropped = pending.iter().rev().find_map(|event| match event.what {
            What::Lost { dropped } => Some(dropped),
            _ => None,
        });
        let dropped = last_dropped.unwrap_or(dropped);
        let is_given_up = pending.iter().any(|event| matches!(event.what, What::GivenUp(_)));
        Self {
            connector: connector.filter(|_| !is_given_up),
            members,
            membership,
            pid_ns,
            newcomers,
            pending,
            unreported: Unreported::default(),
            read: Vec::new(),
            has_proof,
            dropped,
            may_have_dropped_more: true,
            cost: Cost::default(),
            ended: Vec::new(),
            ended_timer: Timer::default(),
        }
    }

    /// Whether the connector is read.
    pub(crate) fn is_active(&self) -> bool {
        self.connector.is_some()
    }

    /// Updates the members: adds those that scans of /proc found, and removes ended ones. Then reads the events that wait. Events
    /// about the tree go to `journal` at once, since they cannot be read again, and stay in the queue. Gives the connector up if the
    /// first read shows that no events arrive, or if events of other processes cost too much. Returns the number of events, those of
    /// other processes included.
    pub(crate) fn read(&mut self, mut journal: impl FnMut(&[KernelEvent])) -> usize {
        while let Ok(pid) = self.newcomers.try_recv() {
            self.members.add(pid);
        }
        self.remove_ended();
        let start_ns = clock::thread_cpu_ns();
        let Some(Received { all, ours, has_lost }) = self.receive(&mut journal) else { return 0 };
        let used_ns = clock::thread_cpu_ns().saturating_sub(start_ns);
        let has_lost = self.note_loss(has_lost, &mut journal);
        // Each event counts as equally expensive.
        let used_for_others_ns = used_ns * (all - ours) as u64 / all.max(1) as u64;
        // The fork of this collector proves that events arrive. If events were lost, that fork may have been among them.
        if !self.has_proof && !has_lost {
            self.give_up(AbsenceReason::NoEvents, &mut journal);
        } else if self.cost.is_too_much_with(used_for_others_ns, clock::monotonic_ns()) {
            self.give_up(AbsenceReason::Cost, &mut journal);
        }
        // The proof is asked for once, at the first read.
        self.has_proof = true;
        all
    }

    /// Receives all events that wait, updates the members by them, and journals and queues those about the tree. The fork of this
    /// collector is the proof that events arrive. `None`: there is no connector.
    fn receive(&mut self, journal: &mut impl FnMut(&[KernelEvent])) -> Option<Received> {
        let connector = self.connector.as_mut()?;
        let own = std::process::id();
        let mut received = Received { all: 0, ours: 0, has_lost: false };
        loop {
            self.read.clear();
            let batch = connector.read(&mut self.read);
            received.has_lost |= batch.has_lost;
            received.all += self.read.len();
            self.read.sort_by_key(|event| event.at_ns);
            self.has_proof |=
                self.read.iter().any(|event| event.pid == own && matches!(event.what, What::Fork { .. }));
            if batch.is_leftover {
                // A collector that was killed before it freed the inbox may have journaled them.
                self.read.retain(|event| !self.pending.contains(event));
            }
            self.read.retain(|event| self.members.take(event));
            received.ours += self.read.len();
            journal(&self.read);
            connector.free();
            self.pending.extend(&self.read);
            if batch.is_last {
                return Some(received);
            }
        }
    }

    /// Queues that events were lost, if they were. `has_lost`: the kernel has just reported a loss. Returns whether events were
    /// lost, counting losses that the kernel reported only to an earlier collector.
    fn note_loss(&mut self, has_lost: bool, journal: &mut impl FnMut(&[KernelEvent])) -> bool {
        if !has_lost && !self.may_have_dropped_more {
            return false;
        }
        let dropped = self.connector.as_ref().map_or(self.dropped, Connector::dropped);
        let has_lost = has_lost || dropped != self.dropped;
        (self.dropped, self.may_have_dropped_more) = (dropped, false);
        if has_lost {
            self.push(What::Lost { dropped }, journal);
        }
        has_lost
    }

    /// Removes the members that had ended at the last look: their last events were read since. Looks for ended members again
    /// if a look is due.
    fn remove_ended(&mut self) {
        self.members.forget(&self.ended);
        self.ended.clear();
        if self.ended_timer.is_due(clock::monotonic_ns(), REMOVE_ENDED_NS) {
            self.ended = self.members.gone();
        }
    }

    /// Queues an event about the connector itself, after it went to `journal`.
    fn push(&mut self, what: What, journal: &mut impl FnMut(&[KernelEvent])) {
        let event = KernelEvent { at_ns: clock::monotonic_ns(), pid: 0, what };
        journal(&[event]);
        self.pending.push_back(event);
    }

    /// Ends the subscription, and queues why.
    fn give_up(&mut self, reason: AbsenceReason, journal: &mut impl FnMut(&[KernelEvent])) {
        self.end();
        self.push(What::GivenUp(reason), journal);
    }

    /// Ends the subscription, so that the kernel sends no more events. What is queued stays.
    pub(crate) fn end(&mut self) {
        if let Some(connector) = self.connector.take() {
            connector.end();
        }
    }

    /// Takes the oldest event off the queue, if it happened by `at_ns` (CLOCK_MONOTONIC nanoseconds). Notes it for
    /// [`Self::take_unreported`].
    pub(crate) fn next_by(&mut self, at_ns: u64) -> Option<KernelEvent> {
        if self.pending.front()?.at_ns > at_ns {
            return None;
        }
        let event = self.pending.pop_front()?;
        self.unreported.note_event(&event);
        Some(event)
    }

    /// Number of events in the queue.
    pub(crate) fn len(&self) -> usize {
        self.pending.len()
    }

    /// Returns whether a process must be read from /proc soon. The process was forked or exec'd by `by_ns` (CLOCK_MONOTONIC
    /// nanoseconds) and has written no record since. Or it ended without a record, and its zombie shows its CPU time. Each
    /// process counts at one call only.
    pub(crate) fn take_unreported(&mut self, by_ns: u64) -> bool {
        self.unreported.take(by_ns)
    }

    /// Takes in that a process wrote a record. After START or FORK, the process need not be read from /proc any more. If its fork
    /// event was lost, or it joined the session from outside, it is no member yet. It becomes one if /proc shows that it belongs to
    /// the tree, so that its events count.
    ///
    /// Other records change nothing. Nor do those of other pid namespaces: the connector has pids of the collector's namespace.
    pub(crate) fn note_record(&mut self, record: &StoredRecord) {
        let pid = record.origin.pid;
        let begins_image = matches!(record.event, Event::Start { .. } | Event::Fork { .. });
        if self.connector.is_none() || record.origin.pid_ns != self.pid_ns || !begins_image {
            return;
        }
        let is_ancestor = |pid| self.members.is_ancestor(pid);
        if !self.members.contains(pid) && self.membership.is_member(pid, is_ancestor) == Some(true) {
            self.members.add(pid);
        }
        self.unreported.note_record(pid);
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixDatagram;

    use super::super::connector::tests::message;
    use super::super::connector::{Launcher, Subscription, subscribe};
    use super::super::inbox;
    use super::*;
    use crate::sys::proc_fs::ProcRoot;

    fn connector(socket: impl Into<OwnedFd>, inbox: &OwnedFd) -> Connector {
        let inbox = inbox.try_clone().unwrap();
        Connector::open(Subscription { socket: socket.into(), inbox }).unwrap()
    }

    fn queue(
        connector: Option<Connector>,
        members: impl IntoIterator<Item = u32>,
        pending: Vec<KernelEvent>,
    ) -> ConnectorQueue {
        let (_, newcomers) = std::sync::mpsc::channel();
        let membership = Membership::new(ProcRoot::default(), None, 1);
        let backlog = Backlog { pending: pending.into(), has_proof: true, dropped: 0 };
        ConnectorQueue::new(
            connector,
            Members::new(members, 0, Launcher::default()),
            membership,
            10,
            newcomers,
            backlog,
        )
    }

    // Requirement: FAULT-17
    #[test]
    fn events_in_the_inbox_of_a_killed_collector_come_once() {
        let fork = |at_ns, pid| KernelEvent { at_ns, pid, what: What::Fork { parent: 1 } };
        let all = [fork(5, 2), fork(6, 3), fork(7, 4)];
        // Killed before the journal was written, while it was, and before the inbox was free.
        for journaled in 0..=2 {
            let (sender, receiver) = UnixDatagram::pair().unwrap();
            receiver.set_nonblocking(true).unwrap();
            let inbox = inbox::create().unwrap();
            let mut killed = connector(receiver.try_clone().unwrap(), &inbox);
            for event in &all[..2] {
                sender.send(&message(event)).unwrap();
            }
            let mut read = Vec::new();
            assert!(killed.read(&mut read).is_leftover && read.is_empty());
            assert!(killed.read(&mut read).is_last);
            assert_eq!(read, all[..2]);
            drop(killed);
            sender.send(&message(&all[2])).unwrap();
            let journaled = &all[..journaled];
            let mut next = queue(Some(connector(receiver, &inbox)), [1], journaled.into());
            let mut now_journaled = journaled.to_vec();
            next.read(|events| now_journaled.extend(events));
            assert_eq!(now_journaled, all);
            let passed_on: Vec<_> = std::iter::from_fn(|| next.next_by(9)).collect();
            assert_eq!(passed_on, all);
            let mut later = connector(UnixDatagram::unbound().unwrap(), &inbox);
            assert!(later.read(&mut read).is_leftover);
            assert_eq!(read.len(), 2, "the inbox is free");
        }
    }

    #[test]
    fn backlog_is_passed_on_once_and_adds_members() {
        let fork = |at_ns, parent, pid| KernelEvent { at_ns, pid, what: What::Fork { parent } };
        let pending = [fork(5, 1, 2), fork(9, 2, 3)];
        let mut queue = queue(None, [1], pending.into());
        assert!(queue.members.take(&fork(10, 3, 4)), "a child of one of them");
        assert_eq!((queue.len(), queue.next_by(4)), (2, None));
        assert_eq!((queue.next_by(5), queue.next_by(5)), (Some(pending[0]), None));
        assert_eq!((queue.next_by(9), queue.len()), (Some(pending[1]), 0));
    }

    #[test]
    fn unreported_fork_or_exec_counts_once_and_only_after_the_grace_time() {
        let fork = KernelEvent { at_ns: 5, pid: 2, what: What::Fork { parent: 3 } };
        let exec = KernelEvent { at_ns: 8, pid: 3, what: What::Exec };
        let mut queue = queue(None, [2, 3], vec![fork, exec]);
        while queue.next_by(9).is_some() {}
        assert_eq!(
            [4, 5, 7, 8, 9].map(|by_ns| queue.take_unreported(by_ns)),
            [false, true, false, true, false]
        );
        // So does its exit.
        queue.pending.push_back(KernelEvent { at_ns: 10, pid: 3, what: What::Exit { status: 0 } });
        assert!(queue.next_by(10).is_some());
        assert_eq!([0, 0].map(|by_ns| queue.take_unreported(by_ns)), [true, false]);
    }

    #[test]
    fn loss_reported_to_a_killed_collector_is_queued() {
        let name = "loss_reported_to_a_killed_collector_is_queued";
        let Ok(Subscription { socket, inbox }) = subscribe() else {
            println!("SKIPPED {name}: no process connector here");
            return;
        };
        let fd = std::os::fd::AsRawFd::as_raw_fd(&socket);
        let set_buffer = |bytes: i32| {
            let (place, length) = ((&raw const bytes).cast(), size_of_val(&bytes) as libc::socklen_t);
            // SAFETY: the kernel reads a number that lives through the call.
            let result = unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, place, length) };
            assert_eq!(result, 0);
        };
        // Room for a few events only.
        set_buffer(1);
        for _ in 0..20 {
            std::process::Command::new("true").status().unwrap();
        }
        // The killed collector reads ENOBUFS.
        let mut killed = connector(socket.try_clone().unwrap(), &inbox);
        let mut events = Vec::new();
        killed.read(&mut events);
        let has_lost = killed.read(&mut events).has_lost;
        if events.is_empty() || killed.dropped() == 0 {
            println!("SKIPPED {name}: the kernel sends no events here, or does not count lost ones");
            return;
        }
        assert!(has_lost, "ENOBUFS comes once");
        // Room for other processes' events, so that there is no second ENOBUFS.
        set_buffer(200_000);
        let mut queue = queue(Some(connector(socket, &inbox)), [1], Vec::new());
        let mut journaled = Vec::new();
        queue.read(|events| journaled.extend(events.iter().map(|event| event.what)));
        assert!(matches!(journaled.last(), Some(What::Lost { dropped: 1.. })), "{journaled:?}");
        killed.end();
    }

    #[test]
    fn connector_costs_too_much_by_the_time_that_it_was_read_for() {
        let second_ns = 1_000_000_000;
        let start_ns = 1_000 * second_ns;
        let mut cost = Cost::default();
        assert!(!cost.is_too_much_with(60_000_000, start_ns), "a first reading has what came before it");
        assert!(!cost.is_too_much_with(40_000_000, start_ns + second_ns / 2));
        assert!(cost.is_too_much_with(20_000_000, start_ns + second_ns / 2), "60 ms of half a second");
        assert!(!cost.is_too_much_with(0, start_ns + 2 * second_ns));
        assert!(!cost.is_too_much_with(60_000_000, start_ns + 4 * second_ns), "60 ms of two seconds");
        assert!(cost.is_too_much_with(60_000_000, start_ns + 4 * second_ns), "60 ms at once");
    }

    #[test]
    fn connector_given_up_by_an_earlier_collector_stays_off() {
        let given_up = KernelEvent { at_ns: 5, pid: 0, what: What::GivenUp(AbsenceReason::Cost) };
        for (pending, is_active) in [(vec![], true), (vec![given_up], false)] {
            let connector = connector(std::fs::File::open("/dev/null").unwrap(), &inbox::create().unwrap());
            assert_eq!(queue(Some(connector), [1], pending).is_active(), is_active);
        }
    }
}
