//! `gpu-track record`: a bundle of evidence of a run that goes on. It only reads what the run has in shared memory.

use std::env;
use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, ValueHint};
use gpu_track_abi::ENV_SESSION;
use gpu_track_collector::bundle::{Asked, make_directory};
use gpu_track_collector::kept::directory::resolve_or_create;
use gpu_track_collector::model::config::Bundles;
use gpu_track_collector::{ProcRoot, SoFar, so_far, was_killed};

use super::runs::{self, segment_of};
use crate::cli::{UsageError, bundles};
use crate::console;
use crate::keep;
use crate::process::signals;

/// Maximum number of bytes of the context, and of the metadata.
const MOST_BYTES: usize = 64 << 10;
/// The directory of bundles in that of the kept reports.
const DIRECTORY: &str = "bundles";

/// The arguments of `gpu-track record`.
#[derive(Debug, Args)]
pub(super) struct RecordArguments {
    /// The run: the pid of its gpu-track-run, or its live file [default: the run that this command is in, else the only one of this
    /// user]
    #[arg(value_name = "RUN", value_hint = ValueHint::AnyPath)]
    run: Option<PathBuf>,

    /// Make it in directory DIR, with keep and max as for gpu-track-run --record [default: that of the run's --record, else
    /// $XDG_STATE_HOME/gpu-track/bundles]
    #[arg(long, value_name = "DIR[,keep=N][,max=BYTES]", value_hint = ValueHint::DirPath,
          value_parser = OsStringValueParser::new().try_map(|given| bundles(&given)))]
    to: Option<Bundles>,

    /// What the program does, for the manifest: at most 64 kB
    #[arg(long, value_name = "TEXT")]
    context: Option<String>,

    /// Anything else for the manifest, as JSON of at most 64 kB; - reads it from stdin
    #[arg(long, value_name = "JSON", allow_hyphen_values = true)]
    metadata: Option<String>,

    /// Directory of the runs' files, for tests
    #[arg(long, value_name = "DIR", default_value = "/dev/shm", hide = true)]
    session_dir: PathBuf,
}

/// Makes a bundle, and prints its path.
///
/// # Errors
/// If there is no such run, there are several and none is named, or a value is not allowed.
pub(super) fn serve(arguments: &RecordArguments) -> Result<ExitCode, UsageError> {
    // A write beyond a limit of file sizes (`ulimit -f`) raises SIGXFSZ, which would end this program. Where the signal is ignored,
    // the write fails with EFBIG.
    signals::set_ignored(libc::SIGXFSZ, true);
    let asked = asked(arguments)?;
    let own_run = match arguments.run {
        None => innermost(&env::var_os(ENV_SESSION).unwrap_or_default()),
        Some(_) => None,
    };
    let segment = match own_run {
        Some(segment) => segment,
        None => chosen(arguments)?,
    };
    let made = match so_far(&segment, &ProcRoot::default()) {
        Ok(run) => bundle_of(&run, arguments.to.as_ref(), &asked)?,
        Err(reason) => Err(format!("cannot record {}: {reason}", segment.display())),
    };
    Ok(match made {
        Ok(path) => console::print(&format!("{}\n", path.display())),
        Err(problem) => console::failure(problem),
    })
}

/// Makes the bundle where `to` says, else where the run's `--record` says, else in the user's own directory. Returns its path. The
/// inner error says why the bundle can't be written, in a line for the user.
///
/// # Errors
/// If nothing says where.
fn bundle_of(
    run: &SoFar,
    to: Option<&Bundles>,
    asked: &Asked,
) -> Result<Result<PathBuf, String>, UsageError> {
    let bundles = match (to, run.bundles()) {
        // That of the run was made at its start: a link that appeared in its path since is not followed.
        (None, Some(of_run)) => Ok(of_run.clone()),
        (Some(to), _) => in_made(to.clone(), make_directory),
        // A variable of the environment names this directory, which can be another user's.
        (None, None) => in_made(bundles_of_user()?, |own| resolve_or_create(own).map_err(io::Error::other)),
    };
    Ok(bundles.and_then(|bundles| {
        run.write_bundle(&bundles, asked).map_err(|error| cannot_write(&bundles.directory, &error))
    }))
}

/// Makes the directory of these bundles. `make` makes it, and returns its path without links.
fn in_made(bundles: Bundles, make: impl FnOnce(&Path) -> io::Result<PathBuf>) -> Result<Bundles, String> {
    let directory = make(&bundles.directory).map_err(|error| cannot_write(&bundles.directory, &error))?;
    Ok(Bundles { directory, ..bundles })
}

/// Makes the line for the user that a bundle can't be written.
fn cannot_write(directory: &Path, error: &io::Error) -> String {
    format!("cannot write a bundle to {}: {error}", directory.display())
}

/// The directory of this user's bundles, which is in that of the kept reports.
///
/// # Errors
/// If neither XDG_STATE_HOME nor HOME names a directory.
fn bundles_of_user() -> Result<Bundles, UsageError> {
    let keep = keep::of_user(&keep::own_variable).ok_or_else(|| {
        UsageError::new("--to DIR is missing: neither XDG_STATE_HOME nor HOME names a directory")
    })?;
    let directory = keep.directory.join(DIRECTORY);
    bundles(directory.as_os_str()).map_err(|problem| UsageError::of_option("--to", problem))
}

