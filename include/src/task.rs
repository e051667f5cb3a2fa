//! Tasks of a pipeline, as the environment and the arguments of their processes name them.
//!
//! A workflow program marks the processes of each of its tasks: by a variable that all of them inherit, or by the arguments of the
//! first one. A START record has a hash for each kind of mark that its process carries, and a text for people. The program cannot
//! know which inherited mark is new. The collector knows, because it has the marks of the parent.
//!
//! All of it comes from programs that may be hostile. A hash stands for a mark and proves nothing.

use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

use crate::fixed_text::FixedText;
use crate::path::file_name;

/// What marks a task, outermost first: a process that is found with several new marks is in the last of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum TaskKind {
    /// A process of a Slurm step, by SLURM_JOB_ID, SLURM_STEP_ID and SLURM_PROCID.
    SlurmStep,
    /// A task of Nextflow, by NXF_TASK_WORKDIR.
    Nextflow,
    /// A job of GNU parallel, by PARALLEL_PID and PARALLEL_SEQ of a process that leads a process group.
    Parallel,
    /// Variables that the user named with `--by-env`.
    Env,
    /// A test of pytest, by PYTEST_CURRENT_TEST.
    Pytest,
    /// A job of Snakemake: its shell command, or the rule of a Snakemake that runs one job.
    Snakemake,
    /// What one compiler process compiles: a source file of GCC, or a crate of rustc.
    Compile,
}

use TaskKind::{Compile, Env, Nextflow, Parallel, Pytest, SlurmStep, Snakemake};

/// Number of kinds.
pub const KINDS: usize = 7;

impl TaskKind {
    /// All kinds, outermost first.
    pub const ALL: [Self; KINDS] = [SlurmStep, Nextflow, Parallel, Env, Pytest, Snakemake, Compile];
}

/// Bytes for the text in a START record.
pub const TEXT_BYTES: usize = 56;

/// Bytes for the names of `--by-env` in the header, each with a NUL after it.
pub const NAMES_BYTES: usize = 256;

/// Maximum number of names of `--by-env`.
pub const MAX_NAMES: usize = 4;

/// Maximum number of arguments that are searched. gcc passes some hundred options on to a compiler in large projects.
const MOST_ARGUMENTS: usize = 1024;

/// The script of a task of Nextflow, in the task's directory. The shell around it exports the task's mark to all that it runs, as to `rm`
/// and `ln`, which stage the input. The end of the script is that of the task.
pub const SCRIPT_OF_NEXTFLOW: &str = ".command.sh";

/// What Snakemake puts before a rule's shell command: its strict mode for bash, and the two blanks that tell it from others' strict mode.
pub const STRICT_MODE: &[u8] = b"set -euo pipefail;  ";

/// The start of what Snakemake puts before that: it activates an environment of conda, or loads modules. `; ` ends it.
const SET_UP: [&[u8]; 2] = [b"source ", b"module "];

/// The marks in a START record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskKeys {
    /// A hash of each kind's mark, in the order of [`TaskKind::ALL`]; 0: the process has no such mark.
    pub hashes: [u32; KINDS],
    /// A name for each mark that is there, in the same order, with a NUL between two names and after the last one.
    pub text: [u8; TEXT_BYTES],
}

impl TaskKeys {
    /// Those of a process that is in no task.
    pub const NONE: Self = Self { hashes: [0; KINDS], text: [0; TEXT_BYTES] };

    /// Whether there is no mark.
    pub fn is_none(&self) -> bool {
        self.hashes == [0; KINDS]
    }

    /// The marks with their names.
    pub fn iter(&self) -> impl Iterator<Item = (TaskKind, u32, &[u8])> {
        let mut names = self.text.split(|b| *b == 0);
        let marks = TaskKind::ALL.into_iter().zip(self.hashes).filter(|(_, hash)| *hash != 0);
        marks.map(move |(kind, hash)| (kind, hash, names.next().unwrap_or_default()))
    }
}

