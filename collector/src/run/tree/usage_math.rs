//! Sums and differences of usages. They saturate: every number in a record is a claim of the process that wrote it.

use gpu_track_abi::record::Usage;

fn combine(a: &Usage, b: &Usage, f: impl Fn(u64, u64) -> u64, max_rss_kib: u64) -> Usage {
    Usage {
        user_us: f(a.user_us, b.user_us),
        system_us: f(a.system_us, b.system_us),
        max_rss_kib,
        minor_faults: f(a.minor_faults, b.minor_faults),
        major_faults: f(a.major_faults, b.major_faults),
        voluntary_switches: f(a.voluntary_switches, b.voluntary_switches),
        involuntary_switches: f(a.involuntary_switches, b.involuntary_switches),
        input_blocks: f(a.input_blocks, b.input_blocks),
        output_blocks: f(a.output_blocks, b.output_blocks),
    }
}

/// Both together; the peak is the larger one.
#[must_use]
pub fn plus(a: &Usage, b: &Usage) -> Usage {
    combine(a, b, u64::saturating_add, a.max_rss_kib.max(b.max_rss_kib))
}

/// What is left of `a` without `b`; the peak stays.
///
/// User and system time are scaled by the kernel so that only their sum is exact: what one lacks, the other gives.
#[must_use]
pub fn minus(a: &Usage, b: &Usage) -> Usage {
    let mut left = combine(a, b, u64::saturating_sub, a.max_rss_kib);
    let total = (a.user_us.saturating_add(a.system_us)).saturating_sub(b.user_us.saturating_add(b.system_us));
    left.user_us = left.user_us.min(total);
    left.system_us = total - left.user_us;
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_of_user_and_system_is_kept_where_one_would_be_negative() {
        let usage = |user_us, system_us| Usage { user_us, system_us, ..Usage::default() };
        assert_eq!(minus(&usage(10, 5), &usage(4, 7)), usage(4, 0));
        assert_eq!(minus(&usage(3, 9), &usage(5, 1)), usage(0, 6));
        assert_eq!(minus(&usage(1, 1), &usage(5, 5)), usage(0, 0));
        assert_eq!(plus(&usage(u64::MAX, 1), &usage(1, 1)).user_us, u64::MAX);
    }
}
