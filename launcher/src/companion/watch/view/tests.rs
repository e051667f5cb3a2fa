//! The view on buffers of any size, in the states of a run.

use gpu_track_collector::model::gpu::gpu_figure::{ByGpuFigure, GpuFigure};
use gpu_track_collector::model::report::Usable;
use gpu_track_collector::model::style::Console;
use gpu_track_collector::model::time_groups::ByTimeGroup;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_crossterm::crossterm::event::KeyCode as Key;

use super::{canvas, text, view};
use crate::companion::watch::frame::{Ended, EndedCommand, Frame, Process, Reading, Run, Stage};
use crate::companion::watch::gpus::Gpu;
use crate::companion::watch::history::Point;
use crate::companion::watch::model::Model;

const MB: u64 = 1_000_000;

fn process(pid: u64, parent_pid: u64, command: &str, rss_bytes: u64) -> Process {
    Process {
        pid: Some(pid),
        parent_pid: Some(parent_pid),
        command: command.into(),
        rss_bytes: Some(rss_bytes),
        cpu_s: Some(pid as f64),
        ..Process::default()
    }
}

fn run() -> Run {
    let mut usable = Usable::default();
    (usable.cores.count, usable.memory.bytes) = (4.0, Some(8_000 * MB));
    let command = ["make", "-j4"].map(String::from).to_vec();
    Run { command, launcher_pid: Some(77), usable: Some(usable), ..Run::default() }
}

/// make with two compilers: some seconds after its start.
fn busy() -> Reading {
    let ended = EndedCommand { count: 280, cpu_s: Some(12.5), peak_rss_bytes: Some(90 * MB) };
    let ended = Ended { count: 280, by_command: [("cc1".to_owned(), ended)].into(), other_commands: 0 };
    let frame = Frame {
        at_s: 10.0,
        stage: Stage::Running,
        ram_bytes: Some(2_000 * MB),
        max_ram_bytes: Some(4_000 * MB),
        cpu_percent: Some(310.0),
        time_percent: Some(ByTimeGroup { computing: 88.0, storage: 12.0, ..ByTimeGroup::default() }),
        processes: Some(3),
        threads: Some(5),
        listed: vec![
            process(1, 0, "make", 2 * MB),
            process(2, 1, "cc1", 700 * MB),
            process(3, 1, "cc1", 300 * MB),
        ],
        ram_by_command: Some(vec![("cc1".into(), 1_900 * MB), ("make".into(), 100 * MB)]),
        ended: Some(ended),
        coverage: vec!["CPU time of ended processes: 280 exact, 0 sampled, 0 unknown".into()],
        ..Frame::default()
    };
    let point = |from_s: f64, ram, commands: Option<&[(&str, u64)]>| Point {
        from_s,
        at_s: from_s + 1.0,
        ram_bytes: ram * MB,
        cpu_percent: Some(from_s * 30.0),
        by_command: commands.map(|all| all.iter().map(|(name, mb)| ((*name).to_owned(), mb * MB)).collect()),
    };
    let points = vec![
        point(6.0, 4_000, None),
        point(7.0, 1_000, None),
        point(8.0, 2_000, Some(&[("cc1", 1_500), ("make", 500)])),
        point(9.0, 2_000, Some(&[("cc1", 1_900), ("make", 100)])),
    ];
    Reading { run: run(), frame, points, ..Reading::default() }
}

fn model(reading: Reading) -> Model {
    let console = Console { is_unicode: false, ..Console::default() };
    let mut model = Model { console, ..Model::default() };
    model.take(reading);
    model
}

/// What a terminal of this size shows.
fn drawn(model: &Model, columns: u16, rows: u16) -> String {
    let mut buffer = Buffer::empty(Rect::new(0, 0, columns, rows));
    view(model, &mut buffer);
    canvas::lines(&buffer)
}

