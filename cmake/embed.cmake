# SPDX-License-Identifier: Apache-2.0
#
# lmn_embed(TARGET FILE...): makes files part of a target that reads them by lmn::server::embedded_file (cpp/server/embedded.h),
# each under its name without its folder. The array of each is written at build time, when the file changed, by this same
# file run as a script: cmake -DINPUT=... -DOUTPUT=... -P embed.cmake.
if(CMAKE_SCRIPT_MODE_FILE)
  file(READ "${INPUT}" bytes HEX)
  if(bytes STREQUAL "")
    message(FATAL_ERROR "embed: ${INPUT} is empty")
  endif()
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," bytes "${bytes}")
  # Lines of 20 bytes: compilers and people alike dislike one of half a megabyte.
  string(REPEAT "'\\\\x[0-9a-f][0-9a-f]'," 20 row)
  string(REGEX REPLACE "(${row})" "\\1\n" bytes "${bytes}")
  file(WRITE "${OUTPUT}" "${bytes}\n")
  return()
endif()

set(LMN_EMBED_SCRIPT ${CMAKE_CURRENT_LIST_FILE})

function(lmn_embed target)
  set(folder ${PROJECT_BINARY_DIR}/embedded)
  set(arrays "")
  set(entries "")
  set(includes "")
  foreach(path IN LISTS ARGN)
    cmake_path(ABSOLUTE_PATH path BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
    cmake_path(GET path FILENAME name)
    string(MAKE_C_IDENTIFIER "${name}" identifier)
    set(array ${folder}/${name}.inc)
    add_custom_command(
      OUTPUT ${array}
      COMMAND ${CMAKE_COMMAND} -DINPUT=${path} -DOUTPUT=${array} -P ${LMN_EMBED_SCRIPT}
      DEPENDS ${path} ${LMN_EMBED_SCRIPT}
      COMMENT "Embedding ${name}"
      VERBATIM)
    list(APPEND includes ${array})
    string(APPEND arrays "constexpr char embedded_${identifier}[] = {\n#include \"${name}.inc\"\n};\n")
    string(APPEND entries "    {\"${name}\", {embedded_${identifier}, sizeof(embedded_${identifier})}},\n")
  endforeach()
  set(source ${folder}/embedded.cc)
  file(CONFIGURE OUTPUT ${source} @ONLY CONTENT [[
// Written by cmake/embed.cmake.
#include "server/embedded.h"

#include <utility>

namespace lmn::server {
namespace {

@arrays@
constexpr std::pair<std::string_view, std::string_view> kEmbedded[] = {
@entries@};

}  // namespace

std::string_view embedded_file(std::string_view name) noexcept {
  for (const auto& [key, bytes] : kEmbedded) {
    if (key == name) return bytes;
  }
  return {};
}

}  // namespace lmn::server
]])
  # The arrays are included by one file; dependencies found by the compiler come only after the first build.
  set_source_files_properties(${source} PROPERTIES OBJECT_DEPENDS "${includes}" SKIP_UNITY_BUILD_INCLUSION ON)
  target_sources(${target} PRIVATE ${source} ${includes})
endfunction()
