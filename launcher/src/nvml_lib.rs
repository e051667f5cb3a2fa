//! What the environment says about GPUs: GPU_TRACK_NVML_LIB, which library the collector loads in place of NVIDIA's, and
//! GPU_TRACK_METRICS, the file that has what PyTorch told of its memory.
//!
//! Root takes the variable only if no other user decides which file the path stands for, and the file has the name of NVIDIA's
//! library. The name is checked because some other libraries of the system, loaded as root, write a file that a variable names
//! (libprofiler: CPUPROFILE). `--nvml-lib` is not checked: root typed it.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, absolute};

use gpu_track_collector::model::gpu::{ENV_METRICS, ENV_NVML_LIB, GpuConfig};
use gpu_track_collector::safe_path::{Unsafe, User};

use crate::trusted;

/// What the names of NVIDIA's library begin with.
const NAME: &[u8] = b"libnvidia-ml.so";

/// Adds what the environment says about GPUs to the configuration. If root may not load the library that the environment names,
/// that library is left out, and `warnings` gets the reason.
pub(crate) fn with_environment(config: &GpuConfig, warnings: &mut Vec<String>) -> GpuConfig {
    let named = env::var_os(ENV_NVML_LIB).filter(|_| config.nvml_lib.is_none());
    let library = named.and_then(|path| match to_load(&path, User::this()) {
        Ok(library) => Some(library),
        Err(reason) => {
            warnings.push(format!("{ENV_NVML_LIB} is ignored: {reason}"));
            None
        }
    });
    let metrics = env::var_os(ENV_METRICS).and_then(|path| metrics_file(&path, User::this()));
    config.clone().with_environment(|name| match name {
        ENV_NVML_LIB => library.clone(),
        ENV_METRICS => metrics.clone(),
        _ => env::var_os(name),
    })
}

/// The file of metrics to read at the end of the run. `None`: none is named, or `user` is root, and another user can replace it. The
/// Python module says so then.
fn metrics_file(named: &OsStr, user: User) -> Option<OsString> {
    let file = absolute(Path::new(named)).ok()?;
    if !user.is_root() {
        return Some(file.into_os_string());
    }
    // The file need not be there yet. Some files of /proc lose what is read.
    let name = file.file_name().filter(|name| name.as_bytes().ends_with(b".csv"))?;
    Some(Path::new(&trusted::path(file.parent()?.as_os_str(), user).ok()?).join(name).into_os_string())
}

/// The path to load for `path`. A name without a slash stays: the dynamic linker looks for it in the system's directories
/// (dlopen(3)).
///
/// # Errors
/// If `user` is root, and the file can't be looked at, another user can replace it, or it can be another library. The error is the reason in
/// words.
fn to_load(path: &OsStr, user: User) -> Result<OsString, String> {
    let named = path.display();
    let unsafe_for_root = |reason: &dyn Display| {
        format!(
            "root loads no library that another user may have named: {named}: {reason}. If you trust it, name it by --nvml-lib."
        )
    };
    let is_path = path.as_bytes().contains(&b'/');
    let found = if is_path { trusted::path(path, user) } else { Ok(path.to_owned()) };
    let found = found.map_err(|error| match error {
        Unsafe::Io(error) => format!("{named}: {error}."),
        reason => unsafe_for_root(&reason),
    })?;
    let name = Path::new(&found).file_name().unwrap_or_default();
    if user.is_root() && !name.as_bytes().starts_with(NAME) {
        return Err(unsafe_for_root(&format_args!("its name is not {}", NAME.escape_ascii())));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: FAULT-15
    #[test]
    fn root_loads_no_library_of_another_user() {
        let directory = tempfile::tempdir().unwrap();
        let library = directory.path().join("libnvidia-ml.so.1");
        std::fs::write(&library, "").unwrap();
        let mode = |mode| std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(&library, mode(0o666)).unwrap();
        for (user, may) in [(User::new(0, 0), false), (User::new(1000, 0), true), (User::new(0, 65534), true)]
        {
            assert_eq!(to_load(library.as_os_str(), user).is_ok(), may, "{user:?}");
        }
        let name = OsStr::new("libnvidia-ml.so.1");
        assert_eq!(to_load(name, User::new(0, 0)).unwrap(), name);
        let missing = to_load(OsStr::new("/usr/there/is/none.so"), User::new(0, 0)).unwrap_err();
        assert_eq!(missing, "/usr/there/is/none.so: No such file or directory (os error 2).");
    }

    // Requirement: FAULT-15
    #[test]
    fn root_loads_what_a_link_led_to_when_it_was_checked_and_no_other_library() {
        let directory = tempfile::tempdir().unwrap();
        let own = User::new(User::this().uid(), 0);
        let file = directory.path().canonicalize().unwrap().join("libnvidia-ml.so.550");
        std::fs::write(&file, "").unwrap();
        let link = directory.path().join("libnvidia-ml.so.1");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(
            to_load(link.as_os_str(), own).unwrap(),
            if own.is_root() { &file } else { &link }.as_os_str()
        );
        let other = directory.path().join("libnvidia-ml.so.2");
        std::os::unix::fs::symlink("/bin/sh", &other).unwrap();
        for named in [other.as_os_str(), OsStr::new("/bin/sh"), OsStr::new("libprofiler.so.0")] {
            assert!(to_load(named, User::new(0, 0)).unwrap_err().contains("its name is not libnvidia-ml.so"));
            assert_eq!(to_load(named, User::new(1000, 0)).unwrap(), named);
        }
    }
}
