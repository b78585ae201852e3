# SPDX-License-Identifier: Apache-2.0
#
# liblmnative.so: all rooms in one shared library that exports the C ABI and nothing else, depends on libc and libm only, and
# never leaves the process once loaded (tensors handed out carry deleters that live in it, and may outlive a dlclose).
# The soname's number is LMN_ABI_VERSION of the header.
if(NOT DEFINED LMN_WHEEL_LAYOUT)  # what it means: see install.cmake; SKBUILD is set by scikit-build-core
  set(LMN_WHEEL_LAYOUT ${SKBUILD})
endif()
file(STRINGS include/lmnative/version.h abi_line REGEX "^#define LMN_ABI_VERSION [0-9]+$")
string(REGEX MATCH "[0-9]+$" LMN_ABI_VERSION "${abi_line}")

set_property(TARGET lmn_capi APPEND PROPERTY COMPILE_DEFINITIONS
             LMN_PACKAGE_VERSION="${PROJECT_VERSION}" LMN_BUILD_TYPE="${CMAKE_BUILD_TYPE}")

add_library(lmnative SHARED)
add_library(lmnative::lmnative ALIAS lmnative)
target_link_libraries(lmnative PRIVATE ${lmn_objects} lmn_flags Threads::Threads)
target_include_directories(lmnative INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>)
set_target_properties(lmnative PROPERTIES
  VERSION ${LMN_ABI_VERSION}.${PROJECT_VERSION}
  SOVERSION ${LMN_ABI_VERSION}
  LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}
  LINKER_LANGUAGE CXX
  LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/lmnative.map)
if(LMN_WHEEL_LAYOUT)  # one file, no links
  set_target_properties(lmnative PROPERTIES VERSION ${LMN_ABI_VERSION})
endif()
target_link_options(lmnative PRIVATE
  "LINKER:--version-script=${PROJECT_SOURCE_DIR}/cmake/lmnative.map"
  LINKER:-z,relro LINKER:-z,now LINKER:-z,nodelete LINKER:--as-needed LINKER:--gc-sections)
if(NOT LMN_SANITIZE)  # a sanitizer's own symbols come from the executable, and its runtime wants the shared libstdc++
  target_link_options(lmnative PRIVATE LINKER:-z,defs -static-libstdc++ -static-libgcc)
endif()

include(install)
