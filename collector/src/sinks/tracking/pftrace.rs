//! `--tf FILE.pftrace`: the run as a Perfetto trace, which ui.perfetto.dev opens. It has every process as a slice (a bar from its start
//! to its end), and counters over time.
//!
//! [`tracks`] has what is drawn where, [`lanes`] which track a process is on, [`messages`] the format, and [`packets`] how packets
//! are written.
//!
//! - A process is written when its figures are final, its start and end together. Packets need no order, because readers sort them
//!   by time.
//! - A counter keeps a value until its next one, and a row has the largest value of its interval. So the row's values have the
//!   time at which the interval begins.
//! - Each collector writes a [`sequence`] of packets of its own. A collector that lost packets to a full disk begins a new one.
//! - A task's slice is written when no process of it is left. It has another slice if it goes on later.
//! - All packets of an item, such as a row or a process, are written at once, and the last of them can be recognised. So the next
//!   collector finds an incomplete item, cuts it off, and goes on after the complete ones.

mod annotations;
mod lanes;
mod messages;
mod packets;
mod sequence;
mod tracks;
mod written;

use std::io;

use self::annotations::{Name, number, source};
use self::messages::TracePacket;
use self::packets::PacketFile;
use self::sequence::Sequence;
use self::written::{Written, WrittenRow};
use super::intervals::{Intervals, Row};
use super::recent::Key;
use crate::model::ended_process::EndedProcess;
use crate::model::ended_task::EndedTask;
use crate::model::groups::Groups;
use crate::model::report::{Report, Stage};
use crate::model::style::StreamFile;
use crate::model::tree_sample::{Event, ItemKind, RamMaximum, TreeSample, Wants};
use crate::run::task_summary::TaskSummary;
use crate::run::tree::ProcessSummary;
use crate::sinks::sink::{Loss, Resume, Sink, SinkContext};
use crate::sys::clock;

/// After a restart, only packets in this many last bytes of the file can come again. A collector writes less than that
/// between two savings of its state.
const RECENT_BYTES: u64 = 16 * 1024 * 1024;

#[derive(Default)]
struct TraceFile {
    target: StreamFile,
    command: Vec<String>,
    intervals: Intervals,
    /// `None`: the sink is not open.
    packets: Option<PacketFile>,
    written: Written,
    sequence: Sequence,
    /// The largest RAM so far, as the last row has it. `None`: this collector has written no row.
    written_max_ram: Option<Groups<RamMaximum>>,
}

/// The sink of a file.
pub(super) fn make(context: &SinkContext, target: StreamFile) -> Box<dyn Sink> {
    let interval_ns = context.config.tracking.interval_ns();
    Box::new(TraceFile::new(target, context.config.command.clone(), interval_ns))
}

impl Sink for TraceFile {
    fn name(&self) -> String {
        super::name(&self.target)
    }

    /// Opens the file, notes what it has, and takes the number of a new sequence.
    fn open(&mut self, _resume: Resume) -> io::Result<()> {
        let packets = PacketFile::open(&self.target, RECENT_BYTES, |packet| self.written.take(packet))?;
        self.intervals.last_ns = self.written.last_row_ns();
        self.sequence = Sequence::new(self.written.last_sequence + 1);
        self.packets = Some(packets);
        Ok(())
    }

    fn wants(&self) -> Wants {
        Wants::from([ItemKind::Sample, ItemKind::Ended, ItemKind::Event, ItemKind::Tasks])
    }

    fn sample(&mut self, sample: &TreeSample) -> io::Result<()> {
        self.intervals.add(sample).map_or(Ok(()), |row| self.write_row(&row))
    }

    fn process_ended(&mut self, process: &ProcessSummary) -> io::Result<()> {
        self.write_process(&process.ended())
    }

    fn tasks_ended(&mut self, tasks: &[TaskSummary]) -> io::Result<()> {
        tasks.iter().try_for_each(|task| self.write_task(&task.ended()))
    }

    /// A past sample turned out to have had more RAM, so that of its row is raised. The row may still wait, be in the file, or be too
    /// old to be remembered.
    fn event(&mut self, event: &Event) -> io::Result<()> {
        let Event::Revised { at_ns, max_footprint_bytes } = *event;
        // The row still waits, and will be written with this RAM.
        if self.intervals.raise(at_ns, max_footprint_bytes) {
            return Ok(());
        }
        let Some(row) = self.written.row_of(at_ns) else {
            return self.write_forgotten(event);
        };
        // The row is in the file. Its RAM is written again if it was less.
        let raised = row.footprint_bytes.with(max_footprint_bytes, u64::max);
        if raised == row.footprint_bytes {
            return Ok(());
        }
        row.footprint_bytes = raised;
        let begin_ns = row.begin_ns;
        self.write_revised(begin_ns, at_ns, raised)
    }

    /// Writes the samples that wait as the last row, then the end of the run.
    fn report(&mut self, report: &Report, _stage: Stage) -> io::Result<()> {
        if let Some(last) = self.intervals.take_rest() {
            self.write_row(&last)?;
        }
        self.write_end(report)
    }

    fn is_written(&self) -> bool {
        self.intervals.is_empty()
    }

    fn loss(&self) -> Loss {
        self.packets.as_ref().map(PacketFile::loss).unwrap_or_default()
    }
}

impl TraceFile {
    fn new(target: StreamFile, command: Vec<String>, interval_ns: u64) -> Self {
        Self { target, command, intervals: Intervals::new(interval_ns), ..Self::default() }
    }

