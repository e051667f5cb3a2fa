//! The collector's life: take in what the layers find, sample, and at the end write the report.
//!
//! One loop, woken by the doorbell (ring filling up, command ended), by the sampling tick, and every 50 ms at the
//! latest, whatever the interval.

use crate::model::finding::Remains;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gpu_track_abi::sample::Sample as LiveSample;
use rustix::process::{Resource, Rlimit};
use thiserror::Error;

use crate::model::cgroup::OomCounter;
use crate::model::config::{Config, Message};
use crate::model::finding::Damage;
use crate::model::host::{CommandExit, HostInfo};
use crate::model::report::Stage;
use crate::model::style::Output;
use crate::recover;
use crate::report::build;
use crate::report::inputs::Inputs;
use crate::report::write::{render, write_atomically};
use crate::run::RunState;
use crate::run::tree::{ProcessId, Tree};
use crate::run::trust::Trust;
use crate::sources::connector::Members;
use crate::sources::connector_queue::START_GRACE_NS;
use crate::sources::exit_watch::Ends;
use crate::sources::gpu::monitor::GpuRoom;
use crate::sources::membership::Membership;
use crate::sources::pump::{Pump, Sources};
use crate::sources::sampler::{Programs, Sampler};
use crate::sources::scan::Scanner;
use crate::store::checkpoint::CheckpointWriter;
use crate::store::state_file::StateFile;
use crate::sys::clock;
use crate::sys::pidfd;
use crate::sys::priority;
use crate::sys::proc_fs::ProcRoot;
use crate::sys::segment::{Segment, SegmentError};

/// Records and messages are looked at this often at least.
const LOOK_NS: u64 = 50_000_000;
/// The machine's own figures are read this often at most: /proc/stat is long on large machines.
const SYSTEM_NS: u64 = 100_000_000;
/// After so many findings it is asked whether they can be true.
const PART: usize = 1024;
/// More lives than this waiting for a sample, and one is taken early.
const MAX_LIVES: usize = 8192;
/// While the tree's RAM grows beyond what it ever was by more than this part (a divisor) in an interval, the next sample
/// comes this soon: what several processes have at once is only known as well as how far each had grown by then.
const NOTABLE_GROWTH: u64 = 100;
const SOON_NS: u64 = 25_000_000;
/// Who end together do so within this time of each other at most, and within half the time since the sample before.
const TOGETHER_NS: u64 = 20_000_000;
/// A sample is put off by their ends for so long at most, and for so many times the time since the sample before.
const LONGEST_PUT_OFF_NS: u64 = 100_000_000;
const LONGEST_PUT_OFF: u64 = 3;
/// An end is notable that frees more than this part (a divisor) of the most that the tree ever had, and this many bytes.
const NOTABLE_END: u64 = 1000;
const NOTABLE_END_BYTES: u64 = 16 << 20;
/// Growth may pause so long: on a busy machine programs lose their CPU.
const GROWTH_PAUSE_NS: u64 = 500_000_000;
/// Such samples take at most this part of a core, as a divisor.
const SHARE_OF_SOON: u64 = 100;
/// A young run is sampled each time that it is twice as old, from this age on: the command may be short, and silent.
const YOUNGEST_NS: u64 = 1_000_000;
/// Such samples take at most this part of a core, as a divisor.
const SHARE_OF_YOUNG: u64 = 10;
/// Where the process connector tells of all processes, a scan only makes sure, this often.
const SCAN_NS: u64 = 1_000_000_000;
/// A program that has not spoken so long after its exec won't.
const TIME_TO_SPEAK_NS: u64 = 50_000_000;
/// After a program that did not speak, the kernel's events are looked at at once for so long.
const EAGER_NS: u64 = 200_000_000;
/// A sample waits so long at most for the last words of those that it found dead.
const LONGEST_WAIT: Duration = Duration::from_millis(10);
/// The report-so-far is written after this time, then each time the run is twice as old, or this much older.
const FIRST_INTERIM_NS: u64 = 2_000_000_000;
const LONGEST_INTERIM_NS: u64 = 60_000_000_000;

