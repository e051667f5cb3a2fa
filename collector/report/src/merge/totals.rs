//! What adds up over reports whatever their times: CPU time, I/O, faults, switches, processes, and how the processes are known.

use super::head::cut;
pub(super) use crate::command_sums::millionths;
use crate::model::groups::Groups;
use crate::model::report::{
    ContextSwitches, Coverage, Cpu, CpuTime, Faults, Io, Layers, OtherUser, Peaks, Report, StartedElsewhere,
};

/// Maximum number of executables that are listed, as in the report of one node.
const MOST_STATIC: usize = 100;
/// Maximum number of other users that are listed.
const MOST_USERS: usize = 100;
/// Maximum number of entries of what was started elsewhere.
const MOST_ELSEWHERE: usize = 1000;
/// Maximum number of further entries, without a target. A hostile report can name any number of programs.
const MOST_PROGRAMS_ELSEWHERE: usize = 100;
/// The largest mean of RAM, bytes: no node has an exabyte, and a larger number is forged.
const MOST_MEAN_BYTES: f64 = 1e18;
/// Why a report lacks figures of calls.
const NOT_IN_OLDER: &str = "a report of an older version does not have it";

/// A sum of figures, of which some can be unknown.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Known {
    /// The sum of those that are known.
    sum: u128,
    /// How many are known.
    known: u64,
    /// How many are unknown.
    unknown: u64,
}

impl Known {
    /// Adds a figure; `None`: it is unknown.
    pub(super) fn add(&mut self, figure: Option<u128>) {
        match figure {
            Some(figure) => {
                self.sum = self.sum.saturating_add(figure);
                self.known += 1;
            }
            None => self.unknown += 1,
        }
    }

    /// The sum of those that are known; `None` if none is.
    pub(super) fn sum(self) -> Option<u128> {
        (self.known > 0).then_some(self.sum)
    }

    /// The sum if all are known; `None` if one is unknown, or there is none.
    pub(super) fn whole(self) -> Option<u128> {
        self.sum().filter(|_| self.unknown == 0)
    }

    /// The sum of those that are known, which are microseconds, in seconds; `None` if none is.
    pub(super) fn seconds(self) -> Option<f64> {
        self.sum().map(|us| us as f64 / 1e6)
    }

    /// The sum of microseconds in seconds if all are known.
    pub(super) fn whole_seconds(self) -> Option<f64> {
        self.seconds().filter(|_| self.unknown == 0)
    }

    /// The sum of those that are known as a count; `None` if none is.
    fn count(self) -> Option<u64> {
        self.sum().map(saturated)
    }
}

/// The number as a `u64`; a larger one becomes `u64::MAX`.
pub(super) fn saturated(number: u128) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// Two figures joined to one. `None`: one of them is unknown.
pub(super) fn both<T>(a: Option<T>, b: Option<T>, join: impl Fn(T, T) -> T) -> Option<T> {
    Option::zip(a, b).map(|(a, b)| join(a, b))
}

/// Whether any of several reports says yes to something. Without a yes, the answer is no if all say no, otherwise unknown.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct InAny {
    /// Some report says yes.
    is_so: bool,
    /// Some report does not say.
    has_unknown: bool,
}

impl InAny {
    /// Adds what a report says; `None`: it does not say.
    pub(super) fn add(&mut self, is_so: Option<bool>) {
        self.is_so |= is_so == Some(true);
        self.has_unknown |= is_so.is_none();
    }

    /// What all reports together say; `None`: it is unknown.
    pub(super) fn is_so(self) -> Option<bool> {
        (self.is_so || !self.has_unknown).then_some(self.is_so)
    }
}

/// A mean of bytes times its time, bytes times microseconds. A mean above [`MOST_MEAN_BYTES`] is forged, and counts as that
/// much.
pub(super) fn bytes_time(mean_bytes: f64, wall_us: u128) -> u128 {
    (mean_bytes.round().clamp(0.0, MOST_MEAN_BYTES) as u128).saturating_mul(wall_us)
}

