//! GPU drivers whose calls are slow, fail for a while, or tell less than one would like. What is reported is true, and
//! what is unknown is null, with the reason.

use serde_json::Value;

use crate::support::assert_within;
use crate::support::gpu::{FakeGpus, GPU0};
use crate::support::programs::compiled;
use crate::support::report::Report;

/// All warnings, also those that depend on how fast the fake driver is.
fn all_warnings(report: &Report) -> String {
    report.all_warnings().join("\n")
}

/// How often the driver's calls were made, by a part of their names.
fn calls(gpus: &FakeGpus, part: &str) -> usize {
    std::fs::read_to_string(gpus.path("calls")).unwrap().lines().filter(|name| name.contains(part)).count()
}

/// As on an RTX 4090: 4.5 ms for each of three process lists, and 50 us for other calls.
// Requirement: GPU-21
#[test]
fn short_peak_on_one_of_eight_gpus_is_seen_though_lists_are_slow() {
    let gpus = FakeGpus::new(8, "");
    std::fs::write(gpus.path("calls"), "").unwrap();
    let child = gpus.line(&["hold:5:5000000000,c", "for:500"]);
    let script = format!("{}; {child}; {}", gpus.line(&["for:300"]), gpus.line(&["for:300"]));
    let run = gpus
        .tracked(["sh", "-c", &script])
        .options(&["--st", "0.1"])
        .with(|command| command.env("FAKE_NVML_COST_US", "50 RunningProcesses=4500"))
        .run();
    let report = run.assert_clean(0);
    assert_eq!(report.gpu_ram(), [Some(0), Some(5_000_000_000), Some(5_000_000_000)]);
    assert!(report.gpu("GPU-fake-5").u64("reading.count") > 2);
    // Lists that stay empty are seldom read.
    let [compute, graphics] = ["ComputeRunning", "GraphicsRunning"].map(|part| calls(&gpus, part));
    assert!(calls(&gpus, "MPSComputeRunning") == graphics && graphics < compute / 3, "{graphics}, {compute}");
}

/// The driver wants a buffer for all samples that it keeps, and says so at the first call.
#[test]
fn gpu_utilization_by_process_is_asked_for_once_a_reading() {
    let gpus = FakeGpus::new(1, "0.process_room 4096");
    std::fs::write(gpus.path("calls"), "").unwrap();
    let run = gpus.run(&["hold:0:500,c,60", "samples:20"]);
    assert_eq!(run.assert_clean(0).gpu(GPU0).f64("processes.0.max_sm_percent"), 60.0);
    let [by_process, of_device] = ["GetProcessUtilization", "GetSamples"].map(|part| calls(&gpus, part));
    assert!(of_device > 4 && by_process < of_device * 3 / 2, "{by_process}, {of_device}");
}

/// Each reading of 16 lists takes so long that a process of half a second can live between two.
// Requirement: GPU-21, GPU-68
#[test]
fn gpu_memory_is_null_if_readings_are_too_far_apart() {
    let gpus = FakeGpus::new(4, "");
    let library = gpus.path("libcuda.so.1");
    std::os::unix::fs::symlink(compiled("libcuda", "cc", &["-shared", "-fPIC"]), &library).unwrap();
    let line = format!("LD_PRELOAD={library} {}", gpus.line(&["for:200"]));
    let script = [line.as_str()].repeat(12).join("; ");
    let run = gpus
        .tracked(["sh", "-c", &script])
        .with(|command| command.env("FAKE_NVML_COST_US", "RunningProcesses=50000"))
        .run();
    let report = run.assert_clean(0);
    assert_eq!(report.gpu_ram().map(|ram| ram.bytes), [None, None, None]);
    let warnings = all_warnings(report);
    assert!(warnings.contains("so it is not known whether any GPU memory was used"), "{warnings}");
    assert!(!warnings.contains("a smaller --st"), "{warnings}");
}

