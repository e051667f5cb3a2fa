//! Hands to the sinks the items of the outbox (closed samples, ended processes, events), and the sample that is still open.

use super::run_loop::Session;
use crate::model::observation::Observation;

impl Session {
    /// Saves the new items of the outbox, and hands them to the sinks with threads. Tells the core which sinks failed or lost
    /// something, and removes the items that all sinks have written.
    pub(super) fn hand_on(&mut self) {
        // If this collector is killed now, the next one hands the items on.
        self.checkpoint.keep(self.run.outbox());
        self.checkpoint.save_if_happened(&self.run);
        let (observations, first_open) = self.sinks.hand_on(&self.run.samples.outbox);
        // If the outbox drops one of these items now, that is no loss: the sinks were given it.
        self.run.outbox().given();
        self.note(observations);
        self.run.outbox().taken(first_open);
    }

    /// Gives the last sample, which is still open, to the sinks that have no thread and run in the loop.
    pub(super) fn show(&mut self) {
        if let Some(now) = self.run.now() {
            let observations = self.sinks.show(&self.run, &now);
            self.note(observations);
        }
    }

    /// Applies what the sinks report (failures, losses) to the run.
    fn note(&mut self, observations: Vec<Observation>) {
        for observation in observations {
            self.run.apply_now(observation);
        }
    }
}
