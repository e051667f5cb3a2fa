//! The tasks of a pipeline: a table of all, and the heaviest for the summary.

use std::collections::BTreeMap;

use crate::document::{Block, Column, Section, Table};
use crate::figures::{column, exit, thousands};
use crate::model::report::{Report, TaskUsage, task_count};
use crate::quote::cut;
use crate::units::Units;

/// Maximum number of tasks in the summary.
const MAX_TASKS: usize = 5;
/// Longest name of a task in a table, in columns.
const NAME_COLUMNS: usize = 40;

/// How tasks are called in a table, where there is little room.
struct Names<'a> {
    /// How many tasks have each rule of Snakemake, on each node.
    jobs_of_rules: BTreeMap<(Option<&'a str>, &'a str), usize>,
}

impl<'a> Names<'a> {
    fn of(report: &'a Report) -> Self {
        let mut jobs_of_rules = BTreeMap::new();
        for task in &report.tasks {
            rule(task)
                .into_iter()
                .for_each(|rule| *jobs_of_rules.entry((task.node.as_deref(), rule)).or_default() += 1);
        }
        Self { jobs_of_rules }
    }

    /// The title of a task, cut to [`NAME_COLUMNS`]. The only job of a rule is called by the rule alone.
    fn short(&self, task: &TaskUsage) -> String {
        let title = task.title();
        let rule =
            rule(task).filter(|rule| self.jobs_of_rules.get(&(task.node.as_deref(), *rule)) == Some(&1));
        let rest = rule.map_or(0, |rule| task.name.len() - rule.len());
        cut(&title[..title.len() - rest], NAME_COLUMNS)
    }
}

/// The rule in the name of a job of Snakemake: `map` of `map: bwa mem ...`. `None`: the rule is not known, or it is another task.
fn rule(task: &TaskUsage) -> Option<&str> {
    let (rule, _) = task.name.split_once(": ").filter(|_| task.kind_name() == Some("snakemake"))?;
    // Snakemake demands a name of Python. The shell's text alone can have a colon, too, but after words.
    rule.chars().all(|c| c.is_alphanumeric() || c == '_').then_some(rule)
}

/// Makes the section of the tasks, at most `most` of them. It shows nothing if the run had none.
pub(super) fn section(report: &Report, units: Units, most: usize) -> Section {
    let (time, ram) = (units.time.symbol(), units.ram.symbol());
    let head = [
        Column::count("Processes"),
        Column::count("Exit"),
        Column::number("Start", time),
        Column::number("Wall", time),
        Column::number("CPU", time),
        Column::number("Peak RAM", ram),
        Column::text("Task"),
    ];
    let shown = report.tasks.get(..most).unwrap_or(&report.tasks);
    let names = Names::of(report);
    let rows = shown.iter().map(|task| {
        let exit = if task.is_task() { exit(task.exit) } else { String::new() };
        let times = [task.start_s, task.wall_s, task.cpu_s].map(|seconds| units.time_cell(seconds));
        let [start, wall, cpu] = times;
        let peak = units.ram_cell(task.peak_ram_bytes);
        let name = names.short(task);
        [thousands(task.processes as f64), exit, start, wall, cpu, peak, name]
    });
    let mut table = Table::new(head, rows);
    let tip = |task: &TaskUsage| match &task.why {
        Some(why) => format!("{}: {why}", task.title()),
        None => task.title(),
    };
    let count = task_count(&report.tasks).and_then(|count| usize::try_from(count).ok());
    // What is in no task has a row, too.
    table.total = count.filter(|count| *count > 0).map_or(report.tasks.len(), |count| count + 1);
    table.tips = shown.iter().map(tip).collect();
    let failed = shown.iter().filter(|task| task.is_task());
    let failed = failed.filter_map(|task| Some(format!("{}: {}", task.title(), task.why.as_deref()?)));
    Section::new("Tasks").table(table).section(Section::list("Failed tasks", failed.collect()))
}

