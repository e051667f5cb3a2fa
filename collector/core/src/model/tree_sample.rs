//! The run over time: the tree at each sample, and what is learnt of a sample later. Sinks take both.
//!
//! A sample is provisional until it closes: when the next one is complete, or at the end of the run. From then on it does not
//! change. Everything that shows the run over time takes [`TreeSample`]s.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::gpu::{Device, Figure};
use super::groups::Groups;
use super::report::DiskRole;
use super::time_groups::ByTimeGroup;

/// A quantity over the time of a sample.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span<T> {
    /// At the sample itself, which is the end of its time.
    pub end: T,
    /// The largest within its time.
    pub max: T,
}

/// The tree at a sample, and since the sample before.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TreeSample {
    /// The sample before, or the start of the run, CLOCK_MONOTONIC nanoseconds.
    pub from_ns: u64,
    /// The sample itself, CLOCK_MONOTONIC nanoseconds. It is the key of this sample.
    pub at_ns: u64,
    /// Footprints (RAM in which a page that several processes share counts once), bytes. The largest includes processes that lived
    /// between the two samples only.
    pub footprint_bytes: Groups<Span<u64>>,
    /// Footprints over the time of the sample, byte-seconds.
    pub footprint_byte_s: Groups<f64>,
    /// CPU time and utilisation.
    pub cpu: Groups<CpuSample>,
    /// Utilisation in the window that this sample completed, percent of one core; `None`: it completed none.
    pub cpu_window_percent: Groups<Option<f64>>,
    /// How its time is divided, nanoseconds; `None`: the threads were not read. Samples that were joined have the sum of those whose
    /// threads were read.
    pub time_ns: Option<ByTimeGroup<u64>>,
    /// Live processes.
    pub processes: Span<u64>,
    /// Their threads.
    pub threads: Groups<Span<u64>>,
    /// Block I/O of the tree since the start of the run; `None`: it was not read yet, or the kernel does not count it.
    pub io: Option<IoSample>,
    /// The whole machine.
    pub system: SystemSample,
    /// The file systems that the run may write to.
    pub file_systems: Vec<FileSystemSample>,
    /// GPUs.
    pub gpu: GpuSums,
    /// The commands that use most; empty if no sink takes samples.
    pub commands: Vec<CommandSample>,
    /// The largest RAM of the run so far, as far as it was known when the sample closed.
    pub max_ram: Groups<RamMaximum>,
}

/// CPU time and utilisation of some processes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuSample {
    /// CPU time since the start of the run, ended processes included, nanoseconds. It goes down if a process's CPU time turns
    /// out to be its child's.
    pub time_ns: u64,
    /// Utilisation in the last complete window, percent of one core. Before there is one, that since the start of the run.
    pub percent: Option<f64>,
}

/// Block I/O, bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoBytes {
    /// Read.
    pub read: u64,
    /// Written.
    pub written: u64,
}

impl IoBytes {
    /// Converts block input and output as getrusage(2) counts them, whatever the device: in units of 512 bytes.
    pub(crate) fn of_blocks(input: u64, output: u64) -> Self {
        let bytes = |blocks: u64| blocks.saturating_mul(512);
        Self { read: bytes(input), written: bytes(output) }
    }

    /// Combines the read bytes of two amounts by `combine`, and their written bytes.
    pub(crate) fn with(self, other: Self, combine: impl Fn(u64, u64) -> u64) -> Self {
        Self { read: combine(self.read, other.read), written: combine(self.written, other.written) }
    }
}

/// Block I/O of the tree up to a reading.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoSample {
    /// When it was read, CLOCK_MONOTONIC nanoseconds.
    pub read_ns: u64,
    /// What is known of the time since the start of the run.
    pub bytes: IoBytes,
}

/// A file system that the run may write to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSystemSample {
    /// Its device number: directories with the same are on one file system.
    pub device: u64,
    /// The directories that are on it, as the run uses them.
    pub directories: Arc<[(DiskRole, String)]>,
    /// When it answered last, CLOCK_MONOTONIC nanoseconds.
    pub read_ns: u64,
    /// Space that the user of the run may still fill, bytes. `None`: it has not answered for several seconds.
    pub free_bytes: Option<u64>,
}

/// The machine's own figures: the largest that were read within the sample's time. If none were, the last ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct SystemSample {
    /// When they were read last, CLOCK_MONOTONIC nanoseconds; 0: never.
    pub read_ns: u64,
    /// Memory in use, bytes.
    pub ram_bytes: Option<u64>,
    /// Utilisation of all cores since the reading before, percent of one core.
    pub cpu_percent: Option<f64>,
}

