//! Figures of a report as the files of other programs have them, for those programs' readers: Snakemake's benchmark, and the trace of a
//! task of Nextflow.
//!
//! - Snakemake (`snakemake/benchmark.py`, 9.27): a TSV of a row for each job. MB are 1,048,576 bytes, `mean_load` is percent of one core,
//!   and what it could not measure is `NA`.
//! - Nextflow (`.command.trace`, `TraceRecord.parseTraceFile`): `KEY=NUMBER` lines. `%cpu` and `%mem` are tenths of a percent, memory is
//!   in units of 1,024 bytes, times are in milliseconds. What is unknown has no line.
//!
//! RAM is that of the task, in which a page that several processes share counts once. Both programs add up the RSS of the processes.

use std::collections::{HashMap, HashSet};

use crate::model::report::{OTHER_TASKS, Report, TaskUsage};
use crate::model::sorting::Sorting;
use crate::quote;

/// Bytes of what Snakemake calls a MB.
const MB: f64 = 1_048_576.0;
/// Bytes of Nextflow's unit of memory.
const KB: u64 = 1024;
/// Snakemake's own columns, and then those that it does not have.
const COLUMNS: [&str; 12] = [
    "s",
    "h:m:s",
    "max_rss",
    "max_vms",
    "max_uss",
    "max_pss",
    "io_in",
    "io_out",
    "mean_load",
    "cpu_time",
    "max_gpu_ram",
    "task",
];
/// The kinds of these programs' tasks.
const SNAKEMAKE: &str = "snakemake";
const NEXTFLOW: &str = "nextflow";
/// Maximum number of tasks in a report. A run tells as many apart.
const MOST_TASKS: usize = 10_000;
/// How deep tasks can be within another.
const MOST_LEVELS: usize = 17;
/// What Snakemake writes for what it could not measure.
const NOT_KNOWN: &str = "NA";
/// The first line of a trace.
const TRACE: &str = "nextflow.trace/v2";

/// A file for another program.
#[derive(Debug, PartialEq, Eq)]
pub struct Exported {
    /// Its text.
    pub text: String,
    /// What it lacks, as a line for the user.
    pub note: Option<String>,
}

/// What the processes of a task used together, or those of the whole run.
#[derive(Debug, Default)]
struct Figures {
    name: String,
    wall_s: Option<f64>,
    cpu_s: Option<f64>,
    /// The cores that it used on average.
    cores: Option<f64>,
    ram_bytes: Option<u64>,
    gpu_ram_bytes: Option<u64>,
    read_bytes: Option<u64>,
    write_bytes: Option<u64>,
    /// By the names that Nextflow has for them. A report has them for the whole run alone.
    of_run: [(&'static str, Option<u64>); 6],
}

impl Figures {
    /// Those of a task and the tasks within it.
    fn of_task<'a>(tasks: &ByParent<'a>, task: &'a TaskUsage) -> Self {
        let within = tasks.within(task);
        // A nested task without an entry of its own is in the sums of the others.
        let are_all_listed = task.with_nested.is_none_or(|all| all.tasks == within.len() as u64);
        let all = || std::iter::once(task).chain(within.iter().copied()).filter(|_| are_all_listed);
        let sum = |bytes: fn(&TaskUsage) -> Option<u64>| {
            all().map(bytes).try_fold(0_u64, |sum, bytes| Some(sum.saturating_add(bytes?)))
        };
        let known_sum = |bytes| sum(bytes).filter(|_| are_all_listed);
        // The largest sums of several tasks need not be of one time.
        let mut on_gpus = all().filter_map(|task| task.gpu_ram_bytes);
        let gpu_ram_bytes = on_gpus.next().filter(|_| on_gpus.next().is_none());
        Self {
            name: task.title(),
            wall_s: task.wall_s,
            cpu_s: task.with_nested.map_or(task.cpu_s, |all| all.cpu_s),
            cores: task.mean_cores(),
            ram_bytes: task.with_nested.map_or(task.peak_ram_bytes, |all| all.peak_ram_bytes),
            gpu_ram_bytes,
            read_bytes: known_sum(|task| task.io.read_bytes),
            write_bytes: known_sum(|task| task.io.write_bytes),
            ..Self::default()
        }
    }

    /// Those of the whole run.
    fn of_run(report: &Report) -> Self {
        let (io, switches) = (&report.io, &report.context_switches);
        Self {
            name: report.command.join(" "),
            wall_s: Some(report.wall_s),
            cpu_s: report.cpu_time.total_s,
            cores: report.cpu_time.total_s.filter(|_| report.wall_s > 0.0).map(|cpu_s| cpu_s / report.wall_s),
            ram_bytes: report.max_ram.combined.footprint_bytes,
            // Without a GPU that is read, the report has 0, as gpu_tracker's has.
            gpu_ram_bytes: report.max_gpu_ram.combined_bytes.filter(|_| !report.gpus.is_empty()),
            read_bytes: io.read_bytes,
            write_bytes: io.write_bytes,
            of_run: [
                ("rchar", io.read_call_bytes),
                ("wchar", io.write_call_bytes),
                ("syscr", io.read_calls),
                ("syscw", io.write_calls),
                ("vol_ctxt", switches.voluntary),
                ("inv_ctxt", switches.involuntary),
            ],
        }
    }
}

/// The tasks of a report, by the node and the number of the task around them.
struct ByParent<'a>(HashMap<(Option<&'a str>, u32), Vec<&'a TaskUsage>>);

