//! Where the wall time went, in shares and in one sentence.

mod words;

use std::ops::RangeInclusive;

use crate::model::report::{
    CommandShare, CommandTime, GpuTime, OTHER_COMMANDS, Report, SpecialVerdict, StateTime, ThreadTime,
    TimeSpent, TimeState, Verdict, VerdictKind,
};
use crate::model::sorting::Sorting;
use crate::model::waited_for::WaitedFor;
use crate::run::time_spent::{self as sums, ByState, CommandSums};

/// Values of the rules.
struct Policy;

impl Policy {
    /// With fewer readings there is no verdict: one in twenty would be wrong by more than a fifth of the time.
    const LEAST_READINGS: u64 = 20;
    /// If readings came to fewer of the threads, there is no verdict.
    const LEAST_THREADS: f64 = 0.8;
    /// A shorter run has no verdict, seconds.
    const SHORTEST_S: f64 = 1.0;
    /// Commands of the report.
    const MAX_COMMANDS: usize = 10;
    /// Commands of a state.
    const MAX_OF_STATE: usize = 5;
    /// A run that keeps no more cores busy is serial.
    const SERIAL_CORES: f64 = 1.1;
    /// A GPU that is busy for this part of the time is what the run waits for, even if the CPU computes meanwhile: a loader that works ahead.
    const BUSY_GPU: f64 = 0.8;
    /// A thread that was woken looks ready until it runs. That can take this many times as long as the wait itself: to wake an idle core of
    /// a virtual machine took longer than a write to its disk (Linux 6.18).
    const MOST_WAKING: u64 = 3;
    /// What was not yet told of blocked threads at the end is as before, up to this many readings' time.
    const TAIL_READINGS: u64 = 4;
}

/// The states of a thread that is ready to run.
const READY: RangeInclusive<usize> = TimeState::WaitingForCore as usize..=TimeState::WaitingForCore as usize;
/// Those of a blocked thread.
const BLOCKED: RangeInclusive<usize> = TimeState::Storage as usize..=TimeState::Unknown as usize;

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// Concludes where the wall time went. Of the report, all but hints and warnings is known by now.
pub(super) fn time_spent(spent: &sums::TimeSpent, report: &Report) -> TimeSpent {
    let wall_ns = (report.wall_s * 1e9) as u64;
    if wall_ns == 0 || (spent.readings == 0 && report.cpu_time.total_s.is_none()) {
        let reason = Some("no sample read what the threads do".into());
        return TimeSpent { reason, ..TimeSpent::default() };
    }
    let mut time_spent = TimeSpent {
        basis: Some(basis(spent)),
        n_samples: spent.readings,
        commands: commands(spent),
        cores_while_computing: (spent.computing_ns > 0)
            .then(|| spent.cpu_ns as f64 / spent.computing_ns as f64),
        gpu: gpu(spent.gpu),
        states: states(spent, report.wall_s, wall_ns),
        verdict: None,
        reason: None,
    };
    match verdict(&time_spent, spent, report) {
        Ok(verdict) => time_spent.verdict = Some(verdict),
        Err(reason) => time_spent.reason = Some(reason.into()),
    }
    time_spent
}

/// Says how the shares are known.
fn basis(spent: &sums::TimeSpent) -> String {
    let part = match spent.known_threads.checked_mul(100).and_then(|known| known.checked_div(spent.threads)) {
        Some(percent @ ..99) => format!(" of {percent}% of the threads"),
        _ => String::new(),
    };
    format!("by the kernel's clocks; blocked states by {} samples{part}", spent.readings)
}

/// How the run used the time of its GPUs. `None`: it held no GPU memory, or no GPU told how busy it was.
fn gpu(gpu: sums::GpuSums) -> Option<GpuTime> {
    let share = |ns: u64| ns as f64 / gpu.held_ns as f64;
    let idle_ns = gpu.held_ns.saturating_sub(gpu.busy_ns);
    (gpu.held_ns > 0).then(|| GpuTime {
        s: seconds(gpu.held_ns),
        busy_share: share(gpu.busy_ns),
        idle_while_computing_share: share(gpu.idle_while_computing_ns),
        idle_while_waiting_share: share(idle_ns.saturating_sub(gpu.idle_while_computing_ns)),
    })
}

