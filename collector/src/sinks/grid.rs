//! The points of time at which an output writes: the multiples of its interval since the start of the run.

/// The multiples that an output has still to take. Times are CLOCK_MONOTONIC nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grid {
    start_ns: u64,
    every_ns: u64,
    /// The number of the multiple that was taken last; 0 is the start of the run. `None`: none was taken yet.
    last: Option<u64>,
}

impl Grid {
    /// Makes the grid of a run that starts at `start_ns`. The start itself is the first multiple.
    pub(super) fn new(start_ns: u64, every_ns: u64) -> Self {
        Self { start_ns, every_ns: every_ns.max(1), last: None }
    }

    /// Skips the multiples up to `at_ns`.
    pub(super) fn after(self, at_ns: u64) -> Self {
        Self { last: Some(self.number(at_ns)), ..self }
    }

    /// Takes the last multiple up to `at_ns`, and skips those before it that were not taken. Returns the multiple, nanoseconds
    /// since the start. `None`: it was taken already.
    pub(super) fn take(&mut self, at_ns: u64) -> Option<u64> {
        let number = self.number(at_ns);
        if self.last.is_some_and(|last| number <= last) {
            return None;
        }
        self.last = Some(number);
        Some(number.saturating_mul(self.every_ns))
    }

    /// The number of the last multiple up to `at_ns`; 0 is the start.
    fn number(&self, at_ns: u64) -> u64 {
        at_ns.saturating_sub(self.start_ns) / self.every_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: TIME-21, TIME-22
    #[test]
    fn each_multiple_is_taken_once_and_late_samples_do_not_move_the_next() {
        let taken = |mut grid: Grid, times: &[u64]| -> Vec<u64> {
            times.iter().filter_map(|at_ns| grid.take(*at_ns)).collect()
        };
        let times = [100, 105, 109, 113, 119, 120, 125, 147, 149, 150];
        let grid = Grid::new(100, 10);
        assert_eq!(taken(grid, &times), [0, 10, 20, 40, 50]);
        assert_eq!(taken(grid.after(100), &times), [10, 20, 40, 50], "without the start");
        assert_eq!(taken(grid.after(121), &times), [40, 50], "another collector wrote the others");
    }
}
