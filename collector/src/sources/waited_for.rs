//! What the run waits for: the file that a blocked process reads or writes, or the holder of the lock that it waits for.
//!
//! One process is looked at, twice a second at most: one whose wait decides what the run does. The kernel does not say on which file a
//! thread sleeps. It is the file whose offset moved since the look before, or the only one that is open.

use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};

use rustc_hash::{FxHashMap, FxHashSet};

use crate::model::ids::{ProcessId, Target};
use crate::model::observation::Observation;
use crate::model::report::TimeState;
use crate::model::waited_for::WaitedFor;
use crate::sys::clock::Timer;
use crate::sys::descriptors::{Descriptor, Position, are_few, descriptors};
use crate::sys::proc_fs::ProcRoot;

/// A process is looked at once in this time at most.
const PERIOD_NS: u64 = 500_000_000;
/// A standard stream that moved less between two looks is more likely a log than what the process waits for.
const LEAST_MOVED_BYTES: u64 = 4096;
/// The last descriptor of the standard streams.
const LAST_STANDARD: u32 = 2;
/// The state of a connection in /proc/net/tcp (TCP_ESTABLISHED).
const ESTABLISHED: &str = "01";
/// Longer tables of connections or locks are not used.
const MOST_TABLE_BYTES: u64 = 256 << 10;
/// File systems of the kernel itself: a file there is not on storage.
const NOT_STORED: [&str; 4] = ["/proc/", "/sys/", "/dev/", "/run/"];

/// Looks up what the run waits for.
#[derive(Debug)]
pub(crate) struct WaitLookup {
    root: ProcRoot,
    timer: Timer,
    /// The process that was looked at last.
    process: Option<ProcessId>,
    /// The offsets of its files then, by number and name of the descriptor: a number is used again.
    positions: FxHashMap<(u32, String), u64>,
}

/// A file that a process has open.
struct OpenFile {
    descriptor: Descriptor,
    position: Position,
}

impl OpenFile {
    /// Each write waits until it is stored.
    fn is_synced(&self) -> bool {
        self.position.flags & (libc::O_SYNC | libc::O_DSYNC) != 0
    }

    /// Writes go to memory first.
    fn is_buffered_write(&self) -> bool {
        self.descriptor.is_written && self.position.flags & libc::O_DIRECT == 0 && !self.is_synced()
    }
}

impl WaitLookup {
    /// Prepares the first look.
    pub(crate) fn new(root: ProcRoot) -> Self {
        Self { root, timer: Timer::default(), process: None, positions: FxHashMap::default() }
    }

    /// Finds out what a process waits for, if that is due at `now_ns` (CLOCK_MONOTONIC). `blocked` finds a process whose wait decides what
    /// the run does, and its state. `None`: it is not due, there is no such process, or nothing is known of what it waits for.
    pub(crate) fn read(
        &mut self,
        now_ns: u64,
        blocked: impl FnOnce() -> Option<(Target, TimeState)>,
    ) -> Option<Observation> {
        if !self.timer.would_be_due(now_ns) {
            return None;
        }
        let (target, state) = blocked()?;
        // Only now: a look that finds nobody blocked must not put off the next one.
        self.timer.start(now_ns, PERIOD_NS);
        let what = match state {
            TimeState::Storage => self.file(target),
            TimeState::FileLock => self.lock(target.pid),
            TimeState::Network | TimeState::Events => self.peer(target.pid, state),
            _ => return None,
        };
        Some(Observation::WaitedFor { id: target.id, state, what })
    }

