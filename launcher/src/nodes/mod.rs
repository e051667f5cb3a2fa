//! A run over several nodes: `gpu-track-run -- mpirun ./app`.
//!
//! On each other node an [`agent`] tracks what runs there. In a [batch job](batch_job), agents are tasks of [a step](step) of their
//! own. Elsewhere the MPI launcher starts a daemon on each other node, and [`carriers`] make it start an agent there instead,
//! whose command is the daemon. Each agent is a launcher, and writes the report of its node into a [`directory`] that all
//! share. At the end, the launcher [`gather`]s these reports and makes one of them.
//!
//! The directory and the step are made when the first program of the tree is about to reach another node: the shim tells the launcher
//! before its exec, and waits. So a run that starts nothing elsewhere has neither.
//!
//! If a node lacks what an agent needs, its daemon runs as without us, and the report names the node.
//!
//! If each rank is started under a launcher of its own, there are no agents, and [the last rank](joint_report) makes the report of all.

mod agent;
mod agent_options;
mod batch_job;
mod carriers;
mod directory;
mod gather;
mod joint_report;
mod merger;
mod remote_shell;
mod report_note;
mod starter;
mod step;

use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use gpu_track_abi::client::{is_mpi_launcher, reaches_nodes};
use gpu_track_abi::layout::NODES_BY_SSH;
use gpu_track_collector::model::batch;
use gpu_track_collector::model::config::{Message, OtherNodes, ReportConfig, ReportTarget};
use gpu_track_collector::model::style::Output;
use gpu_track_collector::report::format;
use gpu_track_collector::safe_path::User;
use gpu_track_collector::{Segment, clock, host_file};

pub(crate) use agent::{Prepared, prepare as prepare_agent, watch_input};
pub(crate) use joint_report::{RankLock, make as make_joint_report};
pub(crate) use merger::{MERGER, serve_merger};
pub(crate) use remote_shell::{serve_if_started_as_remote_shell, serve_if_started_as_ssh};
pub(crate) use report_note::AgentPlace;
pub(crate) use starter::{STARTER, serve_starter};

use crate::cli::Options;
use crate::process::spawn::{Environment, InheritedState};
use crate::{console, keep};
use batch_job::BatchJob;
use carriers::Carriers;
use directory::{CheckedIn, Membership, NodeDirectory};
use merger::Merger;
use starter::Starter;
use step::Step;

/// What the name of the nodes' directory has after that of the report.
const SUFFIX: &str = ".d";
/// How often the launcher looks whether a thread has made the nodes' directory.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// Whether other nodes are tracked, too. An agent has no agents: the launcher's reach all nodes. A launcher that is one of several
/// ranks has none, either: each rank has a launcher.
pub(crate) fn are_tracked(options: &Options) -> bool {
    options.diagnosis.agent.is_none()
        && options.command.attach.is_none()
        && options.rank.is_none()
        && options.preparations.tracks_nodes()
}

/// The run on all nodes, as its launcher sees it.
pub(crate) struct NodeRun {
    /// Tells the run from others.
    id: u64,
    /// The path of the directory of the nodes' reports, which may have links.
    path: PathBuf,
    /// The directory is removed when the report of all nodes is written, because no `-o` names it.
    is_temporary: bool,
    carriers: Carriers,
    /// The job of several nodes in which the run is.
    job: Option<BatchJob>,
    /// The signal state that the batch system's programs get back.
    inherited: Option<InheritedState>,
    /// The report of all nodes, as the user asked for it.
    report: ReportConfig,
    stage: Stage,
    /// The processes that have started a batch system's programs, until they have been reaped.
    starters: Vec<u32>,
    /// What the account of the run is still to be told.
    messages: Vec<Message>,
}

/// How far a run is that may track other nodes.
enum Stage {
    /// No program has reached another node.
    Alone,
    /// One is about to, and a thread makes the directory: its file system may be slow.
    Joining(JoinHandle<io::Result<Joinable>>),
    /// Other nodes are tracked.
    Joined(Joined),
    /// They can't be tracked.
    Failed,
}

/// What the thread finds out that makes the directory.
struct Joinable {
    /// How many tasks agents have, if the batch system was asked for it.
    tasks: Option<usize>,
    /// `None`: the job has one node.
    place: Option<Place>,
}

/// This node's place in the directory of the nodes' reports.
struct Place {
    directory: NodeDirectory,
    checked_in: CheckedIn,
    /// Keeps another run out of the directory. `None`: its file system has no locks.
    membership: Option<Membership>,
}

