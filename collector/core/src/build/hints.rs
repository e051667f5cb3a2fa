//! What to ask a batch system for next time: rules on what this run used and was given.
//!
//! docs/GUIDE.md has the rules for users. The factor of memory, the test for a serial run and the advice on unused GPUs come from
//! Princeton's jobstats. The workflow system torc corrects requirements by the same factor.

mod gpu_memory;

use crate::model::sorting::InOrder;

use super::usable::usable_devices;
use crate::model::report::{
    Cause, CoresSource, CpusHint, ElsewhereKind, Exit, GpusHint, Hints, LEAST_MEMORY_BYTES, LEAST_TIME_S,
    MemoryBasis, MemoryHint, MemorySource, Report, Stage, TimeBasis, TimeHint, TimeLimitSource,
};
use crate::run::usage::SHORTEST_WINDOW_NS;

/// Values of the rules. Memory is in binary units, as batch systems count it.
pub(super) struct Policy;

impl Policy {
    /// Memory to ask for, over the peak: another input, or other page sizes, need a little more.
    const MEMORY_FACTOR: f64 = 1.2;
    /// Memory to ask for, over the limit at which the kernel killed a process; also time to ask for, over a time limit.
    const AFTER_LIMIT_FACTOR: f64 = 1.5;
    /// Steps of memory, bytes: up to the first size of a pair, memory is a multiple of the second.
    const MEMORY_STEPS: [(u64, u64); 4] =
        [(4 * GIB, 256 * MIB), (32 * GIB, GIB), (128 * GIB, 5 * GIB), (u64::MAX, 10 * GIB)];
    /// Wall time to ask for, over this run's: nodes differ, and shared file systems are slow at times.
    const TIME_FACTOR: f64 = 1.3;
    /// Steps of time, seconds.
    const TIME_STEP_S: u64 = 300;
    /// The part of the run's time in which the hint's cores must suffice, from 0 to 1.
    pub(super) const BUSY_PART: f64 = 0.95;
    /// Busy cores above a whole number that need no further core. Other threads ran for moments, or clocks were read one after
    /// another.
    const BUSY_SLACK: f64 = 0.1;
    /// Mean number of busy cores of a serial run.
    const SERIAL: std::ops::RangeInclusive<f64> = 0.85..=1.01;
    /// What was given fits if more than this part of it was used.
    const FITTING: f64 = 0.7;
    /// A run shorter than this, seconds, says little of what a job needs.
    const SHORTEST_S: f64 = 1.0;
    /// A charged peak above this part of the limit can be page cache, which the kernel drops when processes need memory.
    const FULL_OF_CACHE: f64 = 0.95;
}

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// What the rules need beside the report.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Basis {
    /// At most this many cores were busy for most of the time, see [`Policy::BUSY_PART`]. `None`: not known.
    pub(super) busy_cores: Option<f64>,
    /// Largest charged memory of the launcher's innermost cgroup with a limit, bytes, if it was reached during the run.
    pub(super) cgroup_peak_bytes: Option<u64>,
    /// The command's environment numbers GPUs in an order that only CUDA knows, so it may mean other ones than were counted.
    pub(super) is_gpu_order_unsure: bool,
    /// Start of the session, which is just before that of the command, seconds since the epoch.
    pub(super) started_s: f64,
}

/// What to ask for next time, concluded from the rest of the report.
pub(super) fn hints(report: &Report, basis: &Basis) -> Hints {
    let gpu_memory = gpu_memory::gpu_memory(report, basis.is_gpu_order_unsure);
    let hints = Hints {
        withheld: withheld(report),
        memory: memory(report, basis.cgroup_peak_bytes),
        time: Some(time(report, basis.started_s)),
        cpus: cpus(report, basis.busy_cores),
        gpus: gpus(report).filter(|_| !basis.is_gpu_order_unsure),
        gpu_memory_reason: gpu_memory.as_ref().err().cloned(),
        gpu_memory: gpu_memory.ok(),
    };
    if report.attached.is_some() {
        // A job needs room for what the process used before, too.
        return Hints::unknown("what the attached process used before is unknown".to_owned());
    }
    // A run that a limit ended needs more of what the limit is on. How much it needs of anything else is unknown.
    if was_short_of_memory(report) {
        return Hints { memory: hints.memory, ..ended_by("memory", hints.withheld) };
    }
    match &report.ending.cause {
        Some(Cause::TimeLimit(_)) => Hints { time: hints.time, ..ended_by("time", hints.withheld) },
        _ => not_in_report(report).map_or(hints, Hints::unknown),
    }
}

