//! Makes the points of the run over time, from a report or a tracking file. A tracking file is JSON lines, CSV or SQLite. The
//! latter two have the form of the Python package gpu_tracker, whose own files are read as well.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use super::{Clock, Column, Joining, OverTime, Point};
use crate::model::ended_process::EndedProcess;
use crate::model::gpu::gpu_figure::GpuFigure;
use crate::model::gpu::{Named, short_names};
use crate::model::groups::Groups;
use crate::model::report::{Report, Series, Track};
use crate::model::sorting::Sorting;
use crate::model::style::RamUnit;
use crate::model::time_groups::TimeGroup;
use crate::model::tree_sample::{Event, GpuSample, IoSample, TreeSample};
use crate::tracking_line::{Line, Run};

/// The command's first process, its descendants, both together, and the machine, in the order of their columns.
const SETS: [&str; 4] = ["main", "descendants", "combined", "system"];
const NS_PER_S: f64 = 1e9;
/// A file can lack the start of its run. Then the run began before the first row, by at most this many lengths of the longest
/// point.
const UNKNOWN_START_POINTS: f64 = 1.5;

/// Maximum number of cells of a table that are kept in memory, 16 bytes each: about 25 days of a sample each second.
pub const MOST_CELLS: usize = 1 << 26;
/// Maximum number of samples of a file of which [`Moment`]s are kept. If there are more, each two neighbours become one.
const MOST_MOMENTS: usize = 20_000;

/// How much of a tracking file is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// Its points.
    Points,
    /// Its points, with commands and GPUs at each.
    Moments,
}

/// What a tracking file has.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Recording {
    /// What does not change during the run. `None`: the file's form does not have it.
    pub run: Option<Run>,
    /// The run over time.
    pub over_time: OverTime,
    /// More of each point, if it was asked for and the form has it; else empty.
    pub moments: Vec<Moment>,
    /// The start of the run, CLOCK_MONOTONIC nanoseconds; since the epoch for gpu_tracker's own files, which have no other clock.
    /// If the file does not have the start: the end of the first point.
    pub start_ns: u64,
    /// The clock of the day at the points. `None`: the file does not say.
    pub clock: Option<Clock>,
    /// The processes that ended, in the order of the file, without their arguments. `None`: the form has no processes.
    pub processes: Option<Vec<EndedProcess>>,
    /// Times whose RAM was found later to be larger: CLOCK_MONOTONIC nanoseconds, and the larger RAM in bytes.
    pub revisions: Vec<(u64, u64)>,
    /// Cores that the run could use. `None`: the file does not say.
    pub cores: Option<f64>,
    /// RAM of the machine, bytes. `None`: the file does not say.
    pub ram_bytes: Option<u64>,
    /// A file of this form has a report if the run came to its end.
    pub can_have_report: bool,
    /// The report in JSON. `None`: the form has none, or the run was killed.
    pub report: Option<String>,
    /// The report of all nodes in JSON. `None`: the form has none, or the run was on one node.
    pub report_of_nodes: Option<String>,
}

/// What is known of a point beside its values.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Moment {
    /// What each command adds to the footprint of the tree, bytes.
    pub commands: Vec<(Arc<str>, u64)>,
    /// Threads of the tree. `None`: not known.
    pub threads: Option<u64>,
    /// The GPUs.
    pub gpus: Vec<GpuSample>,
}

impl From<TreeSample> for Moment {
    fn from(sample: TreeSample) -> Self {
        let commands = sample.commands.into_iter().map(|one| (one.command, one.added_bytes));
        Self {
            commands: commands.collect(),
            threads: Some(sample.threads.combined.max),
            gpus: sample.gpu.devices,
        }
    }
}

/// The columns of a report and of samples: RAM, CPU, processes, I/O, how the time was spent, then those of each GPU. [`from_report`],
/// [`tree_values`] and [`GpuFigure`] have this order. The `row` of a figure says how its values at several points become one. `gpus`: the
/// figures of each GPU, which begin with its short name, as `gpu3_` or `mig3_0_`.
fn columns(names: &[String], gpus: &[Vec<GpuFigure>]) -> Vec<Column> {
    let column = |name: String, joining| Column { name, joining };
    let ram = SETS.map(|set| column(format!("ram_{set}_bytes"), Joining::Largest));
    let cpu = SETS.map(|set| column(format!("cpu_{set}_percent"), Joining::Mean));
    let of_gpu = |(name, figures): (&String, &Vec<GpuFigure>)| -> Vec<Column> {
        let name = name.to_lowercase().replace('.', "_");
        let of_figure =
            |figure: &GpuFigure| column(format!("{name}_{}", figure.name()), figure.row().joining);
        figures.iter().map(of_figure).collect()
    };
    let tree = ram.into_iter().chain(cpu).chain([column("processes".into(), Joining::Largest)]);
    let io = ["read", "written"].map(|way| column(format!("io_{way}_bytes_per_s"), Joining::Mean));
    let time = TimeGroup::ALL.map(|group| column(time_column(group), Joining::Mean));
    let tree = tree.chain(io).chain(time);
    tree.chain(names.iter().zip(gpus).flat_map(of_gpu)).collect()
}

