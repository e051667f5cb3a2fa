//! The collector process: the launcher's executable by another name. The first one of a run is [`forked`] from the launcher where that
//! is possible. Others are executed.
//!
//! Its arguments are descriptors, then the paths of the segment and the state file. "-" stands for a descriptor that is missing:
//!
//! - two pipes: messages, orders
//! - the segment, and the state file
//! - the socket of the process connector (the kernel's events of forks and exits), and the file that keeps those events
//! - the lock that ranks share
//! - the locks of the report's files: a list with commas, one for each place of the report

mod forked;
mod pipes;

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use gpu_track_collector::connector::Subscription;
use gpu_track_collector::model::config::Config;
use gpu_track_collector::priority::prefer_at_once;
use gpu_track_collector::segment::named::NamedFile;
use gpu_track_collector::{Inheritance, clock, own_program};
use libc::{SIGALRM, SIGHUP, SIGINT, SIGPIPE, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU, SIGXFSZ};
use rustix::fs::FileType;
use rustix::io::{FdFlags, fcntl_setfd};

use crate::collector_process::pipes::{MessagePipe, OrderPipe};
use crate::process::before_main::is_open;
use crate::process::{exit, signals};
use crate::{console, name};

/// Signals that a batch system or a user may send to all processes at the end of a job. The collector ignores them: it
/// ends when the command has ended, and must write the report until then.
const IGNORED: [i32; 10] =
    [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE, SIGALRM, SIGUSR1, SIGUSR2, SIGXCPU, SIGXFSZ];

/// A running collector, as the launcher sees it.
pub(crate) struct Collector {
    pub(crate) pid: u32,
    /// When it was started, CLOCK_MONOTONIC nanoseconds.
    pub(crate) started_ns: u64,
    pub(crate) messages: MessagePipe,
    pub(crate) orders: OrderPipe,
}

impl Collector {
    /// Starts a collector, and sends it `config`. The collector has a session (setsid(2)) of its own, so that no signal to the command's
    /// process group or terminal ends it. `shared`: the process connector's socket and inbox, and the lock that ranks share. `locks`:
    /// for each place of the report its lock, if it has one.
    pub(crate) fn start(
        segment: &NamedFile,
        state: &NamedFile,
        shared: [Option<BorrowedFd>; 3],
        locks: &[Option<BorrowedFd>],
        config: &Config,
        make_joint_report: MakeJointReport,
    ) -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        let (orders_reader, orders_writer) = io::pipe()?;
        let orders = OrderPipe::new(orders_reader)?;
        // The arguments, in the order in which `serve` reads them.
        let files = [segment, state];
        let [segment_fd, state_fd] = files.map(|file| Some(file.file().as_raw_fd()));
        let [socket_fd, inbox_fd, ranks_fd] = shared.map(|fd| fd.map(|fd| fd.as_raw_fd()));
        let [pipe_fd, orders_fd] = [reader.as_raw_fd(), orders_writer.as_raw_fd()].map(Some);
        let fds = [pipe_fd, orders_fd, segment_fd, state_fd, socket_fd, inbox_fd, ranks_fd];
        let lock_fds: Vec<_> = locks.iter().map(|fd| fd.map(|fd| fd.as_raw_fd())).collect();
        let argument = |fd: &Option<RawFd>| fd.map_or("-".into(), |fd: RawFd| fd.to_string());
        let lock_list = lock_fds.iter().map(argument).collect::<Vec<_>>().join(",");
        let numbers = fds.iter().map(argument).chain([lock_list]).map(OsString::from);
        let paths = files.map(|file| file.path().into());
        let null = || File::options().read(true).write(true).open("/dev/null");
        let child = Child {
            args: numbers.chain(paths).collect(),
            inherited: fds.iter().chain(&lock_fds).copied().flatten().collect(),
            null: null()?,
            // A batch system waits until all processes of a task have closed its stdout.
            has_stdout: config.writes_to_stdout(),
            // An agent writes nothing to stderr, which is that of the job.
            has_stderr: !config.report.node_part.as_ref().is_some_and(|part| part.is_agent),
        };
        // The successor of a killed collector is executed: damaged memory of the launcher does not go along.
        let is_first = config.restarts == 0;
        let pid = if is_first && forked::is_possible() {
            forked::start(&child, make_joint_report)?
        } else {
            child.command().spawn()?.id()
        };
        // Only the collector may hold its ends of the pipes. If it ends at once, writing a long configuration must fail, not
        // block, and the pipe of orders must be seen to close.
        drop((reader, orders_writer));
        let started_ns = clock::monotonic_ns();
        Ok(Self { pid, started_ns, messages: MessagePipe::new(writer, config), orders })
    }
}

/// What a child of the launcher needs to become a collector.
struct Child {
    /// Its arguments, without its name.
    args: Vec<OsString>,
    /// The descriptors that the arguments name.
    inherited: Vec<RawFd>,
    /// /dev/null, for the standard streams that it does not have.
    null: File,
    has_stdout: bool,
    has_stderr: bool,
}

