//! The edits of a request that creates a container, so that its programs carry the shim.
//!
//! Shim and segment are mounted below [`DIRECTORY`], and two variables name them. /dev is a file system of each container's own: the image
//! and its layers stay as they are, whether the root is read-only, and /dev/shm can be shared with other containers.
//!
//! Only a container that docker removes at its end (`--rm`) and whose client attaches to it is edited. Any other could be started after the
//! run, when the segment is gone. Then it would fail, and docker would remove it. A library can create such
//! a container as if to attach, so that it is edited. Then a daemon of API 1.42 or newer makes an empty directory in place of the segment,
//! and the shim does nothing. An older daemon does not start the container.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gpu_track_abi::preload::{SHIM_PREFIX, around_shim};
use gpu_track_abi::{ENV_PRELOAD, ENV_SESSION, MAX_PATH};
use gpu_track_collector::model::containers::NotTracked;
use serde_json::{Map, Value, json};

use super::daemon::{self, Info, NoReply, Reply};
use super::json;
use super::requests::CreateRequest;
use super::session_access::{SessionAccess, is_other_user};

/// Where shim and segment are in a container.
pub(crate) const DIRECTORY: &str = "/dev/gpu-track";

/// What the proxy puts into containers.
#[derive(Debug)]
pub(super) struct Editor {
    /// The daemon's socket.
    pub(super) socket: PathBuf,
    /// The proxy's, which is gone after the run.
    pub(super) of_proxy: PathBuf,
    pub(super) shim: PathBuf,
    pub(super) segment: PathBuf,
    pub(super) info: Info,
    pub(super) access: SessionAccess,
}

/// What becomes of a request.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The daemon has created the edited container with this id, and replied so. `is_last`: the connection closes after the reply.
    Created { reply: Vec<u8>, id: Option<String>, is_last: bool },
    /// The request passes on as it was sent. `None`: it has no container, as far as known.
    Original(Option<NotTracked>),
    /// The daemon did not reply. Whether it has created the container is not known.
    Lost,
}

impl Editor {
    /// Has the daemon create the container with the edits, if that can be done.
    /// `client`: its process, if that is known.
    pub(super) fn create(&self, request: &CreateRequest, client: Option<i32>) -> Outcome {
        self.create_edited(request, client).unwrap_or_else(Outcome::Original)
    }

    /// Does what [`Self::create`] does. The error is that of [`Outcome::Original`].
    fn create_edited(
        &self,
        request: &CreateRequest,
        client: Option<i32>,
    ) -> Result<Outcome, Option<NotTracked>> {
        let mut body = json::parse(&request.body).ok_or(NotTracked::Unusual)?;
        let [_, target, _] = &request.head.first;
        let image = check(&body, target)?.to_owned();
        if client.is_some_and(only_creates) {
            return Err(Some(NotTracked::Detached));
        }
        let info = self.info().ok_or(NotTracked::DaemonUnknown)?;
        if let Some(why) = refusal_of(&info) {
            return Err(Some(why));
        }
        let found = match daemon::get(&self.socket, &format!("/images/{image}/json")) {
            Some(reply) if reply.status == 200 => reply.json(),
            // The client loads the image, and asks again.
            Some(Reply { status: 404, .. }) => return Err(None),
            _ => None,
        };
        let found = found.ok_or(NotTracked::DaemonUnknown)?;
        if found.get("Os") != Some(&json!("linux"))
            || found.get("Architecture") != Some(&json!(architecture()))
        {
            return Err(Some(NotTracked::Platform));
        }
        let of_image = variable(found.pointer("/Config/Env"), ENV_PRELOAD).unwrap_or_default();
        edit(&mut body, &self.shim, &self.segment, &of_image).ok_or(NotTracked::Unusual)?;
        let (user, dropped) = (user(&body, &found), body.pointer("/HostConfig/CapDrop"));
        let own_user = rustix::process::geteuid().as_raw();
        let is_other_user = is_other_user(user, dropped.unwrap_or(&Value::Null), &info, own_user);
        let body = serde_json::to_vec(&body).map_err(|_| NotTracked::Unusual)?;
        let edited = [request.head.with_length(body.len()), body].concat();
        match daemon::send(&self.socket, &edited) {
            Ok(reply) if reply.status == 201 => {
                let id = reply.json().and_then(|json| Some(json.get("Id")?.as_str()?.to_owned()));
                let is_last = reply.is_last || request.head.is_last();
                if is_other_user {
                    self.access.open(&self.segment);
                }
                Ok(Outcome::Created { reply: reply.bytes, id, is_last })
            }
            // It may refuse the original, too: that is for the client to see.
            Ok(Reply { status: 404 | 409, .. }) => Err(None),
            Ok(_) | Err(NoReply::NotAsked) => Err(Some(NotTracked::Refused)),
            Err(NoReply::Lost) => Ok(Outcome::Lost),
        }
    }

