//! What holds for the page of any report: it is well-formed, has the golden's bytes, keeps untrusted text out of its markup, and
//! is small.

use std::time::UNIX_EPOCH;

use roxmltree::{Document, Node};

use super::head::{SCRIPT, STYLE};
use super::html;
use crate::golden::compare;
use crate::golden::every_text::with_texts;
use crate::metrics::{MetricPoints, MetricValue};
use crate::model::gpu::gpu_figure::{ByGpuFigure, GpuFigure};
use crate::model::quality::Quality;
use crate::model::report::*;
use crate::model::style::{Style, TimeUnit};
use crate::model::time_groups::ByTimeGroup;
use crate::text::text;
use crate::{format, merge, over_time, quote};
use gpu_track_core::fixtures::{all, full, killed, nodes, unknown};

/// Maximum number of bytes of a page, and those for each GPU, and for each node or rank that has a row.
const MOST_BYTES: usize = 147_000;
const MOST_BYTES_OF_GPU: usize = 9_000;
const MOST_BYTES_OF_PLACE: usize = 2_000;
const MOST_BYTES_OF_RANKS: usize = 5_000;
const MOST_BYTES_OF_METRIC: usize = 2_500;
const MOST_BYTES_OF_ALERT: usize = 400;

/// Text that a page must not take for markup, style or script.
const HOSTILE: &str =
    "</script></style><script>alert(1)</script>]]><!--\"'&amp;<img src=x onerror=alert(1)>\u{202e}\u{ffff}";

fn page(report: &Report) -> String {
    html(report, &Style::default())
}

/// Reads a page as XML, which is stricter than HTML. XML has a document type of its own.
fn with_elements<T>(page: &str, look: impl Fn(&Document) -> T) -> T {
    let xml = page.strip_prefix("<!DOCTYPE html>\n").unwrap();
    let document = Document::parse(xml).unwrap_or_else(|error| panic!("{error}\n{page}"));
    look(&document)
}

/// Each element's name and the names of its attributes.
fn markup(page: &str) -> Vec<String> {
    with_elements(page, |document| {
        let elements = document.descendants().filter(Node::is_element);
        let line = |element: Node| {
            let attributes = element.attributes().map(|attribute| attribute.name().to_owned());
            format!("{} {}", element.tag_name().name(), attributes.collect::<Vec<_>>().join(" "))
        };
        elements.map(line).collect()
    })
}

/// A report with everything that a page can show: one with GPUs, and what only another one has.
fn with_all() -> Report {
    let mut report = Report { warnings: full().warnings, ..killed() };
    report.processes = Processes { by_command: report.processes.by_command, ..full().processes };
    report.series.gpus[0].id.clone_from(&report.gpus[0].id);
    report
}

/// Values that change with each point, without a source of randomness.
fn noise(points: usize, seed: usize, largest: f64) -> Vec<Option<f64>> {
    (0..points)
        .map(|at| Some(((at * 7919 + seed * 104_729) * 6151 % 9973) as f64 / 9973.0 * largest))
        .collect()
}

fn noisy(points: usize, seed: usize, largest: f64) -> Track {
    Track {
        min: noise(points, seed, largest),
        mean: noise(points, seed + 1, largest),
        max: noise(points, seed + 2, largest),
    }
}

