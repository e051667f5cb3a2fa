//! Valid command lines, and the exact message for each invalid one.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use gpu_track_collector::{Detail, Format, GpuConfig, Layers, Output, RamUnit, Style, TimeUnit, Vendor};

use super::{Options, PatternValues, Recovery, Request, UsageError};

fn patterns() -> PatternValues {
    PatternValues {
        job: "17/4".into(),
        rank: "../7".into(),
        host: "node3".into(),
        pid: 4242,
        time: UNIX_EPOCH + Duration::from_secs(1_760_000_000),
        number: None,
    }
}

fn parse<S: AsRef<OsStr>>(args: &[S]) -> Result<Request, UsageError> {
    let args = args.iter().map(|arg| arg.as_ref().to_owned());
    super::parse([OsString::from("gpu-track-run")].into_iter().chain(args).collect(), &patterns())
}

fn run<S: AsRef<OsStr>>(args: &[S]) -> Options {
    match parse(args) {
        Ok(Request::Run(options)) => *options,
        other => panic!("{other:?}"),
    }
}

fn printed(args: &[&str]) -> String {
    match parse(args) {
        Ok(Request::Print(text)) => text,
        other => panic!("{other:?}"),
    }
}

/// The message for an invalid command line.
fn refused<S: AsRef<OsStr>>(args: &[S]) -> String {
    let line = parse(args).expect_err("an invalid command line").to_string();
    assert!(!line.contains('\n'));
    line
}

fn of_uuids(uuids: &[&str]) -> GpuConfig {
    GpuConfig { uuids: Some(uuids.iter().map(|uuid| (*uuid).to_owned()).collect()), ..GpuConfig::default() }
}

fn words(words: &[&str]) -> Vec<OsString> {
    words.iter().map(Into::into).collect()
}

#[test]
fn bare_command_has_the_defaults() {
    let right = Options {
        command: words(&["make", "-j4", "--output", "x", "--", "-h"]),
        output: Output::Stderr,
        style: Style::default(),
        interval: Duration::from_millis(100),
        expected_cores: None,
        gpu: GpuConfig::default(),
        disable_logs: false,
        wait_all: false,
        cgroup: false,
        most_heaviest: 10,
        env_repair: true,
        layers: Layers { preload: true, wait: true, subreaper: true, scan: true, connector: true },
        session_dir: "/dev/shm".into(),
        without_effect: None,
    };
    assert_eq!(run(&["make", "-j4", "--output", "x", "--", "-h"]), right);
    assert_eq!(run(&["--", "make", "-j4", "--output", "x", "--", "-h"]), right);
}

// Requirement: CMD-9
#[test]
fn options_before_the_command_are_parsed() {
    let right = Options {
        command: words(&["./app", "-f", "text"]),
        output: Output::Stdout,
        style: Style {
            format: Format::Json,
            ram_unit: Some(RamUnit::Megabytes),
            gpu_ram_unit: Some(RamUnit::Bytes),
            time_unit: Some(TimeUnit::Days),
            detail: Detail::Full,
            ..Style::default()
        },
        interval: Duration::from_millis(1),
        expected_cores: Some(4),
        gpu: of_uuids(&["GPU-a", "GPU-b"]),
        disable_logs: true,
        wait_all: true,
        cgroup: true,
        most_heaviest: 3,
        env_repair: false,
        layers: Layers { preload: false, wait: false, subreaper: true, scan: true, connector: false },
        session_dir: "/dev/shm".into(),
        without_effect: None,
    };
    let flags = [
        "--disable-logs",
        "--wait-all",
        "--cgroup",
        "--heaviest",
        "3",
        "--no-env-repair",
        "--layers",
        "scan,subreaper",
    ];
    let command = ["./app", "-f", "text"];
    let short = [
        "-o",
        "-",
        "-f",
        "json",
        "--ru",
        "megabytes",
        "--gru",
        "bytes",
        "--tu",
        "days",
        "--st",
        "0.001",
        "--nec",
        "4",
        "--guuids",
        "GPU-a,GPU-b,GPU-a",
    ];
    assert_eq!(run(&[&short[..], &flags, &command].concat()), right);
    let long = [
        "--output=-",
        "--format=json",
        "--ram-unit=megabytes",
        "--gpu-ram-unit=bytes",
        "--time-unit=days",
        "--sleep-time=1e-3",
        "--n-expected-cores=4",
        "--guuids=GPU-a,GPU-b",
    ];
    assert_eq!(run(&[&long[..], &flags, &command].concat()), right);
}

