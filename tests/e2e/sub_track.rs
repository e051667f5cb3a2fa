//! `gpu-track sub-track`: what code blocks used, beside gpu_tracker's own figures for the same files.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::gpu_tracker::theirs;
use crate::support::rows::Rows;
use crate::support::run::{BINARY, become_user};
use crate::support::{is_root, or_skip, skip};

const HEAD: &str = "process_id,code_block_name,position,timestamp\n";

fn run(program: &Path, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// Runs `gpu-track sub-track`.
fn sub_track(arguments: &[&str]) -> Output {
    run(Path::new(env!("CARGO_BIN_EXE_gpu-track")), &[&["sub-track"], arguments].concat())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// What a program that must succeed writes to stdout.
fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// A directory with our program under the name gpu-tracker.
fn with_gpu_tracker() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let link = directory.path().join("gpu-tracker");
    symlink(BINARY, &link).unwrap();
    (directory, link)
}

/// Where gpu_tracker's own test data is.
fn golden_data() -> Result<PathBuf, &'static str> {
    let data = std::env::var_os("GPU_TRACK_TEST_GPU_TRACKER_DATA");
    data.map(PathBuf::from).ok_or("gpu_tracker's test data is not there (scripts/test)")
}

/// A program that marks blocks as gpu_tracker's SubTracker does: nested ones, and one within itself.
const JOB: &str = "
import contextlib, csv, os, sys, time
marks = open(sys.argv[1], 'a', newline='')
rows = csv.writer(marks)
rows.writerow(['process_id', 'code_block_name', 'position', 'timestamp'])
@contextlib.contextmanager
def block(name):
    rows.writerow([os.getpid(), name, 0, time.time()])
    yield
    rows.writerow([os.getpid(), name, 1, time.time()])
    marks.flush()
def again(depth):
    with block('again'):
        time.sleep(0.1)
        if depth > 1: again(depth - 1)
with block('outer'):
    time.sleep(0.3)
    with block('inner, \"quoted\"'):
        held = bytearray(100_000_000)
        time.sleep(0.3)
again(3)
with block('short'): pass
";

// Requirement: CMD-41, CMD-42
#[test]
fn nested_and_recursive_blocks_of_a_run_have_their_own_time_and_samples() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let [csv, database, marks] = ["t.csv", "t.sqlite", "marks.csv"].map(path);
    let track = [
        "-q", "--st", "0.02", "--ru", "bytes", "--tf", &csv, "--tf", &database, "--", "python3", "-c", JOB,
        &marks,
    ];
    printed(&run(Path::new(BINARY), &track));
    let lines = fs::read_to_string(&marks).unwrap();
    // The times of a block's marks, in their order.
    let times = |name: &str| -> Vec<f64> {
        let of_block = lines.lines().filter(|line| line.contains(name));
        of_block.map(|line| line.rsplit(',').next().unwrap().parse().unwrap()).collect()
    };
    let rows = Rows::read(Path::new(&csv)).column("timestamp");
    let within =
        |start: f64, stop: f64| rows.iter().filter(|time| (start..=stop).contains(*time)).count() as u64;
    for file in [&csv, &database] {
        let shown = sub_track(&["analyze", "--tf", file, "--stf", &marks, "-f", "json"]);
        let analysis: Value = serde_json::from_str(&printed(&shown)).unwrap();
        assert_eq!(text(&shown.stderr), "");
        let blocks = analysis["code_block_results"].as_array().unwrap();
        let names: Vec<_> = blocks.iter().map(|block| block["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["again", "inner, \"quoted\"", "outer", "short"]);
        let [again, inner, outer, short] = &blocks[..] else { panic!("{analysis}") };
        let total = |block: &Value| block["compute_time"]["total"].as_f64().unwrap();
        let is_near =
            |found: f64, right: f64| assert!((found - right).abs() < 1e-6, "{found} {right}: {analysis}");
        for (block, name) in [(outer, "outer"), (inner, "inner")] {
            let [start, stop] = times(name)[..] else { panic!("{lines}") };
            assert_eq!(block["num_calls"], 1);
            is_near(total(block), stop - start);
            assert_eq!(block["num_timepoints"], within(start, stop), "{analysis}");
        }
        // Each call has its whole time, those within it included.
        let [a, b, c, d, e, f] = times("again")[..] else { panic!("{lines}") };
        assert_eq!((&again["num_calls"], &again["num_timepoints"]), (&3.into(), &within(a, f).into()));
        is_near(again["compute_time"]["max"].as_f64().unwrap(), f - a);
        is_near(again["compute_time"]["min"].as_f64().unwrap(), d - c);
        is_near(total(again), (f - a) + (e - b) + (d - c));
        let ram =
            |block: &Value, statistic: &str| block["resource_usage"]["main_ram"][statistic].as_f64().unwrap();
        assert!(ram(inner, "max") >= 100e6 && ram(inner, "max") <= ram(outer, "max"), "{analysis}");
        assert!(ram(outer, "min") < 60e6, "{analysis}");
        // No sample need be in a block that is over at once. If there is none, nothing is known.
        let samples = short["num_timepoints"].as_u64().unwrap();
        assert_eq!(samples == 0, short["resource_usage"]["main_ram"]["max"].is_null(), "{analysis}");
        assert_eq!(analysis["static_data"]["ram_unit"], "bytes");
    }
}

