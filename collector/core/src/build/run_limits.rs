//! The limits that the user set for the run: which were exceeded, and the one that ended it.

use super::Inputs;
use crate::model::report::{Cause, Cgroup, Enforcer, LimitExceeded, MaxRam, RunLimitUse};
use crate::model::rule::{Quantity, Response, Rule, Threshold};
use crate::model::run_limit::{Exceeded, KernelLimit};
use crate::model::signal::signal_name;
use crate::model::tree_sample::GpuSums;

/// The kernel kills at a limit only if the charge is above this part of it. A charge grows by pages, which can be huge.
const LEAST_CHARGED_PART: f64 = 0.9;

/// The report's entry on each limit of the run.
pub(super) fn run_limits(inputs: &Inputs) -> Vec<RunLimitUse> {
    let run = inputs.run;
    let gpu = run.gpu.usage.now(inputs.end.at_ns);
    let entry = |(limit, exceeded): (&Rule, Option<&Exceeded>)| {
        let unit = limit.unit();
        // What a percentage allows may be unknown by now, as when a GPU was lost. Then the amount that it allowed when the limit was
        // exceeded is reported.
        let allowed = run.rules.allowed(limit, &gpu).or(exceeded.map(|exceeded| exceeded.by.allowed as f64));
        RunLimitUse {
            limit: limit.words.clone(),
            quantity: limit.quantity,
            unit,
            allowed: allowed.map(|amount| unit.in_report_unit(amount)),
            action: match limit.response {
                Response::End => "end".to_owned(),
                Response::Tell => "tell".to_owned(),
                Response::Signal(signal) => signal_name(signal),
            },
            enforced_by: enforcer(inputs, limit),
            reason: reason(inputs, limit, gpu.expected),
            exceeded_at_s: exceeded.map(|exceeded| run.since_start_s(exceeded.by.at_ns)),
            amount: exceeded.map(|exceeded| unit.in_report_unit(exceeded.by.amount as f64)),
        }
    };
    run.rules.limits().map(entry).collect()
}

/// The limit that ended the run, as the cause of its end. `None`: none did.
pub(super) fn cause(inputs: &Inputs, cgroup: Option<&Cgroup>, max_ram: &MaxRam) -> Option<Cause> {
    let run = inputs.run;
    let Some((limit, exceeded)) = run.rules.that_ended() else {
        return killed_by_kernel(inputs, cgroup, max_ram);
    };
    // The unit of a report, to which `in_report_unit` converts amounts.
    let unit = limit.unit();
    // The most memory that the run had, from which the overshoot is computed. Other quantities have none.
    let most = match limit.quantity {
        Quantity::Ram => max_ram.combined.footprint_bytes,
        Quantity::GpuRam => match limit.threshold {
            Threshold::Amount(_) => run.gpu.usage.max.memory.map(|most| most.combined),
            // A percentage is of one GPU, for which no maximum is kept. `Rise` is of alerts only.
            Threshold::Percent(_) | Threshold::Rise => Some(exceeded.by.amount),
        },
        _ => None,
    };
    Some(Cause::Limit(LimitExceeded {
        limit: limit.words.clone(),
        quantity: limit.quantity,
        unit,
        allowed: unit.in_report_unit(exceeded.by.allowed as f64),
        amount: unit.in_report_unit(exceeded.by.amount as f64),
        at_s: Some(run.since_start_s(exceeded.by.at_ns)),
        enforced_by: if limit.quantity == Quantity::Wall { Enforcer::Timer } else { Enforcer::Samples },
        overshoot_bytes: most.map(|most| most.saturating_sub(exceeded.by.allowed)),
        process: exceeded.largest.clone(),
        was_killed: run.rules.tree_end.map(|end| end.is_killed),
        left: run.rules.tree_end.map(|end| end.left),
    }))
}

/// The limit of RAM as the cause of the end, if the kernel ended the run at it. That is so if it counted out-of-memory kills in the
/// command's own cgroup, which has that limit. `None`: the kernel did not end the run.
fn killed_by_kernel(inputs: &Inputs, cgroup: Option<&Cgroup>, max_ram: &MaxRam) -> Option<Cause> {
    let was_oom_killed = cgroup.and_then(|cgroup| cgroup.oom_kills).is_some_and(|kills| kills > 0);
    // Of several, the kernel was given the strictest.
    let held_by_kernel =
        inputs.run.rules.limits().map(|(limit, _)| limit).filter(|limit| is_held_by_kernel(inputs, limit));
    let allowed_by =
        |limit: &&Rule| inputs.run.rules.allowed(limit, &GpuSums::default()).unwrap_or(f64::INFINITY);
    let limit = held_by_kernel.min_by(|a, b| allowed_by(a).total_cmp(&allowed_by(b)))?;
    let Some(KernelLimit::Set(allowed)) = inputs.config.cgroups.ram_limit else { return None };
    let unit = limit.unit();
    let charged = cgroup.and_then(|cgroup| cgroup.memory_peak_bytes);
    let amount = charged.or(max_ram.combined.footprint_bytes)?;
    // If this limit was not reached, the kernel killed at another one: that of a group within this one, or the machine's memory.
    let is_reached = amount as f64 >= allowed as f64 * LEAST_CHARGED_PART;
    (was_oom_killed && is_reached).then(|| {
        Cause::Limit(LimitExceeded {
            limit: limit.words.clone(),
            quantity: limit.quantity,
            unit,
            allowed: unit.in_report_unit(allowed as f64),
            amount: unit.in_report_unit(amount as f64),
            at_s: None,
            enforced_by: Enforcer::Kernel,
            overshoot_bytes: Some(amount.saturating_sub(allowed)),
            process: inputs.run.rules.largest.in_ram.clone(),
            was_killed: Some(true),
            left: None,
        })
    })
}

