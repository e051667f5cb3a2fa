//! The report of an agent, as a part of the run that a launcher started on another node. There, the first process is that of the
//! launcher's command. So all of an agent's processes are descendants.

use crate::model::report::{Percent, Report, SetRam, SetTracks, Track};

/// Makes all of a report's processes descendants, and leaves out what is of its first process alone.
pub(super) fn as_part(report: &mut Report) {
    let ram = &mut report.max_ram;
    (ram.main, ram.descendants) =
        (SetRam { footprint_bytes: Some(0), private_bytes: Some(0), shared_bytes: Some(0) }, ram.combined);
    let at_most = &mut report.max_ram_at_most;
    (at_most.main, at_most.descendants) = (Some(0), at_most.combined);
    let mean = &mut report.mean_ram_bytes;
    (mean.main, mean.descendants) = (Some(0.0), mean.combined);
    let on_gpus = &mut report.max_gpu_ram;
    (on_gpus.main_bytes, on_gpus.descendants_bytes) =
        (on_gpus.combined_bytes.map(|_| 0), on_gpus.combined_bytes);
    let cpu = &mut report.cpu;
    (cpu.main, cpu.descendants) = (Percent { max_sum: Some(0.0), mean_sum: Some(0.0) }, cpu.combined);
    let points = report.series.start_s.len();
    for tracks in [&mut report.series.ram_bytes, &mut report.series.cpu_percent] {
        move_to_descendants(tracks, points);
    }
}

/// Makes a quantity over so many points one of descendants.
fn move_to_descendants(tracks: &mut SetTracks, points: usize) {
    let nothing = vec![Some(0.0); points];
    tracks.main = Track { min: nothing.clone(), mean: nothing.clone(), max: nothing };
    tracks.descendants = tracks.combined.clone();
}
