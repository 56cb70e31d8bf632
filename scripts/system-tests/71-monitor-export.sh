#!/usr/bin/env bash
# hcomm-monitor without a screen, beside a real hcomm-bench: lines, recordings, traces, metrics, and what failed ranks leave.
source "$(dirname "$0")/lib.sh"

monitor=$(dirname "$bench")/hcomm-monitor
checks=$root/hcomm-monitor/tests
launcher='' watcher=''

clean_up() {
    [ -z "$watcher" ] || kill -TERM "$watcher" 2>/dev/null || true
    [ -z "$launcher" ] || kill -TERM "$launcher" 2>/dev/null || true
}
trap clean_up EXIT

# Starts a run of 3 ranks that would last for long, and waits until all its ranks can be seen.
start() { # OPTIONS...
    need python3
    mkdir telemetry
    export HCOMM_TELEMETRY=$PWD/telemetry
    hearing "$bench" all_reduce -g 3 -w 0 "$@" >bench-out 2>bench-err &
    launcher=$!
    until_true 20 all_there || fail "no ranks within 20 s: $(cat bench-out bench-err)"
}

all_there() { [ "$(find telemetry -name '*.telemetry' | wc -l)" = 3 ]; }

watch() { # OPTIONS...: the monitor on this job alone
    timeout 20 "$monitor" --pid "$launcher" "$@"
}

python() { # PROGRAM [ARGUMENT...]
    python3 -c "import csv, json, sys
$1" "${@:2}"
}

test_lines() {
    start -b 1M -e 1M --time 30s
    expect 0 watch --log --duration 500ms
    head -n 1 out | grep -qE '^TIME +OP_TYPE +BYTES +DURATION$' || fail "no header: $(head -n 1 out)"
    grep -qE '^[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}  AllReduce  1MB     [0-9.]+(ns|us|ms|s)' out || fail "no calls: $(head out)"
    expect 0 watch --json --duration 500ms
    python 'lines = [json.loads(line) for line in open("out")]
assert len(lines) >= 3 and all(line["schema"] == "hcomm-monitor/1" for line in lines)
job, = lines[-1]["jobs"]
assert job["world_size"] == job["ranks_seen"] == 3 and job["outcome"]["state"] == "running"
row, = [row for row in job["operations"] if row["size_bytes"] == 1 << 20]
# Of one rank, the mean: ranks may be a call apart.
assert abs(row["bytes"] - (row["calls"] << 20)) < 1 << 20 and row["bytes_per_s"] > 0 and row["p50_ns"] > 0, row
assert any(line["jobs"][0]["calls"] for line in lines[1:])' || fail "the JSON is not as it should be"
    expect 0 watch --csv --duration 500ms
    python 'rows = list(csv.DictReader(open("out")))
assert rows and all(None not in row.values() and None not in row for row in rows)
assert any(row["operation"] == "all_reduce" and int(row["duration_ns"]) > 0 for row in rows)' || fail "the CSV is not as it should be"
    expect 0 watch --once
    grep -qE '^all_reduce +1MB ' out || fail "$(cat out)"
    watch --log 2>err | head -n 3 >out # ends with its reader
    no_panic err
    ! grep -q 'cannot' err || fail "$(cat err)"
    expect 1 sh -c '"$0" --once --pid "$1" >/dev/full' "$monitor" "$launcher"
    expect 1 watch --once --job no-job-has-this-name
    grep -qF "$HCOMM_TELEMETRY" err || fail "it does not say where it looked: $(cat err)"
    expect 2 watch --once --log
}

test_record_and_replay() {
    start -b 64K -e 64K --time 30s
    expect 0 watch --json --duration 1s --record run.rec
    mv out live
    expect 0 "$monitor" --json --replay run.rec
    cmp live out || fail "a replay is not the same"
    head -c $(($(stat -c %s run.rec) * 2 / 3)) run.rec >cut.rec
    expect 0 "$monitor" --json --replay cut.rec
    head -n "$(wc -l <out)" live | cmp - out || fail "the replay of what is left is not the same"
    expect 1 watch --json --record run.rec
    grep -q 'is there already' err || fail "$(cat err)"
}

test_trace() {
    start -b 64K -e 64K --time 30s
    expect 0 watch --csv --duration 1s --trace run.json
    expect 0 python3 "$checks/check_trace.py" run.json
    python 'seen = json.load(open("out"))
assert seen["pids"] == [0, 1, 2] and seen["calls"] > 0, seen' || fail "$(cat out)"
    # Ended by a signal it is closed too.
    hearing "$monitor" --pid "$launcher" --log --trace ended.json >/dev/null 2>watch-err &
    watcher=$!
    until_true 10 has_calls || fail "no calls in the trace: $(cat watch-err)"
    kill -INT "$watcher"
    ended "$watcher" 5
    expect 0 python3 "$checks/check_trace.py" ended.json
}

