//! The words between [`super::embedded`] and [`super::server`], as bytes.
//!
//! A client opens with a hello (magic, version, job id) and gets one byte back. From then on both send frames: a length of
//! four bytes, then the body; a request's body begins with an id of four bytes that the answer repeats, so that many
//! calls can wait on one connection. All integers are little-endian. By hand rather than by a serialisation crate because
//! everything that a stranger can send must be bounded before it is stored, and the whole is two enums.

use std::time::Duration;

use super::{Item, MAX_KEY_BYTES, MAX_VALUE_BYTES};

/// First bytes of a hello.
pub(super) const MAGIC: [u8; 4] = *b"HCST";
/// Version of everything in this module.
pub(super) const VERSION: u16 = 1;
/// Bytes of a hello before the job id: magic, version, length of the job id.
pub(super) const HELLO_BYTES: usize = 7;
/// Largest body of a request: two values and a key, with room for lengths.
pub(super) const MAX_REQUEST_BYTES: usize = 2 * MAX_VALUE_BYTES + MAX_KEY_BYTES + 64;
/// Largest body of an answer: what [`super::table`] may hold, and lengths.
pub(super) const MAX_RESPONSE_BYTES: usize = 256 << 20;

/// The server's answer to a hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Welcome {
    Accepted = 0,
    OtherVersion = 1,
    OtherJob = 2,
    Full = 3,
}

impl Welcome {
    pub(super) fn from_byte(byte: u8) -> Option<Self> {
        [Welcome::Accepted, Welcome::OtherVersion, Welcome::OtherJob, Welcome::Full]
            .into_iter()
            .find(|w| *w as u8 == byte)
    }
}

/// What a client asks for; one for each call of [`super::Store`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Request {
    Set {
        key: String,
        value: Vec<u8>,
    },
    Get {
        key: String,
    },
    Wait {
        key: String,
        timeout: Duration,
    },
    Add {
        key: String,
        delta: i64,
    },
    Swap {
        key: String,
        expected: Option<Vec<u8>>,
        value: Vec<u8>,
    },
    Delete {
        key: String,
    },
    List {
        prefix: String,
    },
    Watch {
        prefix: String,
        revision: u64,
        timeout: Duration,
    },
    Lease {
        key: String,
        value: Vec<u8>,
        lost: Vec<u8>,
        ttl: Duration,
    },
    Release {
        key: String,
    },
    /// Renews the leases of this connection, as every request does.
    Ping,
    /// Releases the leases of this connection, which may then close.
    Goodbye,
}

/// What a server answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Response {
    Done,
    Value(Option<Vec<u8>>),
    Number(i64),
    Flag(bool),
    Items(Vec<Item>),
    Changes { revision: u64, pairs: Vec<(String, Vec<u8>)> },
    TimedOut,
    Failed(String),
}

/// The bytes that open a connection; without a job, that of one who only reads.
pub(super) fn encode_hello(job_id: &str) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(VERSION.to_le_bytes());
    bytes.push(job_id.len() as u8); // `check_job_id` bounds it
    bytes.extend(job_id.as_bytes());
    bytes
}

/// A hello that lets in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Greeting {
    /// Its bytes.
    pub len: usize,
    /// It names no job: it comes from a tool, which may read and nothing else.
    pub observes: bool,
}

/// Reads a hello off the front of `bytes`: `None` while it is incomplete, else what it is worth and how long it is.
pub(super) fn decode_hello(bytes: &[u8], job_id: &str) -> Option<Result<Greeting, Refusal>> {
    let magic = &bytes[..bytes.len().min(MAGIC.len())];
    if !MAGIC.starts_with(magic) {
        return Some(Err(Refusal::Stranger));
    }
    let head = bytes.get(..HELLO_BYTES)?;
    if u16::from_le_bytes([head[4], head[5]]) != VERSION {
        return Some(Err(Refusal::Answer(Welcome::OtherVersion)));
    }
    let end = HELLO_BYTES + usize::from(head[6]);
    let theirs = bytes.get(HELLO_BYTES..end)?;
    let observes = theirs.is_empty();
    if !observes && theirs != job_id.as_bytes() {
        return Some(Err(Refusal::Answer(Welcome::OtherJob)));
    }
    Some(Ok(Greeting { len: end, observes }))
}

