//! What a GPU's performance counters show (GPM), and the calls that newer GPUs have in place of older ones.

use serde_json::Value;

use crate::support::gpu::{FakeGpus, GPU0, GPU1};
use crate::support::report::Report;

/// A GPU with counters: SMs active 18 percent, no tensor cores, and figures that the driver does not give: no number (12), a counter
/// that has wrapped (13), a metric that it does not have (60).
const GPM: &str = "0.gpm 1\n0.gpm_layout 477\n0.gpm_2 18\n0.gpm_3 12.5\n0.gpm_5 0\n0.gpm_10 88.5\n0.gpm_11 0\n0.gpm_12 nan\n\
                   0.gpm_13 wrapped\n0.gpm_20 1000\n0.gpm_21 2000\n0.gpm_60 !3\n0.gpm_61 500";

fn count(gpus: &FakeGpus, call: &str) -> usize {
    let calls = std::fs::read_to_string(gpus.path("calls")).unwrap();
    calls.lines().filter(|line| *line == call).count()
}

fn reason(gpu: &Report, figure: &str) -> Option<String> {
    let missing = gpu.array("missing").iter().find(|missing| missing["figure"] == figure)?;
    Some(missing["reason"].as_str().unwrap().to_owned())
}

// Requirement: GPU-82
#[test]
fn counters_of_a_whole_gpu_are_figures_and_what_the_driver_does_not_give_is_null() {
    let gpus = FakeGpus::new(2, GPM);
    std::fs::write(gpus.path("calls"), "").unwrap();
    let run = gpus.run(&["hold:0:500,c", "for:900", "sampled"]);
    let report = run.assert_clean(0);
    let gpu = report.gpu(GPU0);
    let mean_and_max =
        |name: &str| ["mean", "max"].map(|kind| gpu.at(&format!("activity.{kind}_{name}_percent")).as_f64());
    assert_eq!(mean_and_max("sm"), [Some(18.0); 2]);
    assert_eq!(mean_and_max("occupancy"), [Some(12.5); 2]);
    assert_eq!(mean_and_max("tensor"), [Some(0.0); 2]);
    assert_eq!(mean_and_max("memory_bandwidth"), [Some(88.5); 2]);
    assert_eq!([mean_and_max("fp32"), mean_and_max("fp16")], [[None; 2]; 2]);
    let not_reported = Some("not reported by the driver".to_owned());
    assert_eq!(
        [reason(&gpu, "FP32 activity"), reason(&gpu, "FP16 activity")],
        [not_reported.clone(), not_reported]
    );
    assert_eq!(reason(&gpu, "NVLink rate received").as_deref(), Some("not supported by this device"));
    let measured_s = gpu.f64("activity.measured_s");
    assert!(measured_s > 0.5 && measured_s <= report.f64("wall_s"), "{measured_s}");
    // Rates are means over known stretches of time, so they add up to bytes. These replace the counters of 32 bits.
    let bytes = |mib_per_s: f64| (mib_per_s * f64::from(1 << 20) * measured_s) as i64;
    for (path, mib_per_s) in
        [("pcie.tx_bytes", 1000.0), ("pcie.rx_bytes", 2000.0), ("activity.nvlink_tx_bytes", 500.0)]
    {
        // The time is rounded in the report.
        assert!((gpu.u64(path) as i64 - bytes(mib_per_s)).abs() < 10_000_000, "{path}: {}", gpu.at(path));
    }
    assert!(gpu.at("activity.nvlink_rx_bytes").is_null());
    assert_eq!((reason(&gpu, "PCIe bytes sent"), reason(&gpu, "SM activity")), (None, None));

    // Over time, and as rows of what shows figures.
    let series = report.array("series.gpus");
    let largest = |figure: &str| {
        series[0][figure]["max"]
            .as_array()
            .map(|max| max.iter().filter_map(Value::as_f64).fold(0.0, f64::max))
    };
    assert_eq!((largest("sm_active_percent"), largest("memory_bandwidth_percent")), (Some(18.0), Some(88.5)));
    assert_eq!((largest("fp32_active_percent"), series[1].get("sm_active_percent")), (None, None));

    // The other GPU has none: null, and no warning.
    let other = report.gpu(GPU1);
    assert!(other.at("activity.mean_sm_percent").is_null() && other.at("activity.measured_s").is_null());
    assert_eq!(reason(&other, "activity").as_deref(), Some("not supported by this device"));
    assert!(!report.warnings().contains("activity"), "{}", report.warnings());
    assert_eq!(count(&gpus, "nvmlGpmQueryDeviceSupport"), 2, "a GPU without counters costs one call");
    assert!(count(&gpus, "nvmlGpmMetricsGet") < count(&gpus, "nvmlGpmSampleGet"), "one call for all metrics");
}

