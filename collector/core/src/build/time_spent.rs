//! Where the wall time went, in shares and in one sentence.

use crate::model::report::{
    CommandShare, CommandTime, Report, StateTime, ThreadTime, TimeSpent, TimeState, Verdict, VerdictKind,
};
use crate::run::time_spent::{self as sums, ByState, CommandSums};

/// Values of the rules.
struct Policy;

impl Policy {
    /// A state with less of the time is no verdict.
    const LEAST_SHARE: f64 = 0.6;
    /// With fewer readings there is no verdict: they are wrong by more than a quarter in one case of twenty.
    const LEAST_READINGS: u64 = 20;
    /// A shorter run has no verdict, seconds.
    const SHORTEST_S: f64 = 1.0;
    /// The command that a verdict names decided at least this part of the state's time.
    const LEAST_OF_STATE: f64 = 0.5;
    /// Commands of the report.
    const MAX_COMMANDS: usize = 10;
    /// Commands of a state.
    const MAX_OF_STATE: usize = 5;
    /// A run that keeps no more cores busy is serial.
    const SERIAL_CORES: f64 = 1.1;
    /// What was not yet told of blocked threads at the end is as before, up to this many readings' time.
    const TAIL_READINGS: u64 = 4;
}

/// Seconds of nanoseconds.
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// Concludes where the wall time went. Of the report, wall time, contention and the usable cores are known by now.
pub(super) fn time_spent(spent: &sums::TimeSpent, report: &Report) -> TimeSpent {
    let wall_s = report.wall_s;
    let wall_ns = (wall_s * 1e9) as u64;
    if wall_ns == 0 || (spent.readings == 0 && report.cpu_time.total_s.is_none()) {
        return TimeSpent {
            reason: Some("no sample read what the threads do".into()),
            ..TimeSpent::default()
        };
    }
    let states = states(spent, report, wall_ns);
    let computing = spent.wall_ns()[TimeState::Computing as usize];
    let cores_while_computing = (computing > 0).then(|| spent.cpu_ns as f64 / computing as f64);
    let mut time_spent = TimeSpent {
        basis: Some(basis(spent)),
        n_samples: spent.readings,
        commands: commands(spent),
        cores_while_computing,
        states,
        verdict: None,
        reason: None,
    };
    match verdict(&time_spent, report) {
        Ok(verdict) => time_spent.verdict = Some(verdict),
        Err(reason) => time_spent.reason = Some(reason),
    }
    time_spent
}

/// How the shares are known.
fn basis(spent: &sums::TimeSpent) -> String {
    let part = match spent.known_threads.checked_mul(100).and_then(|known| known.checked_div(spent.threads)) {
        Some(percent @ ..99) => format!(" of {percent}% of the threads"),
        _ => String::new(),
    };
    format!(
        "CPU time and waits for a core by the kernel's clocks; other states by {} samples{part}",
        spent.readings
    )
}

/// Adds to `wall` what readings did not tell, so that all of the wall time is in a state: the last time in which threads were blocked is as
/// before, and the rest is unknown.
fn complete(spent: &sums::TimeSpent, wall: &mut [(usize, ByState)], wall_ns: u64) -> u64 {
    let mean_ns = spent.length_ns.checked_div(spent.readings).unwrap_or(0);
    let blocked = TimeState::Storage as usize..;
    let blocked_ns: u64 = wall.iter().flat_map(|(_, ns)| &ns[blocked.clone()]).sum();
    // A thread that was woken counts as ready, and does not run yet: on an idle core of a virtual machine for as long as the wait took.
    let tail_ns = spent.pending_ns.min(blocked_ns.max(mean_ns * Policy::TAIL_READINGS));
    if blocked_ns > 0 {
        for (_, states) in wall.iter_mut() {
            for ns in &mut states[blocked.clone()] {
                *ns += (tail_ns as f64 * *ns as f64 / blocked_ns as f64) as u64;
            }
        }
    }
    let known_ns: u64 = wall.iter().flat_map(|(_, ns)| ns).sum();
    wall_ns.saturating_sub(known_ns)
}

/// The states that took time.
fn states(spent: &sums::TimeSpent, report: &Report, wall_ns: u64) -> Vec<StateTime> {
    let mut wall: Vec<(usize, ByState)> =
        spent.commands.iter().map(|command| command.wall_ns).enumerate().collect();
    let unknown_ns = complete(spent, &mut wall, wall_ns);
    let all_ns = wall.iter().flat_map(|(_, ns)| ns).sum::<u64>() + unknown_ns;
    let share = |ns: u64| ns as f64 / all_ns as f64;
    let mut states = Vec::new();
    for state in TimeState::ALL {
        let of = |(_, ns): &(usize, ByState)| ns[state as usize];
        let rest_ns = if state == TimeState::Unknown { unknown_ns } else { 0 };
        let ns = wall.iter().map(of).sum::<u64>() + rest_ns;
        if ns == 0 {
            continue;
        }
        let mut by_command: Vec<CommandShare> = wall
            .iter()
            .filter(|entry| of(entry) > 0)
            .map(|entry| CommandShare {
                command: spent.commands[entry.0].command.to_string(),
                share: share(of(entry)),
            })
            .collect();
        by_command.sort_by(|a, b| b.share.total_cmp(&a.share));
        by_command.truncate(Policy::MAX_OF_STATE);
        states.push(StateTime { state, share: share(ns), s: share(ns) * report.wall_s, by_command });
    }
    states
}

