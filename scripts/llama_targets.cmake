# Part of llama.cpp's build (scripts/llama.sh): the targets that weir has in place of upstream's, and with WEIR_JOINED (the pin, with
# weir's patches) files that are compiled together, for most of a file's time goes into the headers that all of them read (ADR 0123).
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

# weir_join(TARGET UNIT PATTERN [OPTION...]): compiles those of the target's files whose names match in one file, UNIT.cpp, with the
# options after the target's own. Files must not share names of static functions; a macro FILENAME may differ.
function(weir_join target unit pattern)
    get_target_property(folder ${target} SOURCE_DIR)
    get_target_property(sources ${target} SOURCES)
    list(TRANSFORM sources PREPEND "${folder}/" REGEX "^[^/]")
    set(joined ${sources})
    list(FILTER joined INCLUDE REGEX "${pattern}")
    if(NOT joined)
        message(FATAL_ERROR "no file of ${target} matches ${pattern}")
    endif()
    list(FILTER sources EXCLUDE REGEX "${pattern}")
    list(TRANSFORM joined REPLACE "(.+)" "#undef FILENAME\n#include \"\\1\"\n")
    string(JOIN "" text ${joined})
    set(file "${CMAKE_BINARY_DIR}/weir-joined/${unit}.cpp")
    file(CONFIGURE OUTPUT "${file}" CONTENT "${text}" @ONLY)
    set_property(TARGET ${target} PROPERTY SOURCES ${sources} "${file}")
    set_source_files_properties("${file}" TARGET_DIRECTORY ${target} PROPERTIES
        SKIP_UNITY_BUILD_INCLUSION ON COMPILE_OPTIONS "${ARGN}")
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
    if(WEIR_JOINED)
        weir_joins()
    endif()
endfunction()

# -O1 for what reads a model, a template's kind or an encoder's layers, once. What runs for each token, text, picture or sound, and all
# of ggml-cpu, has upstream's flags. Left alone are files that specialize templates of files before them.
function(weir_joins)
    set(common "/common/")
    weir_join(weir-common parsers "${common}(parsers/.*|chat|chat-auto-parser.*|chat-diff-analyzer)\\.cpp$" -O1)
    weir_join(weir-common helpers "${common}(common|fit|log|ngram-.*|sampling|speculative)\\.cpp$" -O1)
    weir_join(weir-common peg "${common}(peg-parser|chat-peg-parser|reasoning-budget|trie|unicode)\\.cpp$")
    weir_join(weir-common jinja "${common}(jinja/(lexer|parser|runtime|string|caps)|json-schema.*)\\.cpp$")
    set(core "/src/llama")
    weir_join(llama models-1 "/src/models/[a-g].*\\.cpp$" -O1)
    weir_join(llama models-2 "/src/models/.*\\.cpp$" -O1)
    weir_join(llama load "${core}(|-adapter|-arch|-chat|-hparams|-impl|-io|-mmap|-model.*|-quant)\\.cpp$" -O1)
    # Apart from llama-graph.cpp, which has a function of the same name as llama-kv-cache-dsv4.cpp.
    weir_join(llama text "/src/(llama-(vocab|grammar|sampler|kv-cache-dsv4)|unicode|unicode-data)\\.cpp$")
    weir_join(llama decode "${core}-(batch|context|cparams|graph|kv-cache.*|memory.*)\\.cpp$")
    if(TARGET weir-mtmd)
        weir_join(weir-mtmd encoders "/weir-mtmd/(models/.*|clip|mtmd)\\.cpp$" -O1)
        weir_join(weir-mtmd media "/weir-mtmd/mtmd-(audio|image)\\.cpp$")
    endif()
endfunction()
cmake_language(DEFER CALL weir_targets) # once all targets are there
