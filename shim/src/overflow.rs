//! Appends a record after the segment when the ring is full.

use core::mem::offset_of;
use core::sync::atomic::Ordering::Relaxed;

use gpu_track_abi::layout::Header;
use gpu_track_abi::overflow::{has_space, slot};
use gpu_track_abi::record::RECORD_WORDS;

use crate::{environment, segments, state, sys};

/// Appends a record to the session's file, which is found among the paths by the session's id. Returns whether it was written.
///
/// This needs a file descriptor for a moment. Another thread could close the descriptor and use its number again, or fork a child that
/// inherits it. So in a process with several threads nothing is written.
#[cold]
#[inline(never)]
pub(crate) fn append(header: &Header, record: &[u32; RECORD_WORDS]) -> bool {
    if !state::may_call_kernel() || !sys::is_single_threaded() {
        return false;
    }
    let slot = slot(record, header.head.0.load(Relaxed));
    environment::session_paths().any(|path| {
        let Some((fd, found)) = segments::open(path, libc::O_APPEND, sys::geteuid()) else { return false };
        let is_written = may_append(fd, &found, header) && sys::write(fd, &slot);
        sys::close(fd);
        is_written
    })
}

/// Whether a record may be appended to this file. It must be the session's and have space. There must be no RLIMIT_FSIZE, since
/// SIGXFSZ would end the process there.
fn may_append(fd: usize, found: &libc::stat, header: &Header) -> bool {
    sys::read_number(fd, offset_of!(Header, session_id)) == Some(header.session_id)
        && has_space(found.st_size as u64, found.st_blocks as u64)
        && !sys::has_file_size_limit()
}
