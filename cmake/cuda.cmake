# SPDX-License-Identifier: Apache-2.0
#
# The CUDA device: lmn_cuda_kernels (cuda/kernels/**/*.cu, by nvcc) and lmn_cuda (the rest of cuda/, by the C++ compiler with
# the toolkit's headers), part of the library and of whatever links its rooms. The runtime is linked statically and loads the
# driver at the first call: the library starts where there is none. LMN_HAS_CUDA tells cpp/capi/devices.cc.
# LMN_CUDA is ON, OFF, or AUTO: built where a toolkit is found that can be used, which one line of the output says.
set(lmn_oldest_cuda 12.4)

# Sets lmn_cuda_missing to why there can be no CUDA device here; empty: there can, and CMAKE_CUDA_COMPILER is known.
macro(lmn_find_cuda)
  set(lmn_cuda_missing "")
  if(CMAKE_CROSSCOMPILING)
    set(lmn_cuda_missing "this is a build for another machine")
  elseif(LMN_ROOMS)
    set(lmn_cuda_missing "only some rooms are built (LMN_ROOMS)")
  elseif(LMN_SANITIZE)
    set(lmn_cuda_missing "the driver does not run under a sanitizer; conformance_simt runs the kernels there")
  else()
    # A compiler that was named counts, as with other languages: -DCMAKE_CUDA_COMPILER, then CUDACXX.
    find_program(LMN_NVCC NAMES "${CMAKE_CUDA_COMPILER}" "$ENV{CUDACXX}" nvcc
                 HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda /opt/cuda PATH_SUFFIXES bin)
    set(elsewhere "PATH, in CUDA_HOME or /usr/local/cuda")
    foreach(variable IN ITEMS CUDA_HOME CUDA_PATH)
      set(home "$ENV{${variable}}")
      if(home AND NOT EXISTS "${home}/bin/nvcc")
        set(elsewhere "PATH or in /usr/local/cuda, and ${variable}=${home} has no bin/nvcc")
        if(LMN_NVCC AND NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
          message(WARNING "${variable}=${home} has no bin/nvcc: ${LMN_NVCC} is taken")
        endif()
      endif()
    endforeach()
    set(version "")
    if(LMN_NVCC)
      execute_process(COMMAND ${LMN_NVCC} --version OUTPUT_VARIABLE version ERROR_QUIET RESULT_VARIABLE failure)
      string(REGEX MATCH "release ([0-9]+[.][0-9]+)" version "${version}")
      set(version "${CMAKE_MATCH_1}")
    endif()
    if(NOT LMN_NVCC)
      set(lmn_cuda_missing "no nvcc on the ${elsewhere}")
    elseif(NOT failure EQUAL 0)
      set(lmn_cuda_missing "${LMN_NVCC} does not run (result of --version: ${failure})")
    elseif(NOT version)
      set(lmn_cuda_missing "${LMN_NVCC} --version names no release")
    elseif(version VERSION_LESS lmn_oldest_cuda)
      set(lmn_cuda_missing "${LMN_NVCC} is of version ${version}, ${lmn_oldest_cuda} is the oldest that will do")
    else()
      if(NOT DEFINED CMAKE_CUDA_HOST_COMPILER AND NOT DEFINED ENV{CUDAHOSTCXX})
        set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
      endif()
      set(CMAKE_CUDA_COMPILER ${LMN_NVCC} CACHE FILEPATH "CUDA compiler")
      if(NOT LMN_CUDA_WORKS STREQUAL "${LMN_NVCC} ${version} ${CMAKE_CXX_COMPILER}")
        # With this C++ compiler, which may be newer than the toolkit knows: not an error where nobody asked for CUDA.
        set(probe ${PROJECT_BINARY_DIR}/CMakeFiles/lmn_cuda_probe)
        file(WRITE ${probe}.cu "#include <cuda_runtime.h>\n#include <vector>\n__global__ void probe() {}\n"
                               "int main() { probe<<<1, 1>>>(); return std::vector<int>(1)[0]; }\n")
        execute_process(COMMAND ${LMN_NVCC} -ccbin ${CMAKE_CUDA_HOST_COMPILER} -std=c++20 -c ${probe}.cu -o ${probe}.o
                        OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE failure)
        if(failure EQUAL 0)
          set(LMN_CUDA_WORKS "${LMN_NVCC} ${version} ${CMAKE_CXX_COMPILER}" CACHE INTERNAL "What was tried")
        else()
          string(REGEX MATCH "[^\n]*error[^\n]*" line "${output}")
          set(lmn_cuda_missing "${LMN_NVCC} ${version} does not work with ${CMAKE_CUDA_HOST_COMPILER}: ${line}")
        endif()
      endif()
    endif()
  endif()
endmacro()

if(NOT LMN_CUDA MATCHES "^(ON|OFF|AUTO)$")
  message(FATAL_ERROR "LMN_CUDA=${LMN_CUDA}: ON, OFF or AUTO")
endif()
if(LMN_CUDA STREQUAL "OFF")
  return()
endif()
lmn_find_cuda()
if(lmn_cuda_missing AND LMN_CUDA STREQUAL "ON")
  message(FATAL_ERROR
    "LMN_CUDA=ON: ${lmn_cuda_missing}. It takes a CUDA toolkit ${lmn_oldest_cuda} or newer (nvcc and the runtime's headers "
    "and static library: developer.nvidia.com/cuda-downloads, or Debian's nvidia-cuda-toolkit where that is new enough), "
    "found on the PATH, by CUDA_HOME or by -DCMAKE_CUDA_COMPILER=/path/to/nvcc. LMN_CUDA=AUTO does without.")
elseif(lmn_cuda_missing)
  message(STATUS "CUDA device: not built, ${lmn_cuda_missing}")
  return()
endif()

# Real code for these where the toolkit knows them, and PTX of the newest: the driver compiles that for what comes later.
execute_process(COMMAND ${LMN_NVCC} --list-gpu-arch OUTPUT_VARIABLE known COMMAND_ERROR_IS_FATAL ANY)
set(architectures)
foreach(architecture IN ITEMS 80 90 100 120)
  if(known MATCHES "compute_${architecture}\n")
    list(APPEND architectures ${architecture}-real)
    set(newest ${architecture})
  endif()
endforeach()
list(APPEND architectures ${newest}-virtual)
set(LMN_CUDA_ARCHITECTURES "${architectures}" CACHE STRING
    "What the CUDA kernels are compiled for, as CMAKE_CUDA_ARCHITECTURES has it: 90-real is code, 120-virtual is PTX")
include(cuda_architectures)
lmn_check_cuda_architectures("${LMN_CUDA_ARCHITECTURES}" "${known}")
set(CMAKE_CUDA_ARCHITECTURES ${LMN_CUDA_ARCHITECTURES})
# What ptxas says of each kernel's resources goes into a file beside the object, for cmake/cuda_resources.py.
set(CMAKE_CUDA_COMPILER_LAUNCHER sh ${PROJECT_SOURCE_DIR}/cmake/cuda_compile.sh ${CMAKE_CXX_COMPILER_LAUNCHER})
enable_language(CUDA)
if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25.1 does not know it of newer compilers
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)
set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
set(CMAKE_CUDA_RUNTIME_LIBRARY None)  # it is named below, for every language's linker
find_package(CUDAToolkit ${lmn_oldest_cuda} REQUIRED QUIET)
list(JOIN LMN_CUDA_ARCHITECTURES " " architectures)
message(STATUS "CUDA device: built with nvcc ${CMAKE_CUDA_COMPILER_VERSION} (${LMN_NVCC}) for ${architectures}")