// Requirement: GPU-82
#[test]
fn counters_are_not_read_with_the_option_nor_of_older_gpus() {
    let gpus = FakeGpus::new(1, GPM);
    std::fs::write(gpus.path("calls"), "").unwrap();
    let run = gpus.tracked(gpus.words(&["for:300", "sampled"])).options(&["--no-gpm"]).run();
    let gpu = run.assert_clean(0).gpu(GPU0);
    assert_eq!(reason(&gpu, "activity").as_deref(), Some("switched off by --no-gpm"));
    assert!(gpu.at("activity.mean_sm_percent").is_null());
    let calls = std::fs::read_to_string(gpus.path("calls")).unwrap();
    assert!(!calls.contains("Gpm"), "{calls}");

    let old = FakeGpus::new(1, "").driver("old");
    let gpu = old.run(&["for:300", "sampled"]).assert_clean(0).gpu(GPU0);
    assert!(gpu.at("activity.mean_sm_percent").is_null());
    assert!(reason(&gpu, "activity").is_some());
}

/// In containers, samples were refused after some minutes (DCGM issue 214). A fractional vGPU says that it has counters, and gives
/// no sample.
// Requirement: GPU-82
#[test]
fn refused_samples_leave_what_is_known_and_a_vgpu_without_samples_is_null() {
    let gpus = FakeGpus::new(2, &format!("{GPM}\n1.gpm 1\n1.gpm_sample !3\n"));
    let refused = gpus.script("refused", &format!("{GPM}\n0.gpm_sample !4\n1.gpm 1\n1.gpm_sample !3"));
    let run = gpus.run(&["for:600", "sampled", &format!("script:{refused}"), "for:500", "sampled"]);
    let report = run.assert_clean(0);
    let (gpu, virtual_one) = (report.gpu(GPU0), report.gpu(GPU1));
    assert_eq!(gpu.f64("activity.mean_sm_percent"), 18.0);
    // A part of the bytes is not all of them.
    assert!(gpu.at("pcie.tx_bytes").is_null() && gpu.at("activity.nvlink_tx_bytes").is_null());
    assert_eq!(reason(&gpu, "PCIe bytes sent").as_deref(), Some("no permission"));
    let gaps = gpu.array("gaps").iter().filter(|gap| gap["reason"] == "no permission").count();
    assert!(gaps > 0, "{}", gpu.at("gaps"));
    assert!(report.all_warnings().iter().any(|line| line.contains("no permission")));
    assert!(virtual_one.at("activity.mean_sm_percent").is_null());
    assert_eq!(reason(&virtual_one, "activity").as_deref(), Some("not supported by this device"));
}

/// Blackwell lacks the older call for the utilization of processes (HAMi issue 2015).
// Requirement: GPU-83
#[test]
fn utilization_by_process_is_read_by_the_newer_call_where_the_older_is_missing() {
    let gpus = FakeGpus::new(1, "0.newer_process_call 1\n0.samples ring 100 20000 60\n0.process_times turns");
    let run = gpus.run(&["hold:0:500,c,60", "for:700", "sampled"]);
    let gpu = run.assert_clean(0).gpu(GPU0);
    let process = &gpu.array("processes")[0];
    let percent = process["mean_sm_percent"].as_f64().unwrap_or_default();
    assert!((40.0..=60.0).contains(&percent), "{process}");
    assert_eq!(reason(&gpu, "utilization by process"), None);
}

