
// data: {tokens, mask, layers: [[{scores, weights, values, heads}, ... one per head], ... one per layer], positions}
const { tokens, mask, layers, positions } = data;
const chosen = { layer: 0, head: 0, token: tokens.length - 1 };

// ---- steps 1 to 3: one matrix each

function weightLegend(parent) {
  const ticks = add(add(parent, "div", "legend"), "div", "ticks");
  add(ticks, "div", "bar").style.background = "linear-gradient(to right, var(--weight))";
  for (const at of [0, 0.01, 0.1, 0.25, 0.5, 1]) {
    add(ticks, "span", "", at).style.left = `${100 * Math.sqrt(at)}%`;
  }
}

function labels(parent, className) {
  const side = add(parent, "div", `labels ${className}`);
  return tokens.map((text, token) => {
    const label = add(side, "span");
    add(label, "span", "token", text);
    label.addEventListener("click", () => choose({ token }));
    return label;
  });
}

function matrix(id, name, ofHead, colourOf, legendOf) {
  const box = add(byId(id), "div", "matrix");
  const across = labels(box, "across"), down = labels(box, "down");
  const cells = add(box, "div", "cells"), canvas = add(cells, "canvas"), row = add(cells, "div", "row");
  const foot = add(byId(id), "div");
  let rows = [];
  const point = (t, s) => {
    across.forEach((label, i) => label.classList.toggle("on", i === s));
    down.forEach((label, i) => label.classList.toggle("on", i === t));
  };
  onPoint(canvas, (t, s, event) => {
    showTip(event, [`query: ${tokens[t]} (${t + 1})`, `key: ${tokens[s]} (${s + 1})`, `${name}: ${short(rows[t][s])}`]);
    point(t, s);
  }, token => choose({ token }));
  canvas.addEventListener("pointerleave", () => point(chosen.token, -1));
  return head => {
    rows = ofHead(head);
    paint(canvas, rows, colourOf(head));
    row.style.top = `${100 * chosen.token / tokens.length}%`;
    row.style.height = `${100 / tokens.length}%`;
    foot.replaceChildren();
    legendOf(foot, head);
    point(chosen.token, -1);
  };
}

const masked = rows => rows.map((row, t) => row.map((x, s) => mask[t][s] ? x : -Infinity));
const all = head => largest(head.scores); // steps 1 and 2 share their colours
const matrices = [
  matrix("scores", "score", head => head.scores, head => signed(all(head)), (foot, head) => signedLegend(foot, all(head))),
  matrix("masked", "score", head => masked(head.scores), head => signed(all(head)), (foot, head) => signedLegend(foot, all(head), "−∞")),
  matrix("weights", "weight", head => head.weights, weightColour, weightLegend),
];

// ---- step 4: the weighted sum of the values

function part(parent, className, text, weight, vector, colour) {
  const line = add(parent, "div", `part ${className}`);
  add(line, "span", "token", text);
  const bar = add(line, "div", "share");
  if (weight !== null) {
    add(bar, "div").style.width = `${100 * weight}%`;
  }
  add(line, "span", "number", weight === null ? "" : weight.toFixed(3));
  const strip = add(line, "canvas", "strip");
  paint(strip, [vector], colour);
  onPoint(strip, (_, channel, event) => showTip(event, [`${text}, channel ${channel + 1}: ${short(vector[channel])}`]));
}

function paintSum(head) {
  const t = chosen.token, most = largest(head.values), colour = signed(most);
  byId("mixing").replaceChildren("For ");
  add(byId("mixing"), "b", "token", tokens[t]);
  byId("mixing").append(`, token ${t + 1}: the value of each token that it attends to, times its weight (bars), summed channel by channel.`);
  byId("output").replaceChildren();
  part(byId("output"), "sum", "output", null, head.heads[t], colour);
  byId("parts").replaceChildren();
  tokens.forEach((text, s) => mask[t][s] && part(byId("parts"), "", text, head.weights[t][s], head.values[s], colour));
  byId("values").replaceChildren();
  signedLegend(byId("values"), most);
}

