//! What is printed instead of a run: help, version, man page, completions.

use super::*;

// Requirement: CMD-15
#[test]
fn help_version_man_and_completions_are_printed() {
    let help = printed(&["--help"]);
    for heading in ["Command:", "Report:", "Tracking:", "Diagnosis:", "Information:", "Examples:"] {
        assert!(help.lines().any(|line| line == heading), "{heading}\n{help}");
    }
    let help = printed(&["-h"]);
    assert!(help.lines().count() <= 25 && help.lines().all(|line| line.len() <= 100), "{help}");
    for part in ["--output <FILE>", "--format <FORMAT>", "--st <TIME>", "--help ", "Examples:"] {
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
        "attach",
        "ready-fd",
        "wait-all",
        "cgroup",
        "heaviest",
        "no-env-repair",
        "no-subreaper",
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
