//! A cgroup (v2) of its own for the command (`--cgroup`), a child of the launcher's group. The command's first process enters
//! it before its exec.
//!
//! Only the root group may both hold processes and enable controllers for its children ("no internal process constraint",
//! cgroup-v2.rst). So a launcher that is alone in its group first moves into a second child group. Its relay (a parent process of
//! its own, if it has one) and the collector move with it. If other processes are in the group, they are not moved, and memory and
//! I/O stay unknown, with the reason.
//!
//! At the end the launcher switches the controllers off, moves the remaining processes back, and removes both groups. If it was
//! killed, the collector or `--recover` does.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::{ASIDE, Groups, MEMORY_EVENTS, PREFIX, count, number, oom_kills, read};
use crate::model::cgroup::{NoRunCgroup, RunCgroup};
use crate::model::ids::Key;
use crate::model::report::Cgroup as Figures;
use crate::sys::proc_fs::ProcRoot;

/// Controllers whose figures are reported. CPU time (cpu.stat) needs none.
const CONTROLLERS: [&str; 2] = ["memory", "io"];
/// Block devices by number.
const BLOCK_DEVICES: &str = "/sys/dev/block";
/// A group is emptied in several rounds, since its processes can fork meanwhile. A group whose processes fork faster stays.
const MAX_ROUNDS: usize = 10;

/// The launcher's group holds processes, so it cannot enable controllers for its children.
#[derive(Debug, PartialEq, Eq)]
struct Occupied;

/// Creates a group for the command of the launcher with this pid, and enables controllers for it. If the launcher and its `relay` are
/// alone in their group, they may be moved out for that. Removes groups of runs whose launcher was killed. `random` makes the name
/// unique.
///
/// # Errors
/// If there is no cgroup v2, or no permission.
pub fn create(
    root: &ProcRoot,
    launcher: u32,
    relay: Option<u32>,
    random: u32,
) -> Result<RunCgroup, NoRunCgroup> {
    let home = Groups::own(root).v2.ok_or(NoRunCgroup::NotMounted)?.dir;
    let pid_ns = root.pid_ns(launcher).unwrap_or(0);
    remove_leftovers(root, &home, pid_ns);
    let name = format!("{PREFIX}{launcher}.{pid_ns}.{random:08x}");
    let dir = home.join(&name);
    std::fs::create_dir(&dir).map_err(|error| NoRunCgroup::NotCreated {
        dir: dir.display().to_string(),
        error: error.to_string(),
    })?;
    let mut run = RunCgroup { home, dir, aside: None, enabled: Vec::new(), missing: Vec::new() };
    if enable_controllers(&mut run) == Err(Occupied) {
        let ours: Vec<String> = relay.into_iter().chain([launcher]).map(|pid| pid.to_string()).collect();
        let found = words(&run.home.join("cgroup.procs"));
        let are_alone = !found.is_empty() && found.iter().all(|pid| ours.contains(pid));
        let moved = if are_alone { move_aside(&mut run, &name, &ours) } else { Err(occupied(&run)) };
        run.missing.extend(moved.err());
    }
    Ok(run)
}

/// Removes the groups below `home` of runs whose launcher was killed. The kernel refuses to remove a group in use, but the group
/// of a run that is about to start is still empty. So its launcher must be gone, too. Groups of other pid namespaces stay, since
/// /proc does not show whether their launchers are gone.
fn remove_leftovers(root: &ProcRoot, home: &Path, pid_ns: u32) {
    for (dir, launcher) in groups_of_runs(home) {
        if launcher.pid_ns == pid_ns && !root.has_id(launcher.pid) {
            for dir in groups_below(&dir) {
                let _ = std::fs::remove_dir(dir);
            }
        }
    }
}

/// Enables as many of [`CONTROLLERS`] as possible for the command's group. Notes in `run` which were enabled, and why others were
/// not.
///
/// # Errors
/// If processes in `home` prevent it.
fn enable_controllers(run: &mut RunCgroup) -> Result<(), Occupied> {
    let [above, own] = [&run.home, &run.dir].map(|dir| words(&dir.join("cgroup.controllers")));
    let home = run.home.display();
    let (mut missing, mut is_occupied) = (Vec::new(), false);
    for controller in CONTROLLERS.map(str::to_owned) {
        if own.contains(&controller) {
            // Another run has enabled it, or an earlier call for this one has, before its processes were moved aside.
            continue;
        }
        if !above.contains(&controller) {
            missing.push(format!("{home} has no {controller} controller"));
            continue;
        }
        match std::fs::write(run.home.join("cgroup.subtree_control"), format!("+{controller}")) {
            Ok(()) => run.enabled.push(controller),
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => is_occupied = true,
            Err(error) => missing.push(format!("cannot enable the {controller} controller: {error}")),
        }
    }
    run.missing = missing;
    if is_occupied { Err(Occupied) } else { Ok(()) }
}