/// All GPUs together. A sum is the largest that became known within the sample's time, or else the last one. `None`: that is older
/// than about two intervals. Utilization stays valid for longer where the driver itself samples it more rarely.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuSums {
    /// Memory in use by all processes of the machine, bytes.
    pub used_bytes: Option<u64>,
    /// Memory of the run's processes, bytes.
    pub run_bytes: Option<Groups<u64>>,
    /// Utilisation, percent of one device. `None`: a device does not tell it, or only its parts (MIG) do.
    pub busy_percent: Option<f64>,
    /// How many whole devices the machine has, as far as they are known. Only the GPU log has it.
    #[serde(skip)]
    pub machine: usize,
    /// How many devices the run may use, as far as they are known.
    pub expected: u32,
    /// The tracked devices that are known so far, parts of devices included.
    pub devices: Vec<GpuSample>,
    /// No driver has told its devices yet, and one may do so. The figures above are unknown then.
    #[serde(default)]
    pub are_devices_sought: bool,
}

impl GpuSums {
    /// Whether no GPU works. `None`: it is not known, since a GPU does not tell how busy it is, and none that does is busy.
    pub fn is_idle(&self) -> Option<bool> {
        if self.devices.iter().any(|sample| sample.busy_percent.is_some_and(|percent| percent > 0.0)) {
            return Some(false);
        }
        // The parts (MIG) of a device report their utilisation in its place.
        let has_parts =
            |device: &Device| self.devices.iter().any(|part| part.device.parent.as_ref() == Some(&device.id));
        let mut reporting = self.devices.iter().filter(|sample| !has_parts(&sample.device)).peekable();
        reporting.peek()?;
        reporting.all(|sample| sample.busy_percent.is_some()).then_some(true)
    }

    /// How busy the busiest GPU is on which the run has memory, percent. Of a GPU with other processes, only the work of the run's
    /// counts, if the driver tells it. Otherwise a GPU of which others hold most is left out, since it may be busy for them. `None`:
    /// none is left, or one does not tell.
    pub fn busy_of_run(&self) -> Option<f64> {
        let busy = self.devices.iter().filter_map(|device| {
            let own_bytes = device.run_bytes.map_or(0, |bytes| bytes.combined);
            let is_mostly_runs = device.used_bytes.is_none_or(|used| own_bytes >= used / 2);
            let is_counted = own_bytes > 0 && (device.run_busy_percent.is_some() || is_mostly_runs);
            is_counted.then_some(device.run_busy_percent.or(device.busy_percent))
        });
        busy.collect::<Option<Vec<f64>>>()?.into_iter().reduce(f64::max)
    }

    /// The memory in use and the whole memory, bytes, of the fullest GPU on which the run has memory: allocations fail there first.
    /// Other programs' memory counts, too. If the run has no memory on any GPU, it is 0 and the memory of the largest GPU. `None`: no
    /// GPU tells both.
    pub fn fullest(&self) -> Option<(u64, u64)> {
        let used_part = |(used, memory): &(u64, u64)| *used as f64 / *memory as f64;
        let all = self.devices.iter().filter_map(GpuSample::used_and_whole);
        all.max_by(|a, b| used_part(a).total_cmp(&used_part(b)).then(a.1.cmp(&b.1)))
    }

    /// Joins a device of the next sample with the same device of this sample. If no reading of the device became known in this
    /// sample, its figures are older ones, so the next sample's stay as they are.
    fn join_device(&self, next: GpuSample) -> GpuSample {
        let is_same_and_new = |before: &&GpuSample| before.device.id == next.device.id && before.is_new;
        let Some(before) = self.devices.iter().find(is_same_and_new) else { return next };
        let mut gauges = next.gauges;
        for (figure, value) in &before.gauges {
            gauges.entry(*figure).and_modify(|next| *next = next.max(*value)).or_insert(*value);
        }
        GpuSample {
            device: next.device,
            read_ns: next.read_ns,
            is_new: true,
            used_bytes: before.used_bytes.max(next.used_bytes),
            run_bytes: larger_groups(before.run_bytes, next.run_bytes),
            busy_percent: larger(before.busy_percent, next.busy_percent),
            run_busy_percent: larger(before.run_busy_percent, next.run_busy_percent),
            throttle_bits: next.throttle_bits.or(before.throttle_bits),
            is_incomplete: next.is_incomplete,
            gauges,
        }
    }
}

