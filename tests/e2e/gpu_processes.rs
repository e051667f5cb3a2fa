//! GPU memory by process: the driver's process lists in all their layouts, and its accounting of ended processes.

use serde_json::json;

use crate::support::gpu::{FakeGpus, GPU0};
use crate::support::programs::compiled;
use crate::support::{installed, is_root, skip};

/// Every layout of the process list, under every name.
// Requirement: GPU-13
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
        // An old library has only the first form of the memory call, which includes the driver's reserved memory.
        let used = if features == "old" { 1_700_000_000 } else { 1_000_000_000 };
        assert_eq!(report.gpu(GPU0).u64("memory.max_used_bytes"), used);
    }
}

// Requirement: WHY-11
#[test]
fn exhausted_gpu_memory_is_the_cause_of_a_command_that_fails_with_it() {
    for (used, exit, is_cause) in
        [(85_000_000_000u64, 1, true), (85_000_000_000, 0, false), (60_000_000_000, 1, false)]
    {
        let gpus = FakeGpus::new(1, &format!("0.memory_used {used}"));
        let holder = gpus.line(&["hold:0:50000000000,c", "sampled", "sampled"]);
        let run = gpus.tracked(["sh", "-c", &format!("{holder}; exit {exit}")]).run();
        assert_eq!(run.status.code(), Some(exit), "{}", run.stderr);
        let cause = run.report().at("exit.cause");
        if !is_cause {
            assert!(cause.is_null(), "{cause}");
            continue;
        }
        assert_eq!(
            (&cause["kind"], &cause["device"]),
            (&"gpu_memory_exhausted".into(), &GPU0.into()),
            "{cause}"
        );
        assert_eq!((&cause["used_bytes"], &cause["total_bytes"]), (&used.into(), &85_899_345_920u64.into()));
        assert_eq!(
            (&cause["holders"][0]["command"], &cause["holders"][0]["bytes"]),
            (&"gpu".into(), &50_000_000_000u64.into())
        );
    }
}

// Requirement: GPU-13
#[test]
fn gpu_lists_are_never_probed_with_a_null_buffer() {
    // The fake driver aborts at a null buffer, except for the kind that returns SUCCESS.
    for kind in ["", "null_probe success"] {
        let gpus = FakeGpus::new(1, kind);
        let run = gpus.run(&["hold:0:500,c", "sampled"]);
        assert_eq!(run.assert_clean(0).gpu_ram()[0], Some(500));
    }
}

// Requirement: GPU-13
#[test]
fn gpu_list_that_grows_between_calls_is_read_completely() {
    // The command's entries come after 100 foreign ones, whose number grows by 30 at every call.
    let gpus = FakeGpus::new(1, "0.crowd 100\n0.crowd_grows 30");
    let run = gpus.run(&["hold:0:500,cg", "sampled"]);
    assert_eq!(run.assert_clean(0).gpu_ram(), [Some(500), Some(0), Some(500)]);
}

// Requirement: GPU-2
#[test]
fn gpu_process_in_all_three_lists_counts_once() {
    let gpus = FakeGpus::new(1, "");
    let run = gpus.run(&["hold:0:500,cgm", "sampled"]);
    assert_eq!(run.assert_clean(0).gpu_ram(), [Some(500), Some(0), Some(500)]);
}

/// The second driver says 0 bytes, as those from 545 to 560 do in a container.
// Requirement: HINT-3
#[test]
fn unavailable_gpu_process_memory_is_null() {
    for hold in ["hold:0:na,c", "hold:0:0,c"] {
        let gpus = FakeGpus::new(1, "");
        let run = gpus.run(&[hold, "sampled"]);
        let report = run.assert_clean(0);
        assert_eq!(report.gpu_ram(), [None, Some(0), None]);
        assert!(report.at("processes.heaviest.0.gpu.peak_ram_bytes").is_null());
        assert!(report.at("hints.gpu_memory").is_null());
        let reason = report.at("hints.gpu_memory_reason").as_str().unwrap();
        // On a busy machine, time without a reading is the reason that comes first.
        assert!(
            reason == "memory by process is unknown on GPU-fake-0: not reported by the driver"
                || reason.starts_with("memory by process was not read on GPU-fake-0 for "),
            "{reason}"
        );
        let missing = report.gpu(GPU0).missing("memory by process");
        assert_eq!(missing.as_deref(), Some("not reported by the driver"));
        assert_eq!(
            report.warnings(),
            "GPU figures that are missing (not reported by the driver): memory by process of GPU-fake-0."
        );
    }
}

