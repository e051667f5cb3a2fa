//! The last samples of a run that has not ended. They come from its live file, in which the collector publishes them. They get the
//! form of a tracking file in `.csv`, so `gpu-track report` shows them.
//!
//! The live file has fewer figures than a sample of the collector. The cells of figures that it lacks (of GPUs, the
//! machine and the main process's CPU) are empty.

use gpu_track_abi::sample::{SAMPLE_CAPACITY, Sample};

use crate::model::config::SessionStart;
use crate::model::timestamp::rfc3339;
use crate::sinks::live_ring::cpu_percent;
use crate::sys::segment::live::LiveFile;

/// Names of the values that hold for all rows.
const FIXED_NAMES: &str = "ram_unit,gpu_ram_unit,from";
/// The first two of these values. The third is the time of the first sample.
const UNITS: &str = "bytes,bytes";
/// The columns.
const COLUMNS: &str = "timestamp,main_ram,descendants_ram,combined_ram,system_ram,cpu_main_sum_utilization_percent,\
                       cpu_descendants_sum_utilization_percent,cpu_combined_sum_utilization_percent,\
                       cpu_system_sum_utilization_percent,n_processes,n_threads,at_ns";

/// The samples that the live file still has, the oldest first. `None`: it has none. `start`: the start of the run.
pub(super) fn text(live: &LiveFile, start: SessionStart) -> Option<String> {
    let end = live.count();
    let first = end.saturating_sub(SAMPLE_CAPACITY as u64);
    // A sample that is being written, or was overwritten meanwhile, is left out.
    let samples: Vec<Sample> = (first..end).filter_map(|number| live.sample(number)).collect();
    let from = rfc3339(start.date(samples.first()?.monotonic_ns));
    let mut text = format!("{FIXED_NAMES}\n{UNITS},{from}\n{COLUMNS}\n");
    let mut before = None;
    for sample in &samples {
        text += &row(sample, before, start);
        before = Some(sample);
    }
    Some(text)
}

/// The row of a sample. `before`: the sample before it; `None`: it is the first.
fn row(sample: &Sample, before: Option<&Sample>, start: SessionStart) -> String {
    let since_epoch =
        start.date(sample.monotonic_ns).duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let cpu_percent = before
        .and_then(|before| cpu_percent(before, sample))
        .map_or(String::new(), |percent| format!("{percent:.3}"));
    let Sample { main_bytes, descendants_bytes, combined_bytes, processes, threads, monotonic_ns, .. } =
        sample;
    // The empty cells are those of figures that the live file lacks.
    format!(
        "{:.6},{main_bytes},{descendants_bytes},{combined_bytes},,,,{cpu_percent},,{processes},{threads},{monotonic_ns}\n",
        since_epoch.as_secs_f64()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::config::Config;
    use crate::report::over_time;

    const S: u64 = 1_000_000_000;

    // Requirement: RECORD-5, RECORD-54
    #[test]
    fn samples_are_read_back_as_a_tracking_file_and_what_the_live_file_lacks_is_unknown() {
        let directory = tempfile::tempdir().unwrap();
        let live = LiveFile::create(&directory.path().join("live"), 1).unwrap();
        let mut start = Config::of_test().start;
        (start.monotonic_ns, start.realtime_ns) = (S, 1_700_000_000 * S);
        assert_eq!(text(&live, start), None);
        for at_s in 2..5 {
            live.push(Sample {
                monotonic_ns: at_s * S,
                main_bytes: 100,
                descendants_bytes: 20,
                combined_bytes: 120 * at_s,
                cpu_ns: at_s * S / 2,
                processes: 3,
                threads: 4,
            });
        }
        let text = text(&live, start).unwrap();
        assert!(over_time::from_csv(text.lines().map(str::to_owned)).is_ok(), "{text}");
        let rows: Vec<&str> = text.lines().skip(3).collect();
        assert_eq!(rows[0], "1700000001.000000,100,20,240,,,,,,3,4,2000000000");
        assert_eq!(
            rows[1..],
            [
                "1700000002.000000,100,20,360,,,,50.000,,3,4,3000000000",
                "1700000003.000000,100,20,480,,,,50.000,,3,4,4000000000"
            ]
        );
    }
}
