# SPDX-License-Identifier: Apache-2.0
#
# One executable per room from tests/unit/<room>/*_test.cc, each with the harness of tests/unit/testing.h, and one ctest
# entry each. Tests link the rooms' objects, to see hidden symbols, from an archive, to take those alone that they use: under a
# sanitizer all of them are 250 MB. The archive is a thin one, which names the objects.
set(CMAKE_CXX_ARCHIVE_CREATE "<CMAKE_AR> qcT <TARGET> <LINK_FLAGS> <OBJECTS>")
set(CMAKE_CXX_ARCHIVE_APPEND "<CMAKE_AR> qT <TARGET> <LINK_FLAGS> <OBJECTS>")
set(lmn_golden LMN_GOLDEN=${PROJECT_SOURCE_DIR}/tests/golden/smollm2_135m_q4_1.json)
add_library(lmn_archive STATIC EXCLUDE_FROM_ALL)
target_link_libraries(lmn_archive PUBLIC ${lmn_objects})
foreach(room IN LISTS lmn_rooms)
  file(GLOB sources CONFIGURE_DEPENDS tests/unit/${room}/*_test.cc)
  if(NOT sources OR NOT TARGET lmn_${room})
    continue()
  endif()
  set(name ${room}_tests)
  add_executable(${name} EXCLUDE_FROM_ALL tests/unit/testing.cc ${sources})
  target_include_directories(${name} PRIVATE tests/unit cpp include)
  target_link_libraries(${name} PRIVATE lmn_archive lmn_test_flags Threads::Threads)
  add_test(NAME unit_${room} COMMAND ${name})
  set_tests_properties(unit_${room} PROPERTIES ENVIRONMENT ${lmn_golden})
  list(APPEND lmn_test_executables ${name})
endforeach()
if(TARGET formats_tests)  # their two formats have the same words
  set_target_properties(formats_tests PROPERTIES UNITY_BUILD_MODE GROUP)
  foreach(format gguf onnx)
    file(GLOB sources tests/unit/formats/${format}_*.cc)
    set_source_files_properties(${sources} PROPERTIES UNITY_GROUP ${format})
  endforeach()
endif()
add_custom_target(unit_tests DEPENDS ${lmn_test_executables})

# libuninstrumented.a: what the fuzzers take as it is (cmake/fuzz.cmake).
if(TARGET lmn_cpu AND TARGET lmn_memory AND TARGET lmn_parallel AND TARGET lmn_ops)
  add_library(uninstrumented STATIC EXCLUDE_FROM_ALL $<TARGET_OBJECTS:lmn_cpu> $<TARGET_OBJECTS:lmn_memory>
    $<TARGET_OBJECTS:lmn_parallel> $<TARGET_OBJECTS:lmn_ops>)
endif()

# sampler_bench: what choosing a token costs.
if(TARGET lmn_engine)
  add_executable(sampler_bench EXCLUDE_FROM_ALL bench/micro/sampler.cc)
  target_include_directories(sampler_bench PRIVATE cpp)
  target_link_libraries(sampler_bench PRIVATE ${lmn_objects} lmn_flags Threads::Threads)
endif()
