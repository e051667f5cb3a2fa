//! Stand-ins for shells: links to this program that are called `bash` or `sh`, which `gpu-track shell` makes. A workflow program that is
//! told to use one gets the shell itself, and a report for each task. `compiler-launcher` does the same before a compiler.
//!
//! The link that was executed says which stand-in this is (AT_EXECFN): argv\[0\] is the shell's, as all arguments are. The link's
//! directory has the reports, or a link to their directory.
//!
//! What is no task, and what runs inside a tracked run, becomes the shell. So does a task whose report can't be written.

pub(crate) mod report_file;
mod shell_line;
mod task_name;

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf, absolute};
use std::process::ExitCode;

use gpu_track_abi::ENV_SESSION;
use gpu_track_collector::safe_path::User;
use gpu_track_collector::was_killed;
use rustix::param::linux_execfn;
use rustix::process::{getegid, geteuid, getgid, getuid};

use crate::cli::{self, PatternValues, Request, UsageError, without_patterns};
use crate::companion::record::innermost;
use crate::console;
use crate::process::signals;
use crate::process::spawn::{self, InheritedState, Program};

/// The names of the stand-ins.
pub(crate) const NAMES: [&str; 3] = ["bash", "sh", COMPILER_LAUNCHER];
/// Runs its arguments, as `CMAKE_C_COMPILER_LAUNCHER` wants it.
const COMPILER_LAUNCHER: &str = "compiler-launcher";
/// The reports, in the directory of the stand-ins.
pub(crate) const REPORTS: &str = "reports";
/// Where the real shells are. PATH may name the stand-ins.
const SHELLS: &str = "/bin";
/// Before the task's name, in the first argument of a stand-in shell. No shell has such an option.
const TASK_OPTION: &[u8] = b"--task=";

/// A call of a stand-in.
struct Call {
    /// Which one it is.
    name: &'static str,
    /// Its directory.
    directory: PathBuf,
    /// The task's name, if an argument gives it.
    given_name: Option<OsString>,
    /// The arguments of the program that it stands for.
    words: Vec<OsString>,
    /// That program: a file, or a name along PATH.
    program: OsString,
}

/// Does the work of a stand-in, if this process was started as one. `None`: it was not. Returns the program's exit status, or that of a
/// shell if the program can't be executed.
pub(crate) fn serve_if_started_as_one() -> Option<ExitCode> {
    let line: Vec<OsString> = env::args_os().collect();
    let (name, link) = executed(&NAMES, &line)?;
    let Some(call) = Call::of(name, link.parent()?, line) else {
        console::error(format_args!("{name} runs a compiler: give its command line"));
        return Some(ExitCode::from(2));
    };
    if name != COMPILER_LAUNCHER && are_same_file(&link, Path::new(&call.program)) {
        console::error(format_args!("'{}' is a stand-in itself, and no shell", call.program.display()));
        return Some(ExitCode::from(127));
    }
    match call.tracked() {
        Some(Ok(status)) => return Some(status),
        Some(Err(error)) => console::message(format_args!("no report of this task: {error}")),
        None => {}
    }
    let program = Program { words: &call.words, behind: Some(&call.program) };
    // The shell gets back what the start of this program has changed: the state of SIGPIPE, and closed descriptors.
    let inherited = InheritedState::replace(&signals::all_but_faults());
    let error = spawn::become_command(program, &inherited);
    console::error(format_args!("cannot execute '{}': {error}", call.program.display()));
    Some(ExitCode::from(if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 }))
}

