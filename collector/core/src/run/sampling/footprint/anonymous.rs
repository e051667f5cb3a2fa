//! The footprint of anonymous pages: those of one process, and those that fork relatives share.
//!
//! Only processes with the same image (a process, its fork children and theirs) share anonymous pages. So the sum of their
//! anonymous proportional sizes is their footprint. Alone in its group, a process needs no reading. The sum is exact if all
//! were read since the last fork, exec or end among them, and is carried forward by what grew since. Before that, the footprint
//! is at least the oldest process's pages, and what each other one grew by since its fork.
//!
//! Pages that the first process has alone are not the descendants'. smaps shows which these are.

use super::super::reading::{LastReading, Sharing};
use crate::run::tree::Image;
use crate::run::tree::program::unshared_after_fork;

/// A fork child that has more than all older relatives by one part in this many has other pages. Less can be the file pages
/// in its RSS at the fork.
const MUCH_MORE: u64 = 8;

/// Anonymous memory of a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Anonymous {
    /// What it adds to a footprint for certain, bytes.
    pub certain_bytes: u64,
    /// How much more that may be, bytes.
    pub uncertain_bytes: u64,
}

/// A process of an image group.
#[derive(Debug, Clone, Copy)]
pub(super) struct Member<'a> {
    pub reading: &'a LastReading,
    pub image: Image,
    pub is_main: bool,
    /// It was read since the group last changed.
    pub is_current: bool,
    /// A process of the group is its child.
    pub has_forked: bool,
}

/// What is known of one process that was read, carried forward to now, bytes.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    pss: u64,
    private: u64,
    /// What it may have copied by writing since, and what it unmapped, which others may still have.
    uncertain: u64,
}

/// Gives by how much a process's anonymous memory has grown and by how much shrunk since its sharing was read, bytes. One is 0.
fn change(reading: &LastReading, sharing: &Sharing) -> (u64, u64) {
    let (now, then) = (reading.anonymous_bytes(), sharing.size.rss_bytes - sharing.size.shared_bytes);
    (now.saturating_sub(then), then.saturating_sub(now))
}

/// Carries a figure of a process's anonymous pages forward to now. `then`: what was read of it, bytes. It has grown and shrunk
/// as the process has, and is no more than all that the process has.
fn carried(reading: &LastReading, sharing: &Sharing, then: u64) -> u64 {
    let (grown, shrunk) = change(reading, sharing);
    (then + grown).saturating_sub(shrunk).min(reading.anonymous_bytes())
}

impl Member<'_> {
    /// Gives what is known of its pages, from its last reading and what it did since.
    fn known(&self, page_bytes: u64) -> Known {
        let Some(sharing) = &self.reading.sharing else { return Known::default() };
        let (grown, shrunk) = change(self.reading, sharing);
        // A page that is copied on write is a fault and no growth.
        let faults = self.reading.vitals.minor_faults.saturating_sub(sharing.minor_faults);
        let faulted = faults.saturating_mul(page_bytes);
        // It can have copied only what it shared: its pages beyond its proportional part of them.
        let shared = self.reading.anonymous_bytes().saturating_sub(sharing.rollup.pss_anon_bytes + grown);
        let copied = faulted.saturating_sub(grown).min(shared);
        Known {
            pss: carried(self.reading, sharing, sharing.rollup.pss_anon_bytes),
            private: self.carried_private(),
            uncertain: copied + shrunk,
        }
    }

    /// Whether all its anonymous pages are its own for certain. No process is left that could have some of them, and its image is
    /// not possibly a copy of its parent's.
    fn owns_all(&self, is_alone: bool) -> bool {
        is_alone && self.image != Image::Unknown
    }

    /// Gives the anonymous pages that it alone had when it was read, carried forward, bytes. What it has forked since has
    /// them, too.
    fn carried_private(&self) -> u64 {
        let Some(sharing) = &self.reading.sharing else { return 0 };
        carried(self.reading, sharing, sharing.private_anon_bytes())
    }

    /// Gives the private anonymous memory that it has at most, bytes: all, if its sharing was never read.
    fn most_private(&self) -> u64 {
        let Some(sharing) = &self.reading.sharing else { return self.reading.anonymous_bytes() };
        carried(self.reading, sharing, sharing.most_private_anon_bytes())
    }

    /// Gives when its sharing was read, CLOCK_MONOTONIC nanoseconds; 0: never.
    fn read_ns(&self) -> u64 {
        self.reading.sharing.map_or(0, |sharing| sharing.at_ns)
    }

    /// Gives how much more anonymous memory it has than its parent had memory at the fork, bytes: none of that is the
    /// parent's. 0 of a process that is no fork child.
    fn grown_since_fork(&self) -> u64 {
        let Image::Forked { rss_at_fork_bytes } = self.image else { return 0 };
        self.reading.anonymous_bytes().saturating_sub(rss_at_fork_bytes)
    }

    /// Gives what a process with an older relative adds. For certain, that is its growth since the fork, or what it had alone
    /// when it was read. At most, it is what it faulted in: each fault can be a page that it copied.
    fn younger(&self, page_bytes: u64) -> Anonymous {
        let anonymous = self.reading.anonymous_bytes();
        let alone = self.carried_private();
        let Image::Forked { rss_at_fork_bytes } = self.image else {
            return Anonymous { certain_bytes: alone, uncertain_bytes: anonymous - alone };
        };
        let faulted = self.reading.vitals.minor_faults.saturating_mul(page_bytes);
        let most = unshared_after_fork(self.reading.size.rss_bytes, rss_at_fork_bytes, faulted).min(anonymous);
        let certain_bytes = self.grown_since_fork().max(alone);
        Anonymous { certain_bytes, uncertain_bytes: most.saturating_sub(certain_bytes) }
    }
}