/// Why a connection is not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Not hcomm: it gets no answer.
    Stranger,
    /// Of hcomm, but not of this job: it is told why.
    Answer(Welcome),
}

/// Takes the body of one frame off `bytes` from `from` on: `None` while it is incomplete, an error when it is longer than
/// `most`, else where the body lies.
pub(super) fn next_frame(bytes: &[u8], from: usize, most: usize) -> Result<Option<std::ops::Range<usize>>, String> {
    let Some(head) = bytes.get(from..from + 4) else { return Ok(None) };
    let len = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
    if len > most {
        return Err(format!("a frame of {len} bytes, at most {most} are allowed"));
    }
    let body = from + 4..from + 4 + len;
    Ok((bytes.len() >= body.end).then_some(body))
}

/// Appends a frame with `request` to `out`.
pub(super) fn encode_request(id: u32, request: &Request, out: &mut Vec<u8>) {
    let mut frame = Frame::begin(out, id);
    match request {
        Request::Set { key, value } => frame.tag(1).bytes(key.as_bytes()).bytes(value),
        Request::Get { key } => frame.tag(2).bytes(key.as_bytes()),
        Request::Wait { key, timeout } => frame.tag(3).bytes(key.as_bytes()).time(*timeout),
        Request::Add { key, delta } => frame.tag(4).bytes(key.as_bytes()).number(*delta as u64),
        Request::Swap { key, expected, value } => {
            frame.tag(5).bytes(key.as_bytes()).optional(expected.as_deref()).bytes(value)
        }
        Request::Delete { key } => frame.tag(6).bytes(key.as_bytes()),
        Request::List { prefix } => frame.tag(7).bytes(prefix.as_bytes()),
        Request::Watch { prefix, revision, timeout } => {
            frame.tag(8).bytes(prefix.as_bytes()).number(*revision).time(*timeout)
        }
        Request::Lease { key, value, lost, ttl } => {
            frame.tag(9).bytes(key.as_bytes()).bytes(value).bytes(lost).time(*ttl)
        }
        Request::Release { key } => frame.tag(10).bytes(key.as_bytes()),
        Request::Ping => frame.tag(11),
        Request::Goodbye => frame.tag(12),
    };
    frame.end();
}

/// Appends a frame with `response` to `out`.
pub(super) fn encode_response(id: u32, response: &Response, out: &mut Vec<u8>) {
    let mut frame = Frame::begin(out, id);
    match response {
        Response::Done => frame.tag(1),
        Response::Value(value) => frame.tag(2).optional(value.as_deref()),
        Response::Number(number) => frame.tag(3).number(*number as u64),
        Response::Flag(flag) => frame.tag(4).tag(u8::from(*flag)),
        Response::Items(items) => {
            frame.tag(5).number(items.len() as u64);
            for item in items {
                frame.bytes(item.key.as_bytes()).bytes(&item.value).time(item.age);
            }
            &mut frame
        }
        Response::Changes { revision, pairs } => {
            frame.tag(6).number(*revision).number(pairs.len() as u64);
            for (key, value) in pairs {
                frame.bytes(key.as_bytes()).bytes(value);
            }
            &mut frame
        }
        Response::TimedOut => frame.tag(7),
        Response::Failed(text) => frame.tag(8).bytes(text.as_bytes()),
    };
    frame.end();
}

/// Reads the body of a request.
pub(super) fn decode_request(body: &[u8]) -> Result<(u32, Request), String> {
    let mut reader = Reader { rest: body };
    let id = reader.id()?;
    let request = match reader.tag()? {
        1 => Request::Set { key: reader.text()?, value: reader.bytes()? },
        2 => Request::Get { key: reader.text()? },
        3 => Request::Wait { key: reader.text()?, timeout: reader.time()? },
        4 => Request::Add { key: reader.text()?, delta: reader.number()? as i64 },
        5 => Request::Swap { key: reader.text()?, expected: reader.optional()?, value: reader.bytes()? },
        6 => Request::Delete { key: reader.text()? },
        7 => Request::List { prefix: reader.text()? },
        8 => Request::Watch { prefix: reader.text()?, revision: reader.number()?, timeout: reader.time()? },
        9 => Request::Lease { key: reader.text()?, value: reader.bytes()?, lost: reader.bytes()?, ttl: reader.time()? },
        10 => Request::Release { key: reader.text()? },
        11 => Request::Ping,
        12 => Request::Goodbye,
        tag => return Err(format!("request {tag}, which is not known")),
    };
    reader.end()?;
    Ok((id, request))
}

