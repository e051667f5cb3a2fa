//! One device's figures, call by call.

use std::ffi::c_uint;

use nvml_wrapper_sys::bindings::{
    field_id, nvmlDevice_t, nvmlEventData_t, nvmlEventSet_t, nvmlFieldValue_t, nvmlMemory_t, nvmlMemory_v2_t,
    nvmlReturn_t, nvmlSample_t, nvmlUtilization_t, nvmlValue_t,
};

use super::Handle;
use super::api::{Api, Failure, call, check, code, grow, number};
use super::processes::{self, Lists};
use crate::model::gpu::{Busy, DeviceSample, Figure, Missing, ProcessBusy, Reading};

/// nvml.h, `nvmlEventTypeXidCriticalError`.
pub const XID_EVENT: u64 = 8;
/// nvml.h, `NVML_GPU_UTILIZATION_SAMPLES`.
const GPU_UTILIZATION_SAMPLES: u32 = 1;
/// nvml.h, `NVML_CLOCK_SM` and `NVML_CLOCK_MEM`.
const CLOCKS: [(Figure, u32); 2] = [(Figure::SmClock, 1), (Figure::MemoryClock, 2)];
/// nvml.h, `NVML_MEMORY_ERROR_TYPE_*`.
const ECC: [(Figure, u32); 2] = [(Figure::EccCorrected, 0), (Figure::EccUncorrected, 1)];
/// How long a call for the next event may wait, milliseconds. What 0 means is not documented: cuda-python's cuda.core says
/// "wait indefinitely" of it.
const EVENT_WAIT_MS: c_uint = 1;
/// The driver samples itself at least this often while the device is in use, microseconds: a longer gap was idle.
const LONGEST_STRETCH_US: u64 = 1_000_000;
/// So long without a sample, and its rate of this moment is asked instead, microseconds.
const LONGEST_SILENCE_US: u64 = 2 * LONGEST_STRETCH_US;
/// A driver's clock is not known to be further ahead, microseconds: a day, as one that was set by another time zone.
const CLOCK_IS_OFF_US: u64 = 86_400_000_000;
/// Room for the driver's own samples at first: it keeps some 100 to 120.
const SAMPLES_ROOM: usize = 128;

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

/// How far the driver's own samples of a device were read.
#[derive(Debug, Clone, Copy, Default)]
pub struct Progress {
    device: Told,
    /// Its rate was asked in the place of samples since the last of them, for so long in all, microseconds.
    rated_us: u64,
    processes: Told,
}

/// The newest sample of a kind. Samples have times by the driver's clock, which need not be the machine's: some count from
/// boot (polarsignals/gpu-metrics-agent PR 37), some were set once and drift (NVIDIA's open kernel modules, timer_gh100.c).
/// So they are held against each other only.
#[derive(Debug, Clone, Copy, Default)]
struct Told {
    /// Its time, microseconds; 0: there was none yet.
    newest_us: u64,
    /// When it was told, or all of them were first asked for, CLOCK_MONOTONIC nanoseconds; 0: never.
    at_ns: u64,
    /// What there was before is known, and left out: it is not of the run.
    has_begun: bool,
    /// A sample of the run was told.
    has_told: bool,
}

impl Told {
    /// Since it was told, microseconds; 0 if nothing was ever asked for.
    fn age_us(&self, now_ns: u64) -> u64 {
        if self.at_ns == 0 { 0 } else { now_ns.saturating_sub(self.at_ns) / 1000 }
    }

    /// The newest time that a sample can have by now, where it is known how far the driver's clock has come: what there was
    /// before the run may be of any time.
    fn latest_us(&self, now_ns: u64) -> Option<u64> {
        const SAMPLE_IS_OLD_US: u64 = 10_000_000;
        let latest_us = self.newest_us.saturating_add(self.age_us(now_ns)).saturating_add(SAMPLE_IS_OLD_US);
        self.has_told.then_some(latest_us)
    }

    /// Take in the times of new samples; gives false of those that were there before the run.
    fn take(&mut self, newest_us: Option<u64>, now_ns: u64) -> bool {
        let was_begun = std::mem::replace(&mut self.has_begun, true);
        if !was_begun || newest_us.is_some() {
            (self.newest_us, self.at_ns) = (newest_us.unwrap_or(self.newest_us), now_ns);
        }
        self.has_told |= was_begun && newest_us.is_some();
        was_begun
    }

