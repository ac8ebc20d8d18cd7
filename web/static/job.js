// The log of a job's page: lines are appended as the job writes them, and followed to the end.

const LINES_KEPT = 2000; // in the page; the download has all
const END_PIXELS = 8; // this close to the end is at the end

const log = document.querySelector("[data-log]");
const follow = document.querySelector("[data-follow]");

function toEnd() {
  log.scrollTop = log.scrollHeight;
}

if (log !== null) {
  document.addEventListener("live", ({ detail: { name, news } }) => {
    if (name !== "log") return;
    log.insertAdjacentHTML("beforeend", news.html);
    while (log.childElementCount > LINES_KEPT) log.firstElementChild.remove();
    if (follow?.checked) toEnd();
  });
  // Who scrolls back reads; who scrolls to the end follows again.
  log.addEventListener("scroll", () => {
    if (follow !== null) follow.checked = log.scrollTop + log.clientHeight >= log.scrollHeight - END_PIXELS;
  });
  follow?.addEventListener("change", () => { if (follow.checked) toEnd(); });
}
