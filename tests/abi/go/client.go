// SPDX-License-Identifier: Apache-2.0

// The script of tests/abi in Go, over cgo. Usage: client MODEL ONNX_MODEL
//
// Flags come from CGO_CFLAGS and CGO_LDFLAGS (pkg-config lmnative has them). Memory that a struct of the library points to is
// C memory: cgo forbids Go pointers behind Go pointers.
package main

// #include <stdlib.h>
// #include <string.h>
// #include "lmnative/lmnative.h"
//
// struct future { lmn_request_options known; uint64_t added_later; };
// static float *floats(struct DLManagedTensorVersioned *t) { return t->dl_tensor.data; }
import "C"

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"sync"
	"syscall"
	"unsafe"
)

// Error is a failed call: the status and the message.
type Error struct {
	Status  C.lmn_status
	Message string
	Same    bool // the error object has the status that the call returned
}

func (e *Error) Error() string { return e.Message }

// check turns a status and its error object into a Go error, and frees the object.
func check(status C.lmn_status, err *C.lmn_error) error {
	if status == C.LMN_OK {
		return nil
	}
	defer C.lmn_error_destroy(err)
	return &Error{status, C.GoString(C.lmn_error_message(err)), C.lmn_error_status(err) == status}
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func quote(text string) string {
	var out strings.Builder
	out.WriteByte('"')
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"' || c == '\\':
			out.WriteByte('\\')
			out.WriteByte(c)
		case c < 0x20:
			fmt.Fprintf(&out, "\\u%04x", c)
		default:
			out.WriteByte(c)
		}
	}
	out.WriteByte('"')
	return out.String()
}

func numbers[T ~int32 | ~int](values []T) string {
	parts := make([]string, len(values))
	for i, v := range values {
		parts[i] = fmt.Sprint(v)
	}
	return "[" + strings.Join(parts, ",") + "]"
}

func goString(text *C.char, bytes C.uint64_t) string { return C.GoStringN(text, C.int(bytes)) }

func openModel(path string) (*C.lmn_model, error) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var model *C.lmn_model
	var err *C.lmn_error
	status := C.lmn_model_open(name, nil, &model, &err)
	return model, check(status, err)
}

func inspect(model *C.lmn_model) {
	var err *C.lmn_error
	info := C.lmn_model_info{struct_size: C.sizeof_lmn_model_info}
	status := C.lmn_model_info_get(model, &info, &err)
	must(check(status, err))
	fmt.Printf(`{"step":"model","architecture":%s,"name":%s,"tensors":%d,"metadata":%d,"parameters":%d,"vocab":%d,`+
		`"context":%d,"embedding":%d,"layers":%d,"heads":%d,"kv_heads":%d,"head_dim":%d}`+"\n",
		quote(C.GoString(info.architecture)), quote(C.GoString(info.name)), info.tensor_count, info.metadata_count,
		info.parameter_count, info.vocab_size, info.context_length, info.embedding_length, info.layer_count,
		info.head_count, info.head_count_kv, info.head_dim)

	key := C.CString("tokenizer.ggml.pre")
	defer C.free(unsafe.Pointer(key))
	value := C.lmn_value{struct_size: C.sizeof_lmn_value}
	status = C.lmn_model_metadata_find(model, key, &value, &err)
	must(check(status, err))
	fmt.Printf(`{"step":"metadata","kind":%d,"text":%s}`+"\n", value.kind, quote(goString(value.text, value.text_bytes)))

	tensor := C.lmn_tensor_info{struct_size: C.sizeof_lmn_tensor_info}
	status = C.lmn_model_tensor_get(model, 0, &tensor, &err)
	must(check(status, err))
	fmt.Printf(`{"step":"tensor","name":%s,"type":%s,"shape":[%d,%d],"bytes":%d}`+"\n",
		quote(goString(tensor.name, tensor.name_bytes)), quote(C.GoString(tensor._type)), tensor.shape[0], tensor.shape[1],
		tensor.bytes)
}

func newDecoder(tokenizer *C.lmn_tokenizer) *C.lmn_decoder {
	var decoder *C.lmn_decoder
	var err *C.lmn_error
	status := C.lmn_decoder_create(tokenizer, nil, &decoder, &err)
	must(check(status, err))
	return decoder
}

