//! The few calls of NVML that the checks make themselves, on the first device.

use std::ffi::{CStr, c_char, c_uint};
use std::time::{Duration, Instant};

use nvml_wrapper_sys::bindings::{
    NvmlLib, nvmlDevice_t, nvmlFieldValue_t, nvmlMemory_t, nvmlProcessInfo_t, nvmlProcessUtilizationSample_t,
    nvmlSample_t, nvmlUtilization_t, nvmlValue_t,
};

use crate::library;

/// nvml.h, `NVML_GPU_UTILIZATION_SAMPLES`.
pub(crate) const UTILIZATION_SAMPLES: c_uint = 1;
/// nvml.h, `NVML_DEVICE_UUID_V2_BUFFER_SIZE`.
pub(crate) const TEXT_BYTES: usize = 96;
/// nvml.h, `NVML_ERROR_FUNCTION_NOT_FOUND`.
const FUNCTION_NOT_FOUND: c_uint = 13;
/// nvml.h, `NVML_FI_DEV_PCIE_COUNT_RX_BYTES`, `NVML_VALUE_TYPE_UNSIGNED_INT`.
const PCIE_RX_BYTES: c_uint = 198;
const UNSIGNED_INT: c_uint = 1;
/// Entries of a list, more than any machine has. One driver wants room for 4096 utilization samples (ksysguard6 PR 18).
pub(crate) const ENTRIES: usize = 8192;

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
        let start = Instant::now();
        // SAFETY: the driver's library; its initialisers are trusted.
        let lib =
            library::open(&library::nvml(), |path| unsafe { NvmlLib::new(path) }).map_err(Absent::NoGpu)?;
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

    /// The driver's utilization samples of the device: by which clock they are dated, and how far they are apart.
    pub(crate) fn device_samples(&self) -> String {
        let (mut count, mut kind) = (ENTRIES as c_uint, 0);
        let mut samples =
            vec![nvmlSample_t { timeStamp: 0, sampleValue: nvmlValue_t { ullVal: 0 } }; ENTRIES];
        let (place, count_place) = (samples.as_mut_ptr(), &raw mut count);
        // SAFETY: as in `start`.
        let code = unsafe {
            self.lib.nvmlDeviceGetSamples(
                self.device,
                UTILIZATION_SAMPLES,
                0,
                &raw mut kind,
                count_place,
                place,
            )
        };
        let times = samples.iter().take(count as usize).map(|sample| sample.timeStamp).collect();
        clock_line("the device", code, times)
    }

    /// A line about the driver's samples by process: their clock, pids and percentages.
    pub(crate) fn process_samples(&self) -> String {
        let mut count = ENTRIES as c_uint;
        let mut samples: Vec<nvmlProcessUtilizationSample_t> = vec![zeroed(); ENTRIES];
        let (place, count_place) = (samples.as_mut_ptr(), &raw mut count);
        // SAFETY: as in `start`.
        let code = unsafe { self.lib.nvmlDeviceGetProcessUtilization(self.device, place, count_place, 0) };
        let samples = samples.iter().take(count as usize);
        let shown: Vec<String> =
            samples.clone().take(8).map(|sample| format!("pid {} {}%", sample.pid, sample.smUtil)).collect();
        let times = samples.map(|sample| sample.timeStamp).collect();
        format!("{} ({count} entries); {}", clock_line("processes", code, times), shown.join(", "))
    }

    /// What the machine is like, for the reader of the output.
    pub(crate) fn machine(&self) -> String {
        let (lib, device) = (&self.lib, self.device);
        let mode = |has_call: bool, ask: &dyn Fn(*mut c_uint) -> c_uint| {
            let mut mode = 0;
            let code = if has_call { ask(&raw mut mode) } else { FUNCTION_NOT_FOUND };
            if code == 0 { mode.to_string() } else { format!("n/a ({code})") }
        };
        let has_call = lib.nvmlDeviceGetPersistenceMode.is_ok();
        // SAFETY: as in `start`.
        let persistence = mode(has_call, &|place| unsafe { lib.nvmlDeviceGetPersistenceMode(device, place) });
        let has_call = lib.nvmlDeviceGetComputeMode.is_ok();
        // SAFETY: as in `start`.
        let compute = mode(has_call, &|place| unsafe { lib.nvmlDeviceGetComputeMode(device, place) });
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        format!(
            "kernel {}, {}; persistence mode {persistence}, compute mode {compute}; before the checks: {} bytes in use, \
             compute processes {:?}",
            kernel.trim(),
            namespace.display(),
            self.used_bytes().map_or("n/a".into(), |bytes| bytes.to_string()),
            self.compute_processes()
        )
    }

    /// The counter of bytes that the device received over PCIe.
    pub(crate) fn received_bytes(&self) -> Option<u64> {
        let mut field = nvmlFieldValue_t { fieldId: PCIE_RX_BYTES, ..zeroed() };
        if self.lib.nvmlDeviceGetFieldValues.is_err() {
            return None;
        }
        // SAFETY: as in `start`.
        let code = unsafe { self.lib.nvmlDeviceGetFieldValues(self.device, 1, &raw mut field) };
        let is_known = code == 0 && field.nvmlReturn == 0;
        // SAFETY: any bytes are numbers; the driver wrote the one of this type.
        is_known.then(|| unsafe {
            if field.valueType == UNSIGNED_INT { u64::from(field.value.uiVal) } else { field.value.ullVal }
        })
    }

    /// Power now, milliwatts.
    pub(crate) fn power_mw(&self) -> Option<f64> {
        let mut power_mw = 0;
        // SAFETY: as in `start`.
        let code = unsafe { self.lib.nvmlDeviceGetPowerUsage(self.device, &raw mut power_mw) };
        (code == 0).then_some(f64::from(power_mw))
    }
}

