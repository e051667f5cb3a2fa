//! GPU drivers that misbehave: the other figures stay right, and the report names the fault.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::support::gpu::{FakeGpus, GPU0, GPU1};
use crate::support::rows::Rows;
use crate::support::{program, skip, wait_until};

/// Asserts that the report gives `reason` for the missing driver. `was_asked` is true once the collector has called the
/// driver; the command then ends after the driver's thread.
#[track_caller]
fn assert_no_driver(gpus: &FakeGpus, was_asked: impl FnMut() -> bool, reason: &str) {
    let go = gpus.path("go");
    let running =
        gpus.tracked(["sh", "-c", &format!("while ! test -e {go}; do sleep 0.01; done; exit 3")]).start();
    wait_until("the driver to be asked", was_asked);
    let collector = running.collector().expect("a collector runs");
    wait_until("the driver's thread to end", || thread_of(collector, "gpu-NVIDIA").is_none());
    std::fs::write(&go, "").unwrap();
    let run = running.wait();
    let report = run.assert_clean(3);
    let warning = format!("NVIDIA GPUs: {reason}; whether there are any is not known.");
    assert_eq!(report.warnings(), warning);
    assert_eq!(report.gpu_ram(), [None, None, None]);
    assert!(report.at("max_gpu_ram.system").is_null() && report.at("max_gpu_ram.system_capacity").is_null());
    assert!(report.at("gpu_utilization.system_gpu_count").is_null());
    assert_eq!(report.array("gpus").len(), 0);
}

/// Calls of the first GPU succeed, and write values with all bits set, or no number. Those of the second one are right.
// Requirement: GPU-88
#[test]
fn values_that_no_gpu_can_have_are_in_no_output() {
    let (u32s, u64s) = (u32::MAX, u64::MAX);
    let of_32_bits = "utilization memory_utilization encoder_utilization decoder_utilization power power_instant temperature \
                      sm_clock memory_clock graphics_clock pstate fan_speed power_limit enforced_power_limit pcie_width";
    let mut script: String = of_32_bits.split_whitespace().map(|key| format!("0.{key} {u32s}\n")).collect();
    for key in ["memory_used", "energy", "throttle", "ecc_corrected", "pcie_tx", "pcie_rx"] {
        script += &format!("0.{key} {u64s}\n");
    }
    script += &format!("0.pcie_bits 64\n0.samples now:{u32s}\n0.process_times now\n1.samples now:50");
    let gpus = FakeGpus::new(2, &script);
    let files = ["t.csv", "t.jsonl", "t.sqlite", "t.pftrace", "l.csv", "r.json", "r.html", "r.prom", "r.txt"];
    let files = files.map(|name| gpus.path(name));
    let log =
        format!("{},every=0.1s,fields=power.draw,fan.speed,power.limit,memory.used,memory.free", files[4]);
    let options: Vec<&str> = [("--tf", 0..4), ("-o", 5..9)]
        .into_iter()
        .flat_map(|(option, which)| files[which].iter().flat_map(move |file| [option, file.as_str()]))
        .chain(["--trace-gpu", &log])
        .collect();
    let run = gpus
        .tracked(gpus.words(&["hold:0:na,c", "hold:1:500,c", "for:400", "sampled"]))
        .options(&options)
        .run();
    let report = run.assert_clean(0);
    let gpu = report.gpu(GPU0);
    for path in [
        "memory.max_used_bytes",
        "memory.max_combined_bytes",
        "utilization.mean_percent",
        "utilization.max_memory_percent",
        "power.max_w",
        "power.energy_j",
        "max_temperature_c",
        "clocks.max_sm_mhz",
        "clocks.max_memory_mhz",
        "pstate.fastest",
        "throttle",
        "pcie.tx_bytes",
        "pcie.rx_bytes",
        "pcie.link_bytes_per_s",
        "errors.ecc_corrected",
    ] {
        assert!(gpu.at(path).is_null(), "{path}: {}", gpu.at(path));
    }
    for figure in
        ["memory", "power", "energy counter", "temperature", "throttle reasons", "memory utilization"]
    {
        assert_eq!(gpu.missing(figure).as_deref(), Some("not reported by the driver"), "{figure}");
    }
    let right = report.gpu(GPU1);
    assert_eq!((right.f64("power.max_w"), right.u64("memory.max_combined_bytes")), (100.0, 500));
    let listed = gpus.list(&["-f", "json"]).stdout.clone();
    let texts = files.iter().map(|file| String::from_utf8_lossy(&std::fs::read(file).unwrap()).into_owned());
    for text in texts.chain([listed, run.stderr.clone()]) {
        for odd in ["4294967", "18446744073", "1.84e", "17592186"] {
            assert!(!text.contains(odd), "{odd}: {text}");
        }
    }
}

