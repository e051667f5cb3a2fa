//! The interface of a backend, which reads GPUs by one driver interface: NVML, or the files of DRM and KFD.

use std::collections::BTreeSet;

use crate::model::gpu::{Device, DeviceSample, Missing};

/// What a backend is asked to read.
pub(crate) struct Ask<'a> {
    /// When the turn begins, CLOCK_MONOTONIC nanoseconds.
    pub at_ns: u64,
    /// Ids of the devices to read.
    pub wanted: &'a [String],
    /// Ids of those wanted devices that the command does not see, by its environment.
    pub hidden: &'a BTreeSet<String>,
    /// The processes of the run, for drivers that are asked process by process.
    pub pids: &'a [u32],
    /// It is the end of the run: everything is to be read once more.
    pub is_last: bool,
}

/// What a backend read in one turn.
#[derive(Default)]
pub(crate) struct Turn {
    /// Readings of one device or several.
    pub samples: Vec<DeviceSample>,
    /// When to ask again, CLOCK_MONOTONIC nanoseconds; 0: at once; `None`: after the usual pause.
    pub again_ns: Option<u64>,
    /// More is known of what the devices are (see [`Backend::known_devices`]).
    pub has_news: bool,
    /// Every figure of every device has been read. At the end of the run: each was read once more.
    pub is_complete: bool,
}

/// An interface to a driver. It has a thread of its own, so its calls may take as long as they need.
pub(crate) trait Backend: Send {
    /// Asks for the devices that are present now.
    fn devices(&mut self) -> Vec<Device>;

    /// The devices as they are known, without asking the driver. A backend that knows none before it asks has none.
    fn known_devices(&self) -> Vec<Device> {
        Vec::new()
    }

    /// Reads what is due. Where calls are slow, a turn is short, so that its figures are handed over soon.
    fn turn(&mut self, ask: &Ask<'_>) -> Turn;

    /// How many driver settings were changed, and are not restored.
    fn changed_settings(&self) -> usize {
        0
    }

    /// Restores one changed setting, if there is any.
    fn restore_one(&mut self) {}

    /// Whether each whole device could be identified.
    fn has_all(&self) -> bool {
        true
    }

    /// Why devices that could not be identified can't be read.
    fn unreadable(&self) -> Vec<Missing> {
        Vec::new()
    }

    /// Warnings for the report.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}
