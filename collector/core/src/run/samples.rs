//! The samples of the run. A sample is open until the next one is complete. Then it closes and goes to the sinks. Samples are
//! made from observations and their times alone, so a replay gives the same ones.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::gpu::GpuState;
use super::outbox::{Outbox, Outgoing};
use super::over_time::commands::by_command;
use super::over_time::{LateUse, OverTime, Revision, late_uses};
use super::sample_time::{LastSecond, LastTold, SampleTime};
use super::sampling::Sample;
use super::storage::Storage;
use super::time_spent::Division;
use super::tree::{LiveInterval, Tree};
use super::usage::{CpuUsage, Floor, Largest, MaxFootprint, RamUsage, Totals};
use crate::model::groups::Groups;
use crate::model::time_groups::ByTimeGroup;
use crate::model::tree_sample::{
    CommandSample, CpuSample, Event, ItemKind, MaximumSource, RamMaximum, Span, SystemSample, TreeSample,
};

/// Maximum number of commands in a sample: this many with most RAM, and as many others with most CPU time.
const MAX_COMMANDS: usize = 5;

/// The open sample, and what is kept of the closed ones.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Samples {
    /// What was known of the open sample when it was complete.
    open: Option<TreeSample>,
    /// CPU time of the tree up to the last sample, nanoseconds.
    pub(super) cpu_ns: Groups<u64>,
    /// The machine's figures at its last reading.
    system: SystemSample,
    /// The largest figures of the machine that were read since the last sample closed.
    largest_system: SystemSample,
    /// Block I/O and file systems.
    pub(crate) storage: Storage,
    /// Footprints (distinct resident pages), integrated over time up to the last sample, byte-seconds.
    byte_s: Groups<f64>,
    /// All commands of the open sample.
    commands: Vec<CommandSample>,
    /// How the time of the open sample is divided.
    time: SampleTime,
    /// In which state threads were blocked, by the last reading that told.
    last_told: LastTold,
    /// How the last second of closed samples is divided.
    last_second: LastSecond,
    /// The closed samples as a bounded number of points in time.
    pub(crate) over_time: OverTime,
    /// The largest RAM that a closed sample has, bytes.
    largest_closed_bytes: Groups<u64>,
    /// What the sinks have not taken yet.
    pub outbox: Outbox,
}

/// The figures of the run that a sample is made of.
#[derive(Clone, Copy)]
pub(crate) struct Parts<'a> {
    pub ram: &'a RamUsage,
    pub cpu: &'a CpuUsage,
    pub gpu: &'a GpuState,
    pub totals: &'a Totals,
}

/// What else a sample is made of, beside [`Parts`]. It must be made before [`RamUsage::add`], which removes the sample's intervals.
pub(super) struct Completed {
    /// Utilisation in the CPU window that the sample completes, percent. `None`: it completes none.
    window_percent: Groups<Option<f64>>,
    /// All commands that ran in the sample's time.
    commands: Vec<CommandSample>,
    /// What was used before the sample's time, and became known only with this sample.
    late: Vec<LateUse>,
    /// How its time is divided.
    time: SampleTime,
}

impl Completed {
    /// Derives it from a complete sample. `window_percent`: see the field.
    pub(super) fn new(tree: &Tree, sample: &Sample, window_percent: Groups<Option<f64>>) -> Self {
        let (commands, late) = (by_command(tree, sample), late_uses(sample));
        Self { window_percent, commands, late, time: SampleTime::default() }
    }

    /// Divides the sample's time as the time up to its end. `None`: threads were not read in it. `start_ns`: the begin of the run,
    /// CLOCK_MONOTONIC nanoseconds.
    pub(super) fn divide(&mut self, sample: &Sample, start_ns: u64, division: Option<&Division>) {
        let length_ns = sample.at_ns.saturating_sub(sample.from_ns.max(start_ns));
        self.time = SampleTime::new(length_ns, division);
    }

    /// All commands of the sample's time.
    pub(super) fn commands(&self) -> &[CommandSample] {
        &self.commands
    }
}

impl Samples {
    /// Takes in a reading of the machine: memory in use, bytes, and CPU utilisation since the reading before, percent. `None`:
    /// the figure could not be read, or the reading before is too near for a utilisation. The open sample has the largest reading
    /// of each figure since the sample before closed. Without a reading since then, it has the last one.
    pub(super) fn note_system(&mut self, at_ns: u64, ram_bytes: Option<u64>, cpu_percent: Option<f64>) {
        self.largest_system =
            self.largest_system.larger(SystemSample { read_ns: at_ns, ram_bytes, cpu_percent });
        // Two readings can be too near for a utilisation: then the last one stays.
        let cpu_percent = cpu_percent.or(self.system.cpu_percent);
        self.system = SystemSample { read_ns: at_ns, ram_bytes, cpu_percent };
    }

