// SPDX-License-Identifier: Apache-2.0
#include "engine/request.h"

#include <utility>

#include "engine/request_core.h"

namespace lmn::engine {

Request::Request(std::shared_ptr<RequestCore> core) : core_(std::move(core)) {}

Request::~Request() { close(); }

void Request::close() {
  core_->cancel();
  core_->leave();
  // The logits are the caller's memory, and about to go.
  if (core_->options().logits != nullptr) (void)core_->wait(-1);
}

Status Request::next(int64_t timeout_ns, Chunk* chunk) { return core_->next(timeout_ns, chunk); }
News Request::take(int64_t timeout_ns, Chunk* chunk, Status* failure) {
  return core_->take(timeout_ns, chunk, failure);
}
Status Request::wait(int64_t timeout_ns) { return core_->wait(timeout_ns); }
void Request::cancel() { core_->cancel(); }
RequestStats Request::stats() const { return core_->stats(); }
uint64_t Request::id() const { return core_->fixed().id; }

}  // namespace lmn::engine
