//! The driver's lists of processes, by raw calls.
//!
//! The struct has had four layouts, and the function's name does not always say which one is written: `_v3` of the
//! drivers 535.43 to 535.86 writes 32 bytes a process, later ones 24. So the buffer is sized for the largest and filled
//! with a pattern. What is left of the pattern shows how much was written.
//!
//! A list's size is never asked for with a null buffer: some libraries write to it, some return SUCCESS.

use std::collections::BTreeMap;
use std::ffi::c_uint;

use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlProcessUtilizationInfo_v1_t, nvmlProcessUtilizationSample_t,
    nvmlProcessesUtilizationInfo_v1_t,
};

use super::api::{Api, Failure, ListCall, call, check, code, grow, list, struct_version};
use super::figure_kind::Kind;
use super::policy;
use crate::model::gpu::{Missing, ProcessMemory, Reading, Work, either, most_bytes};

/// Sizes of a list's entry by layout, bytes: v1; v2 and the final v3; the v3 of 535.43 to 535.86.
const STRIDES: [usize; 3] = [16, 24, 32];
/// The byte that fills buffers. No driver fills a whole entry with it.
const PATTERN: u8 = 0xA5;

/// The three lists, as their functions name them.
const LISTS: [&str; 3] = ["Compute", "Graphics", "MPSCompute"];
/// The index of the compute list in [`LISTS`].
const COMPUTE: usize = 0;
/// What the processes of each list do. Those of MPS compute, too.
const WORK: [Work; 3] = [Work::Compute, Work::Graphics, Work::Compute];
/// The versions of those functions from new to old, each with the size of its entries by nvml.h, bytes.
const VERSIONS: [(&str, usize); 3] = [("_v3", 24), ("_v2", 24), ("", 16)];

/// One list's function, and the entry size that its name stands for, bytes.
#[derive(Clone, Copy)]
struct List {
    function: ListCall,
    stride: usize,
}

/// Pid and bytes of a list's entries.
type Entries = Vec<(u32, u64)>;

/// Whose lists are read.
#[derive(Clone, Copy)]
pub(super) struct ListsOf {
    /// The driver's handle.
    pub device: nvmlDevice_t,
    /// Only the processes on this instance (MIG) of the device, by its id there. `None`: all.
    pub instance: Option<c_uint>,
}

/// The lists in the order of [`LISTS`]; `None`: the library lacks the list.
pub(super) struct Lists([Option<List>; 3]);

/// What is known of a device's lists.
#[derive(Debug, Default)]
pub(super) struct KnownLists {
    /// The device's memory, bytes; `None`: not known. No process has more.
    pub capacity_bytes: Option<u64>,
    /// Each list as it was read last; `None`: it was not read yet.
    entries: [Option<Result<Entries, Failure>>; 3],
    /// The list shows a process of the run that the compute list does not. So it is read as often as the compute list.
    is_needed: [bool; 3],
    /// Memory in use on the device, and the sum of the compute list, when that list was read last, bytes.
    used: Option<(u64, u64)>,
    /// How many entries each list's buffer needed: to ask again costs a call. 0: it could not be read yet.
    capacities: [usize; 3],
    /// The compute list has once changed while the memory in use stayed the same. So unchanged memory in use does not mean an
    /// unchanged list.
    use_hides_changes: bool,
}

/// Why a list is not known that the driver had told before.
const TAKEN_BACK: &str = "a list of processes is not supported any more";

impl Lists {
    /// Finds each list's call, in the newest version that the library has.
    pub(super) fn new(api: &Api) -> Self {
        Self(LISTS.map(|list| {
            VERSIONS.into_iter().find_map(|(version, stride)| {
                let name = format!("nvmlDeviceGet{list}RunningProcesses{version}\0");
                Some(List { function: api.find::<ListCall>(name.as_bytes())?, stride })
            })
        }))
    }

