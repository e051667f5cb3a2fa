//! The footprint of anonymous pages: those of one process, and those that fork relatives share.
//!
//! Only processes with the same image (an image group: a process, its fork children and theirs) share anonymous pages. So the sum
//! of their anonymous proportional sizes (PSS) is their footprint. A process that is alone in its group needs no reading. The sum
//! is exact if all were read since the last fork, exec or end among them. Until the next reading, their growth is added. Until
//! all were read, the footprint is at least the oldest process's pages, and what each other one grew by since its fork.
//!
//! Pages that the first process has alone are not the descendants'. smaps shows which these are.

use super::super::reading::{LastReading, Sharing};
use crate::run::tree::Image;
use crate::run::tree::program::unshared_after_fork;

/// If a fork child has more than all older relatives, by more than one part in this many, it must have other pages. A smaller
/// difference can come from the file pages in its RSS at the fork.
const MUCH_MORE: u64 = 8;

/// Anonymous memory of a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Anonymous {
    /// What it adds to a footprint for certain, bytes.
    pub certain_bytes: u64,
    /// How much more it may add, bytes.
    pub uncertain_bytes: u64,
}

/// A process of an image group.
#[derive(Debug, Clone, Copy)]
pub(super) struct Member<'a> {
    pub reading: &'a LastReading,
    pub image: Image,
    pub is_main: bool,
    /// Its sharing was read since the group last changed.
    pub is_current: bool,
    /// A live process is its child, of this group or of another.
    pub has_forked: bool,
}

/// What is known of the anonymous pages of a process whose sharing was read, corrected by what it grew and shrank since then.
#[derive(Debug, Clone, Copy, Default)]
struct KnownSharing {
    pss_bytes: u64,
    private_bytes: u64,
    /// What it may have copied by writing since, and what it unmapped, bytes. Others may still have those pages.
    uncertain_bytes: u64,
}

/// By how much a process's anonymous memory has grown since its sharing was read, and by how much it has shrunk, bytes. One
/// of the two is 0.
fn grown_and_shrunk(reading: &LastReading, sharing: &Sharing) -> (u64, u64) {
    let (now, then) = (reading.anonymous_bytes(), sharing.size.rss_bytes - sharing.size.shared_bytes);
    (now.saturating_sub(then), then.saturating_sub(now))
}

/// Carries a part of a process's anonymous pages forward to now, bytes. `then_bytes`: the part when the sharing was read. It is
/// taken to have grown and shrunk by as much as the process, and is no more than all that the process has.
fn carried(reading: &LastReading, sharing: &Sharing, then_bytes: u64) -> u64 {
    let (grown, shrunk) = grown_and_shrunk(reading, sharing);
    (then_bytes + grown).saturating_sub(shrunk).min(reading.anonymous_bytes())
}

impl Member<'_> {
    /// What is known of its anonymous pages, from its last reading and what it did since. All is 0 without a reading.
    fn known(&self, page_bytes: u64) -> KnownSharing {
        let Some(sharing) = &self.reading.sharing else { return KnownSharing::default() };
        let (grown, shrunk) = grown_and_shrunk(self.reading, sharing);
        // A page that is copied on write is a fault and no growth.
        let faults = self.reading.vitals.counts.minor_faults.saturating_sub(sharing.minor_faults);
        let faulted = faults.saturating_mul(page_bytes);
        // It can have copied only what it shares: at most all its pages less its proportional part of them and its growth.
        let shared = self.reading.anonymous_bytes().saturating_sub(sharing.rollup.pss_anon_bytes + grown);
        let copied = faulted.saturating_sub(grown).min(shared);
        KnownSharing {
            pss_bytes: carried(self.reading, sharing, sharing.rollup.pss_anon_bytes),
            private_bytes: self.carried_private(),
            uncertain_bytes: copied + shrunk,
        }
    }

    /// Whether all its anonymous pages are its own for certain. That is so if no other process of its group has memory (`is_alone`),
    /// and its image is known. An unknown image may be a copy of its parent's.
    fn owns_all(&self, is_alone: bool) -> bool {
        is_alone && self.image != Image::Unknown
    }

    /// The anonymous pages that it alone had when its sharing was read, carried forward, bytes; 0: that was never read.
    /// Children that it has forked since have those pages, too.
    fn carried_private(&self) -> u64 {
        let Some(sharing) = &self.reading.sharing else { return 0 };
        carried(self.reading, sharing, sharing.private_anon_bytes())
    }

    /// An upper bound of the anonymous pages that it alone has, bytes: all that it has, if its sharing was never read.
    fn most_private(&self) -> u64 {
        let Some(sharing) = &self.reading.sharing else { return self.reading.anonymous_bytes() };
        carried(self.reading, sharing, sharing.most_private_anon_bytes())
    }

    /// When its sharing was read, CLOCK_MONOTONIC nanoseconds; 0: never.
    fn read_ns(&self) -> u64 {
        self.reading.sharing.map_or(0, |sharing| sharing.at_ns)
    }

    /// By how much its anonymous memory exceeds its parent's RSS at the fork, bytes. The parent can't have those pages. 0: it is no
    /// fork child.
    fn grown_since_fork(&self) -> u64 {
        let Image::Forked { rss_at_fork_bytes } = self.image else { return 0 };
        self.reading.anonymous_bytes().saturating_sub(rss_at_fork_bytes)
    }

    /// What a process with an older relative adds. For certain, it adds its growth since the fork, or what it had alone when it was
    /// read. At most, it adds what it faulted in, since each fault can be a page that it copied. If it is no fork child, it adds at
    /// most all that it has.
    fn added_as_younger(&self, page_bytes: u64) -> Anonymous {
        let anonymous = self.reading.anonymous_bytes();
        let alone = self.carried_private();
        let Image::Forked { rss_at_fork_bytes } = self.image else {
            return Anonymous { certain_bytes: alone, uncertain_bytes: anonymous - alone };
        };
        let faulted = self.reading.vitals.counts.minor_faults.saturating_mul(page_bytes);
        let most =
            unshared_after_fork(self.reading.size.rss_bytes, rss_at_fork_bytes, faulted).min(anonymous);
        let certain_bytes = self.grown_since_fork().max(alone);
        Anonymous { certain_bytes, uncertain_bytes: most.saturating_sub(certain_bytes) }
    }
}