/// What the user wants the manifest to have: the context and the metadata.
///
/// # Errors
/// If one of them is too long, the metadata is no JSON, or stdin can't be read.
fn asked(arguments: &RecordArguments) -> Result<Asked, UsageError> {
    let context = arguments.context.clone();
    if context.as_ref().is_some_and(|context| context.len() > MOST_BYTES) {
        return Err(UsageError::of_option("--context", too_long()));
    }
    let metadata = arguments.metadata.as_deref().map(|given| {
        let text = if given == "-" { from_stdin()? } else { given.to_owned() };
        if text.len() > MOST_BYTES {
            return Err(too_long());
        }
        serde_json::from_str(&text).map_err(|error| format!("this is no JSON: {error}"))
    });
    let metadata = metadata.transpose().map_err(|problem| UsageError::of_option("--metadata", problem))?;
    Ok(Asked { context, metadata })
}

fn too_long() -> String {
    format!("it has more than {MOST_BYTES} bytes")
}

/// Reads stdin, up to one byte more than [`MOST_BYTES`], by which the caller sees that it is too long.
fn from_stdin() -> Result<String, String> {
    let mut text = String::new();
    let read = std::io::stdin().take(MOST_BYTES as u64 + 1).read_to_string(&mut text);
    read.map(|_| text).map_err(|error| format!("stdin can't be read: {error}"))
}

/// The last of a list of segments whose file is there: that of the innermost run. `None`: there is none. `sessions`: the
/// segments of the runs around this process, separated by `:`, the outermost first.
pub(crate) fn innermost(sessions: &OsStr) -> Option<PathBuf> {
    let paths = sessions.as_bytes().split(|byte| *byte == b':').filter(|path| !path.is_empty());
    let paths: Vec<PathBuf> = paths.map(|path| OsStr::from_bytes(path).into()).collect();
    paths.into_iter().rev().find(|path| path.exists())
}

/// The segment of the run that the user names, or of the only one that goes on. If only killed runs are there, it is that of
/// the first: [`so_far`] refuses it, and says that it was killed.
///
/// # Errors
/// If there is no such run, or there are several and none is named.
fn chosen(arguments: &RecordArguments) -> Result<PathBuf, UsageError> {
    let uid = rustix::process::getuid().as_raw();
    let all = runs::all(&arguments.session_dir, uid);
    let find_hidden = || runs::hidden(Path::new("/proc"), uid, &all);
    let (killed, going_on): (Vec<_>, Vec<_>) =
        all.iter().partition(|found| was_killed(&segment_of(&found.path)));
    let live = match (&arguments.run, &going_on[..], &killed[..]) {
        (Some(run), ..) => runs::named(run, &all, &find_hidden)?,
        (None, [only], _) | (None, [], [only, ..]) => only.path.clone(),
        (None, [], []) => return Err(runs::no_run(&arguments.session_dir, &find_hidden())),
        (None, ..) => {
            return Err(UsageError::new(
                "several runs go on: name one by its pid; gpu-track watch --list shows them",
            ));
        }
    };
    Ok(segment_of(&live))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(context: Option<&str>, metadata: Option<&str>) -> RecordArguments {
        RecordArguments {
            run: None,
            to: None,
            context: context.map(str::to_owned),
            metadata: metadata.map(str::to_owned),
            session_dir: PathBuf::new(),
        }
    }

    // Requirement: RECORD-7
    #[test]
    fn context_and_metadata_are_bounded_and_metadata_is_json() {
        let given = asked(&arguments(Some("step 7"), Some("{\"epoch\": 3}"))).unwrap();
        assert_eq!(
            (given.context.as_deref(), &given.metadata.unwrap()["epoch"]),
            (Some("step 7"), &3.into())
        );
        let long = "x".repeat(MOST_BYTES + 1);
        for (context, metadata) in
            [(Some(&*long), None), (None, Some("{")), (None, Some(&*format!("\"{long}\"")))]
        {
            let error = asked(&arguments(context, metadata)).unwrap_err().to_string();
            assert!(error.starts_with("--") && error.lines().count() == 1, "{error}");
        }
    }

    // Requirement: RECORD-5
    #[test]
    fn innermost_run_that_is_there_is_found() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        std::fs::write(path("outer"), "").unwrap();
        std::fs::write(path("inner"), "").unwrap();
        let sessions =
            ["outer", "inner", "over"].map(|name| path(name).into_os_string()).join(OsStr::new(":"));
        assert_eq!(innermost(&sessions), Some(path("inner")));
        assert_eq!(innermost(OsStr::new("")), None);
        assert_eq!(segment_of(&path("inner.live")), path("inner"));
    }

    // Requirement: RECORD-5
    #[test]
    fn only_run_that_goes_on_is_chosen_beside_ones_that_were_killed() {
        let directory = tempfile::tempdir().unwrap();
        let uid = rustix::process::geteuid().as_raw();
        let given = RecordArguments { session_dir: directory.path().to_owned(), ..arguments(None, None) };
        let chosen = || chosen(&given);
        let lock = |state: &std::fs::File| {
            rustix::fs::flock(state, rustix::fs::FlockOperation::NonBlockingLockShared).unwrap();
        };
        let session = |pid: u32| {
            let segment = directory.path().join(format!("gpu-track.{uid}.{pid}.a"));
            std::fs::write(segment.with_extension("a.live"), "").unwrap();
            let state = std::fs::File::create(segment.with_extension("a.state")).unwrap();
            (segment, state)
        };
        assert!(chosen().is_err());
        let (killed, _unlocked) = session(1);
        assert_eq!(chosen().unwrap(), killed);
        let [(going_on, state), (_, other_state)] = [2, 3].map(session);
        lock(&state);
        assert_eq!(chosen().unwrap(), going_on);
        lock(&other_state);
        assert!(chosen().unwrap_err().to_string().contains("several runs go on"));
    }
}
