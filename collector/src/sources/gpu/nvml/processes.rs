//! The driver's lists of processes, by raw calls.
//!
//! The struct has had four layouts, and the function's name does not always say which one is written: `_v3` of the
//! drivers 535.43 to 535.86 writes 32 bytes a process, later ones 24. So the buffer is sized for the largest and filled
//! with a pattern. What is left of the pattern shows how much was written.
//!
//! A list's size is never asked for with a null buffer: some libraries write to it, some return SUCCESS.

use std::collections::BTreeMap;
use std::ffi::c_uint;

use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlProcessUtilizationSample_t};

use super::api::{Api, Failure, ListCall, NOT_AVAILABLE, call, check, code, grow};
use super::policy::POLICY;
use crate::model::gpu::{Missing, ProcessMemory, Reading};

/// Sizes of a process, by layout: v1; v2 and the final v3; the v3 of 535.43 to 535.86.
const STRIDES: [usize; 3] = [16, 24, 32];
/// A byte that no driver writes throughout.
const PATTERN: u8 = 0xA5;

/// The three lists, each by its names from new to old, with the entry size that the name stands for.
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

/// One list's function, and the entry size that its name stands for.
#[derive(Clone, Copy)]
struct List {
    /// The compute list, which has most processes.
    is_compute: bool,
    function: ListCall,
    stride: usize,
}

/// The lists that a library has.
pub(super) struct Lists(Vec<List>);

impl Lists {
    pub(super) fn new(api: &Api) -> Self {
        let newest = |(number, names): (usize, &[(&[u8], usize); 3])| {
            names.iter().find_map(|(name, stride)| {
                let function = api.old::<ListCall>(name).ok()?;
                Some(List { is_compute: number == 0, function, stride: *stride })
            })
        };
        Self(LISTS.iter().enumerate().filter_map(newest).collect())
    }

    /// Every process with memory on the device, each once: the lists overlap. Fails if no list could be read, or not the
    /// compute list, which has most processes.
    pub(super) fn read(&self, device: nvmlDevice_t) -> Reading<Vec<ProcessMemory>> {
        let mut processes: BTreeMap<u32, Reading<u64>> = BTreeMap::new();
        let mut failure = None;
        let mut is_any = false;
        for list in &self.0 {
            match list.read(device) {
                Ok(entries) => {
                    is_any = true;
                    for (pid, bytes) in entries {
                        let bytes =
                            if bytes == NOT_AVAILABLE { Err(Missing::NotReported) } else { Ok(bytes) };
                        let known = processes.entry(pid).or_insert(Err(Missing::NotReported));
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
        grow(POLICY.first_processes, |capacity| {
            let mut buffer = vec![u64::from_ne_bytes([PATTERN; 8]); capacity * widest / 8];
            let mut count = c_uint::try_from(capacity).unwrap_or(c_uint::MAX);
            // SAFETY: the buffer holds `count` entries of the widest layout, aligned for its 64-bit fields.
            let result = check(unsafe { (self.function)(device, &mut count, buffer.as_mut_ptr().cast()) });
            let count = count as usize;
            (result.map(|()| (buffer, count)), count)
        })
        .map(|(capacity, (buffer, count))| {
            let bytes: Vec<u8> = buffer.into_iter().flat_map(u64::to_ne_bytes).collect();
            let count = count.min(capacity);
            entries(&bytes, count, stride(&bytes, count, capacity, self.stride))
        })
    }
}

/// The size of an entry, from how much of the pattern was overwritten.
fn stride(bytes: &[u8], count: usize, capacity: usize, named: usize) -> usize {
    let written = bytes.iter().rposition(|byte| *byte != PATTERN).map_or(0, |last| last + 1);
    let fits = |entries: usize| {
        // The last entry was written beyond the next smaller size, and not beyond its own.
        let of = |stride: &&usize| {
            let smaller = STRIDES.iter().rev().find(|other| other < stride).copied().unwrap_or(0);
            entries > 0
                && written <= entries * **stride
                && written > entries * **stride - (**stride - smaller)
        };
        STRIDES.iter().find(of).copied()
    };
    // Some drivers clear the whole buffer.
    let cleared = || STRIDES.into_iter().find(|stride| written == capacity * stride);
    fits(count).or_else(cleared).unwrap_or(named)
}

/// pid and memory have the same offsets in each layout.
fn entries(bytes: &[u8], count: usize, stride: usize) -> Vec<(u32, u64)> {
    let entry = |entry: &[u8]| {
        let pid = u32::from_ne_bytes(entry.get(..4)?.try_into().ok()?);
        let memory = u64::from_ne_bytes(entry.get(8..16)?.try_into().ok()?);
        (pid != 0).then_some((pid, memory))
    };
    bytes.chunks_exact(stride).take(count).filter_map(entry).collect()
}

/// Utilisation samples of processes since `since_us` (by the driver's clock): pid, time stamp, percent.
///
/// Some drivers count more entries than they fill in, and the rest is noise (Syllo/nvtop issue 110). An entry counts only
/// if its time (`latest_us` at most) and its percentage are possible.
pub(super) fn utilization(
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
    let given = grow(POLICY.first_processes, |capacity| {
        let mut samples = vec![zero; capacity];
        let mut count = c_uint::try_from(capacity).unwrap_or(c_uint::MAX);
        let result =
            call!(api, nvmlDeviceGetProcessUtilization(device, samples.as_mut_ptr(), &mut count, since_us));
        samples.truncate(count as usize);
        (result.map(|()| samples), count as usize)
    });
    match given {
        Ok((_, samples)) => {
            // An entry that was not written has no time; one that is not newer was read before.
            let is_new = |s: &&nvmlProcessUtilizationSample_t| {
                s.pid != 0
                    && (since_us + 1..=latest_us).contains(&s.timeStamp)
                    && s.smUtil <= POLICY.most_percent
            };
            Ok(samples.iter().filter(is_new).map(|s| (s.pid, s.timeStamp, s.smUtil)).collect())
        }
        Err(Failure { code: Some(code::NOT_FOUND) }) => Ok(Vec::new()),
        Err(failure) => Err(failure.into()),
    }
}

/// The pids with accounting entries.
pub(super) fn accounted_pids(api: &Api, device: nvmlDevice_t) -> Reading<Vec<u32>> {
    let (_, pids) = grow(POLICY.first_processes, |capacity| {
        let mut pids = vec![0; capacity];
        let mut count = c_uint::try_from(capacity).unwrap_or(c_uint::MAX);
        let result = call!(api, nvmlDeviceGetAccountingPids(device, &mut count, pids.as_mut_ptr()));
        pids.truncate(count as usize);
        (result.map(|()| pids), count as usize)
    })?;
    Ok(pids.into_iter().filter(|pid| *pid != 0).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(entries(&bytes, 3, 24), [(100, 1000), (101, 2000), (102, 3000)]);
        bytes[24..28].fill(0);
        assert_eq!(entries(&bytes, 3, 24), [(100, 1000), (102, 3000)]);
    }
}