/// The reason that reports give if controllers are not enabled because `home` holds other processes.
fn occupied(run: &RunCgroup) -> String {
    format!("{} holds other processes: start gpu-track-run in a group of its own", run.home.display())
}

/// Moves the launcher and its relay (`ours`) out of `home` into a group of their own, and tries again to enable controllers. If that
/// works, notes their group in `run`, else moves them back. `name` is that of the command's group.
///
/// # Errors
/// Why that does not work.
fn move_aside(run: &mut RunCgroup, name: &str, ours: &[String]) -> Result<(), String> {
    let aside = run.home.join(format!("{name}{ASIDE}"));
    let not_moved =
        |error: io::Error| format!("gpu-track-run cannot be moved into {}: {error}", aside.display());
    std::fs::create_dir(&aside).map_err(not_moved)?;
    let move_in = |pid: &String| std::fs::write(aside.join("cgroup.procs"), pid);
    let moved = ours.iter().try_for_each(move_in).map_err(not_moved);
    match moved.and_then(|()| enable_controllers(run).map_err(|Occupied| occupied(run))) {
        Ok(()) => run.aside = Some(aside),
        Err(reason) => {
            empty_into(&aside, &run.home);
            return Err(reason);
        }
    }
    Ok(())
}

/// Opens the file `cgroup.procs`: a process moves itself into the group by writing "0".
///
/// # Errors
/// If this process may not write to it.
pub fn entrance(run: &RunCgroup) -> io::Result<File> {
    File::options().write(true).open(run.dir.join("cgroup.procs"))
}

/// Sets the group's memory limit, bytes. When the group exceeds it, the kernel kills all processes of the group. Page cache
/// counts, but the kernel frees that first.
///
/// # Errors
/// If the kernel refuses the limit, or the group has no memory controller.
pub(crate) fn limit_memory(run: &RunCgroup, bytes: u64) -> Result<(), String> {
    let write = |name: &str, text: &str| {
        let path = run.dir.join(name);
        std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
    };
    let has_controller = run.dir.join("memory.max").exists();
    if !has_controller && let Some(reason) = run.missing.first() {
        return Err(reason.clone());
    }
    // This comes first: the group can exceed its limit as soon as that is set.
    write("memory.oom.group", "1")?;
    write("memory.max", &bytes.to_string())
}

/// Reads the kernel's figures for all processes that were ever in the group.
pub(crate) fn figures(run: &RunCgroup) -> Figures {
    figures_with(run, Path::new(BLOCK_DEVICES))
}

/// Reads the figures as [`figures`]. `block_devices` is the kernel's directory of block devices.
fn figures_with(run: &RunCgroup, block_devices: &Path) -> Figures {
    let path = Some(run.dir.display().to_string());
    let stat = read(&run.dir.join("cpu.stat")).unwrap_or_default();
    let seconds = |key: &str| Some(count(&stat, key)? as f64 / 1e6);
    // A process that ran in the group would have used CPU time.
    if seconds("usage_usec ") == Some(0.0) {
        let reason = Some("the command could not be moved into it".into());
        return Figures { path, reason, ..Figures::default() };
    }
    let memory_peak_bytes = number(&run.dir.join("memory.peak"));
    let mut reasons = run.missing.clone();
    if memory_peak_bytes.is_none() && run.dir.join("memory.current").exists() {
        reasons.push("memory.peak needs Linux 5.19".to_owned());
    }
    let io = read(&run.dir.join("io.stat"));
    let bytes = |key: &str| Some(io_bytes(io.as_ref()?, key, block_devices));
    Figures {
        path,
        memory_peak_bytes,
        oom_kills: oom_kills(&run.dir.join(MEMORY_EVENTS)),
        cpu_usage_s: seconds("usage_usec "),
        cpu_user_s: seconds("user_usec "),
        cpu_system_s: seconds("system_usec "),
        io_read_bytes: bytes("rbytes="),
        io_write_bytes: bytes("wbytes="),
        reason: (!reasons.is_empty()).then(|| reasons.join("; ")),
    }
}

