//! CPU, RAM, I/O and processes: what was used, of how much.

use super::super::look::{Tone, left, right};
use super::context::{Context, FIGURE, LABEL};
use crate::model::report::{Holder, MemorySource, RamSpan};
use crate::report::figures::{percent, short, thousands};

/// Columns of the line of RAM over time: those of the two figures above it.
const SPARKS: usize = 2 * FIGURE - 1;
/// A line of fewer spans of time shows nothing.
const LEAST_SPANS: usize = 4;
/// Most commands that are named as holders of the peak.
const HOLDERS: usize = 3;

/// CPU and RAM, in columns.
pub(super) fn usage(context: &Context) -> Vec<String> {
    let head = format!("{}{}of", " ".repeat(LABEL + 2), left("used", FIGURE));
    let mut lines = vec![context.look.paint(Tone::Faint, &head)];
    lines.push(cpu(context));
    lines.push(ram(context));
    lines.extend(holders(context));
    lines.extend(over_time(context));
    lines
}

/// I/O and processes, where there is something to say.
pub(super) fn io_and_processes(context: &Context) -> Vec<String> {
    [io(context), processes(context)].into_iter().flatten().collect()
}

/// A figure, its whole, and the part that it is.
struct Gauge {
    used: String,
    of: Option<String>,
    part: Option<f64>,
    note: String,
}

impl Context<'_> {
    fn gauge(&self, label: &str, gauge: Gauge) -> String {
        const LEAST_CELLS: usize = 4;
        const PERCENT: usize = " >999 %".len();
        let Gauge { used, of, part, note } = gauge;
        let mut text = figure(&used);
        if let (Some(of), Some(part)) = (of, part.filter(|part| part.is_finite())) {
            text += &figure(&of);
            let cells = self.gauge_cells().min(self.room().saturating_sub(text.len() + "[]".len() + PERCENT));
            let drawn = if cells < LEAST_CELLS { String::new() } else { self.look.gauge(part, cells) };
            let percent = percent(part);
            let taken = text.len() + if cells < LEAST_CELLS { 0 } else { cells + "[]".len() } + PERCENT;
            text += &(drawn + &right(&percent, PERCENT));
            if taken + 2 + note.len() > self.room() {
                return self.painted_row(label, &text);
            }
        }
        let note = if note.is_empty() { note } else { format!("  {}", self.look.paint(Tone::Faint, &note)) };
        self.painted_row(label, &(text + &note))
    }
}

/// In its column; a longer one pushes the others to the right.
fn figure(text: &str) -> String {
    left(&format!("{text} "), FIGURE)
}

/// Cores that were busy.
fn busy_cores(cores: f64) -> String {
    match cores {
        0.0 => "0 cores".to_owned(),
        ..0.005 => "<0.01 cores".to_owned(),
        ..0.0995 => format!("{cores:.2} cores"),
        _ => format!("{} cores", short(cores)),
    }
}

fn cpu(context: &Context) -> String {
    let Context { report, units, .. } = context;
    let Some(total_s) = report.cpu_time.total_s else { return context.row("CPU", "not known") };
    let time = units.seconds(total_s);
    let cores = report.usable.cores.count;
    let is_one = (cores - 1.0).abs() < 1e-9;
    let of = format!("{} {}", cores_in_words(cores), if is_one { "core" } else { "cores" });
    let part = report.cpu_time.usable_percent.map(|percent| percent / 100.0);
    match (report.wall_s > 0.0).then(|| total_s / report.wall_s) {
        Some(busy) => context.gauge("CPU", Gauge { used: busy_cores(busy), of: Some(of), part, note: time }),
        None => context.row("CPU", &time),
    }
}

fn cores_in_words(cores: f64) -> String {
    if cores.fract() == 0.0 { thousands(cores) } else { short(cores) }
}

fn ram(context: &Context) -> String {
    let Context { report, .. } = context;
    let Some(peak) = report.max_ram.combined.total_bytes else {
        return context.row("RAM peak", "not known");
    };
    let memory = &report.usable.memory;
    let note = match memory.source {
        Some(MemorySource::Cgroup) => "limit",
        Some(MemorySource::Slurm) => "Slurm",
        Some(MemorySource::Machine) | None => "",
    };
    let part = memory.bytes.filter(|of| *of > 0).map(|of| peak as f64 / of as f64);
    let of = memory.bytes.map(|of| context.units.bytes(of));
    context.gauge("RAM peak", Gauge { used: context.units.bytes(peak), of, part, note: note.into() })
}

