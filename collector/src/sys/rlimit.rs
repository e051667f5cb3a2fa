//! Resource limits of other processes (prlimit(2)), and of this one.

use rustix::process::{Resource as OwnResource, Rlimit, getrlimit, setrlimit};

use crate::model::observation::ProcessLimits;

/// Raises this process's soft limits of open files and of file size to the hard ones. The collector holds two files open per
/// process. The state file, and a copy of a segment with its overflow area, are long, though nearly empty.
pub(crate) fn raise_own() {
    for resource in [OwnResource::Nofile, OwnResource::Fsize] {
        let limit = getrlimit(resource);
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        // If this fails, files are opened and closed at every reading, or no state is kept for another collector.
        let _ = setrlimit(resource, raised);
    }
}

/// Reads those limits of a process that can end it. `None`: the process is gone, or is another user's.
pub fn of_process(pid: u32) -> Option<ProcessLimits> {
    let (address_space_bytes, _) = read(pid, libc::RLIMIT_AS)?;
    let (cpu_s, hard_cpu_s) = read(pid, libc::RLIMIT_CPU)?;
    let (file_size_bytes, _) = read(pid, libc::RLIMIT_FSIZE)?;
    Some(ProcessLimits { address_space_bytes, cpu_s, hard_cpu_s, file_size_bytes })
}

#[cfg(target_env = "gnu")]
pub type Resource = libc::__rlimit_resource_t;
#[cfg(not(target_env = "gnu"))]
pub type Resource = libc::c_int;

/// Reads the soft and the hard limit of a process; a limit that is `None` is unlimited. `None` alone: the process is gone, or is
/// another user's.
pub fn read(pid: u32, resource: Resource) -> Option<(Option<u64>, Option<u64>)> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // For prlimit, 0 is the calling process.
    let pid = libc::pid_t::try_from(pid).ok().filter(|pid| *pid > 0)?;
    // SAFETY: with a null new limit, the call changes nothing, and writes the present limit to `limit`.
    let result = unsafe { libc::prlimit(pid, resource, std::ptr::null(), &raw mut limit) };
    let finite = |value: libc::rlim_t| (value != libc::RLIM_INFINITY).then_some(value);
    (result == 0).then(|| (finite(limit.rlim_cur), finite(limit.rlim_max)))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    // Requirement: WHY-3
    #[test]
    fn limits_of_another_process_are_read() {
        let mut child = Command::new("sh")
            .args(["-c", "ulimit -v 1000000; ulimit -t 77; ulimit -f 8; echo ready; exec cat"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = [0; 6];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
        let limits = of_process(child.id());
        drop(child.stdin.take());
        child.wait().unwrap();
        let expected = ProcessLimits {
            address_space_bytes: Some(1_024_000_000),
            cpu_s: Some(77),
            hard_cpu_s: Some(77),
            // sh counts in blocks of 512 bytes, bash in those of 1,024.
            file_size_bytes: limits
                .and_then(|limits| limits.file_size_bytes)
                .filter(|n| [4096, 8192].contains(n)),
        };
        assert!(expected.file_size_bytes.is_some(), "{limits:?}");
        assert_eq!(limits, Some(expected));
        assert_eq!(of_process(0), None);
    }
}
