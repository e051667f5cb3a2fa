//! The thread that follows the containers of one daemon: it reads the daemon's events, and waits for the containers' ends.

use std::collections::BTreeMap;
use std::fs::{Metadata, symlink_metadata};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;

use super::event::{self, Event, What};
use super::followed::{Followed, Located, Place};
use super::reply::{More, Reply};
use super::shared::Shared;
use crate::model::containers::{ContainerDaemon, ContainerSeen, ContainerWish, MOST_CONTAINERS};
use crate::sources::cgroup::container::CountedGroup;
use crate::sys::clock;
use crate::sys::files::open_regular;
use crate::sys::proc_fs::ProcRoot;
use crate::sys::safe_path::User;

/// What no descriptor tells is looked at this often: the files of `--cidfile`, late answers, and a daemon that could not be reached.
const LOOKING: Duration = Duration::from_secs(1);
/// A cgroup that is about to be made is looked for this often. A container of `true` lives for 30 ms from there on.
const SEARCHING: Duration = Duration::from_millis(5);
/// How long an answer about a container is waited for.
const LONGEST_ANSWER: Duration = Duration::from_secs(5);
/// Maximum number of questions that wait for an answer.
const MOST_QUESTIONS: usize = 16;
/// Maximum number of descriptors of containers' processes, a part of what any user may have open (1,024).
const MOST_PROCESSES: usize = 128;
/// How long the last readings may take, after the daemon's last events.
const FOR_LAST_READING: Duration = Duration::from_millis(100);
/// The length of a file with the id of a container, bytes: 64 digits, and a line's end.
const CIDFILE_BYTES: RangeInclusive<u64> = 64..=66;

/// What a follower begins with.
#[derive(Debug)]
pub(super) struct Start {
    pub(super) daemon: ContainerDaemon,
    pub(super) root: ProcRoot,
    pub(super) user: User,
    /// Paths at which the daemon's socket can be.
    pub(super) sockets: Vec<PathBuf>,
    /// When the run began, nanoseconds since 1970. Earlier events don't count.
    pub(super) since_ns: u64,
    /// Containers that an earlier collector knew.
    pub(super) known: Vec<ContainerSeen>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Follower {
    start: Start,
    shared: Arc<Shared>,
    /// The socket at which the daemon answers. `None`: none is known yet.
    socket: Option<PathBuf>,
    /// The daemon has agreed to tell its events.
    has_answered: bool,
    /// The daemon's events. `None`: it can't be reached now.
    events: Option<Reply>,
    /// Those that the daemon told of. Of others than the wanted ones, only the events are taken in.
    containers: BTreeMap<String, Followed>,
    wishes: Vec<ContainerWish>,
    /// Which of the usual places the first cgroup was in. Those of a daemon are in the same one, so the others are not looked at.
    layout: Option<usize>,
    /// Questions for the first process of a container, by its id, and until when an answer is waited for.
    questions: Vec<(String, Instant, Reply)>,
    /// Files of `--cidfile` in which no id was found yet.
    cidfiles: Vec<String>,
    next_look: Instant,
    /// The run is over: no new events are asked for.
    is_finishing: bool,
}

/// What a descriptor that became readable is.
enum Ready {
    Order,
    Reply,
    Process(String),
}

impl Follower {
    pub(super) fn new(start: Start, shared: Arc<Shared>) -> Self {
        let mut follower = Self {
            shared,
            socket: None,
            has_answered: false,
            events: None,
            containers: BTreeMap::new(),
            wishes: Vec::new(),
            layout: None,
            questions: Vec::new(),
            cidfiles: Vec::new(),
            next_look: Instant::now() + LOOKING,
            is_finishing: false,
            start,
        };
        for seen in std::mem::take(&mut follower.start.known) {
            let mut followed = Followed::new(seen);
            let id = followed.seen.id.clone();
            followed.want(|| candidates(&follower.start, None, &id));
            follower.containers.insert(followed.seen.id.clone(), followed);
        }
        follower
    }

