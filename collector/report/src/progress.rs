//! `--every`: one line about the run as it is now, for stderr.
//!
//! ```text
//! gpu-track 0:01:05  CPU 398%/520%  RAM 1.20/20.1 GB  21 processes  GPU0 87% 34.1/36.0 GB
//! ```
//!
//! Before each slash is the figure of the run, after it that of the machine. The line is ASCII, without the name of any process
//! or device.

use crate::figures::UNKNOWN;
use crate::model::gpu::{Device, short_names};
use crate::model::groups::Groups;
use crate::model::tree_sample::{GpuSample, TreeSample};

/// Formats the line, without a line break. `since_start_s`: time since the start of the run. `columns`: the most that the line may
/// have; GPUs that do not fit are only counted.
pub fn line(now: &TreeSample, since_start_s: f64, columns: usize) -> String {
    let [cpu, all_cpu] = [now.cpu.combined.percent, now.system.cpu_percent].map(percent);
    // `end` is the value at the sample; since the sample before, it can have been larger.
    let ram = Some(now.footprint_bytes.combined.end);
    let processes = now.processes.end;
    let mut line = format!(
        "gpu-track {}  CPU {cpu}/{all_cpu}  RAM {}  {processes} {}",
        clock(since_start_s),
        memory_of_run_and_all(ram, now.system.ram_bytes),
        if processes == 1 { "process" } else { "processes" }
    );
    let named: Vec<_> = now.gpu.devices.iter().map(|gpu| Device::named(&gpu.device)).collect();
    let gpus: Vec<String> =
        short_names(&named).iter().zip(&now.gpu.devices).map(|(name, gpu)| gpu_part(name, gpu)).collect();
    for (number, gpu) in gpus.iter().enumerate() {
        // This GPU, and those after it.
        let rest = gpus.len() - number;
        // After this GPU there must still be room for the count of the rest.
        let width_of_number = if rest > 1 { more_gpus(rest - 1).len() } else { 0 };
        if line.len() + gpu.len() + width_of_number > columns {
            line.push_str(&more_gpus(rest));
            break;
        }
        line.push_str(gpu);
    }
    line.truncate(columns);
    line
}

/// Formats how many GPUs found no room.
fn more_gpus(count: usize) -> String {
    format!("  +{count} GPU")
}

/// Formats a GPU: its short name, its utilisation, the memory that the run holds, and all memory in use.
fn gpu_part(name: &str, gpu: &GpuSample) -> String {
    let run = gpu.run_bytes.map(|Groups { combined, .. }| combined);
    format!("  {name} {} {}", percent(gpu.busy_percent), memory_of_run_and_all(run, gpu.used_bytes))
}

/// Formats a time as hours, minutes and seconds: `0:01:05`. Tenths of a second are written if they are not 0.
fn clock(seconds: f64) -> String {
    let tenths = (seconds * 10.0).round() as u64;
    let (hours, minutes, rest) = (tenths / 36_000, tenths / 600 % 60, tenths % 600);
    let fraction = if rest % 10 == 0 { String::new() } else { format!(".{}", rest % 10) };
    format!("{hours}:{minutes:02}:{:02}{fraction}", rest / 10)
}

fn percent(percent: Option<f64>) -> String {
    percent.map_or_else(|| UNKNOWN.to_owned(), |percent| format!("{percent:.0}%"))
}

