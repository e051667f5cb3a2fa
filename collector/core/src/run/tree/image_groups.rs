//! Image groups: which live processes may share anonymous pages.

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::model::ids::{ImageGroup, ProcessId};

/// Members of an image group, oldest first.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Group {
    /// Live processes that share the image.
    pub members: Vec<ProcessId>,
    /// How often a process left the group, or came from another one. A PSS that was read is valid for one epoch only.
    pub epoch: u64,
}

/// All image groups with a live process.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct ImageGroups {
    by_id: FxHashMap<ImageGroup, Group>,
    /// The last id that was given.
    last: u64,
    /// How often a process of any group has come, gone, or turned out to have another kind of image. If this has risen, a sample
    /// estimates anew what the processes share.
    pub changes: u64,
}

impl ImageGroups {
    /// A group. `None`: no live process is in it.
    pub(super) fn get(&self, group: ImageGroup) -> Option<&Group> {
        self.by_id.get(&group)
    }

    /// Makes the id of a group that has no process so far.
    pub(super) fn new_id(&mut self) -> ImageGroup {
        self.last += 1;
        ImageGroup(self.last)
    }

    /// Adds a process that is new to the tree. The epoch stays: what was read of the others' sharing remains valid.
    pub(super) fn add_new(&mut self, id: ProcessId, group: ImageGroup) {
        self.changes += 1;
        self.by_id.entry(group).or_default().members.push(id);
    }

    /// Adds a process that comes from another group. The epoch ends: the sharing of all members must be read again.
    pub(super) fn add_from_other_group(&mut self, id: ProcessId, group: ImageGroup) {
        self.add_new(id, group);
        self.by_id.entry(group).or_default().epoch += 1;
    }

    /// Removes a process, and a group without processes. The epoch ends: the sharing of the others must be read again.
    pub(super) fn remove(&mut self, id: ProcessId, group: ImageGroup) {
        let Some(old) = self.by_id.get_mut(&group) else { return };
        self.changes += 1;
        old.members.retain(|member| *member != id);
        old.epoch += 1;
        if old.members.is_empty() {
            self.by_id.remove(&group);
        }
    }

    /// Notes that the kind of a process's image became known, or known better. The process stays in its group.
    pub(super) fn note_image_kind(&mut self) {
        self.changes += 1;
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }
}
