//! The machine that a run takes place on. Read once, at the collector's start.

use std::os::unix::ffi::OsStrExt;

use gpu_track_abi::rank::{self, Rank};

use crate::model::host_info::HostInfo;
use crate::model::report::Host;
use crate::sources::limits;
use crate::sys::proc_fs::ProcRoot;

/// Describes this machine, and the limits of this process.
pub(crate) fn of_this_machine(root: &ProcRoot) -> HostInfo {
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
        limits: limits::own(root),
        own_ranks: own_ranks(),
    }
}

/// Reads the ranks in this process's environment, which is the launcher's.
fn own_ranks() -> Vec<Rank> {
    let values = rank::VARIABLES.map(std::env::var_os);
    let values = values.each_ref().map(|value| value.as_ref().map(|value| value.as_bytes()));
    rank::ranks(&values).into_iter().flatten().collect()
}
