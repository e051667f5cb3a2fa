//! Measures what NVML's calls cost, for docs/GPU.md.

use std::ffi::{c_char, c_uint};
use std::time::{Duration, Instant};

use nvml_wrapper_sys::bindings::{
    nvmlEventData_t, nvmlFieldValue_t, nvmlMemory_t, nvmlMemory_v2_t, nvmlPciInfo_t, nvmlProcessInfo_t,
    nvmlProcessUtilizationSample_t, nvmlSample_t, nvmlTemperature_t, nvmlUtilization_t,
};

use crate::nvml::{ENTRIES, Nvml, TEXT_BYTES, UTILIZATION_SAMPLES};

/// A call is repeated this often, if its time allows.
const REPEATS: usize = 300;
/// nvml.h: `NVML_FI_DEV_PCIE_COUNT_TX_BYTES`, `..._RX_BYTES`, `NVML_FI_DEV_POWER_INSTANT`, `nvmlEventTypeXidCriticalError`.
const PCIE_FIELDS: [c_uint; 2] = [197, 198];
const POWER_INSTANT: c_uint = 186;
const XID_ERRORS: u64 = 8;

/// What a call costs, and what it returned last.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Cost {
    /// The call's name.
    pub name: &'static str,
    /// The call's return value; `None`: the library lacks the call.
    pub code: Option<c_uint>,
    /// Median and 99th percentile, microseconds.
    pub median_us: f64,
    pub p99_us: f64,
}

/// Times a call, for this time at most.
fn measure(name: &'static str, has_call: bool, at_most: Duration, mut call: impl FnMut() -> c_uint) -> Cost {
    let mut cost = Cost { name, code: None, median_us: 0.0, p99_us: 0.0 };
    let (start, mut times_us) = (Instant::now(), Vec::with_capacity(REPEATS));
    while has_call && times_us.len() < REPEATS && (times_us.is_empty() || start.elapsed() < at_most) {
        let before = Instant::now();
        cost.code = Some(call());
        times_us.push(before.elapsed().as_secs_f64() * 1e6);
    }
    times_us.sort_by(f64::total_cmp);
    let rank = |share: f64| times_us.get((times_us.len() as f64 * share) as usize).copied().unwrap_or(0.0);
    (cost.median_us, cost.p99_us) = (rank(0.5), rank(0.99));
    cost
}

/// Room for what the calls write.
struct Buffers {
    word: c_uint,
    wide: u64,
    count: c_uint,
    text: [c_char; TEXT_BYTES],
    memory: nvmlMemory_t,
    memory2: nvmlMemory_v2_t,
    rates: nvmlUtilization_t,
    pci: nvmlPciInfo_t,
    event: nvmlEventData_t,
    fields: [nvmlFieldValue_t; 2],
    samples: [nvmlSample_t; ENTRIES],
    // Twice the room: drivers 535.43 to 535.86 write entries of 32 bytes.
    processes: [nvmlProcessInfo_t; 2 * ENTRIES],
    process_samples: [nvmlProcessUtilizationSample_t; ENTRIES],
}

