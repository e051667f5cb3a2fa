//! Jobs of several nodes, and how their batch systems start agents: a row of [`SYSTEMS`] for each system.
//!
//! Sources: srun(1) of Slurm; `src/cmds/pbsdsh.c`, `src/resmom/start_exec.c` and `mom_comm.c` of OpenPBS and Torque; "blaunch" in the
//! command reference of IBM Spectrum LSF 10.1; flux-exec(1) and `src/cmd/flux-exec.c`. Only Slurm's row was tried with its system.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::OsStr;

use gpu_track_abi::layout::{NODES_BY_LAUNCHER, NODES_BY_SRUN};
use gpu_track_collector::model::batch::{self, HostFile, Job, Variable, other_systems, slurm};
use gpu_track_collector::model::host_name::short;

use super::directory::host;

/// A batch system that can start agents on the nodes of a job.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct System {
    /// Its name in [`batch::system`].
    key: &'static str,
    /// Its name for users.
    pub(super) name: &'static str,
    /// Its program that starts tasks on nodes.
    pub(super) program: &'static str,
    /// The words of that program before the command of the task. [`JOB`], [`NODES`] and [`PLACE`] stand for what differs.
    words: &'static [&'static str],
    reach: Reach,
    /// The programs of the user before which agents start.
    pub(super) told_by: u32,
    /// Where a task's standard streams lead.
    pub(super) streams: Streams,
    /// What the names of variables begin with that its program does not get: they would change the step of the agents, or name files
    /// to execute.
    hides: &'static [&'static str],
    /// The variables that it gets all the same.
    gets: &'static [&'static str],
    /// Variables are hidden only where this user is root, whose environment can be another user's.
    hides_from_root_alone: bool,
}

/// The nodes that one command of a system reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// All nodes of the job.
    All,
    /// All others. The job's environment does not tell how many there are.
    AllOthers,
    /// One host, which it has by its name.
    Host,
    /// One host, which it has by the number of the host's first slot in the job's list.
    Slot,
}

/// Where the standard streams of a task lead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Streams {
    /// To those of the program that has started it.
    Carried,
    /// Input comes from /dev/null, and output goes into that of the user's job. The program hands SIGINT on.
    OfJob,
}

/// Stands for the job's id in the words of a system's program.
const JOB: &str = "{job}";
/// Stands for the number of nodes.
const NODES: &str = "{nodes}";
/// Stands for what names a host. Each command has another one.
pub(super) const PLACE: &str = "{place}";
/// Maximum number of hosts that are reached one by one: each has a process here while the run lasts.
const MOST_HOSTS: usize = 1000;

const SYSTEMS: [System; 4] = [
    System {
        key: "slurm",
        name: "Slurm",
        program: "srun",
        words: &[
            "--jobid",
            JOB,
            "--overlap",
            "--nodes",
            NODES,
            "--ntasks",
            NODES,
            "--ntasks-per-node=1",
            "--mpi=none",
            "--cpu-bind=none",
            "--quiet",
            // A task ends early on the launcher's own node, and where it can't track.
            "--wait=0",
            "--kill-on-bad-exit=0",
        ],
        reach: Reach::All,
        told_by: NODES_BY_SRUN,
        streams: Streams::Carried,
        // The job is named by `--jobid`, so srun needs only the variables by which it finds the controller.
        hides: &["SLURM", "SRUN"],
        gets: &["SLURM_CONF", "SLURM_WORKING_CLUSTER", "SLURM_CLUSTERS", "SLURM_JWT"],
        hides_from_root_alone: false,
    },
    System {
        key: "pbs",
        name: "PBS",
        program: "pbsdsh",
        // Without a number, pbsdsh starts a task for each slot, and only Torque's has `-u` for one a host. getopt(3) in OpenPBS takes
        // options of the task for its own without `--`.
        words: &["-n", PLACE, "--"],
        reach: Reach::Slot,
        told_by: NODES_BY_LAUNCHER,
        streams: Streams::OfJob,
        hides: &["PBS"],
        // What tm_init(3) reads.
        gets: &["PBS_JOBID", "PBS_JOBCOOKIE", "PBS_NODENUM", "PBS_TASKNUM", "PBS_MOMPORT", "PBS_ENVIRONMENT"],
        hides_from_root_alone: true,
    },
    System {
        key: "lsf",
        name: "LSF",
        program: "blaunch",
        // With one host, it is documented as a replacement for rsh, which carries all three streams.
        words: &[PLACE, "-no-shell"],
        reach: Reach::Host,
        told_by: NODES_BY_LAUNCHER,
        streams: Streams::Carried,
        hides: &["LSF", "EGO"],
        gets: &[],
        hides_from_root_alone: true,
    },
    System {
        key: "flux",
        name: "Flux",
        program: "flux",
        // The batch script is on rank 0. A task would start in this working directory, which its node may lack.
        words: &["exec", "--exclude=0", "--dir=/"],
        reach: Reach::AllOthers,
        told_by: NODES_BY_LAUNCHER,
        streams: Streams::Carried,
        hides: &["FLUX"],
        gets: &["FLUX_URI"],
        hides_from_root_alone: true,
    },
];

