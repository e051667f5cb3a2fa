//! GPUs: what the report says of a driver whose every answer is known.

use std::ffi::CString;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::gpu::FakeGpus;
use crate::support::leftovers::collector;
use crate::support::report::Report;
use crate::support::{installed, is_root, kill, skip, tracked, wait_until};

const GPU0: &str = "GPU-fake-0";
const GPU1: &str = "GPU-fake-1";

#[test]
fn gpu_figures_of_one_process_are_exact() {
    let gpus = FakeGpus::new(1, "0.samples");
    let busy = gpus.script(
        "busy",
        "0.memory_used 3000000000\n0.power 300000\n0.energy 5250000\n0.temperature 77\n0.pstate 2\n0.ecc_corrected 6\n\
         0.samples 1500000:80 2500000:40\n0.process_times 1000000\n0.pcie_tx 5000\n0.memory_utilization 21",
    );
    let script = format!("script:{busy}");
    let run =
        gpus.run(&["sampled", "hold:0:2000000000,c,60", &script, "sampled", "hold:0:500000000,c", "sampled"]);
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
    assert_eq!((gpu.f64("power.max_w"), gpu.f64("power.energy_j")), (300.0, 250.0));
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
    // All but the driver's account, which is off.
    assert_eq!(gpu.array("missing").len(), 1);
    assert_eq!(report.warnings(), "");
}

