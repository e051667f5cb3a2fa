//! The requests of a connection, of which all pass on as they are but those that create a container.

use super::http::{Body, Head, MOST_OF_HEAD, end_of_head, has_bare_line_feed};

/// Maximum number of bytes of the request for a container that is looked at. Docker's own are below 10 kB.
const MOST_OF_CREATE: u64 = 4 << 20;

/// A request that creates a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CreateRequest {
    pub(super) head: Head,
    /// The head as it was sent.
    head_bytes: Vec<u8>,
    pub(super) body: Vec<u8>,
}

impl CreateRequest {
    /// The request as it was sent.
    pub(super) fn bytes(&self) -> Vec<u8> {
        [&self.head_bytes[..], &self.body].concat()
    }
}

/// Reads what a client sends.
#[derive(Debug)]
pub(super) struct Requests {
    stage: Stage,
    /// What has come and is not passed on yet.
    input: Vec<u8>,
    /// The daemon has replied since the last request. A client that does not wait for that must not get the replies in another order.
    is_replied: bool,
}

#[derive(Debug)]
enum Stage {
    /// A head comes next.
    Head,
    Body(Body),
    /// The body of a request that creates a container.
    Create(Head, Vec<u8>),
    /// All that follows passes on: it is no longer HTTP/1.1, or not understood.
    Rest,
}

impl Requests {
    pub(super) fn new() -> Self {
        Self { stage: Stage::Head, input: Vec::new(), is_replied: true }
    }

    /// Passes all on: what comes may begin in the middle of a request.
    pub(super) fn of_killed_proxy() -> Self {
        Self { stage: Stage::Rest, ..Self::new() }
    }

    /// The request for a container that these bytes are.
    #[cfg(test)]
    pub(super) fn read(bytes: &[u8]) -> Option<CreateRequest> {
        Self::new().take(bytes, &mut Vec::new())
    }

    /// Whether all that has come is passed on.
    pub(super) fn is_passed_on(&self) -> bool {
        self.input.is_empty() && !matches!(self.stage, Stage::Create(..))
    }

    /// Notes that the daemon has sent something.
    pub(super) fn note_reply(&mut self) {
        self.is_replied = true;
    }

    /// Takes what the client has sent. Adds what is to be passed on to `output`. Returns a request to create a container: what follows it
    /// waits for the next call.
    pub(super) fn take(&mut self, bytes: &[u8], output: &mut Vec<u8>) -> Option<CreateRequest> {
        self.input.extend_from_slice(bytes);
        loop {
            match &mut self.stage {
                Stage::Rest => {
                    output.append(&mut self.input);
                    return None;
                }
                Stage::Head => {
                    let Some(end) = end_of_head(&self.input) else {
                        if self.input.len() <= MOST_OF_HEAD && !has_bare_line_feed(&self.input) {
                            return None;
                        }
                        self.stage = Stage::Rest;
                        continue;
                    };
                    self.begin(end, output);
                }
                Stage::Body(body) => {
                    let Some(length) = body.take(&self.input) else {
                        self.stage = Stage::Rest;
                        continue;
                    };
                    output.extend(self.input.drain(..length));
                    if !body.is_over() {
                        return None;
                    }
                    (self.stage, self.is_replied) = (Stage::Head, false);
                }
                Stage::Create(head, head_bytes) => {
                    let length = create_length(head)?;
                    if self.input.len() < length {
                        return None;
                    }
                    let (head, head_bytes) = (head.clone(), std::mem::take(head_bytes));
                    let body = self.input.drain(..length).collect();
                    (self.stage, self.is_replied) = (Stage::Head, false);
                    return Some(CreateRequest { head, head_bytes, body });
                }
            }
        }
    }

    /// The client sends no more: what has not passed on yet does so now.
    pub(super) fn end(&mut self, output: &mut Vec<u8>) {
        if let Stage::Create(_, head) = &mut self.stage {
            output.append(head);
        }
        output.append(&mut self.input);
        self.stage = Stage::Rest;
    }

    /// Begins with the request whose head is the first `end` bytes.
    fn begin(&mut self, end: usize, output: &mut Vec<u8>) {
        let bytes: Vec<u8> = self.input.drain(..end).collect();
        let Some(head) = Head::parse(&bytes) else {
            output.extend(bytes);
            self.stage = Stage::Rest;
            return;
        };
        self.stage = if self.is_replied && create_length(&head).is_some() {
            Stage::Create(head, bytes)
        } else {
            output.extend(bytes);
            after(&head)
        };
    }
}

