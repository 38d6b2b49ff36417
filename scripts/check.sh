#!/usr/bin/env bash
# check.sh [STEP...]: the steps of `make check` beyond the tests: warnings, formatting, lint, exported names,
# sanitizers, the server's page in a browser, real clients, fuzzing. Each step counts once in the last line, `N passed,
# N failed`. FUZZ_SECONDS for each fuzz target (30). By name only: all, which is `make test` and then the rest; unit and
# lint-changed, which with format are `make check-quick`; clang, whose warnings asan's build shows too; tsan-llama; and
# vulkan, which computes on Mesa's lavapipe (Debian: glslc libvulkan-dev spirv-headers mesa-vulkan-drivers).
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$weir_root"

# Three lanes of steps that run at the same time and take about as long, so that the processors have work until the end: what needs the
# tests' build, what mostly waits for browsers and servers, and the rest. dialyzer fills the compiler's cache for mix.
lanes=('gcc arm format layers markdown exports' 'docs dialyzer mix browser clients tsan' 'lint without fuzz asan')
fuzz_seconds=${FUZZ_SECONDS:-30}
logs=build/check
mkdir -p $logs
# A line for each failed test and step. The lanes have files of their own beside it.
[ "${*:-all}" != all ] || rm -f $logs/failed-*
export WEIR_FAILED=$PWD/$logs/failed-$$
: >"$WEIR_FAILED"
passed=0 failed=0 failures= seconds=

step() { # step NAME COMMAND...
    local name=$1 started=$SECONDS
    shift
    say "---- $name"
    if "$@"; then
        passed=$((passed + 1))
        say "ok: $name ($((SECONDS - started)) s)"
    else
        failed=$((failed + 1))
        failures+=" $name"
        tell_failed "$name"
        say "FAILED: $name ($((SECONDS - started)) s)"
    fi
    seconds+="$((SECONDS - started)) s  $name"$'\n'
}
check_lint() {
    forget_moved build/clang-werror
    cmake --preset clang-werror >/dev/null || return 1 # the list of files as it is now
    nice scripts/lint.py "$weir_cache/lint" build/clang-werror # at low priority: it takes what the others leave
}
# Against where this branch left WEIR_BASE. What needs llama.cpp's headers is left to `make check`.
check_lint_changed() {
    local base
    base=$(git merge-base HEAD "${WEIR_BASE:-$(git rev-parse -q --verify '@{upstream}' || echo main)}") || return 1
    forget_moved build/unit
    cmake --preset unit >/dev/null || return 1
    { git diff --name-only "$base" && git ls-files --others --exclude-standard; } | xargs -r scripts/lint.py "$weir_cache/lint" build/unit
}

