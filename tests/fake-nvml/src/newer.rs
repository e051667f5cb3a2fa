//! Calls of newer drivers: the versioned temperature (R565), and GPM samples (Hopper), which give MIG instances a utilization.

use std::ffi::{c_char, c_double, c_uint};

use crate::abi::{Device, INVALID_ARGUMENT, NOT_FOUND, Return, SUCCESS, name, put};
use crate::script::{self, NOT_SUPPORTED, number};

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
    // SAFETY: nvml.h's contract, passed on.
    unsafe { put(place, part.ok_or(NOT_FOUND)) }
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

/// A sample: the instance, and the cycles that it was busy and that passed.
#[derive(Default)]
pub struct GpmSample {
    instance: String,
    busy: u64,
    passed: u64,
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

/// `0m1.gpm_busy` is the utilization of instance 1 of device 0, percent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlGpmMigSampleGet(device: Device, part: c_uint, sample: *mut GpmSample) -> Return {
    let _call = script::called("nvmlGpmMigSampleGet");
    let instance = format!("{}m{part}", name(device));
    let percent = match number(&instance, "gpm_busy") {
        Ok(percent) => percent,
        Err(code) => return code,
    };
    let count = script::count(format!("gpm {instance}"));
    // SAFETY: by nvml.h's contract it came from nvmlGpmSampleAlloc.
    let sample = unsafe { &mut *sample };
    *sample = GpmSample { instance, busy: count * percent, passed: count * 100 };
    SUCCESS
}

#[repr(C)]
pub struct GpmMetric {
    id: c_uint,
    result: Return,
    value: c_double,
    names: [*mut c_char; 3],
}

#[repr(C)]
pub struct GpmMetricsGet {
    version: c_uint,
    count: c_uint,
    first: *mut GpmSample,
    second: *mut GpmSample,
    metrics: [GpmMetric; 98],
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlGpmMetricsGet(place: *mut GpmMetricsGet) -> Return {
    let _call = script::called("nvmlGpmMetricsGet");
    // SAFETY: by nvml.h's contract the caller passes a valid struct, with two samples.
    let asked = unsafe { &mut *place };
    // SAFETY: likewise.
    let (first, second) = unsafe { (&*asked.first, &*asked.second) };
    if asked.version != 1 || first.instance != second.instance || first.passed >= second.passed {
        return INVALID_ARGUMENT;
    }
    let percent =
        (second.busy.saturating_sub(first.busy)) as f64 * 100.0 / (second.passed - first.passed) as f64;
    for metric in asked.metrics.iter_mut().take(asked.count as usize) {
        // NVML_GPM_METRIC_GRAPHICS_UTIL.
        (metric.result, metric.value) =
            if metric.id == 1 { (SUCCESS, percent) } else { (NOT_SUPPORTED, 0.0) };
    }
    SUCCESS
}
