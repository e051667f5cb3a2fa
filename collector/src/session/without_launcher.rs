//! Ends the tree at a limit when the launcher is gone. The collector then starts the ender itself.

use std::process::Child;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::Pid;

use crate::model::config::Message;
use crate::model::observation::Observation;
use crate::model::order::{Action, Order, OrderResult};
use crate::model::run_limit::TreeEnd;
use crate::run::RunState;
use crate::store::replay_journal::JournaledRun;
use crate::sys::proc_fs::ProcRoot;
use crate::sys::segment::named::KnownFile;
use crate::tree_end::{self, Member, TreeToEnd};

/// The start of a process by its records and by /proc differs by less than this. No pid is used again within that time.
const START_SLACK_NS: u64 = 2_000_000_000;

/// The ender, a process that ends the tree, if this collector has started one. If the ender is killed, another one is started.
#[derive(Debug, Default)]
pub(super) struct OwnEnder {
    /// The tree that is being ended, and when SIGKILL is due. `None`: nothing is being ended.
    tree: Option<(TreeToEnd, Instant)>,
    /// The thread that waits for the ender. It returns what came of the ender; `None`: the ender was killed, or has failed. There is
    /// no thread before the first ender, or if the last one could not be started.
    waiter: Option<JoinHandle<Option<TreeEnd>>>,
}

impl OwnEnder {
    /// Obeys an order to end the tree, and answers it. Other orders need the launcher, so they are dropped. While the tree is being
    /// ended, all orders are dropped.
    pub(super) fn obey(
        &mut self,
        orders: Vec<Order>,
        segment: Option<KnownFile>,
        kill_after: Duration,
        tick_us: u64,
        run: &mut JournaledRun,
    ) {
        for order in orders {
            if !matches!(order.action, Action::EndTree { .. }) || self.tree.is_some() {
                continue;
            }
            let known = living(run, tick_us);
            let tree = TreeToEnd { segment: segment.clone(), kill_after, known, ..TreeToEnd::default() };
            // If the ender can't be started, the order has no answer, so the core issues it again.
            if self.start(&tree) {
                self.tree = Some((tree, Instant::now() + kill_after));
                // By how much the limit was exceeded.
                let (result, excess) = (OrderResult::Done, order.action.excess());
                let answer = Message::OrderAnswered { id: order.id, result, excess };
                run.apply_now(Observation::Told(answer));
            }
        }
    }

    /// Looks after the ender. If the ender is done, tells the run what came of it. If it was killed, starts another one. Returns
    /// whether the tree is still being ended.
    pub(super) fn keep_at_work(&mut self, run: &mut JournaledRun) -> bool {
        let Some((tree, deadline)) = &self.tree else { return false };
        if self.waiter.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return true;
        }
        if let Some(Ok(Some(end))) = self.waiter.take().map(JoinHandle::join) {
            self.tree = None;
            run.apply_now(Observation::Told(Message::TreeEnded(end)));
            return false;
        }
        // The killed ender counts as having sent SIGTERM. SIGKILL stays due at the same time.
        let left = deadline.saturating_duration_since(Instant::now());
        let tree = TreeToEnd { is_told: true, kill_after: left, ..tree.clone() };
        // If it can't be started, the next call tries again.
        self.start(&tree);
        true
    }

    /// Starts an ender, and a thread that waits for it. Returns whether both were started.
    fn start(&mut self, tree: &TreeToEnd) -> bool {
        let Ok(mut ender) = tree.start() else { return false };
        self.waiter = wait_for(&ender);
        if self.waiter.is_none() {
            // It would go on beside the next one.
            let _ = ender.kill();
            let _ = ender.wait();
        }
        self.waiter.is_some()
    }
}

/// Waits for the ender in a thread, which returns what came of it. `None`: the thread can't be started.
fn wait_for(ender: &Child) -> Option<JoinHandle<Option<TreeEnd>>> {
    let ender = Pid::from_child(ender);
    thread::Builder::new().spawn(move || tree_end::wait_for(ender)).ok()
}

/// The processes of the run that live now. A process in /proc that has the pid of a process of the run, but another start,
/// is left out. `tick_us`: a tick of /proc's times, microseconds.
fn living(run: &RunState, tick_us: u64) -> Vec<Member> {
    let root = ProcRoot::default();
    let mut members = Vec::new();
    for id in run.tree.alive() {
        let Some(process) = run.tree.get(*id) else { continue };
        let Some(pid) = process.ids.host_pid else { continue };
        let Some(stat) = root.stat(pid) else { continue };
        let start_ns = process.lifetime.likely_start_ns();
        if stat.start_ns(tick_us).abs_diff(start_ns) < START_SLACK_NS {
            members.push(Member { pid, start_ticks: stat.start_ticks });
        }
    }
    members
}