/// Reads the body of a response.
pub(super) fn decode_response(body: &[u8]) -> Result<(u32, Response), String> {
    let mut reader = Reader { rest: body };
    let id = reader.id()?;
    let response = match reader.tag()? {
        1 => Response::Done,
        2 => Response::Value(reader.optional()?),
        3 => Response::Number(reader.number()? as i64),
        4 => Response::Flag(reader.tag()? != 0),
        5 => {
            let count = reader.number()?;
            let item = |_| Ok(Item { key: reader.text()?, value: reader.bytes()?, age: reader.time()? });
            Response::Items((0..count).map(item).collect::<Result<_, String>>()?)
        }
        6 => {
            let (revision, count) = (reader.number()?, reader.number()?);
            let pair = |_| Ok((reader.text()?, reader.bytes()?));
            Response::Changes { revision, pairs: (0..count).map(pair).collect::<Result<_, String>>()? }
        }
        7 => Response::TimedOut,
        8 => Response::Failed(reader.text()?),
        tag => return Err(format!("answer {tag}, which is not known")),
    };
    reader.end()?;
    Ok((id, response))
}

/// A frame being written: the length in front is set at the end.
struct Frame<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
}

impl<'a> Frame<'a> {
    fn begin(out: &'a mut Vec<u8>, id: u32) -> Self {
        let start = out.len();
        out.extend([0; 4]);
        out.extend(id.to_le_bytes());
        Frame { out, start }
    }

    fn tag(&mut self, tag: u8) -> &mut Self {
        self.out.push(tag);
        self
    }

    fn number(&mut self, number: u64) -> &mut Self {
        self.out.extend(number.to_le_bytes());
        self
    }

    fn time(&mut self, time: Duration) -> &mut Self {
        self.number(u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
    }

    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.out.extend((bytes.len() as u32).to_le_bytes());
        self.out.extend(bytes);
        self
    }

    fn optional(&mut self, bytes: Option<&[u8]>) -> &mut Self {
        match bytes {
            None => self.tag(0),
            Some(bytes) => self.tag(1).bytes(bytes),
        }
    }

    fn end(self) {
        let len = (self.out.len() - self.start - 4) as u32;
        self.out[self.start..self.start + 4].copy_from_slice(&len.to_le_bytes());
    }
}

