//! Which calls of a client (docker, ssh, sbatch and others) start work elsewhere, and where, by the arguments alone. A configuration
//! that names another host is not known here.

use super::arguments::{Options, Value, no_value_if_among, value_if_among};
use super::containers;
use crate::model::command::base_name;
use crate::model::report::ElsewhereKind::{self, Container, Daemon, Host, Job, Pod, Unit};
use crate::model::ssh;

/// What a call starts elsewhere.
pub(super) struct Started {
    pub(super) kind: ElsewhereKind,
    /// The image or container, host, unit or pod, if the arguments name it.
    pub(super) target: Option<String>,
}

/// Programs that copy files by ssh. What they start on the other host is only the other side of the copy.
pub(super) const COPIES: &str = "git git-lfs rsync scp sftp sshfs hg svn borg unison rdiff-backup duplicity";

/// What a call of this client starts elsewhere. `args`: the arguments after the program. `None`: nothing, as far as they tell. The
/// functions for single clients below return the same.
pub(super) fn started(program: &str, args: &[String]) -> Option<Started> {
    match program {
        "docker" | "docker-compose" | "nerdctl" | "podman" | "podman-remote" => container(program, args),
        "ssh" | "slogin" | "rsh" => host(args),
        "pdsh" | "clush" | "pssh" | "parallel-ssh" => hosts(program, args),
        "pbsdsh" | "pbs_tmrsh" | "blaunch" => hosts_of_job(program, args),
        "parallel" => parallel(args),
        "systemd-run" | "run0" => unit(program, args),
        "machinectl" => machine(args),
        "kubectl" | "oc" => pod(args),
        "sbatch" | "qsub" | "bsub" | "condor_submit" | "at" => job(program, args),
        "sccache" => compilation(args),
        _ => None,
    }
}

/// What a call is likely to start if not all of its arguments are known: most calls of these clients start something.
pub(super) fn likely(program: &str) -> Option<Started> {
    let kind = match program {
        "docker" | "docker-compose" | "nerdctl" | "podman-remote" => Container,
        "ssh" | "slogin" | "rsh" | "pdsh" | "clush" | "pssh" | "parallel-ssh" => Host,
        "systemd-run" | "run0" => Unit,
        _ => return None,
    };
    Some(Started { kind, target: None })
}

/// The container of systemd in which a call of machinectl starts a shell or another program. `None`: it starts none, such as
/// `machinectl list`.
fn machine(args: &[String]) -> Option<Started> {
    let options = Options::parse(args, |name| value_if_among(name, "H M uid setenv E host machine"));
    let (verb, rest) = options.operands.split_first()?;
    let target = Options::parse(rest, |_| Value::None).operands.first().cloned();
    ["shell", "login", "start"].contains(&verb.as_str()).then_some(Started { kind: Container, target })
}

/// The container, or the build of an image, that a call of docker or a program like it has a daemon run. `None`: it starts none, such
/// as `docker ps`, or it is a local podman, which runs containers itself, below the tree.
fn container(program: &str, args: &[String]) -> Option<Started> {
    let call = containers::call(program, args)?;
    Some(Started { kind: Container, target: call.targets.into_iter().next() })
}

/// Whether an option of ssh takes a value.
fn ssh_option(name: &str) -> Value {
    if ssh::takes_value(name) { Value::Next } else { Value::None }
}

/// The host on which a call of ssh starts a command or a shell. `None`: the call only forwards ports, queries the client itself
/// (`ssh -V`), or copies files.
fn host(args: &[String]) -> Option<Started> {
    let before = Options::parse(args, ssh_option);
    let (host, rest) = before.operands.split_first()?;
    // Options can follow the host, too.
    let after = Options::parse(rest, ssh_option);
    let starts_nothing = &ssh::STARTING_NOTHING;
    let is_other = before.has_any(starts_nothing) || after.has_any(starts_nothing);
    (!is_other && !ssh::is_file_server(after.operands))
        .then_some(Started { kind: Host, target: Some(ssh::host_name(host).to_owned()) })
}

/// The hosts on which a call of pdsh, clush, pssh or a program like them starts a command. `None`: it starts none, as when it copies
/// files.
fn hosts(program: &str, args: &[String]) -> Option<Started> {
    const WITH_VALUE: &str = "w x X g t u l R f o O m h H p e nodes host hosts user";
    let options = Options::parse(args, |name| value_if_among(name, WITH_VALUE));
    let starts_nothing: &[&str] = match program {
        "pdsh" => &["q", "L", "V", "h"],
        "clush" => &["c", "copy", "rcopy", "version", "help"],
        _ => &["version", "help"],
    };
    let target = options.value(&["w", "H", "nodes", "host"]).map(str::to_owned);
    (!options.has_any(starts_nothing)).then_some(Started { kind: Host, target })
}

