//! Links over loopback against what was sent, and against peers that misbehave.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::*;
use crate::reduce::{DataType, ReduceOp, Reducer};
use crate::session::frame::Header;
use crate::session::handshake::{HELLO_BYTES, Hello, LinkId, PROTOCOL, REPLY_BYTES, Refusal, Reply, job_hash};
use crate::topology::interfaces::LOOPBACK;
use crate::transport::{LinkError, Recv};

const LINK: LinkId = LinkId { communicator: 7, lane: 1 };
const FRAME_BYTES: u32 = 64 << 10;

fn options(rank: usize) -> Options {
    Options {
        job: "test".into(),
        rank,
        local: vec![LOOPBACK[0]],
        frame_bytes: FRAME_BYTES,
        queue: 64,
        tuning: Tuning::default(),
        timeout: Duration::from_secs(20),
        retry: Duration::from_millis(5),
        greeting: Duration::from_secs(2),
        log: None,
    }
}

fn endpoint(options: Options, sockets: u16) -> Endpoint {
    let endpoint = Endpoint::start(options).unwrap();
    endpoint.use_sockets(sockets);
    endpoint
}

type Pair = ([Endpoint; 2], [TcpLink; 2]);

fn pair_with(change: impl Fn(&mut Options)) -> Pair {
    pair_of(1, change)
}

fn pair_of(sockets: u16, change: impl Fn(&mut Options)) -> Pair {
    let endpoints = [0, 1].map(|rank| {
        let mut options = options(rank);
        change(&mut options);
        endpoint(options, sockets)
    });
    let links = [0, 1].map(|rank: usize| {
        let peer = PeerAddress { rank: 1 - rank, addresses: endpoints[1 - rank].addresses() };
        endpoints[rank].link(&peer, LINK).unwrap()
    });
    (endpoints, links)
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    let mut state = seed as u64 + 1;
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..len).map(next).collect()
}

fn deadline() -> impl Fn(&str) {
    let end = Instant::now() + Duration::from_secs(30);
    move |what| assert!(Instant::now() < end, "stuck: {what}")
}

/// One side of an exchange: sends `sources` in order and receives as many of the same lengths into `targets`.
struct Side<'a> {
    link: &'a mut TcpLink,
    sources: &'a [Vec<u8>],
    targets: Vec<Vec<u8>>,
    reducer: Option<&'a Reducer>,
    posted: usize,
    received: usize,
    done: usize,
    goal: u64,
}

impl<'a> Side<'a> {
    fn new(link: &'a mut TcpLink, sources: &'a [Vec<u8>], reducer: Option<&'a Reducer>) -> Self {
        let goal = link.sends_done() + sources.len() as u64;
        let targets = sources.iter().map(|source| source.iter().map(|byte| byte ^ 0x11).collect()).collect();
        Side { link, sources, targets, reducer, posted: 0, received: 0, done: 0, goal }
    }

    fn finished(&self) -> bool {
        self.received == self.sources.len() && self.link.sends_done() == self.goal
    }

    /// One round; whether anything moved.
    fn step(&mut self) -> Result<bool, LinkError> {
        let mut moved = false;
        if let Some(source) = self.sources.get(self.posted) {
            // SAFETY: the sources outlive the exchange, at whose end all are sent or the link is not used any more.
            if unsafe { self.link.post_send(source.as_ptr(), source.len(), self.posted as u32)? } {
                self.posted += 1;
                moved = true;
            }
        }
        moved |= self.link.progress()?;
        if let Some(target) = self.targets.get_mut(self.received) {
            let mut recv = Recv {
                dst: target.as_mut_ptr(),
                operand: target.as_ptr(),
                reducer: self.reducer,
                len: target.len(),
                done: self.done,
                stamp: self.received as u32,
            };
            // SAFETY: the target is used by nothing else.
            let some = unsafe { self.link.poll_recv(&mut recv)? };
            assert!(recv.done >= self.done && recv.done <= recv.len);
            self.done = recv.done;
            if some && recv.done == recv.len {
                (self.received, self.done) = (self.received + 1, 0);
            }
            moved |= some;
        }
        Ok(moved)
    }

