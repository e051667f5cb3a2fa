//! The program that a process runs (forked, exec'd, reported, uninstrumented), and what its memory adds to the tree's RAM.
//!
//! Whether a program has reported (has written a record) is decided here alone: [`Process::awaits_record`] and
//! [`Process::is_instrumented`].

use super::contribution::Contribution;
use super::interval::LiveInterval;
use super::process::{Image, Observed, Process};
use super::tolerance::Tolerance;
use crate::model::observation::Program;
use crate::model::quality::Quality;

/// How much memory a fork child does not share with its parent, bytes: the pages that it touched since the fork, copied or
/// new. `faulted_bytes` are a page for each fault. A huge page is one fault, so the result is at least what its RSS grew by. It
/// is at most its RSS.
pub(in crate::run) fn unshared_after_fork(rss_bytes: u64, rss_at_fork_bytes: u64, faulted_bytes: u64) -> u64 {
    let grown_bytes = rss_bytes.saturating_sub(rss_at_fork_bytes);
    let touched_bytes = faulted_bytes.max(grown_bytes);
    touched_bytes.min(rss_bytes)
}

impl Image {
    /// How much of its memory is a copy of its parent's at most, bytes; 0 for any image but a fork child's.
    pub(super) fn copied_bytes(&self) -> u64 {
        if let Self::Forked { rss_at_fork_bytes } = self { *rss_at_fork_bytes } else { 0 }
    }

    /// Whether a process with this ru_maxrss, bytes, has had more memory since the image's START or FORK record than at it.
    pub(super) fn has_grown(&self, max_rss_bytes: u64) -> bool {
        match self {
            Self::Loaded { inherited } => max_rss_bytes > *inherited,
            // A fork child has its parent's RSS, without file pages, which it reads in again. Only more than those shows growth.
            Self::Forked { rss_at_fork_bytes } => {
                let growth = Tolerance::rss(*rss_at_fork_bytes).max(Tolerance::FILE_PAGES_BYTES);
                max_rss_bytes > rss_at_fork_bytes.saturating_add(growth)
            }
            Self::Uninstrumented | Self::Unknown | Self::Borrowed => false,
        }
    }

    /// How much of an RSS peak above `rss_bytes` is the image's own, bytes. The parent's memory, or a copy of it, is not its own.
    pub(in crate::run) fn own_part(&self, peak_bytes: u64, rss_bytes: u64) -> u64 {
        match self {
            Self::Loaded { .. } | Self::Uninstrumented => peak_bytes.saturating_sub(rss_bytes),
            Self::Forked { rss_at_fork_bytes } => {
                peak_bytes.saturating_sub(rss_bytes.max(*rss_at_fork_bytes))
            }
            Self::Unknown | Self::Borrowed => 0,
        }
    }
}

impl Observed {
    /// Forgets memory and peak: a new image began after the sample.
    fn forget_memory(&mut self) {
        (self.rss_bytes, self.peak_rss_bytes, self.contribution) = (0, 0, Contribution::default());
    }

    /// Forgets the peak: a new image began before the sample, and the peak may be the old image's.
    pub(super) fn forget_peak(&mut self) {
        self.peak_rss_bytes = self.rss_bytes;
    }

    /// What the process added to footprints when its RSS was at this peak. If no sample has seen the peak, the growth since the sample
    /// counts as the process's own. The part that may be other processes' memory, too, is left out.
    fn contribution_at(&self, peak_bytes: u64) -> Contribution {
        let is_new = peak_bytes > self.peak_rss_bytes.saturating_add(Tolerance::rss(self.peak_rss_bytes));
        let grown = if is_new { peak_bytes.saturating_sub(self.rss_bytes) } else { 0 };
        self.contribution.plus(Contribution::private(grown.saturating_sub(self.common_growth_bytes)))
    }
}

impl Process {
    /// Whether a record is still awaited. The process has written none at all, or has exec'd a program that has neither reported
    /// nor been taken for uninstrumented yet.
    pub(in crate::run) fn awaits_record(&self) -> bool {
        !self.program.has_record || self.program.unreported_exec.is_some()
    }

    /// Whether the program that it runs carries the shim, as far as is known.
    pub(super) fn is_instrumented(&self) -> bool {
        matches!(self.program.image, Image::Loaded { .. } | Image::Forked { .. })
            && self.program.unreported_exec.is_none()
    }

    /// Whether it is alive, and the program that it exec'd still has time to write a START record at `now_ns` (CLOCK_MONOTONIC).
    pub(super) fn may_still_report(&self, now_ns: u64) -> bool {
        let is_in_time = |exec_ns| now_ns.saturating_sub(exec_ns) < Tolerance::TIME_TO_REPORT_NS;
        self.is_alive() && self.program.unreported_exec.as_ref().is_some_and(|exec| is_in_time(exec.at_ns))
    }