/// The hosts of a batch job on which a call of pbsdsh, pbs_tmrsh or blaunch starts a command. `None`: it starts none.
fn hosts_of_job(program: &str, args: &[String]) -> Option<Started> {
    let options = match program {
        "pbsdsh" => Options::parse(args, |name| value_if_among(name, "c n h")),
        "pbs_tmrsh" => Options::parse(args, |name| value_if_among(name, "l")),
        _ => Options::parse(args, |name| value_if_among(name, "u z")),
    };
    let first = || options.operands.first().map(String::as_str).filter(|_| program != "pbsdsh");
    let target = options.value(&["z", "h"]).or_else(first);
    let starts_nothing = options.operands.is_empty() || options.has_any(&["V", "version"]);
    (!starts_nothing).then(|| Started { kind: Host, target: target.map(str::to_owned) })
}

/// The hosts on which a call of GNU parallel starts commands. `None`: its arguments name no other host than this one.
fn parallel(args: &[String]) -> Option<Started> {
    let options = Options::parse(args, |name| {
        let names = "j S I N n L s P a C d E J jobs max-procs sshlogin sshloginfile slf arg-file colsep delimiter load memfree \
                     joblog results tmpdir wd workdir basefile bf return env retries timeout delay halt nice tagstring";
        value_if_among(name, names)
    });
    let logins = options.value(&["S", "sshlogin"]);
    // `:` is this machine, and `4/:` is this machine with 4 jobs at once.
    let is_elsewhere = logins.is_some_and(|logins| logins.split(',').any(|login| !login.ends_with(':')))
        || options.has_any(&["sshloginfile", "slf"]);
    is_elsewhere.then_some(Started { kind: Host, target: logins.map(str::to_owned) })
}

/// The unit that a call of systemd-run or run0 has the service manager run. `None`: it starts none. With `--scope`, systemd-run becomes
/// the command itself.
fn unit(program: &str, args: &[String]) -> Option<Started> {
    let options = Options::parse(args, |name| {
        let names = "H M u p E C g D host machine unit property setenv slice uid gid nice working-directory description \
                     service-type timer-property path-property socket-property on-active on-boot on-startup on-unit-active \
                     on-unit-inactive on-calendar chdir background";
        value_if_among(name, names)
    });
    // `-u` of run0 is a user.
    let unit = if program == "run0" { options.value(&["unit"]) } else { options.value(&["u", "unit"]) };
    let is_elsewhere = !options.has_any(&["scope", "h", "help", "version"]);
    is_elsewhere.then_some(Started { kind: Unit, target: unit.map(str::to_owned) })
}

/// Pods that a call of kubectl or oc starts in a Kubernetes cluster. `None`: it starts none, such as `kubectl get`.
fn pod(args: &[String]) -> Option<Started> {
    let global = Options::parse(args, |name| {
        value_if_among(name, "n s v namespace context cluster kubeconfig server user token as")
    });
    let (verb, rest) = global.operands.split_first()?;
    let options = Options::parse(rest, |name| {
        // These take no value; all others do.
        let flags = "i t q rm stdin tty attach quiet command expose privileged wait help";
        no_value_if_among(name, flags)
    });
    let first = options.operands.first().map(String::as_str);
    let is_elsewhere = match verb.as_str() {
        "run" | "exec" | "debug" => true,
        "apply" | "create" if options.has_any(&["f", "filename", "k", "kustomize"]) => true,
        "create" => first.is_some_and(|what| ["job", "cronjob", "deployment", "deploy"].contains(&what)),
        _ => false,
    };
    let target = first.filter(|_| ["run", "exec", "debug"].contains(&verb.as_str())).map(str::to_owned);
    (is_elsewhere && !options.has_any(&["help"])).then_some(Started { kind: Pod, target })
}

/// The compilation that a call of sccache has its daemon do. `None`: it asks for none, or is the daemon itself.
fn compilation(args: &[String]) -> Option<Started> {
    let compiler = args.first().filter(|first| !first.starts_with('-'))?;
    Some(Started { kind: Daemon, target: Some(base_name(compiler).to_owned()) })
}

/// Whether a program of the tree with these arguments is the daemon for which its clients have the same program.
pub(super) fn is_daemon(program: &str, args: &[String]) -> bool {
    program == "sccache" && args.is_empty()
}

/// The job that a call hands to a batch system, or to atd. `None`: it starts none, such as `sbatch --test-only`.
fn job(program: &str, args: &[String]) -> Option<Started> {
    let has_word = |words: &[&str]| args.iter().any(|word| words.contains(&word.as_str()));
    let starts_nothing: &[&str] = match program {
        "sbatch" => &["-V", "--version", "-h", "--help", "--usage", "--test-only"],
        "qsub" => &["-help", "--help", "-version", "--version", "-verify"],
        "bsub" => &["-V", "-h"],
        "at" => &["-V", "-l", "-d", "-r", "-c"],
        _ => &["-help", "-h", "-version", "-dry-run"],
    };
    let starts_one = !(has_word(starts_nothing) || (program == "at" && args.is_empty()));
    starts_one.then_some(Started { kind: Job, target: None })
}

