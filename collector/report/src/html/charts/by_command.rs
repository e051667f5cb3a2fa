//! The charts of RAM and of busy cores by command, each with a line for what the run may use.

use super::alerts::AlertMarks;
use super::figure::Figure;
use super::marks;
use super::samples::{self, ChartColumn};
use super::stack::{DrawnLimit, DrawnPeak, Layer, Stack};
use super::time::Time;
use crate::figures::short;
use crate::html::colours;
use crate::model::report::{Cause, CommandSeries, CoresSource, MemorySource, Report};
use crate::model::sorting::Sorting;
use crate::over_time::Joining;
use crate::quote;
use crate::sections::{busy_cores, cause};
use crate::units::Units;

/// What the legend calls the line of the largest RAM of all commands together.
const LARGEST: &str = "largest of all";
/// What the legend calls the line of the largest CPU utilization in a window of 100 ms or more.
const BUSIEST: &str = "largest in 100 ms";
/// What the legend calls either line in a report of several nodes, whose largest values need not have come at one time.
const AT_MOST: &str = "at most, of all";
/// The note of a chart of several nodes, which has no commands.
const SEVERAL_NODES_NOTE: &str = "Line: an upper bound in each point, the sum of the nodes' largest values.";
/// Maximum number of columns of a name in the head of a table.
const NAME_COLUMNS: usize = 40;
/// A series that ends before the run does, by less than this part of the run, counts as one of the whole run.
const NEGLIGIBLE: f64 = 0.01;

/// Draws RAM by command. `None`: nothing is known of it.
pub(super) fn ram(report: &Report, units: Units, time: &Time) -> Option<Figure> {
    let series = &report.series;
    let in_unit = |bytes: &[Option<f64>]| convert(bytes, |bytes| units.ram.convert(bytes));
    let text = |bytes: Option<f64>| bytes.map(|bytes| units.bytes(bytes as u64)).unwrap_or_default();
    // A command's layer, and before it the number by which layers are ordered. `at`: the command's place in the report's list.
    let layer = |(at, command): (usize, &CommandSeries)| {
        let largest = command.ram_bytes.largest();
        let layer = Layer {
            name: command.command.clone(),
            colour: colour(at),
            values: in_unit(&command.ram_bytes.mean),
            figure: text(largest),
        };
        (largest.unwrap_or(0.0), layer)
    };
    let stack = Stack {
        label: "RAM of each command, stacked".to_owned(),
        unit: units.ram.symbol().to_owned(),
        layers: largest_first(series.commands.iter().enumerate().map(layer)),
        others: series.other_commands.as_ref().map(|others| Layer::others(in_unit(&others.mean_ram_bytes))),
        largest: in_unit(&series.ram_bytes.combined.max),
        largest_name: if report.merged.is_some() { AT_MOST } else { LARGEST },
        largest_figure: text(series.ram_bytes.combined.largest()),
        limit: ram_limit(report, units),
        peak: ram_peak(report, units, time),
    };
    let alerts = AlertMarks::of_ram(report);
    let end_mark = out_of_memory_mark(report, units, time).unwrap_or_default();
    if report.merged.is_some() {
        return draw("RAM", SEVERAL_NODES_NOTE, stack, &alerts, &end_mark, time);
    }
    let note = "Areas: mean RAM that each command adds at samples; none where no sample saw it. Line: the largest of all at any \
                time. Numbers below: the largest of each at samples.";
    draw("RAM by command", note, stack, &alerts, &end_mark, time)
}

/// Draws the mark of the moment at which a lack of memory ended a process. `None`: none did, or the moment is not known.
fn out_of_memory_mark(report: &Report, units: Units, time: &Time) -> Option<String> {
    let cause = report.ending.cause.as_ref()?;
    let process = match cause {
        Cause::OutOfMemory(shortage) => shortage.process.as_ref()?,
        Cause::AddressSpaceLimit(end) => &end.process,
        _ => return None,
    };
    let words = format!("{} at {}", cause::title(cause)?.to_lowercase(), time.text(process.at_s));
    Some(marks::end(time.part(process.at_s), &words, &cause::evidence(cause, units)?))
}

