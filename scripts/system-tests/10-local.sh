#!/usr/bin/env bash
# hcomm-bench on this machine alone: tables, formats, checks, errors.
source "$(dirname "$0")/lib.sh"

collectives="all_reduce reduce_scatter all_gather broadcast reduce scatter gather all_to_all sendrecv barrier"

# Runs python on a JSON file, in `d`; numbers that JSON does not have are an error.
with_json() { # FILE CODE
    python3 -c '
import json, sys
def refuse(word): raise SystemExit(f"{word} is no JSON")
d = json.load(open(sys.argv[1]), parse_constant=refuse)
exec(sys.argv[2])' "$@"
}

refused() { # OPTIONS...: exit 2, at once, with a sentence
    expect 2 timeout 10 "$bench" "$@"
    [ -s err ] || fail "no words for: $*"
    [ ! -s out ] || fail "words on stdout for: $*: $(head -n 3 out)"
}

test_defaults() {
    expect 0 "$bench" -e 1M -n 2
    good_table out
    [ "$(rows out)" = 18 ] || fail "$(rows out) rows from 8 B to 1 MiB instead of 18"
    grep -qE '^# Avg bus bandwidth +: [0-9.]+' out || fail "no average"
    grep -qE '^# +Rank +1 Pid +[0-9]+ on' out || fail "no line for rank 1"
}

limit_everything=300
test_everything() {
    need python3
    # Every collective, type and operation, on a number of ranks that divides no size.
    expect 0 "$bench" all -d all -o all -e 1M -f 8 -g 3 -n 2 --json results
    good_table out
    with_json results '
done = {(r["collective"], r["dtype"]) for r in d["results"]}
for c in "'"$collectives"'".split():
    for t in "f64 f32 f16 bf16 i8 u8 i32 u32 i64 u64".split():
        if c != "barrier" and (c, t) not in done: raise SystemExit(f"{c} {t} is missing")
ops = {r["redop"] for r in d["results"] if r["collective"] == "all_reduce"}
if not {"sum", "prod", "min", "max", "avg"} <= ops: raise SystemExit(f"only operations {ops}")
if d["wrong"] != 0: raise SystemExit("wrong results")'
}

test_one_rank() {
    expect 0 "$bench" all -g 1 -e 64K -n 2
    good_table out
}

limit_sixteen_ranks=180
test_sixteen_ranks() {
    expect 0 "$bench" -g 16 -e 1M -n 2
    good_table out
}

test_tcp() {
    expect 0 "$bench" all -g 3 --transport tcp -e 256K -n 2
    good_table out
}

test_plain_buffers() {
    expect 0 "$bench" all -g 2 --buffers plain -b 4 -e 4M -f 16 -n 2
    good_table out
}

limit_every_algorithm=180
test_every_algorithm() {
    expect 0 "$bench" all --algorithm all -g 3 -e 64K -f 8 -n 2
    good_table out
}

test_sizes() {
    expect 0 "$bench" -b 64M -e 70M -i 2M -n 1 -w 0 && [ "$(rows out)" = 4 ] || fail "$(rows out) rows, not 4"
    expect 0 "$bench" -b 64k -e 64KiB -n 1 && [ "$(rows out)" = 1 ] || fail "$(rows out) rows, not 1"
    expect 0 "$bench" -b 100 -e 1000 -i 100 -n 1 -g 3 && [ "$(rows out)" = 10 ] || fail "$(rows out) rows, not 10"
}

test_json_on_stdout() {
    need python3
    "$bench" -e 64K -n 2 --json - 2>err | python3 -m json.tool >out
    with_json out '
assert d["schema"] == "hcomm-bench/1", d["schema"]
assert d["wrong"] == 0
assert [r["bytes"] for r in d["results"]] == [8 << i for i in range(14)], [r["bytes"] for r in d["results"]]
for r in d["results"]:
    for key in "collective dtype redop root ranks bytes count algorithm chunk_bytes channels transport".split(): r[key]
    for side in (r["out_of_place"], r["in_place"]):
        t = side["time_us"]
        assert 0 < t["min"] <= t["p50"] <= t["p99"] <= t["max"] and 0 < t["mean"] < float("inf"), t
        # algbw is bytes over time; all_reduce moves 2 (n - 1) / n of that.
        expected = side["algbw_gb_per_s"] * 2 * (r["ranks"] - 1) / r["ranks"]
        assert abs(side["busbw_gb_per_s"] - expected) <= 0.01 * expected + 0.002, side
        assert side["wrong"] == 0'
}

