//! A tracking file in the form .pftrace, read byte by byte: what is known here of the form are numbers of Perfetto's fields.

use std::collections::HashMap;
use std::path::Path;

/// A field of a message.
enum Field {
    Number(u64),
    Bytes(Vec<u8>),
}

/// A message of protobuf: its fields with their numbers.
struct Message(Vec<(u64, Field)>);

/// Takes a number off the front. `None`: it is torn.
fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    panic!("a number of more than 10 bytes");
}

/// Takes so many bytes off the front. `None`: it has fewer.
fn take_bytes(bytes: &mut &[u8], length: u64) -> Option<Vec<u8>> {
    let (taken, rest) = bytes.split_at_checked(usize::try_from(length).unwrap())?;
    *bytes = rest;
    Some(taken.to_vec())
}

impl Message {
    /// Reads the fields up to a torn one.
    fn up_to_tear(mut bytes: &[u8]) -> Self {
        let mut fields = Vec::new();
        while let Some(field) = Self::take_field(&mut bytes) {
            fields.push(field);
        }
        Self(fields)
    }

    fn take_field(bytes: &mut &[u8]) -> Option<(u64, Field)> {
        let tag = take_number(bytes)?;
        let field = match tag & 7 {
            0 => Field::Number(take_number(bytes)?),
            1 => Field::Bytes(take_bytes(bytes, 8)?),
            2 => {
                let length = take_number(bytes)?;
                Field::Bytes(take_bytes(bytes, length)?)
            }
            kind => panic!("a field of kind {kind}"),
        };
        Some((tag >> 3, field))
    }

    fn number(&self, number: u64) -> Option<u64> {
        self.0.iter().find_map(|(field, value)| match value {
            Field::Number(value) if *field == number => Some(*value),
            _ => None,
        })
    }

    fn all(&self, number: u64) -> impl Iterator<Item = &[u8]> {
        self.0.iter().filter_map(move |(field, value)| match value {
            Field::Bytes(bytes) if *field == number => Some(&bytes[..]),
            _ => None,
        })
    }

    fn messages(&self, number: u64) -> impl Iterator<Item = Self> {
        self.all(number).map(Self::up_to_tear)
    }
}

/// What a packet is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It begins a sequence.
    First,
    /// It declares a track.
    Track,
    /// A process or a task begins.
    Begin,
    /// A process or a task ends.
    End,
    /// Anything else.
    Other,
}

impl Kind {
    fn of(packet: &Message) -> Self {
        let event = packet.messages(11).next().and_then(|event| event.number(9));
        match event {
            _ if packet.number(13) == Some(1) => Self::First,
            _ if packet.all(60).next().is_some() => Self::Track,
            Some(1) => Self::Begin,
            Some(2) => Self::End,
            _ => Self::Other,
        }
    }
}

/// A trace that was read.
#[derive(Default)]
pub struct Trace {
    /// Keys of the rows, CLOCK_MONOTONIC nanoseconds.
    pub keys: Vec<u64>,
    /// Keys of the processes: pid and start.
    pub processes: Vec<(u64, u64)>,
    /// The times for which tasks ran: number and begin.
    pub tasks: Vec<(u64, u64)>,
    /// How many sequences of packets there are, one for each collector.
    pub sequences: usize,
}

impl Trace {
    /// The packets of a file, each as it is there.
    pub fn packets(path: &Path) -> Vec<(Kind, Vec<u8>)> {
        let file = std::fs::read(path).unwrap();
        let (mut rest, mut packets) = (&file[..], Vec::new());
        while !rest.is_empty() {
            let before = rest;
            let Some((1, Field::Bytes(packet))) = Message::take_field(&mut rest) else { panic!("{rest:?}") };
            packets.push((
                Kind::of(&Message::up_to_tear(&packet)),
                before[..before.len() - rest.len()].to_vec(),
            ));
        }
        packets
    }

    /// Reads a file. Only its last packet may be torn, and only the last slice may lack its end.
    pub fn read(path: &Path) -> Self {
        let file = Message::up_to_tear(&std::fs::read(path).unwrap());
        let (mut trace, mut names) = (Self::default(), HashMap::new());
        // By track: whether it is a process, and its key.
        let mut begun: HashMap<u64, (bool, (u64, u64))> = HashMap::new();
        for packet in file.messages(1) {
            let sequence = packet.number(10).unwrap();
            let kind = Kind::of(&packet);
            trace.sequences += usize::from(kind == Kind::First);
            for name in packet.messages(12).flat_map(|interned| interned.messages(3).collect::<Vec<_>>()) {
                let text = String::from_utf8(name.all(2).next().unwrap().to_vec()).unwrap();
                names.insert((sequence, name.number(1).unwrap()), text);
            }
            let Some(event) = packet.messages(11).next() else { continue };
            let argument = |wanted: &str| {
                let of_name = |argument: &Message| names[&(sequence, argument.number(1).unwrap())] == wanted;
                event.messages(4).find(of_name).map(|argument| argument.number(3).unwrap())
            };
            trace.keys.extend(argument("end of the interval (ns)"));
            let (at_ns, track) = (packet.number(8).unwrap(), event.number(11).unwrap());
            match kind {
                Kind::Begin => {
                    let pid = argument("pid");
                    let key = (pid.unwrap_or_else(|| argument("task").unwrap()), at_ns);
                    let before = begun.insert(track, (pid.is_some(), key));
                    assert_eq!(before, None, "a slice has no end");
                }
                Kind::End => {
                    let (is_process, key) = begun.remove(&track).unwrap();
                    if is_process { &mut trace.processes } else { &mut trace.tasks }.push(key);
                }
                _ => {}
            }
        }
        assert!(begun.len() <= 1, "slices have no end: {begun:?}");
        trace
    }
}
