//! From the run state to the report: converts units, divides, and makes unknown figures null. Nothing is measured here.

mod attached;
mod command_calls;
mod containers;
mod contention;
mod events;
mod gpu;
mod gpu_findings;
mod hints;
mod inputs;
mod io;
mod pressure;
mod run_limits;
mod tasks;
mod untracked;
mod usable;
mod warnings;

#[cfg(test)]
mod nulls;
mod series;
mod time_spent;

use hints::Basis;
pub use inputs::Inputs;
use usable::usable;

use crate::model::batch::Job;
use crate::model::config::Layer;
use crate::model::counts_in_words::processes;
use crate::model::groups::Groups;
use crate::model::report::{
    Allowed, Cgroup, ContextSwitches, Coverage, Cpu, CpuTime, Ending, Exit, Hints, Layers,
    MaxProportionalRam, MaxRam, OtherUser, OwnRank, Peak, Percent, Processes, Report, SetRam, Stage,
};
use crate::model::timestamp;
use crate::model::tree_sample::larger;
use crate::run::RunState;
use crate::run::cause::{self, Cause, Evidence};
use crate::run::elsewhere::Here;
use crate::run::tree::process::exit_of_wait_status;
use crate::run::usage::{Floor, MaxFootprint};

/// Builds the report of a run that is over, or of its time so far. If tracking could not begin, the report keeps only what the
/// command's parent knows.
pub fn report(inputs: &Inputs) -> Report {
    // 1. Figures that several others are made of.
    let wall_s = inputs.end.at_ns.saturating_sub(inputs.run.start_ns) as f64 / 1e9;
    let containers = containers::containers(inputs);
    let coverage = coverage(inputs, &containers);
    let on_gpus = &inputs.run.gpu.usage;
    let gpus = gpu::gpus(on_gpus, inputs.run.start_ns);
    let gpu = gpu::gpu(on_gpus);
    // If a driver failed, the number of GPUs is unknown, and `gpus` may lack some.
    let usable = usable(inputs, gpu.expected_gpus.is_some().then_some(gpus.as_slice()));
    let cpu_time = cpu_time(inputs, &coverage, wall_s * usable.cores.count);
    let own = &inputs.run.totals.own_usage;
    // Samples don't contain these counts, so they are unknown if the usage of no process is exactly known. That of an attached
    // process never is: it also has what the process used before the run.
    let is_attached = inputs.config.attached.is_some();
    let if_exact = |n: u64| (coverage.exact > 0 && !is_attached).then_some(n);
    let cgroup = own_cgroup(inputs);
    let cpu = cpu(inputs, &cpu_time, wall_s);
    let max_ram = max_ram(inputs, &coverage);
    let context_switches = ContextSwitches {
        voluntary: if_exact(own.voluntary_switches),
        involuntary: if_exact(own.involuntary_switches),
    };
    let exit = exit(inputs);
    let peak = peak(inputs.run);
    let events = events::events(inputs, peak.as_ref(), wall_s);
    let ending = Ending {
        exit,
        reason: attached::exit_reason(inputs, exit),
        cause: run_limits::cause(inputs, cgroup.as_ref(), &max_ram)
            .or_else(|| cause(inputs, cgroup.as_ref())),
        wait_interrupted: inputs.end.command_exit.map(|exit| exit.is_wait_interrupted),
    };
    // 2. All others. `series` comes before `cpu`, which it borrows.
    let mut report = Report {
        stage: inputs.end.stage,
        command: inputs.config.command.clone(),
        attached: attached::attached(inputs),
        started_at: timestamp::representable(inputs.config.start.date(inputs.run.start_ns)),
        wall_s,
        host: inputs.host_info.host.clone(),
        // The number of out-of-memory kills tells how many of the processes that SIGKILL ended were killed by the kernel.
        crashes: Some(inputs.run.failures.crashes.list(oom_kills(inputs, cgroup.as_ref()).unwrap_or(0))),
        usable,
        hints: Hints::default(),
        contention: contention::contention(inputs, &cpu_time, context_switches),
        time_spent: None,
        mean_ram_bytes: mean_ram_bytes(inputs, &coverage, wall_s),
        max_ram_proportional: max_ram_proportional(inputs, &coverage),
        max_ram_at_most: max_ram_at_most(inputs, &max_ram),
        swap: pressure::swap(inputs),
        pressure: pressure::pressure(inputs),
        cgroup_memory: pressure::cgroup_memory(inputs),
        max_gpu_ram: gpu::max_gpu_ram(on_gpus),
        series: series::series(inputs.run, wall_s, &cpu),
        cpu,
        gpu,
        gpus,
        io: io::io(inputs, if_exact),
        faults: io::faults(inputs, &coverage, if_exact),
        context_switches,
        processes: tracked_processes(inputs, &coverage),
        tasks: tasks::tasks(inputs, &coverage, wall_s, exit),
        containers: containers.list,
        peak,
        warnings: Vec::new(),
        ending,
        max_ram,
        cpu_time,
        cgroup,
        allowed: Allowed { oom_kills: inputs.end.cgroups.oom_kills, ..inputs.host_info.allowed.clone() },
        run_limits: run_limits::run_limits(inputs),
        alerts: events::alerts(inputs),
        events,
        coverage,
        rank: own_rank(inputs),
        job_ranks: inputs.run.ranks.used(&inputs.host_info.own_ranks, inputs.run.start_ns),
        node_part: inputs.config.report.node_part.clone(),
        merged: None,
        nodes: Vec::new(),
        ranks: None,
    };
    // 3. What is concluded from the report itself.
    gpu_findings::add_findings(&mut report.gpus, report.wall_s);
    report.time_spent = Some(time_spent::time_spent(&inputs.run.time_spent, &report));
    report.warnings = warnings::warnings(inputs, &report);
    report.hints = hints::hints(&report, &basis(inputs));
    if report.coverage.untracked_reason.is_some() {
        untracked::keep_what_a_parent_knows(&mut report, inputs.end.largest_rss_bytes);
    }
    report
}

