//! The man page: the options as clap knows them, then what the program reads, writes and sets.

use clap::builder::Resettable;
use clap::{Arg, Command};
use clap_mangen::Man;

/// The sections after those of `--help`: the heading of each, and its text. A term is a line of the text, and its meaning the next one. A
/// test compares the first section with the source code.
const SECTIONS: [(&str, &str); 2] = [
    (
        "ENVIRONMENT",
        "\
GPU_TRACK_NVML_LIB
NVIDIA's management library, if --nvml-lib does not name it. Root loads no library that another user can replace, and \
none of another name.

GPU_TRACK_SESSION
Set for COMMAND: the files of its runs, the outermost first. Its programs write their records there.

LD_PRELOAD
Set for COMMAND: the shim, and then what LD_PRELOAD had. Programs that are started with an empty environment get both \
variables again, unless --no-env-repair is given.

LD_AUDIT
For gpu-track-run and COMMAND, and not for the collector.

XDG_CACHE_HOME, HOME, XDG_RUNTIME_DIR
The shim goes to the first of these directories that no other user can write to. Root uses none of them. With \
--containers, files for docker and podman go there, too.

DOCKER_HOST, DOCKER_CONTEXT, DOCKER_CONFIG, CONTAINER_HOST, XDG_RUNTIME_DIR
The socket of the daemon whose containers are followed once COMMAND starts one by docker or podman-remote.

DOCKER_TLS, DOCKER_TLS_VERIFY, CONTAINERS_CONF, XDG_CONFIG_HOME, APPTAINER_BIND, SINGULARITY_BIND
With --containers: COMMAND gets DOCKER_HOST, unless docker is to use TLS, and CONTAINERS_CONF, APPTAINER_BIND and \
SINGULARITY_BIND with what they have.

XDG_STATE_HOME, HOME
The reports that are kept for --last are there, and those that can't be written to FILE.

LC_ALL, LC_CTYPE, LANG, TERM, NO_COLOR
Whether the summary on a terminal has characters beyond ASCII, and colours.

PATH
Where COMMAND is looked for.

TMPDIR
A directory whose file system is checked for space when COMMAND failed. A report that can be written neither to FILE nor \
to XDG_STATE_HOME goes there.

CUDA_VISIBLE_DEVICES, CUDA_DEVICE_ORDER, ROCR_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES, GPU_DEVICE_ORDINAL
The GPUs that COMMAND may use. They are marked in the report, and --visible tracks them alone.

GPU_TRACK_EVENT, GPU_TRACK_ALERT, GPU_TRACK_MESSAGE, GPU_TRACK_AT_SECONDS, GPU_TRACK_SINCE_SECONDS, \
GPU_TRACK_VALUE_BYTES, GPU_TRACK_VALUE_PERCENT, GPU_TRACK_VALUE_SECONDS, GPU_TRACK_THRESHOLD_BYTES, \
GPU_TRACK_THRESHOLD_PERCENT, GPU_TRACK_THRESHOLD_SECONDS, GPU_TRACK_RATE_BYTES_PER_SECOND, GPU_TRACK_LEFT_SECONDS, \
GPU_TRACK_LARGEST_PID, GPU_TRACK_LARGEST_COMMAND, GPU_TRACK_LARGEST_RSS_BYTES, GPU_TRACK_LARGEST_GPU_RAM_BYTES, \
GPU_TRACK_COMMAND, GPU_TRACK_COMMAND_PID, GPU_TRACK_LAUNCHER_PID
Set for the command of --on-alert: what happened, the alert as it was given, the line that stderr gets, and the figures. \
What is not known is not set.

GPU_TRACK_METRICS
The .csv file into which gpu_track.metric() writes. What PyTorch told of its memory there goes into the report.

GPU_TRACK_KEEP
How many reports are kept for --last, wherever the run is; 0: none.

CI, JENKINS_URL, SGE_TASK_ID, _CONDOR_SLOT, OAR_JOB_ID, COBALT_JOBID, PJM_JOBID, LOADL_STEP_ID
Where one of these or a batch job's id is set, no report is kept without GPU_TRACK_KEEP.

GPU_TRACK_NODES
\"auto\", \"all\" or \"off\": as --nodes, where no option says otherwise. \"never\": no other node is tracked, whatever the options say.

HYDRA_LAUNCHER_EXEC, I_MPI_HYDRA_BOOTSTRAP_EXEC, OMPI_MCA_orte_launch_agent, PRTE_MCA_prte_launch_agent, HYDRA_LAUNCHER, \
HYDRA_BOOTSTRAP, I_MPI_HYDRA_BOOTSTRAP
Set for COMMAND if it is an MPI launcher, or by --nodes=auto (the first four), so that MPICH, Intel MPI and Open MPI start \
agents on other nodes: see --nodes. \
Where one of the seven is set already, it stays.

GPU_TRACK_AGENT
Set with these four: what starts an agent on another node. With --nodes=all, set for COMMAND, whose PATH has a directory \
first with the ssh that reads it; it is not set for what ssh starts.

SLURM_CONF, SLURM_WORKING_CLUSTER, SLURM_CLUSTERS, SLURM_JWT
Where Slurm's controller is, for the srun that starts agents. It gets no other variable of Slurm's.

PBS_JOBCOOKIE, PBS_NODENUM, PBS_TASKNUM, PBS_MOMPORT, PBS_ENVIRONMENT, FLUX_URI
Where the batch system is, for the pbsdsh or flux that starts agents.

SLURM_JOB_ID, PBS_JOBID, LSB_JOBID, FLUX_JOB_ID, FLUX_ENCLOSING_ID
The batch job's id: %j in the name of a report.

OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE, PMIX_RANK, PMIX_NAMESPACE, PMI_RANK, PMI_SIZE, PMI_JOBID, FLUX_TASK_RANK, \
FLUX_JOB_SIZE, SLURM_PROCID, SLURM_NTASKS, SLURM_STEP_ID, SLURM_STEP_NUM_TASKS, SLURM_RESTART_COUNT, RANK, WORLD_SIZE, LOCAL_RANK, MASTER_PORT
The task's rank, %r in the name of a report, how many tasks there are, and which job it is.

NXF_TASK_WORKDIR, PARALLEL_PID, PARALLEL_SEQ, PYTEST_CURRENT_TEST
The task of Nextflow, the job of GNU parallel, or the test of pytest that a process is of.

SLURM_ARRAY_JOB_ID, SLURM_ARRAY_TASK_ID, SLURM_JOB_PARTITION, SLURM_JOB_START_TIME, SLURM_JOB_END_TIME, \
SLURM_JOB_NUM_NODES, SLURM_JOB_NODELIST, SLURM_STEP_NODELIST, SLURMD_NODENAME, SLURM_CPUS_PER_TASK, SLURM_CPUS_ON_NODE, \
SLURM_JOB_CPUS_PER_NODE, SLURM_MEM_PER_NODE, SLURM_MEM_PER_CPU, SLURM_MEM_PER_GPU, SLURM_GPUS_ON_NODE, SLURM_JOB_GPUS, \
SLURM_STEP_GPUS
What Slurm has given the job. The report has them, and says what part of it was used.

FLUX_JOB_NNODES, LSB_DJOB_HOSTFILE, LSB_HOSTS, LSB_JOBINDEX, LSB_MCPU_HOSTS, LSB_QUEUE, \
PBS_NODEFILE, PBS_NP, PBS_NUM_NODES, PBS_QUEUE, PBS_WALLTIME
The same of Flux, LSF and PBS. Two of them name a file, which is read.
",
    ),
    (
        "FILES",
        "\
/dev/shm/gpu-track.UID.PID.*
The run's records, the collector's state (.state) and the latest samples (.live). They are removed at the end. Those of \
a run that was killed stay for --recover until the user's next run.

$XDG_CACHE_HOME/gpu-track, ~/.cache/gpu-track, $XDG_RUNTIME_DIR/gpu-track, /dev/shm/gpu-track-UID, /tmp/gpu-track-UID
The shim, in the first of these directories that is fit. A shim of another build that was not used for 30 days is \
removed.

/var/cache/gpu-track, /run/gpu-track, /dev/shm/gpu-track-0, /tmp/gpu-track-0
The same for root.

gpu-track/gpu-track.UID.PID.*.d in $XDG_RUNTIME_DIR, $XDG_CACHE_HOME, ~/.cache, for root in /run or /var/cache
With --containers: what docker and podman are told to use. It stays while a process that outlives the run names it.

$XDG_STATE_HOME/gpu-track, ~/.local/state/gpu-track
The reports of the last runs, as JSON: what --last shows.

PREFIX/lib/gpu-track
The shim beside PREFIX/bin/gpu-track-run, if there is this directory: for container images.

.FILE.gpu-track-lock
Beside a report FILE while the run lasts: no other run writes to FILE.
",
    ),
];

