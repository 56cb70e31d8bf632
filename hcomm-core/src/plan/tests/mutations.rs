//! Plans broken on purpose: `verify` must object to every one.

use super::*;

/// One request an algorithm and collective, with several chunks, and of direct also the remote form.
fn samples() -> Vec<Request> {
    let mut samples = Vec::new();
    for algorithm in Algorithm::ALL {
        for collective in collectives(algorithm) {
            for reach in [Reach::Messages, Reach::Read, Reach::ReadWrite] {
                let by_messages = algorithm != Algorithm::Direct || reach == Reach::Read && collective.reduces();
                if reach != Reach::Messages && by_messages {
                    continue;
                }
                let ranks = if (algorithm, collective) == (Algorithm::RecursiveDoubling, Collective::AllGather) {
                    4
                } else {
                    5
                };
                let hosts: Arc<[usize]> = [0, 1, 0, 1, 1][..ranks].into();
                let root = if collective.rooted() { 1 } else { 0 };
                let plain = request(algorithm, collective, ranks, 100);
                samples.push(Request { chunk: 30, root, reach, hosts: Some(hosts), ..plain });
            }
        }
    }
    samples
}

fn plans(request: &Request) -> Vec<RankPlan> {
    (0..request.ranks).map(|rank| build(request, rank).unwrap()).collect()
}

/// Every (rank, track, step) of plans.
fn places(plans: &[RankPlan]) -> Vec<(usize, usize, usize)> {
    let tracks = plans
        .iter()
        .enumerate()
        .flat_map(|(rank, plan)| plan.tracks.iter().enumerate().map(move |(track, steps)| (rank, track, steps.len())));
    tracks.flat_map(|(rank, track, steps)| (0..steps).map(move |step| (rank, track, step))).collect()
}

/// Applies `mutate` to each step in turn; where it does something, `verify` must object. Returns how often.
fn object_to(mutate: impl Fn(&mut Vec<Step>, usize) -> bool) -> usize {
    let mut mutants = 0;
    for request in samples() {
        let plans = plans(&request);
        assert!(verify_plans(&request, &plans).is_ok());
        for (rank, track, step) in places(&plans) {
            let mut broken = plans.clone();
            if !mutate(&mut broken[rank].tracks[track], step) {
                continue;
            }
            mutants += 1;
            let place = format!("rank {rank}, track {track}, step {step}: {request:?}\n{}", plans[rank]);
            assert!(verify_plans(&request, &broken).is_err(), "a broken plan passed: {place}");
        }
    }
    mutants
}

/// The ranges that a step writes, or reads from.
fn ranges(step: &mut Step, written: bool) -> Vec<&mut Range> {
    match (step, written) {
        (Step::Send { src, .. }, false) => vec![src],
        (Step::Recv { dst, .. } | Step::RecvSend { dst, .. }, true) => vec![dst],
        // Where a partial sum that goes on is kept meanwhile may not matter.
        (Step::RecvReduceSend { .. }, true) => vec![],
        (Step::RecvReduce { dst, .. }, true) => vec![dst],
        (Step::RecvReduce { operand, .. } | Step::RecvReduceSend { operand, .. }, false) => vec![operand],
        (Step::Reduce { srcs, .. }, false) => srcs.iter_mut().map(|src| &mut src.range).collect(),
        (Step::Reduce { dsts, .. }, true) => dsts.iter_mut().map(|dst| &mut dst.range).collect(),
        (Step::Copy { src, .. }, false) => vec![&mut src.range],
        (Step::Copy { dst, .. }, true) => vec![&mut dst.range],
        _ => vec![],
    }
}

#[test]
fn a_step_left_out() {
    let mutants = object_to(|steps, step| {
        steps.remove(step);
        true
    });
    assert!(mutants > 1000, "{mutants}");
}

#[test]
fn a_step_done_twice() {
    let mutants = object_to(|steps, step| {
        // Copying or folding twice from what has not changed does no harm.
        if matches!(steps[step], Step::Copy { .. } | Step::Reduce { .. }) {
            return false;
        }
        steps.insert(step, steps[step].clone());
        true
    });
    assert!(mutants > 1000, "{mutants}");
}

#[test]
fn a_range_shifted() {
    for written in [false, true] {
        for back in [false, true] {
            let mutants = object_to(|steps, step| match ranges(&mut steps[step], written).last_mut() {
                Some(range) if range.count > 0 && !(back && range.offset == 0) => {
                    range.offset = if back { range.offset - 1 } else { range.offset + 1 };
                    true
                }
                _ => false,
            });
            assert!(mutants > 100, "{mutants}");
        }
    }
}

#[test]
fn two_messages_of_one_peer_swapped() {
    let mutants = object_to(|steps, step| {
        let same_link = match (steps.get(step), steps.get(step + 1)) {
            (Some(Step::Send { peer: one, src: a }), Some(Step::Send { peer: other, src: b })) => {
                one == other && a != b
            }
            (Some(Step::Recv { peer: one, dst: a }), Some(Step::Recv { peer: other, dst: b })) => {
                one == other && a != b
            }
            _ => false,
        };
        if same_link {
            steps.swap(step, step + 1);
        }
        same_link
    });
    assert!(mutants > 20, "{mutants}");
}

