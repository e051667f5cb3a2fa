//! Usage from made-up samples.

use super::*;
use crate::model::gpu::{Busy, Reading, Vendor};
use crate::run::gpu::pid_table::tests::person;

const S: u64 = 1_000_000_000;

/// Samples of made-up devices, and a roster to read them by.
struct Bench {
    usage: GpuUsage,
    roster: Roster,
    config: GpuConfig,
    is_foreign: bool,
}

fn gpu(id: &str) -> Device {
    Device { id: id.into(), vendor: Some(Vendor::Nvidia), memory_bytes: Some(80 << 30), ..Device::default() }
}

fn listed(pid: u32, bytes: u64) -> ProcessMemory {
    ProcessMemory { pid, bytes: Ok(bytes) }
}

fn sample(device: &str) -> DeviceSample {
    DeviceSample { device: device.into(), ..DeviceSample::default() }
}

fn memory(device: &str, list: Vec<ProcessMemory>) -> DeviceSample {
    DeviceSample { processes: Some(Ok(list)), ..sample(device) }
}

fn value(device: &str, figure: Figure, value: Reading<f64>) -> DeviceSample {
    DeviceSample { values: vec![(figure, value)], ..sample(device) }
}

impl Bench {
    fn new(devices: &[Device]) -> Self {
        let mut bench = Self {
            usage: GpuUsage::default(),
            roster: Roster::default(),
            config: GpuConfig::default(),
            is_foreign: false,
        };
        let devices = devices.to_vec();
        bench.batch(Batch { devices: Some(devices.clone()), all: Some(devices), ..Batch::default() });
        // Main, pid 10; a descendant, pid 20.
        bench.roster.put(person(1, 10, S, None));
        bench.roster.put(person(2, 20, S, None));
        bench
    }

    fn batch(&mut self, batch: Batch) {
        let is_foreign = self.is_foreign;
        let whose = Whose { roster: &self.roster, is_taken: &|_| false, is_foreign: &|_| is_foreign };
        self.usage.add(&self.config, &batch, whose);
    }

    fn at(&mut self, s: u64, samples: Vec<DeviceSample>) {
        self.batch(Batch { at_ns: s * S, samples, ..Batch::default() });
    }

    fn max(&self) -> (u64, u64, u64) {
        let max = self.usage.max.unwrap();
        (max.main, max.descendants, max.combined)
    }
}

#[test]
fn combined_is_the_maximum_of_a_sum_over_devices_and_time() {
    let mut bench = Bench::new(&[gpu("a"), gpu("b")]);
    bench.at(2, vec![memory("a", vec![listed(10, 500), listed(20, 100)]), memory("b", vec![listed(10, 50)])]);
    bench.at(3, vec![memory("a", vec![listed(10, 100), listed(20, 400)]), memory("b", vec![])]);
    assert_eq!(bench.max(), (550, 400, 650));
    assert_eq!(bench.usage.processes[&1].peak_bytes, Some(550));
    assert_eq!(bench.usage.processes[&2].peak_bytes, Some(400));
    assert_eq!(bench.usage.devices[0].max.combined, 600);
    assert_eq!(bench.usage.processes[&1].devices["b"].peak_bytes, Some(50));
}

#[test]
fn two_backends_add_up_although_they_read_at_different_times() {
    let mut bench = Bench::new(&[gpu("a"), gpu("b")]);
    bench.at(2, vec![memory("a", vec![listed(10, 500)])]);
    bench.at(3, vec![memory("b", vec![listed(10, 300)])]);
    assert_eq!(bench.max(), (800, 0, 800));
}

#[test]
fn who_is_not_of_the_run_does_not_count() {
    let mut bench = Bench::new(&[gpu("a")]);
    bench.at(2, vec![memory("a", vec![listed(10, 5), listed(77, 1000)])]);
    assert_eq!(bench.max(), (5, 0, 5));
    assert_eq!(bench.usage.processes.len(), 1);
}

