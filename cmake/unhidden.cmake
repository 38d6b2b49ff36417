# weir_unhidden (libweir_test.so): the objects of the libraries, the command (without main) and the server with all their names, and
# llama.cpp. Tests and benchmarks link it, so that a changed source file means one link, and not one for each of them.
# SPDX-License-Identifier: Apache-2.0
add_library(weir_unhidden SHARED ${weir_objects} $<TARGET_OBJECTS:weir_hub>)
set_target_properties(weir_unhidden PROPERTIES OUTPUT_NAME weir_test)
target_include_directories(weir_unhidden PUBLIC include)
target_link_libraries(weir_unhidden PUBLIC PkgConfig::JANSSON ${weir_media} Threads::Threads m PRIVATE weir_options weir_transfer)
if(TARGET weir_cli_parts)
    target_link_libraries(weir_unhidden PRIVATE weir_cli_parts weir_bench_parts)
endif()
if(WEIR_WITH_LLAMA)
    target_link_libraries(weir_unhidden PRIVATE weir_llama)
    # Some call llama.cpp themselves: functions that weir does not use are there too.
    set(whole ${WEIR_LLAMA_LIBS})
    list(FILTER whole INCLUDE REGEX "/lib(llama|ggml[^/]*)\\.a$")
    if(APPLE)
        list(TRANSFORM whole PREPEND "LINKER:-force_load,")
        target_link_options(weir_unhidden PRIVATE ${whole})
    else()
        list(JOIN whole "," whole)
        target_link_options(weir_unhidden PRIVATE "LINKER:--whole-archive,${whole},--no-whole-archive" -Wl,--wrap=__cxa_atexit)
    endif()
endif()

# Hundreds of programs are linked. GNU's other linker takes a fifth of the time: it does not look through the libraries of libraries.
find_program(WEIR_GOLD ld.gold DOC "A faster linker for tests and benchmarks")

# clang puts ASan's runtime into each program, and gold warns of each name in it; the shared one is linked in a quarter of the time.
if(WEIR_GOLD AND WEIR_SANITIZE MATCHES "address" AND CMAKE_C_COMPILER_ID STREQUAL "Clang")
    execute_process(COMMAND ${CMAKE_C_COMPILER} -print-file-name=libclang_rt.asan-${CMAKE_SYSTEM_PROCESSOR}.so
        OUTPUT_VARIABLE asan_runtime OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    if(EXISTS "${asan_runtime}")
        get_filename_component(WEIR_ASAN_RUNTIME "${asan_runtime}" DIRECTORY)
    endif()
endif()

# weir_links(PROGRAM LIBRARY). -fPIC instead of -fPIE: no copies of the library's tables in the program, whose sizes would be those
# of the day when it was linked. A sanitizer's runtime for C++, which llama.cpp needs, comes with the C++ compiler's link alone.
function(weir_links program library)
    target_link_libraries(${program} PRIVATE ${library})
    target_compile_options(${program} PRIVATE -fPIC)
    if(WEIR_WITH_LLAMA)
        set_target_properties(${program} PROPERTIES LINKER_LANGUAGE CXX)
    endif()
    if(WEIR_GOLD AND NOT APPLE AND NOT WEIR_SANITIZE MATCHES "address")
        target_link_options(${program} PRIVATE -fuse-ld=gold)
    elseif(WEIR_ASAN_RUNTIME)
        target_link_options(${program} PRIVATE -fuse-ld=gold -shared-libsan -Wl,-rpath,${WEIR_ASAN_RUNTIME})
    elseif(WEIR_GOLD AND NOT APPLE) # with this option the usual linker does not look through them either
        target_link_options(${program} PRIVATE -Wl,--unresolved-symbols=ignore-in-shared-libs)
    endif()
endfunction()
