//! Calls of newer drivers: the versioned temperature (R565), and GPM samples (Hopper), which show what SMs and memory do, and give MIG
//! instances a utilization.

use std::ffi::{c_char, c_double, c_uint};

use crate::abi::{Device, INVALID_ARGUMENT, NOT_FOUND, Return, SUCCESS, name, put};
use crate::script::{self, NOT_SUPPORTED, number, text};

#[cfg(not(any(feature = "old", feature = "second")))]
#[repr(C)]
pub struct Temperature {
    version: c_uint,
    sensor: c_uint,
    temperature: std::ffi::c_int,
}

#[cfg(not(any(feature = "old", feature = "second")))]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetTemperatureV(device: Device, place: *mut Temperature) -> Return {
    let _call = script::called("nvmlDeviceGetTemperatureV");
    // SAFETY: by nvml.h's contract the caller passes a valid struct.
    let asked = unsafe { &mut *place };
    if asked.version != size_of::<Temperature>() as c_uint | 1 << 24 || asked.sensor != 0 {
        return INVALID_ARGUMENT;
    }
    match number(&name(device), "temperature_v") {
        Ok(value) => {
            script::sampled(&name(device), script::Part::Gauges);
            asked.temperature = std::ffi::c_int::try_from(value).unwrap_or(0);
            SUCCESS
        }
        Err(code) => code,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetGpuInstanceId(device: Device, place: *mut c_uint) -> Return {
    let _call = script::called("nvmlDeviceGetGpuInstanceId");
    let part = (device as usize >> 8).checked_sub(1).and_then(|part| c_uint::try_from(part).ok());
    // A driver that does not know it can say so by all bits.
    let id = part.map(|part| number(&name(device), "instance").map_or(part, |id| id as c_uint));
    // SAFETY: nvml.h's contract, passed on.
    unsafe { put(place, id.ok_or(NOT_FOUND)) }
}

#[repr(C)]
pub struct GpmSupport {
    version: c_uint,
    is_supported: c_uint,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlGpmQueryDeviceSupport(device: Device, place: *mut GpmSupport) -> Return {
    let _call = script::called("nvmlGpmQueryDeviceSupport");
    // SAFETY: by nvml.h's contract the caller passes a valid struct.
    let asked = unsafe { &mut *place };
    if asked.version != 1 {
        return INVALID_ARGUMENT;
    }
    match number(&name(device), "gpm") {
        Ok(is_supported) => {
            asked.is_supported = c_uint::from(is_supported != 0);
            SUCCESS
        }
        Err(code) => code,
    }
}

/// A sample: the device or instance, when it was taken, and the microseconds that passed by then.
#[derive(Default)]
pub struct GpmSample {
    of: String,
    at_us: u64,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlGpmSampleAlloc(place: *mut *mut GpmSample) -> Return {
    let _call = script::called("nvmlGpmSampleAlloc");
    // SAFETY: nvml.h's contract, passed on.
    unsafe { put(place, Ok(Box::into_raw(Box::default()))) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlGpmSampleFree(sample: *mut GpmSample) -> Return {
    let _call = script::called("nvmlGpmSampleFree");
    // SAFETY: by nvml.h's contract it came from nvmlGpmSampleAlloc.
    drop(unsafe { Box::from_raw(sample) });
    SUCCESS
}

/// Takes a sample of a device or instance. `0.gpm_sample !4` refuses it.
unsafe fn take(of: String, sample: *mut GpmSample) -> Return {
    if let Err(code) = text(&of, "gpm_sample")
        && code != NOT_SUPPORTED
    {
        return code;
    }
    // SAFETY: by nvml.h's contract it came from nvmlGpmSampleAlloc.
    unsafe { *sample = GpmSample { of, at_us: script::now_us() } };
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlGpmSampleGet(device: Device, sample: *mut GpmSample) -> Return {
    let _call = script::called("nvmlGpmSampleGet");
    if number(&name(device), "mig") == Ok(1) {
        return NOT_SUPPORTED;
    }
    // SAFETY: nvml.h's contract, passed on.
    unsafe { take(name(device), sample) }
}

/// `0m1.gpm_busy` is the utilization of instance 1 of device 0, percent. If it is refused, so is the sample.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlGpmMigSampleGet(device: Device, part: c_uint, sample: *mut GpmSample) -> Return {
    let _call = script::called("nvmlGpmMigSampleGet");
    let instance = format!("{}m{part}", name(device));
    if let Err(code) = number(&instance, "gpm_busy") {
        return code;
    }
    // SAFETY: nvml.h's contract, passed on.
    unsafe { take(instance, sample) }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct GpmMetric {
    id: c_uint,
    result: Return,
    value: c_double,
    names: [*mut c_char; 3],
}

/// The head of the struct; as many metrics follow as the header of the driver has.
#[repr(C)]
pub struct GpmMetricsGet {
    version: c_uint,
    count: c_uint,
    first: *mut GpmSample,
    second: *mut GpmSample,
    metrics: [GpmMetric; 0],
}

/// The shortest time between two samples from which the driver computes metrics, microseconds.
const LEAST_US: u64 = 100_000;

/// A metric of a device by the script: `0.gpm_2 45` is metric 2, `nan` is no number, and with
/// `wrapped` a counter has wrapped, so that the metric is negative.
fn metric(of: &str, id: c_uint) -> Result<f64, Return> {
    let key = if id == 1 { "gpm_busy".to_owned() } else { format!("gpm_{id}") };
    match text(of, &key)?.as_str() {
        "nan" => Ok(f64::NAN),
        "wrapped" => Ok(-1.8e19),
        value => value.parse().map_err(|_| 999),
    }
}

/// Some drivers clear or copy the whole struct of their own header: `gpm_layout` is its number of metrics, at most 477.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlGpmMetricsGet(place: *mut GpmMetricsGet) -> Return {
    let _call = script::called("nvmlGpmMetricsGet");
    // SAFETY: by nvml.h's contract the caller passes a valid struct, with two samples.
    let (asked, first, second) = unsafe { (&*place, &*(*place).first, &*(*place).second) };
    if asked.version != 1 || first.of != second.of || first.at_us >= second.at_us {
        return INVALID_ARGUMENT;
    }
    if second.at_us - first.at_us < LEAST_US {
        // The counters have not moved.
        return INVALID_ARGUMENT;
    }
    let count = asked.count as usize;
    let layout = number(&first.of, "gpm_layout").map_or(98, |layout| usize::try_from(layout).unwrap_or(98));
    // SAFETY: by nvml.h's contract `metrics` has as many entries as the header that the caller has, whatever that is.
    let metrics = unsafe { (&raw mut (*place).metrics).cast::<GpmMetric>() };
    for number in 0..layout {
        // SAFETY: likewise.
        let mut entry = unsafe { metrics.add(number).read() };
        if number < count {
            match metric(&first.of, entry.id) {
                Ok(value) => (entry.result, entry.value) = (SUCCESS, value),
                Err(code) => (entry.result, entry.value) = (code, 0.0),
            }
        }
        // SAFETY: likewise.
        unsafe { metrics.add(number).write(entry) };
    }
    SUCCESS
}
