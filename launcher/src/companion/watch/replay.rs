//! A finished run, by its tracking file: any moment of it.

use std::path::Path;

use gpu_track_collector::model::alert::{EventKind, Events, RunEvent};
use gpu_track_collector::model::ended_process::EndedProcess;
use gpu_track_collector::model::gpu::gpu_figure::{ByGpuFigure, GpuFigure};
use gpu_track_collector::model::report::{Crash, Report, Usable};
use gpu_track_collector::model::signal::signal_name;
use gpu_track_collector::model::sorting::Sorting;
use gpu_track_collector::model::time_groups::{ByTimeGroup, TimeGroup};
use gpu_track_collector::model::tree_sample::GpuSample;
use gpu_track_collector::read_recording;
use gpu_track_collector::report::alerts_in_words::event_in_words;
use gpu_track_collector::report::figures;
use gpu_track_collector::report::over_time::{Detail, Recording};
use gpu_track_collector::report::read::read as read_report;

use super::frame::{Ended, Frame, Process, Reading, Run, Stage};
use super::gpus::Gpu;
use super::history::Point;
use super::peaks::Peaks;
use super::summary::how_known;

/// The column of the tree's RAM, shared memory counted once.
const RAM: &str = "ram_combined_bytes";
/// The column of the tree's CPU utilization.
const CPU: &str = "cpu_combined_percent";

/// A finished run.
#[derive(Debug)]
pub(super) struct Replay {
    run: Run,
    recording: Recording,
    /// The largest RAM of the points, bytes.
    largest_ram_bytes: Option<u64>,
    /// The report of the file. `None`: the file has none that can be read.
    report: Option<Report>,
}

