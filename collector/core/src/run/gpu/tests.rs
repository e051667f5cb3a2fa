//! The state from made-up observations: no driver, no /proc.

use std::collections::BTreeMap;

use gpu_track_abi::rank::Rank;
use gpu_track_abi::record::{Event, FLAG_GPU_LIBRARY, FLAG_IMAGE, NAME_BYTES, Origin, Usage};
use gpu_track_abi::task::TaskKeys;

use super::*;
use crate::model::gpu::{
    BackendsAtEnd, Batch, Busy, Device, DeviceList, DeviceSample, Figure, Missing, PidFacts, ProcessMemory,
    TrackedDevice, Work,
};
use crate::run::tree::{ChildSeen, Key, ProcessId, RunContext};
use pid_table::tests::process;

const S: u64 = 1_000_000_000;

fn observation(at_s: u64, pid: u32, facts: PidFacts) -> GpuObservation {
    let device = Device { id: "GPU-1".into(), ..Device::default() };
    let sample = DeviceSample {
        device: device.id.clone(),
        values: vec![(Figure::Power, Ok(100.5)), (Figure::Energy, Err(Missing::Failed("why".into())))],
        busy: Some(Ok(vec![Busy { us: 1000, percent: 12.5 }])),
        throttle: Some(Ok(vec!["idle".into()])),
        processes: Some(Ok(vec![ProcessMemory { pid, bytes: Ok(700), work: Work::Compute }])),
        ..DeviceSample::default()
    };
    let tracked = vec![TrackedDevice { device, is_visible: Some(true) }];
    let devices =
        (at_s == 2).then(|| DeviceList { tracked, machine: vec!["GPU-1".into()], is_order_unsure: false });
    GpuObservation {
        at_ns: at_s * S,
        is_active: true,
        batches: vec![Batch { at_ns: at_s * S, devices, samples: vec![sample] }],
        pids: BTreeMap::from([(pid, facts)]),
        ..GpuObservation::default()
    }
}

fn state() -> GpuState {
    let mut state = GpuState { is_active: true, ..GpuState::default() };
    state.table.put(process(1, 10, S, None));
    state
}

#[test]
fn observed_thread_id_counts_for_its_process() {
    let mut state = state();
    let facts = PidFacts { thread_group_leader: Some(10), ..PidFacts::default() };
    state.apply(&observation(2, 11, facts));
    assert_eq!(state.usage.max.memory.unwrap().main, 700);
    assert_eq!(state.pids().threads, BTreeMap::from([(11, 10)]));
    // The thread ended; /proc says nothing more.
    state.apply(&observation(3, 11, PidFacts::default()));
    assert_eq!(state.usage.processes.by_id[&1].peak_bytes, Some(700));
}

#[test]
fn time_without_a_collector_is_in_no_mean() {
    let watts = |at_s: u64, watts: f64| {
        let values = vec![(Figure::Power, Ok(watts))];
        let mut read = observation(at_s, 10, PidFacts::default());
        read.batches[0].samples = vec![DeviceSample { values, ..DeviceSample::of_device("GPU-1") }];
        read
    };
    let mut state = state();
    for (at_s, power) in [(2, 100.0), (3, 100.0), (8, 500.0), (9, 500.0)] {
        if at_s == 8 {
            state.begin(true);
        }
        state.apply(&watts(at_s, power));
    }
    let power = &state.usage.devices[0].gauges[&Figure::Power];
    assert_eq!((power.integrated(), power.span_s()), (Some(600.0), Some(2.0)));
}

#[test]
fn figures_are_unknown_until_a_driver_has_told_its_devices() {
    let mut state = state();
    assert!(state.now(S).are_devices_sought);
    state.apply(&observation(2, 10, PidFacts::default()));
    assert!(!state.now(2 * S).are_devices_sought);
    assert!(!GpuState::default().now(S).are_devices_sought, "there is no driver");
    let none = DeviceList { tracked: vec![], machine: vec![], is_order_unsure: false };
    let batches = vec![Batch { devices: Some(none), ..Batch::default() }];
    let mut without = GpuState { is_active: true, ..GpuState::default() };
    without.apply(&GpuObservation { is_active: true, batches, ..GpuObservation::default() });
    assert!(!without.now(S).are_devices_sought, "the driver has none");
}

// Requirement: GPU-32
#[test]
fn descendant_that_lived_between_two_observations_is_known_of() {
    let mut state = state();
    state.apply(&observation(2, 10, PidFacts::default()));
    assert!(!state.usage.has_descendants);
    state.table.put_ended(process(2, 20, 3 * S, Some(4 * S)));
    state.apply(&observation(12, 10, PidFacts::default()));
    assert!(state.usage.has_descendants);
    assert!(state.table.entries.values().all(|process| process.is_main), "it is forgotten by now");
}