/// The last section of the man page, in roff: where more is said.
const SEE_ALSO: &str = "\
.BR time (1),
.BR perf\\-stat (1),
.BR getrusage (2),
.BR proc (5),
.BR cgroups (7),
.BR ld.so (8)
.PP
The guide, the limits and the reference of the JSON report are installed with the program:
.I PREFIX/share/doc/gpu\\-track
";

/// Renders the man page, as roff.
pub(super) fn page(command: Command) -> String {
    let after_help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let command = command.after_help(Resettable::Reset).mut_args(with_aliases);
    let mut page = Vec::new();
    // Writing to memory cannot fail.
    let _ = Man::new(command).render(&mut page);
    let mut page = String::from_utf8_lossy(&page).into_owned();
    // Each block of `after_help` is a heading with a colon, and lines that stay as they are.
    for block in after_help.split("\n\n") {
        let (heading, lines) = block.split_once(":\n").unwrap_or(("notes", block));
        page += &format!(".SH {}\n.nf\n{}\n.fi\n", heading.to_uppercase(), literal(lines));
    }
    // Names of files and variables are not broken at the end of a line.
    page += ".nh\n";
    for (heading, text) in SECTIONS {
        page += &format!(".SH {heading}\n");
        for (term, meaning) in terms(text) {
            page += &format!(".TP\n\\fB{}\\fR\n{}\n", literal(term), literal(meaning));
        }
    }
    page + ".SH \"SEE ALSO\"\n" + SEE_ALSO
}

