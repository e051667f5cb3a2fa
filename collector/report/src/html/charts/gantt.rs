//! The processes over time: how many lived, and when the heaviest of them did.

use super::by_command::colour;
use super::figure::{Figure, Panel, Ticks, percent};
use super::lines::{Line, Lines};
use super::samples::{self, Quantity};
use super::time::Time;
use crate::figures::{number, thousands};
use crate::html::colours;
use crate::html::escape::escape;
use crate::model::report::{HeavyProcess, Report};
use crate::over_time::Rule;
use crate::quote;

/// Height of the plot of their number, pixels.
const HEIGHT: f64 = 60.0;
/// Pixels from one bar to the next, and those of a bar.
const ROW: f64 = 18.0;
const BAR: f64 = 13.0;
/// A bar is at least this part of the plot, so that it can be seen.
const LEAST_PART: f64 = 0.0015;
/// Most bars.
const MOST: usize = 60;
/// Most columns of a name beside a bar.
const NAME: usize = 32;

/// Draws how many processes lived. `None`: it is not known.
pub(super) fn count(report: &Report, time: &Time) -> Option<Figure> {
    const TITLE: &str = "Live processes";
    let values = &report.series.processes.max;
    let figure = report.processes.max_concurrent.map(|most| format!("at most {}", thousands(most as f64)));
    let lines = [Some(Line { name: "live".to_owned(), values, figure: figure.unwrap_or_default() }), None];
    let (label, unit, ticks) = ("Number".to_owned(), String::new(), Ticks { time: 6, values: 2 });
    let panel = Lines { label, unit, height: HEIGHT, ticks, top: None, lines }.panel(time)?;
    let quantity = Quantity { name: "live".to_owned(), rule: Rule::Largest, values };
    Some(Figure {
        title: TITLE.to_owned(),
        note: "The largest number in each point.".to_owned(),
        panels: vec![panel],
        table: samples::table(time, TITLE, samples::PARTS, &[quantity]),
    })
}

/// A process with its time.
struct Bar<'a> {
    process: &'a HeavyProcess,
    start_s: f64,
    end_s: f64,
    /// When the first one of its command started.
    first_s: f64,
}

/// Draws when the heaviest processes lived. `None`: the report does not tell it.
pub(super) fn heaviest(report: &Report, time: &Time) -> Option<Figure> {
    const TITLE: &str = "Heaviest processes";
    let bars = bars(&report.processes.heaviest);
    if bars.is_empty() {
        return None;
    }
    let draw = |(at, bar): (usize, &Bar)| draw(at, bar, colour_of(report, &bar.process.usage.command), time);
    let panel = Panel {
        label: "Start and end of each".to_owned(),
        top: 1.0,
        unit: String::new(),
        height: bars.len() as f64 * ROW,
        ticks: Ticks { time: 6, values: 0 },
        paths: String::new(),
        words: bars.iter().enumerate().map(draw).collect(),
        legend: Vec::new(),
    };
    let count = format!("{} of {}", thousands(bars.len() as f64), thousands(report.processes.total as f64));
    Some(Figure {
        title: TITLE.to_owned(),
        note: format!(
            "{count} processes: those with most CPU time, RAM or GPU memory. A bar is as long as its process lived."
        ),
        panels: vec![panel],
        table: table(TITLE, &bars, time),
    })
}

/// Gives those whose start is known, by command.
fn bars(processes: &[HeavyProcess]) -> Vec<Bar<'_>> {
    let known = processes.iter().filter_map(|process| Some((process, process.start_s?))).take(MOST);
    let bar = |(process, start_s): (_, f64)| {
        let process: &HeavyProcess = process;
        let same = processes.iter().filter(|other| other.usage.command == process.usage.command);
        let first_s = same.filter_map(|other| other.start_s).fold(start_s, f64::min);
        Bar { process, start_s, end_s: start_s + process.usage.wall_s, first_s }
    };
    let mut bars: Vec<Bar> = known.map(bar).collect();
    bars.sort_by(|a, b| {
        let by_command = a
            .first_s
            .total_cmp(&b.first_s)
            .then_with(|| a.process.usage.command.cmp(&b.process.usage.command));
        by_command.then(a.start_s.total_cmp(&b.start_s))
    });
    bars
}

fn colour_of(report: &Report, command: &str) -> &'static str {
    let at = report.series.commands.iter().position(|listed| listed.command == command);
    at.map_or(colours::OTHERS, colour)
}

/// Draws a bar, and its name where there is room: behind it, before it, or on it.
fn draw(at: usize, bar: &Bar, colour: &str, time: &Time) -> String {
    let (left, right) = (time.part(bar.start_s), time.part(bar.end_s));
    let right = right.max(left + LEAST_PART);
    let y = Panel::y_of(1.0, 1.0, 0.0) + at as f64 * ROW;
    let usage = &bar.process.usage;
    let name = format!("{} {}", quote::cut_middle(&quote::escape(&usage.command), NAME), usage.pid);
    let (x, dx, anchor, fill) = match (left, right) {
        (_, ..0.7) => (right, 6, "start", "currentColor"),
        (0.3.., _) => (left, -6, "end", "currentColor"),
        _ => (left, 6, "start", colours::ON_AREA),
    };
    format!(
        "<rect class=\"g\" x=\"{}%\" y=\"{y}\" width=\"{}%\" height=\"{BAR}\" fill=\"{colour}\"/><text x=\"{}%\" dx=\"{dx}\" \
         y=\"{}\" text-anchor=\"{anchor}\" fill=\"{fill}\">{}</text>\n",
        percent(left),
        percent(right - left),
        percent(x),
        y + 11.0,
        escape(&name)
    )
}

fn table(title: &str, bars: &[Bar], time: &Time) -> String {
    let (unit, unit_s) = time.unit();
    let row = |bar: &Bar| {
        let usage = &bar.process.usage;
        let [start, end] = [bar.start_s, bar.end_s].map(|s| number(Some(s / unit_s)));
        let name = escape(&quote::cut_middle(&quote::escape(&usage.command), NAME));
        format!(
            "<tr><th scope=\"row\">{}</th><td>{start}</td><td>{end}</td><td class=\"words\">{name}</td></tr>\n",
            usage.pid
        )
    };
    let rows: String = bars.iter().map(row).collect();
    let heads = ["PID".to_owned(), format!("start [{unit}]"), format!("end [{unit}]")];
    let heads: String = heads.iter().map(|head| format!("<th scope=\"col\">{head}</th>")).collect();
    format!(
        "<div class=\"scroll\" tabindex=\"0\">\n<table aria-label=\"{}\">\n<thead><tr>{heads}<th scope=\"col\" class=\"words\">Command</th></tr></thead>\n\
         <tbody>\n{rows}</tbody>\n</table>\n</div>\n",
        escape(title)
    )
}