/// The sums so far.
#[derive(Debug, Default)]
pub(super) struct Totals {
    user: Known,
    system: Known,
    total: Known,
    /// The kernel's own sums over reaped processes.
    kernel: Known,
    unattributed: Known,
    /// The node of the first report without the kernel's sum, and the reason.
    kernel_reason: Option<(String, String)>,
    /// CPU utilisation over time, millionths of a percent times microseconds.
    percent_time: Groups<Known>,
    read: Known,
    written: Known,
    /// Bytes of cancelled writes.
    cancelled: Known,
    /// I/O by calls: bytes read and written, and the number of calls.
    by_calls: [Known; 4],
    /// Reports that don't know their I/O by calls.
    calls_unknown: Reason,
    /// Reports that don't know all of what each command passed by calls.
    command_calls_unknown: Reason,
    minor: Known,
    major: Known,
    voluntary: Known,
    involuntary: Known,
    /// RAM over time, bytes times microseconds.
    ram_time: Groups<Known>,
    pub(super) processes: Known,
    pub(super) still_running: Known,
    coverage: Coverage,
    /// Processes that each layer found: preload, wait, subreaper, scan, connector.
    layers: [Known; 5],
    /// Reports that were not tracked.
    untracked: Reason,
    /// Reports that may lack processes.
    uncounted: Reason,
    /// Reports whose records are not trusted.
    untrusted: Reason,
    /// Reports whose connector was absent.
    connector_absent: Reason,
    reports: u64,
}

/// The reasons that reports have for something, such as why they were not tracked.
#[derive(Debug, Default)]
struct Reason {
    /// How many reports have a reason.
    count: u64,
    /// The first one, after the name of its node.
    first: Option<String>,
}

impl Reason {
    /// Adds the reason of a report of this node; `None`: it has none.
    fn add(&mut self, node: &str, reason: Option<&String>) {
        let Some(reason) = reason else { return };
        self.count += 1;
        self.first.get_or_insert_with(|| format!("{node}: {}", cut(reason)));
    }

    /// Says the first reason, and how many of all `reports` have one. `None`: none has.
    fn text(&self, reports: u64) -> Option<String> {
        let first = self.first.as_ref()?;
        Some(match self.count {
            1 => first.clone(),
            count => format!("{first} (such a reason is in {count} of {reports} reports)"),
        })
    }
}

impl Totals {
    /// Adds a report of this node, whose command ran for `wall_us` microseconds.
    pub(super) fn add(&mut self, node: &str, report: &Report, wall_us: u64) {
        self.reports += 1;
        let time = &report.cpu_time;
        self.user.add(time.user_s.map(millionths));
        self.system.add(time.system_s.map(millionths));
        self.total.add(time.total_s.map(millionths));
        self.kernel.add(time.kernel_s.map(millionths));
        self.unattributed.add(time.unattributed_s.map(millionths));
        if let (None, Some(reason)) = (time.kernel_s, &time.kernel_s_reason) {
            self.kernel_reason.get_or_insert_with(|| (node.to_owned(), cut(reason)));
        }
        let wall_us = u128::from(wall_us);
        let Cpu { main, descendants, combined, .. } = report.cpu;
        let percent = Groups { main, descendants, combined }.map(|percent| percent.mean_sum);
        let time = percent.map(|percent| Some(millionths(percent?).saturating_mul(wall_us)));
        add_groups(&mut self.percent_time, time);
        let ram = report.mean_ram_bytes.map(|bytes| bytes.map(|bytes| bytes_time(bytes, wall_us)));
        add_groups(&mut self.ram_time, ram);
        for (sum, number) in [
            (&mut self.read, report.io.read_bytes),
            (&mut self.written, report.io.write_bytes),
            (&mut self.cancelled, report.io.cancelled_write_bytes),
            (&mut self.minor, report.faults.minor),
            (&mut self.major, report.faults.major),
            (&mut self.voluntary, report.context_switches.voluntary),
            (&mut self.involuntary, report.context_switches.involuntary),
            (&mut self.processes, Some(report.processes.total)),
            (&mut self.still_running, report.processes.still_running),
        ] {
            sum.add(number.map(u128::from));
        }
        let io = &report.io;
        let by_calls = [io.read_call_bytes, io.write_call_bytes, io.read_calls, io.write_calls];
        for (sum, number) in self.by_calls.iter_mut().zip(by_calls) {
            sum.add(number.map(u128::from));
        }
        self.calls_unknown.add(node, io.calls_reason.as_ref());
        let processes = &report.processes;
        let is_older = processes.by_command.iter().any(|command| command.calls.is_none());
        let older = is_older.then(|| NOT_IN_OLDER.to_owned());
        self.command_calls_unknown.add(node, processes.calls_reason.as_ref().or(older.as_ref()));
        self.add_coverage(node, &report.coverage);
    }

