# What `make install` puts into PREFIX: programs, libraries (shared, and archives that need none of llama.cpp's), headers, pkg-config
# and CMake packages, man pages, completions. Everything finds the rest by its own place, so that a prefix may be moved.
# SPDX-License-Identifier: Apache-2.0
set(CMAKE_INSTALL_LIBDIR lib CACHE STRING "Where libraries lie below the prefix")
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(files ${PROJECT_BINARY_DIR}/install)

# What a program needs that links libweir.a, or libweir_hub.a beside it.
set(weir_private_libs -ljansson)
set(weir_hub_private_libs -ljansson)
if(weir_curl)
    list(PREPEND weir_hub_private_libs -lcurl)
endif()
if(weir_media)
    list(TRANSFORM MEDIA_LIBRARIES PREPEND -l OUTPUT_VARIABLE libs)
    list(APPEND weir_private_libs ${libs})
endif()
if(WEIR_WITH_LLAMA)
    list(APPEND weir_private_libs ${WEIR_LLAMA_SYSTEM_LIBS})
    if(APPLE)
        list(APPEND weir_private_libs -lc++)
    else()
        list(APPEND weir_private_libs -lstdc++)
    endif()
endif()
list(APPEND weir_private_libs ${CMAKE_THREAD_LIBS_INIT})
foreach(lib ${CMAKE_DL_LIBS} m)
    list(APPEND weir_private_libs -l${lib})
endforeach()
list(APPEND weir_hub_private_libs ${CMAKE_THREAD_LIBS_INIT})
string(REPLACE ";" " " WEIR_PRIVATE_LIBS "${weir_private_libs}")
string(REPLACE ";" " " WEIR_HUB_PRIVATE_LIBS "${weir_hub_private_libs}")
string(REGEX REPLACE "[^/]+" ".." WEIR_UP "${CMAKE_INSTALL_LIBDIR}/pkgconfig")

set(modules weir weir_static weir_hub weir_hub_static) # of pkg-config
foreach(module ${modules})
    configure_file(cmake/${module}.pc.in ${files}/${module}.pc @ONLY)
endforeach()
configure_package_config_file(cmake/weirConfig.cmake.in ${files}/weirConfig.cmake
    INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/weir PATH_VARS CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_INCLUDEDIR)
# Before 1.0 a minor version may change what programs were compiled against.
write_basic_package_version_file(${files}/weirConfigVersion.cmake COMPATIBILITY SameMinorVersion)

# One archive with all that belongs to weir, and only weir_ names to be seen; another one of the hub, with its copies of base functions.
set(archive ${CMAKE_COMMAND} -E env LD=${CMAKE_LINKER} AR=${CMAKE_AR} OBJCOPY=${CMAKE_OBJCOPY} ${PROJECT_SOURCE_DIR}/scripts/archive.sh)
add_custom_command(OUTPUT ${files}/libweir.a
    COMMAND ${archive} ${files}/libweir.a $<TARGET_FILE:weir_static> ${WEIR_LLAMA_LIBS}
    DEPENDS weir_static scripts/archive.sh ${WEIR_LLAMA_LIBS} VERBATIM)
add_custom_command(OUTPUT ${files}/libweir_hub.a
    COMMAND ${archive} ${files}/libweir_hub.a $<TARGET_FILE:weir_hub_static> $<TARGET_FILE:weir_transfer> $<TARGET_FILE:weir_base>
    DEPENDS weir_hub_static weir_transfer weir_base scripts/archive.sh VERBATIM)
add_custom_command(OUTPUT ${files}/share.stamp
    COMMAND ${CMAKE_COMMAND} -E rm -rf ${files}/share
    COMMAND ${CMAKE_COMMAND} -E make_directory ${files}/share
    COMMAND weir_cli help --write ${files}/share
    COMMAND ${CMAKE_COMMAND} -E touch ${files}/share.stamp
    DEPENDS weir_cli VERBATIM)
add_custom_target(weir_install DEPENDS ${files}/libweir.a ${files}/libweir_hub.a ${files}/share.stamp)
add_dependencies(weir_install weir_cli weir_bench weir_shared weir_hub_shared)

install(TARGETS weir_cli weir_shared weir_hub_shared)
install(TARGETS weir_bench DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/weir)
install(FILES ${files}/libweir.a ${files}/libweir_hub.a DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES include/weir/weir.h include/weir/more.h include/weir/hub.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/weir)
list(TRANSFORM modules REPLACE "(.+)" "${files}/\\1.pc")
install(FILES ${modules} DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES ${files}/weirConfig.cmake ${files}/weirConfigVersion.cmake
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/weir)
install(DIRECTORY ${files}/share/ DESTINATION ${CMAKE_INSTALL_DATAROOTDIR})
# The guides lie as in the source tree, with all that they and the README link to.
install(FILES LICENSE ${licenses_file} README.md CHANGELOG.md CONTRIBUTING.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN *.md PATTERN *.json PATTERN *.png)
install(DIRECTORY bench/results DESTINATION ${CMAKE_INSTALL_DOCDIR}/bench FILES_MATCHING PATTERN *.md PATTERN *.svg)
install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN *.c PATTERN *.py)
install(FILES elixir/README.md DESTINATION ${CMAKE_INSTALL_DOCDIR}/elixir)
install(FILES python/README.md DESTINATION ${CMAKE_INSTALL_DOCDIR}/python)
install(DIRECTORY elixir/guides DESTINATION ${CMAKE_INSTALL_DOCDIR}/elixir)
install(FILES elixir/cluster/README.md DESTINATION ${CMAKE_INSTALL_DOCDIR}/elixir/cluster)
file(CREATE_LINK ../../../include ${files}/include SYMBOLIC)
install(FILES ${files}/include DESTINATION ${CMAKE_INSTALL_DOCDIR})
file(GLOB units CONFIGURE_DEPENDS packaging/*.service packaging/*.socket)
if(units)
    install(FILES ${units} DESTINATION lib/systemd/system)
endif()