// Requirement: CMD-46
#[test]
fn calls_and_a_kept_analysis_are_shown() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let [samples, marks, kept] = ["t.csv", "marks.csv", "kept.json"].map(path);
    // A call within itself, one of another process, and one that does not end.
    let rows = "7,a,0,1.0\n7,a,0,2.0\n7,a,1,3.0\n7,a,1,4.5\n8,a,0,2.5\n8,a,1,2.75\n8,b,0,9.0\n";
    fs::write(&marks, format!("{HEAD}{rows}")).unwrap();
    let listed = printed(&sub_track(&["calls", "--stf", &marks, "-f", "json"]));
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed, serde_json::json!({"a": [[1.0, 4.5], [2.0, 3.0], [2.5, 2.75]], "b": []}));
    assert_eq!(
        printed(&sub_track(&["calls", "--stf", &marks])),
        "a:\n\t1.0 4.5\n\t2.0 3.0\n\t2.5 2.75\nb:\n\n"
    );

    fs::write(&samples, "ram_unit\nbytes\ntimestamp,main_ram\n1.5,10\n2.6,30\n").unwrap();
    let analyze = ["analyze", "--tf", &samples, "--stf", &marks];
    let shown = printed(&sub_track(&analyze));
    printed(&sub_track(&[&analyze[..], &["-o", &kept]].concat()));
    assert_eq!(printed(&sub_track(&["show", &kept])), shown);
    let refused = sub_track(&["show", &marks]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("is no analysis, as analyze -f json writes it"), "{refused:?}");
}

/// Numbers of a text, and the text without them.
fn numbers(text: &str) -> (Vec<f64>, String) {
    let mut found = Vec::new();
    let is_end = |c: char| c.is_whitespace() || c == ',';
    let rest = text.split_inclusive(is_end).map(|word| {
        let bare = word.trim_end_matches(is_end);
        match bare.parse() {
            Ok(number) if bare.contains('.') || bare.contains('e') => {
                found.push(number);
                word.replace(bare, "#")
            }
            _ => word.to_owned(),
        }
    });
    let rest = rest.collect();
    (found, rest)
}

/// Asserts that two texts differ by no more than the last digits of floating-point numbers: pandas reads some numbers of CSV
/// one place off, and rounds each step of a sum.
fn assert_same_but_for_rounding(theirs: &str, ours: &str) {
    let ((theirs, their_text), (ours, our_text)) = (numbers(theirs), numbers(ours));
    assert_eq!(their_text, our_text);
    assert!(!theirs.is_empty());
    for (a, b) in theirs.into_iter().zip(ours) {
        assert!((a - b).abs() <= 1e-12 * a.abs().max(1.0), "{a} {b}");
    }
}

