//! Shims of other builds, in the directory where a run puts its own.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use crate::support::{is_root, tracked};

const UNUSED: &str = "libgpu_track_shim.v1.0000000000000001";
const USED: &str = "libgpu_track_shim.v1.0000000000000002";
const RECENT: &str = "libgpu_track_shim.v1.0000000000000003";

/// Makes a shim of another build with its link, last used so many days ago.
fn shim(directory: &Path, stem: &str, days: u64) {
    let shim = directory.join(format!("{stem}.so"));
    let file = File::create(&shim).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(days * 24 * 3600)).unwrap();
    let link = directory.join(format!("{stem}.not-libasan.so"));
    symlink(shim.file_name().unwrap(), &link).unwrap();
    let days = format!("{days} days ago");
    let touched = Command::new("touch").args(["-h", "-d", &days]).arg(&link).status().unwrap();
    assert!(touched.success());
}

// Requirement: FAULT-97
#[test]
fn run_removes_shims_that_nothing_used_for_long() {
    let caches = tempfile::tempdir().unwrap();
    let directory = caches.path().join("gpu-track");
    fs::create_dir(&directory).unwrap();
    shim(&directory, UNUSED, 31);
    shim(&directory, USED, 31);
    shim(&directory, RECENT, 20);
    // A daemon of an ended run: it lives until its input ends.
    let preload = directory.join(format!("{USED}.not-libasan.so"));
    let mut daemon = Command::new("env");
    daemon.arg(format!("OF_ENDED_RUN={}", preload.display())).arg("cat").stdin(Stdio::piped());
    let mut daemon = daemon.stdout(Stdio::null()).spawn().unwrap();

    let wait =
        format!("while [ -e \"${{LD_PRELOAD%/*}}/{UNUSED}.so\" ]; do :; done; exec ls ${{LD_PRELOAD%/*}}");
    let run = tracked(["sh", "-c", &wait]);
    let run = match is_root() {
        true => run.with_mounts(&format!("mount --bind {} /var/cache", caches.path().display())),
        false => run.with({
            let caches = caches.path().to_owned();
            move |command| command.env("XDG_CACHE_HOME", caches)
        }),
    };
    let run = run.run();
    drop(daemon.stdin.take());
    daemon.wait().unwrap();
    run.assert_clean(0).assert_all_exact(1);
    let kept: Vec<_> = run.stdout.lines().filter(|name| name.starts_with("libgpu_track_shim.v1.")).collect();
    let wanted = [USED, RECENT].map(|stem| [format!("{stem}.not-libasan.so"), format!("{stem}.so")]);
    assert_eq!(kept, wanted.concat());
}
