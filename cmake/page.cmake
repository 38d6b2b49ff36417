# page.cmake: the library weir_page, server/web/ inside the program. Made again when one of its files changes.
# SPDX-License-Identifier: Apache-2.0
file(GLOB page_files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/server/web/*)
set(page_source ${PROJECT_BINARY_DIR}/page/page_files.c)
add_custom_command(OUTPUT ${page_source}
    COMMAND ${CMAKE_COMMAND} -DFOLDER=${PROJECT_SOURCE_DIR}/server/web -DOUTPUT=${page_source}
        -P ${PROJECT_SOURCE_DIR}/cmake/embed.cmake
    DEPENDS ${page_files} ${PROJECT_SOURCE_DIR}/cmake/embed.cmake
    COMMENT "Putting the page into C" VERBATIM)
add_library(weir_page OBJECT ${page_source})
target_include_directories(weir_page PRIVATE ${PROJECT_SOURCE_DIR}/server)
target_link_libraries(weir_page PRIVATE weir_options)
