//! The forms pinned byte for byte by the files in tests/golden. `BLESS=1 cargo test -p gpu-track-report golden`
//! rewrites those; read the difference before it is committed.

pub(crate) mod every_text;
mod merged;
mod reference;
mod schema;
mod summaries;

use gpu_track_core::fixtures::{attached, causes, full, hostile, killed, unknown};

use super::format::stand_ins;
use super::json::{gpu_tracker as gpu_tracker_json, json};
use super::text::text;
use super::{gpu_tracker, openmetrics};
use crate::model::report::{Ending, Report};
use crate::model::style::{RamUnit, Style, TimeUnit};

fn full_style() -> Style {
    Style { full: true, ..Style::default() }
}

#[expect(clippy::disallowed_methods, reason = "BLESS rewrites the goldens")]
pub(crate) fn compare(actual: &str, name: &str, golden: &str) {
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(format!("{}/../../tests/golden/{name}", env!("CARGO_MANIFEST_DIR")), actual).unwrap();
        return;
    }
    for (number, (actual, golden)) in (1..).zip(actual.lines().zip(golden.lines())) {
        assert_eq!(actual, golden, "{name} line {number}");
    }
    assert_eq!(actual, golden, "{name}");
}

/// `golden!(report, "name")` checks both forms of a report.
macro_rules! golden {
    ($report:expr, $name:literal, $style:expr) => {{
        let (report, style): (Report, Style) = ($report, $style);
        let golden = include_str!(concat!("../../../../tests/golden/", $name, ".txt"));
        compare(&text(&report, &style), concat!($name, ".txt"), golden);
        let golden = include_str!(concat!("../../../../tests/golden/", $name, ".json"));
        compare(&json(&report, &style), concat!($name, ".json"), golden);
    }};
}

// Requirement: OUT-1
#[test]
fn golden_full() {
    golden!(full(), "full", full_style());
}

// Requirement: OUT-1
#[test]
fn golden_requested_units() {
    let style = Style {
        ram_unit: Some(RamUnit::Kilobytes),
        gpu_ram_unit: Some(RamUnit::Bytes),
        time_unit: Some(TimeUnit::Minutes),
        ..full_style()
    };
    golden!(killed(), "units", style);
}

// Requirement: OUT-3
#[test]
fn golden_unknown() {
    golden!(unknown(), "unknown", full_style());
}

// Requirement: OUT-1
#[test]
fn golden_killed() {
    golden!(killed(), "killed", full_style());
}

// Requirement: ATTACH-8
#[test]
fn golden_attached() {
    golden!(attached(), "attached", full_style());
}

// Requirement: OUT-40
#[test]
fn golden_openmetrics() {
    let check = |report: Report, name: &str, golden: &str| {
        compare(&openmetrics::report(&report, None), name, golden);
    };
    check(full(), "full.prom", include_str!("../../../../tests/golden/full.prom"));
    check(killed(), "killed.prom", include_str!("../../../../tests/golden/killed.prom"));
    check(unknown(), "unknown.prom", include_str!("../../../../tests/golden/unknown.prom"));
    check(hostile(), "hostile.prom", include_str!("../../../../tests/golden/hostile.prom"));
}

/// Of these, `exit` alone is pinned.
// Requirement: WHY-1
#[test]
fn golden_causes() {
    macro_rules! check {
        ($($name:literal)*) => {{
            let goldens = [$(($name, include_str!(concat!("../../../../tests/golden/", $name, ".json")))),*];
            let causes = causes();
            assert_eq!(causes.len(), goldens.len());
            for ((name, golden), cause) in goldens.into_iter().zip(causes) {
                let mut report = full();
                report.ending = Ending { exit: cause.0, cause: Some(cause.1), ..Ending::default() };
                let whole = json(&report, &Style::default());
                let whole: serde_json::Value = serde_json::from_str(&whole).unwrap();
                let exit = serde_json::json!({ "exit": whole["exit"] });
                compare(&(serde_json::to_string_pretty(&exit).unwrap() + "\n"), &format!("{name}.json"), golden);
            }
        }};
    }
    check!("cause_limit_ram" "cause_limit_wall" "cause_limit_processes" "cause_gpu_memory" "cause_address_space" "cause_cpu_time" "cause_file_size" "cause_time" "cause_disk_full");
}

// Requirement: OUT-9
#[test]
fn golden_hostile() {
    golden!(hostile(), "hostile", full_style());
}

// Requirement: OUT-9
#[test]
fn hostile_names_are_escaped_and_fit_the_page() {
    let text = text(&hostile(), &full_style());
    for line in text.lines() {
        assert!(!line.contains(|c: char| c.is_control() || c == '\u{202e}'), "{line:?}");
    }
    // A path without a space is not broken.
    let too_long = text.lines().find(|line| line.chars().count() > 100 && !line.contains("/z/z"));
    assert_eq!(too_long, None);
}

