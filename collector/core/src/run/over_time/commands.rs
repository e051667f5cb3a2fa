//! RAM and CPU of commands over the run. [`MAX_TRACKS`] of them have tracks (figures over time) of their own: those with most RAM, and
//! those with most CPU time. The others are one sum.

use std::cmp::Reverse;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::axis::AxisPosition;
use super::track::{Track, Values};
use crate::model::sorting::Sorting;
use crate::model::tree_sample::CommandSample;
use crate::run::sampling::Sample;
use crate::run::tree::Tree;

/// Maximum number of commands with tracks of their own.
pub(super) const MAX_TRACKS: usize = 32;

/// One command over the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct CommandTracks {
    /// Its name.
    pub command: Arc<str>,
    /// What its live processes add to the tree's footprint (its distinct resident pages), bytes.
    pub ram_bytes: Track,
    /// CPU utilisation, percent of one core. Only means.
    pub cpu_percent: Track,
    /// Its largest RAM, bytes.
    pub max_ram_bytes: u64,
    /// CPU time so far, nanoseconds.
    pub cpu_ns: u64,
}

/// The commands of the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Commands {
    /// The commands that have tracks.
    pub kept: Vec<CommandTracks>,
    /// How often a command was merged into the others; one that comes back counts again.
    pub others: u64,
    /// RAM of the others, bytes. Only means.
    pub others_ram_bytes: Track,
    /// CPU utilisation of the others, percent of one core. Only means.
    pub others_cpu_percent: Track,
}

impl Default for Commands {
    fn default() -> Self {
        let (others_ram_bytes, others_cpu_percent) = (Track::zero_mean(), Track::zero_mean());
        Self { kept: Vec::new(), others: 0, others_ram_bytes, others_cpu_percent }
    }
}

impl CommandTracks {
    /// Makes the tracks of a command that has not been seen before.
    fn new(command: &Arc<str>) -> Self {
        Self {
            command: Arc::clone(command),
            ram_bytes: Track::zero(),
            cpu_percent: Track::zero_mean(),
            max_ram_bytes: 0,
            cpu_ns: 0,
        }
    }

    /// Adds a sample at its place on the axis, and raises the sums by which [`Commands::merge_least`] chooses. `now`: the command's
    /// part of the tree's footprint, and its CPU time. `None`: the sample does not have the command, which counts as 0. If all
    /// processes of the command ended before the sample, their RAM is not known. If no time passed since the sample before, there is no
    /// CPU utilisation.
    fn put(&mut self, at: AxisPosition, now: Option<&CommandSample>) {
        let ram = now.map(|now| Values::single(now.added_bytes as f64));
        let is_ram_known = now.is_none_or(|now| now.processes > 0);
        let cpu = now
            .filter(|_| at.sample_length_s > 0.0)
            .map(|now| cpu_percent(now.cpu_ns as f64, at.sample_length_s));
        if is_ram_known {
            self.ram_bytes.put(at, ram);
        } else {
            self.ram_bytes.put_unknown(at.point, at.point_length_s);
        }
        self.cpu_percent.put(at, cpu.map(Values::of_mean));
        if let Some(now) = now {
            self.max_ram_bytes = self.max_ram_bytes.max(now.added_bytes);
            self.cpu_ns = self.cpu_ns.saturating_add(now.cpu_ns);
        }
    }
}

/// The mean utilisation over `length_s` seconds in which this much CPU time was used, percent of one core.
pub(super) fn cpu_percent(cpu_ns: f64, length_s: f64) -> f64 {
    /// CPU time that is one percent of a core in a second, nanoseconds.
    const PERCENT_NS: f64 = 1e9 / 100.0;
    cpu_ns / PERCENT_NS / length_s
}

impl Commands {
    /// Adds the commands of a sample. A command without tracks gets some. If that makes too many, the least is merged into the others.
    pub(super) fn put(&mut self, at: AxisPosition, commands: &[CommandSample]) {
        let mut now: FxHashMap<&Arc<str>, &CommandSample> =
            commands.iter().map(|command| (&command.command, command)).collect();
        for tracks in &mut self.kept {
            tracks.put(at, now.remove(&tracks.command));
        }
        // In the order of the list, so that a replay gives the same.
        for command in commands.iter().filter(|command| now.contains_key(&command.command)) {
            let mut tracks = CommandTracks::new(&command.command);
            tracks.put(at, Some(command));
            self.kept.push(tracks);
            if self.kept.len() > MAX_TRACKS {
                self.merge_least();
            }
        }
    }

    /// Merges the least of the kept commands into the others. The commands with most RAM, half of [`MAX_TRACKS`], stay. Of the rest, the
    /// one with least CPU time is merged.
    fn merge_least(&mut self) {
        let mut by_ram: Vec<usize> = (0..self.kept.len()).collect();
        by_ram.order_by_key(|index| Reverse(self.kept[*index].max_ram_bytes));
        let mut rest = by_ram.split_off(MAX_TRACKS / 2);
        rest.order_by_key(|index| Reverse(self.kept[*index].cpu_ns));
        let Some(least) = rest.last() else { return };
        let CommandTracks { ram_bytes, cpu_percent, .. } = self.kept.remove(*least);
        self.others += 1;
        self.others_ram_bytes.add_means_of(&ram_bytes);
        self.others_cpu_percent.add_means_of(&cpu_percent);
    }

