//! A session's beginning: its segment, the shim, the command's environment, and the collector.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use gpu_track_abi::layout::{
    FLAG_ELF32, FLAG_NO_ENV_REPAIR, FLAG_NO_WAIT_RECORDS, FLAG_PIDFS, FLAG_SPLIT_RSS,
};
use gpu_track_abi::preload::{for_elf32, shim_in};
use gpu_track_abi::record::{Event, Origin, Usage};
use gpu_track_abi::{ENV_PRELOAD, ENV_SESSION, MAX_SESSIONS};
use gpu_track_collector::model::cgroup::RunCgroup;
use gpu_track_collector::model::config::{Config, Message};
use gpu_track_collector::model::gpu::GpuConfig;
use gpu_track_collector::model::style::Output;
use gpu_track_collector::sources::cgroup::Places;
use gpu_track_collector::sources::connector;
use gpu_track_collector::store::stale;
use gpu_track_collector::store::state_file::StateFile;
use gpu_track_collector::sys::kernel::{MOST_SPLIT_RSS_KIB, has_split_rss};
use gpu_track_collector::sys::proc_fs::ProcRoot;
use gpu_track_collector::sys::segment::named::NamedFile;
use gpu_track_collector::sys::segment::{NewSession, Segment, SegmentError};
use gpu_track_collector::sys::{clock, pidfd};
use thiserror::Error;

use crate::cli::Options;
use crate::elf32;
use crate::reap::Changed;
use crate::shim_file::{self, ShimFileError};

/// argv\[0\] of the launcher's executable when it is started as a collector; the arguments are then the descriptors of
/// the pipe, the segment, the state file and the process connector ("-" without), and the names of the two files.
pub const COLLECTOR_NAME: &str = "gpu-track-collector";

