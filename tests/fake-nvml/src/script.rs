//! The fake driver's answers. They come from files in the directory that FAKE_NVML_DIR names:
//!
//! - `script`: lines `KEY VALUE`. The test can replace the file at any time by rename. `0.power` is the key of a device,
//!   `0m1.name` that of a MIG instance, and `*.power` is the default for all devices. A value `!15` makes the call return
//!   15; a missing key makes it return NOT_SUPPORTED. `A|B|C` is A at the first call, B at the second, C from then on.
//!
//!   A number `1000+50/s` grows by 50 in each second since the driver's start.
//!
//!   `samples` are `TIME:PERCENT ...`, or a ring buffer: `ring LENGTH PERIOD PERCENT [FROM UNTIL]` is one sample in
//!   each PERIOD. It is PERCENT from FROM to UNTIL and 0 otherwise. The latest LENGTH are kept. With `bursts LENGTH
//!   PERIOD PERCENT BUSY EVERY` there are samples only in the first BUSY of each EVERY.
//!
//!   With `memory_held 1` the device's memory in use is `memory_used` and what processes hold. `crowd 100` puts 100 foreign
//!   processes on a device, from the pid `crowd_first` on.
//!
//!   `process_times` are the times of samples of processes. With `turns` the samples are those of the device, and the processes
//!   that have a utilization take turns: each sample is that of the one that is active then, as in NVIDIA's driver 580.
//!
//!   Times are microseconds after the driver's start, or `now`. With the key `clock` they are by another clock: one that
//!   counts from boot (`boot`), or one that is off by a number of microseconds.
//! - `held/PID.DEVICE`: `BYTES [LISTS [SM]]`: the memory of a process (`na`: not available), the lists that contain it
//!   (`c`, `g`, `m`), and its utilization.
//! - `account/PID.DEVICE`: `PEAK UTILIZATION START_US`: an accounting entry.
//! - `accounting.DEVICE`: the accounting mode, once it was set.
//!
//! Keys of the whole driver: `init` (its return value), `count`, `stride`, `clears_buffer`, `null_probe`, `cut`,
//! `init_runs` (a shell command), `init_umask` (octal), `init_prints`, `init_crashes`, `init_exits` (a status), `init.stall` and
//! `power.stall`. `event_wait` is what the call for the next event returns if no event is queued: TIMEOUT without it. With `cut`, a list
//! that exceeds its buffer is truncated with SUCCESS: `counts_written` or `counts_all`. A stall is in milliseconds, `forever`, or the
//! path of a file that ends the stall when it exists.
//!
//! The environment variable FAKE_NVML_COST_US says what calls cost, in microseconds. A number is for all calls, and
//! `PART=NUMBER` for those whose name contains PART, such as `50 RunningProcesses=4500`. The last word that fits
//! counts.
//!
//! The driver writes these files:
//!
//! - `calls`: one line with its name for every call, if that file exists at the driver's start.
//! - `spent`: one line with the nanoseconds that it took for every call, if that file exists then.
//! - `samples`: one byte each time that all figures of a device were asked for.
//! - `stalled`: one byte at the beginning of each stall.
//! - `times`: CLOCK_MONOTONIC in nanoseconds, one line at the driver's start and one for each reading of a device's power.

use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// NVML's NOT_SUPPORTED.
pub const NOT_SUPPORTED: u32 = 3;

/// The driver's start in this process, in microseconds since the epoch. The script's times count from here.
pub static START_US: LazyLock<u64> = LazyLock::new(now_us);

/// The machine's boot, in microseconds since the epoch.
static BOOTED_US: LazyLock<u64> = LazyLock::new(|| now_us().saturating_sub(boot_us()));

/// How often each call was counted (see [`count`]).
static COUNTS: LazyLock<Mutex<HashMap<String, u64>>> = LazyLock::new(Mutex::default);

/// Microseconds since the epoch.
pub fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// A time in the script, by the driver's clock.
pub fn time_us(word: &str) -> u64 {
    let us = if word == "now" { now_us() } else { START_US.saturating_add(word.parse().unwrap_or(0)) };
    match global("clock").as_deref() {
        None => us,
        Some("boot") => us.saturating_sub(*BOOTED_US),
        Some(off) => us.saturating_add_signed(off.parse().unwrap_or(0)),
    }
}

/// Microseconds since boot.
fn boot_us() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: one live timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &mut now) };
    u64::try_from(now.tv_sec * 1_000_000 + now.tv_nsec / 1000).unwrap_or(0)
}

/// Path of a file in the script's directory.
pub fn path(name: &str) -> PathBuf {
    PathBuf::from(std::env::var_os("FAKE_NVML_DIR").unwrap_or_default()).join(name)
}

/// Counts a call; gives how often it was counted before.
pub fn count(what: String) -> u64 {
    let mut counts = COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    let count = counts.entry(what).or_default();
    *count += 1;
    *count - 1
}

/// The script as it was read last, and the inode and time that tell whether it was replaced.
type Script = ((u64, i64, i64), HashMap<String, String>);

