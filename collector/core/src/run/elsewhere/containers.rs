//! Which calls of docker and programs like it start containers or run commands in them, and which ones, by the arguments alone.

use serde::{Deserialize, Serialize};

use super::arguments::{Options, Value, is_one_of, no_value_if_among, value_if_among};
use super::{CUT, client};
use crate::model::containers::{ContainerDaemon, ContainerWish, WantedContainers};

/// What a call has the daemon do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Act {
    /// It creates a container and starts it.
    #[default]
    Run,
    /// It starts containers that exist.
    Start,
    /// It executes a command in a container that runs.
    Exec,
    /// It starts the services of a project of docker compose.
    Compose,
    /// It builds an image or starts a service, whose containers the daemon's events don't name.
    Other,
}

/// A call that the run remembers, to find its containers. Names and paths that are too long are left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ContainerCall {
    pub(crate) daemon: ContainerDaemon,
    pub(crate) act: Act,
    /// The client, such as `docker`.
    pub(crate) program: String,
    /// Image, containers or service. Empty: not named.
    pub(crate) targets: Vec<String>,
    /// `--name`.
    pub(crate) name: Option<String>,
    /// `--cidfile`.
    pub(crate) cidfile: Option<String>,
    /// The project of docker compose.
    pub(crate) project: Option<String>,
    /// Where another daemon than the usual one is: the value of `--host`, `--context` or the like.
    pub(crate) daemon_at: Option<String>,
    /// It is docker compose that creates a container, so `targets` is a service.
    pub(crate) is_compose: bool,
    /// When the client started, CLOCK_MONOTONIC nanoseconds.
    pub(crate) start_ns: u64,
    /// When the client had ended, CLOCK_MONOTONIC nanoseconds. `None`: it still ran.
    pub(crate) end_ns: Option<u64>,
}

/// Maximum number of containers that one call is remembered to name.
const MOST_TARGETS: usize = 20;
/// Maximum number of bytes of a name. The longest one is that of an image: 255 bytes, a tag of 128 and a digest.
const MOST_OF_NAME: usize = 512;
/// Maximum number of bytes of a path (PATH_MAX).
const MOST_OF_PATH: usize = 4096;

impl ContainerCall {
    /// A call of this client of which only the container is known.
    pub(crate) fn of_client(client: &str) -> Self {
        Self { program: client.to_owned(), ..Self::default() }
    }

    /// The containers that can be the call's, by what its arguments say. The caller adds the one that the file of `--cidfile` names.
    pub(crate) fn wanted(&self) -> Vec<ContainerWish> {
        match self.act {
            Act::Run if !self.is_compose => {
                let name = self.name.clone().map(ContainerWish::Named);
                let image = || self.targets.first().cloned().map(ContainerWish::Image);
                vec![name.or_else(image).unwrap_or(ContainerWish::All)]
            }
            Act::Start | Act::Exec => self.targets.iter().cloned().map(ContainerWish::Named).collect(),
            Act::Run | Act::Compose => vec![ContainerWish::Compose(self.project.clone())],
            Act::Other => Vec::new(),
        }
    }
}

/// The daemon that a client of this name asks.
fn daemon_of(program: &str) -> ContainerDaemon {
    if program.starts_with("podman") { ContainerDaemon::Podman } else { ContainerDaemon::Docker }
}

impl WantedContainers {
    /// Notes the containers that a process with these arguments asks a daemon for, if it does.
    pub(crate) fn note(&mut self, args: &[String]) {
        let Some((program, args)) = client(args) else { return };
        let Some(call) = call(program, args) else {
            let is_cut = args.last().is_some_and(|last| last == CUT);
            if is_cut && is_one_of(program, "docker docker-compose nerdctl podman-remote") {
                self.add(daemon_of(program), ContainerWish::All);
            }
            return;
        };
        call.wanted().into_iter().for_each(|wish| self.add(call.daemon, wish));
        if let Some(path) = call.cidfile.filter(|path| path.starts_with('/')) {
            self.add_cidfile(&path);
        }
    }
}

/// Whether an option before the subcommand of docker, its compose, or a program like it takes a value.
fn docker_option(name: &str) -> Value {
    let names = "c H l n a f p config context host log-level tlscacert tlscert tlskey namespace address connection url identity \
                 root runroot storage-driver snapshotter file project-name profile env-file project-directory progress parallel \
                 ansi";
    value_if_among(name, names)
}

/// Whether an option of `docker run` or `exec` takes a value. `flags` lists those that take none, since they are fewer.
fn docker_run_option(name: &str) -> Value {
    let flags = "d i t P q T detach interactive tty rm privileged init read-only publish-all no-healthcheck oom-kill-disable \
                 sig-proxy disable-content-trust quiet help replace rmi tls-verify no-hosts no-hostname rootfs env-host \
                 http-proxy no-deps service-ports use-aliases no-TTY remove-orphans build";
    no_value_if_among(name, flags)
}

/// Whether an option of `docker start` or `restart` takes a value.
fn docker_start_option(name: &str) -> Value {
    value_if_among(name, "t s time timeout signal detach-keys checkpoint checkpoint-dir")
}

