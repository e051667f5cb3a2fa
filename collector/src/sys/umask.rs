//! The umask, which all threads of a process share (umask(2)). Reports and logs get their modes by it.

use rustix::fs::Mode;
use rustix::process::umask;
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Calls `call` in such a way that a umask that it sets does not hold for the process. From then on this thread, and what it starts,
/// has a umask and a working directory of its own. Where the kernel refuses that, as in many containers (EPERM by their seccomp
/// filter), the umask of before is set again after the call.
pub(crate) fn kept<T>(call: impl FnOnce() -> T) -> T {
    // SAFETY: without CLONE_FILES in the flags, the descriptors stay those of the process.
    let is_apart = unsafe { unshare_unsafe(UnshareFlags::FS) }.is_ok();
    let before = if is_apart { None } else { own() };
    let result = call();
    if let Some(before) = before {
        umask(before);
    }
    result
}

/// The umask of this thread. umask(2) can only tell it by changing it, which the other threads would notice.
fn own() -> Option<Mode> {
    in_status(&std::fs::read_to_string("/proc/thread-self/status").ok()?)
}

/// The umask in the text of a status file of /proc.
fn in_status(text: &str) -> Option<Mode> {
    let octal = text.lines().find_map(|line| line.strip_prefix("Umask:"))?;
    Some(Mode::from_raw_mode(u32::from_str_radix(octal.trim(), 8).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn umask_that_a_thread_sets_is_not_that_of_the_others() {
        let before = own();
        let of_thread = std::thread::spawn(|| {
            kept(|| umask(Mode::from_raw_mode(0o777)));
            own()
        });
        let of_thread = of_thread.join().unwrap();
        assert!(before.is_some() && own() == before, "{before:?}");
        // Where the kernel refuses a umask of its own, the one of before is back.
        assert!(of_thread == Some(Mode::from_raw_mode(0o777)) || of_thread == before, "{of_thread:?}");
    }

    #[test]
    fn umask_is_read_from_the_status_of_a_process() {
        assert_eq!(in_status("Name:\tsh\nUmask:\t0027\nState:\tR\n"), Some(Mode::from_raw_mode(0o027)));
        assert_eq!(in_status("Name:\tsh\nState:\tR\n"), None, "before Linux 4.7");
    }
}
