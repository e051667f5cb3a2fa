//! A session, as the launcher holds it: the segment, the state file, and all that a collector needs to start.

use std::ffi::OsString;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use gpu_track_abi::MAX_SESSIONS;
use gpu_track_abi::layout::{FLAG_NO_ENV_REPAIR, FLAG_NO_WAIT_RECORDS, FLAG_PIDFS, FLAG_SPLIT_RSS};
use gpu_track_abi::preload::shows_preloaded;
use gpu_track_abi::record::Origin;
use gpu_track_collector::connector::Subscription;
use gpu_track_collector::model::attached::Attached;
use gpu_track_collector::model::cgroup::NoRunCgroup;
use gpu_track_collector::model::config::{Config, Layer};
use gpu_track_collector::model::kernel_errors::without_numbers;
use gpu_track_collector::pidfd::has_pidfs;
use gpu_track_collector::{
    KnownFile, NewSession, OutputLock, ProcRoot, RunDirectory, Segment, SegmentError, StateFile, cgroup,
    clock, connector, has_split_rss, limit_ram, run_cgroup, segment, session_name, stale,
};
use thiserror::Error;

use crate::attach::{Attachment, NotAttached};
use crate::cli::{Options, inherited_marks};
use crate::collector_process::Collector;
use crate::nodes;
use crate::process::reap::ChildChange;
use crate::process::spawn::{Environment, SpawnError};
use crate::run::config;
use crate::shim_on_disk::old_shims::Upkeep;
use crate::shim_on_disk::preload::{Preload, is_nested_too_deep};
use crate::shim_on_disk::shim_file::ShimFileError;

