//! RAM and CPU over time, as far as they are known: bounded, whatever the length of the run.

use gpu_track_collector::model::sorting::Sorting;
use std::cmp::Reverse;

/// Most stretches that are kept. Beyond that, neighbours become one.
const MOST_POINTS: usize = 2048;
/// Most command names that are kept apart.
const MOST_COMMANDS: usize = 256;

/// A stretch of time. `C` names a command.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Point<C = String> {
    /// Its begin, seconds after the start of the run.
    pub(super) from_s: f64,
    /// Its end, seconds after the start of the run.
    pub(super) at_s: f64,
    /// The largest RAM of the tree within it, bytes.
    pub(super) ram_bytes: u64,
    /// CPU utilization, percent of one core. `None`: not known.
    pub(super) cpu_percent: Option<f64>,
    /// RAM by command, bytes. `None`: not known of this time.
    pub(super) by_command: Option<Vec<(C, u64)>>,
}

/// RAM and CPU over time, for the charts of the view.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct History {
    /// A command is named by its place in `commands`.
    points: Vec<Point<usize>>,
    /// Names of commands, and the largest RAM of each at one time, bytes. Their order never changes.
    commands: Vec<(String, u64)>,
}

/// RAM and CPU within a column of a chart.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Column {
    /// The largest RAM of the tree, bytes.
    pub(super) ram_bytes: u64,
    /// CPU utilization, percent of one core: the mean of the stretches that reach into the column. `None`: not known.
    pub(super) cpu_percent: Option<f64>,
    /// Bytes of each of the commands that were asked for, in their order. `None`: not known.
    pub(super) by_command: Option<Vec<u64>>,
}

impl History {
    /// Appends a stretch. If there are then too many, every two neighbours become one. The RAM of commands is noted for
    /// [`Self::largest_commands`]. Commands beyond [`MOST_COMMANDS`] are left out of the stretch.
    pub(super) fn push(&mut self, point: Point) {
        let Point { from_s, at_s, ram_bytes, cpu_percent, by_command } = point;
        let by_command = by_command.map(|all| {
            let numbered = |(name, bytes): (String, u64)| Some((self.number(&name, bytes)?, bytes));
            all.into_iter().filter_map(numbered).collect()
        });
        self.points.push(Point { from_s, at_s, ram_bytes, cpu_percent, by_command });
        if self.points.len() > MOST_POINTS {
            self.points = self.points.chunks(2).filter_map(joined).collect();
        }
    }

    /// Finds the number of a command, and notes that it had so much RAM. A new command gets a number. `None`: too many commands have
    /// one.
    fn number(&mut self, name: &str, bytes: u64) -> Option<usize> {
        if let Some(at) = self.commands.iter().position(|(known, _)| known == name) {
            let (_, largest_bytes) = &mut self.commands[at];
            *largest_bytes = bytes.max(*largest_bytes);
            return Some(at);
        }
        if self.commands.len() >= MOST_COMMANDS {
            return None;
        }
        self.commands.push((name.to_owned(), bytes));
        Some(self.commands.len() - 1)
    }

    /// The names of the commands that had most RAM at one time, the largest first, `most` at most.
    pub(super) fn largest_commands(&self, most: usize) -> Vec<&str> {
        let mut all: Vec<(&str, u64)> =
            self.commands.iter().map(|(name, largest_bytes)| (name.as_str(), *largest_bytes)).collect();
        all.order_by_key(|(name, largest_bytes)| (Reverse(*largest_bytes), *name));
        all.into_iter().take(most).map(|(name, _)| name).collect()
    }

    /// Where the knowledge begins, seconds after the start of the run. `None`: nothing is known yet.
    pub(super) fn since_s(&self) -> Option<f64> {
        self.points.first().map(|point| point.from_s)
    }

    /// Where the knowledge of commands begins, seconds after the start of the run. `None`: nothing is known of them.
    pub(super) fn commands_since_s(&self) -> Option<f64> {
        self.points.iter().find(|point| point.by_command.is_some()).map(|point| point.from_s)
    }