static SCRIPT: LazyLock<Mutex<Option<Script>>> = LazyLock::new(Mutex::default);

/// The value of a key of the whole driver.
pub fn global(key: &str) -> Option<String> {
    let file = path("script");
    let about = fs::metadata(&file).ok()?;
    let version = (about.ino(), about.mtime(), about.mtime_nsec());
    let mut script = SCRIPT.lock().unwrap_or_else(PoisonError::into_inner);
    if script.as_ref().is_none_or(|(known, _)| *known != version) {
        let text = fs::read_to_string(&file).ok()?;
        let mut values = HashMap::new();
        for line in text.lines() {
            let (name, value) = line.split_once(' ').unwrap_or((line, ""));
            values.entry(name.to_owned()).or_insert_with(|| value.trim().to_owned());
        }
        *script = Some((version, values));
    }
    let values = &script.as_ref()?.1;
    values.get(key).or_else(|| values.get(&format!("*.{}", key.split_once('.')?.1))).cloned()
}

/// The value of a device's key, or the call's return value.
pub fn text(device: &str, key: &str) -> Result<String, u32> {
    if let Some(lost) = global(&format!("{device}.lost")).filter(|value| value != "0") {
        return Err(lost.parse().unwrap_or(15));
    }
    let values = global(&format!("{device}.{key}")).ok_or(NOT_SUPPORTED)?;
    let value = match values.split('|').count() {
        1 => values.as_str(),
        answers => {
            let call = usize::try_from(count(format!("{device}.{key}"))).unwrap_or(usize::MAX);
            values.split('|').nth(call.min(answers - 1)).unwrap_or_default()
        }
    };
    match value.strip_prefix('!') {
        Some(code) => Err(code.parse().unwrap_or(999)),
        None => Ok(value.to_owned()),
    }
}

/// The value of a device's key as a number.
pub fn number(device: &str, key: &str) -> Result<u64, u32> {
    let value = text(device, key)?;
    let number = |text: &str| text.parse::<u64>().map_err(|_| 999);
    match value.strip_suffix("/s").and_then(|value| value.split_once('+')) {
        Some((first, rate)) => {
            let grown =
                u128::from(number(rate)?) * u128::from(now_us().saturating_sub(*START_US)) / 1_000_000;
            Ok(number(first)? + u64::try_from(grown).unwrap_or(u64::MAX))
        }
        None => number(&value),
    }
}

/// What `process_times` of each device was when the device's samples were asked for last.
static PROCESS_TIMES: LazyLock<Mutex<HashMap<String, Result<String, u32>>>> = LazyLock::new(Mutex::default);

/// Keeps `process_times` of a device for [`process_times`]. A driver has one ring of samples for the device and its processes. So a
/// script that comes between these two calls must not make the samples of processes newer than those of the device.
pub fn keep_process_times(device: &str) {
    let times = text(device, "process_times");
    PROCESS_TIMES.lock().unwrap_or_else(PoisonError::into_inner).insert(device.to_owned(), times);
}

/// The times of the samples of a device's processes.
pub fn process_times(device: &str) -> Result<String, u32> {
    let kept = PROCESS_TIMES.lock().unwrap_or_else(PoisonError::into_inner).get(device).cloned();
    kept.unwrap_or_else(|| text(device, "process_times"))
}

/// The utilization samples that a device has now, oldest first: time in microseconds, and percent.
pub fn samples(device: &str) -> Result<Vec<(u64, u64)>, u32> {
    let list = text(device, "samples")?;
    Ok(match (list.strip_prefix("ring "), list.strip_prefix("bursts ")) {
        (Some(words), _) => ring(words),
        (_, Some(words)) => bursts(words),
        _ => listed(&list),
    })
}

/// Utilization samples `TIME:PERCENT ...`.
fn listed(list: &str) -> Vec<(u64, u64)> {
    let words = list.split_whitespace().filter_map(|word| word.split_once(':'));
    words.map(|(at, value)| (time_us(at), value.parse().unwrap_or(0))).collect()
}

/// The samples that are in a ring buffer now.
fn ring(words: &str) -> Vec<(u64, u64)> {
    let mut words = words.split_whitespace().map(|word| word.parse::<u64>().unwrap_or(0));
    let [length, period, percent] = [(); 3].map(|()| words.next().unwrap_or(1));
    let (from, until) = (words.next().unwrap_or(0), words.next().unwrap_or(u64::MAX));
    let last = now_us().saturating_sub(*START_US) / period.max(1);
    let sample = |number: u64| {
        let us = number * period;
        (time_us(&us.to_string()), if (from..until).contains(&us) { percent } else { 0 })
    };
    ((last + 1).saturating_sub(length)..=last).map(sample).collect()
}

