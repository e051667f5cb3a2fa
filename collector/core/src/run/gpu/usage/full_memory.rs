//! Notes the last reading at which a device had no free memory, and the run's processes that held most of it.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::gpu::Device;
use crate::model::sorting::Sorting;

/// From this part on, memory counts as exhausted: allocations come in blocks of 2 MiB and more, and what is free may be in pieces.
const EXHAUSTED: f64 = 0.97;
/// Maximum number of processes that are named.
const MAX_HOLDERS: usize = 5;

/// A device without free memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FullMemory {
    /// The last reading without free memory, CLOCK_MONOTONIC nanoseconds.
    pub at_ns: u64,
    /// Memory in use by all processes of the machine then, bytes.
    pub used_bytes: u64,
    /// The device's memory, bytes.
    pub total_bytes: u64,
    /// The run's processes that held most, by their ids, with their bytes.
    pub holders: Vec<(u64, u64)>,
}

impl FullMemory {
    /// The state of a device, if a reading shows no free memory and the run holds some of the memory. `used_bytes`: memory in use
    /// by all processes of the machine. `by_process`: the memory of the run's processes, bytes, by their ids.
    pub(super) fn if_full(
        device: &Device,
        at_ns: u64,
        used_bytes: Option<u64>,
        by_process: &BTreeMap<u64, Option<u64>>,
    ) -> Option<Self> {
        let (used_bytes, total_bytes) = (used_bytes?, device.memory_bytes.filter(|bytes| *bytes > 0)?);
        // Drivers do not count what they keep for themselves as in use.
        let taken = used_bytes.saturating_add(device.reserved_bytes.unwrap_or(0));
        if (taken as f64) < total_bytes as f64 * EXHAUSTED {
            return None;
        }
        let mut holders: Vec<_> =
            by_process.iter().filter_map(|(id, bytes)| Some((*id, (*bytes)?))).collect();
        holders.order_by_key(|(_, bytes)| Reverse(*bytes));
        holders.truncate(MAX_HOLDERS);
        (!holders.is_empty()).then_some(Self { at_ns, used_bytes, total_bytes, holders })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: WHY-11
    #[test]
    fn memory_is_exhausted_when_nearly_none_is_free() {
        let device = Device { memory_bytes: Some(1000), reserved_bytes: Some(20), ..Device::default() };
        let held = BTreeMap::from([(1, Some(100)), (2, None), (3, Some(800))]);
        let full = |used| FullMemory::if_full(&device, 5, used, &held);
        assert_eq!((full(None), full(Some(949))), (None, None));
        let at = full(Some(950)).unwrap();
        assert_eq!((at.used_bytes, at.total_bytes, at.holders), (950, 1000, vec![(3, 800), (1, 100)]));
        assert_eq!(FullMemory::if_full(&Device::default(), 5, Some(950), &held), None);
        assert_eq!(FullMemory::if_full(&device, 5, Some(950), &BTreeMap::new()), None, "others hold it");
    }
}
