//! The nodes of a merged report, and the ranks of any: how much of each, what is missing, and where to look for an imbalance.

use std::borrow::Cow;
use std::cmp::Reverse;

use super::{busy_cores, within};
use crate::document::{Block, Cell, Column, Section, Table, Tone};
use crate::figures::{UNKNOWN, count, energy, exit, float, number, readable, short, thousands};
use crate::merge::{is_sent, ranks_of_report};
use crate::model::report::{Exit, Merged, Node, NodeState, RankPlace, RankUsage, Ranks, Report, Spread};
use crate::model::sorting::Sorting;
use crate::model::style::RamUnit;
use crate::quote;
use crate::units::Units;

/// Maximum number of nodes that a row of the summary names.
const MAX_NAMED: usize = 3;
/// Maximum number of columns of a node's name in the summary.
const NAME_COLUMNS: usize = 24;
/// An upper bound is shown only if it exceeds the lower bound by more than this part of it.
const NEGLIGIBLE: f64 = 0.01;

/// Makes the summary's rows. The report of one node has at most the row of the ranks, if its command started several. Rows of how many
/// nodes differ are taken from `lines_left`.
pub(super) fn rows(report: &Report, units: Units, lines_left: &mut usize) -> Vec<Block> {
    let mut within = |row| within(lines_left, row);
    let rows: Vec<(&str, Tone, Option<String>)> = match &report.merged {
        None => {
            vec![("Nodes", Tone::Caution, this_alone(report)), ("Ranks", Tone::Plain, ranks_here(report))]
        }
        Some(merged) => vec![
            ("GPUs", Tone::Plain, gpu_use(report, merged, units)),
            ("Nodes", Tone::Plain, Some(count_of_nodes(report, merged, units))),
            ("Node RAM", Tone::Plain, within(ram_of_nodes(report, units))),
            ("Node CPU", Tone::Plain, within(cpu_of_nodes(report))),
            ("Node end", Tone::Caution, within(ends_of_nodes(report))),
            ("Idle nodes", Tone::Caution, idle_nodes(report, merged)),
            // If the ranks are not known, the row says how much the nodes differ.
            ("Imbalance", Tone::Plain, imbalance_of_ranks(report).or_else(|| imbalance_of_nodes(merged))),
            ("Failed", Tone::Bad, failed_nodes(report)),
        ],
    };
    let row = |(label, tone, text): (&str, _, Option<_>)| {
        Some(Block::Row(label.to_owned(), vec![Cell::Text(tone, text?)]))
    };
    rows.into_iter().filter_map(row).collect()
}

/// Says that the report is of the launcher's node alone, and what makes that of all nodes. `None`: the run had one node, or the report is
/// an agent's.
pub(super) fn this_alone(report: &Report) -> Option<String> {
    let part = report.node_part.as_ref().filter(|part| !part.is_agent)?;
    let directory = quote::words(&[part.directory.as_ref()?]);
    Some(format!("this one alone; the report of all nodes: gpu-track merge {directory}"))
}

/// Says what the largest RAM can have been at most. `None`: that is unknown, hardly above the lower bound ([`NEGLIGIBLE`]), or the
/// report is of one node.
fn at_most(report: &Report, units: Units) -> Option<String> {
    report.merged.as_ref()?;
    let (least, most) = (report.max_ram.combined.footprint_bytes?, report.max_ram_at_most.combined?);
    let is_more = most as f64 > least as f64 * (1.0 + NEGLIGIBLE);
    is_more.then(|| units.bytes(most))
}

/// Says that the largest RAM is a lower bound, and what the upper one is if that is known. `None`: both bounds are about the same, or
/// the report is of one node.
pub(super) fn bounds(report: &Report, units: Units) -> Option<String> {
    report.merged.as_ref()?;
    match report.max_ram_at_most.combined {
        Some(_) => at_most(report, units).map(|most| format!("at least; at most {most}")),
        None => Some("at least".to_owned()),
    }
}

