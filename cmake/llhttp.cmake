# Makes the target weir_llhttp, Node's HTTP parser: the system's where there is one (9 or newer), else the pinned sources
# that scripts/llhttp.sh fetches, whose MIT notice is WEIR_LLHTTP_LICENSE. Without either there is no such target.
# SPDX-License-Identifier: Apache-2.0
add_library(weir_llhttp INTERFACE)
weir_package(LLHTTP QUIET IMPORTED_TARGET libllhttp>=9)
if(LLHTTP_FOUND)
    target_link_libraries(weir_llhttp INTERFACE PkgConfig::LLHTTP)
    set(WEIR_LLHTTP_FOUND TRUE)
else()
    execute_process(COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/scripts/llhttp.sh
        OUTPUT_VARIABLE llhttp_source OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE llhttp_status)
    if(llhttp_status EQUAL 0)
        add_library(weir_llhttp_pinned STATIC ${llhttp_source}/src/api.c ${llhttp_source}/src/http.c ${llhttp_source}/src/llhttp.c)
        target_include_directories(weir_llhttp_pinned SYSTEM PUBLIC ${llhttp_source}/include)
        target_compile_options(weir_llhttp_pinned PRIVATE -w)
        target_link_libraries(weir_llhttp INTERFACE weir_llhttp_pinned)
        set(WEIR_LLHTTP_LICENSE ${llhttp_source}/LICENSE-MIT)
        set(WEIR_LLHTTP_FOUND TRUE)
        set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS scripts/llhttp.sh)
    else()
        set(WEIR_LLHTTP_FOUND FALSE)
    endif()
endif()
