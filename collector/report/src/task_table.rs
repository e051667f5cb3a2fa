//! The tasks of a run as a table, as `gpu-track report --tasks` shows it.

use crate::figures::{UNKNOWN, bytes, exit, readable};
use crate::model::quality::Quality;
use crate::model::report::{Report, TaskUsage};
use crate::quote::{self, CsvColumn, csv_cell, csv_plain, csv_table, csv_text, markdown as escaped};
use crate::text::table::with_figures;

/// Longest name of a task in text, in columns.
const NAME_COLUMNS: usize = 60;

/// The columns of the table in CSV. What is unknown is empty.
const COLUMNS: [CsvColumn<TaskUsage>; 23] = [
    ("id", |task| task.id.to_string()),
    ("kind", |task| task.kind_name().unwrap_or_default().to_owned()),
    ("name", |task| csv_cell(&task.name)),
    ("tasks", |task| csv_plain(task.tasks)),
    ("parent", |task| csv_plain(task.parent)),
    ("node", |task| csv_text(task.node.as_deref())),
    ("start_s", |task| csv_plain(task.start_s)),
    ("wall_s", |task| csv_plain(task.wall_s)),
    ("processes", |task| task.processes.to_string()),
    ("starts", |task| csv_plain(task.starts)),
    ("failed_starts", |task| csv_plain(task.failed_starts)),
    ("still_running", |task| task.still_running.to_string()),
    ("cpu_s", |task| csv_plain(task.cpu_s)),
    ("peak_ram_bytes", |task| csv_plain(task.peak_ram_bytes)),
    ("peak_quality", |task| task.peak_quality.name().to_owned()),
    ("gpu_ram_bytes", |task| csv_plain(task.gpu_ram_bytes)),
    ("read_bytes", |task| csv_plain(task.io.read_bytes)),
    ("write_bytes", |task| csv_plain(task.io.write_bytes)),
    ("exit_code", |task| csv_plain(task.exit.code)),
    ("exit_signal", |task| csv_plain(task.exit.signal)),
    ("why", |task| csv_text(task.why.as_deref())),
    ("nested_cpu_s", |task| csv_plain(task.with_nested.and_then(|all| all.cpu_s))),
    ("nested_peak_ram_bytes", |task| csv_plain(task.with_nested.and_then(|all| all.peak_ram_bytes))),
];

/// Writes the tasks as CSV, with the names of the columns in the first line.
pub fn csv(report: &Report) -> String {
    csv_table(&COLUMNS, &report.tasks)
}

/// Writes the tasks as JSON, as the report has them.
pub fn json(report: &Report) -> String {
    quote::json_pretty(&report.tasks)
}

/// The heads of the columns for people.
const HEADS: [&str; 7] = ["Task", "processes", "exit", "start", "wall", "CPU", "peak RAM"];

/// The cells of a task for people, with the name first.
fn cells(task: &TaskUsage) -> [String; HEADS.len()] {
    let time = |seconds: Option<f64>| seconds.map_or(UNKNOWN.to_owned(), readable);
    let at_least = if task.peak_quality == Quality::Sampled { "at least " } else { "" };
    let ram = task.peak_ram_bytes.map_or(UNKNOWN.to_owned(), |ram| format!("{at_least}{}", bytes(ram)));
    let end = if task.is_task() { exit(task.exit) } else { String::new() };
    let processes = task.processes.to_string();
    [task.title(), processes, end, time(task.start_s), time(task.wall_s), time(task.cpu_s), ram]
}

/// Writes the tasks as a table of Markdown (that of GitHub).
pub fn markdown(report: &Report) -> String {
    let line = |cells: [String; HEADS.len()]| format!("| {} |\n", cells.join(" | "));
    let head = line(HEADS.map(str::to_owned));
    let rows = report.tasks.iter().map(|task| line(cells(task).map(|cell| escaped(&cell))));
    head + &format!("|---|{}\n", "--:|".repeat(HEADS.len() - 1)) + &rows.collect::<String>()
}

/// Writes the tasks as text, a line for each.
pub fn text(report: &Report) -> String {
    let escaped = |[name, figures @ ..]: [String; HEADS.len()]| {
        let name = quote::cut_middle(&quote::escape(&name), NAME_COLUMNS);
        let mut cells = vec![name];
        cells.extend(figures);
        cells
    };
    let mut rows = vec![escaped(HEADS.map(str::to_owned))];
    rows.extend(report.tasks.iter().map(|task| escaped(cells(task))));
    with_figures(&rows, 1).join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use gpu_track_core::fixtures;

    use super::*;

    // Requirement: TASK-9
    #[test]
    fn forms_have_a_line_for_each_task_and_unknown_is_never_0() {
        let mut report = fixtures::full();
        report.tasks = fixtures::tasks();
        let csv = csv(&report);
        let mut lines = csv.lines();
        assert!(lines.next().unwrap().starts_with("id,kind,name,tasks,parent,node,start_s,"));
        assert_eq!(
            lines.next().unwrap(),
            "2,snakemake,\"sort \"\"a,b\"\" > c\",,,,1.5,20.25,3,2,1,0,18.5,204000000,sampled,,4096,8192,0,,,19.5,250000000"
        );
        assert_eq!(lines.next().unwrap().split(',').count(), COLUMNS.len());
        assert_eq!(csv.lines().count(), report.tasks.len() + 1);
        let markdown = markdown(&report);
        assert_eq!(
            markdown.lines().nth(2).unwrap(),
            r#"| snakemake sort "a,b" \> c | 3 | 0 | 1.50 s | 20.2 s | 18.5 s | at least 204 MB |"#
        );
        let text = text(&report);
        assert!(text.lines().nth(2).unwrap().contains(r"parallel \x1b[2J"), "{text}");
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&json(&report)).unwrap()[0]["name"],
            "sort \"a,b\" > c"
        );
    }
}
