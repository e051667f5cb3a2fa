//! Errors of the kernel in words.

/// Leaves out the numbers that Rust puts behind the words of the kernel's errors: ` (os error 2)`.
pub fn without_numbers(text: &str) -> String {
    let mut parts = text.split(" (os error ");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once(')') {
            Some((number, rest)) if number.bytes().all(|byte| byte.is_ascii_digit()) => out += rest,
            _ => out.extend([" (os error ", part]),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn errors_of_the_kernel_have_words_and_no_numbers() {
        let error = io::Error::from_raw_os_error(2);
        let text = without_numbers(&format!("a: {error}; b (os error x): {error}: c"));
        assert_eq!(text, "a: No such file or directory; b (os error x): No such file or directory: c");
    }
}
