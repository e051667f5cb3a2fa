//! Paths of values over time. A point of the series is a step: its value holds for all of its time. Where the value is unknown,
//! nothing is drawn. Whole numbers and relative moves keep a path small.

use std::fmt::Write as _;

use super::time::Time;

/// Units from the top of a path to its bottom: a tenth of a percent each.
pub(super) const HEIGHT: f64 = 1000.0;

/// A value that holds for a time, in the units of a path.
struct Step {
    left: i64,
    right: i64,
    y: i64,
}

/// Draws a line along the values, as the text of a path. `top`: the value at the top of the plot.
pub(super) fn line(time: &Time, values: impl IntoIterator<Item = Option<f64>>, top: f64) -> String {
    let mut path = String::new();
    for stretch in stretches(time, values, top) {
        let _infallible = write!(path, "M{} {}", stretch[0].left, stretch[0].y);
        push_steps(&mut path, &stretch);
    }
    path
}

/// Draws the areas below the values, as the text of a path. `top`: the value at the top of the plot.
pub(super) fn area(time: &Time, values: impl IntoIterator<Item = Option<f64>>, top: f64) -> String {
    let mut path = String::new();
    for stretch in stretches(time, values, top) {
        let _infallible = write!(path, "M{} {HEIGHT}V{}", stretch[0].left, stretch[0].y);
        push_steps(&mut path, &stretch);
        let _infallible = write!(path, "V{HEIGHT}Z");
    }
    path
}

/// The known values as steps, in stretches: an unknown value or a gap in time ends a stretch. No stretch is empty. `top`: the
/// value at the top of the plot.
fn stretches(time: &Time, values: impl IntoIterator<Item = Option<f64>>, top: f64) -> Vec<Vec<Step>> {
    let mut stretches: Vec<Vec<Step>> = Vec::new();
    for (start_s, end_s, value) in time.points(values) {
        let Some(value) = value.filter(|value| value.is_finite()) else { continue };
        let y = HEIGHT as i64 - (value / top * HEIGHT).clamp(0.0, HEIGHT).round() as i64;
        let step = Step { left: time.x(start_s), right: time.x(end_s), y };
        let is_continued = |steps: &&mut Vec<Step>| steps.last().is_some_and(|last| last.right == step.left);
        match stretches.last_mut().filter(is_continued) {
            Some(stretch) => stretch.push(step),
            None => stretches.push(vec![step]),
        }
    }
    stretches
}

/// Adds a stretch to a path whose last point is the left end of the stretch's first step. The moves are relative: `v` is down,
/// `h` is right. Steps of one height are one move.
fn push_steps(path: &mut String, stretch: &[Step]) {
    let mut y = stretch[0].y;
    for steps in stretch.chunk_by(|a, b| a.y == b.y) {
        let length = steps[steps.len() - 1].right - steps[0].left;
        if steps[0].y != y {
            let _infallible = write!(path, "v{}", steps[0].y - y);
        }
        if length > 0 {
            let _infallible = write!(path, "h{length}");
        }
        y = steps[0].y;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::report::Series;
    use crate::units::Units;
    use gpu_track_core::fixtures::full;

    // Requirement: OUT-34
    #[test]
    fn steps_hold_for_their_time_and_unknown_is_a_gap() {
        let units = Units::choose(&full(), &crate::model::style::Style::default());
        let series = Series {
            start_s: vec![0.0, 1.0, 2.0, 3.0, 4.0],
            end_s: vec![1.0, 2.0, 3.0, 4.0, 5.0],
            ..Series::default()
        };
        let time = Time::new(&series, 5.0, units);
        let values = [Some(5.0), Some(5.0), None, Some(10.0), Some(0.0)];
        assert_eq!(line(&time, values, 10.0), "M0 500h800M1200 0h400v1000h400");
        assert_eq!(area(&time, values, 10.0), "M0 1000V500h800V1000ZM1200 1000V0h400v1000h400V1000Z");
        assert_eq!(line(&time, [None; 5], 10.0), "");
        assert_eq!(
            line(&time, [Some(f64::NAN), Some(99.0)], 10.0),
            "M400 0h400",
            "no more than the chart is high"
        );
    }
}
