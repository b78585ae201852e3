// SPDX-License-Identifier: Apache-2.0
//
// Files that are part of the library: the page for people and the document of the API. Their bytes
// are those of the sources, as arrays that cmake/embed.cmake writes; which files, and under which
// names, is said where it is called.
#pragma once

#include <string_view>

namespace lmn::server {

// The bytes of a file, "page.css" for page/page.css; they live as long as the library. An empty
// view with a null pointer where there is no such file.
std::string_view embedded_file(std::string_view name) noexcept;

}  // namespace lmn::server
