//! A machine with GPUs: the fake driver of tests/fake-nvml and the script that it follows.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock};

use serde_json::Value;
use tempfile::TempDir;

use super::report::{Report, SLOW_GPU_READINGS, UNREAD_GPUS};
use super::run::{Run, Tracked, tracked};
use super::{program, wait_until};

/// The ids of the first two fake GPUs.
pub const GPU0: &str = "GPU-fake-0";
pub const GPU1: &str = "GPU-fake-1";

/// The fake driver library, built once per test run. `features` select another version of the driver.
pub fn library(features: &str) -> PathBuf {
    type Cache = Mutex<HashMap<String, Arc<OnceLock<PathBuf>>>>;
    static CACHE: OnceLock<Cache> = OnceLock::new();
    let cell =
        CACHE.get_or_init(Cache::default).lock().unwrap().entry(features.to_owned()).or_default().clone();
    let build = || built("fake-nvml", features).join("libfake_nvml.so");
    cell.get_or_init(build).clone()
}

/// Builds a package of the workspace; gives the directory of what was built.
pub fn built(package: &str, features: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{package}{features}"));
    let mut cargo = Command::new(env!("CARGO"));
    for name in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "RUSTC_WORKSPACE_WRAPPER", "CARGO_BUILD_BUILD_DIR"] {
        cargo.env_remove(name);
    }
    cargo.args(["build", "--offline", "--quiet", "--package", package, "--features", features]);
    cargo.arg("--target-dir").arg(&target).current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    assert!(cargo.status().unwrap().success(), "{cargo:?}");
    target.join("debug")
}

/// The default script: all figures are known, and none changes but the energy, which is that of the power.
pub const QUIET: &str = "\
driver 550.54.15
cuda 12040
*.name Fake A100
*.bus 59
*.memory_total 85899345920
*.memory_used 1000000000
*.utilization 30
*.memory_utilization 7
*.encoder_utilization 12
*.decoder_utilization 3
*.power 100000
*.energy 5000000+100000/s
*.temperature 41
*.sm_clock 1410
*.memory_clock 1593
*.pstate 0
*.fan_speed 30
*.power_limit 400000
*.enforced_power_limit 350000
*.graphics_clock 1425
*.throttle 0
*.ecc_corrected 4
*.ecc_uncorrected 0
*.pcie_tx 1000
*.pcie_rx 2000
*.pcie_generation 1
*.pcie_width 1
*.xids
*.samples now:0
*.processes ok
*.process_times now
*.accounting 0
*.mig 0
";

/// The variables that select the GPUs that a command may see.
pub const VISIBILITY: [&str; 7] = [
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "SLURM_STEP_GPUS",
    "SLURM_JOB_GPUS",
    "ROCR_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
];

/// A fake driver and its script.
pub struct FakeGpus {
    directory: TempDir,
    count: usize,
    library: PathBuf,
}

impl FakeGpus {
    /// A driver with `count` GPUs, `GPU-fake-0` and so on. The lines of `changes` override those of [`QUIET`].
    pub fn new(count: usize, changes: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        for name in ["held", "account"] {
            std::fs::create_dir(directory.path().join(name)).unwrap();
        }
        let gpus = Self { directory, count, library: library("") };
        gpus.script("script", changes);
        gpus
    }

    /// A run that has only the samples of its scripts. Where no new one comes for 2 s, as on a busy machine, the driver's
    /// present rate counts; such a run is repeated with a new driver.
    pub fn with_these_samples(count: usize, changes: &str, run: impl Fn(&Self) -> Run) -> (Self, Run) {
        for _ in 0..20 {
            let gpus = Self::new(count, changes);
            let run = run(&gpus);
            if run.report().f64("wall_s") < 2.0 {
                return (gpus, run);
            }
        }
        panic!("each run took 2 s or more");
    }

    /// Uses another version of the driver (see [`library`]).
    pub fn driver(mut self, features: &str) -> Self {
        self.library = library(features);
        self
    }

    /// Uses another library file.
    pub fn library(mut self, path: PathBuf) -> Self {
        self.library = path;
        self
    }

    /// Path of the library.
    pub fn library_path(&self) -> &Path {
        &self.library
    }

    /// Path of the library under the name of NVIDIA's, without which root takes none from GPU_TRACK_NVML_LIB.
    pub fn library_of_its_name(&self) -> PathBuf {
        let path = self.directory.path().join("libnvidia-ml.so.1");
        std::fs::copy(&self.library, &path).unwrap();
        path
    }

