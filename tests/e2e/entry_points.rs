//! One test per libc function that creates, replaces, ends or reaps a process. Each runs twice: plainly, and with an
//! environment that `env -i` emptied and the shim has to repair.

use crate::support::{program, skip, tracked};

/// The scan layer is left out: it would also find long-lived processes that lack the shim.
const LAYERS: &[&str] = &["--layers", "preload,wait,subreaper"];

/// Runs the program plainly and by `env -i`; all of its processes must be exact, with `work_s` of CPU time.
fn assert_exact_with_and_without_environment(name: &str, words: &[&str], processes: u64, work_s: f64) {
    for prefix in [&[][..], &["env", "-i"]] {
        let mut command: Vec<String> = prefix.iter().map(|word| (*word).to_owned()).collect();
        command.push(program(name));
        command.extend(words.iter().map(|word| (*word).to_owned()));
        let run = tracked(command).options(LAYERS).run();
        if run.status.code() == Some(77) {
            skip!("this libc has no {}", words[0]);
        }
        let report = run.assert_clean(0);
        report.assert_all_exact(processes);
        report.assert_cpu_between(work_s, 0.1);
    }
}

/// A test for each name: the program is run with the C function's name as its first argument.
macro_rules! entry_points {
    ($program:literal, $words:expr, $processes:expr, $work_s:expr; $($function:ident)*) => {
        $(
            #[test]
            fn $function() {
                let mut words = vec![stringify!($function)];
                words.extend::<&[&str]>($words);
                super::assert_exact_with_and_without_environment($program, &words, $processes, $work_s);
            }
        )*
    };
}

#[expect(non_snake_case, reason = "named as in libc")]
mod births {
    // Requirement: SEE-2, SEE-80
    entry_points!("births", &["0.2"], 2, 0.2;
        fork _Fork clone raw_fork forkpty vfork posix_spawn posix_spawnp system popen);
    // Requirement: SEE-2, SEE-80
    entry_points!("births", &["0.2"], 3, 0.2; daemon);
}

#[expect(non_snake_case, reason = "named as in libc")]
mod deaths {
    // Requirement: SEE-3
    entry_points!("deaths", &["0.2"], 2, 0.2;
        exit _exit _Exit quick_exit exit_group pthread_exit abort);

    // Requirement: SEE-3
    #[test]
    fn return_from_main_is_exact() {
        super::assert_exact_with_and_without_environment("deaths", &["return", "0.2"], 2, 0.2);
    }

    // Requirement: SEE-3
    #[test]
    fn children_killed_by_signals_are_exact() {
        for signal in ["1", "9", "11", "15"] {
            super::assert_exact_with_and_without_environment("deaths", &[signal, "0.2"], 2, 0.2);
        }
    }
}

mod waits {
    // Requirement: SEE-4
    entry_points!("waits", &["0.2"], 2, 0.2;
        wait wait3 wait3_null wait4 wait4_null waitpid waitid_pid waitid_all waitid_pidfd peek);
}

/// The image that gets the hand-made environment is a shell with two children. The shim must repair the environment.
mod execs {
    // Requirement: SEE-5
    entry_points!("execs", &[], 3, 0.0; execv execve execvp execvpe execl execlp execle fexecve execveat);
}

mod spawns {
    // Requirement: SEE-5
    entry_points!("execs", &[], 4, 0.0; posix_spawn posix_spawnp pidfd_spawn pidfd_spawnp);
}

// Requirement: SHIM-11
#[test]
fn env_i_inside_a_script_keeps_children_tracked() {
    let script = "env -i sh -c '/bin/true; env -i sh -c \"/bin/true; exit 0\"; exit 0'; exit 0";
    let run = tracked(["sh", "-c", script]).options(LAYERS).run();
    run.assert_clean(0).assert_all_exact(5);
}

// Requirement: SEE-82, SHIM-11
#[test]
fn no_env_repair_leaves_environments_unchanged() {
    let run = tracked(["env", "-i", "/usr/bin/env"]).options(&["--no-env-repair"]).run();
    assert_eq!(run.stdout, "");
    assert_eq!(run.status.code(), Some(0));
}

// Requirement: SHIM-10
#[test]
fn foreign_ld_preload_is_kept() {
    let script = "LD_PRELOAD=libpthread.so.0 sh -c 'echo $LD_PRELOAD; /bin/true; exit 0'; exit 0";
    let run = tracked(["sh", "-c", script]).options(LAYERS).run();
    run.assert_clean(0).assert_all_exact(3);
    assert!(run.stdout.contains("libpthread.so.0"), "LD_PRELOAD became {}", run.stdout);
}
