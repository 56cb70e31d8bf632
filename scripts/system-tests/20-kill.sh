#!/usr/bin/env bash
# A rank that is killed, or stopped, in the middle of things: all others end, and say which one it was.
source "$(dirname "$0")/lib.sh"

ranks=3
announced() {
    [ "$(grep -cE '^# +Rank +[0-9]+ Pid' out)" -ge $ranks ]
}

announced_or_gone() {
    announced || gone $launcher
}

pid_of() { # RANK
    sed -nE "s/^# +Rank +$1 Pid +([0-9]+) on.*/\1/p" out
}

# Starts a run that would last for minutes, and waits until its ranks have told their process ids.
start() { # OPTIONS...
    hearing "$bench" -g $ranks -n 1000000 -w 0 --timeout 3s "$@" >out 2>err &
    launcher=$!
    until_true 20 announced_or_gone && announced || fail "no ranks within 20 s: $(cat out err)"
}

# Sends the signal to a rank, and looks at what becomes of the others.
hit() { # SIGNAL RANK SECONDS
    local signal=$1 rank=$2 limit=$3 status=0 other
    victim=$(pid_of "$rank")
    [ "$victim" != $launcher ] || fail "rank $rank is the launcher: nothing could tell what became of it"
    kill -"$signal" "$victim"
    ended $launcher "$limit" || status=$?
    [ $status = 1 ] || fail "exit $status instead of 1: $(tail -n 5 err)"
    no_panic err
    grep -qiE "rank $rank([^0-9]|$)" err || fail "rank $rank is not named: $(cat err)"
    # Each of the others has its own error, and it is about that rank.
    for other in $(seq 0 $((ranks - 1))); do
        until_true 5 gone "$(pid_of "$other")" || fail "rank $other is still there"
    done
    ! grep -qE '^# Avg bus bandwidth' out || fail "a figure was given for a run that failed"
}

# DESIGN's bounds: a death within 5 s, silence within the timeout (3 s here); the rest is slack for a slow machine.
killed() { start "${@:2}" && hit KILL "$1" 12; }
stopped() { start "${@:2}" && hit STOP "$1" 20; }

test_kill_in_small_messages() { killed 1 all_reduce -b 8 -e 8; }
test_kill_in_large_messages() { killed 2 all_reduce -b 64M -e 64M; }
test_kill_rank_0_in_barriers() { killed 0 barrier; }
test_kill_over_tcp() { killed 1 all_to_all -b 1M -e 1M --transport tcp; }
test_kill_in_reads_of_memory() { killed 1 all_gather -b 32M -e 32M --buffers plain; }

test_stop_in_small_messages() { stopped 1 all_reduce -b 8 -e 8; }
test_stop_in_large_messages() { stopped 2 all_reduce -b 64M -e 64M; }
test_stop_rank_0_in_barriers() { stopped 0 barrier; }
test_stop_over_tcp() { stopped 1 all_to_all -b 1M -e 1M --transport tcp; }
test_stop_in_reads_of_memory() { stopped 1 all_gather -b 32M -e 32M --buffers plain; }

# The moment before there is anything to announce: the first child of the launcher, as soon as it is one.
test_kill_at_start_up() {
    local status=0 child
    hearing "$bench" -g $ranks -n 1000000 -w 0 --timeout 3s >out 2>err &
    launcher=$!
    until_true 5 has_child || fail "the launcher started nothing"
    child=$(children | head -n 1)
    kill -KILL "$child"
    ended $launcher 15 || status=$?
    [ $status = 1 ] || fail "exit $status instead of 1: $(cat err)"
    [ -s err ] || fail "no words"
    no_panic err
}

children() { cat /proc/$launcher/task/*/children 2>/dev/null | tr ' ' '\n' | grep .; }
has_child() { [ -n "$(children)" ]; }

test_nothing_in_shared_memory() {
    local before after
    before=$(ls /dev/shm)
    killed 1 all_reduce -b 1M -e 1M
    after=$(ls /dev/shm)
    [ "$before" = "$after" ] || fail "left in /dev/shm: $after"
}

# The launcher removes what the killed rank could not; the flight records of the others stay.
test_no_telemetry_is_left_of_a_killed_rank() {
    local folder=$PWD/telemetry left
    mkdir "$folder"
    HCOMM_TELEMETRY=$folder killed 1 all_reduce -b 1M -e 1M
    left=$(find "$folder" -name '*.telemetry')
    [ -z "$left" ] || fail "left: $left"
    [ "$(find "$folder" -name '*.flight.jsonl' | wc -l)" = $((ranks - 1)) ] || fail "not one record a rank: $(ls "$folder")"
}

run_tests "$@"
