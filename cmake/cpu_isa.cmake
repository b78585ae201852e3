# SPDX-License-Identifier: Apache-2.0
#
# Instruction sets of the CPU kernels: cpp/cpu/kernels/<set>.cc is the only file compiled with that set's flags (the fence:
# cpp/cpu/kernels/isa.h). -O3 because these kernels rely on complete unrolling; the files are empty on other architectures.
# Under a sanitizer -O1: unrolled code full of checks takes the compiler minutes, and speed is not what such a build is for.
# The rest is compiled for the baseline. The loops of kernels of general tensors are written to become vectors, for which GCC
# must be told that nobody watches floating-point exceptions; values do not change.
if(TARGET lmn_cpu)
  target_compile_options(lmn_cpu PRIVATE -fno-trapping-math)
  if(LMN_SANITIZE)
    target_compile_options(lmn_cpu PRIVATE -O0 -fno-sanitize=alignment)  # a check of each access: a third of the time to compile
    target_compile_options(lmn_ops PRIVATE -O0)
    # All others are compared with it, thousands of times.
    set_source_files_properties(cpp/ops/reference.cc PROPERTIES COMPILE_OPTIONS -O1)
  endif()
  set_target_properties(lmn_cpu PROPERTIES UNITY_BUILD_BATCH_SIZE 4)  # they are many templates
  file(GLOB kernel_sources CONFIGURE_DEPENDS cpp/cpu/kernels/*.cc)
  set(kernels ${CMAKE_CURRENT_SOURCE_DIR}/cpp/cpu/kernels)
  # Kernels of tile registers in plain C++, for tests. Those who know of them are apart from the others, whose objects then serve
  # a build with tests and one without.
  set(emulation cpp/cpu/cpu_kernels.cc cpp/cpu/cpu_device.cc ${kernels}/amx_emulated.cc ${kernels}/scalar_tiles.cc)
  set_source_files_properties(${kernel_sources} ${emulation} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  if(LMN_BUILD_TESTS)
    set_property(SOURCE ${emulation} APPEND PROPERTY COMPILE_DEFINITIONS LMN_EMULATED_TARGETS)
  endif()
  if(LMN_SANITIZE)
    set(optimise -O1)
    set_source_files_properties(${kernels}/scalar.cc ${kernels}/scalar_tiles.cc PROPERTIES COMPILE_OPTIONS -O1)
  else()
    set(optimise "$<$<NOT:$<CONFIG:Debug>>:-O3>")
    # All else is -O2 with what kernels of general tensors gain by of -O3. With the rest of it GCC 12 makes the library a tenth
    # larger, takes a fifth longer, and loops with conditions take longer on x86-64 (a maximum 3 times, softmax 1.3 times).
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_FLAGS_RELEASE MATCHES "-O3")
      target_compile_options(lmn_cpu PRIVATE
        "$<$<CONFIG:Release>:-O2;-ftree-vectorize;-fvect-cost-model=dynamic;-fpeel-loops;-funswitch-loops>")
      set_source_files_properties(${kernels}/scalar.cc ${kernels}/scalar_tiles.cc PROPERTIES COMPILE_OPTIONS "${optimise}")
    endif()
  endif()
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
    set_source_files_properties(${kernels}/avx2.cc PROPERTIES
      COMPILE_OPTIONS "${optimise};-mavx2;-mfma;-mf16c")
    # GCC 12 sees uninitialised values in its own avx512fintrin.h (GCC bug 105593).
    set(avx512 -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mprefer-vector-width=512
      "$<$<CXX_COMPILER_ID:GNU>:-Wno-uninitialized;-Wno-maybe-uninitialized>")
    set_source_files_properties(${kernels}/avx512.cc ${kernels}/amx_emulated.cc PROPERTIES
      COMPILE_OPTIONS "${optimise};${avx512}")
    # Nothing throws; the release of tiles is not to name the handler of C++, by a weak symbol.
    set_source_files_properties(${kernels}/amx.cc PROPERTIES
      COMPILE_OPTIONS "${optimise};${avx512};-mamx-tile;-mamx-int8;-fno-exceptions")
  elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
    set_source_files_properties(${kernels}/neon.cc PROPERTIES COMPILE_OPTIONS "${optimise}")
    set_source_files_properties(${kernels}/neon_dotprod.cc PROPERTIES
      COMPILE_OPTIONS "${optimise};-march=armv8.2-a+dotprod")
    set_source_files_properties(${kernels}/neon_i8mm.cc PROPERTIES
      COMPILE_OPTIONS "${optimise};-march=armv8.2-a+dotprod+i8mm")
  endif()
endif()
