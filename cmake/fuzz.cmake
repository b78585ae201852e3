# SPDX-License-Identifier: Apache-2.0
#
# libFuzzer targets (Clang with its compiler-rt only), included when LMN_BUILD_FUZZERS is on:
#   CC=clang-14 CXX=clang++-14 cmake -S . -B build/fuzz -G Ninja -DLMN_BUILD_FUZZERS=ON
#   ninja -C build/fuzz fuzz_gguf fuzz_onnx fuzz_session fuzz_server
# runs gguf_fuzz, onnx_fuzz, session_fuzz and server_fuzz for LMN_FUZZ_SECONDS each, from the seeds of
# make_FORMAT_corpus.py and what earlier runs added to them, in build/fuzz/fuzz_FORMAT_corpus. A finding ends with a failure
# and a file crash-* in the build folder, which `FORMAT_fuzz FILE` repeats. LMN_FUZZ_SEED=0 draws another sequence each time.
# The sources under test are compiled again here, with the fuzzer's instrumentation: the rooms' objects stay as they are.
if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "LMN_BUILD_FUZZERS needs Clang: configure with -DCMAKE_CXX_COMPILER=clang++")
endif()
set(LMN_FUZZ_SECONDS 60 CACHE STRING "Seconds that each fuzz_* target runs")
set(LMN_FUZZ_SEED 1 CACHE STRING "Where the random numbers of the fuzz_* targets begin; 0: somewhere else each time")
set(LMN_FUZZ_KERNELS "" CACHE FILEPATH
  "libuninstrumented.a of another build folder: its kernels, and its operators without instrumentation")
set(LMN_FUZZ_LIBRARY "" CACHE FILEPATH "liblmnative.so of another build folder: what the server serves")
find_package(Python3 REQUIRED COMPONENTS Interpreter)

set(fuzz_flags -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)

# Sources with the fuzzer's instrumentation, the files of each folder joined where CMAKE_UNITY_BUILD says so.
function(add_fuzz_objects name)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${ARGN})
  add_library(${name} OBJECT EXCLUDE_FROM_ALL ${sources})
  target_include_directories(${name} PUBLIC cpp tests/unit)
  target_link_libraries(${name} PRIVATE lmn_flags)
  target_compile_options(${name} PUBLIC ${fuzz_flags})
  target_link_options(${name} PUBLIC ${fuzz_flags})
endfunction()

# fuzz_FORMAT: makes the seeds and runs FORMAT_fuzz, whose inputs take so much memory and time at most. Without USES_TERMINAL, so that several run at once.
function(add_fuzzer format seeds megabytes seconds objects)
  add_executable(${format}_fuzz EXCLUDE_FROM_ALL tests/fuzz/${format}_fuzz.cc)
  target_link_libraries(${format}_fuzz PRIVATE ${objects} lmn_flags Threads::Threads)
  set(corpus ${CMAKE_CURRENT_BINARY_DIR}/fuzz_${format}_corpus)
  math(EXPR most_at_once "${megabytes} / 2")
  add_custom_target(fuzz_${format}
    COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/tests/fuzz/${seeds} ${corpus}
    COMMAND $<TARGET_FILE:${format}_fuzz> -max_total_time=${LMN_FUZZ_SECONDS} -max_len=16384
            -rss_limit_mb=${megabytes} -malloc_limit_mb=${most_at_once} -timeout=${seconds} -seed=${LMN_FUZZ_SEED}
            -verbosity=0 -print_final_stats=1 ${corpus}
    DEPENDS ${format}_fuzz
    VERBATIM)
endfunction()

add_fuzz_objects(fuzz_objects cpp/core/*.cc cpp/formats/*.cc)
add_fuzzer(gguf make_gguf_corpus.py 512 10 fuzz_objects)
add_fuzzer(onnx make_onnx_corpus.py 512 10 fuzz_objects)

# Any bytes as a model that is imported, optimised and run. Kernels are taken as they are.
add_fuzzer(session make_session_corpus.py 1024 10 fuzz_objects)
set(rooms graph models/onnx plan)
if(LMN_FUZZ_KERNELS)
  target_link_libraries(session_fuzz PRIVATE ${LMN_FUZZ_KERNELS})
else()
  list(APPEND rooms ops)
  target_sources(session_fuzz PRIVATE
    $<TARGET_OBJECTS:lmn_cpu> $<TARGET_OBJECTS:lmn_memory> $<TARGET_OBJECTS:lmn_parallel>)
endif()
foreach(room IN LISTS rooms)
  string(REPLACE / _ name fuzz_${room})
  add_fuzz_objects(${name} cpp/${room}/*.cc)
  target_sources(session_fuzz PRIVATE $<TARGET_OBJECTS:${name}>)
endforeach()

# Any bytes from a client of the HTTP server, whose room knows the rest of the library by the C ABI only.
add_fuzz_objects(server_fuzz_objects cpp/server/*.cc)
target_sources(server_fuzz_objects PRIVATE ${PROJECT_BINARY_DIR}/embedded/embedded.cc)
target_include_directories(server_fuzz_objects PUBLIC include)
target_link_libraries(server_fuzz_objects PUBLIC lmn_boost)
add_fuzzer(server make_server_corpus.py 1024 40 server_fuzz_objects)
target_link_libraries(server_fuzz PRIVATE $<IF:$<BOOL:${LMN_FUZZ_LIBRARY}>,${LMN_FUZZ_LIBRARY},lmnative>)
