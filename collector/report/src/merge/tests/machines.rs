//! What belongs to a machine, by several reports of it that ran at different times.

use super::{merged, steady};
use crate::model::gpu::gpu_figure::GpuFigure;
use crate::model::report::*;
use gpu_track_core::fixtures::killed;

/// Bytes in a gigabyte.
const GB: u64 = 1_000_000_000;

/// Memory of GPUs: what all programs and what the run used of them, and how busy they were.
#[derive(Clone, Copy)]
struct Use {
    used_gb: u64,
    run_gb: u64,
    busy_percent: f64,
}

/// A report of this node with these GPUs. The first of them has the use, the others are idle.
fn on_gpus(node: &str, start_s: u64, wall_s: f64, ids: &[&str], of: Use) -> Report {
    let mut report = steady(node, start_s, wall_s, GB);
    let Use { used_gb, run_gb, busy_percent } = of;
    let track =
        |value: f64| Track { min: vec![Some(value)], mean: vec![Some(value)], max: vec![Some(value)] };
    for (at, id) in ids.iter().enumerate() {
        let only_first = |value: f64| if at == 0 { value } else { 0.0 };
        let mut gpu = GpuDevice { id: (*id).into(), ..killed().gpus[0].clone() };
        gpu.power.energy_j = Some(1000.0);
        gpu.utilization.mean_percent = Some(only_first(busy_percent));
        report.gpus.push(gpu);
        report.series.gpus.push(GpuSeries {
            id: (*id).into(),
            tracks: killed().series.gpus[0]
                .tracks
                .clone()
                .with(GpuFigure::MemoryUsed, track(only_first((used_gb * GB) as f64)))
                .with(GpuFigure::MemoryRun, track(only_first((run_gb * GB) as f64)))
                .with(GpuFigure::Utilization, track(only_first(busy_percent))),
        });
    }
    report.max_gpu_ram = MaxGpuRam {
        system_capacity_bytes: Some(80 * GB * ids.len() as u64),
        system_bytes: Some(used_gb * GB),
        main_bytes: Some(run_gb * GB),
        descendants_bytes: Some(0),
        combined_bytes: Some(run_gb * GB),
    };
    let percent = Percent { max_sum: Some(busy_percent), mean_sum: Some(busy_percent) };
    let count = Some(ids.len() as u32);
    report.gpu = Gpu { system_gpu_count: count, expected_gpus: count, percent };
    report.usable.gpus = UsableGpus { count, source: Some(GpusSource::Tracked) };
    report
}

fn gb(bytes: Option<u64>) -> Option<u64> {
    bytes.map(|bytes| bytes / GB)
}

/// The largest GPU memory in use by all programs, as a lower and an upper bound, gigabytes.
fn gpu_bounds(report: &Report) -> [Option<u64>; 2] {
    let merged = report.merged.as_ref().unwrap();
    [gb(report.max_gpu_ram.system_bytes), gb(merged.at_most.gpu_ram_used_bytes)]
}

// Requirement: NODE-2, NODE-3
#[test]
fn later_step_on_the_same_gpu_counts_in_its_maxima() {
    let little = Use { used_gb: 1, run_gb: 1, busy_percent: 5.0 };
    let much = Use { used_gb: 70, run_gb: 69, busy_percent: 100.0 };
    let steps = [on_gpus("n1", 0, 100.0, &["A"], little), on_gpus("n1", 110, 50.0, &["A"], much)];
    let report = merged(&steps);
    assert_eq!((gpu_bounds(&report), gb(report.max_gpu_ram.combined_bytes)), ([Some(70); 2], Some(69)));
    // The mean of the first step is not that of both.
    assert_eq!(report.gpu.percent, Percent { max_sum: Some(100.0), mean_sum: None });
    assert_eq!(
        (report.nodes[0].gpus[0].mean_percent, report.nodes[0].gpus[0].energy_j),
        (None, Some(2000.0))
    );
    assert_eq!(report.cpu.system, Percent { max_sum: Some(100.0), mean_sum: None });
    // At the same time, the longest report tells of both.
    let together =
        merged(&[on_gpus("n1", 0, 100.0, &["A"], little), on_gpus("n1", 10, 89.0, &["A"], little)]);
    assert_eq!(together.gpu.percent, Percent { max_sum: Some(5.0), mean_sum: Some(5.0) });
    assert_eq!((gpu_bounds(&together), together.nodes[0].gpus[0].mean_percent), ([Some(1); 2], Some(5.0)));
}

// Requirement: NODE-3
#[test]
fn means_of_a_machine_are_those_of_its_longest_report_whichever_container_wrote_it() {
    let of = Use { used_gb: 1, run_gb: 1, busy_percent: 5.0 };
    let lengths_s = [("a", 10.0), ("b", 1000.0), ("c", 20.0)];
    let containers = lengths_s.map(|(node, wall_s)| {
        let mut report = on_gpus(node, 0, wall_s, &["A"], of);
        report.host.boot_id = Some("the same".into());
        report
    });
    let report = merged(&containers);
    assert_eq!((report.gpu.percent.mean_sum, report.cpu.system.mean_sum), (Some(5.0), Some(100.0)));
    let names: Vec<&str> = report.nodes.iter().map(|node| node.node.as_str()).collect();
    assert_eq!(names, ["a", "b", "c"]);
}