#[test]
fn gpu_combined_is_the_maximum_of_a_sum_over_gpus_and_processes() {
    let gpus = FakeGpus::new(2, "");
    let [one, two, done] = ["one", "two", "done"].map(|name| gpus.path(name));
    // Two children: 700 + 300 at once, then 900 alone. Devices are read one after another, so what moves from one to
    // another is let go for a whole sample.
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

/// Every layout of the process list, under every name.
#[test]
fn gpu_process_lists_are_read_in_every_layout() {
    for (features, changes) in [
        ("", "stride 24"),
        ("", "stride 32"),
        ("", "stride 24\nclears_buffer 1"),
        ("", "stride 32\nclears_buffer 1"),
        ("second", "stride 24"),
        ("old", ""),
    ] {
        let gpus = FakeGpus::new(1, &format!("{changes}\n0.memory_reserved 700000000")).driver(features);
        let other = gpus.line(&["hold:0:1234567,c", "sampled"]);
        let main = gpus.line(&["hold:0:7654321,g", "sampled"]);
        let run = gpus.tracked(["sh", "-c", &format!("{other} & {main}; wait")]).run();
        let report = run.assert_clean(0);
        let peaks: Vec<_> =
            report.gpu(GPU0).array("processes").iter().map(|p| p["peak_bytes"].as_u64().unwrap()).collect();
        assert_eq!(peaks, [7_654_321, 1_234_567], "{features} {changes}");
        // An old library has its memory in the first form only, which counts what the driver reserves.
        let used = if features == "old" { 1_700_000_000 } else { 1_000_000_000 };
        assert_eq!(report.gpu(GPU0).u64("memory.max_used_bytes"), used);
    }
}

#[test]
fn gpu_lists_are_never_probed_with_a_null_buffer() {
    // The fake driver ends the collector for it, unless it is the kind that says that all is well.
    for kind in ["", "null_probe success"] {
        let gpus = FakeGpus::new(1, kind);
        let run = gpus.run(&["hold:0:500,c", "sampled"]);
        assert_eq!(run.assert_clean(0).gpu_ram()[0], Some(500));
    }
}

#[test]
fn gpu_list_that_grows_between_two_calls_is_read_whole() {
    // Ours come after 100 foreign ones, which are 30 more at every call.
    let gpus = FakeGpus::new(1, "0.crowd 100\n0.crowd_grows 30");
    let run = gpus.run(&["hold:0:500,cg", "sampled"]);
    assert_eq!(run.assert_clean(0).gpu_ram(), [Some(500), Some(0), Some(500)]);
}

#[test]
fn gpu_process_in_all_three_lists_counts_once() {
    let gpus = FakeGpus::new(1, "");
    let run = gpus.run(&["hold:0:500,cgm", "sampled"]);
    assert_eq!(run.assert_clean(0).gpu_ram(), [Some(500), Some(0), Some(500)]);
}

#[test]
fn gpu_memory_that_is_not_available_is_unknown() {
    let gpus = FakeGpus::new(1, "");
    let run = gpus.run(&["hold:0:na,c", "sampled"]);
    let report = run.assert_clean(0);
    assert_eq!(report.gpu_ram(), [None, Some(0), None]);
    assert!(report.at("processes.heaviest.0.gpu.peak_ram_bytes").is_null());
    assert_eq!(
        report.gpu(GPU0).at("missing.0"),
        &json!({ "figure": "memory by process", "reason": "the driver does not tell it" })
    );
    assert_eq!(
        report.warnings(),
        "GPU figures that are missing (the driver does not tell it): memory by process of GPU-fake-0."
    );
}

#[test]
fn gpu_processes_of_others_do_not_count() {
    let gpus = FakeGpus::new(1, "");
    std::fs::write(gpus.path("held/1.0"), "800 c").unwrap();
    let run = gpus.run(&["hold:0:500,c", "sampled"]);
    assert_eq!(run.assert_clean(0).gpu_ram()[2], Some(500));
}

#[test]
fn gpu_entry_of_a_dead_process_is_not_its_parent_s() {
    let gpus = FakeGpus::new(1, "");
    let dead = gpus.line(&["keep", "hold:0:900,c", "sampled"]);
    let alive = gpus.line(&["hold:0:500,c", "sampled"]);
    let run = gpus.tracked(["sh", "-c", &format!("{dead}; {alive}")]).run();
    assert_eq!(run.assert_clean(0).gpu_ram(), [Some(0), Some(900), Some(900)]);
}

#[test]
fn gpu_entry_that_was_there_before_the_process_with_its_pid_is_not_its() {
    if !is_root() || installed("unshare").is_none() {
        skip!("needs root and unshare (a pid namespace, where pids are known beforehand)");
    }
    // All inside of a pid namespace: the first processes of it get the same pids each time.
    let gpus = FakeGpus::new(1, "");
    let (pid_file, held, sampled) = (gpus.path("pid"), gpus.path("held"), gpus.line(&["sampled"]));
    let inner = format!(
        "pid=$(($(cat /proc/sys/kernel/ns_last_pid) + 5000)); echo $pid >{pid_file}; echo 900 c >{held}/$pid.0; {sampled}; \
         echo $((pid - 1)) >/proc/sys/kernel/ns_last_pid; {sampled}; exit 0"
    );
    let run = gpus
        .tracked(["sh", "-c", &inner])
        .through(&["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"])
        .run();
    assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
    let report = run.report();
    let pid: u64 = std::fs::read_to_string(&pid_file).unwrap().trim().parse().unwrap();
    assert_eq!(report.gpu_ram(), [Some(0), Some(0), Some(0)], "{:?}", report.at("gpus"));
    let pids: Vec<_> = report.array("processes.heaviest").iter().filter_map(|p| p["pid"].as_u64()).collect();
    assert!(pids.contains(&pid), "the pid {pid} was used again: {pids:?}");
}

#[test]
fn gpu_pids_of_a_namespace_are_matched_from_both_sides() {
    if !is_root() || installed("unshare").is_none() {
        skip!("needs root and unshare (a pid namespace)");
    }
    for words in [&["hold:0:500,c", "sampled"][..], &["host", "hold:0:500,c", "sampled"][..]] {
        let gpus = FakeGpus::new(1, "");
        // The fake driver takes the name that the process gives: its own pid, or that of the outer /proc. Its own is one
        // that nobody has outside.
        let inner = format!("echo 4000000 >/proc/sys/kernel/ns_last_pid; {}; exit 0", gpus.line(words));
        let run = gpus.tracked(["unshare", "--pid", "--fork", "sh", "-c", &inner]).run();
        let report = run.assert_clean(0);
        assert_eq!(report.gpu_ram(), [Some(0), Some(500), Some(500)], "{words:?}");
        let process = report.gpu(GPU0).array("processes")[0].clone();
        let is_same = process["pid"] == process["driver_pid"];
        assert_eq!(is_same, words[0] == "host", "{process}");
    }
}

#[test]
fn gpu_pids_of_another_namespace_are_unknown() {
    if !is_root() || installed("unshare").is_none() {
        skip!("needs root and unshare (a pid namespace)");
    }
    // As in a container: the driver names the processes by pids that nobody has inside.
    let gpus = FakeGpus::new(1, "");
    std::fs::write(gpus.path("held/3999999.0"), "500 c").unwrap();
    let run = gpus
        .tracked(gpus.words(&["sampled"]))
        .through(&["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"])
        .run();
    assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
    let report = run.report();
    assert_eq!(report.gpu_ram(), [None, None, None]);
    assert_eq!(report.f64("max_gpu_ram.system"), 1e9, "that of the device is known");
    let gpu = report.gpu(GPU0);
    assert!(gpu.at("memory.max_combined_bytes").is_null());
    let reason = "the driver's process ids are of another pid namespace";
    assert_eq!(gpu.at("missing.0"), &json!({ "figure": "memory by process", "reason": reason }));
    let warning = format!("GPU figures that are missing ({reason}): memory by process of GPU-fake-0.");
    assert!(report.warnings().lines().any(|line| line == warning), "{}", report.warnings());
}

#[test]
fn gpu_utilisation_is_integrated_never_above_100_and_never_from_stale_samples() {
    // Offsets from the driver's start in microseconds; the stale driver gives all of them at every call.
    let gpus = FakeGpus::new(1, "0.stale 1\n0.samples 1500000:150 2000000:20\n0.process_times 1000000");
    let run = gpus.run(&["hold:0:500,c,140", "sampled", "sampled"]);
    let report = run.assert_clean(0);
    let gpu = report.gpu(GPU0);
    assert_eq!(gpu.f64("utilization.max_percent"), 100.0);
    // The driver samples at least once a second while there is work: 1 s at 100%, 0.5 s at 20%.
    assert_eq!(gpu.f64("utilization.active_s"), 1.1);
    assert_eq!(gpu.f64("processes.0.max_sm_percent"), 100.0);
    assert_eq!(gpu.f64("processes.0.mean_sm_percent"), 100.0);
}

#[test]
fn gpu_without_new_samples_was_idle_and_without_any_falls_back_to_the_rate() {
    let gpus = FakeGpus::new(1, "0.samples");
    let run = gpus.run(&["hold:0:500,c", "sampled"]);
    let report = run.assert_clean(0);
    assert!(report.gpu(GPU0).at("utilization.max_percent").is_null());
    assert_eq!(
        report.warnings(),
        "GPU figures that are missing (no sample was taken in time): utilization of GPU-fake-0."
    );
    let gpus = FakeGpus::new(1, "0.samples !3\n0.utilization 35");
    let run = gpus.run(&["hold:0:500,c", "sampled"]);
    assert_eq!(run.assert_clean(0).gpu(GPU0).f64("utilization.mean_percent"), 35.0);
}

#[test]
fn gpu_short_processes_are_found_in_the_driver_s_account() {
    for (changes, wraps) in
        [("0.accounting_lag 2", false), ("0.accounting_room 4000", false), ("0.accounting_room 1", true)]
    {
        // The accounts are hidden until both are there, so that no sample can read the one that is dropped.
        let gpus = FakeGpus::new(1, "0.accounting 1\n0.accounting_room 0");
        let shown = gpus.script("shown", &format!("0.accounting 1\n{changes}"));
        // No sample can be in a process that never waits for one; its account stays.
        let first = gpus.line(&["account:0:5000000"]);
        let second = gpus.line(&["account:0:3000000"]);
        let last = gpus.line(&[&format!("script:{shown}"), "sampled", "sampled", "sampled"]);
        let run = gpus.tracked(["sh", "-c", &format!("{first}; {second}; {last}")]).run();
        let report = run.assert_clean(0);
        let most = if wraps { 3_000_000 } else { 5_000_000 };
        assert_eq!(report.gpu_ram(), [Some(0), Some(most), Some(most)], "{changes}");
        let processes = report.gpu(GPU0).array("processes").to_vec();
        assert_eq!(processes.len(), if wraps { 1 } else { 2 });
        assert!(processes.iter().all(|of| of["accounted"] == true && of["mean_sm_percent"] == 12.0));
        assert_eq!(report.warnings(), "", "nothing can be missing");
    }
}

#[test]
fn gpu_account_of_an_earlier_process_with_the_pid_is_not_ours() {
    let gpus = FakeGpus::new(1, "0.accounting 1");
    // Of a year ago, for every pid that the command could get.
    let script = format!(
        "echo '7000 1 1000000' >{}/account/$$.0; {}",
        gpus.path(""),
        gpus.line(&["sampled", "sampled"])
    );
    let run = gpus.tracked(["sh", "-c", &script]).run();
    assert_eq!(run.assert_clean(0).gpu_ram(), [Some(0), Some(0), Some(0)]);
}

#[test]
fn gpu_accounting_is_switched_on_and_put_back() {
    let gpus = FakeGpus::new(1, "0.accounting 0\n0.accounting_set ok");
    let words = gpus.words(&["sampled", "account:0:5000000", "sampled", "sampled"]);
    let run = gpus.tracked(words).options(&["--gpu-accounting"]).run();
    assert_eq!(run.assert_clean(0).gpu_ram()[0], Some(5_000_000));
    assert_eq!(std::fs::read_to_string(gpus.path("accounting.0")).unwrap(), "0");
}

#[test]
fn gpu_accounting_that_is_forbidden_is_said() {
    let gpus = FakeGpus::new(1, "0.accounting 0\n0.accounting_set !4");
    let run = gpus.tracked(gpus.words(&["sampled"])).options(&["--gpu-accounting"]).run();
    assert_eq!(
        run.assert_clean(0).warnings(),
        "--gpu-accounting: GPU-fake-0: accounting could not be switched on (no permission)."
    );
}

#[test]
fn gpu_processes_that_no_sample_saw_are_counted_as_missing() {
    let gpus = FakeGpus::new(1, "");
    let go = gpus.path("go");
    let stall = format!("script:{}", gpus.script("stall", &format!("power.stall {go}")));
    // The first process ends inside of a reading, which goes on until the others are over.
    let first = gpus.line(&["sampled", &stall, "samples:1"]);
    let script =
        format!("{first}; for i in 1 2 3 4 5 6 7 8 9 10; do /bin/true; /bin/true; done; : >{go}; exit 0");
    let run = gpus.tracked(["sh", "-c", &script]).run();
    assert_eq!(
        run.assert_clean(0).warnings(),
        "GPU processes shorter than the sampling interval may be missing: 20 processes lived between two looks at the \
         GPUs (--gpu-accounting, or a smaller --st)."
    );
}

#[test]
fn gpu_energy_counter_that_begins_again_keeps_what_it_counted() {
    let gpus = FakeGpus::new(1, "0.energy 1000000");
    let (more, again) = (gpus.script("more", "0.energy 1500000"), gpus.script("again", "0.energy 200000"));
    let words = ["sampled", &format!("script:{more}"), "sampled", &format!("script:{again}"), "sampled"];
    let run = gpus.run(&words);
    let report = run.assert_clean(0);
    assert_eq!(report.gpu(GPU0).f64("power.energy_j"), 700.0);
    assert!(
        report.warnings().contains("The energy counter of GPU-fake-0 began again"),
        "{}",
        report.warnings()
    );
}

#[test]
fn gpu_figures_that_are_not_supported_or_not_permitted_are_null_with_the_reason() {
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
        "GPU figures that are missing (NVML error 999: unknown error): performance state of GPU-fake-0.\n\
         GPU figures that are missing (no permission): power of GPU-fake-0.\n\
         GPU figures that are missing (not supported by this device): energy counter, ECC errors corrected, \
         ECC errors uncorrected of GPU-fake-0."
    );
}

