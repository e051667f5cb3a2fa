//! Where the wall time went.

use crate::document::{Block, Column, Section, Table};
use crate::figures::short;
use crate::model::report::{Report, StateTime, TimeSpent, TimeState, VerdictKind};
use crate::model::sorting::Sorting;
use crate::units::Units;

/// States that the summary names where none took most of the time.
const MAX_NAMED: usize = 4;
/// Smaller parts of the time are not named.
const LEAST_SHARE: f64 = 0.02;
/// A shorter run has no row, seconds.
const SHORTEST_S: f64 = 1.0;

/// Makes the summary's row: what took most of the time, or what shared it. `None`: the run was short, or too little is known.
pub(super) fn row(report: &Report) -> Option<Block> {
    let spent = report.time_spent.as_ref()?;
    if let Some(verdict) = &spent.verdict {
        let next_step = verdict.next_step.iter().map(|step| format!("; {step}"));
        return Some(Block::Paragraph("Time", verdict.text.clone() + &next_step.collect::<String>()));
    }
    let mut states: Vec<&StateTime> =
        spent.states.iter().filter(|state| state.share >= LEAST_SHARE).collect();
    if report.wall_s < SHORTEST_S || states.iter().all(|state| state.state == TimeState::Unknown) {
        return None;
    }
    states.order_by(|a, b| b.share.total_cmp(&a.share));
    let parts: Vec<String> = states.into_iter().take(MAX_NAMED).map(part).collect();
    Some(Block::text("Time", parts.join(", ")))
}

/// Whether the row of the cores that others had can be left out. A verdict about waiting for a core says the same. A run that waited for
/// one for less than a tenth of its time was not held up.
pub(super) fn says_all_of_cores(report: &Report) -> bool {
    const LEAST_WAIT_SHARE: f64 = 0.1;
    report.time_spent.as_ref().is_some_and(|spent| {
        let verdict = spent.verdict.as_ref();
        let is_about_them =
            verdict.is_some_and(|verdict| verdict.kind == VerdictKind::State(TimeState::WaitingForCore));
        let waited = spent.states.iter().find(|state| state.state == TimeState::WaitingForCore);
        is_about_them || spent.n_samples > 0 && waited.is_none_or(|state| state.share < LEAST_WAIT_SHARE)
    })
}

/// Formats a state's part of the time: `storage 41%`.
fn part(state: &StateTime) -> String {
    format!("{} {:.0}%", state.state.label(), state.share * 100.0)
}

/// Makes the section of the states.
pub(super) fn section(report: &Report, units: Units) -> Section {
    let mut section = Section::new("Where the time went");
    let Some(spent) = &report.time_spent else { return section };
    if let Some(verdict) = &spent.verdict {
        section = section.text("In short", verdict.text.clone()).text("Next step", verdict.next_step.clone());
    }
    section
        .text("Not known", spent.reason.clone())
        .text("Cores while computing", spent.cores_while_computing.map(short))
        .text("How it is known", spent.basis.clone())
        .section(Section::default().table(states(spent, units)))
        .section(Section::new("Time of threads").table(threads(spent, units)))
}

/// Makes the table of the states: the part of the time that each took, and the commands that were in it.
fn states(spent: &TimeSpent, units: Units) -> Table {
    let columns = [
        Column::number("Part", "%"),
        Column::number("Time", units.time.symbol()),
        Column::text("State"),
        Column::text("Commands"),
    ];
    let rows = spent.states.iter().map(|state| {
        let commands: Vec<String> = state
            .by_command
            .iter()
            .map(|command| format!("{} {:.0}%", command.command, command.share * 100.0))
            .collect();
        [
            format!("{:.1}", state.share * 100.0),
            format!("{:.3}", units.time.convert(state.s)),
            state.state.label().to_owned(),
            commands.join(", "),
        ]
    });
    Table::new(columns, rows)
}

/// Makes the table of what the threads of each command did.
fn threads(spent: &TimeSpent, units: Units) -> Table {
    let columns = [Column::text("Command"), Column::text("Thread time by state")];
    let seconds = |s: f64| units.seconds(s);
    let rows = spent.commands.iter().map(|command| {
        let states = command.states.iter().map(|time| (time.state.label(), time.s));
        let others = [
            ("waiting for a child", command.waiting_for_children_s),
            ("waiting for a pipe of the run", command.waiting_for_pipes_s),
        ];
        let mut times: Vec<_> = states.chain(others).filter(|(_, s)| *s >= 0.001).collect();
        times.order_by(|a, b| b.1.total_cmp(&a.1));
        let times: Vec<String> =
            times.into_iter().map(|(label, s)| format!("{label} {}", seconds(s))).collect();
        [command.command.clone(), times.join(", ")]
    });
    Table::new(columns, rows)
}
