//! Appends a record behind the segment when the ring is full.

use core::mem::offset_of;
use core::sync::atomic::Ordering::Relaxed;

use gpu_track_abi::layout::Header;
use gpu_track_abi::overflow::{has_space, slot};
use gpu_track_abi::record::RECORD_WORDS;

use crate::{environment, segments, state, sys};

/// Appends a record to the session's file, found among the paths by the session's id. Returns whether it was written.
///
/// This needs a file descriptor for a moment. Another thread that closes all descriptors or forks could reuse or
/// inherit it, so a process with several threads drops the record instead.
#[cold]
#[inline(never)]
pub(crate) fn append(header: &Header, record: &[u32; RECORD_WORDS]) -> bool {
    if !state::may_call_kernel() || !sys::is_single_threaded() {
        return false;
    }
    let slot = slot(record, header.head.0.load(Relaxed));
    environment::session_paths().any(|path| {
        let Some((fd, found)) = segments::open(path, libc::O_APPEND) else { return false };
        let is_written = may_append(fd, &found, header) && sys::write(fd, &slot);
        sys::close(fd);
        is_written
    })
}

/// Whether this file is the session's and has space, and no RLIMIT_FSIZE can end the process by SIGXFSZ.
fn may_append(fd: usize, found: &libc::stat, header: &Header) -> bool {
    sys::read_number(fd, offset_of!(Header, session_id)) == Some(header.session_id)
        && has_space(found.st_size as u64, found.st_blocks as u64)
        && !sys::has_file_size_limit()
}
