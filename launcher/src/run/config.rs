//! The configuration of a run, as its collectors get it and as its report needs it.

use gpu_track_collector::model::config::{Config, SessionStart};
use gpu_track_collector::model::io_calls::IoCalls;
use gpu_track_collector::{ProcRoot, cgroup, clock};

use crate::cli::Options;
use crate::process::{reap, time_limit};

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
            calls_before: calls_before(root),
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

/// What children of this process, and threads beside the first one, have passed by calls so far. Nothing is read if there were none, as
/// nearly always.
fn calls_before(root: &ProcRoot) -> IoCalls {
    // The largest RSS of a child: each has had some memory.
    let had_children = reap::usage_of(libc::RUSAGE_CHILDREN).max_rss_kib > 0;
    let is_any = had_children || time_limit::has_started_thread();
    is_any.then(|| root.io_calls_beside_first_thread()).flatten().unwrap_or_default()
}