    /// Mounts the daemon's socket in place of the proxy's, as a container that is to use docker names it by DOCKER_HOST.
    pub(super) fn name_daemon(&self, request: &mut CreateRequest) {
        let name = self.of_proxy.file_name().unwrap_or_default().as_bytes();
        let is_named = !name.is_empty() && request.body.windows(name.len()).any(|part| part == name);
        let body = is_named.then(|| json::parse(&request.body)).flatten();
        let Some((mut body, socket)) = body.zip(self.socket.to_str()) else { return };
        if replace_sources(&mut body, &self.of_proxy, socket)
            && let Ok(body) = serde_json::to_vec(&body)
        {
            request.set_body(body);
        }
    }

    /// What the daemon says of itself. `None`: it does not answer.
    pub(super) fn info(&self) -> Option<Arc<Value>> {
        self.info.of(&self.socket)
    }
}

/// Whether this process is `docker create`, which asks for the same container as `docker run`, and does not start it.
fn only_creates(pid: i32) -> bool {
    let read = |name: &str| std::fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
    read("comm").starts_with(b"docker") && is_create(&read("cmdline"))
}

/// Whether a command line, with NUL after each word, has `create` before `run`.
fn is_create(command_line: &[u8]) -> bool {
    let mut words = command_line.split(|byte| *byte == 0).skip(1);
    words.find(|word| [&b"create"[..], b"run"].contains(word)) == Some(b"create")
}

/// This machine, as docker calls it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Why no container can be edited of a daemon that says this of itself. `None`: they can.
fn refusal_of(info: &Value) -> Option<NotTracked> {
    let text = |key: &str| info.get(key).and_then(Value::as_str).unwrap_or_default();
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let is_here = text("OSType") == "linux" && text("KernelVersion") == kernel.trim();
    let options = info.get("SecurityOptions").and_then(Value::as_array).into_iter().flatten();
    let has_selinux = options.filter_map(Value::as_str).any(|option| option.starts_with("name=selinux"));
    if !is_here {
        // Such as Docker Desktop's virtual machine, or a socket that ssh forwards.
        Some(NotTracked::OtherMachine)
    } else if has_selinux {
        // Each program would write that the shim can't be preloaded.
        Some(NotTracked::SeLinux)
    } else {
        (!is_known_runtime(text("DefaultRuntime"))).then_some(NotTracked::Runtime)
    }
}

/// Whether a runtime starts containers by the kernel of this machine. Others (gVisor, Kata) can't share memory with it.
fn is_known_runtime(name: &str) -> bool {
    matches!(
        name,
        "" | "runc"
            | "crun"
            | "youki"
            | "nvidia"
            | "io.containerd.runc.v2"
            | "io.containerd.runtime.v1.linux"
    )
}

/// The value of a key in a request, whose keys docker reads in any case.
///
/// # Errors
/// If the key is written in another way: the daemon would then see two.
fn value<'a>(object: &'a Map<String, Value>, key: &str) -> Result<&'a Value, NotTracked> {
    if object.keys().any(|known| known != key && json::folded(known) == key.to_lowercase()) {
        return Err(NotTracked::Unusual);
    }
    Ok(object.get(key).unwrap_or(&Value::Null))
}