/// The terms of a section of [`SECTIONS`], each with its meaning.
fn terms(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split("\n\n").filter_map(|entry| entry.trim().split_once('\n'))
}

/// Renders the man page of gpu-track, as roff: its own options, then those of each subcommand.
pub(crate) fn companion_page(mut command: Command) -> String {
    command.build();
    let mut page = Vec::new();
    // Writing to memory cannot fail.
    let _ = Man::new(command.clone()).render(&mut page);
    for subcommand in command.get_subcommands() {
        add_subcommand(&mut page, "gpu-track", subcommand);
    }
    String::from_utf8_lossy(&page).into_owned()
}

/// Adds the section of a subcommand, then those of its own subcommands.
fn add_subcommand(page: &mut Vec<u8>, parent: &str, subcommand: &Command) {
    let name = format!("{parent} {}", subcommand.get_name());
    let about = subcommand.get_about().map(ToString::to_string).unwrap_or_default();
    let head = format!(".SH \"{}\"\n{}.\n", literal(&name.to_uppercase()), literal(&about));
    page.extend(head.bytes());
    let mut inner = subcommand.get_subcommands().peekable();
    if inner.peek().is_none() {
        let mut options = Vec::new();
        // Writing to memory cannot fail.
        let _ = Man::new(subcommand.clone().mut_args(with_aliases)).render_options_section(&mut options);
        page.extend(String::from_utf8_lossy(&options).replace(".SH OPTIONS", ".SS OPTIONS").bytes());
    }
    inner.for_each(|inner| add_subcommand(page, &name, inner));
}

/// Adds an option's aliases to its help, because clap_mangen does not show them.
fn with_aliases(arg: Arg) -> Arg {
    let names = arg.get_visible_aliases().unwrap_or_default().join(", --");
    match arg.get_help().map(ToString::to_string) {
        Some(help) if !names.is_empty() => arg.help(format!("{help} [alias: --{names}]")),
        _ => arg,
    }
}

