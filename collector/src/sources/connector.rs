//! The process connector (linux/cn_proc.h): the kernel's events of every fork, exec and exit on the machine, those of programs
//! without the shim (uninstrumented ones) included.
//!
//! It works for root, and for every user since Linux 6.6, in the initial pid, user and network namespaces. Elsewhere the kernel
//! refuses the subscription, or accepts it and sends no events. So the launcher subscribes before it starts the collector, and
//! the connector counts as working only if the fork of the collector itself was seen.
//!
//! - A BPF filter in the kernel drops the events of threads. Events of foreign processes are read and dropped.
//! - The launcher keeps socket and inbox ([`super::inbox`]) for all collectors of the run. So a message is always in the
//!   socket, the inbox or the journal.
//! - A collector that replaces a killed one takes the command, and all processes whose figures are not final, for members. They may
//!   have ended, but their events may still wait to be read.
//! - Of the launcher's children, only the command is a member. The order of the forks shows which child that is, because no message
//!   of the launcher could come early enough.
//! - Each collector asks the socket how many events it dropped (SO_MEMINFO), because the kernel reports ENOBUFS to one reader only.
//!
//! Without the connector, samples find execs: the bottom of the stack in /proc/PID/stat changes ([`super::scan`]). Ends are
//! dated by [`super::exit_watch`].

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use libc::{
    CN_IDX_PROC, CN_VAL_PROC, PROC_CN_MCAST_IGNORE, PROC_CN_MCAST_LISTEN, PROC_EVENT_EXEC, PROC_EVENT_EXIT,
    PROC_EVENT_FORK,
};
use thiserror::Error;

use super::inbox::{self, Inbox};
use crate::model::kernel_event::{KernelEvent, What};
use crate::sys::{kernel, netlink, pidfd};

/// Offsets in a message: netlink header, connector header, then the event, without padding.
const EVENT: usize = 16 + 20;
const TIME: usize = EVENT + 8;
/// The event's data are 32-bit words. Fork: parent pid, parent tgid, child pid, child tgid. Exec: pid, tgid. Exit: pid, tgid, status.
/// A process is named by its tgid.
const DATA: usize = EVENT + 16;
const PARENT_TGID: usize = DATA + 4;
const CHILD_PID: usize = DATA + 8;
const CHILD_TGID: usize = DATA + 12;
const EXEC_TGID: usize = DATA + 4;
const EXIT_PID: usize = DATA;
const EXIT_TGID: usize = DATA + 4;
const EXIT_STATUS: usize = DATA + 8;

/// Parses a netlink message. `None`: the message is cut short, or is no fork, exec or exit.
pub fn parse(message: &[u8]) -> Option<KernelEvent> {
    let word = |at: usize| netlink::u32_at(message, at);
    let (pid, what) = match word(EVENT)? {
        PROC_EVENT_FORK => (word(CHILD_TGID)?, What::Fork { parent: word(PARENT_TGID)? }),
        PROC_EVENT_EXEC => (word(EXEC_TGID)?, What::Exec),
        PROC_EVENT_EXIT => (word(EXIT_TGID)?, What::Exit { status: word(EXIT_STATUS)?.cast_signed() }),
        _ => return None,
    };
    Some(KernelEvent { at_ns: netlink::u64_at(message, TIME)?, pid, what })
}

/// Requested size of the receive buffer.
const BUFFER_BYTES: usize = 8 << 20;

/// Why the kernel refuses a subscription (drivers/connector).
#[derive(Debug, Error)]
pub enum SubscribeError {
    /// Before Linux 6.6 a subscription needs CAP_NET_ADMIN.
    #[error("before Linux 6.6 for root only")]
    NeedsRoot,
    /// The kernel's end of the connector is in the initial network namespace.
    #[error("not in the initial network namespace")]
    OtherNetworkNamespace,
    /// CONFIG_CONNECTOR is off. If only CONFIG_PROC_EVENTS is off, the request succeeds and no event comes
    /// ([`AbsenceReason::NoEvents`](crate::model::kernel_event::AbsenceReason::NoEvents)).
    #[error("the kernel was built without it")]
    NotBuilt,
    /// Any other error.
    #[error(transparent)]
    Io(io::Error),
}

/// A subscription, which outlives the collectors that read it.
#[derive(Debug)]
pub struct Subscription {
    /// Where the kernel puts events.
    pub socket: OwnedFd,
    /// Where a collector puts the events that it has read and not journaled.
    pub inbox: OwnedFd,
}

