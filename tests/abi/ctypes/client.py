#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The script of tests/abi in Python, over ctypes and nothing else. Usage: client.py LIBRARY MODEL ONNX_MODEL"""

import ctypes as c
import select
import sys
from ctypes import POINTER, byref

FINISH_NONE = 0
REQUEST_SEED = 2
REQUEST_IGNORE_EOS = 4
REQUEST_NOTIFY = 64
OK = 0


def struct(name, *fields):
    return type(name, (c.Structure,), {"_fields_": list(fields)})


def fields(kind, names):
    return [(name, kind) for name in names.split()]


ModelInfo = struct(
    "lmn_model_info", *fields(c.c_uint32, "struct_size format_version"), *fields(c.c_char_p, "path architecture name"),
    *fields(c.c_uint64, "file_bytes tensor_count metadata_count parameter_count"),
    *fields(c.c_uint32, "file_count vocab_size context_length embedding_length layer_count head_count head_count_kv "
            "head_dim"))  # fmt: skip
Value = struct(
    "lmn_value", *fields(c.c_uint32, "struct_size kind"), ("key", c.c_void_p), ("key_bytes", c.c_uint64),
    ("u64", c.c_uint64), ("i64", c.c_int64), ("f64", c.c_double), ("text", c.c_void_p), ("text_bytes", c.c_uint64),
    *fields(c.c_uint32, "array_kind bits"), ("array_count", c.c_uint64))  # fmt: skip
TensorInfo = struct(
    "lmn_tensor_info", *fields(c.c_uint32, "struct_size ndim"), ("name", c.c_void_p), ("name_bytes", c.c_uint64),
    ("type", c.c_char_p), ("shape", c.c_int64 * 4), *fields(c.c_uint64, "bytes offset"),
    *fields(c.c_uint32, "file_index supported"))  # fmt: skip
ChatMessage = struct("lmn_chat_message", ("role", c.c_char_p), ("content", c.c_char_p), ("content_bytes", c.c_uint64))
EngineOptions = struct(
    "lmn_engine_options", *fields(c.c_uint32, "struct_size flags"), ("threads", c.c_int32),
    *fields(c.c_uint32, "context_tokens kv_tokens prefill_chunk_tokens queue_capacity kv_type"),
    *fields(c.c_void_p, "progress progress_user"), *fields(c.c_uint32, "max_sequences prefix_cache"),
    *fields(c.c_uint64, "queue_tokens queue_bytes inter_token_target_ns"), ("idle_spin_ns", c.c_int64),
    *fields(c.c_uint32, "trace_events activation_bits"), ("device", c.c_char_p))  # fmt: skip
RequestOptions = struct(
    "lmn_request_options", *fields(c.c_uint32, "struct_size flags"), ("prompt", c.c_char_p),
    ("prompt_bytes", c.c_uint64), ("prompt_ids", POINTER(c.c_int32)), ("prompt_id_count", c.c_uint64),
    *fields(c.c_uint32, "add_bos max_tokens"), ("temperature", c.c_float), ("top_k", c.c_int32),
    *fields(c.c_float, "top_p min_p repetition_penalty presence_penalty frequency_penalty"),
    ("penalty_last_n", c.c_uint32), ("seed", c.c_uint64), ("top_logprobs", c.c_uint32), ("priority", c.c_int32),
    ("logit_bias", c.c_void_p), ("logit_bias_count", c.c_uint64), ("stop", c.c_void_p), ("stop_count", c.c_uint64),
    ("stop_token_ids", c.c_void_p), *fields(c.c_uint64, "stop_token_id_count deadline_ns tag tenant"),
    *fields(c.c_uint32, "n reserved"), *fields(c.c_void_p, "callback callback_user"),
    ("token_interval_ns", c.c_uint64))  # fmt: skip
Chunk = struct(
    "lmn_chunk", *fields(c.c_uint32, "struct_size finish_reason"), ("token_ids", POINTER(c.c_int32)),
    ("token_count", c.c_uint64), ("text", c.c_void_p), ("text_bytes", c.c_uint64),
    *fields(c.c_void_p, "logprobs top_ids top_logprobs logits"), *fields(c.c_uint32, "top_logprob_count sample")
    )  # fmt: skip
