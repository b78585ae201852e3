# SPDX-License-Identifier: Apache-2.0
#
# libFuzzer targets (Clang with its compiler-rt only), included when LMN_BUILD_FUZZERS is on:
#   CC=clang-14 CXX=clang++-14 cmake -S . -B build/fuzz -G Ninja -DLMN_BUILD_FUZZERS=ON
#   ninja -C build/fuzz fuzz_gguf
# runs gguf_fuzz for LMN_FUZZ_SECONDS, from the seeds of make_corpus.py and what earlier runs added to them, in
# build/fuzz/fuzz_gguf_corpus. A finding ends with a failure and a file crash-* in the build folder, which
# `gguf_fuzz FILE` repeats.
# The sources under test are compiled again here, with the fuzzer's instrumentation: the rooms' objects stay as they are.
if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "LMN_BUILD_FUZZERS needs Clang: configure with -DCMAKE_CXX_COMPILER=clang++")
endif()
set(LMN_FUZZ_SECONDS 60 CACHE STRING "Seconds that each fuzz_* target runs")
find_package(Python3 REQUIRED COMPONENTS Interpreter)

file(GLOB_RECURSE fuzz_sources CONFIGURE_DEPENDS cpp/core/*.cc cpp/formats/*.cc)
add_executable(gguf_fuzz EXCLUDE_FROM_ALL tests/fuzz/gguf_fuzz.cc ${fuzz_sources})
target_include_directories(gguf_fuzz PRIVATE cpp tests/unit)
target_link_libraries(gguf_fuzz PRIVATE lmn_flags)
set(fuzz_flags -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -g)
target_compile_options(gguf_fuzz PRIVATE ${fuzz_flags})
target_link_options(gguf_fuzz PRIVATE ${fuzz_flags})

set(fuzz_corpus ${CMAKE_CURRENT_BINARY_DIR}/fuzz_gguf_corpus)
add_custom_target(fuzz_gguf
  COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/tests/fuzz/make_corpus.py ${fuzz_corpus}
  COMMAND $<TARGET_FILE:gguf_fuzz> -max_total_time=${LMN_FUZZ_SECONDS} -max_len=16384 -rss_limit_mb=512
          -malloc_limit_mb=256 -timeout=5 -print_final_stats=1 ${fuzz_corpus}
  DEPENDS gguf_fuzz
  USES_TERMINAL VERBATIM)