    fn check(&self) {
        for (index, (target, source)) in self.targets.iter().zip(self.sources).enumerate() {
            let expected: Vec<u8> = match self.reducer {
                None => source.clone(),
                Some(reducer) => {
                    let mut expected: Vec<u8> = source.iter().map(|byte| byte ^ 0x11).collect();
                    let count = source.len() / reducer.element_size();
                    let dst = expected.as_mut_ptr();
                    // SAFETY: both hold `count` elements.
                    unsafe { reducer.combine(dst, dst, source.as_ptr(), count) };
                    expected
                }
            };
            assert!(*target == expected, "message {index} of {} bytes differs", source.len());
        }
    }
}

/// Exchanges messages of these sizes in both directions at once, and compares.
fn exchange(links: &mut [TcpLink; 2], sizes: &[usize], reducer: Option<&Reducer>) {
    let sources: Vec<Vec<u8>> = sizes.iter().enumerate().map(|(i, &len)| pattern(len, i)).collect();
    let [a, b] = links;
    let mut sides = [Side::new(a, &sources, reducer), Side::new(b, &sources, reducer)];
    let watch = deadline();
    while !sides.iter().all(Side::finished) {
        watch("exchange");
        for side in &mut sides {
            side.step().unwrap();
        }
    }
    sides.iter().for_each(Side::check);
}

const SIZES: [usize; 14] = [8, 0, 1, 4096, 4097, 65535, 65536, 65537, 0, 3 << 20, 1, 8, (2 << 20) + 5, 131_072];

#[test]
fn messages_of_all_sizes_arrive_whole() {
    for family in LOOPBACK {
        for sockets in [1, 2, 5] {
            let (_endpoints, mut links) = pair_of(sockets, |options| options.local = vec![family]);
            exchange(&mut links, &SIZES, None);
            exchange(&mut links, &[7; 300], None);
            assert_eq!(links[0].sends_posted(), 314);
            assert_eq!(links[0].paths().len(), usize::from(sockets));
        }
    }
}

#[test]
fn small_buffers_cut_headers_and_elements_anywhere() {
    for sockets in [1, 3] {
        let (_endpoints, mut links) = pair_of(sockets, |options| {
            options.frame_bytes = 4096 + 64;
            options.tuning = Tuning { send_buffer: Some(2048), receive_buffer: Some(1500), congestion: None };
        });
        exchange(&mut links, &[1, 5000, 0, 70_001, 33, 150_000], None);
        let sums = Reducer::new(DataType::F64, ReduceOp::Max);
        exchange(&mut links, &[8, 4000, 0, 80_008, 64, 150_000], Some(&sums));
    }
}

#[test]
fn reducing_is_the_same_in_pieces() {
    for (dtype, op) in [(DataType::I8, ReduceOp::Sum), (DataType::F16, ReduceOp::Min), (DataType::I32, ReduceOp::Prod)]
    {
        let reducer = Reducer::new(dtype, op);
        for sockets in [1, 2] {
            let (_endpoints, mut links) = pair_of(sockets, |_| {});
            exchange(&mut links, &[8, 0, 4, 4096, 65_532, 65_536, 65_540, 1 << 20, (1 << 20) + 4], Some(&reducer));
        }
    }
}

/// What is measured is of these sockets, and a link that is dropped closes them all the same.
#[test]
fn sockets_are_measured_while_the_link_lives() {
    for sockets in [1, 3] {
        let (endpoints, mut links) = pair_of(sockets, |_| {});
        let meters = endpoints[0].meters();
        assert_eq!(meters.read(2), [], "not connected");
        exchange(&mut links, &[8, 1 << 20], None);
        let read = || meters.read(2).pop().expect("one peer");
        let sample = read().link;
        let ports: std::collections::BTreeSet<_> =
            read().paths.iter().map(|path| path.addresses.unwrap().0.port()).collect();
        assert_eq!((read().peer, ports.len()), (1, usize::from(sockets)), "each socket by itself");
        assert!(sample.round_trip_ns.is_some_and(|ns| (1..1_000_000_000).contains(&ns)), "{sample:?}");
        assert!(sample.retransmits.is_some());

        // Nobody reads: what the peer's buffers do not take stays in those of this side.
        let [mut left, mut right] = links;
        let source = pattern(64 << 20, 5);
        // SAFETY: the source outlives the links.
        assert!(unsafe { left.post_send(source.as_ptr(), source.len(), 0) }.unwrap());
        let queued = || read().link.queued_bytes.unwrap();
        let watch = deadline();
        while left.progress().unwrap() || queued() == 0 {
            watch("fill");
        }
        assert!((4096..=64 << 20).contains(&queued()), "{}", queued());
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(receive(&mut right, source.len(), 0).unwrap() == source));
            let watch = deadline();
            while left.sends_done() < left.sends_posted() || queued() > 0 {
                left.progress().unwrap();
                watch("acknowledge");
            }
        });
        drop(left);
        assert!(read().link.round_trip_ns.is_none() && read().paths.is_empty(), "no socket is left");
        assert!(matches!(receive(&mut right, 8, 0), Err(LinkError::Closed(_))));
    }
}