/// Whether a container may be edited. Returns its image.
///
/// # Errors
/// If not: why.
fn check<'a>(body: &'a Value, target: &str) -> Result<&'a str, NotTracked> {
    let unusual = NotTracked::Unusual;
    let body = body.as_object().ok_or(unusual)?;
    let host = value(body, "HostConfig")?.as_object().ok_or(NotTracked::Kept)?;
    if value(host, "AutoRemove")? != &Value::Bool(true) {
        return Err(NotTracked::Kept);
    }
    let is_true = |key: &str| Ok(value(body, key)? == &Value::Bool(true));
    if !is_true("AttachStdout")? && !is_true("AttachStderr")? {
        return Err(NotTracked::Detached);
    }
    let query = target.split_once('?').map_or("", |(_, query)| query);
    let platform = query.split('&').find_map(|pair| pair.strip_prefix("platform="));
    if platform.is_some_and(|platform| !platform.is_empty()) {
        return Err(NotTracked::Platform);
    }
    if !is_known_runtime(value(host, "Runtime")?.as_str().unwrap_or_default()) {
        return Err(NotTracked::Runtime);
    }
    let list = |value: &'a Value| match value {
        Value::Null => Ok(&[][..]),
        Value::Array(list) => Ok(list.as_slice()),
        _ => Err(unusual),
    };
    // They can be those of another run.
    if !list(value(host, "VolumesFrom")?)?.is_empty() {
        return Err(NotTracked::Mounts);
    }
    let keys = |value: &'a Value| value.as_object().into_iter().flat_map(|object| object.keys());
    let mut targets: Vec<&str> =
        keys(value(body, "Volumes")?).chain(keys(value(host, "Tmpfs")?)).map(String::as_str).collect();
    for mount in list(value(host, "Mounts")?)? {
        targets.push(value(mount.as_object().ok_or(unusual)?, "Target")?.as_str().ok_or(unusual)?);
    }
    for bind in list(value(host, "Binds")?)? {
        targets.push(bind.as_str().and_then(|bind| bind.split(':').nth(1)).ok_or(unusual)?);
    }
    if targets.into_iter().any(|target| hides_directory(target) && !is_of_run(target)) {
        return Err(NotTracked::Mounts);
    }
    // Read by those who edit.
    value(body, "User")?;
    value(host, "CapDrop")?;
    for entry in list(value(body, "Env")?)? {
        entry.as_str().ok_or(unusual)?;
    }
    let image = value(body, "Image")?.as_str().ok_or(unusual)?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"./:@_-".contains(&byte);
    let is_name = !image.is_empty()
        && image.bytes().all(is_plain)
        && !image.split('/').any(|part| part.starts_with('.'));
    if is_name { Ok(image) } else { Err(unusual) }
}

/// The user as whom the first program of a container runs. Empty: root.
fn user<'a>(body: &'a Value, image: &'a Value) -> &'a str {
    let of_call = body.get("User").and_then(Value::as_str).filter(|user| !user.is_empty());
    of_call.or_else(|| image.pointer("/Config/User")?.as_str()).unwrap_or_default()
}

/// Whether something that is mounted here would hide the files of [`DIRECTORY`], or be hidden by them. /dev/shm would not.
fn hides_directory(target: &str) -> bool {
    let target = Path::new(target);
    let mut normal = target.components().filter(|part| matches!(part, std::path::Component::Normal(_)));
    let is_unusual = target.components().any(|part| part == std::path::Component::ParentDir);
    let (first, second) = (normal.next(), normal.next());
    let name = |part: std::path::Component| part.as_os_str().to_owned();
    is_unusual
        || first.is_none()
        || (first.map(name).as_deref() == Some(OsStr::new("dev"))
            && second.map(name).is_none_or(|name| Path::new(DIRECTORY).file_name() == Some(&name)))
}

/// Whether a mount is that of a shim or a segment, as a run within this one makes it.
fn is_of_run(target: &str) -> bool {
    let name = target.strip_prefix(DIRECTORY).and_then(|rest| rest.strip_prefix('/'));
    name.is_some_and(|name| {
        !name.contains('/') && (name.starts_with(SHIM_PREFIX) || name.starts_with("gpu-track."))
    })
}

/// The value of a variable in a list of `NAME=VALUE`, of which the last one counts.
pub(in crate::containers) fn variable(list: Option<&Value>, name: &str) -> Option<String> {
    let entries = list?.as_array()?.iter().filter_map(Value::as_str);
    let of_name = |entry: &str| Some(entry.strip_prefix(name)?.strip_prefix('=')?.to_owned());
    entries.filter_map(of_name).next_back()
}

