//! GPUs: what the user wants to know, the devices, and what a reading of them holds.

pub mod config;
pub mod select;

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use config::{GpuConfig, Vendor};

/// What the user calls NVML's backend.
pub const NVIDIA: &str = "NVIDIA";

/// Why a figure is not known.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Error, Serialize, Deserialize)]
pub enum Missing {
    /// The hardware or its driver does not have it.
    #[error("not supported by this device")]
    NotSupported,
    /// Only another user may see it.
    #[error("no permission")]
    NoPermission,
    /// The device fell off the bus.
    #[error("GPU lost")]
    Lost,
    /// The driver's kernel module and its library are of different versions.
    #[error("driver/library version mismatch")]
    VersionMismatch,
    /// The kernel module is not loaded.
    #[error("no driver")]
    NoDriver,
    /// There is a driver's room, and no device in it: none is missing.
    #[error("no GPU")]
    NoDevice,
    /// The driver's library is not there or can't be loaded.
    #[error("the driver's library could not be loaded: {0}")]
    NoLibrary(String),
    /// The library is too old to have the call.
    #[error("the driver's library has no call for it")]
    NoCall,
    /// The driver lists the process, and says that it doesn't know the value.
    #[error("the driver does not tell it")]
    NotTold,
    /// The figure is that of the parts that the device is divided into.
    #[error("told by its MIG instances only")]
    OfInstances,
    /// The driver names processes by pids of another pid namespace.
    #[error("the driver's process ids are of another pid namespace")]
    ForeignPids,
    /// The command was faster than the driver.
    #[error("driver not yet initialised when the command ended")]
    NotYet,
    /// No sample was taken.
    #[error("no sample was taken in time")]
    NoSample,
    /// It can't be used.
    #[error("the driver's library crashes (signal {0})")]
    Crashes(i32),
    /// A counter needs two.
    #[error("read only once, so no difference is known")]
    Once,
    /// The driver was initialised, and did not come back from the first reading.
    #[error("the driver's first reading was not over when the command ended")]
    FirstReading,
    /// Anything else that the driver said.
    #[error("{0}")]
    Failed(String),
}

/// A value, or why there is none.
pub type Reading<T> = Result<T, Missing>;

/// What can be known of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// Memory in use by anybody, bytes.
    MemoryUsed,
    /// Time in which anything ran on it, percent.
    Utilization,
    /// Time in which its memory was read or written, percent.
    MemoryUtilization,
    /// Power, watts.
    Power,
    /// The energy counter, joules.
    Energy,
    /// Temperature, degrees Celsius.
    Temperature,
    /// Clock of the processors, MHz.
    SmClock,
    /// Clock of the memory, MHz.
    MemoryClock,
    /// Performance state, 0 the fastest.
    Pstate,
    /// Why the clocks are below their maximum.
    Throttle,
    /// Bytes sent over PCIe, a counter.
    PcieTx,
    /// Bytes received over PCIe, a counter.
    PcieRx,
    /// Memory errors that were corrected, a counter.
    EccCorrected,
    /// Memory errors that were not, a counter.
    EccUncorrected,
    /// Critical errors that the driver reports by number.
    Xid,
    /// GPU memory of each process, bytes.
    ProcessMemory,
    /// Time in which each process ran on it, percent.
    ProcessUtilization,
    /// The driver's own account of processes, those that ended included.
    Accounting,
}

impl Figure {
    /// All of them.
    pub const ALL: [Self; 18] = [
        Self::MemoryUsed,
        Self::Utilization,
        Self::MemoryUtilization,
        Self::Power,
        Self::Energy,
        Self::Temperature,
        Self::SmClock,
        Self::MemoryClock,
        Self::Pstate,
        Self::Throttle,
        Self::PcieTx,
        Self::PcieRx,
        Self::EccCorrected,
        Self::EccUncorrected,
        Self::Xid,
        Self::ProcessMemory,
        Self::ProcessUtilization,
        Self::Accounting,
    ];

    /// What a reader calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::MemoryUsed => "memory",
            Self::Utilization => "utilization",
            Self::MemoryUtilization => "memory utilization",
            Self::Power => "power",
            Self::Energy => "energy counter",
            Self::Temperature => "temperature",
            Self::SmClock => "SM clock",
            Self::MemoryClock => "memory clock",
            Self::Pstate => "performance state",
            Self::Throttle => "throttle reasons",
            Self::PcieTx => "PCIe bytes sent",
            Self::PcieRx => "PCIe bytes received",
            Self::EccCorrected => "ECC errors corrected",
            Self::EccUncorrected => "ECC errors uncorrected",
            Self::Xid => "XID errors",
            Self::ProcessMemory => "memory by process",
            Self::ProcessUtilization => "utilization by process",
            Self::Accounting => "accounting",
        }
    }
}

