//! Tools that trace, interpret or sandbox a program, or preload their own library into it.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::programs::compiled;
use crate::support::run::BINARY;
use crate::support::{installed, or_skip, program, skip, tracked};
use crate::with_and_without::{same_in, same_with_and_without};

// Requirement: SHIM-14
#[test]
fn valgrind_output_is_unchanged() {
    if installed("valgrind").is_none() {
        skip!("valgrind is not installed");
    }
    for option in ["--tool=memcheck", "--trace-children=yes"] {
        let run = same_with_and_without(&["valgrind", "-q", option, &program("faulty"), "none"]);
        assert_eq!((run.status.code(), run.stderr.as_str()), (Some(5), ""), "{option}");
        assert!(run.report().u64("processes.total") >= 5);
    }
    let run = same_with_and_without(&["valgrind", "-q", &program("faulty"), "overflow"]);
    assert!(run.stderr.contains("Invalid write"), "{}", run.stderr);
}

/// Without `--trace-children` the collector runs by itself, and /proc/self/exe of the launcher is valgrind. With it, the collector has
/// lost argv\[0\].
// Requirement: FAULT-24
#[test]
fn valgrind_runs_the_launcher_itself() {
    if installed("valgrind").is_none() {
        skip!("valgrind is not installed");
    }
    for option in ["--trace-children=no", "--trace-children=yes"] {
        let prefix = ["valgrind", "-q", "--tool=none", option];
        let run = tracked(["sh", "-c", "/bin/true; exit 3"]).through(&prefix).run();
        assert_eq!(run.status.code(), Some(3), "{option}: {}", run.stderr);
        run.report().assert_all_exact(2);
    }
}

// Requirement: FAULT-24
#[test]
fn helper_that_lacks_what_it_works_on_ends_at_once() {
    let helpers =
        ["collector", "gpus", "keeper", "ender", "alert", "none"].map(|name| format!("gpu-track-{name}"));
    let numbers: Vec<String> =
        (3..11).map(|fd| fd.to_string()).chain(["/x".into(), "/x.state".into()]).collect();
    for name in &helpers {
        for arguments in [&[][..], &["20".to_owned()], &numbers] {
            let mut helper = Command::new(BINARY);
            let output =
                helper.arg(format!("--as={name}")).args(arguments).stdin(Stdio::null()).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(
                (output.status.code(), said.lines().count()),
                (Some(2), 1),
                "{name} {arguments:?}: {said}"
            );
            assert!(said.contains("only gpu-track-run itself starts") && said.contains(name), "{said}");
        }
    }
}

/// ldd and the dynamic linker itself list preloaded libraries, too. Packagers put what they list into their products.
// Requirement: SHIM-27
#[test]
fn lists_of_libraries_are_unchanged() {
    let (Some(sh), Some(_)) = (installed("sh"), installed("ldd")) else { skip!("ldd is not installed") };
    let linkers = ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"];
    let linker = linkers.into_iter().find(|linker| Path::new(linker).exists()).unwrap();
    let sh = sh.to_str().unwrap();
    let script = format!("true; {linker} --library-path / --list {sh}; LD_TRACE_LOADED_OBJECTS=1 {sh}");
    let cases: [&[&str]; 5] = [
        &["ldd", sh],
        &["env", "-i", "LD_TRACE_LOADED_OBJECTS=", sh],
        &["sh", "-c", &script],
        &[linker, "--list", sh],
        &[
            "python3",
            "-c",
            "import subprocess; subprocess.run(['ldd', '/bin/sh'], env={'PATH': '/usr/bin:/bin'})",
        ],
    ];
    for words in cases.into_iter().filter(|words| installed(words[0]).is_some() || words[0] == linker) {
        let run = same_with_and_without(words);
        assert!(run.stdout.contains("libc.so.6"), "{words:?}: {}", run.stdout);
    }
    for words in cases.into_iter().filter(|words| installed(words[0]).is_some() || words[0] == linker) {
        let run = or_skip!(tracked(words).by_an_ordinary_user()).run();
        assert!(
            run.stdout.contains("libc.so.6") && !run.stdout.contains("gpu_track"),
            "{words:?}: {}",
            run.stdout
        );
    }
}