/// Which rank of an MPI job or Slurm step the command is, by its environment. `None`: it names no rank, or this launcher only tracks
/// a node as an agent. Slurm starts agents with the environment of a rank, but they are none.
fn own_rank(inputs: &Inputs) -> Option<OwnRank> {
    if inputs.config.report.node_part.as_ref().is_some_and(|part| part.is_agent) {
        return None;
    }
    let rank = inputs.host_info.own_ranks.first()?;
    Some(OwnRank { job: rank.job, rank: rank.rank, of: rank.count, pid: inputs.run.main_pid })
}

/// Makes the report's part on processes: counts, sums by command, and the heaviest ones.
fn tracked_processes(inputs: &Inputs, coverage: &Coverage) -> Processes {
    let (run, on_gpus) = (inputs.run, &inputs.run.gpu.usage);
    // Samples may have seen no process at all, but each one that is counted was alive at some time.
    let least_at_once = u64::from(coverage.processes > 0);
    let (by_command, calls_reason) = command_calls::with_calls(inputs, run.totals.by_command());
    Processes {
        total: coverage.processes,
        max_concurrent: Some(run.ram.max_processes.max(least_at_once)),
        still_running: Some(run.totals.survivors.count),
        still_running_processes: run.totals.survivors.listed.clone(),
        by_command: gpu::with_gpu_use(on_gpus, by_command),
        calls_reason,
        heaviest: gpu::heaviest(on_gpus, &run.totals, run.start_ns),
        max_sm_percent: gpu::max_sm_percent(on_gpus),
    }
}

/// Makes the report's entry on the moment of the largest RAM. `None`: no memory of the tree was seen.
fn peak(run: &RunState) -> Option<Peak> {
    run.ram.peak.as_ref().map(|peak| Peak {
        at_s: run.since_start_s(peak.at_ns),
        footprint_bytes: peak.footprint_bytes,
        processes: peak.holders.largest.clone(),
        by_command: peak.holders.by_command.clone(),
        other_commands: peak.holders.other_commands,
    })
}

/// What the hints need besides the report.
fn basis(inputs: &Inputs) -> Basis {
    let innermost = inputs.end.cgroups.memory_limits.first();
    Basis {
        busy_cores: inputs.run.cpu.busy.quantile(hints::Policy::BUSY_PART),
        cgroup_peak_bytes: innermost.filter(|limit| limit.is_peak_of_run).and_then(|limit| limit.peak_bytes),
        is_gpu_order_unsure: inputs.run.gpu.usage.is_order_unsure,
        started_s: inputs.config.start.realtime_ns as f64 / 1e9,
    }
}

