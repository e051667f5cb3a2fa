//! A verdict in one sentence, and what to change where that is certain.

use crate::model::report::{
    CommandShare, OTHER_COMMANDS, Report, SpecialVerdict, StateTime, TimeSpent, TimeState, Verdict,
    VerdictKind,
};
use crate::model::waited_for::WaitedFor;
use crate::run::time_spent::{self as sums, Found};

/// A command that waited for pipes for this part of the wall time waited for the one that computed.
const LEAST_WAIT: f64 = 0.5;
/// Maximum number of commands that are named as waiting.
const MAX_WAITING: usize = 3;
/// A command that computed for a smaller part of the time is not named beside others.
const LEAST_PART: f64 = 0.1;
/// Another state is named beside the one that took most of the time, from this part of the time on.
const LEAST_BESIDE: f64 = 0.15;
/// A file or lock that was found this many times is named, if it was found at most of the looks.
const LEAST_FOUND: u64 = 2;

/// What a verdict is made of.
pub(super) struct Said<'a> {
    pub kind: VerdictKind,
    /// The state that took most of the time.
    pub most: &'a StateTime,
    /// The command that decided most of it. `None`: no single one did.
    pub command: Option<&'a str>,
    /// For this part of the time a GPU was busy, which is what the run waits for.
    pub busy_gpu: Option<f64>,
    pub time_spent: &'a TimeSpent,
    pub spent: &'a sums::TimeSpent,
    pub report: &'a Report,
}

