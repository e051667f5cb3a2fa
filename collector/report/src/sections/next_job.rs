//! What to ask a batch system for next time: as options of Slurm, directives of Nextflow and resources of Snakemake, each
//! with its basis.

use super::nodes;
use crate::document::{Block, Section};
use crate::figures::short;
use crate::model::report::{
    CpusHint, GpuMemoryHint, GpusHint, Hints, MemoryBasis, MemoryHint, Report, TimeBasis, TimeHint,
};
use crate::units::Units;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Formats memory in Slurm's binary units: `1G`, `1280M`.
fn slurm_memory(bytes: u64) -> String {
    if bytes.is_multiple_of(GIB) { format!("{}G", bytes / GIB) } else { format!("{}M", bytes.div_ceil(MIB)) }
}

/// Formats a time in Slurm's form: `00:10:00`, `1-06:00:00`.
fn slurm_time(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    let of_day = format!("{hours:02}:{minutes:02}:{:02}", seconds % 60);
    if days > 0 { format!("{days}-{of_day}") } else { of_day }
}

/// Makes the section of all hints, each with its basis, and of all forms.
pub(super) fn next_job(report: &Report, units: Units) -> Section {
    let hints = &report.hints;
    let held_idle = hints.gpus.as_ref().map(|hint| hint.held_idle.clone()).unwrap_or_default();
    let held_idle = Section::list("Held memory and were never busy", held_idle);
    let unless_empty = |form: String| Some(form).filter(|form| !form.is_empty());
    Section::new("Next job")
        .text("Of little meaning", hints.withheld.clone())
        .text("Memory", hints.memory.map(|hint| memory(&hint, units)))
        .text("Time", hints.time.map(|hint| time(&hint, report, units)))
        .text("CPUs", hints.cpus.map(cpus))
        .text("GPUs", hints.gpus.as_ref().map(|hint| format!("{} of {} were busy", hint.count, hint.given)))
        // In a section without a title, it is a detail of the row above.
        .section(Section::default().section(held_idle))
        .text("GPU memory", hints.gpu_memory.as_ref().map(|hint| gpu_memory(hint, units)))
        .text("GPU with room", hints.gpu_memory.as_ref().and_then(gpu_with_room))
        .text("sbatch", unless_empty(slurm(hints)))
        .text("Nextflow", unless_empty(nextflow(hints)))
        .text("Snakemake", unless_empty(snakemake(hints)))
}

/// Formats the memory to ask for, its basis, and what the job was given.
fn memory(hint: &MemoryHint, units: Units) -> String {
    let basis = match hint.basis {
        MemoryBasis::CombinedRam => "peak RAM",
        MemoryBasis::CgroupPeak => "peak of the cgroup, page cache included",
        MemoryBasis::OutOfMemoryLimit => "the limit at which the kernel killed a process",
    };
    let (memory, from) = (slurm_memory(hint.bytes), units.bytes(hint.basis_bytes));
    let given = given(hint.given_bytes.map(|bytes| units.bytes(bytes)), hint.is_fitting);
    format!("{}{memory}, from {basis}, {from}{given}", at_least(hint.is_lower_bound))
}

/// Formats the time to ask for, its basis, and what the job was given.
fn time(hint: &TimeHint, report: &Report, units: Units) -> String {
    let basis = match hint.basis {
        TimeBasis::Wall => "the time that it took",
        TimeBasis::SlurmJob => "the time since the Slurm job's start",
        TimeBasis::TimeLimit => "the time limit that ended it",
    };
    let (time, from) = (slurm_time(hint.time_s), units.seconds(hint.basis_s));
    let given = given(hint.given_s.map(|s| units.seconds(s)), hint.is_fitting);
    let alone = if report.contention.is_contended == Some(true) { "; alone it may take less" } else { "" };
    format!("{}{time}, from {basis}, {from}{given}{alone}", at_least(hint.is_lower_bound))
}

/// Formats the cores to ask for, their basis, and what the job was given.
fn cpus(hint: CpusHint) -> String {
    let serial = if hint.is_serial { "; it ran serially" } else { "" };
    // Busy cores are counted in twentieths of a core, rounded down, so 0 can be anything below that.
    let busy = if hint.p95_busy_cores < 0.05 { "<0.05".to_owned() } else { short(hint.p95_busy_cores) };
    let given = given(hint.given.map(short), hint.is_fitting);
    let count = format!("{}{}", at_least(hint.is_lower_bound), hint.count);
    format!("{count}, from {busy} cores: for 95% of the time no more were busy{given}{serial}")
}

