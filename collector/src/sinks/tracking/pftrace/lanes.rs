//! Which track (line of the picture) a process's slice (bar) is drawn on. Slices of one track must not overlap, or a reader pairs their
//! ends wrongly.
//!
//! A process comes when its figures are final, so processes come about in the order of their ends. Of a track, only the end of
//! its last slice is remembered. A process can be drawn on the track if it begins after that end. Of several such tracks, it
//! gets the one whose last slice ended last; the others stay free for processes that began earlier.
//!
//! This is interval scheduling (M. C. Carlisle and E. L. Lloyd 1995). If processes come in the order of their ends, a name gets no
//! more tracks than processes of it lived at one time. So memory grows with the processes that live at one time, not with
//! those that ended. A process whose figures become final late may need one more track.
//!
//! A collector that follows a killed one remembers no tracks. It draws on new ones, so nothing overlaps.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

/// Maximum number of tracks that are remembered. Even a large machine has hardly more processes at one time.
const MAX_TRACKS: usize = 65_536;

/// The tracks of processes, by the names of the processes.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    /// The tracks of each name. An entry has the end of the track's last slice, CLOCK_MONOTONIC nanoseconds, and its number.
    by_name: FxHashMap<String, BTreeSet<(u64, u64)>>,
    /// How many tracks `by_name` has.
    remembered: usize,
    /// How many tracks were given out, forgotten ones included.
    count: u64,
}

/// The track for a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lane {
    /// Its number, from 0 on.
    pub number: u64,
    /// Whether this process is the first one on it.
    pub is_new: bool,
}

impl Lanes {
    /// Returns the track for a process of this name, and remembers `end_ns` as the end of the track's last slice. Times are
    /// CLOCK_MONOTONIC nanoseconds.
    pub(super) fn take(&mut self, name: &str, start_ns: u64, end_ns: u64) -> Lane {
        // Forgotten tracks get no more slices; new tracks take their place.
        if self.remembered >= MAX_TRACKS {
            (self.by_name, self.remembered) = (FxHashMap::default(), 0);
        }
        // `entry` alone would copy the name each time.
        let lanes = match self.by_name.get_mut(name) {
            Some(lanes) => lanes,
            None => self.by_name.entry(name.to_owned()).or_default(),
        };
        // The track whose last slice ended last before this process began.
        let free = lanes.range(..(start_ns, 0)).next_back().copied();
        let lane = match free {
            Some(last) => {
                lanes.remove(&last);
                Lane { number: last.1, is_new: false }
            }
            None => {
                let number = self.count;
                self.count += 1;
                self.remembered += 1;
                Lane { number, is_new: true }
            }
        };
        lanes.insert((end_ns, lane.number));
        lane
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The most that overlap at one time. What ends when another begins overlaps with it.
    fn depth(spans: &[(u64, u64)]) -> usize {
        let at = |time: u64| spans.iter().filter(|(start, end)| (*start..=*end).contains(&time)).count();
        spans.iter().map(|(start, _)| at(*start)).max().unwrap_or(0)
    }

    /// The spans of each track.
    fn drawn(spans: &[(u64, u64)]) -> FxHashMap<u64, Vec<(u64, u64)>> {
        let (mut lanes, mut drawn) = (Lanes::default(), FxHashMap::<_, Vec<_>>::default());
        for (start, end) in spans {
            let lane = lanes.take("a", *start, *end);
            assert_eq!(lane.is_new, !drawn.contains_key(&lane.number));
            drawn.entry(lane.number).or_default().push((*start, *end));
        }
        drawn
    }

    fn spans() -> impl Strategy<Value = Vec<(u64, u64)>> {
        let span = (0..100_u64, 0..20_u64).prop_map(|(start, length)| (start, start + length));
        proptest::collection::vec(span, 1..60)
    }

    proptest! {
        // Requirement: TIME-20
        #[test]
        fn slices_of_a_track_never_overlap_in_whatever_order_they_come(spans in spans()) {
            for track in drawn(&spans).values() {
                prop_assert!(track.is_sorted_by(|before, after| before.1 < after.0), "{track:?}");
            }
        }

        #[test]
        fn in_the_order_of_ends_there_are_no_more_tracks_than_overlap(mut spans in spans()) {
            spans.sort_by_key(|span| span.1);
            prop_assert_eq!(drawn(&spans).len(), depth(&spans));
        }
    }

    #[test]
    fn names_share_no_track_and_memory_is_bounded() {
        let mut lanes = Lanes::default();
        assert_ne!(lanes.take("a", 1, 2).number, lanes.take("b", 3, 4).number);
        assert!(!lanes.take("a", 3, 4).is_new);
        let all_at_once = (0..2 * MAX_TRACKS as u64 + 10).map(|_| lanes.take("a", 5, 6));
        assert!(all_at_once.map(|lane| lane.number).is_sorted_by(|a, b| a < b));
        assert!(lanes.by_name.values().map(BTreeSet::len).sum::<usize>() <= MAX_TRACKS);
    }
}
