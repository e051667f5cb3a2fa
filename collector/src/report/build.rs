//! From what was counted to the report: no measuring here, only naming, dividing, and saying what is not known.

use std::time::{Duration, SystemTime};

use crate::model::cgroup::OomCounter;
use crate::model::config::Config;
use crate::model::host::{CommandExit, HostInfo};
use crate::model::report::{
    Cgroup, ContextSwitches, Coverage, Cpu, CpuTime, Exit, Faults, Io, Layers, Limits, MaxRam, MeanRam, Peak,
    Percent, Processes, Report, Rss, Stage,
};
use crate::report::gpu;
use crate::run::RunState;
use crate::run::tree::process::{cpu_us, exit_of_wait_status};
use crate::run::usage::MaxRss;

/// All that a report is made of.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    /// What was asked for.
    pub config: &'a Config,
    /// The machine.
    pub facts: &'a HostInfo,
    /// What the run came to, all processes settled.
    pub account: &'a RunState,
    /// CLOCK_MONOTONIC of its end, or now.
    pub at_ns: u64,
    /// The command's wait status.
    pub status: Option<i32>,
    /// The launcher's last word; `None` if it never came.
    pub ending: Option<CommandExit>,
    /// How far the run is.
    pub stage: Stage,
    /// Records that found no room.
    pub dropped_events: u64,
    /// The segment's file was truncated.
    pub is_cut_short: bool,
}

/// The report.
#[must_use]
pub fn report(inputs: &Inputs) -> Report {
    let wall_s = inputs.at_ns.saturating_sub(inputs.account.start_ns) as f64 / 1e9;
    let coverage = coverage(inputs);
    let cpu_time = cpu_time(inputs, &coverage);
    let own = &inputs.account.totals.own;
    // Some processes are known by their samples only, which do not tell these; with no exact one nothing is known.
    let counted = |n: u64| (coverage.exact > 0).then_some(n);
    let on_gpus = &inputs.account.gpu.usage;
    let cgroup = cgroup(inputs);
    let oom_kills = inputs.config.oom.as_ref().and_then(OomCounter::since);
    let limits = Limits { oom_kills, ..inputs.facts.limits.clone() };
    Report {
        stage: inputs.stage,
        command: inputs.config.command.clone(),
        started_at: SystemTime::UNIX_EPOCH + Duration::from_nanos(inputs.config.started_realtime_ns),
        wall_s,
        host: inputs.facts.host.clone(),
        exit: inputs.status.map_or_else(Exit::default, exit_of_wait_status),
        max_ram: max_ram(inputs, &coverage),
        mean_ram: mean_ram(inputs, &coverage, wall_s),
        max_gpu_ram: gpu::max_gpu_ram(on_gpus),
        cpu: cpu(inputs, &cpu_time, wall_s),
        gpu: gpu::gpu(on_gpus),
        gpus: gpu::gpus(on_gpus, inputs.account.start_ns),
        cpu_time,
        io: Io {
            read_bytes: counted(own.input_blocks.saturating_mul(512)),
            write_bytes: counted(own.output_blocks.saturating_mul(512)),
        },
        faults: Faults { minor: counted(own.minor_faults), major: counted(own.major_faults) },
        context_switches: ContextSwitches {
            voluntary: counted(own.voluntary_switches),
            involuntary: counted(own.involuntary_switches),
        },
        processes: Processes {
            total: coverage.processes,
            max_concurrent: inputs.account.ram.max_processes.max(u64::from(coverage.processes > 0)),
            still_running: inputs.account.totals.still_running,
            still_running_processes: inputs.account.totals.running.clone(),
            by_command: gpu::with_gpu_columns(on_gpus, inputs.account.totals.by_command()),
            heaviest: gpu::heaviest(on_gpus, &inputs.account.totals),
            max_sm_percent: gpu::max_sm_percent(on_gpus),
        },
        peak: inputs.account.ram.peak.as_ref().map(|peak| Peak {
            at_s: peak.at_ns.saturating_sub(inputs.account.start_ns) as f64 / 1e9,
            combined_rss_bytes: peak.combined,
            processes: peak.holders.clone(),
        }),
        warnings: warnings(inputs, &coverage, &limits, cgroup.as_ref()),
        cgroup,
        limits,
        coverage,
    }
}

