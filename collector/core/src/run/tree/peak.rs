//! The peak RSS of a process: the maximum over its images, and never its parent's.
//!
//! - ru_maxrss survives fork and exec, so it is the last image's own only where it exceeds what that image inherited. START has
//!   what it inherited. Where it is no more than that, EXIT has VmHWM.
//! - A replaced image leaves its peak in EXEC, or in the larger ru_maxrss of the next START. A copy of its parent's memory reads
//!   pages of files in again, so what it grew by is only an upper bound.
//! - The maximum in REAPED counts only where it also exceeds that of all children that the process waited for. Then it is the
//!   most complete one, since all threads have ended.
//! - If a process is from before the run, its REAPED does not count: the maximum may be from before, or a child's.
//! - A program that is late to report, or a copy of an uninstrumented parent, may have grown before its START. The peak is
//!   exact only if it is no less than what that START inherited.

use gpu_track_abi::record::FLAG_IMAGE;

use super::process::{Image, Process};
use super::records::{ExitRecord, ReapRecord};
use super::summary::{KnownRss, MissingRam};
use super::tolerance::Tolerance;
use crate::model::quality::Quality;

impl Process {
    /// Its peak RSS over all its images, bytes, and how that is known. If a copy of its parent's memory grew by more than any
    /// program after it had, that growth is an upper bound.
    pub(crate) fn peak(&self) -> (Option<u64>, Quality) {
        let (peak, quality) = self.peak_of_programs();
        let growth_bytes = self.program.copy_growth_bytes;
        if growth_bytes <= peak.unwrap_or(0) {
            return (peak, quality);
        }
        let quality = match quality {
            Quality::Exact => Quality::Bound,
            // The last image's peak is unknown, so this figure is of some images only, as in `peak_of_programs`.
            Quality::Unknown => Quality::Sampled,
            Quality::Sampled | Quality::Bound => quality,
        };
        (Some(growth_bytes), quality)
    }

    /// Its peak RSS, bytes, and how that is known, without what a copy of its parent's memory grew by before an exec.
    fn peak_of_programs(&self) -> (Option<u64>, Quality) {
        let program = &self.program;
        let (last, quality) = self.last_image_peak();
        let peak = last.max(program.earlier_images_peak_bytes);
        // "Unread": no record has the image's peak, since it was uninstrumented, or was a copy of an uninstrumented parent's memory.
        let has_unread_image = program.had_uninstrumented_image || program.had_unread_copy;
        // An earlier image had at most what the last one inherited. So a peak that is no less than that is the largest of all.
        let is_below_inherited =
            matches!(program.image, Image::Loaded { inherited } if peak.is_none_or(|peak| peak < inherited));
        let may_be_short = has_unread_image && is_below_inherited;
        let is_earlier_only = last.is_none() && program.earlier_images_peak_bytes.is_some();
        // `Sampled` is a lower bound: an unread image, or the last one, may have had more than the images whose peaks are known.
        let quality = match quality {
            Quality::Exact if may_be_short => Quality::Sampled,
            Quality::Unknown if is_earlier_only => Quality::Sampled,
            _ => quality,
        };
        (peak, quality)
    }

    /// The RSS that this process, or a process below it, certainly had. ru_maxrss survives fork and exec. So the maximum of waited-for
    /// children is an RSS of theirs only if it is above what they inherited. It can also be that of a helper (a process of gpu-track
    /// itself), which no figure has.
    pub(super) fn known_rss(&self) -> KnownRss {
        let is_lower_bound = |quality| matches!(quality, Quality::Exact | Quality::Sampled);
        let helpers_max = self.cpu.helpers_max_rss_bytes;
        let max_if_above = |max: u64, inherited: u64| if max > inherited.max(helpers_max) { max } else { 0 };
        let (peak, quality) = self.peak_of_programs();
        // EXIT: children inherited at most what the process itself had.
        let below = self.end.exit.map_or(0, |exit| {
            let own = exit.own_usage.max_rss_bytes();
            max_if_above(exit.children_usage.max_rss_bytes(), own.saturating_add(Tolerance::rss(own)))
        });
        // REAPED: its maximum is over the process and its children, and all inherited at most what the process did.
        let either = self.end.reaped.map_or(0, |reaped| {
            self.most_inherited(&reaped).map_or(0, |most| max_if_above(reaped.usage.max_rss_bytes(), most))
        });
        // A copy of the parent's memory reads file pages in again. Only what it grew by beyond those is certain.
        let certain_growth = self.program.copy_growth_bytes.saturating_sub(Tolerance::FILE_PAGES_BYTES);
        let own = peak.filter(|_| is_lower_bound(quality)).unwrap_or(0).max(certain_growth);
        // The part that can be its parent's memory, too.
        let copied = match self.program.image {
            Image::Forked { rss_at_fork_bytes } => rss_at_fork_bytes.min(own),
            Image::Unknown => own,
            Image::Loaded { .. } | Image::Uninstrumented | Image::Borrowed => 0,
        };
        KnownRss { own_bytes: own, copied_bytes: copied, below_bytes: below, either_bytes: either }
    }

