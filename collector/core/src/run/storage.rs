//! The run's block I/O over time, and the space on its file systems.
//!
//! A process's /proc/PID/io has what it and the children that it waited for did. So the sum over the launcher and all processes
//! that are not reaped is the tree's, each child counted once: by itself until it is reaped, then by its reaper.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::tree::before::IoBefore;
use super::usage::Totals;
use crate::model::observation::FreeSpace;
use crate::model::tree_sample::{FileSystemSample, IoBytes, IoSample};

/// Space is unknown if the file system has not answered for this time, nanoseconds: it is asked once a second.
const PATIENCE_NS: u64 = 3_000_000_000;

/// Block I/O and file systems of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Storage {
    /// `None`: it was not read yet, or the kernel does not count it.
    io: Option<Io>,
    /// What a process did before the run attached to it could not be read.
    is_unknown: bool,
    /// In the order in which they answered first.
    file_systems: Vec<FileSystemSample>,
}

/// The tree's block I/O.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Io {
    /// What is known of it.
    known: IoSample,
    /// What the readings say of it.
    read: IoBytes,
    /// The sum at the last reading.
    last: IoBytes,
    /// What the sum has from before the run attached to a process, as far as the last reading counted it.
    before: IoBytes,
    /// By how much the last reading was smaller than the one before.
    deficit: IoBytes,
}

/// Combines two amounts by `f`, read and written each.
fn with(a: IoBytes, b: IoBytes, f: impl Fn(u64, u64) -> u64) -> IoBytes {
    IoBytes { read: f(a.read, b.read), written: f(a.written, b.written) }
}

impl Io {
    /// Takes in a sum that was read.
    ///
    /// Processes are read one after another, parents first. A child that is reaped meanwhile is in no figure of this reading,
    /// and in its parent's of the next one. So the next reading makes up for a deficit. If it lasts, the child was reaped by a
    /// process that is not of the tree, and what it did before stays counted.
    fn add(&mut self, sum: IoBytes) {
        // A sum counts only as far as it is above the last one and what that lacked.
        let counted = with(self.last, self.deficit, u64::saturating_add);
        let grown = with(sum, counted, u64::saturating_sub);
        self.read = with(self.read, grown, u64::saturating_add);
        self.deficit = with(self.last, sum, u64::saturating_sub);
        self.last = sum;
    }

    /// Notes what is known by `at_ns`, CLOCK_MONOTONIC nanoseconds. `ended`: what processes told at their ends, which can be
    /// more than the readings say. What was known once does not get less.
    fn know(&mut self, at_ns: u64, ended: IoBytes) {
        self.known.read_ns = self.known.read_ns.max(at_ns);
        self.known.bytes = with(self.known.bytes, with(self.read, ended, u64::max), u64::max);
    }
}

/// Bytes of a block as getrusage(2) counts them.
const BLOCK_BYTES: u64 = 512;

/// Gives the block I/O of the processes whose figures are final.
fn of_ended(totals: &Totals) -> IoBytes {
    let bytes = |blocks: u64| blocks.saturating_mul(BLOCK_BYTES);
    IoBytes { read: bytes(totals.own_usage.input_blocks), written: bytes(totals.own_usage.output_blocks) }
}

impl Storage {
    /// Takes in a reading of the block I/O, the sum over processes. `None`: it could not be read. `is_first`: what was done
    /// before is not of this run, or nobody read it, so that it does not count. `before`: what processes of a run that attached to
    /// one did before; there are more if some are found later.
    pub(super) fn add_io(
        &mut self,
        at_ns: u64,
        sum: Option<IoBytes>,
        is_first: bool,
        before: Option<IoBefore>,
        totals: &Totals,
    ) {
        self.is_unknown |= before.is_some_and(|before| before.unread.is_some());
        let Some(sum) = sum else { return };
        let all_before = before.map_or(IoBytes::default(), |before| before.bytes);
        match &mut self.io {
            Some(io) if is_first => (io.last, io.deficit) = (sum, IoBytes::default()),
            Some(io) => {
                let joined = with(all_before, io.before, u64::saturating_sub);
                io.last = with(io.last, joined, u64::saturating_add);
                io.add(sum);
            }
            // The first reading of the run only says where to count from, unless that is known.
            None => {
                let known = IoSample { read_ns: at_ns, bytes: IoBytes::default() };
                let last = before.map_or(sum, |before| before.bytes);
                self.io.insert(Io { known, last, ..Io::default() }).add(sum);
            }
        }
        if let Some(io) = &mut self.io {
            io.before = all_before;
            io.know(at_ns, of_ended(totals));
        }
    }

    /// Takes in that the figures of all processes are final: no more readings come after `at_ns`, CLOCK_MONOTONIC nanoseconds.
    pub(super) fn finish_io(&mut self, at_ns: u64, totals: &Totals) {
        if let Some(io) = &mut self.io {
            io.know(at_ns, of_ended(totals));
        }
    }

    /// Takes in the answers of file systems at `at_ns`, CLOCK_MONOTONIC nanoseconds. Directories of one device are one file
    /// system.
    pub(super) fn add_space(&mut self, at_ns: u64, answers: &[FreeSpace]) {
        for answer in answers {
            let directory = (answer.role, answer.path.clone());
            let at = self.file_systems.iter().position(|system| system.device == answer.device);
            let at = at.unwrap_or_else(|| {
                self.file_systems
                    .push(FileSystemSample { device: answer.device, ..FileSystemSample::default() });
                self.file_systems.len() - 1
            });
            let system = &mut self.file_systems[at];
            if !system.directories.contains(&directory) {
                system.directories =
                    system.directories.iter().cloned().chain([directory]).collect::<Arc<[_]>>();
            }
            (system.read_ns, system.free_bytes) = (at_ns, Some(answer.free_bytes));
        }
    }

