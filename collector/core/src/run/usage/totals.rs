//! Sums over finalized processes, whose figures no record can change any more: totals, by command, the heaviest, and where the
//! figures come from.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use gpu_track_abi::record::Usage;
use serde::{Deserialize, Serialize};

use super::Floor;
use super::heaviest::Heaviest;
use crate::model::groups::Groups;
use crate::model::report::{CommandUsage, Exit, OTHER_COMMANDS, Peaks, Running};
use crate::model::sorting::Sorting;
use crate::run::elsewhere::Elsewhere;
use crate::run::tree::{Layer, MissingRam, ProcessSummary, Quality};

/// Maximum number of command names with sums of their own; the others share one.
const MAX_COMMANDS: usize = 10_000;
/// Maximum number of survivors that are listed.
const MAX_SURVIVORS: usize = 100;
/// Maximum number of static executables that are listed.
const MAX_STATIC: usize = 100;
/// Maximum number of other users that are listed.
const MAX_USERS: usize = 100;

/// What the processes used in all.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(crate) struct Totals {
    /// Sum of the processes' own usage, without that of the children they waited for.
    pub own_usage: Usage,
    /// The first process's own usage; `None`: not known, or not final yet.
    pub main: Option<Usage>,
    /// The first process; `None`: its figures are not final yet.
    pub main_process: Option<MainProcessEnd>,
    /// Lower bounds of the largest RAM.
    pub floors: Groups<Floor>,
    /// CPU time that could not be attributed to a process, microseconds.
    pub unattributed_us: u64,
    /// Memory of processes that is in no sum of RAM.
    pub ram_missing: RamMissing,
    /// Processes that still ran at the end.
    pub survivors: Survivors,
    /// How many processes are known from which source.
    pub coverage: CoverageCounts,
    /// What was started outside of the tree.
    pub elsewhere: Elsewhere,
    /// Processes without an EXIT record, by their users, the first [`MAX_USERS`] that are not the launcher's.
    pub other_users: BTreeMap<u32, u64>,
    /// How many processes each layer found, in the order of [`Layer`]. A process with a record counts for the preload.
    pub found: [u64; 5],
    /// Executables without a dynamic loader, the first [`MAX_STATIC`].
    static_executables: BTreeSet<String>,
    /// Sums by command name.
    commands: HashMap<Arc<str>, Command>,
    pub heaviest: Heaviest,
}

/// Memory of processes that is in no sum of RAM.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(crate) struct RamMissing {
    /// How many processes had such memory.
    pub(crate) processes: u64,
    /// How many of them have no known upper bound.
    unbounded: u64,
    /// The most that the others can have had together, bytes, as if all had lived at once.
    at_most_bytes: u64,
}

impl RamMissing {
    fn add(&mut self, missing: MissingRam) {
        self.processes += 1;
        match missing.at_most_bytes {
            Some(bytes) => self.at_most_bytes = self.at_most_bytes.saturating_add(bytes),
            None => self.unbounded += 1,
        }
    }

    /// The most that all of them had together, bytes. `None`: that is unknown.
    pub(crate) fn at_most_bytes(&self) -> Option<u64> {
        (self.unbounded == 0).then_some(self.at_most_bytes)
    }
}

/// The counts of a report's [`Coverage`](crate::model::report::Coverage) over the finalized processes. They have a type of their
/// own, since the run state can't leave out keys as a report does.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct CoverageCounts {
    /// All processes.
    pub processes: u64,
    /// Processes with CPU time from the EXIT or REAPED record, from wait4, or from the CPU clock after the end.
    pub exact: u64,
    /// Processes whose CPU time is a lower bound ([`Quality::Sampled`]), most often from the last sample.
    pub sampled: u64,
    /// Processes whose CPU time is unknown, or of which only a bound is known.
    pub unknown: u64,
    /// Processes that had the run's session in their environment, but were no child of a known process.
    pub joined: u64,
    /// Processes that wrote no EXIT record although they exited and were not killed.
    pub uninstrumented: u64,
    /// How many peak RSS are known from which source.
    pub peaks: Peaks,
}

/// The run's first process: its name, and how it ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct MainProcessEnd {
    /// Its command name.
    pub command: Arc<str>,
    /// How it ended; `None`: it has not.
    pub exit: Option<Exit>,
}

/// Processes that outlived the run.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(crate) struct Survivors {
    /// How many.
    pub count: u64,
    /// How many of them have CPU time from a sample.
    pub sampled: u64,
    /// Pids and commands of the first [`MAX_SURVIVORS`].
    pub listed: Vec<Running>,
}

/// Sums over the finalized processes of one command name.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
struct Command {
    count: u64,
    cpu_us: u64,
    /// The CPU time of one of them at least is known.
    is_cpu_known: bool,
    /// Largest peak RSS of one of them.
    peak_rss_bytes: Option<u64>,
    wall_ns: u64,
}

impl Totals {
    /// Makes empty sums. `most_heaviest`: how many of the heaviest processes are listed at most by each of CPU time, peak RSS and GPU
    /// memory.
    pub(crate) fn new(most_heaviest: usize) -> Self {
        Self { heaviest: Heaviest::new(most_heaviest), ..Self::default() }
    }

