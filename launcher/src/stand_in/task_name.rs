//! The name of the task that a stand-in runs: by the marks of workflow programs, or by what a compiler writes.

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::parent_id;
use std::path::Path;
use std::time::SystemTime;
use std::{env, iter, process};

use gpu_track_abi::task::{
    ArgumentMark, KINDS, Marks, SCRIPT_OF_NEXTFLOW, TaskKind, VARIABLES, argument_mark,
};
use gpu_track_collector::{ProcRoot, given_file};

use super::shell_line::{ShellWork, work};
use crate::cli::compact;

/// The script beside [`SCRIPT_OF_NEXTFLOW`] that prepares the task. Its first lines have the task's name.
const LAUNCHER_OF_NEXTFLOW: &str = ".command.run";
/// What stands before that name. Quotes are around it.
const NAME_OF_NEXTFLOW: &str = "### name: ";
/// How many bytes of that script are searched for the name.
const HEAD_BYTES: u64 = 4 << 10;
/// Maximum number of bytes of that script.
const MOST_BYTES: u64 = 16 << 20;
/// Maximum number of bytes of the parent's arguments. The job is among Snakemake's own, which can name many files before it.
const MOST_OF_ARGUMENTS: u64 = 256 << 10;

/// The name of the task that a shell with this command line runs. `shell`: the name of a task without a mark begins with that of its
/// shell. `None`: it runs no task, but a script, or what a person types.
pub(super) fn of_shell(shell: &str, line: &[OsString]) -> Option<String> {
    let variables = VARIABLES.map(|name| env::var_os(name).filter(|value| !value.is_empty()));
    let variables = variables.each_ref().map(|value| value.as_ref().map(|value| value.as_bytes()));
    let marks = Marks { variables, argument: own_mark(line) };
    let name = match work(line.get(1..).unwrap_or_default()) {
        ShellWork::Command(_) => {
            let arguments = ProcRoot::default().args(parent_id(), MOST_OF_ARGUMENTS);
            let arguments = arguments.map(|found| found.into_args()).unwrap_or_default();
            match job_of_parent(&arguments) {
                // A rule of Python code runs in that Snakemake, and this shell is only what the code calls.
                Some(argument) if runs_code(&arguments) => {
                    of_marks(&Marks { argument, ..marks }).map(|rule| format!("{rule}.shell"))
                }
                job => of_marks(&Marks { argument: job.unwrap_or(marks.argument), ..marks }),
            }
        }
        ShellWork::Script(path) => {
            let is_task = Path::new(path).file_name().is_some_and(|name| name == SCRIPT_OF_NEXTFLOW);
            Some(of_marks(&marks).filter(|_| is_task)?)
        }
        ShellWork::Input => return None,
    };
    Some(name.unwrap_or_else(|| without_mark(shell)))
}

/// The mark in the shell's own arguments.
fn own_mark(line: &[OsString]) -> ArgumentMark<'_> {
    let mut words = line.iter().map(|word| word.as_bytes());
    words.next().map_or(ArgumentMark::None, |first| argument_mark(first, words))
}

/// The job of the Snakemake with these arguments that runs one job, as on another machine. Its rule tells more than its shell command.
fn job_of_parent(arguments: &[String]) -> Option<ArgumentMark<'_>> {
    let (first, rest) = arguments.split_first()?;
    let mark = argument_mark(first.as_bytes(), rest.iter().map(String::as_bytes));
    // A shell command of Snakemake may run this shell, too.
    matches!(mark, ArgumentMark::Snakemake(_)).then_some(mark).filter(|_| !first.ends_with("bash"))
}

/// Whether the Snakemake with these arguments was started to run the Python code of one job.
fn runs_code(arguments: &[String]) -> bool {
    arguments.windows(2).any(|pair| pair == ["--mode", "subprocess"])
}

