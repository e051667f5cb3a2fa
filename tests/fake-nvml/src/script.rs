//! The fake driver's answers. They come from files in the directory that FAKE_NVML_DIR names:
//!
//! - `script`: lines `KEY VALUE`. The test can replace the file at any time by rename. `0.power` is the key of a device,
//!   `0m1.name` that of a MIG instance, and `*.power` is the default for all devices. A value `!15` makes the call return
//!   15; a missing key makes it return NOT_SUPPORTED. `A|B|C` is A at the first call, B at the second, C from then on.
//!
//!   Times are microseconds after the driver's start, or `now`. With the key `clock` they are by another clock: one that
//!   counts from boot (`boot`), or one that is off by so many microseconds.
//! - `held/PID.DEVICE`: `BYTES [LISTS [SM]]`: the memory of a process (`na`: not available), the lists that contain it
//!   (`c`, `g`, `m`), and its utilization.
//! - `account/PID.DEVICE`: `PEAK UTILIZATION START_US`: an accounting entry.
//! - `accounting.DEVICE`: the accounting mode, once it was set.
//!
//! Keys of the whole driver: `init` (its return value), `count`, `stride`, `clears_buffer`, `null_probe`, `cut` (a list
//! that exceeds its buffer is truncated with SUCCESS: `counts_written` or `counts_all`), `leak` (bytes per sample),
//! `init_runs` (a shell command), `init_crashes`, and `init.stall` and `power.stall` (milliseconds, `forever`, or the path
//! of a file that ends the stall when it exists).
//!
//! The driver writes these files:
//!
//! - `samples`: one byte for every reading of a device's power, which is once per sample.
//! - `stalled`: one byte at the beginning of each stall.
//! - `times`: CLOCK_MONOTONIC in nanoseconds, one line at the driver's start and one with each byte in `samples`.

use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

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

/// The value of a key of the whole driver.
pub fn global(key: &str) -> Option<String> {
    let script = fs::read_to_string(path("script")).ok()?;
    let value = |key: &str| {
        let is_it = |line: &&str| line.split_once(' ').map_or(*line, |(name, _)| name) == key;
        script
            .lines()
            .find(is_it)
            .map(|line| line.split_once(' ').map_or("", |(_, value)| value).trim().to_owned())
    };
    value(key).or_else(|| value(&format!("*.{}", key.split_once('.')?.1)))
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
    text(device, key)?.parse().map_err(|_| 999)
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

/// Leaks the bytes that the script's `leak` gives, as some libraries do at every call.
pub fn leak() {
    let bytes = global("leak").and_then(|bytes| bytes.parse().ok()).unwrap_or(0);
    std::mem::forget(vec![1u8; bytes]);
}

/// Notes that a sample was taken, and its time.
pub fn sampled() {
    note_time();
    append("samples", ".");
}

/// Notes the time of a call.
pub fn note_time() {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: one live timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    append("times", &format!("{}{:09}\n", now.tv_sec, now.tv_nsec));
}

fn append(name: &str, text: &str) {
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
        if let Some((pid, of)) = name.split_once('.')
            && of == device
            && let Ok(pid) = pid.parse()
            && let Ok(text) = fs::read_to_string(entry.path())
        {
            found.push((pid, text.split_whitespace().map(str::to_owned).collect()));
        }
    }
    found.sort();
    found
}
