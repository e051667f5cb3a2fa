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
use crate::run::tree::program::fork_share;

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

/// Gives by how much its anonymous memory has grown and shrunk since its sharing was read, bytes.
fn change(reading: &LastReading, sharing: &Sharing) -> (u64, u64) {
    let (now, then) = (reading.anonymous_bytes(), sharing.size.rss_bytes - sharing.size.shared_bytes);
    (now.saturating_sub(then), then.saturating_sub(now))
}

/// Carries a figure of its anonymous pages forward that was read `then`: with the growth since, bytes.
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
        let of_others = self.reading.anonymous_bytes().saturating_sub(sharing.rollup.pss_anon_bytes + grown);
        Known {
            pss: carried(self.reading, sharing, sharing.rollup.pss_anon_bytes),
            private: self.carried_private(),
            uncertain: faults.saturating_mul(page_bytes).saturating_sub(grown).min(of_others) + shrunk,
        }
    }

    /// Gives the anonymous pages that it alone had when it was read, carried forward, bytes. What it has forked since has
    /// them, too.
    fn carried_private(&self) -> u64 {
        let Some(sharing) = &self.reading.sharing else { return 0 };
        carried(self.reading, sharing, sharing.private_anon_bytes())
    }

    /// Gives the private anonymous memory that it has at most, bytes.
    fn most_private(&self) -> u64 {
        let Some(sharing) = &self.reading.sharing else { return self.reading.anonymous_bytes() };
        carried(self.reading, sharing, sharing.most_private_anon_bytes())
    }

    /// Gives when its sharing was read, CLOCK_MONOTONIC nanoseconds; 0: never.
    fn read_ns(&self) -> u64 {
        self.reading.sharing.map_or(0, |sharing| sharing.at_ns)
    }

    /// Gives how much more anonymous memory it has than its parent had memory at the fork, bytes: none of that is the
    /// parent's.
    fn grown_since_fork(&self) -> u64 {
        let Image::Forked { rss_at_fork_bytes } = self.image else { return 0 };
        self.reading.anonymous_bytes().saturating_sub(rss_at_fork_bytes)
    }

    /// Gives what a process with an older relative adds: its growth since the fork or what it had alone when read, and what
    /// it faulted in.
    fn younger(&self, page_bytes: u64) -> Anonymous {
        let anonymous = self.reading.anonymous_bytes();
        let alone = self.carried_private();
        let Image::Forked { rss_at_fork_bytes } = self.image else {
            return Anonymous { certain_bytes: alone, uncertain_bytes: anonymous - alone };
        };
        let faulted = self.reading.vitals.minor_faults.saturating_mul(page_bytes);
        let most = fork_share(self.reading.size.rss_bytes, rss_at_fork_bytes, faulted).min(anonymous);
        let certain_bytes = self.grown_since_fork().max(alone);
        Anonymous { certain_bytes, uncertain_bytes: most.saturating_sub(certain_bytes) }
    }
}

/// Gives what each process of an image group adds, oldest first. All `are_read` since the group last changed, or not.
pub(super) fn of_group(members: &[Member], are_read: bool, page_bytes: u64) -> Vec<Anonymous> {
    if let [member] = members {
        let bytes = member.reading.anonymous_bytes();
        return vec![match (member.image, &member.reading.sharing) {
            (Image::Unknown, None) => Anonymous { certain_bytes: 0, uncertain_bytes: bytes },
            (Image::Unknown, Some(_)) => {
                let certain_bytes = proportional_bytes(member, false);
                // What it shared with relatives that have ended since is its own now.
                let uncertain_bytes = if member.is_current { 0 } else { bytes - certain_bytes };
                Anonymous { certain_bytes, uncertain_bytes }
            }
            _ => Anonymous { certain_bytes: bytes, uncertain_bytes: 0 },
        }];
    }
    if are_read { of_read(members, None, page_bytes) } else { of_unread(members, page_bytes) }
}

/// Gives what each member adds to the footprint of the descendants: the group without the command's first process.
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
    let mut sum = 0;
    let mut of_member = |(place, member): (usize, &Member)| {
        let bytes = member.reading.anonymous_bytes();
        let mut own = match place {
            0 => Anonymous { certain_bytes: bytes, uncertain_bytes: member.reading.copied_since(page_bytes) },
            _ => member.younger(page_bytes),
        };
        // None has more than all.
        let more = bytes.saturating_sub(sum + own.certain_bytes);
        own.certain_bytes += more;
        own.uncertain_bytes = own.uncertain_bytes.saturating_sub(more);
        // The older ones have unmapped what it inherited, so little tells what they still share.
        if more > sum / MUCH_MORE {
            own.uncertain_bytes += sum.min(bytes);
        }
        sum += own.certain_bytes;
        own
    };
    members.iter().enumerate().map(&mut of_member).collect()
}