impl System {
    /// Whether a variable of this user's environment is kept from the program that starts agents.
    pub(super) fn hides(&self, name: &OsStr, is_root: bool) -> bool {
        let begins = |prefix: &&str| name.as_encoded_bytes().starts_with(prefix.as_bytes());
        (is_root || !self.hides_from_root_alone)
            && self.hides.iter().any(begins)
            && !self.gets.iter().any(|kept| name == *kept)
    }

    /// The words of its program that print how many nodes a job has. `None`: the job's environment tells that.
    pub(super) fn counting(&self) -> Option<[&'static str; 2]> {
        (self.reach == Reach::AllOthers).then_some(["getattr", "size"])
    }
}

/// A job of several nodes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BatchJob {
    pub(super) system: &'static System,
    id: String,
    /// The other hosts that are reached one by one, by what names them.
    pub(super) others: Vec<Other>,
    /// How many tasks agents have: on the other hosts, and for Slurm on this one. 0: it is not known yet.
    pub(super) tasks: usize,
}

/// A host of the job besides this one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Other {
    pub(super) host: String,
    /// What names it for the program that starts tasks.
    pub(super) place: String,
}

impl BatchJob {
    /// The job that this process runs in, if it can have several nodes.
    pub(super) fn here(variable: Variable, file: HostFile) -> Option<Self> {
        let key = batch::system(variable)?;
        let system = SYSTEMS.iter().find(|system| system.key == key)?;
        let slots = RefCell::new(String::new());
        let read = |path: &OsStr| {
            let text = file(path)?;
            slots.borrow_mut().clone_from(&text);
            Ok(text)
        };
        let (slurm, other) = (slurm::read(variable), other_systems::read(Some(key), variable, &read));
        let job = Job::new(&slurm, &other);
        let id = job.id()?.to_owned();
        let others = match system.reach {
            Reach::All | Reach::AllOthers => Vec::new(),
            Reach::Host | Reach::Slot => others(job, system, &slots.borrow()),
        };
        let tasks = match system.reach {
            Reach::All => job.node_count().filter(|nodes| *nodes > 1)?.try_into().ok()?,
            Reach::Host | Reach::Slot => Some(others.len()).filter(|others| *others > 0)?,
            // In a task of a job, `flux exec` would reach the nodes around the job.
            Reach::AllOthers => variable("FLUX_JOB_ID").is_none().then_some(0)?,
        };
        Some(Self { system, id, others, tasks })
    }

    /// How many other nodes agents were to track whose names are not known. `has_step`: agents were started. Where Slurm has started none,
    /// the arguments of srun name the nodes that have processes.
    pub(super) fn unnamed(&self, has_step: bool) -> usize {
        match self.system.reach {
            Reach::All if has_step => self.tasks.saturating_sub(1),
            Reach::AllOthers => self.tasks,
            Reach::All | Reach::Host | Reach::Slot => 0,
        }
    }

    /// The words of the program that starts tasks, before the command of a task.
    pub(super) fn words(&self) -> Vec<String> {
        let nodes = self.tasks.to_string();
        let filled = |word: &&str| match *word {
            JOB => self.id.clone(),
            NODES => nodes.clone(),
            word => word.to_owned(),
        };
        self.system.words.iter().map(filled).collect()
    }
}

