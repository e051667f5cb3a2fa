//! GPU processes: the three lists in all their layouts, utilization, and accounting.

use std::ffi::{c_uint, c_ulonglong, c_void};

use crate::abi::{
    Device, INSUFFICIENT_SIZE, INVALID_ARGUMENT, NOT_FOUND, Return, SUCCESS, name, put, put_list,
};
use crate::script::{self, NOT_SUPPORTED, Part, global, now_us, number, of_processes, path, text};

/// The first pid of foreign processes. It is above the kernel's largest pid.
const FOREIGN: u32 = 5_000_000;

/// The id of an instance that means none.
const NO_INSTANCE: u32 = u32::MAX;

/// What processes hold on a device, each once.
pub fn held_bytes(device: &str) -> u64 {
    let bytes = |words: &Vec<String>| words.first().and_then(|bytes| bytes.parse::<u64>().ok());
    of_processes("held", device).iter().filter_map(|(_, words)| bytes(words)).sum()
}

/// The processes of a list: pid, memory, and the instance (MIG) that they are on. The list of a whole device has those of its instances
/// with `0.lists_parts 1`.
fn listed(device: Device, list: char) -> Result<Vec<(u32, u64, u32)>, Return> {
    let device = name(device);
    if list == 'g' {
        script::sampled(&device, Part::Lists);
    }
    // An error of all lists.
    text(&device, "processes")?;
    // An error of this list alone.
    if let Err(code) = text(&device, &format!("processes_{list}"))
        && code != NOT_SUPPORTED
    {
        return Err(code);
    }
    let mut processes = Vec::new();
    // Foreign processes come first; their number can grow with every call.
    if let Ok(crowd) = number(&device, "crowd") {
        let more =
            number(&device, "crowd_grows").unwrap_or(0) * script::count(format!("crowd {device} {list}"));
        let first = number(&device, "crowd_first").ok().and_then(|pid| c_uint::try_from(pid).ok());
        let first = first.unwrap_or(FOREIGN);
        let end = first + c_uint::try_from(crowd + more).unwrap_or(0);
        processes.extend((first..end).map(|pid| (pid, 1000, NO_INSTANCE)));
    }
    let mut parts = vec![(device.clone(), NO_INSTANCE)];
    if number(&device, "lists_parts") == Ok(1) {
        parts.extend((0..8).map(|part| (format!("{device}m{part}"), part)));
    }
    for (part, instance) in parts {
        for (pid, words) in of_processes("held", &part) {
            let bytes = words.first().map_or(0, |bytes| bytes.parse().unwrap_or(u64::MAX));
            if words.get(1).map_or("c", String::as_str).contains(list) {
                processes.push((pid, bytes, instance));
            }
        }
    }
    Ok(processes)
}

/// Writes a list with entries of this size: 16 (v1), 24 (v2 and v3), or 32 (v3 of the drivers 535.43 to 535.86).
unsafe fn put_processes(
    device: Device,
    list: char,
    stride: usize,
    count: *mut c_uint,
    place: *mut c_void,
) -> Return {
    let processes = match listed(device, list) {
        Ok(processes) => processes,
        Err(code) => return code,
    };
    if place.is_null() {
        // The documentation allows a null buffer to ask for the size. Some drivers crash at it, others return SUCCESS.
        if global("null_probe").as_deref() != Some("success") {
            std::process::abort();
        }
        // SAFETY: by nvml.h's contract the pointer to the counter is valid.
        return unsafe { put(count, Ok(c_uint::try_from(processes.len()).unwrap_or(0))) };
    }
    // SAFETY: by nvml.h's contract the buffer has `count` entries; no more are written.
    unsafe {
        let room = count.read() as usize;
        count.write(c_uint::try_from(processes.len()).unwrap_or(c_uint::MAX));
        if processes.len() > room {
            match global("cut").as_deref() {
                None => return INSUFFICIENT_SIZE,
                Some("counts_written") => count.write(c_uint::try_from(room).unwrap_or(c_uint::MAX)),
                Some(_) => {}
            }
        }
        if global("clears_buffer").is_some() {
            std::ptr::write_bytes(place.cast::<u8>(), 0, room * stride);
        }
        for (index, (pid, bytes, instance)) in processes.iter().take(room).enumerate() {
            let entry = place.cast::<u8>().add(index * stride);
            entry.cast::<u32>().write_unaligned(*pid);
            entry.add(4).cast::<u32>().write_unaligned(0);
            entry.add(8).cast::<u64>().write_unaligned(*bytes);
            if stride >= 24 {
                entry.add(16).cast::<u32>().write_unaligned(*instance);
                // The compute instance: none.
                entry.add(20).cast::<u32>().write_unaligned(u32::MAX);
            }
            if stride >= 32 {
                // Protected memory: none.
                entry.add(24).cast::<u64>().write_unaligned(0);
            }
        }
    }
    SUCCESS
}

