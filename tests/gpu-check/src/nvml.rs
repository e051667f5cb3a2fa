//! The few calls of NVML that the checks make themselves, on the first device.

use std::ffi::{CStr, c_char, c_uint};
use std::time::Instant;

use nvml_wrapper_sys::bindings::{
    NvmlLib, nvmlDevice_t, nvmlMemory_t, nvmlProcessInfo_t, nvmlProcessUtilizationSample_t, nvmlSample_t,
    nvmlUtilization_t, nvmlValue_t,
};

use crate::library;

/// nvml.h, `NVML_GPU_UTILIZATION_SAMPLES`.
pub(crate) const UTILIZATION_SAMPLES: c_uint = 1;
/// nvml.h, `NVML_DEVICE_UUID_V2_BUFFER_SIZE`.
pub(crate) const TEXT_BYTES: usize = 96;
/// Entries of a list, more than any machine has.
pub(crate) const ENTRIES: usize = 512;

/// Why there is nothing to check.
pub(crate) enum Absent {
    /// No library, or a driver without a device.
    NoGpu(String),
    /// There is a driver, and it does not work.
    Refused(String),
}

/// NVML and its first device.
pub(crate) struct Nvml {
    /// The library.
    pub lib: NvmlLib,
    /// The first device.
    pub device: nvmlDevice_t,
    /// How many devices there are.
    pub count: c_uint,
    /// The first device's UUID.
    pub uuid: String,
    /// How long it took to load and initialise the library, milliseconds.
    pub start_ms: f64,
}

/// A list entry of zeros, which the driver fills in.
fn zeroed<T: Copy>() -> T {
    // SAFETY: used for NVML's structures of integers only, for which all zeros is a value.
    unsafe { std::mem::zeroed() }
}

/// The text that a call writes to a buffer; empty if it fails.
fn text(fill: impl FnOnce(*mut c_char, c_uint) -> c_uint) -> String {
    let mut buffer = [0 as c_char; TEXT_BYTES];
    let code = fill(buffer.as_mut_ptr(), TEXT_BYTES as c_uint - 1);
    // SAFETY: the last byte stays 0.
    let text = unsafe { CStr::from_ptr(buffer.as_ptr()) };
    if code == 0 { text.to_string_lossy().into_owned() } else { String::new() }
}

impl Nvml {
    /// Loads and initialises the library that gpu-track-run would load.
    pub(crate) fn start() -> Result<Self, Absent> {
        let named = std::env::var("GPU_TRACK_NVML_LIB").unwrap_or_else(|_| "libnvidia-ml.so.1".into());
        let start = Instant::now();
        // SAFETY: the driver's library; its initialisers are trusted.
        let lib = library::open(&named, |path| unsafe { NvmlLib::new(path) }).map_err(Absent::NoGpu)?;
        // SAFETY: here and below, nvml.h's contract: pointers are to live objects, buffers have the length that is passed.
        let code = unsafe { lib.nvmlInit_v2() };
        let start_ms = start.elapsed().as_secs_f64() * 1e3;
        if code != 0 {
            let reason = format!("nvmlInit_v2 returned {code}");
            // NVML creates the node itself where root runs it, with and without a driver behind it.
            let has_driver = std::fs::File::open("/dev/nvidiactl").is_ok();
            return Err(if has_driver { Absent::Refused(reason) } else { Absent::NoGpu(reason) });
        }
        let (mut count, mut device): (c_uint, nvmlDevice_t) = (0, std::ptr::null_mut());
        // SAFETY: as above.
        let code = unsafe { lib.nvmlDeviceGetCount_v2(&raw mut count) };
        // SAFETY: as above.
        if code != 0 || count == 0 || unsafe { lib.nvmlDeviceGetHandleByIndex_v2(0, &raw mut device) } != 0 {
            return Err(Absent::NoGpu(format!("nvmlDeviceGetCount_v2 returned {code}, {count} devices")));
        }
        // SAFETY: as above.
        let uuid = text(|place, room| unsafe { lib.nvmlDeviceGetUUID(device, place, room) });
        Ok(Self { lib, device, count, uuid, start_ms })
    }

    /// The first device's name.
    pub(crate) fn name(&self) -> String {
        // SAFETY: as in `start`.
        text(|place, room| unsafe { self.lib.nvmlDeviceGetName(self.device, place, room) })
    }

    /// The driver's version.
    pub(crate) fn driver_version(&self) -> String {
        // SAFETY: as in `start`.
        text(|place, room| unsafe { self.lib.nvmlSystemGetDriverVersion(place, room) })
    }

