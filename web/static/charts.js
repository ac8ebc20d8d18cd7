// Charts that one reads values from: crosshair, zoom, log scale, smoothing, several lines over each other.
//
// The server draws every chart as SVG first, for print and for pages without script. This module asks for the same
// curves as numbers (`data-curves`), draws them in the same frame, and takes what is new from the page's live events.
// All charts of a board share the zoom, the crosshair and the settings.

const WIDTH = 560, HEIGHT = 240, LEFT = 64, RIGHT = 12, TOP = 12, BOTTOM = 34; // as in charts.py
const COLOURS = 10; // that the style sheet has
const TICKS = 5;
const POINTS_MAX = 4000; // of a line; beyond, every second of its older half goes
const DRAG_LEAST = 6; // pixels; less is a click
const KEY_ZOOM = 0.7; // what is left of the range after one "+"
const SVG = "http://www.w3.org/2000/svg";

function make(name, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

function html(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

/** As `number` of formats.py: at most four significant digits. */
export function numberText(value) {
  if (value === 0) return "0";
  const size = Math.floor(Math.log10(Math.abs(value)));
  if (size < -7 || size >= 12) return value.toExponential(3).replace(/\.?0+e/, "e").replace("e+", "e");
  return value.toLocaleString("en-US", { maximumFractionDigits: Math.max(0, 3 - size) });
}

/** Exponential moving average, corrected for its start, so that the first value is the first point. */
export function smoothed(points, weight) {
  if (weight === 0) return points;
  let mean = 0, sum = 0;
  return points.map(([x, y]) => {
    mean = weight * mean + (1 - weight) * y;
    sum = weight * sum + (1 - weight);
    return [x, mean / sum];
  });
}

/** Round values that cover [low, high]. */
export function ticksOf(low, high) {
  const rough = (high - low) / TICKS;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((one) => one * power).find((one) => one >= rough * (1 - 1e-9));
  const found = [];
  for (let index = Math.ceil(low / step - 1e-9); index * step <= high + step * 1e-9; index++) found.push(index * step);
  return found;
}

function decades(low, high) {
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
    for (const one of [1, 2, 5]) found.push(one * 10 ** power);
  }
  const inside = found.filter((value) => value >= low * 0.999 && value <= high * 1.001);
  const whole = inside.filter((value) => Math.abs(Math.log10(value) % 1) < 1e-9);
  return whole.length >= 3 ? whole : inside;
}

/** The index of the point that is nearest to x. */
export function nearest(points, x) {
  let low = 0, high = points.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (points[middle][0] < x) low = middle + 1;
    else high = middle;
  }
  return low > 0 && x - points[low - 1][0] <= points[low][0] - x ? low - 1 : low;
}

/** Appends points; what a recovery has done again replaces what was there. */
export function extend(points, fresh) {
  if (fresh.length === 0) return points;
  const kept = points.length > 0 && points.at(-1)[0] >= fresh[0][0] ? points.filter(([x]) => x < fresh[0][0]) : points;
  const all = kept.concat(fresh);
  return all.length <= POINTS_MAX ? all : all.filter((_, index) => index % 2 === 0 || index > POINTS_MAX / 2);
}

