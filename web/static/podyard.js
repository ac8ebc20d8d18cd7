// What makes the console's pages live. Without it every page works the same: forms post, links lead.
//
// What a person may hold is never replaced: new HTML from the server is merged into the page, element by element, so
// that a button stays that button, and nothing moves between pressing a pointer and releasing it.

document.documentElement.classList.add("scripted");

const TYPE_AHEAD_MS = 1000; // browsers forget the letters that were typed into a select after about this time
const STILL_MS = 250; // a pointer that has not moved for this long is not on its way to anything
const ESTIMATE_AFTER_MS = 800; // a form in which nothing has changed for this long is not being filled in
const RECONNECT_MS = 15000; // a stream that was refused is asked for again after this

let pressed = false; // a pointer is down
let keyboard = false; // the last input came from the keyboard
let moved = -Infinity; // when the pointer last moved
let stillTimer = 0;
const afterRelease = new Set();

/** Runs `work` now, or once the pointer stands still, and has been released and its click has been handled: nothing
 * moves away under a hand that is on its way to it. */
function whenReleased(work) {
  if (!pressed && performance.now() - moved >= STILL_MS) return work();
  afterRelease.add(work);
  if (!pressed) workWhenStill();
}

function workWhenStill() {
  clearTimeout(stillTimer);
  stillTimer = setTimeout(() => {
    if (pressed) return;
    if (performance.now() - moved < STILL_MS) return workWhenStill();
    const waiting = [...afterRelease];
    afterRelease.clear();
    for (const work of waiting) work();
  }, Math.max(0, moved + STILL_MS - performance.now()));
}

function release() {
  pressed = false;
  workWhenStill();
}

document.addEventListener("pointerdown", () => { pressed = true; keyboard = false; }, true);
document.addEventListener("pointerup", release, true);
document.addEventListener("pointercancel", release, true);
document.addEventListener("dragend", release, true); // a drag ends without a pointerup
document.addEventListener("pointermove", (event) => {
  moved = performance.now();
  if (pressed && event.buttons === 0) release();
}, true);
window.addEventListener("blur", release);
document.addEventListener("keydown", () => { keyboard = true; }, true);

/** What makes an element the same one in two versions of a page: its name, or the name of what is inside it. */
function keyOf(node) {
  if (node.nodeType !== Node.ELEMENT_NODE) return "";
  const own = ownKey(node);
  if (own) return `${node.nodeName} ${own}`;
  const inner = node.querySelector(node.matches("tr, li") ? "[id], a[href]" : "[id]");
  return inner === null ? "" : `${node.nodeName} ${ownKey(inner)}`;
}

function ownKey(element) {
  return element.dataset.key || element.id || element.htmlFor || element.dataset.dialog || element.getAttribute("href");
}

const isSame = (old, fresh) => old.nodeName === fresh.nodeName && keyOf(old) === keyOf(fresh);

/** Makes the children of `old` those of `fresh`. Elements that are in both stay; only what differs is changed. */
function mergeChildren(old, fresh) {
  const wanted = new Set([...fresh.childNodes].map(keyOf));
  for (const child of [...old.childNodes]) {
    const key = keyOf(child);
    if (key !== "" && !wanted.has(key)) child.remove();
  }
  let cursor = old.firstChild;
  for (const child of [...fresh.childNodes]) {
    let match = cursor;
    // A text belongs to what it stands next to, so that only the next node can be the same text.
    if (child.nodeType !== Node.ELEMENT_NODE && match !== null && !isSame(match, child)) match = null;
    while (match !== null && !isSame(match, child)) match = match.nextSibling;
    if (match === null) {
      old.insertBefore(document.importNode(child, true), cursor);
      continue;
    }
    // What stands before the match is gone, unless it has a key and comes later.
    while (cursor !== match && keyOf(cursor) === "") {
      const next = cursor.nextSibling;
      cursor.remove();
      cursor = next;
    }
    if (cursor === match) cursor = match.nextSibling;
    else old.insertBefore(match, cursor);
    merge(match, child);
  }
  while (cursor !== null) {
    const next = cursor.nextSibling;
    cursor.remove();
    cursor = next;
  }
}

/** Makes `old` what `fresh` is. What the reader has opened, typed, scrolled to or chosen stays theirs. */
function merge(old, fresh) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
    return;
  }
  if (old.matches("select")) return mergeSelect(old, fresh);
  if (old.matches("[data-keep]")) return; // another module draws it
  if (old.isEqualNode(fresh) && old.querySelector("select") === null) return;
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !(name === "open" && old.matches("details"))) old.removeAttribute(name);
  }
  for (const { name, value } of [...fresh.attributes]) {
    if (name === "open" && old.matches("details")) continue;
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  const box = old.matches(".log") ? old : null;
  const atEnd = box !== null && box.scrollTop + box.clientHeight >= box.scrollHeight - 8;
  mergeChildren(old, fresh);
  if (atEnd) box.scrollTop = box.scrollHeight;
}

