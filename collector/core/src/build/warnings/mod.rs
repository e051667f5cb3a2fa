//! The warnings: one function for each cause, which gives `None` if its cause does not apply. A message says what happened, to
//! what, what it means for the figures, and what to do where something can be done.

mod elsewhere;
pub(super) mod gpu;
mod gpu_names;
mod sinks;

use std::collections::BTreeMap;

use super::inputs::Inputs;
use super::run_limits::{for_time, has_gpu_driver_failed};
use crate::model::config::Layer;
use crate::model::counts_in_words::{processes, records, times};
use crate::model::report::{Cause, Coverage, CpuTime, MaxRam, Report, Stage, Topic, Warning};
use crate::model::rule::Rule;

/// Maximum number of processes that one warning names.
const MOST_NAMED: usize = 10;

/// Checks for one cause of a warning, in the inputs and in all other parts of the report. The result is the message; `None`: the cause
/// does not apply.
type CauseCheck = fn(&Inputs, &Report) -> Option<String>;

/// All causes, in the order of the report.
const CAUSES: &[(Topic, CauseCheck)] = &[
    (Topic::OutOfMemory, out_of_memory),
    (Topic::Tracking, launcher_killed),
    (Topic::Figures, no_cgroup),
    (Topic::OtherNodes, elsewhere::unseen_nodes),
    (Topic::Elsewhere, elsewhere::containers),
    (Topic::Elsewhere, elsewhere::containers_as_they_are),
    (Topic::Elsewhere, elsewhere::containers_in_part),
    (Topic::Elsewhere, elsewhere::hosts),
    (Topic::Elsewhere, elsewhere::units),
    (Topic::Elsewhere, elsewhere::pods),
    (Topic::Elsewhere, elsewhere::jobs),
    (Topic::Elsewhere, elsewhere::daemons),
    (Topic::Figures, unlisted_ranks),
    (Topic::Figures, attached_unseen),
    (Topic::Figures, preload_off),
    (Topic::Figures, subreaper_off),
    (Topic::Tracking, connector_overruns),
    (Topic::Figures, other_users),
    (Topic::Figures, uninstrumented),
    (Topic::Figures, unreachable_programs),
    (Topic::Figures, filtered_programs),
    (Topic::Tracking, dropped_events),
    (Topic::Tracking, unread_events),
    (Topic::Tracking, untrusted_records),
    (Topic::Tracking, invalid_events),
    (Topic::Tracking, collector_restarts),
    (Topic::Tracking, state_lost),
    (Topic::Tracking, segment_unlinked),
    (Topic::Tracking, sink_troubles),
    (Topic::Figures, cpu_above_kernel),
    (Topic::Figures, sampled_cpu),
    (Topic::Figures, killed_with_namespace),
    (Topic::Figures, unknown_cpu),
    (Topic::Figures, unknown_ram),
    (Topic::Figures, ram_floor),
    (Topic::Command, limits_not_held),
    (Topic::Command, alerts_not_watched),
    (Topic::Figures, ram_at_most),
    (Topic::Figures, no_ram),
    (Topic::Figures, no_process),
    (Topic::Figures, no_length),
    (Topic::Command, limited_address_space),
    (Topic::Command, still_running),
];

/// The causes of warnings about a run that was not tracked. All others are about what tracking found.
const UNTRACKED_CAUSES: &[(Topic, CauseCheck)] =
    &[(Topic::Tracking, untracked), (Topic::OutOfMemory, out_of_memory), (Topic::Figures, no_length)];

/// The report's warnings in order: the launcher's own, those of [`CAUSES`], then those of the GPUs. A run that was not
/// tracked has those of [`UNTRACKED_CAUSES`] in place of [`CAUSES`].
pub(super) fn warnings(inputs: &Inputs, report: &Report) -> Vec<Warning> {
    let of_launcher = inputs.config.report.warnings.iter().map(|text| (Topic::Tracking, text.clone()));
    let causes = if report.coverage.untracked_reason.is_some() { UNTRACKED_CAUSES } else { CAUSES };
    let of_run = causes.iter().filter_map(|(topic, check)| Some((*topic, check(inputs, report)?)));
    let all = of_launcher.chain(of_run).map(|(topic, text)| Warning::new(topic, text));
    all.chain(gpu::warnings(inputs)).collect()
}