/// A run of 5,000 processes and this many GPUs, in as many points and commands as a report has. None of them is quiet.
fn large(gpus: usize) -> Report {
    const POINTS: usize = 300;
    let mut report = with_all();
    report.job_ranks.clear();
    report.alerts.clear();
    report.events = None;
    let device = GpuDevice { name: Some("NVIDIA H100 80GB HBM3".into()), ..report.gpus[0].clone() };
    let id = |at: usize| format!("GPU-8a56d1c2-5a0e-4a35-9d3b-0123456789{at:02}");
    let index = |at: usize| u32::try_from(at).ok();
    report.gpus = (0..gpus).map(|at| GpuDevice { id: id(at), index: index(at), ..device.clone() }).collect();
    let memory = 80e9;
    report.series = Series {
        start_s: (0..POINTS).map(|at| at as f64 * report.wall_s / POINTS as f64).collect(),
        end_s: (1..=POINTS).map(|at| at as f64 * report.wall_s / POINTS as f64).collect(),
        ram_bytes: SetTracks { combined: noisy(POINTS, 1, 21e9), ..SetTracks::default() },
        cpu_percent: SetTracks { combined: noisy(POINTS, 2, 3200.0), ..SetTracks::default() },
        processes: noisy(POINTS, 3, 900.0),
        time_spent: Some(ByTimeGroup::new(|group| noise(POINTS, 40 + group as usize, 0.3))),
        io_bytes_per_s: IoTracks { read: noisy(POINTS, 4, 1e9), written: noisy(POINTS, 5, 3e8) },
        gpus: (0..gpus)
            .map(|at| GpuSeries {
                id: id(at),
                tracks: ByGpuFigure::default()
                    .with(GpuFigure::Utilization, noisy(POINTS, at, 100.0))
                    .with(GpuFigure::MemoryUsed, noisy(POINTS, at + 1, memory))
                    .with(GpuFigure::MemoryRun, noisy(POINTS, at + 2, memory))
                    .with(GpuFigure::Power, noisy(POINTS, at + 3, 700.0)),
            })
            .collect(),
        commands: (0..10)
            .map(|at| CommandSeries {
                command: format!("python3 worker_{at}.py"),
                ram_bytes: noisy(POINTS, 10 * at, 2e9),
                mean_cpu_percent: noise(POINTS, 10 * at + 3, 320.0),
            })
            .collect(),
        other_commands: Some(OtherCommandSeries {
            mean_ram_bytes: noise(POINTS, 111, 1e9),
            mean_cpu_percent: noise(POINTS, 112, 100.0),
        }),
        file_systems: Vec::new(),
    };
    report.processes.total = 5000;
    report.processes.by_command = (0..60)
        .map(|at| CommandUsage {
            command: format!("python3 worker_{at}.py"),
            gpu: None,
            ..report.processes.by_command[0].clone()
        })
        .collect();
    let process = |at: u32| {
        let args = ["python3", "worker.py", "--input", "/scratch/data/part.parquet", "--seed", "1234567"];
        let usage = ProcessUsage {
            pid: 100_000 + at,
            command: format!("python3 worker_{}.py", at % 10),
            args: Some(args.map(str::to_owned).to_vec()),
            cpu_quality: Quality::Exact,
            wall_s: 100.0 * f64::from(at),
            ..report.processes.heaviest[0].usage.clone()
        };
        HeavyProcess { usage, start_s: Some(f64::from(at) * 77.7), node: None }
    };
    report.processes.heaviest = (0..60).map(process).collect();
    report
}

// Requirement: OUT-34
#[test]
fn golden_page() {
    let page = page(&with_all()).replace(STYLE, "(style)").replace(SCRIPT, "(script)");
    compare(&page, "page.html", include_str!("../../../../tests/golden/page.html"));
}

// Requirement: NODE-17
#[test]
fn golden_page_of_several_nodes() {
    let page = page(&of_nodes()).replace(STYLE, "(style)").replace(SCRIPT, "(script)");
    compare(&page, "page_merged.html", include_str!("../../../../tests/golden/page_merged.html"));
}

// Requirement: OUT-34
#[test]
fn page_of_each_report_is_well_formed_and_loads_nothing() {
    let others = [("large", large(2)), ("nodes", of_nodes()), ("many nodes", many_nodes(70, 2, 300))];
    for (name, report) in all().into_iter().chain(others) {
        let page = page(&report);
        with_elements(&page, |document| {
            let elements: Vec<Node> = document.descendants().filter(Node::is_element).collect();
            let named = |name: &str| elements.iter().filter(|element| element.has_tag_name(name)).count();
            assert_eq!((named("script"), named("style"), named("h1"), named("main")), (1, 1, 1, 1), "{name}");
            for element in &elements {
                for attribute in element.attributes() {
                    let is_loaded =
                        ["src", "href", "style", "srcset", "action", "data"].contains(&attribute.name());
                    assert!(!is_loaded && !attribute.name().starts_with("on"), "{name}: {element:?}");
                    assert!(!attribute.value().contains("url("), "{name}: {element:?}");
                }
            }
            // A screen reader has the chart's label and its table.
            for figure in elements.iter().filter(|element| element.has_tag_name("figure")) {
                let inside = |name: &str| figure.descendants().filter(|node| node.has_tag_name(name)).count();
                let charts: Vec<Node> =
                    figure.descendants().filter(|node| node.attribute("role") == Some("img")).collect();
                // With another table where alerts are marked.
                let tables =
                    1 + usize::from(figure.descendants().any(|node| node.attribute("class") == Some("mw")));
                assert_eq!(
                    (inside("figcaption"), inside("details"), inside("table")),
                    (1, 1, tables),
                    "{name}"
                );
                assert!(
                    !charts.is_empty() && charts.iter().all(|chart| chart.attribute("aria-label").is_some()),
                    "{name}"
                );
            }
        });
    }
}

