# SPDX-License-Identifier: Apache-2.0
#
# What LMN_CUDA_ARCHITECTURES may be: of wrong ones nvcc would complain once for each file, and of some builds what fails
# on the GPU. As a script, for tests: cmake -DARCHITECTURES=LIST -DKNOWN=TEXT -P cuda_architectures.cmake

if(CMAKE_SCRIPT_MODE_FILE)
  cmake_minimum_required(VERSION 3.25)
endif()

# An error for the first of `architectures` that is none. `known`: what nvcc --list-gpu-arch says.
function(lmn_check_cuda_architectures architectures known)
  string(REGEX MATCHALL "[0-9]+" known "${known}")
  list(FILTER known EXCLUDE REGEX "^[0-7][0-9]$")
  list(SORT known COMPARE NATURAL)
  list(JOIN known ", " listed)
  set(oldest_of_a 90)
  set(oldest_of_f 100)
  set(wrong "it is empty")
  foreach(architecture IN LISTS architectures)
    string(REGEX MATCH "^([0-9]+)([af]?)(-real|-virtual)?$" whole "${architecture}")
    set(number "${CMAKE_MATCH_1}")
    set(oldest "0${oldest_of_${CMAKE_MATCH_2}}")
    if(architectures STREQUAL "native" OR (whole AND number IN_LIST known AND number GREATER_EQUAL oldest))
      set(wrong "")
    else()
      set(wrong "\"${architecture}\" is none")
      break()
    endif()
  endforeach()
  if(wrong)
    message(FATAL_ERROR
      "LMN_CUDA_ARCHITECTURES=${architectures}: ${wrong}. Valid are ${listed} (from 90 on with an a behind, from 100 on "
      "with an f), each as it is or with -real (code alone) or -virtual (PTX alone); or native by itself. -ULMN_CUDA_ARCHITECTURES takes what this toolkit knows")
  endif()
endfunction()

if(CMAKE_SCRIPT_MODE_FILE)
  lmn_check_cuda_architectures("${ARCHITECTURES}" "${KNOWN}")
endif()
