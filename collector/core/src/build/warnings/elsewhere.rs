//! Warnings of what was started outside of the tree. A summary shows only a warning's first sentence, so that sentence names what was
//! started, and says what to type to see it.

use std::borrow::Cow;

use super::MOST_NAMED;
use crate::build::Inputs;
use crate::build::containers::{OF_NO_NAME, edited_cpu_s};
use crate::model::config::{OtherNodes, ReportConfig};
use crate::model::containers::NotTracked;
use crate::model::report::{ElsewhereKind, Report};

/// Maximum number of characters of all names in a warning, so that the advice after them is in the lines of the summary. The report's
/// `coverage` has all names.
const MOST_CHARACTERS: usize = 40;

/// Warns of other machines whose processes are in no figure, and of ranks that are in none. `None`: there are none, as far as known.
pub(super) fn unseen_nodes(inputs: &Inputs, report: &Report) -> Option<String> {
    let of_nodes = report.coverage.elsewhere.iter().filter(|entry| entry.kind == ElsewhereKind::Node);
    let programs: Vec<&str> = of_nodes.map(|entry| &*entry.program).collect();
    let (advice, more_advice) = how_to_track(&inputs.config.report, &programs);
    let ranks = report.coverage.ranks.map(|ranks| format!("{} of {} ranks", ranks.unseen, ranks.expected));
    // Where no program's arguments name other nodes, only missing ranks can show that there are any.
    let Some(nodes) = &report.coverage.nodes else {
        return Some(format!(
            "Not in this report: {} of an MPI job or Slurm step{advice}. They wrote no record: they ran on other nodes, or can't carry \
             the shim.{more_advice}",
            ranks?
        ));
    };
    let ranks = ranks.map_or_else(String::new, |ranks| format!(", {ranks}"));
    let names = named(nodes.unseen_names.iter().map(String::as_str));
    let count =
        if nodes.unseen == 1 { "1 other node".to_owned() } else { format!("{} other nodes", nodes.unseen) };
    Some(format!(
        "Not in this report: {count}{names}{ranks}{advice}. By srun or an MPI launcher, the command started processes there.{more_advice}"
    ))
}

/// Why other nodes were not tracked, or what makes a report of what runs there; and a sentence more. `programs`: what started it, as far as
/// that is known: srun, and daemons of MPI launchers. Where each node has a report of its own, there is nothing to say.
fn how_to_track(config: &ReportConfig, programs: &[&str]) -> (String, &'static str) {
    let daemon = programs.iter().copied().find(|program| *program != "srun");
    let is_by_srun = daemon.is_none() && !programs.is_empty();
    let by_rank = |launcher| {
        format!("; {launcher} gpu-track-run -o usage.%r.json -- ./app makes a report of each rank")
    };
    let hindrance = |hindrances: &[(String, String)]| {
        let (_, why) = hindrances.iter().find(|(of, _)| daemon == Some(of))?;
        Some(format!("; no agent was started there, because {why}"))
    };
    match (&config.other_nodes, daemon) {
        _ if config.node_part.is_some() => (String::new(), ""),
        (OtherNodes::Impossible(problem), _) => (format!("; they could not be tracked: {problem}"), ""),
        (OtherNodes::ByAgents { hindrances, .. }, Some(_)) => {
            (hindrance(hindrances).unwrap_or_else(|| by_rank("mpirun")), "")
        }
        (OtherNodes::OnRequest, Some(_)) => {
            ("; gpu-track-run --nodes=auto -- CMD tracks all nodes".to_owned(), "")
        }
        (OtherNodes::OnRequest | OtherNodes::ByAgents { .. }, None) if is_by_srun => {
            (by_rank("srun"), " In a job (salloc, sbatch), gpu-track-run tracks all nodes.")
        }
        _ => (by_rank(if is_by_srun { "srun" } else { "mpirun" }), ""),
    }
}

