//! The default columns of `nvidia-smi dmon` and `nvidia-smi pmon`, and the list of `nvidia-smi -L`, for scripts that read those.

use super::terminal::Look;
use crate::model::gpu::Work;
use crate::model::gpu::gpu_figure::GpuFigure;
use crate::model::gpu::listing::{Listed, ListedProcess, Listing};
use crate::model::gpu_query::whole;
use crate::model::style::Console;

/// What stands for a figure that is not known.
const UNKNOWN: &str = "-";

/// The columns of dmon behind the number of the GPU: head, unit, and figure. `None`: the figure is not read.
const DEVICE: [(&str, &str, Option<GpuFigure>); 11] = [
    ("pwr", "W", Some(GpuFigure::Power)),
    ("gtemp", "C", Some(GpuFigure::Temperature)),
    ("mtemp", "C", Some(GpuFigure::MemoryTemperature)),
    ("sm", "%", Some(GpuFigure::Utilization)),
    ("mem", "%", Some(GpuFigure::MemoryUtilization)),
    ("enc", "%", Some(GpuFigure::EncoderUtilization)),
    ("dec", "%", Some(GpuFigure::DecoderUtilization)),
    ("jpg", "%", None),
    ("ofa", "%", None),
    ("mclk", "MHz", Some(GpuFigure::MemoryClock)),
    ("pclk", "MHz", Some(GpuFigure::SmClock)),
];
/// The columns of pmon's percentages. Only that of `sm` is read.
const PROCESS: [&str; 6] = ["sm", "mem", "enc", "dec", "jpg", "ofa"];

/// Renders a line for each GPU, with a newline at the end. `has_head`: the two lines of heads come first.
pub(crate) fn dmon(listing: &Listing, has_head: bool) -> String {
    let heads = || {
        let cells = |of: fn(&(&'static str, &'static str, Option<GpuFigure>)) -> &'static str| {
            DEVICE.iter().map(|column| format!(" {:>6}", of(column))).collect::<String>()
        };
        format!("# gpu{} \n# Idx{} \n", cells(|column| column.0), cells(|column| column.1))
    };
    let line = |gpu: &&Listed| {
        let cell = |figure: Option<GpuFigure>| {
            let value = figure.and_then(|figure| gpu.now.figures[figure]);
            format!(" {:>6}", value.map_or(UNKNOWN.to_owned(), |value| format!("{value:.0}")))
        };
        let cells: String = DEVICE.iter().map(|(_, _, figure)| cell(*figure)).collect();
        format!("{:>5}{cells} \n", number(gpu))
    };
    let head = if has_head { heads() } else { String::new() };
    head + &whole(listing).iter().map(line).collect::<String>()
}

/// Renders a line for each process on a GPU, with a newline at the end, and one for each GPU without a process. `has_head`: the two
/// lines of heads come first.
pub(crate) fn pmon(listing: &Listing, has_head: bool) -> String {
    let mut text = String::new();
    if has_head {
        let cells = |cells: [&str; 6]| cells.map(|cell| format!(" {cell:>6}")).concat();
        text += &format!("# gpu         pid   type{}    command \n", cells(PROCESS));
        text += &format!("# Idx           #    C/G{}    name \n", cells(["%"; 6]));
    }
    for gpu in whole(listing) {
        let all = std::iter::once(gpu).chain(listing.parts(gpu));
        let processes: Vec<_> = all.flat_map(|gpu| gpu.now.processes.iter().flatten()).collect();
        if processes.is_empty() {
            text += &process_line(gpu, UNKNOWN, UNKNOWN, None, UNKNOWN);
        }
        for process in processes {
            let command = command(process);
            let pid = process.pid.to_string();
            text += &process_line(gpu, &pid, work(process.work), process.utilization_percent, &command);
        }
    }
    text
}

/// Renders a line for each GPU, and below it one for each of its MIG instances, with a newline at the end.
pub(crate) fn list(listing: &Listing) -> String {
    let look = Look { console: Console::default() };
    let name = |gpu: &Listed| look.text(gpu.device.name.as_deref().unwrap_or(UNKNOWN));
    let uuid = |gpu: &Listed| look.text(gpu.device.uuid.as_ref().unwrap_or(&gpu.device.id));
    let mut text = String::new();
    let instance = |part: &Listed, number: &str| {
        // The name ends with that of the instance's profile.
        let name = name(part);
        let profile = name.split_once("MIG ").map_or(UNKNOWN, |(_, profile)| profile);
        format!("  MIG {profile:<12}Device {number:>2}: (UUID: {})\n", uuid(part))
    };
    for gpu in whole(listing) {
        // The options left out its GPU, so its number there is not known.
        if gpu.device.parent.is_some() {
            text += &instance(gpu, UNKNOWN);
            continue;
        }
        text += &format!("GPU {}: {} (UUID: {})\n", number(gpu), name(gpu), uuid(gpu));
        for (count, part) in listing.parts(gpu).enumerate() {
            text += &instance(part, &count.to_string());
        }
    }
    text
}