#[cfg(test)]
mod tests {
    use gpu_track_abi::client::is_client;

    use super::*;

    /// What this command line starts: its kind, and the target or `-`.
    fn said(line: &str) -> String {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let (program, args) = words.split_first().unwrap();
        assert!(is_client(program.as_bytes()), "the shim does not tell of {program}");
        let started = started(program, args);
        started.map_or("nothing".to_owned(), |started| {
            format!("{:?} {}", started.kind, started.target.unwrap_or("-".into()))
        })
    }

    // Requirement: SEE-35
    #[test]
    fn calls_that_start_work_elsewhere_are_told_from_others() {
        for (line, what) in [
            ("docker run alpine", "Container alpine"),
            (
                "docker run --rm -it -e A=1 --name n --gpus all -v /a:/b --network=none local/glibc sh -c x",
                "Container local/glibc",
            ),
            ("docker --context prod -H tcp://x container run -dp 80:80 nginx", "Container nginx"),
            ("docker exec -it -u 0 web sh", "Container web"),
            ("docker start -ai web", "Container web"),
            ("docker compose -f a.yml --profile x up -d", "Container -"),
            ("docker compose run --rm app make", "Container app"),
            ("docker-compose up", "Container -"),
            ("docker build -t x .", "Container -"),
            ("docker buildx build .", "Container -"),
            ("nerdctl -n k8s.io run alpine", "Container alpine"),
            ("podman --remote run alpine", "Container alpine"),
            ("podman-remote exec web ls", "Container web"),
            ("ssh n2", "Host n2"),
            ("ssh -p 22 -o BatchMode=yes me@n2 make -j4", "Host n2"),
            ("ssh n2 -t rsync -a a b", "Host n2"),
            ("ssh ssh://me@n2:2222 make", "Host n2"),
            ("rsh n2 hostname", "Host n2"),
            ("pbsdsh -v -n 1 -- ./app -h n9", "Host -"),
            ("pbsdsh -h n2 ./app", "Host n2"),
            ("pbsdsh --version", "nothing"),
            ("blaunch n2 -no-shell ./app -z", "Host n2"),
            ("blaunch -z n2 ./app", "Host n2"),
            ("blaunch -V", "nothing"),
            ("pdsh -R ssh -w n[1-3] uptime", "Host n[1-3]"),
            ("clush -w n1,n2 uptime", "Host n1,n2"),
            ("parallel-ssh -H n1 uptime", "Host n1"),
            ("parallel -j 4 -S n1,n2 gzip ::: a", "Host n1,n2"),
            ("parallel --sshlogin 8/n1,: gzip ::: a", "Host 8/n1,:"),
            ("parallel --slf nodes gzip ::: a", "Host -"),
            ("systemd-run true", "Unit -"),
            ("systemd-run --user --wait -p CPUQuota=5% --unit=train -- python t.py --scope", "Unit train"),
            ("run0 -u me make", "Unit -"),
            ("kubectl -n x run job --image=a -- true", "Pod job"),
            ("kubectl exec -it -c main p1 -- sh", "Pod p1"),
            ("kubectl apply -f job.yml", "Pod -"),
            ("kubectl create job j --image=a", "Pod -"),
            ("sbatch job.sh", "Job -"),
            ("qsub -V -h job.sh", "Job -"),
            ("at -f job.sh now", "Job -"),
            ("sccache /usr/bin/gcc -c a.c", "Daemon gcc"),
            ("sccache --show-stats", "nothing"),
            ("sccache", "nothing"),
        ] {
            assert_eq!(said(line), what, "{line}");
        }
        for line in [
            "docker",
            "docker ps -a",
            "docker pull alpine",
            "docker images",
            "docker logs -f web",
            "docker container ls",
            "docker compose ps",
            "docker compose logs run",
            "docker buildx ls",
            "docker --context run ps",
            "docker run --help",
            "docker-compose compose up",
            "podman run alpine",
            "podman --remote=false run alpine",
            "ssh",
            "ssh -V",
            "ssh -G n2",
            "ssh -NfL 80:x:80 n2",
            "ssh n2 -N",
            "ssh -W n3:22 n2",
            "ssh -O exit n2",
            "ssh git@github.com git-upload-pack 'a/b'",
            "ssh -x -oForwardAgent=no -s -- n2 sftp",
            "ssh -l me n2 -- docker system dial-stdio",
            "ssh n2 scp -t /tmp",
            "ssh n2 rsync --server -vlogDtpr . /tmp",
            "pdsh -V",
            "clush -w n1 --copy f",
            "parallel gzip ::: a",
            "parallel -S : gzip ::: a",
            "parallel ls -S ::: a",
            "systemd-run --scope make",
            "systemd-run --version",
            "kubectl get pods",
            "kubectl logs -f exec",
            "kubectl create namespace x",
            "sbatch --test-only job.sh",
            "at",
            "at -l",
        ] {
            assert_eq!(said(line), "nothing", "{line}");
        }
    }
}
