//! The run's I/O over time, and the space on its file systems.
//!
//! /proc/PID/io has the I/O of a process and of the children that it waited for. So the sum over the launcher and all processes
//! that are not reaped is the tree's. It has each child once: by itself until it is reaped, then by its reaper.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::tree::before::IoBefore;
use super::usage::Totals;
use crate::model::io_calls::{IoCalls, NoIoCalls};
use crate::model::observation::FreeSpace;
use crate::model::tree_sample::{FileSystemSample, IoBytes, IoSample};

/// Free space is unknown if its file system has not answered for this time, nanoseconds. It is asked once a second.
const PATIENCE_NS: u64 = 3_000_000_000;

/// Block I/O and file systems of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Storage {
    /// `None`: it was not read yet, or the kernel does not count it.
    io: Option<Io>,
    /// The run's block I/O is unknown, since what a process did before the run attached to it could not be read.
    is_unknown: bool,
    /// Writes that were cancelled. `None`: they were not read.
    cancelled: Option<Cancelled>,
    /// What the processes passed by calls, by the last reading.
    calls: CallsRead,
    /// In the order in which they answered first.
    file_systems: Vec<FileSystemSample>,
}

/// Writes that were cancelled: the data was dropped before it reached a disk. The sums include children that the launcher's process
/// waited for before it became the launcher by exec. So only their growth is of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Cancelled {
    /// At the first reading of the run.
    first_bytes: u64,
    /// The largest sum of a later reading. `None`: there was no later reading.
    most_bytes: Option<u64>,
}

/// What readings tell of I/O by calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct CallsRead {
    /// The largest counts so far. A child that is just being reaped can be missing in one reading.
    most: IoCalls,
    /// Why they are not the run's counts; `None`: they are.
    missing: Option<NoIoCalls>,
    /// Some reading had counts.
    is_any: bool,
}

/// The tree's block I/O.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Io {
    /// What is known since the start of the run.
    known: IoSample,
    /// What the readings alone show since the start of the run.
    from_readings: IoBytes,
    /// The sum at the last reading.
    last_sum: IoBytes,
    /// How much of `last_sum` is from before the run attached to its processes.
    before_attach: IoBytes,
    /// By how much the last reading was smaller than the one before.
    deficit: IoBytes,
}

impl Io {
    /// Takes in the sum of a reading.
    ///
    /// Processes are read one after another, parents first. A child that is reaped meanwhile is in no figure of this reading,
    /// and in its parent's of the next one. So the next reading makes up for a deficit. If the deficit lasts, the child was
    /// reaped by a process outside of the tree, and what the child did before stays counted.
    fn add(&mut self, sum: IoBytes) {
        // Only what is above the last sum and its deficit is new.
        let counted = self.last_sum.with(self.deficit, u64::saturating_add);
        let grown = sum.with(counted, u64::saturating_sub);
        self.from_readings = self.from_readings.with(grown, u64::saturating_add);
        self.deficit = self.last_sum.with(sum, u64::saturating_sub);
        self.last_sum = sum;
    }

    /// Notes what is known by `at_ns`, CLOCK_MONOTONIC nanoseconds. `of_ended`: the I/O of processes whose figures are final,
    /// which can be more than the readings show. What was known once does not get less.
    fn note_known(&mut self, at_ns: u64, of_ended: IoBytes) {
        // At the end of the run, `at_ns` is the last sample's time, and a reading can be later.
        self.known.read_ns = self.known.read_ns.max(at_ns);
        let now = self.from_readings.with(of_ended, u64::max);
        self.known.bytes = self.known.bytes.with(now, u64::max);
    }
}

/// The block I/O of the processes whose figures are final, by their records and their reapers' figures.
fn of_ended(totals: &Totals) -> IoBytes {
    IoBytes::of_blocks(totals.own_usage.input_blocks, totals.own_usage.output_blocks)
}

impl Storage {
    /// Takes in a reading of the block I/O: the sum over all processes. `None`: the kernel does not count it.
    ///
    /// `is_first`: this collector has read nothing yet. If it replaced a killed one, the I/O between that one's last reading and
    /// this one counts only by records. `before_attach`: the I/O that the processes of an attached run did before the attach. It
    /// grows when more of them are found. If it could not be read for one of them, the run's I/O is unknown. `None`: the run
    /// started its command.
    pub(super) fn add_io(
        &mut self,
        at_ns: u64,
        sum: Option<IoBytes>,
        is_first: bool,
        before_attach: Option<IoBefore>,
        totals: &Totals,
    ) {
        self.is_unknown |= before_attach.is_some_and(|before| before.unread.is_some());
        let Some(sum) = sum else { return };
        let bytes_before_attach = before_attach.map_or(IoBytes::default(), |before| before.bytes);
        match &mut self.io {
            // This collector replaced a killed one. What was read and written since that one's last reading is dropped: no reading
            // dates it. Records tell it in the end (`note_known`).
            Some(io) if is_first => (io.last_sum, io.deficit) = (sum, IoBytes::default()),
            Some(io) => {
                // Processes found since the last reading bring their I/O from before the attach into `sum`. It is not the run's. So it
                // is added to the last sum, too, and is no growth.
                let newly_found = bytes_before_attach.with(io.before_attach, u64::saturating_sub);
                io.last_sum = io.last_sum.with(newly_found, u64::saturating_add);
                io.add(sum);
            }
            // The first reading of the run: what is above the I/O from before the attach counts. Without an attach, nothing does.
            None => {
                let known = IoSample { read_ns: at_ns, bytes: IoBytes::default() };
                let last_sum = before_attach.map_or(sum, |before| before.bytes);
                self.io.insert(Io { known, last_sum, ..Io::default() }).add(sum);
            }
        }
        if let Some(io) = &mut self.io {
            io.before_attach = bytes_before_attach;
            io.note_known(at_ns, of_ended(totals));
        }
    }