/** A select that has the focus is left alone: its list may be open, or letters may be being typed into it. */
function mergeSelect(old, fresh) {
  if (old === document.activeElement) return;
  const chosen = fresh.value;
  mergeChildren(old, fresh);
  for (const option of old.options) option.selected = option.value === chosen;
}

function mergeHtml(part, html) {
  const fresh = document.createElement("template");
  fresh.innerHTML = html;
  localTimes(fresh.content);
  mergeChildren(part, fresh.content);
}

/** Brings the parts of the page up to date that the server says have changed. What feeds bring is for other modules:
 * an event of the document, "live", with the feed's name and its news. */
function followEvents(address) {
  const source = new EventSource(address);
  const texts = new Map(); // of each part: the lines of its HTML
  const waiting = new Set();
  let seen = ""; // the cursors of the feeds, as a query
  function apply() {
    for (const id of waiting) {
      const part = document.querySelector(`[data-part="${CSS.escape(id)}"]`);
      if (part !== null) mergeHtml(part, texts.get(id).join("\n"));
    }
    waiting.clear();
  }
  source.addEventListener("part", (event) => {
    const { id, html, lines } = JSON.parse(event.data);
    if (html !== undefined) texts.set(id, html.split("\n"));
    else for (const [first, count, fresh] of lines) texts.get(id).splice(first, count, ...fresh);
    waiting.add(id);
    whenReleased(apply);
  });
  for (const name of (document.body.dataset.feeds ?? "").split(" ").filter(Boolean)) {
    source.addEventListener(name, (event) => {
      seen = event.lastEventId;
      document.dispatchEvent(new CustomEvent("live", { detail: { name, news: JSON.parse(event.data) } }));
    });
  }
  source.addEventListener("over", () => source.close());
  source.addEventListener("error", () => {
    // Refused, because too many pages are live: a browser does not ask again by itself.
    if (source.readyState !== EventSource.CLOSED) return;
    const next = new URL(address, location.href);
    for (const [name, cursor] of new URLSearchParams(seen)) next.searchParams.set(name, cursor);
    setTimeout(() => followEvents(next.href), RECONNECT_MS);
  });
  window.addEventListener("pagehide", () => source.close());
}

/** Asks the server for the form as it would be with the present values, and merges what depends on them: the fields
 * that there are (`data-fields`), and the output (`data-swap`), which has no control of the form in it.
 */
function previewForm(form) {
  let asked = 0;
  let latest = null; // the page that answers the newest question
  let typing = 0; // the timer of letters that are being typed into a select: what they pass by decides no other field

  function apply() {
    if (latest === null) return;
    for (const part of form.querySelectorAll("[data-fields], [data-swap]")) {
      if (part.matches("[data-fields]") && typing !== 0) continue;
      const name = part.matches("[data-fields]") ? "[data-fields]" : `[data-swap="${part.dataset.swap}"]`;
      const fresh = latest.querySelector(name);
      if (fresh !== null) mergeChildren(part, fresh);
    }
  }

  function typed() {
    clearTimeout(typing);
    typing = setTimeout(chosen, TYPE_AHEAD_MS);
  }

  function chosen() {
    clearTimeout(typing);
    typing = 0;
    whenReleased(apply);
  }

  async function pageOf(more) {
    const own = [...new FormData(form)].map(([name, value]) => [name, value instanceof File ? value.name : value]);
    const values = new URLSearchParams([...own, ...more]);
    const answer = await fetch(`${form.getAttribute("action")}?${values}`, { credentials: "same-origin" });
    return new DOMParser().parseFromString(await answer.text(), "text/html");
  }

  // An estimate takes a second of the server: it is asked for once nothing has changed for a while.
  async function estimate() {
    const turn = asked;
    await new Promise((done) => setTimeout(done, ESTIMATE_AFTER_MS));
    const part = form.querySelector("[data-swap=estimate]");
    if (turn !== asked || part === null || part.querySelector("[data-estimate]") === null) return;
    try {
      const fresh = (await pageOf([["estimate", "1"]])).querySelector("[data-swap=estimate]");
      if (turn === asked && fresh !== null) whenReleased(() => mergeChildren(part, fresh));
    } catch {
      // The button is still there.
    }
  }

  form.addEventListener("keydown", () => { if (typing !== 0) typed(); });
  form.addEventListener("change", async (event) => {
    const turn = ++asked;
    latest = null;
    if (keyboard && event.target.matches("select")) typed();
    try {
      const page = await pageOf([]);
      if (turn !== asked) return;
      latest = page;
      whenReleased(apply);
      estimate();
    } catch {
      // The server is away: the form stays as it is, and sending it reports the error.
    }
  });
  estimate();
  // A select that was left alone while it had the focus is brought up to date when it loses it.
  form.addEventListener("focusout", (event) => {
    if (event.target.matches("select")) setTimeout(chosen, 0);
  });
}

