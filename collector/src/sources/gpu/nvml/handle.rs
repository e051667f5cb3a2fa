//! A device, and what is kept of it from one reading to the next.

use nvml_wrapper_sys::bindings::nvmlDevice_t;

use super::accounting::Accounting;
use super::figure_kind::Kind;
use super::gpm::Gpm;
use super::processes::Known;
use super::utilization::Progress;
use crate::model::gpu::{Device, DeviceSample, Reading};

/// A device and what was read of it so far.
pub(super) struct Handle {
    pub raw: nvmlDevice_t,
    pub device: Device,
    /// It is divided into MIG instances, which report processes and utilisation.
    pub is_divided: bool,
    /// The driver answers a request for its handle with GPU_IS_LOST.
    pub is_lost: bool,
    /// A call said that it is lost; the lists show whether it is back.
    pub is_gone: bool,
    /// The driver still has it.
    pub is_present: bool,
    /// What its PCIe link carries one way, bytes a second; `None`: not asked yet, `Some(None)`: not known.
    pub link_bytes_per_s: Option<Option<u64>>,
    pub lists: Known,
    /// What was read when it was found, until it is handed over, and how long that took, nanoseconds.
    pub first: Option<(DeviceSample, u64)>,
    pub progress: Progress,
    pub sensors: Sensors,
    /// The driver's handle of the divided device that it is an instance of; `None`: it is a whole device.
    pub parent_raw: Option<nvmlDevice_t>,
    /// Its GPM samples, once they were asked for; `Some(None)`: it has none.
    pub gpm: Option<Option<Gpm>>,
    /// Accounting, once it was asked for.
    pub accounting: Option<Accounting>,
    /// Whether the driver tells of its critical errors; `None`: not asked yet, like what else describes it.
    pub events: Option<Reading<()>>,
}

impl Handle {
    /// Makes the handle of a device of which nothing was read yet. `parent_raw` is as in the field.
    pub(super) fn new(raw: nvmlDevice_t, device: Device, parent_raw: Option<nvmlDevice_t>) -> Self {
        Self {
            raw,
            device,
            is_divided: false,
            is_lost: false,
            is_gone: false,
            is_present: true,
            link_bytes_per_s: None,
            lists: Known::default(),
            first: None,
            progress: Progress::default(),
            sensors: Sensors::default(),
            parent_raw,
            gpm: None,
            accounting: None,
            events: None,
        }
    }

    /// Whether to ask the device for these kinds: of one that is lost, only the lists show that it is back.
    pub(super) fn may_answer(&self, kinds: &[Kind]) -> bool {
        let reads_lists = kinds.iter().any(|kind| kind.is_memory());
        !self.is_lost && self.is_present && (reads_lists || !self.is_gone)
    }

    /// Notes how the driver names the device now. It is present.
    pub(super) fn renew(&mut self, raw: nvmlDevice_t, index: Option<u32>, parent_raw: Option<nvmlDevice_t>) {
        (self.raw, self.is_present, self.device.index, self.parent_raw) = (raw, true, index, parent_raw);
    }
}

/// Whether a device has the better of two calls for a figure, once that is known.
#[derive(Debug, Default)]
pub(super) struct Sensors {
    /// It has the field of the present power.
    pub has_instant_power: Option<bool>,
    /// It has the versioned call for the temperature.
    pub has_versioned_temperature: Option<bool>,
}