/// Names the work that is not in the report, because of which the report does not tell what a job needs. Where each node has a
/// report of its own (`node_part`), work on other nodes does not count. `None`: all is in the report, as far as is known.
fn not_in_report(report: &Report) -> Option<String> {
    let coverage = &report.coverage;
    let is_whole_run = report.node_part.is_none();
    if let Some(ranks) = coverage.ranks.filter(|_| is_whole_run) {
        return Some(format!("{} of {} ranks are not in this report", ranks.unseen, ranks.expected));
    }
    let missing = coverage.elsewhere.iter().filter(|entry| entry.in_tree < entry.count);
    let missing = missing.filter(|entry| is_whole_run || entry.kind != ElsewhereKind::Node);
    let missing: Vec<_> = missing.collect();
    let programs = missing.iter().map(|entry| entry.program.as_str()).ordered_set();
    let programs = Vec::from_iter(programs).join(", ");
    // A container that was followed is in the report. But hints are made of the tree's figures, which leave it out.
    let is_any_unseen = missing.iter().any(|entry| entry.followed < entry.count);
    let place = if is_any_unseen { "in this report" } else { "in the tree's figures" };
    (!missing.is_empty()).then(|| format!("what {programs} started elsewhere is not {place}"))
}

/// Whether the kernel killed a process of the run for want of memory. The command may have succeeded all the same. Among the crashes,
/// SIGKILL stands for such kills only.
fn was_short_of_memory(report: &Report) -> bool {
    let mut crashes = report.crashes.iter().flatten();
    matches!(report.ending.cause, Some(Cause::OutOfMemory(_)))
        || crashes.any(|crash| crash.signal == libc::SIGKILL)
}

/// Makes the hints of a run that a limit ended, all unknown: the caller adds the one for what the limit is on. `limited` says in the
/// reason what that is.
fn ended_by(limited: &str, withheld: Option<String>) -> Hints {
    let gpu_memory_reason = Some(format!("a limit of {limited} ended the run"));
    Hints { withheld, gpu_memory_reason, ..Hints::default() }
}

/// Why the report's text shows no hints unless the user asks for them. `None`: it shows them. A run that a memory or time limit
/// ended shows what it needs more of, so its failure is no reason.
fn withheld(report: &Report) -> Option<String> {
    let is_success = report.ending.exit == Exit { code: Some(0), signal: None };
    if report.stage != Stage::Over {
        Some("the run is not over".into())
    } else if was_short_of_memory(report) || matches!(report.ending.cause, Some(Cause::TimeLimit(_))) {
        None
    } else if let Some(Cause::Limit(end)) = &report.ending.cause {
        Some(format!(
            "the limit {} ended the command, which may need more than it used up to then",
            end.limit
        ))
    } else if !is_success {
        Some("the command failed, and may need more than it used up to then".into())
    } else {
        (report.wall_s < Policy::SHORTEST_S)
            .then(|| format!("the run took less than {} s", Policy::SHORTEST_S))
    }
}

