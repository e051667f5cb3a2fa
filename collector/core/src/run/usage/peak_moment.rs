//! What held the tree's RAM when it was largest: the largest processes, and all processes by command.
//!
//! At a sample each process counts with what it adds to the footprint then. Between two samples it counts as in the sum over
//! time ([`super::ram`]): with the smaller of its contributions at both ends, or with its memory in the time that it lived.
//! So the sums by command add up to the peak. If a record comes late, the sizes of that time are gone and today's stand for
//! them; sums above the peak are scaled down to it.

use std::cmp::Reverse;

use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};

use crate::model::report::{CommandHolders, Holder, OtherHolders};
use crate::run::sampling::{Held, Sample};
use crate::run::tree::{Contribution, LiveInterval, Tree};

use super::tolerance::is_private_known;

/// Most processes that are kept one by one.
const LARGEST: usize = 10;
/// Most command names that are kept one by one.
const COMMANDS: usize = 10;

/// The tree's RAM at its largest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeakMoment {
    /// CLOCK_MONOTONIC, nanoseconds.
    pub at_ns: u64,
    /// The tree's footprint, bytes.
    pub footprint_bytes: u64,
    /// What held it.
    pub holders: PeakHolders,
}

/// The processes at the peak.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeakHolders {
    /// The largest ones.
    pub largest: Vec<Holder>,
    /// All by command: the names with the largest sums.
    pub by_command: Vec<CommandHolders>,
    /// All other names.
    pub other_commands: Option<OtherHolders>,
}

impl PeakMoment {
    /// Makes the moment at `at_ns`, CLOCK_MONOTONIC nanoseconds. `holders` may be empty, and follow by
    /// [`Self::set_holders`].
    pub(super) fn new(at_ns: u64, footprint_bytes: u64, holders: PeakHolders) -> Self {
        let mut peak = Self { at_ns, footprint_bytes, holders: PeakHolders::default() };
        peak.set_holders(holders);
        peak
    }

    /// Sets what was held, limited to the footprint: no process held more, nor did all commands together.
    ///
    /// More can be claimed: between two samples only the largest RSS of a process is known, which can be of another moment.
    pub(super) fn set_holders(&mut self, mut holders: PeakHolders) {
        for holder in &mut holders.largest {
            holder.rss_bytes = holder.rss_bytes.min(self.footprint_bytes);
        }
        holders.scale_down_to(self.footprint_bytes);
        self.holders = holders;
    }
}

impl PeakHolders {
    /// Whether the largest processes at the peak are not known yet.
    pub(super) fn is_empty(&self) -> bool {
        self.largest.is_empty()
    }

    /// Gives what was held at a sample.
    pub(super) fn at_sample(tree: &Tree, sample: &Sample) -> Self {
        let mut commands = Commands::default();
        for (name, held) in named(tree, sample, sample.at_ns) {
            commands.add(name, 1, held.contribution.added_bytes);
        }
        commands.into_holders(largest(live_holders(tree, sample, sample.at_ns)))
    }

    /// Gives what was held at a time between two samples: by live processes, and by what was there for a part of that time.
    pub(super) fn between_samples(tree: &Tree, sample: &Sample, there: &[&LiveInterval], at_ns: u64) -> Self {
        let (mut commands, mut counted) = (Commands::default(), FxHashSet::default());
        for (name, held) in named(tree, sample, at_ns) {
            if let Some(steady_bytes) = held.steady_bytes {
                commands.add(name, 1, steady_bytes);
                counted.insert(held.id);
            }
        }
        // A process can have several: itself, the memory of each of its programs, and what it held for a moment.
        for life in there {
            let is_first_of_process = counted.insert(life.id);
            commands.add(&life.command, is_first_of_process.into(), life.memory.added_bytes);
        }
        commands.into_holders(holders_at(tree, sample, there, at_ns))
    }

    /// Adds up what all commands held, bytes.
    fn added_bytes(&self) -> u128 {
        let named = self.by_command.iter().map(|command| command.added_bytes);
        let others = self.other_commands.map(|others| others.added_bytes);
        named.chain(others).map(u128::from).sum()
    }

    /// Scales what the commands held down, if it is more than this in sum.
    fn scale_down_to(&mut self, most_bytes: u64) {
        let sum = self.added_bytes();
        if sum <= most_bytes.into() {
            return;
        }
        let scale = |bytes: &mut u64| *bytes = (u128::from(*bytes) * u128::from(most_bytes) / sum) as u64;
        self.by_command.iter_mut().for_each(|command| scale(&mut command.added_bytes));
        self.other_commands.iter_mut().for_each(|others| scale(&mut others.added_bytes));
    }
}

/// Sums by command name: how many processes, and what they add, bytes.
#[derive(Default)]
struct Commands<'a>(FxHashMap<&'a str, (u64, u64)>);

