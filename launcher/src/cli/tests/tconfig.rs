//! Files of gpu_tracker's keywords (`--tconfig`), and the name `gpu-tracker`.

use std::fs;

use super::*;
use crate::process::exit::Manner;

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
    let style = Style {
        ram_unit: Some(RamUnit::Megabytes),
        gpu_ram_unit: Some(RamUnit::Kilobytes),
        time_unit: Some(TimeUnit::Minutes),
        ..Style::default()
    };
    let given = |options: Options| {
        let TrackingConfig { sampling_interval, expected_cores, disable_logs, .. } = options.tracking;
        (options.report.style, sampling_interval, expected_cores, disable_logs, options.gpu)
    };
    let gpu = GpuConfig { vendor: Some(Vendor::Amd), ..of_uuids(&["GPU-a", "GPU-b"]) };
    let right = (style, Some(Duration::from_millis(500)), Some(3), true, gpu);
    assert_eq!(given(with_config(json, &[]).unwrap()), right);
    let style = Style { time_unit: Some(TimeUnit::Days), ..style };
    let gpu = GpuConfig { vendor: Some(Vendor::Nvidia), ..of_uuids(&["GPU-c"]) };
    let right = (style, Some(Duration::from_secs(2)), Some(3), true, gpu);
    let options = ["--st", "2", "--tu", "days", "--guuids", "GPU-c", "--gb", "nvidia"];
    assert_eq!(given(with_config(json, &options).unwrap()), right);
    let options = with_config(r#"{"gpu_uuids": "GPU-a,GPU-b", "n_expected_cores": null}"#, &[]).unwrap();
    assert_eq!(options.gpu, of_uuids(&["GPU-a", "GPU-b"]));
    assert_eq!(options.tracking.expected_cores, None);
}

