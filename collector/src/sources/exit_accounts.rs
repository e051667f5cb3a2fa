//! The kernel's accounts of processes that exit (taskstats, linux/taskstats.h): their peak RSS and CPU time, also where no
//! parent tells them and no sample came in time. For root in the initial namespaces, since Linux 5.19.
//!
//! The kernel sends an account while the process still exits, before its parent can reap it. Its CPU time there is as of the
//! last clock tick or context switch, up to 10 ms ago. So a thread reads the process's clock at once: if that is ahead of the
//! account, it was brought up to date since, and lacks the teardown of the process's memory only, as EXIT records do.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::thread::JoinHandle;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use crate::model::finding::ExitAccount;
use crate::model::ids::ProcessId;
use crate::model::observation::Observation;
use crate::sys::netlink::{self, u16_at, u32_at, u64_at};
use crate::sys::{clock, pidfd, priority};

/// A process that the core does not know after this time is none of the tree.
const KEPT_NS: u64 = 1_000_000_000;
/// The clock is read again and again for so long until it is ahead of the account: the exiting process runs on another CPU,
/// and switches to the next process soon.
const SPIN_NS: u64 = 200_000;
/// The kernel sends the accounts of the whole machine. Reading them ends when it takes more than 5% of a core; from half of that
/// on, clocks are read once only.
const MOST_NS: u64 = WINDOW_NS / 20;
/// Time over which that share is measured.
const WINDOW_NS: u64 = 1_000_000_000;
/// Requested size of the receive buffer: some 10,000 accounts.
const BUFFER_BYTES: libc::c_int = 16 << 20;

/// Accounts of exited processes. Nothing is read until [`Self::begin`].
#[derive(Debug, Default)]
pub(crate) struct ExitAccounts {
    reader: Option<Reader>,
    was_tried: bool,
    /// Accounts of processes that the core does not know yet.
    waiting: Vec<Account>,
}

/// The account of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Account {
    pid: u32,
    /// CLOCK_MONOTONIC, nanoseconds; late by as much as the thread was when it read the account.
    start_ns: u64,
    read_ns: u64,
    figures: ExitAccount,
}

impl ExitAccounts {
    /// Read accounts from now on. Where the kernel refuses, there are none.
    pub(crate) fn begin(&mut self) {
        if !std::mem::replace(&mut self.was_tried, true) {
            self.reader = Reader::start().ok();
        }
    }

    /// The accounts of processes that `find` knows by pid and start (CLOCK_MONOTONIC, nanoseconds).
    pub(crate) fn take(&mut self, find: impl Fn(u32, u64) -> Option<ProcessId>) -> Vec<Observation> {
        let Some(reader) = &self.reader else { return Vec::new() };
        self.waiting.extend(reader.accounts.try_iter());
        let now_ns = clock::monotonic_ns();
        let mut found = Vec::new();
        self.waiting.retain(|account| match find(account.pid, account.start_ns) {
            Some(id) => {
                found.push(Observation::Accounted { id, account: account.figures });
                false
            }
            None => now_ns.saturating_sub(account.read_ns) < KEPT_NS,
        });
        found
    }
}

/// The thread.
#[derive(Debug)]
struct Reader {
    accounts: Receiver<Account>,
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Reader {
    fn start() -> io::Result<Self> {
        let socket = subscribe()?;
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let (sender, accounts) = std::sync::mpsc::channel();
        let of_thread = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("gpu-track-exits".into())
            .stack_size(64 * 1024)
            .spawn(move || read_all(&socket, &of_thread, &sender))?;
        Ok(Self { accounts, stop, thread: Some(thread) })
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // The counter is nowhere near its end.
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // It can't have panicked with anything that is still of use.
            let _ = thread.join();
        }
    }
}

