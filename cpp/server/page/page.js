// SPDX-License-Identifier: Apache-2.0
//
// The page at "/": a chat over /v1/chat/completions, and a live view of /stats. What models, users
// and servers say becomes text nodes, never markup. Paths are relative, so that a proxy may serve
// the page under a prefix. The API key and the settings live in sessionStorage, as long as the tab.
'use strict';

const $ = (id) => document.getElementById(id);

function element(tag, className, ...children) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...children);
  return made;
}

function button(label, className, action) {
  const made = element('button', className, label);
  made.type = 'button';
  made.addEventListener('click', action);
  return made;
}

// Requests ----------------------------------------------------------------------------------------

function headers() {
  const key = $('key').value.trim();
  return key ? {Authorization: `Bearer ${key}`} : {};
}

// A failure to show: what happened, what the server said, and what helps.
class Failure extends Error {
  constructor(title, message, remedy = {}) {
    super(message);
    this.title = title;
    this.hint = remedy.hint || '';
    this.settings = Boolean(remedy.settings);
  }
}

const REMEDIES = {
  400: {title: 'The server refused the request'},
  401: {title: 'The server wants an API key', hint: 'Enter the key in Settings, then try again.', settings: true},
  403: {title: 'The server does not allow this'},
  404: {title: 'Not served here', hint: 'Choose another model at the top of the page.'},
  413: {title: 'The conversation is too long for this server', hint: 'Begin a new chat, or shorten the message.'},
  429: {title: 'The server is busy'},
  503: {title: 'The server cannot answer now'},
};

async function failureOf(response) {
  let message = '';
  try {
    message = (await response.json()).error.message;
  } catch {
    message = `The answer was ${response.status} ${response.statusText}`.trim() + '.';
  }
  const remedy = {...(REMEDIES[response.status] || {title: 'The server failed', hint: 'Try again; its log says more.'})};
  const wait = Number(response.headers.get('Retry-After'));
  if (response.status === 429 || response.status === 503) {
    remedy.hint = wait > 0 ? `Try again in ${wait} ${wait === 1 ? 'second' : 'seconds'}.` : 'Try again in a moment.';
  }
  return new Failure(remedy.title, String(message), remedy);
}

// fetch() whose rejection says what helps; an AbortError stays one.
async function request(path, options = {}) {
  try {
    return await fetch(path, {cache: 'no-store', ...options, headers: {...headers(), ...options.headers}});
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Failure('The server cannot be reached', '', {hint: 'Is it still running, and is this machine connected? Then try again.'});
  }
}

// Server-sent events: returns a function that takes text as it comes, cut anywhere, and calls onData
// with the data of each event. https://html.spec.whatwg.org/multipage/server-sent-events.html
function eventParser(onData) {
  let rest = '';
  let data = [];
  return (text) => {
    rest += text;
    let begin = 0;
    for (;;) {
      const end = rest.slice(begin).search(/[\r\n]/);
      if (end < 0) break;
      const at = begin + end;
      if (rest[at] === '\r' && at + 1 === rest.length) break;  // \n may follow in the next piece
      const line = rest.slice(begin, at);
      begin = at + (rest.startsWith('\r\n', at) ? 2 : 1);
      if (line === '') {
        if (data.length) onData(data.join('\n'));
        data = [];
      } else if (line === 'data' || line.startsWith('data:')) {
        data.push(line.slice(5).replace(/^ /, ''));
      }
    }
    rest = rest.slice(begin);
  };
}

// Reads a body to its end; characters may be cut anywhere between its pieces.
async function readEvents(body, onData) {
  const decoder = new TextDecoder();
  const parse = eventParser(onData);
  const reader = body.getReader();
  try {
    for (;;) {
      const {done, value} = await reader.read();
      if (done) break;
      parse(decoder.decode(value, {stream: true}));
    }
    parse(decoder.decode() + '\n');  // a last line without its end
  } finally {
    reader.cancel().catch(() => {});
  }
}

