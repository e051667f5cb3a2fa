//! The tasks of pipelines: which processes each has, what they used, and how they ended.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::support::report::{Report, assert_within};
use crate::support::rows::{Database, JsonLines};
use crate::support::trace::Trace;
use crate::support::{Run, or_skip, program, tracked};

const MB: f64 = 1e6;

/// A Python that has pytest and Snakemake.
pub(super) fn python() -> Result<PathBuf, &'static str> {
    let path = std::env::var_os("GPU_TRACK_TEST_PIPELINES");
    path.map(PathBuf::from).ok_or("PyPI's snakemake and pytest are not installed (scripts/test)")
}

/// The task of this kind and name.
fn task<'a>(report: &'a Report, kind: &str, name: &str) -> &'a Value {
    let tasks = report.array("tasks");
    let found = tasks.iter().find(|task| task["kind"] == kind && task["name"] == name);
    found.unwrap_or_else(|| panic!("no {kind} {name} in {tasks:#?}"))
}

/// Asserts that the tasks and the rest are all of the run.
fn assert_sums(report: &Report) {
    let tasks = report.array("tasks");
    let processes: u64 = tasks.iter().map(|task| task["processes"].as_u64().unwrap()).sum();
    assert_eq!(processes, report.u64("processes.total"));
    let cpu_s: f64 = tasks.iter().map(|task| task["cpu_s"].as_f64().unwrap()).sum();
    assert!((cpu_s - report.f64("cpu_time.total_s")).abs() < 1e-4, "{cpu_s} s in {tasks:#?}");
    let written: u64 = tasks.iter().map(|task| task["io"]["write_bytes"].as_u64().unwrap()).sum();
    assert_eq!(written, report.u64("io.write_bytes"));
}

/// A run of a shell script.
///
/// `set -m` in it makes each command a process group, as GNU parallel does with its jobs.
fn of_script(script: &str) -> Run {
    tracked(["bash", "-c", script]).run()
}

fn parallel() -> Result<String, &'static str> {
    let path = crate::support::installed("sem").ok_or("GNU parallel is not installed")?;
    Ok(path.with_file_name("parallel").to_str().unwrap().to_owned())
}

// Requirement: TASK-4, TASK-6
#[test]
fn jobs_of_parallel_have_their_cpu_time_and_ram() {
    let parallel = or_skip!(parallel());
    let (burn, touch) = (program("burn"), program("touch"));
    // Two processes of each job hold memory at one time: neither exits before both have it.
    let job = format!("{touch} together 2 {{}}00000000 300 & {burn} 0.{{}}; wait; exit 0");
    let run = tracked([&parallel, "--will-cite", "-j2", &job, ":::", "1", "2"]).run();
    let report = run.assert_clean(0);
    for number in [1.0, 2.0] {
        let task = task(report, "parallel", &number.to_string());
        assert_eq!((&task["processes"], &task["starts"]), (&5.into(), &1.into()));
        let cpu_s = task["cpu_s"].as_f64().unwrap();
        assert!(cpu_s > number / 10.0 && cpu_s < number + 0.5, "{task:#?}");
        let held = number * 200.0 * MB;
        let peak = task["peak_ram_bytes"].as_f64().unwrap();
        assert!(peak >= held && peak < held + 15.0 * MB, "{peak} of {held}");
    }
    assert_sums(report);
}

// Requirement: TASK-51
#[test]
fn thousand_jobs_are_told_apart_or_summed_up() {
    let parallel = or_skip!(parallel());
    let run = tracked(["sh", "-c", &format!("seq 1000 | {parallel} --will-cite -j4 true {{}}")]).run();
    let report = run.assert_clean(0);
    let tasks = report.array("tasks");
    assert_eq!(tasks.len(), 302, "300, the others, and the rest");
    let others = tasks.iter().find(|task| task["name"] == "(others)").unwrap();
    let starts: u64 =
        tasks.iter().filter(|task| task["id"] != 0).map(|task| task["starts"].as_u64().unwrap()).sum();
    assert_eq!((&others["id"], starts), (&1.into(), 1000));
    assert_sums(report);
}