/// How many of [`VARIABLES`] are Slurm's; they come first.
pub const VARIABLES_OF_SLURM: usize = 3;

/// The variables that mark tasks.
pub const VARIABLES: [&str; 7] = [
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "SLURM_PROCID",
    "NXF_TASK_WORKDIR",
    "PARALLEL_PID",
    "PARALLEL_SEQ",
    "PYTEST_CURRENT_TEST",
];

/// What marks a process: its environment and its arguments.
#[derive(Debug, Clone, Copy, Default)]
pub struct Marks<'a> {
    /// The values of [`VARIABLES`]. `None`: the variable is not set.
    pub variables: [Option<&'a [u8]>; VARIABLES.len()],
    /// The mark in the arguments.
    pub argument: ArgumentMark<'a>,
}

/// The mark in the arguments of a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ArgumentMark<'a> {
    /// There is none.
    #[default]
    None,
    /// The shell command or the job of Snakemake.
    Snakemake(&'a [u8]),
    /// A source file of GCC: the values of `-dumpdir` and `-dumpbase`. The object's name is no mark, because it can be a
    /// temporary file.
    Source([&'a [u8]; 2]),
    /// A crate of rustc: its name, and the suffix that Cargo gives to the files of each version.
    Crate([&'a [u8]; 2]),
}

/// A copy of the names of `--by-env` in a header, which each process that maps it can change meanwhile. `None`: there are no names, as
/// in most headers.
pub fn copy_of_names(shared: &[AtomicU8; NAMES_BYTES]) -> Option<[u8; NAMES_BYTES]> {
    if shared.first()?.load(Relaxed) == 0 {
        return None;
    }
    let mut copy = [0; NAMES_BYTES];
    copy.iter_mut().zip(shared).for_each(|(to, from)| *to = from.load(Relaxed));
    Some(copy)
}

/// The names of `--by-env` in a list that no other process can write: see [`copy_of_names`].
pub fn names(list: &[u8; NAMES_BYTES]) -> impl Iterator<Item = &[u8]> + Clone {
    // The first empty one ends the list, which most headers do not have.
    list.split(|b| *b == 0).take_while(|name| !name.is_empty()).take(MAX_NAMES)
}

impl<'a> Marks<'a> {
    /// The keys for a START record. `variable` looks up a variable of `names`, those of `--by-env`. A key that `baseline` has
    /// is left out: the run inherited it.
    pub fn keys<'n>(
        &self,
        names: impl Iterator<Item = &'n [u8]> + Clone,
        variable: impl Fn(&[u8]) -> Option<&'a [u8]>,
        baseline: &[u32; KINDS],
    ) -> TaskKeys {
        let mut hashes = self.hashes();
        let by_env = hash_of_variables(names.clone(), &variable);
        let mut count = 0;
        for ((hash, of_run), kind) in hashes.iter_mut().zip(baseline).zip(TaskKind::ALL) {
            if kind == Env {
                *hash = by_env;
            }
            if *hash == *of_run {
                *hash = 0;
            }
            count += usize::from(*hash != 0);
        }
        if count == 0 {
            return TaskKeys::NONE;
        }
        let mut text = FixedText::<TEXT_BYTES>::default();
        let mut left = count;
        for (kind, _) in TaskKind::ALL.into_iter().zip(hashes).filter(|(_, hash)| *hash != 0) {
            // What a short name leaves is for those after it. Each has a NUL.
            let most = text.room().checked_div(left).unwrap_or(0).saturating_sub(1);
            left = left.saturating_sub(1);
            if kind == Env {
                put_variables(names.clone(), &variable, &mut text, most);
            } else {
                self.put_name(kind, &mut text, most);
            }
            text.end_part();
        }
        TaskKeys { hashes, text: text.bytes }
    }

    /// The hashes of all kinds but [`Env`].
    fn hashes(&self) -> [u32; KINDS] {
        let mut hashes = [0; KINDS];
        if !self.is_any() {
            return hashes;
        }
        for (hash, kind) in hashes.iter_mut().zip(TaskKind::ALL) {
            if let Some(mark) = self.mark(kind) {
                *hash = mark.iter().fold(kind as u32, |hash, text| hash_with(hash, text)).max(1);
            }
        }
        hashes
    }

    /// Whether the variables are those of a job of GNU parallel.
    pub fn is_of_parallel(&self) -> bool {
        let [.., job_number, _] = self.variables;
        job_number.is_some()
    }

    /// Without the mark of a job of GNU parallel.
    #[must_use]
    pub fn without_parallel(mut self) -> Self {
        let [.., job_number, _] = &mut self.variables;
        *job_number = None;
        self
    }

    /// Whether there may be a mark.
    fn is_any(&self) -> bool {
        self.argument != ArgumentMark::None || self.variables.iter().any(Option::is_some)
    }

    /// The mark of a kind: the texts that identify it. `None`: there is none, or the kind is [`Env`].
    fn mark(&self, kind: TaskKind) -> Option<[&'a [u8]; 3]> {
        let [job, step, rank, directory, parallel, job_number, test] = self.variables;
        Some(match (kind, self.argument) {
            (SlurmStep, _) => [job.unwrap_or_default(), step?, rank?],
            (Nextflow, _) => [directory?, b"", b""],
            (Parallel, _) => [parallel.unwrap_or_default(), job_number?, b""],
            (Pytest, _) => [without_stage(test?), b"", b""],
            (Snakemake, ArgumentMark::Snakemake(command)) => [command, b"", b""],
            (Compile, ArgumentMark::Source([directory, file])) => [directory, file, b""],
            (Compile, ArgumentMark::Crate([name, suffix])) => [b"crate", name, suffix],
            _ => return None,
        })
    }

    /// Adds the name of a mark, which its kind and its texts make, to a text: at most `most` bytes.
    fn put_name(&self, kind: TaskKind, text: &mut FixedText<TEXT_BYTES>, most: usize) {
        let Some([one, two, three]) = self.mark(kind) else { return };
        match (kind, self.argument) {
            (SlurmStep, _) => text.put(&[one, b".", two, b".", three], most),
            (Nextflow, _) => text.put(&[last_two(one)], most),
            (Parallel, _) | (Compile, ArgumentMark::Crate(_)) => text.put(&[two], most),
            (Snakemake, _) => text.put(&name_of_job(one), most),
            _ => text.put(&[one, two], most),
        }
    }
}

/// The hash of the variables of `--by-env` that are set; 0: none is.
fn hash_of_variables<'a, 'n>(
    names: impl Iterator<Item = &'n [u8]>,
    variable: impl Fn(&[u8]) -> Option<&'a [u8]>,
) -> u32 {
    let (mut hash, mut is_any) = (Env as u32, false);
    for name in names {
        let Some(value) = variable(name) else {
            // A variable that is not set is not an empty one.
            hash = hash_with(hash, b"");
            continue;
        };
        hash = hash_with(hash_with(hash, b"="), value);
        is_any = true;
    }
    if is_any { hash.max(1) } else { 0 }
}

/// Adds the variables of `--by-env` that are set, as `NAME=value`, to a text: at most `most` bytes.
fn put_variables<'a: 's, 'n: 's, 's>(
    names: impl Iterator<Item = &'n [u8]>,
    variable: impl Fn(&[u8]) -> Option<&'a [u8]>,
    text: &mut FixedText<TEXT_BYTES>,
    most: usize,
) {
    let mut shown: [[&'s [u8]; 4]; MAX_NAMES] = [[b""; 4]; MAX_NAMES];
    let set = names.filter_map(|name| Some((name, variable(name)?)));
    let mut separator: &[u8] = b"";
    for (parts, (name, value)) in shown.iter_mut().zip(set) {
        *parts = [separator, name, b"=", value];
        separator = b" ";
    }
    text.put(shown.as_flattened(), most);
}

/// A hash with a text added (FNV-1a), and the text's end: without it, `1`, `23` and `12`, `3` would have the same hash.
fn hash_with(hash: u32, text: &[u8]) -> u32 {
    let byte = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    byte(text.iter().fold(hash, |hash, one| byte(hash, *one)), 0)
}

/// The last two components of a path: Nextflow names a task by those of its directory.
fn last_two(path: &[u8]) -> &[u8] {
    let name = file_name(path);
    let before = path.get(..path.len().saturating_sub(name.len() + 1)).unwrap_or_default();
    let length = file_name(before).len() + 1 + name.len();
    path.get(path.len().saturating_sub(length)..).unwrap_or(path)
}

/// A test's id without its stage: pytest sets `FILE::TEST (call)`, and `(setup)` and `(teardown)` before and after.
fn without_stage(test: &[u8]) -> &[u8] {
    match test.iter().rposition(|b| *b == b'(') {
        Some(at) => test.get(..at).unwrap_or(test).trim_ascii_end(),
        None => test,
    }
}

/// Finds the mark in the arguments of a process. `first` is its argv\[0\], and `rest` has the others. Only programs that can have a
/// mark are searched.
pub fn argument_mark<'a>(first: &'a [u8], rest: impl Iterator<Item = &'a [u8]>) -> ArgumentMark<'a> {
    let program = file_name(first);
    let mut rest = rest.take(MOST_ARGUMENTS);
    match program.first() {
        Some(b'b') if program == b"bash" => snakemake_command(rest),
        Some(b'p') if program.starts_with(b"python") && (rest.next(), rest.next()) == SNAKEMAKE => {
            snakemake_job(rest)
        }
        Some(b'c' | b'f' | b'l') if is_compiler(program) => source_file(rest),
        Some(b'r') if program == b"rustc" => crate_of(rest),
        _ => ArgumentMark::None,
    }
}

/// How Snakemake starts itself for a job that is Python code, so that the job has a process of its own.
const SNAKEMAKE: (Option<&[u8]>, Option<&[u8]>) = (Some(b"-m"), Some(b"snakemake"));

/// Whether GCC's driver runs this program to compile.
fn is_compiler(program: &[u8]) -> bool {
    matches!(program, b"cc1" | b"cc1plus" | b"cc1obj" | b"cc1objplus" | b"f951" | b"lto1")
}

fn snakemake_command<'a>(mut rest: impl Iterator<Item = &'a [u8]>) -> ArgumentMark<'a> {
    match (rest.next(), rest.next()) {
        (Some(b"-c"), Some(text)) => job_in(text).map_or(ArgumentMark::None, ArgumentMark::Snakemake),
        _ => ArgumentMark::None,
    }
}

/// The job of Snakemake in a command of bash: what follows the set-up, as `.snakemake/metadata` has it. A command that is too long for an
/// argument is in a script, and the job is the call of that script.
fn job_in(text: &[u8]) -> Option<&[u8]> {
    let mut command = text;
    if SET_UP.iter().any(|start| text.starts_with(start)) {
        let end = text.iter().position(|b| *b == b';')?;
        command = text.get(end..)?.strip_prefix(b"; ")?;
    }
    (command.starts_with(STRICT_MODE) || is_script_of_job(command)).then_some(command)
}

/// Whether this is `"SHELL" "DIRECTORY/.snakemake/shell_tmp.RANDOM/script.sh"`.
fn is_script_of_job(command: &[u8]) -> bool {
    let directory = command.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"/script.sh\""));
    directory.is_some_and(|directory| file_name(directory).starts_with(b"shell_tmp."))
}

