//! No text of a report controls the terminal that shows it, whatever is made of the report.

use serde_json::Value;

use crate::compare::{Run, compare, json as comparison_json, text as comparison_text};
use crate::events::{self, Filter};
use crate::json::json;
use crate::model::config::ReportTarget;
use crate::model::report::Report;
use crate::model::style::{Output, Style};
use crate::read::read;
use crate::study::plan::{PlannedRun, Variant};
use crate::study::{Plan, Study};
use crate::{format, merge, over_time, quote, runs, study};
use gpu_track_core::fixtures::{all, attached, full, killed, nodes};

/// A text that a terminal acts on: it would clear the screen, by a control sequence of 7 or 8 bits, and change the direction.
const HOSTILE: &str = "a\x1b[2J\u{9b}2J\u{202e}\r\nb";

/// Puts `text` in place of each text of a report: also in names of limits, never in a word that the report chooses itself.
pub(crate) fn with_texts(report: &Report, text: &str) -> (Report, usize) {
    let mut document: Value = serde_json::from_str(&json(report, &Style::default())).unwrap();
    let mut replaced = 0;
    for pointer in pointers(&document, String::new()) {
        let before = document.clone();
        *document.pointer_mut(&pointer).unwrap() = text.into();
        match read(&document.to_string()) {
            Ok(_) => replaced += 1,
            Err(_) => document = before,
        }
    }
    let mut report = read(&document.to_string()).unwrap().report;
    let ulimits = std::mem::take(&mut report.allowed.ulimits);
    report.allowed.ulimits =
        ulimits.into_iter().map(|(name, limit)| (format!("{name}{text}"), limit)).collect();
    for variables in [&mut report.allowed.slurm, &mut report.allowed.job] {
        let named = std::mem::take(variables).into_iter();
        *variables = named.map(|(name, value)| (format!("{name}{text}"), value)).collect();
    }
    (report, replaced)
}

/// The place of each text in a JSON document.
fn pointers(value: &Value, at: String) -> Vec<String> {
    let key = |key: &str| format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"));
    match value {
        Value::String(_) => vec![at],
        Value::Array(items) => {
            items.iter().enumerate().flat_map(|(i, item)| pointers(item, format!("{at}/{i}"))).collect()
        }
        Value::Object(fields) => fields.iter().flat_map(|(name, value)| pointers(value, key(name))).collect(),
        _ => Vec::new(),
    }
}

/// All that is made of a report and shown on a terminal, each with its name. `text` is the name of its file, and what the user
/// calls it.
fn shown(report: &Report, text: &str) -> Vec<(String, String)> {
    let styles = [
        Style::default(),
        Style { full: true, hints: true, ..Style::default() },
        Style { quiet: true, ..Style::default() },
    ];
    // A browser shows the page, and its own tests say what holds for it.
    let forms = format::names().filter(|form| *form != format::HTML_NAME);
    let forms = forms.chain(["gpu_tracker text", "gpu_tracker json"]);
    let targets = forms.map(|form| ReportTarget { format: form.to_owned(), output: Output::Stderr });
    let in_styles = |target: ReportTarget| {
        styles.map(|style| (target.format.clone(), format::render(report, &target, style)))
    };
    let mut shown: Vec<(String, String)> = targets.flat_map(in_styles).collect();
    let mut add = |name: &str, text: String| shown.push((name.to_owned(), text));
    let listed = events::of_report(report, &Filter::default());
    add("events", events::text(&listed));
    add("events in JSON", events::json(&listed));
    add("events in CSV", events::csv(&listed));
    let points = over_time::from_report(report);
    add("points", over_time::text(&points));
    add("points in JSON", over_time::json(&points));
    add("points in CSV", over_time::csv(&points));
    let rows = [runs::row(text.to_owned(), report)];
    add("table of runs", runs::text(&rows, 80));
    add("table of runs in JSON", runs::json(&rows));
    add("table of runs in CSV", runs::csv(&rows));
    let run = |name: Option<&str>| Run {
        name: name.map(str::to_owned),
        file: text.to_owned(),
        report: report.clone(),
    };
    let comparison = compare(&[run(Some(text)), run(None)]);
    add("comparison", comparison_text(&comparison));
    add("comparison in JSON", comparison_json(&comparison));
    if let Some(ranks) = &report.ranks {
        add("ranks in CSV", merge::ranks_csv(&ranks.heaviest));
    }
    let study = study_of(report, text);
    add("study in full", study::full_text(&study));
    study::forms().for_each(|form| add(&format!("study in {form}"), study::render(&study, form)));
    shown
}

/// Makes a study of two variants with two runs each, of which one has this report.
fn study_of(report: &Report, text: &str) -> Study {
    let variant = |number: usize| Variant {
        name: format!("{text}{number}"),
        command: text.to_owned(),
        prepare: None,
        file: number.to_string(),
    };
    let plan = Plan::new([0, 1].map(variant).into(), 2, 0, false, 7);
    let run = |planned: &PlannedRun| study::Run {
        planned: *planned,
        file: text.to_owned(),
        report: if planned.variant == 0 { full() } else { report.clone() },
    };
    let runs: Vec<study::Run> = plan.order.iter().map(run).collect();
    study::study(&plan, &runs, true)
}

/// Whether a terminal would act on a character instead of showing it. A line may end, and a tab is a blank.
fn is_acted_on(c: char) -> bool {
    quote::is_hidden(c) && c != '\n' && c != '\t'
}

// Requirement: OUT-9
#[test]
fn no_text_of_a_report_controls_a_terminal_in_any_form() {
    let of_nodes = merge::merge(&nodes()).unwrap().report;
    let all = all().into_iter().chain([("killed", killed()), ("attached", attached()), ("nodes", of_nodes)]);
    for (name, report) in all {
        let (hostile, replaced) = with_texts(&report, HOSTILE);
        assert!(replaced >= 10, "{name}: {replaced}");
        // Texts of its width are cut alike, so each form has the same lines.
        let harmless = "x".repeat(quote::width(&quote::escape(HOSTILE)));
        let (plain, _) = with_texts(&report, &harmless);
        let (hostile, plain) = (shown(&hostile, HOSTILE), shown(&plain, &harmless));
        for ((form, text), (_, plain)) in hostile.iter().zip(&plain) {
            let line = text.lines().find(|line| line.contains(is_acted_on));
            assert_eq!(line, None, "{name}, {form}");
            assert_eq!(text.lines().count(), plain.lines().count(), "{name}, {form}: {text}");
        }
        let escaped = hostile.iter().filter(|(_, text)| text.contains("x1b[2J") || text.contains("u001b[2J"));
        assert!(escaped.count() >= 10, "{name}: the report's texts are there");
    }
}