#[test]
fn last_value_of_a_repeated_option_is_used() {
    let options =
        run(&["--st", "1", "-f", "json", "--wait-all", "--wait-all", "--st", "2", "-f", "text", "x"]);
    assert_eq!(options.interval, Duration::from_secs(2));
    assert_eq!(options.style.format, Format::Text);
}

// Requirement: CMD-14
#[test]
fn execute_is_split_like_a_shell_does() {
    let right = words(&["python", "-c", "print('a b')", "", r"c\d", "$HOME", "*"]);
    assert_eq!(run(&["-e", r#"python -c "print('a b')" '' 'c\d' $HOME *"#]).command, right);
    assert_eq!(run(&["--execute=ls -l", "-f", "json"]).command, words(&["ls", "-l"]));
}

// Requirement: CMD-9
#[test]
fn arguments_that_are_not_utf8_pass_through() {
    let odd = OsStr::from_bytes(b"\xff\xfe");
    assert_eq!(run(&[OsStr::new("cat"), odd]).command, [OsStr::new("cat"), odd]);
    assert_eq!(run(&[odd]).command, [odd]);
}

// Requirement: CMD-15
#[test]
fn help_version_man_and_completions_are_printed() {
    let help = printed(&["--help"]);
    for heading in ["Command:", "Report:", "Tracking:", "Diagnosis:", "Information:", "Examples:"] {
        assert!(help.lines().any(|line| line == heading), "{heading}\n{help}");
    }
    let help = printed(&["-h"]);
    assert!(help.lines().count() <= 25 && help.lines().all(|line| line.len() <= 100), "{help}");
    for part in ["--output <FILE>", "--format <FORMAT>", "--st <SECONDS>", "--help ", "Examples:"] {
        assert!(help.contains(part), "{part}\n{help}");
    }
    let version = format!("gpu-track-run {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(printed(&["--version"]), version);
    assert_eq!(printed(&["-v"]), version);
    assert!(printed(&["--man"]).contains(".SH EXIT STATUS"));
    for shell in ["bash", "zsh", "fish"] {
        let script = printed(&["--completions", shell]);
        assert!(script.contains("sleep-time") && script.contains("gigabytes"), "{script}");
    }
}

// Requirement: CMD-15
#[test]
fn every_option_is_in_help_man_page_and_completions() {
    let texts =
        [printed(&["--help"]), printed(&["--man"]).replace('\\', ""), printed(&["--completions", "bash"])];
    for option in [
        "execute",
        "output",
        "format",
        "st",
        "sleep-time",
        "ru",
        "ram-unit",
        "gru",
        "gpu-ram-unit",
        "tu",
        "time-unit",
        "nec",
        "n-expected-cores",
        "guuids",
        "visible",
        "gb",
        "gpu-brand",
        "nvml-lib",
        "gpu-accounting",
        "gpus",
        "recover",
        "disable-logs",
        "tconfig",
        "wait-all",
        "cgroup",
        "heaviest",
        "no-env-repair",
        "layers",
        "version",
        "help",
        "completions",
        "man",
    ] {
        for text in &texts {
            assert!(text.contains(&format!("--{option}")), "--{option} in\n{text}");
        }
    }
}

// Requirement: CMD-12
#[test]
fn bad_values_get_one_line_with_what_is_allowed() {
    let seconds = "is not allowed: a number of seconds from 0.001 to 31536000 (one year)";
    let ram = "one of bytes, kilobytes, megabytes, gigabytes, terabytes";
    for (args, line) in [
        ("--st 0.0001 x", format!("--st: \"0.0001\" {seconds}")),
        ("--sleep-time 0 x", format!("--st: \"0\" {seconds}")),
        ("--st -1 x", format!("--st: \"-1\" {seconds}")),
        ("--st=-inf x", format!("--st: \"-inf\" {seconds}")),
        ("--st nan x", format!("--st: \"nan\" {seconds}")),
        ("--st fast x", format!("--st: \"fast\" {seconds}")),
        ("--st inf x", format!("--st: \"inf\" {seconds}")),
        ("--st 4e7 x", format!("--st: \"4e7\" {seconds}")),
        ("--nec 0 x", "--nec: \"0\" is not allowed: a whole number of cores, at least 1".into()),
        ("--nec -2 x", "--nec: \"-2\" is not allowed: a whole number of cores, at least 1".into()),
        ("--nec 1.5 x", "--nec: \"1.5\" is not allowed: a whole number of cores, at least 1".into()),
        ("--ru gb x", format!("--ru: \"gb\" is not allowed: {ram}")),
        ("--gpu-ram-unit MB x", format!("--gru: \"MB\" is not allowed: {ram}")),
        ("--tu years x", "--tu: \"years\" is not allowed: one of seconds, minutes, hours, days".into()),
        ("-f yaml x", "--format: \"yaml\" is not allowed: one of text, json".into()),
        (
            "-f pickle x",
            "--format: \"pickle\" holds classes of Python, so only Python can write it: use -f json".into(),
        ),
        (
            "--guuids a,,b x",
            "--guuids: \"a,,b\" is not allowed: UUIDs separated by commas, none of them empty".into(),
        ),
        (
            "--layers scan,ptrace x",
            "--layers: \"ptrace\" is not allowed: one of preload, wait, subreaper, scan, connector".into(),
        ),
        (
            "--completions tcsh",
            "--completions: \"tcsh\" is not allowed: one of bash, elvish, fish, powershell, zsh".into(),
        ),
        ("--wait-all=yes x", "--wait-all: \"yes\" is not allowed: it takes no value".into()),
        ("-o", "--output: the value is missing".into()),
        ("--ru", format!("--ru: the value is missing: {ram}")),
        ("--frmat json x", "--frmat: unknown option: did you mean --format?".into()),
        ("-x y", "-x: unknown option: --help lists all options".into()),
        ("", "COMMAND is missing: gpu-track-run [OPTIONS] [--] COMMAND [ARG]...".into()),
        ("-f json --", "COMMAND is missing: gpu-track-run [OPTIONS] [--] COMMAND [ARG]...".into()),
        ("--recover make -j4", "the argument '--recover' cannot be used with '[COMMAND]...'".into()),
        ("-e ls make -j4", "the argument '--execute <COMMAND>' cannot be used with '[COMMAND]...'".into()),
    ] {
        assert_eq!(refused(&args.split_whitespace().collect::<Vec<_>>()), line, "{args}");
    }
    assert_eq!(refused(&["-e", " "]), "--execute: \" \" contains no command: give COMMAND [ARG]...");
    let unbalanced = "has a quote that is not closed: close it, or escape it with a backslash";
    assert_eq!(refused(&["-e", "echo it's"]), format!("--execute: \"echo it's\" {unbalanced}"));
    assert_eq!(refused(&["-e", "echo \"\n"]), format!("--execute: \"echo \"\\n\" {unbalanced}"));
    assert_eq!(
        refused(&["--ru", "a\n\x1b[31mb", "x"]),
        format!("--ru: \"a\\n\\x1b[31mb\" is not allowed: {ram}")
    );
    assert_eq!(UsageError::STATUS, 2);
}

// Requirement: OUT-7
#[test]
fn output_patterns_are_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let given = directory.path().join("r.%j.%r.%h.%p.%t.%%");
    let Output::File(path) = run(&[OsStr::new("-o"), given.as_os_str(), OsStr::new("x")]).output else {
        panic!("no file");
    };
    assert_eq!(path, directory.path().join("r.17_4..._7.node3.4242.20251009T085320.%"));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "checking writes nothing");
    assert_eq!(
        refused(&["-o", "/tmp/%x", "x"]),
        "--output: \"/tmp/%x\" has an unknown pattern \"%x\": one of %j, %r, %h, %p, %t, %%"
    );
    assert_eq!(
        refused(&["-o", "/tmp/50%", "x"]),
        "--output: \"/tmp/50%\" has an unknown pattern \"%\": one of %j, %r, %h, %p, %t, %%"
    );
}

// Requirement: OUT-18, OUT-19
#[test]
fn summary_is_for_stderr_and_a_file_is_full() {
    let detail = |args: &[&str]| run(args).style.detail;
    assert_eq!(detail(&["x"]), Detail::Summary);
    assert_eq!(detail(&["-o", "/dev/stderr", "x"]), Detail::Summary);
    assert_eq!([detail(&["-q", "x"]), detail(&["--quiet", "x"])], [Detail::Quiet; 2]);
    for full in [&["--full", "x"][..], &["-o", "-", "x"], &["-o", "/dev/null", "x"], &["-q", "-o", "-", "x"]]
    {
        assert_eq!(detail(full), Detail::Full, "{full:?}");
    }
    assert!(run(&["--hints", "x"]).style.shows_hints);
    assert!(refused(&["-q", "--full", "x"]).contains("cannot be used with"));
}

#[test]
fn recover_takes_output_and_style() {
    let Ok(Request::Recover(recovery)) = parse(&["--recover", "-f", "json", "--ru", "bytes", "-o", "r.%p"])
    else {
        panic!("not recovered");
    };
    let style = Style {
        format: Format::Json,
        ram_unit: Some(RamUnit::Bytes),
        detail: Detail::Full,
        ..Style::default()
    };
    let right = Recovery { output: Some("r.%p".into()), style, session_dir: "/dev/shm".into() };
    assert_eq!(recovery, right);
    assert_eq!(
        refused(&["--recover", "-o", "/no/such"]),
        "--output: \"/no/such\" needs the directory \"/no\", which does not exist: create it first"
    );
}

#[test]
fn relative_output_becomes_absolute() {
    let here = std::env::current_dir().unwrap();
    assert_eq!(run(&["-o", "report.json", "x"]).output, Output::File(here.join("report.json")));
    assert_eq!(run(&["-o", "/dev/stderr", "x"]).output, Output::Stderr);
    assert_eq!(run(&["-o", "/dev/stdout", "x"]).output, Output::Stdout);
    assert_eq!(run(&["-o", "/dev/null", "x"]).output, Output::Stream(PathBuf::from("/dev/null")));
}

// Requirement: CMD-13
#[test]
fn unwritable_output_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let refused_output = |path: &Path| {
        let message = refused(&[OsStr::new("-o"), path.as_os_str(), OsStr::new("x")]);
        message.strip_prefix(&format!("--output: \"{}\" ", path.display())).unwrap().to_owned()
    };
    let root = directory.path();
    fs::write(root.join("file"), "").unwrap();
    for parent in [root.join("no"), root.join("file")] {
        let problem =
            format!("needs the directory \"{}\", which does not exist: create it first", parent.display());
        assert_eq!(refused_output(&parent.join("report")), problem);
    }
    for path in [root.to_path_buf(), root.join("new/")] {
        assert_eq!(refused_output(&path), "is a directory: name a file in it");
    }
    assert_eq!(refused(&["-o", "", "x"]), "--output: the value is missing");
}

fn with_config(json: &str, more: &[&str]) -> Result<Options, String> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config.json");
    fs::write(&path, json).unwrap();
    let args = [&["--tconfig", path.to_str().unwrap()], more, &["x"]].concat();
    match parse(&args) {
        Ok(Request::Run(options)) => Ok(*options),
        Ok(other) => panic!("{other:?}"),
        Err(refusal) => Err(refusal.to_string().replace(path.to_str().unwrap(), "FILE")),
    }
}

