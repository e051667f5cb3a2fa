//! The containers that daemons run for the tree's calls, as far as they were seen. Which container belongs to which call is concluded
//! when a report is made.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::containers::{
    ContainerDaemon, ContainerNote, ContainerSeen, ContainerWish, DaemonState, MOST_CONTAINERS, NotTracked,
};

/// See the module.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Containers {
    seen: BTreeMap<String, ContainerSeen>,
    daemons: BTreeMap<ContainerDaemon, DaemonState>,
    /// The containers whose processes are in the tree, by id: the client that asked for each.
    in_tree: BTreeMap<String, String>,
    /// How many containers were created as their clients asked for, and why.
    not_tracked: BTreeMap<NotTracked, u64>,
    /// How many bytes of the proxy's notes are read.
    notes_bytes: u64,
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

    /// Takes in what came of containers that docker's proxy was asked for. `read_bytes`: as the field. Returns those to be followed.
    pub(super) fn note_created(&mut self, read_bytes: u64, notes: &[ContainerNote]) -> Vec<ContainerWish> {
        self.notes_bytes = read_bytes;
        let mut wishes = Vec::new();
        for note in notes {
            match note {
                ContainerNote::Tracked { id, client } if self.in_tree.len() < MOST_CONTAINERS => {
                    self.in_tree.insert(id.clone(), client.clone());
                    wishes.push(ContainerWish::Named(id.clone()));
                }
                ContainerNote::Tracked { .. } => {}
                ContainerNote::NotTracked(why) => *self.not_tracked.entry(*why).or_default() += 1,
            }
        }
        wishes
    }

    /// How many bytes of the proxy's notes are read.
    pub fn notes_bytes(&self) -> u64 {
        self.notes_bytes
    }

    /// The containers whose processes are in the tree, and the client that asked for each.
    pub(crate) fn in_tree(&self) -> &BTreeMap<String, String> {
        &self.in_tree
    }

    /// How many containers were created as their clients asked for, and why.
    pub(crate) fn not_tracked(&self) -> &BTreeMap<NotTracked, u64> {
        &self.not_tracked
    }

    /// The ids of those in the tree that have not ended, as far as known.
    pub fn running_in_tree(&self) -> impl Iterator<Item = &str> {
        let has_ended = |id: &String| self.seen.get(id).is_some_and(|seen| seen.ended_ns.is_some());
        self.in_tree.keys().filter(move |id| !has_ended(id)).map(String::as_str)
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
