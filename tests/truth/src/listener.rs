//! Reads both kernel interfaces, the process connector and taskstats, into one tree.

use std::os::fd::{AsRawFd, RawFd};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::connector::{Connector, Event};
use crate::taskstats::{Stats, Taskstats};
use crate::tree::{KernelProcess, Tree};

/// How long the kernel may take to send the exit event of a process.
const PROBE_WATCHDOG: Duration = Duration::from_secs(10);

/// Both subscriptions and what was read from them.
#[derive(Debug)]
pub struct Listener {
    taskstats: Taskstats,
    connector: Connector,
    buffer: Vec<u8>,
    events: Vec<Event>,
    stats: Vec<Stats>,
    /// All processes since the subscription.
    pub tree: Tree,
}

impl Listener {
    /// Subscribes and makes sure, by a test process, that the kernel sends exit events here.
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
        // The exit events can come a little after the wait has returned.
        let start = Instant::now();
        let mut seen = (false, false);
        while seen != (true, true) {
            if start.elapsed() > PROBE_WATCHDOG {
                let missing = if seen.0 { "taskstats" } else { "process connector" };
                return Err(format!("{missing}: the kernel sends no exit events here"));
            }
            listener.wait()?;
            listener.drain()?;
            let has_stats = listener.stats.iter().any(|end| end.tgid == pid && end.is_last);
            seen = (listener.tree.has_ended(pid), has_stats);
        }
        Ok(listener)
    }

    /// Reads all events so far.
    pub fn drain(&mut self) -> Result<(), String> {
        while self.connector.read(&mut self.buffer, &mut self.events)? {
            self.events.drain(..).for_each(|event| self.tree.apply(event));
        }
        while self.taskstats.read(&mut self.buffer, &mut self.stats)? {}
        Ok(())
    }

    /// Waits until there is something to read, 100 ms at most.
    pub fn wait(&self) -> Result<(), String> {
        let [connector, taskstats] = self.descriptors();
        wait([connector, taskstats, None, None]).map(drop)
    }

    /// The descriptors to wait for.
    pub fn descriptors(&self) -> [Option<RawFd>; 2] {
        [Some(self.connector.as_raw_fd()), Some(self.taskstats.as_raw_fd())]
    }

    /// The processes of the counted tree in the order of their start, when all of them have ended.
    pub fn processes(self) -> Result<Vec<KernelProcess>, String> {
        self.tree.with_stats(self.stats)
    }
}

/// Waits until one of the descriptors is readable, 100 ms at most; true if the last one is.
pub fn wait(descriptors: [Option<RawFd>; 4]) -> Result<bool, String> {
    // poll(2) ignores negative descriptors.
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
