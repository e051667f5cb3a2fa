//! GPU figures that are made of readings at different times: sums over devices, and what no reading covers.

use crate::support::assert_within;
use crate::support::gpu::{FakeGpus, GPU0, GPU1};
use crate::support::report::{Report, UNREAD_GPUS};

fn warning(report: &Report, begin: &str) -> Option<String> {
    let warnings = report.all_warnings().into_iter();
    warnings.filter(|line| line.starts_with(begin)).map(str::to_owned).next()
}

/// 5 GB are given back on one GPU and taken at once on another, which is read before it.
// Requirement: GPU-1
#[test]
fn gpu_memory_that_moves_to_another_gpu_counts_once() {
    let gpus = FakeGpus::new(2, "*.memory_held 1\n*.memory_used 0");
    let words = ["hold:1:5000000000,c", "samples:12", "free:1", "hold:0:5000000000,c", "samples:12"];
    let report = gpus.tracked(gpus.words(&words)).options(&["--st", "0.1"]).run().assert_clean(0).clone();
    assert_eq!(report.gpu_ram()[0], Some(5_000_000_000));
    assert_eq!(report.gpu_ram()[2], Some(5_000_000_000));
    assert_eq!(report.at("max_gpu_ram.system").as_f64(), Some(5e9));
    assert_eq!(report.f64("processes.heaviest.0.gpu.peak_ram_bytes"), 5e9);
    for gpu in [GPU0, GPU1] {
        assert_eq!(report.gpu(gpu).u64("memory.max_combined_bytes"), 5_000_000_000);
    }
}

