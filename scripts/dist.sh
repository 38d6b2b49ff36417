#!/usr/bin/env bash
# dist.sh: what a release offers of the commit that is checked out, in build/dist (ADR 0157):
#   weir-VERSION.tar.gz       the sources; the same bytes each time
#   weir-VERSION.spdx.json    what a build of them contains, with versions and licenses
#   PKGBUILD                  for Arch Linux, with the archive's sum
#   SHA256SUMS
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$weir_root"

[ $# -eq 0 ] || die "usage: dist.sh"
[ "$(git rev-parse --show-toplevel 2>/dev/null)" -ef "$weir_root" ] || die "a release is made from a git checkout"
[ -z "$(git status --porcelain --untracked-files=no)" ] || say "changes that are not committed stay out"
version=$(git show HEAD:include/weir/weir.h | sed -n 's/^#define WEIR_VERSION *"\(.*\)"$/\1/p')
date=$(git log -1 --format=%ct)
out=$weir_root/build/dist archive=weir-$version.tar.gz
rm -rf "$out"
mkdir -p "$out/tree"

# One time, one owner, two modes and an order: the same bytes, whoever packs them and when.
umask 022
git -c core.autocrlf=false -c tar.umask=0022 archive --format=tar --prefix="weir-$version/" HEAD | tar --extract --directory "$out/tree"
LC_ALL=C tar --create --format=ustar --sort=name --mtime="@$date" --owner=0 --group=0 --numeric-owner --mode=u+rw,go+r,go-w \
    --directory "$out/tree" "weir-$version" | gzip -n -9 >"$out/$archive"
tree=$out/tree/weir-$version
"$tree/scripts/dist_sbom.py" "$version" "$date" "$out" >"$out/weir-$version.spdx.json"
sed "s/@SHA256@/$(sha256 "$out/$archive")/" "$tree/packaging/PKGBUILD" >"$out/PKGBUILD"
rm -rf "$out/tree"
(cd "$out" && for file in weir-*; do echo "$(sha256 "$file")  $file"; done >SHA256SUMS)
say "$out: $archive, weir-$version.spdx.json, PKGBUILD, SHA256SUMS"
