//! The keys of `gpustat --json`, for programs that read those. Memory is in MiB and unknown figures are null, as in gpustat.

use serde::Serialize;

use super::json::text;
use crate::model::gpu::gpu_figure::GpuFigure;
use crate::model::gpu::listing::{Listed, ListedProcess, Listing};
use crate::model::gpu_query::whole;

/// Bytes of a MiB.
const MIB: u64 = 1 << 20;

/// The whole.
#[derive(Serialize)]
struct Document<'a> {
    hostname: Option<&'a str>,
    driver_version: Option<&'a str>,
    /// Local time in the form of ISO 8601.
    query_time: Option<String>,
    gpus: Vec<Gpu<'a>>,
}

/// A GPU. Percentages, temperature, power and memory are whole numbers.
#[derive(Serialize)]
struct Gpu<'a> {
    index: Option<u32>,
    uuid: &'a str,
    name: Option<&'a str>,
    #[serde(rename = "temperature.gpu")]
    temperature: Option<u64>,
    #[serde(rename = "fan.speed")]
    fan_speed: Option<u64>,
    #[serde(rename = "utilization.gpu")]
    utilization: Option<u64>,
    #[serde(rename = "utilization.enc")]
    encoder: Option<u64>,
    #[serde(rename = "utilization.dec")]
    decoder: Option<u64>,
    #[serde(rename = "power.draw")]
    power: Option<u64>,
    #[serde(rename = "enforced.power.limit")]
    power_limit: Option<u64>,
    #[serde(rename = "memory.used")]
    used_mib: Option<u64>,
    #[serde(rename = "memory.total")]
    total_mib: Option<u64>,
    /// `None`: the driver does not list them.
    processes: Option<Vec<Process<'a>>>,
}

/// A process on a GPU.
#[derive(Serialize)]
struct Process<'a> {
    username: Option<&'a str>,
    command: Option<&'a str>,
    full_command: Option<&'a [String]>,
    #[serde(rename = "gpu_memory_usage")]
    memory_mib: Option<u64>,
    /// gpustat measures it over 0.1 s. It is not measured here.
    cpu_percent: Option<f64>,
    #[serde(rename = "cpu_memory_usage")]
    rss_bytes: Option<u64>,
    pid: u32,
}

/// Renders the GPUs as `gpustat --json` does, with a newline at the end.
pub(super) fn gpustat(listing: &Listing) -> String {
    let gpus = whole(listing);
    let driver = gpus.iter().find_map(|gpu| gpu.device.driver_version.as_deref());
    let document = Document {
        hostname: listing.hostname.as_deref(),
        driver_version: driver,
        query_time: listing.timestamp.as_ref().map(|time| time.replace('/', "-").replacen(' ', "T", 1)),
        gpus: gpus.iter().map(|gpu| gpu_of(gpu, listing)).collect(),
    };
    text(&document, "    ")
}

/// The object of a GPU. Processes on its instances (MIG) are on it.
fn gpu_of<'a>(gpu: &'a Listed, listing: &'a Listing) -> Gpu<'a> {
    let rounded = |figure: GpuFigure| gpu.now.figures[figure].map(|value| value.round() as u64);
    let lists: Vec<_> =
        std::iter::once(gpu).chain(listing.parts(gpu)).filter_map(|gpu| gpu.now.processes.as_ref()).collect();
    let mib = |bytes: u64| bytes / MIB;
    Gpu {
        index: gpu.device.index,
        uuid: gpu.device.uuid.as_ref().unwrap_or(&gpu.device.id),
        name: gpu.device.name.as_deref(),
        temperature: rounded(GpuFigure::Temperature),
        fan_speed: rounded(GpuFigure::FanSpeed),
        utilization: rounded(GpuFigure::Utilization),
        encoder: rounded(GpuFigure::EncoderUtilization),
        decoder: rounded(GpuFigure::DecoderUtilization),
        power: rounded(GpuFigure::Power),
        power_limit: rounded(GpuFigure::EnforcedPowerLimit),
        used_mib: rounded(GpuFigure::MemoryUsed).map(mib),
        total_mib: gpu.device.memory_bytes.map(mib),
        processes: (!lists.is_empty()).then(|| lists.into_iter().flatten().map(process_of).collect()),
    }
}

/// The file name of a process's program, as its command line has it. `None`: /proc does not show it.
fn command(process: &ListedProcess) -> Option<&str> {
    let first = process.arguments.as_ref().and_then(|words| words.first()).filter(|word| !word.is_empty());
    let name = first.map(|word| word.rsplit('/').next().unwrap_or(word));
    name.or(process.command.as_deref())
}

/// The object of a process.
fn process_of(process: &ListedProcess) -> Process<'_> {
    Process {
        username: process.user.as_deref(),
        command: command(process),
        full_command: process.arguments.as_deref(),
        memory_mib: process.memory_bytes.map(|bytes| bytes / MIB),
        cpu_percent: None,
        rss_bytes: process.rss_bytes,
        pid: process.pid,
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
    fn keys_are_those_of_gpustat_and_unknown_is_null() {
        let figures = ByGpuFigure::default()
            .with(GpuFigure::MemoryUsed, Some((2_u64 << 30) as f64))
            .with(GpuFigure::EnforcedPowerLimit, Some(400.4));
        let process = ListedProcess {
            pid: 9,
            user: Some("ada".into()),
            arguments: Some(vec!["python".into(), "a.py".into()]),
            memory_bytes: Some(5 << 20),
            rss_bytes: Some(4096),
            ..ListedProcess::default()
        };
        let gpu = Listed {
            device: Device { id: "GPU-1".into(), index: Some(0), ..Device::default() },
            tracked: true,
            visible: None,
            figures: vec![],
            now: GpuNow { figures, processes: Some(vec![process]), ..GpuNow::default() },
        };
        let listing = Listing {
            gpus: vec![gpu],
            hostname: Some("node7".into()),
            timestamp: Some("2026/11/29 23:15:01.123".into()),
            ..Listing::default()
        };
        let read: serde_json::Value = serde_json::from_str(&gpustat(&listing)).unwrap();
        let keys = |value: &serde_json::Value| {
            let mut keys: Vec<String> = value.as_object().unwrap().keys().cloned().collect();
            keys.sort();
            keys.join(" ")
        };
        assert_eq!(keys(&read), "driver_version gpus hostname query_time");
        assert_eq!(read["query_time"], "2026-11-29T23:15:01.123");
        let gpu = &read["gpus"][0];
        assert_eq!(
            keys(gpu),
            "enforced.power.limit fan.speed index memory.total memory.used name power.draw processes \
             temperature.gpu utilization.dec utilization.enc utilization.gpu uuid"
        );
        assert_eq!((&gpu["memory.used"], &gpu["enforced.power.limit"]), (&2048.into(), &400.into()));
        assert!(gpu["utilization.gpu"].is_null() && gpu["memory.total"].is_null());
        let process = &gpu["processes"][0];
        assert_eq!(
            keys(process),
            "command cpu_memory_usage cpu_percent full_command gpu_memory_usage pid username"
        );
        assert_eq!((&process["gpu_memory_usage"], &process["full_command"][1]), (&5.into(), &"a.py".into()));
    }
}
