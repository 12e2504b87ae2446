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

const goFirst = () => go(walked[0]);
const goLast = () => go(walked.at(-1));

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
  // A phone would show boxes too narrow for words.
  zoom = window.innerWidth < 600 ? 2 : 1;
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
    // As `--story` writes it.
    const cpu = it.told && it.text.startsWith('(') ? '' : `cpu${it.cpu} `;
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
    ArrowLeft: () => walk(-many), ArrowRight: () => walk(many), Home: goFirst, End: goLast,
    p: () => walkCpu(-1), n: () => walkCpu(1), v: () => run.violation && go(run.violation.step),
    a: () => showDetails(!at('details').checked), '+': () => magnify(2), '-': () => magnify(0.5),
    '?': () => at('help').showModal(),
  };
  if (!Object.hasOwn(acts, event.key)) return;
  event.preventDefault();
  acts[event.key]();
}

/// Where one begins: where the promise broke, if it did.
function goUsual() {
  if (run.violation) go(run.violation.step);
  else goFirst();
}

/// The step that the address asks for, or where one begins.
function start() {
  const asked = new URLSearchParams(location.hash.slice(1));
  choose(Number(asked.get('run') || 0));
  if (asked.has('step')) go(Number(asked.get('step')) - 1 - run.left_out);
  else goUsual();
}

function listen() {
  const press = { first: goFirst, back: () => walk(-1), on: () => walk(1), last: goLast,
    in: () => magnify(2), out: () => magnify(0.5), keys: () => at('help').showModal() };
  for (const [id, act] of Object.entries(press)) at(id).onclick = act;
  at('slider').oninput = () => go(Number(at('slider').value));
  at('details').onchange = () => showDetails(at('details').checked);
  at('story').onclick = event => event.target.dataset.step && go(Number(event.target.dataset.step));
  at('run').append(...runs.map((it, index) => element('option', { value: index }, it.title)));
  at('choice').hidden = runs.length < 2;
  at('run').onchange = () => { choose(Number(at('run').value)); goUsual(); };
  document.addEventListener('keydown', key);
  window.addEventListener('resize', show);
  window.addEventListener('hashchange', start);
}

tellLegend();
listen();
start();
