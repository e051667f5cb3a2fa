//! The terminal while the view has it: raw, on its alternate screen, without a cursor. It is given back in each case but SIGKILL:
//! at the end, in a panic, and after a signal.

use std::io;
use std::os::fd::BorrowedFd;
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ratatui_core::terminal::Terminal;
use ratatui_crossterm::CrosstermBackend;
use ratatui_crossterm::crossterm::cursor::{Hide, Show};
use ratatui_crossterm::crossterm::queue;
use ratatui_crossterm::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};

use super::model::Model;
use super::output::{Gathered, Output};
use super::view::view;

/// Longest wait for a terminal that takes nothing. Where no descriptor tells of signals, they are seen after it.
const WRITE_WAIT: Duration = Duration::from_millis(50);
/// Longest time for writing what leaves the alternate screen. A terminal that takes nothing stays in it, but its modes are set
/// back.
const GIVE_BACK_LIMIT: Duration = Duration::from_millis(500);

/// Whether the terminal has to be given back.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// The terminal, taken. Drop gives it back.
pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<Gathered>>,
    gathered: Gathered,
    output: Output,
    /// What the terminal has not taken yet.
    unwritten: Vec<u8>,
}

impl Screen {
    /// Takes the terminal. A panic gives it back before its message is printed, which would else vanish with the alternate screen.
    ///
    /// # Errors
    /// If it can't be taken: then it is as before.
    pub(super) fn take() -> io::Result<Self> {
        let print_message = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            give_back();
            print_message(panic);
        }));
        let gathered = Gathered::default();
        let terminal = Terminal::new(CrosstermBackend::new(gathered.clone()))?;
        let mut screen = Self { terminal, gathered, output: Output::open(), unwritten: Vec::new() };
        screen.enter()?;
        Ok(screen)
    }

    /// Takes the terminal again, after this program was stopped. What is shown is drawn anew.
    ///
    /// # Errors
    /// If it can't be taken.
    pub(super) fn take_again(&mut self) -> io::Result<()> {
        // After SIGSTOP the library takes the terminal for raw, although the shell has set other modes. Then `enable_raw_mode` does
        // nothing, so raw mode is ended first.
        disable_raw_mode()?;
        self.unwritten.clear();
        self.enter()?;
        // This clears the screen, so that the next drawing is of all its cells.
        let area = self.terminal.size()?.into();
        self.terminal.resize(area)
    }

    /// Makes the terminal raw, and notes that it has to be given back. The next [`Self::draw`] asks for the alternate screen
    /// without a cursor.
    fn enter(&mut self) -> io::Result<()> {
        enable_raw_mode()?;
        IS_TAKEN.store(true, Ordering::Relaxed);
        queue!(self.gathered, EnterAlternateScreen, Hide)
    }

    /// Draws the model. [`Self::write`] hands it to the terminal.
    ///
    /// # Errors
    /// If the size of the terminal can't be found out.
    pub(super) fn draw(&mut self, model: &Model) -> io::Result<()> {
        self.terminal.draw(|frame| view(model, frame.buffer_mut()))?;
        self.unwritten.extend(self.gathered.take());
        Ok(())
    }

    /// Writes what was drawn, as far as the terminal takes it. A terminal that takes nothing is waited for until `signal` can be
    /// read, [`WRITE_WAIT`] at most. Returns whether the terminal has all.
    ///
    /// # Errors
    /// If the terminal is gone.
    pub(super) fn write(&mut self, signal: Option<BorrowedFd<'_>>) -> io::Result<bool> {
        while !self.unwritten.is_empty() {
            match self.output.write(&self.unwritten, signal, WRITE_WAIT)? {
                0 => break,
                written => drop(self.unwritten.drain(..written)),
            }
        }
        Ok(self.unwritten.is_empty())
    }

    /// Gives the terminal back, if it is taken.
    pub(super) fn give_back(&mut self) {
        give_back();
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

/// Gives the terminal back, if it is taken. Errors don't matter: then the terminal is gone.
fn give_back() {
    if IS_TAKEN.swap(false, Ordering::Relaxed) {
        let mut gathered = Gathered::default();
        let _ = queue!(gathered, LeaveAlternateScreen, Show);
        let (bytes, output) = (gathered.take(), Output::open());
        let (mut written, end) = (0, Instant::now() + GIVE_BACK_LIMIT);
        while written < bytes.len() {
            let limit = end.saturating_duration_since(Instant::now());
            match output.write(&bytes[written..], None, limit) {
                Ok(0) if limit.is_zero() => break,
                Ok(more) => written += more,
                Err(_) => break,
            }
        }
        let _ = disable_raw_mode();
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::{AsFd, OwnedFd};
    use std::process::{Command, Stdio};

    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use rustix::termios::{LocalModes, tcgetattr};

    use super::*;

    /// Set for the process that [`taken_terminal_of_a_panic`] is for.
    const VARIABLE: &str = "GPU_TRACK_TEST_PANICS";

    /// In a process of its own on a terminal, by the test below: takes the terminal and panics.
    #[test]
    fn taken_terminal_of_a_panic() {
        if std::env::var_os(VARIABLE).is_some() {
            let mut screen = Screen::take().unwrap();
            screen.draw(&Model::default()).unwrap();
            assert!(screen.write(None).unwrap());
            let modes = tcgetattr(io::stdin()).unwrap().local_modes;
            assert!(!modes.contains(LocalModes::ECHO), "the terminal was not taken");
            drop(std::panic::catch_unwind(|| panic!("on purpose")));
            // The screen is still there: the panic alone gave the terminal back.
            std::mem::forget(screen);
        }
    }

    fn terminal() -> (File, OwnedFd) {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::CLOEXEC;
        (File::from(master), rustix::fs::open(name.as_c_str(), flags, rustix::fs::Mode::empty()).unwrap())
    }

    // Requirement: WATCH-4
    #[test]
    fn panic_gives_the_terminal_back_before_its_message() {
        let (mut master, slave) = terminal();
        let before = tcgetattr(&slave).unwrap().local_modes;
        let stdio = || Stdio::from(slave.as_fd().try_clone_to_owned().unwrap());
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "companion::watch::terminal::tests::taken_terminal_of_a_panic", "--nocapture"])
            .env(VARIABLE, "1")
            .stdin(stdio())
            .stdout(stdio())
            .stderr(stdio())
            .status()
            .unwrap();
        assert_eq!(tcgetattr(&slave).unwrap().local_modes, before);
        drop(slave);
        let mut shown = Vec::new();
        // The end of a terminal without a user is EIO.
        assert!(master.read_to_end(&mut shown).is_err());
        let shown = String::from_utf8_lossy(&shown);
        let at = |text: &str| shown.find(text).unwrap_or_else(|| panic!("no {text:?} in {shown}"));
        assert!(status.success(), "{shown}");
        // The alternate screen is entered and left, the cursor is shown, and then the message comes.
        assert!(at("\x1b[?1049h") < at("\x1b[?1049l") && at("\x1b[?25h") < at("on purpose"), "{shown:?}");
        assert!(at("\x1b[?1049l") < at("on purpose"), "{shown:?}");
    }
}
