//! Figures of the whole machine during a run, and what launcher and collector use of it.

use crate::model::observation::{CoreTicks, NoCoreTicks, Observation};
use crate::sys::clock::{self, Timer};
use crate::sys::pidfd;
use crate::sys::proc_fs::{ProcRoot, parse_busy_ticks, parse_core_ticks};

/// The figures are read once in this time at most: /proc/stat is long on large machines.
const PERIOD_NS: u64 = 100_000_000;

/// Reads the memory that the machine uses, the busy time of its cores, and what launcher and collector use of them.
#[derive(Debug)]
pub(crate) struct Machine {
    root: ProcRoot,
    timer: Timer,
    /// The cores that the command may use; `None`: not known.
    cpus: Option<Vec<u32>>,
    /// /proc/stat is not the kernel's own, as in a container with lxcfs.
    is_virtual: bool,
    launcher_pid: u32,
    /// CPU clocks of collector and launcher at the last reading, nanoseconds.
    clocks_ns: (u64, u64),
}

impl Machine {
    /// Prepares to read this /proc. The launcher's CPU time counts from now on, the collector's from its start.
    pub(crate) fn new(root: ProcRoot, cpus: Option<Vec<u32>>, launcher_pid: u32) -> Self {
        let is_virtual = root.has_virtual_stat();
        let clocks_ns = (0, pidfd::cpu_clock_ns(launcher_pid).unwrap_or(0));
        Self { root, timer: Timer::default(), cpus, is_virtual, launcher_pid, clocks_ns }
    }

    /// Reads the figures, if they are due at `now_ns` (CLOCK_MONOTONIC). The last sample of a run has them in any case.
    pub(crate) fn read(&mut self, now_ns: u64, is_last: bool) -> Option<Observation> {
        if !self.timer.is_due(now_ns, PERIOD_NS) && !is_last {
            return None;
        }
        let stat = self.root.machine_stat();
        Some(Observation::System {
            memory_used_bytes: self.root.system_memory().map(|(used, _)| used),
            busy_ticks: stat.as_deref().and_then(parse_busy_ticks),
            cores: self.core_ticks(stat.as_deref()),
            tools_ns: self.tools_ns(),
        })
    }

    /// The busy time of the command's cores from the text of /proc/stat, or why it is unknown.
    fn core_ticks(&self, stat: Option<&[u8]>) -> Result<CoreTicks, NoCoreTicks> {
        if self.is_virtual {
            return Err(NoCoreTicks::Virtual);
        }
        let cpus = self.cpus.as_deref().ok_or(NoCoreTicks::NoAffinity)?;
        stat.and_then(|text| parse_core_ticks(text, cpus)).ok_or(NoCoreTicks::Unreadable)
    }

    /// Reads the CPU time of collector and launcher (the tools) since the last reading, nanoseconds. A launcher that is gone
    /// counts as idle.
    fn tools_ns(&mut self) -> u64 {
        let (collector_before_ns, launcher_before_ns) = self.clocks_ns;
        let collector_ns = clock::process_cpu_ns();
        let launcher_ns = pidfd::cpu_clock_ns(self.launcher_pid).unwrap_or(launcher_before_ns);
        self.clocks_ns = (collector_ns, launcher_ns);
        let collector_used_ns = collector_ns.saturating_sub(collector_before_ns);
        collector_used_ns.saturating_add(launcher_ns.saturating_sub(launcher_before_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_once_in_a_period_and_at_the_end() {
        let mut machine = Machine::new(ProcRoot::new("/nonexistent"), None, std::process::id());
        let times = [(7, false), (PERIOD_NS, false), (PERIOD_NS + 7, false), (PERIOD_NS + 8, true)];
        let is_read = times.map(|(now_ns, is_last)| machine.read(now_ns, is_last).is_some());
        assert_eq!(is_read, [true, false, true, true]);
    }

    // Requirement: CPU-12
    #[test]
    fn cores_that_cannot_be_read_have_a_reason() {
        let machine = |root: ProcRoot, cpus| Machine::new(root, cpus, std::process::id());
        let directory = tempfile::tempdir().unwrap();
        let own = || ProcRoot::new(directory.path());
        let read = |machine: &Machine| machine.core_ticks(machine.root.machine_stat().as_deref());
        assert_eq!(read(&machine(own(), None)), Err(NoCoreTicks::NoAffinity));
        assert_eq!(read(&machine(own(), Some(vec![1]))), Err(NoCoreTicks::Unreadable));
        std::fs::write(directory.path().join("stat"), "cpu  9 9 9 9\ncpu0 1 2 3 4 5 6 7 8 0 0\n").unwrap();
        assert_eq!(read(&machine(own(), Some(vec![1]))), Err(NoCoreTicks::Unreadable));
        let ticks = CoreTicks { cores: 1, busy: 6, stolen: 8 };
        assert_eq!(read(&machine(own(), Some(vec![0, 1]))), Ok(ticks));
        let of_container = Machine { is_virtual: true, ..machine(own(), Some(vec![0])) };
        assert_eq!(read(&of_container), Err(NoCoreTicks::Virtual));
    }
}
