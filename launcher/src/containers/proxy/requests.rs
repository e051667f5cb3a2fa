//! The requests of a connection, of which all pass on as they are but those that create a container.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use super::http::{Body, Head, MOST_OF_HEAD, end_of_head, has_bare_line_feed};

/// Maximum number of bytes of the request for a container that is looked at. Docker's own are below 10 kB.
const MOST_OF_CREATE: u64 = 4 << 20;

/// Maximum number of bytes of all connections' requests for containers that are held. What comes beyond them passes on as it is.
const MOST_HELD: usize = 16 << 20;

/// What all connections hold of requests for containers.
#[derive(Debug, Clone, Default)]
pub(super) struct Held(Arc<AtomicUsize>);

/// The part of a request in [`Held`], bytes.
#[derive(Debug)]
struct Part {
    held: Held,
    bytes: usize,
}

impl Part {
    /// Holds this many bytes. Returns whether there is room for them.
    fn hold(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        self.bytes += more;
        self.held.0.fetch_add(more, Relaxed) + more <= MOST_HELD
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.held.0.fetch_sub(self.bytes, Relaxed);
    }
}

/// A request that creates a container.
#[derive(Debug, Clone)]
pub(super) struct CreateRequest {
    pub(super) head: Head,
    /// The head as it was sent.
    head_bytes: Vec<u8>,
    pub(super) body: Vec<u8>,
    _part: Arc<Part>,
}

impl CreateRequest {
    /// Gives it another body.
    pub(super) fn set_body(&mut self, body: Vec<u8>) {
        self.head_bytes = self.head.with_length(body.len());
        self.body = body;
    }

    /// The request as it was sent, or with the body that was set.
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
    /// The requests for containers that passed on, since this was asked last: whether the reply to each comes next.
    unusual: Vec<bool>,
    held: Held,
}

#[derive(Debug)]
enum Stage {
    /// A head comes next.
    Head,
    Body(Body),
    /// The body of a request that creates a container.
    Create(Head, Vec<u8>, Part),
    /// All that follows passes on: it is no longer HTTP/1.1, or not understood.
    Rest,
}

impl Requests {
    pub(super) fn new(held: Held) -> Self {
        Self { stage: Stage::Head, input: Vec::new(), is_replied: true, unusual: Vec::new(), held }
    }

    /// Passes all on: what comes may begin in the middle of a request.
    pub(super) fn of_killed_proxy() -> Self {
        Self { stage: Stage::Rest, ..Self::new(Held::default()) }
    }

    /// The request for a container that these bytes are.
    #[cfg(test)]
    pub(super) fn read(bytes: &[u8]) -> Option<CreateRequest> {
        Self::new(Held::default()).take(bytes, &mut Vec::new())
    }

    /// Whether all that has come is passed on.
    pub(super) fn is_passed_on(&self) -> bool {
        self.input.is_empty() && !matches!(self.stage, Stage::Create(..))
    }

    /// Notes that the daemon has sent something.
    pub(super) fn note_reply(&mut self) {
        self.is_replied = true;
    }

    /// The requests for containers that passed on as they were sent, since the last call. For each: whether the reply to it comes next.
    pub(super) fn take_unusual(&mut self) -> Vec<bool> {
        std::mem::take(&mut self.unusual)
    }

