//! `gpu-track study`: several ways of doing the same work, run several times each, and a table of what each used.
//!
//! The plan is written into the study's directory before the first run, and each run's report beside it. So a study that was stopped
//! can go on where it was. The table is made of the plan and the reports alone, so it can be shown at any time.

mod directory;
mod file;
mod given;
mod runner;
mod runs;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueHint};
use gpu_track_collector::report::study::{self, Plan, Study};

use crate::cli::{PatternValues, UsageError};
use crate::console::{self, message};
use crate::process::exit;
use directory::Directory;
pub(super) use directory::WARMUP;
use given::PlanArgs;

/// The directory of a study whose plan is not in a file NAME.toml.
const DEFAULT_DIRECTORY: &str = "study";

/// The arguments of `gpu-track study`.
#[derive(Debug, Args)]
pub(super) struct StudyArguments {
    /// A plan in TOML, or the directory of a study: its table is shown
    #[arg(value_name = "FILE.toml|DIR", value_hint = ValueHint::AnyPath)]
    given: Option<PathBuf>,

    /// Keep the plan, and each run's report and output, in DIR [default: the name of FILE.toml without .toml, else "study"]. A
    /// study of the same plan goes on where it was stopped. Without a plan, that of DIR goes on
    #[arg(short, long = "output", value_name = "DIR", value_hint = ValueHint::DirPath)]
    output: Option<PathBuf>,

    #[command(flatten)]
    table: TableArgs,

    /// Write nothing to stderr while runs go well
    #[arg(short, long)]
    quiet: bool,

    // Last, because its heading holds for what follows.
    #[command(flatten)]
    plan: PlanArgs,
}

/// Which runs the table counts, and how it is written.
#[derive(Debug, Args)]
struct TableArgs {
    /// Count runs whose command fails, and don't exit with 1 because of them
    #[arg(short, long)]
    ignore_failure: bool,

    /// Format of the table on stdout
    #[arg(short, long, value_name = "FORMAT", default_value = "text",
          value_parser = PossibleValuesParser::new(study::forms()))]
    format: String,

    /// Write every statistic of each quantity as text: extremes, intervals, and p
    #[arg(long, conflicts_with = "format")]
    full: bool,
}

/// Conducts a study, or only shows its table if the argument is its directory. Returns the exit status.
///
/// # Errors
/// If there is no plan, the directory has another plan or can't be used, or options exclude each other.
pub(super) fn serve(arguments: StudyArguments) -> Result<ExitCode, UsageError> {
    match arguments.given.as_deref().filter(|given| given.is_dir()) {
        Some(path) => {
            if arguments.plan.is_any() || arguments.output.is_some() {
                let problem = format!(
                    "\"{0}\" is a directory, and its table is shown: to go on with it, give -o \"{0}\"",
                    path.display()
                );
                return Err(UsageError::new(problem));
            }
            show(path, &arguments.table)
        }
        None => conduct(arguments),
    }
}

impl TableArgs {
    /// Writes the table to stdout.
    fn print(&self, study: &Study) -> ExitCode {
        console::print(&if self.full { study::full_text(study) } else { study::render(study, &self.format) })
    }
}

/// Shows the table of the study in the directory `path`, which need not be over.
///
/// # Errors
/// If there is no study in it.
fn show(path: &Path, table: &TableArgs) -> Result<ExitCode, UsageError> {
    let directory = Directory { path: path.to_owned() };
    let Some(plan) = directory.plan()? else {
        return Err(UsageError::of_path(path, "has no study.json: it is not the directory of a study"));
    };
    Ok(table.print(&study::study(&plan, &directory.runs(&plan), table.ignore_failure)))
}

/// Makes the runs that a study still needs, and shows the table of all its runs. The status is 1 if a run in the table failed (unless
/// failures are ignored), or one could not be made. If a signal ends the study, the signal ends this process, too.
///
/// # Errors
/// If there is no plan, the directory has another one or can't be used, or this is one of several ranks.
fn conduct(arguments: StudyArguments) -> Result<ExitCode, UsageError> {
    let StudyArguments { given: file, plan: mut given, output, table, quiet } = arguments;
    if let Some(rank) = PatternValues::here().rank_number {
        return Err(UsageError::new(format_args!(
            "this is rank {rank} of several: start one study, and mpirun or srun in its commands"
        )));
    }
    // Any file is read as TOML. The study's directory gets the file's name only if the file ends in .toml.
    let toml = file.as_deref().filter(|file| file.extension() == Some("toml".as_ref()));
    let default_output = toml.and_then(Path::file_stem).map_or(DEFAULT_DIRECTORY.into(), PathBuf::from);
    if let Some(file) = &file {
        given.add(file::read(file).map_err(|problem| UsageError::of_path(file, problem))?)?;
    }
    let directory = Directory { path: output.unwrap_or(default_output) };
    // The plan of a study that goes on.
    let begun = directory.plan()?;
    let plan = plan(given, begun.as_ref(), &directory)?;
    let lock = directory.prepare(&plan, begun.as_ref())?;
    if !quiet {
        message(heading(&plan, begun.is_some(), &directory));
    }
    let made = runs::make(&plan, &directory, quiet);
    // Dropped before `exit::by_signal`, which ends the process without drops.
    drop(lock);
    let unmade = made.unwrap_or_else(|signal| exit::by_signal(signal));
    // The table includes the runs that an earlier command made.
    let study = study::study(&plan, &directory.runs(&plan), table.ignore_failure);
    let printed = table.print(&study);
    let is_failed = study.failures().next().is_some() && !table.ignore_failure;
    Ok(if is_failed || unmade > 0 { ExitCode::FAILURE } else { printed })
}

/// The plan of the study to conduct: the one that the arguments make. Without variants it is the one that the study was begun with
/// (`begun`), perhaps with more runs.
///
/// # Errors
/// If there is neither, or the study was begun with another plan.
fn plan(given: PlanArgs, begun: Option<&Plan>, directory: &Directory) -> Result<Plan, UsageError> {
    let problem = |problem: String| UsageError::of_file("--output", &directory.path, problem);
    if given.has_variants() {
        let plan = given.plan(begun)?;
        let difference = begun.and_then(|begun| plan.difference(begun));
        return match difference {
            Some(difference) => Err(problem(format!(
                "has another study, {difference}: name another directory, or remove this one"
            ))),
            None => Ok(plan),
        };
    }
    match begun {
        Some(_) if given.is_any_but_runs() => Err(problem(
            "has a study, which goes on as it was planned: without variants, only --runs can be changed"
                .into(),
        )),
        Some(begun) => match given.runs {
            Some(runs) if runs < begun.runs => Err(problem(format!(
                "has a study of {} runs of each variant: --runs can only be more",
                begun.runs
            ))),
            runs => Ok(begun.clone().with_runs(runs.unwrap_or(begun.runs))),
        },
        // Without variants this fails, with a message that they are missing.
        None => given.plan(None),
    }
}

/// Makes the line for the user that says what is about to be done. `goes_on`: the study was begun before.
fn heading(plan: &Plan, goes_on: bool, directory: &Directory) -> String {
    let path = directory.path.display();
    let all = plan.order.len();
    let variants = match plan.variants.len() {
        1 => "1 variant".to_owned(),
        number => format!("{number} variants"),
    };
    let seed = plan.seed;
    let done = plan.order.iter().filter(|planned| directory.report(plan, **planned).is_some()).count();
    let progress = if goes_on { format!(", of which {done} are there") } else { String::new() };
    format!(
        "{all} runs of {variants} in random order (--seed {seed}){progress}; plan, reports and outputs are in {path}"
    )
}
