// Draws one step of an all-reduce: how full each bar is, what each box is marked as, and which arrows are there.

const MARKS = { ".": "", n: " now", d: " done", b: " now done" };

function draw(root) {
  const bars = [...root.querySelectorAll("rect.bar")];
  const boxes = [...root.querySelectorAll("g.box")];
  const parts = [...root.querySelectorAll(".part")];
  root.addEventListener("frame", (event) => {
    const frame = event.detail.film.frames[event.detail.at];
    bars.forEach((bar, index) => bar.setAttribute("width", (bar.dataset.full * frame.bars[index]) / 100));
    boxes.forEach((box, index) => box.setAttribute("class", `box${MARKS[frame.marks[index]]}`));
    const on = new Set(frame.on);
    parts.forEach((part, index) => part.classList.toggle("on", on.has(index)));
  });
}

for (const root of document.querySelectorAll(".reduce")) draw(root);
