//! How busy all processes of the machine kept the cores that the run is allowed to use. Also, how long the run's threads waited for a
//! core.

use serde::{Deserialize, Serialize};

use crate::model::observation::{CoreTicks, NoCoreTicks, TaskTimes};
use crate::run::time_spent::CoresMoment;

/// What was read of the cores, and of the run's threads.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct AllowedCores {
    /// The first and the last reading of the cores. `None`: there is none.
    span: Option<CoresSpan>,
    /// Why the cores could not be read before `span` was set. `None`: no reading failed, or none was tried.
    absent: Option<NoCoreTicks>,
    /// How long those of the run's threads that were read ran and waited.
    pub(crate) tasks: TaskTimes,
    /// CPU time of the tools so far, nanoseconds.
    tools_ns: u64,
    /// The last two readings that are far enough apart. `None`: there is none.
    last: Option<CoreReadings>,
}

/// Two readings of the cores.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct CoreReadings {
    before: Option<CoreReading>,
    last: CoreReading,
}

/// One reading of the cores.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct CoreReading {
    at_ns: u64,
    ticks: CoreTicks,
    /// CPU time of the run and its tools so far, nanoseconds.
    own_ns: u64,
}

/// Readings of the last two have this much time between them: clock ticks are too coarse for less.
const APART_NS: u64 = 1_000_000_000;

/// The first and the last reading of the cores.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct CoresSpan {
    /// CLOCK_MONOTONIC of both readings, nanoseconds.
    pub(crate) at_ns: (u64, u64),
    /// Time of the cores by both readings.
    pub(crate) ticks: (CoreTicks, CoreTicks),
    /// CPU time of the run up to the first reading, nanoseconds.
    pub(crate) own_before_ns: u64,
    /// CPU time of the tools (launcher and collectors) between both readings, nanoseconds.
    pub(crate) tools_ns: u64,
}

impl AllowedCores {
    /// Takes in a reading of the cores at `at_ns`, CLOCK_MONOTONIC nanoseconds, or why there is none. The first reading and the
    /// last one are kept. `tools_ns` is the CPU time of launcher and collector since the reading before, `own_ns` that of the run
    /// so far, nanoseconds.
    pub(crate) fn add(
        &mut self,
        at_ns: u64,
        ticks: &Result<CoreTicks, NoCoreTicks>,
        tools_ns: u64,
        own_ns: u64,
    ) {
        self.tools_ns = self.tools_ns.saturating_add(tools_ns);
        if let Ok(ticks) = ticks {
            let reading = CoreReading { at_ns, ticks: *ticks, own_ns: own_ns.saturating_add(self.tools_ns) };
            match &mut self.last {
                None => self.last = Some(CoreReadings { before: None, last: reading }),
                Some(CoreReadings { before, last }) if at_ns.saturating_sub(last.at_ns) >= APART_NS => {
                    (*before, *last) = (Some(*last), reading);
                }
                Some(_) => {}
            }
        }
        match (ticks, &mut self.span) {
            (Ok(ticks), Some(span)) => {
                span.at_ns.1 = at_ns;
                span.ticks.1 = *ticks;
                span.tools_ns = span.tools_ns.saturating_add(tools_ns);
            }
            (Ok(ticks), None) => {
                let (at_ns, ticks) = ((at_ns, at_ns), (*ticks, *ticks));
                self.span = Some(CoresSpan { at_ns, ticks, own_before_ns: own_ns, tools_ns: 0 });
            }
            // This reading failed. The tools' time counts with the next reading that succeeds.
            (Err(_), Some(span)) => span.tools_ns = span.tools_ns.saturating_add(tools_ns),
            (Err(absent), None) => self.absent = Some(*absent),
        }
    }

    /// Adds how long threads ran and waited since each was read before.
    pub(crate) fn add_tasks(&mut self, times: TaskTimes) {
        self.tasks.ran_ns = self.tasks.ran_ns.saturating_add(times.ran_ns);
        self.tasks.waited_ns = self.tasks.waited_ns.saturating_add(times.waited_ns);
    }