/// What the threads of the commands did.
fn commands(spent: &sums::TimeSpent) -> Vec<CommandTime> {
    let mut all: Vec<&CommandSums> =
        spent.commands.iter().filter(|sums| sums.thread_ns.iter().any(|ns| *ns > 0)).collect();
    all.sort_by_key(|sums| std::cmp::Reverse(sums.wall_ns.iter().sum::<u64>()));
    let thread_time = |(state, ns): (TimeState, u64)| (ns > 0).then(|| ThreadTime { state, s: seconds(ns) });
    let time = |sums: &CommandSums| CommandTime {
        command: sums.command.to_string(),
        states: TimeState::ALL.into_iter().zip(sums.thread_ns).filter_map(thread_time).collect(),
        waiting_for_others_s: seconds(sums.passive_ns),
    };
    all.into_iter().take(Policy::MAX_COMMANDS).map(time).collect()
}

/// What took most of the time, or why there is no such thing.
fn verdict(spent: &TimeSpent, report: &Report) -> Result<Verdict, String> {
    if report.wall_s < Policy::SHORTEST_S {
        return Err(format!("the run took less than {} s", Policy::SHORTEST_S));
    }
    if spent.n_samples < Policy::LEAST_READINGS {
        return Err(format!("fewer than {} samples", Policy::LEAST_READINGS));
    }
    let most = spent.states.iter().max_by(|a, b| a.share.total_cmp(&b.share));
    let most =
        most.filter(|most| most.share >= Policy::LEAST_SHARE).ok_or("no state took most of the time")?;
    let kind = kind(most.state, spent, report).ok_or("what most of the time was spent on is unknown")?;
    let leader = most
        .by_command
        .first()
        .filter(|first| !first.command.is_empty() && first.share >= most.share * Policy::LEAST_OF_STATE);
    let command = leader.map(|leader| leader.command.clone());
    let text = sentence(kind, most, command.as_deref(), spent, report);
    Ok(Verdict { kind, share: most.share, command, text, next_step: None })
}

/// The kind of verdict of a state that took most of the time. `None`: the state is not known.
fn kind(state: TimeState, spent: &TimeSpent, report: &Report) -> Option<VerdictKind> {
    let is_serial = report.usable.cores.count >= 2.0
        && spent.cores_while_computing.is_some_and(|cores| cores <= Policy::SERIAL_CORES);
    Some(match state {
        TimeState::Computing if is_serial => VerdictKind::Serial,
        TimeState::Computing => VerdictKind::Computing,
        TimeState::Unknown => return None,
        other => VerdictKind::ALL.into_iter().find(|kind| kind.name() == other.name())?,
    })
}

/// The sentence of a verdict.
fn sentence(
    kind: VerdictKind,
    most: &StateTime,
    command: Option<&str>,
    spent: &TimeSpent,
    report: &Report,
) -> String {
    let percent = format!("{:.0}% of the time", most.share * 100.0);
    let who = command.unwrap_or("the run");
    let cores = report.usable.cores.count;
    let used = spent.cores_while_computing.unwrap_or(0.0);
    match kind {
        VerdictKind::Serial => format!("{who} computed {percent}, on 1 of {cores:.0} cores"),
        VerdictKind::Computing => format!("{who} computed {percent}, on {used:.1} of {cores:.0} cores"),
        VerdictKind::GpuStarved => format!("{who} computed {percent} while a GPU was idle"),
        VerdictKind::WaitingForCore => format!("{who} waited for a core {percent}"),
        VerdictKind::Storage => format!("{who} waited for storage {percent}"),
        VerdictKind::Swap => format!("{who} waited for memory {percent}: it was swapped out or reclaimed"),
        VerdictKind::Network => format!("{who} waited for the network {percent}"),
        VerdictKind::Gpu => format!("{who} waited for the GPU {percent}"),
        VerdictKind::FileLock => format!("{who} waited for a lock on a file {percent}"),
        VerdictKind::Lock => format!("{who} waited for a lock {percent}"),
        VerdictKind::Pipe => format!("{who} waited for a pipe from outside {percent}"),
        VerdictKind::Terminal => format!("{who} waited for the terminal {percent}"),
        VerdictKind::Events => format!("{who} waited for events (poll, select, epoll) {percent}"),
        VerdictKind::Sleeping => format!("{who} slept {percent}"),
        VerdictKind::Stopped => format!("{who} was stopped {percent}"),
    }
}
