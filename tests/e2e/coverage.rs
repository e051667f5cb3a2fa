//! The report states where its figures come from and what it could not see.

use std::io::Write;
use std::process::Command;

use crate::support::{Run, assert_within, program, skip, static_program, tracked};

// Requirement: CPU-2, CPU-7, CPU-54, SEE-11, SEE-55
#[test]
fn scan_only_run_reports_what_it_could_not_see() {
    let burn = program("burn");
    let script = format!("i=0; while [ $i -lt 200 ]; do /bin/true; i=$((i+1)); done; {burn} 1; exit 0");
    let run = tracked(["sh", "-c", &script]).options(&["--layers", "scan"]).run();
    let report = run.assert_clean(0);
    for layer in ["preload", "wait", "subreaper"] {
        assert!(report.at(&format!("coverage.layers.{layer}")).is_null(), "{layer} was off");
    }
    // The scan finds the long process and misses most of the short ones. The report must say so.
    assert!(report.command("burn").is_some(), "a scan finds a process that lives for one second");
    assert!(report.u64("coverage.processes") >= 2);
    // The CPU time is exact if its clock was read after the exit; then it must be right.
    let heaviest = report.array("processes.heaviest");
    let one = heaviest.iter().find(|one| one["command"] == "burn").unwrap();
    match one["cpu_quality"].as_str().unwrap() {
        "exact" => assert_within("burn", one["cpu_s"].as_f64().unwrap(), 1.0, 2.0),
        _ => assert!(one["cpu_s"].as_f64().unwrap() < 1.02, "{one}"),
    }
    let known = ["exact", "sampled", "unknown"].map(|how| report.u64(&format!("coverage.{how}")));
    assert_eq!(known.iter().sum::<u64>(), report.u64("coverage.processes"));
    // The parent's wait accounting includes its children's CPU time, which must not be added twice.
    report.assert_cpu(report.f64("cpu_time.kernel_s"), 3.0);
    let warnings = report.warnings();
    assert!(warnings.contains("preload"), "no warning names the layers that were off: {warnings:?}");
}

/// Runs a program that no process of a tracked run has made, but with the run's environment. The run has two processes of its own.
/// slurmstepd starts the tasks of srun in this way.
fn run_joined_by(program: &mut Command, options: &[&str]) -> Run {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("environment");
    let script = format!("env >{}; echo ready; read x; exit 0", file.display());
    let mut running = tracked(["sh", "-c", &script]).options(options).piped_stdin().start();
    running.wait_for_output("ready");
    let environment = std::fs::read_to_string(&file).unwrap();
    let ours = environment
        .lines()
        .filter_map(|line| line.split_once('='))
        .filter(|(name, _)| ["LD_PRELOAD", "GPU_TRACK_SESSION"].contains(name));
    assert!(program.envs(ours).status().unwrap().success());
    running.stdin().write_all(b"go\n").unwrap();
    running.wait()
}

// Requirement: CPU-5, SEE-70
#[test]
fn joined_process_is_counted_and_makes_kernel_s_null() {
    let run = run_joined_by(Command::new(program("burn")).arg("0.3"), &[]);
    let report = run.assert_clean(0);
    assert_eq!((report.u64("processes.total"), report.u64("coverage.joined")), (3, 1));
    assert_within("burn", report.f64("cpu_time.total_s"), 0.3, 5.0);
    if !report.at("coverage.connector_absent").is_null() {
        skip!("without the process connector the reaper of a joined process is unknown");
    }
    assert!(report.at("cpu_time.kernel_s").is_null());
    let reason = report.at("cpu_time.kernel_s_reason").as_str().unwrap();
    assert_eq!(reason, "joined the run without being a descendant: 1 process");
}

/// Wrapper scripts of batch systems exec the program. Samples see a static program, which has not mapped the segment, as they see a
/// program that is just being loaded.
// Requirement: SEE-70
#[test]
fn joined_process_that_execs_is_counted_once() {
    let (first, last) = (static_program("burn"), program("burn"));
    let script = format!("exec {first} 0.4 exec {last} 0.4");
    let layers = ["--layers", "preload,wait,subreaper,scan"];
    let run = run_joined_by(Command::new("sh").args(["-c", &script]), &layers);
    let report = run.assert_clean(0);
    assert_eq!((report.u64("processes.total"), report.u64("coverage.joined")), (3, 1));
    let burn = &report.array("processes.heaviest")[0];
    assert_eq!((&burn["command"], &burn["exit"]["code"]), (&"burn".into(), &0.into()), "{burn}");
    assert_within("burn", burn["cpu_s"].as_f64().unwrap(), 0.8, 5.0);
}

// Requirement: SEE-56
#[test]
fn exit_status_of_static_children_is_known_by_pidfd() {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let version: Vec<u32> = release.split(['.', '-']).map_while(|part| part.trim().parse().ok()).collect();
    if version < vec![6, 15] {
        skip!("Linux {release} drops the exit status of a reaped process (6.15 keeps it)");
    }
    let (runs, burn) = (static_program("runs"), static_program("burn"));
    let run = tracked([&runs, "2", &burn, "0.5"]).options(&["--layers", "preload,wait,subreaper,scan"]).run();
    let report = run.assert_clean(0);
    assert_eq!(report.u64("processes.total"), 3, "each process lives longer than the sampling interval");
    let heaviest = report.array("processes.heaviest");
    let ends: Vec<_> =
        heaviest.iter().filter(|one| one["command"] == "burn").map(|one| &one["exit"]).collect();
    assert_eq!(ends.len(), 2);
    assert!(ends.iter().all(|exit| exit["code"] == 0), "{ends:?}");
}

