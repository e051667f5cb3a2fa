//! The environment variables that make MPI launchers start agents on other nodes: [`is_wanted`] says when.
//!
//! - Open MPI 4 and 5 take the whole command of a daemon from a variable, and run it by a shell on the node.
//! - Hydra (MPICH) and Intel MPI take the program that reaches a node, which is ssh: this program is [a stand-in](super::remote_shell).
//! - With `--nodes=all`, the first ssh along PATH is that stand-in.
//!
//! The command tests on its node whether the agent can run there, and otherwise runs the daemon itself.

use std::env;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use gpu_track_abi::mpi::{AGENT, OtherWay, is_wanted, other_way};
use gpu_track_collector::model::mpi_daemons::DAEMONS;

use super::directory::{THIS_NODE, note_absence_script};
use super::{agent_options, remote_shell};
use crate::cli::{AgentSpec, Options, is_plain};
use crate::process::spawn::Environment;

/// Variables of Open MPI 4 and 5 with the command of a daemon, and the daemon's name.
const DAEMON_COMMANDS: [(&str, &str); 2] =
    [("OMPI_MCA_orte_launch_agent", "orted"), ("PRTE_MCA_prte_launch_agent", "prted")];
/// Variables of Hydra and Intel MPI with the program that reaches a node.
const REMOTE_SHELLS: [&str; 2] = ["HYDRA_LAUNCHER_EXEC", "I_MPI_HYDRA_BOOTSTRAP_EXEC"];
/// The program by which Hydra reaches nodes where nothing else is said.
pub(super) const SSH: &str = "ssh";
/// What makes MPI launchers start agents.
pub(super) struct Carriers {
    program: PathBuf,
    /// The options of agents beside `--agent`, as they stand in a command line.
    options: String,
    id: u64,
    directory: PathBuf,
    /// The launcher's environment.
    environment: Environment,
    /// The PATH of the command with the stand-in for ssh. `None`: what ssh starts is not tracked.
    path_with_ssh: Option<OsString>,
    /// The command, in which options of MPI launchers can be.
    command: Vec<OsString>,
}

impl Carriers {
    /// Makes the carriers of a run whose nodes' reports go into `directory`. `id` tells the run from others.
    ///
    /// # Errors
    /// If a path or an option would not stay unchanged on its way through shells. The error is a line for the user.
    pub(super) fn new(id: u64, directory: &Path, options: &Options) -> Result<Self, String> {
        let program = env::current_exe().map_err(|error| format!("this program has no path: {error}"))?;
        let words = agent_options::from_options(options);
        let paths = [&program, directory].map(|path| path.to_string_lossy());
        for word in paths.iter().map(AsRef::as_ref).chain(words.iter().map(String::as_str)) {
            if !is_plain(word) {
                return Err(format!(
                    "\"{word}\" would not reach the other nodes unchanged: it has a blank or a sign of a shell"
                ));
            }
        }
        // The parts of the value of `--agent` are separated by colons.
        if directory.as_os_str().as_encoded_bytes().contains(&b':') {
            return Err(format!("\"{}\" has a colon", directory.display()));
        }
        Ok(Self {
            program,
            options: words.join(" "),
            id,
            directory: directory.to_owned(),
            environment: env::vars_os().collect(),
            path_with_ssh: None,
            command: options.command.words.clone(),
        })
    }

    /// The variables for the command by which MPI launchers start agents, as far as [they are wanted](is_wanted). `segment`: that of this
    /// node. Ranks that Hydra starts on another node have the environment of this one, so the agent there makes its segment under the same
    /// name.
    pub(super) fn wanted(&self, segment: &Path) -> Environment {
        let agent = self.agent(None);
        let daemon = |(name, daemon)| (name, daemon_command(&agent, &self.directory, daemon).into());
        let mut variables: Vec<(&str, OsString)> = DAEMON_COMMANDS.into_iter().map(daemon).collect();
        if is_plain(&segment.to_string_lossy()) {
            variables.extend(REMOTE_SHELLS.into_iter().map(|name| (name, self.program.clone().into())));
            variables.push((AGENT, self.agent(Some(segment)).into()));
        }
        let is_wanted = |name: &str| is_wanted(name.as_bytes(), || self.arguments(), |name| self.value(name));
        let wanted = variables.into_iter().filter(|(name, _)| is_wanted(name));
        wanted.map(|(name, value)| (name.into(), value)).collect()
    }

    /// The value of a variable in the launcher's environment.
    fn value(&self, name: &[u8]) -> Option<&[u8]> {
        let found = self.environment.iter().find(|(known, _)| known.as_bytes() == name);
        found.map(|(_, value)| value.as_bytes())
    }

    /// The words of the command.
    fn arguments(&self) -> impl Iterator<Item = &[u8]> {
        self.command.iter().map(|word| word.as_bytes())
    }