/// What is left of a body. Never reserves memory for a length that it has not seen the bytes of.
struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or("a frame that ends too early")?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    fn id(&mut self) -> Result<u32, String> {
        self.array().map(u32::from_le_bytes)
    }

    fn tag(&mut self) -> Result<u8, String> {
        Ok(self.take(1)?[0])
    }

    fn number(&mut self) -> Result<u64, String> {
        self.array().map(u64::from_le_bytes)
    }

    fn time(&mut self) -> Result<Duration, String> {
        self.number().map(Duration::from_micros)
    }

    fn bytes(&mut self) -> Result<Vec<u8>, String> {
        let len = self.id()? as usize;
        self.take(len).map(<[u8]>::to_vec)
    }

    fn text(&mut self) -> Result<String, String> {
        String::from_utf8(self.bytes()?).map_err(|_| "text that is not UTF-8".to_owned())
    }

    fn optional(&mut self) -> Result<Option<Vec<u8>>, String> {
        match self.tag()? {
            0 => Ok(None),
            1 => self.bytes().map(Some),
            other => Err(format!("{other} where 0 or 1 belongs")),
        }
    }

    fn end(&self) -> Result<(), String> {
        if self.rest.is_empty() { Ok(()) } else { Err(format!("{} bytes too many in a frame", self.rest.len())) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(any::<u8>(), 0..40)
    }

    fn time() -> impl Strategy<Value = Duration> {
        any::<u64>().prop_map(Duration::from_micros)
    }

    fn request() -> impl Strategy<Value = Request> {
        let key = || ".{0,20}";
        prop_oneof![
            (key(), bytes()).prop_map(|(key, value)| Request::Set { key, value }),
            key().prop_map(|key| Request::Get { key }),
            (key(), time()).prop_map(|(key, timeout)| Request::Wait { key, timeout }),
            (key(), any::<i64>()).prop_map(|(key, delta)| Request::Add { key, delta }),
            (key(), prop::option::of(bytes()), bytes()).prop_map(|(key, expected, value)| Request::Swap {
                key,
                expected,
                value
            }),
            key().prop_map(|key| Request::Delete { key }),
            key().prop_map(|prefix| Request::List { prefix }),
            (key(), any::<u64>(), time()).prop_map(|(prefix, revision, timeout)| Request::Watch {
                prefix,
                revision,
                timeout
            }),
            (key(), bytes(), bytes(), time()).prop_map(|(key, value, lost, ttl)| Request::Lease {
                key,
                value,
                lost,
                ttl
            }),
            key().prop_map(|key| Request::Release { key }),
            Just(Request::Ping),
            Just(Request::Goodbye),
        ]
    }

    fn response() -> impl Strategy<Value = Response> {
        let item = (".{0,20}", bytes(), time()).prop_map(|(key, value, age)| Item { key, value, age });
        prop_oneof![
            Just(Response::Done),
            prop::option::of(bytes()).prop_map(Response::Value),
            any::<i64>().prop_map(Response::Number),
            any::<bool>().prop_map(Response::Flag),
            prop::collection::vec(item, 0..4).prop_map(Response::Items),
            (any::<u64>(), prop::collection::vec((".{0,20}", bytes()), 0..4))
                .prop_map(|(revision, pairs)| Response::Changes { revision, pairs }),
            Just(Response::TimedOut),
            ".{0,30}".prop_map(Response::Failed),
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(id: u32, request in request(), response in response()) {
            let mut out = Vec::new();
            encode_request(id, &request, &mut out);
            let first = next_frame(&out, 0, MAX_REQUEST_BYTES).unwrap().unwrap();
            encode_response(id, &response, &mut out);
            let second = next_frame(&out, first.end, MAX_RESPONSE_BYTES).unwrap().unwrap();
            prop_assert_eq!(second.end, out.len());
            prop_assert_eq!(decode_request(&out[first]), Ok((id, request)));
            prop_assert_eq!(decode_response(&out[second]), Ok((id, response)));
        }

        #[test]
        fn garbage_is_an_error_and_not_a_panic(body in prop::collection::vec(any::<u8>(), 0..200), tag in 0u8..16) {
            let _ = decode_request(&body);
            let _ = decode_response(&body);
            let mut tagged = vec![0, 0, 0, 0, tag];
            tagged.extend(body);
            let _ = decode_request(&tagged);
            let _ = decode_response(&tagged);
            let _ = decode_hello(&tagged, "job");
        }

        #[test]
        fn a_frame_cut_anywhere_is_incomplete_or_an_error(request in request()) {
            let mut out = Vec::new();
            encode_request(7, &request, &mut out);
            for cut in 0..out.len() {
                prop_assert_eq!(next_frame(&out[..cut], 0, MAX_REQUEST_BYTES), Ok(None));
                if cut > 4 {
                    prop_assert!(decode_request(&out[4..cut]).is_err());
                }
            }
        }
    }

    #[test]
    fn a_count_without_its_items_reserves_nothing() {
        let mut body = vec![0, 0, 0, 0, 5];
        body.extend(u64::MAX.to_le_bytes());
        assert!(decode_response(&body).is_err());
    }

    #[test]
    fn hello_tells_strangers_from_other_jobs_and_versions() {
        let hello = encode_hello("job");
        for cut in 0..hello.len() {
            assert_eq!(decode_hello(&hello[..cut], "job"), None);
        }
        assert_eq!(decode_hello(&hello, "job"), Some(Ok(Greeting { len: hello.len(), observes: false })));
        let nameless = encode_hello("");
        assert_eq!(decode_hello(&nameless, "job"), Some(Ok(Greeting { len: nameless.len(), observes: true })));
        assert_eq!(decode_hello(&hello, "jab"), Some(Err(Refusal::Answer(Welcome::OtherJob))));
        assert_eq!(decode_hello(b"GET / HTTP/1.1", "job"), Some(Err(Refusal::Stranger)));
        let mut newer = hello;
        newer[4] = 9;
        assert_eq!(decode_hello(&newer, "job"), Some(Err(Refusal::Answer(Welcome::OtherVersion))));
    }

    #[test]
    fn too_long_a_frame_is_refused_before_it_comes() {
        let head = u32::MAX.to_le_bytes();
        assert!(next_frame(&head, 0, MAX_REQUEST_BYTES).is_err());
    }
}
