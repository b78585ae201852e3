# SPDX-License-Identifier: Apache-2.0
#
# libFuzzer targets (Clang with its compiler-rt only), included when LMN_BUILD_FUZZERS is on:
#   CC=clang-14 CXX=clang++-14 cmake -S . -B build/fuzz -G Ninja -DLMN_BUILD_FUZZERS=ON
#   ninja -C build/fuzz fuzz_gguf fuzz_onnx fuzz_session
# runs gguf_fuzz, onnx_fuzz and session_fuzz for LMN_FUZZ_SECONDS each, from the seeds of make_FORMAT_corpus.py and what
# earlier runs added to them, in build/fuzz/fuzz_FORMAT_corpus. A finding ends with a failure and a file crash-* in the build folder,
# which `FORMAT_fuzz FILE` repeats.
# The sources under test are compiled again here, with the fuzzer's instrumentation: the rooms' objects stay as they are.
if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "LMN_BUILD_FUZZERS needs Clang: configure with -DCMAKE_CXX_COMPILER=clang++")
endif()
set(LMN_FUZZ_SECONDS 60 CACHE STRING "Seconds that each fuzz_* target runs")
find_package(Python3 REQUIRED COMPONENTS Interpreter)

set(fuzz_flags -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -g)
file(GLOB_RECURSE fuzz_sources CONFIGURE_DEPENDS cpp/core/*.cc cpp/formats/*.cc)
add_library(fuzz_objects OBJECT EXCLUDE_FROM_ALL ${fuzz_sources})
target_include_directories(fuzz_objects PUBLIC cpp tests/unit)
target_link_libraries(fuzz_objects PRIVATE lmn_flags)
target_compile_options(fuzz_objects PUBLIC ${fuzz_flags})
target_link_options(fuzz_objects PUBLIC ${fuzz_flags})

foreach(format gguf onnx)
  add_executable(${format}_fuzz EXCLUDE_FROM_ALL tests/fuzz/${format}_fuzz.cc)
  target_link_libraries(${format}_fuzz PRIVATE fuzz_objects lmn_flags Threads::Threads)
  set(corpus ${CMAKE_CURRENT_BINARY_DIR}/fuzz_${format}_corpus)
  add_custom_target(fuzz_${format}
    COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/tests/fuzz/make_${format}_corpus.py ${corpus}
    COMMAND $<TARGET_FILE:${format}_fuzz> -max_total_time=${LMN_FUZZ_SECONDS} -max_len=16384 -rss_limit_mb=512
            -malloc_limit_mb=256 -timeout=5 -print_final_stats=1 ${corpus}
    DEPENDS ${format}_fuzz
    VERBATIM)  # without USES_TERMINAL, so that both run at once
endforeach()

# Any bytes as a model that is imported, optimised and run: session_fuzz. Kernels are taken as they are.
file(GLOB_RECURSE session_sources CONFIGURE_DEPENDS cpp/graph/*.cc cpp/models/onnx/*.cc cpp/ops/*.cc cpp/plan/*.cc)
add_executable(session_fuzz EXCLUDE_FROM_ALL tests/fuzz/session_fuzz.cc ${session_sources}
  $<TARGET_OBJECTS:lmn_cpu> $<TARGET_OBJECTS:lmn_memory> $<TARGET_OBJECTS:lmn_parallel>)
set_target_properties(session_fuzz PROPERTIES UNITY_BUILD OFF)  # files of several rooms
target_link_libraries(session_fuzz PRIVATE fuzz_objects lmn_flags Threads::Threads)
set(corpus ${CMAKE_CURRENT_BINARY_DIR}/fuzz_session_corpus)
add_custom_target(fuzz_session
  COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/tests/fuzz/make_onnx_corpus.py ${corpus}
  COMMAND ${CMAKE_COMMAND} -E copy ${CMAKE_CURRENT_SOURCE_DIR}/tests/onnx/relu_linear.onnx ${corpus}
  COMMAND $<TARGET_FILE:session_fuzz> -max_total_time=${LMN_FUZZ_SECONDS} -max_len=16384 -rss_limit_mb=1024
          -malloc_limit_mb=512 -timeout=5 -print_final_stats=1 ${corpus}
  DEPENDS session_fuzz
  VERBATIM)
