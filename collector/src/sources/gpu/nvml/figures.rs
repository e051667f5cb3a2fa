//! One device's figures, one call each.

use std::borrow::Cow;
use std::ffi::c_uint;

use nvml_wrapper_sys::bindings::{
    field_id, nvmlDevice_t, nvmlEventData_t, nvmlEventSet_t, nvmlFieldValue_t, nvmlMemory_t, nvmlMemory_v2_t,
    nvmlReturn_t, nvmlUtilization_t, nvmlValue_t,
};

use super::api::{Api, Failure, call, check, code, number};
use super::policy::POLICY;
use super::processes::Lists;
use super::utilization::{Progress, busy, process_busy};
use crate::model::gpu::{DeviceSample, Figure, Missing, Reading};

/// nvml.h, `nvmlEventTypeXidCriticalError`.
pub(super) const XID_EVENT: u64 = 8;
/// nvml.h, `NVML_CLOCK_SM` and `NVML_CLOCK_MEM`.
const CLOCKS: [(Figure, u32); 2] = [(Figure::SmClock, 1), (Figure::MemoryClock, 2)];
/// nvml.h, `NVML_MEMORY_ERROR_TYPE_*`.
const ECC: [(Figure, u32); 2] = [(Figure::EccCorrected, 0), (Figure::EccUncorrected, 1)];
/// nvml.h, `nvmlClocksEventReason*`, by bit.
const REASONS: [(u64, &str); 9] = [
    (0x001, "idle"),
    (0x002, "application clocks"),
    (0x004, "software power cap"),
    (0x008, "hardware slowdown"),
    (0x010, "sync boost"),
    (0x020, "software thermal slowdown"),
    (0x040, "hardware thermal slowdown"),
    (0x080, "hardware power brake"),
    (0x100, "display clocks"),
];

/// A device's memory in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Memory {
    /// Capacity.
    pub total: u64,
    /// In use, without the driver's own reserve where that is reported apart.
    pub used: u64,
}

/// The second version of the call reports the driver's reserve apart; old drivers have only the first.
pub(super) fn memory(api: &Api, device: nvmlDevice_t) -> Reading<Memory> {
    let version = size_of::<nvmlMemory_v2_t>() as c_uint | 2 << 24;
    let mut memory = nvmlMemory_v2_t { version, total: 0, reserved: 0, free: 0, used: 0 };
    if call!(api, nvmlDeviceGetMemoryInfo_v2(device, &mut memory)).is_ok() {
        return Ok(Memory { total: memory.total, used: memory.used });
    }
    let mut memory = nvmlMemory_t { total: 0, free: 0, used: 0 };
    call!(api, nvmlDeviceGetMemoryInfo(device, &mut memory))?;
    Ok(Memory { total: memory.total, used: memory.used })
}

/// The number of its device node; a part of a device has none.
pub(super) fn minor(api: &Api, device: nvmlDevice_t) -> Option<u32> {
    get(|v| call!(api, nvmlDeviceGetMinorNumber(device, v))).ok()
}

/// A device to read.
pub(super) struct Target<'a> {
    pub device: nvmlDevice_t,
    /// Its MIG instances report processes and utilisation, the whole does not.
    pub is_divided: bool,
    pub progress: &'a mut Progress,
}

/// Read all figures into `sample`, and whether the device is lost.
pub(super) fn read(api: &Api, lists: &Lists, target: Target, sample: &mut DeviceSample) {
    let device = target.device;
    let used = memory(api, device);
    if used == Err(Missing::Lost) {
        sample.is_lost = true;
        return;
    }
    let mut put = |figure, value: Reading<f64>| sample.values.push((figure, value));
    put(Figure::MemoryUsed, used.map(|memory| memory.used as f64));
    let rates = rates(api, device);
    put(Figure::MemoryUtilization, rates.clone().map(|rates| f64::from(rates.memory.min(100))));
    put(
        Figure::Power,
        get(|v| call!(api, nvmlDeviceGetPowerUsage(device, v))).map(|mw: c_uint| f64::from(mw) / 1e3),
    );
    put(Figure::Energy, get(|v| call!(api, nvmlDeviceGetTotalEnergyConsumption(device, v))).map(joules));
    put(
        Figure::Temperature,
        get(|v| call!(api, nvmlDeviceGetTemperature(device, 0, v))).map(|c: c_uint| f64::from(c)),
    );
    for (figure, clock) in CLOCKS {
        put(
            figure,
            get(|v| call!(api, nvmlDeviceGetClockInfo(device, clock, v))).map(|mhz: c_uint| f64::from(mhz)),
        );
    }
    put(Figure::Pstate, pstate(api, device));
    for (figure, kind) in ECC {
        let errors = get(|v| call!(api, nvmlDeviceGetTotalEccErrors(device, kind, 0, v)));
        put(figure, errors.map(|errors: u64| errors as f64));
    }
    for (figure, value) in pcie(api, device) {
        put(figure, value);
    }
    sample.throttle = Some(throttle(api, device));
    if target.is_divided {
        sample.busy = Some(Err(Missing::ReportedByInstances));
        sample.processes = Some(Err(Missing::ReportedByInstances));
        sample.process_busy = Some(Err(Missing::ReportedByInstances));
        return;
    }
    sample.busy = Some(busy(api, device, target.progress, rates));
    sample.processes = Some(lists.read(device));
    sample.listed_ns = crate::sys::clock::monotonic_ns();
    sample.process_busy = Some(process_busy(api, device, target.progress));
    sample.is_lost = sample.processes == Some(Err(Missing::Lost));
}

