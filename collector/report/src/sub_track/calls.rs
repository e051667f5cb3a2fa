//! From the marks of a sub-tracking file to the calls of each code block.
//!
//! gpu_tracker pairs marks that are neighbours by their times. That is wrong where a block is entered again before it ends:
//! it pairs both starts, and then both ends. Here each end belongs to the innermost call that is open in its process. For
//! blocks that are not nested, the result is the same.
//!
//! A start and a stop of its block in the next row are one call. The Python module writes both marks when a call ends. So calls
//! are right even where coroutines or threads of one process run a block at the same time. In a file that is sorted by time, such
//! a stop belongs to that start anyway, as the innermost open call.

use crate::model::sorting::Sorting;
use std::collections::HashMap;

use super::ordered::Ordered;

/// Maximum number of code blocks of a file. Each sample is looked up in each of them, so more would take hours.
const MOST_BLOCKS: usize = 10_000;

/// What a mark says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position {
    /// The block is entered.
    Start,
    /// The block is left.
    Stop,
}

/// A line of a sub-tracking file.
#[derive(Debug, Clone, PartialEq)]
pub struct Mark {
    /// The process that ran the block.
    pub process_id: i64,
    /// The block's name.
    pub code_block: String,
    /// Whether the block begins or ends.
    pub position: Position,
    /// When, seconds since the epoch.
    pub timestamp_s: f64,
}

/// A mark in little memory: a number stands for the name of its block.
#[derive(Debug, Clone, Copy)]
struct Entry {
    /// The number that stands for the name of its block in [`Marks::numbers`].
    block: usize,
    process_id: i64,
    position: Position,
    timestamp_s: f64,
}

impl Entry {
    /// Whether this is a start, and `next` can be its stop.
    fn is_left_by(&self, next: &Self) -> bool {
        (self.position, next.position) == (Position::Start, Position::Stop)
            && (self.block, self.process_id) == (next.block, next.process_id)
            && self.timestamp_s <= next.timestamp_s
    }
}

/// The marks of a file, collected one by one.
#[derive(Debug, Default)]
pub struct Marks {
    /// A number for the name of each block, from 0.
    numbers: HashMap<String, usize>,
    entries: Vec<Entry>,
}

impl Marks {
    /// Adds a mark, the next one of the file.
    ///
    /// # Errors
    /// If there are too many blocks: a text to put after the file's name.
    pub fn push(&mut self, mark: Mark) -> Result<(), String> {
        let Mark { process_id, code_block, position, timestamp_s } = mark;
        if self.numbers.len() == MOST_BLOCKS && !self.numbers.contains_key(&code_block) {
            return Err(format!(
                "has more than {MOST_BLOCKS} code blocks: give calls of the same code one name"
            ));
        }
        let next = self.numbers.len();
        let block = *self.numbers.entry(code_block).or_insert(next);
        self.entries.push(Entry { block, process_id, position, timestamp_s });
        Ok(())
    }

    /// Pairs the marks to calls, and returns the blocks in the order of their names. A call without an end is left out: its
    /// process was killed in it.
    ///
    /// # Errors
    /// If a call ends that did not begin: a text to put after the file's name.
    pub fn pair(self) -> Result<Blocks, String> {
        let Self { numbers, entries } = self;
        // The name and the calls of each block, by its number.
        let mut blocks: Vec<(String, Vec<Call>)> = vec![Default::default(); numbers.len()];
        for (name, block) in numbers {
            blocks[block].0 = name;
        }
        let mut entries = take_neighbours(entries, |block, call| blocks[block].1.push(call));
        // Marks of the same time stay in the order of the file: there a call ends before the next one begins.
        let place = |entry: &Entry| (entry.block, entry.process_id);
        entries.order_by(|a, b| place(a).cmp(&place(b)).then(a.timestamp_s.total_cmp(&b.timestamp_s)));
        for of_process in entries.chunk_by(|a, b| place(a) == place(b)) {
            let (name, calls) = &mut blocks[of_process[0].block];
            let not_entered = |at_s: f64| {
                let pid = of_process[0].process_id;
                format!(
                    "is no valid sub-tracking file: process {pid} leaves code block \"{name}\" at {at_s} without having entered it"
                )
            };
            calls.extend(calls_of_process(of_process).map_err(not_entered)?);
        }
        blocks.order_by(|(a, _), (b, _)| a.cmp(b));
        Ok(Blocks(blocks.into_iter().map(|(name, calls)| BlockCalls::new(name, calls)).collect()))
    }
}