// Chat --------------------------------------------------------------------------------------------

const turns = [];  // {role, content, node, text, foot, failed}
let running = null;  // AbortController of the answer that is being made

function addTurn(role, content) {
  const text = element('div', 'text');
  const node = element('article', `turn ${role}`, text);
  node.setAttribute('aria-label', role === 'user' ? 'You' : 'Answer');
  text.append(document.createTextNode(content));
  const turn = {role, content, node, text, failed: false};
  turns.push(turn);
  $('turns').append(node);
  $('empty').hidden = true;
  $('clear').hidden = false;
  return turn;
}

function removeLastAnswer() {
  if (turns.length && turns[turns.length - 1].role === 'assistant') turns.pop().node.remove();
}

const atEnd = () => $('log').scrollHeight - $('log').scrollTop - $('log').clientHeight < 48;
const toEnd = () => { $('log').scrollTop = $('log').scrollHeight; };

function number(id) {
  const value = $(id).value.trim();
  return value === '' || !$(id).validity.valid ? undefined : Number(value);
}

function body() {
  const messages = turns.filter((turn) => !turn.failed && (turn.role === 'user' || turn.content))
    .map(({role, content}) => ({role, content}));
  const system = $('system').value.trim();
  if (system) messages.unshift({role: 'system', content: system});
  return JSON.stringify({
    model: $('model').value || undefined,
    messages,
    temperature: number('temperature'),
    max_completion_tokens: number('max_tokens'),
    seed: number('seed'),
    stream: true,
    stream_options: {include_usage: true},
  });
}

function busy(on) {
  $('send').hidden = on;
  $('stop').hidden = !on;
  $('model').disabled = on || !$('model').value;
  for (const old of document.querySelectorAll('.foot button.again')) old.disabled = on;
}

async function answer() {
  const bad = $('options').querySelector(':invalid');
  if (bad) {
    show('settings');
    bad.reportValidity();
    return;
  }
  const payload = body();
  const question = turns[turns.length - 1];
  const turn = addTurn('assistant', '');
  const control = running = new AbortController();
  const started = performance.now();
  const state = {first: 0, last: 0, finish: null, usage: null, done: false};
  turn.node.classList.add('busy');
  busy(true);
  toEnd();
  $('spoken').textContent = 'Answering';

  let frame = 0;
  const draw = () => {
    frame = 0;
    const follow = atEnd();
    turn.text.firstChild.appendData(turn.content.slice(turn.text.firstChild.length));
    if (follow) toEnd();
  };
  const onData = (data) => {
    if (state.done) return;
    if (data === '[DONE]') {
      state.done = true;
      return;
    }
    const part = JSON.parse(data);
    if (part.error) throw new Failure('The answer broke off', String(part.error.message), {hint: 'Try again.'});
    if (part.usage) state.usage = part.usage;
    const choice = part.choices && part.choices[0];
    if (!choice) return;
    if (choice.finish_reason) state.finish = choice.finish_reason;
    const piece = choice.delta && choice.delta.content;
    if (!piece) return;
    state.last = performance.now();
    state.first = state.first || state.last;
    turn.content += piece;
    frame = frame || requestAnimationFrame(draw);
  };

  let error = null;
  try {
    const response = await request('v1/chat/completions', {
      method: 'POST',
      headers: {'Content-Type': 'application/json', Accept: 'text/event-stream'},
      body: payload,
      signal: control.signal,
    });
    if (!response.ok) throw await failureOf(response);
    await readEvents(response.body, onData);
    if (!state.done && !state.finish) {
      throw new Failure('The answer broke off', 'The server closed the connection.', {hint: 'Try again.'});
    }
  } catch (caught) {
    error = caught;
  }
  if (control.signal.aborted) error = null;
  if (error && !(error instanceof Failure)) {
    error = new Failure('The answer broke off', String(error.message || error), {hint: 'Try again.'});
  }
  cancelAnimationFrame(frame);
  draw();
  turn.node.classList.remove('busy');
  if (running !== control) return;  // a new chat was begun
  running = null;
  busy(false);
  if (error && !turn.content) {
    turn.failed = true;
    if (question && question.role === 'user') question.failed = true;
  }
  finish(turn, state, control.signal.aborted, error, started);
  toEnd();
}