#[cfg(not(feature = "old"))]
fn stride() -> usize {
    global("stride").and_then(|stride| stride.parse().ok()).unwrap_or(24)
}

macro_rules! lists {
    ($($function:ident = $list:literal, $stride:expr;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $function(device: Device, count: *mut c_uint, place: *mut c_void) -> Return {
            let _call = script::called(stringify!($function));
            // SAFETY: nvml.h's contract, passed on.
            unsafe { put_processes(device, $list, $stride, count, place) }
        }
    )*};
}

#[cfg(not(any(feature = "old", feature = "second")))]
lists! {
    nvmlDeviceGetComputeRunningProcesses_v3 = 'c', stride();
    nvmlDeviceGetGraphicsRunningProcesses_v3 = 'g', stride();
    nvmlDeviceGetMPSComputeRunningProcesses_v3 = 'm', stride();
}

#[cfg(feature = "second")]
lists! {
    nvmlDeviceGetComputeRunningProcesses_v2 = 'c', stride();
    nvmlDeviceGetGraphicsRunningProcesses_v2 = 'g', stride();
    nvmlDeviceGetMPSComputeRunningProcesses_v2 = 'm', stride();
}

#[cfg(feature = "old")]
lists! {
    nvmlDeviceGetComputeRunningProcesses = 'c', 16;
    nvmlDeviceGetGraphicsRunningProcesses = 'g', 16;
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ProcessUtilization {
    pid: c_uint,
    time_us: c_ulonglong,
    sm: c_uint,
    memory: c_uint,
    encoder: c_uint,
    decoder: c_uint,
}

/// The utilization of processes that take turns, over the device's samples since `since_us`. Each sample counts for one process.
fn turns(device: &str, since_us: u64) -> Result<Vec<ProcessUtilization>, Return> {
    let samples = script::samples(device)?;
    let period_us = samples.windows(2).map(|pair| pair[1].0 - pair[0].0).min().unwrap_or(1).max(1);
    let samples: Vec<_> = samples.into_iter().filter(|(at_us, _)| *at_us > since_us).collect();
    if samples.is_empty() {
        return Ok(Vec::new());
    }
    let mut pids: Vec<c_uint> = of_processes("held", device)
        .into_iter()
        .filter(|(_, words)| words.len() > 2)
        .map(|(pid, _)| pid)
        .collect();
    pids.sort_unstable();
    let is_active = |at_us: u64, pid: c_uint| pids[(at_us / period_us) as usize % pids.len()] == pid;
    let of_process = |pid: &c_uint| {
        let own: Vec<_> = samples.iter().filter(|(at_us, _)| is_active(*at_us, *pid)).collect();
        let sum: u64 = own.iter().map(|(_, percent)| percent).sum();
        let sm = c_uint::try_from(sum.div_ceil(samples.len() as u64)).unwrap_or(0);
        let time_us = own.last()?.0;
        Some(ProcessUtilization { pid: *pid, time_us, sm, memory: 0, encoder: 0, decoder: 0 })
    };
    Ok(pids.iter().filter_map(of_process).collect())
}

/// Each process with a utilization in its file has one sample at each of `process_times`. If that is `now`, the other
/// processes have samples of 0%. With `outer_pids` they have other pids than in the lists, as in a container.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetProcessUtilization(
    device: Device,
    place: *mut ProcessUtilization,
    count: *mut c_uint,
    since_us: c_ulonglong,
) -> Return {
    let _call = script::called("nvmlDeviceGetProcessUtilization");
    if number(&name(device), "newer_process_call") == Ok(1) {
        return NOT_SUPPORTED;
    }
    // SAFETY: nvml.h's contract, passed on.
    unsafe { process_utilization(device, place, count, since_us) }
}

