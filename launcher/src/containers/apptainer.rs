//! Apptainer, and Singularity before it: they bind what their variables name. The container is a child of the command, so it carries the
//! shim once that and /dev/shm can be seen in it.

use std::ffi::OsString;
use std::path::Path;

/// The variables that have them bind the shim's directory and /dev/shm, beside what the user's own have them bind.
pub(super) fn variables(
    shim: &Path,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Vec<(&'static str, OsString)> {
    let Some(directory) = shim.parent() else { return Vec::new() };
    // A comma or a colon in a path would be taken for the start of another.
    if directory.to_string_lossy().contains([',', ':']) {
        return Vec::new();
    }
    let name_of = |name: &'static str| {
        let mut binds = variable(name).filter(|binds| !binds.is_empty()).unwrap_or_default();
        if !binds.is_empty() {
            binds.push(",");
        }
        binds.push(directory);
        binds.push(",/dev/shm");
        (name, binds)
    };
    // Apptainer reads the older name, too, if the newer one is not set.
    ["APPTAINER_BIND", "SINGULARITY_BIND"].map(name_of).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: SEE-141
    #[test]
    fn binds_of_the_user_are_kept() {
        let given = |name: &str| (name == "SINGULARITY_BIND").then(|| "/data:/d".into());
        let binds = variables(Path::new("/cache/shim.so"), given);
        assert_eq!(
            binds,
            [
                ("APPTAINER_BIND", OsString::from("/cache,/dev/shm")),
                ("SINGULARITY_BIND", OsString::from("/data:/d,/cache,/dev/shm")),
            ]
        );
        assert!(variables(Path::new("/a,b/shim.so"), given).is_empty());
    }
}