/// Subscribes. This must happen before the collector is started: the event of its fork is the proof that events arrive.
///
/// # Errors
/// If the kernel refuses.
pub fn subscribe() -> Result<Subscription, SubscribeError> {
    let socket = socket().map_err(|error| match error.raw_os_error() {
        Some(libc::EPERM) if kernel::is_before((6, 6)) => SubscribeError::NeedsRoot,
        Some(libc::ECONNREFUSED) => SubscribeError::OtherNetworkNamespace,
        Some(libc::EPROTONOSUPPORT) => SubscribeError::NotBuilt,
        _ => SubscribeError::Io(error),
    })?;
    Ok(Subscription { socket, inbox: inbox::create().map_err(SubscribeError::Io)? })
}

/// Opens a socket that receives fork, exec and exit events, but not those of threads.
fn socket() -> io::Result<OwnedFd> {
    let socket = netlink::open(rustix::net::netlink::CONNECTOR, BUFFER_BYTES)?;
    attach_filter(&socket)?;
    netlink::join(&socket, CN_IDX_PROC)?;
    request(&socket, &[PROC_CN_MCAST_LISTEN])?;
    // Since Linux 6.6 a listener can select events; older kernels ignore a message of this size.
    request(&socket, &[PROC_CN_MCAST_LISTEN, PROC_EVENT_FORK | PROC_EVENT_EXEC | PROC_EVENT_EXIT])?;
    Ok(socket)
}

/// Attaches a socket filter: the kernel passes execs, and the forks and exits of whole processes. It drops all else, such as events of
/// threads.
fn attach_filter(socket: &OwnedFd) -> io::Result<()> {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const EQUAL_X: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_X) as u16;
    const TAX: u16 = (libc::BPF_MISC | libc::BPF_TAX) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let op = |code, k: u32, jt, jf| libc::sock_filter { code, jt, jf, k };
    let load = |at: usize| op(LOAD, at as u32, 0, 0);
    // Loads are in network byte order; jumps count from the next instruction. To return 0 drops a message, to return the maximum
    // passes it whole.
    let is = |what: u32, jt, jf| op(EQUAL, what.to_be(), jt, jf);
    let mut program = [
        load(EVENT),
        // These jump to the check of a fork, to the check of an exit, and to the end that passes the message.
        is(PROC_EVENT_FORK, 3, 0),
        is(PROC_EVENT_EXIT, 6, 0),
        is(PROC_EVENT_EXEC, 9, 0),
        // Any other kind of event is dropped.
        op(RETURN, 0, 0, 0),
        // A fork makes a process if pid and tgid of the child are equal.
        load(CHILD_PID),
        op(TAX, 0, 0, 0),
        load(CHILD_TGID),
        op(EQUAL_X, 0, 4, 5),
        // The thread that exits is the first one of its process if pid and tgid are equal.
        load(EXIT_PID),
        op(TAX, 0, 0, 0),
        load(EXIT_TGID),
        op(EQUAL_X, 0, 0, 1),
        op(RETURN, u32::MAX, 0, 0),
        op(RETURN, 0, 0, 0),
    ];
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    let (data, length) = ((&raw const program).cast(), size_of_val(&program) as libc::socklen_t);
    // SAFETY: the kernel copies the program, which lives through the call.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, data, length)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sends a request to the connector: a `struct cn_msg` with these words as data.
fn request(socket: &OwnedFd, words: &[u32]) -> io::Result<()> {
    let data = words.iter().flat_map(|word| word.to_ne_bytes());
    // The zeros are its sequence number and acknowledgement: no answer is waited for.
    let mut payload: Vec<u8> =
        [CN_IDX_PROC, CN_VAL_PROC, 0, 0].iter().flat_map(|word| word.to_ne_bytes()).collect();
    // The data follow their length and the flags.
    payload.extend((size_of_val(words) as u16).to_ne_bytes());
    payload.extend(0u16.to_ne_bytes());
    payload.extend(data);
    netlink::send(socket, &netlink::message(libc::NLMSG_DONE as u16, 0, &payload))
}

/// A subscription to read from.
#[derive(Debug)]
pub(crate) struct Connector {
    socket: OwnedFd,
    inbox: Inbox,
    /// The inbox may have messages that an earlier collector received.
    has_leftovers: bool,
}

/// The result of one read, besides the events.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Batch {
    /// The socket's buffer was full before: events are lost.
    pub(crate) has_lost: bool,
    /// No more events wait.
    pub(crate) is_last: bool,
    /// An earlier collector received these events, and may have journaled some of them.
    pub(crate) is_leftover: bool,
}

