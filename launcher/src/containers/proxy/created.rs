//! Whether the daemon has created a container for a request that passed on as it was sent.

use gpu_track_collector::model::containers::NotTracked;

use super::http::{MOST_OF_HEAD, end_of_head};

/// `HTTP/1.1 201`
const STATUS_END: usize = 12;

/// A reply that is waited for.
#[derive(Debug)]
pub(super) struct AwaitedReply {
    /// Why the container is not tracked.
    pub(super) why: NotTracked,
    /// What has come of the reply.
    start: Vec<u8>,
}

impl AwaitedReply {
    pub(super) fn new(why: NotTracked) -> Self {
        Self { why, start: Vec::new() }
    }

    /// Takes what the daemon has sent. Returns whether it has created the container. `None`: not known yet.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Option<bool> {
        self.start.extend_from_slice(bytes);
        loop {
            let is_http = self.start.iter().zip(b"HTTP/1.").all(|(byte, expected)| byte == expected);
            if !is_http || self.start.len() > MOST_OF_HEAD {
                return Some(false);
            }
            let status = self.start.get(..STATUS_END)?.get(STATUS_END - 3..)?;
            if status != b"100" {
                return Some(status == b"201");
            }
            // The reply itself comes after the client has sent its body.
            let end = end_of_head(&self.start)?;
            self.start.drain(..end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Requirement: SEE-140
    #[test]
    fn only_the_status_of_a_new_container_says_that_there_is_one() {
        let created = "HTTP/1.1 201 Created\r\n\r\n";
        for (text, expected) in [
            (created.to_owned(), Some(true)),
            (format!("HTTP/1.1 100 Continue\r\n\r\n{created}"), Some(true)),
            ("HTTP/1.1 409 Conflict\r\n\r\n".to_owned(), Some(false)),
            ("data 201 HTTP/1.1 201".to_owned(), Some(false)),
            (created[..11].to_owned(), None),
            (String::new(), None),
        ] {
            let mut awaited = AwaitedReply::new(NotTracked::Kept);
            let found = text.as_bytes().iter().find_map(|byte| awaited.take(&[*byte]));
            assert_eq!(found, expected, "{text}");
        }
    }
}
