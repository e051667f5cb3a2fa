//! `gpu-track`, the companion command.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::support::gpu::{FakeGpus, GPU0};
use crate::support::{kill, program, wait_until};

fn companion() -> Command {
    Command::new(env!("CARGO_BIN_EXE_gpu-track"))
}

fn run(arguments: &[&str]) -> Output {
    companion().args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

// Requirement: CMD-18
#[test]
fn run_is_gpu_track_run_and_report_shows_what_it_wrote() {
    let directory = tempfile::tempdir().unwrap();
    let [json, full] =
        ["r.json", "r.txt"].map(|name| directory.path().join(name).to_str().unwrap().to_owned());
    let done = run(&["run", "-o", &json, "-o", &full, "--", "sh", "-c", "echo out; exit 3"]);
    assert_eq!(
        (done.status.code(), text(&done.stdout), text(&done.stderr)),
        (Some(3), "out\n".into(), String::new())
    );
    let shown = run(&["report", "--full", &json]);
    assert_eq!(text(&shown.stdout), fs::read_to_string(&full).unwrap(), "{}", text(&shown.stderr));
    let again = directory.path().join("again.json").to_str().unwrap().to_owned();
    let written = run(&["report", &json, "-o", &again]);
    assert_eq!((written.status.code(), text(&written.stdout)), (Some(0), String::new()));
    assert_eq!(fs::read_to_string(&again).unwrap(), fs::read_to_string(&json).unwrap());
    for (arguments, status, line) in [
        (&["report", "/nowhere"][..], 2, "gpu-track: \"/nowhere\" cannot be read: "),
        (&["report", &full], 1, "gpu-track: cannot show "),
        (&["reprot"], 2, "gpu-track: \"reprot\" is no subcommand"),
    ] {
        let refused = run(arguments);
        let stderr = text(&refused.stderr);
        assert_eq!((refused.status.code(), stderr.lines().count()), (Some(status), 1), "{stderr}");
        assert!(stderr.starts_with(line), "{stderr}");
    }
}

/// The rows of CSV, by the names of the columns.
fn csv(text: &str) -> Vec<HashMap<&str, &str>> {
    let mut lines = text.lines().map(|line| line.split(','));
    let names: Vec<&str> = lines.next().unwrap().collect();
    lines.map(|cells| names.iter().copied().zip(cells).collect()).collect()
}

// Requirement: TIME-14, TIME-15
#[test]
fn finished_run_is_shown_over_time_and_by_its_events_from_each_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let names = ["t.jsonl", "t.sqlite", "t.csv", "r.json"].map(path);
    let [lines, tables, rows, report] = names.each_ref();
    let trace = &path("t.pftrace");
    let hold = format!("{0} hold {1} 0; {0} hold {1} 0; exit 3", program("touch"), 80 << 20);
    let files = ["--tf", lines, "--tf", tables, "--tf", rows, "--tf", trace, "-o", report];
    let command = ["--st", "0.01", "--", "sh", "-c", &hold];
    let done = run(&[&["run", "-q"], &files[..], &command].concat());
    assert_eq!((done.status.code(), text(&done.stderr)), (Some(3), String::new()));
    let told: Value = serde_json::from_str(&fs::read_to_string(report).unwrap()).unwrap();
    let largest = told["max_ram_bytes"]["combined"]["total_rss"].as_f64().unwrap();
    for file in &names {
        let shown = text(&run(&["report", file, "--every", "0.05", "-f", "csv"]).stdout);
        let points = csv(&shown);
        let number = |point: &HashMap<&str, &str>, name: &str| point[name].parse::<f64>().unwrap();
        let ram = points.iter().map(|point| number(point, "ram_combined_bytes")).fold(0.0, f64::max);
        assert!((ram - largest).abs() <= 3e6, "{file}: {ram} {largest}");
        let last = points.last().unwrap();
        assert!(number(last, "end_s") > 0.0 && !last.contains_key("gpus_memory_run_bytes"), "{shown}");
        for pair in points.windows(2) {
            assert_eq!(pair[0]["end_s"], pair[1]["start_s"], "{file}: {shown}");
        }
    }
    for file in [lines, tables] {
        let json = text(&run(&["report", file, "--list-events", "--type", "exit", "-f", "json"]).stdout);
        let exits: Vec<Value> = serde_json::from_str(&json).unwrap();
        let codes: Vec<_> = exits.iter().map(|exit| exit["exit"]["code"].as_i64().unwrap()).collect();
        assert_eq!(codes, [0, 0, 3], "{json}");
        assert!(exits[0]["ram_bytes"].as_u64() >= Some(80 << 20), "{json}");
        let last = text(&run(&["report", file, "--list-events", "--last", "1"]).stdout);
        assert!(last.contains(" exit ") && last.contains(" sh ") && last.contains("status 3"), "{last}");
    }
    // A file without a report shows what it has. One with a report can be asked for the same.
    let shown = run(&["report", tables]);
    assert!(text(&shown.stdout).contains("\nram_combined_bytes "), "{}", text(&shown.stdout));
    let said = text(&shown.stderr);
    assert!(said.ends_with("t.sqlite has no report: these are its points\n"), "{said}");
    let shown = run(&["report", lines, "-f", "csv"]);
    assert!(csv(&text(&shown.stdout))[0].contains_key("ram_combined_bytes"));
    assert_eq!(text(&shown.stderr), "");
    let shown = run(&["report", lines]);
    assert!(text(&shown.stdout).contains("FAILED, exit 3"), "{}", text(&shown.stdout));
    let said = text(&run(&["report", report, "--every", "0.05"]).stderr);
    assert!(said.contains("the points are those of the report"), "{said}");
    for (arguments, line) in [
        (&[rows, "--list-events"][..], "has no events: files in .jsonl and .sqlite have"),
        (&[rows, "--last", "3"], "give --list-events, too"),
        (
            &[trace],
            "is a trace: open it at ui.perfetto.dev. Files in .csv, .jsonl and .sqlite can be shown here",
        ),
    ] {
        let refused = run(&[&["report"], arguments].concat());
        assert_eq!(refused.status.code(), Some(2));
        assert!(text(&refused.stderr).trim_end().ends_with(line), "{}", text(&refused.stderr));
    }
}