    /// What the command itself gets where what ssh starts is tracked. `segment`: that of this node.
    pub(super) fn for_ssh(&self, segment: &Path) -> Environment {
        let path = self.path_with_ssh.as_ref().filter(|_| is_plain(&segment.to_string_lossy()));
        let agent = || (AGENT.into(), self.agent(Some(segment)).into());
        path.map_or_else(Vec::new, |path| vec![("PATH".into(), path.clone()), agent()])
    }

    /// Prepares to track what ssh starts on other nodes.
    ///
    /// # Errors
    /// If that is not possible. The error is a line for the user.
    pub(super) fn add_ssh(&mut self) -> Result<(), String> {
        if self.value(AGENT.as_bytes()).is_some() {
            return Err(format!("{AGENT} is set, by a run around this one"));
        }
        self.path_with_ssh = Some(remote_shell::path_with_stand_in(&self.program)?);
        Ok(())
    }

    /// Says for each daemon of an MPI launcher why no agent is started with it, as far as that is known.
    pub(super) fn hindrances(&self) -> Vec<(String, String)> {
        let known = DAEMONS.iter().filter_map(|daemon| Some(((*daemon).to_owned(), self.hindrance(daemon)?)));
        known.collect()
    }

    /// Says why the MPI launcher that starts this daemon on another node starts no agent there. `None`: that is not known.
    pub(super) fn hindrance(&self, daemon: &str) -> Option<String> {
        let value = |name: &[u8]| self.value(name);
        let is_set = |name: &str| value(name.as_bytes()).is_some();
        let is_given = |word: &OsString| {
            word == "orte_launch_agent" || word == "prte_launch_agent" || word == "--launch-agent"
        };
        if let Some((name, _)) = DAEMON_COMMANDS.iter().find(|(_, of)| *of == daemon) {
            let option = self.command.iter().find(|word| is_given(word)).map(|word| word.to_string_lossy());
            let option = option.map(|option| format!("{option} is given"));
            return if is_set(name) { Some(format!("{name} is set")) } else { option };
        }
        let shell = if daemon == "hydra_bstrap_proxy" { REMOTE_SHELLS[1] } else { REMOTE_SHELLS[0] };
        match other_way(self.arguments(), value) {
            Some(OtherWay::Variable(name)) => Some(format!("{name} is set")),
            Some(OtherWay::Option(option)) => Some(format!("{} is given", String::from_utf8_lossy(option))),
            None if is_set(shell) => Some(format!("{shell} is set")),
            None if is_set(AGENT) => Some(format!("{AGENT} is set, by a run around this one")),
            None => None,
        }
    }

    /// The path of the program that runs as an agent.
    pub(super) fn program(&self) -> &Path {
        &self.program
    }

    /// The command line of an agent, without the daemon's.
    pub(super) fn agent(&self, segment: Option<&Path>) -> String {
        let spec = AgentSpec {
            id: self.id,
            segment: segment.map(Path::to_owned),
            directory: self.directory.clone(),
            host: None,
            left: None,
        };
        format!("{} --agent {spec} {}", self.program.display(), self.options)
    }
}

/// Makes a line of shell that becomes this agent with this daemon as its command. If the agent's program is missing or of another
/// version, the shell notes that in the directory of the run, if the node sees it, and becomes the daemon. `agent` and `daemon` are
/// command lines. `agent` has no characters that are special to a shell.
pub(super) fn or_itself(agent: &str, directory: &Path, daemon: &str) -> String {
    let note = note_absence_script(&directory.to_string_lossy(), THIS_NODE, program_of(agent));
    or_else(agent, &format!("{agent} -- {daemon}"), &format!("{note};exec {daemon}"))
}