func decodeOne(decoder *C.lmn_decoder, id C.int32_t) string {
	var piece *C.char
	var bytes C.size_t
	var err *C.lmn_error
	status := C.lmn_decoder_decode(decoder, id, &piece, &bytes, &err)
	must(check(status, err))
	return goString(piece, C.uint64_t(bytes))
}

func decodeAll(tokenizer *C.lmn_tokenizer, ids []C.int32_t) (string, error) {
	text := make([]byte, 256)
	var bytes C.size_t
	var err *C.lmn_error
	status := C.lmn_tokenizer_decode(tokenizer, &ids[0], C.size_t(len(ids)), nil, (*C.char)(unsafe.Pointer(&text[0])),
		C.size_t(len(text)), &bytes, &err)
	return string(text[:bytes]), check(status, err)
}

func tokenize(tokenizer *C.lmn_tokenizer) {
	text := "Größe 🦙 \"quoted\"\n"
	raw := C.CString(text)
	defer C.free(unsafe.Pointer(raw))
	ids := make([]C.int32_t, 64)
	var count C.size_t
	var err *C.lmn_error
	status := C.lmn_tokenizer_encode(tokenizer, raw, C.size_t(len(text)), nil, &ids[0], C.size_t(len(ids)), &count, &err)
	must(check(status, err))
	ids = ids[:count]
	decoded, failure := decodeAll(tokenizer, ids)
	must(failure)
	decoder := newDecoder(tokenizer)
	defer C.lmn_decoder_destroy(decoder)
	var pieces []string
	for _, id := range ids {
		pieces = append(pieces, quote(decodeOne(decoder, id)))
	}
	fmt.Printf(`{"step":"tokenize","ids":%s,"decoded":%s,"pieces":[%s]}`+"\n", numbers(ids), quote(decoded),
		strings.Join(pieces, ","))
}

func chat(tokenizer *C.lmn_tokenizer) {
	turns := [][2]string{{"system", "Be brief."}, {"user", "Hi 👋"}}
	memory := C.calloc(C.size_t(len(turns)), C.sizeof_lmn_chat_message)
	defer C.free(memory)
	messages := unsafe.Slice((*C.lmn_chat_message)(memory), len(turns))
	for i, turn := range turns {
		messages[i] = C.lmn_chat_message{C.CString(turn[0]), C.CString(turn[1]), C.uint64_t(len(turn[1]))}
		defer C.free(unsafe.Pointer(messages[i].role))
		defer C.free(unsafe.Pointer(messages[i].content))
	}
	text := make([]byte, 512)
	var bytes C.size_t
	var err *C.lmn_error
	status := C.lmn_tokenizer_chat_render(tokenizer, &messages[0], C.size_t(len(turns)), nil,
		(*C.char)(unsafe.Pointer(&text[0])), C.size_t(len(text)), &bytes, &err)
	must(check(status, err))
	fmt.Printf(`{"step":"chat","text":%s}`+"\n", quote(string(text[:bytes])))
}

func submit(engine *C.lmn_engine, options *C.lmn_request_options) (*C.lmn_request, error) {
	var request *C.lmn_request
	var err *C.lmn_error
	status := C.lmn_engine_submit(engine, options, &request, &err)
	return request, check(status, err)
}

func submitText(engine *C.lmn_engine, prompt string, options C.lmn_request_options) (*C.lmn_request, error) {
	text := C.CString(prompt)
	defer C.free(unsafe.Pointer(text))
	options.struct_size = C.sizeof_lmn_request_options
	options.prompt = text
	options.prompt_bytes = C.uint64_t(len(prompt))
	return submit(engine, &options)
}

func drain(request *C.lmn_request) (ids []C.int32_t, text string, finish C.uint32_t) {
	var err *C.lmn_error
	for finish == C.LMN_FINISH_NONE {
		chunk := C.lmn_chunk{struct_size: C.sizeof_lmn_chunk}
		status := C.lmn_request_next(request, -1, &chunk, &err)
		must(check(status, err))
		ids = append(ids, unsafe.Slice(chunk.token_ids, int(chunk.token_count))...)
		text += goString(chunk.text, chunk.text_bytes)
		finish = chunk.finish_reason
	}
	return ids, text, finish
}

