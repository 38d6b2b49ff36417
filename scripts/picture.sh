#!/usr/bin/env bash
# picture.sh: takes README's picture of the page again, docs/images/page.png, from a server with the default model.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$weir_root"
scripts/deps.sh check
scripts/build.sh release
model=$(scripts/model.sh)
mkdir -p docs/images
WEIR_TEST_MODEL=$model WEIR_SOURCE_DIR=$weir_root WEIR_BUILD_DIR=$weir_root/build/release WEIR_BIN=$weir_root/build/release/weir \
    python3 tests/browser/picture.py docs/images/page.png
