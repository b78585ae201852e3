/* SPDX-License-Identifier: Apache-2.0
 *
 * The layout of every struct and the value of every constant of the C ABI, frozen: it compiles, or
 * a client that was compiled earlier breaks. Written by make_layout_test.py; lines may be added,
 * never changed. 64-bit systems.
 */
#include <stddef.h>

#include "lmnative/lmnative.h"

#if UINTPTR_MAX == UINT64_MAX
#define SIZE(type, bytes)                                          \
  _Static_assert(sizeof(type) >= (bytes) && sizeof(type) % 8 == 0, \
                 #type " became smaller or is not a multiple of 8")
#define ELEMENT(type, bytes) \
  _Static_assert(sizeof(type) == (bytes), #type ", an element of arrays, changed its size")
#define FIELD(type, field, offset, bytes)                                                    \
  _Static_assert(offsetof(type, field) == (offset) && sizeof(((type *)0)->field) == (bytes), \
                 #type "." #field " moved")
#define VALUE(name, value) _Static_assert((name) == (value), #name " changed its value")

SIZE(lmn_engine_options, 104);
FIELD(lmn_engine_options, struct_size, 0, 4);
FIELD(lmn_engine_options, flags, 4, 4);
FIELD(lmn_engine_options, threads, 8, 4);
FIELD(lmn_engine_options, context_tokens, 12, 4);
FIELD(lmn_engine_options, kv_tokens, 16, 4);
FIELD(lmn_engine_options, prefill_chunk_tokens, 20, 4);
FIELD(lmn_engine_options, queue_capacity, 24, 4);
FIELD(lmn_engine_options, kv_type, 28, 4);
FIELD(lmn_engine_options, progress, 32, 8);
FIELD(lmn_engine_options, progress_user, 40, 8);
FIELD(lmn_engine_options, max_sequences, 48, 4);
FIELD(lmn_engine_options, prefix_cache, 52, 4);
FIELD(lmn_engine_options, queue_tokens, 56, 8);
FIELD(lmn_engine_options, queue_bytes, 64, 8);
FIELD(lmn_engine_options, inter_token_target_ns, 72, 8);
FIELD(lmn_engine_options, idle_spin_ns, 80, 8);
FIELD(lmn_engine_options, trace_events, 88, 4);
FIELD(lmn_engine_options, activation_bits, 92, 4);
FIELD(lmn_engine_options, device, 96, 8);

ELEMENT(lmn_token_bias, 8);
FIELD(lmn_token_bias, id, 0, 4);
FIELD(lmn_token_bias, bias, 4, 4);

ELEMENT(lmn_string, 16);
FIELD(lmn_string, data, 0, 8);
FIELD(lmn_string, bytes, 8, 8);

SIZE(lmn_request_options, 200);
FIELD(lmn_request_options, struct_size, 0, 4);
FIELD(lmn_request_options, flags, 4, 4);
FIELD(lmn_request_options, prompt, 8, 8);
FIELD(lmn_request_options, prompt_bytes, 16, 8);
FIELD(lmn_request_options, prompt_ids, 24, 8);
FIELD(lmn_request_options, prompt_id_count, 32, 8);
FIELD(lmn_request_options, add_bos, 40, 4);
FIELD(lmn_request_options, max_tokens, 44, 4);
FIELD(lmn_request_options, temperature, 48, 4);
FIELD(lmn_request_options, top_k, 52, 4);
FIELD(lmn_request_options, top_p, 56, 4);
FIELD(lmn_request_options, min_p, 60, 4);
FIELD(lmn_request_options, repetition_penalty, 64, 4);
FIELD(lmn_request_options, presence_penalty, 68, 4);
FIELD(lmn_request_options, frequency_penalty, 72, 4);
FIELD(lmn_request_options, penalty_last_n, 76, 4);
FIELD(lmn_request_options, seed, 80, 8);
FIELD(lmn_request_options, top_logprobs, 88, 4);
FIELD(lmn_request_options, priority, 92, 4);
FIELD(lmn_request_options, logit_bias, 96, 8);
FIELD(lmn_request_options, logit_bias_count, 104, 8);
FIELD(lmn_request_options, stop, 112, 8);
FIELD(lmn_request_options, stop_count, 120, 8);
FIELD(lmn_request_options, stop_token_ids, 128, 8);
FIELD(lmn_request_options, stop_token_id_count, 136, 8);
FIELD(lmn_request_options, deadline_ns, 144, 8);
FIELD(lmn_request_options, tag, 152, 8);
FIELD(lmn_request_options, tenant, 160, 8);
FIELD(lmn_request_options, n, 168, 4);
FIELD(lmn_request_options, reserved, 172, 4);
FIELD(lmn_request_options, callback, 176, 8);
FIELD(lmn_request_options, callback_user, 184, 8);
FIELD(lmn_request_options, token_interval_ns, 192, 8);

SIZE(lmn_chunk, 80);
FIELD(lmn_chunk, struct_size, 0, 4);
FIELD(lmn_chunk, finish_reason, 4, 4);
FIELD(lmn_chunk, token_ids, 8, 8);
FIELD(lmn_chunk, token_count, 16, 8);
FIELD(lmn_chunk, text, 24, 8);
FIELD(lmn_chunk, text_bytes, 32, 8);
FIELD(lmn_chunk, logprobs, 40, 8);
FIELD(lmn_chunk, top_ids, 48, 8);
FIELD(lmn_chunk, top_logprobs, 56, 8);
FIELD(lmn_chunk, logits, 64, 8);
FIELD(lmn_chunk, top_logprob_count, 72, 4);
FIELD(lmn_chunk, sample, 76, 4);

SIZE(lmn_request_stats, 80);
FIELD(lmn_request_stats, struct_size, 0, 4);
FIELD(lmn_request_stats, finish_reason, 4, 4);
FIELD(lmn_request_stats, prompt_tokens, 8, 8);
FIELD(lmn_request_stats, generated_tokens, 16, 8);
FIELD(lmn_request_stats, queue_ns, 24, 8);
FIELD(lmn_request_stats, prefill_ns, 32, 8);
FIELD(lmn_request_stats, decode_ns, 40, 8);
FIELD(lmn_request_stats, seed, 48, 8);
FIELD(lmn_request_stats, tag, 56, 8);
FIELD(lmn_request_stats, cached_tokens, 64, 8);
FIELD(lmn_request_stats, preemptions, 72, 4);
FIELD(lmn_request_stats, reserved, 76, 4);

SIZE(lmn_score_options, 24);
FIELD(lmn_score_options, struct_size, 0, 4);
FIELD(lmn_score_options, chunk_tokens, 4, 4);
FIELD(lmn_score_options, progress, 8, 8);
FIELD(lmn_score_options, progress_user, 16, 8);

SIZE(lmn_engine_stats, 224);
FIELD(lmn_engine_stats, struct_size, 0, 4);
FIELD(lmn_engine_stats, threads, 4, 4);
FIELD(lmn_engine_stats, context_tokens, 8, 4);
FIELD(lmn_engine_stats, queue_capacity, 12, 4);
FIELD(lmn_engine_stats, waiting, 16, 4);
FIELD(lmn_engine_stats, running, 20, 4);
FIELD(lmn_engine_stats, kv_pages, 24, 8);
FIELD(lmn_engine_stats, kv_pages_used, 32, 8);
FIELD(lmn_engine_stats, kv_page_tokens, 40, 4);
FIELD(lmn_engine_stats, layers, 44, 4);
FIELD(lmn_engine_stats, submitted, 48, 8);
FIELD(lmn_engine_stats, finished, 56, 8);
FIELD(lmn_engine_stats, cancelled, 64, 8);
FIELD(lmn_engine_stats, failed, 72, 8);
FIELD(lmn_engine_stats, rejected, 80, 8);
FIELD(lmn_engine_stats, prompt_tokens, 88, 8);
FIELD(lmn_engine_stats, generated_tokens, 96, 8);
FIELD(lmn_engine_stats, steps, 104, 8);
FIELD(lmn_engine_stats, load_ns, 112, 8);
FIELD(lmn_engine_stats, max_sequences, 120, 4);
FIELD(lmn_engine_stats, device_layers, 124, 4);
FIELD(lmn_engine_stats, kv_pages_cached, 128, 8);
FIELD(lmn_engine_stats, queue_tokens, 136, 8);
FIELD(lmn_engine_stats, queue_bytes, 144, 8);
FIELD(lmn_engine_stats, prefix_lookup_tokens, 152, 8);
FIELD(lmn_engine_stats, prefix_hit_tokens, 160, 8);
FIELD(lmn_engine_stats, preemptions, 168, 8);
FIELD(lmn_engine_stats, rejected_queue, 176, 8);
FIELD(lmn_engine_stats, rejected_tokens, 184, 8);
FIELD(lmn_engine_stats, rejected_bytes, 192, 8);
FIELD(lmn_engine_stats, rejected_memory, 200, 8);
FIELD(lmn_engine_stats, rejected_invalid, 208, 8);
FIELD(lmn_engine_stats, rejected_closed, 216, 8);

ELEMENT(lmn_histogram, 1080);
FIELD(lmn_histogram, name, 0, 8);
FIELD(lmn_histogram, count, 8, 8);
FIELD(lmn_histogram, sum_ns, 16, 8);
FIELD(lmn_histogram, max_ns, 24, 8);
FIELD(lmn_histogram, p50_ns, 32, 8);
FIELD(lmn_histogram, p90_ns, 40, 8);
FIELD(lmn_histogram, p99_ns, 48, 8);
FIELD(lmn_histogram, buckets, 56, 1024);

ELEMENT(lmn_trace_event, 40);
FIELD(lmn_trace_event, name, 0, 8);
FIELD(lmn_trace_event, begin_ns, 8, 8);
FIELD(lmn_trace_event, end_ns, 16, 8);
FIELD(lmn_trace_event, request, 24, 8);
FIELD(lmn_trace_event, tokens, 32, 4);
FIELD(lmn_trace_event, sequences, 36, 4);

ELEMENT(lmn_profile_entry, 64);
FIELD(lmn_profile_entry, op, 0, 8);
FIELD(lmn_profile_entry, name, 8, 8);
FIELD(lmn_profile_entry, step_kind, 16, 4);
FIELD(lmn_profile_entry, reserved, 20, 4);
FIELD(lmn_profile_entry, calls, 24, 8);
FIELD(lmn_profile_entry, run_ns, 32, 8);
FIELD(lmn_profile_entry, wait_ns, 40, 8);
FIELD(lmn_profile_entry, bytes, 48, 8);
FIELD(lmn_profile_entry, operations, 56, 8);

ELEMENT(lmn_memory_entry, 24);
FIELD(lmn_memory_entry, owner, 0, 8);
FIELD(lmn_memory_entry, current, 8, 8);
FIELD(lmn_memory_entry, peak, 16, 8);

ELEMENT(lmn_attribute, 40);
FIELD(lmn_attribute, name, 0, 8);
FIELD(lmn_attribute, kind, 8, 4);
FIELD(lmn_attribute, f, 12, 4);
FIELD(lmn_attribute, i, 16, 8);
FIELD(lmn_attribute, data, 24, 8);
FIELD(lmn_attribute, count, 32, 8);

SIZE(lmn_model_options, 24);
FIELD(lmn_model_options, struct_size, 0, 4);
FIELD(lmn_model_options, read_mode, 4, 4);
FIELD(lmn_model_options, progress, 8, 8);
FIELD(lmn_model_options, progress_user, 16, 8);

SIZE(lmn_model_info, 96);
FIELD(lmn_model_info, struct_size, 0, 4);
FIELD(lmn_model_info, format_version, 4, 4);
FIELD(lmn_model_info, path, 8, 8);
FIELD(lmn_model_info, architecture, 16, 8);
FIELD(lmn_model_info, name, 24, 8);
FIELD(lmn_model_info, file_bytes, 32, 8);
FIELD(lmn_model_info, tensor_count, 40, 8);
FIELD(lmn_model_info, metadata_count, 48, 8);
FIELD(lmn_model_info, parameter_count, 56, 8);
FIELD(lmn_model_info, file_count, 64, 4);
FIELD(lmn_model_info, vocab_size, 68, 4);
FIELD(lmn_model_info, context_length, 72, 4);
FIELD(lmn_model_info, embedding_length, 76, 4);
FIELD(lmn_model_info, layer_count, 80, 4);
FIELD(lmn_model_info, head_count, 84, 4);
FIELD(lmn_model_info, head_count_kv, 88, 4);
FIELD(lmn_model_info, head_dim, 92, 4);

SIZE(lmn_value, 80);
FIELD(lmn_value, struct_size, 0, 4);
FIELD(lmn_value, kind, 4, 4);
FIELD(lmn_value, key, 8, 8);
FIELD(lmn_value, key_bytes, 16, 8);
FIELD(lmn_value, u64, 24, 8);
FIELD(lmn_value, i64, 32, 8);
FIELD(lmn_value, f64, 40, 8);
FIELD(lmn_value, text, 48, 8);
FIELD(lmn_value, text_bytes, 56, 8);
FIELD(lmn_value, array_kind, 64, 4);
FIELD(lmn_value, bits, 68, 4);
FIELD(lmn_value, array_count, 72, 8);

SIZE(lmn_tensor_info, 88);
FIELD(lmn_tensor_info, struct_size, 0, 4);
FIELD(lmn_tensor_info, ndim, 4, 4);
FIELD(lmn_tensor_info, name, 8, 8);
FIELD(lmn_tensor_info, name_bytes, 16, 8);
FIELD(lmn_tensor_info, type, 24, 8);
FIELD(lmn_tensor_info, shape, 32, 32);
FIELD(lmn_tensor_info, bytes, 64, 8);
FIELD(lmn_tensor_info, offset, 72, 8);
FIELD(lmn_tensor_info, file_index, 80, 4);
FIELD(lmn_tensor_info, supported, 84, 4);

SIZE(lmn_pool_options, 32);
FIELD(lmn_pool_options, struct_size, 0, 4);
FIELD(lmn_pool_options, debug, 4, 4);
FIELD(lmn_pool_options, block_bytes, 8, 8);
FIELD(lmn_pool_options, limit_bytes, 16, 8);
FIELD(lmn_pool_options, keep_bytes, 24, 8);

SIZE(lmn_pool_stats, 96);
FIELD(lmn_pool_stats, struct_size, 0, 4);
FIELD(lmn_pool_stats, reserved, 4, 4);
FIELD(lmn_pool_stats, reserved_bytes, 8, 8);
FIELD(lmn_pool_stats, held_bytes, 16, 8);
FIELD(lmn_pool_stats, held_peak_bytes, 24, 8);
FIELD(lmn_pool_stats, in_use_bytes, 32, 8);
FIELD(lmn_pool_stats, large_in_use_bytes, 40, 8);
FIELD(lmn_pool_stats, large_kept_bytes, 48, 8);
FIELD(lmn_pool_stats, live_count, 56, 8);
FIELD(lmn_pool_stats, allocation_count, 64, 8);
FIELD(lmn_pool_stats, requested_bytes, 72, 8);
FIELD(lmn_pool_stats, granted_bytes, 80, 8);
FIELD(lmn_pool_stats, promoted_size_count, 88, 8);

SIZE(lmn_server_options, 168);
FIELD(lmn_server_options, struct_size, 0, 4);
FIELD(lmn_server_options, flags, 4, 4);
FIELD(lmn_server_options, host, 8, 8);
FIELD(lmn_server_options, unix_path, 16, 8);
FIELD(lmn_server_options, port, 24, 4);
FIELD(lmn_server_options, unix_mode, 28, 4);
FIELD(lmn_server_options, threads, 32, 4);
FIELD(lmn_server_options, max_connections, 36, 4);
FIELD(lmn_server_options, max_requests, 40, 4);
FIELD(lmn_server_options, max_header_bytes, 44, 4);
FIELD(lmn_server_options, max_body_bytes, 48, 8);
FIELD(lmn_server_options, max_stream_bytes, 56, 8);
FIELD(lmn_server_options, header_timeout_ns, 64, 8);
FIELD(lmn_server_options, body_timeout_ns, 72, 8);
FIELD(lmn_server_options, idle_timeout_ns, 80, 8);
FIELD(lmn_server_options, write_timeout_ns, 88, 8);
FIELD(lmn_server_options, api_keys, 96, 8);
FIELD(lmn_server_options, api_key_count, 104, 8);
FIELD(lmn_server_options, admin_keys, 112, 8);
FIELD(lmn_server_options, admin_key_count, 120, 8);
FIELD(lmn_server_options, cors_origins, 128, 8);
FIELD(lmn_server_options, cors_origin_count, 136, 8);
FIELD(lmn_server_options, chat, 144, 8);
FIELD(lmn_server_options, chat_user, 152, 8);
FIELD(lmn_server_options, log_descriptor, 160, 4);
FIELD(lmn_server_options, reserved, 164, 4);

SIZE(lmn_served_options, 16);
FIELD(lmn_served_options, struct_size, 0, 4);
FIELD(lmn_served_options, reserved, 4, 4);
FIELD(lmn_served_options, name, 8, 8);

SIZE(lmn_embedding_options, 56);
FIELD(lmn_embedding_options, struct_size, 0, 4);
FIELD(lmn_embedding_options, flags, 4, 4);
FIELD(lmn_embedding_options, name, 8, 8);
FIELD(lmn_embedding_options, tokenizer, 16, 8);
FIELD(lmn_embedding_options, tokenize, 24, 8);
FIELD(lmn_embedding_options, tokenize_user, 32, 8);
FIELD(lmn_embedding_options, pooling, 40, 4);
FIELD(lmn_embedding_options, max_tokens, 44, 4);
FIELD(lmn_embedding_options, max_batch, 48, 4);
FIELD(lmn_embedding_options, pad_id, 52, 4);

SIZE(lmn_server_info, 88);
FIELD(lmn_server_info, struct_size, 0, 4);
FIELD(lmn_server_info, port, 4, 4);
FIELD(lmn_server_info, address, 8, 8);
FIELD(lmn_server_info, threads, 16, 4);
FIELD(lmn_server_info, models, 20, 4);
FIELD(lmn_server_info, connections, 24, 8);
FIELD(lmn_server_info, requests, 32, 8);
FIELD(lmn_server_info, accepted, 40, 8);
FIELD(lmn_server_info, answered, 48, 8);
FIELD(lmn_server_info, refused, 56, 8);
FIELD(lmn_server_info, failed, 64, 8);
FIELD(lmn_server_info, aborted, 72, 8);
FIELD(lmn_server_info, log_lost, 80, 8);

SIZE(lmn_session_options, 64);
FIELD(lmn_session_options, struct_size, 0, 4);
FIELD(lmn_session_options, threads, 4, 4);
FIELD(lmn_session_options, max_shapes, 8, 4);
FIELD(lmn_session_options, optimize, 12, 4);
FIELD(lmn_session_options, max_arena_bytes, 16, 8);
FIELD(lmn_session_options, base_folder, 24, 8);
FIELD(lmn_session_options, max_run_ms, 32, 4);
FIELD(lmn_session_options, runner, 36, 4);
FIELD(lmn_session_options, batch_window_us, 40, 4);
FIELD(lmn_session_options, max_batch, 44, 4);
FIELD(lmn_session_options, max_queue, 48, 4);
FIELD(lmn_session_options, reserved, 52, 4);
FIELD(lmn_session_options, device, 56, 8);

SIZE(lmn_session_info, 40);
FIELD(lmn_session_info, struct_size, 0, 4);
FIELD(lmn_session_info, input_count, 4, 4);
FIELD(lmn_session_info, output_count, 8, 4);
FIELD(lmn_session_info, threads, 12, 4);
FIELD(lmn_session_info, lockstep_shapes, 16, 4);
FIELD(lmn_session_info, graph_shapes, 20, 4);
FIELD(lmn_session_info, batches, 24, 4);
FIELD(lmn_session_info, device_operators, 28, 4);
FIELD(lmn_session_info, host_operators, 32, 4);
FIELD(lmn_session_info, library_operators, 36, 4);

SIZE(lmn_port_info, 160);
FIELD(lmn_port_info, struct_size, 0, 4);
FIELD(lmn_port_info, kind, 4, 4);
FIELD(lmn_port_info, name, 8, 8);
FIELD(lmn_port_info, dtype, 16, 8);
FIELD(lmn_port_info, ndim, 24, 4);
FIELD(lmn_port_info, reserved, 28, 4);
FIELD(lmn_port_info, shape, 32, 64);
FIELD(lmn_port_info, symbols, 96, 64);

SIZE(lmn_session_value_info, 96);
FIELD(lmn_session_value_info, struct_size, 0, 4);
FIELD(lmn_session_value_info, kind, 4, 4);
FIELD(lmn_session_value_info, dtype, 8, 8);
FIELD(lmn_session_value_info, item_count, 16, 8);
FIELD(lmn_session_value_info, ndim, 24, 4);
FIELD(lmn_session_value_info, reserved, 28, 4);
FIELD(lmn_session_value_info, shape, 32, 64);

SIZE(lmn_tokenizer_info, 56);
FIELD(lmn_tokenizer_info, struct_size, 0, 4);
FIELD(lmn_tokenizer_info, vocab_size, 4, 4);
FIELD(lmn_tokenizer_info, model, 8, 8);
FIELD(lmn_tokenizer_info, pre, 16, 8);
FIELD(lmn_tokenizer_info, bos_id, 24, 4);
FIELD(lmn_tokenizer_info, eos_id, 28, 4);
FIELD(lmn_tokenizer_info, eot_id, 32, 4);
FIELD(lmn_tokenizer_info, unk_id, 36, 4);
FIELD(lmn_tokenizer_info, pad_id, 40, 4);
FIELD(lmn_tokenizer_info, add_bos, 44, 4);
FIELD(lmn_tokenizer_info, add_eos, 48, 4);
FIELD(lmn_tokenizer_info, reserved, 52, 4);

SIZE(lmn_token_info, 32);
FIELD(lmn_token_info, struct_size, 0, 4);
FIELD(lmn_token_info, kind, 4, 4);
FIELD(lmn_token_info, bytes, 8, 8);
FIELD(lmn_token_info, byte_count, 16, 8);
FIELD(lmn_token_info, end_of_generation, 24, 4);
FIELD(lmn_token_info, reserved, 28, 4);

SIZE(lmn_encode_options, 16);
FIELD(lmn_encode_options, struct_size, 0, 4);
FIELD(lmn_encode_options, parse_special, 4, 4);
FIELD(lmn_encode_options, add_bos, 8, 4);
FIELD(lmn_encode_options, add_eos, 12, 4);

SIZE(lmn_decode_options, 16);
FIELD(lmn_decode_options, struct_size, 0, 4);
FIELD(lmn_decode_options, skip_special, 4, 4);
FIELD(lmn_decode_options, keep_leading_space, 8, 4);
FIELD(lmn_decode_options, reserved, 12, 4);

ELEMENT(lmn_chat_message, 24);
FIELD(lmn_chat_message, role, 0, 8);
FIELD(lmn_chat_message, content, 8, 8);
FIELD(lmn_chat_message, content_bytes, 16, 8);

SIZE(lmn_chat_options, 8);
FIELD(lmn_chat_options, struct_size, 0, 4);
FIELD(lmn_chat_options, no_generation_prompt, 4, 4);

SIZE(lmn_build_info, 64);
FIELD(lmn_build_info, struct_size, 0, 4);
FIELD(lmn_build_info, abi_version, 4, 4);
FIELD(lmn_build_info, version, 8, 8);
FIELD(lmn_build_info, compiler, 16, 8);
FIELD(lmn_build_info, build_type, 24, 8);
FIELD(lmn_build_info, backends, 32, 8);
FIELD(lmn_build_info, cpu_target, 40, 8);
FIELD(lmn_build_info, cpu_targets, 48, 8);
FIELD(lmn_build_info, cpu_threads, 56, 4);
FIELD(lmn_build_info, reserved, 60, 4);

VALUE(LMN_OK, 0);
VALUE(LMN_INVALID_ARGUMENT, 1);
VALUE(LMN_NOT_FOUND, 2);
VALUE(LMN_IO_ERROR, 3);
VALUE(LMN_CORRUPT, 4);
VALUE(LMN_UNSUPPORTED, 5);
VALUE(LMN_OUT_OF_MEMORY, 6);
VALUE(LMN_QUEUE_FULL, 7);
VALUE(LMN_TIMEOUT, 8);
VALUE(LMN_CANCELLED, 9);
VALUE(LMN_BUFFER_TOO_SMALL, 10);
VALUE(LMN_CLOSED, 11);
VALUE(LMN_INTERNAL, 12);
VALUE(LMN_ENGINE_PROFILE, 1);
VALUE(LMN_KV_F16, 1);
VALUE(LMN_KV_F32, 2);
VALUE(LMN_KV_Q8_0, 3);
VALUE(LMN_REQUEST_PARSE_SPECIAL, 1);
VALUE(LMN_REQUEST_SEED, 2);
VALUE(LMN_REQUEST_IGNORE_EOS, 4);
VALUE(LMN_REQUEST_LOGPROBS, 8);
VALUE(LMN_REQUEST_LOGITS, 16);
VALUE(LMN_REQUEST_KEEP_SPECIAL, 32);
VALUE(LMN_REQUEST_NOTIFY, 64);
VALUE(LMN_FINISH_NONE, 0);
VALUE(LMN_FINISH_STOP, 1);
VALUE(LMN_FINISH_LENGTH, 2);
VALUE(LMN_FINISH_CANCELLED, 3);
VALUE(LMN_FINISH_ERROR, 4);
VALUE(LMN_FINISH_DEADLINE, 5);
VALUE(LMN_HISTOGRAM_BUCKETS, 128);
VALUE(LMN_STEP_DECODE, 0);
VALUE(LMN_STEP_PREFILL, 1);
VALUE(LMN_ATTRIBUTE_FLOAT, 1);
VALUE(LMN_ATTRIBUTE_INT, 2);
VALUE(LMN_ATTRIBUTE_STRING, 3);
VALUE(LMN_ATTRIBUTE_TENSOR, 4);
VALUE(LMN_ATTRIBUTE_GRAPH, 5);
VALUE(LMN_ATTRIBUTE_FLOATS, 6);
VALUE(LMN_ATTRIBUTE_INTS, 7);
VALUE(LMN_ATTRIBUTE_STRINGS, 8);
VALUE(LMN_READ_MAP, 0);
VALUE(LMN_READ_MAP_POPULATE, 1);
VALUE(LMN_READ_COPY, 2);
VALUE(LMN_VALUE_UINT, 1);
VALUE(LMN_VALUE_INT, 2);
VALUE(LMN_VALUE_FLOAT, 3);
VALUE(LMN_VALUE_BOOL, 4);
VALUE(LMN_VALUE_STRING, 5);
VALUE(LMN_VALUE_ARRAY, 6);
VALUE(LMN_POOL_DEBUG_OFF, 0);
VALUE(LMN_POOL_DEBUG_CHECKS, 1);
VALUE(LMN_POOL_DEBUG_FULL, 2);
VALUE(LMN_SERVER_NO_PAGE, 1);
VALUE(LMN_POOLING_MEAN, 1);
VALUE(LMN_POOLING_CLS, 2);
VALUE(LMN_POOLING_LAST, 3);
VALUE(LMN_EMBEDDING_RAW, 1);
VALUE(LMN_RUNNER_AUTO, 0);
VALUE(LMN_RUNNER_LOCKSTEP, 1);
VALUE(LMN_RUNNER_GRAPH, 2);
VALUE(LMN_SESSION_VALUE_TENSOR, 0);
VALUE(LMN_SESSION_VALUE_SEQUENCE, 1);
VALUE(LMN_SESSION_VALUE_OPTIONAL, 2);
VALUE(LMN_SESSION_VALUE_MAP, 3);
VALUE(LMN_TOKEN_NORMAL, 1);
VALUE(LMN_TOKEN_UNKNOWN, 2);
VALUE(LMN_TOKEN_CONTROL, 3);
VALUE(LMN_TOKEN_USER_DEFINED, 4);
VALUE(LMN_TOKEN_UNUSED, 5);
VALUE(LMN_TOKEN_BYTE, 6);
VALUE(LMN_DEFAULT, 0);
VALUE(LMN_YES, 1);
VALUE(LMN_NO, 2);
VALUE(LMN_ABI_VERSION, 0);
#endif

int main(void) { return 0; }