    /// How much of its memory the tree's RAM may lack. `None`: its peak is known, or it ran in its parent's memory (vfork) and held
    /// next to nothing of its own. `page_bytes`: the size of a page.
    pub(super) fn missing_ram(&self, page_bytes: u64) -> Option<MissingRam> {
        let held_little = self.end.exit.as_ref().is_some_and(|exit| {
            exit.has_borrowed_memory() && exit.own_usage.minor_faults < Tolerance::FEW_FAULTS
        });
        if self.peak() != (None, Quality::Unknown) || held_little {
            return None;
        }
        // Its maximum is no more than what it inherited, else the peak would be known. If it had few minor faults, it held no more of
        // its own than a page for each. Other processes have the pages of its libraries, too.
        let at_most_bytes = self.end.reaped.map(|ReapRecord { usage, .. }| match usage.minor_faults {
            0..Tolerance::FEW_FAULTS => {
                usage.max_rss_bytes().min(usage.minor_faults.saturating_mul(page_bytes))
            }
            _ => usage.max_rss_bytes(),
        });
        Some(MissingRam { at_most_bytes })
    }

    /// The peak of the image that it ran last, bytes, and how that is known. The source is EXIT, else the kernel's account
    /// if that is exact, else REAPED (of a process from before the run it has more than the run's), else the samples. An image in
    /// its parent's memory has none of its own.
    pub(super) fn last_image_peak(&self) -> (Option<u64>, Quality) {
        match (&self.end.exit, &self.end.reaped.filter(|_| self.before.is_none())) {
            // A child of a raw clone has memory of its own, but writes the same record as a vfork child. So nothing is known.
            (Some(exit), _) if exit.has_borrowed_memory() => (None, Quality::Unknown),
            _ if self.program.image == Image::Borrowed => (None, Quality::Exact),
            (Some(exit), _) => self.peak_of_exit(exit),
            (None, reaped) => match (self.peak_without_records(), reaped) {
                (accounted @ (_, Quality::Exact), _) => accounted,
                (_, Some(reaped)) => self.peak_of_reaped(reaped),
                (sampled, None) => sampled,
            },
        }
    }

    /// The peak of its last image in the kernel's account of its exit, bytes. The second value is true if no earlier
    /// image can have had more. `None`: the account has no peak, or it may be the parent's.
    fn accounted_peak(&self) -> Option<(u64, bool)> {
        let account = self.end.account?;
        let program = &self.program;
        let peak = account.peak_rss_bytes?;
        // An earlier program can have had more. A program that wrote START counts as earlier, since an exec may have replaced it.
        let had_program =
            program.had_uninstrumented_image || matches!(program.recorded, Some(Image::Loaded { .. }));
        // A copy of its parent's memory before an exec can also have had more. Its own part is only the pages that it wrote there, and
        // each took a fault.
        let most = peak.saturating_add(Tolerance::rss(peak));
        let wrote_little = account.thread.is_some_and(|thread| thread.faulted_bytes <= most);
        // A huge page is one fault: only the connector tells for certain that there was no other program.
        let is_largest = wrote_little && !had_program && self.ancestry.is_watched;
        // It may run in its parent's memory, or in a copy of that.
        let is_own = !matches!(program.image, Image::Unknown | Image::Borrowed);
        is_own.then_some((peak, is_largest))
    }

    /// The peak by an EXIT record, bytes, and how that is known.
    fn peak_of_exit(&self, exit: &ExitRecord) -> (Option<u64>, Quality) {
        let max = exit.own_usage.max_rss_bytes().max(self.reaped_own_peak(exit));
        // The kernel's maximum leaves out pages that its CPUs have not yet added up (up to 32 each). /proc/PID/statm includes them, so
        // a sample can have seen more.
        let seen = self.least_peak().unwrap_or(0);
        match self.program.image {
            // An image that wrote START (`FLAG_IMAGE`) can have the maximum from an earlier image. VmHWM is its own.
            Image::Loaded { inherited } if exit.flags & FLAG_IMAGE != 0 && max <= inherited => {
                match exit.vm_hwm_bytes {
                    Some(vm_hwm_bytes) => (Some(vm_hwm_bytes.max(seen)), Quality::Exact),
                    None => self.peak_without_records(),
                }
            }
            Image::Loaded { .. } | Image::Forked { .. } => (Some(max.max(seen)), Quality::Exact),
            Image::Uninstrumented | Image::Unknown | Image::Borrowed => self.peak_without_records(),
        }
    }

