//! Where the report goes, and how much of it is text.

use std::fs;
use std::path::PathBuf;

use super::*;

// Requirement: OUT-7
#[test]
fn output_patterns_are_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let given = directory.path().join("r.%j.%r.%h.%p.%t.%%");
    let options = run(&[OsStr::new("-o"), given.as_os_str(), OsStr::new("x")]);
    let files: Vec<_> = options.report.files().collect();
    assert_eq!(files, [directory.path().join("r.17_4..._7.node3.4242.20251009T085320.%")]);
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

// Requirement: OUT-27
#[test]
fn report_with_the_name_of_a_tracking_file_has_a_form_that_is_asked_for() {
    for name in ["/tmp/x.csv", "/tmp/x.jsonl", "/tmp/x.sqlite", "/tmp/x.pftrace"] {
        let line = refused(&["-o", name, "x"]);
        assert_eq!(
            line,
            format!(
                "--output: \"{name}\" is a name of a tracking file: --tf writes the run over time there, and -f \
                 text a report"
            )
        );
        let formats = |args: &[&str]| {
            run(args).report.targets.into_iter().map(|target| target.format).collect::<Vec<_>>()
        };
        assert_eq!(formats(&["-f", "text", "-o", name, "x"]), ["text"]);
    }
}

// Requirement: OUT-18, OUT-19
#[test]
fn summary_is_for_stderr_and_a_file_is_full() {
    let style = |args: &[&str]| {
        let ReportConfig { style, targets, .. } = run(args).report;
        targets[0].style_here(style)
    };
    let [quiet, full] = [Style { quiet: true, ..Style::default() }, Style { full: true, ..Style::default() }];
    assert_eq!(style(&["x"]), Style::default());
    assert_eq!(style(&["-o", "/dev/stderr", "x"]), Style::default());
    assert_eq!([style(&["-q", "x"]), style(&["--quiet", "x"])], [quiet; 2]);
    for args in [&["--full", "x"][..], &["-o", "-", "x"], &["-o", "/dev/null", "x"], &["-q", "-o", "-", "x"]]
    {
        assert_eq!(style(args), full, "{args:?}");
    }
    assert!(run(&["--hints", "x"]).report.style.hints);
    assert!(refused(&["-q", "--full", "x"]).contains("cannot be used with"));
}

/// The places of a command line and the form in each, sorted.
fn forms(args: &str) -> Vec<String> {
    let options = run(&args.split(' ').collect::<Vec<_>>());
    let here = std::env::current_dir().unwrap();
    let name = |target: &ReportTarget| match target.output.file() {
        Some(path) => path.strip_prefix(&here).unwrap().display().to_string(),
        None => target.output.to_string(),
    };
    options.report.targets.iter().map(|target| format!("{} {}", name(target), target.format)).collect()
}

// Requirement: OUT-27
#[test]
fn name_of_a_file_says_its_form_where_the_option_does_not() {
    assert_eq!(forms("x"), ["stderr text"]);
    assert_eq!(forms("-f json x"), ["stderr json"]);
    assert_eq!(forms("-o a.json x"), ["a.json json"]);
    assert_eq!(forms("-o a.json -o a.txt -o a.log x"), ["a.json json", "a.txt text", "a.log text"]);
    // One file has the form that was asked for, whatever its name.
    assert_eq!(forms("-f json -o a.txt x"), ["a.txt json"]);
    assert_eq!(forms("-f json -o a.txt -o a x"), ["a.txt text", "a json"]);
    assert_eq!(forms("-o a.json -o - -f text x"), ["a.json json", "stdout text"]);
    let twice = "stands for the same place as another -o";
    assert_eq!(refused(&["-o", "a.json", "-o", "./a.json", "x"]), format!("--output: \"./a.json\" {twice}"));
}

// Requirement: OUT-27
#[test]
fn summary_is_written_beside_files() {
    assert_eq!(forms("--summary -f json -o a.txt x"), ["a.txt json", "stderr text"]);
    assert_eq!(forms("--summary x"), ["stderr text"]);
    assert_eq!(forms("--summary -o /dev/stderr x"), ["stderr text"]);
    let options = run(&["--summary", "-o", "a.json", "x"]);
    assert!(!options.report.targets[1].style_here(options.report.style).full);
    for other in ["--quiet", "--full"] {
        assert!(refused(&["--summary", other, "x"]).contains("cannot be used with"));
    }
}

#[test]
fn recover_takes_output_and_style() {
    let Ok(Request::Recover(options)) = parse(&["--recover", "-f", "json", "--ru", "bytes", "-o", "r.%p"])
    else {
        panic!("not recovered");
    };
    let style = Style { ram_unit: Some(RamUnit::Bytes), full: true, ..Style::default() };
    assert_eq!(options.places.outputs, [PathBuf::from("r.%p")]);
    let [target] = &options.report.targets[..] else { panic!("{:?}", options.report.targets) };
    assert_eq!((target.format.as_str(), target.style_here(options.report.style)), ("json", style));
    assert_eq!(
        refused(&["--recover", "-o", "/no/such"]),
        "--output: \"/no/such\" needs the directory \"/no\", which does not exist: create it first"
    );
}

#[test]
fn relative_output_becomes_absolute() {
    let here = std::env::current_dir().unwrap();
    let output = |given: &str| run(&["-o", given, "x"]).report.targets[0].output.clone();
    assert_eq!(output("report.json"), Output::File(here.join("report.json")));
    assert_eq!(output("/dev/stderr"), Output::Stderr);
    assert_eq!(output("/dev/stdout"), Output::Stdout);
    let Output::Stream(null) = output("/dev/null") else { panic!("a device is a stream") };
    assert_eq!((null.path, null.kind), (PathBuf::from("/dev/null"), libc::S_IFCHR));
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
