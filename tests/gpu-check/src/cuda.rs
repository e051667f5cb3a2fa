//! The few calls of CUDA's driver library (cuda.h) that use a GPU in a known way.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr;

use libloading::Library;

use crate::library;

/// libcuda with a context on its first device. The library is never unloaded.
pub(crate) struct Cuda {
    library: Library,
}

/// Calls a function of cuda.h by its name and the types of its arguments; the error names it.
macro_rules! call {
    ($cuda:expr, $name:ident($($argument:expr => $type:ty),*)) => {{
        let name = stringify!($name);
        let symbol = concat!(stringify!($name), "\0");
        // SAFETY: the types are those of the function's declaration in cuda.h.
        let function = unsafe { $cuda.library.get::<unsafe extern "C" fn($($type),*) -> c_uint>(symbol.as_bytes()) };
        let function = function.map_err(|_| format!("libcuda.so.1 has no {name}"))?;
        // SAFETY: pointers are to live objects of these types, and a context is current.
        match unsafe { function($($argument),*) } {
            0 => Ok(()),
            code => Err(format!("{name} returned {code}")),
        }
    }};
}

impl Cuda {
    /// Loads libcuda.
    pub(crate) fn open() -> Result<Self, String> {
        // SAFETY: the driver's library; its initialisers are trusted.
        let library = library::open("libcuda.so.1", |path| unsafe { Library::new(path) })?;
        Ok(Self { library })
    }

    /// Loads libcuda and makes the first device's context current in this thread.
    pub(crate) fn start() -> Result<Self, String> {
        let cuda = Self::open()?;
        let (mut device, mut context): (c_int, *mut c_void) = (0, ptr::null_mut());
        call!(cuda, cuInit(0 => c_uint))?;
        call!(cuda, cuDeviceGet(&raw mut device => *mut c_int, 0 => c_int))?;
        call!(cuda, cuDevicePrimaryCtxRetain(&raw mut context => *mut *mut c_void, device => c_int))?;
        call!(cuda, cuCtxSetCurrent(context => *mut c_void))?;
        Ok(cuda)
    }

    /// Free memory of the device, bytes, and all of it.
    pub(crate) fn memory(&self) -> Result<(u64, u64), String> {
        let (mut free, mut total) = (0_usize, 0_usize);
        call!(self, cuMemGetInfo_v2(&raw mut free => *mut usize, &raw mut total => *mut usize))?;
        Ok((free as u64, total as u64))
    }

    /// Memory of the device.
    pub(crate) fn allocate(&self, bytes: u64) -> Result<u64, String> {
        let mut place = 0_u64;
        call!(self, cuMemAlloc_v2(&raw mut place => *mut u64, bytes as usize => usize))?;
        Ok(place)
    }

    /// Gives back what [`Self::allocate`] gave.
    pub(crate) fn free(&self, place: u64) -> Result<(), String> {
        call!(self, cuMemFree_v2(place => u64))
    }

    /// Memory of the machine that the device copies from at its full speed.
    pub(crate) fn allocate_on_host(&self, bytes: u64) -> Result<*const c_void, String> {
        let mut place = ptr::null_mut();
        call!(self, cuMemAllocHost_v2(&raw mut place => *mut *mut c_void, bytes as usize => usize))?;
        Ok(place)
    }

    /// Copies from such memory to the device, and waits until that is done.
    pub(crate) fn copy_to_device(&self, place: u64, from: *const c_void, bytes: u64) -> Result<(), String> {
        call!(self, cuMemcpyHtoD_v2(place => u64, from => *const c_void, bytes as usize => usize))
    }

    /// Memory of the device's pool, as cudaMallocAsync allocates.
    pub(crate) fn allocate_from_pool(&self, bytes: u64) -> Result<(), String> {
        let mut place = 0_u64;
        let stream = ptr::null_mut();
        call!(self, cuMemAllocAsync(&raw mut place => *mut u64, bytes as usize => usize, stream => *mut c_void))?;
        call!(self, cuStreamSynchronize(stream => *mut c_void))
    }

    /// Managed memory, which is written to on the device.
    pub(crate) fn allocate_managed(&self, bytes: u64) -> Result<(), String> {
        let mut place = 0_u64;
        // CU_MEM_ATTACH_GLOBAL
        call!(self, cuMemAllocManaged(&raw mut place => *mut u64, bytes as usize => usize, 1 => c_uint))?;
        self.set(place, bytes)?;
        self.synchronize()
    }

