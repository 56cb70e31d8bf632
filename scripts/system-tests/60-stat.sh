#!/usr/bin/env bash
# hcomm-stat on this machine and on namespaces with links that are up, down, of different MTU, on one subnet, lossy.
source "$(dirname "$0")/lib.sh"

stat=${STAT_PROGRAM:-$(dirname "$bench")/hcomm-stat}

in_namespace() { # FUNCTION: runs it in a network namespace of its own, with its /sys
    need ip unshare mount
    unshare -n -m true 2>/dev/null || skip "network namespaces cannot be made here"
    export -f "${1?}"
    unshare -n -m bash -c "mount -t sysfs sysfs /sys && source '$root/scripts/system-tests/lib.sh' && stat='$stat' && $1" \
        "$file"
}

veth() { # NAME ADDRESS: up, with its other end up; without ADDRESS it has none
    ip link add "$1" type veth peer name "$1-far"
    ip link set "$1-far" up
    ip link set "$1" up
    [ $# -lt 2 ] || ip address add "$2" dev "$1"
}
export -f veth

json() { # PROGRAM OF PYTHON: d is the document in file out
    python3 -c "import json,sys; d = json.load(open('out')); links = {l['name']: l for l in d.get('links', [])}
checks = {(c['check'], c['subject']): c['verdict'] for c in d.get('checks', [])}
$1"
}
export -f json

test_this_machine() {
    expect 0 timeout 10 "$stat" -l
    grep -q '^NAME' out || grep -q 'no links' out || fail "$(cat out)"
    expect 0 timeout 10 "$stat" -i 200ms --count 2
    local status=0
    timeout 10 "$stat" check >out 2>err || status=$?
    case $status in 0 | 3) ;; *) fail "exit $status: $(cat err)" ;; esac
    grep -qE '[0-9]+ ok, [0-9]+ warn, [0-9]+ fail, [0-9]+ unknown' out || fail "$(cat out)"
}

test_closed_pipe() {
    timeout 10 "$stat" -i 50ms 2>err | head -n 1 >out
    [ ! -s err ] || fail "$(cat err)"
    { timeout 10 "$stat" check 2>err || [ $? = 3 ]; } | true # what this machine's links are like is not asked
    [ ! -s err ] || fail "$(cat err)"
    expect 1 sh -c '"$0" -l >/dev/full' "$stat"
}

test_up_and_down() { in_namespace inside_up_and_down; }
inside_up_and_down() {
    veth good 10.1.0.1/24
    ip link add docker0 type bridge
    ip link set docker0 up
    expect 0 "$stat" --down
    ip link add bad type veth peer name bad-far
    ip link set bad up
    expect 1 "$stat" --down
    grep -q '^bad ' out || fail "the link that is down is not listed: $(cat out)"
    ! grep -qE '^(good|docker0|bad-far) ' out || fail "too much is listed: $(cat out)"
    expect 3 "$stat" check --json
    json 'assert checks[("carrier", "bad")] == "fail" and checks[("carrier", "docker0")] == "ok", checks'
}

# F06: 192.168.0.0/20 on two links; the one with the lower metric carries the traffic.
test_two_on_a_subnet() { in_namespace inside_two_on_a_subnet; }
inside_two_on_a_subnet() {
    veth eno1 192.168.5.1/20
    veth eno2 192.168.3.1/20
    leaves_by eno1
    ip route del 192.168.0.0/20 dev eno1
    ip route add 192.168.0.0/20 dev eno1 metric 100
    leaves_by eno2
    ip link set eno2 mtu 9000
    expect 3 "$stat" check --json
    json 'assert checks[("mtu", "eno2 eno1")] == "fail" and checks[("subnets", "eno2 eno1")] == "warn", checks'
    ip route del 192.168.0.0/20 dev eno1
    expect 0 "$stat" -l
    ! grep -q "packets to it leave by" out || fail "it is not shared any more: $(cat out)"
}