// Requirement: GPU-59
#[test]
fn gpu_pcie_bytes_are_null_if_the_counter_can_wrap_unseen() {
    // 16 lanes of generation 6 fill 32 bits in 36 ms; a reading takes 40.
    for (generation, width, bits, expected) in
        [(1, 1, 32, Some(4000)), (6, 16, 32, None), (6, 16, 64, Some(5_000_000_000))]
    {
        let link = format!("0.pcie_generation {generation}\n0.pcie_width {width}\n0.pcie_bits {bits}");
        let gpus = FakeGpus::new(1, &link);
        let later = if bits == 64 { 5_000_001_000_u64 } else { 5000 };
        let later = gpus.script("later", &format!("0.pcie_tx {later}\n{link}"));
        let run = gpus
            .tracked(gpus.words(&["sampled", &format!("script:{later}"), "sampled"]))
            .with(|command| command.env("FAKE_NVML_COST_US", "FieldValues=40000"))
            .run();
        let gpu = run.assert_clean(0).gpu(GPU0);
        assert_eq!(gpu.at("pcie.tx_bytes").as_u64(), expected, "generation {generation}, {bits} bits");
        let missing = gpu.array("missing").iter().find(|missing| missing["figure"] == "PCIe bytes sent");
        assert_eq!(missing.is_none(), expected.is_some(), "{missing:?}");
    }
}

// Requirement: GPU-26, GPU-59
#[test]
fn gpu_pcie_bytes_of_a_fast_link_are_read_before_the_counter_can_wrap() {
    // Generation 4 fills 32 bits in 136 ms, and memory is read every 250 ms. Power is read by a call of its own here.
    let script = "0.pcie_generation 4\n0.pcie_width 16\n0.power_instant !2\n0.pcie_tx 0+1000000000/s";
    let gpus = FakeGpus::new(1, script);
    std::fs::write(gpus.path("calls"), "").unwrap();
    let run = gpus.tracked(gpus.words(&["for:2000"])).options(&["--st", "0.25"]).run();
    let gpu = run.assert_clean(0).gpu(GPU0);
    let [pcie, lists] = ["FieldValues", "ComputeRunningProcesses_v3"].map(|part| calls(&gpus, part));
    // The second has "MPSComputeRunningProcesses" in it.
    assert!(pcie > lists, "{pcie} readings, {lists} of two lists");
    // A busy machine can be too late for one of them.
    match gpu.at("pcie.tx_bytes").as_f64() {
        Some(bytes) => assert_within("bytes", bytes, gpu.f64("power.energy_span_s") * 1e9, 15.0),
        None => assert!(gpu.array("missing").iter().any(|missing| missing["figure"] == "PCIe bytes sent")),
    }
}

/// 4.5 ms for each call of eight GPUs: memory in use alone is read each time, and shows that a list has changed.
// Requirement: GPU-21, GPU-27
#[test]
fn short_peak_is_seen_though_all_calls_are_slow() {
    let gpus = FakeGpus::new(8, "*.memory_held 1\n*.energy 5000000+100000/s\n*.power 100000");
    std::fs::write(gpus.path("calls"), "").unwrap();
    let child = gpus.line(&["hold:5:5000000000,c", "for:500"]);
    let script = format!("{}; {child}; {}", gpus.line(&["for:1500"]), gpus.line(&["for:500"]));
    let run = gpus
        .tracked(["sh", "-c", &script])
        .options(&["--st", "0.1"])
        .with(|command| command.env("FAKE_NVML_COST_US", "4500"))
        .run();
    let report = run.assert_clean(0);
    assert_eq!(report.gpu_ram(), [Some(0), Some(5_000_000_000), Some(5_000_000_000)]);
    let [memory, lists] = ["MemoryInfo_v2", "DeviceGetComputeRunning"].map(|part| calls(&gpus, part));
    assert!(memory > lists * 3 / 2, "{memory} readings of memory, {lists} of lists");
    // What the energy covers is said, and it is all of that.
    let span_s = report.gpu("GPU-fake-7").f64("power.energy_span_s");
    assert_within("energy", report.gpu("GPU-fake-7").f64("power.energy_j"), 100.0 * span_s, 5.0);
}

/// The driver takes as long to start as the command then runs.
// Requirement: GPU-27, GPU-54
#[test]
fn gpu_energy_says_what_part_of_the_run_it_covers() {
    let gpus = FakeGpus::new(1, "init.stall 700\n0.energy 5000000+100000/s");
    let report = gpus.run(&["sampled", "for:300", "sampled"]).assert_clean(0).clone();
    let run_s = report.f64("compute_time.time");
    let span_s = report.gpu(GPU0).f64("power.energy_span_s");
    assert!(span_s < run_s - 0.5, "{span_s} of {run_s} s");
    // One line has all figures that the slow start cut short.
    let warnings = all_warnings(&report);
    assert_eq!(warnings.matches("GPU figures that cover ").count(), 1, "{warnings}");
    assert!(warnings.contains(&format!(" s of the run's {run_s:.1} s (the driver was late")), "{warnings}");
    assert!(warnings.contains("): energy, PCIe traffic, throttled time of GPU-fake-0. "), "{warnings}");
    let report = FakeGpus::new(1, "").run(&["for:2000"]).assert_clean(0).clone();
    assert!(report.gpu(GPU0).f64("power.energy_span_s") > 1.0);
}

