//! The events of a container daemon, as docker and podman write them: a JSON object in each line.

use std::collections::BTreeMap;

use serde::Deserialize;

/// What happened to a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Event {
    /// When, nanoseconds since 1970 by the daemon's clock.
    pub(super) at_ns: u64,
    /// Its id: 64 hexadecimal digits.
    pub(super) id: String,
    pub(super) name: String,
    pub(super) image: String,
    /// The project and the service of docker compose.
    pub(super) compose: Option<(String, String)>,
    pub(super) what: What,
}

/// See [`Event`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// It was created.
    Created,
    /// It was started.
    Started,
    /// Its first process ended with this exit code.
    Ended(Option<i64>),
    /// The kernel killed a process in it for want of memory.
    OutOfMemory,
    /// A command is about to be executed in it.
    ExecBegins,
    /// A command that was executed in it ended with this exit code.
    ExecEnded(Option<i64>),
}

/// Number of digits of an id.
const ID_DIGITS: usize = 64;
/// Maximum number of characters of a name.
const MOST_OF_NAME: usize = 300;

#[derive(Deserialize)]
struct Line {
    #[serde(rename = "Type", default)]
    kind: String,
    #[serde(rename = "Action", default)]
    action: String,
    #[serde(rename = "Actor")]
    actor: Actor,
    #[serde(rename = "timeNano")]
    at_ns: u64,
}

#[derive(Deserialize)]
struct Actor {
    #[serde(rename = "ID", default)]
    id: String,
    #[serde(rename = "Attributes", default)]
    attributes: BTreeMap<String, String>,
}

/// Parses a line. `None`: it is no event of a container that counts here.
pub(super) fn parse(line: &[u8]) -> Option<Event> {
    let Line { kind, action, actor, at_ns } = serde_json::from_slice(line).ok()?;
    let attribute = |name: &str| actor.attributes.get(name).map(|value| shortened(value));
    let exit_code = || {
        let code = actor.attributes.get("exitCode").or_else(|| actor.attributes.get("containerExitCode"));
        code?.parse().ok()
    };
    // That of an exec has its command after the name. podman calls some "exec", "exec_died" and "died".
    let what = match action.split(':').next()? {
        "create" => What::Created,
        "start" => What::Started,
        "die" | "died" => What::Ended(exit_code()),
        "oom" => What::OutOfMemory,
        "exec_create" | "exec" => What::ExecBegins,
        "exec_die" | "exec_died" => What::ExecEnded(exit_code()),
        _ => return None,
    };
    (kind == "container" && is_id(&actor.id)).then(|| Event {
        at_ns,
        name: attribute("name").unwrap_or_default(),
        image: attribute("image").unwrap_or_default(),
        compose: Option::zip(
            attribute("com.docker.compose.project"),
            attribute("com.docker.compose.service"),
        ),
        what,
        id: actor.id.clone(),
    })
}

/// Whether the text is an id. It becomes a part of paths.
pub(super) fn is_id(text: &str) -> bool {
    text.len() == ID_DIGITS && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

fn shortened(name: &str) -> String {
    name.chars().take(MOST_OF_NAME).collect()
}

/// Parses the pid of a container's first process from the daemon's description of the container. `None`: it does not run.
pub(super) fn pid(description: &[u8]) -> Option<u32> {
    #[derive(Deserialize)]
    struct Description {
        #[serde(rename = "State")]
        state: State,
    }
    #[derive(Deserialize)]
    struct State {
        #[serde(rename = "Pid")]
        pid: u32,
    }
    let Description { state } = serde_json::from_slice(description).ok()?;
    Some(state.pid).filter(|pid| *pid > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(kind: &str, action: &str, id: &str, attributes: &str) -> String {
        format!(
            r#"{{"status":"x","Type":"{kind}","Action":"{action}","Actor":{{"ID":"{id}","Attributes":{{"image":"i","name":"n"{attributes}}}}},"timeNano":5}}"#
        )
    }

    // Requirement: SEE-136
    #[test]
    fn events_of_containers_are_parsed() {
        let id = "0a".repeat(32);
        for (action, attributes, what) in [
            ("create", "", Some(What::Created)),
            ("start", "", Some(What::Started)),
            ("die", r#","exitCode":"137""#, Some(What::Ended(Some(137)))),
            ("die", r#","exitCode":"x""#, Some(What::Ended(None))),
            ("oom", "", Some(What::OutOfMemory)),
            ("exec_create: sh -c create", "", Some(What::ExecBegins)),
            ("exec_start: sh", "", None),
            ("exec_die", r#","exitCode":"0""#, Some(What::ExecEnded(Some(0)))),
            ("exec", "", Some(What::ExecBegins)),
            ("exec_died", r#","containerExitCode":"2""#, Some(What::ExecEnded(Some(2)))),
            ("destroy", "", None),
        ] {
            let event = parse(line("container", action, &id, attributes).as_bytes());
            assert_eq!(event.as_ref().map(|event| event.what), what, "{action}");
            assert!(event.is_none_or(|event| (event.at_ns, &*event.name, &*event.image) == (5, "n", "i")));
        }
        let compose = r#","com.docker.compose.project":"p","com.docker.compose.service":"s""#;
        let event = parse(line("container", "create", &id, compose).as_bytes()).unwrap();
        assert_eq!(event.compose, Some(("p".to_owned(), "s".to_owned())));
    }

    // Requirement: SEE-136
    #[test]
    fn other_lines_are_left_out() {
        let id = "0a".repeat(32);
        for line in [
            line("network", "create", &id, ""),
            line("container", "create", "../../etc", ""),
            line("container", "create", &id.to_uppercase(), ""),
            line("container", "create", &id, r#","labels":{}"#),
            "{".to_owned(),
            String::new(),
            "[".repeat(100_000),
        ] {
            assert_eq!(parse(line.as_bytes()), None, "{line}");
        }
        let long = line("container", "create", &id, &format!(r#","name":"{}""#, "x".repeat(9999)));
        assert!(parse(long.as_bytes()).is_none_or(|event| event.name.len() == MOST_OF_NAME));
    }

    // Requirement: SEE-136
    #[test]
    fn pid_is_parsed() {
        assert_eq!(pid(br#"{"Id":"x","State":{"Running":true,"Pid":77}}"#), Some(77));
        for text in [
            r#"{"State":{"Pid":0}}"#,
            r#"{"State":{"Pid":-1}}"#,
            r#"{"State":{}}"#,
            "",
            r#"{"State":{"Pid":99999999999}}"#,
        ] {
            assert_eq!(pid(text.as_bytes()), None, "{text}");
        }
    }
}
