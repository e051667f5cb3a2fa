//! One container that is followed: where its cgroup is, what it has counted, and what the daemon told of it.
//!
//! The runtime makes the cgroup before the container starts. So it is looked for from the creation on. The runtime removes it 8 to 11 ms
//! after the end of the container's first process. The daemon tells of the end later. So it is read as soon as a pidfd shows the end.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use super::event::{Event, What};
use crate::model::containers::{ContainerDaemon, ContainerExecs, ContainerSeen, MissingFigures};
use crate::sources::cgroup::container::CountedGroup;
use crate::sys::pidfd;
use crate::sys::proc_fs::ProcRoot;

/// How long a cgroup is looked for after an event that announces it. Creation to start took up to 0.5 s.
const SEARCH: Duration = Duration::from_secs(5);
/// A cgroup is read again after this part of the time for which it is known. A missed end costs no larger part of the figures.
const READING_PART: u32 = 50;
/// The shortest and the longest time between two such readings.
const READING: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(1)];
/// Maximum number of processes whose ends are waited for, where none is known to be the first.
const MOST_WAITED_FOR: usize = 8;
/// Maximum number of processes of a cgroup among which the first one is looked for.
const MOST_LISTED: usize = 64;

/// See the module.
#[derive(Debug)]
pub(super) struct Followed {
    pub(super) seen: ContainerSeen,
    pub(super) place: Place,
    /// A call of the tree can have meant it. Otherwise its cgroup is not looked for.
    pub(super) is_wanted: bool,
    /// `seen` was changed since it was last handed on.
    pub(super) is_changed: bool,
}

/// Where the cgroup of a container is.
#[derive(Debug)]
pub(super) enum Place {
    /// It is not looked for: the container does not run.
    None,
    /// It is looked for.
    Wanted {
        /// Where it may be.
        candidates: Vec<CountedGroup>,
        /// How long it is looked for.
        until: Instant,
        /// The daemon was asked for a process of the container.
        is_asked: bool,
    },
    /// It was found.
    Found {
        group: CountedGroup,
        /// Processes whose end may be the container's.
        processes: Vec<OwnedFd>,
        /// Since when it is known.
        since: Instant,
        /// When it is to be read again.
        next_reading: Instant,
    },
}

/// What a look for a cgroup showed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Located {
    /// It is not there, or not looked for.
    No,
    /// It is at the candidate of this number.
    At(usize),
    /// It is not there, and the daemon is to be asked for a process of the container, once.
    Ask,
}

impl Followed {
    /// The container of an event, of which nothing is known yet.
    pub(super) fn of_event(daemon: ContainerDaemon, event: &Event) -> Self {
        Self::new(ContainerSeen {
            daemon,
            id: event.id.clone(),
            name: event.name.clone(),
            image: event.image.clone(),
            compose: event.compose.clone(),
            ..Default::default()
        })
    }

    /// A container of which this is known.
    pub(super) fn new(seen: ContainerSeen) -> Self {
        Self { seen, place: Place::None, is_wanted: false, is_changed: true }
    }

    /// Reads its cgroup from now on, if it runs. `candidates`: as in [`Self::apply`].
    pub(super) fn want(&mut self, candidates: impl Fn() -> Vec<CountedGroup>) {
        if std::mem::replace(&mut self.is_wanted, true) {
            return;
        }
        if self.seen.ended_ns.is_none() {
            self.look_for(candidates());
        } else if self.seen.cpu_us.is_none() {
            self.seen.missing.get_or_insert(MissingFigures::TooShort);
        }
    }

    /// Takes in an event, which happened at `at_ns`, CLOCK_MONOTONIC nanoseconds. `candidates` says where the cgroup can be.
    pub(super) fn apply(&mut self, event: &Event, at_ns: u64, candidates: impl Fn() -> Vec<CountedGroup>) {
        if !self.seen.note_event(event.at_ns) {
            return;
        }
        self.is_changed = true;
        let is_wanted = self.is_wanted;
        let candidates = || if is_wanted { candidates() } else { Vec::new() };
        match event.what {
            What::Created => {
                self.seen.created_ns = Some(at_ns);
                self.look_for(candidates());
            }
            What::Started => self.started(at_ns, candidates()),
            What::Ended(code) => {
                self.seen.exit_code = code;
                self.ended(at_ns);
            }
            What::OutOfMemory => self.seen.is_oom_killed = Some(true),
            What::ExecBegins => {
                if matches!(self.place, Place::None) {
                    self.look_for(candidates());
                }
                let execs = self
                    .seen
                    .execs
                    .get_or_insert_with(|| ContainerExecs { began_ns: at_ns, ..Default::default() });
                execs.began += 1;
                execs.ended_ns = None;
                self.read();
            }
            What::ExecEnded(code) => {
                self.read();
                if let Some(execs) = &mut self.seen.execs {
                    execs.ended += 1;
                    execs.exit_code = code;
                    execs.ended_ns = (execs.ended >= execs.began).then_some(at_ns);
                }
            }
        }
    }