/// A line of pmon. `percent`: the process's utilization.
fn process_line(gpu: &Listed, pid: &str, work: &str, percent: Option<f64>, command: &str) -> String {
    let sm = percent.map_or(UNKNOWN.to_owned(), |percent| format!("{percent:.0}"));
    let others = [UNKNOWN; 5].map(|cell| format!(" {cell:>6}")).concat();
    format!("{:>5} {pid:>11} {work:>6} {sm:>6}{others}    {command} \n", number(gpu))
}

/// The driver's number of a GPU.
fn number(gpu: &Listed) -> String {
    gpu.device.index.map_or_else(|| UNKNOWN.to_owned(), |index| index.to_string())
}

/// The command name of a process, without blanks and control characters, so that it is one word.
fn command(process: &ListedProcess) -> String {
    let name = process.command.as_deref().unwrap_or(UNKNOWN);
    Look { console: Console::default() }.text(name).replace(char::is_whitespace, "_")
}

/// What a process does, as pmon writes it.
fn work(work: Work) -> &'static str {
    match work {
        Work::Unknown => UNKNOWN,
        Work::Compute => "C",
        Work::Graphics => "G",
        Work::Both => "C+G",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::gpu::Device;
    use crate::model::gpu::gpu_figure::ByGpuFigure;
    use crate::model::gpu::listing::GpuNow;

    // Requirement: GPU-81
    #[test]
    fn default_columns_are_those_of_nvidia_smi() {
        let figures = ByGpuFigure::default()
            .with(GpuFigure::Power, Some(118.6))
            .with(GpuFigure::Temperature, Some(59.0))
            .with(GpuFigure::MemoryTemperature, Some(64.0))
            .with(GpuFigure::Utilization, Some(100.0))
            .with(GpuFigure::MemoryClock, Some(6800.0))
            .with(GpuFigure::SmClock, Some(1665.0));
        let process = ListedProcess {
            pid: 4711,
            command: Some("my tool\n".into()),
            work: Work::Both,
            utilization_percent: Some(61.4),
            ..ListedProcess::default()
        };
        let gpu = |index, processes| Listed {
            device: Device { id: format!("{index}"), index: Some(index), ..Device::default() },
            tracked: true,
            visible: None,
            figures: vec![],
            now: GpuNow { figures, processes: Some(processes), ..GpuNow::default() },
        };
        let listing = Listing { gpus: vec![gpu(0, vec![process]), gpu(1, vec![])], ..Listing::default() };
        let expected = "\
# gpu    pwr  gtemp  mtemp     sm    mem    enc    dec    jpg    ofa   mclk   pclk \n\
# Idx      W      C      C      %      %      %      %      %      %    MHz    MHz \n    \
0    119     59     64    100      -      -      -      -      -   6800   1665 \n    \
1    119     59     64    100      -      -      -      -      -   6800   1665 \n";
        assert_eq!(dmon(&listing, true), expected);
        assert_eq!(dmon(&listing, false).lines().count(), 2);
        let expected = "\
# gpu         pid   type     sm    mem    enc    dec    jpg    ofa    command \n\
# Idx           #    C/G      %      %      %      %      %      %    name \n    \
0        4711    C+G     61      -      -      -      -      -    my_tool\\n \n    \
1           -      -      -      -      -      -      -      -    - \n";
        assert_eq!(pmon(&listing, true), expected);
    }

    /// The options can leave out the GPU of an instance.
    // Requirement: GPU-81
    #[test]
    fn instance_without_its_gpu_is_listed_as_an_instance() {
        let device = Device {
            id: "MIG-a".into(),
            name: Some("H100 MIG 1g.10gb".into()),
            parent: Some("GPU-0".into()),
            ..Device::default()
        };
        let now = GpuNow::default();
        let part = Listed { device, tracked: true, visible: None, figures: vec![], now };
        let listing = Listing { gpus: vec![part], ..Listing::default() };
        assert_eq!(list(&listing), "  MIG 1g.10gb     Device  -: (UUID: MIG-a)\n");
    }
}
