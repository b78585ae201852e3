# SPDX-License-Identifier: Apache-2.0
if(LMN_SANITIZE)
  add_compile_options(-fsanitize=${LMN_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g)
  add_link_options(-fsanitize=${LMN_SANITIZE})
endif()
