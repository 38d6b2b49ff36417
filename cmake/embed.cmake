# embed.cmake: cmake -DFOLDER=server/web -DLIBS=folder -DOUTPUT=page_files.c -P embed.cmake
# Writes the folder's files, and the scripts of LIBS as those of a folder lib/, as a C file: the tables that
# server/page.h declares.
# SPDX-License-Identifier: Apache-2.0
cmake_minimum_required(VERSION 3.21)

set(type_html "text/html; charset=utf-8")
set(type_css "text/css; charset=utf-8")
set(type_js "text/javascript; charset=utf-8")
set(type_svg "image/svg+xml")

file(GLOB files ${FOLDER}/*)
if(LIBS)
    file(GLOB libs ${LIBS}/*.js)
    list(APPEND files ${libs})
endif()
set(arrays "")
set(table "")
set(n 0)
foreach(file ${files})
    get_filename_component(name ${file} NAME)
    string(REGEX REPLACE ".*\\." "" ending "${name}")
    if(NOT DEFINED type_${ending})
        message(FATAL_ERROR "${file}: embed.cmake knows no Content-Type for .${ending}")
    endif()
    set(path "/${name}")
    if(file IN_LIST libs)
        set(path "/lib/${name}")
    endif()
    if(name STREQUAL "index.html")
        set(path "/")
    endif()
    # Numbers, because a string literal of this length is not C11.
    file(READ ${file} hex HEX)
    string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
    string(REGEX REPLACE "(................................................................................)" "\\1\n    " bytes "${bytes}")
    string(APPEND arrays "static const unsigned char file_${n}[] = {\n    ${bytes}\n};\n\n")
    string(APPEND table "    {\"${path}\", \"${type_${ending}}\", file_${n}, sizeof file_${n}},\n")
    math(EXPR n "${n} + 1")
endforeach()
file(WRITE ${OUTPUT} "/* Made by cmake/embed.cmake out of server/web. */
#include \"page.h\"

${arrays}const weir__page_file weir__page_files[] = {
${table}};
const size_t weir__n_page_files = ${n};
")