func stream(engine *C.lmn_engine) {
	request, failure := submitText(engine, "The capital of France is",
		C.lmn_request_options{max_tokens: 16, flags: C.LMN_REQUEST_IGNORE_EOS})
	must(failure)
	defer C.lmn_request_destroy(request)
	ids, text, finish := drain(request)
	var err *C.lmn_error
	stats := C.lmn_request_stats{struct_size: C.sizeof_lmn_request_stats}
	status := C.lmn_request_stats_get(request, &stats, &err)
	must(check(status, err))
	fmt.Printf(`{"step":"stream","ids":%s,"text":%s,"finish":%d,"prompt_tokens":%d,"generated_tokens":%d}`+"\n",
		numbers(ids), quote(text), finish, stats.prompt_tokens, stats.generated_tokens)
}

var long = C.lmn_request_options{max_tokens: 4000, flags: C.LMN_REQUEST_IGNORE_EOS}

func cancel(engine *C.lmn_engine) {
	request, failure := submitText(engine, "Once upon a time", long)
	must(failure)
	defer C.lmn_request_destroy(request)
	var err *C.lmn_error
	status := C.lmn_request_cancel(request, &err)
	must(check(status, err))
	_, _, finish := drain(request)
	chunk := C.lmn_chunk{struct_size: C.sizeof_lmn_chunk}
	after := C.lmn_request_next(request, 0, &chunk, nil)
	fmt.Printf(`{"step":"cancel","finish":%d,"after":"%s"}`+"\n", finish, C.GoString(C.lmn_status_name(after)))
}

func provoke(what string, failure error) {
	var e *Error
	if !errors.As(failure, &e) {
		fmt.Printf(`{"step":"error","what":"%s","status":"none"}`+"\n", what)
		return
	}
	fmt.Printf(`{"step":"error","what":"%s","status":"%s","message":%s,"same":%t}`+"\n", what,
		C.GoString(C.lmn_status_name(e.Status)), quote(e.Message), e.Same)
}

func provokeErrors(engine *C.lmn_engine, tokenizer *C.lmn_tokenizer) {
	_, failure := openModel("/nonexistent/model.gguf")
	provoke("missing file", failure)

	_, failure = submitText(engine, "x", C.lmn_request_options{temperature: C.float(math.NaN())})
	provoke("NaN temperature", failure)

	ids := (*[2]C.int32_t)(C.malloc(8))
	defer C.free(unsafe.Pointer(ids))
	*ids = [2]C.int32_t{1, 999999}
	options := C.lmn_request_options{struct_size: C.sizeof_lmn_request_options, prompt_ids: &ids[0], prompt_id_count: 2}
	_, failure = submit(engine, &options)
	provoke("token id out of range", failure)

	future := (*C.struct_future)(C.calloc(1, C.sizeof_struct_future))
	defer C.free(unsafe.Pointer(future))
	future.known.struct_size = C.sizeof_struct_future
	future.known.prompt = C.CString("x")
	defer C.free(unsafe.Pointer(future.known.prompt))
	future.known.prompt_bytes = 1
	future.added_later = 7
	_, failure = submit(engine, &future.known)
	provoke("option from the future", failure)

	_, failure = decodeAll(tokenizer, []C.int32_t{-1})
	provoke("decode of a bad id", failure)
}

func score(engine *C.lmn_engine) {
	var ids, logits *C.struct_DLManagedTensorVersioned
	var err *C.lmn_error
	tokens := [4]C.int32_t{504, 3575, 282, 4649}
	size := C.int64_t(len(tokens))
	status := C.lmn_tensor_create(C.kDLInt, 32, 1, &size, &ids, &err)
	must(check(status, err))
	defer C.lmn_tensor_destroy(ids)
	C.memcpy(ids.dl_tensor.data, unsafe.Pointer(&tokens[0]), C.sizeof_int32_t*C.size_t(len(tokens)))
	status = C.lmn_engine_score(engine, ids, nil, &logits, &err)
	must(check(status, err))
	defer C.lmn_tensor_destroy(logits)
	shape := unsafe.Slice(logits.dl_tensor.shape, 2)
	rows, columns := int(shape[0]), int(shape[1])
	values := unsafe.Slice(C.floats(logits), rows*columns)
	top := make([]int, rows)
	for i := range top {
		row := values[i*columns : (i+1)*columns]
		for j := range row {
			if row[j] > row[top[i]] {
				top[i] = j
			}
		}
	}
	fmt.Printf(`{"step":"score","shape":[%d,%d],"top":%s}`+"\n", rows, columns, numbers(top))
}

