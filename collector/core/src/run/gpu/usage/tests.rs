//! Usage from made-up readings.

use std::collections::BTreeMap;

use super::device::Loss;
use super::*;
use crate::model::gpu::{
    AccountingEntry, Busy, Device, DeviceList, DeviceSample, Figure, Missing, PidFacts, ProcessBusy,
    ProcessMemory, Reading, Vendor, Work,
};
use crate::run::gpu::pid_table::PidTable;
use crate::run::gpu::pid_table::tests::process;

const S: u64 = 1_000_000_000;

/// Readings of made-up devices, and a pid table to resolve them by.
pub(super) struct Bench {
    pub usage: GpuUsage,
    table: PidTable,
    facts: BTreeMap<u32, PidFacts>,
    has_own_pid_ns: bool,
}

pub(super) fn gpu(id: &str) -> Device {
    Device { id: id.into(), vendor: Some(Vendor::Nvidia), memory_bytes: Some(80 << 30), ..Device::default() }
}

pub(super) fn listed(pid: u32, bytes: u64) -> ProcessMemory {
    ProcessMemory { pid, bytes: Ok(bytes), work: Work::Compute }
}

fn groups<T>(main: T, descendants: T, combined: T) -> Groups<T> {
    Groups { main, descendants, combined }
}

fn sample(device: &str) -> DeviceSample {
    DeviceSample { device: device.into(), ..DeviceSample::default() }
}

pub(super) fn memory(device: &str, list: Vec<ProcessMemory>) -> DeviceSample {
    DeviceSample { processes: Some(Ok(list)), ..sample(device) }
}

fn value(device: &str, figure: Figure, value: Reading<f64>) -> DeviceSample {
    DeviceSample { values: vec![(figure, value)], ..sample(device) }
}

impl Bench {
    pub fn new(devices: &[Device]) -> Self {
        let mut bench = Self {
            usage: GpuUsage { interval_ns: S, ..GpuUsage::default() },
            table: PidTable::default(),
            facts: BTreeMap::new(),
            has_own_pid_ns: false,
        };
        let tracked = |device: &Device| TrackedDevice { device: device.clone(), is_visible: None };
        let whole = devices.iter().filter(|device| device.parent.is_none());
        let list = DeviceList {
            tracked: devices.iter().map(tracked).collect(),
            machine: whole.map(|device| device.id.clone()).collect(),
            is_order_unsure: false,
        };
        bench.batch(Batch { devices: Some(list), ..Batch::default() });
        // Main, pid 10; a descendant, pid 20.
        bench.table.put(process(1, 10, S, None));
        bench.table.put(process(2, 20, S, None));
        bench
    }

    fn batch(&mut self, batch: Batch) {
        let Self { usage, table, facts, has_own_pid_ns } = self;
        usage.add(&batch, PidResolver { table, facts, has_own_pid_ns: *has_own_pid_ns });
    }

    /// In a container: whether a process has a GPU open.
    fn opens(&mut self, pid: u32, is_open: bool) {
        self.has_own_pid_ns = true;
        let facts = PidFacts { has_gpu_open: Some(is_open), has_memory: Some(true), ..PidFacts::default() };
        self.table.add_facts(pid, &facts);
        self.facts.insert(pid, facts);
    }

    fn at(&mut self, s: u64, samples: Vec<DeviceSample>) {
        self.at_ns(s * S, samples);
    }

    pub fn at_ns(&mut self, at_ns: u64, samples: Vec<DeviceSample>) {
        self.batch(Batch { at_ns, samples, ..Batch::default() });
    }

    fn max(&self) -> (u64, u64, u64) {
        let max = self.usage.max.memory.unwrap();
        (max.main, max.descendants, max.combined)
    }
}

// Requirement: GPU-1
#[test]
fn combined_peak_is_largest_sum_over_devices_at_one_time() {
    let mut bench = Bench::new(&[gpu("a"), gpu("b")]);
    bench.at(2, vec![memory("a", vec![listed(10, 500), listed(20, 100)]), memory("b", vec![listed(10, 50)])]);
    bench.at(3, vec![memory("a", vec![listed(10, 100), listed(20, 400)]), memory("b", vec![])]);
    assert_eq!(bench.max(), (550, 400, 650));
    assert_eq!(bench.usage.processes.by_id[&1].peak_bytes, Some(550));
    assert_eq!(bench.usage.processes.by_id[&2].peak_bytes, Some(400));
    assert_eq!(bench.usage.devices[0].run.max.combined, 600);
    assert_eq!(bench.usage.processes.by_id[&1].devices["b"].peak_bytes, Some(50));
}

