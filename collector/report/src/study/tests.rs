use gpu_track_core::fixtures::full;

use super::plan::{Variant, file_stem};
use super::*;

/// A plan with these variants.
fn plan(names: &[&str], runs: usize) -> Plan {
    let variant = |name: &&str| Variant {
        name: (*name).to_owned(),
        command: format!("./{name}"),
        prepare: None,
        file: file_stem(name),
    };
    Plan::new(names.iter().map(variant).collect(), runs, 0, false, 7)
}

/// A run of a machine without a GPU.
fn run(variant: usize, number: usize, wall_s: f64, ram_bytes: u64) -> Run {
    let mut report = full();
    report.gpus.clear();
    report.time_spent.iter_mut().for_each(|spent| spent.states.clear());
    report.wall_s = wall_s;
    report.cpu_time.total_s = Some(wall_s * 2.0);
    report.max_ram.combined.footprint_bytes = Some(ram_bytes);
    report.io = crate::model::report::Io { read_bytes: Some(0), ..crate::model::report::Io::default() };
    report.contention.is_contended = Some(false);
    report.coverage.uncounted_reason = None;
    Run { planned: PlannedRun { variant, run: number }, file: format!("{variant}.{number}.json"), report }
}

/// Five runs each of two variants: the second needs half of the memory, and about the same time.
fn halves() -> (Plan, Vec<Run>) {
    let runs = (1..=5).flat_map(|number| {
        let noise = number as f64 / 100.0;
        let other_noise = ((number * 3) % 5) as f64 / 100.0;
        let number_bytes = number as u64 * 1_000_000;
        [
            run(0, number, 2.0 + noise, 1_200_000_000 + number_bytes),
            run(1, number, 2.005 + other_noise, 600_000_000 + number_bytes),
        ]
    });
    (plan(&["large_one", "50% | small"], 5), runs.collect())
}

fn row<'a>(study: &'a Study, name: &str) -> &'a Row {
    study.quantities.iter().find(|row| row.quantity == name).unwrap()
}

// Requirement: CMD-32
#[test]
fn text_has_the_table_and_a_sentence_for_each_quantity() {
    let (plan, runs) = halves();
    let text = render(&study(&plan, &runs, false), "text");
    println!("{text}");
    let expected = "\
variant       runs   wall time [s]   CPU time [s]    cores           RAM peak [GB]
large_one     5      2.030 ± 0.016   4.060 ± 0.032   2.000 ± 0.000   1.203 ± 0.002
50% | small   5      2.025 ± 0.016   4.050 ± 0.032   2.000 ± 0.000   0.603 ± 0.002 *
*: differs from large_one (Mann-Whitney U test, two-sided, by Holm p < 0.05)

wall time, no difference from large_one shown: 50% | small 1.00 x (p = 0.69)
CPU time, no difference from large_one shown: 50% | small 1.00 x (p = 0.69)
cores, no difference from large_one shown: 50% | small 1.00 x (p = 1.00)
needs less memory than large_one, sure: 50% | small 0.50 x (p = 0.0079)

GPU RAM peak, GPU utilization, GPU energy: not known of any run (there is no GPU)
I/O written: not known of any run (no process's figure is known)
I/O read, waiting for a core, waiting for storage, waiting for the network, waiting for locks: 0 in all runs
";
    assert_eq!(text, expected);
}

#[test]
fn full_text_has_every_statistic_of_each_quantity() {
    let (plan, runs) = halves();
    let text = full_text(&study(&plan, &runs, false));
    println!("{text}");
    let expected = "
RAM peak [GB]   mean    sd      min     max     95% from   to      ratio   single test   by Holm
large_one       1.203   0.002   1.201   1.205   1.202      1.204
50% | small     0.603   0.002   0.601   0.605   0.602      0.604   0.50    p = 0.0079    p = 0.0079
";
    assert!(text.contains(expected), "{text}");
}

// Requirement: CMD-32
#[test]
fn names_of_variants_are_no_markup_in_any_form() {
    let (plan, runs) = halves();
    let study = study(&plan, &runs, false);
    let markdown = render(&study, "markdown");
    let lines: Vec<&str> = markdown.lines().collect();
    assert_eq!(lines[1], "|---|--:|--:|--:|--:|--:|");
    assert!(lines[3].starts_with(r"| 50% \| small | 5 | 2.025 ± 0.016 | "), "{markdown}");
    assert!(lines[3].ends_with(r"| 0.603 ± 0.002 \* |"), "{markdown}");
    let latex = render(&study, "latex");
    let lines: Vec<&str> = latex.lines().collect();
    assert_eq!(lines[0], r"\begin{tabular}{lrrrrr}");
    assert!(lines[4].starts_with(r"{}large\_one & 5 & $2.030 \pm 0.016$ & "), "{latex}");
    assert!(lines[5].starts_with(r"{}50\% \textbar{} small & 5 & "), "{latex}");
    assert!(lines[5].contains(r"& $0.603 \pm 0.002^{*}$ \\"), "{latex}");
    let csv = render(&study, "csv");
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines.len(), 1 + 13 * 2);
    let columns = lines[0].split(',').count();
    assert!(lines.iter().all(|line| line.split(',').count() == columns), "{csv}");
    let ram = lines.iter().find(|line| line.starts_with("\"50% | small\",ram,bytes,5,603000000,")).unwrap();
    assert!(
        ram.contains(",601000000,605000000,") && ram.ends_with(",0.007936507936507936,0.007936507936507936,")
    );
    assert!(
        lines.iter().any(|line| line.starts_with("\"large_one\",written,bytes,5,,,,,,,,,,\"not known of "))
    );
}

