//! GPUs that are lost, cannot be read, appear or return.

use crate::support::gpu::{FakeGpus, GPU0, GPU1};
use crate::support::wait_until;

#[test]
fn xid_error_of_a_lost_gpu_is_reported() {
    // The second GPU lets the command wait for further samples.
    let gpus = FakeGpus::new(2, "");
    let lost = gpus.script("lost", "0.xids 79\n0.lost 15");
    let run = gpus.run(&["sampled", &format!("script:{lost}"), "samples:30"]);
    let report = run.assert_clean(0);
    let gpu = report.gpu(GPU0);
    assert_eq!(gpu.at("errors.xid").to_string(), r#"[{"count":1,"xid":79}]"#);
    assert!(gpu.at("lost_at_s").is_number());
    assert!(report.warnings().contains("GPU-fake-0 reported XID error 79 (once)."), "{}", report.warnings());
}

// Requirement: GPU-6, GPU-69
#[test]
fn lost_gpu_does_not_affect_other_gpus() {
    let gpus = FakeGpus::new(2, "");
    let lost = gpus.script("lost", "0.lost 15");
    let words = [
        "hold:0:700,c",
        "hold:1:100,c",
        "sampled",
        &format!("script:{lost}"),
        "sampled",
        "hold:1:400,c",
        "sampled",
    ];
    let run = gpus.run(&words);
    let report = run.assert_clean(0);
    assert_eq!(report.gpu_ram()[0], Some(800));
    assert!(report.gpu(GPU0).f64("lost_at_s") > 0.0);
    assert_eq!(report.gpu(GPU0).u64("memory.max_main_bytes"), 700);
    assert_eq!(report.gpu(GPU1).u64("memory.max_main_bytes"), 400);
    assert!(report.gpu(GPU1).at("lost_at_s").is_null());
    // ECC counts are read once more at the end, when the GPU was lost.
    assert!(report.gpu(GPU0).at("errors.ecc_corrected").is_null());
    let ecc = |entry: &&serde_json::Value| entry["figure"] == "ECC errors corrected";
    assert_eq!(report.gpu(GPU0).array("missing").iter().find(ecc).unwrap()["reason"], "GPU lost");
    let lost_at_s = report.gpu(GPU0).f64("lost_at_s");
    assert!(lost_at_s <= report.f64("compute_time.time"), "{lost_at_s}");
    assert_eq!(
        report.warnings(),
        format!("GPU lost at {lost_at_s:.1} s: GPU-fake-0; its figures end there.")
    );
}

#[test]
fn gpu_lost_before_first_reading_has_reasons_for_all_nulls() {
    // The GPU answers when it is discovered and fails from then on.
    let gpus = FakeGpus::new(2, "0.memory_used !15");
    let run = gpus.run(&["hold:0:700,c", "hold:1:100,c", "samples:6"]);
    let report = run.assert_clean(0);
    let lost = report.gpu(GPU0);
    // Every figure is missing except XID errors, of which there were none.
    assert_eq!(lost.array("missing").len(), 20);
    assert_eq!(lost.array("errors.xid").len(), 0);
    assert!(
        lost.array("missing").iter().all(|entry| entry["reason"] == "GPU lost"),
        "{}",
        lost.at("missing")
    );
    assert!(lost.at("memory.max_used_bytes").is_null() && lost.at("power.max_w").is_null());
    assert_eq!(report.gpu(GPU1).u64("memory.max_main_bytes"), 100);
    let lost_at_s = lost.f64("lost_at_s");
    assert_eq!(
        report.warnings(),
        format!("GPU lost at {lost_at_s:.1} s: GPU-fake-0; its figures end there.")
    );
}

#[test]
fn gpu_lost_before_the_run_is_warned_about_once() {
    let gpus = FakeGpus::new(3, "0.lost 15\n1.handle !4");
    let report = gpus.run(&["hold:2:700,c", "samples:60"]).assert_clean(0).clone();
    assert_eq!(report.gpu_ram(), [Some(700), Some(0), Some(700)]);
    // The second GPU may not be opened: it belongs to another user.
    let warning = "GPU number 0 of the NVIDIA driver could not be read: GPU lost.";
    assert_eq!(report.warnings(), warning);
    // No process can use a lost GPU, so the sums by process are known; its own memory is not.
    assert!(report.at("max_gpu_ram.system").is_null() && report.at("max_gpu_ram.system_capacity").is_null());
    assert!(report.at("gpu_utilization.system_gpu_count").is_null());
    let listing = gpus.list(&["-f", "json"]);
    let listing: serde_json::Value = serde_json::from_str(&listing.stdout).unwrap();
    assert_eq!((&listing["gpus"][0]["id"], &listing["warnings"][0]), (&"GPU-fake-2".into(), &warning.into()));
    assert!(gpus.list(&[]).stdout.contains(&format!("Warning: {warning}")));
}

/// Figures of two GPUs under one name would be mixed.
// Requirement: GPU-5
#[test]
fn gpus_of_one_uuid_are_not_mixed() {
    let gpus = FakeGpus::new(2, "1.uuid GPU-fake-0");
    let report = gpus.run(&["hold:0:700,c", "samples:6"]).assert_clean(0).clone();
    let warning = "GPU number 1 of the NVIDIA driver could not be read: another device is GPU-fake-0, too.";
    assert_eq!(report.warnings(), warning);
    assert_eq!(report.gpu_ram(), [None; 3]);
    assert_eq!(report.gpu(GPU0).u64("memory.max_main_bytes"), 700);
}

/// The driver gives a UUID later, or no longer.
// Requirement: GPU-5
#[test]
fn gpu_keeps_its_name_when_the_driver_tells_another() {
    for (first, then, name) in [("0.uuid !3", "", "0000:3b:00.0"), ("", "0.uuid !3", GPU0)] {
        let gpus = FakeGpus::new(1, first);
        let script = gpus.script("then", then);
        let words = ["hold:0:700,c", "sampled", &format!("script:{script}"), "listed", "sampled"];
        let report = gpus.run(&words).assert_clean(0).clone();
        let ids: Vec<_> = report.array("gpus").iter().map(|gpu| gpu["id"].as_str().unwrap()).collect();
        assert_eq!(ids, [name]);
        assert_eq!(report.gpu_ram()[2], Some(700));
    }
}

/// A process computes on a GPU, whose lists do not have it: no memory of it is known, and not 0.
// Requirement: GPU-32
#[test]
fn memory_of_a_process_at_work_that_no_list_has_is_unknown() {
    let gpus = FakeGpus::new(1, "");
    let report = gpus.run(&["hold:0:500,n,40", "for:1500"]).assert_clean(0).clone();
    let gpu = report.gpu(GPU0);
    assert_eq!((gpu.at("used"), gpu.at("memory.max_combined_bytes").is_null()), (&true.into(), true));
    assert!(report.at("max_gpu_ram.combined").is_null(), "{}", report.at("max_gpu_ram"));
    assert!(report.warnings().contains("(not reported by the driver): "), "{}", report.warnings());
}

/// Unlike "GPU lost", this error does not imply that no process uses the GPU.
// Requirement: GPU-5
#[test]
fn gpu_sums_are_null_if_one_gpu_is_unreadable() {
    let gpus = FakeGpus::new(2, "0.lost 999");
    let report = gpus.run(&["hold:1:700,c", "samples:6"]).assert_clean(0).clone();
    assert_eq!(
        report.warnings(),
        "GPU number 0 of the NVIDIA driver could not be read: NVML error 999: unknown error."
    );
    assert_eq!(report.gpu_ram(), [None; 3]);
    assert_eq!(report.gpu(GPU1).u64("memory.max_main_bytes"), 700);
    for sum in ["max_gpu_ram.system", "gpu_utilization.system_gpu_count"] {
        assert!(report.at(sum).is_null(), "{sum}");
    }
    assert!(report.at("gpu_utilization.gpu_percentages.max_sum_percent").is_null());
}

// Requirement: GPU-6
#[test]
fn gpus_added_and_removed_during_a_run_are_tracked() {
    let gpus = FakeGpus::new(1, "count 1");
    let two = gpus.script("two", "count 2");
    let one = gpus.script("one", "count 1");
    let wait = gpus.path("seen");
    let words = [
        "hold:0:100,c",
        "hold:1:700,c",
        "sampled",
        &format!("script:{two}"),
        &format!("wait:{wait}"),
        &format!("script:{one}"),
        "samples:60",
    ];
    let running = gpus.tracked(gpus.words(&words)).start();
    gpus.wait_sampled();
    // Two devices give two readings per sample, so after this many readings the second one was found.
    wait_until("the second GPU", || {
        std::fs::metadata(gpus.path("samples")).is_ok_and(|file| file.len() > 120)
    });
    std::fs::write(&wait, "").unwrap();
    let run = running.wait();
    let report = run.assert_clean(0);
    assert_eq!(report.gpu_ram()[0], Some(800));
    assert_eq!(report.gpu(GPU1).u64("memory.max_main_bytes"), 700);
    assert!(report.gpu(GPU1).f64("lost_at_s") > 0.0);
    assert!(report.gpu(GPU0).at("lost_at_s").is_null());
}

#[test]
fn failed_gpu_call_does_not_make_a_gpu_lost() {
    for failing in ["count !999", "0.handle !999", "0.handle !4"] {
        let gpus = FakeGpus::new(2, "");
        let bad = gpus.script("bad", failing);
        // Devices are looked for every half second, so within 120 readings of two devices.
        let script = format!("script:{bad}");
        let run = gpus.run(&["hold:0:700,c", "sampled", &script, "samples:120", "hold:0:900,c", "sampled"]);
        let report = run.assert_clean(0);
        assert_eq!(report.gpu_ram(), [Some(900), Some(0), Some(900)], "{failing}");
        assert!(report.gpu(GPU0).at("lost_at_s").is_null() && report.gpu(GPU1).at("lost_at_s").is_null());
        assert_eq!(report.warnings(), "", "{failing}");
    }
}

// Requirement: GPU-6
#[test]
fn gpu_that_returns_after_a_loss_is_read_again() {
    let gpus = FakeGpus::new(1, "");
    // The second GPU lets the command wait for samples while the first one is lost.
    let lost = gpus.script("lost", "0.lost 15\ncount 2");
    let back = gpus.script("back", "count 2");
    let (lost, back) = (format!("script:{lost}"), format!("script:{back}"));
    let run =
        gpus.run(&["hold:0:700,c", "sampled", &lost, "samples:60", &back, "hold:0:900,c", "samples:30"]);
    let report = run.assert_clean(0);
    assert_eq!(report.gpu_ram()[0], Some(900));
    let warnings = report.warnings();
    assert!(
        warnings.starts_with("GPU lost at ") && warnings.ends_with(" s: GPU-fake-0; it came back later."),
        "{warnings}"
    );
}
