//! The processes over time: how many lived, when the heaviest of them did, and when the tasks of a pipeline ran.

use super::by_command::colour;
use super::figure::{ABOVE, Figure, Panel, Ticks, percent};
use super::lines::{AREA, Line, Lines};
use super::samples::{self, ChartColumn};
use super::time::Time;
use crate::command_line;
use crate::figures::{bytes, number, short, thousands};
use crate::html::colours;
use crate::html::escape::escape;
use crate::html::table::scrolling;
use crate::model::report::{CommandSeries, HeavyProcess, ProcessUsage, Report, Stage, TaskUsage, task_count};
use crate::model::sorting::Sorting;
use crate::over_time::Joining;
use crate::quote;
use crate::sections::most_at_once;

/// Height of the plot of the number of processes, pixels.
const HEIGHT: f64 = 60.0;
/// Pixels from the top of one bar to that of the next.
const ROW_HEIGHT: f64 = 18.0;
/// Height of a bar, pixels.
const BAR_HEIGHT: f64 = 13.0;
/// Pixels from the top of a bar down to the baseline of its name.
const BASELINE: f64 = 11.0;
/// A bar is at least this part of the plot, so that it can be seen.
const LEAST_PART: f64 = 0.0015;
/// Maximum number of bars.
const MOST_BARS: usize = 60;
/// Maximum number of bars of tasks.
const MOST_TASKS: usize = 20;
/// Maximum number of columns of a name beside a bar.
const NAME_COLUMNS: usize = 32;
/// Maximum number of columns of a node's name before it.
const NODE_COLUMNS: usize = 24;
/// Maximum number of columns of a command in a tooltip.
const WHOLE_COMMAND_COLUMNS: usize = 250;

/// Draws how many processes lived at a time. `None`: it is not known.
pub(super) fn count(report: &Report, time: &Time) -> Option<Figure> {
    const TITLE: &str = "Live processes";
    let values = &report.series.processes.max;
    let figure = most_at_once(report).unwrap_or_default();
    let lines = vec![(Line { name: "live".to_owned(), values, figure }, AREA)];
    let (label, unit, ticks) = ("Number".to_owned(), String::new(), Ticks { time: 6, values: 2 });
    let panel = Lines { label, unit, height: HEIGHT, ticks, top: None, lines }.panel(time)?;
    let quantity = ChartColumn { is_count: true, ..ChartColumn::new("live", "", Joining::Largest, values) };
    let table = samples::table(time, TITLE, samples::PARTS, &[quantity]);
    // A report of several nodes adds up their largest numbers in each bin of time. These need not be of one moment.
    let note = match report.merged {
        Some(_) => "An upper bound in each point: the sum of the nodes' largest numbers.",
        None => "The largest number in each point.",
    };
    Some(Figure { title: TITLE.to_owned(), note: note.to_owned(), panels: vec![panel], table })
}

/// A process as a bar. Times are seconds after the start of the run.
struct Bar<'a> {
    process: &'a HeavyProcess,
    start_s: f64,
    end: End,
    /// When the first process of the same command started.
    command_start_s: f64,
}

/// How a process's time ends.
#[derive(Clone, Copy)]
enum End {
    /// It ended then, seconds after the start of the run.
    At(f64),
    /// It lived at the end of the run.
    Running,
    /// A report of several nodes does not say whether it still ran. It was seen until then, seconds after the start of the run.
    Unknown(f64),
}

/// How the time of a process ends that started at `start_s`. The exit status of an ended process can be unknown. So a process
/// without a status counts as running only if it was seen until the end of the report.
fn end(report: &Report, process: &ProcessUsage, start_s: f64) -> End {
    /// Times of a report that differ by less are the same, seconds.
    const SAME_S: f64 = 0.001;
    let end_s = start_s + process.wall_s;
    if process.exit.code.is_some() || process.exit.signal.is_some() {
        return End::At(end_s);
    }
    if report.merged.is_some() {
        return End::Unknown(end_s);
    }
    let is_listed = || report.processes.still_running_processes.iter().any(|other| other.pid == process.pid);
    let can_be_running = report.stage == Stage::SoFar || is_listed();
    let is_seen_to_the_end = end_s >= report.wall_s - SAME_S;
    if can_be_running && is_seen_to_the_end { End::Running } else { End::At(end_s) }
}

/// Draws when the heaviest processes lived, a bar for each. `None`: the report has the start of no process.
pub(super) fn heaviest(report: &Report, time: &Time) -> Option<Figure> {
    const TITLE: &str = "Heaviest processes";
    let bars = bars(report);
    if bars.is_empty() {
        return None;
    }
    let draw = |(at, bar): (usize, &Bar)| draw_bar(at, bar, command_colour(report, bar), time);
    let panel = Panel {
        label: "Start and end of each".to_owned(),
        top: 1.0,
        height: bars.len() as f64 * ROW_HEIGHT,
        // Bars have no value, so `values: 0` leaves out the axis of values.
        ticks: Ticks { time: 6, values: 0 },
        overlay: bars.iter().enumerate().map(draw).collect(),
        ..Panel::default()
    };
    let count = format!("{} of {}", thousands(bars.len() as f64), thousands(report.processes.total as f64));
    let note = format!(
        "{count} processes: those with most CPU time, RAM or GPU memory. A bar is as long as its process lived, within the run."
    );
    let table = table(TITLE, &bars, time);
    Some(Figure { title: TITLE.to_owned(), note, panels: vec![panel], table })
}

