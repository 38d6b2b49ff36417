# Part of llama.cpp's build (scripts/llama.sh): the targets that weir has in place of upstream's.
# SPDX-License-Identifier: Apache-2.0

# weir_target(NAME FROM PATTERN): a static library of the target FROM's files but those whose names match.
function(weir_target name from pattern)
    get_target_property(folder ${from} SOURCE_DIR)
    get_target_property(sources ${from} SOURCES)
    list(FILTER sources EXCLUDE REGEX "${pattern}")
    list(TRANSFORM sources PREPEND "${folder}/" REGEX "^[^/]")
    add_library(${name} STATIC ${sources})
    foreach(what INCLUDE_DIRECTORIES COMPILE_DEFINITIONS COMPILE_FEATURES COMPILE_OPTIONS)
        set_property(TARGET ${name} PROPERTY ${what} "$<TARGET_PROPERTY:${from},${what}>")
    endforeach()
endfunction()

function(weir_targets)
    # Without the files that only llama-common's own programs use, which take a sixth of the time of a build.
    if(TARGET llama-common)
        weir_target(weir-common llama-common "^(arg|console|debug|download|hf-cache|imatrix-loader|preset|subproc)\\.(cpp|h)$")
        add_dependencies(weir-common llama-common-base)
    endif()
    # Without the helpers, whose decoders of images and sounds read what weir's own refuse (ADR 0071), from
    # copies that refuse missing tensors (scripts/mtmd_checked.py).
    if(TARGET mtmd)
        weir_target(weir-mtmd mtmd "^mtmd-helper")
        get_target_property(sources weir-mtmd SOURCES)
        list(TRANSFORM sources REPLACE "^.*/tools/mtmd/" "${CMAKE_BINARY_DIR}/weir-mtmd/")
        set_property(TARGET weir-mtmd PROPERTY SOURCES ${sources})
        target_compile_options(weir-mtmd PRIVATE -include "${CMAKE_BINARY_DIR}/weir-mtmd/weir-tensor.h")
    endif()
endfunction()
cmake_language(DEFER CALL weir_targets) # once all targets are there