    /// Reads every process with memory on the device, each once, though the lists overlap. Also returns whether a list was read. For
    /// [`Kind::Memory`], none is needed if the memory in use (`used`, bytes) shows that the lists are as they were.
    ///
    /// Else the compute list is read. The other lists are read with it if `kind` is [`Kind::AllLists`], or if they show
    /// processes of the run (`pids`) that it does not. They are also read if the compute list or the memory in use shows a
    /// possible change.
    ///
    /// # Errors
    /// If no list could be read, or not the compute list, which has most processes.
    pub(super) fn read(
        &self,
        of: ListsOf,
        known: &mut KnownLists,
        kind: Kind,
        used: Option<u64>,
        pids: &[u32],
    ) -> (Reading<Vec<ProcessMemory>>, bool) {
        let is_same = used.is_some() && known.used.map(|(used, _)| used) == used;
        // No list is read. The compute list counts as fresh, since the memory in use shows that it is as it was.
        if kind == Kind::Memory && is_same && known.does_use_tell_changes() {
            return (known.merged([true, false, false]), false);
        }
        let [compute, others @ ..] = &self.0;
        let before = known.entries[COMPUTE].take();
        let now = compute.as_ref().map(|list| list.read(of, &mut known.capacities[COMPUTE]));
        // The list changed, and the memory in use did not.
        known.use_hides_changes |= is_same && matches!((&before, &now), (Some(Ok(a)), Some(Ok(b))) if a != b);
        // A device that is lost has no other list.
        let is_lost = matches!(&now, Some(Err(Failure(code::GPU_IS_LOST))));
        known.entries[COMPUTE] = now;
        // Called at each reading, because it also keeps the memory in use of this one.
        let may_have_changed = known.may_have_changed(before.as_ref(), used);
        let wants_all = kind == Kind::AllLists || may_have_changed;
        let mut is_fresh = [true, false, false];
        for (number, list) in (1..).zip(others) {
            // A list that was never read waits for its turn, unless it must stand in for a compute list that can't be read.
            let must_stand_in =
                known.entries[number].is_none() && !matches!(known.entries[COMPUTE], Some(Ok(_)));
            if !is_lost && (wants_all || known.is_needed[number] || must_stand_in) {
                let capacity = &mut known.capacities[number];
                known.entries[number] = list.as_ref().map(|list| list.read(of, capacity));
                is_fresh[number] = true;
                known.is_needed[number] = known.shows_alone(number, pids);
            }
        }
        (known.merged(is_fresh), true)
    }
}

impl KnownLists {
    /// Makes the lists, none of which was read yet, of a device with this much memory, bytes. `None`: not known.
    pub(super) fn new(capacity_bytes: Option<u64>) -> Self {
        Self { capacity_bytes, ..Self::default() }
    }

    /// Whether the lists need not be read while the memory in use stays as it is: the compute list could be read, it
    /// shows all listed processes of the run, and it has never changed while the memory in use did not.
    fn does_use_tell_changes(&self) -> bool {
        !self.use_hides_changes
            && self.is_needed == [false; 3]
            && matches!(self.entries[COMPUTE], Some(Ok(_)))
    }

    /// Whether any of these processes is on no list as it was last read. Such a process may be on a list that was not read
    /// lately.
    pub(super) fn lacks_any(&self, mut pids: impl Iterator<Item = u32>) -> bool {
        pids.any(|pid| (0..LISTS.len()).flat_map(|list| self.listed(list)).all(|(listed, _)| *listed != pid))
    }

    /// What the list of this index in [`LISTS`] showed last: pids, and their memory in bytes. Empty if the list was not
    /// read, or could not be.
    fn listed(&self, number: usize) -> &[(u32, u64)] {
        match &self.entries[number] {
            Some(Ok(entries)) => entries,
            _ => &[],
        }
    }

    /// Whether the list of this index shows a process of the run (`pids`) that the compute list does not.
    fn shows_alone(&self, number: usize, pids: &[u32]) -> bool {
        let is_computing = |pid: &u32| self.listed(COMPUTE).iter().any(|(other, _)| other == pid);
        self.listed(number).iter().any(|(pid, _)| pids.contains(pid) && !is_computing(pid))
    }

