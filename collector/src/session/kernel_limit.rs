//! A limit of RAM that the kernel holds, in the cgroup of the command.

use crate::model::config::Config;
use crate::model::run_limit::{KernelLimit, LimitAction, Quantity, RunLimit, Threshold};
use crate::run::usable_at_start::usable_at_start;
use crate::sources::cgroup::run_cgroup;
use crate::sources::host;
use crate::sys::proc_fs::ProcRoot;

/// Has the kernel hold the limit of RAM, if the run has one and a cgroup. `None`: it has not.
#[must_use]
pub fn limit_ram(config: &Config, root: &ProcRoot) -> Option<KernelLimit> {
    let Some(Ok(cgroup)) = &config.cgroups.own else { return None };
    let is_it = |limit: &&RunLimit| limit.quantity == Quantity::Ram && limit.action == LimitAction::End;
    let strictest =
        config.tracking.limits.list.iter().filter(is_it).filter_map(|limit| bytes(limit, config, root)).min();
    let bytes = strictest?;
    Some(match run_cgroup::limit_memory(cgroup, bytes) {
        Ok(()) => KernelLimit::Set(bytes),
        Err(reason) => KernelLimit::Refused(reason),
    })
}

/// Gives what a limit allows. `None`: it is a part of an unknown whole.
fn bytes(limit: &RunLimit, config: &Config, root: &ProcRoot) -> Option<u64> {
    match limit.threshold {
        Threshold::Amount(bytes) => Some(bytes),
        Threshold::Percent(percent) => {
            let whole = usable_at_start(config, &host::of_this_machine(root, None)).memory.bytes?;
            Some((whole as f64 * percent / 100.0) as u64)
        }
    }
}