// Requirement: GPU-2
#[test]
fn gpu_memory_of_foreign_processes_is_not_counted() {
    let gpus = FakeGpus::new(1, "");
    std::fs::write(gpus.path("held/1.0"), "800 c").unwrap();
    let run = gpus.run(&["hold:0:500,c", "sampled"]);
    assert_eq!(run.assert_clean(0).gpu_ram()[2], Some(500));
}

/// Nothing says whose it is: it may be a process of the run, by its pid in a namespace that we do not see.
// Requirement: GPU-35
#[test]
fn gpu_memory_is_null_if_a_listed_pid_is_not_in_proc() {
    let gpus = FakeGpus::new(1, "");
    std::fs::write(gpus.path("held/5000000.0"), "800 c").unwrap();
    let report = gpus.run(&["samples:30"]).assert_clean(0).clone();
    assert_eq!(report.gpu_ram(), [None; 3]);
    assert_eq!(
        report.warnings(),
        "GPU figures that are missing (the driver's process ids are of another pid namespace): memory by process, \
         utilization by process of GPU-fake-0."
    );
    // Where processes of the run are listed by their own pids, others are others.
    let report = gpus.run(&["hold:0:500,c", "samples:30"]).assert_clean(0).clone();
    assert_eq!(report.gpu_ram(), [Some(500), Some(0), Some(500)]);
}

// Requirement: GPU-14
#[test]
fn gpu_entry_of_a_dead_process_stays_its_own() {
    let gpus = FakeGpus::new(1, "");
    let dead = gpus.line(&["keep", "hold:0:900,c", "sampled"]);
    let alive = gpus.line(&["hold:0:500,c", "sampled"]);
    let run = gpus.tracked(["sh", "-c", &format!("{dead}; {alive}")]).run();
    assert_eq!(run.assert_clean(0).gpu_ram(), [Some(0), Some(900), Some(900)]);
}

// Requirement: GPU-14
#[test]
fn gpu_entry_older_than_the_process_is_not_attributed() {
    if !is_root() || installed("unshare").is_none() {
        skip!("needs root and unshare (a pid namespace, where pids are known beforehand)");
    }
    // In a pid namespace of its own the test can choose the pid of a process.
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
    // Before that process existed, the entry could have been the pid of a tracked process in another namespace.
    assert_eq!(report.gpu_ram(), [None; 3], "{:?}", report.at("gpus"));
    assert_eq!(report.gpu(GPU0).array("processes").len(), 0);
    let pids: Vec<_> = report.array("processes.heaviest").iter().filter_map(|p| p["pid"].as_u64()).collect();
    assert!(pids.contains(&pid), "the pid {pid} was used again: {pids:?}");
}

// Requirement: GPU-14
#[test]
fn gpu_pids_match_inside_and_outside_a_pid_namespace() {
    if !is_root() || installed("unshare").is_none() {
        skip!("needs root and unshare (a pid namespace)");
    }
    for words in [&["hold:0:500,c", "sampled"][..], &["host", "hold:0:500,c", "sampled"][..]] {
        let gpus = FakeGpus::new(1, "");
        // The fake driver lists the pid that the process gives: its own, or that of the outer /proc. No process outside
        // has its own pid.
        let inner = format!("echo 4000000 >/proc/sys/kernel/ns_last_pid; {}; exit 0", gpus.line(words));
        let run = gpus.tracked(["unshare", "--pid", "--fork", "sh", "-c", &inner]).run();
        let report = run.assert_clean(0);
        assert_eq!(report.gpu_ram(), [Some(0), Some(500), Some(500)], "{words:?}");
        let process = report.gpu(GPU0).array("processes")[0].clone();
        let is_same = process["pid"] == process["driver_pid"];
        assert_eq!(is_same, words[0] == "host", "{process}");
    }
}

/// NVIDIA's open kernel modules 560.28 and 570.86 list thread ids.
#[test]
fn gpu_entries_by_thread_id_are_matched_to_processes() {
    let gpus = FakeGpus::new(1, "");
    let run = gpus.run(&["thread", "hold:0:300,c,20", "thread", "hold:0:200,c,30", "sampled"]);
    let report = run.assert_clean(0);
    assert_eq!(report.gpu_ram(), [Some(500), Some(0), Some(500)]);
    let processes = report.gpu(GPU0).array("processes").to_vec();
    assert_eq!(processes.len(), 1, "{processes:?}");
    assert_eq!((&processes[0]["peak_bytes"], &processes[0]["max_sm_percent"]), (&500.into(), &30.0.into()));
    assert_ne!(processes[0]["pid"], processes[0]["driver_pid"]);
    assert_eq!(report.warnings(), "");
}