#[test]
fn gpu_driver_init_failure_is_reported() {
    for (code, reason) in [
        (4, "no permission"),
        (9, "no driver"),
        (12, "the driver's library could not be loaded: NVML misses a library of its own"),
        (18, "driver/library version mismatch"),
        (999, "NVML error 999: unknown error"),
    ] {
        let gpus = FakeGpus::new(1, &format!("init {code}"));
        let times = gpus.path("times");
        assert_no_driver(&gpus, || Path::new(&times).exists(), reason);
        assert_eq!(gpus.list(&[]).stdout, format!("GPUs: not known (NVIDIA: {reason})\n"));
    }
}

#[test]
fn gpu_library_load_failure_is_reported() {
    let reason = |why: &str| format!("the driver's library could not be loaded: {why}");
    let mut gpus = FakeGpus::new(1, "");
    let library = gpus.path("libnvidia-ml.so.1");
    std::fs::write(&library, "").unwrap();
    // The test sees when the collector opens it.
    let watch = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
    inotify::add_watch(&watch, &library, WatchFlags::OPEN).unwrap();
    gpus = gpus.library(PathBuf::from(&library));
    let is_opened = || rustix::io::read(&watch, &mut [0; 64]).is_ok();
    assert_no_driver(&gpus, is_opened, &reason(&format!("{library}: file too short")));
    let fifo = gpus.path("fifo.so");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let absent = "/no/such/libnvidia-ml.so.1";
    for (path, why) in [
        // dlopen would wait for its writer.
        (&*fifo, format!("{fifo} is no file")),
        (absent, format!("{absent}: cannot open shared object file: No such file or directory")),
    ] {
        let listed = FakeGpus::new(1, "").library(PathBuf::from(path)).list(&[]);
        assert_eq!(listed.stdout, format!("GPUs: not known (NVIDIA: {})\n", reason(&why)));
    }
}

// Requirement: GPU-7, GPU-53
#[test]
fn gpu_driver_hanging_in_init_delays_nothing() {
    let gpus = FakeGpus::new(1, "init.stall forever");
    let run = gpus.tracked(["sh", "-c", "exit 3"]).run();
    let report = run.assert_clean(3);
    assert_eq!(
        report.warnings(),
        "NVIDIA GPUs: driver not yet initialised when the command ended; whether there are any is not known."
    );
    assert_eq!(report.gpu_ram(), [None, None, None]);
    assert_eq!(report.u64("processes.total"), 1);
}

#[test]
fn gpu_device_count_failure_is_reported() {
    let gpus = FakeGpus::new(1, "count !4");
    assert_eq!(gpus.list(&[]).stdout, "GPUs: not known (NVIDIA: no permission)\n");
    let times = gpus.path("times");
    std::fs::remove_file(&times).unwrap();
    assert_no_driver(&gpus, || Path::new(&times).exists(), "no permission");
}

/// The real driver library runs nvidia-modprobe, which is not a process of the command.
#[test]
fn programs_started_by_the_gpu_driver_are_not_counted() {
    let gpus = FakeGpus::new(1, "init_runs /bin/true; (sleep 0.05 &)");
    let report = gpus.run(&["sampled"]).assert_clean(0).clone();
    assert_eq!((report.u64("processes.total"), report.u64("coverage.joined")), (1, 0));
    assert_eq!(report.warnings(), "");
}

