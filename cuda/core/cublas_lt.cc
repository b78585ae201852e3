// SPDX-License-Identifier: Apache-2.0
#include "cuda/core/cublas_lt.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "cuda/core/cublas_lt_api.h"
#include "cuda/core/current_device.h"

namespace lmn::cuda {
namespace {

using namespace cublas_lt;

constexpr const char* kVariable = "LMN_CUBLAS_LT_LIBRARY";
constexpr uint32_t kOperandAlignment = 16;  // bytes, of ops::DenseProduct
constexpr int kMostCandidates = 8;

// A descriptor of the library's, and the function that it goes by.
class Descriptor {
 public:
  using Destroy = int (*)(void*);
  Descriptor() = default;
  Descriptor(void* data, Destroy destroy) : data_(data), destroy_(destroy) {}
  ~Descriptor() {
    if (data_ != nullptr) (void)destroy_(data_);
  }
  Descriptor(Descriptor&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), destroy_(other.destroy_) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(destroy_, other.destroy_);
    return *this;
  }
  void* get() const { return data_; }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  void* data_ = nullptr;
  Destroy destroy_ = nullptr;
};

// A matrix as it lies: `rows` of `columns` elements, which the library, that counts columns first,
// takes for the transposed one.
struct Matrix {
  int type;
  int64_t rows, columns, row_stride, batch_stride;
};

Descriptor make_layout(const Api& api, const Matrix& m, int64_t batches) {
  void* layout = nullptr;
  if (api.MatrixLayoutCreate(&layout, m.type, static_cast<uint64_t>(m.columns),
                             static_cast<uint64_t>(m.rows), m.row_stride) != kSuccess)
    return {};
  Descriptor out(layout, api.MatrixLayoutDestroy);
  const auto count = static_cast<int32_t>(batches);
  if (batches > 1 &&
      (api.MatrixLayoutSetAttribute(layout, kLayoutBatchCount, &count, sizeof(count)) != kSuccess ||
       api.MatrixLayoutSetAttribute(layout, kLayoutBatchStride, &m.batch_stride,
                                    sizeof(m.batch_stride)) != kSuccess))
    return {};
  return out;
}

Descriptor make_preference(const Api& api) {
  void* preference = nullptr;
  if (api.MatmulPreferenceCreate(&preference) != kSuccess) return {};
  Descriptor out(preference, api.MatmulPreferenceDestroy);
  const auto set = [&](int attribute, auto value) {
    return api.MatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)) ==
           kSuccess;
  };
  const bool is_set = set(kPreferenceWorkspace, uint64_t{CublasLt::kMostWorkspace}) &&
                      set(kPreferenceReductions, uint32_t{0}) &&
                      set(kPreferenceAlignmentA, kOperandAlignment) &&
                      set(kPreferenceAlignmentB, kOperandAlignment);
  return is_set ? std::move(out) : Descriptor();
}

// Whether one block makes all of an output.
bool sums_in_one_piece(const Api& api, const Algorithm& algorithm) {
  int32_t splits = 0;
  uint32_t reduction = 0;
  size_t written = 0;
  return api.MatmulAlgoConfigGetAttribute(&algorithm, kConfigSplits, &splits, sizeof(splits),
                                          &written) == kSuccess &&
         api.MatmulAlgoConfigGetAttribute(&algorithm, kConfigReduction, &reduction,
                                          sizeof(reduction), &written) == kSuccess &&
         splits <= 1 && reduction == 0;
}

}  // namespace

// The library with a handle of one device, which is current when it is made.
class CublasLt::Library {
 public:
  Library(const Api& functions, void* made, const Context& context)
      : api(functions), handle(made), context_(context) {}
  ~Library() {
    const CurrentDevice current(context_);
    (void)api.Destroy(handle);
  }
  Library(const Library&) = delete;

  const Api api;
  void* const handle;

 private:
  const Context& context_;
};

class CublasLt::Planned final : public ops::PlannedProduct {
 public:
  explicit Planned(std::shared_ptr<const Library> library) : library_(std::move(library)) {}

  // False: the library has nothing for it. The right factor comes first: of what lies row by row
  // the library sees the transposed matrices, and y' = w' x'.
  bool choose(const ops::DenseProduct& p) {
    const Api& api = library_->api;
    const int type = p.type == DType::kF16 ? kFloat16 : kBFloat16;
    void* operation = nullptr;
    if (api.MatmulDescCreate(&operation, kComputeFloat32, kFloat32) != kSuccess) return false;
    operation_ = Descriptor(operation, api.MatmulDescDestroy);
    const int32_t transpose = kTranspose;
    if (p.transposed && api.MatmulDescSetAttribute(operation, kDescTransposeA, &transpose,
                                                   sizeof(transpose)) != kSuccess)
      return false;
    w_ = make_layout(api,
                     {type, p.transposed ? p.columns : p.inner, p.transposed ? p.inner : p.columns,
                      p.w_row, p.w_batch},
                     p.batches);
    x_ = make_layout(api, {type, p.rows, p.inner, p.x_row, p.x_batch}, p.batches);
    y_ = make_layout(api, {kFloat32, p.rows, p.columns, p.columns, p.rows * p.columns}, p.batches);
    const Descriptor preference = make_preference(api);
    if (!w_ || !x_ || !y_ || !preference) return false;
    Candidate candidates[kMostCandidates] = {};
    int found = 0;
    if (api.MatmulAlgoGetHeuristic(library_->handle, operation, w_.get(), x_.get(), y_.get(),
                                   y_.get(), preference.get(), kMostCandidates, candidates,
                                   &found) != kSuccess)
      return false;
    for (int i = 0; i < found; ++i) {
      const Candidate& c = candidates[i];
      if (c.status != kSuccess || c.workspace_bytes > kMostWorkspace ||
          !sums_in_one_piece(api, c.algorithm))
        continue;
      algorithm_ = c.algorithm;
      workspace_bytes_ = c.workspace_bytes;
      return true;
    }
    return false;
  }

