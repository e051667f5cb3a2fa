//! Which users may open the session's file. What may open it can truncate it, and the programs of the run then end by SIGBUS. So it is opened
//! to all users only when a container was created whose programs could not open it otherwise.

use std::sync::atomic::{AtomicBool, Ordering};

use gpu_track_collector::segment;
use serde_json::Value;

use super::create::Editor;
use super::daemon::{self, Reply};

/// Whether all users may open the session.
#[derive(Debug, Default)]
pub(super) struct SessionAccess {
    is_open: AtomicBool,
}

impl SessionAccess {
    /// Lets the user of an edited container open the session, before the client gets to know the container and can start it. If the daemon
    /// does not say which user that is, its programs are sampled.
    pub(super) fn let_in(&self, editor: &Editor, id: &str) {
        let is_id = id.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_id || self.is_open.load(Ordering::Relaxed) {
            return;
        }
        let found = daemon::get(&editor.socket, &format!("/containers/{id}/json"));
        let container = found.filter(|reply| reply.status == 200).as_ref().and_then(Reply::json);
        let Some(container) = container else { return };
        let Some(info) = editor.info() else { return };
        if is_other_user(&container, &info, rustix::process::geteuid().as_raw())
            && segment::open_to_all(&editor.segment).is_ok()
        {
            self.is_open.store(true, Ordering::Relaxed);
        }
    }
}

/// Whether a container's first program may be unable to open a file of this user with mode 0600.
fn is_other_user(container: &Value, info: &Value, uid: u32) -> bool {
    let options = info.get("SecurityOptions").and_then(Value::as_array).into_iter().flatten();
    let has = |name: &str| options.clone().filter_map(Value::as_str).any(|option| option.starts_with(name));
    if has("name=userns") {
        return true;
    }
    let user = container.pointer("/Config/User").and_then(Value::as_str).unwrap_or_default();
    let user = user.split(':').next().unwrap_or_default();
    let is_root = matches!(user, "" | "0" | "root");
    if has("name=rootless") {
        // Root in the container is the user who runs the daemon. Only that user's files can be mounted.
        return !is_root;
    }
    if is_root {
        let dropped = container.pointer("/HostConfig/CapDrop").and_then(Value::as_array);
        // CAP_DAC_OVERRIDE opens another user's file.
        return uid != 0 && dropped.is_some_and(|dropped| !dropped.is_empty());
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
            let container = json!({"Config": {"User": user}, "HostConfig": {"CapDrop": dropped}});
            is_other_user(&container, &json!({"SecurityOptions": options}), uid)
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
        assert!(!is_other_user(&json!({}), &json!({}), 0));
    }
}