/// Gives what each process of an image group adds, oldest first. All `are_read` since the group last changed, or not.
pub(super) fn of_group(members: &[Member], are_read: bool, page_bytes: u64) -> Vec<Anonymous> {
    match members {
        [member] => vec![of_one(member)],
        _ if are_read => of_read(members, None, page_bytes),
        _ => of_unread(members, page_bytes),
    }
}

/// Gives what the only process of an image group adds: all that it has. If nothing tells what its image is, it may share pages
/// with its parent. Then only a reading tells what it adds.
fn of_one(member: &Member) -> Anonymous {
    let bytes = member.reading.anonymous_bytes();
    if member.image != Image::Unknown {
        return Anonymous { certain_bytes: bytes, uncertain_bytes: 0 };
    }
    if member.reading.sharing.is_none() {
        return Anonymous { certain_bytes: 0, uncertain_bytes: bytes };
    }
    let certain_bytes = proportional_bytes(member, false);
    // What it shared with relatives that have ended since is its own now.
    let uncertain_bytes = if member.is_current { 0 } else { bytes - certain_bytes };
    Anonymous { certain_bytes, uncertain_bytes }
}

/// Gives what each member adds to the footprint of the descendants: the group without the command's first process, which has no
/// entry. All `are_read` since the group last changed, or not.
pub(super) fn of_descendants(members: &[Member], are_read: bool, page_bytes: u64) -> Vec<Anonymous> {
    let main = members.iter().find(|member| member.is_main);
    let others: Vec<Member> = members.iter().filter(|member| !member.is_main).copied().collect();
    match main.filter(|_| are_read) {
        Some(main) => of_read(&others, Some(main), page_bytes),
        None => of_unread(&others, page_bytes),
    }
}

/// Gives what each member adds, where not all were read. The oldest adds all that it has, each other one what it does not
/// share for certain.
fn of_unread(members: &[Member], page_bytes: u64) -> Vec<Anonymous> {
    let mut added = Vec::with_capacity(members.len());
    let mut of_older = 0;
    for member in members {
        let bytes = member.reading.anonymous_bytes();
        let mut own = if added.is_empty() {
            Anonymous { certain_bytes: bytes, uncertain_bytes: member.reading.copied_since(page_bytes) }
        } else {
            member.younger(page_bytes)
        };
        // All together have at least what this one has.
        let more = bytes.saturating_sub(of_older + own.certain_bytes);
        own.certain_bytes += more;
        own.uncertain_bytes = own.uncertain_bytes.saturating_sub(more);
        // The older ones have unmapped what it inherited, so little tells what they still share.
        if more > of_older / MUCH_MORE {
            own.uncertain_bytes += of_older.min(bytes);
        }
        of_older += own.certain_bytes;
        added.push(own);
    }
    added
}

/// Gives how much the members had stopped sharing by their own readings of what a relative still showed as shared with them,
/// bytes. `read_ns`: when the relative was read, CLOCK_MONOTONIC nanoseconds.
fn unshared_since(members: &[Member], read_ns: u64) -> u64 {
    let of_one =
        |member: &Member| member.reading.sharing.map_or(0, |sharing| sharing.unshared_since(read_ns));
    members.iter().map(of_one).sum()
}

/// What is known of the process that [`of_read`] leaves out, bytes.
#[derive(Default)]
struct LeftOut {
    /// Its proportional part of pages that the members have for certain, too.
    shared: u64,
    /// How much more that may be.
    uncertain: u64,
}

impl LeftOut {
    /// Takes it from the last readings of all.
    fn new(process: &Member, members: &[Member], page_bytes: u64) -> Self {
        let known = process.known(page_bytes);
        let alone = process.most_private();
        // Its reading shows as shared what is its own now, as members no longer have it.
        let left_to_it = unshared_since(members, process.read_ns());
        Self {
            shared: known.pss.saturating_sub(alone).saturating_sub(left_to_it),
            uncertain: known.uncertain + alone.saturating_sub(known.private) + left_to_it,
        }
    }
}

