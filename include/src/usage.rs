//! Resource usage of processes, with sums and differences. They saturate: every number in a record is a claim of the
//! process that wrote it.

/// The usage that getrusage(2) and wait4(2) return for a process, or for its waited-for children.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Usage {
    /// User CPU time, microseconds.
    pub user_us: u64,
    /// System CPU time, microseconds.
    pub system_us: u64,
    /// ru_maxrss, KiB. It survives exec. For children it is that of the largest one.
    pub max_rss_kib: u64,
    /// Page faults without I/O.
    pub minor_faults: u64,
    /// Page faults with I/O.
    pub major_faults: u64,
    /// Voluntary context switches.
    pub voluntary_switches: u64,
    /// Involuntary context switches.
    pub involuntary_switches: u64,
    /// Block input, 512-byte units.
    pub input_blocks: u64,
    /// Block output, 512-byte units.
    pub output_blocks: u64,
}

impl Usage {
    /// User and system time together, microseconds.
    pub fn cpu_us(&self) -> u64 {
        self.user_us.saturating_add(self.system_us)
    }

    /// The peak RSS, bytes. If that is too large, it is `u64::MAX`.
    pub fn max_rss_bytes(&self) -> u64 {
        self.max_rss_kib.saturating_mul(1024)
    }

    /// The sums of both; the peak RSS is the larger of the two.
    pub fn plus(&self, other: &Self) -> Self {
        self.combine(other, u64::saturating_add, self.max_rss_kib.max(other.max_rss_kib))
    }

    /// What is left without `other`; the peak RSS stays.
    ///
    /// The kernel scales user and system time so that only their sum is exact. If one of them would be negative, the other
    /// one is reduced instead.
    pub fn minus(&self, other: &Self) -> Self {
        let mut left = self.combine(other, u64::saturating_sub, self.max_rss_kib);
        let total_us = self.cpu_us().saturating_sub(other.cpu_us());
        left.user_us = left.user_us.min(total_us);
        left.system_us = total_us - left.user_us;
        left
    }

    /// This usage with another CPU time, microseconds, for sources that tell only the sum of user and system time. An increase is
    /// user time, in which most programs spend most. A decrease is taken from the system time first, then from the user time.
    pub fn with_cpu_us(&self, cpu_us: u64) -> Self {
        let has_more = cpu_us > self.cpu_us();
        let user_us = if has_more { cpu_us - self.system_us } else { self.user_us.min(cpu_us) };
        Self { user_us, system_us: cpu_us - user_us, ..*self }
    }

    /// Combines each sum of two usages by `f`. The result's peak RSS is `max_rss_kib`.
    fn combine(&self, other: &Self, f: impl Fn(u64, u64) -> u64, max_rss_kib: u64) -> Self {
        Self {
            user_us: f(self.user_us, other.user_us),
            system_us: f(self.system_us, other.system_us),
            max_rss_kib,
            minor_faults: f(self.minor_faults, other.minor_faults),
            major_faults: f(self.major_faults, other.major_faults),
            voluntary_switches: f(self.voluntary_switches, other.voluntary_switches),
            involuntary_switches: f(self.involuntary_switches, other.involuntary_switches),
            input_blocks: f(self.input_blocks, other.input_blocks),
            output_blocks: f(self.output_blocks, other.output_blocks),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn other_cpu_time_changes_one_part_as_far_as_it_can() {
        let with = |cpu_us| {
            let usage = Usage { user_us: 10, system_us: 5, ..Usage::default() }.with_cpu_us(cpu_us);
            (usage.user_us, usage.system_us)
        };
        assert_eq!([20, 15, 12, 3].map(with), [(15, 5), (10, 5), (10, 2), (3, 0)]);
    }

    #[test]
    fn difference_keeps_the_sum_of_user_and_system_time() {
        let usage = |user_us, system_us| Usage { user_us, system_us, ..Usage::default() };
        assert_eq!(usage(10, 5).minus(&usage(4, 7)), usage(4, 0));
        assert_eq!(usage(3, 9).minus(&usage(5, 1)), usage(0, 6));
        assert_eq!(usage(1, 1).minus(&usage(5, 5)), usage(0, 0));
        assert_eq!(usage(u64::MAX, 1).plus(&usage(1, 1)).user_us, u64::MAX);
    }
}
