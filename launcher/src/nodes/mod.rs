//! A run over several nodes: `gpu-track-run --nodes=auto -- mpirun ./app`.
//!
//! On each other node an [`agent`] tracks what runs there. In a job of Slurm, agents are tasks of [a step](slurm_step) of their
//! own. Elsewhere the MPI launcher starts a daemon on each other node, and [`carriers`] make it start an agent there instead,
//! whose command is the daemon. Each agent is a launcher, and writes the report of its node into a [`directory`] that all
//! share. At the end, the launcher [`gather`]s these reports and makes one of them.
//!
//! If a node lacks what an agent needs, its daemon runs as without us, and the report names the node.
//!
//! If each rank is started under a launcher of its own, there are no agents, and [the last rank](joint_report) makes the report of all.

mod agent;
mod agent_options;
mod carriers;
mod directory;
mod gather;
mod joint_report;
mod remote_shell;
mod slurm_step;

use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};

use gpu_track_collector::OutputLock;
use gpu_track_collector::model::config::{ReportConfig, ReportTarget};
use gpu_track_collector::model::style::Output;
use gpu_track_collector::report::format;
use gpu_track_collector::safe_path::User;

pub(crate) use agent::{prepare as prepare_agent, watch_input};
pub(crate) use joint_report::{RankLock, make as make_joint_report};
pub(crate) use remote_shell::serve_if_started_as_remote_shell;

use crate::cli::Options;
use crate::process::spawn::{Environment, InheritedState};
use crate::{console, keep};
use carriers::Carriers;
use directory::{CheckedIn, Membership, NodeDirectory};
use slurm_step::{SlurmJob, SlurmStep};

/// What the name of the nodes' directory has after that of the report.
const SUFFIX: &str = ".d";

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
    directory: NodeDirectory,
    /// The file of this node's report.
    own: PathBuf,
    carriers: Carriers,
    /// The agents that Slurm has started.
    step: Option<SlurmStep>,
    /// Why Slurm has started none.
    no_step: String,
    /// The report of all nodes, as the user asked for it.
    report: ReportConfig,
    /// The directory is removed when the report of all nodes is written, because no `-o` names it.
    is_temporary: bool,
    /// Keeps another run out of the directory. `None`: its file system has no locks.
    _membership: Option<Membership>,
}

impl NodeRun {
    /// Makes the directory, and has the collector write this node's report into it, and into the report's files. The report of all
    /// nodes replaces it in those files. Terminals and pipes get only that one, because nothing can be replaced there. `locks` are those
    /// of the report's places, in their order. `None`: the run is tracked on this node only, and a line on stderr says why.
    pub(crate) fn prepare(options: &mut Options, locks: &mut Vec<Option<OutputLock>>) -> Option<Self> {
        let node_run = Self::make(options).map_err(|problem| {
            console::message(format_args!("--nodes: only this node is tracked: {problem}"));
        });
        let node_run = node_run.ok()?;
        let report = &mut options.report;
        let places = std::mem::take(&mut report.targets).into_iter().zip(std::mem::take(locks));
        for (target, lock) in places.filter(|(target, _)| target.output.file().is_some()) {
            report.targets.push(target);
            locks.push(lock);
        }
        // This node's report needs no lock: its name has the pid of this process, so no other one writes to it.
        report.targets.push(json_in(&node_run.own));
        locks.push(None);
        // Only the report of all nodes is kept, not that of this node.
        report.keep = None;
        Some(node_run)
    }

    /// Makes the directory, the stand-in for ssh in it, and the file of this node's report. Notes in `options` that the report is one of
    /// several nodes'.
    ///
    /// # Errors
    /// If that is not possible. The error is a line for the user.
    fn make(options: &mut Options) -> Result<Self, String> {
        let of_report = options.report.files().next().map(directory_beside);
        let is_temporary = of_report.is_none();
        let path = of_report
            .or_else(in_state_directory)
            .ok_or("neither -o, XDG_STATE_HOME nor HOME names a directory of this user's own")?;
        // The keys of a RandomState are random, so its hashes are random numbers.
        let id = RandomState::new().hash_one(std::process::id());
        let mut carriers = Carriers::new(id, &path, options)?;
        let cannot = |error| format!("{}: {error}", path.display());
        let (directory, membership) = NodeDirectory::make(&path, id).map_err(cannot)?;
        carriers.link_into(&directory).map_err(cannot)?;
        let is_agent = false;
        let CheckedIn { file, part } = directory.check_in(is_agent).map_err(cannot)?;
        // Copied before `options.report` becomes that of this node alone.
        let report = options.report.clone();
        options.report.node_part = Some(part);
        Ok(Self {
            directory,
            own: file,
            carriers,
            step: None,
            no_step: String::new(),
            report,
            is_temporary,
            _membership: membership,
        })
    }

    /// Has Slurm start the agents, if this is a Slurm job of several nodes, and waits for them for a limited time. Elsewhere, or if
    /// Slurm can't, prepares MPI launchers to start them. Returns the variables for the command that this needs. `segment`: that of
    /// this node. `inherited`: the signal state that srun gets back.
    pub(crate) fn start_agents(&mut self, segment: &Path, inherited: InheritedState) -> Environment {
        let Some(job) = SlurmJob::here(&keep::own_variable) else {
            "this is no job of several nodes, which salloc and sbatch make".clone_into(&mut self.no_step);
            return self.carriers.environment(segment);
        };
        let agent = self.carriers.agent(Some(segment));
        match SlurmStep::start(&job, &agent, inherited) {
            Ok(step) => {
                self.step = Some(step);
                Vec::new()
            }
            Err(problem) => {
                console::message(format_args!("--nodes: Slurm starts no agents: {problem}"));
                self.no_step = problem;
                self.carriers.environment(segment)
            }
        }
    }
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

/// The directory that has such directories, in this user's state directory. `None`: no variable names one, or another user's link
/// leads there.
fn state_directory() -> Option<PathBuf> {
    let directory = keep::of_user(&keep::own_variable)?.directory;
    User::this().check_links(&directory).ok()?;
    Some(directory.join("nodes"))
}
