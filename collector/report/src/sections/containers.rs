//! The containers that a daemon ran for calls of the tree: a table of all, and a line for each in the summary.

use crate::document::{Block, Cell, Column, Section, Table, Tone};
use crate::model::report::{ContainerCertainty, ContainerUsage, Report};
use crate::quote::cut;
use crate::units::Units;

/// Maximum number of containers in the summary.
const MOST_ROWS: usize = 5;
/// Longest name of a container or image in a table, in columns.
const NAME_COLUMNS: usize = 40;

/// Makes the section of the containers, at most `most` of them. It shows nothing if the run had none.
pub(super) fn section(report: &Report, units: Units, most: usize) -> Section {
    let (time, ram) = (units.time.symbol(), units.ram.symbol());
    let head = [
        Column::count("Exit"),
        Column::number("Start", time),
        Column::number("Wall", time),
        Column::number("CPU", time),
        Column::number("Peak", ram),
        Column::text("Known"),
        Column::text("Container"),
        Column::text("Image"),
    ];
    let shown = report.containers.get(..most).unwrap_or(&report.containers);
    let rows = shown.iter().map(|container| {
        let times = [container.start_s, container.wall_s, container.cpu_s];
        let [start, wall, cpu] = times.map(|seconds| units.time_cell(seconds));
        let exit = container.exit_code.map(|code| code.to_string()).unwrap_or_default();
        let peak = units.ram_cell(container.peak_memory_bytes);
        let [name, image] = [&title(container), &container.image].map(|name| cut(name, NAME_COLUMNS));
        [exit, start, wall, cpu, peak, certainty(container).to_owned(), name, image]
    });
    let mut table = Table::new(head, rows);
    table.total = report.containers.len();
    let notes = |container: &ContainerUsage| {
        let memory = (container.oom_killed == Some(true)).then(|| "out of memory".to_owned());
        let notes: Vec<String> = memory.into_iter().chain(container.reason.clone()).collect();
        (!notes.is_empty()).then(|| format!("{}: {}", title(container), notes.join("; ")))
    };
    table.tips = shown.iter().map(|container| notes(container).unwrap_or_default()).collect();
    let notes = Section::list("Notes on containers", shown.iter().filter_map(notes).collect());
    Section::new("Containers (peak with page cache; these figures are in no sum)").table(table).section(notes)
}

/// Makes the summary's lines, one for each of the first containers, in at most `most_lines` lines.
pub(super) fn rows(report: &Report, units: Units, most_lines: usize) -> Vec<Block> {
    let all = &report.containers;
    let most = MOST_ROWS.min(most_lines);
    // The last line says how many more there are.
    let shown = if all.len() <= most { all.len() } else { MOST_ROWS.min(most_lines.saturating_sub(1)) };
    let row = |text: String| Block::Row("Container".to_owned(), vec![Cell::Text(Tone::Plain, text)]);
    let mut rows: Vec<Block> =
        all.iter().take(shown).map(|container| row(in_words(container, units))).collect();
    let more = all.len() - shown;
    rows.extend((more > 0 && most_lines > 0).then(|| row(format!("and {more} more"))));
    rows
}

/// Says in a line what a container used.
fn in_words(container: &ContainerUsage, units: Units) -> String {
    let is_matched = container.certainty == ContainerCertainty::Matched;
    let parts = [
        container.wall_s.map(|wall_s| units.seconds(wall_s)),
        container.cpu_s.map(|cpu_s| format!("CPU {}", units.seconds(cpu_s))),
        container.peak_memory_bytes.map(|bytes| format!("peak with page cache {}", units.bytes(bytes))),
        container.exit_code.map(|code| format!("exit {code}")),
        (container.oom_killed == Some(true)).then(|| "out of memory".to_owned()),
        is_matched.then(|| "matched".to_owned()),
        container.in_tree.then(|| "in the tree".to_owned()),
        container.reason.clone(),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    format!("{}: {}", cut(&title(container), NAME_COLUMNS), parts.join(", "))
}

fn title(container: &ContainerUsage) -> String {
    match &container.node {
        Some(node) => format!("{node}: {}", container.name),
        None => container.name.clone(),
    }
}

fn certainty(container: &ContainerUsage) -> &'static str {
    if container.in_tree { "in the tree" } else { container.certainty.name() }
}

#[cfg(test)]
mod tests {
    use gpu_track_core::fixtures;

    use super::*;
    use crate::model::style::Style;

    // Requirement: SEE-134
    #[test]
    fn each_container_has_a_line_and_five_are_shown() {
        let mut report = fixtures::killed();
        let one = report.containers[0].clone();
        let units = Units::choose(&report, &Style::default());
        let lines = |report: &Report, most| {
            let text = |block: &Block| match block {
                Block::Row(_, cells) => match &cells[..] {
                    [Cell::Text(_, text)] => text.clone(),
                    _ => panic!("another cell"),
                },
                _ => panic!("another block"),
            };
            rows(report, units, most).iter().map(text).collect::<Vec<_>>()
        };
        for (containers, most, shown, more) in [
            (0, 9, 0, None),
            (5, 9, 5, None),
            (6, 9, 5, Some("and 1 more")),
            (3, 2, 1, Some("and 2 more")),
            (3, 0, 0, None),
        ] {
            report.containers = vec![one.clone(); containers];
            let lines = lines(&report, most);
            assert_eq!(lines.len(), shown + usize::from(more.is_some()), "{containers}");
            if let Some(more) = more {
                assert_eq!(lines.last().unwrap(), more);
            }
        }
        report.containers = vec![ContainerUsage { cpu_s: None, exit_code: None, ..one }];
        let line = &lines(&report, 1)[0];
        assert!(!line.contains("CPU") && line.contains("out of memory"), "{line}");
    }
}