/// Formats the memory of a GPU to ask for, its basis, and what the job was given.
fn gpu_memory(hint: &GpuMemoryHint, units: Units) -> String {
    let (memory, from) = (slurm_memory(hint.bytes), units.gpu_bytes(hint.basis_bytes));
    let given = given(hint.capacity_bytes.map(|bytes| units.gpu_bytes(bytes)), hint.is_fitting);
    format!("{memory} on one GPU, from the most that it held on one, {from}{given}")
}

/// Formats which GPU, and which part of this one, have room for what the run held. `None`: no smaller one is known.
fn gpu_with_room(hint: &GpuMemoryHint) -> Option<String> {
    let card = hint.card_gb.map(|gb| format!("one of {gb} GB"));
    let part = hint.mig_profile.as_ref();
    let part = part.map(|part| format!("MIG profile {} of {}", part.profile, part.card));
    Some(join([card, part], "; ")).filter(|text| !text.is_empty())
}

fn at_least(is_lower_bound: bool) -> &'static str {
    if is_lower_bound { "at least " } else { "" }
}

/// Formats what the job was given: `; given: 16 GB, which fits`. Nothing where it is not known.
fn given(given: Option<String>, is_fitting: bool) -> String {
    let fitting = if is_fitting { ", which fits" } else { "" };
    given.map(|given| format!("; given: {given}{fitting}")).unwrap_or_default()
}

/// Joins the parts that are known, with `between` between them.
fn join<const N: usize>(parts: [Option<String>; N], between: &str) -> String {
    parts.into_iter().flatten().collect::<Vec<_>>().join(between)
}

/// The cores to ask for. `None`: they are not known, or others may have had cores that the run waited for. Then the cores
/// that it kept busy say too little of what it can use.
fn known_cpus(hints: &Hints) -> Option<CpusHint> {
    hints.cpus.filter(|hint| !hint.is_lower_bound)
}

/// The GPUs to ask for. `None`: that is not known, as where GPUs held memory of the run and none was seen busy.
fn known_gpus(hints: &Hints) -> Option<&GpusHint> {
    hints.gpus.as_ref().filter(|hint| hint.count > 0 || hint.held_idle.is_empty())
}

/// Formats Slurm's options: all of them if `wants_all`, else those for resources of which another amount should be asked for.
pub(crate) fn slurm_options(hints: &Hints, wants_all: bool) -> String {
    let is_wanted = |is_fitting: bool| wants_all || !is_fitting;
    let cpus = known_cpus(hints).filter(|hint| is_wanted(hint.is_fitting));
    let gpus = known_gpus(hints).filter(|hint| is_wanted(hint.is_fitting));
    let memory = hints.memory.filter(|hint| is_wanted(hint.is_fitting));
    let time = hints.time.filter(|hint| is_wanted(hint.is_fitting));
    let parts = [
        cpus.map(|hint| format!("--cpus-per-task={}", hint.count)),
        gpus.map(|hint| format!("--gpus={}", hint.count)),
        memory.map(|hint| format!("--mem={}", slurm_memory(hint.bytes))),
        time.map(|hint| format!("--time={}", slurm_time(hint.time_s))),
    ];
    join(parts, " ")
}

/// Formats the line of a Slurm job script; empty if there are no hints.
fn slurm(hints: &Hints) -> String {
    let wants_all = true;
    let options = slurm_options(hints, wants_all);
    if options.is_empty() { options } else { format!("#SBATCH {options}") }
}

/// Formats the directives of a Nextflow process; empty if there are no hints.
fn nextflow(hints: &Hints) -> String {
    let parts = [
        known_cpus(hints).map(|hint| format!("cpus {}", hint.count)),
        known_gpus(hints).filter(|hint| hint.count > 0).map(|hint| format!("accelerator {}", hint.count)),
        // Nextflow's MB is a MiB.
        hints.memory.map(|hint| format!("memory {}.MB", hint.bytes.div_ceil(MIB))),
        hints.time.map(|hint| format!("time {}.min", hint.time_s.div_ceil(60))),
    ];
    join(parts, "; ")
}

/// Formats the resources and threads of a Snakemake rule; empty if there are no hints.
fn snakemake(hints: &Hints) -> String {
    let parts = [
        known_gpus(hints).map(|hint| format!("gpu={}", hint.count)),
        hints.memory.map(|hint| format!("mem_mib={}", hint.bytes.div_ceil(MIB))),
        hints.time.map(|hint| format!("runtime={}", hint.time_s.div_ceil(60))),
    ];
    let resources = join(parts, ", ");
    let threads = known_cpus(hints).map(|hint| format!("threads: {}", hint.count));
    let resources = (!resources.is_empty()).then(|| format!("resources: {resources}"));
    join([threads, resources], "; ")
}