#[test]
fn gpu_process_lists_that_are_forbidden_are_unknown() {
    let gpus = FakeGpus::new(1, "0.processes !4");
    let report = gpus.run(&["hold:0:500,c", "sampled"]);
    let report = report.assert_clean(0);
    assert_eq!(report.gpu_ram(), [None, None, None]);
    assert!(
        report.warnings().contains("(no permission): memory by process of GPU-fake-0"),
        "{}",
        report.warnings()
    );
}

#[test]
fn gpu_pcie_counters_wrap() {
    let gpus = FakeGpus::new(1, "0.pcie_tx 4294967000");
    let wrapped = gpus.script("wrapped", "0.pcie_tx 704");
    let run = gpus.run(&["sampled", &format!("script:{wrapped}"), "sampled"]);
    assert_eq!(run.assert_clean(0).gpu(GPU0).u64("pcie.tx_bytes"), 1000);
}

#[test]
fn gpu_throttling_and_xid_errors_are_told() {
    let gpus = FakeGpus::new(1, "");
    let hot = gpus.script("hot", "0.throttle 36\n0.xids 13 13");
    let run = gpus.run(&["sampled", &format!("script:{hot}"), "sampled", "sampled"]);
    let report = run.assert_clean(0);
    let gpu = report.gpu(GPU0);
    let reasons: Vec<_> =
        gpu.array("throttle").iter().map(|of| of["reason"].as_str().unwrap().to_owned()).collect();
    assert_eq!(reasons, ["software power cap", "software thermal slowdown"]);
    assert!(gpu.f64("throttle.0.time_s") > 0.0);
    assert_eq!(gpu.at("errors.xid").to_string(), r#"[{"count":2,"xid":13}]"#);
    assert_eq!(report.warnings(), "GPU-fake-0 reported XID error 13 (2 times).");
}

#[test]
fn gpu_mig_instances_are_devices_of_their_own() {
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
        let of = gpu.array("missing").iter().map(|of| format!("{}: {}", of["figure"], of["reason"]));
        of.map(|text| text.replace('"', "")).collect()
    };
    assert_eq!(
        missing(&report.gpu(GPU0)),
        [
            "utilization: told by its MIG instances only",
            "memory by process: told by its MIG instances only",
            "utilization by process: told by its MIG instances only",
            "accounting: accounting mode is off",
        ]
    );
    assert_eq!(
        missing(&part),
        [
            "utilization: not supported by this device",
            "memory utilization: not supported by this device",
            "XID errors: not supported by this device",
            "utilization by process: not supported by this device",
            "accounting: accounting mode is off",
        ]
    );
    assert_eq!(
        report.warnings(),
        "GPU figures that are missing (not supported by this device): utilization, memory utilization, XID errors, \
         utilization by process of MIG-fake-a, MIG-fake-b."
    );
    assert!(
        part.at("utilization.mean_percent").is_null()
            && report.at("gpu_utilization.gpu_percentages.max_sum_percent").is_null()
    );
    // One instance alone.
    let run = gpus
        .tracked(gpus.words(&["hold:0m0:500000000,c", "samples:10"]))
        .options(&["--guuids", "MIG-fake-b"])
        .run();
    let report = run.assert_clean(0);
    assert_eq!(report.gpu_ram(), [Some(0), Some(0), Some(0)]);
    assert_eq!(report.f64("max_gpu_ram.system_capacity"), 1e10);
}

