//! The report of a run that attached to a process.

use std::time::{Duration, UNIX_EPOCH};

use super::full;
use crate::model::report::{AttachedTo, ContextSwitches, Coverage, CpuTime, Ending, Hints, Report};

/// Makes the report of a run that attached to a process, which runs on when tracking ends.
#[must_use]
pub fn attached() -> Report {
    let full = full();
    let unknown_before = "what the attached process used before is unknown";
    Report {
        attached: Some(AttachedTo {
            pid: 4242,
            command: "make".into(),
            since: UNIX_EPOCH + Duration::from_millis(1_800_000_000_250),
            ran_before_s: 3600.5,
            runs_on: true,
        }),
        ending: Ending {
            reason: Some("it still ran when tracking ended".into()),
            wait_interrupted: Some(false),
            ..Ending::default()
        },
        cpu_time: CpuTime {
            kernel_s: None,
            kernel_s_reason: Some("the attached process is not a child of gpu-track-run".into()),
            ..full.cpu_time
        },
        context_switches: ContextSwitches::default(),
        coverage: Coverage { helpers: 2, ..full.coverage },
        hints: Hints {
            withheld: Some(unknown_before.into()),
            gpu_memory_reason: Some(unknown_before.into()),
            ..Hints::default()
        },
        ..full
    }
}
