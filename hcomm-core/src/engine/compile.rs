//! From a [`RankPlan`] in elements to steps in bytes that the engine walks without looking anything up.

use std::collections::BTreeMap;

use crate::plan::{Buffer, Operand, Range, RankPlan, Step};
use crate::reduce::Reducer;

/// Index of a base address: input, output, scratch, then input and output of each rank for remote plans.
pub(crate) type Region = u32;
pub(crate) const INPUT: Region = 0;
pub(crate) const OUTPUT: Region = 1;
pub(crate) const SCRATCH: Region = 2;

/// Region of another rank's input.
pub(crate) const fn remote_input(rank: usize) -> Region {
    3 + 2 * rank as Region
}

/// Region of another rank's output.
pub(crate) const fn remote_output(rank: usize) -> Region {
    4 + 2 * rank as Region
}

/// A place in memory: base of the region plus bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub region: Region,
    pub offset: usize,
}

/// A step in bytes.
#[derive(Debug)]
pub(crate) enum Action {
    Send {
        peer: usize,
        src: Place,
        len: usize,
    },
    /// Receives into `dst`, reducing with `operand` if there is one, then passes `dst` on to `forward`.
    Recv {
        peer: usize,
        dst: Place,
        operand: Option<Place>,
        len: usize,
        forward: Option<usize>,
    },
    Reduce {
        srcs: Vec<Place>,
        dsts: Vec<Place>,
        count: usize,
    },
    Copy {
        src: Place,
        dst: Place,
        len: usize,
    },
}

/// Before a step may write: the `number`-th message that this track sent to `peer` (from 1) must have left its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hazard {
    pub peer: usize,
    pub number: u64,
}

#[derive(Debug)]
pub(crate) struct CompiledStep {
    pub action: Action,
    /// Index range into [`Compiled::hazards`].
    pub hazards: std::ops::Range<u32>,
}

/// A rank's plan, ready to run any number of times.
pub(crate) struct Compiled {
    pub tracks: Vec<Track>,
    pub hazards: Vec<Hazard>,
    pub scratch_bytes: usize,
    /// Kernels, for plans that reduce.
    pub reducer: Option<Reducer>,
}

/// One independent list of steps.
#[derive(Debug)]
pub(crate) struct Track {
    pub steps: Vec<CompiledStep>,
    /// Peers that this track exchanges messages with, in order.
    pub peers: Vec<usize>,
}

/// How input and output lie to each other, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Aliasing {
    /// No shared bytes.
    Apart,
    /// Input byte 0 is output byte `.0`.
    InputInOutput(usize),
    /// Output byte 0 is input byte `.0`.
    OutputInInput(usize),
}

impl Compiled {
    /// Turns `plan` into bytes. `element` is the element size; `reducer` is needed when the plan reduces.
    pub fn new(plan: &RankPlan, element: usize, reducer: Option<Reducer>, aliasing: Aliasing) -> Self {
        let mut compiled = Compiled {
            tracks: Vec::with_capacity(plan.tracks.len()),
            hazards: Vec::new(),
            scratch_bytes: plan.scratch as usize * element,
            reducer,
        };
        for track in &plan.tracks {
            // Each (peer, track) has a link of its own, so messages are counted there.
            let mut sent: BTreeMap<usize, u64> = BTreeMap::new();
            let mut hazards = HazardMap::new(aliasing);
            let mut steps = Vec::with_capacity(track.len());
            let mut peers = Vec::new();
            for step in track {
                let first = compiled.hazards.len() as u32;
                let action = translate(step, element);
                for (place, len) in writes(&action, element) {
                    hazards.collect(place, len, &mut compiled.hazards);
                }
                let range = first..compiled.hazards.len() as u32;
                if let Some((peer, src, len)) = sends(&action) {
                    let number = sent.entry(peer).or_default();
                    *number += 1;
                    hazards.insert(src, len, peer, *number);
                }
                peers.extend(peers_of(&action));
                steps.push(CompiledStep { action, hazards: range });
            }
            peers.sort_unstable();
            peers.dedup();
            compiled.tracks.push(Track { steps, peers });
        }
        compiled
    }
}

