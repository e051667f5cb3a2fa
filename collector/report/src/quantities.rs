//! The quantities by which runs are compared: what each is called, its unit, and where it is in a report.

use crate::figures::float;
use crate::model::report::{GpuDevice, Report, TimeState};
use crate::model::time_groups::TimeGroup;

/// A quantity of a run.
pub(crate) struct Quantity {
    /// Its name in JSON, and as `--fail-above` has it.
    pub(crate) name: &'static str,
    /// What it is called in text.
    pub(crate) label: &'static str,
    /// Its unit: `s`, `bytes` or `J`; `%`: percent of one GPU; `1`: a number of things.
    pub(crate) unit: &'static str,
    /// How a way of doing the work differs from another if it has less of the quantity, and if it has more.
    pub(crate) less_and_more: [&'static str; 2],
    /// Its value; `None` if that is not known.
    pub(crate) value: fn(&Report) -> Option<f64>,
    /// Says why it is not known, for a run that was tracked.
    reason: fn(&Report) -> &str,
}

/// A quantity of the wall time that waits take: its name, what is waited for, and the group of states.
macro_rules! waits {
    ($name:literal, $what:literal, $group:ident) => {
        Quantity {
            name: $name,
            label: concat!("waiting for ", $what),
            unit: "s",
            less_and_more: [concat!("waits less for ", $what), concat!("waits more for ", $what)],
            value: |report| spent_s(report, TimeGroup::$group),
            reason: why_of_time,
        }
    };
}

/// All of them, the most asked for first.
pub(crate) const QUANTITIES: [Quantity; 13] = [
    Quantity {
        name: "wall",
        label: "wall time",
        unit: "s",
        less_and_more: ["takes less time", "takes more time"],
        value: |report| Some(report.wall_s),
        reason: why_of_processes,
    },
    Quantity {
        name: "cpu",
        label: "CPU time",
        unit: "s",
        less_and_more: ["uses less CPU time", "uses more CPU time"],
        value: |report| report.cpu_time.total_s,
        reason: why_of_processes,
    },
    Quantity {
        name: "cores",
        label: "cores",
        unit: "1",
        less_and_more: ["keeps fewer cores busy", "keeps more cores busy"],
        value: |report| Some(report.cpu_time.total_s? / report.wall_s).filter(|cores| cores.is_finite()),
        reason: why_of_processes,
    },
    Quantity {
        name: "ram",
        label: "RAM peak",
        unit: "bytes",
        less_and_more: ["needs less memory", "needs more memory"],
        value: |report| float(report.max_ram.combined.footprint_bytes),
        reason: why_of_processes,
    },
    Quantity {
        name: "gpu_ram",
        label: "GPU RAM peak",
        unit: "bytes",
        less_and_more: ["needs less GPU memory", "needs more GPU memory"],
        // Without a GPU it would be 0, which says nothing about the run.
        value: |report| float(report.max_gpu_ram.combined_bytes).filter(|_| has_gpus(report)),
        reason: |report| why_of_gpus(report, &["memory by process", "memory"]),
    },
    Quantity {
        name: "gpu_utilization",
        label: "GPU utilization",
        unit: "%",
        less_and_more: ["keeps the GPUs less busy", "keeps the GPUs busier"],
        value: mean_utilization_percent,
        reason: |report| why_of_gpus(report, &["utilization"]),
    },
    Quantity {
        name: "gpu_energy",
        label: "GPU energy",
        unit: "J",
        less_and_more: ["uses less GPU energy", "uses more GPU energy"],
        value: gpu_energy_j,
        reason: |report| why_of_gpus(report, &["energy counter"]),
    },
    Quantity {
        name: "read",
        label: "I/O read",
        unit: "bytes",
        less_and_more: ["reads less", "reads more"],
        value: |report| float(report.io.read_bytes),
        reason: why_of_processes,
    },
    Quantity {
        name: "written",
        label: "I/O written",
        unit: "bytes",
        less_and_more: ["writes less", "writes more"],
        value: |report| float(report.io.write_bytes),
        reason: why_of_processes,
    },
    waits!("waiting_for_core", "a core", WaitingForCore),
    waits!("storage", "storage", Storage),
    waits!("network", "the network", Network),
    waits!("locks", "locks", Locks),
];

impl Quantity {
    /// Says why the quantity is not known of a run.
    pub(crate) fn why_unknown<'a>(&self, report: &'a Report) -> &'a str {
        match &report.coverage.untracked_reason {
            Some(_) => "the run was not tracked",
            None => (self.reason)(report),
        }
    }
}

