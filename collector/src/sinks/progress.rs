//! `--every TIME`: a line about the run on stderr, at the multiples of an interval.
//!
//! The loop hands this sink the open sample, so a line shows the present. The sink gets the report before the report file does,
//! so no line follows the report. A thread writes the lines, since stderr can be a full pipe or a stopped terminal. A line for
//! which stderr has no room is dropped.

use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::grid::Grid;
use super::sink::{Resume, Sink, SinkContext};
use crate::model::report::{Report, Stage};
use crate::model::tree_sample::TreeSample;
use crate::report::progress;
use crate::sys::{clock, signal_mask};

/// Maximum number of columns of a line where stderr is no terminal. With its line break, such a line has PIPE_BUF (4096) bytes, which a
/// pipe takes in one piece.
const MOST_COLUMNS: usize = 4095;
/// Maximum number of lines that wait for the thread.
const QUEUE: usize = 4;
/// Bytes of the thread's stack.
const STACK: usize = 64 * 1024;
/// How long the report waits for a line that is being written.
const AT_END: Duration = Duration::from_millis(200);

struct Progress {
    grid: Grid,
    /// Maximum number of columns of a line.
    columns: usize,
    /// `None`: the sink is not open, or the report has come.
    writer: Option<Writer>,
}

/// The thread that writes to stderr.
struct Writer {
    lines: SyncSender<String>,
    /// Receives nothing, but is disconnected when the thread ends.
    end: Receiver<()>,
}

/// The sink, if `--every` is given.
pub(super) fn make(context: &SinkContext) -> Vec<Box<dyn Sink>> {
    let (config, start_ns) = (context.config, context.config.start.monotonic_ns);
    let Some(every) = config.tracking.every else { return Vec::new() };
    let every_ns = u64::try_from(every.as_nanos()).unwrap_or(u64::MAX);
    let columns = usize::from(config.report.style.console.columns);
    let columns = if io::stderr().is_terminal() { columns } else { MOST_COLUMNS };
    // The first line comes after one interval, not at the start.
    let grid = Grid::new(start_ns, every_ns).after(start_ns);
    vec![Box::new(Progress { grid, columns, writer: None })]
}

impl Sink for Progress {
    fn name(&self) -> String {
        "--every".into()
    }

    fn open(&mut self, resume: Resume) -> io::Result<()> {
        // The killed collector may have written the line of the multiple that has passed.
        if resume == Resume::Continued {
            self.grid = self.grid.after(clock::monotonic_ns());
        }
        self.writer = Some(Writer::start()?);
        Ok(())
    }

    /// Hands a line about the sample to the thread, if a multiple of the interval has passed since the last line.
    fn sample(&mut self, now: &TreeSample) -> io::Result<()> {
        if let Some(since_start_ns) = self.grid.take(now.at_ns)
            && let Some(writer) = &self.writer
        {
            let line = progress::line(now, since_start_ns as f64 / 1e9, self.columns);
            // A full queue means that the thread waits for stderr.
            let _ = writer.lines.try_send(line + "\n");
        }
        Ok(())
    }

    /// Ends the thread, so that no line follows the report. Waits at most [`AT_END`] for lines that are queued.
    fn report(&mut self, _report: &Report, _stage: Stage) -> io::Result<()> {
        if let Some(Writer { lines, end }) = self.writer.take() {
            drop(lines);
            let _ = end.recv_timeout(AT_END);
        }
        Ok(())
    }
}

impl Writer {
    /// Starts the thread. It ends when the sender of `lines` is dropped.
    fn start() -> io::Result<Self> {
        let (lines, queue) = sync_channel::<String>(QUEUE);
        // Nothing is sent through this channel: it is disconnected when the thread drops `alive`.
        let (alive, end) = channel();
        let thread = std::thread::Builder::new().name("gpu-track-every".into()).stack_size(STACK);
        thread.spawn(move || {
            signal_mask::block_all();
            queue.iter().for_each(|line| write_if_room(&line));
            drop::<std::sync::mpsc::Sender<()>>(alive);
        })?;
        Ok(Self { lines, end })
    }
}

/// Writes a line to stderr if stderr takes it without waiting. Otherwise, and on an error, the line is dropped.
pub(crate) fn write_if_room(line: &str) {
    let stderr = io::stderr();
    let mut fds = [PollFd::from_borrowed_fd(stderr.as_fd(), PollFlags::OUT)];
    if poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0) {
        let _ = rustix::io::write(&stderr, line.as_bytes());
    }
}
