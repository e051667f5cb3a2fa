//! The environment variables that make MPI launchers start agents on other nodes. A variable that the user has set stays, and with it the
//! user's own way of starting daemons.
//!
//! They are in the environment of the command, and not in the segment for the shim to add. Any process of the tree can write the segment,
//! also one that has dropped its privileges.
//!
//! - Open MPI 4 and 5 take the whole command of a daemon from a variable, and run it by a shell on the node.
//! - Hydra (MPICH) and Intel MPI take the program that reaches a node, which is ssh: this program is [a stand-in](super::remote_shell).
//! - With `--nodes=all`, the first ssh along PATH is that stand-in.
//!
//! The command tests on its node whether the agent can run there, and otherwise runs the daemon itself.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use gpu_track_collector::model::mpi_daemons::DAEMONS;

use super::agent_options;
use super::directory::{THIS_NODE, note_absence_script};
use crate::cli::{AgentSpec, Options, is_plain};
use crate::process::spawn::Environment;

/// Variables of Open MPI 4 and 5 with the command of a daemon, and the daemon's name.
const DAEMON_COMMANDS: [(&str, &str); 2] =
    [("OMPI_MCA_orte_launch_agent", "orted"), ("PRTE_MCA_prte_launch_agent", "prted")];
/// Variables of Hydra and Intel MPI with the program that reaches a node.
const REMOTE_SHELLS: [&str; 2] = ["HYDRA_LAUNCHER_EXEC", "I_MPI_HYDRA_BOOTSTRAP_EXEC"];
/// Where one of these variables is set, or one of the options is given, with another value than ssh, Hydra reaches nodes by another
/// program.
const OTHER_LAUNCHERS: [&str; 3] = ["HYDRA_LAUNCHER", "HYDRA_BOOTSTRAP", "I_MPI_HYDRA_BOOTSTRAP"];
const OTHER_LAUNCHER_OPTIONS: [&str; 4] = ["-launcher", "--launcher", "-bootstrap", "--bootstrap"];
/// Options that have the program that reaches a node in place of [`REMOTE_SHELLS`].
const REMOTE_SHELL_OPTIONS: [&str; 4] =
    ["-launcher-exec", "--launcher-exec", "-bootstrap-exec", "--bootstrap-exec"];
/// The program by which Hydra reaches nodes where nothing else is said.
pub(super) const SSH: &str = "ssh";
/// The variable that tells the stand-in for ssh the command line of an agent.
pub(super) const ENV_AGENT: &str = "GPU_TRACK_AGENT";

