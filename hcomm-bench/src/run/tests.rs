use clap::Parser;

use super::*;
use crate::args::Cli;
use crate::testing::{Fault, run_threads};

fn settings(line: &[&str]) -> Settings {
    let words = std::iter::once(&"hcomm-bench").chain(line);
    Cli::try_parse_from(words).unwrap().bench.settings().unwrap()
}

/// Runs a whole benchmark on threads and returns every rank's outcome and the JSON that rank 0 wrote.
fn bench(ranks: usize, fault: Option<Fault>, line: &[&str]) -> (Vec<Result<Outcome>>, serde_json::Value) {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("out.json");
    let mut settings = settings(line);
    settings.outputs.json = Some(json.to_str().unwrap().to_owned());
    settings.outputs.table = false; // it would go to the tests' own stdout
    let outcomes = run_threads(ranks, fault, |group| run(group, &settings));
    let text = std::fs::read_to_string(json).unwrap_or_default();
    (outcomes, serde_json::from_str(&text).unwrap_or_default())
}

#[test]
fn every_workload_runs_and_is_right() {
    for ranks in [1, 3] {
        let line = ["all", "-b", "64", "-e", "256", "-n", "2", "-w", "1", "-d", "f32,i8", "-o", "all", "-r", "-1"];
        let (outcomes, json) = bench(ranks, None, &line);
        assert!(outcomes.iter().all(|outcome| *outcome == Ok(Outcome::Good)), "{outcomes:?}");
        assert_eq!(json["wrong"], 0);
        let results = json["results"].as_array().unwrap();
        for workload in Workload::all() {
            assert!(results.iter().any(|row| row["collective"] == workload.name()), "{}", workload.name());
        }
        for row in results {
            assert_eq!(row["out_of_place"]["wrong"], 0, "{row}");
            assert_eq!(row["out_of_place"]["iterations"], 2);
        }
    }
}

#[test]
fn a_wrong_result_has_no_bandwidth_and_fails_the_run() {
    let (outcomes, json) = bench(2, Some(Fault::WrongElement), &["-b", "64", "-e", "64", "-n", "1"]);
    assert!(outcomes.iter().all(|outcome| *outcome == Ok(Outcome::Wrong)), "{outcomes:?}");
    assert_eq!(json["wrong"], 2); // one out of place, one in place
    assert!(json["results"][0]["out_of_place"]["busbw_gb_per_s"].is_null());
    assert!(json["average_busbw_gb_per_s"].is_null());
}

#[test]
fn unchecked_is_null_and_not_zero() {
    let (outcomes, json) = bench(2, None, &["-b", "64", "-e", "64", "-n", "1", "-c", "0"]);
    assert_eq!(outcomes[0], Ok(Outcome::Good));
    assert!(json["results"][0]["out_of_place"]["wrong"].is_null());
    assert!(json["results"][0]["out_of_place"]["busbw_gb_per_s"].is_number());
}

#[test]
fn algorithms_that_cannot_are_left_out() {
    let (_, json) = bench(2, None, &["broadcast", "-e", "8", "-n", "1", "--algorithm", "ring,tree"]);
    let results = json["results"].as_array().unwrap();
    assert_eq!(results.len(), 1);
    assert_eq!(results[0]["algorithm"], "tree");
    let (outcomes, _) = bench(2, None, &["broadcast", "-e", "8", "-n", "1", "--algorithm", "ring"]);
    assert!(outcomes.iter().all(|outcome| outcome.as_ref().is_err_and(|failure| failure.code == 2)));
}

#[test]
fn a_failing_call_ends_every_rank_with_its_code() {
    let (outcomes, _) = bench(2, Some(Fault::Error), &["-e", "8"]);
    for outcome in outcomes {
        let failure = outcome.unwrap_err();
        assert_eq!(failure.code, 1);
        assert!(failure.text.contains("HC-E0013"), "{failure}");
    }
}

#[test]
fn roots_and_memory_are_looked_at_first() {
    let failure = run_threads(2, None, |group| run(group, &settings(&["broadcast", "-r", "2"]))).remove(1).unwrap_err();
    assert_eq!(failure.code, 2);
    let failure = check_local_memory(&settings(&["-e", "8E"]), 2).unwrap_err();
    assert_eq!(failure.code, 2);
    assert!(failure.text.contains("32.0 EiB"), "{failure}");
}

#[test]
fn sizes_that_come_out_the_same_are_measured_once() {
    let cases = |line: &[&str], ranks| cases(&settings(line), ranks).unwrap().len();
    assert_eq!(cases(&["all_gather", "-b", "8", "-e", "128"], 16), 2);
    assert_eq!(cases(&["barrier"], 2), 1);
    assert_eq!(cases(&["all_reduce", "-b", "8", "-e", "64"], 2), 4);
}