// Requirement: TASK-5, TASK-53
#[test]
fn failed_killed_and_retried_tasks_say_so() {
    let run = of_script(
        "export PARALLEL_PID=1; set -m\n\
         job() { PARALLEL_SEQ=$1 sh -c \"$2\"; }\n\
         job 1 'exit 3'\n\
         job 2 'kill -9 $$'\n\
         job 3 'sh -c \"kill -9 \\$\\$\"; exit 5'\n\
         job 4 'exit 1'; job 4 'exit 0'\n\
         exit 0",
    );
    let report = run.report();
    let of = |name: &str| task(report, "parallel", name).clone();
    assert_eq!((&of("1")["exit"]["code"], &of("1")["why"]), (&3.into(), &"exit code 3".into()));
    assert_eq!(of("2")["exit"]["signal"], 9);
    assert!(of("2")["why"].as_str().unwrap().starts_with("SIGKILL ended sh (pid "));
    assert!(of("3")["why"].as_str().unwrap().starts_with("exit code 5, after SIGKILL ended sh (pid "));
    let again = of("4");
    assert_eq!(
        (&again["starts"], &again["failed_starts"], &again["why"]),
        (&2.into(), &1.into(), &Value::Null)
    );
    assert_eq!(again["exit"]["code"], 0);
    assert_sums(report);
}

// Requirement: TASK-3
#[test]
fn tasks_nest_and_a_task_lasts_over_exec() {
    let job = "set -euo pipefail;  set -m; PARALLEL_SEQ=1 sh -c 'env -i sh -c \"true; true\"; exit 0'; exec sh -c ':; exit 0'";
    let run = tracked(["bash", "-c", job]).run();
    let report = run.assert_clean(0);
    let tasks = report.array("tasks");
    let [inner, outer] = ["parallel", "snakemake"]
        .map(|kind| tasks.iter().find(|task| task["kind"] == kind).unwrap_or_else(|| panic!("{tasks:#?}")));
    assert_eq!(inner["parent"], outer["id"]);
    assert_eq!(
        (&outer["processes"], &outer["starts"]),
        (&1.into(), &1.into()),
        "the exec'd shell is the same process"
    );
    assert_eq!((&outer["with_nested"]["tasks"], &outer["with_nested"]["processes"]), (&1.into(), &3.into()));
    assert_sums(report);
}

// Requirement: TASK-2
#[test]
fn named_variables_mark_tasks_and_those_of_the_launcher_do_not() {
    let script = "set -m; t=/bin/true; $t; SAMPLE=a sh -c \"$t; $t; exit 0\"; SAMPLE=b $t; SAMPLE=a $t; PARALLEL_SEQ=9 $t; exit 0";
    let run = tracked(["bash", "-c", script])
        .options(&["--by-env", "SAMPLE"])
        .with(|command| command.env("PARALLEL_SEQ", "9"))
        .run();
    let report = run.assert_clean(0);
    assert_eq!(task(report, "env", "SAMPLE=a")["starts"], 2);
    assert_eq!(task(report, "env", "SAMPLE=a")["processes"], 4);
    assert_eq!(task(report, "env", "SAMPLE=b")["processes"], 1);
    assert_eq!(report.array("tasks").len(), 3, "the launcher itself is in the job 9");
    assert_sums(report);
}