#[track_caller]
fn assert_has(text: &str, parts: &[&str]) {
    let mut rest = text;
    for part in parts {
        let at = rest.find(part).unwrap_or_else(|| panic!("no {part:?} in its place in\n{text}"));
        rest = &rest[at + part.len()..];
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

// Requirement: WATCH-2
#[test]
fn run_that_just_started_has_nothing_but_unknown_figures() {
    let shown = text(&model(Reading::default()), 80);
    let parts = [
        "?",
        "no sample yet\n",
        "CPU",
        "? of ? cores",
        "RAM",
        "? of ?  peak ?",
        "no limit known",
        "PROCESSES ? live, ? threads, ? ended",
    ];
    assert_has(&shown, &parts);
    assert!(!shown.contains(" 0 B") && !shown.contains("0.00 of"), "unknown is no 0:\n{shown}");
    assert!(!shown.contains("Doing"), "{shown}");
}

// Requirement: WATCH-2, WATCH-50, WATCH-51, SLOW-13
#[test]
fn busy_run_shows_its_parts_in_order() {
    let shown = text(&model(busy()), 80);
    let parts = [
        "[77] make -j4  ",
        "runs for 10.0 s\n",
        "CPU     [",
        "] 3.10 of 4.00 cores  peak 3.10 seen\n",
        "Doing   computing 88%, storage 12%\n",
        "RAM     [",
        "] 2.00 GB of 8.00 GB  peak 4.00 GB\n",
        "Time    [",
        "RAM over time  unknown before 6.00 s,  commands unknown before 8.00 s\n",
        " 4.00 GB ",
        ":",
        "\n",
        "aaaaaaa",
        "\n",
        "     0 s ",
        " 10.0 s\n",
        "at 10.0 s  a cc1 1.90 GB  b make 100 MB\n",
        "CPU over time  up to 4.00 cores\n",
        "    4.00 ",
        "..##############\n",
        "PROCESSES 3 live, 5 threads, 280 ended\n",
        "- make",
        "     1  2.00 MB",
        "\n",
        "    cc1",
        "     2  1.00 GB",
        "280\n",
        "COVERAGE CPU time of ended processes: 280 exact",
    ];
    assert_has(&shown, &parts);
    assert!(!shown.contains("GPU") && !shown.contains("q end"), "{shown}");
}

// Requirement: WATCH-2, WATCH-52
#[test]
fn gpus_are_shown_with_the_processes_of_the_run_on_them() {
    let figures = |run_bytes, busy_percent| {
        let figures = ByGpuFigure::default().with(GpuFigure::MemoryRun, Some(run_bytes));
        figures.with(GpuFigure::Utilization, Some(busy_percent))
    };
    let mut reading = busy();
    let gpu = Gpu {
        index: Some(0),
        id: "GPU-1".into(),
        name: "NVIDIA H100".into(),
        total_bytes: Some(80_000 * MB),
        figures: figures(7.6e9, 87.0).with(GpuFigure::MemoryUsed, Some(9e9)),
        ..Gpu::default()
    };
    let idle = Gpu { index: Some(1), id: "GPU-2".into(), figures: figures(0.0, 0.0), ..Gpu::default() };
    reading.frame.gpus = vec![gpu, idle];
    reading.frame.listed[1].gpu_bytes = Some(7_600 * MB);
    let shown = text(&model(reading), 80);
    let parts = [
        "GPU     [##########",
        "] 87% of 200%  peak 87% seen\n",
        "GPU mem [",
        "] 7.60 GB of ?  peak 7.60 GB seen\n",
        "GPUS",
        "RUN'S",
        "\n  GPU0     87%  7.60 GB  9.00 GB  80.0 GB      ?     ?  NVIDIA H100\n",
        "  GPU1      0%      0 B        ?        ?      ?     ?  GPU-2\n",
        "on all of them: cc1 [2] 7.60 GB\n",
        "COVERAGE",
    ];
    assert_has(&shown, &parts);
    // What one GPU does not tell is unknown of all.
    let mut reading = busy();
    reading.frame.gpus = vec![Gpu { figures: figures(1.0, 87.0), ..Gpu::default() }, Gpu::default()];
    let parts = ["GPU     [", "] ? of 200%  peak ? seen\n", "GPU mem [", "] ? of ?  peak ? seen\n"];
    assert_has(&text(&model(reading), 80), &parts);
}

// Requirement: WATCH-2
#[test]
fn thousands_of_processes_are_rows_by_command_and_the_rest_is_counted() {
    let mut reading = busy();
    reading.frame.listed = (1..257).map(|pid| process(pid, 1, ["sh", "awk"][pid as usize % 2], MB)).collect();
    (reading.frame.others, reading.frame.processes) = (4_744, Some(5_000));
    let mut model = model(reading);
    assert_has(&text(&model, 80), &["PROCESSES 5000 live", "4744 smaller ones not listed", "awk", "sh"]);
    assert!(model.rows.len() < 6, "{:?}", model.rows);
    model.press(Key::Char('c'));
    assert_eq!(text(&model, 80).matches("sh [").count() + text(&model, 80).matches("awk [").count(), 256);
    // On a terminal the selected row stays in sight.
    model.is_interactive = true;
    for _ in 0..255 {
        model.press(Key::Down);
    }
    let last = model.rows[255].pid.unwrap();
    assert!(drawn(&model, 80, 24).contains(&format!("[{last}]")));
}

// Requirement: WATCH-2
#[test]
fn run_that_ended_fell_silent_or_was_killed_says_so_and_keeps_its_last_figures() {
    for (stage, said) in [
        (Stage::Ended, "ended after 10.0 s; its report has the final figures"),
        (Stage::Killed, "killed: gpu-track recover writes its report"),
        (Stage::Silent(12.0), "no sample for 12.0 s"),
    ] {
        let mut reading = busy();
        reading.frame.stage = stage;
        assert_has(&text(&model(reading), 80), &["make", said, "2.00 GB of 8.00 GB"]);
    }
}

// Requirement: WATCH-6
#[test]
fn figure_without_room_is_left_out_or_marked_as_cut() {
    let mut reading = busy();
    let commands = ["sh pipeline.sh", "gzip", "timeout"].map(|name| (name.to_owned(), 709 * MB));
    reading.frame.ram_by_command.as_mut().unwrap().extend(commands.clone());
    reading.points[3].by_command.as_mut().unwrap().extend(commands);
    let model = model(reading);
    let legend = |columns| {
        let shown = drawn(&model, columns, 40);
        shown.lines().find(|line| line.starts_with("at ")).unwrap().to_owned()
    };
    let whole = legend(120);
    assert!(!whole.contains("...") && whole.matches(" MB").count() == 4, "{whole}");
    for columns in 13..120 {
        let legend = legend(columns);
        // How many are left out stands behind the others.
        let (shown, left_out) = legend.rsplit_once("  +").unwrap_or((&legend, ""));
        let is_counted = left_out.parse().is_ok_and(|count: usize| count > 0);
        assert!(legend == whole || (is_counted && legend.len() <= columns.into()), "{legend}");
        let rest = whole.strip_prefix(shown).unwrap();
        assert!(rest.is_empty() || rest.starts_with("  "), "{columns}: {legend}");
    }
    // The bars give way to their figures, and keys that don't fit are left out. Figures of a row are cut.
    assert_has(&drawn(&model, 60, 40), &["RAM     [####   |       ] 2.00 GB of 8.00 GB  peak 4.00 GB\n"]);
    let narrow = drawn(&model, 42, 40);
    assert!(narrow.lines().any(|line| line.contains("cc1") && line.ends_with("...")), "{narrow}");
    // A long event leaves room for the count of those below it.
    let mut reading = busy();
    reading.frame.events = vec!["x".repeat(200); 9];
    let mut model = self::model(reading);
    model.is_interactive = true;
    assert_has(&drawn(&model, 80, 24), &["EVENTS   xxx", "xxx...  (and 6 more)\n"]);
    assert_has(&drawn(&model, 60, 24), &["c each process  Enter fold  / filter\n"]);
}

// Requirement: WATCH-1
#[test]
fn hostile_names_can_not_control_the_terminal_or_take_the_room_of_figures() {
    let mut reading = busy();
    let name = "\u{1b}]0;owned\u{7}\u{1b}[2J\n\u{202e}".repeat(3) + &"x".repeat(5000);
    reading.run.command = vec![name.clone(); 3];
    reading.frame.listed[1].command = name.clone();
    reading.frame.ram_by_command = Some(vec![(name.clone(), MB)]);
    reading.points[3].by_command = Some(vec![(name.clone(), MB)]);
    reading.frame.gpus = vec![Gpu { name: name.clone(), ..Gpu::default() }];
    reading.frame.events = vec![name.clone()];
    reading.frame.alerts = vec![name.clone()];
    reading.frame.coverage = vec![name.clone()];
    let mut model = model(reading);
    model.console.is_unicode = true;
    model.shape.filter = name;
    for is_interactive in [false, true] {
        model.is_interactive = is_interactive;
        let shown = drawn(&model, 80, 24) + &text(&model, 80);
        assert!(!shown.contains(|c: char| c != '\n' && (c.is_control() || c == '\u{202e}')), "{shown:?}");
        assert!(shown.contains("x1b]0;owned"), "{shown}");
    }
    model.shape.filter.clear();
    model.press(Key::Char('c'));
    assert!(text(&model, 80).lines().any(|line| line.contains("\\x1b") && line.contains("700 MB")));
}

// Requirement: WATCH-5
#[test]
fn view_fits_80x24_and_any_smaller_terminal() {
    let mut reading = busy();
    reading.frame.gpus = vec![Gpu::default(); 8];
    reading.frame.events = vec!["an event".into(); 9];
    reading.frame.alerts = vec!["an alert".into(); 9];
    for stage in [Stage::Running, Stage::Replayed] {
        reading.frame.stage = stage;
        reading.run.length_s = (reading.frame.stage == Stage::Replayed).then_some(20.0);
        let mut model = model(reading.clone());
        model.is_interactive = true;
        for has_help in [false, true] {
            for columns in (0..=12).chain([20, 40, 46, 47, 79, 80, 81, 100]) {
                for rows in (0..=13).chain([16, 20, 23, 24, 25, 30, 45]) {
                    model.has_help = has_help;
                    let shown = drawn(&model, columns, rows);
                    assert!(shown.lines().count() <= rows.into(), "{columns}x{rows}");
                }
            }
        }
        model.has_help = false;
        let shown = drawn(&model, 80, 24);
        assert_has(
            &shown,
            &["make", "Time", "PROCESSES", "- make", "GPUS", "COVERAGE", "EVENTS", "(and", "q end"],
        );
        assert_eq!(shown.lines().count(), 24);
    }
    let mut tall = model(busy());
    tall.is_interactive = true;
    assert_has(
        &drawn(&tall, 80, 24),
        &["RAM over time", "aaa", "PROCESSES", "- make", "cc1", "COVERAGE", "q end"],
    );
}

// Requirement: WATCH-3, WATCH-53
#[test]
fn finished_run_has_its_whole_chart_and_a_mark_at_the_moment() {
    let mut reading = busy();
    reading.frame.stage = Stage::Replayed;
    reading.run.length_s = Some(20.0);
    let shown = text(&model(reading), 80);
    let axis = shown.lines().find(|line| line.contains('^')).unwrap();
    assert!((40..46).contains(&axis.find('^').unwrap()) && axis.ends_with(" 20.0 s"), "{shown}");
    assert_has(&shown, &["at 10.0 s of 20.0 s\n", "by what each command adds", "a cc1 1.90 GB", "PEAK RSS"]);
}

// Requirement: WATCH-3, WATCH-57
#[test]
fn figures_of_a_sample_are_not_said_of_a_moment_at_which_nothing_lives() {
    let mut reading = busy();
    reading.frame.stage = Stage::Replayed;
    reading.run.length_s = Some(10.0);
    reading.frame.listed.clear();
    let shown = text(&model(reading), 80);
    assert_has(
        &shown,
        &["PROCESSES up to 3 live and 5 threads in this sample, 280 ended\n", "cc1", "     0  90.0 MB"],
    );
}

// Requirement: WATCH-6
#[test]
fn rows_without_room_and_processes_without_a_row_are_counted() {
    let mut reading = busy();
    reading.frame.listed = (1..=5_000).map(|pid| process(pid, 0, &format!("p{pid}"), pid)).collect();
    let mut model = model(reading);
    let shown = text(&model, 80);
    assert_has(
        &shown,
        &[
            "PROCESSES 3 live, 5 threads, 904 more not listed, 280 ended\n",
            "p5000",
            " more rows)\n",
            "COVERAGE",
        ],
    );
    // 4,096 rows of live processes, and one of ended ones.
    let rows = shown.lines().filter(|line| line.trim_start().starts_with('p')).count();
    assert!(shown.contains(&format!("(and {} more rows)", 4_097 - rows)), "{shown}");
    // On a terminal they are scrolled to.
    model.is_interactive = true;
    assert!(!drawn(&model, 80, 24).contains("more rows"));
}

// Requirement: WATCH-5
#[test]
fn terminal_of_ascii_gets_ascii_alone() {
    let mut reading = busy();
    reading.frame.listed[1].command = "数据".into();
    let mut model = model(reading);
    model.is_interactive = true;
    assert!(drawn(&model, 80, 40).is_ascii());
    model.console.is_unicode = true;
    assert_has(&drawn(&model, 80, 40), &["█", "数据"]);
}
