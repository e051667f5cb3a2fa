//! The proxy of docker's daemon: a process that passes on what clients and daemon say to each other, and edits the requests that create
//! containers ([`create`]).
//!
//! The launcher holds the listening socket, too. So if the proxy is killed, clients wait until another proxy accepts them, and that goes on
//! with [connections that were idle](parking). When the launcher ends, the proxy lets new clients find the daemon's own socket, serves those that it has, and ends.

mod connection;
pub(crate) mod create;
mod created;
mod daemon;
mod http;
mod json;
mod parking;
mod refusal;
mod requests;
mod session_access;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use gpu_track_collector::model::containers::{ContainerNote, MOST_OF_NOTES, NotTracked};
use gpu_track_collector::run_directory::{DOCKER_SOCKET, NOTES};
use gpu_track_collector::safe_path::User;
use gpu_track_collector::{RunDirectory, container_socket};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::FileType;
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::net::{SocketFlags, accept_with};
use rustix::process::{Resource, getrlimit, setrlimit};

use self::connection::Connection;
use self::create::{Editor, Outcome};
use self::daemon::Info;
use self::parking::{Parked, Parking, State};
use self::requests::{CreateRequest, Held};
use self::session_access::SessionAccess;
use crate::process::before_main::{close_inherited_but, is_open};

/// The name of a proxy. Its arguments are the segment; descriptors of the listening socket, of a pipe that closes when the launcher ends,
/// of the lock of the run's directory, and of the [parking](Parking); the daemon's socket, and the shim.
pub(crate) const PROXY: &str = "gpu-track-docker";
/// Where no client can be accepted (too many descriptors are open), it is tried again after this time.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);
/// The stack of the thread that creates a container, bytes.
const STACK: usize = 256 << 10;

/// Runs this process as a proxy, and returns its exit status. `None`: it lacks what a proxy needs.
pub(crate) fn serve(args: &[OsString]) -> Option<i32> {
    // Of the listener, the life pipe, the lock, and the parking.
    const KINDS: [FileType; 6] = [
        FileType::Socket,
        FileType::Fifo,
        FileType::Directory,
        FileType::Socket,
        FileType::Socket,
        FileType::RegularFile,
    ];
    let [segment, fds @ .., socket, shim] = args else { return None };
    let fds: Vec<i32> = fds.iter().filter_map(|arg| arg.to_str()?.parse().ok()).collect();
    let fds: [i32; KINDS.len()] = fds.try_into().ok()?;
    if !fds.iter().zip(KINDS).all(|(fd, kind)| is_open(*fd, kind)) {
        return None;
    }
    // The proxy can outlive the run: it must keep no pipe open, nor a file system in use.
    close_inherited_but(&fds);
    let segment = std::path::absolute(segment).ok()?;
    std::env::set_current_dir("/").ok()?;
    // SAFETY: the launcher opened these descriptors for this process, and nothing else in it uses them.
    let fds = fds.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
    for fd in &fds {
        let _ = fcntl_setfd(fd, FdFlags::CLOEXEC);
    }
    let [listener, life, lock, parking @ ..] = fds;
    // The loop must not wait where another proxy has accepted the client.
    rustix::io::ioctl_fionbio(&listener, true).ok()?;
    rustix::thread::set_name(c"gpu-track-dock").ok();
    raise_descriptors();
    let of_run = || RunDirectory::of_segment(&segment);
    let directory = of_run()?;
    let editor = Editor {
        socket: socket.into(),
        of_proxy: directory.file(DOCKER_SOCKET),
        shim: shim.into(),
        segment: segment.clone(),
        info: Info::default(),
        access: SessionAccess::default(),
    };
    Proxy::new(directory, editor, (listener, life), Parking::new(parking))?.work();
    // Held, it would make the directory look used.
    drop(lock);
    // The launcher could not remove the directory while a client used it. The last to leave does.
    if let Some(directory) = of_run() {
        directory.leave_if_left();
    }
    Some(0)
}

/// Each client needs two descriptors, and 1,024 are the usual soft limit.
fn raise_descriptors() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}