    /// How long it is from the one before to a sample that is so much older than the newest that was told with it,
    /// microseconds, without what was before the first reading.
    fn gap_us(&self, at_us: u64, older_us: u64, now_ns: u64) -> u64 {
        let since_us = if self.newest_us == 0 { u64::MAX } else { at_us.saturating_sub(self.newest_us) };
        let of_run_us = if self.has_told { u64::MAX } else { self.age_us(now_ns).saturating_sub(older_us) };
        since_us.min(of_run_us)
    }
}

/// A device's memory in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// What it has.
    pub total: u64,
    /// What is in use, without what the driver keeps for itself where that is told apart.
    pub used: u64,
}

/// The second form leaves out what the driver reserves; old drivers have only the first.
///
/// # Errors
/// What NVML says to the older form.
pub fn memory(api: &Api, device: nvmlDevice_t) -> Reading<Memory> {
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
pub fn minor(api: &Api, device: nvmlDevice_t) -> Option<u32> {
    get(|v| call!(api, nvmlDeviceGetMinorNumber(device, v))).ok()
}

/// Read it all. Gives false if the device is lost.
pub fn read(api: &Api, lists: &Lists, handle: &mut Handle, sample: &mut DeviceSample) -> bool {
    let device = handle.raw;
    let used = memory(api, device);
    if used == Err(Missing::Lost) {
        return false;
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
    if handle.is_divided {
        sample.busy = Some(Err(Missing::OfInstances));
        sample.processes = Some(Err(Missing::OfInstances));
        sample.process_busy = Some(Err(Missing::OfInstances));
        return true;
    }
    sample.busy = Some(busy(api, device, &mut handle.progress, rates));
    sample.processes = Some(lists.read(device));
    sample.listed_ns = crate::sys::clock::monotonic_ns();
    sample.process_busy = Some(process_busy(api, device, &mut handle.progress));
    sample.processes != Some(Err(Missing::Lost))
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
        _ => Err(Missing::NotTold),
    }
}

/// Under its new name, or its old one.
fn throttle(api: &Api, device: nvmlDevice_t) -> Reading<Vec<&'static str>> {
    let mut bits = get(|v| call!(api, nvmlDeviceGetCurrentClocksEventReasons(device, v)));
    if bits == Err(Missing::NoCall) {
        bits = get(|v| call!(api, nvmlDeviceGetCurrentClocksThrottleReasons(device, v)));
    }
    let bits: u64 = bits?;
    Ok(REASONS.into_iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| name).collect())
}

/// Counters, not the rate that costs 20 ms a call to measure.
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
            // A driver that is older than the field.
            Err(Failure { code: Some(code::INVALID_ARGUMENT) }) => return Err(Missing::NoCall),
            result => result?,
        }
        number(field.valueType, field.value).ok_or(Missing::NotTold)
    });
    [(Figure::PcieTx, tx), (Figure::PcieRx, rx)]
}

/// The driver's own samples since we last asked; where it has none, its rate of this moment.
fn busy(
    api: &Api,
    device: nvmlDevice_t,
    progress: &mut Progress,
    rates: Reading<nvmlUtilization_t>,
) -> Reading<Vec<Busy>> {
    let now_ns = crate::sys::clock::monotonic_ns();
    let told = progress.device;
    // Of what lies behind the newest sample, the rate has told of this.
    let untold_us = told.age_us(now_ns).saturating_sub(progress.rated_us);
    let rate = |progress: &mut Progress| {
        progress.rated_us += untold_us;
        rates.clone().map(|rates| vec![Busy { us: untold_us, percent: f64::from(rates.gpu) }])
    };
    let mut samples = match own_samples(api, device, told.newest_us) {
        Ok(samples) => samples,
        Err(Failure { code: Some(code::NOT_FOUND) }) => Vec::new(),
        Err(_) => {
            if told.at_ns == 0 {
                progress.device.at_ns = now_ns;
            }
            return rate(progress);
        }
    };
    // Some drivers give again what they gave before.
    samples.retain(|(at_us, _)| *at_us > told.newest_us);
    if !progress.device.take(samples.last().map(|(at_us, _)| *at_us), now_ns) {
        progress.rated_us = 0;
        return Ok(Vec::new());
    }
    if samples.is_empty() {
        // Some drivers have the call, and never a new sample, or none while nothing runs.
        return if untold_us > LONGEST_SILENCE_US { rate(progress) } else { Ok(Vec::new()) };
    }
    let mut rated_us = std::mem::take(&mut progress.rated_us);
    let (mut before, newest_us) = (told, progress.device.newest_us);
    let mut stretches = Vec::new();
    for (at_us, percent) in samples {
        let untold_us = before.gap_us(at_us, newest_us - at_us, now_ns).saturating_sub(rated_us);
        let us = untold_us.min(LONGEST_STRETCH_US);
        // What nobody tells of was idle.
        stretches.extend((untold_us > us).then_some(Busy { us: untold_us - us, percent: 0.0 }));
        stretches.push(Busy { us, percent });
        before = Told { newest_us: at_us, has_told: true, ..before };
        rated_us = 0;
    }
    Ok(stretches)
}

