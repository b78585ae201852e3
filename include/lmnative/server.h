/* SPDX-License-Identifier: Apache-2.0
 *
 * An HTTP server in the library: OpenAI's API over engines and sessions, on a few threads of its
 * own that never block on a client. What it answers is written down in its /openapi.json.
 *
 * An lmn_server may be used by any number of threads at once, except in destroy. A child process
 * after fork gets LMN_CLOSED from every call on an inherited server; it shares the listening socket
 * until it calls destroy, which touches nothing of the parent's.
 *
 * HTTP/1.1 and 1.0, without TLS: put a reverse proxy before it where it is reached from elsewhere.
 */
#ifndef LMNATIVE_SERVER_H_
#define LMNATIVE_SERVER_H_

#include "lmnative/engine.h"
#include "lmnative/session.h"

LMN_BEGIN_C

typedef struct lmn_server lmn_server;

/* What a callback of the server answers. */
typedef struct lmn_reply lmn_reply;
/* Copies `bytes` of UTF-8 text: the answer, or, where the callback then fails, the message. */
LMN_API lmn_status lmn_reply_text_set(lmn_reply *reply, const char *text, uint64_t bytes,
                                      lmn_error **err);
/* Copies `count` token ids. */
LMN_API lmn_status lmn_reply_ids_set(lmn_reply *reply, const int32_t *ids, uint64_t count,
                                     lmn_error **err);

/* Renders a chat for which the library has no renderer of its own (see lmn_tokenizer_chat_render):
 * an unknown template or none, tools, contents that are not text. `request` is the JSON body of the
 * chat completion, an object with "messages"; the reply is the prompt, in which control tokens are
 * parsed. Called on a helper thread of the server, one call at a time; `model` and `request` are
 * borrowed for the call. LMN_INVALID_ARGUMENT blames the messages (the client gets 400 with the
 * reply's text), any other failure the server (500). It must not throw. */
typedef lmn_status (*lmn_chat_fn)(void *user, const lmn_model *model, const char *request,
                                  uint64_t request_bytes, lmn_reply *reply);

#define LMN_SERVER_NO_PAGE 1u /* nothing at "/": the page for people */

/* Pointers are read during create only, but for `chat` and its user. */
typedef struct lmn_server_options {
  uint32_t struct_size;
  uint32_t flags;        /* LMN_SERVER_* */
  const char *host;      /* address or name to listen on; NULL: "127.0.0.1", this machine only */
  const char *unix_path; /* listen on a UNIX socket of this path instead; removed at stop. One that
                            nobody listens on any more is replaced */
  uint32_t port;         /* 0: a free one, see lmn_server_info */
  uint32_t unix_mode;    /* permissions of the UNIX socket; 0: 0600 */
  int32_t threads;       /* for connections, 1 to 64; 0: 1, or 2 from 16 usable CPUs on */
  uint32_t max_connections;   /* more wait in the system's backlog; 0: 65536 */
  uint32_t max_requests;      /* in work at once, beyond which clients get 429; 0: 16384 */
  uint32_t max_header_bytes;  /* request line and header, up to 1 MiB; beyond: 431. 0: 16 KiB */
  uint64_t max_body_bytes;    /* beyond: 413. 0: 8 MiB */
  uint64_t max_stream_bytes;  /* unsent bytes of one answer, beyond which it pauses; 0: 256 KiB */
  uint64_t header_timeout_ns; /* first byte of a request to the end of its header; 0: 10 s */
  uint64_t body_timeout_ns;   /* header to the end of the body; 0: 60 s */
  uint64_t idle_timeout_ns;   /* between requests of a connection; 0: 120 s */
  uint64_t write_timeout_ns; /* without a byte taken by a client that has bytes to read, after which
                                it is dropped; 0: 30 s */
  const lmn_string *api_keys; /* with any of them requests need "Authorization: Bearer KEY" */
  uint64_t api_key_count;
  const lmn_string *admin_keys; /* for /admin; without any there is no /admin. They open the rest
                                   as well */
  uint64_t admin_key_count;
  const lmn_string *cors_origins; /* "https://example.com", or "*": pages of which browsers may use
                                     the server */
  uint64_t cors_origin_count;
  lmn_chat_fn chat; /* or NULL */
  void *chat_user;
  int32_t log_descriptor; /* one line of JSON for each request is written to a duplicate of it; 0:
                             no log. What it does not take in time is dropped and counted */
  uint32_t reserved;
} lmn_server_options;

