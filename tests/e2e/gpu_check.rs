//! tests/gpu-check on a fake GPU: the driver of tests/fake-nvml, and the libcuda of tests/programs. What it says of a real one
//! is not tested here.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support::gpu::{FakeGpus, VISIBILITY, built};
use crate::support::programs::compiled;
use crate::support::run::BINARY;

fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| built("gpu-check", "").join("gpu-check"))
}

/// gpu-check with the fake driver and these arguments.
fn gpu_check(gpus: &FakeGpus, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let cuda = compiled("libcuda", "cc", &["-shared", "-fPIC"]);
    let _ = std::os::unix::fs::symlink(cuda, gpus.path("libcuda.so.1"));
    gpu_check_without_cuda(gpus, arguments, variables)
}

/// Runs gpu-check where there is no fake libcuda.
fn gpu_check_without_cuda(gpus: &FakeGpus, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(program());
    for name in VISIBILITY {
        command.env_remove(name);
    }
    command
        .args(arguments)
        .env("FAKE_NVML_DIR", gpus.path(""))
        .env("LD_LIBRARY_PATH", gpus.path(""))
        .env("GPU_TRACK_NVML_LIB", gpus.library_of_its_name())
        .envs(variables.iter().copied());
    command.output().unwrap()
}

/// Keeps the driver's script up to date with what processes hold, until `is_over`. The GPU takes 100 W at rest and 400
/// W at work, and others use 1 GB of it.
fn follow(gpus: &FakeGpus, is_over: &AtomicBool) {
    let (mut last, mut joules) = (Instant::now(), 0.0);
    while !is_over.load(Ordering::Relaxed) {
        let (mut held, mut percent) = (1_000_000_000, 0);
        for entry in std::fs::read_dir(gpus.path("held")).unwrap().flatten() {
            let name = entry.file_name().into_string().unwrap();
            // A process that was killed holds nothing any more.
            if name.split_once('.').is_some_and(|(pid, _)| !Path::new("/proc").join(pid).exists()) {
                let _ = std::fs::remove_file(entry.path());
                continue;
            }
            let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
            let words: Vec<u64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
            held += words.first().unwrap_or(&0);
            percent = words.get(1).copied().unwrap_or(0).max(percent);
        }
        let watts = if percent == 0 { 100.0 } else { 400.0 };
        let now = Instant::now();
        joules += watts * (now - last).as_secs_f64();
        last = now;
        let (power_mw, energy_mj) = (watts * 1e3, (joules * 1e3) as u64);
        let received = std::fs::metadata(gpus.path("copied")).map_or(0, |file| 1024 * file.len());
        let use_now = format!("*.memory_used {held}\n*.samples now:{percent}");
        let use_now = format!("{use_now}\n*.energy {energy_mj}\n*.power {power_mw}");
        gpus.script("script", &format!("{use_now}\n*.pcie_rx {received}"));
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The lines of the checks whose figures don't depend on how fast this machine is.
const EXACT: [&str; 23] = [
    "gpu-track-run --gpus",
    "the GPU can be kept busy",
    "memory (context)",
    "memory (plain)",
    "memory (pool)",
    "the same by NVML's list (context)",
    "the same by NVML's list (plain)",
    "the same by NVML's list (pool)",
    "the same by cuMemGetInfo (plain)",
    "the same by cuMemGetInfo (pool)",
    "combined is their sum",
    "the busy process is known",
    "UUID by nvml-wrapper",
    "name by nvml-wrapper",
    "memory by nvml-wrapper",
    "memory in use by nvml-wrapper",
    "bytes received over PCIe",
    "--guuids",
    "CUDA_VISIBLE_DEVICES by UUID",
    "a GPU in use is not called idle",
    "CUDA_VISIBLE_DEVICES=\"0\"",
    "CUDA_VISIBLE_DEVICES=\"\"",
    "a command that leaves its GPU idle",
];

#[test]
fn gpu_check_judges_a_fake_gpu_right() {
    let gpus = FakeGpus::new(1, "");
    let log = gpus.path("log");
    let is_over = AtomicBool::new(false);
    let output = std::thread::scope(|scope| {
        scope.spawn(|| follow(&gpus, &is_over));
        let output = gpu_check(&gpus, &["--short", "--quick", "--log", &log, BINARY], &[]);
        is_over.store(true, Ordering::Relaxed);
        output
    });
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    for what in EXACT {
        assert!(text.contains(&format!("\nok   {what}: ")), "{what}: {text}\n{errors}");
        assert!(!text.contains(&format!("\nFAIL {what}: ")), "{what}: {text}\n{errors}");
    }
    for start in [
        "gpu-check: Fake A100, GPU-fake-0, driver 550.54.15, 1 GPU(s); ",
        "| ComputeRunningProcesses_v3 | ",
        "| TotalEnergyConsumption | ",
        "     --st 0.01: collector ",
        "     cuMemAlloc and cuMemFree of 1 MiB: ",
        "skip accounting: it is off, and only --accounting switches it on",
    ] {
        assert!(text.lines().any(|line| line.starts_with(start)), "{start}: {text}\n{errors}");
    }
    // How exact energy is depends on how fast this machine is. That there is a load does not.
    for figure in ["energy under load within 2% of the counter's", "largest power"] {
        let is_compared = |line: &str| {
            [format!("ok   {figure} by nvml-wrapper: "), format!("FAIL {figure} by nvml-wrapper: ")]
                .iter()
                .any(|start| line.strip_prefix(start.as_str()).is_some_and(|rest| !rest.contains("n/a")))
        };
        assert!(text.lines().any(is_compared), "{figure}: {text}\n{errors}");
    }
    // How often the GPU was read, in the runs that measure the collector's CPU time.
    for interval in ["0.1", "0.01"] {
        let start = format!("     --st {interval}: collector ");
        let has_readings = |line: &str| {
            let readings = line.strip_prefix(&start).and_then(|line| line.split_once("% of a core; "));
            let words: Vec<&str> = readings.map(|(_, words)| words.split(' ').collect()).unwrap_or_default();
            matches!(words.as_slice(), [count, "readings,", rate, "a", "second,", ..]
                if count.parse::<u32>().is_ok_and(|count| count > 0) && rate.parse::<f64>().is_ok())
        };
        assert!(text.lines().any(has_readings), "{interval}: {text}\n{errors}");
    }
    assert!(!Path::new(&gpus.path("accounting.0")).exists(), "no setting of the driver is changed");
    assert_eq!(output.status.code(), Some(i32::from(text.contains("\nFAIL "))), "{text}");
    assert_eq!(std::fs::read_to_string(log).unwrap(), text);
}

#[test]
fn gpu_check_keeps_a_gpu_busy_without_ptx() {
    let gpus = FakeGpus::new(1, "");
    for (variables, line) in [
        (&[][..], "spins by a kernel\n"),
        (&[("FAKE_CUDA_NO_PTX", "1")], "spins by cuMemsetD32Async (cuModuleLoadData returned 222)\n"),
    ] {
        let output = gpu_check(&gpus, &["part:spin", "20"], variables);
        assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stdout).as_ref()), (Some(0), line));
    }
}

