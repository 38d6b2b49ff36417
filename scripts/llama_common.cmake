# Part of the pinned llama.cpp's build (scripts/llama.sh): weir-common is its llama-common without the files that only
# its own programs use, which take a sixth of the time of a build.
# SPDX-License-Identifier: Apache-2.0
function(weir_common)
    get_target_property(folder llama-common SOURCE_DIR)
    get_target_property(sources llama-common SOURCES)
    list(FILTER sources EXCLUDE REGEX "^(arg|console|debug|download|hf-cache|imatrix-loader|preset|subproc)\\.(cpp|h)$")
    list(TRANSFORM sources PREPEND "${folder}/" REGEX "^[^/]")
    add_library(weir-common STATIC ${sources})
    foreach(what INCLUDE_DIRECTORIES COMPILE_DEFINITIONS COMPILE_FEATURES COMPILE_OPTIONS)
        set_property(TARGET weir-common PROPERTY ${what} "$<TARGET_PROPERTY:llama-common,${what}>")
    endforeach()
    add_dependencies(weir-common llama-common-base)
endfunction()
cmake_language(DEFER CALL weir_common) # once all targets are there
