//! The run over time, as a report has it: at most [`Series::MOST_POINTS`] points, and [`MAX_COMMANDS`] commands beside all others.

use std::cmp::Reverse;
use std::ops::Range;

use crate::model::gpu::gpu_figure::{ByGpuFigure, GpuFigure};
use crate::model::groups::Groups;
use crate::model::report::{
    CommandSeries, Cpu, Directory, FileSystemSeries, GpuSeries, IoTracks, OtherCommandSeries, Series,
    SetTracks, Track,
};
use crate::model::sorting::Sorting;
use crate::model::time_groups::{ByTimeGroup, TimeGroup};
use crate::run::RunState;
use crate::run::over_time::commands::CommandTracks;
use crate::run::over_time::{self, OverTime, Sets, Values};

/// Values have seven digits, so two that differ by less than this part of them count as equal.
const ROUNDING: f64 = 1e-6;
/// Commands with lists of their own: half of them for their RAM, the others for their CPU time.
const MAX_COMMANDS: usize = 10;

/// A point of the report, made of one or more points of the run.
struct Point {
    /// Those points of the run: a range of indexes into [`OverTime::points`].
    of_run: Range<usize>,
    /// Where it begins, seconds after the command's start.
    start_s: f64,
    /// Where it ends, seconds after the command's start.
    end_s: f64,
}

/// The points of the report, and the run over time that they are made from.
struct ReportAxis<'a> {
    over_time: &'a OverTime,
    points: Vec<Point>,
}

/// The series of a run that took `wall_s` seconds. `cpu` has its largest CPU utilisation.
///
/// The last sample can be later than the end of the run. What the processes used by then belongs to the time before that end.
pub(super) fn series(run: &RunState, wall_s: f64, cpu: &Cpu) -> Series {
    let over_time = &run.samples.over_time;
    let axis = ReportAxis { over_time, points: points(run, wall_s) };
    let (commands, others) = axis.commands();
    Series {
        start_s: axis.points.iter().map(|point| point.start_s).collect(),
        end_s: axis.points.iter().map(|point| point.end_s).collect(),
        ram_bytes: axis.sets(&over_time.ram_bytes),
        cpu_percent: axis.cpu(cpu),
        time_spent: axis.time_spent(),
        processes: axis.track(&over_time.processes),
        io_bytes_per_s: IoTracks {
            read: axis.io_track(run, &over_time.io.read),
            written: axis.io_track(run, &over_time.io.written),
        },
        file_systems: axis.file_systems(),
        gpus: axis.gpus(run),
        commands,
        other_commands: others,
    }
}

/// Joins the points of the run to those of the report, which are cut to the `wall_s` seconds of the run. A point outside of that time
/// is left without length, and is joined with the one beside it.
fn points(run: &RunState, wall_s: f64) -> Vec<Point> {
    let all = run.samples.over_time.points();
    let joined_count = all.len().div_ceil(Series::MOST_POINTS).max(1);
    let seconds = |at_ns: u64| run.since_start_s(at_ns).min(wall_s);
    let mut points: Vec<Point> = Vec::new();
    for first in (0..all.len()).step_by(joined_count) {
        let of_run = first..(first + joined_count).min(all.len());
        let (start_s, end_s) = (seconds(all[first].start_ns), seconds(all[of_run.end - 1].end_ns));
        let next = Point { of_run, start_s, end_s };
        match points.last_mut() {
            Some(last) if next.length_s() <= 0.0 || last.length_s() <= 0.0 => {
                last.of_run.end = next.of_run.end;
                last.end_s = next.end_s;
            }
            _ => points.push(next),
        }
    }
    points
}