#[test]
fn backends_add_up_though_read_at_different_times() {
    let mut bench = Bench::new(&[gpu("a"), gpu("b")]);
    bench.at(2, vec![memory("a", vec![listed(10, 500)])]);
    bench.at(3, vec![memory("b", vec![listed(10, 300)])]);
    assert_eq!(bench.max(), (500, 0, 500), "the first may be free by then");
    bench.at(4, vec![memory("a", vec![listed(10, 400)])]);
    assert_eq!(bench.max(), (700, 0, 700));
    assert_eq!(bench.usage.processes.by_id[&1].peak_bytes, Some(700));
}

#[test]
fn processes_outside_the_run_do_not_count() {
    let mut bench = Bench::new(&[gpu("a")]);
    bench.at(2, vec![memory("a", vec![listed(10, 5), listed(77, 1000)])]);
    assert_eq!(bench.max(), (5, 0, 5));
    assert_eq!(bench.usage.processes.by_id.len(), 1);
}

#[test]
fn stale_list_entry_is_not_the_new_process_of_that_pid() {
    let mut bench = Bench::new(&[gpu("a")]);
    bench.at(2, vec![memory("a", vec![listed(30, 700)])]);
    // The pid is used again, and the driver still lists the ended process.
    bench.table.put(process(3, 30, 3 * S, None));
    bench.at(4, vec![memory("a", vec![listed(30, 700)])]);
    assert_eq!(bench.max(), (0, 0, 0));
    assert!(!bench.usage.devices[0].run.is_used);
    // The new process allocates.
    bench.at(5, vec![memory("a", vec![listed(30, 300)])]);
    assert_eq!(bench.max(), (0, 300, 300));
}

#[test]
fn unreported_memory_is_unknown_and_not_zero() {
    let mut bench = Bench::new(&[gpu("a")]);
    bench.at(
        2,
        vec![memory(
            "a",
            vec![ProcessMemory { work: Work::Compute, pid: 20, bytes: Err(Missing::NotReported) }],
        )],
    );
    assert_eq!(bench.usage.devices[0].run.has_unreported, groups(false, true, true));
    assert_eq!(bench.usage.processes.by_id[&2].peak_bytes, None);
    bench.at(3, vec![memory("a", vec![])]);
    assert_eq!(bench.usage.devices[0].run.has_unreported, groups(false, true, true), "also after it is gone");
}

/// As NVIDIA's drivers 545 to 560 list a process in a container.
// Requirement: GPU-4
#[test]
fn memory_of_0_bytes_is_unknown_if_it_stays() {
    let mut bench = Bench::new(&[gpu("a")]);
    let unreported = |bench: &Bench| bench.usage.devices[0].run.has_unreported.combined;
    bench.at(2, vec![memory("a", vec![listed(10, 500), listed(20, 700)])]);
    bench.at(3, vec![memory("a", vec![listed(10, 500), listed(20, 0)])]);
    bench.at(4, vec![memory("a", vec![listed(10, 500)])]);
    assert!(!unreported(&bench), "it ended while the driver answered");
    assert_eq!(bench.max(), (500, 700, 1200));
    bench.table.put(process(3, 30, 4 * S, None));
    // Its main thread has no memory of its own.
    bench.table.add_facts(31, &PidFacts { thread_group_leader: Some(30), ..PidFacts::default() });
    for s in [5, 6] {
        bench.at(s, vec![memory("a", vec![listed(30, 0), listed(31, 300)])]);
    }
    assert!(!unreported(&bench));
    bench.table.put(process(4, 40, 6 * S, None));
    for s in [7, 8] {
        assert!(!unreported(&bench));
        bench.at(s, vec![memory("a", vec![listed(40, 0)])]);
    }
    assert!(unreported(&bench));
    assert_eq!(bench.usage.processes.by_id[&4].peak_bytes, None);
}

/// A driver up to 560 in a container: its lists have the pids there, its utilization samples those outside.
// Requirement: GPU-56
#[test]
fn utilization_of_foreign_pids_may_be_that_of_the_run() {
    let busy = |pid| {
        let busy = Busy { us: 1_000_000, percent: 90.0 };
        DeviceSample {
            process_busy: Some(Ok(vec![ProcessBusy { pid, busy, is_from_start: false }])),
            ..memory("a", vec![listed(20, 500)])
        }
    };
    let gap = |samples: [DeviceSample; 2]| {
        let mut bench = Bench::new(&[gpu("a")]);
        bench.opens(20, true);
        for (s, sample) in (2..).zip(samples) {
            bench.at(s, vec![sample]);
        }
        bench.usage.devices[0].process_utilization_gap()
    };
    assert_eq!(gap([busy(90_000), busy(90_000)]), Some(Missing::ForeignPids));
    assert_eq!(gap([busy(90_000), busy(20)]), None);
    let without = |pid| DeviceSample { processes: Some(Ok(Vec::new())), ..busy(pid) };
    assert_eq!(gap([without(90_000), without(90_000)]), None, "no process of the run is on the device");
}

