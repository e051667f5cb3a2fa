//! The merged report, from the sums of all reports.

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use super::idle::idle_nodes;
use super::machine::at_least_mean;
use super::merger::Merger;
use super::quantity::Scale;
use super::spread::spread;
use super::sum::Sum;
use super::sums::by_group;
use super::totals::saturated;
use super::warnings::warnings;
use super::words::counted;
use crate::figures::float;
use crate::model::groups::Groups;
use crate::model::host_name::short;
use crate::model::report::{
    AtMost, Coverage, Cpu, CpuQuota, ElsewhereKind, GpusSource, Hints, Host, IoTracks, MaxGpuRam,
    MaxProportionalRam, MaxRam, Merged, Node, NodeState, Nodes, Percent, Pressure, Processes, Report, Series,
    SetRam, SetTracks, Spread, StartedElsewhere, Swap, Track, Usable, UsableCores, UsableGpus, UsableMemory,
};
use crate::model::sorting::{InOrder, Sorting};
use crate::model::timestamp;

/// Maximum number of missing nodes that are named in the coverage.
const MOST_NAMES: usize = 1000;
/// Maximum number of nodes without a report that are listed.
const MOST_MISSING: usize = 2000;
/// Why swap, pressure and quota are null.
const NOT_OF_ONE: &str = "it is of each report alone";
/// Why private and proportional RAM are null.
const NO_SHARING: &str = "reports don't have it over time, so that of all nodes together is unknown";

impl Merger {
    /// Makes the merged report. All reports are added, and the last node and machine are closed. What is empty here although the
    /// nodes have it, such as events, is only in their reports.
    pub(super) fn assemble(mut self) -> Report {
        let grid = self.plan.grid;
        let wall_us = (grid.end_us - grid.start_us).unsigned_abs();
        let wall_s = wall_us as f64 / 1e6;
        // The sums include reports that are apart in time. Divided by the time of the run, such sums are no means: 0 makes the
        // means unknown.
        let mean_us = if self.plan.apart.is_empty() { wall_us } else { 0 };
        let missing = self.missing();
        self.nodes.order_by(|a, b| a.node.cmp(&b.node));
        let merged = self.merged(wall_s);
        let is_one_report_a_node = self.nodes.iter().all(|node| node.reports == 1);
        let unseen_ranks = self.ranks.unseen();
        let of_totals = self.totals.coverage();
        // Work that the run started outside of its tree (`elsewhere`). What was started on a node with a report is in the figures.
        let is_missing = |started: &StartedElsewhere| match (started.kind, &started.target) {
            (ElsewhereKind::Node, Some(name)) => missing.names.iter().any(|node| short(node) == short(name)),
            (ElsewhereKind::Node, None) => missing.count > 0,
            _ => true,
        };
        let coverage = Coverage {
            elsewhere: of_totals.elsewhere.iter().filter(|started| is_missing(started)).cloned().collect(),
            private_ram_reason: Some(NO_SHARING.into()),
            nodes: (missing.count > 0).then(|| Nodes {
                unseen: missing.count,
                unseen_names: missing.names.iter().take(MOST_NAMES).cloned().collect(),
            }),
            ranks: unseen_ranks,
            ..of_totals
        };
        let hints = self.hints_of_all(self.common.hints(is_one_report_a_node));
        // Nodes without a report come after the others, with nothing but a name.
        self.nodes.extend(missing.names.iter().take(MOST_MISSING).map(|node| Node {
            node: node.clone(),
            state: NodeState::NeverCheckedIn,
            ..Node::default()
        }));
        let commands = self.commands.list();
        let warnings = warnings(&self, missing.count);
        let usable = self.usable();
        let cpu_time = self.totals.cpu_time((mean_us > 0).then_some(wall_s * usable.cores.count));
        let start = UNIX_EPOCH + Duration::from_micros(grid.start_us.unsigned_abs());
        Report {
            stage: self.endings.stage(),
            command: commands.first().map(|(words, _)| words.to_vec()).unwrap_or_default(),
            attached: None,
            started_at: timestamp::representable(start),
            wall_s,
            host: Host {
                hostname: None,
                kernel: self.common.kernel(),
                cores: self.machines.cores(),
                ram_bytes: self.machines.ram_bytes(),
                boot_id: None,
            },
            ending: self.endings.ending(),
            crashes: self.processes.crashes(),
            hints,
            contention: self.common.contention(),
            time_spent: self.time_spent.time_spent(),
            io: self.totals.io(),
            faults: self.totals.faults(),
            context_switches: self.totals.context_switches(),
            max_ram: self.max_ram(),
            mean_ram_bytes: self.totals.mean_ram_bytes(mean_us),
            max_ram_proportional: MaxProportionalRam {
                reason: Some(NO_SHARING.into()),
                ..MaxProportionalRam::default()
            },
            max_ram_at_most: by_group(&self.sums.ram, |sum| sum.bounds().at_most.map(saturated)),
            swap: Swap { reason: Some(NOT_OF_ONE.into()), ..Swap::default() },
            pressure: Pressure {
                reason: Some(NOT_OF_ONE.into()),
                quota: CpuQuota { reason: Some(NOT_OF_ONE.into()), ..CpuQuota::default() },
                ..Pressure::default()
            },
            cgroup_memory: None,
            max_gpu_ram: self.max_gpu_ram(),
            cpu: self.cpu(mean_us),
            gpu: self.machines.gpu(),
            processes: self.all_processes(),
            tasks: self.tasks.list(),
            containers: self.containers.clone(),
            gpus: Vec::new(),
            peak: None,
            series: self.series(),
            cgroup: None,
            allowed: self.common.allowed(),
            run_limits: self.common.run_limits.clone(),
            alerts: Vec::new(),
            events: None,
            rank: None,
            job_ranks: Vec::new(),
            node_part: None,
            merged: Some(merged),
            ranks: self.ranks.summary(),
            nodes: self.nodes,
            usable,
            cpu_time,
            coverage,
            warnings,
        }
    }

