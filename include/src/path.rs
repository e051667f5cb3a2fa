//! Parts of paths, as bytes.

/// The part after the last slash.
pub fn file_name(path: &[u8]) -> &[u8] {
    path.rsplit(|b| *b == b'/').next().unwrap_or_default()
}