// Requirement: NODE-2
#[test]
fn gpu_memory_has_no_upper_bound_where_only_some_of_the_gpus_were_read() {
    let little = Use { used_gb: 1, run_gb: 1, busy_percent: 5.0 };
    let much = Use { used_gb: 70, run_gb: 69, busy_percent: 100.0 };
    let first = on_gpus("n1", 0, 100.0, &["A", "B"], little);
    let later = merged(&[first.clone(), on_gpus("n1", 110, 50.0, &["A"], much)]);
    assert_eq!(gpu_bounds(&later), [Some(70), None]);
    // Reports with a GPU each.
    let own = merged(&[on_gpus("n1", 0, 100.0, &["A"], much), on_gpus("n1", 50, 99.0, &["B"], little)]);
    assert_eq!(gpu_bounds(&own)[1], Some(71));
    // Within the time of the first, that tells of both.
    let within = merged(&[first, on_gpus("n1", 50, 40.0, &["A"], little)]);
    assert_eq!(gpu_bounds(&within), [Some(1); 2]);
}

// Requirement: NODE-2
#[test]
fn gpu_use_that_one_report_does_not_know_is_null() {
    let of = Use { used_gb: 20, run_gb: 10, busy_percent: 50.0 };
    let known = |node: &str, start_s| on_gpus(node, start_s, 100.0, &["A"], of);
    // A GPU could not be read for a while. The series of the others are known.
    let unknown = |node: &str, start_s, wall_s| {
        let mut report = on_gpus(node, start_s, wall_s, &["A"], of);
        (report.max_gpu_ram.system_bytes, report.gpu.percent.max_sum) = (None, None);
        report
    };
    let largest = |reports: &[Report]| {
        let report = merged(reports);
        (gpu_bounds(&report), report.gpu.percent.max_sum)
    };
    let null = ([None; 2], None);
    assert_eq!(largest(&[known("n1", 0), unknown("n2", 0, 100.0)]), null);
    assert_eq!(largest(&[known("n1", 0), unknown("n1", 110, 50.0)]), null, "a later run on the same GPU");
    assert_eq!(largest(&[unknown("n1", 0, 200.0), known("n1", 210)]), null);
    let mut other = unknown("n1", 110, 50.0);
    (other.gpus[0].id, other.series.gpus[0].id) = ("B".into(), "B".into());
    assert_eq!(largest(&[known("n1", 0), other]), null, "on another GPU");
    let within = [known("n1", 0), unknown("n1", 10, 50.0)];
    assert_eq!(largest(&within), ([Some(20); 2], Some(50.0)), "the longer report tells of that time");
}

// Requirement: NODE-2
#[test]
fn memory_of_a_machine_is_bounded_by_all_of_its_reports() {
    let at_most = |reports: &[Report]| gb(merged(reports).merged.unwrap().at_most.system_ram_bytes);
    let (a, b) = (steady("a", 0, 100.0, 10 * GB), steady("b", 0, 160.0, 20 * GB));
    let later = steady("a", 110, 50.0, 24 * GB);
    assert_eq!(at_most(&[a.clone(), later.clone(), b.clone()]), Some(44));
    let report = merged(&[a.clone(), later.clone(), b.clone()]);
    assert_eq!(gb(report.max_ram.system_bytes), Some(30));
    // A report of another time, and one that does not know it.
    let mut elsewhere = later.clone();
    elsewhere.started_at += std::time::Duration::from_secs(86_400);
    assert_eq!(at_most(&[a.clone(), elsewhere, b.clone()]), Some(54));
    let mut unknown = later;
    unknown.max_ram.system_bytes = None;
    unknown.series.ram_bytes.system = Track::default();
    assert_eq!(at_most(&[a, unknown, b]), None);
}

// Requirement: NODE-3
#[test]
fn energy_of_reports_that_overlap_in_part_is_that_of_those_that_do_not() {
    let of = Use { used_gb: 1, run_gb: 1, busy_percent: 5.0 };
    let at = |start_s: u64, wall_s: f64| on_gpus("n1", start_s, wall_s, &["A"], of);
    let energy_j = |reports: &[Report]| {
        let report = merged(reports);
        let of_node = report.nodes[0].gpus[0].energy_j;
        assert_eq!(report.merged.unwrap().gpu_energy_j, of_node);
        of_node
    };
    assert_eq!(energy_j(&[at(0, 100.0), at(99, 101.0), at(199, 101.0)]), Some(2000.0));
    assert_eq!(energy_j(&[at(0, 100.0), at(100, 100.0), at(200, 100.0)]), Some(3000.0));
    let mut all = at(0, 300.0);
    all.gpus[0].power.energy_j = Some(2500.0);
    assert_eq!(energy_j(&[at(0, 100.0), at(150, 100.0), all]), Some(2500.0));
}

// Requirement: NODE-3
#[test]
fn energy_is_unknown_where_the_gpus_of_a_node_are() {
    let of = Use { used_gb: 1, run_gb: 1, busy_percent: 5.0 };
    let mut unknown = steady("n2", 0, 100.0, GB);
    unknown.gpu = Gpu::default();
    unknown.gpus.clear();
    let report = merged(&[on_gpus("n1", 0, 100.0, &["A"], of), unknown]);
    assert_eq!(report.merged.unwrap().gpu_energy_j, None);
    let without = merged(&[on_gpus("n1", 0, 100.0, &["A"], of), steady("n2", 0, 100.0, GB)]);
    assert_eq!(without.merged.unwrap().gpu_energy_j, Some(1000.0));
}
