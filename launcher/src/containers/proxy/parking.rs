//! Connections that outlive a killed proxy. Both descriptors of each are in the queue of a socket that the launcher holds open, too
//! (SCM_RIGHTS). The next proxy takes them out, and passes on what comes without a look at it.
//!
//! What the killed proxy had read and not passed on is lost. A client must not take the rest for the whole, so such a connection is closed.
//! A file has a byte for each connection, which says so.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, Shutdown, recvmsg, sendmsg, shutdown,
};

/// What a killed proxy leaves of a connection. The byte of one that was never parked is 0.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Closed = 0,
    /// All that was read is passed on.
    Idle = 1,
    /// Something that was read may not be passed on.
    Busy = 2,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Parking {
    sender: OwnedFd,
    receiver: OwnedFd,
    states: File,
    /// How many are in the queue, closed ones included.
    parked: usize,
}

/// A connection of a killed proxy.
pub(super) struct Parked {
    pub(super) number: u64,
    pub(super) client: OwnedFd,
    pub(super) daemon: OwnedFd,
    pub(super) is_idle: bool,
}

impl Parking {
    pub(super) fn new([sender, receiver, states]: [OwnedFd; 3]) -> Self {
        Self { sender, receiver, states: states.into(), parked: 0 }
    }

    /// Notes the state of a connection.
    pub(super) fn note(&self, number: u64, state: State) {
        // Without it, the connection is closed with the proxy.
        let _ = self.states.write_all_at(&[state as u8], number);
    }

    /// Parks a connection. Where the queue is full, the connection is closed with the proxy.
    pub(super) fn park(&mut self, number: u64, ends: [BorrowedFd; 2]) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        if rights.push(SendAncillaryMessage::ScmRights(&ends))
            && sendmsg(&self.sender, &[IoSlice::new(&number.to_ne_bytes())], &mut rights, flags).is_ok()
        {
            self.parked += 1;
        }
    }

    /// Whether the queue has so many closed connections, with this number of open ones, that they should be taken out.
    pub(super) fn is_crowded(&self, open: usize) -> bool {
        self.parked > 2 * open + 64
    }

    /// Takes all connections out of the queue, each when the next one is asked for. Those whose descriptors did not arrive are
    /// closed: no more could be open.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Parked> {
        self.parked = 0;
        std::iter::from_fn(|| self.take()).flatten()
    }

    /// Takes the next connection out of the queue. `None`: the queue is empty. `Some(None)`: the message is not whole.
    fn take(&self) -> Option<Option<Parked>> {
        let mut number = [0; size_of::<u64>()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut rights = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let received =
            recvmsg(&self.receiver, &mut [IoSliceMut::new(&mut number)], &mut rights, flags).ok()?;
        let fds = rights.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        });
        let mut fds = fds.flatten();
        let ends = fds.next().zip(fds.next()).filter(|_| received.bytes == number.len());
        let number = u64::from_ne_bytes(number);
        Some(ends.map(|(client, daemon)| {
            let mut state = [0];
            let is_known = self.states.read_exact_at(&mut state, number).is_ok();
            Parked { number, client, daemon, is_idle: is_known && state == [State::Idle as u8] }
        }))
    }
}

/// Closes a connection for its peers: their other descriptors are in the queue.
pub(super) fn close(ends: [BorrowedFd; 2]) {
    for end in ends {
        let _ = shutdown(end, Shutdown::Both);
    }
}
