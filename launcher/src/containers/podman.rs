//! Podman without a daemon: a hook edits what its runtime gets to start a container (OCI runtime specification, `config.json`).
//!
//! The hook is named in a copy of podman's configuration, which CONTAINERS_CONF names. Podman asks it at each start of a container, and
//! keeps nothing of it: a container that is started after the run is as it was created. What the hook does not understand it leaves as
//! it is.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use gpu_track_abi::{ENV_PRELOAD, ENV_SESSION};
use gpu_track_collector::model::sorting::Sorting;
use gpu_track_collector::run_directory::{HOOKS, PODMAN_CONFIGURATION};
use gpu_track_collector::{RunDirectory, given_file, segment};
use rustix::fs::{Access, access};
use serde_json::{Value, json};
use toml::{Table, Value as Setting};

use super::proxy::create::{append, inside, merged_preload, set_variables, variable};

/// The name of a hook. Its arguments are shim and segment.
pub(crate) const HOOK: &str = "gpu-track-container";
/// The variable that names podman's configuration.
const CONFIGURATION: &str = "CONTAINERS_CONF";
/// Maximum number of bytes of a file of the configuration.
const MOST_OF_FILE: u64 = 1 << 20;
/// Maximum number of bytes of what the runtime gets.
const MOST_OF_SPEC: u64 = 16 << 20;
/// Where podman looks for hooks as root, unless its configuration says where.
const HOOKS_OF_SYSTEM: [&str; 2] = ["/usr/share/containers/oci/hooks.d", "/etc/containers/oci/hooks.d"];

/// Writes the configuration with the hook. Returns the variable that names it. `None`: SELinux is in force, so no program in a container
/// could load the shim.
///
/// # Errors
/// If a file can't be read, understood or written.
pub(super) fn prepare(
    directory: &RunDirectory,
    shim: &Path,
    segment: &Path,
) -> io::Result<Option<(&'static str, OsString)>> {
    if fs::read("/sys/fs/selinux/enforce").is_ok_and(|enforced| enforced.starts_with(b"1")) {
        return Ok(None);
    }
    let is_root = rustix::process::geteuid().is_root();
    let program = std::env::current_exe()?;
    // Another user's podman fails with a hook that it can't read or execute. A configuration may be the user's secret.
    let mut is_for_all = is_root && can_all_read(&program, 0o005);
    let mut configuration = Table::new();
    for file in files(is_root, |name| std::env::var_os(name)) {
        match given_file::read(&file, MOST_OF_FILE) {
            Ok(text) => {
                is_for_all &= can_all_read(&file, 0o004);
                merge(&mut configuration, parsed(&text)?);
            }
            // The user's choice is podman's to complain of.
            Err(_) if std::env::var_os(CONFIGURATION).is_some() => return Ok(None),
            Err(_) => {}
        }
    }
    let mode = if is_for_all { 0o755 } else { 0o700 };
    let write = |name: &Path, configuration: &Table| write(name, &text_of(configuration), mode & 0o644);
    write(&directory.without_run(PODMAN_CONFIGURATION), &configuration)?;
    let hooks = directory.file(HOOKS);
    fs::create_dir(&hooks)?;
    fs::set_permissions(&hooks, Permissions::from_mode(mode))?;
    // Of two hooks of one name, podman takes the last. A run around this one has its own.
    let mut name = segment.file_name().unwrap_or_default().to_owned();
    name.push(".json");
    let hook = hook(&program, shim, segment).to_string();
    self::write(&hooks.join(name), &hook, mode & 0o644)?;
    name_hooks(&mut configuration, &hooks, is_root)?;
    let path = directory.file(PODMAN_CONFIGURATION);
    write(&path, &configuration)?;
    Ok(Some((CONFIGURATION, path.into())))
}

/// Writes a new file with this mode, whatever the umask.
fn write(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    fs::write(path, text)?;
    fs::set_permissions(path, Permissions::from_mode(mode))
}

/// Whether all users have these rights to the file, and can enter the directories of its path.
fn can_all_read(path: &Path, rights: u32) -> bool {
    let has = |path: &Path, rights| fs::metadata(path).is_ok_and(|found| found.mode() & rights == rights);
    let resolved = fs::canonicalize(path);
    resolved.is_ok_and(|path| has(&path, rights) && path.ancestors().skip(1).all(|above| has(above, 0o001)))
}