/// Counts out-of-memory kills: in the command's own cgroup if it has one, else in the launcher's. `None`: neither is known.
fn oom_kills(inputs: &Inputs, cgroup: Option<&Cgroup>) -> Option<u64> {
    cgroup.and_then(|cgroup| cgroup.oom_kills).or(inputs.end.cgroups.oom_kills)
}

/// How the command ended, as its parent knows it. Of an attached process only the kernel may tell.
fn exit(inputs: &Inputs) -> Exit {
    let main = inputs.run.totals.main_process.as_ref().filter(|_| inputs.config.attached.is_some());
    match inputs.end.command_exit.and_then(|exit| exit.status) {
        Some(status) => exit_of_wait_status(status),
        // A launcher that is not its parent can't wait for it.
        None => main.and_then(|main| main.exit).unwrap_or_default(),
    }
}

/// Concludes what ended the command. `None`: there is no evidence, or it is not known how the command ended.
fn cause(inputs: &Inputs, cgroup: Option<&Cgroup>) -> Option<Cause> {
    let (run, end) = (inputs.run, inputs.end);
    // Without the launcher's message of the end, the command still runs, or its launcher was killed.
    end.command_exit?;
    let exit = exit(inputs);
    if exit == Exit::default() {
        return None;
    }
    let own_kills = cgroup.and_then(|cgroup| cgroup.oom_kills);
    let since_session_ns = end.at_ns.saturating_sub(inputs.config.start.monotonic_ns);
    cause::cause(&Evidence {
        exit,
        span_ns: (run.start_ns, end.at_ns),
        ended_s: (inputs.config.start.realtime_ns as f64 + since_session_ns as f64) / 1e9,
        failures: &run.failures,
        signals: &run.signals,
        oom_kills: oom_kills(inputs, cgroup),
        is_own_cgroup: own_kills.is_some(),
        memory_limits: &end.cgroups.memory_limits,
        allowed: &inputs.host_info.allowed,
        full_disks: &end.full_disks,
        gpus: &run.gpu.usage,
    })
}

/// The kernel's figures of the command's own cgroup (`--cgroup`), or the reason why none was made. `None`: none was asked
/// for, or its figures were not read at the end.
fn own_cgroup(inputs: &Inputs) -> Option<Cgroup> {
    match inputs.config.cgroups.own.as_ref()? {
        Ok(_) => inputs.end.cgroups.own.clone(),
        Err(reason) => Some(Cgroup { reason: Some(reason.to_string()), ..Cgroup::default() }),
    }
}

