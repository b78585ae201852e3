// SPDX-License-Identifier: Apache-2.0
//
// What lmn_engine and lmn_request hold, and the translation of request options. An lmn_request does
// not keep its engine running: it holds its own share of what was delivered, so either may be
// destroyed first.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <memory>

#include "capi/engine_builder.h"
#include "capi/guard.h"
#include "engine/engine.h"
#include "lmnative/engine.h"
#include "memory/ledger.h"

namespace lmn::capi {

// The process a handle was made in. The engine's threads do not exist in a child of fork().
class Process {
 public:
  Status check(const char* what) const {
    if (::getpid() == pid_) return {};
    return error(
        Code::kClosed,
        "the %s was made by process %d and inherited through fork; make one in this process", what,
        static_cast<int>(pid_));
  }

 private:
  pid_t pid_ = ::getpid();
};

}  // namespace lmn::capi

struct lmn_engine {
  lmn::capi::BuiltEngine built;
  lmn::capi::Process process;
};

struct lmn_request {
  // Declared before `object`, so released after it: the engine writes to `logits` until the object
  // is gone.
  std::shared_ptr<lmn::memory::Ledger> ledger;  // of `booked`, which may outlive the engine
  std::shared_ptr<std::byte> logits;
  lmn::memory::LedgerEntry booked;  // the bytes of `logits`
  std::shared_ptr<lmn::engine::Request> object;
  uint64_t tag = 0;
  int32_t top_logprobs = 0;
  lmn::capi::Process process;

  // Of lmn_request_next, hence of one thread at a time.
  bool ended = false;  // the last chunk was handed out
};

namespace lmn::capi {

// Reads everything the options point to, tokenises the prompt, and queues the request.
Result<std::unique_ptr<lmn_request>> submit(const BuiltEngine& engine,
                                            const lmn_request_options& options);

}  // namespace lmn::capi
