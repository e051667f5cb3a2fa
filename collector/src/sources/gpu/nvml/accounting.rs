//! The driver's accounting mode. While the mode is on, the driver keeps an entry of each process that uses the device, with its peak
//! of memory. The entry stays in a ring buffer after the process's end. So entries show processes that no sample saw. The mode is off
//! by default, and only root can switch it on.

use std::collections::HashSet;

use nvml_wrapper_sys::bindings::{nvmlAccountingStats_t, nvmlDevice_t};

use super::api::{Api, Failure, Plain, call, code, get, list};
use super::policy;
use crate::model::gpu::{AccountingEntry, Missing, Reading};

/// nvml.h, `nvmlEnableState_t`.
const DISABLED: u32 = 0;
const ENABLED: u32 = 1;
/// Why there are no entries where the mode is off.
const OFF: &str = "accounting mode is off";

/// Accounting of one device.
#[derive(Debug)]
pub(super) struct Accounting {
    /// `Ok`: the mode is on. `Err`: why there are no entries.
    availability: Reading<()>,
    /// The collector switched the mode on, and not off again.
    must_restore: bool,
    /// Why the driver did not switch the mode on.
    refused: Option<Missing>,
    /// Entries of ended processes that were given, by pid and start (microseconds since 1970). They don't change any more.
    given_final: HashSet<(u32, u64)>,
    /// Capacity of the buffer that the list of pids fitted into last; 0: not read yet.
    pids_capacity: usize,
}

impl Accounting {
    /// Whether the driver's answer may be another one later.
    pub(super) fn may_change(&self) -> bool {
        let may_pass = |why: &Missing| why.may_pass() && *why != Missing::Failed(OFF.into());
        self.refused.is_none() && self.availability.as_ref().is_err_and(may_pass)
    }

    /// Asks whether the mode is on. Leaves it as it is.
    pub(super) fn unchanged(api: &Api, device: nvmlDevice_t) -> Self {
        let mode = get(|mode| call!(api, nvmlDeviceGetAccountingMode(device, mode)));
        let off = Missing::Failed(OFF.into());
        Self {
            availability: mode.and_then(|mode| if mode == ENABLED { Ok(()) } else { Err(off) }),
            must_restore: false,
            refused: None,
            given_final: HashSet::new(),
            pids_capacity: 0,
        }
    }

    /// Asks whether the mode is on. If the mode is off, or that is not known, tries to switch it on.
    pub(super) fn switched_on(api: &Api, device: nvmlDevice_t) -> Self {
        let mut this = Self::unchanged(api, device);
        if this.availability.is_err() {
            match call!(api, nvmlDeviceSetAccountingMode(device, ENABLED)) {
                Ok(()) => (this.availability, this.must_restore) = (Ok(()), true),
                Err(failure) => this.refused = Some(failure.into()),
            }
        }
        this
    }

    /// Whether the collector switched the mode on, and not off again.
    pub(super) fn must_restore(&self) -> bool {
        self.must_restore
    }

    /// A warning if the mode could not be switched on. `None`: the mode was on, was switched on, or the user does not want it.
    pub(super) fn warning(&self) -> Option<String> {
        self.refused.as_ref().map(|missing| format!("accounting could not be switched on ({missing})"))
    }

    /// Reads the entries of processes of the run. `pids` are those by which the driver may name them. An entry is given at each
    /// call while its process runs, and once more, the final one, after the process's end. `Err`: the mode is off, or the entries
    /// can't be listed. `most_bytes`: more memory than this is not believed.
    pub(super) fn read(
        &mut self,
        api: &Api,
        device: nvmlDevice_t,
        pids: &[u32],
        most_bytes: u64,
    ) -> Reading<Vec<AccountingEntry>> {
        if let Err(missing) = &self.availability {
            return Err(missing.clone());
        }
        let of_run: HashSet<u32> = pids.iter().copied().collect();
        let accounted = accounted_pids(api, device, &mut self.pids_capacity)?;
        let (mut entries, mut failed) = (Vec::new(), None);
        for pid in accounted.into_iter().filter(|pid| of_run.contains(pid)) {
            let entry = match stats(api, device, pid, most_bytes) {
                Ok(entry) => entry,
                // The driver's ring buffer has dropped the entry since the list was read.
                Err(Failure(code::NOT_FOUND)) => continue,
                Err(failure) => {
                    failed = Some(failure);
                    continue;
                }
            };
            // The start belongs to the key, since a later process can have the pid.
            let key = (pid, entry.started_us);
            if self.given_final.contains(&key) {
                continue;
            }
            if !entry.is_running {
                self.given_final.insert(key);
            }
            entries.push(entry);
        }
        match failed.filter(|_| entries.is_empty()) {
            Some(failure) => Err(failure.into()),
            None => Ok(entries),
        }
    }

    /// Switches the mode off if the collector switched it on. Returns a warning if that failed.
    pub(super) fn restore(&mut self, api: &Api, device: nvmlDevice_t) -> Option<String> {
        if !std::mem::take(&mut self.must_restore) {
            return None;
        }
        let failure = call!(api, nvmlDeviceSetAccountingMode(device, DISABLED)).err()?;
        Some(format!("accounting could not be switched off again ({})", Missing::from(failure)))
    }
}

/// Asks for the pids of the processes that the driver keeps accounting entries of, running or ended. `capacity` is that of the
/// buffer that the list fitted into last, and is updated.
fn accounted_pids(api: &Api, device: nvmlDevice_t, capacity: &mut usize) -> Reading<Vec<u32>> {
    let pids = list(policy::FIRST_PROCESSES, capacity, |count, pids| {
        call!(api, nvmlDeviceGetAccountingPids(device, count, pids))
    })?;
    // The buffer was filled with zeros: a 0 is an entry that the driver counted and did not write.
    Ok(pids.into_iter().filter(|pid| *pid != 0).collect())
}

/// Asks for the accounting entry of the latest process that had this pid. A peak above `most_bytes` is not believed, and 0 is none.
fn stats(api: &Api, device: nvmlDevice_t, pid: u32, most_bytes: u64) -> Result<AccountingEntry, Failure> {
    let mut stats = nvmlAccountingStats_t::zeroed();
    call!(api, nvmlDeviceGetAccountingStats(device, pid, &mut stats))?;
    Ok(AccountingEntry {
        pid,
        started_us: stats.startTime,
        is_running: stats.isRunning != 0,
        peak_bytes: Some(stats.maxMemoryUsage).filter(|bytes| (1..=most_bytes).contains(bytes)),
        utilization_percent: utilization(&stats),
    })
}

/// The mean utilization over a process's life, percent. `None`: it is not known. The driver adds its samples to the
/// accounts once a second. A process that ended before the first of them has 0% (open-gpu-kernel-modules, gpu_acct.c).
fn utilization(stats: &nvmlAccountingStats_t) -> Option<u32> {
    let is_sampled = stats.gpuUtilization > 0 || stats.time >= policy::ACCOUNTED_MS;
    Some(stats.gpuUtilization).filter(|percent| is_sampled && *percent <= 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_utilization_of_a_short_process_is_unknown() {
        let percent_of = |percent, ms| {
            utilization(&nvmlAccountingStats_t { gpuUtilization: percent, time: ms, ..Plain::zeroed() })
        };
        assert_eq!((percent_of(0, 300), percent_of(0, 5000), percent_of(40, 300)), (None, Some(0), Some(40)));
        assert_eq!(percent_of(u32::MAX, 5000), None);
    }
}
