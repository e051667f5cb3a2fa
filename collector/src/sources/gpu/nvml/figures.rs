//! One device's figures, by kinds that are read together.

use std::borrow::Cow;
use std::ffi::{c_int, c_uint};

use nvml_wrapper_sys::bindings::{
    field_id, nvmlDevice_t, nvmlFieldValue_t, nvmlMemory_t, nvmlMemory_v2_t, nvmlTemperature_t,
    nvmlUtilization_t,
};

use super::accounting::Accounting;
use super::api::{Api, Failure, NOT_AVAILABLE, Plain, call, check, code, get, number, struct_version};
use super::figure_kind::Kind;
use super::gpm::Gpm;
use super::handle::Handle;
use super::policy;
use super::process_lists::{KnownLists, Lists, ListsOf};
use super::utilization::{busy, percent, process_busy};
use crate::model::gpu::{DeviceSample, Figure, MOST_BYTES, Missing, ProcessMemory, Reading, most_bytes};
use crate::sys::clock;

/// nvml.h, `NVML_TEMPERATURE_GPU`: the sensor of the chip.
const GPU_SENSOR: u32 = 0;
/// nvml.h, `NVML_VOLATILE_ECC`: errors since the driver was loaded.
const SINCE_LOAD: u32 = 0;
/// nvml.h, `NVML_CLOCK_GRAPHICS`.
const GRAPHICS_CLOCK: u32 = 0;
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
    /// Memory in use, without the driver's own reserve where that is reported apart.
    pub used: u64,
    /// The driver's own reserve. `None`: it is not reported apart.
    pub reserved: Option<u64>,
}

/// Reads a device's memory. The second version of the call reports the driver's reserve apart. The first version counts the
/// reserve as in use, so it is called only where the library or the driver lacks the second. `has_reserve` is as in [`Sensors`].
///
/// [`Sensors`]: super::handle::Sensors
pub(super) fn memory(api: &Api, device: nvmlDevice_t, has_reserve: &mut Option<bool>) -> Reading<Memory> {
    let second = || {
        let version = struct_version::<nvmlMemory_v2_t>(2);
        let mut memory = nvmlMemory_v2_t { version, total: 0, reserved: 0, free: 0, used: 0 };
        call!(api, nvmlDeviceGetMemoryInfo_v2(device, &mut memory))?;
        let nvmlMemory_v2_t { total, used, reserved, .. } = memory;
        Ok(Memory { total, used, reserved: Some(reserved) })
    };
    let first = || {
        let mut memory = nvmlMemory_t { total: 0, free: 0, used: 0 };
        call!(api, nvmlDeviceGetMemoryInfo(device, &mut memory))?;
        Ok(Memory { total: memory.total, used: memory.used, reserved: None })
    };
    one_of_versions(has_reserve, second, first)?.believed()
}

/// Makes the `second` version of the call for memory, or the `first` if the device lacks the second. Which of them has worked once is
/// remembered in `has_reserve`, and only that one is made from then on: a single failure must not change what the figure means.
fn one_of_versions(
    has_reserve: &mut Option<bool>,
    second: impl FnOnce() -> Result<Memory, Failure>,
    first: impl FnOnce() -> Result<Memory, Failure>,
) -> Reading<Memory> {
    if *has_reserve != Some(false) {
        match second() {
            Ok(memory) => {
                *has_reserve = Some(true);
                return Ok(memory);
            }
            Err(Failure(
                code::INVALID_ARGUMENT
                | code::NOT_SUPPORTED
                | code::FUNCTION_NOT_FOUND
                | code::ARGUMENT_VERSION_MISMATCH
                | code::DEPRECATED,
            )) if has_reserve.is_none() => {}
            Err(failure) => return Err(failure.into()),
        }
    }
    let memory = first()?;
    *has_reserve = Some(false);
    Ok(memory)
}

impl Memory {
    /// This memory, unless no device has as much.
    fn believed(self) -> Reading<Self> {
        let is_possible = (1..=MOST_BYTES).contains(&self.total);
        let reserved = self.reserved.filter(|reserved| *reserved < self.total);
        if is_possible { Ok(Self { reserved, ..self }) } else { Err(Missing::NotReported) }
    }

