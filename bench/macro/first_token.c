/* SPDX-License-Identifier: Apache-2.0
 *
 * first_token MODEL THREADS: opens, generates one token greedily, prints its id and the peak RSS in
 * KiB. */
#include <lmnative/lmnative.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "peak_rss.h"

static int fail(lmn_error *error) {
  fprintf(stderr, "first_token: %s\n", lmn_error_message(error));
  lmn_error_destroy(error);
  return 1;
}

int main(int argc, char **argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: first_token MODEL THREADS\n");
    return 2;
  }
  lmn_error *error = NULL;
  lmn_model *model = NULL;
  if (lmn_model_open(argv[1], NULL, &model, &error) != LMN_OK) return fail(error);
  lmn_engine_options engine_options = {.struct_size = sizeof engine_options,
                                       .threads = atoi(argv[2])};
  lmn_engine *engine = NULL;
  if (lmn_engine_create(model, &engine_options, &engine, &error) != LMN_OK) return fail(error);
  const char *prompt = "The capital of France is";
  lmn_request_options options = {.struct_size = sizeof options,
                                 .prompt = prompt,
                                 .prompt_bytes = strlen(prompt),
                                 .max_tokens = 1};
  lmn_request *request = NULL;
  if (lmn_engine_submit(engine, &options, &request, &error) != LMN_OK) return fail(error);
  lmn_chunk chunk = {.struct_size = sizeof chunk};
  if (lmn_request_next(request, -1, &chunk, &error) != LMN_OK || chunk.token_count != 1)
    return fail(error);
  printf("%d %ld\n", chunk.token_ids[0], peak_rss_kib());
  lmn_request_destroy(request);
  lmn_engine_destroy(engine);
  lmn_model_destroy(model);
  return 0;
}