    /// The file that a process reads or writes: the one whose offset moved farthest since the look before, or else the only one.
    fn file(&mut self, target: Target) -> Option<WaitedFor> {
        let open: Vec<OpenFile> = self.open_files(target.pid);
        let before = if self.process == Some(target.id) {
            std::mem::take(&mut self.positions)
        } else {
            FxHashMap::default()
        };
        self.process = Some(target.id);
        let key = |file: &OpenFile| (file.descriptor.number, file.descriptor.name.clone());
        self.positions = open.iter().map(|file| (key(file), file.position.position)).collect();
        let is_standard = |file: &OpenFile| file.descriptor.number <= LAST_STANDARD;
        let moved = |file: &OpenFile| {
            let before = before.get(&key(file))?;
            let least = if is_standard(file) { LEAST_MOVED_BYTES } else { 1 };
            Some(file.position.position.abs_diff(*before)).filter(|moved| *moved >= least)
        };
        let farthest =
            open.iter().filter_map(|file| Some((moved(file)?, file))).max_by_key(|(moved, _)| *moved);
        // A buffered write mostly waits for nothing, so a process that also reads waits for what it reads. Which of its sources that is
        // is not known: it may have had several since the look before.
        let is_read = |file: &OpenFile| {
            let is_new = || !is_standard(file) && !before.contains_key(&key(file));
            !file.descriptor.is_written && (moved(file).is_some() || is_new())
        };
        if farthest.is_some_and(|(_, file)| file.is_buffered_write()) && open.iter().any(is_read) {
            return None;
        }
        // Standard streams are often files that have nothing to do with it.
        let mut others = open.iter().filter(|file| !is_standard(file));
        let only = others.next().filter(|_| others.next().is_none() && are_few(&self.root, target.pid));
        let file = farthest.map(|(_, file)| file).or(only)?;
        Some(WaitedFor::File {
            path: file.descriptor.name.clone(),
            file_system: self.file_system(target.pid, file.position.mount),
            is_written: file.descriptor.is_written,
            is_synced: file.is_synced(),
        })
    }

    /// The files on storage that a process has open.
    fn open_files(&self, pid: u32) -> Vec<OpenFile> {
        let is_stored = |file: &Descriptor| {
            file.name.starts_with('/') && !NOT_STORED.iter().any(|start| file.name.starts_with(start))
        };
        let stored = descriptors(&self.root, pid).filter(is_stored);
        stored
            .filter_map(|descriptor| {
                let position = Position::read(&self.root, pid, descriptor.number)?;
                Some(OpenFile { descriptor, position })
            })
            .collect()
    }

    /// The type of the file system of a mount, as the process with this pid sees it.
    fn file_system(&self, pid: u32, mount: u64) -> Option<String> {
        let text = self.root.read(pid, "mountinfo")?;
        let text = String::from_utf8_lossy(&text);
        // proc_pid_mountinfo(5): the id is the first field, and the type the first after the separator.
        let line = text.lines().find(|line| line.split(' ').next() == Some(&mount.to_string()))?;
        line.split_once(" - ")?.1.split(' ').next().map(str::to_owned)
    }

    /// The other end of the TCP connections of a process, if it is the same for all. `None`: the connections have several other ends, or
    /// the process may wait for a pipe or a local socket. In a call of a TCP socket (`state`) it waits for neither. Pipes that it writes do
    /// not matter, nor do standard streams: ssh has those of rsync.
    fn peer(&self, pid: u32, state: TimeState) -> Option<WaitedFor> {
        let open: Vec<Descriptor> = descriptors(&self.root, pid).collect();
        let is_pipe = |file: &Descriptor| {
            file.number > LAST_STANDARD && !file.is_written && file.name.starts_with("pipe:")
        };
        if state == TimeState::Events && open.iter().any(is_pipe) {
            return None;
        }
        let socket = |file: &Descriptor| {
            let inode = file.name.strip_prefix("socket:[")?.strip_suffix(']')?;
            Some((inode.to_owned(), file.number <= LAST_STANDARD))
        };
        // Whether each socket is a standard stream.
        let mut sockets: FxHashMap<String, bool> = open.iter().filter_map(socket).collect();
        if sockets.is_empty() || !are_few(&self.root, pid) {
            return None;
        }
        // The sockets that the tables have are removed from `sockets`. If a table can't be read or is too long, its sockets stay there,
        // and the other end is not known.
        let table = |name| Self::table(self.root.open(pid, name)).unwrap_or_default();
        for inode in local_sockets(&table("net/unix")) {
            if state == TimeState::Network || sockets.get(inode).is_some_and(|is_standard| *is_standard) {
                sockets.remove(inode);
            }
        }
        let mut peers = FxHashSet::default();
        for name in ["net/tcp", "net/tcp6"] {
            for (inode, peer) in connections(&table(name)) {
                if sockets.remove(&inode).is_some() {
                    peers.insert(peer);
                }
            }
        }
        let mut peers = peers.into_iter();
        let only = peers.next().filter(|_| peers.next().is_none() && sockets.is_empty());
        only.map(|peer| WaitedFor::Peer(peer.to_string()))
    }