/* Listens, and answers /health at once; models may be added before and after. LMN_IO_ERROR names an
 * address or path that cannot be listened on. Raises the process's soft limit of descriptors to the
 * hard one where max_connections asks for it. */
LMN_API lmn_status lmn_server_create(const lmn_server_options *options, lmn_server **server,
                                     lmn_error **err);

/* Stops: no connection is accepted any more, idle ones are closed, /health says 503; what runs may
 * go on for grace_ns and is cancelled then. Blocks until nothing runs. LMN_TIMEOUT if something was
 * cancelled. Another call with less grace, on any thread, shortens one that runs. */
LMN_API lmn_status lmn_server_stop(lmn_server *server, uint64_t grace_ns, lmn_error **err);

/* Stops without grace if need be, joins all threads. Not in a callback of the server. */
LMN_API void lmn_server_destroy(lmn_server *server);

typedef struct lmn_served_options {
  uint32_t struct_size;
  uint32_t reserved;
  const char *name; /* in the requests' "model"; 1 to 255 bytes of UTF-8 without spaces. NULL: the
                       file's name without its folder and ending */
} lmn_served_options;

/* Serves an engine: completions, chat, tokens. The server keeps it alive until the model is
 * removed, also when the caller destroys its handle. LMN_INVALID_ARGUMENT if the name is taken.
 * `options` may be NULL. */
LMN_API lmn_status lmn_server_engine_add(lmn_server *server, const lmn_engine *engine,
                                         const lmn_served_options *options, lmn_error **err);

/* Turns a text into the ids that an embedding model expects, its special tokens included:
 * lmn_reply_ids_set. Where and how it is called, and its failures: as lmn_chat_fn. */
typedef lmn_status (*lmn_tokenize_fn)(void *user, const char *text, uint64_t text_bytes,
                                      lmn_reply *reply);

#define LMN_POOLING_MEAN 1u /* the mean over the tokens */
#define LMN_POOLING_CLS 2u  /* the first token */
#define LMN_POOLING_LAST 3u /* the last token */

#define LMN_EMBEDDING_RAW 1u /* vectors are not scaled to length 1 */

typedef struct lmn_embedding_options {
  uint32_t struct_size;
  uint32_t flags;                 /* LMN_EMBEDDING_* */
  const char *name;               /* in the requests' "model"; 1 to 255 bytes, not NULL */
  const lmn_tokenizer *tokenizer; /* for texts; NULL: `tokenize` */
  lmn_tokenize_fn tokenize;       /* NULL as well: requests give token ids */
  void *tokenize_user;
  uint32_t pooling;    /* LMN_POOLING_*, where the output is [batch, tokens, size]; 0: MEAN */
  uint32_t max_tokens; /* of one input; 0: 512 */
  uint32_t max_batch;  /* inputs of one run; 0: 32 */
  int32_t pad_id;      /* fills up shorter inputs of a run */
} lmn_embedding_options;

/* Serves a session as an embedding model. It has the inputs input_ids, attention_mask and perhaps
 * token_type_ids and position_ids, int64 or int32 [batch, tokens], and its first output is floats
 * [batch, tokens, size] or [batch, size]. The server keeps the session alive. */
LMN_API lmn_status lmn_server_session_add(lmn_server *server, const lmn_session *session,
                                          const lmn_embedding_options *options, lmn_error **err);

/* Ends serving the model of that name; its requests are cancelled. LMN_NOT_FOUND. */
LMN_API lmn_status lmn_server_model_remove(lmn_server *server, const char *name, lmn_error **err);

typedef struct lmn_server_info {
  uint32_t struct_size;
  uint32_t port;       /* that it listens on; 0 with a UNIX socket */
  const char *address; /* "http://127.0.0.1:8080" or "unix:/run/lmnative.sock" */
  uint32_t threads;
  uint32_t models;
  uint64_t connections; /* open */
  uint64_t requests;    /* in work */
  uint64_t accepted;    /* connections since create; so below */
  uint64_t answered;    /* requests that got a status line */
  uint64_t refused;     /* of those, with 4xx */
  uint64_t failed;      /* of those, with 5xx */
  uint64_t aborted;     /* answers that their client did not take to the end */
  uint64_t log_lost;    /* lines that the log's descriptor did not take */
} lmn_server_info;

/* Address and counters. */
LMN_API lmn_status lmn_server_info_get(const lmn_server *server, lmn_server_info *info,
                                       lmn_error **err);

LMN_END_C

#endif /* LMNATIVE_SERVER_H_ */