/// Gives how much of what a relative that was read at `read_ns` shares these had left by their own readings, bytes.
fn unshared_since(members: &[Member], read_ns: u64) -> u64 {
    let grown = |member: &Member| member.reading.sharing.map_or(0, |sharing| sharing.unshared_since(read_ns));
    members.iter().map(grown).sum()
}

/// Gives what each member adds, where all were read: the sum of their proportional sizes, less what `without` alone has. The
/// oldest counts in full, the others share the rest.
///
/// They can be read in different samples. A page that one copied before its own reading and after a relative's counts too
/// little with the relative. With `without`, it can be in the sum though `without` alone has it by now.
fn of_read(members: &[Member], without: Option<&Member>, page_bytes: u64) -> Vec<Anonymous> {
    let known: Vec<Known> = members.iter().map(|member| member.known(page_bytes)).collect();
    let without_known = without.map(|member| member.known(page_bytes)).unwrap_or_default();
    let alone = without.map_or(0, Member::most_private);
    let left_to_without = without.map_or(0, |member| unshared_since(members, member.read_ns()));
    let shared_with = without_known.pss.saturating_sub(alone).saturating_sub(left_to_without);
    let sum = known.iter().map(|known| known.pss).sum::<u64>() + shared_with;
    let largest = members.iter().map(|member| member.reading.anonymous_bytes()).max().unwrap_or(0);
    let total = sum.max(largest);
    let oldest = members.first().map_or(0, |member| member.reading.anonymous_bytes());
    let mut rest = total - oldest;
    let mut added: Vec<u64> = vec![0; members.len()];
    if let Some(first) = added.first_mut() {
        *first = oldest;
    }
    // What a process alone has is its own for certain; the rest is divided by what each has of it.
    for (bytes, known) in added.iter_mut().zip(&known).skip(1) {
        *bytes = known.private.min(rest);
        rest -= *bytes;
    }
    let weight = |known: &Known| u128::from(known.pss.saturating_sub(known.private));
    let mut weights: u128 = known.iter().skip(1).map(weight).sum();
    for (bytes, known) in added.iter_mut().zip(&known).skip(1) {
        if weights == 0 {
            break;
        }
        let part = (u128::from(rest) * weight(known) / weights) as u64;
        weights -= weight(known);
        rest -= part;
        *bytes += part;
    }
    if let Some(last) = added.last_mut() {
        *last += rest;
    }
    // What was carried forward can be too much: none adds more than it has.
    let of_member = |((certain_bytes, known), member): ((u64, &Known), &Member)| Anonymous {
        certain_bytes: certain_bytes.min(member.reading.anonymous_bytes()),
        uncertain_bytes: known.uncertain,
    };
    let mut result: Vec<Anonymous> = added.into_iter().zip(&known).zip(members).map(of_member).collect();
    if let Some(first) = result.first_mut() {
        first.uncertain_bytes += without_known.uncertain + (alone - without_known.private.min(alone));
        first.uncertain_bytes += left_to_without;
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

/// Gives its proportional anonymous memory, as far as its last reading tells, bytes.
pub(super) fn proportional_bytes(member: &Member, is_alone: bool) -> u64 {
    match &member.reading.sharing {
        _ if is_alone && member.image != Image::Unknown => member.reading.anonymous_bytes(),
        Some(sharing) => carried(member.reading, sharing, sharing.rollup.pss_anon_bytes),
        None => 0,
    }
}

/// Gives its private anonymous memory, as far as its last reading and its growth tell, bytes.
pub(super) fn private_bytes(member: &Member, is_alone: bool) -> u64 {
    if is_alone && member.image != Image::Unknown {
        member.reading.anonymous_bytes()
    } else if member.is_current {
        member.carried_private()
    } else if member.has_forked {
        0
    } else {
        member.carried_private().max(member.grown_since_fork())
    }
}

/// Gives how much more private anonymous memory the process may have than is counted, bytes; 0: its sharing was read, or
/// it is alone, so that all of it is its own.
pub(super) fn unread_private_bytes(member: &Member, is_alone: bool, page_bytes: u64) -> u64 {
    if member.reading.sharing.is_some() || (is_alone && member.image != Image::Unknown) {
        return 0;
    }
    let most = match member.image {
        // What a fork child did not touch is its parent's, too.
        Image::Forked { .. } => {
            let own = member.younger(page_bytes);
            own.certain_bytes + own.uncertain_bytes
        }
        _ => member.reading.anonymous_bytes(),
    };
    most.saturating_sub(private_bytes(member, is_alone))
}

/// Gives the file pages that no other process had mapped when it was read, bytes.
pub(super) fn private_of_files_bytes(member: &Member, is_alone: bool) -> u64 {
    let Some(sharing) = &member.reading.sharing else { return 0 };
    let anonymous = match is_alone && member.image != Image::Unknown {
        true => sharing.size.rss_bytes - sharing.size.shared_bytes,
        false => sharing.private_anon_bytes(),
    };
    sharing.rollup.private_bytes.saturating_sub(anonymous).min(member.reading.file_bytes())
}