    /// The text of one of the kernel's tables. `None`: it can't be read, or is too long to be read twice a second.
    fn table(file: io::Result<File>) -> Option<String> {
        let mut text = Vec::new();
        let length = file.ok()?.take(MOST_TABLE_BYTES).read_to_end(&mut text).ok()?;
        // Names of sockets can be any bytes.
        ((length as u64) < MOST_TABLE_BYTES).then(|| String::from_utf8_lossy(&text).into_owned())
    }

    /// Finds the lock that a process waits for, and who holds it. The lock's file is named if the process has it open. `None`: /proc/locks
    /// shows no wait of the process, or can't be read.
    fn lock(&self, pid: u32) -> Option<WaitedFor> {
        let text = Self::table(File::open(self.root.top_path("locks")))?;
        let (holder, inode) = blocker(&text, pid)?;
        let mut named = descriptors(&self.root, pid).filter(|file| file.name.starts_with('/'));
        let path = named.find(|file| self.has_inode(pid, file, inode)).map(|file| file.name);
        let holder = holder.filter(|holder| self.may_hold(*holder, inode)).and_then(|holder| {
            let name = self.root.read(holder, "comm")?;
            Some((holder, String::from_utf8_lossy(&name).trim_end().to_owned()))
        });
        Some(WaitedFor::Lock { path, holder })
    }

    /// Whether the process with this pid may hold a lock on the file with this inode. One without the file open is another process,
    /// which got the pid since. One whose descriptors can't be read is believed.
    fn may_hold(&self, pid: u32, inode: u64) -> bool {
        let mut open = descriptors(&self.root, pid).peekable();
        open.peek().is_none() || open.any(|file| self.has_inode(pid, &file, inode))
    }

    /// Whether this descriptor of a process is of the file with this inode.
    fn has_inode(&self, pid: u32, file: &Descriptor, inode: u64) -> bool {
        Position::read(&self.root, pid, file.number).is_some_and(|position| position.inode == inode)
    }
}

/// The TCP connections in the text of /proc/net/tcp or tcp6 (proc_net(5)): the inode of the socket, and its other end.
fn connections(text: &str) -> impl Iterator<Item = (String, SocketAddr)> {
    text.lines().filter_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(2);
        let (remote, state, inode) = (fields.next()?, fields.next()?, fields.nth(5)?);
        let (address, port) = remote.split_once(':')?;
        // The kernel writes each 32 bits of an address as a number of the machine's byte order.
        let words = address.as_bytes().chunks(8).map(|digits| {
            u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok().map(u32::to_ne_bytes)
        });
        let bytes: Vec<u8> = words.collect::<Option<Vec<[u8; 4]>>>()?.concat();
        let address = match (<[u8; 4]>::try_from(bytes.as_slice()), <[u8; 16]>::try_from(bytes.as_slice())) {
            (Ok(bytes), _) => IpAddr::from(bytes),
            (_, Ok(bytes)) => IpAddr::from(bytes).to_canonical(),
            _ => return None,
        };
        let peer = SocketAddr::new(address, u16::from_str_radix(port, 16).ok()?);
        (state == ESTABLISHED).then(|| (inode.to_owned(), peer))
    })
}

/// The inodes of the local sockets in the text of /proc/net/unix (unix(7)).
fn local_sockets(text: &str) -> impl Iterator<Item = &str> {
    text.lines().skip(1).filter_map(|line| line.split_ascii_whitespace().nth(6))
}