    /// Pids and memory of compute processes on any device. In a container the pids may be the host's.
    pub(crate) fn compute_processes(&self) -> Vec<(u32, u64)> {
        let mut found = Vec::new();
        for index in 0..self.count {
            let (mut device, mut count) = (std::ptr::null_mut(), ENTRIES as c_uint);
            // Twice the room: drivers 535.43 to 535.86 write entries of 32 bytes.
            let mut list: Vec<nvmlProcessInfo_t> = vec![zeroed(); 2 * ENTRIES];
            // SAFETY: as in `start`.
            if unsafe { self.lib.nvmlDeviceGetHandleByIndex_v2(index, &raw mut device) } != 0
                || self.lib.nvmlDeviceGetComputeRunningProcesses_v3.is_err()
            {
                continue;
            }
            let (count_place, list_place) = (&raw mut count, list.as_mut_ptr());
            // SAFETY: as in `start`.
            let code =
                unsafe { self.lib.nvmlDeviceGetComputeRunningProcesses_v3(device, count_place, list_place) };
            if code == 0 {
                let listed = list.iter().take(count as usize);
                found.extend(listed.map(|process| (process.pid, process.usedGpuMemory)));
            }
        }
        found
    }

    /// Memory in use on the first device by `MemoryInfo` (v1), which counts what the driver reserves, bytes.
    pub(crate) fn used_bytes(&self) -> Option<u64> {
        let mut memory: nvmlMemory_t = zeroed();
        // SAFETY: as in `start`.
        let code = unsafe { self.lib.nvmlDeviceGetMemoryInfo(self.device, &raw mut memory) };
        (code == 0).then_some(memory.used)
    }

    /// The energy counter, joules; `None`: the device has none.
    pub(crate) fn energy_j(&self) -> Option<f64> {
        let mut energy_mj = 0_u64;
        // SAFETY: as in `start`.
        let code = unsafe { self.lib.nvmlDeviceGetTotalEnergyConsumption(self.device, &raw mut energy_mj) };
        (code == 0).then_some(energy_mj as f64 / 1e3)
    }

    /// Whether the driver keeps accounts.
    pub(crate) fn is_accounting(&self) -> bool {
        let mut mode = 0;
        // SAFETY: as in `start`.
        let code = unsafe { self.lib.nvmlDeviceGetAccountingMode(self.device, &raw mut mode) };
        code == 0 && mode == 1
    }

    /// The device's present rate, percent.
    pub(crate) fn rate(&self) -> Option<u32> {
        let mut rates: nvmlUtilization_t = zeroed();
        // SAFETY: as in `start`.
        let code = unsafe { self.lib.nvmlDeviceGetUtilizationRates(self.device, &raw mut rates) };
        (code == 0).then_some(rates.gpu)
    }

    /// By which clock the driver dates its samples: how far the newest ones are from the machine's clocks.
    pub(crate) fn sample_clocks(&self) -> [String; 2] {
        let (mut count, mut kind) = (ENTRIES as c_uint, 0);
        let mut samples =
            vec![nvmlSample_t { timeStamp: 0, sampleValue: nvmlValue_t { ullVal: 0 } }; ENTRIES];
        // SAFETY: as in `start`.
        let code = unsafe {
            let place = samples.as_mut_ptr();
            self.lib.nvmlDeviceGetSamples(
                self.device,
                UTILIZATION_SAMPLES,
                0,
                &raw mut kind,
                &raw mut count,
                place,
            )
        };
        let times: Vec<u64> = samples.iter().take(count as usize).map(|sample| sample.timeStamp).collect();
        let of_device = clock_line("the device", code, &times);
        let mut of_processes: Vec<nvmlProcessUtilizationSample_t> = vec![zeroed(); ENTRIES];
        count = ENTRIES as c_uint;
        // SAFETY: as in `start`.
        let code = unsafe {
            let place = of_processes.as_mut_ptr();
            self.lib.nvmlDeviceGetProcessUtilization(self.device, place, &raw mut count, 0)
        };
        let times: Vec<u64> =
            of_processes.iter().take(count as usize).map(|sample| sample.timeStamp).collect();
        [of_device, clock_line("processes", code, &times)]
    }
}

/// Compares the newest sample with the time of day and with the time since boot.
fn clock_line(whose: &str, code: c_uint, times_us: &[u64]) -> String {
    let newest_s = times_us.iter().max().map_or(0.0, |us| *us as f64 / 1e6);
    if code != 0 || newest_s == 0.0 {
        return format!("samples of {whose}: none (NVML returned {code}, {} entries)", times_us.len());
    }
    let (day, boot) = (clock_s(libc::CLOCK_REALTIME), clock_s(libc::CLOCK_BOOTTIME));
    let first_s = times_us.iter().min().map_or(0.0, |us| *us as f64 / 1e6);
    format!(
        "samples of {whose}: {} over {:.3} s; the newest is {:+.3} s from the time of day, {:+.3} s from the time since boot",
        times_us.len(),
        newest_s - first_s,
        newest_s - day,
        newest_s - boot
    )
}

/// A clock of the machine, seconds.
fn clock_s(clock: libc::clockid_t) -> f64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: one live timespec.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_sample_is_compared_with_both_clocks() {
        let at = |ago_s: f64| ((clock_s(libc::CLOCK_REALTIME) - ago_s) * 1e6) as u64;
        let line = clock_line("x", 0, &[at(9.0), at(2.0)]);
        assert!(line.starts_with("samples of x: 2 over 7.000 s; the newest is -2.0"), "{line}");
        assert_eq!(clock_line("x", 6, &[]), "samples of x: none (NVML returned 6, 0 entries)");
    }
}