// Requirement: CMD-19
#[test]
fn directory_of_reports_is_a_table_of_what_runs_were_given_and_used() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let shown = run(&["report", &path("")]);
    assert!(shown.status.code() == Some(2) && text(&shown.stderr).contains("has no report"));
    for (name, script) in [("b.json", "exit 0"), ("a.json", "exit 4")] {
        run(&["run", "-q", "-o", &path(name), "--", "sh", "-c", script]);
    }
    fs::write(path("no-report.json"), "{}").unwrap();
    let shown = run(&["report", &path("")]);
    let (table, said) = (text(&shown.stdout), text(&shown.stderr));
    assert!(said.contains("1 of the .json files can't be read as reports, such as no-report.json"), "{said}");
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].contains("cores / ") && lines[0].contains("RAM / "), "{table}");
    assert!(lines[1].starts_with("b.json ") && lines[1].contains(" OK "), "{table}");
    assert!(lines[2].starts_with("a.json ") && lines[2].contains("FAILED, exit 4"), "{table}");
    assert!(lines[3].starts_with("2 runs, 1 not OK: "), "{table}");
    // Directories below it, except those of a run's nodes and of bundles.
    for name in ["below/c.json", "b.json.d/n1.json", ".hidden/d.json"] {
        fs::create_dir(Path::new(&path(name)).parent().unwrap()).unwrap();
        fs::copy(path("b.json"), path(name)).unwrap();
    }
    let first_cells = |options: &[&str]| -> Vec<String> {
        let shown = run(&[&["report", &path("")], options].concat());
        let cell = |line: &str| line.split_whitespace().next().unwrap_or_default().to_owned();
        text(&shown.stdout).lines().skip(1).map(cell).collect()
    };
    assert_eq!(first_cells(&["--sort", "name", "--since", "1d"]), ["a.json", "b.json", "below/c.json", "3"]);
    assert!(first_cells(&["--since", "2100-01-01"]).is_empty());
    for (file, option) in
        [("b.json", ["--sort", "ram"]), ("", ["--since", "yesterday"]), ("", ["--last", "3"])]
    {
        assert_eq!(
            run(&[&["report", &path(file)][..], &option].concat()).status.code(),
            Some(2),
            "{option:?}"
        );
    }
    for option in [&["--every", "1"][..], &["--list-events"], &["--metrics", "m.csv"]] {
        let refused = run(&[&["report", &path("")], option].concat());
        let line =
            "is a directory of reports: --tasks, --every, --list-events and --metrics are for one run\n";
        assert_eq!(
            (refused.status.code(), text(&refused.stderr)),
            (Some(2), format!("gpu-track: \"{}\" {line}", path("")))
        );
    }
    let (all, one) = (path(""), path("b.json"));
    for table in [&[&all[..]][..], &[&one, "--every", "1"]] {
        for option in
            [&["--full"][..], &["--hints"], &["--ru", "bytes"], &["--gru", "bytes"], &["--tu", "days"]]
        {
            let refused = run(&[&["report"], table, option].concat());
            let line = "it says how one report is written, and a table is asked for\n";
            assert_eq!(
                (refused.status.code(), text(&refused.stderr)),
                (Some(2), format!("gpu-track: {}: {line}", option[0]))
            );
        }
    }
    let refused = run(&["report", &path("b.json"), "--heaviest", "3"]);
    let line = "gpu-track: --heaviest: a run chooses the processes in its report: give it to gpu-track-run\n";
    assert_eq!((refused.status.code(), text(&refused.stderr)), (Some(2), line.into()));
    let json = text(&run(&["report", &path(""), "-f", "json"]).stdout);
    let rows: Value = serde_json::from_str(&json).unwrap();
    let report: Value = serde_json::from_str(&fs::read_to_string(path("b.json")).unwrap()).unwrap();
    assert_eq!(
        rows[0]["ram_bytes"]["used"],
        report["max_ram_bytes"]["combined"]["total_rss"].as_f64().unwrap()
    );
    assert_eq!(rows[0]["ram_bytes"]["given"], report["usable"]["memory"]["bytes"].as_f64().unwrap());
}

