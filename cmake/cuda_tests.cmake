# SPDX-License-Identifier: Apache-2.0
#
# Tests of the CUDA device, which have the label cuda: its kernels on the CPU (cmake/simt.cmake) and, where nvcc has compiled
# them, on the first device that there is (conformance_cuda, tensor_cuda, skipped where there is none), and what they use of it:
# cuda_budget compares with cuda_budget.txt; the target cuda_resources prints a table, cuda_budget_update writes the file anew.
# The target cuda_tests builds what these tests run.
add_custom_target(cuda_tests)
foreach(target conformance_simt simt_tests device_tests cuda_core_tests)
  if(TARGET ${target})
    add_dependencies(cuda_tests ${target})
  endif()
endforeach()
if(NOT TARGET lmn_cuda)
  return()
endif()

add_executable(conformance_cuda EXCLUDE_FROM_ALL tests/conformance/targets_cuda.cc)
target_link_libraries(conformance_cuda PRIVATE conformance_cases lmn_cuda lmn_cuda_kernels lmn_core lmn_memory lmn_ops
                      Threads::Threads)
add_test(NAME conformance_cuda COMMAND conformance_cuda)
add_executable(tensor_cuda EXCLUDE_FROM_ALL tests/unit/simt/test_device_cuda.cc)
target_link_libraries(tensor_cuda PRIVATE tensor_cases lmn_cuda lmn_cuda_kernels lmn_core lmn_memory lmn_parallel lmn_ops lmn_cpu
                      lmn_text lmn_graph lmn_plan lmn_engine Threads::Threads)
add_test(NAME tensor_cuda COMMAND tensor_cuda)
set_tests_properties(conformance_cuda tensor_cuda PROPERTIES LABELS cuda SKIP_RETURN_CODE 77)

find_package(Python3 3.9 REQUIRED COMPONENTS Interpreter)
set(resources ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/cmake/cuda_resources.py
              ${PROJECT_BINARY_DIR}/CMakeFiles/lmn_cuda_kernels.dir)
set(budget ${PROJECT_SOURCE_DIR}/cmake/cuda_budget.txt)
add_test(NAME cuda_budget COMMAND ${resources} --check ${budget})
set_tests_properties(cuda_budget PROPERTIES LABELS cuda SKIP_RETURN_CODE 77)
add_custom_target(cuda_resources COMMAND ${resources} DEPENDS lmn_cuda_kernels VERBATIM)
add_custom_target(cuda_budget_update COMMAND ${resources} --update ${budget} DEPENDS lmn_cuda_kernels VERBATIM)
add_dependencies(cuda_tests conformance_cuda tensor_cuda lmn_cuda_kernels)