// Requirement: TASK-2
#[test]
fn value_that_the_launcher_inherited_is_a_task_within_that_of_another_value() {
    let script = "t=/bin/true; SAMPLE=b sh -c \"SAMPLE=a $t; exit 0\"; SAMPLE=a $t; exit 0";
    let run = tracked(["bash", "-c", script])
        .options(&["--by-env", "SAMPLE"])
        .with(|command| command.env("SAMPLE", "a"))
        .run();
    let report = run.assert_clean(0);
    let other = task(report, "env", "SAMPLE=b");
    let of_a = |parent: &Value| {
        let is_it = |task: &&Value| task["name"] == "SAMPLE=a" && task["parent"] == *parent;
        report.array("tasks").iter().find(is_it).unwrap_or_else(|| panic!("{}", report.0))
    };
    let (outer, inner) = (of_a(&Value::Null), of_a(&other["id"]));
    assert_eq!((&outer["processes"], &inner["processes"]), (&2.into(), &1.into()));
    assert_eq!(other["parent"], outer["id"]);
    assert_sums(report);
}

// Requirement: TASK-64
#[test]
fn child_that_forks_without_exec_is_in_its_parents_task() {
    let run = tracked(["bash", "-c", "export SAMPLE=a; (:; :); /bin/true; exit 0"])
        .options(&["--by-env", "SAMPLE"])
        .run();
    let report = run.assert_clean(0);
    assert_eq!(
        (&task(report, "env", "SAMPLE=a")["processes"], report.u64("processes.total")),
        (&1.into(), 3)
    );
    assert_sums(report);
}

// Requirement: TASK-1
#[test]
fn compile_units_of_make_are_tasks() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    for name in ["a.c", "b.c"] {
        fs::write(file(name), "#include <stdio.h>\nint main(void) { return puts(\"x\") < 0; }\n").unwrap();
    }
    fs::write(file("Makefile"), "all: out/a.o out/b.o\nout/%.o: %.c\n\tgcc -O2 -c -o $@ $<\n").unwrap();
    fs::create_dir(file("out")).unwrap();
    let run = tracked(["make", "-j2", "-C", directory.path().to_str().unwrap()]).run();
    let report = run.assert_clean(0);
    for name in ["out/a.c", "out/b.c"] {
        let unit = task(report, "compile", name);
        assert_eq!((&unit["processes"], &unit["exit"]["code"]), (&1.into(), &0.into()));
        assert_eq!(unit["peak_quality"], "exact");
    }
    assert_sums(report);
}

