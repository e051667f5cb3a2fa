//! The core: from observations to what the run used. It does no I/O and reads no clock.

pub(crate) mod calls_by_command;
pub mod cause;
pub mod containers;
pub(crate) mod crashes;
pub(crate) mod elsewhere;
mod event_log;
pub(crate) mod events;
pub(crate) mod failures;
pub mod gpu;
mod live;
mod live_summary;
pub(crate) mod orders;
pub mod outbox;
pub mod over_time;
#[cfg(test)]
pub(crate) mod random_trees;
pub(crate) mod ranks;
pub(crate) mod rules;
mod sample_time;
pub(crate) mod samples;
pub mod sampling;
pub mod schedule;
pub(crate) mod sink_troubles;
pub(crate) mod stalls;
pub mod state;
mod steps;
mod storage;
pub mod task_summary;
pub(crate) mod task_totals;
pub(crate) mod tasks;
pub mod time_spent;
pub mod tree;
pub mod trust;
pub mod usable_at_start;
pub mod usage;
pub(crate) mod wait_all;

use std::collections::VecDeque;

pub use live_summary::live_summary;
pub use state::RunState;

/// Adds an item to a list of the last `most` ones. The oldest is dropped if there are more.
fn push_last<T>(list: &mut VecDeque<T>, item: T, most: usize) {
    if list.len() >= most {
        list.pop_front();
    }
    list.push_back(item);
}