#[test]
fn foreign_pid_makes_memory_by_process_unknown() {
    let mut bench = Bench::new(&[gpu("a")]);
    // No process of the collector's pid namespace has that pid.
    bench.has_own_pid_ns = true;
    bench.at(2, vec![memory("a", vec![listed(90_000, 1000)])]);
    assert_eq!(bench.usage.max.memory, None);
    assert_eq!(bench.usage.devices[0].figures.missing[&Figure::ProcessMemory], Missing::ForeignPids);
}

#[test]
fn lost_device_keeps_its_figures_and_others_go_on() {
    let mut bench = Bench::new(&[gpu("a"), gpu("b")]);
    bench.at(2, vec![memory("a", vec![listed(10, 500)]), memory("b", vec![listed(10, 100)])]);
    bench.at(3, vec![DeviceSample { is_lost: true, ..sample("a") }, memory("b", vec![listed(10, 700)])]);
    bench.at(4, vec![DeviceSample { is_lost: true, ..sample("a") }, memory("b", vec![listed(10, 700)])]);
    assert_eq!(bench.max(), (700, 0, 700));
    assert_eq!(bench.usage.devices[0].loss, Some(Loss { at_ns: 3 * S, is_back: false }));
    assert_eq!(bench.usage.devices[0].run.max.main, 500);
}

#[test]
fn memory_of_parts_counts_in_the_whole_device() {
    let part = Device { parent: Some("a".into()), ..gpu("m") };
    let mut bench = Bench::new(&[gpu("a"), part]);
    bench.at(2, vec![value("a", Figure::MemoryUsed, Ok(900.0)), value("m", Figure::MemoryUsed, Ok(300.0))]);
    assert_eq!(bench.usage.max.used_bytes, Some(900));
    assert_eq!(bench.usage.machine.len(), 1);
    assert!(bench.usage.devices[1].is_part);
}

#[test]
fn utilization_of_the_machine_is_unknown_where_parts_or_no_reading_tell_it() {
    let part = Device { parent: Some("b".into()), ..gpu("m") };
    let mut bench = Bench::new(&[gpu("a"), gpu("b"), part]);
    let busy = |device: &str, reading: Reading<f64>| {
        let stretches = reading.map(|percent| vec![Busy { us: 1000, percent }]);
        DeviceSample { busy: Some(stretches), ..sample(device) }
    };
    let now = |bench: &Bench, s| (bench.usage.now(s * S).busy_percent, bench.usage.now(s * S).is_idle());
    bench.at(2, vec![busy("a", Ok(0.0))]);
    assert_eq!(now(&bench, 2), (None, None), "of b nothing is known");
    bench.at(3, vec![busy("a", Ok(0.0)), busy("b", Err(Missing::NoPermission))]);
    assert_eq!(now(&bench, 3), (None, None));
    bench.at(4, vec![busy("a", Ok(0.0)), busy("b", Err(Missing::ReportedByInstances)), busy("m", Ok(80.0))]);
    assert_eq!(now(&bench, 4), (None, Some(false)), "percent of a part are none of a GPU");
    let mut others = Bench::new(&[gpu("a"), gpu("b")]);
    others.at(2, vec![busy("a", Ok(70.0)), busy("b", Err(Missing::NotSupported))]);
    assert_eq!(now(&others, 2).0, Some(70.0));
}

#[test]
fn sums_of_memory_are_unknown_while_a_device_does_not_answer() {
    let mut bench = Bench::new(&[gpu("a"), gpu("b")]);
    let read = |device: &str, bytes: Option<u64>| {
        let refused = || Missing::NoPermission;
        let used = bytes.map(|bytes| bytes as f64).ok_or_else(refused);
        let list = bytes.map(|bytes| vec![listed(10, bytes)]).ok_or_else(refused);
        DeviceSample { processes: Some(list), ..value(device, Figure::MemoryUsed, used) }
    };
    for (s, of_b, expected) in [(2, Some(500), Some(1500)), (3, None, None), (4, Some(500), Some(1500))] {
        bench.at(s, vec![read("a", Some(1000)), read("b", of_b)]);
        let now = bench.usage.now(s * S);
        assert_eq!((now.used_bytes, now.run_bytes.map(|run| run.main)), (expected, expected), "{s}");
    }
    bench.usage.begin_sample();
    bench.at(5, vec![DeviceSample { is_lost: true, ..sample("b") }, read("a", Some(1000))]);
    assert_eq!(bench.usage.now(5 * S).used_bytes, Some(1000), "a lost device has no memory");
}