/** As `money_text` of base/money.py writes amounts. */
function moneyText(amount) {
  const least = Math.abs(amount) >= 1 ? 2 : 4;
  const decimals = amount === 0 ? least : Math.min(12, Math.max(least, 1 - Math.floor(Math.log10(Math.abs(amount)))));
  return amount.toLocaleString("en-US", {
    style: "currency", currency: "USD", minimumFractionDigits: 2, maximumFractionDigits: decimals,
  });
}

/** Costs of what is in use grow as the platform's clock runs: the server said how fast. */
function tickCosts() {
  const since = performance.now();
  setInterval(() => {
    for (const cell of document.querySelectorAll("[data-tick]")) {
      const speed = Number(cell.closest("[data-speed]")?.dataset.speed ?? 1);
      const seconds = ((performance.now() - since) / 1000) * speed;
      cell.textContent = moneyText(Number(cell.dataset.tick) + Number(cell.dataset.rate) * seconds);
    }
  }, 1000);
}

/** Submits the form of a select once a choice is made. With the keyboard, choosing takes several keys: Enter says that
 * it is made, and so does a pause. */
function autosubmit(select) {
  let timer = 0;
  const submit = () => {
    clearTimeout(timer);
    timer = 0;
    select.form.requestSubmit();
  };
  select.addEventListener("change", () => {
    if (!keyboard) return submit();
    clearTimeout(timer);
    timer = setTimeout(submit, TYPE_AHEAD_MS);
  });
  select.addEventListener("keydown", (event) => {
    if (timer === 0) return;
    if (event.key === "Enter") submit();
    else {
      clearTimeout(timer);
      timer = setTimeout(submit, TYPE_AHEAD_MS);
    }
  });
}

/** Fields that say nothing stay out of the address; so do the columns while they are the usual ones. */
function sparse(form) {
  form.addEventListener("submit", () => {
    const boxes = [...form.querySelectorAll('[name="cols"]')];
    const usual = boxes.every((box) => box.checked === box.hasAttribute("data-usual"));
    const idle = [...form.elements].filter((field) => field.value === "" || (usual && boxes.includes(field)));
    for (const field of idle) field.disabled = true;
    setTimeout(() => { for (const field of idle) field.disabled = false; }, 0); // for who comes back to this page
  });
}

/** Selection and keys of a list's rows: j and k move, x selects. Enter follows the link that has the focus. */
function listRows(form) {
  const boxes = () => [...form.querySelectorAll('[name="pick"]')];
  const all = () => form.querySelector("[data-select-all]");
  function count() {
    const picked = boxes().filter((box) => box.checked).length;
    const said = form.querySelector("[data-selected]");
    if (said !== null) said.textContent = picked === 0 ? "" : `${picked} selected`;
    if (all() !== null) all().checked = picked > 0 && picked === boxes().length;
    for (const button of form.querySelectorAll('button[name="verb"]')) button.disabled = picked === 0;
  }
  form.addEventListener("change", (event) => {
    if (event.target === all()) for (const box of boxes()) box.checked = event.target.checked;
    count();
  });
  document.addEventListener("keydown", (event) => {
    if (!isShortcut(event)) return;
    const links = [...form.querySelectorAll("tbody th a")];
    const row = document.activeElement.closest("tbody tr");
    const at = row === null ? -1 : links.findIndex((link) => row.contains(link));
    if (event.key === "j" || event.key === "k") {
      const next = links[Math.max(0, Math.min(links.length - 1, at + (event.key === "j" ? 1 : -1)))];
      next?.focus();
    } else if (event.key === "x" && row !== null) row.querySelector('[name="pick"]')?.click();
    else return;
    event.preventDefault();
  });
  count();
}