/// Raises the largest of some values to `largest`, if that is more. If no value is known, the last one becomes `largest`, so that the
/// series has the largest value of the report.
fn raise(values: &mut [Option<f64>], largest: Option<f64>) {
    let Some(largest) = largest else { return };
    let known = values.iter_mut().flatten();
    if let Some(value) = known.max_by(|a, b| a.total_cmp(b)) {
        if *value < largest * (1.0 - ROUNDING) {
            *value = decimal(largest as f32);
        }
    } else if let Some(last) = values.last_mut() {
        *last = Some(decimal(largest as f32));
    }
}

impl Point {
    /// Its length, seconds.
    fn length_s(&self) -> f64 {
        self.end_s - self.start_s
    }
}

/// Converts a value without the digits that `f32` does not have: 0.1 stays 0.1, where `f64::from` gives 0.10000000149.
fn decimal(value: f32) -> f64 {
    value.to_string().parse().unwrap_or_else(|_| value.into())
}

impl ReportAxis<'_> {
    /// What a quantity was in each point of the report, from what it was in those of the run (`track`). `None`: it is not known there.
    fn values(&self, track: &over_time::Track) -> Vec<Option<Values>> {
        let points = self.over_time.points();
        // Means are weighted by the lengths of the run's points.
        let join = |point: &Point| track.joined(point.of_run.clone().map(|at| (at, points[at].length_s())));
        self.points.iter().map(join).collect()
    }

    /// The mean CPU utilisation in each point of the report, percent. The last point can be cut at the run's end. It keeps all CPU
    /// time of its samples, so its mean is that time over a shorter length.
    fn cpu_means(&self, track: &over_time::Track) -> Vec<Option<f64>> {
        let points_of_run = self.over_time.points();
        let mean = |(point, values): (&Point, Option<Values>)| {
            let uncut_s: f64 = points_of_run[point.of_run.clone()].iter().map(|point| point.length_s()).sum();
            let is_cut = point.length_s() > 0.0 && uncut_s > point.length_s() * (1.0 + ROUNDING);
            let factor = if is_cut { uncut_s / point.length_s() } else { 1.0 };
            Some(decimal((f64::from(values?.mean) * factor) as f32))
        };
        self.points.iter().zip(self.values(track)).map(mean).collect()
    }

    /// The CPU utilisation of the tree's parts and of the machine. `cpu` has the largest values of the whole run, which are no
    /// less than its means. If such a value is above those of all points, the largest point is raised to it.
    fn cpu(&self, cpu: &Cpu) -> SetTracks {
        let Sets { groups, system } = &self.over_time.cpu_percent;
        let track = |track: &over_time::Track, largest: Option<f64>| {
            let mut track = Track { mean: self.cpu_means(track), ..self.track(track) };
            raise(&mut track.max, largest);
            track
        };
        SetTracks {
            main: track(&groups.main, cpu.main.max_sum),
            descendants: track(&groups.descendants, cpu.descendants.max_sum),
            combined: track(&groups.combined, cpu.combined.max_sum),
            system: self.track(system),
        }
    }

    /// The part of each group of states in the time of each point that is known. `None`: none is known of any point.
    fn time_spent(&self) -> Option<ByTimeGroup<Vec<Option<f64>>>> {
        let tracks = &self.over_time.time.0;
        let values = ByTimeGroup::new(|group| self.values(tracks.of(group)));
        let part = |group, point: usize| values.of(group)[point].map_or(0.0, |values| values.mean);
        // How much of the time of a point is known: samples whose threads were not read have no part of any group.
        let told_of = |point| TimeGroup::ALL.into_iter().map(|group| part(group, point)).sum();
        let told: Vec<f32> = (0..self.points.len()).map(told_of).collect();
        if !told.iter().any(|told| *told > 0.0) {
            return None;
        }
        let share =
            |group, (point, told): (usize, &f32)| (*told > 0.0).then(|| decimal(part(group, point) / told));
        Some(ByTimeGroup::new(|group| told.iter().enumerate().map(|point| share(group, point)).collect()))
    }

    /// The mean of a quantity in each point.
    fn means(&self, track: &over_time::Track) -> Vec<Option<f64>> {
        self.values(track).into_iter().map(|values| values.map(|values| decimal(values.mean))).collect()
    }

    /// Smallest, mean and largest value of a quantity in each point.
    fn track(&self, track: &over_time::Track) -> Track {
        let (mut min, mut max) = (Vec::new(), Vec::new());
        for values in self.values(track) {
            let extremes = values.and_then(|values| values.extremes);
            min.push(extremes.map(|extremes| decimal(extremes.min)));
            max.push(extremes.map(|extremes| decimal(extremes.max)));
        }
        Track { min, mean: self.means(track), max }
    }

    /// Smallest, mean and largest rate of block I/O in each point, bytes per second. The last reading can be later than the run's end,
    /// at which the last point is cut. All bytes of that reading are from before that end. So those of the part that was cut off are
    /// spread over the time from the reading before to the end.
    fn io_track(&self, run: &RunState, track: &over_time::Track) -> Track {
        let mut track = self.track(track);
        let (Some(last), Some(Some(rate))) = (self.points.last(), track.mean.last().copied()) else {
            return track;
        };
        let uncut_s: f64 =
            self.over_time.points()[last.of_run.clone()].iter().map(|point| point.length_s()).sum();
        let cut_off_bytes = rate * (uncut_s - last.length_s()).max(0.0);
        let reading_before_s = run.since_start_s(self.over_time.io.before_ns);
        // If that reading is later than the end, too, only the last point is known to have the bytes.
        let from_s = if reading_before_s < last.end_s { reading_before_s } else { last.start_s };
        if cut_off_bytes <= rate * uncut_s * ROUNDING || last.length_s() <= 0.0 {
            return track;
        }
        let added_rate = cut_off_bytes / (last.end_s - from_s);
        let Track { mean, max, .. } = &mut track;
        for ((point, mean), max) in self.points.iter().zip(mean).zip(max) {
            let inside_s = point.end_s - point.start_s.max(from_s);
            if let (Some(mean), Some(max)) = (mean, max)
                && inside_s > 0.0
            {
                *mean = decimal((*mean + added_rate * inside_s / point.length_s()) as f32);
                *max = max.max(*mean);
            }
        }
        track
    }

    /// The series of a quantity of the tree's parts and of the machine.
    fn sets(&self, sets: &Sets) -> SetTracks {
        let Groups { main, descendants, combined } = &sets.groups;
        SetTracks {
            main: self.track(main),
            descendants: self.track(descendants),
            combined: self.track(combined),
            system: self.track(&sets.system),
        }
    }

    /// The series of each file system, with the directories that are on it.
    fn file_systems(&self) -> Vec<FileSystemSeries> {
        let directory = |(role, path): &(_, String)| Directory { role: *role, path: path.clone() };
        let all = self.over_time.file_systems.iter().map(|system| FileSystemSeries {
            directories: system.last.directories.iter().map(directory).collect(),
            free_bytes: self.track(&system.free_bytes),
        });
        all.collect()
    }

    /// The series of each tracked GPU. Devices and tracks have the same order.
    fn gpus(&self, run: &RunState) -> Vec<GpuSeries> {
        let devices = run.gpu.usage.devices.iter().zip(&self.over_time.gpus);
        let all = devices.map(|(usage, tracks)| GpuSeries {
            id: usage.device.id.clone(),
            tracks: GpuFigure::OVER_TIME
                .into_iter()
                .filter(|figure| !figure.is_optional() || !tracks[*figure].is_empty())
                .fold(ByGpuFigure::default(), |all, figure| all.with(figure, self.track(&tracks[figure]))),
        });
        all.collect()
    }

    /// The commands that used most, half of them by RAM and half by CPU time, and the sum of all others. `None`: there are no
    /// others.
    fn commands(&self) -> (Vec<CommandSeries>, Option<OtherCommandSeries>) {
        let commands = &self.over_time.commands;
        let mut listed: Vec<&CommandTracks> = commands.kept.iter().collect();
        // The first half of the list has the commands with the most RAM. All others follow by CPU time.
        listed.order_by_key(|tracks| Reverse(tracks.max_ram_bytes));
        let (half, count) = (MAX_COMMANDS / 2, MAX_COMMANDS.min(listed.len()));
        if listed.len() > half {
            listed[half..].order_by_key(|tracks| Reverse(tracks.cpu_ns));
        }
        let others = listed.split_off(count);
        // The run already has the sum of the commands that it keeps no tracks of. The others here are added to it.
        let has_others = commands.others > 0 || !others.is_empty();
        let (mut ram, mut cpu) = (commands.others_ram_bytes.clone(), commands.others_cpu_percent.clone());
        for tracks in others {
            ram.add_means_of(&tracks.ram_bytes);
            cpu.add_means_of(&tracks.cpu_percent);
        }
        let listed = listed.into_iter().map(|tracks| CommandSeries {
            command: tracks.command.to_string(),
            ram_bytes: self.track(&tracks.ram_bytes),
            mean_cpu_percent: self.cpu_means(&tracks.cpu_percent),
        });
        let others = has_others.then(|| OtherCommandSeries {
            mean_ram_bytes: self.means(&ram),
            mean_cpu_percent: self.cpu_means(&cpu),
        });
        (listed.collect(), others)
    }
}

