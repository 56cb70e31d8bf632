# The harness of the system tests: sourced by each file, which ends with: run_tests "$@"
#
# A test is a function test_NAME. Each runs in a process of its own, in an empty directory, with a time limit (60 s, or
# limit_NAME), and must leave no process: whatever it started carries SYSTEM_TEST_ID in its environment, on any host of
# a lab, and is looked for afterwards. Prints a line a test: pass, FAIL or skip, and what a failed one said.
#
#     bash scripts/system-tests/10-local.sh             all its tests
#     bash scripts/system-tests/10-local.sh test_json   this one, as it speaks

set -euo pipefail
export PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

file=$(realpath "$0")
root=$(realpath "$(dirname "$file")/../..")
bench=${BENCH_PROGRAM:-$root/target/release/hcomm-bench}
lab=$root/scripts/lab
skipped_status=77
grace=5 # seconds for what is ending to have ended

# -- for tests ---------------------------------------------------------------------------------------------------------

fail() {
    echo "$*" >&2
    exit 1
}

skip() {
    echo "$*" >&2
    exit $skipped_status
}

need() { # PROGRAM...
    local program
    for program; do
        command -v "$program" >/dev/null || skip "$program is not installed"
    done
}

need_lab() {
    need ip tc python3 unshare
    [ "$(id -u)" = 0 ] || skip "needs root, to make network namespaces"
    "$lab" --hosts 1 -- true 2>/dev/null || skip "network namespaces cannot be made here"
}

# Runs a command; its exit status must be the expected one. What it printed is then in files out and err, or in files
# whose names begin with $as.
expect() { # STATUS COMMAND...
    local expected=$1 status=0 out=${as:-}out err=${as:-}err
    shift
    "$@" >"$out" 2>"$err" || status=$?
    no_panic "$err"
    [ "$status" = "$expected" ] || fail "exit $status instead of $expected: $* / $(tail -n 15 "$err")"
}

no_panic() { # FILE
    ! grep -E "panicked at|stack backtrace|SIGBUS|core dumped" "$1" >&2 || fail "it panicked"
}

# Rows of a table begin with a size. None wrong, and there must be some.
good_table() { # FILE
    grep -qE '^ +[0-9]' "$1" || fail "no rows: $(cat "$1")"
    grep -qE '^# Out of bounds values : 0 OK' "$1" || fail "not zero wrong: $(tail -n 5 "$1")"
}

rows() { # FILE
    grep -cE '^ +[0-9]' "$1" || true
}

# A shell's background commands ignore SIGINT, and so would all they start.
hearing() { # COMMAND...
    exec env --default-signal=INT,QUIT "$@"
}

until_true() { # SECONDS COMMAND...
    local deadline=$((SECONDS + $1))
    shift
    until "$@"; do
        [ $SECONDS -lt "$deadline" ] || return 1
        sleep 0.05
    done
}

# Waits for a process, a child of ours, to end, and returns its status; fails when it takes longer.
ended() { # PID SECONDS
    until_true "$2" gone "$1" || fail "process $1 still runs after $2 s"
    local status=0
    wait "$1" || status=$?
    return $status
}

gone() { # PID
    [ ! -e "/proc/$1" ] || grep -q '^State:[[:space:]]*Z' "/proc/$1/status" 2>/dev/null
}

# -- the runner --------------------------------------------------------------------------------------------------------

tagged() { # ID: processes with it in their environment
    grep -lzE "^SYSTEM_TEST_ID=$1\$" /proc/[0-9]*/environ 2>/dev/null | cut -d / -f 3 || true
}

none_tagged() {
    [ -z "$(tagged "$1")" ]
}

run_one() { # NAME: prints its line, returns 1 when it failed
    local name=$1 label directory said status=0 limit pid left
    label="$(basename "$file" .sh) ${name#test_}"
    directory=$(mktemp -d -t hcomm-test-XXXXXX)
    said=$directory/said
    limit=limit_${name#test_}
    mkdir "$directory/work"
    (cd "$directory/work" && SYSTEM_TEST_ID=$directory TMPDIR=$directory \
        exec timeout -k 5 "${!limit:-60}" bash "$file" "$name") >"$said" 2>&1 </dev/null || status=$?
    if ! until_true $grace none_tagged "$directory"; then
        left=$(tagged "$directory")
        for pid in $left; do
            echo "left behind: $pid $(tr '\0' ' ' <"/proc/$pid/cmdline")" >>"$said" || true
            kill -9 "$pid" 2>/dev/null || true
        done
        status=1
    fi
    case $status in
    0) echo "pass $label" ;;
    "$skipped_status") echo "skip $label: $(tail -n 1 "$said")" ;;
    124 | 137) echo "FAIL $label: not done within ${!limit:-60} s" ;;
    *) echo "FAIL $label" ;;
    esac
    [ $status = 0 ] || [ $status = $skipped_status ] || tail -n 40 "$said" | sed 's/^/    /'
    rm -rf "$directory"
    [ $status = 0 ] || [ $status = $skipped_status ]
}

run_tests() { # [FUNCTION]: that one, here and now; else all of the file, in its order
    if [ $# -gt 0 ]; then
        "$@"
        return
    fi
    local name result=0
    [ -x "$bench" ] || { echo "FAIL $(basename "$file" .sh): there is no $bench; cargo build --release" && exit 1; }
    for name in $(grep -oE '^test_[a-z0-9_]+' "$file"); do
        run_one "$name" || result=1
    done
    exit $result
}