/// The page of a report whose texts are all hostile, which has the elements of one with harmless texts.
fn hostile_page(report: &Report) -> String {
    let (hostile, replaced) = with_texts(report, HOSTILE);
    assert!(replaced >= 50, "{replaced}");
    // What is cut to fit is cut alike, and so the pages differ in their texts alone.
    let harmless = "x".repeat(quote::width(&quote::escape(HOSTILE)));
    let (harmless, _) = with_texts(report, &harmless);
    let page = page(&hostile);
    assert_eq!(markup(&page), markup(&self::page(&harmless)));
    assert!(!page.contains('\u{202e}') && page.matches("</script>").count() == 1, "{page}");
    page
}

/// The page of a report with metrics: `value` at the end of each point, by the number of the point and the metric.
fn page_with_metrics(report: &Report, names: &[&str], value: impl Fn(usize, usize) -> f64) -> String {
    let points = over_time::from_report(report);
    let clock = over_time::clock_of_report(report);
    let started_s = report.started_at.duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    let mut metrics = MetricPoints::new(&points, clock);
    for (at, end_s) in report.series.end_s.iter().enumerate() {
        for (number, name) in names.iter().enumerate() {
            metrics.add(MetricValue {
                process_id: 7,
                name: (*name).to_owned(),
                // The sum of a time and the seconds since the epoch is rounded.
                timestamp_s: started_s + end_s - 1e-3,
                value: value(at, number),
            });
        }
    }
    assert_eq!(metrics.notes(), [""; 0]);
    format::page_with_metrics(report, &Style::default(), &metrics)
}

// Requirement: PY-26, PY-76
#[test]
fn metrics_are_drawn_beside_the_run_and_their_names_are_no_markup() {
    let names = [HOSTILE, "reward", "torch_cuda0_reserved_bytes"];
    let value = |at: usize, number: usize| [0.25, -1.0, at as f64 * 1e9][number];
    let page = page_with_metrics(&large(1), &names, value);
    // It comes before the other names, as the hostile one does.
    let harmless = "A".repeat(quote::width(&quote::escape(HOSTILE)));
    let plain = page_with_metrics(&large(1), &[&harmless, names[1], names[2]], value);
    assert!(markup(&page) == markup(&plain), "{page}");
    assert!(
        page.contains("<h3>Metrics of the program</h3>") && page.contains("torch_cuda0_reserved_bytes [GB]")
    );
    assert!(page.contains("In the table alone, since an axis begins at 0: reward."), "{page}");
    assert!(page.contains("299 GB at last"), "{page}");
    assert!(!self::page(&large(1)).contains("Metrics of the program"));
}

