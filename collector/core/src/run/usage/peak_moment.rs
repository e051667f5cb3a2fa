//! What held the tree's RAM when it was largest: the largest processes, and all processes by command.
//!
//! At a sample each process counts with its contribution: what it adds to the footprint. Between two samples it counts as in
//! [`super::ram`]. If it lived all the time, it counts with the smaller of its contributions at both samples, else with its
//! memory while it lived. So the sums by command add up to the peak. A late record can show a peak in a time whose sizes can't be
//! read any more. Therefore [`SteadyHolders`] are kept of each window.

use std::cmp::Reverse;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::model::report::{CommandHolders, Holder, OtherHolders};
use crate::model::sorting::Sorting;
use crate::run::sampling::{Held, Sample};
use crate::run::tree::{Contribution, LiveInterval, Process, Tree};

use super::tolerance::is_private_known;

/// Maximum number of processes that are listed one by one.
const MAX_LISTED: usize = 10;
/// Maximum number of command names with sums of their own.
const MAX_COMMANDS: usize = 10;

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
    /// The [`MAX_LISTED`] by RSS, the largest first.
    pub largest: Vec<Holder>,
    /// Sums of all processes by command name: the [`MAX_COMMANDS`] largest sums, the largest first.
    pub by_command: Vec<CommandHolders>,
    /// The sum of all other names. `None`: there are no others.
    pub other_commands: Option<OtherHolders>,
}

impl PeakMoment {
    /// Makes the moment at `at_ns`, CLOCK_MONOTONIC nanoseconds. If `holders` is empty, [`Self::set_holders`] sets them later.
    pub(super) fn new(at_ns: u64, footprint_bytes: u64, holders: PeakHolders) -> Self {
        let mut peak = Self { at_ns, footprint_bytes, holders: PeakHolders::default() };
        peak.set_holders(holders);
        peak
    }

    /// Sets what held the footprint. Figures are limited to it: no process held more, nor did all commands together.
    ///
    /// Records can claim more: between two samples only the largest RSS of a process is known, which can be of another moment. And
    /// any process of the run can write records of any size.
    pub(super) fn set_holders(&mut self, mut holders: PeakHolders) {
        for holder in &mut holders.largest {
            holder.rss_bytes = holder.rss_bytes.min(self.footprint_bytes);
        }
        holders.scale_down_to(self.footprint_bytes);
        self.holders = holders;
    }
}

impl PeakHolders {
    /// Whether the holders are still to be found: see `RamUsage::find_holders`.
    pub(super) fn is_empty(&self) -> bool {
        self.largest.is_empty()
    }

    /// What was held at a sample.
    pub(super) fn at_sample(tree: &Tree, sample: &Sample) -> Self {
        let mut commands = HoldersByCommand::default();
        for (process, held) in live_holders(tree, sample) {
            commands.add(&process.name.command, 1, held.contribution.added_bytes);
        }
        commands.into_holders(largest_live(live_holders(tree, sample).collect()))
    }

    /// What was held at a time between two samples. `steady` was held all the time between them. `intervals` are those that
    /// were there at that time.
    pub(super) fn between_samples(steady: &SteadyHolders, intervals: &[&LiveInterval]) -> Self {
        let mut commands = steady.commands.clone();
        // A process can have several intervals: its life, the memory of each of its programs, and what it held for a moment. Its life
        // has the name of its last program. So that all of them count for one command, they get the name of the program that held
        // most.
        let mut by_process = intervals.to_vec();
        by_process.order_by_key(|interval| {
            (interval.id, interval.is_process, Reverse(interval.memory.added_bytes))
        });
        for of_process in by_process.chunk_by(|a, b| a.id == b.id) {
            for interval in of_process {
                let bytes = interval.memory.added_bytes;
                commands.add(&of_process[0].command, interval.is_process.into(), bytes);
            }
        }
        commands.into_holders(with_memory_of_intervals(steady.largest.clone(), intervals))
    }

    /// Adds up what all commands held, bytes.
    fn added_bytes(&self) -> u128 {
        let named = self.by_command.iter().map(|command| command.added_bytes);
        let others = self.other_commands.map(|others| others.added_bytes);
        named.chain(others).map(u128::from).sum()
    }

    /// Scales down what the commands held, if it is more than this in sum.
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

/// What was held during all of a window, by the processes that lived at both of its ends.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct SteadyHolders {
    /// The largest processes, with what they held at the end.
    largest: Vec<Holder>,
    /// What all of them held all the time.
    pub(super) commands: HoldersByCommand,
}

impl SteadyHolders {
    /// What was held at all times since the sample before, by the processes that both samples saw.
    pub(super) fn new(tree: &Tree, sample: &Sample) -> Self {
        let (mut commands, mut steady) =
            (HoldersByCommand::default(), Vec::with_capacity(sample.holders.len()));
        for (process, held) in live_holders(tree, sample) {
            if let Some(steady_bytes) = held.steady_bytes {
                commands.add(&process.name.command, 1, steady_bytes);
                steady.push((process, held));
            }
        }
        Self { largest: largest_live(steady), commands }
    }
}

/// How many processes of a command there are, and what they add, bytes.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct Sum {
    count: u64,
    added_bytes: u64,
}