    /// Begins to look for the cgroup in these places.
    fn look_for(&mut self, candidates: Vec<CountedGroup>) {
        if !self.is_wanted {
            return;
        }
        self.place = Place::Wanted { candidates, until: Instant::now() + SEARCH, is_asked: false };
    }

    fn started(&mut self, at_ns: u64, candidates: Vec<CountedGroup>) {
        let is_restart = self.seen.started_ns.is_some();
        // The daemon tells of the start when the runtime is done with it. A short container has ended by then.
        let has_ended_since = self.seen.ended_ns.is_some_and(|ended_ns| {
            let is_new = !is_restart && self.seen.created_ns.is_some();
            ended_ns > at_ns || (is_new && candidates.iter().all(|group| group.processes(1).is_empty()))
        });
        if !is_restart && self.seen.created_ns.is_none() {
            // The container is older than the run. What was read before this start, by a `docker exec`, is not of the run.
            (self.seen.cpu_us, self.seen.peak_bytes) = (None, None);
            (self.seen.is_lower_bound, self.seen.missing, self.seen.is_oom_killed) = (false, None, None);
            self.place = Place::None;
        }
        self.seen.started_ns.get_or_insert(at_ns);
        self.seen.last_started_ns = Some(at_ns);
        if has_ended_since {
            return;
        }
        if is_restart {
            // It has a new cgroup, which counts from 0.
            self.seen.earlier_cpu_us = self.seen.cpu_us.unwrap_or(0);
            self.place = Place::None;
        }
        (self.seen.ended_ns, self.seen.exit_code) = (None, None);
        if !matches!(self.place, Place::Found { .. }) {
            self.look_for(candidates);
        }
    }

    /// The daemon told of its end.
    fn ended(&mut self, at_ns: u64) {
        // Without the end by a pidfd, the figures are those of the last reading.
        if self.seen.ended_ns.is_none() {
            let is_read = self.read();
            self.over(at_ns, is_read);
        }
    }

    /// It is over since `at_ns`, CLOCK_MONOTONIC nanoseconds. `is_complete`: its cgroup was read after the end.
    fn over(&mut self, at_ns: u64, is_complete: bool) {
        self.is_changed = true;
        self.seen.ended_ns = Some(at_ns);
        if matches!(self.place, Place::Wanted { .. }) {
            self.seen.missing.get_or_insert(MissingFigures::TooShort);
        }
        self.seen.is_lower_bound |= !is_complete;
        self.place = Place::None;
    }

    /// How many descriptors of processes are open for it.
    pub(super) fn open_processes(&self) -> usize {
        if let Place::Found { processes, .. } = &self.place { processes.len() } else { 0 }
    }

    /// Looks whether the cgroup is there by now. `most`: as for [`Self::found`].
    pub(super) fn locate(&mut self, root: &ProcRoot, most: usize) -> Located {
        let has_process = self.seen.started_ns.is_some() || self.seen.execs.is_some();
        let Place::Wanted { candidates, until, is_asked } = &mut self.place else { return Located::No };
        // The runtime makes it before it moves a process there.
        if let Some(at) = candidates.iter().position(|group| !group.processes(1).is_empty()) {
            let group = candidates.swap_remove(at);
            self.found(group, None, root, most);
            return Located::At(at);
        }
        if Instant::now() > *until {
            if has_process {
                self.has_no_cgroup();
            } else {
                self.place = Place::None;
            }
            return Located::No;
        }
        if has_process && !std::mem::replace(is_asked, true) { Located::Ask } else { Located::No }
    }

    /// It has no cgroup that can be known by its id.
    pub(super) fn has_no_cgroup(&mut self) {
        self.place = Place::None;
        self.seen.missing = Some(MissingFigures::NoCgroup);
        self.is_changed = true;
    }

