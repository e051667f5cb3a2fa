//! NVML's library, loaded at run time, and its return values as reasons. All calls go through [`call`].

use std::ffi::{CStr, OsStr, c_char, c_int, c_uint, c_void};

use libloading::Library;
use nvml_wrapper_sys::bindings::{
    NvmlLib, nvmlAccountingStats_t, nvmlDevice_t, nvmlEventData_t, nvmlFieldValue_t, nvmlGpmMetric_t,
    nvmlGpmMetricsGet_t, nvmlPciInfo_t, nvmlProcessUtilizationInfo_v1_t, nvmlProcessUtilizationSample_t,
    nvmlReturn_t, nvmlSample_t, nvmlValue_t,
};

use super::policy;
use crate::model::gpu::{Missing, Reading};

/// The return values of NVML that are told apart (nvml.h, `nvmlReturn_t`).
pub(super) mod code {
    pub const SUCCESS: u32 = 0;
    pub const INVALID_ARGUMENT: u32 = 2;
    pub const NOT_SUPPORTED: u32 = 3;
    pub const NO_PERMISSION: u32 = 4;
    pub const NOT_FOUND: u32 = 6;
    pub const INSUFFICIENT_SIZE: u32 = 7;
    pub const DRIVER_NOT_LOADED: u32 = 9;
    pub const TIMEOUT: u32 = 10;
    pub const LIBRARY_NOT_FOUND: u32 = 12;
    pub const FUNCTION_NOT_FOUND: u32 = 13;
    pub const GPU_IS_LOST: u32 = 15;
    pub const LIB_RM_VERSION_MISMATCH: u32 = 18;
    pub const ARGUMENT_VERSION_MISMATCH: u32 = 25;
    pub const DEPRECATED: u32 = 26;
    pub const UNKNOWN: u32 = 999;
}

/// Room for the longest text that a call writes, bytes (nvml.h, `NVML_DEVICE_NAME_V2_BUFFER_SIZE`, and that of UUIDs).
const TEXT_BYTES: usize = 96;

/// A list that did not fit is read again with room for at least this many entries more: it may grow meanwhile.
const SPARE_ENTRIES: usize = 8;

/// The 64-bit value that means "not available" (nvml.h, `NVML_VALUE_NOT_AVAILABLE`).
pub(super) const NOT_AVAILABLE: u64 = u64::MAX;

/// A call that did not succeed, by NVML's return value; `FUNCTION_NOT_FOUND` also if the library has no such call. For some
/// calls certain return values are answers, not errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Failure(pub nvmlReturn_t);

impl From<Failure> for Missing {
    fn from(failure: Failure) -> Self {
        match failure.0 {
            code::FUNCTION_NOT_FOUND => Missing::NoCall,
            code::NOT_SUPPORTED => Missing::NotSupported,
            code::NO_PERMISSION => Missing::NoPermission,
            code::GPU_IS_LOST => Missing::Lost,
            code::LIB_RM_VERSION_MISMATCH => Missing::VersionMismatch,
            code::DRIVER_NOT_LOADED => Missing::NoDriver,
            code::LIBRARY_NOT_FOUND => Missing::NoLibrary("NVML misses a library of its own".into()),
            other => Missing::Failed(match name(other) {
                "" => format!("NVML error {other}"),
                name => format!("NVML error {other}: {name}"),
            }),
        }
    }
}

/// Names a return value that has no reason of its own in [`Missing`]. Empty: it has no name.
fn name(code: nvmlReturn_t) -> &'static str {
    match code {
        1 => "uninitialized",
        2 => "invalid argument",
        6 => "not found",
        7 => "insufficient size",
        8 => "insufficient power",
        10 => "timeout",
        11 => "interrupt request issue",
        14 => "corrupted infoROM",
        16 => "the GPU requires a reset",
        17 => "the GPU can't be reached by the operating system",
        19 => "in use",
        20 => "insufficient memory",
        21 => "no data",
        23 => "insufficient resources",
        25 => "argument version mismatch",
        26 => "deprecated",
        27 => "not ready",
        29 => "invalid state",
        999 => "unknown error",
        _ => "",
    }
}

/// Turns a return value into a result.
pub(super) fn check(code: nvmlReturn_t) -> Result<(), Failure> {
    if code == code::SUCCESS { Ok(()) } else { Err(Failure(code)) }
}

/// The loaded and initialised library. Never unloaded: a thread may still be in it.
pub(super) struct Api {
    library: &'static Library,
}

/// Calls a function of the library: `call!(api, nvmlName(arguments))`. If the library lacks it, the result is
/// `FUNCTION_NOT_FOUND`. `call!(api, nvmlName or nvmlOlder(arguments))` calls the older function then.
macro_rules! call {
    ($api:expr, $name:ident $(or $older:ident)? ( $($argument:expr),* )) => {
        match $api.function(
            |bindings| &bindings.$name,
            &[concat!(stringify!($name), "\0") $(, concat!(stringify!($older), "\0"))?],
        ) {
            // SAFETY: the prototype is that of nvml.h, also for an older function. Pointers are to live values of its types, with the
            // counts that belong to them. An older struct is shorter, and equal up to its end.
            Ok(function) => $crate::sources::gpu::nvml::api::check(unsafe { function($($argument),*) }),
            Err(failure) => Err(failure),
        }
    };
}
pub(super) use call;

