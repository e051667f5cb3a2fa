//! The run over time, in a bounded number of points on one time axis.

use std::fmt;
use std::ops::Index;

use serde::de::{Error, IgnoredAny, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::DiskRole;
use crate::model::gpu::gpu_figure::{ByGpuFigure, GpuFigure};
use crate::model::joining::Joining;
use crate::model::time_groups::ByTimeGroup;

/// The run over time. Each list has an entry for each point; an entry that is not known is null.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Series {
    /// Of each point, seconds after the command's start.
    pub start_s: Vec<f64>,
    /// Of each point, seconds after the command's start.
    pub end_s: Vec<f64>,
    /// Footprints, and memory in use on the machine, bytes.
    pub ram_bytes: SetTracks,
    /// Percent of one core; `min` and `max` of windows as in `cpu`.
    pub cpu_percent: SetTracks,
    /// How the time of each point was spent, from 0 to 1, as in `time_spent`; `None`: no sample read what threads do.
    pub time_spent: Option<ByTimeGroup<Vec<Option<f64>>>>,
    /// Live processes.
    pub processes: Track,
    /// Block I/O, bytes per second.
    pub io_bytes_per_s: IoTracks,
    /// Those of the working and temporary directory and the report.
    pub file_systems: Vec<FileSystemSeries>,
    /// The GPUs, in the order of `gpus`.
    pub gpus: Vec<GpuSeries>,
    /// Five names with most RAM, five others with most CPU time.
    pub commands: Vec<CommandSeries>,
    /// All other names.
    pub other_commands: Option<OtherCommandSeries>,
}

impl Series {
    /// Maximum number of points. A picture in a report is hardly wider, and the report's file stays small.
    pub const MOST_POINTS: usize = 300;
}

/// A quantity of the tree's parts and of the machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SetTracks {
    /// The command's first process.
    pub main: Track,
    /// All other processes of the tree.
    pub descendants: Track,
    /// The whole tree.
    pub combined: Track,
    /// The machine.
    pub system: Track,
}

/// A quantity in each point.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Track {
    /// Smallest at a sample.
    pub min: Vec<Option<f64>>,
    /// Mean over the time of the point.
    pub mean: Vec<Option<f64>>,
    /// Largest at any time.
    pub max: Vec<Option<f64>>,
}

/// Block I/O of the tree. Extremes are those of the times between two readings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct IoTracks {
    /// Bytes per second.
    pub read: Track,
    /// Bytes per second.
    pub written: Track,
}

/// A file system that the run may write to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FileSystemSeries {
    /// The directories on it.
    pub directories: Vec<Directory>,
    /// What this user may still fill, bytes; `None`: no answer for 3 s.
    pub free_bytes: Track,
}

/// A directory that the run may write to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Directory {
    /// What it is to the run.
    pub role: DiskRole,
    /// Its path.
    pub path: String,
}

/// A GPU. Its entry in a report has `id`, and the track of each figure under the figure's name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GpuSeries {
    /// As in `gpus[].id`.
    pub id: String,
    /// Its figures over time; the others have no entries.
    pub tracks: ByGpuFigure<Track>,
}

/// The processes of one command name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CommandSeries {
    /// Command name.
    pub command: String,
    /// What they add to the footprint, bytes; `None`: no sample saw one.
    pub ram_bytes: Track,
    /// Percent of one core.
    pub mean_cpu_percent: Vec<Option<f64>>,
}

/// The commands that are not listed, together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OtherCommandSeries {
    /// What they add to the footprint at samples, bytes.
    pub mean_ram_bytes: Vec<Option<f64>>,
    /// Percent of one core.
    pub mean_cpu_percent: Vec<Option<f64>>,
}

impl Track {
    /// Its lists, which have an entry for each point.
    fn lists(&self) -> [&Vec<Option<f64>>; 3] {
        [&self.min, &self.mean, &self.max]
    }

    /// What stands for each point where several of them are joined in this way.
    pub fn by(&self, joining: Joining) -> &[Option<f64>] {
        match joining {
            Joining::Largest => &self.max,
            Joining::Mean | Joining::Last => &self.mean,
        }
    }

    /// The largest value of all points. `None`: none is known.
    pub fn largest(&self) -> Option<f64> {
        self.max.iter().flatten().copied().reduce(f64::max)
    }
}

impl SetTracks {
    /// All of its quantities.
    fn tracks(&self) -> [&Track; 4] {
        [&self.main, &self.descendants, &self.combined, &self.system]
    }
}

