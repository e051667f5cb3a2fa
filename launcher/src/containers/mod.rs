//! `--containers`: programs in containers carry the shim, so that they count as those of the tree.
//!
//! Each client is told in its own way, by variables of the command: docker by DOCKER_HOST, which names the socket of a [`proxy`],
//! [`podman`] by a configuration with a hook, and [`apptainer`] by what it is to bind. The files for that are in the [run's
//! directory](RunDirectory).

mod apptainer;
mod docker;
pub(crate) mod podman;
pub(crate) mod proxy;

use gpu_track_collector::RunDirectory;

use self::docker::DockerProxy;
use crate::process::spawn::{Environment, set};
use crate::run::session::Session;

/// What serves the clients of containers while the command runs.
#[derive(Debug, Default)]
pub(crate) struct Containers {
    docker: Option<DockerProxy>,
}

impl Containers {
    /// Prepares what `--containers` asks for, and tells the clients by `env`. Nothing, if it was not asked for. What fails leaves a warning
    /// in the report.
    pub(crate) fn prepare(session: &mut Session, env: &mut Environment) -> Self {
        let Some((directory, shim)) = session.for_containers() else { return Self::default() };
        let segment = session.segment_path();
        let mut failed = Vec::new();
        let docker = DockerProxy::prepare(directory, shim, segment).unwrap_or_else(|why| {
            failed.push(format!("docker: {why}"));
            None
        });
        let podman = podman::prepare(directory, shim, segment).unwrap_or_else(|error| {
            failed.push(format!("podman: its configuration could not be copied ({error})"));
            None
        });
        if let Some(docker) = &docker {
            set(env, "DOCKER_HOST", docker.host());
        }
        if let Some((name, value)) = podman {
            set(env, name, value);
        }
        for (name, value) in apptainer::variables(shim, |name| std::env::var_os(name)) {
            set(env, name, value);
        }
        for why in failed {
            session.warn(format!("--containers has no effect on {why}."));
        }
        Self { docker }
    }

    /// Whether this child of the launcher is one of those that serve.
    pub(crate) fn has(&self, pid: u32) -> bool {
        self.docker.as_ref().is_some_and(|docker| docker.has(pid))
    }

    /// Starts those that serve, or replaces one that has ended. The command need not wait for them, so it comes first.
    pub(crate) fn serve(&mut self, directory: Option<&RunDirectory>) {
        if let Some((docker, directory)) = self.docker.as_mut().zip(directory)
            && !docker.serve()
        {
            directory.stand_back();
            // Closes the socket, so that a client that has connected does not wait.
            self.docker = None;
        }
    }

    /// Has those that serve end when their clients are done, and waits a little for that.
    pub(crate) fn close(&mut self) {
        if let Some(docker) = self.docker.take() {
            docker.close();
        }
    }
}
