//! The driver's accounting mode, which records the peak of processes that no sample saw. It is off by default; only root
//! can switch it on.

use std::collections::HashSet;

use nvml_wrapper_sys::bindings::{nvmlAccountingStats_t, nvmlDevice_t};

use super::api::{Api, NOT_AVAILABLE, Plain, call, get, list};
use super::policy::{CALLS, SAMPLES};
use crate::model::gpu::{AccountingEntry, Missing, Reading};

/// nvml.h, `nvmlEnableState_t`.
const DISABLED: u32 = 0;
const ENABLED: u32 = 1;

/// Accounting of one device.
#[derive(Debug)]
pub(super) struct Accounting {
    state: Reading<()>,
    /// The collector switched it on.
    must_restore: bool,
    refused: Option<Missing>,
    /// Final entries that were read: pid and start.
    closed: HashSet<(u32, u64)>,
    /// Room that the list of pids needed last.
    needed: usize,
}

impl Accounting {
    /// Asks whether it is on. If it is not and `is_wanted`, tries to switch it on.
    pub(super) fn start(api: &Api, device: nvmlDevice_t, is_wanted: bool) -> Self {
        let mode = get(|mode| call!(api, nvmlDeviceGetAccountingMode(device, mode)));
        let off = Missing::Failed("accounting mode is off".into());
        let mut this = Self {
            state: mode.and_then(|mode| if mode == ENABLED { Ok(()) } else { Err(off) }),
            must_restore: false,
            refused: None,
            closed: HashSet::new(),
            needed: 0,
        };
        if is_wanted && this.state.is_err() {
            match call!(api, nvmlDeviceSetAccountingMode(device, ENABLED)) {
                Ok(()) => (this.state, this.must_restore) = (Ok(()), true),
                Err(failure) => this.refused = Some(failure.into()),
            }
        }
        this
    }

    /// Whether the collector switched it on, and not off again.
    pub(super) fn must_restore(&self) -> bool {
        self.must_restore
    }

    /// Gives why it could not be switched on. `None`: it was, or was not to be.
    pub(super) fn warning(&self) -> Option<String> {
        self.refused.as_ref().map(|missing| format!("accounting could not be switched on ({missing})"))
    }

    /// Reads the entries of these processes; a final one is read once.
    pub(super) fn read(
        &mut self,
        api: &Api,
        device: nvmlDevice_t,
        pids: &[u32],
    ) -> Reading<Vec<AccountingEntry>> {
        self.state.clone()?;
        let of_run: HashSet<u32> = pids.iter().copied().collect();
        let mut entries = Vec::new();
        for pid in
            accounted_pids(api, device, &mut self.needed)?.into_iter().filter(|pid| of_run.contains(pid))
        {
            // The driver's ring buffer may have dropped the entry meanwhile.
            let Ok(entry) = stats(api, device, pid) else { continue };
            if self.closed.contains(&(pid, entry.started_us)) {
                continue;
            }
            if !entry.is_running {
                self.closed.insert((pid, entry.started_us));
            }
            entries.push(entry);
        }
        Ok(entries)
    }

    /// Switches it off if the collector switched it on. Gives a warning if that failed.
    pub(super) fn restore(&mut self, api: &Api, device: nvmlDevice_t) -> Option<String> {
        if !std::mem::take(&mut self.must_restore) {
            return None;
        }
        let failure = call!(api, nvmlDeviceSetAccountingMode(device, DISABLED)).err()?;
        Some(format!("accounting could not be switched off again ({})", Missing::from(failure)))
    }
}

/// Asks for the pids with accounting entries.
fn accounted_pids(api: &Api, device: nvmlDevice_t, needed: &mut usize) -> Reading<Vec<u32>> {
    let pids = list(CALLS.first_processes, needed, |count, pids| {
        call!(api, nvmlDeviceGetAccountingPids(device, count, pids))
    })?;
    Ok(pids.into_iter().filter(|pid| *pid != 0).collect())
}

/// Asks for the entry of a process.
fn stats(api: &Api, device: nvmlDevice_t, pid: u32) -> Reading<AccountingEntry> {
    let mut stats = nvmlAccountingStats_t::zeroed();
    call!(api, nvmlDeviceGetAccountingStats(device, pid, &mut stats))?;
    Ok(AccountingEntry {
        pid,
        started_us: stats.startTime,
        is_running: stats.isRunning != 0,
        peak_bytes: Some(stats.maxMemoryUsage).filter(|bytes| *bytes != NOT_AVAILABLE),
        utilization_percent: utilization(&stats),
    })
}

/// Gives the utilization over a process's life, percent. The driver takes its samples into the accounts once a second, and
/// has 0% for a process that ended before (open-gpu-kernel-modules, gpu_acct.c).
fn utilization(stats: &nvmlAccountingStats_t) -> Option<u32> {
    let is_sampled = stats.gpuUtilization > 0 || stats.time >= SAMPLES.accounted_ms;
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
