//! The tracks of a trace: what is drawn where.
//!
//! ```text
//! make -j4                        the run; its end is an event here
//!   RAM, RAM of main, ... CPU     counters of the tree and of the machine, and how the time was spent
//!   GPU 0 NAME                    its counters
//!   Tasks
//!     snakemake sort              a track for each task, those within it below it
//!   Processes
//!     cc1                         tracks of processes; those of one name are drawn as one
//! ```
//!
//! No track is declared as one of a process or a thread. Perfetto ignores the parents of such tracks, and takes pids for unique.

use std::hash::{Hash, Hasher};

use rustc_hash::FxHasher;

use super::messages::{CHRONOLOGICAL, CounterDescriptor, EXPLICIT, SIZE_BYTES, TrackDescriptor};
use crate::model::ended_task::EndedTask;
use crate::model::gpu::Device;
use crate::model::gpu::gpu_figure::{GpuFigure, Row};
use crate::model::groups::Groups;
use crate::model::time_groups::TimeGroup;
use crate::model::tree_sample::{GpuSample, TreeSample};
use crate::report::quote::escape;

/// The track of the run.
pub(super) const RUN: u64 = 1;
/// The track of all processes.
pub(super) const PROCESSES: u64 = 2;
/// The track of all tasks of a pipeline.
const TASKS: u64 = 3;
/// The track of the first counter of the tree. The other counters have the numbers after it.
const FIRST_COUNTER: u64 = 16;
/// The highest bit of computed numbers of tracks; no other number of a track has it. With it they have 56 bits, the most that a varint
/// has in 8 bytes.
const COMPUTED: u64 = 1 << 55;
/// A bit of the numbers of tasks' tracks; no number without [`COMPUTED`] has it, since a file has far fewer sequences.
const TASK: u64 = 1 << 54;
/// Maximum number of characters of a track's name.
const LONGEST_NAME: usize = 80;

/// A quantity over time.
pub(super) struct Counter<S: 'static> {
    name: &'static str,
    /// `None`: bytes.
    unit: Option<&'static str>,
    /// The value that the counter has in an `S`. `None`: it is not known.
    pub value: fn(&S) -> Option<f64>,
}

/// Counters of RAM.
const RAM: [Counter<TreeSample>; 3] = [
    bytes("RAM", |sample| Some(sample.footprint_bytes.combined.max as f64)),
    bytes("RAM of main", |sample| Some(sample.footprint_bytes.main.max as f64)),
    bytes("RAM of descendants", |sample| Some(sample.footprint_bytes.descendants.max as f64)),
];

/// Counters of the largest RAM so far. It may have been in use between samples.
const LARGEST_RAM: [Counter<TreeSample>; 3] = [
    bytes("Largest RAM so far", |sample| Some(sample.max_ram.combined.bytes as f64)),
    bytes("Largest RAM of main so far", |sample| Some(sample.max_ram.main.bytes as f64)),
    bytes("Largest RAM of descendants so far", |sample| Some(sample.max_ram.descendants.bytes as f64)),
];

/// The other counters of the tree and the machine. CPU is utilisation in windows of time. A row in which no window ends has no
/// value of it.
const OTHERS: [Counter<TreeSample>; 6] = [
    other("CPU", "%", |sample| sample.cpu_window_percent.combined),
    other("CPU of main", "%", |sample| sample.cpu_window_percent.main),
    other("CPU of descendants", "%", |sample| sample.cpu_window_percent.descendants),
    other("Live processes", "processes", |sample| Some(sample.processes.max as f64)),
    bytes("RAM in use on the machine", |sample| sample.system.ram_bytes.map(|bytes| bytes as f64)),
    other("CPU of the machine", "%", |sample| sample.system.cpu_percent),
];

/// Counters of how the time was spent, percent of what is known of it.
const TIME: [Counter<TreeSample>; TimeGroup::ALL.len()] = [
    other("Time: computing", "%", |sample| time_percent(sample, TimeGroup::Computing)),
    other("Time: waiting for a core", "%", |sample| time_percent(sample, TimeGroup::WaitingForCore)),
    other("Time: storage", "%", |sample| time_percent(sample, TimeGroup::Storage)),
    other("Time: network", "%", |sample| time_percent(sample, TimeGroup::Network)),
    other("Time: locks", "%", |sample| time_percent(sample, TimeGroup::Locks)),
    other("Time: other waits", "%", |sample| time_percent(sample, TimeGroup::Other)),
];

