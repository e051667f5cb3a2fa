//! The figures of a device, and why one is not known.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::named;

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
    /// The partitions that the device is divided into (AMD MI300) report the figure, the whole does not.
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
    /// The option `--no-gpm` is given.
    #[error("switched off by --no-gpm")]
    NoGpm,
    /// The figure is a difference between two readings.
    #[error("read only once, so no difference is known")]
    ReadOnce,
    /// The driver was initialised, but its first reading had not returned at the end of the run.
    #[error("the driver's first reading was not complete when the command ended")]
    FirstReading,
    /// The counter has 32 bits, and the link is fast enough to wrap it between two readings.
    #[error("its 32-bit counter can wrap between two readings at the link's rate")]
    Wraps,
    /// The counter was reset, or a reading of it was wrong.
    #[error("its counter stepped back, or ahead by more than the link can carry")]
    Wrong,
    /// The energy counter did not count, though the device drew power.
    #[error("its counter stood still while power was drawn")]
    StandsStill,
    /// The energy counter differs from the readings of power by more than those can miss.
    #[error("its counter and the readings of power differ by more than twice")]
    Contradicted,
    /// Tracking could not begin.
    #[error("the run was not tracked")]
    Untracked,
    /// Two readings were too far apart: what was in between is not known.
    #[error("not read for longer than two intervals")]
    Unread,
    /// Any other failure, in the driver's words.
    #[error("{0}")]
    Failed(String),
}

impl Missing {
    /// Whether a later reading may give a value: the driver failed without saying that it can't.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Failed(_))
    }

    /// Whether the parts that the device is divided into report the figure, so that a sum over all devices lacks nothing.
    pub fn is_reported_by_parts(&self) -> bool {
        matches!(self, Self::ReportedByInstances | Self::ReportedByPartitions)
    }
}

/// A value, or why there is none.
pub type Reading<T> = Result<T, Missing>;

/// Joins two readings of a figure: two known values by `combine`. If only one is known, it is the result. If neither is, the
/// result is the reason of the second.
pub fn either<T>(a: Reading<T>, b: Reading<T>, combine: impl FnOnce(T, T) -> T) -> Reading<T> {
    match (a, b) {
        (Ok(a), Ok(b)) => Ok(combine(a, b)),
        (Ok(known), Err(_)) | (Err(_), Ok(known)) => Ok(known),
        (Err(_), later) => later,
    }
}

