//! A record that found the ring full.

use core::mem::offset_of;
use core::sync::atomic::Ordering::Relaxed;

use gpu_track_abi::layout::Header;
use gpu_track_abi::overflow::{has_room, slot};
use gpu_track_abi::record::RECORD_WORDS;

use crate::{environment, session, state, sys};

/// Append a record behind the session's segment; whether it is there.
///
/// It takes a descriptor for a moment. Another thread that closes all descriptors, or forks, could make a file of the
/// program's out of it, or keep it: a process that has other threads gives the record up instead.
#[cold]
#[inline(never)]
pub fn append(header: &Header, record: &[u32; RECORD_WORDS]) -> bool {
    if !state::may_call() || !sys::is_single_threaded() {
        return false;
    }
    let slot = slot(record, header.head.0.load(Relaxed));
    environment::session_paths().any(|path| {
        let Some(fd) = session::open(path, libc::O_APPEND) else { return false };
        let is_written = may_append(fd, header) && sys::write(fd, &slot);
        sys::close(fd);
        is_written
    })
}

/// Whether this file is the session's, takes more, and this process may make files of any size.
fn may_append(fd: usize, header: &Header) -> bool {
    sys::read_number(fd, offset_of!(Header, session_id)) == Some(header.session_id)
        && sys::fstat(fd).is_some_and(|s| {
            let size = s.st_size as u64;
            s.st_mode & libc::S_IFMT == libc::S_IFREG
                && has_room(size, s.st_blocks as u64)
                // Beyond it a write would end the program.
                && !sys::has_file_size_limit()
        })
}
