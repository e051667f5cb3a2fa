//! `gpu-track watch`: a run while it goes on, by its live file, or a finished one, by its tracking file. It only reads.
//!
//! A source ([`live`], [`replay`]) gives readings ([`frame`]). The [`model`] takes in readings and keys. The [`view`] draws the
//! model onto a buffer, which is a terminal's ([`interactive`]) or becomes text (`--once`).

mod frame;
mod gpus;
mod history;
mod interactive;
mod list;
mod live;
mod model;
mod output;
mod peaks;
mod replay;
mod summary;
mod terminal;
mod tree;
mod view;

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueHint};
use gpu_track_collector::clock;

use self::frame::Reading;
use self::interactive::Source;
use self::list::list;
use self::live::Live;
use self::model::Model;
use self::replay::Replay;
use super::runs::{self, no_run};
use crate::cli::{self, UsageError};
use crate::console::{self, message};

/// Columns of the text that `--once` prints.
const COLUMNS: u16 = 80;

/// The arguments of `gpu-track watch`.
#[derive(Debug, Args)]
pub(super) struct WatchArguments {
    /// The run: the pid of its gpu-track-run, or its live file [default: the only one of this user]
    #[arg(value_name = "RUN", conflicts_with = "replay", value_hint = ValueHint::AnyPath)]
    run: Option<PathBuf>,

    /// List the runs of this user that go on
    #[arg(long, conflicts_with_all = ["run", "replay", "once"])]
    list: bool,

    /// Print what the view shows now as text of 80 columns, and end
    #[arg(long)]
    once: bool,

    /// Show a finished run by its tracking file FILE (.jsonl, .sqlite; .csv has no commands and processes)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    replay: Option<PathBuf>,

    /// Begin at this time after the run's start [default: its start; with --once its end]
    #[arg(long, value_name = "TIME", allow_negative_numbers = true, value_parser = |given: &str| cli::Time::Any.parse(given))]
    at: Option<Duration>,

    /// Directory of the runs' files, for tests
    #[arg(long, value_name = "DIR", default_value = "/dev/shm", hide = true)]
    session_dir: PathBuf,
}

/// Shows what the arguments name: on the terminal until the user ends it, or once as text.
///
/// # Errors
/// If there is no such run or file, the file can't be read, or there are several runs and none is named.
pub(super) fn serve(arguments: &WatchArguments) -> Result<ExitCode, UsageError> {
    if arguments.at.is_some() && arguments.replay.is_none() {
        return Err(UsageError::new("--at is a moment of a finished run: give --replay, too"));
    }
    let is_terminal = io::stdout().is_terminal() && io::stdin().is_terminal();
    let is_once = arguments.once || !is_terminal;
    let (source, model) = match &arguments.replay {
        Some(file) => replay(file, arguments, is_once)?,
        None if arguments.list => return Ok(list_runs(&arguments.session_dir)),
        None => live(arguments)?,
    };
    if is_once {
        if !arguments.once {
            message("stdin and stdout are not both a terminal, so this is what --once prints");
        }
        return Ok(console::print(&view::text(&model, COLUMNS)));
    }
    let model = Model { is_interactive: true, ..model };
    let shown = interactive::run(source, model);
    Ok(shown.unwrap_or_else(|error| console::failure(format_args!("the terminal can't be used: {error}"))))
}

/// Makes the view of a finished run by its tracking file, at the moment of `--at`. Without that, it is the start of the run, or the
/// end if the view is printed once.
///
/// # Errors
/// If the file can't be replayed.
fn replay(file: &Path, arguments: &WatchArguments, is_once: bool) -> Result<(Source, Model), UsageError> {
    let replay = Replay::read(file).map_err(|problem| UsageError::of_file("--replay", file, problem))?;
    let at_s = arguments.at.map_or(if is_once { replay.length_s() } else { 0.0 }, |at| at.as_secs_f64());
    let mut model = Model { console: console::of_stdout(), ..Model::default() };
    model.take(Reading { points: replay.points(), peaks: replay.peaks(), ..replay.at(at_s) });
    Ok((Source::Replay(Box::new(replay)), model))
}

/// Prints the runs of this user that go on, and says on stderr which of them can't be seen.
fn list_runs(session_dir: &Path) -> ExitCode {
    let uid = rustix::process::getuid().as_raw();
    let all = runs::all(session_dir, uid);
    runs::tell_hidden(&runs::hidden(Path::new("/proc"), uid, &all));
    list(&all)
}

/// Makes the view of a run that goes on: the one that is named, or the only one.
///
/// # Errors
/// If there is no such run, there are several and none is named, or its file can't be read. If there are several, they are listed.
fn live(arguments: &WatchArguments) -> Result<(Source, Model), UsageError> {
    let uid = rustix::process::getuid().as_raw();
    let all = runs::all(&arguments.session_dir, uid);
    // Runs whose live files can't be seen from here.
    let find_hidden = || runs::hidden(Path::new("/proc"), uid, &all);
    let path = match (&arguments.run, &all[..]) {
        (Some(run), _) => runs::named(run, &all, &find_hidden)?,
        (None, [only]) => only.path.clone(),
        (None, []) => return Err(no_run(&arguments.session_dir, &find_hidden())),
        (None, _) => {
            runs::tell_hidden(&find_hidden());
            list(&all);
            return Err(UsageError::new("several runs go on: name one by its pid"));
        }
    };
    let mut live = Box::new(Live::open(&path).map_err(|problem| UsageError::of_path(&path, problem))?);
    let mut model = Model { console: console::of_stdout(), ..Model::default() };
    model.take(look(&mut live));
    Ok((Source::Live(live), model))
}

/// Looks at a run now.
fn look(live: &mut Live) -> Reading {
    live.read(clock::monotonic_ns(), is_alive)
}

/// Whether a process is there.
fn is_alive(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}
