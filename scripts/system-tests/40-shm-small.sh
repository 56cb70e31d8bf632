#!/usr/bin/env bash
# F24: a /dev/shm that is tiny, full, or not there, as in containers: no SIGBUS, and no need of it.
source "$(dirname "$0")/lib.sh"

privately() { # SHELL-LINE: in a mount namespace of its own
    need unshare mount
    unshare -m true 2>/dev/null || skip "mount namespaces cannot be made here"
    expect 0 unshare -m --propagation private sh -c "$1 && exec \"\$0\" \"\$@\"" "$bench" -g 2 -e 4M -n 2
    good_table out
}

test_one_mebibyte() {
    privately 'mount -t tmpfs -o size=1m none /dev/shm'
}

test_full() {
    privately 'mount -t tmpfs -o size=1m none /dev/shm && { head -c 2M /dev/zero >/dev/shm/full 2>/dev/null; true; }'
}

test_read_only() {
    privately 'mount -t tmpfs -o ro,size=1m none /dev/shm'
}

test_none() {
    privately '{ umount -l /dev/shm 2>/dev/null || true; }'
}

test_few_open_files() {
    expect 0 bash -c 'ulimit -n 64 && exec "$0" "$@"' "$bench" -g 4 -e 64K -n 2
    good_table out
}

test_no_locked_memory() {
    expect 0 bash -c 'ulimit -l 0 && exec "$0" "$@"' "$bench" -g 2 -e 4M -n 2
    good_table out
}

# No file may be written at all: a sentence, not the end by SIGXFSZ.
test_no_files() {
    expect 1 bash -c '(ulimit -f 0 && exec "$0" "$@") 2>&1 | cat >&2; exit "${PIPESTATUS[0]}"' "$bench" -g 2 -e 64K -n 2
    grep -q 'ulimit -f' err || fail "the limit is not named: $(cat err)"
}

# Memory that runs out is told, by whoever asked for it; nothing is killed by a signal.
test_too_little_memory() {
    local status=0
    bash -c 'ulimit -v 400000 && exec "$0" "$@"' "$bench" -g 2 -b 512M -e 512M -n 1 >out 2>err || status=$?
    case $status in 1 | 2) ;; *) fail "exit $status: $(cat err)" ;; esac
    [ -s err ] || fail "no words"
    no_panic err
}

run_tests "$@"