    /// Whether the lists other than the compute list may have changed since they were read. Either a process that they show has
    /// left the compute list; or memory came into use that the compute list does not show. `before` is the compute list as it
    /// was.
    ///
    /// Keeps the memory in use (`used`, bytes) for the comparison at the next reading.
    fn may_have_changed(&mut self, before: Option<&Result<Entries, Failure>>, used: Option<u64>) -> bool {
        let left = |pid: u32| {
            let was_listed =
                matches!(before, Some(Ok(before)) if before.iter().any(|(other, _)| *other == pid));
            was_listed && !self.listed(COMPUTE).iter().any(|(other, _)| *other == pid)
        };
        let others = (0..LISTS.len()).filter(|number| *number != COMPUTE);
        let has_left = others.flat_map(|number| self.listed(number)).any(|(pid, _)| left(*pid));
        let most_bytes = most_bytes(self.capacity_bytes);
        let bytes = self.listed(COMPUTE).iter().map(|(_, bytes)| *bytes).filter(|bytes| *bytes <= most_bytes);
        let now = used.map(|used| (used, bytes.fold(0, u64::saturating_add)));
        let has_grown = self.used.zip(now).is_some_and(|((used_before, listed_before), (used, listed))| {
            let in_list = listed.saturating_sub(listed_before);
            used.saturating_sub(used_before) > in_list.saturating_add(policy::UNLISTED_BYTES)
        });
        self.used = now;
        has_left || has_grown
    }

    /// Merges the processes of all lists. `is_fresh` tells which lists were read now. What a list showed earlier counts only for
    /// processes that no fresh list shows.
    ///
    /// # Errors
    /// If no list could be read, or if the device has a compute list that could not be read.
    fn merged(&self, is_fresh: [bool; 3]) -> Reading<Vec<ProcessMemory>> {
        // The memory of each pid: by lists of earlier readings, and by lists that were read now.
        let (mut earlier, mut now) = (BTreeMap::new(), BTreeMap::new());
        let mut works: BTreeMap<u32, Work> = BTreeMap::new();
        let (mut failure, mut is_any_readable) = (None, false);
        let most_bytes = most_bytes(self.capacity_bytes);
        for (number, (entries, is_fresh)) in self.entries.iter().zip(is_fresh).enumerate() {
            match entries {
                None => {}
                Some(Ok(entries)) => {
                    is_any_readable = true;
                    for (pid, bytes) in entries {
                        let work = works.entry(*pid).or_default();
                        *work = work.and(WORK[number]);
                        let bytes = if *bytes > most_bytes { Err(Missing::NotReported) } else { Ok(*bytes) };
                        let processes = if is_fresh { &mut now } else { &mut earlier };
                        let known = processes.entry(*pid).or_insert(Err(Missing::NotReported));
                        // If several lists show a process, its largest memory counts.
                        *known = either(known.clone(), bytes, u64::max);
                    }
                }
                Some(Err(error)) => match Missing::from(*error) {
                    // The device does not have this list.
                    missing @ (Missing::NotSupported | Missing::NoCall) if self.capacities[number] == 0 => {
                        failure = failure.or(Some(missing))
                    }
                    // What the list has is unknown, so the memory of the run's processes is, too.
                    Missing::NotSupported => return Err(Missing::Failed(TAKEN_BACK.into())),
                    missing => return Err(missing),
                },
            }
        }
        if !is_any_readable {
            return Err(failure.unwrap_or(Missing::NoCall));
        }
        earlier.extend(now);
        let process = |(pid, bytes)| {
            let work = works.get(&pid).copied().unwrap_or_default();
            ProcessMemory { pid, bytes, work }
        };
        Ok(earlier.into_iter().map(process).collect())
    }
}