// Requirement: SEE-12
#[test]
fn scan_finds_the_names_of_static_programs() {
    // Three static images: after a fork of bash, after the exec of a fork child that was sampled, and after the exec of
    // bash itself.
    let (dynamic, burn) = (program("burn"), static_program("burn"));
    let script = format!("{burn} 0.5; ({dynamic} 0.5; exec {burn} 0.6); {dynamic} 0.5; exec {burn} 0.7");
    let run = tracked(["bash", "-c", &script]).options(&["--layers", "preload,wait,subreaper,scan"]).run();
    let report = run.assert_clean(0);
    assert_eq!(report.u64("processes.total"), 5);
    assert_eq!(report.at("coverage.static_executables.0"), burn.as_str());
    let mut names: Vec<_> = (report.array("processes.heaviest").iter())
        .map(|one| {
            (
                one["command"].as_str().unwrap(),
                one["args"][0].as_str().unwrap(),
                one["args"][1].as_str().unwrap(),
            )
        })
        .collect();
    names.sort_unstable_by_key(|(_, path, seconds)| (*path != burn, *seconds));
    let expected = [(&burn, "0.5"), (&burn, "0.6"), (&burn, "0.7"), (&dynamic, "0.5"), (&dynamic, "0.5")];
    assert_eq!(names, expected.map(|(path, seconds)| ("burn", path.as_str(), seconds)));
}

/// Its parents have ended, and no record names it until it is reaped.
// Requirement: SEE-6
#[test]
fn scan_finds_orphans_of_static_programs_and_their_children() {
    let run = tracked([&*static_program("orphan"), "100"])
        .options(&["--layers", "preload,wait,subreaper,scan"])
        .run();
    let report = run.assert_clean(0);
    assert_within("RAM of the orphan", report.f64("max_ram.descendants.total_rss") / 1e6, 104.9, 10.0);
    // The process that leaves the orphan behind lives for some microseconds.
    assert!((3..=4).contains(&report.u64("processes.total")), "{}", report.u64("processes.total"));
    let cpu_s = report.array("processes.heaviest").iter().filter_map(|one| one["cpu_s"].as_f64());
    assert_within("the orphan's child", cpu_s.fold(0.0, f64::max), 0.3, 20.0);
}

// Requirement: SEE-13
#[test]
fn processes_with_titles_are_one_command() {
    let long = "x".repeat(200);
    let (dynamic, fixed) = (program("titles"), static_program("titles"));
    for command in [vec![&*dynamic, "3", &*long], vec![&*fixed, "3", &*long], vec![&*fixed, "3"]] {
        let run = tracked(command).run();
        let report = run.assert_clean(0);
        let commands: Vec<_> = report
            .array("processes.by_command")
            .iter()
            .map(|command| (command["command"].as_str().unwrap(), command["count"].as_u64().unwrap()))
            .collect();
        assert_eq!(commands, [("titles", 4)]);
    }
}

// Requirement: SEE-11
#[test]
fn each_process_is_credited_to_one_layer() {
    let run = tracked(["sh", "-c", "/bin/true; (exit 0); /bin/true; exit 0"]).run();
    let report = run.assert_clean(0);
    report.assert_all_exact(4);
    let layers = ["preload", "wait", "subreaper", "scan", "connector"];
    let found = layers.map(|layer| report.at(&format!("coverage.layers.{layer}")).as_u64().unwrap_or(0));
    assert_eq!(found.iter().sum::<u64>(), 4, "{found:?}");
    let peaks = ["exact", "sampled", "bound"].map(|how| report.u64(&format!("coverage.peaks.{how}")));
    assert!(peaks.iter().sum::<u64>() <= 4, "{peaks:?}");
}

// Requirement: SEE-1
#[test]
fn preload_and_wait_alone_are_enough_for_dynamic_programs() {
    let run = tracked(["sh", "-c", "/bin/true; (exit 0); /bin/true; exit 0"])
        .options(&["--layers", "preload,wait"])
        .run();
    run.assert_clean(0).assert_all_exact(4);
}

// Requirement: SEE-13
#[test]
fn script_name_appears_in_the_command_name() {
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("analyse.pl");
    std::fs::write(&script, "system('/bin/true');").unwrap();
    if crate::support::installed("perl").is_none() {
        skip!("perl is not installed");
    }
    let run = tracked(["/usr/bin/perl", script.to_str().unwrap()]).run();
    let report = run.assert_clean(0);
    report.assert_all_exact(2);
    let names: Vec<_> = report.array("processes.by_command").iter().map(|entry| &entry["command"]).collect();
    assert!(names.iter().any(|name| name.as_str().unwrap().contains("analyse.pl")), "{names:?}");
}

// Requirement: SEE-13
#[test]
fn interpreters_are_named_by_what_they_run() {
    let tools = tempfile::tempdir().unwrap();
    for name in ["java", "node", "php", "R", "perl"] {
        std::os::unix::fs::symlink("/bin/true", tools.path().join(name)).unwrap();
    }
    let script = "cd \"$0\"; ./java -Xmx1g -jar /opt/x.jar; ./java -cp a.jar:b.jar com.example.Main; \
                  ./node -e 'a/b'; ./php -r 'echo 1/2;'; ./R --no-echo --file=/a/foo.R --args 1; ./perl -pe s/a/b/; :";
    let run = tracked(["sh", "-c", script, tools.path().to_str().unwrap()]).run();
    let report = run.assert_clean(0);
    for name in ["java x.jar", "java com.example.Main", "node", "php", "R foo.R", "perl"] {
        assert!(report.command(name).is_some(), "{name}: {}", report.at("processes.by_command"));
    }
}