#[cfg(test)]
mod tests {
    use super::raise;
    use crate::build::nulls::report_of;
    use crate::model::time_groups::ByTimeGroup;
    use crate::model::tree_sample::{IoBytes, IoSample, TreeSample};
    use crate::run::over_time::OverTime;
    use crate::run::random_trees::random_runs;

    // Requirement: IO-2
    #[test]
    fn all_bytes_stay_in_the_series_of_a_run_that_ended_before_its_last_sample() {
        const S: u64 = 1_000_000_000;
        const START_NS: u64 = 100 * S;
        let (mut run, at_ns) = random_runs(1).next().unwrap();
        let cpu = report_of(&run, at_ns).cpu;
        run.start_ns = START_NS;
        let sample = |second: u64| TreeSample {
            from_ns: START_NS + (second - 1) * S,
            at_ns: START_NS + second * S,
            io: Some(IoSample {
                read_ns: START_NS + second * S,
                bytes: IoBytes { read: 0, written: 1000 * second },
            }),
            ..TreeSample::default()
        };
        run.samples.over_time = OverTime::of_samples(&[1, 2, 3].map(sample));
        for (wall_s, last_rate) in [(3.0, 1000.0), (2.25, 4000.0), (9.0, 1000.0)] {
            let series = super::series(&run, wall_s, &cpu);
            assert_eq!(series.end_s.last(), Some(&wall_s.min(3.0)));
            let written = &series.io_bytes_per_s.written;
            assert_eq!(written.mean, [1000.0, 1000.0, last_rate].map(Some), "{wall_s}");
            assert_eq!(written.max, written.mean);
        }
        // The last reading is of the last two seconds: a short last point shows no rate that there was not.
        let mut samples = [1, 2, 3].map(sample);
        samples[1].io = samples[0].io;
        run.samples.over_time = OverTime::of_samples(&samples);
        let series = super::series(&run, 2.25, &cpu);
        let written = &series.io_bytes_per_s.written;
        assert_eq!(written.mean, [1000.0, 1600.0, 1600.0].map(Some));
        assert_eq!(written.max, written.mean);
    }

