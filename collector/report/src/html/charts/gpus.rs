//! A GPU over time: utilization, activity of its parts, memory and power.

use super::figure::{Figure, Panel, Ticks};
use super::lines::{AREA, Line, LineStyle, Lines, OVER_AREA};
use super::samples::{self, ChartColumn};
use super::time::Time;
use crate::figures::short;
use crate::model::gpu::gpu_figure::GpuFigure;
use crate::model::report::{GpuDevice, GpuSeries, Report};
use crate::units::Units;

/// Height of a plot, pixels.
const HEIGHT: f64 = 90.0;
/// Maximum number of points of a plot, which is a third as wide as others.
const MOST_POINTS: f64 = 100.0;
/// Points of a plot if there are many GPUs. They are few, because each adds to the bytes of the page.
const LEAST_POINTS: f64 = 32.0;
/// Points of a quantity for all GPUs together, if each has no more than [`MOST_POINTS`] and no fewer than [`LEAST_POINTS`].
const ALL_POINTS: f64 = 400.0;
/// The GPU's capacity is at the top of the plot of memory, unless it is more than this many times what was used.
const MOST_OF_TOTAL: f64 = 20.0;
/// Parts of the run, each a row, in the table.
const PARTS: f64 = 5.0;

/// Draws a figure for each GPU of which anything is known. The first figure has the note on what all of them show.
pub(super) fn gpus(report: &Report, units: Units, time: &Time) -> Vec<Figure> {
    let device = |id: &str| report.gpus.iter().find(|gpu| gpu.id == id);
    let gpus = report.series.gpus.len() as f64;
    let points = (ALL_POINTS / gpus).clamp(LEAST_POINTS, MOST_POINTS);
    let figure = |gpu: &GpuSeries| figure(gpu, device(&gpu.id)?, units, time, points);
    let mut figures: Vec<Figure> = report.series.gpus.iter().filter_map(figure).collect();
    if let Some(first) = figures.first_mut() {
        first.note = "Utilization and power: means, of all users. Memory: the largest.".to_owned();
    }
    figures
}

/// The figures that are drawn. Lists of values, units and names are in this order.
const SHOWN: [GpuFigure; 7] = [
    GpuFigure::Utilization,
    GpuFigure::MemoryRun,
    GpuFigure::MemoryUsed,
    GpuFigure::Power,
    GpuFigure::SmActive,
    GpuFigure::TensorActive,
    GpuFigure::MemoryBandwidth,
];

/// Draws the figure of a GPU, with about `points` points at most. `None`: nothing is known of the GPU.
fn figure(gpu: &GpuSeries, device: &GpuDevice, units: Units, time: &Time, points: f64) -> Option<Figure> {
    // The `row` of a figure says its unit, and how the values of several points become one: their mean, or the largest.
    let lists = SHOWN.map(|figure| (figure.row().joining, gpu[figure].by(figure.row().joining)));
    let points = time.joined(points, lists);
    // A figure without a `unit` is one of bytes. It is shown in the report's unit of GPU RAM.
    let divisors = SHOWN.map(|figure| figure.row().unit.map_or(units.gpu_ram.bytes(), |_| 1.0));
    let values = std::array::from_fn(|at| {
        points.iter().map(|point| point.values[at].map(|value| value / divisors[at])).collect()
    });
    let (start_s, end_s): (Vec<_>, Vec<_>) = points.iter().map(|point| (point.start_s, point.end_s)).unzip();
    let time = time.of_points(&start_s, &end_s);
    let panels = panels(&values, device, units, &time);
    if panels.is_empty() {
        return None;
    }
    let number = device.index.map_or_else(|| device.id.clone(), |index| index.to_string());
    let title = format!("GPU {number} {}", device.name.as_deref().unwrap_or_default()).trim().to_owned();
    let memory = units.gpu_ram.symbol();
    let names = [
        ("utilization", "%"),
        ("run", memory),
        ("all users", memory),
        ("power", "W"),
        ("SMs", "%"),
        ("tensor cores", "%"),
        ("bandwidth", "%"),
    ];
    let columns = names.into_iter().zip(SHOWN.map(|figure| figure.row().joining)).zip(&values);
    let known = columns.filter(|(_, values)| values.iter().any(Option::is_some));
    let quantities: Vec<ChartColumn> = known
        .map(|(((name, unit), joining), values)| ChartColumn::new(name, unit, joining, values))
        .collect();
    let table = samples::table(&time, &title, PARTS, &quantities);
    Some(Figure { title, note: String::new(), panels, table })
}

/// Draws the charts of a GPU: utilization, activity, memory, power. Those of which nothing is known are left out. `values` are those
/// of [`SHOWN`] at each point; the legend has the figures of the whole run.
fn panels(
    values: &[Vec<Option<f64>>; SHOWN.len()],
    device: &GpuDevice,
    units: Units,
    time: &Time,
) -> Vec<Panel> {
    let [busy, run, all, power, sms, tensor, bandwidth] = values;
    let percent = |value: Option<f64>| value.map(|value| format!("{value:.0} % mean")).unwrap_or_default();
    let watts =
        |value: Option<f64>| value.map(|value| format!("{} W mean", short(value))).unwrap_or_default();
    let bytes = |value: Option<u64>| value.map(|bytes| units.gpu_bytes(bytes)).unwrap_or_default();
    let largest = run.iter().chain(all).flatten().copied().fold(0.0, f64::max);
    let total = device.memory.total_bytes.map(|bytes| units.gpu_ram.convert(bytes as f64));
    let total = total.filter(|total| *total <= largest * MOST_OF_TOTAL);
    let line = |name: &str, values, figure| Line { name: name.to_owned(), values, figure };
    let busy = line("busy", busy, percent(device.utilization.mean_percent));
    let run = line("of the run", run, bytes(device.memory.max_combined_bytes));
    let all = line("of all users", all, bytes(device.memory.max_used_bytes));
    let power = line("power", power, watts(device.power.mean_w));
    let activity = &device.activity;
    let sms = line("SMs", sms, percent(activity.mean_sm_percent));
    let tensor = line("tensor cores", tensor, percent(activity.mean_tensor_percent));
    let bandwidth = line("memory bandwidth", bandwidth, percent(activity.mean_memory_bandwidth_percent));
    let panels = [
        ("Utilization", "%", Some(100.0), vec![(busy, AREA), (bandwidth, OVER_AREA)]),
        ("Activity", "%", Some(100.0), vec![(sms, AREA), (tensor, OVER_AREA)]),
        ("Memory", units.gpu_ram.symbol(), total, vec![(run, AREA), (all, OVER_AREA)]),
        ("Power", "W", None, vec![(power, AREA)]),
    ];
    let panel = |(label, unit, top, mut lines): (&str, &str, Option<f64>, Vec<(Line, LineStyle)>)| {
        lines.retain(|(line, _)| line.values.iter().any(Option::is_some));
        let (label, unit, ticks) = (label.to_owned(), unit.to_owned(), Ticks { time: 2, values: 3 });
        Lines { label, unit, height: HEIGHT, ticks, top, lines }.panel(time)
    };
    panels.into_iter().filter_map(panel).collect()
}