    /// Adds how the processes of a report of this node are known.
    fn add_coverage(&mut self, node: &str, of_report: &Coverage) {
        let all = &mut self.coverage;
        let Peaks { exact, sampled, bound, unknown } = of_report.peaks;
        for (sum, number) in [
            (&mut all.processes, of_report.processes),
            (&mut all.exact, of_report.exact),
            (&mut all.sampled, of_report.sampled),
            (&mut all.unknown, of_report.unknown),
            (&mut all.joined, of_report.joined),
            (&mut all.failed_spawns, of_report.failed_spawns),
            (&mut all.helpers, of_report.helpers),
            (&mut all.uninstrumented, of_report.uninstrumented),
            (&mut all.peaks.exact, exact),
            (&mut all.peaks.sampled, sampled),
            (&mut all.peaks.bound, bound),
            (&mut all.peaks.unknown, unknown),
            (&mut all.dropped_events, of_report.dropped_events),
            (&mut all.connector_overruns, of_report.connector_overruns),
        ] {
            *sum = sum.saturating_add(number);
        }
        let Layers { preload, wait, subreaper, scan, connector } = of_report.layers;
        for (sum, number) in self.layers.iter_mut().zip([preload, wait, subreaper, scan, connector]) {
            sum.add(number.map(u128::from));
        }
        for path in &of_report.static_executables {
            let path = cut(path);
            if all.static_executables.len() < MOST_STATIC && !all.static_executables.contains(&path) {
                all.static_executables.push(path);
            }
        }
        of_report.other_users.iter().for_each(|user| add_user(&mut all.other_users, *user));
        of_report.elsewhere.iter().for_each(|started| add_elsewhere(&mut all.elsewhere, started));
        self.untracked.add(node, of_report.untracked_reason.as_ref());
        self.uncounted.add(node, of_report.uncounted_reason.as_ref());
        self.untrusted.add(node, of_report.records_untrusted.as_ref());
        self.connector_absent.add(node, of_report.connector_absent.as_ref());
    }

    /// The CPU time. The total is the sum over the reports that know theirs, and a warning says how many don't. The unattributed time
    /// is such a sum, too. User and system time, and the kernel's sum, are null unless all reports have them, and `usable_percent`
    /// unless all have the total. `usable_s`: the CPU time of all usable cores during the run, seconds; `None`: unknown.
    pub(super) fn cpu_time(&self, usable_s: Option<f64>) -> CpuTime {
        let total_s = self.total.seconds();
        let kernel_s_reason = self.kernel_reason.as_ref().map(|(node, reason)| match self.kernel.unknown {
            1 => format!("{node}: {reason}"),
            unknown => format!("{node}: {reason} (unknown in {unknown} of {} reports)", self.reports),
        });
        CpuTime {
            user_s: self.user.whole_seconds(),
            system_s: self.system.whole_seconds(),
            total_s,
            usable_percent: Option::zip(self.total.whole_seconds(), usable_s)
                .filter(|(_, usable_s)| *usable_s > 0.0)
                .map(|(total_s, usable_s)| total_s / usable_s * 100.0),
            kernel_s: self.kernel.whole_seconds(),
            kernel_s_reason,
            unattributed_s: self.unattributed.seconds(),
        }
    }

    /// The mean CPU utilisation of main, descendants and all over `wall_us`, percent. `None`: it is unknown of a report.
    pub(super) fn mean_percent(&self, wall_us: u64) -> Groups<Option<f64>> {
        self.percent_time.map(|sum| mean(sum, wall_us).map(|percent| percent / 1e6))
    }

    /// The mean RAM of main, descendants and all over `wall_us`, bytes. `None`: it is unknown of a report.
    pub(super) fn mean_ram_bytes(&self, wall_us: u64) -> Groups<Option<f64>> {
        self.ram_time.map(|sum| mean(sum, wall_us))
    }

