//! The run over time, in a bounded number of points on one time axis. Each point keeps the smallest value, the mean and the
//! largest value of its time, so no maximum is lost however long the run is.
//!
//! The points are made of closed samples. What is learnt of their time later raises a maximum, or adds to a mean.

mod axis;
pub(crate) mod commands;
mod late;
mod track;

use serde::{Deserialize, Serialize};

use crate::model::gpu::gpu_figure::{ByGpuFigure, GpuFigure};
use crate::model::groups::Groups;
use crate::model::time_groups::{ByTimeGroup, TimeGroup};
use crate::model::tree_sample::{CommandSample, FileSystemSample, IoSample, Span, TreeSample};
#[cfg(test)]
use axis::MOST_POINTS;
pub(crate) use axis::Stretch;
use axis::{Axis, AxisPosition, PartOfPoint};
use commands::Commands;
pub(in crate::run) use late::{LateUse, late_uses};
pub(crate) use track::{Track, Values};

/// A quantity of the tree's groups (first process, descendants, both) and of the machine. A sample has only the largest reading
/// of the machine within its time. So the machine's mean and smallest value are those of these largest readings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sets {
    /// The tree's.
    pub groups: Groups<Track>,
    /// The machine's.
    pub system: Track,
}

impl Sets {
    fn tracks(&mut self) -> [&mut Track; 4] {
        let Groups { main, descendants, combined } = &mut self.groups;
        [main, descendants, combined, &mut self.system]
    }
}

/// Block I/O of the tree, bytes per second. Extremes are those of the means between two readings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct IoTracks {
    /// Read.
    pub read: Track,
    /// Written.
    pub written: Track,
    /// The last reading that both tracks have taken in. `None`: there was none.
    last: Option<IoSample>,
    /// The reading before that one, or the begin of the axis, CLOCK_MONOTONIC nanoseconds.
    pub before_ns: u64,
}

/// How the time is divided: the part of each group in the time of a point. A sample whose threads were not read has none of any. So the
/// sum of a point's parts is how much of its time is known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct TimeTracks(pub ByTimeGroup<Track>);

impl Default for TimeTracks {
    fn default() -> Self {
        Self(ByTimeGroup::new(|_| Track::zero_mean()))
    }
}

/// A file system over the run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct FileSystemTracks {
    /// The last sample of it.
    pub last: FileSystemSample,
    /// Its free space, bytes.
    pub free_bytes: Track,
}

/// More of the tree in the time of a closed sample than the sample had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Revision {
    /// The sample's key, or a moment within its time, CLOCK_MONOTONIC nanoseconds.
    pub at_ns: u64,
    /// The largest footprints, bytes.
    pub footprint_bytes: Groups<u64>,
    /// Maximum number of processes.
    pub processes: u64,
}

/// The run over time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct OverTime {
    axis: Axis,
    /// Footprints (distinct resident pages), and the machine's memory in use, bytes.
    pub(crate) ram_bytes: Sets,
    /// Utilisation, percent of one core. Extremes are those of the CPU windows, over each of which it is measured; means come from
    /// CPU time.
    pub(crate) cpu_percent: Sets,
    /// How the time is divided.
    pub(crate) time: TimeTracks,
    /// Live processes.
    pub(crate) processes: Track,
    /// Block I/O of the tree.
    pub(crate) io: IoTracks,
    /// The file systems that the run may write to.
    pub(crate) file_systems: Vec<FileSystemTracks>,
    /// The tracked GPUs, in their order. A sample counts with the largest value that was read within its time.
    pub(crate) gpus: Vec<ByGpuFigure<Track>>,
    /// RAM and CPU by command.
    pub(crate) commands: Commands,
    /// CPU time up to the last sample, nanoseconds.
    cpu_ns: Groups<u64>,
    /// How much of the open sample's footprints is of the time before it, byte-seconds. Earlier points have it already.
    late_byte_s: Groups<f64>,
    /// How much of the open sample's CPU time is of the time before it, nanoseconds. Earlier points have it already.
    late_cpu_ns: Groups<f64>,
}

impl OverTime {
    /// Makes the run over time of these samples, which have no commands.
    #[cfg(test)]
    pub(crate) fn of_samples(samples: &[TreeSample]) -> Self {
        let mut over_time = Self::default();
        samples.iter().for_each(|sample| over_time.push(sample, &[]));
        over_time
    }

    /// The points of the time axis, in order of time.
    pub(crate) fn points(&self) -> &[Stretch] {
        &self.axis.points
    }