/// The sockets of a client and of the daemon.
type Ends = (OwnedFd, OwnedFd);

/// What a thread has done for the request of a client.
struct Answer {
    client: u64,
    request: CreateRequest,
    outcome: Outcome,
}

struct Proxy {
    directory: RunDirectory,
    editor: Arc<Editor>,
    /// The user named no daemon by DOCKER_HOST, so docker's contexts would count without the proxy.
    hides_contexts: bool,
    /// `None`: no new clients are accepted.
    listener: Option<OwnedFd>,
    /// Closes when the launcher ends. `None`: it has.
    life: Option<OwnedFd>,
    accepts_from: Option<Instant>,
    clients: BTreeMap<u64, Connection>,
    /// What the clients' connections hold of requests.
    held: Held,
    /// The number of the next client.
    next: u64,
    answers: (Sender<Answer>, Receiver<Answer>),
    /// Clients with connections to the daemon. `None`: a client that was refused.
    connected: (Sender<Option<Ends>>, Receiver<Option<Ends>>),
    /// How many clients are being connected.
    connecting: usize,
    /// Tells the loop of an answer or a client.
    wake: Arc<OwnedFd>,
    notes: Option<File>,
    parking: Parking,
}

/// Whose descriptor is ready.
#[derive(Clone, Copy)]
enum Of {
    Listener,
    Life,
    Answers,
    Client(u64),
    Daemon(u64),
}

impl Proxy {
    /// Goes on with the connections of a killed proxy.
    fn new(
        directory: RunDirectory,
        editor: Editor,
        (listener, life): (OwnedFd, OwnedFd),
        mut parking: Parking,
    ) -> Option<Self> {
        let left: Vec<Parked> = parking.take_all().collect();
        let mut notes = OpenOptions::new();
        notes.append(true).create(true).mode(0o600);
        let notes = notes.open(directory.file(NOTES)).ok();
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let mut proxy = Self {
            directory,
            editor: Arc::new(editor),
            hides_contexts: std::env::var_os("DOCKER_HOST").is_none_or(|host| host.is_empty()),
            listener: Some(listener),
            life: Some(life),
            accepts_from: None,
            clients: BTreeMap::new(),
            held: Held::default(),
            next: 0,
            answers: channel(),
            connected: channel(),
            connecting: 0,
            wake: Arc::new(eventfd(0, flags).ok()?),
            notes,
            parking,
        };
        let editor = Arc::clone(&proxy.editor);
        // The first container does not wait for the answer then. Without a thread, it does.
        let _ = thread::Builder::new().stack_size(STACK).spawn(move || drop(editor.info()));
        for parked in left {
            proxy.next = proxy.next.max(parked.number + 1);
            if parked.is_idle {
                let connection = Connection::of_killed_proxy(parked.client, parked.daemon);
                proxy.parking.park(parked.number, connection.ends());
                proxy.clients.insert(parked.number, connection);
            } else {
                parking::close([parked.client.as_fd(), parked.daemon.as_fd()]);
            }
        }
        Some(proxy)
    }

    /// Serves clients until the launcher has ended and all of them are done.
    fn work(&mut self) {
        while self.listener.is_some() || self.connecting > 0 || !self.clients.is_empty() {
            for (of, flags) in self.wait() {
                match of {
                    Of::Listener => self.accept(),
                    Of::Life => self.stand_back(),
                    Of::Answers => self.take_what_threads_did(),
                    Of::Client(client) => {
                        self.turn(client, flags.intersects(PollFlags::HUP | PollFlags::ERR));
                    }
                    Of::Daemon(client) => self.turn(client, false),
                }
            }
        }
    }

