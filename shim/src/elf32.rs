//! Whether an exec or spawn function starts a 32-bit program, which needs another LD_PRELOAD
//! (`gpu_track_abi::preload::PLATFORM_DIRECTORY`). Checked only on a machine that has a dynamic linker for such
//! programs.
//!
//! If it can't be found out, the answer is "no": the 32-bit linker then prints that it ignores the shim, and the
//! program runs. Only the kernel reads paths, so a bad pointer is an error of the call that it was passed to.

use core::ffi::{CStr, c_char, c_int};

use gpu_track_abi::layout::FLAG_ELF32;

use crate::environment::{Strings, environ};
use crate::{state, sys};

/// The program that an exec or spawn function was given.
#[derive(Clone, Copy)]
pub(crate) enum Program {
    /// A path, relative to the directory of a descriptor or AT_FDCWD.
    At(c_int, *const c_char),
    /// A name to be searched along PATH, unless it has a slash.
    Named(*const c_char),
    /// A descriptor of the program's file.
    Open(c_int),
}

impl Program {
    pub(crate) const fn path(path: *const c_char) -> Self {
        Self::At(libc::AT_FDCWD, path)
    }

    /// Whether it is a 32-bit ELF file and the machine has a dynamic linker for such.
    ///
    /// # Safety
    /// A name must be a NUL-terminated string or null.
    pub(crate) unsafe fn is_elf32(self) -> bool {
        if !state::sessions().any(|header| header.flags & FLAG_ELF32 != 0) || !state::may_call_kernel() {
            return false;
        }
        match self {
            Self::At(directory, path) => is_elf32_at(directory, path) == Some(true),
            Self::Open(file) => sys::is_program(file, c"".as_ptr()) && has_elf32_header(file as usize),
            Self::Named(name) if name.is_null() => false,
            Self::Named(name) => {
                // SAFETY: promised by the caller.
                let text = unsafe { CStr::from_ptr(name) }.to_bytes();
                if text.contains(&b'/') {
                    is_elf32_at(libc::AT_FDCWD, name) == Some(true)
                } else {
                    search(text)
                }
            }
        }
    }
}

/// `None` if it is no program or can't be read.
fn is_elf32_at(directory: c_int, path: *const c_char) -> Option<bool> {
    // Checked first, because opening a device may have side effects.
    if !sys::is_program(directory, path) {
        return None;
    }
    let file = sys::open_at(directory, path, libc::O_RDONLY | libc::O_NONBLOCK)?;
    let is_elf32 = has_elf32_header(file);
    sys::close(file);
    Some(is_elf32)
}

/// Compares the file's first bytes, EI_MAG0 to EI_CLASS (elf(5)).
fn has_elf32_header(file: usize) -> bool {
    sys::read_number(file, 0).is_some_and(|number| number.to_le_bytes().starts_with(b"\x7fELF\x01"))
}

/// Checks the first program along PATH that can be read. Without PATH, the search is glibc's (execvp(3)).
#[inline(never)]
fn search(name: &[u8]) -> bool {
    let mut buffer = [0u8; libc::PATH_MAX as usize];
    // SAFETY: libc's environment is a null-terminated array of strings.
    let directories = unsafe { Strings::new(environ) }.first_value("PATH").unwrap_or(b"/bin:/usr/bin");
    directories
        .split(|b| *b == b':')
        .find_map(|directory| {
            let slash: &[u8] = if directory.is_empty() { b"" } else { b"/" };
            let length = directory.len() + slash.len() + name.len();
            if length >= buffer.len() {
                return None;
            }
            let path = directory.iter().chain(slash).chain(name).chain(b"\0");
            buffer.iter_mut().zip(path).for_each(|(to, from)| *to = *from);
            is_elf32_at(libc::AT_FDCWD, buffer.as_ptr().cast())
        })
        .unwrap_or(false)
}
