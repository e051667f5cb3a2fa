//! What a report says, in base units (bytes, seconds, percent of one core). Writers convert; nothing here is rounded.
//!
//! `None` is "unknown": null in JSON and `n/a` in text, never 0; a warning or the coverage section says why.

use std::collections::BTreeMap;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::run::tree::Quality;

/// Version of the JSON form.
pub const SCHEMA_VERSION: u32 = 1;

/// All that one run tells.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// How far the run was.
    pub stage: Stage,
    /// The command and its arguments (bytes that aren't UTF-8 replaced).
    pub command: Vec<String>,
    /// When the command was started.
    pub started_at: SystemTime,
    /// Wall time from the command's start to its end (with `--wait-all`: to the end of the last process), seconds.
    pub wall_s: f64,
    /// Where it ran.
    pub host: Host,
    /// How it ended.
    pub exit: Exit,
    /// Largest RAM over time.
    pub max_ram: MaxRam,
    /// Time-weighted mean RAM.
    pub mean_ram: MeanRam,
    /// Largest GPU memory over time.
    pub max_gpu_ram: MaxGpuRam,
    /// CPU utilisation and threads.
    pub cpu: Cpu,
    /// GPU utilisation.
    pub gpu: Gpu,
    /// The GPUs that were tracked.
    pub gpus: Vec<GpuDevice>,
    /// CPU time.
    pub cpu_time: CpuTime,
    /// Block I/O of the tree.
    pub io: Io,
    /// Page faults of the tree.
    pub faults: Faults,
    /// Context switches of the tree.
    pub context_switches: ContextSwitches,
    /// The processes.
    pub processes: Processes,
    /// When the tree's RAM peaked, and who held it; `None` if no process was ever seen in memory.
    pub peak: Option<Peak>,
    /// What the kernel says of the cgroup that was made for the command (`--cgroup`).
    pub cgroup: Option<Cgroup>,
    /// What the command was allowed.
    pub limits: Limits,
    /// Where the figures come from.
    pub coverage: Coverage,
    /// What a reader should know, one sentence each.
    pub warnings: Vec<String>,
}

/// How far a run is when its report is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// It runs: a report so far.
    SoFar,
    /// It is over.
    Over,
    /// Launcher and collector were killed: a report of what they left.
    Recovered,
}

/// The machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// Node name (uname).
    pub hostname: Option<String>,
    /// Kernel release (uname).
    pub kernel: Option<String>,
    /// Online processors.
    pub cores: u32,
    /// MemTotal, bytes.
    pub ram_bytes: Option<u64>,
}

/// How much is allowed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Limit {
    /// So much.
    Known(u64),
    /// No limit.
    Unlimited,
    /// It can't be read.
    #[default]
    Unknown,
}

impl Limit {
    /// The kernel's form: a number, or "max"; numbers from `none` on mean no limit, too.
    #[must_use]
    pub fn parse(text: &str, none: u64) -> Option<Self> {
        match text.trim() {
            "max" => Some(Self::Unlimited),
            number => {
                Some(number.parse().ok().map(|n| if n >= none { Self::Unlimited } else { Self::Known(n) })?)
            }
        }
    }

    /// The stricter one of what is known.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        match (self, other) {
            (Self::Known(a), Self::Known(b)) => Self::Known(a.min(b)),
            (Self::Known(_), _) | (_, Self::Unknown) => self,
            _ => other,
        }
    }
}

/// A number, "unlimited", or null.
impl Serialize for Limit {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Known(n) => serializer.serialize_u64(*n),
            Self::Unlimited => serializer.serialize_str("unlimited"),
            Self::Unknown => serializer.serialize_none(),
        }
    }
}

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Number(u64),
            Word(String),
        }
        match Option::deserialize(deserializer)? {
            Some(Form::Number(n)) => Ok(Self::Known(n)),
            Some(Form::Word(word)) if word == "unlimited" => Ok(Self::Unlimited),
            Some(Form::Word(_)) => Err(serde::de::Error::custom("neither a number nor \"unlimited\"")),
            None => Ok(Self::Unknown),
        }
    }
}

/// A resource limit (getrlimit(2)).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SoftHard {
    /// In force.
    pub soft: Limit,
    /// Up to which the process may raise it.
    pub hard: Limit,
}