// What stands below an answer.
function finish(turn, state, stopped, error, started) {
  if (error) {
    const box = element('div', 'error', element('p', '', element('strong', '', error.title)));
    box.setAttribute('role', 'alert');
    for (const text of [error.message, error.hint]) if (text) box.append(element('p', '', text));
    box.append(button('Try again', 'again', again));
    if (error.settings) box.append(button('Open settings', '', () => { show('settings'); $('key').focus(); }));
    turn.node.append(box);
    $('spoken').textContent = '';
    return;
  }
  const facts = [];
  if (stopped) facts.push('Stopped');
  else if (state.finish === 'length') facts.push('Cut at the limit');
  else if (!turn.content) facts.push('Empty answer');
  const count = state.usage && state.usage.completion_tokens;
  if (count) {
    facts.push(`${count} ${count === 1 ? 'token' : 'tokens'}`);
    const seconds = (state.last - state.first) / 1000;
    if (count > 1 && seconds > 0) facts.push(`${figure((count - 1) / seconds)} tokens/s`);
  }
  if (state.first) facts.push(`first after ${duration((state.first - started) * 1e6)}`);
  const foot = element('div', 'foot', element('span', 'note', facts.join(' · ')));
  if (turn.content && navigator.clipboard) {
    foot.append(button('Copy', 'quiet', async (event) => {
      const target = event.currentTarget;
      try {
        await navigator.clipboard.writeText(turn.content);
        target.textContent = 'Copied';
      } catch {
        target.textContent = 'Not allowed';
      }
      setTimeout(() => { target.textContent = 'Copy'; }, 1500);
    }));
  }
  for (const old of document.querySelectorAll('.foot .again')) old.remove();
  foot.append(button('Regenerate', 'quiet again', again));
  turn.node.append(foot);
  $('spoken').textContent = stopped ? 'Stopped' : turn.content;
}

function again() {
  if (running) return;
  removeLastAnswer();
  const question = turns[turns.length - 1];
  if (!question) return;
  question.failed = false;
  $('input').focus();
  answer();
}

function send() {
  const content = $('input').value.trim();
  if (!content || running) return;
  $('input').value = '';
  grow();
  addTurn('user', content);
  answer();
}

function stop() {
  if (running) running.abort();
  $('input').focus();
}

function clear() {
  if (running) running.abort();
  running = null;
  busy(false);
  turns.length = 0;
  $('turns').replaceChildren();
  $('empty').hidden = false;
  $('clear').hidden = true;
  $('spoken').textContent = '';
  $('input').focus();
}

function grow() {
  const input = $('input');
  input.style.height = 'auto';
  input.style.height = `${input.scrollHeight + 2}px`;
}

// Figures -----------------------------------------------------------------------------------------

function figure(value) {
  if (value >= 100) return Math.round(value).toLocaleString('en');
  return value === 0 ? '0' : value.toFixed(value >= 10 ? 1 : 2);
}

function duration(ns) {
  for (const [unit, size] of [['s', 1e9], ['ms', 1e6], ['µs', 1e3]]) {
    if (ns >= size) return `${Number((ns / size).toPrecision(3))} ${unit}`;
  }
  return `${Math.round(ns)} ns`;
}

function uptime(seconds) {
  const units = [['d', 86400], ['h', 3600], ['min', 60], ['s', 1]];
  const i = Math.max(0, units.findIndex(([, size]) => seconds >= size));
  if (seconds < 1) return '0 s';
  const [unit, size] = units[i];
  const next = units[i + 1];
  const rest = next ? Math.floor((seconds % size) / next[1]) : 0;
  return `${Math.floor(seconds / size)} ${unit}${rest ? ` ${rest} ${next[0]}` : ''}`;
}

