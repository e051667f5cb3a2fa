//! One grid of wall-clock time for all nodes: bins of equal width.

/// Maximum number of bins. A report has 150 to 300 points, so a point of a run of the whole length has two to five bins.
pub(super) const MOST_BINS: i64 = 600;
/// The least width of a bin, microseconds: the start of a report is not more exact.
const LEAST_BIN_US: i64 = 1000;
/// The longest time that a grid covers, microseconds: longer than all times that a report can have (1970 to 9999).
const MOST_US: i64 = 300_000_000_000_000_000;
/// The true start of a report can be later by up to this, microseconds: `started_at` is cut to milliseconds.
pub(super) const START_ROUNDING_US: i64 = 1000;

/// Bins of time, one after another.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
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
    /// Makes the grid of this time, microseconds since the epoch. Its bins are as narrow as [`MOST_BINS`] allow, and 1, 2 or 5
    /// times a power of ten wide.
    pub(super) fn over(start_us: i64, end_us: i64) -> Self {
        let end_us = end_us.clamp(start_us.saturating_add(1), start_us.saturating_add(MOST_US));
        let length_us = end_us - start_us;
        // Up to 5 * 10^14 us, which is enough for MOST_US.
        let decades = (0..12).map(|decade| LEAST_BIN_US * 10_i64.pow(decade));
        let mut widths = decades.flat_map(|decade_us| [1, 2, 5].map(|part| part * decade_us));
        let bin_us = widths.find(|width| length_us <= width * MOST_BINS).unwrap_or(MOST_US / MOST_BINS);
        let bins = usize::try_from((length_us - 1) / bin_us + 1).unwrap_or(1);
        Self { start_us, end_us, bin_us, bins }
    }

    /// The first and the last bin that a stretch of time touches. Time outside of the grid counts to the bin next to it.
    pub(super) fn touched(&self, from_us: i64, to_us: i64) -> (usize, usize) {
        let bin = |at_us: i64| {
            let bin = at_us.saturating_sub(self.start_us).div_euclid(self.bin_us);
            usize::try_from(bin.max(0)).unwrap_or(0).min(self.bins - 1)
        };
        // A stretch that ends where a bin begins does not touch it.
        (bin(from_us), bin(to_us.saturating_sub(1).max(from_us)))
    }

    /// Begin and end of a window, microseconds since the epoch. `number`: its number from 0, if the grid is divided into windows
    /// of `bins_per_window` bins.
    pub(super) fn window(&self, number: usize, bins_per_window: usize) -> (i64, i64) {
        let width_us = self.bin_us.saturating_mul(bins_per_window as i64);
        let begin_us = self.start_us.saturating_add(width_us.saturating_mul(number as i64));
        (begin_us, begin_us.saturating_add(width_us))
    }

    /// A moment in seconds after the start of the grid; 0 before that.
    pub(super) fn at_s(&self, at_us: i64) -> f64 {
        at_us.saturating_sub(self.start_us).max(0) as f64 / 1e6
    }

    /// The begins and the ends of the points of a series, seconds after the start of the grid. The last point ends where
    /// the time does, which can be within its last bin.
    pub(super) fn axis(&self, bins_per_point: usize) -> (Vec<f64>, Vec<f64>) {
        let seconds = |at_us: i64| (at_us.min(self.end_us) - self.start_us) as f64 / 1e6;
        let points = 0..self.bins.div_ceil(bins_per_point);
        let windows = points.map(|number| self.window(number, bins_per_point));
        windows.map(|(begin_us, end_us)| (seconds(begin_us), seconds(end_us))).unzip()
    }
}

/// How much two stretches of time, each with begin and end, have in common, microseconds.
pub(super) fn overlap_us((begin_us, end_us): (i64, i64), (other_begin_us, other_end_us): (i64, i64)) -> u64 {
    let common_us = end_us.min(other_end_us).saturating_sub(begin_us.max(other_begin_us));
    u64::try_from(common_us).unwrap_or(0)
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
