/* SPDX-License-Identifier: Apache-2.0
 *
 * The tokenizer of a model: byte-level BPE and SentencePiece BPE from GGUF metadata, streaming
 * decoder, chat templates.
 *
 * An lmn_tokenizer is immutable: any number of threads may use one. An lmn_decoder is for one
 * thread at a time.
 *
 * Functions that write a variable number of items take (buffer, capacity, count): *count is always
 * set to the number needed. When capacity is smaller they write nothing and return
 * LMN_BUFFER_TOO_SMALL (without an error object when capacity is 0 and the buffer NULL: that is how
 * to ask for the size).
 */
#ifndef LMNATIVE_TOKENIZER_H_
#define LMNATIVE_TOKENIZER_H_

#include "lmnative/model.h"

LMN_BEGIN_C

typedef struct lmn_tokenizer lmn_tokenizer;

/* The tokenizer described by the model's metadata; built at the first call, shared afterwards. It
 * keeps the model alive. LMN_UNSUPPORTED names a tokenizer model or pre-tokeniser that this version
 * does not know. */
LMN_API lmn_status lmn_tokenizer_create(const lmn_model *model, lmn_tokenizer **tokenizer,
                                        lmn_error **err);
LMN_API void lmn_tokenizer_destroy(lmn_tokenizer *tokenizer);

typedef struct lmn_tokenizer_info {
  uint32_t struct_size;
  uint32_t vocab_size;
  const char *model; /* "gpt2" or "llama" */
  const char *pre;   /* "smollm" */
  int32_t bos_id;    /* -1 where there is none; so below */
  int32_t eos_id;
  int32_t eot_id;
  int32_t unk_id;
  int32_t pad_id;
  uint32_t add_bos; /* 1 if encode adds it by default */
  uint32_t add_eos;
  uint32_t reserved;
} lmn_tokenizer_info;

/* Size, special tokens and defaults. */
LMN_API lmn_status lmn_tokenizer_info_get(const lmn_tokenizer *tokenizer, lmn_tokenizer_info *info,
                                          lmn_error **err);

/* Token kinds (GGUF tokenizer.ggml.token_type). */
#define LMN_TOKEN_NORMAL 1
#define LMN_TOKEN_UNKNOWN 2
#define LMN_TOKEN_CONTROL 3
#define LMN_TOKEN_USER_DEFINED 4
#define LMN_TOKEN_UNUSED 5
#define LMN_TOKEN_BYTE 6

typedef struct lmn_token_info {
  uint32_t struct_size;
  uint32_t kind;     /* LMN_TOKEN_* */
  const char *bytes; /* what it decodes to; may be half a character */
  uint64_t byte_count;
  uint32_t end_of_generation; /* 1 if generation stops at it unless told to ignore it */
  uint32_t reserved;
} lmn_token_info;

/* One token. LMN_INVALID_ARGUMENT names an id out of range. */
LMN_API lmn_status lmn_tokenizer_token_get(const lmn_tokenizer *tokenizer, int32_t id,
                                           lmn_token_info *info, lmn_error **err);

/* Tri-state of options. */
#define LMN_DEFAULT 0
#define LMN_YES 1
#define LMN_NO 2

typedef struct lmn_encode_options {
  uint32_t struct_size;
  uint32_t parse_special; /* 1: the text of control tokens ("<|im_start|>") becomes those tokens.
                             Default 0: plain text */
  uint32_t add_bos;       /* LMN_DEFAULT (as the model says), LMN_YES, LMN_NO */
  uint32_t add_eos;       /* the same */
} lmn_encode_options;

/* Text to ids. LMN_INVALID_ARGUMENT names the byte offset of ill-formed UTF-8. `options` may be
 * NULL. */
LMN_API lmn_status lmn_tokenizer_encode(const lmn_tokenizer *tokenizer, const char *text,
                                        size_t text_bytes, const lmn_encode_options *options,
                                        int32_t *ids, size_t capacity, size_t *count,
                                        lmn_error **err);

typedef struct lmn_decode_options {
  uint32_t struct_size;
  uint32_t skip_special;       /* 1: control tokens give no text */
  uint32_t keep_leading_space; /* 1: the ids continue other text (SentencePiece: the first token
                                  keeps its space) */
  uint32_t reserved;
} lmn_decode_options;

/* Ids to text: valid UTF-8, not NUL-terminated; ill-formed bytes become U+FFFD.
 * LMN_INVALID_ARGUMENT names an id out of range. */
LMN_API lmn_status lmn_tokenizer_decode(const lmn_tokenizer *tokenizer, const int32_t *ids,
                                        size_t id_count, const lmn_decode_options *options,
                                        char *text, size_t capacity, size_t *text_bytes,
                                        lmn_error **err);

/* Decodes a stream of ids: never hands out half a character. */
typedef struct lmn_decoder lmn_decoder;
/* Keeps the tokenizer alive. `options` may be NULL. */
LMN_API lmn_status lmn_decoder_create(const lmn_tokenizer *tokenizer,
                                      const lmn_decode_options *options, lmn_decoder **decoder,
                                      lmn_error **err);
LMN_API void lmn_decoder_destroy(lmn_decoder *decoder);
/* Adds one token. *text, *text_bytes: what is complete now (perhaps nothing); valid until the next
 * call on `decoder`. */
LMN_API lmn_status lmn_decoder_decode(lmn_decoder *decoder, int32_t id, const char **text,
                                      size_t *text_bytes, lmn_error **err);
/* Ends the stream: an incomplete tail becomes U+FFFD. The decoder may be used again. */
LMN_API lmn_status lmn_decoder_flush(lmn_decoder *decoder, const char **text, size_t *text_bytes,
                                     lmn_error **err);

typedef struct lmn_chat_message {
  const char *role; /* "system", "user", "assistant" */
  const char *content;
  uint64_t content_bytes;
} lmn_chat_message;

typedef struct lmn_chat_options {
  uint32_t struct_size;
  uint32_t no_generation_prompt; /* 1: do not open the assistant's turn at the end */
} lmn_chat_options;

/* Renders messages with the model's chat template, natively for the families listed in the README;
 * encode the result with parse_special = 1. LMN_UNSUPPORTED for any other template: render
 * lmn_model_metadata_find("tokenizer.chat_template") with a Jinja2 engine (the Python package
 * does). LMN_NOT_FOUND if the model has no template. */
LMN_API lmn_status lmn_tokenizer_chat_render(const lmn_tokenizer *tokenizer,
                                             const lmn_chat_message *messages, size_t message_count,
                                             const lmn_chat_options *options, char *text,
                                             size_t capacity, size_t *text_bytes, lmn_error **err);

LMN_END_C

#endif /* LMNATIVE_TOKENIZER_H_ */
