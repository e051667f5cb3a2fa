//! How many cores were busy for how long: a histogram, whose size depends on the number of cores alone.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Bins of the histogram for each core.
const BINS_PER_CORE: f64 = 20.0;

/// Time by number of busy cores.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct BusyCores {
    /// Nanoseconds in each bin.
    time_ns: BTreeMap<u32, u64>,
}

impl BusyCores {
    /// Adds a time, nanoseconds, over which this number of cores was busy on average.
    pub(super) fn add(&mut self, cores: f64, time_ns: u64) {
        // A cast from `f64` saturates, so no number of cores wraps to a wrong bin.
        let bin = self.time_ns.entry((cores * BINS_PER_CORE) as u32).or_default();
        *bin = bin.saturating_add(time_ns);
    }

    /// The number of busy cores that was not exceeded for `part` of the time, from 0 to 1. The number is rounded down to a
    /// twentieth of a core. `None`: no time was added.
    pub(crate) fn quantile(&self, part: f64) -> Option<f64> {
        let total_ns: f64 = self.time_ns.values().map(|ns| *ns as f64).sum();
        let mut up_to_bin_ns = 0.0;
        for (bin, ns) in &self.time_ns {
            up_to_bin_ns += *ns as f64;
            if up_to_bin_ns >= total_ns * part {
                return Some(f64::from(*bin) / BINS_PER_CORE);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantile_is_the_cores_not_exceeded_for_that_time() {
        let mut busy = BusyCores::default();
        assert_eq!(busy.quantile(0.95), None);
        busy.add(1.02, 940);
        busy.add(7.5, 60);
        assert_eq!(busy.quantile(0.94), Some(1.0));
        assert_eq!(busy.quantile(0.95), Some(7.5));
        busy.add(0.0, 1000);
        assert_eq!((busy.quantile(0.5), busy.quantile(0.95)), (Some(0.0), Some(1.0)));
    }
}
