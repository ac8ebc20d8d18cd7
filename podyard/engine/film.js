// Turns a figure of one frame into a film of all: first, back, play, forward, last, a slider, the arrow keys. What else
// a frame shows is drawn by who listens to the event "frame" of the figure, whose detail is {film, at}.

const MILLISECONDS_PER_FRAME = 700;

function run(root) {
  const film = JSON.parse(root.dataset.film);
  const last = film.frames.length - 1;
  const slider = root.querySelector("input[type=range]");
  const buttons = new Map([...root.querySelectorAll("[data-go]")].map((button) => [button.dataset.go, button]));
  let at = last;
  let timer = null;

  function show(number) {
    at = Math.min(last, Math.max(0, number));
    root.querySelector(".film-now").textContent = film.frames[at].now;
    root.querySelector(".film-said").textContent = film.frames[at].said;
    slider.value = at;
    buttons.get("first").disabled = buttons.get("back").disabled = at === 0;
    buttons.get("last").disabled = buttons.get("on").disabled = at === last;
    root.dispatchEvent(new CustomEvent("frame", { detail: { film, at } }));
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
    }, MILLISECONDS_PER_FRAME);
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
  root.querySelector(".film-controls").hidden = false;
  root.querySelector(".film-links")?.remove();
  show(Number(root.dataset.at ?? 0));
}

for (const root of document.querySelectorAll(".film[data-film]")) run(root);