    /// These hints, or none if nodes or ranks have no report.
    pub(super) fn hints_of_all(&self, hints: Hints) -> Hints {
        let missing = self.missing().count;
        let nodes = (missing > 0).then(|| counted(missing, "node"));
        let ranks = self.ranks.unseen().map(|ranks| format!("{} of {} ranks", ranks.unseen, ranks.expected));
        let lack: Vec<String> = nodes.into_iter().chain(ranks).collect();
        // Why there is no advice at all is said already.
        let has_no_advice = hints.memory.is_none() && hints.time.is_none() && hints.cpus.is_none();
        if lack.is_empty() || has_no_advice {
            return hints;
        }
        hints.without_a_part(format!("not in this report: {}", lack.join(", ")))
    }

    /// What only a merged report has: its files and nodes, upper bounds, and how the nodes differ.
    fn merged(&self, wall_s: f64) -> Merged {
        let (failed_node, failed_us) = self.endings.failed_node().unzip();
        let (node_start_s, node_end_s) = self.plan.grid.axis(self.bins_per_node_point());
        let at_most = |sum: &Sum| sum.bounds().at_most.map(saturated);
        Merged {
            files: self.files.clone(),
            nodes: self.read_nodes.len() as u64,
            machines: self.machines.count,
            bin_s: self.plan.grid.bin_us as f64 / 1e6,
            // No report says how far its clock can be off.
            clock_error_s: None,
            at_most: AtMost {
                system_ram_bytes: at_most(&self.machines.ram),
                gpu_ram_used_bytes: at_most(&self.machines.gpu_ram),
                gpu_ram_run_bytes: at_most(&self.sums.gpu_ram),
                processes: at_most(&self.sums.processes),
            },
            ram_bytes: self.spread_over_nodes(|node| float(node.ram.max_bytes)),
            cpu_s: self.spread_over_nodes(|node| node.cpu_s),
            gpu_energy_j: self.machines.energy_j(),
            idle_nodes: idle_nodes(self, wall_s),
            failed_node: failed_node.map(str::to_owned),
            // A report whose time has nothing to do with that of the others has no place on their axis.
            failed_s: failed_us.map(|at_us| self.plan.grid.at_s(at_us)).filter(|at_s| *at_s <= wall_s),
            unlisted_nodes: self.unlisted.nodes,
            unlisted_gpus: self.unlisted.gpus,
            node_start_s,
            node_end_s,
        }
    }

    /// How a value differs between nodes. `None`: it is known of less than two.
    fn spread_over_nodes(&self, value: impl Fn(&Node) -> Option<f64>) -> Option<Spread<String>> {
        let known: Vec<(f64, &String)> =
            self.nodes.iter().filter_map(|node| Some((value(node)?, &node.node))).collect();
        if known.len() < 2 {
            return None;
        }
        spread(known.into_iter())
    }

    /// Finds the nodes of the job of which there is no report. A name with its domain and the same name without it are one node.
    fn missing(&self) -> MissingNodes {
        let read = self.read_nodes.iter().filter_map(|number| self.plan.nodes.get(*number));
        let with_report = read.map(|node| short(&node.name)).ordered_set();
        let named = self.job_nodes.names.iter().map(|name| (short(name), name));
        // The names are sorted. So a name without its domain comes before the same name with it, and is kept.
        let mut without_report: BTreeMap<&str, &String> = BTreeMap::new();
        for (short, name) in named.filter(|(short, _)| !with_report.contains(short)) {
            without_report.entry(short).or_insert(name);
        }
        let names: Vec<String> = without_report.into_values().cloned().collect();
        // Reports can count more nodes than they name.
        let by_count = self.job_nodes.most.saturating_sub(self.read_nodes.len() as u64);
        let count = (names.len() as u64).max(by_count);
        MissingNodes { names, count }
    }

    /// Figures whose sums lack the reports in which they are unknown, each with the number of these reports.
    pub(super) fn unknown(&self) -> Vec<(&'static str, u64)> {
        let over_time = [
            ("RAM", self.sums.ram.combined.unknown),
            ("largest CPU utilization", self.sums.cpu.combined.unknown),
            ("processes at one time", self.sums.processes.unknown),
            ("memory in use by all programs", self.machines.ram.unknown),
        ];
        self.totals.unknown().into_iter().chain(over_time).collect()
    }