fn cgroup(inputs: &Inputs) -> Option<Cgroup> {
    match inputs.config.cgroup.as_ref()? {
        Ok(cgroup) => Some(cgroup.figures()),
        Err(reason) => Some(Cgroup { reason: Some(reason.clone()), ..Cgroup::default() }),
    }
}

fn coverage(inputs: &Inputs) -> Coverage {
    let layers = &inputs.config.layers;
    let [preload, wait, subreaper, scan, connector] = inputs.account.totals.found;
    let failed_spawns = inputs.account.tree.failed_spawns();
    let absent = match layers.connector {
        true => inputs.account.connector.absent.clone(),
        false => Some("switched off".into()),
    };
    let seen = &inputs.account.totals.coverage;
    Coverage {
        processes: seen.processes + failed_spawns,
        unknown: seen.unknown + failed_spawns,
        failed_spawns,
        layers: Layers {
            preload: layers.preload.then_some(preload),
            wait: layers.wait.then_some(wait),
            subreaper: layers.subreaper.then_some(subreaper),
            // The launcher always knows the command itself.
            scan: layers.scan.then_some(if layers.subreaper { scan } else { scan + subreaper }),
            connector: (absent.is_none() || connector > 0).then_some(connector),
        },
        connector_absent: absent,
        connector_overruns: inputs.account.connector.overruns,
        static_executables: inputs.account.totals.static_executables(),
        dropped_events: inputs.dropped_events,
        records_untrusted: records_untrusted(inputs),
        ..seen.clone()
    }
}

fn records_untrusted(inputs: &Inputs) -> Option<String> {
    if inputs.is_cut_short {
        Some("the session's shared memory was truncated".into())
    } else if let Some(forgery) = inputs.account.forgery {
        Some(forgery.to_string())
    } else {
        inputs.account.damage.is_untrusted.then(|| "the event ring was overwritten".into())
    }
}

fn rss(max: &MaxRss, is_known: bool) -> Rss {
    let known = |bytes| is_known.then_some(bytes);
    Rss { total_bytes: known(max.total), private_bytes: known(max.private), shared_bytes: known(max.shared) }
}

/// The largest RAM of the first process: its exact peak no sample need have seen.
fn max_main(account: &RunState) -> MaxRss {
    let main = &account.ram.main;
    MaxRss { total: main.total.max(account.totals.main_peak.unwrap_or(0)), ..*main }
}

/// Memory that was never seen is unknown, unless there was nobody to have it.
fn max_ram(inputs: &Inputs, coverage: &Coverage) -> MaxRam {
    let ram = &inputs.account.ram;
    let main = max_main(inputs.account);
    let has_descendants = coverage.processes > 1;
    MaxRam {
        system_capacity_bytes: inputs.facts.host.ram_bytes,
        system_bytes: inputs.account.ram.system,
        main: rss(&main, main.total > 0),
        descendants: rss(&ram.descendants, ram.descendants.total > 0 || !has_descendants),
        combined: rss(&ram.combined, ram.combined.total > 0),
    }
}

fn mean_ram(inputs: &Inputs, coverage: &Coverage, wall_s: f64) -> MeanRam {
    let ram = &inputs.account.ram;
    let means = ram.means(wall_s);
    // How memory is shared may not have been read in every sample: those enter a mean in full, a maximum in part.
    let known = |mean: f64, max: &MaxRss, has_nobody: bool| {
        (max.total > 0 || has_nobody).then(|| mean.min(max.total as f64))
    };
    let has_no_descendants = coverage.processes <= 1;
    MeanRam {
        main_bytes: means.and_then(|(main, ..)| known(main, &max_main(inputs.account), false)),
        descendants_bytes: means
            .and_then(|(_, descendants, _)| known(descendants, &ram.descendants, has_no_descendants)),
        combined_bytes: means.and_then(|(.., combined)| known(combined, &ram.combined, false)),
    }
}

