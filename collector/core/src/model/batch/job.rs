//! What a job's variables tell of it, by the names that each batch system has for them.

use std::collections::BTreeMap;

use super::other_systems::{self, FLUX_NODES, MORE};
use super::{node_list, slurm};

/// Bytes of what Slurm calls a megabyte.
const MEGABYTE: u64 = 1 << 20;

/// A job, by its variables as [`slurm::read`] or [`other_systems::read`] returns them. `None` or empty: they do not say, or there is no
/// job.
#[derive(Debug, Clone, Copy)]
pub struct Job<'a>(pub &'a BTreeMap<String, String>);

impl<'a> Job<'a> {
    /// The job that these variables describe: those of Slurm, or of other systems.
    pub fn new(slurm: &'a BTreeMap<String, String>, other: &'a BTreeMap<String, String>) -> Self {
        Self(if other.is_empty() { slurm } else { other })
    }

    fn text(self, name: &str) -> Option<&'a str> {
        self.0.get(name).map(String::as_str)
    }

    fn number(self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    /// The job's id.
    pub fn id(self) -> Option<&'a str> {
        super::job_ids().find_map(|name| self.text(name))
    }

    /// How many nodes it has. Torque's PBS_NUM_NODES is what was asked for, and nodes can be parts of one host. So it counts only without
    /// a list.
    pub fn node_count(self) -> Option<u64> {
        let hosts = other_systems::hosts(self.0);
        let listed: u64 = hosts.map(|(host, slots)| if host == MORE { slots } else { 1 }).sum();
        let told =
            || [slurm::NODE_COUNT, "PBS_NUM_NODES", FLUX_NODES].iter().find_map(|name| self.number(name));
        Some(listed).filter(|count| *count > 0).or_else(told)
    }

    /// Names of its first `most` nodes.
    pub fn nodes(self, most: usize) -> Vec<String> {
        if let Some(list) = self.text(slurm::NODES) {
            return node_list::expanded(list, most);
        }
        let hosts = other_systems::hosts(self.0).filter(|(host, _)| *host != MORE);
        hosts.take(most).map(|(host, _)| host.to_owned()).collect()
    }

    /// Names of the first `most` nodes of the part of the job (Slurm: step) that this process belongs to.
    pub fn step_nodes(self, most: usize) -> Vec<String> {
        self.text(slurm::STEP_NODES).map(|list| node_list::expanded(list, most)).unwrap_or_default()
    }

    /// How many nodes that part has, if its nodes have no names. A Flux job has tasks on each of its nodes. Jobs of PBS and LSF can leave
    /// nodes unused.
    pub fn step_node_count(self) -> Option<u64> {
        self.number(FLUX_NODES).filter(|_| self.text(other_systems::FLUX_RANK).is_some())
    }

    /// The name of this node in those lists.
    pub fn this_node(self) -> Option<&'a str> {
        self.text(slurm::THIS_NODE)
    }

    /// Its start, seconds since the epoch.
    pub fn start_s(self) -> Option<u64> {
        self.number(slurm::START).filter(|start| *start > 0)
    }

    /// Its latest end, seconds since the epoch.
    pub fn end_s(self) -> Option<u64> {
        self.number(slurm::END)
    }

    /// Its time limit, seconds: Torque's, or the time from its start to its latest end.
    pub fn limit_s(self) -> Option<u64> {
        let by_torque = self.number(other_systems::LIMIT).filter(|limit_s| *limit_s > 0);
        by_torque.or_else(|| self.end_s()?.checked_sub(self.start_s()?))
    }

    /// Its CPUs on this node. The slots of LSF and Torque are CPUs. No variable of theirs tells which host is this one, so they are known
    /// if all hosts have as many.
    pub fn cpus_here(self) -> Option<u64> {
        let by_slots = || {
            self.text(other_systems::TORQUE_SLOTS).or(self.text("LSB_JOBID"))?;
            let mut hosts = other_systems::hosts(self.0);
            let (_, slots) = hosts.next()?;
            hosts.all(|(host, others)| host != MORE && others == slots).then_some(slots)
        };
        self.number(slurm::CPUS_HERE).or_else(by_slots)
    }

    /// Its memory on this node, bytes; also `None` if it may use all that the node has. Slurm sets one of three variables: memory of the
    /// node, of each CPU, or of each GPU. 0 stands for all that the node has.
    pub fn memory_here_bytes(self) -> Option<u64> {
        let of_all = |memory_of_one, count: Option<u64>| self.number(memory_of_one)?.checked_mul(count?);
        let megabytes = self
            .number(slurm::MEMORY_HERE)
            .or_else(|| of_all(slurm::MEMORY_OF_CPU, self.cpus_here()))
            .or_else(|| of_all(slurm::MEMORY_OF_GPU, self.number(slurm::GPUS_HERE)));
        megabytes?.checked_mul(MEGABYTE).filter(|bytes| *bytes > 0)
    }
}
