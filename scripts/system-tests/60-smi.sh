#!/usr/bin/env bash
# hcc-smi on this machine, on trees made here, and in pipes.
source "$(dirname "$0")/lib.sh"
smi=$(dirname "$bench")/hcc-smi

# A tree of PCI functions: 16 root ports, each with a switch of 15 ports, and behind each of these a GPU or a network card.
big_tree() { # FOLDER
    python3 - "$1" <<'END'
import os, sys
root = sys.argv[1]
bus = root + "/sys/bus/pci/devices"
os.makedirs(bus)
def function(path, device, speed, width):
    folder = f"{root}/sys/devices/{path}"
    os.makedirs(folder)
    files = {"class": "0x060400", "vendor": "0x1000", "device": "0xc030", "numa_node": "0",
             "current_link_speed": "16.0 GT/s PCIe", "max_link_speed": "16.0 GT/s PCIe",
             "current_link_width": "16", "max_link_width": "16"} | device
    files["current_link_width"] = width
    for name, text in files.items():
        with open(f"{folder}/{name}", "w") as file:
            file.write(text + "\n")
    os.symlink(f"../../../devices/{path}", f"{bus}/{os.path.basename(path)}")
gpu = {"class": "0x030200", "vendor": "0x10de", "device": "0x2330"}
nic = {"class": "0x020000", "vendor": "0x15b3", "device": "0x1021"}
for port in range(16):
    base = port * 16
    path = f"pci0000:{base:02x}/0000:{base:02x}:01.0"
    function(path, {}, "16", "16")
    path += f"/0000:{base + 1:02x}:00.0"
    function(path, {}, "16", "16")
    for lower in range(13):
        below = f"{path}/0000:{base + 2:02x}:{lower:02x}.0"
        width = "8" if (port, lower) == (3, 0) else "16"
        function(below, {}, "16", width)
        function(f"{below}/0000:{base + 3 + lower % 13:02x}:{lower:02x}.0", gpu if lower == 0 else nic, "16", width)
END
}

test_this_machine() {
    expect 0 "$smi"
    grep -q '^Processors: ' out || fail "no processors: $(cat out)"
    local view
    for view in -l topo "topo -m" links rings; do
        # shellcheck disable=SC2086 # two words
        expect 0 "$smi" $view
        [ -s out ] || fail "nothing for $view"
        [ ! -s err ] || fail "words for $view: $(cat err)"
    done
}

test_json() {
    need python3
    local view
    for view in "" -l topo links rings; do
        # shellcheck disable=SC2086
        expect 0 "$smi" $view --json
        python3 -c '
import json, sys
def refuse(word): raise SystemExit(f"{word} is no JSON")
d = json.load(open("out"), parse_constant=refuse)
if d["schema"] != "hcc-smi/1": raise SystemExit(d["schema"])' || fail "view '$view'"
    done
}

test_big_tree() {
    need python3
    big_tree tree
    expect 0 "$smi" --sysroot tree -l
    [ "$(grep -c '^Device ' out)" = 16 ] || fail "not 16 devices: $(head -n 3 out)"
    grep -q '^Device 3: NVIDIA H100 SXM5 80GB, PCIe 4.0 x8 (possible: 4.0 x16)' out || fail "$(sed -n 4p out)"
    expect 0 "$smi" --sysroot tree topo --json
    python3 -c '
import json
d = json.load(open("out"))
if len(d["devices"]) != 16 + 16 * 12: raise SystemExit(len(d["devices"]))
if d["matrix"][0][1] != "NODE" or d["matrix"][0][16] != "PIX": raise SystemExit(d["matrix"][0][:20])'
    expect 0 "$smi" --sysroot tree --xml
    mv out topo.xml
    expect 0 "$smi" --from topo.xml -l
    [ "$(grep -c '^Device ' out)" = 16 ] || fail "not 16 devices read back"
}

test_closed_pipe() {
    # The pipe is closed before the second text.
    "$smi" --watch 50ms --sysroot . 2>err | head -n 1 >out
    [ "${PIPESTATUS[0]}" = 0 ] || fail "a closed pipe is a failure"
    no_panic err
    [ ! -s err ] || fail "$(cat err)"
}

test_interrupt() {
    hearing "$smi" --watch 10s --json --sysroot . >out 2>err &
    until_true 10 test -s out || fail "no first text"
    kill -INT $!
    ended $! 5 || true
    no_panic err
}

test_refusals() {
    expect 2 "$smi" --sysroot /no/such/folder
    grep -q '/no/such/folder' err || fail "the folder is not named"
    echo "<system><cpu" >bad.xml
    expect 2 "$smi" --from bad.xml
    grep -q 'bad.xml' err || fail "the file is not named"
    expect 2 "$smi" --nonsense
    [ ! -s out ] || fail "words on stdout"
}

run_tests "$@"