/// The wall time of each command, with the time in which threads were blocked and of which no reading told the state. Most of that counts
/// as readings told: a thread that was woken looks ready until it runs. It is at most [`Policy::MOST_WAKING`] times what they told, or some
/// readings' length. For the rest, threads that looked ready waited for a core, if they are known to have waited that long. What is left is
/// not in the result: [`states`] calls it unknown.
fn wall_with_pending(spent: &sums::TimeSpent) -> Vec<ByState> {
    let mut wall: Vec<ByState> = spent.commands.iter().map(|command| command.wall_ns).collect();
    let mean_ns = spent.length_ns.checked_div(spent.readings).unwrap_or(0);
    let told_ns = sum_of(&wall, BLOCKED);
    let most_as_told_ns = (told_ns * Policy::MOST_WAKING).max(mean_ns * Policy::TAIL_READINGS);
    let as_told_ns = if told_ns > 0 { spent.pending_ns.min(most_as_told_ns) } else { 0 };
    let rest_ns = spent.pending_ns - as_told_ns;
    add_in_proportion(&mut wall, BLOCKED, as_told_ns);
    if rest_ns <= sum_of(&wall, READY) {
        add_in_proportion(&mut wall, READY, rest_ns);
    }
    wall
}

fn sum_of(wall: &[ByState], states: RangeInclusive<usize>) -> u64 {
    wall.iter().flat_map(|ns| &ns[states.clone()]).sum()
}

/// Adds time to some states of all commands, in proportion to what they have. Adds nothing if they have nothing.
fn add_in_proportion(wall: &mut [ByState], states: RangeInclusive<usize>, added_ns: u64) {
    let part = added_ns as f64 / sum_of(wall, states.clone()).max(1) as f64;
    for ns in wall.iter_mut().flat_map(|ns| &mut ns[states.clone()]) {
        *ns += (*ns as f64 * part) as u64;
    }
}

/// The states that took time. What no sample covered is unknown.
fn states(spent: &sums::TimeSpent, wall_s: f64, wall_ns: u64) -> Vec<StateTime> {
    let wall = wall_with_pending(spent);
    let uncovered_ns = wall_ns.saturating_sub(sum_of(&wall, 0..=TimeState::Unknown as usize));
    let all_ns = sum_of(&wall, 0..=TimeState::Unknown as usize) + uncovered_ns;
    let share = |ns: u64| ns as f64 / all_ns as f64;
    let time = |state: TimeState| {
        let index = state as usize;
        let uncovered_ns = if state == TimeState::Unknown { uncovered_ns } else { 0 };
        let ns = sum_of(&wall, index..=index) + uncovered_ns;
        let commands = spent.commands.iter().zip(&wall).filter(|(_, ns)| ns[index] > 0);
        let mut by_command: Vec<CommandShare> = commands
            .map(|(sums, ns)| CommandShare { command: name(sums), share: share(ns[index]) })
            .collect();
        by_command.order_by(|a, b| b.share.total_cmp(&a.share).then_with(|| a.command.cmp(&b.command)));
        by_command.truncate(Policy::MAX_OF_STATE);
        (ns > 0).then(|| StateTime { state, share: share(ns), s: share(ns) * wall_s, by_command })
    };
    TimeState::ALL.into_iter().filter_map(time).collect()
}

/// The name of a command, or of the sums that are of no single one.
fn name(sums: &CommandSums) -> String {
    if sums.command.is_empty() { OTHER_COMMANDS.into() } else { sums.command.to_string() }
}

/// What the threads of the commands did.
fn commands(spent: &sums::TimeSpent) -> Vec<CommandTime> {
    let mut all: Vec<&CommandSums> =
        spent.commands.iter().filter(|sums| sums.thread_ns.iter().any(|ns| *ns > 0)).collect();
    all.order_by_key(|sums| std::cmp::Reverse(sums.wall_ns.iter().sum::<u64>()));
    let thread_time = |(state, ns): (TimeState, u64)| (ns > 0).then(|| ThreadTime { state, s: seconds(ns) });
    let time = |sums: &CommandSums| CommandTime {
        command: name(sums),
        states: TimeState::ALL.into_iter().zip(sums.thread_ns()).filter_map(thread_time).collect(),
        waiting_for_children_s: seconds(sums.child_ns),
        waiting_for_pipes_s: seconds(sums.pipe_ns),
    };
    all.into_iter().take(Policy::MAX_COMMANDS).map(time).collect()
}