/// What each process of an image group adds to the footprint, oldest first. `are_read`: all were read since the group last
/// changed.
pub(super) fn of_group(members: &[Member], are_read: bool, page_bytes: u64) -> Vec<Anonymous> {
    match members {
        [member] => vec![of_one(member)],
        _ if are_read => of_read(members, None, page_bytes),
        _ => of_unread(members, page_bytes),
    }
}

/// What the only process of an image group adds to the footprint: all that it has. If its image is unknown, it may share
/// pages with its parent. Then only a reading tells what it adds.
fn of_one(member: &Member) -> Anonymous {
    let bytes = member.reading.anonymous_bytes();
    if member.image != Image::Unknown {
        return Anonymous { certain_bytes: bytes, uncertain_bytes: 0 };
    }
    let Some(sharing) = &member.reading.sharing else {
        return Anonymous { certain_bytes: 0, uncertain_bytes: bytes };
    };
    let certain_bytes = carried(member.reading, sharing, sharing.rollup.pss_anon_bytes);
    // What it shared with relatives that have ended since is its own now.
    let uncertain_bytes = if member.is_current { 0 } else { bytes - certain_bytes };
    Anonymous { certain_bytes, uncertain_bytes }
}

/// What each member adds to the footprint of the descendants, oldest first. The command's first process has no entry.
/// `are_read`: all were read since the group last changed.
pub(super) fn of_descendants(members: &[Member], are_read: bool, page_bytes: u64) -> Vec<Anonymous> {
    let main = members.iter().find(|member| member.is_main);
    let others: Vec<Member> = members.iter().filter(|member| !member.is_main).copied().collect();
    match main.filter(|_| are_read) {
        Some(main) => of_read(&others, Some(main), page_bytes),
        None => of_unread(&others, page_bytes),
    }
}

/// What each member adds, oldest first, if not all were read. The oldest adds all that it has, each other one what it does
/// not share for certain.
fn of_unread(members: &[Member], page_bytes: u64) -> Vec<Anonymous> {
    let mut added = Vec::with_capacity(members.len());
    let mut of_older = 0;
    let between_forks = copied_between_forks(members);
    for member in members {
        let bytes = member.reading.anonymous_bytes();
        let mut own = if added.is_empty() {
            let copied = member.reading.copied_since(page_bytes);
            // If it has children, it is taken for the parent of the others. Then `copied` and `between_forks` are the same copies, and
            // do not add up.
            let uncertain_bytes =
                if member.has_forked { copied.max(between_forks) } else { copied + between_forks };
            Anonymous { certain_bytes: bytes, uncertain_bytes }
        } else {
            member.added_as_younger(page_bytes)
        };
        // All members so far have at least what this one has.
        let more = bytes.saturating_sub(of_older + own.certain_bytes);
        own.certain_bytes += more;
        own.uncertain_bytes = own.uncertain_bytes.saturating_sub(more);
        // The older ones have unmapped what it inherited, so how much of their pages it still shares is unknown.
        if more > of_older / MUCH_MORE {
            own.uncertain_bytes += of_older.min(bytes);
        }
        of_older += own.certain_bytes;
        added.push(own);
    }
    added
}

