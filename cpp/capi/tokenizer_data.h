// SPDX-License-Identifier: Apache-2.0
//
// The tokenizer that a GGUF file describes (keys tokenizer.ggml.* and tokenizer.chat_template).
// formats reads metadata without knowing what it means, text knows nothing of files: here the two
// meet.
#pragma once

#include <memory>

#include "core/status.h"
#include "formats/gguf.h"
#include "text/tokenizer.h"

namespace lmn::capi {

// NOT_FOUND or CORRUPT names file and key; UNSUPPORTED a tokenizer this version does not know.
Result<std::shared_ptr<const text::Tokenizer>> build_tokenizer(const formats::GgufModel& file);

}  // namespace lmn::capi
