"""The part `spin`: keeps a GPU busy for a known time."""

from __future__ import annotations

import ctypes
import sys
import threading
import time

from gpu_track_scripts.gpu_check.driver import cuda_context, must

# PTX, which drivers translate for any device: one block that reads the clock until so many cycles have passed.
SPIN = b"""
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
"""
CYCLES = 50_000_000
# Launched together, so that the device need not wait for the next launch.
LAUNCHES = 4


def spin(seconds: str) -> None:
    """Spins in a second thread, because some drivers identify a process by the thread that opened the device."""
    is_done = False

    def run() -> None:
        nonlocal is_done
        cuda, _context = cuda_context()
        module, entry = ctypes.c_void_p(), ctypes.c_void_p()
        must(cuda.cuModuleLoadData(ctypes.byref(module), SPIN), "cuModuleLoadData")
        must(cuda.cuModuleGetFunction(ctypes.byref(entry), module, b"spin"), "cuModuleGetFunction")
        cycles = ctypes.c_ulonglong(CYCLES)
        parameters = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(cycles), ctypes.c_void_p))
        print("spins", flush=True)
        until = time.monotonic() + float(seconds)
        while time.monotonic() < until:
            for _ in range(LAUNCHES):
                must(cuda.cuLaunchKernel(entry, 1, 1, 1, 1, 1, 1, 0, None, parameters, None), "cuLaunchKernel")
            must(cuda.cuCtxSynchronize(), "cuCtxSynchronize")
        is_done = True

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    # sys.exit in a thread ends only that thread.
    if not is_done:
        sys.exit(1)