/// What a run has that tracks other nodes.
struct Joined {
    directory: NodeDirectory,
    /// The file of this node's report.
    own: PathBuf,
    /// The agents that the batch system has started.
    step: Option<Step>,
    /// Why it has started none.
    no_step: String,
    /// Makes the report of all nodes while the run goes on. `None`: it goes to no file.
    merger: Option<Merger>,
    _membership: Option<Membership>,
}

impl NodeRun {
    /// Prepares to track other nodes. Notes in `options` where this node's report goes in that case, or why they can't be tracked. `None`:
    /// they are not.
    ///
    /// Where the user has not asked for it, only an MPI launcher that is the command itself gets the variables that start agents: other
    /// programs could hand them on to jobs that they submit, where Open MPI would start no daemon.
    pub(crate) fn prepare(options: &mut Options) -> Option<Self> {
        let job = BatchJob::here(&keep::own_variable, &host_file);
        let tracks_ssh = options.preparations.tracks_ssh();
        let is_asked = options.preparations.asks_for_nodes();
        let mut made = match batch::system(&keep::own_variable) {
            // Launchers of MPI can use any batch system to start daemons, and not all of these run a command line.
            Some(system) if job.is_none() => Err(format!("in a job of {system} no agents can be started")),
            None if !is_asked && !starts_by_mpi(&options.command.words) => {
                options.report.other_nodes = OtherNodes::OnRequest;
                return None;
            }
            _ => Self::make(options, job),
        };
        if let Ok(run) = &mut made
            && tracks_ssh
        {
            let _ = run.add_ssh().inspect_err(|why| {
                console::message(format_args!("--nodes=all: what ssh starts is not tracked: {why}"));
            });
        }
        made.map_err(|problem| {
            if is_asked {
                console::message(format_args!("--nodes: only this node is tracked: {problem}"));
            }
            options.report.other_nodes = OtherNodes::Impossible(problem);
        })
        .ok()
    }

    /// # Errors
    /// If no directory can be named, or its path would not reach the nodes unchanged. The error is a line for the user.
    fn make(options: &mut Options, job: Option<BatchJob>) -> Result<Self, String> {
        let of_report = options.report.files().next().map(directory_beside);
        let is_temporary = of_report.is_none();
        let path = of_report
            .or_else(in_state_directory)
            .ok_or("neither -o, XDG_STATE_HOME nor HOME names a directory of this user's own")?;
        // The keys of a RandomState are random, so its hashes are random numbers.
        let id = RandomState::new().hash_one(std::process::id());
        let carriers = Carriers::new(id, &path, options)?;
        // Copied before the places of this node's report alone are noted.
        let report = options.report.clone();
        options.report.place_of_part = Some(json_in(&path.join(directory::report_name())));
        let offers_ssh = job.is_none() && !options.preparations.tracks_ssh();
        options.report.other_nodes = OtherNodes::ByAgents { hindrances: carriers.hindrances(), offers_ssh };
        Ok(Self {
            id,
            path,
            is_temporary,
            carriers,
            job,
            inherited: None,
            report,
            stage: Stage::Alone,
            starters: Vec::new(),
            messages: Vec::new(),
        })
    }

    /// Has the command's programs start agents by ssh, too.
    ///
    /// # Errors
    /// If that is not possible. The error is a line for the user.
    fn add_ssh(&mut self) -> Result<(), String> {
        if self.job.is_some() {
            return Err("this is a batch job".to_owned());
        }
        if let Some(why) = carriers::agent_is_set() {
            return Err(why);
        }
        self.carriers.add_ssh(remote_shell::path_with_stand_in(self.carriers.program())?);
        Ok(())
    }

    /// Prepares for the command, which is about to start. Has the shim tell the launcher before a program reaches another node. If
    /// the command itself is such a program of a batch job, agents are started now, and waited for. Returns the variables for the command
    /// by which its programs start agents. `inherited`: the signal state that the batch system's programs get back.
    pub(crate) fn begin(
        &mut self,
        segment: &Segment,
        command: &[OsString],
        inherited: InheritedState,
    ) -> Environment {
        self.inherited = Some(inherited);
        let Some(job) = &self.job else {
            let variables = self.carriers.environment(segment.named().path());
            // There are none if a run around this one starts agents.
            if !variables.is_empty() {
                segment.tell_of_nodes(NODES_BY_SSH);
            }
            return variables;
        };
        let by = job.system.told_by;
        if !reaches_nodes(by, command.iter().map(|word| word.as_bytes())) {
            segment.tell_of_nodes(by);
            return Vec::new();
        }
        self.join(segment);
        self.end_joining(segment);
        if let Some(step) = self.step_mut()
            && let Err(problem) = step.await_ready()
        {
            self.has_no_step(problem);
        }
        Vec::new()
    }

