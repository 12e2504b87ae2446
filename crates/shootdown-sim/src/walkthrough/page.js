'use strict';
// Draws the chosen run from its document. The state at a step is its start with the changes of all steps up to there.
const runs = JSON.parse(document.getElementById('documents').textContent);
const at = id => document.getElementById(id);
const SORTS = ['program', 'engine', 'interrupt', 'flush', 'wait', 'function', 'hardware', 'oracle', 'lock', 'access'];
const GUTTER = 52, TOP = 18, BAR = 17, BOX = 34, TRACK = BAR + BOX + 10, LETTER = 6.1;
let run, step = 0, zoom = 1;
/// The steps that are walked, and for each step how many of these come before it.
let walked = [], before = [];

const isDetail = it => it.sort === 'access' || it.sort === 'lock';
const number = index => run.left_out + index + 1;
const clamp = (value, most) => Math.max(0, Math.min(most, value));
const where = it => it.cpu === null ? '' : run.cpus[it.cpu];

function element(name, attributes = {}, text = '') {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  return made;
}

function drawn(name, attributes, text = '') {
  const made = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  return made;
}

// ---- where one is

function go(index) {
  step = clamp(index, run.steps.length - 1);
  show();
}

function walk(count) {
  const place = before[step];
  const isOn = walked[place] === step;
  // From a step that is not walked, one event back is the walked one before it.
  const next = count < 0 ? place + count : place + count - (isOn ? 0 : 1);
  go(walked[clamp(next, walked.length - 1)]);
}

function walkCpu(direction) {
  const cpu = run.steps[step].cpu;
  for (let place = before[step] + direction; place >= 0 && place < walked.length; place += direction) {
    if (walked[place] !== step && run.steps[walked[place]].cpu === cpu) return go(walked[place]);
  }
}

function choose(chosen) {
  run = runs[clamp(chosen, runs.length - 1)];
  at('run').value = String(runs.indexOf(run));
  document.title = run.title;
  at('title').textContent = run.title;
  at('command').textContent = run.command;
  at('left-out').hidden = run.left_out === 0;
  at('left-out').textContent = `A long run: its first ${run.left_out} steps are left out.`;
  at('zoom').hidden = run.axis !== 'ns';
  at('slider').max = run.steps.length - 1;
  tellViolation();
  tellStory();
  sift();
}

/// Which steps are walked.
function sift() {
  const all = at('details').checked;
  walked = [];
  before = run.steps.map((it, index) => {
    const place = walked.length;
    if (all || !isDetail(it)) walked.push(index);
    return place;
  });
  if (walked.length === 0) walked = [0];
}

// ---- what is told once

function tellViolation() {
  const broken = run.violation;
  at('violation').hidden = !broken;
  if (!broken) return;
  at('broken').textContent = `✗ Broken promise: ${broken.kind} on ${run.cpus[broken.cpu]} at step ${number(broken.step)}`;
  at('promise').textContent = broken.promise;
  at('message').textContent = broken.message;
  const causes = broken.causes.map(cause => [cause.step, cause.why]);
  at('causes').replaceChildren(...[...causes, [broken.step, 'here it breaks']].map(([index, why]) => {
    const line = element('li');
    const button = element('button', {}, `step ${number(index)}`);
    button.onclick = () => go(index);
    line.append(button, ` ${where(run.steps[index])}: ${why}`);
    return line;
  }));
}

function tellStory() {
  const lines = [];
  run.steps.forEach((it, index) => {
    const isBroken = it.sort === 'violation';
    if (!it.told && !isBroken) return;
    const cpu = it.told && it.text.startsWith('(') ? '' : `${where(it)} `;
    const line = element('li', { 'data-step': index }, `${String(it.event).padStart(6)} ${cpu}${it.text}`);
    if (isBroken) line.className = 'broken';
    lines.push(line);
  });
  at('story').replaceChildren(...lines);
}

function tellLegend() {
  const names = { hardware: 'hardware by itself', oracle: 'oracle', access: 'cache line', flush: 'flush' };
  at('legend').replaceChildren(...SORTS.map(sort => {
    const line = element('li');
    line.append(element('i', { style: `background:var(--${sort})` }), names[sort] || sort);
    return line;
  }));
}

// ---- what changes with the step

