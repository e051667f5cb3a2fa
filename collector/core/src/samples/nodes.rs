//! Reports of the ranks of a job on two nodes, each by itself: what a merged report is made of.

use std::time::Duration;

use super::killed::used_gpu;
use super::{full, over_time, percent};
use crate::model::report::*;

/// Ranks on the nodes n1 and n2, of the 16 ranks of the job.
const RANKS: u32 = 13;

/// Gives the reports of twelve ranks on n1 and n2, and the names of their files. Rank 9 on n2 and the ranks on n3 have no report. All
/// ran only for a moment, so the merged series is short.
#[must_use]
pub fn nodes() -> Vec<(String, Report)> {
    (0..RANKS).filter(|rank| *rank != 9).map(|rank| (format!("run.{rank:02}.json"), of_rank(rank))).collect()
}

/// Makes the report of one rank. Rank 7 failed, and rank 12 still runs.
fn of_rank(rank: u32) -> Report {
    let node = if rank < 6 { 1 } else { 2 };
    let peak_bytes = 200_000_000 + 10_000_000 * u64::from(rank);
    let mut report = full();
    report.command = ["./app", "--steps", "100"].map(str::to_owned).to_vec();
    report.started_at += Duration::from_millis(u64::from(rank % 4));
    report.wall_s = 0.04;
    report.host.hostname = Some(format!("n{node}"));
    report.host.boot_id = Some(format!("0f3c2d4e-5b6a-4789-8a9b-c0d1e2f3041{node}"));
    report.rank = Some(OwnRank { job: 7, rank, of: 16, pid: Some(4000 + rank) });
    report.limits.slurm.insert("SLURM_STEP_NODELIST".into(), "n[1-3]".into());
    report.max_ram.combined.footprint_bytes = Some(peak_bytes);
    report.max_ram_at_most.combined = Some(peak_bytes + 1_000_000);
    report.cpu_time.total_s = Some(0.03 + f64::from(rank) / 1000.0);
    report.series = over_time(report.wall_s, peak_bytes);
    report.processes.heaviest.truncate(1);
    let process = &mut report.processes.heaviest[0];
    process.start_s = Some(0.001);
    process.usage = ProcessUsage {
        pid: 4000 + rank,
        ppid: Some(3999),
        cpu_s: report.cpu_time.total_s,
        wall_s: 0.038,
        ..process.usage.clone()
    };
    let id = format!("GPU-{node}");
    report.series.gpus[0].id.clone_from(&id);
    report.gpus = vec![GpuDevice { id, ..used_gpu() }];
    report.gpu = Gpu { system_gpu_count: Some(1), expected_gpus: Some(1), percent: percent(100.0, 75.125) };
    report.usable.gpus = UsableGpus { count: Some(1), source: Some(GpusSource::Environment) };
    report.max_gpu_ram = MaxGpuRam {
        system_capacity_bytes: Some(85_899_345_920),
        system_bytes: Some(peak_bytes * 3),
        main_bytes: Some(peak_bytes),
        descendants_bytes: Some(0),
        combined_bytes: Some(peak_bytes),
    };
    match rank {
        7 => report.ending.exit = Exit { code: Some(3), signal: None },
        12 => {
            report.stage = Stage::SoFar;
            report.wall_s = 0.03;
            for at_s in report.series.start_s.iter_mut().chain(&mut report.series.end_s) {
                *at_s = at_s.min(report.wall_s);
            }
            report.ending = Ending::default();
        }
        _ => {}
    }
    report
}