/// Escapes text so that roff shows it unchanged, with ASCII hyphens and quotes: an example can be copied.
fn literal(text: &str) -> String {
    // roff takes a line that begins with a dot for a request.
    let text = text.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq").replace('~', "\\(ti");
    if text.starts_with('.') { format!("\\&{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;

    /// Directories of the source code that reads variables in a user's run, and the Python module.
    const SOURCES: [&str; 6] = [
        "launcher/src",
        "collector/src",
        "collector/core/src",
        "shim/src",
        "include/src/rank.rs",
        "include/src/task.rs",
    ];
    const MODULE: &str = "include/python/gpu_track";
    /// Names in capitals that are no variables of a user's run: of PCI devices, of the build, and of tests.
    const NO_VARIABLES: [&str; 5] = ["PCI_", "CARGO_", "GPU_TRACK_SHIM_", "GPU_TRACK_TEST_", "PROPTEST_"];
    /// What the names of several variables begin with.
    const PREFIX: &str = "SLURM_";
    /// Variables without an underscore, by which the others are found.
    const SHORT: [&str; 8] = ["CI", "HOME", "PATH", "RANK", "TMPDIR", "LANG", "TERM", "COLUMNS"];
    /// Those of the Python module. A column of `gpu-track watch` has the name of one.
    const SHORT_IN_MODULE: [&str; 3] = ["TMPDIR", "TEMP", "TMP"];
    /// include/src/lib.rs has the names of its own constants, too.
    const OF_ABI: [&str; 2] = [gpu_track_abi::ENV_SESSION, gpu_track_abi::ENV_PRELOAD];

    /// Files that name variables and obey none: this one, and one that writes them down.
    const OTHER: [&str; 2] = ["cli/man.rs", "bundle/evidence.rs"];

    /// The source files at or below a path, except for tests and [`OTHER`].
    fn files(path: &Path) -> Vec<String> {
        if path.is_dir() {
            let entries = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
            return entries.flat_map(|path| files(&path)).collect();
        }
        let is_source = path.extension().is_some_and(|extension| extension == "rs" || extension == "py");
        let is_other = path.components().any(|part| part.as_os_str() == "tests")
            || OTHER.iter().any(|other| path.ends_with(other));
        (is_source && !is_other).then(|| fs::read_to_string(path).unwrap()).into_iter().collect()
    }

    /// The variables that a source file names in a string of their own.
    fn variables<'a>(source: &'a str, short: &[&str]) -> impl Iterator<Item = &'a str> {
        let is_name = |text: &&str| {
            let is_upper =
                text.bytes().all(|byte| byte.is_ascii_uppercase() || b"_0123456789".contains(&byte));
            let is_long = text.trim_start_matches('_').contains('_')
                && text.bytes().any(|byte| byte.is_ascii_uppercase());
            (is_upper && is_long) || text.contains("_MCA_") || short.contains(text)
        };
        let is_no_variable =
            |name: &&str| *name == PREFIX || NO_VARIABLES.iter().any(|prefix| name.starts_with(prefix));
        source.split('"').filter(is_name).filter(move |name| !is_no_variable(name))
    }

    /// The root of the repository.
    fn repository() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
    }

    /// The variables that the source code at these paths names. `short`: those without an underscore.
    fn named_in(paths: &[&str], short: &[&str]) -> BTreeSet<String> {
        let sources: Vec<_> = paths.iter().flat_map(|path| files(&repository().join(path))).collect();
        sources.iter().flat_map(|source| variables(source, short)).chain(OF_ABI).map(str::to_owned).collect()
    }

    // Requirement: CMD-17
    #[test]
    fn environment_section_has_the_variables_that_the_source_code_reads() {
        let (_, text) = SECTIONS[0];
        let listed: BTreeSet<_> =
            terms(text).flat_map(|(names, _)| names.split(", ")).map(str::to_owned).collect();
        assert_eq!(listed, named_in(&SOURCES, &SHORT));
    }

    // Requirement: FAULT-15
    #[test]
    fn list_of_what_root_takes_has_the_variables_that_the_source_code_reads() {
        let page = fs::read_to_string(repository().join("docs/SHARED-MACHINE.md")).unwrap();
        let (_, section) = page.split_once("## What root takes from its environment\n").unwrap();
        let (section, _) = section.split_once("\n## ").unwrap();
        let listed = section.split("\n- ").skip(1).filter_map(|entry| entry.split_once(": "));
        let listed: Vec<_> = listed.flat_map(|(names, _)| names.split('`').skip(1).step_by(2)).collect();
        let without_repetition: BTreeSet<_> = listed.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(listed.len(), without_repetition.len(), "{listed:?}");
        let mut read = named_in(&SOURCES, &SHORT);
        read.extend(named_in(&[MODULE], &SHORT_IN_MODULE));
        assert_eq!(without_repetition, read);
    }

    // Requirement: CMD-17
    #[test]
    fn page_has_the_sections_that_users_look_for() {
        let page = page(Command::new("prog").after_help("Exit status:\n  0"));
        let headings = page.lines().filter_map(|line| line.strip_prefix(".SH "));
        let headings: Vec<_> = headings.skip_while(|heading| *heading != "EXIT STATUS").collect();
        assert_eq!(headings, ["EXIT STATUS", "ENVIRONMENT", "FILES", "\"SEE ALSO\""]);
        assert!(page.contains(".TP\n\\fB/dev/shm/gpu\\-track.UID.PID.*\\fR\n"), "{page}");
    }

    #[test]
    fn page_has_aliases_and_literal_examples() {
        let command = Command::new("prog")
            .about("does it")
            .arg(Arg::new("st").long("st").visible_alias("sleep-time").help("Interval"))
            .after_help("Examples:\n  prog -e 'it'\n\nExit status:\n  0");
        let page = page(command);
        assert!(page.contains("Interval [alias: \\-\\-sleep\\-time]\n"), "{page}");
        let examples = ".SH EXAMPLES\n.nf\n  prog \\-e \\(aqit\\(aq\n.fi\n.SH EXIT STATUS\n.nf\n  0\n.fi\n";
        assert!(page.contains(examples), "{page}");
        assert!(!page.contains("EXTRA"), "{page}");
    }
}