function show() {
  const now = run.steps[step];
  const slider = at('slider');
  slider.value = step;
  const time = run.axis === 'ns' ? `${now.at.toFixed(1)} ns` : `event ${now.event}`;
  slider.setAttribute('aria-valuetext', `step ${number(step)}, ${time}, ${where(now)} ${now.text}`);
  at('now').replaceChildren(
    element('b', {}, `step ${number(step)} of ${number(run.steps.length - 1)}`),
    ` · ${time} · ${where(now)} `, element('code', {}, now.text));
  at('now').className = now.sort === 'violation' ? 'broken' : '';
  document.body.dataset.step = number(step);
  drawTracks();
  showState();
  showStory();
  const chosen = runs.length > 1 ? `run=${runs.indexOf(run)}&` : '';
  try { history.replaceState(null, '', `#${chosen}step=${number(step)}`); } catch { /* a page without a history */ }
}

function stateAt(index) {
  const places = run.places.map(() => new Map());
  const apply = ([place, key, value]) => value === null ? places[place].delete(key) : places[place].set(key, value);
  run.start.forEach(apply);
  for (let at = 0; at < index; at++) run.steps[at].changes.forEach(apply);
  const old = places.map(place => new Map(place));
  if (index < run.steps.length) run.steps[index].changes.forEach(apply);
  return [old, places];
}

function showState() {
  const [old, places] = stateAt(step);
  const panels = places.map((place, index) => {
    const rows = [...new Set([...old[index].keys(), ...place.keys()])];
    rows.sort((a, b) => a.localeCompare(b, 'en', { numeric: true }));
    const isTlb = index < run.cpus.length;
    if (rows.length === 0 && !isTlb) return null;
    const panel = element('div', { class: 'place', 'data-place': run.places[index] });
    if (run.steps[step].cpu === index) panel.classList.add('acts');
    panel.append(element('h3', {}, run.places[index]));
    if (rows.length === 0) panel.append(element('span', { class: 'nothing' }, 'nothing cached'));
    const table = element('table');
    table.append(...rows.map(key => stateRow(key, old[index].get(key), place.get(key))));
    panel.append(table);
    return panel;
  });
  at('state').replaceChildren(...panels.filter(panel => panel));
}

function stateRow(key, was, is) {
  const kind = was === is ? '' : was === undefined ? 'new' : is === undefined ? 'gone' : 'changed';
  const row = element('tr', { class: kind });
  const text = kind === 'changed' ? `${is} (was ${was})` : is === undefined ? was : is;
  row.append(element('td', {}, key), element('td', {}, text));
  return row;
}

function showStory() {
  const story = at('story'), lines = [...story.children];
  story.querySelectorAll('.current, .past').forEach(line => line.classList.remove('current', 'past'));
  const line = lines.findLast(line => Number(line.dataset.step) <= step);
  if (!line) return;
  line.classList.add(Number(line.dataset.step) === step ? 'current' : 'past');
  story.scrollTop = line.offsetTop - story.clientHeight / 2;
}

// ---- the tracks

/// How the axis lies: x of the start of a step or of a moment, and of its end.
function scale(width) {
  const room = width - GUTTER;
  if (run.axis === 'ns') {
    const end = Math.max(1, ...run.bars.map(bar => bar.span[1]), run.steps.at(-1).at);
    const perNs = room * zoom / end;
    const from = clamp(run.steps[step].at - room / 2 / perNs, end - end / zoom);
    const x = ns => GUTTER + (ns - from) * perNs;
    return { x, end: x, of: index => x(run.steps[index].at), shift: 0, from, to: from + room / perNs };
  }
  const column = width < 600 ? 78 : 94;
  const count = Math.floor(room / column);
  const first = clamp(before[step] - Math.floor(count * 0.6), Math.max(0, walked.length - count + 1));
  const place = at => before[clamp(at - run.left_out, before.length - 1)];
  const x = at => GUTTER + (place(at) - first) * column;
  const end = at => x(at) + column;
  return { x, end, of: index => GUTTER + (before[index] - first) * column, shift: column / 2, column, first, count };
}

