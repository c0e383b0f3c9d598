
// data: {prompt, is_cut, labels: {id: text}, steps: [[[beam, id, log p, sum, next beam, why it ended], ...], ...],
//        best: [number of the candidate in each step], found: [[text, sum, length, score, why it ended], ...]}
const { labels, steps, best, found } = data;
const prompt = (data.is_cut ? "…" : "") + data.prompt;
const byId = id => document.getElementById(id);
const nats = (number, digits = 3) => number.toFixed(digits).replace("-", "−");

// ---- the beams of each step: the texts that are continued, with their sums

const taken = step => step.filter(([, , , , next, reason]) => next !== null || reason);
const beams = [[{ text: "", sum: 0 }]];
steps.forEach((step, i) => {
  const texts = [];
  step.filter(([, , , , next]) => next !== null).forEach(([beam, id, , sum, next]) => {
    texts[next] = { text: beams[i][beam].text + labels[id], sum };
  });
  beams.push(texts);
});

// ---- the tree: a column for each step, its kept and ended texts by their sums

const [WIDTH, HEIGHT, TOP, GAP] = [116, 48, 34, 84];
const tree = byId("tree");
const columns = steps.map(step => taken(step).sort((a, b) => b[3] - a[3]));
const rows = Math.max(1, ...columns.map(column => column.length));
const lines = document.querySelector("#tree svg");
tree.style.width = `${WIDTH * (steps.length + 1)}px`;
tree.style.height = `${TOP + HEIGHT * rows}px`;
lines.setAttribute("width", WIDTH * (steps.length + 1));
lines.setAttribute("height", TOP + HEIGHT * rows);

function node(column, row, className, text, sum) {
  const box = add(tree, "div", `node ${className}`);
  add(box, "span", "token", text).title = text;
  add(box, "span", "", sum);
  box.style.left = `${WIDTH * column}px`;
  box.style.top = `${TOP + HEIGHT * row}px`;
  return box;
}

function line(column, from, to, className) {
  const [left, right, middle] = [WIDTH * (column - 1) + GAP, WIDTH * column, WIDTH * column - (WIDTH - GAP) / 2];
  const [start, end] = [from, to].map(row => TOP + HEIGHT * row + 20);
  const path = document.createElementNS(lines.namespaceURI, "path");
  path.setAttribute("d", `M${left},${start}C${middle},${start} ${middle},${end} ${right},${end}`);
  path.setAttribute("class", className);
  lines.append(path);
}

node(0, 0, "root on", prompt, "prompt");
const buttons = steps.map((step, i) => {
  const button = add(tree, "button", "", `step ${i + 1}`);
  button.style.left = `${WIDTH * (i + 1)}px`;
  button.addEventListener("click", () => choose(i));
  columns[i].forEach((candidate, row) => {
    const [beam, id, , sum, next, reason] = candidate;
    const from = i === 0 ? 0 : columns[i - 1].findIndex(([, , , , number]) => number === beam);
    const isDead = next !== null && i + 1 < steps.length && !taken(steps[i + 1]).some(([parent]) => parent === next);
    const state = step[best[i]] === candidate ? "on" : isDead ? "dead" : "";
    line(i + 1, from, row, state);
    node(i + 1, row, `${state} ${reason ? "ended" : ""}`, labels[id], nats(sum)).addEventListener("click", () => choose(i));
  });
  return button;
});

// ---- the candidates of the chosen step

function outcome(next, reason) {
  return next !== null ? `kept: beam ${next + 1}` : reason ? `ended: ${reason}` : "pruned";
}

function row(parent, className, token, logprob, p, sum, what) {
  const box = add(parent, "div", `candidate ${className}`);
  add(box, "span", className === "heads" ? "" : "token", token).title = token;
  add(box, "span", "number", logprob);
  add(add(box, "div", "share"), "div").style.width = `${100 * p}%`;
  add(box, "span", "number", sum);
  add(box, "span", "outcome", what);
}

let chosen = 0;
function choose(i) {
  chosen = i;
  buttons.forEach((button, step) => button.setAttribute("aria-pressed", step === i));
  byId("which").textContent = `Step ${i + 1} of ${steps.length}`;
  byId("beams").replaceChildren();
  beams[i].forEach(({ text, sum }, beam) => {
    const panel = add(byId("beams"), "article", "panel"), head = add(panel, "h3");
    const whole = prompt + text;
    add(head, "span", "token", whole.length > 40 ? `…${whole.slice(-40)}` : whole).title = whole;
    add(head, "span", "sum", `beam ${beam + 1}, sum ${nats(sum)}`);
    row(panel, "heads", "token", "log p", 0, "sum", "");
    steps[i].filter(([parent]) => parent === beam).forEach(candidate => {
      const [, id, logprob, total, next, reason] = candidate;
      const state = next === null && !reason ? "pruned" : steps[i][best[i]] === candidate ? "taken on" : "taken";
      row(panel, state, labels[id], nats(logprob), Math.exp(logprob), nats(total), outcome(next, reason));
    });
  });
}

document.addEventListener("keydown", event => {
  const change = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (change && !event.ctrlKey && !event.metaKey && !event.altKey) {
    choose(Math.min(steps.length - 1, Math.max(0, chosen + change)));
    buttons[chosen].scrollIntoView({ block: "nearest", inline: "nearest" });
    event.preventDefault();
  }
});

// ---- the texts that were found

const body = document.querySelector("#found tbody");
found.forEach(([text, sum, length, score, reason], i) => {
  const line = add(body, "tr");
  add(line, "td", "", i + 1);
  add(add(line, "td"), "span", "token", text);
  [nats(sum), length, nats(score, 4), reason].forEach(value => add(line, "td", "", value));
});
choose(0);
