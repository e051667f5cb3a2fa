//! The account of a tracked run: the session and its collector, which the launcher starts, replaces and waits for.

use std::io;
use std::time::Duration;

use gpu_track_collector::model::config::Message;
use gpu_track_collector::model::order::Order;
use gpu_track_collector::{KnownFile, ProcRoot, clock};
use rustix::process::{Pid, Signal, kill_process};

use crate::cli::Options;
use crate::collector_process::CANNOT_WORK;
use crate::collector_process::Collector;
use crate::console;
use crate::containers::Containers;
use crate::nodes::NodeRun;
use crate::process::main_process::MainProcess;
use crate::process::reap::{self, ChildChange};
use crate::process::signals::{self, MAX_END_REQUESTS};
use crate::run::orders::{OrderExecutor, words_of};
use crate::run::restart::{KilledCollectors, MAX_SHORT_LIVES, Successor};
use crate::run::session::Session;
use crate::run::supervise::Account;
use crate::run::untracked::Untracked;
use crate::run::wakeups::Wakeups;
use crate::shim_on_disk::old_shims::Upkeep;

/// How often the launcher checks the collector while it waits for the report. SIGCHLD comes only from a collector that
/// can be reaped.
const COLLECTOR_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// A session, its collector, and what each collector is told.
pub(crate) struct Tracked {
    session: Session,
    collector: Option<Collector>,
    containers: Containers,
    nodes: Option<NodeRun>,
    killed_collectors: KilledCollectors,
    main: Option<MainProcess>,
    /// All messages so far. A collector that replaces another gets them after its configuration.
    messages: Vec<Message>,
    shim_upkeep: Option<Upkeep>,
    is_quiet: bool,
    /// Events are not told on stderr.
    tells_no_events: bool,
    /// Accounts for the run if the collector can't work.
    fallback: Untracked,
    /// The collector could not work.
    is_untracked: bool,
}

impl Tracked {
    /// Makes the account of a run. `nodes`: its part that is on other nodes. `main`: the command, which has just been started, if
    /// there is one.
    pub(crate) fn new(
        session: Session,
        collector: Collector,
        containers: Containers,
        nodes: Option<NodeRun>,
        main: Option<MainProcess>,
        options: &Options,
    ) -> Self {
        let mut tracked = Self {
            shim_upkeep: session.shim_upkeep(),
            fallback: Untracked::beside(session.config()),
            is_untracked: false,
            session,
            collector: Some(collector),
            containers,
            nodes,
            killed_collectors: KilledCollectors::default(),
            main,
            messages: Vec::new(),
            is_quiet: options.tracking.disable_logs,
            tells_no_events: options.report.style.quiet || options.tracking.disable_logs,
        };
        tracked.attend_nodes();
        tracked
    }

    /// Tracks other nodes from now on if a program is about to reach one, or if the command does.
    fn attend_nodes(&mut self) {
        let segment = self.session.segment();
        let messages = self.nodes.as_mut().map(|nodes| nodes.attend(segment));
        messages.into_iter().flatten().for_each(|message| self.tell(message));
    }

