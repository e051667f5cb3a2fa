//! The processes of containers that are in the tree (`--containers`): their pids in this namespace.
//!
//! They are no descendants of the command, and their records carry their pids inside. So their cgroups tell which processes they have,
//! and /proc which pid each has inside. Programs without the shim, such as static ones, are found in this way alone.

use std::collections::BTreeMap;

use super::cgroup::container::CountedGroup;
use super::scan::Scanner;
use crate::model::ids::ProcessId;
use crate::model::observation::Observation;
use crate::model::process_lookup::ProcessLookup;
use crate::sys::proc_fs::ProcRoot;

/// Maximum number of processes of a container that are looked at.
const MOST_PROCESSES: usize = 10_000;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct ContainerProcesses {
    /// Where the cgroup of each container can be.
    groups: BTreeMap<String, Vec<CountedGroup>>,
    /// The processes that the table knows by their pids in this namespace.
    known: BTreeMap<u32, ProcessId>,
}

impl ContainerProcesses {
    /// Lists the processes of the running containers of these ids that the table does not know by their pids. `uid`: the user, in
    /// whose slice cgroups can be.
    pub(crate) fn unknown<'a>(
        &mut self,
        ids: impl Iterator<Item = &'a str>,
        table: &impl ProcessLookup,
        (root, uid): (&ProcRoot, u32),
    ) -> Vec<u32> {
        let mut groups = BTreeMap::new();
        let mut unknown = Vec::new();
        for id in ids {
            let mut of_id = self.groups.remove(id).unwrap_or_else(|| CountedGroup::usual(root, id, uid));
            let found = of_id.iter().position(|group| !group.processes(1).is_empty());
            if let Some(at) = found {
                of_id = vec![of_id.swap_remove(at)];
                let is_known = |pid: &u32| {
                    let target = self.known.get(pid).and_then(|id| table.target(*id));
                    target.is_some_and(|target| target.pid == *pid)
                };
                unknown.extend(of_id[0].processes(MOST_PROCESSES).into_iter().filter(|pid| !is_known(pid)));
            }
            groups.insert(id.to_owned(), of_id);
        }
        // Containers that have ended are forgotten.
        self.groups = groups;
        unknown
    }

    /// What is new to the table about a process of a container. The caller must apply it before it asks about another one.
    pub(crate) fn news(
        &mut self,
        scanner: &Scanner,
        table: &impl ProcessLookup,
        pid: u32,
    ) -> Option<Observation> {
        let news = scanner.news_of_joined(table, pid);
        if let Some(Observation::HostPid { id, .. }) = &news {
            self.known.insert(pid, *id);
        }
        self.known.retain(|_, id| table.target(*id).is_some());
        news
    }
}
