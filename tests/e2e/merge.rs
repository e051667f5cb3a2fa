//! `gpu-track merge`: one report of several ranks' and nodes' reports, whatever else lies in their directory.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};

use crate::support::program;
use crate::support::rows::Database;

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gpu-track")).args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn read(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// Tracks a command as this rank of three, and gives its report.
fn rank(directory: &Path, rank: u32, mib: u64, exit: u32) -> Value {
    let script = format!("{} hold {} 0; exit {exit}", program("touch"), mib << 20);
    let report = directory.join("run.%r.json");
    let done = Command::new(env!("CARGO_BIN_EXE_gpu-track-run"))
        .args(["-q", "--st", "0.01", "-o"])
        .arg(report)
        .args(["--", "sh", "-c", &script])
        .env("PMI_RANK", rank.to_string())
        .env("PMI_SIZE", "3")
        .status()
        .unwrap();
    assert_eq!(done.code(), Some(exit.try_into().unwrap()));
    read(&directory.join(format!("run.{rank}.json")))
}

/// Writes a report as another node would have written it: a real run's, with another machine in it.
fn on_node(report: &Value, node: &str, path: &Path) {
    let mut report = report.clone();
    report["host"]["hostname"] = node.into();
    report["host"]["boot_id"] = format!("boot of {node}").into();
    fs::write(path, serde_json::to_string_pretty(&report).unwrap()).unwrap();
}

// Requirement: NODE-21
#[test]
fn merge_writes_the_nodes_to_files_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let reports = directory.path().join("reports");
    fs::create_dir(&reports).unwrap();
    let mut one = rank(directory.path(), 0, 4, 0);
    // The other ranks would be missing.
    one.as_object_mut().unwrap().remove("rank");
    on_node(&one, "n1", &reports.join("1.json"));
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (whole, database, lines) = (reports.to_str().unwrap(), path("t.sqlite"), path("t.jsonl"));
    let merge = |more: &[&str]| run(&[&["merge", "-f", "json", whole], more].concat());
    let alone = merge(&["--tf", &database]);
    assert_eq!((alone.status.code(), fs::exists(&database).unwrap()), (Some(1), false));
    assert!(text(&alone.stderr).contains("there is one report"), "{}", text(&alone.stderr));
    on_node(&one, "n2", &reports.join("2.json"));
    let done = merge(&["--tf", &database, "--tf", &lines]);
    assert_eq!((done.status.code(), text(&done.stderr)), (Some(0), String::new()));
    let report: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(Database::read(Path::new(&database)).rows("nodes").len(), 2);
    let shown = run(&["report", "-f", "json", &lines]);
    assert_eq!(serde_json::from_slice::<Value>(&shown.stdout).unwrap(), report);
    for (more, problem) in [
        (["--tf", &database], "exists: give --overwrite"),
        (["--tf", &path("t.csv")], "has no form for several nodes"),
        (["--tf", &path("t.txt")], "has no form for several nodes"),
    ] {
        let refused = merge(&more);
        assert_eq!(refused.status.code(), Some(2), "{more:?}");
        assert!(text(&refused.stderr).contains(problem) && refused.stdout.is_empty(), "{more:?}");
    }
    assert_eq!(merge(&["--tf", &database, "--overwrite"]).status.code(), Some(0));
    assert_eq!(Database::read(Path::new(&database)).rows("nodes").len(), 2);
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value}"))
}