/// The library runs in the collector's process. Its crash must cost no other figure, nor must its call of exit.
// Requirement: GPU-8
#[test]
fn crashing_gpu_library_loses_only_gpu_figures() {
    for end in ["init_crashes", "init_exits 0"] {
        check_library_that_ends_its_process(end);
    }
}

fn check_library_that_ends_its_process(end: &str) {
    let gpus = FakeGpus::new(1, &format!("init.stall 100\ninit_runs /bin/true\n{end}"));
    let run = gpus.tracked(["sh", "-c", "sleep 2; exit 3"]).run();
    assert_eq!(run.status.code(), Some(3));
    let report = run.report();
    let reason = format!(
        "NVIDIA GPUs: the driver's library crashes (signal {}); whether there are any is not known.",
        libc::SIGABRT
    );
    assert!(report.warnings().lines().any(|line| line == reason), "{}", report.warnings());
    assert!(report.warnings().contains("The collector was killed 3 times"), "{}", report.warnings());
    assert_eq!(report.gpu_ram(), [None; 3]);
    assert_eq!(report.u64("processes.total"), 2);
    assert_eq!(report.u64("coverage.exact"), 2);
}

#[test]
fn printing_gpu_library_leaves_the_gpu_list_valid() {
    let run = FakeGpus::new(1, "init_runs echo hello from the driver").list(&["-f", "json"]);
    let listing: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(listing["gpus"][0]["uuid"], GPU0, "{listing}");
    assert_eq!(run.stderr, "hello from the driver\n");
}

/// `--gpus` survives a crash in the library, which it does not take for a machine without GPUs.
// Requirement: GPU-17
#[test]
fn gpu_list_reports_a_crashing_library() {
    let gpus = FakeGpus::new(1, "init_crashes");
    let text = gpus.list(&[]);
    let line = format!("GPUs: not known (NVIDIA: the driver's library crashes (signal {}))\n", libc::SIGABRT);
    assert_eq!((text.stdout.as_str(), text.status.code()), (line.as_str(), Some(1)));
    let run = gpus.list(&["-f", "json"]);
    let listing: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(run.status.code(), Some(1), "{}", run.stderr);
    assert!(listing["count"].is_null(), "{listing}");
    assert_eq!(listing["drivers"][0]["name"], "NVIDIA", "{listing}");
    let reason = listing["drivers"][0]["reason"].as_str().unwrap();
    assert!(reason.contains(&format!("crashes (signal {})", libc::SIGABRT)), "{reason}");
}

// Requirement: GPU-17
#[test]
fn gpu_list_of_a_hanging_library_has_no_count() {
    let run = FakeGpus::new(1, "init.stall forever").list(&[]);
    let line = "GPUs: not known (NVIDIA: driver not initialised within 30 s)\n";
    assert_eq!((run.stdout.as_str(), run.status.code()), (line, Some(1)));
}

/// Most GPU processes are in the compute list. Without it the other lists are incomplete.
#[test]
fn gpu_memory_is_null_if_the_compute_list_fails() {
    let gpus = FakeGpus::new(2, "1.processes_c !4");
    let report = gpus.run(&["hold:0:700,c", "hold:1:300,c", "sampled"]).assert_clean(0).clone();
    assert_eq!(report.gpu_ram(), [None; 3], "a sum that lacks one device is null");
    assert_eq!(report.gpu(GPU0).u64("memory.max_main_bytes"), 700);
    assert!(report.gpu(GPU1).at("memory.max_main_bytes").is_null());
    assert_eq!(
        report.warnings(),
        "GPU figures that are missing (no permission): memory by process of GPU-fake-1."
    );
}