    /// Whether the program of this name, which now writes START, was taken for an uninstrumented one, because /proc was read while it
    /// was being loaded. A program without a dynamic loader is another one, since it writes no START.
    pub(super) fn was_read_as(&self, command: &str) -> bool {
        self.program.image == Image::Uninstrumented
            && &*self.name.command == command
            && self.name.static_executable.is_none()
    }

    /// Whether the program that was `seen` after its end was also read while it ran: only then does /proc show arguments.
    pub(super) fn was_read_before(&self, seen: &Program) -> bool {
        match &self.program.unreported_exec {
            Some(exec) => exec.program.as_ref().is_some_and(|earlier| earlier.args.is_some()),
            // A fork child may have exec'd another program that no source has reported. Then the name differs.
            None => {
                let is_uninstrumented = self.program.image == Image::Uninstrumented;
                let has_same_name = seen.command.as_deref() == Some(&*self.name.command);
                self.name.args.is_some() && (is_uninstrumented || has_same_name)
            }
        }
    }

    /// Stores what /proc shows of its program. The peak counts only for an uninstrumented program, since no record has that peak.
    /// If another uninstrumented program was read before, notes that.
    pub(super) fn take_seen_program(&mut self, seen: Program) {
        // The name differs from that of the reading before, though no source has reported an exec.
        let has_changed = self.name.args.is_some()
            && seen.command.as_deref().is_some_and(|name| name != &*self.name.command);
        let is_uninstrumented = self.program.image == Image::Uninstrumented;
        self.program.had_uninstrumented_image |= is_uninstrumented && has_changed;
        if let Some(command) = seen.command {
            self.name.command = command.into();
        }
        if let Some(peak_bytes) = self.peak_of_run(seen.peak_rss_bytes).filter(|_| is_uninstrumented) {
            self.observed.peak_rss_bytes = self.observed.peak_rss_bytes.max(peak_bytes);
        }
        self.name.args = seen.args;
        self.name.static_executable = seen.static_executable;
    }

    /// When its present program began, CLOCK_MONOTONIC nanoseconds: at its unreported exec, or else with its image.
    pub(crate) fn program_start_ns(&self) -> u64 {
        let exec_ns = self.program.unreported_exec.as_ref().map_or(0, |exec| exec.at_ns);
        exec_ns.max(self.program.image_start_ns)
    }

    /// The peak of its image as samples saw it, without what came after an unreported exec, bytes. `None`: no sample saw
    /// it.
    pub(super) fn peak_before_exec(&self) -> Option<u64> {
        let exec = self.program.unreported_exec.as_ref();
        exec.map_or_else(|| self.sampled_peak(), |exec| exec.previous_peak_bytes)
    }

    /// The peak of its image as samples saw it, bytes. `None`: no sample saw it.
    pub(super) fn sampled_peak(&self) -> Option<u64> {
        let is_sampled = self.is_image_sampled() && self.observed.peak_rss_bytes > 0;
        is_sampled.then_some(self.observed.peak_rss_bytes)
    }

    /// Whether a sample has seen its image.
    pub(super) fn is_image_sampled(&self) -> bool {
        self.observed.at_ns >= self.program.image_start_ns
    }

    /// Replaces the image at this time, CLOCK_MONOTONIC nanoseconds. `peak_bytes`: the peak of the image before, if that is
    /// known. What that image added to footprints since its last sample goes to `intervals`; `None`: the process was not known
    /// before, so there was no such image.
    ///
    /// An exec that led to the new image must still be in `unreported_exec`: it shows that `note_exec` has dealt with the sampled
    /// peak.
    pub(super) fn change_image(
        &mut self,
        intervals: Option<&mut Vec<LiveInterval>>,
        image: Image,
        at_ns: u64,
        peak_bytes: Option<u64>,
    ) {
        let (own_peak, memory) = self.replaced_memory(peak_bytes);
        // A sample after this time is of the new image already.
        let is_sampled = self.observed.at_ns > at_ns;
        let counts = !is_sampled && !memory.is_zero() && !self.ids.is_helper;
        if let Some(intervals) = intervals.filter(|_| counts) {
            intervals.push(LiveInterval { memory, ..self.image_interval(at_ns) });
        }
        self.note_replaced_peak(self.program.image, own_peak);
        let program = &mut self.program;
        program.had_uninstrumented_image |= program.image == Image::Uninstrumented;
        program.image = image;
        program.image_start_ns = at_ns;
        program.exec_peak_bytes = None;
        if !is_sampled {
            self.observed.forget_memory();
        } else if program.unreported_exec.is_none() {
            self.observed.forget_peak();
        }
    }