    /// Waits until something is ready.
    fn wait(&mut self) -> Vec<(Of, PollFlags)> {
        let now = Instant::now();
        let pause =
            self.accepts_from.map(|from| from.saturating_duration_since(now)).filter(|left| !left.is_zero());
        let mut waited: Vec<(Of, BorrowedFd, PollFlags)> =
            vec![(Of::Answers, self.wake.as_fd(), PollFlags::IN)];
        if let Some(listener) = self.listener.as_ref().filter(|_| pause.is_none()) {
            waited.push((Of::Listener, listener.as_fd(), PollFlags::IN));
        }
        waited.extend(self.life.iter().map(|life| (Of::Life, life.as_fd(), PollFlags::IN)));
        for (number, connection) in &self.clients {
            let [client, daemon] = connection.wanted();
            waited.extend(client.map(|(fd, flags)| (Of::Client(*number), fd, flags)));
            waited.extend(daemon.map(|(fd, flags)| (Of::Daemon(*number), fd, flags)));
        }
        let mut fds: Vec<PollFd> =
            waited.iter().map(|(_, fd, flags)| PollFd::from_borrowed_fd(*fd, *flags)).collect();
        let timeout = pause.and_then(|pause| Timespec::try_from(pause).ok());
        if poll(&mut fds, timeout.as_ref()).is_err_and(|error| error != Errno::INTR) {
            // Only for want of memory. The loop must not spin.
            thread::sleep(ACCEPT_AGAIN);
            return Vec::new();
        }
        let ready = waited.iter().zip(&fds).filter(|(_, fd)| !fd.revents().is_empty());
        ready.map(|((of, ..), fd)| (*of, fd.revents())).collect()
    }

    /// Accepts the clients that wait.
    fn accept(&mut self) {
        while let Some(listener) = &self.listener {
            match accept_with(listener, SocketFlags::CLOEXEC) {
                Ok(client) => self.connect(client),
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(_) => {
                    self.accepts_from = Some(Instant::now() + ACCEPT_AGAIN);
                    return;
                }
            }
        }
    }

    /// Has a thread connect a client with the daemon: a daemon that does not accept must keep no other client waiting.
    fn connect(&mut self, client: OwnedFd) {
        let (editor, sender, wake) =
            (Arc::clone(&self.editor), self.connected.0.clone(), Arc::clone(&self.wake));
        let hides_contexts = self.hides_contexts;
        self.connecting += 1;
        let Ok(of_thread) = client.try_clone() else {
            let _ = sender.send(connected(client, &editor.socket, hides_contexts));
            self.take_connected();
            return;
        };
        let work = move || {
            let connect = || connected(of_thread, &editor.socket, hides_contexts);
            let _ = sender.send(panic::catch_unwind(AssertUnwindSafe(connect)).ok().flatten());
            let _ = rustix::io::write(&*wake, &1_u64.to_ne_bytes());
        };
        if thread::Builder::new().stack_size(STACK).spawn(work).is_err() {
            let _ = self.connected.0.send(connected(client, &self.editor.socket, hides_contexts));
            self.take_connected();
        }
    }

    /// Begins to serve the clients that threads have connected.
    fn take_connected(&mut self) {
        while let Ok(ends) = self.connected.1.try_recv() {
            self.connecting -= 1;
            if let Some(ends) = ends {
                self.add(ends);
            }
        }
    }

    /// Begins to serve a client.
    fn add(&mut self, (client, daemon): Ends) {
        let number = self.next;
        self.next += 1;
        let connection = Connection::new(client, daemon, self.held.clone());
        if self.parking.is_crowded(self.clients.len()) {
            self.parking.take_all().for_each(drop);
            self.clients
                .iter()
                .for_each(|(number, connection)| self.parking.park(*number, connection.ends()));
        }
        self.parking.park(number, connection.ends());
        self.clients.insert(number, connection);
        self.turn(number, false);
    }

    /// Passes on what a client and the daemon have sent to each other.
    fn turn(&mut self, number: u64, is_client_gone: bool) {
        let Some(connection) = self.clients.get_mut(&number) else { return };
        self.parking.note(number, State::Busy);
        let request = connection.turn(is_client_gone);
        self.go_on(number, request);
    }