/// Why a command could not be started with tracking, or a process could not be attached to.
#[derive(Debug, Error)]
pub(crate) enum StartError {
    #[error(transparent)]
    Segment(#[from] SegmentError),
    #[error("cannot create {path}: {source}")]
    State { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Shim(#[from] ShimFileError),
    #[error("cannot start the collector: {0}")]
    Collector(io::Error),
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    #[error("cannot watch for the end of the process: {0}")]
    Watch(io::Error),
    #[error(transparent)]
    NotAttached(#[from] NotAttached),
}

/// A session. Its files are removed by the collector, or by [`Session::clean_up`].
pub(crate) struct Session {
    segment: Segment,
    state: StateFile,
    /// The directory of both, if containers are to be tracked.
    directory: Option<RunDirectory>,
    connector: Option<Subscription>,
    preload: Option<Preload>,
    output_locks: Rc<[Option<OutputLock>]>,
    /// The lock that the ranks of a job share. The collector gets it, to make their joint report.
    ranks: Option<Rc<OwnedFd>>,
    origin: Origin,
    config: Config,
}

impl Session {
    /// Removes the files of killed runs, then creates this session's files, and the command's cgroup if one is asked for. For that
    /// cgroup, the launcher may have to move into another one. The kernel gets the run's limit of RAM for the command's cgroup.
    ///
    /// `output_locks`: those of the report's files. `ranks`: the lock that the ranks of a job share.
    ///
    /// # Errors
    /// If the segment or the state file can't be created. What the cgroup lacks is no error: the report says it.
    pub(crate) fn new(
        options: &Options,
        preload: Option<Preload>,
        output_locks: Rc<[Option<OutputLock>]>,
        ranks: Option<Rc<OwnedFd>>,
    ) -> Result<Self, StartError> {
        let uid = rustix::process::getuid().as_raw();
        let pid = std::process::id();
        stale::remove_all(&options.diagnosis.session_dir, uid);
        let proc_root = ProcRoot::default();
        let mut config = config::from_options(options, &proc_root);
        config.discovery.shim_directory = preload.as_ref().and_then(Preload::directory);
        // The keys of a RandomState are random, so its hashes are random numbers.
        let random = RandomState::new();
        let by_env = options.preparations.by_env.clone().unwrap_or_default();
        let new = NewSession {
            flags: flags(options),
            session_id: random.hash_one(0),
            launcher_pid: pid,
            launcher_pid_ns: config.start.pid_ns,
            monotonic_ns: config.start.monotonic_ns,
            realtime_ns: config.start.realtime_ns,
            task_names: by_env.listed(),
            task_baseline: inherited_marks(),
        };
        let path = match options.diagnosis.agent.as_ref().and_then(|agent| agent.segment.clone()) {
            Some(path) => path,
            // The user knows the pid of the relay, if there is one.
            None => {
                let known_pid = options.relay.unwrap_or(pid);
                session_name::new_name(&options.diagnosis.session_dir, uid, known_pid, random.hash_one(1))
            }
        };
        let (directory, path) = match preload.as_ref().filter(|_| options.preparations.containers) {
            Some(_) => with_directory(path, &mut config),
            None => (None, path),
        };
        if options.preparations.containers && preload.is_none() {
            let warning = "--containers has no effect without the layer preload.";
            config.report.warnings.push(warning.to_owned());
        }
        let state_path = session_name::state_name(&path);
        let segment = Segment::create(&path, &new).inspect_err(|_| leave(directory.as_ref()))?;
        let state = StateFile::create(&state_path).map_err(|source| {
            let _ = segment.named().unlink();
            leave(directory.as_ref());
            StartError::State { path: state_path, source }
        })?;
        // Created last, because nothing below fails and would have to remove it.
        config.cgroups.own = options
            .preparations
            .cgroup
            .then(|| run_cgroup::create(&proc_root, pid, options.relay, random.hash_one(2) as u32));
        config.cgroups.ram_limit = limit_ram(&config, &proc_root);
        let origin = Origin { pid, pid_ns: config.start.pid_ns, ..Origin::default() };
        Ok(Self { segment, state, directory, connector: None, preload, output_locks, ranks, origin, config })
    }

    /// Subscribes to the process connector, if that layer is on. From now on, it reports all that the launcher's children start. If
    /// that fails, the configuration says why, for the report.
    pub(crate) fn subscribe(&mut self, options: &Options) {
        let connector = options.discovery.uses(Layer::Connector).then(connector::subscribe).transpose();
        self.connector = connector.unwrap_or_else(|error| {
            self.config.discovery.connector_absent = Some(without_numbers(&error.to_string()));
            None
        });
    }

    /// The command's environment: with the shim, unless the preload layer is off, or the command lists preloaded libraries
    /// (`ld.so --list`) or is QEMU. Adds a warning to the report if so many runs are nested that its processes do not report to this one.
    pub(crate) fn environment(&mut self, command: &[OsString]) -> Environment {
        self.warn_if_nested_too_deep();
        let shows_it = shows_preloaded(command.iter().map(|word| word.as_bytes()));
        let Some(preload) = self.preload.as_ref().filter(|_| !shows_it) else {
            return std::env::vars_os().collect();
        };
        preload.environment(self.segment.named().path())
    }

    /// Adds a warning to the report if so many runs are around this one that its processes do not report to it.
    fn warn_if_nested_too_deep(&mut self) {
        if self.preload.is_some() && is_nested_too_deep() {
            self.config.report.warnings.push(format!(
                "More than {MAX_SESSIONS} runs are nested: the processes of this run do not report to it. Those shorter \
                 than the sampling interval can be missing. Nest fewer runs."
            ));
        }
    }

    /// The variables by which programs report to this session. There are none if the preload layer is off.
    pub(crate) fn variables(&self) -> Vec<(&'static str, OsString)> {
        let preload = self.preload.as_ref();
        preload.map_or_else(Vec::new, |preload| preload.variables(self.segment.named().path()))
    }

    /// Attaches the run to a process, which stands for the command from now on. Adds warnings to the report about what stays unknown.
    ///
    /// # Errors
    /// If the process has ended.
    pub(crate) fn attach(&mut self, attachment: &Attachment) -> Result<Attached, StartError> {
        let attached = attachment.begin()?;
        self.config.attached = Some(attached);
        self.config.report.warnings.extend(attachment.refused_figures());
        self.warn_if_nested_too_deep();
        self.config.command.clone_from(&attachment.args);
        // The process's cgroups limit it. They need not be the launcher's.
        self.config.cgroups = cgroup::of_process(&ProcRoot::default(), Some(attached.pid));
        Ok(attached)
    }

    /// The run's directory, and the shim, if containers are to be tracked.
    pub(crate) fn for_containers(&self) -> Option<(&RunDirectory, &Path)> {
        Some((self.directory.as_ref()?, self.preload.as_ref()?.shim()?))
    }

    /// The run's directory, if containers are to be tracked.
    pub(crate) fn directory(&self) -> Option<&RunDirectory> {
        self.directory.as_ref()
    }

    /// Adds a warning to the report.
    pub(crate) fn warn(&mut self, warning: String) {
        self.config.report.warnings.push(warning);
    }

    pub(crate) fn segment(&self) -> &Segment {
        &self.segment
    }

    pub(crate) fn segment_path(&self) -> &Path {
        self.segment.named().path()
    }

    /// The segment's file, for the processes that end the tree.
    pub(crate) fn known_segment(&self) -> Option<KnownFile> {
        self.segment.named().known()
    }

    /// Opens the cgroup.procs through which the command moves into its own cgroup, if it has one. If that fails, the cgroup is
    /// removed, and the report says why.
    pub(crate) fn cgroup_procs(&mut self) -> Option<File> {
        let Some(Ok(cgroup)) = &self.config.cgroups.own else { return None };
        match run_cgroup::entrance(cgroup) {
            Ok(procs) => Some(procs),
            Err(error) => {
                run_cgroup::remove(cgroup);
                self.config.cgroups.own =
                    Some(Err(NoRunCgroup::NotEntered { error: without_numbers(&error.to_string()) }));
                None
            }
        }
    }

    /// What keeps the shim's file from being removed while the run lasts. `None`: nothing removes the file, or no shim is used.
    pub(crate) fn shim_upkeep(&self) -> Option<Upkeep> {
        self.preload.as_ref().and_then(Preload::upkeep)
    }

    /// Starts a collector of this session. It inherits the segment, the state file, the process connector and the locks of the
    /// reports, and gets the configuration. Fails if no process or pipe can be made.
    pub(crate) fn start_collector(&self) -> Result<Collector, StartError> {
        let locks = self.output_locks.iter().map(|lock| lock.as_ref().map(|lock| lock.file().file()));
        let locks: Vec<_> = locks.collect();
        let connector = self.connector.as_ref();
        let [socket, inbox] =
            [connector.map(|one| one.socket.as_fd()), connector.map(|one| one.inbox.as_fd())];
        let shared = [socket, inbox, self.ranks.as_ref().map(|lock| lock.as_fd())];
        let (segment, state) = (self.segment.named(), self.state.named());
        Collector::start(segment, state, shared, &locks, &self.config, nodes::make_joint_report)
            .map_err(StartError::Collector)
    }

    /// Starts a collector that continues the work of a killed one, and counts the restart. `main_pid`: the command's first process,
    /// which may have ended. `crashed_by`: the signal of the crashes after which no collector of this run may load NVIDIA's
    /// library. It holds for all later collectors, too.
    pub(crate) fn restart_collector(
        &mut self,
        main_pid: Option<u32>,
        crashed_by: Option<i32>,
    ) -> Result<Collector, StartError> {
        self.config.gpu.crashed_by = self.config.gpu.crashed_by.or(crashed_by);
        self.config.restarts += 1;
        self.config.main_pid = main_pid;
        self.start_collector()
    }

    /// The configuration of the session's collectors.
    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// Whether a collector has written the report.
    pub(crate) fn is_reported(&self) -> bool {
        self.state.is_reported()
    }

    /// Writes the REAPED record of an ended child. If the wait layer is off, only the command's first process (`is_main`) gets
    /// one.
    pub(crate) fn record(&self, ended: &ChildChange, is_main: bool) {
        if !is_main && !self.config.discovery.uses(Layer::Wait) {
            return;
        }
        let event = ended.record(self.segment.header().flags & FLAG_SPLIT_RSS != 0);
        self.segment.push_event(&Origin { monotonic_ns: clock::monotonic_ns(), ..self.origin }, &event);
    }

    /// Wakes the collector, which may sleep until the next event.
    pub(crate) fn wake_collector(&self) {
        self.segment.ring_doorbell();
    }

    /// Removes the session's files and the run's cgroup, unless the collector has done so.
    pub(crate) fn clean_up(&self) {
        segment::live::remove(self.segment.named().path());
        for file in [self.segment.named(), self.state.named()] {
            // An error means that the name is gone, or stands for another file.
            let _ = file.unlink();
        }
        if let Some(Ok(cgroup)) = &self.config.cgroups.own {
            run_cgroup::remove(cgroup);
        }
        leave(self.directory.as_ref());
    }
}

/// Creates a directory for the session of this segment. Returns it and the path of the segment in it. If that fails, a warning in the
/// report says that containers are not tracked.
fn with_directory(path: PathBuf, config: &mut Config) -> (Option<RunDirectory>, PathBuf) {
    match RunDirectory::create(&path) {
        Ok((directory, path)) => (Some(directory), path),
        Err(error) => {
            let warning =
                format!("--containers has no effect: no directory for the run could be made ({error}).");
            config.report.warnings.push(warning);
            (None, path)
        }
    }
}

/// Removes a run's directory, unless a process that lives on needs it.
fn leave(directory: Option<&RunDirectory>) {
    if let Some(directory) = directory {
        directory.leave(&ProcRoot::default());
    }
}

/// The flags of the segment's header, which tell the shim what it has to do.
fn flags(options: &Options) -> u32 {
    let all = [
        (FLAG_PIDFS, has_pidfs()),
        (FLAG_SPLIT_RSS, has_split_rss()),
        (FLAG_NO_ENV_REPAIR, options.diagnosis.no_env_repair),
        (FLAG_NO_WAIT_RECORDS, !options.discovery.uses(Layer::Wait)),
    ];
    let mut flags = 0;
    for (flag, is_on) in all {
        if is_on {
            flags |= flag;
        }
    }
    flags
}
