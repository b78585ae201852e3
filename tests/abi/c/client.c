/* SPDX-License-Identifier: Apache-2.0
 *
 * The script that every language of tests/abi runs, in C11: what it prints is JSON, one object a
 * line, and the same in all of them. Usage: client MODEL ONNX_MODEL
 */
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lmnative/lmnative.h"

/* Prints text as a JSON string. */
static void print_string(const char *text, size_t bytes) {
  putchar('"');
  for (size_t i = 0; i < bytes; ++i) {
    const unsigned char c = (unsigned char)text[i];
    if (c == '"' || c == '\\')
      printf("\\%c", c);
    else if (c < 0x20)
      printf("\\u%04x", c);
    else
      putchar(c);
  }
  putchar('"');
}

static void print_ids(const int32_t *ids, size_t count) {
  putchar('[');
  for (size_t i = 0; i < count; ++i) printf(i ? ",%d" : "%d", ids[i]);
  putchar(']');
}

/* Makes a call that must succeed; its last argument is &err. */
#define CHECK(call)                                                               \
  do {                                                                            \
    lmn_error *err = NULL;                                                        \
    if ((call) != LMN_OK) {                                                       \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, lmn_error_message(err)); \
      exit(1);                                                                    \
    }                                                                             \
  } while (0)

/* Prints a failure that was provoked. */
static void print_error(const char *what, lmn_status status, lmn_error *err) {
  printf("{\"step\":\"error\",\"what\":\"%s\",\"status\":\"%s\",\"message\":", what,
         lmn_status_name(status));
  print_string(lmn_error_message(err), strlen(lmn_error_message(err)));
  printf(",\"same\":%s}\n", lmn_error_status(err) == status ? "true" : "false");
  lmn_error_destroy(err);
}

typedef struct answer {
  int32_t ids[64];
  size_t id_count;
  char text[1024];
  size_t text_bytes;
  uint32_t finish_reason;
} answer;

static void add(answer *to, const lmn_chunk *chunk) {
  for (uint64_t i = 0; i < chunk->token_count && to->id_count < 64; ++i)
    to->ids[to->id_count++] = chunk->token_ids[i];
  if (to->text_bytes + chunk->text_bytes <= sizeof to->text) {
    memcpy(to->text + to->text_bytes, chunk->text, chunk->text_bytes);
    to->text_bytes += chunk->text_bytes;
  }
  to->finish_reason = chunk->finish_reason;
}

/* Reads a request to its end. */
static answer drain(lmn_request *request) {
  answer out = {.id_count = 0};
  while (out.finish_reason == LMN_FINISH_NONE) {
    lmn_chunk chunk = {.struct_size = sizeof chunk};
    CHECK(lmn_request_next(request, -1, &chunk, &err));
    add(&out, &chunk);
  }
  return out;
}

static void inspect(const lmn_model *model) {
  lmn_model_info info = {.struct_size = sizeof info};
  CHECK(lmn_model_info_get(model, &info, &err));
  printf(
      "{\"step\":\"model\",\"architecture\":\"%s\",\"name\":\"%s\",\"tensors\":%llu,\"metadata\":%"
      "llu,"
      "\"parameters\":%llu,\"vocab\":%u,\"context\":%u,\"embedding\":%u,\"layers\":%u,\"heads\":%u,"
      "\"kv_heads\":%u,"
      "\"head_dim\":%u}\n",
      info.architecture, info.name, (unsigned long long)info.tensor_count,
      (unsigned long long)info.metadata_count, (unsigned long long)info.parameter_count,
      info.vocab_size, info.context_length, info.embedding_length, info.layer_count,
      info.head_count, info.head_count_kv, info.head_dim);

  lmn_value value = {.struct_size = sizeof value};
  CHECK(lmn_model_metadata_find(model, "tokenizer.ggml.pre", &value, &err));
  printf("{\"step\":\"metadata\",\"kind\":%u,\"text\":", value.kind);
  print_string(value.text, value.text_bytes);
  printf("}\n");

  lmn_tensor_info tensor = {.struct_size = sizeof tensor};
  CHECK(lmn_model_tensor_get(model, 0, &tensor, &err));
  printf("{\"step\":\"tensor\",\"name\":");
  print_string(tensor.name, tensor.name_bytes);
  printf(",\"type\":\"%s\",\"shape\":[%lld,%lld],\"bytes\":%llu}\n", tensor.type,
         (long long)tensor.shape[0], (long long)tensor.shape[1], (unsigned long long)tensor.bytes);
}

