//! A libnvidia-ml.so.1 by its ABI, whose answers come from a script (see [`script`]). It has the quirks of real drivers:
//! for example, a null buffer ends the process.
#![allow(non_snake_case, reason = "NVML's names")]
#![allow(missing_docs, reason = "nvml.h documents them")]
#![allow(clippy::missing_safety_doc, reason = "likewise")]

mod abi;
mod events;
mod newer;
mod processes;
mod script;

use std::ffi::{c_char, c_int, c_longlong, c_uint, c_ulonglong};

use abi::{Device, INSUFFICIENT_SIZE, INVALID_ARGUMENT, NOT_FOUND, Return, SUCCESS, name, put, put_list};
use script::{NOT_SUPPORTED, Part, global, number, text};

fn unsigned(device: Device, key: &str) -> Result<c_uint, Return> {
    number(&name(device), key).map(|value| c_uint::try_from(value).unwrap_or(c_uint::MAX))
}

unsafe fn put_text(place: *mut c_char, room: c_uint, value: Result<String, Return>) -> Return {
    let Ok(text) = value.as_deref() else { return value.err().unwrap_or(NOT_SUPPORTED) };
    if text.len() + 1 > room as usize {
        return INSUFFICIENT_SIZE;
    }
    // SAFETY: the caller's buffer has this length, which was checked.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), place, text.len());
        place.add(text.len()).write(0);
    }
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> Return {
    let _call = script::called("nvmlInit_v2");
    let _ = *script::START_US;
    script::note_time();
    script::stall("init");
    if let Some(program) = global("init_runs") {
        // The real library runs nvidia-modprobe here.
        let _ = std::process::Command::new("sh").args(["-c", &program]).status();
    }
    if let Some(mask) = global("init_umask").and_then(|mask| libc::mode_t::from_str_radix(&mask, 8).ok()) {
        // SAFETY: umask has no preconditions.
        unsafe { libc::umask(mask) };
    }
    if let Some(text) = global("init_prints") {
        let _ = std::io::Write::write_all(&mut std::io::stdout(), format!("{text}\n").as_bytes());
    }
    if global("init_crashes").is_some() {
        std::process::abort();
    }
    if let Some(status) = global("init_exits").and_then(|status| status.parse().ok()) {
        std::process::exit(status);
    }
    global("init").and_then(|code| code.parse().ok()).unwrap_or(SUCCESS)
}

/// nvml-wrapper calls it; gpu-track-run leaves the driver initialised to its end.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlShutdown() -> Return {
    let _call = script::called("nvmlShutdown");
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetDriverVersion(place: *mut c_char, room: c_uint) -> Return {
    let _call = script::called("nvmlSystemGetDriverVersion");
    // SAFETY: nvml.h's contract, passed on.
    unsafe { put_text(place, room, global("driver").ok_or(NOT_SUPPORTED)) }
}

macro_rules! cuda_version {
    ($function:ident) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $function(place: *mut c_int) -> Return {
            let _call = script::called(stringify!($function));
            let version = global("cuda").and_then(|version| version.parse().ok());
            // SAFETY: nvml.h's contract, passed on.
            unsafe { put(place, version.ok_or(NOT_SUPPORTED)) }
        }
    };
}