impl Connector {
    /// Opens this subscription for reading.
    ///
    /// # Errors
    /// If there is no memory.
    pub(crate) fn open(subscription: Subscription) -> io::Result<Self> {
        let inbox = Inbox::map(&subscription.inbox)?;
        Ok(Self { socket: subscription.socket, inbox, has_leftovers: true })
    }

    /// Duplicates the socket, to poll.
    pub(crate) fn socket(&self) -> Option<OwnedFd> {
        self.socket.try_clone().ok()
    }

    /// Appends the events of one system call to `events`. At the first call it appends those that an earlier collector left in the
    /// inbox. [`Self::free`] must follow when they are journaled.
    pub(crate) fn read(&mut self, events: &mut Vec<KernelEvent>) -> Batch {
        let is_leftover = std::mem::take(&mut self.has_leftovers);
        let mut batch = Batch { has_lost: false, is_last: false, is_leftover };
        // What an earlier collector left is in the inbox already. To receive would overwrite it.
        if !is_leftover {
            self.receive(&mut batch);
        }
        events.extend(self.inbox.messages().filter_map(parse));
        batch
    }

    /// Receives messages that wait in the socket into the inbox, as many as it has room for. Notes in `batch` whether events were
    /// lost, and whether no more wait.
    fn receive(&mut self, batch: &mut Batch) {
        loop {
            match self.inbox.receive(self.socket.as_fd()) {
                Ok(has_more) => {
                    batch.is_last = !has_more;
                    return;
                }
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => batch.has_lost = true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    batch.is_last = true;
                    return;
                }
            }
        }
    }

    /// Frees the inbox: the events of the last [`Self::read`] are journaled.
    pub(crate) fn free(&mut self) {
        self.inbox.free();
    }

    /// The number of events lost since the subscription because the buffer was full (SO_MEMINFO; 0 before Linux 4.12).
    ///
    /// ENOBUFS reports a loss once, to the first reader. If that collector is killed before it journals the loss, only this number
    /// has it.
    pub(crate) fn dropped(&self) -> u32 {
        const DROPS: usize = libc::SK_MEMINFO_DROPS as usize;
        let mut words = [0u32; DROPS + 1];
        let mut length = size_of_val(&words) as libc::socklen_t;
        let data = (&raw mut words).cast();
        // SAFETY: the kernel writes at most `length` bytes to memory that lives through the call.
        let result = unsafe {
            libc::getsockopt(self.socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_MEMINFO, data, &mut length)
        };
        if result == 0 { words[DROPS] } else { 0 }
    }

    /// Ends the subscription. Kernels before 6.6 count listeners by their requests, not by open sockets.
    pub(crate) fn end(&self) {
        // If this fails, nothing can be done about it.
        let _ = request(&self.socket, &[PROC_CN_MCAST_IGNORE]);
    }
}

/// The launcher. Not all its children belong to the tree: besides the command it starts collectors, enders, and what `--on-alert`
/// runs.
#[derive(Debug, Clone, Copy, Default)]
pub struct Launcher {
    /// Its pid.
    pub pid: u32,
    /// The next child of the launcher, other than the collector, is the command. The events of one process's forks come in their
    /// order.
    pub starts_command: bool,
}

/// The pids of the tree: the command and its descendants, as connector events, records and scans of /proc show them.
#[derive(Debug, Default)]
pub struct Members {
    /// Each pid with the time of the first thread's exit event, CLOCK_MONOTONIC nanoseconds, if there was one.
    pids: HashMap<u32, Option<u64>>,
    collector: u32,
    launcher: Launcher,
}

impl Members {
    /// Starts with the `known` pids of the tree. `collector`: its pid. The collector is a child of the launcher but no member, and
    /// neither are its own children, which drivers run.
    pub fn new(known: impl IntoIterator<Item = u32>, collector: u32, launcher: Launcher) -> Self {
        Self { pids: known.into_iter().map(|pid| (pid, None)).collect(), collector, launcher }
    }

    /// Adds a live process of the tree, in place of an ended one if that had its pid.
    pub fn add(&mut self, pid: u32) {
        self.pids.insert(pid, None);
        // The command was started before any other process of the tree.
        self.launcher.starts_command = false;
    }

    /// Whether this pid is a process of the tree.
    pub(crate) fn contains(&self, pid: u32) -> bool {
        self.pids.contains_key(&pid)
    }

    /// Whether a process that writes records belongs to the tree if it descends from this pid. It does if the pid is a member's or
    /// the launcher's. The launcher, as subreaper, adopts the orphans of the tree, and its own helpers write no records.
    pub(crate) fn is_ancestor(&self, pid: u32) -> bool {
        self.contains(pid) || pid == self.launcher.pid
    }

