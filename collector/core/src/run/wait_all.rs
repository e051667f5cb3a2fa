//! The rules of `--wait-all`: after the command's end, the launcher waits for the processes that it left. If some still run after 1 s, one
//! line tells the user which. A launcher that inherits no orphans can't see when the tree is empty, so an order tells it.

use serde::{Deserialize, Serialize};

use super::orders::Orders;
use super::tree::Tree;
use crate::model::order::{Action, Order, OrderId, OrderedBy};

/// The line comes this long after the command's end, nanoseconds: most trees end with their command, or soon after it.
const TOLD_AFTER_NS: u64 = 1_000_000_000;
/// Maximum number of processes that the line names.
const MAX_NAMED: usize = 8;
/// Maximum number of characters of a name: with [`MAX_NAMED`] and escaped, the order fits into its line.
const MAX_NAME_CHARS: usize = 40;
/// The order that shows the line, once in a run.
const LINE_ID: OrderId = OrderId { by: OrderedBy::WaitAll, epoch: 0 };
/// The order that ends the wait.
const END_WAIT_ID: OrderId = OrderId { by: OrderedBy::WaitAll, epoch: 1 };

/// Since when the launcher waits for the tree, and what it is to be told.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Waiting {
    /// The line about processes that still run is wanted.
    pub is_wanted: bool,
    /// The launcher inherits no orphans (`--no-subreaper`), so it ends its wait by an order.
    pub ends_by_order: bool,
    /// All records up to this time are applied, CLOCK_MONOTONIC nanoseconds.
    pub complete_ns: u64,
    /// CLOCK_MONOTONIC of the command's end, nanoseconds. `None`: the launcher does not wait.
    pub since_ns: Option<u64>,
}

impl Waiting {
    /// Orders the line, once, when it is due and the launcher waits for a process. A launcher that inherits no orphans is ordered to
    /// end its wait when no descendant lives any more. The records up to the command's end must be applied by then.
    pub(super) fn decide(self, now_ns: u64, tree: &Tree, orders: &mut Orders) {
        let Some(since_ns) = self.since_ns else { return };
        if self.is_wanted
            && now_ns.saturating_sub(since_ns) >= TOLD_AFTER_NS
            && !orders.knows(LINE_ID)
            && let Some(text) = line(tree)
        {
            orders.issue(Order { id: LINE_ID, action: Action::Tell(text) });
        }
        if self.ends_by_order && self.complete_ns > since_ns && tree.live_descendants().next().is_none() {
            orders.issue(Order { id: END_WAIT_ID, action: Action::EndWait });
        }
    }
}