    /// Tracks other nodes from now on if a program waits for that, and lets it go on as soon as agents are ready. Returns what the
    /// account of the run is to be told.
    pub(crate) fn attend(&mut self, segment: &Segment) -> Vec<Message> {
        match &mut self.stage {
            Stage::Alone if segment.is_told_of_nodes() => self.join(segment),
            Stage::Joining(made) if made.is_finished() => {
                self.end_joining(segment);
                self.end_wait(segment);
            }
            Stage::Joined(Joined { step: Some(step), .. }) if step.is_awaited() => {
                if let Err(problem) = step.look() {
                    self.has_no_step(problem);
                }
                self.end_wait(segment);
            }
            _ => {}
        }
        std::mem::take(&mut self.messages)
    }

    /// Lets the program go on that waits, unless agents are still awaited.
    fn end_wait(&mut self, segment: &Segment) {
        let is_awaited = self.step_mut().map(|step| step.is_awaited());
        if is_awaited != Some(true) && segment.end_wait_for_nodes() && is_awaited.is_some() {
            self.messages.push(Message::NodesReady { at_ns: clock::monotonic_ns() });
        }
    }

    /// Whether this child of the launcher starts agents, or makes a report of all nodes.
    pub(crate) fn has(&self, pid: u32) -> bool {
        let is_merger = |joined: &Joined| joined.merger.as_ref().is_some_and(|merger| merger.has(pid));
        self.starters.contains(&pid) || matches!(&self.stage, Stage::Joined(joined) if is_merger(joined))
    }

    /// Such a child has ended.
    pub(crate) fn ended(&mut self, pid: u32) {
        if self.starters.contains(&pid) {
            self.starters.retain(|starter| *starter != pid);
        } else if let Some(merger) = self.merger() {
            merger.ended();
        }
    }

    /// Has the report of all nodes so far made if that is due. Returns the time until this or [`Self::attend`] is due again; `None`: it has
    /// no time.
    pub(crate) fn merge_if_due(&mut self, segment: &Path) -> Option<Duration> {
        match &mut self.stage {
            Stage::Joining(..) => Some(LOOK_INTERVAL),
            Stage::Joined(joined) => joined.merger.as_mut()?.attend(segment, joined.directory.path()),
            Stage::Alone | Stage::Failed => None,
        }
    }

    /// Has it made soon: a signal has come, and the run may be killed.
    pub(crate) fn merge_soon(&mut self) {
        if let Some(merger) = self.merger() {
            merger.hasten();
        }
    }

    fn merger(&mut self) -> Option<&mut Merger> {
        let Stage::Joined(joined) = &mut self.stage else { return None };
        joined.merger.as_mut()
    }

    fn step_mut(&mut self) -> Option<&mut Step> {
        let Stage::Joined(joined) = &mut self.stage else { return None };
        joined.step.as_mut()
    }

    /// Begins to make the directory of the nodes' reports, unless the batch system says that the job has one node.
    fn join(&mut self, segment: &Segment) {
        let counting = match self.job.as_ref().zip(self.inherited) {
            Some((job, inherited)) => starter::count(job.system, segment.named().path(), inherited),
            None => Ok(None),
        };
        let counting = match counting {
            Ok(counting) => counting,
            Err(error) => return self.can_not_join(&error),
        };
        self.starters.extend(counting.as_ref().map(|starter| starter.pid));
        let (path, id, is_temporary) = (self.path.clone(), self.id, self.is_temporary);
        let report = self.report.clone();
        let make = move || {
            let nodes = counting.map(Starter::number).transpose()?;
            let tasks = nodes.map(|nodes| nodes.saturating_sub(1));
            let place =
                (tasks != Some(0)).then(|| Place::make(&path, id, is_temporary, &report)).transpose()?;
            Ok(Joinable { tasks, place })
        };
        match thread::Builder::new().spawn(make) {
            Ok(made) => self.stage = Stage::Joining(made),
            Err(error) => self.can_not_join(&error),
        }
    }

    /// Says that other nodes can't be tracked, and why.
    fn can_not_join(&mut self, error: &io::Error) {
        console::message(format_args!(
            "--nodes: only this node is tracked: {}: {error}",
            self.path.display()
        ));
        self.messages.push(Message::NodesStayAway);
        self.stage = Stage::Failed;
    }

