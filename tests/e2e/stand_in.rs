//! `gpu-track shell`: stand-ins that are the shell to their caller, and write a report for each task. Each recipe of the guide runs with
//! the real program, but for Nextflow, whose scripts are written here.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use tempfile::TempDir;

use crate::support::pty::Terminal;
use crate::support::report::{Report, assert_within};
use crate::support::run::{BINARY, cache_home};
use crate::support::signals::with_default_signals;
use crate::support::{
    WATCHDOG, installed, is_root, kill, or_skip, pidfd, program, skip, tracked, wait_until,
};

const COMPANION: &str = env!("CARGO_BIN_EXE_gpu-track");

/// Stand-ins in a directory of their own.
struct StandIns {
    directory: TempDir,
}

impl StandIns {
    fn install() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let made =
            Command::new(COMPANION).args(["shell", "--install"]).arg(directory.path().join("bin")).output();
        let made = made.unwrap();
        assert!(made.status.success() && made.stderr.is_empty(), "{made:?}");
        Self { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The path of a stand-in, as text.
    fn shell(&self, name: &str) -> String {
        self.path("bin").join(name).to_str().unwrap().to_owned()
    }

    /// A program in the directory, with this program's files elsewhere than at home.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.directory.path()).env("XDG_CACHE_HOME", cache_home());
        command.env("XDG_STATE_HOME", self.path("state")).stdin(Stdio::null());
        command
    }

    /// A stand-in for bash that runs this command.
    fn bash(&self, command: &str) -> Command {
        let mut bash = self.command(&self.shell("bash"));
        bash.args(["-c", command]);
        bash
    }

    /// All reports, by the names of their files without the extension.
    fn reports(&self) -> BTreeMap<String, Report> {
        let files = fs::read_dir(self.path("bin/reports")).unwrap().map(|entry| entry.unwrap().path());
        files
            .map(|path| {
                let name = path.file_name().unwrap().to_str().unwrap();
                let text = fs::read_to_string(&path).unwrap();
                let report =
                    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}: {text}"));
                (name.strip_suffix(".json").unwrap().to_owned(), Report(report))
            })
            .collect()
    }

    /// The names of all reports.
    fn names(&self) -> Vec<String> {
        self.reports().into_keys().collect()
    }

    /// Waits for a file, and returns what is in it: the line of a command that has begun.
    fn wait_for(&self, name: &str) -> String {
        let mut text = String::new();
        wait_until(name, || {
            text = fs::read_to_string(self.path(name)).unwrap_or_default();
            text.ends_with('\n')
        });
        text.trim().to_owned()
    }
}

fn succeeded(output: &Output) {
    assert!(output.status.success(), "{output:?}");
}

