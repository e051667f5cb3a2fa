//! A run that goes on, by its live file. It is mapped read-only: nothing in the run changes.

use std::collections::BTreeMap;
use std::path::Path;

use gpu_track_abi::live::LIVE_VERSION;
use gpu_track_abi::sample::{SAMPLE_CAPACITY, Sample};
use gpu_track_abi::table::{GpuEntry, ProcessEntry};
use gpu_track_collector::model::sorting::Sorting;
use gpu_track_collector::segment::live::LiveFile;
use gpu_track_collector::{live_cpu_percent, live_figures, was_killed};

use super::frame::{Frame, Process, Reading, Run, Stage};
use super::gpus::Gpu;
use super::history::Point;
use super::peaks::Peaks;
use super::summary::Summary;
use crate::companion::runs::segment_of;

/// CPU utilization is that of the last samples over at least this time, nanoseconds.
const CPU_WINDOW_NS: u64 = 1_000_000_000;
/// A run is silent after so long without a sample, seconds, unless its samples are further apart.
const SILENT_S: f64 = 3.0;
/// A run whose samples are far apart is silent after so many times the time between two of them, since one can be late.
const SILENT_INTERVALS: f64 = 2.0;

/// The live file of a run, and what earlier looks at it have found.
#[derive(Debug)]
pub(super) struct Live {
    file: LiveFile,
    summary: Option<Summary>,
    /// The time of the summary, CLOCK_MONOTONIC nanoseconds.
    summary_ns: u64,
    /// The newest sample that a reading has put into the history, with its number. `None`: there is none yet.
    newest_in_history: Option<(u64, Sample)>,
}