    /// Takes in an event: adds a fork child of the tree, removes a pid that a process outside the tree has got, and notes exits.
    /// Returns whether the event is about the tree, or about the connector itself.
    pub fn take(&mut self, event: &KernelEvent) -> bool {
        match event.what {
            What::Fork { parent } if self.is_member_by_fork(event.pid, parent) => {
                self.add(event.pid);
                true
            }
            What::Fork { .. } => {
                // A process outside the tree has this pid now.
                self.pids.remove(&event.pid);
                false
            }
            // If a thread other than the first execs, the kernel first reports the exit of the first thread, whose pid the other
            // takes over. That exit is not the process's end.
            What::Exec => self.set_exit_time(event.pid, None),
            What::Exit { .. } => self.set_exit_time(event.pid, Some(event.at_ns)),
            What::Lost { .. } | What::GivenUp(_) => true,
        }
    }

    /// Whether a process that `parent` has forked is a member.
    fn is_member_by_fork(&self, pid: u32, parent: u32) -> bool {
        if parent != self.launcher.pid {
            return self.contains(parent);
        }
        // A live process that is a member already was found before this event was read. It is the command, or a process that the
        // command started as its sibling (CLONE_PARENT).
        let is_known = self.pids.get(&pid) == Some(&None);
        is_known || (self.launcher.starts_command && pid != self.collector)
    }

    /// Sets when the first thread of a process exited, CLOCK_MONOTONIC nanoseconds. `None`: the thread runs, since the process has
    /// exec'd. Returns whether the process is a member.
    fn set_exit_time(&mut self, pid: u32, exited_ns: Option<u64>) -> bool {
        let member = self.pids.get_mut(&pid);
        let is_member = member.is_some();
        if let Some(exited) = member {
            *exited = exited_ns;
        }
        is_member
    }

    /// The processes that have ended, each with the time of its first thread's exit event. All their events are in the
    /// socket by now.
    ///
    /// The exit event alone does not show the end: other threads can continue, and fork.
    pub(crate) fn gone(&self) -> Vec<(u32, u64)> {
        let exited = self.pids.iter().filter_map(|(pid, exited)| Some((*pid, (*exited)?)));
        exited.filter(|(pid, _)| pidfd::is_gone(*pid)).collect()
    }

    /// Removes these ended processes, which [`Self::gone`] has returned, unless another process of the tree has got the pid since.
    pub(crate) fn forget(&mut self, gone: &[(u32, u64)]) {
        for (pid, at_ns) in gone {
            if self.pids.get(pid) == Some(&Some(*at_ns)) {
                self.pids.remove(pid);
            }
        }
    }

    /// Number of processes.
    pub fn len(&self) -> usize {
        self.pids.len()
    }

