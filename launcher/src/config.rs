//! The configuration of a run, as its collectors get it and as its report needs it.

use std::path::PathBuf;

use gpu_track_collector::{Cgroups, Config, ProcRoot, SamplingPolicy, SessionStart, clock};

use crate::cli::Options;

/// For developers: the file that every observation of the run is written to, for a replay. It must not exist.
const ENV_JOURNAL: &str = "GPU_TRACK_JOURNAL";
/// For developers: fields of [`SamplingPolicy`] in JSON, to measure what each buys.
const ENV_SAMPLING: &str = "GPU_TRACK_SAMPLING";

/// The configuration of a run that starts now, without connector and cgroup.
pub(crate) fn of(options: &Options, root: &ProcRoot) -> Config {
    let pid = std::process::id();
    let tracking = &options.tracking;
    let cgroups = Cgroups::of_this_process(root);
    Config {
        command: options.command.words.iter().map(|arg| arg.to_string_lossy().into_owned()).collect(),
        start: SessionStart {
            launcher_pid: pid,
            pid_ns: root.pid_ns(pid).unwrap_or(0),
            monotonic_ns: clock::monotonic_ns(),
            realtime_ns: clock::realtime_ns(),
            forks_before: root.forks(),
        },
        restarts: 0,
        main_pid: None,
        discovery: options.discovery.clone(),
        tracking: tracking.clone(),
        policy: sampling_policy(),
        cgroups,
        gpu: options.gpu.clone().at_interval(tracking.interval_ns(), tracking.sleep_time.is_some()),
        report: options.report.clone(),
        journal: std::env::var_os(ENV_JOURNAL).map(PathBuf::from),
    }
}

/// The default one, with what developers change in the environment.
fn sampling_policy() -> SamplingPolicy {
    std::env::var(ENV_SAMPLING).ok().and_then(|fields| serde_json::from_str(&fields).ok()).unwrap_or_default()
}