/// A list that is longer than the first buffer costs one call more, once.
#[test]
fn gpu_list_of_a_hundred_strangers_is_read_by_one_call() {
    let gpus = FakeGpus::new(1, "*.crowd 100");
    std::fs::write(gpus.path("calls"), "").unwrap();
    let run = gpus.run(&["hold:0:500,c", "samples:20"]);
    assert_eq!(run.assert_clean(0).gpu_ram()[0], Some(500));
    let [memory, lists] = ["MemoryInfo_v2", "DeviceGetComputeRunning"].map(|part| calls(&gpus, part));
    // The first time, the list does not fit.
    assert!(lists >= 20 && lists <= memory + 1, "{lists} calls for the list, {memory} for memory");
}

// Requirement: GPU-28
#[test]
fn gpu_memory_errors_are_read_at_the_start_and_at_the_end() {
    let gpus = FakeGpus::new(2, "*.ecc_corrected 4|9\n*.ecc_uncorrected 0|1");
    std::fs::write(gpus.path("calls"), "").unwrap();
    let report = gpus.run(&["samples:30"]).assert_clean(0).clone();
    for id in ["GPU-fake-0", "GPU-fake-1"] {
        let errors = report.gpu(id).at("errors").clone();
        assert_eq!((&errors["ecc_corrected"], &errors["ecc_uncorrected"]), (&5.into(), &1.into()));
    }
    assert_eq!(calls(&gpus, "TotalEccErrors"), 8);
}

// Requirement: GPU-23
#[test]
fn busy_gpu_is_busy_though_its_driver_keeps_few_samples() {
    // 20 samples, one in each 50 ms, and an interval of 30 s.
    let gpus = FakeGpus::new(1, "0.samples ring 20 50000 100");
    let run = gpus.tracked(gpus.words(&["for:2500"])).options(&["--st", "30"]).run();
    let gpu = run.assert_clean(0).gpu(GPU0);
    assert_eq!(gpu.f64("utilization.mean_percent"), 100.0);
    assert!(gpu.f64("utilization.measured_s") > 1.0);
}

// Requirement: GPU-23
#[test]
fn utilization_that_the_driver_has_forgotten_is_left_out() {
    // The driver keeps half a second, and each call takes so long that it is read every 1.5 s at most.
    let gpus = FakeGpus::new(1, "0.samples ring 10 50000 100");
    let run = gpus
        .tracked(gpus.words(&["for:4000"]))
        .with(|command| command.env("FAKE_NVML_COST_US", "nvmlDeviceGetSamples=120000"))
        .run();
    let report = run.assert_clean(0);
    let gpu = report.gpu(GPU0);
    assert_eq!(gpu.f64("utilization.mean_percent"), 100.0);
    assert_eq!(gpu.f64("utilization.active_s"), gpu.f64("utilization.measured_s"));
    let warnings = all_warnings(report);
    assert!(warnings.contains("The utilization of GPU-fake-0 is known for "), "{warnings}");
}

// Requirement: GPU-24
#[test]
fn gpu_energy_counter_that_steps_back_adds_nothing() {
    // 3e9 J so far, with 5 J between two readings, and a step of 50 mJ back.
    let gpus = FakeGpus::new(1, "0.energy 3000000000000|3000000005000|3000000004950|3000000010000");
    let report = gpus.run(&["sampled", "sampled"]).assert_clean(0).clone();
    assert_eq!(report.gpu(GPU0).f64("power.energy_j"), 10.0);
    assert_eq!(
        report.warnings(),
        "The energy counter of GPU-fake-0 stepped back once without a reset: the larger reading was kept."
    );
}

