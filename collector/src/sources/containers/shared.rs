//! What the thread of a follower and the collector's loop tell each other.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rustix::event::{EventfdFlags, eventfd};

use crate::model::containers::{ContainerSeen, ContainerWish, DaemonState};

/// See the module.
#[derive(Debug)]
pub(super) struct Shared {
    told: Mutex<Told>,
    has_ended: Condvar,
    /// An eventfd, which is readable if there are orders.
    wake: OwnedFd,
}

#[derive(Debug, Default)]
struct Told {
    orders: Orders,
    /// What is known of containers and was not taken yet, by id.
    seen: BTreeMap<String, ContainerSeen>,
    /// Whether the daemon can be asked. `None`: that has not changed since it was taken.
    state: Option<DaemonState>,
    is_over: bool,
}

/// What the loop wants of the thread.
#[derive(Debug, Default)]
pub(super) struct Orders {
    /// Further containers that are to be followed.
    pub(super) wishes: Vec<ContainerWish>,
    /// New files of `--cidfile`.
    pub(super) cidfiles: Vec<String>,
    /// The run is over. The thread takes in what is there, at most until then.
    pub(super) end_by: Option<Instant>,
}

impl Shared {
    /// # Errors
    /// If there is no descriptor left.
    pub(super) fn new() -> std::io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { told: Mutex::default(), has_ended: Condvar::new(), wake })
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The descriptor that becomes readable with an order.
    pub(super) fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Makes the descriptor unreadable until the next order.
    pub(super) fn reset_wake(&self) {
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
    }

    /// Gives an order.
    pub(super) fn order(&self, order: impl FnOnce(&mut Orders)) {
        order(&mut self.told().orders);
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// The orders since the last call.
    pub(super) fn take_orders(&self) -> Orders {
        std::mem::take(&mut self.told().orders)
    }

    /// Hands on what is known of these containers.
    pub(super) fn hand_on(&self, changed: Vec<ContainerSeen>) {
        self.told().seen.extend(changed.into_iter().map(|seen| (seen.id.clone(), seen)));
    }

    /// Says whether the daemon can be asked.
    pub(super) fn set_state(&self, state: DaemonState) {
        self.told().state = Some(state);
    }

    /// Takes what is known of containers, and whether the daemon can be asked.
    pub(super) fn take(&self) -> (Option<DaemonState>, Vec<ContainerSeen>) {
        let mut told = self.told();
        (told.state.take(), std::mem::take(&mut told.seen).into_values().collect())
    }

    /// Says that the thread has taken in all.
    pub(super) fn end(&self) {
        self.told().is_over = true;
        self.has_ended.notify_all();
    }

    /// Waits until the thread has taken in all, at most until `deadline`.
    pub(super) fn await_end(&self, deadline: Instant) {
        let left = deadline.saturating_duration_since(Instant::now());
        let _ = self.has_ended.wait_timeout_while(self.told(), left, |told| !told.is_over);
    }
}