/// Makes the hint for memory: the largest use that is known, times the policy's factor. If the kernel killed a process at a limit,
/// the hint is above that limit. `None`: neither is known. `cgroup_peak_bytes`: see [`Basis`].
fn memory(report: &Report, cgroup_peak_bytes: Option<u64>) -> Option<MemoryHint> {
    let memory = &report.usable.memory;
    let given_bytes = memory.bytes.filter(|_| memory.source != Some(MemorySource::Machine));
    let was_short = was_short_of_memory(report);
    let killed_at_bytes = match &report.ending.cause {
        Some(Cause::OutOfMemory(killed)) => killed.limit_bytes,
        _ => None,
    };
    // The peak of the command's own cgroup, or else of the launcher's. One that can be page cache does not count.
    let can_be_cache =
        |peak: u64| given_bytes.is_some_and(|given| peak as f64 > given as f64 * Policy::FULL_OF_CACHE);
    let own_group = report.cgroup.as_ref().and_then(|cgroup| cgroup.memory_peak_bytes);
    let charged = own_group.or(cgroup_peak_bytes).filter(|peak| !can_be_cache(*peak));
    let combined = report.max_ram.combined.footprint_bytes;
    // The kernel charges the tree's RAM to its cgroup. So a charge below that RAM must be that of another cgroup. If that RAM is unknown
    // (`None`, which is less than any charge), the charge counts.
    let (basis, basis_bytes, factor) = match charged {
        // What a killed process would have needed is unknown. It is more than the limit.
        _ if was_short => {
            let limit_bytes = killed_at_bytes.or(memory.bytes)?;
            (MemoryBasis::OutOfMemoryLimit, limit_bytes, Policy::AFTER_LIMIT_FACTOR)
        }
        Some(charged) if Some(charged) >= combined => {
            (MemoryBasis::CgroupPeak, charged, Policy::MEMORY_FACTOR)
        }
        _ => (MemoryBasis::CombinedRam, combined?, Policy::MEMORY_FACTOR),
    };
    let bytes = round_up_memory(basis_bytes as f64 * factor);
    // The RAM can have been more than is certain, and so more than is asked for.
    let at_most = report.max_ram_at_most.combined.filter(|_| basis == MemoryBasis::CombinedRam);
    Some(MemoryHint {
        bytes,
        is_lower_bound: was_short || at_most.is_some_and(|at_most| at_most > bytes),
        basis,
        basis_bytes,
        given_bytes,
        is_fitting: !was_short && given_bytes.is_some_and(|given| fits(basis_bytes as f64, given as f64)),
    })
}

/// Rounds memory to ask for, bytes, up to the policy's step for its size, and to at least [`LEAST_MEMORY_BYTES`].
fn round_up_memory(bytes: f64) -> u64 {
    let bytes = (bytes as u64).max(LEAST_MEMORY_BYTES);
    let step = Policy::MEMORY_STEPS.iter().find(|(most, _)| bytes <= *most).map_or(GIB, |(_, step)| *step);
    bytes.div_ceil(step).saturating_mul(step)
}

/// Makes the hint for time, from the time limit that ended the run, else from the run's length. In a Slurm job, the length counts
/// from the job's start, since the job may do something else before the command. `started_s`: see [`Basis`].
fn time(report: &Report, started_s: f64) -> TimeHint {
    let start_s = report.allowed.job().start_s();
    let given_s = report.allowed.job().limit_s().filter(|limit_s| *limit_s > 0).map(|limit_s| limit_s as f64);
    let since_job_start = start_s.map(|start_s| started_s + report.wall_s - start_s as f64);
    let (basis, basis_s) = match (&report.ending.cause, since_job_start) {
        (Some(Cause::TimeLimit(limit)), _) => {
            // What `timeout` was given is no limit of the job.
            let of_job = given_s.filter(|_| limit.set_by == TimeLimitSource::Slurm);
            (TimeBasis::TimeLimit, of_job.or(limit.limit_s).unwrap_or(report.wall_s))
        }
        (_, Some(job_s)) if job_s > report.wall_s => (TimeBasis::SlurmJob, job_s),
        _ => (TimeBasis::Wall, report.wall_s),
    };
    let was_ended = basis == TimeBasis::TimeLimit;
    let factor = if was_ended { Policy::AFTER_LIMIT_FACTOR } else { Policy::TIME_FACTOR };
    TimeHint {
        time_s: round_up_time(basis_s * factor),
        is_lower_bound: was_ended,
        basis,
        basis_s,
        given_s,
        is_fitting: !was_ended && given_s.is_some_and(|given| fits(basis_s, given)),
    }
}

/// Rounds a time to ask for, seconds, up to the policy's step, and to at least [`LEAST_TIME_S`].
fn round_up_time(seconds: f64) -> u64 {
    (seconds.ceil() as u64)
        .max(LEAST_TIME_S)
        .div_ceil(Policy::TIME_STEP_S)
        .saturating_mul(Policy::TIME_STEP_S)
}