fn own_samples(api: &Api, device: nvmlDevice_t, since_us: u64) -> Result<Vec<(u64, f64)>, Failure> {
    let empty = nvmlSample_t { timeStamp: 0, sampleValue: nvmlValue_t { ullVal: 0 } };
    let (_, (samples, kind)) = grow(SAMPLES_ROOM, |room| {
        let mut samples = vec![empty; room];
        let (mut count, mut kind) = (c_uint::try_from(room).unwrap_or(c_uint::MAX), 0);
        let buffer = samples.as_mut_ptr();
        let result = call!(
            api,
            nvmlDeviceGetSamples(device, GPU_UTILIZATION_SAMPLES, since_us, &mut kind, &mut count, buffer)
        );
        samples.truncate(count as usize);
        (result.map(|()| (samples, kind)), count as usize)
    })?;
    let mut read: Vec<(u64, f64)> = samples
        .into_iter()
        .filter_map(|sample| Some((sample.timeStamp, number(kind, sample.sampleValue)?)))
        .collect();
    read.sort_by_key(|(at_us, _)| *at_us);
    Ok(read)
}

fn process_busy(api: &Api, device: nvmlDevice_t, progress: &mut Progress) -> Reading<Vec<ProcessBusy>> {
    let now_ns = crate::sys::clock::monotonic_ns();
    let told = progress.processes;
    // Both kinds have times by the same clock, and those of the device have just been read.
    let latest_us = progress.device.latest_us(now_ns);
    let latest_us = latest_us.unwrap_or_else(|| crate::sys::clock::realtime_ns() / 1000 + CLOCK_IS_OFF_US);
    let samples = processes::utilization(api, device, told.newest_us, latest_us)?;
    if !progress.processes.take(samples.iter().map(|(_, at_us, _)| *at_us).max(), now_ns) {
        return Ok(Vec::new());
    }
    let newest_us = progress.processes.newest_us;
    let busy = |(pid, at_us, percent): (u32, u64, u32)| {
        let us = told.gap_us(at_us, newest_us - at_us, now_ns).min(LONGEST_STRETCH_US);
        ProcessBusy { pid, busy: Busy { us, percent: f64::from(percent) } }
    };
    Ok(samples.into_iter().map(busy).collect())
}

/// The next critical error that waits to be told.
pub fn next_event(api: &Api, set: nvmlEventSet_t) -> Option<(nvmlDevice_t, u64)> {
    let mut data = nvmlEventData_t {
        device: std::ptr::null_mut(),
        eventType: 0,
        eventData: 0,
        gpuInstanceId: 0,
        computeInstanceId: 0,
    };
    type Wait = unsafe extern "C" fn(nvmlEventSet_t, *mut nvmlEventData_t, c_uint) -> nvmlReturn_t;
    match call!(api, nvmlEventSetWait_v2(set, &mut data, EVENT_WAIT_MS)) {
        Err(Failure { code: None }) => {
            let function = api.old::<Wait>(b"nvmlEventSetWait\0").ok()?;
            // SAFETY: the older struct is the shorter one, and the same up to its end.
            check(unsafe { function(set, &mut data, EVENT_WAIT_MS) }).ok()?;
        }
        result => result.ok()?,
    }
    (data.eventType == XID_EVENT).then_some((data.device, data.eventData))
}
