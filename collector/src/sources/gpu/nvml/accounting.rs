//! The driver's own account of processes (accounting mode): it knows the peak of those that no sample saw. Off by
//! default; only root can switch it on.

use std::collections::HashSet;
use std::ffi::c_uint;

use nvml_wrapper_sys::bindings::{nvmlAccountingStats_t, nvmlDevice_t};

use super::api::{Api, NOT_AVAILABLE, call};
use super::processes::accounted_pids;
use crate::model::gpu::{Accounted, Missing, Reading};

/// One device's account.
#[derive(Debug)]
pub struct Accounting {
    state: Reading<()>,
    is_ours_to_restore: bool,
    refused: Option<Missing>,
    /// Those whose account is closed: pid and start.
    closed: HashSet<(u32, u64)>,
}

impl Accounting {
    /// Look whether it is on, and try to switch it on if that is wanted.
    #[must_use]
    pub fn start(api: &Api, device: nvmlDevice_t, is_wanted: bool) -> Self {
        let mut mode: c_uint = 0;
        let asked = call!(api, nvmlDeviceGetAccountingMode(device, &mut mode)).map_err(Missing::from);
        let mut this = Self {
            state: asked.and_then(|()| if mode == 1 { Ok(()) } else { Err(off()) }),
            is_ours_to_restore: false,
            refused: None,
            closed: HashSet::new(),
        };
        if is_wanted && this.state.is_err() {
            match call!(api, nvmlDeviceSetAccountingMode(device, 1)) {
                Ok(()) => (this.state, this.is_ours_to_restore) = (Ok(()), true),
                Err(failure) => this.refused = Some(failure.into()),
            }
        }
        this
    }

    /// Why it could not be switched on.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        self.refused.as_ref().map(|missing| format!("accounting could not be switched on ({missing})"))
    }

    /// The accounts of these processes, those that are closed once.
    ///
    /// # Errors
    /// Why there is none.
    pub fn read(&mut self, api: &Api, device: nvmlDevice_t, pids: &[u32]) -> Reading<Vec<Accounted>> {
        self.state.clone()?;
        let ours: HashSet<u32> = pids.iter().copied().collect();
        let mut accounts = Vec::new();
        for pid in accounted_pids(api, device)?.into_iter().filter(|pid| ours.contains(pid)) {
            // One that the ring buffer of the driver has dropped meanwhile is gone.
            let Ok(account) = stats(api, device, pid) else { continue };
            if self.closed.contains(&(pid, account.started_us)) {
                continue;
            }
            if !account.is_running {
                self.closed.insert((pid, account.started_us));
            }
            accounts.push(account);
        }
        Ok(accounts)
    }

    /// Switch it off if we switched it on. Gives why that failed.
    pub fn restore(&mut self, api: &Api, device: nvmlDevice_t) -> Option<String> {
        if !std::mem::take(&mut self.is_ours_to_restore) {
            return None;
        }
        let failure = call!(api, nvmlDeviceSetAccountingMode(device, 0)).err()?;
        Some(format!("accounting could not be switched off again ({})", Missing::from(failure)))
    }
}

fn off() -> Missing {
    Missing::Failed("accounting mode is off".into())
}

fn stats(api: &Api, device: nvmlDevice_t, pid: u32) -> Reading<Accounted> {
    let mut stats = nvmlAccountingStats_t {
        gpuUtilization: 0,
        memoryUtilization: 0,
        maxMemoryUsage: 0,
        time: 0,
        startTime: 0,
        isRunning: 0,
        reserved: [0; 5],
    };
    call!(api, nvmlDeviceGetAccountingStats(device, pid, &mut stats))?;
    Ok(Accounted {
        pid,
        started_us: stats.startTime,
        is_running: stats.isRunning != 0,
        peak_bytes: Some(stats.maxMemoryUsage).filter(|bytes| *bytes != NOT_AVAILABLE),
        utilization_percent: Some(stats.gpuUtilization).filter(|percent| *percent <= 100),
    })
}