#[test]
fn json_has_every_statistic_and_null_with_a_reason() {
    let (plan, runs) = halves();
    let json: serde_json::Value = serde_json::from_str(&render(&study(&plan, &runs, false), "json")).unwrap();
    assert_eq!((json["planned_runs"].as_u64(), json["seed"].as_u64()), (Some(5), Some(7)));
    let quantity = |name: &str| {
        json["quantities"].as_array().unwrap().iter().find(|row| row["quantity"] == name).unwrap()
    };
    let ram = &quantity("ram")["variants"][1];
    assert_eq!((ram["mean"].as_f64(), ram["known"].as_u64()), (Some(603e6), Some(5)));
    assert_eq!(ram["compared"]["verdict"], "less");
    let (low, high) = (ram["interval"]["low"].as_f64().unwrap(), ram["interval"]["high"].as_f64().unwrap());
    assert!(601e6 < low && low < 603e6 && 603e6 < high && high < 605e6, "{ram}");
    assert!(quantity("ram")["variants"][0]["compared"].is_null());
    let written = &quantity("written")["variants"][0];
    assert!(written["mean"].is_null() && written["reason"].is_string(), "{written}");
}

// Requirement: CMD-32
#[test]
fn quantity_that_one_run_lacks_is_left_out_for_its_variant_with_the_reason() {
    let (plan, mut runs) = halves();
    runs[3].report.cpu_time.total_s = None;
    let study = study(&plan, &runs, false);
    let cpu = &row(&study, "cpu").variants;
    assert_eq!(cpu[1].reason.as_deref(), Some("not known of 1 of 5 runs (no process's figure is known)"));
    assert_eq!((cpu[1].summary.mean, cpu[1].compared, cpu[1].ratio), (None, None, None));
    assert!(cpu[0].summary.mean.is_some());
    let text = render(&study, "text");
    assert!(text.contains("CPU time, cores: 50% | small not known of 1 of 5 runs (no process"), "{text}");
    assert!(text.lines().nth(2).unwrap().contains("n/a"), "{text}");
}

// Requirement: CMD-30
#[test]
fn failed_run_is_named_and_counts_only_on_request() {
    let (plan, mut runs) = halves();
    runs[1].report.ending.exit.code = Some(3);
    let without = study(&plan, &runs, false);
    assert_eq!((without.variants[0].counted, without.variants[1].counted), (5, 4));
    let failures: Vec<_> = without.failures().collect();
    assert_eq!(failures, ["failed: 50% | small run 1: FAILED, exit 3 after 2.03 s (1.1.json)"]);
    for form in ["text", "latex"] {
        let written = render(&without, form);
        assert!(written.contains("run 1: FAILED, exit 3"), "{written}");
    }
    assert_eq!(study(&plan, &runs, true).variants[1].counted, 5);
}

#[test]
fn study_that_is_not_over_says_how_many_runs_are_missing() {
    let (plan, mut runs) = halves();
    runs.truncate(3);
    let study = study(&plan, &runs, false);
    assert_eq!((study.missing(), study.variants[1].missing.clone()), (7, vec![2, 3, 4, 5]));
    let text = render(&study, "text");
    assert!(text.contains("\nnot over: 7 of 10 runs have no report\n"), "{text}");
    assert!(
        text.contains("RAM peak, too few runs to be sure (4 of each variant can be enough): 50% | small"),
        "{text}"
    );
    let text = render(&super::study(&plan, &[], false), "text");
    assert!(text.contains(": no run counts\n") && text.contains("10 of 10 runs have no report"), "{text}");
}

#[test]
fn remarks_say_what_makes_runs_hard_to_compare() {
    let (plan, mut runs) = halves();
    runs[0].report.contention.is_contended = Some(true);
    runs[1].report.host.cores = 99;
    runs[2].report.coverage.uncounted_reason = Some("short ones are not counted".into());
    assert_eq!(
        study(&plan, &runs, false).remarks,
        [
            "Not all runs are of the same machine.",
            "Others used the cores in 1 of 10 runs, so their wall time says less.",
            "Short processes may be missing in the figures of 1 of 10 runs: short ones are not counted.",
        ]
    );
}

#[test]
fn single_variant_is_a_table_without_comparisons() {
    let runs: Vec<Run> = (1..=2).map(|number| run(0, number, 1.0, 1)).collect();
    let text = render(&study(&plan(&["a\x1b[2J\nb"], 2), &runs, false), "text");
    assert!(!text.contains("differs from") && !text.contains("sure") && !text.contains('\x1b'), "{text}");
    assert!(text.contains(r"a\x1b[2J\nb"), "{text}");
    assert_eq!(forms().collect::<Vec<_>>(), ["text", "csv", "markdown", "latex", "json"]);
}
