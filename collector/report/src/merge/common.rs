//! What is the same in all reports: kernel, limits, batch job. What differs is in the reports of the nodes.

use super::totals::InAny;
use crate::model::report::{
    Allowed, Contention, CpusHint, GpuMemoryHint, GpusHint, Hints, Limit, MemoryHint, Report, RunLimitUse,
    TimeHint,
};

/// Why a merged report has no figures of the cores that other programs used.
const CONTENTION: &str = "the reports of the nodes have it";
/// Why there are no hints where reports are of parts of nodes.
const SEVERAL: &str = "several reports are of one node, so none tells what a node needs";
/// Maximum number of GPUs that are named as held and idle.
const MOST_IDLE: usize = 100;

/// What the reports so far have in common.
#[derive(Debug, Default)]
pub(super) struct Common {
    /// Kernel and limits, as far as they are the same in all reports. `None`: there is no report yet.
    same: Option<(Option<String>, Allowed)>,
    /// Whether the run of some report waited for cores.
    contended: InAny,
    /// The largest of each hint. `None`: there is no report yet.
    hints: Option<Hints>,
    /// Limits that the user set for the run. Each is as in the report in which it was exceeded first.
    pub(super) run_limits: Vec<RunLimitUse>,
}

impl Common {
    /// Adds a report.
    pub(super) fn add(&mut self, report: &Report) {
        match &mut self.same {
            None => self.same = Some((report.host.kernel.clone(), report.allowed.clone())),
            Some((kernel, allowed)) => {
                if *kernel != report.host.kernel {
                    *kernel = None;
                }
                keep_common(allowed, &report.allowed);
            }
        }
        self.contended.add(report.contention.is_contended);
        report.run_limits.iter().for_each(|limit| self.add_limit(limit));
        self.hints = Some(match self.hints.take() {
            None => report.hints.clone(),
            Some(hints) => larger(hints, &report.hints),
        });
    }

    /// Adds a limit of a report. Of the same limit in several reports, the one that was exceeded first is kept.
    fn add_limit(&mut self, limit: &RunLimitUse) {
        let is_earlier = |known: &RunLimitUse| match (limit.exceeded_at_s, known.exceeded_at_s) {
            (Some(at_s), Some(known_s)) => at_s < known_s,
            (at_s, known_s) => at_s.is_some() && known_s.is_none(),
        };
        match self.run_limits.iter_mut().find(|known| known.limit == limit.limit) {
            Some(known) if is_earlier(known) => known.clone_from(limit),
            Some(_) => {}
            None => self.run_limits.push(limit.clone()),
        }
    }

    /// The kernel. `None`: the reports have different ones, or none.
    pub(super) fn kernel(&self) -> Option<String> {
        self.same.as_ref().and_then(|(kernel, _)| kernel.clone())
    }

    /// The limits. Those that differ between reports are unknown.
    pub(super) fn allowed(&self) -> Allowed {
        self.same.as_ref().map(|(_, allowed)| allowed.clone()).unwrap_or_default()
    }

    /// Says whether some report's run waited for cores. It is unknown if a report does not say, and no other run waited.
    pub(super) fn contention(&self) -> Contention {
        Contention {
            is_contended: self.contended.is_so(),
            reason: Some(CONTENTION.to_owned()),
            ..Contention::default()
        }
    }

    /// What to ask for next time, for each node: the most that any report asks for. If a node has several reports, there
    /// are no hints, because each report is only about a part of its node.
    pub(super) fn hints(&self, is_one_report_a_node: bool) -> Hints {
        match &self.hints {
            Some(hints) if is_one_report_a_node => hints.clone(),
            _ => Hints::unknown(SEVERAL.to_owned()),
        }
    }
}

/// Makes the limits in `allowed` unknown that differ from those of another report.
fn keep_common(allowed: &mut Allowed, others: &Allowed) {
    let Allowed {
        memory_bytes,
        cpu_millicores,
        tasks,
        cgroup,
        oom_kills,
        cpus,
        ulimits,
        batch_system,
        slurm,
        job,
    } = allowed;
    for (limit, other) in
        [(memory_bytes, others.memory_bytes), (cpu_millicores, others.cpu_millicores), (tasks, others.tasks)]
    {
        if *limit != other {
            *limit = Limit::Unknown;
        }
    }
    keep_equal(cgroup, &others.cgroup);
    keep_equal(cpus, &others.cpus);
    keep_equal(batch_system, &others.batch_system);
    // Kills in two cgroups add up, but those in one cgroup would count twice if both reports are of it.
    *oom_kills = None;
    ulimits.retain(|name, limit| others.ulimits.get(name) == Some(limit));
    slurm.retain(|name, value| others.slurm.get(name) == Some(value));
    job.retain(|name, value| others.job.get(name) == Some(value));
}

/// Makes `value` unknown if it differs from `other`.
fn keep_equal<T: PartialEq>(value: &mut Option<T>, other: &Option<T>) {
    if value != other {
        *value = None;
    }
}

/// The larger of each hint, and the sum of the GPUs. A hint that one report does not have is unknown for all. Of the reasons for
/// which hints are not shown or missing, the first is kept.
fn larger(all: Hints, other: &Hints) -> Hints {
    Hints {
        withheld: all.withheld.or_else(|| other.withheld.clone()),
        memory: larger_of(all.memory, other.memory, |a: &MemoryHint, b| a.bytes >= b.bytes),
        time: larger_of(all.time, other.time, |a: &TimeHint, b| a.time_s >= b.time_s),
        cpus: larger_of(all.cpus, other.cpus, |a: &CpusHint, b| {
            a.count.cmp(&b.count).then(a.p95_busy_cores.total_cmp(&b.p95_busy_cores)).is_ge()
        }),
        gpus: Option::zip(all.gpus, other.gpus.as_ref()).map(|(a, b)| sum_of_gpus(a, b)),
        gpu_memory: larger_of(all.gpu_memory, other.gpu_memory.clone(), |a: &GpuMemoryHint, b| {
            (a.bytes, a.basis_bytes) >= (b.bytes, b.basis_bytes)
        }),
        gpu_memory_reason: all.gpu_memory_reason.or_else(|| other.gpu_memory_reason.clone()),
    }
}

/// The larger of two hints. `is_at_least`: whether the first is no smaller than the second. `None`: one of them is unknown.
fn larger_of<T>(a: Option<T>, b: Option<T>, is_at_least: impl Fn(&T, &T) -> bool) -> Option<T> {
    let (a, b) = Option::zip(a, b)?;
    Some(if is_at_least(&a, &b) { a } else { b })
}

/// Adds up the GPUs of two reports, which are of different nodes.
fn sum_of_gpus(a: GpusHint, b: &GpusHint) -> GpusHint {
    let held_idle = a.held_idle.into_iter().chain(b.held_idle.iter().cloned()).take(MOST_IDLE).collect();
    GpusHint {
        count: a.count.saturating_add(b.count),
        given: a.given.saturating_add(b.given),
        is_fitting: a.is_fitting && b.is_fitting,
        held_idle,
    }
}