/// This count, if it is not 0.
fn positive(count: u64) -> Option<u64> {
    (count > 0).then_some(count)
}

/// Says that the run was not tracked, and what is known all the same: what wait4(2) tells a parent.
fn untracked(inputs: &Inputs, report: &Report) -> Option<String> {
    let reason = report.coverage.untracked_reason.as_deref()?;
    let end = inputs.end;
    let known = match (end.command_exit, end.largest_rss_bytes) {
        (None, _) => "Nothing is known of it yet.",
        (Some(_), Some(_)) => {
            "CPU time is that of the command and of the processes that it waited for, the largest RAM is that of one of them, \
             and nothing else is known."
        }
        (Some(_), None) => {
            "CPU time is that of the command and of the processes that it waited for. None is known to have had more RAM than \
             the launcher, whose peak a child inherits. Nothing else is known."
        }
    };
    let what = if inputs.config.attached.is_some() { "process" } else { "command" };
    Some(format!("The {what} ran untracked: {reason}. {known}"))
}

/// Says which outputs lack something.
fn sink_troubles(inputs: &Inputs, _: &Report) -> Option<String> {
    sinks::troubles(&inputs.run.health.sinks)
}

/// Says how many processes the kernel killed for lack of memory, as counted by the command's own cgroup, or else by the launcher's.
/// The latter can also have processes outside the tree, so the message names it.
fn out_of_memory(_: &Inputs, report: &Report) -> Option<String> {
    let (kills, which) =
        match (report.cgroup.as_ref().and_then(|cgroup| cgroup.oom_kills), &report.allowed.cgroup) {
            (Some(kills), _) => (kills, "of the command".to_owned()),
            (None, Some(cgroup)) => (report.allowed.oom_kills?, format!("in cgroup {cgroup} during the run")),
            (None, None) => return None,
        };
    Some(format!(
        "Out of memory: the kernel killed {} {which}. The RAM figures are what was used up to then, not what the command \
         needs: give it more memory.",
        processes(positive(kills)?)
    ))
}

/// Says that no cgroup could be made for `--cgroup`, or that figures of this cgroup are missing.
fn no_cgroup(_: &Inputs, report: &Report) -> Option<String> {
    let cgroup = report.cgroup.as_ref()?;
    let reason = cgroup.reason.as_deref()?;
    Some(match cgroup.path {
        None => format!(
            "--cgroup: the command ran without a cgroup of its own, and its figures are missing: {reason}."
        ),
        Some(_) => format!("--cgroup: figures of the command's cgroup are missing: {reason}."),
    })
}

/// Names the limit of address space that may have made the command fail. A request for memory that fails leaves no trace, since the
/// process stays below its limit. So the limit is named if nothing else explains the failure, and the process used at least
/// `LEAST_PART` of it.
fn limited_address_space(inputs: &Inputs, report: &Report) -> Option<String> {
    const LEAST_PART: f64 = 0.1;
    // Programs often abort, or use a null pointer, if an allocation fails.
    let is_unexplained = match &report.ending.cause {
        None => true,
        Some(Cause::Signal(end)) => matches!(end.signal, libc::SIGABRT | libc::SIGSEGV),
        Some(_) => false,
    };
    let has_failed = report.ending.exit.is_failure();
    // The process that came nearest to its limit.
    let process = inputs.run.failures.near_address_space.as_ref()?;
    let used = process.address_space_used();
    let limit = process.bounds.limits.address_space_bytes?;
    (has_failed && is_unexplained && used >= LEAST_PART).then(|| {
        format!(
            "ulimit -v is {:.1} MB, of which {} had up to {:.0}%: a request for more than the rest fails, and no figure shows \
             that. Raise it, and compare.",
            limit as f64 / 1e6,
            process.name.command,
            used * 100.0
        )
    })
}

/// Says that the launcher was killed: then the report has no exit status.
fn launcher_killed(inputs: &Inputs, _: &Report) -> Option<String> {
    let is_killed = inputs.end.stage == Stage::Over && inputs.end.command_exit.is_none();
    let is_attached = inputs.config.attached.is_some();
    let status = if is_attached { "" } else { ", but the command's exit status is unknown" };
    is_killed.then(|| {
        format!("The launcher was killed. The report covers the tree until its last process ended{status}.")
    })
}