/// Why the command can't be tracked.
#[derive(Debug, Error)]
pub enum TrackingError {
    /// No shared memory.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// No file for the collector's state.
    #[error("cannot create {path}: {source}")]
    State {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// No shim to preload.
    #[error(transparent)]
    Shim(#[from] ShimFileError),
    /// No collector.
    #[error("cannot start the collector: {0}")]
    Collector(io::Error),
}

/// A session: what the launcher holds of it.
pub struct Session {
    segment: Segment,
    state: StateFile,
    connector: Option<OwnedFd>,
    preload: Option<Preload>,
    origin: Origin,
    config: Config,
    records_all: bool,
}

/// The collector process, and the pipe to it.
pub struct Collector {
    /// Its pid.
    pub pid: u32,
    /// CLOCK_MONOTONIC of its start, nanoseconds.
    pub started_ns: u64,
    pipe: File,
}

impl Session {
    /// Make the session's segment. Nothing of the command's world has changed yet.
    pub fn new(options: &Options) -> Result<Self, TrackingError> {
        let uid = rustix::process::getuid().as_raw();
        let pid = std::process::id();
        stale::remove_all(&options.session_dir, uid);
        let pid_ns = ProcRoot::default().pid_ns(pid).unwrap_or(0);
        let random = RandomState::new();
        let preload = options.layers.preload.then(Preload::new).transpose()?;
        let mut flags = 0;
        for (flag, on) in [
            (FLAG_PIDFS, pidfd::has_pidfs()),
            (FLAG_SPLIT_RSS, has_split_rss()),
            (FLAG_NO_ENV_REPAIR, !options.env_repair),
            (FLAG_NO_WAIT_RECORDS, !options.layers.wait),
            (FLAG_ELF32, preload.as_ref().is_some_and(|preload| preload.is_for_elf32)),
        ] {
            flags |= if on { flag } else { 0 };
        }
        let new = NewSession {
            flags,
            session_id: random.hash_one(0),
            launcher_pid: pid,
            launcher_pid_ns: pid_ns,
            monotonic_ns: clock::monotonic_ns(),
            realtime_ns: clock::realtime_ns(),
        };
        let (path, state_path) = stale::new_names(&options.session_dir, uid, pid, random.hash_one(1));
        let segment = Segment::create(&path, &new)?;
        let state = StateFile::create(&state_path).map_err(|source| {
            let _ = segment.named().unlink();
            TrackingError::State { path: state_path, source }
        })?;
        let (connector, connector_absent) = match options.layers.connector.then(connector::subscribe) {
            Some(Ok(socket)) => (Some(socket), None),
            Some(Err(error)) => (None, Some(error.to_string())),
            None => (None, None),
        };
        let oom = Places::own(&ProcRoot::default()).oom_counter();
        let cgroup =
            options.cgroup.then(|| RunCgroup::create(&ProcRoot::default(), pid, random.hash_one(2) as u32));
        let interval_ns = u64::try_from(options.interval.as_nanos()).unwrap_or(u64::MAX);
        let config = Config {
            launcher_pid: pid,
            pid_ns,
            restarts: 0,
            running_pid: None,
            started_monotonic_ns: new.monotonic_ns,
            command: options.command.iter().map(|arg| arg.to_string_lossy().into_owned()).collect(),
            started_realtime_ns: new.realtime_ns,
            forks_before: ProcRoot::default().forks(),
            interval_ns,
            expected_cores: options.expected_cores,
            most_heaviest: options.most_heaviest,
            layers: options.layers,
            connector_absent,
            cgroup,
            oom,
            output: options.output.clone(),
            style: options.style,
            disable_logs: options.disable_logs,
            gpu: GpuConfig { interval_ns, ..options.gpu.clone() },
            warnings: Vec::new(),
        };
        let origin = Origin { pid, pid_ns, ..Origin::default() };
        Ok(Self { segment, state, connector, preload, origin, config, records_all: options.layers.wait })
    }

    /// The environment of the command that starts `program`: ours, with the shim and the session added.
    pub fn environment(&mut self, program: Option<&OsString>) -> Vec<(OsString, OsString)> {
        let mut env: Vec<(OsString, OsString)> = std::env::vars_os().collect();
        let Some(preload) = &self.preload else { return env };
        let outer = std::env::var_os(ENV_SESSION).unwrap_or_default();
        if outer.as_bytes().split(|b| *b == b':').filter(|path| !path.is_empty()).count() >= MAX_SESSIONS {
            self.config.warnings.push(format!(
                "More than {MAX_SESSIONS} runs are nested: the processes of this one are found by looking at /proc only."
            ));
        }
        let session = joined(&outer, self.segment.named().path().as_os_str());
        for (name, value) in [(ENV_SESSION, session), (ENV_PRELOAD, preload.of(program))] {
            env.retain(|(other, _)| other != name);
            env.push((name.into(), value));
        }
        env
    }

    /// The file that the command moves into its cgroup by, if it has one.
    pub fn cgroup_entrance(&mut self) -> Option<File> {
        let Some(Ok(cgroup)) = &self.config.cgroup else { return None };
        match cgroup.entrance() {
            Ok(entrance) => Some(entrance),
            Err(error) => {
                cgroup.remove();
                self.config.cgroup = Some(Err(format!("cannot move the command: {error}")));
                None
            }
        }
    }

    /// Start the collector and tell it what to do.
    pub fn start_collector(&self) -> Result<Collector, TrackingError> {
        self.spawn_collector().map_err(TrackingError::Collector)
    }

    /// Whether the report is written.
    pub fn is_reported(&self) -> bool {
        self.state.is_reported()
    }

    /// Start another collector, which goes on where the killed one stopped; the command may run still. One that was
    /// `crashed_by` a signal again and again is replaced by one that leaves NVIDIA's library alone: it is the one thing in
    /// it that is not ours.
    pub fn replace_collector(
        &mut self,
        running_pid: Option<u32>,
        crashed_by: Option<i32>,
    ) -> Result<Collector, TrackingError> {
        self.config.gpu.crashed_by = self.config.gpu.crashed_by.or(crashed_by);
        self.config.restarts += 1;
        self.config.running_pid = running_pid;
        self.start_collector()
    }

    fn spawn_collector(&self) -> io::Result<Collector> {
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let names = [self.segment.named(), self.state.named()];
        let files = names.map(|named| named.file().as_raw_fd());
        let connector = self.connector.as_ref().map(AsRawFd::as_raw_fd);
        let fds = [Some(reader.as_raw_fd()), Some(files[0]), Some(files[1]), connector];
        let pid = spawn_collector(fds, names.map(NamedFile::path), &self.config.output)?;
        // Should it die at once, a long command line must not wait in the pipe for ever.
        drop(reader);
        let mut collector = Collector { pid, started_ns: clock::monotonic_ns(), pipe: writer.into() };
        // One that is gone already shows as a child that ended.
        let _ = collector.send_line(&serde_json::to_string(&self.config)?);
        Ok(collector)
    }

    /// Tell of a child that was reaped.
    pub fn record(&self, ended: &Changed, is_main: bool) {
        if !(self.records_all || is_main) {
            return;
        }
        let event = Event::Reaped {
            child: ended.pid,
            status: ended.status,
            reaper_max_rss_kib: own_max_rss_kib(self.segment.header().flags),
            usage: ended.usage,
        };
        self.segment.push_event(&Origin { monotonic_ns: clock::monotonic_ns(), ..self.origin }, &event);
    }

    /// Wake the collector.
    pub fn wake_collector(&self) {
        self.segment.ring_doorbell();
    }

    /// Remove what a collector that did its work has removed already.
    pub fn clean_up(&self) {
        for file in [self.segment.named(), self.state.named()] {
            // It is gone, or somebody else's.
            let _ = file.unlink();
        }
        if let Some(Ok(cgroup)) = &self.config.cgroup {
            cgroup.remove();
        }
    }
}

impl Collector {
    /// Send a message.
    pub fn send(&mut self, message: &Message) -> io::Result<()> {
        self.send_line(&serde_json::to_string(message)?)
    }

    fn send_line(&mut self, line: &str) -> io::Result<()> {
        self.pipe.write_all(format!("{line}\n").as_bytes())
    }
}

/// The command's LD_PRELOAD.
struct Preload {
    value: OsString,
    /// There is a library for 32-bit programs beside the shim.
    is_for_elf32: bool,
}

impl Preload {
    /// Ours, with the shim in it, which is put on disk unless an outer run has done that.
    fn new() -> Result<Self, ShimFileError> {
        let value = std::env::var_os(ENV_PRELOAD).unwrap_or_default();
        let value = match shim_in(value.as_bytes()) {
            Some(_) => value,
            None => joined(shim_file::install()?.as_os_str(), &value),
        };
        let shim = shim_in(value.as_bytes()).map(|path| Path::new(OsStr::from_bytes(path)));
        let is_for_elf32 = elf32::is_supported() && shim.is_some_and(elf32::is_installed);
        Ok(Self { value, is_for_elf32 })
    }

    /// That of a command that starts this program.
    fn of(&self, program: Option<&OsString>) -> OsString {
        let is_elf32 = self.is_for_elf32 && program.is_some_and(|program| elf32::is_elf32(program));
        match for_elf32(self.value.as_bytes()).filter(|_| is_elf32) {
            Some(parts) => OsString::from_vec(parts.concat()),
            None => self.value.clone(),
        }
    }
}

/// `a:b`, without empty parts.
fn joined(a: &OsStr, b: &OsStr) -> OsString {
    let parts: Vec<_> = [a, b].into_iter().map(OsStr::as_bytes).filter(|part| !part.is_empty()).collect();
    OsString::from_vec(parts.join(&b':'))
}

/// The same executable again, in a session of its own, so that no signal to the command's group or terminal ends it.
/// Only the descriptor that the report goes to stays open: a batch system waits for whoever holds a task's stdout.
fn spawn_collector(fds: [Option<RawFd>; 4], names: [&Path; 2], output: &Output) -> io::Result<u32> {
    let stdout = if matches!(output, Output::Stdout) { Stdio::inherit() } else { Stdio::null() };
    let mut command = Command::new("/proc/self/exe");
    command.arg0(COLLECTOR_NAME).args(fds.map(|fd| fd.map_or("-".into(), |fd| fd.to_string()))).args(names);
    command.stdin(Stdio::null()).stdout(stdout);
    // SAFETY: all calls are plain system calls; the descriptors are open until the command is spawned.
    unsafe {
        command.pre_exec(move || {
            libc::setsid();
            // The command starts at the same time, and may take all the CPU there is.
            gpu_track_collector::sys::priority::prefer_at_once();
            for fd in fds.into_iter().flatten() {
                if libc::fcntl(fd, libc::F_SETFD, 0) == -1 {
                    return Err(io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
    Ok(command.spawn()?.id())
}

/// At most this a child has inherited.
fn own_max_rss_kib(flags: u32) -> u64 {
    let kept_kib = if flags & FLAG_SPLIT_RSS != 0 { MOST_SPLIT_RSS_KIB } else { 0 };
    crate::reap::usage_of(libc::RUSAGE_SELF).max_rss_kib + kept_kib
}

/// What all children used that were waited for.
pub fn children_usage() -> Usage {
    crate::reap::usage_of(libc::RUSAGE_CHILDREN)
}