/// The part of a sample's time that the run spent so, percent. `None`: the threads were not read.
fn time_percent(sample: &TreeSample, group: TimeGroup) -> Option<f64> {
    Some(sample.time_ns?.shares()?.of(group) * 100.0)
}

/// The counter of a figure of a GPU.
const fn of_gpu(figure: GpuFigure) -> Counter<GpuSample> {
    let Row { title, unit, value, .. } = figure.row();
    Counter { name: title, unit, value }
}

/// Makes a counter of bytes.
const fn bytes<S>(name: &'static str, value: fn(&S) -> Option<f64>) -> Counter<S> {
    Counter { name, unit: None, value }
}

/// Makes a counter of this unit.
const fn other<S>(name: &'static str, unit: &'static str, value: fn(&S) -> Option<f64>) -> Counter<S> {
    Counter { name, unit: Some(unit), value }
}

/// A value of a counter, and its track.
pub(super) struct Value {
    pub track: TrackDescriptor,
    pub value: f64,
}

/// The counters of the tree from the top, each with the number of its track.
fn tree_counters() -> impl Iterator<Item = (u64, &'static Counter<TreeSample>)> {
    (FIRST_COUNTER..).zip(RAM.iter().chain(&LARGEST_RAM).chain(&OTHERS).chain(&TIME))
}

/// The track of a counter of the tree, a child of the run's track. Tracks are shown in the order of their numbers.
fn tree_track(uuid: u64, counter: &Counter<TreeSample>) -> TrackDescriptor {
    counter.track(uuid, RUN, (uuid - FIRST_COUNTER) as i32)
}

/// The known values of all counters in a sample: those of the tree, then those of each GPU.
pub(super) fn values(sample: &TreeSample) -> Vec<Value> {
    let mut values = Vec::new();
    for (uuid, counter) in tree_counters() {
        if let Some(value) = (counter.value)(sample) {
            values.push(Value { track: tree_track(uuid, counter), value });
        }
    }
    for gpu in &sample.gpu.devices {
        let parent = gpu_uuid(&gpu.device);
        for (rank, counter) in (0..).zip(GpuFigure::OVER_TIME.map(of_gpu)) {
            if let Some(value) = (counter.value)(gpu) {
                values.push(Value { track: counter.track(computed((parent, rank)), parent, rank), value });
            }
        }
    }
    values
}

/// These footprints, bytes, as values of the RAM counters.
pub(super) fn ram_values(bytes: Groups<u64>) -> Vec<Value> {
    groups_values(0, bytes.map(Some))
}

/// These sizes, bytes, as values of the counters of the largest RAM so far. Unknown ones are left out.
pub(super) fn largest_ram_values(bytes: Groups<Option<u64>>) -> Vec<Value> {
    groups_values(RAM.len(), bytes)
}

/// Makes values of `bytes` for three counters of the tree, which are in the order of [`RAM`]: combined, main, descendants.
/// `first`: how many counters of the tree come before them. Unknown values are left out.
fn groups_values(first: usize, bytes: Groups<Option<u64>>) -> Vec<Value> {
    let Groups { main, descendants, combined } = bytes;
    let mut values = Vec::new();
    for ((uuid, counter), bytes) in tree_counters().skip(first).zip([combined, main, descendants]) {
        if let Some(bytes) = bytes {
            values.push(Value { track: tree_track(uuid, counter), value: bytes as f64 });
        }
    }
    values
}

/// The field of `footprints` that the counter on this track shows. `None`: the counter shows something else.
pub(super) fn footprint_of(track_uuid: u64, footprints: &mut Groups<u64>) -> Option<&mut u64> {
    // The counters of RAM are the first ones, in the order of [`RAM`].
    match track_uuid.checked_sub(FIRST_COUNTER)? {
        0 => Some(&mut footprints.combined),
        1 => Some(&mut footprints.main),
        2 => Some(&mut footprints.descendants),
        _ => None,
    }
}

impl<S> Counter<S> {
    /// Makes the track `uuid` of the counter, the child `rank` (from 0) of the track `parent`.
    fn track(&self, uuid: u64, parent: u64, rank: i32) -> TrackDescriptor {
        let unit = if self.unit.is_none() { Some(SIZE_BYTES) } else { None };
        let counter = CounterDescriptor { unit, unit_name: self.unit.map(str::to_owned) };
        TrackDescriptor { counter: Some(counter), ..track(uuid, self.name, parent, rank) }
    }
}

