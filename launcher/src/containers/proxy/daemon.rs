//! Questions of the proxy itself to docker's daemon, each on a connection of its own.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use gpu_track_collector::container_socket;
use gpu_track_collector::safe_path::User;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use serde_json::Value;

use super::http::{Body, Head, MOST_OF_HEAD, end_of_head};

/// Maximum number of bytes of a reply's body.
const MOST_OF_BODY: usize = 16 << 20;
/// How long a reply about the daemon or an image is waited for.
const LONGEST_ANSWER: Duration = Duration::from_secs(10);

/// A reply.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    /// As it was sent, with its head.
    pub(super) bytes: Vec<u8>,
    /// Where the body begins.
    body_at: usize,
    is_chunked: bool,
    /// The daemon closes its connection after it.
    pub(super) is_last: bool,
}

impl Reply {
    /// The body as JSON. `None`: it is none, or it comes in chunks that are not all of one piece.
    pub(super) fn json(&self) -> Option<Value> {
        let body = self.bytes.get(self.body_at..)?;
        if !self.is_chunked {
            return serde_json::from_slice(body).ok();
        }
        serde_json::from_slice(&joined(body)?).ok()
    }
}

/// The data of a body in chunks, which is complete.
fn joined(mut body: &[u8]) -> Option<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        let line = body.windows(2).position(|two| two == b"\r\n")?;
        let size = std::str::from_utf8(body.get(..line)?).ok()?.split(';').next()?.trim_end();
        let size = usize::from_str_radix(size, 16).ok()?;
        if size == 0 {
            return Some(all);
        }
        let data = body.get(line + 2..)?;
        all.extend_from_slice(data.get(..size)?);
        body = data.get(size..)?.strip_prefix(b"\r\n")?;
    }
}

/// What the daemon says of itself, once it was asked. To answer, it counts its containers and images: some milliseconds or more.
#[derive(Debug, Default)]
pub(super) struct Info(OnceLock<Arc<Value>>);

impl Info {
    /// Asks the daemon at `socket`, unless it has answered before. `None`: it does not answer.
    pub(super) fn of(&self, socket: &Path) -> Option<Arc<Value>> {
        if let Some(known) = self.0.get() {
            return Some(Arc::clone(known));
        }
        let reply = get(socket, "/info").filter(|reply| reply.status == 200);
        let info = reply?.json().filter(|info| info.get("KernelVersion").is_some())?;
        Some(Arc::clone(self.0.get_or_init(|| Arc::new(info))))
    }
}

/// Why there is no reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoReply {
    /// The request was not sent.
    NotAsked,
    /// The request was sent, in part at least.
    Lost,
}

/// Asks the daemon for this path.
pub(super) fn get(socket: &Path, path: &str) -> Option<Reply> {
    let connection = container_socket::open(socket, User::this()).ok()?;
    set_socket_timeout(&connection, Timeout::Recv, Some(LONGEST_ANSWER)).ok()?;
    ask(connection, format!("GET {path} HTTP/1.1\r\nHost: docker\r\n\r\n").as_bytes())
}

/// Sends the daemon this request, and waits for the reply, however long it takes.
pub(super) fn send(socket: &Path, request: &[u8]) -> Result<Reply, NoReply> {
    let connection = patient(socket).ok_or(NoReply::NotAsked)?;
    ask(connection, request).ok_or(NoReply::Lost)
}

/// A connection without timeouts.
fn patient(socket: &Path) -> Option<OwnedFd> {
    let connection = container_socket::open(socket, User::this()).ok()?;
    for timeout in [Timeout::Send, Timeout::Recv] {
        set_socket_timeout(&connection, timeout, None).ok()?;
    }
    Some(connection)
}

/// Sends a request, and reads the reply. `None`: it was not sent as a whole, or the reply is not understood.
fn ask(connection: OwnedFd, request: &[u8]) -> Option<Reply> {
    let mut connection = File::from(connection);
    connection.write_all(request).ok()?;
    let mut bytes = Vec::new();
    let mut more = |bytes: &mut Vec<u8>| {
        let mut part = [0; 16 << 10];
        let length = connection.read(&mut part).ok()?;
        bytes.extend_from_slice(part.get(..length)?);
        Some(length)
    };
    let body_at = loop {
        match end_of_head(&bytes) {
            Some(end) => break end,
            None if bytes.len() > MOST_OF_HEAD || more(&mut bytes)? == 0 => return None,
            None => {}
        }
    };
    let head = Head::parse(bytes.get(..body_at)?)?;
    let [_, status, _] = &head.first;
    let status = status.parse().ok()?;
    let mut body = head.body(Body::UntilClose)?;
    let is_chunked = matches!(body, Body::Chunked(_));
    let is_last = head.is_last() || body == Body::UntilClose;
    let mut taken = body_at;
    loop {
        taken += body.take(bytes.get(taken..)?)?;
        // What follows would be the reply to another request.
        let is_over = body.is_over() || (more(&mut bytes)? == 0 && body == Body::UntilClose);
        if is_over {
            bytes.truncate(taken);
            return Some(Reply { status, bytes, body_at, is_chunked, is_last });
        }
        if bytes.len() > MOST_OF_BODY || bytes.len() == taken {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use rustix::net::sockopt::socket_timeout;

    use super::*;

    // Requirement: SEE-142
    #[test]
    fn request_for_a_container_is_sent_and_answered_however_long_it_takes() {
        let directory = tempfile::tempdir().unwrap();
        let _listener = UnixListener::bind(directory.path().join("d")).unwrap();
        let connection = patient(&directory.path().join("d")).unwrap();
        for timeout in [Timeout::Send, Timeout::Recv] {
            assert_eq!(socket_timeout(&connection, timeout), Ok(None));
        }
    }
}
