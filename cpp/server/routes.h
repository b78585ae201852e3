// SPDX-License-Identifier: Apache-2.0
//
// The handlers of all endpoints. Each answers the connection's request, at once or by a Work; what
// it throws is the answer (answer_with).
#pragma once

#include <string_view>

#include "server/json.h"
#include "server/models.h"
#include "server/server.h"

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

// The served engine that a request names, or the only model where it names none. ApiError: there is
// no such model, or it is no engine.
std::shared_ptr<ServedEngine> engine_for(Server& server, const Fields& fields);
std::shared_ptr<ServedModel> model_for(Server& server, const Fields& fields);

}  // namespace lmn::server