    /// Figures whose sums lack the reports in which they are unknown, each with the number of these reports.
    pub(super) fn unknown(&self) -> [(&'static str, u64); 4] {
        let most = |sums: [Known; 2]| sums.map(|sum| sum.unknown).into_iter().max().unwrap_or(0);
        [
            ("CPU time", self.total.unknown),
            ("I/O", most([self.read, self.written])),
            ("page faults", most([self.minor, self.major])),
            ("context switches", most([self.voluntary, self.involuntary])),
        ]
    }

    /// The I/O. That by calls is null unless all reports have it, since there can be a reason in each report that tracks no command.
    pub(super) fn io(&self) -> Io {
        let by_calls = self.by_calls.map(|sum| sum.whole().map(saturated));
        let [read_call_bytes, write_call_bytes, read_calls, write_calls] = by_calls;
        Io {
            read_bytes: self.read.count(),
            write_bytes: self.written.count(),
            cancelled_write_bytes: self.cancelled.count(),
            reason: None,
            read_call_bytes,
            write_call_bytes,
            read_calls,
            write_calls,
            calls_reason: read_calls.is_none().then(|| {
                let reason = self.calls_unknown.text(self.reports);
                reason.unwrap_or_else(|| NOT_IN_OLDER.to_owned())
            }),
        }
    }

    /// Why some commands' figures of calls are lower bounds or null.
    pub(super) fn command_calls_reason(&self) -> Option<String> {
        self.command_calls_unknown.text(self.reports)
    }

    pub(super) fn faults(&self) -> Faults {
        Faults { minor: self.minor.count(), major: self.major.count() }
    }

    pub(super) fn context_switches(&self) -> ContextSwitches {
        ContextSwitches { voluntary: self.voluntary.count(), involuntary: self.involuntary.count() }
    }

    /// How the processes are known, without what is known of nodes and ranks.
    pub(super) fn coverage(&self) -> Coverage {
        let [preload, wait, subreaper, scan, connector] = self.layers.map(Known::count);
        // The merged run counts as untracked only if no report was tracked.
        let is_any_tracked = self.untracked.count < self.reports;
        Coverage {
            untracked_reason: self.untracked.text(self.reports).filter(|_| !is_any_tracked),
            // An untracked report has this reason, too. So the reason tells of it even if other reports were tracked.
            uncounted_reason: self.uncounted.text(self.reports),
            layers: Layers { preload, wait, subreaper, scan, connector },
            records_untrusted: self.untrusted.text(self.reports),
            connector_absent: self.connector_absent.text(self.reports),
            ..self.coverage.clone()
        }
    }
}

/// Adds the processes of a user other than the run's. Users beyond [`MOST_USERS`] are left out.
fn add_user(all: &mut Vec<OtherUser>, user: OtherUser) {
    let is_full = all.len() >= MOST_USERS;
    match all.iter_mut().find(|known| known.uid == user.uid) {
        Some(known) => known.processes = known.processes.saturating_add(user.processes),
        None if !is_full => all.push(user),
        None => {}
    }
}

/// Adds work that a run started outside of its tree, such as a container. If [`MOST_ELSEWHERE`] entries are kept already, its target is
/// dropped, so that all further calls of a program share an entry.
fn add_elsewhere(all: &mut Vec<StartedElsewhere>, started: &StartedElsewhere) {
    let mut started = StartedElsewhere {
        program: cut(&started.program),
        target: started.target.as_deref().map(cut),
        reason: started.reason.as_deref().map(cut),
        ..started.clone()
    };
    let find = |all: &[StartedElsewhere], started: &StartedElsewhere| {
        let key =
            |one: &StartedElsewhere| (one.kind, one.program.clone(), one.target.clone(), one.is_tracked);
        all.iter().position(|known| key(known) == key(started))
    };
    let mut place = find(all, &started);
    if place.is_none() && all.len() >= MOST_ELSEWHERE {
        started.target = None;
        place = find(all, &started);
    }
    match place {
        Some(place) => {
            let known = &mut all[place];
            known.count = known.count.saturating_add(started.count);
            known.followed = known.followed.saturating_add(started.followed);
            known.in_tree = known.in_tree.saturating_add(started.in_tree);
            known.reason = known.reason.take().or(started.reason);
        }
        None if all.len() < MOST_ELSEWHERE + MOST_PROGRAMS_ELSEWHERE => all.push(started),
        None => {}
    }
}

/// Adds a figure to the sum of each group.
fn add_groups(sums: &mut Groups<Known>, figures: Groups<Option<u128>>) {
    sums.main.add(figures.main);
    sums.descendants.add(figures.descendants);
    sums.combined.add(figures.combined);
}

/// The mean over `wall_us` of a sum over time, in its unit times microseconds. `None`: no time has passed, or the sum is
/// unknown of a report.
pub(super) fn mean(sum: Known, wall_us: u64) -> Option<f64> {
    let sum = sum.whole().filter(|_| wall_us > 0)?;
    Some(sum as f64 / wall_us as f64)
}
