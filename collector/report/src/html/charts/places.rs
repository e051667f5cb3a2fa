//! RAM and CPU of each node and each rank over time, in a report of several nodes. A few nodes have a line each. More nodes, and
//! ranks, have a row each of a heat map.

use std::cmp::Reverse;
use std::time::SystemTime;

use super::by_command::convert;
use super::figure::{Figure, Ticks};
use super::heat_map::{HeatMap, MapRow};
use super::lines::{Line, LineStyle, Lines};
use super::samples::{self, ChartColumn};
use super::time::Time;
use crate::figures::{short, thousands};
use crate::html::colours::PLACES;
use crate::model::host_name;
use crate::model::report::{Merged, Node, RankSeries, Ranks, Report};
use crate::model::sorting::{InOrder, Sorting};
use crate::model::style::RamUnit;
use crate::over_time::Joining;
use crate::quote;
use crate::sections::busy_cores;
use crate::units::Units;

/// Height of the plot of lines, pixels.
const LINES_HEIGHT: f64 = 150.0;
/// Maximum number of lines of single nodes: each colour is used for a solid and a dashed line.
const MAX_LINES: usize = 2 * PLACES.len();
/// Dashes of the second line of a colour: in the plot, and in the legend.
const DASHED: [&str; 2] = ["7 3", "4 2"];
/// Style of the line of all other nodes, which is dotted.
const OTHERS: LineStyle = ("", "currentColor", Some(["1.5 3", "1.5 2"]));
/// Maximum number of rows of a heat map: each adds to the bytes of the page.
const MOST_ROWS: usize = 64;
/// Of more nodes than are shown, this part of the shown ones are the largest, and as many the smallest.
const EXTREME_PART: usize = 4;
/// This part of the shown ones are those that ended last.
const LAST_PART: usize = 8;
/// Maximum number of columns of a name in the head of a table.
const NAME_COLUMNS: usize = 40;

/// A node or a rank.
struct Place {
    name: String,
    /// A value for each point, in the chart's unit.
    values: Vec<Option<f64>>,
    /// The figure by which the largest places are chosen. `None`: unknown.
    size: Option<f64>,
    /// [`Self::size`] as text with its unit, for the legend; empty: unknown.
    figure: String,
    /// When the node ended. `None`: unknown, or a rank.
    end: Option<SystemTime>,
}

/// The quantity that is shown of each place.
struct PlaceQuantity<'a> {
    /// The quantity's name: `RAM` or `CPU`.
    name: &'static str,
    /// The unit of nodes.
    unit: &'static str,
    /// The unit of ranks, which can be much smaller than nodes.
    rank_unit: &'static str,
    /// What the nodes are ordered by: `largest RAM`.
    order: &'static str,
    /// What the figure beside each place is: `the largest of each at any time`.
    figure: &'static str,
    /// Makes the place of a node, in [`Self::unit`].
    of_node: &'a dyn Fn(&Node) -> Place,
    /// The values of a rank, in [`Self::rank_unit`].
    of_rank: &'a dyn Fn(&RankSeries) -> Vec<Option<f64>>,
}

/// Draws the RAM of nodes and ranks; nothing in the report of one node.
pub(super) fn ram(report: &Report, units: Units, time: &Time) -> Vec<Figure> {
    let nodes = report.nodes.iter().map(|node| &node.series.mean_ram_bytes);
    let ranks = report.ranks.iter().flat_map(|ranks| &ranks.series).map(|rank| &rank.mean_ram_bytes);
    // The page's unit fits all nodes together. They can have a thousand times as much as a single node, so it is not used here.
    let unit_of = |largest: f64| units.asked_ram.unwrap_or_else(|| RamUnit::that_fits(largest));
    let (node_unit, rank_unit) = (unit_of(largest(nodes)), unit_of(largest(ranks)));
    let of_node = |node: &Node| Place {
        name: node.node.clone(),
        values: convert(&node.series.mean_ram_bytes, |bytes| node_unit.convert(bytes)),
        size: node.ram.max_bytes.map(|bytes| bytes as f64),
        figure: node.ram.max_bytes.map_or_else(String::new, |bytes| {
            // The largest RAM of several reports together is known between bounds.
            let bound = if node.reports > 1 { "at least " } else { "" };
            format!("{bound}{} {}", short(node_unit.convert(bytes as f64)), node_unit.symbol())
        }),
        end: node.last_heard_at.map(|at| at.0),
    };
    let shown = PlaceQuantity {
        name: "RAM",
        unit: node_unit.symbol(),
        rank_unit: rank_unit.symbol(),
        order: "largest RAM",
        figure: "the largest of each at any time",
        of_node: &of_node,
        of_rank: &|rank| convert(&rank.mean_ram_bytes, |bytes| rank_unit.convert(bytes)),
    };
    shown.figures(report, time)
}

