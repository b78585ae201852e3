// SPDX-License-Identifier: Apache-2.0
//
// Sockets that are listened on, and who accepts from them: thread 0, which deals the connections
// out.
#pragma once

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "server/handles.h"

namespace lmn::server {

class Server;
struct Config;

struct ListeningSocket {
  int descriptor = -1;
  bool is_unix = false;
};

struct Listening {
  std::vector<ListeningSocket> sockets;
  std::string address;  // "http://127.0.0.1:8080" or "unix:/run/lmnative.sock"
  uint32_t port = 0;
  uint64_t device = 0, inode = 0;  // of the UNIX socket in its folder
};

// Opens what the configuration asks for. A failure names the address and the reason.
Failure open_listening(const Config& config, Listening* out);

// Takes the UNIX socket out of its folder, unless something else has its place by now.
void remove_unix_socket(const Config& config, const Listening& listening);

// One socket's accepting. Everything on thread 0.
class Acceptor {
 public:
  Acceptor(Server& server, ListeningSocket socket);
  void arm();
  void close();

 private:
  void accept_some();
  void retry_later();

  Server& server_;
  const bool is_unix_;
  boost::asio::posix::stream_descriptor descriptor_;
  boost::asio::steady_timer pause_;
  bool armed_ = false;
};

}  // namespace lmn::server
