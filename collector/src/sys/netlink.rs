//! Netlink sockets, messages and attributes (linux/netlink.h).

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_recv_buffer_size_force};
use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType, socket_with};

/// Length of nlmsghdr.
const HEADER: usize = 16;
/// Length of nlattr.
const ATTRIBUTE_HEADER: usize = 4;

/// Opens a non-blocking socket of this netlink protocol, with a receive buffer of `buffer_bytes`. Only root gets more than
/// net.core.rmem_max.
pub(crate) fn open(protocol: Protocol, buffer_bytes: usize) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(protocol))?;
    if set_socket_recv_buffer_size_force(&socket, buffer_bytes).is_err() {
        let _ = set_socket_recv_buffer_size(&socket, buffer_bytes);
    }
    Ok(socket)
}

/// Joins multicast groups, given as a mask.
pub(crate) fn join(socket: &OwnedFd, groups: u32) -> io::Result<()> {
    const ANY_PORT: u32 = 0;
    Ok(rustix::net::bind(socket, &SocketAddrNetlink::new(ANY_PORT, groups))?)
}

/// Receives a datagram into `buffer`, which cuts off a longer one. `None`: there is none now.
pub(crate) fn receive<'a>(socket: &OwnedFd, buffer: &'a mut [u8]) -> io::Result<Option<&'a [u8]>> {
    match rustix::io::read(socket, &mut *buffer) {
        Ok(length) => Ok(buffer.get(..length)),
        Err(Errno::AGAIN) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Sends a message to the kernel.
pub(crate) fn send(socket: &OwnedFd, message: &[u8]) -> io::Result<()> {
    // A datagram is sent as a whole or not at all, so the length need not be checked.
    Ok(rustix::io::write(socket, message).map(drop)?)
}

/// Makes a message of this type (`kind`): the header, then the payload.
pub(crate) fn message(kind: u16, flags: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + payload.len());
    bytes.extend(((HEADER + payload.len()) as u32).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    // Sequence number and port are 0: each socket has one request at a time, so its answers need no number.
    bytes.extend([0; 8]);
    bytes.extend(payload);
    bytes
}

/// Type and payload of the first message of a datagram. `None`: the message is cut off.
pub(crate) fn first_message(datagram: &[u8]) -> Option<(u16, &[u8])> {
    let length = u32_at(datagram, 0)? as usize;
    Some((u16_at(datagram, 4)?, datagram.get(HEADER..length)?))
}

/// Makes an attribute of this type (`kind`): the header, then the value, padded to where the next attribute begins.
pub(crate) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(aligned(ATTRIBUTE_HEADER + value.len()));
    bytes.extend(((ATTRIBUTE_HEADER + value.len()) as u16).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(aligned(bytes.len()), 0);
    bytes
}

/// The value of the first attribute of type `wanted` among the attributes `rest`. `None`: there is none, or an attribute
/// before it is cut off.
pub(crate) fn find_attribute(mut rest: &[u8], wanted: u16) -> Option<&[u8]> {
    // The bits of the type without the flags NLA_F_NESTED and NLA_F_NET_BYTEORDER.
    const TYPE: u16 = 0x3fff;
    loop {
        let length = usize::from(u16_at(rest, 0)?);
        let value = rest.get(ATTRIBUTE_HEADER..length)?;
        if u16_at(rest, 2)? & TYPE == wanted {
            return Some(value);
        }
        rest = rest.get(aligned(length)..)?;
    }
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Rounds a length up to where the next attribute begins.
const fn aligned(length: usize) -> usize {
    length.next_multiple_of(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_of_a_message_are_found() {
        let payload = [attribute(3, b"name\0"), attribute(0x8000 | 9, &7u32.to_ne_bytes())].concat();
        let datagram = message(20, 1, &payload);
        let (kind, payload) = first_message(&datagram).unwrap();
        assert_eq!((kind, find_attribute(payload, 3)), (20, Some(b"name\0".as_slice())));
        assert_eq!(find_attribute(payload, 9).and_then(|value| u32_at(value, 0)), Some(7));
        assert_eq!(find_attribute(payload, 4), None);
    }

    #[test]
    fn wrong_lengths_end_the_search() {
        let mut datagram = message(20, 0, b"1234");
        datagram[0] += 1;
        assert_eq!(first_message(&datagram), None);
        // Shorter than its own header.
        assert_eq!(find_attribute(&[2, 0, 1, 0, 5, 0], 1), None);
        assert_eq!(find_attribute(&[0; 3], 0), None);
        assert_eq!(find_attribute(&attribute(1, b""), 2), None);
    }
}