    /// The memory in use, bytes, unless it is more than the device has.
    fn believed_used(self) -> Reading<u64> {
        if self.used <= most_bytes(Some(self.total)) { Ok(self.used) } else { Err(Missing::NotReported) }
    }
}

/// Asks for the number of a device's node (`/dev/nvidiaN`). A MIG instance has none.
pub(super) fn minor(api: &Api, device: nvmlDevice_t) -> Option<u32> {
    get(|v| call!(api, nvmlDeviceGetMinorNumber(device, v))).ok()
}

/// The most that a device's PCIe link can carry one way, bytes a second. Generation and width are the largest that device and slot
/// can do: an idle link runs slower. `None`: not known.
pub(super) fn link_bytes_per_s(api: &Api, device: nvmlDevice_t) -> Option<u64> {
    /// Bytes a second of one lane, by generation from 1 on, without encoding (8b/10b, 128b/130b, from 6 on FLITs; PCI-SIG).
    const LANE: [u64; 7] =
        [250_000_000, 500_000_000, 984_615_385, 1_969_230_770, 3_938_461_539, 7_562_500_000, 15_125_000_000];
    let generation: c_uint = get(|v| call!(api, nvmlDeviceGetMaxPcieLinkGeneration(device, v))).ok()?;
    let width: c_uint = get(|v| call!(api, nvmlDeviceGetMaxPcieLinkWidth(device, v))).ok()?;
    let lane = LANE.get(usize::try_from(generation).ok()?.checked_sub(1)?)?;
    (1..=policy::MOST_LANES).contains(&width).then(|| lane * u64::from(width))
}

/// Reads a figure by the `first` of two calls, or by the `second` if the device lacks the first. `has_first` remembers whether
/// the device has the first; `None`: that is not known yet. Until the first has worked once, the second is made after any
/// failure. Once it has worked, its failure is the result: the figure of the second may mean something else.
fn first_or_second<T>(
    has_first: &mut Option<bool>,
    first: impl FnOnce() -> Reading<T>,
    second: impl FnOnce() -> Reading<T>,
) -> Reading<T> {
    if *has_first != Some(false) {
        let value = first();
        if value.is_ok() || *has_first == Some(true) {
            *has_first = Some(true);
            return value;
        }
        // Only these errors say that the device lacks the call.
        if matches!(value, Err(Missing::NotSupported | Missing::NoCall | Missing::VersionMismatch)) {
            *has_first = Some(false);
        }
    }
    second()
}

/// Reads the energy counter, joules.
pub(super) fn energy(api: &Api, device: nvmlDevice_t) -> Reading<f64> {
    get(|v| call!(api, nvmlDeviceGetTotalEnergyConsumption(device, v))).map(|mj: u64| mj as f64 / 1e3)
}

/// Reads the power that the device draws, watts. A field has the power of this moment, but older devices and drivers lack the
/// field. The call that all have gives a mean over a second on many devices (nvml.h), which hides short peaks.
fn power(api: &Api, handle: &mut Handle) -> Reading<f64> {
    let device = handle.raw;
    let instant_mw = || {
        let [mw] = fields(api, device, [field_id::NVML_FI_DEV_POWER_INSTANT]);
        mw
    };
    let mean_mw = || gauge(|v| call!(api, nvmlDeviceGetPowerUsage(device, v)));
    let mw = first_or_second(&mut handle.sensors.has_instant_power, instant_mw, mean_mw);
    mw.map(|mw| mw / 1e3)
}