static void tokenize(const lmn_tokenizer *tokenizer) {
  static const char text[] =
      "Gr\xc3\xb6\xc3\x9f"
      "e \xf0\x9f\xa6\x99 \"quoted\"\n";
  int32_t ids[64];
  size_t count = 0, bytes = 0;
  CHECK(lmn_tokenizer_encode(tokenizer, text, sizeof text - 1, NULL, ids, 64, &count, &err));
  char decoded[256];
  CHECK(lmn_tokenizer_decode(tokenizer, ids, count, NULL, decoded, sizeof decoded, &bytes, &err));
  printf("{\"step\":\"tokenize\",\"ids\":");
  print_ids(ids, count);
  printf(",\"decoded\":");
  print_string(decoded, bytes);
  printf(",\"pieces\":[");
  lmn_decoder *decoder = NULL;
  CHECK(lmn_decoder_create(tokenizer, NULL, &decoder, &err));
  for (size_t i = 0; i < count; ++i) {
    const char *piece = NULL;
    CHECK(lmn_decoder_decode(decoder, ids[i], &piece, &bytes, &err));
    if (i > 0) putchar(',');
    print_string(piece, bytes);
  }
  printf("]}\n");
  lmn_decoder_destroy(decoder);
}

static void chat(const lmn_tokenizer *tokenizer) {
  const lmn_chat_message messages[] = {{"system", "Be brief.", 9},
                                       {"user", "Hi \xf0\x9f\x91\x8b", 7}};
  char text[512];
  size_t bytes = 0;
  CHECK(lmn_tokenizer_chat_render(tokenizer, messages, 2, NULL, text, sizeof text, &bytes, &err));
  printf("{\"step\":\"chat\",\"text\":");
  print_string(text, bytes);
  printf("}\n");
}

static lmn_request *submit(lmn_engine *engine, const char *prompt, uint32_t max_tokens) {
  const lmn_request_options options = {.struct_size = sizeof options,
                                       .prompt = prompt,
                                       .prompt_bytes = strlen(prompt),
                                       .max_tokens = max_tokens,
                                       .flags = LMN_REQUEST_IGNORE_EOS};
  lmn_request *request = NULL;
  CHECK(lmn_engine_submit(engine, &options, &request, &err));
  return request;
}

static void stream(lmn_engine *engine) {
  lmn_request *request = submit(engine, "The capital of France is", 16);
  const answer got = drain(request);
  lmn_request_stats stats = {.struct_size = sizeof stats};
  CHECK(lmn_request_stats_get(request, &stats, &err));
  printf("{\"step\":\"stream\",\"ids\":");
  print_ids(got.ids, got.id_count);
  printf(",\"text\":");
  print_string(got.text, got.text_bytes);
  printf(",\"finish\":%u,\"prompt_tokens\":%llu,\"generated_tokens\":%llu}\n", got.finish_reason,
         (unsigned long long)stats.prompt_tokens, (unsigned long long)stats.generated_tokens);
  lmn_request_destroy(request);
}

static void cancel(lmn_engine *engine) {
  lmn_request *request = submit(engine, "Once upon a time", 4000);
  CHECK(lmn_request_cancel(request, &err));
  const uint32_t finish_reason = drain(request).finish_reason;
  lmn_chunk chunk = {.struct_size = sizeof chunk};
  const lmn_status after = lmn_request_next(request, 0, &chunk, NULL);
  printf("{\"step\":\"cancel\",\"finish\":%u,\"after\":\"%s\"}\n", finish_reason,
         lmn_status_name(after));
  lmn_request_destroy(request);
}

static void provoke_errors(lmn_engine *engine, const lmn_tokenizer *tokenizer) {
  lmn_error *err = NULL;
  lmn_model *model = NULL;
  lmn_status status = lmn_model_open("/nonexistent/model.gguf", NULL, &model, &err);
  print_error("missing file", status, err);

  lmn_request *request = NULL;
  lmn_request_options options = {
      .struct_size = sizeof options, .prompt = "x", .prompt_bytes = 1, .temperature = NAN};
  status = lmn_engine_submit(engine, &options, &request, &err);
  print_error("NaN temperature", status, err);

  const int32_t ids[] = {1, 999999};
  options =
      (lmn_request_options){.struct_size = sizeof options, .prompt_ids = ids, .prompt_id_count = 2};
  status = lmn_engine_submit(engine, &options, &request, &err);
  print_error("token id out of range", status, err);

  struct {
    lmn_request_options known;
    uint64_t added_later;
  } future = {.known = {.struct_size = sizeof future, .prompt = "x", .prompt_bytes = 1},
              .added_later = 7};
  status = lmn_engine_submit(engine, &future.known, &request, &err);
  print_error("option from the future", status, err);

  char text[8];
  size_t bytes = 0;
  const int32_t bad[] = {-1};
  status = lmn_tokenizer_decode(tokenizer, bad, 1, NULL, text, sizeof text, &bytes, &err);
  print_error("decode of a bad id", status, err);
}