    /// The directory of its scripts.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Path of a file in the script's directory.
    pub fn path(&self, name: &str) -> String {
        self.directory.path().join(name).into_os_string().into_string().unwrap()
    }

    /// Writes a script under a name. The driver follows the one that is named `script`.
    pub fn script(&self, name: &str, changes: &str) -> String {
        let uuids: String = (0..16).map(|n| format!("{n}.uuid GPU-fake-{n}\n")).collect();
        let text = format!("{changes}\ncount {}\n{QUIET}{uuids}", self.count);
        std::fs::write(self.path("part"), text).unwrap();
        std::fs::rename(self.path("part"), self.path(name)).unwrap();
        self.path(name)
    }

    /// The word that lets the program `gpu` wait until all devices were sampled and the figures were handed on.
    pub fn sampled(&self) -> String {
        format!("samples:{}", 3 * self.count + 1)
    }

    /// A run with this driver and a short sampling interval.
    pub fn tracked<S: Into<std::ffi::OsString>>(&self, command: impl IntoIterator<Item = S>) -> Tracked {
        let library = self.library.clone().into_os_string().into_string().unwrap();
        let directory = self.directory.path().to_owned();
        tracked(command).options(&["--nvml-lib", &library, "--st", "0.02"]).with(move |command| {
            for name in VISIBILITY {
                command.env_remove(name);
            }
            command.env("FAKE_NVML_DIR", directory)
        })
    }

    /// Runs `--gpus` with these options.
    pub fn list(&self, options: &[&str]) -> Run {
        self.list_with(options, &[])
    }

    /// Runs `--gpus` with these options and environment variables.
    pub fn list_with(&self, options: &[&str], variables: &[(&str, &str)]) -> Run {
        let library = self.library.to_str().unwrap();
        let options = [&["--gpus", "--nvml-lib", library], options].concat();
        let variables: Vec<(String, String)> =
            variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let none: [&str; 0] = [];
        self.tracked(none).only_options(&options).with(|command| command.envs(variables)).run()
    }

    /// Runs the program `gpu` with these words. `sampled` stands for [`FakeGpus::sampled`]; `stalled` waits until the
    /// driver stalls.
    pub fn run(&self, words: &[&str]) -> Run {
        self.tracked(self.words(words)).run()
    }

    /// Runs the program `gpu` where each call of the driver takes `cost_us` microseconds.
    pub fn run_at_cost(&self, cost_us: &'static str, words: &[&str]) -> Run {
        self.tracked(self.words(words)).with(move |command| command.env("FAKE_NVML_COST_US", cost_us)).run()
    }

    /// The command line of the program `gpu` with these words (see [`FakeGpus::run`]).
    pub fn words(&self, words: &[&str]) -> Vec<String> {
        let word = |word: &&str| match *word {
            "sampled" => self.sampled(),
            // A second one begins when the first is over.
            "listed" => "listings:2".to_owned(),
            "stalled" => format!("wait:{}", self.path("stalled")),
            word => word.to_owned(),
        };
        [program("gpu")].into_iter().chain(words.iter().map(word)).collect()
    }

    /// The command line of the program `gpu`, for a shell.
    pub fn line(&self, words: &[&str]) -> String {
        self.words(words).join(" ")
    }

    /// The part of the run in which the driver was kept busy, if the file `spent` was there at its start.
    pub fn busy_share(&self, report: &Report) -> f64 {
        let spent = std::fs::read_to_string(self.path("spent")).unwrap();
        let busy_ns: u64 = spent.lines().map(|line| line.parse::<u64>().unwrap()).sum();
        busy_ns as f64 / 1e9 / report.f64("compute_time.time")
    }

    /// Waits until the driver was called for a sample.
    pub fn wait_sampled(&self) {
        wait_until("a sample", || std::fs::metadata(self.path("samples")).is_ok_and(|file| file.len() > 0));
    }
}

/// Asserts that a maximum is at least the mean, in an object of a report.
fn assert_order(figures: &Value, what: &str, mean: &str, max: &str) {
    if let (Some(mean), Some(max)) = (figures[mean].as_f64(), figures[max].as_f64()) {
        assert!(max >= mean, "{what}: {max} at most, {mean} in the mean: {figures}");
    }
}

