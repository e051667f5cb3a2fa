"""Loads the driver's libraries."""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any

# Where some systems have them without the loader's knowledge: containers, Colab, WSL, NixOS.
DIRECTORIES = ["/usr/local/nvidia/lib64", "/usr/lib64-nvidia", "/usr/lib/wsl/lib", "/run/opengl-driver/lib"]


def library(name: str) -> ctypes.CDLL:
    """A library of the driver's; OSError if there is none."""
    try:
        return ctypes.CDLL(name)
    except OSError:
        paths = [os.path.join(directory, name) for directory in DIRECTORIES]
        path = next((path for path in paths if os.path.exists(path)), None)
        if path is None:
            raise
        return ctypes.CDLL(path)


def must(code: int, call: str) -> None:
    """Ends this process if a call returned an error."""
    if code:
        sys.exit(f"{call} returned {code}")


def cuda_context() -> tuple[Any, ctypes.c_void_p]:
    """libcuda with a context on its first device, and that context."""
    cuda = library("libcuda.so.1")
    device, context = ctypes.c_int(), ctypes.c_void_p()
    must(cuda.cuInit(0), "cuInit")
    must(cuda.cuDeviceGet(ctypes.byref(device), 0), "cuDeviceGet")
    must(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device), "cuCtxCreate")
    return cuda, context
