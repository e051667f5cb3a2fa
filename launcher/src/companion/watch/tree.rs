//! The rows of the process tree. Siblings of one command share a row, unless the user asks for a row for each process.

use gpu_track_collector::model::sorting::{InOrder, Sorting};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use super::frame::{EndedCommand, Frame, Process};

/// Most levels of the tree that have rows. Another program may have written the tracking file, with a chain of any length.
const MOST_LEVELS: usize = 256;
/// Most rows of live processes. Each has the names of all rows above it as its key.
const MOST_ROWS: usize = 4_096;

/// By what siblings are sorted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Sort {
    /// RSS, the largest first.
    #[default]
    Rss,
    /// CPU utilization, and CPU time where that is not known, the largest first.
    Cpu,
    /// GPU memory, the largest first.
    Gpu,
    /// The command's name.
    Name,
}

impl Sort {
    /// The order that follows this one when the user presses the key for sorting.
    pub(super) const fn next(self) -> Self {
        match self {
            Self::Rss => Self::Cpu,
            Self::Cpu => Self::Gpu,
            Self::Gpu => Self::Name,
            Self::Name => Self::Rss,
        }
    }

    /// The order's name, for the title of the processes.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Rss => "RSS",
            Self::Cpu => "CPU",
            Self::Gpu => "GPU memory",
            Self::Name => "name",
        }
    }
}

/// How the tree is shown.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Shape {
    pub(super) sort: Sort,
    /// Each process has a row. Otherwise siblings of one command share one.
    pub(super) is_each_process: bool,
    /// Rows whose children are hidden, by their keys.
    pub(super) folded: BTreeSet<Key>,
    /// Only processes whose command contains this, in upper or lower case, have rows. Empty: all.
    pub(super) filter: String,
}

/// The commands of a row and of those above it, from the top; each with its pid where each process has a row. Names can be long, so
/// keys share them.
pub(super) type Key = Vec<(Rc<str>, Option<u64>)>;

/// CPU utilization of processes by pid and start, percent of one core.
pub(super) type Rates = HashMap<(u64, u64), f64>;

/// A row of the process tree.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Row {
    pub(super) key: Key,
    /// The number of rows above it in the tree.
    pub(super) depth: usize,
    pub(super) command: String,
    /// Its pid, if the row is one process.
    pub(super) pid: Option<u64>,
    /// Number of live processes in the row.
    pub(super) live: u64,
    /// RSS of the live processes, bytes. `None`: known of none.
    pub(super) rss_bytes: Option<u64>,
    /// Their CPU utilization, percent of one core. `None`: known of none.
    pub(super) cpu_percent: Option<f64>,
    /// Their CPU time, seconds. `None`: known of none.
    pub(super) cpu_s: Option<f64>,
    /// Their GPU memory, bytes. `None`: known of none.
    pub(super) gpu_bytes: Option<u64>,
    /// Ended processes of the command, anywhere in the tree. Only its first row has them.
    pub(super) ended: Option<EndedCommand>,
    /// It has children in the tree.
    pub(super) has_children: bool,
    /// Its children are hidden.
    pub(super) is_folded: bool,
}

/// The rows of the processes that the filter leaves, with the ended processes of each command. Also returns how many processes have
/// no row, because they are too deep in the tree or there are too many rows.
pub(super) fn rows(frame: &Frame, rates: &Rates, shape: &Shape) -> (Vec<Row>, u64) {
    let wanted = shape.filter.to_lowercase();
    let is_wanted = |command: &str| wanted.is_empty() || command.to_lowercase().contains(&wanted);
    let processes: Vec<&Process> =
        frame.listed.iter().filter(|process| is_wanted(&process.command)).collect();
    let forest = Forest::new(&processes);
    let seen = vec![false; processes.len()];
    let mut builder = Builder { forest, rates, shape, rows: Vec::new(), unlisted: 0, seen };
    let roots = builder.forest.roots.clone();
    let no_row_above = Key::new();
    builder.add_siblings(&roots, &no_row_above);
    // Another program may have written parents in a circle, which have no root: they are shown from any of them on.
    for process in 0..processes.len() {
        if !builder.seen[process] {
            builder.add_siblings(&[process], &no_row_above);
        }
    }
    let (mut rows, unlisted) = (builder.rows, builder.unlisted);
    let by_command = frame.ended.iter().flat_map(|ended| &ended.by_command);
    let wanted_ended = by_command.filter(|(name, _)| is_wanted(name));
    add_ended(&mut rows, wanted_ended.map(|(name, of)| (name.as_str(), *of)).ordered_map());
    (rows, unlisted)
}