    /// Its cgroup is this one. `pid`: its first process by the daemon, whose end is waited for if the group itself has none, but those
    /// below it. `None`: not known. The ends of `most` processes can be waited for. Without any, the daemon tells of the end, after which
    /// the cgroup is gone.
    pub(super) fn found(&mut self, group: CountedGroup, pid: Option<u32>, root: &ProcRoot, most: usize) {
        let mut processes = first_processes(&group, root, most);
        if processes.is_empty() && most > 0 {
            processes.extend(pid.and_then(pidfd::open));
        }
        let since = Instant::now();
        self.place = Place::Found { group, processes, since, next_reading: since + READING[0] };
        self.seen.missing = None;
        self.read();
    }

    /// When its cgroup is to be read again. `None`: it is not known.
    pub(super) fn next_reading(&self) -> Option<Instant> {
        let Place::Found { next_reading, .. } = &self.place else { return None };
        Some(*next_reading)
    }

    /// Reads its cgroup, if that is due. The runtime's own processes come before those of the container, and can be the only ones that were
    /// found. If they have ended, the processes that are there now are waited for. `most`: as for [`Self::found`].
    pub(super) fn read_if_due(&mut self, root: &ProcRoot, most: usize) {
        let now = Instant::now();
        let Place::Found { group, processes, since, next_reading } = &mut self.place else { return };
        if now < *next_reading {
            return;
        }
        let [shortest, longest] = READING;
        *next_reading = now + (now.duration_since(*since) / READING_PART).clamp(shortest, longest);
        if processes.is_empty() && most > 0 {
            *processes = first_processes(group, root, most);
        }
        self.read();
    }

    /// Reads what the cgroup has counted. Returns whether it was there.
    pub(super) fn read(&mut self) -> bool {
        let Place::Found { group, .. } = &self.place else { return false };
        let Some(counts) = group.counts() else { return false };
        let seen = &mut self.seen;
        let before = (seen.cpu_us, seen.peak_bytes, seen.is_oom_killed, seen.execs.clone());
        // A container that ran before can have been short of memory then.
        let is_of_run = seen.created_ns.is_some() || seen.started_ns.is_some();
        if let Some(kills) = counts.oom_kills.filter(|_| is_of_run) {
            seen.is_oom_killed = seen.is_oom_killed.max(Some(kills > 0));
        }
        if let Some(cpu_us) = counts.cpu_us {
            let all_us = seen.earlier_cpu_us.saturating_add(cpu_us);
            seen.cpu_us = Some(all_us);
            if let Some(execs) = seen.execs.as_mut().filter(|execs| execs.ended_ns.is_none()) {
                execs.before_us.get_or_insert(all_us);
                execs.after_us = Some(all_us);
            }
        }
        seen.peak_bytes = seen.peak_bytes.max(counts.peak_bytes);
        seen.is_lower_bound |= counts.is_of_now;
        self.is_changed |= before != (seen.cpu_us, seen.peak_bytes, seen.is_oom_killed, seen.execs.clone());
        true
    }

    /// A process whose end was waited for has ended by `at_ns`, CLOCK_MONOTONIC nanoseconds. Reads the cgroup at once. `most`: as for
    /// [`Self::found`].
    pub(super) fn process_ended(&mut self, at_ns: u64, root: &ProcRoot, most: usize) {
        let is_read = self.read();
        let Place::Found { group, processes, .. } = &mut self.place else { return };
        processes.retain(|process| !has_ended(process));
        if processes.is_empty() {
            *processes = first_processes(group, root, most);
        }
        if processes.is_empty() {
            self.over(at_ns, is_read);
        }
    }
}

