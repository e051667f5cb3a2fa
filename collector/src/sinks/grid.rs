//! The multiples of an interval since the start of a run, at which an output has something to write.

/// Says when the next multiple has passed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grid {
    start_ns: u64,
    every_ns: u64,
    /// Which multiple was taken last; `None`: none yet. 0 is the start.
    last: Option<u64>,
}

impl Grid {
    /// Begins at the start of the run, CLOCK_MONOTONIC nanoseconds. The start itself is the first multiple.
    pub(super) fn new(start_ns: u64, every_ns: u64) -> Self {
        Self { start_ns, every_ns: every_ns.max(1), last: None }
    }

    /// Leaves out the multiples up to this time.
    pub(super) fn after(self, at_ns: u64) -> Self {
        Self { last: Some(self.number(at_ns)), ..self }
    }

    /// Takes the last multiple up to this time, and skips those before it that were not taken. Gives it as the time since the
    /// start, nanoseconds. `None`: it was taken already.
    pub(super) fn take(&mut self, at_ns: u64) -> Option<u64> {
        let number = self.number(at_ns);
        let is_due = self.last.is_none_or(|last| number > last);
        self.last = self.last.max(Some(number));
        is_due.then(|| number.saturating_mul(self.every_ns))
    }

    /// Gives which multiple is the last one up to this time; 0: the start.
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
