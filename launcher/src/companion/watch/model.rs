//! What the view shows, and how readings and keys change it.

use std::collections::HashMap;

use gpu_track_collector::model::style::{Console, RamUnit};
use ratatui_crossterm::crossterm::event::KeyCode as Key;

use super::frame::{Frame, Process, Reading, Run, Stage};
use super::history::History;
use super::peaks::Peaks;
use super::tree::{self, Rates, Row, Shape};

/// Rows that a page key passes.
const PAGE_ROWS: isize = 10;
/// Most characters of what is typed.
const MOST_TYPED: usize = 40;

/// What is being typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Prompt {
    /// Part of the commands' names.
    Filter,
    /// A time in the run, seconds.
    Time,
}

/// What a key asks for beside what it changes in the model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Asked {
    /// Nothing: the key has done all that it does.
    Nothing,
    /// The end of the program.
    Quit,
    /// Another moment of a finished run, seconds after its start.
    Moment(f64),
}

/// What the view shows.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Model {
    pub(super) run: Run,
    pub(super) frame: Frame,
    pub(super) history: History,
    pub(super) peaks: Peaks,
    pub(super) shape: Shape,
    /// The rows of the processes.
    pub(super) rows: Vec<Row>,
    /// Processes that have no row, because they are too deep in the tree or there are too many rows.
    pub(super) unlisted: u64,
    /// The place in [`Self::rows`] of the row that keys are for.
    pub(super) selected: usize,
    /// The user has frozen the view: readings of a run that goes on change only history and peaks.
    pub(super) is_frozen: bool,
    /// An explanation of the keys is shown in place of all else.
    pub(super) has_help: bool,
    /// What is being typed, and the text so far.
    pub(super) prompt: Option<(Prompt, String)>,
    /// Unit of RAM and GPU memory. `None`: for each figure the largest that fits.
    pub(super) unit: Option<RamUnit>,
    /// What the terminal can show.
    pub(super) console: Console,
    /// The view is on a terminal, where keys are obeyed. Otherwise it becomes text.
    pub(super) is_interactive: bool,
    /// CPU utilization of the processes.
    pub(super) rates: Rates,
}

impl Model {
    /// Takes in a reading. Returns whether the view is to be drawn anew. While the user has frozen the view, readings of a run
    /// that goes on change only history and peaks. Readings of a finished run are always shown, since the user has asked for
    /// their moment.
    pub(super) fn take(&mut self, reading: Reading) -> bool {
        let Reading { run, frame, points, peaks } = reading;
        // A reading without a command has no summary of the run: the last one stays.
        let is_known = !run.command.is_empty();
        for point in points {
            self.history.push(point);
        }
        self.peaks.raise(&peaks);
        self.peaks.raise_cpu(frame.cpu_percent);
        self.peaks.raise_gpus(&frame.gpus);
        if self.is_frozen && frame.stage != Stage::Replayed {
            return false;
        }
        let is_new = frame != self.frame || (is_known && run != self.run);
        if is_new {
            self.rates = rates(&self.frame, &frame, &self.rates);
            self.frame = frame;
            if is_known {
                self.run = run;
            }
            self.rebuild();
        }
        is_new
    }

    /// Obeys a key. Returns what the caller has to do for it.
    pub(super) fn press(&mut self, key: Key) -> Asked {
        if self.prompt.is_some() {
            return self.type_in(key);
        }
        // Any key closes the help, and does nothing else, but `q` ends the program.
        if std::mem::take(&mut self.has_help) && key != Key::Char('q') {
            return Asked::Nothing;
        }
        match key {
            Key::Char('q') => return Asked::Quit,
            Key::Char('?') => self.has_help = true,
            Key::Char('s') => self.shape.sort = self.shape.sort.next(),
            Key::Char('c') => self.shape.is_each_process = !self.shape.is_each_process,
            Key::Char('f' | ' ') => self.is_frozen = !self.is_frozen,
            Key::Char('u') => self.unit = next_unit(self.unit),
            Key::Char('/') => self.prompt = Some((Prompt::Filter, self.shape.filter.clone())),
            Key::Char('t') if self.run.length_s.is_some() => {
                self.prompt = Some((Prompt::Time, String::new()))
            }
            Key::Esc => self.shape.filter.clear(),
            Key::Enter => self.fold(),
            Key::Up => self.select(-1),
            Key::Down => self.select(1),
            Key::PageUp => self.select(-PAGE_ROWS),
            Key::PageDown => self.select(PAGE_ROWS),
            Key::Left | Key::Right | Key::Home | Key::End => return self.moment_for(key),
            _ => {}
        }
        self.rebuild();
        Asked::Nothing
    }

