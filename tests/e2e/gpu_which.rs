//! Selection of GPUs by the command's environment and by `--guuids`.

use serde_json::Value;

use crate::support::gpu::FakeGpus;
use crate::support::report::Report;

/// The report of a run with these variables that holds 700 bytes on GPU 0, 300 on GPU 1 and 90 on GPU 2.
fn run(gpus: &FakeGpus, options: &[&str], variables: &'static [(&str, &str)]) -> Report {
    let words = gpus.words(&["hold:0:700,c", "hold:1:300,c", "hold:2:90,c", "sampled", "sampled"]);
    let run = gpus.tracked(words).options(options).with(|command| command.envs(variables.iter().copied()));
    run.run().assert_clean(0).clone()
}

// Requirement: GPU-10
#[test]
fn cuda_visible_devices_ends_at_its_first_wrong_entry() {
    let gpus = FakeGpus::new(3, "");
    for (list, bytes) in [
        (&[("CUDA_VISIBLE_DEVICES", "2,7,0")][..], 90),
        (&[("CUDA_VISIBLE_DEVICES", "1,-1,0")], 300),
        // `GPU-fake` is a prefix of more than one UUID.
        (&[("CUDA_VISIBLE_DEVICES", "GPU-fake-1,GPU-fake,0")], 300),
        (&[("CUDA_VISIBLE_DEVICES", "gpu-fake-2")], 90),
    ] {
        let report = run(&gpus, &["--visible"], list);
        assert_eq!(report.gpu_ram()[0], Some(bytes), "{list:?}");
    }
}

/// The driver's indices include devices that may not be opened; CUDA's do not.
// Requirement: GPU-10
#[test]
fn gpu_indices_skip_devices_that_cannot_be_opened() {
    let gpus = FakeGpus::new(3, "0.handle !4");
    let report = run(&gpus, &["--visible"], &[("CUDA_VISIBLE_DEVICES", "1")]);
    assert_eq!(report.gpu_ram()[0], Some(90));
    assert_eq!(report.gpu("GPU-fake-2").u64("index"), 2);
    assert_eq!(report.u64("gpu_utilization.system_gpu_count"), 2);
}

/// CUDA counts a device that NVML could not identify.
// Requirement: GPU-10
#[test]
fn gpu_indices_mean_no_known_device_while_one_cannot_be_read() {
    let gpus = FakeGpus::new(3, "0.handle !999");
    let report = run(&gpus, &["--visible"], &[("CUDA_VISIBLE_DEVICES", "1")]);
    for (gpu, bytes) in [("GPU-fake-1", 300), ("GPU-fake-2", 90)] {
        assert!(report.gpu(gpu).at("visible").is_null());
        assert_eq!(report.gpu(gpu).u64("memory.max_main_bytes"), bytes);
    }
    let report = run(&gpus, &["--visible"], &[("CUDA_VISIBLE_DEVICES", "GPU-fake-2")]);
    assert_eq!(report.array("gpus").len(), 1);
}

// Requirement: GPU-10
#[test]
fn empty_cuda_visible_devices_hides_all_gpus() {
    let gpus = FakeGpus::new(2, "");
    for none in ["", "-1", "NoDevFiles"] {
        let run = gpus.list_with(&["--visible", "-f", "json"], &[("CUDA_VISIBLE_DEVICES", none)]);
        let listing: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
        let values = |key: &str| -> Vec<_> {
            listing["gpus"].as_array().unwrap().iter().map(|gpu| gpu[key].clone()).collect()
        };
        assert_eq!(
            (values("visible"), values("tracked")),
            (vec![false.into(); 2], vec![false.into(); 2]),
            "{none}"
        );
    }
}

/// Slurm's numbers are those of the device nodes, however many devices the job may see.
// Requirement: GPU-10
#[test]
fn slurm_gpu_numbers_are_device_minors() {
    let gpus = FakeGpus::new(3, "0.minor 4\n1.minor 5\n2.minor 6");
    for (variables, bytes) in [
        (&[("SLURM_STEP_GPUS", "4,6")][..], 790),
        (&[("SLURM_JOB_GPUS", "5")], 300),
        // CUDA_VISIBLE_DEVICES counts only the devices that the job may see.
        (&[("SLURM_STEP_GPUS", "4,6"), ("CUDA_VISIBLE_DEVICES", "1")], 300),
    ] {
        let report = run(&gpus, &["--visible"], variables);
        assert_eq!(report.gpu_ram()[0], Some(bytes), "{variables:?}");
    }
}