    /// Parts the time from 0 to `end_s` into `count` columns. A column has the RAM of its largest stretch, also by command, and the mean
    /// CPU utilization of its time. `None` stands for a column of which nothing is known. `commands`: names whose bytes each column has.
    pub(super) fn columns(&self, end_s: f64, count: usize, commands: &[&str]) -> Vec<Option<Column>> {
        let mut all = vec![Stretches::default(); count];
        let width_s = end_s / count as f64;
        let column_at = |at_s: f64| if width_s > 0.0 { (at_s / width_s) as usize } else { 0 };
        for point in self.points.iter().filter(|point| point.from_s <= end_s) {
            let first = column_at(point.from_s.max(0.0)).min(count.saturating_sub(1));
            // A stretch that ends where a column begins is not in that column, whatever the rounding. Each is in one column at least.
            let end = column_at(point.at_s - width_s * 1e-6).saturating_add(1).max(first + 1);
            for (number, stretches) in all.iter_mut().enumerate().take(end).skip(first) {
                let from_s = number as f64 * width_s;
                stretches.add(point, (point.at_s.min(from_s + width_s) - point.from_s.max(from_s)).max(0.0));
            }
        }
        let numbers: Vec<Option<usize>> =
            commands.iter().map(|name| self.commands.iter().position(|(known, _)| known == name)).collect();
        let column = |point: &Point<usize>, cpu_percent: Option<f64>| Column {
            ram_bytes: point.ram_bytes,
            cpu_percent,
            by_command: point.by_command.as_ref().map(|known| {
                // A command that the stretch does not name had nothing in it.
                let bytes_of = |number: &Option<usize>| {
                    known.iter().find(|(other, _)| Some(*other) == *number).map_or(0, |(_, bytes)| *bytes)
                };
                numbers.iter().map(bytes_of).collect()
            }),
        };
        let made = all.iter().map(|stretches| Some(column(stretches.largest?, stretches.cpu_percent())));
        made.collect()
    }
}

/// The stretches of a column.
#[derive(Debug, Clone, Default)]
struct Stretches<'a> {
    /// The one with most RAM; of several with the same RAM, the last.
    largest: Option<&'a Point<usize>>,
    /// CPU utilization times time.
    cpu_percent_s: f64,
    /// The time in which that is known.
    known_s: f64,
}

impl<'a> Stretches<'a> {
    /// Adds a stretch, of which `length_s` is in the column.
    fn add(&mut self, point: &'a Point<usize>, length_s: f64) {
        if self.largest.is_none_or(|other| point.ram_bytes >= other.ram_bytes) {
            self.largest = Some(point);
        }
        if let Some(percent) = point.cpu_percent {
            self.cpu_percent_s += percent * length_s;
            self.known_s += length_s;
        }
    }

    fn cpu_percent(&self) -> Option<f64> {
        (self.known_s > 0.0).then(|| self.cpu_percent_s / self.known_s)
    }
}

impl Point<usize> {
    fn length_s(&self) -> f64 {
        (self.at_s - self.from_s).max(0.0)
    }
}

