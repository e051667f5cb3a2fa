//! The containers that daemons run for the tree's calls, as far as they were seen. Which container belongs to which call is concluded
//! when a report is made.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::containers::{ContainerDaemon, ContainerSeen, DaemonState, MOST_CONTAINERS};

/// See the module.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Containers {
    seen: BTreeMap<String, ContainerSeen>,
    daemons: BTreeMap<ContainerDaemon, DaemonState>,
}

impl Containers {
    /// Takes in what is known of a container by now. It is left out if there are [`MOST_CONTAINERS`] others.
    pub(super) fn add(&mut self, seen: &ContainerSeen) {
        if !self.are_full() || self.seen.contains_key(&seen.id) {
            self.seen.insert(seen.id.clone(), seen.clone());
        }
    }

    /// Whether further containers are left out.
    pub(crate) fn are_full(&self) -> bool {
        self.seen.len() >= MOST_CONTAINERS
    }

    /// Notes whether the containers of a daemon can be followed.
    pub(super) fn note_daemon(&mut self, daemon: ContainerDaemon, state: &DaemonState) {
        self.daemons.insert(daemon, state.clone());
    }

    /// All containers of a daemon, by id.
    pub fn of_daemon(&self, daemon: ContainerDaemon) -> impl Iterator<Item = &ContainerSeen> {
        self.seen.values().filter(move |seen| seen.daemon == daemon)
    }

    /// The container with this id.
    pub(crate) fn get(&self, id: &str) -> Option<&ContainerSeen> {
        self.seen.get(id)
    }

    /// All containers, by id.
    pub(crate) fn all(&self) -> impl Iterator<Item = &ContainerSeen> {
        self.seen.values()
    }

    /// The socket of a daemon, or why its containers can't be followed. `None`: nothing is known yet.
    pub(crate) fn daemon(&self, daemon: ContainerDaemon) -> Option<&DaemonState> {
        self.daemons.get(&daemon)
    }
}
