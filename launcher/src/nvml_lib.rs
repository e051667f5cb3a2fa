//! GPU_TRACK_NVML_LIB: which library the collector loads in place of NVIDIA's.
//!
//! The environment of root's programs can be another user's (`su -m`, `sudo -E`). So root takes the variable only if no other
//! user decides which file the path stands for. `--nvml-lib` is not checked: root typed it.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, absolute};

use gpu_track_collector::safe_path::{Unsafe, User};
use gpu_track_collector::{ENV_NVML_LIB, GpuConfig};

/// Adds what the environment says about GPUs to the configuration. If root may not load the library that the environment names,
/// that library is left out, and `warnings` gets the reason.
pub(crate) fn with_environment(config: &GpuConfig, warnings: &mut Vec<String>) -> GpuConfig {
    let named = env::var_os(ENV_NVML_LIB).filter(|_| config.nvml_lib.is_none());
    let library = named.and_then(|path| match to_load(&path, User::this()) {
        Ok(library) => Some(library),
        Err(reason) => {
            warnings.push(format!(
                "{ENV_NVML_LIB} is ignored: root loads no library that another user can replace: {}: {reason}. If you \
                 trust it, name it by --nvml-lib.",
                path.display()
            ));
            None
        }
    });
    config
        .clone()
        .with_environment(|name| if name == ENV_NVML_LIB { library.clone() } else { env::var_os(name) })
}

/// Gives the path to load for `path`. For root, links in it are resolved: a link in another user's directory could lead elsewhere
/// after it was checked. A name without a slash stays: the dynamic linker looks for it in the system's directories (dlopen(3)).
///
/// # Errors
/// If `user` is root, and another user can replace the file.
fn to_load(path: &OsStr, user: User) -> Result<OsString, Unsafe> {
    if !user.is_root() || !path.as_bytes().contains(&b'/') {
        return Ok(path.to_owned());
    }
    Ok(user.resolve(&absolute(Path::new(path))?)?.into_os_string())
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
            assert_eq!(to_load(library.as_os_str(), user).is_ok(), may, "{user:?}");
        }
        let name = OsStr::new("libnvidia-ml.so.1");
        assert_eq!(to_load(name, User::of(0, 0)).unwrap(), name);
        assert!(to_load(OsStr::new("/usr/lib/there/is/none.so"), User::of(0, 0)).is_err());
    }

    // Requirement: FAULT-15
    #[test]
    fn root_loads_what_a_link_led_to_when_it_was_checked() {
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("lib.so");
        std::os::unix::fs::symlink("/bin/sh", &link).unwrap();
        let file = std::fs::canonicalize("/bin/sh").unwrap();
        assert_eq!(to_load(link.as_os_str(), User::of(0, 0)).unwrap(), file.into_os_string());
        assert_eq!(to_load(link.as_os_str(), User::of(1000, 0)).unwrap(), link.into_os_string());
    }
}