// Requirement: TASK-15
#[test]
fn stand_in_is_the_shell_to_its_caller() {
    let stand_ins = StandIns::install();
    fs::write(stand_ins.path("script.sh"), "echo \"[$0][$1][$2]\"; exit 3\n").unwrap();
    let lines: [&[&str]; 27] = [
        &["-c", "printf '<%q>' \"$0\" \"$@\"", "zero", "a\nb", "", " ", "../../x", "*", "--task=x"],
        &["-c", "echo in; read x; echo $? $x"],
        &["-lc", "shopt login_shell; exit 4"],
        &["-euo", "pipefail", "-c", "false | true; echo not reached"],
        &["--norc", "-c", "echo $-; exit 200"],
        &["-c", "no-such-command"],
        &["-c", "not ( a command"],
        &["-c", "kill -TERM $$"],
        &["-c", "kill -KILL $$"],
        &["-c", "ulimit -c 0; kill -SEGV $$"],
        &["-c", "kill -INT $$"],
        &["-c", "kill -PIPE $$"],
        &["-c", "trap 'echo trapped; exit 5' TERM; kill -TERM $$"],
        &["-c", "trap -p; umask; ulimit -a; pwd"],
        &["-c", "env | grep -v -e ^GPU_TRACK_SESSION= -e ^LD_PRELOAD= | sort"],
        &["-c", "exec sh -c 'echo $0; exit 6'"],
        &["-c", "(exit 7) & wait $!"],
        &["-c"],
        &["-o"],
        &["--version"],
        &["--no-such-option"],
        &["script.sh", "1", "2"],
        &["-x", "script.sh", "-c", "2"],
        &["no-such-script.sh"],
        &["-s", "word"],
        &["-"],
        &[],
    ];
    for line in lines {
        let outcome = |shell: &str, name: &str| {
            let mut command = stand_ins.command(shell);
            command.arg0(name).args(line).env_remove("GPU_TRACK_SESSION").stdin(Stdio::piped());
            let mut child =
                with_default_signals(command.stdout(Stdio::piped()).stderr(Stdio::piped())).spawn().unwrap();
            let mut stdin = child.stdin.take().unwrap();
            // A shell that reads no input has closed the pipe.
            drop(std::io::Write::write_all(&mut stdin, b"echo typed; exit 8\n"));
            drop(stdin);
            child.wait_with_output().unwrap()
        };
        for name in ["bash", "-bash", "/odd/path", "gpu-track"] {
            assert_eq!(
                outcome(&stand_ins.shell("bash"), name),
                outcome("/bin/bash", name),
                "{name} {line:?}"
            );
        }
    }
    // What a shell does to the descriptors, the limits and the environment of the stand-in.
    for script in [
        "exec \"$0\" -c 'read x; echo $?' <&-",
        "exec \"$0\" -c 'echo out' >&-",
        "exec \"$0\" -c 'echo err >&2; exit 9' 2>&-",
        "exec env -i \"$0\" -c 'echo ~; env | grep -v -e ^GPU_TRACK_SESSION= -e ^LD_PRELOAD= -e ^_='",
        "\"$0\" -c yes | head -n 1; echo ${PIPESTATUS[@]}",
        "trap '' PIPE; \"$0\" -c 'trap -p' | cat; echo ${PIPESTATUS[@]}",
        "ulimit -s 100; exec \"$0\" -c 'ulimit -s'",
        "umask 077; cd /; exec \"$0\" -c 'umask; pwd'",
    ] {
        let outcome =
            |shell: &str| stand_ins.command("/bin/bash").args(["-c", script, shell]).output().unwrap();
        let expected = outcome("/bin/bash");
        let got = outcome(&stand_ins.shell("bash"));
        let text =
            |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(&stand_ins.shell("bash"), "/bin/bash");
        assert_eq!(
            (got.status, text(&got.stdout), text(&got.stderr)),
            (expected.status, text(&expected.stdout), text(&expected.stderr)),
            "{script}"
        );
    }
}

// Requirement: TASK-15
#[test]
fn every_exit_status_is_handed_on() {
    let stand_ins = StandIns::install();
    let script = "for i in $(seq 0 255); do \"$0\" -c \"exit $i\"; [ $? = $i ] || echo $i; done";
    let output =
        stand_ins.command("/bin/bash").args(["-c", script, &stand_ins.shell("sh")]).output().unwrap();
    assert_eq!((output.stdout, output.stderr), (Vec::new(), Vec::new()));
    let reports = stand_ins.reports();
    let mut codes: Vec<u64> = reports.values().map(|report| report.u64("exit.code")).collect();
    codes.sort_unstable();
    assert_eq!(codes, (0..256).collect::<Vec<_>>());
}

// Requirement: TASK-14
#[test]
fn report_is_of_the_task_and_not_of_gpu_track() {
    let stand_ins = StandIns::install();
    let command = format!("{} hold 200000000 300; exit 3", program("touch"));
    let output = stand_ins.bash(&command).output().unwrap();
    assert_eq!((output.status.code(), output.stderr.is_empty()), (Some(3), true), "{output:?}");
    let reports = stand_ins.reports();
    let [(name, report)] = &reports.iter().collect::<Vec<_>>()[..] else { panic!("{:?}", stand_ins.names()) };
    assert!(name.starts_with("bash.20"), "{name}");
    assert_eq!((report.u64("processes.total"), report.u64("exit.code")), (2, 3));
    assert_within("RAM", report.f64("max_ram.combined.total_rss") * 1e9, 204e6, 3.0);
    let names: Vec<_> =
        report.array("processes.by_command").iter().map(|row| row["command"].as_str()).collect();
    assert_eq!(names, [Some("touch"), Some("bash")]);
}

