//! The processes of several reports: sums by command name, the heaviest ones, and those that crashed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use super::head::cut;
use super::totals::{millionths, saturated};
use crate::command_sums::CommandSums;
use crate::model::report::{
    CommandUsage, Crash, CrashPlace, HeavyProcess, JobRank, OTHER_COMMANDS, ProcessUsage, Report,
};
use crate::model::sorting::Sorting;

/// Maximum number of command names with sums of their own while reports are read; the others share one sum.
const MOST_NAMES: usize = 20_000;
/// Maximum number of command names that are listed, those with most CPU time, and of kinds of crashes.
const LISTED: usize = 1000;
/// How many single processes are listed of each kind: as many as a report has by default.
const HEAVIEST: usize = 10;
/// Maximum number of places that are named for crashes of one kind.
const MOST_PLACES: usize = 10;
/// Arguments of a process are kept if they have at most this many bytes, because those of thousands of processes pass through
/// memory.
const MOST_ARGUMENTS: usize = 8192;

/// The processes so far.
#[derive(Debug, Default)]
pub(super) struct MergedProcesses {
    commands: HashMap<String, CommandSums>,
    /// The heaviest processes by CPU time, by peak RSS, and by GPU memory, in the order of [`WEIGHTS`].
    heaviest: [Vec<HeavyProcess>; 3],
    /// The crashes of each kind. `None`: no report has a list.
    crashes: Option<BTreeMap<CrashKind, Crash>>,
}

/// Crashes that count together, in the order in which those of equal counts are listed.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct CrashKind {
    is_probe: bool,
    signal: i32,
    command: Option<String>,
}

impl MergedProcesses {
    /// Adds the processes of a report of this node. Its command started `start_s` seconds after the first one; `None`: its time
    /// has nothing to do with that of the others.
    pub(super) fn add(&mut self, node: &str, report: &Report, start_s: Option<f64>) {
        for usage in &report.processes.by_command {
            self.command(&usage.command).add(usage);
        }
        for process in &report.processes.heaviest {
            self.add_heavy(node, process, start_s);
        }
        if let Some(crashes) = &report.crashes {
            self.add_crashes(node, crashes, &report.job_ranks);
        }
    }

    /// Adds the list of crashes of a report of this node, whose command started these ranks. An empty list says that nothing crashed.
    /// Kinds beyond [`LISTED`] are left out.
    fn add_crashes(&mut self, node: &str, of_report: &[Crash], ranks: &[JobRank]) {
        let crashes = self.crashes.get_or_insert_default();
        for crash in of_report {
            let Crash { is_probe, signal, .. } = *crash;
            let kind = CrashKind { is_probe, signal, command: crash.command.as_deref().map(cut) };
            if crashes.len() < LISTED || crashes.contains_key(&kind) {
                let command = kind.command.clone();
                let merged = crashes.entry(kind).or_insert_with(|| Crash {
                    command,
                    signal_name: cut(&crash.signal_name),
                    count: 0,
                    places: Vec::new(),
                    ..*crash
                });
                merged.count = merged.count.saturating_add(crash.count);
                let room = MOST_PLACES.saturating_sub(merged.places.len());
                merged.places.extend(places(node, crash, ranks).into_iter().take(room));
            }
        }
    }

    /// The sums of a command name, or those that new names share if there are too many.
    fn command(&mut self, name: &str) -> &mut CommandSums {
        let name = cut(name);
        let is_new = !self.commands.contains_key(&name);
        let name = if is_new && self.commands.len() >= MOST_NAMES { OTHER_COMMANDS.to_owned() } else { name };
        self.commands.entry(name).or_default()
    }

