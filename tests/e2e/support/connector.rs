//! Every fork and exit as the kernel tells it: the netlink process connector (linux/cn_proc.h).

use std::collections::{HashMap, HashSet};
use std::io::{Error, ErrorKind};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use super::wait_until;

const CN_IDX_PROC: u32 = 1;
const CN_VAL_PROC: u32 = 1;
const PROC_CN_MCAST_LISTEN: u32 = 1;
const PROC_CN_MCAST_IGNORE: u32 = 2;
const PROC_EVENT_FORK: u32 = 1;
const PROC_EVENT_EXIT: u32 = 0x8000_0000;
/// nlmsghdr and cn_msg before the event; what, cpu and time stamp before its data.
const EVENT_AT: usize = 16 + 20;
const DATA_AT: usize = EVENT_AT + 16;

/// A process (not a thread) was made or ended.
#[derive(Clone, Copy)]
enum Event {
    Fork { parent: u32, child: u32 },
    Exit { pid: u32, status: u32 },
}

/// A subscription, read by a thread of its own until [`Connector::finish`].
pub struct Connector {
    socket: Arc<OwnedFd>,
    stop: Arc<AtomicBool>,
    reader: Option<JoinHandle<Result<Vec<Event>, String>>>,
}

impl Connector {
    /// Subscribes; says why it cannot, also where the kernel accepts a subscription but sends nothing (that is so
    /// outside of the initial pid namespace).
    pub fn subscribe() -> Result<Self, String> {
        let socket = open_socket().map_err(|error| format!("process connector: {error}"))?;
        send(&socket, PROC_CN_MCAST_LISTEN).map_err(|error| format!("process connector: {error}"))?;
        let mut probe = Command::new("/bin/true").spawn().map_err(|error| format!("/bin/true: {error}"))?;
        probe.wait().map_err(|error| error.to_string())?;
        // The kernel queues an event before the process goes on, so the probe's is there now or never.
        let seen = receive_all(&socket, &|| true)?;
        if !seen.iter().any(|e| matches!(e, Event::Fork { child, .. } if *child == probe.id())) {
            return Err("process connector: the kernel sends no events here".into());
        }
        let socket = Arc::new(socket);
        let stop = Arc::new(AtomicBool::new(false));
        let (its_socket, its_stop) = (socket.clone(), stop.clone());
        let reader =
            std::thread::spawn(move || receive_all(&its_socket, &|| its_stop.load(Ordering::Acquire)));
        Ok(Self { socket, stop, reader: Some(reader) })
    }

    /// Ends the subscription; to be called when the tree below `root`, which was born under it, has ended.
    pub fn finish(mut self, root: u32) -> Family {
        self.stop.store(true, Ordering::Release);
        let events = self.reader.take().unwrap().join().unwrap();
        Family::of(root, &events.unwrap_or_else(|error| panic!("{error}")))
    }
}

impl Drop for Connector {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // The kernels before 6.6 count listeners by these messages alone.
        drop(send(&self.socket, PROC_CN_MCAST_IGNORE));
        if let Some(reader) = self.reader.take() {
            drop(reader.join());
        }
    }
}

/// A process and all that descend from it.
pub struct Family {
    /// How many processes, the root included.
    pub processes: u64,
    /// Their wait statuses, as many as ended: how often each occurred.
    pub statuses: HashMap<u32, u64>,
}

impl Family {
    fn of(root: u32, events: &[Event]) -> Self {
        let mut members = HashSet::new();
        let mut family = Self { processes: 0, statuses: HashMap::new() };
        for event in events {
            match *event {
                Event::Fork { parent, child }
                    if members.contains(&parent) || (child == root && family.processes == 0) =>
                {
                    members.insert(child);
                    family.processes += 1;
                }
                // A member's pid that was given to a stranger. Until then a member stays one: its other threads
                // can outlive the thread whose exit this is.
                Event::Fork { child, .. } => drop(members.remove(&child)),
                Event::Exit { pid, status } if members.contains(&pid) => {
                    *family.statuses.entry(status).or_default() += 1;
                }
                Event::Exit { .. } => {}
            }
        }
        family
    }
}