/// Says which descendants of an attached process may be missing: that process started before the run, so it reports none of them.
/// `None`: the run attached to no process, or the process connector shows its descendants.
fn attached_unseen(inputs: &Inputs, report: &Report) -> Option<String> {
    let attached = inputs.config.attached?;
    // If the process was not tracked, another warning says so.
    inputs.run.totals.main_process.as_ref()?;
    let reason = report.coverage.connector_absent.as_ref()?;
    let which = if inputs.config.discovery.uses(Layer::Preload) { " without the shim" } else { "" };
    Some(format!(
        "Process {} ran before the run began, so it reports nothing itself. Descendants{which} that no sample saw are not counted, \
         and their CPU time is in no figure. The kernel's process connector would show them, but is not used: {reason}.",
        attached.pid
    ))
}

/// Warns that processes are missed because the user switched the preload layer off. `None`: it was on, the process connector shows
/// all processes, or the run attached to a process, of which [`attached_unseen`] warns.
fn preload_off(inputs: &Inputs, report: &Report) -> Option<String> {
    let config = inputs.config;
    let are_missed = report.coverage.connector_absent.is_some() && !config.discovery.uses(Layer::Preload);
    (config.attached.is_none() && are_missed).then(|| {
        "The preload layer is off (--layers): processes that no sample sees are not counted, and their CPU time is added to \
         the process that reaped them."
            .into()
    })
}

/// Warns that orphans are missed because the user switched the subreaper off. `None`: it was on, the process connector shows all
/// processes, the run attached to a process, or the warning of [`preload_off`] includes this.
fn subreaper_off(inputs: &Inputs, report: &Report) -> Option<String> {
    let config = inputs.config;
    let is_off = config.discovery.uses(Layer::Preload) && !config.discovery.uses(Layer::Subreaper);
    let are_missed = report.coverage.connector_absent.is_some() && is_off;
    (config.attached.is_none() && are_missed).then(|| {
        "Orphans do not come to gpu-track-run (--no-subreaper): those without the shim (static, setuid, another user's) that no \
         sample saw before their parent ended are in no figure."
            .into()
    })
}

/// Says that events of the process connector were lost because the socket's buffer was full.
fn connector_overruns(_: &Inputs, report: &Report) -> Option<String> {
    let overruns = positive(report.coverage.connector_overruns)?;
    Some(format!(
        "The kernel's process events came faster than they could be read, {}. Short processes of programs without the shim \
         (static, setuid, another user's) may be missing. As root, or with a larger net.core.rmem_max, more events are \
         buffered.",
        times(overruns)
    ))
}

/// Warns of processes of other users. They may not write records to this user's shared memory, so figures of them can be missing.
/// `None`: there were none, or nothing of them is missing ([`lack_of_uninstrumented`]).
fn other_users(inputs: &Inputs, report: &Report) -> Option<String> {
    let users = &report.coverage.other_users;
    let count = users.iter().map(|user| user.processes).sum();
    let lack = lack_of_uninstrumented(inputs, report, count)?;
    let names: Vec<String> = users.iter().take(MOST_NAMED).map(|user| user.uid.to_string()).collect();
    let more = if users.len() > MOST_NAMED { ", ..." } else { "" };
    let whose = if users.len() == 1 { "another user (uid" } else { "other users (uids" };
    Some(format!(
        "{} of {whose} {}{more}): uninstrumented, since other users may not write to this run's records. {lack} \
         gpu-track-run started as that user sees all: sudo -u USER gpu-track-run -- CMD.",
        processes(count),
        names.join(", ")
    ))
}

/// Says what is missing of programs that can't carry the shim, except those that [`other_users`] tells of. `None`: there were none, or
/// nothing is missing.
fn uninstrumented(inputs: &Inputs, report: &Report) -> Option<String> {
    let of_other_users: u64 = report.coverage.other_users.iter().map(|user| user.processes).sum();
    let count = report.coverage.uninstrumented.saturating_sub(of_other_users);
    let lack = lack_of_uninstrumented(inputs, report, count)?;
    Some(format!(
        "Ended without a record of their own: {}, of programs that can't carry the shim (static, setuid, another user's, in another \
         root). {lack}",
        processes(count)
    ))
}

