//! The report's pressure, CPU quota, and memory beside RAM.

use super::Inputs;
use crate::model::report::{CgroupMemory, CpuQuota, Pressure, ResourceStalls, Stall, Swap};
use crate::model::stalls::{StallReading, StallTime, Stalls, Throttling};

/// Makes the report's swap.
pub(super) fn swap(inputs: &Inputs) -> Swap {
    let swap = inputs.run.ram.swap;
    Swap {
        peak_bytes: swap.map(|swap| swap.peak_bytes),
        with_ram_peak_bytes: swap.map(|swap| swap.with_ram_peak_bytes),
        reason: swap.is_none().then(|| "no sample read /proc/PID/status".to_owned()),
    }
}

/// Makes the report's pressure and CPU quota.
pub(super) fn pressure(inputs: &Inputs) -> Pressure {
    let Some([(from_ns, first), (to_ns, last)]) = inputs.run.stalls.first_and_last() else {
        let reason = Some("it is read from 50 ms on, and at the end".to_owned());
        return Pressure {
            quota: CpuQuota { reason: reason.clone(), ..CpuQuota::default() },
            reason,
            ..Pressure::default()
        };
    };
    let of_machine = grown(&first.machine, &last.machine);
    // Of a whole machine, the kernel always gives 0.
    let cpu = Stall { full_s: None, ..of_machine.cpu };
    Pressure {
        since_s: Some(inputs.run.since_start_s(from_ns)),
        measured_s: Some(to_ns.saturating_sub(from_ns) as f64 / 1e9),
        machine: ResourceStalls { cpu, ..of_machine },
        cgroup: if first.cgroup_name == last.cgroup_name {
            grown(&first.cgroup, &last.cgroup)
        } else {
            ResourceStalls::default()
        },
        cgroup_name: last.cgroup_name.clone().filter(|_| !last.cgroup.is_none()),
        reason: why_no_pressure(last),
        quota: quota(first, last),
    }
}

/// Why pressure of the machine or of the cgroup is unknown. `None`: both are known.
fn why_no_pressure(last: &StallReading) -> Option<String> {
    let reason = match (last.machine.is_none(), last.cgroup.is_none()) {
        (false, false) => return None,
        (true, true) => "the kernel does not keep it (PSI)",
        (true, false) => "/proc/pressure cannot be read",
        (false, true) if last.cgroup_name.is_none() => {
            "the machine's alone is known: the run is in no cgroup of version 2 but the root"
        }
        (false, true) => "the machine's alone is known: the cgroup has no pressure files",
    };
    Some(reason.to_owned())
}

/// The growth of the kernel's counts.
fn grown(first: &Stalls, last: &Stalls) -> ResourceStalls {
    let stall = |resource: fn(&Stalls) -> Option<StallTime>| {
        let (first, last) = (resource(first), resource(last));
        let of = |time: fn(&StallTime) -> Option<u64>| {
            let us = last.as_ref().and_then(time)?.checked_sub(first.as_ref().and_then(time)?)?;
            Some(us as f64 / 1e6)
        };
        Stall { some_s: of(|time| Some(time.some_us)), full_s: of(|time| time.full_us) }
    };
    ResourceStalls {
        cpu: stall(|stalls| stalls.cpu),
        memory: stall(|stalls| stalls.memory),
        io: stall(|stalls| stalls.io),
    }
}

/// The quota that withheld most CPU time.
fn quota(first: &StallReading, last: &StallReading) -> CpuQuota {
    let grown = last.quotas.iter().filter_map(|(name, last)| {
        let (_, first) = first.quotas.iter().find(|(other, _)| other == name)?;
        let throttling = Throttling {
            periods: last.periods.checked_sub(first.periods)?,
            throttled_periods: last.throttled_periods.checked_sub(first.throttled_periods)?,
            throttled_us: last.throttled_us.checked_sub(first.throttled_us)?,
        };
        Some((name, throttling))
    });
    match grown.max_by_key(|(_, throttling)| throttling.throttled_us) {
        Some((name, throttling)) => CpuQuota {
            cgroup: Some(name.clone()),
            periods: Some(throttling.periods),
            throttled_periods: Some(throttling.throttled_periods),
            throttled_s: Some(throttling.throttled_us as f64 / 1e6),
            reason: None,
        },
        None => {
            CpuQuota { reason: Some("no cgroup of the run has a CPU quota".into()), ..CpuQuota::default() }
        }
    }
}

/// The memory that the run's own cgroup or that of its batch job is charged for. `None`: there is no such group.
pub(super) fn cgroup_memory(inputs: &Inputs) -> Option<CgroupMemory> {
    let [_, (_, last)] = inputs.run.stalls.first_and_last()?;
    last.memory.clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(some_us: u64, full_us: u64) -> Option<StallTime> {
        Some(StallTime { some_us, full_us: Some(full_us) })
    }

    // Requirement: STALL-1
    #[test]
    fn stalls_are_what_the_counts_grew_by_and_unknown_where_a_reading_lacks_them() {
        let first = Stalls { cpu: None, memory: time(1_000_000, 5), io: time(9, 9) };
        let last = Stalls { cpu: time(7, 7), memory: time(3_500_000, 5), io: time(8, 9) };
        let grown = grown(&first, &last);
        assert_eq!(grown.memory, Stall { some_s: Some(2.5), full_s: Some(0.0) });
        assert_eq!(grown.cpu, Stall::default());
        assert_eq!(grown.io, Stall { some_s: None, full_s: Some(0.0) }, "another group has its name");
    }

    // Requirement: STALL-2
    #[test]
    fn quota_is_the_one_that_withheld_most() {
        let reading = |counts: [(&str, u64); 2]| StallReading {
            quotas: counts
                .map(|(name, n)| {
                    let throttling =
                        Throttling { periods: 2 * n, throttled_periods: n, throttled_us: n * 1_000_000 };
                    (name.to_owned(), throttling)
                })
                .to_vec(),
            ..StallReading::default()
        };
        let found = quota(&reading([("/a/b", 10), ("/a", 100)]), &reading([("/a/b", 14), ("/a", 101)]));
        assert_eq!((found.cgroup.as_deref(), found.throttled_s), (Some("/a/b"), Some(4.0)));
        assert_eq!((found.periods, found.throttled_part()), (Some(8), Some(0.5)));
        let none = quota(&StallReading::default(), &StallReading::default());
        assert!(none.reason.is_some() && none.throttled_part().is_none());
    }
}