/// A call that writes one number.
fn get<T: Default>(ask: impl FnOnce(*mut T) -> Result<(), Failure>) -> Reading<T> {
    let mut value = T::default();
    ask(&mut value)?;
    Ok(value)
}

fn joules(mj: u64) -> f64 {
    mj as f64 / 1e3
}

fn rates(api: &Api, device: nvmlDevice_t) -> Reading<nvmlUtilization_t> {
    let mut rates = nvmlUtilization_t { gpu: 0, memory: 0 };
    call!(api, nvmlDeviceGetUtilizationRates(device, &mut rates))?;
    Ok(rates)
}

/// P0 to P15; 32 is "unknown".
fn pstate(api: &Api, device: nvmlDevice_t) -> Reading<f64> {
    match get::<c_uint>(|v| call!(api, nvmlDeviceGetPerformanceState(device, v)))? {
        state @ 0..=15 => Ok(f64::from(state)),
        _ => Err(Missing::NotReported),
    }
}

/// By the call's new name, or its old one.
fn throttle(api: &Api, device: nvmlDevice_t) -> Reading<Vec<Cow<'static, str>>> {
    let mut bits = get(|v| call!(api, nvmlDeviceGetCurrentClocksEventReasons(device, v)));
    if bits == Err(Missing::NoCall) {
        bits = get(|v| call!(api, nvmlDeviceGetCurrentClocksThrottleReasons(device, v)));
    }
    let bits: u64 = bits?;
    Ok(REASONS.into_iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| name.into()).collect())
}

/// The counters: the call for a rate takes 20 ms to measure one.
fn pcie(api: &Api, device: nvmlDevice_t) -> [(Figure, Reading<f64>); 2] {
    let field = |id| nvmlFieldValue_t {
        fieldId: id,
        scopeId: 0,
        timestamp: 0,
        latencyUsec: 0,
        valueType: 0,
        nvmlReturn: code::NOT_SUPPORTED,
        value: nvmlValue_t { ullVal: 0 },
    };
    let ids = [field_id::NVML_FI_DEV_PCIE_COUNT_TX_BYTES, field_id::NVML_FI_DEV_PCIE_COUNT_RX_BYTES];
    let mut fields = ids.map(field);
    let asked = call!(api, nvmlDeviceGetFieldValues(device, 2, fields.as_mut_ptr())).map_err(Missing::from);
    let [tx, rx] = fields.map(|field| {
        asked.clone()?;
        match check(field.nvmlReturn) {
            // The driver is older than the field.
            Err(Failure { code: Some(code::INVALID_ARGUMENT) }) => return Err(Missing::NoCall),
            result => result?,
        }
        number(field.valueType, field.value).ok_or(Missing::NotReported)
    });
    [(Figure::PcieTx, tx), (Figure::PcieRx, rx)]
}

/// The next critical error that NVML has not handed over yet.
pub(super) fn next_event(api: &Api, set: nvmlEventSet_t) -> Option<(nvmlDevice_t, u64)> {
    let mut data = nvmlEventData_t {
        device: std::ptr::null_mut(),
        eventType: 0,
        eventData: 0,
        gpuInstanceId: 0,
        computeInstanceId: 0,
    };
    type Wait = unsafe extern "C" fn(nvmlEventSet_t, *mut nvmlEventData_t, c_uint) -> nvmlReturn_t;
    match call!(api, nvmlEventSetWait_v2(set, &mut data, POLICY.event_wait_ms)) {
        Err(Failure { code: None }) => {
            let function = api.old::<Wait>(b"nvmlEventSetWait\0").ok()?;
            // SAFETY: the older struct is shorter, and equal up to its end.
            check(unsafe { function(set, &mut data, POLICY.event_wait_ms) }).ok()?;
        }
        result => result.ok()?,
    }
    (data.eventType == XID_EVENT).then_some((data.device, data.eventData))
}