/// What each call costs on the first device now.
pub(crate) fn costs(nvml: &Nvml, at_most: Duration) -> Vec<Cost> {
    let (lib, device) = (&nvml.lib, nvml.device);
    // SAFETY: structures of integers, for which all zeros is a value.
    let mut room: Box<Buffers> = Box::new(unsafe { std::mem::zeroed() });
    let room = room.as_mut();
    room.memory2.version = size_of::<nvmlMemory_v2_t>() as c_uint | 2 << 24;
    let mut costs = Vec::new();
    macro_rules! cost {
        ($name:literal, $function:ident($($argument:expr),*)) => {
            cost!($name, $function($($argument),*), {})
        };
        ($name:literal, $function:ident($($argument:expr),*), $before:block) => {
            costs.push(measure($name, lib.$function.is_ok(), at_most, || {
                $before;
                // SAFETY: nvml.h's contract: pointers are to live objects, and buffers have the length that is passed.
                unsafe { lib.$function($($argument),*) }
            }))
        };
    }
    cost!("DeviceGetCount_v2", nvmlDeviceGetCount_v2(&raw mut room.word));
    let mut handle = device;
    cost!("DeviceGetHandleByIndex_v2", nvmlDeviceGetHandleByIndex_v2(0, &raw mut handle));
    let text = room.text.as_mut_ptr();
    cost!("DeviceGetUUID", nvmlDeviceGetUUID(device, text, TEXT_BYTES as c_uint));
    cost!("DeviceGetPciInfo_v3", nvmlDeviceGetPciInfo_v3(device, &raw mut room.pci));
    cost!("DeviceGetMigMode", nvmlDeviceGetMigMode(device, &raw mut room.word, &raw mut room.count));
    let lists = room.processes.as_mut_ptr();
    let capacity = ENTRIES as c_uint;
    cost!(
        "ComputeRunningProcesses_v3",
        nvmlDeviceGetComputeRunningProcesses_v3(device, &raw mut room.count, lists),
        {
            room.count = capacity;
        }
    );
    cost!(
        "GraphicsRunningProcesses_v3",
        nvmlDeviceGetGraphicsRunningProcesses_v3(device, &raw mut room.count, lists),
        {
            room.count = capacity;
        }
    );
    cost!(
        "MPSComputeRunningProcesses_v3",
        nvmlDeviceGetMPSComputeRunningProcesses_v3(device, &raw mut room.count, lists),
        {
            room.count = capacity;
        }
    );
    let processes = room.process_samples.as_mut_ptr();
    cost!(
        "ProcessUtilization",
        nvmlDeviceGetProcessUtilization(device, processes, &raw mut room.count, 0),
        {
            room.count = capacity;
        }
    );
    let (samples, kind, count) = (room.samples.as_mut_ptr(), &raw mut room.word, &raw mut room.count);
    cost!(
        "Samples (utilization)",
        nvmlDeviceGetSamples(device, UTILIZATION_SAMPLES, 0, kind, count, samples),
        {
            room.count = capacity;
        }
    );
    cost!("MemoryInfo_v2", nvmlDeviceGetMemoryInfo_v2(device, &raw mut room.memory2));
    cost!("MemoryInfo", nvmlDeviceGetMemoryInfo(device, &raw mut room.memory));
    cost!("UtilizationRates", nvmlDeviceGetUtilizationRates(device, &raw mut room.rates));
    let period = &raw mut room.count;
    cost!("EncoderUtilization", nvmlDeviceGetEncoderUtilization(device, &raw mut room.word, period));
    cost!("DecoderUtilization", nvmlDeviceGetDecoderUtilization(device, &raw mut room.word, period));
    cost!("PowerUsage", nvmlDeviceGetPowerUsage(device, &raw mut room.word));
    cost!("TotalEnergyConsumption", nvmlDeviceGetTotalEnergyConsumption(device, &raw mut room.wide));
    cost!("Temperature", nvmlDeviceGetTemperature(device, 0, &raw mut room.word));
    let version = size_of::<nvmlTemperature_t>() as c_uint | 1 << 24;
    let mut temperature = nvmlTemperature_t { version, sensorType: 0, temperature: 0 };
    cost!("TemperatureV", nvmlDeviceGetTemperatureV(device, &raw mut temperature));
    cost!("ClockInfo (SM)", nvmlDeviceGetClockInfo(device, 1, &raw mut room.word));
    cost!("ClockInfo (memory)", nvmlDeviceGetClockInfo(device, 2, &raw mut room.word));
    cost!("PerformanceState", nvmlDeviceGetPerformanceState(device, &raw mut room.word));
    cost!("CurrentClocksEventReasons", nvmlDeviceGetCurrentClocksEventReasons(device, &raw mut room.wide));
    cost!(
        "CurrentClocksThrottleReasons",
        nvmlDeviceGetCurrentClocksThrottleReasons(device, &raw mut room.wide)
    );
    cost!("TotalEccErrors", nvmlDeviceGetTotalEccErrors(device, 0, 0, &raw mut room.wide));
    let fields = room.fields.as_mut_ptr();
    cost!("FieldValues (PCIe bytes)", nvmlDeviceGetFieldValues(device, 2, fields), {
        for (field, id) in room.fields.iter_mut().zip(PCIE_FIELDS) {
            field.fieldId = id;
        }
    });
    cost!("FieldValues (power at the moment)", nvmlDeviceGetFieldValues(device, 1, fields), {
        room.fields[0].fieldId = POWER_INSTANT;
    });
    cost!("AccountingMode", nvmlDeviceGetAccountingMode(device, &raw mut room.word));
    if let Some(set) = event_set(nvml) {
        cost!(
            "EventSetWait_v2 (XID errors; waits for 1 ms)",
            nvmlEventSetWait_v2(set, &raw mut room.event, 1)
        );
    }
    costs
}