#[test]
fn another_peer() {
    object_to(|steps, step| match &mut steps[step] {
        Step::Send { peer, .. } | Step::Recv { peer, .. } | Step::RecvReduce { peer, .. } => {
            *peer = (*peer + 1) % 5;
            true
        }
        _ => false,
    });
}

fn fault(request: &Request, plans: &[RankPlan]) -> String {
    verify_plans(request, plans).unwrap_err().to_string()
}

fn range(buffer: Buffer, offset: u64, count: u64) -> Range {
    Range { buffer, offset, count }
}

fn plan(steps: Vec<Step>) -> RankPlan {
    RankPlan { tracks: vec![steps], scratch: 8, remote: false }
}

#[test]
fn partners_who_overwrite_what_they_send_each_other() {
    let request = Request { in_place: true, ..request(Algorithm::Direct, Collective::AllReduce, 2, 8) };
    let all = range(Buffer::Output, 0, 8);
    let of = |peer| plan(vec![Step::Send { peer, src: all }, Step::RecvReduce { peer, operand: all, dst: all }]);
    assert!(fault(&request, &[of(1), of(0)]).contains("waits for ever"));
    assert!(
        verify_plans(&Request { in_place: false, ..request }, &[of(1), of(0)]).is_err(),
        "output is not yet written"
    );
}

#[test]
fn a_plan_that_needs_a_queue_of_two() {
    let request = request(Algorithm::Direct, Collective::SendRecv, 2, 8);
    let halves = |buffer| [range(buffer, 0, 4), range(buffer, 4, 4)];
    let of = |peer: usize| {
        let sends = halves(Buffer::Input).map(|src| Step::Send { peer, src });
        let recvs = halves(Buffer::Output).map(|dst| Step::Recv { peer, dst });
        plan([sends, recvs].concat())
    };
    assert!(fault(&request, &[of(1), of(0)]).contains("waits for ever"));
}

#[test]
fn tracks_that_share_memory() {
    let request = request(Algorithm::Direct, Collective::AllReduce, 1, 8);
    let copy = |offset, count| {
        vec![Step::Copy {
            src: range(Buffer::Input, offset, count).here(),
            dst: range(Buffer::Output, offset, count).here(),
        }]
    };
    let of = |first, second| RankPlan { tracks: vec![first, second], scratch: 0, remote: false };
    assert!(verify_plans(&request, &[of(copy(0, 4), copy(4, 4))]).is_ok());
    assert!(fault(&request, &[of(copy(0, 5), copy(4, 4))]).contains("both use element 4"));
}

#[test]
fn input_written_and_bounds_left() {
    let request = request(Algorithm::Direct, Collective::AllReduce, 1, 8);
    let copy = |src: Range, dst: Range| plan(vec![Step::Copy { src: src.here(), dst: dst.here() }]);
    let (input, output) = (range(Buffer::Input, 0, 8), range(Buffer::Output, 0, 8));
    assert!(fault(&request, &[copy(output, input)]).contains("input is never written"));
    assert!(fault(&request, &[copy(range(Buffer::Input, 1, 8), output)]).contains("out of bounds"));
    assert!(fault(&request, &[copy(range(Buffer::Input, u64::MAX, 8), output)]).contains("out of bounds"));
    assert!(fault(&request, &[copy(range(Buffer::Scratch, 0, 8), output)]).contains("never written"));
}

#[test]
fn ranks_that_leave_early_or_race() {
    let request = Request { reach: Reach::ReadWrite, ..request(Algorithm::Direct, Collective::AllReduce, 3, 60) };
    let mut broken = plans(&request);
    for plan in &mut broken {
        plan.tracks[0].retain(|step| !matches!(step, Step::Send { .. } | Step::Recv { .. }));
    }
    assert!(fault(&request, &broken).contains("may leave"));
    // Reading all of everyone's input while it is their output as well.
    assert!(verify_plans(&Request { in_place: true, ..request.clone() }, &plans(&request)).is_err());
    // Rank 1 reads what rank 0 has just written, but nothing tells it that this was done.
    let there = Operand { rank: Some(0), range: range(Buffer::Output, 0, 60) };
    let (input, output) = (range(Buffer::Input, 0, 60).here(), range(Buffer::Output, 0, 60).here());
    let racing = [
        vec![Step::Copy { src: input, dst: output }, Step::Recv { peer: 1, dst: Range::nothing() }],
        vec![Step::Copy { src: there, dst: output }, Step::Send { peer: 0, src: Range::nothing() }],
    ];
    let racing = racing.map(|steps| RankPlan { remote: true, ..plan(steps) });
    let request = Request { collective: Collective::Broadcast, ranks: 2, ..request };
    assert!(fault(&request, &racing).contains("race"));
}

#[test]
fn an_order_of_adding_up_that_differs_between_ranks() {
    let request = request(Algorithm::Direct, Collective::AllReduce, 3, 8);
    let mut broken = plans(&request);
    for step in &mut broken[1].tracks[0] {
        if let Step::Reduce { srcs, .. } = step {
            srcs.reverse();
        }
    }
    assert!(fault(&request, &broken).contains("bits may differ"));
}