const SVG = 'http://www.w3.org/2000/svg';

function shape(tag, attributes) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

// A line of up to SAMPLES values in a box of 120 by 32, the newest at the right.
function spark(id, values) {
  const top = Math.max(1e-9, ...values);
  const step = 120 / (SAMPLES - 2);
  const points = values.map((value, i) => `${(120 - (values.length - 1 - i) * step).toFixed(1)},${(31 - 29 * value / top).toFixed(1)}`);
  if (points.length < 2) {
    $(id).replaceChildren();
    return;
  }
  const from = points[0].split(',')[0];
  $(id).replaceChildren(
    shape('path', {d: `M${from},32 L${points.join(' L')} L120,32 Z`}),
    shape('polyline', {points: points.join(' ')}));
}

// Shares of a bar, 100 wide: [class, share of 1] each.
function bar(id, shares) {
  let x = 0;
  $(id).replaceChildren(...shares.map(([name, share]) => {
    const width = Math.max(0, Math.min(100 - x, share * 100));
    const made = shape('rect', {class: name, x: x.toFixed(3), y: 0, width: width.toFixed(3), height: 4});
    x += width;
    return made;
  }));
}

function legend(id, rows) {
  $(id).replaceChildren(...rows.map(([name, label, value]) =>
    element('div', name, element('dt', '', label), element('dd', '', value))));
}

function rows(id, list) {
  $(id).replaceChildren(...list.map(([label, ...cells]) => {
    const head = element('th', '', label);
    head.scope = 'row';
    return element('tr', '', head, ...cells.map((cell) => element('td', '', cell)));
  }));
}

// Live view ---------------------------------------------------------------------------------------

const SAMPLES = 62;  // a minute of them
const PARTS = ['schedule', 'prepare', 'run', 'sample', 'deliver'];
let history = [];  // {at (s), model}
let historyOf = '';
let lastSteps = null;  // the last interval in which there were steps

function record(stats) {
  const name = $('model').value;
  const model = stats.models.find((one) => one.name === name) || stats.models[0];
  const at = stats.server.uptime_s;
  const last = history[history.length - 1];
  if (!model || model.name !== historyOf || (last && at < last.at)) {
    history = [];
    lastSteps = null;
    historyOf = model ? model.name : '';
  }
  if (!model) return null;
  if (!last || !history.length || at > last.at) history.push({at, model});
  if (history.length > SAMPLES) history.shift();
  return model;
}

// The mean step of the last interval with steps, else of all since start: its parts in ns.
function stepSplit(model) {
  const before = history.length > 1 ? history[history.length - 2].model : null;
  const sums = (one, part) => (one.latency && one.latency[part]) || {count: 0, sum_ns: 0};
  const between = (old) => {
    const count = sums(model, 'step').count - (old ? sums(old, 'step').count : 0);
    if (count <= 0) return null;
    const mean = (part) => Math.max(0, sums(model, part).sum_ns - (old ? sums(old, part).sum_ns : 0)) / count;
    return {count, step: mean('step'), parts: PARTS.map(mean)};
  };
  const now = before && between(before);
  if (now) lastSteps = now;
  if (now) return {...now, span: `mean of ${now.count.toLocaleString('en')} in the last second`};
  if (lastSteps) return {...lastSteps, span: 'mean when last busy'};
  const all = between(null);
  return all && {...all, span: 'mean since start'};
}