impl<'a> ByParent<'a> {
    fn of(report: &'a Report) -> Self {
        let mut tasks: HashMap<_, Vec<&TaskUsage>> = HashMap::new();
        for task in report.tasks.iter().filter(|task| task.is_task()) {
            if let Some(parent) = task.parent {
                tasks.entry((task.node.as_deref(), parent)).or_default().push(task);
            }
        }
        Self(tasks)
    }

    /// The tasks within a task, at any depth. Numbers that a damaged report repeats lead nowhere twice.
    fn within(&self, task: &'a TaskUsage) -> Vec<&'a TaskUsage> {
        let mut known: HashSet<u32> = HashSet::from([task.id]);
        let (mut all, mut level) = (Vec::new(), vec![task]);
        for _ in 0..MOST_LEVELS {
            let children = level.iter().filter_map(|one| self.0.get(&(one.node.as_deref(), one.id)));
            level = children.flatten().copied().filter(|child| known.insert(child.id)).collect();
            all.extend(&level);
        }
        all
    }
}

/// Whether a task is the one that the user calls so: by its name, its kind and its name, or its rule.
fn is_called(task: &TaskUsage, wanted: &str) -> bool {
    let is_rule = || task.name.strip_prefix(wanted).is_some_and(|rest| rest.starts_with(": "));
    task.name == wanted || task.title() == wanted || (task.kind_name() == Some(SNAKEMAKE) && is_rule())
}

/// The tasks that `--task` names, or those of the program's kind, in the order of their starts.
///
/// # Errors
/// If `--task` names none, or there are more than a run can have.
fn chosen<'a>(report: &'a Report, kind: &str, wanted: Option<&str>) -> Result<Vec<&'a TaskUsage>, String> {
    if report.tasks.len() > MOST_TASKS {
        return Err(format!("has {} tasks, and at most {MOST_TASKS} are read", report.tasks.len()));
    }
    let is_chosen = |task: &&TaskUsage| match wanted {
        Some(wanted) => task.is_task() && is_called(task, wanted),
        None => task.kind_name() == Some(kind),
    };
    let mut tasks: Vec<&TaskUsage> = report.tasks.iter().filter(is_chosen).collect();
    tasks.order_by(|a, b| a.start_s.partial_cmp(&b.start_s).unwrap_or(std::cmp::Ordering::Equal));
    match wanted {
        Some(wanted) if tasks.is_empty() => {
            Err(format!("has no task \"{}\": gpu-track report --tasks lists them", quote::escape(wanted)))
        }
        _ => Ok(tasks),
    }
}

