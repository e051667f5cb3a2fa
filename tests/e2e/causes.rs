//! What ended a command that failed: `exit.cause`, and the hints that follow from it.

use std::os::unix::process::ExitStatusExt;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::support::cgroup::Group;
use crate::support::report::Report;
use crate::support::run::Tracked;
use crate::support::{installed, is_root, kill, or_skip, program, skip, tracked, wait_until};

/// The command `sh -c SCRIPT` with these arguments.
fn shell(script: &str, args: &[&str]) -> Tracked {
    tracked(["sh", "-c", script, "sh"].iter().chain(args).copied())
}

fn kind(report: &Report) -> &str {
    report.at("exit.cause.kind").as_str().expect("there is a cause")
}

// Requirement: WHY-1
#[test]
fn success_and_a_plain_failure_have_no_cause() {
    for (script, code) in [("exit 0", 0), ("exit 3", 3), ("sh -c 'kill -9 $$'; exit 0", 0)] {
        let run = shell(script, &[]).run();
        assert!(run.report().at("exit.cause").is_null(), "{script}: {}", run.report().at("exit.cause"));
        assert_eq!(run.status.code(), Some(code));
    }
}

// Requirement: WHY-2, HINT-1
#[test]
fn out_of_memory_kill_names_process_and_limit() {
    let group = or_skip!(Group::with_memory_limit(64 << 20));
    let enter = group.enter();
    let enter = enter.each_ref().map(String::as_str);
    let touch = program("touch");
    let hold = ["hold", "209715200", "0"];
    let whole = tracked([touch.as_str()].iter().chain(&hold).copied()).through(&enter).run();
    assert_eq!(whole.status.signal(), Some(libc::SIGKILL));
    let part = shell("\"$@\"; exit 1", &[&[touch.as_str()], &hold[..]].concat()).through(&enter).run();
    assert_eq!(part.status.code(), Some(1));
    for (run, is_main) in [(&whole, true), (&part, false)] {
        let report = run.report();
        assert_eq!(kind(report), "out_of_memory");
        assert_eq!(report.at("exit.cause.process.command"), "touch");
        assert_eq!(report.at("exit.cause.process.is_main"), is_main);
        assert_eq!(report.at("exit.cause.process.exit.signal"), libc::SIGKILL);
        // The run shares the cgroup, as far as it knows.
        assert_eq!(report.at("exit.cause.is_certain"), false);
        assert_eq!(report.at("exit.cause.oom_kills"), 1);
        assert_eq!(report.at("exit.cause.cgroup"), &*group.name());
        assert_eq!(report.u64("exit.cause.limit_bytes"), 64 << 20);
        let rss = report.u64("exit.cause.process.peak_rss_bytes");
        // Pages of files that it maps are charged to another group.
        assert!((32 << 20..=72 << 20).contains(&rss), "{rss}");
        if let Some(peak) = report.at("exit.cause.peak_bytes").as_u64() {
            assert!((60 << 20..=64 << 20).contains(&peak), "{peak}");
        }
        assert_eq!(report.at("usable.memory.source"), "cgroup");
        assert_eq!(report.u64("usable.memory.bytes"), 64 << 20);
        assert_eq!(report.at("hints.memory.is_lower_bound"), true);
        assert_eq!(report.at("hints.memory.basis"), "out_of_memory_limit");
        assert_eq!(report.u64("hints.memory.bytes"), 1 << 30);
        for other in ["withheld", "time", "cpus"] {
            assert!(report.at(&format!("hints.{other}")).is_null(), "hints.{other}");
        }
    }
}