/// What the command was allowed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Memory limit of its cgroup and those above it, the smallest, bytes.
    pub memory_bytes: Limit,
    /// CPU quota of its cgroup and those above it, the smallest, thousandths of a core.
    pub cpu_millicores: Limit,
    /// Limit of the processes and threads of its cgroup and those above it, the smallest.
    pub tasks: Limit,
    /// The cgroup that it was started in.
    pub cgroup: Option<String>,
    /// Processes of that cgroup that the kernel killed during the run since memory ran out, other people's included.
    pub oom_kills: Option<u64>,
    /// Processors that it might run on (its affinity mask).
    pub cpus: Option<Vec<u32>>,
    /// Resource limits (ulimit).
    pub ulimits: BTreeMap<String, SoftHard>,
    /// Slurm's allocation variables, as far as they are set.
    pub slurm: BTreeMap<String, String>,
}

/// A cgroup (v2) that held the command and nothing else.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Cgroup {
    /// Its directory.
    pub path: Option<String>,
    /// memory.peak, bytes: page cache and kernel memory are in it.
    pub memory_peak_bytes: Option<u64>,
    /// Processes that the kernel killed since memory ran out.
    pub oom_kills: Option<u64>,
    /// CPU time, seconds.
    pub cpu_usage_s: Option<f64>,
    /// The user part of it.
    pub cpu_user_s: Option<f64>,
    /// The system part of it.
    pub cpu_system_s: Option<f64>,
    /// Bytes read from block devices; from those below, where devices lie on others.
    pub io_read_bytes: Option<u64>,
    /// Bytes written to block devices, likewise.
    pub io_write_bytes: Option<u64>,
    /// Why something is not known.
    pub reason: Option<String>,
}

/// How a process ended: one of the two is known for an ended process, none for one that runs or was never reaped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// Exit code.
    pub code: Option<i32>,
    /// Signal number that ended it.
    pub signal: Option<i32>,
}

/// RAM in bytes: private to the processes meant, and shared (with each other or with anybody).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rss {
    /// Private and shared together at one time.
    pub total_bytes: Option<u64>,
    /// Largest private part over time.
    pub private_bytes: Option<u64>,
    /// Largest shared part over time.
    pub shared_bytes: Option<u64>,
}

/// Largest RAM over time; each figure is a maximum of its own.
#[derive(Debug, Clone, PartialEq)]
pub struct MaxRam {
    /// MemTotal, bytes.
    pub system_capacity_bytes: Option<u64>,
    /// Memory in use on the whole machine (MemTotal - MemAvailable), bytes.
    pub system_bytes: Option<u64>,
    /// The command's first process.
    pub main: Rss,
    /// All its descendants.
    pub descendants: Rss,
    /// The whole tree.
    pub combined: Rss,
}

/// Time-weighted mean RAM over the run, bytes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MeanRam {
    /// The command's first process.
    #[serde(rename = "main")]
    pub main_bytes: Option<f64>,
    /// All its descendants.
    #[serde(rename = "descendants")]
    pub descendants_bytes: Option<f64>,
    /// The whole tree.
    #[serde(rename = "combined")]
    pub combined_bytes: Option<f64>,
}

/// Largest GPU memory over time, bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct MaxGpuRam {
    /// Of all GPUs tracked.
    pub system_capacity_bytes: Option<u64>,
    /// In use by anybody.
    pub system_bytes: Option<u64>,
    /// The command's first process.
    pub main_bytes: Option<u64>,
    /// All its descendants.
    pub descendants_bytes: Option<u64>,
    /// The whole tree.
    pub combined_bytes: Option<u64>,
}

/// Utilisation in percent of one unit (core or GPU); `hardware` percentages are these over the unit count.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Percent {
    /// Largest over any window.
    pub max_sum: Option<f64>,
    /// Over the whole run.
    pub mean_sum: Option<f64>,
}

impl Percent {
    /// [`Percent::max_sum`] as a share of all `units`.
    #[must_use]
    pub fn max_hardware(self, units: u32) -> Option<f64> {
        self.max_sum.map(|sum| share(sum, units))
    }

    /// [`Percent::mean_sum`] as a share of all `units`.
    #[must_use]
    pub fn mean_hardware(self, units: u32) -> Option<f64> {
        self.mean_sum.map(|sum| share(sum, units))
    }
}

/// No units are used to 0 percent, as gpu_tracker has it for a machine without a GPU.
fn share(sum: f64, units: u32) -> f64 {
    if units == 0 { 0.0 } else { sum / f64::from(units) }
}

