// SPDX-License-Identifier: Apache-2.0
//
// Exports of lmnative/session.h for runs that nobody waits for.
#include "capi/session_object.h"
#include "capi/session_value.h"
#include "parallel/clock.h"

struct lmn_run {
  std::shared_ptr<lmn::plan::Submission> object;
};

using namespace lmn;        // NOLINT: this file's exports
using namespace lmn::capi;  // NOLINT

extern "C" {

lmn_status lmn_session_submit(lmn_session* session, const lmn_session_value* const* inputs,
                              size_t input_count, const lmn_session_value* const* outputs,
                              size_t output_count, lmn_run_fn callback, void* user, lmn_run** run,
                              lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(session);
    if (callback == nullptr) LMN_REQUIRE_ONE(run);
    const plan::Program& program = *session->object->program;
    auto submission = std::make_shared<plan::Submission>();
    LMN_ASSIGN_OR_RETURN(submission->inputs,
                         read_values(inputs, input_count, program.inputs().size(), "inputs"));
    if (output_count != program.outputs().size())
      return error(Code::kInvalidArgument, "%zu outputs; the model has %zu", output_count,
                   program.outputs().size());
    submission->outputs.resize(output_count);
    for (size_t i = 0; i < output_count && outputs != nullptr; ++i) {
      if (outputs[i] != nullptr) submission->outputs[i] = outputs[i]->object;
    }
    if (callback != nullptr) {
      submission->callback = [callback, user](const std::shared_ptr<plan::Submission>& object) {
        lmn_run handle{object};
        try {
          callback(user, &handle);
        } catch (...) {  // the caller's, who was told not to
        }
      };
    }
    std::unique_ptr<lmn_run> handle;
    if (run != nullptr) handle.reset(new lmn_run{submission});
    LMN_RETURN_IF_ERROR(session->submitter->submit(std::move(submission)));
    if (run != nullptr) *run = handle.release();
    return {};
  });
}

lmn_status lmn_run_wait(lmn_run* run, int64_t timeout_ns, lmn_session_value** outputs,
                        size_t output_count, lmn_error** err) {
  return guard(err, [&]() -> Outcome {
    LMN_REQUIRE_ONE(run);
    if (output_count > 0) LMN_REQUIRE_ONE(outputs);
    plan::Submission& submission = *run->object;
    LMN_RETURN_IF_ERROR(submission.wait(parallel::deadline_after(timeout_ns)));
    if (output_count == 0) return {};
    if (output_count != submission.outputs.size())
      return error(Code::kInvalidArgument, "%zu outputs; the model has %zu", output_count,
                   submission.outputs.size());
    std::vector<std::unique_ptr<lmn_session_value>> made;
    for (const ops::RuntimeValue& output : submission.outputs) made.emplace_back(new_value(output));
    for (size_t i = 0; i < output_count; ++i) outputs[i] = made[i].release();
    return {};
  });
}

void lmn_run_cancel(lmn_run* run) {
  if (run != nullptr) run->object->cancelled.store(true, std::memory_order_relaxed);
}

void lmn_run_destroy(lmn_run* run) {
  guard_destroy([&] { delete run; });
}

}  // extern "C"
