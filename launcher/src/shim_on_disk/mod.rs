//! The shim's file, which programs load: where it lies, how LD_PRELOAD names it, and which files of older versions are removed.

pub(crate) mod old_shims;
pub(crate) mod preload;
pub(crate) mod shim_file;
