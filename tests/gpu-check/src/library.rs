//! Finds the driver's libraries.

use std::fmt::Display;
use std::path::Path;

/// Where some systems have them without the loader's knowledge: containers, Colab, WSL, NixOS.
const DIRECTORIES: [&str; 4] =
    ["/usr/local/nvidia/lib64", "/usr/lib64-nvidia", "/usr/lib/wsl/lib", "/run/opengl-driver/lib"];

/// NVML's library, as gpu-track-run is told of it.
pub(crate) fn nvml() -> String {
    std::env::var("GPU_TRACK_NVML_LIB").unwrap_or_else(|_| "libnvidia-ml.so.1".into())
}

/// The library by the loader's search path, else from one of these directories. The error is the loader's.
pub(crate) fn open<T, E: Display>(name: &str, load: impl Fn(&Path) -> Result<T, E>) -> Result<T, String> {
    load(Path::new(name)).or_else(|error| {
        let paths = DIRECTORIES.iter().map(|directory| Path::new(directory).join(name));
        paths.filter(|path| path.exists()).find_map(|path| load(&path).ok()).ok_or_else(|| error.to_string())
    })
}