fn read_all(socket: &OwnedFd, stop: &OwnedFd, accounts: &Sender<Account>) {
    // Under real-time scheduling it would run on another CPU, beside the exiting process, whose clock is not up to date there.
    priority::prefer_short_slices();
    let page_bytes = rustix::param::page_size() as u64;
    let mut buffer = [0; 4096];
    let mut budget = Budget::default();
    loop {
        let mut fds = [PollFd::new(socket, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
        if poll(&mut fds, None).is_err_and(|error| error != rustix::io::Errno::INTR)
            || !fds[1].revents().is_empty()
        {
            return;
        }
        // An error says that accounts were lost. Those processes are known by other sources, or by samples.
        while let Some(datagram) = netlink::receive(socket, &mut buffer).unwrap_or(None) {
            let patience_ns = if budget.used_ns() < MOST_NS / 2 { SPIN_NS } else { 0 };
            if let Some(kernel) = KernelAccount::parse(datagram) {
                // The collector outlives this thread.
                let _ = accounts.send(kernel.complete(page_bytes, patience_ns));
            }
            if budget.used_ns() > MOST_NS {
                return;
            }
        }
        budget.renew();
    }
}

/// CPU time of the calling thread in a window of time.
#[derive(Debug, Default)]
struct Budget {
    since_ns: u64,
    used_before_ns: u64,
}

impl Budget {
    fn used_ns(&self) -> u64 {
        clock::thread_cpu_ns().saturating_sub(self.used_before_ns)
    }

    fn renew(&mut self) {
        let now_ns = clock::monotonic_ns();
        if now_ns.saturating_sub(self.since_ns) >= WINDOW_NS {
            *self = Self { since_ns: now_ns, used_before_ns: clock::thread_cpu_ns() };
        }
    }
}

const GENL_HEADER: usize = 4;
const GENL_ID_CTRL: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const TASKSTATS_CMD_GET: u8 = 1;
const TASKSTATS_CMD_ATTR_REGISTER_CPUMASK: u16 = 3;
const TYPE_STATS: u16 = 3;
const TYPE_AGGR_PID: u16 = 4;
const TYPE_AGGR_TGID: u16 = 5;

/// Subscribe to the accounts of all CPUs. The kernel ends the subscription when the socket is closed.
fn subscribe() -> io::Result<OwnedFd> {
    let socket = netlink::open(libc::NETLINK_GENERIC, BUFFER_BYTES)?;
    let name = netlink::attribute(CTRL_ATTR_FAMILY_NAME, b"TASKSTATS\0");
    let answer = ask(&socket, GENL_ID_CTRL, CTRL_CMD_GETFAMILY, &name)?;
    let family = netlink::find_attribute(answer.get(GENL_HEADER..).unwrap_or_default(), CTRL_ATTR_FAMILY_ID)
        .and_then(|id| u16_at(id, 0))
        .ok_or(io::ErrorKind::InvalidData)?;
    let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    let mask = [possible.trim().as_bytes(), b"\0"].concat();
    let mask = netlink::attribute(TASKSTATS_CMD_ATTR_REGISTER_CPUMASK, &mask);
    ask(&socket, family, TASKSTATS_CMD_GET, &mask)?;
    Ok(socket)
}

/// The payload of the kernel's answer, which is in the socket when the request was sent.
fn ask(socket: &OwnedFd, family: u16, command: u8, attributes: &[u8]) -> io::Result<Vec<u8>> {
    let payload = [&[command, 1, 0, 0], attributes].concat();
    let flags = libc::NLM_F_REQUEST | libc::NLM_F_ACK;
    netlink::send(socket, &netlink::message(family, flags as u16, &payload))?;
    let mut answer = Vec::new();
    let mut buffer = [0; 8192];
    while let Some(datagram) = netlink::receive(socket, &mut buffer)? {
        match netlink::first_message(datagram) {
            Some((kind, payload)) if i32::from(kind) == libc::NLMSG_ERROR => {
                return match u32_at(payload, 0).unwrap_or(0).cast_signed() {
                    0 => Ok(answer),
                    error => Err(io::Error::from_raw_os_error(error.saturating_neg())),
                };
            }
            Some((kind, payload)) if kind == family => payload.clone_into(&mut answer),
            _ => {}
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}

/// What the kernel sends when the last thread of a process exits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct KernelAccount {
    pid: u32,
    /// Since the start of the last thread, which for most processes is the only one.
    elapsed_us: u64,
    /// CPU time of all threads, nanoseconds, as of a clock tick or context switch.
    cpu_ns: u64,
    peak_rss_bytes: u64,
    /// Minor faults; `None` for a process that had other threads, since they are of the last one.
    minor_faults: Option<u64>,
}

impl KernelAccount {
    /// Parse a netlink message; `None` for a thread that is not the last of its process, and for versions of the struct
    /// that can't be read.
    fn parse(datagram: &[u8]) -> Option<Self> {
        /// The last thread of its process (linux/acct.h).
        const AGROUP: u8 = 0x20;
        /// The first version with the process's id.
        const FIRST_WITH_TGID: u16 = 12;
        /// Its fields are at other offsets; version 16 moved them back.
        const OTHER_OFFSETS: u16 = 15;
        let (_, payload) = netlink::first_message(datagram)?;
        let payload = payload.get(GENL_HEADER..)?;
        let stats_in = |kind| netlink::find_attribute(netlink::find_attribute(payload, kind)?, TYPE_STATS);
        let stats = stats_in(TYPE_AGGR_PID)?;
        let version = u16_at(stats, offset::VERSION)?;
        let is_last = stats.get(offset::FLAG)? & AGROUP != 0;
        if version < FIRST_WITH_TGID || version == OTHER_OFFSETS || !is_last {
            return None;
        }
        // Only a process that had other threads has sums of its own.
        let sums = stats_in(TYPE_AGGR_TGID);
        Some(Self {
            pid: u32_at(stats, offset::TGID)?,
            elapsed_us: u64_at(stats, offset::ELAPSED_US)?,
            cpu_ns: u64_at(sums.unwrap_or(stats), offset::CPU_NS)?,
            peak_rss_bytes: u64_at(stats, offset::HIWATER_RSS_KIB)?.saturating_mul(1024),
            minor_faults: if sums.is_some() { None } else { Some(u64_at(stats, offset::MINOR_FAULTS)?) },
        })
    }

    /// With the clock of the process, as far as it can still be read. It is read for `patience_ns` until it is ahead.
    fn complete(self, page_bytes: u64, patience_ns: u64) -> Account {
        let begun_ns = clock::monotonic_ns();
        let mut cpu_ns = self.cpu_ns;
        while let Some(clock_ns) = pidfd::cpu_clock_ns(self.pid) {
            cpu_ns = cpu_ns.max(clock_ns);
            if cpu_ns > self.cpu_ns || clock::monotonic_ns().saturating_sub(begun_ns) >= patience_ns {
                break;
            }
        }
        Account {
            pid: self.pid,
            start_ns: begun_ns.saturating_sub(self.elapsed_us.saturating_mul(1000)),
            read_ns: begun_ns,
            figures: ExitAccount {
                cpu_ns,
                is_cpu_whole: cpu_ns > self.cpu_ns,
                peak_rss_bytes: self.peak_rss_bytes,
                faulted_bytes: self.minor_faults.map(|faults| faults.saturating_mul(page_bytes)),
            },
        }
    }
}

/// Offsets of fields in struct taskstats.
mod offset {
    pub(super) const VERSION: usize = 0;
    pub(super) const FLAG: usize = 8;
    pub(super) const CPU_NS: usize = 72;
    pub(super) const ELAPSED_US: usize = 144;
    pub(super) const MINOR_FAULTS: usize = 168;
    pub(super) const HIWATER_RSS_KIB: usize = 200;
    pub(super) const TGID: usize = 368;
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use super::*;

    const BOTH: [u16; 2] = [TYPE_AGGR_PID, TYPE_AGGR_TGID];

    fn message(version: u16, flag: u8, kinds: &[u16]) -> Vec<u8> {
        let mut stats = vec![0; 416];
        let mut put = |at: usize, value: &[u8]| stats[at..at + value.len()].copy_from_slice(value);
        put(offset::VERSION, &version.to_ne_bytes());
        put(offset::FLAG, &[flag]);
        put(offset::CPU_NS, &5_000_000u64.to_ne_bytes());
        put(offset::ELAPSED_US, &7_000u64.to_ne_bytes());
        put(offset::MINOR_FAULTS, &80u64.to_ne_bytes());
        put(offset::HIWATER_RSS_KIB, &2_000u64.to_ne_bytes());
        put(offset::TGID, &u32::MAX.to_ne_bytes());
        let aggregate = |kind: &u16| {
            let id = netlink::attribute(1, &12u32.to_ne_bytes());
            netlink::attribute(*kind, &[id, netlink::attribute(TYPE_STATS, &stats)].concat())
        };
        let payload: Vec<u8> = kinds.iter().flat_map(aggregate).collect();
        netlink::message(20, 0, &[&[2, 1, 0, 0], payload.as_slice()].concat())
    }

    #[test]
    fn account_of_the_last_thread_is_that_of_its_process() {
        let parsed = KernelAccount::parse(&message(14, 0x21, &BOTH[..1])).unwrap();
        let expected = KernelAccount {
            pid: u32::MAX,
            elapsed_us: 7_000,
            cpu_ns: 5_000_000,
            peak_rss_bytes: 2_048_000,
            minor_faults: Some(80),
        };
        assert_eq!(parsed, expected);
        let of_threads = KernelAccount::parse(&message(16, 0x20, &BOTH));
        assert_eq!(of_threads, Some(KernelAccount { minor_faults: None, ..expected }));
        for (version, flag) in [(11, 0x20), (15, 0x20), (14, 0)] {
            assert_eq!(KernelAccount::parse(&message(version, flag, &BOTH)), None, "{version}");
        }
        assert_eq!(KernelAccount::parse(&message(14, 0x20, &BOTH)[..300]), None);
        // No process has this pid, so its clock can't be read.
        let account = parsed.complete(4096, 0);
        let figures = ExitAccount {
            cpu_ns: 5_000_000,
            is_cpu_whole: false,
            peak_rss_bytes: 2_048_000,
            faulted_bytes: Some(80 * 4096),
        };
        assert_eq!((account.figures, account.read_ns - account.start_ns), (figures, 7_000_000));
    }

    #[test]
    fn account_waits_until_its_process_is_known() {
        let (sender, received) = std::sync::mpsc::channel();
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap());
        let reader = Some(Reader { accounts: received, stop, thread: None });
        let mut accounts = ExitAccounts { reader, was_tried: true, waiting: Vec::new() };
        let account = KernelAccount::parse(&message(14, 0x20, &BOTH)).unwrap().complete(4096, 0);
        sender.send(account.clone()).unwrap();
        sender.send(Account { read_ns: account.read_ns - KEPT_NS, ..account.clone() }).unwrap();
        assert!(accounts.take(|_, _| None).is_empty());
        assert_eq!(accounts.waiting, std::slice::from_ref(&account));
        let found = accounts.take(|pid, start_ns| {
            assert_eq!((pid, start_ns), (account.pid, account.start_ns));
            Some(ProcessId(3))
        });
        assert!(
            matches!(found.as_slice(), [Observation::Accounted { id: ProcessId(3), account: figures }] if *figures == account.figures)
        );
        assert!(accounts.waiting.is_empty());
    }

    /// The kernel's own wait gives the truth.
    // Requirement: SEE-22
    #[test]
    fn account_of_a_real_process_has_the_figures_of_wait4() {
        let Ok(reader) = Reader::start() else {
            eprintln!("skipped: the kernel gives accounts to root only, in the initial namespaces");
            return;
        };
        let script = "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done";
        #[expect(clippy::zombie_processes, reason = "wait4 waits for it")]
        let child = Command::new("sh").args(["-c", script]).spawn().unwrap();
        let pid = child.id();
        let mut status = 0;
        // SAFETY: zeroed is a valid rusage, and both live through the call.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::wait4(pid.cast_signed(), &raw mut status, 0, &raw mut usage);
            usage
        };
        assert!(std::process::ExitStatus::from_raw(status).success());
        let account = loop {
            let account = reader.accounts.recv().unwrap();
            if account.pid == pid {
                break account.figures;
            }
        };
        let us = |time: libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
        let true_us = us(usage.ru_utime) + us(usage.ru_stime);
        // A clock tick, at 100 Hz, and what it takes to end the process.
        let lag_us = if account.is_cpu_whole { 5_000 } else { 15_000 };
        assert!(
            account.cpu_ns / 1000 <= true_us + 1 && account.cpu_ns / 1000 + lag_us >= true_us,
            "{account:?}"
        );
        let true_peak = usage.ru_maxrss as u64 * 1024;
        assert!(account.peak_rss_bytes <= true_peak, "{account:?}: {true_peak}");
        assert!(account.peak_rss_bytes > 200_000 && account.faulted_bytes.unwrap() > 100_000, "{account:?}");
    }
}