/// Makes the hint for cores. `busy_cores`: see [`Basis`]. `None`: it is not known how many were busy.
fn cpus(report: &Report, busy_cores: Option<f64>) -> Option<CpusHint> {
    let usable = &report.usable.cores;
    let given = (usable.source != CoresSource::Machine).then_some(usable.count);
    let mean_busy =
        report.cpu_time.total_s.filter(|_| report.wall_s > 0.0).map(|total_s| total_s / report.wall_s);
    // A run too short for one window of CPU utilisation has the mean alone: what it used after its last sample is in no window.
    let mean_of_short_run = mean_busy.filter(|_| report.wall_s * 1e9 < SHORTEST_WINDOW_NS as f64);
    let busy_cores = busy_cores?;
    let p95_busy_cores = mean_of_short_run.unwrap_or(busy_cores);
    let count = (p95_busy_cores - Policy::BUSY_SLACK).ceil().max(1.0);
    // A run that waited for cores that others had may be able to use more than it got.
    let is_lower_bound = report.contention.may_be_contended();
    // A run of serial and parallel parts can have the same mean, but needs more than one core at times.
    let is_serial = !is_lower_bound
        && count <= 1.0
        && usable.count > 1.0
        && mean_busy.is_some_and(|busy| Policy::SERIAL.contains(&busy));
    Some(CpusHint {
        count: count as u32,
        p95_busy_cores,
        given,
        is_fitting: given.is_some_and(|given| mean_busy.is_some_and(|busy| fits(busy, given))),
        is_lower_bound,
        is_serial,
    })
}

/// Makes the hint for GPUs: as many as were busy and had a process of the run on them. There is none if the run was given no GPU, or used
/// one that its environment does not name. There is none, either, if the use of a given GPU is unknown.
fn gpus(report: &Report) -> Option<GpusHint> {
    let given = report.usable.gpus.count.filter(|count| *count > 0)?;
    if report.gpus.iter().any(|gpu| gpu.visible == Some(false) && gpu.used == Some(true)) {
        return None;
    }
    let (mut count, mut held_idle) = (0, Vec::new());
    for gpu in usable_devices(&report.gpus) {
        let (max_percent, is_used) = (gpu.utilization.max_percent?, gpu.used?);
        if is_used && max_percent > 0.0 {
            count += 1;
        } else if is_used && max_percent == 0.0 {
            held_idle.push(gpu.id.clone());
        }
    }
    Some(GpusHint { count, given, is_fitting: count == given, held_idle })
}

