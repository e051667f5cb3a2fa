//! What the launcher itself writes to its standard streams, and what the terminal can show.

use std::env;
use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;

use gpu_track_collector::model::kernel_errors::without_numbers;
use gpu_track_collector::model::style::{Console, Output};
use gpu_track_collector::report::quote;
use gpu_track_collector::{own_stdout, write_report};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::tcgetwinsize;

use crate::name;

/// Writes one line for the user to stderr, with control characters escaped: names in it can be another user's. Errors are ignored.
/// `eprintln!` would panic if stderr cannot be written, and then the command would not run.
pub(crate) fn message(text: impl Display) {
    let _ = write_line(WARNING, text);
}

/// Writes one line for the user that says why the command does not run. Errors of writing are ignored.
pub(crate) fn error(text: impl Display) {
    let _ = write_line(ERROR, text);
}

/// Writes one line for the user if stderr takes it now. For lines that the caller can write later. The error is
/// [`io::ErrorKind::WouldBlock`] if stderr takes nothing now, such as a pipe that nobody reads, or a terminal after Ctrl-S.
pub(crate) fn message_without_waiting(text: impl Display) -> io::Result<()> {
    let stderr = io::stderr();
    let mut fds = [PollFd::new(&stderr, PollFlags::OUT)];
    match poll(&mut fds, Some(&Timespec::default()))? {
        0 => Err(io::ErrorKind::WouldBlock.into()),
        _ => write_line(WARNING, text),
    }
}

/// The lines of gpu_tracker begin with these, because Python's `logging` writes them.
const WARNING: &str = "WARNING:root:";
const ERROR: &str = "ERROR:root:";

/// Writes a line to stderr, without the numbers of kernel errors. It begins with the program's name, or with `gpu_tracker_prefix` if
/// this program was called as gpu_tracker.
fn write_line(gpu_tracker_prefix: &str, text: impl Display) -> io::Result<()> {
    let text = quote::escape(&without_numbers(&text.to_string()));
    let line = if name::is_this_gpu_tracker() {
        format!("{gpu_tracker_prefix}{text}\n")
    } else {
        format!("{}: {text}\n", name::of_program())
    };
    io::stderr().write_all(line.as_bytes())
}

/// Writes `text` to stderr as it is, as gpu_tracker does, and returns the exit status of a failure. Errors of writing are ignored.
pub(crate) fn refuse(text: &str) -> ExitCode {
    let _ = io::stderr().write_all(text.as_bytes());
    ExitCode::FAILURE
}

/// Writes `text` to stdout, and returns the exit status, as [`write`] does.
pub(crate) fn print(text: &str) -> ExitCode {
    write([(&Output::Stdout, text)])
}

/// Writes each text to its place, and returns the exit status. If a write fails, a line on stderr says so. A reader of stdout that
/// closed its end (`--help | head`) has what it wants, so that is no failure.
pub(crate) fn write<'a>(texts: impl IntoIterator<Item = (&'a Output, impl AsRef<str>)>) -> ExitCode {
    let mut status = ExitCode::SUCCESS;
    for (place, text) in texts {
        let written = match place {
            Output::Stdout => write_whole(own_stdout::writer(), text.as_ref()),
            _ => write_report(place, text.as_ref()),
        };
        if let Err(error) = written {
            status = failure(format_args!("cannot write to {place}: {error}"));
        }
    }
    status
}

/// Writes one line for the user, as [`message`] does, and returns the exit status of a failure.
pub(crate) fn failure(text: impl Display) -> ExitCode {
    message(text);
    ExitCode::FAILURE
}

/// Writes `text` to a stream, and flushes it: Rust's stdout buffers what follows the last line break.
///
/// # Errors
/// If `text` can't be written. A reader that closed its end is no error.
fn write_whole(mut stream: impl Write, text: &str) -> io::Result<()> {
    match stream.write_all(text.as_bytes()).and_then(|()| stream.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

/// Finds out what can be shown on stderr.
pub(crate) fn of_stderr() -> Console {
    of_stream(io::stderr())
}

/// Finds out what can be shown on stdout.
pub(crate) fn of_stdout() -> Console {
    of_stream(io::stdout())
}

/// Finds out what can be shown on this stream.
fn of_stream(stream: impl AsFd + IsTerminal) -> Console {
    let columns = tcgetwinsize(&stream).ok().map(|size| size.ws_col);
    console(columns, stream.is_terminal(), |name| env::var_os(name))
}

/// Whether a person may look at stderr.
pub(crate) fn is_on_terminal() -> bool {
    io::stderr().is_terminal()
}

/// Decides what can be shown on a stream. `columns`: the width of its terminal, 0 if unknown. <https://no-color.org> defines
/// NO_COLOR.
fn console(columns: Option<u16>, is_terminal: bool, env: impl Fn(&str) -> Option<OsString>) -> Console {
    let set = |name| env(name).filter(|value| !value.is_empty());
    // The first that is set counts (locale(7)).
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set).unwrap_or_default();
    let locale = locale.to_string_lossy().to_lowercase();
    let is_dumb = set("TERM").is_none_or(|term| term == "dumb");
    Console {
        columns: columns.filter(|columns| *columns > 0).unwrap_or(Console::default().columns),
        is_unicode: locale.contains("utf-8") || locale.contains("utf8"),
        has_colour: is_terminal && !is_dumb && set("NO_COLOR").is_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here(columns: Option<u16>, is_terminal: bool, env: &[(&str, &str)]) -> (u16, bool, bool) {
        let value = |name: &str| env.iter().find(|(set, _)| *set == name).map(|(_, value)| (*value).into());
        let console = console(columns, is_terminal, value);
        (console.columns, console.is_unicode, console.has_colour)
    }

    #[test]
    fn full_disk_is_an_error_and_a_closed_pipe_is_none() {
        let full = || io::LineWriter::new(std::fs::File::options().write(true).open("/dev/full").unwrap());
        for text in ["a line\n", "no line"] {
            assert_eq!(write_whole(full(), text).unwrap_err().kind(), io::ErrorKind::StorageFull);
        }
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        write_whole(writer, "a line\n").unwrap();
    }

    // Requirement: OUT-17
    #[test]
    fn terminal_and_environment_say_what_can_be_shown() {
        let xterm = ("TERM", "xterm");
        assert_eq!(here(Some(80), true, &[xterm, ("LANG", "de_DE.UTF-8")]), (80, true, true));
        assert_eq!(here(Some(80), true, &[xterm, ("NO_COLOR", "1")]), (80, false, false));
        assert_eq!(here(Some(80), true, &[xterm, ("NO_COLOR", "")]), (80, false, true));
        assert_eq!(here(Some(0), true, &[("TERM", "dumb"), ("LC_CTYPE", "C.utf8")]), (100, true, false));
        assert_eq!(here(None, false, &[xterm, ("LC_ALL", "C"), ("LANG", "C.UTF-8")]), (100, false, false));
        assert_eq!(here(None, false, &[("LC_ALL", ""), ("LANG", "C.UTF-8")]), (100, true, false));
    }
}
