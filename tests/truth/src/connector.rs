//! The process connector (linux/cn_proc.h): the kernel's event of every fork, exec and exit.

use std::os::fd::{AsRawFd, RawFd};

use crate::netlink::{self, Socket, u32_at, u64_at};

const CN_IDX_PROC: u32 = 1;
const CN_VAL_PROC: u32 = 1;
/// Length of cn_msg.
const CN_HEADER: usize = 20;
const PROC_CN_MCAST_LISTEN: u32 = 1;
const PROC_CN_MCAST_IGNORE: u32 = 2;
/// Offset of the event's own data, after `what`, `cpu` and the time stamp.
const DATA: usize = 16;

/// What happened to a thread. If `pid` equals `tgid`, it is the first thread of its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// A new thread, by fork, vfork or clone.
    Fork {
        /// The process of the thread that called fork, vfork or clone.
        parent: u32,
        /// The new thread.
        pid: u32,
        /// The process of the thread.
        tgid: u32,
    },
    /// An exec.
    Exec {
        /// The process.
        tgid: u32,
    },
    /// The exit of a thread.
    Exit {
        /// The thread.
        pid: u32,
        /// The process of the thread.
        tgid: u32,
        /// Wait status.
        status: u32,
    },
}

/// An event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// CLOCK_MONOTONIC, nanoseconds.
    pub at_ns: u64,
    /// What happened.
    pub what: What,
}

/// A subscription.
#[derive(Debug)]
pub struct Connector(Socket);

impl Connector {
    /// Subscribes. Outside of the initial pid namespace the kernel accepts this and sends no events.
    pub fn subscribe() -> Result<Self, String> {
        let socket = Socket::open("process connector", libc::NETLINK_CONNECTOR, CN_IDX_PROC)?;
        socket.send(&request(PROC_CN_MCAST_LISTEN))?;
        Ok(Self(socket))
    }

    /// Adds the events of the next datagram; false if there is none now.
    pub fn read(&self, buffer: &mut [u8], events: &mut Vec<Event>) -> Result<bool, String> {
        let Some(datagram) = self.0.receive(buffer)? else { return Ok(false) };
        events.extend(netlink::messages(datagram).filter_map(|(_, payload)| parse(payload)));
        Ok(true)
    }
}

impl Drop for Connector {
    fn drop(&mut self) {
        // Kernels before 6.6 count listeners by these messages alone.
        drop(self.0.send(&request(PROC_CN_MCAST_IGNORE)));
    }
}

impl AsRawFd for Connector {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

fn request(operation: u32) -> Vec<u8> {
    let mut payload = Vec::new();
    for word in [CN_IDX_PROC, CN_VAL_PROC, 0, 0, 4, operation] {
        payload.extend(word.to_ne_bytes());
    }
    debug_assert_eq!(payload.len(), CN_HEADER + 4);
    netlink::message(libc::NLMSG_DONE as u16, 0, &payload)
}

/// The event in a message's payload; `None` for other kinds of events.
fn parse(payload: &[u8]) -> Option<Event> {
    const FORK: u32 = 0x1;
    const EXEC: u32 = 0x2;
    const EXIT: u32 = 0x8000_0000;
    let id = (u32_at(payload, 0)?, u32_at(payload, 4)?);
    let event = payload.get(CN_HEADER..).filter(|_| id == (CN_IDX_PROC, CN_VAL_PROC))?;
    let word = |index: usize| u32_at(event, DATA + 4 * index);
    let what = match u32_at(event, 0)? {
        FORK => What::Fork { parent: word(1)?, pid: word(2)?, tgid: word(3)? },
        EXEC => What::Exec { tgid: word(1)? },
        EXIT => What::Exit { pid: word(0)?, tgid: word(1)?, status: word(2)? },
        _ => return None,
    };
    Some(Event { at_ns: u64_at(event, 8)?, what })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message as the kernel sends it.
    fn message(what: u32, at_ns: u64, words: &[u32]) -> Vec<u8> {
        let mut payload = Vec::new();
        for word in [CN_IDX_PROC, CN_VAL_PROC, 0, 0, 40, what, 1] {
            payload.extend(word.to_ne_bytes());
        }
        payload.extend(at_ns.to_ne_bytes());
        for word in words {
            payload.extend(word.to_ne_bytes());
        }
        payload
    }

    #[test]
    fn fork_exec_and_exit_events_are_parsed() {
        let what = |kind, words: &[u32]| parse(&message(kind, 77, words)).map(|event| event.what);
        assert_eq!(what(1, &[5, 4, 7, 6]), Some(What::Fork { parent: 4, pid: 7, tgid: 6 }));
        assert_eq!(what(2, &[7, 6]), Some(What::Exec { tgid: 6 }));
        let exit = What::Exit { pid: 7, tgid: 6, status: 0x100 };
        assert_eq!(what(0x8000_0000, &[7, 6, 0x100, 17, 5, 4]), Some(exit));
        assert_eq!(parse(&message(2, 77, &[7, 6])).unwrap().at_ns, 77);
    }

    #[test]
    fn other_kinds_and_short_messages_are_ignored() {
        // The answer to a subscription, and a change of user.
        assert_eq!(parse(&message(0, 1, &[0])), None);
        assert_eq!(parse(&message(4, 1, &[7, 6, 0, 0])), None);
        let whole = message(1, 1, &[5, 4, 7, 6]);
        for length in 0..whole.len() {
            assert_eq!(parse(&whole[..length]), None, "{length} bytes");
        }
    }
}
