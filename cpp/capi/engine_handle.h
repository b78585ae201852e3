// SPDX-License-Identifier: Apache-2.0
//
// What lmn_engine and lmn_request hold, and the translation of request options. An lmn_request does
// not keep its engine running: it holds its own share of what was delivered, so either may be
// destroyed first.
#pragma once

#include <cstdint>
#include <memory>

#include "capi/engine_builder.h"
#include "capi/guard.h"
#include "engine/engine.h"
#include "lmnative/engine.h"
#include "memory/ledger.h"
#include "parallel/fork_mark.h"

namespace lmn::capi {

// The process a handle was made in. The engine's threads do not exist in a child of fork(). Copies
// are of the same process, and cost no page of their own.
class Process {
 public:
  Process() : mark_(std::make_shared<const parallel::ForkMark>()) {}

  bool is_here() const { return mark_->is_here(); }
  Status check(const char* what) const {
    if (is_here()) return {};
    return error(
        Code::kClosed,
        "the %s was made by process %d and inherited through fork; make one in this process", what,
        static_cast<int>(mark_->pid()));
  }

 private:
  std::shared_ptr<const parallel::ForkMark> mark_;
};

}  // namespace lmn::capi

// One of the handles that share an engine. What is submitted through it announces to its own queue.
struct lmn_engine {
  lmn::capi::BuiltEngine built;
  std::shared_ptr<lmn::engine::NewsQueue> news;
  lmn::capi::Process process;
};

struct lmn_request {
  explicit lmn_request(const lmn::capi::Process& of_engine) : process(of_engine) {}
  ~lmn_request() {
    if (object != nullptr) object->close();  // while all that a running callback uses is still here
  }

  // Of `booked`, which may outlive the engine. The engine writes to `logits` until `object` is
  // closed.
  std::shared_ptr<lmn::memory::Ledger> ledger;
  std::shared_ptr<std::byte> logits;
  lmn::memory::LedgerEntry booked;  // the bytes of `logits`
  std::shared_ptr<lmn::engine::Request> object;
  uint64_t tag = 0;
  int32_t top_logprobs = 0;
  lmn::capi::Process process;

  lmn_request_fn callback = nullptr;
  void* callback_user = nullptr;
};

namespace lmn::capi {

// Reads everything the options point to, tokenises the prompt, and queues the request. *request is
// set before the first callback, and unchanged on failure.
Status submit(const lmn_engine& engine, const lmn_request_options& options, lmn_request** request);

// Another handle on the same engine, which lives until the last of its handles is destroyed; a
// handle that is destroyed before takes nothing with it, and its requests go on. IO: the system
// refuses a descriptor; CLOSED in a forked child.
Result<std::unique_ptr<lmn_engine>> share_engine(const lmn_engine& engine);

}  // namespace lmn::capi