// Requirement: CMD-14
#[test]
fn tconfig_keywords_are_overridden_by_options() {
    let json = r#"{"sleep_time": 0.5, "ram_unit": "megabytes", "gpu_ram_unit": "kilobytes", "time_unit": "minutes",
        "n_expected_cores": 3, "gpu_uuids": ["GPU-a", "GPU-b"], "gpu_brand": "amd", "disable_logs": true}"#;
    let mut right = Options {
        interval: Duration::from_millis(500),
        style: Style {
            format: Format::Text,
            ram_unit: Some(RamUnit::Megabytes),
            gpu_ram_unit: Some(RamUnit::Kilobytes),
            time_unit: Some(TimeUnit::Minutes),
            ..Style::default()
        },
        expected_cores: Some(3),
        gpu: GpuConfig { vendor: Some(Vendor::Amd), ..of_uuids(&["GPU-a", "GPU-b"]) },
        disable_logs: true,
        ..run(&["x"])
    };
    assert_eq!(with_config(json, &[]).unwrap(), right);
    right.interval = Duration::from_secs(2);
    right.style.time_unit = Some(TimeUnit::Days);
    right.gpu = GpuConfig { vendor: Some(Vendor::Nvidia), ..of_uuids(&["GPU-c"]) };
    let options = ["--st", "2", "--tu", "days", "--guuids", "GPU-c", "--gb", "nvidia"];
    assert_eq!(with_config(json, &options).unwrap(), right);
    let options = with_config(r#"{"gpu_uuids": "GPU-a,GPU-b", "n_expected_cores": null}"#, &[]).unwrap();
    assert_eq!(options.gpu, of_uuids(&["GPU-a", "GPU-b"]));
    assert_eq!(options.expected_cores, None);
}

