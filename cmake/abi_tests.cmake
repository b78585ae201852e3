# SPDX-License-Identifier: Apache-2.0
#
# Gates and tests of the C ABI: what may include what, what is exported and how it is laid out, what has changed since the
# baseline, whether an installed tree can be used, the abuse tests, and the clients in C and C++ (tests/abi/run.py has all
# languages). Executables see the library as a client does: through include/ and the shared library.
find_package(Python3 3.9 REQUIRED COMPONENTS Interpreter)
set(lmn_python ${Python3_EXECUTABLE})

add_test(NAME abi_layers COMMAND ${lmn_python} ${PROJECT_SOURCE_DIR}/cmake/check_layers.py)
add_test(NAME abi_header
         COMMAND ${lmn_python} ${PROJECT_SOURCE_DIR}/cmake/check_header.py ${CMAKE_C_COMPILER} ${CMAKE_CXX_COMPILER})
add_test(NAME abi_layout
         COMMAND ${lmn_python} ${PROJECT_SOURCE_DIR}/tests/abi/make_layout_test.py --check ${CMAKE_C_COMPILER})
add_test(NAME abi_diff COMMAND ${lmn_python} ${PROJECT_SOURCE_DIR}/tests/abi/abidiff_test.py ${CMAKE_C_COMPILER})

if(TARGET lmnative)
  set(sanitized "")
  if(LMN_SANITIZE)
    set(sanitized --sanitized)
  endif()
  add_test(NAME abi_symbols
           COMMAND ${lmn_python} ${PROJECT_SOURCE_DIR}/cmake/check_symbols.py $<TARGET_FILE:lmnative> ${sanitized})

  file(GLOB sources CONFIGURE_DEPENDS tests/abi/abuse/*.cc)
  add_executable(abi_abuse EXCLUDE_FROM_ALL tests/unit/testing.cc ${sources})
  target_include_directories(abi_abuse PRIVATE tests/unit tests/abi/abuse)
  target_compile_definitions(abi_abuse PRIVATE LMN_TEST_ONNX="${PROJECT_SOURCE_DIR}/tests/onnx/relu_linear.onnx")
  target_link_libraries(abi_abuse PRIVATE lmnative lmn_test_flags Threads::Threads)
  add_test(NAME abi_abuse COMMAND abi_abuse)
  if(LMN_SANITIZE STREQUAL "thread")  # of the abuse tests those that have threads on purpose
    add_executable(session_threads EXCLUDE_FROM_ALL tests/unit/testing.cc tests/abi/abuse/abuse.cc
      tests/abi/abuse/session_threads_test.cc)
    target_include_directories(session_threads PRIVATE tests/unit tests/abi/abuse)
    target_link_libraries(session_threads PRIVATE lmnative lmn_test_flags Threads::Threads)
    add_test(NAME threads_sessions COMMAND session_threads)
  endif()

  add_executable(abi_layout_test EXCLUDE_FROM_ALL tests/abi/layout_test.c)
  add_executable(abi_steady_state EXCLUDE_FROM_ALL tests/abi/steady_state_test.c)
  foreach(name abi_layout_test abi_steady_state)
    target_compile_options(${name} PRIVATE -Wall -Wextra -Wpedantic -Wshadow $<$<BOOL:${LMN_WERROR}>:-Werror>)
    target_link_libraries(${name} PRIVATE lmnative)
  endforeach()
  add_test(NAME abi_steady_state COMMAND abi_steady_state)
  set_tests_properties(abi_steady_state PROPERTIES SKIP_RETURN_CODE 77)

  set(flags "")
  if(LMN_SANITIZE)
    # GCC warns of uninitialised values in code that sanitizers have rewritten (its manual says so).
    set(flags "--flags=-fsanitize=${LMN_SANITIZE} -fno-sanitize-recover=all -O0 -g1 -Wno-maybe-uninitialized")
  else()
    add_test(NAME abi_install
             COMMAND ${lmn_python} ${PROJECT_SOURCE_DIR}/tests/abi/install_test.py ${PROJECT_BINARY_DIR}
                     ${CMAKE_COMMAND} ${CMAKE_C_COMPILER} ${PROJECT_VERSION} ${LMN_ABI_VERSION})
  endif()
  add_test(NAME abi_clients
           COMMAND ${lmn_python} ${PROJECT_SOURCE_DIR}/tests/abi/run.py --library ${PROJECT_BINARY_DIR}/liblmnative.so
                   --build ${PROJECT_BINARY_DIR}/abi_clients --only c,cpp ${flags})
  set_tests_properties(abi_clients PROPERTIES
                       ENVIRONMENT "CC=${CMAKE_C_COMPILER};CXX=${CMAKE_CXX_COMPILER}")

  # The library itself is a dependency: tests run what was built last.
  add_custom_target(abi_tests DEPENDS lmnative abi_abuse abi_layout_test abi_steady_state)
  list(APPEND lmn_test_executables abi_tests)
endif()
