//! A device, and what is kept of it from one reading to the next.

use nvml_wrapper_sys::bindings::nvmlDevice_t;

use super::accounting::Accounting;
use super::figure_kind::Kind;
use super::gpm::Gpm;
use super::process_lists::{KnownLists, ListsOf};
use super::utilization::Progress;
use crate::model::gpu::{Device, DeviceSample, Missing, Reading};

/// A device and what was read of it so far.
pub(super) struct Handle {
    /// The driver's handle.
    pub raw: nvmlDevice_t,
    /// What the device is, as far as it is known.
    pub device: Device,
    /// The device is divided into MIG instances, which report processes and utilisation.
    pub is_divided: bool,
    /// The driver's last answer to a request for the handle was GPU_IS_LOST.
    pub is_lost: bool,
    /// The last reading said that the device is lost. The lists show whether it is back.
    pub is_gone: bool,
    /// The driver had the device when devices were last listed.
    pub is_present: bool,
    /// What the PCIe link carries one way, bytes a second; `None`: not asked yet, `Some(None)`: not known.
    pub link_bytes_per_s: Option<Option<u64>>,
    /// The device's process lists.
    pub lists: KnownLists,
    /// The lists of the device that this one is an instance of, if its own are refused.
    pub lists_of_parent: Option<ListsOf>,
    /// What was read when the device was found, until that is handed over, and how long it took, nanoseconds.
    pub first: Option<(DeviceSample, u64)>,
    /// How far the driver's utilization samples were read.
    pub progress: Progress,
    pub sensors: Sensors,
    /// The driver's handle of the divided device that this one is an instance of; `None`: this is a whole device.
    pub parent_raw: Option<nvmlDevice_t>,
    /// The figures that are read on request alone are read.
    pub reads_on_request: bool,
    /// GPM samples, once they were asked for, or why there are none.
    pub gpm: Option<Reading<Gpm>>,
    /// Accounting, once it was asked for.
    pub accounting: Option<Accounting>,
    /// Whether the driver reports the device's critical errors; `None`: the device was not described yet ([`Kind::Details`]).
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
            lists: KnownLists::default(),
            lists_of_parent: None,
            first: None,
            progress: Progress::default(),
            sensors: Sensors::default(),
            parent_raw,
            reads_on_request: false,
            gpm: None,
            accounting: None,
            events: None,
        }
    }

    /// Whether to ask the device for these kinds of figures. A device that a reading found lost is asked only if lists are among
    /// them, which show whether it is back.
    pub(super) fn may_answer(&self, kinds: &[Kind]) -> bool {
        let reads_lists = kinds.iter().any(|kind| kind.is_memory());
        !self.is_lost && self.is_present && (reads_lists || !self.is_gone)
    }

    /// Notes how the driver names the device now, and that the device is present. Returns the samples of its counters by
    /// the handle before, if it has another one now.
    pub(super) fn renew(
        &mut self,
        raw: nvmlDevice_t,
        index: Option<u32>,
        parent_raw: Option<nvmlDevice_t>,
    ) -> Option<Reading<Gpm>> {
        let is_other = (self.raw, self.parent_raw) != (raw, parent_raw);
        let before = self.gpm.take_if(|gpm| is_other && !matches!(gpm, Err(Missing::NoGpm)));
        (self.raw, self.is_present, self.device.index, self.parent_raw) = (raw, true, index, parent_raw);
        if is_other {
            (self.lists_of_parent, self.lists) = (None, KnownLists::new(self.lists.capacity_bytes));
        }
        before
    }
}

/// Whether a device has the better of two calls for a figure. `None`: that is not known yet.
#[derive(Debug, Default)]
pub(super) struct Sensors {
    /// It has the call for memory that reports the driver's reserve apart.
    pub has_reserve: Option<bool>,
    /// It has the field of the present power.
    pub has_instant_power: Option<bool>,
    /// It has the versioned call for the temperature.
    pub has_versioned_temperature: Option<bool>,
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: GPU-82
    #[test]
    fn counters_that_are_switched_off_stay_so_under_another_handle() {
        let raw = std::ptr::without_provenance_mut;
        let mut handle = Handle::new(raw(8), Device::default(), None);
        for (before, is_kept) in [(Missing::NoGpm, true), (Missing::NotSupported, false)] {
            handle.gpm = Some(Err(before));
            handle.renew(raw(handle.raw.addr() + 8), None, None);
            assert_eq!(handle.gpm.is_some(), is_kept);
        }
    }
}