/// Whether the process of a pidfd has ended.
fn has_ended(process: &OwnedFd) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut fds = [PollFd::new(process, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// Pidfds of the first process of a container's pid namespace, whose end is that of all. Or else of any processes of its cgroup. At most
/// `most`.
fn first_processes(group: &CountedGroup, root: &ProcRoot, most: usize) -> Vec<OwnedFd> {
    let pids = group.processes(MOST_LISTED);
    let first: Vec<u32> = pids.iter().copied().filter(|pid| is_first(root, *pid)).collect();
    let pids = if first.is_empty() { pids } else { first };
    pids.into_iter()
        .take(MOST_WAITED_FOR.min(most))
        .filter_map(pidfd::open)
        .filter(|process| !has_ended(process))
        .collect()
}

/// Whether the process has pid 1 in a pid namespace below this one.
fn is_first(root: &ProcRoot, pid: u32) -> bool {
    let status = root.read(pid, "status").unwrap_or_default();
    let status = String::from_utf8_lossy(&status);
    let mut pids =
        status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default().split_whitespace();
    pids.next().is_some() && pids.next_back() == Some("1")
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;
    use crate::sources::cgroup::tests::{put, tree};

    const MOUNTS: &str = "30 20 0:26 / TOP/fs rw - cgroup2 cgroup2 rw\n";

    /// A cgroup of a container, and a process that waits for its stdin to be closed.
    struct Made {
        dir: tempfile::TempDir,
        root: ProcRoot,
        id: String,
        process: Child,
    }

    impl Made {
        fn new() -> Self {
            let (dir, root) = tree("", MOUNTS);
            let process = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
            Self { dir, root, id: "ab".repeat(32), process }
        }

        /// Makes the group count these, with this text as the list of its processes.
        fn counts(&self, cpu_us: u64, peak_bytes: u64, processes: &str) {
            let group = format!("fs/docker/{}", self.id);
            put(&self.dir, &format!("{group}/cpu.stat"), &format!("usage_usec {cpu_us}\n"));
            put(&self.dir, &format!("{group}/memory.peak"), &format!("{peak_bytes}\n"));
            put(&self.dir, &format!("{group}/cgroup.procs"), processes);
        }

        fn remove(&self) {
            std::fs::remove_dir_all(self.dir.path().join("fs/docker").join(&self.id)).unwrap();
        }

        fn pid(&self) -> String {
            format!("{}\n", self.process.id())
        }

        /// Ends the process, and waits for it.
        fn end(&mut self) {
            drop(self.process.stdin.take());
            self.process.wait().unwrap();
        }

        fn event(&self, at_ns: u64, what: What) -> Event {
            let (name, image) = ("n".to_owned(), "i".to_owned());
            Event { at_ns, id: self.id.clone(), name, image, compose: None, what }
        }

        /// A container after these events, which happened at 1, 2, 3 ...
        fn after(&self, events: &[What]) -> Followed {
            let mut followed = Followed::of_event(ContainerDaemon::Docker, &self.event(1, What::Created));
            followed.is_wanted = true;
            for (at_ns, what) in (1..).zip(events) {
                self.apply(&mut followed, at_ns, *what);
            }
            followed
        }

        fn apply(&self, followed: &mut Followed, at_ns: u64, what: What) {
            followed.apply(&self.event(at_ns, what), at_ns, || CountedGroup::usual(&self.root, &self.id, 0));
        }
    }

    // Requirement: SEE-133
    #[test]
    fn cgroup_is_read_when_its_process_has_ended() {
        let mut made = Made::new();
        let mut followed = made.after(&[What::Created]);
        assert_eq!((followed.locate(&made.root, 1), followed.seen.cpu_us), (Located::No, None));
        made.counts(5, 10, "");
        followed.locate(&made.root, 1);
        assert!(matches!(followed.place, Place::Wanted { .. }), "no process is in it yet");
        made.counts(5, 10, &made.pid());
        assert_eq!(followed.locate(&made.root, 1), Located::At(0));
        made.apply(&mut followed, 2, What::Started);
        assert_eq!((followed.seen.cpu_us, followed.seen.peak_bytes), (Some(5), Some(10)));
        made.end();
        made.counts(70, 80, "");
        followed.process_ended(9, &made.root, 1);
        made.remove();
        made.apply(&mut followed, 10, What::Ended(Some(3)));
        let seen = &followed.seen;
        assert_eq!((seen.cpu_us, seen.peak_bytes, seen.is_lower_bound), (Some(70), Some(80), false));
        assert_eq!((seen.started_ns, seen.ended_ns, seen.exit_code), (Some(2), Some(9), Some(3)));
        assert_eq!(seen.is_oom_killed, None, "this cgroup has no count of it");
        // One that was written before the last one can come after it.
        made.apply(&mut followed, 8, What::OutOfMemory);
        assert_eq!(followed.seen.is_oom_killed, Some(true));
        // Events that come again are not applied again.
        let before = followed.seen.clone();
        made.apply(&mut followed, 2, What::Started);
        assert_eq!(followed.seen, before);
    }

    // Requirement: SEE-133
    #[test]
    fn kills_for_want_of_memory_are_those_that_the_cgroup_counts() {
        let mut made = Made::new();
        made.counts(5, 10, &made.pid());
        let kills = |count: u32| {
            put(
                &made.dir,
                &format!("fs/docker/{}/memory.events", made.id),
                &format!("oom 1\noom_kill {count}\n"),
            );
        };
        kills(0);
        let mut followed = made.after(&[What::Created, What::Started]);
        followed.locate(&made.root, 1);
        assert_eq!(followed.seen.is_oom_killed, Some(false));
        kills(1);
        followed.read();
        assert_eq!(followed.seen.is_oom_killed, Some(true));
        made.end();
    }

    // Requirement: SEE-133
    #[test]
    fn without_a_descriptor_left_the_end_is_the_daemons_and_the_figures_a_bound() {
        let mut made = Made::new();
        made.counts(5, 10, &made.pid());
        let mut followed = made.after(&[What::Created, What::Started]);
        assert_eq!((followed.locate(&made.root, 0), followed.open_processes()), (Located::At(0), 0));
        made.end();
        made.remove();
        made.apply(&mut followed, 9, What::Ended(Some(0)));
        assert_eq!((followed.seen.cpu_us, followed.seen.is_lower_bound), (Some(5), true));
    }

    /// What the runtime runs before the container's own process has ended when it is to be waited for.
    // Requirement: SEE-133
    #[test]
    fn process_that_comes_after_those_of_the_runtime_is_waited_for() {
        let mut made = Made::new();
        let mut runtime = Command::new("true").spawn().unwrap();
        runtime.wait().unwrap();
        made.counts(5, 10, &format!("{}\n", runtime.id()));
        let mut followed = made.after(&[What::Created, What::Started]);
        assert_eq!((followed.locate(&made.root, 1), followed.open_processes()), (Located::At(0), 0));
        made.counts(7, 10, &made.pid());
        let due_at = |followed: &mut Followed, at| {
            let Place::Found { next_reading, .. } = &mut followed.place else { panic!() };
            *next_reading = at;
        };
        due_at(&mut followed, Instant::now());
        followed.read_if_due(&made.root, 1);
        assert_eq!((followed.seen.cpu_us, followed.open_processes()), (Some(7), 1));
        due_at(&mut followed, Instant::now() + SEARCH * 1000);
        made.counts(9, 10, &made.pid());
        followed.read_if_due(&made.root, 1);
        assert_eq!(followed.seen.cpu_us, Some(7), "it is not due");
        made.end();
    }

    // Requirement: SEE-133
    #[test]
    fn missed_end_leaves_a_lower_bound_and_a_cgroup_that_was_never_there_a_reason() {
        let mut made = Made::new();
        made.counts(5, 10, &made.pid());
        let mut followed = made.after(&[What::Created, What::Started]);
        followed.locate(&made.root, 1);
        made.remove();
        made.apply(&mut followed, 10, What::Ended(None));
        assert_eq!((followed.seen.cpu_us, followed.seen.is_lower_bound), (Some(5), true));
        let followed = made.after(&[What::Created, What::Started, What::Ended(Some(0))]);
        assert_eq!((followed.seen.cpu_us, followed.seen.missing), (None, Some(MissingFigures::TooShort)));
        let mut followed = made.after(&[What::Created, What::Started]);
        followed.has_no_cgroup();
        made.apply(&mut followed, 10, What::Ended(Some(0)));
        assert_eq!(followed.seen.missing, Some(MissingFigures::NoCgroup));
        made.end();
    }

    // Requirement: SEE-133
    #[test]
    fn restarted_container_has_the_sum_of_its_starts() {
        let mut made = Made::new();
        made.counts(5, 10, &made.pid());
        let mut followed = made.after(&[What::Created, What::Started]);
        followed.locate(&made.root, 1);
        made.apply(&mut followed, 10, What::Ended(Some(1)));
        made.counts(1, 2, &made.pid());
        made.apply(&mut followed, 11, What::Started);
        followed.locate(&made.root, 1);
        let seen = &followed.seen;
        assert_eq!((seen.cpu_us, seen.peak_bytes, seen.started_ns), (Some(6), Some(10), Some(2)));
        assert_eq!((seen.ended_ns, seen.exit_code), (None, None));
        made.end();
    }

    // Requirement: SEE-132
    #[test]
    fn exec_has_the_cpu_time_of_the_container_meanwhile() {
        let mut made = Made::new();
        made.counts(100, 10, &made.pid());
        let mut followed = made.after(&[What::ExecBegins]);
        followed.locate(&made.root, 1);
        made.counts(160, 10, &made.pid());
        made.apply(&mut followed, 8, What::ExecEnded(Some(4)));
        made.counts(900, 10, &made.pid());
        followed.read();
        let execs = followed.seen.execs.unwrap();
        assert_eq!((execs.before_us, execs.after_us, execs.exit_code), (Some(100), Some(160), Some(4)));
        assert_eq!((execs.began_ns, execs.ended_ns), (1, Some(8)));
        made.end();
    }
}
