//! Assigns the samples of a tracking file to the code blocks in which they were taken, and concludes what each block used.
//!
//! Samples come one by one and are not kept, so a file may be larger than memory.

use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

use super::calls::{BlockCalls, Blocks};
use super::moments::Moments;
use super::ordered::Ordered;

/// Maximum number of columns of a file: each block has figures for each of them.
const MOST_COLUMNS: usize = 1_000;
/// The column with the time of a sample, seconds since the epoch.
const TIME: &str = "timestamp";

/// The columns of gpu_tracker's own files, in their order there. An analysis of the whole run has only these, as gpu_tracker's
/// does.
const OVERALL: [&str; 21] = [
    "main_ram",
    "descendants_ram",
    "combined_ram",
    "system_ram",
    "main_gpu_ram",
    "descendants_gpu_ram",
    "combined_gpu_ram",
    "system_gpu_ram",
    "gpu_sum_utilization_percent",
    "gpu_hardware_utilization_percent",
    "main_n_threads",
    "descendants_n_threads",
    "combined_n_threads",
    "cpu_system_sum_utilization_percent",
    "cpu_system_hardware_utilization_percent",
    "cpu_main_sum_utilization_percent",
    "cpu_main_hardware_utilization_percent",
    "cpu_descendants_sum_utilization_percent",
    "cpu_descendants_hardware_utilization_percent",
    "cpu_combined_sum_utilization_percent",
    "cpu_combined_hardware_utilization_percent",
];

/// Columns of gpu-track's own files that describe the samples and are no quantities.
const BOOKKEEPING: [&str; 3] = ["n_samples", "max_ram_source", "at_ns"];

/// Statistics of a quantity, in the unit of its column. Null: not known.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Smallest value.
    pub min: Option<Number>,
    /// Largest value.
    pub max: Option<Number>,
    /// Mean of the values.
    pub mean: Option<Number>,
    /// Standard deviation of the population.
    pub std: Option<Number>,
}

/// How long the calls of a block took, seconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ComputeTime {
    /// Statistics of the single calls.
    #[serde(flatten)]
    pub summary: Summary,
    /// All calls together. A call within another one counts on its own, too.
    pub total: Option<Number>,
}

/// What a code block used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CodeBlock {
    /// Its name.
    pub name: String,
    /// Samples that were taken while it ran.
    pub num_timepoints: u64,
    /// How often it was called.
    pub num_calls: u64,
    /// Calls in which a sample was taken.
    pub num_non_empty_calls: u64,
    /// How long its calls took.
    pub compute_time: ComputeTime,
    /// Each column of the tracking file, except for the time.
    pub resource_usage: Ordered<Summary>,
}

/// What a run and its code blocks used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Analysis {
    /// The whole run.
    pub overall: Ordered<Summary>,
    /// What does not change: units, capacities and cores.
    pub static_data: Ordered<Value>,
    /// The blocks, by their names.
    pub code_block_results: Vec<CodeBlock>,
}

/// A cell of a tracking file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Cell {
    /// A finite number.
    Number(f64),
    /// It is empty, NaN or infinite: the value is not known.
    Unknown,
    /// Another text.
    Text,
}

/// A column of the tracking file.
#[derive(Debug, Default)]
struct FileColumn {
    name: String,
    /// Its place in a row of the file.
    at: usize,
    /// Some cell has a text. If no cell has a number, the column is no quantity.
    has_text: bool,
    overall: Moments,
}

/// A block, and the samples that were taken while it ran.
#[derive(Debug)]
struct Sampled {
    block: BlockCalls,
    samples: u64,
    /// For each column, the statistics of these samples. Empty before the first sample.
    usage: Vec<Moments>,
}

/// An analysis that is under way.
#[derive(Debug)]
pub struct Analyzer {
    /// The place of the time in a row.
    time_at: usize,
    columns: Vec<FileColumn>,
    blocks: Vec<Sampled>,
}