/// What took most of the time, or why there is no such thing.
fn verdict(
    time_spent: &TimeSpent,
    spent: &sums::TimeSpent,
    report: &Report,
) -> Result<Verdict, &'static str> {
    if report.wall_s < Policy::SHORTEST_S {
        return Err("the run took less than a second");
    }
    if spent.readings < Policy::LEAST_READINGS {
        return Err("there were fewer than 20 samples");
    }
    if spent.known_threads as f64 <= spent.threads as f64 * Policy::LEAST_THREADS {
        return Err("too few of the threads were read");
    }
    let nothing = "nothing took 60% of the time";
    let Some(most) = time_spent.states.iter().max_by(|a, b| a.share.total_cmp(&b.share)) else {
        return Err(nothing);
    };
    let is_most = most.share >= Verdict::LEAST_SHARE;
    // If waiting for the GPU is what took most of the time, the verdict on that state says it.
    let gpu_share = busy_gpu(time_spent, report).filter(|_| !is_most || most.state != TimeState::Gpu);
    let kind = match gpu_share {
        Some(_) => VerdictKind::State(TimeState::Gpu),
        None if !is_most => return Err(nothing),
        None => kind(most.state, time_spent, report).ok_or("most of the time is unknown")?,
    };
    // A busy GPU is not what a command did.
    let command = leader(most, spent).filter(|_| gpu_share.is_none());
    let said = words::Said { kind, most, command, busy_gpu: gpu_share, time_spent, spent, report };
    Ok(Verdict {
        kind,
        share: gpu_share.unwrap_or(said.share()),
        command: said.named().map(str::to_owned),
        text: said.sentence(),
        next_step: said.next_step(),
    })
}

/// The command that decided at least half of a state. Where several decided about as much, it is the one with a known server: rsync waits
/// for its ssh, and that for the server.
fn leader<'a>(most: &'a StateTime, spent: &sums::TimeSpent) -> Option<&'a str> {
    /// Commands with this part of a state or more decided about as much.
    const ALIKE: f64 = 0.4;
    let is_connected = |part: &&CommandShare| {
        let found = words::found(spent, &part.command, most.state);
        part.share >= most.share * ALIKE && matches!(found, Some(WaitedFor::Peer(_)))
    };
    let connected = most.by_command.iter().find(is_connected).map(|part| part.command.as_str());
    connected.or_else(|| most.leader())
}

/// The part of the run in which a GPU of it was busy, if that is what the run waits for.
fn busy_gpu(spent: &TimeSpent, report: &Report) -> Option<f64> {
    let share = spent.gpu.map(|gpu| gpu.busy_share * gpu.s / report.wall_s)?;
    (share >= Policy::BUSY_GPU).then_some(share.min(1.0))
}