impl Replay {
    /// Reads a tracking file.
    ///
    /// # Errors
    /// If it can't be read or has no sample, as a text to put after its name.
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let recording = read_recording(path, Detail::Moments)
            .ok_or("can't be replayed: files in .csv, .jsonl and .sqlite can")??;
        let (_, end_s) = recording.over_time.times().next_back().ok_or("has no sample")?;
        let report = recording.report.as_deref().and_then(|json| read_report(json).ok());
        let report = report.map(|read| read.report);
        // A file that does not tell the command stands for it.
        let command = vec![path.display().to_string()];
        let mut run = Run { length_s: Some(end_s.max(0.0)), command, ..Run::default() };
        if let Some(recorded) = &recording.run {
            run.command.clone_from(&recorded.command);
        }
        // All of the machine, unless a report at the end of the file says what the command may use.
        let mut usable = Usable::default();
        usable.cores.count = recording.cores.unwrap_or(0.0);
        usable.memory.bytes = recording.ram_bytes;
        run.usable = Some(usable);
        run.usable = report.as_ref().map(|report| report.usable.clone()).or(run.usable);
        let points = 0..recording.over_time.times().len();
        let ram = points.filter_map(|point| recording.over_time.value(point, RAM));
        let largest_ram_bytes = ram.reduce(f64::max).map(|bytes| bytes as u64);
        Ok(Self { run, recording, largest_ram_bytes, report })
    }

    /// The length of the run, seconds.
    pub(super) fn length_s(&self) -> f64 {
        self.run.length_s.unwrap_or(0.0)
    }

    /// The largest figures of the whole run.
    pub(super) fn peaks(&self) -> Peaks {
        let mut peaks = Peaks::default();
        for point in 0..self.recording.over_time.times().len() {
            peaks.raise_cpu(self.value(point, CPU));
            peaks.raise_gpus(&self.gpus(point));
        }
        peaks
    }

    /// A value of a point. `None`: it is not known.
    fn value(&self, point: usize, column: &str) -> Option<f64> {
        self.recording.over_time.value(point, column)
    }

    /// A value of a point that is a whole number. `None`: it is not known.
    fn whole(&self, point: usize, column: &str) -> Option<u64> {
        self.value(point, column).filter(|value| *value >= 0.0).map(|value| value as u64)
    }

    /// How the time of a point was spent, percent. `None`: not known.
    fn time_percent(&self, point: usize) -> Option<ByTimeGroup<f64>> {
        let column = |group: TimeGroup| self.value(point, &format!("time_{}_percent", group.name()));
        let percent = ByTimeGroup::new(column);
        let is_known = percent.values().into_iter().all(Option::is_some);
        is_known.then(|| ByTimeGroup::new(|group| percent.of(group).unwrap_or(0.0)))
    }

    /// The run at so many seconds after its start, without history and peaks. RAM, CPU and GPUs are those of the point that
    /// contains the moment.
    pub(super) fn at(&self, at_s: f64) -> Reading {
        let at_s = at_s.clamp(0.0, self.length_s());
        let at_ns = self.recording.start_ns.saturating_add((at_s * 1e9) as u64);
        let point = self.recording.over_time.times().take_while(|(_, end_s)| *end_s < at_s).count();
        let mut commands = self.ram_by_command(point);
        if let Some(commands) = &mut commands {
            commands.order_by(|(a, a_bytes), (b, b_bytes)| b_bytes.cmp(a_bytes).then_with(|| a.cmp(b)));
        }
        let is_live = |process: &&EndedProcess| {
            process.start_ns <= at_ns && (at_ns < process.end_ns() || process.is_still_running)
        };
        let listed: Vec<Process> = self.processes().filter(is_live).map(shown).collect();
        let processes = self.whole(point, "processes");
        let frame = Frame {
            at_s,
            stage: Stage::Replayed,
            ram_bytes: self.whole(point, RAM),
            max_ram_bytes: self.max_ram_bytes(),
            cpu_percent: self.value(point, CPU),
            time_percent: self.time_percent(point),
            processes,
            threads: self.recording.moments.get(point).and_then(|moment| moment.threads),
            listed,
            others: 0,
            ram_by_command: commands,
            gpus: self.gpus(point),
            ended: self.recording.processes.is_some().then(|| self.ended(at_ns)),
            alerts: self.report.iter().flat_map(|report| alerts(report.events.as_ref(), at_s)).collect(),
            coverage: self.coverage(),
            events: self.events(),
        };
        Reading { run: self.run.clone(), frame, ..Reading::default() }
    }

    /// The history of the whole run, as far as its RAM is known.
    pub(super) fn points(&self) -> Vec<Point> {
        let point = |(at, (from_s, at_s)): (usize, (f64, f64))| {
            Some(Point {
                from_s,
                at_s,
                ram_bytes: self.whole(at, RAM)?,
                cpu_percent: self.value(at, CPU),
                by_command: self.ram_by_command(at),
            })
        };
        self.recording.over_time.times().enumerate().filter_map(point).collect()
    }

    /// The RAM that each command adds at a point, bytes, in the order of the file. `None`: its form does not tell it.
    fn ram_by_command(&self, point: usize) -> Option<Vec<(String, u64)>> {
        let moment = self.recording.moments.get(point)?;
        Some(moment.commands.iter().map(|(command, bytes)| (command.to_string(), *bytes)).collect())
    }

    /// The GPUs at a point. If the file has only sums over the GPUs, they are returned as one.
    fn gpus(&self, point: usize) -> Vec<Gpu> {
        let moment = self.recording.moments.get(point);
        let devices: Vec<Gpu> = moment.into_iter().flat_map(|moment| &moment.gpus).map(gpu).collect();
        let column = |figure: GpuFigure| format!("gpus_{}", figure.name());
        let figures =
            ByGpuFigure::new(|figure| self.value(point, &column(figure)).filter(|value| *value >= 0.0));
        let is_known = figures.iter().any(Option::is_some);
        let sum = Gpu { name: "all GPUs".into(), figures, ..Gpu::default() };
        devices.into_iter().chain(is_known.then_some(sum)).collect()
    }

    /// The largest RAM of the run, bytes: that of the report, else that of the points.
    fn max_ram_bytes(&self) -> Option<u64> {
        let reported = self.report.as_ref().and_then(|report| report.max_ram.combined.footprint_bytes);
        reported.or(self.largest_ram_bytes)
    }

    /// The processes of the file.
    fn processes(&self) -> impl Iterator<Item = &EndedProcess> {
        self.recording.processes.iter().flatten()
    }

    /// Counts the processes that ended by a moment, CLOCK_MONOTONIC nanoseconds.
    fn ended(&self, at_ns: u64) -> Ended {
        let mut ended = Ended::default();
        let is_over = |process: &&EndedProcess| process.end_ns() <= at_ns && !process.is_still_running;
        for EndedProcess { usage, .. } in self.processes().filter(is_over) {
            ended.count += 1;
            let same_command = ended.by_command.entry(usage.command.clone()).or_default();
            same_command.count += 1;
            same_command.cpu_s = same_command.cpu_s.into_iter().chain(usage.cpu_s).reduce(|a, b| a + b);
            same_command.peak_rss_bytes = same_command.peak_rss_bytes.max(usage.peak_rss_bytes);
        }
        ended
    }

    /// Returns parts of a sentence about how the figures are known, or one that says why that is unknown.
    fn coverage(&self) -> Vec<String> {
        let Some(report) = &self.report else { return vec![self.no_report().into()] };
        let known = &report.coverage;
        how_known("processes", [known.exact, known.sampled, known.unknown], known.uninstrumented)
    }

    /// Says why there is no report: the file lacks it, or its form has none.
    fn no_report(&self) -> &'static str {
        if self.recording.can_have_report {
            "the file has no report"
        } else {
            "files of this form have no report"
        }
    }

    /// Says what happened in the whole run, a line each: how the command ended, and what crashed.
    fn events(&self) -> Vec<String> {
        let Some(report) = &self.report else {
            if !self.recording.can_have_report {
                return Vec::new();
            }
            return vec!["the file has no end of the run: its last processes may be missing".into()];
        };
        let at = figures::readable(report.wall_s);
        let exit = match (report.ending.exit.code, report.ending.exit.signal) {
            (Some(code), _) => vec![format!("{at}: the command ended with status {code}")],
            (None, Some(signal)) => vec![format!("{at}: {} ended the command", signal_name(signal))],
            (None, None) => Vec::new(),
        };
        let crash = |crash: &Crash| {
            format!(
                "{} x {} ended by {}",
                crash.count,
                crash.command.as_deref().unwrap_or("?"),
                crash.signal_name
            )
        };
        exit.into_iter().chain(report.crashes.iter().flatten().map(crash)).collect()
    }
}