#[cfg(feature = "old")]
cuda_version!(nvmlSystemGetCudaDriverVersion);
#[cfg(not(feature = "old"))]
cuda_version!(nvmlSystemGetCudaDriverVersion_v2);

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetCount_v2(place: *mut c_uint) -> Return {
    let _call = script::called("nvmlDeviceGetCount_v2");
    script::append("listings", ".");
    let count = global("count").unwrap_or_default();
    let count = match count.strip_prefix('!') {
        Some(code) => Err(code.parse().unwrap_or(999)),
        None => Ok(count.parse().unwrap_or(0)),
    };
    // SAFETY: nvml.h's contract, passed on.
    unsafe { put(place, count) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, place: *mut Device) -> Return {
    let _call = script::called("nvmlDeviceGetHandleByIndex_v2");
    let count: c_uint = global("count").and_then(|count| count.parse().ok()).unwrap_or(0);
    let asked = text(&index.to_string(), "handle");
    let handle = match asked {
        Err(code) if code != NOT_SUPPORTED => Err(code),
        _ if index >= count => Err(INVALID_ARGUMENT),
        _ => Ok((index as usize + 1) as Device),
    };
    // SAFETY: nvml.h's contract, passed on.
    unsafe { put(place, handle) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetUUID(device: Device, place: *mut c_char, room: c_uint) -> Return {
    let _call = script::called("nvmlDeviceGetUUID");
    let uuid = global(&format!("{}.uuid", name(device))).filter(|uuid| !uuid.starts_with('!'));
    // SAFETY: nvml.h's contract, passed on.
    unsafe { put_text(place, room, uuid.ok_or(NOT_SUPPORTED)) }
}

#[cfg(not(feature = "old"))]
#[repr(C)]
pub struct PciInfo {
    bus_id_legacy: [c_char; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    pci_device_id: c_uint,
    pci_subsystem_id: c_uint,
    bus_id: [c_char; 32],
}

/// The shorter struct of the call's second version.
#[cfg(feature = "old")]
#[repr(C)]
pub struct PciInfo2 {
    bus_id: [c_char; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    pci_device_id: c_uint,
    pci_subsystem_id: c_uint,
    reserved: [c_uint; 4],
}

#[cfg(feature = "old")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetPciInfo_v2(device: Device, place: *mut PciInfo2) -> Return {
    let _call = script::called("nvmlDeviceGetPciInfo_v2");
    let info = |bus| PciInfo2 {
        bus_id: [0; 16],
        domain: 0,
        bus,
        device: 0,
        pci_device_id: 0,
        pci_subsystem_id: 0,
        reserved: [0; 4],
    };
    // SAFETY: nvml.h's contract, passed on.
    unsafe { put(place, unsigned(device, "bus").map(info)) }
}

#[cfg(not(feature = "old"))]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetPciInfo_v3(device: Device, place: *mut PciInfo) -> Return {
    let _call = script::called("nvmlDeviceGetPciInfo_v3");
    let info = |bus| PciInfo {
        bus_id_legacy: [0; 16],
        domain: 0,
        bus,
        device: 0,
        pci_device_id: unsigned(device, "pci_id").unwrap_or(0),
        pci_subsystem_id: unsigned(device, "pci_board_id").unwrap_or(0),
        bus_id: [0; 32],
    };
    // SAFETY: nvml.h's contract, passed on.
    unsafe { put(place, unsigned(device, "bus").map(info)) }
}

#[repr(C)]
pub struct Memory {
    total: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

/// Total and used bytes.
fn memory(device: Device) -> Result<(u64, u64), Return> {
    let name = name(device);
    let (used, held) = (number(&name, "memory_used")?, processes::held_bytes(&name));
    let used = if number(&name, "memory_held") == Ok(1) { used.saturating_add(held) } else { used.max(held) };
    Ok((number(&name, "memory_total")?, used))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMemoryInfo(device: Device, place: *mut Memory) -> Return {
    let _call = script::called("nvmlDeviceGetMemoryInfo");
    // The first version of the call includes the driver's reserved memory.
    let reserved = number(&name(device), "memory_reserved").unwrap_or(0);
    let info = memory(device).map(|(total, used)| {
        let used = used.saturating_add(reserved);
        Memory { total, free: total.saturating_sub(used), used }
    });
    // SAFETY: nvml.h's contract, passed on.
    unsafe { put(place, info) }
}

#[cfg(not(feature = "old"))]
#[repr(C)]
pub struct Memory2 {
    version: c_uint,
    total: c_ulonglong,
    reserved: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

#[cfg(not(feature = "old"))]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(device: Device, place: *mut Memory2) -> Return {
    let _call = script::called("nvmlDeviceGetMemoryInfo_v2");
    if let Err(code) = text(&name(device), "memory_v2")
        && code != NOT_SUPPORTED
    {
        return code;
    }
    // SAFETY: by nvml.h's contract the caller has set the version.
    let version = unsafe { (*place).version };
    if version != size_of::<Memory2>() as c_uint | 2 << 24 {
        return 25;
    }
    let reserved = number(&name(device), "memory_reserved").unwrap_or(0);
    let info = memory(device).map(|(total, used)| {
        let free = total.saturating_sub(used).saturating_sub(reserved);
        Memory2 { version, total, reserved, free, used }
    });
    // SAFETY: nvml.h's contract, passed on.
    unsafe { put(place, info) }
}

#[repr(C)]
pub struct Utilization {
    gpu: c_uint,
    memory: c_uint,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetUtilizationRates(device: Device, place: *mut Utilization) -> Return {
    let _call = script::called("nvmlDeviceGetUtilizationRates");
    let gpu = unsigned(device, "utilization");
    let rates =
        gpu.map(|gpu| Utilization { gpu, memory: unsigned(device, "memory_utilization").unwrap_or(0) });
    // SAFETY: nvml.h's contract, passed on.
    unsafe { put(place, rates) }
}

/// Functions that write the percentage of a video engine, and the period that the driver samples it by, microseconds. An
/// instance of MIG has no answer.
macro_rules! video_engines {
    ($($function:ident = $key:literal;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $function(device: Device, place: *mut c_uint, period_us: *mut c_uint) -> Return {
            let _call = script::called(stringify!($function));
            let is_part = name(device).contains('m');
            let percent = if is_part { Err(NOT_SUPPORTED) } else { unsigned(device, $key) };
            // SAFETY: nvml.h's contract, passed on.
            unsafe {
                put(period_us, Ok(167_000));
                put(place, percent)
            }
        }
    )*};
}

video_engines! {
    nvmlDeviceGetEncoderUtilization = "encoder_utilization";
    nvmlDeviceGetDecoderUtilization = "decoder_utilization";
}

/// Functions that write one figure of a device.
macro_rules! numbers {
    ($($function:ident -> $type:ty = $key:literal;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $function(device: Device, place: *mut $type) -> Return {
            let _call = script::called(stringify!($function));
            if $key == "energy" {
                script::sampled(&name(device), Part::Energy);
            }
            let value = number(&name(device), $key).and_then(|value| value.try_into().map_err(|_| 999));
            // SAFETY: nvml.h's contract, passed on.
            unsafe { put(place, value) }
        }
    )*};
}

numbers! {
    nvmlDeviceGetTotalEnergyConsumption -> c_ulonglong = "energy";
    nvmlDeviceGetPerformanceState -> c_uint = "pstate";
    nvmlDeviceGetFanSpeed -> c_uint = "fan_speed";
    nvmlDeviceGetPowerManagementLimit -> c_uint = "power_limit";
    nvmlDeviceGetEnforcedPowerLimit -> c_uint = "enforced_power_limit";
    nvmlDeviceGetMinorNumber -> c_uint = "minor";
    nvmlDeviceGetMaxMigDeviceCount -> c_uint = "mig_most";
    nvmlDeviceGetMaxPcieLinkGeneration -> c_uint = "pcie_generation";
    nvmlDeviceGetMaxPcieLinkWidth -> c_uint = "pcie_width";
    nvmlDeviceGetCurrPcieLinkGeneration -> c_uint = "pcie_generation_now";
    nvmlDeviceGetCurrPcieLinkWidth -> c_uint = "pcie_width_now";
    nvmlDeviceGetPowerManagementDefaultLimit -> c_uint = "power_limit_default";
    nvmlDeviceGetPersistenceMode -> c_uint = "persistence";
    nvmlDeviceGetComputeMode -> c_uint = "compute_mode";
    nvmlDeviceGetDisplayActive -> c_uint = "display_active";
    nvmlDeviceGetDisplayMode -> c_uint = "display_mode";
}

// The first name of the call and its newer one.
#[cfg(feature = "old")]
numbers! { nvmlDeviceGetCurrentClocksThrottleReasons -> c_ulonglong = "throttle"; }
#[cfg(not(feature = "old"))]
numbers! { nvmlDeviceGetCurrentClocksEventReasons -> c_ulonglong = "throttle"; }

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetPowerUsage(device: Device, place: *mut c_uint) -> Return {
    let _call = script::called("nvmlDeviceGetPowerUsage");
    script::note_time();
    script::stall("power");
    script::sampled(&name(device), Part::Power);
    // SAFETY: nvml.h's contract, passed on.
    unsafe { put(place, unsigned(device, "power")) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetTemperature(
    device: Device,
    sensor: c_uint,
    place: *mut c_uint,
) -> Return {
    let _call = script::called("nvmlDeviceGetTemperature");
    if sensor != 0 {
        return INVALID_ARGUMENT;
    }
    script::sampled(&name(device), Part::Gauges);
    // SAFETY: nvml.h's contract, passed on.
    unsafe { put(place, unsigned(device, "temperature")) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetClockInfo(device: Device, clock: c_uint, place: *mut c_uint) -> Return {
    let _call = script::called("nvmlDeviceGetClockInfo");
    let key = match clock {
        0 => "graphics_clock",
        1 => "sm_clock",
        2 => "memory_clock",
        _ => return INVALID_ARGUMENT,
    };
    // SAFETY: nvml.h's contract, passed on.
    unsafe { put(place, unsigned(device, key)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMaxClockInfo(
    device: Device,
    clock: c_uint,
    place: *mut c_uint,
) -> Return {
    let _call = script::called("nvmlDeviceGetMaxClockInfo");
    let key = ["graphics_clock_max", "sm_clock_max", "memory_clock_max"].get(clock as usize);
    // SAFETY: nvml.h's contract, passed on.
    unsafe { put(place, key.ok_or(INVALID_ARGUMENT).and_then(|key| unsigned(device, key))) }
}

/// Functions that write two figures of a device.
macro_rules! pairs {
    ($($function:ident -> $type:ty = $first:literal, $second:literal;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $function(device: Device, first: *mut $type, second: *mut $type) -> Return {
            let _call = script::called(stringify!($function));
            let value = |key| number(&name(device), key).and_then(|value| value.try_into().map_err(|_| 999));
            // SAFETY: nvml.h's contract, passed on.
            unsafe {
                put(second, value($second));
                put(first, value($first))
            }
        }
    )*};
}

pairs! {
    nvmlDeviceGetCudaComputeCapability -> c_int = "compute_major", "compute_minor";
    nvmlDeviceGetPowerManagementLimitConstraints -> c_uint = "power_limit_least", "power_limit_most";
    nvmlDeviceGetEccMode -> c_uint = "ecc_mode", "ecc_mode_pending";
}

/// Functions that write a text of a device.
macro_rules! texts {
    ($($function:ident = $key:literal;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $function(device: Device, place: *mut c_char, room: c_uint) -> Return {
            let _call = script::called(stringify!($function));
            // SAFETY: nvml.h's contract, passed on.
            unsafe { put_text(place, room, text(&name(device), $key)) }
        }
    )*};
}

texts! {
    nvmlDeviceGetName = "name";
    nvmlDeviceGetSerial = "serial";
    nvmlDeviceGetVbiosVersion = "vbios";
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetTotalEccErrors(
    device: Device,
    kind: c_uint,
    counter: c_uint,
    place: *mut c_ulonglong,
) -> Return {
    let _call = script::called("nvmlDeviceGetTotalEccErrors");
    script::sampled(&name(device), Part::Errors);
    let key = match (kind, counter) {
        (0, 0) => "ecc_corrected",
        (1, 0) => "ecc_uncorrected",
        _ => return INVALID_ARGUMENT,
    };
    // SAFETY: nvml.h's contract, passed on.
    unsafe { put(place, number(&name(device), key)) }
}

#[repr(C)]
pub struct FieldValue {
    field: c_uint,
    scope: c_uint,
    timestamp: c_longlong,
    latency_us: c_longlong,
    kind: c_uint,
    result: Return,
    value: c_ulonglong,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetFieldValues(
    device: Device,
    count: c_int,
    fields: *mut FieldValue,
) -> Return {
    let _call = script::called("nvmlDeviceGetFieldValues");
    for number_of_field in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: by nvml.h's contract the array has `count` elements.
        let field = unsafe { &mut *fields.add(number_of_field) };
        let key = match field.field {
            82 => "memory_temperature",
            186 => "power_instant",
            197 => "pcie_tx",
            198 => "pcie_rx",
            _ => "no such field",
        };
        let bits = number(&name(device), "pcie_bits").unwrap_or(32);
        // NVML_VALUE_TYPE_UNSIGNED_LONG_LONG or NVML_VALUE_TYPE_UNSIGNED_INT.
        field.kind = if bits == 64 { 3 } else { 1 };
        let mask = if bits == 64 { u64::MAX } else { 0xffff_ffff };
        match number(&name(device), key) {
            Ok(value) => (field.result, field.value) = (SUCCESS, value & mask),
            Err(code) => field.result = code,
        }
        if key == "power_instant" && field.result == SUCCESS {
            script::note_time();
            script::sampled(&name(device), Part::Power);
        }
        if key == "pcie_tx" {
            script::sampled(&name(device), Part::Pcie);
        }
    }
    SUCCESS
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Sample {
    time_us: c_ulonglong,
    value: c_ulonglong,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetSamples(
    device: Device,
    kind: c_uint,
    since_us: c_ulonglong,
    value_kind: *mut c_uint,
    count: *mut c_uint,
    place: *mut Sample,
) -> Return {
    let _call = script::called("nvmlDeviceGetSamples");
    if kind != 1 {
        return INVALID_ARGUMENT;
    }
    script::keep_process_times(&name(device));
    let samples = match script::samples(&name(device)) {
        Ok(samples) => samples,
        Err(code) => return code,
    };
    // A driver with stale samples returns all samples, whatever the caller's start time.
    let is_stale = text(&name(device), "stale").is_ok();
    let samples: Vec<Sample> = samples
        .into_iter()
        .map(|(time_us, value)| Sample { time_us, value })
        .filter(|sample| is_stale || sample.time_us > since_us)
        .collect();
    if samples.is_empty() {
        return NOT_FOUND;
    }
    // SAFETY: nvml.h's contract, passed on; the buffer has `count` entries.
    unsafe {
        value_kind.write(1);
        put_list(count, place, &samples)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMigMode(
    device: Device,
    current: *mut c_uint,
    pending: *mut c_uint,
) -> Return {
    let _call = script::called("nvmlDeviceGetMigMode");
    let mode = unsigned(device, "mig");
    // SAFETY: nvml.h's contract, passed on.
    unsafe {
        put(pending, mode);
        put(current, mode)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMigDeviceHandleByIndex(
    device: Device,
    index: c_uint,
    place: *mut Device,
) -> Return {
    let _call = script::called("nvmlDeviceGetMigDeviceHandleByIndex");
    let handle = (device as usize | (index as usize + 1) << 8) as Device;
    let is_there = global(&format!("{}.uuid", name(handle))).is_some();
    // SAFETY: nvml.h's contract, passed on.
    unsafe { put(place, if is_there { Ok(handle) } else { Err(NOT_FOUND) }) }
}