/// Makes the summary's table of the tasks that used most CPU time, with at most `most_lines` lines. `None`: there are too few lines,
/// or commands say more, because most of the CPU time belongs to no task.
pub(super) fn top(report: &Report, units: Units, most_lines: usize) -> Option<Block> {
    let tasks: Vec<&TaskUsage> = report.tasks.iter().filter(|task| task.is_task()).collect();
    let total_s = report.cpu_time.total_s.filter(|total_s| *total_s > 0.0)?;
    let of_tasks_s: f64 = tasks.iter().filter_map(|task| task.cpu_s).sum();
    if tasks.is_empty() || most_lines < 3 || of_tasks_s < total_s / 2.0 {
        return None;
    }
    // One line is for the heads, one for the rest.
    let shown = tasks.len().min(MAX_TASKS).min(most_lines - 2);
    let shown = &tasks[..shown];
    let names = Names::of(report);
    let mut rows: Vec<Row> = shown.iter().map(|task| Row::of(task, &names)).collect();
    rows.push(rest(report, shown, total_s));
    let cells = |value: &dyn Fn(&Row) -> Option<f64>| column(&rows.iter().map(value).collect::<Vec<_>>());
    let cpu = cells(&|row| row.cpu_s.map(|s| units.time.convert(s)));
    let peak = cells(&|row| row.peak_bytes.map(|bytes| units.ram.convert(bytes as f64)));
    let wall = cells(&|row| row.wall_s.map(|s| units.time.convert(s)));
    let (time, ram) = (units.time.symbol(), units.ram.symbol());
    let head = [
        Column::text("Task"),
        Column::count("processes"),
        Column::number("CPU", time),
        Column::number("peak", ram),
        Column::number("wall", time),
    ];
    let lines = rows.iter().zip(cpu).zip(peak).zip(wall).map(|(((row, cpu), peak), wall)| {
        [row.name.clone(), thousands(row.processes as f64), cpu, peak, wall]
    });
    let mut table = Table::new(head, lines);
    table.parts = rows.iter().map(|row| row.cpu_s.map(|cpu_s| cpu_s / total_s)).collect();
    Some(Block::Table(table))
}

/// A row of the summary's table.
struct Row {
    name: String,
    processes: u64,
    cpu_s: Option<f64>,
    peak_bytes: Option<u64>,
    wall_s: Option<f64>,
}

impl Row {
    fn of(task: &TaskUsage, names: &Names) -> Self {
        Self {
            name: names.short(task),
            processes: task.processes,
            cpu_s: task.cpu_s,
            peak_bytes: task.peak_ram_bytes,
            wall_s: task.wall_s,
        }
    }
}

/// The row of all that is not in the rows `shown`: of other tasks, and of no task.
fn rest(report: &Report, shown: &[&TaskUsage], total_s: f64) -> Row {
    let of_shown: u64 = shown.iter().map(|task| task.processes).sum();
    let shown_s: f64 = shown.iter().filter_map(|task| task.cpu_s).sum();
    let others = task_count(&report.tasks).map(|count| count.saturating_sub(shown.len() as u64));
    let name = match others {
        Some(0) => "in no task".to_owned(),
        Some(count) => format!("{} others, and in no task", thousands(count as f64)),
        None => "others, and in no task".to_owned(),
    };
    Row {
        name,
        processes: report.processes.total.saturating_sub(of_shown),
        cpu_s: Some((total_s - shown_s).max(0.0)),
        peak_bytes: None,
        wall_s: None,
    }
}

#[cfg(test)]
mod tests {
    use gpu_track_core::fixtures;

    use super::*;
    use crate::model::report::OTHER_TASKS;
    use crate::model::style::Style;

    // Requirement: TASK-8
    #[test]
    fn only_job_of_a_rule_is_called_by_the_rule() {
        let mut report = fixtures::full();
        let named = |name: &str| TaskUsage { name: name.into(), ..fixtures::tasks()[0].clone() };
        let names = ["map: bwa mem a", "sort: samtools sort a", "sort: samtools sort b", "echo a: b"];
        report.tasks = names.map(named).into();
        let short = Names::of(&report);
        let shown: Vec<String> = report.tasks.iter().map(|task| short.short(task)).collect();
        let expected = ["map", "sort: samtools sort a", "sort: samtools sort b", "echo a: b"];
        assert_eq!(shown, expected.map(|name| format!("snakemake {name}")));
    }

    // Requirement: TASK-8
    #[test]
    fn tasks_stand_for_commands_where_they_have_half_of_the_cpu_time() {
        let mut report = fixtures::full();
        report.tasks = fixtures::tasks();
        let units = Units::choose(&report, &Style::default());
        let rows = |report: &Report, lines| match top(report, units, lines) {
            Some(Block::Table(table)) => table.rows,
            _ => Vec::new(),
        };
        let of_tasks_s: f64 =
            report.tasks.iter().filter(|task| task.is_task()).filter_map(|task| task.cpu_s).sum();
        report.cpu_time.total_s = Some(of_tasks_s * 2.1);
        assert!(rows(&report, 9).is_empty());
        report.cpu_time.total_s = Some(of_tasks_s * 1.9);
        let all = rows(&report, 9);
        assert_eq!((all.len(), &*all[0][0], &*all[2][0]), (3, "snakemake sort \"a,b\" > c", "in no task"));
        let short = rows(&report, 3);
        assert_eq!((short.len(), &*short[1][0]), (2, "1 others, and in no task"));
        assert!(rows(&report, 2).is_empty());
        let rest = report.tasks[2].clone();
        let mut others = TaskUsage { id: 1, name: OTHER_TASKS.into(), ..rest };
        for (tasks, name) in [(Some(1200), "1,200 others, and in no task"), (None, "others, and in no task")]
        {
            others.tasks = tasks;
            report.tasks.insert(2, others.clone());
            assert_eq!(rows(&report, 9)[2][0], name);
            report.tasks.remove(2);
        }
    }
}