    /// Gives what is known of the block I/O. `None`: nothing.
    pub(super) fn io(&self) -> Option<IoSample> {
        self.io.map(|io| io.known).filter(|_| !self.is_unknown)
    }

    /// Gives the file systems as they were known at `at_ns`. One that has not answered for [`PATIENCE_NS`] has no free space
    /// that is known.
    pub(super) fn file_systems(&self, at_ns: u64) -> Vec<FileSystemSample> {
        let is_late = |system: &FileSystemSample| at_ns.saturating_sub(system.read_ns) > PATIENCE_NS;
        let known = |system: &FileSystemSample| system.free_bytes.filter(|_| !is_late(system));
        let all = self.file_systems.iter();
        all.map(|system| FileSystemSample { free_bytes: known(system), ..system.clone() }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::report::DiskRole;

    const S: u64 = 1_000_000_000;

    fn written(bytes: u64) -> IoBytes {
        IoBytes { read: 0, written: bytes }
    }

    /// Gives what is known to be written after each of these readings, once a second.
    fn after(sums: &[u64]) -> Vec<u64> {
        let mut storage = Storage::default();
        let totals = Totals::new(5);
        let each = (0..).zip(sums).map(|(second, sum)| {
            storage.add_io(second * S, Some(written(*sum)), second == 0, None, &totals);
            storage.io().unwrap().bytes.written
        });
        each.collect()
    }

    #[test]
    fn io_before_the_first_reading_is_not_of_the_run() {
        assert_eq!(after(&[700, 700, 750, 900]), [0, 0, 50, 200]);
    }

    #[test]
    fn io_of_a_child_that_was_reaped_during_a_reading_counts_once() {
        // A child that wrote 100 is in no figure of the third reading, and in its parent's of the fourth.
        assert_eq!(after(&[0, 130, 30, 140, 150]), [0, 130, 130, 140, 150]);
    }

    #[test]
    fn io_of_a_process_that_a_stranger_reaped_stays_and_hides_no_later_io() {
        assert_eq!(after(&[0, 130, 30, 30, 35]), [0, 130, 130, 130, 135]);
    }

    #[test]
    fn io_that_no_reading_saw_is_known_by_the_records_of_the_ended() {
        let mut storage = Storage::default();
        let mut totals = Totals::new(5);
        storage.finish_io(S, &totals);
        assert_eq!(storage.io(), None, "the kernel does not count it");
        storage.add_io(S, Some(written(10)), true, None, &totals);
        (totals.own_usage.input_blocks, totals.own_usage.output_blocks) = (2, 4);
        storage.finish_io(3 * S, &totals);
        let bytes = IoBytes { read: 1024, written: 2048 };
        assert_eq!(storage.io(), Some(IoSample { read_ns: 3 * S, bytes }));
    }

    // Requirement: ATTACH-2
    #[test]
    fn io_from_before_an_attach_does_not_count_whenever_its_process_is_found() {
        let mut storage = Storage::default();
        let totals = Totals::new(5);
        let before = |bytes| Some(IoBefore { bytes: written(bytes), unread: None });
        // The third reading is the first with a process that had written 50 before.
        let readings = [(700, 710, true), (700, 720, false), (750, 775, false), (750, 780, false)];
        let known = readings.map(|(of_before, sum, is_first)| {
            storage.add_io(S, Some(written(sum)), is_first, before(of_before), &totals);
            storage.io().unwrap().bytes.written
        });
        assert_eq!(known, [10, 20, 25, 30]);
    }

    // Requirement: ATTACH-9
    #[test]
    fn io_is_unknown_for_good_if_that_of_before_could_not_be_read() {
        let mut storage = Storage::default();
        let totals = Totals::new(5);
        let before = |unread| Some(IoBefore { bytes: written(700), unread });
        let known = [None, Some(77), Some(77)].map(|unread| {
            storage.add_io(S, Some(written(800)), false, before(unread), &totals);
            storage.io().map(|io| io.bytes.written)
        });
        assert_eq!(known, [Some(100), None, None]);
    }

    #[test]
    fn what_a_collector_did_not_read_before_its_restart_counts_by_records_only() {
        let mut storage = Storage::default();
        let totals = Totals::new(5);
        let sums = [(0, true), (100, false), (900, true), (950, false)];
        let known = sums.map(|(sum, is_first)| {
            storage.add_io(S, Some(written(sum)), is_first, None, &totals);
            storage.io().unwrap().bytes.written
        });
        assert_eq!(known, [0, 100, 100, 150]);
    }

    #[test]
    fn directories_of_one_device_are_one_file_system_and_its_space_is_unknown_when_it_no_longer_answers() {
        let mut storage = Storage::default();
        let answer =
            |role, path: &str, device, free_bytes| FreeSpace { role, path: path.into(), device, free_bytes };
        storage.add_space(
            S,
            &[answer(DiskRole::Working, "/w", 1, 50), answer(DiskRole::Temporary, "/tmp", 2, 60)],
        );
        storage.add_space(
            2 * S,
            &[answer(DiskRole::Working, "/w", 1, 40), answer(DiskRole::Report, "/r", 1, 40)],
        );
        let [first, second] = &storage.file_systems(4 * S + 1)[..] else { panic!("{storage:?}") };
        let on_first = [(DiskRole::Working, "/w".to_owned()), (DiskRole::Report, "/r".to_owned())];
        assert_eq!((&first.directories[..], first.free_bytes), (&on_first[..], Some(40)));
        assert_eq!((second.read_ns, second.free_bytes), (S, None));
    }
}
