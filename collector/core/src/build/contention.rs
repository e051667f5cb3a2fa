//! Whether others had the cores that the run was allowed to use, and whether the run waited for them.
//!
//! docs/GUIDE.md has the rule for users. "Others" are other processes, threads of the kernel, and a hypervisor that ran another
//! machine (steal time). The run's launcher and collector are not among them.
//!
//! - The cores that others had prove nothing: the run may have left them idle. So its threads must have waited, too.
//! - Threads that waited prove nothing: there may be more of them than cores. So others must have had cores, too.
//! - With a CPU quota, threads wait while the group is throttled. If others left as many cores as the quota allows, and the run used
//!   the quota up, the quota made it wait. If the run used less, other processes of the same group may have used up the rest.

use super::inputs::Inputs;
use crate::model::observation::TaskTimes;
use crate::model::report::{Contention, ContextSwitches, CpuTime};
use crate::model::tree_sample::larger;

/// Values of the rule.
struct Policy;

impl Policy {
    /// Over fewer clock ticks, their resolution dominates.
    const LEAST_TICKS: f64 = 50.0;
    /// Fewer cores of others than this, and fewer waiting threads, do not count. An idle machine's own work takes less.
    const LEAST_CORES: f64 = 0.1;
    /// Others' cores, and waiting threads, also don't count below this part of the cores that the run used: without the others the
    /// run would hardly have been faster.
    const LEAST_PART: f64 = 0.1;
    /// How long threads waited is known if those that were read ran and waited for this long together, nanoseconds. They must also
    /// have run for `LEAST_TASK_PART` of the run's CPU time.
    const LEAST_TASK_NS: u64 = 50_000_000;
    /// See `LEAST_TASK_NS`.
    const LEAST_TASK_PART: f64 = 0.005;
    /// How long threads waited is also known if those that were read ran for this part of the run's CPU time, however short. A run that
    /// mostly sleeps has little CPU time.
    const WHOLE_TASK_PART: f64 = 0.1;
    /// With fewer context switches in a second than this, threads can't have waited for a tenth of that second. One wait takes a few
    /// milliseconds.
    const LEAST_SWITCHES_PER_S: f64 = 5.0;
    /// With this many involuntary switches in a second of CPU time, threads were driven off their cores. A thread that had a core
    /// of its own had 5, and one of two threads on a core had 400 (Linux 6.18).
    const PREEMPTED_PER_S: f64 = 20.0;
    /// The cores were full if less than this part of them was idle.
    const FULL: f64 = 0.1;
    /// The run used up its quota if it used this part of it, since throttling leaves some unused.
    const WHOLE_QUOTA: f64 = 0.9;
    /// A part of the run's CPU time, and a number of cores. If the cores' CPU time in /proc/stat is below the run's by more than both,
    /// it can't be right. Smaller differences come from clock ticks.
    const MOST_MISSING: (f64, f64) = (0.2, 0.2);
}

/// What the rule concludes from. All times are of the same span.
#[derive(Debug, Clone, Copy)]
struct Measured {
    /// Length of the span, seconds.
    span_s: f64,
    /// Length of the span, clock ticks.
    ticks: f64,
    /// How many cores the run is allowed to use.
    cores: u32,
    /// CPU time of all processes on these cores, seconds.
    busy_s: f64,
    /// Time that a hypervisor took of these cores, seconds.
    stolen_s: f64,
    /// CPU time of the run, seconds.
    own_s: f64,
    /// CPU time of launcher and collector, seconds.
    tools_s: f64,
    /// How long some of the run's threads ran and waited.
    tasks: TaskTimes,
    /// The run's context switches.
    switches: ContextSwitches,
    /// The CPU quota of the run's cgroup, cores. `None`: it has none, or it is not known.
    quota_cores: Option<f64>,
}

/// The report's entry on whether others kept the run from using more cores, by the first and the last reading of the cores. Where
/// that can't be judged, it has the reason.
pub(super) fn contention(inputs: &Inputs, cpu_time: &CpuTime, switches: ContextSwitches) -> Contention {
    let cpus = inputs.host_info.allowed.cpus.as_ref();
    let allowed_cores = cpus.and_then(|cpus| u32::try_from(cpus.len()).ok());
    let judged = measured(inputs, cpu_time, switches).and_then(|measured| judge(&measured));
    let unknown = |reason| Contention { reason: Some(reason), ..Contention::default() };
    Contention { allowed_cores, ..judged.unwrap_or_else(unknown) }
}

