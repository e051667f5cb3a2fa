//! The driver's lists of processes, by raw calls.
//!
//! The struct has had four layouts, and the function's name does not always say which one is written: `_v3` of the
//! drivers 535.43 to 535.86 writes 32 bytes a process, later ones 24. So the buffer has room for the largest, is filled
//! with a pattern, and what is left of the pattern tells how much was written.
//!
//! A list's size is never asked for with a null buffer: some libraries write to it, some say that all went well.

use std::collections::BTreeMap;
use std::ffi::c_uint;

use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlProcessUtilizationSample_t};

use super::api::{Api, Failure, ListCall, NOT_AVAILABLE, call, check, code, grow};
use crate::model::gpu::{Missing, ProcessMemory, Reading};

/// Entries that are given room at first.
const FIRST_ROOM: usize = 64;
/// Sizes of a process, by layout: v1; v2 and the final v3; the v3 of 535.43 to 535.86.
const STRIDES: [usize; 3] = [16, 24, 32];
/// What no driver writes.
const PATTERN: u8 = 0xA5;

/// The three lists, each under its names from new to old, with the size that the name should mean.
const LISTS: [[(&[u8], usize); 3]; 3] = [
    [
        (b"nvmlDeviceGetComputeRunningProcesses_v3\0", 24),
        (b"nvmlDeviceGetComputeRunningProcesses_v2\0", 24),
        (b"nvmlDeviceGetComputeRunningProcesses\0", 16),
    ],
    [
        (b"nvmlDeviceGetGraphicsRunningProcesses_v3\0", 24),
        (b"nvmlDeviceGetGraphicsRunningProcesses_v2\0", 24),
        (b"nvmlDeviceGetGraphicsRunningProcesses\0", 16),
    ],
    [
        (b"nvmlDeviceGetMPSComputeRunningProcesses_v3\0", 24),
        (b"nvmlDeviceGetMPSComputeRunningProcesses_v2\0", 24),
        (b"nvmlDeviceGetMPSComputeRunningProcesses\0", 16),
    ],
];

/// One list's function, and the size of an entry that its name should mean.
#[derive(Clone, Copy)]
struct List {
    /// The list that most processes are in.
    is_compute: bool,
    function: ListCall,
    stride: usize,
}

/// The lists that a library has.
pub struct Lists(Vec<List>);

impl Lists {
    /// Look them up.
    #[must_use]
    pub fn new(api: &Api) -> Self {
        let newest = |(number, names): (usize, &[(&[u8], usize); 3])| {
            names.iter().find_map(|(name, stride)| {
                let function = api.old::<ListCall>(name).ok()?;
                Some(List { is_compute: number == 0, function, stride: *stride })
            })
        };
        Self(LISTS.iter().enumerate().filter_map(newest).collect())
    }

    /// Every process with memory on the device, each once: the lists overlap.
    ///
    /// # Errors
    /// If no list could be read, or not the first one, which most processes are in.
    pub fn read(&self, device: nvmlDevice_t) -> Reading<Vec<ProcessMemory>> {
        let mut processes: BTreeMap<u32, Reading<u64>> = BTreeMap::new();
        let mut failure = None;
        let mut is_any = false;
        for list in &self.0 {
            match list.read(device) {
                Ok(entries) => {
                    is_any = true;
                    for (pid, bytes) in entries {
                        let bytes = if bytes == NOT_AVAILABLE { Err(Missing::NotTold) } else { Ok(bytes) };
                        let known = processes.entry(pid).or_insert(Err(Missing::NotTold));
                        *known = match (known.clone(), bytes) {
                            (Ok(a), Ok(b)) => Ok(a.max(b)),
                            (Ok(a), Err(_)) => Ok(a),
                            (Err(_), other) => other,
                        };
                    }
                }
                Err(error) => match Missing::from(error) {
                    missing @ (Missing::NotSupported | Missing::NoCall) => {
                        failure = failure.or(Some(missing))
                    }
                    missing if list.is_compute => return Err(missing),
                    missing => failure = failure.or(Some(missing)),
                },
            }
        }
        if !is_any {
            return Err(failure.unwrap_or(Missing::NoCall));
        }
        Ok(processes.into_iter().map(|(pid, bytes)| ProcessMemory { pid, bytes }).collect())
    }
}

impl List {
    fn read(&self, device: nvmlDevice_t) -> Result<Vec<(u32, u64)>, Failure> {
        let widest = STRIDES[STRIDES.len() - 1];
        grow(FIRST_ROOM, |room| {
            let mut buffer = vec![u64::from_ne_bytes([PATTERN; 8]); room * widest / 8];
            let mut count = c_uint::try_from(room).unwrap_or(c_uint::MAX);
            // SAFETY: the buffer has room for `count` entries of the widest layout, aligned for its 64-bit fields.
            let result = check(unsafe { (self.function)(device, &mut count, buffer.as_mut_ptr().cast()) });
            let count = count as usize;
            (result.map(|()| (buffer, count)), count)
        })
        .map(|(room, (buffer, count))| {
            let bytes: Vec<u8> = buffer.into_iter().flat_map(u64::to_ne_bytes).collect();
            let count = count.min(room);
            entries(&bytes, count, stride(&bytes, count, room, self.stride))
        })
    }
}