/// The name of the column of a group of states.
fn time_column(group: TimeGroup) -> String {
    format!("time_{}_percent", group.name())
}

/// The points of a report: those of its series, which has at most 300.
pub fn from_report(report: &Report) -> OverTime {
    let series: &Series = &report.series;
    let gpus: Vec<Vec<GpuFigure>> = series.gpus.iter().map(|gpu| gpu.known_figures().collect()).collect();
    let device = |id: &str| report.gpus.iter().find(|device| device.id == id);
    let named = series.gpus.iter().map(|gpu| Named {
        id: &gpu.id,
        index: device(&gpu.id).and_then(|device| device.index).map(u64::from),
        parent: device(&gpu.id).and_then(|device| device.parent.as_deref()),
    });
    let columns = columns(&short_names(&named.collect::<Vec<_>>()), &gpus);
    let times = series.start_s.iter().zip(&series.end_s).enumerate();
    let points = times.map(|(at, (&start_s, &end_s))| Point {
        start_s,
        end_s,
        // `lists` has the order of `columns`.
        values: lists(series).zip(&columns).map(|(list, column)| list.value(at, column.joining)).collect(),
    });
    let points = points.collect();
    OverTime { points, columns }
}

/// The clock of the points of a report, which has the start of its run to the millisecond.
pub fn clock_of_report(report: &Report) -> Clock {
    let since_epoch = report.started_at.duration_since(UNIX_EPOCH).unwrap_or_default();
    Clock { zero_s: since_epoch.as_secs_f64(), earlier_s: 0.0 }
}

/// The values of a column in a series.
enum List<'a> {
    Track(&'a Track),
    /// Parts, from 0 to 1, which the column has in percent. `None`: not known.
    Shares(Option<&'a [Option<f64>]>),
}

impl List<'_> {
    /// Its value at a point. `joining`: how values of several points become one in the column.
    fn value(&self, point: usize, joining: Joining) -> Option<f64> {
        match self {
            Self::Track(track) => *track.by(joining).get(point)?,
            Self::Shares(shares) => shares.as_ref()?.get(point)?.map(|share| share * 100.0),
        }
    }
}

/// The values of a series, a list for each of [`columns`], in their order.
fn lists(series: &Series) -> impl Iterator<Item = List<'_>> {
    let sets = [&series.ram_bytes, &series.cpu_percent].into_iter();
    let of_sets = sets.flat_map(|set| [&set.main, &set.descendants, &set.combined, &set.system]);
    let io = &series.io_bytes_per_s;
    let tree = of_sets.chain([&series.processes, &io.read, &io.written]).map(List::Track);
    let shares = |group| series.time_spent.as_ref().map(|shares| shares.of(group).as_slice());
    let time = TimeGroup::ALL.into_iter().map(move |group| List::Shares(shares(group)));
    let of_gpus =
        series.gpus.iter().flat_map(|gpu| gpu.known_figures().map(|figure| List::Track(&gpu[figure])));
    tree.chain(time).chain(of_gpus)
}