/// Who holds the lock that a process waits for, and the inode of its file, from the text of /proc/locks (proc_locks(5)). A waiter has an
/// arrow, and follows the lock that it waits for. The holder is `None` if it is not of this pid namespace.
fn blocker(text: &str, pid: u32) -> Option<(Option<u32>, u64)> {
    let mut holder = None;
    for line in text.lines() {
        let mut fields = line.split_ascii_whitespace().skip(1).peekable();
        let is_waiter = fields.next_if_eq(&"->").is_some();
        let (of, inode) = (fields.nth(3)?, fields.next()?);
        let of: Option<u32> = of.parse().ok();
        if !is_waiter {
            holder = of;
        } else if of == Some(pid) {
            return Some((holder.filter(|pid| *pid > 0), inode.rsplit(':').next()?.parse().ok()?));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::*;
    use crate::model::ids::Identity;

    // Requirement: SLOW-5
    #[test]
    fn waiter_follows_the_lock_that_it_waits_for() {
        let text = "1: FLOCK  ADVISORY  WRITE 9427 fe:00:10232642 0 EOF\n\
                    1: -> FLOCK  ADVISORY  WRITE 77 fe:00:10232642 0 EOF\n\
                    2: POSIX  ADVISORY  READ -1 fe:00:5 0 EOF\n\
                    2: -> POSIX  ADVISORY  WRITE 78 fe:00:5 0 EOF\n";
        assert_eq!(blocker(text, 77), Some((Some(9427), 10_232_642)));
        assert_eq!(blocker(text, 78), Some((None, 5)));
        assert_eq!((blocker(text, 9427), blocker("", 1), blocker("1: x", 1)), (None, None, None));
    }

    // Requirement: SLOW-5
    #[test]
    fn connection_has_the_address_of_its_other_end() {
        let head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";
        let line = |remote: &str, state: &str| {
            format!(
                "   0: 0100007F:223D {remote} {state} 00000000:00000000 00:00000000 00000000  0  0 4711 1 0 20\n"
            )
        };
        let all = |text: String| {
            connections(&text).map(|(inode, peer)| format!("{inode} {peer}")).collect::<Vec<_>>()
        };
        if cfg!(target_endian = "little") {
            assert_eq!(all(head.to_owned() + &line("0100007F:1F90", "01")), ["4711 127.0.0.1:8080"]);
            let mapped = "0000000000000000FFFF00000100007F:0050";
            assert_eq!(all(line(mapped, "01")), ["4711 127.0.0.1:80"]);
        }
        assert!(all(line("0100007F:1F90", "0A") + "x\n" + &line("zz:1", "01")).is_empty());
    }

    /// A shell that reads one file and writes another when it is told to.
    struct Copier {
        child: std::process::Child,
        source: tempfile::NamedTempFile,
        copy: tempfile::NamedTempFile,
    }

    impl Copier {
        fn new() -> Self {
            const SCRIPT: &str = r#"exec 5<"$0" 6>"$1"; echo; while read -r what; do case $what in
                read) head -c 9 <&5 >/dev/null;; write) head -c 100000 /dev/zero >&6;; esac; echo; done"#;
            let (mut source, copy) =
                (tempfile::NamedTempFile::new().unwrap(), tempfile::NamedTempFile::new().unwrap());
            source.write_all(&[0; 1 << 20]).unwrap();
            let mut command = Command::new("sh");
            command.args(["-c", SCRIPT]).arg(source.path()).arg(copy.path());
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
            let mut copier = Self { child: command.spawn().unwrap(), source, copy };
            copier.wait();
            copier
        }

        fn wait(&mut self) {
            self.child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        }

        fn tell(&mut self, what: &str) {
            writeln!(self.child.stdin.as_mut().unwrap(), "{what}").unwrap();
            self.wait();
        }

        fn target(&self) -> Target {
            let identity =
                Identity { pidfd_inode: 0, latest_start_ns: 0, is_start_rough: false, is_pid_held: false };
            Target { id: ProcessId(1), pid: self.child.id(), identity }
        }

        fn path_of(file: &tempfile::NamedTempFile) -> Option<&str> {
            file.path().to_str()
        }
    }

    impl Drop for Copier {
        fn drop(&mut self) {
            drop(self.child.stdin.take());
            let _ = self.child.wait();
        }
    }

    // Requirement: SLOW-5
    #[test]
    fn file_is_the_one_whose_offset_moved() {
        let mut copier = Copier::new();
        let target = copier.target();
        let mut lookup = WaitLookup::new(ProcRoot::default());
        let mut look = |now_ns: u64| lookup.read(now_ns, || Some((target, TimeState::Storage)));
        look(PERIOD_NS);
        copier.tell("write");
        assert!(look(PERIOD_NS + 1).is_none(), "no look is due");
        let Some(Observation::WaitedFor {
            id,
            what: Some(WaitedFor::File { path, file_system, is_written, is_synced }),
            ..
        }) = look(2 * PERIOD_NS)
        else {
            panic!("no file")
        };
        assert_eq!((id, Some(path.as_str())), (ProcessId(1), Copier::path_of(&copier.copy)));
        assert!(file_system.is_some() && is_written && !is_synced);
    }

    // Requirement: SLOW-5
    #[test]
    fn copy_is_not_named_as_what_it_waits_for() {
        let mut copier = Copier::new();
        let target = copier.target();
        let mut lookup = WaitLookup::new(ProcRoot::default());
        let mut look =
            |looks: u64| match lookup.read(looks * PERIOD_NS, || Some((target, TimeState::Storage))) {
                Some(Observation::WaitedFor { what: Some(WaitedFor::File { path, .. }), .. }) => Some(path),
                _ => None,
            };
        look(1);
        copier.tell("read");
        copier.tell("write");
        assert_eq!(look(2), None, "it may wait for its source");
        copier.tell("write");
        assert_eq!(look(3).as_deref(), Copier::path_of(&copier.copy), "nothing was read");
        copier.tell("read");
        assert_eq!(look(4).as_deref(), Copier::path_of(&copier.source));
    }

    // Requirement: SLOW-5
    #[test]
    fn connections_to_one_server_name_it_beside_streams_of_the_run() {
        use std::os::fd::AsRawFd;
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let connect = || {
            let client = std::net::TcpStream::connect(address).unwrap();
            (client, listener.accept().unwrap().0)
        };
        let (client, _server) = connect();
        let (local, other) = std::os::unix::net::UnixStream::pair().unwrap();
        // A process that has these three open, and nothing else.
        let made = tempfile::tempdir().unwrap();
        let fd = made.path().join("9/fd");
        std::fs::create_dir_all(&fd).unwrap();
        let give = |number: i32, of: i32| {
            let name = std::fs::read_link(format!("/proc/self/fd/{of}")).unwrap();
            std::os::unix::fs::symlink(name, fd.join(number.to_string())).unwrap();
        };
        std::os::unix::fs::symlink("/proc/self/net", made.path().join("9/net")).unwrap();
        give(3, client.as_raw_fd());
        give(1, local.as_raw_fd());
        let lookup = WaitLookup::new(ProcRoot::new(made.path()));
        let peer = || lookup.peer(9, TimeState::Events);
        assert_eq!(peer(), Some(WaitedFor::Peer(address.to_string())));
        give(4, other.as_raw_fd());
        assert_eq!(peer(), None, "it may wait for a local server");
        assert_eq!(lookup.peer(9, TimeState::Network), Some(WaitedFor::Peer(address.to_string())));
        std::fs::remove_file(fd.join("4")).unwrap();
        let (second, _server) = connect();
        give(5, second.as_raw_fd());
        assert_eq!(peer(), Some(WaitedFor::Peer(address.to_string())));
        give(6, listener.as_raw_fd());
        assert_eq!(peer(), None, "it may wait for another connection");
    }

    #[test]
    fn nothing_is_looked_up_of_other_states() {
        let copier = Copier::new();
        let mut lookup = WaitLookup::new(ProcRoot::default());
        assert!(lookup.read(PERIOD_NS, || Some((copier.target(), TimeState::Lock))).is_none());
        assert!(lookup.read(3 * PERIOD_NS, || None).is_none());
    }
}