    /// Adds the CPU time that live processes used since the sample before, and that of the sample's intervals.
    pub(super) fn add_cpu(&mut self, sample: &Sample) {
        self.cpu_ns = self.cpu_ns.with(sample.cpu_ns, u64::saturating_add);
        self.add_cpu_of(&sample.intervals);
    }

    /// Adds the CPU time of these intervals. It is negative if samples have counted more for a process than its records say.
    fn add_cpu_of(&mut self, intervals: &[LiveInterval]) {
        for interval in intervals {
            let part = self.cpu_ns.part_mut(interval.is_main);
            *part = part.saturating_add_signed(interval.cpu_ns);
        }
        self.cpu_ns.combined = self.cpu_ns.main.saturating_add(self.cpu_ns.descendants);
    }

    /// Adds the CPU time that processes used after the last sample: to the open sample, and to its commands.
    pub(super) fn add_last_cpu(&mut self, intervals: &[LiveInterval]) {
        self.add_cpu_of(intervals);
        let Some(open) = &mut self.open else { return };
        open.cpu = open.cpu.with(self.cpu_ns, |cpu, time_ns| CpuSample { time_ns, ..cpu });
        for interval in intervals {
            match self.commands.iter_mut().find(|command| command.command == interval.command) {
                Some(command) => command.cpu_ns = command.cpu_ns.saturating_add_signed(interval.cpu_ns),
                None => {
                    let command = Arc::clone(&interval.command);
                    let cpu_ns = interval.cpu_ns.max(0).unsigned_abs();
                    self.commands.push(CommandSample { command, cpu_ns, ..CommandSample::default() });
                }
            }
        }
        if self.outbox.wants.contains(&ItemKind::Sample) {
            open.commands = most_used(&self.commands);
        }
    }

    /// Takes in how the time up to the end of the next sample is divided, which tells more of the open one. `None`: threads were not read
    /// then.
    pub(super) fn note_next_division(&mut self, division: Option<&Division>) {
        self.time.note_next(division);
        if let Some(division) = division {
            self.last_told.note(division);
        }
    }

    /// How the last second of closed samples is divided, nanoseconds. `None`: their threads were not read yet.
    pub(super) fn last_second(&self) -> Option<ByTimeGroup<u64>> {
        self.last_second.groups()
    }

    /// Opens a sample that is complete. By now `parts` include it, and the sample before is closed. What the sample tells of
    /// earlier times goes into `over_time`.
    pub(super) fn begin(&mut self, sample: &Sample, completed: Completed, parts: Parts) {
        let all = sample.now.groups();
        let percent = parts.cpu.percent(sample.at_ns);
        // The sums grow over the run. The sample has what was added since the one before.
        let byte_s = parts.ram.byte_s.with(self.byte_s, |now, before| now - before);
        self.byte_s = parts.ram.byte_s;
        self.commands = completed.commands;
        self.time = completed.time;
        completed.late.iter().for_each(|late| self.over_time.add_late(late));
        let are_commands_wanted = self.outbox.wants.contains(&ItemKind::Sample);
        self.open = Some(TreeSample {
            from_ns: sample.from_ns,
            at_ns: sample.at_ns,
            footprint_bytes: all.map(|sums| Span::at_end(sums.footprint_bytes)),
            footprint_byte_s: byte_s,
            cpu: self.cpu_ns.with(percent, |time_ns, percent| CpuSample { time_ns, percent }),
            cpu_window_percent: completed.window_percent,
            processes: Span::at_end(sample.now.processes),
            threads: all.map(|sums| Span::at_end(sums.threads)),
            commands: if are_commands_wanted { most_used(&self.commands) } else { Vec::new() },
            ..TreeSample::default()
        });
    }

    /// Notes the utilisation in the CPU window that the end of the run completes, percent. `None`: it completes none.
    pub(super) fn note_last_window(&mut self, window_percent: Groups<Option<f64>>) {
        if let Some(open) = &mut self.open {
            open.cpu_window_percent =
                open.cpu_window_percent.with(window_percent, |before, last| last.or(before));
        }
    }

    /// Closes the open sample, which goes to `over_time` and to the sinks. The machine's largest figures begin anew.
    /// Returns the sample's key, `at_ns`. `None`: none is open.
    pub(super) fn close(&mut self, parts: Parts) -> Option<u64> {
        let sample = self.now(parts)?;
        let at_ns = sample.at_ns;
        self.largest_closed_bytes =
            self.largest_closed_bytes.with(sample.footprint_bytes, |largest, ram| largest.max(ram.max));
        self.largest_system = SystemSample::default();
        self.over_time.push(&sample, &self.commands);
        self.last_second.add(sample.time_ns);
        self.outbox.add_sample(sample);
        self.open = None;
        Some(at_ns)
    }

