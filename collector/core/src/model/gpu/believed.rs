//! What is believed of a driver: a call can return success with all bits set, no number (NaN), or memory that nobody wrote.

use super::figure::{Figure, Missing, Reading};

/// More bytes than any device has.
pub const MOST_BYTES: u64 = 1 << 50;
/// More memory than a device's capacity is believed up to one part in this many of it: a driver may have taken its own reserve off the
/// capacity.
const PART_ABOVE_CAPACITY: u64 = 32;

/// The most memory that can be in use on a device with this capacity, by one process or by all, bytes. `None`: it is not known.
pub fn most_bytes(capacity_bytes: Option<u64>) -> u64 {
    capacity_bytes.map_or(MOST_BYTES, |bytes| bytes.saturating_add(bytes / PART_ABOVE_CAPACITY))
}

impl Figure {
    /// The least and the largest value that a device can have, in the figure's unit.
    fn possible(self) -> [f64; 2] {
        let most = match self {
            Self::MemoryUsed => MOST_BYTES as f64,
            Self::Temperature => return [-100.0, 1000.0],
            Self::Pstate => 15.0,
            Self::Power | Self::PowerLimit | Self::EnforcedPowerLimit | Self::SmClock => 1e5,
            Self::MemoryClock | Self::GraphicsClock => 1e5,
            Self::PcieGeneration | Self::PcieWidth => 64.0,
            // Counters of 64 bits.
            Self::Energy | Self::PcieTx | Self::PcieRx | Self::EccCorrected | Self::EccUncorrected => 1e16,
            Self::PcieTxRate | Self::PcieRxRate | Self::NvlinkTxRate | Self::NvlinkRxRate => 1e14,
            // Percent, of which fans can have more than a hundred.
            _ => 1000.0,
        };
        [0.0, most]
    }

    /// The value, unless no device can have it.
    pub fn believed(self, value: Reading<f64>) -> Reading<f64> {
        let [least, most] = self.possible();
        value.and_then(
            |value| {
                if (least..=most).contains(&value) { Ok(value) } else { Err(Missing::NotReported) }
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: GPU-88
    #[test]
    fn value_that_no_device_can_have_is_not_reported() {
        let all_set =
            [f64::from(u32::MAX), u64::MAX as f64, u64::MAX as f64 / 1e3, f64::NAN, f64::INFINITY, -1e300];
        for figure in Figure::ALL {
            for value in all_set.into_iter().filter(|value| *value > 1e16 || !figure.is_cumulative()) {
                let is_small = value <= figure.possible()[1];
                assert!(is_small || figure.believed(Ok(value)).is_err(), "{figure:?} {value}");
            }
            assert_eq!(figure.believed(Ok(0.0)), Ok(0.0));
            assert_eq!(figure.believed(Err(Missing::Lost)), Err(Missing::Lost));
        }
        assert_eq!(Figure::Temperature.believed(Ok(-5.0)), Ok(-5.0));
        assert_eq!(Figure::Power.believed(Ok(1200.0)), Ok(1200.0));
    }
}
