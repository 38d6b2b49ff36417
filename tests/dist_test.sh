#!/usr/bin/env bash
# make dist: the sources are the same bytes each time and the commit's files, and the list of parts is whole.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
cd "$WEIR_SOURCE_DIR"
. scripts/lib.sh

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0
ok() { passed=$((passed + 1)); }

# ---- the sources: a clone of its own, since build/ may be in use ----
git rev-parse HEAD >/dev/null 2>&1 || { echo "no git checkout"; exit 77; }
git -c safe.directory='*' clone -q --no-hardlinks "$PWD" "$work/a tree"
(cd "$work/a tree" && scripts/dist.sh)
cp "$work/a tree/build/dist/SHA256SUMS" "$work/first"
archive=$(sed -n 's/.*  \(weir-.*\.tar\.gz\)$/\1/p' "$work/first")
cp "$work/a tree/build/dist/PKGBUILD" "$work/recipe"
# Another umask, and a working tree that differs from the commit.
(cd "$work/a tree" && touch README.md && chmod 600 Makefile && echo changed | tee -a packaging/PKGBUILD THIRD_PARTY.md scripts/llama.sh >/dev/null &&
    sed -i 's/upstream_tag=/upstream_tag=other/' scripts/llama.sh && umask 077 && TZ=Asia/Tokyo LC_ALL=C scripts/dist.sh)
cmp "$work/recipe" "$work/a tree/build/dist/PKGBUILD" || die "the recipe is that of the working tree"
git -C "$work/a tree" checkout -q .
cmp "$work/first" "$work/a tree/build/dist/SHA256SUMS" || die "the second archive has other bytes"
ok
tar -tzf "$work/a tree/build/dist/$archive" | sed 's,^[^/]*/,,; /\/$/d; /^$/d' | LC_ALL=C sort >"$work/packed"
git -C "$work/a tree" ls-tree -r --name-only -z HEAD | tr '\0' '\n' | LC_ALL=C sort | cmp - "$work/packed" || die "the archive has other files than the commit"
ok
python3 - "$work/a tree/build/dist/$archive" <<'PYTHON' || die "an entry of the archive tells who packed it, or when"
import sys, tarfile

entries = tarfile.open(sys.argv[1]).getmembers()
assert entries and all((e.uid, e.gid, e.uname, e.gname) == (0, 0, "", "") for e in entries), [e.name for e in entries if e.uid or e.uname]
assert len({e.mtime for e in entries}) == 1
assert all(e.issym() or e.mode in ((0o755,) if e.isdir() else (0o644, 0o755)) for e in entries), [(e.name, oct(e.mode)) for e in entries][:20]
PYTHON
ok
python3 - "$work/a tree/build/dist" <<'PYTHON' || die "the list of parts is wrong"
import hashlib, json, pathlib, re, sys

folder = pathlib.Path(sys.argv[1])
(path,) = folder.glob("*.spdx.json")
bom = json.loads(path.read_text())
assert bom["spdxVersion"] == "SPDX-2.3" and bom["dataLicense"] == "CC0-1.0" and bom["SPDXID"] == "SPDXRef-DOCUMENT"
assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", bom["creationInfo"]["created"])
ids = [part["SPDXID"] for part in bom["packages"] + bom["files"]]
assert len(set(ids)) == len(ids) and all(re.fullmatch(r"SPDXRef-[A-Za-z0-9.-]+", one) for one in ids), ids
ends = {relation[end] for relation in bom["relationships"] for end in ("spdxElementId", "relatedSpdxElement")}
assert ends == {"SPDXRef-DOCUMENT", *ids}, ends ^ {"SPDXRef-DOCUMENT", *ids}
names = {part["name"]: part for part in bom["packages"]}
assert {"weir", "llama.cpp", "ggml", "llhttp", "KaTeX", "OpenVINO"} <= names.keys(), names.keys()
tag = re.search(r"upstream_tag=(\S+)", pathlib.Path("scripts/llama.sh").read_text()).group(1)
assert names["llama.cpp"]["versionInfo"] == tag and names["llama.cpp"]["licenseDeclared"] == "MIT", names["llama.cpp"]
for file in bom["files"]:
    sums = {one["algorithm"]: one["checksumValue"] for one in file["checksums"]}
    assert sums["SHA256"] == hashlib.sha256((folder / file["fileName"]).read_bytes()).hexdigest(), file
assert len(bom["files"]) == 1
PYTHON
ok
(cd "$work/a tree" && refused=0 && scripts/dist.sh all 2>"$work/said" || refused=$? && [ "$refused" -eq 1 ] && grep -q 'usage:' "$work/said") || die "it takes any argument"
ok
echo "$passed passed, 0 failed"