function drawEngine(model, server) {
  const rates = history.slice(1).map(({at, model: one}, i) =>
    Math.max(0, (one.generated_tokens - history[i].model.generated_tokens) / (at - history[i].at)));
  const seen = (field) => history.map(({model: one}) => one[field]);
  $('rate').textContent = figure(rates.length ? rates[rates.length - 1] : 0);
  spark('rate-spark', rates);
  $('running').textContent = model.running;
  $('running-of').textContent = `of ${model.max_sequences}`;
  spark('running-spark', seen('running').slice(1));
  $('waiting').textContent = model.waiting;
  $('waiting-of').textContent = `of ${model.queue_capacity.toLocaleString('en')}`;
  spark('waiting-spark', seen('waiting').slice(1));

  const pages = (count) => count.toLocaleString('en');
  const total = Math.max(1, model.kv_pages);
  bar('kv-bar', [['c0', model.kv_pages_used / total], ['c1', model.kv_pages_cached / total]]);
  legend('kv', [
    ['c0', 'In use', pages(model.kv_pages_used)],
    ['c1', 'Kept for prompts to come', pages(model.kv_pages_cached)],
    ['', `All, of ${model.kv_page_tokens} tokens each`, pages(model.kv_pages)],
  ]);

  const split = stepSplit(model);
  $('step').textContent = split ? duration(split.step) : '–';
  $('step-span').textContent = split ? split.span : '';
  const sum = split ? Math.max(split.step, split.parts.reduce((a, b) => a + b, 0), 1) : 1;
  bar('step-bar', PARTS.map((_, i) => [`c${[4, 3, 0, 2, 1][i]}`, split ? split.parts[i] / sum : 0]));
  legend('parts', PARTS.map((part, i) =>
    [`c${[4, 3, 0, 2, 1][i]}`, part[0].toUpperCase() + part.slice(1), split ? duration(split.parts[i]) : '–']));

  rows('latency', [['first_token', 'First token'], ['inter_token', 'Between tokens'], ['queue', 'In the queue'], ['step', 'Step'], ['overhead', 'The server itself']]
    .map(([key, label]) => {
      const one = key === 'overhead' ? server.overhead : model.latency && model.latency[key];
      return one && one.count ? [label, duration(one.p50_ns), duration(one.p99_ns)] : [label, '–', '–'];
    }));
}

function drawStats(stats) {
  const model = record(stats);
  const engine = Boolean(model && model.kind === 'engine');
  $('figures').hidden = !model;
  note('live-note', model ? (engine ? '' : `${model.name} is an embedding model, which has no queue.`) : 'No model is served yet.');
  for (const box of document.querySelectorAll('#figures > :not(:last-child)')) box.hidden = !engine;
  if (engine && history.length) drawEngine(model, stats.server);
  const count = (value) => Number(value || 0).toLocaleString('en');
  const server = stats.server;
  const list = [
    ['Up', uptime(server.uptime_s)],
    ['Connections open', count(server.connections)],
    ['Requests in work', count(server.requests)],
    ['Requests answered', count(server.answered)],
    ['Refused (4xx), failed (5xx)', `${count(server.refused)}, ${count(server.failed)}`],
    ['Clients gone early', count(server.aborted)],
  ];
  if (engine) {
    const hits = model.prefix_lookup_tokens ? 100 * model.prefix_hit_tokens / model.prefix_lookup_tokens : 0;
    list.push(['Tokens read', count(model.prompt_tokens)], ['Tokens written', count(model.generated_tokens)],
      ['Prompt found in cache', `${hits.toFixed(0)} %`], ['Answers cancelled', count(model.cancelled)]);
  }
  rows('totals', list);
  health(server.stopping ? 'bad' : 'ok', server.stopping ? 'Stopping' : 'Ready');
  syncKinds(stats.models);
}

function note(id, text) {
  if ($(id).textContent !== text) $(id).textContent = text;
  $(id).hidden = !text;
}

function health(state, text) {
  $('health').dataset.state = state;
  if ($('health').textContent !== text) $('health').textContent = text;
}

// Models ------------------------------------------------------------------------------------------

let known = '';

