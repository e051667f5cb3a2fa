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

    /// The texts of all warnings.
    pub fn all_warnings(&self) -> Vec<&str> {
        self.array("warnings").iter().map(|warning| warning["text"].as_str().unwrap()).collect()
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
                || line.starts_with("GPU figures that are missing (read only once,")
                || line.contains("between two samples, and what the others held")
        };
        let lines = self.all_warnings().into_iter();
        lines.filter(|line| !depends_on_load(line)).collect::<Vec<_>>().join("\n")
    }

    /// The entry of `processes.by_command` for a command name.
    pub fn command(&self, name: &str) -> Option<&Value> {
        self.array("processes.by_command").iter().find(|entry| entry["command"] == name)
    }

    /// Asserts that there were `processes` processes, all with exact figures, and that no event was dropped.
    pub fn assert_all_exact(&self, processes: u64) {
        assert_eq!(self.u64("processes.total"), processes, "processes.total");
        assert_eq!(self.u64("coverage.processes"), processes, "coverage.processes");
        assert_eq!(self.u64("coverage.exact"), processes, "coverage.exact");
        assert_eq!(self.u64("coverage.dropped_events"), 0, "coverage.dropped_events");
        assert!(self.at("coverage.records_untrusted").is_null(), "{}", self.at("coverage.records_untrusted"));
        let counts = self.array("processes.by_command").iter().map(|entry| entry["count"].as_u64().unwrap());
        assert_eq!(counts.sum::<u64>(), processes, "sum over processes.by_command");
    }

    /// Asserts what holds in every report, whatever ran: no figure contradicts another.
    pub fn assert_consistent(&self) {
        let number = |path: &str| self.at(path).as_f64();
        let at_most = |less: &str, more: &str, percent: f64, slack: f64| {
            if let (Some(a), Some(b)) = (number(less), number(more)) {
                assert!(a <= b * (1.0 + percent / 100.0) + slack, "{less} is {a}, above {more}, {b}: {self}");
            }
        };
        at_most("cpu_time.total_s", "cpu_time.kernel_s", 1.0, 0.005);
        for set in ["main", "descendants", "combined"] {
            at_most(
                &format!("cpu_utilization.{set}.mean_sum_percent"),
                &format!("cpu_utilization.{set}.max_sum_percent"),
                0.0,
                1e-6,
            );
        }
        self.assert_ram_consistent();
        self.assert_series_consistent();
    }

    /// The largest values of the run over time are the report's. Only a total that one process's figures give is above them:
    /// as much as sources differ (`Floor::is_missed_by` in the core), or the report says so.
    fn assert_series_consistent(&self) {
        // Over several nodes, the largest of a point is an upper bound.
        if self.0.get("merged").is_some() {
            return;
        }
        let is_floor = !self.at("coverage.ram_floor_bytes").is_null();
        for (series, figure, is_above) in [
            ("ram_bytes.main", "max_ram_bytes.main.total_rss", true),
            ("ram_bytes.descendants", "max_ram_bytes.descendants.total_rss", true),
            ("ram_bytes.combined", "max_ram_bytes.combined.total_rss", is_floor),
            ("ram_bytes.system", "max_ram_bytes.system", false),
            // The mean of a run can be above the value of each window.
            ("cpu_percent.combined", "cpu.combined.max_sum_percent", true),
            ("cpu_percent.system", "cpu.system.max_sum_percent", false),
            ("processes", "processes.max_concurrent", false),
        ] {
            let largest = self.series_max(series);
            let reported = self.at(figure).as_f64();
            if let (Some(largest), Some(reported)) = (largest, reported) {
                let above = if figure.ends_with("total_rss") { f64::max(largest / 33.0, 3e6) } else { 0.0 };
                let is_near =
                    largest <= reported * 1.000_001 && reported - largest <= reported * 1e-6 + above;
                assert!(
                    is_near || is_above && largest < reported,
                    "{series} is at most {largest}, and {figure} is {reported}: {self}"
                );
            }
        }
    }

    /// The largest value of a quantity of `series`. `None`: it is never known.
    pub fn series_max(&self, quantity: &str) -> Option<f64> {
        let values = self.array(&format!("series.{quantity}.max")).iter().filter_map(Value::as_f64);
        values.reduce(f64::max)
    }

    /// RAM in whatever unit the report has; means and the peak's processes are in bytes.
    fn assert_ram_consistent(&self) {
        let unit = match self.at("max_ram.unit").as_str() {
            Some("bytes") => 1.0,
            Some("kilobytes") => 1e3,
            Some("megabytes") => 1e6,
            Some("gigabytes") => 1e9,
            _ => 1e12,
        };
        for set in ["main", "descendants", "combined"] {
            let max = self.at(&format!("max_ram.{set}.total_rss")).as_f64();
            if let (Some(mean), Some(max)) = (self.at(&format!("mean_ram.{set}")).as_f64(), max) {
                assert!(
                    mean <= max * unit * 1.000_001 + 1.0,
                    "mean RAM of {set} is above its maximum: {self}"
                );
            }
        }
        if !self.at("peak").is_null() {
            let peak = self.f64("peak.combined_rss_bytes");
            for holder in self.array("peak.processes") {
                assert!(
                    holder["rss_bytes"].as_f64().unwrap() <= peak * 1.01 + 1e6,
                    "{holder} is above the peak: {self}"
                );
            }
            assert!(self.held_at_peak() <= self.u64("peak.combined_rss_bytes"), "{self}");
        }
    }

    /// What all command names together held at the RAM peak, bytes.
    pub fn held_at_peak(&self) -> u64 {
        let named = self.array("peak.by_command").iter().map(|held| held["added_bytes"].as_u64().unwrap());
        named.sum::<u64>() + self.at("peak.other_commands")["added_bytes"].as_u64().unwrap_or(0)
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

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Asserts that `actual` is `expected` within `percent`.
#[track_caller]
pub fn assert_within(what: &str, actual: f64, expected: f64, percent: f64) {
    let off = (actual / expected - 1.0) * 100.0;
    assert!(off.abs() <= percent, "{what} is {actual}, {off:+.2}% off {expected} (allowed {percent}%)");
}
