// SPDX-License-Identifier: Apache-2.0
//
// Model files and tokenizers in Python: thin classes over lmn_model, lmn_tokenizer and lmn_decoder.
// The Python package wraps them once more with names, defaults and documentation; nothing here is
// public by itself.
#pragma once

#include <lmnative/lmnative.h>
#include <pybind11/pybind11.h>

#include <memory>
#include <string>

namespace lmn::python {

namespace py = pybind11;

struct ModelDeleter {
  void operator()(lmn_model* model) const { lmn_model_destroy(model); }
};

class Model {
 public:
  Model(const std::string& path, uint32_t read_mode, const py::object& progress);
  const lmn_model* get() const { return model_.get(); }

 private:
  std::unique_ptr<lmn_model, ModelDeleter> model_;
};

class Tokenizer {
 public:
  // Cheap but for the first one of a model.
  explicit Tokenizer(const lmn_model* model);
  const lmn_tokenizer* get() const { return tokenizer_.get(); }

 private:
  struct Deleter {
    void operator()(lmn_tokenizer* tokenizer) const { lmn_tokenizer_destroy(tokenizer); }
  };
  std::unique_ptr<lmn_tokenizer, Deleter> tokenizer_;
};

// UTF-8 bytes of a str or bytes object; ill-formed text throws, naming `what`. The view lives as
// long as `text`.
std::string_view utf8_view(const py::handle& text, const std::string& what);

void bind_model(py::module_& module);
void bind_tokenizer(py::module_& module);

}  // namespace lmn::python
