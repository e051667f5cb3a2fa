//! The tree as the sources see it, which look up processes before they read /proc.

use super::{Image, ProcessId, Tree};
use crate::model::ids::{Key, Target};
use crate::model::process_lookup::{KnownProgram, ProcessLookup, ProgramOrigin};

impl ProcessLookup for Tree {
    fn has_main(&self) -> bool {
        Self::has_main(self)
    }

    fn live(&self) -> Vec<ProcessId> {
        self.alive().to_vec()
    }

    fn target(&self, id: ProcessId) -> Option<Target> {
        self.get(id).filter(|process| process.is_alive())?.target()
    }

    fn live_by_key(&self, key: Key) -> Option<ProcessId> {
        self.youngest_alive(key)
    }

    fn live_by_inode(&self, pidfd_inode: u64, pid: u32) -> Option<ProcessId> {
        let inner = self.by_state.inner.iter().filter_map(|(_, id)| self.processes.get(id));
        let mut unplaced = inner.filter(|process| process.is_alive() && process.ids.host_pid.is_none());
        let is_it =
            |process: &&super::Process| process.ids.pidfd_inode == pidfd_inode && process.ids.key.pid == pid;
        unplaced.find(is_it).filter(|_| pidfd_inode != 0).map(|process| process.ids.id)
    }

    fn is_known(&self, key: Key, pidfd_inode: u64, start_ns: u64) -> bool {
        self.knows(key, pidfd_inode, start_ns)
    }

    fn program(&self, id: ProcessId) -> Option<KnownProgram> {
        let process = self.get(id).filter(|process| process.is_alive())?;
        let parent = process.ancestry.parent.known().and_then(|id| self.get(id));
        Some(KnownProgram {
            origin: match process.program.image {
                Image::Loaded { .. } => ProgramOrigin::Reported,
                Image::Forked { .. } => ProgramOrigin::ForkCopy,
                Image::Unknown => ProgramOrigin::Unknown,
                Image::Uninstrumented | Image::Borrowed => ProgramOrigin::Read,
            },
            has_record: process.program.has_record,
            has_unreported_exec: process.program.unreported_exec.is_some(),
            start_ns: process.program_start_ns(),
            live_parent_pid: parent.filter(|parent| parent.is_alive()).and_then(|parent| parent.ids.host_pid),
            parent_pid: self.parent_host_pid(process),
        })
    }

    fn pid_ns(&self) -> u32 {
        self.context().pid_ns
    }

    fn session_start_ns(&self) -> u64 {
        self.context().session_monotonic_ns
    }
}
