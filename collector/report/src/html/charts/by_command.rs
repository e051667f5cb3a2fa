//! RAM and busy cores by command, with what the run may use.

use super::figure::Figure;
use super::samples::{self, Quantity};
use super::stack::{Layer, Stack};
use super::time::Time;
use crate::figures::short;
use crate::html::colours;
use crate::model::report::{CoresSource, MemorySource, Report};
use crate::over_time::Rule;
use crate::sections::busy_cores;
use crate::units::Units;

/// Draws RAM by command. `None`: nothing is known of it.
pub(super) fn ram(report: &Report, units: Units, time: &Time) -> Option<Figure> {
    let series = &report.series;
    let in_unit = |values: &[Option<f64>]| -> Vec<Option<f64>> {
        values.iter().map(|bytes| bytes.map(|bytes| units.ram.convert(bytes))).collect()
    };
    let figure = |bytes: Option<f64>| bytes.map(|bytes| units.bytes(bytes as u64)).unwrap_or_default();
    let mut layers: Vec<(f64, Layer)> = series
        .commands
        .iter()
        .enumerate()
        .map(|(at, command)| {
            let largest = command.ram_bytes.largest();
            let layer = Layer {
                name: command.command.clone(),
                colour: colour(at),
                values: in_unit(&command.ram_bytes.mean),
                figure: figure(largest),
            };
            (largest.unwrap_or(0.0), layer)
        })
        .collect();
    layers.sort_by(|a, b| b.0.total_cmp(&a.0));
    let others = series.other_commands.as_ref().map(|others| others_layer(in_unit(&others.mean_ram_bytes)));
    let memory = &report.usable.memory;
    let limit = memory.bytes.filter(|whole| *whole > 0).map(|whole| {
        let whose = match memory.source {
            Some(MemorySource::Cgroup) => "limit",
            Some(MemorySource::Slurm) => "Slurm",
            Some(MemorySource::Machine) | None => "machine",
        };
        (units.ram.convert(whole as f64), format!("{whose} {}", units.bytes(whole)))
    });
    let peak = report.peak.as_ref().map(|peak| {
        let words = format!("peak {} at {}", units.bytes(peak.footprint_bytes), time.text(peak.at_s));
        (peak.at_s, units.ram.convert(peak.footprint_bytes as f64), words)
    });
    let stack = Stack {
        label: "RAM of each command, stacked".to_owned(),
        unit: units.ram.symbol().to_owned(),
        layers: layers.into_iter().map(|(_, layer)| layer).collect(),
        others,
        largest: in_unit(&series.ram_bytes.combined.max),
        largest_key: ("largest of all".to_owned(), figure(series.ram_bytes.combined.largest())),
        limit,
        peak,
    };
    let note = "Areas: mean RAM that each command adds at samples. Line: the largest of all at any time. Numbers below: the \
                largest of each.";
    draw("RAM by command", note, stack, time)
}

/// Draws busy cores by command. `None`: nothing is known of them.
pub(super) fn cpu(report: &Report, time: &Time) -> Option<Figure> {
    let series = &report.series;
    let in_cores = |values: &[Option<f64>]| -> Vec<Option<f64>> {
        values.iter().map(|percent| percent.map(|percent| percent / 100.0)).collect()
    };
    let mean = |values: &[Option<f64>]| {
        let known =
            || time.points(values).filter_map(|(start_s, end_s, value)| Some((end_s - start_s, (*value)?)));
        let length_s: f64 = known().map(|(length_s, _)| length_s).sum();
        let sum: f64 = known().map(|(length_s, value)| length_s * value).sum();
        if length_s > 0.0 { sum / length_s } else { 0.0 }
    };
    let mut layers: Vec<(f64, Layer)> = series
        .commands
        .iter()
        .enumerate()
        .map(|(at, command)| {
            let values = in_cores(&command.mean_cpu_percent);
            let mean = mean(&values);
            let figure = busy_cores(mean);
            (mean, Layer { name: command.command.clone(), colour: colour(at), values, figure })
        })
        .collect();
    layers.sort_by(|a, b| b.0.total_cmp(&a.0));
    let others =
        series.other_commands.as_ref().map(|others| others_layer(in_cores(&others.mean_cpu_percent)));
    let count = report.usable.cores.count;
    let whose = match report.usable.cores.source {
        CoresSource::NExpectedCores => "expected",
        CoresSource::Affinity => "usable",
        CoresSource::CgroupQuota => "limit",
        CoresSource::Slurm => "Slurm",
        CoresSource::Machine => "machine",
    };
    let largest = series.cpu_percent.combined.largest().map(|percent| busy_cores(percent / 100.0));
    let stack = Stack {
        label: "Busy cores of each command, stacked".to_owned(),
        unit: "cores".to_owned(),
        layers: layers.into_iter().map(|(_, layer)| layer).collect(),
        others,
        largest: in_cores(&series.cpu_percent.combined.max),
        largest_key: ("largest of all".to_owned(), largest.unwrap_or_default()),
        limit: (count > 0.0).then(|| (count, format!("{whose} {}", cores(count)))),
        peak: None,
    };
    let note = "Areas: mean number of cores that each command kept busy. Line: the largest of all in a window of 100 ms or \
                more. Numbers below: means over the run.";
    draw("CPU by command", note, stack, time)
}

fn draw(title: &str, note: &str, stack: Stack, time: &Time) -> Option<Figure> {
    let unit = stack.unit.clone();
    let quantity = |name: &str, rule, values| Quantity { name: format!("{name} [{unit}]"), rule, values };
    let columns = stack.layers.iter().chain(&stack.others);
    let mut quantities: Vec<Quantity> =
        columns.map(|layer| quantity(&layer.name, Rule::Mean, layer.values.as_slice())).collect();
    quantities.push(quantity(&stack.largest_key.0, Rule::Largest, &stack.largest));
    let table = samples::table(time, title, samples::PARTS, &quantities);
    let panel = stack.panel(time)?;
    Some(Figure { title: title.to_owned(), note: note.to_owned(), panels: vec![panel], table })
}

fn others_layer(values: Vec<Option<f64>>) -> Layer {
    Layer { name: "others".to_owned(), colour: colours::OTHERS, values, figure: String::new() }
}

/// Gives the colour of the command at this place in the report's list.
pub(super) fn colour(at: usize) -> &'static str {
    colours::COMMANDS.get(at).copied().unwrap_or(colours::OTHERS)
}

/// Writes what may be used: `2 cores`.
fn cores(count: f64) -> String {
    let plural = if (count - 1.0).abs() < 1e-9 { "" } else { "s" };
    let number = if count.fract() == 0.0 { format!("{count}") } else { short(count) };
    format!("{number} core{plural}")
}