// ---- the table of positions

function paintPositions() {
  const canvas = document.querySelector("#positions canvas");
  if (canvas) {
    paint(canvas, positions.rows, signed(largest(positions.rows)));
  }
}

if (positions) {
  const [everyRow, everyColumn] = positions.every, table = add(byId("positions"), "div", "table");
  add(table, "div", "side", "position →").style.transform = "none";
  const canvas = add(table, "canvas"), below = add(table, "div", "below");
  ["1", "channel →", positions.shape[1]].forEach(word => add(below, "span", "", word));
  signedLegend(byId("positions"), largest(positions.rows));
  onPoint(canvas, (row, column, event) => showTip(event, [
    `position ${1 + row * everyRow}, channel ${1 + column * everyColumn}: ${short(positions.rows[row][column])}`,
  ]));
}

// ---- choice of layer, head and token

const map = byId("map");
map.style.gridTemplateColumns = `auto repeat(${layers[0].length}, minmax(0, ${layers[0].length > 8 ? 40 : 64}px))`;
add(map, "span");
layers[0].forEach((_, head) => add(map, "span", "name", `head ${head + 1}`));
const heads = layers.flatMap((layer, l) => {
  add(map, "span", "", `layer ${l + 1}`);
  return layer.map((_, h) => {
    const button = add(map, "button");
    button.setAttribute("aria-label", `layer ${l + 1}, head ${h + 1}`);
    button.addEventListener("click", () => choose({ layer: l, head: h }));
    return { l, h, button, canvas: add(button, "canvas") };
  });
});
const tokenButtons = tokens.map((text, token) => {
  const button = add(byId("text"), "button", "token", text);
  button.addEventListener("click", () => choose({ token }));
  return button;
});

function choose(change) {
  Object.assign(chosen, change);
  const head = layers[chosen.layer][chosen.head];
  heads.forEach(({ l, h, button }) => button.setAttribute("aria-pressed", l === chosen.layer && h === chosen.head));
  tokenButtons.forEach((button, token) => button.setAttribute("aria-pressed", token === chosen.token));
  byId("which").textContent = `Layer ${chosen.layer + 1}, head ${chosen.head + 1}`;
  matrices.forEach(paintMatrix => paintMatrix(head));
  paintSum(head);
  history.replaceState(null, "", `#${chosen.layer + 1}-${chosen.head + 1}-${chosen.token + 1}`);
}

const COUNTS = { layer: layers.length, head: layers[0].length, token: tokens.length };
document.addEventListener("keydown", event => {
  const what = Object.keys(COUNTS).find(name => name[0] === event.key.toLowerCase());
  if (what && !event.ctrlKey && !event.metaKey && !event.altKey) {
    choose({ [what]: (chosen[what] + (event.shiftKey ? COUNTS[what] - 1 : 1)) % COUNTS[what] });
  }
});

function paintAll() {
  heads.forEach(({ l, h, canvas }) => paint(canvas, layers[l][h].weights, weightColour()));
  paintPositions();
  choose({});
}

const isLong = tokens.length > 40; // then two matrices stand side by side, not three
document.body.classList.toggle("long", isLong);
document.body.classList.toggle("short", tokens.every(text => text.length === 1));
const cell = (isLong ? 540 : 350) / tokens.length;
document.documentElement.style.setProperty("--label", `${Math.max(7, Math.min(13, cell))}px`);
// The address keeps the choice: page.html#2-1-5 is layer 2, head 1, token 5.
location.hash.slice(1).split("-").map(Number).forEach((number, i) => {
  const what = ["layer", "head", "token"][i];
  if (number >= 1 && number <= COUNTS[what]) {
    chosen[what] = number - 1;
  }
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paintAll);
paintAll();