// Requirement: NODE-1, NODE-3, NODE-7, NODE-8, NODE-57
#[test]
fn reports_of_ranks_on_two_nodes_become_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let reports = [rank(directory.path(), 0, 40, 0), rank(directory.path(), 1, 60, 4)];
    for (report, (node, name)) in reports.iter().zip([("n1", "run.0.json"), ("n2", "run.1.json")]) {
        on_node(report, node, &path(name));
    }
    let (all, whole) = (path("all.json"), directory.path().to_str().unwrap().to_owned());
    let merge = |output: &str| run(&["merge", "-o", output, &whole]);
    let done = merge(all.to_str().unwrap());
    assert_eq!((done.status.code(), text(&done.stderr)), (Some(0), String::new()));
    let merged = read(&all);
    let sum = |at: &str| reports.iter().map(|report| number(report.pointer(at).unwrap())).sum::<f64>();
    for at in ["/cpu_time/total_s", "/processes/total", "/host/cores", "/host/ram_bytes", "/faults/minor"] {
        let (sum, all) = (sum(at), number(merged.pointer(at).unwrap()));
        assert!((sum - all).abs() < 1e-6 * sum.max(1.0), "{at}: {sum} {all}");
    }
    let (largest, most) =
        (number(&merged["max_ram_bytes"]["combined"]["total_rss"]), sum("/max_ram_at_most/combined"));
    assert!(largest >= f64::from(60 << 20) && largest <= most, "{largest} {most}");
    // The runs came one after the other, so their RAM does not add up.
    assert!(largest < most - f64::from(30 << 20), "{largest} {most}");
    assert_eq!(merged["exit"]["code"], 4);
    let states =
        merged["nodes"].as_array().unwrap().iter().map(|node| (node["node"].clone(), node["state"].clone()));
    assert_eq!(states.collect::<Vec<_>>(), [(json!("n1"), json!("final")), (json!("n2"), json!("final"))]);
    let ranks = &merged["ranks"];
    assert_eq!((&ranks["seen"], &ranks["expected"], &ranks["missing"]), (&json!(2), &json!(3), &json!([2])));
    assert_eq!(ranks["heaviest"][0]["rank"], 1);
    assert_eq!(ranks["heaviest"][0]["peak_ram_bytes"], reports[1]["max_ram_bytes"]["combined"]["total_rss"]);
    assert!(ranks["heaviest"][0]["pid"].as_u64() > Some(1));
    let rows = fs::read_to_string(path("all.ranks.csv")).unwrap();
    let lines: Vec<&str> = rows.lines().collect();
    assert!(lines.len() == 3 && lines[0].starts_with("job,rank,node,pid,wall_s,"), "{rows}");
    assert!(lines[2].contains(",1,\"n2\",") && lines[2].ends_with(",4,"), "{rows}");

    // What is written into the directory is no part of it.
    let before = fs::read(&all).unwrap();
    assert_eq!(merge(all.to_str().unwrap()).status.code(), Some(0));
    assert_eq!(fs::read(&all).unwrap(), before);
    let shown = text(&run(&["report", all.to_str().unwrap()]).stdout);
    assert!(shown.contains("\n  Nodes          2, 2 ranks: n2 "), "{shown}");
    assert!(shown.contains("\n  Failed         n2 exit 4\n"), "{shown}");
    let compared = run(&["compare", all.to_str().unwrap(), path("run.0.json").to_str().unwrap()]);
    assert_eq!(compared.status.code(), Some(0), "{}", text(&compared.stderr));
    let over_time = run(&["report", all.to_str().unwrap(), "--every", "0.1", "-f", "csv"]);
    assert_eq!(over_time.status.code(), Some(0), "{}", text(&over_time.stderr));

    let only = path("run.0.json").to_str().unwrap().to_owned();
    let single: Value = serde_json::from_str(&text(&run(&["merge", "-f", "json", &only]).stdout)).unwrap();
    assert_eq!(single["cpu_time"]["total_s"], reports[0]["cpu_time"]["total_s"]);
    assert_eq!(single["coverage"]["ranks"]["unseen"], 2, "{single}");
    let none = run(&["merge", "/dev/null"]);
    assert_eq!(none.status.code(), Some(2));
    assert!(
        text(&none.stderr).starts_with("gpu-track: no report in 1 file, such as /dev/null: it is a device"),
        "{}",
        text(&none.stderr)
    );
}

// Requirement: NODE-9
#[test]
fn clock_that_is_ahead_is_put_right_where_its_offset_is_given() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let report = rank(directory.path(), 0, 20, 0);
    on_node(&report, "n1", &path("run.0.json"));
    on_node(&report, "n2", &path("run.2.json"));
    let whole = directory.path().to_str().unwrap();
    let merge = |options: &[&str]| run(&[&["merge", "-f", "json", whole], options].concat());
    let merged = |options: &[&str]| -> Value { serde_json::from_slice(&merge(options).stdout).unwrap() };
    let right = merged(&[]);
    let started = humantime::parse_rfc3339(report["started_at"].as_str().unwrap()).unwrap();
    let mut ahead = report;
    let an_hour_later = started + Duration::from_secs(3600);
    ahead["started_at"] = humantime::format_rfc3339_millis(an_hour_later).to_string().into();
    on_node(&ahead, "n2", &path("run.2.json"));
    assert_ne!(merged(&[])["series"], right["series"]);
    let done = merge(&["--clock-offset", "n2=3600", "--clock-offset=n3=1"]);
    assert_eq!(text(&done.stderr), "gpu-track: --clock-offset: no report is of n3\n");
    let corrected: Value = serde_json::from_slice(&done.stdout).unwrap();
    for key in ["started_at", "wall_s", "series", "max_ram_bytes", "max_ram_at_most", "warnings"] {
        assert_eq!(corrected[key], right[key], "{key}");
    }
    assert_eq!(corrected["nodes"][1]["clock_offset_s"], 3600.0);
    let wrong = merge(&["--clock-offset", "n2"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("\"n2\" is no clock: write it as NODE=SECONDS"));
    let far = merge(&["--clock-offset", "n2=-1e12"]);
    assert_eq!(far.status.code(), Some(2));
    assert!(text(&far.stderr).contains("\"n2=-1e12\" is too far: a clock is at most 3.2e11 s"));
}

