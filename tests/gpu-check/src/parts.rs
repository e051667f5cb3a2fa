//! The parts of this program that run under gpu-track-run and use the GPU in a known way.

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::cuda::{Cuda, Work};
use crate::holders;
use crate::nvml::{Nvml, clock_s};
use crate::opinion::Opinion;
use crate::process;

/// A part ends after this time, even if the driver hangs.
const PART_AT_MOST: Duration = Duration::from_secs(120);

/// Runs a part, if this is the name of one.
pub(crate) fn run(part: &str, arguments: &[&str]) -> Option<Result<(), String>> {
    let part = part.strip_prefix("part:")?;
    process::end_after(PART_AT_MOST);
    let ms = |word: &str| Duration::from_millis(word.parse().unwrap_or(0));
    Some(match (part, arguments) {
        ("hold", [kind, bytes]) => hold(kind, bytes.parse().unwrap_or(0)),
        ("hold_all", [plan, path, held]) => holders::hold_all(plan, path, ms(held)),
        ("brief", [bytes, held]) => brief(bytes.parse().unwrap_or(0), ms(held)),
        ("spin", [time]) => spin(ms(time)),
        ("pulse", [path, time, count]) => pulse(path, ms(time), count.parse().unwrap_or(0)),
        ("two", [path, time]) => two(path, time),
        ("energy", [path, time]) => energy(path, ms(time)),
        ("opinion", [path, rest, load]) => opinion(path, ms(rest), ms(load)),
        ("copy", [bytes, count, pause]) => {
            copy(bytes.parse().unwrap_or(0), count.parse().unwrap_or(0), ms(pause))
        }
        ("meter", [path, time]) => meter(path, ms(time)),
        ("loop", [path, time]) => allocate_and_free(path, ms(time)),
        ("context", []) => Cuda::start().map(|_| ()),
        _ => Err(format!("{part} {arguments:?}: no such part")),
    })
}

fn say(line: &str) {
    let mut stdout = std::io::stdout().lock();
    let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
}

/// A line for the log.
fn note(line: &str) -> Result<(), String> {
    writeln!(std::io::stderr(), "{line}").map_err(|error| error.to_string())
}

fn write(path: &str, numbers: &[f64]) -> Result<(), String> {
    let text: Vec<String> = numbers.iter().map(f64::to_string).collect();
    std::fs::write(path, text.join(" ")).map_err(|error| format!("{path}: {error}"))
}

/// Holds memory until the standard input ends.
fn hold(kind: &str, bytes: u64) -> Result<(), String> {
    let cuda = Cuda::start()?;
    let (before, _) = cuda.memory()?;
    match kind {
        "plain" => drop(cuda.allocate(bytes)?),
        "pool" => cuda.allocate_from_pool(bytes)?,
        "managed" => cuda.allocate_managed(bytes)?,
        _ => {}
    }
    let (after, _) = cuda.memory()?;
    say(&format!("held {}", before.saturating_sub(after)));
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    Ok(())
}

/// Holds memory for a time.
fn brief(bytes: u64, held: Duration) -> Result<(), String> {
    let cuda = Cuda::start()?;
    cuda.allocate(bytes)?;
    std::thread::sleep(held);
    Ok(())
}

/// Keeps the device busy from a second thread, because some drivers identify a process by the thread that opened the device.
fn spin(time: Duration) -> Result<(), String> {
    let spinning = std::thread::spawn(move || {
        let cuda = Cuda::start()?;
        let work = Work::new(&cuda)?;
        work.run(&cuda)?;
        say(&format!("spins by {}", work.name()));
        let until = Instant::now() + time;
        while Instant::now() < until {
            work.run(&cuda)?;
        }
        Ok(())
    });
    spinning.join().unwrap_or_else(|_| Err("the thread panicked".into()))
}

/// Keeps the device busy for `time`, and idle for as long, `count` times. Writes for how long it was busy in all, and
/// between the first work and the end. The driver tells of the last work only after it, so it ends idle.
fn pulse(path: &str, time: Duration, count: u32) -> Result<(), String> {
    let cuda = Cuda::start()?;
    let work = Work::new(&cuda)?;
    let (start, mut busy_s) = (Instant::now(), 0.0);
    for _ in 0..count {
        let began = Instant::now();
        while began.elapsed() < time {
            work.run(&cuda)?;
        }
        busy_s += began.elapsed().as_secs_f64();
        std::thread::sleep(time);
    }
    std::thread::sleep(3 * time);
    // The lines show whether the driver takes samples while nothing runs, and over what it takes a process's mean.
    if let Ok(nvml) = Nvml::start() {
        for line in [nvml.device_samples(), nvml.process_samples()] {
            note(&format!("at the end: {line}"))?;
        }
    }
    write(path, &[busy_s, start.elapsed().as_secs_f64()])
}