// Requirement: GPU-5
#[test]
fn gpu_system_memory_is_null_if_one_gpu_has_none() {
    let gpus = FakeGpus::new(2, "1.memory_used !4");
    let rows = gpus.path("rows.csv");
    let words = gpus.words(&["hold:0:300,c", "sampled"]);
    let report = gpus.tracked(words).options(&["--tf", &rows]).run().assert_clean(0).clone();
    assert!(report.at("max_gpu_ram.system").is_null(), "{}", report.at("max_gpu_ram"));
    let of_rows = Rows::read(Path::new(&rows)).known("system_gpu_ram");
    assert!(!of_rows.is_empty() && of_rows.iter().all(Option::is_none), "{of_rows:?}");
    assert_eq!(report.gpu_ram()[0], Some(300));
}

#[test]
fn gpu_read_once_has_null_differences() {
    let gpus = FakeGpus::new(1, "power.stall 0|forever");
    let report = gpus.run(&["stalled"]).assert_clean(0).clone();
    let gpu = report.gpu(GPU0);
    for difference in ["power.integrated_energy_j", "throttle"] {
        assert!(gpu.at(difference).is_null(), "{difference}: {}", gpu.at(difference));
    }
    assert_eq!(gpu.f64("power.max_w"), 100.0);
    // The energy counter, PCIe bytes and memory errors are read by themselves, so perhaps twice.
    let reason = "(read only once, so no difference is known)";
    let warnings = report.all_warnings().join("\n");
    assert!(warnings.contains(reason), "{warnings}");
}

#[test]
fn gpu_figures_lost_during_the_run_are_warned_about() {
    let gpus = FakeGpus::new(2, "0.power !4\n1.energy !4");
    let later = gpus.script("later", "0.power !4\n1.energy !4\n*.temperature !16\n1.sm_clock !16");
    let run = gpus.run(&["sampled", &format!("script:{later}"), "sampled", "sampled"]);
    assert_eq!(
        run.assert_clean(0).warnings(),
        "GPU figures that are missing (no permission): power of GPU-fake-0.\n\
         GPU figures that are missing (no permission): energy counter of GPU-fake-1.\n\
         GPU figures that could no longer be read when the command ended (NVML error 16: the GPU requires a reset): temperature \
         of GPU-fake-0, GPU-fake-1.\n\
         GPU figures that could no longer be read when the command ended (NVML error 16: the GPU requires a reset): SM clock of \
         GPU-fake-1."
    );
}

// Requirement: GPU-7, GPU-62
#[test]
fn gpu_call_that_never_returns_delays_nothing() {
    let gpus = FakeGpus::new(1, "");
    let script = gpus.script("stall", "power.stall forever");
    // The first sample succeeds and the second one stalls while the command goes on.
    let run = gpus.run(&["hold:0:500,c", "sampled", &format!("script:{script}"), "stalled"]);
    let report = run.assert_clean(0);
    assert_eq!(report.gpu_ram()[0], Some(500));
    assert_eq!(report.gpu(GPU0).f64("power.max_w"), 100.0);
}

// Requirement: GPU-7
#[test]
fn stalled_gpu_call_delays_only_its_own_figures() {
    let gpus = FakeGpus::new(1, "");
    let stall = gpus.script("stall", "power.stall 200|0\n0.power 170000");
    // The process list is read after the stalled call, so it contains what was allocated meanwhile.
    let run = gpus.run(&[
        "hold:0:500,c",
        "sampled",
        &format!("script:{stall}"),
        "stalled",
        "hold:0:900,c",
        "samples:2",
    ]);
    let report = run.assert_clean(0);
    assert_eq!(report.gpu_ram(), [Some(900), Some(0), Some(900)]);
    assert_eq!(report.gpu(GPU0).f64("power.max_w"), 170.0);
    assert_eq!(report.warnings(), "");
    report.assert_all_exact(1);
}

/// Some libraries fill the buffer, drop the other entries, and return SUCCESS.
#[test]
fn gpu_list_cut_with_a_success_code_is_read_completely() {
    for cut in ["cut counts_written", "cut counts_all"] {
        // The command's entries come after 200 foreign ones.
        let gpus = FakeGpus::new(1, &format!("0.crowd 200\n{cut}"));
        let run = gpus.run(&["hold:0:500,cg", "sampled"]);
        assert_eq!(run.assert_clean(0).gpu_ram(), [Some(500), Some(0), Some(500)], "{cut}");
    }
}