// Requirement: HINT-1, RECORD-1
#[test]
fn hints_and_bundle_know_of_a_killed_process_whose_command_succeeded() {
    let group = or_skip!(Group::with_memory_limit(64 << 20));
    let bundles = tempfile::tempdir().unwrap();
    let run = shell("\"$@\"; sleep 1", &[&program("touch"), "hold", "209715200", "0"])
        .through(&group.enter().each_ref().map(String::as_str))
        .options(&["--record", bundles.path().to_str().unwrap()])
        .run();
    let report = run.report();
    assert_eq!((run.status.code(), report.at("exit.cause").is_null()), (Some(0), true));
    assert_eq!(
        (report.at("hints.memory.is_lower_bound"), report.at("hints.memory.is_fitting")),
        (&true.into(), &false.into())
    );
    assert_eq!(report.at("hints.memory.basis"), "out_of_memory_limit");
    assert!(report.at("hints.time").is_null() && report.at("hints.cpus").is_null(), "{}", report.at("hints"));
    let bundle = std::fs::read_dir(bundles.path()).unwrap().next().expect("a bundle").unwrap().path();
    let manifest = std::fs::read_to_string(bundle.join("manifest.json")).unwrap();
    assert!(manifest.contains("out_of_memory"), "{manifest}");
}

// Requirement: WHY-53
#[test]
fn limit_of_address_space_is_told_where_nothing_else_explains_a_failure() {
    let Some(python) = installed("python3") else { skip!("python3 is not installed") };
    let ended = |limit_kib: &str| {
        let code = "import time; held = bytearray(200 << 20); time.sleep(0.3); raise SystemExit(4)";
        let words = [limit_kib, python.to_str().unwrap(), code];
        let run = shell("ulimit -v $1; exec \"$2\" -c \"$3\"", &words).run();
        assert_eq!(run.status.code(), Some(4), "{}", run.stderr);
        run.report().warnings()
    };
    let limited = ended("1000000");
    assert!(limited.contains("ulimit -v is 1024.0 MB, of which python3"), "{limited}");
    // Most failures have other causes.
    assert!(!ended("unlimited").contains("ulimit -v") && !ended("100000000").contains("ulimit -v"));
}

// Requirement: WHY-3
#[test]
fn failure_near_the_limit_of_address_space_is_named() {
    for (how, code) in [("exit", Some(3)), ("abort", None)] {
        let mut running =
            shell("ulimit -c 0; ulimit -v 2000000; exec \"$@\"", &[&program("near_limit"), how])
                .piped_stdin()
                .start();
        running.wait_for_output("ready");
        // The next report so far is made after a sample that saw it.
        let _ = std::fs::remove_file(running.path("report.json"));
        wait_until("a report so far", || running.path("report.json").exists());
        drop(running.stdin());
        let run = running.wait();
        assert_eq!(run.status.code(), code, "{}", run.status);
        let report = run.report();
        assert_eq!(kind(report), "address_space_limit");
        assert_eq!(report.u64("exit.cause.limit_bytes"), 2_048_000_000);
        let peak = report.u64("exit.cause.peak_bytes");
        assert!((1_843_200_000..=2_048_000_000).contains(&peak), "{peak}");
        assert_eq!(report.at("exit.cause.process.command"), "near_limit");
    }
}

// Requirement: USE-1
#[test]
fn address_space_limit_is_usable_memory_of_each_process() {
    let run = tracked(["true"]).through(&["sh", "-c", "ulimit -v 2000000; exec \"$@\"", "sh"]).run();
    let report = run.assert_clean(0);
    assert_eq!(report.u64("usable.memory.process_address_space_bytes"), 2_048_000_000);
    let run = tracked(["true"]).run();
    assert!(run.report().at("usable.memory.process_address_space_bytes").is_null());
}

// Requirement: WHY-4
#[test]
fn used_up_cpu_time_is_named() {
    for (limit, signal) in [("-t", libc::SIGKILL), ("-St", libc::SIGXCPU)] {
        let script = format!("ulimit -c 0; ulimit {limit} 1; exec \"$@\"");
        let run = shell(&script, &[&program("burn"), "30"]).run();
        assert_eq!(run.status.signal(), Some(signal), "{}", run.status);
        let report = run.report();
        assert_eq!(kind(report), "cpu_time_limit");
        assert_eq!(report.at("exit.cause.limit_s"), 1);
        assert_eq!(report.at("exit.cause.process.command"), "burn");
        let cpu_s = report.f64("exit.cause.process.cpu_s");
        assert!((0.5..2.0).contains(&cpu_s), "{cpu_s}");
    }
}

