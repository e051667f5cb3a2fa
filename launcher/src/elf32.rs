//! 32-bit programs on a 64-bit machine. Their dynamic linker cannot load the shim, and would print an error for each
//! program. It gets an empty library of its own class instead.
//!
//! Their LD_PRELOAD names the shim as `${PLATFORM}/NAME` in the shim's directory. ld.so(8) replaces the token by the
//! program's platform. For 64-bit programs, links such as `x86_64` lead back to the shim. For 32-bit programs, `i686/`
//! holds the empty library under the shim's name. The launcher puts the token into the command's LD_PRELOAD, the shim does
//! so at each exec, and children inherit it. None of this is done on a machine without a 32-bit dynamic linker.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The 32-bit dynamic linker, by the i386 psABI. Only x86_64 is supported.
const LINKER: Option<&str> = if cfg!(target_arch = "x86_64") { Some("/lib/ld-linux.so.2") } else { None };

/// The directory of the empty library, beside the shim.
pub(crate) const DIRECTORY: &str = "i686";

/// Links for every value of `${PLATFORM}`:
///
/// - For 64-bit programs, glibc uses the kernel's name for the platform, or a name for the processor
///   (init_cpu_features in sysdeps/x86/cpu-features.c).
/// - musl does not know such tokens and looks for a directory of that name.
/// - For 32-bit programs, an emulated kernel can have other names.
pub(crate) const LINKS: [(&str, &str); 7] = [
    ("x86_64", "."),
    ("haswell", "."),
    ("xeon_phi", "."),
    ("${PLATFORM}", "."),
    ("i586", DIRECTORY),
    ("i486", DIRECTORY),
    ("i386", DIRECTORY),
];

/// Whether the machine can run dynamically linked 32-bit programs.
pub(crate) fn is_supported() -> bool {
    LINKER.is_some_and(|linker| Path::new(linker).exists())
}

/// Whether the library for 32-bit programs is beside the shim at this path.
pub(crate) fn is_installed(shim: &Path) -> bool {
    let (Some(directory), Some(name)) = (shim.parent(), shim.file_name()) else { return false };
    let names = LINKS.iter().map(|(link, _)| *link).chain([DIRECTORY]);
    names.map(|beside| directory.join(beside).join(name)).all(|path| path.exists())
}

/// Whether a command, searched in PATH as execvp(3) does it, is a 32-bit program that can be read.
pub(crate) fn is_elf32(command: &OsStr) -> bool {
    let is_elf32_file = |path: &Path| -> io::Result<bool> {
        let found = fs::metadata(path)?;
        // Only regular files are opened: opening a device can have side effects.
        if !found.is_file() || found.permissions().mode() & 0o111 == 0 {
            return Err(io::ErrorKind::NotFound.into());
        }
        let mut start = [0; 5];
        Ok(File::open(path)?.read_exact(&mut start).is_ok_and(|()| start == *b"\x7fELF\x01"))
    };
    if command.as_bytes().contains(&b'/') {
        return is_elf32_file(Path::new(command)).unwrap_or(false);
    }
    let directories = env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    env::split_paths(&directories)
        .find_map(|directory| is_elf32_file(&directory.join(command)).ok())
        .unwrap_or(false)
}

/// A shared library for i386 without symbols and dependencies (elf(5)). It has a header, three program headers, the
/// dynamic section, a hash table, the null symbol, and an empty string.
pub(crate) fn empty_library() -> Vec<u8> {
    const HEADER: u32 = 52;
    const PROGRAM_HEADER: u32 = 32;
    const DYNAMIC: u32 = HEADER + 3 * PROGRAM_HEADER;
    const DYNAMIC_SIZE: u32 = 6 * 8;
    const HASH: u32 = DYNAMIC + DYNAMIC_SIZE;
    const SYMBOL: u32 = HASH + 4 * 4;
    const STRING: u32 = SYMBOL + 16;
    const SIZE: u32 = STRING + 4;
    const PAGE: u32 = 4096;
    const READ_WRITE: u32 = 6;
    let half = |low: u32, high: u32| low | high << 16;
    let segment =
        |kind: u32, at: u32, size: u32, align: u32| [kind, at, at, at, size, size, READ_WRITE, align];
    let words: Vec<u32> = [
        // ELFCLASS32, ELFDATA2LSB, EV_CURRENT; ET_DYN, EM_386.
        &[u32::from_le_bytes(*b"\x7fELF"), u32::from_le_bytes([1, 1, 1, 0]), 0, 0, half(3, 3), 1][..],
        // No entry, no sections.
        &[0, HEADER, 0, 0, half(HEADER, PROGRAM_HEADER), half(3, 0), 0],
        // PT_LOAD: writable, because glibc adds the load address to the addresses in the dynamic section.
        &segment(1, 0, SIZE, PAGE),
        // PT_DYNAMIC.
        &segment(2, DYNAMIC, DYNAMIC_SIZE, 4),
        // PT_GNU_STACK: without it the process's stack would become executable.
        &segment(0x6474_e551, 0, 0, 16),
        // DT_HASH, DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_SYMENT, DT_NULL.
        &[4, HASH, 5, STRING, 6, SYMBOL, 10, 1, 11, 16, 0, 0],
        // One bucket and one chain, both empty.
        &[1, 1, 0, 0],
        &[0; 4],
        &[0],
    ]
    .concat();
    debug_assert_eq!(words.len() * 4, SIZE as usize);
    words.into_iter().flat_map(u32::to_le_bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: SEE-62
    #[test]
    fn elf_class_of_a_command_is_detected() {
        let directory = tempfile::tempdir().unwrap();
        let named = |name: &str, content: &[u8]| {
            let path = directory.path().join(name);
            fs::write(&path, content).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            path.into_os_string()
        };
        let narrow = named("narrow", &empty_library());
        assert!(is_elf32(&narrow));
        fs::set_permissions(&narrow, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(!is_elf32(&narrow), "it is not executable");
        assert!(!is_elf32(&named("short", b"\x7fELF")));
        assert!(!is_elf32(&named("script", b"#!/bin/sh\n")));
        assert!(!is_elf32(directory.path().as_os_str()));
        for wide in ["/proc/self/exe", "sh", "/dev/null", "nowhere to be found", ""] {
            assert!(!is_elf32(wide.as_ref()), "{wide}");
        }
    }
}