/// Parses a call of docker or of a program like it: which containers, or which build of an image, the daemon is to run. `None`: it asks
/// for none (`docker ps`), or it is a local podman, which needs no daemon, so that its containers are in the tree.
pub(super) fn call(program: &str, args: &[String]) -> Option<ContainerCall> {
    /// Subcommands that have subcommands.
    const GROUPS: [&str; 9] =
        ["container", "compose", "buildx", "builder", "image", "pod", "service", "stack", "kube"];
    if !is_one_of(program, "docker docker-compose nerdctl podman podman-remote") {
        return None;
    }
    let global = Options::parse(args, docker_option);
    if program == "podman" && !global.has_any(&["r", "remote", "url", "c", "connection", "host"]) {
        return None;
    }
    let (mut verb, mut rest) = global.operands.split_first()?;
    // `docker-compose compose` is how docker starts its plugin. The call of docker itself counts.
    if program == "docker-compose" && verb == "compose" {
        return None;
    }
    let mut group = "";
    let project = &["p", "project-name"];
    let mut of_project = global.value(project).filter(|_| program == "docker-compose");
    while group.is_empty() && GROUPS.contains(&verb.as_str()) {
        group = verb;
        let of_group = Options::parse(rest, docker_option);
        of_project = of_group.value(project).or(of_project);
        (verb, rest) = of_group.operands.split_first()?;
    }
    let is_compose = program == "docker-compose" || group == "compose";
    let (act, syntax): (_, fn(&str) -> Value) = match (group, verb.as_str()) {
        (_, "run") => (Act::Run, docker_run_option),
        (_, "exec") => (Act::Exec, docker_run_option),
        (_, "start" | "restart" | "up") if is_compose => (Act::Compose, docker_start_option),
        (_, "start" | "restart") => (Act::Start, docker_start_option),
        // Of the options of these, only `--help` matters.
        (_, "up" | "build" | "bake" | "deploy") | ("service", "create") | ("kube", "play") => {
            (Act::Other, docker_start_option)
        }
        _ => return None,
    };
    let options = Options::parse(rest, syntax);
    let most = match act {
        Act::Run | Act::Exec => 1,
        Act::Start => usize::MAX,
        Act::Compose | Act::Other => 0,
    };
    let is_run = act == Act::Run;
    let daemon_at = global.value(&["H", "host", "c", "context", "url", "connection", "a", "address"]);
    let bounded =
        |text: &str, most| Some(text).filter(|text| *text != CUT && text.len() <= most).map(str::to_owned);
    let name = |text: &str| bounded(text, MOST_OF_NAME);
    (!options.has_any(&["help"])).then(|| ContainerCall {
        daemon: daemon_of(program),
        act,
        program: program.to_owned(),
        targets: options
            .operands
            .iter()
            .take(most.min(MOST_TARGETS))
            .filter_map(|target| name(target))
            .collect(),
        name: options.value(&["name"]).filter(|_| is_run).and_then(name),
        cidfile: options.value(&["cidfile"]).filter(|_| is_run).and_then(|path| bounded(path, MOST_OF_PATH)),
        project: of_project.filter(|_| is_compose).and_then(name),
        daemon_at: daemon_at.filter(|at| *at != "default").map(|at| at.chars().take(MOST_OF_NAME).collect()),
        is_compose,
        ..ContainerCall::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    // Requirement: SEE-132
    #[test]
    fn call_names_its_container() {
        for (line, act, targets, [name, cidfile, project, at]) in [
            (
                "docker run --rm --name=n --cidfile /tmp/c -v /a:/b alpine sh --name x",
                Act::Run,
                "alpine",
                ["n", "/tmp/c", "-", "-"],
            ),
            ("docker -H unix:///a container run alpine", Act::Run, "alpine", ["-", "-", "-", "unix:///a"]),
            ("docker --context default run alpine", Act::Run, "alpine", ["-"; 4]),
            ("docker exec -it web sh", Act::Exec, "web", ["-"; 4]),
            ("docker start -t 3 a b", Act::Start, "a b", ["-"; 4]),
            ("docker compose -p shop up -d", Act::Compose, "", ["-", "-", "shop", "-"]),
            ("docker-compose -p shop run --rm web ls", Act::Run, "web", ["-", "-", "shop", "-"]),
            ("docker -c prod build .", Act::Other, "", ["-", "-", "-", "prod"]),
            ("podman --url unix:///p run --name n a", Act::Run, "a", ["n", "-", "-", "unix:///p"]),
        ] {
            let words = words(line);
            let call = call(&words[0], &words[1..]).unwrap();
            assert_eq!((call.act, call.targets.join(" ").as_str()), (act, targets), "{line}");
            let said = [call.name, call.cidfile, call.project, call.daemon_at]
                .map(|said| said.unwrap_or("-".into()));
            assert_eq!(said, [name, cidfile, project, at], "{line}");
        }
    }

    // Requirement: SEE-132
    #[test]
    fn only_calls_that_start_containers_ask_a_daemon() {
        let mut wanted = WantedContainers::default();
        for line in [
            "docker ps",
            "ssh n2 docker run a",
            "podman run a",
            "bash -c docker",
            "docker run --help",
            "docker build .",
        ] {
            wanted.note(&words(line));
        }
        assert_eq!(wanted, WantedContainers::default());
        for line in ["/c", "/c", "relative"].map(|file| format!("docker run --cidfile {file} a")) {
            wanted.note(&words(&line));
        }
        wanted.note(&words("podman-remote exec w ls"));
        let [docker, podman] = [ContainerDaemon::Docker, ContainerDaemon::Podman];
        let image = (docker, ContainerWish::Image("a".into()));
        assert_eq!(wanted.wishes, [image, (podman, ContainerWish::Named("w".into()))]);
        assert_eq!(wanted.cidfiles, ["/c"]);
        let mut wanted = WantedContainers::default();
        for line in [["docker", CUT], ["docker", "start"]] {
            wanted.note(&line.map(str::to_owned));
        }
        wanted.note(&words("docker start a"));
        assert_eq!(wanted.wishes, [(docker, ContainerWish::All)]);
    }
}
