//! taskstats (linux/taskstats.h): the kernel's figures of a thread, sent when it exits.

use std::os::fd::{AsRawFd, RawFd};

use crate::netlink::{self, Socket, u16_at, u32_at, u64_at};

/// genlmsghdr: command, version, reserved.
const GENL_HEADER: usize = 4;
const GENL_ID_CTRL: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const CMD_GET: u8 = 1;
const ATTR_REGISTER_CPUMASK: u16 = 3;
const TYPE_STATS: u16 = 3;
const TYPE_AGGR_PID: u16 = 4;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLMSG_ERROR: u16 = 2;
/// The last thread of its process (linux/acct.h).
const AGROUP: u8 = 0x20;
/// The first version of the struct that has the thread group id.
const FIRST_WITH_TGID: u16 = 12;
/// The version that has fields at other offsets; version 16 moved them back.
const OTHER_OFFSETS: u16 = 15;

/// Offsets of fields in struct taskstats.
mod offset {
    pub const VERSION: usize = 0;
    pub const FLAG: usize = 8;
    pub const COMM: usize = 80;
    pub const PID: usize = 128;
    pub const HIWATER_RSS: usize = 200;
    pub const TGID: usize = 368;
}

/// The exit of a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stats {
    /// The thread.
    pub pid: u32,
    /// The thread's process.
    pub tgid: u32,
    /// Whether it was the process's last thread.
    pub is_last: bool,
    /// The thread's name (at most 15 bytes).
    pub comm: String,
    /// The peak RSS of its address space. Images before an exec are not in it. A fork child starts with its parent's RSS,
    /// and a vfork child that never called exec has its parent's peak.
    pub hiwater_rss_bytes: u64,
}

/// A subscription to the exits of all threads.
#[derive(Debug)]
pub struct Taskstats {
    socket: Socket,
    family: u16,
}

impl Taskstats {
    /// Subscribes, on all processors.
    pub fn subscribe() -> Result<Self, String> {
        let socket = Socket::open("taskstats", libc::NETLINK_GENERIC, 0)?;
        let name = netlink::attribute(CTRL_ATTR_FAMILY_NAME, b"TASKSTATS\0");
        let ask = [&[CTRL_CMD_GETFAMILY, 1, 0, 0], name.as_slice()].concat();
        socket.send(&netlink::message(GENL_ID_CTRL, NLM_F_REQUEST, &ask))?;
        let family = answer(&socket, |kind, payload| (kind == GENL_ID_CTRL).then(|| family_of(payload))?)?;
        let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible")
            .map_err(|error| format!("the list of processors: {error}"))?;
        let mask = [possible.trim().as_bytes(), b"\0"].concat();
        let register =
            [&[CMD_GET, 1, 0, 0], netlink::attribute(ATTR_REGISTER_CPUMASK, &mask).as_slice()].concat();
        socket.send(&netlink::message(family, NLM_F_REQUEST | NLM_F_ACK, &register))?;
        answer(&socket, |kind, _| (kind == NLMSG_ERROR).then_some(()))?;
        Ok(Self { socket, family })
    }

    /// Adds the exits of the next datagram; false if there is none now.
    pub fn read(&self, buffer: &mut [u8], ends: &mut Vec<Stats>) -> Result<bool, String> {
        let Some(datagram) = self.socket.receive(buffer)? else { return Ok(false) };
        for (_, payload) in netlink::messages(datagram).filter(|(kind, _)| *kind == self.family) {
            ends.extend(stats_of(payload).map(parse).transpose()?);
        }
        Ok(true)
    }
}