/// Formats how many GPUs there are, how busy they were, how much of their memory the run held, and their energy. `None`: there are
/// none.
fn gpu_use(report: &Report, merged: &Merged, units: Units) -> Option<String> {
    let count = report.gpu.expected_gpus.filter(|count| *count > 0)?;
    let busy = report.gpu.percent.mean_hardware(Some(count)).map(|percent| format!("{percent:.0} % busy"));
    let ram = &report.max_gpu_ram;
    let of = ram.system_capacity_bytes.map(|bytes| format!(" of {}", units.gpu_bytes(bytes)));
    let held =
        ram.combined_bytes.map(|bytes| format!("{}{}", units.gpu_bytes(bytes), of.unwrap_or_default()));
    let known: Vec<String> = [busy, held, merged.gpu_energy_j.map(energy)].into_iter().flatten().collect();
    Some(format!("{}: {}", thousands(count.into()), known.join(", ")))
}

/// Makes the text `2, 12 ranks: n3 41.2 GB, n1 40.9 GB`: how many nodes and ranks there are. Few nodes are named, with their RAM; of more,
/// rows of their own say how they differ.
fn count_of_nodes(report: &Report, merged: &Merged, units: Units) -> String {
    let ranks = report.ranks.as_ref().map(|ranks| format!(", {} ranks", thousands(ranks.seen as f64)));
    let count = format!("{}{}", thousands(merged.nodes as f64), ranks.unwrap_or_default());
    let mut nodes: Vec<&Node> = with_reports(report).collect();
    if nodes.len() > MAX_NAMED {
        return count;
    }
    nodes.order_by_key(|node| Reverse(node.ram.max_bytes));
    let ram = |node: &&Node| {
        let ram = node.ram.max_bytes.map_or(UNKNOWN.to_owned(), |bytes| units.bytes(bytes));
        format!("{} {ram}", short_name(&node.node))
    };
    let named: Vec<String> = nodes.iter().map(ram).collect();
    format!("{count}: {}", named.join(", "))
}

/// The nodes of which there is a report.
fn with_reports(report: &Report) -> impl Iterator<Item = &Node> {
    report.nodes.iter().filter(|node| node.reports > 0)
}

/// The nodes that are known by this value, the largest first, if they are too many to name each. Else none.
fn by_value<'a>(report: &'a Report, value: &dyn Fn(&Node) -> Option<f64>) -> Vec<(f64, &'a Node)> {
    let mut known: Vec<(f64, &Node)> =
        with_reports(report).filter_map(|node| Some((value(node)?, node))).collect();
    known.order_by(|(a, _), (b, _)| b.total_cmp(a));
    if known.len() > MAX_NAMED { known } else { Vec::new() }
}

/// Makes the text `max 41.2 GB (n3), median 20.0 GB (n1), min 0.050 GB (n7)`. `known` is as [`by_value`] makes it. `None`: it is empty.
fn largest_to_smallest(known: &[(f64, &Node)], text: &dyn Fn(f64) -> String) -> Option<String> {
    let [largest, .., smallest] = known else { return None };
    let places = [("max", largest), ("median", &known[known.len() / 2]), ("min", smallest)];
    let place = |(word, (value, node)): (&str, &(f64, &Node))| {
        format!("{word} {} ({})", text(*value), short_name(&node.node))
    };
    Some(places.map(place).join(", "))
}

/// How the largest RAM of the nodes differs, in the unit that fits one of them. `None`: they are few.
fn ram_of_nodes(report: &Report, units: Units) -> Option<String> {
    let known = by_value(report, &|node| float(node.ram.max_bytes));
    let unit =
        units.asked_ram.unwrap_or_else(|| RamUnit::that_fits(known.first().map_or(0.0, |(most, _)| *most)));
    largest_to_smallest(&known, &|bytes| format!("{} {}", short(unit.convert(bytes)), unit.symbol()))
}

/// How the busy cores of the nodes differ. `None`: they are few.
fn cpu_of_nodes(report: &Report) -> Option<String> {
    largest_to_smallest(&by_value(report, &|node| node.busy_cores), &busy_cores)
}

