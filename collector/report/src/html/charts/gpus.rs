//! A GPU over time: utilization, memory and power.

use super::figure::{Figure, Panel, Ticks};
use super::lines::{Line, Lines};
use super::samples::{self, Quantity};
use super::time::Time;
use crate::figures::short;
use crate::model::gpu::over_time::GpuFigure;
use crate::model::report::{GpuDevice, GpuSeries, Report};
use crate::units::Units;

/// Height of a plot, pixels.
const HEIGHT: f64 = 90.0;
/// Most points of a plot, which is a third as wide as others.
const MOST_POINTS: f64 = 100.0;
/// Points of a plot if there are many GPUs: each adds to the bytes of the page.
const LEAST_POINTS: f64 = 32.0;
/// Points of a quantity that all GPUs share out, as far as the limits of each allow.
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

/// The quantities of a GPU, in as many points as a plot has.
struct Quantities {
    start_s: Vec<f64>,
    end_s: Vec<f64>,
    /// Those of [`SHOWN`]. Bytes are in the report's unit of GPU RAM.
    values: [Vec<Option<f64>>; 4],
}

/// The figures that have a plot or a line in one.
const SHOWN: [GpuFigure; 4] =
    [GpuFigure::Utilization, GpuFigure::MemoryRun, GpuFigure::MemoryUsed, GpuFigure::Power];

impl Quantities {
    /// Joins the points of a GPU's series to about `most` at most, and converts memory to the report's unit.
    fn new(gpu: &GpuSeries, units: Units, time: &Time, most: f64) -> Self {
        let lists = SHOWN.map(|figure| (figure.row().joining, gpu[figure].by(figure.row().joining)));
        let points = time.joined(most, lists);
        // Only bytes have no symbol.
        let divisors = SHOWN.map(|figure| figure.row().unit.map_or(units.gpu_ram.bytes(), |_| 1.0));
        let values_of = |at: usize| {
            points.iter().map(|point| point.values[at].map(|value| value / divisors[at])).collect()
        };
        Self {
            start_s: points.iter().map(|point| point.start_s).collect(),
            end_s: points.iter().map(|point| point.end_s).collect(),
            values: std::array::from_fn(values_of),
        }
    }
}

/// Draws a GPU, in about so many `points` at most. `None`: nothing is known of it.
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
    let columns = names.into_iter().zip(SHOWN.map(|figure| figure.row().joining)).zip(&values);
    let known = columns.filter(|(_, values)| values.iter().any(Option::is_some));
    let quantities: Vec<Quantity> =
        known.map(|((name, joining), values)| Quantity { name, joining, values, is_count: false }).collect();
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
    let total = total.filter(|total| *total <= largest * MOST_OF_TOTAL);
    let line = |name: &str, values, figure| Some(Line { name: name.to_owned(), values, figure });
    let panels = [
        panel(
            "Utilization",
            "%",
            Some(100.0),
            [line("busy", busy, percent(device.utilization.mean_percent)), None],
            time,
        ),
        panel(
            "Memory",
            units.gpu_ram.symbol(),
            total,
            [
                line("of the run", run, bytes(device.memory.max_combined_bytes)),
                line("of all users", all, bytes(device.memory.max_used_bytes)),
            ],
            time,
        ),
        panel("Power", "W", None, [line("power", power, watts(device.power.mean_w)), None], time),
    ];
    panels.into_iter().flatten().collect()
}

/// Draws one chart: an area and a line, without those of which no value is known. `top` is as in [`Lines`]. `None`: no value is
/// known, or all are zero and `top` is not above them.
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
