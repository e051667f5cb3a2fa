//! Errors of the kernel in words.

use std::io;

/// Leaves out the numbers that Rust puts after the words of the kernel's errors: ` (os error 2)`. Where other words stand before such a
/// number, it is a part of a name.
pub fn without_numbers(text: &str) -> String {
    const BEGIN: &str = " (os error ";
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(BEGIN) {
        let (before, behind) = rest.split_at(at);
        out += before;
        let number = behind[BEGIN.len()..].split_once(')').and_then(|(number, _)| number.parse().ok());
        let words = number.map(|number: i32| io::Error::from_raw_os_error(number).to_string());
        // The words of an error and its number, as they would stand here.
        let error = words.filter(|words| text[..text.len() - behind.len()].ends_with(words_alone(words)));
        let length = match error {
            Some(error) => error.len() - words_alone(&error).len(),
            None => {
                out += BEGIN;
                BEGIN.len()
            }
        };
        rest = behind.get(length..).unwrap_or_default();
    }
    out + rest
}

/// The words of an error without its number.
fn words_alone(error: &str) -> &str {
    error.rsplit_once(" (os error ").map_or(error, |(words, _)| words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_kernel_have_words_and_no_numbers() {
        let error = io::Error::from_raw_os_error(2);
        let text = without_numbers(&format!("a: {error}; b (os error x): {error}: c"));
        assert_eq!(text, "a: No such file or directory; b (os error x): No such file or directory: c");
        let name = format!("\"e (os error 5)/n (os error 2).json (os error \" {error}");
        assert_eq!(
            without_numbers(&name),
            "\"e (os error 5)/n (os error 2).json (os error \" No such file or directory"
        );
    }
}