/// Sums by command name.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct HoldersByCommand {
    by_name: FxHashMap<Arc<str>, Sum>,
    /// The sum of the names that were not kept.
    others: OtherHolders,
}

impl HoldersByCommand {
    /// Adds processes of a command, and what they held.
    fn add(&mut self, name: &Arc<str>, count: u64, added_bytes: u64) {
        // Most names are known already, and `entry` would need a clone of each.
        let sum = match self.by_name.get_mut(name) {
            Some(sum) => sum,
            None => self.by_name.entry(name.clone()).or_default(),
        };
        sum.count += count;
        sum.added_bytes = sum.added_bytes.saturating_add(added_bytes);
    }

    /// Keeps the sums of the [`MAX_COMMANDS`] largest commands, and adds the others to `others`. Returns the kept ones, the largest
    /// first. If a command that went to `others` comes again, it counts as one more command.
    pub(super) fn keep_largest(&mut self) -> Vec<(Arc<str>, Sum)> {
        let mut all: Vec<_> = std::mem::take(&mut self.by_name).into_iter().collect();
        all.order_by(|(a_name, a), (b_name, b)| {
            let largest_first = (b.added_bytes, b.count).cmp(&(a.added_bytes, a.count));
            largest_first.then_with(|| a_name.cmp(b_name))
        });
        for (_, sum) in all.drain(all.len().min(MAX_COMMANDS)..) {
            self.others.commands += 1;
            self.others.count += sum.count;
            self.others.added_bytes = self.others.added_bytes.saturating_add(sum.added_bytes);
        }
        self.by_name = all.iter().cloned().collect();
        all
    }

    /// Makes the holders of a peak: `largest`, the largest commands, and the sum of the other commands.
    fn into_holders(mut self, largest: Vec<Holder>) -> PeakHolders {
        let by_command = self.keep_largest().into_iter().map(|(name, Sum { count, added_bytes })| {
            CommandHolders { command: name.to_string(), count, added_bytes }
        });
        let other_commands = (self.others.commands > 0).then_some(self.others);
        PeakHolders { largest, by_command: by_command.collect(), other_commands }
    }
}

/// The live processes of a sample, and what they held.
fn live_holders<'a>(tree: &'a Tree, sample: &'a Sample) -> impl Iterator<Item = (&'a Process, &'a Held)> {
    sample.holders.iter().filter_map(|held| Some((tree.get(held.id)?, held)))
}

/// The [`MAX_LISTED`] largest holders by RSS, the largest first. Those without memory are left out.
fn largest(mut holders: Vec<Holder>) -> Vec<Holder> {
    holders.retain(|holder| holder.rss_bytes > 0);
    holders.order_by_key(|holder| (Reverse(holder.rss_bytes), holder.pid));
    holders.truncate(MAX_LISTED);
    holders
}

/// The [`MAX_LISTED`] largest of these live processes by RSS, the largest first.
fn largest_live(mut live: Vec<(&Process, &Held)>) -> Vec<Holder> {
    if live.len() > MAX_LISTED {
        live.select_nth_unstable_by_key(MAX_LISTED, |(_, held)| Reverse(held.rss_bytes));
        live.truncate(MAX_LISTED);
    }
    let holders = live.into_iter().map(|(process, held)| {
        let Contribution { added_bytes, private_bytes, .. } = held.contribution;
        let rss_bytes = held.rss_bytes;
        let private_bytes = Some(private_bytes).filter(|_| is_private_known(held.unread_bytes, rss_bytes));
        let command = process.name.command.to_string();
        Holder { pid: process.ids.pid(), command, rss_bytes, private_bytes, added_bytes }
    });
    largest(holders.collect())
}

/// Adds the memory of `intervals`, which was there for a part of the time between two samples, to `holders`, which held theirs
/// all that time. A process that is in both counts once, with the larger figures. Returns the [`MAX_LISTED`] largest by RSS.
fn with_memory_of_intervals(mut holders: Vec<Holder>, intervals: &[&LiveInterval]) -> Vec<Holder> {
    let mut memory: Vec<_> = intervals.iter().filter(|interval| !interval.is_process).collect();
    memory.order_by_key(|interval| Reverse(interval.rss_bytes));
    for interval in memory.into_iter().take(MAX_LISTED) {
        let Contribution { added_bytes, private_bytes, .. } = interval.memory;
        let is_known = |unread_bytes| is_private_known(unread_bytes, interval.rss_bytes);
        let private_bytes = Some(private_bytes).filter(|_| interval.unread_bytes.is_some_and(is_known));
        match holders.iter_mut().find(|holder| holder.pid == interval.pid) {
            // A process that grew for a part of the time, or an earlier image of it.
            Some(holder) => {
                holder.rss_bytes = holder.rss_bytes.max(interval.rss_bytes);
                holder.private_bytes = holder.private_bytes.zip(private_bytes).map(|(a, b)| a.max(b));
                holder.added_bytes = holder.added_bytes.max(added_bytes);
            }
            None => holders.push(Holder {
                pid: interval.pid,
                command: interval.command.to_string(),
                rss_bytes: interval.rss_bytes,
                private_bytes,
                added_bytes,
            }),
        }
    }
    largest(holders)
}