/// The bars of the processes whose start is known, [`MOST_BARS`] at most. The bars of a command stand together, in the order
/// of their starts; the command that started first is at the top.
fn bars(report: &Report) -> Vec<Bar<'_>> {
    let processes = &report.processes.heaviest;
    let bars = processes.iter().filter_map(|process| {
        let (start_s, usage) = (process.start_s?, &process.usage);
        let same_command = processes.iter().filter(|other| other.usage.command == usage.command);
        let command_start_s = same_command.filter_map(|other| other.start_s).fold(start_s, f64::min);
        Some(Bar { process, start_s, end: end(report, usage, start_s), command_start_s })
    });
    let mut bars: Vec<Bar> = bars.take(MOST_BARS).collect();
    bars.order_by(|a, b| {
        a.command_start_s
            .total_cmp(&b.command_start_s)
            .then_with(|| a.process.usage.command.cmp(&b.process.usage.command))
            .then(a.start_s.total_cmp(&b.start_s))
    });
    bars
}

/// The colour that the other charts have for the command of a bar.
fn command_colour(report: &Report, bar: &Bar) -> &'static str {
    let is_same = |other: &CommandSeries| other.command == bar.process.usage.command;
    report.series.commands.iter().position(is_same).map_or(colours::OTHERS, colour)
}

/// Draws the bar of a process in row `at` from the top, and its name where there is room: after it, before it, or on it.
fn draw_bar(at: usize, bar: &Bar, colour: &str, time: &Time) -> String {
    let (end_s, words) = match bar.end {
        End::At(end_s) => (end_s, ""),
        End::Running => (time.wall_s, ", still running"),
        End::Unknown(end_s) => (end_s, ", exit unknown"),
    };
    let usage = &bar.process.usage;
    let name = format!("{} {}{words}", self::name(bar.process, NAME_COLUMNS), usage.pid);
    draw(at, [bar.start_s, end_s], [&name, &self::name(bar.process, WHOLE_COMMAND_COLUMNS)], colour, time)
}

/// Draws a bar in row `at` from the top. `span_s`: its start and end, seconds after the start of the run. `names`: what is written
/// beside it or on it, and its tooltip.
fn draw(at: usize, span_s: [f64; 2], names: [&str; 2], colour: &str, time: &Time) -> String {
    let [left, right] = span_s.map(|s| time.part(s));
    let right = right.max(left + LEAST_PART);
    let y = ABOVE + at as f64 * ROW_HEIGHT;
    let [name, tip] = names.map(escape);
    // A name takes up to 30% of the plot. So it has room after a bar that ends before 70%, or before one that starts after 30%.
    // It keeps 6 pixels from the bar's end.
    let (x, dx, anchor, fill) = match (left, right) {
        (_, ..0.7) => (right, 6, "start", "currentColor"),
        (0.3.., _) => (left, -6, "end", "currentColor"),
        _ => (left, 6, "start", colours::ON_AREA),
    };
    format!(
        "<rect class=\"g\" x=\"{}%\" y=\"{y}\" width=\"{}%\" height=\"{BAR_HEIGHT}\" fill=\"{colour}\"><title>{}</title></rect><text x=\"{}%\" dx=\"{dx}\" \
         y=\"{}\" text-anchor=\"{anchor}\" fill=\"{fill}\">{}</text>\n",
        percent(left),
        percent(right - left),
        tip,
        percent(x),
        y + BASELINE,
        name
    )
}

/// Draws when the tasks of a pipeline ran: a bar for each, with its largest RAM and its mean cores. Both include the tasks in it. `None`:
/// the run had no tasks.
pub(super) fn tasks(report: &Report, time: &Time) -> Option<Figure> {
    const TITLE: &str = "Tasks";
    let spans = report.tasks.iter().filter(|task| task.is_task());
    let mut bars: Vec<(f64, f64, &TaskUsage)> =
        spans.filter_map(|task| Some((task.start_s?, task.wall_s?, task))).take(MOST_TASKS).collect();
    if bars.is_empty() {
        return None;
    }
    bars.order_by(|(a, _, _), (b, _, _)| a.total_cmp(b));
    let draw_task = |(at, (start_s, wall_s, task)): (usize, &(f64, f64, &TaskUsage))| {
        let title = task.title();
        let cut = |columns| quote::cut_middle(&quote::escape(&title), columns);
        let [short, whole] = [NAME_COLUMNS, WHOLE_COMMAND_COLUMNS].map(cut);
        let colour = task.kind.map_or(colours::OTHERS, |kind| colour(kind as usize));
        let why = task.why.as_ref().map(|why| format!(": {}", quote::escape(why))).unwrap_or_default();
        let names = [format!("{short} {}", figures_of(task)), whole + &why];
        draw(at, [*start_s, start_s + wall_s], names.each_ref().map(String::as_str), colour, time)
    };
    let panel = Panel {
        label: "Start and end of each, largest RAM, mean cores".to_owned(),
        // Bars have no value, so `values: 0` leaves out the axis of values.
        top: 1.0,
        height: bars.len() as f64 * ROW_HEIGHT,
        ticks: Ticks { time: 6, values: 0 },
        overlay: bars.iter().enumerate().map(draw_task).collect(),
        ..Panel::default()
    };
    let all = match task_count(&report.tasks) {
        Some(count) => thousands(count as f64),
        None => "many".to_owned(),
    };
    let note = format!("{} of {all} tasks: those with most CPU time.", bars.len());
    Some(Figure { title: TITLE.to_owned(), note, panels: vec![panel], table: task_rows(TITLE, &bars, time) })
}