#[test]
fn a_full_queue_takes_nothing() {
    let (_endpoints, [_, mut waiting]) = pair_with(|options| options.queue = 2);
    let source = [1; 64];
    // The lower rank never connects, so nothing leaves the queue. SAFETY: the source outlives the link's use.
    let taken = [0, 1, 2].map(|stamp| unsafe { waiting.post_send(source.as_ptr(), source.len(), stamp) }.unwrap());
    assert_eq!(taken, [true, true, false]);
    assert_eq!((waiting.sends_posted(), waiting.sends_done()), (2, 0));
}

/// Both sides sleep in poll(2) whenever nothing moves; a lost wake-up would hang them.
#[test]
fn sleeping_sides_are_woken() {
    for sockets in [1, 3] {
        let (_endpoints, links) = pair_of(sockets, |_| {});
        let sources: Vec<Vec<u8>> = SIZES.iter().chain(&[5; 50]).map(|&len| pattern(len, len)).collect();
        std::thread::scope(|scope| {
            for mut link in links {
                let sources = &sources;
                scope.spawn(move || {
                    let watch = deadline();
                    let mut side = Side::new(&mut link, sources, None);
                    let mut fds = Vec::new();
                    while !side.finished() {
                        watch("sleep");
                        if side.step().unwrap() || side.finished() {
                            continue;
                        }
                        fds.clear();
                        let awaited = side.targets.get(side.received).map(Vec::len);
                        let limit = side.link.sleep(awaited, &mut fds);
                        let limit = limit.map_or(10_000, |limit| limit.as_millis() as i32 + 1);
                        // SAFETY: `fds` is as long as it says.
                        let woken = unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, limit) };
                        assert!(woken != 0 || limit < 10_000, "nobody woke us");
                    }
                    side.check();
                });
            }
        });
    }
}

fn receive(link: &mut TcpLink, len: usize, stamp: u32) -> Result<Vec<u8>, LinkError> {
    let mut target = vec![0; len];
    let mut recv = Recv { dst: target.as_mut_ptr(), operand: std::ptr::null(), reducer: None, len, done: 0, stamp };
    let watch = deadline();
    loop {
        // SAFETY: the target is used by nothing else.
        if unsafe { link.poll_recv(&mut recv)? } && recv.done == len {
            return Ok(target);
        }
        watch("receive");
    }
}

#[test]
fn a_lost_peer_is_an_error_that_names_it() {
    let (_endpoints, mut links) = pair_with(|_| ());
    exchange(&mut links, &[8], None);
    let [mut left, right] = links;
    drop(right);
    let error = receive(&mut left, 8, 0).unwrap_err();
    assert!(matches!(&error, LinkError::Closed(text) if text.starts_with("rank 1 at 127.0.0.1:")), "{error:?}");
    assert_eq!(receive(&mut left, 8, 0).unwrap_err(), error, "a broken link stays broken");
    let source = vec![0; 1 << 20];
    // SAFETY: a broken link takes nothing.
    assert_eq!(unsafe { left.post_send(source.as_ptr(), source.len(), 0) }, Err(error));
}

#[test]
fn sending_to_a_lost_peer_is_an_error_without_a_signal() {
    let (_endpoints, mut links) = pair_with(|_| ());
    exchange(&mut links, &[8], None);
    let [mut left, right] = links;
    drop(right);
    let source = vec![0; 1 << 20];
    let watch = deadline();
    let error = loop {
        watch("send");
        // SAFETY: the source outlives the link's use.
        match unsafe { left.post_send(source.as_ptr(), source.len(), 0) } {
            Ok(_) => drop(left.progress()),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, LinkError::Closed(_)), "{error:?}");
}