impl Analyzer {
    /// Begins an analysis of a tracking file that has columns of these `names`, in their order, for these code blocks.
    ///
    /// # Errors
    /// If there is no column of the time, none of gpu_tracker's quantities, or too many: a text to put after the file's name.
    pub fn new(names: &[String], blocks: Blocks) -> Result<Self, String> {
        if names.len() > MOST_COLUMNS {
            return Err(format!("is no tracking file: it has more than {MOST_COLUMNS} columns"));
        }
        let place = |wanted: &str| names.iter().position(|name| name == wanted);
        let lacks = |name: &str| format!("is no tracking file: it has no column \"{name}\"");
        let time_at = place(TIME).ok_or_else(|| lacks(TIME))?;
        if OVERALL.iter().all(|name| place(name).is_none()) {
            return Err(lacks(OVERALL[0]));
        }
        // The time is no quantity. Of several columns of one name, the first counts.
        let is_quantity = |(at, name): &(usize, &String)| {
            *at != time_at && place(name) == Some(*at) && !BOOKKEEPING.contains(&name.as_str())
        };
        let column =
            |(at, name): (usize, &String)| FileColumn { name: name.clone(), at, ..FileColumn::default() };
        let columns = names.iter().enumerate().filter(is_quantity).map(column).collect();
        let sampled = |block| Sampled { block, samples: 0, usage: Vec::new() };
        Ok(Self { time_at, columns, blocks: blocks.0.into_iter().map(sampled).collect() })
    }

    /// Adds a row, which is a sample with a cell for each name. It counts for the whole run, and for each block that runs
    /// at its time. A row without a time is left out.
    pub fn add_row(&mut self, row: &[Cell]) {
        let Some(Cell::Number(time_s)) = row.get(self.time_at) else { return };
        let cell = |column: &FileColumn| row.get(column.at).copied().unwrap_or(Cell::Unknown);
        for sampled in &mut self.blocks {
            if !sampled.block.note_sample(*time_s) {
                continue;
            }
            sampled.samples += 1;
            sampled.usage.resize_with(self.columns.len(), Moments::default);
            for (usage, column) in sampled.usage.iter_mut().zip(&self.columns) {
                if let Cell::Number(number) = cell(column) {
                    usage.add(number);
                }
            }
        }
        for column in &mut self.columns {
            match cell(column) {
                Cell::Number(number) => column.overall.add(number),
                Cell::Text => column.has_text = true,
                Cell::Unknown => {}
            }
        }
    }

    /// Concludes the analysis from the rows that were added. `static_data`: the figures of the file that do not change, such as units.
    pub fn finish(self, static_data: Ordered<Value>) -> Analysis {
        let Self { columns, blocks, .. } = self;
        // A column of text is no quantity. A column of empty cells is a quantity that is not known.
        let is_number = |column: &FileColumn| column.overall.count > 0 || !column.has_text;
        let named = |name: &str| columns.iter().find(|column| column.name == name && is_number(column));
        let overall =
            OVERALL.into_iter().filter_map(|name| Some((name.to_owned(), summary(&named(name)?.overall))));
        let overall: Ordered<Summary> = overall.collect();
        let block = |mut sampled: Sampled| {
            sampled.usage.resize_with(columns.len(), Moments::default);
            let usage = columns.iter().zip(&sampled.usage).filter(|(column, _)| is_number(column));
            CodeBlock {
                num_timepoints: sampled.samples,
                num_calls: sampled.block.calls.len() as u64,
                num_non_empty_calls: sampled.block.calls_with_samples() as u64,
                compute_time: compute_time(&sampled.block),
                resource_usage: usage.map(|(column, usage)| (column.name.clone(), summary(usage))).collect(),
                name: sampled.block.name,
            }
        };
        let code_block_results = blocks.into_iter().map(block).collect();
        Analysis { overall, static_data, code_block_results }
    }
}

/// A figure as a JSON number. `None`: it is not known, or not finite.
fn figure(value: Option<f64>) -> Option<Number> {
    value.and_then(Number::from_f64)
}

/// Converts statistics to JSON numbers.
fn summary(moments: &Moments) -> Summary {
    Summary {
        min: figure(moments.min()),
        max: figure(moments.max()),
        mean: figure(moments.mean()),
        std: figure(moments.std()),
    }
}

/// The statistics and the sum of how long the calls of a block took, seconds.
fn compute_time(block: &BlockCalls) -> ComputeTime {
    let mut moments = Moments::default();
    block.calls.iter().for_each(|call| moments.add(call.stop_s - call.start_s));
    ComputeTime { summary: summary(&moments), total: figure(moments.sum()) }
}

#[cfg(test)]
mod tests {
    use super::super::calls::{Mark, Marks, Position};
    use super::*;

