# SPDX-License-Identifier: Apache-2.0
"""Writes the file that file_of_the_python_package in gguf_test.cc reads, with the package gguf. Usage: FILE"""

import sys

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, quants

writer = GGUFWriter(sys.argv[1], "reference")
writer.add_uint8("k.u8", 255)
writer.add_int8("k.i8", -128)
writer.add_uint16("k.u16", 65535)
writer.add_int16("k.i16", -32768)
writer.add_uint32("k.u32", 2**32 - 1)
writer.add_int32("k.i32", -(2**31))
writer.add_uint64("k.u64", 2**64 - 1)
writer.add_int64("k.i64", -(2**63))
writer.add_float32("k.f32", 0.1)
writer.add_float64("k.f64", 0.1)
writer.add_bool("k.bool", True)
writer.add_string("k.string", "grüß")
writer.add_array("k.ints", [1, -2, 3])
writer.add_array("k.strings", ["a", "", "€"])
writer.add_tensor("f32", (np.arange(6, dtype=np.float32) - 2.5).reshape(2, 3))
writer.add_tensor("f16", np.arange(4, dtype=np.float16))
q8_0 = GGMLQuantizationType.Q8_0
writer.add_tensor("q8_0", quants.quantize(np.ones((2, 64), np.float32), q8_0), raw_dtype=q8_0)
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