/// In a container the driver lists pids of another namespace (in gVisor those of the sandbox's threads). By chance such a
/// pid can also be that of a process inside.
// Requirement: GPU-56
#[test]
fn ambiguous_gpu_pids_in_a_pid_namespace_are_null() {
    if !is_root() || installed("unshare").is_none() {
        skip!("needs root and unshare (a pid namespace)");
    }
    let gpus = FakeGpus::new(1, "");
    let run = |words: &[&str]| {
        let run = gpus
            .tracked(gpus.words(words))
            .options(&["--gpu-root", &gpus.path("")])
            .through(&["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"])
            .run();
        assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
        run.report().clone()
    };
    // The listed pid is that of a tracked process: first without the GPU open, then with it.
    let held = ["hold:0:500,c,50", "sampled"];
    let report = run(&held);
    assert_eq!(report.gpu_ram(), [None; 3]);
    assert!(report.at("processes").get("max_sm_percent").is_none_or(serde_json::Value::is_null));
    assert!(!report.warnings().contains("idle"), "{}", report.warnings());
    std::fs::create_dir(gpus.path("dev")).unwrap();
    std::fs::write(gpus.path("dev/nvidia0"), "").unwrap();
    let report = run(&held);
    assert_eq!(report.gpu_ram(), [Some(500), Some(0), Some(500)]);
    assert_eq!(report.f64("processes.max_sm_percent.main"), 50.0);
    // The listed pid is that of a process outside the tree: the namespace's first process.
    std::fs::write(gpus.path("held/1.0"), "800 c 10").unwrap();
    assert_eq!(run(&["sampled"]).gpu_ram(), [None; 3]);
}

/// Drivers up to 560 list the pids of the container there, and have those outside in their utilization samples.
// Requirement: GPU-56
#[test]
fn gpu_utilization_by_pids_of_another_namespace_is_null() {
    if !is_root() || installed("unshare").is_none() {
        skip!("needs root and unshare (a pid namespace)");
    }
    let gpus = FakeGpus::new(1, "0.outer_pids 1");
    std::fs::create_dir(gpus.path("dev")).unwrap();
    std::fs::write(gpus.path("dev/nvidia0"), "").unwrap();
    let run = gpus
        .tracked(gpus.words(&["hold:0:500,c,50", "sampled"]))
        .options(&["--gpu-root", &gpus.path("")])
        .through(&["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"])
        .run();
    assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
    let report = run.report();
    assert_eq!(report.gpu_ram(), [Some(500), Some(0), Some(500)]);
    let reason = "the driver's process ids are of another pid namespace";
    let missing = json!({ "figure": "utilization by process", "reason": reason });
    assert!(report.gpu(GPU0).array("missing").contains(&missing), "{}", report.gpu(GPU0).at("missing"));
    assert!(report.at("processes").get("max_sm_percent").is_none_or(serde_json::Value::is_null));
}

// Requirement: GPU-56
#[test]
fn gpu_pids_of_another_namespace_make_memory_null() {
    if !is_root() || installed("unshare").is_none() {
        skip!("needs root and unshare (a pid namespace)");
    }
    // As in a container: the driver lists pids that no process inside has.
    let gpus = FakeGpus::new(1, "");
    std::fs::write(gpus.path("held/3999999.0"), "500 c").unwrap();
    let run = gpus
        .tracked(gpus.words(&["sampled"]))
        .through(&["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"])
        .run();
    assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
    let report = run.report();
    assert_eq!(report.gpu_ram(), [None, None, None]);
    assert_eq!(report.f64("max_gpu_ram.system"), 1e9, "the device's own figure is known");
    let gpu = report.gpu(GPU0);
    assert!(gpu.at("memory.max_combined_bytes").is_null());
    let reason = "the driver's process ids are of another pid namespace";
    assert_eq!(gpu.missing("memory by process").as_deref(), Some(reason));
    let warning = format!(
        "GPU figures that are missing ({reason}): memory by process, utilization by process of GPU-fake-0."
    );
    assert!(report.warnings().lines().any(|line| line == warning), "{}", report.warnings());
}

