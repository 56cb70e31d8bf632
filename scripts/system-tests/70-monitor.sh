#!/usr/bin/env bash
# hcomm-monitor on a terminal, as people use it: tmux is the terminal, its keys and its eyes.
source "$(dirname "$0")/lib.sh"

monitor=$(dirname "$bench")/hcomm-monitor
export LC_ALL=C.UTF-8

# Each test has /dev/shm for itself where that can be had, so that no other job of this user is seen.
alone() { # FUNCTION
    need tmux
    if [ "$(id -u)" = 0 ] && unshare --mount true 2>/dev/null; then
        unshare --mount bash -c 'mount -t tmpfs tmpfs /dev/shm && exec bash "$@"' - "$file" "$1"
    else
        bash "$file" "$1"
    fi
}

jobs=()

clean_up() {
    tm kill-server 2>/dev/null || true
    local pid
    for pid in "${jobs[@]}"; do
        kill -CONT "$pid" 2>/dev/null || true
        kill -TERM "$pid" 2>/dev/null || true
    done
}

tm() {
    tmux -u -f /dev/null -S "$PWD/tmux" "$@"
}

# A shell on a terminal of 120 by 40, ready for a command.
terminal() {
    mkdir -p -m 700 run
    export XDG_RUNTIME_DIR=$PWD/run
    trap clean_up EXIT
    tm new-session -d -s t -x 120 -y 40 "env PS1='READY> ' bash --norc --noprofile -i"
    sees 10 'READY>'
}

shown() {
    tm capture-pane -p -t t
}

has() { # PATTERN
    shown | grep -qE -- "$1"
}

hasnt() { # PATTERN
    ! has "$1"
}

sees() { # SECONDS PATTERN
    until_true "$1" has "$2" || fail "no '$2' within $1 s on: $(shown)"
}

press() { # KEY...
    tm send-keys -t t "$@"
}

watch_with() { # ARGUMENT...: starts the monitor on the terminal, between two looks at its state
    shell=$(tm display-message -p -t t '#{pane_pid}')
    press "clear; stty -g >before; $monitor $*" Enter
    until_true 10 watching || fail "no monitor: $(shown)"
    watcher=$(child)
}

child() { # what runs on the terminal now
    cat "/proc/$shell/task/$shell/children" | tr -d ' '
}

watching() {
    [ -n "$(child)" ] && has '\[(operations|live|ranks|histogram|links|jobs)\]'
}

gave_back() { # STATUS: the terminal is as it was, and shows what it showed
    until_true 10 idle || fail "it has not ended: $(shown)"
    sees 5 'READY>'
    hasnt '\[(operations|live|ranks|histogram|links|jobs)\]' || fail "the screen is still there: $(shown)"
    [ "$(tm display-message -p -t t '#{alternate_on} #{cursor_flag}')" = "0 1" ] || fail "no cursor, or the other screen"
    press 'echo $? >status; stty -g >after' Enter
    until_true 5 test -s after || fail "the shell does not hear: $(shown)"
    [ "$(cat status)" = "$1" ] || fail "exit $(cat status) instead of $1: $(shown)"
    cmp before after || fail "the terminal is not as it was"
    rm before after status
}

idle() { # nothing runs on the terminal
    [ -z "$(child)" ]
}

start() { # NAME BENCH-ARGUMENT...
    local name=$1
    shift
    "$bench" "$@" >"$name.out" 2>"$name.err" &
    jobs+=($!)
    launcher=$!
}

ranks_of() { # NAME: the process ids of its ranks
    sed -nE 's/^# +Rank +[0-9]+ Pid +([0-9]+) on.*/\1/p' "$1.out"
}

announced() { # NAME RANKS
    [ "$(ranks_of "$1" | wc -l)" = "$2" ]
}

steady=(-b 1M -e 1M --time 60s -c 0)

