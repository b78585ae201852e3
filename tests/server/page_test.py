# SPDX-License-Identifier: Apache-2.0
"""The page at "/", in headless Chromium, as somebody uses it: by mouse, by keyboard, on a phone."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import lmnative
import pytest
from browser import Browser, Page, find_browser
from conftest import wait_until
from serving import ask

PAGE = Path(__file__).resolve().parent.parent.parent / "cpp" / "server" / "page"
MODEL = "smollm2-135m"
STORY = "Tell me a very long story about a lighthouse."
"""What the model, at temperature 0, answers until the context ends."""
HOSTILE = 'é🌈 <img src=x onerror="hacked=1"><script>hacked=1</script> &amp; \u202e\r\n\t</div>'
TEXT = "document.querySelector('.turn.assistant:last-child .text').textContent"
DONE = "document.querySelector('.turn.assistant:last-child :is(.foot, .error)')"


@pytest.fixture(scope="module")
def browser():
    if find_browser() is None:
        pytest.skip("no Chromium (Debian: apt install chromium)")
    with Browser() as browser:
        yield browser


@pytest.fixture
def page(browser):
    page = browser.page()
    page.look()
    yield page
    page.close()


@pytest.fixture(scope="module")
def server(llm):
    with lmnative.Server({MODEL: llm}) as server:
        yield server


def ready(page: Page, server: lmnative.Server, before: str = "") -> Page:
    """Opens the page and waits until it knows the models."""
    page.open(f"{server.url}/", before)
    page.wait("document.querySelector('#model').value")
    return page


def say(page: Page, text: str) -> None:
    page.run("document.querySelector('#input').focus()")
    page.type(text)
    page.press("Enter")


def set_option(page: Page, name: str, value: object) -> None:
    page.run(f"document.querySelector('#{name}').focus()")
    page.run(f"document.querySelector('#{name}').select()")
    page.type(str(value))


def options(page: Page, **values: object) -> None:
    page.click("[data-show=settings]")
    for name, value in values.items():
        set_option(page, name, value)


def test_loads_without_complaints_or_requests_outside(page, server):
    ready(page, server)
    page.wait("document.querySelector('#health').textContent === 'Ready'")
    assert page.run("document.querySelector('#model').value") == MODEL
    assert page.complaints == []
    assert {f"{server.url}/{name}" for name in ("", "page.css", "page.js")} <= set(page.requests)
    assert [address for address in page.requests if not address.startswith(f"{server.url}/")] == []
    policy = page.run("fetch('').then((answer) => answer.headers.get('content-security-policy'))")
    assert "default-src 'self'" in policy


def test_streams_the_answer_of_the_api(page, server):
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Name three colours. ¿Sí? 🌈"}]
    body = {"model": MODEL, "messages": messages, "temperature": 0, "max_completion_tokens": 40}
    expected = ask(server, "POST", "/v1/chat/completions", body).json()["choices"][0]["message"]["content"]
    ready(page, server)
    options(page, system=messages[0]["content"], temperature=0, max_tokens=40)
    page.run(
        "lengths = new Set(); at = document.querySelector('#turns');"
        "new MutationObserver(() => lengths.add(at.textContent.length))"
        ".observe(at, {characterData: true, childList: true, subtree: true})"
    )
    # However fast the answer and however slow the browser: it takes seconds to arrive.
    page.call(
        "Network.emulateNetworkConditions", offline=False, latency=0, downloadThroughput=2048, uploadThroughput=-1
    )
    say(page, messages[1]["content"])
    page.wait(DONE)
    assert page.run(TEXT) == expected
    assert page.run("lengths.size") > 3, "the text came piece by piece"
    assert re.search(r"\d+ tokens", page.run("document.querySelector('.foot').textContent"))
    assert page.run("document.querySelector('#spoken').textContent") == expected, "told to screen readers, once"
    page.click(".foot .again")
    page.wait(f"{DONE} && {TEXT}")
    assert page.run("[document.querySelectorAll('.turn').length, " + TEXT + "]") == [2, expected]
    page.click("#clear")
    assert page.run("document.querySelectorAll('.turn').length") == 0
    assert page.complaints == []


@pytest.mark.parametrize("how", ["button", "escape", "new chat"])
def test_stop(page, server, llm, how):
    before = llm.engine.stats()["cancelled"]
    ready(page, server)
    options(page, temperature=0)
    say(page, STORY)
    page.wait("document.querySelector('.turn.assistant') && " + TEXT + ".length > 10")
    if how == "escape":
        page.press("Escape")
    else:
        page.click("#stop" if how == "button" else "#clear")
    assert wait_until(lambda: llm.engine.stats()["cancelled"] == before + 1)
    assert llm.engine.stats()["running"] == 0
    if how != "new chat":
        page.wait("document.querySelector('.foot').textContent.includes('Stopped')")
        shown = page.run(TEXT)
        assert shown and shown == page.run(TEXT)
    page.wait("!document.querySelector('#send').hidden && document.querySelector('#stop').hidden")
    assert page.run("document.activeElement.id") == "input"
    assert page.complaints == []


def test_keyboard_alone(page, server):
    ready(page, server)
    options(page, temperature=0, max_tokens=8)
    page.run("document.activeElement.blur(); getSelection().removeAllRanges(); document.body.focus()")
    seen = []
    for _ in range(30):
        page.press("Tab")
        name, ring = page.run(
            "(() => { const at = document.activeElement; const style = getComputedStyle(at);"
            " return [at.id || at.dataset.show || at.className || (at === document.body ? 'BODY' : at.textContent),"
            " style.outlineStyle]; })()"
        )
        if name == "BODY":
            continue  # past the last one
        if name in seen:
            break
        assert ring == "solid", f"{name} shows that it has the focus"
        seen.append(name)
    assert {"skip", "model", "live", "settings", "log", "input", "send", "system", "temperature", "key"} <= set(seen)
    while page.run("document.activeElement.className") != "skip":
        page.press("Tab")
    page.press("Enter")
    assert page.run("document.activeElement.id") == "input"
    page.type("Say")
    page.press("Enter", shift=True)
    page.type("hello.")
    page.press("Enter")
    page.wait(DONE)
    assert page.run("document.querySelector('.turn.user .text').textContent") == "Say\nhello."
    assert page.run("document.activeElement.id") == "input"
    unnamed = page.run(
        "[...document.querySelectorAll('input, select, textarea')].filter((one) => !one.labels.length).length"
        " + [...document.querySelectorAll('button')].filter((one) => !one.textContent.trim()).length"
    )
    assert unnamed == 0


@pytest.mark.parametrize("dark", [False, True])
def test_fits_a_phone(page, server, dark):
    page.look(320, 640, dark=dark, phone=True)
    ready(page, server)
    assert page.run("getComputedStyle(document.documentElement).backgroundColor") != "rgba(0, 0, 0, 0)"
    options(page, temperature=0, max_tokens=8)
    page.click("[data-show=chat]")
    say(page, "x" * 300)
    page.wait(DONE)
    for view in ("chat", "live", "settings"):
        page.click(f"[data-show={view}]")
        wide = (
            "[...document.querySelectorAll('*')].filter((one) => one.checkVisibility() &&"
            " !one.closest('.unseen, .skip, svg') && one.getBoundingClientRect().right > 320.5).map((one) => one.id)"
        )
        assert page.run("document.documentElement.scrollWidth") <= 320
        assert page.run(wide) == [], view
    page.click("[data-show=chat]")
    assert page.run("document.querySelector('#send').getBoundingClientRect().bottom") <= 640


def test_live_view_tells_the_figures_of_stats(page, server):
    ready(page, server)
    options(page, temperature=0)
    page.click("[data-show=live]")
    say(page, STORY)
    page.wait("Number(document.querySelector('#rate').textContent) > 0 && !document.querySelector('#figures').hidden")
    page.wait("document.querySelector('#running').textContent === '1'")
    page.wait("document.querySelectorAll('#rate-spark polyline, #running-spark polyline').length === 2")
    assert re.fullmatch(r"[\d.]+ (ms|µs|s)", page.run("document.querySelector('#step').textContent"))
    page.press("Escape")
    page.wait(DONE)
    page.wait("document.querySelector('#running').textContent === '0'")
    stats = ask(server, "GET", "/stats").json()["models"][0]
    shown = dict(
        page.run("[...document.querySelectorAll('#totals tr')].map((row) => [...row.cells].map((c) => c.textContent))")
    )
    assert int(shown["Tokens written"].replace(",", "")) == stats["generated_tokens"]
    assert int(shown["Answers cancelled"].replace(",", "")) == stats["cancelled"]
    kv = page.run("[...document.querySelectorAll('#kv dd')].map((one) => one.textContent.replace(',', ''))")
    assert [int(figure) for figure in kv] == [stats[f"kv_pages{end}"] for end in ("_used", "_cached", "")]
    parts = page.run("[...document.querySelectorAll('#parts dt')].map((one) => one.textContent)")
    assert parts == ["Schedule", "Prepare", "Run", "Sample", "Deliver"]
    assert "–" not in page.run("document.querySelector('#latency').textContent")


def test_asks_for_figures_only_while_it_is_seen(page, server):
    ready(page, server, "away = false; Object.defineProperty(document, 'hidden', {get: () => away});")

    def asked() -> int:
        return page.requests.count(f"{server.url}/stats")

    assert wait_until(lambda: asked() >= 2)
    page.run("away = true; document.dispatchEvent(new Event('visibilitychange'))")
    time.sleep(1.5)  # one may be on its way, or due
    before = asked()
    time.sleep(2.5)
    assert asked() == before
    page.run("away = false; document.dispatchEvent(new Event('visibilitychange'))")
    assert wait_until(lambda: asked() > before)


def test_wrong_key(page, llm):
    with lmnative.Server({MODEL: llm}, api_keys=["sesame-<b>1</b>"]) as server:
        page.open(f"{server.url}/")
        page.wait("document.querySelector('#live-note').textContent.includes('API key')")
        options(page, key="wrong", max_tokens=4)
        say(page, "Hello")
        page.wait(DONE)
        expected = ask(server, "POST", "/v1/chat/completions", {"messages": []}, Authorization="Bearer wrong").error()
        box = "document.querySelector('.error[role=alert]')"
        assert expected["message"] in page.run(f"{box}.textContent")
        page.click("[data-show=live]")
        page.run(f"[...{box}.querySelectorAll('button')].find((one) => one.textContent === 'Open settings').click()")
        assert page.run("document.activeElement.id") == "key"
        set_option(page, "key", "sesame-<b>1</b>")
        page.run(f"{box}.querySelector('.again').click()")
        page.wait("document.querySelector('.foot')")
        assert page.run(TEXT)
        page.wait("document.querySelector('#health').textContent === 'Ready'")
        assert page.run("localStorage.length") == 0
        assert page.run("sessionStorage.getItem('lmnative.key')") == "sesame-<b>1</b>"


def fake_answer(body: str, status: int = 200, headers: str = "{}") -> str:
    """A script that has the page get these bytes for a chat, one at a time."""
    return (
        f"const whole = new TextEncoder().encode({json.dumps(body)}); const real = fetch;"
        "window.fetch = (path, ...rest) => path !== 'v1/chat/completions' ? real(path, ...rest) :"
        " Promise.resolve(new Response(new ReadableStream({start(out) {"
        "  for (let i = 0; i < whole.length; ++i) out.enqueue(whole.slice(i, i + 1)); out.close(); }}),"
        f"  {{status: {status}, headers: {headers}}}));"
    )


def event(text: str, finish: str | None = None) -> str:
    return json.dumps(
        {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]}, ensure_ascii=False
    )


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_hostile_text_is_text(page, server, end):
    pieces = [HOSTILE[i : i + 5] for i in range(0, len(HOSTILE), 5)]
    lines = [": a comment", "", "event: message", "id: 1", "retry: 5"]
    for piece in pieces:
        lines += [f"data: {event(piece)}", ""]
    two = event("!", "stop")  # one event in two lines of data; the line end between them is white space of JSON
    cut = two.index(",") + 1
    lines += [f"data:{two[:cut]}", f"data: {two[cut:]}", "", "data: [DONE]", "", ""]
    ready(page, server, fake_answer(end.join(lines)))
    say(page, "<b>hello</b>")
    page.wait(DONE)
    assert page.run(TEXT) == HOSTILE + "!"
    assert page.run("document.querySelector('.turn.user .text').textContent") == "<b>hello</b>"
    assert page.run("document.querySelectorAll('.turn .text *').length") == 0
    assert page.run("typeof hacked") == "undefined"
    assert page.complaints == []


BROKE = "The answer broke off"
FAILURES = {
    "cut": (f"data: {event('Once')}\n\n", 200, "{}", BROKE, "closed the connection"),
    "nonsense": (f"data: {event('Once')}\n\ndata: nonsense\n\n", 200, "{}", BROKE, "Try again."),
    "event": ('data: {"error": {"message": "out <i>of</i> luck"}}\n\n', 200, "{}", BROKE, "out <i>of</i> luck"),
    "busy": ('{"error": {"message": "1024 wait"}}', 429, "{'Retry-After': '7'}", "The server is busy", "in 7 seconds."),
    "proxy": ("<h1>Bad Gateway</h1>", 502, "{}", "The server failed", "The answer was 502."),
}


@pytest.mark.parametrize(("body", "status", "headers", "title", "text"), FAILURES.values(), ids=FAILURES)
def test_failures_are_told(page, server, body, status, headers, title, text):
    ready(page, server, fake_answer(body, status, headers))
    say(page, "Hello")
    page.wait("document.querySelector('.error')")
    assert page.run("document.querySelector('.error strong').textContent") == title
    assert text in page.run("document.querySelector('.error').textContent")
    assert page.run("document.querySelectorAll('.error :not(p, strong, button)').length") == 0
    assert page.run(TEXT) == ("Once" if "Once" in body else "")
    assert page.run("document.querySelector('#send').hidden") is False


def test_server_gone(page, llm):
    with lmnative.Server({MODEL: llm}) as server:
        ready(page, server)
    say(page, "Hello")
    page.wait("document.querySelector('.error')")
    assert "cannot be reached" in page.run("document.querySelector('.error').textContent")
    page.wait("document.querySelector('#live-note').textContent.includes('cannot be reached')")


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", [0, 1])
def test_contrast(scheme):
    """WCAG 2.2, 1.4.3 and 1.4.11: text 4.5 to 1, edges of fields and focus rings 3 to 1."""
    blocks = re.findall(r":root \{(.*?)\}", (PAGE / "page.css").read_text(), re.DOTALL)
    colours = dict(re.findall(r"--([\w-]+): (#\w{6});", blocks[scheme]))
    for front, backs, least in (
        ("text", ("back", "panel", "raised", "bad-back"), 4.5),
        ("soft", ("back", "panel", "raised"), 4.5),
        ("bad", ("back", "bad-back"), 4.5),
        ("on-accent", ("accent",), 4.5),
        ("accent", ("back", "panel"), 3),
        ("edge", ("back", "panel"), 3),
    ):
        for back in backs:
            low, high = sorted((luminance(colours[front]), luminance(colours[back])))
            assert (high + 0.05) / (low + 0.05) >= least, f"{front} on {back}"


def test_less_motion(page, server):
    ready(page, server, fake_answer(""))
    page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-reduced-motion", "value": "reduce"}])
    page.run(
        "document.querySelector('#turns').innerHTML = '<article class=\"turn busy\"><div class=text></div></article>'"
    )
    name = page.run("getComputedStyle(document.querySelector('.turn.busy .text'), '::after').animationName")
    assert name == "none"
