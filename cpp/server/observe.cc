// SPDX-License-Identifier: Apache-2.0
//
// What the server tells of itself: models, health, figures, the page.
#include <array>
#include <vector>

#include "server/clock.h"
#include "server/embedded.h"
#include "server/routes.h"
#include "server/utf8.h"

namespace lmn::server {
namespace {

void append_model(std::string* out, const ServedModel& model) {
  *out += R"({"id":)" + model.quoted_name + R"(,"object":"model","created":)";
  append_number(out, model.created_s);
  *out += R"(,"owned_by":"lmnative"})";
}

struct Figure {
  const char* name;
  uint64_t value;
};

// The counters of an engine, in the order of the answer.
std::vector<Figure> figures(const lmn_engine_stats& s) {
  return {{"threads", s.threads},
          {"context_tokens", s.context_tokens},
          {"waiting", s.waiting},
          {"running", s.running},
          {"max_sequences", s.max_sequences},
          {"queue_capacity", s.queue_capacity},
          {"queue_tokens", s.queue_tokens},
          {"queue_bytes", s.queue_bytes},
          {"kv_pages", s.kv_pages},
          {"kv_pages_used", s.kv_pages_used},
          {"kv_pages_cached", s.kv_pages_cached},
          {"kv_page_tokens", s.kv_page_tokens},
          {"layers", s.layers},
          {"device_layers", s.device_layers},
          {"submitted", s.submitted},
          {"finished", s.finished},
          {"cancelled", s.cancelled},
          {"failed", s.failed},
          {"rejected", s.rejected},
          {"prompt_tokens", s.prompt_tokens},
          {"generated_tokens", s.generated_tokens},
          {"steps", s.steps},
          {"prefix_lookup_tokens", s.prefix_lookup_tokens},
          {"prefix_hit_tokens", s.prefix_hit_tokens}};
}

// Those that only grow.
bool is_counter(std::string_view name) {
  constexpr std::string_view kCounters[] = {"submitted",        "finished", "cancelled",
                                            "failed",           "rejected", "prompt_tokens",
                                            "generated_tokens", "steps",    "prefix_lookup_tokens",
                                            "prefix_hit_tokens"};
  return std::find(std::begin(kCounters), std::end(kCounters), name) != std::end(kCounters);
}

std::vector<lmn_histogram> histograms(const ServedEngine& engine) {
  size_t count = 0;
  (void)lmn_engine_histogram_get(engine.engine.get(), nullptr, 0, &count, nullptr);
  std::vector<lmn_histogram> out(count);
  if (lmn_engine_histogram_get(engine.engine.get(), out.data(), out.size(), &count, nullptr) !=
      LMN_OK)
    out.clear();
  return out;
}

void append_field(std::string* out, const char* name, uint64_t value) {
  if (out->back() != '{') *out += ',';
  *out += '"';
  *out += name;
  *out += "\":";
  append_number(out, value);
}

void append_histogram(std::string* out, const lmn_histogram& h) {
  *out += '{';
  append_field(out, "count", h.count);
  append_field(out, "sum_ns", h.sum_ns);
  append_field(out, "p50_ns", h.p50_ns);
  append_field(out, "p90_ns", h.p90_ns);
  append_field(out, "p99_ns", h.p99_ns);
  append_field(out, "max_ns", h.max_ns);
  *out += '}';
}

std::vector<Figure> server_counters(const lmn_server_info& info, const Counters& counters) {
  return {{"connections", info.connections},
          {"requests", info.requests},
          {"accepted", info.accepted},
          {"answered", info.answered},
          {"refused", info.refused},
          {"failed", info.failed},
          {"aborted", info.aborted},
          {"log_lost", info.log_lost},
          {"bytes_out", counters.bytes_out.load(std::memory_order_relaxed)}};
}

// Prometheus ------------------------------------------------------------------------------------

// Text in quotes, escaped as its format asks: backslash, quote, line end.
std::string label(const ServedModel& model) {
  std::string out = "{model=\"";
  for (const char c : model.name) {
    if (c == '\\' || c == '"') out += '\\';
    out += c;
  }
  return out + "\"}";
}

void append_metric(std::string* out, const std::string& name, const char* type, const char* help) {
  *out += "# HELP " + name + ' ' + help + "\n# TYPE " + name + ' ' + type + '\n';
}

void append_sample(std::string* out, const std::string& name, const std::string& labels,
                   double value) {
  *out += name + labels + ' ';
  append_number(out, value);
  *out += '\n';
}

double seconds(uint64_t ns) { return static_cast<double>(ns) / 1e9; }

// Every fourth bucket: each power of two from 64 ns on.
void append_histogram_samples(std::string* out, const std::string& name, const std::string& labels,
                              const lmn_histogram& h) {
  const std::string inner = labels.empty() ? "" : labels.substr(1, labels.size() - 2) + ",";
  uint64_t below = 0;
  for (size_t i = 0; i < LMN_HISTOGRAM_BUCKETS; ++i) {
    below += h.buckets[i];
    const bool last = i + 1 == LMN_HISTOGRAM_BUCKETS;
    if (i % 4 != 0 || last) continue;
    const size_t next = i + 1;
    const uint64_t end = (4 + next % 4) << (next / 4 + 4);
    std::string bound;
    append_number(&bound, seconds(end));
    append_sample(out, name + "_bucket", "{" + inner + "le=\"" + bound + "\"}",
                  static_cast<double>(below));
  }
  append_sample(out, name + "_bucket", "{" + inner + "le=\"+Inf\"}", static_cast<double>(h.count));
  append_sample(out, name + "_sum", labels, seconds(h.sum_ns));
  append_sample(out, name + "_count", labels, static_cast<double>(h.count));
}

struct EngineFigures {
  std::string labels;
  std::vector<Figure> figures;
  std::vector<lmn_histogram> histograms;
};

std::vector<EngineFigures> engine_figures(Server& server) {
  std::vector<EngineFigures> out;
  for (const auto& model : server.models().all()) {
    const auto* const engine = dynamic_cast<const ServedEngine*>(model.get());
    if (engine == nullptr) continue;
    auto stats = sized<lmn_engine_stats>();
    if (lmn_engine_stats_get(engine->engine.get(), &stats, nullptr) != LMN_OK) continue;
    out.push_back({label(*model), figures(stats), histograms(*engine)});
  }
  return out;
}

}  // namespace

void get_models(Server& server, Connection& connection) {
  std::string out = R"({"object":"list","data":[)";
  bool first = true;
  for (const auto& model : server.models().all()) {
    if (!std::exchange(first, false)) out += ',';
    append_model(&out, *model);
  }
  connection.respond(200, kJson, out + "]}");
}

void get_model(Server& server, Connection& connection) {
  const std::string name = path_tail(connection, "/v1/models/");
  const auto model = server.models().find(name);
  if (model == nullptr) {
    throw ApiError(
        404,
        "the model " + json_quoted(lossy(name)) + " is not served; /v1/models lists those that are",
        "model", "model_not_found");
  }
  std::string out;
  append_model(&out, *model);
  connection.respond(200, kJson, out);
}

void get_health(Server& server, Connection& connection) {
  const char* state = server.stopping()             ? "stopping"
                      : server.models().size() == 0 ? "loading"
                                                    : "ok";
  const int status = std::string_view(state) == "ok" ? 200 : 503;
  connection.respond(status, kJson, std::string(R"({"status":")") + state + R"("})");
}

void get_live(Server&, Connection& connection) {
  connection.respond(200, kJson, R"({"status":"ok"})");
}

void get_version(Server&, Connection& connection) {
  auto info = sized<lmn_build_info>();
  (void)lmn_build_info_get(&info, nullptr);
  std::string out = R"({"version":)" + json_quoted(lmn_version()) + R"(,"abi_version":)";
  append_number(&out, uint64_t{lmn_abi_version()});
  out += R"(,"cpu_target":)" + json_quoted(info.cpu_target) + "}";
  connection.respond(200, kJson, out);
}

void get_stats(Server& server, Connection& connection) {
  std::string out = R"({"server":{"uptime_s":)";
  append_number(&out, static_cast<double>((now_ns() - server.begin_ns()) / 1'000'000) / 1000);
  for (const Figure& figure : server_counters(server.info(), server.counters()))
    append_field(&out, figure.name, figure.value);
  out += server.stopping() ? R"(,"stopping":true)" : R"(,"stopping":false)";
  lmn_histogram overhead;
  server.counters().overhead.read("overhead", &overhead);
  out += R"(,"overhead":)";
  append_histogram(&out, overhead);
  out += R"(},"models":[)";
  bool first = true;
  for (const auto& model : server.models().all()) {
    if (!std::exchange(first, false)) out += ',';
    out += R"({"name":)" + model->quoted_name;
    const auto* const engine = dynamic_cast<const ServedEngine*>(model.get());
    auto stats = sized<lmn_engine_stats>();
    if (engine == nullptr ||
        lmn_engine_stats_get(engine->engine.get(), &stats, nullptr) != LMN_OK) {
      out += R"(,"kind":"session"})";
      continue;
    }
    out += R"(,"kind":"engine")";
    for (const Figure& figure : figures(stats)) append_field(&out, figure.name, figure.value);
    out += R"(,"latency":{)";
    bool first_histogram = true;
    for (const lmn_histogram& histogram : histograms(*engine)) {
      if (!std::exchange(first_histogram, false)) out += ',';
      out += '"';
      out += histogram.name;
      out += "\":";
      append_histogram(&out, histogram);
    }
    out += "}}";
  }
  connection.respond(200, kJson, out + "]}");
}

void get_metrics(Server& server, Connection& connection) {
  std::string out;
  for (const Figure& figure : server_counters(server.info(), server.counters())) {
    const std::string_view name = figure.name;
    const bool gauge = name == "connections" || name == "requests";
    const std::string full = "lmnative_http_" + std::string(name) + (gauge ? "" : "_total");
    append_metric(&out, full, gauge ? "gauge" : "counter", "see lmn_server_info");
    append_sample(&out, full, {}, static_cast<double>(figure.value));
  }
  lmn_histogram overhead;
  server.counters().overhead.read("overhead", &overhead);
  append_metric(&out, "lmnative_http_overhead_seconds", "histogram",
                "request read to first byte of the answer, without the engine's time");
  append_histogram_samples(&out, "lmnative_http_overhead_seconds", {}, overhead);
  // A metric's samples come together, those of all models.
  const std::vector<EngineFigures> engines = engine_figures(server);
  if (!engines.empty()) {
    for (size_t i = 0; i < engines[0].figures.size(); ++i) {
      const std::string_view name = engines[0].figures[i].name;
      const bool counter = is_counter(name);
      const std::string full = "lmnative_engine_" + std::string(name) + (counter ? "_total" : "");
      append_metric(&out, full, counter ? "counter" : "gauge", "see lmn_engine_stats");
      for (const EngineFigures& engine : engines)
        append_sample(&out, full, engine.labels, static_cast<double>(engine.figures[i].value));
    }
    for (size_t i = 0; i < engines[0].histograms.size(); ++i) {
      const std::string full =
          std::string("lmnative_engine_") + engines[0].histograms[i].name + "_seconds";
      append_metric(&out, full, "histogram", "see lmn_engine_histogram_get");
      for (const EngineFigures& engine : engines) {
        if (i < engine.histograms.size())
          append_histogram_samples(&out, full, engine.labels, engine.histograms[i]);
      }
    }
  }
  connection.respond(200, "text/plain; version=0.0.4; charset=utf-8", out);
}

void get_file(Server& server, Connection& connection) {
  struct File {
    std::string_view path, name, type;
    bool page;
  };
  static constexpr File kFiles[] = {
      {"/", "index.html", "text/html; charset=utf-8", true},
      {"/page.css", "page.css", "text/css; charset=utf-8", true},
      {"/page.js", "page.js", "text/javascript; charset=utf-8", true},
      {"/page.svg", "page.svg", "image/svg+xml", true},
      {"/openapi.json", "openapi.json", kJson, false},
  };
  for (const File& file : kFiles) {
    if (file.path != connection.path() || (file.page && !server.config().page)) continue;
    connection.respond(
        200, file.type, embedded_file(file.name),
        file.page ? "Content-Security-Policy: default-src 'self'; frame-ancestors 'none'\r\n"
                    "X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n"
                    "Cache-Control: no-cache\r\n"
                  : "");
    return;
  }
  throw ApiError(404, "there is no page here: the server was started without it", {}, "not_found");
}

}  // namespace lmn::server