    /// Takes in the sum of the bytes of writes that the processes have cancelled until now.
    pub(super) fn note_cancelled(&mut self, bytes: Option<u64>) {
        match (&mut self.cancelled, bytes) {
            (Some(cancelled), Some(bytes)) => {
                // A child that is just being reaped can be missing in one reading.
                cancelled.most_bytes = Some(cancelled.most_bytes.unwrap_or(0).max(bytes));
            }
            (none, Some(bytes)) => *none = Some(Cancelled { first_bytes: bytes, most_bytes: None }),
            (_, None) => {}
        }
    }

    /// How many bytes of writes were cancelled in the run. `None`: that was not read twice.
    pub(crate) fn cancelled_bytes(&self) -> Option<u64> {
        let Cancelled { first_bytes, most_bytes } = self.cancelled?;
        Some(most_bytes?.saturating_sub(first_bytes))
    }

    /// Takes in what the processes have passed by calls since the start of the run.
    pub(super) fn note_calls(&mut self, calls: Result<IoCalls, NoIoCalls>) {
        self.calls.missing = calls.err();
        if let Ok(calls) = calls {
            self.calls.most = self.calls.most.with(calls, u64::max);
            self.calls.is_any = true;
        }
    }

    /// What the processes have passed by calls, up to the last reading.
    ///
    /// # Errors
    /// Why the last reading does not tell.
    pub(crate) fn calls(&self) -> Result<IoCalls, NoIoCalls> {
        match self.calls {
            CallsRead { missing: Some(missing), .. } => Err(missing),
            CallsRead { is_any: false, .. } => Err(NoIoCalls::Early),
            CallsRead { most, .. } => Ok(most),
        }
    }

    /// Adds what only records tell, once the figures of all processes are final. No reading comes after `at_ns`, CLOCK_MONOTONIC
    /// nanoseconds.
    pub(super) fn finish_io(&mut self, at_ns: u64, totals: &Totals) {
        if let Some(io) = &mut self.io {
            io.note_known(at_ns, of_ended(totals));
        }
    }

    /// Takes in the answers of file systems at `at_ns`, CLOCK_MONOTONIC nanoseconds. Directories of one device are one file
    /// system.
    pub(super) fn add_space(&mut self, at_ns: u64, answers: &[FreeSpace]) {
        for answer in answers {
            let directory = (answer.role, answer.path.clone());
            let known = self.file_systems.iter().position(|system| system.device == answer.device);
            let index = known.unwrap_or_else(|| {
                let new = FileSystemSample { device: answer.device, ..FileSystemSample::default() };
                self.file_systems.push(new);
                self.file_systems.len() - 1
            });
            let system = &mut self.file_systems[index];
            if !system.directories.contains(&directory) {
                system.directories =
                    system.directories.iter().cloned().chain([directory]).collect::<Arc<[_]>>();
            }
            (system.read_ns, system.free_bytes) = (at_ns, Some(answer.free_bytes));
        }
    }

    /// What is known of the block I/O. `None`: nothing.
    pub(crate) fn io(&self) -> Option<IoSample> {
        self.io.map(|io| io.known).filter(|_| !self.is_unknown)
    }

    /// The file systems as they were known at `at_ns`, CLOCK_MONOTONIC nanoseconds. The free space of one that has not
    /// answered for [`PATIENCE_NS`] is unknown.
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

    /// What is known to be written after each of these readings, once a second.
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
    fn cancelled_writes_from_before_the_run_do_not_count() {
        let mut storage = Storage::default();
        assert_eq!(storage.cancelled_bytes(), None);
        storage.note_cancelled(Some(700));
        assert_eq!(storage.cancelled_bytes(), None, "how much of it is the run's is not known");
        storage.note_cancelled(Some(900));
        storage.note_cancelled(Some(800));
        storage.note_cancelled(None);
        assert_eq!(storage.cancelled_bytes(), Some(200));
    }

    // Requirement: IO-5
    #[test]
    fn calls_are_the_largest_counts_unless_the_last_reading_has_none() {
        let mut storage = Storage::default();
        assert_eq!(storage.calls(), Err(NoIoCalls::Early));
        let read = |read_bytes, reads| IoCalls { read_bytes, reads, ..IoCalls::default() };
        storage.note_calls(Ok(read(900, 2)));
        storage.note_calls(Ok(read(800, 3)));
        assert_eq!(storage.calls(), Ok(read(900, 3)), "a child was being reaped");
        storage.note_calls(Err(NoIoCalls::Denied));
        assert_eq!(storage.calls(), Err(NoIoCalls::Denied));
        storage.note_calls(Ok(read(950, 4)));
        assert_eq!(storage.calls(), Ok(read(950, 4)), "its parent has waited for it");
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