RequestStats = struct(
    "lmn_request_stats", *fields(c.c_uint32, "struct_size finish_reason"),
    *fields(c.c_uint64, "prompt_tokens generated_tokens queue_ns prefill_ns decode_ns seed tag cached_tokens"),
    *fields(c.c_uint32, "preemptions reserved"))  # fmt: skip
DLTensor = struct(
    "DLTensor", ("data", c.c_void_p), *fields(c.c_int32, "device_type device_id ndim"),
    *fields(c.c_uint8, "code bits"), ("lanes", c.c_uint16), *fields(POINTER(c.c_int64), "shape strides"),
    ("byte_offset", c.c_uint64))  # fmt: skip
DLManaged = struct(
    "DLManagedTensorVersioned", *fields(c.c_uint32, "major minor"), *fields(c.c_void_p, "manager_ctx deleter"),
    ("flags", c.c_uint64), ("dl_tensor", DLTensor))  # fmt: skip

Attribute = struct(
    "lmn_attribute", ("name", c.c_char_p), ("kind", c.c_int32), ("f", c.c_float), ("i", c.c_int64),
    ("data", c.c_void_p), ("count", c.c_uint64))  # fmt: skip
SessionOptions = struct(
    "lmn_session_options", ("struct_size", c.c_uint32), ("threads", c.c_int32),
    *fields(c.c_uint32, "max_shapes optimize"), ("max_arena_bytes", c.c_uint64),
    ("base_folder", c.c_char_p), *fields(c.c_uint32, "max_run_ms runner batch_window_us max_batch max_queue reserved"),
    ("device", c.c_char_p))  # fmt: skip
PortInfo = struct(
    "lmn_port_info", ("struct_size", c.c_uint32), ("kind", c.c_int32), *fields(c.c_char_p, "name dtype"),
    ("ndim", c.c_int32), ("reserved", c.c_uint32), ("shape", c.c_int64 * 8), ("symbols", c.c_char_p * 8)
    )  # fmt: skip


class Error(Exception):
    def __init__(self, status, message, same):
        super().__init__(message)
        self.status, self.same = status, same


class Library:
    """lib.lmn_x(...) calls it; one that is fallible gets its last argument here, and raises Error."""

    ACCESSORS = {"lmn_version": c.c_char_p, "lmn_abi_version": c.c_uint32, "lmn_status_name": c.c_char_p,
                 "lmn_error_message": c.c_char_p, "lmn_error_status": c.c_int32}  # fmt: skip

    def __init__(self, path):
        self.dll = c.CDLL(path)

    def __getattr__(self, name):
        function = getattr(self.dll, name)
        if name in self.ACCESSORS or name.endswith("_destroy"):
            function.restype = self.ACCESSORS.get(name)
            return function

        def call(*arguments):
            error = c.c_void_p()
            status = function(*arguments, byref(error))
            if status != OK:
                message = self.lmn_error_message(error).decode()
                same = self.lmn_error_status(error) == status
                self.lmn_error_destroy(error)
                raise Error(self.lmn_status_name(status).decode(), message, same)

        return call

    def handle(self, name, *arguments):
        """Of the functions whose last argument but err is a new handle."""
        out = c.c_void_p()
        getattr(self, name)(*arguments, byref(out))
        return out


def sized(kind, **values):
    return kind(struct_size=c.sizeof(kind), **values)


def string(text):
    if isinstance(text, str):
        text = text.encode()
    out = b'"'
    for byte in text:
        if byte in b'"\\':
            out += b"\\" + bytes([byte])
        else:
            out += b"\\u%04x" % byte if byte < 0x20 else bytes([byte])
    return (out + b'"').decode()


def numbers(values):
    return "[" + ",".join(str(v) for v in values) + "]"


def show(line):
    sys.stdout.buffer.write(line.encode() + b"\n")