/// The memory that the run may use, in the report's unit, and whose limit that is. `None`: it is not known.
fn ram_limit(report: &Report, units: Units) -> Option<DrawnLimit> {
    let memory = &report.usable.memory;
    let bytes = memory.bytes.filter(|bytes| *bytes > 0)?;
    let whose = match memory.source {
        Some(MemorySource::Cgroup) => "limit",
        Some(MemorySource::Slurm) => "Slurm",
        Some(MemorySource::Machine) | None => "machine",
    };
    Some(DrawnLimit {
        value: units.ram.convert(bytes as f64),
        words: format!("{whose} {}", units.bytes(bytes)),
    })
}

/// The moment of the largest RAM. `None`: it is not known.
fn ram_peak(report: &Report, units: Units, time: &Time) -> Option<DrawnPeak> {
    let peak = report.peak.as_ref()?;
    Some(DrawnPeak {
        at_s: peak.at_s,
        value: units.ram.convert(peak.footprint_bytes as f64),
        words: format!("peak {} at {}", units.bytes(peak.footprint_bytes), time.text(peak.at_s)),
    })
}

/// Draws busy cores by command. `None`: nothing is known of them.
pub(super) fn cpu(report: &Report, time: &Time) -> Option<Figure> {
    let series = &report.series;
    let in_cores = |percent: &[Option<f64>]| convert(percent, |percent| percent / 100.0);
    // As in `ram`: the layer, and before it the number by which layers are ordered.
    let layer = |(at, command): (usize, &CommandSeries)| {
        let values = in_cores(&command.mean_cpu_percent);
        let mean = mean_over_time(time, &values);
        let figure = mean.map(busy_cores).unwrap_or_default();
        (mean.unwrap_or(0.0), Layer { name: command.command.clone(), colour: colour(at), values, figure })
    };
    let largest = series.cpu_percent.combined.largest().map(|percent| busy_cores(percent / 100.0));
    let stack = Stack {
        label: "Busy cores of each command, stacked".to_owned(),
        unit: "cores".to_owned(),
        layers: largest_first(series.commands.iter().enumerate().map(layer)),
        others: series
            .other_commands
            .as_ref()
            .map(|others| Layer::others(in_cores(&others.mean_cpu_percent))),
        largest: in_cores(&series.cpu_percent.combined.max),
        largest_name: if report.merged.is_some() { AT_MOST } else { BUSIEST },
        largest_figure: largest.unwrap_or_default(),
        limit: core_limit(report),
        peak: None,
    };
    let alerts = AlertMarks::of_cores(report);
    if report.merged.is_some() {
        return draw("CPU", SEVERAL_NODES_NOTE, stack, &alerts, "", time);
    }
    let last_s = series.end_s.last().copied().unwrap_or(0.0);
    let span = if last_s < time.wall_s * (1.0 - NEGLIGIBLE) { "the time that is drawn" } else { "the run" };
    let note = format!(
        "Areas: mean number of cores that each command kept busy. Line: the largest of all in a window of 100 ms or more, \
         which shorter areas can be above. Numbers below: means over {span}."
    );
    draw("CPU by command", &note, stack, &alerts, "", time)
}

/// The number of cores that the run may use, and whose limit that is. `None`: it is not known.
fn core_limit(report: &Report) -> Option<DrawnLimit> {
    let count = report.usable.cores.count;
    let whose = match report.usable.cores.source {
        CoresSource::NExpectedCores => "expected",
        CoresSource::Affinity => "usable",
        CoresSource::CgroupQuota => "limit",
        CoresSource::Slurm => "Slurm",
        CoresSource::BatchSlots => "job",
        CoresSource::Machine => "machine",
    };
    (count > 0.0).then(|| DrawnLimit { value: count, words: format!("{whose} {}", cores(count)) })
}

