//! `gpu-track`, the companion command: a subcommand for each thing that can be done with runs and their reports. A subcommand is a
//! module here, a variant of [`Subcommand`] and a line in [`serve`].
//!
//! The arguments of `run` and `recover` are those of gpu-track-run. The parser of this command line never sees them, so a command among
//! them stays as it is.

mod compare;
mod doctor;
mod export;
pub(crate) mod gpu_list;
mod gpus;
pub(crate) mod last;
pub(crate) mod merge;
mod metrics;
mod place;
pub(crate) mod record;
pub(crate) mod recover;
mod report;
pub(crate) mod report_files;
mod runs;
mod shell;
pub(crate) mod show;
mod study;
mod sub_track;
#[cfg(feature = "watch")]
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser};
use clap_complete::Shell;

use crate::cli::{self, PatternValues, UsageError};
use crate::console;

/// Runs commands, and shows and compares what they used: RAM, CPU, GPU RAM, GPU utilization, I/O and time.
#[derive(Debug, Parser)]
#[command(
    name = "gpu-track",
    version,
    max_term_width = 100,
    disable_help_subcommand = true,
    arg_required_else_help = true
)]
struct Arguments {
    #[command(subcommand)]
    subcommand: Option<Subcommand>,

    /// Print a completion script for SHELL
    #[arg(long, value_name = "SHELL")]
    completions: Option<Shell>,

    /// Print the man page (to read it: gpu-track --man | man -l -)
    #[arg(long)]
    man: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Subcommand {
    /// Run a command and report what its whole process tree used. It is gpu-track-run: see gpu-track run --help
    #[command(disable_help_flag = true)]
    Run(PassedOn),
    /// Show a report: the newest one that was kept, that of a file, or a table of those in a directory
    Report(report::ReportArguments),
    /// Compare what several runs used, by their reports
    Compare(compare::CompareArguments),
    /// Run several ways of doing the same work, several times each, and show what each used: a table, and which differences are sure
    Study(study::StudyArguments),
    /// Watch a run while it goes on, or a finished one: RAM, CPU, GPUs, and its process tree
    #[cfg(feature = "watch")]
    Watch(watch::WatchArguments),
    /// Leave evidence of a run that goes on, in a bundle: what it used so far, its last samples, and what the kernel says of memory
    Record(record::RecordArguments),
    /// Show what the code blocks of a program used, by the marks of gpu_tracker's SubTracker
    SubTrack(sub_track::SubTrackArguments),
    /// Show what the metrics of a program were, such as its loss: those of gpu_track.metric()
    Metrics(metrics::MetricsArguments),
    /// Write the figures of a report's tasks in a form that Snakemake's or Nextflow's readers take
    Export(export::ExportArguments),
    /// Make one report of the reports of several nodes, or of several ranks of a job
    Merge(merge::MergeArguments),
    /// Make stand-ins for bash, sh and compiler launchers, which write a report for each task of a pipeline
    Shell(shell::ShellArguments),
    /// Show the GPUs of this machine now: memory, utilization, temperature, power, and the processes on them
    Gpus(gpus::GpusArguments),
    /// Say what a run can see on this machine: whether programs are tracked, and which figures there are
    Doctor,
    /// Write the reports of runs that were killed as a whole. It is gpu-track-run --recover
    #[command(disable_help_flag = true)]
    Recover(PassedOn),
}

/// What `gpu-track` alone prints: what people do most.
const MENU: &str = "\
gpu-track-run COMMAND             run a command, and report what its process tree used
gpu-track report [FILE|DIR]       show the newest report again, that of a file, or a table
gpu-track watch                   watch a run while it goes on
gpu-track compare A.json B.json   compare what runs used
gpu-track gpus                    show what each GPU does now, and for whom
gpu-track doctor                  say what this machine lets a run see

gpu-track --help lists all subcommands.
";

/// Arguments of gpu-track-run.
#[derive(Debug, Args)]
struct PassedOn {
    /// Options and words as those of gpu-track-run
    #[arg(value_name = "ARG", trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// Does what a command line of gpu-track asks for, whose first word is the program's name. Returns the exit status.
///
/// # Errors
/// If the command line can't be used.
pub(crate) fn serve(args: Vec<OsString>) -> Result<ExitCode, UsageError> {
    let args = gpus::with_long_options(asking_for_help(args));
    if let Some(line) = passed_on(&args) {
        return cli::parse(line, &PatternValues::here()).and_then(crate::serve);
    }
    // For a message: a subcommand can have subcommands of its own, as sub-track has.
    let after = args.get(1).map_or(String::new(), |word| format!(" {}", word.to_string_lossy()));
    let arguments = match Arguments::try_parse_from(&args) {
        Ok(arguments) => arguments,
        Err(error) if !error.use_stderr() => return Ok(console::print(&error.to_string())),
        Err(error)
            if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand && after.is_empty() =>
        {
            return Ok(console::print(MENU));
        }
        Err(error) if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let problem = format_args!("a subcommand is missing: gpu-track{after} --help lists them");
            return Err(UsageError::new(problem));
        }
        Err(error) => return Err(error.into()),
    };
    if let Some(shell) = arguments.completions {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut Arguments::command(), "gpu-track", &mut script);
        return Ok(console::print(&String::from_utf8_lossy(&script)));
    }
    if arguments.man {
        return Ok(console::print(&cli::companion_page(Arguments::command())));
    }
    match arguments.subcommand {
        Some(Subcommand::Report(arguments)) => report::serve(arguments),
        Some(Subcommand::Compare(arguments)) => compare::serve(&arguments),
        Some(Subcommand::Study(arguments)) => study::serve(arguments),
        #[cfg(feature = "watch")]
        Some(Subcommand::Watch(arguments)) => watch::serve(&arguments),
        Some(Subcommand::Record(arguments)) => record::serve(&arguments),
        Some(Subcommand::SubTrack(arguments)) => sub_track::serve(arguments, &args),
        Some(Subcommand::Metrics(arguments)) => metrics::serve(&arguments),
        Some(Subcommand::Export(arguments)) => export::serve(&arguments),
        Some(Subcommand::Merge(arguments)) => merge::serve(arguments),
        Some(Subcommand::Shell(arguments)) => Ok(shell::serve(&arguments)),
        Some(Subcommand::Gpus(arguments)) => gpus::serve(arguments),
        Some(Subcommand::Doctor) => Ok(doctor::serve()),
        // Run and Recover never come here: they were passed on.
        Some(Subcommand::Run(_) | Subcommand::Recover(_)) | None => {
            Err(UsageError::new("a subcommand is missing: gpu-track --help lists them"))
        }
    }
}

