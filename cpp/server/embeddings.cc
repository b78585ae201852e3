// SPDX-License-Identifier: Apache-2.0
//
// /v1/embeddings over sessions, on the helper thread: texts to ids, runs, pooling, and the answer.
//
// A vector depends on its own input alone: inputs are filled up to a length that follows from their
// own (a multiple of kBucketTokens), and only those of one length share a run, whose rows the
// session computes each by itself. Runs have 1, 2, 4, ... inputs, so that a session meets few
// combinations of shapes.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <utility>

#include "server/generation_request.h"
#include "server/reply.h"
#include "server/routes.h"
#include "server/tokens.h"
#include "server/utf8.h"

namespace lmn::server {
namespace {

constexpr size_t kBucketTokens = 16;

struct EmbeddingRequest {
  std::optional<std::string> model;
  std::vector<PromptInput> inputs;
  bool base64 = false;
  size_t dimensions = 0;  // 0: all
};

struct Embedded {
  std::string body;  // the answer
  uint64_t tokens = 0;
  std::optional<ApiError> error;
};

void refuse(const Failure& failure) {
  if (failure.failed()) throw api_error(failure);
}

// Ids of one input.
void tokenize(const ServedSession& model, PromptInput* input, size_t index) {
  if (!input->is_ids && model.tokenize != nullptr) {
    lmn_reply reply;
    const lmn_status status =
        model.tokenize(model.tokenize_user, input->text.data(), input->text.size(), &reply);
    if (status != LMN_OK) {
      throw ApiError(status == LMN_INVALID_ARGUMENT ? 400 : 500,
                     reply.text.empty() ? "the tokenizer failed" : lossy(reply.text), "input",
                     status == LMN_INVALID_ARGUMENT ? "invalid_value" : "internal_error");
    }
    input->ids = std::move(reply.ids);
  } else if (!input->is_ids && model.tokenizer != nullptr) {
    refuse(encode(model.tokenizer.get(), input->text, false, LMN_DEFAULT, &input->ids));
  } else if (!input->is_ids) {
    throw bad_field("input",
                    "must be token ids: " + model.quoted_name + " is served without a tokenizer",
                    "unsupported_value");
  }
  if (input->ids.empty() || input->ids.size() > model.max_tokens) {
    throw ApiError(400,
                   "input " + std::to_string(index) + " has " + std::to_string(input->ids.size()) +
                       " tokens; " + model.quoted_name + " takes 1 to " +
                       std::to_string(model.max_tokens),
                   "input", input->ids.empty() ? "invalid_value" : "context_length_exceeded");
  }
}

// [rows, tokens] of what an input of the session is made of.
SessionValueHandle make_input(const ServedSession& model, ServedSession::Input input,
                              const std::vector<const std::vector<int32_t>*>& rows, size_t tokens) {
  const int64_t shape[] = {static_cast<int64_t>(rows.size()), static_cast<int64_t>(tokens)};
  DLManagedTensorVersioned* tensor = nullptr;
  refuse(attempt([&](lmn_error** err) {
    return lmn_tensor_create(kDLInt, input.is_64 ? 64 : 32, 2, shape, &tensor, err);
  }));
  void* const data = tensor->dl_tensor.data;
  const auto put = [&](size_t at, int32_t value) {
    if (input.is_64) {
      static_cast<int64_t*>(data)[at] = value;
    } else {
      static_cast<int32_t*>(data)[at] = value;
    }
  };
  using Role = ServedSession::Input::Role;
  for (size_t row = 0; row < rows.size(); ++row) {
    for (size_t i = 0; i < tokens; ++i) {
      const bool real = i < rows[row]->size();
      int32_t value = 0;
      if (input.role == Role::kIds) value = real ? (*rows[row])[i] : model.pad_id;
      if (input.role == Role::kMask) value = real ? 1 : 0;
      if (input.role == Role::kPositions) value = static_cast<int32_t>(i);
      put(row * tokens + i, value);
    }
  }
  lmn_session_value* value = nullptr;
  refuse(attempt([&](lmn_error** err) {  // takes the tensor over
    return lmn_session_value_create(tensor, nullptr, &value, err);
  }));
  return SessionValueHandle(value);
}

// The vector of one row of [rows, tokens, size] or [rows, size].
std::vector<float> pool(const ServedSession& model, const DLTensor& output, size_t row,
                        size_t length) {
  const auto* const data = static_cast<const float*>(output.data);
  const auto size = static_cast<size_t>(output.shape[output.ndim - 1]);
  if (output.ndim == 2) return {data + row * size, data + (row + 1) * size};
  const float* const tokens = data + row * static_cast<size_t>(output.shape[1]) * size;
  if (model.pooling == LMN_POOLING_CLS) return {tokens, tokens + size};
  if (model.pooling == LMN_POOLING_LAST)
    return {tokens + (length - 1) * size, tokens + length * size};
  std::vector<float> mean(size);
  for (size_t i = 0; i < size; ++i) {
    double sum = 0;
    for (size_t token = 0; token < length; ++token)
      sum += static_cast<double>(tokens[token * size + i]);
    mean[i] = static_cast<float>(sum / static_cast<double>(length));
  }
  return mean;
}

void scale_to_one(std::vector<float>* vector) {
  double sum = 0;
  for (const float x : *vector) sum += static_cast<double>(x) * static_cast<double>(x);
  if (sum == 0) return;
  const double scale = 1 / std::sqrt(sum);
  for (float& x : *vector) x = static_cast<float>(static_cast<double>(x) * scale);
}

// One run; its vectors go to their places.
void run(const ServedSession& model, const EmbeddingRequest& request,
         const std::vector<size_t>& which, size_t tokens, std::vector<std::vector<float>>* out) {
  std::vector<const std::vector<int32_t>*> rows;
  for (const size_t i : which) rows.push_back(&request.inputs[i].ids);
  std::vector<SessionValueHandle> inputs;
  std::vector<const lmn_session_value*> given;
  for (const ServedSession::Input input : model.inputs) {
    inputs.push_back(make_input(model, input, rows, tokens));
    given.push_back(inputs.back().get());
  }
  std::vector<lmn_session_value*> results(model.outputs);
  const Failure failure = attempt([&](lmn_error** err) {
    return lmn_session_run(model.session.get(), given.data(), given.size(), results.data(),
                           results.size(), err);
  });
  std::vector<SessionValueHandle> owners;
  for (lmn_session_value* const result : results) owners.emplace_back(result);
  refuse(failure);
  DLManagedTensorVersioned* tensor = nullptr;
  refuse(attempt([&](lmn_error** err) {
    return lmn_session_value_tensor_get(owners[0].get(), &tensor, err);
  }));
  const TensorHandle owner(tensor);
  const DLTensor& output = tensor->dl_tensor;
  const bool is_float32 = output.dtype.code == kDLFloat && output.dtype.bits == 32;
  const bool fits = (output.ndim == 2 || output.ndim == 3) &&
                    output.shape[0] == static_cast<int64_t>(rows.size()) &&
                    (output.ndim == 2 || output.shape[1] == static_cast<int64_t>(tokens));
  if (!is_float32 || !fits) {
    throw ApiError(500,
                   "the first output of " + model.quoted_name +
                       " is not float32 [batch, tokens, size] or [batch, size]",
                   {}, "internal_error");
  }
  for (size_t row = 0; row < which.size(); ++row) {
    std::vector<float> vector = pool(model, output, row, rows[row]->size());
    if (request.dimensions > vector.size()) {
      throw bad_field("dimensions", "is " + std::to_string(request.dimensions) + "; " +
                                        model.quoted_name + " has " +
                                        std::to_string(vector.size()));
    }
    if (request.dimensions > 0) vector.resize(request.dimensions);
    if (!model.raw || request.dimensions > 0) scale_to_one(&vector);
    (*out)[which[row]] = std::move(vector);
  }
}

void append_base64(std::string* out, const std::vector<float>& vector) {
  static constexpr char kDigits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<unsigned char> bytes(vector.size() * sizeof(float));
  std::memcpy(bytes.data(), vector.data(), bytes.size());  // little endian, as the machine is
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t left = std::min<size_t>(bytes.size() - i, 3);
    uint32_t group = uint32_t{bytes[i]} << 16;
    if (left > 1) group |= uint32_t{bytes[i + 1]} << 8;
    if (left > 2) group |= bytes[i + 2];
    *out += kDigits[group >> 18];
    *out += kDigits[(group >> 12) & 63];
    *out += left > 1 ? kDigits[(group >> 6) & 63] : '=';
    *out += left > 2 ? kDigits[group & 63] : '=';
  }
}

std::string answer(const ServedSession& model, const std::vector<std::vector<float>>& vectors,
                   bool base64, uint64_t tokens) {
  std::string out = R"({"object":"list","data":[)";
  for (size_t i = 0; i < vectors.size(); ++i) {
    if (i > 0) out += ',';
    out += R"({"object":"embedding","index":)";
    append_number(&out, uint64_t{i});
    out += R"(,"embedding":)";
    if (base64) {
      out += '"';
      append_base64(&out, vectors[i]);
      out += '"';
    } else {
      out += '[';
      for (size_t k = 0; k < vectors[i].size(); ++k) {
        if (k > 0) out += ',';
        append_number(&out, vectors[i][k]);
      }
      out += ']';
    }
    out += '}';
  }
  out += R"(],"model":)" + model.quoted_name + R"(,"usage":{"prompt_tokens":)";
  append_number(&out, tokens);
  out += R"(,"total_tokens":)";
  append_number(&out, tokens);
  return out + "}}";
}

Embedded embed(const ServedSession& model, EmbeddingRequest request) {
  Embedded out;
  try {
    std::map<size_t, std::vector<size_t>> by_length;
    for (size_t i = 0; i < request.inputs.size(); ++i) {
      tokenize(model, &request.inputs[i], i);
      const size_t tokens = request.inputs[i].ids.size();
      out.tokens += tokens;
      size_t filled_up = (tokens + kBucketTokens - 1) / kBucketTokens * kBucketTokens;
      filled_up = std::min<size_t>(filled_up, model.max_tokens);
      if (model.fixed_tokens >= 0) filled_up = static_cast<size_t>(model.fixed_tokens);
      by_length[filled_up].push_back(i);
    }
    std::vector<std::vector<float>> vectors(request.inputs.size());
    const size_t most = model.one_at_a_time ? 1 : model.max_batch;
    for (const auto& [tokens, which] : by_length) {
      for (size_t begin = 0; begin < which.size();) {
        size_t rows = 1;
        while (rows * 2 <= std::min(most, which.size() - begin)) rows *= 2;
        const auto first = which.begin() + static_cast<ptrdiff_t>(begin);
        run(model, request, {first, first + static_cast<ptrdiff_t>(rows)}, tokens, &vectors);
        begin += rows;
      }
    }
    out.body = answer(model, vectors, request.base64, out.tokens);
  } catch (const ApiError& error) {
    out.error = error;
  } catch (const std::bad_alloc&) {
    out.error = out_of_memory();
  }
  return out;
}

EmbeddingRequest read_request(const Fields& fields) {
  EmbeddingRequest request;
  request.model = read_model(fields);
  request.inputs = read_prompts(fields, "input");
  const std::string_view format = fields.text("encoding_format").value_or("float");
  if (format != "float" && format != "base64") {
    throw bad_field("encoding_format",
                    "is " + json_quoted(format) + "; it must be float or base64");
  }
  request.base64 = format == "base64";
  request.dimensions = static_cast<size_t>(fields.integer("dimensions", 1, 1 << 20).value_or(0));
  (void)fields.text("user");
  return request;
}

}  // namespace

void post_embeddings(Server& server, Connection& connection) {
  read_body(connection, read_request, [&server](Connection& asking, EmbeddingRequest request) {
    const auto model = std::dynamic_pointer_cast<ServedSession>(model_for(server, request.model));
    if (model == nullptr) {
      throw ApiError(400, "this model gives no embeddings; serve an embedding session beside it",
                     "model", "model_not_supported");
    }
    asking.record().model = model->name;
    run_on_helper(
        asking,
        [model, request = std::move(request)]() mutable {
          return embed(*model, std::move(request));
        },
        [](Connection& still, Embedded embedded) {
          if (embedded.error) throw *embedded.error;
          still.record().prompt_tokens = static_cast<int64_t>(embedded.tokens);
          still.respond(200, kJson, embedded.body);
        });
  });
}

}  // namespace lmn::server