/// The kind of verdict on a state that took most of the time. `None`: the state is not known.
fn kind(state: TimeState, spent: &TimeSpent, report: &Report) -> Option<VerdictKind> {
    let is_serial = report.usable.cores.count >= 2.0
        && spent.cores_while_computing.is_some_and(|cores| cores <= Policy::SERIAL_CORES);
    let is_starved = spent.gpu.is_some_and(|gpu| {
        gpu.idle_while_computing_share >= Verdict::LEAST_SHARE
            && gpu.s >= report.wall_s * Verdict::LEAST_SHARE
    });
    Some(match state {
        TimeState::Computing if is_starved => VerdictKind::Special(SpecialVerdict::GpuStarved),
        TimeState::Computing if is_serial => VerdictKind::Special(SpecialVerdict::Serial),
        other => VerdictKind::of_state(other)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const WALL_S: u64 = 100;
    const SECOND: u64 = 1_000_000_000;

    /// A run of 100 s on two cores in which these commands computed one after another.
    fn run_of(computed_s: &[(&str, u64)]) -> (sums::TimeSpent, Report) {
        let mut report = Report { wall_s: WALL_S as f64, ..crate::fixtures::full() };
        report.usable.cores.count = 2.0;
        let all_ns = computed_s.iter().map(|(_, s)| s * SECOND).sum();
        let command = |(name, s): &(&str, u64)| {
            let mut sums = CommandSums::default();
            sums.command = (*name).into();
            sums.wall_ns[TimeState::Computing as usize] = s * SECOND;
            sums.thread_ns = sums.wall_ns;
            sums
        };
        let mut spent = sums::TimeSpent::default();
        spent.commands = computed_s.iter().map(command).collect();
        (spent.readings, spent.known_threads, spent.threads) = (1000, 1000, 1000);
        (spent.computing_ns, spent.cpu_ns, spent.length_ns) = (all_ns, all_ns, WALL_S * SECOND);
        (spent, report)
    }

    fn text_of(spent: &sums::TimeSpent, report: &Report) -> String {
        time_spent(spent, report).verdict.map_or_else(String::new, |verdict| verdict.text)
    }

    // Requirement: SLOW-15
    #[test]
    fn run_is_named_with_its_commands_where_no_command_alone_took_most_of_the_time() {
        let (spent, report) = run_of(&[("align", 39), ("index", 2), ("distances", 58)]);
        let text = "the run computed 99% of the time on 1 of 2 cores: distances 58%, align 39%";
        assert_eq!(text_of(&spent, &report), text);
        let (spent, report) = run_of(&[("align", 30), ("distances", 69)]);
        assert_eq!(text_of(&spent, &report), "distances computed 69% of the time on 1 of 2 cores");
        // What took most of the rest is named, too.
        let (mut spent, report) = run_of(&[("pip", 70)]);
        let mut of_network = |s: u64| {
            spent.commands[0].wall_ns[TimeState::Network as usize] = s * SECOND;
            text_of(&spent, &report)
        };
        assert_eq!(of_network(22), "pip computed 70% of the time on 1 of 2 cores; network 22%");
        assert_eq!(of_network(17), "pip computed 70% of the time on 1 of 2 cores; network 17%");
        assert_eq!(of_network(9), "pip computed 70% of the time on 1 of 2 cores; unknown 21%");
        // Both cores worked for the compiler, for half of the time.
        let (mut spent, report) = run_of(&[("cc1", 52), ("ld", 46)]);
        spent.commands[0].thread_ns[TimeState::Computing as usize] = 104 * SECOND;
        spent.commands[0].several_ns = 52 * SECOND;
        let verdict = time_spent(&spent, &report).verdict.unwrap();
        assert!(verdict.text.ends_with(": cc1 52%, ld 46%"), "{}", verdict.text);
        assert_eq!((verdict.command, (verdict.share * 100.0).round()), (None, 98.0));
    }

    // Requirement: SLOW-15
    #[test]
    fn run_whose_threads_share_one_core_is_bound_to_it() {
        let (mut spent, report) = run_of(&[("cc1", 99)]);
        spent.commands[0].thread_ns[TimeState::WaitingForCore as usize] = 98 * SECOND;
        let computed = "cc1 computed 99% of the time on 1 of 2 cores";
        assert_eq!(text_of(&spent, &report), computed);
        spent.bound_ns = spent.length_ns;
        assert_eq!(text_of(&spent, &report), format!("{computed}; its threads are bound to that core"));
    }

    // Requirement: SLOW-5
    #[test]
    fn of_two_that_wait_for_each_other_the_one_with_a_server_is_named() {
        let (mut spent, report) = run_of(&[("rsync", 0), ("ssh", 0)]);
        for command in &mut spent.commands {
            command.wall_ns[TimeState::Events as usize] = 45 * SECOND;
            command.thread_ns[TimeState::Events as usize] = 90 * SECOND;
            command.looks = 10;
        }
        assert_eq!(text_of(&spent, &report), "rsync waited for input or replies (poll) 90% of the time");
        let what = WaitedFor::Peer("10.0.0.7:22".into());
        spent.found.push(sums::Found { command: "ssh".into(), state: TimeState::Events, what, times: 9 });
        let text = "ssh waited for input or replies (poll) 90% of the time: connected to 10.0.0.7:22";
        assert_eq!(text_of(&spent, &report), text);
    }

    // Requirement: SLOW-7
    #[test]
    fn run_that_keeps_its_gpu_busy_waits_for_it_though_its_loader_computes_meanwhile() {
        let (mut spent, report) = run_of(&[("train.py", 95)]);
        let mut with = |busy_s: u64| {
            let held_ns = 99 * SECOND;
            spent.gpu = sums::GpuSums { held_ns, busy_ns: busy_s * SECOND, ..sums::GpuSums::default() };
            let verdict = time_spent(&spent, &report).verdict.unwrap();
            assert!(verdict.command.is_none() || busy_s < 80, "{verdict:?}");
            (verdict.kind, verdict.text)
        };
        assert_eq!(
            with(93),
            (VerdictKind::State(TimeState::Gpu), "the GPU was busy 93% of the time".to_owned())
        );
        assert_eq!(with(70).0, VerdictKind::Special(SpecialVerdict::Serial));
        let (mut spent, report) = run_of(&[("train.py", 40)]);
        spent.gpu = sums::GpuSums { held_ns: 99 * SECOND, busy_ns: 93 * SECOND, ..sums::GpuSums::default() };
        assert_eq!(text_of(&spent, &report), "the GPU was busy 93% of the time");
    }
}
