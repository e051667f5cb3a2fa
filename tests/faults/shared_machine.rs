//! Attacks by another local user, on a user's run and on root's.

use std::fs;

use crate::support::tracked;

// Requirement: OUT-9
#[test]
fn names_do_not_control_the_terminal_by_json_or_messages() {
    let hidden = ["\u{7f}", "\u{9b}", "\u{202e}", "\u{200b}", "\u{feff}", "\x1b"];
    let name = format!("x{}", hidden.concat());
    let directory = tempfile::tempdir().unwrap();
    let report = directory.path().join("raw.json");
    let run = tracked(["sh", "-c", "exit 3", &name]);
    let run = run.only_options(&["-f", "json", "-o", report.to_str().unwrap()]).run();
    assert_eq!(run.status.code(), Some(3), "{}", run.stderr);
    let text = fs::read_to_string(&report).unwrap();
    let read: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(read["command"].to_string().contains('x'), "{text}");
    let run = tracked([format!("/no/such/{name}")]).only_options(&["-q"]).run();
    assert_eq!(run.status.code(), Some(127));
    assert!(run.stderr.contains("cannot run"), "{}", run.stderr);
    for shown in [text, run.stderr.clone()] {
        assert!(!hidden.iter().any(|hidden| shown.contains(hidden)), "{shown:?}");
    }
}
