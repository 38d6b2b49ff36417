# LICENSES.txt: weir's license, and the notices of the code that is inside the program and the libraries. It is written when CMake
# configures, out of the sources that are compiled: a pin without one of these texts is an error. It is installed, lies beside
# the Elixir package's native part, and `weir version --licenses` prints it (the target weir_licenses, from LICENSES.txt.c).
# Libraries that are linked dynamically (jansson, libcurl, …) come with their own.
# SPDX-License-Identifier: Apache-2.0
set(licenses_file ${PROJECT_BINARY_DIR}/licenses/LICENSES.txt)
set(licenses_parts "")
set(licenses_text "")

function(weir_license title why text)
    string(REGEX REPLACE "^\n+|\n+$" "" text "${text}")
    string(REPEAT "=" 80 rule)
    set(licenses_parts "${licenses_parts}  ${title}: ${why}\n" PARENT_SCOPE)
    set(licenses_text "${licenses_text}\n${rule}\n${title}\n${rule}\n\n${text}\n" PARENT_SCOPE)
endfunction()

# read_license(RESULT FILE): the file's text; empty where a tree that is not the pin has no such file.
function(read_license result file)
    set(text "")
    if(EXISTS ${file})
        set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
        file(READ ${file} text)
    elseif(WEIR_LLAMA_PINNED)
        message(FATAL_ERROR "${file} is missing: cmake/notices.cmake must say where this pin has its licenses")
    endif()
    set(${result} "${text}" PARENT_SCOPE)
endfunction()

# read_lines(RESULT FILE REGEX): the file's lines that match, each once, without the comment's signs.
function(read_lines result file regex)
    set(text "")
    if(EXISTS ${file})
        file(STRINGS ${file} lines REGEX "${regex}" ENCODING UTF-8)
        list(REMOVE_DUPLICATES lines)
        foreach(line IN LISTS lines)
            string(REGEX REPLACE "^[/* ]+" "" line "${line}")
            string(APPEND text "${line}\n")
        endforeach()
    endif()
    if(WEIR_LLAMA_PINNED AND text STREQUAL "")
        message(FATAL_ERROR "${file} has no line like ${regex}: cmake/notices.cmake must be made to fit this pin")
    endif()
    set(${result} "${text}" PARENT_SCOPE)
endfunction()

