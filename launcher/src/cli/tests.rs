//! Valid command lines, and the exact message for each invalid one.

mod information;
mod outputs;
mod tconfig;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use gpu_track_collector::model::config::{
    DiscoveryConfig, Layer, OtherNodes, ReportConfig, ReportTarget, SparePlaces, TrackingConfig,
};
use gpu_track_collector::model::gpu::{GpuConfig, Vendor};
use gpu_track_collector::model::style::{Output, RamUnit, Style, TimeUnit};

use super::{Options, PatternValues, Request, UsageError};

fn patterns() -> PatternValues {
    PatternValues {
        job: "17/4".into(),
        rank: "../7".into(),
        host: "node3".into(),
        pid: 4242,
        time: UNIX_EPOCH + Duration::from_secs(1_760_000_000),
        rank_number: None,
        job_of_ranks: None,
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
    GpuConfig { uuids: Some(uuids.iter().map(|uuid| (*uuid).to_owned()).collect()), ..run(&["x"]).gpu }
}

fn target(output: Output, format: &str) -> ReportTarget {
    ReportTarget { output, format: format.to_owned() }
}

fn words(words: &[&str]) -> Vec<OsString> {
    words.iter().map(Into::into).collect()
}

#[test]
fn bare_command_has_the_defaults() {
    let options = run(&["make", "-j4", "--output", "x", "--", "-h"]);
    assert_eq!(options, run(&["--", "make", "-j4", "--output", "x", "--", "-h"]));
    assert_eq!(options.command.words, words(&["make", "-j4", "--output", "x", "--", "-h"]));
    assert!(!options.command.wait_all);
    let report = ReportConfig {
        style: Style::default(),
        targets: vec![target(Output::Stderr, "text")],
        most_heaviest: 10,
        warnings: Vec::new(),
        keep: None,
        spare: SparePlaces::default(),
        node_part: None,
        place_of_part: None,
        other_nodes: OtherNodes::Off,
        joint: None,
    };
    assert_eq!(options.report, report);
    assert_eq!(options.tracking, TrackingConfig::default());
    assert_eq!(options.tracking.interval_ns(), 100_000_000);
    let GpuConfig { uuids, only_visible, vendor, nvml_lib, accounting, root, .. } = options.gpu;
    assert_eq!((uuids, vendor, nvml_lib), (None, None, None));
    assert_eq!((only_visible, accounting, root), (false, false, "/".into()));
    let layers = vec![Layer::Preload, Layer::Wait, Layer::Subreaper, Layer::Scan, Layer::Connector];
    assert_eq!(options.discovery, DiscoveryConfig { layers, ..DiscoveryConfig::default() });
    let without = run(&["--no-subreaper", "true"]).discovery;
    assert_eq!(without.layers, [Layer::Preload, Layer::Wait, Layer::Scan, Layer::Connector]);
    assert!(!options.diagnosis.no_env_repair);
    assert_eq!(options.diagnosis.session_dir, Path::new("/dev/shm"));
    assert_eq!(options.without_effect, None);
}

// Requirement: CMD-9
#[test]
fn options_before_the_command_are_parsed() {
    let report = ReportConfig {
        style: Style {
            ram_unit: Some(RamUnit::Megabytes),
            gpu_ram_unit: Some(RamUnit::Bytes),
            time_unit: Some(TimeUnit::Days),
            ..Style::default()
        },
        targets: vec![target(Output::Stdout, "json")],
        most_heaviest: 3,
        warnings: Vec::new(),
        keep: None,
        spare: SparePlaces::default(),
        node_part: None,
        place_of_part: None,
        other_nodes: OtherNodes::Off,
        joint: None,
    };
    let tracking = TrackingConfig {
        sampling_interval: Some(Duration::from_millis(1)),
        expected_cores: Some(4),
        disable_logs: true,
        ..TrackingConfig::default()
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
    let options = run(&[&short[..], &flags, &command].concat());
    assert_eq!(options.command.words, words(&command));
    assert!(options.command.wait_all && options.diagnosis.no_env_repair);
    assert_eq!((&options.report, &options.tracking), (&report, &tracking));
    assert!(options.preparations.cgroup);
    assert_eq!(options.gpu, of_uuids(&["GPU-a", "GPU-b"]));
    assert_eq!(options.discovery.layers, [Layer::Scan, Layer::Subreaper]);
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
    assert_eq!(run(&[&long[..], &flags, &command].concat()), options);
}

#[test]
fn last_value_of_a_repeated_option_is_used() {
    let options =
        run(&["--st", "1", "-f", "json", "--wait-all", "--wait-all", "--st", "2", "-f", "text", "x"]);
    assert_eq!(options.tracking.interval_ns(), 2_000_000_000);
    assert_eq!(options.report.targets, [target(Output::Stderr, "text")]);
}

// Requirement: CMD-14
#[test]
fn execute_is_split_like_a_shell_does() {
    let right = words(&["python", "-c", "print('a b')", "", r"c\d", "$HOME", "*"]);
    assert_eq!(run(&["-e", r#"python -c "print('a b')" '' 'c\d' $HOME *"#]).command.words, right);
    assert_eq!(run(&["--execute=ls -l", "-f", "json"]).command.words, words(&["ls", "-l"]));
}

// Requirement: CMD-9
#[test]
fn arguments_that_are_not_utf8_pass_through() {
    let odd = OsStr::from_bytes(b"\xff\xfe");
    assert_eq!(run(&[OsStr::new("cat"), odd]).command.words, [OsStr::new("cat"), odd]);
    assert_eq!(run(&[odd]).command.words, [odd]);
}

// Requirement: CMD-12
#[test]
fn bad_values_get_one_line_with_what_is_allowed() {
    let seconds = "is not allowed: a time from 0.001 s to a year, such as 5, 500ms, 90s, 1h30m or 01:30:00";
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
        ("-f yaml x", "--format: \"yaml\" is not allowed: one of text, json, html, openmetrics".into()),
        (
            "-f pickle x",
            "--format: \"pickle\" holds classes of Python, so only Python can write it: use -f json, or python3 -m gpu_track".into(),
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
        ("--last make", "the argument '--last' cannot be used with '[COMMAND]...'".into()),
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
    assert_eq!((UsageError::status(false), UsageError::status(true)), (2, 1));
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
        ..run(&["x"]).gpu
    };
    assert_eq!(gpu, right);
    assert_eq!(
        refused(&["--gb", "voodoo", "x"]),
        "--gb: \"voodoo\" is not allowed: one of nvidia, amd, intel"
    );
    assert!(
        matches!(parse(&["--gpus", "-f", "json"]), Ok(Request::Gpus(options)) if options.places.format() == "json")
    );
}