/// CPU utilisation and thread counts.
#[derive(Debug, Clone, PartialEq)]
pub struct Cpu {
    /// Cores of the machine: what `system` is divided by for its hardware percentages.
    pub system_core_count: u32,
    /// Cores that the command was expected to use: what the others are divided by.
    pub expected_cores: u32,
    /// The whole machine.
    pub system: Percent,
    /// The command's first process.
    pub main: Percent,
    /// All its descendants.
    pub descendants: Percent,
    /// The whole tree.
    pub combined: Percent,
    /// Most threads at one time.
    pub main_threads: Option<u64>,
    /// Most threads at one time.
    pub descendants_threads: Option<u64>,
    /// Most threads at one time.
    pub combined_threads: Option<u64>,
}

/// GPU utilisation.
#[derive(Debug, Clone, PartialEq)]
pub struct Gpu {
    /// GPUs of the machine.
    pub system_gpu_count: Option<u32>,
    /// GPUs tracked.
    pub expected_gpus: Option<u32>,
    /// Of the GPUs tracked.
    pub percent: Percent,
}

/// A GPU, or a part of one (MIG), over the run.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct GpuDevice {
    /// Its UUID, or its PCI address where it has none.
    pub id: String,
    /// The driver's number for it.
    pub index: Option<u32>,
    /// PCI address.
    pub pci_address: Option<String>,
    /// Product name.
    pub name: Option<String>,
    /// `nvidia`, `amd` or `intel`.
    pub vendor: Option<&'static str>,
    /// The device that it is a part of.
    pub parent: Option<String>,
    /// Where the figures come from.
    pub source: String,
    /// Version of the kernel driver.
    pub driver_version: Option<String>,
    /// Version of the runtime that the driver supports.
    pub runtime_version: Option<String>,
    /// Whether the command's environment names it; `None`: it names none.
    pub visible: Option<bool>,
    /// Whether a process of the run was seen on it.
    pub used: bool,
    /// When it was lost, seconds after the command's start.
    pub lost_at_s: Option<f64>,
    /// Memory.
    pub memory: GpuMemory,
    /// Utilisation.
    pub utilization: GpuUtilization,
    /// Power and energy.
    pub power: GpuPower,
    /// Largest temperature, degrees Celsius.
    pub max_temperature_c: Option<f64>,
    /// Clocks.
    pub clocks: GpuClocks,
    /// Performance states.
    pub pstate: GpuPstate,
    /// Time in each throttle reason; `None`: not known.
    pub throttle: Option<Vec<GpuThrottle>>,
    /// PCIe traffic.
    pub pcie: GpuPcie,
    /// Errors during the run.
    pub errors: GpuErrors,
    /// The processes of the run that were seen on it.
    pub processes: Vec<GpuProcess>,
    /// What is not known, and why.
    pub missing: Vec<GpuMissing>,
}

/// A GPU's memory, bytes.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct GpuMemory {
    /// What it has.
    pub total_bytes: Option<u64>,
    /// Most in use by anybody.
    pub max_used_bytes: Option<u64>,
    /// Most in use by the command's first process.
    pub max_main_bytes: Option<u64>,
    /// By all its descendants.
    pub max_descendants_bytes: Option<u64>,
    /// By the whole tree.
    pub max_combined_bytes: Option<u64>,
}

/// A GPU's utilisation by anybody, percent.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct GpuUtilization {
    /// Over the time that the driver told of.
    pub mean_percent: Option<f64>,
    /// Largest that the driver told.
    pub max_percent: Option<f64>,
    /// Busy time, seconds.
    pub active_s: Option<f64>,
    /// Of the memory controller.
    pub mean_memory_percent: Option<f64>,
    /// Of the memory controller.
    pub max_memory_percent: Option<f64>,
}

/// A GPU's power and energy.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct GpuPower {
    /// Mean over time, watts.
    pub mean_w: Option<f64>,
    /// Largest reading, watts.
    pub max_w: Option<f64>,
    /// By the device's own counter, between the first and the last reading, joules.
    pub energy_j: Option<f64>,
    /// Power integrated over the same time, joules.
    pub integrated_energy_j: Option<f64>,
}

/// A GPU's clocks, MHz.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct GpuClocks {
    /// Mean of the processors'.
    pub mean_sm_mhz: Option<f64>,
    /// Largest of the processors'.
    pub max_sm_mhz: Option<f64>,
    /// Mean of the memory's.
    pub mean_memory_mhz: Option<f64>,
    /// Largest of the memory's.
    pub max_memory_mhz: Option<f64>,
}