/// The line for the user. `None`: nothing is waited for. Processes that joined the run without being descendants are left
/// out, since the launcher does not wait for them.
fn line(tree: &Tree) -> Option<String> {
    let waited: Vec<_> = tree.live_descendants().collect();
    if waited.is_empty() {
        return None;
    }
    let named = waited.iter().take(MAX_NAMED);
    let shortened = |command: &str| command.chars().take(MAX_NAME_CHARS).collect::<String>();
    let mut names: Vec<_> =
        named.map(|process| format!("{} {}", process.ids.pid(), shortened(&process.name.command))).collect();
    let left_out = waited.len().saturating_sub(names.len());
    if left_out > 0 {
        names.push(format!("and {left_out} more"));
    }
    let processes = if waited.len() == 1 { "process" } else { "processes" };
    Some(format!(
        "the command has ended; waiting for {} {processes}: {} (--wait-all). SIGINT (Ctrl-C) ends the wait.",
        waited.len(),
        names.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use gpu_track_abi::rank::Rank;
    use gpu_track_abi::record::{Event, NAME_BYTES, Origin, Usage};
    use gpu_track_abi::task::TaskKeys;

    use super::*;
    use crate::model::config::Message;
    use crate::model::observation::Observation;
    use crate::model::order::{LONGEST_LINE_BYTES, OrderResult};
    use crate::model::record_or_event::{Finding, StoredRecord};
    use crate::run::RunState;
    use crate::run::tree::RunContext;
    use crate::run::trust::Trust;
    use crate::run::usage::CpuUsage;

    const S: u64 = 1_000_000_000;
    const LAUNCHER: u32 = 100;
    const MAIN: u32 = 101;
    /// When the command ended.
    const END_NS: u64 = 60 * S;

    fn record(pid: u32, parent: u32, event: Event) -> Observation {
        let origin = Origin { pid, pid_ns: 10, parent, monotonic_ns: 51 * S, flags: 0 };
        Observation::Findings(vec![Finding::Record(StoredRecord { position: 0, origin, event })])
    }

    fn start(pid: u32, parent: u32, name: &str) -> Observation {
        let mut names = [0; NAME_BYTES];
        names[..name.len()].copy_from_slice(name.as_bytes());
        let (realtime_ns, pidfd_inode, max_rss_kib) = (51 * S, 0, 0);
        record(
            pid,
            parent,
            Event::Start {
                realtime_ns,
                pidfd_inode,
                max_rss_kib,
                names,
                rank: Rank::default(),
                task: TaskKeys::NONE,
            },
        )
    }

    fn exit(pid: u32, parent: u32) -> Observation {
        let (own, children) = (Usage::default(), Usage::default());
        record(pid, parent, Event::Exit { status: 0, vm_hwm_kib: 0, own, children })
    }

    /// A run whose user is told what it waits for.
    fn new_run() -> RunState {
        let context = RunContext::of_test(LAUNCHER, 10, 50 * S);
        let mut run = RunState::new(context, CpuUsage::new(S, 2, 50 * S), Trust::new(50 * S, 2, false), 5);
        run.waiting.is_wanted = true;
        run
    }

    /// What is seen of a command with children of these names, which has ended.
    fn observations(children: &[&str]) -> Vec<(u64, Observation)> {
        let command = "main".to_owned();
        let started = Observation::CommandStarted { pid: MAIN, start_ns: 50 * S, command };
        let mut seen = vec![(50 * S, started), (51 * S, start(MAIN, LAUNCHER, "main"))];
        seen.extend((MAIN + 1..).zip(children).map(|(pid, name)| (51 * S, start(pid, MAIN, name))));
        seen.push((END_NS, exit(MAIN, LAUNCHER)));
        seen.push((END_NS, Observation::Told(Message::WaitingForTree { since_ns: END_NS })));
        seen
    }

    /// A command with children of these names, which has ended.
    fn run_with(children: &[&str]) -> RunState {
        let mut run = new_run();
        observations(children).iter().for_each(|(at_ns, observation)| run.apply(*at_ns, observation));
        run
    }

    /// The lines that the user is to be told at this time.
    fn told(run: &mut RunState, now_ns: u64) -> Vec<String> {
        run.apply(now_ns, &Observation::Tick);
        let orders = run.take_orders(now_ns).into_iter();
        orders
            .map(|order| match order.action {
                Action::Tell(text) => text,
                other => panic!("{other:?}"),
            })
            .collect()
    }

    // Requirement: FAULT-95
    #[test]
    fn replayed_journal_decides_the_same_orders() {
        let mut seen = observations(&["sleep", "server"]);
        let later = [0, 1, 2, 3].map(|seconds| (END_NS + TOLD_AFTER_NS + seconds * S, Observation::Tick));
        seen.extend(later);
        let (mut run, mut replayed) = (new_run(), new_run());
        let mut count = 0;
        for (at_ns, observation) in &seen {
            run.apply(*at_ns, observation);
            let journaled = postcard::to_stdvec(observation).unwrap();
            replayed.apply(*at_ns, &postcard::from_bytes(&journaled).unwrap());
            let orders = run.take_orders(*at_ns);
            assert_eq!(replayed.take_orders(*at_ns), orders);
            count += orders.len();
        }
        assert!(count > 1, "an order without an answer comes again: {count}");
    }

    // Requirement: SEE-102
    #[test]
    fn user_is_told_once_what_wait_all_waits_for() {
        let mut run = run_with(&["sleep", "short", "server"]);
        // A service started this one: the launcher is not its reaper, whatever happens.
        run.apply(51 * S, &start(500, 400, "joined"));
        run.apply(END_NS, &exit(MAIN + 2, MAIN));
        assert_eq!(told(&mut run, END_NS + TOLD_AFTER_NS - 1), [""; 0]);
        assert_eq!(
            told(&mut run, END_NS + TOLD_AFTER_NS),
            [
                "the command has ended; waiting for 2 processes: 102 sleep, 104 server (--wait-all). SIGINT (Ctrl-C) ends \
              the wait."
            ]
        );
        let answer = Message::OrderAnswered { id: LINE_ID, result: OrderResult::Done, excess: None };
        run.apply(END_NS + 2 * S, &Observation::Told(answer));
        run.apply(END_NS + 2 * S, &exit(MAIN + 1, MAIN));
        assert_eq!(told(&mut run, END_NS + 100 * S), [""; 0]);
    }

    // Requirement: SEE-102
    #[test]
    fn only_a_user_who_waits_and_wants_to_know_is_told() {
        let later = END_NS + 10 * S;
        let mut nothing_left = run_with(&[]);
        assert_eq!(told(&mut nothing_left, later), [""; 0]);
        let mut quiet = run_with(&["sleep"]);
        quiet.waiting.is_wanted = false;
        assert_eq!(told(&mut quiet, later), [""; 0]);
        let mut unfinished = run_with(&["sleep"]);
        unfinished.waiting.since_ns = None;
        assert_eq!(told(&mut unfinished, later), [""; 0]);
    }

    // Requirement: SEE-28
    #[test]
    fn wait_of_a_launcher_that_inherits_no_orphans_ends_when_the_tree_is_known_to_be_empty() {
        let mut run = run_with(&["server"]);
        (run.waiting.ends_by_order, run.waiting.is_wanted) = (true, false);
        let decided = |run: &mut RunState, complete_ns: u64| {
            run.apply(END_NS + S, &Observation::Finalize { complete_ns });
            run.apply(END_NS + S, &Observation::Tick);
            run.take_orders(END_NS + S)
        };
        assert_eq!(decided(&mut run, END_NS + 1), [], "one lives");
        run.apply(END_NS + S, &exit(MAIN + 1, MAIN));
        // A record of another one that lived at the command's end could still come.
        run.waiting.complete_ns = 0;
        assert_eq!(decided(&mut run, END_NS), []);
        assert_eq!(decided(&mut run, END_NS + 1), [Order { id: END_WAIT_ID, action: Action::EndWait }]);
    }

    #[test]
    fn longest_line_fits_into_the_pipe() {
        let name = "\u{1}".repeat(NAME_BYTES);
        let mut run = run_with(&vec![name.as_str(); 1000]);
        run.apply(END_NS + 2 * S, &Observation::Tick);
        let orders = run.take_orders(END_NS + 2 * S);
        let [order] = &orders[..] else { panic!("{orders:?}") };
        let Action::Tell(text) = &order.action else { panic!("{order:?}") };
        assert!(text.contains("for 1000 processes") && text.contains(", and 992 more"), "{text}");
        assert!(serde_json::to_string(order).unwrap().len() < LONGEST_LINE_BYTES);
    }
}
