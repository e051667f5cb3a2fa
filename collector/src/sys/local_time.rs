//! Local time by localtime_r(3), because the standard library and humantime know UTC only.

use std::mem::MaybeUninit;

/// Formats a time, nanoseconds since the epoch, as nvidia-smi does: `2026/11/25 12:01:02.123`. `None`: the C library can't
/// represent its year.
pub(crate) fn with_milliseconds(realtime_ns: u64) -> Option<String> {
    let seconds = libc::time_t::try_from(realtime_ns / 1_000_000_000).unwrap_or(libc::time_t::MAX);
    let milliseconds = realtime_ns / 1_000_000 % 1000;
    let mut local = MaybeUninit::<libc::tm>::zeroed();
    // SAFETY: localtime_r reads the seconds and writes the whole struct, or returns null. All zeros are a valid struct, too.
    let (is_known, tm) = unsafe {
        let is_known = !libc::localtime_r(&raw const seconds, local.as_mut_ptr()).is_null();
        (is_known, local.assume_init())
    };
    is_known.then(|| {
        format!(
            "{:04}/{:02}/{:02} {:02}:{:02}:{:02}.{milliseconds:03}",
            i64::from(tm.tm_year) + 1900,
            tm.tm_mon + 1,
            tm.tm_mday,
            tm.tm_hour,
            tm.tm_min,
            tm.tm_sec
        )
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn time_is_that_of_date() {
        // Before and after the end of summer time in many places.
        for seconds in [0, 1_782_475_262, 1_792_888_200, 1_798_761_599] {
            let mut date = Command::new("date");
            date.args(["-d", &format!("@{seconds}"), "+%Y/%m/%d %H:%M:%S"]);
            let expected = String::from_utf8(date.output().unwrap().stdout).unwrap();
            let written = with_milliseconds(seconds * 1_000_000_000 + 7_999_999);
            assert_eq!(written, Some(format!("{}.007", expected.trim_end())));
        }
    }
}