// Requirement: WHY-10
#[test]
fn limit_of_file_sizes_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    let script = "ulimit -c 0; ulimit -f 4000; dd if=/dev/zero of=\"$1\" bs=1k status=none; exit 3";
    let run = shell(script, &[file.to_str().unwrap()]).run();
    // The shell says on stderr that the file was too large.
    assert_eq!(run.status.code(), Some(3), "{}", run.stderr);
    let report = run.report();
    assert_eq!(kind(report), "file_size_limit");
    assert_eq!(report.at("exit.cause.process.command"), "dd");
    assert_eq!(report.at("exit.cause.process.exit.signal"), libc::SIGXFSZ);
    let limit = report.at("exit.cause.limit_bytes");
    assert!(limit.is_null() || *limit == std::fs::metadata(&file).unwrap().len(), "{limit}");
}

// Requirement: WHY-5, HINT-1
#[test]
fn timeout_inside_is_named_with_its_limit() {
    let run = shell("timeout 1.5 sleep 1000; exit 7", &[]).run();
    let report = run.assert_clean(7);
    assert_eq!(kind(report), "time_limit");
    assert_eq!(report.at("exit.cause.set_by"), "timeout");
    assert_eq!(report.at("exit.cause.limit_s"), 1.5);
    assert_eq!(report.at("exit.cause.signal_name"), "SIGTERM");
    assert_eq!(report.at("exit.cause.process.command"), "sleep");
    assert_eq!(report.at("hints.time.is_lower_bound"), true);
    assert_eq!(report.at("hints.time.basis_s"), 1.5);
    assert!(report.at("hints.memory").is_null());
    let run = tracked(["timeout", "-s", "INT", "1", "sleep", "1000"]).run();
    let report = run.assert_clean(124);
    assert_eq!((kind(report), report.at("exit.cause.signal_name").as_str()), ("time_limit", Some("SIGINT")));
    let run = tracked(["timeout", "-s", "KILL", "1", "sleep", "1000"]).run();
    assert_eq!(run.status.signal(), Some(libc::SIGKILL), "{}", run.status);
    assert_eq!(
        (kind(run.report()), run.report().at("exit.cause.limit_s").as_f64()),
        ("time_limit", Some(1.0))
    );
}

// Requirement: WHY-5
#[test]
fn timeout_outside_is_named_with_its_limit() {
    let run = tracked(["sleep", "1000"]).through(&["timeout", "1"]).run();
    assert_eq!(run.status.code(), Some(124), "{}", run.status);
    let report = run.report();
    assert_eq!(kind(report), "time_limit");
    assert_eq!(report.at("exit.cause.set_by"), "timeout");
    assert_eq!(report.at("exit.cause.limit_s"), 1.0);
    assert_eq!(report.at("exit.cause.process.is_main"), true);
}

fn epoch_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// A command of a made-up Slurm job that began 1000 s ago and may take `limit_s` seconds, ended by SIGTERM.
fn terminated_in_slurm(limit_s: u64) -> Report {
    let start_s = epoch_s() - 1000;
    let running = shell("echo ready; exec sleep 1000", &[])
        .with(move |command| {
            let command = command.env("SLURM_JOB_START_TIME", start_s.to_string());
            command.env("SLURM_JOB_END_TIME", (start_s + limit_s).to_string())
        })
        .start();
    running.wait_for_output("ready");
    kill(running.pid(), libc::SIGTERM);
    let run = running.wait();
    assert_eq!(run.status.signal(), Some(libc::SIGTERM), "{}", run.status);
    run.report().clone()
}

// Requirement: WHY-5, WHY-6, HINT-1
#[test]
fn sigterm_at_the_end_of_a_slurm_job_is_its_time_limit() {
    let report = terminated_in_slurm(1000);
    assert_eq!((kind(&report), report.at("exit.cause.set_by").as_str()), ("time_limit", Some("slurm")));
    assert_eq!(report.at("exit.cause.limit_s"), 1000.0);
    assert_eq!(report.u64("hints.time.time_s"), 1500);
    let report = terminated_in_slurm(7200);
    assert_eq!(kind(&report), "signal", "before the end");
    assert_eq!(report.at("exit.cause.signal_name"), "SIGTERM");
    assert_eq!(report.at("exit.cause.sender.pid"), std::process::id());
    let own_name = std::fs::read_to_string("/proc/self/comm").unwrap();
    assert_eq!(report.at("exit.cause.sender.command"), own_name.trim());
    assert_eq!(report.at("exit.cause.process.is_main"), true);
}

