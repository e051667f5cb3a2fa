//! A finished run, by its tracking file in the form `.jsonl`: any moment of it.

use std::io::BufReader;
use std::path::Path;

use gpu_track_collector::bounded_lines;
use gpu_track_collector::given_file::{self, MOST_OF_ROWS};
use gpu_track_collector::model::alert::{EventKind, Events, RunEvent};
use gpu_track_collector::model::gpu::Figure;
use gpu_track_collector::model::report::{Crash, Report, Usable};
use gpu_track_collector::model::signal::signal_name;
use gpu_track_collector::model::tree_sample::{Event, GpuSample, TreeSample};
use gpu_track_collector::report::alerts_in_words::event_in_words;
use gpu_track_collector::report::figures;
use gpu_track_collector::report::read::read as read_report;
use gpu_track_collector::report::tracking_line::{End, Line};

use super::frame::{Ended, Frame, Process, Reading, Run, Stage};
use super::gpus::Gpu;
use super::history::Point;
use super::peaks::Peaks;

/// Most samples that are kept. Beyond that, every two neighbours become one.
const MOST_SAMPLES: usize = 20_000;

/// A finished run.
#[derive(Debug)]
pub(super) struct Replay {
    run: Run,
    /// The start of the run, CLOCK_MONOTONIC nanoseconds.
    start_ns: u64,
    samples: Vec<TreeSample>,
    processes: Vec<Lived>,
    /// The report at the end of the file. `None`: the file has none that can be read.
    report: Option<Report>,
}

/// A process of the file.
#[derive(Debug)]
struct Lived {
    process: Process,
    /// Its end, CLOCK_MONOTONIC nanoseconds.
    end_ns: u64,
    is_still_running: bool,
}

