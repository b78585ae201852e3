// SPDX-License-Identifier: Apache-2.0
#include "server/listener.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "server/access_log.h"
#include "server/server.h"

namespace lmn::server {
namespace {

constexpr int kBacklog = 4096;       // the system's own limit holds, where it is lower
constexpr int kAcceptedAtOnce = 64;  // then others on the thread have their turn
constexpr auto kRetry = std::chrono::milliseconds(100);

std::string errno_text(int number) {
  char buffer[256];
  return ::strerror_r(number, buffer, sizeof buffer);  // GNU's
}

Failure io_failure(const std::string& address, const std::string& why) {
  return {LMN_IO_ERROR, "cannot listen on " + address + ": " + why};
}

Failure open_unix(const std::string& path, uint32_t mode, Listening* out) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return {LMN_INVALID_ARGUMENT, "the path of a UNIX socket has at most " +
                                      std::to_string(sizeof address.sun_path - 1) +
                                      " bytes: " + path};
  }
  memcpy(address.sun_path, path.data(), path.size());
  const auto* const generic = reinterpret_cast<const sockaddr*>(&address);
  struct stat found {};
  if (::lstat(path.c_str(), &found) == 0) {
    if (!S_ISSOCK(found.st_mode)) return io_failure(path, "there is something else than a socket");
    // One that nobody listens on is left over from a server that ended.
    const int probe = ::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (probe < 0) return io_failure(path, errno_text(errno));
    const int why = ::connect(probe, generic, sizeof address) == 0 ? EISCONN : errno;
    ::close(probe);
    // EAGAIN: its backlog is full.
    if (why == EISCONN || why == EAGAIN) return io_failure(path, "another process listens there");
    if (why != ECONNREFUSED) return io_failure(path, errno_text(why));
    (void)::unlink(path.c_str());
  }
  const int descriptor = ::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return io_failure(path, errno_text(errno));
  if (::bind(descriptor, generic, sizeof address) != 0 || ::chmod(path.c_str(), mode) != 0 ||
      ::listen(descriptor, kBacklog) != 0) {
    const int why = errno;
    ::close(descriptor);
    return io_failure(path, errno_text(why));
  }
  if (::lstat(path.c_str(), &found) == 0) {
    out->device = found.st_dev;
    out->inode = found.st_ino;
  }
  out->sockets.push_back({descriptor, true});
  out->address = "unix:" + path;
  return {};
}

uint32_t port_of(int descriptor) {
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  if (::getsockname(descriptor, reinterpret_cast<sockaddr*>(&bound), &size) != 0) return 0;
  return ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port
                                           : reinterpret_cast<sockaddr_in*>(&bound)->sin_port);
}

void set_port(sockaddr* address, uint32_t port) {
  const auto network = htons(static_cast<uint16_t>(port));
  if (address->sa_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(address)->sin6_port = network;
  } else {
    reinterpret_cast<sockaddr_in*>(address)->sin_port = network;
  }
}

// Every address that the name stands for, all with the same port.
Failure open_tcp(const std::string& host, uint32_t port, Listening* out) {
  const bool v6 = host.find(':') != std::string::npos;
  const std::string shown = v6 ? "[" + host + "]" : host;
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  const std::string service = std::to_string(port);
  const int failure = ::getaddrinfo(host.c_str(), service.c_str(), &hints, &found);
  if (failure != 0) return io_failure(shown, ::gai_strerror(failure));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, ::freeaddrinfo);
  int why = EADDRNOTAVAIL;
  out->port = port;
  for (addrinfo* at = found; at != nullptr; at = at->ai_next) {
    const int descriptor =
        ::socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
    if (descriptor < 0) {
      why = errno;
      continue;
    }
    const int on = 1;
    (void)::setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (at->ai_family == AF_INET6)
      (void)::setsockopt(descriptor, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    set_port(at->ai_addr, out->port);
    if (::bind(descriptor, at->ai_addr, at->ai_addrlen) != 0 ||
        ::listen(descriptor, kBacklog) != 0) {
      why = errno;
      ::close(descriptor);
      if (why == EADDRINUSE) break;
      continue;
    }
    out->port = port_of(descriptor);
    out->sockets.push_back({descriptor, false});
  }
  if (out->sockets.empty() || why == EADDRINUSE) {
    for (const ListeningSocket& socket : out->sockets) ::close(socket.descriptor);
    out->sockets.clear();
    return io_failure(shown + ":" + service,
                      errno_text(why) + (why == EADDRINUSE ? "; choose another port" : ""));
  }
  out->address = "http://" + shown + ":" + std::to_string(out->port);
  return {};
}

std::string name_of(const sockaddr_storage& peer) {
  char text[INET6_ADDRSTRLEN] = "";
  if (peer.ss_family == AF_INET) {
    const auto* const v4 = reinterpret_cast<const sockaddr_in*>(&peer);
    ::inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text);
    return std::string(text) + ":" + std::to_string(ntohs(v4->sin_port));
  }
  if (peer.ss_family == AF_INET6) {
    const auto* const v6 = reinterpret_cast<const sockaddr_in6*>(&peer);
    ::inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof text);
    return "[" + std::string(text) + "]:" + std::to_string(ntohs(v6->sin6_port));
  }
  return "unix";
}

}  // namespace

Failure open_listening(const Config& config, Listening* out) {
  return config.unix_path.empty() ? open_tcp(config.host, config.port, out)
                                  : open_unix(config.unix_path, config.unix_mode, out);
}

void remove_unix_socket(const Config& config, const Listening& listening) {
  struct stat found {};
  if (config.unix_path.empty() || ::lstat(config.unix_path.c_str(), &found) != 0) return;
  if (found.st_dev == listening.device && found.st_ino == listening.inode)
    (void)::unlink(config.unix_path.c_str());
}

Acceptor::Acceptor(Server& server, ListeningSocket socket)
    : server_(server),
      is_unix_(socket.is_unix),
      descriptor_(server.thread(0).io(), socket.descriptor),
      pause_(server.thread(0).io()) {}

void Acceptor::close() {
  boost::system::error_code ignored;
  descriptor_.close(ignored);
  pause_.cancel();
}

void Acceptor::arm() {
  if (armed_ || !descriptor_.is_open() || !server_.has_room()) return;
  armed_ = true;
  descriptor_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                         [this](boost::system::error_code failure) {
                           if (failure) return;  // closed
                           armed_ = false;
                           accept_some();
                         });
}

void Acceptor::accept_some() {
  for (int i = 0; i < kAcceptedAtOnce && server_.has_room(); ++i) {
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    const int descriptor =
        ::accept4(descriptor_.native_handle(), reinterpret_cast<sockaddr*>(&peer), &size,
                  SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (descriptor < 0) {
      // No descriptors, no memory: the rest waits in the backlog until there are some.
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
        return retry_later();
      if (errno == EAGAIN) break;
      continue;  // that client is gone already
    }
    const int on = 1;
    if (!is_unix_) (void)::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    server_.deal_out(descriptor, server_.access_log().enabled() ? name_of(peer) : std::string());
  }
  arm();
}

void Acceptor::retry_later() {
  pause_.expires_after(kRetry);
  pause_.async_wait([this](boost::system::error_code failure) {
    if (!failure) arm();
  });
}

}  // namespace lmn::server
