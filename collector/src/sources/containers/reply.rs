//! A request to a container daemon, and its reply. HTTP/1.0 is asked for: such a reply has no chunks, and ends when the daemon closes.
//!
//! The daemon can be hostile or stuck. Nothing here waits, and what is kept of a reply is bounded.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::socket;
use crate::sys::safe_path::User;

/// Maximum number of bytes of the status and headers.
const MOST_OF_HEAD: usize = 16 << 10;
/// Maximum number of bytes of a line of the body. A longer one is left out.
const MOST_OF_LINE: usize = 256 << 10;

/// A connection with a request that was sent.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) socket: OwnedFd,
    /// What was read and not handed on.
    buffer: Vec<u8>,
    is_head_read: bool,
    /// The rest of the line is left out, since it is too long.
    is_skipping: bool,
}

/// What a reading of a reply showed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum More {
    /// More may come.
    Yes,
    /// The daemon closed the connection.
    Closed,
    /// The daemon refused, or replied something else: why, as the end of a sentence.
    Failed(String),
}

impl Reply {
    /// Connects, and asks for this path of the daemon.
    ///
    /// # Errors
    /// If the socket can't be used, or the request can't be sent: why, as the end of a sentence.
    pub(super) fn ask(socket: &Path, user: User, path: &str) -> Result<Self, String> {
        let connection = socket::open(socket, user)?;
        let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n");
        // It is far shorter than a socket's buffer, which is empty.
        match send(&connection, request.as_bytes(), SendFlags::NOSIGNAL) {
            Ok(written) if written == request.len() => {}
            _ => return Err(format!("{} takes no request", socket.display())),
        }
        Ok(Self { socket: connection, buffer: Vec::new(), is_head_read: false, is_skipping: false })
    }

    /// Whether the daemon has agreed to reply.
    pub(super) fn has_begun(&self) -> bool {
        self.is_head_read
    }

    /// Reads what has come, and hands each whole line of the body to `line`. The last line may lack a line break.
    pub(super) fn read(&mut self, mut line: impl FnMut(&[u8])) -> More {
        let mut bytes = [0; 16 << 10];
        // A daemon that writes without end must not keep the caller here.
        for _ in 0..64 {
            match recv(&self.socket, &mut bytes, RecvFlags::DONTWAIT) {
                Ok((0, _)) => {
                    if !self.is_head_read {
                        return More::Failed("the daemon closed the connection".to_owned());
                    }
                    if !self.buffer.is_empty() && !self.is_skipping {
                        line(&self.buffer);
                    }
                    self.buffer.clear();
                    return More::Closed;
                }
                Ok((length, _)) => {
                    self.buffer.extend(bytes.get(..length).unwrap_or_default());
                    if let Err(why) = self.take_head() {
                        return More::Failed(why);
                    }
                    self.take_lines(&mut line);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(error) => return More::Failed(io::Error::from(error).to_string()),
            }
        }
        More::Yes
    }

    /// Drops the head once it is whole.
    fn take_head(&mut self) -> Result<(), String> {
        if self.is_head_read {
            return Ok(());
        }
        let Some(end) = self.buffer.windows(4).position(|bytes| bytes == b"\r\n\r\n") else {
            let is_too_long = self.buffer.len() > MOST_OF_HEAD;
            return if is_too_long { Err("the daemon does not speak HTTP".to_owned()) } else { Ok(()) };
        };
        // "HTTP/1.0 200 OK"
        let status = self.buffer.split(|byte| byte.is_ascii_whitespace()).nth(1).unwrap_or_default();
        if status != b"200" {
            let status: String = String::from_utf8_lossy(status).chars().take(9).collect();
            return Err(format!("the daemon refused the question (HTTP status {status})"));
        }
        self.buffer.drain(..end + 4);
        self.is_head_read = true;
        Ok(())
    }

    fn take_lines(&mut self, line: &mut impl FnMut(&[u8])) {
        if !self.is_head_read {
            return;
        }
        let mut from = 0;
        while let Some(length) = self.buffer.iter().skip(from).position(|byte| *byte == b'\n') {
            if !std::mem::take(&mut self.is_skipping) {
                line(self.buffer.get(from..from + length).unwrap_or_default());
            }
            from += length + 1;
        }
        self.buffer.drain(..from);
        if self.buffer.len() > MOST_OF_LINE {
            self.buffer.clear();
            self.is_skipping = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixListener;

    use super::*;

    /// What a reading of this reply, which the daemon closes after it, shows: the lines, and how it ended.
    fn replied(reply: &[u8]) -> (Vec<String>, More) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let reply = reply.to_owned();
        let daemon = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // A reply to a request that was not read whole would reset the connection.
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                request.extend(byte);
            }
            assert!(request.starts_with(b"GET /events HTTP/1.0\r\n"));
            let _ = stream.write_all(&reply);
        });
        let mut asked = Reply::ask(&path, User::this(), "/events").unwrap();
        let mut lines = Vec::new();
        let end = loop {
            let more = asked.read(|line| lines.push(String::from_utf8_lossy(line).into_owned()));
            if more != More::Yes {
                break more;
            }
            std::thread::yield_now();
        };
        drop(asked);
        daemon.join().unwrap();
        (lines, end)
    }

    // Requirement: SEE-136
    #[test]
    fn lines_of_the_body_are_handed_on_and_a_long_one_is_left_out() {
        let (lines, end) = replied(b"HTTP/1.0 200 OK\r\nA: b\r\n\r\n{1}\n{2}\n{3");
        assert_eq!((lines.join(" ").as_str(), end), ("{1} {2} {3", More::Closed));
        let long = "x".repeat(2 * MOST_OF_LINE);
        let (lines, end) = replied(format!("HTTP/1.1 200 OK\r\n\r\n{long}\n{{1}}\n").as_bytes());
        assert_eq!((lines.join(" ").as_str(), end), ("{1}", More::Closed));
    }

    // Requirement: SEE-136
    #[test]
    fn what_is_no_reply_is_an_error() {
        for (reply, why) in [
            ("", "closed"),
            ("HTTP/1.0 404 Not Found\r\n\r\n", "status 404"),
            ("\r\n\r\n", "status "),
            (&"x".repeat(2 * MOST_OF_HEAD), "does not speak HTTP"),
        ] {
            match replied(reply.as_bytes()) {
                (lines, More::Failed(said)) if lines.is_empty() => assert!(said.contains(why), "{said}"),
                other => panic!("{other:?}"),
            }
        }
    }
}
