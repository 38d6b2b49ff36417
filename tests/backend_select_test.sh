#!/usr/bin/env bash
# Which backend scripts/llama.sh picks, with which flags and libraries, on machines made up of a fake uname and
# a fake nvcc: the whole of the decision, for each backend by itself and by name.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset WEIR_BACKEND LLAMA_BACKEND WEIR_LLAMA_FROM WEIR_LLAMA_DIR WEIR_LLAMA_FLAGS CUDACXX CUDA_PATH CC CXX
export CUDA_HOME=$work/no-cuda

# A PATH of its own, so that this machine's nvcc and ninja do not take part.
machine() { # machine NAME SYSTEM [TOOL...]: makes the folder $work/NAME
    local bin=$work/$1 system=$2 tool processor=x86_64
    case $1 in *-arm) processor=aarch64 ;; esac
    mkdir -p "$bin"
    for tool in bash env dirname cat grep sed sort awk tr cut head git; do ln -s "$(command -v $tool)" "$bin/$tool"; done
    printf '#!/bin/sh\n[ "$1" = -m ] && echo %s || echo %s\n' "$processor" "$system" >"$bin/uname"
    shift 2
    for tool in "$@"; do printf '#!/bin/sh\nexit 0\n' >"$bin/$tool"; done
    chmod +x "$bin"/*
}
machine linux Linux
machine linux-nvcc Linux nvcc ninja
machine linux-arm Linux
machine linux-amd Linux hipcc
machine linux-intel Linux icx icpx
machine mac Darwin
machine mac-nvcc Darwin nvcc

failed=0
# expect MACHINE SETTINGS WANTED...: runs --print-config there; every WANTED is a whole line of it, or !LINE is not.
expect() {
    local name=$1 settings=$2 output line
    shift 2
    # shellcheck disable=SC2086
    output=$(env PATH="$work/$name" $settings bash "$root/scripts/llama.sh" --print-config ${arguments:-}) || {
        echo "not ok: $name [$settings]: --print-config failed"
        failed=1
        return
    }
    for line in "$@"; do
        case $line in
        !*) if grep -qxF -e "${line#!}" <<<"$output"; then
            echo "not ok: $name [$settings] has the line ${line#!}"
            failed=1
        fi ;;
        *) if ! grep -qxF -e "$line" <<<"$output"; then
            echo "not ok: $name [$settings] lacks the line $line; it says:"
            sed 's/^/    /' <<<"$output"
            failed=1
        fi ;;
        esac
    done
    echo "checked: $name [$settings]"
}
refuse() { # refuse MACHINE SETTINGS TEXT: fails, and says TEXT
    local output
    # shellcheck disable=SC2086
    if output=$(env PATH="$work/$1" $2 bash "$root/scripts/llama.sh" --print-config 2>&1); then
        echo "not ok: $1 [$2] was accepted"
        failed=1
    elif ! grep -qF -e "$3" <<<"$output"; then
        echo "not ok: $1 [$2] was refused with: $output"
        failed=1
    fi
    echo "checked: $1 [$2]"
}

on_cpu=(backend=cpu flag=-DGGML_CUDA=OFF flag=-DGGML_METAL=OFF flag=-DGGML_VULKAN=OFF)
on_cuda=(backend=cuda flag=-DGGML_CUDA=ON flag=-DGGML_METAL=OFF flag=-DGGML_VULKAN=OFF package=CUDAToolkit
    link=CUDA::cudart link=CUDA::cublas link=CUDA::cuda_driver)
on_metal=(backend=metal flag=-DGGML_CUDA=OFF flag=-DGGML_METAL=ON flag=-DGGML_VULKAN=OFF
    flag=-DGGML_METAL_EMBED_LIBRARY=ON "link=-framework Metal" "link=-framework Foundation")
on_vulkan=(backend=vulkan flag=-DGGML_CUDA=OFF flag=-DGGML_METAL=OFF flag=-DGGML_VULKAN=ON package=Vulkan
    link=Vulkan::Vulkan)

# auto: metal on macOS, cuda where nvcc is, else cpu.
expect linux "" "${on_cpu[@]}" "generator=Unix Makefiles"
expect linux "WEIR_BACKEND=auto" "${on_cpu[@]}"
expect linux-nvcc "" "${on_cuda[@]}" generator=Ninja "flag=-DCMAKE_CUDA_COMPILER=$work/linux-nvcc/nvcc"
expect mac "" "${on_metal[@]}"
expect mac-nvcc "" "${on_metal[@]}"
# nvcc outside PATH
mkdir -p "$work/toolkit/bin"
cp "$work/linux-nvcc/nvcc" "$work/toolkit/bin/nvcc"
expect linux "CUDA_HOME=$work/toolkit" "${on_cuda[@]}" "flag=-DCMAKE_CUDA_COMPILER=$work/toolkit/bin/nvcc"
expect linux "CUDACXX=$work/toolkit/bin/nvcc" "${on_cuda[@]}"

# By name, whatever the machine; LLAMA_BACKEND is the older name, WEIR_BACKEND wins.
expect linux-nvcc "WEIR_BACKEND=cpu" "${on_cpu[@]}" "!package=CUDAToolkit"
expect mac "WEIR_BACKEND=cpu" "${on_cpu[@]}" "link=-framework Accelerate"
expect linux "WEIR_BACKEND=cuda" "${on_cuda[@]}"
expect linux "WEIR_BACKEND=metal" "${on_metal[@]}"
expect linux "WEIR_BACKEND=vulkan" "${on_vulkan[@]}"
expect linux-amd "WEIR_BACKEND=hip" backend=hip flag=-DGGML_HIP=ON flag=-DGGML_CUDA=OFF package=hip link=hip::host link=roc::hipblas
expect linux-amd "" "${on_cpu[@]}" "!flag=-DGGML_HIP=ON"
expect linux-intel "WEIR_BACKEND=sycl CC=icx CXX=icpx" backend=sycl flag=-DGGML_SYCL=ON flag=-DCMAKE_CXX_COMPILER=icpx package=MKL \
    link=-fsycl link=MKL::MKL_SYCL::BLAS
expect linux-nvcc "LLAMA_BACKEND=cpu" "${on_cpu[@]}"
expect linux "LLAMA_BACKEND=vulkan" "${on_vulkan[@]}"
expect linux "LLAMA_BACKEND=vulkan WEIR_BACKEND=cpu" "${on_cpu[@]}"
refuse linux "WEIR_BACKEND=rocm" "not one of auto, cpu, cuda, hip, metal, sycl, vulkan"
refuse linux "WEIR_BACKEND=rocm LLAMA_BACKEND=cpu" "WEIR_BACKEND=rocm"
refuse linux "LLAMA_BACKEND=rocm" " LLAMA_BACKEND=rocm is not one of auto, cpu, cuda, hip, metal, sycl, vulkan"
# The sources come without the backend's tools; a build does not.
refuse_build() { # refuse_build MACHINE SETTINGS TEXT: a build fails before anything is fetched, and says TEXT
    local output
    # shellcheck disable=SC2086
    if output=$(env PATH="$work/$1" XDG_CACHE_HOME="$work/cache" $2 bash "$root/scripts/llama.sh" 2>&1) || ! grep -qF -e "$3" <<<"$output"; then
        echo "not ok: $1 [$2] builds or was refused with: $output"
        failed=1
    fi
    echo "checked: $1 [$2]"
}
refuse_build linux "WEIR_BACKEND=hip" "WEIR_BACKEND=hip needs hipcc (ROCm) in PATH"
refuse_build linux "WEIR_BACKEND=sycl" "WEIR_BACKEND=sycl needs Intel's compilers: CC=icx CXX=icpx"
refuse_build linux "WEIR_BACKEND=cuda" "WEIR_BACKEND=cuda needs nvcc"
refuse linux "WEIR_LLAMA_FROM=svn" "not one of auto, git, packages"

# One build for every x86-64-v3, unless it is told otherwise; the last word counts.
on_v3=(native=OFF flag=-DGGML_NATIVE=OFF flag=-DGGML_AVX2=ON flag=-DGGML_FMA=ON flag=-DGGML_F16C=ON flag=-DGGML_BMI2=ON)
expect linux "" "${on_v3[@]}"
expect linux-nvcc "" "${on_v3[@]}"
expect linux "WEIR_LLAMA_FLAGS=-DGGML_NATIVE=ON" native=ON flag=-DGGML_NATIVE=ON
expect linux "WEIR_LLAMA_FLAGS=-DGGML_NATIVE:BOOL=1" native=ON
expect linux-arm "" native=ON flag=-DGGML_NATIVE=ON "!flag=-DGGML_AVX2=ON"
expect linux-arm "WEIR_LLAMA_FLAGS=-DGGML_NATIVE=OFF" native=OFF
arguments="--flavor asan" expect linux "" "${on_v3[@]}"
arguments="--flavor stock" expect linux "" native=ON "!flag=-DGGML_AVX2=ON"
arguments="--flavor stock-avx2" expect linux "" native=OFF "!flag=-DGGML_AVX2=ON"

# What is patched: a patch for one backend touches no other's build.
expect linux "" patch=llama.patch "!patch=llama_vulkan.patch"
expect linux-nvcc "" patch=llama.patch "!patch=llama_vulkan.patch"
expect linux "WEIR_BACKEND=vulkan" patch=llama.patch patch=llama_vulkan.patch
arguments="--flavor stock" expect linux "WEIR_BACKEND=vulkan" "!patch=llama.patch" patch=llama_vulkan.patch
arguments="--flavor stock" expect linux "" "!patch=llama.patch" "!patch=llama_vulkan.patch" patch=llama_amx.patch
arguments="--flavor stock-avx2" expect linux "" "!patch=llama_amx.patch"
expect linux "" "!patch=llama_amx.patch"
expect linux "WEIR_LLAMA_FLAGS=-DGGML_NATIVE=ON" patch=llama.patch patch=llama_amx.patch

# RPC is a part that a build may lack, with its patch.
expect linux "" flag=-DGGML_RPC=ON patch=llama_rpc.patch
arguments="--no-rpc" expect linux "" "!flag=-DGGML_RPC=ON" "!patch=llama_rpc.patch" patch=llama_memory.patch

# Files of the pin go together; what benchmarks compare with, and another tree, are compiled file by file.
expect linux "" flag=-DWEIR_JOINED=ON
arguments="--flavor asan" expect linux "" flag=-DWEIR_JOINED=ON
arguments="--flavor stock" expect linux "" "!flag=-DWEIR_JOINED=ON"
expect linux "WEIR_LLAMA_DIR=$work" "!flag=-DWEIR_JOINED=ON"

# Sanitizer builds are clang's and for the CPU.
arguments="--flavor asan" expect linux-nvcc "" "${on_cpu[@]}" flag=-DCMAKE_C_COMPILER=clang
arguments="--flavor tsan" expect linux-nvcc "" "${on_cpu[@]}" flag=-DCMAKE_CXX_COMPILER=clang++

[ $failed -eq 0 ]