function drawTracks() {
  const width = at('tracks').clientWidth, height = TOP + run.cpus.length * TRACK;
  const svg = drawn('svg', { width, height, role: 'img', 'aria-label': `${run.cpus.length} tracks, one a CPU, at step ${number(step)}` });
  const lie = scale(width);
  const inner = drawn('svg', { x: GUTTER, y: 0, width: width - GUTTER, height, viewBox: `${GUTTER} 0 ${width - GUTTER} ${height}` });
  const tracks = run.cpus.map((name, cpu) => {
    const y = TOP + cpu * TRACK;
    const track = drawn('g', { class: 'track', 'data-cpu': cpu });
    track.append(drawn('rect', { class: 'lane', x: GUTTER, y: y + 2, width: width - GUTTER, height: TRACK - 4 }));
    svg.append(drawn('text', { x: 4, y: y + TRACK / 2 + 4 }, name.split(' ')[0]));
    const bars = run.bars.filter(bar => bar.cpu === cpu);
    bars.forEach(bar => drawBar(track, bar, y, lie, width, innerStart(bars, bar)));
    const x = lie.of(step) + (run.axis === 'ns' ? 0 : 1);
    track.append(drawn('line', { class: 'cursor', x1: x, x2: x, y1: cpu === 0 ? TOP - 4 : y, y2: y + TRACK }));
    inner.append(track);
    return track;
  });
  drawAxis(inner, lie, width);
  drawSteps(tracks, lie, width);
  run.arrows.forEach(arrow => drawArrow(inner, arrow, lie, width));
  svg.append(inner);
  at('tracks').replaceChildren(svg);
}

/// Where the first bar begins that covers part of this one.
function innerStart(bars, bar) {
  const inner = bars.filter(it => it.depth > bar.depth && it.span[0] >= bar.span[0] && it.span[1] <= bar.span[1]);
  return Math.min(bar.span[1], ...inner.map(it => it.span[0]));
}

function drawBar(track, bar, y, lie, width, free) {
  const x = Math.max(GUTTER, lie.x(bar.span[0])), end = Math.min(width, lie.end(bar.span[1]));
  if (end <= x) return;
  const fill = bar.name === 'interrupt' ? 'interrupt' : bar.kind;
  track.append(drawn('rect', { x, y: y + 4, width: end - x, height: BAR, fill: `var(--${fill})` }));
  const name = bar.name === 'handle_ipi' ? 'handler' : bar.name;
  const room = Math.min(end, free < bar.span[1] ? lie.x(free) : end) - x;
  if (room > name.length * LETTER + 8) track.append(drawn('text', { x: x + 4, y: y + 16 }, name));
}

function drawAxis(svg, lie, width) {
  if (run.axis === 'ns') {
    const wish = (lie.to - lie.from) / (width / 110);
    const tick = [10, 20, 50, 100, 200, 500, 1000, 2000, 5000].find(it => it >= wish) || 10000;
    for (let ns = Math.ceil(lie.from / tick) * tick; ns <= lie.to; ns += tick) {
      if (lie.x(ns) < width - 45) svg.append(drawn('text', { class: 'quiet', x: lie.x(ns), y: 12 }, `${ns} ns`));
    }
    return;
  }
  for (const index of walked.slice(lie.first, lie.first + lie.count + 1)) {
    svg.append(drawn('text', { class: 'quiet', x: lie.of(index) + 4, y: 12 }, number(index)));
  }
}

/// The boxes, each until the next one of its CPU, from the last one so that earlier ones are drawn over.
function drawSteps(tracks, lie, width) {
  const ends = run.cpus.map(() => Infinity), last = run.axis === 'ns' ? walked.length : lie.first + lie.count + 3;
  for (let place = Math.min(last, walked.length) - 1; place >= 0; place--) {
    const index = walked[place], it = run.steps[index];
    if (it.cpu === null) continue;
    const x = lie.of(index), most = run.axis === 'ns' ? 150 : lie.column * 2;
    const end = Math.min(ends[it.cpu], x + most, run.axis === 'ns' ? Infinity : Math.max(x + lie.column, width));
    ends[it.cpu] = x;
    if (x > width || end < GUTTER) continue;
    tracks[it.cpu].append(box(it, index, x, Math.max(3, end - x - 2)));
  }
}

function box(it, index, x, width) {
  const y = TOP + it.cpu * TRACK + BAR + 5;
  const state = index === step ? 'current' : index > step ? 'later' : '';
  const group = drawn('g', { class: `step ${it.sort} ${state}`, 'data-step': index });
  group.append(drawn('title', {}, `step ${number(index)}: ${it.text}`));
  group.append(drawn('rect', { x: x + 1, y, width, height: BOX, rx: 4, fill: `var(--${it.sort})` }));
  const letters = Math.floor((width - 6) / LETTER);
  if (letters >= 3) wrap(it.label, letters).forEach((line, row) => {
    group.append(drawn('text', { x: x + 5, y: y + 14 + row * 13 }, line));
  });
  const cause = run.violation ? run.violation.causes.findIndex(cause => cause.step === index) : -1;
  if (cause >= 0) {
    group.append(drawn('circle', { class: 'cause', cx: x + width - 6, cy: y + 4, r: 7 }));
    group.append(drawn('text', { class: 'cause-number', x: x + width - 6, y: y + 7.5 }, cause + 1));
  }
  group.onclick = () => go(index);
  return group;
}

