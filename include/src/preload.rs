//! The shim's entry in an LD_PRELOAD (ld.so(8): paths, separated by colons or spaces).

/// What a shim's file name starts with; the rest is its content hash. A preload entry whose base name starts so is a shim
/// of this ABI, and is not added twice.
pub const SHIM_PREFIX: &str = "libgpu_track_shim.v2.";

/// Stands before the shim's file name in the LD_PRELOAD of a 32-bit program, where the session says
/// [`crate::layout::FLAG_ELF32`]. The dynamic linker makes `x86_64` of it in a 64-bit program and `i686` in a 32-bit one, so
/// each finds a library of its own class; with only the 64-bit one in the list, the 32-bit linker prints a line for every
/// program. It is not in every LD_PRELOAD, since glibc reads the link /proc/self/exe wherever there is such a token: 18 us
/// of a spawn of 580.
pub const PLATFORM_DIRECTORY: &str = "${PLATFORM}/";

/// The path of the shim in an LD_PRELOAD.
#[must_use]
pub fn shim_in(preload: &[u8]) -> Option<&[u8]> {
    let is_shim = |path: &&[u8]| file_name(path).starts_with(SHIM_PREFIX.as_bytes());
    preload.split(|b| matches!(b, b':' | b' ')).find(is_shim)
}

/// The same LD_PRELOAD for a 32-bit program, in parts. `None` if there is no shim in it, or one that is for all already.
#[must_use]
pub fn for_elf32(preload: &[u8]) -> Option<[&[u8]; 3]> {
    let shim = shim_in(preload)?;
    let at = shim.as_ptr().addr() - preload.as_ptr().addr() + shim.len() - file_name(shim).len();
    let (before, rest) = preload.split_at_checked(at)?;
    let platform = PLATFORM_DIRECTORY.as_bytes();
    (!before.ends_with(platform)).then_some([before, platform, rest])
}

/// What stands behind the last slash.
fn file_name(path: &[u8]) -> &[u8] {
    path.rsplit(|b| *b == b'/').next().unwrap_or_default()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_32_bit_program_finds_its_own() {
        // A directory of that name is none.
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
