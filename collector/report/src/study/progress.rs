//! What the user is told of a run of a study while the study goes on.

use crate::figures::{UNKNOWN, bytes, readable};
use crate::model::report::{Report, Stage};
use crate::sections::brief_end;

/// Whether a report has all of its run: the run is over, and was not killed with its tracking.
pub fn is_over(report: &Report) -> bool {
    report.stage == Stage::Over
}

/// Says how the command of a run failed, and after what time. `None`: it succeeded. A run without a final report failed.
pub fn failure(report: &Report) -> Option<String> {
    let is_success = is_over(report) && report.ending.is_success();
    (!is_success).then(|| format!("{} after {}", brief_end(report), readable(report.wall_s)))
}

/// Says in a line what a run used: its wall time and its largest RAM.
pub fn line(report: &Report) -> String {
    let ram = report.max_ram.combined.footprint_bytes.map_or_else(|| UNKNOWN.to_owned(), bytes);
    format!("{}, RAM {ram}", readable(report.wall_s))
}

#[cfg(test)]
mod tests {
    use gpu_track_core::fixtures::{full, killed, unknown};

    use super::*;

    #[test]
    fn line_of_a_run_has_its_time_and_ram_and_a_failed_one_its_end() {
        assert_eq!(line(&full()), "1 min 23 s, RAM 204 MB");
        assert_eq!(line(&unknown()), "2 h 3 min 4 s, RAM n/a");
        let end = failure(&killed()).unwrap();
        assert!(end.starts_with("KILLED by SIG"), "{end}");
        assert_eq!(failure(&unknown()).as_deref(), Some("STILL RUNNING after 2 h 3 min 4 s"));
        assert_eq!(failure(&full()), None);
    }
}