#[test]
fn gpu_that_is_lost_ends_its_own_figures_only() {
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
    let lost_at_s = report.gpu(GPU0).f64("lost_at_s");
    assert!(lost_at_s <= report.f64("compute_time.time"), "{lost_at_s}");
    assert_eq!(
        report.warnings(),
        format!("GPU lost at {lost_at_s:.1} s: GPU-fake-0; its figures end there.")
    );
}

#[test]
fn gpu_that_was_lost_before_the_first_reading_has_a_reason_for_everything() {
    // It answers when it is looked for, and from then on no more.
    let gpus = FakeGpus::new(2, "0.memory_used 1|!15");
    let run = gpus.run(&["hold:0:700,c", "hold:1:100,c", "samples:6"]);
    let report = run.assert_clean(0);
    let lost = report.gpu(GPU0);
    assert_eq!(lost.array("missing").len(), 18);
    assert!(lost.array("missing").iter().all(|of| of["reason"] == "GPU lost"), "{}", lost.at("missing"));
    assert!(lost.at("memory.max_used_bytes").is_null() && lost.at("power.max_w").is_null());
    assert_eq!(report.gpu(GPU1).u64("memory.max_main_bytes"), 100);
    let lost_at_s = lost.f64("lost_at_s");
    assert_eq!(
        report.warnings(),
        format!("GPU lost at {lost_at_s:.1} s: GPU-fake-0; its figures end there.")
    );
}