// Requirement: PY-26, PY-76
#[test]
fn metrics_without_end_keep_the_page_within_its_bytes() {
    let names: Vec<String> = (0..40).map(|number| format!("validation/loss of task {number:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let value = |at: usize, number: usize| ((at * 7919 + number * 104_729) * 6151 % 9973) as f64 / 9973.0;
    let page = page_with_metrics(&large(0), &names, value);
    assert!(page.contains("28 more are not shown"));
    assert!(page.len() <= MOST_BYTES + 12 * MOST_BYTES_OF_METRIC, "{}", page.len());
}

// Requirement: NODE-17
#[test]
fn names_of_nodes_never_become_markup() {
    let page = hostile_page(&of_nodes());
    assert!(page.contains("<h3>RAM by node and time</h3>") && page.contains("<h3>CPU by rank and time</h3>"));
    // In a legend, the head of a table, a row of a map and one of a table.
    assert!(page.matches("&lt;/script").count() >= 4, "{page}");
}

// Requirement: OUT-35
#[test]
fn text_of_a_report_never_becomes_markup() {
    let page = hostile_page(&with_all());
    assert!(page.contains("&lt;/script&gt;"), "{page}");
}

// Requirement: OUT-36
#[test]
fn page_stays_within_its_bytes_however_busy_the_run_was() {
    for gpus in [0, 1, 8, 32] {
        let bytes = page(&large(gpus)).len();
        assert!(bytes <= MOST_BYTES + gpus * MOST_BYTES_OF_GPU, "{gpus} GPUs: {bytes}");
    }
    let mut report = large(0);
    let alert = with_all().alerts[0].clone();
    report.alerts = vec![alert; 64];
    let bytes = page(&report).len();
    assert!(bytes <= MOST_BYTES + 64 * MOST_BYTES_OF_ALERT, "alerts: {bytes}");
    // However long the arguments of its processes are.
    let mut report = large(0);
    let args = Some(vec!["/scratch/data/".repeat(300); 100]);
    report.processes.heaviest.iter_mut().for_each(|process| process.usage.args.clone_from(&args));
    let bytes = page(&report).len();
    assert!(bytes <= MOST_BYTES + 105 * 250, "long arguments: {bytes}");
    // However long the names of its commands are.
    let mut report = large(0);
    let lengthen = |name: &mut String| name.insert_str(0, &"x".repeat(500));
    report.series.commands.iter_mut().for_each(|command| lengthen(&mut command.command));
    let bytes = page(&report).len();
    assert!(bytes <= MOST_BYTES, "long names: {bytes}");
    // The tables of ranks have the heaviest and the lightest.
    let mut report = large(0);
    let rank = with_all().job_ranks.remove(0);
    let ranks = 1000;
    report.job_ranks = (0..ranks)
        .map(|number| JobRank { rank: OwnRank { rank: number, of: ranks, ..rank.rank }, ..rank.clone() })
        .collect();
    let bytes = page(&report).len();
    assert!(bytes <= MOST_BYTES + MOST_BYTES_OF_RANKS, "ranks: {bytes}");
}

// Requirement: OUT-36
#[test]
fn page_of_many_nodes_stays_within_its_bytes() {
    // A value for each point of the reports, and one for each cell of a map.
    for (nodes, ranks_of_node, values) in [(10, 1, 300), (100, 1, 300), (64, 2, 120)] {
        let report = many_nodes(nodes, ranks_of_node, values);
        assert_eq!(report.nodes.len() as u32, nodes);
        let ranks = report.ranks.as_ref().filter(|ranks| ranks.seen > u64::from(nodes));
        let rows = nodes.min(64) as usize + ranks.map_or(0, |ranks| ranks.series.len());
        let mut long_names = report.clone();
        let of_nodes = long_names.nodes.iter_mut().map(|node| &mut node.node);
        let ranks = long_names.ranks.iter_mut().flat_map(|ranks| &mut ranks.series);
        let names = of_nodes.chain(ranks.map(|rank| &mut rank.place.node));
        names.for_each(|name| name.insert_str(0, &"&".repeat(500)));
        for report in [&report, &long_names] {
            let bytes = page(report).len();
            let most = MOST_BYTES + rows * MOST_BYTES_OF_PLACE;
            assert!(bytes <= most, "{nodes} nodes of {ranks_of_node} ranks: {bytes}");
        }
    }
}

// Requirement: NODE-17
#[test]
fn nodes_and_ranks_are_drawn_over_time_as_far_as_there_is_room() {
    let titles = |page: &str| -> Vec<String> {
        let all = page.split("<h3>").filter_map(|rest| Some(rest.split_once("</h3>")?.0.to_owned()));
        all.filter(|title| title.contains(" by ")).collect()
    };
    let (nodes, ranks) = (["by node", "by node and time"], ["by rank and time"]);
    let both = [&nodes[..], &ranks].concat();
    let chart_titles = |what: &[&str]| {
        ["RAM", "CPU"]
            .iter()
            .flat_map(|name| what.iter().map(move |what| format!("{name} {what}")))
            .collect::<Vec<_>>()
    };
    assert_eq!(titles(&page(&of_nodes())), chart_titles(&both));
    assert_eq!(titles(&page(&many_nodes(1, 3, 300))), chart_titles(&ranks), "all of one node is that node");
    let page = page(&many_nodes(100, 1, 300));
    assert_eq!(titles(&page), chart_titles(&nodes), "a rank for each node is that node");
    for part in [
        "means of 10 of 100 nodes by largest RAM: the 2 largest, the 2 smallest, the last to end (1), others at regular steps; \
         dotted: the mean of all others",
        "mean of 90 others",
        "of 100 nodes by largest RAM: the 16 largest, the 16 smallest, the last to end (8), others at regular steps. Numbers: their places \
         in this order.",
        "of 100 nodes by busy cores: the 16 largest, ",
    ] {
        assert!(page.contains(part), "{part}");
    }
    let page = self::page(&many_nodes(100, 2, 300));
    assert!(page.contains("Rows: 50 of 200 ranks, at regular steps, by number and node."));
    // Without their series, there is nothing to draw.
    let mut report = of_nodes();
    report.nodes.iter_mut().for_each(|node| node.series = NodeSeries::default());
    report.ranks = None;
    assert_eq!(titles(&self::page(&report)), Vec::<String>::new());
}

// Requirement: NODE-17
#[test]
fn map_says_where_a_node_is_not_known() {
    let mut report = of_nodes();
    assert!(page(&report).contains("not known, or not running"), "n3 has no report");
    report.ranks = None;
    report.nodes.retain(|node| node.reports > 0);
    for node in &mut report.nodes {
        node.series.mean_ram_bytes.fill(Some(0.0));
        node.series.mean_cpu_percent.fill(Some(0.0));
    }
    report.nodes[0].series.mean_ram_bytes[0] = Some(1.0);
    let page = page(&report);
    assert!(page.contains("RAM by node and time") && !page.contains("not known, or not running"));
    assert!(!page.contains("CPU by node"), "all are idle");
}

// Requirement: OUT-34, SLOW-13
#[test]
fn what_is_not_known_is_drawn_as_nothing() {
    let page = page(&unknown());
    assert!(!page.contains("<figure>") && page.contains("not known"), "{page}");
    let mut report = full();
    let known = self::page(&report);
    report.series.ram_bytes.combined.max.fill(None);
    report.series.commands.clear();
    report.series.other_commands = None;
    report.peak = None;
    report.series.io_bytes_per_s.read.mean[3] = None;
    report.series.time_spent = None;
    report.processes.heaviest.iter_mut().for_each(|process| process.start_s = None);
    let page = self::page(&report);
    for title in ["Where the time went", "RAM by command", "Heaviest processes"] {
        let title = format!("<figcaption><h3>{title}</h3>");
        assert!(known.contains(&title) && !page.contains(&title), "{title}");
    }
    assert!(page.contains("<h3>I/O that reached storage</h3>"), "{page}");
}

// Requirement: OUT-34
#[test]
fn page_of_a_run_of_no_length_is_drawn() {
    let report = Report {
        wall_s: 0.0,
        series: Series { start_s: vec![0.0; 40], end_s: vec![0.0; 40], ..full().series },
        ..full()
    };
    with_elements(&page(&report), |_| ());
    let series = Series { start_s: vec![0.0], end_s: vec![f64::NAN], ..Series::default() };
    with_elements(&page(&Report { wall_s: f64::NAN, series, ..full() }), |_| ());
    for time_unit in [TimeUnit::Hours, TimeUnit::Days] {
        let style = Style { time_unit: Some(time_unit), ..Style::default() };
        with_elements(&html(&report, &style), |_| ());
    }
}

// Requirement: OUT-34
#[test]
fn page_of_figures_at_the_ends_of_their_types_is_drawn() {
    let mut report = with_all();
    report.series.commands.clear();
    report.series.other_commands = None;
    report.peak = None;
    report.series.ram_bytes.combined.max.fill(Some(1e-315));
    let gpu = &mut report.gpus[0];
    gpu.used = Some(true);
    gpu.memory.max_combined_bytes = Some(u64::MAX);
    gpu.memory.total_bytes = Some(u64::MAX);
    gpu.errors.xid = Some(vec![GpuXid { xid: 79, count: u64::MAX }; 2]);
    report.gpus = vec![report.gpus[0].clone(); 6];
    with_elements(&page(&report), |_| ());
}

/// The report of the ranks of some nodes.
fn of_nodes() -> Report {
    merge::merge(&nodes()).unwrap().report
}

/// The report of the ranks of many nodes, none of which is quiet: each has `values` different values over time, one after
/// another.
fn many_nodes(nodes: u32, ranks_of_node: u32, values: usize) -> Report {
    const POINTS: usize = 300;
    let ranks = nodes * ranks_of_node;
    // A merged report has 480 bins of this time, 240 points, and 120 cells.
    let wall_s = 4800.0;
    let at_s = |at: usize| at as f64 * wall_s / POINTS as f64;
    let mut each = Report { wall_s, started_at: full().started_at, ..large(0) };
    each.series.start_s = (0..POINTS).map(at_s).collect();
    each.series.end_s = (1..=POINTS).map(at_s).collect();
    each.coverage.nodes = None;
    each.allowed.slurm.clear();
    let track = |seed: usize, largest: f64| {
        let values = noise(values, seed, largest);
        let list: Vec<Option<f64>> = (0..POINTS).map(|at| values[at * values.len() / POINTS]).collect();
        Track { min: list.clone(), mean: list.clone(), max: list }
    };
    let of_rank = |rank: u32| {
        let (node, seed) = (rank / ranks_of_node, rank as usize * 10);
        let mut report = each.clone();
        report.host.hostname = Some(format!("nid{node:06}"));
        report.host.boot_id = Some(format!("boot-{node}"));
        report.rank = Some(OwnRank { job: 7, rank, of: ranks, pid: None });
        report.series.ram_bytes.combined = track(seed, 21e9);
        report.series.cpu_percent.combined = track(seed + 1, 3200.0);
        (format!("run.{rank:04}.json"), report)
    };
    merge::merge(&(0..ranks).map(of_rank).collect::<Vec<_>>()).unwrap().report
}

/// A report of several nodes, which had 9 to 14 processes at one time.
fn merged() -> Report {
    let mut report = full();
    report.processes.max_concurrent = Some(9);
    report.coverage.exact = report.processes.total;
    report.coverage.peaks = Peaks { exact: report.processes.total, ..Peaks::default() };
    report.coverage.uncounted_reason = None;
    report.series.commands.clear();
    report.series.other_commands = None;
    let at_most = AtMost { processes: Some(14), ..AtMost::default() };
    report.merged = Some(Merged { at_most, ..Merged::default() });
    report
}

// Requirement: NODE-2, OUT-34
#[test]
fn page_of_several_nodes_calls_bounds_what_they_are() {
    let page = page(&merged());
    for part in [
        "at least 9, at most 14 at once; CPU exact; RAM exact",
        "<b>at least 9, at most 14</b>",
        "<h3>RAM</h3>",
        "<h3>CPU</h3>",
        "at most, of all",
        "An upper bound in each point",
        "upper bounds of the largest rate",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    for part in [
        "RAM by command",
        "CPU by command",
        "largest of all",
        "largest in 100 ms",
        "at any time",
        "all exact",
    ] {
        assert!(!page.contains(part), "{part}: {page}");
    }
    let text = text(&merged(), &Style { full: true, ..Style::default() });
    assert!(text.contains("Most at one time: at least 9, at most 14"), "{text}");
}

// Requirement: OUT-34
#[test]
fn means_beside_a_chart_are_of_the_time_that_it_shows() {
    let whole = page(&full());
    assert!(whole.contains("means over the run.") && whole.contains("largest in 100 ms"), "{whole}");
    let report = Report { wall_s: full().wall_s * 2.0, ..full() };
    assert!(page(&report).contains("means over the time that is drawn."));
}

// Requirement: OUT-34
#[test]
fn process_that_still_runs_has_no_end() {
    let mut report = full();
    let wall_s = report.wall_s;
    let process = &mut report.processes.heaviest[0];
    process.start_s = Some(0.0);
    process.usage.exit = Exit::default();
    process.usage.wall_s = wall_s;
    report.processes.still_running_processes.clear();
    let process = &report.processes.heaviest[0];
    let running = Running { pid: process.usage.pid, command: process.usage.command.clone() };
    let has = |report: &Report, words: &str| {
        let page = page(report);
        let is_named = page.contains(&format!(", {words}</text>"));
        assert_eq!(page.contains(&format!("<td>{words}</td>")), is_named, "{page}");
        is_named
    };
    assert!(!has(&report, "still running"), "only its wait status is unknown");
    let listed = Processes { still_running_processes: vec![running], ..report.processes.clone() };
    assert!(has(&Report { processes: listed, ..report.clone() }, "still running"));
    assert!(has(&Report { stage: Stage::SoFar, ..report.clone() }, "still running"));
    let of_nodes = Report { merged: Some(Merged::default()), ..report };
    assert!(has(&of_nodes, "exit unknown") && !has(&of_nodes, "still running"));
}