impl Live {
    /// Opens the live file of a run, for reading only.
    ///
    /// # Errors
    /// If it can't be read, as a text to put after its name.
    pub(super) fn open(path: &Path) -> Result<Self, String> {
        let file = LiveFile::open(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::InvalidData => format!("is no live file of version {LIVE_VERSION}"),
            _ => format!("cannot be read: {error}"),
        })?;
        Ok(Self { file, summary: None, summary_ns: 0, newest_in_history: None })
    }

    /// Looks at the run. The first look gives the history and the peaks of all samples in the file, a later one the history since
    /// the look before. `now_ns`: CLOCK_MONOTONIC. `is_alive` says whether a process is there.
    pub(super) fn read(&mut self, now_ns: u64, is_alive: impl Fn(u32) -> bool) -> Reading {
        self.update_summary();
        let run = self.summary.as_ref().map(Summary::run).unwrap_or_default();
        let Some((newest, last)) = self.newest() else {
            let stage = self.stage(None, &run, is_alive);
            return Reading { frame: Frame { stage, ..Frame::default() }, run, ..Reading::default() };
        };
        let start_ns = self.start_ns(newest).min(last.monotonic_ns);
        let seconds_at = |ns: u64| ns.saturating_sub(start_ns) as f64 / 1e9;
        let processes = self.file.processes().ok();
        let listed: Vec<Process> = processes.iter().flat_map(|table| &table.entries).map(process).collect();
        // Without a table of processes, the commands are unknown.
        let by_command =
            processes.as_ref().map(|table| split_by_rss(&listed, table.others, last.combined_bytes));
        let silent_s = now_ns.saturating_sub(last.monotonic_ns) as f64 / 1e9;
        let summary = self.summary.as_ref();
        let frame = Frame {
            at_s: seconds_at(last.monotonic_ns),
            stage: self.stage(Some((silent_s, self.silence_limit_s(newest, &last))), &run, is_alive),
            ram_bytes: Some(last.combined_bytes),
            // The summary is written less often than samples, so it may not know the newest one.
            max_ram_bytes: summary.and_then(Summary::max_ram_bytes).max(Some(last.combined_bytes)),
            cpu_percent: self.cpu_percent(newest, last),
            time_percent: summary.and_then(Summary::time_percent),
            processes: Some(last.processes),
            threads: Some(last.threads),
            listed,
            others: processes.as_ref().map_or(0, |table| table.others),
            ram_by_command: by_command.clone(),
            gpus: self.file.gpus().map(|table| gpus(&table.entries)).unwrap_or_default(),
            ended: summary.and_then(Summary::ended),
            alerts: summary.map(Summary::alerts).unwrap_or_default(),
            coverage: summary.map(Summary::coverage).unwrap_or_default(),
            events: summary.map(Summary::events).unwrap_or_default(),
        };
        // At the first look, earlier samples show peaks. Later, the frames do. `new_points` ends the first look.
        let peaks = if self.newest_in_history.is_none() { self.peaks(newest) } else { Peaks::default() };
        let points = self.new_points(newest, start_ns, by_command);
        Reading { run, frame, points, peaks }
    }

    /// Reads the summary if it is a new one. If it can't be read, what was known stays: nothing is written yet, or a killed
    /// collector left it half-written.
    fn update_summary(&mut self) {
        let Ok((at_ns, text)) = self.file.summary() else { return };
        if at_ns != self.summary_ns || self.summary.is_none() {
            self.summary = Summary::read(&text).or_else(|| self.summary.take());
            self.summary_ns = at_ns;
        }
    }

    /// The newest sample, with its number. `None`: there is none.
    fn newest(&self) -> Option<(u64, Sample)> {
        // A sample is counted after it is written, so the last one is whole.
        let number = self.file.count().checked_sub(1)?;
        Some((number, self.file.sample(number)?))
    }

    /// The start of the run, CLOCK_MONOTONIC nanoseconds. Without a summary, it is the first sample that is there, or 0.
    fn start_ns(&self, newest: u64) -> u64 {
        let known = self.summary.as_ref().and_then(|summary| summary.start_ns);
        known.or_else(|| self.samples(newest).next().map(|(_, sample)| sample.monotonic_ns)).unwrap_or(0)
    }

    /// The samples up to the one of the number `newest` that are there, each with its number, the oldest first.
    fn samples(&self, newest: u64) -> impl DoubleEndedIterator<Item = (u64, Sample)> {
        // The ring keeps so many; older ones are overwritten.
        let oldest = (newest + 1).saturating_sub(SAMPLE_CAPACITY as u64);
        (oldest..=newest).filter_map(|number| Some((number, self.file.sample(number)?)))
    }

    /// The CPU utilization of the tree up to the sample `last` of the number `newest`, percent of one core. It is taken
    /// over the time since the latest sample that is at least [`CPU_WINDOW_NS`] older, or else since the oldest one. `None`: there
    /// is no sample before `last`.
    fn cpu_percent(&self, newest: u64, last: Sample) -> Option<f64> {
        let mut first = None;
        for (_, sample) in self.samples(newest).rev().filter(|(number, _)| *number < newest) {
            first = Some(sample);
            if is_window(&sample, &last) {
                break;
            }
        }
        live_cpu_percent(&first?, &last)
    }

    /// The largest CPU utilization over a window that the samples up to `newest` show. GPUs have no history here.
    fn peaks(&self, newest: u64) -> Peaks {
        let samples: Vec<Sample> = self.samples(newest).map(|(_, sample)| sample).collect();
        let (mut peaks, mut first) = (Peaks::default(), 0);
        for last in &samples {
            // Go on to the latest sample that is a window before this one.
            while samples.get(first + 1).is_some_and(|next| is_window(next, last)) {
                first += 1;
            }
            let begin = samples.get(first).filter(|begin| is_window(begin, last));
            peaks.raise_cpu(begin.and_then(|begin| live_cpu_percent(begin, last)));
        }
        peaks
    }

    /// The stretches of time since the last look: one for all new samples together. At the first look, there is one for each sample
    /// that is there. Notes the newest sample, by which the next look knows what is new. `by_command`: RAM by command now. Only the
    /// newest stretch gets it, because earlier RAM by command is unknown.
    fn new_points(
        &mut self,
        newest: u64,
        start_ns: u64,
        by_command: Option<Vec<(String, u64)>>,
    ) -> Vec<Point> {
        let seconds_at = |ns: u64| ns.saturating_sub(start_ns) as f64 / 1e9;
        let is_new = |number: u64| self.newest_in_history.is_none_or(|(last, _)| number > last);
        let new: Vec<(u64, Sample)> = self.samples(newest).filter(|(number, _)| is_new(*number)).collect();
        let Some((last, end)) = new.last().copied() else { return Vec::new() };
        // The stretch from one sample to another. `ram_bytes`: the largest RAM within it.
        let stretch = |from: &Sample, to: &Sample, ram_bytes: u64| Point {
            from_s: seconds_at(from.monotonic_ns.min(to.monotonic_ns)),
            at_s: seconds_at(to.monotonic_ns),
            ram_bytes,
            cpu_percent: live_cpu_percent(from, to),
            by_command: None,
        };
        let samples = || new.iter().map(|(_, sample)| sample);
        let mut points: Vec<Point> = match self.newest_in_history {
            // Looks are half a second apart, which is fine enough for a chart: all samples since the last one are one stretch.
            Some((_, earlier)) => {
                let largest = samples().map(|sample| sample.combined_bytes).max().unwrap_or(0);
                vec![stretch(&earlier, &end, largest)]
            }
            // A stretch begins at the sample before; the first of all has no length.
            None => {
                let before = samples().take(1).chain(samples());
                before.zip(samples()).map(|(from, to)| stretch(from, to, to.combined_bytes)).collect()
            }
        };
        if let Some(point) = points.last_mut() {
            point.by_command = by_command;
        }
        self.newest_in_history = Some((last, end));
        points
    }

    /// After how many seconds without a sample a run counts as silent: [`SILENT_INTERVALS`] times `--st`, and at least [`SILENT_S`].
    /// Samples that cost much are further apart, so the time between the last two counts if that is longer. `last`: the sample of the
    /// number `newest`.
    fn silence_limit_s(&self, newest: u64, last: &Sample) -> f64 {
        let interval_s = self.summary.as_ref().and_then(Summary::sampling_interval_s).unwrap_or(0.0);
        let before = newest.checked_sub(1).and_then(|number| self.file.sample(number));
        let gap_ns = before.map_or(0, |before| last.monotonic_ns.saturating_sub(before.monotonic_ns));
        (SILENT_INTERVALS * interval_s.max(gap_ns as f64 / 1e9)).max(SILENT_S)
    }

    /// Says how far the run is. `silence`: seconds since the last sample, and after how many the run is silent; `None`: no sample
    /// can be read.
    fn stage(&self, silence: Option<(f64, f64)>, run: &Run, is_alive: impl Fn(u32) -> bool) -> Stage {
        // At the end the collector removes the name of the file.
        let has_name = rustix::fs::fstat(self.file.named().file()).is_ok_and(|stat| stat.st_nlink > 0);
        if !has_name {
            return Stage::Ended;
        }
        let Some((silent_s, limit_s)) = silence else {
            // The launcher's pid is in the summary, which need not be there yet. So the state file's lock tells if it was killed.
            return match self.file.count() {
                _ if was_killed(&segment_of(self.file.named().path())) => Stage::Killed,
                0 => Stage::Starting,
                _ => Stage::Running,
            };
        };
        // A truncated file gets no newer samples, however new its last one is.
        if silent_s < limit_s && !self.file.is_lost() {
            return Stage::Running;
        }
        let is_killed = run.launcher_pid.is_some_and(|pid| !is_alive(pid));
        if is_killed { Stage::Killed } else { Stage::Silent(silent_s) }
    }
}

