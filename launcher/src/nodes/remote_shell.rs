//! The stand-in for ssh. It puts an agent before the remote command, and becomes ssh.
//!
//! - Hydra (MPICH) and Intel MPI execute it under this program's own name. If Hydra reaches nodes by another program, it becomes that one.
//! - With `--nodes=all`, a link called `ssh` is first in the command's PATH. It becomes the next ssh along PATH, which gets PATH without
//!   that directory, and not GPU_TRACK_AGENT: the programs that ssh itself starts, such as a ProxyCommand, run as without the stand-in.
//!
//! What starts no command, copies files, or can't be tracked, is left as it is.

use std::borrow::Cow;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use gpu_track_abi::preload::shim_in;
use gpu_track_abi::{ENV_PRELOAD, ENV_SESSION};
use gpu_track_collector::model::{mpi_daemons, ssh};
use gpu_track_collector::safe_path::User;
use gpu_track_collector::{ProcRoot, was_killed};

use super::carriers::{ENV_AGENT, SSH, behind_agent, or_itself};
use crate::cli::{AgentSpec, is_host};
use crate::process::signals;
use crate::process::spawn::{self, Environment, InheritedState, Program};
use crate::shim_on_disk::shim_file;
use crate::stand_in::{are_same_file, executed};
use crate::{console, name, trusted};

/// The name of the link.
const NAME: &str = "ssh";
/// The kernel takes no argument of 128 KiB or more. The line of the agent comes before the command.
const MOST_BYTES: usize = 100_000;

/// Characters that make a command line more than one command, or that end or change the single quotes around it.
const SHELL_SIGNS: [char; 12] = [';', '|', '&', '<', '>', '`', '$', '(', ')', '\'', '\\', '\n'];

/// Becomes ssh, or another program that reaches nodes, if these are the arguments of the stand-in. `None`: they are not. Returns a status
/// only if that fails: the one that a shell would have.
pub(crate) fn serve_if_started_as_remote_shell(args: &[OsString]) -> Option<ExitCode> {
    let (name, rest) = args.split_first()?;
    let agent = env::var(ENV_AGENT).ok().filter(|_| !name::is_companion(Some(name)))?;
    let launcher = launcher_of(rest)?;
    let is_shell = ["ssh", "rsh"].contains(&launcher);
    let words = with_agent(rest, &agent).filter(|_| is_shell).unwrap_or_else(|| rest.to_vec());
    let others = path_without(Path::new("/proc/self/exe"));
    let program = match trusted::program_in(others.into_iter(), launcher, User::this()) {
        Ok(program) => program,
        Err(error) => return Some(not_started(launcher, &error)),
    };
    let command: Vec<OsString> = [program].into_iter().chain(words).collect();
    Some(not_started(launcher, &become_other(&command, &command[0], env::vars_os().collect())))
}

/// Becomes the next ssh along PATH, if this process was started by the link of that name. `None`: it was not. Returns a status only if
/// that fails.
pub(crate) fn serve_if_started_as_ssh() -> Option<ExitCode> {
    let line: Vec<OsString> = env::args_os().collect();
    let (_, link) = executed(&[NAME], &line)?;
    let args = line.get(1..).unwrap_or_default();
    let mut env: Environment = env::vars_os().collect();
    let agent = env::var(ENV_AGENT).ok().and_then(|agent| Some((spec_of(&agent)?, agent)));
    let agent = agent.filter(|(spec, _)| spec.segment.as_ref().is_some_and(|path| goes_on(path)));
    let tracked = agent.and_then(|(spec, agent)| tracked(args, &agent, spec));
    env.retain(|(name, _)| name != ENV_AGENT);
    let directories = path_without(&link);
    // The parts of a PATH can be joined again.
    if let Ok(path) = env::join_paths(&directories) {
        spawn::set(&mut env, "PATH", path);
    }
    let program = match trusted::program_in(directories.into_iter(), NAME, User::this()) {
        Ok(program) => program,
        Err(error) => return Some(not_started(NAME, &error)),
    };
    // ssh executes itself again by this name, for a ProxyJump.
    let own_name = if line.first().is_some_and(|name| name == NAME) { NAME.into() } else { program.clone() };
    let words: Vec<OsString> =
        [own_name].into_iter().chain(tracked.unwrap_or_else(|| args.to_vec())).collect();
    Some(not_started(NAME, &become_other(&words, &program, env)))
}