/// Joins neighbours to one stretch, with their mean CPU utilization, and with the RAM and the commands of the one with most RAM.
/// Among several with the same RAM, one whose commands are known goes first. `None`: there are none.
fn joined(neighbours: &[Point<usize>]) -> Option<Point<usize>> {
    let (first, last) = (neighbours.first()?, neighbours.last()?);
    let largest = neighbours.iter().max_by_key(|point| (point.ram_bytes, point.by_command.is_some()))?;
    let known = || neighbours.iter().filter_map(|point| Some((point.cpu_percent?, point.length_s())));
    let length_s: f64 = known().map(|(_, length_s)| length_s).sum();
    let sum: f64 = known().map(|(percent, length_s)| percent * length_s).sum();
    let cpu_percent = (length_s > 0.0).then(|| sum / length_s);
    Some(Point { from_s: first.from_s, at_s: last.at_s, cpu_percent, ..largest.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(from_s: f64, at_s: f64, ram_bytes: u64, by_command: &[(&str, u64)]) -> Point {
        let by_command = by_command.iter().map(|(name, bytes)| ((*name).to_owned(), *bytes)).collect();
        Point { from_s, at_s, ram_bytes, cpu_percent: Some(at_s * 10.0), by_command: Some(by_command) }
    }

    #[test]
    fn cpu_of_a_column_is_the_mean_of_its_own_time() {
        let mut history = History::default();
        for (from_s, at_s, percent) in [(0.0, 9.9, 0.0), (9.9, 100.0, 100.0)] {
            history.push(Point { cpu_percent: Some(percent), ..point(from_s, at_s, 1, &[]) });
        }
        let columns = history.columns(100.0, 10, &[]);
        let cpu: Vec<f64> =
            columns.iter().map(|column| column.as_ref().unwrap().cpu_percent.unwrap()).collect();
        assert!((cpu[0] - 1.0).abs() < 1e-9, "{cpu:?}");
        assert!(cpu[1..].iter().all(|percent| (percent - 100.0).abs() < 1e-9), "{cpu:?}");
    }

    #[test]
    fn column_has_the_largest_moment_of_its_time_and_unknown_time_has_none() {
        let mut history = History::default();
        history.push(Point { from_s: 2.0, at_s: 3.0, ram_bytes: 7, ..Point::default() });
        history.push(point(3.0, 3.5, 5, &[("a", 4), ("b", 1)]));
        history.push(point(3.5, 4.0, 9, &[("b", 9)]));
        assert_eq!((history.since_s(), history.commands_since_s()), (Some(2.0), Some(3.0)));
        assert_eq!(history.largest_commands(1), ["b"]);
        let columns = history.columns(4.0, 4, &["a", "b", "no such"]);
        assert_eq!(columns[..2], [None, None]);
        assert_eq!(columns[2], Some(Column { ram_bytes: 7, ..Column::default() }));
        assert_eq!(
            columns[3],
            Some(Column { ram_bytes: 9, cpu_percent: Some(37.5), by_command: Some(vec![0, 9, 0]) })
        );
        assert_eq!(
            history.columns(3.4, 1, &["a"])[0].as_ref().unwrap().ram_bytes,
            7,
            "what came later is not shown"
        );
        assert!(history.columns(0.0, 3, &[]).iter().all(Option::is_none));
    }

    #[test]
    fn column_in_which_a_stretch_ends_has_it_too() {
        let mut history = History::default();
        history.push(point(0.0, 1.5, 10, &[]));
        history.push(point(1.5, 2.0, 1, &[]));
        let ram = |count| -> Vec<u64> {
            history.columns(2.0, count, &[]).iter().map(|column| column.as_ref().unwrap().ram_bytes).collect()
        };
        assert_eq!((ram(2), ram(4)), (vec![10, 10], vec![10, 10, 10, 1]));
    }

    #[test]
    fn long_run_and_endless_names_keep_the_peak_in_bounded_memory() {
        let mut history = History::default();
        for second in 0..100_000_u32 {
            let ram = if second == 77_777 { 1_000 } else { 10 };
            let name = format!("name {second}");
            history.push(point(f64::from(second), f64::from(second) + 1.0, ram, &[(&name, ram)]));
        }
        assert!(history.points.len() <= MOST_POINTS && history.commands.len() <= MOST_COMMANDS);
        let columns = history.columns(100_000.0, 100, &[]);
        let largest = columns.iter().flatten().map(|column| column.ram_bytes).max();
        assert_eq!((largest, columns[77].as_ref().unwrap().ram_bytes), (Some(1_000), 1_000));
        assert_eq!(history.since_s(), Some(0.0));
    }
}
