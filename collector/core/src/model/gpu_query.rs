//! `gpu-track gpus --query-gpu` and `--query-compute-apps`: what nvidia-smi's options of these names print of a listing.

use std::collections::BTreeSet;

use super::gpu::listing::{Listed, ListedProcess, Listing};
use super::gpu::{Device, Vendor, Work};
use super::gpu_trace::{CsvStyle, Field, GpuLine, UNKNOWN, bus_id, csv_cell, name_of_today};
use super::unread_fields;
use crate::named;

/// What stands for the name of a process that /proc does not show.
const NOT_FOUND: &str = "[Not Found]";

named! {
    /// A column of the list of processes that compute. Its name is what its heading begins with.
    pub enum AppField {
        /// When the processes were listed, local time.
        Timestamp = "timestamp",
        /// Product name of the GPU.
        GpuName = "gpu_name",
        /// PCI address of the GPU.
        BusId = "gpu_bus_id",
        /// UUID of the GPU.
        Uuid = "gpu_uuid",
        /// Serial number of the GPU.
        Serial = "gpu_serial",
        /// The pid.
        Pid = "pid",
        /// The first word of the command line.
        ProcessName = "process_name",
        /// Its memory on the GPU.
        UsedMemory = "used_gpu_memory",
    }
}

impl AppField {
    /// Its names in `nvidia-smi --help-query-compute-apps`, that of its heading first.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let other = match self {
            Self::ProcessName => Some("name"),
            Self::UsedMemory => Some("used_memory"),
            _ => None,
        };
        [self.name()].into_iter().chain(other)
    }

    /// Finds the field of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|field| field.names().any(|other| other == name))
    }

    /// The heading of its column.
    fn heading(self) -> String {
        if self == Self::UsedMemory { format!("{} [MiB]", self.name()) } else { self.name().to_owned() }
    }

    /// The text of its cell. `None`: the value is not known.
    fn value(
        self,
        device: &Device,
        process: &ListedProcess,
        listing: &Listing,
        style: CsvStyle,
    ) -> Option<String> {
        match self {
            Self::Timestamp => listing.timestamp.clone(),
            Self::GpuName => device.name.as_deref().map(csv_cell),
            Self::BusId => device.pci_address.as_deref().map(bus_id),
            Self::Uuid => device.uuid.as_deref().map(csv_cell),
            Self::Serial => device.facts.get(Field::Serial.name()).map(|serial| csv_cell(serial)),
            Self::Pid => Some(process.pid.to_string()),
            Self::ProcessName => {
                let words = process.arguments.as_ref().and_then(|words| words.first());
                let name = words.filter(|word| !word.is_empty()).or(process.command.as_ref());
                Some(name.map_or_else(|| NOT_FOUND.to_owned(), |name| csv_cell(name)))
            }
            Self::UsedMemory => process.memory_bytes.map(|bytes| style.mib(bytes)),
        }
    }
}

/// A column of the list of GPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Column {
    /// A field that is read.
    Read(Field),
    /// A field of nvidia-smi that is not read here. The column has its heading, and no value.
    Unread(String),
}

impl Column {
    /// Finds the column that nvidia-smi calls `name`. `None`: it has none.
    pub fn named(name: &str) -> Option<Self> {
        let unread = || unread_fields::heading(&name_of_today(name)).map(Self::Unread);
        Field::named(name).map(Self::Read).or_else(unread)
    }

    /// Its heading: the name, and the unit.
    fn heading(&self) -> String {
        match self {
            Self::Read(field) => field.heading(),
            Self::Unread(heading) => heading.clone(),
        }
    }

    /// The text of its cell in the line of a GPU.
    fn cell(&self, gpu: &GpuLine, style: CsvStyle) -> String {
        match self {
            Self::Read(field) => field.cell(gpu, style),
            Self::Unread(_) => UNKNOWN.to_owned(),
        }
    }
}

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Query {
    /// A line for each GPU.
    Gpus(Vec<Column>),
    /// A line for each process that computes on a GPU.
    ComputeApps(Vec<AppField>),
}

impl Query {
    /// The line of headings, without a line break.
    pub fn header(&self) -> String {
        match self {
            Self::Gpus(columns) => columns.iter().map(Column::heading).collect::<Vec<_>>().join(", "),
            Self::ComputeApps(fields) => {
                fields.iter().map(|field| field.heading()).collect::<Vec<_>>().join(", ")
            }
        }
    }

    /// A message that names the columns without values. `None`: there are none.
    pub fn warning(&self) -> Option<String> {
        let Self::Gpus(columns) = self else { return None };
        let unread = columns.iter().filter_map(|column| match column {
            Column::Unread(heading) => heading.split(' ').next(),
            Column::Read(_) => None,
        });
        let unread: Vec<&str> = unread.collect();
        (!unread.is_empty()).then(|| format!("not read here, so {UNKNOWN}: {}", unread.join(", ")))
    }

