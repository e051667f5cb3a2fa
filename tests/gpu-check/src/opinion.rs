//! A GPU under load as the nvml-wrapper crate reads it: a second opinion. It shares no code with gpu-track-run's reading of NVML,
//! nor with [`crate::nvml`], but the declarations that bindgen made of nvml.h.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};
use serde::{Deserialize, Serialize};

use crate::cuda::{Cuda, Work};
use crate::library;

/// Between two readings of memory and power.
const INTERVAL: Duration = Duration::from_millis(20);

/// What the crate reads; an error is its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Opinion {
    pub name: Result<String, String>,
    pub uuid: Result<String, String>,
    /// Memory that the device has, and the most in use, bytes.
    pub total_bytes: Result<u64, String>,
    pub used_bytes: Result<u64, String>,
    /// Largest power, watts.
    pub power_w: Result<f64, String>,
    pub energy: Result<Energy, String>,
}

/// The energy counter over a time at rest, one under load, and one at rest.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Energy {
    /// All three times together: energy, joules, and how long they took.
    pub joules: f64,
    pub seconds: f64,
    /// Mean power at rest before the load, and under load, watts.
    pub rest_w: f64,
    pub load_w: f64,
}

impl Opinion {
    /// Reads the first device, which rests for a time, is kept busy for another, and rests again.
    pub(crate) fn of_load(rest: Duration, load: Duration) -> Result<Self, String> {
        let nvml = library::open(&library::nvml(), |path| Nvml::builder().lib_path(path.as_os_str()).init())?;
        let device = nvml.device_by_index(0).map_err(text)?;
        let start = Counter::read(&device);
        std::thread::sleep(rest);
        let loaded = Counter::read(&device);
        let (memory, power) = under_load(&device, load)?;
        let unloaded = Counter::read(&device);
        std::thread::sleep(rest);
        let end = Counter::read(&device);
        let energy = || {
            let (start, loaded, unloaded, end) = (start?, loaded?, unloaded?, end?);
            let (joules, seconds) = end.since(&start);
            let watts = |later: &Counter, earlier| {
                let (joules, seconds) = later.since(earlier);
                joules / seconds
            };
            Ok(Energy { joules, seconds, rest_w: watts(&loaded, &start), load_w: watts(&unloaded, &loaded) })
        };
        Ok(Self {
            name: device.name().map_err(text),
            uuid: device.uuid().map_err(text),
            total_bytes: memory.clone().map(|(total, _)| total),
            used_bytes: memory.map(|(_, used)| used),
            power_w: power,
            energy: energy(),
        })
    }
}

/// Total memory and the most in use, bytes.
type Memory = Result<(u64, u64), String>;

/// What memory and power were while the device was kept busy, which a thread of its own does.
fn under_load(device: &Device, time: Duration) -> Result<(Memory, Result<f64, String>), String> {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let load = scope.spawn(|| -> Result<(), String> {
            let cuda = Cuda::start()?;
            let work = Work::on_memory(&cuda)?;
            while !is_over.load(Ordering::Relaxed) {
                work.run(&cuda)?;
            }
            Ok(())
        });
        let until = Instant::now() + time;
        let (mut memory, mut power): (Memory, _) = (Err("not read".into()), Err("not read".into()));
        while Instant::now() < until && !load.is_finished() {
            let now = device.memory_info().map_err(text).map(|now| (now.total, now.used));
            memory = largest(memory, now, |(total, before), (_, used)| (total, before.max(used)));
            let now = device.power_usage().map_err(text).map(|power_mw| f64::from(power_mw) / 1e3);
            power = largest(power, now, f64::max);
            std::thread::sleep(INTERVAL);
        }
        is_over.store(true, Ordering::Relaxed);
        load.join().unwrap_or_else(|_| Err("the thread panicked".into()))?;
        Ok((memory, power))
    })
}

/// The larger of two readings, as far as they succeeded.
fn largest<T: Copy>(
    before: Result<T, String>,
    now: Result<T, String>,
    larger: impl Fn(T, T) -> T,
) -> Result<T, String> {
    match (before, now) {
        (Ok(before), Ok(now)) => Ok(larger(before, now)),
        (Ok(known), Err(_)) | (Err(_), Ok(known)) => Ok(known),
        (Err(_), Err(error)) => Err(error),
    }
}

/// A reading of the energy counter.
struct Counter {
    joules: f64,
    at: Instant,
}

impl Counter {
    fn read(device: &Device) -> Result<Self, String> {
        let energy_mj = device.total_energy_consumption().map_err(text)?;
        Ok(Self { joules: energy_mj as f64 / 1e3, at: Instant::now() })
    }

    /// Joules and seconds since an earlier reading.
    fn since(&self, earlier: &Self) -> (f64, f64) {
        (self.joules - earlier.joules, (self.at - earlier.at).as_secs_f64())
    }
}

fn text(error: NvmlError) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_reading_is_kept_where_some_fail() {
        let failed = || Err("failed".to_owned());
        assert_eq!(largest(Ok(3), Ok(2), Ord::max), Ok(3));
        assert_eq!(largest(failed(), Ok(2), Ord::max), Ok(2));
        assert_eq!(largest(Ok(3), failed(), Ord::max), Ok(3));
        assert_eq!(largest::<i32>(Err("before".into()), failed(), Ord::max), failed());
    }
}
