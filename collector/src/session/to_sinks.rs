//! From the core to the sinks: what has closed, and the sample that is still open.

use super::run_loop::Session;
use crate::model::observation::Observation;

impl Session {
    /// Hands on what became known since the last time, and takes in what the sinks tell.
    pub(super) fn hand_on(&mut self) {
        // A collector that is killed now leaves it to the next one.
        self.checkpoint.keep(self.run.outbox());
        self.checkpoint.save_if_happened(&self.run);
        let (seen, taken) = self.sinks.hand_on(&self.run.samples.outbox);
        self.run.outbox().given();
        self.note(seen);
        self.run.outbox().taken(taken);
    }

    /// Gives the last sample, which is still open, to the sinks that show it.
    pub(super) fn show(&mut self) {
        if let Some(now) = self.run.now() {
            let seen = self.sinks.show(&self.run, &now);
            self.note(seen);
        }
    }

    /// Hands the core what the sinks tell.
    fn note(&mut self, seen: Vec<Observation>) {
        seen.into_iter().for_each(|observation| self.run.apply_now(observation));
    }
}
