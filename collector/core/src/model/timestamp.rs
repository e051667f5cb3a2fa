//! Wall-clock times as text: RFC 3339 in UTC, to the millisecond. With `#[serde(with)]`, this module writes and
//! reads the times in a report.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Clamps a time to the years from 1970 to 9999, and cuts it to the millisecond. A machine's clock can be set to any time, but
/// humantime panics outside of these years.
pub fn representable(time: SystemTime) -> SystemTime {
    /// 9999-12-31T23:59:59Z.
    const LAST_S: u64 = 253_402_300_799;
    let since_epoch = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let clamped = since_epoch.min(Duration::from_secs(LAST_S));
    UNIX_EPOCH + Duration::new(clamped.as_secs(), clamped.subsec_millis() * 1_000_000)
}

/// Writes the time as text.
pub fn rfc3339(time: SystemTime) -> String {
    humantime::format_rfc3339_millis(representable(time)).to_string()
}

/// Writes a time as [`rfc3339`] does.
pub(super) fn serialize<S: Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&rfc3339(*time))
}

/// Reads a time, and clamps it as [`representable`] does.
///
/// # Errors
/// If the text is no time in the form of RFC 3339.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SystemTime, D::Error> {
    let text = String::deserialize(deserializer)?;
    let time =
        humantime::parse_rfc3339(&text).map_err(|error| D::Error::custom(format!("{text:?}: {error}")))?;
    Ok(representable(time))
}

/// A time that is written and read as text, where it can be unknown: `#[serde(with)]` has no form for an option.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Timestamp(#[serde(with = "self")] pub SystemTime);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_outside_the_calendar_is_clamped() {
        assert_eq!(
            rfc3339(UNIX_EPOCH + Duration::from_micros(1_760_000_000_123_987)),
            "2025-10-09T08:53:20.123Z"
        );
        assert_eq!(rfc3339(UNIX_EPOCH - Duration::from_secs(1)), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(UNIX_EPOCH + Duration::from_secs(1 << 60)), "9999-12-31T23:59:59.000Z");
    }
}