fn cpu(inputs: &Inputs, cpu_time: &CpuTime, wall_s: f64) -> Cpu {
    let host = &inputs.facts.host;
    let mean = |seconds: f64| Some(seconds / wall_s * 100.0).filter(|percent| percent.is_finite());
    // The others' is what is left of the sum, so it is known only if the first one's is.
    let main_s = inputs.account.totals.main.as_ref().map(|main| cpu_us(main) as f64 / 1e6);
    let main_s = cpu_time.total_s.and(main_s);
    let descendants_s = Option::zip(cpu_time.total_s, main_s).map(|(total, main)| total - main);
    let [max_main, max_descendants, max_combined] = inputs.account.cpu.max_percent();
    // A mean above every window's value means that the windows missed something: the mean is the exact one.
    let percent = |max: Option<f64>, mean: Option<f64>| Percent { max_sum: max.max_by(mean), mean_sum: mean };
    let (max_system, mean_system) = inputs.account.cpu.system_percent(inputs.facts.ticks_per_second);
    let ram = &inputs.account.ram;
    Cpu {
        system_core_count: host.cores,
        expected_cores: inputs.config.expected_cores.unwrap_or(host.cores),
        system: Percent { max_sum: max_system, mean_sum: mean_system },
        main: percent(max_main.filter(|_| main_s.is_some()), main_s.and_then(mean)),
        descendants: percent(max_descendants, descendants_s.and_then(mean)),
        combined: percent(max_combined, cpu_time.total_s.and_then(mean)),
        main_threads: Some(ram.main_threads).filter(|n| *n > 0),
        descendants_threads: Some(ram.descendants_threads),
        combined_threads: Some(ram.combined_threads).filter(|n| *n > 0),
    }
}

/// The larger of two values of which either may be unknown.
trait MaxBy {
    fn max_by(self, other: Self) -> Self;
}

impl MaxBy for Option<f64> {
    fn max_by(self, other: Self) -> Self {
        match (self, other) {
            (Some(a), Some(b)) => Some(a.max(b)),
            (a, b) => a.or(b),
        }
    }
}

fn cpu_time(inputs: &Inputs, coverage: &Coverage) -> CpuTime {
    let totals = &inputs.account.totals;
    let is_known = coverage.exact + coverage.sampled > 0;
    let seconds = |us: u64| us as f64 / 1e6;
    let kernel = kernel_time(inputs);
    CpuTime {
        user_s: is_known.then(|| seconds(totals.own.user_us)),
        system_s: is_known.then(|| seconds(totals.own.system_us)),
        total_s: is_known.then(|| seconds(cpu_us(&totals.own).saturating_add(totals.unattributed_us))),
        kernel_s: kernel.as_ref().ok().copied(),
        kernel_s_reason: kernel.err(),
        unattributed_s: is_known.then(|| seconds(totals.unattributed_us)),
    }
}

/// What the kernel counted for the launcher's waited-for children, if that is the whole tree.
fn kernel_time(inputs: &Inputs) -> Result<f64, String> {
    let Some(ending) = inputs.ending else {
        let is_running = inputs.stage == Stage::SoFar;
        return Err(if is_running { "the command still runs" } else { "the launcher was killed" }.into());
    };
    let tree = &inputs.account.tree;
    let running = inputs.account.totals.still_running;
    if running > 0 {
        return Err(format!("still running: {}", processes(running)));
    }
    if tree.autoreaped() > 0 {
        return Err(format!(
            "the kernel itself reaped {} (SIGCHLD ignored, or killed with their pid namespace)",
            processes(tree.autoreaped())
        ));
    }
    // Elsewhere silent programs may have made them, and waited for them.
    let connector = &inputs.account.connector;
    if tree.outside() > 0 && connector.absent.is_none() && connector.overruns == 0 {
        return Err(format!(
            "outside of the command's tree, with its environment: {}",
            processes(tree.outside())
        ));
    }
    Ok(ending.children_cpu_us as f64 / 1e6)
}

