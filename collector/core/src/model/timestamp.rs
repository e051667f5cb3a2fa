//! Wall-clock times as text.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// RFC 3339 in UTC, to the millisecond. A machine's clock can be set to any time, but humantime panics outside of 1970 to
/// 9999, so the time is clamped to that.
pub fn rfc3339(time: SystemTime) -> String {
    const LAST_S: u64 = 253_402_300_799;
    let since_epoch = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let clamped = since_epoch.min(Duration::from_secs(LAST_S));
    humantime::format_rfc3339_millis(UNIX_EPOCH + clamped).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_outside_the_calendar_is_clamped() {
        assert_eq!(
            rfc3339(UNIX_EPOCH + Duration::from_millis(1_760_000_000_123)),
            "2025-10-09T08:53:20.123Z"
        );
        assert_eq!(rfc3339(UNIX_EPOCH - Duration::from_secs(1)), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(UNIX_EPOCH + Duration::from_secs(1 << 60)), "9999-12-31T23:59:59.000Z");
    }
}
