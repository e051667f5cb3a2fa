//! What the GPU monitor and the core exchange at a tick. The core names the run's pids. The monitor answers with what the
//! backends read, and what /proc says of the pids that drivers name.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::device::Device;
use super::figure::Missing;
use super::sample::DeviceSample;

/// The ids by which a driver may name the processes of the run, and what the core already knows of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuPids {
    /// Pids of the run's processes, those that ended lately included; sorted.
    pub processes: Vec<u32>,
    /// Thread ids by which drivers named processes of the run, with the pids of those.
    pub threads: BTreeMap<u32, u32>,
    /// Pids that processes of the run have in pid namespaces of their own; sorted.
    pub inner: Vec<u32>,
    /// Of `processes`, the running ones that are known to have a GPU open.
    pub with_gpu_open: Vec<u32>,
}

impl GpuPids {
    /// Pids and thread ids, for drivers that are asked process by process.
    pub fn all(&self) -> Vec<u32> {
        self.processes.iter().chain(self.threads.keys()).chain(&self.inner).copied().collect()
    }
}

/// What /proc says of an id that a driver names. A fact that the core does not need is not read, and is `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PidFacts {
    /// The process that the id belongs to; it has another pid if the id is a thread's. `None`: it is gone.
    pub thread_group_leader: Option<u32>,
    /// The process has a device file of a GPU open; `None`: it is gone, or its descriptors may not be read. Needed only
    /// where the driver's pids may be of another pid namespace.
    pub has_gpu_open: Option<bool>,
    /// No process or thread that lives in this pid namespace had the id when the driver named it. So the id is of another namespace,
    /// or of a process that is gone.
    pub is_absent: bool,
    /// Whether the process has memory: kernel threads and zombies have none. `None`: it is gone.
    pub has_memory: Option<bool>,
}

/// A device that counts in this run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TrackedDevice {
    /// The device.
    pub device: Device,
    /// Whether the command's environment names it; `None`: it names none.
    pub is_visible: Option<bool>,
}

/// The devices that a backend found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceList {
    /// Those that count in this run.
    pub tracked: Vec<TrackedDevice>,
    /// Ids of all whole devices of the machine.
    pub machine: Vec<String>,
    /// Which of them the command may see depends on the order in which CUDA counts, which only CUDA knows.
    pub is_order_unsure: bool,
}

/// One reading by one backend.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Batch {
    /// CLOCK_MONOTONIC before it began, nanoseconds.
    pub at_ns: u64,
    /// The devices, if they changed since the reading before.
    pub devices: Option<DeviceList>,
    /// What was read, of one device or several.
    pub samples: Vec<DeviceSample>,
}

/// How the backends ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BackendsAtEnd {
    /// Backends that gave no reading, and why.
    pub failed: Vec<(String, Missing)>,
    /// Why devices that could not be identified can't be read.
    pub unreadable: Vec<Missing>,
    /// Names that the user gave by `--guuids`, and that match no device.
    pub unknown_names: Vec<String>,
    /// Warnings for the report.
    pub notes: Vec<String>,
}

/// What the backends found out at a tick.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuObservation {
    /// CLOCK_MONOTONIC, nanoseconds.
    pub at_ns: u64,
    /// CLOCK_REALTIME - CLOCK_MONOTONIC when the monitor was started, microseconds: drivers date accounting entries by the
    /// former.
    pub epoch_us: u64,
    /// Whether any backend may still have devices.
    pub is_active: bool,
    /// How often devices should be read, nanoseconds.
    pub interval_ns: u64,
    /// The collector is in a pid namespace of its own, and drivers may name processes by pids of another one.
    pub has_own_pid_ns: bool,
    /// Readings, in the order of the backends.
    pub batches: Vec<Batch>,
    /// The facts about each id that the readings name.
    pub pids: BTreeMap<u32, PidFacts>,
    /// Backends that have not returned from a driver call, and since when, CLOCK_MONOTONIC nanoseconds.
    pub unresponsive: Vec<(String, u64)>,
    /// How the backends ended; only in the last observation of a run.
    pub end: Option<BackendsAtEnd>,
}
