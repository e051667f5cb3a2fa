//! The scan layer: children of known processes in /proc, for those that never say anything themselves (static and
//! setuid programs, other users' processes).
//!
//! Only done when a process was created anywhere since the last time (the last field of /proc/loadavg moves), and
//! only for a bounded time per sample, going on where it stopped.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::run::tree::command::command_of_args;
use crate::run::tree::{FoundInProc, Image, Key, Parent, Process, ProcessId, Program, SilentMemory, Tree};
use crate::sources::sampler::Programs;
use crate::sys::clock;
use crate::sys::pidfd;
use crate::sys::proc_fs::{ProcRoot, read_held};

/// Part of the sampling interval that a scan may take, as a divisor.
const SHARE_OF_INTERVAL: u32 = 50;

/// What is still to be looked at.
#[derive(Debug, Clone, Copy)]
enum Look {
    /// A process and the list of its children.
    Process(ProcessId),
    /// A child of a process.
    Child(ProcessId, u32),
}

/// Looks for children.
#[derive(Debug)]
pub struct Scanner {
    root: ProcRoot,
    loadavg: Option<File>,
    last_pid: Option<u64>,
    queue: Vec<Look>,
}

impl Scanner {
    /// A scanner over a /proc.
    #[must_use]
    pub fn new(root: ProcRoot) -> Self {
        let loadavg = File::open(root.file("loadavg")).ok();
        Self { root, loadavg, last_pid: None, queue: Vec::new() }
    }

    /// Whether a process was created since this was last asked (true where that can't be told).
    fn is_news(&mut self) -> bool {
        let mut buffer = [0; 128];
        let text = self.loadavg.as_ref().and_then(|file| read_held(file, &mut buffer));
        let last_pid = text.and_then(|text| {
            let field = text.trim_ascii().rsplit(|b| *b == b' ').next()?;
            str::from_utf8(field).ok()?.parse().ok()
        });
        let news = last_pid.is_none() || last_pid != self.last_pid;
        self.last_pid = last_pid;
        news
    }

    /// Look for children of the live processes, at most for a part of `interval`. Gives the pids of those that nobody
    /// knew.
    pub fn scan(&mut self, tree: &mut Tree, interval: Duration) -> Vec<u32> {
        if self.queue.is_empty() && self.is_news() {
            self.queue = tree.alive().iter().copied().map(Look::Process).collect();
        }
        let (start, limit) = (Instant::now(), longest_look(interval));
        let mut found = Vec::new();
        while let Some(look) = self.queue.pop() {
            match look {
                Look::Process(id) => self.look_at(tree, id),
                Look::Child(parent, pid) => {
                    if let Some(id) = self.child(tree, parent, pid) {
                        found.push(pid);
                        // Its own children next.
                        self.queue.push(Look::Process(id));
                    }
                }
            }
            if start.elapsed() > limit {
                break;
            }
        }
        found
    }

    /// Look at everybody again, whatever was heard.
    pub fn look_again(&mut self) {
        self.last_pid = None;
    }

    fn look_at(&mut self, tree: &mut Tree, id: ProcessId) {
        let Some(process) = tree.get(id).filter(|process| process.is_alive()) else { return };
        let Some(pid) = process.host_pid else { return };
        // The pid may be a stranger's by now.
        let stat = self.root.stat(pid).filter(|stat| process.is_shown(stat, tree.frame().tick_us));
        let Some(stat) = stat else { return };
        let is_fork = matches!(process.image, Image::Forked { .. });
        if !process.spoke || (is_fork && self.runs_other_than_its_parent(tree, process, pid)) {
            self.look_at_image(tree, id, pid, clock::monotonic_ns());
        }
        self.queue
            .extend(self.root.children(pid, stat.threads).into_iter().map(|child| Look::Child(id, child)));
    }

    /// Where the kernel does not tell of execs: look at those who run another program than before, by a reading at this time,
    /// and, for a part of `interval` at most, at those whom it saw for the first time, since no other process need come
    /// before they end.
    pub fn look_at_programs(&self, tree: &mut Tree, programs: &Programs, now_ns: u64, interval: Duration) {
        let (start, limit) = (Instant::now(), longest_look(interval));
        // What was read is that program already.
        let at_ns = now_ns.saturating_sub(1);
        for (id, since_ns) in &programs.changed {
            self.look_at_changed(tree, *id, *since_ns, at_ns);
        }
        for (id, start_stack) in &programs.first {
            if start.elapsed() > limit {
                break;
            }
            self.look_at_newcomer(tree, *id, *start_stack, at_ns);
        }
    }

