# Shared by the scripts beside it: `. "$(dirname "$0")/lib.sh"`. Works with bash 3.2 (macOS).
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash

weir_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
weir_cache=${XDG_CACHE_HOME:-${HOME:?neither HOME nor XDG_CACHE_HOME is set}/.cache}/weir

# Everything for people goes to stderr: stdout carries results that other programs read.
say() { printf 'weir: %s\n' "$*" >&2; }
die() {
    say "$*"
    exit 1
}
have() { command -v "$1" >/dev/null 2>&1; }

sha256() {
    if have sha256sum; then
        sha256sum "$1" | cut -d' ' -f1
    elif have shasum; then
        shasum -a 256 "$1" | cut -d' ' -f1
    else
        python3 -c 'import hashlib, sys; print(hashlib.sha256(open(sys.argv[1], "rb").read()).hexdigest())' "$1"
    fi
}

# Compilers to run at once: one per core, but one llama.cpp unity file takes about 1.5 GB.
job_count() {
    local cores mem
    cores=$(nproc 2>/dev/null || sysctl -n hw.ncpu 2>/dev/null || echo 2)
    if [ -r /proc/meminfo ]; then
        mem=$(awk '/^MemAvailable:/ { print int($2 / 1500000) }' /proc/meminfo)
        [ "${mem:-0}" -ge 1 ] || mem=1
        [ "$cores" -le "$mem" ] || cores=$mem
    fi
    echo "$cores"
}

# Compilers through ccache, where it is there and nothing else was asked for.
use_ccache() {
    have ccache || return 0
    export CMAKE_C_COMPILER_LAUNCHER=${CMAKE_C_COMPILER_LAUNCHER-ccache} CMAKE_CXX_COMPILER_LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER-ccache}
}

# take_lock FILE: waits for the lock and holds it, as descriptor 9, until this shell and its children end. The
# lock belongs to the open file, so python can take it on the shell's behalf where flock(1) is missing.
take_lock() {
    exec 9>"$1"
    if have flock; then
        flock -n 9 && return
        say "another run is at work on this (${1##*/}); waiting for it"
        flock 9
    else
        python3 -c 'import fcntl; fcntl.flock(9, fcntl.LOCK_EX)'
    fi
}

# take_build PRESET: waits for build/PRESET and holds it, as take_lock does; scripts that are called from here hold it already. Two
# ninjas in one folder would make the same files at the same time.
take_build() {
    [ "${WEIR_HELD_BUILD:-}" != "$1" ] || return 0
    mkdir -p "$weir_root/build"
    take_lock "$weir_root/build/$1.lock"
    export WEIR_HELD_BUILD=$1
}

# forget_moved FOLDER: a build of a tree that was moved or copied is configured anew, for CMake refuses to go on with it.
forget_moved() {
    local home
    home=$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$1/CMakeCache.txt" 2>/dev/null) || true
    if [ -z "$home" ] || [ "$home" -ef "$weir_root" ]; then return; fi
    say "$1 was made in $home; it is built anew"
    rm -rf "$1/CMakeCache.txt" "$1/CMakeFiles"
}

# tell_failed WHAT [LOG]: a line for the end of a long output, in the file that WEIR_FAILED names, if it does: what failed, and the first
# line of its log that says why, or the last one.
tell_failed() {
    local why=
    [ -n "${WEIR_FAILED:-}" ] || return 0
    if [ -n "${2:-}" ]; then
        why=$(grep -m 1 -E '^FAIL |[Ee]rror[: ]|FAILED|Sanitizer: |^ +1\) test' "$2") || why=$(tail -n 1 "$2")
    fi
    printf 'failed: %s%s\n' "$1" "${why:+: $why}" | cut -c 1-160 >>"$WEIR_FAILED"
}

# plain_for PRESET: sets `plain` to what goes before the preset's programs. Sanitizers of clang 14 do not find their shadow memory where
# the kernel spreads addresses widely.
plain_for() {
    plain=()
    case $1 in
    asan | tsan*) if setarch "$(uname -m)" -R true 2>/dev/null; then plain=(setarch "$(uname -m)" -R); fi ;;
    esac
}

