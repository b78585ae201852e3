# SPDX-License-Identifier: Apache-2.0
#
# Library, headers, CMake package config and pkg-config file, all relative to the prefix, so that the tree can be moved: a
# wheel holds it as site-packages/lmnative/{lib,include}. A wheel cannot hold symbolic links and would ship the library
# three times; there (LMN_WHEEL_LAYOUT) the one file is liblmnative.so.<abi>, and liblmnative.so is a linker script that
# names it, so that -llmnative works all the same.
include(CMakePackageConfigHelpers)
if(LMN_WHEEL_LAYOUT)
  set(CMAKE_INSTALL_LIBDIR lib)
  set(CMAKE_INSTALL_INCLUDEDIR include)
else()
  include(GNUInstallDirs)
endif()
set(lmn_cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/lmnative)
set(lmn_pkgconfig_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

if(LMN_WHEEL_LAYOUT)
  install(TARGETS lmnative EXPORT lmnative_targets
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT lmnative NAMELINK_SKIP)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/wheel/liblmnative.so @ONLY CONTENT
"/* GNU ld script: a wheel holds no symbolic links. The library to load is liblmnative.so.@LMN_ABI_VERSION@. */
INPUT(liblmnative.so.@LMN_ABI_VERSION@)
")
  install(FILES ${PROJECT_BINARY_DIR}/wheel/liblmnative.so DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT lmnative)
else()
  install(TARGETS lmnative EXPORT lmnative_targets
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT lmnative)
endif()
install(DIRECTORY include/lmnative DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT lmnative
        FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")

install(EXPORT lmnative_targets NAMESPACE lmnative:: DESTINATION ${lmn_cmake_dir} COMPONENT lmnative)
configure_package_config_file(cmake/lmnative-config.cmake.in ${PROJECT_BINARY_DIR}/lmnative-config.cmake
                              INSTALL_DESTINATION ${lmn_cmake_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/lmnative-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/lmnative-config.cmake ${PROJECT_BINARY_DIR}/lmnative-config-version.cmake
        DESTINATION ${lmn_cmake_dir} COMPONENT lmnative)

# ${pcfiledir} is where pkg-config found the file: the prefix is so many folders up.
file(RELATIVE_PATH lmn_pc_to_prefix /prefix/${lmn_pkgconfig_dir} /prefix)
string(REGEX REPLACE "/$" "" lmn_pc_to_prefix "${lmn_pc_to_prefix}")
configure_file(cmake/lmnative.pc.in ${PROJECT_BINARY_DIR}/lmnative.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/lmnative.pc DESTINATION ${lmn_pkgconfig_dir} COMPONENT lmnative)
