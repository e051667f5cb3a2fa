//! The journal of findings (event records, and events of the kernel's process connector), as the sources see it.

use std::fmt;

use super::kernel_event::EventSlot;
use super::record_or_event::Entry;

/// Keeps findings for the collector that replaces a killed one.
///
/// Writing cannot fail for the caller. A journal that runs out of space discards all that it holds, because its reader could not
/// notice a gap.
pub trait Journal: fmt::Debug + Send + Sync {
    /// Writes findings. The first one becomes entry `number`.
    fn write_findings(&self, number: u64, entries: &[Entry]);

    /// Writes events of the process connector that were read but not merged yet. The first one becomes event `number`.
    fn write_events(&self, number: u64, events: &[EventSlot]);

    /// The events of the process connector that were written, from event `number` on.
    fn events(&self, number: u64) -> Vec<EventSlot>;
}