// Requirement: GPU-1
#[test]
fn gpu_memory_that_moves_through_all_gpus_counts_once() {
    let gpus = FakeGpus::new(8, "");
    let mut words = vec!["hold:7:40000000000,c".to_owned(), gpus.sampled()];
    for gpu in (0..7).rev() {
        let next = [format!("free:{}", gpu + 1), format!("hold:{gpu}:40000000000,c"), gpus.sampled()];
        words.extend(next);
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let report = gpus.tracked(gpus.words(&words)).options(&["--st", "0.05"]).run().assert_clean(0).clone();
    assert_eq!(report.gpu_ram()[2], Some(40_000_000_000));
}

// Requirement: GPU-1
#[test]
fn gpu_memory_that_is_held_on_all_gpus_adds_up() {
    let gpus = FakeGpus::new(8, "");
    let holds: Vec<String> = (0..8).map(|gpu| format!("hold:{gpu}:{}000000000,c", gpu + 1)).collect();
    let words: Vec<&str> = holds.iter().map(String::as_str).chain(["sampled", "sampled"]).collect();
    let report = gpus.run(&words).assert_clean(0).clone();
    assert_eq!(report.gpu_ram()[2], Some(36_000_000_000));
    assert_eq!(report.f64("processes.heaviest.0.gpu.peak_ram_bytes"), 36e9);
}

/// The driver's calls of the second GPU, and of the first, wait while a process uses it.
// Requirement: GPU-32
#[test]
fn gpu_that_was_not_read_for_a_while_has_no_zeros() {
    let gpus = FakeGpus::new(2, "");
    let stall = gpus.script("stall", &format!("power.stall {}", gpus.path("go-on")));
    let words = [
        "hold:0:2000000000,c",
        "sampled",
        &format!("script:{stall}"),
        "stalled",
        "hold:1:70000000000,c",
        "for:1000",
        "free:1",
        &format!("touch:{}", gpus.path("go-on")),
        "sampled",
    ];
    let run =
        gpus.tracked(gpus.words(&words)).with(|command| command.env("CUDA_VISIBLE_DEVICES", "0,1")).run();
    let report = run.assert_clean(0);
    assert_eq!(report.gpu_ram(), [Some(2_000_000_000), Some(0), Some(2_000_000_000)]);
    let gpu = report.gpu(GPU1);
    assert!(gpu.f64("reading.max_interval_s") >= 1.0);
    assert!(gpu.at("used").is_null(), "{}", gpu.at("used"));
    let memory = gpu.at("memory");
    assert!(memory["max_main_bytes"].is_null() && memory["max_combined_bytes"].is_null(), "{memory}");
    assert_eq!(memory["max_descendants_bytes"], 0, "there was no descendant");
    let gap = gpu.array("gaps").iter().find(|gap| gap["figure"] == "memory by process").cloned().unwrap();
    assert_eq!(gap["reason"], "not read for longer than two intervals");
    assert!(gap["time_s"].as_f64().unwrap() >= 1.0, "{gap}");
    let unread = warning(report, UNREAD_GPUS).expect("a warning");
    assert!(unread.contains("GPU-fake-0, GPU-fake-1"), "{unread}");
    assert_eq!(warning(report, "Allocated but idle"), None);
    assert!(report.at("hints.gpus").is_null(), "{}", report.at("hints"));
    assert_eq!(report.gpu(GPU0).at("used"), true);
}

/// A process used the second GPU before the driver answered.
// Requirement: GPU-32
#[test]
fn gpu_that_was_first_read_late_has_no_zeros() {
    let gpus = FakeGpus::new(2, "");
    gpus.script("script", &format!("init.stall {}", gpus.path("go-on")));
    let go_on = format!("touch:{}", gpus.path("go-on"));
    let words = ["hold:1:70000000000,c", "stalled", "for:600", "free:1", &go_on, "sampled"];
    let report = gpus.run(&words).assert_clean(0).clone();
    assert_eq!(report.gpu_ram().map(|ram| ram.bytes), [None, Some(0), None]);
    assert!(report.gpu(GPU1).at("used").is_null());
    assert!(warning(&report, UNREAD_GPUS).is_some());
}

// Requirement: GPU-33
#[test]
fn gpus_that_are_always_busy_have_the_whole_sum() {
    for (count, cost_us) in [(8, "1000"), (16, "4500")] {
        let gpus = FakeGpus::new(count, "*.samples ring 100 20000 100");
        let words = gpus.words(&["for:4000"]);
        let run = gpus
            .tracked(words)
            .options(&["--st", "0.1"])
            .with(move |command| command.env("FAKE_NVML_COST_US", cost_us))
            .run();
        let report = run.assert_clean(0);
        let percent = report.at("gpu_utilization.gpu_percentages").clone();
        let all = 100.0 * count as f64;
        let sums = [percent["max_sum_percent"].as_f64(), percent["mean_sum_percent"].as_f64()];
        // On a busy machine a device may be left unread: then the sum is not known.
        let is_any_unread =
            report.array("gpus").iter().any(|gpu| gpu["utilization"]["mean_percent"].is_null());
        assert_eq!(sums, if is_any_unread { [None; 2] } else { [Some(all); 2] });
    }
}

/// Power is seldom read, and was 188 W in the mean.
// Requirement: GPU-34
#[test]
fn gpu_mean_power_is_that_of_the_energy() {
    let gpus = FakeGpus::new(8, "*.energy 5000000+188000/s\n*.power 100000");
    let run = gpus
        .tracked(gpus.words(&["for:3000"]))
        .options(&["--st", "0.1"])
        .with(|command| command.env("FAKE_NVML_COST_US", "4500"))
        .run();
    let report = run.assert_clean(0);
    let gpu = report.gpu(GPU0);
    let power = |key: &str| gpu.f64(&format!("power.{key}"));
    assert_within("mean power", power("mean_w"), 188.0, 3.0);
    assert_within("energy", power("mean_w") * power("mean_span_s"), power("energy_j"), 1e-7);
    assert_eq!(power("mean_span_s"), power("energy_span_s"));
    // Without the counter it is that of the readings.
    let gpus = FakeGpus::new(1, "0.energy !3\n0.power 100000");
    let gpu = gpus.run(&["samples:8"]).assert_clean(0).gpu(GPU0);
    assert_eq!(gpu.f64("power.mean_w"), 100.0);
    assert_within("energy", gpu.f64("power.mean_span_s") * 100.0, gpu.f64("power.integrated_energy_j"), 1e-7);
}