impl<'a> Commands<'a> {
    /// Adds processes of a command, and what they held.
    fn add(&mut self, name: &'a str, count: u64, added_bytes: u64) {
        let (processes, bytes) = self.0.entry(name).or_default();
        *processes += count;
        *bytes = bytes.saturating_add(added_bytes);
    }

    /// Lists the [`COMMANDS`] largest commands, and sums up the others. Adds `largest`, the largest processes, as they are. A name
    /// is copied only if it is kept.
    fn into_holders(self, largest: Vec<Holder>) -> PeakHolders {
        let mut all: Vec<_> = self.0.into_iter().collect();
        all.sort_unstable_by_key(|(name, (count, bytes))| (Reverse(*bytes), Reverse(*count), *name));
        let others = all.split_off(all.len().min(COMMANDS));
        let by_command = all.into_iter().map(|(name, (count, added_bytes))| CommandHolders {
            command: name.to_owned(),
            count,
            added_bytes,
        });
        let sum = others.iter().fold(OtherHolders::default(), |sum, (_, (count, bytes))| OtherHolders {
            commands: sum.commands + 1,
            count: sum.count + count,
            added_bytes: sum.added_bytes.saturating_add(*bytes),
        });
        let by_command = by_command.collect();
        PeakHolders { largest, by_command, other_commands: (!others.is_empty()).then_some(sum) }
    }
}

/// Gives the live processes of a sample that were there at `at_ns`, CLOCK_MONOTONIC nanoseconds, with their command names.
fn named<'a>(tree: &'a Tree, sample: &'a Sample, at_ns: u64) -> impl Iterator<Item = (&'a str, &'a Held)> {
    sample.holders.iter().filter_map(move |held| {
        let process = tree.get(held.id).filter(|process| process.lifetime.start_ns <= at_ns)?;
        Some((&*process.name.command, held))
    })
}

/// Keeps the [`LARGEST`] holders by RSS, the largest first.
fn largest(mut holders: Vec<Holder>) -> Vec<Holder> {
    holders.retain(|holder| holder.rss_bytes > 0);
    holders.sort_unstable_by_key(|holder| (Reverse(holder.rss_bytes), holder.pid));
    holders.truncate(LARGEST);
    holders
}

/// Gives the [`LARGEST`] live processes of a sample by RSS, of those that were there at `at_ns`, in no order.
fn live_holders(tree: &Tree, sample: &Sample, at_ns: u64) -> Vec<Holder> {
    let was_there =
        |held: &&Held| tree.get(held.id).is_some_and(|process| process.lifetime.start_ns <= at_ns);
    let mut there: Vec<&Held> = sample.holders.iter().filter(was_there).collect();
    if there.len() > LARGEST {
        there.select_nth_unstable_by_key(LARGEST, |held| Reverse(held.rss_bytes));
        there.truncate(LARGEST);
    }
    let named = there.into_iter().filter_map(|held| {
        let process = tree.get(held.id)?;
        let pid = process.ids.pid();
        let command = process.name.command.to_string();
        let Contribution { added_bytes, private_bytes, .. } = held.contribution;
        let rss_bytes = held.rss_bytes;
        let private_bytes = Some(private_bytes).filter(|_| is_private_known(held.unread_bytes, rss_bytes));
        Some(Holder { pid, command, rss_bytes, private_bytes, added_bytes })
    });
    named.collect()
}

/// Gives the largest at a time between two samples: live processes, and the memory that was there for a part of that time.
fn holders_at(tree: &Tree, sample: &Sample, there: &[&LiveInterval], at_ns: u64) -> Vec<Holder> {
    let mut holders = live_holders(tree, sample, at_ns);
    let mut memory: Vec<_> = there.iter().filter(|life| !life.is_process).collect();
    memory.sort_unstable_by_key(|life| Reverse(life.rss_bytes));
    for life in memory.into_iter().take(LARGEST) {
        let Contribution { added_bytes, private_bytes, .. } = life.memory;
        let is_read = life.unread_bytes.is_some_and(|unread| is_private_known(unread, life.rss_bytes));
        let private_bytes = Some(private_bytes).filter(|_| is_read);
        match holders.iter_mut().find(|holder| holder.pid == life.pid) {
            // A live process that held this for a part of the time, or an earlier image of it.
            Some(holder) => {
                holder.rss_bytes = holder.rss_bytes.max(life.rss_bytes);
                holder.private_bytes = holder.private_bytes.zip(private_bytes).map(|(a, b)| a.max(b));
                holder.added_bytes = holder.added_bytes.max(added_bytes);
            }
            None => holders.push(Holder {
                pid: life.pid,
                command: life.command.to_string(),
                rss_bytes: life.rss_bytes,
                private_bytes,
                added_bytes,
            }),
        }
    }
    largest(holders)
}
