//! Kernel behaviour that only the version number reveals.

/// Whether threads batch their RSS changes before they reach the process's counter (SPLIT_RSS_COUNTING, before Linux 6.2).
pub fn has_split_rss() -> bool {
    is_before((6, 2))
}

/// The largest RSS change that a thread holds back where [`has_split_rss`] is true, KiB: 65 faults (TASK_RSS_EVENTS_THRESH) of
/// 64 KiB each (fault_around_bytes).
pub const MOST_SPLIT_RSS_KIB: u64 = 65 * 64;

/// Whether the running kernel is older than this version.
pub(crate) fn is_before(version: (u32, u32)) -> bool {
    rustix::system::uname().release().to_str().is_ok_and(|release| is_older(release, version))
}

/// Whether a kernel's release, such as `6.1.0-13-amd64`, is older than this version. A release that can't be parsed counts as not
/// older.
fn is_older(release: &str, than: (u32, u32)) -> bool {
    let mut numbers =
        release.split(|c: char| !c.is_ascii_digit()).map_while(|number| number.parse::<u32>().ok());
    let version = numbers.next().zip(numbers.next());
    version.is_some_and(|version| version < than)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distribution_release_strings_compare_by_version() {
        for release in ["4.18.0-553.el8_10.x86_64", "5.14.0-427.13.1.el9_4.x86_64", "6.1.0-30-amd64", "6.1"] {
            assert!(is_older(release, (6, 2)), "{release}");
        }
        for release in ["6.2.0", "6.18.44-fc", "6.12.0-55.el10.x86_64", "10.0.1", "", "6", "next-6.1", "7.x"]
        {
            assert!(!is_older(release, (6, 2)), "{release}");
        }
    }
}
