//! The figures of a device, and why one is not known.

use serde::{Deserialize, Serialize};
use thiserror::Error;

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
    /// The driver is present but has no device: nothing is missing.
    #[error("no GPU")]
    NoDevice,
    /// The driver's library is absent or can't be loaded.
    #[error("the driver's library could not be loaded: {0}")]
    NoLibrary(String),
    /// The library is too old to have the function.
    #[error("the driver's library has no call for it")]
    NoCall,
    /// The driver lists the process or the sensor without its value.
    #[error("not reported by the driver")]
    NotReported,
    /// The parts that the device is divided into report the figure, the whole does not.
    #[error("reported by its MIG instances only")]
    ReportedByInstances,
    /// The same of a device that is divided into partitions (AMD MI300).
    #[error("reported by its partitions only")]
    ReportedByPartitions,
    /// The driver names processes by pids of another pid namespace.
    #[error("the driver's process ids are of another pid namespace")]
    ForeignPids,
    /// The driver was still initialising at the end of the run.
    #[error("driver not yet initialised when the command ended")]
    NotInitialized,
    /// No sample was taken.
    #[error("no sample was taken in time")]
    NoSample,
    /// The library crashed earlier collectors, so it is not loaded.
    #[error("the driver's library crashes (signal {0})")]
    Crashes(i32),
    /// The figure is a difference between two readings.
    #[error("read only once, so no difference is known")]
    ReadOnce,
    /// The driver was initialised, but its first reading had not returned at the end of the run.
    #[error("the driver's first reading was not complete when the command ended")]
    FirstReading,
    /// The counter has 32 bits, and the link is fast enough to wrap it between two readings.
    #[error("its 32-bit counter can wrap between two readings at the link's rate")]
    Wraps,
    /// Any other failure, in the driver's words.
    #[error("{0}")]
    Failed(String),
}

impl Missing {
    /// The parts that the device is divided into report the figure: a sum over devices lacks nothing.
    pub(crate) fn is_reported_by_parts(&self) -> bool {
        matches!(self, Self::ReportedByInstances | Self::ReportedByPartitions)
    }
}

/// A value, or why there is none.
pub type Reading<T> = Result<T, Missing>;

/// What a device can report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// Memory in use by all processes of the machine, bytes.
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
    /// Memory errors that were not corrected, a counter.
    EccUncorrected,
    /// Critical errors that the driver reports by number.
    Xid,
    /// GPU memory of each process, bytes.
    ProcessMemory,
    /// Time in which each process ran on it, percent.
    ProcessUtilization,
    /// The driver's accounting entries, which outlive their processes.
    Accounting,
}

impl Figure {
    /// All of them.
    pub(crate) const ALL: [Self; 18] = [
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

    /// The driver adds it up, so a reading includes what happened while it could not be read.
    pub(crate) fn is_cumulative(self) -> bool {
        use Figure::{Accounting, EccCorrected, EccUncorrected, Energy, PcieRx, PcieTx, Xid};
        matches!(self, Accounting | EccCorrected | EccUncorrected | Energy | PcieRx | PcieTx | Xid)
    }

    /// Its name in reports.
    pub(crate) fn name(self) -> &'static str {
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
