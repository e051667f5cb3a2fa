//! Whether an exec starts a 32-bit program, so that its LD_PRELOAD names a library for it
//! (`gpu_track_abi::PLATFORM_DIRECTORY`). Asked only on a machine that has a dynamic linker for such programs.
//!
//! What can't be found out is "no": a 32-bit program's linker then prints that it ignores the shim, and goes on.

use core::ffi::{CStr, c_char, c_int};

use gpu_track_abi::ENV_PATH;
use gpu_track_abi::layout::FLAG_ELF32;

use crate::envp::{self, Strings};
use crate::{state, sys};

/// What an exec or spawn function was given.
#[derive(Clone, Copy)]
pub enum Program {
    /// A path, from the directory that a descriptor is for or AT_FDCWD. With none, the descriptor is the program.
    At(c_int, *const c_char),
    /// A name that is searched along PATH, unless there is a slash in it.
    Named(*const c_char),
}

impl Program {
    pub const fn path(path: *const c_char) -> Self {
        Self::At(libc::AT_FDCWD, path)
    }

    /// Whether it is a 32-bit ELF file, and the machine has a dynamic linker for such.
    ///
    /// # Safety
    /// The path or name must be a NUL-terminated string, or null.
    pub unsafe fn is_elf32(self) -> bool {
        if !state::sessions().any(|header| header.flags & FLAG_ELF32 != 0) || !state::may_call() {
            return false;
        }
        let (Self::At(_, text) | Self::Named(text)) = self;
        if text.is_null() {
            return false;
        }
        // SAFETY: promised by the caller.
        let text = unsafe { CStr::from_ptr(text) };
        match self {
            Self::At(descriptor, _) if text.is_empty() => {
                sys::regular_file_at(descriptor, c"") && usize::try_from(descriptor).is_ok_and(has_class_32)
            }
            Self::At(directory, _) => is_elf32_at(directory, text) == Some(true),
            Self::Named(_) if text.to_bytes().contains(&b'/') => {
                is_elf32_at(libc::AT_FDCWD, text) == Some(true)
            }
            Self::Named(_) => search(text.to_bytes()),
        }
    }
}

/// `None` if it is no file that can be read.
fn is_elf32_at(directory: c_int, path: &CStr) -> Option<bool> {
    // To open a device may have an effect.
    if !sys::regular_file_at(directory, path) {
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

/// As exec(3) does it, but for what is no readable regular file.
#[inline(never)]
fn search(name: &[u8]) -> bool {
    let mut room = [0u8; libc::PATH_MAX as usize];
    // SAFETY: libc's environment.
    let directories = unsafe { Strings::new(envp::environ) }.value(ENV_PATH).unwrap_or(b"/bin:/usr/bin");
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
            is_elf32_at(libc::AT_FDCWD, CStr::from_bytes_until_nul(&room).ok()?)
        })
        .unwrap_or(false)
}