// Requirement: WHY-6
#[test]
fn fatal_signal_of_the_command_or_of_its_child_is_named() {
    let segv = "ulimit -c 0; kill -SEGV $$";
    let run = shell(segv, &[]).run();
    assert_eq!(run.status.signal(), Some(libc::SIGSEGV));
    assert_eq!((kind(run.report()), run.report().at("exit.cause.process.is_main")), ("signal", &true.into()));
    assert!(run.report().at("exit.cause.sender").is_null(), "it did not come through gpu-track-run");
    for (script, code) in [("sh -c \"$1\"; exit $?", 139), ("sh -c \"$1\"; exit 5", 5)] {
        let run = shell(script, &[segv]).run();
        let report = run.report();
        assert_eq!(run.status.code(), Some(code), "{}", run.status);
        assert_eq!((kind(report), report.at("exit.cause.signal_name").as_str()), ("signal", Some("SIGSEGV")));
        assert_eq!(report.at("exit.cause.process.is_main"), false);
    }
}

/// The crashes of a report: signal, command and count.
fn crashes(report: &Report) -> Vec<(&str, &str, u64)> {
    let all = report.array("crashes").iter().map(|crash| {
        let [signal, command] = ["signal_name", "command"].map(|key| crash[key].as_str().unwrap());
        (signal, command, crash["count"].as_u64().unwrap())
    });
    all.collect()
}

/// A process that a signal ended counts once: neither the shell that exits with 128 + N nor `timeout`, which ends itself by its
/// child's signal, crashed.
// Requirement: WHY-9
#[test]
fn crashed_process_of_a_command_that_succeeds_is_in_the_first_line() {
    let crash = "ulimit -c 0; kill -SEGV $$";
    for script in [
        "sh -c \"$1\"; exit 0",
        "sh -c \"$1\" | cat",
        "timeout 100 sh -c \"$1\"; exit 0",
        "(sh -c \"$1\"); :",
    ] {
        let run = shell(script, &[crash]).run();
        let report = run.report();
        assert_eq!(run.status.code(), Some(0), "{script}");
        assert_eq!(crashes(report), [("SIGSEGV", "sh", 1)], "{script}");
        assert!(report.at("exit.cause").is_null());
    }
    let run = shell("sh -c \"$1\"; sh -c \"$1\"; :", &[crash]).only_options(&[]).run();
    let summary = &run.stderr;
    assert!(summary.contains(" OK, exit 0, but 2 processes crashed, after "), "{summary}");
    assert!(summary.contains("\n  ! SIGSEGV ended 2 processes of sh\n"), "{summary}");
    for script in ["sh -c 'exit 139'; :", "sh -c 'kill -9 $$'; :", "sh -c 'kill -TERM $$'; :"] {
        let run = shell(script, &[]).run();
        assert_eq!(crashes(run.report()), [], "{script}");
    }
}

// Requirement: WHY-9
#[test]
fn crash_of_configures_test_program_is_not_in_the_first_line() {
    let tools = tempfile::tempdir().unwrap();
    let conftest = tools.path().join("conftest");
    std::os::unix::fs::symlink("/bin/sh", &conftest).unwrap();
    let job = || shell("\"$1\" -c 'ulimit -c 0; kill -ABRT $$'; :", &[conftest.to_str().unwrap()]);
    let run = job().run();
    assert_eq!(crashes(run.report()), [("SIGABRT", "conftest", 1)]);
    assert_eq!(run.report().at("crashes.0.is_probe"), true);
    let run = job().only_options(&[]).run();
    assert!(run.stderr.contains(" OK, exit 0 after "), "{}", run.stderr);
    assert!(run.stderr.contains("1 test program of configure or CMake crashed\n"), "{}", run.stderr);
}

