//! One grid of wall-clock time for all nodes: bins of equal width.

/// Most points of a merged series, as in the report of one node.
pub(super) const MOST_POINTS: usize = 300;
/// Most bins. A report has 150 to 300 points, so a point of a run of the whole length has two to five bins.
pub(super) const MOST_BINS: i64 = 600;
/// The least width of a bin, microseconds: no start is known better.
const LEAST_BIN_US: i64 = 1000;
/// The longest time that a grid covers, microseconds: longer than all that a report can tell of (1970 to 9999).
const MOST_US: i64 = 300_000_000_000_000_000;
/// Two reports that were started at the same time can differ by so much, microseconds: `started_at` is cut to milliseconds.
pub(super) const START_ROUNDING_US: i64 = 1000;

/// Bins of time, one after another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Grid {
    /// Where the first bin begins, microseconds since the epoch.
    pub start_us: i64,
    /// Where the time ends, within the last bin.
    pub end_us: i64,
    /// Width of a bin.
    pub bin_us: i64,
    /// How many.
    pub bins: usize,
}

impl Grid {
    /// Makes the grid of this time, microseconds since the epoch. Its bins are 1, 2 or 5 times a power of ten wide.
    pub(super) fn over(start_us: i64, end_us: i64) -> Self {
        let end_us = end_us.clamp(start_us.saturating_add(1), start_us.saturating_add(MOST_US));
        let length_us = end_us - start_us;
        let decades = (0..12).map(|decade| LEAST_BIN_US * 10_i64.pow(decade));
        let mut widths = decades.flat_map(|decade_us| [1, 2, 5].map(|part| part * decade_us));
        let bin_us = widths.find(|width| length_us <= width * MOST_BINS).unwrap_or(MOST_US / MOST_BINS);
        let bins = usize::try_from((length_us - 1) / bin_us + 1).unwrap_or(1);
        Self { start_us, end_us, bin_us, bins }
    }

    /// Gives the bins that a stretch of time touches: first and last. What is outside of the grid counts to the bin next to it.
    pub(super) fn touched(&self, from_us: i64, to_us: i64) -> (usize, usize) {
        let bin = |at_us: i64| {
            let bin = at_us.saturating_sub(self.start_us).div_euclid(self.bin_us);
            usize::try_from(bin.max(0)).unwrap_or(0).min(self.bins - 1)
        };
        (bin(from_us), bin(to_us.saturating_sub(1).max(from_us)))
    }

    /// Gives the time of windows of so many bins each, the one of this number: begin and end.
    pub(super) fn window(&self, number: usize, bins: usize) -> (i64, i64) {
        let width_us = self.bin_us.saturating_mul(bins as i64);
        let begin_us = self.start_us.saturating_add(width_us.saturating_mul(number as i64));
        (begin_us, begin_us.saturating_add(width_us))
    }

    /// Gives begin and end of each window of so many bins, seconds after the start of the grid. The last ends where the time does.
    pub(super) fn axis(&self, joined: usize) -> (Vec<f64>, Vec<f64>) {
        let seconds = |at_us: i64| (at_us.min(self.end_us) - self.start_us) as f64 / 1e6;
        let windows = (0..self.bins.div_ceil(joined)).map(|number| self.window(number, joined));
        windows.map(|(begin_us, end_us)| (seconds(begin_us), seconds(end_us))).unzip()
    }
}

/// Gives how much two stretches of time have in common, microseconds.
pub(super) fn overlap_us(a: (i64, i64), b: (i64, i64)) -> u64 {
    u64::try_from(a.1.min(b.1).saturating_sub(a.0.max(b.0))).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_have_round_widths_and_cover_the_time() {
        for (length_us, bin_us) in [
            (1, 1000),
            (600_000, 1000),
            (600_001, 2000),
            (83_250_000, 200_000),
            (3_600_000_000, 10_000_000),
            (MOST_US, 500_000_000_000_000),
        ] {
            let grid = Grid::over(7, 7 + length_us);
            assert!(grid.bins as i64 <= MOST_BINS && grid.bins as i64 * grid.bin_us >= length_us, "{grid:?}");
            assert_eq!(grid.bin_us, bin_us, "{grid:?}");
        }
    }

    #[test]
    fn stretch_of_time_touches_the_bins_that_it_has_a_part_of() {
        let grid = Grid::over(1_000_000, 1_600_000);
        assert_eq!(grid.touched(1_000_000, 1_001_000), (0, 0));
        assert_eq!(grid.touched(1_000_999, 1_001_001), (0, 1));
        assert_eq!(grid.touched(1_005_000, 1_005_000), (5, 5), "a moment");
        assert_eq!(grid.touched(0, i64::MAX), (0, 599));
        assert_eq!(grid.axis(400), (vec![0.0, 0.4], vec![0.4, 0.6]));
        assert_eq!([overlap_us((0, 5), (3, 9)), overlap_us((0, 3), (3, 9))], [2, 0]);
    }
}