/// Draws the busy cores of nodes and ranks; nothing in the report of one node.
pub(super) fn cpu(report: &Report, time: &Time) -> Vec<Figure> {
    let in_cores = |percent: &[Option<f64>]| convert(percent, |percent| percent / 100.0);
    let of_node = |node: &Node| Place {
        name: node.node.clone(),
        values: in_cores(&node.series.mean_cpu_percent),
        size: node.busy_cores,
        figure: node.busy_cores.map(busy_cores).unwrap_or_default(),
        end: node.last_heard_at.map(|at| at.0),
    };
    let shown = PlaceQuantity {
        name: "CPU",
        unit: "cores",
        rank_unit: "cores",
        order: "busy cores",
        figure: "the mean of each over its time",
        of_node: &of_node,
        of_rank: &|rank| in_cores(&rank.mean_cpu_percent),
    };
    shown.figures(report, time)
}

impl Place {
    /// Whether a value is known.
    fn is_known(&self) -> bool {
        self.values.iter().any(Option::is_some)
    }
}

impl PlaceQuantity<'_> {
    /// Draws lines and a heat map of the nodes if values of at least two are known, and the heat map of [`Self::rank_map`].
    fn figures(&self, report: &Report, time: &Time) -> Vec<Figure> {
        let Some(merged) = &report.merged else { return Vec::new() };
        let nodes = largest_first(report.nodes.iter().map(self.of_node).collect());
        let count = (report.nodes.len() as u64).saturating_add(merged.unlisted_nodes);
        let node_time = time.of_points(&merged.node_start_s, &merged.node_end_s);
        let of_nodes = match nodes.iter().filter(|node| node.is_known()).count() {
            // The chart of all nodes together shows a single node already.
            ..2 => [None, None],
            _ => [self.node_lines(&nodes, &node_time), self.node_map(&nodes, count, &node_time)],
        };
        let of_ranks = report.ranks.as_ref().and_then(|ranks| self.rank_map(ranks, merged, time));
        of_nodes.into_iter().chain([of_ranks]).flatten().collect()
    }

    /// Draws a line for each of [`MAX_LINES`] nodes, and one for the mean of the others. Nodes of which nothing is known are left
    /// out. `nodes`: the largest first. `None`: all values are zero.
    fn node_lines(&self, nodes: &[Place], time: &Time) -> Option<Figure> {
        let Self { name, unit, figure, .. } = self;
        let title = format!("{name} by node");
        let known: Vec<&Place> = nodes.iter().filter(|node| node.is_known()).collect();
        let chosen = spread_out(&known, MAX_LINES);
        let (mut drawn, mut others) = (Vec::new(), Vec::new());
        for (at, node) in known.iter().enumerate() {
            if chosen.contains(&at) { &mut drawn } else { &mut others }.push(*node);
        }
        let lines = drawn.iter().map(|node| {
            let name = quote::cut_middle(&quote::escape(&node.name), NAME_COLUMNS);
            Line { name, values: &node.values, figure: node.figure.clone() }
        });
        let lines: Vec<Line> = lines.collect();
        let mean = mean_of(&others);
        let others_line = mean.as_ref().map(|values| Line {
            name: format!("mean of {} others", thousands(others.len() as f64)),
            values,
            figure: String::new(),
        });
        let lines_note = match others_line {
            Some(_) => format!(
                "means of {}; dotted: the mean of all others",
                self.which(drawn.len(), known.len() as u64, MAX_LINES)
            ),
            None => "the mean of each node".to_owned(),
        };
        let columns = lines.iter().chain(&others_line);
        let columns = columns.map(|line| ChartColumn::new(&line.name, unit, Joining::Mean, line.values));
        let quantities: Vec<ChartColumn> = columns.collect();
        let table = samples::table(time, &title, samples::PARTS, &quantities);
        let lines = lines.into_iter().zip(styles()).chain(others_line.map(|line| (line, OTHERS))).collect();
        let (label, unit, height) = ("A line for each node".to_owned(), (*unit).to_owned(), LINES_HEIGHT);
        let panel = Lines { label, unit, height, ticks: Ticks { time: 6, values: 4 }, top: None, lines };
        let panel = panel.panel(time)?;
        let note = format!("Lines: {lines_note}. Numbers below: {figure}.");
        Some(Figure { title, note, panels: vec![panel], table })
    }

    /// Draws a heat map with a row for each node, in the order of their names. Of more than [`MOST_ROWS`] nodes, it has rows of some, in
    /// the order of their sizes, with the place of each. `nodes`: the largest first. `count`: how many nodes the run had. `None` is as in
    /// [`HeatMap::panel`].
    fn node_map(&self, nodes: &[Place], count: u64, time: &Time) -> Option<Figure> {
        let are_all = nodes.len() as u64 == count && nodes.len() <= MOST_ROWS;
        let known: Vec<&Place> = nodes.iter().filter(|node| are_all || node.is_known()).collect();
        let mut shown = spread_out(&known, MOST_ROWS);
        if are_all {
            shown.sort_by_cached_key(|at| natural_order_key(&known[*at].name));
        }
        let labels = without_domains(&shown.iter().map(|at| known[*at].name.clone()).collect::<Vec<_>>());
        let row = |(at, label): (&usize, String)| {
            let number = if are_all { String::new() } else { format!("{}. ", at + 1) };
            let Place { name, values, .. } = known[*at];
            MapRow { name: number.clone() + name, label: number + &label, values: values.clone() }
        };
        let rows: Vec<MapRow> = shown.iter().zip(labels).map(row).collect();
        let which = match are_all {
            true => "the nodes".to_owned(),
            false => {
                format!("{}. Numbers: their places in this order", self.which(rows.len(), count, MOST_ROWS))
            }
        };
        self.heat_map("node", self.unit, rows, &which, time)
    }

    /// Says which nodes are shown: `64 of 1,000 nodes by largest RAM: ...`. `most`: how many [`spread_out`] was asked for.
    fn which(&self, shown: usize, count: u64, most: usize) -> String {
        format!(
            "{shown} of {} nodes by {}: the {extreme} largest, the {extreme} smallest, the last to end ({}), others at regular steps",
            thousands(count as f64),
            self.order,
            most / LAST_PART,
            extreme = most / EXTREME_PART
        )
    }

    /// Draws a heat map with a row for each rank that has a series. `None`: there are no more ranks than nodes, so the chart of
    /// nodes shows as much; or there is nothing to draw.
    fn rank_map(&self, ranks: &Ranks, merged: &Merged, time: &Time) -> Option<Figure> {
        if ranks.seen <= merged.nodes {
            return None;
        }
        let time = time.of_points(&ranks.series_start_s, &ranks.series_end_s);
        let hosts: Vec<String> = ranks.series.iter().map(|rank| rank.place.node.clone()).collect();
        let row = |(rank, host): (&RankSeries, String)| {
            let place = &rank.place;
            let (job, short_job) = match ranks.jobs {
                ..2 => (String::new(), String::new()),
                _ => (format!("job {} ", place.job), format!("{}/", place.job)),
            };
            MapRow {
                name: format!("{job}rank {} on {}", place.rank, place.node),
                label: format!("{short_job}{} {host}", place.rank),
                values: (self.of_rank)(rank),
            }
        };
        let rows = ranks.series.iter().zip(without_domains(&hosts)).take(MOST_ROWS).map(row);
        let rows: Vec<MapRow> = rows.collect();
        let which = if (rows.len() as u64) < ranks.seen {
            format!("{} of {} ranks, at regular steps", rows.len(), thousands(ranks.seen as f64))
        } else {
            "the ranks".to_owned()
        };
        let names = if ranks.jobs > 1 { "job/rank and node" } else { "number and node" };
        self.heat_map("rank", self.rank_unit, rows, &format!("{which}, by {names}"), &time)
    }

    /// Draws a heat map of these rows. `kind`: what each row is, `node` or `rank`. `which`: words for the note that say which nodes
    /// or ranks the rows are. `None` is as in [`HeatMap::panel`].
    fn heat_map(
        &self,
        kind: &str,
        unit: &'static str,
        rows: Vec<MapRow>,
        which: &str,
        time: &Time,
    ) -> Option<Figure> {
        let name = self.name;
        let title = format!("{name} by {kind} and time");
        let map = HeatMap { label: format!("A row for each {kind}"), unit, rows };
        let table = map.table(&title, &format!("{name} [{unit}]"), time);
        let panel = map.panel(time)?;
        let note = format!("Rows: {which}. Colours: means over the time of each cell.");
        Some(Figure { title, note, panels: vec![panel], table })
    }
}