#[test]
fn lost_device_can_come_back() {
    let mut bench = Bench::new(&[gpu("A")]);
    let lost = || DeviceSample { is_lost: true, ..sample("A") };
    bench.at(2, vec![lost()]);
    let loss = |bench: &Bench| bench.usage.devices[0].loss;
    assert_eq!(loss(&bench), Some(Loss { at_ns: 2 * S, is_back: false }));
    bench.at(3, vec![memory("A", vec![listed(10, 100)])]);
    assert_eq!(loss(&bench), Some(Loss { at_ns: 2 * S, is_back: true }));
    bench.at(4, vec![lost()]);
    assert_eq!(loss(&bench), Some(Loss { at_ns: 2 * S, is_back: false }));
}

#[test]
fn reason_is_dropped_once_the_value_is_known() {
    let mut bench = Bench::new(&[gpu("a")]);
    bench.at(2, vec![value("a", Figure::Power, Err(Missing::NoPermission))]);
    assert_eq!(bench.usage.devices[0].figures.missing[&Figure::Power], Missing::NoPermission);
    bench.at(3, vec![value("a", Figure::Power, Ok(100.0))]);
    assert!(bench.usage.devices[0].figures.missing.is_empty() && bench.usage.devices[0].knows(Figure::Power));
}

#[test]
fn throttle_reason_counts_from_the_reading_before() {
    let mut bench = Bench::new(&[gpu("a")]);
    let throttle = |reasons: &[&'static str]| DeviceSample {
        throttle: Some(Ok(reasons.iter().map(|reason| (*reason).into()).collect())),
        ..sample("a")
    };
    bench.at(2, vec![throttle(&["idle"])]);
    bench.at(4, vec![throttle(&["software power cap"])]);
    bench.at(7, vec![throttle(&["software power cap", "hardware slowdown"])]);
    let times = bench.usage.devices[0].throttle.ns().unwrap();
    let times: Vec<_> = times.iter().map(|(k, v)| (k.as_str(), *v)).collect();
    assert_eq!(times, [("hardware slowdown", 3 * S), ("idle", 0), ("software power cap", 5 * S)]);
}

#[test]
fn utilisation_sums_over_devices_and_processes() {
    let mut bench = Bench::new(&[gpu("a"), gpu("b")]);
    let busy = |device: &str, percent: f64, processes: Vec<(u32, f64)>| DeviceSample {
        busy: Some(Ok(vec![Busy { us: 1_000_000, percent }])),
        process_busy: Some(Ok(processes
            .into_iter()
            .map(|(pid, percent)| ProcessBusy {
                pid,
                busy: Busy { us: 1_000_000, percent },
                is_from_start: false,
            })
            .collect())),
        ..sample(device)
    };
    bench.at(
        2,
        vec![busy("a", 80.0, vec![(10, 60.0), (20, 20.0), (99, 50.0)]), busy("b", 130.0, vec![(10, 120.0)])],
    );
    bench.at(3, vec![busy("a", 10.0, vec![(20, 90.0)]), busy("b", 0.0, vec![])]);
    assert_eq!(bench.usage.max.busy, Some(180.0));
    assert_eq!(bench.usage.max.process_busy, Some(groups(160.0, 90.0, 180.0)));
    assert_eq!(bench.usage.processes.by_id[&2].devices["a"].busy.mean(), Some(55.0));
}

/// Drivers report only processes that ran. Some name one process for each sample of the device.
#[test]
fn process_that_is_on_a_device_and_not_reported_is_idle() {
    let mut bench = Bench::new(&[gpu("a")]);
    let read = |pids: &[u32]| {
        let busy = Busy { us: 1_000_000, percent: 60.0 };
        let list = pids.iter().map(|pid| ProcessBusy { pid: *pid, busy, is_from_start: false }).collect();
        DeviceSample {
            process_busy: Some(Ok(list)),
            process_busy_us: 1_000_000,
            ..memory("a", vec![listed(10, 500), listed(20, 500)])
        }
    };
    for (s, pids) in (2..).zip([&[20][..], &[10], &[], &[20]]) {
        bench.at(s, vec![read(pids)]);
    }
    let busy = |bench: &Bench, id| {
        let busy = bench.usage.processes.by_id[&id].devices["a"].busy;
        (busy.mean(), busy.max, busy.measured_s())
    };
    assert_eq!(busy(&bench, 2), (Some(30.0), Some(60.0), 4.0));
    assert_eq!(busy(&bench, 1), (Some(15.0), Some(60.0), 4.0));
    // Some drivers take no samples of an idle device.
    bench.at(6, vec![DeviceSample { process_busy_us: 5_000_000, ..read(&[10]) }]);
    assert_eq!(busy(&bench, 1), (Some(120.0 / 9.0), Some(60.0), 9.0));
}

