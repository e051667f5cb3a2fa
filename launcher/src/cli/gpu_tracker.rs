//! gpu_tracker 5's command line, for scripts that call `gpu-tracker`: a link to this program, or a copy, of that name.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use gpu_track_collector::format::GPU_TRACKER;
use gpu_track_collector::{Output, RamUnit, ReportTarget, Style, TimeUnit};

use super::args::Options;
use super::usage_error::UsageError;
use crate::exit::Manner;

/// The program's name in that case.
const NAME: &str = "gpu-tracker";
/// Time between two samples if the user gives none (`Tracker.__init__`).
const INTERVAL: Duration = Duration::from_secs(1);

/// Whether this command line is one of gpu_tracker's.
pub(super) fn is_called(args: &[OsString]) -> bool {
    args.first().is_some_and(|name| Path::new(name).file_name().is_some_and(|name| name == NAME))
}

/// Splits `-e` as Python's `str.split` does: quotes and backslashes are part of the words.
#[expect(clippy::unnecessary_wraps, reason = "the other way to split can fail")]
pub(super) fn split(line: &str) -> Option<Vec<String>> {
    Some(line.split_whitespace().map(str::to_owned).collect())
}

/// Gives the options gpu_tracker's defaults and form.
///
/// # Errors
/// If they ask for what gpu_tracker can do beside running a command.
pub(super) fn apply_to(options: &mut Options) -> Result<(), UsageError> {
    if options.command.words.first().is_some_and(|word| word == "sub-track") {
        return Err(UsageError::new(
            "gpu-tracker sub-track is not there yet: only tracking is (gpu-tracker -e \"COMMAND ARG...\")",
        ));
    }
    if options.places.outputs.is_empty() {
        options.report.targets = vec![ReportTarget { output: Output::Stdout, ..ReportTarget::default() }];
    }
    // gpu_tracker does not look at the names of files.
    for target in &mut options.report.targets {
        target.format = format!("{GPU_TRACKER}{}", options.places.format());
    }
    options.tracking.sampling_interval.get_or_insert(INTERVAL);
    options.exit_manner = Manner::GpuTracker;
    let given = options.report.style;
    options.report.style = Style {
        ram_unit: given.ram_unit.or(Some(RamUnit::Gigabytes)),
        gpu_ram_unit: given.gpu_ram_unit.or(Some(RamUnit::Gigabytes)),
        time_unit: given.time_unit.or(Some(TimeUnit::Hours)),
        full: true,
        quiet: false,
        ..given
    };
    Ok(())
}
