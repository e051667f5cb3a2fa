//! Whether a library of a GPU's driver is loaded, by the loader's list of objects (`_r_debug` in glibc's link.h).
//!
//! The list is read once, while EXIT is written. `dl_iterate_phdr` would take a lock, which another thread, or a thread of the parent
//! at the time of a fork, may hold for ever. Reading /proc/self/maps would take some hundred us. So the list is read without a lock,
//! as a debugger reads it:
//!
//! - The loader sets `r_state` before it adds an object, or unmaps and frees one, and resets it when the list is whole again
//!   (dl-open.c, dl-close.c). The shim reads `r_state` before and after each object. If the list was incomplete at
//!   either time, the shim gives up, and the answer is unknown.
//! - Before the loader frees what describes an object, it has unmapped that object, which is a system call. So the
//!   second look catches a thread that begins a dlclose after the first look. It misses one only if this thread loses its
//!   CPU for all of that dlclose. Freed memory nearly always stays mapped, so even then no access faults.
//! - process_vm_readv(2) on the process itself can't fault, but costs 1.4 us for each object, against 10 ns. A seccomp filter that
//!   forbids debugging may also kill the process for it. The shim does not know of a filter that an earlier image installed.
//! - An object that the loader loads with the program is never freed. Most programs have no others.
//! - At START the shim can't tell which objects these are. By then the list also has what other constructors loaded, which can be
//!   freed later.
//! - In a fork child, the list is as the fork left it, and so is `r_state`.

use core::ffi::{c_char, c_int};

use crate::next;

/// Libraries through which programs use a GPU, up to their version. Those that only watch one (NVML, ROCm SMI) are not here.
const LIBRARIES: [&[u8]; 7] = [
    b"libcuda.so",
    b"libnvidia-opencl.so",
    b"libamdhip64.so",
    b"libhsa-runtime64.so",
    b"libamdocl64.so",
    b"libze_loader.so",
    b"libigdrcl.so",
];
/// Maximum number of objects that are read. No program has more, so a longer list may be damaged.
const MOST_OBJECTS: usize = 4096;
/// Maximum number of bytes of a name that are read. A longer name is no library's.
const MOST_NAME_BYTES: usize = 4096;
/// `r_state` when no object is being added or removed.
const RT_CONSISTENT: c_int = 0;

/// struct r_debug of link.h.
#[repr(C)]
struct Debug {
    version: c_int,
    first: *const Object,
    breakpoint: usize,
    state: c_int,
}

/// The public part of struct link_map.
#[repr(C)]
struct Object {
    base: usize,
    name: *const c_char,
    dynamic: usize,
    next: *const Object,
}

/// Whether one of [`LIBRARIES`] is loaded; `None`: the list could not be read now, or this libc has none.
pub(crate) fn is_loaded() -> Option<bool> {
    // SAFETY: the loader's own variable.
    unsafe { is_loaded_in(next::loader_list()? as *const Debug) }
}

/// Looks for one of [`LIBRARIES`] in the loader's list. `None`: another thread is changing the list, or it has more than
/// [`MOST_OBJECTS`].
///
/// # Safety
/// `debug` must be the loader's variable.
unsafe fn is_loaded_in(debug: *const Debug) -> Option<bool> {
    // SAFETY: promised by the caller. Another thread may change it, so it is read as volatile.
    let is_whole = || unsafe { (&raw const (*debug).state).read_volatile() } == RT_CONSISTENT;
    // SAFETY: as above.
    let mut object = unsafe { (&raw const (*debug).first).read_volatile() };
    for _ in 0..MOST_OBJECTS {
        if !is_whole() {
            return None;
        }
        if object.is_null() {
            return Some(false);
        }
        // SAFETY: an object of a list that was whole just now; see the head of this file.
        let (name, next) = unsafe {
            ((&raw const (*object).name).read_volatile(), (&raw const (*object).next).read_volatile())
        };
        if !is_whole() {
            return None;
        }
        // SAFETY: the name belongs to that object.
        if unsafe { is_gpu_library(name) } {
            return Some(true);
        }
        object = next;
    }
    None
}

/// Whether a path's file name begins with one of [`LIBRARIES`].
///
/// # Safety
/// `name` must be null or a string.
unsafe fn is_gpu_library(name: *const c_char) -> bool {
    if name.is_null() {
        return false;
    }
    let (mut file, mut at) = (name.cast::<u8>(), name.cast::<u8>());
    for _ in 0..MOST_NAME_BYTES {
        // SAFETY: no byte before this one was the string's end. Volatile, so that no call of strlen takes the loop's place: it
        // would cost a fork child a page fault.
        match unsafe { at.read_volatile() } {
            // SAFETY: the rest of the string.
            0 => return LIBRARIES.iter().any(|library| unsafe { begins_with(file, library) }),
            b'/' => file = at.wrapping_add(1),
            _ => {}
        }
        at = at.wrapping_add(1);
    }
    false
}

/// Whether a string begins with this prefix. Reads no further than the first byte that differs.
///
/// # Safety
/// `text` must be a string.
unsafe fn begins_with(text: *const u8, prefix: &[u8]) -> bool {
    let mut at = text;
    prefix.iter().all(|wanted| {
        // SAFETY: all bytes before were those of the prefix, so none of them was the string's NUL.
        let is_same = unsafe { at.read_volatile() } == *wanted;
        at = at.wrapping_add(1);
        is_same
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RT_DELETE: c_int = 2;

    /// The answer for objects of these names.
    fn has(names: &[&core::ffi::CStr], state: c_int, is_ring: bool) -> Option<bool> {
        let object = |name: &&core::ffi::CStr| Object {
            base: 0,
            name: name.as_ptr(),
            dynamic: 0,
            next: core::ptr::null(),
        };
        let mut objects: std::vec::Vec<Object> = names.iter().map(object).collect();
        let first = objects.as_mut_ptr();
        for at in 0..objects.len() {
            let is_last = at + 1 == objects.len();
            // SAFETY: within the vector, or its end.
            let next = unsafe { first.add(if is_last { 0 } else { at + 1 }) };
            objects[at].next = if is_last && !is_ring { core::ptr::null() } else { next };
        }
        let debug = Debug { version: 1, first, breakpoint: 0, state };
        // SAFETY: a list as the loader has it.
        unsafe { is_loaded_in(&raw const debug) }
    }

    #[test]
    fn libraries_are_known_by_the_start_of_their_file_name() {
        assert_eq!(has(&[c"", c"/lib/libc.so.6"], RT_CONSISTENT, false), Some(false));
        assert_eq!(
            has(&[c"", c"/lib/libc.so.6", c"/x/libcuda.so.550.54.15"], RT_CONSISTENT, false),
            Some(true)
        );
        assert_eq!(has(&[c"libze_loader.so.1"], RT_CONSISTENT, false), Some(true));
        assert_eq!(
            has(&[c"/libcuda.so.1/libx.so", c"libcudart.so.12", c"libcuda.s"], RT_CONSISTENT, false),
            Some(false)
        );
    }

    #[test]
    fn list_that_changes_or_never_ends_gives_no_answer() {
        assert_eq!(has(&[c"libcuda.so.1"], RT_DELETE, false), None);
        assert_eq!(has(&[c"a", c"b"], RT_CONSISTENT, true), None);
        assert_eq!(has(&[], RT_DELETE, false), None);
    }
}