def inspect(lib, model):
    info = sized(ModelInfo)
    lib.lmn_model_info_get(model, byref(info))
    show(
        f'{{"step":"model","architecture":{string(info.architecture)},"name":{string(info.name)},'
        f'"tensors":{info.tensor_count},"metadata":{info.metadata_count},"parameters":{info.parameter_count},'
        f'"vocab":{info.vocab_size},"context":{info.context_length},"embedding":{info.embedding_length},'
        f'"layers":{info.layer_count},"heads":{info.head_count},"kv_heads":{info.head_count_kv},'
        f'"head_dim":{info.head_dim}}}'
    )
    value = sized(Value)
    lib.lmn_model_metadata_find(model, b"tokenizer.ggml.pre", byref(value))
    show(f'{{"step":"metadata","kind":{value.kind},"text":{string(c.string_at(value.text, value.text_bytes))}}}')
    tensor = sized(TensorInfo)
    lib.lmn_model_tensor_get(model, c.c_uint64(0), byref(tensor))
    show(
        f'{{"step":"tensor","name":{string(c.string_at(tensor.name, tensor.name_bytes))},'
        f'"type":{string(tensor.type)},"shape":{numbers(tensor.shape[: tensor.ndim])},"bytes":{tensor.bytes}}}'
    )


def tokenize(lib, tokenizer):
    text = 'Größe 🦙 "quoted"\n'.encode()
    ids, count = (c.c_int32 * 64)(), c.c_size_t()
    lib.lmn_tokenizer_encode(tokenizer, text, c.c_size_t(len(text)), None, ids, c.c_size_t(64), byref(count))
    decoded, size = c.create_string_buffer(256), c.c_size_t()
    lib.lmn_tokenizer_decode(tokenizer, ids, count, None, decoded, c.c_size_t(256), byref(size))
    decoder = lib.handle("lmn_decoder_create", tokenizer, None)
    pieces = [string(decode(lib, decoder, ids[i])) for i in range(count.value)]
    lib.lmn_decoder_destroy(decoder)
    show(
        f'{{"step":"tokenize","ids":{numbers(ids[: count.value])},"decoded":{string(decoded.raw[: size.value])},'
        f'"pieces":[{",".join(pieces)}]}}'
    )


def decode(lib, decoder, token):
    piece, size = c.c_void_p(), c.c_size_t()
    lib.lmn_decoder_decode(decoder, c.c_int32(token), byref(piece), byref(size))
    return c.string_at(piece, size.value)


def chat(lib, tokenizer):
    hi = "Hi 👋".encode()
    messages = (ChatMessage * 2)((b"system", b"Be brief.", 9), (b"user", hi, len(hi)))
    text, size = c.create_string_buffer(512), c.c_size_t()
    lib.lmn_tokenizer_chat_render(tokenizer, messages, c.c_size_t(2), None, text, c.c_size_t(512), byref(size))
    show(f'{{"step":"chat","text":{string(text.raw[: size.value])}}}')


def submit(lib, engine, prompt, max_tokens):
    options = sized(RequestOptions, prompt=prompt, prompt_bytes=len(prompt), max_tokens=max_tokens)
    options.flags = REQUEST_IGNORE_EOS
    return lib.handle("lmn_engine_submit", engine, byref(options))


def drain(lib, request):
    ids, text, chunk = [], b"", sized(Chunk)
    while chunk.finish_reason == FINISH_NONE:
        lib.lmn_request_next(request, c.c_int64(-1), byref(chunk))
        ids += chunk.token_ids[: chunk.token_count]
        text += c.string_at(chunk.text, chunk.text_bytes)
    return ids, text, chunk.finish_reason


def stream(lib, engine):
    request = submit(lib, engine, b"The capital of France is", 16)
    ids, text, finish_reason = drain(lib, request)
    stats = sized(RequestStats)
    lib.lmn_request_stats_get(request, byref(stats))
    lib.lmn_request_destroy(request)
    show(
        f'{{"step":"stream","ids":{numbers(ids)},"text":{string(text)},"finish":{finish_reason},'
        f'"prompt_tokens":{stats.prompt_tokens},"generated_tokens":{stats.generated_tokens}}}'
    )


