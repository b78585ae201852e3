# SPDX-License-Identifier: Apache-2.0
# -O1 and line tables: half the time to compile of -O2 -g, and the reports lose nothing.
if(LMN_SANITIZE)
  add_compile_options(-fsanitize=${LMN_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -O1 -g1)
  add_link_options(-fsanitize=${LMN_SANITIZE})
endif()