    /// The moment that an arrow, Home or End asks for: a hundredth of a finished run away, or one of its ends. A run that
    /// goes on has no other moments.
    fn moment_for(&self, key: Key) -> Asked {
        let Some(length_s) = self.run.length_s else { return Asked::Nothing };
        let step_s = length_s / 100.0;
        let to_s = match key {
            Key::Left => self.frame.at_s - step_s,
            Key::Right => self.frame.at_s + step_s,
            Key::Home => 0.0,
            _ => length_s,
        };
        Asked::Moment(to_s.clamp(0.0, length_s))
    }

    /// Adds a key to what is being typed. Enter uses the text as the filter or as the moment to go to, and Escape drops it.
    fn type_in(&mut self, key: Key) -> Asked {
        let Some((prompt, mut text)) = self.prompt.take() else { return Asked::Nothing };
        match key {
            Key::Esc => return Asked::Nothing,
            Key::Enter if prompt == Prompt::Time => {
                // What is no number is no time.
                let asked = text.trim().parse().ok().filter(|s: &f64| s.is_finite());
                return asked.map_or(Asked::Nothing, |s| {
                    Asked::Moment(s.clamp(0.0, self.run.length_s.unwrap_or(0.0)))
                });
            }
            Key::Enter => {
                self.shape.filter = text;
                self.selected = 0;
                self.rebuild();
                return Asked::Nothing;
            }
            Key::Backspace => drop(text.pop()),
            Key::Char(c) if text.chars().count() < MOST_TYPED && !c.is_control() => text.push(c),
            _ => {}
        }
        self.prompt = Some((prompt, text));
        Asked::Nothing
    }

    /// Folds the children of the selected row, or shows them again.
    fn fold(&mut self) {
        let Some(row) = self.rows.get(self.selected).filter(|row| row.has_children) else { return };
        if !self.shape.folded.remove(&row.key) {
            self.shape.folded.insert(row.key.clone());
        }
    }

    /// Moves the selection by so many rows. [`Self::rebuild`] keeps it within the rows.
    fn select(&mut self, by: isize) {
        self.selected = self.selected.saturating_add_signed(by);
    }

    /// Makes the rows anew. The selection stays at its place, as far as there are rows.
    fn rebuild(&mut self) {
        (self.rows, self.unlisted) = tree::rows(&self.frame, &self.rates, &self.shape);
        self.selected = self.selected.min(self.rows.len().saturating_sub(1));
    }
}

/// The unit after this one. After the last comes `None`, for the largest unit that fits each figure.
fn next_unit(unit: Option<RamUnit>) -> Option<RamUnit> {
    let at = unit.and_then(|unit| RamUnit::ALL.iter().position(|other| *other == unit));
    RamUnit::ALL.get(at.map_or(0, |at| at + 1)).copied()
}