impl Said<'_> {
    /// The verdict in one sentence.
    pub(super) fn sentence(&self) -> String {
        self.what_took_most() + &self.beside()
    }

    fn what_took_most(&self) -> String {
        if let Some(busy) = self.busy_gpu {
            return format!("the GPU was busy {}", percent(busy));
        }
        let command = self.named().unwrap_or("the run");
        let how_long = percent(self.share());
        let waited = |for_what: &str| format!("{command} waited for {for_what} {how_long}");
        let state = match self.kind {
            VerdictKind::State(state) => state,
            VerdictKind::Special(SpecialVerdict::Serial) => return self.computed(command, &how_long),
            VerdictKind::Special(SpecialVerdict::GpuStarved) => {
                let idle = self.time_spent.gpu.map_or(0.0, |gpu| gpu.idle_while_computing_share);
                return format!(
                    "the GPU was idle {} while {command} computed on {}",
                    percent(idle),
                    self.cores_used()
                );
            }
        };
        match state {
            TimeState::Computing => self.computed(command, &how_long),
            TimeState::WaitingForCore => waited("a core") + &self.why_no_core(),
            TimeState::Storage => waited("storage") + &self.file(),
            TimeState::Swap => waited("memory that was swapped out, or reclaimed,"),
            TimeState::Network => match self.found() {
                Some(WaitedFor::Peer(_)) => waited("the network") + &self.peer(),
                _ => waited("a socket"),
            },
            TimeState::Gpu => waited("the GPU"),
            TimeState::FileLock => waited("a lock on a file") + &self.lock(),
            TimeState::Lock => waited("a lock"),
            TimeState::Pipe => waited("a pipe from outside of the run"),
            TimeState::Terminal => waited("the terminal"),
            TimeState::Events => waited("input or replies (poll)") + &self.peer(),
            TimeState::Sleeping => format!("{command} slept {how_long}"),
            TimeState::Stopped => format!("{command} was stopped {how_long}"),
            TimeState::Unknown => format!("what {command} did {how_long} is unknown"),
        }
    }

    /// What to change, where that is certain.
    pub(super) fn next_step(&self) -> Option<String> {
        if self.busy_gpu.is_some() {
            return None;
        }
        match self.most.state {
            TimeState::WaitingForCore if self.is_held_by_quota() => {
                Some("a larger CPU quota makes it faster".into())
            }
            TimeState::Storage => match self.found() {
                Some(WaitedFor::File { is_synced: true, .. }) => {
                    Some("fewer, larger writes wait less".into())
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// The command that is named: the one that decided most of it, if that alone is a verdict. `None`: the sentence is about the run.
    pub(super) fn named(&self) -> Option<&str> {
        self.command.filter(|command| self.share_of(command) >= Verdict::LEAST_SHARE)
    }

    /// The part of the time in which the command that is named was in the state, or the run if none is.
    pub(super) fn share(&self) -> f64 {
        self.named().map_or(self.most.share, |command| self.share_of(command))
    }

    /// The part of the time in which a command was in the state: the time of its threads, if it had one at a time. Otherwise it is the part
    /// that it decided.
    fn share_of(&self, command: &str) -> f64 {
        /// A command that had more than one thread for less than this part of the time counts as one with a single thread.
        const LEAST_SEVERAL: f64 = 0.05;
        let decided = self.most.by_command.iter().find(|part| part.command == command);
        let decided = decided.map_or(0.0, |part| part.share);
        let length_ns = self.spent.length_ns as f64;
        let is_single = |sums: &&sums::CommandSums| {
            &*sums.command == command && (sums.several_ns as f64) < length_ns * LEAST_SEVERAL
        };
        let single = self.spent.commands.iter().find(is_single);
        let alone = single.map(|sums| sums.thread_ns()[self.most.state as usize] as f64 / length_ns);
        alone.unwrap_or(decided).min(self.most.share)
    }

    /// Says how much a command computed, on how many cores, and who waited for it.
    fn computed(&self, who: &str, share: &str) -> String {
        let waiting = self.waiting();
        let waiting = match waiting.as_slice() {
            [] => self.parts(),
            [one] => format!("; {one} waited for it"),
            [others @ .., last] => format!("; {} and {last} waited for it", others.join(", ")),
        };
        format!("{who} computed {share} on {}{waiting}{}", self.cores_used(), self.bound())
    }

    /// Names the state that took most of the rest of the time, if that is a large part.
    fn beside(&self) -> String {
        if self.busy_gpu.is_some() {
            return String::new();
        }
        let others = self.time_spent.states.iter().filter(|time| time.state != self.most.state);
        match others.max_by(|a, b| a.share.total_cmp(&b.share)) {
            Some(time) if time.share >= LEAST_BESIDE => {
                format!("; {} {:.0}%", time.state.label(), time.share * 100.0)
            }
            _ => String::new(),
        }
    }

    /// The parts of the commands, if the sentence is about the run.
    fn parts(&self) -> String {
        let is_large = |part: &&CommandShare| part.share >= LEAST_PART && part.command != OTHER_COMMANDS;
        let parts = self.most.by_command.iter().filter(is_large);
        let parts: Vec<String> =
            parts.map(|part| format!("{} {:.0}%", part.command, part.share * 100.0)).collect();
        if self.named().is_some() || parts.is_empty() {
            return String::new();
        }
        format!(": {}", parts.join(", "))
    }

    /// Says that the threads of a run that computed on one core of several were bound to it, if they waited for it.
    fn bound(&self) -> &'static str {
        /// Threads that waited for less than this part of the time do not count.
        const LEAST_WAIT: f64 = 0.25;
        let of_state = |state: TimeState| {
            let times = self.time_spent.commands.iter().flat_map(|time| &time.states);
            times.filter(|time| time.state == state).map(|time| time.s).sum::<f64>()
        };
        let has_waited = of_state(TimeState::WaitingForCore) >= of_state(TimeState::Computing) * LEAST_WAIT;
        let is_bound = self.kind == VerdictKind::Special(SpecialVerdict::Serial)
            && self.spent.bound_ns as f64 >= self.spent.length_ns as f64 * Verdict::LEAST_SHARE;
        if has_waited && is_bound { "; its threads are bound to that core" } else { "" }
    }

    /// How many cores computed, of those that the run may use: `1 of 16 cores`.
    fn cores_used(&self) -> String {
        let all = self.report.usable.cores.count;
        let used = match self.kind {
            VerdictKind::Special(SpecialVerdict::Serial) => 1.0,
            _ => self.time_spent.cores_while_computing.unwrap_or(1.0).min(all.max(1.0)),
        };
        let plural = if (all - 1.0).abs() < 0.005 { "" } else { "s" };
        format!("{} of {} core{plural}", tenths(used), tenths(all))
    }

    /// The commands that waited for pipes of the run most of the time, while the named one computed.
    fn waiting(&self) -> Vec<&str> {
        let least_s = self.report.wall_s * LEAST_WAIT;
        let all = self.named().map_or(&[][..], |_| self.time_spent.commands.as_slice());
        let waited = all.iter().filter(|time| time.waiting_for_pipes_s >= least_s);
        let others = waited.map(|time| time.command.as_str()).filter(|name| Some(*name) != self.named());
        others.take(MAX_WAITING).collect()
    }

    /// Why the run waited for a core, as far as that is known.
    fn why_no_core(&self) -> String {
        if self.is_held_by_quota() {
            return ": its CPU quota was used up".into();
        }
        let contention = &self.report.contention;
        match (contention.is_contended, contention.others_cores, contention.allowed_cores) {
            (Some(true), Some(others), Some(all)) => {
                format!(": other programs used {} of {all} cores", tenths(others))
            }
            _ => String::new(),
        }
    }

    /// Whether a CPU quota kept it from running for at least half of the time that it waited.
    fn is_held_by_quota(&self) -> bool {
        let throttled_s = self.report.pressure.quota.throttled_s;
        throttled_s.is_some_and(|throttled_s| throttled_s * 2.0 >= self.most.s)
    }

    /// Names the file, its file system, and whether each write was synced. Nothing if no file is known.
    fn file(&self) -> String {
        let Some(WaitedFor::File { path, file_system, is_written, is_synced }) = self.found() else {
            return String::new();
        };
        let system = file_system.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
        let how = match (is_written, is_synced) {
            (true, true) => ", each write synced",
            _ => "",
        };
        format!(": {path}{system}{how}")
    }

    /// Names the lock's file and its holder. Nothing if neither is known.
    fn lock(&self) -> String {
        let Some(WaitedFor::Lock { path, holder }) = self.found() else { return String::new() };
        let held = holder.as_ref().map(|(pid, name)| format!("held by {name} (pid {pid})"));
        match (path, held) {
            (Some(path), Some(held)) => format!(": {path}, {held}"),
            (Some(path), None) => format!(": {path}"),
            (None, Some(held)) => format!(", {held}"),
            (None, None) => String::new(),
        }
    }

    /// Names the other end of the connections, if that is one.
    fn peer(&self) -> String {
        match self.found() {
            Some(WaitedFor::Peer(address)) => format!(": connected to {address}"),
            _ => String::new(),
        }
    }

    /// What the command that is named was found to wait for.
    fn found(&self) -> Option<&WaitedFor> {
        found(self.spent, self.named()?, self.most.state)
    }
}

/// What a command was found to wait for in a state at most looks. `None`: nothing was found so often.
pub(super) fn found<'a>(
    spent: &'a sums::TimeSpent,
    command: &str,
    state: TimeState,
) -> Option<&'a WaitedFor> {
    let looks = spent.commands.iter().find(|sums| &*sums.command == command)?.looks;
    let of_command = |found: &&Found| &*found.command == command && found.state == state;
    let most = spent.found.iter().filter(of_command).max_by_key(|found| found.times)?;
    (most.times >= LEAST_FOUND && most.times * 2 > looks).then_some(&most.what)
}

/// `41% of the time`.
fn percent(share: f64) -> String {
    format!("{:.0}% of the time", share * 100.0)
}

/// A number with a decimal if it is not whole.
fn tenths(number: f64) -> String {
    let rounded = (number * 10.0).round() / 10.0;
    if rounded.fract() == 0.0 { format!("{rounded:.0}") } else { format!("{rounded:.1}") }
}
