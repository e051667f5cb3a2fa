//! What a device is, as far as only a query or a log asks for it: a row each, by nvidia-smi's name of the field.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_uint};

use nvml_wrapper_sys::bindings::nvmlDevice_t;

use super::api::{Api, call, get};
use super::figures::{gauge, number_of};
use crate::model::gpu::Reading;

/// nvml.h, `nvmlComputeMode_t`, in nvidia-smi's words.
const COMPUTE_MODES: [&str; 4] = ["Default", "Exclusive_Thread", "Prohibited", "Exclusive_Process"];

/// Asks for the facts of a device. What the driver does not tell is missing.
pub(super) fn facts(api: &Api, device: nvmlDevice_t) -> BTreeMap<String, String> {
    let whole = |value: Reading<f64>| value.ok().map(|value| format!("{value:.0}"));
    let watts = |mw: Reading<f64>| mw.ok().map(|mw| format!("{:.2}", mw / 1e3));
    let clock = |kind| whole(gauge(|v| call!(api, nvmlDeviceGetMaxClockInfo(device, kind, v))));
    let switch = |state: Reading<c_uint>| match state {
        Ok(0) => Some("Disabled".to_owned()),
        Ok(1) => Some("Enabled".to_owned()),
        _ => None,
    };
    let mut minor: c_int = 0;
    let capability = get(|major| call!(api, nvmlDeviceGetCudaComputeCapability(device, major, &mut minor)));
    let (mut most_mw, mut pending) = (c_uint::MAX, 0);
    let least_mw =
        gauge(|v| call!(api, nvmlDeviceGetPowerManagementLimitConstraints(device, v, &mut most_mw)));
    let most_mw = least_mw.clone().and_then(|_| number_of(most_mw));
    let mode = get(|v| call!(api, nvmlDeviceGetComputeMode(device, v)));
    let rows = [
        (
            "compute_cap",
            capability.ok().filter(|major| *major > 0).map(|major: c_int| format!("{major}.{minor}")),
        ),
        ("serial", Api::text(|text, length| call!(api, nvmlDeviceGetSerial(device, text, length)))),
        (
            "vbios_version",
            Api::text(|text, length| call!(api, nvmlDeviceGetVbiosVersion(device, text, length))),
        ),
        ("pcie.link.gen.max", whole(gauge(|v| call!(api, nvmlDeviceGetMaxPcieLinkGeneration(device, v))))),
        ("pcie.link.width.max", whole(gauge(|v| call!(api, nvmlDeviceGetMaxPcieLinkWidth(device, v))))),
        ("clocks.max.graphics", clock(0)),
        ("clocks.max.sm", clock(1)),
        ("clocks.max.memory", clock(2)),
        (
            "power.default_limit",
            watts(gauge(|v| call!(api, nvmlDeviceGetPowerManagementDefaultLimit(device, v)))),
        ),
        ("power.min_limit", watts(least_mw)),
        ("power.max_limit", watts(most_mw)),
        ("ecc.mode.current", switch(get(|v| call!(api, nvmlDeviceGetEccMode(device, v, &mut pending))))),
        ("persistence_mode", switch(get(|v| call!(api, nvmlDeviceGetPersistenceMode(device, v))))),
        (
            "compute_mode",
            mode.ok()
                .and_then(|mode: c_uint| COMPUTE_MODES.get(mode as usize))
                .map(|word| (*word).to_owned()),
        ),
    ];
    rows.into_iter().filter_map(|(name, text)| Some((name.to_owned(), text?))).collect()
}
