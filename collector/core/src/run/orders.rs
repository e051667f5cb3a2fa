//! The orders of a run that the launcher has not answered, and what it has answered.
//!
//! An order without an answer is sent again after a while, and at once by a collector that replaces a killed one. So a line that
//! finds the pipe full may be dropped, and the launcher may leave an order undone that it can't obey yet.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::model::order::{Order, OrderId};

/// An order without an answer after this time is sent again: the pipe to the launcher was full, or the launcher could not obey
/// yet.
pub const REPEATED_AFTER_NS: u64 = 1_000_000_000;

/// The orders of a run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Orders {
    /// Those without an answer.
    open: Vec<Order>,
    /// Those that the launcher has answered. A later one can be answered before an earlier one that found the pipe full.
    answered: BTreeSet<OrderId>,
    /// When each of the open orders was last sent, CLOCK_MONOTONIC nanoseconds. A collector that replaces another has sent none.
    #[serde(skip)]
    taken: Vec<(OrderId, u64)>,
}

impl Orders {
    /// Whether this order was issued or answered before.
    pub(super) fn knows(&self, id: OrderId) -> bool {
        self.answered.contains(&id) || self.open.iter().any(|order| order.id == id)
    }

    /// Adds an order that a rule has decided, unless it is known already.
    pub(super) fn issue(&mut self, order: Order) {
        if !self.knows(order.id) {
            self.open.push(order);
        }
    }

    /// Notes that the launcher has answered an order, which is then not sent again. If this collector resumed an older state, its
    /// rules may not have decided on that order yet. When they do, it is not issued.
    pub(super) fn answer(&mut self, id: OrderId) {
        self.open.retain(|order| order.id != id);
        self.taken.retain(|(taken, _)| *taken != id);
        self.answered.insert(id);
    }

    /// The open orders that are to be sent to the launcher at `now_ns`, CLOCK_MONOTONIC nanoseconds, and notes them as sent.
    /// An order is due if it was never sent, or was last sent [`REPEATED_AFTER_NS`] ago.
    pub fn take(&mut self, now_ns: u64) -> Vec<Order> {
        self.taken.retain(|(_, at_ns)| now_ns.saturating_sub(*at_ns) < REPEATED_AFTER_NS);
        let is_due = |order: &&Order| self.taken.iter().all(|(id, _)| *id != order.id);
        let orders: Vec<_> = self.open.iter().filter(is_due).cloned().collect();
        self.taken.extend(orders.iter().map(|order| (order.id, now_ns)));
        orders
    }

    /// The orders without an answer.
    pub(super) fn open(&self) -> &[Order] {
        &self.open
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::order::{Action, OrderedBy};

    const S: u64 = 1_000_000_000;

    fn order(epoch: u32) -> Order {
        let id = OrderId { by: OrderedBy::WaitAll, epoch };
        Order { id, action: Action::Tell(format!("text {epoch}")) }
    }

    // Requirement: FAULT-95
    #[test]
    fn order_is_issued_again_until_it_is_answered() {
        let mut orders = Orders::default();
        orders.issue(order(0));
        orders.issue(order(0));
        assert_eq!(orders.take(S), [order(0)]);
        assert_eq!(orders.take(S + REPEATED_AFTER_NS - 1), []);
        assert_eq!(orders.take(S + REPEATED_AFTER_NS), [order(0)]);
        orders.answer(order(0).id);
        orders.issue(order(0));
        orders.issue(order(1));
        assert_eq!(orders.take(S + 2 * REPEATED_AFTER_NS), [order(1)]);
    }

    // Requirement: FAULT-95
    #[test]
    fn successor_issues_what_has_no_answer_and_nothing_else() {
        let mut orders = Orders::default();
        orders.issue(order(0));
        let before = postcard::to_stdvec(&orders).unwrap();
        assert_eq!(orders.take(S), [order(0)]);
        for saved in [before, postcard::to_stdvec(&orders).unwrap()] {
            let mut successor: Orders = postcard::from_bytes(&saved).unwrap();
            assert_eq!(successor.take(S), [order(0)]);
        }
        // The answer can come before the decision.
        let mut successor = Orders::default();
        successor.answer(order(0).id);
        successor.issue(order(0));
        assert_eq!(successor.take(S), []);
        // The line of an order found the pipe full, and a later one was answered.
        let mut successor = Orders::default();
        successor.answer(order(2).id);
        (1..=2).for_each(|epoch| successor.issue(order(epoch)));
        assert_eq!(successor.take(S), [order(1)]);
    }
}