/// The stand-in with one of these names by which this process was started: its name, and its path from the root. `line`: the arguments
/// of this process. `None`: it was started in another way.
pub(crate) fn executed(names: &[&'static str], line: &[OsString]) -> Option<(&'static str, PathBuf)> {
    let executed = Path::new(OsStr::from_bytes(linux_execfn().to_bytes()));
    // Where a script names this program in its first line, the script was executed. The kernel gives the name there as argv[0].
    stand_in(executed, names).or_else(|| stand_in(Path::new(line.first()?), names))
}

/// The stand-in at this path: its name, and its path from the root. `None`: there is none.
fn stand_in(path: &Path, names: &[&'static str]) -> Option<(&'static str, PathBuf)> {
    let file = path.file_name()?;
    let name = names.iter().copied().find(|name| file == *name)?;
    // A script can have such a name. Without /proc, the name has to do: the shell must run there, too.
    let own = Path::new("/proc/self/exe");
    (!own.exists() || are_same_file(own, path)).then_some((name, absolute(path).ok()?))
}

/// Whether both paths lead to one file.
pub(crate) fn are_same_file(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| path.metadata().map(|found| (found.dev(), found.ino())).ok();
    identity(one).is_some_and(|found| Some(found) == identity(other))
}

impl Call {
    /// A call with the arguments `line`, of which the first is the stand-in's own name. `None`: there is no program to run.
    fn of(name: &'static str, directory: &Path, mut line: Vec<OsString>) -> Option<Self> {
        let directory = directory.to_owned();
        if name == COMPILER_LAUNCHER {
            let words: Vec<_> = line.into_iter().skip(1).collect();
            let program = words.first()?.clone();
            return Some(Self { name, directory, given_name: None, words, program });
        }
        let given = line.get(1).and_then(|first| first.as_bytes().strip_prefix(TASK_OPTION));
        let given_name = given.map(|name| OsStr::from_bytes(name).to_owned());
        if given_name.is_some() {
            line.remove(1);
        }
        let program = Path::new(SHELLS).join(name).into_os_string();
        Some(Self { name, directory, given_name, words: line, program })
    }

    /// Runs the program tracked, if it is a task that needs a report of its own. `None`: it is none.
    ///
    /// # Errors
    /// If there can be no report. The program was not started then.
    fn tracked(&self) -> Option<Result<ExitCode, String>> {
        if is_in_run() || is_of_other_user() {
            return None;
        }
        let name = self.task_name()?;
        let reports = self.directory.join(REPORTS);
        // Root writes only where no other user can lead it elsewhere.
        let reports = if User::this().is_root() { User::this().resolve(&reports) } else { Ok(reports) };
        let made = match reports {
            Ok(reports) => report_file::create(&reports, &name),
            Err(error) => {
                Err(format!("cannot create \"{}\": {error}", self.directory.join(REPORTS).display()))
            }
        };
        Some(made.and_then(|report| {
            let request = self.request(&report);
            request.and_then(crate::serve).map_err(|error| {
                // The run was refused before it began, so the file is still empty.
                let _ = std::fs::remove_file(&report);
                error.to_string()
            })
        }))
    }

    /// The name of the task. `None`: this is no task.
    fn task_name(&self) -> Option<String> {
        let words = self.words.get(1..).unwrap_or_default();
        match &self.given_name {
            Some(name) if name.is_empty() => None,
            Some(name) => Some(name.to_string_lossy().into_owned()),
            None if self.name == COMPILER_LAUNCHER => Some(task_name::of_compiler(words)),
            None => task_name::of_shell(self.name, &self.words),
        }
    }

    /// The run that writes this report.
    fn request(&self, report: &Path) -> Result<Request, UsageError> {
        let options = ["gpu-track-run", "-q", "-f", "json", "--nodes=off", "-o"].map(OsString::from);
        let rest = [without_patterns(report.as_os_str()), "--".into()];
        let line = options.into_iter().chain(rest).chain(self.words.iter().cloned()).collect();
        // The report is of this task alone, whatever rank it is.
        let patterns = PatternValues { rank_number: None, job_of_ranks: None, ..PatternValues::here() };
        let mut request = cli::parse(line, &patterns)?;
        if let Request::Run(options) = &mut request {
            options.command.behind = Some(self.program.clone());
        }
        Ok(request)
    }
}

/// Whether this process is in a run that goes on: its report has this task.
fn is_in_run() -> bool {
    let run = innermost(&env::var_os(ENV_SESSION).unwrap_or_default());
    run.is_some_and(|segment| !was_killed(&segment))
}

/// Whether this process has the rights of a setuid program. It must not write where its caller says.
fn is_of_other_user() -> bool {
    getuid() != geteuid() || getgid() != getegid()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: TASK-14
    #[test]
    fn option_with_the_name_is_the_stand_ins_and_all_others_are_the_shells() {
        let call =
            |name, words: &[&str]| Call::of(name, Path::new("/d"), words.iter().map(Into::into).collect());
        let shell = call("sh", &["-sh", "--task=a b", "-c", "--task=x"]).unwrap();
        assert_eq!(
            (shell.words, shell.program),
            (["-sh", "-c", "--task=x"].map(OsString::from).to_vec(), "/bin/sh".into())
        );
        assert_eq!(shell.given_name, Some("a b".into()));
        let compiler = call(COMPILER_LAUNCHER, &["x", "gcc", "--task=y"]).unwrap();
        assert_eq!(
            (compiler.words, compiler.program),
            (["gcc", "--task=y"].map(OsString::from).to_vec(), "gcc".into())
        );
        assert_eq!(call(COMPILER_LAUNCHER, &["x"]).map(|call| call.program), None);
        let name = |words| call("bash", words).unwrap().task_name();
        assert_eq!(
            name(&["bash", "--task=", "-c", "x"]),
            None,
            "as make's $(shell) has it, outside of a target"
        );
        assert_eq!(name(&["bash", "--task=all", "-c", "x"]), Some("all".into()));
        assert_eq!(name(&["bash", "x.sh", "--task=all", "-c"]), None);
    }
}
