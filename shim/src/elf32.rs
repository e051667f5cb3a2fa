//! Whether an exec starts a 32-bit program, so that its LD_PRELOAD names a library for it
//! (`gpu_track_abi::preload::PLATFORM_DIRECTORY`). Asked only on a machine that has a dynamic linker for such programs.
//!
//! What can't be found out is "no": a 32-bit program's linker then prints that it ignores the shim, and goes on. Paths are
//! the kernel's to read: a bad one is an error of the call that it was meant for.

use core::ffi::{CStr, c_char, c_int};

use gpu_track_abi::layout::FLAG_ELF32;

use crate::environment::{Strings, environ};
use crate::{state, sys};

/// What an exec or spawn function was given.
#[derive(Clone, Copy)]
pub enum Program {
    /// A path, from the directory that a descriptor is for or AT_FDCWD.
    At(c_int, *const c_char),
    /// A name that is searched along PATH, unless there is a slash in it.
    Named(*const c_char),
    /// A descriptor of the program itself.
    Open(c_int),
}

impl Program {
    pub const fn path(path: *const c_char) -> Self {
        Self::At(libc::AT_FDCWD, path)
    }

    /// Whether it is a 32-bit ELF file, and the machine has a dynamic linker for such.
    ///
    /// # Safety
    /// A name must be a NUL-terminated string, or null; libc reads it, too.
    pub unsafe fn is_elf32(self) -> bool {
        if !state::sessions().any(|header| header.flags & FLAG_ELF32 != 0) || !state::may_call() {
            return false;
        }
        match self {
            Self::At(directory, path) => is_elf32_at(directory, path) == Some(true),
            Self::Open(file) => sys::is_program(file, c"".as_ptr()) && has_class_32(file as usize),
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

/// `None` if it is no program, or can't be read.
fn is_elf32_at(directory: c_int, path: *const c_char) -> Option<bool> {
    // To open a device may have an effect.
    if !sys::is_program(directory, path) {
        return None;
    }
    let file = sys::open_at(directory, path, libc::O_RDONLY | libc::O_NONBLOCK)?;
    let is_elf32 = has_class_32(file);
    sys::close(file);
    Some(is_elf32)
}

/// The file's first bytes (elf(5): EI_MAG0 to EI_CLASS).
fn has_class_32(file: usize) -> bool {
    sys::read_number(file, 0).is_some_and(|number| number.to_le_bytes().starts_with(b"\x7fELF\x01"))
}

/// The first along PATH that is a program and can be read.
#[inline(never)]
fn search(name: &[u8]) -> bool {
    let mut room = [0u8; libc::PATH_MAX as usize];
    // SAFETY: libc's environment.
    let directories = unsafe { Strings::new(environ) }.first_value("PATH").unwrap_or(b"/bin:/usr/bin");
    directories
        .split(|b| *b == b':')
        .find_map(|directory| {
            let slash: &[u8] = if directory.is_empty() { b"" } else { b"/" };
            let length = directory.len() + slash.len() + name.len();
            if length >= room.len() {
                return None;
            }
            let path = directory.iter().chain(slash).chain(name).chain(b"\0");
            room.iter_mut().zip(path).for_each(|(to, from)| *to = *from);
            is_elf32_at(libc::AT_FDCWD, room.as_ptr().cast())
        })
        .unwrap_or(false)
}