    /// What the command may use on all nodes together.
    fn usable(&self) -> Usable {
        let of_nodes = &self.usable;
        // If the memory of one node is unknown, that of all together is.
        let memory_bytes = of_nodes.memory_bytes.whole().map(saturated);
        let gpus = self.machines.usable_gpus();
        let source = if of_nodes.gpus_by_environment { GpusSource::Environment } else { GpusSource::Tracked };
        Usable {
            cores: UsableCores { count: of_nodes.cores, source: of_nodes.cores_source.unwrap_or_default() },
            memory: UsableMemory {
                bytes: memory_bytes,
                source: of_nodes.memory_source.filter(|_| memory_bytes.is_some()),
                process_address_space_bytes: of_nodes.address_space_bytes,
            },
            gpus: UsableGpus { count: gpus, source: gpus.map(|_| source) },
        }
    }

    /// The lower bounds of the largest RAM. The upper ones are in `max_ram_at_most` and `merged.at_most`.
    fn max_ram(&self) -> MaxRam {
        let set =
            |sum: &Sum| SetRam { footprint_bytes: sum.bounds().at_least.map(saturated), ..SetRam::default() };
        let Groups { main, descendants, combined } = by_group(&self.sums.ram, set);
        MaxRam {
            system_capacity_bytes: self.machines.ram_bytes(),
            system_bytes: self.machines.ram.bounds().at_least.map(saturated),
            main,
            descendants,
            combined,
        }
    }

    /// The largest GPU memory of the run's processes, and that of the machines.
    fn max_gpu_ram(&self) -> MaxGpuRam {
        MaxGpuRam {
            main_bytes: self.sums.gpu_main.max(),
            descendants_bytes: self.sums.gpu_descendants.max(),
            combined_bytes: self.sums.gpu_ram.at_least_of_all().map(saturated),
            ..self.machines.gpu_ram()
        }
    }

    /// The CPU utilization. The mean is over `wall_us`; it is unknown if that is 0. Threads are not summed.
    fn cpu(&self, wall_us: u64) -> Cpu {
        let max = by_group(&self.sums.cpu, |sum| sum.at_least(Scale::Percent));
        // The known maximum is a lower bound. It can be below the mean, which raises it then.
        let percent = max.with(self.totals.mean_percent(wall_us), |max, mean_sum| Percent {
            max_sum: at_least_mean(max, mean_sum),
            mean_sum,
        });
        Cpu {
            system_core_count: self.machines.cores(),
            expected_cores: u32::try_from(self.usable.expected_cores).unwrap_or(u32::MAX),
            system: self.machines.cpu_percent(),
            main: percent.main,
            descendants: percent.descendants,
            combined: percent.combined,
            main_threads: None,
            descendants_threads: None,
            combined_threads: None,
        }
    }

    /// The processes of all reports: counts, commands and the heaviest. Those that still run are listed in the nodes' reports. The
    /// largest SM utilization is unknown: it is a sum at one moment, and the reports have only their own largest sums.
    fn all_processes(&self) -> Processes {
        Processes {
            total: self.totals.processes.sum().map_or(0, saturated),
            max_concurrent: self.sums.processes.bounds().at_least.map(saturated),
            still_running: self.totals.still_running.whole().map(saturated),
            still_running_processes: Vec::new(),
            by_command: self.processes.by_command(),
            calls_reason: self.totals.command_calls_reason(),
            heaviest: self.processes.heaviest(),
            max_sm_percent: None,
        }
    }

    /// The sums of all nodes over time. GPUs, commands and file systems are in the reports of the nodes.
    fn series(&self) -> Series {
        let grid = self.plan.grid;
        let bins_per_point = grid.bins.div_ceil(Series::MOST_POINTS);
        let (start_s, end_s) = grid.axis(bins_per_point);
        let track = |sum: &Sum, scale: Scale| {
            let line = sum.line(bins_per_point);
            let values = |list: Vec<Option<u128>>| -> Vec<Option<f64>> {
                list.into_iter().map(|units| units.map(|units| scale.value(units))).collect()
            };
            Track { min: values(line.min), mean: values(line.mean), max: values(line.max) }
        };
        let sets = |groups: &Groups<Sum>, system: &Sum, scale: Scale| SetTracks {
            main: track(&groups.main, scale),
            descendants: track(&groups.descendants, scale),
            combined: track(&groups.combined, scale),
            system: track(system, scale),
        };
        Series {
            start_s,
            end_s,
            ram_bytes: sets(&self.sums.ram, &self.machines.ram, Scale::Whole),
            cpu_percent: sets(&self.sums.cpu, &self.machines.cpu, Scale::Percent),
            processes: track(&self.sums.processes, Scale::Whole),
            io_bytes_per_s: IoTracks {
                read: track(&self.sums.read, Scale::Whole),
                written: track(&self.sums.written, Scale::Whole),
            },
            ..Series::default()
        }
    }
}

/// Nodes without a report.
struct MissingNodes {
    /// Those whose names are known.
    names: Vec<String>,
    /// How many there are at least.
    count: u64,
}