/// Writes a tracking file of gpu_tracker's form, with figures that `seed` makes, and two sub-tracking files.
fn write_files(directory: &Path, seed: u64) -> [PathBuf; 3] {
    let mut state = seed;
    let mut next = |most: u64| {
        // Knuth's linear congruential generator.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % most
    };
    let sets = ["main", "descendants", "combined"];
    let cpu = ["system", "main", "descendants", "combined"];
    let columns = sets.map(|set| format!("{set}_ram")).into_iter().chain(["system_ram".into()]);
    let columns =
        columns.chain(["main", "descendants", "combined", "system"].map(|set| format!("{set}_gpu_ram")));
    let columns = columns.chain(["sum", "hardware"].map(|kind| format!("gpu_{kind}_utilization_percent")));
    let columns = columns.chain(sets.map(|set| format!("{set}_n_threads")));
    let cpu = cpu
        .into_iter()
        .flat_map(|set| ["sum", "hardware"].map(|kind| format!("cpu_{set}_{kind}_utilization_percent")));
    let columns: Vec<String> = columns.chain(cpu).collect();
    let mut text = format!(
        "ram_unit,gpu_ram_unit,time_unit,ram_system_capacity,gpu_ram_system_capacity,system_core_count,n_expected_cores,\
         system_gpu_count,n_expected_gpus\r\ngigabytes,megabytes,hours,67.254165504,16.376,12,4,1,1\r\n{},timestamp\r\n",
        columns.join(",")
    );
    for row in 0..400 {
        for column in &columns {
            let (whole, part) = (next(40), next(1_000_000));
            text += &if column.ends_with("threads") {
                format!("{whole},")
            } else {
                format!("{whole}.{part:06},")
            };
        }
        text += &format!("{}.{:06}\r\n", 1_746_129_778 + row / 2, row % 2 * 500_000 + 1234);
    }
    let path = |name: &str| directory.join(format!("{seed}-{name}"));
    fs::write(path("t.csv"), text).unwrap();
    for process_id in [11, 12] {
        let mut text = HEAD.to_owned();
        let mut time_ms = 1_746_129_778_000 + next(1000);
        for call in 0..60 {
            let end_ms = time_ms + 200 + next(3000);
            for (position, at_ms) in [(0, time_ms), (1, end_ms)] {
                text += &format!(
                    "{process_id},t.py:{},{position},{}.{:03}\n",
                    9 + call % 3,
                    at_ms / 1000,
                    at_ms % 1000
                );
            }
            time_ms = end_ms + 1 + next(1000);
        }
        // Killed in a call.
        text += &format!("{process_id},t.py:9,0,{}.5\n", time_ms / 1000);
        fs::write(path(&format!("{process_id}.csv")), text).unwrap();
    }
    ["t.csv", "11.csv", "12.csv"].map(path)
}

// Requirement: CMD-40, CMD-41, CMD-43
#[test]
fn files_forms_and_figures_are_those_of_gpu_trackers_own_program() {
    let program = or_skip!(theirs());
    let (directory, link) = with_gpu_tracker();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let both = [(&program, "theirs"), (&link, "ours")];
    for seed in [1, 2] {
        let [tracking, first, second] =
            write_files(directory.path(), seed).map(|file| file.to_str().unwrap().to_owned());
        let files = both.map(|(program, whose)| {
            let joined = path(&format!("{seed}-{whose}.csv"));
            let stf = format!("--stf={joined}");
            printed(&run(program, &["sub-track", "combine", &stf, "-p", &first, "-p", &second]));
            fs::read_to_string(&joined).unwrap()
        });
        assert_eq!(files[0], files[1]);
        let files = [format!("--tf={tracking}"), format!("--stf={}", path(&format!("{seed}-ours.csv")))];
        let analyze = |program: &Path, options: &[&str]| {
            run(program, &[&["sub-track", "analyze", &files[0], &files[1]], options].concat())
        };
        let [theirs, ours] = both.map(|(program, _)| printed(&analyze(program, &[])));
        assert_eq!(theirs, ours);
        let [theirs, ours] = both.map(|(program, _)| printed(&analyze(program, &["--format=json"])));
        assert_same_but_for_rounding(&theirs, &ours);
        let (pickle, json) = (path(&format!("{seed}.pkl")), path(&format!("{seed}.json")));
        printed(&analyze(&program, &["-f", "pickle", "-o", &pickle]));
        printed(&analyze(&link, &["-f", "json", "-o", &json]));
        assert_eq!(fs::read_to_string(&json).unwrap() + "\n", ours);
    }
    for statistic in ["min", "max", "mean", "std"] {
        let [theirs, ours] = [(&program, "pkl"), (&link, "json")].map(|(program, extension)| {
            let maps = [("b", 1), ("a", 2)]
                .map(|(name, seed)| format!("{name}={}", path(&format!("{seed}.{extension}"))));
            let stat = format!("--stat={statistic}");
            printed(&run(program, &["sub-track", "compare", "-m", &maps[0], "-m", &maps[1], &stat]))
        });
        assert_eq!(theirs, ours, "{statistic}");
    }
}