/// Says what the figures lack because `count` processes did not carry the shim. `None`: there are none, or the process connector shows
/// all. Without the preload layer no program carries the shim, and [`preload_off`] says what that means.
fn lack_of_uninstrumented(inputs: &Inputs, report: &Report, count: u64) -> Option<String> {
    let reason = report.coverage.connector_absent.as_ref()?;
    let config = inputs.config;
    (count > 0 && config.attached.is_none() && config.discovery.uses(Layer::Preload)).then(|| {
        format!(
            "Their children that no sample saw are not counted, and the CPU time of those is added to the process that reaped \
             them. The kernel's process connector would show them, but is not used: {reason}."
        )
    })
}

/// Says how many ranks (processes of an MPI job or Slurm step) the report does not list. `None`: it lists all.
fn unlisted_ranks(inputs: &Inputs, _: &Report) -> Option<String> {
    let left_out = positive(inputs.run.ranks.left_out())?;
    Some(format!("Of the ranks, {left_out} are not listed: the first ones alone are told apart."))
}

/// Warns of programs that can't see the shim or the shared memory in /dev/shm, and says how to bind both into a sandbox.
fn unreachable_programs(inputs: &Inputs, _: &Report) -> Option<String> {
    let count = positive(inputs.end.shimless.unreachable)?;
    let shim = inputs.config.discovery.shim_directory.as_deref().unwrap_or("the shim's directory");
    Some(format!(
        "{} in a sandbox or container that can't see {shim} or /dev/shm: uninstrumented, like {} children. Bind both: bwrap \
         --ro-bind {shim} {shim} --bind /dev/shm /dev/shm (after --dev); apptainer --bind {shim},/dev/shm. A program that \
         restricts itself by Landlock must allow to read the one and to write the other.",
        processes(count),
        if count == 1 { "its" } else { "their" }
    ))
}

/// Warns of programs that run without the shim because of a seccomp filter.
fn filtered_programs(inputs: &Inputs, _: &Report) -> Option<String> {
    let count = positive(inputs.end.shimless.filtered)?;
    Some(format!(
        "{} uninstrumented, like {} children: a seccomp filter was installed before the program was started, and could kill \
         it for a system call of the shim's.",
        processes(count),
        if count == 1 { "its" } else { "their" }
    ))
}

/// Says how many records could not be stored.
fn dropped_events(_: &Inputs, report: &Report) -> Option<String> {
    let records = records(positive(report.coverage.dropped_events)?);
    Some(format!(
        "{records} could not be stored, because /dev/shm was full or the collector got too little CPU time. Processes and \
         their CPU time may be missing."
    ))
}

/// Says how many records were not read in time at the end.
fn unread_events(inputs: &Inputs, _: &Report) -> Option<String> {
    let records = records(positive(inputs.run.health.unread)?);
    Some(format!(
        "{records} could not be read in time at the end: the machine was too busy. Processes may be missing, or be known \
         from their last sample only."
    ))
}

/// Says why later event records are not counted: the shared memory was truncated or overwritten, or records are forged.
fn untrusted_records(inputs: &Inputs, _: &Report) -> Option<String> {
    if inputs.end.is_truncated {
        Some("The session's shared memory was truncated: event records not read by then are lost.".into())
    } else if let Some(forgery) = inputs.run.health.forgery {
        Some(format!(
            "A process of the tree forges event records: {forgery}. No later record is counted, but figures from before \
             may contain forged ones."
        ))
    } else {
        inputs.run.health.damage.is_untrusted.then(|| {
            "The event ring was overwritten by a process of the tree: no later record is counted.".into()
        })
    }
}

/// Warns of invalid records that were left out. Where the whole ring is not trusted, [`untrusted_records`] says so instead.
fn invalid_events(inputs: &Inputs, _: &Report) -> Option<String> {
    let damage = inputs.run.health.damage;
    // Records that no shim writes, and those that claim more CPU time than there was.
    let count = damage.events.saturating_add(inputs.run.health.impossible);
    (count > 0 && !inputs.end.is_truncated && !damage.is_untrusted).then(|| {
        format!(
            "Invalid and not counted: {}. A process of the tree may have written to the session's shared memory.",
            records(count)
        )
    })
}