/// Warns of containers that a daemon runs and whose figures are not known.
pub(super) fn containers(_: &Inputs, report: &Report) -> Option<String> {
    let of_containers =
        || report.coverage.elsewhere.iter().filter(|entry| entry.kind == ElsewhereKind::Container);
    let mut reasons: Vec<_> = of_containers().filter_map(|entry| entry.reason.as_deref()).collect();
    reasons.sort_unstable();
    reasons.dedup();
    started(report, ElsewhereKind::Container, "containers of", |programs| {
        // Advice to ask the runtime is of no use to a user who may not use its socket, nor for a container without a name.
        let can_ask = |program: &str| {
            let can = |reason: &str| reason != OF_NO_NAME && !reason.contains("Permission denied");
            let mut entries = of_containers().filter(|entry| entry.program == program);
            entries.any(|entry| entry.reason.as_deref().is_none_or(can))
        };
        let program =
            programs.iter().find(|program| ["docker", "nerdctl"].contains(*program) && can_ask(program));
        let inspect = program.map_or(String::new(), |program| {
            format!("gpu-track-run --attach $({program} inspect --format {{{{.State.Pid}}}} NAME), or ")
        });
        // The summary shows the first sentence.
        let why = reasons.iter().map(|reason| format!("{reason}; ")).collect::<String>();
        format!("{why}see them by {inspect}gpu-track-run inside. A daemon runs them")
    })
}

/// Warns of containers that `--containers` could not bring into the tree.
pub(super) fn containers_as_they_are(inputs: &Inputs, _: &Report) -> Option<String> {
    let all = inputs.run.containers.not_tracked();
    let count: u64 = all.values().sum();
    let reasons: Vec<String> = all.iter().map(|(why, count)| format!("{count} {}", in_words(*why))).collect();
    let containers = if count == 1 { "1 container is".to_owned() } else { format!("{count} containers are") };
    (count > 0)
        .then(|| format!("--containers: {containers} not in the tree's figures: {}.", reasons.join("; ")))
}

/// The cgroup of a container has its runtime's start, too: about 0.03 s of CPU time.
const OF_RUNTIME_S: f64 = 0.1;

/// Warns of containers that the proxy has edited and whose programs used more than the whole tree has.
pub(super) fn containers_in_part(inputs: &Inputs, report: &Report) -> Option<String> {
    let (count, cpu_s) = edited_cpu_s(inputs);
    let total_s = report.cpu_time.total_s?;
    let is_more = count > 0 && cpu_s > total_s * 1.1 + count as f64 * OF_RUNTIME_S;
    let containers = if count == 1 { "1 container".to_owned() } else { format!("{count} containers") };
    is_more.then(|| {
        format!(
            "--containers: {containers} used {cpu_s:.1} s of CPU time, and the whole tree {total_s:.1} s. Programs there did not load the \
             shim, as static ones: their figures are missing. As root, gpu-track-run samples them."
        )
    })
}

fn in_words(why: NotTracked) -> &'static str {
    match why {
        NotTracked::Kept => "without --rm, which could be started after the run",
        NotTracked::Detached => "detached or only created, which could outlive the run",
        NotTracked::Mounts => "with mounts over /dev or of other containers",
        NotTracked::Platform => "for another platform",
        NotTracked::Runtime => "of a runtime other than runc",
        NotTracked::Unusual => "by a request that is not understood",
        NotTracked::DaemonUnknown => "of a daemon that does not say what it is",
        NotTracked::OtherMachine => "on another machine",
        NotTracked::SeLinux => "under SELinux, which lets no program there load the shim",
        NotTracked::Refused => "where the daemon refused the shim",
    }
}