/// How often a figure changes.
pub(crate) fn changes(what: &str, time: Duration, read: impl Fn() -> Option<f64>) -> String {
    let (start, mut count, mut last) = (Instant::now(), 0_u32, read());
    while start.elapsed() < time {
        std::thread::sleep(Duration::from_millis(1));
        let now = read();
        count += u32::from(now != last);
        last = now;
    }
    let ms = start.elapsed().as_secs_f64() * 1e3 / f64::from(count);
    format!("{what} changed {count} times in {} ms: every {ms:.1} ms", time.as_millis())
}

/// Compares the newest sample with the time of day and with the time since boot.
fn clock_line(whose: &str, code: c_uint, mut times_us: Vec<u64>) -> String {
    times_us.retain(|us| *us > 0);
    times_us.sort_unstable();
    let [Some(first), Some(newest)] = [times_us.first(), times_us.last()] else {
        return format!("samples of {whose}: none (NVML returned {code})");
    };
    let newest_s = *newest as f64 / 1e6;
    let mut gaps_ms: Vec<f64> = times_us.windows(2).map(|two| (two[1] - two[0]) as f64 / 1e3).collect();
    gaps_ms.sort_by(f64::total_cmp);
    let gap = |index: usize| gaps_ms.get(index).copied().unwrap_or_default();
    format!(
        "samples of {whose}: {} over {:.3} s, {:.1} ms apart (median), at most {:.1} ms; the newest is {:+.3} s from the \
         time of day, {:+.3} s from the time since boot",
        times_us.len(),
        newest_s - *first as f64 / 1e6,
        gap(gaps_ms.len() / 2),
        gap(gaps_ms.len().saturating_sub(1)),
        newest_s - clock_s(libc::CLOCK_REALTIME).unwrap_or_default(),
        newest_s - clock_s(libc::CLOCK_BOOTTIME).unwrap_or_default()
    )
}

/// A clock, seconds.
pub(crate) fn clock_s(clock: libc::clockid_t) -> Option<f64> {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: one live timespec.
    let code = unsafe { libc::clock_gettime(clock, &raw mut now) };
    (code == 0).then_some(now.tv_sec as f64 + now.tv_nsec as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn newest_sample_is_compared_with_both_clocks() {
        let now_s = clock_s(libc::CLOCK_REALTIME).unwrap();
        let at = |ago_s: f64| ((now_s - ago_s) * 1e6) as u64;
        let line = clock_line("x", 0, vec![at(9.0), 0, at(2.0), at(8.0), at(7.0)]);
        assert!(
            line.starts_with(
                "samples of x: 4 over 7.000 s, 1000.0 ms apart (median), at most 5000.0 ms; the newest is -2.0"
            ),
            "{line}"
        );
        assert_eq!(clock_line("x", 6, vec![]), "samples of x: none (NVML returned 6)");
    }

    #[test]
    fn changes_of_a_figure_are_counted() {
        let reads = Cell::new(0);
        let line = changes("x", Duration::from_millis(20), || {
            reads.set(reads.get() + 1);
            Some(f64::from(reads.get() / 2))
        });
        let count = (reads.get() / 2).to_string();
        assert!(line.starts_with(&format!("x changed {count} times in 20 ms: every ")), "{line}");
    }
}
