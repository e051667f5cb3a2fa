//! Where the time of several reports went: sums over their seconds, or the node that differs most where no state took most of it.

use std::collections::BTreeMap;

use crate::model::report::{
    CommandShare, CommandTime, GpuTime, Report, StateTime, ThreadTime, TimeSpent, TimeState, Verdict,
    VerdictKind,
};
use crate::model::sorting::Sorting;

/// A node differs from the others if a state has this much more of its time than of theirs.
const LEAST_DIFFERENCE: f64 = 0.25;
/// Commands whose sums are kept, and those of each state and of all in the merged report.
const MOST_KEPT: usize = 1000;
const MAX_OF_STATE: usize = 5;
const MAX_COMMANDS: usize = 10;

/// Number of states.
const STATES: usize = TimeState::ALL.len();
/// Time in each state, nanoseconds.
type ByState = [u128; STATES];

/// What the reports tell of a command, added up. The wall time that it decided and the time of its threads are by state. The other
/// times are those in which it waited for children, and for pipes of the run.
#[derive(Debug, Default)]
struct CommandSums {
    wall_ns: ByState,
    thread_ns: ByState,
    children_ns: u128,
    pipes_ns: u128,
}

/// Where the time of the reports so far went.
#[derive(Debug, Default)]
pub(super) struct TimeSums {
    /// Reports that tell where their time went.
    known: u64,
    /// Reports that do not.
    unknown: u64,
    samples: u64,
    wall_ns: ByState,
    commands: BTreeMap<String, CommandSums>,
    /// CPU time while they computed.
    cpu_ns: u128,
    /// Of the GPUs: held, busy, idle while the CPU computed.
    gpu_ns: [u128; 3],
    /// The sums of each node.
    by_node: BTreeMap<String, ByState>,
}

/// Nanoseconds of seconds that a report has; 0 if they are no time.
fn ns(s: f64) -> u128 {
    // A cast saturates.
    u128::from((s * 1e9) as u64)
}

fn seconds(ns: u128) -> f64 {
    ns as f64 / 1e9
}

impl TimeSums {
    /// Adds a report of this node.
    pub(super) fn add(&mut self, node: &str, report: &Report) {
        let Some(spent) = report.time_spent.as_ref().filter(|spent| !spent.states.is_empty()) else {
            self.unknown += 1;
            return;
        };
        self.known += 1;
        self.samples = self.samples.saturating_add(spent.n_samples);
        for StateTime { state, s, share: state_share, by_command } in &spent.states {
            let state_index = *state as usize;
            self.wall_ns[state_index] += ns(*s);
            if self.by_node.len() < MOST_KEPT || self.by_node.contains_key(node) {
                self.by_node.entry(node.to_owned()).or_default()[state_index] += ns(*s);
            }
            for CommandShare { command, share } in by_command {
                if let Some(sums) = self.command(command) {
                    // Both shares are parts of the wall time, so their quotient is the command's part of this state.
                    sums.wall_ns[state_index] += ns(s * share / state_share);
                }
            }
            if let (TimeState::Computing, Some(cores)) = (state, spent.cores_while_computing) {
                self.cpu_ns += ns(s * cores);
            }
        }
        for time in &spent.commands {
            let Some(sums) = self.command(&time.command) else { continue };
            time.states.iter().for_each(|state| sums.thread_ns[state.state as usize] += ns(state.s));
            sums.children_ns += ns(time.waiting_for_children_s);
            sums.pipes_ns += ns(time.waiting_for_pipes_s);
        }
        if let Some(gpu) = spent.gpu {
            let parts = [1.0, gpu.busy_share, gpu.idle_while_computing_share];
            self.gpu_ns.iter_mut().zip(parts).for_each(|(sum, part)| *sum += ns(gpu.s * part));
        }
    }

    /// The sums of a command. `None`: there are too many.
    fn command(&mut self, command: &str) -> Option<&mut CommandSums> {
        if self.commands.len() >= MOST_KEPT && !self.commands.contains_key(command) {
            return None;
        }
        Some(self.commands.entry(command.to_owned()).or_default())
    }

