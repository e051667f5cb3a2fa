//! The limits that the command ran under, and the figures of a cgroup of its own.

use std::fs;
use std::os::unix::fs::chown;
use std::process::Command;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::json;

use crate::support::cgroup::Group;
use crate::support::report::Report;
use crate::support::{assert_within, kill, or_skip, program, skip, tracked, wait_until};

// Requirement: CGROUP-1
#[test]
fn ulimits_and_slurm_variables_are_reported() {
    let run = tracked(["sh", "-c", "ulimit -Sn; exit 0"])
        .through(&["sh", "-c", "ulimit -Sn 100; ulimit -St 1000; exec \"$@\"", "sh"])
        .with(|command| command.env("SLURM_JOB_ID", "4711").env("SLURM_CPUS_PER_TASK", "3"))
        .run();
    assert_eq!(run.stdout, "100\n", "the command's own limit is unchanged");
    let report = run.assert_clean(0);
    assert_eq!(report.at("limits.ulimits.open_files.soft"), 100);
    assert_eq!(report.at("limits.ulimits.cpu_s.soft"), 1000);
    assert_eq!(report.at("limits.slurm.SLURM_JOB_ID"), "4711");
    assert_eq!(report.at("limits.slurm.SLURM_CPUS_PER_TASK"), "3");
    let cores = std::thread::available_parallelism().unwrap().get();
    assert!(report.array("limits.cpus").len() >= cores, "a CPU quota may make it less");
    assert!(report.at("cgroup").is_null(), "--cgroup was not given");
}

/// Variables that batch systems set in their jobs.
const JOB_VARIABLES: [(&str, &str); 11] = [
    ("SLURM_JOB_ID", "slurm"),
    ("PBS_JOBID", "pbs"),
    ("LSB_JOBID", "lsf"),
    ("SGE_TASK_ID", "sge"),
    ("_CONDOR_SLOT", "htcondor"),
    ("FLUX_JOB_ID", "flux"),
    ("FLUX_ENCLOSING_ID", "flux"),
    ("OAR_JOB_ID", "oar"),
    ("COBALT_JOBID", "cobalt"),
    ("PJM_JOBID", "pjm"),
    ("LOADL_STEP_ID", "loadleveler"),
];

/// Removes what says that this is a batch job.
fn outside_of_jobs(command: &mut Command) -> &mut Command {
    let slurm = std::env::vars_os().map(|(name, _)| name);
    for name in slurm.filter(|name| name.as_encoded_bytes().starts_with(b"SLURM_")) {
        command.env_remove(name);
    }
    JOB_VARIABLES.iter().fold(command, |command, (name, _)| command.env_remove(name))
}

// Requirement: HINT-4
#[test]
fn batch_system_is_known_by_its_variable() {
    assert!(
        tracked(["true"]).with(outside_of_jobs).run().assert_clean(0).at("limits.batch_system").is_null()
    );
    for (variable, name) in JOB_VARIABLES {
        let run = tracked(["true"]).with(move |command| outside_of_jobs(command).env(variable, "7")).run();
        assert_eq!(run.assert_clean(0).at("limits.batch_system"), name, "{variable}");
    }
}