// Requirement: GPU-83
#[test]
fn processes_of_an_instance_are_found_in_the_list_of_its_gpu() {
    let mig = "0.mig 1\n0.mig_most 2\n0m0.uuid MIG-fake-a\n0m1.uuid MIG-fake-b\n*.process_times !3\n\
               0.lists_parts 1\n0m0.processes !4\n0m1.processes !4\n0.gpm 1\n0m0.gpm_busy 75\n0m0.gpm_2 61\n0m0.samples !3\n\
               0m0.utilization !3\n0m0.gpm_layout 333";
    let gpus = FakeGpus::new(1, mig);
    let run = gpus.run(&["hold:0m0:300,c", "for:600", "sampled"]);
    let report = run.assert_clean(0);
    let (a, b) = (report.gpu("MIG-fake-a"), report.gpu("MIG-fake-b"));
    assert_eq!(a.u64("memory.max_combined_bytes"), 300, "{}", a.at("memory"));
    assert_eq!(b.u64("memory.max_combined_bytes"), 0, "{}", b.at("memory"));
    // Its counters are read by the handle of the GPU.
    assert_eq!((a.f64("utilization.mean_percent"), a.f64("activity.mean_sm_percent")), (75.0, 61.0));
    let whole = report.gpu(GPU0);
    assert_eq!(reason(&whole, "activity").as_deref(), Some("reported by its MIG instances only"));
}

// Requirement: GPU-83
#[test]
fn processes_of_an_instance_are_found_for_as_long_as_the_run_lasts() {
    let mig =
        "0.mig 1\n0.mig_most 1\n0m0.uuid MIG-fake-a\n*.process_times !3\n0.lists_parts 1\n0m0.processes !3";
    let gpus = FakeGpus::new(1, mig);
    let run = gpus.run(&["hold:0m0:300,c", "sampled", "listed", "hold:0m0:500,c", "sampled"]);
    let instance = run.assert_clean(0).gpu("MIG-fake-a");
    assert_eq!(instance.u64("memory.max_combined_bytes"), 500, "{}", instance.at("memory"));
    assert_eq!(reason(&instance, "memory by process"), None);
}

/// For a while, or always, the driver does not say how many instances there are.
// Requirement: GPU-12
#[test]
fn instances_that_the_driver_fails_to_list_are_not_lost() {
    let mig = "0.mig 1\n0.mig_most 1\n0m0.uuid MIG-fake-a\n*.process_times !3";
    let gpus = FakeGpus::new(1, mig);
    let failing = gpus.script("failing", &format!("0.mig_most !999\n{mig}"));
    let again = gpus.script("again", mig);
    let (fail, answer) = (format!("script:{failing}"), format!("script:{again}"));
    let words = ["hold:0m0:300,c", "sampled", &fail, "listed", &answer, "listed", "sampled"];
    let report = gpus.run(&words).assert_clean(0).clone();
    assert!(report.gpu("MIG-fake-a").at("lost_at_s").is_null(), "{}", report.warnings());
    assert_eq!(report.gpu("MIG-fake-a").u64("memory.max_combined_bytes"), 300);
    let gpus = FakeGpus::new(1, &format!("0.mig_most !999\n{mig}"));
    let report = gpus.run(&["hold:0m0:300,c", "sampled"]).assert_clean(0).clone();
    assert!(report.warnings().contains("MIG instance 0 on GPU number 0"), "{}", report.warnings());
    assert!(report.gpu(GPU0).at("used").is_null());
}

