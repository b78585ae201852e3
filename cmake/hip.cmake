# SPDX-License-Identifier: Apache-2.0
#
# LMN_HIP: the kernels of cuda/ for AMD's GPUs, as far as object files (what is missing beyond: cuda/README.md). The target
# hip_objects compiles them, the test hip_objects does the same and is skipped where there is no hipcc.
set(LMN_HIP_ARCHITECTURES gfx1030 CACHE STRING
    "What hipcc compiles for: GPUs with waves of 32 lanes that its device libraries know, such as gfx1030;gfx1100")
find_program(LMN_HIPCC hipcc HINTS ENV ROCM_PATH PATHS /opt/rocm PATH_SUFFIXES bin)
set(lmn_no_hipcc "SKIP hip_objects: no hipcc on the PATH, in ROCM_PATH or /opt/rocm (Debian: hipcc)")
if(NOT LMN_HIPCC)
  message(STATUS "HIP: ${lmn_no_hipcc}")
  add_test(NAME hip_objects COMMAND sh -c "echo '${lmn_no_hipcc}'; exit 77")
  set_tests_properties(hip_objects PROPERTIES LABELS cuda SKIP_RETURN_CODE 77)
  return()
endif()
list(TRANSFORM LMN_HIP_ARCHITECTURES PREPEND --offload-arch= OUTPUT_VARIABLE architectures)
file(GLOB_RECURSE kernels CONFIGURE_DEPENDS cuda/kernels/*.cu)
set(objects)
foreach(kernel IN LISTS kernels)
  file(RELATIVE_PATH name ${PROJECT_SOURCE_DIR} ${kernel})
  set(object ${PROJECT_BINARY_DIR}/hip/${name}.o)
  cmake_path(GET object PARENT_PATH folder)
  add_custom_command(
    OUTPUT ${object}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${folder}
    # Without its platform hipcc takes nvcc where there is one. Loops too large to unroll (-Wno-pass-failed) are slow alone.
    COMMAND ${CMAKE_COMMAND} -E env HIP_PLATFORM=amd ${LMN_HIPCC} -std=c++20 -O3 -Wall -Werror -Wno-pass-failed
            ${architectures} -ffp-contract=off -fPIC -fvisibility=hidden -I${PROJECT_SOURCE_DIR} -I${PROJECT_SOURCE_DIR}/cpp
            -MD -MF ${object}.d -x hip -c ${kernel} -o ${object}
    DEPENDS ${kernel}
    DEPFILE ${object}.d
    COMMENT "Building HIP object ${name}.o"
    VERBATIM)
  list(APPEND objects ${object})
endforeach()
add_custom_target(hip_objects DEPENDS ${objects})
add_test(NAME hip_objects COMMAND ${CMAKE_COMMAND} --build ${PROJECT_BINARY_DIR} --target hip_objects)
set_tests_properties(hip_objects PROPERTIES LABELS cuda)
