//! The state from made-up observations: no driver, no /proc.

use std::collections::BTreeMap;

use super::*;
use crate::model::gpu::{
    BackendsAtEnd, Batch, Busy, Device, DeviceList, DeviceSample, Figure, Missing, PidFacts, ProcessMemory,
    TrackedDevice,
};
use pid_table::tests::process;

const S: u64 = 1_000_000_000;

fn observation(at_s: u64, pid: u32, facts: PidFacts) -> GpuObservation {
    let device = Device { id: "GPU-1".into(), ..Device::default() };
    let sample = DeviceSample {
        device: device.id.clone(),
        values: vec![(Figure::Power, Ok(100.5)), (Figure::Energy, Err(Missing::Failed("why".into())))],
        busy: Some(Ok(vec![Busy { us: 1000, percent: 12.5 }])),
        throttle: Some(Ok(vec!["idle".into()])),
        processes: Some(Ok(vec![ProcessMemory { pid, bytes: Ok(700) }])),
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
