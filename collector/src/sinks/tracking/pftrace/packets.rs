//! The packets of a trace in a file. Each packet is preceded by the byte 0x0a (field 1 of a message, with a length) and its
//! length. What one [`PacketFile::append`] writes is an item; it has one or more packets.

use std::io;

use prost::Message;

use super::messages::{Trace, TracePacket};
use crate::model::style::StreamFile;
use crate::sinks::sink::Loss;
use crate::sinks::tracking::growing::{BLOCK, GrowingFile};

/// The first byte before a packet: field 1 of a message, with a length.
const FIELD: u8 = 0x0a;
/// Maximum number of bytes of a length. Packets that this program writes have at most some kilobytes.
const MOST_LENGTH_BYTES: usize = 5;
/// Maximum number of bytes before a packet: the field and the length.
const MOST_HEAD: u64 = MOST_LENGTH_BYTES as u64 + 1;

/// A file of packets.
pub(super) struct PacketFile(GrowingFile);

impl PacketFile {
    /// Opens the file. Hands the packets that begin in its last `most` bytes to `take`, first to last. `take` returns whether
    /// a packet is the last one of an item. Then cuts off a torn packet, and an item whose last packet is missing.
    pub(super) fn open(
        target: &StreamFile,
        most: u64,
        mut take: impl FnMut(&TracePacket) -> bool,
    ) -> io::Result<Self> {
        let mut file = GrowingFile::open(target)?;
        // Packets that begin before this byte are not handed to `take`.
        let wanted = file.end().saturating_sub(most);
        // Where the next packet begins, and where the last whole item ends, as bytes from the start of the file.
        let (mut from, mut whole) = (0, 0);
        let mut block = Block::default();
        while let Some((head, length)) = frame(block.at(&file, from, MOST_HEAD)?) {
            let next = from + (head + length) as u64;
            if next > file.end() {
                break;
            }
            // Only the last item of a file can be incomplete, so packets before `wanted` are skipped by their lengths.
            let mut is_last_of_item = true;
            if from >= wanted {
                let bytes = block.at(&file, from, next - from)?.get(head..head + length).unwrap_or_default();
                let Ok(packet) = TracePacket::decode(bytes) else { break };
                is_last_of_item = take(&packet);
            }
            from = next;
            if is_last_of_item {
                whole = next;
            }
        }
        file.cut(whole)?;
        Ok(Self(file))
    }

    /// Appends the packets of an item. Returns whether they were written: if there is no space, none of them is, and the item counts
    /// as lost.
    pub(super) fn append(&mut self, packet: Vec<TracePacket>) -> io::Result<bool> {
        let items = 1;
        self.0.append(&Trace { packet }.encode_to_vec(), items)
    }

    /// What was lost so far because there was no space.
    pub(super) fn loss(&self) -> Loss {
        self.0.loss()
    }
}

/// The part of the file that was read last.
#[derive(Default)]
struct Block {
    /// Where it begins, as bytes from the start of the file.
    begin: u64,
    bytes: Vec<u8>,
}

impl Block {
    /// Returns bytes of the file from `begin` on: at least `length`, or all up to the end of the file. Reads them if this block lacks
    /// them.
    fn at(&mut self, file: &GrowingFile, begin: u64, length: u64) -> io::Result<&[u8]> {
        let is_there =
            begin >= self.begin && (begin + length).min(file.end()) <= self.begin + self.bytes.len() as u64;
        if !is_there {
            self.begin = begin;
            self.bytes = file.read(begin, (begin + length.max(BLOCK)).min(file.end()))?;
        }
        Ok(self.bytes.get(usize::try_from(begin - self.begin).unwrap_or(usize::MAX)..).unwrap_or_default())
    }
}

/// Reads the field and the length before a packet. Returns how many bytes these two have, and how many the packet has. `None`:
/// they are incomplete, or `bytes` begin with something else.
fn frame(bytes: &[u8]) -> Option<(usize, usize)> {
    let (field, rest) = bytes.split_first()?;
    if *field != FIELD {
        return None;
    }
    // The length is a varint: 7 bits a byte, the lowest first. The highest bit says that another byte follows.
    let mut length = 0;
    for (at, byte) in rest.iter().enumerate().take(MOST_LENGTH_BYTES) {
        length |= usize::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            // The byte of the field, and `at + 1` bytes of the length.
            return Some((at + 2, length));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sinks::tracking::TrackingFile;
    use crate::sinks::tracking::pftrace::messages::TrackDescriptor;

    /// A packet of about this many bytes, with its number.
    fn packet(number: u64, length: usize) -> TracePacket {
        let name = Some("x".repeat(length));
        let track_descriptor =
            Some(TrackDescriptor { uuid: Some(number), name, ..TrackDescriptor::default() });
        TracePacket { track_descriptor, ..TracePacket::default() }
    }

    // Requirement: TIME-20
    #[test]
    fn torn_packet_of_any_length_is_cut_and_the_last_packets_are_found() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().canonicalize().unwrap().join("t.pftrace");
        let file = TrackingFile::create(path.clone(), false).unwrap();
        // Longer than a block, too.
        let packets: Vec<TracePacket> = (0..)
            .zip([10, 200_000, 3, 70_000, 100, 65_400, 120])
            .map(|(number, length)| packet(number, length))
            .collect();
        let mut written = PacketFile::open(&file.target(), 0, |_| true).unwrap();
        let mut ends = vec![0];
        for packet in &packets {
            assert!(written.append(vec![packet.clone()]).unwrap());
            ends.push(path.metadata().unwrap().len());
        }
        let whole = std::fs::read(&path).unwrap();
        for end in &ends {
            for cut in [end.saturating_sub(1), *end, end + 1, end + 3, end + 70] {
                let cut = usize::try_from(cut).unwrap().min(whole.len());
                std::fs::write(&path, &whole[..cut]).unwrap();
                let mut found = Vec::new();
                PacketFile::open(&file.target(), u64::MAX, |packet| {
                    found.push(packet.clone());
                    true
                })
                .unwrap();
                let count = ends.iter().filter(|end| **end <= cut as u64).count() - 1;
                assert_eq!(found, packets[..count], "cut at {cut}");
                assert_eq!(path.metadata().unwrap().len(), ends[count], "cut at {cut}");
            }
        }
        std::fs::write(&path, &whole).unwrap();
        let mut found = 0;
        PacketFile::open(&file.target(), 65_600, |_| {
            found += 1;
            // The last one is of a thing of which not all is there.
            found == 1
        })
        .unwrap();
        assert_eq!(found, 2, "those that begin in the last bytes");
        assert_eq!(path.metadata().unwrap().len(), ends[ends.len() - 2]);
    }

    #[test]
    fn what_is_no_packet_is_cut() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().canonicalize().unwrap().join("t.pftrace");
        let file = TrackingFile::create(path.clone(), false).unwrap();
        for garbage in [&b"\n\xff\xff\xff\xff\xff\xff"[..], b"hello", b"\n\x02\xff\xff"] {
            std::fs::write(&path, garbage).unwrap();
            PacketFile::open(&file.target(), u64::MAX, |_| true).unwrap();
            assert_eq!(path.metadata().unwrap().len(), 0, "{garbage:?}");
        }
    }
}
