// SPDX-License-Identifier: Apache-2.0
//
// DLPack from other libraries, of both generations.
#include <cstring>

#include "tensor.h"

namespace lmn::python {
namespace {

// A tensor of the older kind in the struct of the newer one.
struct Legacy {
  DLManagedTensorVersioned managed{};
  DLManagedTensor* tensor;

  explicit Legacy(DLManagedTensor* lent) : tensor(lent) {
    managed.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
    managed.manager_ctx = this;
    managed.deleter = [](DLManagedTensorVersioned* self) {
      delete static_cast<Legacy*>(self->manager_ctx);
    };
    managed.dl_tensor = tensor->dl_tensor;
  }
  Legacy(const Legacy&) = delete;
  Legacy& operator=(const Legacy&) = delete;
  ~Legacy() {
    if (tensor->deleter != nullptr) tensor->deleter(tensor);
  }
};

OwnedTensor from_capsule(const py::capsule& capsule, const std::string& what) {
  const char* name = capsule.name();
  if (name != nullptr && std::strcmp(name, "dltensor_versioned") == 0) {
    auto* tensor = static_cast<DLManagedTensorVersioned*>(capsule.get_pointer());
    PyCapsule_SetName(capsule.ptr(), "used_dltensor_versioned");
    return OwnedTensor(tensor);
  }
  if (name == nullptr || std::strcmp(name, "dltensor") != 0)
    throw py::type_error(what + ": __dlpack__ gave something that is no DLPack capsule");
  auto* tensor = static_cast<DLManagedTensor*>(capsule.get_pointer());
  PyCapsule_SetName(capsule.ptr(), "used_dltensor");
  return OwnedTensor(&(new Legacy(tensor))->managed);
}

}  // namespace

OwnedTensor take_dlpack(const py::object& source, const std::string& what) {
  const auto device = source.attr("__dlpack_device__")().cast<py::tuple>();
  if (device[0].cast<int>() != kDLCPU)
    throw py::type_error(what + " must be in CPU memory: copy it there first");
  try {
    return from_capsule(source.attr("__dlpack__")(py::arg("max_version") = py::make_tuple(
                                                      DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION)),
                        what);
  } catch (py::error_already_set& error) {
    // A producer from before DLPack 1.0 does not know max_version.
    if (!error.matches(PyExc_TypeError)) throw;
  }
  return from_capsule(source.attr("__dlpack__")(), what);
}

}  // namespace lmn::python