# CI's release build has been made with -Werror already (.ci/run): with gcc, it is this step's.
check_gcc() {
    local cache=build/release/CMakeCache.txt
    if grep -qx 'WEIR_WERROR:BOOL=ON' $cache 2>/dev/null && grep -q 'CMAKE_C_COMPILER_ID "GNU"' build/release/CMakeFiles/*/CMakeCCompiler.cmake; then
        scripts/build.sh release
    else
        scripts/build.sh gcc-werror
    fi
}

# The kernels for ARM, which builds on x86-64 leave out: Debian's cross compiler reads them.
check_arm() {
    local file flags
    [ "$(uname -m)" = x86_64 ] || return 0
    for file in src/kernels/*_neon*.c src/kernels/{kernels,panel}.c src/base/cpu.c; do
        case $file in
        *_i8mm.c) flags=-march=armv8.2-a+dotprod+i8mm ;;
        *_dotprod.c) flags=-march=armv8.2-a+dotprod ;;
        *) flags= ;;
        esac
        # shellcheck disable=SC2086
        aarch64-linux-gnu-gcc -std=gnu11 $flags -fsyntax-only -Wall -Wextra -Wpedantic -Wshadow -Werror -Iinclude -Isrc "$file" || return 1
    done
}

# libweir.so shows the functions that weir.h and more.h declare, libweir_hub.so those of hub.h: all of them, and nothing else.
check_exports() {
    local name headers library declared shown
    : >$logs/exports.diff
    for name in libweir libweir_hub; do
        headers="weir.h more.h"
        [ $name = libweir ] || headers=hub.h
        library=$(ls -t build/gcc-werror/$name.so build/release/$name.so 2>/dev/null | head -n 1)
        shown=$(nm -D --defined-only $library | awk '{ print $NF }' | sort -u)
        declared=$(cd include/weir && cat $headers | tr '\n' ' ' | grep -oE 'WEIR_API[^;(]*\(' | grep -oE 'weir_[a-z0-9_]+ *\($' | tr -d ' (' | sort -u)
        [ -n "$declared" ] || { echo "found no WEIR_API function in $headers"; return 1; }
        diff <(echo "$declared") <(echo "$shown") |
            sed -n "s/^< \(.*\)/declared in $headers, not exported: \1/p; s/^> \(.*\)/exported, not declared in $headers: \1/p" >>$logs/exports.diff
    done
    cat $logs/exports.diff
    [ ! -s $logs/exports.diff ]
}

check_preset() { # check_preset PRESET CTEST-ARGUMENT...
    scripts/build.sh "$1" && scripts/test.sh "$@"
}

check_tsan() { scripts/build.sh tsan threads_tests && scripts/test.sh tsan -L threads; }

# check_server SCRIPT: a test in Python that starts `weir serve` with the default model.
check_server() {
    local model
    model=$(scripts/model.sh) && scripts/build.sh release weir_cli || return 1
    WEIR_TEST_MODEL=$model WEIR_SOURCE_DIR=$weir_root WEIR_BUILD_DIR=$weir_root/build/release \
        WEIR_BIN=$weir_root/build/release/weir python3 "$1"
}

# On the processor, by a driver that needs no GPU; the results must be the CPU backend's.
check_vulkan() {
    local model
    model=$(scripts/model.sh) && scripts/build.sh release weir_cli && scripts/build.sh vulkan weir_cli || return 1
    WEIR_TEST_MODEL=$model WEIR_SOURCE_DIR=$weir_root WEIR_BIN=$weir_root/build/vulkan/weir WEIR_CPU_BIN=$weir_root/build/release/weir \
        watch "texts on Vulkan and on the CPU" $logs/vulkan.log python3 tests/vulkan/vulkan_test.py
}

fuzz_one() {
    local name=$1 found=build/fuzz/corpus/$1 arguments=()
    mkdir -p "$found"
    arguments=("-seed=${WEIR_TEST_SEED:-1}" "-max_total_time=$fuzz_seconds" -timeout=100 -rss_limit_mb=2048 -print_final_stats=1
        "-artifact_prefix=build/fuzz/$name-")
    if [ -f "fuzz/$name.dict" ]; then # and the fields of requests
        grep '^| `' docs/guides/fields.md | grep -o '`[^`]*`' | grep -o '[a-z0-9_]*' | sort -u | sed 's/.*/"&"/' |
            cat "fuzz/$name.dict" - >"build/fuzz/$name.dict"
        arguments+=("-dict=build/fuzz/$name.dict")
    fi
    arguments+=("$found") # new inputs go into the first folder; the kept ones stay as they are
    if [ -d "fuzz/corpus/$name" ]; then arguments+=("fuzz/corpus/$name"); fi
    if setarch "$(uname -m)" -R true 2>/dev/null; then
        setarch "$(uname -m)" -R "build/fuzz/fuzz/$name" "${arguments[@]}"
    else
        "build/fuzz/fuzz/$name" "${arguments[@]}"
    fi
}
export fuzz_seconds logs
export -f fuzz_one
# All targets, as many at a time as there are processors; prints the result of each afterwards.
fuzz_all() {
    xargs -P "$(job_count)" -I {} bash -c 'fuzz_one {} >$logs/{}.log 2>&1; echo $? >$logs/{}.status; echo "[$(wc -l <$logs/{}.log) lines] {}"' \
        <build/fuzz/fuzz/targets
}
fuzz_ended() {
    [ "$(cat "$logs/$1.status" 2>/dev/null)" = 0 ] && return
    tail -n 60 "$logs/$1.log"
    return 1
}
check_fuzz() {
    local name
    step "build the fuzz targets" scripts/build.sh fuzz || true
    rm -f $logs/*.status
    watch "fuzzing, $fuzz_seconds s each" $logs/fuzz.log fuzz_all || true
    while read -r name; do step "fuzz $name" fuzz_ended "$name"; done < <(cat build/fuzz/fuzz/targets 2>/dev/null)
}

# Adds the counts of a log's last line.
count() {
    local good=0 bad=1
    [[ "$(tail -n 1 "$1")" =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]] && good=${BASH_REMATCH[1]} bad=${BASH_REMATCH[2]}
    passed=$((passed + good)) failed=$((failed + bad)) # without such a line it ended before it could count
}
check_tests() { make -s test | tee $logs/tests.log; }

pids=()
if [ "${*:-all}" = all ]; then
    if [ $# -gt 0 ]; then export WEIR_WERROR=ON; fi # so that the step gcc need not build the release once more
    for i in 1 2; do
        # shellcheck disable=SC2086
        scripts/check.sh ${lanes[i]} >$logs/lane-$i.log 2>&1 &
        pids+=($!)
    done
    trap 'kill "${pids[@]}" 2>/dev/null' EXIT
    say "beside each other, two with their output at the end:$(printf ' [%s]' "${lanes[@]}")"
    # shellcheck disable=SC2086
    set -- ${1:+test} ${lanes[0]}
fi
for name; do
    case $name in
    test)
        scripts/jinja2.sh >/dev/null # jinja2_llama_test compares with it where it is
        step "the tests" check_tests
        count $logs/tests.log
        ;;
    gcc) step "no warning from gcc" check_gcc ;;
    # all of it is compiled: tests, examples and the hub's library include what may be left out, too
    without) step "without the parts that may be left out, no warning" check_preset without -R '^(model|worker|without)_test$' ;;
    clang) step "no warning from clang" scripts/build.sh clang-werror ;;
    arm) step "no warning in the kernels for ARM" watch "aarch64-linux-gnu-gcc" $logs/arm.log check_arm ;;
    format) step "formatting" watch "clang-format" $logs/format.log scripts/format.sh --check ;;
    lint) step "lint" watch "clang-tidy" $logs/lint.log check_lint ;;
    unit) step "unit tests without llama.cpp, no warning" check_preset unit -L '^unit$' ;;
    lint-changed) step "lint of what changed" watch "clang-tidy" $logs/lint.log check_lint_changed ;;
    layers) step "layers" watch "includes" $logs/layers.log scripts/layers.py ;;
    markdown) step "Markdown" watch "links and widths" $logs/markdown.log scripts/markdown.py ;;
    docs) step "the documentation" watch "MkDocs, doxygen" $logs/docs.log make -s docs ;;
    exports) step "exported names" watch "nm libweir.so" $logs/exports.log check_exports ;;
    mix) step "a new project with the Elixir packages" watch "from a clone" $logs/mix.log env WEIR_PRESET=unit scripts/mix_check.sh ;;
    dialyzer) step "types of the Elixir packages" watch "dialyzer" $logs/dialyzer.log scripts/dialyzer.sh ;;
    asan)
        scripts/model.sh >/dev/null
        # What computes most on the default model takes minutes each there; tiny models and the kernels' own tests lead through the same code.
        # invariance_avx2 is one of them with other kernels; backend_select_test and header_test run scripts and compilers alone,
        # nothing that a sanitizer sees.
        not_there='adapter|cache_dir|calls|cli|engine|estimate|guides|heads|hub|invarian(ce|t)|low_level|prefix|speculate'
        step "no warning from clang, tests under ASan and UBSan" check_preset asan -E "^(($not_there)_model_test|invariance_avx2|backend_select_test|header_test)\$"
        ;;
    tsan) step "threaded tests, the server and the commands that run an engine, under TSan" check_tsan ;;
    tsan-llama)
        scripts/model.sh >/dev/null
        step "the engine on the real model under TSan" check_preset tsan-llama -R '^engine_model_test$'
        ;;
    vulkan) step "tiny models and the default model on Vulkan" check_vulkan ;;
    browser)
        step "chats on the page in a browser" watch "chromium" $logs/chats.log check_server tests/browser/chat_test.py
        step "answers as the page renders them" watch "chromium" $logs/markdown-page.log check_server tests/browser/markdown_test.py
        step "images and sounds on the page" watch "chromium" $logs/media.log check_server tests/browser/media_test.py
        step "the page in a browser" watch "chromium" $logs/browser.log check_server tests/browser/page_test.py
        step "the page of a server in trouble" watch "chromium" $logs/trouble.log check_server tests/browser/trouble_test.py
        step "other origins' pages in a browser" watch "chromium" $logs/cors.log check_server tests/browser/cors_test.py
        ;;
    clients)
        step "real clients" watch "openai, langchain, llm, random schemas" $logs/clients.log check_server tests/clients/clients_test.py
        ;;
    fuzz) check_fuzz ;;
    *) die "no step $name; there are: ${lanes[*]} test unit clang lint-changed tsan-llama vulkan" ;;
    esac
done
for i in ${pids[@]+"${!pids[@]}"}; do
    say "waiting for: ${lanes[i + 1]}"
    wait "${pids[i]}" || true
    sed '$d' $logs/lane-$((i + 1)).log >&2
    count $logs/lane-$((i + 1)).log
done
trap - EXIT
printf '%s' "$seconds" | sort -rn | head -n 12 | sed 's/^/weir:   /' >&2
[ -z "$failures" ] || say "failed:$failures"
# Whoever sees only the end of the output learns all names.
cat "$WEIR_FAILED" ${pids[@]+"${pids[@]/#/$PWD/$logs/failed-}"} 2>/dev/null || true
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
