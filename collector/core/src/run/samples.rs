//! The run over time: a sample is open until the next one is complete, then it closes and goes to the sinks. All of it is
//! concluded from observations and their times, so a replay gives the same.

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::gpu::GpuUsage;
use super::outbox::Outbox;
use super::sampling::Sample;
use super::tree::Tree;
use super::usage::{CpuUsage, Floor, Largest, MaxFootprint, RamUsage, Totals};
use crate::model::groups::Groups;
use crate::model::tree_sample::{
    CommandSample, CpuSample, IoBytes, MaximumSource, RamMaximum, Span, SystemSample, TreeSample,
};

/// Commands of a sample: these with most RAM, and as many others with most CPU time.
const COMMANDS: usize = 5;

/// The open sample, and what closed samples have told.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Samples {
    /// What was known of the open sample when it was complete.
    open: Option<TreeSample>,
    /// CPU time of all samples so far, nanoseconds.
    cpu_ns: Groups<u64>,
    /// The machine at its last reading.
    system: SystemSample,
    /// The largest RAM that a closed sample has, bytes.
    told_bytes: Groups<u64>,
    /// What the sinks have not taken yet.
    pub outbox: Outbox,
}

impl Samples {
    /// Takes in a reading of the machine. `None` of CPU time: it is too near to the reading before.
    pub(super) fn note_system(&mut self, at_ns: u64, ram_bytes: Option<u64>, cpu_percent: Option<f64>) {
        // Two readings can be too near to each other.
        let cpu_percent = cpu_percent.or(self.system.cpu_percent);
        self.system = SystemSample { read_ns: at_ns, ram_bytes, cpu_percent };
    }

    /// CPU time of the tree up to the last sample, nanoseconds.
    pub(super) fn cpu_ns(&self) -> u64 {
        self.cpu_ns.combined
    }

    /// Adds the CPU time that a sample found, and that of the processes that ended since the sample before.
    pub(super) fn add_cpu(&mut self, sample: &Sample) {
        self.cpu_ns = self.cpu_ns.with(sample.cpu_ns, u64::saturating_add);
        for life in &sample.intervals {
            self.cpu_ns.add(life.is_main, life.cpu_ns, u64::saturating_add);
        }
        self.cpu_ns.combined = self.cpu_ns.main.saturating_add(self.cpu_ns.descendants);
    }
}

/// What a sample is made of.
#[derive(Clone, Copy)]
pub(crate) struct Parts<'a> {
    pub tree: &'a Tree,
    pub ram: &'a RamUsage,
    pub cpu: &'a CpuUsage,
    pub gpu: &'a GpuUsage,
    pub totals: &'a Totals,
}

impl Samples {
    /// Opens a sample that is complete. RAM and CPU have it already.
    pub(super) fn begin(&mut self, sample: &Sample, parts: Parts) {
        let all = sample.now.groups();
        let percent = parts.cpu.percent(sample.at_ns);
        let wants_commands = self.outbox.wants.samples;
        self.open = Some(TreeSample {
            from_ns: sample.from_ns,
            at_ns: sample.at_ns,
            footprint_bytes: all.map(|sums| Span::at_end(sums.footprint_bytes)),
            cpu: self.cpu_ns.with(percent, |time_ns, percent| CpuSample { time_ns, percent }),
            processes: Span::at_end(sample.now.processes),
            threads: all.map(|sums| Span::at_end(sums.threads)),
            commands: if wants_commands { commands(parts.tree, sample) } else { Vec::new() },
            ..TreeSample::default()
        });
    }

    /// Closes the open sample. Gives its key, `at_ns`.
    pub(super) fn close(&mut self, parts: Parts) -> Option<u64> {
        let sample = self.now(parts)?;
        let at_ns = sample.at_ns;
        self.told_bytes = self.told_bytes.with(sample.footprint_bytes, |told, ram| told.max(ram.max));
        self.outbox.add_sample(sample);
        self.open = None;
        Some(at_ns)
    }

    /// Gives the open sample as far as it is known.
    pub(super) fn now(&self, parts: Parts) -> Option<TreeSample> {
        let mut sample = self.open.clone()?;
        let Largest { footprint_bytes, processes, threads } =
            parts.ram.largest_by_sample.within(sample.at_ns);
        let with = |mut span: Span<u64>, largest: u64| {
            span.raise(largest);
            span
        };
        sample.footprint_bytes = sample.footprint_bytes.with(footprint_bytes, with);
        sample.threads = sample.threads.with(threads, with);
        sample.processes.raise(processes);
        sample.system = self.system;
        sample.gpu = parts.gpu.now(sample.at_ns);
        let own = &parts.totals.own_usage;
        let bytes = |blocks: u64| blocks.saturating_mul(512);
        sample.io_of_ended = (parts.totals.coverage.exact > 0)
            .then(|| IoBytes { read: bytes(own.input_blocks), written: bytes(own.output_blocks) });
        let told = self.told_bytes.with(parts.ram.largest_by_sample.open_bytes(), u64::max);
        let known = parts.ram.max.with(parts.totals.floors, |max, floor| (max, floor));
        sample.max_ram = known.with(told, |(max, floor), told| maximum(max, floor, told));
        Some(sample)
    }
}

/// Gives the largest RAM so far, and what shows it. Samples tell `told_bytes` of it.
fn maximum(max: MaxFootprint, floor: Floor, told_bytes: u64) -> RamMaximum {
    let source = match () {
        () if floor.rss_bytes > max.footprint_bytes => MaximumSource::Floor,
        () if max.footprint_bytes > told_bytes => MaximumSource::Revision,
        () => MaximumSource::Sample,
    };
    RamMaximum { bytes: max.footprint_bytes.max(floor.rss_bytes), source }
}

/// Gives the commands that use most: [`COMMANDS`] by RAM, and as many others by CPU time.
fn commands(tree: &Tree, sample: &Sample) -> Vec<CommandSample> {
    let mut by_name: FxHashMap<&str, CommandSample> = FxHashMap::default();
    for held in &sample.holders {
        let Some(process) = tree.get(held.id) else { continue };
        let command = by_name.entry(&process.name.command).or_default();
        command.processes += 1;
        command.added_bytes = command.added_bytes.saturating_add(held.contribution.added_bytes);
        command.cpu_ns = command.cpu_ns.saturating_add(process.cpu.counted_cpu_ns);
    }
    let named = by_name.into_iter().map(|(name, sums)| CommandSample { command: name.to_owned(), ..sums });
    let mut all: Vec<CommandSample> = named.collect();
    all.sort_unstable_by(|a, b| b.added_bytes.cmp(&a.added_bytes).then_with(|| a.command.cmp(&b.command)));
    let mut rest = all.split_off(COMMANDS.min(all.len()));
    rest.sort_by_key(|command| std::cmp::Reverse(command.cpu_ns));
    all.extend(rest.into_iter().take(COMMANDS));
    all
}
