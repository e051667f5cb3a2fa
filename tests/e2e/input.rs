//! Bad input gives one line that names the option and the value, and status 2. The command is not started.

use crate::support::{run::BINARY, tracked};

/// Asserts that these options are refused. The command would leave a file behind if it were started.
#[track_caller]
fn refused(options: &[&str], named: &[&str]) {
    let probe = tracked(["true"]);
    let marker = probe.path("started");
    let run = tracked(["touch", marker.to_str().unwrap()]).only_options(options).run();
    assert_eq!(run.status.code(), Some(2), "{options:?}: {} {}", run.status, run.stderr);
    assert_eq!(run.stdout, "");
    assert_eq!(run.stderr.lines().count(), 1, "{options:?}: {}", run.stderr);
    for part in named {
        assert!(run.stderr.contains(part), "{options:?}: {part:?} is not in {}", run.stderr);
    }
    assert!(!marker.exists(), "{options:?}: the command was started");
}

// Requirement: CMD-12
#[test]
fn unknown_format_is_refused() {
    refused(&["-f", "yaml"], &["-f", "yaml", "json", "text", "html"]);
}

// Requirement: CMD-13
#[test]
fn missing_output_directory_is_refused() {
    refused(&["-o", "/nonexistent/directory/report"], &["-o", "/nonexistent/directory"]);
}

// Requirement: CMD-13
#[test]
fn directory_as_output_is_refused() {
    refused(&["-o", "/tmp"], &["-o", "/tmp"]);
}

// Requirement: CMD-12
#[test]
fn unknown_output_pattern_is_refused() {
    refused(&["-o", "/tmp/report.%q"], &["-o", "%q"]);
}

// Requirement: CMD-12
#[test]
fn unknown_units_are_refused() {
    refused(&["--ru", "furlongs"], &["furlongs", "gigabytes"]);
    refused(&["--gru", "furlongs"], &["furlongs", "gigabytes"]);
    refused(&["--tu", "fortnights"], &["fortnights", "hours"]);
}

// Requirement: CMD-12
#[test]
fn sampling_interval_out_of_range_is_refused() {
    for value in ["0.0001", "0", "-1", "nan", "inf", "soon"] {
        refused(&[&format!("--st={value}")], &["--st", value]);
    }
}

// Requirement: CMD-12
#[test]
fn zero_expected_cores_is_refused() {
    refused(&["--nec", "0"], &["--nec", "0"]);
}

// Requirement: CMD-12, CMD-16
#[test]
fn pickle_is_refused_with_the_format_to_use() {
    refused(&["-f", "pickle"], &["pickle", "-f json"]);
}

// Requirement: CMD-14
#[test]
fn bad_configuration_files_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let no_json = file("no_json", "sleep_time = 1");
    refused(&["--tconfig", &no_json], &["--tconfig", &no_json]);
    refused(&["--tconfig", &file("unknown", r#"{"sleep_tim": 1}"#)], &["--tconfig", "sleep_tim"]);
    refused(&["--tconfig", "/nonexistent.json"], &["--tconfig", "/nonexistent.json"]);
}

// Requirement: CMD-12
#[test]
fn unknown_option_is_refused() {
    refused(&["--fast"], &["--fast"]);
}

// Requirement: CMD-12
#[test]
fn unknown_layers_are_refused() {
    refused(&["--layers", "preload,magic"], &["--layers", "magic"]);
}

// Requirement: CMD-12
#[test]
fn execute_option_plus_command_or_neither_is_refused() {
    refused(&["-e", "true"], &["-e"]);
    let output = std::process::Command::new(BINARY).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(String::from_utf8_lossy(&output.stderr).lines().count(), 1);
}

/// Runs `-e TEXT` without a COMMAND; the report goes to the run's file.
fn execute(text: &str) -> crate::support::Run {
    tracked::<String>([]).options(&["-e", text]).run()
}

// Requirement: CMD-14
#[test]
fn execute_line_with_an_open_quote_is_refused() {
    let run = execute("echo 'open");
    assert_eq!(run.status.code(), Some(2));
    assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
}

// Requirement: CMD-14
#[test]
fn execute_line_is_split_as_a_shell_does() {
    let run = execute(r#"printf '<%s>' "a  b" 'c"d' e\ f '' "g'h""#);
    run.assert_clean(0);
    assert_eq!(run.stdout, r#"<a  b><c"d><e f><><g'h>"#);
}

// Requirement: CMD-9
#[test]
fn options_after_the_command_belong_to_the_command() {
    let run = tracked(["printf", "%s ", "-f", "yaml", "--help", "--", "-e"]).run();
    run.assert_clean(0);
    assert_eq!(run.stdout, "-f yaml --help -- -e ");
}

// Requirement: CMD-9
#[test]
fn non_utf_8_arguments_pass_through() {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;
    let odd = OsString::from_vec(vec![0xff, 0xfe, b'x']);
    let run = tracked([
        OsString::from("sh"),
        "-c".into(),
        "printf %s \"$1\" | od -An -tx1".into(),
        "sh".into(),
        odd,
    ])
    .run();
    run.assert_clean(0);
    assert_eq!(run.stdout.trim(), "ff fe 78");
}

// Requirement: CMD-11
#[test]
fn long_sampling_interval_does_not_delay_the_end() {
    // The watchdog is shorter than the interval.
    let run = tracked(["/bin/true"]).options(&["--st", "100000"]).run();
    run.assert_clean(0).assert_all_exact(1);
}