/// Makes a line about tasks without an entry of their own, if the report has any.
fn note_of_others(report: &Report) -> Option<String> {
    let others = report.tasks.iter().find(|task| !task.is_task() && task.name == OTHER_TASKS)?;
    let count = others.tasks.map_or("an unknown number of".to_owned(), |count| count.to_string());
    Some(format!(
        "{count} tasks with less CPU time have no row: a report has the heaviest alone, gpu-track-run --tf FILE.sqlite all"
    ))
}

/// The figures of the run, which has none of the program's tasks.
///
/// # Errors
/// If that is not certain: the report does not list all tasks.
fn whole_run(report: &Report) -> Result<Figures, String> {
    match note_of_others(report) {
        None => Ok(Figures::of_run(report)),
        Some(_) => {
            Err("does not list all tasks, and none of these is listed: --task NAME chooses one".to_owned())
        }
    }
}

/// Writes the benchmark of each job of Snakemake, or of the tasks that `wanted` names. A run without such jobs is one row.
///
/// # Errors
/// If `wanted` names no task.
pub fn snakemake_benchmark(report: &Report, wanted: Option<&str>) -> Result<Exported, String> {
    let tasks = chosen(report, SNAKEMAKE, wanted)?;
    let by_parent = ByParent::of(report);
    let mut rows: Vec<Figures> = tasks.iter().map(|task| Figures::of_task(&by_parent, task)).collect();
    let note = note_of_others(report);
    if rows.is_empty() {
        rows.push(whole_run(report)?);
    }
    let head = [COLUMNS.join("\t")].into_iter();
    let lines = head.chain(rows.iter().map(|figures| benchmark_row(figures).join("\t")));
    Ok(Exported { text: lines.map(|line| line + "\n").collect(), note })
}

/// The cells of a row of a benchmark.
fn benchmark_row(figures: &Figures) -> [String; COLUMNS.len()] {
    let number = |value: Option<f64>| value.map_or(NOT_KNOWN.to_owned(), |value| format!("{value:.2}"));
    let mb = |bytes: Option<u64>| number(bytes.map(|bytes| bytes as f64 / MB));
    let unknown = || NOT_KNOWN.to_owned();
    [
        figures.wall_s.map_or_else(unknown, |wall_s| format!("{wall_s:.4}")),
        figures.wall_s.map_or_else(unknown, clock),
        mb(figures.ram_bytes),
        unknown(),
        unknown(),
        unknown(),
        mb(figures.read_bytes),
        mb(figures.write_bytes),
        number(figures.cores.map(|cores| cores * 100.0)),
        number(figures.cpu_s),
        mb(figures.gpu_ram_bytes),
        quote::escape(&figures.name),
    ]
}