    /// Keeps a process in each list of the heaviest that it belongs to. `start_s` is as in [`MergedProcesses::add`].
    fn add_heavy(&mut self, node: &str, process: &HeavyProcess, start_s: Option<f64>) {
        let usage = &process.usage;
        for (list, weight_of) in self.heaviest.iter_mut().zip(WEIGHTS) {
            let weight = weight_of(usage);
            // `None`: the list is not full yet.
            let least = list.get(HEAVIEST - 1).map(|process| weight_of(&process.usage));
            if weight == 0 || least.is_some_and(|least| weight < least) {
                continue;
            }
            let bytes = |args: &[String]| args.iter().map(|arg| arg.len() + 1).sum::<usize>();
            let args = usage.args.as_ref().filter(|args| bytes(args) <= MOST_ARGUMENTS);
            list.push(HeavyProcess {
                node: Some(node.to_owned()),
                start_s: Option::zip(start_s, process.start_s).map(|(start_s, after_s)| start_s + after_s),
                usage: ProcessUsage { command: cut(&usage.command), args: args.cloned(), ..usage.clone() },
            });
            list.sort_by_cached_key(|process| {
                (Reverse(weight_of(&process.usage)), process.node.clone(), process.usage.pid)
            });
            list.truncate(HEAVIEST);
        }
    }

    /// Lists sums by command name, most CPU time first, and a sum of the names beyond [`LISTED`] last.
    pub(super) fn by_command(&self) -> Vec<CommandUsage> {
        let mut all: Vec<_> = self.commands.iter().collect();
        all.sort_by_cached_key(|(name, command)| {
            (*name == OTHER_COMMANDS, Reverse(command.cpu_us.unwrap_or(0)), (*name).clone())
        });
        let rest = all.split_off(all.len().min(LISTED));
        let mut list: Vec<CommandUsage> = all.iter().map(|(name, command)| command.usage(name)).collect();
        if !rest.is_empty() {
            let mut others = CommandSums::default();
            rest.iter().for_each(|(_, command)| others.join(command));
            list.push(others.usage(OTHER_COMMANDS));
        }
        list
    }

    /// Lists single processes, each once: those with most CPU time, then with the largest peak RSS, then with the largest GPU
    /// memory.
    pub(super) fn heaviest(&self) -> Vec<HeavyProcess> {
        let mut list: Vec<HeavyProcess> = Vec::new();
        for process in self.heaviest.iter().flatten() {
            if !list.contains(process) {
                list.push(process.clone());
            }
        }
        list
    }

    /// Lists what crashed, the most crashes first. Probes, the test programs of build systems, come last. `None`: no report has a
    /// list.
    pub(super) fn crashes(&self) -> Option<Vec<Crash>> {
        let mut list: Vec<Crash> = self.crashes.as_ref()?.values().cloned().collect();
        list.order_by_key(|crash| (crash.is_probe, Reverse(crash.count)));
        Some(list)
    }
}

/// Names where the processes of a crash on this node were: the ranks whose first process crashed, or the node if there are none.
fn places(node: &str, crash: &Crash, ranks: &[JobRank]) -> Vec<CrashPlace> {
    let has_crashed = |rank: &&JobRank| {
        rank.exit.signal == Some(crash.signal) && crash.command.as_ref() == Some(&rank.command)
    };
    let at = |rank: Option<u32>| CrashPlace { node: node.to_owned(), rank };
    let mut places: Vec<CrashPlace> =
        ranks.iter().filter(has_crashed).take(MOST_PLACES).map(|rank| at(Some(rank.rank.rank))).collect();
    if places.is_empty() {
        places.push(at(None));
    }
    places
}

/// What the heaviest processes are chosen by: CPU time, microseconds; peak RSS, bytes; peak GPU memory, bytes. 0: unknown.
const WEIGHTS: [fn(&ProcessUsage) -> u64; 3] = [
    |process| saturated(process.cpu_s.map_or(0, millionths)),
    |process| process.peak_rss_bytes.unwrap_or(0),
    |process| process.gpu.as_ref().and_then(|gpu| gpu.peak_ram_bytes).unwrap_or(0),
];
