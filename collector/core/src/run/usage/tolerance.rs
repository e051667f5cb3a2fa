//! How much of a sum may be unread for the sum to count as known.

/// A sum of proportional or private sizes counts as known if at most this many bytes of it were not read. Processes smaller than
/// this are never read.
const NEGLIGIBLE_BYTES: u64 = 1 << 18;
/// One part in this many of a larger sum of proportional sizes may be unread.
const PROPORTIONAL_PART: u64 = 100;
/// One part in this many of a larger sum of private sizes may be unread: these are accurate to 5%.
const PRIVATE_PART: u64 = 20;

/// Whether the proportional size of `of_bytes` of memory counts as known, although it was not read for `unread_bytes` of them.
pub(super) fn is_proportional_known(unread_bytes: u64, of_bytes: u64) -> bool {
    unread_bytes <= NEGLIGIBLE_BYTES.max(of_bytes / PROPORTIONAL_PART)
}

/// Whether the private part of `of_bytes` of memory counts as known, although `unread_bytes` more may be private.
pub(super) fn is_private_known(unread_bytes: u64, of_bytes: u64) -> bool {
    unread_bytes <= NEGLIGIBLE_BYTES.max(of_bytes / PRIVATE_PART)
}
