# Part of ggml's build where a GPU is tried (scripts/gpu_prove.py): the target WEIR_PREBUILT_TARGET takes the objects of its files
# that lie in WEIR_PREBUILT, and compiles the other files. The objects come from the same pin, compiler and flags.
# SPDX-License-Identifier: Apache-2.0
function(weir_prebuilt)
    get_target_property(folder ${WEIR_PREBUILT_TARGET} SOURCE_DIR)
    get_target_property(sources ${WEIR_PREBUILT_TARGET} SOURCES)
    set(taken "")
    set(compiled "")
    foreach(source IN LISTS sources)
        get_filename_component(file "${source}" ABSOLUTE BASE_DIR "${folder}")
        file(RELATIVE_PATH name "${folder}" "${file}")
        if(EXISTS "${WEIR_PREBUILT}/${name}.o")
            list(APPEND taken "${WEIR_PREBUILT}/${name}.o")
        else()
            list(APPEND compiled "${file}")
        endif()
    endforeach()
    list(LENGTH taken count)
    message(STATUS "${count} objects of ${WEIR_PREBUILT_TARGET} are there already")
    set_target_properties(${WEIR_PREBUILT_TARGET} PROPERTIES SOURCES "${taken};${compiled}" LINKER_LANGUAGE CXX)
endfunction()
cmake_language(DEFER CALL weir_prebuilt) # once ggml's targets are there