/// Finds the quantity of this name.
pub(crate) fn named(name: &str) -> Option<&'static Quantity> {
    QUANTITIES.iter().find(|quantity| quantity.name == name)
}

/// The wall time that the run spent in these states, seconds. `None`: no sample read what its threads do, or too much of the time is
/// unknown: it may have been in these states.
fn spent_s(report: &Report, group: TimeGroup) -> Option<f64> {
    /// If more of the time is unknown, so is each part of it.
    const MOST_UNKNOWN: f64 = 0.05;
    let spent = report.time_spent.as_ref().filter(|spent| spent.n_samples > 0)?;
    let unknown = spent.states.iter().find(|time| time.state == TimeState::Unknown);
    if unknown.is_some_and(|time| time.share > MOST_UNKNOWN) {
        return None;
    }
    let of_group = spent.states.iter().filter(|time| TimeGroup::from(time.state) == group);
    Some(of_group.fold(0.0, |sum_s, time| sum_s + time.s))
}

/// A figure of each of these GPUs that the run used. `None`: it used none, or that of one is not known. What others do on a GPU is not
/// the run's.
fn of_used<'a>(
    gpus: impl Iterator<Item = &'a GpuDevice>,
    figure: impl Fn(&GpuDevice) -> Option<f64>,
) -> Option<Vec<f64>> {
    let figures: Option<Vec<f64>> = gpus.filter(|gpu| gpu.used != Some(false)).map(figure).collect();
    figures.filter(|figures| !figures.is_empty())
}

/// The mean utilization of a GPU that the run used, percent; of a merged report, of any GPU.
fn mean_utilization_percent(report: &Report) -> Option<f64> {
    if report.merged.is_some() {
        let count = report.gpu.expected_gpus.filter(|count| *count > 0)?;
        return report.gpu.percent.mean_sum.map(|sum| sum / f64::from(count));
    }
    let percents = of_used(GpuDevice::undivided(&report.gpus), |gpu| gpu.utilization.mean_percent)?;
    Some(percents.iter().sum::<f64>() / percents.len() as f64)
}

/// The energy of all GPUs that the run used, joules; of a merged report, of all GPUs.
fn gpu_energy_j(report: &Report) -> Option<f64> {
    if let Some(merged) = &report.merged {
        return merged.gpu_energy_j;
    }
    Some(of_used(GpuDevice::whole(&report.gpus), |gpu| gpu.power.energy_j)?.iter().sum())
}

/// Whether there are GPUs. A merged report does not list them, but counts them.
fn has_gpus(report: &Report) -> bool {
    let is_any_counted = report.gpu.expected_gpus > Some(0);
    report.merged.is_some() && is_any_counted || !report.gpus.is_empty()
}

/// Says why a sum over the processes is not known: the same for every report.
fn why_of_processes(_: &Report) -> &str {
    "no process's figure is known"
}

/// Says why it is not known how the time was spent.
fn why_of_time(report: &Report) -> &str {
    match &report.time_spent {
        Some(spent) if spent.n_samples > 0 => "too much of the time is unknown",
        Some(_) => "no sample read what the threads do",
        None if report.merged.is_some() => "it is not known of all nodes",
        None => "the report does not have it",
    }
}

/// Says why a figure of the GPUs is not known. `figures`: names as in the report's lists of missing figures. The reason is that
/// of the first of these names which a GPU lacks, in the driver's words.
fn why_of_gpus<'a>(report: &'a Report, figures: &[&str]) -> &'a str {
    let reason = |figure: &&str| {
        let mut missing = report.gpus.iter().flat_map(|gpu| &gpu.missing);
        missing.find(|missing| missing.figure == *figure).map(|missing| missing.reason.as_str())
    };
    match report.gpu.expected_gpus {
        Some(0) => "there is no GPU",
        _ if report.merged.is_some() => "it is not known of all nodes",
        _ if report.gpus.is_empty() => "no GPU could be read",
        _ if report.gpus.iter().all(|gpu| gpu.used == Some(false)) => "the run used no GPU",
        _ => figures.iter().find_map(reason).unwrap_or("the driver does not tell"),
    }
}

#[cfg(test)]
mod tests {
    use gpu_track_core::fixtures::{full, killed, unknown};