/// Adds the ended processes of each command to its first row. Commands without a row get one below the others, the one with most
/// ended processes first.
fn add_ended(rows: &mut Vec<Row>, mut ended: BTreeMap<&str, EndedCommand>) {
    for row in &mut *rows {
        row.ended = ended.remove(row.command.as_str());
    }
    let mut rest: Vec<(&str, EndedCommand)> = ended.into_iter().collect();
    rest.order_by_key(|(_, of)| std::cmp::Reverse(of.count));
    rows.extend(rest.into_iter().map(|(name, of)| Row {
        key: vec![(name.into(), None)],
        command: name.to_owned(),
        ended: Some(of),
        ..Row::default()
    }));
}

/// Processes and their children. A process is its place in the list.
struct Forest<'a> {
    processes: Vec<&'a Process>,
    /// The children of each process.
    children: Vec<Vec<usize>>,
    /// Processes whose parent is not in the list.
    roots: Vec<usize>,
}

impl<'a> Forest<'a> {
    /// Finds the children of each process. One that is its own parent, by what another program wrote, is a root.
    fn new(processes: &[&'a Process]) -> Self {
        let by_pid: HashMap<u64, usize> =
            processes.iter().enumerate().filter_map(|(at, process)| Some((process.pid?, at))).collect();
        let (mut children, mut roots) = (vec![Vec::new(); processes.len()], Vec::new());
        for (at, process) in processes.iter().enumerate() {
            match process.parent_pid.and_then(|pid| by_pid.get(&pid)).filter(|parent| **parent != at) {
                Some(parent) => children[*parent].push(at),
                None => roots.push(at),
            }
        }
        Self { processes: processes.to_vec(), children, roots }
    }
}

/// The rows while they are made, and what they are made of.
struct Builder<'a> {
    forest: Forest<'a>,
    rates: &'a Rates,
    shape: &'a Shape,
    /// The rows so far, from top to bottom.
    rows: Vec<Row>,
    /// How many processes have no row, without those below a folded row.
    unlisted: u64,
    /// Which processes have been passed: none gets a second row.
    seen: Vec<bool>,
}