has_calls() { grep -q '"ph":"X"' ended.json 2>/dev/null; }

test_prometheus() {
    start -b 64K -e 64K --time 30s
    hearing "$monitor" --pid "$launcher" --prometheus 127.0.0.1:0 >watch-out 2>watch-err &
    watcher=$!
    until_true 10 grep -q '^hcomm-monitor: job ' watch-err || fail "it does not serve: $(cat watch-err)"
    local address
    address=$(sed -nE 's|.*http://([^/]+)/metrics.*|\1|p' watch-err)
    expect 0 python3 "$checks/check_metrics.py" "$address"
    python 'seen = json.load(open("out"))
assert len(seen["calls"]) >= 3 and all(calls > 0 for calls in seen["calls"]), seen
open("metrics", "w").write(seen["text"])' || fail "$(cat out)"
    if command -v promtool >/dev/null; then
        expect 0 promtool check metrics <metrics
    fi
    python 'import urllib.request, urllib.error
try:
    urllib.request.urlopen(f"http://{sys.argv[1]}/")
except urllib.error.HTTPError as error:
    assert error.code == 404, error
else:
    raise SystemExit("no error")' "$address" || fail "there is something at /"
    kill -TERM "$watcher"
    ended "$watcher" 5
    [ ! -s watch-out ] || fail "it shows something: $(head watch-out)"
}

# What the monitor counted is what the benchmark says that it did: calls and bytes of each rank, row by row.
test_counts_are_those_of_the_benchmark() {
    need python3
    mkdir telemetry
    export HCOMM_TELEMETRY=$PWD/telemetry
    hearing "$monitor" --json --interval 50ms >seen 2>watch-err &
    watcher=$!
    expect 0 "$bench" all_reduce,all_gather -g 3 -b 1M -e 4M -f 4 -n 150 -w 7 -c 2 --json bench.json
    until_true 10 judged || fail "its end was not seen: $(cat watch-err)"
    kill -INT "$watcher"
    ended "$watcher" 5
    python 'bench = json.load(open("bench.json"))
pids = sorted(rank["pid"] for rank in bench["machine"]["ranks"])
mine = lambda job: sorted(rank["pid"] for rank in job["ranks"]) == pids
last = [job for line in open("seen") for job in json.loads(line)["jobs"] if mine(job)][-1]
settings = bench["settings"]
expected = {}
for row in bench["results"]:
    for place in ("out_of_place", "in_place"):
        if row[place]:
            # One call ahead shows how such calls run.
            calls = 1 + settings["warmup"] + row[place]["iterations"] + settings["checks"]
            key = row["collective"], row["bytes"]
            expected[key] = expected.get(key, 0) + calls
assert len(expected) == 4, expected
seen = {(row["operation"], row["size_bytes"]): (row["calls"], row["bytes"], row["errors"]) for row in last["operations"]}
for (operation, size), calls in expected.items():
    assert seen.get((operation, size)) == (calls, calls * size, 0), (operation, size, calls, seen)' || fail "other counts"
}

judged() {
    python 'pids = sorted(rank["pid"] for rank in json.load(open("bench.json"))["machine"]["ranks"])
lines = open("seen").read().splitlines()[-2:-1]
assert any(sorted(rank["pid"] for rank in job["ranks"]) == pids and job["outcome"]["state"] == "ended"
           for line in lines for job in json.loads(line)["jobs"])' 2>/dev/null
}

test_explain() {
    start -b 1M -e 1M -n 1000000 --timeout 3s
    local victim status=0
    victim=$(sed -nE 's/^# +Rank +1 Pid +([0-9]+) on.*/\1/p' bench-out)
    kill -KILL "$victim"
    ended "$launcher" 15 || status=$?
    [ $status = 1 ] || fail "exit $status instead of 1: $(cat bench-err)"
    expect 0 "$monitor" explain telemetry/*.flight.jsonl
    grep -q 'records of ranks 0, 2, none of rank 1' out || fail "$(cat out)"
    grep -qE '^Rank 1 left no record, and ranks? .* all_reduce #[0-9]+' out || fail "$(cat out)"
    expect 0 "$monitor" explain --json telemetry/*.flight.jsonl
    python 'said = json.load(open("out"))
assert said["missing_ranks"] == [1] and said["findings"][0]["ranks"] == [1], said' || fail "$(cat out)"
    expect 1 "$monitor" explain telemetry bench-out
}

run_tests "$@"
