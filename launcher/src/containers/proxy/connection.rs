//! A client's connection and the daemon's that stands for it: what comes from one goes to the other, with its end.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use gpu_track_collector::model::containers::NotTracked;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

use super::created::AwaitedReply;
use super::requests::{CreateRequest, Held, Requests};

/// Maximum number of bytes of one direction that wait until they are taken. What comes after that waits in its sender.
const MOST_WAITING: usize = 256 << 10;
/// A connection gives way to others after it has read this often.
const MOST_TURNS: usize = 16;

/// See the module.
#[derive(Debug)]
pub(super) struct Connection {
    client: OwnedFd,
    daemon: OwnedFd,
    /// From the client to the daemon.
    up: Flow,
    /// From the daemon to the client.
    down: Flow,
    requests: Requests,
    /// The reply to a request that passed on as it was sent.
    awaited: Option<AwaitedReply>,
    /// Why containers were created as the client asked for, since this was asked last.
    created: Vec<NotTracked>,
    /// A request is answered in another way: nothing is read from the client meanwhile.
    is_held: bool,
    /// The client has closed its connection.
    is_client_gone: bool,
    /// Nothing can be done for it any more.
    is_broken: bool,
}

/// What waits to be sent in one direction.
#[derive(Debug, Default)]
struct Flow {
    waiting: Vec<u8>,
    /// Its sender sends no more.
    is_over: bool,
    /// Its receiver knows that.
    is_shut: bool,
}

/// What came of reading or sending.
enum Done {
    Some,
    Nothing,
    /// The other end is closed.
    Closed,
}

impl Flow {
    fn has_room(&self) -> bool {
        !self.is_over && self.waiting.len() < MOST_WAITING
    }

    /// Sends what waits, as much as is taken. Then hands its end on.
    fn send(&mut self, to: BorrowedFd) -> Done {
        let mut sent = 0;
        let result = loop {
            let Some(rest) = self.waiting.get(sent..).filter(|rest| !rest.is_empty()) else { break Ok(()) };
            match send(to, rest, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(length) => sent += length,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break Ok(()),
                Err(_) => break Err(()),
            }
        };
        self.waiting.drain(..sent);
        if result.is_err() {
            return Done::Closed;
        }
        if self.waiting.is_empty() && self.is_over && !self.is_shut {
            self.is_shut = true;
            let _ = shutdown(to, Shutdown::Write);
        }
        if sent > 0 { Done::Some } else { Done::Nothing }
    }
}

/// Reads once. The bytes are added to `into`.
fn read(from: BorrowedFd, into: &mut Vec<u8>) -> Done {
    let mut bytes = [0; 64 << 10];
    loop {
        return match recv(from, &mut bytes, RecvFlags::DONTWAIT) {
            Ok((0, _)) => Done::Closed,
            Ok((length, _)) => {
                into.extend_from_slice(bytes.get(..length).unwrap_or_default());
                Done::Some
            }
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) => Done::Nothing,
            Err(_) => Done::Closed,
        };
    }
}

impl Connection {
    pub(super) fn new(client: OwnedFd, daemon: OwnedFd, held: Held) -> Self {
        Self {
            client,
            daemon,
            up: Flow::default(),
            down: Flow::default(),
            requests: Requests::new(held),
            awaited: None,
            created: Vec::new(),
            is_held: false,
            is_client_gone: false,
            is_broken: false,
        }
    }

    /// Goes on with a connection of a killed proxy, of which all that had come was passed on.
    pub(super) fn of_killed_proxy(client: OwnedFd, daemon: OwnedFd) -> Self {
        Self { requests: Requests::of_killed_proxy(), ..Self::new(client, daemon, Held::default()) }
    }

    /// Its ends: the client's and the daemon's.
    pub(super) fn ends(&self) -> [BorrowedFd<'_>; 2] {
        [self.client.as_fd(), self.daemon.as_fd()]
    }

