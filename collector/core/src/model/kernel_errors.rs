//! Errors of the kernel in words.

use std::io;

/// What Rust puts between the words and the number of a kernel error: `No such file or directory (os error 2)`.
const MARK: &str = " (os error ";

/// Removes the numbers of kernel errors, and keeps their words. A number after any other words stays: it is part of a file's name.
pub fn without_numbers(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(MARK) {
        let (before, from_mark) = rest.split_at(at);
        out += before;
        let number = from_mark[MARK.len()..].split_once(')').and_then(|(number, _)| number.parse().ok());
        let error = number.map(|number: i32| io::Error::from_raw_os_error(number).to_string());
        // The error of this number, if its words stand before the mark.
        let error = error.filter(|error| text[..text.len() - from_mark.len()].ends_with(words_alone(error)));
        // How many bytes of `from_mark` are done with: the mark with number and parenthesis, which is left out, or the mark alone, which
        // is kept.
        let taken_bytes = match error {
            Some(error) => error.len() - words_alone(&error).len(),
            None => {
                out += MARK;
                MARK.len()
            }
        };
        rest = from_mark.get(taken_bytes..).unwrap_or_default();
    }
    out + rest
}

/// The words of an error without its number.
fn words_alone(error: &str) -> &str {
    error.rsplit_once(MARK).map_or(error, |(words, _)| words)
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
