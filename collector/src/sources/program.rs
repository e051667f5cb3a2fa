//! What a process runs, from /proc: name and arguments of the program, whether it has a dynamic loader, and whose memory the
//! process has.

use std::fs::File;
use std::path::Path;

use rustix::process::geteuid;

use crate::model::ids::{Key, Target};
use crate::model::observation::{Program, ProgramQuestion, ProgramSeen, UnreportedMemory};
use crate::sys::pidfd;
use crate::sys::proc_fs::{CommandLine, ProcRoot};

/// Maximum number of bytes of a command line that are read.
const MAX_ARGS_BYTES: u64 = 4096;

/// Reads the arguments of a process. `None`: it has none, or is gone.
pub fn args(root: &ProcRoot, pid: u32) -> Option<Vec<String>> {
    Some(root.args(pid, MAX_ARGS_BYTES)?.into_args())
}

/// Reads what a process runs, and whose memory it has if `question` asks for that.
///
/// `began_by_ns`: a time by which the program had begun, CLOCK_MONOTONIC nanoseconds. It is returned beside what was found of the memory.
/// `is_answer` is false: a caller that answers the core sets it.
pub fn read(root: &ProcRoot, target: &Target, question: ProgramQuestion, began_by_ns: u64) -> ProgramSeen {
    let memory = match question {
        // The core knows already that the memory is the process's own.
        ProgramQuestion::What => None,
        ProgramQuestion::WhatAndWhose(parent) => Some((memory(root, target.pid, parent), began_by_ns)),
    };
    let (program, inner) = program(root, target.pid);
    ProgramSeen { id: target.id, program, inner, memory, is_answer: false }
}

/// Whether a process that may be a copy of its parent runs another executable than the parent by now. False if one of the
/// executables can't be read.
pub fn runs_other_than(root: &ProcRoot, pid: u32, parent: Option<u32>) -> bool {
    let executables = (root.executable(pid), parent.and_then(|parent| root.executable(parent)));
    matches!(executables, (Some(own), Some(parents)) if own != parents)
}

/// Finds out whose memory a process has: its own, a copy of its parent's, or its parent's.
fn memory(root: &ProcRoot, pid: u32, parent: Option<u32>) -> UnreportedMemory {
    match parent {
        Some(parent) if pidfd::shares_memory(parent, pid) => UnreportedMemory::Parents,
        // If neither executable can be read, they count as the same.
        Some(parent) if root.executable(parent) == root.executable(pid) => UnreportedMemory::Copy,
        _ => UnreportedMemory::Own,
    }
}

/// Reads what a process runs, and its pid inside its own pid namespace. The pid is `None` if the process is in this process's
/// namespace, or is gone. Without a peak RSS in the result, the process had ended ([`Program::is_over`]).
fn program(root: &ProcRoot, pid: u32) -> (Program, Option<Key>) {
    let line = root.args(pid, MAX_ARGS_BYTES);
    let command = line.as_ref().and_then(CommandLine::command).or_else(|| root.comm(pid));
    let args = line.map(CommandLine::into_args);
    let exe = root.path(pid, "exe");
    let static_executable = if is_static(&exe) == Some(true) { std::fs::read_link(&exe).ok() } else { None };
    let static_executable = static_executable.map(|path| path.to_string_lossy().into_owned());
    // The status of a zombie has no peak RSS. Since it is read last, a peak means that the process was alive while all of the
    // above was read.
    let status = root.status(pid);
    let inner = match status.as_ref().map(|status| status.ns_pids.as_slice()) {
        Some([_, .., inner]) => root.pid_ns(pid).map(|pid_ns| Key { pid_ns, pid: *inner }),
        _ => None,
    };
    let user = status.as_ref().and_then(|status| status.user);
    let other_user = user.filter(|user| *user != geteuid().as_raw());
    let peak_rss_bytes = status.and_then(|status| status.hwm);
    (Program { command, args, static_executable, other_user, peak_rss_bytes }, inner)
}

/// Whether a program is known to write no records. Static programs don't load the shim, and in another user's program the shim
/// may not open the segment.
pub fn is_uninstrumented(program: &Program) -> bool {
    program.static_executable.is_some() || program.other_user.is_some()
}

/// Whether an ELF file has no program interpreter, so that no dynamic loader reads LD_PRELOAD for it. `None`: the file can't be
/// read, or is no little-endian ELF file.
pub fn is_static(path: &Path) -> Option<bool> {
    use std::os::unix::fs::FileExt;
    const PT_INTERP: u32 = 3;
    /// Executables have some 15. A damaged one may claim any number.
    const MAX_PROGRAM_HEADERS: u64 = 256;
    let file = File::open(path).ok()?;
    let mut header = [0u8; 64];
    file.read_exact_at(&mut header, 0).ok()?;
    let number = |bytes: &[u8], at: usize, size: usize| {
        let field = bytes.get(at..at + size)?;
        Some(field.iter().rev().fold(0u64, |value, byte| value << 8 | u64::from(*byte)))
    };
    let (class, byte_order) = (header.get(4), header.get(5));
    // 1 is ELFDATA2LSB. All machines that this is built for are little-endian.
    if header.get(..4)? != b"\x7fELF" || byte_order != Some(&1) {
        return None;
    }
    // 2 is ELFCLASS64.
    let is_64 = class == Some(&2);
    // Offset of the program headers, size and number of them: e_phoff, e_phentsize and e_phnum (elf(5)).
    let (table, size, count) = if is_64 {
        (number(&header, 32, 8)?, number(&header, 54, 2)?, number(&header, 56, 2)?)
    } else {
        (number(&header, 28, 4)?, number(&header, 42, 2)?, number(&header, 44, 2)?)
    };
    for entry in 0..count.min(MAX_PROGRAM_HEADERS) {
        // p_type, the first field.
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