/// Reads the gauges that are read on request alone: fan, power limits, clock of the graphics domain, temperature of the memory, PCIe
/// link.
fn gauges_on_request(api: &Api, device: nvmlDevice_t, sample: &mut DeviceSample) {
    let watts = |mw: Reading<f64>| mw.map(|mw| mw / 1e3);
    let [celsius] = fields(api, device, [field_id::NVML_FI_DEV_MEMORY_TEMP]);
    sample.values.extend([
        (Figure::MemoryTemperature, celsius),
        (Figure::GraphicsClock, gauge(|v| call!(api, nvmlDeviceGetClockInfo(device, GRAPHICS_CLOCK, v)))),
        (Figure::FanSpeed, gauge(|v| call!(api, nvmlDeviceGetFanSpeed(device, v)))),
        (Figure::PowerLimit, watts(gauge(|v| call!(api, nvmlDeviceGetPowerManagementLimit(device, v))))),
        (
            Figure::EnforcedPowerLimit,
            watts(gauge(|v| call!(api, nvmlDeviceGetEnforcedPowerLimit(device, v)))),
        ),
        (Figure::PcieGeneration, gauge(|v| call!(api, nvmlDeviceGetCurrPcieLinkGeneration(device, v)))),
        (Figure::PcieWidth, gauge(|v| call!(api, nvmlDeviceGetCurrPcieLinkWidth(device, v)))),
    ]);
}

/// Reads the gauges, figures of this moment that go up and down, except power: utilization of memory, encoder and decoder,
/// temperature, clocks, performance state.
fn gauges(api: &Api, handle: &mut Handle, sample: &mut DeviceSample) {
    let device = handle.raw;
    let mut put = |figure, value: Reading<f64>| sample.values.push((figure, value));
    let rates = rates(api, device);
    sample.rate_percent = Some(match &rates {
        _ if handle.is_divided => Err(Missing::ReportedByInstances),
        Ok(rates) => percent(rates.gpu),
        Err(missing) => Err(missing.clone()),
    });
    put(Figure::MemoryUtilization, rates.and_then(|rates| percent(rates.memory)));
    // The calls also give the driver's sampling period, which is not needed.
    let mut period_us = 0;
    let encoder = gauge(|v| call!(api, nvmlDeviceGetEncoderUtilization(device, v, &mut period_us)));
    put(Figure::EncoderUtilization, encoder);
    let decoder = gauge(|v| call!(api, nvmlDeviceGetDecoderUtilization(device, v, &mut period_us)));
    put(Figure::DecoderUtilization, decoder);
    let plain = || gauge(|v| call!(api, nvmlDeviceGetTemperature(device, GPU_SENSOR, v)));
    let has_versioned = &mut handle.sensors.has_versioned_temperature;
    put(Figure::Temperature, first_or_second(has_versioned, || temperature(api, device), plain));
    for (figure, clock) in CLOCKS {
        put(figure, gauge(|v| call!(api, nvmlDeviceGetClockInfo(device, clock, v))));
    }
    put(Figure::Pstate, pstate(api, device));
}

/// Reads the counters of memory errors since the driver was loaded.
fn ecc(api: &Api, handle: &Handle, sample: &mut DeviceSample) {
    for (figure, kind) in ECC {
        let errors = get(|v| call!(api, nvmlDeviceGetTotalEccErrors(handle.raw, kind, SINCE_LOAD, v)));
        sample.values.push((figure, errors.map(|errors: u64| errors as f64)));
    }
}

/// Reads the PCIe counters into a sample. Adds when they were read and what the link carries at most, which tells whether a counter
/// can have wrapped. NVML's call for a rate is not used, since it takes 20 ms to measure one.
///
/// The driver has the counters in 32 bits, and counts bytes: `NvU32 pexCounters[]` of NV2080_CTRL_CMD_BUS_GET_PEX_UTIL_COUNTERS
/// (open-gpu-kernel-modules, ctrl2080bus.h); "value can be wrapped" (nvml.h).
fn pcie(api: &Api, handle: &mut Handle, sample: &mut DeviceSample) {
    let ids = [field_id::NVML_FI_DEV_PCIE_COUNT_TX_BYTES, field_id::NVML_FI_DEV_PCIE_COUNT_RX_BYTES];
    let [tx, rx] = fields(api, handle.raw, ids);
    sample.counted_ns = clock::monotonic_ns();
    if tx.is_ok() || rx.is_ok() {
        let link = *handle.link_bytes_per_s.get_or_insert_with(|| link_bytes_per_s(api, handle.raw));
        sample.link_bytes_per_s = link;
    }
    sample.values.extend([(Figure::PcieTx, tx), (Figure::PcieRx, rx)]);
}

