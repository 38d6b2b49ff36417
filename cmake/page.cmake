# page.cmake: the library weir_page, server/page/web/ inside the program, with the libraries that scripts/page_libs.sh fetches
# (WEIR_PAGE_LIBS is their folder, for cmake/notices.cmake). Made again when one of its files changes.
# SPDX-License-Identifier: Apache-2.0
execute_process(COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/scripts/page_libs.sh
    OUTPUT_VARIABLE WEIR_PAGE_LIBS OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE page_status)
if(NOT page_status EQUAL 0)
    message(STATUS "scripts/page_libs.sh needs npm: the page shows answers as plain text, without Markdown, colours and formulas")
    unset(WEIR_PAGE_LIBS)
endif()
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS scripts/page_libs.sh)
file(GLOB page_files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/server/page/web/*)
set(page_source ${PROJECT_BINARY_DIR}/page/page_files.c)
add_custom_command(OUTPUT ${page_source}
    COMMAND ${CMAKE_COMMAND} -DFOLDER=${PROJECT_SOURCE_DIR}/server/page/web -DLIBS=${WEIR_PAGE_LIBS} -DOUTPUT=${page_source}
        -P ${PROJECT_SOURCE_DIR}/cmake/embed.cmake
    DEPENDS ${page_files} ${PROJECT_SOURCE_DIR}/cmake/embed.cmake ${PROJECT_SOURCE_DIR}/scripts/page_libs.sh
    COMMENT "Putting the page into C" VERBATIM)
add_library(weir_page OBJECT ${page_source})
target_include_directories(weir_page PRIVATE ${PROJECT_SOURCE_DIR}/server/page)
target_link_libraries(weir_page PRIVATE weir_options)