# Rules send what comes from the address of each link by that link: the kernel is asked, not the main table alone.
test_rules() { in_namespace inside_rules; }
inside_rules() {
    need python3
    veth eno1 192.168.5.1/20
    veth eno2 192.168.3.1/20
    mixed 192.168.3.1 eno1
    ip route add 192.168.0.0/20 dev eno2 src 192.168.3.1 table 101
    ip rule add from 192.168.3.1 table 101
    ip route get 192.168.4.9 from 192.168.3.1 | grep -q " dev eno2 " || fail "the kernel takes another"
    expect 0 "$stat" -l --json
    json 's = d["shared_networks"][0]
assert {f["address"]: f["leaves_by"] for f in s["from"]} == {"192.168.5.1": "eno1", "192.168.3.1": "eno2"}, s'
    expect 0 "$stat" -l
    grep -q "rules send what comes from the address of each by that link" out || fail "$(cat out)"
    "$stat" check --json >out || true
    json 'assert checks[("subnets", "eno1 eno2")] == "ok", checks'
    # A rule for all, over what the main table says.
    ip rule add to 192.168.0.0/20 table 101 pref 100
    leaves_by eno2
    ip rule del to 192.168.0.0/20 table 101 pref 100
    ip rule del from 192.168.3.1 table 101
    ip route flush table 101
    mixed 192.168.3.1 eno1
    # The commands that check gives do mend it.
    "$stat" check --json >out || true
    json 'print(next(c["fix"] for c in d["checks"] if c["check"] == "subnets").split("rules: ")[1].split("; sysctl")[0])' >fix
    bash -e fix || fail "$(cat fix)"
    "$stat" check --json >out || true
    json 'assert checks[("subnets", "eno1 eno2")] == "ok", checks'
    # The way to everywhere else, and none.
    expect 0 "$stat" --json
    json 'assert d["default_routes"] == [], d["default_routes"]'
    ip route add default via 192.168.5.2 dev eno1
    expect 0 "$stat" --json
    json 'assert [(r["interface"], r["gateway"]) for r in d["default_routes"]] == [("eno1", "192.168.5.2")], d'
}

mixed() { # ADDRESS LINK: what is sent from the address leaves by that link
    expect 0 "$stat" -l --json
    json 's = d["shared_networks"][0]
assert [f["leaves_by"] for f in s["from"] if f["address"] == "'"$1"'"] == ["'"$2"'"], s'
}
export -f mixed

leaves_by() { # LINK: what the kernel takes, and what the program says
    ip route get 192.168.4.9 | grep -q " dev $1 " || fail "the kernel takes another: $(ip route get 192.168.4.9)"
    expect 0 "$stat" -l
    grep -q "packets to it leave by $1;" out || fail "not $1: $(cat out)"
}
export -f leaves_by

# What the counters say is what was sent.
test_rates() { in_namespace inside_rates; }
inside_rates() {
    need python3
    veth one 10.1.0.1/24
    ip neigh add 10.1.0.2 lladdr 02:00:00:00:00:01 dev one
    "$stat" -i 300ms --count 3 --json >lines 2>err &
    local watcher=$!
    python3 - <<'P'
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(1000):
    s.sendto(bytes(1000), ("10.1.0.2", 9))
P
    wait $watcher || fail "$(cat err)"
    # 1000 packets of 1000 bytes, 28 of UDP and IP, 14 of Ethernet; some may go before the first sample.
    python3 - <<'P'
import json
sent = sum(l["interval"]["tx_bytes"] for line in open("lines") for l in json.loads(line)["links"] if l["name"] == "one")
total = [l for l in json.loads(open("lines").readlines()[-1])["links"] if l["name"] == "one"][0]["total"]["tx_bytes"]
assert 1042000 <= total <= 1060000 and sent <= total, (sent, total)
P
}

test_lossy() {
    need_lab
    need nft
    "$lab" --hosts 2 --loss 3% --no-offload -- bash "$file" inside_lossy
}
inside_lossy() {
    read -r -a hosts <<<"$LAB_HOSTS"
    "$lab" exec "${hosts[1]}" timeout 20 python3 -c '
import socket
s = socket.create_server(("", 5000)); print("ready", flush=True)
c, _ = s.accept()
while c.recv(1 << 20): pass' >ready &
    local receiver=$!
    until_true 10 grep -qs ready ready || fail "no receiver"
    "$lab" exec "${hosts[0]}" timeout 20 python3 -c '
import socket
socket.create_connection(("10.77.0.2", 5000)).sendall(bytes(8 << 20))'
    wait $receiver || fail "the receiver failed"
    expect 3 "$lab" exec "${hosts[0]}" "$stat" check --json
    json 'assert checks[("tcp", "system")] == "fail", checks'
    # What was sent again is no traffic of its own, and is told as often as the kernel counts it.
    "$lab" exec "${hosts[0]}" cat /proc/net/snmp >snmp
    expect 0 "$lab" exec "${hosts[0]}" "$stat" --json
    json 'names, values = [line.split() for line in open("snmp") if line.startswith("Tcp:")]
tcp = dict(zip(names, values))
again, sent = d["tcp"]["segments_retransmitted"], d["tcp"]["segments_sent"]
assert again == int(tcp["RetransSegs"]) > 0 and sent == int(tcp["OutSegs"]) > again, (d["tcp"], tcp)'
    # The receiver sent acknowledgements alone, which nobody sends again; afterwards nothing is under way.
    expect 0 "$lab" exec "${hosts[0]}" "$stat" -i 200ms --count 1 --json
    json 'assert d["tcp"]["interval"]["segments_retransmitted"] == 0, d["tcp"]'
}

run_tests "$@"