// Requirement: CMD-14
#[test]
fn keywords_and_options_without_effect_are_named_in_one_line() {
    let json = r#"{"join_timeout": 2, "n_join_attempts": 1, "overwrite": true, "process_id": 7, "resource_usage_file": "x",
        "tracking_file": "x.csv"}"#;
    let options = with_config(json, &["--overwrite", "--tf", "y.csv"]).unwrap();
    let line = "without effect: --tf, --overwrite, join_timeout, n_join_attempts, overwrite, process_id, \
                resource_usage_file, tracking_file (samples are not written to a file yet)";
    assert_eq!(options.without_effect.unwrap(), line);
    let options = with_config(r#"{"join_timeout": 2.5}"#, &[]).unwrap();
    assert_eq!(options.without_effect.unwrap(), "without effect: join_timeout");
    let json = r#"{"tracking_file": null, "overwrite": false, "process_id": null}"#;
    assert_eq!(with_config(json, &[]).unwrap().without_effect, None);
}

fn by_the_name_gpu_tracker(args: &[&str]) -> Result<Request, UsageError> {
    super::parse(words(&[&["/opt/bin/gpu-tracker"], args].concat()), &patterns())
}

// Requirement: CMD-16
#[test]
fn name_gpu_tracker_has_its_defaults() {
    let run = |args: &[&str]| match by_the_name_gpu_tracker(args) {
        Ok(Request::Run(options)) => *options,
        other => panic!("{other:?}"),
    };
    let options = run(&["-e", r"grep it's  a\.b"]);
    assert_eq!(options.command, words(&["grep", "it's", r"a\.b"]), "str.split of Python");
    assert_eq!(options.output, Output::Stdout);
    assert_eq!(options.interval, Duration::from_secs(1));
    let units = Style {
        format: Format::Text,
        ram_unit: Some(RamUnit::Gigabytes),
        gpu_ram_unit: Some(RamUnit::Gigabytes),
        time_unit: Some(TimeUnit::Hours),
        as_gpu_tracker: true,
        detail: Detail::Full,
        ..Style::default()
    };
    assert_eq!(options.style, units);
    let options = run(&["-e", "ls", "-o", "/dev/stderr", "--st=0.5", "--tu=days"]);
    assert_eq!((options.output, options.interval), (Output::Stderr, Duration::from_millis(500)));
    assert_eq!(options.style, Style { time_unit: Some(TimeUnit::Days), ..units });
    let refused = by_the_name_gpu_tracker(&["sub-track", "analyze", "--tf=x"]).unwrap_err().to_string();
    assert!(refused.starts_with("gpu-tracker sub-track is not there yet"), "{refused}");
}