/// Mounts another file wherever this one is mounted. Returns whether that is anywhere.
fn replace_sources(body: &mut Value, from: &Path, to: &str) -> bool {
    let mut is_replaced = false;
    let mut list = |path: &str, replace: &dyn Fn(&mut Value) -> Option<()>| {
        let entries = body.pointer_mut(path).and_then(Value::as_array_mut);
        is_replaced |= entries.into_iter().flatten().filter_map(replace).count() > 0;
    };
    let is_it = |source: &str| (Path::new(source) == from).then_some(());
    list("/HostConfig/Binds", &|bind: &mut Value| {
        let (source, rest) = bind.as_str()?.split_once(':')?;
        is_it(source)?;
        *bind = Value::String(format!("{to}:{rest}"));
        Some(())
    });
    list("/HostConfig/Mounts", &|mount: &mut Value| {
        let source = mount.get_mut("Source")?;
        is_it(source.as_str()?)?;
        *source = to.into();
        Some(())
    });
    is_replaced
}

/// Edits a request that passed [`check`]. `of_image`: the LD_PRELOAD of the image. `None`: the files have names that can't be written
/// in it.
fn edit(body: &mut Value, shim: &Path, segment: &Path, of_image: &str) -> Option<()> {
    let (shim_inside, segment_inside) = (inside(shim)?, inside(segment)?);
    let mount = |source: &Path, target: &str, is_read_only: bool| {
        let options = json!({"CreateMountpoint": true});
        Some(json!({
            "Type": "bind", "Source": source.to_str()?, "Target": target, "ReadOnly": is_read_only, "BindOptions": options
        }))
    };
    let mut mounts = vec![mount(segment, &segment_inside, false)?];
    let known = body.pointer("/HostConfig/Mounts").and_then(Value::as_array).into_iter().flatten();
    // A run within this one has done so.
    if !known.filter_map(|mount| mount.get("Target")).any(|target| *target == json!(shim_inside)) {
        mounts.push(mount(shim, &shim_inside, true)?);
    }
    let given = variable(body.get("Env"), ENV_PRELOAD).unwrap_or_else(|| of_image.to_owned());
    let preload = merged_preload(&shim_inside, &given)?;
    append(body.get_mut("HostConfig")?, "Mounts", mounts)?;
    set_variables(body, "Env", &preload, &segment_inside)
}

/// Where a file of this machine is in a container. `None`: its path can't be written in JSON, or would be too long.
pub(in crate::containers) fn inside(path: &Path) -> Option<String> {
    let inside = format!("{DIRECTORY}/{}", path.file_name()?.to_str()?);
    (inside.len() <= MAX_PATH).then_some(inside)
}

/// An LD_PRELOAD with the shim before what was `given`.
pub(in crate::containers) fn merged_preload(shim_inside: &str, given: &str) -> Option<String> {
    // `docker run -e LD_PRELOAD` hands on the run's own, whose path is not in the container.
    let given = match around_shim(given.as_bytes()) {
        Some((before, after)) => [before, after].concat(),
        None => given.as_bytes().to_vec(),
    };
    let colon = if given.is_empty() { "" } else { ":" };
    Some(format!("{shim_inside}{colon}{}", OsStr::from_bytes(&given).to_str()?))
}

/// Puts the two variables into the list of this key, in place of others of their names. The list may be missing. Sessions of other runs
/// that are mounted, too, stay.
pub(in crate::containers) fn set_variables(
    object: &mut Value,
    key: &str,
    preload: &str,
    segment_inside: &str,
) -> Option<()> {
    let sessions = variable(object.get(key), ENV_SESSION).unwrap_or_default();
    let mut sessions: Vec<&str> = sessions.split(':').filter(|path| is_of_run(path)).collect();
    sessions.push(segment_inside);
    let sessions = sessions.join(":");
    if let Some(Value::Array(env)) = object.get_mut(key) {
        let is_ours = |entry: &str| {
            [ENV_PRELOAD, ENV_SESSION].iter().any(|name| {
                entry.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
            })
        };
        env.retain(|entry| !entry.as_str().is_some_and(is_ours));
    }
    let variables = [format!("{ENV_PRELOAD}={preload}"), format!("{ENV_SESSION}={sessions}")];
    append(object, key, variables.map(Value::String))
}