/// Hands each start that its own stop directly follows in the file to `take`, as the number of a block and a call. Returns the other
/// marks.
fn take_neighbours(entries: Vec<Entry>, mut take: impl FnMut(usize, Call)) -> Vec<Entry> {
    let mut others: Vec<Entry> = Vec::new();
    // Whether the previous mark is the last of `others`. Otherwise it ended a call.
    let mut is_single = false;
    for mark in entries {
        match others.last() {
            Some(start) if is_single && start.is_left_by(&mark) => {
                take(mark.block, Call { start_s: start.timestamp_s, stop_s: mark.timestamp_s });
                others.pop();
                is_single = false;
            }
            _ => {
                others.push(mark);
                is_single = true;
            }
        }
    }
    others
}

/// Pairs the marks of one block in one process, which come in the order of their times. A stop ends the call that was entered
/// last.
///
/// # Errors
/// If no call is open at a stop: its time, seconds since the epoch.
fn calls_of_process(marks: &[Entry]) -> Result<Vec<Call>, f64> {
    let mut open_starts_s: Vec<f64> = Vec::new();
    let mut calls = Vec::new();
    for mark in marks {
        match mark.position {
            Position::Start => open_starts_s.push(mark.timestamp_s),
            Position::Stop => {
                let start_s = open_starts_s.pop().ok_or(mark.timestamp_s)?;
                calls.push(Call { start_s, stop_s: mark.timestamp_s });
            }
        }
    }
    Ok(calls)
}

/// Code blocks with their calls, by their names.
#[derive(Debug, Default)]
pub struct Blocks(pub(super) Vec<BlockCalls>);

impl Blocks {
    /// The blocks by their names, each with the start and stop of its calls, seconds since the epoch. The calls of a
    /// block come by their starts.
    pub fn calls(&self) -> Ordered<Vec<(f64, f64)>> {
        let times = |block: &BlockCalls| block.calls.iter().map(|call| (call.start_s, call.stop_s)).collect();
        self.0.iter().map(|block| (block.name.clone(), times(block))).collect()
    }
}

/// A call of a block, seconds since the epoch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Call {
    pub(super) start_s: f64,
    pub(super) stop_s: f64,
}

/// A block and its calls.
#[derive(Debug)]
pub(super) struct BlockCalls {
    pub(super) name: String,
    /// By their starts.
    pub(super) calls: Vec<Call>,
    /// For each call, the first sample between its start and that of the next call, seconds since the epoch. Infinite:
    /// there is none.
    first_sample_s: Vec<f64>,
    /// The spans of time in which at least one call runs, by their starts. They do not overlap.
    spans: Vec<Call>,
}

impl BlockCalls {
    /// Makes a block of its calls, which come in any order and may overlap.
    fn new(name: String, mut calls: Vec<Call>) -> Self {
        calls.order_by(|a, b| a.start_s.total_cmp(&b.start_s));
        let mut spans: Vec<Call> = Vec::new();
        for call in &calls {
            match spans.last_mut() {
                Some(last) if call.start_s <= last.stop_s => last.stop_s = last.stop_s.max(call.stop_s),
                _ => spans.push(*call),
            }
        }
        Self { name, first_sample_s: vec![f64::INFINITY; calls.len()], calls, spans }
    }

    /// Notes a sample that was taken at this time, seconds since the epoch, for [`BlockCalls::calls_with_samples`]. Returns whether a
    /// call of the block runs then; start and stop count as part of a call.
    pub(super) fn note_sample(&mut self, time_s: f64) -> bool {
        let begun_spans = self.spans.partition_point(|span| span.start_s <= time_s);
        let runs = begun_spans.checked_sub(1).is_some_and(|last| time_s <= self.spans[last].stop_s);
        if runs {
            let begun_calls = self.calls.partition_point(|call| call.start_s <= time_s);
            let last = begun_calls.checked_sub(1);
            if let Some(first_s) = last.and_then(|last| self.first_sample_s.get_mut(last)) {
                *first_s = first_s.min(time_s);
            }
        }
        runs
    }