/// One GPU. A figure is the largest that became known within the sample's time, or else the last one. `None`: that is too old, as
/// in [`GpuSums`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuSample {
    /// The device.
    pub device: Arc<Device>,
    /// When it was read last, CLOCK_MONOTONIC nanoseconds; 0: never.
    pub read_ns: u64,
    /// A reading of it became known within the sample's time. Then `read_ns` can be before that time: a reading takes a while.
    #[serde(default)]
    pub is_new: bool,
    /// Memory in use by all processes of the machine, bytes.
    pub used_bytes: Option<u64>,
    /// Memory of the run's processes, bytes.
    pub run_bytes: Option<Groups<u64>>,
    /// Utilisation in a stretch of time, percent. A driver may report several between two readings.
    pub busy_percent: Option<f64>,
    /// Utilisation by the run's processes, percent. `None`: the driver does not tell it, or no others are on the GPU.
    #[serde(default)]
    pub run_busy_percent: Option<f64>,
    /// The driver's bits of why its clocks are low. `None`: not known.
    pub throttle_bits: Option<u64>,
    /// A figure was not asked for yet, so that the next sample may know it.
    #[serde(default)]
    pub is_incomplete: bool,
    /// The other figures that go up and down, each in its own unit. What is not known is not there.
    pub gauges: BTreeMap<Figure, f64>,
}

impl GpuSample {
    /// One of its gauges, in its own unit. `None`: it is not known.
    pub fn gauge(&self, figure: Figure) -> Option<f64> {
        self.gauges.get(&figure).copied()
    }

    /// The memory in use, or 0 if the run has none on it, and the whole memory, bytes. `None`: it does not tell both.
    pub fn used_and_whole(&self) -> Option<(u64, u64)> {
        let memory = self.device.memory_bytes.filter(|memory| *memory > 0)?;
        let own = self.run_bytes?.combined;
        // The two were read at different times, so the run's part can be larger than the whole use.
        let used = self.used_bytes.map_or(own, |used| used.max(own));
        Some((if own > 0 { used } else { 0 }, memory))
    }
}

/// The processes of one command name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandSample {
    /// Its name.
    pub command: Arc<str>,
    /// How many live.
    pub processes: u64,
    /// What these add to the tree's footprint, bytes.
    pub added_bytes: u64,
    /// CPU time within the sample's time, that of processes which ended included, nanoseconds.
    pub cpu_ns: u64,
}

/// The largest RAM of a run up to some time, and how it is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RamMaximum {
    /// Bytes.
    pub bytes: u64,
    /// What shows it.
    pub source: MaximumSource,
}

/// What shows a maximum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum MaximumSource {
    /// A closed sample has it.
    #[default]
    Sample,
    /// A record that came after its sample had closed.
    Revision,
    /// One process is known to have held this much at an unknown time.
    Floor,
}

/// What is learnt of the run beside its samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// A closed sample turns out to have had more RAM.
    Revised {
        /// The sample's key. Of samples that are no longer remembered: the moment itself, CLOCK_MONOTONIC nanoseconds.
        at_ns: u64,
        /// The largest RAM within its time, bytes.
        max_footprint_bytes: Groups<u64>,
    },
}

/// A kind of what the sinks of a run take from the core.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ItemKind {
    /// Closed samples.
    Sample,
    /// Processes whose figures are final.
    Ended,
    /// [`Event`]s.
    Event,
    /// What happened in the run: [`RunEvent`](super::alert::RunEvent)s.
    Happened,
    /// Tasks that have no process any more.
    Tasks,
    /// The live processes of the open sample, which are no items of the outbox.
    Live,
}

/// What the sinks of a run take from the core, once or more. What none takes is not kept.
pub type Wants = Vec<ItemKind>;

impl ItemKind {
    /// All kinds, in their order.
    pub const ALL: [Self; 6] =
        [Self::Sample, Self::Ended, Self::Event, Self::Happened, Self::Tasks, Self::Live];
}

impl SystemSample {
    /// The larger of each figure in two samples. A known figure is larger than an unknown one.
    #[must_use]
    pub fn larger(self, other: Self) -> Self {
        Self {
            read_ns: self.read_ns.max(other.read_ns),
            ram_bytes: self.ram_bytes.max(other.ram_bytes),
            cpu_percent: larger(self.cpu_percent, other.cpu_percent),
        }
    }