    /// The peak by a REAPED record without an EXIT record, bytes, and how that is known. REAPED has a maximum over the
    /// process, all that it waited for, and what it inherited. The first of these rules that applies decides:
    ///
    /// - The maximum is the process's own: it exceeds what the process inherited, and no child can have had it.
    /// - A sample, the fork or the kernel's account tells what the process had at least.
    /// - Without children, the maximum is an upper bound if it exceeds what was inherited, or if a copy was killed.
    fn peak_of_reaped(&self, reaped: &ReapRecord) -> (Option<u64>, Quality) {
        let max = reaped.usage.max_rss_bytes();
        let of_children =
            self.cpu.reaped_children.max_rss_bytes().max(self.cpu.unreaped_children.max_rss_bytes());
        let is_above_children = max > of_children;
        let is_own =
            is_above_children && self.most_inherited(reaped).is_some_and(|inherited| max > inherited);
        if is_own && self.are_all_waits_known(reaped.status) {
            let quality = if self.may_maximum_be_of_copy() { Quality::Bound } else { Quality::Exact };
            return (Some(max), quality);
        }
        if let Some(peak) = self.peak_without_records().0 {
            return (Some(peak), Quality::Sampled);
        }
        // A fork child that was killed may have been a copy of its parent still: then the maximum is what it inherited. A copy
        // that exits by itself has an EXIT record, so a process without one did run another program.
        let was_killed_as_copy = matches!(self.program.image, Image::Forked { .. })
            && libc::WIFSIGNALED(reaped.status)
            && is_above_children;
        if (is_own || was_killed_as_copy) && !self.ancestry.has_children {
            return (Some(max), Quality::Bound);
        }
        (None, Quality::Unknown)
    }

    /// Whether the maximum in its REAPED record may be that of a copy of its parent's memory from before an exec. Only what such
    /// a copy grew by is its own, so the maximum is an upper bound then.
    fn may_maximum_be_of_copy(&self) -> bool {
        match self.program.image {
            // Without the connector, it may have been killed between an exec and the new program's START.
            Image::Forked { .. } => !self.ancestry.is_watched,
            Image::Uninstrumented => self.copied_before_exec() > 0 || self.program.had_unread_copy,
            Image::Loaded { .. } | Image::Unknown | Image::Borrowed => false,
        }
    }

    /// The most that its ru_maxrss can be by what it inherited alone, bytes. `None`: it ran in its parent's memory.
    fn most_inherited(&self, reaped: &ReapRecord) -> Option<u64> {
        match self.program.image {
            Image::Loaded { inherited } => Some(inherited),
            Image::Forked { rss_at_fork_bytes } => {
                Some(rss_at_fork_bytes.saturating_add(Tolerance::rss(rss_at_fork_bytes)))
            }
            // No START record says what it inherited. That is at most the maximum of its maker, and what it grew by before its exec. A
            // fork child also reads file pages in again, which no record counts.
            Image::Uninstrumented | Image::Unknown => {
                let unreported = if self.program.has_record { Tolerance::FILE_PAGES_BYTES } else { 0 };
                let earlier = self.program.earlier_images_peak_bytes.unwrap_or(0);
                let grown = earlier.max(self.program.copy_growth_bytes).saturating_add(unreported);
                Some(reaped.maker_max_rss_bytes.saturating_add(grown))
            }
            Image::Borrowed => None,
        }
    }

    /// The peak without records, bytes, and how that is known: the larger of the kernel's account of its exit and what it
    /// had at least ([`Self::least_peak`]). It is exact if the account has all images; else a lower bound.
    fn peak_without_records(&self) -> (Option<u64>, Quality) {
        let accounted = self.accounted_peak();
        let peak = self.least_peak().max(accounted.map(|(peak, _)| peak));
        let quality = match accounted {
            Some((_, true)) => Quality::Exact,
            _ if peak.is_some() => Quality::Sampled,
            _ => Quality::Unknown,
        };
        (peak, quality)
    }

    /// What it had at least, bytes: the largest sample, or the RSS at its fork if the connector has reported no exec since.
    /// `None`: neither is known.
    fn least_peak(&self) -> Option<u64> {
        let at_fork = match self.program.image {
            Image::Forked { rss_at_fork_bytes }
                if self.ancestry.is_watched && self.program.unreported_exec.is_none() =>
            {
                rss_at_fork_bytes
            }
            _ => 0,
        };
        Some(self.observed.peak_rss_bytes.max(at_fork)).filter(|peak| *peak > 0)
    }

    /// The maximum of its REAPED record, bytes, if that exceeds the maxima of all waited-for children, and so is the
    /// process's own; else 0. That maximum includes all threads, which have ended by then.
    fn reaped_own_peak(&self, exit: &ExitRecord) -> u64 {
        let of_children = exit.children_usage.max_rss_bytes().max(self.cpu.reaped_children.max_rss_bytes());
        let max = self.end.reaped.map_or(0, |reaped| reaped.usage.max_rss_bytes());
        if max > of_children { max } else { 0 }
    }

    /// Whether all children that it waited for are known, though it has no EXIT record. `status`: its wait status. A process that exits
    /// by itself without EXIT writes no REAPED records either. It is static, or makes system calls of its own, as Go does.
    fn are_all_waits_known(&self, status: i32) -> bool {
        let reports_waits = self.program.has_record
            && self.program.image != Image::Uninstrumented
            && libc::WIFSIGNALED(status);
        // A wait by a raw system call, or inside libc, leaves no record.
        (reports_waits && self.cpu.unreaped_count == 0)
            || (self.ancestry.is_watched && !self.ancestry.has_children)
    }
}
