//! The variables of `--by-env`: their names for the segment's header, and the marks of tasks that the launcher inherited.

use std::os::unix::ffi::OsStringExt;
use std::{env, iter};

use gpu_track_abi::task::{self, ArgumentMark, KINDS, MAX_NAMES, Marks, NAMES_BYTES};

use super::values::ValueError;

/// Names of variables that mark tasks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TaskVariables(Vec<String>);

/// Parses the value of `--by-env`.
///
/// # Errors
/// If a name can't be one of a variable, or if there are too many.
pub(crate) fn task_variables(given: &str) -> Result<TaskVariables, ValueError> {
    // Each name has a NUL in the header.
    const MOST_BYTES: usize = NAMES_BYTES / MAX_NAMES - 1;
    let names: Vec<String> = given.split(',').map(|name| name.trim().to_owned()).collect();
    let is_name = |name: &String| !name.is_empty() && name.len() <= MOST_BYTES && !name.contains(['=', '\0']);
    if names.len() > MAX_NAMES || !names.iter().all(is_name) {
        let allowed = format!("up to {MAX_NAMES} names of variables, each of up to {MOST_BYTES} bytes");
        return Err(ValueError::new(given, allowed));
    }
    Ok(TaskVariables(names))
}

impl TaskVariables {
    /// The value of the option.
    pub(crate) fn given(&self) -> String {
        self.0.join(",")
    }

    /// The names for the segment's header.
    pub(crate) fn listed(&self) -> [u8; NAMES_BYTES] {
        let mut list = [0; NAMES_BYTES];
        let bytes = self.0.iter().flat_map(|name| name.bytes().chain([0]));
        list.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
        list
    }
}

/// The marks of this process's environment, which the command inherits. They are no tasks of the run. A value of a variable of `--by-env`
/// is one, because it can be set again within another value.
pub(crate) fn inherited_marks() -> [u32; KINDS] {
    let variables = task::VARIABLES.map(|name| env::var_os(name).map(OsStringExt::into_vec));
    let variables = variables.each_ref().map(|value| value.as_deref());
    let marks = Marks { variables, argument: ArgumentMark::None };
    marks.keys(iter::empty(), |_| None, &[0; KINDS]).hashes
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: TASK-2
    #[test]
    fn names_are_checked_and_listed() {
        let two = task_variables("SAMPLE, STEP").unwrap();
        assert_eq!(two.given(), "SAMPLE,STEP");
        let names: Vec<Vec<u8>> = task::names(&two.listed()).map(<[u8]>::to_vec).collect();
        assert_eq!(names, [b"SAMPLE".to_vec(), b"STEP".to_vec()]);
        for wrong in ["", "A,", "A=b", "A,B,C,D,E", &"x".repeat(64)] {
            assert!(task_variables(wrong).is_err(), "{wrong}");
        }
        assert_eq!(TaskVariables::default().listed(), [0; 256]);
    }
}