/// Says how often the collector was killed and replaced, and what that leaves out.
fn collector_restarts(inputs: &Inputs, report: &Report) -> Option<String> {
    let restarts = positive(inputs.config.restarts.into())?;
    let Coverage { connector_absent, connector_overruns, .. } = &report.coverage;
    let has_all_events = connector_absent.is_none() && *connector_overruns == 0;
    let others = if has_all_events { "" } else { ", and processes without the shim that lived only then," };
    Some(format!(
        "The collector was killed {} and replaced. Nothing was sampled for {:.3} s in all: RAM peaks of that time{others} \
         may be missing.",
        times(restarts),
        inputs.run.health.unsampled_ns as f64 / 1e9
    ))
}

/// Says that a killed collector's state could not be restored, so that processes are missing.
fn state_lost(inputs: &Inputs, _: &Report) -> Option<String> {
    inputs.run.health.is_state_lost.then(|| {
        "The state of a killed collector could not be restored: processes that had ended by then are missing.".into()
    })
}

/// Says that the file of the shared memory was removed during the run, so that programs started later wrote no records.
fn segment_unlinked(inputs: &Inputs, _: &Report) -> Option<String> {
    inputs.run.health.is_unlinked.then(|| {
        "The session's shared memory was unlinked during the run, as a logout does with RemoveIPC=yes (logind.conf). \
         Programs that started later are known from /proc and from their parents only."
            .into()
    })
}

/// Says that the processes' CPU times add up to more than the kernel's own sum, which is the right one.
fn cpu_above_kernel(_: &Inputs, report: &Report) -> Option<String> {
    let CpuTime { total_s, kernel_s, .. } = &report.cpu_time;
    let above_s = report.cpu_time.above_kernel_s()?;
    Some(format!(
        "The CPU times of the processes add up to {:.3} s, {above_s:.3} s more than the kernel's own sum of {:.3} s: part \
         of a process's CPU time counts twice. Trust the kernel's sum.",
        (*total_s)?,
        (*kernel_s)?
    ))
}

/// Warns of ended processes whose CPU time is from a sample.
fn sampled_cpu(inputs: &Inputs, report: &Report) -> Option<String> {
    // [`still_running`] warns of processes that did not end.
    let count = report.coverage.sampled.saturating_sub(inputs.run.totals.survivors.sampled);
    Some(format!(
        "The CPU time of {} is from the last sample: what was used after it is missing or unattributed.",
        processes(positive(count)?)
    ))
}

/// Warns of processes that the kernel killed with their pid namespace, whose CPU time is in no sum.
fn killed_with_namespace(inputs: &Inputs, _: &Report) -> Option<String> {
    let count = positive(inputs.run.tree.counts().killed_with_namespace)?;
    Some(format!(
        "Killed with their pid namespace: {}. Their CPU time is missing, since the kernel adds it to no sum.",
        processes(count)
    ))
}

/// Warns of processes whose CPU time is unknown. Leaves out children of failed spawns, which used next to nothing, and those of which
/// [`killed_with_namespace`] warns.
fn unknown_cpu(inputs: &Inputs, report: &Report) -> Option<String> {
    let Coverage { unknown, failed_spawns, .. } = &report.coverage;
    let killed = inputs.run.tree.counts().killed_with_namespace;
    let count = positive((unknown - failed_spawns).saturating_sub(killed))?;
    Some(format!(
        "The CPU time of {} is unknown. The total has it only if another process of the tree waited for {}.",
        processes(count),
        if count == 1 { "it" } else { "them" }
    ))
}

