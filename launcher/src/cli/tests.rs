//! Every form of the command line that is good, and the exact line for every one that isn't.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use gpu_track_collector::model::config::Layers;
use gpu_track_collector::model::gpu::{Device, GpuConfig, Vendor};
use gpu_track_collector::model::style::Output;
use gpu_track_collector::model::style::{Format, RamUnit, Style, TimeUnit};
use gpu_track_collector::sources::gpu::list::{Driver, Listed, Listing};

use super::output::Place;
use super::{Options, Recovery, Refusal, Request, parse_at};

fn place() -> Place {
    Place {
        job: "17/4".into(),
        rank: "../7".into(),
        host: "node3".into(),
        pid: 4242,
        time: UNIX_EPOCH + Duration::from_secs(1_760_000_000),
    }
}

fn parse<S: AsRef<OsStr>>(args: &[S]) -> Result<Request, Refusal> {
    let args = args.iter().map(|arg| arg.as_ref().to_owned());
    parse_at([OsString::from("gpu-track-run")].into_iter().chain(args), &place())
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

/// The line, less our name before it.
fn refused<S: AsRef<OsStr>>(args: &[S]) -> String {
    let line = parse(args).expect_err("a command line that can't be used").to_string();
    assert!(!line.contains('\n'));
    line.strip_prefix("gpu-track-run: ").unwrap().to_owned()
}

fn of_uuids(uuids: &[&str]) -> GpuConfig {
    GpuConfig { uuids: Some(uuids.iter().map(|uuid| (*uuid).to_owned()).collect()), ..GpuConfig::default() }
}

fn words(words: &[&str]) -> Vec<OsString> {
    words.iter().map(Into::into).collect()
}

#[test]
fn a_bare_command_has_the_defaults() {
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
    };
    assert_eq!(run(&["make", "-j4", "--output", "x", "--", "-h"]), right);
    assert_eq!(run(&["--", "make", "-j4", "--output", "x", "--", "-h"]), right);
}