/// Formats memory of the run and of all programs, in one unit: that of the larger.
fn memory_of_run_and_all(run: Option<u64>, all: Option<u64>) -> String {
    const UNITS: [(f64, &str); 4] = [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    let Some(largest) = run.max(all) else { return UNKNOWN.to_owned() };
    let largest = largest as f64;
    let (unit, symbol) = UNITS.into_iter().find(|(unit, _)| largest >= *unit).unwrap_or((1e3, "kB"));
    let write = |bytes: Option<u64>| match bytes.map(|bytes| bytes as f64 / unit) {
        None => UNKNOWN.to_owned(),
        Some(n) if n < 9.995 => format!("{n:.2}"),
        Some(n) if n < 99.95 => format!("{n:.1}"),
        Some(n) => format!("{n:.0}"),
    };
    format!("{}/{} {symbol}", write(run), write(all))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::gpu::Device;
    use crate::model::tree_sample::{CpuSample, GpuSums, Span, SystemSample};

    fn gpu(index: Option<u32>) -> GpuSample {
        GpuSample {
            device: Arc::new(Device { id: format!("GPU-{index:?}"), index, ..Device::default() }),
            used_bytes: Some(36_000_000_000),
            run_bytes: Some(Groups { combined: 34_100_000_000, ..Groups::default() }),
            busy_percent: Some(87.4),
            ..GpuSample::default()
        }
    }

    fn sample(devices: Vec<GpuSample>) -> TreeSample {
        TreeSample {
            cpu: Groups { combined: CpuSample { time_ns: 1, percent: Some(398.2) }, ..Groups::default() },
            footprint_bytes: Groups { combined: Span::at_end(1_200_000_000), ..Groups::default() },
            processes: Span::at_end(21),
            system: SystemSample { read_ns: 1, ram_bytes: Some(20_100_000_000), cpu_percent: Some(520.0) },
            gpu: GpuSums { devices, ..GpuSums::default() },
            ..TreeSample::default()
        }
    }

    // Requirement: TIME-22
    #[test]
    fn line_has_the_run_the_machine_and_each_gpu() {
        assert_eq!(
            line(&sample(vec![gpu(Some(0)), gpu(None)]), 65.0, 120),
            "gpu-track 0:01:05  CPU 398%/520%  RAM 1.20/20.1 GB  21 processes  GPU0 87% 34.1/36.0 GB  \
             GPU1 87% 34.1/36.0 GB"
        );
        let mut alone = sample(Vec::new());
        alone.processes = Span::at_end(1);
        assert!(line(&alone, 360_000.5, 80).starts_with("gpu-track 100:00:00.5  CPU"));
        assert!(line(&alone, 1.0, 80).ends_with("  1 process"));
    }

    // Requirement: TIME-22
    #[test]
    fn gpus_that_do_not_fit_are_counted_and_no_line_is_longer_than_its_room() {
        let many = sample((0..16).map(|index| gpu(Some(index))).collect());
        let narrow = line(&many, 65.0, 80);
        assert!(narrow.ends_with("  +16 GPU") && narrow.len() <= 80, "{narrow}");
        assert!(line(&many, 65.0, 100).ends_with("GPU0 87% 34.1/36.0 GB  +15 GPU"));
        for columns in 1..200 {
            let line = line(&many, 1e9, columns);
            assert!(line.len() <= columns && line.is_ascii() && !line.contains(char::is_control), "{line}");
        }
        assert_eq!(line(&many, 1.0, 1000).matches("GB").count(), 17);
    }

    // Requirement: TIME-22
    #[test]
    fn instance_is_not_taken_for_the_gpu_of_the_same_number() {
        let part = Device { id: "MIG-1".into(), parent: Some("GPU-Some(0)".into()), ..Device::default() };
        let part = GpuSample { device: Arc::new(part), ..gpu(None) };
        let line = line(&sample(vec![gpu(Some(0)), part, gpu(Some(1))]), 1.0, 1000);
        assert!(["GPU0 ", "MIG0.0 ", "GPU1 "].iter().all(|name| line.matches(name).count() == 1), "{line}");
    }

    // Requirement: TIME-22
    #[test]
    fn what_is_not_known_is_never_zero() {
        let lost = GpuSample { busy_percent: None, used_bytes: None, run_bytes: None, ..gpu(Some(3)) };
        let mut now = sample(vec![lost]);
        (now.cpu.combined.percent, now.system) = (None, SystemSample::default());
        assert_eq!(
            line(&now, 0.1, 100),
            "gpu-track 0:00:00.1  CPU n/a/n/a  RAM 1.20/n/a GB  21 processes  GPU3 n/a n/a"
        );
    }
}
