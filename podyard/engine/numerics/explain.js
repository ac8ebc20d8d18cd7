// Draws one cycle of a matrix unit: its registers, its edges and the three matrices.

/** A register's text; "." is one that holds nothing. */
const shown = (text) => (text === "." ? "" : text);

/** Sets a cell's number, pressed together if it is too long for its place. */
function write(place, text) {
  place.textContent = shown(text);
  if (shown(text).length > Number(place.dataset.fits)) {
    place.setAttribute("textLength", place.dataset.width);
    place.setAttribute("lengthAdjust", "spacingAndGlyphs");
  } else {
    place.removeAttribute("textLength");
  }
}

function draw(root) {
  const cells = [...root.querySelectorAll("g.cell")];
  const places = new Map([...root.querySelectorAll("[data-at]")].map((place) => [place.dataset.at, place]));
  const edges = ["left", "top", "bottom"].map((edge) => [...root.querySelectorAll(`g.edge.${edge}`)]);
  const titles = cells.map((cell) => cell.appendChild(document.createElementNS(cell.namespaceURI, "title")));
  let trace = null;
  let split = null;
  let at = 0;

  /** The sum that a cell added to: what came from above, or with sums that stay its own of the cycle before. */
  function before(index) {
    const source = trace.flow === "os" ? index : index - trace.cols;
    const frame = trace.frames[at - 1];
    if (frame === undefined || source < 0 || frame.fold !== trace.frames[at].fold) return "0";
    return shown(split[frame.cells[2]][source]) || "0";
  }

  function showCells(frame) {
    const [activations, weights, sums, kinds] = frame.cells.map((index) => split[index]);
    cells.forEach((cell, index) => {
      cell.setAttribute("class", `cell ${kinds[index]}`);
      write(cell.querySelector(".a"), activations[index]);
      write(cell.querySelector(".w"), weights[index]);
      write(cell.querySelector(".s"), sums[index]);
      const place = `row ${Math.floor(index / trace.cols)}, column ${index % trace.cols}`;
      titles[index].textContent = kinds[index] === "work"
        ? `${place}: ${before(index)} + ${activations[index]} × ${weights[index]} = ${sums[index]}`
        : place;
    });
    edges.forEach((lanes, edge) => {
      const labels = split[frame.edges[edge]];
      lanes.forEach((lane, index) => {
        const [name, value] = shown(labels[index]).split("=");
        lane.querySelector(".name").textContent = name;
        lane.querySelector(".value").textContent = value ?? "";
      });
    });
  }

  function showMatrices() {
    for (const [place, cell] of places) {
      cell.className = "";
      if (place.startsWith("y")) cell.textContent = "";
    }
    trace.frames.slice(0, at + 1).forEach((frame, number) => {
      for (const [row, column, text, final] of frame.out) {
        const cell = places.get(`y${row},${column}`);
        cell.textContent = text;
        cell.className = `${final ? "done" : "part"}${number === at ? " now" : ""}`;
      }
    });
    for (const place of trace.frames[at].in) places.get(place).className = "now";
  }

  root.addEventListener("frame", (event) => {
    ({ film: trace, at } = event.detail);
    split ??= trace.texts.map((text) => text.split(" "));
    showCells(trace.frames[at]);
    showMatrices();
  });
}

for (const root of document.querySelectorAll(".mxu")) draw(root);
