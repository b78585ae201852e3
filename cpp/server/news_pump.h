// SPDX-License-Identifier: Apache-2.0
//
// NewsPump: reads an engine's descriptor on thread 0 and brings the tags of requests that have news
// to the threads they belong to.
#pragma once

#include <boost/asio/posix/stream_descriptor.hpp>
#include <memory>
#include <vector>

#include "server/models.h"

namespace lmn::server {

class Server;

class NewsPump : public std::enable_shared_from_this<NewsPump> {
 public:
  NewsPump(Server& server, std::shared_ptr<ServedEngine> engine);
  ~NewsPump();

  Failure start();  // thread 0; so below
  void stop();
  const ServedEngine* engine() const { return engine_.get(); }

 private:
  void arm();
  void drain();

  Server& server_;
  std::shared_ptr<ServedEngine> engine_;
  boost::asio::posix::stream_descriptor descriptor_;  // the engine's: never closed here
  std::vector<std::vector<uint64_t>> for_threads_;
  bool stopped_ = false;
};

}  // namespace lmn::server