    /// How many cores there are, and what others had of them between the last two readings. Nothing is known before the second reading, or if
    /// a core went off or on line.
    pub(crate) fn moment(&self, ticks_per_second: u64) -> CoresMoment {
        let Some(CoreReadings { before, last }) = self.last else { return CoresMoment::default() };
        let count = last.ticks.cores;
        let Some(before) = before.filter(|before| before.ticks.cores == count) else {
            return CoresMoment { count, others_part: 0.0 };
        };
        let all = |ticks: CoreTicks| ticks.busy.saturating_add(ticks.stolen);
        let used_s =
            all(last.ticks).saturating_sub(all(before.ticks)) as f64 / ticks_per_second.max(1) as f64;
        let own_s = last.own_ns.saturating_sub(before.own_ns) as f64 / 1e9;
        let whole_s = last.at_ns.saturating_sub(before.at_ns) as f64 / 1e9 * f64::from(count);
        let others_part = if whole_s > 0.0 { ((used_s - own_s) / whole_s).clamp(0.0, 1.0) } else { 0.0 };
        CoresMoment { count, others_part }
    }

    /// The first and the last reading of the cores, or why there are none.
    pub(crate) fn span(&self) -> Result<CoresSpan, NoCoreTicks> {
        self.span.ok_or(self.absent.unwrap_or(NoCoreTicks::NotRead))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn span_has_what_was_used_between_first_and_last_reading_also_after_a_restart() {
        let ticks = |busy| CoreTicks { cores: 2, busy, stolen: 0 };
        let mut cores = AllowedCores::default();
        assert_eq!(cores.span().unwrap_err(), NoCoreTicks::NotRead);
        cores.add(5, &Err(NoCoreTicks::Unreadable), 1, 0);
        assert_eq!(cores.span().unwrap_err(), NoCoreTicks::Unreadable);
        cores.add(10, &Ok(ticks(100)), 7, 40);
        cores.add(20, &Ok(ticks(110)), 3, 90);
        let mut resumed: AllowedCores =
            serde_json::from_str(&serde_json::to_string(&cores).unwrap()).unwrap();
        resumed.add(25, &Err(NoCoreTicks::Unreadable), 2, 95);
        resumed.add(30, &Ok(ticks(125)), 4, 99);
        let span = resumed.span().unwrap();
        assert_eq!((span.at_ns, span.own_before_ns, span.tools_ns), ((10, 30), 40, 9));
        assert_eq!((span.ticks.0.busy, span.ticks.1.busy), (100, 125));
    }

    #[test]
    fn others_had_what_neither_the_run_nor_its_tools_used_of_late() {
        const S: u64 = 1_000_000_000;
        let ticks = |busy, stolen| Ok(CoreTicks { cores: 2, busy, stolen });
        let mut cores = AllowedCores::default();
        assert_eq!((cores.moment(100).count, cores.moment(100).others_part), (0, 0.0));
        cores.add(0, &ticks(1000, 50), 0, 3 * S);
        assert_eq!((cores.moment(100).count, cores.moment(100).others_part), (2, 0.0));
        cores.add(10 * S, &ticks(2100, 150), S, 9 * S);
        // 12 of 20 core-seconds were used: 6 by the run, 1 by launcher and collector.
        assert_eq!(cores.moment(100).others_part, 0.25);
        // All of the next ten seconds are the run's.
        cores.add(20 * S, &ticks(4100, 150), 0, 29 * S);
        assert_eq!(cores.moment(100).others_part, 0.0);
        cores.add(30 * S, &Ok(CoreTicks { cores: 4, busy: 9000, stolen: 150 }), 0, 29 * S);
        assert_eq!((cores.moment(100).count, cores.moment(100).others_part), (4, 0.0));
    }
}