# watch LABEL LOG COMMAND...: runs the command with its output in LOG, and shows that it is alive: a line that
# is rewritten every second on a terminal, else one every 15 s. Shows the end of LOG when the command fails.
watch() {
    local label=$1 log=$2 pid status=0 started=$SECONDS last=0 step=15 line
    shift 2
    mkdir -p "$(dirname "$log")"
    [ -t 2 ] && step=1
    say "$label"
    set -m # a process group of its own, so that an interrupt ends all of it
    "$@" >"$log" 2>&1 </dev/null &
    pid=$!
    set +m
    # shellcheck disable=SC2064 # this run's process
    trap "kill -- -$pid 2>/dev/null; exit 130" INT TERM HUP
    while kill -0 "$pid" 2>/dev/null; do
        sleep 0.2
        if [ $((SECONDS - started - last)) -ge $step ]; then
            last=$((SECONDS - started))
            line=$(tail -c 40000 "$log" | tr '\r' '\n' | sed -n 's/^\(\[ *[0-9][0-9]*[/%][^]]*\]\).*/\1 /p; s/^ *\([0-9][0-9]*\/[0-9][0-9]*\) Test .*/\1 /p' | tail -n 1)
            if [ -t 2 ]; then
                printf '\r\033[Kweir:   %s%d s' "$line" "$last" >&2
            else
                say "  $line$last s"
            fi
        fi
    done
    wait "$pid" || status=$?
    trap - INT TERM HUP
    [ -t 2 ] && [ "$last" -gt 0 ] && printf '\r\033[K' >&2
    if [ "$status" -ne 0 ]; then
        say "failed with status $status: $label"
        # What a build did without trouble is left out.
        grep -vE '^\[ *[0-9]+[/%].*(Building|Linking|Creating|Built target)' "$log" |
            tail -n "${WEIR_LOG_LINES:-60}" | sed 's/^/    /' >&2 || true
        say "the whole log: $log"
        [ "${WEIR_LOG_LINES:-60}" = 0 ] || tell_failed "$label" "$log"
    fi
    return "$status"
}

# check_sha256 FILE SHA256 NAME: ends the script unless the file has this hash. NAME is for the message.
check_sha256() {
    local sum
    sum=$(sha256 "$1")
    [ "$sum" = "$2" ] || die "$3 has SHA-256 $sum, not $2: not used"
}

# fetch_once FOLDER LABEL COMMAND: makes FOLDER, unless it is there, out of $fetch_dir/new, which COMMAND leaves.
fetch_once() {
    local parent=${1%/*}
    [ ! -d "$1" ] || return 0
    mkdir -p "$parent"
    take_lock "$parent/lock"
    [ ! -d "$1" ] || return 0 # the run that we waited for has fetched it
    rm -rf "$parent"/fetch.*
    fetch_dir=$(mktemp -d "$parent/fetch.XXXXXX")
    trap 'rm -rf "$fetch_dir"' EXIT
    watch "$2" "$weir_cache/log/${parent##*/}.log" "$3" || exit 1
    mv "$fetch_dir/new" "$1"
}

# The list of the files that make install wrote, that list itself, and the folders that it made, below the prefix.
# shellcheck disable=SC2034 # for install.sh and uninstall.sh
installed_files=share/doc/weir/installed-files.txt

# remove_files ROOT: removes the files below it that stdin names, and weir's own folders and those that stdin names with a "/" at the
# end, where they are empty then.
remove_files() {
    local file
    while read -r file; do
        if [[ $file == */ ]]; then
            rmdir "$1/$file" 2>/dev/null || true
            continue
        fi
        rm -f "$1/$file"
        while [[ "/$file" == */weir/* ]]; do
            file=${file%/*}
            rmdir "$1/$file" 2>/dev/null || break
        done
    done
}
