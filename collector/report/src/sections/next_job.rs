//! What to ask a batch system for next time: as options of Slurm, directives of Nextflow and resources of Snakemake, each
//! with its basis.

use crate::document::{Block, Section};
use crate::figures::short;
use crate::model::report::Report;
use crate::model::report::{CpusHint, Hints, MemoryBasis, MemoryHint, TimeBasis, TimeHint};
use crate::units::Units;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Slurm's binary units: `1G`, `1280M`.
fn slurm_memory(bytes: u64) -> String {
    if bytes.is_multiple_of(GIB) { format!("{}G", bytes / GIB) } else { format!("{}M", bytes.div_ceil(MIB)) }
}

/// Slurm's form: `00:10:00`, `1-06:00:00`.
fn slurm_time(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    let of_day = format!("{hours:02}:{minutes:02}:{:02}", seconds % 60);
    if days > 0 { format!("{days}-{of_day}") } else { of_day }
}

pub(super) fn next_job(hints: &Hints, units: Units) -> Section {
    let held_idle = hints.gpus.as_ref().map(|of| of.held_idle.clone()).unwrap_or_default();
    let held_idle = Section::list("Held memory and were never busy", held_idle);
    let some = |forms: String| Some(forms).filter(|forms| !forms.is_empty());
    Section::new("Next job")
        .text("Of little meaning", hints.withheld.clone())
        .text("Memory", hints.memory.map(|of| memory(&of, units)))
        .text("Time", hints.time.map(|of| time(&of, units)))
        .text("CPUs", hints.cpus.map(cpus))
        .text("GPUs", hints.gpus.as_ref().map(|of| format!("{} of {} were busy", of.count, of.given)))
        .section(Section::default().section(held_idle))
        .text("sbatch", some(slurm(hints)))
        .text("Nextflow", some(nextflow(hints)))
        .text("Snakemake", some(snakemake(hints)))
}

fn memory(of: &MemoryHint, units: Units) -> String {
    let basis = match of.basis {
        MemoryBasis::CombinedRam => "peak RAM",
        MemoryBasis::CgroupPeak => "peak of the cgroup, page cache included",
        MemoryBasis::OutOfMemoryLimit => "the limit at which the kernel killed a process",
    };
    let (memory, from) = (slurm_memory(of.bytes), units.bytes(of.basis_bytes));
    let given = given(of.given_bytes.map(|bytes| units.bytes(bytes)), of.is_fitting);
    format!("{}{memory}, from {basis}, {from}{given}", at_least(of.is_lower_bound))
}

fn time(of: &TimeHint, units: Units) -> String {
    let basis = match of.basis {
        TimeBasis::Wall => "the time that it took",
        TimeBasis::SlurmJob => "the time since the Slurm job's start",
        TimeBasis::TimeLimit => "the time limit that ended it",
    };
    let (time, from) = (slurm_time(of.time_s), units.seconds(of.basis_s));
    let given = given(of.given_s.map(|s| units.seconds(s)), of.is_fitting);
    format!("{}{time}, from {basis}, {from}{given}", at_least(of.is_lower_bound))
}

fn cpus(of: CpusHint) -> String {
    let serial = if of.is_serial { "; it ran serially" } else { "" };
    let (busy, given) = (short(of.p95_busy_cores), given(of.given.map(short), of.is_fitting));
    format!("{}, from {busy} cores that were busy at most for 95% of the time{given}{serial}", of.count)
}

fn at_least(is_lower_bound: bool) -> &'static str {
    if is_lower_bound { "at least " } else { "" }
}

fn given(given: Option<String>, is_fitting: bool) -> String {
    let fitting = if is_fitting { ", which fits" } else { "" };
    given.map(|given| format!("; given: {given}{fitting}")).unwrap_or_default()
}

/// Parts that are known, with something between them.
fn join(parts: [Option<String>; 4], between: &str) -> String {
    parts.into_iter().flatten().collect::<Vec<_>>().join(between)
}