file(GLOB_RECURSE sources CONFIGURE_DEPENDS cuda/kernels/*.cu)
add_library(lmn_cuda_kernels OBJECT ${sources})
target_include_directories(lmn_cuda_kernels PRIVATE ${PROJECT_SOURCE_DIR} cpp)
# The order and the rounding of operations are part of the contract (cuda/README.md, What kernels keep), so nothing is contracted.
target_compile_options(lmn_cuda_kernels PRIVATE
  --expt-relaxed-constexpr -fmad=false -Xcompiler=-Wall,-Wextra,-ffp-contract=off,-fno-semantic-interposition
  "SHELL:-Xfatbin -compress-all" "SHELL:-Xptxas -v,-warn-spills" "SHELL:--threads 2")
if(LMN_WERROR)
  target_compile_options(lmn_cuda_kernels PRIVATE "SHELL:-Werror all-warnings" -Xcompiler=-Werror)
endif()

file(GLOB_RECURSE sources CONFIGURE_DEPENDS cuda/kernels/*.cc cuda/core/*.cc)
add_library(lmn_cuda OBJECT ${sources})
target_include_directories(lmn_cuda PUBLIC ${PROJECT_SOURCE_DIR} cpp)
target_link_libraries(lmn_cuda PUBLIC CUDA::cudart_static PRIVATE lmn_flags)
if(LMN_CUDA_NVTX)
  target_compile_definitions(lmn_cuda PRIVATE LMN_CUDA_NVTX)
endif()
list(APPEND lmn_objects lmn_cuda lmn_cuda_kernels)
target_link_libraries(lmn_capi PUBLIC lmn_cuda)
target_compile_definitions(lmn_flags INTERFACE LMN_LARGE_TLS)  # cpp/memory/thread_slots.h
set_property(SOURCE cpp/capi/devices.cc APPEND PROPERTY COMPILE_DEFINITIONS LMN_HAS_CUDA)