    // Requirement: SLOW-11
    #[test]
    fn shares_are_of_the_known_time_of_a_point() {
        const S: u64 = 1_000_000_000;
        let (mut run, at_ns) = random_runs(1).next().unwrap();
        let cpu = report_of(&run, at_ns).cpu;
        run.start_ns = 0;
        let sample = |second: u64| TreeSample {
            from_ns: second * S,
            at_ns: (second + 1) * S,
            // Each third one is read, and every second of these finds a lock.
            time_ns: second.is_multiple_of(3).then(|| match second % 2 {
                0 => ByTimeGroup { computing: S, ..ByTimeGroup::default() },
                _ => ByTimeGroup { locks: S, ..ByTimeGroup::default() },
            }),
            ..TreeSample::default()
        };
        run.samples.over_time = OverTime::of_samples(&(0..6).map(sample).collect::<Vec<_>>());
        let shares = super::series(&run, 6.0, &cpu).time_spent.unwrap();
        assert_eq!(shares.computing, [Some(1.0), None, None, Some(0.0), None, None]);
        assert_eq!(shares.locks, [Some(0.0), None, None, Some(1.0), None, None]);
        run.samples.over_time = OverTime::of_samples(&(0..1200).map(sample).collect::<Vec<_>>());
        let shares = super::series(&run, 1200.0, &cpu).time_spent.unwrap();
        let sums = shares.computing.iter().zip(&shares.locks).map(|(a, b)| a.unwrap() + b.unwrap());
        assert!(sums.clone().all(|sum| (sum - 1.0).abs() < 1e-6), "{:?}", sums.collect::<Vec<_>>());
        run.samples.over_time = OverTime::of_samples(&[sample(1), sample(2)]);
        assert_eq!(super::series(&run, 3.0, &cpu).time_spent, None);
    }