    /// These figures, with those of `other` in place of unknown ones. The time is the later one.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            read_ns: self.read_ns.max(other.read_ns),
            ram_bytes: self.ram_bytes.or(other.ram_bytes),
            cpu_percent: self.cpu_percent.or(other.cpu_percent),
        }
    }
}

impl<T: Copy + Ord> Span<T> {
    /// Makes a quantity of which only the value at the sample is known, so that this is also its largest.
    pub fn at_end(end: T) -> Self {
        Self { end, max: end }
    }

    /// Notes that the quantity was this large at some moment within the sample's time.
    pub fn raise(&mut self, to: T) {
        self.max = self.max.max(to);
    }

    /// Joins the quantity with that of the next sample, to one over the time of both.
    fn then(self, next: Self) -> Self {
        Self { end: next.end, max: self.max.max(next.max) }
    }
}

/// The larger of two figures, or the one that is known. `None`: neither is.
pub fn larger(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    a.into_iter().chain(b).reduce(f64::max)
}

/// The larger of two figures, group by group, or the ones that are known. `None`: neither is.
fn larger_groups(a: Option<Groups<u64>>, b: Option<Groups<u64>>) -> Option<Groups<u64>> {
    a.into_iter().chain(b).reduce(|a, b| a.with(b, u64::max))
}

/// Joins the commands of a sample with those of the next: the larger number of processes and of bytes, and the sum of CPU time. A
/// command that one of the samples left out has the figures of the other.
fn join_commands(before: &[CommandSample], mut next: Vec<CommandSample>) -> Vec<CommandSample> {
    for command in before {
        match next.iter_mut().find(|other| other.command == command.command) {
            Some(same) => {
                same.processes = same.processes.max(command.processes);
                same.added_bytes = same.added_bytes.max(command.added_bytes);
                same.cpu_ns = same.cpu_ns.saturating_add(command.cpu_ns);
            }
            None => next.push(command.clone()),
        }
    }
    next
}

impl TreeSample {
    /// The CPU utilisation since an `earlier` sample of the run, percent of one core. There may be others in between. If `earlier`
    /// is `None`, it is since the start of the run, with which this sample began. The percentages are `None` if no time passed.
    pub fn cpu_percent_since(&self, earlier: Option<&Self>) -> Groups<Option<f64>> {
        let since_ns = earlier.map_or(self.from_ns, |earlier| earlier.at_ns);
        let length_ns = self.at_ns.saturating_sub(since_ns);
        let cpu_before_ns =
            earlier.map_or_else(Groups::default, |earlier| earlier.cpu.map(|cpu| cpu.time_ns));
        // CPU time can go back a little: a process's CPU time turned out to be its child's.
        self.cpu.with(cpu_before_ns, |now, before_ns| {
            let used_ns = now.time_ns.saturating_sub(before_ns);
            (length_ns > 0).then(|| used_ns as f64 / length_ns as f64 * 100.0)
        })
    }

