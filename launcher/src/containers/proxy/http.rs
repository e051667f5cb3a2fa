//! Where messages of HTTP/1.1 begin and end in a stream of bytes (RFC 9112). What is unusual is not understood, and the caller then passes
//! the bytes on as they are.

use std::str;

/// Maximum number of bytes of a head.
pub(super) const MOST_OF_HEAD: usize = 64 << 10;
/// Maximum number of bytes of a line between chunks.
const MOST_OF_LINE: usize = 4 << 10;

/// The first line of a message, and its headers. All are as they were sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Head {
    /// The words of the first line. A reason phrase is one word.
    pub(super) first: [String; 3],
    /// Names in lower case, and values.
    headers: Vec<(String, String)>,
}

/// Finds the end of a head: the number of bytes up to its empty line, with that. `None`: it is not there yet.
pub(super) fn end_of_head(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|window| window == b"\r\n\r\n").map(|at| at + 4)
}

/// Whether a line of a head ends without CR. Then programs disagree about where the head ends.
pub(super) fn has_bare_line_feed(head: &[u8]) -> bool {
    head.first() == Some(&b'\n') || head.windows(2).any(|two| two[1] == b'\n' && two[0] != b'\r')
}

impl Head {
    /// Reads a whole head. `None`: it is none, or has what is not understood here.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let text = str::from_utf8(bytes).ok()?.strip_suffix("\r\n\r\n")?;
        let mut lines = text.split("\r\n");
        let mut words = lines.next()?.splitn(3, ' ').map(str::to_owned);
        let first = [words.next()?, words.next()?, words.next()?];
        let mut headers = Vec::new();
        for line in lines {
            let (name, value) = line.split_once(':')?;
            let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
            // A line that continues the one before, or a space before the colon, is read by programs in different ways.
            if name.is_empty() || !name.bytes().all(is_token) || value.contains(['\r', '\n', '\0']) {
                return None;
            }
            headers.push((name.to_ascii_lowercase(), value.trim_matches([' ', '\t']).to_owned()));
        }
        Some(Self { first, headers })
    }

    /// The only value of a header. `None`: there is no such header, or there are several.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        let mut all = self.headers.iter().filter(|(known, _)| known == name);
        all.next().filter(|_| all.next().is_none()).map(|(_, value)| value.as_str())
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.headers.iter().any(|(known, _)| known == name)
    }

    /// Whether the connection closes after this message and the reply to it.
    pub(super) fn is_last(&self) -> bool {
        let mut options = self.headers.iter().filter(|(name, _)| name == "connection");
        self.first[0] == "HTTP/1.0"
            || options
                .any(|(_, value)| value.split(',').any(|word| word.trim().eq_ignore_ascii_case("close")))
    }

    /// What follows the head. `if_unsaid`: what follows where no header says it. `None`: not understood.
    pub(super) fn body(&self, if_unsaid: Body) -> Option<Body> {
        match (self.has("transfer-encoding"), self.has("content-length")) {
            (false, false) => Some(if_unsaid),
            (true, false) => {
                let is_chunked = self.value("transfer-encoding")?.eq_ignore_ascii_case("chunked");
                is_chunked.then(|| Body::Chunked(Chunks::default()))
            }
            (false, true) => {
                let length = self.value("content-length")?;
                let is_number = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
                Some(Body::Length(length.parse().ok().filter(|_| is_number)?))
            }
            (true, true) => None,
        }
    }

    /// The head as bytes, with another length of the body.
    pub(super) fn with_length(&self, length: usize) -> Vec<u8> {
        let mut bytes = self.first.join(" ").into_bytes();
        for (name, value) in self.headers.iter().filter(|(name, _)| name != "content-length") {
            bytes.extend_from_slice(format!("\r\n{name}: {value}").as_bytes());
        }
        bytes.extend_from_slice(format!("\r\ncontent-length: {length}\r\n\r\n").as_bytes());
        bytes
    }
}

/// The body of a message, as far as it has not passed yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Body {
    /// So many bytes.
    Length(u64),
    Chunked(Chunks),
    /// All until the connection closes.
    UntilClose,
}

impl Body {
    /// Takes what belongs to the body from the start of `bytes`. Returns how many they are. `None`: not understood.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Option<usize> {
        match self {
            Self::Length(left) => {
                let taken = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= taken as u64;
                Some(taken)
            }
            Self::Chunked(chunks) => chunks.take(bytes),
            Self::UntilClose => Some(bytes.len()),
        }
    }

    pub(super) fn is_over(&self) -> bool {
        match self {
            Self::Length(left) => *left == 0,
            Self::Chunked(chunks) => chunks.at == At::End,
            Self::UntilClose => false,
        }
    }
}