/// Whether the run used more than [`Policy::FITTING`] of what it was given, so that this fits. Both have the same unit.
fn fits(used: f64, given: f64) -> bool {
    used > given * Policy::FITTING
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::full;
    use crate::model::report::{Contention, Ending, GpuDevice, NodePart, StartedElsewhere, UnseenRanks};
    use crate::model::report::{UsableCores, UsableGpus, UsableMemory};
    use crate::run::cause::{OutOfMemory, TimeLimit};

    const MB: u64 = 1_000_000;

    /// A run of this many seconds on a machine of 8 cores and 64 GiB.
    fn run(wall_s: f64) -> Report {
        let mut report = full();
        report.wall_s = wall_s;
        report.allowed.slurm.clear();
        report.usable.cores = UsableCores { count: 8.0, source: CoresSource::Machine };
        report.usable.memory = UsableMemory {
            bytes: Some(64 * GIB),
            source: Some(MemorySource::Machine),
            process_address_space_bytes: None,
        };
        report
    }

    fn given_memory(mut report: Report, bytes: u64) -> Report {
        report.usable.memory.bytes = Some(bytes);
        report.usable.memory.source = Some(MemorySource::Cgroup);
        report
    }

    fn given_time(mut report: Report, start: &str, end: &str) -> Report {
        for (name, value) in [("SLURM_JOB_START_TIME", start), ("SLURM_JOB_END_TIME", end)] {
            report.allowed.slurm.insert(name.into(), value.into());
        }
        report
    }

    fn out_of_memory(limit_bytes: Option<u64>) -> Cause {
        Cause::OutOfMemory(OutOfMemory {
            process: None,
            is_certain: false,
            oom_kills: 1,
            cgroup: None,
            limit_bytes,
            peak_bytes: limit_bytes,
        })
    }

    // Requirement: HINT-1
    #[test]
    fn memory_is_a_fifth_more_than_the_peak_in_steps() {
        let cases = [
            (10 * MB, GIB),
            (890 * MB, GIB),
            (900 * MB, GIB + 256 * MIB),
            (3000 * MB, 3 * GIB + 512 * MIB),
            (3570 * MB, 4 * GIB),
            (3600 * MB, 5 * GIB),
            (26_000 * MB, 30 * GIB),
            (30_000 * MB, 35 * GIB),
            (120_000 * MB, 140 * GIB),
            (1_000_000 * MB, 1120 * GIB),
        ];
        for (peak, asked) in cases {
            let mut report = run(60.0);
            report.max_ram.combined.footprint_bytes = Some(peak);
            let hint = memory(&report, None).unwrap();
            assert_eq!(hint.bytes as f64 / GIB as f64, asked as f64 / GIB as f64, "peak of {peak}");
            assert_eq!((hint.basis, hint.basis_bytes), (MemoryBasis::CombinedRam, peak));
            assert!(hint.bytes as f64 >= peak as f64 * 1.2 && !hint.is_lower_bound && !hint.is_fitting);
        }
        let mut unknown = run(60.0);
        unknown.max_ram.combined.footprint_bytes = None;
        assert_eq!(memory(&unknown, None), None);
    }

    // Requirement: HINT-1, HINT-51
    #[test]
    fn charged_peak_counts_unless_it_can_be_page_cache() {
        let mut report = given_memory(run(60.0), 10_000 * MB);
        report.max_ram.combined.footprint_bytes = Some(2000 * MB);
        let cases = [
            (None, MemoryBasis::CombinedRam, 2000),
            (Some(3000), MemoryBasis::CgroupPeak, 3000),
            (Some(1000), MemoryBasis::CombinedRam, 2000),
            (Some(9999), MemoryBasis::CombinedRam, 2000),
        ];
        for (charged, basis, basis_mb) in cases {
            let hint = memory(&report, charged.map(|mb: u64| mb * MB)).unwrap();
            assert_eq!((hint.basis, hint.basis_bytes / MB), (basis, basis_mb), "{charged:?}");
        }
        report.max_ram.combined.footprint_bytes = None;
        assert_eq!(memory(&report, Some(3000 * MB)).unwrap().basis, MemoryBasis::CgroupPeak);
    }

    // Requirement: HINT-1
    #[test]
    fn hint_fits_where_more_than_70_percent_was_used() {
        let fits = |peak: u64| {
            let mut report = given_memory(run(60.0), 1000 * MB);
            report.max_ram.combined.footprint_bytes = Some(peak * MB);
            memory(&report, None).unwrap().is_fitting
        };
        assert_eq!([fits(700), fits(701)], [false, true]);
        let fits = |wall_s| time(&given_time(run(wall_s), "1000", "2000"), 1000.0).is_fitting;
        assert_eq!([fits(700.0), fits(701.0)], [false, true]);
        assert!(!time(&run(60.0), 0.0).is_fitting, "nothing was given");
    }

    // Requirement: HINT-1
    #[test]
    fn after_an_out_of_memory_kill_the_limit_is_the_basis() {
        let mut report = given_memory(run(60.0), 100 * MB);
        report.ending.exit = Exit { code: Some(1), signal: None };
        for (limit, basis, asked) in [
            (Some(4 * GIB), 4 * GIB, 6 * GIB),
            (None, 100 * MB, GIB),
            (Some(100 * GIB), 100 * GIB, 150 * GIB),
        ] {
            report.ending.cause = Some(out_of_memory(limit));
            let hints = hints(&report, &Basis::default());
            let hint = hints.memory.unwrap();
            assert_eq!((hint.bytes, hint.basis_bytes, hint.is_lower_bound), (asked, basis, true));
            assert_eq!((hints.withheld, hints.time, hints.cpus), (None, None, None));
        }
    }

    // Requirement: HINT-1
    #[test]
    fn time_is_thirty_percent_more_in_steps_of_five_minutes() {
        for (wall_s, asked) in [(0.5, 600), (460.0, 600), (462.0, 900), (3600.0, 4800), (86_400.0, 112_500)] {
            let hint = time(&run(wall_s), 0.0);
            assert_eq!((hint.time_s, hint.basis, hint.given_s), (asked, TimeBasis::Wall, None), "{wall_s}");
        }
    }

    // Requirement: HINT-1
    #[test]
    fn time_counts_from_the_start_of_the_slurm_job() {
        let hint = time(&given_time(run(1000.0), "5000", "8600"), 6000.0);
        assert_eq!((hint.basis, hint.basis_s), (TimeBasis::SlurmJob, 2000.0));
        assert_eq!((hint.given_s, hint.time_s), (Some(3600.0), 2700));
        for (start, end) in [("", ""), ("0", "8600"), ("9000", "8600"), ("soon", "later")] {
            let hint = time(&given_time(run(1000.0), start, end), 6000.0);
            assert_eq!((hint.basis, hint.given_s), (TimeBasis::Wall, None), "{start:?} {end:?}");
        }
    }

    // Requirement: HINT-1
    #[test]
    fn after_a_time_limit_the_limit_is_the_basis() {
        let limit = |set_by, limit_s| {
            Some(Cause::TimeLimit(TimeLimit {
                process: None,
                signal: 15,
                signal_name: "SIGTERM".into(),
                set_by,
                limit_s,
            }))
        };
        let mut report = given_time(run(3000.0), "5000", "8600");
        report.ending.cause = limit(TimeLimitSource::Slurm, Some(3600.0));
        let hint = time(&report, 5500.0);
        assert_eq!((hint.time_s, hint.basis_s, hint.is_lower_bound), (5400, 3600.0, true));
        report.ending.cause = limit(TimeLimitSource::Timeout, Some(3000.0));
        assert_eq!(time(&report, 5500.0).time_s, 4500);
    }

    // Requirement: HINT-1
    #[test]
    fn cpus_are_the_busy_cores_rounded_up() {
        for (p95, count) in [(0.0, 1), (1.0, 1), (1.1, 1), (1.15, 2), (3.95, 4), (7.5, 8)] {
            let hint = cpus(&run(60.0), Some(p95)).unwrap();
            assert_eq!((hint.count, hint.given, hint.is_fitting), (count, None, false), "{p95}");
        }
        assert_eq!(cpus(&run(60.0), None), None);
        // No window was whole.
        let mut report = run(0.04);
        report.cpu_time.total_s = Some(0.05);
        assert_eq!(cpus(&report, Some(0.0)).unwrap().p95_busy_cores, 1.25);
    }

    // Requirement: HINT-1
    #[test]
    fn one_busy_core_of_several_is_a_serial_run() {
        for (cores, cpu_s, is_serial, is_fitting) in [
            (4.0, 84.0, false, false),
            (4.0, 86.0, true, false),
            (4.0, 101.0, true, false),
            (4.0, 102.0, false, false),
            (4.0, 300.0, false, true),
            (1.0, 99.0, false, true),
        ] {
            let mut report = run(100.0);
            report.usable.cores = UsableCores { count: cores, source: CoresSource::Affinity };
            report.cpu_time.total_s = Some(cpu_s);
            let hint = cpus(&report, Some(1.0)).unwrap();
            assert_eq!((hint.is_serial, hint.is_fitting), (is_serial, is_fitting), "{cpu_s} s of {cores}");
            assert!(!cpus(&report, Some(1.9)).unwrap().is_serial, "a part of it was parallel");
        }
    }

    // Requirement: HINT-5
    #[test]
    fn run_that_waited_for_cores_is_not_called_serial() {
        let mut report = run(100.0);
        report.cpu_time.total_s = Some(99.0);
        let mut judged = |is_contended, others_cores| {
            report.contention = Contention { is_contended, others_cores, ..Contention::default() };
            let hint = cpus(&report, Some(1.0)).unwrap();
            (hint.is_serial, hint.is_lower_bound)
        };
        assert_eq!(judged(Some(false), Some(1.0)), (true, false));
        assert_eq!(judged(None, None), (true, false), "nothing speaks of others");
        assert_eq!(judged(Some(true), Some(1.0)), (false, true));
        assert_eq!(judged(None, Some(1.0)), (false, true), "others had a core, and it may have waited");
    }

    // Requirement: HINT-1, HINT-54
    #[test]
    fn gpus_are_those_ever_busy_and_idle_ones_are_named() {
        let gpu = |id: &str, used, percent: Option<f64>| {
            let mut gpu = GpuDevice { id: id.into(), used, ..GpuDevice::default() };
            gpu.utilization.max_percent = percent;
            gpu
        };
        let mut report = run(60.0);
        assert_eq!(gpus(&report), None, "no GPU");
        report.usable.gpus = UsableGpus { count: Some(3), source: None };
        report.gpus = vec![
            gpu("A", Some(true), Some(41.0)),
            gpu("B", Some(true), Some(0.0)),
            gpu("another job's", Some(false), Some(99.0)),
        ];
        let hint = gpus(&report).unwrap();
        assert_eq!((hint.count, hint.given, hint.is_fitting), (1, 3, false));
        assert_eq!(hint.held_idle, ["B"]);
        report.gpus.push(gpu("C", Some(true), None));
        assert_eq!(gpus(&report), None, "the driver does not say whether C was busy");
        report.gpus.pop();
        report.gpus.push(gpu("D", None, Some(9.0)));
        assert_eq!(gpus(&report), None, "D was not read all the time");
        report.gpus.pop();
        let unsure = Basis { is_gpu_order_unsure: true, ..Basis::default() };
        assert_eq!(
            [hints(&report, &Basis::default()), hints(&report, &unsure)].map(|hints| hints.gpus.is_some()),
            [true, false]
        );
        report.gpus.push(GpuDevice { visible: Some(false), ..gpu("E", Some(true), Some(9.0)) });
        assert_eq!(gpus(&report), None, "the program chose E itself");
    }

    // Requirement: HINT-2
    #[test]
    fn hints_are_withheld_where_the_run_says_little() {
        let withheld = |report: &Report| hints(report, &Basis::default()).withheld;
        assert_eq!(withheld(&run(1.0)), None);
        assert_eq!(withheld(&run(0.999)).unwrap(), "the run took less than 1 s");
        let failed = Report {
            ending: Ending { exit: Exit { code: Some(2), signal: None }, ..Ending::default() },
            ..run(60.0)
        };
        assert_eq!(
            withheld(&failed).unwrap(),
            "the command failed, and may need more than it used up to then"
        );
        let running = Report { stage: Stage::SoFar, ending: Ending::default(), ..run(60.0) };
        assert_eq!(withheld(&running).unwrap(), "the run is not over");
        let ending = Ending { cause: Some(out_of_memory(None)), ..failed.ending.clone() };
        assert_eq!(withheld(&Report { ending, ..failed }), None);
    }

    // Requirement: HINT-18
    #[test]
    fn hints_are_unknown_where_work_is_elsewhere() {
        let entry = |kind, program: &str| StartedElsewhere {
            kind,
            program: program.to_owned(),
            target: None,
            count: 1,
            followed: 0,
            reason: None,
            in_tree: 0,
            is_tracked: false,
        };
        let judged = |report: &Report| {
            let hints = hints(report, &Basis { busy_cores: Some(2.0), ..Basis::default() });
            (hints.memory.is_some() || hints.time.is_some() || hints.cpus.is_some(), hints.withheld)
        };
        let mut report = run(60.0);
        assert_eq!(judged(&report), (true, None));
        report.coverage.elsewhere = vec![entry(ElsewhereKind::Node, "orted")];
        assert_eq!(
            judged(&report),
            (false, Some("what orted started elsewhere is not in this report".to_owned()))
        );
        report.coverage.ranks = Some(UnseenRanks { unseen: 2, expected: 4 });
        assert_eq!(judged(&report), (false, Some("2 of 4 ranks are not in this report".to_owned())));
        // The part of a run over several nodes.
        report.node_part =
            Some(NodePart { is_agent: false, clock_ahead_s: None, ready_s: None, directory: None });
        assert_eq!(judged(&report), (true, None));
        report.coverage.elsewhere.push(entry(ElsewhereKind::Container, "docker"));
        let reason = "what docker started elsewhere is not in this report";
        assert_eq!(judged(&report), (false, Some(reason.to_owned())));
        // The kernel killed a process at a limit: it needs more than that, whatever runs elsewhere.
        report.ending.cause = Some(out_of_memory(Some(8 * GIB)));
        assert!(judged(&report).0);
    }
}