// Requirement: CMD-40, CMD-41, CMD-43
#[test]
fn figures_of_gpu_trackers_own_test_data_are_right() {
    let program = or_skip!(theirs());
    let data = or_skip!(golden_data());
    let (directory, link) = with_gpu_tracker();
    let file = |name: &str| data.join(name).to_str().unwrap().to_owned();
    let read = |name: &str| fs::read_to_string(file(name)).unwrap();
    for form in ["csv", "sqlite"] {
        let joined = directory.path().join(format!("joined.{form}")).to_str().unwrap().to_owned();
        let parts = ["1723811", "1723814", "1723815", "main"];
        let parts = parts.map(|part| file(&format!("files-to-combine/{part}.sub-tracking.{form}")));
        let parts = parts.iter().flat_map(|part| ["-p", part.as_str()]).collect::<Vec<_>>();
        let stf = format!("--stf={joined}");
        printed(&run(&link, &[&["sub-track", "combine", &stf], &parts[..]].concat()));
        let tf = format!("--tf={}", file(&format!("tracking.{form}")));
        assert_eq!(printed(&run(&link, &["sub-track", "analyze", &tf, &stf])), read("results.txt") + "\n");
        let json = printed(&run(&link, &["sub-track", "analyze", &tf, &stf, "-f", "json"]));
        let [right, ours] = [&read("results.json"), &json].map(|json| {
            let value: Value = serde_json::from_str(json).unwrap();
            serde_json::to_string_pretty(&value).unwrap()
        });
        assert_same_but_for_rounding(&right, &ours);
    }
    let python = program.with_file_name("python");
    let to_json = "import json, pickle, sys
for name in 'ABCDE':
    with open(f'{sys.argv[1]}/results-{name}.pkl', 'rb') as file:
        json.dump(pickle.load(file).to_json(), open(f'{sys.argv[2]}/{name}.json', 'w'))";
    let here = directory.path().to_str().unwrap();
    printed(&run(&python, &["-c", to_json, data.to_str().unwrap(), here]));
    let compare = |other: &str, statistic: &str| {
        let maps = ["A", other].map(|name| format!("{name}={here}/{name}.json"));
        run(&link, &["sub-track", "compare", "-m", &maps[0], "-m", &maps[1], "--stat", statistic])
    };
    for statistic in ["min", "max", "mean", "std"] {
        let compared = compare("B", statistic);
        assert_eq!(printed(&compared), read(&format!("comparison_{statistic}.txt")) + "\n");
        let warned = text(&compared.stderr);
        assert_eq!(warned.matches("WARNING:root:Code block name \"tmp.py:").count(), 2, "{warned}");
    }
    for (other, problem) in [
        ("C", "The first has 4 code blocks but tracking session \"C\" has 5 code blocks.\n"),
        ("D", "does not match code block name \"tmp.py:abc\" of tracking session \"D\"\n"),
        ("E", "does not match code block name \"temp.py:123\" of tracking session \"E\"\n"),
    ] {
        let refused = compare(other, "mean");
        assert!(refused.status.code() == Some(1) && text(&refused.stderr).ends_with(problem), "{refused:?}");
    }
}