    /// Joins this sample and the next one to a sample over the time of both. A figure of one moment is taken from the next sample,
    /// because that moment is the end of both.
    pub fn then(&self, next: Self) -> Self {
        let gpu = GpuSums {
            used_bytes: self.gpu.used_bytes.max(next.gpu.used_bytes),
            run_bytes: larger_groups(self.gpu.run_bytes, next.gpu.run_bytes),
            busy_percent: larger(self.gpu.busy_percent, next.gpu.busy_percent),
            machine: next.gpu.machine,
            expected: next.gpu.expected,
            devices: next.gpu.devices.into_iter().map(|device| self.gpu.join_device(device)).collect(),
            are_devices_sought: next.gpu.are_devices_sought,
        };
        Self {
            from_ns: self.from_ns,
            footprint_bytes: self.footprint_bytes.with(next.footprint_bytes, Span::then),
            footprint_byte_s: self.footprint_byte_s.with(next.footprint_byte_s, |a, b| a + b),
            cpu_window_percent: self.cpu_window_percent.with(next.cpu_window_percent, larger),
            time_ns: self.time_ns.into_iter().chain(next.time_ns).reduce(|a, b| a.plus(&b)),
            processes: self.processes.then(next.processes),
            threads: self.threads.with(next.threads, Span::then),
            system: self.system.larger(next.system),
            commands: join_commands(&self.commands, next.commands),
            gpu,
            ..next
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: ALERT-1, LIMIT-3
    #[test]
    fn gpu_memory_is_that_of_the_fullest_gpu_that_the_run_uses() {
        const MB: u64 = 1_000_000;
        let gpu = |run_mb: u64, used_mb: u64| GpuSample {
            device: Arc::new(Device { memory_bytes: Some(1000 * MB), ..Device::default() }),
            used_bytes: Some(used_mb * MB),
            run_bytes: Some(Groups { combined: run_mb * MB, ..Groups::default() }),
            ..GpuSample::default()
        };
        let all = |devices: Vec<GpuSample>| GpuSums { devices, ..GpuSums::default() }.fullest();
        assert_eq!(all(vec![gpu(100, 200), gpu(10, 900), gpu(0, 999)]), Some((900 * MB, 1000 * MB)));
        assert_eq!(all(vec![gpu(0, 999)]), Some((0, 1000 * MB)));
        assert_eq!(all(vec![GpuSample { run_bytes: None, ..gpu(1, 1) }]), None);
        assert_eq!(all(Vec::new()), None);
    }

    #[test]
    fn two_samples_as_one_keep_the_largest_and_the_last() {
        let sample = |from_ns, end, max, busy_percent| TreeSample {
            from_ns,
            at_ns: from_ns + 10,
            processes: Span { end, max },
            gpu: GpuSums { busy_percent, used_bytes: Some(max), ..GpuSums::default() },
            ..TreeSample::default()
        };
        let both = sample(0, 3, 9, Some(70.0)).then(sample(10, 4, 5, None));
        assert_eq!((both.from_ns, both.at_ns, both.processes), (0, 20, Span { end: 4, max: 9 }));
        assert_eq!((both.gpu.busy_percent, both.gpu.used_bytes), (Some(70.0), Some(9)));
    }

    #[test]
    fn two_samples_as_one_keep_the_largest_of_each_gpu_that_was_read_within_their_time() {
        let device = |read_ns, is_new, busy, power| GpuSample {
            read_ns,
            is_new,
            busy_percent: Some(busy),
            gauges: BTreeMap::from([(Figure::Power, power)]),
            ..GpuSample::default()
        };
        let sample = |from_ns, device| TreeSample {
            from_ns,
            at_ns: from_ns + 10,
            gpu: GpuSums { devices: vec![device], ..GpuSums::default() },
            ..TreeSample::default()
        };
        let both = sample(10, device(15, true, 90.0, 100.0)).then(sample(20, device(25, true, 10.0, 300.0)));
        let [gpu] = &both.gpu.devices[..] else { panic!("{both:?}") };
        assert_eq!((gpu.read_ns, gpu.busy_percent, gpu.gauges[&Figure::Power]), (25, Some(90.0), 300.0));
        let late = sample(10, device(9, true, 90.0, 100.0)).then(sample(20, device(25, true, 10.0, 50.0)));
        assert_eq!(late.gpu.devices[0].busy_percent, Some(90.0), "it was known when the sample had begun");
        let old = sample(10, device(9, false, 90.0, 100.0)).then(sample(20, device(25, true, 10.0, 50.0)));
        assert_eq!(old.gpu.devices[0].busy_percent, Some(10.0), "an earlier sample has it");
    }

    // Requirement: SLOW-10
    #[test]
    fn two_samples_as_one_have_the_known_time_of_both() {
        let sample = |computing: Option<u64>| TreeSample {
            time_ns: computing.map(|computing| ByTimeGroup { computing, locks: 1, ..ByTimeGroup::default() }),
            ..TreeSample::default()
        };
        let both = |a, b| sample(a).then(sample(b)).time_ns.map(|ns| (ns.computing, ns.locks));
        assert_eq!(
            [both(Some(3), Some(4)), both(None, Some(4)), both(Some(3), None), both(None, None)],
            [Some((7, 2)), Some((4, 1)), Some((3, 1)), None]
        );
    }

    #[test]
    fn two_samples_as_one_have_all_commands_of_both() {
        let command = |name: &str, added_bytes, cpu_ns| CommandSample {
            command: name.into(),
            processes: 1,
            added_bytes,
            cpu_ns,
        };
        let sample = |commands| TreeSample { commands, ..TreeSample::default() };
        let both = sample(vec![command("a", 9, 1), command("b", 5, 1)])
            .then(sample(vec![command("c", 7, 1), command("a", 3, 4)]));
        assert_eq!(both.commands, [command("c", 7, 1), command("a", 9, 5), command("b", 5, 1)]);
    }
}
