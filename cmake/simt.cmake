# SPDX-License-Identifier: Apache-2.0
#
# The CUDA device without CUDA: its kernels, compiled by the host's compiler and run by tests/simt. Needs no toolkit.
# lmn_simt_kernels has the kernels and their table, lmn_simt the executor, lmn_fake_cuda the device's own code over a runtime of
# tests, whose headers come before a toolkit's.
if(CMAKE_CROSSCOMPILING OR NOT TARGET lmn_core OR NOT TARGET lmn_memory OR NOT TARGET lmn_ops)
  return()
endif()
file(GLOB_RECURSE kernels CONFIGURE_DEPENDS cuda/kernels/*.cu cuda/kernels/*.cc)
set(wrappers)
foreach(kernel IN LISTS kernels)  # the language of a .cu file is nvcc's in the same folder
  file(RELATIVE_PATH name ${PROJECT_SOURCE_DIR} ${kernel})
  string(REGEX REPLACE "[/.]" "_" wrapper ${name})
  set(wrapper ${PROJECT_BINARY_DIR}/simt/${wrapper}.cc)
  file(CONFIGURE OUTPUT ${wrapper} CONTENT "#include \"${name}\"\n")
  list(APPEND wrappers ${wrapper})
  if(kernel MATCHES "[.]cu$" AND NOT LMN_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Its accesses become calls, which tests/simt/hooks.cc answers.
    set_source_files_properties(${wrapper} PROPERTIES
      COMPILE_OPTIONS "-fsanitize=thread;--param;tsan-instrument-func-entry-exit=0")
  endif()
endforeach()
add_library(lmn_simt_kernels OBJECT EXCLUDE_FROM_ALL ${wrappers})
target_include_directories(lmn_simt_kernels PUBLIC ${PROJECT_SOURCE_DIR} cpp)
target_link_libraries(lmn_simt_kernels PRIVATE lmn_flags)
set_target_properties(lmn_simt_kernels PROPERTIES UNITY_BUILD OFF)
file(GLOB executor CONFIGURE_DEPENDS tests/simt/*.cc)
add_library(lmn_simt OBJECT EXCLUDE_FROM_ALL ${executor})
target_include_directories(lmn_simt PUBLIC ${PROJECT_SOURCE_DIR} cpp tests/simt)
target_link_libraries(lmn_simt PRIVATE lmn_flags)
set_target_properties(lmn_simt PROPERTIES UNITY_BUILD OFF)
if(LMN_SANITIZE)
  target_compile_options(lmn_simt_kernels PRIVATE -O0)  # a third of the time to compile
else()
  # Speed is the executor's: kernels are full of calls.
  target_compile_options(lmn_simt PRIVATE -O2)
  target_compile_options(lmn_simt_kernels PRIVATE -O1)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_definitions(lmn_simt PRIVATE LMN_SIMT_OBSERVED)
  endif()
endif()

file(GLOB sources CONFIGURE_DEPENDS tests/fake_cuda/*.cc cuda/core/*.cc)
add_library(lmn_fake_cuda OBJECT EXCLUDE_FROM_ALL ${sources})
target_include_directories(lmn_fake_cuda BEFORE PUBLIC tests/fake_cuda/include tests/fake_cuda)
target_include_directories(lmn_fake_cuda PUBLIC ${PROJECT_SOURCE_DIR} cpp tests/simt PRIVATE tests/unit)
target_link_libraries(lmn_fake_cuda PRIVATE lmn_test_flags)

add_executable(conformance_simt EXCLUDE_FROM_ALL tests/conformance/targets_simt.cc)
target_link_libraries(conformance_simt PRIVATE conformance_cases lmn_simt_kernels lmn_simt lmn_core lmn_memory lmn_ops
                      Threads::Threads)
# Two, as each takes a core for a while.
add_test(NAME conformance_simt COMMAND conformance_simt !linear)
add_test(NAME conformance_simt_linear COMMAND conformance_simt linear)
set_tests_properties(conformance_simt conformance_simt_linear PROPERTIES LABELS cuda COST 40)

# cuda_core_tests: the device's own code, without its kernels.
file(GLOB sources CONFIGURE_DEPENDS tests/unit/cuda/*.cc)
add_executable(cuda_core_tests EXCLUDE_FROM_ALL tests/unit/testing.cc ${sources})
target_include_directories(cuda_core_tests PRIVATE tests/unit)
target_link_libraries(cuda_core_tests PRIVATE lmn_fake_cuda lmn_simt lmn_core lmn_memory lmn_ops lmn_test_flags
                      Threads::Threads ${CMAKE_DL_LIBS})
add_test(NAME unit_cuda COMMAND cuda_core_tests)
set_tests_properties(unit_cuda PROPERTIES LABELS cuda)

# simt_tests: what conformance has no cases for. tensor_cases: those of them that know nothing of the executor and run on a GPU
# as well (tests/unit/simt/test_device.h).
if(TARGET lmn_engine)
  file(GLOB sources CONFIGURE_DEPENDS tests/unit/simt/*_test.cc)
  file(GLOB cases CONFIGURE_DEPENDS tests/unit/simt/tensor_*_test.cc)
  list(APPEND cases ${PROJECT_SOURCE_DIR}/tests/unit/simt/sampling_test.cc ${PROJECT_SOURCE_DIR}/tests/unit/simt/program_test.cc)
  list(REMOVE_ITEM sources ${cases})
  add_library(tensor_cases OBJECT EXCLUDE_FROM_ALL tests/unit/testing.cc ${cases})
  target_include_directories(tensor_cases PUBLIC tests/unit ${PROJECT_SOURCE_DIR} cpp)
  target_link_libraries(tensor_cases PUBLIC lmn_test_flags)
  list(APPEND sources tests/unit/simt/faulty_kernels.cc tests/unit/simt/test_device_simt.cc)
  if(NOT LMN_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    set_source_files_properties(tests/unit/simt/faulty_kernels.cc PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON
      COMPILE_OPTIONS "-O1;-fsanitize=thread;--param;tsan-instrument-func-entry-exit=0")
  endif()
  add_executable(simt_tests EXCLUDE_FROM_ALL ${sources})
  # What cublas_lt_test.cc takes for cuBLASLt: as it should be, without a function, and known by the name of the real one.
  foreach(fake IN ITEMS "" _incomplete _13)
    add_library(fake_cublas_lt${fake} MODULE EXCLUDE_FROM_ALL tests/unit/simt/fake_cublas_lt.cc)
    target_include_directories(fake_cublas_lt${fake} PRIVATE cpp)
    target_link_libraries(fake_cublas_lt${fake} PRIVATE lmn_test_flags)
    string(TOUPPER "LMN_FAKE_CUBLAS_LT${fake}" path)
    target_compile_definitions(simt_tests PRIVATE ${path}="$<TARGET_FILE:fake_cublas_lt${fake}>")
    add_dependencies(simt_tests fake_cublas_lt${fake})
  endforeach()
  target_compile_definitions(fake_cublas_lt_incomplete PRIVATE LMN_FAKE_INCOMPLETE)
  target_link_options(fake_cublas_lt_13 PRIVATE LINKER:-soname,libcublasLt.so.13)
  set_target_properties(fake_cublas_lt_13 PROPERTIES NO_SONAME ON)
  target_link_libraries(simt_tests PRIVATE lmn_fake_cuda tensor_cases lmn_simt_kernels lmn_simt lmn_core lmn_memory lmn_parallel
                        lmn_ops lmn_cpu lmn_text lmn_graph lmn_plan lmn_engine Threads::Threads ${CMAKE_DL_LIBS})
  add_test(NAME unit_simt COMMAND simt_tests)
  set_tests_properties(unit_simt PROPERTIES LABELS cuda)
endif()

# device_tests: plans and engines on that device. Not under a sanitizer, where a model takes minutes: kernels are tested there
# by conformance, the engine by its own tests.
if(TARGET lmn_engine AND TARGET lmn_models AND NOT LMN_SANITIZE)
  file(GLOB sources CONFIGURE_DEPENDS tests/unit/device/*_test.cc)
  add_executable(device_tests EXCLUDE_FROM_ALL tests/unit/testing.cc ${sources} cpp/capi/placement.cc
                 cpp/capi/available_memory.cc)
  target_include_directories(device_tests PRIVATE tests/unit tests/unit/device)
  set(objects ${lmn_objects})  # one device for its kernels, and those who put the parts together not at all
  list(REMOVE_ITEM objects lmn_cuda lmn_cuda_kernels lmn_capi lmn_server)
  target_link_libraries(device_tests PRIVATE lmn_fake_cuda lmn_simt_kernels lmn_simt ${objects} lmn_test_flags
                        Threads::Threads ${CMAKE_DL_LIBS})
  add_test(NAME unit_device COMMAND device_tests !golden)
  add_test(NAME device_golden COMMAND device_tests golden)  # by itself, as it needs a model
  set_tests_properties(unit_device device_golden PROPERTIES LABELS cuda)
  set_tests_properties(device_golden PROPERTIES ENVIRONMENT ${lmn_golden} SKIP_REGULAR_EXPRESSION "\n0 passed, 0 failed, [1-9]")
endif()