/// The styles of the lines of nodes, in their order.
fn styles() -> impl Iterator<Item = LineStyle> {
    let all = |dashes| PLACES.into_iter().map(move |(class, colour)| (class, colour, Some(dashes)));
    all([""; 2]).chain(all(DASHED))
}

/// The largest of all values; 0 if none is known.
fn largest<'a>(lists: impl Iterator<Item = &'a Vec<Option<f64>>>) -> f64 {
    lists.flatten().flatten().copied().fold(0.0, f64::max)
}

/// The names of hosts without their domains, unless two hosts would read alike.
fn without_domains(names: &[String]) -> Vec<String> {
    let hosts: Vec<&str> = names.iter().map(|name| host_name::short(name)).collect();
    let stay_distinct = hosts.iter().ordered_set().len() == names.iter().ordered_set().len();
    if stay_distinct { hosts.into_iter().map(str::to_owned).collect() } else { names.to_vec() }
}

/// Orders places by size, the largest first. Places of an unknown size are last.
fn largest_first(mut places: Vec<Place>) -> Vec<Place> {
    let key = |place: &Place| place.size.unwrap_or(f64::NEG_INFINITY);
    places.order_by(|a, b| key(b).total_cmp(&key(a)));
    places
}

/// The places of at most `most` of these nodes, which are in an order: the first and the last ones, those that ended last, and others at
/// regular steps, so that quantiles show.
fn spread_out(nodes: &[&Place], most: usize) -> Vec<usize> {
    let all = nodes.len();
    if all <= most {
        return (0..all).collect();
    }
    let extreme = most / EXTREME_PART;
    let mut is_chosen = vec![false; all];
    is_chosen[..extreme].fill(true);
    is_chosen[all - extreme..].fill(true);
    let mut by_end: Vec<usize> = (0..all).collect();
    by_end.order_by_key(|at| Reverse(nodes[*at].end));
    for at in by_end.into_iter().take(most / LAST_PART) {
        is_chosen[at] = true;
    }
    let steps = most - is_chosen.iter().filter(|is_chosen| **is_chosen).count() + 1;
    for step in 1..steps {
        is_chosen[extreme + step * (all - 2 * extreme) / steps] = true;
    }
    (0..all).filter(|at| is_chosen[*at]).collect()
}

