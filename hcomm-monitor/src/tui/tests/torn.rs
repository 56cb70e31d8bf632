//! Looks whose parts are not of one moment.

use super::*;

fn rate(model: &Model) -> Option<f64> {
    model.jobs()[0].operations()[0].calls_per_s
}

/// One rank with so many operations.
fn counted(after_ms: u64, count: u64, whole: bool) -> Tick {
    let mut snapshot = rank("torn", 0, 1, after_ms);
    snapshot.operations = vec![operation(ALL_REDUCE, 1, 1 << 20, count, 1000, "ring")];
    snapshot.links = vec![link(1, "tcp", count)];
    snapshot.whole = whole;
    tick(after_ms, vec![snapshot])
}

#[test]
fn a_torn_look_gives_no_rate_and_the_next_spans_it() {
    let mut model = model();
    model.update(counted(1_000, 100, true));
    model.update(counted(2_000, 200, true));
    assert_eq!(rate(&model), Some(100.0));
    model.update(counted(3_000, 9_999, false));
    assert_eq!(rate(&model), None);
    assert!(model.jobs()[0].links().all(|link| link.sent_per_s.is_none()));
    assert_eq!(model.jobs()[0].operations()[0].total.count, 200, "what is known stands");
    model.update(counted(4_000, 600, true));
    assert_eq!(rate(&model), Some(200.0), "400 in the two seconds since they were last known");
    assert_eq!(model.jobs()[0].links().next().unwrap().sent_per_s, Some(200.0));
}

#[test]
fn no_rate_comes_from_a_first_look_that_is_torn() {
    let mut model = model();
    model.update(tick(0, Vec::new()));
    model.update(counted(1_000, 100, false));
    assert_eq!(rate(&model), None);
    model.update(counted(2_000, 300, true));
    assert_eq!(rate(&model), None);
    model.update(counted(3_000, 400, true));
    assert_eq!(rate(&model), Some(100.0));
}