/// Whether the time between two samples is enough for CPU utilization.
fn is_window(first: &Sample, last: &Sample) -> bool {
    last.monotonic_ns.saturating_sub(first.monotonic_ns) >= CPU_WINDOW_NS
}

/// Splits `ram_bytes`, the RAM of the tree, among the commands in proportion to their RSS. RSS itself counts shared memory in each
/// process, so its sum is more than the RAM. Each of the `unlisted` processes counts with the RSS of the smallest listed one, the most
/// that it can have: so no command gets RAM that may be theirs. Returns names and bytes, the largest first.
fn split_by_rss(processes: &[Process], unlisted: u64, ram_bytes: u64) -> Vec<(String, u64)> {
    let mut rss: BTreeMap<&str, u64> = BTreeMap::new();
    for process in processes {
        let sum = rss.entry(&process.command).or_default();
        *sum = sum.saturating_add(process.rss_bytes.unwrap_or(0));
    }
    let smallest = processes.iter().map(|process| process.rss_bytes.unwrap_or(0)).min().unwrap_or(0);
    let all = rss.values().map(|bytes| *bytes as f64).sum::<f64>() + unlisted as f64 * smallest as f64;
    let share = |(name, bytes): (&str, u64)| {
        let part = if all > 0.0 { bytes as f64 / all } else { 0.0 };
        (name.to_owned(), (part * ram_bytes as f64) as u64)
    };
    let mut shares: Vec<(String, u64)> = rss.into_iter().map(share).collect();
    shares.order_by(|(a, a_bytes), (b, b_bytes)| b_bytes.cmp(a_bytes).then_with(|| a.cmp(b)));
    shares
}