var prompts = [...]string{"One", "Two, three", "The sea is", "Once upon a time"}

func submitStream(engine *C.lmn_engine, index int, maxTokens C.uint32_t) *C.lmn_request {
	request, failure := submitText(engine, prompts[index%4], C.lmn_request_options{max_tokens: maxTokens,
		temperature: 0.8, seed: C.uint64_t(index % 4), tag: C.uint64_t(index),
		flags: C.LMN_REQUEST_IGNORE_EOS | C.LMN_REQUEST_SEED | C.LMN_REQUEST_NOTIFY})
	must(failure)
	return request
}

// poller waits for the engine's descriptor in Go's own poller, without an operating system thread, and says on the channel
// of each request that has news so, until stop is called.
func poller(engine *C.lmn_engine, news []chan struct{}) (stop func()) {
	var descriptor C.int32_t
	var err *C.lmn_error
	status := C.lmn_engine_descriptor_get(engine, &descriptor, &err)
	must(check(status, err))
	// A duplicate, because Go closes what it waits for.
	own, failure := syscall.Dup(int(descriptor))
	must(failure)
	file := os.NewFile(uintptr(own), "lmnative engine")
	conn, failure := file.SyscallConn()
	must(failure)
	var ended sync.WaitGroup
	ended.Add(1)
	go func() {
		defer ended.Done()
		// The function looks; Read calls it again when the descriptor has become readable, until the file is closed.
		conn.Read(func(uintptr) bool {
			tags := make([]C.uint64_t, 16)
			for {
				var count C.size_t
				var err *C.lmn_error
				status := C.lmn_engine_drain(engine, &tags[0], C.size_t(len(tags)), &count, &err)
				must(check(status, err))
				for _, tag := range tags[:count] {
					select {
					case news[tag] <- struct{}{}:
					default: // it was told already and has not looked yet
					}
				}
				if int(count) < len(tags) {
					return false
				}
			}
		})
	}()
	return func() {
		file.Close()
		ended.Wait()
	}
}

// streams runs many requests at once, each read by a goroutine of its own that a poller wakes.
func streams(engine *C.lmn_engine, name string, maxTokens C.uint32_t) {
	type answer struct {
		ids  []C.int32_t
		text string
	}
	var alone [4]answer
	for i := range alone {
		request := submitStream(engine, i, maxTokens)
		alone[i].ids, alone[i].text, _ = drain(request)
		C.lmn_request_destroy(request)
	}
	var got [64]answer
	news := make([]chan struct{}, len(got))
	for i := range news {
		news[i] = make(chan struct{}, 1)
	}
	stop := poller(engine, news)
	var readers sync.WaitGroup
	for i := range got {
		request := submitStream(engine, i, maxTokens)
		readers.Add(1)
		go func(to *answer, wake chan struct{}) {
			defer readers.Done()
			defer C.lmn_request_destroy(request)
			for range wake {
				chunk := C.lmn_chunk{struct_size: C.sizeof_lmn_chunk}
				for C.lmn_request_next(request, 0, &chunk, nil) == C.LMN_OK {
					to.ids = append(to.ids, unsafe.Slice(chunk.token_ids, int(chunk.token_count))...)
					to.text += goString(chunk.text, chunk.text_bytes)
					if chunk.finish_reason != C.LMN_FINISH_NONE {
						return
					}
				}
			}
		}(&got[i], news[i])
	}
	readers.Wait()
	stop()
	tokens, equal := 0, true
	for i := range got {
		want := &alone[i%4]
		tokens += len(got[i].ids)
		equal = equal && numbers(got[i].ids) == numbers(want.ids) && got[i].text == want.text
	}
	var ids []string
	for i := range alone {
		ids = append(ids, numbers(alone[i].ids))
	}
	fmt.Printf(`{"step":"streams","model":"%s","streams":%d,"tokens":%d,"equal":%t,"alone":[%s]}`+"\n", name, len(got),
		tokens, equal, strings.Join(ids, ","))
}

func nullStreams() {
	model, failure := openModel("null:vocab=512,context=256")
	must(failure)
	defer C.lmn_model_destroy(model)
	options := C.lmn_engine_options{struct_size: C.sizeof_lmn_engine_options, threads: 1, kv_tokens: 8192}
	var engine *C.lmn_engine
	var err *C.lmn_error
	status := C.lmn_engine_create(model, &options, &engine, &err)
	must(check(status, err))
	defer C.lmn_engine_destroy(engine)
	streams(engine, "null", 32)
}

