//! What alerts and limits did, as marks on the time axis, and as a table beside the chart.

use super::figure::{ABOVE, percent};
use super::marks::HEIGHT;
use super::time::Time;
use crate::alerts_in_words::event_in_words;
use crate::document::{Column, Table};
use crate::html::colours;
use crate::html::escape::escape;
use crate::html::table::{self, MOST_ROWS};
use crate::model::alert::{EventKind, RunEvent};
use crate::model::report::Report;
use crate::model::rule::Quantity;

/// The events that a chart marks.
pub(super) struct AlertMarks<'a> {
    /// The first [`MOST_ROWS`] of these events.
    events: Vec<&'a RunEvent>,
    /// The number of all these events.
    count: usize,
}

impl<'a> AlertMarks<'a> {
    /// The events of the chart of RAM: those about memory, disks, and limits.
    pub(super) fn of_ram(report: &'a Report) -> Self {
        Self::new(report, |quantity| !is_about_idleness(quantity))
    }

    /// The events of the chart of cores: those about idle cores and GPUs.
    pub(super) fn of_cores(report: &'a Report) -> Self {
        Self::new(report, is_about_idleness)
    }

    /// The events that have a mark and whose quantity `fits` the chart.
    fn new(report: &'a Report, fits: impl Fn(Option<Quantity>) -> bool) -> Self {
        let all = report.events.iter().flat_map(|events| &events.list);
        let is_marked = |event: &&RunEvent| class_and_colour(event.kind).is_some() && fits(event.quantity);
        let mut events: Vec<&RunEvent> = all.filter(is_marked).collect();
        let count = events.len();
        events.truncate(MOST_ROWS);
        Self { events, count }
    }

    /// Explains the marks; nothing if there are none.
    pub(super) fn note(&self) -> &'static str {
        if self.events.is_empty() {
            ""
        } else {
            " Triangles: an alert goes on, or off (empty), or a limit is exceeded; the table says which."
        }
    }

    /// Draws a triangle on the time axis for each event, with a tooltip that says what happened. The triangle of an alert that is
    /// over is empty; all others are full.
    pub(super) fn marks(&self, time: &Time) -> String {
        let y = ABOVE + HEIGHT;
        let mark = |event: &&RunEvent| {
            let (class, colour) = class_and_colour(event.kind)?;
            let x = percent(time.part(event.at_s));
            // A full triangle has an edge in the colour of the page, since it stands on areas of any colour.
            let (fill, edge) = match event.kind {
                EventKind::Recovered => (colours::PAGE, String::new()),
                _ => (colour, format!(" class=\"halo\" stroke=\"{}\"", colours::PAGE)),
            };
            let words = escape(&event_in_words(event));
            Some(format!(
                "<g class=\"{class}\" stroke=\"{colour}\" fill=\"{fill}\"><title>{}: {words}</title><line x1=\"{x}%\" x2=\"{x}%\" \
                 y1=\"{ABOVE}\" y2=\"{y}\" stroke-dasharray=\"2 3\"/><svg x=\"{x}%\" y=\"{y}\" overflow=\"visible\"><path{edge} \
                 d=\"M0 0l-6-11h12z\"/></svg></g>\n",
                event.kind.name(),
            ))
        };
        self.events.iter().filter_map(mark).collect()
    }

    /// Renders a table of the events; nothing if there are none. `title`: that of the chart.
    pub(super) fn table(&self, title: &str, time: &Time) -> String {
        if self.events.is_empty() {
            return String::new();
        }
        let heads = [Column::count("at"), Column::text("event"), Column::text("what")];
        let row =
            |event: &&RunEvent| [time.text(event.at_s), event.kind.name().to_owned(), event_in_words(event)];
        let table = Table { total: self.count, ..Table::new(heads, self.events.iter().map(row)) };
        table::table(&format!("{title}: alerts and limits"), &table, MOST_ROWS)
    }
}

/// Whether an event of this quantity is about idle cores or GPUs. `None`: an exceeded limit, which has no quantity.
fn is_about_idleness(quantity: Option<Quantity>) -> bool {
    matches!(quantity, Some(Quantity::Cpu | Quantity::GpuIdle))
}

/// The CSS class of a mark, and its colour in light mode. `None`: an event of this kind has no mark.
fn class_and_colour(kind: EventKind) -> Option<(&'static str, &'static str)> {
    match kind {
        EventKind::Warning | EventKind::Growth | EventKind::GpuIdle => Some(("mw", colours::WARNING)),
        EventKind::Critical | EventKind::Limit => Some(("mc", colours::LIMIT)),
        EventKind::Recovered => Some(("mr", colours::RECOVERED)),
        EventKind::Start
        | EventKind::Stop
        | EventKind::Peak
        | EventKind::Jump
        | EventKind::Allocation
        | EventKind::Deallocation
        | EventKind::Error => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::alert::Events;
    use crate::model::style::Style;
    use crate::units::Units;
    use gpu_track_core::fixtures::killed;

    // Requirement: OUT-34
    #[test]
    fn alerts_that_go_on_and_off_have_a_mark_with_words_on_the_chart_they_are_about() {
        let mut report = killed();
        let event = |at_s, kind, quantity: Option<Quantity>| RunEvent {
            rule: Some("<rule>".into()),
            quantity,
            ..RunEvent::new(at_s, kind)
        };
        let mut list = vec![
            event(1.0, EventKind::Allocation, Some(Quantity::GpuRam)),
            event(2.0, EventKind::GpuIdle, Some(Quantity::GpuIdle)),
            event(3.0, EventKind::Limit, None),
        ];
        list.extend((0..100).map(|_| event(4.0, EventKind::Recovered, Some(Quantity::Ram))));
        report.events = Some(Events { list, ..Events::default() });
        let time = Time::new(&report.series, 8.0, Units::choose(&report, &Style::default()));
        let (ram, cores) = (AlertMarks::of_ram(&report), AlertMarks::of_cores(&report));
        let (on_ram, on_cores) = (ram.marks(&time), cores.marks(&time));
        assert_eq!([&on_ram, &on_cores].map(|marks| marks.matches("<title>").count()), [MOST_ROWS, 1]);
        assert!(
            on_ram.contains("<title>limit: limit &lt;rule&gt; exceeded") && on_ram.contains("x1=\"50%\"")
        );
        assert!(on_cores.contains("class=\"mw\"") && on_cores.contains("x1=\"25%\""), "{on_cores}");
        assert!(ram.table("RAM", &time).contains("... and 61 more"));
        assert!(ram.table("RAM", &time).contains("<td class=\"words\">recovered</td>"));
    }
}
