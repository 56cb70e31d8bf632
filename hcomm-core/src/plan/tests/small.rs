//! Plans for short messages, step by step: nothing in them that need not be.

use super::*;

fn text(request: &Request, rank: usize) -> String {
    build(request, rank).unwrap().to_string()
}

#[test]
fn two_ranks_in_messages() {
    let plain = request(Algorithm::Direct, Collective::AllReduce, 2, 8);
    assert_eq!(text(&plain, 0), "send input[0..8] to 1\noutput[0..8] = input[0..8] + receive from 1\n");
    let in_place = Request { in_place: true, ..plain.clone() };
    assert_eq!(
        text(&in_place, 1),
        "send output[0..8] to 0\nscratch[0..8] = receive from 0\n\
         output[0..8] = scratch[0..8] + output[0..8]\nscratch: 8 elements\n"
    );
    let two_shot = Request { chunk: 4, ..plain };
    assert_eq!(
        text(&two_shot, 0),
        "send input[4..8] to 1\noutput[0..4] = input[0..4] + receive from 1, send to 1\n\
         output[4..8] = receive from 1\n"
    );
}

#[test]
fn two_ranks_in_memory_of_both() {
    let plain = Request { reach: Reach::ReadWrite, ..request(Algorithm::Direct, Collective::AllReduce, 2, 64) };
    assert_eq!(
        text(&plain, 0),
        "exchange addresses\noutput[0..64] = input[0..64] + 1:input[0..64]\nnote to 1\nawait note from 1\n"
    );
    let in_place = Request { in_place: true, ..plain };
    assert_eq!(
        text(&in_place, 1),
        "exchange addresses\noutput[32..64], 0:output[32..64] = 0:input[32..64] + input[32..64]\n\
         note to 0\nawait note from 0\n"
    );
}

#[test]
fn one_rank_copies_or_does_nothing() {
    for algorithm in Algorithm::ALL {
        for collective in Collective::ALL {
            let plain = Request { reach: Reach::ReadWrite, ..request(algorithm, collective, 1, 8) };
            let steps = if collective == Collective::Barrier { 0 } else { 1 };
            assert_eq!(build(&plain, 0).unwrap().tracks.concat().len(), steps, "{algorithm} {collective}");
            must_verify(&plain);
        }
        let in_place = Request { in_place: true, ..request(algorithm, Collective::AllReduce, 1, 8) };
        assert_eq!(build(&in_place, 0).unwrap().tracks.concat(), []);
    }
}

#[test]
fn scratch_is_bounded_by_chunks_not_by_data() {
    for algorithm in
        [Algorithm::Ring, Algorithm::Direct, Algorithm::RecursiveDoubling, Algorithm::Tree, Algorithm::Chain]
    {
        for collective in [Collective::AllReduce, Collective::Reduce, Collective::ReduceScatter] {
            let large = Request { chunk: 16, channels: 2, ..request(algorithm, collective, 5, 10_000) };
            if let Ok(plan) = build(&large, 0) {
                assert!(plan.scratch <= 4 * 5 * 16, "{algorithm} {collective}: {}", plan.scratch);
            }
        }
    }
}

#[test]
fn meaningless_requests_are_arguments_refused_in_words() {
    let plain = request(Algorithm::Direct, Collective::AllGather, 4, 8);
    let cases = [
        (Request { ranks: 0, ..plain.clone() }, "at least 1 rank"),
        (Request { root: 4, ..plain.clone() }, "root 4 of 4 ranks"),
        (Request { chunk: 0, ..plain.clone() }, "chunk 0"),
        (Request { channels: 0, ..plain.clone() }, "channels 0"),
        (Request { hosts: Some([0, 0].into()), ..plain.clone() }, "2 hosts given for 4 ranks"),
        (Request { counts: Counts::PerRank([1].into()), ..plain.clone() }, "1 counts given for 4 ranks"),
        (Request { counts: Counts::Matrix([1; 16].into()), ..plain.clone() }, "no count for each pair"),
    ];
    for (request, words) in cases {
        let error = build(&request, 0).unwrap_err();
        assert_eq!(error.code(), "HC-E0011");
        assert!(error.to_string().contains(words), "{error}");
    }
    assert!(build(&plain, 4).is_err_and(|error| error.to_string().contains("rank 4 of 4")));
}