/// Makes the words of ssh that become this agent on `host`, whose command is the user's shell with this command line. If there can be
/// no agent, they become that shell. Each login shell reads them alike (sh, bash, zsh, csh and fish were tried): they have single quotes
/// alone, and in these no character that one of the shells treats in its own way.
///
/// The first word does nothing. A record of ssh's arguments, which is short, shows by it that an agent tracks the call.
pub(super) fn behind_agent(agent: &str, directory: &Path, host: &str, command: &[u8]) -> [String; 2] {
    let note = note_absence_script(&directory.to_string_lossy(), host, program_of(agent));
    let script =
        or_else(agent, &format!(r#"{agent} -- "$s" -c "$c""#), &format!(r#"{note};exec "$s" -c "$c""#));
    // The login shell is that of the user database, as for sshd: startup files can set SHELL to another one.
    let login_shell = r#"s=$(getent passwd "$LOGNAME" 2>/dev/null);s=${s##*:};s=${s:-${SHELL:-/bin/sh}}"#;
    // A command substitution drops newlines at the end, so an x comes after them.
    let decoded = r#"c=$(printf %bx "$1");c=${c%x}"#;
    [
        ": gpu-track-run --agent;".to_owned(),
        format!("exec sh -c '{login_shell};{decoded};{script}' sh '{}'", in_octal(command)),
    ]
}

/// Writes this text for `printf %b`, without characters that a shell treats in its own way within single quotes: csh a newline and `!`,
/// fish a backslash before another one.
fn in_octal(text: &[u8]) -> String {
    let mut written = String::with_capacity(text.len());
    for byte in text {
        match byte {
            b' '..=b'~' if !b"'\\!".contains(byte) => written.push(char::from(*byte)),
            _ => written.push_str(&format!("\\0{byte:03o}")),
        }
    }
    written
}

/// The program of an agent's command line.
pub(super) fn program_of(agent: &str) -> &str {
    agent.split(' ').next().unwrap_or_default()
}

/// Makes a line of shell that becomes `line`, a command line of this agent. If the agent's program is missing or of another
/// version, the shell runs `otherwise`.
pub(super) fn or_else(agent: &str, line: &str, otherwise: &str) -> String {
    format!("test -x {}&&{agent} -V>/dev/null 2>&1&&exec {line};{otherwise}", program_of(agent))
}

/// The command line by which Open MPI starts this daemon. Open MPI puts it in double quotes where a daemon starts further
/// ones. So it may not have `"`, `$` and backtick: they are written in octal, and printf makes the script of them. `"$@"` in the script
/// is the daemon's command line: its arguments, which `sh -s` takes.
fn daemon_command(agent: &str, directory: &Path, daemon: &str) -> String {
    let script = or_itself(agent, directory, "\"$@\"").replace('"', r"\042").replace('$', r"\044");
    format!("printf '{script}' | sh -s {daemon}")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use gpu_track_abi::client::reaches_nodes;
    use gpu_track_abi::layout::NODES_BY_SSH;

    use super::*;
    use crate::cli::{self, PatternValues, Request};

    fn parsed(line: &str) -> Options {
        let words = line.split(' ').map(OsString::from).collect();
        match cli::parse(words, &PatternValues::here()) {
            Ok(Request::Run(options)) => *options,
            other => panic!("{other:?}"),
        }
    }

    // Requirement: NODE-24
    #[test]
    fn agents_measure_what_the_launcher_measures() {
        for options in [
            "--nec 3",
            "--st 0.25 --nec 3 --guuids GPU-a,0000:01:00.0 --visible --gb amd --nvml-lib /lib/x.so --gpu-accounting \
             --gpu-root /root --layers scan,wait --no-env-repair --session-dir /tmp",
        ] {
            let given = parsed(&format!("gpu-track-run {options} -- mpirun"));
            let carriers = Carriers::new(7, Path::new("/home/me/r.json.d"), &given).unwrap();
            let of_agent = parsed(&format!("{} -- orted", carriers.agent(None)));
            assert_eq!(of_agent.gpu, given.gpu);
            assert_eq!(of_agent.discovery, given.discovery);
            assert_eq!(of_agent.tracking, given.tracking);
            let repairs = |options: &Options| !options.diagnosis.no_env_repair;
            assert_eq!(repairs(&of_agent), repairs(&given));
            assert_eq!(of_agent.diagnosis.session_dir, given.diagnosis.session_dir);
        }
        let given = parsed("gpu-track-run --guuids a;reboot -- mpirun");
        assert!(
            Carriers::new(7, Path::new("/r.d"), &given).is_err(),
            "a shell would take it for two commands"
        );
    }

    // Requirement: NODE-12
    #[test]
    fn daemon_runs_itself_where_the_agent_is_missing_or_another_version() {
        let directory = tempfile::tempdir().unwrap();
        let other_version = directory.path().join("other");
        fs::write(&other_version, "#!/bin/sh\nexit 2\n").unwrap();
        rustix::fs::chmod(&other_version, rustix::fs::Mode::RWXU).unwrap();
        let missing = directory.path().join("missing");
        let run = tempfile::tempdir().unwrap();
        fs::write(run.path().join("run"), "").unwrap();
        for (agent, kind) in [(missing, "missing"), (other_version, "version")] {
            let command = daemon_command(&format!("{} --agent x", agent.display()), run.path(), "echo");
            assert!(!command.contains(['"', '$', '`']), "{command}");
            let ssh = ["ssh", "n2", &command].map(str::as_bytes);
            assert!(reaches_nodes(NODES_BY_SSH, ssh.into_iter()), "the shim tells the launcher before it");
            // As Open MPI does on the way to further nodes.
            let line = format!("sh -c \"{command} 'a b' c\"");
            let output = Command::new("sh").args(["-c", &line]).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&output.stdout), "a b c\n", "{output:?}");
            assert!(output.stderr.is_empty(), "{output:?}");
            let note = run.path().join(format!("{}.{kind}", super::super::directory::host()));
            assert!(note.is_dir(), "{kind}");
        }
    }
}