/// Makes the report's part on what was seen: where the figures come from, and what they may lack. The child of a failed
/// posix_spawn counts as a process of unknown usage.
fn coverage(inputs: &Inputs, containers: &containers::Found) -> Coverage {
    let uses = |layer| inputs.config.discovery.uses(layer);
    // How many processes each layer found. One that wrote a record counts for the preload layer alone.
    let [preload, wait, subreaper, scan, connector] = inputs.run.totals.found;
    let failed_spawns = inputs.run.tree.counts().failed_spawns;
    let is_off = !uses(Layer::Connector);
    let absent =
        if is_off { Some("switched off".into()) } else { inputs.run.health.connector.absent.clone() };
    let seen = &inputs.run.totals.coverage;
    let floor = &inputs.run.totals.floors.combined;
    // By this, the list of other nodes leaves out this machine.
    let here = Here {
        hostname: inputs.host_info.host.hostname.as_deref().unwrap_or_default(),
        job: Job(&inputs.host_info.allowed.slurm),
        joined: seen.joined,
        has_agents: inputs.config.report.node_part.as_ref().is_some_and(|part| !part.is_agent),
    };
    let other_user = |(uid, processes): (&u32, &u64)| OtherUser { uid: *uid, processes: *processes };
    let unseen_ranks = inputs.run.ranks.unseen(&inputs.host_info.own_ranks);
    Coverage {
        processes: seen.processes + failed_spawns,
        exact: seen.exact,
        sampled: seen.sampled,
        unknown: seen.unknown + failed_spawns,
        joined: seen.joined,
        failed_spawns,
        helpers: inputs.run.tree.counts().helpers,
        uninstrumented: seen.uninstrumented,
        peaks: seen.peaks.clone(),
        untracked_reason: inputs.config.discovery.untracked.clone(),
        uncounted_reason: uncounted_reason(inputs, absent.is_some()),
        layers: Layers {
            preload: uses(Layer::Preload).then_some(preload),
            wait: uses(Layer::Wait).then_some(wait),
            subreaper: uses(Layer::Subreaper).then_some(subreaper),
            // Without the subreaper layer the launcher still reports the command itself, which counts as scanned then.
            scan: uses(Layer::Scan).then_some(if uses(Layer::Subreaper) { scan } else { scan + subreaper }),
            // A connector that is absent by now may have been given up after it had found some.
            connector: (absent.is_none() || connector > 0).then_some(connector),
        },
        elsewhere: inputs.run.totals.elsewhere.list(&here, &containers.places),
        other_users: inputs.run.totals.other_users.iter().map(other_user).collect(),
        nodes: inputs.run.totals.elsewhere.nodes.unseen(&here),
        // An interim report leaves this out: ranks may not have started.
        ranks: unseen_ranks.filter(|_| inputs.end.stage == Stage::Over),
        connector_absent: absent,
        connector_overruns: inputs.run.health.connector.overruns,
        ram_floor_bytes: floor.is_missed_by(&inputs.run.ram.max.combined).then_some(floor.rss_bytes),
        private_ram_reason: private_ram_reason(inputs),
        static_executables: inputs.run.totals.static_executables(),
        dropped_events: inputs.end.dropped_events,
        records_untrusted: records_untrusted(inputs),
        left_reports: Vec::new(),
    }
}

/// Why processes may be missing from the count. `None`: nothing shows that. A warning says more of each reason.
fn uncounted_reason(inputs: &Inputs, is_connector_absent: bool) -> Option<String> {
    let (totals, health) = (&inputs.run.totals, &inputs.run.health);
    let is_static = !totals.static_executables().is_empty();
    // In a run that attached, no layer counts as lacking: that run has a reason of its own.
    let lacks = |layer| inputs.config.attached.is_none() && !inputs.config.discovery.uses(layer);
    let has_no_preload = lacks(Layer::Preload);
    let reason = if inputs.config.discovery.untracked.is_some() {
        "tracking could not begin: other processes are not counted"
    } else if inputs.config.attached.is_some() && is_connector_absent {
        "short children of programs that ran before the attach are not counted"
    } else if is_connector_absent && has_no_preload {
        "the preload layer is off: short processes are not counted"
    } else if is_connector_absent && totals.coverage.uninstrumented > 0 && is_static {
        "short children of static programs are not counted"
    } else if is_connector_absent && totals.coverage.uninstrumented > 0 {
        "short children of programs without the shim are not counted"
    } else if is_connector_absent && lacks(Layer::Subreaper) {
        "orphans without the shim are not counted (--no-subreaper)"
    } else if health.connector.overruns > 0 && has_no_preload {
        "events of the kernel were lost: short processes may be missing"
    } else if health.connector.overruns > 0 {
        "events of the kernel were lost: short processes of static programs may be missing"
    } else if inputs.end.dropped_events > 0 || health.unread > 0 || health.is_state_lost {
        "event records were lost: processes may be missing"
    } else {
        return None;
    };
    Some(reason.into())
}

/// Why the event records are not trusted. `None`: they are.
fn records_untrusted(inputs: &Inputs) -> Option<String> {
    if inputs.end.is_truncated {
        Some("the session's shared memory was truncated".into())
    } else {
        inputs.run.health.records_untrusted()
    }
}