impl GpuSeries {
    /// The figures over time of which it has tracks: all but those of performance counters that are not known.
    pub fn known_figures(&self) -> impl Iterator<Item = GpuFigure> {
        let has_track = |figure: &GpuFigure| !figure.is_optional() || !self[*figure].mean.is_empty();
        GpuFigure::OVER_TIME.into_iter().filter(has_track)
    }

    /// The tracks of these figures.
    fn known_tracks(&self) -> impl Iterator<Item = &Track> {
        self.known_figures().map(|figure| &self[figure])
    }
}

impl Index<GpuFigure> for GpuSeries {
    type Output = Track;

    fn index(&self, figure: GpuFigure) -> &Track {
        &self.tracks[figure]
    }
}

impl Serialize for GpuSeries {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("id", &self.id)?;
        let is_written = |figure: &GpuFigure| !figure.is_optional() || self[*figure].largest().is_some();
        for figure in GpuFigure::OVER_TIME.into_iter().filter(is_written) {
            map.serialize_entry(figure.name(), &self[figure])?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for GpuSeries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(GpuSeriesVisitor)
    }
}

/// Maximum number of figures that an earlier release may not have written. They are unknown at each point.
const MOST_MISSING: usize = 2;
/// What is wrong with lists that have not an entry for each point.
const UNEVEN: &str = "the lists of `series` differ in length";

/// Reads a [`GpuSeries`]. Keys of later versions are left out.
struct GpuSeriesVisitor;

impl<'de> Visitor<'de> for GpuSeriesVisitor {
    type Value = GpuSeries;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the figures of a GPU over time")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<GpuSeries, A::Error> {
        let mut id = None;
        let mut tracks = ByGpuFigure::<Option<Track>>::default();
        while let Some(key) = map.next_key::<String>()? {
            match GpuFigure::OVER_TIME.into_iter().find(|figure| figure.name() == key) {
                Some(figure) => tracks = tracks.with(figure, Some(map.next_value()?)),
                None if key == "id" => id = Some(map.next_value()?),
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        let id = id.ok_or_else(|| A::Error::missing_field("id"))?;
        // Those of performance counters are only written where they are known.
        let is_missing = |figure: &GpuFigure| tracks[*figure].is_none() && !figure.is_optional();
        let missing: Vec<_> = GpuFigure::OVER_TIME.into_iter().filter(is_missing).collect();
        // If more are missing, no earlier release has written this.
        if let Some(figure) = missing.get(MOST_MISSING) {
            return Err(A::Error::missing_field(figure.name()));
        }
        let lengths = || tracks.iter().flatten().flat_map(Track::lists).map(Vec::len);
        let points = lengths().next().unwrap_or(0);
        // This comes before anything is filled in, because a damaged file must not take many times its size in memory.
        if lengths().any(|length| length != points) {
            return Err(A::Error::custom(UNEVEN));
        }
        for figure in missing {
            let [min, mean, max] = std::array::from_fn(|_| vec![None; points]);
            tracks = tracks.with(figure, Some(Track { min, mean, max }));
        }
        Ok(GpuSeries { id, tracks: ByGpuFigure::new(|figure| tracks[figure].clone().unwrap_or_default()) })
    }
}

impl Series {
    /// Whether each list has an entry for each point.
    fn has_entry_for_each_point(&self) -> bool {
        let sets = [&self.ram_bytes, &self.cpu_percent].into_iter().flat_map(SetTracks::tracks);
        let gpus = self.gpus.iter().flat_map(GpuSeries::known_tracks);
        let commands = self.commands.iter().map(|command| &command.ram_bytes);
        let IoTracks { read, written } = &self.io_bytes_per_s;
        let file_systems = self.file_systems.iter().map(|system| &system.free_bytes);
        let tracks =
            sets.chain([&self.processes, read, written]).chain(file_systems).chain(gpus).chain(commands);
        let means = self.commands.iter().map(|command| &command.mean_cpu_percent);
        let time = self.time_spent.iter().flat_map(ByTimeGroup::values);
        let others = self.other_commands.iter();
        let others = others.flat_map(|others| [&others.mean_ram_bytes, &others.mean_cpu_percent]);
        let mut lists = tracks.flat_map(Track::lists).chain(means).chain(time).chain(others);
        self.end_s.len() == self.start_s.len() && lists.all(|list| list.len() == self.start_s.len())
    }
}

/// Reads a series, and refuses one whose lists differ in length.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Series, D::Error> {
    let series = Series::deserialize(deserializer)?;
    if series.has_entry_for_each_point() { Ok(series) } else { Err(D::Error::custom(UNEVEN)) }
}