/// The files of podman's configuration, of which later ones count more (containers.conf(5)).
fn files(is_root: bool, variable: impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    if let Some(only) = variable(CONFIGURATION).filter(|path| !path.is_empty()) {
        return vec![only.into()];
    }
    let mut all = vec![PathBuf::from("/usr/share/containers/containers.conf")];
    let mut add = |file: PathBuf| {
        let mut parts = file.clone().into_os_string();
        parts.push(".d");
        let parts = fs::read_dir(parts).into_iter().flatten().flatten().map(|entry| entry.path());
        let mut parts: Vec<PathBuf> =
            parts.filter(|path| path.extension().is_some_and(|end| end == "conf")).collect();
        parts.order_by(Ord::cmp);
        all.push(file);
        all.extend(parts);
    };
    add("/etc/containers/containers.conf".into());
    if !is_root {
        let own = variable("XDG_CONFIG_HOME").map(PathBuf::from);
        let own = own.or_else(|| Some(PathBuf::from(variable("HOME")?).join(".config")));
        own.into_iter().for_each(|own| add(own.join("containers/containers.conf")));
    }
    all
}

fn parsed(text: &[u8]) -> io::Result<Table> {
    let text = str::from_utf8(text).map_err(io::Error::other)?;
    text.parse().map_err(|error: toml::de::Error| io::Error::other(error.message().to_owned()))
}

/// Merges a file into those before it, as podman does: a list takes the place of an older one, unless it has `{append=true}`.
fn merge(older: &mut Table, newer: Table) {
    let is_attribute = |item: &Setting| item.as_table().is_some_and(|table| table.contains_key("append"));
    let appends = |item: &Setting| is_attribute(item) && item.get("append") == Some(&Setting::Boolean(true));
    for (key, value) in newer {
        match (older.get_mut(&key), value) {
            (Some(Setting::Table(older)), Setting::Table(newer)) => merge(older, newer),
            (known, Setting::Array(mut list)) => {
                let is_appended = list.iter().any(appends);
                list.retain(|item| !is_attribute(item));
                match known {
                    Some(Setting::Array(known)) if is_appended => known.extend(list),
                    _ => _ = older.insert(key, Setting::Array(list)),
                }
            }
            (_, value) => _ = older.insert(key, value),
        }
    }
}

/// The text of a configuration: a line for each of its tables.
fn text_of(configuration: &Table) -> String {
    configuration.iter().map(|(key, value)| format!("{} = {}\n", json!(key), inline(value))).collect()
}

/// A value in a line of TOML. The escapes of JSON's strings are among those of TOML's.
fn inline(value: &Setting) -> String {
    let joined = |parts: Vec<String>| parts.join(", ");
    match value {
        Setting::String(text) => json!(text).to_string(),
        Setting::Integer(number) => number.to_string(),
        Setting::Float(number) => format!("{number:?}"),
        Setting::Boolean(is) => is.to_string(),
        Setting::Datetime(time) => time.to_string(),
        Setting::Array(list) => format!("[{}]", joined(list.iter().map(inline).collect())),
        Setting::Table(table) => {
            let pairs = table.iter().map(|(key, value)| format!("{} = {}", json!(key), inline(value)));
            format!("{{{}}}", joined(pairs.collect()))
        }
    }
}

/// Names a directory of hooks in the configuration, after those that are used without it.
fn name_hooks(configuration: &mut Table, hooks: &Path, is_root: bool) -> io::Result<()> {
    let not_understood = || io::Error::other("hooks_dir is no list");
    let engine = configuration.entry("engine").or_insert_with(|| Table::new().into());
    let engine = engine.as_table_mut().ok_or_else(not_understood)?;
    let list = engine.entry("hooks_dir").or_insert_with(|| {
        let usual = HOOKS_OF_SYSTEM.iter().filter(|path| is_root && Path::new(path).is_dir());
        Setting::Array(usual.map(|path| Setting::String((*path).to_owned())).collect())
    });
    let hooks = hooks.to_str().ok_or_else(not_understood)?;
    list.as_array_mut().ok_or_else(not_understood)?.push(Setting::String(hooks.to_owned()));
    Ok(())
}

/// A hook that podman asks before it creates a container (oci-hooks(5)). It reports to the run, which leaves it out. A hook that fails, or
/// takes longer than it may, would keep the container from starting; one that is missing would not.
fn hook(program: &Path, shim: &Path, segment: &Path) -> Value {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    json!({
        "version": "1.0.0",
        "hook": {
            "path": program,
            "args": [HOOK, format!("--as={HOOK}"), text(shim), text(segment)],
            "env": [format!("{ENV_PRELOAD}={}", text(shim)), format!("{ENV_SESSION}={}", text(segment))],
        },
        "when": {"always": true},
        "stages": ["precreate"],
    })
}