impl List {
    /// Reads a list. `capacity`: the number of entries for which the buffer was large enough at the last reading; it is updated. The
    /// buffer is filled with [`PATTERN`] first, so that [`stride`] can tell how much of it was written.
    fn read(&self, of: ListsOf, capacity: &mut usize) -> Result<Entries, Failure> {
        let widest = STRIDES[STRIDES.len() - 1];
        grow(policy::FIRST_PROCESSES.max(*capacity), |capacity| {
            let mut buffer = vec![u64::from_ne_bytes([PATTERN; 8]); capacity * widest / 8];
            let mut count = c_uint::try_from(capacity).unwrap_or(c_uint::MAX);
            // SAFETY: the buffer holds `count` entries of the widest layout, aligned for its 64-bit fields.
            let result = check(unsafe { (self.function)(of.device, &mut count, buffer.as_mut_ptr().cast()) });
            let count = count as usize;
            (result.map(|()| (buffer, count)), count)
        })
        .map(|(grown, (buffer, count))| {
            *capacity = grown;
            let bytes: Vec<u8> = buffer.into_iter().flat_map(u64::to_ne_bytes).collect();
            let count = count.min(grown);
            let stride = stride(&bytes, count, grown, self.stride);
            // The first layout does not tell the instance of a process.
            let tells_instance = of.instance.is_none() || count == 0 || stride > 16;
            tells_instance
                .then(|| entries(&bytes, count, stride, of.instance))
                .ok_or(Failure(code::NOT_SUPPORTED))
        })?
    }
}

/// Finds the size of an entry, bytes, from how much of the pattern was overwritten. The driver wrote `count` entries to `bytes`, a
/// buffer for `capacity` ones. `named`, the size that the function's version stands for, is the answer if the buffer does not tell.
fn stride(bytes: &[u8], count: usize, capacity: usize, named: usize) -> usize {
    let written = bytes.iter().rposition(|byte| *byte != PATTERN).map_or(0, |last| last + 1);
    // With the true size, the driver wrote up to the last entry, and more of that entry than one of the next smaller size has.
    // The end of the entry can be unwritten, since the end of a struct can be padding.
    let is_size = |stride: &usize| {
        let smaller = STRIDES.into_iter().rev().find(|other| other < stride).unwrap_or(0);
        let entries_before_last = count.saturating_sub(1) * stride;
        count > 0 && (entries_before_last + smaller + 1..=entries_before_last + stride).contains(&written)
    };
    // Some drivers clear the whole buffer, with entries of the true size.
    let size_of_cleared = || STRIDES.into_iter().find(|stride| written == capacity * stride);
    STRIDES.into_iter().find(is_size).or_else(size_of_cleared).unwrap_or(named)
}

/// Pid and bytes of memory of each of `count` entries of `stride` bytes. Both fields have the same offsets in each layout.
/// An entry without a pid is left out, and one that is not on `instance`, if that is given: the id of an entry's instance follows the
/// memory, in all layouts but the first.
fn entries(bytes: &[u8], count: usize, stride: usize, instance: Option<c_uint>) -> Vec<(u32, u64)> {
    let entry = |entry: &[u8]| {
        let pid = u32::from_ne_bytes(entry.get(..4)?.try_into().ok()?);
        let memory = u64::from_ne_bytes(entry.get(8..16)?.try_into().ok()?);
        let is_wanted = match instance {
            None => true,
            // All bits set means no instance, so no entry is on that one.
            Some(c_uint::MAX) => false,
            Some(id) => stride > 16 && u32::from_ne_bytes(entry.get(16..20)?.try_into().ok()?) == id,
        };
        (pid != 0 && is_wanted).then_some((pid, memory))
    };
    bytes.chunks_exact(stride).take(count).filter_map(entry).collect()
}

/// A utilisation sample of a process: pid, time by the driver's clock in microseconds, percent.
pub(super) type ProcessSample = (u32, u64, u32);

/// What a call for such samples gives.
type Samples = Result<Vec<ProcessSample>, Failure>;