    fn look_at_changed(&self, tree: &mut Tree, id: ProcessId, since_ns: u64, at_ns: u64) {
        let Some(process) = tree.get(id).filter(|process| process.is_alive()) else { return };
        let Some(pid) = process.host_pid else { return };
        // It may have said so itself. What has no dynamic loader has not.
        let may_be_told = process.program_start_ns() > since_ns;
        if !may_be_told || is_static(&self.root.path(pid, "exe")) == Some(true) {
            tree.observe_exec(id, at_ns);
            self.look_at_silent(tree, id);
        }
    }

    fn look_at_newcomer(&self, tree: &mut Tree, id: ProcessId, start_stack: u64, at_ns: u64) {
        let Some(process) = tree.get(id).filter(|process| process.is_alive()) else { return };
        let Some(pid) = process.host_pid else { return };
        let is_copy = matches!(process.image, Image::Forked { .. } | Image::Unknown);
        let runs_another = match process.image {
            Image::Loaded { .. } => is_static(&self.root.path(pid, "exe")) == Some(true),
            Image::Forked { .. } | Image::Unknown => self.runs_other_than_its_parent(tree, process, pid),
            Image::Silent | Image::Borrowed => false,
        };
        // Asked last: one that has exec'd since it was read will be found to have done so.
        let is_same = || self.root.stat(pid).is_some_and(|stat| stat.start_stack == start_stack);
        if process.silent_exec.is_some() || !runs_another || !is_same() {
            return;
        }
        if is_copy {
            self.look_at_image(tree, id, pid, at_ns);
        } else {
            tree.observe_exec(id, at_ns);
            self.look_at_silent(tree, id);
        }
    }

    /// Whether a process that may be a copy of its parent runs another program by now.
    fn runs_other_than_its_parent(&self, tree: &Tree, process: &Process, pid: u32) -> bool {
        let Parent::Known(parent) = process.parent else { return false };
        let Some(parent) = tree.get(parent).filter(|parent| parent.is_alive()) else { return false };
        let executable = |pid| self.root.executable(pid);
        matches!(
            (executable(pid), parent.host_pid.and_then(executable)),
            (Some(own), Some(parents)) if own != parents
        )
    }

    /// Look at a process of which the kernel told and that has not spoken since.
    pub fn look_at_silent(&self, tree: &mut Tree, id: ProcessId) {
        let Some(process) = tree.get(id).filter(|process| process.is_alive()) else { return };
        let Some(pid) = process.host_pid else { return };
        if process.silent_exec.is_some() {
            let program = self.program(tree, id, pid);
            tree.set_program(id, program);
        } else if !process.spoke {
            self.look_at_image(tree, id, pid, clock::monotonic_ns());
        }
    }

    /// What a process that never spoke runs; if it has exec'd since the last look, it did so by `at_ns`.
    fn look_at_image(&self, tree: &mut Tree, id: ProcessId, pid: u32, at_ns: u64) {
        let parent = match tree.get(id).map(|process| process.parent) {
            Some(Parent::Known(parent)) => tree.get(parent).and_then(|parent| parent.host_pid),
            _ => None,
        };
        let memory = match parent {
            Some(parent) if pidfd::shares_memory(parent, pid) => SilentMemory::Parents,
            Some(parent) if self.root.executable(parent) == self.root.executable(pid) => SilentMemory::Copy,
            _ => SilentMemory::Own,
        };
        let program = self.program(tree, id, pid);
        // Whose memory it was can't be told any more.
        if !program.is_over() {
            tree.set_silent_image(id, memory, at_ns);
        }
        tree.set_program(id, program);
    }