/// Removes the command's group, and the one that the launcher moved into. Processes that still run move to the launcher's
/// original group.
pub fn remove(run: &RunCgroup) {
    // Controllers stay enabled while another run uses them. Processes can move back only after controllers are disabled.
    let is_ours = |path: &PathBuf| *path == run.dir || run.aside.as_ref() == Some(path);
    if groups_of_runs(&run.home).all(|(path, _)| is_ours(&path)) {
        for controller in &run.enabled {
            let _ = std::fs::write(run.home.join("cgroup.subtree_control"), format!("-{controller}"));
        }
    }
    for dir in [Some(&run.dir), run.aside.as_ref()].into_iter().flatten() {
        empty_into(dir, &run.home);
    }
}

/// Adds up a count over the lines of io.stat, one per device. `key` names the count, such as `rbytes=`.
///
/// A stacked device (LVM, dm-crypt, md) is skipped, since the devices below it count the same bytes. Multipath counts:
/// it forwards requests, which the devices below do not count again.
fn io_bytes(io_stat: &str, key: &str, block_devices: &Path) -> u64 {
    let is_stacked = |device: &str| {
        let device = block_devices.join(device);
        let is_multipath = || read(&device.join("dm/uuid")).is_some_and(|uuid| uuid.starts_with("mpath-"));
        std::fs::read_dir(device.join("slaves")).is_ok_and(|mut slaves| slaves.next().is_some())
            && !is_multipath()
    };
    let values = io_stat.lines().filter_map(|line| {
        let (device, counts) = line.split_once(' ')?;
        let value = counts.split(' ').find_map(|count| count.strip_prefix(key))?.parse::<u64>().ok()?;
        (value > 0 && !is_stacked(device)).then_some(value)
    });
    values.sum()
}

/// Moves all processes of a group and its descendants to the group `into`, and removes the emptied groups.
fn empty_into(dir: &Path, into: &Path) {
    for _ in 0..MAX_ROUNDS {
        for group in groups_below(dir) {
            for pid in words(&group.join("cgroup.procs")) {
                // If a process cannot be moved, the group stays.
                let _ = std::fs::write(into.join("cgroup.procs"), pid);
            }
            let _ = std::fs::remove_dir(group);
        }
        if !dir.exists() {
            break;
        }
    }
}

/// Finds a group and its descendants, children before parents.
fn groups_below(dir: &Path) -> Vec<PathBuf> {
    let mut groups = vec![dir.to_owned()];
    let mut next = 0;
    while let Some(group) = groups.get(next) {
        let below = std::fs::read_dir(group).into_iter().flatten().flatten();
        let below = below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        groups.extend(below.map(|entry| entry.path()).collect::<Vec<_>>());
        next += 1;
    }
    groups.reverse();
    groups
}

/// Finds the groups that any run made below this one, each with the pid of its launcher and its pid namespace.
fn groups_of_runs(home: &Path) -> impl Iterator<Item = (PathBuf, Key)> {
    std::fs::read_dir(home).into_iter().flatten().flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let mut parts = name.strip_prefix(PREFIX)?.split('.');
        let mut number = || parts.next()?.parse().ok();
        let launcher = Key { pid: number()?, pid_ns: number()? };
        Some((entry.path(), launcher))
    })
}

