//! `gpu-track shell`: makes the links by which this program [stands in](crate::stand_in) for a shell or before a compiler.

use std::env;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf, absolute};
use std::process::{self, ExitCode};

use clap::{Args, ValueHint};
use gpu_track_collector::safe_path::User;

use crate::console;
use crate::stand_in::{NAMES, REPORTS};

/// The section of `--help` after the options.
const AFTER_HELP: &str = "\
Recipes:
  PATH=DIR:$PATH snakemake
  make SHELL=DIR/sh .SHELLFLAGS='--task=\"$@\" -c'
  cmake -DCMAKE_C_COMPILER_LAUNCHER=DIR/compiler-launcher
  PARALLEL_SHELL=DIR/bash parallel
  process.shell = ['DIR/bash', '-ue']     (Nextflow)
  DIR/sh --task=NAME -c COMMAND

gpu-track report REPORTS shows a line for each task.";

/// The arguments of `gpu-track shell`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct ShellArguments {
    /// Make bash, sh and compiler-launcher in directory DIR, which is made if it is missing
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    install: PathBuf,

    /// Directory of the reports, which is made if it is missing [default: reports in that of --install]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    reports: Option<PathBuf>,
}

/// Makes the links, and prints where they are.
pub(super) fn serve(arguments: &ShellArguments) -> ExitCode {
    let program = env::current_exe().map_err(|error| format!("this program is not found: {error}"));
    match program.and_then(|program| install(arguments, &program)) {
        Ok((directory, reports)) => console::print(&format!(
            "{}: {}\nreports: {}\n",
            directory.display(),
            NAMES.join(", "),
            reports.display()
        )),
        Err(problem) => console::failure(problem),
    }
}

/// Makes the links to `program`, and the directories. Returns the directory of the links and that of the reports. The error is a line for the user.
fn install(arguments: &ShellArguments, program: &Path) -> Result<(PathBuf, PathBuf), String> {
    let at = |path: &Path| {
        let path = path.to_owned();
        move |error: io::Error| format!("cannot make \"{}\": {error}", path.display())
    };
    let whole = |path: &Path| absolute(path).map_err(at(path));
    let directory = whole(&arguments.install)?;
    let reports = directory.join(REPORTS);
    let given = arguments.reports.as_deref().map(whole).transpose()?.filter(|given| *given != reports);
    // All that could be refused comes before the first change.
    for name in NAMES {
        let path = directory.join(name);
        if !may_replace(&path, program) {
            return Err(format!(
                "\"{}\" is there, and no link to {}: choose another directory",
                path.display(),
                program.display()
            ));
        }
    }
    if given.is_some() && reports.is_dir() && !reports.is_symlink() {
        return Err(format!(
            "\"{}\" is a directory already: leave out --reports, or remove it",
            reports.display()
        ));
    }
    for directory in [&directory, given.as_ref().unwrap_or(&reports)] {
        // What root executes and where it writes must not be for another user to choose.
        let made = if User::this().is_root() {
            User::this().resolve_or_create(directory, 0o755).map(drop).map_err(|error| error.to_string())
        } else {
            fs::create_dir_all(directory).map_err(|error| error.to_string())
        };
        made.map_err(|error| format!("cannot make \"{}\": {error}", directory.display()))?;
    }
    if let Some(given) = &given {
        link(given, &reports).map_err(at(&reports))?;
    }
    for name in NAMES {
        let path = directory.join(name);
        link(program, &path).map_err(at(&path))?;
    }
    Ok((directory, given.unwrap_or(reports)))
}

/// Whether there is nothing at this path, or a link to a file with the name of `program`, perhaps another version of it.
fn may_replace(path: &Path, program: &Path) -> bool {
    match fs::read_link(path) {
        Ok(target) => target.file_name() == program.file_name(),
        Err(error) => matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory),
    }
}

/// Makes a link, in place of one that is there. A process that uses that one meanwhile finds one of both.
fn link(target: &Path, path: &Path) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(format!(".{}", process::id()));
    let new = PathBuf::from(new);
    symlink(target, &new)?;
    fs::rename(&new, path).inspect_err(|_| drop(fs::remove_file(&new)))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: TASK-17
    #[test]
    fn links_are_made_again_and_nothing_else_is_replaced() {
        let top = tempfile::tempdir().unwrap();
        let path = |name: &str| top.path().join(name);
        let install = |program: &str, directory: &str, reports: Option<&str>| {
            let arguments = ShellArguments { install: path(directory), reports: reports.map(path) };
            super::install(&arguments, &path(program))
        };
        assert_eq!(install("old/program", "bin", Some("a/b")), Ok((path("bin"), path("a/b"))));
        assert_eq!(install("new/program", "bin", Some("c")), Ok((path("bin"), path("c"))));
        for name in NAMES {
            assert_eq!(fs::read_link(path("bin").join(name)).unwrap(), path("new/program"));
        }
        assert_eq!(fs::read_link(path("bin/reports")).unwrap(), path("c"));
        assert_eq!(fs::read_dir(path("bin")).unwrap().count(), NAMES.len() + 1);
        // Without --reports, what is there stays.
        assert_eq!(install("new/program", "bin", None), Ok((path("bin"), path("bin/reports"))));
        assert_eq!(fs::read_link(path("bin/reports")).unwrap(), path("c"));

        let problem = install("other", "bin", None).unwrap_err();
        assert!(problem.contains("is there, and no link to"), "{problem}");
        fs::create_dir(path("own")).unwrap();
        fs::write(path("own/sh"), "mine").unwrap();
        assert!(install("program", "own", None).is_err());
        assert_eq!(fs::read_dir(path("own")).unwrap().count(), 1, "nothing was made before it was refused");
        assert_eq!(install("program", "plain", None), Ok((path("plain"), path("plain/reports"))));
        assert!(install("program", "plain", Some("c")).is_err());
        fs::write(path("file"), "").unwrap();
        assert!(install("program", "file", None).unwrap_err().starts_with("cannot make \""));
    }
}