/// Reads the lines of a `.jsonl` file. Lines that are torn, or of a later version, are left out.
pub fn from_lines(lines: impl Iterator<Item = String>, detail: Detail) -> Recording {
    let mut recording =
        Recording { processes: Some(Vec::new()), can_have_report: true, ..Recording::default() };
    let mut samples: Vec<TreeSample> = Vec::new();
    for line in lines.filter_map(|line| Line::read(&line)) {
        match line {
            Line::Run(run) => {
                (recording.cores, recording.ram_bytes) =
                    (Some(f64::from(run.host.cores)), run.host.ram_bytes);
                recording.run = Some(run);
            }
            Line::Sample(sample) => {
                samples.push(*sample);
                if detail == Detail::Moments && samples.len() > MOST_MOMENTS {
                    samples = halved(&samples);
                }
            }
            Line::Process(mut process) => {
                process.usage.args = None;
                recording.processes.get_or_insert_default().push(*process);
            }
            Line::Event(Event::Revised { at_ns, max_footprint_bytes }) => {
                recording.revisions.push((at_ns, max_footprint_bytes.combined));
                revise(&mut samples, at_ns, max_footprint_bytes);
            }
            Line::End(end) => recording.report = Some(end.report.to_string()),
            // The line of the end has the report, which has the tasks.
            Line::Task(_) => {}
            Line::Nodes(nodes) => recording.report_of_nodes = Some(nodes.report.to_string()),
        }
    }
    // The line of the run has the time at which the launcher began. The run begins later, where the first sample does.
    let launched_ns = recording.run.as_ref().map(|run| run.monotonic_ns);
    recording.start_ns = samples.first().map(|first| first.from_ns).or(launched_ns).unwrap_or(0);
    recording.clock = recording.run.as_ref().map(|run| {
        // How long after the launcher the run began.
        let later_ns = i128::from(recording.start_ns) - i128::from(run.monotonic_ns);
        let zero_ns = i128::from(run.realtime_ns) + later_ns;
        Clock { zero_s: zero_ns as f64 / NS_PER_S, earlier_s: 0.0 }
    });
    recording.over_time = from_samples(&samples, recording.start_ns);
    if detail == Detail::Moments {
        recording.moments = samples.into_iter().map(Moment::from).collect();
    }
    recording
}

/// Joins each two neighbours into one sample. This bounds the memory that a long file takes.
fn halved(samples: &[TreeSample]) -> Vec<TreeSample> {
    let join = |neighbours: &[TreeSample]| {
        let (first, rest) = neighbours.split_first()?;
        Some(rest.iter().fold(first.clone(), |all, next| all.then(next.clone())))
    };
    samples.chunks(2).filter_map(join).collect()
}

/// Raises the largest RAM (footprint: a page that several processes share counts once) of the sample in whose time `at_ns` is,
/// CLOCK_MONOTONIC nanoseconds. That sample can end later than `at_ns`, because a sample of a file can be several of the run's, joined.
fn revise(samples: &mut [TreeSample], at_ns: u64, max_footprint_bytes: Groups<u64>) {
    let at = samples.partition_point(|sample| sample.at_ns < at_ns);
    if let Some(sample) = samples.get_mut(at) {
        sample.footprint_bytes = sample.footprint_bytes.with(max_footprint_bytes, |mut span, bytes| {
            span.raise(bytes);
            span
        });
    }
}

/// A point for each sample. `start_ns`: the start of the run, CLOCK_MONOTONIC nanoseconds.
fn from_samples(samples: &[TreeSample], start_ns: u64) -> OverTime {
    // By id, the number of each GPU: the order in which they come.
    let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
    let mut named: Vec<Named> = Vec::new();
    let devices = samples.iter().flat_map(|sample| &sample.gpu.devices);
    for gpu in devices {
        numbers.entry(&gpu.device.id).or_insert_with(|| {
            named.push(gpu.device.named());
            named.len() - 1
        });
    }
    let figures = figures_of_gpus(samples, &numbers);
    let columns = columns(&short_names(&named), &figures);
    // The columns of the GPUs are the last ones.
    let first_of_gpus = columns.len() - figures.iter().map(Vec::len).sum::<usize>();
    let mut before: Option<&TreeSample> = None;
    let s = |ns: u64| ns.saturating_sub(start_ns) as f64 / NS_PER_S;
    let mut points = Vec::with_capacity(samples.len());
    for (sample, io) in samples.iter().zip(io_rates(samples)) {
        let mut values = tree_values(sample, before);
        before = Some(sample);
        values.extend(io);
        values.extend(time_percents(sample));
        // A GPU that the sample lacks is not known.
        values.resize(columns.len(), None);
        for gpu in &sample.gpu.devices {
            // The `row` of a figure says how it is read from a sample.
            let (before, from) = figures.split_at(numbers[&*gpu.device.id]);
            let at = first_of_gpus + before.iter().map(Vec::len).sum::<usize>();
            for (place, figure) in values[at..].iter_mut().zip(from.first().into_iter().flatten()) {
                *place = (figure.row().value)(gpu);
            }
        }
        points.push(Point { start_s: s(sample.from_ns), end_s: s(sample.at_ns), values });
    }
    OverTime { points, columns }
}