/// A GPU's performance states: 0 is the fastest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct GpuPstate {
    /// Smallest number.
    pub fastest: Option<u32>,
    /// Largest number.
    pub slowest: Option<u32>,
}

/// Time in a throttle reason.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GpuThrottle {
    /// The driver's reason.
    pub reason: String,
    /// How long, seconds.
    pub time_s: f64,
}

/// Bytes over PCIe.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct GpuPcie {
    /// Sent by the device.
    pub tx_bytes: Option<u64>,
    /// Received by the device.
    pub rx_bytes: Option<u64>,
}

/// Errors of a GPU during the run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct GpuErrors {
    /// Memory errors that were corrected.
    pub ecc_corrected: Option<u64>,
    /// Memory errors that were not.
    pub ecc_uncorrected: Option<u64>,
    /// Critical errors by NVIDIA's XID number; `None`: not known.
    pub xid: Option<Vec<GpuXid>>,
}

/// A critical error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GpuXid {
    /// NVIDIA's number.
    pub xid: u64,
    /// How often.
    pub count: u64,
}

/// A process on one GPU.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GpuProcess {
    /// Its pid as the launcher sees it.
    pub pid: u32,
    /// Its pid as the driver has it.
    pub driver_pid: u32,
    /// Its command name.
    pub command: String,
    /// The command's first process?
    pub is_main: bool,
    /// Its largest memory there, bytes.
    pub peak_bytes: Option<u64>,
    /// Mean utilisation over the time that the driver told of, percent.
    pub mean_sm_percent: Option<f64>,
    /// Largest utilisation that the driver told, percent.
    pub max_sm_percent: Option<f64>,
    /// Whether its peak is from the driver's account (no sample saw it).
    pub accounted: bool,
}

/// A figure that is not known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GpuMissing {
    /// Which.
    pub figure: String,
    /// Why.
    pub reason: String,
}

/// CPU time of the tree, seconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CpuTime {
    /// In user mode, as far as the split is known.
    pub user_s: Option<f64>,
    /// In the kernel, as far as the split is known.
    pub system_s: Option<f64>,
    /// Sum over the processes' own.
    pub total_s: Option<f64>,
    /// The kernel's own sum over everything that was waited for: a cross-check from another source.
    pub kernel_s: Option<f64>,
    /// Why `kernel_s` is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_s_reason: Option<String>,
    /// CPU time that processes reported of their waited-for children beyond what those children's records hold.
    pub unattributed_s: Option<f64>,
}

/// Block I/O, bytes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Io {
    /// Read from storage.
    pub read_bytes: Option<u64>,
    /// Written to storage.
    pub write_bytes: Option<u64>,
}

/// Page faults.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Faults {
    /// Without I/O.
    pub minor: Option<u64>,
    /// With I/O.
    pub major: Option<u64>,
}

/// Context switches.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ContextSwitches {
    /// The process waited.
    pub voluntary: Option<u64>,
    /// The process was preempted.
    pub involuntary: Option<u64>,
}

/// The processes of the tree.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Processes {
    /// All that ever lived, the command's first process included.
    pub total: u64,
    /// Most alive at one time.
    pub max_concurrent: u64,
    /// How many were still alive at the end of the run.
    pub still_running: u64,
    /// Which those are (the first 100).
    pub still_running_processes: Vec<Running>,
    /// By command name, most CPU time first.
    pub by_command: Vec<CommandUsage>,
    /// Single processes, most CPU time first, and those with the largest peak RSS or GPU memory.
    pub heaviest: Vec<ProcessUsage>,
    /// Largest sum over time of the processes' utilisation of GPUs, where a driver tells it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_sm_percent: Option<GroupPercent>,
}

/// Percent of one GPU.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct GroupPercent {
    /// The command's first process.
    pub main: f64,
    /// All its descendants.
    pub descendants: f64,
    /// The whole tree.
    pub combined: f64,
}

/// A process that outlived the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    /// Its pid as the launcher sees it.
    pub pid: u32,
    /// Its command name.
    pub command: String,
}