static void score(lmn_engine *engine) {
  const int64_t shape[] = {4};
  struct DLManagedTensorVersioned *ids = NULL, *logits = NULL;
  CHECK(lmn_tensor_create(kDLInt, 32, 1, shape, &ids, &err));
  const int32_t tokens[] = {504, 3575, 282, 4649};
  memcpy(ids->dl_tensor.data, tokens, sizeof tokens);
  CHECK(lmn_engine_score(engine, ids, NULL, &logits, &err));
  const float *row = logits->dl_tensor.data;
  const int64_t rows = logits->dl_tensor.shape[0], columns = logits->dl_tensor.shape[1];
  int32_t top[4] = {0};
  for (int64_t i = 0; i < rows; ++i, row += columns) {
    for (int64_t j = 0; j < columns; ++j) {
      if (row[j] > row[top[i]]) top[i] = (int32_t)j;
    }
  }
  printf("{\"step\":\"score\",\"shape\":[%lld,%lld],\"top\":", (long long)rows, (long long)columns);
  print_ids(top, 4);
  printf("}\n");
  lmn_tensor_destroy(ids);
  lmn_tensor_destroy(logits);
}

enum { kStreams = 64, kPrompts = 4 };

static lmn_request *submit_stream(lmn_engine *engine, int index, uint32_t max_tokens) {
  static const char *const prompts[kPrompts] = {"One", "Two, three", "The sea is",
                                                "Once upon a time"};
  const lmn_request_options options = {
      .struct_size = sizeof options,
      .prompt = prompts[index % kPrompts],
      .prompt_bytes = strlen(prompts[index % kPrompts]),
      .max_tokens = max_tokens,
      .temperature = 0.8f,
      .seed = (uint64_t)(index % kPrompts),
      .flags = LMN_REQUEST_IGNORE_EOS | LMN_REQUEST_SEED | LMN_REQUEST_NOTIFY,
      .tag = (uint64_t)index};
  lmn_request *request = NULL;
  CHECK(lmn_engine_submit(engine, &options, &request, &err));
  return request;
}

/* Many requests at once: one wait on the engine's descriptor for all, then those that have news. */
static void streams(lmn_engine *engine, const char *name, uint32_t max_tokens) {
  answer alone[kPrompts];
  static answer got[kStreams];
  memset(got, 0, sizeof got);
  for (int i = 0; i < kPrompts; ++i) {
    lmn_request *request = submit_stream(engine, i, max_tokens);
    alone[i] = drain(request);
    lmn_request_destroy(request);
  }
  lmn_request *requests[kStreams];
  for (int i = 0; i < kStreams; ++i) requests[i] = submit_stream(engine, i, max_tokens);
  int32_t descriptor = -1;
  CHECK(lmn_engine_descriptor_get(engine, &descriptor, &err));
  for (int open = kStreams; open > 0;) {
    struct pollfd news = {.fd = descriptor, .events = POLLIN};
    if (poll(&news, 1, 60000) != 1) exit(1);
    uint64_t tags[16];
    size_t count = 0;
    CHECK(lmn_engine_drain(engine, tags, 16, &count, &err));
    for (size_t i = 0; i < count; ++i) {
      lmn_chunk chunk = {.struct_size = sizeof chunk};
      while (lmn_request_next(requests[tags[i]], 0, &chunk, NULL) == LMN_OK) {
        add(&got[tags[i]], &chunk);
        open -= chunk.finish_reason != LMN_FINISH_NONE;
      }
    }
  }
  for (int i = 0; i < kStreams; ++i) lmn_request_destroy(requests[i]);
  size_t tokens = 0;
  int equal = 1;
  for (int i = 0; i < kStreams; ++i) {
    const answer *want = &alone[i % kPrompts];
    tokens += got[i].id_count;
    equal = equal && got[i].id_count == want->id_count && got[i].text_bytes == want->text_bytes &&
            memcmp(got[i].ids, want->ids, want->id_count * sizeof want->ids[0]) == 0 &&
            memcmp(got[i].text, want->text, want->text_bytes) == 0;
  }
  printf(
      "{\"step\":\"streams\",\"model\":\"%s\",\"streams\":%d,\"tokens\":%zu,\"equal\":%s,"
      "\"alone\":[",
      name, kStreams, tokens, equal ? "true" : "false");
  for (int i = 0; i < kPrompts; ++i) {
    if (i > 0) putchar(',');
    print_ids(alone[i].ids, alone[i].id_count);
  }
  printf("]}\n");
}