/// Copies the description of a container from stdin to stdout, with the shim if that can be done. Returns the exit status. If this failed,
/// podman would not start the container. `None`: these are not the arguments of a hook.
pub(crate) fn serve_hook(args: &[OsString]) -> Option<i32> {
    let [shim, segment] = args else { return None };
    let mut given = Vec::new();
    let mut stdin = io::stdin().lock();
    let read = stdin.by_ref().take(MOST_OF_SPEC).read_to_end(&mut given);
    let (shim, segment) = (Path::new(shim), Path::new(segment));
    // Another user's podman can't mount them, so its container would not start.
    let is_reachable = [shim, segment].iter().all(|path| access(*path, Access::READ_OK).is_ok());
    let edited = read.ok().filter(|_| is_reachable).and_then(|_| edited(&given, shim, segment));
    if edited.as_deref().and_then(|spec| is_other_user(spec, rustix::process::geteuid().as_raw()))
        == Some(true)
    {
        // Without it, the programs are sampled.
        let _ = segment::open_to_all(segment);
    }
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(edited.as_deref().unwrap_or(&given));
    // What is left of a description that is too long.
    let copied = io::copy(&mut stdin, &mut stdout);
    Some(i32::from(written.is_err() || copied.is_err()))
}

/// The description of a container with the shim. `None`: it has what is not understood, or mounts that would hide the shim.
fn edited(spec: &[u8], shim: &Path, segment: &Path) -> Option<Vec<u8>> {
    let mut spec: Value = serde_json::from_slice(spec).ok()?;
    let (shim_inside, segment_inside) = (inside(shim)?, inside(segment)?);
    let mounts = spec.get("mounts")?.as_array()?;
    let has_own_dev = |mount: &Value| {
        mount.get("destination") == Some(&json!("/dev")) && mount.get("type") == Some(&json!("tmpfs"))
    };
    let is_ours = |mount: &Value| mount.get("destination") == Some(&json!(segment_inside));
    let has_shim = mounts.iter().any(|mount| mount.get("destination") == Some(&json!(shim_inside)));
    if !mounts.iter().any(has_own_dev) || mounts.iter().any(is_ours) {
        return None;
    }
    let mount = |source: &Path, target: &str, mode: &str| {
        Some(
            json!({"destination": target, "type": "bind", "source": source.to_str()?, "options": ["bind", mode, "private"]}),
        )
    };
    let mut mounts = vec![mount(segment, &segment_inside, "rw")?];
    // A run around this one has done so.
    if !has_shim {
        mounts.push(mount(shim, &shim_inside, "ro")?);
    }
    let process = spec.get_mut("process")?;
    let given = variable(process.get("env"), ENV_PRELOAD).unwrap_or_default();
    let preload = merged_preload(&shim_inside, &given)?;
    set_variables(process, "env", &preload, &segment_inside)?;
    append(&mut spec, "mounts", mounts)?;
    serde_json::to_vec(&spec).ok()
}

/// Whether a container's first program is of another user than this one, by the runtime-spec's `uidMappings`. Such a program can't open a
/// file of this user with mode 0600.
fn is_other_user(spec: &[u8], uid: u32) -> Option<bool> {
    let spec: Value = serde_json::from_slice(spec).ok()?;
    let inside = spec.pointer("/process/user/uid").map_or(Some(0), Value::as_u64)?;
    let mappings = spec.pointer("/linux/uidMappings").and_then(Value::as_array).filter(|all| !all.is_empty());
    let outside = |mapping: &Value| {
        let number = |key: &str| mapping.get(key).and_then(Value::as_u64);
        let offset =
            inside.checked_sub(number("containerID")?).filter(|offset| Some(*offset) < number("size"))?;
        number("hostID")?.checked_add(offset)
    };
    let user = mappings.map_or(Some(inside), |all| all.iter().find_map(outside));
    Some(user != Some(u64::from(uid)))
}

#[cfg(test)]
mod tests {
    use gpu_track_abi::preload::SHIM_PREFIX;

    use super::*;

    fn table(text: &str) -> Table {
        parsed(text.as_bytes()).unwrap()
    }