/// All processes of one command name.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CommandUsage {
    /// Base name; for an interpreter with the base name of its script.
    pub command: String,
    /// How many processes ended under that name.
    pub count: u64,
    /// Their own CPU time, seconds.
    pub cpu_s: Option<f64>,
    /// Largest peak RSS of any one of them, bytes.
    pub peak_rss_bytes: Option<u64>,
    /// Their wall times added up, seconds.
    pub wall_s: f64,
    /// On GPUs, where any of them was seen there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<CommandGpu>,
}

/// Processes of one name on GPUs.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct CommandGpu {
    /// How many of them used one.
    pub count: u64,
    /// Largest peak of any one of them, bytes.
    pub peak_ram_bytes: Option<u64>,
    /// Largest utilisation of one device by any one of them, percent.
    pub max_sm_percent: Option<f64>,
}

/// One process on GPUs.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ProcessGpu {
    /// Largest sum over the devices at one time, bytes.
    pub peak_ram_bytes: Option<u64>,
    /// Largest utilisation of one device, percent.
    pub max_sm_percent: Option<f64>,
}

/// One process.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProcessUsage {
    /// Its pid as the launcher sees it; in a pid namespace of its own and never seen from outside: its own view.
    pub pid: u32,
    /// Its parent's pid.
    pub ppid: Option<u32>,
    /// Base name; for an interpreter with the base name of its script.
    pub command: String,
    /// Its arguments, where it lived long enough for them to be read.
    pub args: Option<Vec<String>>,
    /// Own CPU time, seconds.
    pub cpu_s: Option<f64>,
    /// How that is known.
    pub cpu_quality: Quality,
    /// Peak RSS, bytes.
    pub peak_rss_bytes: Option<u64>,
    /// How that is known.
    pub peak_quality: Quality,
    /// From start to end, seconds.
    pub wall_s: f64,
    /// How it ended.
    pub exit: Exit,
    /// On GPUs, where it was seen there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<ProcessGpu>,
}

/// When the tree's RAM was largest.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Peak {
    /// Seconds after the command's start.
    pub at_s: f64,
    /// The tree's RAM then, shared memory counted once, bytes.
    pub combined_rss_bytes: u64,
    /// Who held most of it.
    pub processes: Vec<Holder>,
}

/// A process's part in the peak.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Its pid.
    pub pid: u32,
    /// Its command name.
    pub command: String,
    /// Its share of the tree's RAM then, bytes.
    pub rss_bytes: u64,
}

/// Where the figures come from.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Coverage {
    /// All processes.
    pub processes: u64,
    /// CPU time from the process's own end record, its reaper's, or its clock after its end.
    pub exact: u64,
    /// CPU time from the last sample only.
    pub sampled: u64,
    /// No CPU time at all.
    pub unknown: u64,
    /// Carried the session without being a known descendant.
    pub joined: u64,
    /// Children of posix_spawn that could not exec (counted in `processes`).
    pub failed_spawns: u64,
    /// Programs that told nothing of their end (static ones, other users'): without the connector, short children of
    /// theirs may be missing.
    pub silent: u64,
    /// By the layer that found a process first.
    pub layers: Layers,
    /// How the peak RSS of the processes is known.
    pub peaks: Peaks,
    /// Executables without a dynamic loader, which never carry the shim (paths).
    pub static_executables: Vec<String>,
    /// Event records that were lost because there was no room for them.
    pub dropped_events: u64,
    /// Why event records could not be trusted from some time on: none that came later counts.
    pub records_untrusted: Option<String>,
    /// Why the process connector is not there, or was given up.
    pub connector_absent: Option<String>,
    /// How often the kernel's events came faster than they could be read.
    pub connector_overruns: u64,
}

/// Processes by the layer that found them first; `None`: the layer was off or not to be had.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layers {
    /// Said so itself when it started or forked.
    pub preload: Option<u64>,
    /// Its reaper said so.
    pub wait: Option<u64>,
    /// Was reparented to the launcher, which reaped it.
    pub subreaper: Option<u64>,
    /// Was found among the children of a known process.
    pub scan: Option<u64>,
    /// The kernel's process connector said so.
    pub connector: Option<u64>,
}

/// How the peak RSS of the processes is known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peaks {
    /// From the kernel's own high-water mark at the end.
    pub exact: u64,
    /// From the last sample.
    pub sampled: u64,
    /// It can't be more: the kernel's figure may be that of a child that nobody told of.
    pub bound: u64,
    /// No sample saw it, and the kernel's figure is another's.
    pub unknown: u64,
}
