#!/usr/bin/env bash
# soak.sh [SECONDS [PRESET [TEST...]]]: runs a built preset's random tests (10 minutes, unit) with new seeds, one test after the other.
# The output of a run that failed stays in build/PRESET/soak/TEST-SEED.log. The last line: `N passed, N failed`.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$weir_root"

end=$((SECONDS + ${1:-600}))
preset=${2:-unit}
shift $(($# < 2 ? $# : 2))
[ $# -gt 0 ] || set -- random_schedule_test cache_random_test blocks_test prefix_tree_test threads_test
kept=build/$preset/soak
mkdir -p "$kept"
plain_for "$preset"
for name; do [ -x "build/$preset/tests/$name" ] || die "there is no build/$preset/tests/$name; scripts/build.sh $preset $name builds it"; done

passed=0 failed=0
while [ $SECONDS -lt $end ]; do
    for name; do
        seed=$((RANDOM * 32768 + RANDOM))
        log=$kept/$name-$seed.log
        if ${plain[@]+"${plain[@]}"} env WEIR_TEST_SEED=$seed ctest --test-dir "build/$preset" -R "^$name\$" --no-tests=error --output-on-failure >"$log" 2>&1; then
            passed=$((passed + 1))
            rm "$log"
        else
            failed=$((failed + 1))
            say "FAILED: WEIR_TEST_SEED=$seed ctest --test-dir build/$preset -R ^$name\$ --output-on-failure; its output: $log"
        fi
        [ $SECONDS -lt $end ] || break
    done
done
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