/// What makes MPI launchers start agents.
pub(super) struct Carriers {
    program: PathBuf,
    /// The options of agents beside `--agent`, as they stand in a command line.
    options: String,
    id: u64,
    directory: PathBuf,
    /// Why Hydra does not start daemons by the stand-in for ssh. `None`: it does, as far as is known.
    no_stand_in: Option<String>,
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
            no_stand_in: other_launcher(&options.command.words),
            path_with_ssh: None,
            command: options.command.words.clone(),
        })
    }

    /// The variables for the command. `segment`: that of this node. Ranks that Hydra starts on another node have the environment of this
    /// one, so the agent there makes its segment under the same name.
    pub(super) fn environment(&self, segment: &Path) -> Environment {
        let agent = self.agent(None);
        let daemons = DAEMON_COMMANDS.into_iter().filter(|(name, _)| is_free(name));
        let command = |daemon| daemon_command(&agent, &self.directory, daemon).into();
        let mut variables: Environment =
            daemons.map(|(name, daemon)| (name.into(), command(daemon))).collect();
        // If a run around this one has set GPU_TRACK_AGENT, the others stay, too: they belong together.
        if !is_free(ENV_AGENT) || !is_plain(&segment.to_string_lossy()) {
            return variables;
        }
        let before = variables.len();
        let shells = REMOTE_SHELLS.into_iter().filter(|name| self.no_stand_in.is_none() && is_free(name));
        variables.extend(shells.map(|name| (name.into(), self.program.clone().into())));
        variables.extend(self.path_with_ssh.clone().map(|path| ("PATH".into(), path)));
        if variables.len() > before {
            variables.push((ENV_AGENT.into(), self.agent(Some(segment)).into()));
        }
        variables
    }

    /// Has the command's programs start agents by ssh, too. `path`: the command's PATH, with the stand-in for ssh.
    pub(super) fn add_ssh(&mut self, path: OsString) {
        self.path_with_ssh = Some(path);
    }

    /// Says for each daemon of an MPI launcher why no agent is started with it, as far as that is known.
    pub(super) fn hindrances(&self) -> Vec<(String, String)> {
        let known = DAEMONS.iter().filter_map(|daemon| Some(((*daemon).to_owned(), self.hindrance(daemon)?)));
        known.collect()
    }

    /// Says why the MPI launcher that starts this daemon on another node starts no agent there. `None`: that is not known.
    pub(super) fn hindrance(&self, daemon: &str) -> Option<String> {
        let is_given = |word: &OsString| {
            word == "orte_launch_agent" || word == "prte_launch_agent" || word == "--launch-agent"
        };
        if let Some((name, _)) = DAEMON_COMMANDS.iter().find(|(_, of)| *of == daemon) {
            let option = self.command.iter().find(|word| is_given(word)).map(|word| word.to_string_lossy());
            let option = option.map(|option| format!("{option} is given"));
            return if is_free(name) { option } else { Some(format!("{name} is set")) };
        }
        let shell = if daemon == "hydra_bstrap_proxy" { REMOTE_SHELLS[1] } else { REMOTE_SHELLS[0] };
        let is_set = || !is_free(shell);
        self.no_stand_in.clone().or_else(|| is_set().then(|| format!("{shell} is set"))).or_else(agent_is_set)
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

/// Whether this variable is not set.
fn is_free(name: &str) -> bool {
    env::var_os(name).is_none()
}

/// Says that a run around this one starts agents. `None`: there is none.
pub(super) fn agent_is_set() -> Option<String> {
    (!is_free(ENV_AGENT)).then(|| format!("{ENV_AGENT} is set, by a run around this one"))
}

/// Says why Hydra may reach nodes by another program than ssh, or by an ssh of the user's. `None`: nothing shows that.
fn other_launcher(command: &[OsString]) -> Option<String> {
    let is_other = |value: &OsString| value != SSH;
    let variable = OTHER_LAUNCHERS.iter().find(|name| env::var_os(name).as_ref().is_some_and(is_other));
    if let Some(name) = variable {
        return Some(format!("{name} is set"));
    }
    let mut words_with_next = command.iter().zip(command.iter().skip(1).map(Some).chain([None]));
    let is_one_of = |word: &OsString, options: &[&str]| options.iter().any(|option| word == option);
    let by_option = words_with_next.find(|(word, value)| {
        is_one_of(word, &REMOTE_SHELL_OPTIONS)
            || (is_one_of(word, &OTHER_LAUNCHER_OPTIONS) && value.is_none_or(is_other))
    });
    by_option.map(|(word, _)| format!("{} is given", word.to_string_lossy()))
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

    // Requirement: NODE-38
    #[test]
    fn another_way_to_nodes_than_ssh_is_known_by_its_option() {
        let said = |line: &str| other_launcher(&parsed(&format!("gpu-track-run -- {line}")).command.words);
        for line in ["mpirun -launcher ssh ./app", "mpirun -n 2 ./app", "mpirun"] {
            assert_eq!(said(line), None, "{line}");
        }
        for (line, option) in [
            ("mpirun -launcher rsh ./app", "-launcher"),
            ("mpirun --bootstrap", "--bootstrap"),
            ("mpirun -launcher ssh -launcher-exec /opt/ssh ./app", "-launcher-exec"),
        ] {
            assert_eq!(said(line), Some(format!("{option} is given")), "{line}");
        }
    }
}
