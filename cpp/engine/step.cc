// SPDX-License-Identifier: Apache-2.0
//
// One step of the engine: compose it from the running sequences, run it, sample, deliver. The
// engine thread is member 0 of the team; the others help with running and sampling. Where the
// runner samples, the step asks it for tokens, and for no more logits than the engine looks at.
#include <algorithm>
#include <cmath>
#include <utility>

#include "core/check.h"
#include "engine/batch.h"
#include "engine/engine_impl.h"
#include "engine/pace.h"
#include "engine/philox.h"

namespace lmn::engine {
namespace {

// Logits to look at before the team shares the sampling: waking it costs a few µs, and one member
// reads about ten logits a ns.
constexpr int64_t kShareSamplingFrom = 65'536;

}  // namespace

void Engine::Impl::step(int64_t begin_ns) {
  StepTimes times;
  times.begin = begin_ns;
  if (!compose()) return;
  times.scheduled = parallel::now_ns();
  const StepSizes sizes = write_batch(step_, members_, limits_, kv_.page_step(), inputs_);
  times.prepared = parallel::now_ns();
  list_rows();
  const Status ran = run_step(sizes);
  times.ran = parallel::now_ns();
  // Before the delivery: who has seen the end of its request sees its last step counted.
  counters_.steps.fetch_add(1, std::memory_order_relaxed);
  if (ran.ok()) {
    count_and_score();
    sample_rows();
    times.sampled = parallel::now_ns();
    deliver_rows(times.sampled);
  } else {
    times.sampled = times.ran;
    for (const Slice& slice : step_) {
      Sequence& sequence = *members_[static_cast<size_t>(slice.sequence)];
      sequence.cache.written = slice.begin + slice.tokens;
      end_sequence(sequence, {FinishReason::kError, -1, ran});
    }
  }
  for (const Slice& slice : step_) {
    Sequence& sequence = *members_[static_cast<size_t>(slice.sequence)];
    if (sequence.running()) running_.update(sequence);
  }
  for (std::shared_ptr<Sequence>& sequence : joining_) {
    if (sequence->ended) continue;
    if (running_.size() < static_cast<size_t>(options_.max_sequences)) {
      join_running(std::move(sequence));
    } else {
      release_pages(*sequence);
      wait_again(sequence);
    }
  }
  joining_.clear();
  use_up_ranks();
  ended_.clear();  // whoever is told of the end finds the memory given back
  send_announcements();
  times.delivered = parallel::now_ns();
  record_step(times, sizes);
}

// Chooses what the step computes and takes the pages for it. Where they lack, the last in
// precedence gives its own; the first always gets what it needs, because admission let nothing in
// that the whole cache could not hold. False: who was to go on has given its pages, and the others
// are not due.
bool Engine::Impl::compose() {
  for (;;) {
    running_.list_ready(static_cast<size_t>(limits_.sequences), members_);
    if (members_.empty()) return false;
    views_.clear();
    size_t answers = 0;
    for (const Sequence* sequence : members_) {
      const int32_t wanted = sequence->request().options().prefill_chunk_tokens;
      const int32_t chunk = wanted > 0 ? std::min(wanted, options_.prefill_chunk_tokens)
                                       : options_.prefill_chunk_tokens;
      views_.push_back({sequence->known_tokens(), sequence->cache.computed, chunk,
                        sequence->request().is_score()});
      answers += sequence->known_tokens() - sequence->cache.computed == 1 ? 1 : 0;
    }
    const int32_t paced = answers > 0 ? pacer_.prefill_tokens(answers, members_.size() - answers)
                                      : options_.prefill_chunk_tokens;
    schedule(views_,
             {limits_.tokens, std::min(paced, options_.prefill_chunk_tokens), limits_.sequences,
              limits_.outputs},
             step_);
    const bool complete = std::all_of(step_.begin(), step_.end(), [this](const Slice& slice) {
      Sequence& sequence = *members_[static_cast<size_t>(slice.sequence)];
      const bool taken = take_pages(sequence, slice.begin, slice.begin + slice.tokens);
      running_.update(sequence);
      return taken;
    });
    count_pages();
    if (complete) break;
    LMN_CHECK(running_.size() > 1);
    preempt_last();
  }
  LMN_CHECK(!step_.empty());
  take_turns();
  return true;
}

// Where a step has no room for all who need one token, those of them who are in it go behind the
// others.
void Engine::Impl::take_turns() {
  const auto answers =
      static_cast<size_t>(std::count_if(step_.begin(), step_.end(), [this](const Slice& slice) {
        const SequenceView& view = views_[static_cast<size_t>(slice.sequence)];
        return view.known - view.computed == 1;
      }));
  if (answers == running_.ready_answers()) return;
  for (size_t i = 0; i < answers; ++i)
    running_.end_turn(*members_[static_cast<size_t>(step_[i].sequence)]);
}

// Pages for tokens [begin, end) that the sequence may write to. False: too few are available; what
// was taken stays the sequence's.
bool Engine::Impl::take_pages(Sequence& sequence, int32_t begin, int32_t end) {
  std::vector<int32_t>& table = sequence.cache.pages;
  const auto first = static_cast<size_t>(begin / kKvPageTokens);
  if (first < table.size() && pages_.shared(table[first])) {  // forked: copy on write
    const int32_t copy = pages_.allocate();
    if (copy == kNoPage) return false;
    require_device(kv_.copy_page(table[first], copy));
    pages_.release(table[first]);
    table[first] = copy;
  }
  while (static_cast<int64_t>(table.size()) < kv_pages(end)) {
    const int32_t page = pages_.allocate();
    if (page == kNoPage) return false;
    table.push_back(page);
  }
  return true;
}

void Engine::Impl::count_computed(Sequence& sequence, const Slice& slice) {
  const int32_t prompt = sequence.prompt_tokens();
  sequence.cache.computed = sequence.cache.written = slice.begin + slice.tokens;
  const int32_t prefilled = std::min(sequence.cache.computed, prompt);
  sequence.request().mark_prefilled(prefilled);
  counters_.prompt_tokens.fetch_add(prefilled - std::min(slice.begin, prompt),
                                    std::memory_order_relaxed);
}

// Which sequence gets its next token from which row, and where. The samples of a request whose
// prompt is computed in this step all start from the same row.
void Engine::Impl::list_rows() {
  const bool runner_samples = parts_.runner->samples();
  rows_.clear();
  device_rows_.clear();
  host_rows_.clear();
  rows_here_ = 0;
  int32_t output = 0;
  const auto add = [&](Sequence& sequence, bool on_device) {
    int32_t place = -1;
    if (on_device) {
      place = static_cast<int32_t>(device_rows_.size());
      const auto index = static_cast<uint64_t>(sequence.generated_tokens());
      device_rows_.push_back(sample_row(sequence.request().options().sampling,
                                        uniform(sequence.seed(), index), output));
    }
    rows_here_ += on_device ? 0 : 1;
    rows_.push_back({&sequence, output, place, {}});
  };
  for (const Slice& slice : step_) {
    Sequence& sequence = *members_[static_cast<size_t>(slice.sequence)];
    const RequestCore& request = sequence.request();
    // By the request alone: the batch has no say in how a token is made.
    const RequestOptions& options = request.options();
    const bool on_device = runner_samples && !request.is_score() && options.logits == nullptr &&
                           is_plain(options.sampling);
    if (!request.is_score() && slice.outputs > 0) {
      add(sequence, on_device);
      for (int32_t i = 1; i < request.samples() && !request.forked; ++i)
        add(request.sequence(i), on_device);
    }
    for (int32_t i = 0; i < slice.outputs && !on_device; ++i) host_rows_.push_back(output + i);
    output += slice.outputs;
  }
  device_choices_.assign(device_rows_.size(), {});
}

Status Engine::Impl::run_step(const StepSizes& sizes) {
  if (parts_.runner->samples()) {
    return parts_.runner->run_sampling(sizes, {device_rows_, host_rows_}, device_choices_,
                                       *parts_.team);
  }
  LMN_ASSIGN_OR_RETURN(logits_, parts_.runner->run(sizes, *parts_.team));
  return {};
}

const float* Engine::Impl::row_of_logits(int32_t output) const {
  return logits_ != nullptr ? logits_ + int64_t{output} * limits_.vocab_size
                            : parts_.runner->logits(output);
}

void Engine::Impl::count_and_score() {
  int32_t output = 0;
  for (const Slice& slice : step_) {
    Sequence& sequence = *members_[static_cast<size_t>(slice.sequence)];
    count_computed(sequence, slice);
    if (sequence.request().is_score()) {
      Verdict verdict = deliver_scored(sequence, slice, output);
      if (verdict.reason != FinishReason::kNone) end_sequence(sequence, std::move(verdict));
    }
    output += slice.outputs;
  }
}

void Engine::Impl::sample_rows() {
  const auto choose = [this](Row& row, Sampler& sampler) {
    const Sequence& sequence = *row.sequence;
    if (row.on_device >= 0) {
      row.choice = {device_choices_[static_cast<size_t>(row.on_device)], 0};
      return;
    }
    const Sampler::Input input{{row_of_logits(row.output), static_cast<size_t>(limits_.vocab_size)},
                               {sequence.tokens(), static_cast<size_t>(sequence.known_tokens())},
                               sequence.prompt_tokens(),
                               sequence.seed()};
    row.choice = sampler.choose(sequence.request().options().sampling, input,
                                row.sequence->next_top_logprobs());
  };
  const auto members = static_cast<size_t>(parts_.team->size());
  const int64_t work = int64_t{rows_here_} * limits_.vocab_size;
  if (rows_here_ < 2 || members < 2 || work < kShareSamplingFrom) {
    for (Row& row : rows_) choose(row, samplers_[0]);
    return;
  }
  parts_.team->run([&](int member) {
    const auto index = static_cast<size_t>(member);
    for (size_t i = index; i < rows_.size(); i += members) choose(rows_[i], samplers_[index]);
  });
}

void Engine::Impl::deliver_rows(int64_t now) {
  for (size_t i = 0; i < rows_.size(); ++i) {
    const Row& row = rows_[i];
    Sequence& sequence = *row.sequence;
    if (sequence.ended) continue;  // with its first sample
    Verdict verdict = deliver_row(row, now);
    if (verdict.reason != FinishReason::kNone) {
      end_sequence(sequence, std::move(verdict));
    } else {
      sequence.publish();
      announce(sequence.request());
    }
  }
}

Status Engine::Impl::not_finite(int32_t logit, const char* where, int32_t token,
                                float value) const {
  const bool narrow = kv_.binding().dtype != DType::kF32;
  return error(Code::kCorrupt,
               "logit %d %s %d is %s: the model's weights or its arithmetic are broken%s", logit,
               where, token,
               std::isnan(value) ? "nan"
               : value > 0       ? "inf"
                                 : "-inf",
               narrow ? ", or its keys and values exceed float16 (kv_type f32 has room)" : "");
}

Verdict Engine::Impl::deliver_row(const Row& row, int64_t now) {
  Sequence& sequence = *row.sequence;
  const Sampler::Choice& choice = row.choice;
  RequestCore& request = sequence.request();
  if (choice.non_finite >= 0) {
    return {FinishReason::kError, -1,
            not_finite(choice.non_finite, "of generated token", sequence.generated_tokens(),
                       choice.value)};
  }
  if (sequence.sample() == 0 || request.forked) {
    sequence.cache.verified = sequence.cache.computed;
    publish_pages(sequence);
  }
  if (sequence.sample() == 0 && !request.forked) fork_siblings(sequence);
  if (choice.token_id < 0) {
    return {FinishReason::kError, -1,
            error(Code::kInvalidArgument, "logit_bias and penalties leave no token to choose")};
  }
  if (float* copy = sequence.next_logits(); copy != nullptr)
    std::copy_n(row_of_logits(row.output), static_cast<size_t>(limits_.vocab_size), copy);
  if (request.first_token_ns() == 0) {
    request.mark_first_token(now);
    histograms_.first_token.add(now - request.fixed().submit_ns);
  } else if (sequence.news_ns != 0) {
    histograms_.inter_token.add(now - sequence.news_ns);
  }
  sequence.news_ns = now;
  if (const int64_t interval = request.options().token_interval_ns; interval > 0) {
    sequence.due_ns = next_due(sequence.due_ns, now, interval);
    sequence.wake_ns = wake_time(sequence.due_ns, interval);
  }
  counters_.generated_tokens.fetch_add(1, std::memory_order_relaxed);
  return deliver(sequence, choice.token_id, choice.logprob);
}

Verdict Engine::Impl::deliver_scored(Sequence& sequence, const Slice& slice, int32_t output) {
  const auto vocab = static_cast<size_t>(limits_.vocab_size);
  for (int32_t i = 0; i < slice.outputs; ++i) {
    const float* row = row_of_logits(output + i);
    const int32_t bad = first_non_finite({row, vocab});
    if (bad >= 0) {
      return {FinishReason::kError, -1, not_finite(bad, "after token", slice.begin + i, row[bad])};
    }
    std::copy_n(row, vocab, sequence.request().logits_row(0, slice.begin + i));
  }
  sequence.cache.verified = sequence.cache.computed;
  const bool done = sequence.cache.computed == sequence.prompt_tokens();
  return {done ? FinishReason::kLength : FinishReason::kNone, -1, {}};
}

// Whole pages of verified tokens become known to the prefix cache. Where an equal page was known
// before, the sequence goes on with that one.
void Engine::Impl::publish_pages(Sequence& sequence) {
  if (!options_.prefix_cache) return;
  Sequence::Cache& cache = sequence.cache;
  for (; cache.published < cache.verified / kKvPageTokens; ++cache.published) {
    const auto i = static_cast<size_t>(cache.published);
    cache.pages[i] = pages_.publish(i == 0 ? kNoPage : cache.pages[i - 1],
                                    sequence.tokens() + i * kKvPageTokens, cache.pages[i]);
  }
}

// The samples behind the first share its pages from here on; who writes to a shared page copies it
// before (take_pages).
void Engine::Impl::fork_siblings(Sequence& leader) {
  RequestCore& request = leader.request();
  request.forked = true;
  for (int32_t i = 1; i < request.samples(); ++i) {
    Sequence& sequence = request.sequence(i);
    for (const int32_t page : leader.cache.pages) {
      pages_.retain(page);
      sequence.cache.pages.push_back(page);
    }
    sequence.cache.computed = sequence.cache.written = leader.cache.computed;
    sequence.cache.verified = leader.cache.verified;
    sequence.cache.published = leader.cache.published;
    sequence.level = leader.level;
    sequence.raised_steps = leader.raised_steps;
    sequence.started = true;
    joining_.emplace_back(request.shared_from_this(), &sequence);
  }
}

void Engine::Impl::record_step(const StepTimes& t, const StepSizes& sizes) {
  int32_t answers = 0, prompt_tokens = 0;
  for (const Slice& slice : step_) {
    const SequenceView& view = views_[static_cast<size_t>(slice.sequence)];
    (view.known - view.computed == 1 ? answers : prompt_tokens) += slice.tokens;
  }
  pacer_.record(answers, prompt_tokens, t.delivered - t.begin);
  histograms_.step.add(t.delivered - t.begin);
  Profile& profile = profiles_[static_cast<size_t>(step_kind(sizes))];
  const auto part = [&](Histogram& histogram, plan::ProfileCounter& counter, const char* name,
                        int64_t begin, int64_t end) {
    histogram.add(end - begin);
    if (options_.profile) counter.add(end - begin);
    trace_.add({name, begin, end, 0, sizes.tokens, sizes.sequences});
  };
  part(histograms_.schedule, profile.schedule, "schedule", t.begin, t.scheduled);
  part(histograms_.prepare, profile.prepare, "prepare", t.scheduled, t.prepared);
  part(histograms_.run, profile.run, "run", t.prepared, t.ran);
  part(histograms_.sample, profile.sample, "sample", t.ran, t.sampled);
  part(histograms_.deliver, profile.deliver, "deliver", t.sampled, t.delivered);
}

}  // namespace lmn::engine
