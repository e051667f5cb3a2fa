//! Holds gpu-track-run's figures of a real NVIDIA GPU against the driver's own. It needs nothing but the driver's libraries
//! and a gpu-track-run beside it: `scripts/gpu-check` makes a folder of both.
//!
//! [`checks`] run the [`parts`] of this program, which use the GPU in a known way, under gpu-track-run, and judge its
//! [`report`]. [`costs`] measures NVML's calls.

mod checks;
mod costs;
mod cuda;
mod holders;
mod library;
mod nvml;
mod opinion;
mod parts;
mod pauses;
mod process;
mod report;
mod results;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use cuda::Cuda;
use nvml::Nvml;
use results::Results;

const HELP: &str = "\
gpu-check [OPTIONS] [GPU-TRACK-RUN]

Compares what gpu-track-run says of a real NVIDIA GPU with the driver's own figures, in less than five minutes.

It checks memory of several processes, utilization of a GPU that is busy all or half of the time, two processes on one
GPU, short processes, energy at rest and under load, bytes over PCIe, --guuids and CUDA_VISIBLE_DEVICES, and a job that leaves
its GPU idle. Name, UUID, memory, power and energy are read through the nvml-wrapper crate, too. It prints what each NVML call
costs, how often the GPU was read, the collector's CPU time, and what tracking costs a loop of allocations.

It needs the driver's libraries (libcuda.so.1, libnvidia-ml.so.1) and a GPU that is otherwise unused. It changes no setting of
the machine.

  GPU-TRACK-RUN   the program to check [default: gpu-track-run beside this program]
  --quick         leave out nvcc, PyTorch and CuPy, which are used where they are installed
  --accounting    check --gpu-accounting, which switches the driver's accounting on and back; needs root
  --log FILE      where the output goes besides standard output [default: gpu-check.log beside this program]
  --short         shortest times, for tests of this program: too short for a real driver

The status is 0 if all figures are right, 1 if one is wrong, 2 for a wrong command line, and 77 without a GPU or libcuda.
";
const NO_GPU: u8 = 77;
/// The first context on a GPU without persistence mode can take some seconds.
const CONTEXT_AT_MOST: Duration = Duration::from_secs(60);
/// The whole check, so that a hung driver does not hold it for ever.
const WHOLE_AT_MOST: Duration = Duration::from_secs(290);

/// What the command line asks for.
struct Options {
    tracker: PathBuf,
    is_quick: bool,
    with_accounting: bool,
    is_short: bool,
    log: PathBuf,
}

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let words: Vec<&str> = arguments.iter().filter_map(|argument| argument.to_str()).collect();
    if let [part, rest @ ..] = words.as_slice()
        && let Some(result) = parts::run(part, rest)
    {
        return ended(result);
    }
    let own = std::env::current_exe().unwrap_or_default();
    // CUDA's first device is NVML's first device then.
    // SAFETY: no other thread was started yet.
    unsafe { std::env::set_var("CUDA_DEVICE_ORDER", "PCI_BUS_ID") };
    let options = match options(&words, own.parent().unwrap_or(Path::new("."))) {
        Ok(Some(options)) => options,
        Ok(None) => return said(HELP, 0),
        Err(wrong) => return said(&format!("gpu-check: {wrong}\n"), 2),
    };
    let mut results = Results::new(&options.log);
    let mut late = results.another();
    std::thread::spawn(move || {
        std::thread::sleep(WHOLE_AT_MOST);
        late.line(&format!(
            "FAIL gpu-check was not done within {} s: a call hangs, or is slow",
            WHOLE_AT_MOST.as_secs()
        ));
        // SAFETY: ends the process at once. Exit handlers of the driver's libraries could hang, too.
        unsafe { libc::_exit(1) };
    });
    match check(&mut results, &options) {
        Ok(()) => ExitCode::from(u8::from(results.summary())),
        Err((status, reason)) => {
            results.line(&reason);
            ExitCode::from(status)
        }
    }
}

fn options(words: &[&str], beside: &Path) -> Result<Option<Options>, String> {
    let mut options = Options {
        tracker: beside.join("gpu-track-run"),
        is_quick: false,
        with_accounting: false,
        is_short: false,
        log: beside.join("gpu-check.log"),
    };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            "--help" | "-h" => return Ok(None),
            "--quick" => options.is_quick = true,
            "--accounting" => options.with_accounting = true,
            "--short" => options.is_short = true,
            "--log" => options.log = words.next().ok_or("--log needs a file")?.into(),
            option if option.starts_with('-') => return Err(format!("there is no option {option} (--help)")),
            path => options.tracker = path.into(),
        }
    }
    if !options.tracker.is_file() {
        return Err(format!("{} is not there: give the path of gpu-track-run", options.tracker.display()));
    }
    Ok(Some(options))
}

/// The status and the reason where nothing could be checked.
fn check(results: &mut Results, options: &Options) -> Result<(), (u8, String)> {
    let nvml = Nvml::start().map_err(|error| match error {
        nvml::Absent::NoGpu(reason) => (NO_GPU, format!("no GPU here ({reason})")),
        nvml::Absent::Refused(reason) => (1, format!("the driver does not work: {reason}")),
    })?;
    works_with_cuda()?;
    results.line(&format!(
        "gpu-check: {}, {}, driver {}, {} GPU(s); libnvidia-ml loaded and initialised in {:.1} ms",
        nvml.name(),
        nvml.uuid,
        nvml.driver_version(),
        nvml.count,
        nvml.start_ms
    ));
    results.note(&nvml.machine());
    let check =
        checks::Check { nvml: &nvml, tracker: &options.tracker, times: pauses::times(options.is_short) };
    checks::all(results, &check, options.is_quick, options.with_accounting);
    Ok(())
}

/// Whether a process gets a context. The checks need one to compare figures with a known use of the GPU.
fn works_with_cuda() -> Result<(), (u8, String)> {
    Cuda::open().map_err(|reason| (NO_GPU, format!("no CUDA here ({reason})")))?;
    let words = process::part("context", &[]);
    let (program, arguments) = words.split_first().ok_or((1, "no program".to_owned()))?;
    match process::output_within(program, arguments, CONTEXT_AT_MOST) {
        Some(output) if output.status.success() => Ok(()),
        Some(output) => {
            let reason = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
            Err((1, format!("CUDA does not work: {reason} ({})", output.status)))
        }
        None => Err((1, format!("CUDA gave no context within {} s", CONTEXT_AT_MOST.as_secs()))),
    }
}

/// The status of a part.
fn ended(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => said(&format!("{reason}\n"), 1),
    }
}

/// Prints to standard output, or with a status other than 0 to standard error.
fn said(text: &str, status: u8) -> ExitCode {
    use std::io::Write;
    let _ = match status {
        0 => std::io::stdout().write_all(text.as_bytes()),
        _ => std::io::stderr().write_all(text.as_bytes()),
    };
    ExitCode::from(status)
}
