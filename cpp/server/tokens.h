// SPDX-License-Identifier: Apache-2.0
//
// Texts to tokens and back, by a served engine's or session's tokenizer. Any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/handles.h"

namespace lmn::server {

// Longer texts are tokenised on the helper thread: this much takes about a millisecond.
inline constexpr size_t kLongTextBytes = 64 << 10;

// `special`: the text of control tokens becomes those tokens. `bos`: LMN_DEFAULT, LMN_YES, LMN_NO.
Failure encode(const lmn_tokenizer* tokenizer, std::string_view text, bool special, uint32_t bos,
               std::vector<int32_t>* ids);
Failure decode(const lmn_tokenizer* tokenizer, std::span<const int32_t> ids, std::string* text);

// Calls call(buffer, capacity, &count, err) by the rule of tokenizer.h, first with room for
// `guess`.
template <typename Container, typename Call>
Failure filled(Container* out, size_t guess, Call&& call) {
  out->resize(guess);
  for (;;) {
    size_t count = 0;
    Failure failure =
        attempt([&](lmn_error** err) { return call(out->data(), out->size(), &count, err); });
    const bool again = failure.status == LMN_BUFFER_TOO_SMALL && count > out->size();
    out->resize(again || !failure.failed() ? count : 0);
    if (!again) return failure;
  }
}

}  // namespace lmn::server
