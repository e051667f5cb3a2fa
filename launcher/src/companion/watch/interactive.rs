//! The view on a terminal: waits for keys, signals and the time of the next look, and draws what changed.

use std::io;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ratatui_crossterm::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::frame::Reading;
use super::live::Live;
use super::model::{Asked, Model};
use super::replay::Replay;
use super::terminal::Screen;
use crate::process::signals;
use crate::run::wakeups::Wakeups;

/// Time between two looks at the run.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// Most keys that are obeyed before the next look at signals: a program can send keys without an end.
const MOST_KEYS: usize = 64;
/// A finished run is played in this time, seconds, or in its own length if that is shorter.
const PLAY_S: f64 = 60.0;

/// Where readings come from.
pub(super) enum Source {
    /// A run that goes on.
    Live(Box<Live>),
    /// A finished one.
    Replay(Box<Replay>),
}

impl Source {
    /// The reading for the next look, when `passed` has gone by since the last one. `None`: nothing changes by itself,
    /// because a finished run is frozen or at its end.
    fn next(&mut self, model: &Model, passed: Duration) -> Option<Reading> {
        match self {
            Self::Live(live) => Some(super::look(live)),
            Self::Replay(replay) => {
                let is_over = model.frame.at_s >= replay.length_s();
                let speed = (replay.length_s() / PLAY_S).max(1.0);
                let to_s = model.frame.at_s + passed.as_secs_f64() * speed;
                (!model.is_frozen && !is_over).then(|| replay.at(to_s))
            }
        }
    }
}

/// Shows the model until the user ends it, or a signal does.
///
/// # Errors
/// If the terminal can't be read or written.
pub(super) fn run(mut source: Source, mut model: Model) -> io::Result<ExitCode> {
    let mut watched =
        vec![libc::SIGTERM, libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGWINCH, libc::SIGCONT];
    // Where SIGTSTP is ignored, as below a shell without job control, nothing would continue this program.
    if !signals::is_ignored(libc::SIGTSTP) {
        watched.push(libc::SIGTSTP);
    }
    let watched = signals::set(&watched);
    // Signals are blocked before the terminal is taken. From then on, each comes through `wakeups`.
    let before = signals::block(&watched);
    let wakeups = Wakeups::new(watched);
    let ended_by = {
        let mut screen = Screen::take()?;
        drive(&mut source, &mut model, &wakeups, &mut screen)?
    };
    if let Some(signal) = ended_by {
        // It ends as the signal ends a program, so that a shell or a batch system sees that.
        signals::raise_default(signal);
    }
    signals::restore(&before);
    Ok(ExitCode::SUCCESS)
}