    /// Notes that the collector ended, with this wait status, and replaces it if a signal ended it. After [`MAX_SHORT_LIVES`] short
    /// lives in a row, no other collector is started. A collector that exited has written the report, or a line that says why it
    /// can't work. In the second case, the launcher's own account takes over.
    fn collector_ended(&mut self, status: i32) {
        let Some(ended) = self.collector.take() else { return };
        if !libc::WIFSIGNALED(status) {
            let status = libc::WEXITSTATUS(status);
            // With status 0 it has written the report, even if that could not be noted (`ulimit -f`, a full /dev/shm).
            if status != 0 && !self.session.is_reported() {
                self.is_untracked = true;
                let why = match status {
                    CANNOT_WORK => "the collector could not work: a line on stderr says why".to_owned(),
                    status => format!("the collector ended with status {status}, and wrote no report"),
                };
                self.fallback.begin(why);
                self.fallback.write_without_figures(None);
            }
            return;
        }
        let signal = libc::WTERMSIG(status);
        let life_ns = clock::monotonic_ns().saturating_sub(ended.started_ns);
        let is_finishing = self.messages.iter().any(|message| matches!(message, Message::Ended(_)));
        let crashed_by = match self.killed_collectors.add(signal, life_ns, is_finishing) {
            Successor::Same => None,
            Successor::WithoutNvml => Some(signal),
            Successor::None => {
                let times = MAX_SHORT_LIVES;
                self.warn(&format!(
                    "signal {signal} ended the collector {times} times in a row; there is no report"
                ));
                return;
            }
        };
        match self.session.restart_collector(self.main.map(|main| main.pid), crashed_by) {
            Ok(mut collector) => {
                for message in &self.messages {
                    collector.messages.send(message);
                }
                self.collector = Some(collector);
            }
            Err(error) => {
                self.warn(&format!("signal {signal} ended the collector; there is no report: {error}"));
            }
        }
    }

    /// Whether the present collector has this pid.
    fn is_collector(&self, pid: u32) -> bool {
        self.collector.as_ref().is_some_and(|collector| collector.pid == pid)
    }

    /// Whether the collector's main thread is dead. It cannot be reaped while another thread is in an uninterruptible
    /// call (state D) of a GPU driver. Such a call may never return, so the launcher does not wait for it.
    fn is_collector_dead(&self) -> bool {
        let stat = self.collector.as_ref().and_then(|collector| ProcRoot::default().stat(collector.pid));
        stat.is_some_and(|stat| stat.is_dead())
    }

    /// Writes a line for the user, unless warnings are off.
    fn warn(&self, text: &str) {
        if !self.is_quiet {
            console::message(text);
        }
    }

    /// Continues the collector if something has stopped it: the run's end waits for it.
    fn continue_collector(&self) {
        let pid = self.collector.as_ref().and_then(|collector| Pid::from_raw(collector.pid.cast_signed()));
        if let Some(pid) = pid {
            let _ = kill_process(pid, Signal::CONT);
        }
    }

    /// Takes no more orders: none can be about a run that is over. Lines that the last orders have for the user are written. The
    /// collector itself tells of alerts whose command has not been run.
    fn close_orders(collector: &mut Collector, messages: &[Message], tells_no_events: bool) {
        while let Some(order) = collector.orders.next() {
            if answer_to(&order, messages).is_none()
                && let Some(words) = words_of(&order.action, tells_no_events)
            {
                // At the end, no line is worth a wait.
                let _ = console::message_without_waiting(&words);
            }
        }
        collector.orders.close();
    }

    /// Waits for the collector, which has been told that the run is over, until it has written the report and ended. Gives up
    /// when the user has asked [`MAX_END_REQUESTS`] times to end. A collector that is killed meanwhile is replaced. One whose
    /// main thread is dead at two checks in a row counts as ended, though it can't be reaped: see [`Self::is_collector_dead`].
    fn wait_for_report(&mut self, wakeups: &Wakeups) -> io::Result<()> {
        // The signal that ended the command (Ctrl-C) was sent to the launcher too. It must not end the wait.
        wakeups.discard_pending();
        let mut end_requests = 0;
        let mut was_dead = false;
        self.continue_collector();
        loop {
            // Orphans of the tree may still end. They are reaped without a record, because the run is over.
            while let Some(change) = reap::next() {
                if self.is_collector(change.pid) {
                    if libc::WIFSTOPPED(change.status) {
                        self.continue_collector();
                    } else {
                        self.collector_ended(change.status);
                    }
                }
            }
            if end_requests >= MAX_END_REQUESTS {
                return Ok(());
            }
            let Some(collector) = &mut self.collector else { return Ok(()) };
            collector.messages.flush();
            Self::close_orders(collector, &self.messages, self.tells_no_events);
            match wakeups.wait(Some(collector), Some(COLLECTOR_CHECK_INTERVAL))? {
                Some(received) => end_requests += u32::from(signals::requests_end(received.signal)),
                None => {
                    let is_dead = self.is_collector_dead();
                    if is_dead && was_dead {
                        // The collector's wait status cannot be read: 0 stands for an end with its report. Without one, it was
                        // killed.
                        self.collector_ended(if self.session.is_reported() { 0 } else { libc::SIGKILL });
                    }
                    was_dead = is_dead;
                }
            }
        }
    }
}

