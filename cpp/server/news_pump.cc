// SPDX-License-Identifier: Apache-2.0
#include "server/news_pump.h"

#include <utility>

#include "server/server.h"

namespace lmn::server {

NewsPump::NewsPump(Server& server, std::shared_ptr<ServedEngine> engine)
    : server_(server),
      engine_(std::move(engine)),
      descriptor_(server.thread(0).io()),
      for_threads_(server.config().threads) {}

NewsPump::~NewsPump() { stop(); }

Failure NewsPump::start() {
  int32_t descriptor = -1;
  Failure failure = attempt([&](lmn_error** err) {
    return lmn_engine_descriptor_get(engine_->engine.get(), &descriptor, err);
  });
  if (failure.failed()) return failure;
  boost::system::error_code refused;
  descriptor_.assign(descriptor, refused);
  if (refused) return {LMN_IO_ERROR, "cannot wait for the engine: " + refused.message()};
  arm();
  return {};
}

void NewsPump::stop() {
  stopped_ = true;
  if (descriptor_.is_open()) (void)descriptor_.release();
}

void NewsPump::arm() {
  descriptor_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                         [self = shared_from_this()](boost::system::error_code failure) {
                           if (!failure && !self->stopped_) self->drain();
                         });
}

void NewsPump::drain() {
  constexpr size_t kTags = 256;
  uint64_t tags[kTags];
  size_t count;
  do {
    count = 0;
    if (lmn_engine_drain(engine_->engine.get(), tags, kTags, &count, nullptr) != LMN_OK) return;
    for (size_t i = 0; i < count; ++i) {
      const uint32_t thread = Slots::thread_of(tags[i]);
      if (thread == 0) {
        server_.thread(0).slots().deliver(tags[i]);
      } else if (thread < for_threads_.size()) {
        for_threads_[thread].push_back(tags[i]);
      }
    }
    if (stopped_) return;
  } while (count == kTags);
  for (uint32_t i = 1; i < for_threads_.size(); ++i) {
    if (for_threads_[i].empty()) continue;
    IoThread& thread = server_.thread(i);
    thread.post([&thread, news = std::exchange(for_threads_[i], {})] {
      for (const uint64_t tag : news) thread.slots().deliver(tag);
    });
  }
  arm();
}

}  // namespace lmn::server
