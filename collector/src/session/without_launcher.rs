//! What a collector does itself when the launcher is gone: it ends the tree at a limit. Nobody else can.

use std::path::Path;
use std::process::Child;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::model::observation::Observation;
use crate::model::order::{Action, Order, OrderResult};
use crate::model::run_limit::TreeEnd;
use crate::store::replay_journal::JournaledRun;
use crate::tree_end::{TreeToEnd, of_exit_code};

/// The ender that this collector started, if it did.
#[derive(Debug, Default)]
pub(super) struct OwnEnder(Option<JoinHandle<Option<TreeEnd>>>);

impl OwnEnder {
    /// Obeys those of the orders that need no launcher, and answers them.
    pub(super) fn obey(
        &mut self,
        orders: Vec<Order>,
        segment: &Path,
        kill_after: Duration,
        run: &mut JournaledRun,
    ) {
        for order in orders {
            if !matches!(order.action, Action::EndTree { .. }) || self.0.is_some() {
                continue;
            }
            let known = run.tree.host_pids().collect();
            let tree = TreeToEnd { launcher: None, segment: segment.to_owned(), kill_after, known };
            // If there can be no process now, the order comes again.
            if let Ok(ender) = tree.start() {
                self.0 = wait_for(ender);
                run.apply_now(Observation::OrderAnswered { id: order.id, result: OrderResult::Done });
            }
        }
    }

    /// Whether it is at work. Tells the run what came of it when it is not any more.
    pub(super) fn is_at_work(&mut self, run: &mut JournaledRun) -> bool {
        if self.0.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return true;
        }
        if let Some(Ok(Some(end))) = self.0.take().map(JoinHandle::join) {
            run.apply_now(Observation::TreeEnded(end));
        }
        false
    }
}

/// Waits for the ender in a thread. `None`: there can be none, and what came of it stays unknown.
fn wait_for(mut ender: Child) -> Option<JoinHandle<Option<TreeEnd>>> {
    let wait = move || of_exit_code(ender.wait().ok()?.code());
    thread::Builder::new().spawn(wait).ok()
}
