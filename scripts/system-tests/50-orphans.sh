#!/usr/bin/env bash
# However the launcher ends, every rank ends with it. The harness looks for what is left; these tests also bound the time.
source "$(dirname "$0")/lib.sh"

announced() {
    [ "$(grep -cE '^# +Rank +[0-9]+ Pid' out)" -ge 3 ]
}

announced_or_gone() {
    announced || gone $launcher
}

start() { # COMMAND...: in a session of its own, as on a terminal
    hearing setsid "$@" >out 2>err &
    launcher=$!
    until_true 20 announced_or_gone && announced || fail "no ranks within 20 s: $(cat out err)"
    mapfile -t pids < <(sed -nE 's/^# +Rank +[0-9]+ Pid +([0-9]+) on.*/\1/p' out)
}

all_gone() {
    local pid
    for pid in "${pids[@]}"; do
        gone "$pid" || return 1
    done
}

local_run() {
    start "$bench" -g 3 -b 1M -e 1M -n 1000000 -w 0 "$@"
}

# Of the signal, or "failed": which of the two is not promised.
ends_by() { # SIGNAL-NUMBER
    local status=0
    ended $launcher 10 || status=$?
    [ $status = $((128 + $1)) ] || [ $status = 1 ] || fail "exit $status: $(tail -n 5 err)"
    until_true 5 all_gone || fail "ranks are left"
    no_panic err
}

# Ctrl-C: the terminal sends it to all of the foreground process group.
test_interrupt_of_all() {
    local_run
    kill -INT -- -$launcher
    ends_by 2
}

test_interrupt_of_launcher_alone() {
    local_run
    kill -INT $launcher
    ends_by 2
}

test_termination() {
    local_run
    kill -TERM $launcher
    ends_by 15
}

test_hang_up() {
    local_run
    kill -HUP $launcher
    ends_by 1
}

test_launcher_killed() {
    local_run
    kill -KILL $launcher
    until_true 8 all_gone || fail "ranks are left"
}

test_launcher_killed_over_tcp() {
    local_run --transport tcp
    kill -KILL $launcher
    until_true 8 all_gone || fail "ranks are left"
}

# The same across hosts: ranks of other hosts have no parent here to tell them.
across_hosts() { # SIGNAL
    need_lab
    "$lab" --hosts 3 -- bash "$file" inside "$1"
}

inside() {
    local hosts
    hosts=$(sed -E 's/ |$/:1,/g' <<<"$LAB_HOSTS")
    start "$LAB_AGENT" "${LAB_HOSTS%% *}" "$bench" --hosts "${hosts%,}" --launch-agent "$LAB_AGENT" \
        -b 1M -e 1M -n 1000000 -w 0
    kill -"$1" $launcher
    until_true 10 all_gone || fail "ranks are left"
}

test_interrupt_across_hosts() { across_hosts INT; }
test_launcher_killed_across_hosts() { across_hosts KILL; }

run_tests "$@"
