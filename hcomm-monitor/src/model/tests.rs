//! Calls put together from the records of ranks that come in any order.

use super::*;
use crate::fixtures::*;

/// Two ranks, which have begun calls up to `begun` and tell of those in `told`.
fn two(after_ms: u64, begun: [u64; 2], told: [&[u64]; 2]) -> Tick {
    let ranks = (0..2_u32).zip(begun).zip(told).map(|((number, begun), told)| {
        let mut snapshot = rank("calls", number, 2, after_ms);
        (snapshot.lanes[0].begun, snapshot.lanes[0].ended) = (begun, begun);
        let late = 100 * u64::from(number);
        snapshot.records = told.iter().map(|&call| record(call, ALL_REDUCE, 8, 1000 * call + late, 500)).collect();
        snapshot
    });
    tick(after_ms, ranks.collect())
}

/// Numbers of the calls that were finished in the last tick, and of how many ranks they are.
fn finished(model: &Model) -> Vec<(u64, usize)> {
    model.jobs()[0].calls.finished().map(|call| (call.number, call.starts.len())).collect()
}

#[test]
fn a_call_is_finished_when_all_ranks_told_of_it() {
    let mut model = Model::default();
    model.update(two(100, [3, 3], [&[1, 2, 3], &[1]]));
    assert_eq!(finished(&model), [(1, 2)]);
    model.update(two(200, [3, 3], [&[], &[2, 3]]));
    assert_eq!(finished(&model), [(2, 2), (3, 2)]);
    let newest = model.jobs()[0].calls.recent().next().unwrap();
    assert_eq!((newest.number, newest.last()), (3, Some((1, 100_000))), "the other came 100 us later");
    model.update(two(300, [3, 3], [&[3], &[]]));
    assert_eq!(finished(&model), [], "a record that comes later adds nothing");
}

#[test]
fn a_call_waits_for_a_rank_that_is_behind_and_not_for_one_that_did_not_time_it() {
    let mut model = Model::default();
    model.update(two(100, [5, 2], [&[2, 4, 5], &[]]));
    model.update(two(200, [5, 4], [&[], &[]]));
    // Rank 1 has begun its fourth call: the second is over and was not timed.
    assert_eq!(finished(&model), [(2, 1)]);
    model.update(two(300, [5, 6], [&[], &[5]]));
    assert_eq!(finished(&model), [(4, 1), (5, 2)]);
}

#[test]
fn ranks_that_called_different_things_have_a_line_each() {
    let mut model = Model::default();
    let mut tick = two(100, [1, 1], [&[1], &[1]]);
    tick.processes[1].records[0].kind = BROADCAST;
    model.update(tick);
    model.update(two(200, [2, 2], [&[], &[]]));
    assert_eq!(finished(&model), [(1, 1), (1, 1)]);
}