/// Reads the words in a file; none if the file can't be read.
fn words(file: &Path) -> Vec<String> {
    read(file).unwrap_or_default().split_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{put, tree};
    use super::*;

    const MOUNTS: &str = "30 20 0:26 / TOP/fs rw - cgroup2 cgroup2 rw\n";

    // Requirement: CGROUP-51
    #[test]
    fn no_cgroup_without_a_v2_mount() {
        let (_dir, root) = tree("4:memory:/\n", "31 20 0:27 / TOP/memory rw - cgroup cgroup rw,memory\n");
        assert_eq!(create(&root, 1, None, 1), Err(NoRunCgroup::NotMounted));
    }

    // Requirement: CGROUP-54
    #[test]
    fn figures_are_read_from_the_groups_files() {
        let (dir, root) = tree("0::/\n", MOUNTS);
        put(&dir, "fs/cgroup.controllers", "cpu io\n");
        let run = create(&root, 7, None, 1).unwrap();
        assert_eq!(run.enabled, ["io"]);
        put(&dir, "fs/gpu-track.7.0.00000001/cpu.stat", "usage_usec 0\nuser_usec 0\nsystem_usec 0\n");
        assert!(figures(&run).cpu_usage_s.is_none() && figures(&run).reason.is_some());
        put(
            &dir,
            "fs/gpu-track.7.0.00000001/cpu.stat",
            "usage_usec 1500000\nuser_usec 1000000\nsystem_usec 500000\n",
        );
        let figures = figures(&run);
        assert_eq!((figures.cpu_usage_s, figures.cpu_user_s), (Some(1.5), Some(1.0)));
        assert_eq!((figures.memory_peak_bytes, figures.io_read_bytes), (None, None));
        let reason = figures.reason.unwrap();
        assert!(reason.ends_with("/fs has no memory controller"), "{reason}");
    }

    // Requirement: CGROUP-55
    #[test]
    fn missing_memory_peak_names_the_kernel_version() {
        let (dir, root) = tree("0::/\n", MOUNTS);
        put(&dir, "fs/cgroup.controllers", "memory io\n");
        let run = create(&root, 7, None, 1).unwrap();
        assert_eq!(run.missing, [""; 0]);
        put(&dir, "fs/gpu-track.7.0.00000001/memory.current", "1000\n");
        assert_eq!(figures(&run).reason.as_deref(), Some("memory.peak needs Linux 5.19"));
        put(&dir, "fs/gpu-track.7.0.00000001/memory.peak", "4096\n");
        put(&dir, "fs/gpu-track.7.0.00000001/memory.events", "max 9\noom 2\noom_kill 1\n");
        let figures = figures(&run);
        assert_eq!(
            (figures.memory_peak_bytes, figures.oom_kills, figures.reason),
            (Some(4096), Some(1), None)
        );
    }

    #[test]
    fn io_bytes_of_stacked_devices_count_once() {
        let dir = tempfile::tempdir().unwrap();
        // dm-linear on one disk, multipath on another.
        put(&dir, "253:0/slaves/vda/dev", "254:0\n");
        put(&dir, "253:0/dm/uuid", "LVM-x\n");
        put(&dir, "253:1/slaves/sda/dev", "8:0\n");
        put(&dir, "253:1/dm/uuid", "mpath-x\n");
        std::fs::create_dir_all(dir.path().join("254:0/slaves")).unwrap();
        let stat = "254:0 rbytes=10 wbytes=200 rios=1\n\
                    253:0 rbytes=10 wbytes=200 rios=1\n\
                    253:1 rbytes=3 wbytes=4\n\
                    7:0 rbytes=1000\n\
                    8:16\n";
        assert_eq!(io_bytes(stat, "rbytes=", dir.path()), 1013);
        assert_eq!(io_bytes(stat, "wbytes=", dir.path()), 204);
        assert_eq!(io_bytes("", "rbytes=", dir.path()), 0);
    }

    // Requirement: CGROUP-53
    #[test]
    fn launcher_that_can_not_be_moved_is_the_reason_and_not_other_processes() {
        let (dir, root) = tree("0::/\n", MOUNTS);
        put(&dir, "fs/cgroup.controllers", "memory io\n");
        let mut run = create(&root, 7, None, 1).unwrap();
        put(&dir, "fs/x.aside/cgroup.controllers", "the group is there already");
        let reason = move_aside(&mut run, "x", &["7".to_owned()]).unwrap_err();
        assert!(
            reason.starts_with("gpu-track-run cannot be moved into /") && reason.ends_with("(os error 17)"),
            "{reason}"
        );
        assert_eq!(run.aside, None);
    }

    // Requirement: CGROUP-58
    #[test]
    fn groups_of_dead_launchers_are_removed_with_descendants() {
        let (dir, root) = tree("0::/\n", MOUNTS);
        put(&dir, "fs/cgroup.controllers", "\n");
        put(&dir, "8/stat", "8 (gpu-track-run) S\n");
        // The launcher of the new run is in the namespace 20, as 7 and 8 are. /proc does not show those of the namespace 21.
        put(&dir, "9/stat", "9 (gpu-track-run) S\n");
        std::fs::create_dir_all(dir.path().join("9/ns")).unwrap();
        std::os::unix::fs::symlink("pid:[20]", dir.path().join("9/ns/pid")).unwrap();
        let dead = ["gpu-track.7.20.00000001/a/b", "gpu-track.7.20.00000001.aside"];
        let others = ["gpu-track", "gpu-track.7.21.00000001", "gpu-track.8.20.00000002"];
        for group in dead.into_iter().chain(others) {
            std::fs::create_dir_all(dir.path().join("fs").join(group)).unwrap();
        }
        let run = create(&root, 9, None, 3).unwrap();
        remove(&run);
        let mut left: Vec<_> = std::fs::read_dir(dir.path().join("fs"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(left[0], "cgroup.controllers");
        assert_eq!(left[1..], others);
    }
}