#[test]
fn gpu_check_ends_with_77_without_a_gpu() {
    let gpus = FakeGpus::new(1, "");
    let none = [("GPU_TRACK_NVML_LIB", "/there/is/none")];
    let output = gpu_check(&gpus, &["--log", "/dev/null", BINARY], &none);
    assert_eq!(output.status.code(), Some(77));
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("no GPU here ("));
    let output = gpu_check(&gpus, &["/there/is/none"], &[]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn gpu_check_says_in_one_line_that_there_is_no_cuda() {
    let gpus = FakeGpus::new(1, "");
    let log = gpus.path("log");
    let one_line = |output: &Output| {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!((text.lines().count(), &*output.stderr), (1, &b""[..]), "{text}");
        text
    };
    if !has_libcuda() {
        let output = gpu_check_without_cuda(&gpus, &["--log", &log, BINARY], &[]);
        assert_eq!(output.status.code(), Some(77));
        let text = one_line(&output);
        assert!(text.starts_with("no CUDA here (libcuda.so.1: "), "{text}");
        assert_eq!(std::fs::read_to_string(&log).unwrap(), text);
    }
    // The stand-in's cuInit refuses this value.
    let output = gpu_check(&gpus, &["--log", &log, BINARY], &[("CUDA_VISIBLE_DEVICES", "none")]);
    assert_eq!(output.status.code(), Some(1));
    let text = one_line(&output);
    assert!(text.starts_with("CUDA does not work: cuInit returned 100 ("), "{text}");
}

/// Whether the loader finds a driver's own library.
fn has_libcuda() -> bool {
    // SAFETY: a driver's library; its initialisers are trusted.
    !unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_LAZY) }.is_null()
}
