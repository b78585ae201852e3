# SPDX-License-Identifier: Apache-2.0
#
# The fence around kernels of newer instruction sets (cpp/cpu/kernels/isa.h): an object compiled with such flags defines one
# global symbol, its table, and no weak one, so that the linker can never take an inline function from it.
# Usage: cmake -DNM=nm -DOBJECTS="a.o;b.o" -P check_fence.cmake
set(checked 0)
foreach(object IN LISTS OBJECTS)
  if(NOT object MATCHES "kernels/(avx2|avx512|amx|amx_emulated|neon|neon_dotprod|neon_i8mm)\\.cc")
    continue()
  endif()
  set(set ${CMAKE_MATCH_1})
  execute_process(COMMAND ${NM} --defined-only ${object} OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
  string(REPLACE "\n" ";" symbols "${symbols}")
  set(global "")
  foreach(line IN LISTS symbols)
    if(line MATCHES "^[0-9a-f]+ ([WwVvuiA-Z]) (.*)$")
      list(APPEND global "${CMAKE_MATCH_1} ${CMAKE_MATCH_2}")
    endif()
  endforeach()
  if(global STREQUAL "")
    continue()  # a set of another architecture
  endif()
  list(FILTER global EXCLUDE REGEX "__odr_asan|DW\\.ref\\.")  # what sanitizers add
  string(LENGTH "${set}" length)
  if(NOT global MATCHES "^[BDR] _ZN3lmn3cpu${length}${set}8kKernelsE$")
    message(FATAL_ERROR "${object}: defines global or weak symbols beside its table: ${global}")
  endif()
  math(EXPR checked "${checked} + 1")
endforeach()
if(checked EQUAL 0)
  message(FATAL_ERROR "no object of an instruction set among: ${OBJECTS}")
endif()
message(STATUS "${checked} objects checked")