/// The figures of each GPU that have columns: the usual ones, and those of performance counters that a sample knows. `numbers`: by id,
/// the number of each GPU.
fn figures_of_gpus(samples: &[TreeSample], numbers: &BTreeMap<&str, usize>) -> Vec<Vec<GpuFigure>> {
    let mut known = vec![BTreeSet::new(); numbers.len()];
    for gpu in samples.iter().flat_map(|sample| &sample.gpu.devices) {
        let figures = GpuFigure::OVER_TIME.into_iter();
        let has_column = |figure: &GpuFigure| !figure.is_optional() || (figure.row().value)(gpu).is_some();
        known[numbers[&*gpu.device.id]].extend(figures.filter(has_column));
    }
    known.into_iter().map(|figures| figures.into_iter().collect()).collect()
}

/// Bytes per second, read and written, for the time of each sample.
///
/// I/O is read less often than sampled, so several samples carry one reading. All samples between two readings have the mean rate
/// of that time. `None`: there is no reading on one of its sides.
fn io_rates(samples: &[TreeSample]) -> Vec<[Option<f64>; 2]> {
    let mut rates = vec![[None; 2]; samples.len()];
    // The first sample that has no rate yet, and the last reading before it.
    let (mut first_open, mut before) = (0, None::<IoSample>);
    for (at, io) in samples.iter().enumerate().filter_map(|(at, sample)| Some((at, sample.io?))) {
        // The sample carries the reading of an earlier sample, or an even older one if the file is damaged.
        if before.is_some_and(|before| io.read_ns <= before.read_ns) {
            continue;
        }
        let rate = before.map(|before| {
            let length_s = (io.read_ns - before.read_ns) as f64 / NS_PER_S;
            let rate = |now: u64, before: u64| Some(now.saturating_sub(before) as f64 / length_s);
            [rate(io.bytes.read, before.bytes.read), rate(io.bytes.written, before.bytes.written)]
        });
        rates[first_open..=at].fill(rate.unwrap_or_default());
        (first_open, before) = (at + 1, Some(io));
    }
    rates
}

/// How the time of a sample was spent, percent of what is known of it, in the order of the groups. `None`: the threads were not read.
fn time_percents(sample: &TreeSample) -> [Option<f64>; TimeGroup::ALL.len()] {
    let shares = sample.time_ns.and_then(|ns| ns.shares());
    TimeGroup::ALL.map(|group| Some(shares?.of(group) * 100.0))
}

/// The values of the tree and the machine, in the order of their columns: RAM, CPU, processes. `before`: the sample before;
/// `None`: it is the first one.
fn tree_values(sample: &TreeSample, before: Option<&TreeSample>) -> Vec<Option<f64>> {
    let ram = sample.footprint_bytes.map(|span| Some(span.max as f64)).values();
    let cpu = sample.cpu_percent_since(before).values();
    let system = sample.system;
    let ram_of_system = system.ram_bytes.map(|bytes| bytes as f64);
    let all = ram.into_iter().chain([ram_of_system]).chain(cpu).chain([system.cpu_percent]);
    all.chain([Some(sample.processes.max as f64)]).collect()
}

/// Reads a CSV file in gpu_tracker's form, whether this program or gpu_tracker wrote it.
///
/// # Errors
/// If it has another form, as a text to put after the file's name.
pub fn from_csv(mut lines: impl Iterator<Item = String>) -> Result<Recording, String> {
    // The form: names and values of what holds for all rows, then the names of the columns, then rows.
    let mut cells =
        || lines.next().map(|line| line.split(',').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>());
    let (Some(fixed_names), Some(fixed_values), Some(names)) = (cells(), cells(), cells()) else {
        return Err("is no tracking file: it has fewer than three lines".into());
    };
    let value = |name: &str| {
        let at = fixed_names.iter().position(|known| *known == name);
        at.and_then(|at| fixed_values.get(at).cloned()).unwrap_or_default()
    };
    let fixed = Fixed {
        ram_unit: value("ram_unit"),
        gpu_ram_unit: value("gpu_ram_unit"),
        gpus: value("system_gpu_count").parse().ok(),
        cores: value("n_expected_cores").parse().ok(),
        ram_capacity: number(&value("ram_system_capacity")),
    };
    let mut rows: Vec<Vec<Option<f64>>> = Vec::new();
    for line in lines {
        let row: Vec<Option<f64>> = line.split(',').map(number).collect();
        // A killed run leaves a torn last line.
        if row.len() == names.len() {
            if rows.len() == MOST_CELLS / names.len() {
                return Err(format!("has more than {} samples, the most that are read", rows.len()));
            }
            rows.push(row);
        }
    }
    from_table(&names, &rows, &fixed)
}

