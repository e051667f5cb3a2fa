//! GPU figures of the report, with a fake driver whose every answer is known.

use std::path::Path;

use serde_json::Value;

use crate::support::gpu::{FakeGpus, GPU0, GPU1};
use crate::support::report::{Report, UNREAD_GPUS};
use crate::support::{skip, tracked, wait_until};

// Requirement: HINT-3
#[test]
fn gpu_figures_of_one_process_are_exact() {
    let idle = "0.samples 500000:0\n0.process_times\n0.energy 5000000";
    let busy = "0.memory_used 3000000000\n0.power 300000\n0.energy 5001000\n0.temperature 77\n0.pstate 2\n\
        0.ecc_corrected 6\n0.samples 500001:0 1500001:80 2500001:40\n0.process_times 2500001\n0.pcie_tx 5000\n\
        0.memory_utilization 21";
    let (_, run) = FakeGpus::with_these_samples(1, idle, |gpus| {
        let script = format!("script:{}", gpus.script("busy", busy));
        gpus.run(&["sampled", "hold:0:2000000000,c,60", &script, "sampled", "hold:0:500000000,c", "sampled"])
    });
    let report = run.assert_clean(0);
    assert_eq!(report.gpu_ram(), [Some(2_000_000_000), Some(0), Some(2_000_000_000)]);
    assert_eq!(report.f64("max_gpu_ram.system_capacity"), 85_899_345_920.0);
    assert_eq!(report.f64("max_gpu_ram.system"), 3e9);
    assert_eq!(report.u64("gpu_utilization.system_gpu_count"), 1);
    assert_eq!(report.u64("gpu_utilization.n_expected_gpus"), 1);
    let percentages = "gpu_utilization.gpu_percentages";
    assert_eq!(report.f64(&format!("{percentages}.max_sum_percent")), 80.0);
    assert_eq!(report.f64(&format!("{percentages}.mean_hardware_percent")), 60.0);
    let gpu = report.gpu(GPU0);
    assert_eq!(gpu.at("name"), "Fake A100");
    assert_eq!(gpu.at("pci_address"), "0000:3b:00.0");
    assert_eq!((gpu.at("driver_version"), gpu.at("runtime_version")), (&"550.54.15".into(), &"12.4".into()));
    assert_eq!(gpu.f64("utilization.active_s"), 1.2);
    assert_eq!(gpu.f64("utilization.max_memory_percent"), 21.0);
    assert_eq!((gpu.f64("power.max_w"), gpu.f64("power.energy_j")), (300.0, 1.0));
    assert!(gpu.f64("power.integrated_energy_j") > 0.0);
    assert_eq!(gpu.f64("max_temperature_c"), 77.0);
    assert_eq!((gpu.u64("pstate.fastest"), gpu.u64("pstate.slowest")), (0, 2));
    assert_eq!(gpu.f64("clocks.max_sm_mhz"), 1410.0);
    assert_eq!((gpu.u64("pcie.tx_bytes"), gpu.u64("pcie.rx_bytes")), (4000, 0));
    assert_eq!((gpu.u64("errors.ecc_corrected"), gpu.u64("errors.ecc_uncorrected")), (2, 0));
    assert_eq!(gpu.array("errors.xid").len(), 0);
    assert_eq!(gpu.f64("processes.0.max_sm_percent"), 60.0);
    assert_eq!(gpu.u64("processes.0.peak_bytes"), 2_000_000_000);
    assert_eq!(report.f64("processes.max_sm_percent.main"), 60.0);
    assert_eq!(report.u64("processes.heaviest.0.gpu.peak_ram_bytes"), 2_000_000_000);
    assert_eq!(report.command("gpu").unwrap()["gpu"]["count"], 1);
    let hint = [("bytes", 3 << 30), ("basis_bytes", 2_000_000_000), ("capacity_bytes", 85_899_345_920)];
    for (key, bytes) in hint {
        assert_eq!(report.u64(&format!("hints.gpu_memory.{key}")), bytes, "{key}");
    }
    assert_eq!(report.at("hints.gpu_memory.device"), GPU0);
    // Accounting is missing, because the driver's accounting mode is off, and what newer GPUs have performance counters for.
    assert_eq!(gpu.array("missing").len(), 2);
    assert_eq!(report.warnings(), "");
}

