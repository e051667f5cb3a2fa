//! RAM of a set of processes is its footprint: the page frames that it has mapped, whoever else maps them. Each job holds
//! its memory, a stranger has the same files mapped, and tests/truth reads the page frames.

use std::fs::{File, Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use tempfile::TempDir;

use crate::support::footprints::{Figure, Job, User, measure};
use crate::support::programs::{can_build, compiled, source};
use crate::support::{Run, installed, program, skip, skipped, static_program};

/// A job, or the reason why it cannot run here.
type Made = Result<Job, String>;

/// Makes the list of jobs and two tests for each: as root and as an ordinary user. Both read the same files, and root's tests take
/// half a minute, so scripts/soak runs these.
macro_rules! jobs {
    ($($name:ident)*) => {
        const JOBS: &[(&str, fn() -> Made)] = &[$((stringify!($name), jobs::$name)),*];
        $(mod $name {
            use crate::support::footprints::User;

            #[test]
            #[ignore = "scripts/soak runs it"]
            fn as_root() {
                super::check(super::jobs::$name, User::Root);
            }

            #[test]
            fn as_an_ordinary_user() {
                super::check(super::jobs::$name, User::Ordinary);
            }
        })*
    };
}

// Requirement: RAM-3, RAM-7
jobs! {
    forks_share_their_parents_memory
    forks_write_half_of_it
    shared_anonymous_memory
    shm_open
    overlapping_parts_of_a_memfd
    hugetlb
    transparent_huge_pages
    file_of_main
    file_of_a_child
    written_private_mapping
    slices_of_a_file
    parts_of_one_mapping
    moved_memory
    lazily_freed_memory
    threads_vfork_and_clone_children
    forty_small_programs
    static_program_forks
    static_program_maps_a_file
    python_fork_pool
    node_and_its_child
    java_and_its_child
    open_mpi_window
    mpich_window
    sandbox
}

fn check(job: fn() -> Made, user: User) {
    let job = match job() {
        Ok(job) => job,
        Err(reason) => skip!("{reason}"),
    };
    let mut tries = job.tries;
    loop {
        let (run, figures) = match measure(&job, user) {
            Ok(measured) => measured,
            Err(reason) => skip!("{reason}"),
        };
        if run.status.code() == Some(0) && figures.iter().all(Figure::is_right) {
            return;
        }
        let wrong = format!("{}\n{}{}", run.status, lines(&figures), run.stderr);
        tries -= 1;
        assert!(tries > 0, "{wrong}");
        println!("run once more: {wrong}");
    }
}

fn lines(figures: &[Figure]) -> String {
    let line = |figure: &Figure| {
        let note = if figure.is_right() { "" } else { "  WRONG" };
        let [pages, reported] = [figure.pages, figure.reported].map(|bytes| bytes / 1e6);
        format!("{:21} {pages:9.1} MB, reported {reported:9.1}{note}\n", figure.name)
    };
    figures.iter().map(line).collect()
}

/// The report's figures and the page frames of a job that is beyond a limit.
fn beyond_a_limit(job: fn() -> Made) -> Option<Vec<Figure>> {
    measured(job, User::Root).map(|(_, figures)| figures)
}

fn measured(job: fn() -> Made, user: User) -> Option<(Run, Vec<Figure>)> {
    match job().and_then(|job| measure(&job, user)) {
        Ok(measured) => Some(measured),
        Err(reason) => {
            skipped(&reason);
            None
        }
    }
}

// Requirement: RAM-57
#[test]
fn scattered_pages_of_a_stranger_s_file_are_partly_missing() {
    let Some(figures) = beyond_a_limit(jobs::scattered_pages_of_one_mapping) else { return };
    let combined = &figures[2];
    let largest = combined.pages / 2.0;
    assert!((0.98 * largest..1.02 * combined.pages).contains(&combined.reported), "{}", lines(&figures));
}

// Requirement: RAM-73
#[test]
fn pages_that_one_process_maps_twice_count_as_in_its_rss() {
    let Some(figures) = beyond_a_limit(jobs::mapped_twice) else { return };
    let combined = &figures[2];
    let rss = 2.0 * combined.pages;
    assert!((0.98 * combined.pages..1.02 * rss).contains(&combined.reported), "{}", lines(&figures));
}

// Requirement: RAM-26, RAM-86, RAM-89
#[test]
fn relatives_that_share_different_pages_at_one_address_count_at_least_one_of_them() {
    // On a busy machine a run can end before the sharing was read since the last fork. Then there is a bound, and the report says so.
    let mut tries = 5;
    loop {
        let Some((run, figures)) = measured(jobs::two_generations_of_forks, User::Root) else { return };
        if figures.iter().all(Figure::is_right) {
            break;
        }
        let report = run.report();
        for (figure, set) in figures.iter().zip(["main", "descendants", "combined"]) {
            let at_most = report.f64(&format!("max_ram_at_most.{set}"));
            let is_within = figure.reported < 1.02 * figure.pages && at_most > 0.98 * figure.pages;
            assert!(is_within, "{set}, at most {at_most}: {}", lines(&figures));
        }
        // A difference of less than a tenth needs no warning.
        let [_, _, combined, _] = figures.as_slice() else { panic!("{}", lines(&figures)) };
        let is_said = report.warnings().contains("can have been up to");
        assert!(is_said || combined.reported > 0.9 * combined.pages, "{}", lines(&figures));
        tries -= 1;
        assert!(tries > 0, "{}", lines(&figures));
    }
    let Some((run, figures)) = measured(jobs::two_generations_of_forks, User::Ordinary) else { return };
    let [main, _, combined, private] = figures.as_slice() else { panic!("{}", lines(&figures)) };
    assert!(main.is_right() && private.is_right(), "{}", lines(&figures));
    assert!((0.98 * main.pages..1.02 * combined.pages).contains(&combined.reported), "{}", lines(&figures));
    assert!(run.report().f64("max_ram_at_most.combined") > 0.98 * combined.pages, "{}", lines(&figures));
}

/// Prints the table of docs/ACCURACY.md.
#[test]
#[ignore = "prints a table: cargo test --test e2e -- --ignored --nocapture table_of_footprints"]
fn table_of_footprints() {
    println!(
        "\n| job | as | main | descendants | combined | descendants' private |\n|---|---|---|---|---|---|"
    );
    for (name, job) in JOBS {
        for user in [User::Root, User::Ordinary] {
            let name = name.replace('_', " ");
            match job().and_then(|job| measure(&job, user)) {
                Err(reason) => skipped(&format!("{name}: {reason}")),
                Ok((_, figures)) => {
                    let cell = |figure: &Figure| {
                        let bold = if figure.is_right() { "" } else { "**" };
                        format!(" {:.1} {bold}{:.1}{bold} |", figure.pages / 1e6, figure.reported / 1e6)
                    };
                    let cells: String = figures.iter().map(cell).collect();
                    println!("| {name} | {user:?} |{cells}");
                }
            }
        }
    }
}

/// The jobs.
mod jobs {
    use super::*;

    fn pages(words: &[&str]) -> Job {
        with_program(program("pages"), words)
    }

    fn with_program(program: String, words: &[&str]) -> Job {
        Job::new(std::iter::once(program).chain(words.iter().map(|word| (*word).to_owned())))
    }

    /// A file that every user may read and write.
    struct Data {
        _directory: TempDir,
        path: PathBuf,
    }

    impl Data {
        fn of_mib(mib: u64) -> Self {
            let directory = tempfile::tempdir().unwrap();
            set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
            let path = directory.path().join("data");
            let random = File::open("/dev/urandom").unwrap();
            let mut file = File::create(&path).unwrap();
            std::io::copy(&mut std::io::Read::take(random, mib << 20), &mut file).unwrap();
            set_permissions(&path, Permissions::from_mode(0o777)).unwrap();
            Self { _directory: directory, path }
        }

        fn path(&self) -> &str {
            self.path.to_str().unwrap()
        }
    }

    /// A job with a file of this size as its last word.
    fn with_file(program: String, mode: &str, mib: &str, children: &str) -> Job {
        let data = Data::of_mib(mib.parse().unwrap());
        with_program(program, &[mode, mib, children, data.path()]).with(data)
    }

    /// Runs the job beside a process that maps all of the file.
    fn beside_a_reader(mode: &str, mib: &str, children: &str) -> Job {
        let data = Data::of_mib(mib.parse().unwrap());
        let reader = [program("pages"), "file".into(), mib.into(), "0".into(), data.path().into()];
        pages(&[mode, mib, children, data.path()]).beside(reader).with(data)
    }

    pub fn forks_share_their_parents_memory() -> Made {
        Ok(pages(&["fork", "400", "3"]))
    }

    pub fn forks_write_half_of_it() -> Made {
        Ok(pages(&["cow", "200", "2"]))
    }

    pub fn shared_anonymous_memory() -> Made {
        Ok(pages(&["anonymous", "150", "3"]))
    }

    pub fn shm_open() -> Made {
        /// Removed when dropped.
        struct Shm(String);
        impl Drop for Shm {
            fn drop(&mut self) {
                drop(std::fs::remove_file(&self.0));
            }
        }
        let name = std::thread::current().name().unwrap_or("test").replace(':', "_");
        let shm = Shm(format!("/dev/shm/{name}.{}", std::process::id()));
        File::create(&shm.0).and_then(|file| file.set_len(150 << 20)).unwrap();
        set_permissions(&shm.0, Permissions::from_mode(0o777)).unwrap();
        Ok(pages(&["shm", "150", "2", &shm.0]).with(shm))
    }

    pub fn overlapping_parts_of_a_memfd() -> Made {
        Ok(pages(&["memfd", "100", "3"]))
    }

    pub fn hugetlb() -> Made {
        // The job and its stranger: 32 MiB that two children share, and 8 MiB of each child.
        let reserved = HugePages::reserve(48)?;
        Ok(pages(&["huge", "32", "2"]).with(reserved))
    }

    pub fn transparent_huge_pages() -> Made {
        let enabled = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
        if enabled.map_err(|_| "no transparent huge pages here")?.contains("[never]") {
            return Err("transparent huge pages are off".into());
        }
        Ok(pages(&["thp", "256", "2"]))
    }

    pub fn file_of_main() -> Made {
        Ok(with_file(program("pages"), "file", "100", "1"))
    }

    pub fn file_of_a_child() -> Made {
        Ok(with_file(program("pages"), "child_file", "100", "1"))
    }

    pub fn written_private_mapping() -> Made {
        Ok(with_file(program("pages"), "file_write", "100", "2"))
    }

    pub fn slices_of_a_file() -> Made {
        Ok(beside_a_reader("slices", "100", "2"))
    }

    pub fn parts_of_one_mapping() -> Made {
        Ok(beside_a_reader("parts", "100", "2"))
    }

    pub fn scattered_pages_of_one_mapping() -> Made {
        Ok(beside_a_reader("scattered", "100", "2"))
    }

    pub fn mapped_twice() -> Made {
        Ok(with_file(program("pages"), "twice", "64", "2"))
    }

    pub fn two_generations_of_forks() -> Made {
        Ok(pages(&["generations", "300", "4"]))
    }

    pub fn moved_memory() -> Made {
        Ok(pages(&["moved", "100", "2"]))
    }

    pub fn lazily_freed_memory() -> Made {
        Ok(pages(&["lazy", "200", "1"]))
    }

    pub fn threads_vfork_and_clone_children() -> Made {
        Ok(pages(&["threads", "200", "3"]))
    }

    pub fn forty_small_programs() -> Made {
        Ok(pages(&["exec", "1", "40"]))
    }

    pub fn static_program_forks() -> Made {
        Ok(with_program(static_program("pages"), &["fork", "200", "2"]))
    }

    pub fn static_program_maps_a_file() -> Made {
        Ok(with_file(static_program("pages"), "child_file", "100", "2"))
    }

    fn needed(name: &str) -> Result<String, String> {
        let path = installed(name).ok_or_else(|| format!("{name} is not installed"))?;
        Ok(path.into_os_string().into_string().unwrap())
    }

    fn succeeds(words: &[&str]) -> bool {
        Command::new(words[0]).args(&words[1..]).output().is_ok_and(|output| output.status.success())
    }

    pub fn python_fork_pool() -> Made {
        let python = needed("python3")?;
        if !succeeds(&[&python, "-c", "import numpy"]) {
            return Err("numpy is not installed".into());
        }
        let code = "import multiprocessing, numpy, sys\n\
            context = multiprocessing.get_context('fork')\n\
            everyone = context.Barrier(3)\n\
            big = numpy.ones(25_000_000)\n\
            def work(number):\n\
            \x20   global own\n\
            \x20   own = numpy.full(4_000_000, float(number))\n\
            \x20   everyone.wait()\n\
            \x20   return float(big.sum())\n\
            with context.Pool(3) as pool:\n\
            \x20   pool.map(work, range(3), chunksize=1)\n\
            \x20   print('ready', flush=True)\n\
            \x20   sys.stdin.read()\n";
        Ok(Job::new([&python, "-c", code]))
    }

    pub fn node_and_its_child() -> Made {
        let node = needed("node")?;
        let code = "const child = `const memory = Buffer.alloc(60e6, 1); console.log('x'); \
            process.stdin.on('end', () => process.exit(memory[0] - 1)).resume()`; \
            const memory = Buffer.alloc(100e6, 1); \
            const it = require('child_process').spawn(process.execPath, ['-e', child], \
            {stdio: ['pipe', 'pipe', 'inherit']}); \
            it.stdout.once('data', () => console.log('ready')); \
            process.stdin.on('end', () => it.stdin.end(String(memory[0]))).resume()";
        Ok(Job::new([&node, "-e", code]))
    }

    pub fn java_and_its_child() -> Made {
        // java needs it to run a source file.
        needed("javac")?;
        let java = needed("java")?;
        let hold = source("Hold.java").into_os_string().into_string().unwrap();
        Ok(Job::new([
            &java,
            "-XX:+UseSerialGC",
            "-Xmx64m",
            "-XX:MaxDirectMemorySize=200m",
            &hold,
            "100",
            &java,
            &hold,
        ]))
    }

    fn window(compiler: &str, launcher: &str, options: &[&str]) -> Made {
        let launcher = needed(launcher)?;
        if !can_build("mpi_window", compiler, &[]) {
            return Err(format!("{compiler} is not installed, or has no mpi.h"));
        }
        let ranks = compiled("mpi_window", compiler, &[]);
        // Ranks compute while they wait for each other.
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        // Two runs of Open MPI by one user disturb each other in one directory: each, the stranger's too, has its own.
        let directory = tempfile::tempdir().unwrap();
        set_permissions(directory.path(), Permissions::from_mode(0o777)).unwrap();
        let in_its_own = "TMPDIR=$(mktemp -d -p \"$0\") exec \"$@\"";
        let place = directory.path().to_str().unwrap();
        let words =
            [&["sh", "-c", in_its_own, place, &launcher], options, &["-n", "3", &ranks, "64"]].concat();
        Ok(Job::new(words).with(directory).with(turn).tried_twice())
    }

    pub fn open_mpi_window() -> Made {
        window("mpicc.openmpi", "mpirun.openmpi", &["--allow-run-as-root", "--oversubscribe"])
    }

    pub fn mpich_window() -> Made {
        window("mpicc.mpich", "mpirun.mpich", &[])
    }

    pub fn sandbox() -> Made {
        let bwrap = needed("bwrap")?;
        let words = [bwrap.as_str(), "--dev-bind", "/", "/", "--unshare-pid", "--proc", "/proc"];
        if !succeeds(&[&words[..], &["true"]].concat()) {
            return Err("bwrap may not make a pid namespace here".into());
        }
        let pages = program("pages");
        Ok(Job::new([&words[..], &[&pages, "cow", "100", "2"]].concat()))
    }
}

/// hugetlb pages of the machine, given back when dropped.
struct HugePages(u64);

impl HugePages {
    const FILE: &str = "/proc/sys/vm/nr_hugepages";

    /// Adds pages of 2 MiB to the pool. The error is the reason why that is impossible here.
    fn reserve(pages: u64) -> Result<Self, String> {
        let size = std::fs::read_to_string("/proc/meminfo").unwrap();
        if !size.lines().any(|line| line.starts_with("Hugepagesize:") && line.ends_with(" 2048 kB")) {
            return Err("hugetlb pages are not of 2 MiB".into());
        }
        let before = Self::change(|pool| pool + pages)?;
        let reserved = Self(pages);
        let now = Self::change(|pool| pool)?;
        if now < before + pages {
            return Err(format!("{} of {pages} hugetlb pages could be reserved", now.saturating_sub(before)));
        }
        Ok(reserved)
    }

    /// Changes the size of the pool; gives the one before.
    fn change(to: impl Fn(u64) -> u64) -> Result<u64, String> {
        static ALONE: Mutex<()> = Mutex::new(());
        let _alone = ALONE.lock();
        let error = |error| format!("{}: {error}", Self::FILE);
        let before = std::fs::read_to_string(Self::FILE).map_err(error)?.trim().parse().unwrap();
        if to(before) != before {
            std::fs::write(Self::FILE, to(before).to_string()).map_err(error)?;
        }
        Ok(before)
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        drop(Self::change(|pool| pool.saturating_sub(self.0)));
    }
}
