#!/usr/bin/env bash
# Three hosts (network namespaces of scripts/lab): --join, --launch-agent, which interface is used, what fails and how.
#
# A test brings the lab up and calls itself again inside, as function inside_NAME.
source "$(dirname "$0")/lib.sh"

in_lab() { # FUNCTION LAB-OPTIONS...
    need_lab
    "$lab" "${@:2}" -- bash "$file" "$1"
}

on() { # HOST-NUMBER COMMAND...
    local hosts
    read -ra hosts <<<"$LAB_HOSTS"
    "$LAB_AGENT" "${hosts[$1]}" "${@:2}"
}

# The same command on each host, as somebody types it; host 0 has the table.
join() { # STATUS OPTIONS...
    local number pids=() status=$1
    for number in 0 1 2; do
        as=$number. expect "$status" on $number "$bench" --join "${store:-tcp://10.77.0.1:29500}" --nodes 3 "${@:2}" &
        pids+=($!)
    done
    for number in 0 1 2; do
        wait "${pids[$number]}" || fail "host $number failed"
    done
}

joined() { # OPTIONS...
    join 0 "$@"
    good_table 0.out
    [ "$(rows 1.out)" = 0 ] || fail "host 1 has a table as well"
}

launched() { # RANKS-A-HOST OPTIONS...
    local hosts
    hosts=$(sed -E "s/ |$/:$1,/g" <<<"$LAB_HOSTS")
    expect 0 on 0 "$bench" --hosts "${hosts%,}" --launch-agent "$LAB_AGENT" "${@:2}"
    good_table out
}

test_join() { in_lab inside_join; }
inside_join() { joined all -g 1 -e 64K -n 2; }

test_launch_agent() { in_lab inside_launch_agent; }
inside_launch_agent() {
    launched 1 all -e 64K -n 2
    grep -qE "^# .* 3 hosts" out || fail "not three hosts: $(head -n 5 out)"
}

limit_hierarchical=180
test_hierarchical() { in_lab inside_hierarchical; }
inside_hierarchical() {
    joined all_reduce,all_gather,reduce_scatter,broadcast -g 2 --algorithm hierarchical -e 256K -f 4 -n 2
    launched 3 all_reduce,all_gather,reduce_scatter,broadcast --algorithm hierarchical -e 256K -f 4 -n 2
    launched 3 all -e 64K -f 8 -n 2
}

test_ipv6() { in_lab inside_ipv6 --ipv6; }
inside_ipv6() { store='tcp://[fd77::1]:29500' joined all_reduce -g 1 -e 64K -n 2; }

test_two_rails() { in_lab inside_two_rails --rails 2; }
inside_two_rails() { joined all_reduce,all_to_all -g 2 -e 1M -f 8 -n 2; }

# Large messages are spread over interfaces that are as good as each other, in proportion to what each carries.
test_two_rails_share_the_load() { in_lab inside_two_rails_share --rails 2 --rate 1gbit; }
inside_two_rails_share() {
    joined all_reduce -g 1 -b 4M -e 4M -n 10
    local rail sent=()
    for rail in 0 1; do
        sent[rail]=$(on 1 cat /sys/class/net/eth$rail/statistics/tx_bytes)
    done
    local total=$((sent[0] + sent[1]))
    [ $((sent[0] * 3)) -gt "$total" ] && [ $((sent[1] * 3)) -gt "$total" ] ||
        fail "eth0 sent ${sent[0]} bytes and eth1 ${sent[1]}: less than a third by one of two equal rails"
}

test_loss() { in_lab inside_loss --loss 1% --rate 1gbit; }
inside_loss() { joined all -g 1 -e 256K -f 8 -n 2; }

# F01: every host has docker0 with the same address, up and with carrier, made before the real interface.
test_f01_same_bridge_everywhere() { in_lab inside_f01 --docker0; }
inside_f01() {
    export HCOMM_DEBUG=info
    joined all_reduce -g 1 -e 64K -n 2
    grep -q eth0 0.err || fail "the interface is not told: $(cat 0.err)"
    launched 2 all_reduce -e 64K -n 2
}