/// What is in the working directory, which may be another user's, is not the module.
// Requirement: TIME-67
#[test]
fn pickles_under_gpu_trackers_name_are_pythons_where_the_module_is_installed() {
    let (directory, link) = with_gpu_tracker();
    let [tracking, marks, _] = write_files(directory.path(), 3).map(|file| file.to_str().unwrap().to_owned());
    fs::write(directory.path().join("gpu_track.py"), "raise SystemExit('taken from the working directory')")
        .unwrap();
    let pickle = directory.path().join("a.pkl").to_str().unwrap().to_owned();
    let (tf, stf, map) = (format!("--tf={tracking}"), format!("--stf={marks}"), format!("A={pickle}"));
    let analyze = ["sub-track", "analyze", &tf, &stf, "-f", "pickle", "-o", &pickle];
    let compare = ["sub-track", "compare", "-m", &map, "-f", "json"];
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("../include/python").canonicalize().unwrap();
    // root takes no module from the environment.
    let user = become_user(65534);
    let before: &[String] = if is_root() { &user } else { &[] };
    fs::set_permissions(&directory, PermissionsExt::from_mode(0o777)).unwrap();
    let run = |arguments: &[&str], path: &Path| {
        let words = before.iter().map(String::as_str).chain([link.to_str().unwrap()]);
        let words: Vec<&str> = words.chain(arguments.iter().copied()).collect();
        let mut command = Command::new(words[0]);
        command
            .args(&words[1..])
            .current_dir(&directory)
            .env("PYTHONPATH", path)
            .env("GPU_TRACK_RUN", BINARY);
        command.stdin(Stdio::null()).output().unwrap()
    };
    if !run(&["--help"], &module).status.success() {
        skip!("the directory of the built programs is closed to other users");
    }
    printed(&run(&analyze, &module));
    assert_eq!(fs::read(&pickle).unwrap()[0], 0x80);
    let compared: Value = serde_json::from_str(&printed(&run(&compare, &module))).unwrap();
    assert!(compared.get("overall_resource_usage").is_some(), "{compared}");
    // gpu_tracker takes options anywhere.
    let first = ["-f", "json", "sub-track", "-m", &map, "compare"];
    assert_eq!(serde_json::from_str::<Value>(&printed(&run(&first, &module))).unwrap(), compared);
    let named = ["-o", "-h", "sub-track", "analyze", &tf, "-f", "pickle", &stf];
    printed(&run(&named, &module));
    assert_eq!(fs::read(directory.path().join("-h")).unwrap()[0], 0x80);
    // Without the module, the refusal says what to do.
    let refused = run(&compare, Path::new("/no/such"));
    assert!(
        refused.status.code() == Some(1) && text(&refused.stderr).contains("only Python reads"),
        "{refused:?}"
    );
}

// Requirement: CMD-40, CMD-43, CMD-44, TIME-67
#[test]
fn what_can_not_be_used_is_refused_in_one_line_under_both_names() {
    let (directory, link) = with_gpu_tracker();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let [tracking, first, _] = write_files(directory.path(), 3).map(|file| file.to_str().unwrap().to_owned());
    let [old, pickle, config] = ["old.csv", "a.pkl", "c.json"].map(path);
    fs::write(&old, "old").unwrap();
    fs::write(&pickle, b"\x80\x04.").unwrap();
    fs::write(&config, format!("{{\"file_path_map\": {{\"A\": {pickle:?}}}, \"statistic\": \"median\"}}"))
        .unwrap();
    let (tf, stf, map) = (format!("--tf={tracking}"), format!("--stf={first}"), format!("A={pickle}"));
    let (wrong_tf, old_stf) = (format!("--tf={first}"), format!("--stf={old}"));
    let config = format!("--cconfig={config}");
    for (arguments, problem) in [
        (&["analyze", &tf, "--stf=/no/such.csv"][..], "\"/no/such.csv\" cannot be read: "),
        (
            &["analyze", &tf, "--stf=marks.txt"],
            "\"marks.txt\" has a name that ends in neither .csv nor .sqlite",
        ),
        (&["analyze", &wrong_tf, &stf], "csv\" is no tracking file: it has no column \"timestamp\""),
        (&["analyze", &tf, &stf, "-f", "pickle"], "so only Python can write it: use -f json"),
        (&["analyze", &tf, &stf, "-o", "/no/such/file"], "cannot be written: No such file"),
        (&["combine", &old_stf, "-p", &first], "old.csv\" exists: name a file that does not"),
        (
            &["compare", "-m", &map],
            "a.pkl\" is a pickle, which only Python reads: write the analysis with analyze -f json",
        ),
        (&["compare"], "A mapping of tracking session name to file path must be provided"),
        (
            &["compare", &config],
            "has a wrong statistic: \"median\" is not allowed: one of min, max, mean, std",
        ),
        (&["compare", "-m", "A"], "\"A\" has no name: write it as NAME=FILE"),
    ] {
        let line = [&["sub-track"], arguments].concat();
        for (output, status, begin) in
            [(sub_track(arguments), 2, "gpu-track: "), (run(&link, &line), 1, "ERROR:root:")]
        {
            let stderr = text(&output.stderr);
            assert_eq!(
                (output.status.code(), stderr.lines().count()),
                (Some(status), 1),
                "{arguments:?}: {stderr}"
            );
            assert!(stderr.starts_with(begin) && stderr.contains(problem), "{arguments:?}: {stderr}");
            assert_eq!(text(&output.stdout), "");
        }
    }
    assert_eq!(fs::read_to_string(&old).unwrap(), "old");
}