/// The loader of the other machine's program would complain of the shim.
// Requirement: SEE-119, SHIM-27
#[test]
fn program_of_another_machine_is_quiet() {
    let (compiler, machine) = ("aarch64-linux-gnu-gcc", "/usr/aarch64-linux-gnu");
    let qemu = ["qemu-aarch64-static", "qemu-aarch64"].into_iter().find(|qemu| installed(qemu).is_some());
    let Some(qemu) = qemu.filter(|_| installed(compiler).is_some()) else {
        skip!("qemu-user or {compiler} is not installed");
    };
    let guest = compiled("landlock", compiler, &[]);
    // Without arguments it exits at once.
    for words in [&[qemu, "-L", machine, &guest][..], &["env", qemu, "-L", machine, &guest]] {
        let run = same_with_and_without(words);
        assert_eq!((run.status.code(), run.stderr.as_str()), (Some(97), ""), "{words:?}");
    }
}

// Requirement: SHIM-14
#[test]
fn gdb_runs_a_tracked_program() {
    if installed("gdb").is_none() {
        skip!("gdb is not installed");
    }
    let run =
        same_with_and_without(&["gdb", "-nx", "-batch", "-ex", "run", "--args", &program("faulty"), "none"]);
    assert!(run.report().command("faulty").is_some(), "{}", run.stdout);
}

// Requirement: SEE-84, SHIM-14
#[test]
fn strace_follows_tracked_children() {
    if installed("strace").is_none() {
        skip!("strace is not installed");
    }
    let run = same_with_and_without(&["strace", "-f", "-o", "/dev/null", &program("faulty"), "none"]);
    assert_eq!(run.status.code(), Some(5), "{}", run.stderr);
    assert_eq!(run.report().command("faulty").unwrap()["count"], 4);
}

// Requirement: SEE-87, SHIM-14
#[test]
fn fakeroot_is_unchanged() {
    if installed("fakeroot").is_none() {
        skip!("fakeroot is not installed");
    }
    let script = "f=$(mktemp); chown 12:34 $f; stat -c %u:%g $f; rm $f; id -u; exit 6";
    let run = same_with_and_without(&["fakeroot", "sh", "-c", script]);
    assert_eq!((run.status.code(), run.stdout.as_str()), (Some(6), "12:34\n0\n"), "{}", run.stderr);
}

// Requirement: SEE-87, SHIM-14
#[test]
fn faketime_does_not_change_the_wall_time() {
    if installed("faketime").is_none() {
        skip!("faketime is not installed");
    }
    let run = same_with_and_without(&["faketime", "-f", "@2001-02-03 04:05:06", "date", "-u", "+%Y"]);
    assert_eq!((run.status.code(), run.stdout.as_str()), (Some(0), "2001\n"), "{}", run.stderr);
    let wall_s = run.report().f64("compute_time.time");
    assert!((0.0..1e4).contains(&wall_s), "the wall time is from the faked clock: {wall_s}");
}

/// Runs programs with this allocator preloaded beside the shim.
fn assert_unchanged_with_allocator(library: &str) {
    let directories = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"];
    let Some(path) = directories.into_iter().map(|dir| Path::new(dir).join(library)).find(|p| p.exists())
    else {
        skip!("{library} is not installed");
    };
    let preload = format!("LD_PRELOAD={}", path.display());
    for words in [[program("hard_forks"), "malloc".into()], [program("faulty"), "none".into()]] {
        let run = same_in(&words, &["env", &preload]);
        assert_eq!(run.stderr, "");
        assert!(run.report().u64("processes.total") >= 5);
    }
}

// Requirement: SEE-87, SHIM-10, SHIM-14
#[test]
fn jemalloc_is_unchanged() {
    assert_unchanged_with_allocator("libjemalloc.so.2");
}

// Requirement: SEE-87, SHIM-10, SHIM-14
#[test]
fn tcmalloc_is_unchanged() {
    assert_unchanged_with_allocator("libtcmalloc_minimal.so.4");
}