/// A set that waits for XID errors of the device.
fn event_set(nvml: &Nvml) -> Option<nvml_wrapper_sys::bindings::nvmlEventSet_t> {
    let (lib, mut set) = (&nvml.lib, std::ptr::null_mut());
    if lib.nvmlEventSetCreate.is_err() || lib.nvmlEventSetWait_v2.is_err() {
        return None;
    }
    // SAFETY: nvml.h's contract, as above.
    let is_made = unsafe { lib.nvmlEventSetCreate(&raw mut set) } == 0;
    // SAFETY: the set was made.
    (is_made && unsafe { lib.nvmlDeviceRegisterEvents(nvml.device, XID_ERRORS, set) } == 0).then_some(set)
}

/// The costs of the same calls on a device at rest, and later, as a table in Markdown.
pub(crate) fn table(at_rest: &[Cost], later: &[Cost], when: &str) -> Vec<String> {
    let times = |cost: &Cost| match cost.code {
        Some(_) => format!("{:.1} | {:.1}", cost.median_us, cost.p99_us),
        None => "- | -".into(),
    };
    let code = |cost: &Cost| cost.code.map_or("no such call".into(), |code| code.to_string());
    let mut lines = vec![
        format!("| NVML call | median [us] | p99 [us] | {when}: median [us] | p99 [us] | return values |"),
        "|---|---|---|---|---|---|".into(),
    ];
    for (first, second) in at_rest.iter().zip(later) {
        let codes = match (code(first), code(second)) {
            (one, other) if one == other => one,
            (one, other) => format!("{one}, {other}"),
        };
        lines.push(format!("| {} | {} | {} | {codes} |", first.name, times(first), times(second)));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_is_repeated_and_timed() {
        let mut calls = 0;
        let cost = measure("X", true, Duration::from_secs(60), || {
            calls += 1;
            6
        });
        assert_eq!((calls, cost.code), (REPEATS, Some(6)));
        assert!(cost.median_us <= cost.p99_us);
        let mut slow = 0;
        measure("X", true, Duration::ZERO, || {
            slow += 1;
            0
        });
        assert_eq!(slow, 1);
    }

    #[test]
    fn table_shows_both_return_values_if_they_differ() {
        let cost = |name, code, median_us| Cost { name, code, median_us, p99_us: median_us + 1.0 };
        let none = cost("B", None, 0.0);
        let lines = table(&[cost("A", Some(6), 1.0), none.clone()], &[cost("A", Some(0), 3.0), none], "busy");
        assert!(lines[0].contains("| busy: median [us] |"));
        assert_eq!(
            lines[2..],
            ["| A | 1.0 | 2.0 | 3.0 | 4.0 | 6, 0 |", "| B | - | - | - | - | no such call |"]
        );
    }
}