    /// The lines of a listing, without line breaks. `count`: how many GPUs the machine has; `None`: not known.
    pub fn lines(&self, listing: &Listing, count: Option<usize>, style: CsvStyle) -> Vec<String> {
        let gpus = whole(listing);
        match self {
            Self::Gpus(columns) => {
                let line_of = |gpu: &&Listed| {
                    let line = gpu_line(gpu, listing, count);
                    columns.iter().map(|column| column.cell(&line, style)).collect::<Vec<_>>().join(", ")
                };
                gpus.iter().map(line_of).collect()
            }
            Self::ComputeApps(fields) => {
                gpus.iter().flat_map(|gpu| apps(fields, gpu, listing, style)).collect()
            }
        }
    }
}

/// The GPUs that nvidia-smi has a line of. MIG instances have none beside the GPU that they are parts of, and GPUs of other makers
/// none beside NVIDIA's: both number theirs from 0.
pub fn whole(listing: &Listing) -> Vec<&Listed> {
    let is_nvidia = |gpu: &Listed| gpu.device.vendor == Some(Vendor::Nvidia);
    let has_nvidia = listing.gpus.iter().any(is_nvidia);
    let is_shown = |gpu: &&Listed| whole_of(gpu, listing).is_none() && (is_nvidia(gpu) || !has_nvidia);
    listing.gpus.iter().filter(is_shown).collect()
}

/// The GPU that an instance is a part of. `None`: it is a whole one, or that GPU is not in the listing.
fn whole_of<'a>(gpu: &Listed, listing: &'a Listing) -> Option<&'a Listed> {
    let parent = gpu.device.parent.as_ref()?;
    listing.gpus.iter().find(|other| other.device.id == *parent)
}

/// A listed GPU, as a line shows it.
fn gpu_line<'a>(gpu: &'a Listed, listing: &'a Listing, count: Option<usize>) -> GpuLine<'a> {
    GpuLine {
        device: &gpu.device,
        figures: &gpu.now.figures,
        throttle_bits: gpu.now.throttle_bits,
        count,
        timestamp: listing.timestamp.as_deref(),
        is_logged: false,
    }
}