/// Why a collector can't work.
#[derive(Debug, Error)]
pub enum SessionError {
    /// No configuration came through the pipe.
    #[error("no configuration from the launcher: {0}")]
    Config(#[from] serde_json::Error),
    /// The pipe broke.
    #[error("cannot read from the launcher: {0}")]
    Pipe(#[from] io::Error),
    /// No thread to read the records.
    #[error("cannot start a thread: {0}; there is no report")]
    Thread(io::Error),
    /// The segment can't be had.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// The report could not be written.
    #[error("cannot write the report to {output}: {source}")]
    Output {
        /// Where to.
        output: String,
        /// What the kernel said.
        source: io::Error,
    },
}

/// The launcher's end of the conversation.
struct Messages {
    pipe: File,
    buffer: Vec<u8>,
    is_closed: bool,
}

impl Messages {
    /// The next whole line, if there is one.
    fn line(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut chunk = [0; 4096];
        loop {
            if let Some(end) = self.buffer.iter().position(|b| *b == b'\n') {
                let rest = self.buffer.split_off(end + 1);
                return Ok(Some(std::mem::replace(&mut self.buffer, rest)));
            }
            match self.pipe.read(&mut chunk) {
                Ok(0) => {
                    self.is_closed = true;
                    return Ok(None);
                }
                Ok(length) => self.buffer.extend_from_slice(chunk.get(..length).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// What the launcher hands to every collector of a run.
#[derive(Debug)]
pub struct Inheritance {
    /// Where the configuration and the messages come from.
    pub pipe: OwnedFd,
    /// The segment's file.
    pub segment: OwnedFd,
    /// The state file.
    pub state: OwnedFd,
    /// The process connector's socket.
    pub connector: Option<OwnedFd>,
    /// The segment's name.
    pub segment_path: PathBuf,
    /// The state file's name.
    pub state_path: PathBuf,
}

/// Serve one session: read the configuration, go on from what an earlier collector left, and work until the command
/// has ended.
///
/// # Errors
/// If there is no configuration or segment to work with, or the report can't be written.
pub fn serve(from: Inheritance) -> Result<(), SessionError> {
    give_back_what_is_freed();
    // They are not for children; there are none, but a library may one day think otherwise.
    for fd in [&from.pipe, &from.segment, &from.state].into_iter().chain(&from.connector) {
        rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::CLOEXEC).map_err(io::Error::from)?;
    }
    let mut messages = Messages { pipe: from.pipe.into(), buffer: Vec::new(), is_closed: false };
    let Some(line) = messages.line()? else {
        // The launcher was killed before it could say anything: leave nothing behind.
        let _ = std::fs::remove_file(from.segment_path);
        let _ = std::fs::remove_file(from.state_path);
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    };
    let config: Config = serde_json::from_slice(&line)?;
    rustix::io::ioctl_fionbio(&messages.pipe, true).map_err(io::Error::from)?;
    let segment = Arc::new(Segment::from_file(&from.segment_path, from.segment)?);
    let state = Arc::new(StateFile::from_file(&from.state_path, from.state)?);
    if state.is_reported() {
        // The one before was killed while it cleaned up.
        let _ = segment.named().unlink();
        let _ = state.named().unlink();
        return Ok(());
    }
    let mut session = Session::new(config, segment, state, from.connector)?;
    session.work(&mut messages)?;
    if session.is_cancelled { Ok(()) } else { session.finish() }
}

/// A burst of records takes memory for a moment; glibc's allocator would keep it, in an arena for each thread.
fn give_back_what_is_freed() {
    #[cfg(target_env = "gnu")]
    {
        const LARGE: libc::c_int = 512 << 10;
        for (parameter, value) in
            [(libc::M_ARENA_MAX, 1), (libc::M_MMAP_THRESHOLD, LARGE), (libc::M_TRIM_THRESHOLD, LARGE)]
        {
            // SAFETY: takes numbers. Where it has no effect, the collector is larger.
            unsafe { libc::mallopt(parameter, value) };
        }
    }
}

/// Two files are held open per process, and the state file is long, though nearly empty.
fn raise_own_limits() {
    for resource in [Resource::Nofile, Resource::Fsize] {
        let limit = rustix::process::getrlimit(resource);
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        // Where it fails the files are opened and closed at every reading, and there is no state for another collector.
        let _ = rustix::process::setrlimit(resource, raised);
    }
}

struct Session {
    config: Config,
    segment: Arc<Segment>,
    root: ProcRoot,
    pump: Pump,
    membership: Membership,
    trust: Trust,
    scanner: Scanner,
    ends: Ends,
    sampler: Sampler,
    account: RunState,
    checkpoint: CheckpointWriter,
    gpu: GpuRoom,
    facts: HostInfo,
    /// What was wrong with the records that earlier collectors read.
    damage_before: Damage,
    /// Processes that were not heard of since they exec'd.
    silent: VecDeque<ProcessId>,
    silent_programs: u64,
    eager_until_ns: u64,
    next_tick_ns: u64,
    soon_ns: u64,
    /// Not before this time: see [`Self::notable_ends`].
    put_off_ns: u64,
    grows_until_ns: u64,
    scan_at_ns: u64,
    settle_at_ns: u64,
    system_at_ns: u64,
    interim_at_ns: u64,
    status: Option<i32>,
    ending: Option<CommandExit>,
    is_cancelled: bool,
}

impl Session {
    fn new(
        config: Config,
        segment: Arc<Segment>,
        state: Arc<StateFile>,
        connector: Option<OwnedFd>,
    ) -> Result<Self, SessionError> {
        let root = ProcRoot::default();
        let facts = HostInfo::of_this_machine(&root);
        // The command's own are known by now.
        raise_own_limits();
        // What a driver's program leaves behind is ours, not the launcher's and so the command's.
        let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
        recover::note(&state, &config, &facts);
        let start_ns = config.started_monotonic_ns;
        let new = || RunState::of_run(&config, &facts);
        let now_ns = clock::monotonic_ns();
        let (checkpoint, mut account) =
            CheckpointWriter::resume(state, &segment, config.restarts > 0, now_ns, new);
        if connector.is_none() {
            account.connector.absent = Some(config.connector_absent.clone().unwrap_or("no socket".into()));
        }
        let own_pid = std::process::id();
        account.tree.note_number(own_pid, pidfd::inode(own_pid).unwrap_or(0));
        // Given up once, it stays so.
        let connector = connector.filter(|_| account.connector.absent.is_none());
        let membership = Membership::new(root.clone(), segment.named().path(), config.launcher_pid);
        let sources = Sources {
            segment: Arc::clone(&segment),
            journal: checkpoint.state(),
            begin: account.found,
            connector,
            dropped: account.connector.dropped,
            // What waits in the socket may be about the command before the account knows of it.
            members: Members::new(
                account.tree.host_pids().chain([config.launcher_pid]).chain(config.running_pid),
                own_pid,
                (config.restarts > 0).then_some(config.launcher_pid),
            ),
            pid_ns: config.pid_ns,
            membership: membership.clone(),
        };
        let pump = Pump::start(sources, std::thread::current()).map_err(SessionError::Thread)?;
        if account.forgery.is_some() {
            pump.distrust();
        }
        priority::prefer_short_slices();
        Ok(Self {
            scanner: Scanner::new(root.clone()),
            ends: Ends::default(),
            sampler: Sampler::new(root.clone(), account.sampled_ns),
            gpu: GpuRoom::start(&config.gpu, &root, &mut account.gpu),
            damage_before: account.damage,
            silent: account.tree.silent_execs().into(),
            silent_programs: account.tree.silent_programs(),
            eager_until_ns: 0,
            account,
            checkpoint,
            pump,
            membership,
            trust: Trust::new(root.clone(), config.forks_before, start_ns, facts.host.cores),
            next_tick_ns: start_ns,
            soon_ns: u64::MAX,
            put_off_ns: 0,
            // Nearly every program grows at its start.
            grows_until_ns: start_ns.saturating_add(GROWTH_PAUSE_NS),
            scan_at_ns: 0,
            settle_at_ns: 0,
            system_at_ns: 0,
            interim_at_ns: start_ns.saturating_add(FIRST_INTERIM_NS),
            status: None,
            ending: None,
            is_cancelled: false,
            root,
            facts,
            config,
            segment,
        })
    }

    fn work(&mut self, messages: &mut Messages) -> Result<(), SessionError> {
        loop {
            self.listen(messages)?;
            let now_ns = clock::monotonic_ns();
            let is_due = now_ns >= self.due_ns();
            if is_due {
                self.pump.freshen();
            }
            let complete_ns = self.drain();
            self.settle(complete_ns);
            let now_ns = clock::monotonic_ns();
            let ends = self.notable_ends(now_ns);
            let is_tick = is_due && !self.puts_off(ends.as_ref(), now_ns);
            let is_on_grid = is_tick && now_ns >= self.next_tick_ns;
            if self.account.tree.lives_waiting() > MAX_LIVES {
                self.sample(now_ns, None);
            } else if is_tick {
                self.sample(now_ns, ends);
            }
            self.checkpoint.save_if_due(&self.account, is_on_grid);
            let launcher_is_gone = messages.is_closed && self.ending.is_none();
            if self.ending.is_some()
                || self.is_cancelled
                || (launcher_is_gone && is_tick && self.account.tree.alive().is_empty())
            {
                return Ok(());
            }
            if now_ns >= self.interim_at_ns {
                self.write_interim(now_ns);
            }
            let next = self.due_ns().min(now_ns + LOOK_NS);
            // The pump's doorbell ends the nap.
            std::thread::park_timeout(Duration::from_nanos(next.saturating_sub(clock::monotonic_ns())));
        }
    }

    /// When the next sample is due.
    fn due_ns(&self) -> u64 {
        self.next_tick_ns.min(self.soon_ns).max(self.put_off_ns)
    }

    /// Whose ends put off the sample that is due, if any do.
    ///
    /// While the tree grows, a sample waits for the last of those that end together. Of who lives on it is not known how
    /// large he was when the others ended, but only how large he was at the sample before: a sample amid their ends would
    /// have half of them as large as they ever were, and the other half small.
    fn notable_ends(&self, now_ns: u64) -> Option<NotableEnds> {
        let due_ns = self.next_tick_ns.min(self.soon_ns);
        let window_ns = due_ns.saturating_sub(self.sampler.sampled_ns());
        let longest_ns = window_ns.saturating_mul(LONGEST_PUT_OFF).min(LONGEST_PUT_OFF_NS);
        let may_wait = now_ns < due_ns.saturating_add(longest_ns);
        (may_wait && now_ns < self.grows_until_ns).then(|| NotableEnds {
            bytes: (self.account.ram.record().combined / NOTABLE_END).max(NOTABLE_END_BYTES),
            together_ns: TOGETHER_NS.min(window_ns / 2),
        })
    }

    /// Put the sample off if one of these ended just now.
    fn puts_off(&mut self, ends: Option<&NotableEnds>, now_ns: u64) -> bool {
        self.put_off_ns = 0;
        if let Some(ends) = ends
            && let Some(last_ns) = self.account.tree.last_end_of(ends.bytes)
        {
            self.put_off_ns = last_ns.saturating_add(ends.together_ns);
        }
        now_ns < self.put_off_ns
    }

    fn listen(&mut self, messages: &mut Messages) -> Result<(), SessionError> {
        while self.ending.is_none()
            && let Some(line) = messages.line()?
        {
            match serde_json::from_slice(&line)? {
                Message::Started { pid, monotonic_ns } => {
                    let program = self.config.command.first().map_or("", String::as_str);
                    let name = program.rsplit('/').next().unwrap_or(program).to_owned();
                    self.account.start_ns = monotonic_ns;
                    self.account.tree.set_main(pid, monotonic_ns, &name);
                }
                Message::Cancelled => self.is_cancelled = true,
                Message::Ended { status, monotonic_ns, children_cpu_us } => {
                    self.status = Some(status);
                    self.ending = Some(CommandExit { at_ns: monotonic_ns, children_cpu_us });
                }
            }
        }
        Ok(())
    }

    /// Take in what the pump has read. Gives the time up to which that is all that was written.
    fn drain(&mut self) -> u64 {
        let (batches, complete_ns) = self.pump.take();
        let connector = self.account.connector.clone();
        let was_forged = self.account.forgery.is_some();
        for batch in batches {
            // It may have come while the one before was taken in, with records of that time.
            let now_ns = clock::monotonic_ns();
            for part in batch.chunks(PART) {
                self.account.apply(part, now_ns);
                if self.account.forgery.is_none() {
                    self.account.forgery =
                        self.trust.forgery(&self.account.tree, self.account.found.count, now_ns);
                }
            }
        }
        if self.account.forgery.is_some() && !was_forged {
            self.pump.distrust();
        }
        self.account.damage = self.damage_before.plus(self.pump.damage());
        if self.account.connector != connector {
            self.scan_at_ns = 0;
            self.scanner.look_again();
        }
        self.look_at_silent(clock::monotonic_ns());
        self.ends.tell(&mut self.account.tree);
        complete_ns
    }

    /// What the kernel told of processes that don't speak must be looked at while it is there.
    fn look_at_silent(&mut self, now_ns: u64) {
        let loading_ns = if now_ns < self.eager_until_ns { 0 } else { START_GRACE_NS };
        self.look_at_newborn(now_ns.saturating_sub(loading_ns));
        let tree = &mut self.account.tree;
        for id in tree.take_kernel_ends() {
            let Some((pid, exit)) =
                tree.get(id).and_then(|process| Some((process.host_pid?, process.kernel_exit?)))
            else {
                continue;
            };
            let stat = self.root.stat(pid);
            // Later than its end: who reaped it may have to say more.
            let gone_ns = stat.is_none().then(clock::monotonic_ns);
            // The first thread may end before others.
            if stat.is_some_and(|stat| !stat.is_over()) {
                continue;
            }
            if let Some(remains) = stat.and_then(|stat| Remains::of(pid, &stat)) {
                tree.note_remains(id, &remains);
            }
            tree.observe_end(id, exit.at_ns, gone_ns);
        }
        while let Some(id) = self.silent.front().copied() {
            let exec = tree.get(id).filter(|process| process.is_alive()).and_then(|p| p.silent_exec.as_ref());
            if exec.is_some_and(|exec| now_ns.saturating_sub(exec.at_ns) < TIME_TO_SPEAK_NS) {
                break;
            }
            if exec.is_some() {
                self.scanner.look_at_silent(tree, id);
                tree.confirm_silent(id);
            }
            self.silent.pop_front();
        }
        if tree.silent_programs() != self.silent_programs {
            self.silent_programs = tree.silent_programs();
            self.eager_until_ns = now_ns.saturating_add(EAGER_NS);
        }
        self.pump.be_eager(now_ns < self.eager_until_ns);
    }

    /// Look at those who were born, or run another program, by this time and have not spoken since.
    fn look_at_newborn(&mut self, by_ns: u64) {
        let tree = &mut self.account.tree;
        for id in tree.take_silent(by_ns) {
            self.scanner.look_at_silent(tree, id);
            self.silent.push_back(id);
        }
    }

    /// Where the kernel does not tell of ends, those of whom nobody else would are watched.
    fn watch_ends(&mut self) {
        if self.config.layers.scan && self.account.connector.absent.is_some() {
            self.ends.watch(&self.account.tree, &self.root, &std::thread::current());
        }
    }

    /// A pid that only a record names may be a stranger's, who is not to be measured.
    fn prove_newcomers(&mut self, now_ns: u64) {
        let tree = &mut self.account.tree;
        let launcher_pid = self.config.launcher_pid;
        for id in tree.take_unproven() {
            let Some(pid) = tree.get(id).and_then(|process| process.host_pid) else { continue };
            match self.membership.is_member(pid, |pid| pid == launcher_pid || tree.is_proven(pid)) {
                Some(is_ours) => tree.prove(id, is_ours, now_ns),
                None => tree.not_proven_yet(id),
            }
        }
    }

    /// Take a sample, unless it finds one of these ends: then it is put off.
    fn sample(&mut self, now_ns: u64, ends: Option<NotableEnds>) {
        let begun_ns = clock::thread_cpu_ns();
        self.prove_newcomers(now_ns);
        // The connector tells of all there are.
        let has_connector = self.account.connector.absent.is_none();
        let interval = Duration::from_nanos(self.config.interval_ns);
        if self.config.layers.scan && (!has_connector || now_ns >= self.scan_at_ns) {
            self.scan_at_ns = now_ns.saturating_add(SCAN_NS);
            for pid in self.scanner.scan(&mut self.account.tree, interval) {
                self.pump.add_member(pid);
            }
        }
        self.watch_ends();
        // Whose memory it is that the sample will see.
        self.look_at_newborn(u64::MAX);
        let record = self.account.ram.record();
        let (scanner, sees_execs) = (&self.scanner, self.config.layers.scan && !has_connector);
        let look = |tree: &mut Tree, programs: &Programs| {
            if sees_execs {
                scanner.look_at_programs(tree, programs, now_ns, interval);
            }
        };
        let notable = ends.as_ref().map(|ends| ends.bytes);
        let Some(mut sample) = self.sampler.sample(&mut self.account.tree, now_ns, record, notable, look)
        else {
            self.put_off_ns = now_ns.saturating_add(ends.map_or(0, |ends| ends.together_ns));
            return;
        };
        if sample.dead_ns > 0 {
            self.pump.await_complete(sample.dead_ns, LONGEST_WAIT);
            let complete_ns = self.drain();
            self.settle(complete_ns);
        }
        let account = &mut self.account;
        sample.complete(&mut account.tree);
        account.add(&sample);
        let growth = account.ram.record().combined.saturating_sub(record.combined);
        let in_interval = u128::from(growth) * u128::from(self.config.interval_ns)
            / u128::from(sample.at_ns.saturating_sub(sample.from_ns).max(1));
        if in_interval > u128::from(record.combined / NOTABLE_GROWTH) {
            self.grows_until_ns = now_ns.saturating_add(GROWTH_PAUSE_NS);
        }
        let cost_ns = clock::thread_cpu_ns().saturating_sub(begun_ns);
        let age_ns = now_ns.saturating_sub(account.start_ns);
        let rest_ns = rest_ns(age_ns, now_ns < self.grows_until_ns, cost_ns);
        self.soon_ns = rest_ns.map_or(u64::MAX, |rest| now_ns.saturating_add(rest));
        self.gpu.tick(&mut account.gpu, &account.tree, now_ns);
        if now_ns.saturating_sub(self.system_at_ns) >= SYSTEM_NS || self.ending.is_some() {
            self.system_at_ns = now_ns;
            self.read_system(now_ns);
        }
        self.segment.push_sample(LiveSample {
            monotonic_ns: now_ns,
            main_bytes: sample.now.main,
            descendants_bytes: sample.now.descendants,
            combined_bytes: sample.now.combined(),
            cpu_ns: self.account.cpu_ns(),
            processes: sample.now.processes,
            threads: sample.now.main_threads + sample.now.descendants_threads,
        });
        // Ticks keep their grid; those that were missed are left out.
        let interval = self.config.interval_ns.max(1);
        // A sample that was taken early leaves the next tick where it is.
        if let Some(late) = now_ns.checked_sub(self.next_tick_ns) {
            let next = (late / interval + 1).saturating_mul(interval);
            self.next_tick_ns = self.next_tick_ns.saturating_add(next);
        }
    }

    /// Settle whom that is due for; who left /proc is not asked at every wake.
    fn settle(&mut self, complete_ns: u64) {
        let now_ns = clock::monotonic_ns();
        let is_due = now_ns >= self.settle_at_ns;
        if is_due {
            self.settle_at_ns = now_ns.saturating_add(LOOK_NS);
        }
        self.account.settle(now_ns, complete_ns, is_due);
    }

    /// The machine's own figures, and the state of the segment's name.
    fn read_system(&mut self, now_ns: u64) {
        let account = &mut self.account;
        if let Some((used, _)) = self.root.system_memory() {
            account.ram.system = account.ram.system.max(Some(used));
        }
        if let Some(system) = self.root.system_cpu() {
            account.cpu.add_system(now_ns, system.busy_ticks, self.facts.ticks_per_second);
        }
        // An earlier collector that had begun to finish took the name away itself.
        account.is_unlinked |= self.segment.is_open() && !self.segment.named().is_linked();
    }

    /// The report as it would be if the run ended now, for the case that everything is killed at once.
    fn write_interim(&mut self, now_ns: u64) {
        let age = now_ns.saturating_sub(self.account.start_ns);
        self.interim_at_ns = now_ns + age.min(LONGEST_INTERIM_NS);
        let Output::File(path) = &self.config.output else { return };
        let mut account = self.account.clone();
        account.settle_all(now_ns);
        let report = build::report(&Inputs { at_ns: now_ns, ..self.inputs(&account) });
        // A report-so-far that can't be written is no trouble yet; the final one says so.
        let _ = write_atomically(path, render(&report, &self.config.style).as_bytes());
    }

    fn inputs<'a>(&'a self, account: &'a RunState) -> Inputs<'a> {
        Inputs {
            config: &self.config,
            host_info: &self.facts,
            run: account,
            at_ns: 0,
            status: self.status,
            command_exit: self.ending,
            stage: Stage::SoFar,
            dropped_events: self.segment.ring().dropped(),
            is_truncated: self.segment.is_lost(),
            oom_kills: self.config.oom.as_ref().and_then(OomCounter::since),
            cgroup: self.config.cgroup.as_ref().and_then(|made| Some(made.as_ref().ok()?.figures())),
        }
    }

    fn finish(mut self) -> Result<(), SessionError> {
        // What is not read yet is waited for again below.
        let _ = self.pump.await_last(clock::monotonic_ns());
        self.drain();
        let now_ns = clock::monotonic_ns();
        self.sample(now_ns, None);
        let end_ns = self.ending.map_or(now_ns, |ending| ending.at_ns);
        self.account.cpu.finish(end_ns);
        self.note_survivors();
        self.segment.close();
        // Nobody needs the name any more, and nothing may be left behind.
        let _ = self.segment.named().unlink();
        // The last words of those that the sample found dead.
        if !self.pump.await_last(clock::monotonic_ns()) {
            self.account.unread = self.pump.unread();
        }
        let complete_ns = self.drain();
        self.account.settle(clock::monotonic_ns(), complete_ns, true);
        if self.account.tree.lives_waiting() > 0 {
            self.sample(clock::monotonic_ns(), None);
        }
        self.gpu.finish(&mut self.account.gpu, &self.account.tree);
        self.account.settle_all(now_ns);
        let inputs = self.inputs(&self.account);
        let report = build::report(&Inputs { at_ns: end_ns, stage: Stage::Over, ..inputs });
        let written = self.write(&render(&report, &self.config.style));
        self.checkpoint.state().note_reported();
        if self.ending.is_none()
            && let Some(Ok(cgroup)) = &self.config.cgroup
        {
            // The launcher, which made it, is gone.
            cgroup.remove();
        }
        let _ = self.checkpoint.state().named().unlink();
        self.gpu.put_back();
        written
    }

    /// Block I/O of those that live on; it can't be learnt later.
    fn note_survivors(&mut self) {
        for id in self.account.tree.alive().to_vec() {
            let Some(pid) = self.account.tree.get(id).and_then(|process| process.host_pid) else { continue };
            let blocks = self.root.io_bytes(pid).map(|(read, written)| (read / 512, written / 512));
            if let Some(process) = self.account.tree.get_mut(id) {
                process.observed.blocks = blocks;
            }
        }
    }

    fn write(&self, text: &str) -> Result<(), SessionError> {
        let output = &self.config.output;
        output.write(text).map_err(|source| {
            // The run may have taken days: show the report where somebody may still see it.
            if !matches!(output, Output::Stderr) {
                let _ = io::stderr().write_all(text.as_bytes());
            }
            SessionError::Output { output: output.to_string(), source }
        })
    }
}

/// Ends that put a sample off: see [`Session::notable_ends`].
#[derive(Debug)]
struct NotableEnds {
    /// Those of processes that had so much.
    bytes: u64,
    /// For so long after the last of them.
    together_ns: u64,
}

/// How long after a sample that cost this much the next one comes, if it is not to wait for the grid.
fn rest_ns(age_ns: u64, grows: bool, cost_ns: u64) -> Option<u64> {
    if age_ns < SOON_NS {
        Some(age_ns.max(YOUNGEST_NS).max(cost_ns.saturating_mul(SHARE_OF_YOUNG)))
    } else {
        grows.then(|| SOON_NS.max(cost_ns.saturating_mul(SHARE_OF_SOON)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_young_run_is_sampled_often_and_an_old_one_while_it_grows() {
        let ages = |cost_ns: u64| {
            let next = |age: &u64| Some(age + rest_ns(*age, *age < 100 * MS, cost_ns)?);
            std::iter::successors(Some(0), next).map(|age| age / MS).collect::<Vec<_>>()
        };
        assert_eq!(ages(MS / 20), [0, 1, 2, 4, 8, 16, 32, 57, 82, 107]);
        assert_eq!(ages(MS / 2), [0, 5, 10, 20, 40, 90, 140], "what is dear comes less often");
    }
}