// Requirement: CMD-18
#[test]
fn compare_tells_which_way_needs_more_memory() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    for (name, mib) in [("a1.json", 100_u64), ("a2.json", 100), ("b1.json", 60), ("b2.json", 60)] {
        let bytes = (mib << 20).to_string();
        let done = run(&["run", "-q", "-o", &path(name), "--", &program("touch"), "hold", &bytes, "0"]);
        assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    }
    let files = ["small=b1.json", "small=b2.json", "large=a1.json", "large=a2.json"];
    let files = files.map(|given| given.replace('=', &format!("={}/", directory.path().display())));
    let compare = |options: &[&str]| {
        let arguments =
            ["compare"].into_iter().chain(files.iter().map(String::as_str)).chain(options.iter().copied());
        run(&arguments.collect::<Vec<_>>())
    };
    let done = compare(&["-f", "json"]);
    let comparison: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!((done.status.code(), text(&done.stderr)), (Some(0), String::new()));
    let ram =
        comparison["metrics"].as_array().unwrap().iter().find(|metric| metric["metric"] == "ram").unwrap();
    // The program itself is 2 to 3 MiB.
    let ratio = ram["ratios"][1].as_f64().unwrap();
    assert!((1.55..1.7).contains(&ratio), "{comparison}");
    assert_eq!(
        (comparison["ways"][0]["name"].as_str(), ram["ways"][1]["known"].as_u64()),
        (Some("small"), Some(2))
    );
    let shown = compare(&["--fail-above", "ram=5%"]);
    assert_eq!(shown.status.code(), Some(3));
    assert!(text(&shown.stdout).contains("RAM peak"), "{}", text(&shown.stdout));
    let stderr = text(&shown.stderr);
    assert!(stderr.starts_with("gpu-track: ram of large is ") && stderr.lines().count() == 1, "{stderr}");
    assert_eq!(compare(&["--fail-above", "ram=100%"]).status.code(), Some(0));
    // Two reports of one command line are compared, too. One way alone is nothing to compare.
    let [first, second] = ["b1.json", "a1.json"].map(path);
    let unnamed = run(&["compare", "--fail-above", "ram=5%", &first, &second]);
    assert!(text(&unnamed.stderr).contains("ram of "), "{}", text(&unnamed.stderr));
    assert_eq!(unnamed.status.code(), Some(3));
    let one_way = ["b1.json", "a1.json"].map(|name| format!("all={}", path(name)));
    let alone = run(&["compare", "--fail-above", "ram=5%", &one_way[0], &one_way[1]]);
    assert!(text(&alone.stderr).contains("all reports have one NAME"), "{}", text(&alone.stderr));
    assert_eq!(alone.status.code(), Some(2));
    for (options, line) in [
        (&["--fail-above", "rma=5%"][..], "gpu-track: --fail-above: \"rma\" is not compared: one of wall, "),
        (&["/nowhere"], "gpu-track: \"/nowhere\" cannot be read: "),
    ] {
        let refused = compare(options);
        let stderr = text(&refused.stderr);
        assert_eq!((refused.status.code(), stderr.lines().count()), (Some(2), 1), "{stderr}");
        assert!(stderr.starts_with(line), "{stderr}");
    }
}

