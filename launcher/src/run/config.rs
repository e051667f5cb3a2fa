//! The configuration of a run, as its collectors get it and as its report needs it.

use gpu_track_collector::model::config::{Config, SessionStart};
use gpu_track_collector::{ProcRoot, cgroup, clock};

use crate::cli::Options;

/// Makes the configuration of a run that starts now. [`Session`](crate::run::session::Session) adds what only it knows: the run's own
/// cgroup, the shim's directory, an attached process, and why there is no process connector.
pub(crate) fn from_options(options: &Options, root: &ProcRoot) -> Config {
    let pid = std::process::id();
    let tracking = &options.tracking;
    let cgroups = cgroup::of_process(root, None);
    Config {
        command: options.command.words.iter().map(|arg| arg.to_string_lossy().into_owned()).collect(),
        attached: None,
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
        policy: options.diagnosis.sampling.unwrap_or_default(),
        cgroups,
        gpu: options.gpu.clone().at_interval(tracking.interval_ns(), tracking.sampling_interval.is_some()),
        report: options.report.clone(),
        journal: options.diagnosis.journal.clone(),
    }
}