fn translate(step: &Step, element: usize) -> Action {
    let place = |range: &Range| own(range, element);
    let bytes = |range: &Range| range.count as usize * element;
    match step {
        Step::Send { peer, src } => Action::Send { peer: *peer, src: place(src), len: bytes(src) },
        Step::Recv { peer, dst } => {
            Action::Recv { peer: *peer, dst: place(dst), operand: None, len: bytes(dst), forward: None }
        }
        Step::RecvReduce { peer, operand, dst } => {
            Action::Recv { peer: *peer, dst: place(dst), operand: Some(place(operand)), len: bytes(dst), forward: None }
        }
        Step::RecvReduceSend { from, operand, dst, to } => Action::Recv {
            peer: *from,
            dst: place(dst),
            operand: Some(place(operand)),
            len: bytes(dst),
            forward: Some(*to),
        },
        Step::RecvSend { from, dst, to } => {
            Action::Recv { peer: *from, dst: place(dst), operand: None, len: bytes(dst), forward: Some(*to) }
        }
        Step::Reduce { srcs, dsts } => Action::Reduce {
            srcs: srcs.iter().map(|o| any(o, element)).collect(),
            dsts: dsts.iter().map(|o| any(o, element)).collect(),
            count: dsts.first().map_or(0, |o| o.range.count as usize),
        },
        Step::Copy { src, dst } => {
            Action::Copy { src: any(src, element), dst: any(dst, element), len: bytes(&dst.range) }
        }
    }
}

fn own(range: &Range, element: usize) -> Place {
    let region = match range.buffer {
        Buffer::Input => INPUT,
        Buffer::Output => OUTPUT,
        Buffer::Scratch => SCRATCH,
    };
    Place { region, offset: range.offset as usize * element }
}

fn any(operand: &Operand, element: usize) -> Place {
    let mut place = own(&operand.range, element);
    if let Some(rank) = operand.rank {
        place.region = match operand.range.buffer {
            Buffer::Input => remote_input(rank),
            Buffer::Output => remote_output(rank),
            // Plans never name another rank's scratch: it has no address there.
            Buffer::Scratch => unreachable!("scratch is private to a rank"),
        };
    }
    place
}

fn writes(action: &Action, element: usize) -> Vec<(Place, usize)> {
    match action {
        Action::Send { .. } => Vec::new(),
        Action::Recv { dst, len, .. } | Action::Copy { dst, len, .. } => vec![(*dst, *len)],
        Action::Reduce { dsts, count, .. } => dsts.iter().map(|d| (*d, count * element)).collect(),
    }
}

fn sends(action: &Action) -> Option<(usize, Place, usize)> {
    match action {
        Action::Send { peer, src, len } => Some((*peer, *src, *len)),
        Action::Recv { dst, len, forward: Some(to), .. } => Some((*to, *dst, *len)),
        _ => None,
    }
}

fn peers_of(action: &Action) -> impl Iterator<Item = usize> {
    let (a, b) = match action {
        Action::Send { peer, .. } => (Some(*peer), None),
        Action::Recv { peer, forward, .. } => (Some(*peer), *forward),
        _ => (None, None),
    };
    a.into_iter().chain(b)
}

/// Ranges of messages sent so far, to find those that a write would disturb.
struct HazardMap {
    aliasing: Aliasing,
    /// (region, offset, peer) to (end, number); a later send of the same start to the same peer replaces the earlier,
    /// whose completion it implies.
    sent: BTreeMap<(Region, usize, usize), (usize, u64)>,
    longest: usize,
}

impl HazardMap {
    fn new(aliasing: Aliasing) -> Self {
        Self { aliasing, sent: BTreeMap::new(), longest: 0 }
    }