/// The largest RAM of a task, and the cores that it used on average. Its time is also that of the tasks in it, so these count. Unknown
/// ones are left out.
fn figures_of(task: &TaskUsage) -> String {
    let ram_bytes = task.with_nested.map_or(task.peak_ram_bytes, |all| all.peak_ram_bytes);
    let cores = task.mean_cores().map(|cores| format!("{} cores", short(cores)));
    ram_bytes.map(bytes).into_iter().chain(cores).collect::<Vec<_>>().join(", ")
}

/// Renders the bars of tasks as a table: start, end and name. `title` names it for screen readers.
fn task_rows(title: &str, bars: &[(f64, f64, &TaskUsage)], time: &Time) -> String {
    let (unit, unit_s) = time.unit();
    let row = |(start_s, wall_s, task): &(f64, f64, &TaskUsage)| {
        let [start, end] = [*start_s, start_s + wall_s].map(|s| number(Some(s / unit_s)));
        let name = quote::cut_middle(&quote::escape(&task.title()), NAME_COLUMNS);
        [task.id.to_string(), start, end, name]
    };
    start_and_end(title, ["Number", "Task"], unit, bars.iter().map(row))
}

/// Renders a table of what has a start and an end: a number, both times in this unit, and a name. `heads` are those of the number and
/// of the name.
fn start_and_end(
    title: &str,
    [number, name]: [&str; 2],
    unit: &str,
    rows: impl Iterator<Item = [String; 4]>,
) -> String {
    let row = |[number, start, end, name]: [String; 4]| {
        let name = escape(&name);
        format!(
            "<tr><th scope=\"row\">{number}</th><td>{start}</td><td>{end}</td><td class=\"words\">{name}</td></tr>\n"
        )
    };
    let heads = [number.to_owned(), format!("start [{unit}]"), format!("end [{unit}]")];
    let heads: String = heads.iter().map(|head| format!("<th scope=\"col\">{head}</th>")).collect();
    let heads = heads + &format!("<th scope=\"col\" class=\"words\">{name}</th>");
    scrolling("", title, &heads, &rows.map(row).collect::<String>())
}

/// Names a process by its command, in about `columns` columns, after its node in a report of several.
fn name(process: &HeavyProcess, columns: usize) -> String {
    let HeavyProcess { node, usage, .. } = process;
    let command = match &usage.args {
        Some(args) => command_line::process(Some(args), &usage.command, columns),
        None => quote::cut_middle(&quote::escape(&usage.command), columns),
    };
    match node {
        Some(node) => format!("{}: {command}", quote::cut_middle(&quote::escape(node), NODE_COLUMNS)),
        None => command,
    }
}

/// Renders the bars as a table: pid, start and end in the unit of `time`, and command. `title` names it for screen readers.
fn table(title: &str, bars: &[Bar], time: &Time) -> String {
    let (unit, unit_s) = time.unit();
    let row = |bar: &Bar| {
        let usage = &bar.process.usage;
        let in_unit = |s: f64| number(Some(s / unit_s));
        let start = in_unit(bar.start_s);
        let end = match bar.end {
            End::At(end_s) => in_unit(end_s),
            End::Running => "still running".to_owned(),
            End::Unknown(_) => "exit unknown".to_owned(),
        };
        [usage.pid.to_string(), start, end, name(bar.process, NAME_COLUMNS)]
    };
    start_and_end(title, ["PID", "Command"], unit, bars.iter().map(row))
}

#[cfg(test)]
mod tests {
    use gpu_track_core::fixtures;

    use super::*;

    // Requirement: TASK-8
    #[test]
    fn bar_of_a_task_has_the_figures_of_all_within_its_time() {
        let [rule, job, _] = <[TaskUsage; 3]>::try_from(fixtures::tasks()).unwrap();
        assert_eq!(figures_of(&rule), "250 MB, 0.96 cores");
        assert_eq!(figures_of(&job), "50.0 MB, 0.80 cores");
        let short = TaskUsage { wall_s: Some(0.003), cpu_s: Some(0.008), ..job };
        assert_eq!(figures_of(&short), "50.0 MB", "its start alone is longer");
    }
}