#[test]
fn observations_survive_serialization_and_replay_equally() {
    let facts = PidFacts { has_gpu_open: Some(true), has_memory: Some(true), ..PidFacts::default() };
    let mut last = observation(4, 10, facts);
    last.unresponsive.push(("NVIDIA".into(), 3 * S));
    last.end = Some(BackendsAtEnd {
        failed: vec![("AMD and Intel".into(), Missing::NotInitialized)],
        unreadable: vec![Missing::Lost],
        unknown_names: vec![],
        notes: vec!["note".into()],
    });
    let observations = [observation(2, 10, facts), observation(3, 99, PidFacts::default()), last];
    let bytes = postcard::to_stdvec(&observations).unwrap();
    let read: [GpuObservation; 3] = postcard::from_bytes(&bytes).unwrap();
    assert_eq!(read, observations);
    let [mut direct, mut replayed] = [state(), state()];
    observations.iter().for_each(|observation| direct.apply(observation));
    read.iter().for_each(|observation| replayed.apply(observation));
    let text = |state: &GpuState| serde_json::to_string(state).unwrap();
    assert_eq!(text(&replayed), text(&direct));
    assert_eq!(direct.usage.backends.failed.len(), 1);
}

const MS: u64 = 1_000_000;
/// The pids of the launcher, the command, and a child of it; and their pid namespace.
const LAUNCHER: u32 = 5;
const MAIN: u32 = 10;
const CHILD: u32 = 20;
const HERE: u32 = 1;

/// A run whose command started at 1 s.
fn tree() -> Tree {
    let mut tree = Tree::new(RunContext::of_test(LAUNCHER, HERE, S));
    tree.set_main(MAIN, S, "sh");
    tree
}

/// Applies a record of a process at `at_ns`.
fn record(tree: &mut Tree, pid: u32, parent: u32, at_ns: u64, event: &Event) {
    let flags = if matches!(event, Event::Exit { .. }) { FLAG_IMAGE | FLAG_GPU_LIBRARY } else { 0 };
    tree.apply(&Origin { pid, pid_ns: HERE, parent, monotonic_ns: at_ns, flags }, event, at_ns);
}

/// The child's START, and its EXIT with a GPU's library.
fn records_of_child(tree: &mut Tree, start_ns: u64, end_ns: u64) {
    let (names, rank) = ([0; NAME_BYTES], Rank::default());
    let start = Event::Start {
        realtime_ns: start_ns,
        pidfd_inode: 0,
        max_rss_kib: 1,
        names,
        rank,
        task: TaskKeys::NONE,
    };
    record(tree, CHILD, MAIN, start_ns, &start);
    let (own, children) = (Usage::default(), Usage::default());
    record(tree, CHILD, MAIN, end_ns, &Event::Exit { status: 0, vm_hwm_kib: 0, own, children });
}

/// The unsampled processes of a run that ends with this tree. The device's lists were read at `read_ns`.
fn unsampled(tree: &mut Tree, read_ns: u64, is_seen_alive: impl FnOnce(&mut GpuState, &Tree)) -> u64 {
    let mut state = GpuState { is_active: true, ..GpuState::default() };
    is_seen_alive(&mut state, tree);
    let mut reading = observation(2, 99, PidFacts::default());
    reading.batches[0].at_ns = read_ns;
    state.apply(&reading);
    tree.take_summaries().iter().for_each(|process| _ = state.finalized(process));
    state.finish(tree);
    state.usage.unsampled.descendants
}

/// /proc rounds starts down to a clock tick.
// Requirement: GPU-36
#[test]
fn reading_before_the_latest_start_of_a_process_has_not_seen_it() {
    let of_reading_at = |read_ms: u64| {
        let mut tree = tree();
        let (key, main) = (Key { pid_ns: HERE, pid: CHILD }, tree.alive()[0]);
        // A scan has found it before its START came.
        let seen = ChildSeen::of_test(key, main, S + 10 * MS);
        tree.found_in_proc(&ChildSeen { earliest_start_ns: S, ..seen });
        records_of_child(&mut tree, S + 11 * MS, S + 71 * MS);
        let usage = Usage::default();
        let reaped = Event::Reaped { child: CHILD, status: 0, reaper_max_rss_kib: 1, usage, clock_ns: 0 };
        record(&mut tree, MAIN, LAUNCHER, S + 72 * MS, &reaped);
        tree.finalize(S + 73 * MS, S + 73 * MS);
        unsampled(&mut tree, S + read_ms * MS, |_, _| ())
    };
    assert_eq!([1, 6, 9, 20, 70, 80].map(of_reading_at), [1, 1, 1, 0, 0, 1]);
}

/// Its reaper writes no REAPED record, so it is finalized after the end of GPU readings.
// Requirement: GPU-36
#[test]
fn process_that_ended_and_is_not_finalized_at_the_end_can_have_been_missed() {
    for is_seen_alive in [false, true] {
        let mut tree = tree();
        records_of_child(&mut tree, S + 10 * MS, S + 70 * MS);
        assert!(tree.get(ProcessId(1)).is_some_and(|process| !process.is_alive()));
        let remember = |state: &mut GpuState, _: &Tree| {
            if is_seen_alive {
                let entry = process(1, CHILD, S + 10 * MS, None);
                state.table.put(PidEntry { is_main: false, ..entry });
            }
        };
        assert_eq!(unsampled(&mut tree, S, remember), 1, "{is_seen_alive}");
    }
}
