//! Processes of gpu-track itself in the tree: what shows runs and their files, such as `gpu-track watch`, and what the Python module
//! starts. The figures leave them out, with all that they start. A gpu-track-run within the run is no helper, and counts.
//!
//! A helper stays in the tree until it is finalized. Otherwise its later records would add it again, and its CPU time in its
//! parent's sums would count as unattributed.

use super::{Parent, ProcessId, Tree};
use crate::model::command::is_helper;

impl Tree {
    /// Leaves a process out of the figures if `command`, which it runs, is a helper, or if a helper has started it. The command's
    /// first process is no helper, whatever it runs.
    pub(super) fn leave_out_helper(&mut self, id: ProcessId, command: &str) {
        let Some(process) = self.processes.get(&id).filter(|process| !process.ids.is_main) else { return };
        if process.ids.is_helper || !(is_helper(command) || self.is_of_helper(process.ancestry.parent)) {
            return;
        }
        let group = process.program.group;
        // Samples read live processes and their groups, so they leave it out from now on.
        self.groups.remove(id, group);
        self.no_longer_alive(id);
        self.counts.created -= 1;
        self.counts.helpers += 1;
        if let Some(process) = self.processes.get_mut(&id) {
            process.ids.is_helper = true;
        }
    }

    /// Whether a process with this parent was started by a helper.
    fn is_of_helper(&self, parent: Parent) -> bool {
        let Some(id) = parent.known() else { return false };
        let finalized = || self.finalized(id).is_some_and(|parent| parent.is_helper);
        self.processes.get(&id).map_or_else(finalized, |parent| parent.ids.is_helper)
    }
}