/// Whether the kernel enforces this limit, in the command's own cgroup.
fn is_held_by_kernel(inputs: &Inputs, limit: &Rule) -> bool {
    matches!(kernel_limit(inputs, limit), Some(KernelLimit::Set(_)))
}

/// Whether the kernel took this limit on, or why not. `None`: it was not asked to.
fn kernel_limit<'a>(inputs: &Inputs<'a>, limit: &Rule) -> Option<&'a KernelLimit> {
    let is_ram = limit.quantity == Quantity::Ram && limit.ends();
    inputs.config.cgroups.ram_limit.as_ref().filter(|_| is_ram)
}

/// For how long a limit was not held, as the words that follow. `None`: all the time, which needs none.
pub(super) fn for_time(time_s: Option<f64>) -> String {
    time_s.map(|s| format!(" for {s:.1} s")).unwrap_or_default()
}

/// Whether a GPU driver gave no reading, so that nothing tells what its GPUs do.
pub(super) fn has_gpu_driver_failed(inputs: &Inputs) -> bool {
    !inputs.run.gpu.usage.backends.failed.is_empty()
}

/// Why a limit has no effect, or is not enforced by the kernel. `None`: it is in effect, and enforced by the kernel if that was asked
/// for. `gpus`: how many GPUs the run may use.
fn reason(inputs: &Inputs, limit: &Rule, gpus: u32) -> Option<String> {
    // The launcher's timer needs no tracking.
    if inputs.config.discovery.untracked.is_some() && !limit.is_held_by_timer() {
        return Some("it was not held: the run was not tracked".to_owned());
    }
    let is_of_gpus = matches!(limit.quantity, Quantity::GpuRam | Quantity::GpuIdle);
    if is_of_gpus && gpus == 0 && !has_gpu_driver_failed(inputs) {
        return Some("it was not held: no GPU is tracked".to_owned());
    }
    let mut not_held = inputs.run.rules.not_held(has_gpu_driver_failed(inputs));
    if let Some((_, time_s)) = not_held.find(|(not_held, _)| *not_held == limit) {
        let time = for_time(time_s);
        return Some(format!("it was not held{time}: {}", limit.quantity.why_not_held(time_s)));
    }
    match kernel_limit(inputs, limit)? {
        KernelLimit::Refused(reason) => Some(format!("samples held it: {reason}")),
        KernelLimit::Set(_) => None,
    }
}

/// What enforces a limit of the run: the launcher's timer, the kernel, or the collector's samples.
fn enforcer(inputs: &Inputs, limit: &Rule) -> Enforcer {
    match limit.quantity {
        _ if limit.is_held_by_timer() => Enforcer::Timer,
        _ if is_held_by_kernel(inputs, limit) => Enforcer::Kernel,
        _ => Enforcer::Samples,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::config::Config;
    use crate::model::host_info::HostInfo;
    use crate::model::report::Allowed;
    use crate::model::run_end::RunEnd;
    use crate::run::RunState;

    // Requirement: LIMIT-8
    #[test]
    fn strictest_limit_of_ram_is_the_one_that_the_kernel_held() {
        let limit = |words: &str, bytes| Rule {
            words: words.into(),
            quantity: Quantity::Ram,
            threshold: Threshold::Amount(bytes),
            response: Response::End,
        };
        let mut config = Config::of_test();
        config.tracking.limits.list = vec![limit("ram=16G", 16 << 30), limit("ram=8G", 8 << 30)];
        config.cgroups.ram_limit = Some(KernelLimit::Set(8 << 30));
        let full = crate::fixtures::full();
        let host_info = HostInfo {
            host: full.host,
            ticks_per_second: 100,
            page_bytes: 4096,
            allowed: Allowed::default(),
            own_ranks: Vec::new(),
        };
        let run = RunState::of_run(&config, &host_info);
        let end = RunEnd::of_exit(9, None);
        let inputs = Inputs { config: &config, host_info: &host_info, run: &run, end: &end };
        let cgroup = Cgroup { oom_kills: Some(1), memory_peak_bytes: Some(8 << 30), ..Cgroup::default() };
        let Some(Cause::Limit(cause)) = killed_by_kernel(&inputs, Some(&cgroup), &full.max_ram) else {
            panic!("no limit");
        };
        assert_eq!((cause.limit.as_str(), cause.overshoot_bytes), ("ram=8G", Some(0)));
    }
}
