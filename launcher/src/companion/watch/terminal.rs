//! The terminal while the view has it: raw, on its alternate screen, without a cursor. It is given back in each case but SIGKILL:
//! at the end, in a panic, and after a signal.

use std::io::{self, Stdout, Write};
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};

use ratatui_core::terminal::Terminal;
use ratatui_crossterm::CrosstermBackend;
use ratatui_crossterm::crossterm::cursor::{Hide, Show};
use ratatui_crossterm::crossterm::execute;
use ratatui_crossterm::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};

/// Whether the terminal has to be given back.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// The terminal, taken. Drop gives it back.
pub(super) struct Screen {
    pub(super) terminal: Terminal<CrosstermBackend<Stdout>>,
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
        enable_raw_mode()?;
        IS_TAKEN.store(true, Ordering::Relaxed);
        let taken = execute!(io::stdout(), EnterAlternateScreen, Hide)
            .and_then(|()| Terminal::new(CrosstermBackend::new(io::stdout())));
        match taken {
            Ok(terminal) => Ok(Self { terminal }),
            Err(error) => {
                give_back();
                Err(error)
            }
        }
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
        let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
        let _ = io::stdout().flush();
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
            let screen = Screen::take().unwrap();
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