/// Warns of commands on other hosts. Programs such as pdsh run them on several, so the advice has a file (%h) for each host.
pub(super) fn hosts(inputs: &Inputs, report: &Report) -> Option<String> {
    let offers_agents = matches!(
        inputs.config.report.other_nodes,
        OtherNodes::OnRequest | OtherNodes::ByAgents { offers_ssh: true, .. }
    );
    started(report, ElsewhereKind::Host, "commands on other hosts by", |programs| match programs {
        _ if offers_agents => "gpu-track-run --nodes=all tracks them there".to_owned(),
        [only] if *only != "ssh" => {
            "put gpu-track-run -o usage.%h.json before the command, so that it runs there".to_owned()
        }
        _ => "see it by ssh HOST gpu-track-run -- CMD".to_owned(),
    })
}

/// Warns of units that the service manager runs.
pub(super) fn units(_: &Inputs, report: &Report) -> Option<String> {
    let advice =
        "systemd-run --scope CMD stays in the run. The service manager runs other units, outside of it";
    started(report, ElsewhereKind::Unit, "units of", |_| advice.to_owned())
}

/// Warns of pods.
pub(super) fn pods(_: &Inputs, report: &Report) -> Option<String> {
    let advice = "put gpu-track-run before the command inside the pod";
    started(report, ElsewhereKind::Pod, "pods of", |_| advice.to_owned())
}

/// Warns of jobs of batch systems.
pub(super) fn jobs(_: &Inputs, report: &Report) -> Option<String> {
    let advice = "put gpu-track-run before the command inside the job";
    started(report, ElsewhereKind::Job, "jobs of", |_| advice.to_owned())
}

/// Warns of daemons that did work for the tree and are older than it.
pub(super) fn daemons(_: &Inputs, report: &Report) -> Option<String> {
    let advice =
        "it runs since before this run: stop it first (sccache --stop-server), then the run starts its own";
    started(report, ElsewhereKind::Daemon, "what the daemon compiled for", |_| advice.to_owned())
}

/// Makes the warning of what was started elsewhere in one way, as in "pods of kubectl" (`what` is "pods of"). `advice` gets the names
/// of the programs that started it, each once, and says how to see it. `None`: nothing was started in this way.
fn started(
    report: &Report,
    kind: ElsewhereKind,
    what: &str,
    advice: impl FnOnce(&[&str]) -> String,
) -> Option<String> {
    let entries: Vec<_> = report
        .coverage
        .elsewhere
        .iter()
        .filter(|entry| entry.kind == kind && entry.followed < entry.count)
        .collect();
    if entries.is_empty() {
        return None;
    }
    // The entries of a kind are sorted by program, so equal ones stand together.
    let mut programs: Vec<_> = entries.iter().map(|entry| entry.program.as_str()).collect();
    programs.dedup();
    let mut names: Vec<_> = entries.iter().filter_map(|entry| entry.target.as_deref()).collect();
    names.dedup();
    let are_tracked = entries.iter().all(|entry| entry.is_tracked);
    let advice = if are_tracked {
        "gpu-track-run there makes a report of its own".to_owned()
    } else {
        advice(&programs)
    };
    let (programs, names) = (programs.join(", "), named(names.into_iter()));
    Some(format!("Not in this report: {what} {programs}{names}; {advice}."))
}

/// Shortens a name that is too long to its end, which tells most of a container image or a host.
fn shortened(name: &str) -> Cow<'_, str> {
    let more = name.chars().count().saturating_sub(MOST_CHARACTERS);
    if more == 0 {
        return Cow::Borrowed(name);
    }
    Cow::Owned(format!("...{}", name.chars().skip(more + 3).collect::<String>()))
}

/// Writes the first names, as many as fit, in parentheses: ` (n1, n2, ...)`. Empty if there are none.
fn named<'a>(all: impl Iterator<Item = &'a str>) -> String {
    let mut names = String::new();
    for (at, name) in all.enumerate() {
        let is_first = at == 0;
        let name = &*shortened(name);
        if at >= MOST_NAMED || (!is_first && names.chars().count() + name.chars().count() > MOST_CHARACTERS) {
            names.push_str(", ...");
            break;
        }
        names = if is_first { name.to_owned() } else { format!("{names}, {name}") };
    }
    if names.is_empty() { names } else { format!(" ({names})") }
}