#[test]
fn gpu_list_that_fills_its_buffer_is_read_completely() {
    for crowd in [63, 64] {
        let gpus = FakeGpus::new(1, &format!("0.crowd {crowd}"));
        let run = gpus.run(&["hold:0:500,c", "sampled"]);
        assert_eq!(run.assert_clean(0).gpu_ram()[0], Some(500), "{crowd} others");
    }
}

/// As in issue 110 of nvtop: the driver counts 100 entries, and most of them are uninitialised memory.
#[test]
fn garbage_in_gpu_process_samples_is_ignored() {
    // Up to then the samples are of a foreign process. The device has none of its own, so no other time counts.
    let gpus = FakeGpus::new(1, "0.noise 99\n0.samples !3");
    std::fs::write(gpus.path("held/1.0"), "800 c 10").unwrap();
    let [none, first, second] = ["", "9000000", "9000000 9500000"].map(|times| {
        let script =
            gpus.script(&format!("at{times}"), &format!("0.process_times {times}\n0.noise 99\n0.samples !3"));
        format!("script:{script}")
    });
    let words =
        ["sampled", &none, "sampled", "hold:0:500,c,60", &first, "sampled", "hold:0:500,c,90", &second];
    let run = gpus.run(&[&words[..], &["sampled", "sampled"]].concat());
    let report = run.assert_clean(0);
    let gpu = report.gpu(GPU0);
    // A garbage time stamp must not hide the samples after it.
    assert_eq!(gpu.f64("processes.0.max_sm_percent"), 90.0);
    // A sample counts for at most 1 s: 1 s at 60%, 0.5 s at 90%.
    assert_eq!(gpu.f64("processes.0.mean_sm_percent"), 70.0);
    assert_eq!(report.f64("processes.max_sm_percent.combined"), 90.0);
}

#[test]
fn old_gpu_library_still_gives_devices_and_versions() {
    let gpus = FakeGpus::new(1, "0.throttle 64").driver("old");
    let report = gpus.run(&["hold:0:500,c", "sampled"]);
    let report = report.assert_clean(0);
    let gpu = report.gpu(GPU0);
    assert_eq!(gpu.at("pci_address"), "0000:3b:00.0");
    assert_eq!(gpu.at("runtime_version"), "12.4");
    assert_eq!(gpu.at("throttle.0.reason"), "hardware thermal slowdown");
    assert!(gpu.at("errors.xid").is_null());
    assert_eq!(
        report.warnings(),
        "GPU figures that are missing (the driver's library has no call for it): XID errors of GPU-fake-0."
    );
}

// Requirement: GPU-93
#[test]
fn gpu_library_that_prints_and_sets_the_umask_spoils_no_report() {
    let gpus = FakeGpus::new(1, "init_prints hello from the driver\ninit_umask 777");
    let json = gpus.path("report.json");
    let run = gpus.tracked(gpus.words(&["sampled"])).options(&["-f", "json", "-o", &json, "-o", "-"]).run();
    assert!(run.stderr.contains("hello from the driver\n"), "{}", run.stderr);
    let on_stdout: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(on_stdout["gpus"][0]["id"], GPU0);
    let mode = std::fs::metadata(&json).unwrap().permissions().mode();
    assert_eq!(mode & 0o600, 0o600, "{mode:o}");
}