    /// Waits for the thread that makes this node's place in the directory. Then has the batch system start agents. A line on stderr says
    /// what is not possible.
    fn end_joining(&mut self, segment: &Segment) {
        let Stage::Joining(made) = std::mem::replace(&mut self.stage, Stage::Failed) else { return };
        let made = made.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()));
        let (tasks, place) = match made {
            Ok(Joinable { tasks, place: Some(place) }) => (tasks, place),
            Ok(Joinable { place: None, .. }) => return,
            Err(error) => return self.can_not_join(&error),
        };
        let Place { directory, checked_in: CheckedIn { file, part }, membership } = place;
        self.messages.push(Message::NodesJoin { clock_ahead_s: part.clock_ahead_s });
        let merger = self.report.files().next().is_some().then(Merger::new);
        let mut joined = Joined {
            directory,
            own: file,
            step: None,
            no_step: String::new(),
            merger,
            _membership: membership,
        };
        let mut problem = None;
        if let Some((job, inherited)) = self.job.as_mut().zip(self.inherited) {
            job.tasks = tasks.unwrap_or(job.tasks);
            let segment = segment.named().path();
            let agent = self.carriers.agent(Some(segment));
            match Step::start(job, segment, &agent, joined.directory.path(), inherited) {
                Ok((step, starter)) => {
                    joined.step = Some(step);
                    self.starters.push(starter);
                }
                Err(error) => problem = Some(format!("{}: {error}", job.system.program)),
            }
        }
        self.stage = Stage::Joined(joined);
        if let Some(problem) = problem {
            self.has_no_step(problem);
        }
    }

    /// Notes why the batch system has started no agents, and says so.
    fn has_no_step(&mut self, problem: String) {
        let system = self.job.as_ref().map_or("", |job| job.system.name);
        console::message(format_args!("--nodes: {system} starts no agents: {problem}"));
        if let Stage::Joined(joined) = &mut self.stage {
            joined.step = None;
            joined.no_step = problem;
        }
    }
}

impl Place {
    /// Makes the directory, the file of this node's report, and the note of how the report of all nodes is made.
    fn make(path: &Path, id: u64, is_temporary: bool, report: &ReportConfig) -> io::Result<Self> {
        if is_temporary {
            check_links_to(path)?;
        }
        let (directory, membership) = NodeDirectory::make(path, id)?;
        let is_agent = false;
        let checked_in = directory.check_in(is_agent, None)?;
        if report.files().next().is_some() {
            report_note::write(&directory, report)?;
        }
        Ok(Self { directory, checked_in, membership })
    }
}

/// The base name of a command's program.
fn program_name(words: &[OsString]) -> Option<&OsStr> {
    Path::new(words.first()?).file_name()
}

/// Whether a command is an MPI launcher, also behind a program that only starts it in a certain way.
fn starts_by_mpi(words: &[OsString]) -> bool {
    const WRAPPERS: [&str; 9] =
        ["env", "timeout", "nice", "ionice", "nohup", "setsid", "stdbuf", "numactl", "taskset"];
    let is_wrapped = program_name(words).is_some_and(|name| WRAPPERS.iter().any(|known| name == *known));
    let is_launcher =
        |word: &OsString| Path::new(word).file_name().is_some_and(|name| is_mpi_launcher(name.as_bytes()));
    words.first().is_some_and(is_launcher) || (is_wrapped && words.iter().any(is_launcher))
}

/// The target of a node's report: this file, in JSON.
fn json_in(file: &Path) -> ReportTarget {
    ReportTarget { output: Output::File(file.to_owned()), format: format::JSON_NAME.to_owned() }
}

/// The path of the nodes' directory for this report file: the file's own path with [`SUFFIX`] after it.
fn directory_beside(report: &Path) -> PathBuf {
    let mut path = report.as_os_str().to_owned();
    path.push(SUFFIX);
    path.into()
}

/// The path of the nodes' directory for a run without `-o FILE`. `None`: there is no state directory.
fn in_state_directory() -> Option<PathBuf> {
    Some(state_directory()?.join(format!("{}.{}{SUFFIX}", directory::host(), std::process::id())))
}

/// The directory that has such directories, in this user's state directory. It need not answer, and another user's link can lead there:
/// see [`check_links_to`]. `None`: no variable names one.
fn state_directory() -> Option<PathBuf> {
    Some(keep::of_user(&keep::own_variable)?.directory.join("nodes"))
}

/// Checks that no link of another user leads to this directory in a [state directory](state_directory).
///
/// # Errors
/// If one does.
fn check_links_to(path: &Path) -> io::Result<()> {
    let directory = path.parent().and_then(Path::parent).unwrap_or(path);
    User::this().check_links(directory).map_err(io::Error::other)
}
