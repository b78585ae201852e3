// SPDX-License-Identifier: Apache-2.0
//
// Which handler answers what, and who may ask.
#include "server/routes.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "server/utf8.h"

namespace lmn::server {
namespace {

enum class Access { kOpen, kKey, kAdmin };

struct Route {
  std::string_view method;
  std::string_view path;  // with a '/' at its end: all that begins with it, and has more
  Access access;
  void (*handler)(Server&, Connection&);
};

constexpr Route kRoutes[] = {
    {"POST", "/v1/chat/completions", Access::kKey, post_chat_completions},
    {"POST", "/v1/completions", Access::kKey, post_completions},
    {"POST", "/v1/embeddings", Access::kKey, post_embeddings},
    {"GET", "/v1/models", Access::kKey, get_models},
    {"GET", "/v1/models/", Access::kKey, get_model},
    {"POST", "/tokenize", Access::kKey, post_tokenize},
    {"POST", "/detokenize", Access::kKey, post_detokenize},
    {"GET", "/health", Access::kOpen, get_health},
    {"GET", "/health/ready", Access::kOpen, get_health},
    {"GET", "/health/live", Access::kOpen, get_live},
    {"GET", "/metrics", Access::kKey, get_metrics},
    {"GET", "/stats", Access::kKey, get_stats},
    {"GET", "/version", Access::kOpen, get_version},
    {"GET", "/openapi.json", Access::kOpen, get_file},
    {"GET", "/", Access::kOpen, get_file},
    {"GET", "/page.css", Access::kOpen, get_file},
    {"GET", "/page.js", Access::kOpen, get_file},
    {"GET", "/page.svg", Access::kOpen, get_file},
    {"GET", "/admin/models", Access::kAdmin, get_admin_models},
    {"POST", "/admin/models", Access::kAdmin, post_admin_models},
    {"DELETE", "/admin/models/", Access::kAdmin, delete_admin_model},
};

bool matches(const Route& route, std::string_view path) {
  if (route.path == path) return true;
  return route.path.size() > 1 && route.path.ends_with('/') && path.size() > route.path.size() &&
         path.starts_with(route.path);
}

// HEAD is GET without the body.
std::string_view method_of(Connection& connection) {
  const std::string_view method = connection.request().method();
  return method == "HEAD" ? "GET" : method;
}

// The path of "/a?b" and of "http://host/a?b".
std::string_view path_of(std::string_view target) {
  if (!target.starts_with('/')) {
    const size_t scheme = target.find("://");
    if (scheme == std::string_view::npos) return target;  // "*", or nothing that there is
    const size_t slash = target.find_first_of("/?#", scheme + 3);
    if (slash == std::string_view::npos || target[slash] != '/') return "/";
    target.remove_prefix(slash);
  }
  return target.substr(0, target.find_first_of("?#"));
}

// Null: `methods` has those that there are for the path, if any.
const Route* find_route(std::string_view method, std::string_view path, std::string* methods) {
  for (const Route& route : kRoutes) {
    if (!matches(route, path)) continue;
    if (route.method == method) return &route;
    if (!methods->empty()) *methods += ", ";
    *methods += route.method;
    if (route.method == "GET") *methods += ", HEAD";
  }
  return nullptr;
}

// In a time that depends on the lengths alone.
bool same_secret(std::string_view given, std::string_view secret) {
  unsigned difference = given.size() == secret.size() ? 0u : 1u;
  for (size_t i = 0; i < given.size(); ++i) {
    difference |= static_cast<unsigned char>(given[i] ^ secret[i % secret.size()]);
  }
  return difference == 0;
}

bool is_one_of(std::string_view given, const std::vector<std::string>& secrets) {
  bool found = false;
  for (const std::string& secret : secrets) found |= same_secret(given, secret);
  return found;
}

void check_key(const Config& config, Connection& connection, Access access) {
  if (access == Access::kOpen) return;
  if (access == Access::kAdmin && config.admin_keys.empty()) {
    throw ApiError(404, "this server has no /admin: it was started without an admin key", {},
                   "not_found");
  }
  if (access == Access::kKey && config.api_keys.empty()) return;
  const std::string_view field = connection.request().header("Authorization");
  constexpr std::string_view kScheme = "bearer ";
  const bool bearer =
      field.size() > kScheme.size() &&
      std::equal(kScheme.begin(), kScheme.end(), field.begin(), [](char expected, char c) {
        return expected == (c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c);
      });
  if (!bearer) {
    throw ApiError(401, "an API key is needed: Authorization: Bearer KEY", {}, "invalid_api_key");
  }
  const std::string_view key = field.substr(kScheme.size());
  const bool admin = is_one_of(key, config.admin_keys);
  const bool user = is_one_of(key, config.api_keys);
  if (admin || (user && access == Access::kKey)) return;
  if (user) throw ApiError(403, "this needs an admin key", {}, "admin_key_required");
  throw ApiError(401, "the API key is not one of this server's", {}, "invalid_api_key");
}

bool is_local_name(std::string_view host) {
  const bool bracketed = host.starts_with('[');
  const std::string_view name =
      bracketed ? host.substr(0, host.find(']') + 1) : host.substr(0, host.find(':'));
  if (name == "localhost" || bracketed) return true;
  return !name.empty() && name.find_first_not_of("0123456789.") == std::string_view::npos;
}

// Browsers say from which page a request comes. Pages of elsewhere may use the server only where
// the configuration names them: else any page that a user visits could use a server on the user's
// own machine, also one that has its name point to this machine's address.
void check_origin(const Config& config, Connection& connection) {
  const std::string_view origin = connection.request().header("Origin");
  if (origin.empty()) return;
  const auto& allowed = config.cors_origins;
  if (std::find(allowed.begin(), allowed.end(), "*") != allowed.end()) {
    connection.allow_origin("*");
    return;
  }
  if (std::find(allowed.begin(), allowed.end(), origin) != allowed.end()) {
    connection.allow_origin(origin);
    return;
  }
  const std::string_view host = connection.request().header("Host");
  const size_t scheme = origin.find("://");
  const bool own = scheme != std::string_view::npos && origin.substr(scheme + 3) == host;
  if (own && (is_local_name(host) || !config.api_keys.empty())) return;
  throw ApiError(403,
                 "pages of " + lossy(origin.substr(0, 200)) +
                     " may not use this server; its operator can name them as a CORS origin",
                 {}, "origin_not_allowed");
}

// "application/json", perhaps with parameters, or nothing said.
void check_content_type(const HttpParser& request) {
  std::string_view type = request.header("Content-Type");
  type = type.substr(0, type.find(';'));
  while (type.ends_with(' ') || type.ends_with('\t')) type.remove_suffix(1);
  const bool is_json = std::equal(
      type.begin(), type.end(), kJson.begin(), kJson.end(),
      [](char c, char expected) { return (c >= 'A' && c <= 'Z' ? c + 32 : c) == expected; });
  if (!type.empty() && !is_json) {
    throw ApiError(415, "the body must be JSON: send Content-Type: application/json",
                   "Content-Type", "unsupported_media_type");
  }
  if (request.has_header("Content-Encoding")) {
    throw ApiError(415, "the body must not be compressed", "Content-Encoding",
                   "unsupported_media_type");
  }
}

bool is_preflight(Connection& connection) {
  return connection.request().method() == "OPTIONS" &&
         connection.request().has_header("Access-Control-Request-Method");
}

void answer_preflight(Server&, Connection& connection) {
  connection.respond(204, {}, {},
                     "Access-Control-Allow-Methods: GET, HEAD, POST, DELETE\r\n"
                     "Access-Control-Allow-Headers: *, Authorization, Content-Type\r\n"
                     "Access-Control-Max-Age: 600\r\n");
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// The route of a request that may take it.
const Route& check_route(const Config& config, Connection& connection) {
  std::string methods;
  const Route* const route = find_route(method_of(connection), connection.path(), &methods);
  if (route == nullptr && methods.empty()) {
    throw ApiError(404,
                   "there is no " + std::string(connection.path().substr(0, 200)) +
                       "; /openapi.json lists what there is",
                   {}, "not_found");
  }
  if (route == nullptr) {
    throw ApiError(405, std::string(connection.path()) + " takes " + methods, {},
                   "method_not_allowed");
  }
  check_key(config, connection, route->access);
  if (route->method == "POST") check_content_type(connection.request());
  return *route;
}

}  // namespace

void Server::check_header(Connection& connection) {
  try {
    connection.set_path(path_of(connection.request().target()));
    check_origin(config_, connection);
    if (is_preflight(connection)) {
      connection.set_handler(answer_preflight);
      return;
    }
    const Route& route = check_route(config_, connection);
    connection.set_handler(route.handler);
    if (route.method != "POST") return;
    if (stopping()) throw ApiError(503, "the server is stopping", {}, "stopping");
    if (counters_.requests.load(std::memory_order_relaxed) >= config_.max_requests) {
      throw ApiError(429,
                     "the server works on " + std::to_string(config_.max_requests) +
                         " requests, and takes no more at once",
                     {}, "too_many_requests");
    }
  } catch (const ApiError& error) {
    std::string fields;
    if (error.status == 405) {
      std::string methods;
      (void)find_route({}, connection.path(), &methods);
      fields = "Allow: " + methods + "\r\n";
    }
    connection.refuse(error, fields);
  }
}

void Server::dispatch(Connection& connection) {
  answer_with(connection, [&] { connection.handler()(*this, connection); });
}

std::string path_tail(const Connection& connection, std::string_view prefix) {
  const std::string_view tail = connection.path().substr(prefix.size());
  std::string out;
  for (size_t i = 0; i < tail.size(); ++i) {
    if (tail[i] != '%') {
      out += tail[i];
      continue;
    }
    const int high = i + 2 < tail.size() ? hex_digit(tail[i + 1]) : -1;
    const int low = i + 2 < tail.size() ? hex_digit(tail[i + 2]) : -1;
    if (high < 0 || low < 0)
      throw ApiError(400, "the path has a bad percent-encoding", {}, "bad_path");
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return out;
}

std::shared_ptr<ServedModel> model_for(Server& server, const std::optional<std::string>& name) {
  if (!name) {
    if (auto only = server.models().only()) return only;
    if (server.models().size() == 0)
      throw ApiError(503, "no model is served yet", "model", "no_model");
    throw ApiError(400, "several models are served: name one of /v1/models as 'model'", "model",
                   "missing_required_parameter");
  }
  if (auto model = server.models().find(*name)) return model;
  const auto loads = server.models().loads();
  if (const auto load = loads.find(*name); load != loads.end() && !load->second.failed)
    throw ApiError(503, "the model " + json_quoted(*name) + " is being loaded", "model",
                   "model_loading");
  throw ApiError(404,
                 "the model " + json_quoted(cut(*name, 255)) +
                     " is not served; /v1/models lists those that are",
                 "model", "model_not_found");
}

std::shared_ptr<ServedEngine> engine_for(Server& server, const std::optional<std::string>& name) {
  std::shared_ptr<ServedModel> model = model_for(server, name);
  if (auto engine = std::dynamic_pointer_cast<ServedEngine>(model)) return engine;
  throw ApiError(400, "the model " + model->quoted_name + " gives embeddings only", "model",
                 "model_not_supported");
}

}  // namespace lmn::server