/// When the nodes ended, if one ended clearly later than most. `None`: none did, or they are few.
fn ends_of_nodes(report: &Report) -> Option<String> {
    /// A node that ends later than half of the others by this part of the run is a straggler.
    const LATE_PART: f64 = 0.05;
    let known = by_value(report, &|node| {
        let end = node.last_heard_at.filter(|_| node.state == NodeState::Final && node.silent_s.is_some())?;
        end.0.duration_since(report.started_at).ok().map(|after| after.as_secs_f64())
    });
    let (last_s, median_s) = (known.first()?.0, known[known.len() / 2].0);
    if last_s - median_s < LATE_PART * report.wall_s {
        return None;
    }
    largest_to_smallest(&known, &readable)
}

/// Makes the text `2 of 8, below 1 % of CPU and GPU: n3, n7`. `None`: no node was idle.
fn idle_nodes(report: &Report, merged: &Merged) -> Option<String> {
    let names = listed(merged.idle_nodes.iter().map(|node| short_name(node)))?;
    let has_gpus = report.gpu.expected_gpus.is_some_and(|count| count > 0);
    let (idle, all) = (thousands(merged.idle_nodes.len() as f64), thousands(merged.nodes as f64));
    Some(format!("{idle} of {all}, below 1 % of CPU{}: {names}", if has_gpus { " and GPU" } else { "" }))
}

/// Makes the text `CPU 1.31 (n3), RAM 1.04 (n1)`. `None`: neither is known.
fn imbalance_of_nodes(merged: &Merged) -> Option<String> {
    let place = |node: &String| short_name(node);
    joined([
        largest_over_mean("CPU", merged.cpu_s.as_ref(), place),
        largest_over_mean("RAM", merged.ram_bytes.as_ref(), place),
    ])
}

/// The ranks: those that a merged report has, else those that the command of a report started. `None`: there are none.
fn all_ranks(report: &Report) -> Option<Cow<'_, Ranks>> {
    let merged = report.ranks.as_ref().map(Cow::Borrowed);
    merged.or_else(|| ranks_of_report(report).map(Cow::Owned))
}

/// Makes the text `8, imbalance CPU 1.17 (rank 3), RAM 1.24 (rank 5)`. `None`: the command did not start several ranks here.
fn ranks_here(report: &Report) -> Option<String> {
    let ranks = all_ranks(report)?;
    Some(format!("{}, imbalance {}", thousands(ranks.seen as f64), imbalance_of_ranks(report)?))
}

/// Makes the text `rank 3 on n2 failed first, with exit 3 at 1.10 s`. An exit that is the run's is left out. `None`: no rank and no
/// node is known to have failed by itself, or the run succeeded.
pub(super) fn first_failed(report: &Report, units: Units) -> Option<String> {
    let Failed { place, exit, at_s } = earliest_failed(report).filter(|failed| !is_sent(failed.exit))?;
    let how = match exit {
        _ if exit == report.ending.exit => String::new(),
        Exit { code: Some(_), .. } => format!(" with {}", ended(exit)),
        Exit { code: None, .. } => format!(" by {}", ended(exit)),
    };
    let at = at(at_s, units);
    let comma = if how.is_empty() && at.is_empty() { "" } else { "," };
    // What is missing can have failed before.
    let coverage = &report.coverage;
    let is_part_missing = coverage.ranks.is_some()
        || coverage.nodes.is_some()
        || report.nodes.iter().any(|node| node.state != NodeState::Final);
    let of_known = if is_part_missing { " of those known" } else { "" };
    Some(format!("{place} failed first{of_known}{comma}{how}{at}"))
}

/// Says which rank or node ended first if all that failed were ended from outside: what failed before is not in the report. `None` is as
/// in [`first_failed`].
pub(super) fn first_ended(report: &Report, units: Units) -> Option<String> {
    let Failed { place, exit, at_s } = earliest_failed(report).filter(|failed| is_sent(failed.exit))?;
    let (end, at) = (ended(exit), at(at_s, units));
    Some(format!("none is known to have failed by itself; {place} ended first: {end}{at}"))
}

/// A rank or a node that failed.
struct Failed {
    place: String,
    exit: Exit,
    /// When it ended, seconds after the first start. `None`: unknown.
    at_s: Option<f64>,
}

