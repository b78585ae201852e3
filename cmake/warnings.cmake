# SPDX-License-Identifier: Apache-2.0
#
# lmn_flags: what every C++ source of the library is compiled with. No -march: instruction sets are chosen at run time.
# -ffp-contract=off: the order and the rounding of floating-point operations are part of the contract (DESIGN section 7),
# so the compiler may not fuse a multiply and an add in one place and not in another.
add_library(lmn_flags INTERFACE)
target_compile_options(lmn_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wcast-qual -Wformat=2 -Wvla
  -ffp-contract=off -fno-math-errno -fno-semantic-interposition)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(lmn_flags INTERFACE -Wno-restrict)  # false alarms on std::string's operator+ (GCC bug 105651)
endif()
if(LMN_WERROR)
  target_compile_options(lmn_flags INTERFACE -Werror)
endif()

# lmn_test_flags: what tests are compiled with. They run for seconds and are compiled for minutes: half of it each level.
add_library(lmn_test_flags INTERFACE)
target_link_libraries(lmn_test_flags INTERFACE lmn_flags)
if(LMN_SANITIZE)
  target_compile_options(lmn_test_flags INTERFACE -O0 -fno-sanitize=alignment)
else()
  target_compile_options(lmn_test_flags INTERFACE $<$<CONFIG:Release>:-O1>)
endif()