// Requirement: GPU-22
#[test]
fn gpu_list_that_failed_for_a_while_is_reported() {
    let gpus = FakeGpus::new(1, "0.memory_used 2000000000");
    let bad = gpus.script("bad", "0.processes !999\n0.memory_used 10000000000");
    let good = gpus.script("good", "0.memory_used 2000000000");
    let run = gpus.run(&[
        "hold:0:1500000000,c",
        "sampled",
        &format!("script:{bad}"),
        "hold:0:9000000000,c",
        "samples:12",
        "hold:0:1500000000,c",
        &format!("script:{good}"),
        "sampled",
    ]);
    let report = run.assert_clean(0);
    assert_eq!(report.gpu_ram()[0], Some(1_500_000_000));
    let gaps = report.gpu(GPU0).array("gaps").to_vec();
    assert_eq!(gaps.len(), 1, "{gaps:?}");
    assert_eq!(
        (&gaps[0]["figure"], &gaps[0]["reason"]),
        (&"memory by process".into(), &"NVML error 999: unknown error".into())
    );
    let warnings = report.warnings();
    assert!(
        warnings.starts_with("GPU figure that could not be read for ")
            && warnings.contains("(NVML error 999: unknown error): memory by process of GPU-fake-0.")
            && warnings.ends_with("Up to 10.0 GB were in use on it meanwhile, by all processes."),
        "{warnings}"
    );
}

#[test]
fn unavailable_memory_of_a_descendant_hides_only_what_depends_on_it() {
    let gpus = FakeGpus::new(1, "");
    let child = gpus.line(&["hold:0:na,c", "sampled"]);
    let run = gpus.tracked(["sh", "-c", &format!("{child}; exit 0")]).run();
    let report = run.assert_clean(0);
    assert_eq!(report.gpu_ram(), [Some(0), None, None]);
    let memory = report.gpu(GPU0).at("memory").clone();
    assert_eq!((&memory["max_main_bytes"], &memory["max_descendants_bytes"]), (&0.into(), &Value::Null));
    assert_eq!(memory["max_combined_bytes"], Value::Null);
}

#[test]
fn gpu_memory_keeps_its_meaning_if_the_call_fails_once() {
    // The first version of the call would count the driver's reserve, too.
    let gpus = FakeGpus::new(1, "0.memory_v2 ok|ok|ok|!999|ok\n0.memory_reserved 700000000");
    let gpu = gpus.run(&["sampled", "sampled"]).assert_clean(0).gpu(GPU0);
    assert_eq!(gpu.u64("memory.max_used_bytes"), 1_000_000_000);
}