    /// Where the time of all reports went. `None`: no report tells.
    pub(super) fn time_spent(&self) -> Option<TimeSpent> {
        let all_ns: u128 = self.wall_ns.iter().sum();
        if all_ns == 0 {
            return None;
        }
        let states: Vec<StateTime> =
            TimeState::ALL.into_iter().filter_map(|state| self.state(state, all_ns)).collect();
        let computing_ns = self.wall_ns[TimeState::Computing as usize];
        let verdict = self.verdict(&states);
        let reason = match &verdict {
            Some(_) => self.unknown_reports(),
            None => self.most_different().or_else(|| self.unknown_reports()),
        };
        Some(TimeSpent {
            basis: Some(format!("seconds of {} reports", self.known)),
            n_samples: self.samples,
            cores_while_computing: (computing_ns > 0).then(|| self.cpu_ns as f64 / computing_ns as f64),
            gpu: self.gpu(),
            commands: self.commands(),
            states,
            verdict,
            reason,
        })
    }

    fn unknown_reports(&self) -> Option<String> {
        let all = self.known + self.unknown;
        (self.unknown > 0).then(|| format!("unknown in {} of {all} reports", self.unknown))
    }

    /// The entry of a state. `None`: no report spent time in it.
    fn state(&self, state: TimeState, all_ns: u128) -> Option<StateTime> {
        let ns = self.wall_ns[state as usize];
        let share = |ns: u128| ns as f64 / all_ns as f64;
        let of_state = self.commands.iter().map(|(command, sums)| (command, sums.wall_ns[state as usize]));
        let mut by_command: Vec<CommandShare> = of_state
            .filter(|(_, ns)| *ns > 0)
            .map(|(command, ns)| CommandShare { command: command.clone(), share: share(ns) })
            .collect();
        by_command.order_by(|a, b| b.share.total_cmp(&a.share).then_with(|| a.command.cmp(&b.command)));
        by_command.truncate(MAX_OF_STATE);
        (ns > 0).then(|| StateTime { state, share: share(ns), s: seconds(ns), by_command })
    }

    /// The GPUs of all reports. `None`: none held memory of one.
    fn gpu(&self) -> Option<GpuTime> {
        let [held_ns, busy_ns, computing_ns] = self.gpu_ns;
        let share = |ns: u128| ns as f64 / held_ns as f64;
        let waiting_ns = held_ns.saturating_sub(busy_ns).saturating_sub(computing_ns);
        (held_ns > 0).then(|| GpuTime {
            s: seconds(held_ns),
            busy_share: share(busy_ns),
            idle_while_computing_share: share(computing_ns),
            idle_while_waiting_share: share(waiting_ns),
        })
    }

    /// What the threads of the commands did. Commands that decided most of the wall time come first.
    fn commands(&self) -> Vec<CommandTime> {
        let has_threads = |sums: &CommandSums| sums.thread_ns.iter().any(|ns| *ns > 0);
        let mut all: Vec<(&String, &CommandSums)> =
            self.commands.iter().filter(|(_, sums)| has_threads(sums)).collect();
        all.order_by_key(|(_, sums)| std::cmp::Reverse(sums.wall_ns.iter().sum::<u128>()));
        let time = |(command, sums): (&String, &CommandSums)| CommandTime {
            command: command.clone(),
            states: TimeState::ALL
                .into_iter()
                .zip(sums.thread_ns)
                .filter(|(_, ns)| *ns > 0)
                .map(|(state, ns)| ThreadTime { state, s: seconds(ns) })
                .collect(),
            waiting_for_children_s: seconds(sums.children_ns),
            waiting_for_pipes_s: seconds(sums.pipes_ns),
        };
        all.into_iter().take(MAX_COMMANDS).map(time).collect()
    }

    /// What took most of the time of all nodes. `None`: no state that is known did.
    fn verdict(&self, states: &[StateTime]) -> Option<Verdict> {
        let most = states.iter().max_by(|a, b| a.share.total_cmp(&b.share))?;
        let kind = VerdictKind::of_state(most.state).filter(|_| most.share >= Verdict::LEAST_SHARE)?;
        let command = most.leader().map(str::to_owned);
        let who = command.as_deref().unwrap_or("the run");
        let nodes = self.by_node.len();
        let of_nodes = if nodes == 1 { String::new() } else { format!(" of {nodes} nodes") };
        let text = format!("{who}: {} {:.0}% of the time{of_nodes}", most.state.label(), most.share * 100.0);
        Some(Verdict { kind, share: most.share, command, text, next_step: None })
    }