/// The PATH with the link called `ssh` to this program before all others.
///
/// # Errors
/// If there is no ssh behind it, or the link can't be made. The error is a line for the user.
pub(super) fn path_with_stand_in(program: &Path) -> Result<OsString, String> {
    let path = env::var_os("PATH").unwrap_or_default();
    let others = path_without(program);
    trusted::program_in(others.into_iter(), NAME, User::this()).map_err(|error| error.to_string())?;
    let directory = shim_file::link_to(program, NAME)?;
    env::join_paths([directory].into_iter().chain(env::split_paths(&path))).map_err(|error| error.to_string())
}

/// The directories of PATH without those whose ssh is this program. `link`: a path of this program.
fn path_without(link: &Path) -> Vec<PathBuf> {
    let is_own = |path: &Path| are_same_file(path, link) || are_same_file(path, Path::new("/proc/self/exe"));
    let path = env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
    env::split_paths(&path).filter(|directory| !is_own(&directory.join(NAME))).collect()
}

/// Whether the run with this segment goes on and is this user's. Its launcher must also learn of an agent, from the shim in this process.
fn goes_on(segment: &Path) -> bool {
    let [sessions, preload] = [ENV_SESSION, ENV_PRELOAD].map(|name| env::var_os(name).unwrap_or_default());
    env::split_paths(&sessions).any(|session| session == segment)
        && shim_in(preload.as_bytes()).is_some()
        && trusted::is_own_file(segment)
        && !was_killed(segment)
        && (!User::this().is_root() || has_set_agent(segment))
}

/// Whether the launcher of the run with this segment has set GPU_TRACK_AGENT for this process. For root, the variable can be another
/// user's (`su -m`), and its options name a library.
fn has_set_agent(segment: &Path) -> bool {
    let root = ProcRoot::default();
    let launcher = segment.file_name().and_then(|name| name.to_str()?.split('.').nth(2)?.parse().ok());
    let parent = |pid: &u32| root.stat(*pid).map(|stat| stat.ppid).filter(|parent| *parent > 0);
    let mut ancestors = std::iter::successors(Some(std::process::id()), parent).skip(1);
    let is_set = |environ: Vec<u8>| {
        environ.split(|byte| *byte == 0).any(|entry| entry.starts_with(b"GPU_TRACK_AGENT="))
    };
    launcher.is_some_and(|launcher: u32| {
        ancestors.any(|pid| pid == launcher)
            && fs::read(format!("/proc/{launcher}/environ")).is_ok_and(|environ| !is_set(environ))
    })
}

/// Becomes the program in this file. Returns only if that fails.
fn become_other(words: &[OsString], file: &OsStr, env: Environment) -> io::Error {
    // The other program gets back what the start of this one has changed: the state of SIGPIPE, and closed descriptors.
    let inherited = InheritedState::replace(&signals::all_but_faults());
    spawn::become_command_with(Program { words, behind: Some(file) }, env, &inherited)
}

/// The program that Hydra would have started with these arguments, to reach another node. It tells the daemon there by which one. `None`:
/// these are not Hydra's arguments: its daemon as a word of the remote command, and after that the daemon's options.
fn launcher_of(args: &[OsString]) -> Option<&'static str> {
    let words: Vec<&str> = args.iter().map(|arg| arg.to_str()).collect::<Option<_>>()?;
    let is_hydras = |word: &&str| {
        let name = word.trim_matches('"');
        ["hydra_pmi_proxy", "hydra_bstrap_proxy"].iter().any(|daemon| name.ends_with(daemon))
    };
    let daemon = words.iter().position(is_hydras).filter(|daemon| *daemon > 0)?;
    let (before, options) = words.split_at(daemon);
    let is_launchers = before.contains(&"--") || !options.get(1)?.starts_with("--");
    let given = options.iter().zip(options.iter().skip(1)).find(|(option, _)| **option == "--launcher");
    let launcher = match given.map_or(SSH, |(_, launcher)| launcher) {
        "rsh" => "rsh",
        "slurm" => "srun",
        "lsf" => "blaunch",
        "sge" => "qrsh",
        _ => SSH,
    };
    (!is_launchers).then_some(launcher)
}

/// Says that this process can't become the program of this name. Returns the status that a shell would have.
fn not_started(name: &str, error: &io::Error) -> ExitCode {
    console::error(format_args!("it cannot become {name}, in place of which it was started: {error}"));
    ExitCode::from(127)
}