def cancel(lib, engine):
    request = submit(lib, engine, b"Once upon a time", 4000)
    lib.lmn_request_cancel(request)
    finish_reason = drain(lib, request)[2]
    after = "LMN_OK"
    try:
        lib.lmn_request_next(request, c.c_int64(0), byref(sized(Chunk)))
    except Error as e:
        after = e.status
    lib.lmn_request_destroy(request)
    show(f'{{"step":"cancel","finish":{finish_reason},"after":"{after}"}}')


def provoke(what, call, *arguments):
    try:
        call(*arguments)
        show(f'{{"step":"error","what":"{what}","status":"none"}}')
    except Error as e:
        same = "true" if e.same else "false"
        show(f'{{"step":"error","what":"{what}","status":"{e.status}","message":{string(str(e))},"same":{same}}}')


def provoke_errors(lib, engine, tokenizer):
    provoke("missing file", lib.handle, "lmn_model_open", b"/nonexistent/model.gguf", None)
    options = sized(RequestOptions, prompt=b"x", prompt_bytes=1, temperature=float("nan"))
    provoke("NaN temperature", lib.handle, "lmn_engine_submit", engine, byref(options))
    options = sized(RequestOptions, prompt_ids=(c.c_int32 * 2)(1, 999999), prompt_id_count=2)
    provoke("token id out of range", lib.handle, "lmn_engine_submit", engine, byref(options))
    future = struct("future", ("known", RequestOptions), ("added_later", c.c_uint64))
    options = future(RequestOptions(struct_size=c.sizeof(future), prompt=b"x", prompt_bytes=1), 7)
    provoke("option from the future", lib.handle, "lmn_engine_submit", engine, byref(options))
    text, size = c.create_string_buffer(8), c.c_size_t()
    provoke("decode of a bad id", lib.lmn_tokenizer_decode, tokenizer, (c.c_int32 * 1)(-1), c.c_size_t(1), None, text,
            c.c_size_t(8), byref(size))  # fmt: skip


def score(lib, engine):
    tokens = (c.c_int32 * 4)(504, 3575, 282, 4649)
    ids = lib.handle("lmn_tensor_create", 0, 32, 1, (c.c_int64 * 1)(4))
    c.memmove(c.cast(ids, POINTER(DLManaged)).contents.dl_tensor.data, tokens, c.sizeof(tokens))
    logits = lib.handle("lmn_engine_score", engine, ids, None)
    tensor = c.cast(logits, POINTER(DLManaged)).contents.dl_tensor
    rows, columns = tensor.shape[: tensor.ndim]
    values = c.cast(tensor.data, POINTER(c.c_float))
    top = []
    for i in range(rows):
        row = values[i * columns : (i + 1) * columns]
        top.append(row.index(max(row)))
    show(f'{{"step":"score","shape":{numbers((rows, columns))},"top":{numbers(top)}}}')
    lib.lmn_tensor_destroy(ids)
    lib.lmn_tensor_destroy(logits)


PROMPTS = [b"One", b"Two, three", b"The sea is", b"Once upon a time"]


def submit_stream(lib, engine, index, max_tokens):
    prompt = PROMPTS[index % 4]
    options = sized(RequestOptions, prompt=prompt, prompt_bytes=len(prompt), max_tokens=max_tokens, temperature=0.8,
                    seed=index % 4, tag=index)  # fmt: skip
    options.flags = REQUEST_IGNORE_EOS | REQUEST_SEED | REQUEST_NOTIFY
    return lib.handle("lmn_engine_submit", engine, byref(options))


