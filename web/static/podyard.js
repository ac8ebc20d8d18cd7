// What makes the console's pages live. Without it every page works the same: forms post, links lead.

document.documentElement.classList.add("scripted");

/** Replaces the parts of the page that the server says have changed; logs stay where the reader has scrolled to. */
function followEvents(url) {
  const source = new EventSource(url);
  source.addEventListener("part", (event) => {
    const { id, html } = JSON.parse(event.data);
    const part = document.querySelector(`[data-part="${CSS.escape(id)}"]`);
    if (part === null) return;
    const before = part.querySelector(".log");
    const atEnd = before === null || before.scrollTop + before.clientHeight >= before.scrollHeight - 8;
    const position = before === null ? 0 : before.scrollTop;
    const open = [...part.querySelectorAll("details")].map((details) => details.open);
    const focused = part.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    part.innerHTML = html;
    part.querySelectorAll("details").forEach((details, index) => { details.open = open[index] ?? details.open; });
    if (focused !== null) part.querySelector(`[href="${CSS.escape(focused)}"]`)?.focus();
    const after = part.querySelector(".log");
    if (after !== null) after.scrollTop = atEnd ? after.scrollHeight : position;
  });
  source.addEventListener("over", () => source.close());
  window.addEventListener("pagehide", () => source.close());
}

/** Asks the server for the form as it would be with the present values, and takes over what depends on them. */
function previewForm(form) {
  let asked = 0;
  async function ask() {
    const turn = ++asked;
    const submit = form.querySelector("[data-submit]");
    submit.disabled = true;
    const values = new URLSearchParams(new FormData(form));
    try {
      const answer = await fetch(`${form.getAttribute("action")}?${values}`, { credentials: "same-origin" });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (turn !== asked) return;
      for (const part of form.querySelectorAll("[data-swap]")) {
        const fresh = page.querySelector(`[data-swap="${part.dataset.swap}"]`);
        if (fresh === null) continue;
        const active = part.contains(document.activeElement) ? document.activeElement.id : "";
        part.innerHTML = fresh.innerHTML;
        if (active !== "") document.getElementById(active)?.focus();
      }
    } catch {
      // The server is away: the form stays as it is, and posting it will say so.
    } finally {
      form.querySelector("[data-submit]").disabled = turn !== asked;
    }
  }
  form.addEventListener("change", ask);
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
for (const log of document.querySelectorAll(".log")) log.scrollTop = log.scrollHeight;
if (document.body.dataset.live) followEvents(document.body.dataset.live);