/// Makes the entry on the largest RAM of a set of processes. It is at least `floor`, which one of them is known to have held. If
/// samples missed that, it is not known how much was shared. A footprint of 0 is unknown, unless `is_zero_certain`.
fn set_ram(max: &MaxFootprint, floor: &Floor, is_zero_certain: bool) -> SetRam {
    let footprint_bytes = max.footprint_bytes.max(floor.rss_bytes);
    // The private or shared part, as far as it is known.
    let part = |bytes: Option<u64>| match footprint_bytes {
        0 => is_zero_certain.then_some(0),
        _ => bytes.filter(|_| !floor.is_missed_by(max)),
    };
    SetRam {
        footprint_bytes: (footprint_bytes > 0 || is_zero_certain).then_some(footprint_bytes),
        private_bytes: part(max.private_bytes),
        shared_bytes: part(max.shared_bytes),
    }
}

/// Why private, shared or proportional RAM is null.
const SHARING_UNKNOWN: &str = "no sample knew how all of their memory was shared";

/// Why the private or shared part of the RAM of a group is null. `None`: each is known, or no memory was seen.
fn private_ram_reason(inputs: &Inputs) -> Option<String> {
    let (ram, floors) = (&inputs.run.ram, &inputs.run.totals.floors);
    let sets = ram.max.with(*floors, |max, floor| (max, floor)).values();
    let is_unread = |max: &MaxFootprint| {
        max.footprint_bytes > 0 && (max.private_bytes.is_none() || max.shared_bytes.is_none())
    };
    if sets.iter().any(|(max, floor)| floor.is_missed_by(max)) {
        Some("only samples show how much RAM is shared, and the largest RAM was between two of them".into())
    } else if sets.iter().any(|(max, _)| is_unread(max)) {
        Some(SHARING_UNKNOWN.into())
    } else {
        None
    }
}

/// Whether a largest RAM of 0 means that the descendants had no memory, and not that nothing saw it. So it is if there were no
/// descendants, or if the peak of each process is known: any memory would have raised the maximum. A process whose peak is unknown
/// or only bounded may have had memory. In a run that was not tracked, there may be descendants that nothing tells of.
fn is_zero_ram_of_descendants_certain(coverage: &Coverage) -> bool {
    if coverage.untracked_reason.is_some() {
        return false;
    }
    coverage.processes <= 1 || (coverage.peaks.unknown == 0 && coverage.peaks.bound == 0)
}

/// Makes the report's largest RAM. Memory that no sample and no record gives is unknown. That of the descendants is 0 if they had
/// none for certain.
fn max_ram(inputs: &Inputs, coverage: &Coverage) -> MaxRam {
    let (ram, floors) = (&inputs.run.ram, &inputs.run.totals.floors);
    let is_zero_certain = is_zero_ram_of_descendants_certain(coverage);
    // A process has memory while it lives, so a maximum of 0 says that no memory of the first process was seen.
    let is_zero_certain_with_main = false;
    MaxRam {
        system_capacity_bytes: inputs.host_info.host.ram_bytes,
        system_bytes: ram.system_bytes,
        main: set_ram(&ram.max.main, &floors.main, is_zero_certain_with_main),
        descendants: set_ram(&ram.max.descendants, &floors.descendants, is_zero_certain),
        combined: set_ram(&ram.max.combined, &floors.combined, is_zero_certain_with_main),
    }
}

/// The most that the largest RAM can have been, bytes. `None`: no RAM is known, or that of some process is unknown.
fn max_ram_at_most(inputs: &Inputs, max_ram: &MaxRam) -> Groups<Option<u64>> {
    if inputs.run.totals.ram_missing.processes > 0 {
        return Groups::default();
    }
    // The known RAM can be a floor (see [`set_ram`]), which the upper bound lacks. So the known RAM can be the larger one.
    max_ram
        .footprint_bytes()
        .with(inputs.run.ram.at_most_bytes, |known, at_most| known.map(|known| known.max(at_most)))
}

/// Makes the report's largest proportional RAM, with the reason if one is null.
fn max_ram_proportional(inputs: &Inputs, coverage: &Coverage) -> MaxProportionalRam {
    let known = inputs.run.ram.proportional_bytes;
    // Samples alone show proportional sizes. Descendants without one have 0 if they had no memory for certain.
    let descendants_had_none = max_ram(inputs, coverage).descendants.footprint_bytes == Some(0);
    let bytes = Groups { descendants: known.descendants.or(descendants_had_none.then_some(0)), ..known };
    let is_known = bytes.values().iter().all(Option::is_some);
    MaxProportionalRam { bytes, reason: (!is_known).then(|| SHARING_UNKNOWN.into()) }
}

