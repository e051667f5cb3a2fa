//! `--trace-gpu FILE`: a log of the GPUs in nvidia-smi's CSV form, a line for each GPU and interval.
//!
//! [`gpu_trace`](crate::model::gpu_trace) has the fields. A line has the values at the end of its interval, not their mean, as in
//! nvidia-smi. Lines have no key by which a restarted collector could tell which were written, so it goes on with the next
//! interval. No line is written twice, and the lines of one interval can be missing.

use std::collections::BTreeMap;
use std::io;

use super::grid::Grid;
use super::output::write_all;
use super::sink::{Loss, Resume, Sink, SinkContext};
use super::tracking::LineFile;
use crate::model::gpu_trace::{GpuTrace, header, line_of_sample};
use crate::model::report::{Report, Stage};
use crate::model::tree_sample::{GpuSample, ItemKind, TreeSample, Wants};
use crate::sys::{clock, local_time, own_stdout};

/// After more readings than this of a device, its lines are written even if its utilisation is still unknown.
const MOST_HELD: u32 = 5;
/// After more readings than this, its lines are written even if a kind of figures was not read yet.
const MOST_INCOMPLETE: u32 = 50;

/// Where the lines go.
enum Lines {
    /// The sink is not open yet.
    Closed,
    File(LineFile),
    /// `is_new`: no line was written yet.
    Stdout {
        is_new: bool,
    },
    /// The reader of stdout is gone.
    Unread,
}

struct GpuLog {
    trace: GpuTrace,
    grid: Grid,
    lines: Lines,
    /// By device, how much was read of it.
    read: BTreeMap<String, Readings>,
    /// For each device of which too little was read so far: the line of the last sample, which is written if no more comes.
    held: BTreeMap<String, String>,
}

/// How much was read of a device.
#[derive(Default)]
struct Readings {
    /// How many readings samples have shown, those between two lines, too.
    count: u32,
    /// When the last one was made, CLOCK_MONOTONIC nanoseconds.
    last_ns: u64,
    /// Enough was read for the device's lines to be written. That stays so.
    are_enough: bool,
}

impl Readings {
    /// Notes a sample. Utilisation is known only from the second reading on, since it is measured between two. If it is still unknown
    /// after [`MOST_HELD`] readings, the driver does not tell it.
    fn note(&mut self, gpu: &GpuSample) {
        if gpu.read_ns != self.last_ns {
            (self.count, self.last_ns) = (self.count.saturating_add(1), gpu.read_ns);
        }
        let is_known = self.count > 1 && gpu.busy_percent.is_some();
        let is_complete = !gpu.is_incomplete || self.count > MOST_INCOMPLETE;
        self.are_enough |= (is_known || self.count > MOST_HELD) && is_complete;
    }
}

/// The sink of the log, if one is asked for.
pub(super) fn make(context: &SinkContext) -> Vec<Box<dyn Sink>> {
    let Some(trace) = context.config.tracking.gpu_trace.clone() else { return Vec::new() };
    let grid = Grid::new(context.config.start.monotonic_ns, trace.every_ns());
    let (read, held) = (BTreeMap::new(), BTreeMap::new());
    vec![Box::new(GpuLog { trace, grid, lines: Lines::Closed, read, held })]
}

impl Sink for GpuLog {
    fn name(&self) -> String {
        match &self.trace.file {
            Some(file) => format!("The GPU log {}", file.path.display()),
            None => "The GPU log on stdout".into(),
        }
    }

    fn open(&mut self, resume: Resume) -> io::Result<()> {
        let is_new = resume == Resume::New;
        // The killed collector may have written the lines of the interval that has begun.
        if !is_new {
            self.grid = self.grid.after(clock::monotonic_ns());
        }
        self.lines = match &self.trace.file {
            Some(file) => Lines::File(LineFile::open(file)?),
            None => Lines::Stdout { is_new },
        };
        Ok(())
    }

    fn wants(&self) -> Wants {
        Wants::from([ItemKind::Sample])
    }

    /// Writes a line for each GPU if an interval has begun since the last lines. The lines of a GPU begin when enough of it was read, within
    /// an interval, too: see [`Readings::note`].
    fn sample(&mut self, sample: &TreeSample) -> io::Result<()> {
        // 0: no reading yet. A driver can take a second to start.
        let devices = &sample.gpu.devices;
        // As in nvidia-smi, a divided GPU has a line, and its MIG instances have none.
        let is_whole = |gpu: &&GpuSample| {
            let parent = gpu.device.parent.as_ref();
            !devices.iter().any(|other| Some(&other.device.id) == parent)
        };
        let whole: Vec<_> = devices.iter().filter(is_whole).collect();
        let read: Vec<_> = whole.iter().copied().filter(|gpu| gpu.read_ns != 0).collect();
        for gpu in &read {
            self.read.entry(gpu.device.id.clone()).or_default().note(gpu);
        }
        // A GPU's first lines wait until enough was read, and are those of the sample with that, or the last one.
        let is_due = !read.is_empty() && self.grid.take(sample.at_ns).is_some();
        let due: Vec<_> =
            read.into_iter().filter(|gpu| is_due || self.held.contains_key(&gpu.device.id)).collect();
        if due.is_empty() {
            return Ok(());
        }
        // The sample's time is one of CLOCK_MONOTONIC. Its date is the wall clock's time minus the sample's age.
        let age_ns = clock::monotonic_ns().saturating_sub(sample.at_ns);
        let timestamp = local_time::with_milliseconds(clock::realtime_ns().saturating_sub(age_ns));
        let mut lines = Vec::new();
        for gpu in due {
            let line = line_of_sample(&self.trace, gpu, sample.gpu.machine, timestamp.as_deref()) + "\n";
            if self.read.get(&gpu.device.id).is_some_and(|readings| readings.are_enough) {
                self.held.remove(&gpu.device.id);
                lines.push(line);
            } else {
                self.held.insert(gpu.device.id.clone(), line);
            }
        }
        if lines.is_empty() { Ok(()) } else { self.write(lines) }
    }

    /// Writes the last lines of GPUs of which enough was never read. If the log has no line at all, it gets its header here.
    fn report(&mut self, _report: &Report, _stage: Stage) -> io::Result<()> {
        let held_back = std::mem::take(&mut self.held).into_values().collect();
        self.write(held_back)
    }

    fn loss(&self) -> Loss {
        match &self.lines {
            Lines::File(file) => file.loss(),
            _ => Loss::default(),
        }
    }
}

impl GpuLog {
    /// Writes lines, each with its line break; the header before the first ones. Writes nothing if the log is not open, or its
    /// reader is gone.
    fn write(&mut self, mut lines: Vec<String>) -> io::Result<()> {
        let is_first = match &self.lines {
            Lines::File(file) => file.is_empty(),
            Lines::Stdout { is_new } => *is_new,
            Lines::Closed | Lines::Unread => return Ok(()),
        };
        if is_first && !self.trace.style.no_header {
            lines.insert(0, header(&self.trace.fields) + "\n");
        }
        if let Lines::File(file) = &mut self.lines {
            return file.append(&lines).map(drop);
        }
        // The command shares stdout and may have made it non-blocking.
        self.lines = match write_all(own_stdout::descriptor(), lines.concat().as_bytes(), None) {
            Ok(()) => Lines::Stdout { is_new: false },
            // The reader needs no more, as in `| head`: this is no failure.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Lines::Unread,
            Err(error) => return Err(error),
        };
        Ok(())
    }
}