// Requirement: WHY-9
#[test]
fn workers_that_the_kernel_killed_for_lack_of_memory_crashed() {
    let group = or_skip!(Group::with_memory_limit(64 << 20));
    let enter = group.enter();
    let enter = enter.each_ref().map(String::as_str);
    let script = "for i in 1 2 3; do \"$1\" hold 209715200 0; done; exit 0";
    let job = || shell(script, &[&program("touch")]).through(&enter);
    let run = job().run();
    assert_eq!((run.status.code(), crashes(run.report())), (Some(0), vec![("SIGKILL", "touch", 3)]));
    let run = job().only_options(&[]).run();
    assert!(run.stderr.contains(" OK, exit 0, but 3 processes crashed, after "), "{}", run.stderr);
    assert!(
        run.stderr.contains("the kernel killed 3 processes of touch for lack of memory"),
        "{}",
        run.stderr
    );
}

// Requirement: WHY-7
#[test]
fn full_file_system_is_named() {
    if !is_root() || installed("unshare").is_none() {
        skip!("needs root and unshare (a mount namespace)");
    }
    let run = shell("head -c 4000000 /dev/zero >file || exit 4", &[])
        .with_mounts("d=$(mktemp -d) && mount -t tmpfs -o size=2m none $d && rmdir $d 2>/dev/null; cd $d && mkdir full && cd full")
        .run();
    assert_eq!(run.status.code(), Some(4), "{}", run.stderr);
    let report = run.report();
    assert_eq!((kind(report), report.at("exit.cause.role").as_str()), ("disk_full", Some("working")));
    assert!(report.at("exit.cause.path").as_str().unwrap().ends_with("/full"));
    assert!(report.u64("exit.cause.available_bytes") < 1 << 20);
}

// Requirement: USE-1
#[test]
fn denominators_are_what_the_command_may_use() {
    let slurm = |cpus: &'static str, megabytes: &'static str| {
        let run = tracked(["true"])
            .with(move |command| command.env("SLURM_CPUS_ON_NODE", cpus).env("SLURM_MEM_PER_NODE", megabytes))
            .run();
        run.assert_clean(0).clone()
    };
    let report = slurm("1", "16");
    assert_eq!(report.u64("usable.memory.bytes"), 16 << 20);
    assert_eq!(report.at("usable.memory.source"), "slurm");
    let report = slurm("100000", "1000000000");
    assert_ne!(report.at("usable.cores.source"), "slurm", "the machine has not that many");
    assert_ne!(report.at("usable.memory.source"), "slurm", "the machine has not that much");
    let run = tracked(["true"]).options(&["--nec", "7"]).run();
    let report = run.assert_clean(0);
    assert_eq!(report.at("usable.cores.count"), 7.0);
    assert_eq!(report.at("usable.cores.source"), "n_expected_cores");
    if installed("taskset").is_none() {
        skip!("taskset is not installed");
    }
    let run = tracked([program("burn").as_str(), "0.3"]).through(&["taskset", "-c", "0"]).run();
    let report = run.assert_clean(0);
    assert_eq!(report.at("usable.cores.count"), 1.0);
    let percent = report.f64("cpu_time.total_s") / report.f64("compute_time.time") * 100.0;
    assert!((report.f64("cpu_time.usable_percent") - percent).abs() < 0.01);
}

// Requirement: HINT-1, HINT-2
#[test]
fn hints_have_their_basis_and_are_withheld_after_a_short_run() {
    let run = tracked([program("burn").as_str(), "1.2"]).options(&["--nec", "8"]).run();
    let report = run.assert_clean(0);
    assert!(report.at("hints.withheld").is_null());
    assert_eq!(report.u64("hints.memory.bytes"), 1 << 30);
    let basis = if report.at("hints.memory.basis") == "cgroup_peak" {
        None
    } else {
        Some("max_ram.combined.total_rss")
    };
    if let Some(basis) = basis {
        assert_eq!(report.f64("hints.memory.basis_bytes"), report.f64(basis));
    }
    assert_eq!(
        (report.u64("hints.time.time_s"), report.at("hints.time.basis").as_str()),
        (600, Some("wall"))
    );
    assert_eq!(report.u64("hints.cpus.count"), 1);
    assert_eq!(report.at("hints.cpus.given"), 8.0);
    assert_eq!(report.at("hints.cpus.is_fitting"), false);
    let run = tracked(["true"]).run();
    assert_eq!(run.assert_clean(0).at("hints.withheld"), "the run took less than 1 s");
}
