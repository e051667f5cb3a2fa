//! The process that sent the launcher a signal.

use super::program;
use crate::model::signal::{Sender, SignalReceived};
use crate::sys::proc_fs::ProcRoot;

/// Describes a signal that came from this process, with what /proc shows of it now.
pub(crate) fn received(root: &ProcRoot, signal: i32, at_ns: u64, pid: u32, uid: u32) -> SignalReceived {
    // A sender in a pid namespace above has no pid here: siginfo has 0.
    let pid = (pid > 0).then_some(pid);
    SignalReceived {
        signal,
        at_ns,
        sender: Sender { pid, uid, command: pid.and_then(|pid| root.comm(pid)) },
        sender_args: pid.and_then(|pid| program::args(root, pid)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: WHY-6, WHY-55
    #[test]
    fn sender_is_named_while_it_is_there() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("7")).unwrap();
        std::fs::write(dir.path().join("7/comm"), "timeout\n").unwrap();
        std::fs::write(dir.path().join("7/cmdline"), "timeout\x001\0x\0").unwrap();
        let root = ProcRoot::new(dir.path());
        let known = received(&root, 15, 1, 7, 0);
        assert_eq!(known.sender.command.as_deref(), Some("timeout"));
        assert_eq!(known.sender_args.unwrap(), ["timeout", "1", "x"]);
        for (pid, reported) in [(0, None), (8, Some(8))] {
            let unknown = received(&root, 15, 1, pid, 0);
            assert_eq!(unknown.sender.pid, reported);
            assert_eq!((unknown.sender.command, unknown.sender_args), (None, None), "{pid}");
        }
    }
}
