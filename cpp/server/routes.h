// SPDX-License-Identifier: Apache-2.0
//
// The handlers of all endpoints. Each answers the connection's request, at once or by a Work; what
// it throws is the answer (answer_with).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "server/json.h"
#include "server/models.h"
#include "server/server.h"
#include "server/tokens.h"

namespace lmn::server {

// generation.cc
void post_chat_completions(Server& server, Connection& connection);
void post_completions(Server& server, Connection& connection);
// embeddings.cc
void post_embeddings(Server& server, Connection& connection);
// tokens.cc
void post_tokenize(Server& server, Connection& connection);
void post_detokenize(Server& server, Connection& connection);
// observe.cc
void get_models(Server& server, Connection& connection);
void get_model(Server& server, Connection& connection);
void get_health(Server& server, Connection& connection);
void get_live(Server& server, Connection& connection);
void get_metrics(Server& server, Connection& connection);
void get_stats(Server& server, Connection& connection);
void get_version(Server& server, Connection& connection);
void get_file(Server& server, Connection& connection);  // the page and openapi.json
// admin.cc
void get_admin_models(Server& server, Connection& connection);
void post_admin_models(Server& server, Connection& connection);
void delete_admin_model(Server& server, Connection& connection);

inline constexpr std::string_view kJson = "application/json";

// The part of the path behind `prefix`, percent-decoded.
std::string path_tail(const Connection& connection, std::string_view prefix);

// The served model that a request names, or the only one where it names none. ApiError: there is
// none such, or it is no engine.
std::shared_ptr<ServedModel> model_for(Server& server, const std::optional<std::string>& name);
std::shared_ptr<ServedEngine> engine_for(Server& server, const std::optional<std::string>& name);

// then(connection, read(fields of the body)), where `read` copies all that it needs. Long bodies
// are read on the helper thread.
template <typename Read, typename Then>
void read_body(Connection& connection, Read read, Then then) {
  std::string& body = connection.request().body();
  if (body.size() <= kLongTextBytes) {
    // Most bodies fit here, and then reading them allocates little else.
    unsigned char memory[4096];
    json::monotonic_resource storage(memory, sizeof memory);
    const json::value value = parse_body(body, &storage);
    then(connection, read(Fields(value.get_object())));
    return;
  }
  struct Parsed {
    std::string body;
    std::optional<decltype(read(std::declval<const Fields&>()))> result;
    std::optional<ApiError> error;
  };
  run_on_helper(
      connection,
      [body = std::move(body), read]() mutable {
        Parsed out;
        try {
          const json::value value = parse_body(body, {});
          out.result = read(Fields(value.get_object()));
        } catch (const ApiError& error) {
          out.error = error;
        } catch (const std::bad_alloc&) {
          out.error = out_of_memory();
        }
        out.body = std::move(body);
        return out;
      },
      [then](Connection& still, Parsed parsed) {
        if (parsed.error) throw *parsed.error;
        still.request().body() = std::move(parsed.body);
        then(still, std::move(*parsed.result));
      });
}

}  // namespace lmn::server