/// In containers the loader often does not search the driver's directory.
#[test]
fn gpu_library_is_found_outside_the_loader_path() {
    if Path::new("/dev/nvidiactl").exists() {
        skip!("this machine has a driver of its own");
    }
    let gpus = FakeGpus::new(1, "");
    let root = tempfile::tempdir().unwrap();
    for directory in ["dev", "usr/local/nvidia/lib64"] {
        std::fs::create_dir_all(root.path().join(directory)).unwrap();
    }
    std::fs::write(root.path().join("dev/nvidiactl"), "").unwrap();
    let place = root.path().join("usr/local/nvidia/lib64/libnvidia-ml.so.1");
    std::os::unix::fs::symlink(gpus.library_path(), place).unwrap();
    let words = gpus.words(&["hold:0:500,c", "sampled"]);
    let root = root.path().to_str().unwrap();
    let options = ["-f", "json", "--gru", "bytes", "--gpu-root", root, "--st", "0.02", "-o", "-"];
    let run = gpus.tracked(words).only_options(&options).run();
    let report: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!((&report["max_gpu_ram"]["combined"], &report["gpus"][0]["id"]), (&500.0.into(), &GPU0.into()));
}

#[test]
fn gpu_figure_unknown_to_an_old_driver_is_reported() {
    let gpus = FakeGpus::new(1, "0.pcie_tx !2\n0.pcie_rx !2");
    let run = gpus.run(&["hold:0:500,c", "sampled"]);
    let report = run.assert_clean(0);
    assert!(report.gpu(GPU0).at("pcie.tx_bytes").is_null());
    assert_eq!(
        report.warnings(),
        "GPU figures that are missing (the driver's library has no call for it): PCIe bytes sent, \
         PCIe bytes received of GPU-fake-0."
    );
}

// Requirement: GPU-62
#[test]
fn unresponsive_gpu_driver_is_reported() {
    let gpus = FakeGpus::new(1, "");
    let stall = format!("script:{}", gpus.script("stall", "power.stall forever"));
    // The command goes on for longer than a reading may take.
    let line = gpus.line(&["hold:0:500,c", "sampled", &stall, "stalled"]);
    let run = gpus.tracked(["sh", "-c", &format!("{line}; sleep 1.5; exit 3")]).run();
    let report = run.assert_clean(3);
    assert_eq!(report.gpu_ram(), [None, Some(500), Some(500)]);
    let warnings = report.warnings();
    let first = warnings.lines().next().unwrap();
    assert!(
        first.starts_with("NVIDIA GPUs: the driver has not responded since ")
            && first.ends_with(" s after the start; their figures end there."),
        "{warnings}"
    );
}

/// A driver call in uninterruptible sleep (state D) keeps the collector from exiting. Here a tracer does the same.
// Requirement: GPU-63
#[test]
fn collector_stuck_in_a_gpu_driver_delays_nothing() {
    let gpus = FakeGpus::new(1, "");
    let [ready, go, held, done] = ["ready", "go", "holding", "done"].map(|name| gpus.path(name));
    let (touch, wait) = (format!("touch:{ready}"), format!("wait:{go}"));
    let running = gpus.tracked(gpus.words(&["hold:0:500,c", "sampled", &touch, &wait])).start();
    wait_until("a sample", || Path::new(&ready).exists());
    let collector = running.collector().expect("a collector runs");
    let thread = thread_of(collector, "gpu-NVIDIA").expect("a thread for the driver");
    let mut holder = Command::new(program("hold_exit")).args([&thread, &held, &done]).spawn().unwrap();
    wait_until("the tracer to stop the thread", || {
        Path::new(&held).exists() || holder.try_wait().unwrap().is_some()
    });
    std::fs::write(&go, "").unwrap();
    let run = running.wait();
    let is_held = holder.try_wait().unwrap().is_none();
    std::fs::write(&done, "").unwrap();
    holder.wait().unwrap();
    if !is_held {
        skip!("ptrace is not permitted");
    }
    assert_eq!(run.assert_clean(0).gpu_ram(), [Some(500), Some(0), Some(500)]);
}

/// The id of the process's thread with this name.
fn thread_of(pid: u32, name: &str) -> Option<String> {
    let mut tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let is_it = |task: &std::fs::DirEntry| {
        std::fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim() == name)
    };
    tasks.find(is_it).map(|task| task.file_name().into_string().unwrap())
}