/// Draws and waits in turn, until the program is to end. Returns the signal that ends it; `None`: a key of the user does.
///
/// # Errors
/// If the terminal can't be read or written.
fn drive(
    source: &mut Source,
    model: &mut Model,
    wakeups: &Wakeups,
    screen: &mut Screen,
) -> io::Result<Option<i32>> {
    let mut next_look = Instant::now() + LOOK_INTERVAL;
    let (mut has_changed, mut has_more_keys) = (true, false);
    loop {
        let shown = show(model, wakeups, screen, &mut has_changed);
        // There is no wait if `show` has waited for a terminal that takes nothing, or has failed. Nor is there one if keys may be
        // left: the library can have read them already, and then stdin does not become readable for them.
        let is_due = !matches!(shown, Ok(true)) || has_more_keys;
        let left = if is_due { Duration::ZERO } else { next_look.saturating_duration_since(Instant::now()) };
        let is_gone = wait(wakeups, left)?;
        match obey_signals(wakeups, screen)? {
            SignalsAsk::End(signal) => return Ok(Some(signal)),
            SignalsAsk::Redraw => has_changed = true,
            SignalsAsk::Nothing => {}
        }
        if is_gone {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // An error of the terminal counts only now: a signal that comes with the terminal's end goes first.
        shown?;
        match obey_keys(source, model, &mut has_changed)? {
            KeysLeft::Quit => return Ok(None),
            left => has_more_keys = left == KeysLeft::More,
        }
        if Instant::now() >= next_look {
            // From now on, not from when it was due: after a suspended machine there is one look, not one for each missed.
            next_look = Instant::now() + LOOK_INTERVAL;
            if let Some(reading) = source.next(model, LOOK_INTERVAL) {
                has_changed |= model.take(reading);
            }
        }
    }
}

/// What comes after the keys that were obeyed.
#[derive(PartialEq)]
enum KeysLeft {
    /// No key is left.
    None,
    /// There can be more keys.
    More,
    /// The user ends the program.
    Quit,
}

/// Obeys the keys that are there, [`MOST_KEYS`] events at most. Notes in `has_changed` if there was any.
///
/// # Errors
/// If the terminal can't be read.
fn obey_keys(source: &Source, model: &mut Model, has_changed: &mut bool) -> io::Result<KeysLeft> {
    let mut moment = None;
    let left = press_keys(model, has_changed, &mut moment);
    // A moment of a long run takes a while to find, so only that of the last key is looked at.
    if let (Source::Replay(replay), Some(at_s)) = (source, moment) {
        model.take(replay.at(at_s));
    }
    left
}

/// Lets the model obey the keys that are there, [`MOST_KEYS`] events at most. Notes the last moment that they ask for, seconds after the
/// start of the run, and in `has_changed` if there was any key.
///
/// # Errors
/// If the terminal can't be read.
fn press_keys(model: &mut Model, has_changed: &mut bool, moment: &mut Option<f64>) -> io::Result<KeysLeft> {
    for _ in 0..MOST_KEYS {
        if !event::poll(Duration::ZERO)? {
            return Ok(KeysLeft::None);
        }
        let Some(asked) = press(model, &event::read()?) else { continue };
        *has_changed = true;
        match asked {
            Asked::Quit => return Ok(KeysLeft::Quit),
            Asked::Nothing => {}
            Asked::Moment(at_s) => {
                // The next key goes on from there.
                model.frame.at_s = at_s;
                *moment = Some(at_s);
            }
        }
    }
    Ok(KeysLeft::More)
}

/// Draws the model if it has changed, and clears `has_changed`. Writes until the terminal has all or a signal is pending. Returns
/// whether the terminal has all. As long as it lacks a part of the last drawing, nothing is drawn, and `has_changed` stays.
///
/// # Errors
/// If the terminal is gone.
fn show(model: &Model, wakeups: &Wakeups, screen: &mut Screen, has_changed: &mut bool) -> io::Result<bool> {
    // If each change were drawn before the terminal has the last one, the unwritten bytes would grow without bound.
    let is_written = screen.write(wakeups.fd())?;
    if !is_written || !std::mem::take(has_changed) {
        return Ok(is_written);
    }
    screen.draw(model)?;
    screen.write(wakeups.fd())
}

/// What signals ask for.
enum SignalsAsk {
    Nothing,
    /// The view is drawn again.
    Redraw,
    /// The end of the program, by this signal.
    End(i32),
}

/// Obeys the signals that are pending. Before one stops the program, the terminal is given back.
///
/// # Errors
/// If signals can't be read, or the terminal can't be taken again.
fn obey_signals(wakeups: &Wakeups, screen: &mut Screen) -> io::Result<SignalsAsk> {
    let mut asked = SignalsAsk::Nothing;
    while let Some(received) = wakeups.pending()? {
        match received.signal {
            libc::SIGWINCH => {}
            libc::SIGTSTP => {
                screen.give_back();
                // It goes on here after SIGCONT, or at once where nothing could continue it: an orphaned process group.
                signals::raise_default(libc::SIGTSTP);
                signals::block(&signals::only(libc::SIGTSTP));
                screen.take_again()?;
            }
            // After SIGSTOP, which can't be seen, the shell has set modes of its own.
            libc::SIGCONT => screen.take_again()?,
            signal => return Ok(SignalsAsk::End(signal)),
        }
        asked = SignalsAsk::Redraw;
    }
    Ok(asked)
}

/// Waits for a key or a signal, at most for `limit`. Returns whether the terminal is gone. SIGHUP tells of that, too, but can be
/// ignored.
fn wait(wakeups: &Wakeups, limit: Duration) -> io::Result<bool> {
    let stdin = io::stdin();
    let keys = PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::IN);
    let signal = wakeups.fd().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    let mut fds: Vec<PollFd<'_>> = [keys].into_iter().chain(signal).collect();
    let limit = Timespec::try_from(limit).ok();
    match poll(&mut fds, limit.as_ref()) {
        Ok(_) => Ok(fds[0].revents().contains(PollFlags::HUP)),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Lets the model obey a key, and returns what it asks for. `None`: the event is no key, or a key with Ctrl other than Ctrl-C. In raw
/// mode, Ctrl-C is a key: the terminal sends no SIGINT for it.
fn press(model: &mut Model, event: &Event) -> Option<Asked> {
    let Event::Key(KeyEvent { code, modifiers, kind: KeyEventKind::Press | KeyEventKind::Repeat, .. }) =
        event
    else {
        return None;
    };
    match (modifiers.contains(KeyModifiers::CONTROL), code) {
        (false, code) => Some(model.press(*code)),
        (true, KeyCode::Char('c')) => Some(Asked::Quit),
        (true, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_taken_and_ctrl_c_ends() {
        let mut model = Model::default();
        let mut event = |code, modifiers| press(&mut model, &Event::Key(KeyEvent::new(code, modifiers)));
        assert_eq!(event(KeyCode::Char('q'), KeyModifiers::NONE), Some(Asked::Quit));
        assert_eq!(event(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Asked::Quit));
        assert_eq!(event(KeyCode::Char('x'), KeyModifiers::CONTROL), None);
        assert_eq!(event(KeyCode::PageUp, KeyModifiers::SHIFT), Some(Asked::Nothing));
        assert_eq!(event(KeyCode::F(1), KeyModifiers::NONE), Some(Asked::Nothing));
    }
}