impl Child {
    /// Prepares to execute this program as the collector.
    fn command(&self) -> Command {
        let mut command = own_program::command(name::of_collectors());
        command.args(&self.args);
        // If LD_AUDIT names a file that is no library, the dynamic linker prints an error in each program (ld.so(8)).
        command.env_remove("LD_AUDIT");
        let (inherited, null) = (self.inherited.clone(), self.null.as_raw_fd());
        let streams = self.streams();
        // SAFETY: what the closure calls is async-signal-safe. The descriptors are open until the command is spawned.
        unsafe { command.pre_exec(move || prepare(&inherited, null, streams)) };
        command
    }

    /// Its standard streams that are /dev/null.
    fn streams(&self) -> [Option<RawFd>; 3] {
        let unless = |has_it: bool, fd| (!has_it).then_some(fd);
        [
            Some(libc::STDIN_FILENO),
            unless(self.has_stdout, libc::STDOUT_FILENO),
            unless(self.has_stderr, libc::STDERR_FILENO),
        ]
    }
}

/// Prepares the child that becomes the collector: it gets a session of its own, asks for a high priority, keeps the descriptors
/// `inherited` over exec, and has `null` as the standard `streams`. Async-signal-safe.
fn prepare(inherited: &[RawFd], null: RawFd, streams: [Option<RawFd>; 3]) -> io::Result<()> {
    // SAFETY: setsid has no preconditions.
    unsafe { libc::setsid() };
    // The command starts at the same time, and may use every core.
    prefer_at_once();
    // All descriptors of the launcher are close-on-exec.
    for fd in inherited {
        // SAFETY: fcntl with F_SETFD only changes a flag of the descriptor.
        if unsafe { libc::fcntl(*fd, libc::F_SETFD, 0) } == -1 {
            return Err(io::Error::last_os_error());
        }
    }
    for stream in streams.into_iter().flatten() {
        // SAFETY: the standard streams are numbers that nothing in this process owns.
        if unsafe { libc::dup2(null, stream) } == -1 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// The exit status of a collector that could not work, and has said so on stderr.
pub(crate) const CANNOT_WORK: i32 = 1;

/// Makes the joint report of all ranks or nodes, after the collector has written that of this one. The descriptor is the lock that ranks
/// share.
pub(crate) type MakeJointReport = fn(&Config, Option<OwnedFd>);

/// Runs the collector, and returns its exit status. `None`: this process lacks the arguments or the descriptors of one.
pub(crate) fn serve(args: &[OsString], make_joint_report: MakeJointReport) -> Option<i32> {
    let [pipe, orders, segment, state, socket, inbox, ranks, locks, segment_path, state_path] = args else {
        return None;
    };
    let number = |arg: &str| arg.parse().ok();
    let fd = |arg: &OsString| arg.to_str().and_then(number);
    let [pipes, files] = [[pipe, orders], [segment, state]];
    let are_open =
        |args: [&OsString; 2], kind| args.into_iter().all(|arg| fd(arg).is_some_and(|fd| is_open(fd, kind)));
    if !are_open(pipes, FileType::Fifo) || !are_open(files, FileType::RegularFile) {
        return None;
    }
    // SAFETY: the launcher opened these descriptors for this process, and nothing else in it uses them.
    let owned = |fd| unsafe { OwnedFd::from_raw_fd(fd) };
    let [pipe, orders, segment, state] = [fd(pipe)?, fd(orders)?, fd(segment)?, fd(state)?].map(owned);
    let [socket, inbox, ranks] = [socket, inbox, ranks].map(|arg| fd(arg).map(owned));
    // The keeper, which keeps a copy of the report and can outlive this process, must not hold the ranks' lock.
    let _ = ranks.as_ref().map(|lock| fcntl_setfd(lock, FdFlags::CLOEXEC));
    let locks = locks.to_string_lossy();
    let output_locks = locks.split(',').map(|arg| number(arg).map(owned)).collect();
    let connector = socket.zip(inbox).map(|(socket, inbox)| Subscription { socket, inbox });
    let (segment_path, state_path) = (segment_path.into(), state_path.into());
    let inheritance =
        Inheritance { pipe, orders, segment, state, connector, output_locks, segment_path, state_path };
    let is_reported = collect(inheritance, ranks, make_joint_report);
    Some(if is_reported { 0 } else { CANNOT_WORK })
}

/// Runs this process as a collector, and makes the joint report if there is to be one. Returns whether the report is written. If
/// not, a line on stderr says why.
fn collect(inheritance: Inheritance, ranks: Option<OwnedFd>, make_joint_report: MakeJointReport) -> bool {
    for signal in IGNORED {
        signals::set_ignored(signal, true);
    }
    exit::by_library_is_a_crash();
    rustix::thread::set_name(c"gpu-track-coll").ok();
    // The launcher can't make the joint report: MPI launchers kill it soon after they ask it to end.
    let after_report = |config: &Config| {
        if config.report.joint.is_some() {
            make_joint_report(config, ranks);
        }
    };
    let served = gpu_track_collector::serve(inheritance, after_report);
    served.inspect_err(|error| console::message(error)).is_ok()
}