// Requirement: GPU-1
#[test]
fn gpu_combined_ram_is_the_maximum_of_the_sum() {
    let gpus = FakeGpus::new(2, "");
    let [one, two, done] = ["one", "two", "done"].map(|name| gpus.path(name));
    // Two children hold 700 and 300 bytes at once; later the first holds 900 alone. Devices are read one after another,
    // so the first child holds nothing for a whole sample before it moves to the other device.
    let (touch_one, wait_two, wait_done) =
        (format!("touch:{one}"), format!("wait:{two}"), format!("wait:{done}"));
    let first = [
        "hold:0:700,c",
        &touch_one,
        &wait_two,
        "sampled",
        "free:0",
        "sampled",
        &wait_done,
        "hold:1:900,c",
        "sampled",
    ];
    let second = [&format!("wait:{one}"), "hold:1:300,c", &format!("touch:{two}"), "sampled"];
    let script = format!("{} & {}; touch {done}; wait", gpus.line(&first), gpus.line(&second));
    let run = gpus.tracked(["sh", "-c", &script]).run();
    let report = run.assert_clean(0);
    assert_eq!(report.gpu_ram(), [Some(0), Some(1000), Some(1000)]);
    assert_eq!(report.gpu(GPU0).u64("memory.max_descendants_bytes"), 700);
    assert_eq!(report.command("gpu").unwrap()["gpu"]["peak_ram_bytes"], 900);
    assert_eq!(report.command("gpu").unwrap()["gpu"]["count"], 2);
}

// Requirement: GPU-11
#[test]
fn restarted_gpu_energy_counter_keeps_earlier_energy() {
    let gpus = FakeGpus::new(1, "0.energy 1000000");
    // A joule is less than the device's 100 W make between two readings.
    let (more, again) = (gpus.script("more", "0.energy 1500000"), gpus.script("again", "0.energy 1000"));
    let words = ["sampled", &format!("script:{more}"), "sampled", &format!("script:{again}"), "sampled"];
    let run = gpus.run(&words);
    let report = run.assert_clean(0);
    assert_eq!(report.gpu(GPU0).f64("power.energy_j"), 501.0);
    assert!(
        report.warnings().contains("The energy counter of GPU-fake-0 was reset"),
        "{}",
        report.warnings()
    );
}

// Requirement: GPU-4
#[test]
fn unsupported_gpu_figures_are_null_with_a_reason() {
    let gpus =
        FakeGpus::new(1, "0.energy !3\n0.ecc_corrected !3\n0.ecc_uncorrected !3\n0.power !4\n0.pstate !999");
    let run = gpus.run(&["hold:0:500,c", "sampled"]);
    let report = run.assert_clean(0);
    let gpu = report.gpu(GPU0);
    for path in [
        "power.energy_j",
        "power.mean_w",
        "power.integrated_energy_j",
        "errors.ecc_corrected",
        "pstate.fastest",
    ] {
        assert!(gpu.at(path).is_null(), "{path} is {}", gpu.at(path));
    }
    assert_eq!(report.gpu_ram()[0], Some(500), "the others go on");
    assert_eq!(
        report.warnings(),
        "GPU figures that are missing (no permission): power of GPU-fake-0.\n\
         GPU figures that are missing (not supported by this device): energy counter, ECC errors corrected, \
         ECC errors uncorrected of GPU-fake-0.\n\
         GPU figures that are missing (NVML error 999: unknown error): performance state of GPU-fake-0."
    );
}

// Requirement: GPU-59
#[test]
fn wrapped_gpu_pcie_counter_is_summed_correctly() {
    let gpus = FakeGpus::new(1, "0.pcie_tx 4294967000");
    let wrapped = gpus.script("wrapped", "0.pcie_tx 704");
    let run = gpus.run(&["sampled", &format!("script:{wrapped}"), "sampled"]);
    assert_eq!(run.assert_clean(0).gpu(GPU0).u64("pcie.tx_bytes"), 1000);
}