/// Slurm's options, without those for what fits unless all are wanted.
fn slurm_options(hints: &Hints, wants_all: bool) -> String {
    let is_wanted = |is_fitting: bool| wants_all || !is_fitting;
    let cpus = hints.cpus.filter(|of| is_wanted(of.is_fitting));
    let gpus = hints.gpus.as_ref().filter(|of| is_wanted(of.is_fitting));
    let memory = hints.memory.filter(|of| is_wanted(of.is_fitting));
    let time = hints.time.filter(|of| is_wanted(of.is_fitting));
    let parts = [
        cpus.map(|of| format!("--cpus-per-task={}", of.count)),
        gpus.map(|of| format!("--gpus={}", of.count)),
        memory.map(|of| format!("--mem={}", slurm_memory(of.bytes))),
        time.map(|of| format!("--time={}", slurm_time(of.time_s))),
    ];
    join(parts, " ")
}

fn slurm(hints: &Hints) -> String {
    let options = slurm_options(hints, true);
    if options.is_empty() { options } else { format!("#SBATCH {options}") }
}

fn nextflow(hints: &Hints) -> String {
    let parts = [
        hints.cpus.map(|of| format!("cpus {}", of.count)),
        hints.gpus.as_ref().filter(|of| of.count > 0).map(|of| format!("accelerator {}", of.count)),
        // A MB is binary there.
        hints.memory.map(|of| format!("memory {}.MB", of.bytes.div_ceil(MIB))),
        hints.time.map(|of| format!("time {}.min", of.time_s.div_ceil(60))),
    ];
    join(parts, "; ")
}

fn snakemake(hints: &Hints) -> String {
    let parts = [
        hints.gpus.as_ref().map(|of| format!("gpu={}", of.count)),
        hints.memory.map(|of| format!("mem_mib={}", of.bytes.div_ceil(MIB))),
        hints.time.map(|of| format!("runtime={}", of.time_s.div_ceil(60))),
        None,
    ];
    let resources = join(parts, ", ");
    let threads = hints.cpus.map(|of| format!("threads: {}", of.count));
    let resources = (!resources.is_empty()).then(|| format!("resources: {resources}"));
    join([threads, resources, None, None], "; ")
}

/// Slurm's options for the summary. Nothing where the run says little, or what it was given fits; all of them where the
/// user asked.
pub(super) fn paragraph(report: &Report, shows_hints: bool) -> Option<Block> {
    if report.hints.withheld.is_some() && !shows_hints {
        return None;
    }
    let options = slurm_options(&report.hints, shows_hints);
    let remarks = remarks(report).join("; ");
    let remarks = if remarks.is_empty() { remarks } else { format!(" ({remarks})") };
    (!options.is_empty()).then(|| Block::Paragraph("Next job", options + &remarks))
}

/// What the options can't say.
fn remarks(report: &Report) -> Vec<String> {
    let hints = &report.hints;
    let mut remarks = Vec::new();
    if hints.memory.is_some_and(|of| of.is_lower_bound) || hints.time.is_some_and(|of| of.is_lower_bound) {
        remarks.push("at least: how much it needs is not known".to_owned());
    }
    if hints.cpus.is_some_and(|of| of.is_serial) {
        remarks.push(format!("it ran serially on {} cores", report.usable.cores.count));
    }
    match hints.gpus.as_ref().map_or(0, |of| of.held_idle.len()) {
        0 => {}
        1 => remarks.push("1 GPU held memory and was never busy".to_owned()),
        idle => remarks.push(format!("{idle} GPUs held memory and were never busy")),
    }
    remarks.extend(hints.withheld.clone());
    remarks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_those_of_slurm() {
        assert_eq!([1 << 30, 1280 << 20, 23 << 30].map(slurm_memory), ["1G", "1280M", "23G"]);
        assert_eq!([600, 4800, 108_000].map(slurm_time), ["00:10:00", "01:20:00", "1-06:00:00"]);
    }
}
