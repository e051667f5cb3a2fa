//! The machine's own figures, while a run takes place.

use crate::model::observation::Observation;
use crate::sys::clock::Timer;
use crate::sys::proc_fs::ProcRoot;

/// They are read this often at most: /proc/stat is long on large machines.
const PERIOD_NS: u64 = 100_000_000;

/// Reads the memory that the machine uses and the busy time of its cores.
#[derive(Debug)]
pub(crate) struct Machine {
    root: ProcRoot,
    timer: Timer,
}

impl Machine {
    /// That of this /proc.
    pub(crate) fn new(root: ProcRoot) -> Self {
        Self { root, timer: Timer::default() }
    }

    /// The figures, if they are due. The last sample of a run has them in any case.
    pub(crate) fn read(&mut self, now_ns: u64, is_last: bool) -> Option<Observation> {
        (self.timer.is_due(now_ns, PERIOD_NS) || is_last).then(|| Observation::System {
            memory_used_bytes: self.root.system_memory().map(|(used, _)| used),
            busy_ticks: self.root.busy_ticks(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_once_in_a_period_and_at_the_end() {
        let mut machine = Machine::new(ProcRoot::new("/nonexistent"));
        let times = [(7, false), (PERIOD_NS, false), (PERIOD_NS + 7, false), (PERIOD_NS + 8, true)];
        let is_read = times.map(|(now_ns, is_last)| machine.read(now_ns, is_last).is_some());
        assert_eq!(is_read, [true, false, true, true]);
    }
}