// Requirement: GPU-12
#[test]
fn visibility_of_a_divided_gpu_follows_its_mig_parts() {
    let mig = "0.mig 1\n0.mig_most 2\n0m0.uuid MIG-fake-a\n0m1.uuid MIG-fake-b\n*.process_times !3";
    let gpus = FakeGpus::new(2, mig);
    let words = gpus.words(&["hold:0m0:500,c", "hold:1:90,c", "samples:20"]);
    for (list, visible, bytes) in [
        ("0", [true, true, true, false], 500),
        ("MIG-fake-a", [false, true, false, false], 500),
        ("MIG-fake-b", [false, false, true, false], 0),
        ("GPU-fake-1", [false, false, false, true], 90),
    ] {
        let tracked = |options: &[&str]| {
            let tracked = gpus.tracked(words.clone()).options(options);
            tracked.with(move |command| command.env("CUDA_VISIBLE_DEVICES", list)).run()
        };
        let run = tracked(&[]);
        let report = run.assert_clean(0);
        let seen: Vec<_> = report.array("gpus").iter().map(|gpu| gpu["visible"].as_bool().unwrap()).collect();
        assert_eq!(seen, visible, "{list}");
        // CUDA uses only one MIG part per process, so the other part is not reported as idle. On a busy machine a GPU may be left
        // unread for a while: then it is not known whether it was used.
        let is_idle = report.warnings().contains("Allocated but idle");
        let is_known = report.array("gpus").iter().all(|gpu| !gpu["used"].is_null());
        assert_eq!(is_idle, is_known && list == "MIG-fake-b", "{list}: {}", report.warnings());
        let has_gap = |gpu: &Value| gpu["gaps"].as_array().is_some_and(|gaps| !gaps.is_empty());
        assert!(is_known || report.array("gpus").iter().any(has_gap), "{report}");
        assert_eq!(tracked(&["--visible"]).assert_clean(0).gpu_ram()[0], Some(bytes), "{list}");
    }
}

// Requirement: GPU-57
#[test]
fn gpu_indices_with_mixed_models_are_warned_about() {
    let gpus = FakeGpus::new(3, "0.name T4");
    let unsure = "The indices in CUDA_VISIBLE_DEVICES were read in PCI bus order, but CUDA's default order has the \
                  fastest GPU first: they may mean other GPUs. Set CUDA_DEVICE_ORDER=PCI_BUS_ID, or name the GPUs by UUID.";
    // A busy machine has warnings of its own.
    let is_unsure = |gpus: &FakeGpus, variables| run(gpus, &[], variables).warnings().contains(unsure);
    for (variables, wanted) in [
        (&[("CUDA_VISIBLE_DEVICES", "0")][..], true),
        (&[("CUDA_VISIBLE_DEVICES", "0"), ("CUDA_DEVICE_ORDER", "FASTEST_FIRST")], true),
        (&[("CUDA_VISIBLE_DEVICES", "0"), ("CUDA_DEVICE_ORDER", "PCI_BUS_ID")], false),
        (&[("CUDA_VISIBLE_DEVICES", "0,1,2")], false),
        (&[("CUDA_VISIBLE_DEVICES", "GPU-fake-0")], false),
    ] {
        assert_eq!(is_unsure(&gpus, variables), wanted, "{variables:?}");
    }
    let alike = FakeGpus::new(3, "");
    assert!(!is_unsure(&alike, &[("CUDA_VISIBLE_DEVICES", "0")]));
}

// Requirement: GPU-9
#[test]
fn guuids_selects_by_uuid_prefix_or_pci_address() {
    let mig =
        "0.mig 1\n0.mig_most 2\n0m0.uuid MIG-fake-a\n0m1.uuid MIG-other-b\n*.process_times !3\n1.bus 177";
    let gpus = FakeGpus::new(12, mig);
    let words = gpus.words(&[
        "hold:0m0:1,c",
        "hold:0m1:2,c",
        "hold:1:10,c",
        "hold:2:100,c",
        "hold:10:1000,c",
        "hold:11:10000,c",
        "sampled",
    ]);
    for (words_of_user, bytes, ids) in [
        ("GPU-fake-2", 100, &["GPU-fake-2"][..]),
        ("gpu-FAKE-2", 100, &["GPU-fake-2"]),
        ("GPU-fake-1", 11_010, &["GPU-fake-1", "GPU-fake-10", "GPU-fake-11"]),
        ("GPU-fake-10,GPU-fake-2", 1100, &["GPU-fake-2", "GPU-fake-10"]),
        ("MIG-other-b", 2, &["MIG-other-b"]),
        ("MIG-f,GPU-fake-2", 101, &["MIG-fake-a", "GPU-fake-2"]),
        ("MIG-", 0, &[]),
        ("0000:b1:00.0", 10, &["GPU-fake-1"]),
    ] {
        // A run that reads no GPU waits for a time instead of a reading.
        let words = if ids.is_empty() { gpus.words(&["for:300"]) } else { words.clone() };
        let run = gpus.tracked(words).options(&["--guuids", words_of_user]).run();
        let report = run.assert_clean(0);
        if ids.is_empty() {
            let warning = "--guuids: \"MIG-\" is not a GPU of this machine";
            assert!(report.warnings().starts_with(warning), "{}", report.warnings());
            assert_eq!(report.gpu_ram(), [None; 3]);
            continue;
        }
        let tracked: Vec<_> = report.array("gpus").iter().map(|gpu| gpu["id"].as_str().unwrap()).collect();
        assert_eq!(tracked, ids, "{words_of_user}");
        assert_eq!(report.gpu_ram(), [Some(bytes), Some(0), Some(bytes)], "{words_of_user}");
        assert_eq!(report.u64("gpu_utilization.n_expected_gpus"), ids.len() as u64);
        assert_eq!(report.u64("gpu_utilization.system_gpu_count"), 12);
    }
}