/// Says which alerts were on at a moment, seconds after the start, a line each, with their figures of when they went on.
fn alerts(events: Option<&Events>, at_s: f64) -> Vec<String> {
    let mut is_on: Vec<&RunEvent> = Vec::new();
    let list = events.into_iter().flat_map(|events| &events.list);
    for event in list.take_while(|event| event.at_s <= at_s) {
        match event.kind {
            EventKind::Warning | EventKind::Critical | EventKind::Growth | EventKind::GpuIdle => {
                is_on.push(event);
            }
            EventKind::Recovered => is_on.retain(|other| other.rule != event.rule),
            _ => {}
        }
    }
    is_on.into_iter().map(event_in_words).collect()
}

/// Converts a process of the file for the view.
fn shown(EndedProcess { start_ns, usage, .. }: &EndedProcess) -> Process {
    Process {
        pid: Some(usage.pid.into()),
        parent_pid: usage.ppid.map(Into::into),
        start_ns: *start_ns,
        command: usage.command.clone(),
        rss_bytes: usage.peak_rss_bytes,
        cpu_s: usage.cpu_s,
        // A tracking file has no GPU memory of single processes.
        gpu_bytes: None,
    }
}

/// Converts a GPU of the file for the view.
fn gpu(gpu: &GpuSample) -> Gpu {
    Gpu {
        index: gpu.device.index.map(u64::from),
        id: gpu.device.id.clone(),
        parent: gpu.device.parent.clone(),
        name: gpu.device.name.clone().unwrap_or_default(),
        total_bytes: gpu.device.memory_bytes,
        figures: gpu.into(),
    }
}

#[cfg(test)]
mod tests {
    use gpu_track_collector::model::tree_sample::{CommandSample, TreeSample};
    use gpu_track_collector::report::tracking_line::Line;

    use super::*;

