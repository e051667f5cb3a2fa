//! The launcher's ends of the two pipes to a collector: messages go there, orders come back, each a JSON object a line.
//!
//! A collector that is stopped must not stop the launcher. So no read and no write waits, except the first write, which is that of
//! the configuration.

use std::io::{self, ErrorKind, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

use gpu_track_collector::model::config::{Config, Message};
use gpu_track_collector::model::order::LONGEST_LINE_BYTES;
use gpu_track_collector::model::order::Order;
use rustix::event::{PollFd, PollFlags, poll};
use serde::Serialize;

/// Where the configuration and the messages go.
pub(crate) struct MessagePipe {
    /// `None`: the collector has ended. The launcher reaps it, and learns of it there.
    pipe: Option<PipeWriter>,
    /// Lines, the first perhaps in part, for which the pipe had no room.
    unsent: Vec<u8>,
}

impl MessagePipe {
    /// Writes the configuration, and waits until there is room for it.
    pub(crate) fn new(pipe: PipeWriter, config: &Config) -> Self {
        let mut new = Self { pipe: Some(pipe), unsent: Vec::new() };
        new.send_line(config);
        // From now on, a write that finds no room does not wait. If that can't be set, no message is sent: a write could stop the launcher.
        if new.pipe.as_ref().is_some_and(|pipe| rustix::io::ioctl_fionbio(pipe, true).is_err()) {
            new.pipe = None;
        }
        new
    }

    /// Sends a message, or keeps it for [`Self::flush`].
    pub(crate) fn send(&mut self, message: &Message) {
        self.send_line(message);
    }

    /// Sends a line, or keeps it until there is room for it.
    fn send_line(&mut self, line: &impl Serialize) {
        if let Ok(line) = serde_json::to_vec(line) {
            self.unsent.extend(line);
            self.unsent.push(b'\n');
            self.flush();
        }
    }

    /// Writes as many of the unsent bytes as the pipe has room for. Closes the pipe if the collector has ended.
    pub(crate) fn flush(&mut self) {
        while let Some(pipe) = &mut self.pipe
            && !self.unsent.is_empty()
        {
            match pipe.write(&self.unsent) {
                Ok(written) => drop(self.unsent.drain(..written)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => self.pipe = None,
            }
        }
    }

    /// Waits until no bytes are unsent, or the collector has ended.
    pub(crate) fn flush_all(&mut self) {
        while let Some(pipe) = self.blocked() {
            // An error is tried again: it is a signal, or a lack of memory.
            let _ = poll(&mut [PollFd::from_borrowed_fd(pipe, PollFlags::OUT)], None);
            self.flush();
        }
    }

    /// The pipe, if there are unsent bytes.
    pub(crate) fn blocked(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().filter(|_| !self.unsent.is_empty()).map(AsFd::as_fd)
    }
}

/// Where the orders come from.
pub(crate) struct OrderPipe {
    /// `None`: the collector has closed its end.
    pipe: Option<PipeReader>,
    /// What was read, and not returned as a line yet.
    read: Vec<u8>,
}

impl OrderPipe {
    /// Takes the pipe, whose reads do not wait from now on.
    pub(crate) fn new(pipe: PipeReader) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&pipe, true)?;
        Ok(Self { pipe: Some(pipe), read: Vec::new() })
    }

    /// Reads the next order that has come. Lines that are no order are skipped. `None`: there is none now.
    pub(crate) fn next(&mut self) -> Option<Order> {
        while let Some(line) = self.line() {
            if let Ok(order) = serde_json::from_slice(&line) {
                return Some(order);
            }
        }
        None
    }

    /// Reads the next whole line that has come. `None`: there is none now, or the pipe is closed. Closes the pipe if the collector
    /// has closed its end, or if a line is too long to be an order.
    fn line(&mut self) -> Option<Vec<u8>> {
        let mut chunk = [0; LONGEST_LINE_BYTES];
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let rest = self.read.split_off(end + 1);
                return Some(std::mem::replace(&mut self.read, rest));
            }
            match self.pipe.as_mut()?.read(&mut chunk) {
                Ok(length) if length > 0 && self.read.len() < LONGEST_LINE_BYTES => {
                    self.read.extend_from_slice(chunk.get(..length).unwrap_or_default());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                _ => self.pipe = None,
            }
        }
    }

    /// Closes the pipe: no more orders are taken, and the collector's writes fail.
    pub(crate) fn close(&mut self) {
        self.pipe = None;
    }

    /// The pipe, as long as orders can come.
    pub(crate) fn open(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(AsFd::as_fd)
    }
}

