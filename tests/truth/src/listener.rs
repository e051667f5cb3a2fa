//! Both ways in which the kernel tells of processes, and what comes of them.

use std::os::fd::{AsRawFd, RawFd};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::connector::{Connector, Event};
use crate::taskstats::{Stats, Taskstats};
use crate::tree::{Account, Tree};

/// How long the kernel may take to tell of a process that has ended.
const PROBE_WATCHDOG: Duration = Duration::from_secs(10);

/// What the kernel says, in the order in which it says it.
#[derive(Debug)]
pub struct Listener {
    taskstats: Taskstats,
    connector: Connector,
    buffer: Vec<u8>,
    events: Vec<Event>,
    stats: Vec<Stats>,
    /// All processes since it listens.
    pub tree: Tree,
}

impl Listener {
    /// Subscribes, and makes sure that the kernel tells of ends here.
    pub fn subscribe() -> Result<Self, String> {
        let mut listener = Self {
            taskstats: Taskstats::subscribe()?,
            connector: Connector::subscribe()?,
            buffer: vec![0; 1 << 16],
            events: Vec::new(),
            stats: Vec::new(),
            tree: Tree::default(),
        };
        let mut probe = Command::new("/bin/true").spawn().map_err(|error| format!("/bin/true: {error}"))?;
        let pid = probe.id();
        probe.wait().map_err(|error| error.to_string())?;
        // The ends are told while the wait returns, one of them a little later.
        let start = Instant::now();
        let mut told = (false, false);
        while told != (true, true) {
            if start.elapsed() > PROBE_WATCHDOG {
                let silent = if told.0 { "taskstats" } else { "process connector" };
                return Err(format!("{silent}: the kernel tells of no ends here"));
            }
            listener.wait()?;
            listener.drain()?;
            let is_told = listener.stats.iter().any(|end| end.tgid == pid && end.is_last);
            told = (listener.tree.has_ended(pid), is_told);
        }
        Ok(listener)
    }

    /// All that was said so far.
    pub fn drain(&mut self) -> Result<(), String> {
        while self.connector.read(&mut self.buffer, &mut self.events)? {
            self.events.drain(..).for_each(|event| self.tree.apply(event));
        }
        while self.taskstats.read(&mut self.buffer, &mut self.stats)? {}
        Ok(())
    }
    /// Waits until there is something to be read, 100 ms at most.
    pub fn wait(&self) -> Result<(), String> {
        let [connector, taskstats] = self.descriptors();
        wait([connector, taskstats, None, None]).map(drop)
    }

    /// What to wait for.
    #[must_use]
    pub fn descriptors(&self) -> [Option<RawFd>; 2] {
        [Some(self.connector.as_raw_fd()), Some(self.taskstats.as_raw_fd())]
    }

    /// The accounts of the counted tree, in the order of birth, when all of it has ended.
    pub fn accounts(self) -> Result<Vec<Account>, String> {
        self.tree.accounts(self.stats)
    }
}

/// Waits until one of them has something, 100 ms at most; true if it is the last one.
pub fn wait(descriptors: [Option<RawFd>; 4]) -> Result<bool, String> {
    // A negative descriptor is passed over.
    let mut polled =
        descriptors.map(|fd| libc::pollfd { fd: fd.unwrap_or(-1), events: libc::POLLIN, revents: 0 });
    // SAFETY: the array lives through the call and has the length given.
    let result = unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, 100) };
    let error = std::io::Error::last_os_error();
    if result < 0 && error.kind() != std::io::ErrorKind::Interrupted {
        return Err(format!("poll: {error}"));
    }
    Ok(result > 0 && polled[3].revents != 0)
}