/// Others hold most of the GPU's memory, and keep it busy.
// Requirement: SLOW-7
#[test]
fn gpu_that_others_share_is_as_busy_for_the_run_as_its_processes_are() {
    let of = |own_bytes: u64, own_percent: Option<f64>, others: usize| {
        let mut bench = Bench::new(&[gpu("a")]);
        let busy = |percent| Busy { us: 1_000_000, percent };
        let list = own_percent.map(|percent| {
            let by = |pid, percent| ProcessBusy { pid, busy: busy(percent), is_from_start: false };
            Ok(vec![by(20, percent), by(99, 95.0)])
        });
        let read = DeviceSample {
            busy: Some(Ok(vec![busy(95.0)])),
            process_busy: list,
            process_busy_us: 1_000_000,
            values: vec![(Figure::MemoryUsed, Ok(1000.0))],
            ..memory("a", [listed(20, own_bytes), listed(99, 1000 - own_bytes)][..=others].to_vec())
        };
        bench.at(2, vec![read.clone()]);
        bench.at(3, vec![read]);
        bench.usage.now(3 * S).busy_of_run()
    };
    let busy_of_run = |own_bytes, own_percent| of(own_bytes, own_percent, 1);
    assert_eq!(of(600, Some(5.0), 0), Some(95.0), "it is alone, so the GPU is busy for it");
    assert_eq!(busy_of_run(400, Some(90.0)), Some(90.0));
    assert_eq!(busy_of_run(600, Some(5.0)), Some(5.0), "it holds most, and the others compute");
    assert_eq!(busy_of_run(400, None), None, "the driver does not tell whose work it is");
    assert_eq!(busy_of_run(600, None), Some(95.0));
}

/// With samples of the driver that are further apart than readings, half of the readings have none.
#[test]
fn utilization_is_known_until_the_next_sample_of_the_driver() {
    let mut bench = Bench::new(&[gpu("a")]);
    bench.usage.interval_ns = S / 10;
    let busy = Some(Ok(vec![Busy { us: 400_000, percent: 70.0 }]));
    bench.at(2, vec![DeviceSample { busy, busy_every_us: 400_000, ..sample("a") }]);
    bench.usage.begin_sample();
    let now = |at_ns| {
        let sums = bench.usage.now(at_ns);
        [sums.busy_percent, sums.devices[0].busy_percent]
    };
    // It is old a quarter of a second after the next sample is due.
    assert_eq!(now(2 * S + 600_000_000), [Some(70.0); 2]);
    assert_eq!(now(2 * S + 700_000_000), [None; 2]);
}

// Requirement: ATTACH-2
#[test]
fn busy_time_from_before_an_attach_is_not_counted() {
    let busy = |ran_before| {
        let mut bench = Bench::new(&[gpu("a")]);
        bench.table.put(PidEntry { ran_before, ..process(3, 30, S, None) });
        let busy = Busy { us: 500_000, percent: 100.0 };
        let list = vec![ProcessBusy { pid: 30, busy, is_from_start: true }];
        bench.at(2, vec![DeviceSample { process_busy: Some(Ok(list)), ..sample("a") }]);
        bench.usage.max.process_busy.map(|busy| busy.combined)
    };
    assert_eq!([busy(false), busy(true)], [Some(50.0), Some(0.0)]);
}

#[test]
fn utilisation_without_a_length_holds_for_an_instant() {
    let mut bench = Bench::new(&[gpu("a"), gpu("b")]);
    let busy =
        |device: &str| DeviceSample { busy: Some(Ok(vec![Busy { us: 0, percent: 35.0 }])), ..sample(device) };
    bench.at(2, vec![busy("a"), busy("b")]);
    assert_eq!(bench.usage.max.busy, Some(70.0));
}

