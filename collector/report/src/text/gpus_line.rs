//! The output of `gpu-track gpus -f line`: one line a GPU, with the processes on it, as users of gpustat know it.

use super::terminal::Look;
use crate::document::Tone;
use crate::figures::UNKNOWN;
use crate::model::gpu::gpu_figure::GpuFigure;
use crate::model::gpu::listing::{Listed, ListedProcess, Listing};
use crate::model::style::Console;
use crate::quote;

/// Bytes of a MiB.
const MIB: u64 = 1 << 20;
/// A GPU that is hotter than this is near to where it slows itself, degrees Celsius.
const HOT_C: f64 = 80.0;
/// The part of the time or memory from which a GPU has little left.
const FULL_PART: f64 = 0.9;

/// Renders a line for each GPU, with a newline at the end: `[0] NVIDIA H100 | 54'C,  87 %, 301 W | 11719 / 81920 MiB | ada/python3(10490M)`.
pub(crate) fn gpus_line(listing: &Listing, console: Console) -> String {
    let look = Look { console };
    let names: Vec<String> = listing.gpus.iter().map(|gpu| look.text(name(gpu))).collect();
    let width = names.iter().map(|name| quote::width(name)).max().unwrap_or(0);
    let mut lines: Vec<String> =
        listing.gpus.iter().zip(&names).map(|(gpu, name)| line(gpu, name, width, look)).collect();
    if listing.gpus.is_empty() && listing.drivers.is_empty() {
        lines.push("no GPU".to_owned());
    }
    lines.extend(listing.drivers.iter().map(|driver| look.text(&driver.to_string())));
    lines.extend(listing.warnings.iter().map(|warning| look.text(warning)));
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// What a GPU is called.
fn name(gpu: &Listed) -> &str {
    gpu.device.name.as_deref().unwrap_or(&gpu.device.id)
}

/// The line of a GPU, whose name takes `width` columns.
fn line(gpu: &Listed, name: &str, width: usize, look: Look) -> String {
    let figures = &gpu.now.figures;
    let number = gpu.device.index.map_or_else(|| "-".to_owned(), |index| index.to_string());
    let cell = |figure: GpuFigure, places: usize, unit: &str| {
        let text = figures[figure].map_or(UNKNOWN.to_owned(), |value| format!("{value:.0}"));
        format!("{text:>places$}{unit}")
    };
    let tone = |is_high: bool| if is_high { Tone::Bad } else { Tone::Good };
    let heat = tone(figures[GpuFigure::Temperature] >= Some(HOT_C));
    let temperature = look.paint(heat, &cell(GpuFigure::Temperature, 3, "'C"));
    let busy = look.paint(Tone::Good, &cell(GpuFigure::Utilization, 3, " %"));
    let power = cell(GpuFigure::Power, 4, " W");
    let used = figures[GpuFigure::MemoryUsed].map(|bytes| bytes as u64);
    let full =
        used.zip(gpu.device.memory_bytes).is_some_and(|(used, all)| used as f64 >= all as f64 * FULL_PART);
    let mib = |bytes: Option<u64>| bytes.map_or(UNKNOWN.to_owned(), |bytes| (bytes / MIB).to_string());
    let memory = format!("{:>6} / {:>6} MiB", mib(used), mib(gpu.device.memory_bytes));
    let memory = look.paint(if full { Tone::Bad } else { Tone::Caution }, &memory);
    let processes = match &gpu.now.processes {
        None => "processes n/a".to_owned(),
        Some(listed) => listed.iter().map(|one| process(one, look)).collect::<Vec<_>>().join(" "),
    };
    let name = format!("{name}{}", " ".repeat(width.saturating_sub(quote::width(name))));
    format!("[{number}] {name} | {temperature}, {busy}, {power} | {memory} | {processes}")
        .trim_end()
        .to_owned()
}

/// A process on a GPU: `ada/python3(10490M)`; its pid for a name that is not known.
fn process(process: &ListedProcess, look: Look) -> String {
    let user = look.text(process.user.as_deref().unwrap_or(UNKNOWN));
    let command =
        process.command.as_ref().map_or_else(|| process.pid.to_string(), |command| look.text(command));
    let memory = process.memory_bytes.map_or(UNKNOWN.to_owned(), |bytes| format!("{}M", bytes / MIB));
    format!("{user}/{command}({memory})")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::gpu::Device;
    use crate::model::gpu::gpu_figure::ByGpuFigure;
    use crate::model::gpu::listing::GpuNow;

    // Requirement: GPU-81
    #[test]
    fn each_gpu_has_one_line_with_the_processes_on_it() {
        let process = |pid, user: Option<&str>, command: Option<&str>, mib: u64| ListedProcess {
            pid,
            user: user.map(Into::into),
            command: command.map(Into::into),
            memory_bytes: Some(mib * MIB),
            ..ListedProcess::default()
        };
        let gpu = |index, name: &str, now| Listed {
            device: Device {
                index: Some(index),
                name: Some(name.into()),
                memory_bytes: Some(81_920 * MIB),
                ..Device::default()
            },
            tracked: true,
            visible: None,
            figures: vec![],
            now,
        };
        let figures = ByGpuFigure::default()
            .with(GpuFigure::Temperature, Some(84.0))
            .with(GpuFigure::Utilization, Some(87.4))
            .with(GpuFigure::Power, Some(301.0))
            .with(GpuFigure::MemoryUsed, Some((11_719 * MIB) as f64));
        let on_it = vec![process(7, Some("ada"), Some("python3"), 10_490), process(9, None, None, 5)];
        let busy = GpuNow { figures, processes: Some(on_it), ..GpuNow::default() };
        let gpus = vec![gpu(0, "NVIDIA H100", busy), gpu(1, "A2", GpuNow::default())];
        let listing = Listing { count: Some(2), gpus, ..Listing::default() };
        let expected = "\
[0] NVIDIA H100 |  84'C,  87 %,  301 W |  11719 /  81920 MiB | ada/python3(10490M) n/a/9(5M)
[1] A2          | n/a'C, n/a %,  n/a W |    n/a /  81920 MiB | processes n/a
";
        assert_eq!(gpus_line(&listing, Console::default()), expected);
        let coloured = gpus_line(&listing, Console { has_colour: true, ..Console::default() });
        assert!(coloured.contains("\x1b[") && coloured.lines().count() == 2, "{coloured:?}");
    }
}