    /// Notes that a late record shows more RAM or processes in the time of a closed sample. Raises the maxima of `over_time`, and adds
    /// an event for the sinks.
    pub(super) fn revise(&mut self, revision: &Revision) {
        self.over_time.raise(revision);
        let (at_ns, max_footprint_bytes) = (revision.at_ns, revision.footprint_bytes);
        let revised = Event::Revised { at_ns, max_footprint_bytes };
        self.outbox.add(ItemKind::Event, || Outgoing::Event(revised));
    }

    /// The open sample as far as it is known. `None`: none is open.
    pub(super) fn now(&self, parts: Parts) -> Option<TreeSample> {
        let mut sample = self.open.clone()?;
        // Since it was opened, records can have shown larger figures within its time.
        let Largest { footprint_bytes, processes, threads } =
            parts.ram.largest_by_sample.within(sample.at_ns);
        let raised = |span: Span<u64>, largest: u64| Span { max: span.max.max(largest), ..span };
        sample.footprint_bytes = sample.footprint_bytes.with(footprint_bytes, raised);
        sample.threads = sample.threads.with(threads, raised);
        sample.processes.raise(processes);
        // The largest since the sample before closed. If nothing was read since then, the last reading.
        sample.system = self.largest_system.or(self.system);
        sample.gpu = parts.gpu.now(sample.at_ns);
        sample.time_ns = self.time.groups(&self.last_told);
        sample.io = self.storage.io();
        sample.file_systems = self.storage.file_systems(sample.at_ns);
        let open_bytes = parts.ram.largest_by_sample.open_bytes();
        let of_samples = self.largest_closed_bytes.with(open_bytes, u64::max);
        let max_and_floor = parts.ram.max.with(parts.totals.floors, |max, floor| (max, floor));
        sample.max_ram = max_and_floor.with(of_samples, |(max, floor), bytes| maximum(max, floor, bytes));
        Some(sample)
    }
}

/// The largest RAM so far, and what shows it. `floor`: the largest single process, since the tree held at least as much. If that
/// exceeds the largest footprint, it is the maximum. Otherwise a sample shows the maximum, or a record that came after its sample
/// had closed. `of_samples_bytes`: the largest RAM in any sample.
fn maximum(max: MaxFootprint, floor: Floor, of_samples_bytes: u64) -> RamMaximum {
    let source = if floor.rss_bytes > max.footprint_bytes {
        MaximumSource::Floor
    } else if max.footprint_bytes > of_samples_bytes {
        MaximumSource::Revision
    } else {
        MaximumSource::Sample
    };
    RamMaximum { bytes: max.footprint_bytes.max(floor.rss_bytes), source }
}

/// The commands that use most: [`MAX_COMMANDS`] by RAM, and as many others by CPU time. `all` is sorted by RAM, most first.
fn most_used(all: &[CommandSample]) -> Vec<CommandSample> {
    let (first, rest) = all.split_at(MAX_COMMANDS.min(all.len()));
    // Of the others, only commands with a live process are listed.
    let mut rest: Vec<&CommandSample> = rest.iter().filter(|command| command.processes > 0).collect();
    rest.sort_by_key(|command| std::cmp::Reverse(command.cpu_ns));
    first.iter().chain(rest.into_iter().take(MAX_COMMANDS)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ids::{ProcessId, TaskId};
    use crate::run::tree::Contribution;

    #[test]
    fn last_sample_has_the_cpu_time_of_commands_after_it() {
        let command = |name: &str, cpu_ns| CommandSample {
            command: name.into(),
            cpu_ns,
            processes: 1,
            ..CommandSample::default()
        };
        let ended = |name: &str, cpu_ns| LiveInterval {
            is_process: true,
            is_end_rough: false,
            is_main: false,
            id: ProcessId(1),
            pid: 1,
            command: name.into(),
            task: TaskId::WORKFLOW,
            start_ns: 0,
            likely_start_ns: 0,
            end_ns: 1,
            memory: Contribution::default(),
            unread_bytes: None,
            rss_bytes: 0,
            counted_at_ns: 0,
            cpu_ns,
            threads: 1,
        };
        let mut samples = Samples { open: Some(TreeSample::default()), ..Samples::default() };
        samples.commands = vec![command("make", 3)];
        samples.outbox.wants.push(ItemKind::Sample);
        samples.add_last_cpu(&[ended("make", 7), ended("cc", 5)]);
        let open = samples.open.unwrap();
        let used: Vec<_> = open.commands.iter().map(|one| (&*one.command, one.cpu_ns)).collect();
        assert_eq!((used, open.cpu.combined.time_ns), (vec![("make", 10), ("cc", 5)], 12));
    }
}