#[test]
fn utilisation_holds_for_the_length_it_was_reported_for() {
    let mut bench = Bench::new(&[gpu("a"), gpu("b")]);
    let busy = |device: &str, percents: &[f64]| {
        let spans = percents.iter().map(|percent| Busy { us: 2_000_000, percent: *percent });
        let by_process =
            spans.clone().map(|busy| ProcessBusy { pid: 20, busy, is_from_start: false }).collect();
        DeviceSample { busy: Some(Ok(spans.collect())), process_busy: Some(Ok(by_process)), ..sample(device) }
    };
    bench.at(1, vec![busy("a", &[]), busy("b", &[])]);
    bench.at(2, vec![busy("a", &[80.0]), busy("b", &[])]);
    assert_eq!(
        (bench.usage.max.busy, bench.usage.max.process_busy),
        (Some(80.0), Some(groups(0.0, 80.0, 80.0)))
    );
    bench.at(3, vec![busy("a", &[]), busy("b", &[50.0])]);
    assert_eq!(
        (bench.usage.max.busy, bench.usage.max.process_busy),
        (Some(130.0), Some(groups(0.0, 130.0, 130.0)))
    );
    // By then the first device is idle.
    bench.at(4, vec![busy("a", &[]), busy("b", &[90.0])]);
    assert_eq!(bench.usage.max.busy, Some(130.0));
}

#[test]
fn missing_process_samples_are_not_zero_utilisation_at_once() {
    let nothing = |list| DeviceSample { process_busy: Some(Ok(vec![])), ..memory("a", list) };
    let mut bench = Bench::new(&[gpu("a")]);
    bench.at(2, vec![nothing(vec![])]);
    assert_eq!(bench.usage.devices[0].process_utilization_gap(), None, "no process of the run is on it");
    bench.at(3, vec![nothing(vec![listed(10, 500)])]);
    bench.at(4, vec![nothing(vec![listed(10, 500)])]);
    assert_eq!(bench.usage.devices[0].process_utilization_gap(), Some(Missing::NoSample));
    bench.at(5, vec![nothing(vec![listed(10, 500)])]);
    assert_eq!(
        bench.usage.devices[0].process_utilization_gap(),
        None,
        "a driver reports a busy process within that time"
    );
    // The device is busy, and no process is reported.
    for (at, gap) in [(6, None), (7, None), (8, Some(Missing::NoSample))] {
        let busy = Some(Ok(vec![Busy { us: 1_000_000, percent: 80.0 }]));
        bench.at(at, vec![DeviceSample { busy, ..nothing(vec![listed(10, 500)]) }]);
        assert_eq!(bench.usage.devices[0].process_utilization_gap(), gap);
    }
}

#[test]
fn process_without_gpu_open_is_not_the_listed_one() {
    let mut bench = Bench::new(&[gpu("a")]);
    bench.opens(20, false);
    bench.at(2, vec![memory("a", vec![listed(20, 500)])]);
    assert_eq!(bench.usage.devices[0].figures.missing[&Figure::ProcessMemory], Missing::ForeignPids);
    assert!(bench.usage.processes.by_id.is_empty());
    // It opens one, and closes it.
    bench.opens(20, true);
    bench.at(3, vec![memory("a", vec![listed(20, 500)])]);
    bench.opens(20, false);
    bench.at(4, vec![memory("a", vec![listed(20, 700)])]);
    assert_eq!(bench.max(), (0, 700, 700));
}

#[test]
fn stranger_with_gpu_open_does_not_hide_the_run() {
    let mut bench = Bench::new(&[gpu("a")]);
    bench.opens(77, true);
    bench.at(2, vec![memory("a", vec![listed(77, 500)])]);
    assert_eq!(bench.max(), (0, 0, 0));
    assert!(bench.usage.devices[0].figures.missing.is_empty());
}

#[test]
fn accounting_entry_counts_process_that_no_sample_saw() {
    let mut bench = Bench::new(&[gpu("a")]);
    bench.table.put(process(3, 30, 5 * S, Some(5 * S + S / 20)));
    let entry = |is_running, bytes| AccountingEntry {
        pid: 30,
        started_us: 5_010_000,
        is_running,
        peak_bytes: Some(bytes),
        utilization_percent: Some(12),
    };
    let reading = |entry| DeviceSample { accounting: Some(Ok(vec![entry])), ..memory("a", vec![]) };
    bench.at(6, vec![reading(entry(true, 0))]);
    assert_eq!(bench.max(), (0, 0, 0), "the entry of a running process is no figure yet");
    bench.at(7, vec![reading(entry(false, 640))]);
    assert_eq!(bench.max(), (0, 640, 640));
    let on = &bench.usage.processes.by_id[&3].devices["a"];
    assert_eq!((on.peak_bytes, on.is_accounted, on.accounted_percent), (Some(640), true, Some(12.0)));
    // A process with this pid, long before the run.
    bench.at(8, vec![reading(AccountingEntry { started_us: 1, ..entry(false, 9999) })]);
    assert_eq!(bench.max(), (0, 640, 640));
}