// Requirement: TASK-16
#[test]
fn hundred_tasks_at_once_have_a_report_each() {
    let stand_ins = StandIns::install();
    let one = |number: usize| {
        let mut sh = stand_ins.command(&stand_ins.shell("sh"));
        sh.args(["--task=../../all\n", "-c", "exit $0", &(number % 3).to_string()]);
        sh.spawn().unwrap()
    };
    let children: Vec<Child> = (0..100).map(one).collect();
    for (number, mut child) in children.into_iter().enumerate() {
        assert_eq!(child.wait().unwrap().code(), Some((number % 3) as i32));
    }
    let reports = stand_ins.reports();
    assert_eq!(reports.len(), 100);
    assert!(reports.keys().all(|name| name == "all" || name.starts_with("all.")), "{:?}", reports.keys());
    let table =
        Command::new(COMPANION).args(["report", "-f", "csv"]).arg(stand_ins.path("bin/reports")).output();
    let table = table.unwrap();
    succeeded(&table);
    assert_eq!(String::from_utf8(table.stdout).unwrap().lines().count(), 101);
}

// Requirement: TASK-15
#[test]
fn what_is_no_task_or_in_a_run_has_no_report() {
    let stand_ins = StandIns::install();
    let bash = stand_ins.shell("bash");
    fs::write(stand_ins.path("script.sh"), format!("#!{bash} -e\necho \"$0 $1\"\nfalse\nexit 9\n")).unwrap();
    fs::set_permissions(stand_ins.path("script.sh"), PermissionsExt::from_mode(0o755)).unwrap();
    // The kernel gives a script's interpreter other arguments than its caller does.
    let script = stand_ins.command(stand_ins.path("script.sh").to_str().unwrap()).arg("a").output().unwrap();
    let shown = String::from_utf8(script.stdout).unwrap();
    assert_eq!((script.status.code(), shown.ends_with("script.sh a\n")), (Some(1), true), "{shown}");
    for words in [&["script.sh"][..], &["--task=", "-c", "true; true"], &["--version"]] {
        stand_ins.command(&bash).args(words).output().unwrap();
    }
    let run = tracked([&*bash, "-c", "true; true"]).run();
    let outer = run.assert_clean(0);
    assert_eq!(outer.u64("processes.total"), 1, "neither a launcher nor a collector is in it");
    assert_eq!(stand_ins.names(), [""; 0]);
    // The stand-ins come first in PATH, and the shells of a task are in its run.
    let nested = stand_ins
        .command(&bash)
        .args(["-c", "bash -c 'bash -c \"exit 5\"; exit $?'; exit $?"])
        .env("PATH", format!("{}:/usr/bin:/bin", stand_ins.path("bin").display()))
        .env("SHELL", "bash")
        // That run is over.
        .env("GPU_TRACK_SESSION", "/dev/shm/gpu-track.0.1.0")
        .output()
        .unwrap();
    assert_eq!(nested.status.code(), Some(5), "{nested:?}");
    let reports = stand_ins.reports();
    assert_eq!((reports.len(), reports.values().next().unwrap().u64("processes.total")), (1, 3));
}

/// Makes something with this path.
type Make = fn(&Path);

// Requirement: TASK-15
#[test]
fn task_runs_where_its_report_cannot_be_written() {
    let stand_ins = StandIns::install();
    let reports = stand_ins.path("bin/reports");
    let kinds: [(&str, Make); 4] = [
        ("nothing", |_| {}),
        ("a fifo", |path| mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap()),
        ("a device", |path| symlink("/dev/full", path).unwrap()),
        ("no file system to create in", |path| symlink("/proc/self/task", path).unwrap()),
    ];
    fs::remove_dir(&reports).unwrap();
    for (kind, make) in kinds {
        make(&reports);
        let output = stand_ins.bash("echo done; exit 4").output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), &*output.stdout), (Some(4), &b"done\n"[..]), "{kind}");
        assert!(
            said.starts_with("gpu-track-run: no report of this task: cannot create \"")
                && said.lines().count() == 1,
            "{said}"
        );
        drop(fs::remove_file(&reports));
    }
}

// Requirement: TASK-15
#[test]
fn task_runs_without_proc() {
    if !is_root() {
        skip!("needs root (umount)");
    }
    let stand_ins = StandIns::install();
    let mut command = stand_ins.command("unshare");
    let script = "umount -l /proc && exec \"$0\" -c 'echo done; exit 4'";
    let output = command.args(["-m", "sh", "-c", script, &stand_ins.shell("bash")]).output().unwrap();
    assert_eq!((output.status.code(), &*output.stdout), (Some(4), &b"done\n"[..]), "{output:?}");
}

