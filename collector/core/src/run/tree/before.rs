//! What processes had read and written before the run attached to their tree, and which had ended before that.

use serde::{Deserialize, Serialize};

use super::{Key, Tree};
use crate::model::observation::OverBefore;
use crate::model::tree_sample::IoBytes;

/// The block I/O before the attach of all processes that were there then.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoBefore {
    /// The sum over the processes whose block I/O could be read.
    pub bytes: IoBytes,
    /// The first process whose block I/O could not be read, by its pid in the collector's namespace. Once its parent waits for
    /// it, the parent's figures include its I/O from before. So the run's own I/O is unknown.
    pub unread: Option<u32>,
}

impl IoBefore {
    /// Adds block input and output of the process with this pid in the collector's namespace, 512-byte units. `None`: they could
    /// not be read. The first such process is noted.
    fn add(&mut self, pid: u32, blocks: Option<(u64, u64)>) {
        let Some((input, output)) = blocks else {
            self.unread.get_or_insert(pid);
            return;
        };
        self.bytes = self.bytes.with(IoBytes::of_blocks(input, output), u64::saturating_add);
    }
}

impl Tree {
    /// Adds block input and output before the attach of the process with this pid in the collector's namespace, 512-byte units. `None`:
    /// they could not be read. Does nothing if the run has not attached to a process.
    pub(super) fn add_io_before(&mut self, pid: u32, blocks: Option<(u64, u64)>) {
        if let Some(io) = &mut self.io_before {
            io.add(pid, blocks);
        }
    }

    /// Keeps a zombie that had ended before the run began. So neither a REAPED record nor /proc adds it as a process of the run. Its
    /// block I/O counts as from before the attach, since its parent's figures include it once the parent has waited for it.
    pub(crate) fn found_over_before(&mut self, over: OverBefore) {
        self.add_io_before(over.host_pid, over.blocks);
        self.over_before.push(over);
    }

    /// The zombies that had ended before the run began. Their parents may have waited for them since, without a record.
    pub fn over_before(&self) -> &[OverBefore] {
        &self.over_before
    }

    /// Whether a process with this pid in the collector's namespace, which started at `start_ns` (CLOCK_MONOTONIC nanoseconds), had
    /// ended before the run began.
    pub(super) fn was_over_before(&self, key: Key, start_ns: u64) -> bool {
        let is_same = |over: &OverBefore| over.host_pid == key.pid && over.has_started_at(start_ns);
        key.pid_ns == self.context.pid_ns && self.over_before.iter().any(is_same)
    }

    /// Forgets the process with this pid that had ended before the run began, since its parent has waited for it. Returns
    /// whether there was such a process.
    pub(super) fn forget_over_before(&mut self, key: Key) -> bool {
        let at = self.over_before.iter().position(|over| over.key == key);
        at.map(|at| self.over_before.swap_remove(at)).is_some()
    }
}