/// Who has been told that a message is done does not call again; a small one that lay in the link's stage would stay there.
#[test]
fn what_counts_as_sent_arrives_without_another_call() {
    let (_endpoints, mut links) = pair_with(|options| {
        options.tuning = Tuning { send_buffer: Some(2048), receive_buffer: Some(1500), congestion: None };
    });
    exchange(&mut links, &[8], None);
    let [mut left, mut right] = links;
    let before = left.sends_done();
    let source = pattern(500, 1);
    // Until the kernel takes no more. SAFETY: the source outlives both links.
    while unsafe { left.post_send(source.as_ptr(), source.len(), 9) }.unwrap() {}
    let sent = left.sends_done() - before;
    assert!(sent > 0 && left.sends_done() < left.sends_posted());
    for _ in 0..sent {
        assert!(receive(&mut right, source.len(), 9).unwrap() == source);
    }
}

#[test]
fn another_call_shows_by_stamp_and_length() {
    for (stamp, len, expected) in [(6, 8, LinkError::Stamp { got: 5 }), (5, 9, LinkError::Length { got: 8 })] {
        let (_endpoints, [mut left, mut right]) = pair_with(|_| ());
        let source = [3; 8];
        let sender = std::thread::spawn(move || {
            // SAFETY: small messages are copied once connected, and the source lives until then.
            assert!(unsafe { left.post_send(source.as_ptr(), source.len(), 5) }.unwrap());
            let watch = deadline();
            while left.sends_done() == 0 {
                watch("send");
                left.progress().unwrap();
            }
            left
        });
        assert_eq!(receive(&mut right, len, stamp), Err(expected));
        sender.join().unwrap();
    }
}

fn hello(to: u32) -> Hello {
    let job = job_hash("test");
    let frame_bytes = FRAME_BYTES;
    Hello { protocol: PROTOCOL, job, from: 0, to, link: LINK, socket: 0, sockets: 1, frame_bytes }
}

/// Connects by hand, and says what the endpoint answers.
fn greet(endpoint: &Endpoint, hello: &[u8; HELLO_BYTES]) -> (TcpStream, Option<Reply>) {
    let mut stream = TcpStream::connect(&endpoint.addresses()[0]).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(hello).unwrap();
    let mut reply = [0; REPLY_BYTES];
    let reply = stream.read_exact(&mut reply).ok().and_then(|()| Reply::decode(&reply));
    (stream, reply)
}

#[test]
fn strangers_are_refused_with_a_reason() {
    let endpoint = endpoint(options(1), 1);
    let good = hello(1);
    let mut newer = good.encode();
    newer[8] = 99;
    let cases = [
        (newer, Refusal::Protocol),
        (Hello { job: 1, ..good }.encode(), Refusal::Job),
        (Hello { to: 2, ..good }.encode(), Refusal::Rank),
        (Hello { from: 1, ..good }.encode(), Refusal::Rank),
        (Hello { sockets: 2, ..good }.encode(), Refusal::Settings),
        (Hello { socket: 1, ..good }.encode(), Refusal::Settings),
    ];
    for (hello, refusal) in cases {
        assert_eq!(greet(&endpoint, &hello).1, Some(Reply { protocol: PROTOCOL, refusal: Some(refusal) }));
    }
    assert_eq!(endpoint.refused(), 6);
    assert_eq!(greet(&endpoint, &[b'G'; HELLO_BYTES]).1, None, "garbage gets no answer");
    assert_eq!(greet(&endpoint, &good.encode()).1, Some(Reply { protocol: PROTOCOL, refusal: None }));
    assert_eq!(endpoint.refused(), 7);
}

