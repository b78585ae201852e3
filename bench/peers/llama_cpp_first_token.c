/* SPDX-License-Identifier: Apache-2.0
 *
 * llama_cpp_first_token MODEL THREADS: what macro/first_token.c does, with llama.cpp: opens,
 * computes the prompt, chooses greedily, prints the token's id and the peak RSS in KiB. */
#include <llama.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../macro/peak_rss.h"

static void silent(enum ggml_log_level level, const char *text, void *user) {
  (void)level, (void)text, (void)user;
}

int main(int argc, char **argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: llama_cpp_first_token MODEL THREADS\n");
    return 2;
  }
  llama_log_set(silent, NULL);
  llama_backend_init();
  struct llama_model *model = llama_model_load_from_file(argv[1], llama_model_default_params());
  if (!model) return 1;
  struct llama_context_params params = llama_context_default_params();
  params.n_ctx = 0; /* the model's own, as lmnative's default */
  params.n_threads = params.n_threads_batch = atoi(argv[2]);
  struct llama_context *context = llama_init_from_model(model, params);
  if (!context) return 1;
  const struct llama_vocab *vocab = llama_model_get_vocab(model);
  const char *prompt = "The capital of France is";
  llama_token ids[64];
  const int n = llama_tokenize(vocab, prompt, (int)strlen(prompt), ids, 64, true, false);
  if (n <= 0 || llama_decode(context, llama_batch_get_one(ids, n)) != 0) return 1;
  const float *logits = llama_get_logits_ith(context, -1);
  int best = 0;
  for (int i = 1; i < llama_vocab_n_tokens(vocab); ++i) {
    if (logits[i] > logits[best]) best = i;
  }
  printf("%d %ld\n", best, peak_rss_kib());
  llama_free(context);
  llama_model_free(model);
  return 0;
}