/// The answer to an order, if it was answered before.
fn answer_to<'a>(order: &Order, messages: &'a [Message]) -> Option<&'a Message> {
    messages.iter().find(|message| matches!(message, Message::OrderAnswered { id, .. } if *id == order.id))
}

impl Account for Tracked {
    fn collector(&self) -> Option<&Collector> {
        self.collector.as_ref()
    }

    fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Sends a message to the collector, and keeps it for those that replace it.
    fn tell(&mut self, message: Message) {
        if let (Message::Signalled(_), Some(nodes)) = (message, &mut self.nodes) {
            nodes.merge_soon();
        }
        self.messages.push(message);
        if let Some(collector) = &mut self.collector {
            collector.messages.send(&message);
        }
    }

    fn is_foreign(&self, pid: u32) -> bool {
        self.is_collector(pid)
            || self.containers.has(pid)
            || self.nodes.as_ref().is_some_and(|nodes| nodes.has(pid))
    }

    fn foreign_ended(&mut self, pid: u32, status: i32) {
        if self.containers.has(pid) {
            self.containers.serve(self.session.directory());
        } else if let Some(nodes) = self.nodes.as_mut().filter(|nodes| nodes.has(pid)) {
            nodes.ended(pid);
        } else {
            self.collector_ended(status);
        }
    }

    fn child_ended(&mut self, ended: &ChildChange, is_main: bool) {
        self.session.record(ended, is_main);
        self.fallback.child_ended(ended, is_main);
    }

    /// Tracks other nodes if a program is about to reach one. Sends the messages that found the collector's pipe full. Has the orders
    /// that have come carried out, and answers them. Does the upkeep of the shim's file, and returns the time until it is due again.
    fn attend(&mut self, executor: &mut OrderExecutor) -> Option<Duration> {
        self.attend_nodes();
        if let Some(collector) = &mut self.collector {
            collector.messages.flush();
        }
        while let Some(collector) = &mut self.collector
            && let Some(order) = collector.orders.next()
        {
            if let Some(answer) = answer_to(&order, &self.messages) {
                // The answer went to a collector that was killed, or this one issued the order again before the answer came.
                collector.messages.send(answer);
            } else if let Some(result) = executor.obey(&order) {
                let excess = order.action.excess();
                self.tell(Message::OrderAnswered { id: order.id, result, excess });
            }
        }
        let merge = self.nodes.as_mut().and_then(|nodes| nodes.merge_if_due(self.session.segment_path()));
        self.shim_upkeep.as_mut().map(Upkeep::attend).into_iter().chain(merge).min()
    }

    fn segment(&self) -> Option<KnownFile> {
        self.session.known_segment()
    }

    fn conclude(&mut self, wakeups: &Wakeups) -> io::Result<()> {
        self.session.wake_collector();
        self.wait_for_report(wakeups)?;
        self.containers.close();
        self.session.clean_up();
        if !self.is_untracked {
            return Ok(());
        }
        // The launcher's own account makes the report. It has to know what the collector was told.
        for message in &self.messages {
            self.fallback.tell(*message);
        }
        self.fallback.conclude(wakeups)
    }

    fn take_nodes(&mut self) -> Option<NodeRun> {
        self.nodes.take()
    }

    fn is_reported_by_collector(&self) -> bool {
        !self.is_untracked && self.session.is_reported()
    }
}
