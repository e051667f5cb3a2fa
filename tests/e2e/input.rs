//! Bad input: one clear line that names the option and the value, status 2, and the command never started.

use crate::support::{run::BINARY, tracked};

/// Runs with these options and a command that would leave a file behind.
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

#[test]
fn a_bad_format() {
    refused(&["-f", "yaml"], &["-f", "yaml", "json", "text"]);
}

#[test]
fn an_output_directory_that_does_not_exist() {
    refused(&["-o", "/nonexistent/directory/report"], &["-o", "/nonexistent/directory"]);
}

#[test]
fn an_output_that_is_a_directory() {
    refused(&["-o", "/tmp"], &["-o", "/tmp"]);
}

#[test]
fn an_unknown_output_pattern() {
    refused(&["-o", "/tmp/report.%q"], &["-o", "%q"]);
}

#[test]
fn unknown_units() {
    refused(&["--ru", "furlongs"], &["furlongs", "gigabytes"]);
    refused(&["--gru", "furlongs"], &["furlongs", "gigabytes"]);
    refused(&["--tu", "fortnights"], &["fortnights", "hours"]);
}

#[test]
fn an_interval_out_of_range() {
    for value in ["0.0001", "0", "-1", "nan", "inf", "soon"] {
        refused(&[&format!("--st={value}")], &["--st", value]);
    }
}

#[test]
fn no_expected_cores() {
    refused(&["--nec", "0"], &["--nec", "0"]);
}

#[test]
fn a_gpu_that_is_not_there() {
    refused(&["--guuids", "GPU-00000000-0000-0000-0000-000000000000"], &["--guuids", "GPU-00000000"]);
}

#[test]
fn bad_configuration_files() {
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

#[test]
fn an_unknown_option() {
    refused(&["--fast"], &["--fast"]);
}

#[test]
fn unknown_layers() {
    refused(&["--layers", "preload,magic"], &["--layers", "magic"]);
}

#[test]
fn both_forms_of_the_command_or_none() {
    refused(&["-e", "true"], &["-e"]);
    let output = std::process::Command::new(BINARY).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(String::from_utf8_lossy(&output.stderr).lines().count(), 1);
}

/// `-e TEXT` without a COMMAND, with a report to the run's file.
fn execute(text: &str) -> crate::support::Run {
    tracked::<String>([]).options(&["-e", text]).run()
}

#[test]
fn an_execute_line_with_an_open_quote() {
    let run = execute("echo 'open");
    assert_eq!(run.status.code(), Some(2));
    assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
}

#[test]
fn an_execute_line_is_split_as_a_shell_splits_words() {
    let run = execute(r#"printf '<%s>' "a  b" 'c"d' e\ f '' "g'h""#);
    run.assert_clean(0);
    assert_eq!(run.stdout, r#"<a  b><c"d><e f><><g'h>"#);
}

#[test]
fn options_behind_the_command_are_the_commands() {
    let run = tracked(["printf", "%s ", "-f", "yaml", "--help", "--", "-e"]).run();
    run.assert_clean(0);
    assert_eq!(run.stdout, "-f yaml --help -- -e ");
}

#[test]
fn arguments_that_are_not_utf_8_pass_through() {
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

#[test]
fn an_interval_longer_than_the_command_does_not_hold_it_up() {
    // The watchdog is shorter than the interval.
    let run = tracked(["/bin/true"]).options(&["--st", "100000"]).run();
    run.assert_clean(0).assert_all_exact(1);
}