// Requirement: GPU-83
#[test]
fn instance_without_an_id_has_none_of_the_processes_of_its_gpu() {
    let mig = "0.mig 1\n0.mig_most 2\n0m0.uuid MIG-fake-a\n0m1.uuid MIG-fake-b\n0.lists_parts 1\n0m0.processes !4\n\
               0m1.processes !4\n0m0.instance 4294967295\n0m1.instance 4294967295";
    let gpus = FakeGpus::new(1, mig);
    // Its entry in the GPU's list is of no instance.
    let run = gpus.run(&["hold:0:300,c", "for:600", "sampled"]);
    for id in ["MIG-fake-a", "MIG-fake-b"] {
        let instance = run.report().gpu(id);
        assert!(instance.at("memory.max_combined_bytes").is_null(), "{}", instance.at("memory"));
        assert_eq!(reason(&instance, "memory by process").as_deref(), Some("no permission"));
    }
    assert_eq!(run.report().gpu_ram(), [None; 3]);
}

// Requirement: GPU-82
#[test]
fn dcgm_that_runs_beside_is_said_where_the_counters_are_read() {
    let gpus = FakeGpus::new(1, GPM);
    let directory = gpus.path("root");
    std::fs::create_dir_all(format!("{directory}/run")).unwrap();
    std::fs::create_dir_all(format!("{directory}/proc/77")).unwrap();
    let write_pid = |pid: &str| std::fs::write(format!("{directory}/run/nvhostengine.pid"), pid).unwrap();
    let run = |script: &str, options: &[&str]| {
        gpus.script("script", script);
        let options = [&["--gpu-root", &directory], options].concat();
        gpus.tracked(gpus.words(&["sampled"]))
            .options(&options)
            .run()
            .assert_clean(0)
            .all_warnings()
            .join("\n")
    };
    let says = |lines: String| lines.contains("DCGM") && lines.contains("--no-gpm");
    write_pid("77\n");
    assert!(says(run(GPM, &[])));
    assert!(!says(run(GPM, &["--no-gpm"])) && !says(run("", &[])));
    write_pid("78\n");
    assert!(!says(run(GPM, &[])), "its engine was killed");
}

// Requirement: GPU-84
#[test]
fn what_the_figures_mean_is_in_the_report_and_its_summary() {
    let gpus = FakeGpus::new(1, &format!("{GPM}\n0.samples ring 100 20000 97\n0.process_times turns"));
    let words = ["hold:0:500,c,97", "for:2500", "sampled"];
    let run = gpus.tracked(gpus.words(&words)).options(&["--summary"]).run();
    assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
    let report = run.report();
    let findings = report.gpu(GPU0).array("findings").to_vec();
    let found = findings.iter().find(|finding| finding["kind"] == "sms_idle").unwrap();
    assert_eq!(found["percent"].as_f64(), Some(18.0), "{found}");
    assert!(found["of_percent"].as_f64().unwrap() > 50.0, "{found}");
    let text = format!("GPU 0: {}", found["text"].as_str().unwrap());
    assert!(run.stderr.contains(&text), "{}", run.stderr);
}

/// With calls of 4.5 ms, the counters of eight GPUs must not take what memory and the command need of the driver.
// Requirement: GPU-29, GPU-82
#[test]
fn slow_driver_with_counters_is_left_to_the_command() {
    let counters = GPM.replace("\n0.", "\n*.").replacen("0.", "*.", 1);
    let gpus = FakeGpus::new(8, &format!("{counters}\n*.memory_held 1"));
    std::fs::write(gpus.path("spent"), "").unwrap();
    let command = gpus.line(&["hold:3:5000000000,c", "for:5500"]);
    let run = gpus
        .tracked(["sh", "-c", &command])
        .without_option("--st")
        .with(|command| command.env("FAKE_NVML_COST_US", "4500"))
        .run();
    let report = run.assert_clean(0);
    let share = gpus.busy_share(report);
    // On a busy machine a call takes longer than usual, which is known only when it is over.
    assert!(share < 0.25 * 1.2, "{share}");
    assert_eq!(report.gpu_ram()[2], Some(5_000_000_000));
}