/// The time-weighted mean of each footprint, bytes. A group whose maximum is 0 was never seen in memory, so its mean is
/// unknown. If the descendants had no memory for certain, their mean is 0.
fn mean_ram_bytes(inputs: &Inputs, coverage: &Coverage, wall_s: f64) -> Groups<Option<f64>> {
    let ram = &inputs.run.ram;
    let Some(means) = ram.means(wall_s) else { return Groups::default() };
    let is_zero_certain =
        Groups { descendants: is_zero_ram_of_descendants_certain(coverage), ..Groups::default() };
    let known_max = ram.max.with(is_zero_certain, |max, is_zero_certain| {
        (max.footprint_bytes > 0 || is_zero_certain).then_some(max.footprint_bytes)
    });
    // Rounding can make a mean larger than the maximum.
    means.with(known_max, |mean, max| max.map(|max| mean.min(max as f64)))
}

/// Makes the report's CPU utilisation, percent of one core: the largest in a window, and the mean over the run (`wall_s` seconds).
/// Where the CPU time of a group is unknown, so is its mean. Without that of the first process, its largest is unknown, too.
fn cpu(inputs: &Inputs, cpu_time: &CpuTime, wall_s: f64) -> Cpu {
    let host = &inputs.host_info.host;
    let mean = |seconds: f64| Some(seconds / wall_s * 100.0).filter(|percent| percent.is_finite());
    // Where the total is unknown, so is each part. The descendants' part is the total less the first process's.
    let main_s = inputs.run.totals.main.as_ref().map(|main| main.cpu_us() as f64 / 1e6);
    let main_s = cpu_time.total_s.and(main_s);
    let descendants_s = Option::zip(cpu_time.total_s, main_s).map(|(total, main)| total - main);
    let max = inputs.run.cpu.max_percent;
    // The mean is exact. One above every window's value shows that the windows missed some CPU time.
    let percent = |max, mean| Percent { max_sum: larger(max, mean), mean_sum: mean };
    let (max_system, mean_system) = inputs.run.cpu.system_percent(inputs.host_info.ticks_per_second);
    let ram = &inputs.run.ram;
    Cpu {
        system_core_count: host.cores,
        expected_cores: inputs.config.tracking.expected_cores.unwrap_or(host.cores),
        system: Percent { max_sum: max_system, mean_sum: mean_system },
        main: percent(max.main.filter(|_| main_s.is_some()), main_s.and_then(mean)),
        descendants: percent(max.descendants, descendants_s.and_then(mean)),
        combined: percent(max.combined, cpu_time.total_s.and_then(mean)),
        // The first process has a thread, so 0 says that no sample saw it. There may be no descendants, so theirs can be 0.
        main_threads: Some(ram.threads.main).filter(|n| *n > 0),
        descendants_threads: Some(ram.threads.descendants),
        combined_threads: Some(ram.threads.combined).filter(|n| *n > 0),
    }
}

/// Makes the report's CPU time. If it is known of no process, all sums over the processes are unknown. `usable_s` is the time of
/// all usable cores during the run, seconds.
fn cpu_time(inputs: &Inputs, coverage: &Coverage, usable_s: f64) -> CpuTime {
    let totals = &inputs.run.totals;
    let is_known = coverage.exact + coverage.sampled > 0;
    let seconds = |us: u64| us as f64 / 1e6;
    let kernel = kernel_time(inputs);
    let total_s = is_known.then(|| seconds(totals.own_usage.cpu_us().saturating_add(totals.unattributed_us)));
    CpuTime {
        user_s: is_known.then(|| seconds(totals.own_usage.user_us)),
        system_s: is_known.then(|| seconds(totals.own_usage.system_us)),
        total_s,
        usable_percent: total_s.filter(|_| usable_s > 0.0).map(|total_s| total_s / usable_s * 100.0),
        kernel_s: kernel.as_ref().ok().copied(),
        kernel_s_reason: kernel.err(),
        unattributed_s: is_known.then(|| seconds(totals.unattributed_us)),
    }
}