// Requirement: GPU-52
#[test]
fn process_between_two_readings_of_a_device_counts_as_unsampled() {
    let mut bench = Bench::new(&[gpu("a"), gpu("b")]);
    for at_s in [2, 4, 9] {
        bench.at(at_s, vec![memory("a", vec![]), memory("b", vec![])]);
    }
    bench.at(6, vec![memory("b", vec![])]);
    let mut unsampled = |process| {
        bench.usage.ended(&process);
        std::mem::take(&mut bench.usage.unsampled)
    };
    let (none, descendant) = (Groups::default(), groups(0, 1, 1));
    assert_eq!(unsampled(process(5, 50, S, Some(3 * S))), none);
    let half_read = process(7, 70, 5 * S, Some(8 * S));
    assert_eq!(unsampled(half_read), descendant, "one was read, the other was not");
    let brief = |lived_ns, had_gpu_library| PidEntry {
        had_gpu_library,
        ..process(8, 80, 5 * S, Some(5 * S + lived_ns))
    };
    let shortest_ns = GpuPolicy::SHORTEST_GPU_USE_NS;
    assert_eq!(unsampled(brief(shortest_ns, Some(true))), descendant, "it can have used a GPU");
    assert_eq!(unsampled(brief(shortest_ns, None)), descendant, "it may have had a library for it");
    assert_eq!(unsampled(brief(shortest_ns - 1, Some(true))), none, "it had no time for it");
    assert_eq!(unsampled(brief(S, Some(false))), none, "it had no library for it");
}

/// The times of readings end with the collector that took them.
// Requirement: GPU-52
#[test]
fn process_that_a_killed_collector_saw_is_not_unsampled() {
    let mut bench = Bench::new(&[gpu("a")]);
    bench.at(2, vec![memory("a", vec![listed(20, 500)])]);
    bench.at(3, vec![memory("a", vec![listed(20, 500)])]);
    let bytes = postcard::to_stdvec(&bench.usage).unwrap();
    let unsampled = |process| {
        let mut usage: GpuUsage = postcard::from_bytes(&bytes).unwrap();
        usage.ended(&process);
        usage.unsampled.combined
    };
    assert_eq!(unsampled(process(2, 20, S, None)), 0, "it ran at the last reading, which lists it");
    assert_eq!(unsampled(process(2, 20, S, Some(2_500_000_000))), 0, "a list had it");
    assert_eq!(unsampled(process(3, 30, S, None)), 0, "it ran at the last reading");
    assert_eq!(unsampled(process(3, 30, 4 * S, None)), 1, "it began after that");
}

// Requirement: GPU-22
#[test]
fn figure_that_could_not_be_read_for_a_while_has_a_gap() {
    let mut bench = Bench::new(&[gpu("a")]);
    let failed = || DeviceSample { processes: Some(Err(Missing::Failed("why".into()))), ..sample("a") };
    bench.at(2, vec![memory("a", vec![listed(10, 500)])]);
    bench.at(3, vec![failed()]);
    bench.at(4, vec![value("a", Figure::MemoryUsed, Ok(900.0))]);
    bench.at(5, vec![failed()]);
    bench.at(6, vec![memory("a", vec![listed(10, 100)])]);
    let device = &bench.usage.devices[0];
    let gap = &device.figures.gaps[&Figure::ProcessMemory];
    assert_eq!(
        (device.gap_ns(gap), &gap.reason, gap.used_bytes),
        (3 * S, &Missing::Failed("why".into()), Some(900))
    );
    assert!(device.figures.missing.is_empty());
}

// Requirement: GPU-21
#[test]
fn readings_of_single_figures_leave_the_others_as_they_were() {
    let mut bench = Bench::new(&[gpu("a"), gpu("b")]);
    bench.at(2, vec![memory("a", vec![listed(10, 500)]), memory("b", vec![listed(10, 100)])]);
    bench.at(3, vec![value("a", Figure::Power, Ok(5.0))]);
    bench.at(4, vec![memory("b", vec![listed(10, 300)])]);
    bench.at(5, vec![memory("a", vec![listed(10, 500)])]);
    assert_eq!(bench.max(), (800, 0, 800));
    let lists = &bench.usage.devices[1].lists.read;
    assert_eq!((lists.count, lists.mean_ns(), lists.longest_ns), (2, Some(2e9), 2 * S));
}