/// A device, or a part of one that is used like a device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Its UUID, or its PCI address where it has none. Never an index: those change with the environment.
    pub id: String,
    /// Its UUID, if it has one.
    pub uuid: Option<String>,
    /// The driver's own number for it, which index lists of the environment mean.
    pub index: Option<u32>,
    /// The number of its device node (`/dev/nvidia2`), by which Slurm counts.
    pub minor: Option<u32>,
    /// PCI address, such as `0000:3b:00.0`.
    pub pci_address: Option<String>,
    /// Product name.
    pub name: Option<String>,
    /// Who made it.
    pub vendor: Option<Vendor>,
    /// The device that it is a part of (MIG).
    pub parent: Option<String>,
    /// Memory that it has, bytes.
    pub memory_bytes: Option<u64>,
    /// Version of the kernel driver.
    pub driver_version: Option<String>,
    /// Version of the runtime that the driver supports (CUDA, ROCm).
    pub runtime_version: Option<String>,
    /// Where its figures come from.
    pub source: String,
}

/// Utilisation over a stretch of time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Busy {
    /// Length, microseconds.
    pub us: u64,
    /// Mean over it, 0 to 100.
    pub percent: f64,
}

/// A process that a driver lists on a device.
#[derive(Debug, Clone, PartialEq)]
pub struct ProcessMemory {
    /// Its pid as the driver has it.
    pub pid: u32,
    /// Its memory there, bytes.
    pub bytes: Reading<u64>,
}

/// Utilisation of a device by one process.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProcessBusy {
    /// Its pid as the driver has it.
    pub pid: u32,
    /// When, and how much.
    pub busy: Busy,
}

/// The driver's account of one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accounted {
    /// Its pid as the driver has it.
    pub pid: u32,
    /// When it began to use the device, microseconds since the epoch.
    pub started_us: u64,
    /// Whether it still runs: the figures are final only after it.
    pub is_running: bool,
    /// Its largest memory, bytes.
    pub peak_bytes: Option<u64>,
    /// Its mean utilisation, percent.
    pub utilization_percent: Option<u32>,
}

/// One reading of one device. What a backend never reads is not in it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DeviceSample {
    /// [`Device::id`].
    pub device: String,
    /// The device is lost.
    pub is_lost: bool,
    /// Single values: gauges and counters.
    pub values: Vec<(Figure, Reading<f64>)>,
    /// Utilisation since the sample before.
    pub busy: Option<Reading<Vec<Busy>>>,
    /// Names of the throttle reasons that hold now.
    pub throttle: Option<Reading<Vec<&'static str>>>,
    /// Critical errors since the sample before, by number.
    pub xids: Option<Reading<Vec<u64>>>,
    /// CLOCK_MONOTONIC after `processes` was read, nanoseconds; 0: at the time of the whole reading. A reading of many
    /// devices takes its time, in which processes come and go.
    pub listed_ns: u64,
    /// Who has memory on it.
    pub processes: Option<Reading<Vec<ProcessMemory>>>,
    /// Who ran on it since the sample before.
    pub process_busy: Option<Reading<Vec<ProcessBusy>>>,
    /// The driver's own account.
    pub accounted: Option<Reading<Vec<Accounted>>>,
}

impl DeviceSample {
    /// Every pid that the driver names.
    pub fn pids(&self) -> impl Iterator<Item = u32> {
        let listed = self.processes.iter().flatten().flatten().map(|process| process.pid);
        let busy = self.process_busy.iter().flatten().flatten().map(|process| process.pid);
        let accounted = self.accounted.iter().flatten().flatten().map(|account| account.pid);
        listed.chain(busy).chain(accounted)
    }

    /// What the device can tell, and why not the rest, in the order of [`Figure::ALL`].
    #[must_use]
    pub fn capabilities(&self) -> Vec<(Figure, Reading<()>)> {
        fn whether<T>(reading: &Reading<T>) -> Reading<()> {
            reading.as_ref().map(|_| ()).map_err(Clone::clone)
        }
        let of = |figure: Figure| {
            let listed = match figure {
                Figure::Utilization => self.busy.as_ref().map(whether),
                Figure::Throttle => self.throttle.as_ref().map(whether),
                Figure::Xid => self.xids.as_ref().map(whether),
                Figure::ProcessMemory => self.processes.as_ref().map(whether),
                Figure::ProcessUtilization => self.process_busy.as_ref().map(whether),
                Figure::Accounting => self.accounted.as_ref().map(whether),
                _ => self.values.iter().find(|(other, _)| *other == figure).map(|(_, value)| whether(value)),
            };
            (figure, listed.unwrap_or(Err(Missing::NotSupported)))
        };
        Figure::ALL.map(of).to_vec()
    }
}

/// What a backend read at one time.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    /// CLOCK_MONOTONIC before it began, nanoseconds.
    pub at_ns: u64,
    /// The devices that count, where they are others than before.
    pub devices: Option<Vec<Device>>,
    /// All devices that there are, likewise.
    pub all: Option<Vec<Device>>,
    /// Their readings.
    pub samples: Vec<DeviceSample>,
}
