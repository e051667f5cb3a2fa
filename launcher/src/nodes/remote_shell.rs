//! The stand-in for ssh, with which Hydra (MPICH) and Intel MPI reach other nodes. It puts an agent before the remote command, and
//! becomes ssh. If Hydra reaches nodes by rsh, srun, blaunch or qrsh, the stand-in becomes that one.

use std::env;
use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use gpu_track_abi::mpi::AGENT;
use gpu_track_collector::model::mpi_daemons;
use gpu_track_collector::safe_path::User;

use super::carriers::{SSH, or_itself};
use crate::cli::AgentSpec;
use crate::process::signals;
use crate::process::spawn::{self, InheritedState, Program};
use crate::{console, name, trusted};

/// Characters that make a command line more than one command, or that end or change the single quotes around it.
const SHELL_SIGNS: [char; 12] = [';', '|', '&', '<', '>', '`', '$', '(', ')', '\'', '\\', '\n'];

/// Becomes ssh, or another program that reaches nodes, if these are the arguments of the stand-in. `None`: they are not. Returns a status
/// only if that fails: the one that a shell would have.
pub(crate) fn serve_if_started_as_remote_shell(args: &[OsString]) -> Option<ExitCode> {
    let (name, rest) = args.split_first()?;
    let agent = env::var(AGENT).ok().filter(|_| !name::is_companion(Some(name)))?;
    let launcher = launcher_of(rest)?;
    let is_shell = ["ssh", "rsh"].contains(&launcher);
    let words = with_agent(rest, &agent).filter(|_| is_shell).unwrap_or_else(|| rest.to_vec());
    let program = match trusted::program(launcher, User::this()) {
        Ok(program) => program,
        Err(error) => return Some(not_started(launcher, &error)),
    };
    let command: Vec<OsString> = [program].into_iter().chain(words).collect();
    // The other program gets back what the start of this one has changed: the state of SIGPIPE, and closed descriptors.
    let inherited = InheritedState::replace(&signals::all_but_faults());
    Some(not_started(launcher, &spawn::become_command(Program { words: &command, behind: None }, &inherited)))
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
    let host = mpi_daemons::host_at(&words)?;
    let (_, command) = words.split_at_checked(host + 1)?;
    let daemon = command.first()?.trim_matches('"');
    let line = command.join(" ");
    if !mpi_daemons::is_daemon(daemon) || line.contains(SHELL_SIGNS) {
        return None;
    }
    let spec: AgentSpec = agent.split(' ').skip_while(|word| *word != "--agent").nth(1)?.parse().ok()?;
    // The user's shell on the node need not be sh.
    let script = OsString::from(format!("sh -c '{}'", or_itself(agent, &spec.directory, &line)));
    Some(args[..=host].iter().cloned().chain([script]).collect())
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::path::Path;

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
