//! The process that sent the launcher a signal.

use super::program;
use crate::model::signal::{Sender, SignalReceived, SignalTold};
use crate::sys::proc_fs::ProcRoot;

/// Describes a signal, with what /proc shows of its sender now.
pub(crate) fn received(root: &ProcRoot, told: SignalTold) -> SignalReceived {
    // A sender in a pid namespace above has no pid here: siginfo has 0.
    let pid = Some(told.sender_pid).filter(|pid| *pid > 0);
    SignalReceived {
        signal: told.signal,
        at_ns: told.at_ns,
        sender: Sender { pid, uid: told.sender_uid, command: pid.and_then(|pid| root.comm(pid)) },
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
        let told = SignalTold { signal: 15, at_ns: 1, sender_pid: 7, sender_uid: 0 };
        let known = received(&root, told);
        assert_eq!(known.sender.command.as_deref(), Some("timeout"));
        assert_eq!(known.sender_args.unwrap(), ["timeout", "1", "x"]);
        for (pid, reported) in [(0, None), (8, Some(8))] {
            let unknown = received(&root, SignalTold { sender_pid: pid, ..told });
            assert_eq!(unknown.sender.pid, reported);
            assert_eq!((unknown.sender.command, unknown.sender_args), (None, None), "{pid}");
        }
    }
}