/// gpu_tracker 5.0's own output, `gpu-tracker --execute "sleep 1.5" --format=json`.
const GPU_TRACKER: &str = include_str!("../../../../tests/golden/gpu_tracker.json");

/// Likewise with `--format=text`.
const GPU_TRACKER_TEXT: &str = include_str!("../../../../tests/golden/gpu_tracker.txt");

/// Every object's keys in order, as `(depth, key)`, read from the lines of indented JSON.
fn keys(json: &str) -> Vec<(usize, String)> {
    let key_of = |line: &str| {
        let depth = line.len() - line.trim_start().len();
        let (key, _) = line.trim_start().strip_prefix('"')?.split_once("\": ")?;
        Some((depth, key.to_owned()))
    };
    json.lines().filter_map(key_of).collect()
}

// Requirement: OUT-2
#[test]
fn json_begins_with_gpu_tracker_keys_in_their_order() {
    let theirs = keys(GPU_TRACKER);
    assert_eq!(theirs.len(), 60);
    for report in [full(), unknown()] {
        let ours = keys(&json(&report, &Style::default()));
        assert_eq!(ours[..theirs.len()], theirs);
        assert_eq!(keys(&gpu_tracker_json(&report, &Style::default())), theirs, "its own form has no more");
    }
}

// Requirement: OUT-3
#[test]
fn percentages_of_an_unknown_number_of_gpus_are_unknown() {
    let mut report = killed();
    report.gpu.expected_gpus = None;
    let read: serde_json::Value = serde_json::from_str(&json(&report, &Style::default())).unwrap();
    let percentages = &read["gpu_utilization"]["gpu_percentages"];
    assert!(percentages["max_sum_percent"].is_f64() && percentages["mean_sum_percent"].is_f64());
    assert!(percentages["max_hardware_percent"].is_null() && percentages["mean_hardware_percent"].is_null());
    let text = gpu_tracker::text(&report, &Style::default());
    assert!(text.contains("      Max hardware percent: 0.0\n"), "{text}");
    let named = stand_ins(&report, "gpu_tracker text").unwrap();
    assert!(named.contains("gpu_percentages.max_hardware_percent"), "{named}");
}

// Requirement: OUT-2
#[test]
fn json_values_have_gpu_tracker_types() {
    fn same(theirs: &serde_json::Value, ours: &serde_json::Value, path: &str) {
        use serde_json::Value::{Number, Object, String};
        match (theirs, ours) {
            (Object(theirs), Object(ours)) => {
                theirs.iter().for_each(|(key, value)| same(value, &ours[key], &format!("{path}.{key}")));
            }
            (Number(theirs), Number(ours)) => assert_eq!(theirs.is_f64(), ours.is_f64(), "{path}"),
            (String(_), String(_)) => {}
            other => panic!("{path}: {other:?}"),
        }
    }
    let theirs = serde_json::from_str(GPU_TRACKER).unwrap();
    let style = Style::default();
    for ours in
        [json(&full(), &style), gpu_tracker_json(&full(), &style), gpu_tracker_json(&unknown(), &style)]
    {
        same(&theirs, &serde_json::from_str(&ours).unwrap(), "");
    }
}

// Requirement: CMD-16
#[test]
fn what_gpu_tracker_gives_as_zero_is_a_number_in_its_form() {
    let text = gpu_tracker::text(&unknown(), &Style::default());
    assert!(text.contains("      Private RSS: 0.0\n") && !text.contains("n/a"), "{text}");
    assert!(text.contains("   Main number of threads: 0\n"), "{text}");
    let named = stand_ins(&unknown(), "gpu_tracker json").unwrap();
    let all = json(&unknown(), &Style::default());
    assert!(all.contains("\"private_rss\": null"), "{all}");
    for key in ["max_ram.main", "cpu_utilization.system", "gpu_utilization.gpu_percentages"] {
        assert!(named.contains(key), "{key}: {named}");
    }
    assert!(!named.contains("compute_time"), "{named}");
    assert_eq!(stand_ins(&unknown(), "json"), None, "it has null for them");
    assert_eq!(stand_ins(&full(), "gpu_tracker text"), None);
}

// Requirement: OUT-2
#[test]
fn text_has_gpu_tracker_labels_in_their_order() {
    let labels = |text: &str| -> Vec<String> {
        text.lines().map(|line| line.split_once(':').unwrap_or((line, "")).0.to_owned()).collect()
    };
    let theirs = labels(GPU_TRACKER_TEXT);
    assert_eq!(theirs.len(), 60);
    for report in [full(), unknown()] {
        assert_eq!(labels(&gpu_tracker::text(&report, &Style::default())), theirs);
    }
}
