# SPDX-License-Identifier: Apache-2.0
"""Chat templates: the model's own, natively and by Jinja2, and what any template may use or do wrong."""

from __future__ import annotations

import re

import lmnative
import pytest

SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "Hi <|im_end|> „there“\n"}
ASSISTANT = {"role": "assistant", "content": "Hello!"}


def render(tokenizer, template, messages=(USER,), **variables):
    return tokenizer.apply_chat_template(list(messages), template=template, **variables)


def test_the_models_own_template(tokenizer):
    # By hand, from the template in the file.
    assert tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}]) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert tokenizer.apply_chat_template([SYSTEM, ASSISTANT], add_generation_prompt=False) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>assistant\nHello!<|im_end|>\n"
    )


@pytest.mark.parametrize("add_generation_prompt", [True, False])
@pytest.mark.parametrize(
    "messages",
    [
        [USER],
        [SYSTEM, USER],
        [USER, ASSISTANT, USER],
        [SYSTEM, USER, ASSISTANT, USER],
        [ASSISTANT],
        [{"role": "tool", "content": ""}],
    ],
    ids=lambda messages: "-".join(message["role"] for message in messages),
)
def test_natively_and_by_jinja2_are_the_same(tokenizer, messages, add_generation_prompt):
    native = tokenizer.apply_chat_template(messages, add_generation_prompt=add_generation_prompt)
    by_jinja2 = render(tokenizer, tokenizer.chat_template, messages, add_generation_prompt=add_generation_prompt)
    assert native == by_jinja2


@pytest.mark.parametrize(
    ("template", "wanted"),
    [
        ("{% for m in messages %}\n  {% if true %}\n{{ m.role }}\n  {% endif %}\n{% endfor %}", "user\n"),
        ("{{ bos_token }}|{{ eos_token }}|{{ unk_token }}", "<|im_start|>|<|im_end|>|<|endoftext|>"),
        ("{{ {'b': 'ü', 'a': 1} | tojson }}", '{"b": "ü", "a": 1}'),
        ("{{ [1] | tojson(indent=1) }}", "[\n 1\n]"),
        ("{% for m in [1, 2, 3] %}{% if m == 2 %}{% continue %}{% endif %}{{ m }}{% endfor %}", "13"),
        ("{% for m in [1, 2, 3] %}{% if m == 2 %}{% break %}{% endif %}{{ m }}{% endfor %}", "1"),
        ("{% generation %}{{ 1 + 1 }}{% endgeneration %}", "2"),
        ("{% set ns = namespace(n=0) %}{% for m in [1, 2] %}{% set ns.n = ns.n + m %}{% endfor %}{{ ns.n }}", "3"),
        ("{{ tools is none }}", "True"),
        ("{{ messages[0]['content'].split()[0] }}", "Hi"),
        ("{{ undefined_variable }}", ""),
    ],
)
def test_what_templates_use(tokenizer, template, wanted):
    assert render(tokenizer, template) == wanted


def test_the_date(tokenizer):
    assert re.fullmatch(r"\d\d \w+ \d{4}", render(tokenizer, "{{ strftime_now('%d %b %Y') }}"))


def test_more_variables_and_keys_reach_the_template(tokenizer):
    assert render(tokenizer, "{{ tools[0].name }}", tools=[{"name": "clock"}]) == "clock"
    message = {"role": "user", "content": [{"type": "text", "text": "part"}], "name": "Ada"}
    assert render(tokenizer, "{{ messages[0].name }}: {{ messages[0].content[0].text }}", [message]) == "Ada: part"


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ raise_exception('roles must alternate') }}", "refuses these messages: roles must alternate"),
        ("{% for m in messages %}", "malformed at line 1"),
        ("{{ messages[0]['content']['x']['y'] }}", "failed: UndefinedError"),
        ("{{ ''.__class__.__mro__ }}", "sandbox forbids"),
        ("{{ messages.append(1) }}", "sandbox forbids"),
        ("{{ 'a' * 10**10 }}", "too large"),
        ("{{ (2**60) * 'ab' }}", "too large"),
        ("{{ 9**9**9 }}", "too large"),
        ("{{ messages.clear() }}", "sandbox forbids"),
        ("{% for i in range(10**9) %}{% endfor %}", "failed"),
        ("{{ 1 / 0 }}", "failed: ZeroDivisionError"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "failed: RecursionError"),
        ("{% for i in range(90000) %}{{ 'x' * 1000 }}{% endfor %}", "more than"),
        ("{% include '/etc/passwd' %}", "failed"),
        ("{{ nothing() }}", "failed: UndefinedError"),
    ],
)
def test_templates_that_misbehave(tokenizer, template, message):
    with pytest.raises(lmnative.ChatTemplateError, match=re.escape(message)):
        render(tokenizer, template)


def test_the_messages_are_not_changed(tokenizer):
    messages = [dict(USER)]
    with pytest.raises(lmnative.ChatTemplateError):
        render(tokenizer, "{{ messages[0].update({'content': 'x'}) }}", messages)
    assert messages == [USER]


def test_a_role_is_not_cut_short(tokenizer):
    with pytest.raises(ValueError, match="NUL"):
        tokenizer.apply_chat_template([{"role": "us\0er", "content": "x"}])