/// Reads the memory in use and the lists of processes into a sample, and notes there if the device is lost. Keeps the device's
/// capacity and reserve in `handle`. `kind` and `pids` decide which lists are read: see [`Lists::read`]. Returns when the memory in
/// use was known, CLOCK_MONOTONIC nanoseconds, and whether lists were read after that.
pub(super) fn memory_and_lists(
    api: &Api,
    lists: &Lists,
    handle: &mut Handle,
    sample: &mut DeviceSample,
    kind: Kind,
    pids: &[u32],
) -> (u64, bool) {
    let memory = memory(api, handle.raw, &mut handle.sensors.has_reserve);
    if let Ok(Memory { total, reserved, .. }) = memory {
        (handle.device.memory_bytes, handle.device.reserved_bytes) = (Some(total), reserved);
    }
    handle.lists.capacity_bytes = handle.device.memory_bytes;
    let mut used = memory.and_then(Memory::believed_used);
    let used_known_ns = clock::monotonic_ns();
    if used == Err(Missing::Lost) {
        sample.is_lost = true;
        return (used_known_ns, false);
    }
    let in_use = used.as_ref().ok().copied();
    let (mut processes, has_read_lists) = if handle.is_divided {
        (Err(Missing::ReportedByInstances), false)
    } else {
        read_lists(api, lists, handle, kind, in_use, pids)
    };
    if let (Some(before), Ok(listed)) = (in_use, &processes)
        && most_held(listed) > most_bytes(in_use)
    {
        // A list that was not read now can be old, and a process can have taken memory since the memory in use was read.
        (processes, _) = read_lists(api, lists, handle, Kind::AllLists, in_use, pids);
        let again =
            self::memory(api, handle.raw, &mut handle.sensors.has_reserve).and_then(Memory::believed_used);
        used = fit(before.max(again.unwrap_or(0)), processes.as_deref_mut().unwrap_or_default());
    }
    sample.values.push((Figure::MemoryUsed, used.map(|used| used as f64)));
    sample.processes = Some(processes);
    sample.listed_ns = clock::monotonic_ns();
    sample.is_lost = sample.processes == Some(Err(Missing::Lost));
    (used_known_ns, has_read_lists)
}

/// The largest memory of one of these processes, bytes.
fn most_held(processes: &[ProcessMemory]) -> u64 {
    processes.iter().filter_map(|process| process.bytes.as_ref().ok()).copied().max().unwrap_or(0)
}

/// Takes away the memory of processes that have more than is in use on the device: one of the two is wrong. Returns the memory in use,
/// bytes, which is wrong if it is 0.
fn fit(used: u64, processes: &mut [ProcessMemory]) -> Reading<u64> {
    let most_bytes = most_bytes(Some(used));
    if used == 0 && most_held(processes) > 0 {
        return Err(Missing::NotReported);
    }
    for process in processes {
        if process.bytes.as_ref().is_ok_and(|bytes| *bytes > most_bytes) {
            process.bytes = Err(Missing::NotReported);
        }
    }
    Ok(used)
}

/// Reads the process lists. Where an instance's own lists are refused, those of its device are read, which name the instance of each
/// process.
fn read_lists(
    api: &Api,
    lists: &Lists,
    handle: &mut Handle,
    kind: Kind,
    in_use: Option<u64>,
    pids: &[u32],
) -> (Reading<Vec<ProcessMemory>>, bool) {
    let of = handle.lists_of_parent.unwrap_or(ListsOf { device: handle.raw, instance: None });
    let (own, has_read) = lists.read(of, &mut handle.lists, kind, in_use, pids);
    let is_refused = matches!(own, Err(Missing::NotSupported | Missing::NoCall | Missing::NoPermission));
    let (true, None, Some(parent)) = (is_refused, handle.lists_of_parent, handle.parent_raw) else {
        return (own, has_read);
    };
    let id = get(|id| call!(api, nvmlDeviceGetGpuInstanceId(handle.raw, id)));
    // All bits set: no instance. The parent's entries have that id if their process is on no instance.
    let Some(id) = id.ok().filter(|id| *id != c_uint::MAX) else {
        return (own, has_read);
    };
    let of = ListsOf { device: parent, instance: Some(id) };
    let mut known = KnownLists::new(handle.lists.capacity_bytes);
    let (all, has_read) = lists.read(of, &mut known, kind, in_use, pids);
    if all.is_err() {
        return (own, has_read);
    }
    (handle.lists_of_parent, handle.lists) = (Some(of), known);
    (all, has_read)
}

