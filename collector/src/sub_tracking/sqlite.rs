//! Reads cells of databases that the Python program gpu_tracker may have written, with numbers as texts or as reals.

use rusqlite::types::ValueRef;

/// The finite number in a cell, which can be a text. `None`: the cell has none.
pub(super) fn number(cell: ValueRef<'_>) -> Option<f64> {
    match cell {
        ValueRef::Integer(number) => Some(number as f64),
        ValueRef::Real(number) => Some(number).filter(|number| number.is_finite()),
        ValueRef::Text(text) => super::csv::number(text),
        ValueRef::Null | ValueRef::Blob(_) => None,
    }
}

/// The whole number in a cell, which can be a text, or a real number without a fraction. `None`: the cell has none.
pub(super) fn whole(cell: ValueRef<'_>) -> Option<i64> {
    match cell {
        ValueRef::Integer(number) => Some(number),
        ValueRef::Real(number) => Some(number as i64).filter(|whole| *whole as f64 == number),
        ValueRef::Text(text) => str::from_utf8(text).ok()?.trim().parse().ok(),
        ValueRef::Null | ValueRef::Blob(_) => None,
    }
}