/// Reads utilisation samples of processes that are newer than `since_us`. `capacity` is as `last_capacity` of [`list`].
///
/// Where the device lacks the call (Blackwell), a newer one is made, from then on: `has_older` remembers that.
///
/// Only entries with a possible time (`latest_us` at most) and percentage count: see [`believed`].
pub(super) fn utilization(
    api: &Api,
    device: nvmlDevice_t,
    since_us: u64,
    latest_us: u64,
    capacity: &mut usize,
    has_older: &mut Option<bool>,
) -> Reading<Vec<ProcessSample>> {
    let mut given = Err(Failure(code::NOT_SUPPORTED));
    if *has_older != Some(false) {
        given = older_samples(api, device, since_us, capacity);
    }
    let lacks_older = matches!(given, Err(Failure(code::NOT_SUPPORTED | code::FUNCTION_NOT_FOUND)));
    if lacks_older && *has_older != Some(true) {
        let newer = newer_samples(api, device, since_us, capacity);
        let has_newer = !matches!(newer, Err(Failure(code::NOT_SUPPORTED | code::FUNCTION_NOT_FOUND)));
        // If the device has neither, one call is enough from now on.
        *has_older = Some(!has_newer);
        if has_newer {
            given = newer;
        }
    } else if matches!(given, Ok(_) | Err(Failure(code::NOT_FOUND))) && *has_older != Some(false) {
        *has_older = Some(true);
    }
    match given {
        Ok(samples) => believed(samples, since_us, latest_us),
        Err(Failure(code::NOT_FOUND)) => Ok(Vec::new()),
        Err(failure) => Err(failure.into()),
    }
}

/// The entries that count. Some drivers count more entries than they fill in, and the rest is noise (Syllo/nvtop issue 110). So an entry
/// counts only if its time and its percentage are possible.
///
/// # Errors
/// If no percentage is possible, and all else is, or if all times are yet to come. Then the entries are no noise, and the driver does not
/// tell what processes do.
fn believed(samples: Vec<ProcessSample>, since_us: u64, latest_us: u64) -> Reading<Vec<ProcessSample>> {
    // An entry that was not written has no time. An entry that is not newer than `since_us` was read before.
    let is_new = |(pid, at_us, _): &ProcessSample| *pid != 0 && (since_us + 1..=latest_us).contains(at_us);
    let is_possible = |(_, _, percent): &ProcessSample| *percent <= policy::MAX_PROCESS_PERCENT;
    let are_all =
        |is_wrong: &dyn Fn(&ProcessSample) -> bool| !samples.is_empty() && samples.iter().all(is_wrong);
    if are_all(&|sample| is_new(sample) && !is_possible(sample))
        || are_all(&|(_, at_us, _)| *at_us > latest_us)
    {
        return Err(Missing::NotReported);
    }
    Ok(samples.into_iter().filter(|sample| is_new(sample) && is_possible(sample)).collect())
}

/// The samples by the call that drivers have had for long.
fn older_samples(api: &Api, device: nvmlDevice_t, since_us: u64, capacity: &mut usize) -> Samples {
    let samples: Vec<nvmlProcessUtilizationSample_t> =
        list(policy::FIRST_SAMPLES, capacity, |count, samples| {
            call!(api, nvmlDeviceGetProcessUtilization(device, samples, count, since_us))
        })?;
    Ok(samples.iter().map(|s| (s.pid, s.timeStamp, s.smUtil)).collect())
}

/// The samples by the call that Blackwell has in its place.
fn newer_samples(api: &Api, device: nvmlDevice_t, since_us: u64, capacity: &mut usize) -> Samples {
    let samples: Vec<nvmlProcessUtilizationInfo_v1_t> =
        list(policy::FIRST_SAMPLES, capacity, |count, samples| {
            // SAFETY: `list` gives a live counter.
            let room = unsafe { *count };
            let mut info = nvmlProcessesUtilizationInfo_v1_t {
                version: struct_version::<nvmlProcessesUtilizationInfo_v1_t>(1),
                processSamplesCount: room,
                lastSeenTimeStamp: since_us,
                procUtilArray: samples,
            };
            let result = call!(api, nvmlDeviceGetProcessesUtilizationInfo(device, &mut info));
            // SAFETY: likewise.
            unsafe { *count = info.processSamplesCount };
            result
        })?;
    Ok(samples.iter().map(|s| (s.pid, s.timeStamp, s.smUtil)).collect())
}

