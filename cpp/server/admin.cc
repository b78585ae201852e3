// SPDX-License-Identifier: Apache-2.0
//
// /admin: models come and go while the server runs.
#include <algorithm>
#include <limits>
#include <map>

#include "server/routes.h"
#include "server/utf8.h"

namespace lmn::server {
namespace {

constexpr int64_t kMaxU32 = std::numeric_limits<uint32_t>::max();

lmn_engine_options read_engine_options(const Fields& fields) {
  auto out = sized<lmn_engine_options>();
  const auto number = [&](std::string_view name, int64_t most) {
    return fields.integer(name, 0, most).value_or(0);
  };
  out.threads = static_cast<int32_t>(number("threads", 1024));
  out.context_tokens = static_cast<uint32_t>(number("context_tokens", kMaxU32));
  out.kv_tokens = static_cast<uint32_t>(number("kv_tokens", kMaxU32));
  out.max_sequences = static_cast<uint32_t>(number("max_sequences", 16384));
  out.queue_capacity = static_cast<uint32_t>(number("queue_capacity", 1 << 20));
  out.activation_bits = static_cast<uint32_t>(number("activation_bits", 16));
  const std::string_view kv = fields.text("kv_type").value_or("f16");
  out.kv_type = kv == "f16" ? LMN_KV_F16 : kv == "f32" ? LMN_KV_F32 : LMN_KV_Q8_0;
  if (kv != "f16" && kv != "f32" && kv != "q8_0")
    throw bad_field("kv_type", "is " + json_quoted(kv) + "; it must be f16, f32 or q8_0");
  if (out.activation_bits != 0 && out.activation_bits != 8 && out.activation_bits != 16)
    throw bad_field("activation_bits", "must be 8 or 16");
  return out;
}

// Whether a library has such a device, the load finds out; what is no name of one is refused here.
std::string read_device(const Fields& fields) {
  const std::string_view device = fields.text("device").value_or("cpu");
  const std::string_view number = device.substr(std::min<size_t>(device.size(), 5));
  const bool numbered = device.starts_with("cuda:") && !number.empty() && number.size() <= 3 &&
                        number.find_first_not_of("0123456789") == std::string_view::npos;
  if (device == "cpu" || device == "cuda" || numbered) return std::string(device);
  throw bad_field("device", "is " + json_quoted(device) + "; it must be cpu, cuda or cuda:N");
}

}  // namespace

void get_admin_models(Server& server, Connection& connection) {
  std::string out = R"({"data":[)";
  const auto begin = [&](const std::string& quoted_name) {
    if (out.back() == '}') out += ',';
    out += R"({"name":)" + quoted_name;
  };
  for (const auto& model : server.models().all()) {
    begin(model->quoted_name);
    out += R"(,"state":"ready"})";
  }
  for (const auto& [name, load] : server.models().loads()) {
    begin(json_quoted(name));
    if (load.failed) {
      out += R"(,"state":"failed","error":)";
      append_quoted(&out, lossy(load.error));
    } else {
      out += R"(,"state":"loading","progress":)";
      append_number(&out, load.progress);
    }
    out += '}';
  }
  connection.respond(200, kJson, out + "]}");
}

void post_admin_models(Server& server, Connection& connection) {
  const json::value body = parse_body(connection.request().body(), {});
  const Fields fields(body.get_object());
  const auto path = fields.text("model");
  if (!path) throw bad_field("model", "is missing", "missing_required_parameter");
  if (path->empty() || path->size() > 4096 || path->find('\0') != std::string_view::npos)
    throw bad_field("model", "must be a path of 1 to 4096 bytes, or a known name");
  const auto name = fields.text("name");
  if (name) {
    if (const Failure failure = check_name(*name); failure.failed())
      throw ApiError(400, failure.message, "name", "invalid_value");
  }
  const lmn_engine_options options = read_engine_options(fields);
  const std::string device = read_device(fields);
  std::string served;
  const Failure failure =
      server.load(std::string(*path), std::string(name.value_or("")), options, device, &served);
  if (failure.failed()) {
    ApiError error = api_error(failure);
    if (error.status == 400 && !served.empty()) error.code = "name_taken";
    throw error;
  }
  connection.respond(202, kJson, R"({"name":)" + json_quoted(served) + R"(,"state":"loading"})");
}

void delete_admin_model(Server& server, Connection& connection) {
  const Failure failure = server.remove(path_tail(connection, "/admin/models/"));
  if (failure.failed()) {
    ApiError error = api_error(failure);
    error.code = "model_not_found";
    throw error;
  }
  connection.respond(204, {}, {});
}

}  // namespace lmn::server
