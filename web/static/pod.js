// The map of a pod over the past day: it follows the slider. Without it the form's button shows the same.

const WAIT_MS = 80; // a slider that moves asks no more often

const form = document.querySelector("[data-past]");
const slider = form.elements.ago;
const parts = ["at", "pictures", "map-title", "slices"];
let timer = 0;
let asked = 0;

function address() {
  const url = new URL(location.href);
  if (slider.value === "0") url.searchParams.delete("ago");
  else url.searchParams.set("ago", slider.value);
  return url;
}

async function follow() {
  const url = address();
  const number = ++asked;
  const answer = await fetch(url);
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  if (!answer.ok || number !== asked) return;
  for (const id of parts) {
    const fresh = page.getElementById(id);
    if (fresh !== null) document.getElementById(id).replaceChildren(...fresh.childNodes);
  }
  history.replaceState(null, "", url);
}

slider.addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(follow, WAIT_MS);
});
form.querySelector("button").remove();