    /// Writes the values of a row, at the time at which its interval begins, after declarations of the tracks of new GPUs. If the row
    /// gets into the file, it is remembered for [`Self::event`], and its largest RAM for [`Self::write_end`].
    fn write_row(&mut self, Row { sample, .. }: &Row) -> io::Result<()> {
        // After a restart, the first sample may begin before the last row in the file ends.
        let (begin_ns, key_ns) = (sample.from_ns.max(self.written.last_row_ns()), sample.at_ns);
        let devices = sample.gpu.devices.iter().zip(0..);
        let gpus = devices.map(|(gpu, rank)| tracks::gpu_track(&gpu.device, rank));
        let mut packets: Vec<TracePacket> = gpus.filter_map(|track| self.sequence.declare(track)).collect();
        packets.extend(self.sequence.values(begin_ns, tracks::values(sample)));
        add_to_last(&mut packets, Name::RowEnd, key_ns);
        if self.write(packets)? {
            self.written_max_ram = Some(sample.max_ram);
            // The footprint is the RAM of a group of processes, in which a page that several of them share counts once.
            let footprint_bytes = sample.footprint_bytes.map(|span| span.max);
            self.written.add_row(WrittenRow { begin_ns, key_ns, footprint_bytes });
        }
        Ok(())
    }

    /// Writes the RAM of a sample of which no row is remembered: without a comparison, but each event only once.
    fn write_forgotten(&mut self, event: &Event) -> io::Result<()> {
        if !self.written.known.insert(Key::from_event(event)) {
            return Ok(());
        }
        let Event::Revised { at_ns, max_footprint_bytes } = *event;
        // The next row may begin at `at_ns`, so the values come just before that.
        self.write_revised(at_ns.saturating_sub(1), at_ns, max_footprint_bytes)
    }

    /// Writes values of the RAM counters at the time `begin_ns`. They became known after the sample of `at_ns` had closed.
    fn write_revised(&mut self, begin_ns: u64, at_ns: u64, footprint_bytes: Groups<u64>) -> io::Result<()> {
        let mut packets = self.sequence.values(begin_ns, tracks::ram_values(footprint_bytes));
        add_to_last(&mut packets, Name::Revised, at_ns);
        self.write(packets).map(drop)
    }

    /// Writes a process, unless it is in the file.
    fn write_process(&mut self, process: &EndedProcess) -> io::Result<()> {
        if !self.written.known.insert(Key::from_process(process)) {
            return Ok(());
        }
        let packets = self.sequence.process(process);
        self.write(packets).map(drop)
    }

    /// Writes the time for which a task ran, unless it is in the file. A task that goes on later has another slice. What else becomes
    /// known of a written one, such as its rule, is not in the file.
    fn write_task(&mut self, task: &EndedTask) -> io::Result<()> {
        let Some(began_ns) = task.began_ns else { return Ok(()) };
        if !self.written.known.insert(Key::Task { id: task.usage.id.into(), mark: began_ns }) {
            return Ok(());
        }
        let packets = self.sequence.task(task, began_ns);
        self.write(packets).map(drop)
    }

    /// Writes the end of the run with the report's largest RAM, unless the end is in the file.
    fn write_end(&mut self, report: &Report) -> io::Result<()> {
        if self.written.has_end {
            return Ok(());
        }
        let last_ns = self.intervals.last_ns;
        // The end has the time at which the last row ends; without rows, the present time.
        let end_ns = if last_ns == 0 { clock::monotonic_ns() } else { last_ns };
        let largest = report.max_ram.footprint_bytes();
        // What shows the largest RAM is known only if the last row has that RAM.
        let max_ram_source = match self.written_max_ram {
            Some(written) if Some(written.combined.bytes) == largest.combined => {
                Some(source(written.combined.source))
            }
            _ => None,
        };
        let max_ram = number(Name::MaxRam, largest.combined);
        let arguments = annotations::exit(report.ending.exit).into_iter().chain([max_ram, max_ram_source]);
        let mut packets = self.sequence.values(end_ns, tracks::largest_ram_values(largest));
        packets.push(self.sequence.instant(end_ns, "end of the run", arguments));
        self.write(packets).map(drop)
    }

    /// Writes the packets of one item: a row, a process, a task, revised RAM, or the end. Before the first item of a sequence, writes the
    /// packets that begin it. Returns whether the packets were written; if not, they count as lost, and a new sequence begins.
    fn write(&mut self, packets: Vec<TracePacket>) -> io::Result<bool> {
        let mut all = self.sequence.begin(&self.command);
        all.extend(packets);
        let Some(file) = &mut self.packets else { return Ok(false) };
        let is_written = file.append(all)?;
        if !is_written {
            // The lost packets may have declared names and tracks that later packets would use.
            self.sequence = self.sequence.next();
        }
        Ok(is_written)
    }
}

/// Adds a time, CLOCK_MONOTONIC nanoseconds, to the last packet as an argument. By it, [`Written::take`] of a later collector
/// recognises that the item is complete.
fn add_to_last(packets: &mut [TracePacket], name: Name, at_ns: u64) {
    if let Some(event) = packets.last_mut().and_then(|packet| packet.track_event.as_mut()) {
        event.debug_annotations.extend(number(name, Some(at_ns)));
    }
}

#[cfg(test)]
mod tests;