    use super::*;
    use crate::model::report::{GpuMissing, StateTime, TimeSpent, TimeState};

    // Requirement: GPU-84
    #[test]
    fn what_others_do_on_gpus_is_not_the_runs() {
        let of = |used: [Option<bool>; 2]| {
            let gpus = used.into_iter().zip([40.0, 80.0]).map(|(used, percent)| {
                let mut gpu = GpuDevice { used, ..GpuDevice::default() };
                (gpu.utilization.mean_percent, gpu.power.energy_j) = (Some(percent), Some(percent));
                gpu
            });
            let report = Report { gpus: gpus.collect(), ..unknown() };
            (mean_utilization_percent(&report), gpu_energy_j(&report), why_of_gpus(&report, &[]).to_owned())
        };
        let of_value = |used| (of(used).0, of(used).1);
        assert_eq!(of_value([Some(true); 2]), (Some(60.0), Some(120.0)));
        assert_eq!(of_value([Some(true), Some(false)]), (Some(40.0), Some(40.0)));
        assert_eq!(of([Some(false); 2]), (None, None, "the run used no GPU".to_owned()));
    }

    #[test]
    fn without_a_gpu_nothing_is_known_of_gpus_and_the_reason_says_so() {
        let mut report = full();
        report.gpus.clear();
        report.gpu.expected_gpus = Some(0);
        report.max_gpu_ram.combined_bytes = Some(0);
        for name in ["gpu_ram", "gpu_utilization", "gpu_energy"] {
            let quantity = named(name).unwrap();
            assert_eq!(((quantity.value)(&report), quantity.why_unknown(&report)), (None, "there is no GPU"));
        }
        report.gpu.expected_gpus = None;
        assert_eq!(named("gpu_ram").unwrap().why_unknown(&report), "no GPU could be read");
    }

    #[test]
    fn unknown_figure_has_the_reason_of_the_report() {
        let report = unknown();
        let known = QUANTITIES.iter().filter(|quantity| (quantity.value)(&report).is_some());
        assert_eq!(known.map(|quantity| quantity.name).collect::<Vec<_>>(), ["wall"]);
        assert_eq!(named("cpu").unwrap().why_unknown(&report), "no process's figure is known");
        let mut report = killed();
        report.gpus[0].missing = vec![GpuMissing {
            figure: "energy counter".into(),
            reason: "not supported by this device".into(),
        }];
        assert_eq!(named("gpu_energy").unwrap().why_unknown(&report), "not supported by this device");
        report.coverage.untracked_reason = Some("/dev/shm is full".into());
        assert_eq!(named("cpu").unwrap().why_unknown(&report), "the run was not tracked");
    }

    // Requirement: SLOW-14
    #[test]
    fn waits_are_seconds_of_wall_time_and_unknown_without_readings() {
        let mut report = full();
        let swap = StateTime { state: TimeState::Swap, share: 0.01, s: 0.8325, by_command: Vec::new() };
        report.time_spent.as_mut().unwrap().states.push(swap);
        let value = |report: &Report, name| (named(name).unwrap().value)(report);
        let names = ["waiting_for_core", "storage", "network", "locks"];
        assert_eq!(
            names.map(|name| value(&report, name).unwrap()),
            [0.03125 * 83.25, 0.0625 * 83.25 + 0.8325, 0.0, 0.0]
        );
        for (time_spent, reason) in [
            (Some(TimeSpent::default()), "no sample read what the threads do"),
            (None, "the report does not have it"),
        ] {
            report.time_spent = time_spent;
            assert_eq!(names.map(|name| value(&report, name)), [None; 4]);
            assert_eq!(named("storage").unwrap().why_unknown(&report), reason);
        }
    }

    // Requirement: SLOW-14
    #[test]
    fn wait_of_which_too_much_may_be_missing_is_no_0() {
        let mut report = full();
        let locks = named("locks").unwrap();
        assert_eq!((locks.value)(&report), Some(0.0), "all of the time is known");
        let spent = report.time_spent.as_mut().unwrap();
        spent.states.last_mut().unwrap().state = TimeState::Unknown;
        spent.states.last_mut().unwrap().share = 0.04;
        assert_eq!((locks.value)(&report), Some(0.0));
        report.time_spent.as_mut().unwrap().states.last_mut().unwrap().share = 0.06;
        assert_eq!((locks.value)(&report), None);
        assert_eq!(locks.why_unknown(&report), "too much of the time is unknown");
    }
}