/// The lines of the processes that compute on a GPU. Those on an instance are on the whole GPU, for nvidia-smi.
fn apps(fields: &[AppField], gpu: &Listed, listing: &Listing, style: CsvStyle) -> Vec<String> {
    let device = &gpu.device;
    let computes = |process: &&ListedProcess| process.work != Work::Graphics;
    let line_of = |process: &ListedProcess| {
        let value = |field: &AppField| {
            field.value(device, process, listing, style).unwrap_or_else(|| UNKNOWN.to_owned())
        };
        fields.iter().map(value).collect::<Vec<_>>().join(", ")
    };
    let all =
        std::iter::once(gpu).chain(listing.parts(gpu)).flat_map(|gpu| gpu.now.processes.iter().flatten());
    let mut seen = BTreeSet::new();
    all.filter(computes).filter(|process| seen.insert(process.pid)).map(line_of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::gpu::gpu_figure::{ByGpuFigure, GpuFigure};
    use crate::model::gpu::listing::GpuNow;

    fn listing() -> Listing {
        let device = |id: &str, parent: Option<&str>| Device {
            id: id.into(),
            uuid: Some(id.into()),
            index: parent.is_none().then_some(3),
            name: Some("NVIDIA A100-SXM4-80GB".into()),
            pci_address: Some("0000:3b:00.0".into()),
            memory_bytes: Some(81_920 << 20),
            driver_version: Some("550.54.15".into()),
            parent: parent.map(str::to_owned),
            ..Device::default()
        };
        let process = |pid, work, first: Option<&str>| ListedProcess {
            pid,
            work,
            memory_bytes: (pid != 7).then_some(1500 << 20),
            arguments: first.map(|first| vec![first.to_owned(), "train.py".to_owned()]),
            ..ListedProcess::default()
        };
        let figures = ByGpuFigure::default()
            .with(GpuFigure::MemoryUsed, Some((1537_u64 << 20) as f64))
            .with(GpuFigure::Utilization, Some(87.0));
        let processes = vec![
            process(4711, Work::Compute, Some("/opt/conda/bin/python, \"3\"")),
            process(20, Work::Graphics, Some("/usr/lib/xorg/Xorg")),
            process(7, Work::Both, None),
        ];
        let listed = |device, now| Listed { device, tracked: true, visible: None, figures: vec![], now };
        let now = GpuNow { figures, processes: Some(processes.clone()), ..GpuNow::default() };
        let part = GpuNow { processes: Some(vec![processes[0].clone()]), ..GpuNow::default() };
        Listing {
            count: Some(2),
            gpus: vec![listed(device("GPU-1", None), now), listed(device("MIG-1", Some("GPU-1")), part)],
            timestamp: Some("2026/11/29 23:15:01.123".into()),
            ..Listing::default()
        }
    }

    // Requirement: GPU-80
    #[test]
    fn gpus_have_lines_and_their_instances_none() {
        let names = ["count", "index", "name", "memory.used", "utilization.gpu", "power.draw", "timestamp"];
        let query = Query::Gpus(names.into_iter().filter_map(Column::named).collect());
        let style = |no_units| CsvStyle { no_units, ..CsvStyle::default() };
        assert_eq!(
            query.header(),
            "count, index, name, memory.used [MiB], utilization.gpu [%], power.draw [W], timestamp"
        );
        let of_style = |no_units| query.lines(&listing(), Some(1), style(no_units));
        let time = "2026/11/29 23:15:01.123";
        assert_eq!(of_style(false), [format!("1, 3, NVIDIA A100-SXM4-80GB, 1537 MiB, 87 %, [N/A], {time}")]);
        assert_eq!(of_style(true), [format!("1, 3, NVIDIA A100-SXM4-80GB, 1537, 87, [N/A], {time}")]);
    }

    /// GPUtil asks for these alone, and so does each program that uses it.
    // Requirement: GPU-80
    #[test]
    fn query_of_gputil_is_answered_and_fields_that_are_not_read_are_unknown_and_named() {
        let query = |names: &str| {
            Query::Gpus(names.split(',').map(|name| Column::named(name).expect(name)).collect())
        };
        let gputil = query(
            "index,uuid,utilization.gpu,memory.total,memory.used,memory.free,driver_version,name,gpu_serial,\
             display_active,display_mode,temperature.gpu",
        );
        let mut listing = listing();
        let facts = [("serial", "1654922"), ("display_active", "Disabled"), ("display_mode", "Enabled")];
        listing.gpus[0].device.facts =
            facts.into_iter().map(|(name, fact)| (name.to_owned(), fact.to_owned())).collect();
        let style = CsvStyle { no_header: true, no_units: true };
        assert_eq!(
            gputil.lines(&listing, Some(1), style),
            [
                "3, GPU-1, 87, 81920, 1537, [N/A], 550.54.15, NVIDIA A100-SXM4-80GB, 1654922, Disabled, Enabled, [N/A]"
            ]
        );
        assert_eq!(gputil.warning(), None);

        let unread = query("index,temperature.gpu.tlimit,clocks_throttle_reasons.supported,utilization.ofa");
        assert_eq!(
            unread.header(),
            "index, temperature.gpu.tlimit, clocks_event_reasons.supported, utilization.ofa [%]"
        );
        assert_eq!(unread.lines(&listing, Some(1), style), ["3, [N/A], [N/A], [N/A]"]);
        assert_eq!(
            unread.warning().unwrap(),
            "not read here, so [N/A]: temperature.gpu.tlimit, clocks_event_reasons.supported, utilization.ofa"
        );
        assert_eq!(Column::named("utilization.tpu"), None);
    }

    // Requirement: GPU-80
    #[test]
    fn processes_that_compute_have_lines_by_the_whole_gpu() {
        let names = ["pid", "name", "used_memory", "gpu_uuid"];
        let query = Query::ComputeApps(names.into_iter().filter_map(AppField::named).collect());
        assert_eq!(query.header(), "pid, process_name, used_gpu_memory [MiB], gpu_uuid");
        let python = "4711, \"/opt/conda/bin/python, \"\"3\"\"\", 1500 MiB, GPU-1";
        let lines = query.lines(&listing(), Some(1), CsvStyle::default());
        // The list of the instance has the first one, too.
        assert_eq!(lines, [python, "7, [Not Found], [N/A], GPU-1"]);
    }

    // Requirement: GPU-80
    #[test]
    fn gpu_without_a_uuid_has_none_in_its_lines() {
        let mut listing = listing();
        let device = &mut listing.gpus[0].device;
        (device.id, device.uuid) = ("0000:3b:00.0".into(), None);
        let queries = [
            Query::Gpus(vec![Column::Read(Field::Uuid), Column::Read(Field::BusId)]),
            Query::ComputeApps(vec![AppField::Uuid, AppField::BusId]),
        ];
        for query in queries {
            let lines = query.lines(&listing, Some(1), CsvStyle::default());
            assert_eq!(lines[0], "[N/A], 00000000:3B:00.0");
        }
    }
}
