use hcomm_core::communicator::{RankInfo, RunInfo};
use hcomm_core::{Algorithm, DataType, ReduceOp};

use super::*;
use crate::args::{Average, Buffers, Effort, Placement};
use crate::results::{Cell, Times};
use crate::workload::Workload;

/// Rows with every particular: plain, cut into chunks, wrong, unchecked, not in place, very long.
pub fn example_rows() -> Vec<Row> {
    let times = |mean: f64| Times {
        mean,
        min: mean * 0.5,
        p50: mean * 0.9,
        p99: mean * 1.8,
        max: mean * 4.0,
        cv: 0.25,
        outliers: 0.0,
    };
    let cell = |mean: f64, wrong| Cell {
        iterations: 20,
        times: times(mean),
        cpu_us: mean * 1.1,
        rank_us: vec![mean, mean * 0.95],
        wrong,
        out_of_bounds: 0,
    };
    let row = |bytes: u64, mean: f64| Row {
        workload: Workload::parse("all_reduce").unwrap(),
        dtype: DataType::F32,
        op: Some(ReduceOp::Sum),
        root: None,
        ranks: 2,
        bytes,
        count: bytes / 4,
        run: RunInfo { algorithm: Algorithm::Direct, chunk_bytes: 0, channels: 1, transport: "shm" },
        out_of_place: cell(mean, Some(0)),
        in_place: Some(cell(mean * 0.97, Some(0))),
    };
    let mut rows = vec![row(8, 0.31), row(1 << 20, 91.25), row(4 << 30, 1_234_567.0), row(64, 0.4), row(128, 0.5)];
    rows[1].run = RunInfo { algorithm: Algorithm::Ring, chunk_bytes: 256 << 10, channels: 2, transport: "shm" };
    rows[3].out_of_place.wrong = Some(3);
    rows[4].out_of_place.wrong = None;
    let mut exchange = row(1024, 2.5);
    exchange.workload = Workload::parse("all_to_all").unwrap();
    exchange.op = None;
    exchange.in_place = None;
    let mut broadcast = row(2048, 3.5);
    broadcast.workload = Workload::parse("broadcast").unwrap();
    broadcast.op = None;
    broadcast.root = Some(1);
    broadcast.dtype = DataType::Bf16;
    rows.extend([exchange, broadcast]);
    rows
}

fn header() -> Header {
    let rank = |rank: usize| RankInfo {
        rank,
        pid: 4711 + rank as u32,
        host: "alpha".to_owned(),
        host_index: 0,
        cpu: (rank == 0).then_some(0),
        numa: Some(0),
    };
    Header {
        ranks: vec![rank(0), rank(1)],
        transport: "shm",
        settings: "iters 20  warm-up 5  check on  seed 1".to_owned(),
    }
}

fn settings() -> Settings {
    Settings {
        workloads: vec![],
        sizes: vec![],
        dtypes: vec![],
        ops: vec![],
        root: Some(0),
        checks: 1,
        seed: 1,
        buffers: Buffers::Registered,
        effort: Effort::Iterations(20),
        warmup: 5,
        aggregate: 1,
        blocking: 0,
        average: Average::Max,
        algorithms: vec![None],
        chunk_sizes: vec![None],
        channels: vec![None],
        placement: Placement::default(),
        outputs: Outputs::default(),
    }
}

fn totals(rows: &[Row]) -> Totals {
    let mut totals = Totals::default();
    rows.iter().for_each(|row| totals.add(row));
    totals
}

