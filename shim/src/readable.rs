//! Strings that the kernel is to read, such as those of an exec. A pointer among them that leads nowhere makes the kernel fail with
//! EFAULT; reading it here would end the program. So pointers that no program can have are left to the kernel.
//!
//! An address that a program could have mapped, and has not, is not detected. Only a system call could tell, one for each page of a
//! large environment, and a seccomp filter may kill the process for it.

use core::ffi::c_char;

use crate::environment::Text;

/// Addresses below this are not mapped: it is the usual value of vm.mmap_min_addr, at which memory begins.
const FIRST: usize = 64 << 10;
/// Addresses from here on are the kernel's. Programs have more only where they ask for it.
const END: usize = 1 << if cfg!(target_arch = "aarch64") { 48 } else { 47 };

/// The strings of a null-terminated array, up to its null. An element is `None` for an address that no program can have. If it is the
/// array's own address, the strings end there. A null array has no strings.
///
/// # Safety
/// `array` must be null, an address that no program can have, or a null-terminated array of strings and of such addresses. It must stay
/// so while the iterator is in use.
pub(crate) unsafe fn strings(array: *const *const c_char) -> impl Iterator<Item = Option<Text>> {
    let mut next = array;
    core::iter::from_fn(move || {
        if next.is_null() {
            return None;
        }
        if !is_possible(next.addr()) {
            next = core::ptr::null();
            return Some(None);
        }
        // SAFETY: an element of the array; nothing is read after the null.
        let string = unsafe { next.read_unaligned() };
        if string.is_null() {
            return None;
        }
        // SAFETY: the element was not the last one. The caller promised strings.
        unsafe {
            next = next.add(1);
            Some(is_possible(string.addr()).then(|| Text::new(string)))
        }
    })
}

/// Whether a program can have mapped an address. On aarch64 the highest byte of a pointer can be a tag.
fn is_possible(address: usize) -> bool {
    let untagged = if cfg!(target_arch = "aarch64") { address << 8 >> 8 } else { address };
    (FIRST..END).contains(&untagged)
}