/** One chart of a board. */
class Chart {
  constructor(board, figure) {
    this.board = board;
    this.figure = figure;
    this.lines = board.lines(figure.dataset.figure); // name -> points
    this.hidden = new Set();
    this.place = null; // how the picture maps numbers, once it is drawn
    figure.tabIndex = 0;
    const title = figure.closest("section")?.querySelector("h2")?.textContent ?? figure.dataset.figure;
    figure.setAttribute("aria-label", `${title}. Arrow keys move the cursor, plus and minus zoom, Escape resets.`);
    this.picture = make("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, "aria-hidden": "true" });
    this.caption = html("figcaption", { class: "chart-legend" });
    figure.addEventListener("keydown", (event) => this.onKey(event));
    this.picture.addEventListener("pointerdown", (event) => this.onDown(event));
    this.picture.addEventListener("pointermove", (event) => this.onMove(event));
    this.picture.addEventListener("pointerup", (event) => this.onUp(event));
    this.picture.addEventListener("pointercancel", () => { this.drag = null; this.board.changed(); });
    this.picture.addEventListener("pointerleave", () => this.board.point(null));
    this.picture.addEventListener("dblclick", () => this.board.zoom(null));
    this.drag = null;
  }

  xOf(event) {
    const box = this.picture.getBoundingClientRect();
    const inside = Math.min(WIDTH - RIGHT, Math.max(LEFT, ((event.clientX - box.left) / box.width) * WIDTH));
    return this.place === null ? null : this.place.value(inside);
  }

  onDown(event) {
    if (event.button !== 0 || this.place === null) return;
    this.drag = { from: this.xOf(event), at: event.clientX };
    this.picture.setPointerCapture(event.pointerId);
  }

  onMove(event) {
    this.board.point(this.xOf(event));
  }

  onUp(event) {
    const drag = this.drag;
    this.drag = null;
    if (drag === null || Math.abs(event.clientX - drag.at) < DRAG_LEAST) return this.board.changed();
    const to = this.xOf(event);
    this.board.zoom([Math.min(drag.from, to), Math.max(drag.from, to)]);
  }

  onKey(event) {
    if (this.place === null || event.ctrlKey || event.metaKey || event.altKey || event.target !== this.figure) return;
    const points = [...this.lines].find(([name]) => !this.hidden.has(name))?.[1] ?? [];
    const { from, to } = this.place;
    const middle = this.board.at ?? (from + to) / 2;
    if (event.key === "Escape") this.board.zoom(null);
    else if (event.key === "+" || event.key === "=" || event.key === "-") {
      const half = ((to - from) / 2) * (event.key === "-" ? 1 / KEY_ZOOM : KEY_ZOOM);
      this.board.zoom([middle - half, middle + half]);
    } else if (points.length > 0 && ["ArrowLeft", "ArrowRight", "Home", "End"].includes(event.key)) {
      const now = this.board.at === null ? points.length - 1 : nearest(points, this.board.at);
      const next = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: points.length - 1 }[event.key];
      this.caption.setAttribute("aria-live", "polite");
      this.board.point(points[Math.min(points.length - 1, Math.max(0, next))][0]);
    } else return;
    event.preventDefault();
  }

  draw() {
    const { at, log, weight, range } = this.board;
    const known = [...this.lines].filter(([, points]) => points.length > 0);
    if (known.length === 0) return; // the server's frame says that there is nothing yet
    if (this.picture.parentNode === null) this.figure.replaceChildren(this.picture, this.caption);
    const numbered = [...this.lines.keys()];
    const xs = known.flatMap(([, points]) => [points[0][0], points.at(-1)[0]]);
    let [from, to] = range ?? [Math.min(...xs), Math.max(...xs)];
    if (from === to) [from, to] = [from >= 0 ? Math.max(0, from - 1) : from - 1, to + 1];
    const isSeen = ([x, y]) => x >= from && x <= to && (!log || y > 0);
    const shown = known.filter(([name]) => !this.hidden.has(name)).map(([name, points]) => {
      const line = smoothed(points, weight);
      return { name, colour: (numbered.indexOf(name) % COLOURS) + 1, points, line };
    });
    const values = shown.flatMap(({ points, line }) => [...points, ...line].filter(isSeen).map(([, y]) => y));
    const axis = this.axis(values, log, range !== null);
    const across = (x) => LEFT + ((x - from) / (to - from)) * (WIDTH - LEFT - RIGHT);
    this.place = { from, to, value: (left) => from + ((left - LEFT) / (WIDTH - LEFT - RIGHT)) * (to - from) };
    const children = this.axes(axis, across, from, to);
    for (const [x, kind, text] of this.board.marks) {
      if (x < from || x > to) continue;
      const mark = { class: `mark ${kind}`, x1: across(x), x2: across(x), y1: TOP, y2: HEIGHT - BOTTOM };
      children.push(make("line", mark, make("title", {}, text)));
    }
    for (const { colour, points, line } of shown) {
      if (weight > 0) children.push(this.line(points.filter(isSeen), `raw line s${colour}`, across, axis.up));
      children.push(this.line(line.filter(isSeen), `line s${colour}`, across, axis.up));
    }
    if (this.drag !== null && at !== null) {
      const [a, b] = [across(this.drag.from), across(at)];
      const box = { class: "picked", x: Math.min(a, b), y: TOP, width: Math.abs(a - b), height: HEIGHT - TOP - BOTTOM };
      children.push(make("rect", box));
    } else if (at !== null && at >= from && at <= to) {
      children.push(make("line", { class: "cross", x1: across(at), x2: across(at), y1: TOP, y2: HEIGHT - BOTTOM }));
      for (const { colour, line } of shown) {
        const [x, y] = line[nearest(line, at)];
        if (isSeen([x, y])) children.push(make("circle", { class: `dot s${colour}`, cx: across(x), cy: axis.up(y), r: 4 }));
      }
    }
    this.picture.replaceChildren(...children);
    this.legend(numbered, known, at, weight);
  }

