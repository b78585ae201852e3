# SPDX-License-Identifier: Apache-2.0
#
# Boost's headers, 1.81 or newer, for the room server: the system's, or those of the PyPI package cmeel-boost, which
# `pip install .` brings by itself. LMN_BOOST_INCLUDE is the folder that holds boost/.
set(lmn_oldest_boost 108100)

function(lmn_check_boost folder found)
  set(${found} FALSE PARENT_SCOPE)
  if(EXISTS ${folder}/boost/version.hpp AND EXISTS ${folder}/boost/json/src.hpp)
    file(STRINGS ${folder}/boost/version.hpp line REGEX "^#define BOOST_VERSION [0-9]+$")
    string(REGEX MATCH "[0-9]+$" version "${line}")
    if(version GREATER_EQUAL lmn_oldest_boost)
      set(${found} TRUE PARENT_SCOPE)
    endif()
  endif()
endfunction()

# Where the cmeel-boost of an interpreter has them; ARGN are options for it.
function(lmn_boost_of python list)
  set(code "import importlib.metadata as m; print(m.distribution('cmeel-boost').locate_file('cmeel.prefix/include'), end='')")
  execute_process(COMMAND ${python} ${ARGN} -c "${code}" OUTPUT_VARIABLE folder ERROR_QUIET RESULT_VARIABLE failure)
  if(failure EQUAL 0)
    list(APPEND ${list} ${folder})
    set(${list} ${${list}} PARENT_SCOPE)
  endif()
endfunction()

lmn_check_boost("${LMN_BOOST_INCLUDE}" found)  # what an earlier run found may be gone: pip builds in a place of its own
if(NOT found)
  set(candidates)
  # The tree's own first, which stays the same from build to build; -I: not what pip puts before it.
  lmn_boost_of(${PROJECT_SOURCE_DIR}/.venv/bin/python candidates -I)
  foreach(prefix IN LISTS CMAKE_PREFIX_PATH CMAKE_SYSTEM_PREFIX_PATH)
    list(APPEND candidates ${prefix}/include)
  endforeach()
  foreach(python IN ITEMS $ENV{VIRTUAL_ENV}/bin/python ${Python_EXECUTABLE} ${Python3_EXECUTABLE} ${PYTHON_EXECUTABLE}
                          python3)
    lmn_boost_of(${python} candidates)
  endforeach()
  foreach(folder IN LISTS candidates)
    lmn_check_boost(${folder} found)
    if(found)
      set(LMN_BOOST_INCLUDE ${folder} CACHE PATH "Folder that holds boost/, 1.81 or newer" FORCE)
      break()
    endif()
  endforeach()
endif()
lmn_check_boost("${LMN_BOOST_INCLUDE}" found)
if(NOT found)
  message(FATAL_ERROR "The HTTP server needs Boost's headers, 1.81 or newer. One of: pip install --no-deps cmeel-boost; "
                      "apt install libboost1.81-dev (Debian 12) or libboost-dev (Debian 13); -DLMN_BOOST_INCLUDE=FOLDER")
endif()

add_library(lmn_boost INTERFACE)
target_include_directories(lmn_boost SYSTEM INTERFACE ${LMN_BOOST_INCLUDE})
# Asio's and JSON's own code is compiled once, in cpp/server/boost_sources.cc.
target_compile_definitions(lmn_boost INTERFACE BOOST_ASIO_SEPARATE_COMPILATION BOOST_ASIO_NO_DEPRECATED BOOST_JSON_NO_LIB
  BOOST_CONTAINER_NO_LIB BOOST_ASIO_DISABLE_VISIBILITY BOOST_BEAST_USE_STD_STRING_VIEW)
if(LMN_SANITIZE STREQUAL "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(lmn_boost INTERFACE -Wno-tsan)  # Asio's fences, beside the locks that order its queues
endif()