/// The entry of the newer call: 40 bytes with its padding.
#[cfg(not(any(feature = "old", feature = "second")))]
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ProcessUtilizationInfo {
    time_us: c_ulonglong,
    pid: c_uint,
    sm: c_uint,
    others: [c_uint; 5],
}

#[cfg(not(any(feature = "old", feature = "second")))]
#[repr(C)]
pub struct ProcessesUtilizationInfo {
    version: c_uint,
    count: c_uint,
    since_us: c_ulonglong,
    entries: *mut ProcessUtilizationInfo,
}

/// The call of Blackwell, of which the older one is not supported.
#[cfg(not(any(feature = "old", feature = "second")))]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetProcessesUtilizationInfo(
    device: Device,
    place: *mut ProcessesUtilizationInfo,
) -> Return {
    let _call = script::called("nvmlDeviceGetProcessesUtilizationInfo");
    // SAFETY: by nvml.h's contract the caller passes a valid struct.
    let asked = unsafe { &mut *place };
    if asked.version != 0x0100_0018 {
        return INVALID_ARGUMENT;
    }
    if asked.entries.is_null() {
        std::process::abort();
    }
    let room = asked.count as usize;
    let none = ProcessUtilization { pid: 0, time_us: 0, sm: 0, memory: 0, encoder: 0, decoder: 0 };
    let mut samples = vec![none; room];
    // SAFETY: the buffer has as many entries as the count says.
    let result =
        unsafe { process_utilization(device, samples.as_mut_ptr(), &mut asked.count, asked.since_us) };
    for (index, sample) in samples.iter().take(asked.count as usize).enumerate() {
        let entry = ProcessUtilizationInfo {
            time_us: sample.time_us,
            pid: sample.pid,
            sm: sample.sm,
            others: [0; 5],
        };
        // SAFETY: by nvml.h's contract the array has as many entries as the count said, and `samples` has as many.
        unsafe { asked.entries.add(index).write(entry) };
    }
    result
}