/// What the rule concludes from, or why something of it is unknown.
fn measured(inputs: &Inputs, cpu_time: &CpuTime, switches: ContextSwitches) -> Result<Measured, String> {
    let span = inputs.run.cores.span().map_err(|absent| absent.to_string())?;
    // Children that no record covers are in the kernel's own sum only, so the larger of both counts.
    let total_s = larger(cpu_time.total_s, cpu_time.kernel_s).ok_or("the CPU time of the run is unknown")?;
    let (from, to) = span.ticks;
    // A core that goes offline or online changes the sums by all CPU time that it ever had.
    let grown = to.busy.checked_sub(from.busy).zip(to.stolen.checked_sub(from.stolen));
    let (busy, stolen) = grown.filter(|_| from.cores == to.cores).ok_or("cores went off or on line")?;
    let tick_s = inputs.host_info.tick_us() as f64 / 1e6;
    let span_s = span.at_ns.1.saturating_sub(span.at_ns.0) as f64 / 1e9;
    let quota_millicores = inputs.host_info.allowed.cpu_millicores.known();
    Ok(Measured {
        span_s,
        ticks: span_s / tick_s,
        cores: from.cores,
        busy_s: busy as f64 * tick_s,
        stolen_s: stolen as f64 * tick_s,
        // Without what the run had used before the first reading.
        own_s: (total_s - span.own_before_ns as f64 / 1e9).max(0.0),
        tools_s: span.tools_ns as f64 / 1e9,
        tasks: inputs.run.cores.tasks,
        switches,
        quota_cores: quota_millicores.map(|millicores| millicores as f64 / 1000.0),
    })
}

/// Computes how many cores others had and how many threads waited, and concludes from both. The error says why neither is known;
/// the result's `reason`, why one of its figures is not. The caller adds `allowed_cores`.
fn judge(measured: &Measured) -> Result<Contention, String> {
    let Measured { span_s, busy_s, stolen_s, own_s, tools_s, .. } = *measured;
    if measured.ticks < Policy::LEAST_TICKS {
        return Err(format!("the run took less than {} clock ticks", Policy::LEAST_TICKS));
    }
    // What neither the run nor its launcher and collector used is that of others.
    let others_s = busy_s + stolen_s - own_s - tools_s;
    let (missing_part, missing_cores) = Policy::MOST_MISSING;
    if -others_s > own_s * missing_part && -others_s > missing_cores * span_s {
        return Err("/proc/stat has less CPU time of its cores than the run used".into());
    }
    // Kernels without PARAVIRT_TIME_ACCOUNTING have stolen time in `own_s`, too. It is that of others all the same.
    let others_s = others_s.max(stolen_s);
    // In cores: CPU time over the span.
    let [others, stolen] = [others_s, stolen_s].map(|s| s / span_s);
    let waiting = waiting_threads(measured);
    let is_contended = is_contended(measured, others, waiting);
    let reason = match waiting {
        None => Some("how long its threads waited for a core is unknown"),
        // If the wait is known, only a quota leaves open what caused it.
        Some(_) if is_contended.is_none() => Some("a CPU quota made its threads wait, too"),
        Some(_) => None,
    };
    Ok(Contention {
        is_contended,
        allowed_cores: None,
        others_cores: Some(others),
        stolen_cores: Some(stolen),
        waiting_threads: waiting,
        reason: reason.map(str::to_owned),
    })
}

/// Whether others kept the run from using more cores. `None`: it is not known whether its threads waited, or whether they waited
/// for others or for a CPU quota. `others`: cores that others used. `waiting`: threads that waited, if that is known.
fn is_contended(measured: &Measured, others: f64, waiting: Option<f64>) -> Option<bool> {
    let own_cores = measured.own_s / measured.span_s;
    // Fewer cores than this do not matter, nor do fewer threads that waited for one.
    let least = Policy::LEAST_CORES.max(own_cores * Policy::LEAST_PART);
    if others < least {
        return Some(false);
    }
    let has_waited = match waiting {
        Some(waiting) => Some(waiting >= least),
        None => has_waited_by_switches(measured, others),
    };
    // If others left fewer cores than the quota allows, the run could not reach the quota.
    let reachable_quota = measured.quota_cores.filter(|quota| f64::from(measured.cores) - others >= *quota);
    match reachable_quota {
        // The run used the quota up, so the quota made it wait.
        Some(quota) if own_cores >= quota * Policy::WHOLE_QUOTA => Some(false),
        // The run left some of the quota. Either processes of the same cgroup used that up, or others had the cores.
        Some(_) if has_waited == Some(true) => None,
        _ => has_waited,
    }
}

