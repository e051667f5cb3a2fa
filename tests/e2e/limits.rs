//! What the command was allowed, and what the kernel says of a cgroup of its own.

use crate::support::{assert_within, program, skip, tracked};

#[test]
fn the_limits_that_the_command_ran_under_are_reported() {
    let run = tracked(["sh", "-c", "ulimit -Sn; exit 0"])
        .through(&["sh", "-c", "ulimit -Sn 100; ulimit -St 1000; exec \"$@\"", "sh"])
        .with(|command| command.env("SLURM_JOB_ID", "4711").env("SLURM_CPUS_PER_TASK", "3"))
        .run();
    assert_eq!(run.stdout, "100\n", "the command's own limit is untouched");
    let report = run.assert_clean(0);
    assert_eq!(report.at("limits.ulimits.open_files.soft"), 100);
    assert_eq!(report.at("limits.ulimits.cpu_s.soft"), 1000);
    assert_eq!(report.at("limits.slurm.SLURM_JOB_ID"), "4711");
    assert_eq!(report.at("limits.slurm.SLURM_CPUS_PER_TASK"), "3");
    let cores = std::thread::available_parallelism().unwrap().get();
    assert!(report.array("limits.cpus").len() >= cores, "a CPU quota may make it less");
    assert!(report.at("cgroup").is_null(), "nobody asked for one");
}

#[test]
fn the_processors_that_it_might_use_are_reported() {
    if crate::support::installed("taskset").is_none() {
        skip!("taskset is not installed");
    }
    let run = tracked(["true"]).through(&["taskset", "-c", "0"]).run();
    assert_eq!(*run.assert_clean(0).array("limits.cpus"), [0]);
}

#[test]
fn a_cgroup_of_the_commands_own_says_the_same_cpu_time() {
    let run = tracked(["sh", "-c", &format!("{0} 0.5; {0} 0.5; exit 0", program("burn"))])
        .options(&["--cgroup"])
        .run();
    let report = run.assert_clean(0);
    let Some(usage_s) = report.at("cgroup.cpu_usage_s").as_f64() else {
        assert!(report.at("cgroup.reason").is_string(), "what is not known has a reason");
        skip!("{}", report.at("cgroup.reason"));
    };
    assert_within("cpu_usage_s", usage_s, report.f64("cpu_time.total_s"), 1.0);
    let path = report.at("cgroup.path").as_str().unwrap().to_owned();
    assert!(!std::path::Path::new(&path).exists(), "{path} is left");
}

#[test]
fn who_outlives_the_command_goes_back_to_the_group_that_it_came_from() {
    let script =
        format!("{} 0.1; sleep 1000 >/dev/null 2>&1 & cat /proc/self/cgroup; echo $!", program("burn"));
    let run = tracked(["sh", "-c", &script]).options(&["--cgroup"]).leaves_processes().run();
    let survivor: u32 = run.stdout.lines().last().unwrap().parse().unwrap();
    let after = std::fs::read_to_string(format!("/proc/{survivor}/cgroup")).unwrap();
    crate::support::kill(survivor, libc::SIGKILL);
    let report = run.assert_clean(0);
    let Some(path) = report.at("cgroup.path").as_str() else { skip!("{}", report.at("cgroup.reason")) };
    let name = std::path::Path::new(path).file_name().unwrap().to_str().unwrap();
    assert!(run.stdout.contains(name), "the command was in it: {}", run.stdout);
    assert!(!after.contains(name), "{after}");
    assert!(!std::path::Path::new(path).exists(), "{path} is left");
}