test_files() {
    expect 0 "$bench" -e 1K -n 2 --json results.json --csv results.csv
    good_table out
    with_json results.json 'assert len(d["results"]) == 8, len(d["results"])'
    [ "$(grep -c , results.csv)" -ge 9 ] || fail "the CSV has no header and 8 rows: $(cat results.csv)"
    expect 0 "$bench" -e 1K -n 2 --markdown
    grep -qE '^\|.*\|$' out || fail "no markdown table"
}

# A parser for nccl-tests' table: 13 leading fields, numbers where it has numbers, wrong counts in columns 9 and 13.
test_nccl_tests_columns() {
    expect 0 "$bench" -e 64K -n 2
    good_table out
    awk '/^ +[0-9]/ {
            if (NF < 13) { print "only " NF " fields: " $0; bad = 1 }
            for (i = 6; i <= 13; i++) if ($i !~ /^[0-9.]+$/) { print "field " i ": " $0; bad = 1 }
            if ($3 != "float" || $4 != "sum" || $5 != -1 || $9 != 0 || $13 != 0 || $1 != 4 * $2) { print; bad = 1 }
        }
        END { exit bad }' out || fail "not as nccl-tests have it"
}

test_closed_pipe() {
    local status
    set +e
    "$bench" -e 8M -n 5 2>err | head -n 3 >out
    status=${PIPESTATUS[0]}
    set -e
    [ "$status" = 0 ] || fail "exit $status when the reader ends"
    [ "$(wc -l <out)" = 3 ] || fail "no three lines"
    no_panic err
    ! grep -qi "broken pipe" err || fail "it complains: $(cat err)"
}

test_full_disk() {
    local status=0
    "$bench" -e 1K -n 1 >/dev/full 2>err || status=$?
    [ $status = 1 ] && [ -s err ] || fail "exit $status when nothing can be written"
    no_panic err
}

test_bad_arguments() {
    refused -b 1G -e 1M
    refused -f 1
    refused -f 0
    refused -i 0
    refused --ranks 0
    refused -g many
    refused --algorithm nosuch
    refused --chunk-size 0
    refused --transport pigeon
    refused -b -1
    refused -e 16E
    refused -b 12Q
    refused -d nosuch
    refused -o nosuch
    refused nosuch
    refused -r 5 -g 2 broadcast
    refused --timeout soon
    refused --nosuch
    refused --hosts a:0
    refused --join nonsense
    refused --nodes 2
}

test_no_memory_for_it() {
    local status=0
    timeout 20 "$bench" -b 8E -e 8E -n 1 >out 2>err || status=$?
    case $status in 1 | 2) ;; *) fail "exit $status for 8 EiB" ;; esac
    [ -s err ] || fail "no words"
    no_panic err
}

test_bad_settings() {
    expect 2 env HCOMM_CHUNK_SIZE=many "$bench" -e 1K -n 1
    grep -q HCOMM_CHUNK_SIZE err && grep -q many err || fail "the variable or its value is not named: $(cat err)"
    expect 0 env HCOMM_CHUNK_SIZ=64K "$bench" -e 1K -n 1
    grep -q HCOMM_CHUNK_SIZE err || fail "the nearest name is not told: $(cat err)"
}

test_names() {
    expect 0 "$bench" --help
    grep -q -- --min-bytes out || fail "no help"
    expect 0 "$bench" --version
    expect 0 "$(dirname "$bench")/hcomm-benchmark" -e 1K -n 1
    good_table out
    expect 0 env LC_ALL=de_DE.UTF-8 LANG=tr_TR "$bench" -e 1K -n 1
    good_table out
}

limit_beyond_32_bits=300
test_beyond_32_bits() {
    # Two ranks with two buffers of 2 GiB each, more while they are checked.
    [ "$(awk '/MemAvailable/ {print int($2 / 1048576)}' /proc/meminfo)" -ge 14 ] || skip "needs 14 GiB of free memory"
    expect 0 "$bench" -g 2 -d i8 -b 2147483664 -e 2147483664 -n 1 -w 0
    good_table out
}

run_tests "$@"