/// The samples that are in a ring buffer now, of a device that is sampled while it is busy only.
fn bursts(words: &str) -> Vec<(u64, u64)> {
    let words: Vec<u64> = words.split_whitespace().map(|word| word.parse().unwrap_or(1)).collect();
    let [length, period, percent, busy, every] = words[..] else { return Vec::new() };
    let last = now_us().saturating_sub(*START_US) / period;
    let samples = (1..=last).rev().map(|number| number * period);
    let samples = samples.filter(|us| (1..=busy).contains(&(us % every)));
    let mut kept: Vec<_> =
        samples.take(length as usize).map(|us| (time_us(&us.to_string()), percent)).collect();
    kept.reverse();
    kept
}

/// What a call costs, by parts of its name; an empty part is in every name.
static COSTS: LazyLock<Vec<(String, u64)>> = LazyLock::new(|| {
    let costs = std::env::var("FAKE_NVML_COST_US").unwrap_or_default();
    let cost = |word: &str| {
        let (part, us) = word.split_once('=').unwrap_or(("", word));
        (part.to_owned(), us.parse().unwrap_or(0))
    };
    costs.split_whitespace().map(cost).collect()
});

/// Whether calls are written down.
static NOTES_CALLS: LazyLock<bool> = LazyLock::new(|| path("calls").exists());

/// Whether it is written down how long they took.
static NOTES_TIME: LazyLock<bool> = LazyLock::new(|| path("spent").exists());

/// A call that is not over.
#[must_use = "the call ends when this is dropped"]
pub struct Call(Instant);

impl Drop for Call {
    fn drop(&mut self) {
        if *NOTES_TIME {
            append("spent", &format!("{}\n", self.0.elapsed().as_nanos()));
        }
    }
}

/// A call begins: it takes as long as FAKE_NVML_COST_US says.
pub fn called(name: &str) -> Call {
    let call = Call(Instant::now());
    if *NOTES_CALLS {
        append("calls", &format!("{name}\n"));
    }
    if let Some((_, us)) = COSTS.iter().rev().find(|(part, _)| name.contains(part.as_str())) {
        std::thread::sleep(Duration::from_micros(*us));
    }
    call
}

/// Delays the call as the script's `KEY.stall` says.
pub fn stall(key: &str) {
    let ms = |ms| std::thread::sleep(Duration::from_millis(ms));
    let stall = text(key, "stall");
    if stall.as_deref().is_ok_and(|stall| stall != "0") {
        append("stalled", ".");
    }
    match stall.as_deref() {
        Err(_) => {}
        Ok("forever") => loop {
            std::thread::park();
        },
        Ok(file) if file.starts_with('/') => {
            while !fs::exists(file).unwrap_or(true) {
                ms(1);
            }
        }
        Ok(number) => ms(number.parse().unwrap_or(0)),
    }
}

/// A part of a reading: each is asked for by calls of its own, at a rate of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Part {
    Lists,
    Utilization,
    Energy,
    Power,
    Gauges,
    Accounting,
    Pcie,
    Errors,
}

/// The parts that were asked for since the device's last complete reading.
static READ: LazyLock<Mutex<HashMap<String, Vec<Part>>>> = LazyLock::new(Mutex::default);

/// Notes that a part of a device's figures was asked for, and whether they all were.
pub fn sampled(device: &str, part: Part) {
    let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
    let parts = read.entry(device.to_owned()).or_default();
    if !parts.contains(&part) {
        parts.push(part);
    }
    let is_divided = number(device, "mig") == Ok(1);
    let has_accounting = number(device, "accounting") == Ok(1);
    let is_needed = |part: &Part| match part {
        Part::Lists | Part::Utilization => !is_divided,
        Part::Accounting => has_accounting,
        // Performance counters have the rates of PCIe.
        Part::Pcie => number(device, "gpm") != Ok(1),
        // Error counts are read at the start and at the end only.
        Part::Errors => false,
        _ => true,
    };
    use Part::{Accounting, Energy, Errors, Gauges, Lists, Pcie, Power, Utilization};
    let all = [Lists, Utilization, Energy, Power, Gauges, Accounting, Pcie, Errors];
    if all.iter().filter(|part| is_needed(part)).all(|part| parts.contains(part)) {
        parts.clear();
        append("samples", ".");
    }
}

/// Notes the time of a call.
pub fn note_time() {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: one live timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    append("times", &format!("{}{:09}\n", now.tv_sec, now.tv_nsec));
}

pub fn append(name: &str, text: &str) {
    let file = fs::OpenOptions::new().append(true).create(true).open(path(name));
    if let Ok(mut file) = file {
        let _ = file.write_all(text.as_bytes());
    }
}

/// The files in a directory that belong to a device: the pid in the name, and the file's words.
pub fn of_processes(directory: &str, device: &str) -> Vec<(u32, Vec<String>)> {
    let Ok(entries) = fs::read_dir(path(directory)) else { return Vec::new() };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if let Some((pid, owner)) = name.split_once('.')
            && owner == device
            && let Ok(pid) = pid.parse()
            && let Ok(text) = fs::read_to_string(entry.path())
        {
            found.push((pid, text.split_whitespace().map(str::to_owned).collect()));
        }
    }
    found.sort();
    found
}
