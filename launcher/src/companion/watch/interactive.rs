//! The view on a terminal: waits for keys, signals and the time of the next look, and draws what changed.

use std::io;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ratatui_crossterm::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::frame::Reading;
use super::live::Live;
use super::model::{Asked, Key, Model};
use super::replay::Replay;
use super::terminal::Screen;
use super::view::view;
use crate::signals;
use crate::wakeups::Wakeups;

/// Time between two looks at the run.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// A finished run is played in this time, seconds, or in its own, if that is shorter.
const PLAY_S: f64 = 60.0;

/// Where readings come from.
pub(super) enum Source {
    /// A run that goes on.
    Live(Box<Live>),
    /// A finished one.
    Replay(Box<Replay>),
}

impl Source {
    /// Gives the reading for the next look, when `passed` has gone by since the last one. `None`: nothing changes by itself,
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
    // Blocked before the terminal is taken: from then on, each comes through the descriptor.
    let ending = [libc::SIGTERM, libc::SIGHUP, libc::SIGINT, libc::SIGQUIT];
    let watched = signals::of(&[&ending[..], &[libc::SIGWINCH]].concat());
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

/// Draws and waits in turn. Gives the signal that ends the program; `None`: the user did.
fn drive(
    source: &mut Source,
    model: &mut Model,
    wakeups: &Wakeups,
    screen: &mut Screen,
) -> io::Result<Option<i32>> {
    let mut next_look = Instant::now() + LOOK_INTERVAL;
    let mut has_changed = true;
    loop {
        if std::mem::take(&mut has_changed) {
            screen.terminal.draw(|frame| view(model, frame.buffer_mut()))?;
        }
        let left = next_look.saturating_duration_since(Instant::now());
        let is_gone = wait(wakeups, left)?;
        while let Some(received) = wakeups.pending()? {
            if received.signal != libc::SIGWINCH {
                return Ok(Some(received.signal));
            }
            has_changed = true;
        }
        if is_gone {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        while event::poll(Duration::ZERO)? {
            let Some(key) = pressed(&event::read()?) else { continue };
            has_changed = true;
            let asked = match key {
                Pressed::CtrlC => Asked::Quit,
                Pressed::Key(key) => model.press(key),
            };
            match asked {
                Asked::Quit => return Ok(None),
                Asked::Nothing => {}
                Asked::Moment(at_s) => {
                    if let Source::Replay(replay) = source {
                        model.take(replay.at(at_s));
                    }
                }
            }
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

/// Waits for a key or a signal, at most for `limit`. Gives whether the terminal is gone. SIGHUP comes with that, but can be ignored.
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

/// What was pressed.
#[derive(Debug, PartialEq)]
enum Pressed {
    Key(Key),
    /// The end is asked for. In raw mode it is a key, and no signal.
    CtrlC,
}

/// Gives what was pressed. `None`: the event is no key, or one that the view does not obey.
fn pressed(event: &Event) -> Option<Pressed> {
    let Event::Key(KeyEvent { code, modifiers, kind: KeyEventKind::Press | KeyEventKind::Repeat, .. }) =
        event
    else {
        return None;
    };
    if modifiers.contains(KeyModifiers::CONTROL) {
        return (*code == KeyCode::Char('c')).then_some(Pressed::CtrlC);
    }
    let key = match code {
        KeyCode::Char(c) => Key::Char(*c),
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Left => Key::Left,
        KeyCode::Right => Key::Right,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Backspace,
        _ => return None,
    };
    Some(Pressed::Key(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_taken_and_ctrl_c_ends() {
        let event = |code, modifiers| pressed(&Event::Key(KeyEvent::new(code, modifiers)));
        assert_eq!(event(KeyCode::Char('q'), KeyModifiers::NONE), Some(Pressed::Key(Key::Char('q'))));
        assert_eq!(event(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Pressed::CtrlC));
        assert_eq!(event(KeyCode::Char('x'), KeyModifiers::CONTROL), None);
        assert_eq!(event(KeyCode::PageUp, KeyModifiers::SHIFT), Some(Pressed::Key(Key::PageUp)));
        assert_eq!(event(KeyCode::F(1), KeyModifiers::NONE), None);
    }
}
