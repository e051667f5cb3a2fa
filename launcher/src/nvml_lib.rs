//! GPU_TRACK_NVML_LIB: which library the collector loads in place of NVIDIA's.
//!
//! The environment of root's programs can be another user's (`su -m`, `sudo -E`). So root takes the variable only if no other
//! user decides which file the path stands for. `--nvml-lib` is root's own word.

use std::env;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, absolute};

use gpu_track_collector::{ENV_NVML_LIB, GpuConfig};

use crate::safe_path::User;

/// Adds what the environment says to the configuration. If the library in it is left out, `warnings` gets the reason.
pub(crate) fn with_environment(config: &GpuConfig, warnings: &mut Vec<String>) -> GpuConfig {
    let user = User::this();
    let named = env::var_os(ENV_NVML_LIB).filter(|_| config.nvml_lib.is_none());
    let refused = named.filter(|path| !may_load(path, user));
    if let Some(path) = &refused {
        warnings.push(format!(
            "{ENV_NVML_LIB} is ignored: root loads no library that another user can replace, and {} is one. If you trust \
             it, name it by --nvml-lib.",
            path.display()
        ));
    }
    let variable = |name: &str| env::var_os(name).filter(|_| refused.is_none() || name != ENV_NVML_LIB);
    config.clone().with_environment(variable)
}

/// Without a slash, the dynamic linker searches the system's directories for it (dlopen(3)).
fn may_load(path: &OsStr, user: User) -> bool {
    !user.is_root()
        || !path.as_bytes().contains(&b'/')
        || absolute(Path::new(path)).is_ok_and(|path| user.decides(&path))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: FAULT-15
    #[test]
    fn root_loads_no_library_of_another_user() {
        let directory = tempfile::tempdir().unwrap();
        let library = directory.path().join("lib.so");
        std::fs::write(&library, "").unwrap();
        let mode = |mode| std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(&library, mode(0o666)).unwrap();
        for (user, may) in [(User::of(0, 0), false), (User::of(1000, 0), true), (User::of(0, 65534), true)] {
            assert_eq!(may_load(library.as_os_str(), user), may, "{user:?}");
        }
        assert!(may_load(OsStr::new("libnvidia-ml.so.1"), User::of(0, 0)));
        assert!(may_load(OsStr::new("/usr/lib/there/is/none.so"), User::of(0, 0)));
        assert!(!may_load(OsStr::new("/tmp/there-is-none.so"), User::of(0, 0)));
    }
}