/// How many threads of the run waited for a core, on average. Those that were read stand for all. `None`: they used too
/// little of the run's CPU time for that.
fn waiting_threads(measured: &Measured) -> Option<f64> {
    let TaskTimes { ran_ns, waited_ns } = measured.tasks;
    // Whether they ran for at least this part of the run's CPU time.
    let ran_for = |part: f64| ran_ns as f64 / 1e9 >= measured.own_s * part;
    let is_long = ran_ns.saturating_add(waited_ns) >= Policy::LEAST_TASK_NS;
    let is_enough = ran_for(Policy::WHOLE_TASK_PART) || (is_long && ran_for(Policy::LEAST_TASK_PART));
    // On average `busy_cores` threads ran. Those that were read show how many waited for each that ran.
    let busy_cores = measured.own_s / measured.span_s;
    (is_enough && ran_ns > 0).then(|| busy_cores * waited_ns as f64 / ran_ns as f64)
}

/// Whether the run's threads waited, where it is not known for how long. `others`: cores that others used.
///
/// They waited if the cores were full, and the kernel took threads off them (involuntary switches). They did not wait if neither is
/// so, or if they hardly switched at all. `None`: only one of the two is so, or the switches are not known.
fn has_waited_by_switches(measured: &Measured, others: f64) -> Option<bool> {
    let used_cores = others + (measured.own_s + measured.tools_s) / measured.span_s;
    let is_full = f64::from(measured.cores) - used_cores < f64::from(measured.cores) * Policy::FULL;
    let (voluntary, involuntary) = measured.switches.voluntary.zip(measured.switches.involuntary)?;
    let least_switches = measured.span_s * Policy::LEAST_SWITCHES_PER_S;
    if (voluntary.saturating_add(involuntary) as f64) < least_switches {
        return Some(false);
    }
    let is_preempted = involuntary as f64 >= least_switches.max(measured.own_s * Policy::PREEMPTED_PER_S);
    (is_full == is_preempted).then_some(is_full)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(measured: &Measured) -> Contention {
        let unknown = |reason| Contention { reason: Some(reason), ..Contention::default() };
        super::judge(measured).unwrap_or_else(unknown)
    }

    /// Ten seconds on two cores, of which the run used one. Others used so many, and for each second that its threads ran they
    /// waited so long.
    fn measured(others: f64, waited: f64) -> Measured {
        Measured {
            span_s: 10.0,
            ticks: 1000.0,
            cores: 2,
            busy_s: 10.0 + 0.2 + others * 10.0,
            stolen_s: 0.0,
            own_s: 10.0,
            tools_s: 0.2,
            tasks: TaskTimes { ran_ns: 1_000_000_000, waited_ns: (waited * 1e9) as u64 },
            switches: ContextSwitches { voluntary: Some(1000), involuntary: Some(0) },
            quota_cores: None,
        }
    }

    fn verdict(measured: Measured) -> Option<bool> {
        judge(&measured).is_contended
    }

    // Requirement: CPU-11
    #[test]
    fn others_with_cores_that_the_run_waited_for_are_in_its_way() {
        let judged = judge(&measured(1.0, 0.9));
        let figure = |figure: Option<f64>| (figure.unwrap() * 1000.0).round();
        assert_eq!((figure(judged.others_cores), figure(judged.waiting_threads)), (1000.0, 900.0));
        assert_eq!((judged.is_contended, judged.reason), (Some(true), None));
        for (others, waited, is_contended, why) in [
            (0.0, 0.0, false, "an idle machine"),
            (0.0, 3.0, false, "more threads than cores, and nobody else"),
            (1.0, 0.0, false, "others had the core that it left idle"),
            (0.09, 3.0, false, "what a machine does by itself"),
            (0.11, 3.0, true, "a tenth of what it had"),
            (1.0, 0.09, false, "it hardly waited"),
        ] {
            assert_eq!(verdict(measured(others, waited)), Some(is_contended), "{why}");
        }
    }

    // Requirement: CPU-11
    #[test]
    fn a_large_run_loses_little_by_what_stops_a_small_one() {
        let large = Measured {
            cores: 64,
            own_s: 600.0,
            busy_s: 600.0 + 20.2,
            tasks: TaskTimes { ran_ns: 6_000_000_000, waited_ns: 1_000_000_000 },
            ..measured(0.0, 0.0)
        };
        assert_eq!(verdict(large), Some(false), "2 of 60 cores");
        assert_eq!(verdict(Measured { busy_s: 600.0 + 70.0, ..large }), Some(true));
        // A process that got hardly any time.
        let starved = Measured {
            own_s: 0.1,
            busy_s: 20.0,
            tasks: TaskTimes { ran_ns: 10_000_000, waited_ns: 900_000_000 },
            ..measured(0.0, 0.0)
        };
        assert_eq!(verdict(starved), Some(true));
    }

    // Requirement: CPU-11
    #[test]
    fn stolen_time_is_that_of_others() {
        let stolen = Measured { stolen_s: 5.0, ..measured(0.0, 0.5) };
        let judged = judge(&stolen);
        assert_eq!((judged.is_contended, judged.stolen_cores), (Some(true), Some(0.5)));
        // The run's time has it where the kernel does not account for it.
        let judged = judge(&Measured { own_s: 15.0, ..stolen });
        assert_eq!(judged.others_cores, Some(0.5));
    }

    // Requirement: CPU-11
    #[test]
    fn wait_within_a_quota_is_not_by_others_that_leave_it_room() {
        let quota =
            |quota_cores, others| Measured { quota_cores: Some(quota_cores), ..measured(others, 2.0) };
        assert_eq!(verdict(quota(1.1, 0.9)), Some(false), "the run used it up");
        assert_eq!(verdict(quota(1.5, 0.9)), Some(true), "others left less than that");
        // Others of the same group may have used it.
        let judged = judge(&quota(1.5, 0.4));
        assert_eq!((judged.is_contended, judged.may_be_contended()), (None, true));
        assert_eq!(judged.reason.as_deref(), Some("a CPU quota made its threads wait, too"));
        assert_eq!(verdict(Measured { quota_cores: Some(1.5), ..measured(0.4, 0.05) }), Some(false));
    }

    // Requirement: CPU-11
    #[test]
    fn run_that_sleeps_beside_others_does_not_wait_for_them() {
        let asleep = |ran_ns, waited_ns| Measured {
            own_s: 0.0015,
            busy_s: 19.6,
            tasks: TaskTimes { ran_ns, waited_ns },
            switches: ContextSwitches { voluntary: Some(2), involuntary: Some(1) },
            ..measured(0.0, 0.0)
        };
        assert_eq!(verdict(asleep(600_000, 2_000_000)), Some(false));
        assert_eq!(verdict(asleep(0, 0)), Some(false), "it had too few switches to wait long");
        // Of a program that computes, its first milliseconds say nothing.
        let of_start = judge(&Measured {
            tasks: TaskTimes { ran_ns: 600_000, waited_ns: 2_000_000 },
            ..measured(1.0, 0.0)
        });
        assert_eq!(of_start.waiting_threads, None);
    }

    // Requirement: CPU-12
    #[test]
    fn what_cannot_be_known_is_null_with_a_reason() {
        let unread = |others, involuntary| {
            let switches = ContextSwitches { voluntary: Some(30), involuntary };
            let judged = judge(&Measured { tasks: TaskTimes::default(), switches, ..measured(others, 0.0) });
            assert!(judged.waiting_threads.is_none() && judged.reason.is_some());
            (judged.is_contended, judged.may_be_contended())
        };
        assert_eq!(unread(0.0, None), (Some(false), false), "nobody else");
        assert_eq!(unread(0.98, Some(4000)), (Some(true), true), "driven off full cores");
        assert_eq!(unread(0.98, Some(50)), (None, true), "full cores, perhaps one for each");
        assert_eq!(unread(0.98, None), (None, true));
        assert_eq!(unread(0.98, Some(19)), (Some(false), false), "it was hardly ever off its core");
        assert_eq!(unread(0.5, Some(50)), (Some(false), false), "a core was idle at times");
        let short = judge(&Measured { ticks: 49.0, ..measured(1.0, 1.0) });
        assert_eq!((short.is_contended, short.others_cores), (None, None));
        assert_eq!(short.reason.as_deref(), Some("the run took less than 50 clock ticks"));
        let lacking = judge(&Measured { busy_s: 7.0, ..measured(0.0, 0.0) });
        assert_eq!((lacking.others_cores, lacking.may_be_contended()), (None, false));
        assert!(lacking.reason.unwrap().contains("less CPU time"));
        let rounded = judge(&Measured { busy_s: 9.0, ..measured(0.0, 0.0) });
        assert_eq!((rounded.is_contended, rounded.others_cores), (Some(false), Some(0.0)));
    }
}
