# SPDX-License-Identifier: Apache-2.0
#
# conformance: every operator of ops.def on every CPU target against the reference kernels. cpu_fence: what objects of newer
# instruction sets may define. kernels_bench: how fast the hot kernels are.
if(TARGET lmn_core AND TARGET lmn_memory AND TARGET lmn_ops AND TARGET lmn_cpu)
  file(GLOB sources CONFIGURE_DEPENDS tests/conformance/*.cc)
  add_executable(conformance EXCLUDE_FROM_ALL ${sources})
  target_include_directories(conformance PRIVATE tests/conformance cpp)
  target_link_libraries(conformance PRIVATE lmn_core lmn_memory lmn_ops lmn_cpu lmn_flags Threads::Threads)
  add_test(NAME conformance COMMAND conformance)

  add_test(NAME cpu_fence COMMAND ${CMAKE_COMMAND} -DNM=${CMAKE_NM} "-DOBJECTS=$<TARGET_OBJECTS:lmn_cpu>"
                                  -P ${CMAKE_CURRENT_SOURCE_DIR}/cmake/check_fence.cmake)

  file(GLOB sources CONFIGURE_DEPENDS bench/micro/kernels*.cc)
  if(sources)
    add_executable(kernels_bench EXCLUDE_FROM_ALL ${sources})
    target_include_directories(kernels_bench PRIVATE cpp)
    target_link_libraries(kernels_bench PRIVATE lmn_core lmn_memory lmn_ops lmn_cpu lmn_flags Threads::Threads)
  endif()
endif()