/// The kernel's sum of CPU time over the launcher's reaped descendants, seconds, or why it does not cover the whole tree.
fn kernel_time(inputs: &Inputs) -> Result<f64, String> {
    let Some(command_exit) = inputs.end.command_exit else {
        let is_running = inputs.end.stage == Stage::SoFar;
        return Err(if is_running { "the command still runs" } else { "the launcher was killed" }.into());
    };
    if inputs.config.attached.is_some() {
        // The launcher knows a wait status only of its children.
        return Err(if command_exit.status.is_some() {
            "the kernel's sum has what the attached process used before".into()
        } else {
            "the attached process is not a child of gpu-track-run".into()
        });
    }
    if inputs.config.command.is_empty() {
        return Err("there was no command".into());
    }
    let tree = &inputs.run.tree;
    if tree.counts().created == 0 {
        return Err("no process was tracked".into());
    }
    let running = inputs.run.totals.survivors.count;
    if running > 0 {
        return Err(format!("still running: {}", processes(running)));
    }
    if let Some(reason) = not_reaped(inputs) {
        return Err(reason);
    }
    // Helpers, which are processes of gpu-track itself, are in no figure of the tree.
    let of_helpers_us = tree.counts().helpers_reaped_cpu_us;
    let children_us = command_exit.children_cpu_us.saturating_sub(of_helpers_us);
    if lacks_joined(inputs, children_us) {
        return Err(format!(
            "joined the run without being a descendant: {}",
            processes(tree.counts().joined_unreaped)
        ));
    }
    Ok(children_us as f64 / 1e6)
}

/// Why some process of the tree that has ended is in no sum of the launcher's reaped children. `None`: none is known.
fn not_reaped(inputs: &Inputs) -> Option<String> {
    let counts = inputs.run.tree.counts();
    if counts.autoreaped > 0 {
        return Some(format!(
            "the kernel itself reaped {} (SIGCHLD ignored, or killed with their pid namespace)",
            processes(counts.autoreaped)
        ));
    }
    let when = match inputs.config.discovery.uses(Layer::Subreaper) {
        true => "not reaped before the command ended",
        false => "not reaped by gpu-track-run (--no-subreaper)",
    };
    let orphans = counts.unreaped_orphans;
    (orphans > 0).then(|| format!("ended after their parent, and {when}: {}", processes(orphans)))
}

/// Whether the kernel's sum (`kernel_us`, microseconds) lacks the CPU time of processes that joined the run. They carry its session,
/// but are no descendants of the launcher, so it did not reap them.
///
/// That is certain if the connector saw that no process of the tree started them. Otherwise a process without the shim may have
/// started and reaped them. Then the sum lacks their time if it is below the total, but not below the total less their time.
fn lacks_joined(inputs: &Inputs, kernel_us: u64) -> bool {
    let counts = inputs.run.tree.counts();
    if counts.joined_unreaped == 0 {
        return false;
    }
    let connector = &inputs.run.health.connector;
    // The connector reported each fork, so no process of the tree made them.
    if connector.absent.is_none() && connector.overruns == 0 {
        return true;
    }
    let totals = &inputs.run.totals;
    let total_us = totals.own_usage.cpu_us().saturating_add(totals.unattributed_us);
    let is_above_sum = |total_us: u64| {
        let [total_s, kernel_s] = [total_us, kernel_us].map(|us| Some(us as f64 / 1e6));
        CpuTime { total_s, kernel_s, ..CpuTime::default() }.above_kernel_s().is_some()
    };
    is_above_sum(total_us) && !is_above_sum(total_us.saturating_sub(counts.joined_unreaped_cpu_us))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::nulls::report_of;
    use crate::run::random_trees::random_runs;

    // Requirement: OUT-10
    #[test]
    fn report_begins_with_the_command_and_not_with_its_launcher() {
        let (mut run, at_ns) = random_runs(1).next().unwrap();
        // The launcher of that report began at 1 ns of CLOCK_MONOTONIC, and 1 s and 1 ns after the epoch.
        run.start_ns = 250_000_000;
        assert_eq!(report_of(&run, at_ns).started_at, UNIX_EPOCH + Duration::from_millis(1250));
    }
}