// Requirement: CMD-44
#[test]
fn files_are_read_once_from_their_start_to_their_end() {
    let directory = tempfile::tempdir().unwrap();
    let [tracking, first, _] = write_files(directory.path(), 5);
    let words = |tracking: &Path| {
        let tracking = tracking.to_str().unwrap().to_owned();
        [
            "sub-track".into(),
            "analyze".into(),
            "--tf".into(),
            tracking,
            "--stf".into(),
            first.to_str().unwrap().into(),
        ]
    };
    let program = Path::new(env!("CARGO_BIN_EXE_gpu-track"));
    let of_file = printed(&run(program, &words(&tracking).each_ref().map(String::as_str)));
    let pipe = directory.path().join("pipe.csv");
    symlink("/dev/stdin", &pipe).unwrap();
    // Several times what a pipe holds.
    let content = fs::read(&tracking).unwrap();
    assert!(content.len() > 1 << 16);
    let mut child = Command::new(program)
        .args(words(&pipe))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let written = std::thread::spawn(move || stdin.write_all(&content));
    assert_eq!(printed(&child.wait_with_output().unwrap()), of_file);
    written.join().unwrap().unwrap();
}

// Requirement: CMD-40, CMD-44
#[test]
fn torn_line_is_left_out_and_a_line_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let [parts, joined] = ["parts", "joined.csv"].map(path);
    fs::create_dir(&parts).unwrap();
    fs::write(path("parts/2.csv"), format!("{HEAD}2,b,0,1746129790.5\n2,b,1,1746129791.5")).unwrap();
    fs::write(path("parts/1.csv"), format!("{HEAD}1,b,0,1746129780.5\n1,b,1,1746129790.25\n")).unwrap();
    let combined = sub_track(&["combine", "--stf", &joined, "-p", &parts]);
    assert_eq!(printed(&combined), "");
    let said = text(&combined.stderr);
    assert!(said.ends_with("2.csv\" ends within a line: that line is left out\n"), "{said}");
    assert_eq!(
        fs::read_to_string(&joined).unwrap(),
        format!("{HEAD}1,b,0,1746129780.5\n1,b,1,1746129790.25\n2,b,0,1746129790.5\n")
    );
    let [tracking, ..] = write_files(directory.path(), 4);
    let torn = fs::read_to_string(&tracking).unwrap();
    fs::write(&tracking, &torn[..torn.len() - 8]).unwrap();
    let shown = sub_track(&["analyze", "--tf", tracking.to_str().unwrap(), "--stf", &joined]);
    let blocks = printed(&shown);
    // Half a second apart: from 780.501234 to 790.001234.
    assert!(blocks.contains("\tNum Timepoints:      20\n\tNum Calls:           1\n"), "{blocks}");
    assert!(text(&shown.stderr).contains("t.csv\" ends within a line"), "{}", text(&shown.stderr));
}
