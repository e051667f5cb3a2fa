//! The options that an agent gets from its launcher: all that choose what is measured, so that each node is measured alike. Where the
//! report, files and lines on stderr go, and limits, are the launcher's alone.

use gpu_track_collector::model::config::{DiscoveryConfig, TrackingConfig};
use gpu_track_collector::model::gpu::GpuConfig;

use crate::cli::{DiagnosisOptions, Options};

/// The words of the options that an agent gets. A new field of a configuration doesn't compile until it is decided here
/// whether agents get it.
pub(super) fn from_options(options: &Options) -> Vec<String> {
    let TrackingConfig {
        sampling_interval,
        expected_cores,
        tracking_files: _,
        gpu_trace: _,
        every: _,
        disable_logs: _,
        tells_waiting: _,
        limits: _,
        bundles: _,
        alerts: _,
    } = &options.tracking;
    let GpuConfig {
        uuids,
        only_visible,
        vendor,
        nvml_lib,
        accounting,
        gpm,
        root,
        // The environment and the driver of each node say these.
        visible: _,
        metrics: _,
        crashed_by: _,
        // The agent has them from its `--st`.
        interval_ns: _,
        driver_percent: _,
        // Only the log of the GPUs needs these figures.
        on_request: _,
    } = &options.gpu;
    let DiscoveryConfig { layers, shim_directory: _, connector_absent: _, untracked: _ } = &options.discovery;
    // The signs in a policy (JSON) would not pass the shells: developers measure it on one node.
    let DiagnosisOptions { no_env_repair, session_dir, agent: _, journal: _, sampling: _ } =
        &options.diagnosis;

    let layers: Vec<&str> = layers.iter().map(|layer| layer.name()).collect();
    let values = [
        ("--st", sampling_interval.map(|interval| interval.as_secs_f64().to_string())),
        ("--nec", expected_cores.map(|cores| cores.to_string())),
        ("--guuids", uuids.as_ref().map(|uuids| uuids.join(","))),
        ("--gb", vendor.map(|vendor| vendor.name().to_owned())),
        ("--nvml-lib", nvml_lib.as_ref().map(|path| path.to_string_lossy().into_owned())),
        ("--gpu-root", Some(root.to_string_lossy().into_owned())),
        ("--layers", Some(layers.join(","))),
        ("--by-env", options.preparations.by_env.as_ref().map(|names| names.given())),
        ("--session-dir", Some(session_dir.to_string_lossy().into_owned())),
    ];
    let flags = [
        ("--visible", *only_visible),
        ("--gpu-accounting", *accounting),
        ("--no-gpm", !*gpm),
        ("--no-env-repair", *no_env_repair),
    ];
    let given = values.into_iter().filter_map(|(option, value)| Some([option.to_owned(), value?]));
    let set = flags.into_iter().filter(|(_, is_set)| *is_set).map(|(option, _)| option.to_owned());
    given.flatten().chain(set).collect()
}
