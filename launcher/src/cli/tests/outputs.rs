//! Where the report goes, and how much of it is text.

use std::fs;
use std::path::PathBuf;

use super::*;

// Requirement: OUT-7
#[test]
fn output_patterns_are_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let given = directory.path().join("r.%j.%r.%h.%p.%t.%%");
    let Output::File(path) = run(&[OsStr::new("-o"), given.as_os_str(), OsStr::new("x")]).report.output
    else {
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
    let style = |args: &[&str]| run(args).report.style;
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

#[test]
fn recover_takes_output_and_style() {
    let Ok(Request::Recover(options)) = parse(&["--recover", "-f", "json", "--ru", "bytes", "-o", "r.%p"])
    else {
        panic!("not recovered");
    };
    let style = Style { ram_unit: Some(RamUnit::Bytes), full: true, ..Style::default() };
    assert_eq!(options.output, Some("r.%p".into()));
    assert_eq!((options.report.format.as_str(), options.report.style), ("json", style));
    assert_eq!(
        refused(&["--recover", "-o", "/no/such"]),
        "--output: \"/no/such\" needs the directory \"/no\", which does not exist: create it first"
    );
}

#[test]
fn relative_output_becomes_absolute() {
    let here = std::env::current_dir().unwrap();
    assert_eq!(run(&["-o", "report.json", "x"]).report.output, Output::File(here.join("report.json")));
    assert_eq!(run(&["-o", "/dev/stderr", "x"]).report.output, Output::Stderr);
    assert_eq!(run(&["-o", "/dev/stdout", "x"]).report.output, Output::Stdout);
    let Output::Stream(null) = run(&["-o", "/dev/null", "x"]).report.output else {
        panic!("a device is a stream")
    };
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