    /// Adds a closed sample to the last point, or to a new one. Before that, joins points if they are too many. `commands`: all
    /// commands of the sample's time.
    pub(in crate::run) fn push(&mut self, sample: &TreeSample, commands: &[CommandSample]) {
        if let Some(lengths_s) = self.axis.make_room() {
            self.tracks().for_each(|track| track.halve(&lengths_s));
        }
        let at = self.axis.push(Stretch { start_ns: sample.from_ns, end_ns: sample.at_ns });
        self.put_tree(at, sample);
        self.put_time(at, sample);
        self.gpus.resize_with(self.gpus.len().max(sample.gpu.devices.len()), ByGpuFigure::default);
        for (tracks, gpu) in self.gpus.iter_mut().zip(&sample.gpu.devices) {
            for (track, figure) in tracks.iter_mut().zip(GpuFigure::OVER_TIME) {
                track.put(at, (figure.row().value)(gpu).map(Values::single));
            }
        }
        self.put_io(sample);
        self.put_file_systems(at, &sample.file_systems);
        self.commands.put(at, commands);
    }

    /// Spreads the block I/O since the reading before evenly over the time between both, which can be several points.
    fn put_io(&mut self, sample: &TreeSample) {
        let Some(now) = sample.io else { return };
        // The I/O up to the first reading counts from the begin of the axis, since a short run may have one reading only.
        let axis_start_ns = self.points().first().map_or(0, |point| point.start_ns);
        let nothing_yet = IoSample { read_ns: axis_start_ns, ..IoSample::default() };
        let before = self.io.last.unwrap_or(nothing_yet);
        self.io.last = Some(now);
        self.io.before_ns = before.read_ns;
        let (start_ns, end_ns) = (before.read_ns, now.read_ns.max(before.read_ns));
        let parts = self.axis.parts(Stretch { start_ns, end_ns });
        // A part of the time can be outside of all points. All bytes are spread over the time that is inside.
        let all_s: f64 = parts.iter().map(|part| part.inside_s).sum();
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / all_s;
        let read_rate = rate(now.bytes.read, before.bytes.read);
        let written_rate = rate(now.bytes.written, before.bytes.written);
        for part in parts {
            let part_of_point = part.inside_s / part.length_s;
            self.io.read.add_rate(part.point, part_of_point, read_rate);
            self.io.written.add_rate(part.point, part_of_point, written_rate);
        }
    }

    /// Adds a sample of the file systems, and keeps it as the last one of each. A new file system is last in the list, so each
    /// keeps its index.
    fn put_file_systems(&mut self, at: AxisPosition, systems: &[FileSystemSample]) {
        self.file_systems.resize_with(self.file_systems.len().max(systems.len()), FileSystemTracks::default);
        for (tracks, system) in self.file_systems.iter_mut().zip(systems) {
            tracks.free_bytes.put(at, system.free_bytes.map(|bytes| Values::single(bytes as f64)));
            tracks.last = system.clone();
        }
    }

    /// Adds a sample's RAM, CPU and processes of the tree, and the machine's RAM and CPU.
    fn put_tree(&mut self, at: AxisPosition, sample: &TreeSample) {
        let ram = self.take_ram_of(sample, at.sample_length_s);
        let cpu = self.take_cpu_of(sample, at.sample_length_s);
        let put = |track: &mut Track, value| track.put(at, value);
        for (sets, values) in [(&mut self.ram_bytes, ram), (&mut self.cpu_percent, cpu)] {
            sets.groups.as_mut().with(values, put);
        }
        let system = sample.system;
        put(&mut self.ram_bytes.system, system.ram_bytes.map(|bytes| Values::single(bytes as f64)));
        put(&mut self.cpu_percent.system, system.cpu_percent.map(Values::single));
        let Span { end, max } = sample.processes;
        // No source sums processes up over time: the number at the sample is the best known mean.
        put(&mut self.processes, Some(Values::new(end as f64, end as f64, max as f64)));
    }

    /// The RAM in the time of a sample, which is `sample_length_s` seconds long. A sample without length has no mean: the
    /// value at its end counts. `late_byte_s` is in earlier points, so it is taken out of the mean, and reset.
    fn take_ram_of(&mut self, sample: &TreeSample, sample_length_s: f64) -> Groups<Option<Values>> {
        let late_byte_s = std::mem::take(&mut self.late_byte_s);
        let byte_s = sample.footprint_byte_s.with(late_byte_s, |all, late| (all - late).max(0.0));
        sample.footprint_bytes.with(byte_s, |Span { end, max }, byte_s| {
            let mean = if sample_length_s > 0.0 { byte_s / sample_length_s } else { end as f64 };
            Some(Values::new(mean, end as f64, max as f64))
        })
    }

