# SPDX-License-Identifier: Apache-2.0
# -O1 and line tables: half the time to compile of -O2 -g, and the reports lose nothing. Operators of general tensors, which
# are many templates (cpu_isa.cmake), and tests (warnings.cmake) take half of that again with -O0.
# Of the undefined behaviours, null pointers and addresses beyond an object are not looked for where they are computed:
# AddressSanitizer sees them when they are used, and without these checks everything compiles in half the time.
if(LMN_SANITIZE)
  add_compile_options(-fsanitize=${LMN_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -O1 -g1)
  # Executables that are not relocated are smaller by a quarter.
  add_link_options(-fsanitize=${LMN_SANITIZE} $<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-no-pie>)
  if(LMN_SANITIZE MATCHES undefined)
    add_compile_options(-fno-sanitize=null,pointer-overflow,object-size)
  endif()
endif()