    /// Waits until the device has done all work.
    pub(crate) fn synchronize(&self) -> Result<(), String> {
        call!(self, cuCtxSynchronize())
    }

    fn load(&self, ptx: &[u8]) -> Result<*mut c_void, String> {
        let (mut module, mut function): (*mut c_void, *mut c_void) = (ptr::null_mut(), ptr::null_mut());
        call!(self, cuModuleLoadData(&raw mut module => *mut *mut c_void, ptx.as_ptr().cast() => *const c_void))?;
        let name = c"spin".as_ptr();
        call!(self, cuModuleGetFunction(&raw mut function => *mut *mut c_void, module => *mut c_void, name => *const c_char))?;
        Ok(function)
    }

    fn launch(&self, function: *mut c_void) -> Result<(), String> {
        let mut cycles = CYCLES;
        let mut parameters = [(&raw mut cycles).cast::<c_void>()];
        let (null, parameters) = (ptr::null_mut(), parameters.as_mut_ptr());
        call!(self, cuLaunchKernel(
            function => *mut c_void,
            1 => c_uint, 1 => c_uint, 1 => c_uint,
            1 => c_uint, 1 => c_uint, 1 => c_uint,
            0 => c_uint, null => *mut c_void,
            parameters => *mut *mut c_void, null.cast() => *mut *mut c_void
        ))
    }

    fn set(&self, place: u64, bytes: u64) -> Result<(), String> {
        let stream = ptr::null_mut();
        let words = bytes as usize / 4;
        call!(self, cuMemsetD32Async(place => u64, 0 => c_uint, words => usize, stream => *mut c_void))
    }
}

/// PTX, which drivers translate for any device: one block that reads the clock until `cycles` cycles have passed.
const SPIN: &[u8] = b"
.version 6.0
.target sm_50
.address_size 64
.visible .entry spin(.param .u64 cycles)
{
    .reg .u64 %r<4>;
    .reg .pred %p;
    ld.param.u64 %r0, [cycles];
    mov.u64 %r1, %clock64;
again:
    mov.u64 %r2, %clock64;
    sub.u64 %r3, %r2, %r1;
    setp.lt.u64 %p, %r3, %r0;
    @%p bra again;
    ret;
}
\0";
/// Some milliseconds.
const CYCLES: u64 = 5_000_000;
/// Launched together, so that the device need not wait for the next launch.
const LAUNCHES: usize = 4;
/// Without the kernel, the device is kept busy by [`SETS`] writes at once to this much memory, which takes some
/// milliseconds, too.
const SET_BYTES: u64 = 256 << 20;
const SETS: usize = 32;

/// What keeps a device busy.
pub(crate) enum Work {
    /// The kernel of [`SPIN`].
    Kernel(*mut c_void),
    /// Memory that is written again and again, where the driver does not translate that PTX.
    Memory(u64, String),
}

impl Work {
    /// The kernel, or the memory and why it is not the kernel.
    pub(crate) fn new(cuda: &Cuda) -> Result<Self, String> {
        match cuda.load(SPIN) {
            Ok(function) => Ok(Self::Kernel(function)),
            Err(reason) => Ok(Self::Memory(cuda.allocate(SET_BYTES)?, reason)),
        }
    }

    /// The memory in any case: it keeps more of the device busy than the kernel's one thread, and draws more power.
    pub(crate) fn on_memory(cuda: &Cuda) -> Result<Self, String> {
        Ok(Self::Memory(cuda.allocate(SET_BYTES)?, "for its power".into()))
    }

    /// The work's name in the output.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Kernel(_) => "a kernel".into(),
            Self::Memory(_, reason) => format!("cuMemsetD32Async ({reason})"),
        }
    }

    /// Keeps the device busy for some milliseconds.
    pub(crate) fn run(&self, cuda: &Cuda) -> Result<(), String> {
        match self {
            Self::Kernel(function) => (0..LAUNCHES).try_for_each(|_| cuda.launch(*function))?,
            Self::Memory(place, _) => (0..SETS).try_for_each(|_| cuda.set(*place, SET_BYTES))?,
        }
        cuda.synchronize()
    }
}
