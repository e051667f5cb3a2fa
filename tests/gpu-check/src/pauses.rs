//! How long the checks take.

use std::time::Duration;

/// Times of the checks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    /// How long a GPU is kept busy. The driver's samples are up to a second long.
    pub busy: Duration,
    /// The GPU is busy for this time, then idle for as long.
    pub pulse: Duration,
    /// How often.
    pub pulses: u32,
    /// How long memory is held: several samples.
    pub held: Duration,
    /// Until a busy GPU is at rest.
    pub rest: Duration,
    /// Between two readings of the energy counter.
    pub energy: Duration,
    /// What is copied to the device: bytes, how often, and the pause after each copy.
    pub copies: (u64, u32, Duration),
    /// How long the collector's CPU time is measured.
    pub metered: Duration,
    /// How long memory is allocated and freed, and how often with and without tracking.
    pub loops: (Duration, u32),
    /// How long an NVML call is repeated.
    pub call: Duration,
}

/// The times for a real driver, or the shortest that a fake one needs.
pub(crate) fn times(is_short: bool) -> Times {
    let ms = Duration::from_millis;
    if is_short {
        Times {
            busy: ms(600),
            pulse: ms(200),
            pulses: 2,
            held: ms(300),
            rest: ms(0),
            energy: ms(1000),
            copies: (1 << 20, 4, ms(50)),
            metered: ms(500),
            loops: (ms(50), 1),
            call: ms(5),
        }
    } else {
        Times {
            busy: ms(6000),
            pulse: ms(500),
            pulses: 8,
            held: ms(2000),
            rest: ms(5000),
            energy: ms(20_000),
            copies: (256 << 20, 32, ms(100)),
            metered: ms(5000),
            loops: (ms(1000), 5),
            call: ms(500),
        }
    }
}