impl AsRawFd for Taskstats {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// The kernel's answer to a request, which is in the socket before send returns.
fn answer<T>(socket: &Socket, find: impl Fn(u16, &[u8]) -> Option<T>) -> Result<T, String> {
    let mut buffer = [0; 8192];
    while let Some(datagram) = socket.receive(&mut buffer)? {
        for (kind, payload) in netlink::messages(datagram) {
            if let (NLMSG_ERROR, Some(error)) = (kind, u32_at(payload, 0).filter(|error| *error != 0)) {
                let error = error.cast_signed().saturating_neg();
                return Err(format!("taskstats: {}", std::io::Error::from_raw_os_error(error)));
            }
            if let Some(found) = find(kind, payload) {
                return Ok(found);
            }
        }
    }
    Err("taskstats: no answer".into())
}

fn family_of(payload: &[u8]) -> Option<u16> {
    let mut attributes = netlink::attributes(payload.get(GENL_HEADER..)?);
    attributes.find_map(|(kind, value)| u16_at(value, 0).filter(|_| kind == CTRL_ATTR_FAMILY_ID))
}

/// The struct in the message of a thread's exit. (That of a whole process, TYPE_AGGR_TGID, has no memory figures.)
fn stats_of(payload: &[u8]) -> Option<&[u8]> {
    let mut outer = netlink::attributes(payload.get(GENL_HEADER..)?);
    let (_, of_pid) = outer.find(|(kind, _)| *kind == TYPE_AGGR_PID)?;
    netlink::attributes(of_pid).find_map(|(kind, value)| (kind == TYPE_STATS).then_some(value))
}

fn parse(stats: &[u8]) -> Result<Stats, String> {
    let version = u16_at(stats, offset::VERSION).unwrap_or(0);
    if version < FIRST_WITH_TGID || version == OTHER_OFFSETS {
        return Err(format!("taskstats: version {version} of the struct is not supported"));
    }
    let fields = || {
        let comm = stats.get(offset::COMM..offset::COMM + 32)?.split(|byte| *byte == 0).next()?;
        Some(Stats {
            pid: u32_at(stats, offset::PID)?,
            tgid: u32_at(stats, offset::TGID)?,
            is_last: stats.get(offset::FLAG)? & AGROUP != 0,
            comm: String::from_utf8_lossy(comm).into_owned(),
            hiwater_rss_bytes: u64_at(stats, offset::HIWATER_RSS)?.saturating_mul(1024),
        })
    };
    fields().ok_or_else(|| format!("taskstats: a struct of {} bytes", stats.len()))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn bytes(version: u16) -> Vec<u8> {
        let mut stats = vec![0; 416];
        let mut put = |at: usize, value: &[u8]| stats[at..at + value.len()].copy_from_slice(value);
        put(offset::VERSION, &version.to_ne_bytes());
        put(offset::FLAG, &[0x21]);
        put(offset::COMM, b"cc1\0rest");
        put(offset::PID, &12u32.to_ne_bytes());
        put(offset::TGID, &11u32.to_ne_bytes());
        put(offset::HIWATER_RSS, &2000u64.to_ne_bytes());
        stats
    }

    #[test]
    fn exit_message_of_a_thread_is_parsed() {
        let inner = [netlink::attribute(1, &12u32.to_ne_bytes()), netlink::attribute(TYPE_STATS, &bytes(13))];
        let payload = [&[2, 1, 0, 0], netlink::attribute(TYPE_AGGR_PID, &inner.concat()).as_slice()].concat();
        let expected =
            Stats { pid: 12, tgid: 11, is_last: true, comm: "cc1".into(), hiwater_rss_bytes: 2_048_000 };
        assert_eq!(parse(stats_of(&payload).unwrap()), Ok(expected));
    }

    #[test]
    fn process_sums_and_unusable_versions_are_refused() {
        let of_tgid = [&[2, 1, 0, 0], netlink::attribute(5, b"1234").as_slice()].concat();
        assert_eq!(stats_of(&of_tgid), None);
        for version in [0, 11, OTHER_OFFSETS] {
            assert!(parse(&bytes(version)).is_err(), "{version}");
        }
        assert!(parse(&bytes(16)[..300]).is_err());
    }

    #[test]
    fn family_id_is_found_in_the_answer() {
        let name = netlink::attribute(CTRL_ATTR_FAMILY_NAME, b"TASKSTATS\0");
        let id = netlink::attribute(CTRL_ATTR_FAMILY_ID, &31u16.to_ne_bytes());
        assert_eq!(family_of(&[&[1, 2, 0, 0], name.as_slice(), &id].concat()), Some(31));
    }

    /// A C program prints the offsets in the kernel's own header.
    #[test]
    fn offsets_match_the_kernel_header() {
        let directory = tempfile::tempdir().unwrap();
        let (source, program) = (directory.path().join("offsets.c"), directory.path().join("offsets"));
        let fields = ["version", "ac_flag", "ac_comm", "ac_pid", "hiwater_rss", "ac_tgid"];
        let lines: String =
            fields.map(|field| format!("printf(\"%zu \", offsetof(struct taskstats, {field}));")).concat();
        let text = format!(
            "#include <stddef.h>\n#include <stdio.h>\n#include <linux/taskstats.h>\nint main(void) {{ {lines} }}"
        );
        std::fs::write(&source, text).unwrap();
        assert!(Command::new("cc").arg(&source).arg("-o").arg(&program).status().unwrap().success());
        let output = Command::new(&program).output().unwrap().stdout;
        use offset::{COMM, FLAG, HIWATER_RSS, PID, TGID, VERSION};
        let ours = [VERSION, FLAG, COMM, PID, HIWATER_RSS, TGID].map(|at| format!("{at} ")).concat();
        assert_eq!(String::from_utf8(output).unwrap(), ours);
    }
}