    /// Notes the peak of an image that was replaced, bytes, without a copy of its parent's memory. `None`: it is unknown.
    pub(super) fn note_replaced_peak(&mut self, image: Image, peak_bytes: Option<u64>) {
        match image {
            Image::Forked { .. } => {
                let growth_bytes = &mut self.program.copy_growth_bytes;
                *growth_bytes = (*growth_bytes).max(peak_bytes.unwrap_or(0));
            }
            _ => {
                // A peak of 0 tells nothing, and would make an unknown peak count as sampled.
                let peak = peak_bytes.filter(|peak| *peak > 0);
                self.program.earlier_images_peak_bytes = self.program.earlier_images_peak_bytes.max(peak);
            }
        }
    }

    /// How much of its memory may have been a copy of its parent's before it exec'd a program without a record, bytes.
    pub(super) fn copied_before_exec(&self) -> u64 {
        match (self.program.image, self.program.recorded) {
            (Image::Uninstrumented, Some(recorded)) => recorded.copied_bytes(),
            _ => 0,
        }
    }

    /// Two figures of an image that is being replaced. The first is its peak, bytes, without a copy of its parent's memory (`None`:
    /// unknown). The second is the most that it added to footprints since its last sample. `peak_bytes`: the peak with such a copy, if
    /// known.
    fn replaced_memory(&self, peak_bytes: Option<u64>) -> (Option<u64>, Contribution) {
        let observed = &self.observed;
        match (self.program.image, peak_bytes) {
            // A fork child's copy of its parent is not its own. What the last sample saw counts if it is more. No record
            // has its faults by then, so only its growth counts as unshared.
            (Image::Forked { rss_at_fork_bytes }, Some(peak)) => {
                let unshared = Contribution::private(unshared_after_fork(peak, rss_at_fork_bytes, 0));
                (Some(peak.saturating_sub(rss_at_fork_bytes)), observed.contribution.with(unshared, u64::max))
            }
            // An image that may be a copy of its parent's memory, or is that memory itself, has no peak of its own.
            (Image::Unknown | Image::Borrowed, _) if self.is_image_sampled() => {
                (None, observed.contribution_at(peak_bytes.unwrap_or(0)))
            }
            _ if self.is_image_sampled() => (peak_bytes, observed.contribution_at(peak_bytes.unwrap_or(0))),
            // No sample tells how the image shared its memory, so all of its peak counts as its own.
            _ => (peak_bytes, Contribution::private(peak_bytes.unwrap_or(0))),
        }
    }

    /// An interval of the memory that became known only after its end was applied, beyond what had been queued. Notes it as queued.
    /// `None`: there is none, or the process has not ended.
    ///
    /// Only the connector dates an end exactly enough for that memory. Otherwise other processes may have had it by then. If there is
    /// an EXIT record, the end has the time of that record, and not of the connector's event.
    pub(super) fn take_late_memory(&mut self, page_bytes: u64) -> Option<LiveInterval> {
        let (end_ns, queued) = self.lifetime.end_ns.zip(self.lifetime.queued_memory)?;
        let memory = self.contribution_since_sample(page_bytes);
        let more = memory.minus(queued);
        self.lifetime.queued_memory = Some(queued.with(memory, u64::max));
        let is_end_rough = self.end.kernel_exit.is_none() || self.end.exit.is_some();
        (!more.is_zero()).then(|| LiveInterval { memory: more, is_end_rough, ..self.image_interval(end_ns) })
    }

    /// The most that it added to footprints since its last sample. If no sample saw its image, that is the image's peak. Of
    /// a fork child, only what it does not share with its parent counts.
    pub(super) fn contribution_since_sample(&self, page_bytes: u64) -> Contribution {
        let (peak, quality) = self.last_image_peak();
        // A peak that samples saw is in `observed` already.
        let peak = peak.filter(|_| matches!(quality, Quality::Exact | Quality::Bound)).unwrap_or(0);
        let faults = match (&self.end.exit, &self.end.reaped) {
            (Some(exit), _) => exit.own_usage.minor_faults,
            (None, Some(reaped)) => reaped.usage.minus(&self.cpu.reaped_children).minor_faults,
            (None, None) => 0,
        };
        let unsampled = Contribution::private(match self.program.image {
            Image::Forked { rss_at_fork_bytes } => {
                unshared_after_fork(peak, rss_at_fork_bytes, faults.saturating_mul(page_bytes))
            }
            _ => peak.saturating_sub(self.copied_before_exec()),
        });
        if !self.is_image_sampled() {
            return unsampled;
        }
        // The growth from the sample to the peak counts. The sum is at most what the peak alone gives, or what the sample saw if
        // that is more.
        let grown = self.observed.contribution_at(peak);
        grown.with(unsampled.with(self.observed.contribution, u64::max), u64::min)
    }
}