/// A busy process and an idle one on the same device; writes their pids.
fn two(path: &str, time: &str) -> Result<(), String> {
    let child = |part: &str, arguments: &[&str]| {
        let arguments: Vec<String> = arguments.iter().map(|word| (*word).to_owned()).collect();
        let words = process::part(part, &arguments);
        let (program, rest) = words.split_first().ok_or("no program")?;
        let mut child = Command::new(program);
        child.args(rest).stdin(Stdio::piped()).stdout(Stdio::null());
        child.spawn().map_err(|error| format!("{program}: {error}"))
    };
    let mut idle = child("hold", &["plain", &(64_u64 << 20).to_string()])?;
    let mut busy = child("spin", &[time])?;
    write(path, &[f64::from(busy.id()), f64::from(idle.id())])?;
    let status = busy.wait().map_err(|error| error.to_string())?;
    drop(idle.stdin.take());
    let _ = idle.wait();
    if status.success() { Ok(()) } else { Err(format!("the busy process ended with {status}")) }
}

/// Reads the energy counter twice; writes the difference in joules and the time between in seconds.
fn energy(path: &str, time: Duration) -> Result<(), String> {
    let nvml = Nvml::start().map_err(|_| "no driver")?;
    let (before, start) = (nvml.energy_j(), Instant::now());
    std::thread::sleep(time);
    let (after, took_s) = (nvml.energy_j(), start.elapsed().as_secs_f64());
    match (before, after) {
        (Some(before), Some(after)) => write(path, &[after - before, took_s]),
        _ => Err("the energy counter can't be read".into()),
    }
}

/// Writes the second opinion on a GPU that is busy for a time, between two at rest.
fn opinion(path: &str, rest: Duration, load: Duration) -> Result<(), String> {
    let opinion = Opinion::of_load(rest, load)?;
    let text = serde_json::to_string(&opinion).map_err(|error| error.to_string())?;
    std::fs::write(path, text).map_err(|error| format!("{path}: {error}"))
}

/// Copies `bytes` bytes to the device `count` times, with pauses; prints what the driver's counter did.
fn copy(bytes: u64, count: u32, pause: Duration) -> Result<(), String> {
    let cuda = Cuda::start()?;
    let (place, from) = (cuda.allocate(bytes)?, cuda.allocate_on_host(bytes)?);
    let nvml = Nvml::start().map_err(|_| "no driver")?;
    let read = || nvml.received_bytes().unwrap_or(0);
    std::thread::sleep(pause);
    let (first, mut counted, mut last) = (read(), 0_u64, read());
    for _ in 0..count {
        cuda.copy_to_device(place, from, bytes)?;
        std::thread::sleep(pause);
        let now = read();
        counted += u64::from((now as u32).wrapping_sub(last as u32));
        last = now;
    }
    let copied = bytes * u64::from(count);
    let line =
        format!("copied {copied} bytes; PCIe counter from {first} to {last}, steps of 32 bits {counted}");
    note(&line)
}

/// Allocates and frees 1 MiB for a time; writes the seconds that a pair takes.
fn allocate_and_free(path: &str, time: Duration) -> Result<(), String> {
    let cuda = Cuda::start()?;
    let (start, mut pairs) = (Instant::now(), 0_u32);
    while pairs == 0 || start.elapsed() < time {
        for _ in 0..16 {
            cuda.free(cuda.allocate(1 << 20)?)?;
        }
        pairs += 16;
    }
    write(path, &[start.elapsed().as_secs_f64() / f64::from(pairs)])
}

/// With a context, measures the CPU time of the collector, which is the launcher's other child, for `time`; writes both
/// in seconds.
fn meter(path: &str, time: Duration) -> Result<(), String> {
    let _cuda = Cuda::start()?;
    // By now the collector has its driver initialised.
    std::thread::sleep(time / 4);
    let collector = collector().ok_or("the launcher has no other child")?;
    let (before, start) = (cpu_s(collector), Instant::now());
    std::thread::sleep(time);
    match (before, cpu_s(collector)) {
        (Some(before), Some(after)) => write(path, &[after - before, start.elapsed().as_secs_f64()]),
        // Some sandboxes have no clock of another process.
        _ => Ok(()),
    }
}

fn collector() -> Option<u32> {
    let (own, launcher) = (std::process::id(), std::os::unix::process::parent_id());
    let pids =
        std::fs::read_dir("/proc").ok()?.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok());
    let parent = |pid: u32| -> Option<u32> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
    };
    pids.into_iter().find(|pid| *pid != own && parent(*pid) == Some(launcher))
}

/// CPU time of a process, seconds.
fn cpu_s(pid: u32) -> Option<f64> {
    let mut clock = 0;
    // SAFETY: one live clock id.
    let code = unsafe { libc::clock_getcpuclockid(libc::pid_t::try_from(pid).ok()?, &raw mut clock) };
    if code == 0 { clock_s(clock) } else { None }
}