/// Makes the track `uuid` of this name, the child `rank` (from 0) of the track `parent`.
fn track(uuid: u64, name: &str, parent: u64, rank: i32) -> TrackDescriptor {
    TrackDescriptor {
        uuid: Some(uuid),
        name: Some(self::name(name)),
        parent_uuid: Some(parent),
        sibling_order_rank: Some(rank),
        ..TrackDescriptor::default()
    }
}

/// The tracks that each sequence declares first: that of the run of this command, and that of its processes.
pub(super) fn first_tracks(command: &[String]) -> [TrackDescriptor; 2] {
    let (no_parent, rank) = (0, 0);
    let run = track(RUN, &command.join(" "), no_parent, rank);
    // Below all counters and GPUs.
    let processes = track(PROCESSES, "Processes", RUN, i32::MAX);
    [
        TrackDescriptor { parent_uuid: None, child_ordering: Some(EXPLICIT), ..run },
        TrackDescriptor { child_ordering: Some(CHRONOLOGICAL), ..processes },
    ]
}

/// The track of a GPU, the parent of its counters. It is drawn below the counters of the tree. `rank`: how many GPUs
/// come before it.
pub(super) fn gpu_track(device: &Device, rank: i32) -> TrackDescriptor {
    let number = device.index.map(|index| format!(" {index}")).unwrap_or_default();
    let name = format!("GPU{number} {} ({})", device.name.as_deref().unwrap_or(""), device.id);
    let rank = tree_counters().count() as i32 + rank;
    TrackDescriptor { child_ordering: Some(EXPLICIT), ..track(gpu_uuid(device), &name, RUN, rank) }
}

/// The number of a GPU's track.
fn gpu_uuid(device: &Device) -> u64 {
    computed(&device.id)
}

/// The number of the track for a [lane](super::lanes) of a sequence. Each sequence has tracks of its own, because it does not know
/// where the slices on another sequence's tracks end.
pub(super) fn lane_uuid(sequence: u32, lane: u64) -> u64 {
    (u64::from(sequence) << 32).saturating_add(lane)
}

/// A track of processes of this command name. It has no rank, because such tracks are shown in the order of their first
/// events.
pub(super) fn lane(uuid: u64, command: &str) -> TrackDescriptor {
    let any_rank = 0;
    TrackDescriptor { sibling_order_rank: None, ..track(uuid, command, PROCESSES, any_rank) }
}

/// The tracks of a task and of those around it, outermost first. The first one is the parent of all tasks. As tracks of processes,
/// those of tasks have no rank.
pub(super) fn task_tracks(task: &EndedTask) -> Vec<TrackDescriptor> {
    let all = track(TASKS, "Tasks", RUN, i32::MAX - 1);
    let mut tracks = vec![TrackDescriptor { child_ordering: Some(CHRONOLOGICAL), ..all }];
    let around = task.around.iter().rev().map(|around| (around.id, around.title.clone()));
    let mut parent = TASKS;
    for (id, title) in around.chain([(task.usage.id, task.usage.title())]) {
        let uuid = task_uuid(id);
        let any_rank = 0;
        tracks.push(TrackDescriptor {
            sibling_order_rank: None,
            child_ordering: Some(CHRONOLOGICAL),
            ..track(uuid, &title, parent, any_rank)
        });
        parent = uuid;
    }
    tracks
}

/// The number of a task's track. It is the same for each collector, since slices of a task never overlap.
pub(super) fn task_uuid(id: u32) -> u64 {
    TASK | u64::from(id)
}

/// Computes the number of a track from a key: a GPU's id, or the GPU's track and the rank of a counter in it. So no table of numbers
/// is kept, and a collector that goes on with the file computes the same ones. The number is 55 bits of the key's hash and the bit
/// [`COMPUTED`], which sets it apart from the numbers of other tracks.
fn computed(key: impl Hash) -> u64 {
    let mut hasher = FxHasher::default();
    key.hash(&mut hasher);
    // Only a part of the hash is kept, and FxHasher does not mix all bits into each part. The finalizer of MurmurHash3 does.
    let mut number = hasher.finish();
    number = (number ^ (number >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    number = (number ^ (number >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    (number ^ (number >> 33)) & (COMPUTED - 1) | COMPUTED
}

/// A name as it is shown: hidden characters are escaped, and it has at most [`LONGEST_NAME`] characters.
pub(super) fn name(name: &str) -> String {
    let shown = escape(name);
    if shown.chars().count() <= LONGEST_NAME {
        return shown;
    }
    shown.chars().take(LONGEST_NAME - 1).chain(['…']).collect()
}