def streams(lib, engine, name, max_tokens):
    """Many requests at once: one wait on the engine's descriptor for all, then those that have news."""
    alone = []
    for i in range(4):
        request = submit_stream(lib, engine, i, max_tokens)
        alone.append(drain(lib, request)[:2])
        lib.lmn_request_destroy(request)
    requests = [submit_stream(lib, engine, i, max_tokens) for i in range(64)]
    got = [([], b"") for _ in requests]
    descriptor = c.c_int32()
    lib.lmn_engine_descriptor_get(engine, byref(descriptor))
    poll = select.poll()
    poll.register(descriptor.value, select.POLLIN)
    tags, count, chunk = (c.c_uint64 * 16)(), c.c_size_t(), sized(Chunk)
    left = len(requests)
    while left > 0:
        if not poll.poll(60_000):
            raise TimeoutError("no news")
        lib.lmn_engine_drain(engine, tags, c.c_size_t(16), byref(count))
        for tag in tags[: count.value]:
            # Without a place for an error: that there is no news is none.
            while lib.dll.lmn_request_next(requests[tag], c.c_int64(0), byref(chunk), None) == OK:
                ids, text = got[tag]
                got[tag] = (
                    ids + chunk.token_ids[: chunk.token_count],
                    text + c.string_at(chunk.text, chunk.text_bytes),
                )
                left -= chunk.finish_reason != FINISH_NONE
    for request in requests:
        lib.lmn_request_destroy(request)
    tokens = sum(len(ids) for ids, _ in got)
    equal = "true" if all(stream == alone[i % 4] for i, stream in enumerate(got)) else "false"
    show(
        f'{{"step":"streams","model":"{name}","streams":{len(got)},"tokens":{tokens},"equal":{equal},'
        f'"alone":[{",".join(numbers(ids) for ids, _ in alone)}]}}'
    )


def null_streams(lib):
    model = lib.handle("lmn_model_open", b"null:vocab=512,context=256", None)
    options = sized(EngineOptions, threads=1, kv_tokens=8192)
    engine = lib.handle("lmn_engine_create", model, byref(options))
    streams(lib, engine, "null", 32)
    lib.lmn_engine_destroy(engine)
    lib.lmn_model_destroy(model)


def floats(tensor):
    return c.cast(c.cast(tensor, POINTER(DLManaged)).contents.dl_tensor.data, POINTER(c.c_float))


def row(lib, columns):
    """A tensor of one row as a value, and its elements."""
    tensor = lib.handle("lmn_tensor_create", 2, 32, 2, (c.c_int64 * 2)(1, columns))
    elements = floats(tensor)
    return lib.handle("lmn_session_value_create", tensor, None), elements


def show_row(values):
    return f"[{values[0]:.1f},{values[1]:.1f},{values[2]:.1f}]"


def onnx(lib, path):
    """An ONNX model, C = ReLU(A·B + bias), run with new values, and with bound ones."""
    session = lib.handle("lmn_session_create", path, byref(sized(SessionOptions, threads=1)))
    port = sized(PortInfo)
    lib.lmn_session_input_get(session, 0, byref(port))
    (a, given), (b, written) = row(lib, 4), row(lib, 3)
    for i in range(4):
        given[i] = 2
    results = (c.c_void_p * 1)()
    lib.lmn_session_run(session, byref(a), c.c_size_t(1), results, c.c_size_t(1))
    tensor = lib.handle("lmn_session_value_tensor_get", c.c_void_p(results[0]))
    run = show_row(floats(tensor))
    lib.lmn_tensor_destroy(tensor)
    lib.lmn_session_value_destroy(c.c_void_p(results[0]))
    binding = lib.handle("lmn_binding_create", session, byref(a), c.c_size_t(1), byref(b), c.c_size_t(1))
    lib.lmn_session_destroy(session)
    lib.lmn_session_value_destroy(a)
    lib.lmn_session_value_destroy(b)
    for i in range(4):
        given[i] = 3
    lib.lmn_binding_run(binding)
    show(
        f'{{"step":"session","input":"{port.name.decode()}","type":"{port.dtype.decode()}",'
        f'"rows":"{port.symbols[0].decode()}","columns":{port.shape[1]},"run":{run},"bound":{show_row(written)}}}'
    )
    lib.lmn_binding_destroy(binding)