# F03: bond0 is the network; bond0.10 and bond0.10.1 lead nowhere.
test_f03_interface_by_its_whole_name() { in_lab inside_f03; }
inside_f03() {
    local number name
    for number in 0 1 2; do
        on $number ip link set eth0 down
        on $number ip link set eth0 name bond0
        on $number ip link set bond0 up
        for name in 10 10.1; do
            on $number ip link add name bond0.$name type veth peer name peer.$name
            on $number ip link set peer.$name up
            on $number ip link set bond0.$name up
        done
        on $number ip address add 10.78.$number.1/24 dev bond0.10
        on $number ip address add 10.79.$number.1/24 dev bond0.10.1
    done
    export HCOMM_DEBUG=info HCOMM_SOCKET_IFNAME=bond0
    joined all_reduce -g 1 -e 64K -n 2
    HCOMM_SOCKET_IFNAME='=bond0' joined all_reduce -g 1 -e 64K -n 2
    HCOMM_SOCKET_IFNAME='^bond0.*' joined all_reduce -g 1 -e 64K -n 2
    # A prefix is no name: it takes nothing, and that is said.
    HCOMM_SOCKET_IFNAME=bond HCOMM_TIMEOUT=5s join 1 all_reduce -g 1 -e 64K -n 2
    grep -q 'bond' 0.err || fail "the setting is not named: $(cat 0.err)"
}

# F06: a second interface in the subnet of the first; packets may leave by either.
test_f06_two_interfaces_in_one_subnet() { in_lab inside_f06 --rails 2; }
inside_f06() {
    local number
    for number in 0 1 2; do
        on $number ip address flush dev eth1
        on $number ip address add 10.77.0.1$number/24 dev eth1
    done
    joined all_reduce -g 1 -e 1M -f 8 -n 2
}

test_missing_host() { in_lab inside_missing_host; }
inside_missing_host() {
    local number pids=()
    for number in 0 1; do
        as=$number. expect 1 on $number "$bench" all_reduce -g 1 --join tcp://10.77.0.1:29500 --nodes 3 --timeout 3s &
        pids+=($!)
    done
    for number in 0 1; do
        wait "${pids[$number]}" || fail "host $number did not end with status 1"
    done
    grep -qE '2 of 3|2/3|rank 2|node 2' 0.err || fail "it is not said who has not come: $(cat 0.err)"
}

test_agent_that_fails() { in_lab inside_agent_that_fails; }
inside_agent_that_fails() {
    expect 1 on 0 timeout 20 "$bench" --hosts "${LAB_HOSTS// /,}" --launch-agent /bin/false -e 1K -n 1
    grep -q 'hclab-' err || fail "the host is not named: $(cat err)"
}

# A rank on another host dies: all hosts end, and name it.
test_kill_on_another_host() { in_lab inside_kill; }
inside_kill() {
    local number victim pids=()
    for number in 0 1 2; do
        as=$number. expect 1 on $number "$bench" all_reduce -b 1M -e 1M -n 1000000 -w 0 -g 1 \
            --join tcp://10.77.0.1:29500 --nodes 3 --timeout 5s &
        pids+=($!)
    done
    until_true 20 grep -qE '^# +Rank +2 Pid' 0.out || fail "no ranks within 20 s"
    victim=$(sed -nE 's/^# +Rank +2 Pid +([0-9]+) on.*/\1/p' 0.out)
    kill -KILL "$victim"
    for number in 0 1 2; do
        wait "${pids[$number]}" || fail "host $number did not end with status 1"
    done
    for number in 0 1; do
        grep -qiE 'rank 2([^0-9]|$)' $number.err || fail "host $number does not name rank 2: $(cat $number.err)"
    done
}

run_tests "$@"
