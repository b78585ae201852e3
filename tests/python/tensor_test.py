# SPDX-License-Identifier: Apache-2.0
"""Tensors: every way out shares the memory and keeps it alive; every way in gives the same result."""

from __future__ import annotations

import array
import gc

import lmnative
import numpy as np
import pytest

IDS = [504, 3575, 282, 4649, 314]


@pytest.fixture(scope="module")
def logits(llm):
    return llm.score(IDS)


def test_facts(logits, llm):
    assert logits.shape == (5, llm.info.vocab_size)
    assert (logits.dtype, logits.ndim, len(logits)) == ("float32", 2, 5)
    assert logits.nbytes == 5 * llm.info.vocab_size * 4
    assert not logits.readonly
    assert logits.data_ptr % 64 == 0
    assert "float32" in repr(logits)


@pytest.mark.parametrize(
    "export",
    [np.from_dlpack, np.asarray, lambda t: t.numpy(), lambda t: np.asarray(memoryview(t)), lambda t: t[:]],
    ids=["from_dlpack", "asarray", "numpy()", "memoryview", "index"],
)
def test_numpy_shares_the_memory(logits, export):
    exported = export(logits)
    assert exported.ctypes.data == logits.data_ptr
    assert exported.dtype == np.float32
    assert exported.shape == logits.shape


def test_torch_shares_the_memory(logits):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    exported = torch.from_dlpack(logits)
    assert exported.data_ptr() == logits.data_ptr
    assert exported.dtype == torch.float32
    assert tuple(exported.shape) == logits.shape
    before = float(exported[0, 0])
    exported[0, 0] = 1234
    assert float(np.from_dlpack(logits)[0, 0]) == 1234
    exported[0, 0] = before  # the others compare it, bit for bit


def test_borrowers_keep_the_memory_alive(llm):
    wanted = np.array(llm.score(IDS))
    borrowed = np.from_dlpack(llm.score(IDS)), np.asarray(llm.score(IDS)), memoryview(llm.score(IDS))
    gc.collect()
    llm.score(IDS)  # would reuse memory that was given back
    for exported in borrowed:
        assert np.array_equal(np.asarray(exported), wanted)


def test_memory_outlives_the_llm(model_path):
    with lmnative.LLM(model_path, threads=1, context_tokens=64) as llm:
        exported = np.from_dlpack(llm.score(IDS))
    del llm
    gc.collect()
    assert np.isfinite(exported).all()


def test_capsules_of_both_generations(logits):
    assert "dltensor_versioned" in repr(logits.__dlpack__(max_version=(1, 0)))
    legacy = repr(logits.__dlpack__())
    assert "dltensor" in legacy and "versioned" not in legacy
    assert logits.__dlpack_device__() == (1, 0)


def test_a_copy_on_request(logits):
    class Copying:
        def __dlpack__(self, **options):
            return logits.__dlpack__(**{**options, "copy": True})

        def __dlpack_device__(self):
            return logits.__dlpack_device__()

    copied = np.from_dlpack(Copying())
    assert copied.ctypes.data != logits.data_ptr
    assert np.array_equal(copied, np.from_dlpack(logits))


def test_other_devices_are_refused(logits):
    with pytest.raises(BufferError, match="stream"):
        logits.__dlpack__(stream=1)
    with pytest.raises(BufferError, match="dl_device"):
        logits.__dlpack__(dl_device=(2, 0))


def test_array_protocol(logits):
    assert np.array(logits).ctypes.data != logits.data_ptr
    assert np.asarray(logits, dtype=np.float64).dtype == np.float64
    assert logits.__array__().ctypes.data == logits.data_ptr
    with pytest.raises(ValueError, match="copy"):
        logits.__array__(dtype=np.float64, copy=False)


def test_tensors_of_the_file_are_read_only(model_path):
    model = lmnative.Model(model_path)
    norm = model.tensor("output_norm.weight")
    assert norm.readonly
    assert (norm.dtype, norm.shape) == ("float32", (576,))
    assert not np.asarray(norm).flags.writeable
    with pytest.raises(BufferError, match="read-only"):
        norm.__dlpack__()
    del model
    gc.collect()
    assert np.isfinite(np.asarray(norm)).all()


def test_tensors_of_the_file_are_its_bytes(model_path):
    model = lmnative.Model(model_path)
    for info in (model.tensors[0], model.tensors[5], model.tensors[-1]):
        with open(model_path, "rb") as file:
            file.seek(info.offset)
            wanted = file.read(info.bytes)
        assert np.asarray(model.tensor(info.name)).tobytes() == wanted


@pytest.mark.parametrize(
    "make",
    [
        list,
        tuple,
        iter,
        lambda ids: np.array(ids, np.int32),
        lambda ids: np.array(ids, np.int64),
        lambda ids: np.array(ids, np.uint16),
        lambda ids: np.repeat(np.array(ids, np.int32), 2)[::2],
        lambda ids: np.array(ids[::-1])[::-1],
        lambda ids: array.array("i", ids),
        lambda ids: memoryview(array.array("q", ids)),
    ],
    ids=["list", "tuple", "iterator", "int32", "int64", "uint16", "strided", "reversed", "array", "memoryview"],
)
def test_ids_of_any_kind(llm, logits, make):
    assert np.array_equal(llm.score(make(IDS))[:], logits[:])
    assert llm.generate(make(IDS), max_tokens=3).token_ids == llm.generate(IDS, max_tokens=3).token_ids


def test_ids_from_torch(llm, logits):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    for ids in (torch.tensor(IDS), torch.tensor(IDS, dtype=torch.int32), torch.tensor(IDS).repeat_interleave(2)[::2]):
        assert np.array_equal(llm.score(ids)[:], logits[:])


def test_ids_from_a_producer_of_before_dlpack_1(llm, logits):
    class Old:
        def __init__(self):
            self.array = np.array(IDS)

        def __dlpack__(self, stream=None):
            return self.array.__dlpack__()

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    assert np.array_equal(llm.score(Old())[:], logits[:])