/// Makes the figure of a stack of commands: the chart, with marks of what alerts and limits did, and its tables. `end_mark`: that
/// of [`out_of_memory_mark`], or empty. `None`: no value is known, or all are zero.
fn draw(
    title: &str,
    note: &str,
    stack: Stack,
    alerts: &AlertMarks,
    end_mark: &str,
    time: &Time,
) -> Option<Figure> {
    let quantity = |name: &str, joining, values| {
        ChartColumn::new(&quote::cut_middle(&quote::escape(name), NAME_COLUMNS), &stack.unit, joining, values)
    };
    let layers = stack.layers.iter().chain(&stack.others);
    let layers = layers.map(|layer| quantity(&layer.name, Joining::Mean, layer.values.as_slice()));
    let largest = quantity(stack.largest_name, Joining::Largest, &stack.largest);
    let quantities: Vec<ChartColumn> = layers.chain([largest]).collect();
    let table = samples::table(time, title, samples::PARTS, &quantities) + &alerts.table(title, time);
    let mut panel = stack.panel(time)?;
    // SVG draws in the order of the text: the marks of alerts come first, so that names, limit and peak are drawn over them.
    panel.overlay.insert_str(0, &alerts.marks(time));
    panel.overlay += end_mark;
    let note = note.to_owned() + alerts.note();
    Some(Figure { title: title.to_owned(), note, panels: vec![panel], table })
}

/// Converts the known values by `in_unit`. Unknown ones stay unknown.
pub(super) fn convert(values: &[Option<f64>], in_unit: impl Fn(f64) -> f64) -> Vec<Option<f64>> {
    values.iter().map(|value| value.map(&in_unit)).collect()
}

/// The mean of the values over the time in which they are known. `None`: none is known.
fn mean_over_time(time: &Time, values: &[Option<f64>]) -> Option<f64> {
    let known =
        || time.points(values).filter_map(|(start_s, end_s, value)| Some((end_s - start_s, (*value)?)));
    let length_s: f64 = known().map(|(length_s, _)| length_s).sum();
    let sum: f64 = known().map(|(length_s, value)| length_s * value).sum();
    (length_s > 0.0).then(|| sum / length_s)
}

/// Orders layers by size, the number beside each. The largest comes first, which is at the bottom of the stack.
fn largest_first(layers: impl Iterator<Item = (f64, Layer)>) -> Vec<Layer> {
    let mut layers: Vec<(f64, Layer)> = layers.collect();
    layers.order_by(|(a, _), (b, _)| b.total_cmp(a));
    layers.into_iter().map(|(_, layer)| layer).collect()
}

/// The colour of the command at this place in the report's list. Places beyond the palette have the colour of other commands.
pub(super) fn colour(at: usize) -> &'static str {
    colours::COMMANDS.get(at).copied().unwrap_or(colours::OTHERS)
}

/// Writes a number of cores: `2 cores`.
fn cores(count: f64) -> String {
    let plural = if (count - 1.0).abs() < 1e-9 { "" } else { "s" };
    let number = if count.fract() == 0.0 { format!("{count}") } else { short(count) };
    format!("{number} core{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::report::Series;
    use gpu_track_core::fixtures::full;

    #[test]
    fn mean_is_of_the_known_time_and_unknown_without_any() {
        let units = Units::choose(&full(), &crate::model::style::Style::default());
        let series = Series { start_s: vec![0.0, 1.0], end_s: vec![1.0, 3.0], ..Series::default() };
        let time = Time::new(&series, 3.0, units);
        assert_eq!(mean_over_time(&time, &[Some(3.0), Some(6.0)]), Some(5.0));
        assert_eq!(mean_over_time(&time, &[Some(3.0), None]), Some(3.0));
        assert_eq!(mean_over_time(&time, &[None, None]), None);
    }
}