/// The rank that failed first, or the node if no rank is known. `None`: neither is known, or the run succeeded.
fn earliest_failed(report: &Report) -> Option<Failed> {
    if report.ending.is_success() {
        return None;
    }
    let rank = all_ranks(report).and_then(|ranks| {
        let failed = ranks.first_failed.as_ref()?;
        Some(Failed { place: rank_place(report, &failed.place), exit: failed.exit, at_s: Some(failed.at_s) })
    });
    rank.or_else(|| {
        // A command that ended at a limit of the run can have exited with 0.
        let exit = Some(report.ending.exit).filter(|exit| exit.code != Some(0))?;
        let merged = report.merged.as_ref()?;
        Some(Failed { place: short_name(merged.failed_node.as_ref()?), exit, at_s: merged.failed_s })
    })
}

/// Makes the text ` at 1.10 s`; empty if that is unknown.
fn at(at_s: Option<f64>, units: Units) -> String {
    at_s.map(|at_s| format!(" at {}", units.seconds(at_s))).unwrap_or_default()
}

/// Makes the text `rank 3 on n1`, or `rank 3` in a report of one node, which has all ranks on that one.
fn rank_place(report: &Report, place: &RankPlace) -> String {
    let on_node = report.merged.is_some().then(|| format!(" on {}", short_name(&place.node)));
    format!("rank {}{}", place.rank, on_node.unwrap_or_default())
}

/// Makes the text `CPU 1.17 (rank 3 on n1), RAM 1.24 (rank 5 on n2)`. `None`: there are no two ranks, or nothing is known of them.
fn imbalance_of_ranks(report: &Report) -> Option<String> {
    let ranks = all_ranks(report).filter(|ranks| ranks.seen > 1)?;
    let place = |place: &RankPlace| rank_place(report, place);
    joined([
        largest_over_mean("CPU", ranks.cpu_s.as_ref(), place),
        largest_over_mean("RAM", ranks.peak_ram_bytes.as_ref(), place),
        largest_over_mean("GPU RAM", ranks.peak_gpu_ram_bytes.as_ref(), place),
    ])
}

/// Makes the text `CPU 1.31 (n3)`: the largest value over the mean, and where it is. `None`: that is not known.
fn largest_over_mean<P>(
    quantity: &str,
    spread: Option<&Spread<P>>,
    place: impl Fn(&P) -> String,
) -> Option<String> {
    let spread = spread?;
    Some(format!("{quantity} {} ({})", short(spread.imbalance?), place(&spread.max_at)))
}