impl Replay {
    /// Reads a file. Lines that are torn, or of a later version, are left out.
    ///
    /// # Errors
    /// If it can't be read or has no sample, as a text to put behind its name.
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        if path.extension().is_none_or(|extension| extension != "jsonl") {
            return Err("can't be replayed: only files in .jsonl can".into());
        }
        let unreadable = |error: std::io::Error| format!("cannot be read: {error}");
        let file = given_file::open(path, MOST_OF_ROWS).map_err(|error| error.to_string())?;
        let lines = bounded_lines(BufReader::new(file));
        let mut replay = Self {
            run: Run::default(),
            start_ns: 0,
            samples: Vec::new(),
            processes: Vec::new(),
            report: None,
        };
        for line in lines {
            let line = line.map_err(unreadable)?;
            if let Some(line) = std::str::from_utf8(&line).ok().and_then(Line::read) {
                replay.take(line);
            }
        }
        let (Some(first), Some(last)) = (replay.samples.first(), replay.samples.last()) else {
            return Err("has no sample".into());
        };
        replay.start_ns = first.from_ns;
        replay.run.length_s = Some(last.at_ns.saturating_sub(first.from_ns) as f64 / 1e9);
        Ok(replay)
    }

    /// Takes in a line of the file.
    fn take(&mut self, line: Line) {
        match line {
            Line::Run(run) => {
                self.run.command = run.command;
                // All of the machine, until a report at the end of the file says what the command may use.
                let mut usable = Usable::default();
                usable.cores.count = f64::from(run.host.cores);
                usable.memory.bytes = run.host.ram_bytes;
                self.run.usable = Some(usable);
            }
            Line::Sample(sample) => {
                self.samples.push(*sample);
                if self.samples.len() > MOST_SAMPLES {
                    self.samples = halved(&self.samples);
                }
            }
            Line::Process(ended) => {
                let usage = ended.usage;
                let end_ns = ended.start_ns.saturating_add((usage.wall_s.max(0.0) * 1e9) as u64);
                let process = Process {
                    pid: Some(usage.pid.into()),
                    parent_pid: usage.ppid.map(Into::into),
                    start_ns: ended.start_ns,
                    command: usage.command,
                    rss_bytes: usage.peak_rss_bytes,
                    cpu_s: usage.cpu_s,
                    gpu_bytes: usage.gpu.and_then(|gpu| gpu.peak_ram_bytes),
                };
                self.processes.push(Lived { process, end_ns, is_still_running: ended.is_still_running });
            }
            // After a sample was written, it turned out to have had more RAM. It can be a part of a joined one by now.
            Line::Event(Event::Revised { at_ns, max_footprint_bytes }) => {
                let at = self.samples.partition_point(|sample| sample.at_ns < at_ns);
                if let Some(sample) = self.samples.get_mut(at) {
                    sample.footprint_bytes.combined.raise(max_footprint_bytes.combined);
                }
            }
            Line::End(end) => self.take_end(&end),
            // The view is of the samples, which are of one node.
            Line::Nodes(_) => {}
        }
    }

    /// Takes in the last line, which has the report. A report that can't be read is left out.
    fn take_end(&mut self, end: &End) {
        self.report = read_report(&end.report.to_string()).ok().map(|read| read.report);
        if let Some(report) = &self.report {
            self.run.usable = Some(report.usable.clone());
        }
    }

    /// Gives the length of the run, seconds.
    pub(super) fn length_s(&self) -> f64 {
        self.run.length_s.unwrap_or(0.0)
    }

    /// Gives the largest figures of the whole run.
    pub(super) fn peaks(&self) -> Peaks {
        let mut peaks = Peaks::default();
        for sample in &self.samples {
            peaks.raise_cpu(sample.cpu_window_percent.combined);
            peaks.raise_gpus(&gpus(sample));
        }
        peaks
    }

    /// Gives the run at so many seconds after its start, without history and peaks. RAM, CPU and GPUs are those of the sample that
    /// contains the moment.
    pub(super) fn at(&self, at_s: f64) -> Reading {
        let at_s = at_s.clamp(0.0, self.length_s());
        let at_ns = self.start_ns.saturating_add((at_s * 1e9) as u64);
        let next = self.samples.partition_point(|sample| sample.at_ns < at_ns);
        let at = next.min(self.samples.len().saturating_sub(1));
        let Some(sample) = self.samples.get(at) else { return Reading::default() };
        let before = at.checked_sub(1).and_then(|before| self.samples.get(before));
        let mut commands = ram_by_command(sample);
        commands.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let is_live = |lived: &&Lived| {
            lived.process.start_ns <= at_ns && (at_ns < lived.end_ns || lived.is_still_running)
        };
        let frame = Frame {
            at_s,
            stage: Stage::Replayed,
            ram_bytes: Some(sample.footprint_bytes.combined.max),
            max_ram_bytes: self.max_ram_bytes(),
            cpu_percent: sample.cpu_percent_since(before).combined,
            processes: Some(sample.processes.max),
            threads: Some(sample.threads.combined.max),
            listed: self.processes.iter().filter(is_live).map(|lived| lived.process.clone()).collect(),
            others: 0,
            ram_by_command: Some(commands),
            gpus: gpus(sample),
            ended: Some(self.ended(at_ns)),
            alarms: self.report.iter().flat_map(|report| alarms(report.events.as_ref(), at_s)).collect(),
            coverage: self.coverage(),
            events: self.events(),
        };
        Reading { run: self.run.clone(), frame, ..Reading::default() }
    }

    /// Gives the history of the whole run.
    pub(super) fn points(&self) -> Vec<Point> {
        let s = |ns: u64| ns.saturating_sub(self.start_ns) as f64 / 1e9;
        let point = |sample: &TreeSample| Point {
            from_s: s(sample.from_ns),
            at_s: s(sample.at_ns),
            ram_bytes: sample.footprint_bytes.combined.max,
            by_command: Some(ram_by_command(sample)),
        };
        self.samples.iter().map(point).collect()
    }

    /// Gives the largest RAM of the run, bytes: that of the report, else that of the samples.
    fn max_ram_bytes(&self) -> Option<u64> {
        let sampled = self.samples.iter().map(|sample| sample.footprint_bytes.combined.max).max();
        let reported = self.report.as_ref().and_then(|report| report.max_ram.combined.footprint_bytes);
        reported.or(sampled)
    }

    /// Counts the processes that ended by a moment, CLOCK_MONOTONIC nanoseconds.
    fn ended(&self, at_ns: u64) -> Ended {
        let mut ended = Ended::default();
        for lived in self.processes.iter().filter(|lived| lived.end_ns <= at_ns && !lived.is_still_running) {
            ended.count += 1;
            let process = &lived.process;
            let same_command = ended.by_command.entry(process.command.clone()).or_default();
            same_command.count += 1;
            same_command.cpu_s = same_command.cpu_s.into_iter().chain(process.cpu_s).reduce(|a, b| a + b);
            same_command.peak_rss_bytes = same_command.peak_rss_bytes.max(process.rss_bytes);
        }
        ended
    }

    /// Says how the figures are known, a part of a sentence each.
    fn coverage(&self) -> Vec<String> {
        let Some(report) = &self.report else { return vec!["the file has no report".into()] };
        let known = &report.coverage;
        let mut parts = vec![format!(
            "CPU time of processes: {} exact, {} sampled, {} unknown",
            known.exact, known.sampled, known.unknown
        )];
        if known.uninstrumented > 0 {
            parts.push(format!("{} uninstrumented", known.uninstrumented));
        }
        parts
    }

    /// Says what happened in the whole run, a line each: how the command ended, and what crashed.
    fn events(&self) -> Vec<String> {
        let Some(report) = &self.report else {
            return vec!["the file has no end of the run: its last processes are not in it".into()];
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
fn alarms(events: Option<&Events>, at_s: f64) -> Vec<String> {
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

/// Gives the RAM that each command adds at a sample, bytes, in the order of the file.
fn ram_by_command(sample: &TreeSample) -> Vec<(String, u64)> {
    sample.commands.iter().map(|one| (one.command.to_string(), one.added_bytes)).collect()
}

/// Joins each two neighbours into one sample. This bounds the memory that a long file takes.
fn halved(samples: &[TreeSample]) -> Vec<TreeSample> {
    let join = |neighbours: &[TreeSample]| {
        let (first, rest) = neighbours.split_first()?;
        Some(rest.iter().fold(first.clone(), |all, next| all.then(next.clone())))
    };
    samples.chunks(2).filter_map(join).collect()
}

/// Gives the GPUs at a sample.
fn gpus(sample: &TreeSample) -> Vec<Gpu> {
    let gpu = |gpu: &GpuSample| Gpu {
        index: gpu.device.index.map(u64::from),
        id: gpu.device.id.clone(),
        name: gpu.device.name.clone().unwrap_or_default(),
        total_bytes: gpu.device.memory_bytes,
        used_bytes: gpu.used_bytes,
        run_bytes: gpu.run_bytes.map(|run| run.combined),
        busy_percent: gpu.busy_percent,
        power_w: gpu.gauge(Figure::Power),
        temperature_c: gpu.gauge(Figure::Temperature),
    };
    sample.gpu.devices.iter().map(gpu).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn line(number: u64, command: &str) -> String {
        let mut sample = TreeSample { from_ns: number * S, at_ns: (number + 1) * S, ..TreeSample::default() };
        sample.footprint_bytes.combined.raise(100 + number);
        sample.commands = vec![gpu_track_collector::model::tree_sample::CommandSample {
            command: command.into(),
            processes: 1,
            added_bytes: 90,
            cpu_ns: 0,
        }];
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
            ("t.csv", "", "only files in .jsonl can"),
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
            alarms(Some(&events), at_s).iter().map(|line| line[6..13].to_owned()).collect()
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

    // Requirement: WATCH-54
    #[test]
    fn samples_of_a_long_run_are_joined_and_keep_their_peaks() {
        let samples: Vec<TreeSample> = (0..5)
            .map(|number| {
                let Some(Line::Sample(sample)) = Line::read(&line(number, "a")) else { panic!() };
                *sample
            })
            .collect();
        let joined = halved(&samples);
        let shown =
            |sample: &TreeSample| (sample.from_ns / S, sample.at_ns / S, sample.footprint_bytes.combined.max);
        let shown: Vec<_> = joined.iter().map(shown).collect();
        assert_eq!(shown, [(0, 2, 101), (2, 4, 103), (4, 5, 104)]);
    }
}
