//! Netlink: sockets, messages and attributes (linux/netlink.h).

use std::io::{Error, ErrorKind};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Length of nlmsghdr.
pub const HEADER: usize = 16;
/// Large enough for a burst of thousands of processes while the recorder waits for a core.
const RECEIVE_BUFFER: libc::c_int = 256 << 20;

/// A native-endian number in a message.
pub fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// A native-endian number in a message.
pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// A native-endian number in a message.
pub fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// Lengths are rounded up to this.
fn aligned(length: usize) -> usize {
    length.next_multiple_of(4)
}

/// A message with its header. NLM_F_ACK in `flags` asks the kernel for an answer with an error number.
pub fn message(kind: u16, flags: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(((HEADER + payload.len()) as u32).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend(payload);
    bytes
}

/// Type and payload of each message of a datagram, up to the first damaged one.
pub fn messages(datagram: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let length = u32_at(rest, 0)? as usize;
        let payload = rest.get(HEADER..length)?;
        let kind = u16_at(rest, 4)?;
        rest = rest.get(aligned(length)..).unwrap_or_default();
        Some((kind, payload))
    })
}

/// An attribute with its header, padded.
pub fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(((4 + value.len()) as u16).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(aligned(bytes.len()), 0);
    bytes
}

/// Type and value of each attribute of a payload, up to the first damaged one.
pub fn attributes(payload: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    /// NLA_F_NESTED and NLA_F_NET_BYTEORDER.
    const FLAGS: u16 = 0xc000;
    let mut rest = payload;
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(rest, 0)?);
        let value = rest.get(4..length)?;
        let kind = u16_at(rest, 2)? & !FLAGS;
        rest = rest.get(aligned(length)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// A netlink socket.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    name: &'static str,
}

impl Socket {
    /// Opens one; `groups` are the multicast groups to belong to.
    pub fn open(name: &'static str, protocol: libc::c_int, groups: u32) -> Result<Self, String> {
        let failed = || format!("{name}: {}", Error::last_os_error());
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: a plain system call.
        let fd = unsafe { libc::socket(libc::PF_NETLINK, kind, protocol) };
        if fd < 0 {
            return Err(failed());
        }
        // SAFETY: the descriptor was just made and has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let raw = fd.as_raw_fd();
        let size = RECEIVE_BUFFER;
        // SAFETY: all zeros is a valid address.
        let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
        address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
        address.nl_groups = groups;
        let (size_length, address_length) = (size_of_val(&size), size_of_val(&address));
        // SAFETY: option and address live through the calls and have the lengths given.
        let failed_calls = unsafe {
            libc::setsockopt(
                raw,
                libc::SOL_SOCKET,
                libc::SO_RCVBUFFORCE,
                (&raw const size).cast(),
                size_length as libc::socklen_t,
            ) < 0
                || libc::bind(raw, (&raw const address).cast(), address_length as libc::socklen_t) < 0
        };
        if failed_calls { Err(failed()) } else { Ok(Self { fd, name }) }
    }

    /// Sends a message to the kernel.
    pub fn send(&self, message: &[u8]) -> Result<(), String> {
        // SAFETY: the message lives through the call and has the length given.
        let sent = unsafe { libc::send(self.as_raw_fd(), message.as_ptr().cast(), message.len(), 0) };
        if sent.cast_unsigned() == message.len() {
            Ok(())
        } else {
            Err(format!("{}: {}", self.name, Error::last_os_error()))
        }
    }

    /// The next datagram; `None` if there is none now.
    ///
    /// # Errors
    /// Among others ENOBUFS: the kernel had to drop messages, so the record would be incomplete.
    pub fn receive<'a>(&self, buffer: &'a mut [u8]) -> Result<Option<&'a [u8]>, String> {
        loop {
            // SAFETY: the buffer lives through the call and has the length given.
            let n = unsafe {
                libc::recv(self.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), libc::MSG_TRUNC)
            };
            if n >= 0 {
                let datagram = buffer.get(..n.cast_unsigned());
                return datagram.map(Some).ok_or_else(|| format!("{}: a message of {n} bytes", self.name));
            }
            let error = Error::last_os_error();
            match error.kind() {
                ErrorKind::WouldBlock => return Ok(None),
                ErrorKind::Interrupted => {}
                _ => return Err(format!("{}: {error}", self.name)),
            }
        }
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> libc::c_int {
        self.fd.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_and_attributes_survive_a_round_trip() {
        let payload = [attribute(3, b"name\0"), attribute(0x8000 | 9, &7u32.to_ne_bytes())].concat();
        let datagram = [message(20, 1, &payload), message(21, 0, b"")].concat();
        let found: Vec<_> = messages(&datagram).collect();
        assert_eq!(found, [(20, payload.as_slice()), (21, b"".as_slice())]);
        let inside: Vec<_> = attributes(&payload).collect();
        assert_eq!(inside, [(3, b"name\0".as_slice()), (9, 7u32.to_ne_bytes().as_slice())]);
    }

    #[test]
    fn wrong_lengths_end_the_list() {
        let mut datagram = message(20, 0, b"1234");
        datagram[0] += 1;
        assert_eq!(messages(&datagram).count(), 0);
        // Shorter than its own header: no progress would be made.
        datagram[0] = 8;
        assert_eq!(messages(&datagram).count(), 0);
        assert_eq!(attributes(&[2, 0, 1, 0, 5, 0]).count(), 0);
        assert_eq!(attributes(&[0; 3]).count(), 0);
    }
}