test_every_view() { alone every_view; }
every_view() {
    terminal
    start job -g 4 "${steady[@]}"
    watch_with --interval 100ms
    sees 10 '^AllReduce +1MB .*[0-9]GB/s'
    press Tab
    sees 5 '^[0-9:.]{12} +AllReduce +1MB'
    press Right
    sees 5 '^ +3 +[0-9]+ .*running'
    press l
    sees 5 'AllReduce 1MB, 4 ranks .1 of'
    sees 5 'p50'
    press Tab
    sees 5 '^ +0 +[1-3] +shm .*/s'
    press 6
    sees 5 '^> .*hcomm-bench'
    press 1 '?'
    sees 5 'Keys'
    press x / n o s u c h
    sees 5 'no operation yet'
    press Escape
    sees 5 '^AllReduce'
    press s
    sees 5 'OP_TYPE▲'
    press Space
    sees 5 FROZEN
    press Space +
    sees 5 'every 200ms'
    press r
    sees 5 'counting from now on'
    press e
    sees 5 'wrote hcomm-monitor-operations-'
    grep -q '^AllReduce,1048576,4,' hcomm-monitor-operations-*.csv || fail "exported: $(cat hcomm-monitor-*.csv)"
    tm resize-window -t t -x 40 -y 10
    sees 5 '1/6 \[operations\]'
    tm resize-window -t t -x 120 -y 40
    sees 5 '\[operations\] +live'
    press q
    gave_back 0
}

# What it counts is what the benchmark says it did, and the bandwidth is that of the same operations.
test_same_as_benchmark() { alone same_as_benchmark; }
same_as_benchmark() {
    terminal
    watch_with --interval 50ms
    start job -g 2 -b 1M -e 1M -n 1000 -w 0 -c 0 --json result.json
    sees 30 ENDED
    press e
    sees 5 'wrote hcomm-monitor-operations-'
    python3 - hcomm-monitor-operations-*.csv <<'PYTHON'
import csv, json, sys
rows = [row for row in csv.DictReader(open(sys.argv[1])) if row["op_type"] == "AllReduce" and row["size_bytes"] == "1048576"]
assert len(rows) == 1, rows
row, result = rows[0], json.load(open("result.json"))["results"][0]
# In place and not: 1000 for the mean, 1000 for percentiles, and one to see whether the call can be made.
assert (row["calls"], row["bytes"]) == ("4002", str(4002 << 20)), row
said = (result["out_of_place"]["busbw_gb_per_s"] + result["in_place"]["busbw_gb_per_s"]) / 2 * 1e9
seen = float(row["bus_bytes_per_s"])
# One is the mean of all ranks' times of all calls, the other of the slowest rank's of half of them: a busy machine parts them.
assert 0.4 < seen / said < 2.5, f"{seen / 1e9} GB/s seen, {said / 1e9} said"
PYTHON
    press q
    gave_back 0
}

test_waits_for_a_job_and_keeps_it() { alone waits_for_a_job; }
waits_for_a_job() {
    terminal
    watch_with
    sees 5 "No job yet"
    sees 5 "$XDG_RUNTIME_DIR/hcomm"
    start first -g 2 -b 1M -e 1M -n 3000
    sees 20 'ENDED.* job '
    sees 5 '^AllReduce +1MB'
    # It stays until another one comes.
    start second -g 3 "${steady[@]}"
    sees 20 'running .* 3 ranks'
    hasnt ENDED || fail "the first job is still there: $(shown)"
    press q
    gave_back 0
}

test_two_jobs_of_which_one_ends() { alone two_jobs; }
two_jobs() {
    terminal
    start long -g 2 "${steady[@]}"
    until_true 20 announced long 2 || fail "no ranks: $(cat long.err)"
    start short -g 3 "${steady[@]}"
    local short=$launcher
    until_true 20 announced short 3 || fail "no ranks: $(cat short.err)"
    watch_with
    sees 5 'job [12] of 2'
    press 6
    sees 5 ' 2 .*running'
    sees 5 ' 3 .*running'
    kill -TERM "$short"
    sees 10 ' 3 .*ended'
    sees 5 ' 2 .*running'
    press q
    gave_back 0
}

