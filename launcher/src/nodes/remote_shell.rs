//! The stand-in for ssh, with which Hydra (MPICH) and Intel MPI reach other nodes. It puts an agent before the remote command, and
//! becomes ssh. A remote command that is no daemon of theirs stays as it is. If Hydra reaches nodes by srun, the stand-in becomes
//! srun.

use std::env;
use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use gpu_track_collector::model::mpi_daemons;
use gpu_track_collector::safe_path::User;

use super::carriers::{ENV_AGENT, REMOTE_SHELL, is_remote_shell, or_itself};
use crate::cli::AgentSpec;
use crate::process::signals;
use crate::process::spawn::{self, InheritedState, Program};
use crate::{console, trusted};

/// Characters that make a command line more than one command, or that end or change the single quotes around it.
const SHELL_SIGNS: [char; 12] = [';', '|', '&', '<', '>', '`', '$', '(', ')', '\'', '\\', '\n'];

/// Becomes ssh or srun, if these are the arguments of the stand-in. `None`: they are not. Returns a status only if that fails: the
/// one that a shell would have.
pub(crate) fn serve_if_started_as_remote_shell(args: &[OsString]) -> Option<ExitCode> {
    let (name, rest) = args.split_first()?;
    if !is_remote_shell(name) {
        return None;
    }
    let agent = env::var(ENV_AGENT).ok();
    let words = agent.and_then(|agent| with_agent(rest, &agent)).unwrap_or_else(|| rest.to_vec());
    let program = match trusted::program(replaced(rest), User::this()) {
        Ok(program) => program,
        Err(error) => return Some(not_started(replaced(rest), &error)),
    };
    let command: Vec<OsString> = [program].into_iter().chain(words).collect();
    // The other program gets back what the start of this one has changed: the state of SIGPIPE, and closed descriptors.
    let inherited = InheritedState::replace(&signals::all_but_faults());
    Some(not_started(
        replaced(rest),
        &spawn::become_command(Program { words: &command, behind: None }, &inherited),
    ))
}

/// Says that this process can't become the program of this name. Returns the status that a shell would have.
fn not_started(name: &str, error: &io::Error) -> ExitCode {
    console::error(format_args!("{REMOTE_SHELL} cannot become {name}: {error}"));
    ExitCode::from(127)
}

/// The program that this stands in for: srun, if the arguments are for srun, else ssh.
fn replaced(args: &[OsString]) -> &'static str {
    let is_slurms = |arg: &OsString| arg.as_encoded_bytes().starts_with(b"--nodelist");
    if args.iter().any(is_slurms) { "srun" } else { "ssh" }
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
        assert_eq!(replaced(&words("-x n2 hydra_pmi_proxy")), "ssh");
        assert_eq!(replaced(&words("--nodelist n2 -N 1 hydra_pmi_proxy")), "srun");
    }
}