#[test]
fn gpu_events_that_can_not_be_registered_leave_the_others() {
    // After this error the fake driver crashes if the set is used again.
    let gpus = FakeGpus::new(3, "1.register !999\n2.xids 31");
    let bad = gpus.script("bad", "1.register !999\n0.xids 79\n2.xids 31");
    let report = gpus.run(&["sampled", &format!("script:{bad}"), "sampled"]).assert_clean(0).clone();
    let xids = |id: &str| report.gpu(id).at("errors.xid").to_string();
    assert_eq!(xids("GPU-fake-0"), r#"[{"count":1,"xid":79}]"#);
    assert_eq!(xids("GPU-fake-1"), "null");
    assert_eq!(xids("GPU-fake-2"), r#"[{"count":1,"xid":31}]"#);
}

// Requirement: GPU-4
#[test]
fn gpu_errors_that_the_driver_can_not_tell_are_null_with_their_reason() {
    for (code, reason) in [("3", "not supported by this device"), ("999", "NVML error 999: unknown error")] {
        let gpus = FakeGpus::new(1, &format!("event_wait {code}"));
        let report = gpus.run(&["sampled", "sampled"]).assert_clean(0).clone();
        assert_eq!(report.gpu(GPU0).at("errors.xid"), &Value::Null);
        assert_eq!(
            report.warnings(),
            format!("GPU figures that are missing ({reason}): XID errors of GPU-fake-0.")
        );
    }
}

#[test]
fn gpu_power_and_temperature_are_read_by_the_newer_calls() {
    let gpus = FakeGpus::new(1, "0.power_instant 420000\n0.temperature_v 66");
    let gpu = gpus.run(&["sampled"]).assert_clean(0).gpu(GPU0);
    assert_eq!((gpu.f64("power.max_w"), gpu.f64("max_temperature_c")), (420.0, 66.0));
}

// Requirement: GPU-12, GPU-55
#[test]
fn gpu_mig_instances_have_utilization_where_the_driver_has_gpm() {
    let mig = "0.mig 1\n0.mig_most 7\n0m0.uuid MIG-fake-a\n0m1.uuid MIG-fake-b\n0.gpm 1\n0m0.gpm_busy 75\n0m1.gpm_busy !3\n\
               0m0.process_times !3\n0m1.process_times !3\n0m0.samples !3\n0m1.samples !3\n0m0.utilization !3\n\
               0m1.utilization !3";
    let gpus = FakeGpus::new(1, mig);
    // A divided GPU is named with its instances.
    let words = gpus.words(&["hold:0m1:300,c", "for:500", "sampled"]);
    let report = gpus.tracked(words).options(&["--guuids", GPU0]).run().assert_clean(0).clone();
    let part = report.gpu("MIG-fake-a");
    assert_eq!((part.f64("utilization.mean_percent"), part.f64("utilization.max_percent")), (75.0, 75.0));
    assert!(report.gpu("MIG-fake-b").at("utilization.mean_percent").is_null());
    assert!(report.at("gpu_utilization.gpu_percentages.mean_sum_percent").is_null());
    assert_eq!(report.gpu_ram(), [Some(300), Some(0), Some(300)]);
}

/// 16 GPUs at 4.5 ms a call kept the driver's lock for 94% of the time. The command's own calls wait for it.
// Requirement: GPU-29, GPU-68
#[test]
fn slow_gpu_driver_is_left_to_the_command() {
    for (options, most) in [(&["--full"][..], 0.25), (&["--st", "0.1"][..], 0.75)] {
        let gpus = FakeGpus::new(16, "*.memory_held 1");
        std::fs::write(gpus.path("spent"), "").unwrap();
        let command = gpus.line(&["hold:3:5000000000,c", "for:5500"]);
        let run = gpus
            .tracked(["sh", "-c", &command])
            .without_option("--st")
            .options(options)
            .with(|command| command.env("FAKE_NVML_COST_US", "4500"))
            .run();
        let report = run.assert_clean(0);
        let share = gpus.busy_share(report);
        // On a busy machine a call takes longer than usual, which is known only when it is over.
        assert!(share < most * 1.2, "{options:?}: {share}");
        // Memory and processes come first, and how far the readings were apart is said first.
        assert_eq!(report.gpu_ram(), [Some(0), Some(5_000_000_000), Some(5_000_000_000)]);
        let longest_s = report.gpu("GPU-fake-3").f64("reading.max_interval_s");
        assert!(longest_s > 0.1);
        let warnings = all_warnings(report);
        assert!(warnings.starts_with("GPU memory by process was read every "), "{warnings}");
        assert!(
            warnings.contains(" s apart, instead of every 0.10 s: shorter peaks are missing on all 16 GPUs.")
        );
        let percent = format!("at most {:.0}% of its time is used", most * 100.0);
        assert!(warnings.contains(&percent), "{warnings}");
    }
}

/// Of each of 16 GPUs the same is missing.
// Requirement: GPU-30
#[test]
fn gpu_warnings_have_the_most_misleading_first_and_no_list_of_uuids() {
    let gpus = FakeGpus::new(
        16,
        "*.temperature !4\n*.processes !999\n*.power !4\n*.pcie_tx !16\n0.energy 5000000|5000000|4000000",
    );
    let report = gpus.run(&["samples:34"]).assert_clean(0).clone();
    let warnings = report.all_warnings();
    let place = |part: &str| {
        warnings
            .iter()
            .position(|line| line.contains(part))
            .unwrap_or_else(|| panic!("no {part}: {warnings:#?}"))
    };
    assert!(
        place("memory by process of all 16 GPUs.") < place("power, temperature of all 16 GPUs."),
        "{warnings:#?}"
    );
    assert!(
        place("power, temperature of all 16 GPUs.") < place("PCIe bytes sent of all 16 GPUs."),
        "{warnings:#?}"
    );
    let named = warnings.iter().map(|line| line.matches("GPU-fake-").count()).max();
    assert!(named <= Some(2), "{warnings:#?}");
}

/// As many GPUs on links of generation 5 as a driver with calls of a millisecond can't keep up with.
// Requirement: GPU-30, GPU-59
#[test]
fn healthy_run_has_no_warning_about_pcie() {
    let gpus = FakeGpus::new(8, "*.pcie_generation 5\n*.pcie_width 16");
    let run = gpus.run_at_cost("1000", &["for:2000"]);
    let report = run.assert_clean(0);
    assert!(report.gpu(GPU0).at("pcie.tx_bytes").is_null());
    let missing = report.gpu(GPU0).array("missing").iter().any(|entry| entry["figure"] == "PCIe bytes sent");
    assert!(missing && !all_warnings(report).contains("PCIe"), "{}", all_warnings(report));
}
