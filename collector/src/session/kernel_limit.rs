//! A limit of RAM that the kernel enforces, in the cgroup of the command.

use crate::model::config::Config;
use crate::model::rule::{Quantity, Rule, Threshold};
use crate::model::run_limit::KernelLimit;
use crate::run::usable_at_start::usable_at_start;
use crate::sources::cgroup::run_cgroup;
use crate::sources::host;
use crate::sys::proc_fs::ProcRoot;

/// Sets the memory limit of the run's cgroup to the strictest RAM limit that ends the tree. Returns the limit, or why the kernel refused
/// it. `None`: the run has no cgroup of its own, or no such limit whose bytes are known.
pub fn limit_ram(config: &Config, root: &ProcRoot) -> Option<KernelLimit> {
    let Some(Ok(cgroup)) = &config.cgroups.own else { return None };
    let ends_at_ram = |limit: &&Rule| limit.quantity == Quantity::Ram && limit.ends();
    let limits = config.tracking.limits.list.iter().filter(ends_at_ram);
    let strictest_bytes = limits.filter_map(|limit| allowed_bytes(limit, config, root)).min()?;
    Some(match run_cgroup::limit_memory(cgroup, strictest_bytes) {
        Ok(()) => KernelLimit::Set(strictest_bytes),
        Err(reason) => KernelLimit::Refused(reason),
    })
}

/// The RAM that a limit allows, bytes. `None`: it is a percentage of the usable RAM, and that is unknown.
fn allowed_bytes(limit: &Rule, config: &Config, root: &ProcRoot) -> Option<u64> {
    match limit.threshold {
        Threshold::Amount(bytes) => Some(bytes),
        Threshold::Percent(percent) => {
            // Only a command that the launcher starts has a cgroup of its own.
            let attached = None;
            let whole = usable_at_start(config, &host::of_this_machine(root, attached)).memory.bytes?;
            Some((whole as f64 * percent / 100.0) as u64)
        }
        // Memory that rises all the time: only alerts have this threshold, and these are limits.
        Threshold::Rise => None,
    }
}