  axis(values, log, isClose) {
    let low = values.length > 0 ? Math.min(...values) : log ? 0.1 : 0;
    let high = values.length > 0 ? Math.max(...values) : 1;
    const span = HEIGHT - TOP - BOTTOM;
    if (log) {
      if (low === high) [low, high] = [low / 2, high * 2];
      const [a, b] = [Math.log10(low), Math.log10(high)];
      return { ticks: decades(low, high), up: (y) => TOP + (1 - (Math.log10(y) - a) / (b - a)) * span };
    }
    if (!isClose) [low, high] = [Math.min(0, low), Math.max(0, high)]; // the whole history stands on zero
    const isPositive = low >= 0; // then the axis is, too
    if (low === high) [low, high] = [low - (Math.abs(low) || 1) / 2, high + (Math.abs(high) || 1) / 2];
    if (isPositive) low = Math.max(0, low);
    const ticks = ticksOf(low, high);
    const step = ticks.length > 1 ? ticks[1] - ticks[0] : high - low;
    if (ticks[0] > low + step * 1e-9) ticks.unshift(isPositive ? Math.max(0, ticks[0] - step) : ticks[0] - step);
    if (ticks.at(-1) < high - step * 1e-9) ticks.push(ticks.at(-1) + step);
    const [bottom, top] = [ticks[0], ticks.at(-1)];
    return { ticks, up: (y) => TOP + (1 - (y - bottom) / (top - bottom)) * span };
  }

  axes({ ticks, up }, across, from, to) {
    const text = (x, y, anchor, value) => make("text", { class: "axis", x, y, "text-anchor": anchor }, value);
    const found = ticks.flatMap((value) => [
      make("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: up(value), y2: up(value) }),
      text(LEFT - 8, up(value) + 4, "end", numberText(value)),
    ]);
    const marks = ticksOf(from, to).filter((x) => across(x) > LEFT + 30 && across(x) < WIDTH - RIGHT - 40);
    found.push(...marks.map((x) => text(across(x), HEIGHT - 16, "middle", numberText(x))));
    found.push(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 2, "middle", this.board.xName));
    return found;
  }

  line(points, kind, across, up) {
    if (points.length === 1) {
      return make("circle", { class: kind.replace("line", "dot"), cx: across(points[0][0]), cy: up(points[0][1]), r: 4 });
    }
    const path = points.map(([x, y]) => `${across(x).toFixed(1)},${up(y).toFixed(1)}`).join(" ");
    return make("polyline", { class: kind, points: path });
  }