/// Appends to the list of this key, which may be missing.
pub(in crate::containers) fn append(
    object: &mut Value,
    key: &str,
    new: impl IntoIterator<Item = Value>,
) -> Option<()> {
    let list = object.as_object_mut()?.entry(key).or_insert(Value::Null);
    if list.is_null() {
        *list = Value::Array(Vec::new());
    }
    list.as_array_mut()?.extend(new);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::containers::proxy::requests::Requests;

    fn request(host: &Value, rest: &Value) -> Value {
        let mut body = json!({"Image": "a/b:c", "AttachStdout": true, "HostConfig": {"AutoRemove": true}});
        body["HostConfig"].as_object_mut().unwrap().extend(host.as_object().unwrap().clone());
        body.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        body
    }

    // Requirement: SEE-139
    #[test]
    fn only_containers_that_are_removed_at_their_end_and_hide_nothing_are_edited() {
        let checked = |host: Value, rest: Value| {
            check(&request(&host, &rest), "/containers/create?name=x").map(str::to_owned)
        };
        let image = || Ok("a/b:c".to_owned());
        assert_eq!(checked(json!({}), json!({})), image());
        assert_eq!(
            checked(
                json!({"Binds": ["/x:/dev/shm", "v:/data:ro"], "Tmpfs": {"/tmp": ""}}),
                json!({"Volumes": {"/v": {}}})
            ),
            image()
        );
        for (host, rest, why) in [
            (json!({"AutoRemove": false}), json!({}), NotTracked::Kept),
            (json!({"AutoRemove": null}), json!({}), NotTracked::Kept),
            (json!({"autoRemove": true}), json!({}), NotTracked::Unusual),
            // `docker run -d`
            (json!({}), json!({"AttachStdout": false, "AttachStderr": false}), NotTracked::Detached),
            (json!({}), json!({"AttachStdout": null, "AttachStdin": true}), NotTracked::Detached),
            (json!({"Runtime": "runsc"}), json!({}), NotTracked::Runtime),
            (json!({"Binds": ["/dev:/dev"]}), json!({}), NotTracked::Mounts),
            (json!({"Binds": ["/x:/dev/shm/../gpu-track"]}), json!({}), NotTracked::Mounts),
            (
                json!({"Mounts": [{"Type": "bind", "Source": "/", "Target": "/"}]}),
                json!({}),
                NotTracked::Mounts,
            ),
            (
                json!({"Mounts": [{"Type": "bind", "Target": "/dev/gpu-track/x"}]}),
                json!({}),
                NotTracked::Mounts,
            ),
            (json!({"Tmpfs": {"//dev/": ""}}), json!({}), NotTracked::Mounts),
            (json!({"VolumesFrom": ["other"]}), json!({}), NotTracked::Mounts),
            (json!({"VolumesFrom": "other"}), json!({}), NotTracked::Unusual),
            (json!({"Mounts": "x"}), json!({}), NotTracked::Unusual),
            (json!({"Binds": [7]}), json!({}), NotTracked::Unusual),
            (json!({}), json!({"Env": [7]}), NotTracked::Unusual),
            (json!({}), json!({"env": []}), NotTracked::Unusual),
            (json!({}), json!({"user": "7"}), NotTracked::Unusual),
            (json!({"capdrop": ["ALL"]}), json!({}), NotTracked::Unusual),
            (json!({}), json!({"Image": "../x"}), NotTracked::Unusual),
            (json!({}), json!({"Image": "a b"}), NotTracked::Unusual),
            (json!({}), json!({"Image": ""}), NotTracked::Unusual),
            (json!({}), json!({"Volumes": {"/dev": {}}}), NotTracked::Mounts),
        ] {
            assert_eq!(checked(host.clone(), rest.clone()), Err(why), "{host} {rest}");
        }
        let body = request(&json!({}), &json!({}));
        assert_eq!(check(&body, "/containers/create?platform=linux%2Farm64"), Err(NotTracked::Platform));
        assert!(check(&body, "/containers/create?platform=&name=x").is_ok());
        for body in [json!([]), json!({}), json!({"Image": "a"})] {
            assert!(check(&body, "/containers/create").is_err());
        }
    }

    /// What becomes of this many requests with a daemon that gives these replies to all that it is asked. The last one closes its socket.
    fn outcomes(requests: usize, replies: &'static [&'static str]) -> Vec<Option<NotTracked>> {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("d");
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let daemon = std::thread::spawn(move || {
            for reply in replies {
                let (mut client, _) = listener.accept().unwrap();
                _ = std::io::Read::read(&mut client, &mut [0; 4096]).unwrap();
                std::io::Write::write_all(&mut client, reply.as_bytes()).unwrap();
            }
        });
        let editor = Editor {
            socket,
            of_proxy: "/p/docker.sock".into(),
            shim: "/shim".into(),
            segment: "/s.d/s".into(),
            info: Info::default(),
            access: SessionAccess::default(),
        };
        let body = request(&json!({}), &json!({})).to_string();
        let head = format!("POST /containers/create HTTP/1.1\r\nContent-Length: {}\r\n\r\n", body.len());
        let create = Requests::read(format!("{head}{body}").as_bytes()).unwrap();
        let outcomes = (0..requests).map(|_| match editor.create(&create, None) {
            Outcome::Original(why) => why,
            other => panic!("{other:?}"),
        });
        let outcomes = outcomes.collect();
        daemon.join().unwrap();
        outcomes
    }

    // Requirement: SEE-139
    #[test]
    fn containers_get_the_daemons_own_socket() {
        let editor = Editor {
            socket: "/run/d.sock".into(),
            of_proxy: "/p/docker.sock".into(),
            shim: "/shim".into(),
            segment: "/s.d/s".into(),
            info: Info::default(),
            access: SessionAccess::default(),
        };
        let named = |host: Value| {
            let body = json!({"Image": "a", "HostConfig": host}).to_string();
            let head = format!("POST /containers/create HTTP/1.1\r\nContent-Length: {}\r\n\r\n", body.len());
            let mut request = Requests::read(format!("{head}{body}").as_bytes()).unwrap();
            editor.name_daemon(&mut request);
            let sent = request.bytes();
            assert_eq!(Requests::read(&sent).unwrap().body, request.body);
            serde_json::from_slice::<Value>(&request.body).unwrap()["HostConfig"].clone()
        };
        let of = |socket: &str| json!({"Binds": ["/a:/b", format!("{socket}:/var/run/docker.sock:ro")], "Mounts": [{"Source": socket}, {}]});
        assert_eq!(named(of("/p//docker.sock")), of("/run/d.sock"));
        assert_eq!(named(of("/x/docker.sock")), of("/x/docker.sock"));
        assert_eq!(named(json!({"Binds": "docker.sock"})), json!({"Binds": "docker.sock"}));
    }

    // Requirement: SEE-140
    #[test]
    fn daemon_that_fails_once_is_asked_again_and_only_a_missing_image_is_no_container() {
        const FAILED: &str = "HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n";
        const NONE: &str = "HTTP/1.1 404 X\r\nContent-Length: 0\r\n\r\n";
        const INFO: &str =
            "HTTP/1.1 200 X\r\nContent-Length: 40\r\n\r\n{\"OSType\":\"windows\",\"KernelVersion\":\"x\"}";
        let unknown = Some(NotTracked::DaemonUnknown);
        assert_eq!(outcomes(2, &["", INFO]), [unknown, Some(NotTracked::OtherMachine)]);
        assert_eq!(outcomes(2, &[FAILED, "HTTP/1.1 200 X\r\nContent-Length: 2\r\n\r\n{}"]), [unknown; 2]);
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let info = json!({"OSType": "linux", "KernelVersion": kernel.trim()}).to_string();
        let here: &str = format!("HTTP/1.1 200 X\r\nContent-Length: {}\r\n\r\n{info}", info.len()).leak();
        let replies: &[&str] = vec![here, FAILED, "", NONE].leak();
        assert_eq!(outcomes(3, replies), [unknown, unknown, None]);
    }

    // Requirement: FAULT-11
    #[test]
    fn user_of_the_call_counts_before_that_of_the_image() {
        let image = json!({"Config": {"User": "7:7"}});
        for (body, image, expected) in [
            (json!({"User": "8"}), &image, "8"),
            (json!({"User": ""}), &image, "7:7"),
            (json!({}), &image, "7:7"),
            (json!({}), &json!({"Config": null}), ""),
        ] {
            assert_eq!(user(&body, image), expected, "{body} {image}");
        }
    }

    // Requirement: SEE-139
    #[test]
    fn call_that_only_creates_is_told_from_one_that_runs() {
        for (line, expected) in [
            ("docker create --rm i run", true),
            ("docker --log-level info container create --rm i", true),
            ("docker run --rm i create", false),
            ("docker compose run web create", false),
            ("create x", false),
        ] {
            assert_eq!(is_create(line.replace(' ', "\0").as_bytes()), expected, "{line}");
        }
        assert!(!only_creates(std::process::id().cast_signed()), "another program than docker");
    }

    // Requirement: SEE-139
    #[test]
    fn daemon_of_another_machine_or_kernel_gets_no_edits() {
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let info = |key: &str, value: Value| {
            let mut info =
                json!({"OSType": "linux", "KernelVersion": kernel.trim(), "DefaultRuntime": "runc"});
            info[key] = value;
            refusal_of(&info)
        };
        assert_eq!(info("SecurityOptions", json!(["name=seccomp,profile=default", "name=rootless"])), None);
        for (key, value, why) in [
            ("OSType", json!("windows"), NotTracked::OtherMachine),
            ("KernelVersion", json!("6.1-linuxkit"), NotTracked::OtherMachine),
            ("SecurityOptions", json!(["name=selinux"]), NotTracked::SeLinux),
            ("DefaultRuntime", json!("runsc"), NotTracked::Runtime),
        ] {
            assert_eq!(info(key, value), Some(why), "{key}");
        }
    }

    // Requirement: SEE-139
    #[test]
    fn edits_keep_all_else_and_the_libraries_that_call_and_image_preload() {
        let shim = format!("/cache/{SHIM_PREFIX}0.so");
        let inside = format!("{DIRECTORY}/{SHIM_PREFIX}0.so");
        let edited = |rest: Value, of_image: &str| {
            let mut body =
                request(&json!({"Memory": 12345678901234567_u64, "Mounts": [{"Target": "/m"}]}), &rest);
            edit(&mut body, Path::new(&shim), Path::new("/dev/shm/s.d/s"), of_image).unwrap();
            body
        };
        let body = edited(json!({"Cmd": ["x"], "Env": ["A=1", "LD_PRELOADED=x"]}), "");
        assert_eq!(
            (&body["HostConfig"]["Memory"], &body["Cmd"]),
            (&json!(12345678901234567_u64), &json!(["x"]))
        );
        let options = json!({"CreateMountpoint": true});
        let mounts = json!([
            {"Target": "/m"},
            {"Type": "bind", "Source": "/dev/shm/s.d/s", "Target": "/dev/gpu-track/s", "ReadOnly": false, "BindOptions": options},
            {"Type": "bind", "Source": shim, "Target": inside, "ReadOnly": true, "BindOptions": options},
        ]);
        assert_eq!(body["HostConfig"]["Mounts"], mounts);
        let session = "GPU_TRACK_SESSION=/dev/gpu-track/s";
        assert_eq!(body["Env"], json!(["A=1", "LD_PRELOADED=x", format!("LD_PRELOAD={inside}"), session]));
        for (env, of_image, preload) in [
            (json!(null), "/j.so", format!("{inside}:/j.so")),
            (json!(["LD_PRELOAD=/a.so", "LD_PRELOAD=/b.so"]), "/j.so", format!("{inside}:/b.so")),
            (json!(["LD_PRELOAD="]), "/j.so", inside.clone()),
            (
                json!([format!("LD_PRELOAD={shim}:/c.so"), "GPU_TRACK_SESSION=/x"]),
                "",
                format!("{inside}:/c.so"),
            ),
        ] {
            assert_eq!(
                edited(json!({"Env": env}), of_image)["Env"],
                json!([format!("LD_PRELOAD={preload}"), session])
            );
        }
    }

    // Requirement: SEE-139
    #[test]
    fn container_of_a_run_within_this_one_is_in_both() {
        let shim = format!("/cache/{SHIM_PREFIX}0.so");
        let mut body = request(&json!({}), &json!({}));
        for segment in ["gpu-track.0.2.b", "gpu-track.0.1.a"] {
            assert!(check(&body, "/containers/create").is_ok(), "{body}");
            edit(&mut body, Path::new(&shim), &Path::new("/dev/shm/x.d").join(segment), "").unwrap();
        }
        let sessions = "GPU_TRACK_SESSION=/dev/gpu-track/gpu-track.0.2.b:/dev/gpu-track/gpu-track.0.1.a";
        let preload = format!("LD_PRELOAD={DIRECTORY}/{SHIM_PREFIX}0.so");
        assert_eq!(body["Env"], json!([preload, sessions]));
        assert_eq!(body["HostConfig"]["Mounts"].as_array().unwrap().len(), 3);
    }
}