/// Turns `gpu-track help SUBCOMMAND` into `gpu-track SUBCOMMAND --help`. Other command lines stay as they are.
fn asking_for_help(mut args: Vec<OsString>) -> Vec<OsString> {
    if args.get(1).is_some_and(|word| word == "help") {
        args.remove(1);
        let end = args.iter().position(|word| word == "--").unwrap_or(args.len());
        args.insert(end, "--help".into());
    }
    args
}

/// The command line of gpu-track-run that `gpu-track run` or `gpu-track recover` stands for. `None`: it is another
/// subcommand.
fn passed_on(args: &[OsString]) -> Option<Vec<OsString>> {
    let option = match args.get(1)?.to_str()? {
        "run" => None,
        "recover" => Some(OsString::from("--recover")),
        _ => return None,
    };
    let mut line = vec![OsString::from("gpu-track-run")];
    line.extend(option);
    line.extend(args.iter().skip(2).cloned());
    Some(line)
}

#[cfg(test)]
mod tests {
    use clap::builder::ValueParser;
    use clap::{Arg, Command, ValueHint};

    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(Into::into).collect()
    }

    #[test]
    fn run_and_recover_are_gpu_track_runs_own_lines() {
        assert_eq!(
            passed_on(&words("gpu-track run -q -- a --help")),
            Some(words("gpu-track-run -q -- a --help"))
        );
        assert_eq!(
            passed_on(&words("gpu-track recover -f json")),
            Some(words("gpu-track-run --recover -f json"))
        );
        assert_eq!(passed_on(&words("gpu-track report run")), None);
        assert_eq!(passed_on(&words("gpu-track")), None);
    }

    #[test]
    fn help_of_a_subcommand_is_asked_for_in_two_ways() {
        for (line, asked) in [
            ("gpu-track help report", "gpu-track report --help"),
            ("gpu-track help sub-track analyze", "gpu-track sub-track analyze --help"),
            ("gpu-track help", "gpu-track --help"),
            ("gpu-track help run -- a", "gpu-track run --help -- a"),
            ("gpu-track report help", "gpu-track report help"),
        ] {
            assert_eq!(asking_for_help(words(line)), words(asked));
        }
    }

    #[test]
    fn line_without_a_subcommand_and_an_unknown_one_are_refused_in_one_line() {
        for (line, problem) in [
            ("gpu-track sub-track", "a subcommand is missing: gpu-track sub-track --help lists them"),
            ("gpu-track sub-track analyze --stf=x", "--tf <FILE> is missing: --help says more"),
            ("gpu-track reprot", "\"reprot\" is no subcommand: did you mean report?"),
            ("gpu-track gpus --every 0", "--every: \"0\" is not allowed: a time from 0.001 s"),
        ] {
            let error = serve(words(line)).unwrap_err().to_string();
            assert!(error.starts_with(problem) && error.lines().count() == 1, "{line}: {error}");
        }
    }

    /// The options and arguments of a command and its subcommands that name files, each after the words before it.
    fn that_name_files(command: &Command, before: &str) -> Vec<String> {
        let is_path = |arg: &&Arg| {
            let hints =
                [ValueHint::FilePath, ValueHint::AnyPath, ValueHint::DirPath, ValueHint::ExecutablePath];
            let is_hinted = hints.contains(&arg.get_value_hint());
            // A hidden one is of this program's own processes and tests.
            !arg.is_hide_set()
                && (is_hinted || arg.get_value_parser().type_id() == ValueParser::path_buf().type_id())
        };
        let name = |arg: &Arg| match (arg.get_long(), arg.get_short()) {
            (Some(long), _) => format!("{before} --{long}"),
            (None, Some(short)) => format!("{before} -{short}"),
            (None, None) => format!("{before} {}", arg.get_value_names().unwrap_or_default().join(" ")),
        };
        let own = command.get_arguments().filter(is_path).map(name);
        let of_subcommands = command.get_subcommands().flat_map(|subcommand| {
            that_name_files(subcommand, &format!("{before} {}", subcommand.get_name()))
        });
        own.chain(of_subcommands).collect()
    }

    // Requirement: FAULT-20
    #[test]
    fn each_option_that_names_a_file_is_tested_with_any_kind_of_file() {
        let tested = include_str!("../../../tests/faults/given_files.rs");
        let of_run = that_name_files(&cli::description(), "gpu-track-run");
        let all = of_run.into_iter().chain(that_name_files(&Arguments::command(), "gpu-track"));
        let missing: Vec<_> = all.filter(|name| !tested.contains(&format!("\"{name}\""))).collect();
        assert_eq!(missing, [""; 0], "it needs a row in the test, which says whether it is read");
    }

    #[test]
    fn description_of_the_options_is_sound() {
        Arguments::command().debug_assert();
    }
}
