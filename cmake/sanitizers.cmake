# SPDX-License-Identifier: Apache-2.0
# -O1 and line tables: half the time to compile of -O2 -g, and the reports lose nothing. Operators of general tensors, which
# are many templates (cpu_isa.cmake), and tests (warnings.cmake) take half of that again with -O0.
# Of the undefined behaviours, a null pointer is not looked for: AddressSanitizer sees it as well, at half the time to compile.
if(LMN_SANITIZE)
  add_compile_options(-fsanitize=${LMN_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -O1 -g1)
  add_link_options(-fsanitize=${LMN_SANITIZE})
  if(LMN_SANITIZE MATCHES undefined)
    add_compile_options(-fno-sanitize=null)
  endif()
endif()
