// SPDX-License-Identifier: Apache-2.0
//
// Exports of lmnative/server.h: shares of handles for the server, which knows the C ABI only.
#include "server/server.h"

#include "capi/engine_handle.h"
#include "capi/handles.h"
#include "capi/options.h"
#include "capi/session_object.h"
#include "server/reply.h"

struct lmn_server {
  std::unique_ptr<lmn::server::Server> object;
  lmn::capi::Process process;
};

namespace lmn::capi {
namespace {

Status to_status(server::Failure failure) {
  if (!failure.failed()) return {};
  return Status(static_cast<Code>(failure.status), std::move(failure.message));
}

// The handle, checked: not NULL, not inherited through fork.
Status check(const lmn_server* server) {
  LMN_REQUIRE_ONE(server);
  return server->process.check("server");
}

}  // namespace
}  // namespace lmn::capi

using namespace lmn::capi;  // NOLINT: the exports below are its only users

extern "C" {

lmn_status lmn_reply_text_set(lmn_reply* reply, const char* text, uint64_t bytes, lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(reply);
    if (bytes > 0) LMN_REQUIRE_ONE(text);
    reply->text.assign(bytes > 0 ? text : "", static_cast<size_t>(bytes));
    return {};
  });
}

lmn_status lmn_reply_ids_set(lmn_reply* reply, const int32_t* ids, uint64_t count,
                             lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(reply);
    if (count > 0) LMN_REQUIRE_ONE(ids);
    reply->ids.assign(ids, ids + count);
    return {};
  });
}

lmn_status lmn_server_create(const lmn_server_options* options, lmn_server** server,
                             lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(server);
    lmn_server_options given;
    LMN_RETURN_IF_ERROR(read_options(options, "lmn_server_options", &given));
    LMN_RETURN_IF_ERROR(check_flags(given.flags, LMN_SERVER_NO_PAGE, "lmn_server_options.flags"));
    LMN_RETURN_IF_ERROR(check_reserved(given.reserved, "lmn_server_options.reserved"));
    auto handle = std::make_unique<lmn_server>();
    LMN_RETURN_IF_ERROR(to_status(lmn::server::Server::create(given, &handle->object)));
    *server = handle.release();
    return {};
  });
}

lmn_status lmn_server_stop(lmn_server* server, uint64_t grace_ns, lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_RETURN_IF_ERROR(check(server));
    if (server->object->stop(grace_ns)) return {};
    return lmn::error(lmn::Code::kTimeout,
                      "requests were cancelled that had not ended within the grace");
  });
}

void lmn_server_destroy(lmn_server* server) {
  if (server == nullptr) return;
  guard_destroy([&] {
    // In a child of fork() the threads do not exist: what they own is left alone.
    if (!server->process.is_here()) {
      server->object->close_in_child();
      (void)server->object.release();
    }
    delete server;
  });
}

lmn_status lmn_server_engine_add(lmn_server* server, const lmn_engine* engine,
                                 const lmn_served_options* options, lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_RETURN_IF_ERROR(check(server));
    LMN_REQUIRE_ONE(engine);
    LMN_RETURN_IF_ERROR(engine->process.check("engine"));
    lmn_served_options given;
    LMN_RETURN_IF_ERROR(read_options(options, "lmn_served_options", &given));
    LMN_RETURN_IF_ERROR(check_reserved(given.reserved, "lmn_served_options.reserved"));
    LMN_ASSIGN_OR_RETURN(std::unique_ptr<lmn_engine> share, share_engine(*engine));
    auto model = std::make_unique<lmn_model>();
    model->object = engine->built.model;
    return to_status(server->object->add_engine(
        lmn::server::EngineHandle(share.release()), lmn::server::ModelHandle(model.release()),
        given.name == nullptr ? std::string() : given.name));
  });
}

lmn_status lmn_server_session_add(lmn_server* server, const lmn_session* session,
                                  const lmn_embedding_options* options, lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_RETURN_IF_ERROR(check(server));
    LMN_REQUIRE_ONE(session);
    LMN_REQUIRE_ONE(options);
    lmn_embedding_options given;
    LMN_RETURN_IF_ERROR(read_options(options, "lmn_embedding_options", &given));
    LMN_RETURN_IF_ERROR(check_flags(given.flags, LMN_EMBEDDING_RAW, "lmn_embedding_options.flags"));
    std::unique_ptr<lmn_session> share = share_session(*session);
    lmn::server::TokenizerHandle tokenizer;
    if (given.tokenizer != nullptr) tokenizer.reset(new lmn_tokenizer(*given.tokenizer));
    return to_status(server->object->add_session(lmn::server::SessionHandle(share.release()),
                                                 std::move(tokenizer), given));
  });
}

lmn_status lmn_server_model_remove(lmn_server* server, const char* name, lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_RETURN_IF_ERROR(check(server));
    LMN_REQUIRE_ONE(name);
    return to_status(server->object->remove(name));
  });
}

lmn_status lmn_server_info_get(const lmn_server* server, lmn_server_info* info, lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_RETURN_IF_ERROR(check(server));
    LMN_RETURN_IF_ERROR(check_output(info, "info", "lmn_server_info"));
    write_output(server->object->info(), info);
    return {};
  });
}

}  // extern "C"