    /// The CPU utilisation in the time of a sample, which is `sample_length_s` seconds long. `None`: the sample has no
    /// length. The mean is of the CPU time since the sample before. `late_cpu_ns` is in earlier points, so it is taken out of the
    /// mean, and reset. The CPU window that the sample completed gives the extremes.
    fn take_cpu_of(&mut self, sample: &TreeSample, sample_length_s: f64) -> Groups<Option<Values>> {
        let spent_ns = sample.cpu.with(self.cpu_ns, |cpu, before| cpu.time_ns as f64 - before as f64);
        // Clocks count whole nanoseconds, so smaller differences are rounding errors of `late`. Adding 0 makes -0 a 0.
        let late_ns = std::mem::take(&mut self.late_cpu_ns);
        let spent_ns = spent_ns.with(late_ns, |all, late| (all - late).round() + 0.0);
        self.cpu_ns = sample.cpu.map(|cpu| cpu.time_ns);
        spent_ns.with(sample.cpu_window_percent, |spent_ns, window: Option<f64>| {
            let mean = (sample_length_s > 0.0).then(|| commands::cpu_percent(spent_ns, sample_length_s))?;
            Some(window.map_or(Values::of_mean(mean), |percent| Values::new(mean, percent, percent)))
        })
    }

    /// Adds how a sample's time is divided.
    fn put_time(&mut self, at: AxisPosition, sample: &TreeSample) {
        let parts = sample.time_ns.filter(|_| at.sample_length_s > 0.0);
        for (track, group) in self.time.0.values_mut().into_iter().zip(TimeGroup::ALL) {
            let part = parts.map(|ns| *ns.of(group) as f64 / 1e9 / at.sample_length_s);
            track.put(at, part.map(Values::of_mean));
        }
    }

    /// Notes that there was more RAM, or more processes, in the time of a closed sample: raises the maxima of its point.
    pub(in crate::run) fn raise(&mut self, revision: &Revision) {
        let Some(point) = self.axis.point_at(revision.at_ns) else { return };
        let tracks = self.ram_bytes.groups.as_mut();
        tracks.with(revision.footprint_bytes, |track, bytes| track.raise(point, bytes as f64));
        self.processes.raise(point, revision.processes as f64);
    }

    /// Spreads usage of a past time evenly over the points of that time. The sums of the next sample include it: `late_byte_s`, in
    /// byte-seconds, and `late_cpu_ns` note how much, so that it is left out of that sample's means.
    pub(in crate::run) fn add_late(&mut self, late: &LateUse) {
        let LateUse { time, byte_s, cpu_ns } = late;
        for PartOfPoint { point, inside_s, length_s: point_s } in self.axis.parts(*time) {
            let part = inside_s / time.length_s();
            let (byte_s, cpu_ns) = (byte_s.map(|sum| sum * part), cpu_ns.map(|sum| sum * part));
            self.late_byte_s = self.late_byte_s.with(byte_s, |all, late| all + late);
            self.late_cpu_ns = self.late_cpu_ns.with(cpu_ns, |all, late| all + late);
            let (ram, cpu) = (self.ram_bytes.groups.as_mut(), self.cpu_percent.groups.as_mut());
            ram.with(byte_s, |track, byte_s| track.add_mean(point, byte_s / point_s));
            cpu.with(cpu_ns, |track, ns| track.add_mean(point, commands::cpu_percent(ns, point_s)));
        }
    }

    /// All tracks that have an entry for each point. When the axis joins points, every track must join its entries in the same way.
    fn tracks(&mut self) -> impl Iterator<Item = &mut Track> {
        let by_group = [&mut self.ram_bytes, &mut self.cpu_percent].into_iter().flat_map(Sets::tracks);
        let of_tree = [&mut self.processes, &mut self.io.read, &mut self.io.written];
        let file_systems = self.file_systems.iter_mut().map(|system| &mut system.free_bytes);
        let gpus = self.gpus.iter_mut().flat_map(ByGpuFigure::iter_mut);
        let all = by_group.chain(of_tree).chain(self.time.0.values_mut());
        all.chain(file_systems).chain(gpus).chain(self.commands.tracks())
    }
}

#[cfg(test)]
mod tests;
