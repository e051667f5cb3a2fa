//! The process between the launcher and a batch system's program that starts tasks, such as srun. It ends when all that it has started has
//! ended: otherwise the launcher would inherit what that program leaves behind, as an orphan of the run.
//!
//! When its input ends, the run is over. What has the same input sees that, too. Otherwise it gets a SIGINT, which it hands on to its tasks.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use gpu_track_collector::safe_path::User;
use gpu_track_collector::{given_file, own_program};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Signal, WaitOptions, getpid, kill_current_process_group, set_child_subreaper, wait};

use super::batch_job::{PLACE, System};
use crate::process::signals;
use crate::process::spawn::InheritedState;
use crate::trusted;

/// The name of this process. Its arguments are the segment, by which it is known as a helper of the run, and those of [`Call`].
pub(crate) const STARTER: &str = "gpu-track-agents";
/// The variable with the path of Slurm's configuration.
const CONF: &str = "SLURM_CONF";
/// Stands for arguments that there are not.
const NONE: &str = "-";
/// How what was started is told that the run is over.
const ENDS: [&str; 2] = ["by-input", "by-signal"];
/// After this time, what still has not ended is killed.
const GRACE: Duration = Duration::from_secs(30);
/// How long a batch system may take to count the nodes of a job.
const PATIENCE: Duration = Duration::from_secs(2);
/// Maximum number of bytes of a note, which has one line with a path.
const MOST_OF_NOTE: u64 = 1 << 16;
/// How often notes are read: at first, and at last, where a node does not answer.
const NOTE_INTERVALS: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(1)];

/// What is to be started.
pub(super) struct Call<'a> {
    pub(super) system: &'a System,
    pub(super) segment: &'a Path,
    /// What is started gets a SIGINT at the end of the run.
    pub(super) ends_by_signal: bool,
    /// The file into which each task writes what it says, with [`PLACE`] in its name.
    pub(super) note: Option<PathBuf>,
    /// There is a command for each of these, which stands in place of [`PLACE`]. Empty: there is one command.
    pub(super) places: Vec<&'a str>,
    pub(super) words: Vec<String>,
}

/// A starter at work.
pub(super) struct Starter {
    pub(super) pid: u32,
    /// The input of what it has started.
    pub(super) input: PipeWriter,
    /// What that has written.
    pub(super) output: PipeReader,
}

impl Call<'_> {
    /// Starts the process that runs the batch system's program. Its arguments are what [`serve_starter`] takes apart, in that order.
    /// `inherited`: the signal state that the system's program gets back.
    ///
    /// # Errors
    /// If that is not possible.
    pub(super) fn start(&self, inherited: InheritedState) -> io::Result<Starter> {
        let (for_program, input) = io::pipe()?;
        let (output, from_program) = io::pipe()?;
        let user = User::this();
        let places = if self.places.is_empty() { NONE.to_owned() } else { self.places.join(" ") };
        let mut starter = own_program::command(STARTER);
        starter.arg(self.segment).arg(ENDS[usize::from(self.ends_by_signal)]);
        starter.arg(self.note.as_deref().unwrap_or(Path::new(NONE))).arg(places);
        starter.arg(trusted::program(self.system.program, user)?).args(&self.words);
        let is_root = user.is_root();
        for (name, _) in env::vars_os().filter(|(name, _)| self.system.hides(name, is_root)) {
            starter.env_remove(name);
        }
        // If root's srun must not read the named configuration, it reads the system's own.
        if let Some(named) = env::var_os(CONF) {
            match configuration(Path::new(&named), user) {
                Some(path) => starter.env(CONF, path),
                None => starter.env_remove(CONF),
            };
        }
        starter.stdin(for_program).stdout(from_program.try_clone()?).stderr(from_program);
        // SAFETY: what the closure calls is async-signal-safe.
        unsafe {
            starter.pre_exec(move || {
                // In a session of its own, the terminal's Ctrl-C does not reach it.
                libc::setsid();
                inherited.restore_signals();
                Ok(())
            });
        }
        Ok(Starter { pid: starter.spawn()?.id(), input, output })
    }
}

/// Has a batch system count the nodes of the job, if its environment does not tell how many there are. `None`: it does.
///
/// # Errors
/// If that is not possible.
pub(super) fn count(
    system: &System,
    segment: &Path,
    inherited: InheritedState,
) -> io::Result<Option<Starter>> {
    let Some(words) = system.counting() else { return Ok(None) };
    let words = words.map(str::to_owned).to_vec();
    let call = Call { system, segment, ends_by_signal: true, note: None, places: Vec::new(), words };
    call.start(inherited).map(Some)
}

impl Starter {
    /// Reads the number that the program prints, for [`PATIENCE`] at most. Ends the program then.
    ///
    /// # Errors
    /// If it prints something else, or nothing.
    pub(super) fn number(mut self) -> io::Result<usize> {
        let until = Instant::now() + PATIENCE;
        let mut text = Vec::new();
        while !text.ends_with(b"\n") {
            let left = until.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
            let mut bytes = [0; 256];
            let is_readable = poll(&mut [PollFd::new(&self.output, PollFlags::IN)], Some(&timeout))? > 0;
            let length = if is_readable { self.output.read(&mut bytes)? } else { 0 };
            text.extend(&bytes[..length]);
            if length == 0 {
                break;
            }
        }
        let text = String::from_utf8_lossy(&text);
        let not_a_number = || format!("the number of nodes is not known: {}", text.trim());
        text.trim().parse().map_err(|_| io::Error::other(not_a_number()))
    }
}