  size_t workspace_bytes() const override { return workspace_bytes_; }

  void launch(const void* x, const void* w, float* y, std::byte* workspace,
              ops::LaunchQueue& queue) const override {
    if (queue.failure != 0) return;
    const float one = 1, zero = 0;
    const int status = library_->api.Matmul(library_->handle, operation_.get(), &one, w, w_.get(),
                                            x, x_.get(), &zero, y, y_.get(), y, y_.get(),
                                            &algorithm_, workspace, workspace_bytes_, queue.stream);
    if (status != kSuccess) queue.failure = failure_of_status(status);
  }

 private:
  const std::shared_ptr<const Library> library_;
  Descriptor operation_, w_, x_, y_;
  Algorithm algorithm_{};
  size_t workspace_bytes_ = 0;
};

CublasLt::CublasLt(const Context& context, std::string wheels)
    : context_(context), wheels_(std::move(wheels)) {}
CublasLt::~CublasLt() = default;

Result<std::shared_ptr<const ops::PlannedProduct>> CublasLt::plan(
    const ops::DenseProduct& product) const {
  using Product = std::shared_ptr<const ops::PlannedProduct>;
  const CurrentDevice current(context_);
  std::call_once(once_, [this] { found_ = find(); });
  LMN_RETURN_IF_ERROR(found_);
  if (library_ == nullptr) return Product();
  auto planned = std::make_shared<Planned>(library_);
  const std::lock_guard<std::mutex> lock(mutex_);
  return planned->choose(product) ? Product(std::move(planned)) : Product();
}

Status CublasLt::find() const {
  const auto use = [this](const std::string& path, bool only_loaded) -> Status {
    LMN_ASSIGN_OR_RETURN(library_, open(path, only_loaded));
    return {};
  };
  const char* wanted = std::getenv(kVariable);
  if (wanted != nullptr && *wanted != '\0') {
    if (std::string_view(wanted) == "0") return {};
    const Status status = use(wanted, false);
    if (status.ok()) return {};
    return error(Code::kInvalidArgument, "%s: %s; it names a libcublasLt.so, or is 0 or not set",
                 kVariable, std::string(status.message()).c_str());
  }
  constexpr const char *kNames[] = {"libcublasLt.so.13", "libcublasLt.so.12"},
                       *kFolders[] = {"/nvidia/cu13/lib/", "/nvidia/cublas/lib/"};
  for (const bool only_loaded : {true, false}) {
    for (const char* name : kNames) {
      if (use(name, only_loaded).ok()) return {};
    }
  }
  if (wheels_.empty()) return {};
  for (const int i : {0, 1}) {
    if (use(wheels_ + kFolders[i] + kNames[i], false).ok()) return {};
  }
  return {};
}

Result<std::shared_ptr<const CublasLt::Library>> CublasLt::open(const std::string& path,
                                                                bool only_loaded) const {
  const auto refuse = [&path](const std::string& why) {
    return error(Code::kUnsupported, "%s %s", path.c_str(), why.c_str());
  };
  void* file = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | (only_loaded ? RTLD_NOLOAD : 0));
  if (file == nullptr) {
    const char* why = dlerror();
    return refuse("cannot be loaded" + (why == nullptr ? "" : ": " + std::string(why)));
  }
  Api api;
  std::string missing;
#define LMN_CUBLAS_LT_LOAD(name, Returned, parameters)                                \
  api.name = reinterpret_cast<Returned(*) parameters>(dlsym(file, "cublasLt" #name)); \
  if (api.name == nullptr) missing = "cublasLt" #name;
  LMN_CUBLAS_LT_FUNCTIONS(LMN_CUBLAS_LT_LOAD)
#undef LMN_CUBLAS_LT_LOAD
  if (!missing.empty()) {
    (void)dlclose(file);
    return refuse("has no " + missing);
  }
  const size_t version = api.GetVersion();
  if (version < kOldestVersion || version >= kUnknownVersion) {
    (void)dlclose(file);
    return refuse("is version " + std::to_string(version / 10000) + "." +
                  std::to_string(version / 100 % 100) + ", and 12 and 13 are known");
  }
  void* handle = nullptr;
  const int status = api.Create(&handle);
  if (status != kSuccess) {
    (void)dlclose(file);
    return refuse("gives no handle for this device: status " + std::to_string(status));
  }
  return std::shared_ptr<const Library>(std::make_shared<Library>(api, handle, context_));
}

std::string folder_of_wheels() {
  Dl_info own{};
  if (dladdr(reinterpret_cast<const void*>(&folder_of_wheels), &own) == 0) return {};
  std::string path = own.dli_fname;
  for (int i = 0; i < 3; ++i) path.resize(std::min(path.size(), path.rfind('/')));
  return path;
}

}  // namespace lmn::cuda