/// The mean at each point, over the places whose value is known there. `None`: there are no places.
fn mean_of(places: &[&Place]) -> Option<Vec<Option<f64>>> {
    let points = places.iter().map(|place| place.values.len()).max()?;
    let mean = |at: usize| {
        let known = || places.iter().filter_map(|place| place.values.get(at).copied().flatten());
        let count = known().count();
        (count > 0).then(|| known().sum::<f64>() / count as f64)
    };
    Some((0..points).map(mean).collect())
}

/// Makes a key that sorts `n2` before `n10`: each number in the name has leading zeros.
fn natural_order_key(name: &str) -> String {
    /// More than the digits of any number in a name of a host.
    const DIGITS: usize = 20;
    let mut key = String::new();
    let mut rest = name;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let (text, from_digits) = rest.split_at(start);
        let end = from_digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(from_digits.len());
        let (digits, after) = from_digits.split_at(end);
        key += text;
        key += &"0".repeat(DIGITS.saturating_sub(digits.len()));
        key += digits;
        rest = after;
    }
    key + rest
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn names_stand_in_the_order_of_their_numbers() {
        let mut names = ["n10", "n2", "n1", "rack2-n1", "rack1-n12", "rack1-n3", "login", "n2b"];
        names.sort_by_cached_key(|name| natural_order_key(name));
        assert_eq!(names, ["login", "n1", "n2", "n2b", "n10", "rack1-n3", "rack1-n12", "rack2-n1"]);
    }

    #[test]
    fn domains_are_left_out_where_hosts_differ_without_them() {
        let names = |names: &[&str]| {
            without_domains(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(names(&["n1.a.org", "n2.a.org", "n2.a.org"]), ["n1", "n2", "n2"]);
        assert_eq!(names(&["10.0.0.1", "10.0.0.2"]), ["10.0.0.1", "10.0.0.2"]);
    }

    fn place(values: &[Option<f64>], end: Option<SystemTime>) -> Place {
        Place { name: String::new(), values: values.to_vec(), size: None, figure: String::new(), end }
    }

    // Requirement: NODE-17
    #[test]
    fn largest_smallest_and_late_nodes_are_shown_and_steps_between_them() {
        let node = |at: u64| {
            let end_s = if [31, 61].contains(&at) { 20 } else { 10 };
            place(&[], Some(SystemTime::UNIX_EPOCH + Duration::from_secs(end_s)))
        };
        let nodes: Vec<Place> = (0..101).map(node).collect();
        let of = |count: usize, most: usize| spread_out(&nodes.iter().take(count).collect::<Vec<_>>(), most);
        assert_eq!(of(101, 16), [0, 1, 2, 3, 17, 30, 31, 43, 57, 61, 70, 83, 97, 98, 99, 100]);
        assert_eq!(of(16, 16), (0..16).collect::<Vec<_>>(), "all");
        for count in 17..101 {
            let shown = of(count, 16);
            assert!(
                (12..=16).contains(&shown.len()) && shown.iter().all(|at| *at < count),
                "{count}: {shown:?}"
            );
        }
    }

    #[test]
    fn mean_is_of_those_that_are_known() {
        let place = |values: &[Option<f64>]| place(values, None);
        let (a, b) = (place(&[Some(1.0), None, Some(2.0)]), place(&[Some(3.0), None]));
        assert_eq!(mean_of(&[&a, &b]), Some(vec![Some(2.0), None, Some(2.0)]));
        assert_eq!(mean_of(&[]), None);
    }
}