    /// Whether all that has come is passed on, ends included.
    pub(super) fn is_idle(&self) -> bool {
        let is_done = |flow: &Flow| flow.waiting.is_empty() && flow.is_over == flow.is_shut;
        !self.is_held && self.requests.is_passed_on() && is_done(&self.up) && is_done(&self.down)
    }

    /// The client's process. `None`: it is in another pid namespace.
    pub(super) fn client_pid(&self) -> Option<i32> {
        Some(socket_peercred(&self.client).ok()?.pid.as_raw_pid()).filter(|pid| *pid > 0)
    }

    /// The name of the client's process. `None`: it is gone, or in another pid namespace.
    pub(super) fn client_name(&self) -> Option<String> {
        let pid = self.client_pid()?;
        let name = std::fs::read(format!("/proc/{pid}/comm")).ok()?;
        Some(String::from_utf8_lossy(name.strip_suffix(b"\n").unwrap_or(&name)).into_owned())
    }

    /// What is waited for at the client's end and at the daemon's. `None`: nothing can come of it.
    pub(super) fn wanted(&self) -> [Option<(BorrowedFd<'_>, PollFlags)>; 2] {
        let flags = |reads: bool, writes: bool| {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::IN, reads);
            flags.set(PollFlags::OUT, writes);
            flags
        };
        let of_client = flags(self.up.has_room() && !self.is_held, !self.down.waiting.is_empty());
        let of_daemon = flags(self.down.has_room(), !self.up.waiting.is_empty());
        // Without flags, the end of the client's connection is told.
        let client = (!self.is_client_gone).then(|| (self.client.as_fd(), of_client));
        let daemon = (!of_daemon.is_empty()).then(|| (self.daemon.as_fd(), of_daemon));
        [client, daemon]
    }

    /// Passes on what can be passed on now. Returns a request that creates a container: until [`Self::answer`] or [`Self::pass_on`] is
    /// called, nothing more is read from the client. `is_client_gone`: the client has closed its connection.
    pub(super) fn turn(&mut self, is_client_gone: bool) -> Option<CreateRequest> {
        self.is_client_gone |= is_client_gone;
        for _ in 0..MOST_TURNS {
            let mut has_done = false;
            if self.down.has_room() {
                let before = self.down.waiting.len();
                match read(self.daemon.as_fd(), &mut self.down.waiting) {
                    Done::Some => {
                        has_done = true;
                        self.requests.note_reply();
                        self.look_at_reply(before);
                    }
                    Done::Nothing => {}
                    Done::Closed => self.down.is_over = true,
                }
            }
            match self.down.send(self.client.as_fd()) {
                Done::Some => has_done = true,
                Done::Nothing => {}
                Done::Closed => self.is_broken = true,
            }
            if self.up.has_room() && !self.is_held {
                let mut bytes = Vec::new();
                match read(self.client.as_fd(), &mut bytes) {
                    Done::Some => {
                        has_done = true;
                        let create = self.requests.take(&bytes, &mut self.up.waiting);
                        self.note_unusual();
                        if let Some(create) = create {
                            self.is_held = true;
                            self.send_up();
                            return Some(create);
                        }
                    }
                    Done::Nothing => {}
                    Done::Closed => {
                        self.up.is_over = true;
                        self.requests.end(&mut self.up.waiting);
                    }
                }
            }
            has_done |= self.send_up();
            if !has_done || self.is_over() {
                break;
            }
        }
        None
    }

    /// Notes a container if the daemon says that it has created one that is waited for. Its last words are those from `at` on.
    fn look_at_reply(&mut self, at: usize) {
        let Some(awaited) = &mut self.awaited else { return };
        if let Some(is_created) = awaited.take(self.down.waiting.get(at..).unwrap_or_default()) {
            self.created.extend(is_created.then_some(awaited.why));
            self.awaited = None;
        }
    }

    /// Notes requests for containers that passed on.
    fn note_unusual(&mut self) {
        for is_next in self.requests.take_unusual() {
            if is_next {
                self.awaited = Some(AwaitedReply::new(NotTracked::Unusual));
            } else {
                self.created.push(NotTracked::Unusual);
            }
        }
    }

