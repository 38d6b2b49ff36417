# Finds, fetches and builds the pinned llama.cpp through scripts/llama.sh, whose progress shows on stderr, and
# makes the target weir_llama: what to link. Include directories are left to the few targets that may see them.
# SPDX-License-Identifier: Apache-2.0

set(callers_compilers --unset=CC --unset=CXX)
if(WEIR_CALLERS_CC)
    list(APPEND callers_compilers CC=${WEIR_CALLERS_CC})
endif()
if(WEIR_CALLERS_CXX)
    list(APPEND callers_compilers CXX=${WEIR_CALLERS_CXX})
endif()

set(parts "")
if(WEIR_MEDIA)
    list(APPEND parts --media)
endif()
if(NOT WEIR_RPC)
    list(APPEND parts --no-rpc)
endif()

execute_process(
    COMMAND ${CMAKE_COMMAND} -E env ${callers_compilers}
        ${CMAKE_CURRENT_SOURCE_DIR}/scripts/llama.sh --flavor ${WEIR_LLAMA_FLAVOR} ${parts}
    OUTPUT_VARIABLE llama_answer
    RESULT_VARIABLE llama_status)
foreach(name SOURCE BUILD VERSION PINNED BACKEND LIBS PACKAGES SYSTEM_LIBS)
    string(TOLOWER ${name} key)
    if(NOT llama_status EQUAL 0 OR NOT "\n${llama_answer}" MATCHES "\n${key}=([^\n]*)")
        message(FATAL_ERROR "scripts/llama.sh could not provide llama.cpp (its messages are above)")
    endif()
    set(WEIR_LLAMA_${name} "${CMAKE_MATCH_1}")
endforeach()
set(WEIR_LLAMA_INCLUDE_DIRS include common vendor tools/mtmd ggml/include ggml/src ggml/src/ggml-cpu)
list(TRANSFORM WEIR_LLAMA_INCLUDE_DIRS PREPEND ${WEIR_LLAMA_SOURCE}/)
if(WEIR_MEDIA)
    list(PREPEND WEIR_LLAMA_LIBS ${WEIR_LLAMA_BUILD}/libweir-mtmd.a)
endif()
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS scripts/llama.sh scripts/llama.patch
    scripts/llama_amx.patch scripts/llama_embeddings.patch scripts/llama_jinja.patch scripts/llama_memory.patch scripts/llama_rpc.patch scripts/llama_vulkan.patch scripts/llama_targets.cmake)
message(STATUS "llama.cpp: ${WEIR_LLAMA_BUILD} (${WEIR_LLAMA_BACKEND})")

foreach(package ${WEIR_LLAMA_PACKAGES})
    find_package(${package} REQUIRED)
endforeach()

add_library(weir_llama INTERFACE)
# The archives refer to each other in both directions (ggml's registry and its backends).
if(APPLE)
    target_link_libraries(weir_llama INTERFACE ${WEIR_LLAMA_LIBS})
else()
    target_link_libraries(weir_llama INTERFACE -Wl,--start-group ${WEIR_LLAMA_LIBS} -Wl,--end-group)
endif()
find_package(Threads REQUIRED)
target_link_libraries(weir_llama INTERFACE ${WEIR_LLAMA_SYSTEM_LIBS} Threads::Threads ${CMAKE_DL_LIBS} m)
# C programs that link the library need the C++ runtime.
if(APPLE)
    target_link_libraries(weir_llama INTERFACE c++)
else()
    # Its archive, for a target that asks for it with WEIR_RUNTIME_INSIDE; not every system has it.
    execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libstdc++.a
        OUTPUT_VARIABLE runtime OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(NOT EXISTS "${runtime}")
        set(runtime stdc++)
    endif()
    target_link_libraries(weir_llama INTERFACE "$<IF:$<BOOL:$<TARGET_PROPERTY:WEIR_RUNTIME_INSIDE>>,${runtime},stdc++>")
endif()

# The kernels' hook reads headers that llama.cpp does not promise to keep. They fit the pin; another tree is tried.
set(WEIR_HOOK_FITS TRUE)
if(NOT WEIR_LLAMA_PINNED)
    set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
    file(GLOB hook_sources ${CMAKE_CURRENT_SOURCE_DIR}/src/hook/*.cpp)
    unset(hook_fits CACHE)
    try_compile(hook_fits ${CMAKE_CURRENT_BINARY_DIR}/hook_fits
        SOURCES ${hook_sources}
        CMAKE_FLAGS "-DINCLUDE_DIRECTORIES=${CMAKE_CURRENT_SOURCE_DIR}/src;${CMAKE_CURRENT_SOURCE_DIR}/include;${WEIR_LLAMA_INCLUDE_DIRS}"
        CXX_STANDARD 17 CXX_STANDARD_REQUIRED ON)
    unset(CMAKE_TRY_COMPILE_TARGET_TYPE)
    if(NOT hook_fits)
        set(WEIR_HOOK_FITS FALSE)
        message(WARNING "this llama.cpp differs from the one that weir's CPU kernels are made for: ggml's own are used")
    endif()
endif()