/// What the report says where there is no driver; `was_asked` tells when the collector is in it, so that the command
/// ends after the driver's thread.
#[track_caller]
fn assert_no_driver(gpus: &FakeGpus, was_asked: impl FnMut() -> bool, reason: &str) {
    let go = gpus.path("go");
    let running =
        gpus.tracked(["sh", "-c", &format!("while ! test -e {go}; do sleep 0.01; done; exit 3")]).start();
    wait_until("the driver to be asked", was_asked);
    let collector = collector(running.mark(), running.pid()).expect("a collector runs");
    wait_until("the driver's thread to end", || !threads(collector).contains(&"gpu-NVIDIA".to_owned()));
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

/// Names of a process's threads.
fn threads(pid: u32) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    // One that ends meanwhile has none.
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.map(|name| name.trim().to_owned()).collect()
}

#[test]
fn gpu_driver_that_can_t_be_initialised_is_said() {
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
        assert_eq!(gpus.list(&[]).stdout, format!("GPUs: 0\n   NVIDIA: {reason}\n"));
    }
}

#[test]
fn gpu_library_that_can_t_be_loaded_is_said() {
    let reason = |why: &str| format!("the driver's library could not be loaded: {why}");
    // A pipe tells when it is opened.
    let mut gpus = FakeGpus::new(1, "");
    let library = gpus.path("libnvidia-ml.so.1");
    let path = CString::new(library.as_str()).unwrap();
    // SAFETY: the path is a live string.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
    gpus = gpus.library(PathBuf::from(&library));
    let open = || {
        let mut writer = std::fs::OpenOptions::new();
        writer.write(true).custom_flags(libc::O_NONBLOCK).open(&library).is_ok()
    };
    assert_no_driver(&gpus, open, &reason(&format!("{library}: file too short")));
    let absent = FakeGpus::new(1, "").library(PathBuf::from("/no/such/libnvidia-ml.so.1"));
    let why = "/no/such/libnvidia-ml.so.1: cannot open shared object file: No such file or directory";
    assert_eq!(absent.list(&[]).stdout, format!("GPUs: 0\n   NVIDIA: {}\n", reason(why)));
}