named! {
    /// What a device can report.
    pub enum Figure {
        /// Memory in use by all processes of the machine, bytes.
        MemoryUsed = "memory",
        /// Time in which anything ran on it, percent.
        Utilization = "utilization",
        /// Time in which its memory was read or written, percent.
        MemoryUtilization = "memory utilization",
        /// Time in which its video encoder ran, percent.
        EncoderUtilization = "encoder utilization",
        /// Time in which its video decoder ran, percent.
        DecoderUtilization = "decoder utilization",
        /// Power, watts.
        Power = "power",
        /// The energy counter, joules.
        Energy = "energy counter",
        /// Temperature, degrees Celsius.
        Temperature = "temperature",
        /// Clock of the processors, MHz.
        SmClock = "SM clock",
        /// Clock of the memory, MHz.
        MemoryClock = "memory clock",
        /// Performance state, 0 the fastest.
        Pstate = "performance state",
        /// Why the clocks are below their maximum.
        Throttle = "throttle reasons",
        /// Bytes sent over PCIe, a counter.
        PcieTx = "PCIe bytes sent",
        /// Bytes received over PCIe, a counter.
        PcieRx = "PCIe bytes received",
        /// Memory errors that were corrected, a counter.
        EccCorrected = "ECC errors corrected",
        /// Memory errors that were not corrected, a counter.
        EccUncorrected = "ECC errors uncorrected",
        /// Critical errors that the driver reports by number.
        Xid = "XID errors",
        /// GPU memory of each process, bytes.
        ProcessMemory = "memory by process",
        /// Time in which each process ran on it, percent.
        ProcessUtilization = "utilization by process",
        /// The driver's accounting entries, which outlive their processes.
        Accounting = "accounting",
        /// Mean over the SMs of the time in which a warp was on them, percent.
        SmActive = "SM activity",
        /// Warps on the SMs, percent of the most that fit.
        SmOccupancy = "SM occupancy",
        /// Time in which the tensor cores worked, percent.
        TensorActive = "tensor core activity",
        /// Bytes to and from the device's memory, percent of the most that is possible.
        MemoryBandwidth = "memory bandwidth",
        /// Time in which the pipes for numbers of 64 bits worked, percent.
        Fp64Active = "FP64 activity",
        /// Time in which the pipes for numbers of 32 bits worked, percent.
        Fp32Active = "FP32 activity",
        /// Time in which the pipes for numbers of 16 bits worked, percent.
        Fp16Active = "FP16 activity",
        /// Bytes sent over PCIe a second.
        PcieTxRate = "PCIe rate sent",
        /// Bytes received over PCIe a second.
        PcieRxRate = "PCIe rate received",
        /// Bytes sent over all NVLinks a second.
        NvlinkTxRate = "NVLink rate sent",
        /// Bytes received over all NVLinks a second.
        NvlinkRxRate = "NVLink rate received",
        /// All figures of performance counters, of which most GPUs have none: what stands for them in lists of figures.
        Activity = "activity",
        /// Speed of the fan that the driver intends, percent of its maximum.
        FanSpeed = "fan speed",
        /// The power limit that was set, watts.
        PowerLimit = "power limit",
        /// The power limit that holds, watts: the lowest of all that apply.
        EnforcedPowerLimit = "enforced power limit",
        /// Clock of the graphics domain, MHz.
        GraphicsClock = "graphics clock",
        /// Temperature of the memory, degrees Celsius.
        MemoryTemperature = "memory temperature",
        /// Generation of PCIe at which its link runs now.
        PcieGeneration = "PCIe generation",
        /// Lanes of its PCIe link that are in use now.
        PcieWidth = "PCIe width",
    }
}

impl Figure {
    /// The entries of a list of figures: one for each, in the order of [`Self::ALL`]. Those of performance counters have
    /// one together, as [`Self::Activity`], if they are all alike.
    pub fn entries<T: PartialEq>(of: impl Fn(Self) -> T) -> Vec<(Self, T)> {
        let all = Self::ALL.into_iter().filter(|figure| *figure != Self::Activity);
        let all = all.map(|figure| (figure, of(figure)));
        let (mut counters, mut entries): (Vec<_>, Vec<_>) = all.partition(|(figure, _)| figure.is_of_gpm());
        if counters.windows(2).all(|pair| pair[0].1 == pair[1].1) {
            counters.truncate(1);
            counters.iter_mut().for_each(|(figure, _)| *figure = Self::Activity);
        }
        entries.extend(counters);
        entries
    }

    /// Whether the hardware's performance counters give it (NVIDIA's GPM).
    pub fn is_of_gpm(self) -> bool {
        (Self::SmActive..=Self::NvlinkRxRate).contains(&self)
    }

    /// Whether the driver adds the figure up, so that a reading includes what happened since the reading before.
    pub fn is_cumulative(self) -> bool {
        use Figure::{Accounting, EccCorrected, EccUncorrected, Energy, PcieRx, PcieTx, Xid};
        matches!(self, Accounting | EccCorrected | EccUncorrected | Energy | PcieRx | PcieTx | Xid)
    }

    /// Whether the figure is read only where somebody asks for it by name: a log, or a query.
    pub fn is_on_request(self) -> bool {
        (Self::FanSpeed..=Self::PcieWidth).contains(&self)
    }

    /// Whether it is normal that the figure is missing for this reason, so that no warning is needed. That is so for PCIe counters that
    /// can wrap on a device, or were read too seldom in a short run. The report has the reason in `gpus[].missing`.
    pub fn may_be_absent(self, reason: &Missing) -> bool {
        match self {
            Self::PcieTx | Self::PcieRx => {
                matches!(reason, Missing::Wraps | Missing::NoSample | Missing::ReadOnce)
            }
            // Only NVIDIA's GPUs since Hopper have them, and some models lack one. A refusal is worth a warning.
            _ if self.is_of_gpm() || self == Self::Activity => {
                !matches!(reason, Missing::NoPermission | Missing::Failed(_))
            }
            _ => false,
        }
    }
}
