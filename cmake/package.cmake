# weir_package(PREFIX ...): pkg_check_modules(PREFIX ...), with the same target PkgConfig::PREFIX every time. CMake 3.25 takes -isystem
# FOLDER of a .pc file for an include folder when it asks pkg-config, and for an option when it has the answer in its cache, so that a
# second configuration would change the commands and compile again.
# SPDX-License-Identifier: Apache-2.0
include_guard()
find_package(PkgConfig REQUIRED)

macro(weir_package prefix)
    pkg_check_modules(${prefix} ${ARGN})
    if(TARGET PkgConfig::${prefix})
        weir_package_folders(PkgConfig::${prefix})
    endif()
endmacro()

function(weir_package_folders target)
    get_target_property(options ${target} INTERFACE_COMPILE_OPTIONS)
    set(others "")
    set(is_folder FALSE)
    foreach(option IN LISTS options)
        if(is_folder)
            set_property(TARGET ${target} APPEND PROPERTY INTERFACE_INCLUDE_DIRECTORIES "${option}")
            set(is_folder FALSE)
        elseif(option STREQUAL "-isystem")
            set(is_folder TRUE)
        elseif(option MATCHES "^-isystem(.+)")
            set_property(TARGET ${target} APPEND PROPERTY INTERFACE_INCLUDE_DIRECTORIES "${CMAKE_MATCH_1}")
        elseif(option)
            list(APPEND others "${option}")
        endif()
    endforeach()
    set_property(TARGET ${target} PROPERTY INTERFACE_COMPILE_OPTIONS "${others}")
endfunction()
