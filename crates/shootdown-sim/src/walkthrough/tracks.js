'use strict';
// The tracks: one a CPU, with the bars of what it is in, a box for each step, and arrows for interrupts.

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
  if (letters >= 4) wrap(it.label, letters).forEach((line, row) => {
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
  const cut = text.lastIndexOf(' ', letters);
  if (cut <= 0) return [`${text.slice(0, letters - 1)}…`];
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