/// What follows the head of a request that is passed on.
fn after(head: &Head) -> Stage {
    let [method, target, version] = &head.first;
    let path = path_of(target);
    // The daemon takes over such a connection for a stream in both directions, with or without an upgrade.
    let is_taken_over = head.has("upgrade") || path.ends_with("/attach") || path.starts_with("/exec/");
    if version != "HTTP/1.1" || method == "CONNECT" || is_taken_over {
        return Stage::Rest;
    }
    head.body(Body::Length(0)).map_or(Stage::Rest, Stage::Body)
}

/// The path of a request without its query, and without the version of the API before it.
fn path_of(target: &str) -> &str {
    let path = target.split_once('?').map_or(target, |(path, _)| path);
    let version = path.strip_prefix("/v").and_then(|rest| rest.split_once('/'));
    let is_version = |version: &str| version.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let version = version.filter(|(version, _)| is_version(version));
    version.and_then(|(version, _)| path.get(version.len() + 2..)).unwrap_or(path)
}

/// The length of the body of a request that creates a container, bytes. `None`: it is another request, or one that is passed on as it is.
fn create_length(head: &Head) -> Option<usize> {
    let [method, target, version] = &head.first;
    let is_create = method == "POST" && version == "HTTP/1.1" && path_of(target) == "/containers/create";
    let is_plain = || !head.has("upgrade") && !head.has("expect") && !head.has("content-encoding");
    match head.body(Body::Length(0)).filter(|_| is_create && is_plain())? {
        Body::Length(length @ 1..=MOST_OF_CREATE) => usize::try_from(length).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CREATE: &str =
        "POST /v1.41/containers/create?name=a HTTP/1.1\r\nHost: d\r\nContent-Length: 4\r\n\r\n{\"\"}";
    const PING: &str = "GET /_ping HTTP/1.1\r\nHost: d\r\n\r\n";

    /// What passes on of these bytes, and the requests that create a container, of which each passes on as it was sent.
    fn passed(bytes: &[u8], step: usize, is_replied: bool) -> (Vec<u8>, usize) {
        let (mut requests, mut output, mut creates) = (Requests::new(), Vec::new(), 0);
        for part in bytes.chunks(step) {
            let mut part = part;
            while let Some(create) = requests.take(part, &mut output) {
                output.extend(create.bytes());
                creates += 1;
                part = b"";
                if is_replied {
                    requests.note_reply();
                }
            }
            if is_replied {
                requests.note_reply();
            }
        }
        requests.end(&mut output);
        (output, creates)
    }

    #[test]
    fn all_bytes_pass_on_in_their_order_and_creates_are_seen() {
        let chunked =
            "POST /v1.41/images/load HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nPOST \r\n0\r\n\r\n";
        let attach = "POST /v1.41/containers/x/attach?stdin=1 HTTP/1.1\r\nContent-Length: 0\r\n\r\n";
        for (text, creates) in [
            (format!("{PING}{CREATE}"), 1),
            (format!("{chunked}{CREATE}{PING}{CREATE}"), 2),
            // In a stream, the same bytes are data.
            (format!("{PING}{attach}{CREATE}"), 0),
            (CREATE.replace("/v1.41", ""), 1),
            (CREATE.replace("/v1.41", "/v1.41/libpod"), 0),
            (CREATE.replace("POST", "GET"), 0),
            (CREATE.replace("Host: d", "Expect: 100-continue"), 0),
            (CREATE.replace("1.1\r", "1.0\r"), 0),
            (CREATE.replace("Content-Length: 4", "Content-Length: 4194305"), 0),
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned() + CREATE, 0),
            (CREATE[..CREATE.len() - 2].to_owned(), 0),
        ] {
            for step in [1, 7, text.len()] {
                let (output, found) = passed(text.as_bytes(), step, true);
                assert_eq!(output, text.as_bytes(), "{text}");
                // What comes in one part has not waited for a reply.
                assert!(found == creates || step == text.len(), "{text} in parts of {step}");
            }
        }
    }

    #[test]
    fn head_with_bare_line_feeds_passes_on_at_once() {
        let (mut requests, mut output) = (Requests::new(), Vec::new());
        let head = PING.replace('\r', "");
        assert!(requests.take(head.as_bytes(), &mut output).is_none());
        assert_eq!(output, head.as_bytes());
    }

    #[test]
    fn create_of_a_client_that_waits_for_no_reply_is_passed_on() {
        assert_eq!(passed(format!("{PING}{CREATE}").as_bytes(), 1, false).1, 0);
        assert_eq!(passed(CREATE.as_bytes(), 1, false).1, 1);
    }
}