    /// Why containers were created as the client asked for, since the last call.
    pub(super) fn take_created(&mut self) -> Vec<NotTracked> {
        std::mem::take(&mut self.created)
    }

    /// Sends the daemon what waits for it. Returns whether something was sent.
    fn send_up(&mut self) -> bool {
        match self.up.send(self.daemon.as_fd()) {
            Done::Some => true,
            Done::Nothing => false,
            Done::Closed => {
                // The daemon takes no more, but its reply may still come.
                self.up = Flow { waiting: Vec::new(), is_over: true, is_shut: true };
                false
            }
        }
    }

    /// Sends the client this reply to the request that is held. `is_last`: then closes the connection, as daemon or client have said.
    pub(super) fn answer(&mut self, reply: &[u8], is_last: bool) -> Option<CreateRequest> {
        self.down.waiting.extend_from_slice(reply);
        if is_last {
            self.is_held = false;
            (self.up.is_over, self.down.is_over) = (true, true);
            return self.turn(false);
        }
        self.requests.note_reply();
        self.go_on()
    }

    /// Passes the request that is held on as it was sent. `why` its container is not tracked, if it is created.
    pub(super) fn pass_on(
        &mut self,
        request: &CreateRequest,
        why: Option<NotTracked>,
    ) -> Option<CreateRequest> {
        self.awaited = why.map(AwaitedReply::new);
        self.up.waiting.extend(request.bytes());
        self.go_on()
    }

    /// Takes what has come behind a request that was held. That can be another one.
    fn go_on(&mut self) -> Option<CreateRequest> {
        let next = self.requests.take(&[], &mut self.up.waiting);
        self.note_unusual();
        self.is_held = next.is_some();
        next.or_else(|| self.turn(false))
    }

    /// Whether both ends have said all.
    pub(super) fn is_over(&self) -> bool {
        let is_left =
            self.is_client_gone && (self.is_held || (self.up.is_over && self.up.waiting.is_empty()));
        self.is_broken || is_left || (self.up.is_shut && self.down.is_shut)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    const CREATE: &[u8] =
        b"POST /containers/create HTTP/1.1\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}";

    /// A connection, with the client's end and the daemon's.
    fn connection() -> (Connection, UnixStream, UnixStream) {
        let [(client, of_client), (daemon, of_daemon)] = [(); 2].map(|()| UnixStream::pair().unwrap());
        (Connection::new(of_client.into(), of_daemon.into(), Held::default()), client, daemon)
    }

    // Requirement: SEE-142
    #[test]
    fn connection_closes_after_the_last_reply() {
        let (mut connection, mut client, _daemon) = connection();
        client.write_all(CREATE).unwrap();
        assert!(connection.turn(false).unwrap().head.is_last());
        assert!(connection.answer(b"HTTP/1.1 201 Created\r\n\r\n", true).is_none());
        assert!(connection.is_over());
        let mut all = String::new();
        client.read_to_string(&mut all).unwrap();
        assert_eq!(all, "HTTP/1.1 201 Created\r\n\r\n");
    }

    // Requirement: SEE-140
    #[test]
    fn container_that_passed_on_counts_once_the_daemon_has_created_it() {
        for (status, expected) in [("201 Created", vec![NotTracked::Kept]), ("400 Bad", vec![])] {
            let (mut connection, mut client, mut daemon) = connection();
            client.write_all(CREATE).unwrap();
            let request = connection.turn(false).unwrap();
            assert!(connection.pass_on(&request, Some(NotTracked::Kept)).is_none());
            assert_eq!(connection.take_created(), []);
            daemon.write_all(format!("HTTP/1.1 {status}\r\n\r\n").as_bytes()).unwrap();
            assert!(connection.turn(false).is_none());
            assert_eq!(connection.take_created(), expected);
        }
    }
}