/// The size of an entry, from how much of the pattern is gone.
fn stride(bytes: &[u8], count: usize, room: usize, named: usize) -> usize {
    let written = bytes.iter().rposition(|byte| *byte != PATTERN).map_or(0, |last| last + 1);
    let fits = |entries: usize| {
        // The last entry was written beyond the size before, and not beyond its own.
        let of = |stride: &&usize| {
            let smaller = STRIDES.iter().rev().find(|other| other < stride).copied().unwrap_or(0);
            entries > 0
                && written <= entries * **stride
                && written > entries * **stride - (**stride - smaller)
        };
        STRIDES.iter().find(of).copied()
    };
    // Some drivers clear the whole buffer.
    let cleared = || STRIDES.into_iter().find(|stride| written == room * stride);
    fits(count).or_else(cleared).unwrap_or(named)
}

/// pid and memory lie at the same place in each layout.
fn entries(bytes: &[u8], count: usize, stride: usize) -> Vec<(u32, u64)> {
    let entry = |entry: &[u8]| {
        let pid = u32::from_ne_bytes(entry.get(..4)?.try_into().ok()?);
        let memory = u64::from_ne_bytes(entry.get(8..16)?.try_into().ok()?);
        (pid != 0).then_some((pid, memory))
    };
    bytes.chunks_exact(stride).take(count).filter_map(entry).collect()
}

/// More than 100 percent is rounding up to here; beyond, it is what lay in the driver's memory.
const ABSURD_PERCENT: c_uint = 1000;

/// Who ran on the device since `since_us` (by the driver's clock): pid, time stamp, percent. Nothing new is an empty list.
///
/// Some drivers count more entries than they fill in, and the rest is noise (Syllo/nvtop issue 110): an entry counts
/// only if its time (`latest_us` at most) and its percentage can be true.
///
/// # Errors
/// What NVML says.
pub fn utilization(
    api: &Api,
    device: nvmlDevice_t,
    since_us: u64,
    latest_us: u64,
) -> Reading<Vec<(u32, u64, u32)>> {
    let zero = nvmlProcessUtilizationSample_t {
        pid: 0,
        timeStamp: 0,
        smUtil: 0,
        memUtil: 0,
        encUtil: 0,
        decUtil: 0,
    };
    let given = grow(FIRST_ROOM, |room| {
        let mut samples = vec![zero; room];
        let mut count = c_uint::try_from(room).unwrap_or(c_uint::MAX);
        let result =
            call!(api, nvmlDeviceGetProcessUtilization(device, samples.as_mut_ptr(), &mut count, since_us));
        samples.truncate(count as usize);
        (result.map(|()| samples), count as usize)
    });
    match given {
        Ok((_, samples)) => {
            // A slot that was not written has no time; one that is not newer was told before.
            let is_new = |s: &&nvmlProcessUtilizationSample_t| {
                s.pid != 0 && (since_us + 1..=latest_us).contains(&s.timeStamp) && s.smUtil <= ABSURD_PERCENT
            };
            Ok(samples.iter().filter(is_new).map(|s| (s.pid, s.timeStamp, s.smUtil)).collect())
        }
        Err(Failure { code: Some(code::NOT_FOUND) }) => Ok(Vec::new()),
        Err(failure) => Err(failure.into()),
    }
}

/// The pids that the driver keeps an account of.
///
/// # Errors
/// What NVML says.
pub fn accounted_pids(api: &Api, device: nvmlDevice_t) -> Reading<Vec<u32>> {
    let (_, pids) = grow(FIRST_ROOM, |room| {
        let mut pids = vec![0; room];
        let mut count = c_uint::try_from(room).unwrap_or(c_uint::MAX);
        let result = call!(api, nvmlDeviceGetAccountingPids(device, &mut count, pids.as_mut_ptr()));
        pids.truncate(count as usize);
        (result.map(|()| pids), count as usize)
    })?;
    Ok(pids.into_iter().filter(|pid| *pid != 0).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A buffer as a driver leaves it that writes entries of this size.
    fn written(stride: usize, count: usize, room: usize) -> Vec<u8> {
        let mut bytes = vec![PATTERN; room * 32];
        for (number, entry) in bytes.chunks_exact_mut(stride).take(count).enumerate() {
            entry.fill(0);
            entry[..4].copy_from_slice(&(100 + number as u32).to_ne_bytes());
            entry[8..16].copy_from_slice(&(1000 * (number as u64 + 1)).to_ne_bytes());
            entry[stride - 1] = 0xFF;
        }
        bytes
    }

    #[test]
    fn the_size_of_an_entry_is_what_was_written() {
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
    fn without_an_entry_or_in_a_cleared_buffer_it_is_told_otherwise() {
        assert_eq!(stride(&written(32, 0, 64), 0, 64, 24), 24);
        let mut cleared = written(24, 2, 64);
        cleared[48..64 * 24].fill(0);
        assert_eq!(stride(&cleared, 2, 64, 32), 24);
    }

    #[test]
    fn entries_are_read_and_empty_ones_left_out() {
        let mut bytes = written(24, 3, 64);
        assert_eq!(entries(&bytes, 3, 24), [(100, 1000), (101, 2000), (102, 3000)]);
        bytes[24..28].fill(0);
        assert_eq!(entries(&bytes, 3, 24), [(100, 1000), (102, 3000)]);
    }
}