    /// Whether there are no processes.
    pub fn is_empty(&self) -> bool {
        self.pids.is_empty()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::model::kernel_event::AbsenceReason;

    fn event(pid: u32, what: What) -> KernelEvent {
        KernelEvent { at_ns: 5 << 40 | 7, pid, what }
    }

    #[test]
    fn events_are_encoded_and_decoded() {
        let given_up = [AbsenceReason::NoEvents, AbsenceReason::Cost].map(What::GivenUp);
        for what in
            [What::Fork { parent: 9 }, What::Exec, What::Exit { status: -1 }, What::Lost { dropped: 5 }]
                .into_iter()
                .chain(given_up)
        {
            assert_eq!(KernelEvent::decode(&event(8, what).encode()), Some(event(8, what)));
        }
        assert_eq!(KernelEvent::decode(&[7; 8]), None);
    }

    /// The kernel's message of a fork.
    pub(crate) fn message(event: &KernelEvent) -> Vec<u8> {
        let What::Fork { parent } = event.what else { panic!("not a fork") };
        let mut message = vec![0; EVENT];
        message.extend(PROC_EVENT_FORK.to_ne_bytes());
        message.extend(3u32.to_ne_bytes());
        message.extend(event.at_ns.to_ne_bytes());
        message.extend([11, parent, 21, event.pid].iter().flat_map(|word: &u32| word.to_ne_bytes()));
        let length = message.len() as u32;
        message[..4].copy_from_slice(&length.to_ne_bytes());
        message
    }

    #[test]
    fn netlink_message_is_parsed() {
        let mut message = message(&event(20, What::Fork { parent: 10 }));
        assert_eq!(parse(&message), Some(event(20, What::Fork { parent: 10 })));
        assert_eq!(parse(&message[..message.len() - 1]), None);
        message[EVENT] = 0;
        assert_eq!(parse(&message), None);
    }

    /// Of a run whose launcher has the pid 1, and its collector the pid 8.
    fn launcher(starts_command: bool) -> Launcher {
        Launcher { pid: 1, starts_command }
    }

    // Requirement: SEE-7
    #[test]
    fn only_processes_of_the_tree_are_members() {
        let mut members = Members::new([], 8, launcher(true));
        // A driver runs a program in the collector.
        assert!(!members.take(&event(8, What::Fork { parent: 1 })));
        assert!(!members.take(&event(9, What::Fork { parent: 8 })));
        assert!(members.take(&event(2, What::Fork { parent: 1 })), "the command");
        assert!(members.take(&event(3, What::Fork { parent: 2 })));
        assert!(!members.take(&event(4, What::Fork { parent: 99 })));
        assert!(members.take(&event(2, What::Exit { status: 0 })));
        // Other threads of it continue.
        assert!(members.take(&event(5, What::Fork { parent: 2 })));
        // A process outside the tree gets its pid.
        assert!(!members.take(&event(2, What::Fork { parent: 99 })));
        assert!(!members.take(&event(2, What::Exec)) && !members.take(&event(6, What::Fork { parent: 2 })));
    }

    // Requirement: SEE-7, ALERT-11
    #[test]
    fn what_the_launcher_starts_after_the_command_is_no_member() {
        let mut first = Members::new([], 8, launcher(true));
        assert!(first.take(&event(2, What::Fork { parent: 1 })), "the command");
        // That which replaces a killed collector reads of earlier ones, and maybe of the command, which it knows.
        let mut later = Members::new([2], 8, launcher(false));
        assert!(later.take(&event(2, What::Fork { parent: 1 })), "the command");
        // Another layer was faster.
        let mut found_first = Members::new([], 8, launcher(true));
        found_first.add(2);
        let without_command = Members::new([], 8, launcher(false));
        for mut members in [first, later, found_first, without_command] {
            assert!(!members.take(&event(7, What::Fork { parent: 1 })));
            assert!(!members.take(&event(9, What::Fork { parent: 7 })));
            assert!(!members.take(&event(9, What::Exec)));
        }
    }

    #[test]
    fn helper_of_the_launcher_that_gets_an_ended_members_pid_is_no_member() {
        let mut members = Members::new([2, 3], 8, launcher(false));
        assert!(members.take(&event(3, What::Exit { status: 0 })));
        assert!(!members.take(&event(3, What::Fork { parent: 1 })));
        assert!(!members.contains(3));
    }

    #[test]
    fn ended_processes_are_removed_unless_a_thread_execs() {
        // Above the kernel's largest pid, so no such process exists.
        let (ended, execs, again, own) = (5_000_001, 5_000_002, 5_000_003, std::process::id());
        let mut members = Members::new([ended, execs, again, own], 8, launcher(false));
        for pid in [ended, execs, again, own] {
            assert!(members.take(&event(pid, What::Exit { status: 0 })));
        }
        assert!(members.take(&event(execs, What::Exec)));
        let mut gone = members.gone();
        gone.sort_unstable();
        assert_eq!(gone, [ended, again].map(|pid| (pid, 5 << 40 | 7)));
        // Its events count until it is removed, and a new process of its pid stays.
        assert!(members.take(&event(7, What::Fork { parent: ended })));
        assert!(members.take(&event(again, What::Fork { parent: execs })));
        members.forget(&gone);
        assert_eq!(
            [ended, execs, again, own, 7].map(|pid| members.contains(pid)),
            [false, true, true, true, true]
        );
    }

    #[test]
    fn events_of_processes_arrive_without_threads() {
        let name = "events_of_processes_arrive_without_threads";
        let Ok(subscription) = subscribe() else {
            println!("SKIPPED {name}: no process connector here");
            return;
        };
        let mut connector = Connector::open(subscription).unwrap();
        let own = std::process::id();
        std::thread::spawn(|| ()).join().unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        let mut events = Vec::new();
        assert!(connector.read(&mut events).is_leftover && events.is_empty());
        let batch = connector.read(&mut events);
        assert!(!batch.has_lost && batch.is_last);
        connector.end();
        if events.is_empty() {
            println!("SKIPPED {name}: the kernel sends no events here");
            return;
        }
        events.retain(|event| event.pid == pid);
        let whats: Vec<_> = events.iter().map(|event| event.what).collect();
        assert_eq!(whats, [What::Fork { parent: own }, What::Exec, What::Exit { status: 0 }]);
        assert!(events.windows(2).all(|pair| pair[0].at_ns <= pair[1].at_ns));
    }
}