/// The name by the innermost mark, with its kind before it. `None`: there is no mark.
fn of_marks(marks: &Marks) -> Option<String> {
    let keys = |without: &[u32; KINDS]| marks.keys(iter::empty(), |_| None, without);
    let mut others = keys(&[0; KINDS]);
    let kind = others.iter().last()?.0;
    *others.hashes.get_mut(kind as usize)? = 0;
    // Alone, its name has all the room that names share.
    let only = keys(&others.hashes);
    let (_, _, name) = only.iter().next()?;
    let name = String::from_utf8_lossy(name).into_owned();
    Some(match kind {
        TaskKind::SlurmStep => format!("slurm.{name}"),
        TaskKind::Nextflow => format!("nextflow.{}", of_nextflow().unwrap_or(name)),
        TaskKind::Parallel => format!("parallel.{name}"),
        TaskKind::Pytest => format!("pytest.{name}"),
        TaskKind::Snakemake => format!("snakemake.{name}"),
        TaskKind::Env | TaskKind::Compile => name,
    })
}

/// The name that Nextflow has given its task, in the head of `.command.run`.
fn of_nextflow() -> Option<String> {
    let path = Path::new(&env::var_os("NXF_TASK_WORKDIR")?).join(LAUNCHER_OF_NEXTFLOW);
    let mut head = Vec::new();
    given_file::open(&path, MOST_BYTES).ok()?.take(HEAD_BYTES).read_to_end(&mut head).ok()?;
    let head = String::from_utf8_lossy(&head);
    let name = head.lines().find_map(|line| line.strip_prefix(NAME_OF_NEXTFLOW))?;
    Some(name.trim().trim_matches('\'').to_owned()).filter(|name| !name.is_empty())
}

/// The name of a compiler's task: the file that it writes, by `-o`.
pub(super) fn of_compiler(arguments: &[OsString]) -> String {
    let mut output = None;
    let mut rest = arguments.iter().map(|word| word.as_bytes());
    while let Some(word) = rest.next() {
        match word.strip_prefix(b"-o") {
            Some(b"") => output = rest.next(),
            // Clang and GCC have options such as -objc, which CMake does not use.
            Some(file) => output = Some(file),
            None => {}
        }
    }
    match output {
        Some(file) => String::from_utf8_lossy(file).into_owned(),
        None => without_mark("compiler"),
    }
}

/// The name of a task that nothing names: by the time in UTC, and by the pid.
fn without_mark(program: &str) -> String {
    format!("{program}.{}.{}", compact(SystemTime::now()), process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words<const N: usize>(words: [&str; N]) -> Vec<OsString> {
        words.map(OsString::from).to_vec()
    }

    // Requirement: TASK-14
    #[test]
    fn innermost_mark_names_the_task() {
        let line = words(["/d/bash", "-c", "set -euo pipefail;  sort a > b"]);
        let mut variables = [None; VARIABLES.len()];
        variables[4..6].copy_from_slice(&[Some(&b"7"[..]), Some(b"12")]);
        let of = |argument| of_marks(&Marks { variables, argument }).unwrap();
        assert_eq!(of(own_mark(&line)), "snakemake.sort a > b");
        assert_eq!(of(ArgumentMark::None), "parallel.12");
        assert_eq!(of_marks(&Marks::default()), None);
    }

    // Requirement: TASK-14
    #[test]
    fn job_of_a_snakemake_that_runs_one_is_known() {
        let arguments = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let one =
            arguments("/usr/bin/python3.11 -m snakemake --target-jobs align:sample=a --allowed-rules align");
        assert_eq!(job_of_parent(&one), Some(ArgumentMark::Snakemake(b"align:sample=a")));
        assert!(!runs_code(&one) && runs_code(&arguments("python3 -m snakemake --mode subprocess")));
        assert_eq!(job_of_parent(&arguments("python3 -m snakemake -c4 all")), None);
        let shell = ["bash".to_owned(), "-c".into(), "set -euo pipefail;  make".into()];
        assert_eq!(job_of_parent(&shell), None);
        assert_eq!(job_of_parent(&[]), None);
    }

    // Requirement: TASK-14
    #[test]
    fn compiler_is_named_by_what_it_writes() {
        assert_eq!(of_compiler(&words(["-c", "a.c", "-o", "x/a.c.o"])), "x/a.c.o");
        assert_eq!(of_compiler(&words(["-oa.o", "a.c"])), "a.o");
        assert!(of_compiler(&words(["-c", "a.c", "-o"])).starts_with("compiler."));
    }
}