    /// Adds a finalized process to all sums and lists, except the list by GPU memory. Notes what it started outside of the tree.
    pub(crate) fn add(&mut self, process: &ProcessSummary) {
        self.own_usage = self.own_usage.plus(&process.own_usage.usage);
        self.unattributed_us = self.unattributed_us.saturating_add(process.own_usage.unattributed_us);
        if process.ids.is_main {
            self.main = (process.own_usage.quality != Quality::Unknown).then_some(process.own_usage.usage);
            let exit = (!process.is_still_running).then_some(process.exit);
            self.main_process = Some(MainProcessEnd { command: Arc::clone(&process.name.command), exit });
        }
        self.floors.raise(process);
        if process.is_still_running {
            self.survivors.add(process);
        }
        if let Some(missing) = process.memory.missing {
            self.ram_missing.add(missing);
        }
        // A client is a program, such as docker, that has a daemon or another host do the work.
        if let Some(call) = &process.client {
            self.elsewhere.add(call, process.lifetime_ns());
        }
        self.add_coverage(process);
        self.add_command(process);
        self.heaviest.add(process);
    }

    /// Counts where the figures of a process come from, and how it was found. CPU time of which only an upper bound is known counts as
    /// unknown, as it may be another process's. Lists the executable, if that has no dynamic loader.
    fn add_coverage(&mut self, process: &ProcessSummary) {
        let coverage = &mut self.coverage;
        coverage.processes += 1;
        match process.own_usage.quality {
            Quality::Exact => coverage.exact += 1,
            Quality::Sampled => coverage.sampled += 1,
            Quality::Bound | Quality::Unknown => coverage.unknown += 1,
        }
        let Peaks { exact, sampled, bound, unknown } = &mut coverage.peaks;
        match process.memory.peak_quality {
            Quality::Exact => *exact += 1,
            Quality::Sampled => *sampled += 1,
            Quality::Bound => *bound += 1,
            Quality::Unknown => *unknown += 1,
        }
        coverage.uninstrumented += u64::from(process.provenance.ended_without_exit_record);
        coverage.joined += u64::from(process.provenance.joined);
        if let Some(user) = process.other_user.filter(|_| process.provenance.ended_without_exit_record)
            && (self.other_users.len() < MAX_USERS || self.other_users.contains_key(&user))
        {
            *self.other_users.entry(user).or_default() += 1;
        }
        let layer = if process.provenance.has_record { Layer::Preload } else { process.provenance.found_by };
        if let Some(found) = self.found.get_mut(layer as usize) {
            *found += 1;
        }
        if let Some(path) = &process.name.static_executable
            && self.static_executables.len() < MAX_STATIC
        {
            self.static_executables.insert(path.clone());
        }
    }

    /// Adds a process to the sums of its command, or to those of [`OTHER_COMMANDS`] commands, if there are [`MAX_COMMANDS`].
    fn add_command(&mut self, process: &ProcessSummary) {
        let is_new = !self.commands.contains_key(&process.name.command);
        let name = if is_new && self.commands.len() >= MAX_COMMANDS {
            OTHER_COMMANDS.into()
        } else {
            process.name.command.clone()
        };
        let command = self.commands.entry(name).or_default();
        command.count += 1;
        command.cpu_us = command.cpu_us.saturating_add(process.own_usage.cpu_us());
        command.is_cpu_known |= process.own_usage.quality != Quality::Unknown;
        command.peak_rss_bytes = command.peak_rss_bytes.max(process.memory.peak_rss_bytes);
        command.wall_ns = command.wall_ns.saturating_add(process.wall_ns);
    }

    /// Lists the sums by command name, most CPU time first.
    pub(crate) fn by_command(&self) -> Vec<CommandUsage> {
        let mut list: Vec<_> = self.commands.iter().map(|(name, command)| command.usage(name)).collect();
        list.order_by(|a, b| {
            let key = |c: &CommandUsage| c.cpu_s.unwrap_or(0.0);
            key(b).total_cmp(&key(a)).then_with(|| a.command.cmp(&b.command))
        });
        list
    }

    /// Lists the sums of the `most` commands with most processes, most first. Also returns how many commands are left out.
    pub(crate) fn most_frequent(&self, most: usize) -> (Vec<CommandUsage>, u64) {
        let mut all: Vec<_> = self.commands.iter().collect();
        let others = all.len().saturating_sub(most);
        if others > 0 {
            all.select_nth_unstable_by(most, by_count);
            all.truncate(most);
        }
        all.order_by(by_count);
        (all.into_iter().map(|(name, command)| command.usage(name)).collect(), others as u64)
    }

    /// Lists executables without a dynamic loader.
    pub(crate) fn static_executables(&self) -> Vec<String> {
        self.static_executables.iter().cloned().collect()
    }
}

/// Orders commands by how many processes they had, most first.
fn by_count((a_name, a): &(&Arc<str>, &Command), (b_name, b): &(&Arc<str>, &Command)) -> Ordering {
    (Reverse(a.count), a_name).cmp(&(Reverse(b.count), b_name))
}

impl Command {
    /// Its sums for a report.
    fn usage(&self, name: &str) -> CommandUsage {
        CommandUsage {
            command: name.to_owned(),
            count: self.count,
            cpu_s: self.is_cpu_known.then(|| self.cpu_us as f64 / 1e6),
            peak_rss_bytes: self.peak_rss_bytes,
            wall_s: self.wall_ns as f64 / 1e9,
            calls: None,
            gpu: None,
        }
    }
}

impl Survivors {
    /// Counts a process that still runs, and lists it if it is one of the first [`MAX_SURVIVORS`].
    fn add(&mut self, process: &ProcessSummary) {
        self.count += 1;
        self.sampled += u64::from(process.own_usage.quality == Quality::Sampled);
        if self.listed.len() < MAX_SURVIVORS {
            self.listed.push(Running { pid: process.ids.pid(), command: process.name.command.to_string() });
        }
    }
}