/** The search dialog: `/` and Ctrl-K open it, what is typed asks the server, arrows go through the links. */
function searchDialog(dialog) {
  const field = dialog.querySelector("input");
  const hits = dialog.querySelector("[data-hits]");
  const form = dialog.querySelector("form");
  let asked = 0;
  async function ask() {
    const turn = ++asked;
    const values = new URLSearchParams({ q: field.value, part: "1" });
    try {
      const answer = await fetch(`${form.getAttribute("action")}?${values}`, { credentials: "same-origin" });
      const html = await answer.text();
      if (turn !== asked || !answer.ok) return;
      mergeHtml(hits, html);
      hits.dataset.of = values.get("q"); // Enter opens the first hit only of what was typed
    } catch {
      // The server is away: Enter asks for the page, which reports the error.
    }
  }
  function open(event) {
    event.preventDefault();
    if (!dialog.open) dialog.showModal();
    field.select();
    ask();
  }
  field.addEventListener("input", ask);
  form.addEventListener("submit", (event) => {
    const first = hits.querySelector("a");
    if (field.value.trim() === "" || first === null || hits.dataset.of !== field.value) return;
    event.preventDefault();
    first.click();
  });
  dialog.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    const links = [...hits.querySelectorAll("a")];
    const at = links.indexOf(document.activeElement) + (event.key === "ArrowDown" ? 1 : -1);
    if (at < 0) field.focus();
    else links[Math.min(at, links.length - 1)]?.focus();
    event.preventDefault();
  });
  document.addEventListener("keydown", (event) => {
    const isCtrlK = event.key === "k" && (event.ctrlKey || event.metaKey);
    if (isCtrlK || (event.key === "/" && isShortcut(event))) open(event);
  });
  document.querySelector("[data-search]")?.addEventListener("click", open);
}

const TIME_PARTS = {
  year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit",
  timeZoneName: "short",
};

/** Times as the reader's clock shows them; UTC stands on hover. */
function localTimes(root) {
  for (const time of root.querySelectorAll("time[data-utc]")) {
    const moment = new Date(time.dateTime);
    if (Number.isNaN(moment.getTime())) continue;
    time.title = time.textContent;
    time.textContent = moment.toLocaleString("sv-SE", TIME_PARTS);
  }
}

/** Escape closes the open menu that has the focus, which goes back to what opened it. */
document.addEventListener("keydown", (event) => {
  const menu = event.key === "Escape" ? document.activeElement.closest("details.menu[open]") : null;
  if (menu === null) return;
  menu.open = false;
  menu.querySelector("summary").focus();
});

/** Whether a key is meant for the page, and not for a field that is being filled in. */
function isShortcut(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return false;
  if (document.querySelector("dialog[open]") !== null) return false;
  return !event.target.matches('input:not([type="checkbox"]), textarea, select, [contenteditable]');
}

/** Shows a part of another page in a dialog: the link itself leads there. */
async function openPanel(link) {
  const dialog = document.getElementById("panel");
  const body = dialog.querySelector("[data-panel-body]");
  try {
    const answer = await fetch(link.href, { credentials: "same-origin" });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    body.replaceChildren(page.getElementById(link.dataset.panel));
    dialog.showModal();
  } catch {
    location.assign(link.href); // the page says what is wrong
  }
}

document.addEventListener("click", (event) => {
  const panel = event.target.closest("[data-panel]");
  if (panel !== null && document.getElementById("panel") !== null && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    openPanel(panel);
  }
  event.target.closest("[data-dismiss]")?.parentElement.remove();
  const opener = event.target.closest("[data-dialog]");
  const dialog = opener === null ? null : document.getElementById(opener.dataset.dialog);
  if (dialog !== null) {
    event.preventDefault();
    dialog.close();
    dialog.showModal();
  }
  const closer = event.target.closest("[data-close]");
  if (closer !== null) {
    event.preventDefault();
    closer.closest("dialog").close();
  }
  const copy = event.target.closest("[data-copy]");
  if (copy !== null) {
    const text = copy.parentElement.querySelector("code").textContent;
    navigator.clipboard.writeText(text).then(() => { copy.textContent = "Copied"; });
  }
});

for (const form of document.querySelectorAll("[data-preview]")) previewForm(form);
localTimes(document);
const searching = document.getElementById("find-dialog");
if (searching !== null) searchDialog(searching);
for (const form of document.querySelectorAll("[data-sparse]")) sparse(form);
for (const form of document.querySelectorAll("[data-rows]")) listRows(form);
for (const select of document.querySelectorAll("[data-autosubmit]")) autosubmit(select);
if (document.querySelector("[data-tick]") !== null) tickCosts();
// On a narrow window the sections are one row that scrolls.
for (const link of document.querySelectorAll(".top nav [aria-current], .tabs [aria-current]")) {
  const row = link.closest("nav, .tabs");
  row.scrollLeft = link.offsetLeft - row.offsetLeft - (row.clientWidth - link.offsetWidth) / 2;
}
for (const log of document.querySelectorAll(".log")) log.scrollTop = log.scrollHeight;
if (document.body.dataset.live) followEvents(document.body.dataset.live);