#[test]
fn an_entry_that_was_there_before_the_process_is_another_s() {
    let mut bench = Bench::new(&[gpu("a")]);
    bench.at(2, vec![memory("a", vec![listed(30, 700)])]);
    // The pid is used again, and the driver still lists what died.
    bench.roster.put(person(3, 30, 3 * S, None));
    bench.at(4, vec![memory("a", vec![listed(30, 700)])]);
    assert_eq!(bench.max(), (0, 0, 0));
    assert!(!bench.usage.devices[0].is_used);
    // Now it is the new one that allocates.
    bench.at(5, vec![memory("a", vec![listed(30, 300)])]);
    assert_eq!(bench.max(), (0, 300, 300));
}

#[test]
fn memory_that_is_not_told_is_unknown_and_not_zero() {
    let mut bench = Bench::new(&[gpu("a")]);
    bench.at(2, vec![memory("a", vec![ProcessMemory { pid: 20, bytes: Err(Missing::NotTold) }])]);
    assert_eq!(bench.usage.untold, [false, true]);
    assert_eq!(bench.usage.processes[&2].peak_bytes, None);
    bench.at(3, vec![memory("a", vec![])]);
    assert!(bench.usage.devices[0].has_untold, "also when it is gone");
}

#[test]
fn pids_of_another_namespace_make_the_memory_by_process_unknown() {
    let mut bench = Bench::new(&[gpu("a")]);
    bench.is_foreign = true;
    bench.at(2, vec![memory("a", vec![listed(90_000, 1000)])]);
    assert_eq!(bench.usage.max, None);
    assert_eq!(bench.usage.devices[0].missing[&Figure::ProcessMemory], Missing::ForeignPids);
}

#[test]
fn a_lost_device_keeps_what_it_told_and_the_others_go_on() {
    let mut bench = Bench::new(&[gpu("a"), gpu("b")]);
    bench.at(2, vec![memory("a", vec![listed(10, 500)]), memory("b", vec![listed(10, 100)])]);
    bench.at(3, vec![DeviceSample { is_lost: true, ..sample("a") }, memory("b", vec![listed(10, 700)])]);
    bench.at(4, vec![DeviceSample { is_lost: true, ..sample("a") }, memory("b", vec![listed(10, 700)])]);
    assert_eq!(bench.max(), (700, 0, 700));
    assert_eq!(bench.usage.devices[0].lost_at_ns, Some(3 * S));
    assert_eq!(bench.usage.devices[0].max.main, 500);
}

#[test]
fn parts_of_a_device_count_their_memory_in_the_whole() {
    let part = Device { parent: Some("a".into()), ..gpu("m") };
    let mut bench = Bench::new(&[gpu("a"), part]);
    bench.at(2, vec![value("a", Figure::MemoryUsed, Ok(900.0)), value("m", Figure::MemoryUsed, Ok(300.0))]);
    assert_eq!(bench.usage.max_used, Some(900));
    assert_eq!(bench.usage.machine.len(), 1);
    assert!(bench.usage.devices[1].is_part);
}

#[test]
fn a_lost_device_can_come_back() {
    let mut bench = Bench::new(&[gpu("A")]);
    let lost = || DeviceSample { is_lost: true, ..sample("A") };
    bench.at(2, vec![lost()]);
    assert!(!bench.usage.devices[0].is_back);
    bench.at(3, vec![memory("A", vec![listed(10, 100)])]);
    assert!(bench.usage.devices[0].is_back);
    assert_eq!(bench.usage.devices[0].lost_at_ns, Some(2 * S));
    bench.at(4, vec![lost()]);
    assert!(!bench.usage.devices[0].is_back);
}

#[test]
fn a_reason_goes_when_the_value_comes() {
    let mut bench = Bench::new(&[gpu("a")]);
    bench.at(2, vec![value("a", Figure::Power, Err(Missing::NoPermission))]);
    assert_eq!(bench.usage.devices[0].missing[&Figure::Power], Missing::NoPermission);
    bench.at(3, vec![value("a", Figure::Power, Ok(100.0))]);
    assert!(bench.usage.devices[0].missing.is_empty() && bench.usage.devices[0].knows(Figure::Power));
}