/// Warns of processes whose RAM is in no figure, unless they can't have held enough to matter.
fn unknown_ram(inputs: &Inputs, report: &Report) -> Option<String> {
    /// Less than this needs no warning: nobody asks a batch system for memory in such small steps.
    const LITTLE_BYTES: u64 = 16_000_000;
    /// Less than 1/N of the largest RAM, where N is this, needs no warning either.
    const PART: u64 = 20;
    let missing = &inputs.run.totals.ram_missing;
    let known = report.max_ram.combined.footprint_bytes.unwrap_or(0);
    let at_most = missing.at_most_bytes();
    let is_little = at_most.is_some_and(|bytes| bytes < LITTLE_BYTES.max(known / PART));
    (missing.processes > 0 && !is_little).then(|| {
        let amount = match at_most {
            Some(bytes) => format!("at most {:.1} MB in all", bytes as f64 / 1e6),
            None => "a smaller --st shows more".to_owned(),
        };
        format!(
            "The RAM of {} is unknown and missing from the RAM figures, because no sample saw it, and no record has it: {amount}.",
            processes(missing.processes)
        )
    })
}

/// Names the user's limits that had no effect, all the time or for a while, because samples did not know the figures that they watch.
fn limits_not_held(inputs: &Inputs, _: &Report) -> Option<String> {
    let rules = inputs.run.rules.not_held(has_gpu_driver_failed(inputs));
    unwatched_rules("Not held", &rules.collect::<Vec<_>>())
}

/// Names the user's alerts that could not go on or off, as [`limits_not_held`] does.
fn alerts_not_watched(inputs: &Inputs, _: &Report) -> Option<String> {
    let rules = inputs.run.rules.not_watched(has_gpu_driver_failed(inputs));
    unwatched_rules("Alerts not watched", &rules.collect::<Vec<_>>())
}

/// Says that these rules had no effect, each for the given time in seconds (`None`: all the time). `what` is the beginning of the text.
fn unwatched_rules(what: &str, rules: &[(&Rule, Option<f64>)]) -> Option<String> {
    let mut by_reason = BTreeMap::<_, Vec<String>>::new();
    for (rule, time_s) in rules {
        let words = rule.words.clone() + &for_time(*time_s);
        by_reason.entry(rule.quantity.why_not_held(*time_s)).or_default().push(words);
    }
    let lines = by_reason.iter().map(|(reason, rules)| format!("{}, since {reason}", rules.join(", ")));
    let lines = lines.collect::<Vec<_>>().join("; ");
    (!lines.is_empty()).then(|| format!("{what}: {lines}."))
}

/// Says that one process of a group is known to have held more RAM than any sample saw of the whole group. Names the largest such
/// group.
fn ram_floor(inputs: &Inputs, report: &Report) -> Option<String> {
    let (ram, floors) = (&inputs.run.ram, &inputs.run.totals.floors);
    let groups = [
        ("the whole tree (combined)", &floors.combined, &ram.max.combined),
        ("all descendants", &floors.descendants, &ram.max.descendants),
        ("the first process (main)", &floors.main, &ram.max.main),
    ];
    // A process that held much less than the run's most needs no warning, unless nothing else is known of its group.
    let known = report.max_ram.combined.footprint_bytes.unwrap_or(0);
    let matters = |rss_bytes: u64, seen_bytes: u64| seen_bytes == 0 || rss_bytes > known - known / 10;
    let (group, floor, _) = groups.into_iter().find(|(_, floor, seen)| {
        floor.is_missed_by(seen) && matters(floor.rss_bytes, seen.footprint_bytes)
    })?;
    Some(format!(
        "The largest RAM of {group} may be too low: a process held {:.1} MB between two samples, and what the others held just \
         then is unknown. A smaller --st shows more.",
        floor.rss_bytes as f64 / 1e6
    ))
}