/// What both calls give.
unsafe fn process_utilization(
    device: Device,
    place: *mut ProcessUtilization,
    count: *mut c_uint,
    since_us: c_ulonglong,
) -> Return {
    let device = name(device);
    script::sampled(&device, Part::Utilization);
    let times = match script::process_times(&device) {
        Ok(times) => times,
        Err(code) => return code,
    };
    if times.trim() == "turns" {
        return match turns(&device, since_us) {
            Ok(samples) if samples.is_empty() => NOT_FOUND,
            // SAFETY: nvml.h's contract, passed on.
            Ok(samples) => unsafe { put_list(count, place, &samples) },
            Err(code) => code,
        };
    }
    let is_stale = text(&device, "stale").is_ok();
    let includes_idle = times.trim() == "now";
    let times: Vec<u64> = times.split_whitespace().map(script::time_us).collect();
    let off = if text(&device, "outer_pids").is_ok() { FOREIGN } else { 0 };
    let mut samples = Vec::new();
    for (pid, words) in of_processes("held", &device) {
        let pid = pid + off;
        let sm = words.get(2).and_then(|sm| sm.parse().ok()).or(includes_idle.then_some(0));
        let Some(sm) = sm else { continue };
        for at in times.iter().filter(|at| is_stale || **at > since_us) {
            samples.push(ProcessUtilization { pid, time_us: *at, sm, memory: 0, encoder: 0, decoder: 0 });
        }
    }
    if samples.is_empty() {
        return NOT_FOUND;
    }
    // Some drivers want room for all samples that they keep.
    if let Ok(room) = number(&device, "process_room") {
        let room = c_uint::try_from(room).unwrap_or(c_uint::MAX);
        // SAFETY: nvml.h's contract: the count is that of the buffer.
        unsafe {
            if count.read() < room {
                count.write(room);
                return INSUFFICIENT_SIZE;
            }
        }
    }
    // Some drivers count more entries than they fill in; the rest is uninitialized memory.
    if let Ok(noise) = number(&device, "noise") {
        let first = samples.first().map_or(0, |sample| sample.pid);
        samples.extend((0..noise).map(|n| ProcessUtilization {
            pid: first,
            time_us: if n % 2 == 0 { c_ulonglong::MAX - n } else { now_us() },
            sm: if n % 2 == 0 { 0 } else { c_uint::MAX },
            memory: 0,
            encoder: 0,
            decoder: 0,
        }));
    }
    // SAFETY: nvml.h's contract, passed on.
    unsafe { put_list(count, place, &samples) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetAccountingMode(device: Device, place: *mut c_uint) -> Return {
    let _call = script::called("nvmlDeviceGetAccountingMode");
    let device = name(device);
    let set = std::fs::read_to_string(path(&format!("accounting.{device}"))).ok();
    let mode = match set.and_then(|mode| mode.trim().parse().ok()) {
        Some(mode) => Ok(mode),
        None => number(&device, "accounting").map(|mode| c_uint::try_from(mode).unwrap_or(0)),
    };
    // SAFETY: nvml.h's contract, passed on.
    unsafe { put(place, mode) }
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceSetAccountingMode(device: Device, mode: c_uint) -> Return {
    let _call = script::called("nvmlDeviceSetAccountingMode");
    let device = name(device);
    match text(&device, "accounting_set") {
        Ok(_) => match std::fs::write(path(&format!("accounting.{device}")), mode.to_string()) {
            Ok(()) => SUCCESS,
            Err(_) => NOT_SUPPORTED,
        },
        Err(code) => code,
    }
}

/// The newest accounting entries, as many as the driver's buffer holds.
fn accounting_entries(device: &str) -> Vec<(u32, Vec<String>)> {
    let mut entries = of_processes("account", device);
    entries.sort_by_key(|(_, words)| words.get(2).and_then(|at| at.parse::<u64>().ok()));
    let capacity = number(device, "accounting_room").map_or(4000, |capacity| capacity as usize);
    entries.split_off(entries.len().saturating_sub(capacity))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetAccountingPids(
    device: Device,
    count: *mut c_uint,
    place: *mut c_uint,
) -> Return {
    let _call = script::called("nvmlDeviceGetAccountingPids");
    script::sampled(&name(device), Part::Accounting);
    let pids: Vec<c_uint> = accounting_entries(&name(device)).into_iter().map(|(pid, _)| pid).collect();
    // SAFETY: nvml.h's contract, passed on.
    unsafe { put_list(count, place, &pids) }
}

#[repr(C)]
pub struct AccountingStats {
    gpu: c_uint,
    memory: c_uint,
    peak_bytes: c_ulonglong,
    time_ms: c_ulonglong,
    start_us: c_ulonglong,
    is_running: c_uint,
    reserved: [c_uint; 5],
}

/// A process counts as running until `accounting_lag` readings after its end, as in real drivers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetAccountingStats(
    device: Device,
    pid: c_uint,
    place: *mut AccountingStats,
) -> Return {
    let _call = script::called("nvmlDeviceGetAccountingStats");
    let device = name(device);
    if pid == 0 {
        return INVALID_ARGUMENT;
    }
    let Some((_, words)) = accounting_entries(&device).into_iter().find(|(listed, _)| *listed == pid) else {
        return NOT_FOUND;
    };
    let word = |index: usize| words.get(index).and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
    let lag = number(&device, "accounting_lag").unwrap_or(0);
    let is_running = script::count(format!("account {device} {pid}")) < lag;
    let stats = AccountingStats {
        gpu: c_uint::try_from(number(&device, "accounting_percent").unwrap_or(word(1))).unwrap_or(0),
        memory: 0,
        // While the process runs, its entry is not complete.
        peak_bytes: if is_running { word(0) / 2 } else { word(0) },
        time_ms: 1,
        start_us: word(2),
        is_running: c_uint::from(is_running),
        reserved: [0; 5],
    };
    // SAFETY: nvml.h's contract, passed on.
    unsafe { put(place, Ok(stats)) }
}
