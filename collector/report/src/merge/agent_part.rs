//! The report of an agent, as a part of the run that a launcher started on another node. The run's first process is that of the
//! launcher's command, on the launcher's node. So all of an agent's processes are descendants.

use crate::model::groups::Groups;
use crate::model::report::{
    ContextSwitches, Faults, Io, Percent, Report, SetRam, SetTracks, Stage, Topic, Track, Warning,
};

/// If an agent starts later than the launcher's command by more than this, its report gets a warning, microseconds. The clocks of
/// two nodes can be compared only to some milliseconds.
const LATE_US: i64 = 100_000;
/// An agent that ends before the launcher's command by more than this did not end because the command ended, microseconds.
const EARLY_US: i64 = 1_000_000;

/// RAM that is known to be 0.
const NO_RAM: SetRam = SetRam { footprint_bytes: Some(0), private_bytes: Some(0), shared_bytes: Some(0) };
/// CPU utilization that is known to be 0.
const NO_CPU: Percent = Percent { max_sum: Some(0.0), mean_sum: Some(0.0) };

/// Counts all processes of an agent's report as descendants: these get the figures of all, and main, the command's first process,
/// gets 0. If the GPU memory of all is unknown, that of main is unknown, too.
pub(super) fn count_as_descendants(report: &mut Report) {
    let ram = &mut report.max_ram;
    (ram.main, ram.descendants) = (NO_RAM, ram.combined);
    let at_most = &mut report.max_ram_at_most;
    (at_most.main, at_most.descendants) = (Some(0), at_most.combined);
    let mean = &mut report.mean_ram_bytes;
    (mean.main, mean.descendants) = (Some(0.0), mean.combined);
    let on_gpus = &mut report.max_gpu_ram;
    (on_gpus.main_bytes, on_gpus.descendants_bytes) =
        (on_gpus.combined_bytes.map(|_| 0), on_gpus.combined_bytes);
    let cpu = &mut report.cpu;
    (cpu.main, cpu.descendants) = (NO_CPU, cpu.combined);
    let points = report.series.start_s.len();
    for tracks in [&mut report.series.ram_bytes, &mut report.series.cpu_percent] {
        move_to_descendants(tracks, points);
    }
}

/// Counts all of a quantity over time, which has `points` points, as that of descendants.
fn move_to_descendants(tracks: &mut SetTracks, points: usize) {
    tracks.main = nothing(points);
    tracks.descendants = tracks.combined.clone();
}

/// A quantity over time that is known to be 0 at each of its `points`.
fn nothing(points: usize) -> Track {
    let zeros = vec![Some(0.0); points];
    Track { min: zeros.clone(), mean: zeros.clone(), max: zeros }
}

/// Notes that nothing ran on the node of this report: what the run used there is known to be 0. The figures of GPUs stay.
fn note_idle(report: &mut Report) {
    (report.max_ram.main, report.max_ram.descendants, report.max_ram.combined) = (NO_RAM, NO_RAM, NO_RAM);
    report.max_ram_at_most = Groups { main: Some(0), descendants: Some(0), combined: Some(0) };
    report.mean_ram_bytes = Groups { main: Some(0.0), descendants: Some(0.0), combined: Some(0.0) };
    (report.cpu.main, report.cpu.descendants, report.cpu.combined) = (NO_CPU, NO_CPU, NO_CPU);
    let time = &mut report.cpu_time;
    for seconds in [
        &mut time.user_s,
        &mut time.system_s,
        &mut time.total_s,
        &mut time.kernel_s,
        &mut time.unattributed_s,
        &mut time.usable_percent,
    ] {
        *seconds = Some(0.0);
    }
    time.kernel_s_reason = None;
    report.io = Io {
        read_bytes: Some(0),
        write_bytes: Some(0),
        cancelled_write_bytes: Some(0),
        reason: None,
        read_call_bytes: Some(0),
        write_call_bytes: Some(0),
        read_calls: Some(0),
        write_calls: Some(0),
        calls_reason: None,
    };
    report.faults = Faults { minor: Some(0), major: Some(0) };
    report.context_switches = ContextSwitches { voluntary: Some(0), involuntary: Some(0) };
    let points = report.series.start_s.len();
    for tracks in [&mut report.series.ram_bytes, &mut report.series.cpu_percent] {
        tracks.combined = nothing(points);
    }
}

/// Notes in the report of an agent without a command how long the launcher's command ran without the agent, microseconds.
/// `late_us` is the time after the start of that command, `early_us` the time before its end.
///
/// - If the agent was there all the time and saw no process, there was none: what was unknown becomes 0.
/// - If it started late, the report gets a warning.
/// - If it ended early, its report becomes one so far. The merged report then says when the node was last heard of.
pub(super) fn note_absence(report: &mut Report, late_us: i64, early_us: i64) {
    let coverage = &report.coverage;
    let is_tracked = coverage.untracked_reason.is_none() && coverage.dropped_events == 0;
    if coverage.processes == 0 && is_tracked && late_us <= LATE_US && early_us <= EARLY_US {
        note_idle(report);
    }
    if late_us > LATE_US {
        let text = format!(
            "Tracked only from {:.1} s after the command's start on: what ran here before is missing, and so is what had \
             started by then.",
            late_us as f64 / 1e6
        );
        report.warnings.push(Warning::new(Topic::Tracking, text));
    }
    if early_us > EARLY_US {
        report.stage = Stage::SoFar;
    }
}
