//! What a collector does itself when the launcher is gone: it ends the tree at a limit. Nobody else can.

use std::path::Path;
use std::process::Child;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::model::observation::Observation;
use crate::model::order::{Action, Order, OrderResult};
use crate::model::run_limit::TreeEnd;
use crate::run::RunState;
use crate::store::replay_journal::JournaledRun;
use crate::sys::proc_fs::ProcRoot;
use crate::tree_end::{Member, TreeToEnd, of_exit_code};

/// The start of a process, as records and /proc tell it, differs by less than this. No pid comes again within that time.
const START_SLACK_NS: u64 = 2_000_000_000;

/// Ends the tree, as often as an ender is killed.
#[derive(Debug, Default)]
pub(super) struct OwnEnder {
    /// What is to be ended, and when SIGKILL is due.
    tree: Option<(TreeToEnd, Instant)>,
    at_work: Option<JoinHandle<Option<TreeEnd>>>,
}

impl OwnEnder {
    /// Obeys those of the orders that need no launcher, and answers them.
    pub(super) fn obey(
        &mut self,
        orders: Vec<Order>,
        segment: &Path,
        kill_after: Duration,
        tick_us: u64,
        run: &mut JournaledRun,
    ) {
        for order in orders {
            if !matches!(order.action, Action::EndTree { .. }) || self.tree.is_some() {
                continue;
            }
            let known = living(run, tick_us);
            let tree = TreeToEnd { segment: segment.to_owned(), kill_after, known, ..TreeToEnd::default() };
            // If there can be no process now, the order comes again.
            if self.start(&tree) {
                self.tree = Some((tree, Instant::now() + kill_after));
                let (result, excess) = (OrderResult::Done, order.action.excess());
                run.apply_now(Observation::OrderAnswered { id: order.id, result, excess });
            }
        }
    }

    /// Whether the tree is being ended. Tells the run what came of it when that is over. If the ender was killed, another one goes on.
    pub(super) fn is_at_work(&mut self, run: &mut JournaledRun) -> bool {
        let Some((tree, deadline)) = &self.tree else { return false };
        if self.at_work.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return true;
        }
        if let Some(Ok(Some(end))) = self.at_work.take().map(JoinHandle::join) {
            self.tree = None;
            run.apply_now(Observation::TreeEnded(end));
            return false;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let tree = TreeToEnd { is_told: true, kill_after: left, ..tree.clone() };
        self.start(&tree);
        true
    }

    /// Starts an ender, and waits for it in a thread. Gives whether it could.
    fn start(&mut self, tree: &TreeToEnd) -> bool {
        self.at_work = tree.start().ok().and_then(wait_for);
        self.at_work.is_some()
    }
}

fn wait_for(mut ender: Child) -> Option<JoinHandle<Option<TreeEnd>>> {
    let wait = move || of_exit_code(ender.wait().ok()?.code());
    thread::Builder::new().spawn(wait).ok()
}

/// Gives the processes of the run that live now. One that has the pid of a process by now, but another start, is not of the run.
fn living(run: &RunState, tick_us: u64) -> Vec<Member> {
    let root = ProcRoot::default();
    let member = |id| {
        let process = run.tree.get(id)?;
        let pid = process.ids.host_pid?;
        let stat = root.stat(pid)?;
        let start_ns = process.lifetime.likely_start_ns();
        let is_same = stat.start_ns(tick_us).abs_diff(start_ns) < START_SLACK_NS;
        is_same.then_some(Member { pid, start_ticks: stat.start_ticks })
    };
    run.tree.alive().iter().copied().filter_map(member).collect()
}
