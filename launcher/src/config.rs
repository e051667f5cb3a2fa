//! The configuration of a run, as its collectors get it and as its report needs it.

use std::path::PathBuf;

use gpu_track_collector::{
    Cgroups, Config, DiscoveryConfig, GpuConfig, ProcRoot, ReportConfig, SamplingPolicy, SessionStart, clock,
};

use crate::cli::Options;

/// For developers: the file that every observation of the run is written to, for a replay. It must not exist.
const ENV_JOURNAL: &str = "GPU_TRACK_JOURNAL";
/// For developers: fields of [`SamplingPolicy`] in JSON, to measure what each buys.
const ENV_SAMPLING: &str = "GPU_TRACK_SAMPLING";

/// The configuration of a run that starts now, without connector and cgroup.
pub(crate) fn of(options: &Options, root: &ProcRoot) -> Config {
    let pid = std::process::id();
    let cgroups = Cgroups::of_this_process(root);
    let interval_ns = u64::try_from(options.interval.as_nanos()).unwrap_or(u64::MAX);
    Config {
        command: options.command.iter().map(|arg| arg.to_string_lossy().into_owned()).collect(),
        start: SessionStart {
            launcher_pid: pid,
            pid_ns: root.pid_ns(pid).unwrap_or(0),
            monotonic_ns: clock::monotonic_ns(),
            realtime_ns: clock::realtime_ns(),
            forks_before: root.forks(),
        },
        restarts: 0,
        running_pid: None,
        discovery: DiscoveryConfig { layers: options.layers, shim_directory: None, connector_absent: None },
        interval_ns,
        policy: sampling_policy(),
        cgroups,
        gpu: GpuConfig { interval_ns, ..options.gpu.clone() },
        report: ReportConfig {
            output: options.output.clone(),
            style: options.style,
            disable_logs: options.disable_logs,
            expected_cores: options.expected_cores,
            most_heaviest: options.most_heaviest,
            warnings: Vec::new(),
        },
        journal: std::env::var_os(ENV_JOURNAL).map(PathBuf::from),
    }
}

/// The default one, with what developers change in the environment.
fn sampling_policy() -> SamplingPolicy {
    std::env::var(ENV_SAMPLING).ok().and_then(|fields| serde_json::from_str(&fields).ok()).unwrap_or_default()
}