impl Builder<'_> {
    /// Adds rows for these siblings, each followed by those of its children. `unlisted` counts the processes that get no row, but
    /// not those below a folded row. `above`: the key of the row above them.
    fn add_siblings(&mut self, siblings: &[usize], above: &Key) {
        let mut rows: Vec<(Row, Vec<usize>)> = self
            .grouped(siblings)
            .into_iter()
            .map(|(name, members)| (self.row(name, &members, above), members))
            .collect();
        let sort = self.shape.sort;
        // A stable sort: those that are alike stay in the order of their names.
        rows.order_by(|(a, _), (b, _)| match sort {
            Sort::Rss => b.rss_bytes.cmp(&a.rss_bytes),
            Sort::Cpu => cpu_sort_key(b).total_cmp(&cpu_sort_key(a)),
            Sort::Gpu => b.gpu_bytes.cmp(&a.gpu_bytes),
            Sort::Name => std::cmp::Ordering::Equal,
        });
        for (mut row, members) in rows {
            let children: Vec<usize> =
                members.iter().flat_map(|at| self.forest.children[*at].iter().copied()).collect();
            if self.rows.len() >= MOST_ROWS {
                self.unlisted += members.len() as u64 + self.pass_over(children);
                continue;
            }
            row.has_children = !children.is_empty();
            row.is_folded = row.has_children && self.shape.folded.contains(&row.key);
            let (is_folded, key) = (row.is_folded, row.key.clone());
            self.rows.push(row);
            if is_folded {
                self.pass_over(children);
            } else if key.len() >= MOST_LEVELS {
                self.unlisted += self.pass_over(children);
            } else {
                self.add_siblings(&children, &key);
            }
        }
    }

    /// Groups the siblings that share a row, by the last part of its key, and notes them as seen. Each process is a group if the
    /// shape asks for that; else those of one command are.
    fn grouped(&mut self, siblings: &[usize]) -> BTreeMap<(String, Option<u64>), Vec<usize>> {
        let mut groups: BTreeMap<(String, Option<u64>), Vec<usize>> = BTreeMap::new();
        for at in siblings {
            let was_seen = std::mem::replace(&mut self.seen[*at], true);
            if was_seen {
                continue;
            }
            let process = self.forest.processes[*at];
            let pid = process.pid.filter(|_| self.shape.is_each_process);
            groups.entry((process.command.clone(), pid)).or_default().push(*at);
        }
        groups
    }

    /// Notes these processes and all below them as seen: they get no rows. Returns how many there are.
    fn pass_over(&mut self, mut processes: Vec<usize>) -> u64 {
        let mut count = 0;
        while let Some(at) = processes.pop() {
            let was_seen = std::mem::replace(&mut self.seen[at], true);
            if !was_seen {
                count += 1;
                processes.extend(&self.forest.children[at]);
            }
        }
        count
    }

    /// Makes the row of the `members`, processes that share it. The command, and the pid if it is for one process alone, are the
    /// last part of its key. `above`: the key of the row above it.
    fn row(&self, (command, pid): (String, Option<u64>), members: &[usize], above: &Key) -> Row {
        let processes = || members.iter().map(|at| self.forest.processes[*at]);
        let sum = |of: fn(&Process) -> Option<u64>| processes().filter_map(of).reduce(u64::saturating_add);
        let rate = |process: &Process| self.rates.get(&(process.pid?, process.start_ns)).copied();
        let mut key = above.clone();
        key.push((command.as_str().into(), pid));
        Row {
            depth: above.len(),
            key,
            command,
            pid,
            live: members.len() as u64,
            rss_bytes: sum(|process| process.rss_bytes),
            cpu_percent: processes().filter_map(rate).reduce(|a, b| a + b),
            cpu_s: processes().filter_map(|process| process.cpu_s).reduce(|a, b| a + b),
            gpu_bytes: sum(|process| process.gpu_bytes),
            ..Row::default()
        }
    }
}