/// The number in a cell. `None`: the cell has no finite number.
fn number(cell: &str) -> Option<f64> {
    cell.trim().parse().ok().filter(|number: &f64| number.is_finite())
}

/// What holds for all rows of a table in gpu_tracker's form.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Fixed {
    /// Unit of RAM.
    pub ram_unit: String,
    /// Unit of GPU RAM.
    pub gpu_ram_unit: String,
    /// GPUs of the machine. `None`: the run was killed before their number was written.
    pub gpus: Option<u64>,
    /// Cores that the run could use. `None`: not known.
    pub cores: Option<u64>,
    /// RAM of the machine, in the unit of RAM. `None`: not known.
    pub ram_capacity: Option<f64>,
}

/// Reads a table in gpu_tracker's form, whose columns have these `names`.
///
/// # Errors
/// If a column or a unit is missing, as a text to put after the file's name.
pub fn from_table(names: &[String], rows: &[Vec<Option<f64>>], fixed: &Fixed) -> Result<Recording, String> {
    let table_columns = table_columns(names, rows, fixed)?;
    // gpu_tracker's own files have the wall clock alone, in seconds.
    let (time_place, ns_per_unit) = match place(names, "at_ns") {
        Some(place) => (place, 1.0),
        None => (needed_place(names, "timestamp")?, NS_PER_S),
    };
    // A row without a time is left out.
    let mut timed_rows: Vec<(f64, &Vec<Option<f64>>)> =
        rows.iter().filter_map(|row| Some((row[time_place]? * ns_per_unit, row))).collect();
    timed_rows.order_by(|a, b| a.0.total_cmp(&b.0));
    // The start of the run is not in the table. So the first row is time 0, and its point has no length.
    let first_ns = timed_rows.first().map_or(0.0, |(ns, _)| *ns);
    let mut before_s = 0.0;
    let points = timed_rows.iter().map(|(ns, row)| {
        let end_s = (ns - first_ns) / NS_PER_S;
        let values = table_columns.iter().map(|column| column.value(row)).collect();
        // A point begins where the one before it ends.
        Point { start_s: std::mem::replace(&mut before_s, end_s), end_s, values }
    });
    let points = points.collect();
    let columns = table_columns.into_iter().map(|column| column.column).collect();
    let over_time = OverTime { points, columns };
    // The run began up to an interval before its first row. A single row does not show how long an interval is.
    let earlier_s = match over_time.points.len() {
        0 | 1 => f64::INFINITY,
        _ => over_time.longest_s() * UNKNOWN_START_POINTS,
    };
    let first_row = timed_rows.first().map(|(_, row)| *row);
    let zero_s = first_row.and_then(|row| row[place(names, "timestamp")?]);
    let clock = zero_s.map(|zero_s| Clock { zero_s, earlier_s });
    let ram_unit_bytes = bytes_of_unit(&fixed.ram_unit)?;
    Ok(Recording {
        over_time,
        start_ns: first_ns as u64,
        clock,
        cores: fixed.cores.map(|cores| cores as f64),
        ram_bytes: fixed.ram_capacity.map(|capacity| (capacity * ram_unit_bytes) as u64),
        ..Recording::default()
    })
}

/// Finds the place of the column of this name in a row.
fn place(names: &[String], name: &str) -> Option<usize> {
    names.iter().position(|known| known == name)
}

/// Finds the place of a column that every table has.
///
/// # Errors
/// If it is not there, as a text to put after the file's name.
fn needed_place(names: &[String], name: &str) -> Result<usize, String> {
    place(names, name).ok_or_else(|| format!("is no tracking file: it has no column {name}"))
}

/// A column of a table.
struct TableColumn {
    column: Column,
    /// Its place in a row.
    place: usize,
    /// What its numbers are multiplied by: the bytes of its unit, or 1.
    factor: f64,
}

impl TableColumn {
    /// Its value in a row. `None`: the cell is empty.
    fn value(&self, row: &[Option<f64>]) -> Option<f64> {
        let number = row[self.place]?;
        match self.factor {
            1.0 => Some(number),
            // The column is one of bytes, which are whole.
            factor => Some((number * factor).round()),
        }
    }
}

