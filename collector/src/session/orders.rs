//! Sends orders to the launcher, through a pipe: a line for each, with a JSON object.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::OwnedFd;

use crate::model::order::{LONGEST_LINE_BYTES, Order};

/// The end of the pipe that the collector writes to. `None`: the launcher is gone.
///
/// A write never blocks. A line that finds the pipe full is dropped, and the core issues its order again.
pub(super) struct OrderPipe(Option<File>);

impl OrderPipe {
    pub(super) fn new(pipe: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&pipe, true)?;
        Ok(Self(Some(pipe.into())))
    }

    /// Writes the orders, a line each. A line that is too long, or finds the pipe full, is dropped.
    pub(super) fn send(&mut self, orders: Vec<Order>) {
        for order in orders {
            let Ok(mut line) = serde_json::to_vec(&order) else { continue };
            line.push(b'\n');
            if line.len() <= LONGEST_LINE_BYTES {
                self.write(&line);
            }
        }
    }

    /// Writes a line, if the pipe has room for it. A pipe takes a line of at most [`LONGEST_LINE_BYTES`] as a whole or not at all.
    fn write(&mut self, line: &[u8]) {
        if let Some(pipe) = &mut self.0
            && let Err(error) = pipe.write(line)
            && !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
        {
            self.0 = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::model::order::{Action, OrderId, OrderedBy};

    // Requirement: FAULT-95
    #[test]
    fn full_pipe_drops_whole_lines_and_a_closed_one_ends_it() {
        let order = |epoch: u32| Order {
            id: OrderId { by: OrderedBy::WaitAll, epoch },
            action: Action::Tell("x".repeat(3000)),
        };
        let (mut reader, writer) = std::io::pipe().unwrap();
        let mut pipe = OrderPipe::new(writer.into()).unwrap();
        // More than any pipe holds by default. It would block here.
        pipe.send((0..1000).map(order).collect());
        rustix::io::ioctl_fionbio(&reader, true).unwrap();
        let mut written = Vec::new();
        assert_eq!(reader.read_to_end(&mut written).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert!(written.ends_with(b"\n"));
        let lines: Vec<_> = written.split_inclusive(|byte| *byte == b'\n').collect();
        assert!(lines.len() > 1 && lines.len() < 1000);
        for (epoch, line) in (0..).zip(lines) {
            assert_eq!(serde_json::from_slice::<Order>(line).unwrap(), order(epoch));
        }
        drop(reader);
        // A child that another test has just forked holds the other end, too, until its exec.
        let given_up = Instant::now() + Duration::from_secs(60);
        while pipe.0.is_some() && Instant::now() < given_up {
            pipe.send(vec![order(0)]);
            std::thread::yield_now();
        }
        assert!(pipe.0.is_none());
    }
}