static void null_streams(void) {
  lmn_model *model = NULL;
  lmn_engine *engine = NULL;
  CHECK(lmn_model_open("null:vocab=512,context=256", NULL, &model, &err));
  const lmn_engine_options options = {
      .struct_size = sizeof options, .threads = 1, .kv_tokens = 8192};
  CHECK(lmn_engine_create(model, &options, &engine, &err));
  streams(engine, "null", 32);
  lmn_engine_destroy(engine);
  lmn_model_destroy(model);
}

/* A row of the tensor and the value over it, whose memory it is. */
static float *create_row(int64_t columns, lmn_session_value **value) {
  const int64_t shape[] = {1, columns};
  struct DLManagedTensorVersioned *tensor = NULL;
  CHECK(lmn_tensor_create(kDLFloat, 32, 2, shape, &tensor, &err));
  float *data = tensor->dl_tensor.data;
  CHECK(lmn_session_value_create(tensor, NULL, value, &err));
  return data;
}

static void print_row(const char *name, const float *row) {
  printf(",\"%s\":[%.1f,%.1f,%.1f]", name, row[0], row[1], row[2]);
}

/* An ONNX model, C = ReLU(A.B + bias), run with new values, and with bound ones. */
static void onnx(const char *path) {
  lmn_session *session = NULL;
  const lmn_session_options options = {.struct_size = sizeof options, .threads = 1};
  CHECK(lmn_session_create(path, &options, &session, &err));
  lmn_port_info port = {.struct_size = sizeof port};
  CHECK(lmn_session_input_get(session, 0, &port, &err));
  printf("{\"step\":\"session\",\"input\":\"%s\",\"type\":\"%s\",\"rows\":\"%s\",\"columns\":%lld",
         port.name, port.dtype, port.symbols[0], (long long)port.shape[1]);
  lmn_session_value *a = NULL, *c = NULL, *result = NULL;
  float *in = create_row(4, &a), *out = create_row(3, &c);
  for (int i = 0; i < 4; ++i) in[i] = 2;
  CHECK(lmn_session_run(session, (const lmn_session_value *const *)&a, 1, &result, 1, &err));
  struct DLManagedTensorVersioned *tensor = NULL;
  CHECK(lmn_session_value_tensor_get(result, &tensor, &err));
  print_row("run", tensor->dl_tensor.data);
  lmn_tensor_destroy(tensor);
  lmn_session_value_destroy(result);
  lmn_binding *binding = NULL;
  CHECK(lmn_binding_create(session, (const lmn_session_value *const *)&a, 1,
                           (const lmn_session_value *const *)&c, 1, &binding, &err));
  lmn_session_destroy(session);
  lmn_session_value_destroy(a);
  lmn_session_value_destroy(c);
  for (int i = 0; i < 4; ++i) in[i] = 3;
  CHECK(lmn_binding_run(binding, &err));
  print_row("bound", out);
  printf("}\n");
  lmn_binding_destroy(binding);
}