// Requirement: TASK-15
#[test]
fn killed_stand_in_takes_its_shell_with_it() {
    let stand_ins = StandIns::install();
    let mut child = stand_ins.bash("echo $$ > pid; exec sleep 1000").spawn().unwrap();
    let shell = pidfd::open(stand_ins.wait_for("pid").parse().unwrap()).unwrap();
    kill(child.id(), libc::SIGKILL);
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    assert!(pidfd::ends_within(&shell, WATCHDOG));
    // The collector writes the report when the tree is empty.
    wait_until("the report", || {
        let paths = fs::read_dir(stand_ins.path("bin/reports")).unwrap().map(|entry| entry.unwrap().path());
        paths
            .map(|path| fs::read_to_string(path).unwrap())
            .any(|text| text.contains("The launcher was killed"))
    });
}

// Requirement: TASK-15
#[test]
fn ctrl_c_on_a_terminal_reaches_the_shell_once() {
    let stand_ins = StandIns::install();
    let script = "trap 'echo interrupted; exit 6' INT; echo rea''dy; while :; do read -t 1 line; done";
    let mut terminal = Terminal::start({
        let mut bash = stand_ins.bash(script);
        bash.stdin(Stdio::inherit());
        bash
    });
    terminal.expect("ready");
    terminal.write("\x03");
    let (status, shown) = terminal.finish();
    assert_eq!((status.code(), shown.matches("interrupted").count()), (Some(6), 1), "{shown}");
    assert_eq!(stand_ins.reports().values().next().unwrap().u64("exit.code"), 6);
}

// Requirement: TASK-14, TASK-61
#[test]
fn jobs_of_snakemake_are_named_by_rule_or_command() {
    let python = or_skip!(super::tasks::python());
    let stand_ins = StandIns::install();
    let snakefile = "rule all:\n    input: 'x.out'\n    output: 'all'\n    script: 'all.py'\n\
                     rule number:\n    output: '{s}.in'\n    shell: 'seq 5 > {output}; echo $- > flags'\n\
                     rule count:\n    input: '{s}.in'\n    output: '{s}.out'\n    run: shell('wc -l < {input} > {output}')\n";
    fs::write(stand_ins.path("Snakefile"), snakefile).unwrap();
    fs::write(stand_ins.path("all.py"), "open(snakemake.output[0], 'w')\n").unwrap();
    let snakemake = |path: &str, words: &[&str]| {
        let mut command = stand_ins.command(python.to_str().unwrap());
        command.args(["-m", "snakemake", "-q", "-c2"]).args(words).env("PATH", path);
        succeeded(&command.output().unwrap());
    };
    let path = std::env::var("PATH").unwrap();
    snakemake(&format!("{}:{path}", stand_ins.path("bin").display()), &[]);
    let names = stand_ins.names();
    assert_eq!(names.len(), 3, "{names:?}");
    assert!(names.contains(&"snakemake.count_s=x.shell".to_owned()), "{names:?}");
    assert!(names.contains(&"snakemake.seq_5_x.in_echo_-_flags".to_owned()), "{names:?}");
    assert!(names.iter().any(|name| name.ends_with("all.py")), "{names:?}");
    let flags = fs::read_to_string(stand_ins.path("flags")).unwrap();
    assert!(flags.contains('e') && flags.contains('u'), "the strict mode is on: {flags}");
    // As Snakemake starts itself on another machine for one job.
    let one = ["--target-jobs", "number:s=y", "--allowed-rules", "number", "--mode", "remote"];
    let resource = format!("shell_exec='{}'", stand_ins.shell("bash"));
    snakemake(&path, &[&one[..], &["--default-resources", &resource]].concat());
    assert!(stand_ins.names().contains(&"snakemake.number_s=y".to_owned()), "{:?}", stand_ins.names());
}