/// Reads a kind of figures into a sample. [`memory_and_lists`] reads memory and lists; details and critical errors are read
/// elsewhere. `pids`: those by which the driver may name processes of the run.
pub(super) fn read(api: &Api, handle: &mut Handle, sample: &mut DeviceSample, kind: Kind, pids: &[u32]) {
    match kind {
        Kind::Utilization => utilization(api, handle, sample),
        Kind::ProcessUtilization => process_utilization(api, handle, sample),
        Kind::Energy => sample.values.push((Figure::Energy, energy(api, handle.raw))),
        Kind::Power => {
            sample.values.push((Figure::Power, power(api, handle)));
            let bits = throttle_bits(api, handle.raw);
            sample.throttle_bits = bits.as_ref().ok().copied();
            sample.throttle = Some(bits.map(reasons));
        }
        Kind::Gauges => {
            gauges(api, handle, sample);
            if handle.reads_on_request {
                gauges_on_request(api, handle.raw, sample);
            }
        }
        Kind::Accounting => {
            handle.accounting.take_if(|known| known.may_change());
            let accounting = handle.accounting.get_or_insert_with(|| Accounting::unchanged(api, handle.raw));
            let most_bytes = most_bytes(handle.device.memory_bytes);
            sample.accounting = Some(accounting.read(api, handle.raw, pids, most_bytes));
        }
        Kind::Pcie => pcie(api, handle, sample),
        Kind::Ecc => ecc(api, handle, sample),
        Kind::Gpm => gpm(api, handle, sample),
        Kind::Memory | Kind::Lists | Kind::AllLists | Kind::Events | Kind::Details => {}
    }
}

/// Reads the utilization of the device into a sample. For a MIG instance the driver has none. Then GPM (performance monitoring) reads
/// the counters of the device that the instance is a part of.
fn utilization(api: &Api, handle: &mut Handle, sample: &mut DeviceSample) {
    if handle.is_divided {
        sample.busy = Some(Err(Missing::ReportedByInstances));
        return;
    }
    let device = handle.raw;
    let read = busy(api, device, &mut handle.progress, || rates(api, device));
    (sample.busy, sample.busy_lost_us) = (Some(read.busy), read.lost_us);
    sample.busy_every_us = if read.is_sampled { handle.progress.spacing_us().unwrap_or(0) } else { 0 };
    if let (Some(Err(_)), Some(parent)) = (&sample.busy, handle.parent_raw) {
        let gpm = gpm_of(&mut handle.gpm, || Gpm::start(api, device, Some(parent)));
        let Ok(gpm) = gpm else { return };
        match gpm.read(api) {
            Ok(Some(shown)) => shown.put_into(sample),
            // It is too soon.
            Ok(None) => sample.busy = Some(Ok(Vec::new())),
            Err(missing) => {
                (sample.busy, sample.activity) = (Some(Err(missing.clone())), Some(Err(missing)));
            }
        }
    }
}

/// The performance counters, which are asked for anew after a failure that may pass.
fn gpm_of(gpm: &mut Option<Reading<Gpm>>, start: impl FnOnce() -> Reading<Gpm>) -> &mut Reading<Gpm> {
    gpm.take_if(|known| known.as_ref().is_err_and(Missing::may_pass));
    gpm.get_or_insert_with(start)
}

/// Reads the performance counters of a whole device into a sample. Those of an instance come with its utilization.
fn gpm(api: &Api, handle: &mut Handle, sample: &mut DeviceSample) {
    if handle.is_divided {
        sample.activity = Some(Err(Missing::ReportedByInstances));
        return;
    }
    let raw = handle.raw;
    let gpm = match handle.parent_raw {
        Some(_) => match &handle.gpm {
            Some(Err(missing)) => Err(missing.clone()),
            Some(Ok(_)) => return,
            // NVML told its utilization itself, so its counters were not asked for.
            None => Err(Missing::NotSupported),
        },
        None => Ok(gpm_of(&mut handle.gpm, || Gpm::start(api, raw, None))),
    };
    sample.activity = match gpm {
        Err(missing) => Some(Err(missing)),
        Ok(Err(missing)) => Some(Err(missing.clone())),
        Ok(Ok(gpm)) => gpm.read(api).transpose().map(|shown| shown.map(|shown| shown.activity)),
    };
}