/// Asserts that a sum over devices is at least that of one device, and at most that of all. A device whose figure is
/// unknown sets no bound.
fn assert_sum(what: &str, sum: Option<f64>, devices: &[Option<f64>]) {
    // Numbers are rounded.
    let room = |bound: f64| bound * (1.0 + 1e-9);
    let Some(sum) = sum else { return };
    let largest = devices.iter().flatten().copied().fold(0.0, f64::max);
    assert!(largest <= room(sum), "{what}: {sum} in all, {largest} on one device");
    if let Some(all) = devices.iter().copied().sum::<Option<f64>>() {
        assert!(sum <= room(all), "{what}: {sum} in all, {all} by the maxima of the devices");
    }
}

impl Report {
    /// Asserts what is true of the GPU figures of every report. A maximum is at least its mean, and a sum over devices
    /// is that of one time.
    pub fn assert_gpus_agree(&self) {
        let Some(gpus) = self.0.get("gpus").and_then(Value::as_array) else { return };
        for gpu in gpus {
            for (object, mean, max) in [
                ("utilization", "mean_percent", "max_percent"),
                ("utilization", "mean_memory_percent", "max_memory_percent"),
                ("power", "mean_w", "max_w"),
                ("clocks", "mean_sm_mhz", "max_sm_mhz"),
                ("clocks", "mean_memory_mhz", "max_memory_mhz"),
            ] {
                assert_order(&gpu[object], object, mean, max);
            }
            for process in gpu["processes"].as_array().into_iter().flatten() {
                assert_order(process, "process", "mean_sm_percent", "max_sm_percent");
            }
        }
        let percent = self.at("gpu_utilization.gpu_percentages");
        assert_order(percent, "sum of utilization", "mean_sum_percent", "max_sum_percent");
        let of_all = |object: &str, key: &str| -> Vec<Option<f64>> {
            gpus.iter().map(|gpu| gpu[object][key].as_f64()).collect()
        };
        assert_sum("utilization", percent["max_sum_percent"].as_f64(), &of_all("utilization", "max_percent"));
        let ram = self.at("max_gpu_ram");
        if ram["unit"] != "bytes" {
            return;
        }
        for group in ["main", "descendants", "combined"] {
            assert_sum(group, ram[group].as_f64(), &of_all("memory", &format!("max_{group}_bytes")));
        }
        let is_tracked = |id: &Value| gpus.iter().any(|gpu| gpu["id"] == *id);
        let whole = gpus.iter().filter(|gpu| !is_tracked(&gpu["parent"]));
        let used: Vec<_> = whole.map(|gpu| gpu["memory"]["max_used_bytes"].as_f64()).collect();
        assert_sum("system", ram["system"].as_f64(), &used);
        for process in self.array("processes.heaviest") {
            let on = gpus.iter().flat_map(|gpu| gpu["processes"].as_array()).flatten();
            let on = on.filter(|on| on["pid"] == process["pid"] && on["command"] == process["command"]);
            let on: Vec<_> = on.map(|on| on["peak_bytes"].as_f64()).collect();
            assert_sum("process", process["gpu"]["peak_ram_bytes"].as_f64(), &on);
        }
    }

    /// The device with this id in `gpus`.
    pub fn gpu(&self, id: &str) -> Report {
        let found = self.array("gpus").iter().find(|gpu| gpu["id"] == id);
        Report(found.unwrap_or_else(|| panic!("no {id} in {}", self.at("gpus"))).clone())
    }

    /// Why this device lacks a figure; `None`: it has it. On a busy machine others can be missing, too, as they were read only once.
    pub fn missing(&self, figure: &str) -> Option<String> {
        let found = self.array("missing").iter().find(|missing| missing["figure"] == figure)?;
        found["reason"].as_str().map(str::to_owned)
    }

    /// main, descendants and combined of `max_gpu_ram`, bytes.
    pub fn gpu_ram(&self) -> [GpuRam; 3] {
        let is_unread = self
            .all_warnings()
            .into_iter()
            .any(|line| line.starts_with(UNREAD_GPUS) || line.starts_with(SLOW_GPU_READINGS));
        ["main", "descendants", "combined"].map(|set| {
            let bytes = self.at(&format!("max_gpu_ram.{set}"));
            GpuRam { bytes: bytes.as_f64().map(|bytes| bytes as u64), is_unread }
        })
    }
}

/// GPU memory in a report, bytes; `None` is null. On a busy machine GPUs can be left unread, which a warning says: then null is
/// taken for 0.
#[derive(Debug, Clone, Copy)]
pub struct GpuRam {
    pub bytes: Option<u64>,
    is_unread: bool,
}

impl PartialEq<Option<u64>> for GpuRam {
    fn eq(&self, expected: &Option<u64>) -> bool {
        self.bytes == *expected || (self.is_unread && self.bytes.is_none() && *expected == Some(0))
    }
}
