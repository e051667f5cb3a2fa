//! The shim's entry in an LD_PRELOAD (ld.so(8): paths, separated by colons or spaces).

use crate::path::file_name;
use crate::record::abi_version;

/// The start of the file name of every ABI's shim.
pub const ANY_SHIM_PREFIX: &str = "libgpu_track_shim.v";

/// The start of a shim's file name; the rest is its content hash. An LD_PRELOAD entry whose base name starts with
/// this is a shim of this ABI, so no second one is added.
pub const SHIM_PREFIX: &str = concat!("libgpu_track_shim.v", abi_version!(), ".");

/// Finds the path of a shim of this ABI in the value of LD_PRELOAD. `None`: it has none.
pub fn shim_in(preload: &[u8]) -> Option<&[u8]> {
    let is_shim = |path: &&[u8]| file_name(path).starts_with(SHIM_PREFIX.as_bytes());
    preload.split(|b| matches!(b, b':' | b' ')).find(is_shim)
}

/// Splits the value of LD_PRELOAD into what is before and what is after the shim of this ABI. One separator beside the shim is left
/// out, so that the parts can be joined. `None`: the value has no shim.
pub fn around_shim(preload: &[u8]) -> Option<(&[u8], &[u8])> {
    let shim = shim_in(preload)?;
    // `shim` is a part of `preload`, so the difference of their addresses is its offset.
    let at = shim.as_ptr().addr() - preload.as_ptr().addr();
    let (before, rest) = preload.split_at_checked(at)?;
    let after = rest.get(shim.len()..)?;
    // The separator after the shim goes, or the one before it if the shim is last.
    Some(match (before.split_last(), after.split_first()) {
        (_, Some((_, after))) => (before, after),
        (Some((_, before)), None) => (before, after),
        (None, None) => (before, after),
    })
}

/// With this variable in its environment, a program does not run: the dynamic linker prints which libraries it would load (ldd(1)).
pub const ENV_LIST: &str = "LD_TRACE_LOADED_OBJECTS";

/// Options of the dynamic linker whose value is the next argument.
const OPTIONS_WITH_VALUE: &[u8] =
    b"--library-path --preload --audit --argv0 --inhibit-rpath --glibc-hwcaps-prepend \
                                    --glibc-hwcaps-mask";

/// Machines that QEMU emulates for a single program (`qemu-MACHINE PROGRAM`).
const MACHINES: &[u8] = b"aarch64 aarch64_be alpha arm armeb cris hexagon hppa i386 loongarch64 m68k microblaze microblazeel mips \
                          mips64 mips64el mipsel mipsn32 mipsn32el nios2 or1k ppc ppc64 ppc64le riscv32 riscv64 s390x sh4 sh4eb \
                          sparc sparc32plus sparc64 x86_64 xtensa xtensaeb";

/// Whether `word` is among the words of `list`.
fn has_word(list: &[u8], word: &[u8]) -> bool {
    list.split(|b| *b == b' ').any(|other| other == word)
}

/// Whether a command would show the preloaded libraries, so that it must not get the shim. With `--list`, the dynamic linker prints
/// them (ld.so(8)). In a program that QEMU runs, the dynamic linker of another machine complains about them.
pub fn shows_preloaded<'a>(mut words: impl Iterator<Item = &'a [u8]>) -> bool {
    let name = words.next().map(file_name).unwrap_or_default();
    if let Some(machine) = name.strip_prefix(b"qemu-") {
        return has_word(MACHINES, machine.strip_suffix(b"-static").unwrap_or(machine));
    }
    if !name.starts_with(b"ld") || !name.windows(3).any(|part| part == b".so") {
        return false;
    }
    while let Some(option) = words.next().filter(|word| word.starts_with(b"--")) {
        if option == b"--list" {
            return true;
        }
        if has_word(OPTIONS_WITH_VALUE, option) {
            words.next();
        }
    }
    false
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn shim_is_known_by_the_start_of_its_file_name() {
        // A directory whose name has the prefix is no shim.
        let shim = format!("/{SHIM_PREFIX}d/{SHIM_PREFIX}0.so");
        for (before, after, around) in [
            ("", "", ("", "")),
            ("libm.so.6:", "", ("libm.so.6", "")),
            ("", ":libm.so.6", ("", "libm.so.6")),
            ("/a/b.so ", " c.so", ("/a/b.so ", "c.so")),
        ] {
            let preload = format!("{before}{shim}{after}");
            assert_eq!(shim_in(preload.as_bytes()), Some(shim.as_bytes()));
            assert_eq!(around_shim(preload.as_bytes()), Some((around.0.as_bytes(), around.1.as_bytes())));
        }
        assert_eq!(around_shim(b"libm.so.6"), None);
        assert_eq!(shim_in(format!("/{SHIM_PREFIX}d/libm.so.6").as_bytes()), None);
    }

    #[test]
    fn commands_that_show_preloaded_libraries_are_known_by_name_and_options() {
        let shows = |command: &str| shows_preloaded(command.split(' ').map(str::as_bytes));
        for command in [
            "/lib64/ld-linux-x86-64.so.2 --list x",
            "ld.so --list",
            "/x/ld-2.31.so --inhibit-cache --library-path --list --list x",
            "/usr/bin/qemu-aarch64-static x",
            "qemu-riscv64 -L /x x",
        ] {
            assert!(shows(command), "{command}");
        }
        for command in [
            "",
            "ls --list",
            "/usr/bin/ld --list.so",
            "/lib/ld-linux-aarch64.so.1 x --list",
            "ld.so --library-path --list x",
            "ld.so --verify x",
            "qemu-system-x86_64",
            "qemu-img --list",
            "qemu-",
        ] {
            assert!(!shows(command), "{command}");
        }
    }
}