/// The other hosts of a job, if it has no more than [`MOST_HOSTS`]. `slots` has the host of each slot.
fn others(job: Job, system: &System, slots: &str) -> Vec<Other> {
    let hosts = job.nodes(MOST_HOSTS);
    if job.node_count() != Some(hosts.len() as u64) {
        return Vec::new();
    }
    let mut first = HashMap::new();
    for (slot, host) in slots.split_ascii_whitespace().enumerate() {
        first.entry(host).or_insert(slot);
    }
    let here = host();
    let place = |name: &str| match system.reach {
        Reach::Slot => first.get(name).map(usize::to_string),
        _ => Some(name.to_owned()),
    };
    let others = hosts.into_iter().filter(|name| short(name) != short(&here));
    others.filter_map(|host| Some(Other { place: place(&host)?, host })).collect()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    fn job(variables: &[(&str, &str)], file: &str) -> Option<BatchJob> {
        let variable = |name: &str| {
            variables.iter().find(|(of, _)| *of == name).map(|(_, value)| OsString::from(*value))
        };
        BatchJob::here(&variable, &|_| Ok(file.to_owned()))
    }

    // Requirement: NODE-14
    #[test]
    fn agents_belong_to_a_job_of_several_nodes() {
        let nodes = |nodes| job(&[("SLURM_JOB_ID", "7"), ("SLURM_JOB_NUM_NODES", nodes)], "");
        let of_slurm = nodes("3").unwrap();
        assert_eq!((of_slurm.system.program, of_slurm.tasks, of_slurm.others), ("srun", 3, vec![]));
        assert!(nodes("3").unwrap().words().starts_with(&["--jobid", "7", "--overlap"].map(str::to_owned)));
        let none = [nodes("1"), nodes("many"), job(&[("SLURM_JOB_ID", "7")], ""), job(&[], "")];
        assert_eq!(none, [const { None }; 4]);
    }

    // Requirement: NODE-76
    #[test]
    fn other_hosts_of_a_job_are_reached_by_slot_or_name() {
        let here = host();
        let places = |found: Option<BatchJob>| {
            found.map(|job| {
                let places = job.others.iter().map(|other| format!("{} {}", other.host, other.place));
                (job.system.program, places.collect::<Vec<_>>().join(" "))
            })
        };
        let pbs = [("PBS_JOBID", "7.server"), ("PBS_NODEFILE", "/f")];
        // Slots of a host need not be together.
        let cyclic = format!("{here}.site\nn2\nn3\n{here}.site\nn2\nn3\n");
        assert_eq!(places(job(&pbs, &cyclic)), Some(("pbsdsh", "n2 1 n3 2".to_owned())));
        let lsf = |hosts| job(&[("LSB_JOBID", "7"), ("LSB_MCPU_HOSTS", hosts)], "");
        assert_eq!(places(lsf(&format!("{here} 4 n2 4"))), Some(("blaunch", "n2 n2".to_owned())));
        let many: String = (0..1001).map(|i| format!("n{i}\n")).collect();
        for (slots, why) in [(&*here, "one node"), ("n1 root:x", "no list of hosts"), (&many, "too many")] {
            assert_eq!(job(&pbs, slots), None, "{why}");
        }
    }

    // Requirement: NODE-76
    #[test]
    fn batch_script_of_flux_has_agents_and_a_task_has_none() {
        let script = ("FLUX_ENCLOSING_ID", "f1");
        let found = job(&[script], "").unwrap();
        assert_eq!((found.system.counting(), found.tasks), (Some(["getattr", "size"]), 0));
        assert_eq!(job(&[script, ("FLUX_JOB_ID", "f2")], ""), None);
    }

    // Requirement: FAULT-15
    #[test]
    fn programs_that_start_agents_get_no_variables_that_change_their_step_or_name_files() {
        let system = |key: &str| SYSTEMS.iter().find(|system| system.key == key).unwrap();
        let kept = |key: &str, is_root: bool, names: &[&str]| {
            let is_kept = |name: &&&str| !system(key).hides(OsStr::new(name), is_root);
            names.iter().filter(is_kept).map(|name| (*name).to_owned()).collect::<Vec<_>>()
        };
        let slurm = ["SLURM_CONF", "SLURM_STEP_GPUS", "SLURMD_NODENAME", "SLURM_JOB_ID", "PATH"];
        assert_eq!(kept("slurm", false, &slurm), ["SLURM_CONF", "PATH"]);
        for (key, needed) in [("pbs", "PBS_JOBID"), ("lsf", "LSB_JOBID"), ("flux", "FLUX_URI")] {
            let other = format!("{}_OTHER", system(key).hides[0]);
            assert_eq!(kept(key, true, &[&*other, needed]), [needed]);
            assert_eq!(kept(key, false, &[&*other, needed]), [&*other, needed]);
        }
    }
}