// Requirement: CMD-14
#[test]
fn keywords_and_options_without_effect_are_named_in_one_line() {
    let json = r#"{"join_timeout": 2, "n_join_attempts": 1, "process_id": 7, "resource_usage_file": "x"}"#;
    let options = with_config(json, &[]).unwrap();
    let line = "without effect: join_timeout, n_join_attempts, process_id, resource_usage_file";
    assert_eq!(options.without_effect.unwrap(), line);
    let options = with_config(r#"{"join_timeout": 2.5}"#, &[]).unwrap();
    assert_eq!(options.without_effect.unwrap(), "without effect: join_timeout");
    let json = r#"{"tracking_file": null, "overwrite": false, "process_id": null}"#;
    let options = with_config(json, &[]).unwrap();
    assert_eq!((options.without_effect, options.preparations.tracking_files), (None, Vec::new()));
}

// Requirement: ATTACH-7
#[test]
fn process_id_is_attached_to_where_there_is_no_command() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config.json");
    fs::write(&path, r#"{"process_id": 77}"#).unwrap();
    let config = ["--tconfig", path.to_str().unwrap()];
    let given = |more: &[&str]| match parse(&[&config, more].concat()) {
        Ok(Request::Run(options)) => Ok(options.command.attach),
        Ok(other) => panic!("{other:?}"),
        Err(refusal) => Err(refusal.to_string()),
    };
    assert_eq!(given(&[]), Ok(Some(77)));
    assert_eq!(given(&["--attach", "78"]), Ok(Some(78)));
    assert_eq!(given(&["true"]), Ok(None));
    for option in ["--wait-all", "--cgroup"] {
        let line = format!("{option}: it is for a COMMAND, and --tconfig names a process to track");
        assert_eq!(given(&[option]), Err(line));
    }
    for [option, value] in [["--limit", "wall=1h"], ["--signal-at", "wall>1h=USR1"]] {
        let line = format!("{option}: it is for a COMMAND, and --tconfig names a process to track");
        assert_eq!(given(&[option, value]), Err(line));
    }
    let json = r#"{"process_id": -1}"#;
    fs::write(&path, json).unwrap();
    assert!(given(&[]).unwrap_err().ends_with("\"-1\" is not allowed: the pid of a process, at least 1"));
}

// Requirement: CMD-14, TIME-5
#[test]
fn tracking_file_of_tconfig_is_overridden_by_the_option() {
    let name = |options: Options| {
        let [path] = &options.preparations.tracking_files[..] else { panic!("{options:?}") };
        (path.file_name().unwrap().to_str().unwrap().to_owned(), options.preparations.overwrite)
    };
    let json = r#"{"tracking_file": "x.csv", "overwrite": true}"#;
    assert_eq!(name(with_config(json, &[]).unwrap()), ("x.csv".to_owned(), true));
    let options = with_config(r#"{"tracking_file": "x.csv"}"#, &["--tracking-file", "y.csv"]).unwrap();
    assert_eq!(name(options), ("y.csv".to_owned(), false));
    let line = with_config(r#"{"tracking_file": "x.txt"}"#, &[]).unwrap_err();
    assert_eq!(
        line,
        "--tf: \"x.txt\" has a form that can't be written: name a file that ends in .csv, .jsonl, .pftrace or .sqlite"
    );
}

// Requirement: CMD-14
#[test]
fn bad_tconfig_gets_one_line() {
    let keys = "allowed are sleep_time, ram_unit, gpu_ram_unit, time_unit, n_expected_cores, gpu_uuids, gpu_brand, \
                disable_logs, tracking_file, overwrite, process_id";
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
            "has a wrong sleep_time: \"true\" is not allowed: a time from 0.001 s to a year, such as 5, 500ms, 90s, 1h30m or 01:30:00".into(),
        ),
        (
            r#"{"sleep_time": 0.0001}"#,
            "has a wrong sleep_time: \"0.0001\" is not allowed: a time from 0.001 s to a year, such as 5, 500ms, 90s, 1h30m or 01:30:00"
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

fn by_the_name_gpu_tracker(args: &[&str]) -> Result<Request, UsageError> {
    crate::cli::parse(words(&[&["/opt/bin/gpu-tracker"], args].concat()), &patterns())
}

// Requirement: CMD-16
#[test]
fn name_gpu_tracker_has_its_defaults() {
    let run = |args: &[&str]| match by_the_name_gpu_tracker(args) {
        Ok(Request::Run(options)) => *options,
        other => panic!("{other:?}"),
    };
    let options = run(&["-e", r"grep it's  a\.b"]);
    assert_eq!(options.command.words, words(&["grep", "it's", r"a\.b"]), "str.split of Python");
    assert_eq!(options.report.targets, [target(Output::Stdout, "gpu_tracker text")]);
    assert_eq!(options.tracking.interval_ns(), 1_000_000_000);
    let units = Style {
        ram_unit: Some(RamUnit::Gigabytes),
        gpu_ram_unit: Some(RamUnit::Gigabytes),
        time_unit: Some(TimeUnit::Hours),
        full: true,
        ..Style::default()
    };
    assert_eq!(options.report.style, units);
    assert_eq!(options.exit_manner, Manner::GpuTracker);
    let options = run(&["-e", "ls", "-fjson", "-o", "/dev/stderr", "--st=0.5", "--tu=days"]);
    assert_eq!(options.report.targets, [target(Output::Stderr, "gpu_tracker json")]);
    assert_eq!(options.tracking.interval_ns(), 500_000_000);
    assert_eq!(options.report.style, Style { time_unit: Some(TimeUnit::Days), ..units });
    let patterns = run(&["-e", "ls", "--out=/tmp/100%j%.txt"]);
    let literal = target(Output::File("/tmp/100%j%.txt".into()), "gpu_tracker text");
    assert_eq!(patterns.report.targets, [literal], "no patterns");
    let refused = |args: &[&str]| by_the_name_gpu_tracker(args).unwrap_err().to_string();
    match by_the_name_gpu_tracker(&["sub-track", "analyze", "--tf=a%", "--stf", "b", "-o", "-x"]) {
        Ok(Request::Companion(line)) => {
            let words = "gpu-track sub-track analyze --format=text --tf=a% --stf=b --output=./-x".split(' ');
            assert!(line.iter().eq(words), "{line:?}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(refused(&["-e", "  "]), "Empty command provided.");
    match by_the_name_gpu_tracker(&["--o=x", "-e", "ls"]) {
        Ok(Request::Refuse(text)) => {
            assert!(text.starts_with("--o is not a unique prefix: --output, --overwrite?\nUsage:\n"))
        }
        other => panic!("{other:?}"),
    }
}
