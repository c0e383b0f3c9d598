
// Vectors and matrices as colours, with the number under the pointer.
const byId = id => document.getElementById(id);
const tip = byId("tip");

// ---- colours: the style sheet has the stops; numbers in between are interpolated

function ramp(name) {
  const stops = getComputedStyle(document.documentElement).getPropertyValue(name).split(",")
    .map(hex => [1, 3, 5].map(at => parseInt(hex.trim().slice(at, at + 2), 16)));
  return share => {
    const place = Math.min(Math.max(share, 0), 1) * (stops.length - 1);
    const low = Math.min(Math.floor(place), stops.length - 2);
    return [...stops[low].map((from, i) => from + (place - low) * (stops[low + 1][i] - from)), 255];
  };
}
const TRANSPARENT = [0, 0, 0, 0]; // shows the hatching behind the picture

// From -most (orange) over 0 to most (blue).
function signed(most) {
  const colour = ramp("--signed");
  return number => number === -Infinity ? TRANSPARENT : colour(0.5 + number / (2 * most || 1));
}

// By the square root, so that small weights differ visibly from 0.
function weightColour() {
  const colour = ramp("--weight");
  return number => colour(Math.sqrt(number));
}

function paint(canvas, rows, colour) {
  [canvas.width, canvas.height] = [rows[0].length, rows.length];
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  image.data.set(rows.flatMap(row => row.flatMap(colour)));
  context.putImageData(image, 0, 0);
}

const largest = rows => rows.flat().reduce((most, x) => Math.max(most, Number.isFinite(x) ? Math.abs(x) : 0), 0);
const short = number => number === -Infinity ? "−∞" : Number(number.toPrecision(3)).toString().replace("-", "−");

// ---- tooltips

function showTip(event, lines) {
  tip.replaceChildren();
  lines.forEach(line => add(tip, "div", "", line));
  tip.hidden = false;
  tip.style.left = `${Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)}px`;
  tip.style.top = `${Math.min(event.clientY + 16, innerHeight - tip.offsetHeight - 8)}px`;
}

// Calls `show(row, column, event)` for the cell under the pointer.
function onPoint(canvas, show, click = () => {}) {
  const cell = event => {
    const box = canvas.getBoundingClientRect();
    const place = (at, length, n) => Math.min(n - 1, Math.max(0, Math.floor(at / length * n)));
    return [place(event.clientY - box.top, box.height, canvas.height), place(event.clientX - box.left, box.width, canvas.width)];
  };
  canvas.addEventListener("pointermove", event => show(...cell(event), event));
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  canvas.addEventListener("click", event => click(...cell(event)));
}

// ---- legends

function legend(parent, colours, words, hatch = "") {
  const line = add(parent, "div", "legend");
  add(line, "span", "", words[0]);
  add(line, "div", "bar").style.background = `linear-gradient(to right, var(${colours}))`;
  add(line, "span", "", words[1]);
  if (hatch) {
    add(line, "div", "hatch");
    add(line, "span", "", hatch);
  }
}

const signedLegend = (parent, most, hatch) => legend(parent, "--signed", [short(-most), short(most)], hatch);
