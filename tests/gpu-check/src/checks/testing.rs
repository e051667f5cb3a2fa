//! Reports for the tests of the judgments.

use std::path::Path;

use crate::report::{Activity, Clocks, Gpu, Memory, Pcie, Power, Process, Utilization};
use crate::results::Results;

/// A device with these processes (pid, peak), busy all the time.
pub(super) fn gpu(processes: &[(u32, u64)]) -> Gpu {
    let process = |(pid, peak): &(u32, u64)| Process {
        pid: *pid,
        driver_pid: *pid,
        peak_bytes: Some(*peak),
        mean_sm_percent: Some(90.0),
        max_sm_percent: Some(90.0),
        accounted: false,
    };
    Gpu {
        id: "GPU-1".into(),
        name: None,
        visible: None,
        memory: Memory { total_bytes: None, max_used_bytes: Some(80 << 30) },
        utilization: Utilization { active_s: None, mean_percent: None, max_percent: Some(100.0) },
        power: Power {
            mean_w: None,
            max_w: None,
            energy_j: None,
            energy_span_s: None,
            integrated_energy_j: None,
        },
        clocks: Clocks { max_sm_mhz: None },
        pcie: Pcie::default(),
        activity: Activity::default(),
        max_temperature_c: None,
        processes: processes.iter().map(process).collect(),
        missing: Vec::new(),
        reading: None,
    }
}

/// The names of the checks that a judgment calls wrong.
pub(super) fn failures(judge: impl FnOnce(&mut Results)) -> Vec<String> {
    let mut results = Results::new(Path::new("/dev/null"));
    judge(&mut results);
    results.failures
}