/// Says that the largest RAM can have been much more than is certain: processes ended between two samples while others grew, or
/// the pages of large fork relatives can't be told apart. If a process was killed, users look for the memory that it needed, so a
/// smaller difference is worth a warning.
fn ram_at_most(inputs: &Inputs, report: &Report) -> Option<String> {
    /// A difference up to this needs no warning in any run.
    const NEGLIGIBLE_BYTES: u64 = 4_000_000;
    /// A difference of up to 1/N of the certain RAM, where N is this, needs no warning either.
    const PART: u64 = 2;
    /// The same where a process was killed, or where pages can't be told apart.
    const SMALL_PART: u64 = 10;
    let is_any_killed = !inputs.run.failures.by_signal.is_empty();
    let certain = report.max_ram.combined.footprint_bytes?;
    let at_most = report.max_ram_at_most.combined?;
    // Not below 0: `max_ram_at_most` is raised to what is certain.
    let more = at_most - certain;
    // Most of the difference is of pages that nothing tells apart, and not of times between two samples.
    let is_sharing_unread = inputs.run.ram.unseen_bytes > more / 2;
    let part = if is_any_killed || is_sharing_unread { SMALL_PART } else { PART };
    let reason = if is_sharing_unread {
        "how fork relatives share their pages was not read. Only root sees it where they are large and write between two forks, are \
         not dumpable (prctl), or are another user's; and on a busy machine there can be too little time."
    } else {
        "processes ended between two samples, and how much the others held just then is unknown. A smaller --st shows more."
    };
    (more > NEGLIGIBLE_BYTES.max(certain / part)).then(|| {
        format!(
            "The largest RAM can have been up to {:.1} MB, and was {:.1} MB for certain: {reason}",
            at_most as f64 / 1e6,
            certain as f64 / 1e6
        )
    })
}

/// Names the groups of processes whose RAM is unknown. `None`: there is none, or [`unknown_ram`] or [`no_process`] warns already.
fn no_ram(inputs: &Inputs, report: &Report) -> Option<String> {
    let MaxRam { main, descendants, combined, .. } = &report.max_ram;
    // Without a command there is no main.
    let has_main = !inputs.config.command.is_empty();
    let mut groups = vec![("main", main), ("descendants", descendants), ("combined", combined)];
    groups.retain(|(name, ram)| ram.footprint_bytes.is_none() && (has_main || *name != "main"));
    let names: Vec<&str> = groups.into_iter().map(|(name, _)| name).collect();
    let has_other_warning = unknown_ram(inputs, report).is_some() || report.coverage.processes == 0;
    (!names.is_empty() && !has_other_warning).then(|| {
        format!(
            "The RAM of {} is unknown: the processes ended before a sample saw them, and no record has it. A smaller --st \
             shows more.",
            names.join(", ")
        )
    })
}

/// Says that no process was seen. `None`: one was, there was no command, or the launcher has warnings, which say why.
fn no_process(inputs: &Inputs, report: &Report) -> Option<String> {
    let config = inputs.config;
    let has_launcher_warning = !config.report.warnings.is_empty();
    (report.coverage.processes == 0 && !has_launcher_warning && !config.command.is_empty())
        .then(|| "No process of the command was seen, so its RAM and CPU time are unknown.".into())
}

/// Says that the run's start and end have the same time, so that means over time would be divided by 0.
fn no_length(_: &Inputs, report: &Report) -> Option<String> {
    (report.wall_s <= 0.0).then(|| {
        "The run was shorter than the clock shows: its mean RAM and CPU percentages are unknown.".into()
    })
}

/// Names the processes that still run, whose later use is missing.
fn still_running(inputs: &Inputs, report: &Report) -> Option<String> {
    // If tracking of an attached process ends before the process does, it and its descendants are meant to run on.
    let attached = report.attached.as_ref();
    if attached.is_some_and(|attached| attached.runs_on) {
        return None;
    }
    let survivors = &inputs.run.totals.survivors;
    let count = positive(survivors.count)?;
    let named = survivors.listed.iter().take(MOST_NAMED);
    let mut names: Vec<_> =
        named.map(|process| format!("pid {} ({})", process.pid, process.command)).collect();
    let left_out = count.saturating_sub(names.len() as u64);
    if left_out > 0 {
        names.push(format!("and {left_out} more"));
    }
    let is_interrupted = inputs.end.command_exit.is_some_and(|exit| exit.is_wait_interrupted);
    let (when, cure) = match inputs.end.stage {
        Stage::Over if is_interrupted => ("when --wait-all was interrupted", ""),
        Stage::Over if attached.is_some() => ("at the end", ""),
        Stage::Over => ("at the end", " (--wait-all waits for them)"),
        Stage::SoFar | Stage::Recovered => ("when this report was made", ""),
    };
    Some(format!("Still running {when}: {}. What they use after it is missing{cure}.", names.join(", ")))
}
