// SPDX-License-Identifier: Apache-2.0

//! The script of tests/abi in Rust (1.63 or newer), without crates: declarations written by hand as they stand in
//! include/lmnative/. Usage: client MODEL ONNX_MODEL

use std::ffi::{CStr, CString};
use std::io::Write;
use std::mem::size_of;
use std::os::raw::{c_char, c_int, c_void};
use std::ptr::{null, null_mut};

#[allow(non_camel_case_types)]
mod lmn {
    use super::{c_char, c_int, c_void};
    pub type Status = i32;
    pub const OK: Status = 0;
    pub const FINISH_NONE: u32 = 0;
    pub const REQUEST_SEED: u32 = 2;
    pub const REQUEST_IGNORE_EOS: u32 = 4;
    pub const REQUEST_NOTIFY: u32 = 64;
    pub const INT: c_int = 0; // kDLInt
    pub const FLOAT: c_int = 2; // kDLFloat
    pub const READ_ONLY: u64 = 1; // DLPACK_FLAG_BITMASK_READ_ONLY

    macro_rules! handles { ($($name:ident)*) => { $(#[repr(C)] pub struct $name { _private: [u8; 0] })* } }
    handles!(error model tokenizer decoder engine request session session_value binding graph);

    macro_rules! structs {
        ($($name:ident { $($field:ident: $kind:ty,)* })*) => {
            $(#[repr(C)] #[derive(Clone, Copy)] pub struct $name { $(pub $field: $kind,)* })*
        }
    }
    structs! {
        model_info {
            struct_size: u32, format_version: u32, path: *const c_char, architecture: *const c_char, name: *const c_char,
            file_bytes: u64, tensor_count: u64, metadata_count: u64, parameter_count: u64, file_count: u32,
            vocab_size: u32, context_length: u32, embedding_length: u32, layer_count: u32, head_count: u32,
            head_count_kv: u32, head_dim: u32,
        }
        value {
            struct_size: u32, kind: u32, key: *const c_char, key_bytes: u64, u64_: u64, i64_: i64, f64_: f64,
            text: *const c_char, text_bytes: u64, array_kind: u32, bits: u32, array_count: u64,
        }
        tensor_info {
            struct_size: u32, ndim: u32, name: *const c_char, name_bytes: u64, type_: *const c_char, shape: [i64; 4],
            bytes: u64, offset: u64, file_index: u32, supported: u32,
        }
        chat_message { role: *const c_char, content: *const c_char, content_bytes: u64, }
        engine_options {
            struct_size: u32, flags: u32, threads: i32, context_tokens: u32, kv_tokens: u32, prefill_chunk_tokens: u32,
            queue_capacity: u32, kv_type: u32, progress: *const c_void, progress_user: *mut c_void, max_sequences: u32,
            prefix_cache: u32, queue_tokens: u64, queue_bytes: u64, inter_token_target_ns: u64, idle_spin_ns: i64,
            trace_events: u32, activation_bits: u32, device: *const c_char,
        }
        request_options {
            struct_size: u32, flags: u32, prompt: *const c_char, prompt_bytes: u64, prompt_ids: *const i32,
            prompt_id_count: u64, add_bos: u32, max_tokens: u32, temperature: f32, top_k: i32, top_p: f32, min_p: f32,
            repetition_penalty: f32, presence_penalty: f32, frequency_penalty: f32, penalty_last_n: u32, seed: u64,
            top_logprobs: u32, priority: i32, logit_bias: *const c_void, logit_bias_count: u64, stop: *const c_void,
            stop_count: u64, stop_token_ids: *const i32, stop_token_id_count: u64, deadline_ns: u64, tag: u64,
            tenant: u64, n: u32, reserved: u32, callback: *const c_void, callback_user: *mut c_void,
            token_interval_ns: u64,
        }
        chunk {
            struct_size: u32, finish_reason: u32, token_ids: *const i32, token_count: u64, text: *const c_char,
            text_bytes: u64, logprobs: *const f32, top_ids: *const i32, top_logprobs: *const f32, logits: *const f32,
            top_logprob_count: u32, sample: u32,
        }
        request_stats {
            struct_size: u32, finish_reason: u32, prompt_tokens: u64, generated_tokens: u64, queue_ns: u64,
            prefill_ns: u64, decode_ns: u64, seed: u64, tag: u64, cached_tokens: u64, preemptions: u32,
            reserved: u32,
        }
        session_options {
            struct_size: u32, threads: i32, max_shapes: u32, optimize: u32, max_arena_bytes: u64,
            base_folder: *const c_char, max_run_ms: u32, runner: u32, batch_window_us: u32,
            max_batch: u32, max_queue: u32, reserved: u32, device: *const c_char,
        }
        port_info {
            struct_size: u32, kind: i32, name: *const c_char, dtype: *const c_char, ndim: i32, reserved: u32,
            shape: [i64; 8], symbols: [*const c_char; 8],
        }
        attribute { name: *const c_char, kind: i32, f: f32, i: i64, data: *const c_void, count: u64, }
        dl_tensor {
            data: *mut c_void, device_type: i32, device_id: i32, ndim: i32, code: u8, bits: u8, lanes: u16,
            shape: *mut i64, strides: *mut i64, byte_offset: u64,
        }
        managed {
            major: u32, minor: u32, manager_ctx: *mut c_void, deleter: *const c_void, flags: u64, dl_tensor: dl_tensor,
        }
    }

    macro_rules! functions {
        ($($name:ident($($argument:ty),*) -> $result:ty;)*) => {
            extern "C" { $(pub fn $name($(_: $argument),*) -> $result;)* }
        }
    }
    type Err = *mut *mut error;
    functions! {
        lmn_version() -> *const c_char;
        lmn_abi_version() -> u32;
        lmn_status_name(Status) -> *const c_char;
        lmn_error_status(*const error) -> Status;
        lmn_error_message(*const error) -> *const c_char;
        lmn_error_destroy(*mut error) -> ();
        lmn_tensor_create(c_int, c_int, c_int, *const i64, *mut *mut managed, Err) -> Status;
        lmn_tensor_destroy(*mut managed) -> ();
        lmn_model_open(*const c_char, *const c_void, *mut *mut model, Err) -> Status;
        lmn_model_destroy(*mut model) -> ();
        lmn_model_info_get(*const model, *mut model_info, Err) -> Status;
        lmn_model_metadata_find(*const model, *const c_char, *mut value, Err) -> Status;
        lmn_model_tensor_get(*const model, u64, *mut tensor_info, Err) -> Status;
        lmn_model_tensor_export(*const model, *const c_char, *mut *mut managed, Err) -> Status;
        lmn_tokenizer_create(*const model, *mut *mut tokenizer, Err) -> Status;
        lmn_tokenizer_destroy(*mut tokenizer) -> ();
        lmn_tokenizer_encode(*const tokenizer, *const c_char, usize, *const c_void, *mut i32, usize, *mut usize, Err) -> Status;
        lmn_tokenizer_decode(*const tokenizer, *const i32, usize, *const c_void, *mut u8, usize, *mut usize, Err) -> Status;
        lmn_tokenizer_chat_render(*const tokenizer, *const chat_message, usize, *const c_void, *mut u8, usize, *mut usize, Err) -> Status;
        lmn_decoder_create(*const tokenizer, *const c_void, *mut *mut decoder, Err) -> Status;
        lmn_decoder_destroy(*mut decoder) -> ();
        lmn_decoder_decode(*mut decoder, i32, *mut *const c_char, *mut usize, Err) -> Status;
        lmn_engine_create(*const model, *const engine_options, *mut *mut engine, Err) -> Status;
        lmn_engine_destroy(*mut engine) -> ();
        lmn_engine_submit(*mut engine, *const request_options, *mut *mut request, Err) -> Status;
        lmn_engine_score(*mut engine, *const managed, *const c_void, *mut *mut managed, Err) -> Status;
        lmn_engine_descriptor_get(*const engine, *mut i32, Err) -> Status;
        lmn_engine_drain(*mut engine, *mut u64, usize, *mut usize, Err) -> Status;
        lmn_request_next(*mut request, i64, *mut chunk, Err) -> Status;
        lmn_request_cancel(*mut request, Err) -> Status;
        lmn_request_destroy(*mut request) -> ();
        lmn_request_stats_get(*const request, *mut request_stats, Err) -> Status;
        lmn_session_create(*const c_char, *const session_options, *mut *mut session, Err) -> Status;
        lmn_session_destroy(*mut session) -> ();
        lmn_session_input_get(*const session, u32, *mut port_info, Err) -> Status;
        lmn_session_run(*mut session, *const *mut session_value, usize, *mut *mut session_value, usize, Err) -> Status;
        lmn_session_value_create(*mut managed, *const c_char, *mut *mut session_value, Err) -> Status;
        lmn_session_value_tensor_get(*const session_value, *mut *mut managed, Err) -> Status;
        lmn_session_value_destroy(*mut session_value) -> ();
        lmn_graph_create(*mut *mut graph, Err) -> Status;
        lmn_graph_destroy(*mut graph) -> ();
        lmn_graph_input_create(*mut graph, *const c_char, *const c_char, i32, *const i64, *const *const c_char, *mut i32,
                               Err) -> Status;
        lmn_graph_constant_create(*mut graph, *const c_char, *const session_value, *mut i32, Err) -> Status;
        lmn_graph_node_create(*mut graph, *const c_char, *const i32, usize, *const attribute, usize, *mut i32, usize,
                              Err) -> Status;
        lmn_graph_output_create(*mut graph, *const c_char, i32, Err) -> Status;
        lmn_graph_value_get(*const graph, i32, *mut port_info, Err) -> Status;
        lmn_graph_session_create(*const graph, *const session_options, *mut *mut session, Err) -> Status;
        lmn_binding_create(*mut session, *const *mut session_value, usize, *const *mut session_value, usize,
                           *mut *mut binding, Err) -> Status;
        lmn_binding_run(*mut binding, Err) -> Status;
        lmn_binding_destroy(*mut binding) -> ();
    }
}
use lmn::*;

struct Failure {
    status: Status,
    message: Vec<u8>,
    same: bool,
}

/// Makes a call and turns its status and error object into a Result.
fn call(f: impl FnOnce(*mut *mut error) -> Status) -> Result<(), Failure> {
    let mut raw = null_mut();
    let status = f(&mut raw);
    if status == OK {
        return Ok(());
    }
    unsafe {
        let message = CStr::from_ptr(lmn_error_message(raw)).to_bytes().to_vec();
        let same = lmn_error_status(raw) == status;
        lmn_error_destroy(raw);
        Err(Failure { status, message, same })
    }
}

fn must(result: Result<(), Failure>) {
    if let Err(failure) = result {
        eprintln!("{}", String::from_utf8_lossy(&failure.message));
        std::process::exit(1);
    }
}

/// A struct of zeros with its size in front: what option and output structs start as.
fn sized<T: Copy>() -> T {
    unsafe {
        let mut out: T = std::mem::zeroed();
        *(&mut out as *mut T).cast::<u32>() = size_of::<T>() as u32;
        out
    }
}

fn text(data: *const c_char, bytes: u64) -> Vec<u8> {
    if bytes == 0 {
        return Vec::new();
    }
    unsafe { std::slice::from_raw_parts(data.cast(), bytes as usize).to_vec() }
}

fn c_text(data: *const c_char) -> Vec<u8> {
    unsafe { CStr::from_ptr(data).to_bytes().to_vec() }
}

fn status_name(status: Status) -> String {
    String::from_utf8(c_text(unsafe { lmn_status_name(status) })).unwrap()
}

fn quote(text: &[u8]) -> String {
    let mut out = vec![b'"'];
    for &byte in text {
        match byte {
            b'"' | b'\\' => out.extend([b'\\', byte]),
            0..=0x1f => out.extend(format!("\\u{byte:04x}").bytes()),
            _ => out.push(byte),
        }
    }
    out.push(b'"');
    String::from_utf8(out).expect("the library hands out UTF-8")
}

fn numbers(values: &[i32]) -> String {
    format!("[{}]", values.iter().map(i32::to_string).collect::<Vec<_>>().join(","))
}

fn show(line: String) {
    writeln!(std::io::stdout(), "{line}").unwrap();
}

fn inspect(model: *const model) {
    let mut info: model_info = sized();
    must(call(|err| unsafe { lmn_model_info_get(model, &mut info, err) }));
    show(format!(
        "{{\"step\":\"model\",\"architecture\":{},\"name\":{},\"tensors\":{},\"metadata\":{},\"parameters\":{},\
         \"vocab\":{},\"context\":{},\"embedding\":{},\"layers\":{},\"heads\":{},\"kv_heads\":{},\"head_dim\":{}}}",
        quote(&c_text(info.architecture)), quote(&c_text(info.name)), info.tensor_count, info.metadata_count,
        info.parameter_count, info.vocab_size, info.context_length, info.embedding_length, info.layer_count,
        info.head_count, info.head_count_kv, info.head_dim
    ));
    let mut pre: value = sized();
    must(call(|err| unsafe { lmn_model_metadata_find(model, b"tokenizer.ggml.pre\0".as_ptr().cast(), &mut pre, err) }));
    show(format!("{{\"step\":\"metadata\",\"kind\":{},\"text\":{}}}", pre.kind, quote(&text(pre.text, pre.text_bytes))));
    let mut tensor: tensor_info = sized();
    must(call(|err| unsafe { lmn_model_tensor_get(model, 0, &mut tensor, err) }));
    show(format!(
        "{{\"step\":\"tensor\",\"name\":{},\"type\":{},\"shape\":[{},{}],\"bytes\":{}}}",
        quote(&text(tensor.name, tensor.name_bytes)), quote(&c_text(tensor.type_)), tensor.shape[0], tensor.shape[1],
        tensor.bytes
    ));
}

fn new_decoder(tokenizer: *const tokenizer) -> *mut decoder {
    let mut decoder = null_mut();
    must(call(|err| unsafe { lmn_decoder_create(tokenizer, null(), &mut decoder, err) }));
    decoder
}

fn decode_one(decoder: *mut decoder, id: i32) -> Vec<u8> {
    let (mut piece, mut bytes) = (null(), 0);
    must(call(|err| unsafe { lmn_decoder_decode(decoder, id, &mut piece, &mut bytes, err) }));
    text(piece, bytes as u64)
}

fn decode_all(tokenizer: *const tokenizer, ids: &[i32]) -> Result<Vec<u8>, Failure> {
    let (mut out, mut bytes) = (vec![0; 256], 0);
    call(|err| unsafe {
        lmn_tokenizer_decode(tokenizer, ids.as_ptr(), ids.len(), null(), out.as_mut_ptr(), out.len(), &mut bytes, err)
    })?;
    out.truncate(bytes);
    Ok(out)
}

fn tokenize(tokenizer: *const tokenizer) {
    let source = "Größe 🦙 \"quoted\"\n";
    let (mut ids, mut count) = (vec![0; 64], 0);
    must(call(|err| unsafe {
        lmn_tokenizer_encode(
            tokenizer, source.as_ptr().cast(), source.len(), null(), ids.as_mut_ptr(), ids.len(), &mut count, err,
        )
    }));
    ids.truncate(count);
    let decoded = decode_all(tokenizer, &ids).unwrap_or_default();
    let decoder = new_decoder(tokenizer);
    let pieces: Vec<String> = ids.iter().map(|&id| quote(&decode_one(decoder, id))).collect();
    unsafe { lmn_decoder_destroy(decoder) };
    show(format!(
        "{{\"step\":\"tokenize\",\"ids\":{},\"decoded\":{},\"pieces\":[{}]}}",
        numbers(&ids), quote(&decoded), pieces.join(",")
    ));
}

fn chat(tokenizer: *const tokenizer) {
    let hi = "Hi 👋";
    let messages = [
        chat_message { role: b"system\0".as_ptr().cast(), content: b"Be brief.\0".as_ptr().cast(), content_bytes: 9 },
        chat_message { role: b"user\0".as_ptr().cast(), content: hi.as_ptr().cast(), content_bytes: hi.len() as u64 },
    ];
    let (mut out, mut bytes) = (vec![0; 512], 0);
    must(call(|err| unsafe {
        lmn_tokenizer_chat_render(tokenizer, messages.as_ptr(), 2, null(), out.as_mut_ptr(), out.len(), &mut bytes, err)
    }));
    show(format!("{{\"step\":\"chat\",\"text\":{}}}", quote(&out[..bytes])));
}

fn submit(engine: *mut engine, options: *const request_options) -> Result<*mut request, Failure> {
    let mut request = null_mut();
    call(|err| unsafe { lmn_engine_submit(engine, options, &mut request, err) })?;
    Ok(request)
}

fn text_options(prompt: &str, max_tokens: u32) -> request_options {
    request_options {
        prompt: prompt.as_ptr().cast(), prompt_bytes: prompt.len() as u64, max_tokens, flags: REQUEST_IGNORE_EOS, ..sized()
    }
}

fn must_submit(engine: *mut engine, options: &request_options) -> *mut request {
    match submit(engine, options) {
        Ok(request) => request,
        Err(failure) => {
            must(Err(failure));
            unreachable!()
        }
    }
}

/// One answer as its reader puts it together.
#[derive(Default, PartialEq)]
struct Answer {
    ids: Vec<i32>,
    text: Vec<u8>,
}

impl Answer {
    fn add(&mut self, chunk: &chunk) {
        if chunk.token_count > 0 {
            self.ids.extend(unsafe { std::slice::from_raw_parts(chunk.token_ids, chunk.token_count as usize) });
        }
        self.text.extend(text(chunk.text, chunk.text_bytes));
    }
}

fn drain(request: *mut request) -> (Answer, u32) {
    let mut answer = Answer::default();
    loop {
        let mut chunk: chunk = sized();
        must(call(|err| unsafe { lmn_request_next(request, -1, &mut chunk, err) }));
        answer.add(&chunk);
        if chunk.finish_reason != FINISH_NONE {
            return (answer, chunk.finish_reason);
        }
    }
}

fn stream(engine: *mut engine) {
    let request = must_submit(engine, &text_options("The capital of France is", 16));
    let (answer, finish) = drain(request);
    let mut stats: request_stats = sized();
    must(call(|err| unsafe { lmn_request_stats_get(request, &mut stats, err) }));
    unsafe { lmn_request_destroy(request) };
    show(format!(
        "{{\"step\":\"stream\",\"ids\":{},\"text\":{},\"finish\":{},\"prompt_tokens\":{},\"generated_tokens\":{}}}",
        numbers(&answer.ids), quote(&answer.text), finish, stats.prompt_tokens, stats.generated_tokens
    ));
}

fn cancel(engine: *mut engine) {
    let request = must_submit(engine, &text_options("Once upon a time", 4000));
    must(call(|err| unsafe { lmn_request_cancel(request, err) }));
    let finish = drain(request).1;
    let mut chunk: chunk = sized();
    let after = unsafe { lmn_request_next(request, 0, &mut chunk, null_mut()) };
    unsafe { lmn_request_destroy(request) };
    show(format!("{{\"step\":\"cancel\",\"finish\":{},\"after\":\"{}\"}}", finish, status_name(after)));
}

fn provoke<T>(what: &str, result: Result<T, Failure>) {
    match result {
        Ok(_) => show(format!("{{\"step\":\"error\",\"what\":\"{what}\",\"status\":\"none\"}}")),
        Err(e) => show(format!(
            "{{\"step\":\"error\",\"what\":\"{what}\",\"status\":\"{}\",\"message\":{},\"same\":{}}}",
            status_name(e.status), quote(&e.message), e.same
        )),
    }
}

fn provoke_errors(engine: *mut engine, tokenizer: *const tokenizer) {
    let mut model = null_mut();
    provoke("missing file", call(|err| unsafe {
        lmn_model_open(b"/nonexistent/model.gguf\0".as_ptr().cast(), null(), &mut model, err)
    }));
    provoke("NaN temperature", submit(engine, &request_options { temperature: f32::NAN, ..text_options("x", 0) }));
    let ids = [1, 999999];
    provoke("token id out of range", submit(engine, &request_options {
        prompt_ids: ids.as_ptr(), prompt_id_count: 2, ..sized()
    }));
    #[repr(C)]
    struct Future {
        known: request_options,
        added_later: u64,
    }
    let mut future = Future { known: text_options("x", 0), added_later: 7 };
    future.known.struct_size = size_of::<Future>() as u32;
    provoke("option from the future", submit(engine, (&future as *const Future).cast()));
    provoke("decode of a bad id", decode_all(tokenizer, &[-1]));
}

fn score(engine: *mut engine) {
    let tokens = [504, 3575, 282, 4649];
    let (mut ids, mut logits) = (null_mut(), null_mut());
    let size = tokens.len() as i64;
    must(call(|err| unsafe { lmn_tensor_create(INT, 32, 1, &size, &mut ids, err) }));
    unsafe { std::ptr::copy_nonoverlapping(tokens.as_ptr(), (*ids).dl_tensor.data.cast::<i32>(), tokens.len()) };
    must(call(|err| unsafe { lmn_engine_score(engine, ids, null(), &mut logits, err) }));
    let (rows, columns, values) = unsafe {
        let tensor = &(*logits).dl_tensor;
        let (rows, columns) = (*tensor.shape as usize, *tensor.shape.add(1) as usize);
        (rows, columns, std::slice::from_raw_parts(tensor.data.cast::<f32>(), rows * columns))
    };
    let top: Vec<i32> = values
        .chunks(columns)
        .map(|row| (0..columns).fold(0, |best, j| if row[j] > row[best] { j } else { best }) as i32)
        .collect();
    show(format!("{{\"step\":\"score\",\"shape\":[{rows},{columns}],\"top\":{}}}", numbers(&top)));
    unsafe {
        lmn_tensor_destroy(ids);
        lmn_tensor_destroy(logits);
    }
}

#[repr(C)]
struct PollFd {
    fd: c_int,
    events: i16,
    revents: i16,
}
extern "C" {
    fn poll(fds: *mut PollFd, count: std::os::raw::c_ulong, timeout_ms: c_int) -> c_int;
}
const POLLIN: i16 = 1;

fn submit_stream(engine: *mut engine, index: usize, max_tokens: u32) -> *mut request {
    let prompt = ["One", "Two, three", "The sea is", "Once upon a time"][index % 4];
    let options = request_options {
        temperature: 0.8,
        seed: index as u64 % 4,
        tag: index as u64,
        flags: REQUEST_IGNORE_EOS | REQUEST_SEED | REQUEST_NOTIFY,
        ..text_options(prompt, max_tokens)
    };
    must_submit(engine, &options)
}

/// Many requests at once: one wait on the engine's descriptor for all, then those that have news.
fn streams(engine: *mut engine, name: &str, max_tokens: u32) {
    let alone: Vec<Answer> = (0..4)
        .map(|i| {
            let request = submit_stream(engine, i, max_tokens);
            let answer = drain(request).0;
            unsafe { lmn_request_destroy(request) };
            answer
        })
        .collect();
    let requests: Vec<*mut request> = (0..64).map(|i| submit_stream(engine, i, max_tokens)).collect();
    let mut got: Vec<Answer> = requests.iter().map(|_| Answer::default()).collect();
    let mut descriptor = -1;
    must(call(|err| unsafe { lmn_engine_descriptor_get(engine, &mut descriptor, err) }));
    let mut open = requests.len();
    while open > 0 {
        let mut news = PollFd { fd: descriptor, events: POLLIN, revents: 0 };
        assert_eq!(unsafe { poll(&mut news, 1, 60_000) }, 1);
        let (mut tags, mut count) = ([0; 16], 0);
        must(call(|err| unsafe { lmn_engine_drain(engine, tags.as_mut_ptr(), tags.len(), &mut count, err) }));
        for &tag in &tags[..count] {
            let mut chunk: chunk = sized();
            // Without a place for an error: that there is no news is none.
            while unsafe { lmn_request_next(requests[tag as usize], 0, &mut chunk, null_mut()) } == OK {
                got[tag as usize].add(&chunk);
                open -= (chunk.finish_reason != FINISH_NONE) as usize;
            }
        }
    }
    for &request in &requests {
        unsafe { lmn_request_destroy(request) };
    }
    show(format!(
        "{{\"step\":\"streams\",\"model\":\"{name}\",\"streams\":{},\"tokens\":{},\"equal\":{},\"alone\":[{}]}}",
        got.len(),
        got.iter().map(|answer| answer.ids.len()).sum::<usize>(),
        got.iter().enumerate().all(|(i, answer)| *answer == alone[i % 4]),
        alone.iter().map(|answer| numbers(&answer.ids)).collect::<Vec<_>>().join(",")
    ));
}

fn null_streams() {
    let (mut model, mut engine) = (null_mut(), null_mut());
    must(call(|err| unsafe {
        lmn_model_open(b"null:vocab=512,context=256\0".as_ptr().cast(), null(), &mut model, err)
    }));
    let options = engine_options { threads: 1, kv_tokens: 8192, ..sized() };
    must(call(|err| unsafe { lmn_engine_create(model, &options, &mut engine, err) }));
    streams(engine, "null", 32);
    unsafe {
        lmn_engine_destroy(engine);
        lmn_model_destroy(model);
    }
}

/// A tensor of one row as a value, and its elements, which live as long as something holds the value.
fn row(columns: usize) -> (*mut session_value, &'static mut [f32]) {
    let shape = [1, columns as i64];
    let (mut tensor, mut value) = (null_mut(), null_mut());
    must(call(|err| unsafe { lmn_tensor_create(FLOAT, 32, 2, shape.as_ptr(), &mut tensor, err) }));
    let elements = unsafe { std::slice::from_raw_parts_mut((*tensor).dl_tensor.data.cast::<f32>(), columns) };
    must(call(|err| unsafe { lmn_session_value_create(tensor, null(), &mut value, err) }));
    (value, elements)
}

fn show_row(values: &[f32]) -> String {
    format!("[{:.1},{:.1},{:.1}]", values[0], values[1], values[2])
}

/// An ONNX model, C = ReLU(A·B + bias), run with new values, and with bound ones.
fn onnx(path: &CStr) {
    let (mut session, mut result, mut tensor, mut binding) = (null_mut(), null_mut(), null_mut(), null_mut());
    let options = session_options { threads: 1, ..sized() };
    must(call(|err| unsafe { lmn_session_create(path.as_ptr(), &options, &mut session, err) }));
    let mut port: port_info = sized();
    must(call(|err| unsafe { lmn_session_input_get(session, 0, &mut port, err) }));
    let (name, kind, rows) = (quote(&c_text(port.name)), quote(&c_text(port.dtype)), quote(&c_text(port.symbols[0])));
    let ((a, given), (c, written)) = (row(4), row(3));
    given.fill(2.0);
    must(call(|err| unsafe { lmn_session_run(session, &a, 1, &mut result, 1, err) }));
    must(call(|err| unsafe { lmn_session_value_tensor_get(result, &mut tensor, err) }));
    let run = unsafe { show_row(std::slice::from_raw_parts((*tensor).dl_tensor.data.cast::<f32>(), 3)) };
    must(call(|err| unsafe { lmn_binding_create(session, &a, 1, &c, 1, &mut binding, err) }));
    unsafe {
        lmn_tensor_destroy(tensor);
        lmn_session_value_destroy(result);
        lmn_session_destroy(session);
        lmn_session_value_destroy(a);
        lmn_session_value_destroy(c);
    }
    given.fill(3.0);
    must(call(|err| unsafe { lmn_binding_run(binding, err) }));
    show(format!(
        "{{\"step\":\"session\",\"input\":{},\"type\":{},\"rows\":{},\"columns\":{},\"run\":{},\"bound\":{}}}",
        name, kind, rows, port.shape[1], run, show_row(written)
    ));
    unsafe { lmn_binding_destroy(binding) };
}

/// C = LeakyReLU(A * b + bias), written down operator by operator.
fn graph() {
    let ((a, given), (b, scale), (bias, shift)) = (row(3), row(3), row(3));
    given.fill(2.0);
    shift.fill(-4.0);
    scale.copy_from_slice(&[1.0, 2.0, 3.0]);
    let text = |bytes: &'static [u8]| bytes.as_ptr().cast::<c_char>();
    let alpha = attribute { name: text(b"alpha\0"), kind: 1, f: 0.5, i: 0, data: null(), count: 0 };
    let (shape, symbols) = ([-1, 3], [text(b"rows\0"), null()]);
    let (mut g, mut session, mut result, mut tensor) = (null_mut(), null_mut(), null_mut(), null_mut());
    let mut x = [0i32; 3];
    let mut port: port_info = sized();
    must(call(|err| unsafe { lmn_graph_create(&mut g, err) }));
    let node = |op: &'static [u8], inputs: &[i32], attributes: &[attribute], made: &mut i32| {
        call(|err| unsafe {
            lmn_graph_node_create(g, text(op), inputs.as_ptr(), inputs.len(), attributes.as_ptr(), attributes.len(),
                                  made, 1, err)
        })
    };
    must(call(|err| unsafe {
        lmn_graph_input_create(g, text(b"A\0"), text(b"f32\0"), 2, shape.as_ptr(), symbols.as_ptr(), &mut x[0], err)
    }));
    must(call(|err| unsafe { lmn_graph_constant_create(g, text(b"b\0"), b, &mut x[1], err) }));
    must(call(|err| unsafe { lmn_graph_constant_create(g, text(b"bias\0"), bias, &mut x[2], err) }));
    must(node(b"Mul\0", &[x[0], x[1]], &[], &mut x[1]));
    must(node(b"Add\0", &[x[1], x[2]], &[], &mut x[1]));
    must(node(b"LeakyRelu\0", &[x[1]], &[alpha], &mut x[1]));
    must(call(|err| unsafe { lmn_graph_output_create(g, text(b"C\0"), x[1], err) }));
    must(call(|err| unsafe { lmn_graph_value_get(g, x[1], &mut port, err) }));
    let (kind, rows) = (quote(&c_text(port.dtype)), quote(&c_text(port.symbols[0])));
    let unknown = match node(b"Nothing\0", &[x[0]], &[], &mut x[1]) {
        Ok(_) => OK,
        Err(failure) => failure.status,
    };
    let options = session_options { threads: 1, ..sized() };
    must(call(|err| unsafe { lmn_graph_session_create(g, &options, &mut session, err) }));
    unsafe {
        lmn_graph_destroy(g);
        lmn_session_value_destroy(b);
        lmn_session_value_destroy(bias);
    }
    must(call(|err| unsafe { lmn_session_run(session, &a, 1, &mut result, 1, err) }));
    must(call(|err| unsafe { lmn_session_value_tensor_get(result, &mut tensor, err) }));
    let run = unsafe { show_row(std::slice::from_raw_parts((*tensor).dl_tensor.data.cast::<f32>(), 3)) };
    show(format!(
        "{{\"step\":\"graph\",\"type\":{},\"rows\":{},\"unknown\":{},\"run\":{}}}",
        kind,
        rows,
        quote(&c_text(unsafe { lmn_status_name(unknown) })),
        run
    ));
    unsafe {
        lmn_tensor_destroy(tensor);
        lmn_session_value_destroy(result);
        lmn_session_value_destroy(a);
        lmn_session_destroy(session);
    }
}

/// Parents before children: every handle keeps what it needs.
fn destroy(model: *mut model, tokenizer: *mut tokenizer, engine: *mut engine) {
    let mut norm = null_mut();
    must(call(|err| unsafe { lmn_model_tensor_export(model, b"output_norm.weight\0".as_ptr().cast(), &mut norm, err) }));
    let decoder = new_decoder(tokenizer);
    let request = must_submit(engine, &text_options("Once upon a time", 4000));
    unsafe {
        lmn_model_destroy(model);
        lmn_engine_destroy(engine);
        lmn_tokenizer_destroy(tokenizer);
    }
    let finish = drain(request).1;
    unsafe { lmn_request_destroy(request) };
    let piece = decode_one(decoder, 504);
    unsafe { lmn_decoder_destroy(decoder) };
    let (read_only, first) =
        unsafe { ((*norm).flags & READ_ONLY != 0, *(*norm).dl_tensor.data.cast::<f32>()) };
    show(format!(
        "{{\"step\":\"destroy\",\"finish\":{},\"piece\":{},\"read_only\":{},\"first\":{:.6}}}",
        finish, quote(&piece), read_only, first
    ));
    unsafe { lmn_tensor_destroy(norm) };
}

fn main() {
    let argument = |i| CString::new(std::env::args().nth(i).expect("usage: client MODEL ONNX_MODEL")).unwrap();
    let path = argument(1);
    show(format!("{{\"step\":\"version\",\"version\":{},\"abi\":{}}}", quote(&c_text(unsafe { lmn_version() })), unsafe {
        lmn_abi_version()
    }));
    let mut model = null_mut();
    must(call(|err| unsafe { lmn_model_open(path.as_ptr(), null(), &mut model, err) }));
    inspect(model);
    let mut tokenizer = null_mut();
    must(call(|err| unsafe { lmn_tokenizer_create(model, &mut tokenizer, err) }));
    tokenize(tokenizer);
    chat(tokenizer);
    let mut engine = null_mut();
    let options = engine_options { threads: 2, context_tokens: 4096, ..sized() };
    must(call(|err| unsafe { lmn_engine_create(model, &options, &mut engine, err) }));
    stream(engine);
    cancel(engine);
    provoke_errors(engine, tokenizer);
    score(engine);
    streams(engine, "default", 8);
    null_streams();
    onnx(&argument(2));
    graph();
    destroy(model, tokenizer, engine);
}