/// What a job of Snakemake is called: its command, or its wildcards. Without the random part in the name of a script that Snakemake writes,
/// equal jobs of several runs have one name.
fn name_of_job(job: &[u8]) -> [&[u8]; 2] {
    if is_script_of_job(job) {
        return [b"script.sh", b""];
    }
    let shown = job.strip_prefix(STRICT_MODE).unwrap_or(job).trim_ascii();
    // A job without wildcards.
    let shown = shown.strip_suffix(b":").unwrap_or(shown);
    let file = file_name(shown);
    let directory = shown.strip_suffix(file).unwrap_or_default();
    match file {
        [b't', b'm', b'p', _, _, _, _, _, _, _, _, b'.', name @ ..] if directory.ends_with(SCRIPTS) => {
            [directory, name]
        }
        _ => [shown, b""],
    }
}

/// Where Snakemake writes the scripts of `script:`, as `tmpRANDOM.NAME`.
const SCRIPTS: &[u8] = b"/.snakemake/scripts/";

/// The job (`RULE:WILDCARDS`), or else the rule, of a Snakemake that may run only that.
fn snakemake_job<'a>(mut rest: impl Iterator<Item = &'a [u8]>) -> ArgumentMark<'a> {
    let mut rule = ArgumentMark::None;
    while let Some(option) = rest.next() {
        match option {
            b"--target-jobs" => return rest.next().map_or(rule, ArgumentMark::Snakemake),
            b"--allowed-rules" => rule = rest.next().map_or(rule, ArgumentMark::Snakemake),
            _ => {}
        }
    }
    rule
}

