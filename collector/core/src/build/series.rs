//! The run over time, as a report has it: at most [`MOST_POINTS`] points, and [`COMMANDS`] commands beside all others.

use std::cmp::Reverse;

use crate::model::groups::Groups;
use crate::model::report::{
    CommandSeries, Directory, FileSystemSeries, GpuSeries, IoTracks, OtherCommandSeries, Series, SetTracks,
    Track,
};
use crate::run::RunState;
use crate::run::over_time::commands::CommandTracks;
use crate::run::over_time::{self, OverTime, Values};

/// Most points. A picture in a report is hardly wider, and so is a report's file small.
pub(super) const MOST_POINTS: usize = 300;
/// Commands with lists of their own: half of them for their RAM, the others for their CPU time.
const COMMANDS: usize = 10;

/// The points, each of one or more points of the run.
struct Axis<'a> {
    over_time: &'a OverTime,
    /// How many points of the run one has.
    joined: usize,
}

/// Gives the series of a run. The last sample can be a little later than the end of the run.
pub(super) fn series(run: &RunState, wall_s: f64) -> Series {
    let over_time = &run.samples.over_time;
    let points = over_time.points();
    let axis = Axis { over_time, joined: points.len().div_ceil(MOST_POINTS).max(1) };
    let seconds = |at_ns: u64| (at_ns.saturating_sub(run.start_ns) as f64 / 1e9).min(wall_s);
    let (commands, others) = axis.commands();
    Series {
        start_s: points.chunks(axis.joined).map(|points| seconds(points[0].start_ns)).collect(),
        end_s: points.chunks(axis.joined).map(|points| seconds(points[points.len() - 1].end_ns)).collect(),
        ram_bytes: axis.sets(&over_time.ram_bytes),
        cpu_percent: axis.sets(&over_time.cpu_percent),
        processes: axis.track(&over_time.processes),
        io_bytes_per_s: IoTracks {
            read: axis.track(&over_time.io.read),
            written: axis.track(&over_time.io.written),
        },
        file_systems: axis.file_systems(),
        gpus: axis.gpus(run),
        commands,
        other_commands: others,
    }
}

/// Converts a value without the digits that `f32` does not have: 0.1 stays 0.1, where `f64::from` gives 0.10000000149.
fn decimal(value: f32) -> f64 {
    value.to_string().parse().unwrap_or_else(|_| value.into())
}

impl Axis<'_> {
    /// Gives what a quantity was in each point. `None`: it is not known in any of the run's points that it has.
    fn values(&self, track: &over_time::Track) -> Vec<Option<Values>> {
        let points = self.over_time.points();
        // Joins the run's points from `first` on to one point: means are weighted by their lengths.
        let join = |first: usize| {
            let end = (first + self.joined).min(points.len());
            let known = (first..end).filter_map(|at| Some((points[at].length_s(), track.get(at)?)));
            let (_, values) = known.reduce(|(length_s, values), (next_s, next)| {
                (length_s + next_s, values.join(length_s, next, next_s))
            })?;
            Some(values)
        };
        (0..points.len()).step_by(self.joined).map(join).collect()
    }

    /// Gives the mean of a quantity in each point.
    fn means(&self, track: &over_time::Track) -> Vec<Option<f64>> {
        self.values(track).into_iter().map(|values| values.map(|values| decimal(values.mean))).collect()
    }

    /// Gives smallest, mean and largest value of a quantity in each point.
    fn track(&self, track: &over_time::Track) -> Track {
        let values = self.values(track);
        let extremes = || values.iter().map(|values| values.and_then(|values| values.extremes));
        Track {
            min: extremes().map(|extremes| extremes.map(|extremes| decimal(extremes.min))).collect(),
            mean: self.means(track),
            max: extremes().map(|extremes| extremes.map(|extremes| decimal(extremes.max))).collect(),
        }
    }

    /// Gives the series of a quantity of the tree's parts and of the machine.
    fn sets(&self, sets: &over_time::Sets) -> SetTracks {
        let Groups { main, descendants, combined } = &sets.groups;
        SetTracks {
            main: self.track(main),
            descendants: self.track(descendants),
            combined: self.track(combined),
            system: self.track(&sets.system),
        }
    }

    /// Gives the series of each file system, with the directories that are on it.
    fn file_systems(&self) -> Vec<FileSystemSeries> {
        let directory = |(role, path): &(_, String)| Directory { role: *role, path: path.clone() };
        let all = self.over_time.file_systems.iter().map(|system| FileSystemSeries {
            directories: system.last.directories.iter().map(directory).collect(),
            free_bytes: self.track(&system.free_bytes),
        });
        all.collect()
    }

    /// Gives the series of each tracked GPU. Devices and tracks have the same order.
    fn gpus(&self, run: &RunState) -> Vec<GpuSeries> {
        let devices = run.gpu.usage.devices.iter().zip(&self.over_time.gpus);
        let all = devices.map(|(usage, tracks)| GpuSeries {
            id: usage.device.id.clone(),
            utilization_percent: self.track(&tracks.busy_percent),
            memory_used_bytes: self.track(&tracks.used_bytes),
            memory_run_bytes: self.track(&tracks.run_bytes),
            temperature_c: self.track(&tracks.temperature_c),
            power_w: self.track(&tracks.power_w),
            sm_clock_mhz: self.track(&tracks.sm_clock_mhz),
        });
        all.collect()
    }

    /// Gives the commands that used most, half of them by RAM and half by CPU time, and the sum of all others. `None`: there are
    /// none.
    fn commands(&self) -> (Vec<CommandSeries>, Option<OtherCommandSeries>) {
        let commands = &self.over_time.commands;
        let mut listed: Vec<&CommandTracks> = commands.kept().iter().collect();
        // Half of the places are by RAM. All other commands follow by CPU time, and the first of them get the rest.
        listed.sort_by_key(|tracks| Reverse(tracks.max_ram_bytes));
        let (half, all) = (COMMANDS / 2, COMMANDS.min(listed.len()));
        if listed.len() > half {
            listed[half..].sort_by_key(|tracks| Reverse(tracks.cpu_ns));
        }
        let others = listed.split_off(all);
        // They are added to the sum of the commands that the run keeps no tracks of.
        let is_any = commands.others > 0 || !others.is_empty();
        let (mut ram, mut cpu) = (commands.others_ram_bytes.clone(), commands.others_cpu_percent.clone());
        for tracks in others {
            ram.add_means_of(&tracks.ram_bytes);
            cpu.add_means_of(&tracks.cpu_percent);
        }
        let listed = listed.into_iter().map(|tracks| CommandSeries {
            command: tracks.command.to_string(),
            ram_bytes: self.track(&tracks.ram_bytes),
            mean_cpu_percent: self.means(&tracks.cpu_percent),
        });
        let others = is_any.then(|| OtherCommandSeries {
            mean_ram_bytes: self.means(&ram),
            mean_cpu_percent: self.means(&cpu),
        });
        (listed.collect(), others)
    }
}