# Named within a second: the rank, the call, and who waits. Gone when it goes on.
test_a_stopped_rank_is_named() { alone stopped_rank; }
stopped_rank() {
    terminal
    start job -g 4 "${steady[@]}"
    watch_with --interval 100ms
    sees 10 '^AllReduce +1MB .*[0-9]GB/s'
    local pids began
    mapfile -t pids < <(ranks_of job)
    kill -STOP "${pids[2]}"
    began=$(date +%s%N)
    until has 'STUCK for .*AllReduce 1MB, call [0-9]+.*(stopped|stopped and not come): rank 2.*waiting: ranks 0, 1, 3'; do
        [ $(($(date +%s%N) - began)) -lt 10000000000 ] || fail "not named: $(shown)"
        sleep 0.02
    done
    local took=$((($(date +%s%N) - began) / 1000000))
    echo "named after $took ms"
    [ "$took" -le 1000 ] || fail "named after $took ms"
    press 3
    sees 5 '^ +2 .*stopped'
    sees 5 'rank 2'
    kill -CONT "${pids[2]}"
    until_true 5 hasnt 'STUCK' || fail "still: $(shown)"
    sees 5 '^ +2 .*running'
    press q
    gave_back 0
}

test_terminal_is_given_back() { alone given_back; }
given_back() {
    terminal
    local signal number
    watch_with
    press C-c
    gave_back 0
    # Its time is over, and there was nothing to attach to.
    watch_with --duration 1s
    gave_back 1
    for signal in TERM:143 HUP:129 INT:130; do
        number=${signal#*:}
        watch_with
        kill -"${signal%:*}" "$watcher"
        gave_back "$number"
    done
    # Stopped and continued by the shell's job control.
    watch_with
    press C-z
    sees 5 'Stopped'
    press 'clear; fg' Enter
    until_true 5 has '\[operations\]' || fail "it has not come back: $(shown)"
    press q
    gave_back 0
}

test_a_damaged_file_is_named() { alone damaged_file; }
damaged_file() {
    terminal
    start job -g 2 "${steady[@]}"
    until_true 20 announced job 2 || fail "no ranks: $(cat job.err)"
    head -c 8192 /dev/urandom >run/hcomm/damaged.0.1.telemetry
    chmod 600 run/hcomm/damaged.0.1.telemetry
    watch_with
    sees 10 'skipped .*damaged.0.1.telemetry: it is not a telemetry file'
    sees 10 '^AllReduce +1MB'
    press q
    gave_back 0
}

test_jobs_of_others_are_not_shown() { alone others; }
others() {
    [ "$(id -u)" = 0 ] || skip "needs root, to be two users"
    need setpriv
    terminal
    folder=$(mktemp -d /tmp/hcomm-others-XXXXXX)
    trap 'clean_up; rm -rf "$folder"' EXIT
    chmod 1777 "$folder"
    cp "$bench" "$folder/bench"
    export HCOMM_TELEMETRY=$folder
    (cd "$folder" && exec setpriv --reuid 65534 --regid 65534 --clear-groups env -u XDG_RUNTIME_DIR TMPDIR="$folder" \
        "$folder/bench" -g 2 "${steady[@]}") >job.out 2>job.err &
    jobs+=($!)
    until_true 20 announced job 2 || fail "no ranks: $(cat job.err)"
    compgen -G "$folder/*.telemetry" >/dev/null || fail "no telemetry: $(ls -l "$folder")"
    tm set-environment -g HCOMM_TELEMETRY "$folder"
    press "export HCOMM_TELEMETRY=$folder" Enter
    watch_with
    sees 5 'No job yet'
    start own -g 2 "${steady[@]}"
    sees 20 'running'
    sees 5 'job [^ ]+  2 ranks'
    press q
    gave_back 0
}

run_tests "$@"