/// A time as Snakemake shows it: `H:MM:SS`, with `N days, ` before it.
fn clock(seconds: f64) -> String {
    let seconds = seconds as u64;
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let time = format!("{}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60);
    match days {
        0 => time,
        1 => format!("1 day, {time}"),
        _ => format!("{days} days, {time}"),
    }
}

/// Writes the trace of the task that `wanted` names, or of the run's only task of Nextflow. Without such tasks it is that of the run.
///
/// # Errors
/// If there are several, or `wanted` names none.
pub fn nextflow_trace(report: &Report, wanted: Option<&str>) -> Result<Exported, String> {
    let tasks = chosen(report, NEXTFLOW, wanted)?;
    let figures = match tasks[..] {
        [] => whole_run(report)?,
        [task] => Figures::of_task(&ByParent::of(report), task),
        _ => {
            return Err(format!(
                "has {} such tasks, and a trace is of one: --task NAME chooses it",
                tasks.len()
            ));
        }
    };
    let tenths = |percent: f64| (percent * 10.0).round() as u64;
    let kb = |bytes: Option<u64>| bytes.map(|bytes| bytes / KB);
    let ram_share = Option::zip(figures.ram_bytes, report.host.ram_bytes.filter(|bytes| *bytes > 0))
        .map(|(used, all)| tenths(used as f64 / all as f64 * 100.0));
    let own = [
        ("realtime", figures.wall_s.map(|wall_s| (wall_s * 1e3).round() as u64)),
        ("%cpu", figures.cores.map(|cores| cores * 100.0).map(tenths)),
        ("%mem", ram_share),
        ("rss", kb(figures.ram_bytes)),
        ("peak_rss", kb(figures.ram_bytes)),
        ("read_bytes", figures.read_bytes),
        ("write_bytes", figures.write_bytes),
    ];
    // Nextflow warns of a key that it does not know, so a task without a GPU has none.
    let gpu = [("peak_gpu_ram_bytes", figures.gpu_ram_bytes.filter(|bytes| *bytes > 0))];
    let known = own.into_iter().chain(figures.of_run).chain(gpu);
    let lines = known.filter_map(|(key, value)| Some(format!("{key}={}\n", value?)));
    Ok(Exported {
        text: std::iter::once(format!("{TRACE}\n")).chain(lines).collect(),
        note: note_of_others(report),
    })
}

#[cfg(test)]
mod tests {
    use gpu_track_core::fixtures;

    use super::*;
    use crate::model::report::TaskIo;

    fn cells(text: &str) -> Vec<Vec<&str>> {
        text.lines().map(|line| line.split('\t').collect()).collect()
    }

    // Requirement: TASK-13
    #[test]
    fn run_is_no_task_where_a_report_lacks_some_and_has_no_gpu_memory_without_a_gpu() {
        let mut report = fixtures::full();
        report.tasks = fixtures::tasks();
        report.tasks.retain(|task| !task.is_task());
        let others = TaskUsage { name: OTHER_TASKS.into(), tasks: Some(7), ..report.tasks[0].clone() };
        report.tasks.push(others);
        for refused in [snakemake_benchmark(&report, None), nextflow_trace(&report, None)] {
            assert!(refused.unwrap_err().starts_with("does not list all tasks"));
        }
        let mut report = fixtures::killed();
        report.tasks.clear();
        assert!(!report.gpus.is_empty());
        let gpu_ram = |report: &Report| {
            let text = snakemake_benchmark(report, None).unwrap().text;
            cells(&text)[1][10].to_owned()
        };
        report.max_gpu_ram.combined_bytes = Some(1 << 30);
        assert_eq!(gpu_ram(&report), "1024.00");
        report.gpus.clear();
        report.max_gpu_ram.combined_bytes = Some(0);
        assert_eq!(gpu_ram(&report), "NA");
    }

    // Requirement: TASK-13
    #[test]
    fn benchmark_has_snakemakes_columns_and_units_and_a_row_for_each_job() {
        let mut report = fixtures::full();
        report.tasks = fixtures::tasks();
        let text = snakemake_benchmark(&report, None).unwrap().text;
        let rows = cells(&text);
        let own = "s h:m:s max_rss max_vms max_uss max_pss io_in io_out mean_load cpu_time";
        assert_eq!(rows[0][..10].join(" "), own);
        // With the job within it.
        let job = "20.2500 0:00:20 238.42 NA NA NA 0.01 0.02 96.30 19.50 953.67";
        assert_eq!((rows.len(), &*rows[1][..11].join(" ")), (2, job));
        assert_eq!(rows[1][11], "snakemake sort \"a,b\" > c");
        // That one alone: its name can't end the row, or control a terminal.
        report.tasks[1].name = "a\tb\nc\u{1b}[2J".into();
        report.tasks[1].io = TaskIo { read_bytes: None, write_bytes: Some(0) };
        let text = snakemake_benchmark(&report, Some("a\tb\nc\u{1b}[2J")).unwrap().text;
        let rows = cells(&text);
        assert_eq!((rows.len(), rows[1].len(), rows[1][6], rows[1][7]), (2, 12, "NA", "0.00"));
        assert!(!text.replace(['\t', '\n'], "").contains(char::is_control), "{text}");
        // What is unknown of the job within it is unknown of both.
        assert_eq!(cells(&snakemake_benchmark(&report, None).unwrap().text)[1][6], "NA");
        let missing = snakemake_benchmark(&report, Some("x\u{7}")).unwrap_err();
        assert_eq!(missing, "has no task \"x\\x07\": gpu-track report --tasks lists them");
    }

    // Requirement: TASK-13
    #[test]
    fn rule_names_its_jobs_and_a_job_with_unlisted_ones_has_no_sum_of_io() {
        let mut report = fixtures::full();
        let [mut rule, job, rest] = <[TaskUsage; 3]>::try_from(fixtures::tasks()).unwrap();
        rule.name = "sort: sort x".into();
        rule.with_nested.as_mut().unwrap().tasks = 5;
        let others = TaskUsage { id: 1, name: OTHER_TASKS.into(), tasks: Some(40), ..rest.clone() };
        report.tasks = vec![rule, job, others, rest];
        let exported = snakemake_benchmark(&report, Some("sort")).unwrap();
        let rows = cells(&exported.text);
        assert_eq!((rows.len(), rows[1][6], rows[1][10]), (2, "NA", "NA"));
        assert!(exported.note.unwrap().starts_with("40 tasks with less CPU time have no row"));
        assert!(snakemake_benchmark(&report, Some("sor")).is_err());
    }

    // Requirement: TASK-13
    #[test]
    fn run_without_tasks_is_one_row_and_one_trace() {
        let mut report = fixtures::full();
        report.tasks.clear();
        let text = snakemake_benchmark(&report, None).unwrap().text;
        let rows = cells(&text);
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[1][0], format!("{:.4}", report.wall_s));
        let unknown = fixtures::unknown();
        let rows = snakemake_benchmark(&unknown, None).unwrap().text;
        assert!(cells(&rows)[1][2..11].iter().all(|cell| *cell == "NA"), "{rows}");
        let trace = nextflow_trace(&report, None).unwrap().text;
        assert!(trace.contains(&format!("\nsyscr={}\n", report.io.read_calls.unwrap())), "{trace}");
        assert!(!nextflow_trace(&unknown, None).unwrap().text.contains("rss"));
        assert_eq!(
            [clock(59.9), clock(86_400.0), clock(180_061.0)],
            ["0:00:59", "1 day, 0:00:00", "2 days, 2:01:01"]
        );
    }

    // Requirement: TASK-13
    #[test]
    fn trace_has_nextflows_keys_and_units_and_no_line_of_what_is_unknown() {
        let mut report = fixtures::full();
        let mut task = fixtures::tasks().swap_remove(1);
        (task.kind, task.parent) = (serde_json::from_str("\"nextflow\"").unwrap(), None);
        (task.peak_ram_bytes, report.host.ram_bytes) = (Some(50_000_000), Some(1_000_000_000));
        report.tasks = vec![task.clone()];
        let expected = "nextflow.trace/v2\nrealtime=1250\n%cpu=800\n%mem=50\nrss=48828\npeak_rss=48828\nread_bytes=4096\n\
                        write_bytes=8192\npeak_gpu_ram_bytes=1000000000\n";
        assert_eq!(nextflow_trace(&report, None).unwrap().text, expected);
        (task.id, task.cpu_s, task.gpu_ram_bytes, task.name) = (9, None, None, "x=y".into());
        report.tasks.push(task);
        assert!(nextflow_trace(&report, None).unwrap_err().starts_with("has 2 such tasks"));
        let text = nextflow_trace(&report, Some("x=y")).unwrap().text;
        assert!(!text.contains("%cpu") && !text.contains("gpu") && text.contains("%mem=50"), "{text}");
    }

    // Requirement: TASK-13
    #[test]
    fn tasks_that_name_each_other_as_parents_end() {
        let mut report = fixtures::full();
        report.tasks = fixtures::tasks();
        report.tasks[0].parent = Some(3);
        assert_eq!(ByParent::of(&report).within(&report.tasks[0]).len(), 1);
        // A long chain, in which each is within all before it.
        let chain = |id| TaskUsage { id, parent: Some(id - 1), ..report.tasks[0].clone() };
        report.tasks = (3..3 + MOST_TASKS as u32).map(chain).collect();
        let lines = snakemake_benchmark(&report, None).unwrap().text.lines().count();
        assert_eq!(lines, 1 + MOST_TASKS);
        report.tasks.push(report.tasks[0].clone());
        assert!(snakemake_benchmark(&report, None).unwrap_err().starts_with("has 10001 tasks"));
    }
}
