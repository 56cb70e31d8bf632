#!/usr/bin/env bash
# A job on several hosts seen from one place: summaries in its store, paths between its ranks; and a store that does not answer.
source "$(dirname "$0")/lib.sh"

monitor=$(dirname "$bench")/hcomm-monitor
stat=$(dirname "$bench")/hcomm-stat

# Three hosts of two ranks each, 1 % of the packets lost, looked at from the last of them.
limit_three_hosts=120 # the machine may be busy
test_three_hosts() {
    need_lab
    need nft
    "$lab" --hosts 3 --loss 1% --no-offload -- bash "$file" inside_three_hosts
}
inside_three_hosts() {
    local hosts number pids=()
    read -ra hosts <<<"$LAB_HOSTS"
    export HCOMM_TELEMETRY=$PWD/telemetry HCOMM_SUMMARY_INTERVAL=500ms
    for number in 0 1 2; do
        "$LAB_AGENT" "${hosts[$number]}" "$bench" all_reduce --join tcp://10.77.0.1:29500 --nodes 3 -g 2 -b 64K -e 64K --time 60s \
            --check 0 >$number.out 2>$number.err &
        pids+=($!)
    done
    until_true 60 seen_by 6 "$LAB_AGENT" "${hosts[2]}" || fail "not all ranks are seen: $(cat once once.err)"
    # Ranks that are alike are one line, however this machine schedules them now.
    [ "$(sed -n '/^COUNT/,$p' once | wc -l)" -le 7 ] || [ "$(sed -n '/^RANK/,$p' once | wc -l)" = 7 ] || fail "$(cat once)"
    "$LAB_AGENT" "${hosts[0]}" "$stat" -l --json >paths
    python3 - <<'P' || fail "$(cat paths)"
import json
job = [job for job in json.load(open("paths"))["jobs"] if job["world_size"] == 6][0]
tcp = [path for path in job["paths"] if path["transport"] == "tcp"]
assert len(job["ranks_here"]) == 6 and tcp, job
for path in tcp:
    assert path["state"] == "established" and path["rail"] and path["round_trip_us"] > 0, path
    assert path["local_address"].startswith("10.77.") and path["remote_address"].startswith("10.77."), path
    assert path["cost"] is None and path["route"] == "direct", path
assert sum(path["retransmits"] for path in tcp) > 0, "1 % of the packets were lost"
assert any(path["loss_percent"] > 0 for path in tcp), tcp
assert all(path["round_trip_us"] is None for path in job["paths"] if path["transport"] == "shm")
P
    kill -TERM "${pids[@]}"
    for number in 0 1 2; do
        ended "${pids[$number]}" 20 || true
        no_panic $number.err
    done
}

seen_by() { # RANKS COMMAND...: all of them are seen in the store, at work
    "${@:2}" timeout 20 "$monitor" --once --store tcp://10.77.0.1:29500 >once 2>once.err
    grep -q "$1 of $1 ranks seen, running" once && grep -qE '^all_reduce +64KB' once
}

# The launcher serves the store. While it is stopped the operations go on, and afterwards all is well.
limit_store_that_does_not_answer=120
test_store_that_does_not_answer() {
    export HCOMM_TELEMETRY=$PWD/telemetry HCOMM_SUMMARY_INTERVAL=100ms
    "$bench" all_reduce -g 2 -b 8 -e 8 --time 2s >out 2>err &
    local launcher=$! before after
    until_true 20 calls_of "$launcher" || fail "no calls: $(cat err)"
    kill -STOP $launcher
    # What was on its way has come: from here on nobody answers.
    before=$(calls_of $launcher)
    until_true 10 more_calls_than $((before + 1000)) $launcher || { kill -CONT $launcher; fail "the operations stand: $before"; }
    kill -CONT $launcher
    ended $launcher 80 || fail "$(cat err)"
    good_table out
}

calls_of() { # PID of the launcher
    "$monitor" --once --json --interval 10ms --pid "$1" >once 2>/dev/null || return 1
    python3 -c 'import json; calls = json.load(open("once"))["jobs"][0]["calls_per_rank"]; assert calls; print(calls)' 2>/dev/null
}

more_calls_than() { # NUMBER PID
    [ "$(calls_of "$2")" -gt "$1" ]
}

run_tests "$@"