  legend(numbered, known, at, weight) {
    const points = new Map(known);
    const keys = numbered.map((name, index) => {
      const line = smoothed(points.get(name) ?? [], weight);
      const value = line.length === 0 ? "–" : numberText(line[at === null ? line.length - 1 : nearest(line, at)][1]);
      return { name, value, colour: (index % COLOURS) + 1, isHidden: this.hidden.has(name) };
    });
    if (this.keys?.length !== keys.length) {
      this.keys = keys.map(({ name, colour }) => {
        const button = html("button", { type: "button", class: "chart-key" });
        button.append(html("span", { class: `key s${colour}`, "aria-hidden": "true" }), ` ${name} `, html("b"));
        button.addEventListener("click", () => {
          if (!this.hidden.delete(name)) this.hidden.add(name);
          this.board.changed();
        });
        return button;
      });
      this.where = html("span", { class: "chart-at" });
      this.caption.replaceChildren(...this.keys, this.where);
    }
    keys.forEach(({ value, isHidden }, index) => {
      this.keys[index].setAttribute("aria-pressed", String(!isHidden));
      this.keys[index].querySelector("b").textContent = value;
    });
    const mark = at === null ? undefined : this.board.marks.find(([x]) => Math.abs(x - at) < 0.5);
    this.where.textContent = at === null ? "latest" : `${this.board.xName} ${numberText(Math.round(at))}${mark ? `: ${mark[2]}` : ""}`;
  }
}

/** The charts of a page that belong together. */
class Board {
  constructor(holder) {
    this.holder = holder;
    this.known = new Map(); // of each figure: its lines
    this.charts = new Map();
    this.marks = [];
    this.xName = holder.dataset.x ?? "step";
    this.at = null;
    this.log = false;
    this.weight = 0;
    this.range = null;
    this.isDue = false;
    this.early = []; // live news that came before the curves
    holder.querySelector("[data-smooth]")?.addEventListener("input", (event) => {
      this.weight = Number(event.target.value);
      this.changed();
    });
    holder.querySelector("[data-log-scale]")?.addEventListener("change", (event) => {
      this.log = event.target.checked;
      this.changed();
    });
    this.unzoom = holder.querySelector("[data-unzoom]");
    this.unzoom?.addEventListener("click", () => this.zoom(null));
    document.addEventListener("live", ({ detail: { name, news } }) => {
      if (name !== "points" && name !== "curves") return;
      if (this.early !== null) this.early.push([name, news]);
      else this.take(name, news);
    });
  }

  async load() {
    const answer = await fetch(this.holder.dataset.curves, { credentials: "same-origin" });
    if (!answer.ok) return; // the server's pictures stay
    this.take("curves", await answer.json());
    for (const [name, news] of this.early) this.take(name, news);
    this.early = null;
  }

  /** `points` are new ones at the end of their lines; of `curves`, each line is whole. */
  take(name, { figures = {}, marks }) {
    if (marks !== undefined) this.marks = marks;
    for (const [key, lines] of Object.entries(figures)) {
      const known = this.lines(key);
      for (const [line, fresh] of Object.entries(lines)) {
        known.set(line, extend(name === "points" ? known.get(line) ?? [] : [], fresh));
      }
    }
    this.changed();
  }

  lines(key) {
    if (!this.known.has(key)) this.known.set(key, new Map());
    return this.known.get(key);
  }

  /** null: its frame is not in the page yet. */
  chart(key) {
    if (!this.charts.has(key)) {
      const figure = this.holder.querySelector(`[data-figure="${CSS.escape(key)}"]`);
      if (figure === null) return null;
      this.charts.set(key, new Chart(this, figure));
    }
    return this.charts.get(key);
  }

  point(x) {
    this.at = x;
    this.changed();
  }

  zoom(range) {
    this.range = range !== null && range[1] > range[0] ? range : null;
    if (this.unzoom !== null) this.unzoom.disabled = this.range === null;
    this.changed();
  }

  changed() {
    if (this.isDue) return;
    this.isDue = true;
    requestAnimationFrame(() => {
      this.isDue = false;
      for (const key of this.known.keys()) this.chart(key)?.draw();
    });
  }
}

if (typeof document !== "undefined") {
  for (const holder of document.querySelectorAll("[data-curves]")) new Board(holder).load().catch(() => {});
}