// Requirement: TASK-14
#[test]
fn jobs_of_parallel_are_named_by_number() {
    let parallel =
        or_skip!(installed("sem").ok_or("GNU parallel is not installed")).with_file_name("parallel");
    let stand_ins = StandIns::install();
    let mut command = stand_ins.command(parallel.to_str().unwrap());
    command.env("PARALLEL_SHELL", stand_ins.shell("bash"));
    let output = command.args(["--will-cite", "-j2", "exit {}", ":::", "0", "3"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "one job failed: {output:?}");
    let reports = stand_ins.reports();
    assert_eq!(stand_ins.names(), ["parallel.1", "parallel.2"]);
    assert_eq!(reports["parallel.2"].u64("exit.code"), 3);
}

// Requirement: TASK-14
#[test]
fn lines_of_make_are_named_by_target() {
    let make = or_skip!(installed("make").ok_or("make is not installed"));
    let stand_ins = StandIns::install();
    let makefile =
        "V := $(shell echo v)\nall: out/a.o b\\ c\nout/a.o b\\ c:\n\tmkdir -p out\n\techo '$(V) $@' > '$@'\n";
    fs::write(stand_ins.path("Makefile"), makefile).unwrap();
    let mut command = stand_ins.command(make.to_str().unwrap());
    let shell = format!("SHELL={}", stand_ins.shell("sh"));
    succeeded(&command.args(["-j2", &shell, ".SHELLFLAGS=--task=\"$@\" -c"]).output().unwrap());
    assert_eq!(fs::read_to_string(stand_ins.path("out/a.o")).unwrap(), "v out/a.o\n");
    let names = stand_ins.names();
    assert_eq!(names.len(), 4, "{names:?}");
    let of = |target: &str| {
        let second = format!("{target}.");
        names.iter().filter(|name| *name == target || name.starts_with(&second)).count()
    };
    assert_eq!((of("out_a.o"), of("b_c")), (2, 2), "{names:?}");
}

// Requirement: TASK-14
#[test]
fn compilers_of_cmake_are_named_by_object() {
    let cmake = or_skip!(installed("cmake").ok_or("CMake is not installed"));
    let stand_ins = StandIns::install();
    fs::create_dir(stand_ins.path("sub")).unwrap();
    for file in ["main.c", "sub/main.c"] {
        fs::write(
            stand_ins.path(file),
            format!("int {}(void) {{ return 0; }}\n", file.replace(['/', '.'], "_")),
        )
        .unwrap();
    }
    let lists =
        "cmake_minimum_required(VERSION 3.10)\nproject(p C)\nadd_library(lib STATIC main.c sub/main.c)\n";
    fs::write(stand_ins.path("CMakeLists.txt"), lists).unwrap();
    let cmake =
        |words: &[&str]| succeeded(&stand_ins.command(cmake.to_str().unwrap()).args(words).output().unwrap());
    let launcher = format!("-DCMAKE_C_COMPILER_LAUNCHER={}", stand_ins.shell("compiler-launcher"));
    cmake(&["-S", ".", "-B", "build", &launcher]);
    cmake(&["--build", "build", "-j2"]);
    assert_eq!(stand_ins.names(), ["CMakeFiles_lib.dir_main.c.o", "CMakeFiles_lib.dir_sub_main.c.o"]);
    for report in stand_ins.reports().values() {
        assert!(report.command("cc1").is_some(), "{:?}", report.at("processes"));
    }
}

/// `.command.run` as Nextflow 24 renders it for `process.shell = ['DIR/bash', '-ue']`, without staging and traps.
// Requirement: TASK-14
#[test]
fn tasks_of_nextflow_are_named_as_nextflow_names_them() {
    let stand_ins = StandIns::install();
    let bash = stand_ins.shell("bash");
    for (work, head) in [("4f/0123", "### name: 'align (sample 1)'\n"), ("a0/fedc", "")] {
        let work = stand_ins.path(work);
        fs::create_dir_all(&work).unwrap();
        fs::write(work.join(".command.sh"), format!("#!{bash} -ue\necho done > out\nexit 3\n")).unwrap();
        let run = format!(
            "#!/bin/bash\n### ---\n{head}### ...\nset -e\nset -u\n\
             nxf_launch() {{\n    {bash} -ue {}/.command.sh\n}}\n\
             export NXF_TASK_WORKDIR=\"$PWD\"\n(set -e; nxf_launch) &\nwait $!\n",
            work.display()
        );
        fs::write(work.join(".command.run"), run).unwrap();
        let status =
            stand_ins.command("/bin/bash").args(["-ue", ".command.run"]).current_dir(&work).status().unwrap();
        assert_eq!((status.code(), &*fs::read_to_string(work.join("out")).unwrap()), (Some(3), "done\n"));
    }
    assert_eq!(stand_ins.names(), ["nextflow.a0_fedc", "nextflow.align_sample_1"]);
}

// Requirement: TASK-17
#[test]
fn link_to_this_program_that_is_no_stand_in_stays_a_launcher() {
    let directory = tempfile::tempdir().unwrap();
    let link = directory.path().join("my-shell");
    symlink(BINARY, &link).unwrap();
    let version = Command::new(&link).arg0("/bin/bash").arg("--version").output().unwrap();
    assert!(version.stdout.starts_with(b"gpu-track-run "), "{version:?}");
}
