# embed.cmake: cmake -DFOLDER=server/page/web -DLIBS=folder -DOUTPUT=page_files.c -P embed.cmake
# Writes the folder's files, and the scripts of LIBS as those of a folder lib/, as a C file: the tables that
# server/page/files.h declares. Each file is there twice, plain and with gzip.
# SPDX-License-Identifier: Apache-2.0
cmake_minimum_required(VERSION 3.21)

set(type_html "text/html; charset=utf-8")
set(type_css "text/css; charset=utf-8")
set(type_js "text/javascript; charset=utf-8")
set(type_svg "image/svg+xml")

# Numbers, because a string literal of this length is not C11.
function(add_array name hex)
    string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
    string(REGEX REPLACE "(................................................................................)" "\\1\n    " bytes "${bytes}")
    set(arrays "${arrays}static const unsigned char ${name}[] = {\n    ${bytes}\n};\n\n" PARENT_SCOPE)
endfunction()

# Without what browsers do not read: lines that are comments, and indentation. No text of the page's own scripts has a
# line's end in it.
function(strip_script file stripped)
    file(READ ${file} text)
    string(REGEX REPLACE "\n *//[^\n]*" "" text "\n${text}") # with an end of line before the first one too
    string(REGEX REPLACE "\n +" "\n" text "${text}")
    string(SUBSTRING "${text}" 1 -1 text)
    file(WRITE ${stripped} "${text}")
endfunction()

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
    if(ending STREQUAL "js" AND NOT file IN_LIST libs)
        strip_script(${file} ${OUTPUT}.js)
        set(file ${OUTPUT}.js)
    endif()
    file(READ ${file} hex HEX)
    add_array(file_${n} "${hex}")
    file(ARCHIVE_CREATE OUTPUT ${OUTPUT}.gz PATHS ${file} FORMAT raw COMPRESSION GZip COMPRESSION_LEVEL 9)
    file(READ ${OUTPUT}.gz hex HEX)
    # The time in its head, 4 bytes from the fifth on, becomes 0: every build makes the same program.
    string(SUBSTRING "${hex}" 0 8 magic)
    string(SUBSTRING "${hex}" 16 -1 rest)
    add_array(packed_${n} "${magic}00000000${rest}")
    file(SHA256 ${file} hash)
    string(SUBSTRING ${hash} 0 16 hash)
    string(APPEND table "    {\"${path}\", \"${type_${ending}}\", \"${hash}\", file_${n}, sizeof file_${n}, packed_${n}, sizeof packed_${n}},\n")
    math(EXPR n "${n} + 1")
endforeach()
file(REMOVE ${OUTPUT}.gz ${OUTPUT}.js)
file(WRITE ${OUTPUT} "/* Made by cmake/embed.cmake out of server/page/web. */
#include \"files.h\"

${arrays}const weir__page_file weir__page_files[] = {
${table}};
const size_t weir__n_page_files = ${n};
")