    const S: u64 = 1_000_000_000;

    fn line(number: u64, command: &str) -> String {
        let mut sample = TreeSample { from_ns: number * S, at_ns: (number + 1) * S, ..TreeSample::default() };
        sample.footprint_bytes.combined.raise(100 + number);
        sample.commands =
            vec![CommandSample { command: command.into(), processes: 1, added_bytes: 90, cpu_ns: 0 }];
        Line::Sample(Box::new(sample)).text()
    }

    // Requirement: WATCH-3
    #[test]
    fn moment_of_a_file_has_its_sample_and_a_torn_last_line_is_left_out() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("t.jsonl");
        std::fs::write(&path, line(5, "a") + &line(6, "b") + "{\"sample\":{\"from_ns\":7,").unwrap();
        let replay = Replay::read(&path).unwrap();
        assert_eq!((replay.length_s(), replay.points().len()), (2.0, 2));
        let largest = |at_s| replay.at(at_s).frame.ram_by_command.unwrap()[0].0.clone();
        assert_eq!([largest(0.0), largest(1.0), largest(1.5), largest(99.0)], ["a", "a", "b", "b"]);
        assert_eq!(
            (replay.at(0.0).frame.ram_bytes, replay.at(0.0).frame.max_ram_bytes),
            (Some(105), Some(106))
        );
        assert_eq!(replay.at(-1.0).frame.stage, Stage::Replayed);
        assert!(replay.at(2.0).frame.events[0].contains("no end of the run: its last processes"));
        for (name, content, problem) in [
            ("t.csv", "", "it has fewer than three lines"),
            ("t.txt", "", "files in .csv, .jsonl and .sqlite can"),
            ("empty.jsonl", "", "has no sample"),
            ("garbage.jsonl", "\u{1b}[2J\nnull\n{}\n", "has no sample"),
        ] {
            let path = directory.path().join(name);
            std::fs::write(&path, content).unwrap();
            assert!(Replay::read(&path).unwrap_err().ends_with(problem));
        }
    }

    // Requirement: WATCH-3
    #[test]
    fn cpu_time_of_missing_lines_is_spread_over_their_time() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("t.jsonl");
        let busy = |number: u64, cpu_s: u64| {
            let Some(Line::Sample(mut sample)) = Line::read(&line(number, "a")) else { panic!() };
            sample.cpu.combined.time_ns = cpu_s * S;
            Line::Sample(sample).text()
        };
        // The samples that end at 3, 4 and 5 s are missing.
        std::fs::write(&path, busy(0, 1) + &busy(1, 2) + &busy(5, 6)).unwrap();
        let replay = Replay::read(&path).unwrap();
        let percent = |at_s| replay.at(at_s).frame.cpu_percent;
        assert_eq!([percent(1.0), percent(2.0), percent(6.0)], [Some(100.0); 3]);
    }

    // Requirement: WATCH-14
    #[test]
    fn moment_has_the_alerts_that_were_on_then() {
        let event =
            |at_s, kind, rule: &str| RunEvent { rule: Some(rule.into()), ..RunEvent::new(at_s, kind) };
        let list = vec![
            RunEvent::new(0.0, EventKind::Start),
            event(1.0, EventKind::Warning, "ram>80%"),
            event(2.0, EventKind::Critical, "ram>95%"),
            event(3.0, EventKind::Recovered, "ram>80%"),
        ];
        let events = Events { list, ..Events::default() };
        let on = |at_s| -> Vec<String> {
            alerts(Some(&events), at_s).iter().map(|line| line[6..13].to_owned()).collect()
        };
        assert_eq!([on(0.5), on(1.0)], [vec![], vec!["ram>80%".to_owned()]]);
        assert_eq!([on(2.5), on(9.0)], [vec!["ram>80%", "ram>95%"], vec!["ram>95%"]]);
    }

    // Requirement: WATCH-1
    #[test]
    fn file_without_line_breaks_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("t.jsonl");
        std::fs::File::create(&path).unwrap().set_len(17 << 20).unwrap();
        assert_eq!(Replay::read(&path).unwrap_err(), "cannot be read: a line is longer than 16 MiB");
    }
}