    fn analyzer(names: &str, marks: &[(&str, Position, f64)]) -> Analyzer {
        let names: Vec<String> = names.split(',').map(str::to_owned).collect();
        let mut all = Marks::default();
        for &(code_block, position, timestamp_s) in marks {
            all.push(Mark { process_id: 7, code_block: code_block.into(), position, timestamp_s }).unwrap();
        }
        Analyzer::new(&names, all.pair().unwrap()).unwrap()
    }

    fn float(value: f64) -> Option<Number> {
        Number::from_f64(value)
    }

    // Requirement: CMD-41
    #[test]
    fn samples_count_for_the_blocks_that_run_then_and_for_the_run() {
        use Cell::{Number as N, Unknown};
        let marks = [("b", Position::Start, 1.0), ("b", Position::Stop, 3.5)];
        let mut all = analyzer("timestamp,extra,main_ram", &marks);
        for (time_s, ram) in [(0.5, N(1.0)), (1.0, N(2.0)), (2.0, Unknown), (3.5, N(4.0)), (4.0, N(9.0))] {
            all.add_row(&[N(time_s), N(1.0), ram]);
        }
        all.add_row(&[Unknown, N(1.0), N(99.0)]);
        let done = all.finish(Ordered::default());
        let names: Vec<_> = done.overall.iter().map(|(name, _)| name.to_owned()).collect();
        assert_eq!(names, ["main_ram"], "the time, and what gpu_tracker does not know");
        assert_eq!(done.overall.get("main_ram").unwrap().max, float(9.0));
        let block = &done.code_block_results[0];
        assert_eq!((block.num_timepoints, block.num_calls, block.num_non_empty_calls), (3, 1, 1));
        assert_eq!(block.compute_time.total, float(2.5));
        let ram = block.resource_usage.get("main_ram").unwrap();
        assert_eq!(
            [&ram.min, &ram.max, &ram.mean, &ram.std].map(Clone::clone),
            [2.0, 4.0, 3.0, 1.0].map(float)
        );
        assert_eq!(block.resource_usage.iter().count(), 2);
    }

    // Requirement: CMD-42
    #[test]
    fn block_without_samples_or_calls_has_null_and_no_0() {
        let marks = [("a", Position::Start, 8.0), ("b", Position::Start, 1.0), ("b", Position::Stop, 1.5)];
        let mut all = analyzer("main_ram,timestamp", &marks);
        all.add_row(&[Cell::Number(5.0), Cell::Number(2.0)]);
        let done = all.finish(Ordered::default());
        let [a, b] = &done.code_block_results[..] else { panic!("{done:?}") };
        assert_eq!((a.num_calls, &a.compute_time), (0, &ComputeTime::default()));
        assert_eq!((b.num_calls, b.num_timepoints, b.num_non_empty_calls), (1, 0, 0));
        assert_eq!(b.compute_time.total, float(0.5));
        assert_eq!(b.resource_usage.get("main_ram"), Some(&Summary::default()));
    }

    #[test]
    fn column_of_text_is_left_out_and_an_empty_one_is_unknown() {
        let marks = [("b", Position::Start, 1.0), ("b", Position::Stop, 3.0)];
        let mut all = analyzer("main_ram,host,system_ram,timestamp,main_ram", &marks);
        all.add_row(&[Cell::Number(5.0), Cell::Text, Cell::Unknown, Cell::Number(2.0), Cell::Number(9.0)]);
        let done = all.finish(Ordered::default());
        let usage = &done.code_block_results[0].resource_usage;
        let names: Vec<_> = usage.iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["main_ram", "system_ram"]);
        assert_eq!(usage.get("main_ram").unwrap().max, float(5.0), "the first of two of one name");
        assert_eq!(done.overall.get("system_ram"), Some(&Summary::default()));
    }

    #[test]
    fn table_without_time_or_quantities_is_refused() {
        let refused = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            Analyzer::new(&names, Blocks::default()).map(|_| ()).unwrap_err()
        };
        assert_eq!(refused(&["main_ram"]), "is no tracking file: it has no column \"timestamp\"");
        assert_eq!(refused(&["timestamp", "x"]), "is no tracking file: it has no column \"main_ram\"");
        assert_eq!(refused(&["timestamp"; 1001]), "is no tracking file: it has more than 1000 columns");
    }
}
