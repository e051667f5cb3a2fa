//! Where the kernel puts the process connector's messages: memory that outlives a collector.
//!
//! A message that was received is in no socket any more, and until its event is journaled, it is nowhere else. So all collectors of a
//! run map one file without a name, and recvmmsg(2) writes there. If the process is killed during recvmmsg, the call's return value
//! is lost, so a slot itself must show whether it is in use. It is while the first word of its message is not 0: the length
//! (nlmsghdr), which the kernel copies with the message.
//!
//! The reader journals the events, and then frees the slots. What a SIGKILL leaves:
//!
//! | killed | events | slots |
//! |---|---|---|
//! | before a message is received | in the socket | free |
//! | until the journal is written | in the slots: a message is copied as a whole | in use |
//! | while the journal is written | in the slots; the first ones in the journal, too | in use |
//! | until all slots are free | in the journal | the last ones in use |
//!
//! So the next collector first takes the messages in the slots, without those events that are in the journal already. It
//! frees the slots before it passes on any event: until then no snapshot includes those events, so the journal shows them.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, Mode, OFlags};
use rustix::mm::{MapFlags, ProtFlags};

/// Messages received by one system call.
const SLOTS: usize = 64;
/// Room for a message, bytes; events are 76 bytes.
const MESSAGE_BYTES: usize = 128;
/// Length of the word that tells whether a slot is in use, bytes.
const WORD_BYTES: usize = 4;

type Slot = [u8; MESSAGE_BYTES];
type Slots = [Slot; SLOTS];

/// The mapped file. Only one thread of one living process uses the file.
#[derive(Debug)]
pub(super) struct Inbox {
    slots: NonNull<Slots>,
}

// SAFETY: the mapping belongs to this value alone.
unsafe impl Send for Inbox {}

/// Makes the file, with all slots free: a memfd, or a file without a name where a filter forbids that call.
///
/// # Errors
/// If there is no memory, or no descriptor left.
pub(super) fn create() -> io::Result<OwnedFd> {
    // vm.memfd_noexec=2 wants the seal, and kernels before 6.3 do not know it.
    let sealed = MemfdFlags::CLOEXEC | MemfdFlags::NOEXEC_SEAL;
    let memfd = |flags| rustix::fs::memfd_create("gpu-track-inbox", flags);
    let unnamed = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = memfd(sealed)
        .or_else(|_| memfd(MemfdFlags::CLOEXEC))
        .or_else(|_| rustix::fs::open("/dev/shm", unnamed, Mode::from_raw_mode(0o600)))?;
    rustix::fs::ftruncate(&file, size_of::<Slots>() as u64)?;
    Ok(file)
}

impl Inbox {
    /// Maps the file that [`create`] made.
    ///
    /// # Errors
    /// If there is no memory.
    pub(super) fn map(file: &OwnedFd) -> io::Result<Self> {
        // POPULATE: once all pages are there, the kernel's copies to them can't fail.
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let address = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), size_of::<Slots>(), protection, flags, file, 0)
        }?;
        let slots = NonNull::new(address.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { slots })
    }

    fn slots(&self) -> &Slots {
        // SAFETY: the mapping is this long, and lives as long as `self`. The kernel writes to it in `receive` only.
        unsafe { self.slots.as_ref() }
    }

    fn slots_mut(&mut self) -> &mut Slots {
        // SAFETY: as in `slots`.
        unsafe { self.slots.as_mut() }
    }

    /// The messages in the slots that are in use.
    pub(super) fn messages(&self) -> impl Iterator<Item = &[u8]> {
        self.slots().iter().map(|slot| &slot[..message_bytes(slot)]).filter(|message| !message.is_empty())
    }

    /// Frees the slots. The events of their messages must be journaled before.
    pub(super) fn free(&mut self) {
        for slot in self.slots_mut() {
            slot[..WORD_BYTES].fill(0);
        }
    }

    /// Receives messages that wait in the socket, without waiting for any. All slots must be free. Returns whether more may wait.
    ///
    /// # Errors
    /// If no message waits, or events were lost (ENOBUFS).
    pub(super) fn receive(&mut self, socket: BorrowedFd) -> io::Result<bool> {
        // SAFETY: zeroed is a valid iovec and mmsghdr; their pointers are to memory that lives through the call.
        unsafe {
            let mut parts: [libc::iovec; SLOTS] = std::mem::zeroed();
            let mut headers: [libc::mmsghdr; SLOTS] = std::mem::zeroed();
            for ((part, header), slot) in parts.iter_mut().zip(&mut headers).zip(self.slots_mut()) {
                part.iov_base = slot.as_mut_ptr().cast();
                part.iov_len = MESSAGE_BYTES;
                header.msg_hdr.msg_iov = part;
                header.msg_hdr.msg_iovlen = 1;
            }
            let (fd, flags) = (socket.as_raw_fd(), libc::MSG_DONTWAIT);
            let count = libc::recvmmsg(fd, headers.as_mut_ptr(), SLOTS as u32, flags, std::ptr::null_mut());
            let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
            Ok(count == SLOTS)
        }
    }
}

/// The length of the message in a slot, bytes; 0: the slot is free.
fn message_bytes(slot: &Slot) -> usize {
    let length = slot.first_chunk::<WORD_BYTES>().map_or(0, |word| u32::from_ne_bytes(*word));
    (length as usize).min(MESSAGE_BYTES)
}

impl Drop for Inbox {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and nothing refers to it any more.
        unsafe { rustix::mm::munmap(self.slots.as_ptr().cast(), size_of::<Slots>()) }.ok();
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixDatagram;

    use super::*;

    fn message(number: u8) -> Vec<u8> {
        let mut bytes = 76u32.to_ne_bytes().to_vec();
        bytes.resize(76, number);
        bytes
    }

    #[test]
    fn received_messages_outlive_the_mapping_until_they_are_freed() {
        let (sender, receiver) = UnixDatagram::pair().unwrap();
        let file = create().unwrap();
        let mut killed = Inbox::map(&file).unwrap();
        let sent: Vec<_> = (1..=3).map(message).collect();
        for bytes in &sent {
            sender.send(bytes).unwrap();
        }
        assert!(!killed.receive(receiver.as_fd()).unwrap());
        drop(killed);
        let mut next = Inbox::map(&file).unwrap();
        assert_eq!(next.messages().collect::<Vec<_>>(), sent);
        next.free();
        assert_eq!(next.receive(receiver.as_fd()).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert_eq!(next.messages().count(), 0);
        assert_eq!(Inbox::map(&file).unwrap().messages().count(), 0);
    }

    #[test]
    fn length_beyond_the_slot_is_cut() {
        let mut inbox = Inbox::map(&create().unwrap()).unwrap();
        inbox.slots_mut()[5] = [0xff; MESSAGE_BYTES];
        assert_eq!(inbox.messages().map(<[u8]>::len).collect::<Vec<_>>(), [MESSAGE_BYTES]);
    }
}
