# SPDX-License-Identifier: Apache-2.0
#
# conformance: every operator of ops.def on every CPU target against the reference kernels. cpu_fence: what objects of newer
# instruction sets may define. kernels_bench: how fast the hot kernels are. Built for 64-bit ARM on another machine
# (cmake/aarch64.cmake), conformance_<set> and unit_cpu_<set> run on an emulated processor whose best set that is.
# conformance_cases: the cases of all operators, once for all programs that run them on targets of theirs.
if(TARGET lmn_core AND TARGET lmn_memory AND TARGET lmn_ops)
  file(GLOB sources CONFIGURE_DEPENDS tests/conformance/*.cc)
  list(FILTER sources EXCLUDE REGEX "/targets_[a-z]+.cc$")
  add_library(conformance_cases OBJECT EXCLUDE_FROM_ALL ${sources})
  target_include_directories(conformance_cases PUBLIC tests/conformance cpp)
  target_link_libraries(conformance_cases PUBLIC lmn_test_flags)
endif()
if(TARGET lmn_core AND TARGET lmn_memory AND TARGET lmn_ops AND TARGET lmn_cpu)
  add_executable(conformance EXCLUDE_FROM_ALL tests/conformance/targets_cpu.cc)
  target_link_libraries(conformance PRIVATE conformance_cases lmn_core lmn_memory lmn_ops lmn_cpu Threads::Threads)
  if(CMAKE_CROSSCOMPILING AND CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64")
    target_compile_definitions(conformance_cases PUBLIC LMN_EMULATED_PROCESSOR)
    foreach(processor "neon cortex-a72" "neon_dotprod neoverse-n1" "neon_i8mm max")
      string(REPLACE " " ";" processor "${processor}")
      list(POP_FRONT processor set)
      set(cases "${set} ")
      if(set STREQUAL "neon_dotprod")  # between the two others: what it has of its own is the products of bytes
        set(cases "${set} linear" "${set} embedding")
      endif()
      add_test(NAME conformance_${set} COMMAND conformance ${cases})
      set_tests_properties(conformance_${set} PROPERTIES ENVIRONMENT QEMU_CPU=${processor})
      if(TARGET cpu_tests AND NOT set STREQUAL "neon_dotprod")
        add_test(NAME unit_cpu_${set} COMMAND cpu_tests)
        set_tests_properties(unit_cpu_${set} PROPERTIES ENVIRONMENT QEMU_CPU=${processor})
      endif()
    endforeach()
  else()
    # Two, as each takes a core for minutes under a sanitizer.
    add_test(NAME conformance COMMAND conformance !scalar)
    add_test(NAME conformance_scalar COMMAND conformance scalar)
  endif()

  add_test(NAME cpu_fence COMMAND ${CMAKE_COMMAND} -DNM=${CMAKE_NM} "-DOBJECTS=$<TARGET_OBJECTS:lmn_cpu>"
                                  -P ${CMAKE_CURRENT_SOURCE_DIR}/cmake/check_fence.cmake)

  file(GLOB sources CONFIGURE_DEPENDS bench/micro/kernels*.cc)
  if(sources)
    add_executable(kernels_bench EXCLUDE_FROM_ALL ${sources})
    target_include_directories(kernels_bench PRIVATE cpp)
    target_link_libraries(kernels_bench PRIVATE lmn_core lmn_memory lmn_ops lmn_cpu lmn_flags Threads::Threads)
  endif()
endif()
