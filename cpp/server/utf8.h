// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace lmn::server {

// Appends `bytes`; each maximal ill-formed part becomes U+FFFD (Unicode 15, section 3.9).
void append_lossy(std::string* out, std::string_view bytes);
std::string lossy(std::string_view bytes);

// The beginning of well-formed text: whole characters of at most so many bytes.
std::string_view cut(std::string_view text, size_t bytes);

}  // namespace lmn::server