// Requirement: SEE-68, SHIM-14
#[test]
fn bubblewrap_sandbox_is_tracked() {
    if installed("bwrap").is_none() {
        skip!("bwrap is not installed");
    }
    for dev in ["--dev", "--dev-bind"] {
        let mut words = vec!["bwrap", "--ro-bind", "/", "/", dev, "/dev"];
        if dev == "--dev-bind" {
            words.push("/dev");
        }
        words.extend(["--unshare-pid", "sh", "-c", "echo boxed; /bin/true; exit 4"]);
        let run = same_with_and_without(&words);
        if run.status.code() == Some(1) {
            skip!("no user namespaces here: {}", run.stderr.trim());
        }
        assert_eq!((run.status.code(), run.stdout.as_str()), (Some(4), "boxed\n"));
        assert!(
            run.report().u64("processes.total") >= 3,
            "bwrap, its first process and the sandboxed command"
        );
    }
}

// Requirement: SHIM-14
#[test]
fn broken_audit_library_is_told_by_the_launcher_and_each_program() {
    let words = ["sh", "-c", "/bin/true; exit 3"];
    let audit = ("LD_AUDIT", "/no/such/library.so");
    let bare = Command::new(words[0]).args(&words[1..]).envs([audit]).output().unwrap();
    let run = tracked(words).with(move |command| command.envs([audit])).run();
    run.report().assert_all_exact(2);
    let of_programs = String::from_utf8_lossy(&bare.stderr).lines().count();
    assert_eq!((run.status.code(), run.stderr.lines().count()), (Some(3), of_programs + 1), "{}", run.stderr);
}

/// A sandbox with a root of its own that shows /usr.
const BOX: [&str; 15] = [
    "bwrap",
    "--ro-bind",
    "/usr",
    "/usr",
    "--symlink",
    "usr/bin",
    "/bin",
    "--symlink",
    "usr/lib",
    "/lib",
    "--symlink",
    "usr/lib64",
    "/lib64",
    "--dev",
    "/dev",
];

// Requirement: SEE-19, SEE-68
#[test]
fn sandbox_without_the_shim_is_quiet_and_the_report_says_what_to_bind() {
    if installed("bwrap").is_none() {
        skip!("bwrap is not installed");
    }
    // The loader in the sandbox keeps a foreign library, and so keeps the order of LD_PRELOAD.
    let foreign = if Path::new("/usr/lib/x86_64-linux-gnu/libm.so.6").exists() { "libm.so.6" } else { "" };
    let words = [&BOX[..], &["sh", "-c", "/bin/true; echo \"boxed $LD_PRELOAD\"; exit 4"]].concat();
    let run = tracked(words).with(move |command| command.env("LD_PRELOAD", foreign)).run();
    if run.status.code() == Some(1) {
        skip!("no user namespaces here: {}", run.stderr.trim());
    }
    assert_eq!((run.status.code(), run.stdout.as_str()), (Some(4), format!("boxed {foreign}\n").as_str()));
    assert_eq!(run.stderr, "", "the dynamic linker is quiet");
    let warnings = run.report().warnings();
    let of_box = "1 process in a sandbox or container that can't see ";
    let (_, rest) = warnings.split_once(of_box).unwrap_or_else(|| panic!("{of_box:?} is not in {warnings}"));
    let shim = rest.split(' ').next().unwrap();
    assert!(warnings.contains(&format!("apptainer --bind {shim},/dev/shm")), "{warnings}");

    let bound = ["--ro-bind", shim, shim, "--bind", "/dev/shm", "/dev/shm", "sh", "-c", "/bin/true; exit 4"];
    let run = tracked([&BOX[..], &bound].concat()).run();
    let report = run.assert_clean(4);
    assert_eq!(report.u64("coverage.uninstrumented"), 0);
    assert!(!report.warnings().contains("sandbox"), "{}", report.warnings());
}

// Requirement: SEE-19
#[test]
fn shim_beside_the_program_is_seen_where_the_program_is() {
    let prefix = tempfile::tempdir().unwrap();
    let program = prefix.path().join("bin/gpu-track-run");
    std::fs::create_dir_all(prefix.path().join("bin")).unwrap();
    std::fs::create_dir_all(prefix.path().join("lib/gpu-track")).unwrap();
    std::fs::copy(BINARY, &program).unwrap();
    let run = tracked(["sh", "-c", "echo $LD_PRELOAD"]).by_the_name(&program).run();
    run.assert_clean(0);
    let shim = run.stdout.trim();
    assert!(Path::new(shim).starts_with(prefix.path().join("lib/gpu-track")), "{shim}");
}