// row makes a tensor of one row a value, and says where its elements are.
func row(columns int) (*C.lmn_session_value, []C.float) {
	shape := [2]C.int64_t{1, C.int64_t(columns)}
	var tensor *C.struct_DLManagedTensorVersioned
	var value *C.lmn_session_value
	var err *C.lmn_error
	status := C.lmn_tensor_create(C.kDLFloat, 32, 2, &shape[0], &tensor, &err)
	must(check(status, err))
	elements := unsafe.Slice((*C.float)(C.floats(tensor)), columns)
	status = C.lmn_session_value_create(tensor, nil, &value, &err)
	must(check(status, err))
	return value, elements
}

func fill(elements []C.float, value C.float) {
	for i := range elements {
		elements[i] = value
	}
}

func showRow(r []C.float) string { return fmt.Sprintf("[%.1f,%.1f,%.1f]", r[0], r[1], r[2]) }

// onnx runs an ONNX model, C = ReLU(A·B + bias), with new values, and with bound ones.
func onnx(path string) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	options := C.lmn_session_options{struct_size: C.sizeof_lmn_session_options, threads: 1}
	var session *C.lmn_session
	var err *C.lmn_error
	status := C.lmn_session_create(name, &options, &session, &err)
	must(check(status, err))
	port := C.lmn_port_info{struct_size: C.sizeof_lmn_port_info}
	status = C.lmn_session_input_get(session, 0, &port, &err)
	must(check(status, err))
	fmt.Printf(`{"step":"session","input":"%s","type":"%s","rows":"%s","columns":%d`, C.GoString(port.name),
		C.GoString(port.dtype), C.GoString(port.symbols[0]), port.shape[1])
	a, in := row(4)
	c, out := row(3)
	fill(in, 2)
	var result *C.lmn_session_value
	status = C.lmn_session_run(session, &a, 1, &result, 1, &err)
	must(check(status, err))
	var tensor *C.struct_DLManagedTensorVersioned
	status = C.lmn_session_value_tensor_get(result, &tensor, &err)
	must(check(status, err))
	run := showRow(unsafe.Slice((*C.float)(C.floats(tensor)), 3))
	C.lmn_tensor_destroy(tensor)
	C.lmn_session_value_destroy(result)
	var binding *C.lmn_binding
	status = C.lmn_binding_create(session, &a, 1, &c, 1, &binding, &err)
	must(check(status, err))
	C.lmn_session_destroy(session)
	C.lmn_session_value_destroy(a)
	C.lmn_session_value_destroy(c)
	fill(in, 3)
	status = C.lmn_binding_run(binding, &err)
	must(check(status, err))
	fmt.Printf(`,"run":%s,"bound":%s}`+"\n", run, showRow(out))
	C.lmn_binding_destroy(binding)
}