def graph(lib):
    """C = LeakyReLU(A * b + bias), written down operator by operator."""
    (a, given), (b, scale), (bias, shift) = row(lib, 3), row(lib, 3), row(lib, 3)
    for i in range(3):
        given[i], scale[i], shift[i] = 2, i + 1, -4
    x = (c.c_int32 * 3)()

    def at(i):
        return byref(x, 4 * i)

    def node(op, inputs, count, attributes, attribute_count):
        lib.lmn_graph_node_create(g, op, inputs, c.c_size_t(count), attributes, c.c_size_t(attribute_count), at(1),
                                  c.c_size_t(1))  # fmt: skip

    g = lib.handle("lmn_graph_create")
    lib.lmn_graph_input_create(g, b"A", b"f32", 2, (c.c_int64 * 2)(-1, 3), (c.c_char_p * 2)(b"rows", None), at(0))
    lib.lmn_graph_constant_create(g, b"b", b, at(1))
    lib.lmn_graph_constant_create(g, b"bias", bias, at(2))
    node(b"Mul", at(0), 2, None, 0)
    node(b"Add", at(1), 2, None, 0)
    node(b"LeakyRelu", at(1), 1, byref(Attribute(name=b"alpha", kind=1, f=0.5)), 1)
    lib.lmn_graph_output_create(g, b"C", x[1])
    port = sized(PortInfo)
    lib.lmn_graph_value_get(g, x[1], byref(port))
    described = f'"type":"{port.dtype.decode()}","rows":"{port.symbols[0].decode()}"'
    try:
        node(b"Nothing", at(0), 1, None, 0)
    except Error as error:
        described += f',"unknown":"{error.status}"'
    session = lib.handle("lmn_graph_session_create", g, byref(sized(SessionOptions, threads=1)))
    lib.lmn_graph_destroy(g)
    lib.lmn_session_value_destroy(b)
    lib.lmn_session_value_destroy(bias)
    results = (c.c_void_p * 1)()
    lib.lmn_session_run(session, byref(a), c.c_size_t(1), results, c.c_size_t(1))
    tensor = lib.handle("lmn_session_value_tensor_get", c.c_void_p(results[0]))
    show(f'{{"step":"graph",{described},"run":{show_row(floats(tensor))}}}')
    lib.lmn_tensor_destroy(tensor)
    lib.lmn_session_value_destroy(c.c_void_p(results[0]))
    lib.lmn_session_value_destroy(a)
    lib.lmn_session_destroy(session)


def destroy(lib, model, tokenizer, engine):
    """Parents before children: every handle keeps what it needs."""
    norm = lib.handle("lmn_model_tensor_export", model, b"output_norm.weight")
    decoder = lib.handle("lmn_decoder_create", tokenizer, None)
    request = submit(lib, engine, b"Once upon a time", 4000)
    lib.lmn_model_destroy(model)
    lib.lmn_engine_destroy(engine)
    lib.lmn_tokenizer_destroy(tokenizer)
    finish_reason = drain(lib, request)[2]
    lib.lmn_request_destroy(request)
    piece = decode(lib, decoder, 504)
    lib.lmn_decoder_destroy(decoder)
    tensor = c.cast(norm, POINTER(DLManaged)).contents
    read_only = "true" if tensor.flags & 1 else "false"
    first = c.cast(tensor.dl_tensor.data, POINTER(c.c_float))[0]
    show(
        f'{{"step":"destroy","finish":{finish_reason},"piece":{string(piece)},"read_only":{read_only},"first":{first:.6f}}}'
    )
    lib.lmn_tensor_destroy(norm)


def main():
    lib = Library(sys.argv[1])
    show(f'{{"step":"version","version":"{lib.lmn_version().decode()}","abi":{lib.lmn_abi_version()}}}')
    model = lib.handle("lmn_model_open", sys.argv[2].encode(), None)
    inspect(lib, model)
    tokenizer = lib.handle("lmn_tokenizer_create", model)
    tokenize(lib, tokenizer)
    chat(lib, tokenizer)
    options = sized(EngineOptions, threads=2, context_tokens=4096)
    engine = lib.handle("lmn_engine_create", model, byref(options))
    stream(lib, engine)
    cancel(lib, engine)
    provoke_errors(lib, engine, tokenizer)
    score(lib, engine)
    streams(lib, engine, "default", 8)
    null_streams(lib)
    onnx(lib, sys.argv[3].encode())
    graph(lib)
    destroy(lib, model, tokenizer, engine)


if __name__ == "__main__":
    main()