/// Two lines; what does not fit ends in an ellipsis.
function wrap(text, letters) {
  if (text.length <= letters) return [text];
  const space = text.lastIndexOf(' ', letters);
  const cut = space > 0 ? space : letters;
  const rest = text.slice(cut).trim();
  return [text.slice(0, cut), rest.length <= letters ? rest : `${rest.slice(0, letters - 1)}…`];
}

function drawArrow(svg, arrow, lie, width) {
  const [from, sent] = arrow.sent, [to, taken] = arrow.taken;
  if (from === to) return;
  const edge = (cpu, lower) => TOP + cpu * TRACK + (lower ? TRACK - 4 : 4);
  const line = (kind, x1, y1, x2, y2) => {
    if (Math.max(x1, x2) < GUTTER || Math.min(x1, x2) > width) return;
    const tip = y2 > y1 ? -6 : 6;
    svg.append(drawn('path', { class: kind, d: `M${x1} ${y1}L${x2} ${y2}M${x2 - 4} ${y2 + tip}L${x2} ${y2}L${x2 + 4} ${y2 + tip}` }));
  };
  const start = lie.x(sent) + lie.shift, down = to > from;
  if (taken !== null) line('ipi', start, edge(from, down), lie.x(taken) + lie.shift, edge(to, !down));
  else if (!arrow.answer) line('ipi untaken', start, edge(from, down), start + 20, edge(to, !down));
  if (arrow.answer) {
    line('ack', lie.x(arrow.answer[0]) + lie.shift, edge(to, !down), lie.x(arrow.answer[1]) + lie.shift, edge(from, down));
  }
}

// ---- keys and buttons

function showDetails(on) {
  at('details').checked = on;
  sift();
  show();
}

function magnify(factor) {
  if (run.axis !== 'ns') return;
  zoom = Math.max(1, Math.min(64, zoom * factor));
  show();
}

function key(event) {
  if (event.ctrlKey || event.altKey || event.metaKey || at('help').open || event.target.id === 'run') return;
  const many = event.shiftKey ? 10 : 1;
  const acts = {
    ArrowLeft: () => walk(-many), ArrowRight: () => walk(many), Home: () => go(0), End: () => go(Infinity),
    p: () => walkCpu(-1), n: () => walkCpu(1), v: () => run.violation && go(run.violation.step),
    a: () => showDetails(!at('details').checked), '+': () => magnify(2), '-': () => magnify(0.5),
    '?': () => at('help').showModal(),
  };
  if (!Object.hasOwn(acts, event.key)) return;
  event.preventDefault();
  acts[event.key]();
}

/// The step that the address asks for, or the one where the promise broke.
function start() {
  const asked = new URLSearchParams(location.hash.slice(1));
  choose(Number(asked.get('run') || 0));
  const usual = run.violation ? run.violation.step : 0;
  go(asked.has('step') ? Number(asked.get('step')) - 1 - run.left_out : usual);
}

function listen() {
  const press = { first: () => go(0), back: () => walk(-1), on: () => walk(1), last: () => go(Infinity),
    in: () => magnify(2), out: () => magnify(0.5), keys: () => at('help').showModal() };
  for (const [id, act] of Object.entries(press)) at(id).onclick = act;
  at('slider').oninput = () => go(Number(at('slider').value));
  at('details').onchange = () => showDetails(at('details').checked);
  at('story').onclick = event => event.target.dataset.step && go(Number(event.target.dataset.step));
  at('run').append(...runs.map((it, index) => element('option', { value: index }, it.title)));
  at('choice').hidden = runs.length < 2;
  at('run').onchange = () => { choose(Number(at('run').value)); go(run.violation ? run.violation.step : 0); };
  document.addEventListener('keydown', key);
  window.addEventListener('resize', drawTracks);
  window.addEventListener('hashchange', start);
}

tellLegend();
listen();
start();
