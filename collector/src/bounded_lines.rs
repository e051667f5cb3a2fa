//! Reads a file line by line. Another program may have written the file, so a very long line must not fill the memory.

use std::io::{self, BufRead, Read};

/// Maximum number of bytes of a line. A tracking file's longest line, its report, is far shorter.
const LONGEST_LINE: u64 = 16 << 20;

/// The lines of a file, without their line breaks. The last one may lack a line break. After an error, as for a line that is
/// too long, no more lines follow.
pub fn bounded_lines(mut reader: impl BufRead) -> impl Iterator<Item = io::Result<Vec<u8>>> {
    let mut is_over = false;
    std::iter::from_fn(move || {
        if is_over {
            return None;
        }
        let next = next_line(&mut reader);
        is_over = next.is_err();
        next.transpose()
    })
}

/// Reads the next line. `None`: there is none.
fn next_line(reader: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    // One byte more than a line may have, so that the limit shows.
    let read = reader.by_ref().take(LONGEST_LINE + 1).read_until(b'\n', &mut line)?;
    if line.last() == Some(&b'\n') {
        line.pop();
    }
    if line.len() as u64 > LONGEST_LINE {
        return Err(io::Error::other("a line is longer than 16 MiB"));
    }
    Ok((read > 0).then_some(line))
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use super::*;

    #[test]
    fn lines_are_whole_and_the_last_one_needs_no_end() {
        let lines: Vec<_> = bounded_lines(&b"a\n\nb"[..]).map(Result::unwrap).collect();
        assert_eq!(lines, [&b"a"[..], b"", b"b"]);
    }

    // Requirement: WATCH-1
    #[test]
    fn endless_line_is_an_error_and_the_end() {
        let mut lines = bounded_lines(BufReader::new(io::repeat(0)));
        assert_eq!(lines.next().unwrap().unwrap_err().to_string(), "a line is longer than 16 MiB");
        assert!(lines.next().is_none());
    }
}
