// SPDX-License-Identifier: Apache-2.0
//
// Tokenizer and streaming decoder. Calls take microseconds to milliseconds; the ones that may take
// long on long text (encode, decode, create) release the GIL.
#include <vector>

#include "interrupt.h"
#include "model.h"
#include "status.h"
#include "tensor.h"

namespace lmn::python {
namespace {

class Decoder {
 public:
  Decoder(const Tokenizer& tokenizer, bool skip_special) {
    auto options = sized<lmn_decode_options>();
    options.skip_special = skip_special ? 1 : 0;
    lmn_decoder* decoder = nullptr;
    ErrorSlot error;
    const lmn_status status = lmn_decoder_create(tokenizer.get(), &options, &decoder, error.out());
    decoder_.reset(decoder);
    check(status, error);
  }

  py::str decode(int32_t id) {
    const char* text = nullptr;
    size_t bytes = 0;
    ErrorSlot error;
    check(lmn_decoder_decode(decoder_.get(), id, &text, &bytes, error.out()), error);
    return py::str(text, bytes);
  }

  py::str flush() {
    const char* text = nullptr;
    size_t bytes = 0;
    ErrorSlot error;
    check(lmn_decoder_flush(decoder_.get(), &text, &bytes, error.out()), error);
    return py::str(text, bytes);
  }

 private:
  struct Deleter {
    void operator()(lmn_decoder* decoder) const { lmn_decoder_destroy(decoder); }
  };
  std::unique_ptr<lmn_decoder, Deleter> decoder_;
};

// Runs an ABI call of the (buffer, capacity, count) kind without the GIL: once with a guess, once
// more if it was too low.
template <typename Item, typename Call>
std::vector<Item> fill(size_t guess, const Call& call) {
  std::vector<Item> items(guess);
  ErrorSlot first, second;
  lmn_status status = LMN_OK;
  bool again = false;
  {
    const WithoutGil nogil;
    size_t count = 0;
    status = call(items.data(), items.size(), &count, first.out());
    again = status == LMN_BUFFER_TOO_SMALL;
    items.resize(count);
    if (again) status = call(items.data(), items.size(), &count, second.out());
  }
  check(status, again ? second : first);
  return items;
}

py::list encode(const Tokenizer& self, const py::object& text, bool parse_special, uint32_t add_bos,
                uint32_t add_eos) {
  const std::string_view utf8 = utf8_view(text, "text");
  auto options = sized<lmn_encode_options>();
  options.parse_special = parse_special ? 1 : 0;
  options.add_bos = add_bos;
  options.add_eos = add_eos;
  const auto ids = fill<int32_t>(
      utf8.size() / 2 + 8, [&](int32_t* out, size_t capacity, size_t* count, lmn_error** err) {
        return lmn_tokenizer_encode(self.get(), utf8.data(), utf8.size(), &options, out, capacity,
                                    count, err);
      });
  py::list result(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) result[i] = ids[i];
  return result;
}

py::str decode(const Tokenizer& self, const py::object& source, bool skip_special) {
  Ids ids(source, "ids");
  const int32_t* data = ids.as_int32();
  const size_t id_count = ids.count();
  auto options = sized<lmn_decode_options>();
  options.skip_special = skip_special ? 1 : 0;
  const auto text = fill<char>(id_count * 8 + 16, [&](char* out, size_t capacity, size_t* count,
                                                      lmn_error** err) {
    return lmn_tokenizer_decode(self.get(), data, id_count, &options, out, capacity, count, err);
  });
  return py::str(text.data(), text.size());
}

py::str render(const Tokenizer& self, const py::list& messages, bool add_generation_prompt) {
  std::vector<lmn_chat_message> items;
  std::vector<std::string> roles(messages.size());
  for (size_t i = 0; i < messages.size(); ++i) {
    const auto message = messages[i].cast<py::tuple>();
    const std::string_view content =
        utf8_view(message[1], "content of message " + std::to_string(i));
    roles[i] = std::string(utf8_view(message[0], "role of message " + std::to_string(i)));
    if (roles[i].find('\0') != std::string::npos) {
      throw py::value_error("role of message " + std::to_string(i) + " contains a NUL character");
    }
    items.push_back({roles[i].c_str(), content.data(), content.size()});
  }
  auto options = sized<lmn_chat_options>();
  options.no_generation_prompt = add_generation_prompt ? 0 : 1;
  const auto text =
      fill<char>(4096, [&](char* out, size_t capacity, size_t* count, lmn_error** err) {
        return lmn_tokenizer_chat_render(self.get(), items.data(), items.size(), &options, out,
                                         capacity, count, err);
      });
  return py::str(text.data(), text.size());
}

py::dict tokenizer_info(const Tokenizer& self) {
  auto info = sized<lmn_tokenizer_info>();
  ErrorSlot error;
  check(lmn_tokenizer_info_get(self.get(), &info, error.out()), error);
  const auto id = [](int32_t value) {
    return value < 0 ? py::object(py::none()) : py::object(py::int_(value));
  };
  py::dict result;
  result["model"] = info.model;
  result["pre"] = info.pre;
  result["vocab_size"] = info.vocab_size;
  result["bos_id"] = id(info.bos_id);
  result["eos_id"] = id(info.eos_id);
  result["eot_id"] = id(info.eot_id);
  result["unk_id"] = id(info.unk_id);
  result["pad_id"] = id(info.pad_id);
  result["add_bos"] = info.add_bos != 0;
  result["add_eos"] = info.add_eos != 0;
  return result;
}

// (bytes, kind, end_of_generation)
py::tuple token_of(const Tokenizer& self, int32_t id) {
  auto info = sized<lmn_token_info>();
  ErrorSlot error;
  check(lmn_tokenizer_token_get(self.get(), id, &info, error.out()), error);
  return py::make_tuple(py::bytes(info.bytes, info.byte_count), info.kind,
                        info.end_of_generation != 0);
}

}  // namespace

Tokenizer::Tokenizer(const lmn_model* model) {
  lmn_tokenizer* tokenizer = nullptr;
  ErrorSlot error;
  lmn_status status = LMN_OK;
  {
    const WithoutGil nogil;
    status = lmn_tokenizer_create(model, &tokenizer, error.out());
  }
  tokenizer_.reset(tokenizer);
  check(status, error);
}

void bind_tokenizer(py::module_& module) {
  py::class_<Tokenizer>(module, "Tokenizer")
      .def(py::init([](const Model& model) { return std::make_unique<Tokenizer>(model.get()); }))
      .def("info", &tokenizer_info)
      .def("token", &token_of)
      .def("encode", &encode)
      .def("decode", &decode)
      .def("render", &render);
  py::class_<Decoder>(module, "Decoder")
      .def(py::init<const Tokenizer&, bool>())
      .def("decode", &Decoder::decode)
      .def("flush", &Decoder::flush);
}

}  // namespace lmn::python
