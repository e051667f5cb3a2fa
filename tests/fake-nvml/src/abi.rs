//! NVML's conventions: return values, device handles, and how a call fills its caller's memory.

use std::ffi::{c_uint, c_void};

/// nvml.h, `nvmlReturn_t`.
pub type Return = c_uint;
/// An opaque handle: the device's number plus 1. The handle of a MIG instance has the instance's number plus 1 in its
/// second byte.
pub type Device = *mut c_void;

pub const SUCCESS: Return = 0;
pub const INVALID_ARGUMENT: Return = 2;
pub const NOT_FOUND: Return = 6;
pub const INSUFFICIENT_SIZE: Return = 7;
pub const TIMEOUT: Return = 10;
pub const UNKNOWN: Return = 999;

/// The device's name in the script.
pub fn name(device: Device) -> String {
    let handle = device as usize;
    match (handle & 0xff, handle >> 8) {
        (number, 0) => (number - 1).to_string(),
        (number, part) => format!("{}m{}", number - 1, part - 1),
    }
}

/// Writes a value, or gives the error as the return value.
pub unsafe fn put<T>(place: *mut T, value: Result<T, Return>) -> Return {
    match value {
        Ok(value) => {
            // SAFETY: by nvml.h's contract the caller passes a valid pointer.
            unsafe { place.write(value) };
            SUCCESS
        }
        Err(code) => code,
    }
}

/// Fills a caller's buffer of `count` entries, or gives the number of entries that it needs.
pub unsafe fn put_list<T: Copy>(count: *mut c_uint, place: *mut T, list: &[T]) -> Return {
    if place.is_null() {
        // Some drivers crash here, because they write to the buffer.
        std::process::abort();
    }
    let needed = c_uint::try_from(list.len()).unwrap_or(c_uint::MAX);
    // SAFETY: nvml.h's contract: the buffer has as many entries as `count` says.
    unsafe {
        let capacity = count.read();
        count.write(needed);
        if needed > capacity {
            return INSUFFICIENT_SIZE;
        }
        std::ptr::copy_nonoverlapping(list.as_ptr(), place, list.len());
    }
    SUCCESS
}
