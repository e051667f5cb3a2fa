//! What a device is, as far as only a query or a log asks for it: a row each, by nvidia-smi's name of the field.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_uint};

use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlPciInfo_t};

use super::api::{Api, Plain, call, get};
use super::figures::{gauge, number_of};
use crate::model::gpu::Reading;

/// nvml.h, `nvmlComputeMode_t`, in nvidia-smi's words.
const COMPUTE_MODES: [&str; 4] = ["Default", "Exclusive_Thread", "Prohibited", "Exclusive_Process"];

/// Asks for the facts of a device. What the driver does not tell is missing.
pub(super) fn facts(api: &Api, device: nvmlDevice_t) -> BTreeMap<String, String> {
    let whole = |value: Reading<f64>| value.ok().map(|value| format!("{value:.0}"));
    let watts = |mw: Reading<f64>| mw.ok().map(|mw| format!("{:.2}", mw / 1e3));
    let clock = |kind| whole(gauge(|v| call!(api, nvmlDeviceGetMaxClockInfo(device, kind, v))));
    let word = |state: Reading<c_uint>, words: [&str; 2]| {
        state.ok().and_then(|state| words.get(state as usize).map(|word| (*word).to_owned()))
    };
    let switch = |state| word(state, ["Disabled", "Enabled"]);
    let mut minor: c_int = 0;
    let capability = get(|major| call!(api, nvmlDeviceGetCudaComputeCapability(device, major, &mut minor)));
    let (mut most_mw, mut pending_ecc, mut current) = (c_uint::MAX, c_uint::MAX, 0);
    let least_mw =
        gauge(|v| call!(api, nvmlDeviceGetPowerManagementLimitConstraints(device, v, &mut most_mw)));
    let most_mw = least_mw.clone().and_then(|_| number_of(most_mw));
    let mode = get(|v| call!(api, nvmlDeviceGetComputeMode(device, v)));
    let ecc = get(|v| call!(api, nvmlDeviceGetEccMode(device, v, &mut pending_ecc)));
    let pending_ecc = ecc.clone().map(|_| pending_ecc);
    let display = get(|v| call!(api, nvmlDeviceGetDisplayMode(device, v)));
    let mut pci = nvmlPciInfo_t::zeroed();
    let has_pci = call!(api, nvmlDeviceGetPciInfo_v3 or nvmlDeviceGetPciInfo_v2(device, &mut pci)).is_ok();
    let pci_id = |id: c_uint| (has_pci && id != 0).then(|| format!("0x{id:08X}"));
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
        ("ecc.mode.current", switch(ecc)),
        ("persistence_mode", switch(get(|v| call!(api, nvmlDeviceGetPersistenceMode(device, v))))),
        (
            "compute_mode",
            mode.ok()
                .and_then(|mode: c_uint| COMPUTE_MODES.get(mode as usize))
                .map(|word| (*word).to_owned()),
        ),
        ("pci.device_id", pci_id(pci.pciDeviceId)),
        ("pci.sub_device_id", pci_id(pci.pciSubSystemId)),
        ("display_active", switch(get(|v| call!(api, nvmlDeviceGetDisplayActive(device, v))))),
        ("display_mode", switch(display.clone())),
        ("display_attached", word(display, ["No", "Yes"])),
        ("accounting.mode", switch(get(|v| call!(api, nvmlDeviceGetAccountingMode(device, v))))),
        ("ecc.mode.pending", switch(pending_ecc)),
        ("mig.mode.pending", switch(get(|v| call!(api, nvmlDeviceGetMigMode(device, &mut current, v))))),
    ];
    rows.into_iter().filter_map(|(name, text)| Some((name.to_owned(), text?))).collect()
}