/// A body in chunks (RFC 9112, section 7.1).
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Chunks {
    at: At,
    /// The line that is read, without its end.
    line: Vec<u8>,
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
enum At {
    /// The line with a chunk's size.
    #[default]
    Size,
    /// The data of a chunk, with the line break after it: this many bytes are left.
    Data(u64),
    /// Lines after the last chunk.
    Trailer,
    End,
}

impl Chunks {
    fn take(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut taken = 0;
        while self.at != At::End {
            let Some(rest) = bytes.get(taken..).filter(|rest| !rest.is_empty()) else { break };
            if let At::Data(left) = &mut self.at {
                let part = rest.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= part as u64;
                taken += part;
                if *left == 0 {
                    self.at = At::Size;
                }
                continue;
            }
            let part = rest.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |at| at + 1);
            self.line.extend_from_slice(rest.get(..part)?);
            taken += part;
            if self.line.len() > MOST_OF_LINE {
                return None;
            }
            if self.line.ends_with(b"\n") {
                self.end_line()?;
            }
        }
        Some(taken)
    }

    fn end_line(&mut self) -> Option<()> {
        let line = std::mem::take(&mut self.line);
        let line = str::from_utf8(&line).ok()?.strip_suffix("\r\n")?;
        self.at = match self.at {
            At::Size => {
                let size = line.split(';').next()?.trim_end();
                let is_number = !size.is_empty() && size.bytes().all(|byte| byte.is_ascii_hexdigit());
                match u64::from_str_radix(size, 16).ok().filter(|_| is_number)? {
                    0 => At::Trailer,
                    size => At::Data(size.checked_add(2)?),
                }
            }
            _ if line.is_empty() => At::End,
            _ => At::Trailer,
        };
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> Option<Head> {
        Head::parse(text.replace('\n', "\r\n").as_bytes())
    }

    #[test]
    fn heads_are_read_as_they_are_and_unusual_ones_not_at_all() {
        let parsed = head("POST /a?b=c HTTP/1.1\nHost: x\nContent-Length: 12\nX: a: b \n\n").unwrap();
        assert_eq!(parsed.first, ["POST", "/a?b=c", "HTTP/1.1"]);
        assert_eq!((parsed.value("host"), parsed.value("x")), (Some("x"), Some("a: b")));
        assert_eq!(parsed.body(Body::Length(0)), Some(Body::Length(12)));
        let is_last = |line: &str| head(&format!("GET / HTTP/1.1\n{line}\n\n")).unwrap().is_last();
        assert!(is_last("connection: Keep-Alive, Close") && !is_last("Connection: keep-alive"));
        let longer = String::from_utf8(parsed.with_length(345)).unwrap();
        assert_eq!(longer, "POST /a?b=c HTTP/1.1\r\nhost: x\r\nx: a: b\r\ncontent-length: 345\r\n\r\n");
        for unusual in [
            "GET /\n\n",
            "GET / HTTP/1.1\n folded\n\n",
            "GET / HTTP/1.1\nA : b\n\n",
            "GET / HTTP/1.1\nA: b\n",
        ] {
            assert_eq!(head(unusual), None, "{unusual:?}");
        }
        for unusual in [
            "Content-Length: 1\nTransfer-Encoding: chunked",
            "Content-Length: +1",
            "Content-Length: 1\nContent-Length: 1",
            "Transfer-Encoding: gzip, chunked",
        ] {
            let parsed = head(&format!("GET / HTTP/1.1\n{unusual}\n\n")).unwrap();
            assert_eq!(parsed.body(Body::Length(0)), None, "{unusual}");
        }
        assert_eq!(end_of_head(b"GET / HTTP/1.1\r\n\r\nmore"), Some(18));
    }

    #[test]
    fn chunks_end_where_the_last_one_does_however_they_come() {
        let text = b"4;x=y\r\nWiki\r\nA\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\nNEXT";
        for step in 1..text.len() {
            let mut body = Body::Chunked(Chunks::default());
            let mut taken = 0;
            for part in text.chunks(step) {
                let of_body = body.take(part).unwrap();
                taken += of_body;
                if body.is_over() {
                    break;
                }
                assert_eq!(of_body, part.len());
            }
            assert_eq!((body.is_over(), taken), (true, text.len() - 4), "{step}");
        }
        for bad in [&b"x\r\n"[..], b"4\n", b"-1\r\n", b"ffffffffffffffff\r\n", b"\r\n"] {
            assert_eq!(Body::Chunked(Chunks::default()).take(bad), None);
        }
    }
}
