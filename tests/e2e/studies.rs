//! `gpu-track study`: several ways of doing the same work, several times each.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::gpu::FakeGpus;
use crate::support::pty::Terminal;
use crate::support::signals::with_default_signals;
use crate::support::{kill, program, wait_until};

/// A place for studies, and how one is started in it.
struct Place(TempDir);

/// What a study came to.
struct Done {
    status: Option<i32>,
    signal: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn exists(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpu-track"));
        command.arg("study").args(arguments).current_dir(self.0.path()).stdin(Stdio::null());
        with_default_signals(&mut command);
        command
    }

    fn start(&self, arguments: &[&str]) -> Child {
        self.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    fn run(&self, arguments: &[&str]) -> Done {
        done(self.start(arguments))
    }

    /// Runs a study and asserts that it said nothing.
    fn quiet(&self, arguments: &[&str]) -> Value {
        let done = self.run(&[arguments, &["-q", "-f", "json"]].concat());
        assert_eq!((done.status, done.stderr.as_str()), (Some(0), ""));
        serde_json::from_str(&done.stdout).unwrap()
    }

    /// Asserts that a command line is refused in one line that begins so.
    fn refuse(&self, arguments: &[&str], line: &str) {
        let done = self.run(arguments);
        assert_eq!((done.status, done.stderr.lines().count()), (Some(2), 1), "{}", done.stderr);
        assert!(done.stderr.starts_with(&format!("gpu-track: {line}")), "{}", done.stderr);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn done(child: Child) -> Done {
    let output = child.wait_with_output().unwrap();
    Done {
        status: output.status.code(),
        signal: output.status.signal(),
        stdout: text(&output.stdout),
        stderr: text(&output.stderr),
    }
}

/// A quantity of a study, for each variant.
fn of<'a>(study: &'a Value, quantity: &str) -> &'a Vec<Value> {
    let rows = study["quantities"].as_array().unwrap();
    rows.iter().find(|row| row["quantity"] == quantity).unwrap()["variants"].as_array().unwrap()
}

/// A command that holds this much memory.
fn hold(mib: &str) -> String {
    format!("{} hold {mib}00000 0", program("touch"))
}

// Requirement: CMD-30, CMD-31
#[test]
fn study_tells_the_ratio_of_memory_and_goes_on_with_more_runs() {
    let place = Place::new();
    let touch = program("touch");
    fs::write(
        place.path("memory.toml"),
        format!(
            "runs = 3\nwarmup = 1\nprepare = \"sh -c 'echo {{bytes}} >>prepared; echo lost'\"\n\n\
             [parameters]\nbytes = [100000000, 50000000]\n\n\
             [[variant]]\nname = '{{bytes}}'\ncommand = \"sh -c 'echo of {{bytes}}; exec {touch} hold {{bytes}} 0'\"\n"
        ),
    )
    .unwrap();
    let study = place.quiet(&["memory.toml", "--seed", "7"]);
    let ram = of(&study, "ram");
    // The program itself is 2 to 3 MB.
    let ratio = ram[1]["ratio"].as_f64().unwrap();
    assert!((0.49..0.56).contains(&ratio), "{ram:?}");
    assert!(ram[0]["min"].as_f64().unwrap() >= 1e8 && ram[0]["known"] == 3, "{ram:?}");
    assert_eq!(ram[1]["compared"]["verdict"], "too_few");
    assert_eq!((&study["variants"][1]["name"], &study["seed"]), (&"50000000".into(), &7.into()));
    // One warm-up run and three counted ones of both, each of them prepared, in rounds.
    let prepared = place.text("prepared");
    let rounds: Vec<&str> = prepared.lines().collect();
    assert_eq!(rounds.len(), 8);
    assert!(rounds.chunks(2).all(|round| round[0] != round[1]), "{rounds:?}");
    let files = ["study.json", "50000000.3.json", "100000000.1.err", "warmup/50000000.1.json"];
    assert!(files.iter().all(|file| place.exists(&format!("memory/{file}"))));
    assert_eq!(place.text("memory/100000000.2.out"), "of 100000000\n");
    assert!(!place.exists("memory/100000000.2.prepare"));
    // It is over: nothing is run again, and more runs are added to those that there are.
    assert_eq!(place.quiet(&["memory.toml"]), study);
    assert_eq!(place.text("prepared"), prepared);
    let more = place.quiet(&["-o", "memory", "--runs", "4"]);
    assert_eq!(of(&more, "ram")[1]["compared"]["verdict"], "less");
    assert_eq!(place.text("prepared").lines().count(), 8 + 2 + 2);
    let shown = place.run(&["memory"]);
    assert!(
        shown.stdout.contains("\nneeds less memory than 100000000, sure: 50000000 0.5"),
        "{}",
        shown.stdout
    );
    assert!(shown.stdout.contains(" x (p = 0.029)\n"), "{}", shown.stdout);
    assert_eq!((shown.status, shown.stderr.as_str()), (Some(0), ""));
    let reports =
        Command::new(env!("CARGO_BIN_EXE_gpu-track")).arg("report").arg(place.path("memory")).output();
    let reports = reports.unwrap();
    let table = text(&reports.stdout);
    assert_eq!((table.matches(".json").count(), text(&reports.stderr).as_str()), (8, ""), "{table}");
    assert!(table.contains("\n8 runs: "), "no warm-up run counts:\n{table}");
    let full = place.run(&["memory", "--full"]).stdout;
    assert!(full.contains("\nRAM peak [MB]   mean "), "{full}");
}

// Requirement: CMD-30
#[test]
fn failed_runs_are_named_and_do_not_end_a_study() {
    let place = Place::new();
    let arguments = [
        "--variant",
        "good=true",
        "--variant",
        "bad=sh -c 'exit 3'",
        "--variant",
        "gone=/no/such/program",
        "--runs",
        "2",
        "-o",
        "s",
    ];
    let failed = place.run(&arguments);
    assert_eq!(failed.status, Some(1));
    for line in
        ["\nfailed: bad run 1: FAILED, exit 3 after ", "\nfailed: gone run 2: FAILED, exit 127 after "]
    {
        assert!(failed.stdout.contains(line), "{}", failed.stdout);
    }
    assert!(failed.stdout.contains("bad, gone no run counts"), "{}", failed.stdout);
    assert!(failed.stderr.contains(" bad run 2: FAILED, exit 3 after "), "{}", failed.stderr);
    assert!(place.text("s/gone.1.err").contains("cannot run '/no/such/program'"));
    let counted = place.quiet(&[&arguments[..], &["-i"]].concat());
    assert_eq!(
        (counted["variants"][1]["counted"].as_u64(), of(&counted, "wall")[1]["known"].as_u64()),
        (Some(2), Some(2))
    );
    assert_eq!(counted["variants"][1]["failed"][0]["file"], "bad.1.json");
}

// Requirement: CMD-30, CMD-33
#[test]
fn run_whose_preparation_fails_is_named_and_made_when_the_study_goes_on() {
    let place = Place::new();
    let script = "echo why >&2; test {n} = 1 || test -e fixed";
    let arguments =
        ["--variant", "v=true {n}", "-L", "n=1,2", "--runs", "1", "--shell", "--prepare", script, "-o", "s"];
    let unmade = place.run(&arguments);
    assert_eq!(unmade.status, Some(1));
    assert!(
        unmade.stderr.contains(
            "v-2 run 1: not run, because its preparation failed (exit status: 1): see s/v-2.1.prepare\n"
        ),
        "{}",
        unmade.stderr
    );
    assert_eq!(place.text("s/v-2.1.prepare"), "why\n");
    assert!(unmade.stdout.contains("\nnot over: 1 of 2 runs have no report\n"), "{}", unmade.stdout);
    fs::write(place.path("fixed"), "").unwrap();
    let study = place.quiet(&arguments);
    assert_eq!(study["variants"][1]["counted"], 1);
}

/// A script that says `ready`, writes a line for each SIGINT, and ends when there is a file `end`.
const UNTIL_END: &str = "trap 'echo int >>ints' INT; echo $$ >ready; \
                         while [ -e ready ] && [ ! -e end ]; do sleep 0.01; done; echo run >>finished";

/// The arguments of a study of two runs of it.
const OF_TWO_RUNS: [&str; 8] = ["--variant", "a/b=", "--runs", "2", "-o", "s", "--shell", "-q"];

fn of_two_runs() -> Vec<String> {
    let mut arguments = OF_TWO_RUNS.map(str::to_owned);
    arguments[1] += UNTIL_END;
    arguments.into()
}

// Requirement: CMD-33
#[test]
fn study_that_is_killed_goes_on_with_the_run_that_outlived_it() {
    let place = Place::new();
    let arguments = of_two_runs();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut killed = place.start(&arguments);
    wait_until("the first run", || place.exists("ready"));
    let second = place.run(&arguments);
    assert_eq!(second.stderr, "gpu-track: \"s\" has a study that goes on: wait for its end\n");
    killed.kill().unwrap();
    killed.wait().unwrap();
    let mut again =
        place.command(&["-o", "s"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    let mut lines = std::io::BufReader::new(again.stderr.take().unwrap());
    for _ in 0..2 {
        std::io::BufRead::read_line(&mut lines, &mut said).unwrap();
    }
    assert!(said.contains("2 runs of 1 variant in random order"), "{said}");
    assert!(said.contains("waiting for run 1 of a/b, which goes on because its study was killed"), "{said}");
    fs::write(place.path("end"), "").unwrap();
    let done = done(again);
    assert_eq!(done.status, Some(0));
    assert!(done.stdout.contains("\na/b       2 "), "{}", done.stdout);
    // The first run was not made again.
    assert_eq!(place.text("finished"), "run\nrun\n");
}

// Requirement: CMD-33
#[test]
fn signal_ends_the_command_and_then_the_study_which_goes_on_later() {
    let place = Place::new();
    let arguments = of_two_runs();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let study = place.start(&arguments);
    wait_until("the first run", || place.exists("ready"));
    kill(study.id(), libc::SIGINT);
    wait_until("its signal", || place.exists("ints"));
    fs::write(place.path("end"), "").unwrap();
    let stopped = done(study);
    assert_eq!((stopped.signal, stopped.stdout.as_str()), (Some(libc::SIGINT), ""));
    assert_eq!(
        stopped.stderr,
        "gpu-track: stopped by SIGINT after 0 of 2 runs; to go on: gpu-track study -o s\n"
    );
    // What the command did after the signal is not all of its work.
    assert!(!place.exists("s/a_b.1.json"));
    let study = place.quiet(&["-o", "s"]);
    assert_eq!(study["variants"][0]["counted"], 2);
    assert_eq!(place.text("ints"), "int\n");
}

// Requirement: CMD-33
#[test]
fn ctrl_c_reaches_the_command_once() {
    let place = Place::new();
    let arguments = of_two_runs();
    let mut terminal =
        Terminal::start(place.command(&arguments.iter().map(String::as_str).collect::<Vec<_>>()));
    wait_until("the first run", || place.exists("ready"));
    terminal.write("\x03");
    wait_until("its signal", || place.exists("ints"));
    fs::write(place.path("end"), "").unwrap();
    let (status, rest) = terminal.finish();
    assert_eq!(status.signal(), Some(libc::SIGINT), "{rest}");
    assert!(rest.contains("to go on: gpu-track study -o s"), "{rest}");
    assert_eq!(place.text("ints"), "int\n");
}

// Requirement: CMD-33, CMD-31
#[test]
fn what_is_no_plan_or_another_one_is_refused_in_a_line() {
    let place = Place::new();
    let same = ["--variant", "a=true", "--variant", "b=true x", "--runs", "1", "-o", "s"];
    place.quiet(&same);
    let other = ["--variant", "a=true", "--variant", "b=true y", "-o", "s"];
    place.refuse(
        &other,
        "--output: \"s\" has another study, its b is 'true x', not 'true y': name another directory",
    );
    place.refuse(
        &["-o", "s", "--warmup", "1"],
        "--output: \"s\" has a study, which goes on as it was planned: ",
    );
    place.refuse(
        &["s", "--runs", "2"],
        "\"s\" is a directory, and its table is shown: to go on with it, give -o \"s\"",
    );
    place.refuse(&["-o", "t"], "there is no variant: give --variant NAME='CMD', or a FILE.toml");
    place.refuse(&["--variant", "true"], "--variant: \"true\" has no name: write it as NAME='CMD'");
    place.refuse(&["--variant", "a='"], "the variant a: \"'\" has a quote that is not closed");
    place.refuse(&["--variant", "a=true", "-L", "n=1"], "the parameter n has no place: ");
    place.refuse(&["."], "\".\" has no study.json: it is not the directory of a study");
    place.refuse(&["--variant", "a=true", "-o", "."], "\".\" has files and no study.json: ");
    fs::write(place.path("p.toml"), "rusn = 3\n").unwrap();
    place.refuse(
        &["p.toml"],
        "\"p.toml\" is no plan of a study: unknown field `rusn`, expected one of `variant`, ",
    );
    place.refuse(&["p.csv"], "\"p.csv\" cannot be read: ");
    let rank = place.command(&same).env("PMI_RANK", "1").env("PMI_SIZE", "2").output().unwrap();
    assert!(rank.stderr.starts_with(b"gpu-track: this is rank 1 of several"), "{rank:?}");
    fs::write(place.path("s/study.json"), "{\"form_version\": 99}").unwrap();
    place.refuse(&["s"], "\"s/study.json\" can't be used: its form_version is 99, ");
}

// Requirement: CMD-32
#[test]
fn names_and_directories_with_any_characters_stay_in_their_places() {
    let place = Place::new();
    let name = "../50% a_b|c & \\#\x1b[2J\n";
    let variant = format!("{name}=true");
    let study = place.quiet(&["--variant", &variant, "--runs", "1", "-o", "100%j"]);
    assert_eq!(study["variants"][0]["name"], name);
    assert!(place.exists("100%j/_._50__a_b_c_______2J_.1.json"));
    let top: Vec<_> = fs::read_dir(place.0.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(top, [Path::new("100%j")]);
    for (form, shown) in [
        ("text", r"../50% a_b|c & \#\x1b[2J\n"),
        ("csv", r#""../50% a_b|c & \#\x1b[2J\n","#),
        ("markdown", r"| ../50% a\_b\|c \& \\\#\\x1b\[2J\\n |"),
        (
            "latex",
            r"{}../50\% a\_b\textbar{}c \& \textbackslash{}\#\textbackslash{}x1b[2J\textbackslash{}n &",
        ),
        ("json", r"../50% a_b|c & \\#\u001b[2J\n"),
    ] {
        let written = place.run(&["100%j", "-f", form]).stdout;
        assert!(written.contains(shown) && !written.contains('\x1b'), "{form}: {written}");
    }
}

// Requirement: CMD-32
#[test]
fn gpu_figures_are_compared_and_what_a_driver_does_not_tell_has_its_reason() {
    let gpus = FakeGpus::new(1, "0.energy !3\n");
    let place = Place::new();
    let gpu = program("gpu");
    let variant = |bytes: u32| format!("v{bytes}={gpu} hold:0:{bytes} {}", gpus.sampled());
    let (first, second) = (variant(700), variant(1400));
    let arguments = ["--variant", &first, "--variant", &second, "--runs", "1", "-q", "-f", "json"];
    let mut command = place.command(&arguments);
    command.env("GPU_TRACK_NVML_LIB", gpus.library_of_its_name()).env("FAKE_NVML_DIR", gpus.directory());
    for name in crate::support::gpu::VISIBILITY {
        command.env_remove(name);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let study: Value = serde_json::from_slice(&output.stdout).unwrap();
    let memory: Vec<_> = of(&study, "gpu_ram").iter().map(|variant| variant["mean"].as_f64()).collect();
    assert_eq!(memory, [Some(700.0), Some(1400.0)]);
    assert_eq!(of(&study, "gpu_ram")[1]["ratio"], 2.0);
    assert!(of(&study, "gpu_utilization")[0]["mean"].is_number());
    let energy = &of(&study, "gpu_energy")[0];
    let reason = "not known of any run (not supported by this device)";
    assert!(energy["mean"].is_null() && energy["reason"] == reason, "{energy}");
}

#[test]
fn time_and_progress_are_said_a_line_for_each_run() {
    let place = Place::new();
    let variant = format!("v={}", hold("3"));
    let done = place.run(&["--variant", &variant, "--runs", "2", "--warmup", "1", "--seed", "9"]);
    let lines: Vec<&str> = done.stderr.lines().collect();
    assert_eq!(lines.len(), 4, "{}", done.stderr);
    assert_eq!(
        lines[0],
        "gpu-track: 2 runs of 1 variant in random order (--seed 9); plan, reports and outputs are in study"
    );
    assert!(
        lines[1].starts_with("gpu-track: warm-up 1 of v: ") && lines[1].contains(" s, RAM "),
        "{}",
        lines[1]
    );
    assert!(lines[3].starts_with("gpu-track: 2/2 v run 2: "), "{}", lines[3]);
    assert!(done.stdout.starts_with("variant   runs   wall time [s]   "), "{}", done.stdout);
}
