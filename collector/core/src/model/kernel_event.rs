//! Events of the process connector (netlink), which reports each fork, exec and exit, and how a slot of the state file holds one.

use thiserror::Error;

/// What an event of the process connector says, or what happened to the connector itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// The process was created.
    Fork {
        /// Pid of the process that created it.
        parent: u32,
    },
    /// The process executed another program.
    Exec,
    /// The first thread of the process ended.
    Exit {
        /// Wait status.
        status: i32,
    },
    /// The socket's buffer was full and events were lost. The pid has no meaning.
    Lost {
        /// Lost events of the whole machine since the subscription, as far as the kernel counts them.
        dropped: u32,
    },
    /// The connector is no longer read. The pid has no meaning.
    GivenUp(AbsenceReason),
}

/// Why the process connector is no longer read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum AbsenceReason {
    /// The kernel accepted the subscription but sends no events.
    #[error("the kernel sends no events here: not in the initial namespaces")]
    NoEvents,
    /// Processes outside the tree start and end too fast.
    #[error(
        "given up: the machine starts so many processes that reading their events would cost 5% of a core"
    )]
    Cost,
}

/// One event about a process (not a thread). Pids are those of the initial pid namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelEvent {
    /// CLOCK_MONOTONIC, nanoseconds.
    pub at_ns: u64,
    /// The process.
    pub pid: u32,
    /// What happened.
    pub what: What,
}

impl KernelEvent {
    /// Encodes the event as a slot of the state file: kind, the kind's value, pid, the two halves of its time, then zeros.
    pub fn encode(&self) -> EventSlot {
        let (kind, value) = match self.what {
            What::Fork { parent } => (0, parent),
            What::Exec => (1, 0),
            What::Exit { status } => (2, status.cast_unsigned()),
            What::Lost { dropped } => (3, dropped),
            What::GivenUp(AbsenceReason::NoEvents) => (4, 0),
            What::GivenUp(AbsenceReason::Cost) => (4, 1),
        };
        [kind, value, self.pid, self.at_ns as u32, (self.at_ns >> 32) as u32, 0, 0, 0]
    }

    /// Reads what [`Self::encode`] wrote, from the first five words. `None`: there are fewer, or the kind is unknown.
    pub fn decode(words: &[u32]) -> Option<Self> {
        let [kind, value, pid, low, high, ..] = *words else { return None };
        let what = match kind {
            0 => What::Fork { parent: value },
            1 => What::Exec,
            2 => What::Exit { status: value.cast_signed() },
            3 => What::Lost { dropped: value },
            4 if value == 0 => What::GivenUp(AbsenceReason::NoEvents),
            4 => What::GivenUp(AbsenceReason::Cost),
            _ => return None,
        };
        Some(Self { at_ns: u64::from(high) << 32 | u64::from(low), pid, what })
    }
}

/// An encoded [`KernelEvent`].
pub type EventSlot = [u32; 8];