/// Joins what is known. `None`: nothing is.
fn joined<const N: usize>(parts: [Option<String>; N]) -> Option<String> {
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Names the nodes on which the command failed. `None`: it failed on none.
fn failed_nodes(report: &Report) -> Option<String> {
    let is_failed = |node: &&Node| node.exit.signal.is_some() || node.exit.code.is_some_and(|code| code != 0);
    let mut failed: Vec<&Node> = report.nodes.iter().filter(is_failed).collect();
    let first = report.merged.as_ref().and_then(|merged| merged.failed_node.as_ref());
    failed.order_by_key(|node| first != Some(&node.node));
    listed(failed.iter().map(|node| format!("{} {}", short_name(&node.node), ended(node.exit))))
}

/// Says how the command ended on a node: `exit 1`, or `SIGKILL`.
fn ended(how: Exit) -> String {
    how.code.map_or_else(|| exit(how), |code| format!("exit {code}"))
}

/// Joins the first of some texts, and counts the others. `None`: there are none.
fn listed(texts: impl Iterator<Item = String>) -> Option<String> {
    let all: Vec<String> = texts.collect();
    let (shown, others) = all.split_at(all.len().min(MAX_NAMED));
    let more = (!others.is_empty()).then(|| format!("{} more", others.len()));
    let shown: Vec<String> = shown.iter().cloned().chain(more).collect();
    (!shown.is_empty()).then(|| shown.join(", "))
}

/// A node's name, escaped and cut for the summary.
fn short_name(node: &str) -> String {
    quote::cut(&quote::escape(node), NAME_COLUMNS)
}

/// Makes the section of the nodes; empty in the report of one. Its table begins with the nodes that have no final report, and those
/// that were idle. After them come the others; each have most RAM first.
pub(super) fn nodes(report: &Report, units: Units) -> Section {
    let section = Section::new("Nodes");
    let Some(merged) = &report.merged else { return section };
    let machines = (merged.machines != merged.nodes).then(|| merged.machines.to_string());
    let section = section
        .count("Nodes", merged.nodes)
        .text("Machines", machines)
        .count("Reports", merged.files.read)
        .text("Bins", format!("{} s", merged.bin_s))
        .text("Combined RAM at most", at_most(report, units))
        .text("Peak RAM", ram_of_nodes(report, units))
        .text("Busy cores", cpu_of_nodes(report))
        .text("End", ends_of_nodes(report))
        .text("Idle", idle_nodes(report, merged))
        .text("Imbalance of nodes", imbalance_of_nodes(merged))
        .text("Imbalance of ranks", imbalance_of_ranks(report));
    let (ram, time) = (units.ram.symbol(), units.time.symbol());
    let head = [
        Column::count("Reports"),
        Column::number("Peak RAM", ram),
        Column::number("Usable", ram),
        Column::number("CPU", time),
        Column::number("Busy", "cores"),
        Column::count("Processes"),
        Column::text("State"),
        Column::text("Node"),
    ];
    let mut nodes: Vec<&Node> = report.nodes.iter().collect();
    let is_idle = |node: &Node| merged.idle_nodes.binary_search(&node.node).is_ok();
    nodes.order_by_key(|node| (node.state == NodeState::Final, !is_idle(node), Reverse(node.ram.max_bytes)));
    let rows = nodes.into_iter().map(|node| {
        [
            node.reports.to_string(),
            units.ram_cell(node.ram.max_bytes),
            units.ram_cell(node.ram.usable_bytes),
            units.time_cell(node.cpu_s),
            number(node.busy_cores),
            count(node.processes),
            if is_idle(node) { "idle" } else { state_in_words(node) }.to_owned(),
            node.node.clone(),
        ]
    });
    let unread = merged.files.unread_files.iter().map(|file| format!("{}: {}", file.file, file.reason));
    section
        .section(Section::default().table(Table::new(head, rows)))
        .section(Section::list("Files not read", unread.collect()))
}

fn state_in_words(node: &Node) -> &'static str {
    match node.state {
        NodeState::Final => "final",
        NodeState::LastHeard => "not final",
        NodeState::Recovered => "recovered",
        NodeState::NeverCheckedIn => "no report",
    }
}

/// Makes the section of the ranks.
pub(super) fn ranks(report: &Report, units: Units) -> Section {
    let section = Section::new("Ranks");
    let Some(ranks) = all_ranks(report) else { return section };
    let missing: Vec<String> = ranks.missing.iter().map(u32::to_string).collect();
    let missing = (!missing.is_empty()).then(|| missing.join(", "));
    section
        .text("With figures", format!("{} of {}", ranks.seen, ranks.expected))
        // A merged report has it in the section of the nodes.
        .text("Imbalance", if report.merged.is_none() { imbalance_of_ranks(report) } else { None })
        .text("Without figures", missing)
        .section(Section::new("Heaviest").table(ranks_table(&ranks.heaviest, units)))
        .section(Section::new("Lightest").table(ranks_table(&ranks.lightest, units)))
}

/// Makes a table of ranks: a row for each, in the order that is given.
fn ranks_table(ranks: &[RankUsage], units: Units) -> Table {
    let (ram, time) = (units.ram.symbol(), units.time.symbol());
    let head = [
        Column::count("Rank"),
        Column::count("PID"),
        Column::count("Exit"),
        Column::number("CPU", time),
        Column::number("Peak RAM", ram),
        Column::number("Peak GPU RAM", units.gpu_ram.symbol()),
        Column::number("Wall", time),
        Column::text("Node"),
    ];
    let rows = ranks.iter().map(|rank| {
        [
            rank.place.rank.to_string(),
            count(rank.pid.map(u64::from)),
            exit(rank.exit),
            units.time_cell(rank.cpu_s),
            units.ram_cell(rank.peak_ram_bytes),
            units.gpu_ram_cell(rank.peak_gpu_ram_bytes),
            units.time_cell(Some(rank.wall_s)),
            rank.place.node.clone(),
        ]
    });
    Table::new(head, rows)
}
