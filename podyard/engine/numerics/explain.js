// Turns a figure of one cycle into a film of all: first, back, play, forward, last, a slider, the arrow keys.

const MILLISECONDS_PER_CYCLE = 700;

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

function film(root) {
  const trace = JSON.parse(root.dataset.trace);
  const last = trace.frames.length - 1;
  const split = trace.texts.map((text) => text.split(" "));
  const cells = [...root.querySelectorAll("g.cell")];
  const slider = root.querySelector("input[type=range]");
  const buttons = new Map([...root.querySelectorAll("[data-go]")].map((button) => [button.dataset.go, button]));
  const places = new Map([...root.querySelectorAll("[data-at]")].map((place) => [place.dataset.at, place]));
  const edges = ["left", "top", "bottom"].map((edge) => [...root.querySelectorAll(`g.edge.${edge}`)]);
  const titles = cells.map((cell) => cell.appendChild(document.createElementNS(cell.namespaceURI, "title")));
  let at = last;
  let timer = null;

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

  function show(number) {
    at = Math.min(last, Math.max(0, number));
    const frame = trace.frames[at];
    root.querySelector(".mxu-now").textContent = frame.now;
    root.querySelector(".mxu-said").textContent = frame.said;
    slider.value = at;
    buttons.get("first").disabled = buttons.get("back").disabled = at === 0;
    buttons.get("last").disabled = buttons.get("on").disabled = at === last;
    showCells(frame);
    showMatrices();
  }

  function stop() {
    clearInterval(timer);
    timer = null;
    buttons.get("play").textContent = "Play";
  }

  function play() {
    if (at === last) show(0);
    buttons.get("play").textContent = "Stop";
    timer = setInterval(() => {
      show(at + 1);
      if (at === last) stop();
    }, MILLISECONDS_PER_CYCLE);
  }

  const go = {
    first: () => show(0),
    back: () => show(at - 1),
    on: () => show(at + 1),
    last: () => show(last),
  };

  function act(name) {
    const playing = timer !== null;
    stop();
    if (name !== "play") go[name]();
    else if (!playing) play();
  }

  for (const [name, button] of buttons) button.addEventListener("click", () => act(name));
  slider.addEventListener("input", () => {
    stop();
    show(Number(slider.value));
  });
  document.addEventListener("keydown", (event) => {
    if (event.target.closest?.("input, select, textarea") || event.altKey || event.ctrlKey || event.metaKey) return;
    const name = { ArrowLeft: "back", ArrowRight: "on", Home: "first", End: "last" }[event.key];
    if (name === undefined) return;
    event.preventDefault();
    act(name);
  });
  root.querySelector(".mxu-controls").hidden = false;
  show(0);
}

for (const root of document.querySelectorAll(".mxu")) film(root);
