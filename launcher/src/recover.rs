//! `--recover`: reports of runs that were killed together with their launcher and collector.

use std::collections::BTreeSet;
use std::process::ExitCode;

use gpu_track_collector::model::style::Output;
use gpu_track_collector::model::style::Style;
use gpu_track_collector::recover::{self, NotRecovered, Recovered};
use gpu_track_collector::report::write::render;
use gpu_track_collector::store::stale::Stale;
use gpu_track_collector::sys::proc_fs::ProcRoot;

use crate::cli::{self, Place, Recovery, Refusal};
use crate::say;

/// Report on all of this user's; what has its report is removed. Fails where not every one got one, or there was none.
///
/// # Errors
/// If the reports can't be written where they are to go. Nothing was removed then.
pub fn recover(asked: &Recovery) -> Result<ExitCode, Refusal> {
    let uid = rustix::process::getuid().as_raw();
    let all = Stale::all(&asked.session_dir, uid);
    if all.is_empty() {
        let dir = asked.session_dir.display();
        say(&format!("gpu-track-run: nothing to recover: no killed run of yours is left in {dir}"));
        return Ok(ExitCode::FAILURE);
    }
    let root = ProcRoot::default();
    let mut known = Vec::new();
    for stale in &all {
        let recovered = match recover::recover(stale, &root) {
            Ok(recovered) => Ok((output_of(asked, stale, &recovered)?, recovered)),
            Err(reason) => Err(reason),
        };
        known.push((stale, recovered));
    }
    check_names(known.iter().filter_map(|(_, recovered)| Some(&recovered.as_ref().ok()?.0)))?;
    // Nothing is removed before it is certain that all can have their reports.
    let mut status = ExitCode::SUCCESS;
    for (stale, recovered) in &known {
        let is_reported = match recovered {
            Ok((output, recovered)) => report(stale, output, recovered, &asked.style),
            Err(reason) => give_up(stale, reason),
        };
        if !is_reported {
            status = ExitCode::FAILURE;
        }
    }
    Ok(status)
}

fn report(stale: &Stale, output: &Output, recovered: &Recovered, style: &Style) -> bool {
    if let Err(error) = output.write(&render(&recovered.report, style)) {
        say(&format!(
            "gpu-track-run: cannot write the report to {output}: {error}; it can be recovered again"
        ));
        return false;
    }
    recovered.clean_up();
    stale.remove();
    true
}

/// What nobody can make a report of is of no use.
fn give_up(stale: &Stale, reason: &NotRecovered) -> bool {
    let fate = if reason.is_final() { "removed" } else { "left as it is" };
    if reason.is_final() {
        stale.remove();
    }
    say(&format!("gpu-track-run: cannot recover {}: {reason}; {fate}", stale.path.display()));
    false
}

fn output_of(asked: &Recovery, stale: &Stale, recovered: &Recovered) -> Result<Output, Refusal> {
    let here = Place::here();
    let pid = stale.launcher_pid().unwrap_or(here.pid);
    cli::output(asked.output.as_deref(), &Place { pid, time: recovered.report.started_at, ..here })
}

/// A file holds one report.
fn check_names<'a>(outputs: impl Iterator<Item = &'a Output>) -> Result<(), Refusal> {
    let mut files = BTreeSet::new();
    for output in outputs {
        if let Output::File(path) = output
            && !files.insert(path)
        {
            return Err(Refusal::new(format_args!(
                "--output: \"{}\" is to hold several reports: put %p into its name",
                path.display()
            )));
        }
    }
    Ok(())
}