    /// Counts the calls in which a sample was taken.
    pub(super) fn calls_with_samples(&self) -> usize {
        // The loop goes from the last call to the first, so this is the earliest sample since the start of the current call.
        let mut earliest_s = f64::INFINITY;
        let mut count = 0;
        for (call, first_sample_s) in self.calls.iter().zip(&self.first_sample_s).rev() {
            earliest_s = earliest_s.min(*first_sample_s);
            count += usize::from(earliest_s <= call.stop_s);
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Marks of one block, each as process, `+` or `-`, and time.
    fn marks(all: &[(i64, char, f64)]) -> Marks {
        let mut marks = Marks::default();
        for &(process_id, sign, timestamp_s) in all {
            let position = if sign == '+' { Position::Start } else { Position::Stop };
            marks.push(Mark { process_id, code_block: "b".into(), position, timestamp_s }).unwrap();
        }
        marks
    }

    fn calls(all: &[(i64, char, f64)]) -> Vec<(f64, f64)> {
        let blocks = marks(all).pair().unwrap().0;
        blocks[0].calls.iter().map(|call| (call.start_s, call.stop_s)).collect()
    }

    // Requirement: CMD-42
    #[test]
    fn each_end_belongs_to_the_innermost_open_call_of_its_process() {
        // Recursive: gpu_tracker has (1, 2), (3, 4) and (5, 6) here.
        let recursive =
            [(7, '+', 1.0), (7, '+', 2.0), (7, '+', 3.0), (7, '-', 4.0), (7, '-', 5.0), (7, '-', 6.0)];
        assert_eq!(calls(&recursive), [(1.0, 6.0), (2.0, 5.0), (3.0, 4.0)]);
        // Two processes at the same time, whose marks are mixed.
        let mixed = [(7, '+', 1.0), (8, '+', 2.0), (7, '-', 3.0), (8, '-', 4.0)];
        assert_eq!(calls(&mixed), [(1.0, 3.0), (2.0, 4.0)]);
        // One call after the other, at one reading of the clock.
        assert_eq!(
            calls(&[(7, '+', 1.0), (7, '-', 2.0), (7, '+', 2.0), (7, '-', 3.0)]),
            [(1.0, 2.0), (2.0, 3.0)]
        );
        // Lines in another order than the times.
        assert_eq!(calls(&[(7, '-', 2.0), (7, '+', 1.0)]), [(1.0, 2.0)]);
    }

    // Requirement: PY-11
    #[test]
    fn start_and_stop_in_neighbouring_rows_are_a_call() {
        // Coroutines of one process, as the Python module writes them: by their ends.
        let crossing = [(7, '+', 0.0), (7, '-', 0.2), (7, '+', 0.1), (7, '-', 0.5)];
        assert_eq!(calls(&crossing), [(0.0, 0.2), (0.1, 0.5)]);
        let within =
            [(7, '+', 0.2), (7, '-', 0.3), (7, '+', 0.1), (7, '-', 0.5), (7, '+', 0.0), (7, '-', 0.4)];
        assert_eq!(calls(&within), [(0.0, 0.4), (0.1, 0.5), (0.2, 0.3)]);
        // A row of another process, or an earlier time, is no neighbour.
        let others =
            [(7, '+', 1.0), (8, '+', 1.5), (7, '-', 2.0), (8, '-', 3.0), (7, '+', 6.0), (7, '-', 5.0)];
        assert!(marks(&others).pair().is_err());
        assert_eq!(calls(&others[..4]), [(1.0, 2.0), (1.5, 3.0)]);
    }

    proptest! {
        /// Each step enters a block or leaves the innermost one, in one of two processes.
        #[test]
        fn neighbours_of_nested_calls_are_those_of_the_innermost_call(steps in vec((0_i64..2, any::<bool>()), 0..40)) {
            let mut depths = [0, 0];
            let mut all = Vec::new();
            for (at, (process_id, enters)) in steps.into_iter().enumerate() {
                let depth: &mut u32 = &mut depths[process_id as usize];
                if !enters && *depth == 0 {
                    continue;
                }
                *depth = if enters { *depth + 1 } else { *depth - 1 };
                all.push((process_id, if enters { '+' } else { '-' }, at as f64));
            }
            let found = marks(&all).pair().unwrap().0.pop().map_or_else(Vec::new, |block| block.calls);
            // The same marks in an order in which no stop follows a start: all stops come first.
            all.sort_by_key(|(_, sign, _)| *sign == '+');
            let nested = marks(&all).pair().unwrap().0.pop().map_or_else(Vec::new, |block| block.calls);
            prop_assert_eq!(found, nested);
        }
    }

    // Requirement: CMD-42
    #[test]
    fn call_without_an_end_is_left_out() {
        assert_eq!(calls(&[(7, '+', 1.0), (7, '-', 2.0), (7, '+', 3.0)]), [(1.0, 2.0)]);
        // Killed in the inner call of two, and the pid is used again.
        let killed = [(7, '+', 1.0), (7, '+', 2.0), (7, '+', 8.0), (7, '-', 9.0)];
        assert_eq!(calls(&killed), [(8.0, 9.0)]);
        assert_eq!(calls(&[(7, '+', 1.0)]), []);
    }

    proptest! {
        /// A call is a start and a length, in units of a second.
        #[test]
        fn samples_are_those_that_a_search_of_all_calls_finds(
            spans in vec((0_u8..40, 0_u8..12), 0..12),
            samples in vec(0_u8..60, 0..20),
        ) {
            let call = |&(start, length): &(u8, u8)| Call { start_s: start.into(), stop_s: (start + length).into() };
            let calls: Vec<Call> = spans.iter().map(call).collect();
            let mut block = BlockCalls::new("b".into(), calls.clone());
            let has = |call: &Call, time_s: f64| call.start_s <= time_s && time_s <= call.stop_s;
            for &time_s in &samples {
                let expected = calls.iter().any(|call| has(call, time_s.into()));
                prop_assert_eq!(block.note_sample(time_s.into()), expected);
            }
            let sampled = calls.iter().filter(|call| samples.iter().any(|&time_s| has(call, time_s.into())));
            prop_assert_eq!(block.calls_with_samples(), sampled.count());
        }
    }

    // Requirement: TIME-68
    #[test]
    fn threads_that_run_a_block_at_once_have_its_whole_time_and_samples() {
        // The first call ends at 2 and the second at 4, which the marks do not say.
        let threads = [(7, '+', 0.0), (7, '+', 1.0), (7, '-', 2.0), (7, '-', 4.0)];
        let calls = calls(&threads);
        assert_eq!(calls, [(0.0, 4.0), (1.0, 2.0)]);
        assert_eq!(calls.iter().map(|(start, stop)| stop - start).sum::<f64>(), (2.0 - 0.0) + (4.0 - 1.0));
    }

    // Requirement: CMD-42, TIME-71
    #[test]
    fn end_without_a_start_is_refused() {
        let error = marks(&[(7, '+', 1.0), (7, '-', 2.0), (7, '-', 3.5)]).pair().unwrap_err();
        let expected = "process 7 leaves code block \"b\" at 3.5 without having entered it";
        assert!(error.ends_with(expected), "{error}");
        // The clock was set back by a second.
        assert!(marks(&[(7, '+', 2.0), (7, '-', 1.5)]).pair().is_err());
    }

    // Requirement: TIME-70
    #[test]
    fn file_of_too_many_blocks_is_refused() {
        let mut marks = Marks::default();
        let mut push = |at: usize| {
            let code_block = at.to_string();
            marks.push(Mark { process_id: 1, code_block, position: Position::Start, timestamp_s: 0.0 })
        };
        assert!((0..MOST_BLOCKS).all(|at| push(at).is_ok()));
        assert_eq!(push(0), Ok(()));
        assert!(push(MOST_BLOCKS).unwrap_err().starts_with("has more than 10000 code blocks"));
    }

    // Requirement: CMD-41
    #[test]
    fn sample_belongs_to_every_call_that_runs_then() {
        let nested =
            [(7, '+', 1.0), (7, '+', 2.0), (7, '-', 3.0), (7, '-', 6.0), (7, '+', 8.0), (7, '-', 9.0)];
        let mut block = marks(&nested).pair().unwrap().0.remove(0);
        let samples = [0.5, 1.0, 4.0, 6.0, 7.0, 9.5];
        assert_eq!(samples.map(|time_s| block.note_sample(time_s)), [false, true, true, true, false, false]);
        // Neither the inner call nor the last one has a sample.
        assert_eq!(block.calls_with_samples(), 1);
        assert!(block.note_sample(2.5) && block.note_sample(9.0));
        assert_eq!(block.calls_with_samples(), 3);
    }
}