#[cfg(test)]
mod tests {
    use std::ffi::c_void;

    use nvml_wrapper_sys::bindings::nvmlReturn_t;

    use super::*;

    fn known(lists: [&[(u32, u64)]; 3]) -> KnownLists {
        KnownLists { entries: lists.map(|list| Some(Ok(list.to_vec()))), ..KnownLists::default() }
    }

    fn bytes(list: Reading<Vec<ProcessMemory>>) -> Vec<(u32, u64)> {
        list.unwrap().into_iter().map(|process| (process.pid, process.bytes.unwrap())).collect()
    }

    #[test]
    fn earlier_entry_counts_only_if_no_list_shows_the_process_now() {
        let lists = known([&[(10, 500)], &[(10, 900), (77, 8)], &[]]);
        assert_eq!(bytes(lists.merged([true; 3])), [(10, 900), (77, 8)]);
        assert_eq!(bytes(lists.merged([true, false, false])), [(10, 500), (77, 8)]);
    }

    #[test]
    fn memory_is_unknown_where_one_of_the_lists_is_refused() {
        let of = |failure| {
            let mut lists = known([&[(10, 500)], &[], &[]]);
            lists.entries[1] = Some(Err(Failure(failure)));
            lists.merged([true; 3]).map(|list| list.len())
        };
        assert_eq!(of(code::NOT_SUPPORTED), Ok(1), "the device does not have this list");
        assert!(of(code::UNKNOWN).is_err());
    }

    // Requirement: GPU-88
    #[test]
    fn more_memory_of_a_process_than_the_device_has_is_not_reported() {
        let lists = known([&[(10, 500), (11, 1 << 50)], &[(10, 1 << 40)], &[]]);
        let read = |capacity_bytes| {
            let lists = KnownLists { entries: lists.entries.clone(), ..KnownLists::new(capacity_bytes) };
            lists.merged([true; 3]).unwrap().into_iter().map(|process| process.bytes).collect::<Vec<_>>()
        };
        assert_eq!(read(None), [Ok(1 << 40), Ok(1 << 50)]);
        assert_eq!(read(Some(80 << 30)), [Ok(500), Err(Missing::NotReported)]);
    }

    // Requirement: GPU-88
    #[test]
    fn driver_without_a_possible_percentage_of_any_process_does_not_report_it() {
        let believed = |samples: &[(u32, u64, u32)]| believed(samples.to_vec(), 10, 20);
        let (right, wrong, noise) = ((7, 11, 40), (8, 20, u32::MAX), (8, u64::MAX, u32::MAX));
        assert_eq!(believed(&[wrong, wrong]), Err(Missing::NotReported));
        assert_eq!(believed(&[right, wrong]), Ok(vec![right]));
        assert_eq!(believed(&[wrong, noise, (0, 0, 0)]), Ok(vec![]));
        assert_eq!(believed(&[noise, noise]), Err(Missing::NotReported), "its clock is ahead");
        assert_eq!(believed(&[]), Ok(vec![]));
    }

    #[test]
    fn list_is_needed_for_processes_of_the_run_that_it_alone_shows() {
        let lists = known([&[(10, 500)], &[(10, 500), (77, 8)], &[(20, 5)]]);
        assert!(!lists.shows_alone(1, &[10, 20]) && lists.shows_alone(2, &[10, 20]));
    }

    #[test]
    fn unchanged_memory_in_use_tells_only_of_a_compute_list_that_was_read() {
        let lists = known([&[(10, 500)], &[], &[]]);
        assert!(lists.does_use_tell_changes());
        let [mut failed, mut silent, mut needed] = [(); 3].map(|()| known([&[(10, 500)], &[], &[]]));
        failed.entries[0] = Some(Err(Failure(code::UNKNOWN)));
        silent.use_hides_changes = true;
        needed.is_needed[1] = true;
        assert!([failed, silent, needed].iter().all(|lists| !lists.does_use_tell_changes()));
    }