    /// All tracks, those of the others last.
    pub(super) fn tracks(&mut self) -> impl Iterator<Item = &mut Track> {
        let others = [&mut self.others_ram_bytes, &mut self.others_cpu_percent];
        let kept = self.kept.iter_mut().flat_map(|tracks| [&mut tracks.ram_bytes, &mut tracks.cpu_percent]);
        kept.chain(others)
    }
}

/// The commands of a sample, the one with most RAM first. Each has what its live processes hold, and the CPU time that its
/// live and ended processes used since the sample before.
pub(in crate::run) fn by_command(tree: &Tree, sample: &Sample) -> Vec<CommandSample> {
    let mut by_name: FxHashMap<&Arc<str>, CommandSample> = FxHashMap::default();
    for held in &sample.holders {
        let Some(process) = tree.get(held.id) else { continue };
        let command = by_name.entry(&process.name.command).or_default();
        command.processes += 1;
        command.added_bytes = command.added_bytes.saturating_add(held.contribution.added_bytes);
        command.cpu_ns = command.cpu_ns.saturating_add(held.cpu_ns);
    }
    for interval in &sample.intervals {
        let command = by_name.entry(&interval.command).or_default();
        command.cpu_ns = command.cpu_ns.saturating_add_signed(interval.cpu_ns);
    }
    let named = by_name.into_iter().map(|(name, sums)| CommandSample { command: Arc::clone(name), ..sums });
    let mut all: Vec<CommandSample> = named.collect();
    all.order_by(|a, b| b.added_bytes.cmp(&a.added_bytes).then_with(|| a.command.cmp(&b.command)));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(command: &str, added_bytes: u64, cpu_ns: u64) -> CommandSample {
        CommandSample { command: command.into(), processes: 1, added_bytes, cpu_ns }
    }

    fn at(point: usize) -> AxisPosition {
        AxisPosition { point, point_length_s: 0.0, sample_length_s: 1.0 }
    }

    #[test]
    fn largest_commands_keep_their_tracks_and_the_others_are_a_sum() {
        let mut commands = Commands::default();
        for number in 0..100 {
            commands.put(at(number), &[sample(&format!("step{number}"), 1000, 10_000_000)]);
        }
        commands.put(at(100), &[sample("large", 1 << 30, 0), sample("busy", 0, 1_000_000_000)]);
        for number in 101..200 {
            commands.put(at(number), &[sample(&format!("step{number}"), 1000, 10_000_000)]);
        }
        let names: Vec<&str> = commands.kept.iter().map(|tracks| &*tracks.command).collect();
        assert_eq!(names.len(), MAX_TRACKS);
        assert!(names.contains(&"large") && names.contains(&"busy"), "{names:?}");
        assert_eq!(commands.others, 201 - MAX_TRACKS as u64);
        for point in (0..200).filter(|point| *point != 100) {
            let kept = commands.kept.iter().filter_map(|tracks| tracks.ram_bytes.get(point));
            let sum: f32 = kept.chain(commands.others_ram_bytes.get(point)).map(|values| values.mean).sum();
            assert_eq!(sum, 1000.0, "nothing is counted twice or lost at {point}");
        }
    }

    // Requirement: TIME-7
    #[test]
    fn ram_of_a_command_that_ended_before_the_sample_is_unknown_and_its_cpu_is_not() {
        let mut commands = Commands::default();
        commands.put(at(0), &[sample("a", 10, 0)]);
        commands.put(at(1), &[CommandSample { processes: 0, ..sample("a", 0, 500_000_000) }]);
        commands.put(at(2), &[]);
        let [CommandTracks { ram_bytes, cpu_percent, .. }] = commands.kept.as_slice() else {
            panic!("one command")
        };
        let ram: Vec<_> = (0..3).map(|at| ram_bytes.get(at)).collect();
        assert_eq!(ram, [Some(Values::single(10.0)), None, Some(Values::single(0.0))]);
        assert_eq!(cpu_percent.get(1), Some(Values::of_mean(50.0)));
    }

    #[test]
    fn command_that_is_gone_has_zero() {
        let mut commands = Commands::default();
        commands.put(at(0), &[sample("a", 10, 0)]);
        commands.put(AxisPosition { point_length_s: 1.0, ..at(0) }, &[]);
        commands.put(at(1), &[sample("b", 7, 500_000_000)]);
        let track = |name: &str| commands.kept.iter().find(|tracks| &*tracks.command == name).unwrap();
        assert_eq!(track("a").ram_bytes.get(0), Some(Values::new(5.0, 0.0, 10.0)));
        assert_eq!(track("a").ram_bytes.get(1), Some(Values::single(0.0)));
        assert_eq!(track("b").ram_bytes.get(0), Some(Values::single(0.0)));
        assert_eq!(track("b").cpu_percent.get(1), Some(Values::of_mean(50.0)));
    }
}