    /// Follows the containers until the run is over.
    pub(super) fn work(&mut self) {
        self.open_events(None);
        loop {
            let orders = self.shared.take_orders();
            self.cidfiles.extend(orders.cidfiles);
            self.take_wishes(orders.wishes);
            if let Some(deadline) = orders.end_by {
                self.finish(deadline);
                return;
            }
            self.turn(self.wait());
        }
    }

    /// Takes in all that happened up to now, and reads the cgroups for the last time.
    fn finish(&mut self, deadline: Instant) {
        // What waits is read first: a new request asks for the events since the start, of which the daemon may have forgotten some.
        self.take_events();
        // These events end with those of now.
        self.open_events(Some(clock::realtime_ns()));
        self.is_finishing = true;
        // The rest is for what follows: whoever waits gives up at the deadline.
        let deadline = deadline.checked_sub(FOR_LAST_READING).unwrap_or(deadline);
        while self.events.is_some() && Instant::now() < deadline {
            self.turn(SEARCHING);
        }
        self.take_cidfiles();
        for followed in self.containers.values_mut() {
            followed.read();
        }
        self.hand_on();
        self.shared.end();
    }

    /// How long to wait for the next thing to happen.
    fn wait(&self) -> Duration {
        let is_searching =
            self.containers.values().any(|followed| matches!(followed.place, Place::Wanted { .. }));
        let readings = self.containers.values().filter_map(Followed::next_reading);
        let next = readings.fold(self.next_look, Instant::min).saturating_duration_since(Instant::now());
        if is_searching { next.min(SEARCHING) } else { next }
    }

    /// Waits until something happens, at most for this time, and takes it in.
    fn turn(&mut self, wait: Duration) {
        let mut has_reply = false;
        for ready in self.ready(wait) {
            match ready {
                Ready::Order => self.shared.reset_wake(),
                Ready::Reply => has_reply = true,
                // Before all else: the cgroup is about to be removed.
                Ready::Process(id) => {
                    let most = MOST_PROCESSES.saturating_sub(self.open_processes());
                    if let Some(followed) = self.containers.get_mut(&id) {
                        followed.process_ended(clock::monotonic_ns(), &self.start.root, most);
                    }
                }
            }
        }
        if has_reply {
            self.take_events();
            self.take_answers();
        }
        self.locate();
        let mut open = self.open_processes();
        for followed in self.containers.values_mut() {
            let before = followed.open_processes();
            followed.read_if_due(&self.start.root, MOST_PROCESSES.saturating_sub(open));
            open += followed.open_processes().saturating_sub(before);
        }
        if Instant::now() >= self.next_look {
            self.next_look = Instant::now() + LOOKING;
            self.take_cidfiles();
            self.questions.retain(|(_, until, _)| Instant::now() < *until);
            if self.events.is_none() && !self.is_finishing {
                self.open_events(None);
            }
        }
        self.hand_on();
    }

