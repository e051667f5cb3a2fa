//! Names of users.

use std::ffi::CStr;

/// Bytes for an entry of the user database. The longest ones of directory services have a few kilobytes.
const BUFFER: usize = 16 * 1024;

/// Looks up the name of a user. The user database can ask a directory service, so this may take seconds. `None`: the user has no
/// name.
pub(crate) fn name(uid: u32) -> Option<String> {
    let mut buffer = vec![0; BUFFER];
    // SAFETY: `passwd` is plain data, for which zeros are valid.
    let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
    let mut found = std::ptr::null_mut();
    // SAFETY: all pointers are valid for this call, and the length is the buffer's.
    let status =
        unsafe { libc::getpwuid_r(uid, &raw mut entry, buffer.as_mut_ptr(), buffer.len(), &raw mut found) };
    if status != 0 || found.is_null() || entry.pw_name.is_null() {
        return None;
    }
    // SAFETY: getpwuid_r succeeded, so the name is a string that ends within `buffer`.
    let name = unsafe { CStr::from_ptr(entry.pw_name) };
    Some(name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    #[test]
    fn root_has_its_name_and_a_number_without_a_user_has_none() {
        assert_eq!(super::name(0).as_deref(), Some("root"));
        assert_eq!(super::name(4_294_901_234), None);
    }
}
