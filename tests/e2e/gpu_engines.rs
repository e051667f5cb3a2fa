//! Utilization by process on GPUs of AMD and Intel, from the engine times of their DRM clients.

use crate::support::gpu_files::{AMD, AMD_CLIENT, amd_root, clients, i915_root, run};
use crate::support::report::assert_within;

/// Engines that are busy for a part of the time. The mean over all readings is that part, except for the readings' delay.
#[test]
fn partly_busy_gpu_engine_has_its_percentage() {
    let i915 = "drm-driver: i915\ndrm-client-id: 3\ndrm-pdev: 0000:03:00.0\n";
    for (root, client, engine, percent) in
        [(amd_root(), AMD_CLIENT, "gfx", 30.0), (i915_root(), i915, "render", 75.0)]
    {
        let client = format!("{client}drm-engine-enc: 9000 ns\ndrm-engine-{engine}: @{percent} ns\n");
        let report = run(root.path(), &clients(root.path(), &[&client]), &[], &[]);
        let of_process = report.gpu("0000:03:00.0").at("processes.0").clone();
        assert_within("mean", of_process["mean_sm_percent"].as_f64().unwrap(), percent, 5.0);
        assert!(of_process["max_sm_percent"].as_f64().unwrap() >= percent * 0.95, "{of_process}");
    }
}

/// amdgpu can update its counters late, and the kernel allows that: the maximum is then not known better than 100%, but the
/// mean is.
// Requirement: GPU-16, GPU-65
#[test]
fn gpu_engine_that_catches_up_in_jumps_keeps_its_mean() {
    let root = amd_root();
    let client = format!("{AMD_CLIENT}drm-engine-gfx: @83/4 ns\n");
    let report = run(root.path(), &clients(root.path(), &[&client]), &[], &[]);
    let of_process = report.gpu(AMD).at("processes.0").clone();
    assert_within("mean", of_process["mean_sm_percent"].as_f64().unwrap(), 83.0, 5.0);
    assert_eq!(of_process["max_sm_percent"], 100.0);
}

/// Three readings of a process that is busy from its start on: two thirds of it without the time before the first.
// Requirement: GPU-16
#[test]
fn gpu_engine_counts_from_the_start_of_its_process() {
    let root = amd_root();
    let client = format!("{AMD_CLIENT}drm-engine-gfx: @100:3 ns\n");
    let report = run(root.path(), &clients(root.path(), &[&client]), &["--st", "0.2"], &[]);
    let mean = report.gpu(AMD).f64("processes.0.mean_sm_percent");
    assert!(mean > 75.0, "{mean}");
}

/// The kernel reads the engine time a little later than the collector reads the clock, so it can exceed the time between
/// two readings.
// Requirement: GPU-3
#[test]
fn amd_gpu_engine_use_never_exceeds_100_percent() {
    let root = amd_root();
    let client = |gfx_s: u32| {
        format!(
            "{AMD_CLIENT}drm-engine-gfx:\t{gfx_s}000000000 ns\ndrm-engine-compute:\t{gfx_s}000000000 ns\n"
        )
    };
    let script = clients(root.path(), &[&client(0), &client(1_000_000)]);
    let report = run(root.path(), &script, &[], &[]);
    assert_eq!(report.gpu(AMD).f64("processes.0.max_sm_percent"), 100.0);
    assert_eq!(report.f64("processes.max_sm_percent.main"), 100.0);
}
