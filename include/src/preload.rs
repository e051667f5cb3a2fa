//! The shim's entry in an LD_PRELOAD (ld.so(8): paths, separated by colons or spaces).

use crate::record::abi_version;

/// The start of a shim's file name; the rest is its content hash. An LD_PRELOAD entry whose base name starts with
/// this is a shim of this ABI, so no second one is added.
pub const SHIM_PREFIX: &str = concat!("libgpu_track_shim.v", abi_version!(), ".");

/// The directory of the shim in the LD_PRELOAD of a 32-bit program, in a session with [`crate::layout::FLAG_ELF32`].
///
/// The dynamic linker expands it to `x86_64` in a 64-bit program and to `i686` in a 32-bit one, so each loads a
/// library of its own class. Without it, the 32-bit linker prints an error line for the 64-bit library at each start.
///
/// It is not in every LD_PRELOAD, because glibc then reads the link /proc/self/exe: 18 us of a spawn of 580 us.
pub const PLATFORM_DIRECTORY: &str = "${PLATFORM}/";

/// The path of the shim in an LD_PRELOAD, if there is one.
#[must_use]
pub fn shim_in(preload: &[u8]) -> Option<&[u8]> {
    let is_shim = |path: &&[u8]| file_name(path).starts_with(SHIM_PREFIX.as_bytes());
    preload.split(|b| matches!(b, b':' | b' ')).find(is_shim)
}

/// The same LD_PRELOAD for a 32-bit program, in parts. `None` if it has no shim, or already has [`PLATFORM_DIRECTORY`].
#[must_use]
pub fn for_elf32(preload: &[u8]) -> Option<[&[u8]; 3]> {
    let shim = shim_in(preload)?;
    let at = shim.as_ptr().addr() - preload.as_ptr().addr() + shim.len() - file_name(shim).len();
    let (before, rest) = preload.split_at_checked(at)?;
    let platform = PLATFORM_DIRECTORY.as_bytes();
    (!before.ends_with(platform)).then_some([before, platform, rest])
}

/// The part after the last slash.
#[must_use]
pub fn file_name(path: &[u8]) -> &[u8] {
    path.rsplit(|b| *b == b'/').next().unwrap_or_default()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    // Requirement: SEE-62
    #[test]
    fn preload_of_32_bit_program_names_the_platform() {
        // A directory whose name has the prefix is no shim.
        let shim = format!("/{SHIM_PREFIX}d/{SHIM_PREFIX}0.so");
        let wanted = format!("/{SHIM_PREFIX}d/${{PLATFORM}}/{SHIM_PREFIX}0.so");
        for (before, after) in [("", ""), ("libm.so.6:", ""), ("", ":libm.so.6"), ("/a/b.so ", " c.so")] {
            let (plain, wanted) = (format!("{before}{shim}{after}"), format!("{before}{wanted}{after}"));
            assert_eq!(shim_in(plain.as_bytes()), Some(shim.as_bytes()));
            assert_eq!(for_elf32(plain.as_bytes()).unwrap().concat(), wanted.as_bytes());
            assert_eq!(for_elf32(wanted.as_bytes()), None);
        }
        let foreign = format!("/{SHIM_PREFIX}d/libm.so.6");
        assert_eq!((shim_in(foreign.as_bytes()), for_elf32(foreign.as_bytes())), (None, None));
        assert_eq!(for_elf32(format!("{SHIM_PREFIX}0.so").as_bytes()).unwrap()[0], b"");
    }
}