/// The CPU utilization of the processes between two moments, percent of one core. Processes whose CPU time is not known at both
/// moments are left out. If no time has passed, returns `known`, the utilization up to `before`.
fn rates(before: &Frame, now: &Frame, known: &Rates) -> Rates {
    // CPU time in a tracking file is that of the whole life, so there is no difference between moments.
    if now.stage == Stage::Replayed {
        return Rates::new();
    }
    let passed_s = now.at_s - before.at_s;
    if passed_s <= 0.0 {
        return known.clone();
    }
    // A pid alone can be used again.
    let key = |process: &Process| Some((process.pid?, process.start_ns));
    let cpu_s_before: HashMap<(u64, u64), f64> =
        before.listed.iter().filter_map(|process| Some((key(process)?, process.cpu_s?))).collect();
    let rate = |process: &Process| {
        let key = key(process)?;
        // Another program may have written the live file, with CPU time that goes back.
        let used_s = (process.cpu_s? - cpu_s_before.get(&key)?).max(0.0);
        Some((key, used_s / passed_s * 100.0))
    };
    now.listed.iter().filter_map(rate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(at_s: f64, cpu_s: f64) -> Frame {
        let command = |pid, name: &str, cpu_s| Process {
            pid: Some(pid),
            parent_pid: pid.checked_sub(1),
            command: name.into(),
            cpu_s: Some(cpu_s),
            ..Process::default()
        };
        let listed = vec![command(1, "sh", 0.0), command(2, "work", cpu_s)];
        Frame { at_s, listed, stage: Stage::Running, cpu_percent: Some(cpu_s), ..Frame::default() }
    }

    fn reading(at_s: f64, cpu_s: f64) -> Reading {
        Reading { frame: frame(at_s, cpu_s), ..Reading::default() }
    }

    fn press(model: &mut Model, keys: &str) -> Asked {
        keys.chars().fold(Asked::Nothing, |_, key| match key {
            '\n' => model.press(Key::Enter),
            _ => model.press(Key::Char(key)),
        })
    }

    // Requirement: WATCH-2
    #[test]
    fn utilization_of_a_process_is_that_between_two_readings_and_peaks_stay() {
        let mut model = Model::default();
        assert!(model.take(reading(1.0, 2.0)));
        assert_eq!(model.rows[1].cpu_percent, None, "one reading has no rate");
        assert!(model.take(reading(1.5, 3.0)));
        assert_eq!(model.rows[1].cpu_percent, Some(200.0));
        assert!(!model.take(reading(1.5, 3.0)), "nothing new is not drawn");
        model.take(reading(2.0, 1.0));
        assert_eq!((model.rows[1].cpu_percent, model.peaks.cpu_percent), (Some(0.0), Some(3.0)));
    }

    #[test]
    fn frozen_view_stays_and_goes_on_later() {
        let mut model = Model::default();
        model.take(reading(1.0, 2.0));
        press(&mut model, "f");
        assert!(!model.take(reading(2.0, 2.5)) && model.frame.at_s == 1.0);
        press(&mut model, "f");
        assert!(model.take(reading(3.0, 4.0)) && model.frame.at_s == 3.0);
    }

    #[test]
    fn keys_sort_fold_filter_and_change_units() {
        let mut model = Model::default();
        model.take(reading(1.0, 2.0));
        assert_eq!(model.rows.len(), 2);
        press(&mut model, "\n");
        assert!(model.rows.len() == 1 && model.rows[0].is_folded);
        press(&mut model, "\n/WOR\n");
        assert_eq!((model.rows.len(), model.rows[0].command.as_str()), (1, "work"));
        model.press(Key::Esc);
        assert_eq!(model.rows.len(), 2);
        for _ in 0..99 {
            model.press(Key::Down);
        }
        assert_eq!(model.selected, 1);
        press(&mut model, "su");
        assert_eq!((model.shape.sort, model.unit), (tree::Sort::Cpu, Some(RamUnit::Bytes)));
        press(&mut model, "uuuuu");
        assert_eq!(model.unit, None);
        press(&mut model, "?");
        assert!(model.has_help);
        assert_eq!(press(&mut model, "s"), Asked::Nothing);
        assert!(!model.has_help && model.shape.sort == tree::Sort::Cpu, "the key closes the help alone");
        assert_eq!(press(&mut model, "q"), Asked::Quit);
    }

    // Requirement: WATCH-3
    #[test]
    fn keys_jump_in_a_finished_run_only() {
        let mut model = Model::default();
        model.take(reading(1.0, 2.0));
        assert_eq!(model.press(Key::End), Asked::Nothing);
        assert_eq!(press(&mut model, "t90\n"), Asked::Nothing);
        model.run.length_s = Some(200.0);
        assert_eq!(press(&mut model, "t90\n"), Asked::Moment(90.0));
        assert_eq!(press(&mut model, "t900\n"), Asked::Moment(200.0));
        assert_eq!(press(&mut model, "tx1\n"), Asked::Nothing);
        assert_eq!(
            [model.press(Key::Left), model.press(Key::Right)],
            [Asked::Moment(0.0), Asked::Moment(3.0)]
        );
        assert_eq!(
            [model.press(Key::Home), model.press(Key::End)],
            [Asked::Moment(0.0), Asked::Moment(200.0)]
        );
    }
}