    /// One memory has one name: with aliased buffers the larger one's.
    fn normalise(&self, place: Place) -> Place {
        match (self.aliasing, place.region) {
            (Aliasing::InputInOutput(at), INPUT) => Place { region: OUTPUT, offset: place.offset + at },
            (Aliasing::OutputInInput(at), OUTPUT) => Place { region: INPUT, offset: place.offset + at },
            _ => place,
        }
    }

    fn insert(&mut self, src: Place, len: usize, peer: usize, number: u64) {
        if len == 0 {
            return;
        }
        let src = self.normalise(src);
        let entry = self.sent.entry((src.region, src.offset, peer)).or_insert((src.offset + len, number));
        *entry = (entry.0.max(src.offset + len), number);
        self.longest = self.longest.max(entry.0 - src.offset);
    }

    /// Adds the messages that a write of `len` bytes at `dst` must wait for, the latest of each peer.
    fn collect(&self, dst: Place, len: usize, out: &mut Vec<Hazard>) {
        if len == 0 {
            return;
        }
        let first = out.len();
        let dst = self.normalise(dst);
        let from = (dst.region, dst.offset.saturating_sub(self.longest), 0);
        let to = (dst.region, dst.offset + len, 0);
        for (&(_, _, peer), &(end, number)) in self.sent.range(from..to) {
            if end <= dst.offset {
                continue;
            }
            match out[first..].iter_mut().find(|h| h.peer == peer) {
                Some(hazard) => hazard.number = hazard.number.max(number),
                None => out.push(Hazard { peer, number }),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn range(buffer: Buffer, offset: u64, count: u64) -> Range {
        Range { buffer, offset, count }
    }

    fn compiled(steps: Vec<Step>, element: usize, aliasing: Aliasing) -> Compiled {
        Compiled::new(&RankPlan { tracks: vec![steps], scratch: 8, remote: false }, element, None, aliasing)
    }

    /// (peer, number) that each step waits for.
    fn waits(compiled: &Compiled) -> Vec<Vec<(usize, u64)>> {
        let hazards = |step: &CompiledStep| {
            compiled.hazards[step.hazards.start as usize..step.hazards.end as usize]
                .iter()
                .map(|h| (h.peer, h.number))
                .collect()
        };
        compiled.tracks[0].steps.iter().map(hazards).collect()
    }

    #[test]
    fn a_write_waits_for_the_messages_that_it_would_disturb() {
        let send = |peer, offset, count| Step::Send { peer, src: range(Buffer::Output, offset, count) };
        let receive = |offset, count| Step::Recv { peer: 9, dst: range(Buffer::Output, offset, count) };
        let steps = vec![
            receive(0, 4), // nothing was sent yet
            send(1, 0, 4),
            send(2, 0, 2),
            send(1, 6, 2),
            receive(4, 2), // between the messages
            receive(3, 1), // the end of the first only
            receive(1, 6), // all
            receive(0, 0), // nothing is written
        ];
        let expected: [&[(usize, u64)]; 8] = [&[], &[], &[], &[], &[], &[(1, 1)], &[(1, 2), (2, 1)], &[]];
        assert_eq!(waits(&compiled(steps, 4, Aliasing::Apart)), expected);
    }

    #[test]
    fn what_is_passed_on_is_sent_as_well() {
        let dst = range(Buffer::Scratch, 0, 4);
        let step = Step::RecvSend { from: 1, dst, to: 2 };
        let compiled = compiled(vec![step.clone(), step], 8, Aliasing::Apart);
        assert_eq!(waits(&compiled), [vec![], vec![(2, 1)]]);
        assert_eq!((&compiled.tracks[0].peers, compiled.scratch_bytes), (&vec![1, 2], 64));
    }

    #[test]
    fn in_place_input_and_output_are_the_same_memory() {
        let steps = || {
            let send = |peer, buffer| Step::Send { peer, src: range(buffer, 2, 2) };
            let receive = |buffer, offset| Step::Recv { peer: 3, dst: range(buffer, offset, 1) };
            vec![
                send(1, Buffer::Input),
                send(2, Buffer::Output),
                receive(Buffer::Output, 3),
                receive(Buffer::Output, 7),
            ]
        };
        let of = |aliasing| waits(&compiled(steps(), 2, aliasing)).split_off(2);
        assert_eq!(of(Aliasing::Apart), [vec![(2, 1)], vec![]]);
        assert_eq!(of(Aliasing::InputInOutput(0)), [vec![(1, 1), (2, 1)], vec![]]);
        // Bytes 4 and 5 of the input are bytes 14 and 15 of the output.
        assert_eq!(of(Aliasing::InputInOutput(10)), [vec![(2, 1)], vec![(1, 1)]]);
        // Byte 0 of the output is byte 2 of the input: output 1 is input 2.
        let send = Step::Send { peer: 1, src: range(Buffer::Input, 2, 1) };
        let receive = |offset| Step::Recv { peer: 3, dst: range(Buffer::Output, offset, 1) };
        let steps = vec![send, receive(0), receive(1)];
        assert_eq!(waits(&compiled(steps, 2, Aliasing::OutputInInput(2))), [vec![], vec![], vec![(1, 1)]]);
    }

    #[test]
    fn places_are_in_bytes_and_name_other_ranks() {
        let operand = |rank, buffer| Operand { rank, range: range(buffer, 3, 2) };
        let copy = Step::Copy { src: operand(Some(5), Buffer::Output), dst: operand(None, Buffer::Output) };
        let compiled = compiled(vec![copy], 8, Aliasing::Apart);
        let Action::Copy { src, dst, len } = compiled.tracks[0].steps[0].action else { panic!("a copy") };
        assert_eq!(src, Place { region: remote_output(5), offset: 24 });
        assert_eq!((dst, len), (Place { region: OUTPUT, offset: 24 }, 16));
        assert!(compiled.tracks[0].peers.is_empty());
    }

    proptest! {
        /// Against a comparison of all with all: nothing is forgotten, and nothing awaited that was not sent.
        #[test]
        fn no_message_is_disturbed(
            steps in prop::collection::vec((prop::bool::ANY, 0..3_usize, 0..40_u64, 0..12_u64, prop::bool::ANY), 0..60),
            shift in 0..20_usize,
        ) {
            let buffer = |input| if input { Buffer::Input } else { Buffer::Output };
            let plan = steps.iter().map(|&(send, peer, offset, count, input)| match send {
                true => Step::Send { peer, src: range(buffer(input), offset, count) },
                false => Step::Recv { peer, dst: range(Buffer::Output, offset, count) },
            });
            let waits = waits(&compiled(plan.collect(), 1, Aliasing::InputInOutput(shift)));
            let mut sent: Vec<(usize, std::ops::Range<u64>)> = Vec::new();
            for (&(send, peer, offset, count, input), waits) in steps.iter().zip(waits) {
                let at = if send && input { offset + shift as u64 } else { offset };
                let range = at..at + count;
                if send {
                    prop_assert!(waits.is_empty());
                    sent.push((peer, range));
                    continue;
                }
                for peer in 0..3 {
                    let messages = sent.iter().filter(|message| message.0 == peer).zip(1_u64..);
                    let disturbs = |other: &std::ops::Range<u64>| other.start.max(range.start) < other.end.min(range.end);
                    let needed = messages.clone().filter(|(m, _)| disturbs(&m.1)).map(|(_, number)| number).max();
                    let awaited = waits.iter().find(|wait| wait.0 == peer).map(|wait| wait.1);
                    prop_assert!(awaited >= needed, "peer {peer}: {awaited:?}, needed {needed:?}");
                    prop_assert!(awaited.unwrap_or(0) <= messages.count() as u64);
                    prop_assert!(awaited.is_none() || count > 0);
                }
            }
        }
    }
}