/// A struct of NVML that is valid if all its bytes are 0.
///
/// # Safety
///
/// It has only numbers, pointers that may be null, and arrays and unions of those.
pub(super) unsafe trait Plain: Copy {
    /// A value with all its bytes 0.
    fn zeroed() -> Self {
        // SAFETY: a type that implements this trait is valid if all its bytes are 0.
        unsafe { std::mem::zeroed() }
    }
}

macro_rules! plain {
    ($($name:ty),*) => {
        // SAFETY: in nvml.h these have only numbers, pointers, and arrays and unions of those.
        $(unsafe impl Plain for $name {})*
    };
}
plain!(
    c_uint,
    nvmlAccountingStats_t,
    nvmlEventData_t,
    nvmlFieldValue_t,
    nvmlGpmMetric_t,
    nvmlGpmMetricsGet_t,
    nvmlPciInfo_t,
    nvmlProcessUtilizationInfo_v1_t,
    nvmlProcessUtilizationSample_t,
    nvmlSample_t
);

/// A function that takes a device, the capacity of a buffer, and the buffer. It writes entries to the buffer, and their number in
/// place of the capacity.
pub(super) type ListCall = unsafe extern "C" fn(nvmlDevice_t, *mut c_uint, *mut c_void) -> nvmlReturn_t;

impl Api {
    /// Loads `path` and initialises the driver, which can take seconds.
    pub(super) fn load(path: &OsStr) -> Reading<Self> {
        // dlopen would wait for the writer of a fifo.
        if std::fs::metadata(path)
            .is_ok_and(|found| path.as_encoded_bytes().contains(&b'/') && !found.is_file())
        {
            return Err(Missing::NoLibrary(format!("{} is no file", path.display())));
        }
        // SAFETY: loading runs the library's initialisers: it is the driver's own, or one that the user named.
        let library = unsafe { Library::new(path) };
        let library = library.map_err(|error| Missing::NoLibrary(error.to_string()))?;
        let api = Self { library: Box::leak(Box::new(library)) };
        call!(api, nvmlInit_v2 or nvmlInit())?;
        Ok(api)
    }

    /// Finds a function of the library by the first of these names that it has. `_prototype` names the field of the bindings with the
    /// function's type. The bindings themselves are never made: they would look all functions of NVML up.
    pub(super) fn function<T: Copy>(
        &self,
        _prototype: fn(&NvmlLib) -> &Result<T, libloading::Error>,
        names: &[&str],
    ) -> Result<T, Failure> {
        let found = names.iter().find_map(|name| self.find(name.as_bytes()));
        found.ok_or(Failure(code::FUNCTION_NOT_FOUND))
    }

    /// Finds a function of the library by its name, which ends with a 0 byte. For functions whose prototype or older name the
    /// bindings lack.
    pub(super) fn find<T: Copy>(&self, name: &[u8]) -> Option<T> {
        // SAFETY: callers give the type of that function as nvml.h has it.
        unsafe { self.library.get::<T>(name) }.ok().map(|symbol| *symbol)
    }

    /// Asks for the number of devices.
    pub(super) fn device_count(&self) -> Reading<c_uint> {
        let count = get(|count| call!(self, nvmlDeviceGetCount_v2 or nvmlDeviceGetCount(count)))?;
        if count <= policy::MOST_DEVICES { Ok(count) } else { Err(Missing::NotReported) }
    }

    /// Asks for the device of this index.
    pub(super) fn device(&self, index: u32) -> Reading<nvmlDevice_t> {
        let mut device = std::ptr::null_mut();
        call!(self, nvmlDeviceGetHandleByIndex_v2 or nvmlDeviceGetHandleByIndex(index, &mut device))?;
        Ok(device)
    }

    /// Reads a string that a call writes into a buffer. `None`: the call failed, or it is empty.
    pub(super) fn text(fill: impl FnOnce(*mut c_char, c_uint) -> Result<(), Failure>) -> Option<String> {
        let mut buffer = [0u8; TEXT_BYTES + 1];
        // The last byte stays 0 whatever the driver does.
        fill(buffer.as_mut_ptr().cast(), TEXT_BYTES as c_uint).ok()?;
        let text = CStr::from_bytes_until_nul(&buffer).ok()?.to_string_lossy().trim().to_owned();
        Some(text).filter(|text| !text.is_empty())
    }