    /// A driver whose list is empty.
    unsafe extern "C" fn empty(_: nvmlDevice_t, count: *mut c_uint, _: *mut c_void) -> nvmlReturn_t {
        // SAFETY: the caller gives a count.
        unsafe { *count = 0 };
        0
    }

    #[test]
    fn reading_of_all_lists_keeps_the_memory_in_use_that_later_ones_are_compared_with() {
        let lists = Lists([Some(List { function: empty, stride: 24 }); 3]);
        let of = ListsOf { device: std::ptr::null_mut(), instance: None };
        let mut known = KnownLists::default();
        let mut read = |kind, used| lists.read(of, &mut known, kind, Some(used), &[]).1;
        for (kind, used, is_list_read) in [
            (Kind::Memory, 1, true),
            (Kind::Memory, 1, false),
            (Kind::AllLists, 2, true),
            (Kind::Memory, 1, true),
        ] {
            assert_eq!(read(kind, used), is_list_read, "{kind:?}, {used} bytes in use");
        }
    }

    #[test]
    fn other_lists_are_read_again_when_compute_list_or_memory_changed() {
        let mut lists = known([&[(10, 500 << 20)], &[(20, 7)], &[]]);
        let before = Ok(vec![(10, 500 << 20)]);
        assert!(!lists.may_have_changed(Some(&before), Some(1 << 30)));
        assert!(!lists.may_have_changed(Some(&before), Some(1 << 30)));
        assert!(lists.may_have_changed(Some(&before), Some(2 << 30)), "memory that no list shows");
        assert!(lists.may_have_changed(Some(&Ok(vec![(20, 7)])), Some(2 << 30)), "20 left the compute list");
    }

    /// A buffer after a driver wrote entries of this size.
    fn written(stride: usize, count: usize, capacity: usize) -> Vec<u8> {
        let mut bytes = vec![PATTERN; capacity * 32];
        for (number, entry) in bytes.chunks_exact_mut(stride).take(count).enumerate() {
            entry.fill(0);
            entry[..4].copy_from_slice(&(100 + number as u32).to_ne_bytes());
            entry[8..16].copy_from_slice(&(1000 * (number as u64 + 1)).to_ne_bytes());
            entry[stride - 1] = 0xFF;
        }
        bytes
    }

    #[test]
    fn entry_size_follows_from_written_bytes() {
        for size in STRIDES {
            for count in [1, 2, 3, 64] {
                let bytes = written(size, count, 64);
                for named in STRIDES {
                    assert_eq!(stride(&bytes, count, 64, named), size, "{count} entries of {size}");
                }
            }
        }
    }

    #[test]
    fn entry_size_without_entries_or_in_cleared_buffer() {
        assert_eq!(stride(&written(32, 0, 64), 0, 64, 24), 24);
        let mut cleared = written(24, 2, 64);
        cleared[48..64 * 24].fill(0);
        assert_eq!(stride(&cleared, 2, 64, 32), 24);
    }

    #[test]
    fn empty_entries_are_skipped() {
        let mut bytes = written(24, 3, 64);
        assert_eq!(entries(&bytes, 3, 24, None), [(100, 1000), (101, 2000), (102, 3000)]);
        bytes[24..28].fill(0);
        assert_eq!(entries(&bytes, 3, 24, None), [(100, 1000), (102, 3000)]);
        // The entries of `written` end with 0xFF; their instances are 0.
        bytes[48 + 16..48 + 20].copy_from_slice(&5_u32.to_ne_bytes());
        assert_eq!(entries(&bytes, 3, 24, Some(5)), [(102, 3000)]);
        bytes[16..20].fill(0xFF);
        assert_eq!(entries(&bytes, 3, 24, Some(c_uint::MAX)), [], "no instance");
        assert_eq!(entries(&written(16, 3, 64), 3, 16, Some(0)), [], "that layout has no instances");
    }
}