// Requirement: CMD-14
#[test]
fn bad_tconfig_gets_one_line() {
    let keys = "allowed are sleep_time, ram_unit, gpu_ram_unit, time_unit, n_expected_cores, gpu_uuids, gpu_brand, \
                disable_logs";
    for (json, line) in [
        ("{sleep_time: 1}", "is not JSON: key must be a string at line 1 column 2".to_owned()),
        ("", "is not JSON: EOF while parsing a value at line 1 column 0".into()),
        ("[1]", "is not a JSON object: {\"sleep_time\": 0.1, ...}".into()),
        (r#"{"sleeptime": 1}"#, format!("has the key \"sleeptime\", which is not supported: {keys}")),
        (
            r#"{"gpu_brand": "voodoo"}"#,
            "has a wrong gpu_brand: \"voodoo\" is not allowed: one of nvidia, amd, intel".into(),
        ),
        (
            r#"{"sleep_time": true}"#,
            "has a wrong sleep_time: \"true\" is not allowed: a number of seconds from 0.001 to 31536000 (one year)".into(),
        ),
        (
            r#"{"sleep_time": 0.0001}"#,
            "has a wrong sleep_time: \"0.0001\" is not allowed: a number of seconds from 0.001 to 31536000 (one year)"
                .into(),
        ),
        (
            r#"{"n_expected_cores": 0}"#,
            "has a wrong n_expected_cores: \"0\" is not allowed: a whole number of cores, at least 1".into(),
        ),
        (
            r#"{"time_unit": "weeks"}"#,
            "has a wrong time_unit: \"weeks\" is not allowed: one of seconds, minutes, hours, days".into(),
        ),
        (
            r#"{"ram_unit": 3}"#,
            "has a wrong ram_unit: \"3\" is not allowed: one of bytes, kilobytes, megabytes, gigabytes, terabytes"
                .into(),
        ),
        (
            r#"{"gpu_uuids": []}"#,
            "has a wrong gpu_uuids: \"\" is not allowed: UUIDs separated by commas, none of them empty".into(),
        ),
        (r#"{"disable_logs": 1}"#, "has a wrong disable_logs: \"1\" is not allowed: one of true, false".into()),
    ] {
        let right = format!("--tconfig: \"FILE\" {line}");
        assert_eq!(with_config(json, &[]).unwrap_err(), right, "{json}");
    }
    assert_eq!(
        refused(&["--tconfig", "/no/such", "x"]),
        "--tconfig: \"/no/such\" cannot be read: No such file or directory (os error 2)"
    );
}

// Requirement: GPU-9
#[test]
fn gpu_options_select_gpus() {
    let gpu = run(&["--gb", "amd", "--visible", "--nvml-lib=/x.so", "--gpu-accounting", "x"]).gpu;
    let right = GpuConfig {
        vendor: Some(Vendor::Amd),
        only_visible: true,
        nvml_lib: Some("/x.so".into()),
        accounting: true,
        ..GpuConfig::default()
    };
    assert_eq!(gpu, right);
    assert_eq!(
        refused(&["--gb", "voodoo", "x"]),
        "--gb: \"voodoo\" is not allowed: one of nvidia, amd, intel"
    );
    assert!(matches!(parse(&["--gpus", "-f", "json"]), Ok(Request::Gpus(_, Format::Json))));
}