// The models to choose from, with the choice kept where it is still there.
function setModels(names) {
  if (names.join('\n') === known) return;
  known = names.join('\n');
  const select = $('model');
  const before = select.value || sessionStorage.getItem('lmnative.model');
  const options = names.map((name) => {
    const option = element('option', '', name);
    option.value = name;
    return option;
  });
  if (!options.length) {
    options.push(element('option', '', 'No model'));
    options[0].value = '';
  }
  select.replaceChildren(...options);
  if (names.includes(before)) select.value = before;
  select.disabled = Boolean(running) || !names.length;
}

// Embedding models cannot chat.
function syncKinds(models) {
  for (const option of $('model').options) {
    const one = models.find(({name}) => name === option.value);
    option.disabled = Boolean(one && one.kind === 'session');
  }
  const chosen = $('model').selectedOptions[0];
  const usable = [...$('model').options].find((option) => !option.disabled);
  if (chosen && chosen.disabled && usable) $('model').value = usable.value;
}

async function poll() {
  const limit = {signal: AbortSignal.timeout(10000)};
  const answers = [await request('v1/models', limit), await request('stats', limit)];
  for (const response of answers) if (!response.ok) throw await failureOf(response);
  const [models, stats] = await Promise.all(answers.map((response) => response.json()));
  setModels(models.data.map(({id}) => id));
  drawStats(stats);
  if (!stats.server.stopping && !models.data.length) health('', 'No model yet');
}

let timer = 0;
let failures = 0;

// Once a second while the tab is to be seen; slower, to ten seconds, while it fails.
async function live() {
  clearTimeout(timer);
  timer = -1;
  try {
    await poll();
    failures = 0;
  } catch (error) {
    failures += 1;
    const title = error instanceof Failure ? error.title : 'The server does not answer';
    const hint = error instanceof Failure ? error.hint : 'Is it still running?';
    health('bad', title.replace(/^The server /, '').replace(/^./, (c) => c.toUpperCase()));
    note('live-note', `${title}. ${hint}`);
    $('figures').hidden = true;
  }
  timer = document.hidden ? 0 : setTimeout(live, Math.min(10000, 1000 * 2 ** Math.min(failures, 4)));
}

function wake() {
  if (!document.hidden && timer !== -1) live();
}

// Views, settings, keys ---------------------------------------------------------------------------

const wide = matchMedia('(min-width: 60rem)');

function show(view) {
  if (wide.matches && view === 'chat') view = 'live';
  document.body.dataset.view = view;
  for (const tab of document.querySelectorAll('nav button')) {
    tab.setAttribute('aria-pressed', String(tab.dataset.show === view));
  }
}

function start() {
  for (const id of ['system', 'temperature', 'max_tokens', 'seed', 'key', 'model']) {
    const kept = sessionStorage.getItem(`lmnative.${id}`);
    if (kept !== null && id !== 'model') $(id).value = kept;
    $(id).addEventListener('input', () => sessionStorage.setItem(`lmnative.${id}`, $(id).value));
  }
  $('key').addEventListener('change', wake);
  $('model').addEventListener('change', wake);
  $('options').addEventListener('submit', (event) => event.preventDefault());
  $('composer').addEventListener('submit', (event) => {
    event.preventDefault();
    send();
  });
  $('input').addEventListener('input', grow);
  $('input').addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send();
  });
  document.addEventListener('keydown', (event) => {
    if (event.key === 'Escape' && running) stop();
  });
  $('stop').addEventListener('click', stop);
  $('clear').addEventListener('click', clear);
  for (const idea of document.querySelectorAll('#ideas button')) {
    idea.addEventListener('click', () => {
      $('input').value = idea.textContent;
      $('input').focus();
      send();
    });
  }
  for (const tab of document.querySelectorAll('nav button')) {
    tab.addEventListener('click', () => show(tab.dataset.show));
  }
  wide.addEventListener('change', () => show(wide.matches ? document.body.dataset.view : 'chat'));
  document.addEventListener('visibilitychange', wake);
  show('chat');
  if (wide.matches) $('input').focus();
  live();
}

start();