fn open_socket() -> Result<OwnedFd, Error> {
    // SAFETY: plain system calls on memory that lives through them; the fd is owned from the check on.
    unsafe {
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let fd = libc::socket(libc::PF_NETLINK, kind, libc::NETLINK_CONNECTOR);
        if fd < 0 {
            return Err(Error::last_os_error());
        }
        let socket = OwnedFd::from_raw_fd(fd);
        let size: libc::c_int = 128 << 20;
        let length = size_of_val(&size) as libc::socklen_t;
        libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, (&raw const size).cast(), length);
        let mut address: libc::sockaddr_nl = std::mem::zeroed();
        address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
        address.nl_groups = CN_IDX_PROC;
        let length = size_of_val(&address) as libc::socklen_t;
        if libc::bind(fd, (&raw const address).cast(), length) < 0 {
            return Err(Error::last_os_error());
        }
        Ok(socket)
    }
}

fn send(socket: &OwnedFd, operation: u32) -> Result<(), Error> {
    let mut message = Vec::new();
    message.extend(40u32.to_ne_bytes());
    message.extend((libc::NLMSG_DONE as u16).to_ne_bytes());
    message.extend([0u8; 10]);
    for word in [CN_IDX_PROC, CN_VAL_PROC, 0, 0] {
        message.extend(word.to_ne_bytes());
    }
    message.extend(4u16.to_ne_bytes());
    message.extend([0u8; 2]);
    message.extend(operation.to_ne_bytes());
    // SAFETY: the message lives through the call.
    let sent = unsafe { libc::send(socket.as_raw_fd(), message.as_ptr().cast(), message.len(), 0) };
    if sent == 40 { Ok(()) } else { Err(Error::last_os_error()) }
}

/// Reads events until `stop` says so and nothing is left.
fn receive_all(socket: &OwnedFd, stop: &dyn Fn() -> bool) -> Result<Vec<Event>, String> {
    let mut events = Vec::new();
    let mut buffer = [0u8; 4096];
    loop {
        let stopping = stop();
        // SAFETY: the buffer lives through the call and has the length given.
        let n = unsafe { libc::recv(socket.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
        if n >= 0 {
            events.extend(parse(&buffer[..n.cast_unsigned()]));
            continue;
        }
        let error = Error::last_os_error();
        match error.kind() {
            ErrorKind::WouldBlock if stopping => return Ok(events),
            ErrorKind::WouldBlock => {
                let mut poll = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
                // SAFETY: one pollfd that lives through the call.
                unsafe { libc::poll(&mut poll, 1, 20) };
            }
            ErrorKind::Interrupted => {}
            // ENOBUFS: events were lost, so there is no truth to compare with.
            _ => return Err(format!("process connector: {error}")),
        }
    }
}

fn parse(message: &[u8]) -> Option<Event> {
    let word = |at: usize| Some(u32::from_ne_bytes(message.get(at..at + 4)?.try_into().ok()?));
    let (first, second, third, fourth) =
        (word(DATA_AT)?, word(DATA_AT + 4)?, word(DATA_AT + 8)?, word(DATA_AT + 12)?);
    match word(EVENT_AT)? {
        // parent_pid, parent_tgid, child_pid, child_tgid
        PROC_EVENT_FORK if third == fourth => Some(Event::Fork { parent: second, child: fourth }),
        // process_pid, process_tgid, exit_code
        PROC_EVENT_EXIT if first == second => Some(Event::Exit { pid: first, status: third }),
        _ => None,
    }
}

#[test]
fn the_connector_counts_the_processes_of_a_shell_and_no_others() {
    let connector = match Connector::subscribe() {
        Ok(connector) => connector,
        Err(reason) => super::skip!("{reason}"),
    };
    let spawn = || Command::new("sh").args(["-c", "/bin/true; /bin/false; (exit 3); exit 0"]).spawn();
    let (mut ours, mut other) = (spawn().unwrap(), spawn().unwrap());
    wait_until("two shells", || ours.try_wait().unwrap().is_some() && other.try_wait().unwrap().is_some());
    let family = connector.finish(ours.id());
    assert_eq!(family.processes, 4);
    assert_eq!(family.statuses, HashMap::from([(0, 2), (1 << 8, 1), (3 << 8, 1)]));
}