/// Converts the live file's entry of a process.
fn process(entry: &ProcessEntry) -> Process {
    Process {
        pid: entry.pid,
        parent_pid: entry.parent_pid,
        start_ns: entry.start_ns.unwrap_or(0),
        command: String::from_utf8_lossy(entry.command.bytes()).into_owned(),
        rss_bytes: entry.rss_bytes,
        cpu_s: entry.cpu_ns.map(|ns| ns as f64 / 1e9),
        gpu_bytes: entry.gpu_bytes,
    }
}

/// Converts the live file's entries of GPUs. A part of a GPU comes after it, and a part without its GPU comes first.
fn gpus(entries: &[GpuEntry]) -> Vec<Gpu> {
    let mut all: Vec<Gpu> = entries.iter().map(gpu).collect();
    let mut whole = None;
    for gpu in &mut all {
        if gpu.id.starts_with("MIG-") {
            // Without its GPU it is a part of one that is not there, which has no id here.
            gpu.parent = Some(whole.clone().unwrap_or_default());
        } else if let Some((device, _)) = gpu.id.rsplit_once('/') {
            // A partition is `ADDRESS/NUMBER`.
            gpu.parent = Some(device.to_owned());
        } else {
            whole = Some(gpu.id.clone());
        }
    }
    all
}

/// Converts the live file's entry of a GPU.
fn gpu(entry: &GpuEntry) -> Gpu {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Gpu {
        index: entry.index,
        id: text(entry.uuid.bytes()),
        parent: None,
        name: text(entry.name.bytes()),
        total_bytes: entry.total_bytes,
        figures: live_figures(entry),
    }
}

#[cfg(test)]
mod tests {
    use gpu_track_abi::table::Text;
    use gpu_track_collector::StateFile;
    use gpu_track_collector::segment::live::path_of;
    use gpu_track_collector::session_name::state_name;

    use super::*;

    const S: u64 = 1_000_000_000;

    // Requirement: WATCH-52
    #[test]
    fn parts_of_a_gpu_follow_it() {
        let entry = |id: &str| GpuEntry { uuid: Text::new(id), ..GpuEntry::default() };
        let ids = ["MIG-lost", "GPU-a", "MIG-b", "GPU-c", "0000:03:00.0/1"];
        let all = gpus(&ids.map(entry));
        let parents = all.iter().map(|gpu| gpu.parent.as_deref()).collect::<Vec<_>>();
        assert_eq!(parents, [Some(""), None, Some("GPU-a"), None, Some("0000:03:00.0")]);
    }

    fn sample(at_s: u64, combined_bytes: u64) -> Sample {
        let cpu_ns = at_s * 2 * S;
        Sample {
            monotonic_ns: at_s * S,
            combined_bytes,
            cpu_ns,
            processes: 2,
            threads: 3,
            ..Sample::default()
        }
    }

    fn entry(pid: u64, command: &str, rss_bytes: u64) -> ProcessEntry {
        let command = Text::new(command);
        ProcessEntry { pid: Some(pid), rss_bytes: Some(rss_bytes), command, ..ProcessEntry::default() }
    }