// Requirement: TASK-1, TASK-52
#[test]
fn children_of_tests_are_tasks() {
    let python = or_skip!(python());
    let directory = tempfile::tempdir().unwrap();
    let test = "import subprocess\n\
                def test_one(): subprocess.run(['sh', '-c', 'true; true'])\n\
                def test_two(): pass\n";
    fs::write(directory.path().join("test_it.py"), test).unwrap();
    let python = python.to_str().unwrap();
    let run = tracked([python, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir=."])
        .with({
            let directory = directory.path().to_owned();
            move |command| command.current_dir(directory)
        })
        .run();
    let report = run.assert_clean(0);
    let test = task(report, "pytest", "test_it.py::test_one");
    assert_eq!(
        (&test["starts"], &test["failed_starts"], &test["exit"]["code"]),
        (&1.into(), &Value::Null, &Value::Null)
    );
    assert_eq!(report.array("tasks").len(), 2, "what runs in pytest itself is in no task");
    assert_sums(report);
}

// Requirement: TASK-1, TASK-5, TASK-11, TASK-58
#[test]
fn jobs_of_snakemake_are_tasks() {
    let python = or_skip!(python());
    let directory = tempfile::tempdir().unwrap();
    let snakefile = format!(
        "rule all:\n    input: 'a.txt', 'b.txt', 'c.txt'\n\
         rule a:\n    output: 'a.txt'\n    shell: '{burn} 0.3; {touch} hold 200000000 1200; seq 3 > {{output}}'\n\
         rule b:\n    output: 'b.txt'\n    retries: 1\n    \
         shell: 'if [ -e tried ]; then touch {{output}}; else touch tried; exit 3; fi'\n\
         rule c:\n    output: 'c.txt'\n    run:\n        open(output[0], 'w').write('c')\n",
        burn = program("burn"),
        touch = program("touch")
    );
    fs::write(directory.path().join("Snakefile"), snakefile).unwrap();
    let files = Files::new();
    let options = files.options();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let run = tracked([python.to_str().unwrap(), "-m", "snakemake", "-q", "-c2"])
        .options(&options)
        .with({
            let directory = directory.path().to_owned();
            move |command| command.current_dir(&directory).env("XDG_CACHE_HOME", &directory)
        })
        .run();
    let report = run.report();
    assert_eq!(report.at("exit.code"), 0);
    let tasks = report.array("tasks");
    let jobs: Vec<&Value> = tasks.iter().filter(|task| task["kind"] == "snakemake").collect();
    let job = |text: &str| {
        let found = jobs.iter().find(|job| job["name"].as_str().unwrap().contains(text));
        *found.unwrap_or_else(|| panic!("no {text} in {tasks:#?}"))
    };
    let cpu_s = job("seq 3")["cpu_s"].as_f64().unwrap();
    assert!((0.3..0.8).contains(&cpu_s), "{tasks:#?}");
    assert_within("RAM", job("seq 3")["peak_ram_bytes"].as_f64().unwrap(), 203.0 * MB, 4.0);
    assert_eq!((&job("tried")["starts"], &job("tried")["failed_starts"]), (&2.into(), &1.into()));
    assert_eq!(job("tried")["exit"]["code"], 0);
    assert!(job("seq 3")["name"].as_str().unwrap().starts_with("a: "), "{tasks:#?}");
    assert_eq!(task(report, "snakemake", "c")["exit"]["code"], 0);
    assert_eq!(jobs.len(), 3, "{tasks:#?}");
    assert_sums(report);
    // With the names of the rules, which are read at the end.
    files.assert_tasks(report, 3);
}

/// Nextflow's `.command.run` exports the work directory, stages the input, and runs the script of the task between two `tee`.
// Requirement: TASK-1, TASK-12, TASK-18
#[test]
fn rendered_scripts_of_nextflow_are_tasks_with_their_names() {
    let directory = tempfile::tempdir().unwrap();
    let mut calls = String::new();
    let tasks = [
        ("work/4f/0123456789abcdef0123456789abcd", "hello (1)"),
        ("work/a0/fedcba9876543210fedcba98765432", "hello (2)"),
        // Its script is not where Nextflow's are.
        ("other/0b/0123456789abcdef0123456789abcd", "hello (3)"),
    ];
    for (path, name) in tasks {
        let work = directory.path().join(path);
        fs::create_dir_all(&work).unwrap();
        let end = if name == "hello (2)" { "exit 9" } else { "echo done > out" };
        fs::write(work.join(".command.sh"), format!("#!/bin/bash -ue\ntrue\n{end}\n")).unwrap();
        fs::write(work.join(".command.run"), COMMAND_RUN.replace("hello (1)", name)).unwrap();
        calls += &format!("(cd {} && bash .command.run)\n", work.display());
    }
    let files = Files::new();
    let options = files.options();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let run = tracked(["bash", "-c", &format!("{calls}exit 0")])
        .options(&options)
        .with({
            let directory = directory.path().to_owned();
            move |command| command.current_dir(&directory)
        })
        .run();
    let report = run.assert_clean(0);
    for name in ["hello (1)", "hello (2)", "0b/0123456789abcdef0123456789abcd"] {
        let task = task(report, "nextflow", name);
        let exit = if name == "hello (2)" { 9 } else { 0 };
        assert_eq!((&task["starts"], &task["exit"]["code"]), (&1.into(), &exit.into()), "{task:#?}");
        assert_eq!(task["processes"], 4, "ln, two tee, and the script");
    }
    assert_eq!(report.array("tasks").len(), 4);
    assert_sums(report);
    files.assert_tasks(report, 3);
}

/// What Nextflow 24 renders for the local executor, without traps.
const COMMAND_RUN: &str = "#!/bin/bash\n### ---\n### name: 'hello (1)'\n### ---\nset -e\nset -u\n\
    nxf_launch() {\n    /bin/bash -ue .command.sh\n}\n\
    nxf_main() {\n    NXF_SCRATCH=''\n    export NXF_TASK_WORKDIR=\"$PWD\"\n    ln -s /etc/hostname in.txt\n    set +e\n    \
    (set -o pipefail; (nxf_launch | tee .command.out) 3>&1 1>&2 2>&3 | tee .command.err) &\n    \
    pid=$!\n    wait $pid\n}\nnxf_main\n";

// Requirement: TASK-7
#[test]
fn killed_collector_loses_no_task() {
    let burn = program("burn");
    let script = format!(
        "set -m; PARALLEL_SEQ=1 {burn} 0.2; PARALLEL_SEQ=2 sh -c 'echo runs; read line; {burn} 0.2; exit 0'; exit 0"
    );
    let mut running = tracked(["bash", "-c", &script]).piped_stdin().start();
    running.wait_for_output("runs");
    running.replace_collector();
    drop(running.stdin());
    let run = running.wait();
    let report = run.report();
    for name in ["1", "2"] {
        let cpu_s = task(report, "parallel", name)["cpu_s"].as_f64().unwrap();
        assert!((0.19..0.6).contains(&cpu_s), "{cpu_s} of {name}");
    }
    assert_eq!(task(report, "parallel", "2")["processes"], 2);
    assert_sums(report);
}

/// The files over time of a run: JSON lines, database and trace.
struct Files {
    directory: tempfile::TempDir,
}

impl Files {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn path(&self, form: &str) -> PathBuf {
        self.directory.path().join(format!("t.{form}"))
    }

    fn options(&self) -> Vec<String> {
        let option = |form| ["--tf".to_owned(), self.path(form).display().to_string()];
        ["jsonl", "sqlite", "pftrace"].into_iter().flat_map(option).collect()
    }

    /// Asserts that the files have these tasks, and each task of the report with the report's figures.
    fn assert_tasks(&self, report: &Report, expected: usize) {
        let lines = JsonLines::read(&self.path("jsonl"));
        let lines: BTreeMap<u64, &Value> =
            lines.of("task").into_iter().map(|task| (task["id"].as_u64().unwrap(), task)).collect();
        let database = Database::read(&self.path("sqlite"));
        let rows: BTreeMap<u64, &Value> =
            database.rows("tasks").iter().map(|row| (row["id"].as_u64().unwrap(), row)).collect();
        let trace = Trace::read(&self.path("pftrace")).tasks;
        let slices: BTreeSet<(u64, u64)> = trace.iter().copied().collect();
        assert_eq!(slices.len(), trace.len(), "a slice is there twice");
        let drawn: BTreeSet<u64> = slices.into_iter().map(|(id, _)| id).collect();
        let ids = |of: &BTreeMap<u64, &Value>| of.keys().copied().collect::<BTreeSet<_>>();
        assert_eq!((rows.len(), database.rows("tasks").len()), (expected, expected));
        assert_eq!((ids(&lines), drawn), (ids(&rows), ids(&rows)));
        for task in report.array("tasks").iter().filter(|task| !task["kind"].is_null()) {
            let id = task["id"].as_u64().unwrap();
            let (line, row) = (lines[&id], rows[&id]);
            for (key, value) in task.as_object().unwrap().iter().filter(|(key, _)| *key != "with_nested") {
                assert_eq!(&line[key], value, "{key} of {line}");
                if !matches!(key.as_str(), "io" | "exit" | "start_s") {
                    assert_eq!(&row[key], value, "{key} of {row}");
                }
            }
            assert_eq!(
                [&row["exit_code"], &row["exit_signal"]],
                [&task["exit"]["code"], &task["exit"]["signal"]]
            );
            assert_eq!(row["write_bytes"], task["io"]["write_bytes"]);
            let wall_s = row["end_timestamp"].as_f64().unwrap() - row["start_timestamp"].as_f64().unwrap();
            assert!((wall_s - row["wall_s"].as_f64().unwrap()).abs() < 1e-3, "{row}");
        }
    }
}

// Requirement: TASK-58
#[test]
fn files_over_time_have_all_tasks_with_the_reports_figures() {
    let files = Files::new();
    let options = files.options();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let script = "export PARALLEL_PID=1; set -m; t=/bin/true\n\
        for n in $(seq 400); do PARALLEL_SEQ=$n $t; done\n\
        job() { PARALLEL_SEQ=$1 sh -c \"$2\"; }\n\
        job 401 'NAME=inner sh -c \"$t; exit 0\"; exit 0'\n\
        job 402 'kill -9 $$'; job 402 'exit 3'\n\
        NAME=$'a\\tb\\nc\\e[2J' $t\n\
        exit 0";
    let run = tracked(["bash", "-c", script])
        .options(&options)
        .options(&["--by-env", "NAME"])
        .with(|command| command.env("t", "/bin/true"))
        .run();
    // bash tells of the killed process on stderr.
    let report = run.report();
    assert_sums(report);
    files.assert_tasks(report, 404);
    let database = Database::read(&files.path("sqlite"));
    let named = |name: &str| {
        let found = database.rows("tasks").iter().find(|row| row["name"] == name);
        found.unwrap_or_else(|| panic!("no {name:?}"))
    };
    assert_eq!(named("NAME=inner")["parent"], named("401")["id"]);
    assert_eq!(named("NAME=a\tb\nc\u{1b}[2J")["kind"], "env");
    let again = named("402");
    assert_eq!(
        (&again["starts"], &again["failed_starts"], &again["exit_code"]),
        (&2.into(), &2.into(), &3.into())
    );
    assert_eq!(again["why"], "exit code 3", "SIGKILL ended the try before");
}

// Requirement: TASK-58, TASK-7
#[test]
fn files_of_a_killed_collector_lack_no_task_and_have_none_twice() {
    let files = Files::new();
    let options = files.options();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let script = "export PARALLEL_PID=1; set -m; t=/bin/true\n\
        for n in $(seq 40); do PARALLEL_SEQ=$n $t; done\n\
        echo first; read line\n\
        for n in $(seq 20 80); do PARALLEL_SEQ=$n $t; done\n\
        echo second; PARALLEL_SEQ=81 sh -c 'read line; exit 0'\n\
        exit 0";
    let mut running = tracked(["bash", "-c", script]).options(&options).piped_stdin().start();
    let mut stdin = running.stdin();
    for output in ["first", "second"] {
        running.wait_for_output(output);
        running.replace_collector();
        writeln!(stdin, "go on").unwrap();
    }
    let run = running.wait();
    let report = run.report();
    let tasks = report.array("tasks");
    let starts = |task: &Value| if task["id"] == 0 { 0 } else { task["starts"].as_u64().unwrap() };
    assert_eq!(tasks.iter().map(starts).sum::<u64>(), 40 + 61 + 1, "{tasks:#?}");
    assert_sums(report);
    files.assert_tasks(report, 81);
}

// Requirement: TASK-8
#[test]
fn summary_has_the_heaviest_tasks_and_the_text_has_all() {
    let burn = program("burn");
    let script = format!("set -m; PARALLEL_SEQ=1 {burn} 0.5; PARALLEL_SEQ=2 sh -c 'exit 4'; exit 0");
    let directory = tempfile::tempdir().unwrap();
    let full = directory.path().join("full.txt");
    let options = ["-o", full.to_str().unwrap(), "--summary"];
    let run = tracked(["bash", "-c", &script]).options(&options).run();
    let summary = &run.stderr;
    assert!(summary.contains("parallel 1 ") && summary.contains("in no task"), "{summary}");
    let text = fs::read_to_string(&full).unwrap();
    assert!(text.contains("parallel 2: exit code 4"), "{text}");
}

fn export(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpu-track"));
    command.arg("export").args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// The rows of a TSV by the names of its columns.
fn tsv(text: &str) -> Vec<BTreeMap<&str, &str>> {
    let mut lines = text.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    let head = lines.next().unwrap();
    lines
        .map(|cells| {
            assert_eq!(cells.len(), head.len(), "{text}");
            head.iter().copied().zip(cells).collect()
        })
        .collect()
}

// Requirement: TASK-13
#[test]
fn exported_files_have_the_reports_figures_in_the_units_of_their_programs() {
    let (burn, touch) = (program("burn"), program("touch"));
    let job = format!("set -euo pipefail;  {burn} 0.2; {touch} hold 50000000 100; printf 'a\\tb\\n'");
    let nextflow = format!("NXF_TASK_WORKDIR=/w/4f/x {burn} 0.1");
    let run = of_script(&format!("bash -c \"{job}\"; {nextflow}; exit 0"));
    let report = run.assert_clean(0);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("r.json");
    fs::write(&file, report.0.to_string()).unwrap();
    let file = file.to_str().unwrap();

    let done = export(&["--as", "snakemake-benchmark", file]);
    assert_eq!((done.status.code(), String::from_utf8_lossy(&done.stderr)), (Some(0), "".into()));
    let text = String::from_utf8(done.stdout).unwrap();
    let [row] = &tsv(&text)[..] else { panic!("{text}") };
    let tasks = report.array("tasks");
    let expected = tasks.iter().find(|task| task["kind"] == "snakemake").unwrap();
    let number = |key: &str| row[key].parse::<f64>().unwrap_or_else(|_| panic!("{key} in {text}"));
    let of = |value: &Value| value.as_f64().unwrap();
    for (key, value) in [
        ("s", of(&expected["wall_s"])),
        ("cpu_time", of(&expected["cpu_s"])),
        ("mean_load", 100.0 * of(&expected["cpu_s"]) / of(&expected["wall_s"])),
        ("max_rss", of(&expected["peak_ram_bytes"]) / 1_048_576.0),
        ("io_out", of(&expected["io"]["write_bytes"]) / 1_048_576.0),
    ] {
        assert!((number(key) - value).abs() <= 0.01, "{key} is not {value} in {text}");
    }
    assert_eq!((row["max_pss"], row["max_gpu_ram"]), ("NA", "NA"));

    let done = export(&["--as", "nextflow-trace", file, "--task", "4f/x"]);
    let text = String::from_utf8(done.stdout).unwrap();
    let (first, rest) = text.split_once('\n').unwrap();
    let keys: BTreeMap<&str, u64> = rest
        .lines()
        .map(|line| line.split_once('=').unwrap())
        .map(|(key, value)| (key, value.parse().unwrap()))
        .collect();
    let expected = task(report, "nextflow", "4f/x");
    assert_eq!(first, "nextflow.trace/v2");
    assert_eq!(keys["realtime"], (of(&expected["wall_s"]) * 1e3).round() as u64);
    assert_eq!(keys["peak_rss"], expected["peak_ram_bytes"].as_u64().unwrap() / 1024);
    assert_eq!(keys["write_bytes"], expected["io"]["write_bytes"].as_u64().unwrap());
    assert!(!keys.contains_key("vmem") && keys["%cpu"] > 0, "{text}");

    let refused = export(&["--as", "nextflow-trace", file, "--task", "none"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
}

// Requirement: TASK-13
#[test]
fn exported_benchmark_begins_with_snakemakes_own_columns() {
    let python = or_skip!(python());
    let script =
        "from snakemake.benchmark import BenchmarkRecord; print('\\t'.join(BenchmarkRecord.get_header()))";
    let own = Command::new(python).args(["-c", script]).output().unwrap();
    let own = String::from_utf8(own.stdout).unwrap();
    let run = of_script("true; exit 0");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("r.json");
    fs::write(&file, run.assert_clean(0).0.to_string()).unwrap();
    let done = export(&["--as", "snakemake-benchmark", file.to_str().unwrap()]);
    let text = String::from_utf8(done.stdout).unwrap();
    let own: Vec<&str> = own.trim_end().split('\t').collect();
    let head: Vec<&str> = text.lines().next().unwrap().split('\t').collect();
    assert_eq!((head.get(..own.len()), text.lines().count()), (Some(&own[..]), 2), "{text}");
}

/// Prints the table of docs/ACCURACY.md: jobs that say themselves what they used, by Snakemake's own benchmark and by this report.
#[test]
#[ignore = "prints a table: cargo test --test e2e -- --ignored --nocapture table_of_benchmarks"]
fn table_of_benchmarks() {
    let python = or_skip!(python());
    let (burn, touch) = (program("burn"), program("touch"));
    let jobs = [
        ("one process of 300 MB", format!("{burn} 2; {touch} hold 300000000 2000"), "300"),
        (
            "four of 200 MB at once",
            format!("{burn} 2 children 4 & {touch} together 4 200000000 3000; wait"),
            "800",
        ),
        (
            "500 MB for 0.15 s of 4 s",
            format!("{touch} hold 50000000 2000; {touch} hold 500000000 150; {touch} hold 50000000 2000"),
            "500",
        ),
        (
            "150 processes, one after another",
            format!("for i in $(seq 150); do {burn} 0.02; done"),
            "less than 2",
        ),
        ("0.3 s", format!("{burn} 0.2; {touch} hold 100000000 100"), "100"),
    ];
    let directory = tempfile::tempdir().unwrap();
    let outputs: Vec<String> = (0..jobs.len()).map(|number| format!("'{number}.out'")).collect();
    let mut snakefile = format!("rule all:\n    input: {}\n", outputs.join(", "));
    for (number, (_, job, _)) in jobs.iter().enumerate() {
        snakefile += &format!(
            "rule job{number}:\n    output: '{number}.out'\n    benchmark: '{number}.tsv'\n    \
             shell: 'TIMEFORMAT=\"%U %S\"; {{{{ time ( {job} ) ; }}}} 2> {{output}}'\n"
        );
    }
    fs::write(directory.path().join("Snakefile"), snakefile).unwrap();
    let run = tracked([python.to_str().unwrap(), "-m", "snakemake", "-q", "-c1"])
        .with({
            let directory = directory.path().to_owned();
            move |command| command.current_dir(&directory).env("XDG_CACHE_HOME", &directory)
        })
        .run();
    let report = run.report();
    let read = |name: String| fs::read_to_string(directory.path().join(name)).unwrap();
    println!("\n| job | CPU s, by the shell | Snakemake | gpu-track | MB held | Snakemake | gpu-track |");
    println!("|---|---|---|---|---|---|---|");
    for (number, (name, _, held_mb)) in jobs.iter().enumerate() {
        let cpu_s: f64 =
            read(format!("{number}.out")).split_whitespace().map(|s| s.parse::<f64>().unwrap()).sum();
        let benchmark = read(format!("{number}.tsv"));
        let [theirs] = &tsv(&benchmark)[..] else { panic!("{benchmark}") };
        let mb = |text: &str| text.parse::<f64>().map_or(f64::NAN, |mib| mib * 1.048_576);
        let start = format!("job{number}: ");
        let tasks = report.array("tasks");
        let ours = tasks.iter().find(|task| task["name"].as_str().unwrap().starts_with(&start)).unwrap();
        println!(
            "| {name} | {cpu_s:.2} | {} | {:.2} | {held_mb} | {:.0} | {:.0} |",
            theirs["cpu_time"],
            ours["cpu_s"].as_f64().unwrap(),
            mb(theirs["max_rss"]),
            ours["peak_ram_bytes"].as_f64().unwrap() / MB,
        );
    }
}
