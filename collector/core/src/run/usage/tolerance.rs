//! How much of a sum may be unread for the sum to count as known.

/// A sum of proportional or private sizes is known if at most this many bytes of it were not read. Smaller processes are
/// never read.
const NEGLIGIBLE_BYTES: u64 = 1 << 18;
/// Of a larger sum of proportional sizes, one part in this many may be unread.
const PROPORTIONAL_PART: u64 = 100;
/// Of a larger sum of private sizes, which are good to 5%, one part in this many may be unread.
const PRIVATE_PART: u64 = 20;

/// Whether the proportional size of memory of this size is known, if that of `unread_bytes` of it was not read.
pub(super) fn is_proportional_known(unread_bytes: u64, of_bytes: u64) -> bool {
    unread_bytes <= NEGLIGIBLE_BYTES.max(of_bytes / PROPORTIONAL_PART)
}

/// Whether the private part of memory of this size is known, if `unread_bytes` more may be private.
pub(super) fn is_private_known(unread_bytes: u64, of_bytes: u64) -> bool {
    unread_bytes <= NEGLIGIBLE_BYTES.max(of_bytes / PRIVATE_PART)
}