/// The bytes of a unit of this name.
///
/// # Errors
/// If there is no such unit, as a text to put after the file's name.
fn bytes_of_unit(unit: &str) -> Result<f64, String> {
    let known = RamUnit::ALL.into_iter().find(|known| known.name() == unit);
    let unknown = || format!("has an unknown unit: {}", crate::quote::cut(&format!("{unit:?}"), 40));
    Ok(known.ok_or_else(unknown)?.bytes())
}

/// Finds the columns of a table in gpu_tracker's form: RAM, CPU, processes, and the sums over all GPUs.
///
/// # Errors
/// If a column or a unit is missing, as a text to put after the file's name.
fn table_columns(
    names: &[String],
    rows: &[Vec<Option<f64>>],
    fixed: &Fixed,
) -> Result<Vec<TableColumn>, String> {
    let (ram, gpu_ram) = (bytes_of_unit(&fixed.ram_unit)?, bytes_of_unit(&fixed.gpu_ram_unit)?);
    let mut found: Vec<TableColumn> = Vec::new();
    let mut add = |name: String, joining, place, factor| {
        found.push(TableColumn { column: Column { name, joining }, place, factor });
    };
    for set in SETS {
        let place = needed_place(names, &format!("{set}_ram"))?;
        add(format!("ram_{set}_bytes"), Joining::Largest, place, ram);
    }
    for set in SETS {
        let place = needed_place(names, &format!("cpu_{set}_sum_utilization_percent"))?;
        add(format!("cpu_{set}_percent"), Joining::Mean, place, 1.0);
    }
    // gpu_tracker counts no processes.
    if let Some(place) = place(names, "n_processes") {
        add("processes".into(), Joining::Largest, place, 1.0);
    }
    // gpu_tracker does not tell how the time was spent.
    for name in TimeGroup::ALL.map(time_column) {
        if let Some(place) = place(names, &name) {
            add(name, Joining::Mean, place, 1.0);
        }
    }
    for (name, joining, their_name, factor) in [
        ("gpus_utilization_percent", Joining::Mean, "gpu_sum_utilization_percent", 1.0),
        ("gpus_memory_used_bytes", Joining::Largest, "system_gpu_ram", gpu_ram),
        ("gpus_memory_run_bytes", Joining::Largest, "combined_gpu_ram", gpu_ram),
    ] {
        // The form has 0 where there is no GPU. A killed run's file may lack the number of GPUs: then a value above 0 shows that
        // there is a GPU.
        let has_gpu = |place: &usize| fixed.gpus > Some(0) || rows.iter().any(|row| row[*place] > Some(0.0));
        if let Some(place) = place(names, their_name).filter(has_gpu) {
            add(name.into(), joining, place, factor);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::gpu::{Device, Figure};
    use crate::model::time_groups::ByTimeGroup;
    use crate::model::tree_sample::{CpuSample, IoBytes, Span};
    use crate::over_time::{Statistics, statistics};

    const S: u64 = 1_000_000_000;

    fn lines_of(text: &str) -> impl Iterator<Item = String> {
        text.lines().map(str::to_owned)
    }

    fn value(over_time: &OverTime, point: usize, name: &str) -> Option<f64> {
        let at = over_time.columns.iter().position(|column| column.name == name);
        over_time.points[point].values[at.unwrap_or_else(|| panic!("no column {name}"))]
    }

    fn sample(number: u64) -> TreeSample {
        let all = |n: u64| Groups { main: n, descendants: 0, combined: n };
        TreeSample {
            from_ns: number * S,
            at_ns: (number + 1) * S,
            footprint_bytes: all(number * 100).map(Span::at_end),
            cpu: all((number + 1) * S / 2).map(|time_ns| CpuSample { time_ns, percent: None }),
            processes: Span::at_end(2),
            ..TreeSample::default()
        }
    }

    // Requirement: TIME-14
    #[test]
    fn lines_give_points_with_late_values_and_gpus_in_the_order_in_which_they_come() {
        let mut later = sample(2);
        let device = Arc::new(Device { id: "GPU-b".into(), index: Some(5), ..Device::default() });
        let gauges = [(Figure::Power, 70.0)].into();
        later.gpu.devices = vec![GpuSample { device, used_bytes: Some(9), gauges, ..GpuSample::default() }];
        let lines = [
            Line::Sample(Box::new(sample(1))).text(),
            Line::Event(Event::Revised {
                at_ns: 3 * S / 2,
                max_footprint_bytes: Groups { main: 150, descendants: 0, combined: 170 },
            })
            .text(),
            Line::Sample(Box::new(later)).text(),
            "{\"sample\":{\"from_".to_owned(),
        ];
        let read = from_lines(lines.into_iter(), Detail::Points);
        assert_eq!(
            (read.start_ns, read.revisions.clone(), read.report.clone()),
            (S, vec![(3 * S / 2, 170)], None)
        );
        let all = &read.over_time;
        assert_eq!((all.points[1].start_s, all.points[1].end_s), (1.0, 2.0));
        let value_of = |point, name| value(all, point, name);
        assert_eq!(
            [value_of(0, "ram_main_bytes"), value_of(0, "ram_combined_bytes")],
            [Some(150.0), Some(170.0)]
        );
        assert_eq!(
            [value_of(0, "cpu_main_percent"), value_of(1, "cpu_main_percent")],
            [Some(100.0), Some(50.0)]
        );
        assert_eq!([value_of(0, "gpu5_power_w"), value_of(1, "gpu5_power_w")], [None, Some(70.0)]);
        assert_eq!(
            [value_of(1, "gpu5_memory_used_bytes"), value_of(1, "ram_system_bytes")],
            [Some(9.0), None]
        );
    }

    // Requirement: PY-26, PY-75
    #[test]
    fn clock_of_a_run_is_that_of_its_file() {
        let run = Run {
            form_version: 1,
            command: vec![],
            monotonic_ns: S / 2,
            realtime_ns: 1_700_000_000 * S,
            interval_ns: S,
            host: gpu_track_core::fixtures::full().host,
        };
        let lines = [Line::Run(run).text(), Line::Sample(Box::new(sample(1))).text()];
        let clock = from_lines(lines.into_iter(), Detail::Points).clock.unwrap();
        assert_eq!((clock.zero_s, clock.earlier_s), (1_700_000_000.5, 0.0));
        assert_eq!(
            from_lines([Line::Sample(Box::new(sample(1))).text()].into_iter(), Detail::Points).clock,
            None
        );

        let head = "ram_unit,gpu_ram_unit,system_gpu_count\nbytes,bytes,0\n";
        let names: Vec<String> = SETS.iter().map(|set| format!("{set}_ram")).collect();
        let percents: Vec<String> =
            SETS.iter().map(|set| format!("cpu_{set}_sum_utilization_percent")).collect();
        let names = format!("{},{},timestamp,at_ns", names.join(","), percents.join(","));
        let row = |timestamp: &str, s: u64| format!("1,2,3,4,5,6,7,8,{timestamp},{}\n", s * S);
        let one = format!("{head}{names}\n{}", row("1700000000.25", 7));
        let clock = from_csv(lines_of(&one)).unwrap().clock.unwrap();
        assert_eq!((clock.zero_s, clock.earlier_s), (1_700_000_000.25, f64::INFINITY));
        let two = one + &row("1700000002.25", 9);
        assert_eq!(from_csv(lines_of(&two)).unwrap().clock.unwrap().earlier_s, 3.0);
    }

    // Requirement: SLOW-11
    #[test]
    fn time_is_in_percent_from_samples_and_from_a_report() {
        let shares = ByTimeGroup { computing: S / 4, storage: S / 4, ..ByTimeGroup::default() };
        let read = TreeSample { time_ns: Some(shares), ..sample(0) };
        let all = from_samples(&[read, sample(1)], 0);
        let percents = |over_time: &OverTime, point| {
            ["computing", "storage", "other"]
                .map(|group| value(over_time, point, &format!("time_{group}_percent")))
        };
        assert_eq!(percents(&all, 0), [Some(50.0), Some(50.0), Some(0.0)]);
        assert_eq!(percents(&all, 1), [None; 3]);
        let report = gpu_track_core::fixtures::full();
        assert_eq!(percents(&from_report(&report), 1), [Some(0.0), Some(75.0), Some(6.25)]);
        let none = Series { time_spent: None, ..report.series.clone() };
        assert_eq!(percents(&from_report(&Report { series: none, ..report }), 1), [None; 3]);
    }

    // Requirement: TIME-14
    #[test]
    fn points_of_a_report_are_its_series() {
        let report = gpu_track_core::fixtures::full();
        let all = from_report(&report);
        assert_eq!(all.points.len(), report.series.start_s.len());
        let told = statistics(&all);
        let largest =
            |name: &str| told.iter().find(|column| column.name == name).and_then(|column| column.max);
        assert_eq!(largest("ram_combined_bytes"), report.series.ram_bytes.combined.largest());
        assert_eq!(largest("gpu0_memory_used_bytes"), report.series.gpus[0][GpuFigure::MemoryUsed].largest());
    }

    // Requirement: TIME-14
    #[test]
    fn gpu_trackers_own_file_gives_points_and_a_torn_line_does_not() {
        let head = "ram_unit,gpu_ram_unit\nkilobytes,megabytes";
        let names: Vec<String> = SETS.iter().map(|set| format!("{set}_ram")).collect();
        let percents: Vec<String> =
            SETS.iter().map(|set| format!("cpu_{set}_sum_utilization_percent")).collect();
        let names = format!("{},{},system_gpu_ram,timestamp", names.join(","), percents.join(","));
        let without =
            format!("ram_unit,gpu_ram_unit,system_gpu_count\nbytes,bytes,0\n{names}\n1,2,3,4,5,6,7,8,0,1\n");
        assert_eq!(from_csv(lines_of(&without)).unwrap().over_time.columns.len(), 8, "no GPU");
        let text = format!(
            "{head}\n{names}\n1,2,3,4,5,6,7,8,9,100.5\n1,2,30,4,5,6,7,8,,102.5\n1,2,3\n1,2,3,4,5,6,7,8,9,NaN\n1,2,3,4,5,6,7,8,9,inf\n"
        );
        let all = from_csv(lines_of(&text)).unwrap().over_time;
        assert_eq!((all.points.len(), all.points[1].start_s, all.points[1].end_s), (2, 0.0, 2.0));
        assert_eq!(value(&all, 1, "ram_combined_bytes"), Some(30_000.0));
        assert_eq!(value(&all, 0, "gpus_memory_used_bytes"), Some(9e6));
        assert_eq!(value(&all, 1, "gpus_memory_used_bytes"), None);
        for (text, problem) in [
            ("a\nb\n", "fewer than three lines"),
            ("a\nb\nc\n", "has an unknown unit"),
            ("ram_unit,gpu_ram_unit\nbytes,bytes\nmain_ram\n", "it has no column descendants_ram"),
        ] {
            assert!(from_csv(lines_of(text)).unwrap_err().contains(problem), "{text}");
        }
    }

    // Requirement: TIME-14
    #[test]
    fn samples_between_two_readings_of_io_have_its_value_of() {
        let io = |read_s: u64, read| {
            let bytes = IoBytes { read, written: 10 * read };
            Some(IoSample { read_ns: read_s * S, bytes })
        };
        // The last one is of a damaged file.
        let readings = [None, io(2, 100), io(2, 100), io(4, 700), io(3, 900)];
        let samples = (0..).zip(readings).map(|(number, io)| TreeSample { io, ..sample(number) });
        let all = from_samples(&samples.collect::<Vec<_>>(), 0);
        let column = |name| (0..5).map(|at| value(&all, at, name)).collect::<Vec<_>>();
        assert_eq!(column("io_read_bytes_per_s"), [None, None, Some(300.0), Some(300.0), None]);
        assert_eq!(column("io_written_bytes_per_s"), [None, None, Some(3e3), Some(3e3), None]);
    }

    // Requirement: TIME-14
    #[test]
    fn cpu_time_of_missing_lines_is_spread_over_their_time() {
        let at = |number: u64, cpu_s: u64| {
            let mut sample = sample(number);
            sample.cpu.combined.time_ns = cpu_s * S;
            sample
        };
        // The samples that end at 3, 4 and 5 s are missing.
        let all = from_samples(&[at(0, 1), at(1, 2), at(5, 6)], 0);
        let percent = |point| value(&all, point, "cpu_combined_percent");
        assert_eq!([percent(0), percent(1), percent(2)], [Some(100.0); 3]);
        assert_eq!((all.points[2].start_s, all.points[2].end_s), (5.0, 6.0));
    }

    // Requirement: WATCH-54
    #[test]
    fn samples_of_a_long_run_are_joined_and_keep_their_peaks() {
        let joined = halved(&(0..5).map(sample).collect::<Vec<_>>());
        let shown =
            |sample: &TreeSample| (sample.from_ns / S, sample.at_ns / S, sample.footprint_bytes.combined.max);
        assert_eq!(joined.iter().map(shown).collect::<Vec<_>>(), [(0, 2, 100), (2, 4, 300), (4, 5, 400)]);
    }

    #[test]
    fn empty_file_has_no_statistics() {
        let none: Vec<Statistics> = statistics(&from_lines(std::iter::empty(), Detail::Points).over_time);
        assert!(none.iter().all(|column| column.max.is_none()));
    }
}
