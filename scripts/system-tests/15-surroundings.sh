#!/usr/bin/env bash
# hcomm-bench where something that is usually there is not: streams, disk, environment, home, directory, locale.
source "$(dirname "$0")/lib.sh"

small=(-e 1K -n 1)

# The run fails, by itself and with words about what it could not do.
told() { # STATUS WORDS COMMAND...
    expect "$1" timeout 20 "${@:3}"
    grep -qiE "$2" err || fail "nothing about $2: $(cat err)"
}

test_closed_stdout() {
    local status=0
    timeout 20 "$bench" "${small[@]}" >&- 2>err || status=$?
    case $status in 0 | 1) ;; *) fail "exit $status: $(cat err)" ;; esac
    no_panic err
}

test_closed_stderr() {
    timeout 20 "$bench" "${small[@]}" >out 2>&- || fail "exit $?"
    good_table out
    local status=0
    timeout 20 "$bench" -f 1 >out 2>&- || status=$?
    [ $status = 2 ] || fail "exit $status for bad arguments"
}

test_closed_everything() {
    timeout 20 "$bench" "${small[@]}" --json results.json <&- >&- 2>&- || fail "exit $?"
    grep -q '"schema": "hcomm-bench/1"' results.json || fail "the file is not whole: $(head -c 200 results.json)"
}

test_full_disk() {
    told 1 "No space left" "$bench" "${small[@]}" --json /dev/full
    told 1 "No space left" "$bench" "${small[@]}" --csv /dev/full
    told 1 "No space left" sh -c 'exec "$0" "$@" >/dev/full' "$bench" "${small[@]}" --json -
}

test_files_that_cannot_be_written() {
    told 2 "nowhere/results.csv" "$bench" "${small[@]}" --csv nowhere/results.csv
    told 2 "cannot write ." "$bench" "${small[@]}" --json .
    told 2 "nowhere.toml" "$bench" "${small[@]}" --config nowhere.toml
    told 2 "nowhere" "$bench" "${small[@]}" --hostfile nowhere
}

test_empty_environment() {
    expect 0 env -i SYSTEM_TEST_ID="$SYSTEM_TEST_ID" "$bench" "${small[@]}"
    good_table out
}

test_no_home_and_no_temporary_directory() {
    expect 0 env -u HOME TMPDIR=/nowhere "$bench" "${small[@]}"
    good_table out
    expect 0 env HOME=/nowhere XDG_RUNTIME_DIR=/nowhere "$bench" "${small[@]}"
    good_table out
}

test_read_only_directory() {
    cd /proc
    "$bench" "${small[@]}" >"$TMPDIR/out" 2>"$TMPDIR/err" || fail "exit $?: $(cat "$TMPDIR/err")"
    good_table "$TMPDIR/out"
}

test_directory_that_is_gone() {
    mkdir gone && cd gone && rmdir ../gone
    "$bench" "${small[@]}" >"$TMPDIR/out" 2>"$TMPDIR/err" || fail "exit $?: $(cat "$TMPDIR/err")"
    good_table "$TMPDIR/out"
}

test_locales() {
    local locale
    for locale in de_DE.UTF-8 tr_TR.UTF-8 nonsense ''; do
        expect 0 env LC_ALL="$locale" LANG="$locale" LANGUAGE="$locale" "$bench" "${small[@]}"
        good_table out
        ! grep -qE '[0-9],[0-9]' out || fail "commas in numbers with $locale"
    done
}

test_bytes_that_are_no_text() {
    expect 0 env X=$'\xff\xfe' "$bench" "${small[@]}"
    told 2 HCOMM_CHUNK_SIZE env HCOMM_CHUNK_SIZE=$'\xff' "$bench" "${small[@]}"
    expect 2 "$bench" -e $'\xff'
    expect 2 "$bench" $'\xff'
}

# Told once, by the launcher; a bad value ends it before any rank starts.
test_settings_are_told_once() {
    expect 0 env HCOMM_CHUNK_SIZ=64K "$bench" "${small[@]}" -g 3
    [ "$(grep -c HCOMM_CHUNK_SIZ err)" = 1 ] || fail "not told once: $(cat err)"
    expect 2 env HCOMM_TIMEOUT=soon "$bench" "${small[@]}" -g 3
    [ "$(grep -c HCOMM_TIMEOUT err)" = 1 ] || fail "not told once: $(cat err)"
}

# File, environment, flags: the later wins.
test_settings_file() {
    printf 'algorithm = "ring"\ntransport = "tcp"\n' >settings.toml
    expect 0 "$bench" "${small[@]}" -g 3 --config settings.toml
    grep -qE '3 ranks on 1 host  tcp' out && grep -qE ' ring' out || fail "the file has no effect: $(cat out)"
    expect 0 env HCOMM_ALGORITHM=tree "$bench" "${small[@]}" -g 3 --config settings.toml --transport shm
    grep -qE '3 ranks on 1 host  shm' out && grep -qE ' tree' out || fail "environment and flag do not win: $(cat out)"
    echo 'algorithm = [' >settings.toml
    expect 2 "$bench" "${small[@]}" --config settings.toml
    grep -q 'settings.toml' err || fail "the file is not named: $(cat err)"
}

test_store() {
    mkdir store
    expect 0 "$bench" "${small[@]}" -g 3 --store "file://$PWD/store"
    good_table out
    expect 0 "$bench" "${small[@]}" -g 3 --store tcp://127.0.0.1:19999
    good_table out
    told 2 "store=nonsense" "$bench" "${small[@]}" --store nonsense
    told 2 cannot.be.used "$bench" "${small[@]}" --store tcp://127.0.0.1:19999 --join tcp://127.0.0.1:19998 --nodes 1
}

run_tests "$@"
