//! Which GPUs the user wants tracked, and where to look for them.

use std::ffi::OsString;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::model::batch::slurm;
use crate::model::config::DEFAULT_INTERVAL_NS;
use crate::{named, with_defaults};

/// For how much of the time readings may keep the driver busy by default, percent. The command's own driver calls wait meanwhile.
const DRIVER_PERCENT: u32 = 25;
/// The same if the user gave the sampling interval, percent: then readings at that interval are worth longer waits of the command.
pub const DRIVER_PERCENT_AT_INTERVAL: u32 = 75;

/// The variable that names the library to load in place of `libnvidia-ml.so.1`.
pub const ENV_NVML_LIB: &str = "GPU_TRACK_NVML_LIB";
/// The variable that names the file of metrics, which the command's processes write.
pub const ENV_METRICS: &str = "GPU_TRACK_METRICS";

named! {
    /// Maker of a GPU.
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    pub enum Vendor {
        /// NVIDIA.
        Nvidia = "nvidia",
        /// AMD.
        Amd = "amd",
        /// Intel.
        Intel = "intel",
    }
}

/// What the command's environment says about the GPUs that it may use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Visible {
    /// CUDA_VISIBLE_DEVICES.
    pub cuda: Option<String>,
    /// CUDA_DEVICE_ORDER: how CUDA counts.
    pub cuda_order: Option<String>,
    /// SLURM_STEP_GPUS, or SLURM_JOB_GPUS: numbers of device nodes.
    pub slurm: Option<String>,
    /// ROCR_VISIBLE_DEVICES.
    pub rocr: Option<String>,
    /// HIP_VISIBLE_DEVICES: what HIP programs see of the devices that ROCm leaves.
    pub hip: Option<String>,
    /// GPU_DEVICE_ORDINAL: the same for OpenCL programs.
    pub opencl: Option<String>,
}

impl Visible {
    /// Reads the variables. One that is not UTF-8 counts as not set.
    fn from_environment(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let value = |name: &str| variable(name)?.into_string().ok();
        Self {
            cuda: value("CUDA_VISIBLE_DEVICES"),
            cuda_order: value("CUDA_DEVICE_ORDER"),
            slurm: slurm::GPUS.into_iter().find_map(value),
            rocr: value("ROCR_VISIBLE_DEVICES"),
            hip: value("HIP_VISIBLE_DEVICES"),
            opencl: value("GPU_DEVICE_ORDINAL"),
        }
    }
}

with_defaults! {
    /// The configuration of the GPU monitor.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct GpuConfig {
        /// GPUs to track: UUIDs of GPUs or MIG instances, prefixes of UUIDs, or PCI addresses. `None`: all of the
        /// machine.
        pub uuids: Option<Vec<String>> = None,
        /// Only the GPUs that the command may use.
        pub only_visible: bool = false,
        /// Only the GPUs of this maker.
        pub vendor: Option<Vendor> = None,
        /// Path of NVIDIA's management library. `None`: the dynamic linker finds it.
        pub nvml_lib: Option<PathBuf> = None,
        /// The driver's accounting mode is enabled for the run.
        pub accounting: bool = false,
        /// The performance counters are read, where there are any (GPM).
        pub gpm: bool = true,
        /// Figures that are read on request alone are read, too: a log or a query names one.
        pub on_request: bool = false,
        /// The directory below which the /proc, /sys and /dev files of GPUs are.
        pub root: PathBuf = PathBuf::from("/"),
        /// The variables that say what the command may see.
        pub visible: Visible = Visible::default(),
        /// The file of metrics, which has what PyTorch told of its memory. `None`: the environment names none.
        pub metrics: Option<PathBuf> = None,
        /// NVIDIA's library is not loaded, because this signal has repeatedly killed collectors that had loaded it.
        pub crashed_by: Option<i32> = None,
        /// Shortest time between two samples, nanoseconds.
        pub interval_ns: u64 = DEFAULT_INTERVAL_NS,
        /// For how much of the time NVIDIA's driver may be kept busy, percent. It is more if the user gave the sampling
        /// interval.
        pub driver_percent: u32 = DRIVER_PERCENT,
    }
}

impl GpuConfig {
    /// Adds what the command's environment says: which GPUs it may use, the file of metrics, and the path of NVIDIA's library if no
    /// option gave one.
    pub fn with_environment(self, variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let path = |name| variable(name).filter(|path| !path.is_empty()).map(PathBuf::from);
        let (library, metrics) = (path(ENV_NVML_LIB), path(ENV_METRICS));
        let visible = Visible::from_environment(variable);
        Self { visible, metrics, nvml_lib: self.nvml_lib.or(library), ..self }
    }

    /// Sets the interval of readings, nanoseconds. If the user gave it (`is_given`), readings may keep the driver busy for more of the
    /// time.
    #[must_use]
    pub fn at_interval(self, interval_ns: u64, is_given: bool) -> Self {
        let driver_percent = if is_given { DRIVER_PERCENT_AT_INTERVAL } else { DRIVER_PERCENT };
        Self { interval_ns, driver_percent, ..self }
    }

    /// Whether GPUs of this maker are wanted.
    pub fn wants(&self, vendor: Vendor) -> bool {
        self.vendor.is_none_or(|only| only == vendor)
    }

    /// Where a file of the system, such as `/proc/modules`, is below the root.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }
}