// graph runs C = LeakyReLU(A * b + bias), written down operator by operator.
func graph() {
	a, in := row(3)
	b, scale := row(3)
	bias, shift := row(3)
	fill(in, 2)
	fill(shift, -4)
	for i := range scale {
		scale[i] = C.float(i + 1)
	}
	text := map[string]*C.char{}
	for _, s := range []string{"A", "C", "f32", "rows", "b", "bias", "alpha", "Mul", "Add", "LeakyRelu", "Nothing"} {
		text[s] = C.CString(s)
		defer C.free(unsafe.Pointer(text[s]))
	}
	var g *C.lmn_graph
	var err *C.lmn_error
	status := C.lmn_graph_create(&g, &err)
	must(check(status, err))
	shape, symbols, x := [2]C.int64_t{-1, 3}, [2]*C.char{text["rows"], nil}, [3]C.int32_t{}
	node := func(op string, inputs []C.int32_t, attributes []C.lmn_attribute) error {
		var first *C.lmn_attribute
		if len(attributes) > 0 {
			first = &attributes[0]
		}
		status := C.lmn_graph_node_create(g, text[op], &inputs[0], C.size_t(len(inputs)), first,
			C.size_t(len(attributes)), &x[1], 1, &err)
		return check(status, err)
	}
	status = C.lmn_graph_input_create(g, text["A"], text["f32"], 2, &shape[0], &symbols[0], &x[0], &err)
	must(check(status, err))
	status = C.lmn_graph_constant_create(g, text["b"], b, &x[1], &err)
	must(check(status, err))
	status = C.lmn_graph_constant_create(g, text["bias"], bias, &x[2], &err)
	must(check(status, err))
	must(node("Mul", x[0:2], nil))
	must(node("Add", x[1:3], nil))
	must(node("LeakyRelu", x[1:2], []C.lmn_attribute{{name: text["alpha"], kind: C.LMN_ATTRIBUTE_FLOAT, f: 0.5}}))
	status = C.lmn_graph_output_create(g, text["C"], x[1], &err)
	must(check(status, err))
	port := C.lmn_port_info{struct_size: C.sizeof_lmn_port_info}
	status = C.lmn_graph_value_get(g, x[1], &port, &err)
	must(check(status, err))
	described := fmt.Sprintf(`"type":"%s","rows":"%s"`, C.GoString(port.dtype), C.GoString(port.symbols[0]))
	var unknown *Error
	if !errors.As(node("Nothing", x[0:1], nil), &unknown) {
		os.Exit(1)
	}
	options := C.lmn_session_options{struct_size: C.sizeof_lmn_session_options, threads: 1}
	var session *C.lmn_session
	status = C.lmn_graph_session_create(g, &options, &session, &err)
	must(check(status, err))
	C.lmn_graph_destroy(g)
	C.lmn_session_value_destroy(b)
	C.lmn_session_value_destroy(bias)
	var result *C.lmn_session_value
	status = C.lmn_session_run(session, &a, 1, &result, 1, &err)
	must(check(status, err))
	var tensor *C.struct_DLManagedTensorVersioned
	status = C.lmn_session_value_tensor_get(result, &tensor, &err)
	must(check(status, err))
	fmt.Printf(`{"step":"graph",%s,"unknown":"%s","run":%s}`+"\n", described, C.GoString(C.lmn_status_name(unknown.Status)),
		showRow(unsafe.Slice((*C.float)(C.floats(tensor)), 3)))
	C.lmn_tensor_destroy(tensor)
	C.lmn_session_value_destroy(result)
	C.lmn_session_value_destroy(a)
	C.lmn_session_destroy(session)
}

// Parents before children: every handle keeps what it needs.
func destroy(model *C.lmn_model, tokenizer *C.lmn_tokenizer, engine *C.lmn_engine) {
	name := C.CString("output_norm.weight")
	defer C.free(unsafe.Pointer(name))
	var norm *C.struct_DLManagedTensorVersioned
	var err *C.lmn_error
	status := C.lmn_model_tensor_export(model, name, &norm, &err)
	must(check(status, err))
	decoder := newDecoder(tokenizer)
	request, failure := submitText(engine, "Once upon a time", long)
	must(failure)
	C.lmn_model_destroy(model)
	C.lmn_engine_destroy(engine)
	C.lmn_tokenizer_destroy(tokenizer)
	_, _, finish := drain(request)
	C.lmn_request_destroy(request)
	piece := decodeOne(decoder, 504)
	C.lmn_decoder_destroy(decoder)
	fmt.Printf(`{"step":"destroy","finish":%d,"piece":%s,"read_only":%t,"first":%.6f}`+"\n", finish, quote(piece),
		norm.flags&C.DLPACK_FLAG_BITMASK_READ_ONLY != 0, float64(*C.floats(norm)))
	C.lmn_tensor_destroy(norm)
}

func main() {
	fmt.Printf(`{"step":"version","version":"%s","abi":%d}`+"\n", C.GoString(C.lmn_version()), C.lmn_abi_version())
	model, failure := openModel(os.Args[1])
	must(failure)
	inspect(model)
	var tokenizer *C.lmn_tokenizer
	var err *C.lmn_error
	status := C.lmn_tokenizer_create(model, &tokenizer, &err)
	must(check(status, err))
	tokenize(tokenizer)
	chat(tokenizer)
	var engine *C.lmn_engine
	options := C.lmn_engine_options{struct_size: C.sizeof_lmn_engine_options, threads: 2, context_tokens: 4096}
	status = C.lmn_engine_create(model, &options, &engine, &err)
	must(check(status, err))
	stream(engine)
	cancel(engine)
	provokeErrors(engine, tokenizer)
	score(engine)
	streams(engine, "default", 8)
	nullStreams()
	onnx(os.Args[2])
	graph()
	destroy(model, tokenizer, engine)
}
