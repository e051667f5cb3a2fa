//! The machine that a run takes place on. Read once, at the collector's start.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use gpu_track_abi::rank::{self, Rank};

use crate::model::host_info::HostInfo;
use crate::model::report::Host;
use crate::sources::allowed;
use crate::sys::proc_fs::ProcRoot;

/// Describes this machine, and the limits and ranks of this process, which are the command's. `attached`: the pid of the process
/// that the run attached to, whose limits and environment count instead.
pub(crate) fn of_this_machine(root: &ProcRoot, attached: Option<u32>) -> HostInfo {
    let environment: Option<HashMap<_, _>> =
        attached.map(|pid| root.variables(pid).unwrap_or_default().into_iter().collect());
    let variable = |name: &str| match &environment {
        Some(environment) => environment.get(OsStr::new(name)).cloned(),
        None => std::env::var_os(name),
    };
    let uname = rustix::system::uname();
    let text = |s: &std::ffi::CStr| Some(s.to_string_lossy().into_owned()).filter(|s| !s.is_empty());
    // SAFETY: sysconf has no preconditions.
    let cores = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    HostInfo {
        host: Host {
            hostname: text(uname.nodename()),
            kernel: text(uname.release()),
            cores: u32::try_from(cores).unwrap_or(1).max(1),
            ram_bytes: root.system_memory().map(|(_, total)| total),
            boot_id: root.boot_id(),
        },
        page_bytes: rustix::param::page_size() as u64,
        ticks_per_second: rustix::param::clock_ticks_per_second(),
        allowed: allowed::read(root, attached, &variable),
        own_ranks: own_ranks(&variable),
    }
}

/// Reads the ranks (of MPI, Slurm and others) in an environment: the launcher's, or that of an attached process. `variable` looks up
/// a variable.
fn own_ranks(variable: &dyn Fn(&str) -> Option<OsString>) -> Vec<Rank> {
    let values = rank::VARIABLES.map(variable);
    let values = values.each_ref().map(|value| value.as_ref().map(|value| value.as_bytes()));
    rank::ranks(&values).into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    // Requirement: ATTACH-5
    #[test]
    fn limits_and_environment_are_those_of_the_attached_process() {
        let mut child = Command::new("sh")
            // It does not exec after it is ready: /proc shows no environment in the middle of an exec.
            .args(["-c", "ulimit -n 77; echo ready; read line"])
            .env("SLURM_JOB_ID", "17")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = [0; 6];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
        let limits = of_this_machine(&ProcRoot::default(), Some(child.id())).allowed;
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(limits.ulimits["open_files"].soft, crate::model::report::Limit::Known(77));
        assert_eq!(limits.slurm["SLURM_JOB_ID"], "17");
        assert!(limits.cpus.is_some_and(|cpus| !cpus.is_empty()));
    }
}