/// The path of Slurm's configuration that srun gets. srun loads the plug-ins that it names, so root's srun gets only one that no
/// other user can replace. Its name stays, even if it is a link, because Slurm's other files are beside it. `None`: another user can
/// replace it.
fn configuration(named: &Path, user: User) -> Option<PathBuf> {
    trusted::path(named.as_os_str(), user).ok()?;
    let directory = trusted::path(named.parent()?.as_os_str(), user).ok()?;
    Some(Path::new(&directory).join(named.file_name()?))
}

/// Starts what the arguments say, and ends when all that it has started has ended. Returns the exit status. `None`: these are not the
/// arguments of a starter.
pub(crate) fn serve_starter(args: &[OsString]) -> Option<i32> {
    let [_segment, end, note, places, program, words @ ..] = args else { return None };
    let (end, places) = (end.to_str()?, places.to_str()?);
    let ends_by_signal = ENDS.iter().position(|known| *known == end)? == 1;
    set_child_subreaper(Some(getpid())).ok();
    // Where the launcher has been killed, nobody reads what is written here. This process keeps the pipe whole: otherwise SIGPIPE would end
    // Torque's pbsdsh, which writes a line before it hands a signal on.
    let _reader = File::open("/proc/self/fd/1");
    let is_none = |word: &OsStr| word == NONE;
    let filled = |word: &OsString, place: &str| word.to_string_lossy().replace(PLACE, place);
    let mut notes = Vec::new();
    for place in places.split(' ') {
        if !is_none(note) {
            notes.extend(Note::make(filled(note, place).into()));
        }
        if let Err(error) = Command::new(program).args(words.iter().map(|word| filled(word, place))).spawn() {
            // As the program would say it: the launcher reads this.
            let name = Path::new(program).file_name().unwrap_or_default().to_string_lossy();
            let _ = writeln!(io::stderr(), "{name}: error: {error}");
            break;
        }
    }
    // It sends the first to its process group, and a batch system sends the others to all processes of a job. What this process has started
    // would become a child of the launcher, and count as one of the run's.
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        signals::set_ignored(signal, true);
    }
    let notes = Arc::new(Mutex::new(notes));
    let watched = Arc::clone(&notes);
    // Without a thread, what follows the end of the run can't be done: what was started ends with its own input then.
    let _ = thread::Builder::new().spawn(move || watch(ends_by_signal, &watched));
    while !matches!(wait(WaitOptions::empty()), Err(Errno::CHILD)) {}
    copy(&notes);
    Some(0)
}

/// Waits for the end of the run, and copies what tasks say meanwhile. Then ends what was started.
fn watch(ends_by_signal: bool, notes: &Mutex<Vec<Note>>) {
    let [mut interval, most] = NOTE_INTERVALS;
    let stdin = io::stdin();
    loop {
        let is_complete = copy(notes);
        let timeout = Timespec::try_from(interval).unwrap_or_default();
        interval = (interval + interval / 8).min(most);
        // The end of a pipe is told without being asked for. The input itself is for what was started.
        let mut fds = [PollFd::new(&stdin, PollFlags::empty())];
        let polled = poll(&mut fds, Some(&timeout).filter(|_| !is_complete));
        let has_ended = fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR);
        if has_ended || polled.is_err_and(|error| error != Errno::INTR) {
            break;
        }
    }
    if ends_by_signal {
        let _ = kill_current_process_group(Signal::INT);
    }
    thread::sleep(GRACE);
    let _ = kill_current_process_group(Signal::KILL);
}

/// A file into which a task writes a line, because its output goes into that of the user's job.
struct Note {
    path: PathBuf,
    is_read: bool,
}

impl Note {
    /// Makes the file, so that a client of a network file system on the task's node sees its name at once. `None`: that is not possible, so
    /// the task is not heard.
    fn make(path: PathBuf) -> Option<Self> {
        File::create_new(&path).ok()?;
        Some(Self { path, is_read: false })
    }
}

/// Copies the lines that tasks have written to the output of this process. Returns whether all have written theirs.
fn copy(notes: &Mutex<Vec<Note>>) -> bool {
    let mut notes = notes.lock().unwrap_or_else(PoisonError::into_inner);
    for note in notes.iter_mut().filter(|note| !note.is_read) {
        // A file is opened again, since that asks the server of a network file system.
        if let Ok(text) = given_file::read_text(&note.path, MOST_OF_NOTE)
            && text.ends_with('\n')
        {
            note.is_read =
                io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()).is_ok();
        }
    }
    notes.iter().all(|note| note.is_read)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: FAULT-15
    #[test]
    fn srun_of_root_gets_no_configuration_of_another_user() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path().canonicalize().unwrap();
        let conf = top.join("real/slurm.conf");
        std::fs::create_dir(top.join("real")).unwrap();
        std::os::unix::fs::symlink("real", top.join("link")).unwrap();
        std::fs::write(&conf, "").unwrap();
        let named = top.join("link/slurm.conf");
        for mode in [0o644, 0o666] {
            std::fs::set_permissions(&conf, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
            // A test of another user has a file of that user.
            let may = mode == 0o644 && User::this().uid() == 0;
            assert_eq!(configuration(&named, User::new(0, 0)), may.then(|| conf.clone()), "{mode:o}");
            assert_eq!(configuration(&named, User::new(1000, 0)), Some(named.clone()));
        }
    }
}
