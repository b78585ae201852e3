#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes *_expectations.inc: what independent implementations make of texts that the tests of this folder feed to ours.

  pre_tokenizer_expectations.inc   pieces, by the published regular expressions and PyPI's regex
  sentencepiece_expectations.inc   three small vocabularies that sentencepiece trained, and its ids for texts
  utf8_expectations.inc            Python's bytes.decode("utf-8", "replace")
  chat_expectations.inc            Jinja2 in the environment of Hugging Face transformers

Each is JSON in a raw string. Usage: make_expectations.py [FOLDER], in an environment with regex, sentencepiece, jinja2
and unicodedata2==16.0.0 from PyPI. The output is checked in; the tests do not run this.
"""

import io
import json
import random
import sys
from pathlib import Path

import jinja2.sandbox
import regex
import sentencepiece
import unicodedata2

FOLDER = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
HEAD = "// SPDX-License-Identifier: Apache-2.0\n//\n// Written by make_expectations.py: do not edit.\n"

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")

ATOMS = (
    ["'s", "'S", "'ll", "'Re", "'ve", "'m", "'T", "'d", "'\u017f", "''", " ", "  ", "   ", "\t", "\n", "\n\n", "\r\n"]
    + ["\u00a0", "\u3000", "\u2028", "\u0085", "\u001c", "\u000b", "1", "22", "333", "4444", "\u00b2", "\u2167"]
    + ["\u0663", "a", "word", "Word", "\u00e9\u00e0", "\u4e2d\u6587", "\ud55c\uad6d", "!", "?!", "...", "-", "_"]
    + ["\u200b", "\u0301", "\u01c5", "\u00aa", "\U0001f642", "<|im_end|>", "\u0130", "\u0e01\u0e33", "\u0939\u093f"]
)


def write(name, variable, value):
    lines = (json.dumps(item, ensure_ascii=True, separators=(",", ":")) for item in value)
    text = "[" + ",\n".join(lines) + "]"
    assert ")json" not in text
    (FOLDER / name).write_text(f'{HEAD}inline constexpr char {variable}[] = R"json({text})json";\n')


def random_text(rng, atoms, longest):
    return "".join(rng.choice(atoms) for _ in range(rng.randrange(1, longest)))


def random_character(rng):
    """One that Unicode 16, whose tables the library has, assigns: regex knows a later version."""
    assert unicodedata2.unidata_version == "16.0.0"
    while True:
        character = chr(rng.randrange(rng.choice([0x80, 0x250, 0x3000, 0x10000, 0x110000])))
        if unicodedata2.category(character) not in ("Cn", "Cs"):
            return character


def pre_tokenizer_expectations():
    rng = random.Random(1)
    texts = [random_text(rng, ATOMS, 12) for _ in range(220)]
    texts += [random_text(rng, [" ", "\n", "\r", "\t", "\u00a0", "a", "1", "."], 10) for _ in range(80)]
    texts += ["".join(random_character(rng) for _ in range(rng.randrange(1, 12))) for _ in range(60)]
    texts += [text + rng.choice([" ", "  ", "\n", " \n ", "1", ""]) for text in texts[:40]]

    def pieces(pattern, text):
        found = regex.findall(pattern, text)
        assert "".join(found) == text
        return found

    def smollm(text):
        found = []
        for part in regex.findall(r"\p{N}|\P{N}+", text):
            found += [part] if regex.fullmatch(r"\p{N}", part) else pieces(GPT2, part)
        return found

    def sizes(found):
        return [len(piece.encode()) for piece in found]

    cases = []
    for text in texts:
        splits = [pieces(GPT2, text), smollm(text), pieces(LLAMA3, text), pieces(QWEN2, text)]
        cases.append([text, *(sizes(split) for split in splits)])
    write("pre_tokenizer_expectations.inc", "kPreTokenizerExpectations", cases)


def train_sentencepiece(sentences, **options):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences),
        model_writer=model,
        model_type="bpe",
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        allow_whitespace_only_pieces=True,
        hard_vocab_limit=False,
        minloglevel=2,
        **options,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def sentencepiece_expectations():
    rng = random.Random(2)
    words = ["the", "then", "there", "other", "others", "in", "into", "inner", "over", "under", "a", "an", "and"]
    words += [
        "hand",
        "land",
        "random",
        "10",
        "100",
        "x",
        "",
        "y",
        "\u00e9t\u00e9",
        "\u4e2d\u6587",
        "\u4e2d\u56fd",
        "don't",
        "end.",
        "\u043d\u0435\u0442",
    ]
    sentences = [" ".join(rng.choice(words) for _ in range(rng.randrange(2, 20))) for _ in range(600)]
    atoms = [
        *words,
        " ",
        "  ",
        " the",
        "\n",
        "\t",
        "\u2581",
        "\U0001f642",
        "zq",
        "Q",
        "\u00fc",
        "<0x41>",
        "</s>",
    ]
    texts = ["", " ", "   ", "\u2581", *(random_text(rng, atoms, 14) for _ in range(120))]
    models = []
    for prefix, byte_fallback, vocab_size, by_word in [
        (True, True, 256 + 110, True),
        (False, False, 110, True),
        (True, True, 256 + 150, False),
    ]:
        model = train_sentencepiece(
            sentences,
            vocab_size=vocab_size,
            byte_fallback=byte_fallback,
            add_dummy_prefix=prefix,
            split_by_whitespace=by_word,
            character_coverage=0.999,
        )
        ids = range(model.vocab_size())
        types = [2 if model.is_unknown(i) else 3 if model.is_control(i) else 6 if model.is_byte(i) else 1 for i in ids]
        models.append(
            {
                "tokens": [model.id_to_piece(i) for i in ids],
                "scores": [model.get_score(i) for i in ids],
                "types": types,
                "add_space_prefix": prefix,
                "cases": [[text, model.encode(text), model.decode(model.encode(text))] for text in texts],
            }
        )
    write("sentencepiece_expectations.inc", "kSentencePieceExpectations", models)


def utf8_expectations():
    rng = random.Random(3)
    parts = [b"a", b"\xc3\xa9", b"\xe4\xb8\xad", b"\xf0\x9f\x99\x82", b"\xc3", b"\xe4\xb8", b"\xe4", b"\xf0\x9f\x99"]
    parts += [
        b"\xf0\x9f",
        b"\xf0",
        b"\x80",
        b"\xbf",
        b"\xc0\x80",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\xff",
        b"\xe0\x80",
    ]
    parts += [
        b"\xf0\x80\x80\x80",
        b"\xf5",
        b"\xef\xbf\xbd",
        b"\xf4\x8f\xbf\xbf",
        b"\xed\x9f\xbf",
        b"\xc1\xbf",
        b"\xf0\x90",
    ]
    cases = []
    for _ in range(300):
        data = b"".join(rng.choice(parts) for _ in range(rng.randrange(1, 7)))
        cases.append([data.hex(), data.decode("utf-8", "replace")])
    write("utf8_expectations.inc", "kUtf8Expectations", cases)


class Refused(Exception):
    pass


def raise_exception(message):
    raise Refused(message)


def chat_expectations():
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.globals["raise_exception"] = raise_exception
    conversations = [
        [("user", "Hi")],
        [
            ("system", "Be brief."),
            ("user", " Hello \n"),
            ("assistant", "  Yes. "),
            ("user", "caf\u00e9 \u4e2d \U0001f642\u3000"),
        ],
        [("user", "a"), ("user", "b")],
        [("user", "</s><|im_end|>{{ x }}"), ("assistant", "")],
        [("system", "only")],
        [],
        [("tool", "t")],
        [
            ("user", "\x1f q\u2003"),
            ("assistant", "call"),
            ("tool", "1"),
            ("tool", "2"),
            ("assistant", "\u0085done\u200b"),
        ],
    ]
    out = []
    for path in sorted((FOLDER / "chat_templates").glob("*.jinja")):
        source = path.read_bytes().decode()
        template = environment.from_string(source)
        cases = []
        for conversation in conversations:
            messages = [{"role": role, "content": content} for role, content in conversation]
            for add_generation_prompt in (True, False):
                values = {"messages": messages, "add_generation_prompt": add_generation_prompt}
                try:
                    text = template.render(**values, bos_token="<s>", eos_token="</s>")
                except (Refused, jinja2.TemplateError, TypeError):
                    text = None
                cases.append([messages, add_generation_prompt, text])
        out.append({"name": path.stem, "source": source, "cases": cases})
    write("chat_expectations.inc", "kChatExpectations", out)


if __name__ == "__main__":
    pre_tokenizer_expectations()
    sentencepiece_expectations()
    utf8_expectations()
    chat_expectations()
