//! Which users may open the session's file. What may open it can truncate it, and the programs of the run then end by SIGBUS. So it is opened
//! to all users only when a container was created whose programs could not open it otherwise.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use gpu_track_collector::segment;
use serde_json::Value;

/// Whether all users may open the session.
#[derive(Debug, Default)]
pub(super) struct SessionAccess {
    is_open: AtomicBool,
}

impl SessionAccess {
    /// Lets all users open the session's file at `segment`. Where that fails, the programs of other users are sampled.
    pub(super) fn open(&self, segment: &Path) {
        if !self.is_open.load(Ordering::Relaxed) && segment::open_to_all(segment).is_ok() {
            self.is_open.store(true, Ordering::Relaxed);
        }
    }
}

/// Whether the first program of a container may be unable to open a file of the user `uid` with mode 0600. `user` is whom it runs as, as
/// the daemon writes that, and `dropped` has the capabilities that it lacks.
pub(super) fn is_other_user(user: &str, dropped: &Value, info: &Value, uid: u32) -> bool {
    let options = info.get("SecurityOptions").and_then(Value::as_array).into_iter().flatten();
    let has = |name: &str| options.clone().filter_map(Value::as_str).any(|option| option.starts_with(name));
    if has("name=userns") {
        return true;
    }
    let user = user.split(':').next().unwrap_or_default();
    let is_root = matches!(user, "" | "0" | "root");
    if has("name=rootless") {
        // Root in the container is the user who runs the daemon. Only that user's files can be mounted.
        return !is_root;
    }
    if is_root {
        // CAP_DAC_OVERRIDE opens another user's file.
        return uid != 0 && dropped.as_array().is_some_and(|dropped| !dropped.is_empty());
    }
    user.parse() != Ok(uid)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    // Requirement: FAULT-11
    #[test]
    fn session_is_opened_only_for_containers_of_other_users() {
        let is_other = |user: &str, dropped: Value, options: Value, uid| {
            is_other_user(user, &dropped, &json!({"SecurityOptions": options}), uid)
        };
        let plain = || json!(["name=seccomp,profile=builtin"]);
        for (user, uid, expected) in [
            ("", 0, false),
            ("root:7", 0, false),
            ("0", 1000, false),
            ("1000:1000", 1000, false),
            ("1234", 1000, true),
            ("1234:0", 0, true),
            ("nobody", 0, true),
        ] {
            assert_eq!(is_other(user, json!(null), plain(), uid), expected, "{user} {uid}");
        }
        assert!(is_other("", json!(["ALL"]), plain(), 1000) && !is_other("", json!(["ALL"]), plain(), 0));
        assert!(is_other("", json!([]), json!(["name=userns"]), 0));
        assert!(!is_other("", json!(["ALL"]), json!(["name=rootless"]), 1000));
        assert!(is_other("1000", json!([]), json!(["name=rootless"]), 1000));
        assert!(!is_other_user("", &json!(null), &json!({}), 0));
    }
}
