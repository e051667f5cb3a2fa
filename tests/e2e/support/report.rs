//! A JSON report, read by dotted paths.

use serde_json::Value;

/// How the warning begins that GPUs were read less often than asked for.
pub const SLOW_GPU_READINGS: &str = "GPU memory by process was read every";
/// How the warning begins that GPUs were not read for a while.
pub const UNREAD_GPUS: &str = "GPU memory was not read for";

/// A parsed report.
#[derive(Clone)]
pub struct Report(pub Value);

impl Report {
    /// The value at `path`, such as `max_ram.combined.total_rss`.
    pub fn at(&self, path: &str) -> &Value {
        path.split('.').fold(&self.0, |value, key| {
            let next = match key.parse::<usize>() {
                Ok(index) => value.get(index),
                Err(_) => value.get(key),
            };
            next.unwrap_or_else(|| panic!("the report has no {path} (at {key})"))
        })
    }

    /// The number at `path`; null is a failure.
    pub fn f64(&self, path: &str) -> f64 {
        self.at(path).as_f64().unwrap_or_else(|| panic!("{path} is {}, no number", self.at(path)))
    }

    /// The whole number at `path`; null is a failure.
    pub fn u64(&self, path: &str) -> u64 {
        self.at(path).as_u64().unwrap_or_else(|| panic!("{path} is {}, no whole number", self.at(path)))
    }

    /// The elements of the array at `path`.
    pub fn array(&self, path: &str) -> &[Value] {
        self.at(path).as_array().unwrap_or_else(|| panic!("{path} is {}, no array", self.at(path)))
    }

    /// The warnings, one per line, without those that a busy machine causes: how often a fake GPU driver was read depends on
    /// it.
    pub fn warnings(&self) -> String {
        let depends_on_load = |line: &&str| {
            let covers_less = |figure: &str| {
                line.starts_with(&format!("The {figure} of ")) && line.contains(" of the run's ")
            };
            line.starts_with(SLOW_GPU_READINGS)
                || line.starts_with(UNREAD_GPUS)
                || covers_less("energy")
                || covers_less("utilization")
                || (line.starts_with("The utilization of ") && line.contains(" and not for "))
        };
        let lines = self.array("warnings").iter().filter_map(Value::as_str);
        lines.filter(|line| !depends_on_load(line)).collect::<Vec<_>>().join("\n")
    }

    /// The entry of `processes.by_command` for a command name.
    pub fn command(&self, name: &str) -> Option<&Value> {
        self.array("processes.by_command").iter().find(|entry| entry["command"] == name)
    }

    /// Asserts that there were so many processes, all with exact figures, and that no event was dropped.
    pub fn assert_all_exact(&self, processes: u64) {
        assert_eq!(self.u64("processes.total"), processes, "processes.total");
        assert_eq!(self.u64("coverage.processes"), processes, "coverage.processes");
        assert_eq!(self.u64("coverage.exact"), processes, "coverage.exact");
        assert_eq!(self.u64("coverage.dropped_events"), 0, "coverage.dropped_events");
        assert!(self.at("coverage.records_untrusted").is_null(), "{}", self.at("coverage.records_untrusted"));
        let counts = self.array("processes.by_command").iter().map(|entry| entry["count"].as_u64().unwrap());
        assert_eq!(counts.sum::<u64>(), processes, "sum over processes.by_command");
    }

    /// Asserts that the CPU time of the tree is `seconds` within `percent`.
    pub fn assert_cpu(&self, seconds: f64, percent: f64) {
        assert_within("cpu_time.total_s", self.f64("cpu_time.total_s"), seconds, percent);
    }

    /// Asserts that the CPU time is `work_s` and at most `overhead_s` more. For short work, start-up is more than 1%.
    pub fn assert_cpu_between(&self, work_s: f64, overhead_s: f64) {
        let total = self.f64("cpu_time.total_s");
        assert!(
            total >= work_s * 0.99 && total <= work_s + overhead_s,
            "cpu_time.total_s is {total}, not {work_s}..{}",
            work_s + overhead_s
        );
    }
}

/// Asserts that `actual` is `expected` within `percent`.
#[track_caller]
pub fn assert_within(what: &str, actual: f64, expected: f64, percent: f64) {
    let off = (actual / expected - 1.0) * 100.0;
    assert!(off.abs() <= percent, "{what} is {actual}, {off:+.2}% off {expected} (allowed {percent}%)");
}