#[test]
fn throttle_reasons_hold_since_the_reading_before() {
    let mut bench = Bench::new(&[gpu("a")]);
    let throttle =
        |reasons: &[&'static str]| DeviceSample { throttle: Some(Ok(reasons.to_vec())), ..sample("a") };
    bench.at(2, vec![throttle(&["idle"])]);
    bench.at(4, vec![throttle(&["software power cap"])]);
    bench.at(7, vec![throttle(&["software power cap", "hardware slowdown"])]);
    let told: Vec<_> = bench.usage.devices[0].throttle_ns.iter().map(|(k, v)| (k.as_str(), *v)).collect();
    assert_eq!(told, [("hardware slowdown", 3 * S), ("idle", 0), ("software power cap", 5 * S)]);
}

#[test]
fn utilisation_is_summed_over_devices_and_by_process() {
    let mut bench = Bench::new(&[gpu("a"), gpu("b")]);
    let busy = |device: &str, percent: f64, of: Vec<(u32, f64)>| DeviceSample {
        busy: Some(Ok(vec![Busy { us: 1_000_000, percent }])),
        process_busy: Some(Ok(of
            .into_iter()
            .map(|(pid, percent)| ProcessBusy { pid, busy: Busy { us: 1_000_000, percent } })
            .collect())),
        ..sample(device)
    };
    bench.at(
        2,
        vec![busy("a", 80.0, vec![(10, 60.0), (20, 20.0), (99, 50.0)]), busy("b", 130.0, vec![(10, 120.0)])],
    );
    bench.at(3, vec![busy("a", 10.0, vec![(20, 90.0)]), busy("b", 0.0, vec![])]);
    assert_eq!(bench.usage.max_busy, Some(180.0));
    assert_eq!(bench.usage.max_process_busy, Some([160.0, 90.0, 180.0]));
    assert_eq!(bench.usage.processes[&2].devices["a"].busy.mean(), Some(55.0));
}

#[test]
fn utilisation_that_is_told_of_no_time_at_all_holds_for_a_moment() {
    let mut bench = Bench::new(&[gpu("a"), gpu("b")]);
    let busy =
        |device: &str| DeviceSample { busy: Some(Ok(vec![Busy { us: 0, percent: 35.0 }])), ..sample(device) };
    bench.at(2, vec![busy("a"), busy("b")]);
    assert_eq!(bench.usage.max_busy, Some(70.0));
}

#[test]
fn utilisation_holds_as_long_as_the_stretch_that_it_was_told_for() {
    let mut bench = Bench::new(&[gpu("a"), gpu("b")]);
    let busy = |device: &str, told: &[f64]| {
        let told = told.iter().map(|percent| Busy { us: 2_000_000, percent: *percent });
        let by_process = told.clone().map(|busy| ProcessBusy { pid: 20, busy }).collect();
        DeviceSample { busy: Some(Ok(told.collect())), process_busy: Some(Ok(by_process)), ..sample(device) }
    };
    bench.at(2, vec![busy("a", &[80.0]), busy("b", &[])]);
    assert_eq!((bench.usage.max_busy, bench.usage.max_process_busy), (Some(80.0), Some([0.0, 80.0, 80.0])));
    bench.at(3, vec![busy("a", &[]), busy("b", &[50.0])]);
    assert_eq!(
        (bench.usage.max_busy, bench.usage.max_process_busy),
        (Some(130.0), Some([0.0, 130.0, 130.0]))
    );
    // The first is over.
    bench.at(4, vec![busy("a", &[]), busy("b", &[90.0])]);
    assert_eq!(bench.usage.max_busy, Some(130.0));
}

#[test]
fn that_nothing_was_told_of_processes_is_no_utilisation_of_0_in_a_moment() {
    let nothing = |list| DeviceSample { process_busy: Some(Ok(vec![])), ..memory("a", list) };
    let mut bench = Bench::new(&[gpu("a")]);
    bench.at(2, vec![nothing(vec![])]);
    assert_eq!(bench.usage.devices[0].process_utilization_gap(), None, "who is not on it does not run there");
    bench.at(3, vec![nothing(vec![listed(10, 500)])]);
    bench.at(4, vec![nothing(vec![listed(10, 500)])]);
    assert_eq!(bench.usage.devices[0].process_utilization_gap(), Some(Missing::NoSample));
    bench.at(5, vec![nothing(vec![listed(10, 500)])]);
    assert_eq!(bench.usage.devices[0].process_utilization_gap(), None, "by now the driver had told");
    // Somebody runs there, and nothing was told of anybody.
    for (at, gap) in [(6, None), (7, None), (8, Some(Missing::NoSample))] {
        let busy = Some(Ok(vec![Busy { us: 1_000_000, percent: 80.0 }]));
        bench.at(at, vec![DeviceSample { busy, ..nothing(vec![listed(10, 500)]) }]);
        assert_eq!(bench.usage.devices[0].process_utilization_gap(), gap);
    }
}

#[test]
fn who_has_no_gpu_open_is_not_whom_the_driver_names() {
    let mut bench = Bench::new(&[gpu("a")]);
    bench.is_foreign = true;
    bench.roster.check(20, |_| Some(false));
    bench.at(2, vec![memory("a", vec![listed(20, 500)])]);
    assert_eq!(bench.usage.devices[0].missing[&Figure::ProcessMemory], Missing::ForeignPids);
    assert!(bench.usage.processes.is_empty());
    // It opens one, and closes it.
    bench.roster.check(20, |_| Some(true));
    bench.at(3, vec![memory("a", vec![listed(20, 500)])]);
    bench.roster.check(20, |_| Some(false));
    bench.at(4, vec![memory("a", vec![listed(20, 700)])]);
    assert_eq!(bench.max(), (0, 700, 700));
}

#[test]
fn an_account_tells_of_a_process_that_no_sample_saw() {
    let mut bench = Bench::new(&[gpu("a")]);
    bench.roster.put(person(3, 30, 5 * S, Some(5 * S + S / 20)));
    let account = |is_running, bytes| Accounted {
        pid: 30,
        started_us: 5_010_000,
        is_running,
        peak_bytes: Some(bytes),
        utilization_percent: Some(12),
    };
    let told = |account| DeviceSample { accounted: Some(Ok(vec![account])), ..memory("a", vec![]) };
    bench.at(6, vec![told(account(true, 0))]);
    assert_eq!(bench.max(), (0, 0, 0), "an account that is not closed is no figure yet");
    bench.at(7, vec![told(account(false, 640))]);
    assert_eq!(bench.max(), (0, 640, 640));
    let on = &bench.usage.processes[&3].devices["a"];
    assert_eq!((on.peak_bytes, on.is_accounted, on.accounted_percent), (Some(640), true, Some(12.0)));
    // The same pid, long before the run.
    bench.at(8, vec![told(Accounted { started_us: 1, ..account(false, 9999) })]);
    assert_eq!(bench.max(), (0, 640, 640));
}

#[test]
fn a_process_between_two_samples_is_counted_as_unseen() {
    let mut bench = Bench::new(&[gpu("a")]);
    bench.at(2, vec![]);
    bench.at(4, vec![]);
    bench.usage.ended(&person(5, 50, S, Some(3 * S)));
    assert_eq!(bench.usage.unsampled, 0);
    bench.usage.ended(&person(6, 60, 2 * S + 1, Some(3 * S)));
    assert_eq!(bench.usage.unsampled, 1);
}

#[test]
fn usage_survives_being_written_down() {
    let mut bench = Bench::new(&[gpu("a")]);
    bench.at(2, vec![memory("a", vec![listed(10, 500)]), value("a", Figure::Energy, Ok(5.0))]);
    let text = serde_json::to_string(&bench.usage).unwrap();
    // As the state file has it.
    let bytes = postcard::to_stdvec(&bench.usage).unwrap();
    let back: GpuUsage = postcard::from_bytes(&bytes).unwrap();
    assert_eq!(serde_json::to_string(&back).unwrap(), text);
}
