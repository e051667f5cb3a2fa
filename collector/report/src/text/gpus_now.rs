//! The output of `gpu-track gpus` as text: a line for each GPU, and below it one for each process on it.

use super::table::with_figures;
use super::terminal::{Look, left};
use crate::figures::{UNKNOWN, bytes};
use crate::model::gpu::gpu_figure::GpuFigure;
use crate::model::gpu::listing::{Listed, ListedProcess, Listing};
use crate::model::style::Console;

/// How many columns have words, the number of a GPU and its name. They come before [`FIGURES`].
const WORD_COLUMNS: usize = 2;
/// The columns of figures: the head, and the figure. `None`: its capacity.
const FIGURES: [(&str, Option<GpuFigure>); 7] = [
    ("used", Some(GpuFigure::MemoryUsed)),
    ("free", Some(GpuFigure::MemoryFree)),
    ("total", None),
    ("util", Some(GpuFigure::Utilization)),
    ("temp", Some(GpuFigure::Temperature)),
    ("power", Some(GpuFigure::Power)),
    ("state", Some(GpuFigure::Pstate)),
];

/// Columns of the name of a process's user.
const USER: usize = 10;
/// Columns of a process's command.
const COMMAND: usize = 15;

/// Renders the GPUs as they are now, with a newline at the end.
pub(crate) fn gpus_now(listing: &Listing) -> String {
    let look = Look { console: Console::default() };
    let mut lines = if listing.gpus.is_empty() { Vec::new() } else { table(&listing.gpus, look) };
    if listing.gpus.is_empty() && listing.drivers.is_empty() {
        lines.push("no GPU".to_owned());
    }
    lines.extend(listing.drivers.iter().map(|driver| look.text(&driver.to_string())));
    lines.extend(listing.warnings.iter().map(|warning| look.text(warning)));
    lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// The line of heads, then for each GPU its line and those of its processes.
fn table(gpus: &[Listed], look: Look) -> Vec<String> {
    let heads = ["GPU", "name"].into_iter().chain(FIGURES.map(|(head, _)| head)).map(str::to_owned).collect();
    let rows: Vec<_> = std::iter::once(heads).chain(gpus.iter().map(|gpu| row(gpu, look))).collect();
    let below = std::iter::once(Vec::new()).chain(gpus.iter().map(|gpu| processes(gpu, look)));
    let lines = with_figures(&rows, WORD_COLUMNS).into_iter().zip(below);
    lines.flat_map(|(line, below)| std::iter::once(line).chain(below)).collect()
}

/// The cells of a GPU.
fn row(gpu: &Listed, look: Look) -> Vec<String> {
    let device = &gpu.device;
    let figure = |figure: GpuFigure| {
        let value = gpu.now.figures[figure]?;
        Some(match figure.row().unit {
            None => bytes(value as u64),
            Some("") => format!("P{value}"),
            Some(unit) => format!("{value:.0} {unit}"),
        })
    };
    let cell = |(_, shown): (&str, Option<GpuFigure>)| {
        shown.map_or_else(|| device.memory_bytes.map(bytes), figure).unwrap_or_else(|| UNKNOWN.to_owned())
    };
    let number = device.index.map_or_else(|| look.text(&device.id), |index| index.to_string());
    let name = look.text(device.name.as_deref().unwrap_or(UNKNOWN));
    [number, name].into_iter().chain(FIGURES.map(cell)).collect()
}

/// A line for each process on a GPU, or one line if the processes are not known.
fn processes(gpu: &Listed, look: Look) -> Vec<String> {
    let Some(listed) = &gpu.now.processes else {
        return vec!["     processes: n/a".to_owned()];
    };
    let line = |process: &ListedProcess| {
        let memory = process.memory_bytes.map_or(UNKNOWN.to_owned(), bytes);
        let word = |word: &Option<String>| look.text(word.as_deref().unwrap_or(UNKNOWN));
        let (user, command) = (word(&process.user), word(&process.command));
        format!("     {:>7}  {}  {}  {memory}", process.pid, left(&user, USER), left(&command, COMMAND))
    };
    listed.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::gpu::Device;
    use crate::model::gpu::gpu_figure::ByGpuFigure;
    use crate::model::gpu::listing::{Driver, GpuNow, ListedProcess};

    #[test]
    fn each_gpu_has_a_line_and_each_process_on_it() {
        let device = |index, name: &str| Device {
            index: Some(index),
            name: Some(name.to_owned()),
            memory_bytes: Some(80_000_000_000),
            ..Device::default()
        };
        let gpu = |device, now| Listed { device, tracked: true, visible: None, figures: vec![], now };
        let process = |pid, user: Option<&str>, command: Option<&str>, memory_bytes| ListedProcess {
            pid,
            user: user.map(Into::into),
            command: command.map(Into::into),
            memory_bytes,
            ..ListedProcess::default()
        };
        let busy = GpuNow {
            figures: ByGpuFigure::default()
                .with(GpuFigure::MemoryUsed, Some(12e9))
                .with(GpuFigure::MemoryFree, Some(68e9))
                .with(GpuFigure::Utilization, Some(87.4))
                .with(GpuFigure::Temperature, Some(54.0))
                .with(GpuFigure::Power, Some(301.7))
                .with(GpuFigure::Pstate, Some(0.0)),
            processes: Some(vec![
                process(4711, Some("ada"), Some("python3"), Some(11_000_000_000)),
                process(9, None, Some("a\x1b[2J\u{9b}"), None),
            ]),
            ..GpuNow::default()
        };
        let listing = Listing {
            count: Some(2),
            gpus: vec![gpu(device(0, "H100"), busy), gpu(device(1, "A100 80GB"), GpuNow::default())],
            ..Listing::default()
        };
        let expected = "\
GPU  name          used     free    total  util  temp  power  state
0    H100       12.0 GB  68.0 GB  80.0 GB  87 %  54 C  302 W     P0
        4711  ada         python3          11.0 GB
           9  n/a         a\\x1b[2J\\u009b   n/a
1    A100 80GB      n/a      n/a  80.0 GB   n/a   n/a    n/a    n/a
     processes: n/a
";
        assert_eq!(gpus_now(&listing), expected);
        let line = {
            let shown = crate::format::Shown { is_first: true, console: Console::default() };
            crate::format::render_gpus_now(&listing, "json", shown)
        };
        assert!(line.contains("\"a\\u001b[2J\\u009b\"") && line.lines().count() == 1, "{line}");
        assert_eq!(gpus_now(&Listing { count: Some(0), ..Listing::default() }), "no GPU\n");
        let drivers =
            vec![Driver { name: "NVIDIA".into(), reason: "driver not initialised within 30 s".into() }];
        let unknown = gpus_now(&Listing { drivers, ..Listing::default() });
        assert_eq!(unknown, "NVIDIA: driver not initialised within 30 s\n");
    }
}
