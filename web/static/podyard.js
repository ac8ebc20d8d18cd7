// What makes the console's pages live. Without it every page works the same: forms post, links lead.

document.documentElement.classList.add("scripted");

const FOCUSABLE = "a, button, summary, select, input, [tabindex]";

/** Sets a part's HTML and leaves the reader where they were: what is open, scrolled and focused stays so. */
function replacePart(part, html) {
  const focused = [...part.querySelectorAll(FOCUSABLE)].indexOf(document.activeElement);
  const open = [...part.querySelectorAll("details")].map((details) => details.open);
  const scrolled = [...part.querySelectorAll(".scroll, .log, .picture")].map((box) => ({
    left: box.scrollLeft,
    top: box.scrollTop,
    atEnd: box.matches(".log") && box.scrollTop + box.clientHeight >= box.scrollHeight - 8,
  }));
  part.innerHTML = html;
  part.querySelectorAll("details").forEach((details, index) => { details.open = open[index] ?? details.open; });
  part.querySelectorAll(".scroll, .log, .picture").forEach((box, index) => {
    const before = scrolled[index] ?? { left: 0, top: 0, atEnd: box.matches(".log") };
    box.scrollLeft = before.left;
    box.scrollTop = before.atEnd ? box.scrollHeight : before.top;
  });
  if (focused >= 0) part.querySelectorAll(FOCUSABLE)[focused]?.focus({ preventScroll: true });
}

/** Replaces the parts of the page that the server says have changed. */
function followEvents(url) {
  const source = new EventSource(url);
  const waiting = new Map();
  let pressed = false; // what is replaced between pressing and releasing would never be clicked
  function apply() {
    if (pressed) return;
    for (const [id, html] of waiting) {
      const part = document.querySelector(`[data-part="${CSS.escape(id)}"]`);
      if (part !== null) replacePart(part, html);
    }
    waiting.clear();
  }
  function release() {
    pressed = false;
    setTimeout(apply, 0);
  }
  document.addEventListener("pointerdown", () => { pressed = true; });
  document.addEventListener("pointerup", release);
  document.addEventListener("pointercancel", release);
  source.addEventListener("part", (event) => {
    const { id, html } = JSON.parse(event.data);
    waiting.set(id, html);
    apply();
  });
  source.addEventListener("over", () => source.close());
  window.addEventListener("pagehide", () => source.close());
}

/** Asks the server for the form as it would be with the present values, and takes over what depends on them. */
function previewForm(form) {
  let asked = 0;

  /** What was typed while the server answered wins over what the server was told. */
  function swapFields(part, html) {
    const typed = new Map([...part.querySelectorAll("input")].map((input) => [input.id, input.value]));
    const active = part.contains(document.activeElement) ? document.activeElement : null;
    const caret = active?.matches("input") ? active.selectionStart : null;
    part.innerHTML = html;
    for (const input of part.querySelectorAll("input")) input.value = typed.get(input.id) ?? input.value;
    const again = active === null ? null : document.getElementById(active.id);
    again?.focus();
    if (caret !== null) again?.setSelectionRange(caret, caret);
  }

  form.addEventListener("change", async (event) => {
    const turn = ++asked;
    const choice = event.target.matches("select"); // only choices decide which fields there are
    form.querySelector("[data-submit]").disabled = true;
    try {
      const values = new URLSearchParams(new FormData(form));
      const answer = await fetch(`${form.getAttribute("action")}?${values}`, { credentials: "same-origin" });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (turn !== asked) return;
      for (const part of form.querySelectorAll("[data-swap]")) {
        const fresh = page.querySelector(`[data-swap="${part.dataset.swap}"]`);
        if (fresh === null) continue;
        if (part.dataset.swap !== "fields") replacePart(part, fresh.innerHTML);
        else if (choice) swapFields(part, fresh.innerHTML);
      }
    } catch {
      // The server is away: the form stays as it is, and posting it will say so.
    } finally {
      if (turn === asked) form.querySelector("[data-submit]").disabled = false;
    }
  });
}

/** Costs of what is in use grow as the platform's clock runs: the server said how fast. */
function tickCosts() {
  const since = performance.now();
  setInterval(() => {
    for (const cell of document.querySelectorAll("[data-tick]")) {
      const speed = Number(cell.closest("[data-speed]")?.dataset.speed ?? 1);
      const seconds = ((performance.now() - since) / 1000) * speed;
      cell.textContent = `$${(Number(cell.dataset.tick) + Number(cell.dataset.rate) * seconds).toFixed(6)}`;
    }
  }, 1000);
}

document.addEventListener("click", (event) => {
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

document.addEventListener("change", (event) => {
  if (event.target.matches("[data-autosubmit]")) event.target.form.requestSubmit();
});

for (const form of document.querySelectorAll("[data-preview]")) previewForm(form);
if (document.querySelector("[data-tick]") !== null) tickCosts();
for (const log of document.querySelectorAll(".log")) log.scrollTop = log.scrollHeight;
if (document.body.dataset.live) followEvents(document.body.dataset.live);