fn warnings(inputs: &Inputs, coverage: &Coverage, limits: &Limits, cgroup: Option<&Cgroup>) -> Vec<String> {
    let mut warnings = inputs.config.warnings.clone();
    let mut warn = |text: String| warnings.push(text);
    if let Some(kills) = cgroup.and_then(|cgroup| cgroup.oom_kills) {
        if kills > 0 {
            warn(format!("Out of memory: the kernel killed {} of the command's.", processes(kills)));
        }
    } else if let (Some(kills @ 1..), Some(cgroup)) = (limits.oom_kills, &limits.cgroup) {
        warn(format!(
            "Out of memory: during the run the kernel killed {} in cgroup {cgroup}.",
            processes(kills)
        ));
    }
    if inputs.stage == Stage::Over && inputs.ending.is_none() {
        warn("The launcher was killed; the report covers the tree until its last process ended.".into());
    }
    if !inputs.config.layers.preload {
        warn(
            "The preload layer is off: processes that live shorter than a sample are not counted, and their CPU time \
             is added to the process that waited for them."
                .into(),
        );
    }
    if coverage.connector_overruns > 0 {
        warn(format!(
            "The kernel told of processes faster than it could be read, {}: of programs that say nothing themselves \
             (static ones, other users'), short ones may be missing.",
            times(coverage.connector_overruns)
        ));
    }
    let silent = coverage.silent;
    if inputs.config.layers.preload && silent > 0 && coverage.connector_absent.is_some() {
        warn(format!(
            "Programs that said nothing of their end (static ones, other users', another root's): {silent}. Children of \
             theirs that no sample saw are not counted, and their CPU time is added to who waited for them."
        ));
    }
    if coverage.dropped_events > 0 {
        warn(format!(
            "{} event records were lost because there was no room for them; processes may be missing.",
            coverage.dropped_events
        ));
    }
    if inputs.account.unread > 0 {
        warn(format!(
            "{} event records were not read: the machine was too busy at the end. Processes may be missing, or known \
             from their last sample only.",
            inputs.account.unread
        ));
    }
    let damage = inputs.account.damage;
    if inputs.is_cut_short {
        warn("The session's shared memory was truncated; what was not read by then is lost.".into());
    } else if let Some(forgery) = inputs.account.forgery {
        warn(format!(
            "A process of the tree forges event records: {forgery}. None that came later is counted, and what was \
             counted before may hold some of them."
        ));
    } else if damage.is_untrusted {
        warn(
            "The event ring was overwritten by a process of the tree; what came after is not counted.".into(),
        );
    }
    let senseless = damage.events.saturating_add(inputs.account.impossible);
    if senseless > 0 && !inputs.is_cut_short && !damage.is_untrusted {
        warn(format!("{senseless} event records made no sense and were left out."));
    }
    if inputs.config.restarts > 0 {
        warn(format!(
            "The collector was killed {} and replaced; for {:.3} s in all nothing was sampled, and what then started and \
             ended without a word of its own (static programs) may be missing.",
            times(inputs.config.restarts.into()),
            inputs.account.unsampled_ns as f64 / 1e9
        ));
    }
    if inputs.account.is_state_lost {
        warn("What the killed collector knew is lost: processes that ended before are missing.".into());
    }
    if inputs.account.is_unlinked {
        warn(
            "The session's shared memory was unlinked during the run (by a logout with RemoveIPC?); programs that \
             started afterwards are known from /proc and their parents only."
                .into(),
        );
    }
    if coverage.sampled > 0 {
        warn(format!(
            "The CPU time of {} is from the last sample; what was used after that is missing.",
            processes(coverage.sampled)
        ));
    }
    let lost = inputs.account.tree.lost();
    if lost > 0 {
        warn(format!(
            "Killed with their pid namespace: {}. The kernel counts that CPU time nowhere, and it is missing.",
            processes(lost)
        ));
    }
    let unknown = (coverage.unknown - coverage.failed_spawns).saturating_sub(lost);
    if unknown > 0 {
        warn(format!(
            "The CPU time of {} is not known by itself; it is counted with who waited.",
            processes(unknown)
        ));
    }
    let unseen = inputs.account.totals.ram_missing;
    if unseen > 0 {
        warn(format!(
            "The RAM of {} is not known: no sample saw it, and nobody told of it. It is missing in the sums.",
            processes(unseen)
        ));
    }
    for running in &inputs.account.totals.running {
        warn(format!("Still running at the end: pid {} ({}).", running.pid, running.command));
    }
    warnings.extend(gpu::warnings(&inputs.account.gpu.usage, inputs.account.start_ns));
    warnings
}

fn processes(count: u64) -> String {
    if count == 1 { "1 process".into() } else { format!("{count} processes") }
}

fn times(count: u64) -> String {
    if count == 1 { "once".into() } else { format!("{count} times") }
}
