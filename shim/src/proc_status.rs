//! Reads VmHWM, the peak RSS of this image. ru_maxrss survives exec, so it may be the peak of an earlier image.

use crate::sys;

/// Reads VmHWM, KiB; 0 if /proc can't be read.
pub(crate) fn vm_hwm_kib() -> u64 {
    // The line is within the first kilobyte, unless the Groups line before it is long.
    let mut buffer = [0u8; 4096];
    let Some(fd) = sys::open(c"/proc/self/status", libc::O_RDONLY) else { return 0 };
    let length = sys::read(fd, &mut buffer);
    sys::close(fd);
    buffer.get(..length).map_or(0, parse)
}

/// VmHWM in the text of /proc/self/status, KiB; 0: the text does not have it.
fn parse(text: &[u8]) -> u64 {
    let Some(line) = text.split(|b| *b == b'\n').find_map(|line| line.strip_prefix(b"VmHWM:")) else {
        return 0;
    };
    line.iter()
        .filter(|b| b.is_ascii_digit())
        .fold(0u64, |n, digit| n.wrapping_mul(10).wrapping_add(u64::from(digit - b'0')))
}
