//! What the user wants to know of GPUs, and where to look for them.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Names the library to load in the place of `libnvidia-ml.so.1`.
pub const ENV_NVML_LIB: &str = "GPU_TRACK_NVML_LIB";

/// Who made a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Vendor {
    /// NVIDIA: asked through NVML.
    Nvidia,
    /// AMD: amdgpu's fdinfo and sysfs, and KFD.
    Amd,
    /// Intel: fdinfo and sysfs of i915 and xe.
    Intel,
}

impl Vendor {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Nvidia, Self::Amd, Self::Intel];

    /// What the user calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Nvidia => "nvidia",
            Self::Amd => "amd",
            Self::Intel => "intel",
        }
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
}

impl Visible {
    /// As the environment of this process, which is the command's too, has it.
    #[must_use]
    pub fn here() -> Self {
        let value = |name: &str| std::env::var(name).ok();
        Self {
            cuda: value("CUDA_VISIBLE_DEVICES"),
            cuda_order: value("CUDA_DEVICE_ORDER"),
            slurm: value("SLURM_STEP_GPUS").or_else(|| value("SLURM_JOB_GPUS")),
            rocr: value("ROCR_VISIBLE_DEVICES"),
        }
    }
}

/// All that the GPU room needs to know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuConfig {
    /// `--guuids`: whole UUIDs or beginnings of them; none: all.
    pub uuids: Option<Vec<String>>,
    /// `--visible`: only those that the command may see.
    pub only_visible: bool,
    /// What the command may see.
    pub visible: Visible,
    /// `--gb`: only GPUs of this maker.
    pub vendor: Option<Vendor>,
    /// `--nvml-lib`.
    pub nvml_lib: Option<PathBuf>,
    /// `--gpu-accounting`.
    pub accounting: bool,
    /// With NVIDIA's library in it the collector was ended by this signal again and again: it is left alone.
    pub crashed_by: Option<i32>,
    /// Where /proc, /sys and /dev lie.
    pub root: PathBuf,
    /// The least time between two samples, nanoseconds.
    pub interval_ns: u64,
}

impl Default for GpuConfig {
    fn default() -> Self {
        Self {
            uuids: None,
            only_visible: false,
            visible: Visible::default(),
            vendor: None,
            nvml_lib: None,
            accounting: false,
            crashed_by: None,
            root: PathBuf::from("/"),
            interval_ns: 100_000_000,
        }
    }
}

impl GpuConfig {
    /// With what the environment of this process adds: the visible GPUs, and NVIDIA's library where no option names it.
    #[must_use]
    pub fn in_this_environment(self) -> Self {
        let library = std::env::var_os(ENV_NVML_LIB).filter(|path| !path.is_empty()).map(PathBuf::from);
        Self { visible: Visible::here(), nvml_lib: self.nvml_lib.or(library), ..self }
    }

    /// Whether GPUs of this maker are wanted.
    #[must_use]
    pub fn wants(&self, vendor: Vendor) -> bool {
        self.vendor.is_none_or(|only| only == vendor)
    }

    /// A path below the root.
    #[must_use]
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Whether anything here speaks for an NVIDIA driver: a library named by the user, or a device node. Three `stat`
    /// calls, so that a machine without one pays no thread and no dlopen.
    #[must_use]
    pub fn may_have_nvidia(&self) -> bool {
        let nodes = ["/dev/nvidiactl", "/dev/dxg", "/proc/driver/nvidia/version"];
        self.nvml_lib.is_some() || nodes.iter().any(|node| self.path(node).exists())
    }

    /// Whether anything here speaks for a DRM or KFD driver.
    #[must_use]
    pub fn may_have_drm(&self) -> bool {
        let is_dir = |path: &Path| path.is_dir();
        is_dir(&self.path("/sys/class/drm")) || is_dir(&self.path("/sys/class/kfd"))
    }
}