// Requirement: NODE-5
#[test]
fn what_is_no_report_is_named_and_the_others_are_merged() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let report = rank(directory.path(), 0, 20, 0);
    on_node(&report, "n1", &path("run.0.json"));
    on_node(&report, "n2", &path("run.2.json"));
    let clean = text(&run(&["merge", "-f", "json", directory.path().to_str().unwrap()]).stdout);
    let clean: Value = serde_json::from_str(&clean).unwrap();

    let whole = fs::read_to_string(path("run.0.json")).unwrap();
    // Between two values. Half of the file can end after the point of a number, for which serde_json has other words.
    fs::write(path("a torn one.json"), &whole[..whole.find("\"schema_version\"").unwrap()]).unwrap();
    fs::write(path("zcopy.json"), &whole).unwrap();
    fs::write(path("empty.json"), "").unwrap();
    fs::write(path("garbage.json"), [0x80; 5000]).unwrap();
    fs::write(path("later.json"), whole.replacen("\"schema_version\": 3", "\"schema_version\": 99", 1))
        .unwrap();
    fs::write(path("other.json"), "{\"x\": 1}").unwrap();
    fs::write(path("run.9.json"), "{".repeat(100_000)).unwrap();
    fs::write(path("without.json"), whole.replacen("\"stage\"", "\"x\"", 1)).unwrap();
    fs::File::create(path("grown.json")).unwrap().set_len(1 << 40).unwrap();
    fs::create_dir(path("directory.json")).unwrap();
    symlink("run.0.json", path("link.json")).unwrap();
    symlink("/dev/zero", path("zero.json")).unwrap();
    mknodat(CWD, path("pipe.json"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    let done = run(&["merge", "-f", "json", directory.path().to_str().unwrap()]);
    let merged: Value = serde_json::from_slice(&done.stdout).unwrap();
    let stderr = text(&done.stderr);
    assert!(stderr.contains("13 of 15 files are not in the report, such as "), "{stderr}");
    assert_eq!(stderr.lines().count(), 1);
    for key in ["cpu_time", "max_ram_bytes", "max_ram_at_most", "nodes", "processes", "series"] {
        assert_eq!(merged[key], clean[key], "{key}");
    }
    let files = &merged["merged"]["files"];
    assert_eq!((&files["read"], &files["unread"]), (&json!(2), &json!(13)));
    let reasons: Vec<(String, &str)> = files["unread_files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| {
            let name = Path::new(file["file"].as_str().unwrap()).file_name().unwrap().to_str().unwrap();
            (name.to_owned(), file["reason"].as_str().unwrap())
        })
        .collect();
    for (name, reason) in [
        ("a torn one.json", "it is no JSON: EOF while parsing"),
        ("zcopy.json", "it is a copy of "),
        ("directory.json", "it is a directory, and no file"),
        ("empty.json", "it is no JSON"),
        ("garbage.json", "it is no JSON"),
        ("grown.json", "it has 1099511627776 bytes, and at most 8388608 are read"),
        ("later.json", "its schema_version is 99, and this gpu-track reads up to 3"),
        ("link.json", "it is a symbolic link"),
        ("other.json", "it has no schema_version"),
        ("pipe.json", "it is a pipe, and no file"),
        ("run.9.json", "it is no JSON: "),
        ("without.json", "its report is damaged: missing field `stage`"),
        ("zero.json", "it is a symbolic link"),
    ] {
        let found = reasons.iter().find(|(file, _)| file == name);
        assert!(found.is_some_and(|(_, told)| told.starts_with(reason)), "{name}: {found:?}");
    }

    // Two files whose names are printed alike.
    let alike = tempfile::tempdir().unwrap();
    for (node, name) in [("n1", b"a\xfe.json"), ("n2", b"a\xff.json")] {
        on_node(&report, node, &alike.path().join(OsStr::from_bytes(name)));
    }
    let done = run(&["merge", "-f", "json", alike.path().to_str().unwrap()]);
    let merged: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!((&merged["merged"]["files"]["read"], text(&done.stderr)), (&json!(2), String::new()));
    assert_eq!(merged["nodes"], clean["nodes"]);
}
