//! Links over loopback against what was sent.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::*;
use crate::session::handshake::LinkId;
use crate::topology::interfaces::{LOOPBACK, Subnet};
use crate::transport::{LinkError, Recv};

const LINK: LinkId = LinkId { communicator: 7, lane: 1 };

fn options(rank: usize) -> Options {
    Options {
        job: "test".into(),
        rank,
        local: vec![LOOPBACK[0]],
        sockets: 1,
        frame_bytes: 64 << 10,
        queue: 64,
        tuning: Tuning::default(),
        timeout: Duration::from_secs(20),
        retry: Duration::from_millis(5),
        greeting: Duration::from_secs(2),
        log: None,
    }
}

fn pair_with(change: impl Fn(&mut Options)) -> ([Endpoint; 2], [TcpLink; 2]) {
    let endpoints = [0, 1].map(|rank| {
        let mut options = options(rank);
        change(&mut options);
        Endpoint::start(options).unwrap()
    });
    let links = [0, 1].map(|rank: usize| {
        let peer = PeerAddress { rank: 1 - rank, addresses: endpoints[1 - rank].addresses() };
        endpoints[rank].link(&peer, LINK).unwrap()
    });
    (endpoints, links)
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i.wrapping_mul(31).wrapping_add(seed * 17) >> 3) as u8 ^ i as u8).collect()
}

/// Sends `sizes` from each side to the other at once, and compares.
fn exchange(links: &mut [TcpLink; 2], sizes: &[usize]) {
    let sources: Vec<Vec<u8>> = sizes.iter().enumerate().map(|(i, &len)| pattern(len, i)).collect();
    let mut targets: [Vec<Vec<u8>>; 2] = [0, 1].map(|_| sizes.iter().map(|&len| vec![0xAA; len]).collect());
    let mut received = [0, 0];
    let mut done = [0, 0];
    let mut posted = [0, 0];
    let before = [links[0].sends_done(), links[1].sends_done()];
    let deadline = Instant::now() + Duration::from_secs(30);
    while received != [sizes.len(); 2] || links.iter().zip(before).any(|(l, b)| l.sends_done() < b + sizes.len() as u64)
    {
        assert!(Instant::now() < deadline, "stuck at {received:?} of {}", sizes.len());
        for side in 0..2 {
            let link = &mut links[side];
            if posted[side] < sizes.len() {
                let source = &sources[posted[side]];
                // SAFETY: the sources outlive the loop, which ends when all are sent.
                if unsafe { link.post_send(source.as_ptr(), source.len(), posted[side] as u32) }.unwrap() {
                    posted[side] += 1;
                }
            }
            link.progress().unwrap();
            if received[side] < sizes.len() {
                let target = &mut targets[side][received[side]];
                let mut recv = Recv {
                    dst: target.as_mut_ptr(),
                    operand: std::ptr::null(),
                    reducer: None,
                    len: target.len(),
                    done: done[side],
                    stamp: received[side] as u32,
                };
                // SAFETY: the target is ours alone.
                let moved = unsafe { link.poll_recv(&mut recv) }.unwrap();
                done[side] = recv.done;
                if moved && recv.done == recv.len {
                    (received[side], done[side]) = (received[side] + 1, 0);
                }
            }
        }
    }
    for side in &targets {
        for (index, target) in side.iter().enumerate() {
            assert!(*target == sources[index], "message {index} of {} bytes differs", target.len());
        }
    }
}

#[test]
fn messages_of_all_sizes_arrive_whole() {
    let (_endpoints, mut links) = pair_with(|_| ());
    exchange(&mut links, &[8, 0, 1, 4096, 4097, 65535, 65536, 65537, 0, 3 << 20, 1, 8]);
}