    /// Takes what the client has sent. Adds what is to be passed on to `output`. Returns a request to create a container: what follows it
    /// waits for the next call.
    pub(super) fn take(&mut self, bytes: &[u8], output: &mut Vec<u8>) -> Option<CreateRequest> {
        self.input.extend_from_slice(bytes);
        loop {
            match &mut self.stage {
                Stage::Rest => {
                    if is_unusual_create(&self.input) {
                        self.unusual.push(true);
                    }
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
                Stage::Create(head, head_bytes, part) => {
                    let length = create_length(head)?;
                    if !part.hold(self.input.len().min(length)) {
                        output.append(head_bytes);
                        self.stage = after(head);
                        self.unusual.push(true);
                        continue;
                    }
                    if self.input.len() < length {
                        return None;
                    }
                    let body = self.input.drain(..length).collect();
                    self.is_replied = false;
                    let Stage::Create(head, head_bytes, part) =
                        std::mem::replace(&mut self.stage, Stage::Head)
                    else {
                        return None;
                    };
                    return Some(CreateRequest { head, head_bytes, body, _part: Arc::new(part) });
                }
            }
        }
    }

    /// The client sends no more: what has not passed on yet does so now.
    pub(super) fn end(&mut self, output: &mut Vec<u8>) {
        if let Stage::Create(_, head, _) = &mut self.stage {
            output.append(head);
        }
        output.append(&mut self.input);
        self.stage = Stage::Rest;
    }

    /// Begins with the request whose head is the first `end` bytes.
    fn begin(&mut self, end: usize, output: &mut Vec<u8>) {
        let bytes: Vec<u8> = self.input.drain(..end).collect();
        let head = Head::parse(&bytes);
        let takes = |head: &Head| self.is_replied && create_length(head).is_some();
        if !head.as_ref().is_some_and(takes) && is_unusual_create(&bytes) {
            self.unusual.push(self.is_replied);
        }
        let Some(head) = head else {
            output.extend(bytes);
            self.stage = Stage::Rest;
            return;
        };
        self.stage = if self.is_replied && create_length(&head).is_some() {
            Stage::Create(head, bytes, Part { held: self.held.clone(), bytes: 0 })
        } else {
            output.extend(bytes);
            after(&head)
        };
    }
}

/// What follows the head of a request that is passed on.
fn after(head: &Head) -> Stage {
    let [method, target, version] = &head.first;
    let path = decoded_path(target.as_bytes());
    // The daemon takes over such a connection for a stream in both directions, with or without an upgrade.
    let is_exec = || path.ends_with(b"/start") && path.windows(6).any(|part| part == b"/exec/");
    let is_taken_over =
        head.has("upgrade") || (method == "POST" && (path.ends_with(b"/attach") || is_exec()));
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

/// The path of a request without its query, and without its %-encoding.
fn decoded_path(target: &[u8]) -> Vec<u8> {
    let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
    let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path;
    while let [byte, after @ ..] = rest {
        let encoded = match after {
            [high, low, after @ ..] if *byte == b'%' => digit(high).zip(digit(low)).zip(Some(after)),
            _ => None,
        };
        let (byte, after) = encoded.map_or((*byte, after), |((high, low), after)| (high * 16 + low, after));
        decoded.push(byte);
        rest = after;
    }
    decoded
}

/// Whether these bytes begin with a request that creates a container, in any form that a daemon may understand.
fn is_unusual_create(bytes: &[u8]) -> bool {
    let Some(rest) = bytes.strip_prefix(b"POST ") else { return false };
    let target = rest.split(|byte| b" \r\n".contains(byte)).next().unwrap_or_default();
    decoded_path(target).ends_with(b"/containers/create")
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
        let (mut requests, mut output, mut creates) = (Requests::new(Held::default()), Vec::new(), 0);
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

    // Requirement: SEE-140
    #[test]
    fn create_that_passes_on_is_told() {
        let exec = "GET /v1.41/exec/x/json HTTP/1.1\r\n\r\n";
        let start = "POST /v1.41/exec/x/start HTTP/1.1\r\n\r\n";
        let chunked =
            CREATE.replace("Content-Length: 4", "Transfer-Encoding: chunked").replace("{", "4\r\n{");
        for (text, expected) in [
            (CREATE.to_owned(), vec![]),
            (format!("{exec}{CREATE}"), vec![]),
            (format!("{start}{CREATE}"), vec![true]),
            (chunked, vec![true]),
            (CREATE.replace("Host: d", "Expect: 100-continue"), vec![true]),
            (CREATE.replace("1.1\r", "1.0\r"), vec![true]),
            (CREATE.replace("/v1.41", "http://d/v1.41"), vec![true]),
            (CREATE.replace("create?", "cre%61te?"), vec![true]),
            (CREATE.replace("Content-Length: 4", "Content-Length: 4194305"), vec![true]),
            (CREATE.replace('\r', ""), vec![true]),
            (CREATE.replace("POST", "GET"), vec![]),
            (CREATE.replace("create?", "created?"), vec![]),
        ] {
            let (mut requests, mut output) = (Requests::new(Held::default()), Vec::new());
            let heads: Vec<&str> = text.split_inclusive("\r\n\r\n").collect();
            for part in heads {
                requests.take(part.as_bytes(), &mut output);
                requests.note_reply();
            }
            assert_eq!(requests.take_unusual(), expected, "{text}");
        }
        let mut requests = Requests::new(Held::default());
        requests.take(format!("{PING}{CREATE}").as_bytes(), &mut Vec::new());
        assert_eq!(requests.take_unusual(), [false], "the reply to another request comes next");
    }

    // Requirement: SEE-142
    #[test]
    fn requests_that_are_held_have_a_total() {
        let (held, mut output) = (Held::default(), Vec::new());
        let part =
            [&b"POST /containers/create HTTP/1.1\r\nContent-Length: 4000000\r\n\r\n"[..], &[b'x'; 3_900_000]];
        let part = part.concat();
        let mut all: Vec<Requests> = (0..6).map(|_| Requests::new(held.clone())).collect();
        for requests in &mut all {
            assert!(requests.take(&part, &mut output).is_none());
        }
        let passed_on: Vec<Vec<bool>> = all.iter_mut().map(Requests::take_unusual).collect();
        assert_eq!(passed_on, [vec![], vec![], vec![], vec![], vec![true], vec![true]]);
        assert_eq!(output.len(), 2 * part.len());
        all.truncate(1);
        let create = all[0].take(&[b'x'; 100_000], &mut output).unwrap();
        assert_eq!(held.0.load(Relaxed), 4_000_000, "one request is held");
        drop((create, all));
        assert_eq!(held.0.load(Relaxed), 0);
    }

    #[test]
    fn head_with_bare_line_feeds_passes_on_at_once() {
        let (mut requests, mut output) = (Requests::new(Held::default()), Vec::new());
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