    #[test]
    fn looks_give_the_run_its_history_and_its_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("live");
        let writer = LiveFile::create(&path, 1).unwrap();
        let mut live = Live::open(&path).unwrap();
        let look = |live: &mut Live, now_s: u64, is_alive: bool| live.read(now_s * S, |_| is_alive);
        assert_eq!(look(&mut live, 10, true).frame, Frame::default());
        for at_s in 10..14 {
            writer.push(sample(at_s, at_s));
        }
        writer.put_processes(13 * S, &[entry(1, "a", 30), entry(2, "b", 10)], 7);
        writer.put_summary(
            13 * S,
            r#"{"start_ns": 8000000000, "launcher_pid": 5, "max_ram": {"combined": {"bytes": 99}}}"#,
        );
        let first = look(&mut live, 13, true);
        let Frame { at_s, ram_bytes, max_ram_bytes, cpu_percent, others, .. } = first.frame;
        assert_eq!((at_s, ram_bytes, max_ram_bytes, others), (5.0, Some(13), Some(99), 7));
        assert_eq!((cpu_percent, first.frame.stage), (Some(200.0), Stage::Running));
        assert_eq!(first.peaks.cpu_percent, Some(200.0));
        assert_eq!(first.frame.ram_by_command, Some(vec![("a".into(), 3), ("b".into(), 1)]));
        let times: Vec<f64> = first.points.iter().map(|point| point.at_s).collect();
        assert_eq!(times, [2.0, 3.0, 4.0, 5.0]);
        assert!(first.points[2].by_command.is_none() && first.points[3].by_command.is_some());
        writer.push(sample(14, 50));
        writer.push(sample(15, 20));
        let second = look(&mut live, 15, true);
        let [point] = &second.points[..] else { panic!("{second:?}") };
        assert_eq!((point.from_s, point.at_s, point.ram_bytes), (5.0, 7.0, 50));
        assert_eq!(look(&mut live, 25, true).frame.stage, Stage::Silent(10.0));
        assert_eq!(look(&mut live, 25, false).frame.stage, Stage::Killed);
        std::fs::remove_file(&path).unwrap();
        let ended = look(&mut live, 26, false);
        assert_eq!(
            (ended.frame.stage, ended.frame.ram_bytes, ended.points),
            (Stage::Ended, Some(20), vec![])
        );
    }

    // Requirement: WATCH-2
    #[test]
    fn run_is_silent_only_after_twice_its_sampling_interval() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("live");
        let writer = LiveFile::create(&path, 1).unwrap();
        writer.put_summary(10 * S, r#"{"start_ns": 0, "launcher_pid": 5, "sampling_interval_s": 8.0}"#);
        writer.push(sample(10, 1));
        let mut live = Live::open(&path).unwrap();
        // The launcher's pid can't be seen from another pid namespace.
        let mut stage = |now_s: u64| live.read(now_s * S, |_| false).frame.stage;
        assert_eq!([stage(13), stage(25)], [Stage::Running, Stage::Running]);
        assert_eq!(stage(26), Stage::Killed);
        // Samples that cost much are further apart than the interval.
        writer.push(sample(30, 1));
        assert_eq!([stage(69), stage(70)], [Stage::Running, Stage::Killed]);
        // Another program may have written anything there.
        for interval in ["-1e308", "null", "\"x\""] {
            let path = directory.path().join("other");
            let writer = LiveFile::create(&path, 1).unwrap();
            writer.put_summary(10 * S, &format!(r#"{{"sampling_interval_s": {interval}}}"#));
            writer.push(sample(10, 1));
            let mut live = Live::open(&path).unwrap();
            assert_eq!(live.read(12 * S, |_| true).frame.stage, Stage::Running, "{interval}");
            assert_eq!(live.read(13 * S, |_| true).frame.stage, Stage::Silent(3.0), "{interval}");
            std::fs::remove_file(&path).unwrap();
        }
    }

    // Requirement: WATCH-2
    #[test]
    fn run_that_was_killed_before_its_first_sample_is_not_taken_for_a_starting_one() {
        let directory = tempfile::tempdir().unwrap();
        let segment = directory.path().join("gpu-track.1.9.b");
        let _writer = LiveFile::create(&path_of(&segment), 1).unwrap();
        let state = StateFile::create(&state_name(&segment)).unwrap();
        let mut live = Live::open(&path_of(&segment)).unwrap();
        let mut stage = || live.read(S, |_| true).frame.stage;
        assert_eq!(stage(), Stage::Starting);
        drop(state);
        // A child of another test holds a copy of the lock until its exec.
        let begun = std::time::Instant::now();
        while stage() != Stage::Killed {
            assert!(begun.elapsed().as_secs() < 60, "the run is not seen as killed");
            std::thread::yield_now();
        }
    }

    // Requirement: WATCH-1
    #[test]
    fn file_of_another_length_version_or_kind_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("live");
        for content in [&b""[..], b"garbage", &[0; gpu_track_abi::live::LIVE_SIZE]] {
            std::fs::write(&path, content).unwrap();
            assert_eq!(Live::open(&path).unwrap_err(), "is no live file of version 2");
        }
        assert!(
            Live::open(&directory.path().join("none"))
                .unwrap_err()
                .starts_with("cannot be read: No such file")
        );
        assert!(Live::open(Path::new("/dev/null")).is_err() && Live::open(directory.path()).is_err());
    }
}
