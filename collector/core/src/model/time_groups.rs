//! The states of a run in six groups, as far as they are shown over time.

use serde::{Deserialize, Serialize};

use super::report::TimeState;
use crate::named;

named! {
    /// What a run does, as it is shown over time.
    pub enum TimeGroup {
        /// A thread has a core.
        Computing = "computing",
        /// A thread is ready to run, and none has a core.
        WaitingForCore = "waiting_for_core",
        /// For a disk, a file system of the network, or memory that was swapped out.
        Storage = "storage",
        /// For a socket.
        Network = "network",
        /// For a lock, of memory or on a file.
        Locks = "locks",
        /// For anything else, or it is not known for what.
        Other = "other",
    }
}

impl TimeGroup {
    /// Its name in text.
    pub fn label(self) -> &'static str {
        match self {
            Self::WaitingForCore => "waiting for a core",
            Self::Other => "other waits",
            group => group.name(),
        }
    }
}

impl From<TimeState> for TimeGroup {
    fn from(state: TimeState) -> Self {
        match state {
            TimeState::Computing => Self::Computing,
            TimeState::WaitingForCore => Self::WaitingForCore,
            TimeState::Storage | TimeState::Swap => Self::Storage,
            TimeState::Network => Self::Network,
            TimeState::FileLock | TimeState::Lock => Self::Locks,
            TimeState::Gpu
            | TimeState::Pipe
            | TimeState::Terminal
            | TimeState::Events
            | TimeState::Sleeping
            | TimeState::Stopped
            | TimeState::Unknown => Self::Other,
        }
    }
}

/// A figure of each group of states.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ByTimeGroup<T> {
    /// A thread has a core.
    pub computing: T,
    /// A thread is ready to run, and none has a core.
    pub waiting_for_core: T,
    /// `storage` and `swap`.
    pub storage: T,
    /// `network`.
    pub network: T,
    /// `file_lock` and `lock`.
    pub locks: T,
    /// All other states, `unknown` included.
    pub other: T,
}

impl<T> ByTimeGroup<T> {
    /// Makes a figure for each group by `of`.
    pub fn new(mut of: impl FnMut(TimeGroup) -> T) -> Self {
        Self {
            computing: of(TimeGroup::Computing),
            waiting_for_core: of(TimeGroup::WaitingForCore),
            storage: of(TimeGroup::Storage),
            network: of(TimeGroup::Network),
            locks: of(TimeGroup::Locks),
            other: of(TimeGroup::Other),
        }
    }

    /// The figures, in the order of [`TimeGroup::ALL`].
    pub fn values(&self) -> [&T; TimeGroup::ALL.len()] {
        let Self { computing, waiting_for_core, storage, network, locks, other } = self;
        [computing, waiting_for_core, storage, network, locks, other]
    }

    /// The figures to be changed, in the order of [`TimeGroup::ALL`].
    pub fn values_mut(&mut self) -> [&mut T; TimeGroup::ALL.len()] {
        let Self { computing, waiting_for_core, storage, network, locks, other } = self;
        [computing, waiting_for_core, storage, network, locks, other]
    }

    /// The figure of a group.
    pub fn of(&self, group: TimeGroup) -> &T {
        self.values()[group as usize]
    }

    /// The figure of a group, to be changed.
    pub fn of_mut(&mut self, group: TimeGroup) -> &mut T {
        match group {
            TimeGroup::Computing => &mut self.computing,
            TimeGroup::WaitingForCore => &mut self.waiting_for_core,
            TimeGroup::Storage => &mut self.storage,
            TimeGroup::Network => &mut self.network,
            TimeGroup::Locks => &mut self.locks,
            TimeGroup::Other => &mut self.other,
        }
    }
}

impl ByTimeGroup<u64> {
    /// All times together.
    pub fn total(&self) -> u64 {
        self.values().into_iter().fold(0, |sum, ns| sum.saturating_add(*ns))
    }

    /// These times and others, added up.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self::new(|group| self.of(group).saturating_add(*other.of(group)))
    }

    /// The part of each in all times, from 0 to 1. `None`: there is no time.
    pub fn shares(&self) -> Option<ByTimeGroup<f64>> {
        let total = self.total() as f64;
        (total > 0.0).then(|| ByTimeGroup::new(|group| *self.of(group) as f64 / total))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: SLOW-10
    #[test]
    fn each_state_is_in_a_group_and_shares_add_up() {
        let mut ns = ByTimeGroup::default();
        for state in TimeState::ALL {
            *ns.of_mut(state.into()) += 10;
        }
        assert_eq!(ns.values(), [&10, &10, &20, &10, &20, &70]);
        let shares = ns.shares().unwrap();
        assert_eq!((shares.storage, shares.other), (20.0 / 140.0, 0.5));
        assert_eq!(ByTimeGroup::<u64>::default().shares(), None);
    }

    #[test]
    fn names_of_groups_are_those_of_their_fields() {
        let written = serde_json::to_value(ByTimeGroup::<u64>::default()).unwrap();
        let mut names: Vec<&str> = TimeGroup::ALL.map(TimeGroup::name).to_vec();
        names.sort_unstable();
        assert_eq!(written.as_object().unwrap().keys().collect::<Vec<_>>(), names);
    }
}
