//! The processes that are not finalized, by id.

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::{Process, ProcessId};

/// A map of processes. Each is boxed, since the table keeps its capacity after a burst, and a process takes half a kilobyte.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct UnfinalizedProcesses(FxHashMap<ProcessId, Box<Process>>);

impl UnfinalizedProcesses {
    pub(super) fn get(&self, id: &ProcessId) -> Option<&Process> {
        self.0.get(id).map(Box::as_ref)
    }

    pub(super) fn get_mut(&mut self, id: &ProcessId) -> Option<&mut Process> {
        self.0.get_mut(id).map(Box::as_mut)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn contains_key(&self, id: &ProcessId) -> bool {
        self.0.contains_key(id)
    }

    pub(super) fn insert(&mut self, process: Process) {
        self.0.insert(process.ids.id, Box::new(process));
    }

    pub(super) fn remove(&mut self, id: &ProcessId) -> Option<Process> {
        self.0.remove(id).map(|process| *process)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &ProcessId> {
        self.0.keys()
    }

    pub fn values(&self) -> impl Iterator<Item = &Process> {
        self.0.values().map(Box::as_ref)
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut Process> {
        self.0.values_mut().map(Box::as_mut)
    }
}