#[test]
fn options_before_the_command_are_ours() {
    let right = Options {
        command: words(&["./app", "-f", "text"]),
        output: Output::Stdout,
        style: Style {
            format: Format::Json,
            ram_unit: Some(RamUnit::Megabytes),
            gpu_ram_unit: Some(RamUnit::Bytes),
            time_unit: Some(TimeUnit::Days),
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
fn the_last_of_an_option_given_twice_counts() {
    let options =
        run(&["--st", "1", "-f", "json", "--wait-all", "--wait-all", "--st", "2", "-f", "text", "x"]);
    assert_eq!(options.interval, Duration::from_secs(2));
    assert_eq!(options.style.format, Format::Text);
}

#[test]
fn execute_is_split_as_a_shell_splits() {
    let right = words(&["python", "-c", "print('a b')", "", r"c\d", "$HOME", "*"]);
    assert_eq!(run(&["-e", r#"python -c "print('a b')" '' 'c\d' $HOME *"#]).command, right);
    assert_eq!(run(&["--execute=ls -l", "-f", "json"]).command, words(&["ls", "-l"]));
}

#[test]
fn arguments_that_are_not_utf8_pass_through() {
    let odd = OsStr::from_bytes(b"\xff\xfe");
    assert_eq!(run(&[OsStr::new("cat"), odd]).command, [OsStr::new("cat"), odd]);
    assert_eq!(run(&[odd]).command, [odd]);
}

#[test]
fn help_version_man_and_completions_are_printed() {
    for help in [printed(&["--help"]), printed(&["-h"])] {
        for heading in ["Command:", "Report:", "Tracking:", "Diagnosis:", "Information:", "Examples:"] {
            assert!(help.lines().any(|line| line == heading), "{heading}\n{help}");
        }
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

/// Every option of the interface, in every text made from it.
#[test]
fn help_man_and_completions_know_every_option() {
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

#[test]
fn bad_values_get_one_line_that_says_what_is_allowed() {
    let ram = "one of bytes, kilobytes, megabytes, gigabytes, terabytes";
    for (args, line) in [
        ("--st 0.0001 x", "--st: 0.0001 is below the minimum: at least 0.001 seconds".to_owned()),
        ("--sleep-time 0 x", "--st: 0 is below the minimum: at least 0.001 seconds".into()),
        ("--st -1 x", "--st: -1 is below the minimum: at least 0.001 seconds".into()),
        ("--st=-inf x", "--st: -inf is below the minimum: at least 0.001 seconds".into()),
        ("--st nan x", "--st: \"nan\" is not a number: at least 0.001 seconds".into()),
        ("--st fast x", "--st: \"fast\" is not a number: at least 0.001 seconds".into()),
        ("--st inf x", "--st: inf is above the maximum: at most 31536000 seconds, which is a year".into()),
        ("--st 4e7 x", "--st: 4e7 is above the maximum: at most 31536000 seconds, which is a year".into()),
        ("--nec 0 x", "--nec: 0 is below the minimum: at least 1 core".into()),
        ("--nec -2 x", "--nec: \"-2\" is not a number of cores: a whole number, at least 1".into()),
        ("--nec 1.5 x", "--nec: \"1.5\" is not a number of cores: a whole number, at least 1".into()),
        ("--ru gb x", format!("--ru: \"gb\" is not allowed: {ram}")),
        ("--gpu-ram-unit MB x", format!("--gru: \"MB\" is not allowed: {ram}")),
        ("--tu years x", "--tu: \"years\" is not allowed: one of seconds, minutes, hours, days".into()),
        ("-f pickle x", "--format: \"pickle\" is not allowed: one of text, json".into()),
        (
            "--guuids a,,b x",
            "--guuids: \"a,,b\" has an empty UUID in it: UUIDs with commas between them".into(),
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
        ("--frmat json x", "unknown option --frmat: did you mean --format?".into()),
        ("-x y", "unknown option -x: --help lists those that there are".into()),
        ("", "COMMAND is missing: gpu-track-run [OPTIONS] [--] COMMAND [ARG]...".into()),
        ("-f json --", "COMMAND is missing: gpu-track-run [OPTIONS] [--] COMMAND [ARG]...".into()),
        ("--recover make -j4", "--recover: COMMAND \"make\" is given too: give one of them".into()),
        ("-e ls make -j4", "--execute: \"ls\" and COMMAND \"make\" are both given: give one of them".into()),
    ] {
        assert_eq!(refused(&args.split_whitespace().collect::<Vec<_>>()), line, "{args}");
    }
    assert_eq!(refused(&["-e", " "]), "--execute: \" \" has no command in it: COMMAND [ARG]...");
    let unbalanced = "has a quote that is not closed: each needs its other half";
    assert_eq!(refused(&["-e", "echo it's"]), format!("--execute: \"echo it's\" {unbalanced}"));
    assert_eq!(refused(&["-e", "echo \"\n"]), format!("--execute: \"echo \"\\n\" {unbalanced}"));
    assert_eq!(
        refused(&["--ru", "a\n\x1b[31mb", "x"]),
        format!("--ru: \"a\\n\\x1b[31mb\" is not allowed: {ram}")
    );
    assert_eq!(Refusal::STATUS, 2);
}

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

#[test]
fn recovering_takes_where_and_how_to_report() {
    let Ok(Request::Recover(recovery)) = parse(&["--recover", "-f", "json", "--ru", "bytes", "-o", "r.%p"])
    else {
        panic!("not recovered");
    };
    let style = Style { format: Format::Json, ram_unit: Some(RamUnit::Bytes), ..Style::default() };
    let right = Recovery { output: Some("r.%p".into()), style, session_dir: "/dev/shm".into() };
    assert_eq!(recovery, right);
    assert_eq!(
        refused(&["--recover", "-o", "/no/such"]),
        "--output: \"/no/such\": the directory \"/no\" does not exist: make it first"
    );
}

#[test]
fn a_relative_output_becomes_absolute_and_streams_have_their_names() {
    let here = std::env::current_dir().unwrap();
    assert_eq!(run(&["-o", "report.json", "x"]).output, Output::File(here.join("report.json")));
    assert_eq!(run(&["-o", "/dev/stderr", "x"]).output, Output::Stderr);
    assert_eq!(run(&["-o", "/dev/stdout", "x"]).output, Output::Stdout);
    assert_eq!(run(&["-o", "/dev/null", "x"]).output, Output::Stream(PathBuf::from("/dev/null")));
}

#[test]
fn an_output_that_cannot_be_written_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let refused_output = |path: &Path| refused(&[OsStr::new("-o"), path.as_os_str(), OsStr::new("x")]);
    let root = directory.path();
    let missing = root.join("no/such");
    assert_eq!(
        refused_output(&missing),
        format!(
            "--output: \"{}\": the directory \"{}\" does not exist: make it first",
            missing.display(),
            root.join("no").display()
        )
    );
    fs::write(root.join("file"), "").unwrap();
    let below = root.join("file/report");
    assert_eq!(
        refused_output(&below),
        format!(
            "--output: \"{}\": the directory \"{}\" is not a directory: name one that is",
            below.display(),
            root.join("file").display()
        )
    );
    for path in [root.to_path_buf(), root.join("new/")] {
        assert_eq!(
            refused_output(&path),
            format!("--output: \"{}\" is a directory: name a file in it", path.display())
        );
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

#[test]
fn tconfig_has_the_keywords_of_gpu_tracker_and_options_go_first() {
    let json = r#"{"sleep_time": 0.5, "ram_unit": "megabytes", "gpu_ram_unit": "kilobytes", "time_unit": "minutes",
        "n_expected_cores": 3, "gpu_uuids": ["GPU-a", "GPU-b"], "disable_logs": true}"#;
    let mut right = Options {
        interval: Duration::from_millis(500),
        style: Style {
            format: Format::Text,
            ram_unit: Some(RamUnit::Megabytes),
            gpu_ram_unit: Some(RamUnit::Kilobytes),
            time_unit: Some(TimeUnit::Minutes),
        },
        expected_cores: Some(3),
        gpu: of_uuids(&["GPU-a", "GPU-b"]),
        disable_logs: true,
        ..run(&["x"])
    };
    assert_eq!(with_config(json, &[]).unwrap(), right);
    right.interval = Duration::from_secs(2);
    right.style.time_unit = Some(TimeUnit::Days);
    right.gpu = of_uuids(&["GPU-c"]);
    assert_eq!(with_config(json, &["--st", "2", "--tu", "days", "--guuids", "GPU-c"]).unwrap(), right);
    let options = with_config(r#"{"gpu_uuids": "GPU-a,GPU-b", "n_expected_cores": null}"#, &[]).unwrap();
    assert_eq!(options.gpu, of_uuids(&["GPU-a", "GPU-b"]));
    assert_eq!(options.expected_cores, None);
}

#[test]
fn a_bad_tconfig_gets_one_line() {
    let keys = "allowed are sleep_time, ram_unit, gpu_ram_unit, time_unit, n_expected_cores, gpu_uuids, disable_logs";
    for (json, line) in [
        ("{sleep_time: 1}", "is not JSON: key must be a string at line 1 column 2".to_owned()),
        ("", "is not JSON: EOF while parsing a value at line 1 column 0".into()),
        ("[1]", "is not a JSON object: {\"sleep_time\": 0.1, ...}".into()),
        (r#"{"sleeptime": 1}"#, format!(": unknown key \"sleeptime\": {keys}")),
        (r#"{"tracking_file": "x.csv"}"#, format!(": tracking_file of gpu_tracker is not supported: {keys}")),
        (r#"{"process_id": null}"#, format!(": process_id of gpu_tracker is not supported: {keys}")),
        (
            r#"{"sleep_time": 0.0001}"#,
            ": sleep_time: 0.0001 is below the minimum: at least 0.001 seconds".into(),
        ),
        (r#"{"sleep_time": true}"#, ": sleep_time: \"true\" is not a number: at least 0.001 seconds".into()),
        (r#"{"n_expected_cores": 0}"#, ": n_expected_cores: 0 is below the minimum: at least 1 core".into()),
        (
            r#"{"time_unit": "weeks"}"#,
            ": time_unit: \"weeks\" is not allowed: one of seconds, minutes, hours, days".into(),
        ),
        (
            r#"{"ram_unit": 3}"#,
            ": ram_unit: \"3\" is not allowed: one of bytes, kilobytes, megabytes, gigabytes, terabytes"
                .into(),
        ),
        (
            r#"{"gpu_uuids": []}"#,
            ": gpu_uuids: \"\" has an empty UUID in it: UUIDs with commas between them".into(),
        ),
        (r#"{"disable_logs": 1}"#, ": disable_logs: 1 is not allowed: one of true, false".into()),
    ] {
        let space = if line.starts_with(':') { "" } else { " " };
        let right = format!("gpu-track-run: --tconfig: \"FILE\"{space}{line}");
        assert_eq!(with_config(json, &[]).unwrap_err(), right, "{json}");
    }
    assert_eq!(
        refused(&["--tconfig", "/no/such", "x"]),
        "--tconfig: \"/no/such\" can't be read: No such file or directory (os error 2)"
    );
}

fn found(ids: &[&str]) -> Listing {
    let listed = |id: &&str| Listed {
        device: Device { id: (*id).to_owned(), ..Device::default() },
        tracked: true,
        visible: None,
        figures: vec![],
    };
    Listing { gpus: ids.iter().map(listed).collect(), ..Listing::default() }
}

#[test]
fn gpus_that_are_not_there_are_refused_with_those_that_are() {
    let options = run(&["--guuids", "GPU-a,GPU-x", "true"]);
    let known = found(&["GPU-a", "GPU-b"]);
    assert_eq!(
        options.check_gpus(&known).unwrap_err().to_string(),
        "gpu-track-run: --guuids: \"GPU-x\" is not a GPU of this machine: one of GPU-a, GPU-b"
    );
    assert_eq!(
        options.check_gpus(&found(&[])).unwrap_err().to_string(),
        "gpu-track-run: --guuids: \"GPU-a\" is not a GPU of this machine: no GPU was found on this machine"
    );
    let driver = Driver { name: "NVIDIA".into(), reason: "no driver".into() };
    assert_eq!(
        options.check_gpus(&Listing { drivers: vec![driver], ..Listing::default() }).unwrap_err().to_string(),
        "gpu-track-run: --guuids: \"GPU-a\" is not a GPU of this machine: no GPU was found on this machine \
         (NVIDIA: no driver)"
    );
    let known = Listing { warnings: vec!["GPU number 0 could not be read: GPU lost.".into()], ..known };
    assert_eq!(
        options.check_gpus(&known).unwrap_err().to_string(),
        "gpu-track-run: --guuids: \"GPU-x\" is not a GPU of this machine: one of GPU-a, GPU-b (GPU number 0 could not be \
         read: GPU lost)"
    );
    assert_eq!(run(&["--guuids", "GPU-b", "true"]).check_gpus(&known), Ok(()));
    assert_eq!(run(&["--guuids", "gpu-B", "true"]).check_gpus(&known), Ok(()));
    assert_eq!(run(&["true"]).check_gpus(&found(&[])), Ok(()));
}

#[test]
fn gpus_are_chosen_by_what_they_are() {
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
