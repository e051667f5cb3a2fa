//! Finds the driver's libraries.

use std::path::Path;

/// Where some systems have them without the loader's knowledge: containers, Colab, WSL, NixOS.
const DIRECTORIES: [&str; 4] =
    ["/usr/local/nvidia/lib64", "/usr/lib64-nvidia", "/usr/lib/wsl/lib", "/run/opengl-driver/lib"];

/// The library by the loader's search path, else from one of these directories. The error is the loader's.
pub(crate) fn open<T>(name: &str, load: impl Fn(&Path) -> Result<T, libloading::Error>) -> Result<T, String> {
    load(Path::new(name)).or_else(|error| {
        let paths = DIRECTORIES.iter().map(|directory| Path::new(directory).join(name));
        paths.filter(|path| path.exists()).find_map(|path| load(&path).ok()).ok_or_else(|| error.to_string())
    })
}