// Requirement: GPU-11
#[test]
fn gpu_throttle_reasons_and_xid_errors_are_reported() {
    let gpus = FakeGpus::new(1, "");
    let hot = gpus.script("hot", "0.throttle 36\n0.xids 13 13");
    let run = gpus.run(&["sampled", &format!("script:{hot}"), "sampled", "sampled"]);
    let report = run.assert_clean(0);
    let gpu = report.gpu(GPU0);
    let reasons: Vec<_> =
        gpu.array("throttle").iter().map(|entry| entry["reason"].as_str().unwrap().to_owned()).collect();
    assert_eq!(reasons, ["software power cap", "software thermal slowdown"]);
    assert!(gpu.f64("throttle.0.time_s") > 0.0);
    assert_eq!(gpu.at("errors.xid").to_string(), r#"[{"count":2,"xid":13}]"#);
    assert_eq!(report.warnings(), "GPU-fake-0 reported XID error 13 (2 times).");
}

/// Before R440 the call had no `_v2`.
#[test]
fn xid_errors_are_read_from_older_gpu_libraries() {
    let gpus = FakeGpus::new(1, "").driver("second");
    let bad = gpus.script("bad", "0.xids 79");
    let run = gpus.run(&["sampled", &format!("script:{bad}"), "sampled", "sampled"]);
    assert_eq!(run.assert_clean(0).warnings(), "GPU-fake-0 reported XID error 79 (once).");
}

// Requirement: GPU-12, GPU-55
#[test]
fn gpu_mig_instances_are_separate_devices() {
    let mig = "0.mig 1\n0.mig_most 7\n0m0.uuid MIG-fake-a\n0m0.memory_total 20000000000\n0m1.uuid MIG-fake-b\n\
               0m1.memory_total 10000000000\n0m0.process_times !3\n0m1.process_times !3\n0m0.samples !3\n0m1.samples !3\n\
               0m0.utilization !3\n0m1.utilization !3\n0m0.memory_used 600000000\n0m1.memory_used 1";
    let gpus = FakeGpus::new(1, mig);
    let run = gpus.run(&["hold:0m0:500000000,c", "samples:10"]);
    let report = run.assert_clean(0);
    assert_eq!(report.u64("gpu_utilization.system_gpu_count"), 1);
    assert_eq!(report.u64("gpu_utilization.n_expected_gpus"), 1);
    assert_eq!(report.gpu_ram(), [Some(500_000_000), Some(0), Some(500_000_000)]);
    assert_eq!(report.f64("max_gpu_ram.system_capacity"), 85_899_345_920.0, "the parts are in the whole");
    let part = report.gpu("MIG-fake-a");
    assert_eq!(part.at("parent"), GPU0);
    assert_eq!(
        (part.u64("memory.total_bytes"), part.u64("memory.max_main_bytes")),
        (20_000_000_000, 500_000_000)
    );
    assert_eq!(report.gpu("MIG-fake-b").u64("memory.max_main_bytes"), 0);
    let process = part.array("processes")[0].clone();
    assert_eq!((&process["peak_bytes"], &process["max_sm_percent"]), (&500_000_000.into(), &Value::Null));
    let missing = |gpu: &Report| -> Vec<String> {
        let lines =
            gpu.array("missing").iter().map(|entry| format!("{}: {}", entry["figure"], entry["reason"]));
        // How often a counter is read depends on how busy the machine is.
        let is_lasting = |text: &String| !text.ends_with("read only once, so no difference is known");
        lines.map(|text| text.replace('"', "")).filter(is_lasting).collect()
    };
    assert_eq!(
        missing(&report.gpu(GPU0)),
        [
            "utilization: reported by its MIG instances only",
            "memory by process: reported by its MIG instances only",
            "utilization by process: reported by its MIG instances only",
            "accounting: accounting mode is off",
            "activity: reported by its MIG instances only",
        ]
    );
    assert_eq!(
        missing(&part),
        [
            "utilization: not supported by this device",
            "memory utilization: not supported by this device",
            "encoder utilization: not supported by this device",
            "decoder utilization: not supported by this device",
            "XID errors: not supported by this device",
            "utilization by process: not supported by this device",
            "accounting: accounting mode is off",
            "activity: not supported by this device",
        ]
    );
    assert_eq!(
        report.warnings(),
        "GPU figures that are missing (not supported by this device): utilization, utilization by process of MIG-fake-a, MIG-fake-b."
    );
    assert!(
        part.at("utilization.mean_percent").is_null()
            && report.at("gpu_utilization.gpu_percentages.max_sum_percent").is_null()
    );
    // Only one instance is tracked.
    let run = gpus
        .tracked(gpus.words(&["hold:0m0:500000000,c", "samples:10"]))
        .options(&["--guuids", "MIG-fake-b"])
        .run();
    let report = run.assert_clean(0);
    assert_eq!(report.gpu_ram(), [Some(0), Some(0), Some(0)]);
    assert_eq!(report.f64("max_gpu_ram.system_capacity"), 1e10);
}

// Requirement: GPU-20
#[test]
fn gpu_figures_survive_a_killed_collector() {
    let gpus = FakeGpus::new(1, "0.energy 1000000");
    let more = gpus.script("more", "0.energy 1500000");
    let [ready, go] = ["ready", "go"].map(|name| gpus.path(name));
    let (touch, wait, more) = (format!("touch:{ready}"), format!("wait:{go}"), format!("script:{more}"));
    let words = ["hold:0:700,c", "samples:40", &touch, &wait, "hold:0:100,c", &more, "samples:10"];
    let running = gpus.tracked(gpus.words(&words)).start();
    wait_until("the first part", || Path::new(&ready).exists());
    running.replace_collector();
    std::fs::write(&go, "").unwrap();
    let run = running.wait();
    assert_eq!(run.status.code(), Some(0));
    assert_eq!(run.report().gpu_ram(), [Some(700), Some(0), Some(700)]);
    assert_eq!(run.report().gpu(GPU0).f64("power.energy_j"), 500.0);
    // The time in which the collector was replaced can be short enough for no warning.
    for warning in run.report().all_warnings() {
        assert!(
            !warning.starts_with(UNREAD_GPUS) || warning.contains("the collector was killed"),
            "{warning}"
        );
        assert!(!warning.contains("lived between two readings"), "{warning}");
    }
}

#[test]
fn sixteen_gpus_are_all_reported() {
    let gpus = FakeGpus::new(16, "");
    let holds: Vec<String> = (0..16).map(|n| format!("hold:{n}:{},c", 1000 + n)).collect();
    let mut words: Vec<&str> = holds.iter().map(String::as_str).collect();
    words.push("sampled");
    let run = gpus.run(&words);
    let report = run.assert_clean(0);
    assert_eq!(report.array("gpus").len(), 16);
    assert_eq!(report.gpu_ram(), [Some(16_120), Some(0), Some(16_120)]);
    assert_eq!(report.gpu("GPU-fake-15").u64("memory.max_main_bytes"), 1015);
}

// Requirement: GPU-9
#[test]
fn gpu_filters_apply_to_every_figure() {
    let gpus = FakeGpus::new(3, "");
    let words = gpus.words(&["hold:0:700,c", "hold:1:300,c", "hold:2:90,c", "sampled"]);
    let run = gpus.tracked(words.clone()).options(&["--guuids", "GPU-fake-1,gpu-fake-2"]).run();
    let report = run.assert_clean(0);
    assert_eq!(report.gpu_ram(), [Some(390), Some(0), Some(390)]);
    assert_eq!(report.f64("max_gpu_ram.system"), 2e9);
    assert_eq!(report.f64("max_gpu_ram.system_capacity"), 2.0 * 85_899_345_920.0);
    assert_eq!(report.u64("gpu_utilization.system_gpu_count"), 3);
    assert_eq!(report.u64("gpu_utilization.n_expected_gpus"), 2);
    assert_eq!(report.array("gpus").len(), 2);
    // --visible reads the launcher's environment, which is also the command's.
    let run = gpus
        .tracked(words.clone())
        .options(&["--visible"])
        .with(|command| command.env("CUDA_VISIBLE_DEVICES", "GPU-fake-2,GPU-fake-0"))
        .run();
    assert_eq!(run.assert_clean(0).gpu_ram()[0], Some(790));
    let run = gpus.tracked(["true"]).options(&["--gb", "amd"]).run();
    let report = run.assert_clean(0);
    assert_eq!(report.gpu_ram()[0], Some(0));
    assert_eq!(report.u64("gpu_utilization.system_gpu_count"), 0);
}

// Requirement: GPU-9
#[test]
fn unknown_gpu_is_refused_before_the_command_starts() {
    // The kernel module's files name the GPUs; the driver, which takes long to initialise, is not asked.
    let gpus = FakeGpus::new(2, "init.stall forever");
    for (address, uuid) in [("0000:3b:00.0", "GPU-fake-0"), ("0000:b1:00.0", "GPU-fake-1")] {
        let directory = gpus.path(&format!("proc/driver/nvidia/gpus/{address}"));
        std::fs::create_dir_all(&directory).unwrap();
        let text = format!("Model: \t\t Fake A100\nGPU UUID: \t {uuid}\nBus Location: \t {address}\n");
        std::fs::write(format!("{directory}/information"), text).unwrap();
    }
    let root = gpus.path("");
    let run = |name: &str| {
        gpus.tracked(["sh", "-c", "echo started"]).options(&["--gpu-root", &root, "--guuids", name]).run()
    };
    let unknown = run("GPU-other");
    assert_eq!((unknown.status.code(), unknown.stdout.as_str()), (Some(2), ""));
    assert_eq!(
        unknown.stderr,
        "gpu-track-run: --guuids: \"GPU-other\" is not a GPU of this machine: one of GPU-fake-0, GPU-fake-1\n"
    );
    for known in ["GPU-fake-1", "0000:b1:00.0", "MIG-some-instance"] {
        assert!(run(known).stdout.starts_with("started\n"), "{known}");
    }
}

/// Where only the driver knows the GPUs, the command does not wait for it.
// Requirement: GPU-9
#[test]
fn unknown_gpu_is_reported_at_the_end_if_only_the_driver_knows() {
    let gpus = FakeGpus::new(2, "");
    let words = gpus.words(&["hold:0:700,c", "sampled"]);
    let run = gpus.tracked(words).options(&["--guuids", "GPU-fake-0,GPU-other"]).run();
    let report = run.assert_clean(0);
    assert_eq!(
        report.warnings(),
        "--guuids: \"GPU-other\" is not a GPU of this machine: one of GPU-fake-0, GPU-fake-1. Sums over the GPUs are not \
         known."
    );
    assert_eq!(report.gpu_ram(), [None; 3]);
    assert_eq!(report.gpu(GPU0).u64("memory.max_main_bytes"), 700);
}

// Requirement: GPU-18
#[test]
fn allocated_but_idle_gpu_is_named_in_a_warning() {
    let gpus = FakeGpus::new(3, "");
    let words = gpus.words(&["hold:0:700,c", "sampled"]);
    let run = gpus.tracked(words).with(|command| command.env("CUDA_VISIBLE_DEVICES", "0,1")).run();
    let (report, idle) = (
        run.assert_clean(0),
        "Allocated but idle: GPU-fake-1 (Fake A100) was never seen in use by the command.",
    );
    // A busy machine can add one about utilization that was not measured.
    assert!(report.warnings().lines().any(|line| line == idle), "{}", report.warnings());
    assert_eq!(report.gpu("GPU-fake-2").at("visible"), false);
}

// Requirement: GPU-17
#[test]
fn gpu_list_shows_available_and_missing_figures() {
    let gpus = FakeGpus::new(2, "0.energy !3\n1.power !4");
    let run = gpus.list(&["-f", "json", "--guuids", GPU1]);
    assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
    let listing: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(listing["gpus"][0]["id"], GPU0);
    assert_eq!(
        (&listing["gpus"][0]["tracked"], &listing["gpus"][1]["tracked"]),
        (&false.into(), &true.into())
    );
    let reason = |gpu: usize, figure: &str| {
        let figures = listing["gpus"][gpu]["figures"].as_array().unwrap();
        figures.iter().find(|entry| entry["figure"] == figure).unwrap()["reason"].clone()
    };
    assert_eq!(reason(0, "energy counter"), "not supported by this device");
    assert_eq!(reason(1, "power"), "no permission");
    assert!(reason(1, "energy counter").is_null());
    let run = gpus.list(&[]);
    assert!(run.stdout.contains("GPU-fake-1: Fake A100\n   PCI address: 0000:3b:00.0\n"), "{}", run.stdout);
    assert!(
        run.stdout.contains("      energy counter: n/a (not supported by this device)\n"),
        "{}",
        run.stdout
    );
}

// Requirement: GPU-19
#[test]
fn gpu_sections_are_zero_without_a_gpu() {
    if Path::new("/dev/nvidiactl").exists() || Path::new("/dev/kfd").exists() {
        skip!("this machine has a GPU");
    }
    let root = tempfile::tempdir().unwrap();
    let root = root.path().to_str().unwrap().to_owned();
    let run = tracked(["true"]).options(&["--gpu-root", &root]).run();
    let report = run.assert_clean(0);
    assert_eq!(report.gpu_ram(), [Some(0), Some(0), Some(0)]);
    assert_eq!(report.u64("gpu_utilization.system_gpu_count"), 0);
    assert_eq!(report.warnings(), "");
}
