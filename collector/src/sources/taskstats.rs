//! taskstats (linux/taskstats.h): what the kernel sends of each thread that exits.

use std::io;
use std::os::fd::OwnedFd;

use crate::model::exit_account::ThreadAccount;
use crate::sys::netlink::{self, u16_at, u32_at, u64_at};

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

/// Subscribes to the exits on these CPUs, given as a list like `0-3,7`. The kernel ends the subscription when the socket is
/// closed.
///
/// # Errors
/// If the kernel refuses, as for users other than root, and outside the initial namespaces.
pub(super) fn subscribe(cpus: &str, buffer_bytes: usize) -> io::Result<OwnedFd> {
    let socket = netlink::open(rustix::net::netlink::GENERIC, buffer_bytes)?;
    let name = netlink::attribute(CTRL_ATTR_FAMILY_NAME, b"TASKSTATS\0");
    let answer = ask(&socket, GENL_ID_CTRL, CTRL_CMD_GETFAMILY, &name)?;
    let family = netlink::find_attribute(answer.get(GENL_HEADER..).unwrap_or_default(), CTRL_ATTR_FAMILY_ID)
        .and_then(|id| u16_at(id, 0))
        .ok_or(io::ErrorKind::InvalidData)?;
    let mask = [cpus.as_bytes(), b"\0"].concat();
    let mask = netlink::attribute(TASKSTATS_CMD_ATTR_REGISTER_CPUMASK, &mask);
    ask(&socket, family, TASKSTATS_CMD_GET, &mask)?;
    Ok(socket)
}

/// Sends a request to a family of generic netlink. Returns the payload of the kernel's answer, empty if it only acknowledges. The
/// kernel puts its answer into the socket before the send returns, so there is nothing to wait for.
fn ask(socket: &OwnedFd, family: u16, command: u8, attributes: &[u8]) -> io::Result<Vec<u8>> {
    // A genlmsghdr: command, version 1, and two reserved bytes.
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
pub(super) struct Account {
    pub(super) pid: u32,
    /// Time since the start of the last thread, which for most processes is the only one, microseconds.
    pub(super) elapsed_us: u64,
    /// CPU time of all threads, nanoseconds, as of a clock tick or context switch.
    pub(super) cpu_ns: u64,
    pub(super) peak_rss_bytes: u64,
    /// Figures of the only thread; `None`: the process had several.
    pub(super) thread: Option<ThreadAccount>,
}

impl Account {
    /// Parses a netlink message. `None`: the thread is not the last one of its process, the message is cut short, or the version
    /// of the struct can't be read.
    pub(super) fn parse(datagram: &[u8]) -> Option<Self> {
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
            thread: if sums.is_some() { None } else { Some(thread(stats)?) },
        })
    }
}

/// Parses the thread's own figures in a struct taskstats. `None`: the struct is cut short.
fn thread(stats: &[u8]) -> Option<ThreadAccount> {
    let page_bytes = rustix::param::page_size() as u64;
    Some(ThreadAccount {
        user_us: u64_at(stats, offset::USER_US)?,
        system_us: u64_at(stats, offset::SYSTEM_US)?,
        faulted_bytes: u64_at(stats, offset::MINOR_FAULTS)?.saturating_mul(page_bytes),
    })
}

/// Offsets of fields in struct taskstats.
mod offset {
    pub(super) const VERSION: usize = 0;
    pub(super) const FLAG: usize = 8;
    pub(super) const CPU_NS: usize = 72;
    pub(super) const ELAPSED_US: usize = 144;
    pub(super) const USER_US: usize = 152;
    pub(super) const SYSTEM_US: usize = 160;
    pub(super) const MINOR_FAULTS: usize = 168;
    pub(super) const HIWATER_RSS_KIB: usize = 200;
    pub(super) const TGID: usize = 368;
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    const BOTH: [u16; 2] = [TYPE_AGGR_PID, TYPE_AGGR_TGID];

    fn message(version: u16, flag: u8, kinds: &[u16]) -> Vec<u8> {
        let mut stats = vec![0; 416];
        let mut put = |at: usize, value: &[u8]| stats[at..at + value.len()].copy_from_slice(value);
        put(offset::VERSION, &version.to_ne_bytes());
        put(offset::FLAG, &[flag]);
        put(offset::CPU_NS, &5_000_000u64.to_ne_bytes());
        put(offset::ELAPSED_US, &7_000u64.to_ne_bytes());
        put(offset::USER_US, &1_000u64.to_ne_bytes());
        put(offset::SYSTEM_US, &3_000u64.to_ne_bytes());
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
        let parsed = Account::parse(&message(14, 0x21, &BOTH[..1])).unwrap();
        let expected = Account {
            pid: u32::MAX,
            elapsed_us: 7_000,
            cpu_ns: 5_000_000,
            peak_rss_bytes: 2_048_000,
            thread: Some(ThreadAccount {
                user_us: 1_000,
                system_us: 3_000,
                faulted_bytes: 80 * rustix::param::page_size() as u64,
            }),
        };
        assert_eq!(parsed, expected);
        let of_threads = Account::parse(&message(16, 0x20, &BOTH));
        assert_eq!(of_threads, Some(Account { thread: None, ..expected }));
        for (version, flag) in [(11, 0x20), (15, 0x20), (14, 0)] {
            assert_eq!(Account::parse(&message(version, flag, &BOTH)), None, "{version}");
        }
        assert_eq!(Account::parse(&message(14, 0x20, &BOTH)[..300]), None);
    }
}
