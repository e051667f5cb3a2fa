//! A GPU over time: utilization, memory and power.

use super::figure::{Figure, Panel, Ticks};
use super::lines::{Line, Lines};
use super::samples::{self, Quantity};
use super::time::Time;
use crate::figures::short;
use crate::model::report::{GpuDevice, GpuSeries, Report};
use crate::over_time::{Column, OverTime, Point, Rule};
use crate::units::Units;

/// Height of a plot, pixels.
const HEIGHT: f64 = 90.0;
/// Points of a plot, which is a third as wide as others; and those of one among many GPUs. The page has a limit of bytes for each.
const POINTS: f64 = 100.0;
const LEAST_POINTS: f64 = 32.0;
/// Points of the plots of all GPUs, for each quantity.
const ALL_POINTS: f64 = 400.0;
/// All of its memory is at the top of the plot, unless that is more than this many times what was used.
const MOST_OF_TOTAL: f64 = 20.0;
/// Parts of the run in the table beside it.
const PARTS: f64 = 5.0;

/// Draws a figure for each GPU of which anything is known. The first one has the note on what they show.
pub(super) fn gpus(report: &Report, units: Units, time: &Time) -> Vec<Figure> {
    let device = |id: &str| report.gpus.iter().find(|gpu| gpu.id == id);
    // All of them share a number of points, so that many GPUs do not make the page too large.
    let gpus = report.series.gpus.len() as f64;
    let points = (ALL_POINTS / gpus).clamp(LEAST_POINTS, POINTS);
    let figure = |gpu: &GpuSeries| figure(gpu, device(&gpu.id)?, units, time, points);
    let mut figures: Vec<Figure> = report.series.gpus.iter().filter_map(figure).collect();
    if let Some(first) = figures.first_mut() {
        first.note = "Utilization and power: means, of all users. Memory: the largest.".to_owned();
    }
    figures
}

/// The quantities of a GPU, in as many points as a plot has.
struct Quantities {
    start_s: Vec<f64>,
    end_s: Vec<f64>,
    /// As in [`RULES`]: percent, the report's unit of GPU RAM twice, watts.
    values: [Vec<Option<f64>>; 4],
}

/// Utilization, memory of the run, memory of all users, power: how several points of each are told as one.
const RULES: [Rule; 4] = [Rule::Mean, Rule::Largest, Rule::Largest, Rule::Mean];

impl Quantities {
    /// Joins the points of a GPU's series to at most `most`, and converts its memory to the report's unit.
    fn new(gpu: &GpuSeries, units: Units, time: &Time, most: f64) -> Self {
        let memory_unit = units.gpu_ram.bytes();
        // Each list of values, and what it is divided by.
        let lists = [
            (&gpu.utilization_percent.mean, 1.0),
            (&gpu.memory_run_bytes.max, memory_unit),
            (&gpu.memory_used_bytes.max, memory_unit),
            (&gpu.power_w.mean, 1.0),
        ];
        let value = |list: &[Option<f64>], at: usize, unit: f64| Some(list.get(at).copied()?? / unit);
        let columns = RULES.map(|rule| Column { name: String::new(), rule }).into();
        let points = time.points(0..).map(|(start_s, end_s, at)| Point {
            start_s,
            end_s,
            values: lists.iter().map(|(list, unit)| value(list, at, *unit)).collect(),
        });
        let OverTime { points, .. } =
            OverTime { columns, points: points.collect() }.every(time.wall_s / most);
        Self {
            start_s: points.iter().map(|point| point.start_s).collect(),
            end_s: points.iter().map(|point| point.end_s).collect(),
            values: std::array::from_fn(|at| points.iter().map(|point| point.values[at]).collect()),
        }
    }
}

/// Draws a GPU, in at most so many points. `None`: nothing is known of it.
fn figure(gpu: &GpuSeries, device: &GpuDevice, units: Units, time: &Time, points: f64) -> Option<Figure> {
    let Quantities { start_s, end_s, values } = Quantities::new(gpu, units, time, points);
    let time = time.of_points(&start_s, &end_s);
    let panels = panels(&values, device, units, &time);
    if panels.is_empty() {
        return None;
    }
    let number = device.index.map_or_else(|| device.id.clone(), |index| index.to_string());
    let title = format!("GPU {number} {}", device.name.as_deref().unwrap_or_default()).trim().to_owned();
    let memory = units.gpu_ram.symbol();
    let names = [
        "utilization [%]".to_owned(),
        format!("run [{memory}]"),
        format!("all users [{memory}]"),
        "power [W]".to_owned(),
    ];
    let columns = names.into_iter().zip(RULES).zip(&values);
    let known = columns.filter(|(_, values)| values.iter().any(Option::is_some));
    let quantities: Vec<Quantity> =
        known.map(|((name, rule), values)| Quantity { name, rule, values, is_count: false }).collect();
    let table = samples::table(&time, &title, PARTS, &quantities);
    Some(Figure { title, note: String::new(), panels, table })
}

/// Draws the charts of a GPU: utilization, memory, power. Those of which nothing is known are left out. `values` are those
/// of [`Quantities`]; the legend has the figures of the whole run.
fn panels(values: &[Vec<Option<f64>>; 4], device: &GpuDevice, units: Units, time: &Time) -> Vec<Panel> {
    let [busy, run, all, power] = values;
    let percent = |value: Option<f64>| value.map(|value| format!("{value:.0} % mean")).unwrap_or_default();
    let watts =
        |value: Option<f64>| value.map(|value| format!("{} W mean", short(value))).unwrap_or_default();
    let bytes = |value: Option<u64>| value.map(|bytes| units.gpu_bytes(bytes)).unwrap_or_default();
    let largest = run.iter().chain(all).flatten().copied().fold(0.0, f64::max);
    let total = device.memory.total_bytes.map(|bytes| units.gpu_ram.convert(bytes as f64));
    // A total far above what was used would make the areas flat.
    let total = total.filter(|total| *total <= largest * MOST_OF_TOTAL);
    let area = |name: &str, values, figure| Some(Line { name: name.to_owned(), values, figure });
    let panels = [
        panel(
            "Utilization",
            "%",
            Some(100.0),
            [area("busy", busy, percent(device.utilization.mean_percent)), None],
            time,
        ),
        panel(
            "Memory",
            units.gpu_ram.symbol(),
            total,
            [
                area("of the run", run, bytes(device.memory.max_combined_bytes)),
                area("of all users", all, bytes(device.memory.max_used_bytes)),
            ],
            time,
        ),
        panel("Power", "W", None, [area("power", power, watts(device.power.mean_w)), None], time),
    ];
    panels.into_iter().flatten().collect()
}

/// Draws one chart: an area and a line, without those of which no value is known. `top`: the value at the top of the plot, if
/// it is no smaller than the largest. `None`: no value is known.
fn panel(label: &str, unit: &str, top: Option<f64>, lines: [Option<Line>; 2], time: &Time) -> Option<Panel> {
    let is_known = |line: &Line| line.values.iter().any(Option::is_some);
    Lines {
        label: label.to_owned(),
        unit: unit.to_owned(),
        height: HEIGHT,
        ticks: Ticks { time: 2, values: 3 },
        top,
        lines: lines.map(|line| line.filter(is_known)),
    }
    .panel(time)
}