/* C = LeakyReLU(A * b + bias), written down operator by operator. */
static void graph(void) {
  lmn_graph *g = NULL;
  lmn_session *session = NULL;
  lmn_session_value *a = NULL, *b = NULL, *bias = NULL, *result = NULL;
  float *in = create_row(3, &a), *scale = create_row(3, &b), *shift = create_row(3, &bias);
  for (int i = 0; i < 3; ++i) {
    in[i] = 2;
    scale[i] = (float)(i + 1);
    shift[i] = -4;
  }
  const int64_t shape[] = {-1, 3};
  const char *const symbols[] = {"rows", NULL};
  const lmn_attribute alpha = {.name = "alpha", .kind = LMN_ATTRIBUTE_FLOAT, .f = 0.5f};
  int32_t x[3];
  CHECK(lmn_graph_create(&g, &err));
  CHECK(lmn_graph_input_create(g, "A", "f32", 2, shape, symbols, &x[0], &err));
  CHECK(lmn_graph_constant_create(g, "b", b, &x[1], &err));
  CHECK(lmn_graph_constant_create(g, "bias", bias, &x[2], &err));
  CHECK(lmn_graph_node_create(g, "Mul", x, 2, NULL, 0, &x[1], 1, &err));
  CHECK(lmn_graph_node_create(g, "Add", x + 1, 2, NULL, 0, &x[1], 1, &err));
  CHECK(lmn_graph_node_create(g, "LeakyRelu", x + 1, 1, &alpha, 1, &x[1], 1, &err));
  CHECK(lmn_graph_output_create(g, "C", x[1], &err));
  lmn_port_info port = {.struct_size = sizeof port};
  CHECK(lmn_graph_value_get(g, x[1], &port, &err));
  const lmn_status unknown = lmn_graph_node_create(g, "Nothing", x, 1, NULL, 0, &x[1], 1, NULL);
  printf("{\"step\":\"graph\",\"type\":\"%s\",\"rows\":\"%s\",\"unknown\":\"%s\"", port.dtype,
         port.symbols[0], lmn_status_name(unknown));
  const lmn_session_options options = {.struct_size = sizeof options, .threads = 1};
  CHECK(lmn_graph_session_create(g, &options, &session, &err));
  lmn_graph_destroy(g);
  lmn_session_value_destroy(b);
  lmn_session_value_destroy(bias);
  CHECK(lmn_session_run(session, (const lmn_session_value *const *)&a, 1, &result, 1, &err));
  struct DLManagedTensorVersioned *tensor = NULL;
  CHECK(lmn_session_value_tensor_get(result, &tensor, &err));
  print_row("run", tensor->dl_tensor.data);
  printf("}\n");
  lmn_tensor_destroy(tensor);
  lmn_session_value_destroy(result);
  lmn_session_value_destroy(a);
  lmn_session_destroy(session);
}

/* Parents before children: every handle keeps what it needs. */
static void destroy(lmn_model *model, lmn_tokenizer *tokenizer, lmn_engine *engine) {
  struct DLManagedTensorVersioned *norm = NULL;
  CHECK(lmn_model_tensor_export(model, "output_norm.weight", &norm, &err));
  lmn_decoder *decoder = NULL;
  CHECK(lmn_decoder_create(tokenizer, NULL, &decoder, &err));
  lmn_request *request = submit(engine, "Once upon a time", 4000);
  lmn_model_destroy(model);
  lmn_engine_destroy(engine);
  lmn_tokenizer_destroy(tokenizer);
  const uint32_t finish_reason = drain(request).finish_reason;
  lmn_request_destroy(request);
  const char *piece = NULL;
  size_t bytes = 0;
  CHECK(lmn_decoder_decode(decoder, 504, &piece, &bytes, &err));
  printf("{\"step\":\"destroy\",\"finish\":%u,\"piece\":", finish_reason);
  print_string(piece, bytes);
  lmn_decoder_destroy(decoder);
  printf(",\"read_only\":%s,\"first\":%.6f}\n",
         (norm->flags & DLPACK_FLAG_BITMASK_READ_ONLY) ? "true" : "false",
         *(const float *)norm->dl_tensor.data);
  lmn_tensor_destroy(norm);
}

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  printf("{\"step\":\"version\",\"version\":\"%s\",\"abi\":%u}\n", lmn_version(),
         lmn_abi_version());
  lmn_model *model = NULL;
  CHECK(lmn_model_open(argv[1], NULL, &model, &err));
  inspect(model);
  lmn_tokenizer *tokenizer = NULL;
  CHECK(lmn_tokenizer_create(model, &tokenizer, &err));
  tokenize(tokenizer);
  chat(tokenizer);
  lmn_engine *engine = NULL;
  const lmn_engine_options options = {
      .struct_size = sizeof options, .threads = 2, .context_tokens = 4096};
  CHECK(lmn_engine_create(model, &options, &engine, &err));
  stream(engine);
  cancel(engine);
  provoke_errors(engine, tokenizer);
  score(engine);
  streams(engine, "default", 8);
  null_streams();
  onnx(argv[2]);
  graph();
  destroy(model, tokenizer, engine);
  return 0;
}