    /// Asks for the CUDA version that the driver supports, such as "12.4".
    pub(super) fn cuda_version(&self) -> Option<String> {
        let asked = get(
            |version| call!(self, nvmlSystemGetCudaDriverVersion_v2 or nvmlSystemGetCudaDriverVersion(version)),
        );
        // 1000 * major + 10 * minor (nvml.h).
        let version: c_int = asked.ok().filter(|version| *version > 0)?;
        Some(format!("{}.{}", version / 1000, version % 1000 / 10))
    }
}

/// Makes a call that writes one number, and returns the number.
pub(super) fn get<T: Default>(ask: impl FnOnce(*mut T) -> Result<(), Failure>) -> Reading<T> {
    let mut value = T::default();
    ask(&mut value)?;
    Ok(value)
}

/// What the field `version` of the struct `T` must hold: the struct's size, and above 24 bits its version (nvml.h,
/// `NVML_STRUCT_VERSION`).
pub(super) fn struct_version<T>(version: c_uint) -> c_uint {
    size_of::<T>() as c_uint | version << 24
}

/// Reads a list into larger and larger buffers until it fits, or the buffer has `policy::MAX_ENTRIES`. `ask` is given the capacity,
/// and returns the call's result and the number of entries that the call counted. Returns the last capacity, and the list.
///
/// A list that fills its buffer may be truncated: some libraries write as many entries as fit, and return SUCCESS.
pub(super) fn grow<T>(
    first_capacity: usize,
    mut ask: impl FnMut(usize) -> (Result<T, Failure>, usize),
) -> Result<(usize, T), Failure> {
    let mut capacity = first_capacity;
    loop {
        let (result, count) = ask(capacity);
        let may_be_truncated = match &result {
            Ok(_) => count >= capacity,
            Err(failure) => failure.0 == code::INSUFFICIENT_SIZE,
        };
        if !may_be_truncated || capacity >= policy::MAX_ENTRIES {
            return result.map(|value| (capacity, value));
        }
        capacity = (capacity * 2).max(count.saturating_add(SPARE_ENTRIES)).min(policy::MAX_ENTRIES);
    }
}

/// Reads a list that a call writes into a buffer of zeros. `ask` is given the capacity and the buffer; the call writes its count
/// in place of the capacity. `last_capacity` was enough last time, and is updated. It is tried first, or `first_capacity` if that
/// is larger. Some calls want room for all that the driver could have, and to ask again costs a call.
pub(super) fn list<T: Plain>(
    first_capacity: usize,
    last_capacity: &mut usize,
    mut ask: impl FnMut(*mut c_uint, *mut T) -> Result<(), Failure>,
) -> Result<Vec<T>, Failure> {
    let grown = grow(first_capacity.max(*last_capacity), |capacity| {
        let mut entries = vec![T::zeroed(); capacity];
        let mut count = c_uint::try_from(capacity).unwrap_or(c_uint::MAX);
        let result = ask(&mut count, entries.as_mut_ptr());
        entries.truncate(count as usize);
        (result.map(|()| entries), count as usize)
    });
    grown.map(|(capacity, entries)| {
        *last_capacity = capacity;
        entries
    })
}

/// Converts a number of any of NVML's types. `kind` is its type (nvml.h, `nvmlValueType_t`). `None`: the type is unknown.
pub(super) fn number(kind: u32, value: nvmlValue_t) -> Option<f64> {
    // SAFETY: every bit pattern is valid for each of these types; `kind` is the one that the driver wrote.
    unsafe {
        match kind {
            0 => Some(value.dVal),
            1 => Some(f64::from(value.uiVal)),
            2 => Some(value.ulVal as f64),
            3 => Some(value.ullVal as f64),
            4 => Some(value.sllVal as f64),
            5 => Some(f64::from(value.siVal)),
            6 => Some(f64::from(value.usVal)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Api {
        /// A library without any function of NVML: this program.
        pub(in super::super) fn without_calls() -> Self {
            Self { library: Box::leak(Box::new(libloading::os::unix::Library::this().into())) }
        }
    }

    fn too_small<T>(needed: usize) -> (Result<T, Failure>, usize) {
        (Err(Failure(code::INSUFFICIENT_SIZE)), needed)
    }

    #[test]
    fn buffer_grows_until_list_fits_or_limit() {
        let mut asked = Vec::new();
        let enough = grow(64, |capacity| {
            asked.push(capacity);
            if capacity < 300 { too_small(capacity + 100) } else { (Ok(()), 200) }
        });
        assert_eq!(enough, Ok((344, ())));
        assert_eq!(asked, [64, 172, 344]);
        let never = grow::<()>(64, |_| too_small(0));
        assert_eq!(never, Err(Failure(code::INSUFFICIENT_SIZE)));
    }

    #[test]
    fn list_that_fills_its_buffer_is_read_again() {
        // 200 entries; the library returns SUCCESS, and counts what it wrote, or all entries.
        for counts_all in [false, true] {
            let given = grow(64, |capacity| {
                let written = capacity.min(200);
                (Ok(written), if counts_all { 200 } else { written })
            });
            assert_eq!(given.map(|(_, written)| written), Ok(200));
        }
    }
}