    /// What a process runs. On the way it may be found to be in another pid namespace.
    fn program(&self, tree: &mut Tree, id: ProcessId, pid: u32) -> Program {
        let args = self.root.args(pid, 4096);
        let command = args.as_deref().and_then(command_of_args).or_else(|| self.root.comm(pid));
        let exe = self.root.path(pid, "exe");
        let static_executable = is_static(&exe).and_then(|is_static| {
            let path = std::fs::read_link(&exe).ok().filter(|_| is_static)?;
            Some(path.to_string_lossy().into_owned())
        });
        // The last to be read: it tells whether all before it was read of the living.
        let status = self.root.status(pid);
        if let Some([_, .., inner]) = status.as_ref().map(|status| status.ns_pids.as_slice())
            && let Some(pid_ns) = self.root.pid_ns(pid)
        {
            tree.found_inside(id, Key { pid_ns, pid: *inner });
        }
        Program { command, args, static_executable, peak: status.and_then(|status| status.hwm) }
    }

    fn child(&self, tree: &mut Tree, parent: ProcessId, pid: u32) -> Option<ProcessId> {
        let here = tree.frame().pid_ns;
        let stat = self.root.stat(pid)?;
        // Most are known and alive, which takes no more than this.
        let alive = tree.open_instance(Key { pid_ns: here, pid }).and_then(|id| tree.get(id));
        if alive.is_some_and(|process| process.is_shown(&stat, tree.frame().tick_us)) {
            return None;
        }
        let pidfd_inode = pidfd::inode(pid).unwrap_or(0);
        // Since it was listed its pid may have become a stranger's.
        if tree.get(parent).and_then(|parent| parent.host_pid) != Some(stat.ppid) {
            return None;
        }
        let start_ns = stat.start_ns(tree.frame().tick_us);
        if tree.knows(Key { pid_ns: here, pid }, pidfd_inode, start_ns) {
            return None;
        }
        let status = self.root.status(pid)?;
        let key = match status.ns_pids.as_slice() {
            [_, .., inner] => Key { pid_ns: self.root.pid_ns(pid)?, pid: *inner },
            _ => Key { pid_ns: here, pid },
        };
        if key.pid_ns != here
            && let Some(known) = tree.open_instance(key)
        {
            tree.set_host_pid(known, pid);
            return Some(known);
        }
        // It said itself that it is over, and its parent has not waited for it yet.
        if key.pid_ns != here && tree.knows(key, pidfd_inode, start_ns) {
            return None;
        }
        let session = tree.frame().session_monotonic_ns;
        let found = FoundInProc { key, host_pid: pid, parent, start_ns: start_ns.max(session), pidfd_inode };
        let id = tree.found_in_proc(&found);
        self.look_at_image(tree, id, pid, clock::monotonic_ns());
        Some(id)
    }
}

/// How long to look around at a time.
fn longest_look(interval: Duration) -> Duration {
    (interval / SHARE_OF_INTERVAL).clamp(Duration::from_micros(20), Duration::from_millis(20))
}

/// Whether an ELF file has no program interpreter, so no dynamic loader ever reads LD_PRELOAD for it. `None` if that
/// can't be read.
#[must_use]
pub fn is_static(path: &Path) -> Option<bool> {
    use std::os::unix::fs::FileExt;
    const PT_INTERP: u32 = 3;
    let file = File::open(path).ok()?;
    let mut header = [0u8; 64];
    file.read_exact_at(&mut header, 0).ok()?;
    let number = |bytes: &[u8], at: usize, size: usize| {
        let field = bytes.get(at..at + size)?;
        Some(field.iter().rev().fold(0u64, |value, byte| value << 8 | u64::from(*byte)))
    };
    // Little-endian only: so are the machines that this is built for.
    if header.get(..4)? != b"\x7fELF" || header.get(5) != Some(&1) {
        return None;
    }
    let is_64 = header.get(4) == Some(&2);
    let (table, size, count) = if is_64 {
        (number(&header, 32, 8)?, number(&header, 54, 2)?, number(&header, 56, 2)?)
    } else {
        (number(&header, 28, 4)?, number(&header, 42, 2)?, number(&header, 44, 2)?)
    };
    for entry in 0..count.min(256) {
        let mut kind = [0u8; 4];
        file.read_exact_at(&mut kind, table.checked_add(entry * size)?).ok()?;
        if u32::from_le_bytes(kind) == PT_INTERP {
            return Some(false);
        }
    }
    Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dynamic_program_is_told_from_what_is_none() {
        assert_eq!(is_static(Path::new("/proc/self/exe")), Some(false));
        assert_eq!(is_static(Path::new("/proc/self/status")), None);
        assert_eq!(is_static(Path::new("/nonexistent")), None);
    }
}
