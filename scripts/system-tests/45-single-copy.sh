#!/usr/bin/env bash
# Ordinary buffers read where they lie, and systems that forbid it: results stay right, and words are said once.
source "$(dirname "$0")/lib.sh"

copies=(all_gather broadcast gather scatter sendrecv all_to_all -b 64K -e 1M -f 4 -n 3 --buffers plain)

# Two ranks started by hand; the second without a privilege that the first has, so that it may not look into it.
beside_a_stronger_rank() { # STATUS VARIABLE=VALUE...
    local expected=$1 port first
    shift
    need setpriv python3
    [ "$(id -u)" = 0 ] || skip "needs root, to give up a privilege"
    setpriv --bounding-set -sys_ptrace true 2>/dev/null || skip "privileges cannot be given up here"
    grep -q '^CapEff:.*[89a-f][0-9a-f]\{4\}$' /proc/self/status || skip "this root has no CAP_SYS_PTRACE to give up"
    port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    local job=(env HCOMM_WORLD_SIZE=2 HCOMM_JOB_ID=single HCOMM_STORE="tcp://127.0.0.1:$port" HCOMM_DEBUG=info "$@")
    "${job[@]}" HCOMM_RANK=0 "$bench" "${copies[@]}" >first.out 2>first.err &
    first=$!
    as=second. expect "$expected" setpriv --bounding-set -sys_ptrace "${job[@]}" HCOMM_RANK=1 "$bench" "${copies[@]}"
    local status=0
    ended $first 20 || status=$?
    [ $status = "$expected" ] || fail "rank 0: exit $status: $(cat first.err)"
    no_panic first.err
}

test_right_with_it_and_without() {
    local setting
    for setting in auto on off; do
        expect 0 env HCOMM_SINGLE_COPY=$setting "$bench" -g 3 "${copies[@]}"
        good_table out
    done
}

test_refused() {
    beside_a_stronger_rank 0
    good_table first.out
    [ "$(grep -c 'does not let it read the memory of rank 0' second.err)" = 1 ] || fail "not said once: $(cat second.err)"
}

test_refused_though_asked_for() {
    beside_a_stronger_rank 2 HCOMM_SINGLE_COPY=on
    for file in first.err second.err; do
        grep -q 'HCOMM_SINGLE_COPY.*rank 1.*cannot read the memory of rank 0' $file || fail "$(cat $file)"
    done
}

# A filter against the call, as container engines have.
test_filtered() {
    need python3 gcc
    cat >filter.c <<'C'
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int argc, char **argv) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {4, code};
    if (argc < 2 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return 77;
    execv(argv[1], argv + 1);
    return 77;
}
C
    gcc -o filter filter.c || skip "no compiler for the filter"
    ./filter "$(command -v true)" || skip "filters cannot be made here"
    expect 0 env HCOMM_DEBUG=info ./filter "$bench" -g 2 "${copies[@]}"
    good_table out
    grep -q 'does not let it read the memory' err || fail "$(cat err)"
    expect 2 env HCOMM_SINGLE_COPY=on ./filter "$bench" -g 2 "${copies[@]}"
}

run_tests "$@"