/// How much younger members may share with each other alone, bytes: pages that their common parent copied after the forks of the
/// older ones, which have the pages from before. `members`: oldest first.
fn copied_between_forks(members: &[Member]) -> u64 {
    let mut forks = members.iter().filter(|member| matches!(member.image, Image::Forked { .. }));
    let Some(oldest) = forks.next() else { return 0 };
    let mut of_older = oldest.reading.copied_at_fork_bytes;
    let own = |member: &Member| {
        let copied = member.reading.copied_at_fork_bytes.saturating_sub(of_older);
        of_older += copied;
        copied.min(member.reading.anonymous_bytes())
    };
    forks.map(own).sum()
}

/// Memory that the members no longer share by their readings after `read_ns` (CLOCK_MONOTONIC), bytes. A relative's reading at `read_ns`
/// may count it as shared.
fn unshared_since(members: &[Member], read_ns: u64) -> u64 {
    let of_one =
        |member: &Member| member.reading.sharing.map_or(0, |sharing| sharing.unshared_since(read_ns));
    members.iter().map(of_one).sum()
}

/// What is known of the anonymous pages of the command's first process, where the footprint of its descendants alone is wanted.
#[derive(Default)]
struct LeftOut {
    /// Its proportional part of pages that the members have for certain, too.
    shared_bytes: u64,
    /// How much more its part of such pages may be.
    uncertain_bytes: u64,
}

impl LeftOut {
    /// Derives it from the last readings of this process and of the members.
    fn new(process: &Member, members: &[Member], page_bytes: u64) -> Self {
        let known = process.known(page_bytes);
        let alone = process.most_private();
        // Its reading shows these as shared, but they are its own now, since members no longer have them.
        let left_to_it = unshared_since(members, process.read_ns());
        Self {
            shared_bytes: known.pss_bytes.saturating_sub(alone).saturating_sub(left_to_it),
            uncertain_bytes: known.uncertain_bytes + alone.saturating_sub(known.private_bytes) + left_to_it,
        }
    }
}

/// What each member adds, oldest first, if all were read. Together they add the sum of their proportional sizes. The oldest counts in
/// full, and the others share the rest.
///
/// `without` is a process of the group that is no member: the command's first process, where the footprint of its descendants is
/// wanted. The proportional sizes of the members lack its part of the pages that they share with it. So that part is added to the sum.
///
/// The readings can be of different samples. Example: process A is read, then its relative B copies a page that both had, then B is
/// read. A's size has half of that page, though A now has all of it. If A is `without`, its half is in the sum, though no member has the
/// page. The `uncertain_bytes` contain both errors.
fn of_read(members: &[Member], without: Option<&Member>, page_bytes: u64) -> Vec<Anonymous> {
    let known: Vec<KnownSharing> = members.iter().map(|member| member.known(page_bytes)).collect();
    let left_out = without.map(|process| LeftOut::new(process, members, page_bytes)).unwrap_or_default();
    let footprint = known.iter().map(|known| known.pss_bytes).sum::<u64>() + left_out.shared_bytes;
    let added = divide(footprint, members, &known);
    let mut result = Vec::with_capacity(members.len());
    for ((certain_bytes, known), member) in added.into_iter().zip(&known).zip(members) {
        // Growth that was added to an old reading can be too much, but no process adds more than it has.
        let certain_bytes = certain_bytes.min(member.reading.anonymous_bytes());
        result.push(Anonymous { certain_bytes, uncertain_bytes: known.uncertain_bytes });
    }
    if let Some(first) = result.first_mut() {
        first.uncertain_bytes += left_out.uncertain_bytes;
    }
    // To read the member again that was read first would make this certain, so it counts there.
    let first_read = members.iter().map(Member::read_ns).enumerate().min_by_key(|(_, read_ns)| *read_ns);
    if let Some((at, read_ns)) = first_read
        && let Some(own) = result.get_mut(at)
    {
        own.uncertain_bytes += unshared_since(members, read_ns);
    }
    result
}