#[test]
fn gpu_driver_that_hangs_at_its_start_holds_nobody() {
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
fn gpu_call_that_never_returns_holds_nobody() {
    let gpus = FakeGpus::new(1, "");
    let script = gpus.script("stall", "power.stall forever");
    // After a good sample the next one stalls; the command goes on while it does.
    let run = gpus.run(&["hold:0:500,c", "sampled", &format!("script:{script}"), "samples:1"]);
    let report = run.assert_clean(0);
    assert_eq!(report.gpu_ram()[0], Some(500));
    assert_eq!(report.gpu(GPU0).f64("power.max_w"), 100.0);
}

#[test]
fn gpu_call_that_stalls_for_a_while_delays_its_own_figures_only() {
    let gpus = FakeGpus::new(1, "");
    let stall = gpus.script("stall", "power.stall 200|0\n0.power 170000");
    // What is held while the call stalls is in the list, which is read after it.
    let run = gpus.run(&[
        "hold:0:500,c",
        "sampled",
        &format!("script:{stall}"),
        "samples:1",
        "hold:0:900,c",
        "samples:2",
    ]);
    let report = run.assert_clean(0);
    assert_eq!(report.gpu_ram(), [Some(900), Some(0), Some(900)]);
    assert_eq!(report.gpu(GPU0).f64("power.max_w"), 170.0);
    assert_eq!(report.warnings(), "");
    report.assert_all_exact(1);
}

#[test]
fn gpu_figures_survive_a_killed_collector() {
    let gpus = FakeGpus::new(1, "0.energy 1000000");
    let more = gpus.script("more", "0.energy 1500000");
    let [ready, go] = ["ready", "go"].map(|name| gpus.path(name));
    let (touch, wait, more) = (format!("touch:{ready}"), format!("wait:{go}"), format!("script:{more}"));
    let words = ["hold:0:700,c", "samples:40", &touch, &wait, "hold:0:100,c", &more, "samples:10"];
    let running = gpus.tracked(gpus.words(&words)).start();
    wait_until("the first part", || Path::new(&ready).exists());
    let first = collector(running.mark(), running.pid()).expect("a collector runs");
    kill(first, libc::SIGKILL);
    let (mark, launcher) = (running.mark().to_owned(), running.pid());
    wait_until("another collector", || collector(&mark, launcher).is_some_and(|pid| pid != first));
    std::fs::write(&go, "").unwrap();
    let run = running.wait();
    assert_eq!(run.status.code(), Some(0));
    assert_eq!(run.report().gpu_ram(), [Some(700), Some(0), Some(700)]);
    assert_eq!(run.report().gpu(GPU0).f64("power.energy_j"), 500.0);
}

#[test]
fn gpus_that_come_and_go_are_followed() {
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
    // Two devices give two readings a sample: many are enough for the second to have been found.
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
fn gpus_by_the_sixteen() {
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
    // The launcher's environment is the command's.
    let run = gpus
        .tracked(words.clone())
        .options(&["--visible"])
        .with(|command| command.env("CUDA_VISIBLE_DEVICES", "2,GPU-fake-0"))
        .run();
    assert_eq!(run.assert_clean(0).gpu_ram()[0], Some(790));
    let run = gpus.tracked(["true"]).options(&["--gb", "amd"]).run();
    let report = run.assert_clean(0);
    assert_eq!((report.gpu_ram()[0], report.u64("gpu_utilization.system_gpu_count")), (Some(0), 0));
}

#[test]
fn gpu_that_is_not_there_is_refused_before_the_command_starts() {
    let gpus = FakeGpus::new(2, "");
    let run = gpus.tracked(["sh", "-c", "echo started"]).options(&["--guuids", "GPU-other"]).run();
    assert_eq!(run.status.code(), Some(2));
    assert_eq!(run.stdout, "");
    assert_eq!(
        run.stderr,
        "gpu-track-run: --guuids: \"GPU-other\" is not a GPU of this machine: one of GPU-fake-0, GPU-fake-1\n"
    );
}

#[test]
fn gpu_that_is_allocated_and_idle_is_named() {
    let gpus = FakeGpus::new(3, "");
    let words = gpus.words(&["hold:0:700,c", "sampled"]);
    let run = gpus.tracked(words).with(|command| command.env("CUDA_VISIBLE_DEVICES", "0,1")).run();
    let report = run.assert_clean(0);
    assert_eq!(
        report.warnings(),
        "Allocated but idle: GPU-fake-1 (Fake A100) was never seen in use by the command."
    );
    assert_eq!(report.gpu("GPU-fake-2").at("visible"), false);
}

#[test]
fn gpus_are_listed_with_what_they_can_tell() {
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
        figures.iter().find(|of| of["figure"] == figure).unwrap()["reason"].clone()
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