fn table(rows: &[Row], cpu: bool, per_rank: bool) -> String {
    let mut out = Vec::new();
    let mut table = table::Table::new(&mut out, cpu, per_rank);
    for row in rows {
        table.begin(&header(), row.workload).unwrap();
        table.row(row).unwrap();
    }
    table.finish().unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn the_table_stays() {
    insta::assert_snapshot!(table(&example_rows(), false, false));
    insta::assert_snapshot!("table_with_cpu_and_ranks", table(&example_rows()[..2], true, true));
}

/// Byte for byte the manual's example.
#[test]
fn the_table_is_that_of_the_manual() {
    let mut row = example_rows().remove(0);
    row.out_of_place.times = Times { p50: 0.29, p99: 0.55, ..row.out_of_place.times };
    row.in_place.as_mut().unwrap().times.mean = 0.30;
    let text = table(&[row], false, false);
    let expected = "\
# hcomm-bench 0.1.0  all_reduce  2 ranks on 1 host  shm  iters 20  warm-up 5  check on  seed 1
#  Rank  0 Pid   4711 on    alpha cpu 0 numa 0
#  Rank  1 Pid   4712 on    alpha numa 0
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong      p50      p99  algorithm
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)             (us)     (us)
           8             2     float     sum      -1     0.31    0.03    0.03       0     0.30    0.03    0.03       0     0.29     0.55  direct
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 0.026
";
    assert_eq!(text, expected);
}

/// Parsers of nccl-tests' output split lines at whitespace, skip those that begin with `#` or do not begin with a number,
/// and take columns by position; one of them looks for `Avg bus bandwidth` and takes what follows the colon.
#[test]
fn parsers_of_nccl_tests_read_it() {
    let rows = example_rows();
    let text = table(&rows, false, true);
    let mut parsed = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let size: u64 = words[0].parse().expect("a row begins with its size");
        let count: u64 = words[1].parse().unwrap();
        let root: i64 = words[4].parse().unwrap();
        let busbw: Option<f64> = words[7].parse().ok();
        let wrong: Option<u64> = words[8].parse().ok();
        parsed.push((size, count, words[2], words[3], root, busbw.is_some(), wrong));
        assert_eq!(words.len(), 16, "{line}");
    }
    assert_eq!(parsed[0], (8, 2, "float", "sum", -1, true, Some(0)));
    assert_eq!(parsed[3], (64, 16, "float", "sum", -1, false, Some(3)));
    assert_eq!(parsed[4].6, None);
    assert_eq!(parsed[6], (2048, 512, "bfloat16", "none", 1, true, Some(0)));
    assert_eq!(parsed.len(), rows.len());
    let averages: Vec<f64> = text
        .lines()
        .filter(|line| line.contains("Avg bus bandwidth"))
        .map(|line| line.split(':').nth(1).unwrap().trim().parse().unwrap())
        .collect();
    assert_eq!(averages.len(), 3);
}

#[test]
fn json_stays() {
    let rows = example_rows();
    let text = json::render(&header(), &settings(), &rows[..4], &totals(&rows[..4]));
    let mut document: serde_json::Value = serde_json::from_str(&text).unwrap();
    // What depends on the machine the test runs on is only there, not compared.
    for key in ["os", "arch", "kernel", "cpu_model", "cpus", "memory_bytes"] {
        document["machine"].as_object_mut().unwrap().shift_remove(key).expect(key);
    }
    assert!(document["results"][3]["out_of_place"]["busbw_gb_per_s"].is_null(), "bandwidth of a wrong result");
    insta::assert_snapshot!(format!("{document:#}"));
}

#[test]
fn csv_stays() {
    let text = csv::render(&example_rows(), true);
    let columns = text.lines().next().unwrap().split(',').count();
    assert!(text.lines().all(|line| line.split(',').count() == columns));
    insta::assert_snapshot!(text);
}

#[test]
fn markdown_stays() {
    let rows = example_rows();
    insta::assert_snapshot!(markdown::render(&header(), &rows, &totals(&rows)));
}

#[test]
fn a_file_that_cannot_be_written_is_known_at_once() {
    let mut settings = settings();
    settings.outputs.json = Some("/nowhere/at/all.json".to_owned());
    let failure = Report::new(header(), &settings, 1).err().unwrap();
    assert_eq!(failure.code, 2);
    assert!(failure.text.contains("/nowhere/at/all.json"));
}