/// Divides a footprint among the members, oldest first, bytes. The footprint counts as no less than what the largest member
/// has. The oldest gets all that it has. Each other one gets what it alone has, and a part of the rest by what it shares: its
/// proportional size less what it alone has.
fn divide(footprint: u64, members: &[Member], known: &[KnownSharing]) -> Vec<u64> {
    let largest = members.iter().map(|member| member.reading.anonymous_bytes()).max().unwrap_or(0);
    let oldest = members.first().map_or(0, |member| member.reading.anonymous_bytes());
    // `largest` is at least `oldest`, so this is not below 0.
    let mut rest = footprint.max(largest) - oldest;
    let mut added: Vec<u64> = vec![0; members.len()];
    if let Some(first) = added.first_mut() {
        *first = oldest;
    }
    // Each other one gets what it alone has.
    for (bytes, known) in added.iter_mut().zip(known).skip(1) {
        *bytes = known.private_bytes.min(rest);
        rest -= *bytes;
    }
    // Then each takes its part of what those before it have left, by its weight among those that have not taken theirs. So
    // rounding loses nothing.
    let weight = |known: &KnownSharing| u128::from(known.pss_bytes.saturating_sub(known.private_bytes));
    let mut weights_left: u128 = known.iter().skip(1).map(weight).sum();
    for (bytes, known) in added.iter_mut().zip(known).skip(1) {
        if weights_left == 0 {
            break;
        }
        let part = (u128::from(rest) * weight(known) / weights_left) as u64;
        weights_left -= weight(known);
        rest -= part;
        *bytes += part;
    }
    // Something is still left if no reading shows shared pages, or if there is one member only.
    if let Some(last) = added.last_mut() {
        *last += rest;
    }
    added
}

/// How many more distinct anonymous pages the members may have than are counted, bytes. Pages that several of them share at one
/// address count as one page if no reading told them apart.
pub(super) fn unseen_bytes(members: &[Member]) -> u64 {
    members.iter().filter_map(|member| Some(member.reading.sharing?.rollup.unseen_bytes)).sum()
}

/// A process's proportional anonymous memory, as far as its last reading tells, bytes; 0: it was never read. `is_alone`: no
/// other process of its image group has memory.
pub(super) fn proportional_bytes(member: &Member, is_alone: bool) -> u64 {
    if member.owns_all(is_alone) {
        return member.reading.anonymous_bytes();
    }
    let Some(sharing) = &member.reading.sharing else { return 0 };
    carried(member.reading, sharing, sharing.rollup.pss_anon_bytes)
}

/// A process's private anonymous memory, as far as its last reading and its growth tell, bytes. `is_alone`: no other
/// process of its image group has memory.
pub(super) fn private_bytes(member: &Member, is_alone: bool) -> u64 {
    if member.owns_all(is_alone) {
        member.reading.anonymous_bytes()
    } else if member.is_current {
        member.carried_private()
    } else if member.has_forked {
        // Its children may have all of it.
        0
    } else {
        member.carried_private().max(member.grown_since_fork())
    }
}

/// An upper bound of the private anonymous memory that [`private_bytes`] misses because the process's sharing was never read, bytes.
/// If that is much of a footprint, the private part is reported as unknown.
///
/// It is 0 if the process is alone, so that all its memory is its own. It is also 0 if the sharing was read, even long ago: what
/// may have changed since is no part of this.
pub(super) fn unread_private_bytes(member: &Member, is_alone: bool, page_bytes: u64) -> u64 {
    if member.reading.sharing.is_some() || member.owns_all(is_alone) {
        return 0;
    }
    let most_bytes = match member.image {
        // At most, these are the pages that it touched since the fork. All others count as shared with the parent.
        Image::Forked { .. } => {
            let own = member.added_as_younger(page_bytes);
            own.certain_bytes + own.uncertain_bytes
        }
        // For any other image, all that it has can be its own.
        _ => member.reading.anonymous_bytes(),
    };
    most_bytes.saturating_sub(private_bytes(member, is_alone))
}

/// The pages of files, shared memory and hugetlbfs that no other process had mapped when its sharing was read, bytes: its
/// private pages less the private anonymous ones. It is an upper bound, unless all of its anonymous pages are its own or smaps was
/// read. 0: its sharing was never read. `is_alone`: no other process of its image group has memory.
pub(super) fn private_of_files_bytes(member: &Member, is_alone: bool) -> u64 {
    let Some(sharing) = &member.reading.sharing else { return 0 };
    let private_anonymous = if member.owns_all(is_alone) {
        sharing.size.rss_bytes - sharing.size.shared_bytes
    } else {
        sharing.private_anon_bytes()
    };
    sharing.rollup.private_bytes.saturating_sub(private_anonymous).min(member.reading.file_bytes())
}