/// The figure by which [`Sort::Cpu`] sorts a row: CPU utilization, else CPU time. If both are unknown, it is below 0.
fn cpu_sort_key(row: &Row) -> f64 {
    row.cpu_percent.or(row.cpu_s).unwrap_or(-1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::companion::watch::frame::Ended;

    fn process(pid: u64, parent_pid: u64, command: &str, rss_bytes: u64) -> Process {
        let rss_bytes = Some(rss_bytes);
        let command = command.to_owned();
        Process { pid: Some(pid), parent_pid: Some(parent_pid), command, rss_bytes, ..Process::default() }
    }

    /// make, with two cc1 by way of two gcc, and a linker.
    fn frame() -> Frame {
        let listed = vec![
            process(1, 0, "make", 5),
            process(2, 1, "gcc", 1),
            process(3, 1, "gcc", 1),
            process(4, 2, "cc1", 70),
            process(5, 3, "cc1", 30),
            process(6, 1, "ld", 50),
        ];
        let ended = |count| EndedCommand { count, ..EndedCommand::default() };
        let by_command = [("cc1".into(), ended(280)), ("sh".into(), ended(9))].into();
        let ended = Some(Ended { count: 289, by_command, other_commands: 0 });
        Frame { listed, ended, ..Frame::default() }
    }

    fn shown(frame: &Frame, shape: &Shape) -> Vec<String> {
        let row = |row: &Row| {
            let ended = row.ended.map_or(String::new(), |ended| format!(" +{}", ended.count));
            let rss = row.rss_bytes.unwrap_or(0);
            format!("{}{} x{} {rss}{ended}", " ".repeat(row.depth), row.command, row.live)
        };
        rows(frame, &Rates::new(), shape).0.iter().map(row).collect()
    }

    // Requirement: WATCH-2
    #[test]
    fn siblings_of_a_command_are_one_row_with_sums_and_ended_ones_are_counted() {
        let mut shape = Shape::default();
        assert_eq!(
            shown(&frame(), &shape),
            ["make x1 5", " ld x1 50", " gcc x2 2", "  cc1 x2 100 +280", "sh x0 0 +9"]
        );
        shape.sort = Sort::Name;
        assert_eq!(shown(&frame(), &shape)[1], " gcc x2 2");
        shape.folded.insert(vec![("make".into(), None), ("gcc".into(), None)]);
        // No row of cc1 is there, so those that ended have one.
        assert_eq!(
            shown(&frame(), &shape),
            ["make x1 5", " gcc x2 2", " ld x1 50", "cc1 x0 0 +280", "sh x0 0 +9"]
        );
        let each = Shape { is_each_process: true, ..Shape::default() };
        assert_eq!(shown(&frame(), &each).len(), 7);
        let filter = Shape { filter: "CC".into(), ..Shape::default() };
        assert_eq!(shown(&frame(), &filter), ["gcc x2 2", " cc1 x2 100 +280"]);
    }

    #[test]
    fn parents_in_a_circle_and_endless_chains_are_shown_once() {
        let circle =
            vec![process(1, 2, "a", 1), process(2, 1, "b", 1), process(3, 3, "c", 1), process(3, 3, "d", 1)];
        let frame = Frame { listed: circle, ..Frame::default() };
        let mut names = shown(&frame, &Shape::default());
        names.sort();
        assert_eq!(names, [" b x1 1", " c x1 1", "a x1 1", "d x1 1"]);
        let chain = (1..=256).map(|pid| process(pid, pid - 1, "sh", 1)).collect();
        let frame = Frame { listed: chain, ..Frame::default() };
        assert_eq!(rows(&frame, &Rates::new(), &Shape::default()).0.len(), 256);
    }

    // Requirement: WATCH-6
    #[test]
    fn tree_of_any_depth_and_width_has_bounded_rows_and_the_rest_is_counted() {
        let rows_of =
            |listed, shape: &Shape| rows(&Frame { listed, ..Frame::default() }, &Rates::new(), shape);
        let chain: Vec<Process> = (1..=50_000).map(|pid| process(pid, pid - 1, "sh", 1)).collect();
        let (listed, unlisted) = rows_of(chain.clone(), &Shape::default());
        assert_eq!((listed.len(), unlisted), (MOST_LEVELS, 50_000 - MOST_LEVELS as u64));
        // What is hidden below a folded row is asked for, so it is not counted.
        let folded = Shape { folded: [listed[3].key.clone()].into(), ..Shape::default() };
        let (listed, unlisted) = rows_of(chain, &folded);
        assert_eq!((listed.len(), unlisted), (4, 0));
        let wide = (1..=5_000).map(|pid| process(pid, pid.min(2) - 1, "sh", pid)).collect();
        let (listed, unlisted) = rows_of(wide, &Shape { is_each_process: true, ..Shape::default() });
        assert_eq!((listed.len(), unlisted), (MOST_ROWS, 5_000 - MOST_ROWS as u64));
    }
}