    /// Begins to answer a request if there is one, and forgets a client that is done.
    fn go_on(&mut self, number: u64, mut request: Option<CreateRequest>) {
        while let Some(create) = request {
            request = self.answer(number, create);
        }
        let Some(connection) = self.clients.get_mut(&number) else { return };
        for why in connection.take_created() {
            self.note(&ContainerNote::NotTracked(why));
        }
        let Some(connection) = self.clients.get(&number) else { return };
        if connection.is_over() {
            self.forget(number);
        } else if connection.is_idle() {
            self.parking.note(number, State::Idle);
        }
    }

    /// Closes the connection of a client.
    fn forget(&mut self, number: u64) {
        self.parking.note(number, State::Closed);
        if let Some(connection) = self.clients.remove(&number) {
            parking::close(connection.ends());
        }
    }

    /// Has a thread create a container. Where none can be made, passes the request on, and returns what follows it.
    fn answer(&mut self, client: u64, request: CreateRequest) -> Option<CreateRequest> {
        let (editor, sender, wake) =
            (Arc::clone(&self.editor), self.answers.0.clone(), Arc::clone(&self.wake));
        let mut of_thread = request.clone();
        let pid = self.clients.get(&client).and_then(Connection::client_pid);
        let work = move || {
            // The client waits for an answer, whatever happens here.
            let created = panic::catch_unwind(AssertUnwindSafe(|| {
                editor.name_daemon(&mut of_thread);
                editor.create(&of_thread, pid)
            }));
            let outcome = created.unwrap_or(Outcome::Lost);
            let _ = sender.send(Answer { client, request: of_thread, outcome });
            let _ = rustix::io::write(&*wake, &1_u64.to_ne_bytes());
        };
        match thread::Builder::new().stack_size(STACK).spawn(work) {
            Ok(_) => None,
            Err(_) => self.clients.get_mut(&client)?.pass_on(&request, Some(NotTracked::Unusual)),
        }
    }

    fn take_what_threads_did(&mut self) {
        let _ = rustix::io::read(&*self.wake, &mut [0; 8]);
        self.take_connected();
        self.take_answers();
    }

    fn take_answers(&mut self) {
        while let Ok(Answer { client, request, outcome }) = self.answers.1.try_recv() {
            match &outcome {
                Outcome::Created { id: Some(id), .. } => {
                    let client =
                        self.clients.get(&client).and_then(Connection::client_name).unwrap_or_default();
                    self.note(&ContainerNote::Tracked { id: id.clone(), client });
                }
                Outcome::Created { id: None, .. } | Outcome::Original(_) | Outcome::Lost => {}
            }
            let Some(connection) = self.clients.get_mut(&client) else { continue };
            let next = match outcome {
                Outcome::Created { reply, is_last, .. } => connection.answer(&reply, is_last),
                Outcome::Original(why) => connection.pass_on(&request, why),
                Outcome::Lost => {
                    self.forget(client);
                    continue;
                }
            };
            self.go_on(client, next);
        }
    }

    /// Notes for the report what came of a container.
    fn note(&mut self, note: &ContainerNote) {
        let Some(notes) = &mut self.notes else { return };
        let has_room = notes.metadata().is_ok_and(|found| found.len() < MOST_OF_NOTES);
        if let Some(mut line) = serde_json::to_vec(note).ok().filter(|_| has_room) {
            line.push(b'\n');
            let _ = notes.write_all(&line);
        }
    }

    /// The launcher has ended. New clients find the daemon's own socket, and those that wait are accepted.
    fn stand_back(&mut self) {
        self.life = None;
        self.directory.stand_back();
        self.accept();
        self.listener = None;
    }
}

/// Connects a client with the daemon. A client of another daemon is refused. Without a daemon, it is told so in docker's words.
fn connected(client: OwnedFd, socket: &Path, hides_contexts: bool) -> Option<Ends> {
    let why = match refusal::reason(&client, socket, hides_contexts) {
        Some(why) => why,
        None => match container_socket::open(socket, User::this()) {
            Ok(daemon) => return Some((client, daemon)),
            Err(_) => {
                let place = socket.display();
                format!(
                    "Cannot connect to the Docker daemon at unix://{place}. Is the docker daemon running?"
                )
            }
        },
    };
    refusal::refuse(client, &why);
    None
}