/// Gives what each member adds, where all were read: the sum of their proportional sizes, less what `without` alone has. The
/// oldest counts in full, the others share the rest.
///
/// They can be read in different samples. A page that one copied before its own reading and after a relative's counts too
/// little with the relative. With `without`, it can be in the sum though `without` alone has it by now.
fn of_read(members: &[Member], without: Option<&Member>, page_bytes: u64) -> Vec<Anonymous> {
    let known: Vec<Known> = members.iter().map(|member| member.known(page_bytes)).collect();
    let left_out = without.map(|process| LeftOut::new(process, members, page_bytes)).unwrap_or_default();
    let footprint = known.iter().map(|known| known.pss).sum::<u64>() + left_out.shared;
    let added = divide(footprint, members, &known);
    // What was carried forward can be too much: none adds more than it has.
    let of_member = |((certain_bytes, known), member): ((u64, &Known), &Member)| Anonymous {
        certain_bytes: certain_bytes.min(member.reading.anonymous_bytes()),
        uncertain_bytes: known.uncertain,
    };
    let mut result: Vec<Anonymous> = added.into_iter().zip(&known).zip(members).map(of_member).collect();
    if let Some(first) = result.first_mut() {
        first.uncertain_bytes += left_out.uncertain;
    }
    // Another reading of the one that was read first tells.
    let first_read = members.iter().map(Member::read_ns).enumerate().min_by_key(|(_, read_ns)| *read_ns);
    if let Some((place, read_ns)) = first_read
        && let Some(own) = result.get_mut(place)
    {
        own.uncertain_bytes += unshared_since(members, read_ns);
    }
    result
}

/// Divides a footprint among the members, oldest first, bytes. It is at least what the largest of them has. The oldest gets all
/// that it has. Each other one gets what it alone has, and its part of the rest, by what it shares: its proportional size less
/// what it alone has.
fn divide(footprint: u64, members: &[Member], known: &[Known]) -> Vec<u64> {
    let largest = members.iter().map(|member| member.reading.anonymous_bytes()).max().unwrap_or(0);
    let oldest = members.first().map_or(0, |member| member.reading.anonymous_bytes());
    // `oldest` is one of those whose maximum is `largest`, so this is not below 0.
    let mut rest = footprint.max(largest) - oldest;
    let mut added: Vec<u64> = vec![0; members.len()];
    if let Some(first) = added.first_mut() {
        *first = oldest;
    }
    // Of the others, each first gets what it alone has, then its part of what is left.
    for (bytes, known) in added.iter_mut().zip(known).skip(1) {
        *bytes = known.private.min(rest);
        rest -= *bytes;
    }
    // Each takes its part of what those before it have left, by its weight among those to come: rounding loses nothing.
    let weight = |known: &Known| u128::from(known.pss.saturating_sub(known.private));
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
    // There still is a rest if none shares anything by its reading, or if there is one member only.
    if let Some(last) = added.last_mut() {
        *last += rest;
    }
    added
}

/// Gives a process's proportional anonymous memory, as far as its last reading tells, bytes; 0: it was never read. `is_alone`: no
/// other process of its image group has memory.
pub(super) fn proportional_bytes(member: &Member, is_alone: bool) -> u64 {
    match &member.reading.sharing {
        _ if member.owns_all(is_alone) => member.reading.anonymous_bytes(),
        Some(sharing) => carried(member.reading, sharing, sharing.rollup.pss_anon_bytes),
        None => 0,
    }
}

/// Gives a process's private anonymous memory, as far as its last reading and its growth tell, bytes. `is_alone`: no other
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

/// Gives how much private anonymous memory [`private_bytes`] may lack because the process's sharing was never read, bytes: the
/// most that can be its own, less what counts. If that is much of a footprint, the private part is reported as unknown.
///
/// 0: it is alone, so that all of it is its own. Or its sharing was read, even if long ago: what may have changed since
/// is no part of this.
pub(super) fn unread_private_bytes(member: &Member, is_alone: bool, page_bytes: u64) -> u64 {
    if member.reading.sharing.is_some() || member.owns_all(is_alone) {
        return 0;
    }
    let most_bytes = match member.image {
        // At most the pages that it touched since the fork. The others are taken for its parent's, too.
        Image::Forked { .. } => {
            let own = member.younger(page_bytes);
            own.certain_bytes + own.uncertain_bytes
        }
        // Of any other image nothing tells how much it shares: all that it has can be its own.
        _ => member.reading.anonymous_bytes(),
    };
    most_bytes.saturating_sub(private_bytes(member, is_alone))
}

/// Gives the file pages that no other process had mapped when it was read, bytes: its private pages less the anonymous ones of
/// them. 0: it was never read. `is_alone`: no other process of its image group has memory.
pub(super) fn private_of_files_bytes(member: &Member, is_alone: bool) -> u64 {
    let Some(sharing) = &member.reading.sharing else { return 0 };
    let private_anonymous = if member.owns_all(is_alone) {
        sharing.size.rss_bytes - sharing.size.shared_bytes
    } else {
        sharing.private_anon_bytes()
    };
    sharing.rollup.private_bytes.saturating_sub(private_anonymous).min(member.reading.file_bytes())
}