    /// Names the node whose time differs most from that of the others, and in what. `None`: all are alike.
    fn most_different(&self) -> Option<String> {
        let mut all = ByState::default();
        self.by_node.values().for_each(|times| (0..STATES).for_each(|state| all[state] += times[state]));
        let all_ns: u128 = all.iter().sum();
        let difference = |times: &ByState, state: TimeState| {
            let own_ns: u128 = times.iter().sum();
            let ns = times[state as usize];
            let others_ns = (all_ns - own_ns).max(1);
            (ns as f64 / own_ns.max(1) as f64, (all[state as usize] - ns) as f64 / others_ns as f64)
        };
        let each = self.by_node.iter().flat_map(|(node, times)| {
            TimeState::ALL.into_iter().map(move |state| (node, state, difference(times, state)))
        });
        let (node, state, (share, others)) =
            each.max_by(|(.., a), (.., b)| (a.0 - a.1).total_cmp(&(b.0 - b.1)))?;
        (self.by_node.len() > 1 && share - others >= LEAST_DIFFERENCE).then(|| {
            format!(
                "nothing took 60% of the time; {node} differs most: {} {:.0}%, the others {:.0}%",
                state.label(),
                share * 100.0,
                others * 100.0
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use gpu_track_core::fixtures::full;

    use super::*;

    /// A report of ten seconds, so much of it in these states.
    fn report(states: &[(TimeState, f64)]) -> Report {
        let mut report = full();
        report.wall_s = 10.0;
        let spent = report.time_spent.as_mut().unwrap();
        let of = |(state, share): &(TimeState, f64)| StateTime {
            state: *state,
            share: *share,
            s: share * 10.0,
            by_command: vec![CommandShare { command: "solve".into(), share: *share }],
        };
        spent.states = states.iter().map(of).collect();
        spent.cores_while_computing = Some(4.0);
        report
    }

    // Requirement: SLOW-6
    #[test]
    fn shares_are_of_the_seconds_of_all_nodes_and_the_verdict_of_most_of_them() {
        let mut sums = TimeSums::default();
        sums.add("a", &report(&[(TimeState::Computing, 0.9), (TimeState::Network, 0.1)]));
        sums.add("b", &report(&[(TimeState::Computing, 0.5), (TimeState::Network, 0.5)]));
        let spent = sums.time_spent().unwrap();
        let shares: Vec<(TimeState, f64)> =
            spent.states.iter().map(|time| (time.state, time.share)).collect();
        assert_eq!(shares, [(TimeState::Computing, 0.7), (TimeState::Network, 0.3)]);
        assert_eq!((spent.states[0].s, spent.cores_while_computing), (14.0, Some(4.0)));
        let verdict = spent.verdict.unwrap();
        assert_eq!(
            (verdict.kind, verdict.command.as_deref()),
            (VerdictKind::State(TimeState::Computing), Some("solve"))
        );
        assert_eq!(verdict.text, "solve: computing 70% of the time of 2 nodes");
    }

    // Requirement: SLOW-6
    #[test]
    fn node_that_differs_most_is_named_where_nothing_took_most_of_the_time() {
        let mut sums = TimeSums::default();
        let half = [(TimeState::Computing, 0.5), (TimeState::Network, 0.5)];
        sums.add("a", &report(&half));
        sums.add("b", &report(&[(TimeState::Computing, 0.2), (TimeState::Storage, 0.8)]));
        sums.add("c", &report(&half));
        let spent = sums.time_spent().unwrap();
        assert_eq!(spent.verdict, None);
        assert_eq!(
            spent.reason.as_deref(),
            Some("nothing took 60% of the time; b differs most: storage 80%, the others 0%")
        );
    }

    #[test]
    fn reports_that_do_not_tell_are_counted() {
        let mut sums = TimeSums::default();
        assert_eq!(sums.time_spent(), None);
        sums.add("a", &report(&[(TimeState::Computing, 1.0)]));
        sums.add("b", &Report { time_spent: None, ..full() });
        assert_eq!(sums.time_spent().unwrap().reason.as_deref(), Some("unknown in 1 of 2 reports"));
    }
}