/// Makes the summary's row of Slurm's options. If `shows_hints`, it has all of them, because the user asked for hints. Otherwise
/// it has those for what does not fit. `None`: there are no such options, the run says too little, nobody asks for resources, or the
/// report is of one of several nodes.
pub(super) fn paragraph(report: &Report, units: Units, shows_hints: bool) -> Option<Block> {
    if !shows_hints && (report.hints.withheld.is_some() || !are_hints_of_use(report)) {
        return None;
    }
    // What one of several nodes used is not what the job needs.
    if nodes::this_alone(report).is_some() {
        return None;
    }
    let options = slurm_options(&report.hints, shows_hints);
    let remarks = remarks(report, units).join("; ");
    let remarks = if remarks.is_empty() { remarks } else { format!(" ({remarks})") };
    let unknown = report.hints.withheld.as_ref().filter(|_| options.is_empty() && shows_hints);
    let text = unknown.map(|reason| format!("not known: {reason}"));
    let text = text.or_else(|| (!options.is_empty()).then(|| options + &remarks));
    text.map(|text| Block::Paragraph("Next job", text))
}

/// Whether the hints help: the run was a batch job, it was given less than the machine, or it used more than any small run.
fn are_hints_of_use(report: &Report) -> bool {
    let is_batch_job = report.allowed.batch_system.is_some() || !report.allowed.slurm.is_empty();
    is_batch_job || report.hints.is_any_given() || report.hints.is_any_above_least()
}

/// The remarks after Slurm's options, about what the options can't say.
fn remarks(report: &Report, units: Units) -> Vec<String> {
    let hints = &report.hints;
    let mut remarks = Vec::new();
    if hints.memory.is_some_and(|hint| hint.is_lower_bound)
        || hints.time.is_some_and(|hint| hint.is_lower_bound)
    {
        remarks.push("at least: how much it needs is not known".to_owned());
    }
    if hints.cpus.is_some_and(|hint| hint.is_serial)
        && report.time_spent.as_ref().is_none_or(|spent| spent.verdict.is_none())
    {
        remarks.push(format!("it ran serially on {} cores", report.usable.cores.count));
    }
    if report.contention.is_contended == Some(true) {
        remarks.push("alone it may use more cores, and take less time".to_owned());
    }
    match hints.gpus.as_ref().map_or(0, |hint| hint.held_idle.len()) {
        0 => {}
        1 => remarks.push("1 GPU held memory and was never busy".to_owned()),
        idle => remarks.push(format!("{idle} GPUs held memory and were never busy")),
    }
    if let Some(hint) = hints.gpu_memory.as_ref().filter(|hint| !hint.is_fitting) {
        let capacity = hint.capacity_bytes.map(|bytes| format!(" of {}", units.gpu_bytes(bytes)));
        let (memory, held) = (slurm_memory(hint.bytes), units.gpu_bytes(hint.basis_bytes));
        let part = hint.mig_profile.as_ref().map(|part| format!("; a slice {} has room", part.profile));
        let [capacity, part] = [capacity, part].map(Option::unwrap_or_default);
        remarks.push(format!("GPU memory: {memory}, as it held {held}{capacity}{part}"));
    }
    remarks.extend(hints.withheld.clone());
    remarks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_busy_cores_are_not_none() {
        let hint = |p95_busy_cores| CpusHint {
            count: 1,
            p95_busy_cores,
            given: None,
            is_fitting: false,
            is_lower_bound: false,
            is_serial: false,
        };
        let words = |cores: &str| format!("1, from {cores} cores: for 95% of the time no more were busy");
        assert_eq!([0.0, 0.05].map(|p95| cpus(hint(p95))), ["<0.05", "0.050"].map(words));
    }

    #[test]
    fn no_gpus_are_asked_for_only_where_none_held_memory() {
        let hints = |held_idle: &[&str]| Hints {
            gpus: Some(GpusHint {
                count: 0,
                given: 1,
                is_fitting: false,
                held_idle: held_idle.iter().map(|id| (*id).to_owned()).collect(),
            }),
            ..Hints::default()
        };
        let options = |hints: &Hints| slurm_options(hints, true);
        assert_eq!([hints(&[]), hints(&["GPU-1"])].map(|hints| options(&hints)), ["--gpus=0", ""]);
    }

    #[test]
    fn forms_are_those_of_slurm() {
        assert_eq!([1 << 30, 1280 << 20, 23 << 30].map(slurm_memory), ["1G", "1280M", "23G"]);
        assert_eq!([600, 4800, 108_000].map(slurm_time), ["00:10:00", "01:20:00", "1-06:00:00"]);
    }
}