#[test]
fn forbidden_gpu_process_lists_make_memory_null() {
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

// Requirement: GPU-15
#[test]
fn short_gpu_processes_are_found_in_driver_accounting() {
    for (changes, wraps) in
        [("0.accounting_lag 2", false), ("0.accounting_room 4000", false), ("0.accounting_room 1", true)]
    {
        // The driver hides its accounting until both processes are in it, so that no sample reads the dropped entry.
        let gpus = FakeGpus::new(1, "0.accounting 1\n0.accounting_room 0");
        let shown = gpus.script("shown", &format!("0.accounting 1\n{changes}"));
        // A process that does not wait for a sample may end before one; its accounting remains.
        let first = gpus.line(&["account:0:5000000"]);
        let second = gpus.line(&["account:0:3000000"]);
        let last = gpus.line(&[&format!("script:{shown}"), "sampled", "sampled", "sampled"]);
        let run = gpus.tracked(["sh", "-c", &format!("{first}; {second}; {last}")]).run();
        let report = run.assert_clean(0);
        let most = if wraps { 3_000_000 } else { 5_000_000 };
        assert_eq!(report.gpu_ram(), [Some(0), Some(most), Some(most)], "{changes}");
        let processes = report.gpu(GPU0).array("processes").to_vec();
        assert_eq!(processes.len(), if wraps { 1 } else { 2 });
        assert!(
            processes
                .iter()
                .all(|process| process["accounted"] == true && process["mean_sm_percent"] == 12.0)
        );
        assert_eq!(report.warnings(), "", "accounting makes the processes complete");
    }
}

/// Accounting covers single processes. Only the lists show which other processes used the GPU at the same time.
/// The driver takes utilization into its accounts once a second.
#[test]
fn gpu_accounting_of_a_short_process_has_no_utilization() {
    let gpus = FakeGpus::new(1, "0.accounting 1\n0.accounting_percent 0\n0.process_times");
    let report = gpus.run(&["account:0:5000000", "sampled", "sampled", "sampled"]).assert_clean(0).clone();
    let process = report.gpu(GPU0).array("processes")[0].clone();
    assert_eq!((&process["accounted"], &process["peak_bytes"]), (&true.into(), &5_000_000.into()));
    assert!(process["mean_sm_percent"].is_null(), "{process}");
}

#[test]
fn gpu_accounting_without_process_lists_gives_no_sum() {
    let gpus = FakeGpus::new(1, "0.accounting 1\n0.processes !4");
    let [first, last] =
        [["account:0:5000000"].as_slice(), &["sampled", "sampled", "sampled"]].map(|w| gpus.line(w));
    let report = gpus.tracked(["sh", "-c", &format!("{first}; {last}")]).run().assert_clean(0).clone();
    assert_eq!(report.gpu_ram(), [None; 3]);
    assert_eq!(report.gpu(GPU0).u64("memory.max_descendants_bytes"), 5_000_000);
    assert_eq!(
        report.warnings(),
        "GPU figures that are missing (no permission): memory by process of GPU-fake-0."
    );
}

#[test]
fn gpu_accounting_under_a_thread_id_is_read() {
    let gpus = FakeGpus::new(1, "0.accounting 1");
    let words = ["thread", "hold:0:300,c", "sampled", "account:0:700", "sampled", "sampled"];
    let report = gpus.run(&words).assert_clean(0).clone();
    assert_eq!(report.gpu_ram()[0], Some(700));
    assert_eq!(report.gpu(GPU0).array("processes").len(), 1);
}

#[test]
fn gpu_accounting_of_an_earlier_pid_owner_is_ignored() {
    let gpus = FakeGpus::new(1, "0.accounting 1");
    // The entry has the command's pid and a start time of years ago.
    let script = format!(
        "echo '7000 1 1000000' >{}/account/$$.0; {}",
        gpus.path(""),
        gpus.line(&["sampled", "sampled"])
    );
    let run = gpus.tracked(["sh", "-c", &script]).run();
    assert_eq!(run.assert_clean(0).gpu_ram(), [Some(0), Some(0), Some(0)]);
}

// Requirement: GPU-15
#[test]
fn gpu_accounting_is_enabled_and_restored() {
    let gpus = FakeGpus::new(1, "0.accounting 0\n0.accounting_set ok");
    let words = gpus.words(&["sampled", "account:0:5000000", "sampled", "sampled"]);
    let run = gpus.tracked(words).options(&["--gpu-accounting"]).run();
    assert_eq!(run.assert_clean(0).gpu_ram()[0], Some(5_000_000));
    assert_eq!(std::fs::read_to_string(gpus.path("accounting.0")).unwrap(), "0");
}

/// Nothing waits for a driver that hangs at the end, so the user is told to look.
// Requirement: GPU-15, GPU-7
#[test]
fn gpu_accounting_that_could_not_be_restored_in_time_is_warned_about() {
    let settings = "0.accounting 0\n0.accounting_set ok";
    let gpus = FakeGpus::new(1, settings);
    let stall = gpus.script("stall", &format!("{settings}\npower.stall forever"));
    let words = gpus.words(&["sampled", &format!("script:{stall}"), "stalled"]);
    let run = gpus.tracked(words).options(&["--gpu-accounting"]).run();
    assert_eq!(
        run.assert_clean(0).warnings().lines().next().unwrap(),
        "--gpu-accounting: the driver did not answer in time at the end, so accounting mode may still be on. nvidia-smi -am 0, as \
         root, switches it off."
    );
    assert_eq!(std::fs::read_to_string(gpus.path("accounting.0")).unwrap(), "1");
    // Accounting was on before, so it is left on, without a warning.
    let gpus = FakeGpus::new(1, "0.accounting 1");
    let stall = gpus.script("stall", "0.accounting 1\npower.stall forever");
    let words = gpus.words(&["sampled", &format!("script:{stall}"), "stalled"]);
    let run = gpus.tracked(words).options(&["--gpu-accounting"]).run();
    let warnings = run.assert_clean(0).warnings();
    assert!(!warnings.contains("--gpu-accounting"), "{warnings}");
}

/// Accounting is restored before the report, which says so if that fails.
// Requirement: GPU-15
#[test]
fn gpu_accounting_that_can_not_be_restored_is_in_the_report() {
    let gpus = FakeGpus::new(1, "0.accounting 0\n0.accounting_set ok|!4");
    let run = gpus.tracked(gpus.words(&["sampled"])).options(&["--gpu-accounting"]).run();
    assert_eq!(
        run.assert_clean(0).warnings(),
        "--gpu-accounting: GPU-fake-0: accounting could not be switched off again (no permission)."
    );
}

#[test]
fn forbidden_gpu_accounting_is_warned_about() {
    let gpus = FakeGpus::new(1, "0.accounting 0\n0.accounting_set !4");
    let run = gpus.tracked(gpus.words(&["sampled"])).options(&["--gpu-accounting"]).run();
    assert_eq!(
        run.assert_clean(0).warnings(),
        "--gpu-accounting: GPU-fake-0: accounting could not be switched on (no permission)."
    );
}

// Requirement: GPU-52
#[test]
fn processes_without_a_gpu_library_between_two_readings_need_no_warning() {
    let gpus = FakeGpus::new(1, "");
    let go = gpus.path("go");
    let stall = format!("script:{}", gpus.script("stall", &format!("power.stall {go}")));
    // The first process ends during a reading, which stalls until the others have ended.
    let first = gpus.line(&["sampled", &stall, "stalled"]);
    let script =
        format!("{first}; for i in 1 2 3 4 5 6 7 8 9 10; do /bin/true; sleep 0.06; done; : >{go}; exit 0");
    let run = gpus.tracked(["sh", "-c", &script]).run();
    let warnings = run.assert_clean(0).warnings();
    assert!(!warnings.contains("between two readings"), "{warnings}");
}

// Requirement: GPU-36
#[test]
fn short_process_with_a_gpu_library_that_no_reading_saw_is_unknown() {
    let cuda = compiled("libcuda", "cc", &["-shared", "-fPIC"]);
    for (file, is_known) in [("libcuda.so.1", false), ("libmade.so.1", true)] {
        let gpus = FakeGpus::new(1, "*.utilization 0");
        let go = gpus.path("go");
        gpus.script("script", &format!("*.utilization 0\npower.stall {go}"));
        std::os::unix::fs::symlink(&cuda, gpus.path(file)).unwrap();
        // The child begins and ends while the first reading stalls, which has read the lists of processes by then. The command
        // ends after that reading, so that the utilization is known.
        let (stalled, child) = (gpus.line(&["stalled"]), gpus.line(&["for:60"]));
        let read = format!("until [ -s {} ]; do sleep 0.01; done", gpus.path("samples"));
        let script = format!("{stalled}; LD_PRELOAD={} {child}; : >{go}; {read}; exit 0", gpus.path(file));
        let run = gpus.tracked(["sh", "-c", &script]).options(&["--st", "1000", "--hints"]).run();
        assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
        let (report, gpu) = (run.report(), run.report().gpu(GPU0));
        let known = is_known.then_some(0);
        assert_eq!(report.gpu_ram(), [Some(0), known, known], "{file}: {}", report.warnings());
        assert_eq!(gpu.at("used").as_bool(), is_known.then_some(false), "{file}");
        assert_eq!(report.at("hints.gpus").is_null(), !is_known, "{file}: {}", report.at("hints"));
        for warning in [
            "1 process lived between two readings of the GPUs: GPU memory and utilization of such processes are missing",
            "so it is not known whether any GPU memory was used",
        ] {
            assert_eq!(report.warnings().contains(warning), !is_known, "{}", report.warnings());
        }
    }
}