fn source_file<'a>(mut rest: impl Iterator<Item = &'a [u8]>) -> ArgumentMark<'a> {
    let (mut directory, mut file): (&[u8], Option<&[u8]>) = (b"", None);
    while let Some(option) = rest.next() {
        match option {
            b"-dumpdir" => directory = rest.next().unwrap_or_default(),
            b"-dumpbase" => file = rest.next().filter(|name| !name.is_empty()),
            // The compiler preprocesses alone, as for ccache, which then looks for the result in its cache.
            b"-E" => return ArgumentMark::None,
            _ => {}
        }
    }
    file.map_or(ArgumentMark::None, |file| ArgumentMark::Source([directory, file]))
}

fn crate_of<'a>(mut rest: impl Iterator<Item = &'a [u8]>) -> ArgumentMark<'a> {
    let (mut name, mut suffix): (Option<&[u8]>, &[u8]) = (None, b"");
    while let Some(option) = rest.next() {
        if option == b"--crate-name" {
            name = rest.next();
        } else if let Some(value) = option.strip_prefix(b"extra-filename=") {
            suffix = value;
        }
    }
    // Cargo asks rustc for facts under a name of three underscores.
    let name = name.filter(|name| *name != b"___");
    name.map_or(ArgumentMark::None, |name| ArgumentMark::Crate([name, suffix]))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn marks<'a>(variables: &[(&str, &'a str)], arguments: &'a [&'a str]) -> Marks<'a> {
        let value =
            |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.as_bytes());
        let argument = arguments.split_first().map_or(ArgumentMark::None, |(first, rest)| {
            argument_mark(first.as_bytes(), rest.iter().map(|one| one.as_bytes()))
        });
        Marks { variables: VARIABLES.map(value), argument }
    }

    /// The kinds and names of the marks.
    fn found(marks: &Marks<'_>) -> Vec<(TaskKind, String)> {
        let keys = marks.keys(core::iter::empty(), |_| None, &[0; KINDS]);
        keys.iter().map(|(kind, _, name)| (kind, String::from_utf8_lossy(name).into_owned())).collect()
    }

    fn hashes(variables: &[(&str, &str)], arguments: &[&str]) -> [u32; KINDS] {
        marks(variables, arguments).keys(core::iter::empty(), |_| None, &[0; KINDS]).hashes
    }

    // Requirement: TASK-1
    #[test]
    fn each_kind_is_known_by_its_mark() {
        let step = [("SLURM_JOB_ID", "7"), ("SLURM_STEP_ID", "0"), ("SLURM_PROCID", "3")];
        assert_eq!(found(&marks(&step, &[])), [(SlurmStep, "7.0.3".into())]);
        assert_eq!(found(&marks(&step[..2], &[])), []);
        let directory = [("NXF_TASK_WORKDIR", "/home/a/work/4f/0123456789abcdef0123456789abcd")];
        assert_eq!(found(&marks(&directory, &[])), [(Nextflow, "4f/0123456789abcdef0123456789abcd".into())]);
        assert_eq!(found(&marks(&[("NXF_TASK_WORKDIR", "x")], &[])), [(Nextflow, "x".into())]);
        let job = [("PARALLEL_PID", "99"), ("PARALLEL_SEQ", "12")];
        assert_eq!(found(&marks(&job, &[])), [(Parallel, "12".into())]);
        let test = [("PYTEST_CURRENT_TEST", "a/test_b.py::test_c[x (1)] (call)")];
        assert_eq!(found(&marks(&test, &[])), [(Pytest, "a/test_b.py::test_c[x (1)]".into())]);
        let shell = ["/bin/bash", "-c", "set -euo pipefail;  sort a > b"];
        assert_eq!(found(&marks(&[], &shell)), [(Snakemake, "sort a > b".into())]);
        let activated = ["bash", "-c", "source /opt/bin/activate 'env'; set -euo pipefail;  sort a > b"];
        assert_eq!(hashes(&[], &activated), hashes(&[], &shell), "as the metadata has it");
        let modules =
            ["bash", "-c", "module purge && X=concise module load a b; set -euo pipefail;  sort a > b"];
        assert_eq!(hashes(&[], &modules), hashes(&[], &shell));
        let long = ["bash", "-c", "\"/bin/bash\" \"/w/.snakemake/shell_tmp.a1_b2c3d/script.sh\""];
        assert_eq!(found(&marks(&[], &long)), [(Snakemake, "script.sh".into())]);
        let script = ["bash", "-c", "set -euo pipefail;  python3 /w/.snakemake/scripts/tmpjjhuoouu.s.py"];
        assert_eq!(found(&marks(&[], &script)), [(Snakemake, "python3 /w/.snakemake/scripts/s.py".into())]);
        let rule = "python3.11 -m snakemake -s S --allowed-rules r --target-jobs r:x=1 --cores 1";
        let rule: Vec<&str> = rule.split(' ').collect();
        assert_eq!(found(&marks(&[], &rule)), [(Snakemake, "r:x=1".into())]);
        let cc1 = ["/usr/lib/gcc/cc1", "a.c", "-dumpdir", "obj/", "-dumpbase", "a.c", "-o", "/tmp/x.s"];
        assert_eq!(found(&marks(&[], &cc1)), [(Compile, "obj/a.c".into())]);
        let rustc = ["rustc", "--crate-name", "syn", "-C", "extra-filename=-1", "x.rs"];
        assert_eq!(found(&marks(&[], &rustc)), [(Compile, "syn".into())]);
    }

    // Requirement: TASK-62
    #[test]
    fn other_programs_and_arguments_are_no_task() {
        for arguments in [
            &["bash", "-c", "true"][..],
            &["sh", "-c", "set -euo pipefail;  x"],
            &["bash", "set -euo pipefail;  x"],
            // The strict mode of a Makefile or a script.
            &["bash", "-c", "set -euo pipefail; x"],
            &["bash", "-c", "source a; x; set -euo pipefail;  x"],
            &["bash", "-c", "source a"],
            &["bash", "-c", "\"bash\" \"/w/script.sh\""],
            &["python3", "-m", "snakemake", "-c4", "all"],
            &["python3", "x.py", "--allowed-rules", "r"],
            &["gcc", "-dumpbase", "a.c"],
            &["cc1", "-E", "a.c", "-dumpdir", "cache/tmp/", "-dumpbase", "cpp_stdout.tmp.ryeFEY.c"],
            &["cc1", "-dumpbase"],
            &["cc1", "-dumpbase", ""],
            &["rustc", "--crate-name", "___"],
            &["rustc", "-V"],
            &[""],
            &[],
        ] {
            assert_eq!(found(&marks(&[("PARALLEL_PID", "3")], arguments)), [], "{arguments:?}");
        }
    }

    // Requirement: TASK-1
    #[test]
    fn hash_differs_where_the_task_does() {
        let job = |pid, number| hashes(&[("PARALLEL_PID", pid), ("PARALLEL_SEQ", number)], &[]);
        assert_eq!(job("1", "2"), job("1", "2"));
        assert_ne!(job("1", "2"), job("1", "3"));
        assert_ne!(job("1", "23"), job("12", "3"), "two parallels have jobs of the same number");
        let test = |stage| hashes(&[("PYTEST_CURRENT_TEST", stage)], &[]);
        assert_eq!(test("a::b (setup)"), test("a::b (call)"));
        let unit = |directory| hashes(&[], &["cc1", "-dumpdir", directory, "-dumpbase", "a.c"]);
        assert_ne!(unit("x/"), unit("y/"));
        let version = |suffix| hashes(&[], &["rustc", "--crate-name", "syn", "-C", suffix]);
        assert_ne!(version("extra-filename=-1"), version("extra-filename=-2"));
    }

    // Requirement: TASK-1
    #[test]
    fn several_names_share_the_text() {
        let command = format!("set -euo pipefail;  {}", "x".repeat(100));
        let arguments = ["bash", "-c", &command];
        let both = marks(&[("PARALLEL_SEQ", "5")], &arguments);
        let [(Parallel, number), (Snakemake, shown)] = &found(&both)[..] else { panic!() };
        assert_eq!((&**number, shown.len()), ("5", TEXT_BYTES - 3));
        let long = "y".repeat(200);
        let test = marks(&[("PYTEST_CURRENT_TEST", &long), ("NXF_TASK_WORKDIR", &long)], &arguments);
        let lengths: Vec<usize> = found(&test).iter().map(|(_, name)| name.len()).collect();
        assert_eq!(lengths, [17, 18, 18]);
    }

    #[test]
    fn names_are_copied_out_of_a_shared_page() {
        let shared = |byte: u8| [const { AtomicU8::new(0) }; NAMES_BYTES].map(|_| AtomicU8::new(byte));
        assert_eq!(copy_of_names(&shared(0)), None);
        // A list that another process has filled has one name, without an end.
        let filled = copy_of_names(&shared(b'x')).unwrap();
        assert_eq!(names(&filled).map(<[u8]>::len).collect::<Vec<_>>(), [NAMES_BYTES]);
    }

    // Requirement: TASK-2
    #[test]
    fn named_variables_make_tasks_by_their_values() {
        let list = |names: &str| {
            let mut list = [0; NAMES_BYTES];
            list[..names.len()].copy_from_slice(names.as_bytes());
            list
        };
        let keys = |names: &str, variables: &[(&str, &'static str)], baseline: &[u32; KINDS]| {
            let value = |name: &[u8]| {
                let same = variables.iter().find(|(key, _)| key.as_bytes() == name);
                same.map(|(_, value)| value.as_bytes())
            };
            Marks::default().keys(super::names(&list(names)), value, baseline)
        };
        let none = &[0; KINDS];
        let one = keys("A\0B\0", &[("A", "x"), ("B", "y")], none);
        let [(Env, _, name)] = one.iter().collect::<Vec<_>>()[..] else { panic!() };
        assert_eq!(name, b"A=x B=y");
        assert_ne!(keys("A\0B\0", &[("A", "x"), ("B", "z")], none).hashes, one.hashes);
        assert_ne!(keys("A\0B\0", &[("A", "x")], none).hashes, keys("A\0B\0", &[("B", "x")], none).hashes);
        assert_ne!(
            keys("A\0B\0", &[("A", "x"), ("B", "")], none).hashes,
            keys("A\0B\0", &[("A", "x")], none).hashes
        );
        assert!(keys("A\0", &[], none).is_none() && keys("", &[("A", "x")], none).is_none());
    }
}
