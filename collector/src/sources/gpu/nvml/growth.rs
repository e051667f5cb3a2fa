//! Watches the collector's memory for growth by the driver's library: some grow with every call.

use super::policy::CALLS;
use crate::sys::proc_fs::{ProcRoot, Statm};

/// Watches the collector's memory for growth by the driver's library.
#[derive(Debug, Default)]
pub(super) struct MemoryCheck {
    readings: u64,
    first_bytes: Option<u64>,
    has_warned: bool,
}

impl MemoryCheck {
    /// To be called at each reading. Gives the growth in bytes, once, when it is too much. `own_bytes` reads the private
    /// memory of this process.
    pub(super) fn check(&mut self, own_bytes: impl FnOnce() -> Option<u64>) -> Option<u64> {
        self.readings += 1;
        if self.has_warned || !self.readings.is_multiple_of(CALLS.memory_check_readings) {
            return None;
        }
        let now = own_bytes()?;
        let grown = now.saturating_sub(*self.first_bytes.get_or_insert(now));
        self.has_warned = grown > CALLS.memory_growth_bytes;
        self.has_warned.then_some(grown)
    }
}

/// Private memory of this process, bytes.
pub(super) fn own_bytes() -> Option<u64> {
    let text = ProcRoot::default().read(std::process::id(), "statm")?;
    let statm = Statm::parse(&text)?;
    Some(statm.resident.saturating_sub(statm.shared) * rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_growth_is_reported_once() {
        let mut memory = MemoryCheck::default();
        let mut check =
            |n: u64, bytes: u64| (0..n).filter_map(|_| memory.check(|| Some(bytes))).collect::<Vec<_>>();
        assert_eq!(check(2 * CALLS.memory_check_readings, 1000), [0; 0]);
        assert_eq!(check(CALLS.memory_check_readings, 1000 + CALLS.memory_growth_bytes), [0; 0]);
        assert_eq!(
            check(CALLS.memory_check_readings, 1001 + CALLS.memory_growth_bytes),
            [1 + CALLS.memory_growth_bytes]
        );
        assert_eq!(check(2 * CALLS.memory_check_readings, 3 * CALLS.memory_growth_bytes), [0; 0]);
    }

    #[test]
    fn own_private_memory_is_read() {
        let before = own_bytes().unwrap();
        // An optimised build leaves out memory that is never used.
        let held = std::hint::black_box(vec![1u8; 512 << 20]);
        // Other tests may free some meanwhile.
        assert!(own_bytes().unwrap() > before + (256 << 20), "{}", held.len());
    }
}