/// Reads the utilization by process into a sample.
fn process_utilization(api: &Api, handle: &mut Handle, sample: &mut DeviceSample) {
    if handle.is_divided {
        sample.process_busy = Some(Err(Missing::ReportedByInstances));
        return;
    }
    let read = process_busy(api, handle.raw, &mut handle.progress);
    (sample.process_busy, sample.process_busy_us) = (Some(read.busy), read.known_us);
}

/// Reads a gauge that a call writes as a whole number. Its unit is the call's. All bits set means that the driver has no value.
pub(super) fn gauge(ask: impl FnOnce(*mut c_uint) -> Result<(), Failure>) -> Reading<f64> {
    number_of(get(ask)?)
}

/// A number that a call wrote, as [`gauge`] has it.
pub(super) fn number_of(value: c_uint) -> Reading<f64> {
    match value {
        c_uint::MAX => Err(Missing::NotReported),
        value => Ok(f64::from(value)),
    }
}

/// Reads the driver's present rates of GPU and memory, percent.
fn rates(api: &Api, device: nvmlDevice_t) -> Reading<nvmlUtilization_t> {
    let mut rates = nvmlUtilization_t { gpu: 0, memory: 0 };
    call!(api, nvmlDeviceGetUtilizationRates(device, &mut rates))?;
    Ok(rates)
}

/// Reads the performance state, 0 to 15. The driver's value for an unknown state is 32.
fn pstate(api: &Api, device: nvmlDevice_t) -> Reading<f64> {
    let state = gauge(|v| call!(api, nvmlDeviceGetPerformanceState(device, v)))?;
    if state <= 15.0 { Ok(state) } else { Err(Missing::NotReported) }
}

/// Reads why the clocks are lower than they could be now, as bits. Older libraries have the call by its old name.
fn throttle_bits(api: &Api, device: nvmlDevice_t) -> Reading<u64> {
    let mut bits = get(|v| call!(api, nvmlDeviceGetCurrentClocksEventReasons(device, v)));
    if bits == Err(Missing::NoCall) {
        bits = get(|v| call!(api, nvmlDeviceGetCurrentClocksThrottleReasons(device, v)));
    }
    if bits == Ok(NOT_AVAILABLE) { Err(Missing::NotReported) } else { bits }
}

/// The names in [`REASONS`] of these bits. A newer driver can have others, each of which is named by its bit.
fn reasons(bits: u64) -> Vec<Cow<'static, str>> {
    let set = (0..u64::BITS).map(|place| 1 << place).filter(|bit| bits & bit != 0);
    let name = |bit: u64| {
        let known = REASONS.into_iter().find(|(known, _)| *known == bit);
        known.map_or_else(|| format!("unknown ({bit:#x})").into(), |(_, name)| name.into())
    };
    set.map(name).collect()
}

/// Reads the fields with these ids by one call, in their order. Each has a result of its own.
fn fields<const N: usize>(api: &Api, device: nvmlDevice_t, ids: [u32; N]) -> [Reading<f64>; N] {
    let field =
        |id| nvmlFieldValue_t { fieldId: id, nvmlReturn: code::NOT_SUPPORTED, ..nvmlFieldValue_t::zeroed() };
    let mut fields = ids.map(field);
    let count = c_int::try_from(N).unwrap_or(0);
    let asked =
        call!(api, nvmlDeviceGetFieldValues(device, count, fields.as_mut_ptr())).map_err(Missing::from);
    fields.map(|field| {
        asked.clone()?;
        match check(field.nvmlReturn) {
            // The driver is older than the field.
            Err(Failure(code::INVALID_ARGUMENT)) => return Err(Missing::NoCall),
            result => result?,
        }
        number(field.valueType, field.value).ok_or(Missing::NotReported)
    })
}