// Requirement: GPU-37
#[test]
fn gpus_shows_figures_and_processes_as_they_are_now() {
    let gpus = FakeGpus::new(2, "1.power !3\n");
    let library = gpus.library_path().to_str().unwrap().to_owned();
    let command = |options: &[&str]| {
        let mut command = companion();
        command.args(["gpus", "--nvml-lib", &library]).args(options);
        command.env("FAKE_NVML_DIR", gpus.directory()).stdin(Stdio::null());
        command
    };
    let end = gpus.path("end");
    let job = gpus.tracked(gpus.words(&["hold:0:700", &format!("wait:{end}")])).start();
    let mut listing = Value::Null;
    wait_until("its process is listed", || {
        let listed = command(&["-f", "json"]).output().unwrap();
        assert_eq!((listed.status.code(), text(&listed.stderr)), (Some(0), String::new()));
        listing = serde_json::from_slice(&listed.stdout).unwrap();
        listing["gpus"][0]["now"]["processes"] != serde_json::json!([])
    });
    assert_eq!((listing["count"].as_u64(), listing["gpus"][0]["id"].as_str()), (Some(2), Some(GPU0)));
    let now = &listing["gpus"][0]["now"];
    let figures =
        ["memory_used_bytes", "memory_free_bytes", "temperature_c", "power_w", "pstate", "sm_clock_mhz"];
    let figures = figures.map(|figure| now[figure].as_f64());
    assert_eq!(figures, [1e9, 84_899_345_920.0, 41.0, 100.0, 0.0, 1410.0].map(Some));
    let process = &now["processes"][0];
    assert_eq!((process["memory_bytes"].as_u64(), process["command"].as_str()), (Some(700), Some("gpu")));
    let owner = Command::new("id").arg("-un").output().unwrap();
    assert_eq!(process["user"].as_str(), Some(text(&owner.stdout).trim()));
    // A figure that the driver does not report is null, and its reason is there.
    let other = &listing["gpus"][1];
    assert!(
        other["now"]["power_w"].is_null() && other["now"]["processes"] == serde_json::json!([]),
        "{other}"
    );
    let reasons = other["figures"].as_array().unwrap().iter();
    assert!(
        reasons.clone().any(|figure| figure["figure"] == "power" && figure["reason"].is_string()),
        "{other}"
    );

    let shown = text(&command(&[]).output().unwrap().stdout);
    assert!(
        shown.contains("Fake A100  1.00 GB") && shown.contains(" 100 W ") && shown.contains(" n/a "),
        "{shown}"
    );

    let mut watched = command(&["--every", "0.05", "-f", "json"]).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(watched.stdout.take().unwrap()).lines().take(3);
    assert!(lines.map(Result::unwrap).all(|line| line.starts_with("{\"count\":2,")));
    // Its reader has gone: it ends by itself.
    assert_eq!(watched.wait().unwrap().code(), Some(0));
    let mut watched = command(&["--every", "1000"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(watched.stdout.take().unwrap()).read_line(&mut first).unwrap();
    let children = format!("/proc/{0}/task/{0}/children", watched.id());
    let lister = Path::new("/proc").join(fs::read_to_string(children).unwrap().trim());
    assert!(lister.join("stat").exists(), "{lister:?}");
    kill(watched.id(), libc::SIGTERM);
    watched.wait().unwrap();
    wait_until("the end of the process that asks the drivers", || !lister.exists());
    assert!(first.starts_with("GPU  name "), "{first}");
    fs::write(&end, "").unwrap();
    job.wait().assert_clean(0);
}

#[test]
fn help_man_page_and_completions_name_each_subcommand() {
    for option in ["--help", "--man", "--completions=bash", "--completions=zsh", "--completions=fish"] {
        let printed = run(&[option]);
        let page = text(&printed.stdout).replace('\\', "");
        for name in ["run", "report", "compare", "study", "merge", "gpus", "recover"] {
            assert!(printed.status.success() && page.contains(name), "{option}: {name}: {page}");
        }
    }
}

// Requirement: CMD-45
#[test]
fn text_that_finds_no_room_is_a_failure_and_a_reader_that_went_away_is_none() {
    let to = |stdout: Stdio| companion().arg("--help").stdout(stdout).output().unwrap();
    let full = to(fs::File::options().write(true).open("/dev/full").unwrap().into());
    assert_eq!(full.status.code(), Some(1));
    assert!(text(&full.stderr).starts_with("gpu-track: cannot write to stdout: No space left"), "{full:?}");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let gone = to(writer.into());
    assert!(gone.status.success() && gone.stderr.is_empty(), "{gone:?}");
}

// Requirement: CMD-20
#[test]
fn doctor_says_what_a_run_sees_here() {
    let shown = run(&["doctor"]);
    let table = text(&shown.stdout);
    assert_eq!((shown.status.code(), text(&shown.stderr)), (Some(0), String::new()), "{table}");
    assert!(table.starts_with("tracking   ok   a program loads the shim"), "{table}");
    for name in
        ["/dev/shm ", "connector ", "cgroup ", "memory ", "cores ", "pressure ", "GPUs ", "kept ", "program "]
    {
        assert_eq!(table.lines().filter(|line| line.starts_with(name)).count(), 1, "{name}: {table}");
    }
    let fake = FakeGpus::new(2, "");
    // Root loads a library of the environment only by this name.
    let library = fake.path("libnvidia-ml.so.1");
    std::fs::copy(fake.library_path(), &library).unwrap();
    let mut doctor = companion();
    doctor.arg("doctor").env("FAKE_NVML_DIR", fake.directory()).env("GPU_TRACK_NVML_LIB", library);
    let table = text(&doctor.output().unwrap().stdout);
    assert!(table.contains("\nGPUs       ok   2: Fake A100, Fake A100; "), "{table}");
}

// Requirement: CMD-20
#[test]
fn companion_alone_says_what_people_do_most() {
    let shown = run(&[]);
    let menu = text(&shown.stdout);
    assert!(
        shown.status.success()
            && menu.starts_with("gpu-track-run COMMAND ")
            && menu.contains("gpu-track doctor")
    );
}