#[test]
fn memory_in_use_of_the_machine_is_unknown_as_long_as_that_of_one_device_is() {
    let mut bench = Bench::new(&[gpu("a"), gpu("b")]);
    let used = |device: &str, bytes: Reading<f64>| value(device, Figure::MemoryUsed, bytes);
    for (s, of_b, expected) in
        [(1, None, None), (2, Some(Err(Missing::NotReported)), None), (3, Some(Ok(200.0)), Some(900))]
    {
        let of_b = of_b.map(|bytes| used("b", bytes));
        bench.at(s, [used("a", Ok(700.0))].into_iter().chain(of_b).collect());
        assert_eq!(bench.usage.now(s * S).used_bytes, expected, "{s}");
    }
}

#[test]
fn usage_survives_serialization() {
    let mut bench = Bench::new(&[gpu("a")]);
    bench.at(2, vec![memory("a", vec![listed(10, 500)]), value("a", Figure::Energy, Ok(5.0))]);
    let text = serde_json::to_string(&bench.usage).unwrap();
    // As the state file has it.
    let bytes = postcard::to_stdvec(&bench.usage).unwrap();
    let back: GpuUsage = postcard::from_bytes(&bytes).unwrap();
    assert_eq!(serde_json::to_string(&back).unwrap(), text);
}

#[test]
fn sample_has_the_largest_that_was_read_of_a_device_within_its_time() {
    let mut bench = Bench::new(&[gpu("a")]);
    bench.usage.interval_ns = S;
    let busy = DeviceSample {
        busy: Some(Ok([90.0, 20.0].map(|percent| Busy { us: 100, percent }).to_vec())),
        ..sample("a")
    };
    bench.at(2, vec![busy, value("a", Figure::Power, Ok(300.0)), memory("a", vec![listed(10, 500)])]);
    bench.at(3, vec![value("a", Figure::Power, Ok(70.0)), value("a", Figure::MemoryUsed, Ok(900.0))]);
    let now = |bench: &Bench, at_s| bench.usage.now(at_s * S).devices[0].clone();
    let first = now(&bench, 3);
    assert_eq!((first.busy_percent, first.gauges[&Figure::Power]), (Some(90.0), 300.0));
    assert!(first.is_new);
    assert_eq!((first.used_bytes, first.run_bytes.map(|bytes| bytes.combined)), (Some(900), Some(500)));
    bench.usage.begin_sample();
    let next = now(&bench, 4);
    assert_eq!(
        (next.busy_percent, next.gauges[&Figure::Power]),
        (Some(20.0), 70.0),
        "the last, while it is new"
    );
    assert!(!next.is_new);
    let later = now(&bench, 5);
    assert_eq!((later.busy_percent, later.run_bytes, later.used_bytes), (None, None, Some(900)));
    assert!(later.read_ns == 3 * S && now(&bench, 6).gauges.is_empty());
}

// Requirement: TIME-6
#[test]
fn memory_of_a_process_now_is_unknown_where_a_driver_does_not_tell_it() {
    let mut bench = Bench::new(&[gpu("a"), gpu("b")]);
    let now = |bench: &Bench, at_s: u64| {
        let is_known = bench.usage.knows_process_memory(at_s * S);
        [1, 2].map(|id| is_known.then(|| bench.usage.processes.held_bytes(id)).flatten())
    };
    assert_eq!(now(&bench, 2), [None, None], "no list was read");
    bench.at(2, vec![memory("a", vec![listed(10, 500)]), memory("b", vec![listed(10, 50)])]);
    assert_eq!(now(&bench, 2), [Some(550), Some(0)]);
    assert_eq!(now(&bench, 60), [None, None], "the lists are old");
    let silent = ProcessMemory { work: Work::Compute, pid: 10, bytes: Err(Missing::NotReported) };
    bench.at(3, vec![memory("a", vec![silent]), memory("b", vec![listed(10, 50)])]);
    assert_eq!(now(&bench, 3), [None, Some(0)]);
    let sums = |bench: &Bench, at_s: u64| {
        let now = bench.usage.now(at_s * S);
        let of_devices = now.devices.iter().map(|device| device.run_bytes.map(|bytes| bytes.combined));
        (of_devices.collect::<Vec<_>>(), now.run_bytes.is_some())
    };
    assert_eq!(sums(&bench, 3), (vec![None, Some(50)], false));
    bench.at(4, vec![memory("a", vec![]), memory("b", vec![listed(10, 50)])]);
    assert_eq!(now(&bench, 4), [Some(50), Some(0)], "it freed what it had there");
    assert_eq!(sums(&bench, 4), (vec![Some(500), Some(50)], true), "the largest of the open sample");
    bench.at(5, vec![memory("a", vec![]), DeviceSample::lost("b")]);
    assert_eq!(now(&bench, 5), [Some(0), Some(0)], "a lost device holds nothing");
}