/// The report of a run in a job with these variables, and none of other jobs.
fn in_job(variables: &[(&'static str, &str)]) -> Report {
    let variables: Vec<_> = variables.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    let run = tracked(["true"]).with(move |command| outside_of_jobs(command).envs(variables));
    run.run().assert_clean(0).clone()
}

// Requirement: JOB-1
#[test]
fn jobs_of_pbs_lsf_and_flux_are_reported() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("7.server");
    fs::write(&path, "n1\nn1\nn2\nn2\n").unwrap();
    let file = path.to_str().unwrap();
    let report = in_job(&[("PBS_JOBID", "7.server"), ("PBS_NODEFILE", file), ("PBS_WALLTIME", "3600")]);
    let expected = json!({"PBS_JOBID": "7.server", "PBS_NODEFILE": "n1 2 n2 2", "PBS_WALLTIME": "3600"});
    assert_eq!(*report.at("limits.job"), expected);
    assert_ne!(report.at("usable.cores.source"), "batch_slots", "lines of OpenPBS are processes");
    let report = in_job(&[("LSB_JOBID", "8"), ("LSB_MCPU_HOSTS", "n1 1 n2 1 ")]);
    assert_eq!(*report.at("limits.job"), json!({"LSB_JOBID": "8", "LSB_MCPU_HOSTS": "n1 1 n2 1"}));
    assert_eq!(report.f64("usable.cores.count"), 1.0);
    let report = in_job(&[("FLUX_JOB_ID", "ƒ3E"), ("FLUX_JOB_NNODES", "2"), ("PBS_NODEFILE", file)]);
    assert_eq!(*report.at("limits.job"), json!({"FLUX_JOB_ID": "ƒ3E", "FLUX_JOB_NNODES": "2"}));
    assert!(in_job(&[("PBS_NODEFILE", file)]).at("limits.job").as_object().unwrap().is_empty());
}

// Requirement: JOB-2, FAULT-20
#[test]
fn node_file_that_is_none_neither_stops_the_run_nor_costs_memory() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    mknodat(CWD, path("fifo"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    fs::File::create(path("sparse")).unwrap().set_len(1 << 40).unwrap();
    fs::write(path("control"), "n1\n\u{1b}[2J\n").unwrap();
    fs::write(path("lines"), (0..100_000).map(|i| format!("node{}\n", i % 20_000)).collect::<String>())
        .unwrap();
    for (name, reason) in [
        ("fifo", "the file is a pipe, and no file"),
        ("sparse", "the file has 1099511627776 bytes, and at most 2097152 are read"),
        ("control", "it lists what is no host"),
        ("lines", "it lists more than 16384 hosts"),
        ("missing", "No such file or directory (os error 2)"),
    ] {
        let report = in_job(&[("PBS_JOBID", "7"), ("PBS_NODEFILE", path(name).to_str().unwrap())]);
        let list = report.at("limits.job.PBS_NODEFILE").as_str().unwrap();
        assert!(list.starts_with("unknown: ") && list.ends_with(reason), "{name}: {list}");
    }
    // Root refuses it for its mode, others for its kind.
    let endless = in_job(&[("LSB_JOBID", "7"), ("LSB_DJOB_HOSTFILE", "/dev/zero")]);
    let list = endless.at("limits.job.LSB_DJOB_HOSTFILE").as_str().unwrap();
    assert!(list.starts_with("unknown: the file is "), "{list}");
}

// Requirement: JOB-2
#[test]
fn root_reads_no_node_file_that_another_user_can_replace() {
    if !rustix::process::geteuid().is_root() {
        skip!("needs root, for a file of another user");
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("nodes");
    fs::write(&path, "n1\n").unwrap();
    let list = || {
        let report = in_job(&[("PBS_JOBID", "7"), ("PBS_NODEFILE", path.to_str().unwrap())]);
        report.at("limits.job.PBS_NODEFILE").as_str().unwrap().to_owned()
    };
    assert_eq!(list(), "n1 1");
    chown(&path, Some(12_345), None).unwrap();
    let refused = list();
    assert!(refused.starts_with("unknown: the file is not safe: user 12345 owns "), "{refused}");
}

// Requirement: HINT-4
#[test]
fn summary_names_the_next_job_in_a_batch_job() {
    // A run shorter than a second has no hints.
    let summary = |job: bool| {
        let run = tracked(["sleep", "1.01"]).only_options(&[]).with(move |command| {
            if job { outside_of_jobs(command).env("PBS_JOBID", "7.server") } else { outside_of_jobs(command) }
        });
        run.run().stderr.clone()
    };
    let of_job = summary(true);
    // Where others keep the cores busy, no number of cores is named.
    assert!(of_job.contains("Next job       --"), "{of_job}");
    let limits = tracked(["true"]).with(outside_of_jobs).run();
    let hints = limits.assert_clean(0).at("hints").clone();
    if !hints["memory"]["given_bytes"].is_null() || !hints["cpus"]["given"].is_null() {
        skip!("a limit applies here, so the next job is named");
    }
    let outside = summary(false);
    assert!(!outside.contains("Next job"), "{outside}");
}

// Requirement: CGROUP-1
#[test]
fn cpu_affinity_is_reported() {
    if crate::support::installed("taskset").is_none() {
        skip!("taskset is not installed");
    }
    let run = tracked(["true"]).through(&["taskset", "-c", "0"]).run();
    assert_eq!(*run.assert_clean(0).array("limits.cpus"), [0]);
}

// Requirement: CGROUP-3
#[test]
fn own_cgroup_has_the_same_cpu_time() {
    let run = tracked(["sh", "-c", &format!("{0} 0.5; {0} 0.5; exit 0", program("burn"))])
        .options(&["--cgroup"])
        .run();
    let report = run.assert_clean(0);
    if let (true, Some(reason)) = (report.at("cgroup.path").is_string(), report.at("cgroup.reason").as_str())
    {
        let warning = format!("--cgroup: figures of the command's cgroup are missing: {reason}.");
        assert!(report.all_warnings().contains(&warning.as_str()), "{}", report.warnings());
    }
    let Some(usage_s) = report.at("cgroup.cpu_usage_s").as_f64() else {
        assert!(report.at("cgroup.reason").is_string(), "a missing figure has a reason");
        skip!("{}", report.at("cgroup.reason"));
    };
    assert_within("cpu_usage_s", usage_s, report.f64("cpu_time.total_s"), 1.0);
    let path = report.at("cgroup.path").as_str().unwrap().to_owned();
    assert!(!std::path::Path::new(&path).exists(), "{path} is left");
}

// Requirement: CGROUP-51
#[test]
fn missing_cgroup_is_a_warning() {
    let run = or_skip!(tracked(["true"]).options(&["--cgroup"]).by_an_ordinary_user()).run();
    let report = run.assert_clean(0);
    if let Some(path) = report.at("cgroup.path").as_str() {
        skip!("an ordinary user may make {path}");
    }
    let reason = report.at("cgroup.reason").as_str().unwrap();
    let warning = report.all_warnings()[0];
    let expected = format!(
        "--cgroup: the command ran without a cgroup of its own, and its figures are missing: {reason}."
    );
    assert_eq!(warning, expected);
}

// Requirement: CGROUP-57
#[test]
fn survivor_returns_to_the_original_cgroup() {
    let script =
        format!("{} 0.1; sleep 1000 >/dev/null 2>&1 & cat /proc/self/cgroup; echo $!", program("burn"));
    let run = tracked(["sh", "-c", &script]).options(&["--cgroup"]).leaves_processes().run();
    let survivor: u32 = run.stdout.lines().last().unwrap().parse().unwrap();
    let after = std::fs::read_to_string(format!("/proc/{survivor}/cgroup")).unwrap();
    crate::support::kill(survivor, libc::SIGKILL);
    let report = run.assert_clean(0);
    let Some(path) = report.at("cgroup.path").as_str() else { skip!("{}", report.at("cgroup.reason")) };
    let name = std::path::Path::new(path).file_name().unwrap().to_str().unwrap();
    assert!(run.stdout.contains(name), "the command was in its own cgroup: {}", run.stdout);
    assert!(!after.contains(name), "{after}");
    assert!(!std::path::Path::new(path).exists(), "{path} is left");
}

// Requirement: CGROUP-4, CGROUP-53
#[test]
fn launcher_alone_in_its_cgroup_gets_the_memory_peak() {
    let group = or_skip!(Group::v2("memory"));
    let run = tracked([program("touch").as_str(), "hold", "104857600", "0"])
        .through(&group.enter().each_ref().map(String::as_str))
        .options(&["--cgroup"])
        .run();
    let report = run.assert_clean(0);
    assert_eq!(
        report.at("limits.cgroup"),
        &*group.name(),
        "the cgroup in which the launcher was started, not the one that it moved itself to"
    );
    assert!(group.children().is_empty(), "{:?} is left", group.children());
    assert_eq!(std::fs::read_to_string(group.file("cgroup.subtree_control")).unwrap().trim(), "");
    if !group.file("memory.peak").exists() {
        assert_eq!(report.at("cgroup.reason"), "memory.peak needs Linux 5.19");
        skip!("memory.peak needs Linux 5.19");
    }
    assert_within("memory_peak_bytes", report.f64("cgroup.memory_peak_bytes"), 100.0 * 1048576.0, 5.0);
}

// Requirement: CGROUP-4, CGROUP-52
#[test]
fn shared_cgroup_gives_a_reason_for_a_null_memory_peak() {
    let group = or_skip!(Group::v2("memory"));
    let mut other = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
    std::fs::write(group.file("cgroup.procs"), other.id().to_string()).unwrap();
    let run = tracked([program("burn").as_str(), "0.1"])
        .through(&group.enter().each_ref().map(String::as_str))
        .options(&["--cgroup"])
        .run();
    drop(other.stdin.take());
    other.wait().unwrap();
    let report = run.assert_clean(0);
    assert!(report.at("cgroup.memory_peak_bytes").is_null());
    assert!(report.at("cgroup.reason").as_str().unwrap().contains("holds other processes"));
    assert_within("cpu_usage_s", report.f64("cgroup.cpu_usage_s"), report.f64("cpu_time.total_s"), 1.0);
    assert!(group.children().is_empty(), "{:?} is left", group.children());
}

// Requirement: CGROUP-4, CGROUP-57
#[test]
fn cgroups_made_by_the_command_are_removed() {
    let group = or_skip!(Group::v2(""));
    let script = format!(
        "d=$(dirname $(grep -lx $$ {}/*/cgroup.procs)); mkdir $d/a $d/a/b && echo $$ >$d/a/b/cgroup.procs && cat /proc/self/cgroup
         sleep 1000 >/dev/null 2>&1 & echo $!",
        group.file("").display()
    );
    let run = tracked(["sh", "-c", &script])
        .through(&group.enter().each_ref().map(String::as_str))
        .options(&["--cgroup"])
        .leaves_processes()
        .run();
    let survivor: u32 = run.stdout.lines().last().unwrap().parse().unwrap();
    kill(survivor, libc::SIGKILL);
    run.assert_clean(0);
    assert!(run.stdout.contains("/a/b"), "the command moved itself into its nested cgroup: {}", run.stdout);
    assert!(group.children().is_empty(), "{:?} is left", group.children());
    wait_until("the survivor's end", || {
        std::fs::read_to_string(group.file("cgroup.procs")).unwrap().is_empty()
    });
}

// Requirement: CGROUP-59
#[test]
fn oom_kill_is_reported() {
    let group = or_skip!(Group::with_memory_limit(64 << 20));
    let run = tracked([program("touch").as_str(), "hold", "209715200", "0"])
        .through(&group.enter().each_ref().map(String::as_str))
        .run();
    let report = run.report();
    assert_eq!(report.at("exit.signal"), libc::SIGKILL);
    assert_eq!(report.at("limits.memory_bytes"), 64 << 20);
    assert_eq!(report.at("limits.oom_kills"), 1);
    let expected = format!(
        "Out of memory: the kernel killed 1 process in cgroup {} during the run. The RAM figures are what was used up to \
         then, not what the command needs: give it more memory.",
        group.name()
    );
    let warning = serde_json::json!({"topic": "out_of_memory", "text": expected});
    assert!(report.array("warnings").contains(&warning), "{}", report.at("warnings"));
}