/// What held the RAM at its peak, where that was more than one process.
fn holders(context: &Context) -> Option<String> {
    let peak = context.report.peak.as_ref()?;
    if peak.processes.len() < 2 {
        return None;
    }
    let mut groups: Vec<(&str, usize, u64)> = Vec::new();
    for Holder { command, added_bytes, .. } in &peak.processes {
        match groups.iter_mut().find(|(name, ..)| name == command) {
            Some((_, count, bytes)) => {
                *count += 1;
                *bytes = bytes.saturating_add(*added_bytes);
            }
            None => groups.push((command, 1, *added_bytes)),
        }
    }
    groups.sort_by_key(|(.., bytes)| std::cmp::Reverse(*bytes));
    let at = format!("at {}: ", context.units.seconds(peak.at_s));
    let named = groups.iter().take(HOLDERS).map(|(name, count, bytes)| {
        let count = if *count == 1 { String::new() } else { format!("{count} ") };
        format!("{count}{} {}", name, context.units.bytes(*bytes))
    });
    let text = at + &named.collect::<Vec<_>>().join(", ");
    Some(context.row("", &context.look.text(&text)))
}

fn over_time(context: &Context) -> Option<String> {
    let spans = &context.report.ram_over_time;
    if spans.len() < LEAST_SPANS {
        return None;
    }
    let drawn = context.look.sparkline(&heights(spans, context.report.wall_s, SPARKS));
    let mean = context.report.mean_ram_bytes.combined;
    let mean = mean.map(|mean| format!(" mean {}", context.units.bytes(mean as u64)));
    Some(context.row("RAM over time", &(drawn + &mean.unwrap_or_default())))
}

/// The largest RAM in each of so many equal parts of the run; `None` where no span reaches.
fn heights(spans: &[RamSpan], wall_s: f64, parts: usize) -> Vec<Option<u64>> {
    let mut heights = vec![None; parts];
    let part_of = |at_s: f64| (at_s / wall_s * parts as f64).max(0.0);
    for span in spans {
        let first = part_of(span.start_s) as usize;
        // A span that ends where a part begins is not in it.
        let end = (part_of(span.end_s).ceil() as usize).max(first.saturating_add(1));
        for height in heights.iter_mut().take(end).skip(first) {
            *height = Some(height.unwrap_or(0).max(span.max_bytes));
        }
    }
    heights
}

fn io(context: &Context) -> Option<String> {
    let io = &context.report.io;
    let part = |bytes: Option<u64>, what| {
        let bytes = bytes.filter(|bytes| *bytes > 0)?;
        Some(format!("{} {what}", context.units.io(bytes)))
    };
    let parts: Vec<_> =
        [part(io.read_bytes, "read"), part(io.write_bytes, "written")].into_iter().flatten().collect();
    (!parts.is_empty()).then(|| context.row("I/O", &parts.join(", ")))
}

/// Nothing for one process that is known exactly: the figures above are its own.
fn processes(context: &Context) -> Option<String> {
    let (processes, coverage) = (&context.report.processes, &context.report.coverage);
    let is_exact = coverage.exact == processes.total;
    if processes.total <= 1 && is_exact {
        return None;
    }
    let count = |n: u64| thousands(n as f64);
    let mut text = format!("{}, at most {} at once", count(processes.total), count(processes.max_concurrent));
    if is_exact && context.report.cpu_time.above_kernel_s().is_none() {
        text += ", all exact";
    } else {
        for (n, what) in
            [(coverage.exact, "exact"), (coverage.sampled, "sampled"), (coverage.unknown, "unknown")]
        {
            if n > 0 {
                text += &format!(", {} {what}", count(n));
            }
        }
    }
    Some(context.row("Processes", &text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_of_the_run_has_the_largest_of_its_spans() {
        let span =
            |start_s, end_s, max_bytes| RamSpan { start_s, end_s, min_bytes: 0, mean_bytes: None, max_bytes };
        let spans = [span(0.0, 1.0, 5), span(1.0, 1.5, 9), span(1.5, 3.0, 2)];
        assert_eq!(heights(&spans, 4.0, 4), [Some(5), Some(9), Some(2), None]);
        assert_eq!(heights(&spans, 3.0, 2), [Some(9), Some(2)]);
        assert_eq!(heights(&[span(0.0, 0.0, 1)], 0.0, 2), [Some(1), None]);
    }
}
