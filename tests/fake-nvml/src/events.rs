//! The queue of critical errors (XIDs).

use std::ffi::{c_uint, c_ulonglong, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::abi::{Device, INVALID_ARGUMENT, Return, SUCCESS, TIMEOUT, UNKNOWN, name, put};
use crate::script::{self, NOT_SUPPORTED, global, text};

/// A registration failed with UNKNOWN. nvml.h: the set is then undefined, and must be freed. Any other use of it crashes.
static IS_UNDEFINED: AtomicBool = AtomicBool::new(false);

fn check_set() {
    if IS_UNDEFINED.load(Ordering::Relaxed) {
        std::process::abort();
    }
}

#[cfg(not(feature = "old"))]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlEventSetCreate(place: *mut *mut c_void) -> Return {
    let _call = script::called("nvmlEventSetCreate");
    // SAFETY: nvml.h's contract, passed on.
    unsafe { put(place, Ok(std::ptr::dangling_mut::<c_void>())) }
}

#[cfg(not(feature = "old"))]
#[unsafe(no_mangle)]
pub extern "C" fn nvmlEventSetFree(_set: *mut c_void) -> Return {
    let _call = script::called("nvmlEventSetFree");
    IS_UNDEFINED.store(false, Ordering::Relaxed);
    SUCCESS
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceRegisterEvents(device: Device, kinds: c_ulonglong, _set: *mut c_void) -> Return {
    let _call = script::called("nvmlDeviceRegisterEvents");
    check_set();
    if kinds != 8 {
        return INVALID_ARGUMENT;
    }
    let failure = text(&name(device), "register").err().filter(|code| *code != NOT_SUPPORTED);
    let code = failure.or(text(&name(device), "xids").err()).unwrap_or(SUCCESS);
    IS_UNDEFINED.store(code == UNKNOWN, Ordering::Relaxed);
    code
}

#[repr(C)]
pub struct EventData {
    device: Device,
    kind: c_ulonglong,
    data: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

macro_rules! event_set_wait {
    ($function:ident) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $function(_set: *mut c_void, place: *mut EventData, _ms: c_uint) -> Return {
            let _call = script::called(stringify!($function));
            check_set();
            // SAFETY: nvml.h's contract, passed on.
            unsafe { put(place, next_event()) }
        }
    };
}

// The name of the call in drivers before R440.
#[cfg(feature = "second")]
event_set_wait!(nvmlEventSetWait);
#[cfg(not(feature = "second"))]
event_set_wait!(nvmlEventSetWait_v2);

/// Each number of a device's `xids` once.
fn next_event() -> Result<EventData, Return> {
    let count: usize = global("count").and_then(|count| count.parse().ok()).unwrap_or(0);
    for number_of_device in 0..count {
        // Events stay queued, even after the device is lost.
        let xids = global(&format!("{number_of_device}.xids")).unwrap_or_default();
        for (place_in_list, xid) in xids.split_whitespace().enumerate() {
            if script::count(format!("xid {number_of_device} {place_in_list}")) == 0 {
                return Ok(EventData {
                    device: (number_of_device + 1) as Device,
                    kind: 8,
                    data: xid.parse().unwrap_or(0),
                    gpu_instance: c_uint::MAX,
                    compute_instance: c_uint::MAX,
                });
            }
        }
    }
    // The default is what a driver says if none is queued.
    Err(global("event_wait").and_then(|code| code.parse().ok()).unwrap_or(TIMEOUT))
}