/// The arguments of ssh with the command line `agent` before the daemon. `None`: the remote command is no daemon's, or more
/// than one command.
fn with_agent(args: &[OsString], agent: &str) -> Option<Vec<OsString>> {
    let words: Vec<&str> = args.iter().map(|word| word.to_str()).collect::<Option<_>>()?;
    let host = ssh::host_at(&words)?;
    let (_, command) = words.split_at_checked(host + 1)?;
    let daemon = command.first()?.trim_matches('"');
    let line = command.join(" ");
    if !mpi_daemons::is_daemon(daemon) || line.contains(SHELL_SIGNS) {
        return None;
    }
    let spec = spec_of(agent)?;
    // The user's shell on the node need not be sh.
    let script = OsString::from(format!("sh -c '{}'", or_itself(agent, &spec.directory, &line)));
    Some(args[..=host].iter().cloned().chain([script]).collect())
}

/// Reads what follows `--agent` in an agent's command line. `None`: there is none, or it is no [`AgentSpec`].
fn spec_of(agent: &str) -> Option<AgentSpec> {
    agent.split(' ').skip_while(|word| *word != "--agent").nth(1)?.parse().ok()
}

/// The arguments of ssh with the agent of this command line before the remote command, whatever that is. ssh does not carry the
/// environment to the host, so the agent makes a segment of its own, unless an MPI daemon carries it. `spec`: what the command line tells
/// the agent. `None`: the call has to stay as it is.
fn tracked(args: &[OsString], agent: &str, spec: AgentSpec) -> Option<Vec<OsString>> {
    let words: Vec<Cow<str>> = args.iter().map(|word| word.to_string_lossy()).collect();
    let (host_at, at) = ssh::command_at(&words)?;
    let (options, command) = words.split_at_checked(at)?;
    let changes_the_command = |option: &Cow<str>| {
        let option = option.to_ascii_lowercase();
        option.contains("sessiontype") || option.contains("remotecommand")
    };
    // ssh joins the words in the same way.
    let line = args.get(at..)?.join(OsStr::new(" "));
    let is_ours = line.to_string_lossy().contains(name::LAUNCHER);
    if options.iter().any(changes_the_command) || is_ours || ssh::is_file_server(command) {
        return None;
    }
    if mpi_daemons::is_daemon(command.first()?.trim_matches('"')) {
        return with_agent(args, agent);
    }
    let host = ssh::host_name(&words[host_at]);
    if line.as_bytes().trim_ascii().is_empty() || !is_host(host) {
        return None;
    }
    let named = AgentSpec { segment: None, host: Some(host.to_owned()), ..spec.clone() };
    let agent = agent.replacen(&spec.to_string(), &named.to_string(), 1);
    let remote = behind_agent(&agent, &spec.directory, host, line.as_bytes());
    let is_short = remote.iter().map(String::len).sum::<usize>() <= MOST_BYTES;
    is_short.then(|| args[..at].iter().cloned().chain(remote.map(OsString::from)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    // Requirement: NODE-12
    #[test]
    fn daemons_alone_get_an_agent() {
        let agent = "/a/b --agent 0000000000000001:-:/r.d";
        let shown = |line: &str| with_agent(&words(line), agent).map(|words| words.join(OsStr::new(" ")));
        let daemon = r#""/usr/bin/hydra_pmi_proxy" --control-port n1:4000 --pgid 0"#;
        let script = format!("sh -c '{}'", or_itself(agent, Path::new("/r.d"), daemon));
        assert_eq!(shown(&format!("-x n2 {daemon}")).unwrap(), OsString::from(format!("-x n2 {script}")));
        assert!(shown(&format!("-x -p 22 n2 {daemon}")).is_some());
        for line in [
            "-x n2 hostname",
            "n2",
            "-x",
            "",
            "-x n2 hydra_pmi_proxy --a;b",
            "-x n2 hydra_pmi_proxy --a 'b c'",
        ] {
            assert_eq!(shown(line), None, "{line}");
        }
        let own = r#"-x n2 "/usr/bin/hydra_pmi_proxy" --control-port n1:4000"#;
        assert_eq!(launcher_of(&words(own)), Some("ssh"));
        assert_eq!(launcher_of(&words(&format!("{own} --launcher rsh"))), Some("rsh"));
        let by_slurm = "-N 2 --input none /usr/bin/hydra_pmi_proxy --control-port n1:1 --launcher slurm";
        assert_eq!(launcher_of(&words(by_slurm)), Some("srun"));
        for line in [
            "-o r.json -- hydra_pmi_proxy --version",
            "hydra_pmi_proxy --version",
            "ls /usr/bin/hydra_pmi_proxy",
            "ls /usr/bin/orted --all",
            "-x n2 hostname",
            "",
        ] {
            assert_eq!(launcher_of(&words(line)), None, "{line}");
        }
    }
}