    // Requirement: SEE-141
    #[test]
    fn configuration_is_the_users_with_one_more_directory_of_hooks() {
        let mut merged =
            table("[engine]\nhooks_dir = [\"/a\"]\nruntime = \"crun\"\n[containers]\nenv = [\"A=1\"]");
        merge(
            &mut merged,
            table(
                "[engine]\nruntime = \"runc\"\n[containers]\nenv = [\"B=2\", {append=true}]\nvolumes = [\"/v\"]",
            ),
        );
        merge(&mut merged, table("[containers]\nvolumes = [\"/w\", {append=false}]"));
        let expected = table(
            "[engine]\nhooks_dir = [\"/a\"]\nruntime = \"runc\"\n[containers]\nenv = [\"A=1\", \"B=2\"]\nvolumes = [\"/w\"]",
        );
        assert_eq!(merged, expected);
        let odd =
            table("a.b = {\"x y\" = \"\\u0001\\\"é\", c = [1.5, -2, true, 1e300]}\nd = 2020-01-01T00:00:00Z");
        assert_eq!(table(&text_of(&odd)), odd);
        name_hooks(&mut merged, Path::new("/h"), true).unwrap();
        assert_eq!(merged["engine"]["hooks_dir"], table("x = [\"/a\", \"/h\"]")["x"]);
        let mut empty = Table::new();
        name_hooks(&mut empty, Path::new("/h"), false).unwrap();
        assert_eq!(empty["engine"]["hooks_dir"], table("x = [\"/h\"]")["x"]);
        assert!(name_hooks(&mut table("engine = 7"), Path::new("/h"), false).is_err());
        assert!(parsed(b"[engine").is_err());
        let only = files(false, |name| (name == CONFIGURATION).then(|| "/c".into()));
        assert_eq!(only, [Path::new("/c")]);
        let own = files(false, |name| (name == "HOME").then(|| "/none".into()));
        assert_eq!(own.last().unwrap(), Path::new("/none/.config/containers/containers.conf"));
        assert!(!files(true, |name| (name == "HOME").then(|| "/none".into())).contains(own.last().unwrap()));
    }

    // Requirement: FAULT-11
    #[test]
    fn session_is_opened_only_for_containers_of_other_users() {
        let is_other = |user: Value, mappings: Value, uid| {
            let spec = json!({"process": {"user": {"uid": user}}, "linux": {"uidMappings": mappings}});
            is_other_user(spec.to_string().as_bytes(), uid).unwrap()
        };
        assert!(!is_other(json!(0), json!(null), 0) && !is_other(json!(7), json!([]), 7));
        assert!(is_other(json!(7), json!(null), 0));
        let mapped = |host: u32| json!([{"containerID": 0, "hostID": host, "size": 1}, {"containerID": 1, "hostID": 1, "size": 65536}]);
        assert!(!is_other(json!(0), mapped(0), 0) && is_other(json!(1000), mapped(0), 0));
        assert!(is_other(json!(0), mapped(100_000), 0) && is_other(json!(70_000), mapped(0), 0));
        assert_eq!(is_other_user(b"{}", 0), Some(false));
        assert_eq!(is_other_user(b"x", 0), None);
    }

    // Requirement: SEE-143
    #[test]
    fn what_all_users_can_read_is_known_by_the_whole_path() {
        let top = tempfile::tempdir().unwrap();
        let [directory, file] = ["", "file"].map(|name| top.path().join("in").join(name));
        fs::create_dir(&directory).unwrap();
        let set = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        set(top.path(), 0o755);
        for (above, mode, expected) in [(0o711, 0o644, true), (0o700, 0o644, false), (0o755, 0o640, false)] {
            set(&directory, 0o755);
            write(&file, "x", mode).unwrap();
            set(&directory, above);
            assert_eq!(can_all_read(&file, 0o004), expected, "{above:o} {mode:o}");
        }
        assert!(!can_all_read(&file, 0o005) && !can_all_read(&directory.join("none"), 0o004));
    }

    // Requirement: SEE-141
    #[test]
    fn hook_adds_mounts_and_variables_and_keeps_all_else() {
        let shim = format!("/cache/{SHIM_PREFIX}0.so");
        let spec = json!({
            "ociVersion": "1",
            "process": {"env": ["A=1", "LD_PRELOAD=/j.so"], "args": ["x"]},
            "mounts": [{"destination": "/dev", "type": "tmpfs"}],
        });
        let edit =
            |spec: &Value| edited(spec.to_string().as_bytes(), Path::new(&shim), Path::new("/dev/shm/s.d/s"));
        let result: Value = serde_json::from_slice(&edit(&spec).unwrap()).unwrap();
        let preload = format!("LD_PRELOAD=/dev/gpu-track/{SHIM_PREFIX}0.so:/j.so");
        assert_eq!(result["process"]["env"], json!(["A=1", preload, "GPU_TRACK_SESSION=/dev/gpu-track/s"]));
        assert_eq!((&result["ociVersion"], &result["process"]["args"]), (&json!("1"), &json!(["x"])));
        assert_eq!(result["mounts"][1]["source"], "/dev/shm/s.d/s");
        assert_eq!(result["mounts"][2]["options"], json!(["bind", "ro", "private"]));
        assert_eq!(edit(&result), None, "it is edited once");
        let mut of_host = spec.clone();
        of_host["mounts"][0]["type"] = json!("bind");
        for other in [of_host, json!([]), json!({"process": {}, "mounts": []})] {
            assert_eq!(edit(&other), None, "{other}");
        }
    }
}