#[test]
fn strangers_do_not_disturb_a_job() {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let log: super::endpoint::Log = {
        let lines = Arc::clone(&lines);
        Arc::new(move |line: &str| lines.lock().unwrap().push(line.to_owned()))
    };
    let (endpoints, mut links) = pair_with(|options| {
        options.greeting = Duration::from_millis(20);
        options.log = Some(Arc::clone(&log));
    });
    // More silent ones than may be greeted at a time, before the ranks connect; they stay open.
    let silent: Vec<TcpStream> = (0..150).map(|_| TcpStream::connect(&endpoints[1].addresses()[0]).unwrap()).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..20 {
                let mut stream = TcpStream::connect(&endpoints[1].addresses()[0]).unwrap();
                // Garbage that never becomes a hello, and one that hangs up.
                let _ = stream.write_all(
                    b"GET / HTTP/1.1\r\nHost: nobody.example\r\nAccept: nothing at all, and more of it\r\n\r\n",
                );
            }
        });
        exchange(&mut links, &SIZES, None);
    });
    let watch = deadline();
    while endpoints[1].refused() < 170 {
        watch("refusals");
        std::thread::yield_now();
    }
    drop(silent);
    exchange(&mut links, &SIZES, None);
    let refusals = lines.lock().unwrap().iter().filter(|line| line.contains("no hcomm handshake")).count();
    assert_eq!(refusals, 1, "logged once, however many there were");
}

#[test]
fn an_address_that_leads_elsewhere_is_passed_over() {
    let endpoints = [0, 1, 2].map(|rank| Endpoint::start(options(rank)).unwrap());
    let dead = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().to_string()
    };
    let own = endpoints[1].addresses().remove(0);
    // Nobody, another rank, and at last the right one.
    let addresses = vec![dead, endpoints[2].addresses().remove(0), own];
    let left = endpoints[0].link(&PeerAddress { rank: 1, addresses }, LINK).unwrap();
    let right = endpoints[1].link(&PeerAddress { rank: 0, addresses: endpoints[0].addresses() }, LINK).unwrap();
    exchange(&mut [left, right], &SIZES, None);
    assert_eq!(endpoints[2].refused(), 1);
}

#[test]
fn a_peer_that_is_not_there_is_an_error_that_says_where_it_was_sought() {
    let endpoint = Endpoint::start(Options { timeout: Duration::from_millis(30), ..options(0) }).unwrap();
    let other = Endpoint::start(Options { job: "another".into(), ..options(1) }).unwrap();
    let addresses = other.addresses();
    let mut link = endpoint.link(&PeerAddress { rank: 1, addresses: addresses.clone() }, LINK).unwrap();
    let expected = format!("rank 1 was not reached within 30ms: {}: refused: another job", addresses[0]);
    assert_eq!(receive(&mut link, 8, 0), Err(LinkError::Closed(expected)));
    let mut link = endpoint.link(&PeerAddress { rank: 1, addresses: vec!["here".into()] }, LINK);
    assert!(link.as_mut().is_err_and(|error| error.to_string().contains("\"here\"")));
}

#[test]
fn different_settings_are_an_error_on_the_side_that_connects() {
    let left = endpoint(options(0), 2);
    let right = endpoint(options(1), 1);
    let mut link = left.link(&PeerAddress { rank: 1, addresses: right.addresses() }, LINK).unwrap();
    let error = receive(&mut link, 8, 0).unwrap_err();
    assert!(matches!(&error, LinkError::Protocol(text) if text.contains("settings")), "{error:?}");
}

/// A greeted peer that sends these frames, each with its payload of ones, and then what `receive` says to it.
fn hostile(frames: &[Header], len: usize) -> LinkError {
    let endpoint = Endpoint::start(options(1)).unwrap();
    let mut link = endpoint.link(&PeerAddress { rank: 0, addresses: vec![] }, LINK).unwrap();
    let (mut stream, reply) = greet(&endpoint, &hello(1).encode());
    assert_eq!(reply.map(|reply| reply.refusal), Some(None));
    for frame in frames {
        stream.write_all(&frame.encode()).unwrap();
        stream.write_all(&vec![1; frame.length as usize]).unwrap();
    }
    receive(&mut link, len, 0).unwrap_err()
}

#[test]
fn frames_that_do_not_fit_are_refused() {
    let half = Header { length: 8, total: 16, ..Header::default() };
    let protocol = |frames: &[Header]| match hostile(frames, 16) {
        LinkError::Protocol(text) => text,
        other => panic!("{other:?}"),
    };
    assert!(protocol(&[half, half]).contains("repeats"));
    assert!(protocol(&[Header { offset: 4, ..half }, half]).contains("repeats"));
    assert!(protocol(&[Header { sequence: 9, ..half }]).contains("left out"));
    assert!(protocol(&[Header { offset: 12, ..half }]).contains("in a message of 16"));
    assert_eq!(hostile(&[Header { total: 1 << 60, ..half }], 16), LinkError::Length { got: 1 << 60 });
}