/// Reads the temperature by the versioned call, degrees Celsius.
fn temperature(api: &Api, device: nvmlDevice_t) -> Reading<f64> {
    let version = struct_version::<nvmlTemperature_t>(1);
    let mut temperature = nvmlTemperature_t { version, sensorType: 0, temperature: 0 };
    match call!(api, nvmlDeviceGetTemperatureV(device, &mut temperature)) {
        // All bits set: the driver has no value.
        Ok(()) if temperature.temperature == -1 => Err(Missing::NotReported),
        Ok(()) => Ok(f64::from(temperature.temperature)),
        // The library knows only other versions of the struct.
        Err(Failure(code::INVALID_ARGUMENT | code::ARGUMENT_VERSION_MISMATCH)) => Err(Missing::NoCall),
        Err(failure) => Err(failure.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::gpu::Work;

    // Requirement: GPU-88
    #[test]
    fn more_memory_in_use_than_the_device_has_is_not_reported() {
        let used = |used| Memory { total: 80 << 30, used, reserved: None }.believed_used();
        assert_eq!(used(80 << 30), Ok(80 << 30));
        assert_eq!(used(81 << 30), Ok(81 << 30), "the driver's reserve may not be in the capacity");
        assert_eq!(used(84 << 30), Err(Missing::NotReported));
    }

    // Requirement: GPU-88
    #[test]
    fn process_with_more_memory_than_is_in_use_has_an_unknown_one() {
        let fitted = |used: u64, held: &[u64]| {
            let process = |bytes: &u64| ProcessMemory { pid: 7, bytes: Ok(*bytes), work: Work::Compute };
            let mut processes: Vec<ProcessMemory> = held.iter().map(process).collect();
            let used = fit(used, &mut processes);
            (used, processes.into_iter().map(|process| process.bytes.ok()).collect::<Vec<_>>())
        };
        assert_eq!(fitted(100, &[60, 103]), (Ok(100), vec![Some(60), Some(103)]));
        assert_eq!(fitted(100, &[60, 200]), (Ok(100), vec![Some(60), None]));
        assert_eq!(fitted(0, &[60]), (Err(Missing::NotReported), vec![Some(60)]));
        assert_eq!(fitted(0, &[0]), (Ok(0), vec![Some(0)]));
    }

    // Requirement: GPU-11
    #[test]
    fn throttle_reason_that_is_not_known_is_named_by_its_bit() {
        assert_eq!(reasons(0), [""; 0]);
        assert_eq!(reasons(0x24), ["software power cap", "software thermal slowdown"]);
        assert_eq!(reasons(0x600), ["unknown (0x200)", "unknown (0x400)"]);
        assert_eq!(reasons(1 << 63 | 1), ["idle", "unknown (0x8000000000000000)"]);
    }

    #[test]
    fn memory_keeps_its_meaning_when_one_version_of_the_call_fails_or_comes() {
        let second = Memory { total: 100, used: 20, reserved: Some(5) };
        let first = Memory { total: 100, used: 25, reserved: None };
        let lacking = Err(Failure(code::NOT_SUPPORTED));
        let mut has_reserve = None;
        let mut read = |by_second, by_first| one_of_versions(&mut has_reserve, || by_second, || by_first);
        // Neither works yet, so it is not known which of them the device has.
        assert_eq!(read(lacking, lacking), Err(Missing::NotSupported));
        assert_eq!(read(Ok(second), Ok(first)), Ok(second));
        assert_eq!(read(lacking, Ok(first)), Err(Missing::NotSupported));
        assert_eq!(read(Ok(second), Ok(first)), Ok(second));
        let mut has_reserve = None;
        let mut read = |by_second, by_first| one_of_versions(&mut has_reserve, || by_second, || by_first);
        assert!(read(Err(Failure(code::UNKNOWN)), Ok(first)).is_err());
        assert_eq!(read(lacking, Ok(first)), Ok(first));
        assert_eq!(read(Ok(second), Ok(first)), Ok(first));
        assert_eq!(read(Ok(second), lacking), Err(Missing::NotSupported));
    }
}