#[cfg(test)]
mod tests {
    use gpu_track_collector::model::order::{Action, OrderId, OrderResult, OrderedBy};

    use super::*;

    const ID: OrderId = OrderId { by: OrderedBy::WaitAll, epoch: 0 };

    fn message_pipe() -> (PipeReader, MessagePipe) {
        let (reader, writer) = io::pipe().unwrap();
        rustix::io::ioctl_fionbio(&writer, true).unwrap();
        (reader, MessagePipe { pipe: Some(writer), unsent: Vec::new() })
    }

    // Requirement: FAULT-96
    #[test]
    fn messages_wait_for_a_stopped_collector_and_none_is_lost() {
        let (mut reader, mut pipe) = message_pipe();
        let message = |since_ns| Message::WaitingForTree { since_ns };
        let count = 10_000;
        // More than a pipe holds.
        (0..count).for_each(|number| pipe.send(&message(number)));
        assert!(pipe.blocked().is_some());
        let reads = std::thread::spawn(move || {
            let mut all = String::new();
            reader.read_to_string(&mut all).map(|_| all)
        });
        pipe.flush_all();
        assert!(pipe.blocked().is_none());
        drop(pipe);
        let all = reads.join().unwrap().unwrap();
        let lines = all.lines().map(|line| serde_json::from_str::<Message>(line).unwrap());
        assert!(lines.eq((0..count).map(message)));
    }

    #[test]
    fn pipe_of_an_ended_collector_takes_nothing_and_blocks_nobody() {
        let (reader, mut pipe) = message_pipe();
        drop(reader);
        pipe.send(&Message::OrderAnswered { id: ID, result: OrderResult::Done, excess: None });
        pipe.flush_all();
        assert!(pipe.blocked().is_none());
    }

    // Requirement: FAULT-95
    #[test]
    fn orders_are_read_line_by_line_and_what_is_none_is_left_out() {
        let (reader, mut writer) = io::pipe().unwrap();
        let mut pipe = OrderPipe::new(reader).unwrap();
        assert_eq!(pipe.next(), None);
        let order = |text: &str| Order { id: ID, action: Action::Tell(text.into()) };
        let line = |text: &str| format!("{}\n", serde_json::to_string(&order(text)).unwrap());
        let (head, tail) = (line("second"), line("third"));
        let (head, rest) = head.split_at(9);
        write!(writer, "{}no order\n{head}", line("first")).unwrap();
        assert_eq!((pipe.next(), pipe.next()), (Some(order("first")), None));
        write!(writer, "{rest}{tail}").unwrap();
        assert_eq!([pipe.next(), pipe.next()], [Some(order("second")), Some(order("third"))]);
        assert!(pipe.open().is_some());
        drop(writer);
        assert_eq!(pipe.next(), None);
        assert!(pipe.open().is_none(), "a closed end is no longer waited for");
    }

    #[test]
    fn endless_line_ends_the_pipe() {
        let (reader, mut writer) = io::pipe().unwrap();
        let mut pipe = OrderPipe::new(reader).unwrap();
        writer.write_all(&[b'x'; 3 * LONGEST_LINE_BYTES]).unwrap();
        assert_eq!(pipe.next(), None);
        assert!(pipe.open().is_none());
    }
}