    /// Waits until a descriptor is readable, at most for this time. Those of processes come first.
    fn ready(&self, wait: Duration) -> Vec<Ready> {
        let mut what: Vec<(&str, BorrowedFd)> = Vec::new();
        for followed in self.containers.values() {
            if let Place::Found { processes, .. } = &followed.place {
                what.extend(processes.iter().map(|process| (followed.seen.id.as_str(), process.as_fd())));
            }
        }
        let of_processes = what.len();
        what.push(("", self.shared.wake()));
        what.extend(self.events.iter().map(|events| ("", events.socket.as_fd())));
        what.extend(self.questions.iter().map(|(_, _, reply)| ("", reply.socket.as_fd())));
        let mut fds: Vec<PollFd> =
            what.iter().map(|(_, fd)| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
        let timeout = Timespec::try_from(wait).unwrap_or_default();
        if poll(&mut fds, Some(&timeout)).is_err() {
            return Vec::new();
        }
        let ready = fds.iter().zip(&what).enumerate().filter(|(_, (fd, _))| !fd.revents().is_empty());
        ready
            .map(|(at, (_, (id, _)))| match at {
                at if at < of_processes => Ready::Process((*id).to_owned()),
                at if at == of_processes => Ready::Order,
                _ => Ready::Reply,
            })
            .collect()
    }

    /// Asks for the daemon's events since the run began, and for those that follow. `until_ns`: no longer than to this time, nanoseconds
    /// since 1970.
    fn open_events(&mut self, until_ns: Option<u64>) {
        let time = |ns: u64| format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
        let until = until_ns.map(|ns| format!("&until={}", time(ns))).unwrap_or_default();
        let since = time(self.start.since_ns);
        // {"type":["container"]}
        let path = format!("/events?since={since}{until}&filters=%7B%22type%22%3A%5B%22container%22%5D%7D");
        let known = self.socket.iter().cloned();
        let sockets: Vec<PathBuf> =
            if self.socket.is_some() { known.collect() } else { self.start.sockets.clone() };
        self.events = None;
        let mut reasons = Vec::new();
        for socket in sockets {
            match Reply::ask(&socket, self.start.user, &path) {
                Ok(events) => {
                    self.events = Some(events);
                    self.socket = Some(socket);
                    return;
                }
                Err(reason) => reasons.push(reason),
            }
        }
        if self.socket.is_none() {
            self.shared.set_state(Err(reasons.join("; ")));
        }
    }

    /// Takes in the events that have come.
    fn take_events(&mut self) {
        let Some(mut reply) = self.events.take() else { return };
        let mut events = Vec::new();
        let more = reply.read(|line| events.extend(event::parse(line)));
        if reply.has_begun()
            && let Some(socket) = self.socket.as_ref().filter(|_| !self.has_answered)
        {
            self.has_answered = true;
            self.shared.set_state(Ok(socket.display().to_string()));
        }
        for event in events {
            self.apply(&event);
        }
        match more {
            More::Yes => self.events = Some(reply),
            More::Closed => {}
            // What it told before is not lost if the daemon ends during the run.
            More::Failed(reason) if !self.has_answered => self.shared.set_state(Err(reason)),
            More::Failed(_) => {}
        }
    }

    fn apply(&mut self, event: &Event) {
        let id = &event.id;
        let begins = matches!(event.what, What::Created | What::Started | What::ExecBegins);
        if begins && !self.containers.contains_key(id) {
            self.add(event);
        }
        let (realtime_ns, now_ns) = (clock::realtime_ns(), clock::monotonic_ns());
        let at_ns = now_ns.saturating_sub(realtime_ns.saturating_sub(event.at_ns));
        let Some(followed) = self.containers.get_mut(id) else { return };
        followed.apply(event, at_ns, || candidates(&self.start, self.layout, id));
        if event.what == What::Created {
            self.take_cidfiles();
        }
    }

    /// Begins to follow the container of an event, if it is a wanted one. Those that are not make room for it where they have ended.
    fn add(&mut self, event: &Event) {
        if self.containers.len() >= MOST_CONTAINERS {
            self.containers.retain(|_, known| known.is_wanted || known.seen.ended_ns.is_none());
        }
        if self.containers.len() < MOST_CONTAINERS {
            let mut followed = Followed::of_event(self.start.daemon, event);
            followed.is_wanted = self.wishes.iter().any(|wish| wish.means(&followed.seen));
            self.containers.insert(event.id.clone(), followed);
        }
    }

    /// Takes in further wishes. A container that one of them means can be there already.
    fn take_wishes(&mut self, wishes: Vec<ContainerWish>) {
        for followed in self.containers.values_mut() {
            if wishes.iter().any(|wish| wish.means(&followed.seen)) {
                let id = followed.seen.id.clone();
                followed.want(|| candidates(&self.start, self.layout, &id));
            }
        }
        self.wishes.extend(wishes);
    }

    /// Looks for the cgroups that are not known yet. Where one is not in a usual place, asks the daemon for a process in it.
    fn locate(&mut self) {
        let mut to_be_asked = Vec::new();
        let mut open = self.open_processes();
        for followed in self.containers.values_mut() {
            match followed.locate(&self.start.root, MOST_PROCESSES.saturating_sub(open)) {
                Located::No => {}
                Located::At(at) => {
                    open += followed.open_processes();
                    self.layout = self.layout.or(Some(at));
                }
                Located::Ask => to_be_asked.push(followed.seen.id.clone()),
            }
        }
        for id in to_be_asked {
            let Some(socket) = self.socket.as_deref().filter(|_| self.questions.len() < MOST_QUESTIONS)
            else {
                continue;
            };
            if let Ok(reply) = Reply::ask(socket, self.start.user, &format!("/containers/{id}/json")) {
                self.questions.push((id, Instant::now() + LONGEST_ANSWER, reply));
            }
        }
    }

    /// How many descriptors of processes are open.
    fn open_processes(&self) -> usize {
        self.containers.values().map(Followed::open_processes).sum()
    }

    /// Takes in the answers that have come.
    fn take_answers(&mut self) {
        let most = MOST_PROCESSES.saturating_sub(self.open_processes());
        for (id, until, mut reply) in std::mem::take(&mut self.questions) {
            let mut pid = None;
            let more = reply.read(|line| pid = pid.or(event::pid(line)));
            let Some(followed) = self.containers.get_mut(&id) else { continue };
            match pid.map(|pid| CountedGroup::of_process(&self.start.root, pid, &id)) {
                Some(_) if !matches!(followed.place, Place::Wanted { .. }) => {}
                Some(Some(group)) => followed.found(group, pid, &self.start.root, most),
                Some(None) => {
                    let is_alive = pid.is_some_and(|pid| self.start.root.read(pid, "cgroup").is_some());
                    if is_alive {
                        followed.has_no_cgroup();
                    }
                }
                None if more == More::Yes => self.questions.push((id, until, reply)),
                None => {}
            }
        }
    }

    /// Looks into the files of `--cidfile`. A client writes such a file once the container is created.
    fn take_cidfiles(&mut self) {
        let (containers, start, layout) = (&mut self.containers, &self.start, self.layout);
        self.cidfiles.retain(|file| {
            let id = id_in(Path::new(file), start.user).unwrap_or_default();
            let id = id.trim();
            let Some(followed) = containers.get_mut(id) else { return true };
            followed.seen.cidfile = Some(file.clone());
            followed.is_changed = true;
            followed.want(|| candidates(start, layout, id));
            false
        });
    }

    /// Hands on what has changed.
    fn hand_on(&mut self) {
        let wanted = self.containers.values_mut().filter(|followed| followed.is_wanted);
        let changed: Vec<ContainerSeen> = wanted
            .filter_map(|followed| std::mem::take(&mut followed.is_changed).then(|| followed.seen.clone()))
            .collect();
        if !changed.is_empty() {
            self.shared.hand_on(changed);
        }
    }
}

/// Where the cgroup of the container with this id can be. `layout`: as the field of [`Follower`].
fn candidates(start: &Start, layout: Option<usize>, id: &str) -> Vec<CountedGroup> {
    let mut all = CountedGroup::usual(&start.root, id, start.user.uid());
    match layout {
        Some(at) if at < all.len() => vec![all.swap_remove(at)],
        _ => all,
    }
}

/// Reads the id in a file of `--cidfile`. A process of the tree chose the path, and this process may be root: so only a short regular file
/// of this user or root is read. No link is followed, and no pipe or device is opened. `None`: it is no such file.
fn id_in(path: &Path, user: User) -> Option<String> {
    let is_cidfile = |found: &Metadata| {
        found.is_file() && CIDFILE_BYTES.contains(&found.len()) && user.trusts(path, found)
    };
    symlink_metadata(path).ok().filter(is_cidfile)?;
    let (file, found) = open_regular(path, OFlags::RDONLY).ok()??;
    // It may have been replaced since.
    let length = Some(found).filter(is_cidfile)?.len();
    let mut bytes = vec![0; usize::try_from(length).ok()?];
    file.read_exact_at(&mut bytes, 0).ok()?;
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;
    use crate::sources::cgroup::tests::tree;

    // Requirement: SEE-144
    #[test]
    fn only_containers_that_a_call_can_mean_are_read_and_told_of() {
        let (_directory, root) = tree("", "30 20 0:26 / TOP/fs rw - cgroup2 cgroup2 rw\n");
        let start = Start {
            daemon: ContainerDaemon::Docker,
            root,
            user: User::this(),
            sockets: Vec::new(),
            since_ns: 0,
            known: Vec::new(),
        };
        let mut follower = Follower::new(start, Arc::new(Shared::new().unwrap()));
        let mut now_ns = 0;
        let mut tell = |follower: &mut Follower, number: usize, image: &str, what| {
            now_ns += 1;
            let (id, name, image) = (format!("{number:064}"), format!("n{number}"), image.to_owned());
            follower.apply(&Event { at_ns: now_ns, id, name, image, compose: None, what });
            follower.hand_on();
        };
        let told = |follower: &Follower| -> Vec<String> {
            follower.shared.take().1.into_iter().map(|seen| seen.name).collect()
        };
        follower.take_wishes(vec![ContainerWish::Image("i".into())]);
        for (number, image) in [(1, "i"), (2, "of_others")] {
            tell(&mut follower, number, image, What::Created);
            tell(&mut follower, number, image, What::ExecBegins);
        }
        let is_looked_for = |follower: &Follower| -> Vec<bool> {
            let all = follower.containers.values();
            all.map(|followed| matches!(followed.place, Place::Wanted { .. })).collect()
        };
        assert_eq!((told(&follower), is_looked_for(&follower)), (vec!["n1".to_owned()], vec![true, false]));
        follower.take_wishes(vec![ContainerWish::Named("n2".into())]);
        follower.hand_on();
        assert_eq!((told(&follower), is_looked_for(&follower)), (vec!["n2".to_owned()], vec![true, true]));
        // Those of others take no room once they have ended.
        for number in 3..2 * MOST_CONTAINERS {
            tell(&mut follower, number, "of_others", What::Created);
            tell(&mut follower, number, "of_others", What::Ended(None));
        }
        tell(&mut follower, 2 * MOST_CONTAINERS, "i", What::Created);
        assert_eq!(told(&follower), [format!("n{}", 2 * MOST_CONTAINERS)]);
    }

    // Requirement: SEE-136
    #[test]
    fn cidfile_is_a_short_regular_file_of_this_user_and_nothing_else_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let id = "ab".repeat(32);
        std::fs::write(path("id"), &id).unwrap();
        std::fs::write(path("line"), format!("{id}\n")).unwrap();
        std::fs::write(path("long"), format!("{id}{id}")).unwrap();
        std::os::unix::fs::symlink(path("id"), path("link")).unwrap();
        mknodat(CWD, path("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        let read = |name: &str| id_in(&path(name), User::this()).map(|id| id.trim().to_owned());
        assert_eq!((read("id"), read("line")), (Some(id.clone()), Some(id)));
        for name in ["long", "link", "pipe", "missing", ""] {
            assert_eq!(read(name), None, "{name}");
        }
        let of_another = User::new(User::this().uid() + 1, 0);
        let is_trusted = User::this().uid() == 0;
        assert_eq!(id_in(&path("id"), of_another).is_some(), is_trusted);
        assert_eq!(id_in(Path::new("/proc/kmsg"), User::this()), None);
    }
}