if(WEIR_WITH_LLAMA)
    set(llama ${WEIR_LLAMA_SOURCE})
    read_license(text ${llama}/LICENSE)
    weir_license("llama.cpp and ggml" "compute the models" "${text}")

    # The MIT license's words, for parts whose file names only the holder.
    string(FIND "${text}" "Permission is hereby granted" at)
    string(SUBSTRING "${text}" ${at} -1 mit)

    read_license(text ${llama}/licenses/LICENSE-jsonhpp)
    read_lines(holders ${llama}/vendor/nlohmann/json.hpp "SPDX-FileCopyrightText:|@copyright")
    string(REPLACE "SPDX-FileCopyrightText:" "Copyright" holders "${holders}")
    string(REPLACE "@copyright " "" holders "${holders}")
    weir_license("nlohmann/json" "JSON in llama.cpp's chat templates"
        "${text}\nIts file json.hpp names these holders, all under the MIT license but for the Abseil Authors' integer sequences, which are under the Apache License 2.0:\n\n${holders}")

    read_license(text ${llama}/ggml/src/ggml-cpu/llamafile/sgemm.cpp)
    string(REGEX MATCH "^(//[^\n]*\n)+" text "${text}")
    string(REGEX REPLACE "(^|\n)// ?" "\\1" text "${text}")
    weir_license("llamafile" "matrix products in ggml" "${text}")

    read_lines(text ${llama}/ggml/src/ggml-cpu/ops.cpp "^// YaRN algorithm based on|Copyright .* Quesnelle")
    weir_license("YaRN" "long contexts in ggml" "${text}\n${mit}")

    read_lines(text ${llama}/src/llama-vocab.cpp "adapted from https://github.com/cmp-nct/ggllm.cpp")
    weir_license("ggllm.cpp" "byte pairs in llama.cpp" "${text}\n${mit}")

    if(WEIR_MEDIA)
        read_lines(text ${llama}/tools/mtmd/mtmd-image.cpp "Adapted from https://github.com/python-pillow/Pillow")
        weir_license("Pillow" "resizes images in libmtmd" "${text}
The Python Imaging Library (PIL) is
    Copyright © 1997-2011 by Secret Labs AB
    Copyright © 1995-2011 by Fredrik Lundh and contributors
Pillow is the friendly PIL fork. It is
    Copyright © 2010 by Jeffrey A. Clark and contributors

By obtaining, using, and/or copying this software and its associated documentation, you agree that you have read,
understood, and will comply with the following terms and conditions:

Permission to use, copy, modify and distribute this software and its documentation for any purpose and without fee is
hereby granted, provided that the above copyright notice appears in all copies, and that both that copyright notice and
this permission notice appear in supporting documentation, and that the name of Secret Labs AB or the author not be
used in advertising or publicity pertaining to distribution of the software without specific, written prior permission.

SECRET LABS AB AND THE AUTHOR DISCLAIMS ALL WARRANTIES WITH REGARD TO THIS SOFTWARE, INCLUDING ALL IMPLIED WARRANTIES OF
MERCHANTABILITY AND FITNESS.  IN NO EVENT SHALL SECRET LABS AB OR THE AUTHOR BE LIABLE FOR ANY SPECIAL, INDIRECT OR
CONSEQUENTIAL DAMAGES OR ANY DAMAGES WHATSOEVER RESULTING FROM LOSS OF USE, DATA OR PROFITS, WHETHER IN AN ACTION OF
CONTRACT, NEGLIGENCE OR OTHER TORTIOUS ACTION, ARISING OUT OF OR IN CONNECTION WITH THE USE OR PERFORMANCE OF THIS
SOFTWARE.")
    endif()

    if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(arm|aarch)")
        weir_license("Arm Optimized Routines" "the exponential function in ggml, for ARM" "Copyright (c) Arm Limited\n\n${mit}")
        weir_license("OpenVINO" "the exponential function in ggml, for ARM with SVE"
            "Copyright (c) Intel Corporation\n\nUnder the Apache License 2.0, whose text stands above.")
    endif()
    # Another tree than the pin links all of llama-common, and with it more of what upstream has taken in.
    if(NOT WEIR_LLAMA_PINNED)
        file(GLOB_RECURSE vendored ${llama}/vendor/*LICENSE*)
        foreach(file IN LISTS vendored)
            read_license(text ${file})
            get_filename_component(name ${file} DIRECTORY)
            file(RELATIVE_PATH name ${llama} ${name})
            weir_license("${name}" "in llama.cpp" "${text}")
        endforeach()
    endif()
endif()

if(DEFINED WEIR_LLHTTP_LICENSE) # where it is compiled in, not the system's
    read_license(text ${WEIR_LLHTTP_LICENSE})
    weir_license("llhttp" "reads HTTP in weir serve" "${text}")
endif()

if(DEFINED WEIR_PAGE_LIBS)
    foreach(part "markdown-it: Markdown on the page of weir serve" "linkify-it: in markdown-it" "mdurl: in markdown-it"
            "uc.micro: in markdown-it" "entities: in markdown-it" "punycode: in markdown-it"
            "highlight: highlight.js, colours of code on the page" "katex: KaTeX, formulas on the page")
        string(REGEX MATCH "^([^:]+): (.*)" _ "${part}")
        set(name ${CMAKE_MATCH_1})
        set(why ${CMAKE_MATCH_2})
        read_license(text ${WEIR_PAGE_LIBS}/LICENSE-${name}.txt)
        weir_license("${name}" "${why}" "${text}")
    endforeach()
endif()

file(READ ${PROJECT_SOURCE_DIR}/LICENSE text)
string(REGEX REPLACE "^\n+|\n+$" "" text "${text}")
string(CONCAT text "weir is under the Apache License 2.0, which follows.\n"
    "Programs and libraries that were built with this file contain these parts, whose notices follow it:\n\n"
    "${licenses_parts}\n${text}\n${licenses_text}")
if(licenses_parts STREQUAL "")
    string(REGEX REPLACE "Programs and[^\n]*\n\n" "" text "${text}")
endif()
# Numbers, because a string literal of this length is not C11. Files that stay the same are not written.
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/licenses)
file(WRITE ${licenses_file}.new "${text}")
file(READ ${licenses_file}.new hex HEX)
string(REGEX REPLACE "(..)" "0x\\1," hex "${hex}")
string(REGEX REPLACE "(................................................................................)" "\\1\n    " hex "${hex}")
file(WRITE ${licenses_file}.c.new "/* Made by cmake/notices.cmake. */\nextern const unsigned char cli_licenses[];\n\n"
    "const unsigned char cli_licenses[] = {\n    ${hex}0};\n")
foreach(file ${licenses_file} ${licenses_file}.c)
    configure_file(${file}.new ${file} COPYONLY)
endforeach()
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/LICENSE)
add_library(weir_licenses OBJECT ${licenses_file}.c)
target_link_libraries(weir_licenses PRIVATE weir_options)