    // Requirement: TIME-7
    #[test]
    fn integral_of_cpu_is_the_cpu_time_also_where_the_run_ended_before_its_last_sample() {
        let mut cut = 0;
        for (number, (run, at_ns)) in random_runs(300).enumerate() {
            let own_s = run.totals.own_usage.cpu_us() as f64 / 1e6;
            let points = run.samples.over_time.points();
            // Runs that have not ended have an open sample.
            if points.is_empty() || run.totals.survivors.count > 0 || run.now().is_some() || own_s == 0.0 {
                continue;
            }
            let last = points[points.len() - 1];
            // At its last sample; then in the middle of the last point, and before it begins.
            for end_ns in [at_ns.max(last.end_ns), last.start_ns.midpoint(last.end_ns), last.start_ns] {
                if end_ns <= run.start_ns + 1_000_000 {
                    continue;
                }
                let report = report_of(&run, end_ns);
                let series = &report.series;
                let lengths = series.start_s.iter().zip(&series.end_s).map(|(start, end)| end - start);
                assert!(lengths.clone().all(|length_s| length_s > 0.0), "run {number}: {series:?}");
                let combined = &series.cpu_percent.combined;
                let sum_s: f64 = combined
                    .mean
                    .iter()
                    .zip(lengths)
                    .map(|(mean, length_s)| mean.unwrap() / 100.0 * length_s)
                    .sum();
                assert!((sum_s - own_s).abs() <= 1e-5 * own_s, "run {number}: {sum_s}, {own_s}");
                let largest = report.cpu.combined.max_sum.unwrap();
                let ours = combined.largest().unwrap();
                assert!((ours - largest).abs() <= 1e-5 * largest, "run {number}: {ours}, {largest}");
                cut += u32::from(end_ns < last.end_ns);
            }
        }
        assert!(cut > 20, "{cut}");
    }

    #[test]
    fn largest_value_is_raised_where_the_others_are_lower() {
        let raised = |mut values: Vec<Option<f64>>, largest| {
            raise(&mut values, largest);
            values
        };
        assert_eq!(
            raised(vec![None, Some(3.0), Some(2.0), None], Some(9.5)),
            [None, Some(9.5), Some(2.0), None]
        );
        assert_eq!(raised(vec![None, None], Some(4.0)), [None, Some(4.0)]);
        assert_eq!(raised(vec![Some(3.0)], Some(2.0)), [Some(3.0)]);
        assert_eq!(raised(vec![Some(3.0)], None), [Some(3.0)]);
        assert_eq!(raised(vec![], Some(1.0)), []);
    }
}
