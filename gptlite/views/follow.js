
// data: {tokens, embedding, position, stream, layers: [[step, ... in their order], ...], final, candidates}
const { tokens, layers } = data;
const chosen = { layer: 0, head: 0 };
const nHead = layers[0].find(step => step.kind === "projections").query.length;
const length = vector => Math.sqrt(vector.reduce((sum, x) => sum + x * x, 0));

// ---- vectors and rows

function strip(parent, name, vector, { most = largest([vector]), note = "", className = "" } = {}) {
  const line = add(parent, "div", `vector ${className}`);
  add(line, "span", "", name);
  const canvas = add(line, "canvas", "strip");
  paint(canvas, [vector], signed(most));
  onPoint(canvas, (_, i, event) => showTip(event, [`${name}, number ${i + 1} of ${vector.length}: ${short(vector[i])}`]));
  add(line, "span", "number", note);
}

function row(parent, name, number, share, last, { isToken = false, className = "" } = {}) {
  const line = add(parent, "div", "row");
  add(line, "span", isToken ? "token" : "", name);
  add(line, "span", "number", number);
  add(add(line, "div", "share"), "div", className).style.width = `${100 * share}%`;
  add(line, "span", "number", last);
}

const sized = vector => `length ${short(length(vector))}`;

// Vectors that are compared share their colours.
function strips(parent, named) {
  const shown = Object.entries(named).filter(([, vector]) => vector);
  const most = largest(shown.map(([, vector]) => vector));
  shown.forEach(([name, vector], i) => {
    strip(parent, name, vector, { most, note: sized(vector), className: i === shown.length - 1 ? "result" : "" });
  });
  signedLegend(parent, most);
}

// ---- steps, by their kind

const percent = p => p >= 0.0001 ? `${(100 * p).toPrecision(3)} %` : p.toExponential(1);
const RENDER = {
  norm(parent, step) {
    const figures = add(parent, "div", "figures");
    for (const name of ["mean", "deviation"]) {
      const figure = add(figures, "span", name, `${name} `);
      add(figure, "b", "", short(step[name]));
    }
    strip(parent, "before", step.before, { note: sized(step.before) });
    strip(parent, "after", step.after, { note: sized(step.after), className: "result" });
  },
  projections(parent, step) {
    const { head } = chosen;
    for (const name of ["query", "key", "value"]) {
      strip(parent, name, step[name][head], { note: sized(step[name][head]) });
    }
  },
  scores(parent, step) {
    const { head } = chosen, rows = add(parent, "div", "rows");
    row(rows, "token", "score", 0, "weight");
    tokens.forEach((text, s) => {
      row(rows, text, short(step.scores[head][s]), step.weights[head][s], step.weights[head][s].toFixed(3), { isToken: true });
    });
  },
  mixed(parent, step) {
    strip(parent, `head ${chosen.head + 1}`, step.heads[chosen.head], { note: sized(step.heads[chosen.head]) });
    strips(parent, { "all heads": step.heads.flat(), "times Wᴼ": step.output });
  },
  residual(parent, step) {
    strips(parent, { "x before": step.before, [step.what]: step.added, "x after": step.after });
  },
  "feed-forward"(parent, step) {
    strip(parent, "hidden", step.hidden, { note: sized(step.hidden) });
    strip(parent, "output", step.output, { note: sized(step.output), className: "result" });
  },
};

function render(parent, step) {
  add(parent, "h2", "", step.name);
  add(parent, "p", "", step.about);
  RENDER[step.kind](parent, step);
}

// ---- what does not depend on the choice

tokens.forEach(text => add(byId("text"), "span", "token", text));

function paintEnds() {
  document.querySelectorAll(".painted").forEach(old => old.remove());
  strips(add(byId("embedding"), "div", "painted"), {
    "token embedding": data.embedding, position: data.position, x: data.stream,
  });
  if (data.final) {
    render(add(byId("final"), "div", "painted"), data.final);
  }
}

const lengths = [["embedding", length(data.stream), ""]];
layers.forEach((steps, l) => steps.filter(step => step.kind === "residual").forEach(({ what, lengths: [, added, after] }) => {
  lengths.push([`layer ${l + 1}, ${what}`, added, "added"], ["x", after, ""]);
}));
const longest = Math.max(...lengths.map(([, size]) => size));
lengths.forEach(([name, size, className]) => {
  row(byId("lengths"), name, short(size), size / (longest || 1), "", { className });
});
row(byId("candidates"), "token", "logit", 0, "probability");
data.candidates.forEach(([text, logit, p]) => row(byId("candidates"), text, short(logit), p, percent(p), { isToken: true }));

// ---- choice of layer and head

const COUNTS = { layer: layers.length, head: nHead };
const buttons = Object.fromEntries(Object.entries(COUNTS).map(([what, n]) => [what, Array.from({ length: n }, (_, i) => {
  const button = add(byId(`${what}s`), "button", "", `${what} ${i + 1}`);
  button.addEventListener("click", () => choose({ [what]: i }));
  return button;
})]));

function choose(change) {
  Object.assign(chosen, change);
  Object.entries(buttons).forEach(([what, of]) => of.forEach((button, i) => {
    button.setAttribute("aria-pressed", i === chosen[what]);
  }));
  byId("which").textContent = `Layer ${chosen.layer + 1}, head ${chosen.head + 1}`;
  byId("steps").replaceChildren();
  layers[chosen.layer].forEach(step => {
    const article = add(byId("steps"), "article", "panel");
    article.dataset.kind = step.kind;
    render(article, step);
  });
}

document.addEventListener("keydown", event => {
  const what = Object.keys(COUNTS).find(name => name[0] === event.key.toLowerCase());
  if (what && !event.ctrlKey && !event.metaKey && !event.altKey) {
    choose({ [what]: (chosen[what] + (event.shiftKey ? COUNTS[what] - 1 : 1)) % COUNTS[what] });
  }
});

function paintAll() {
  paintEnds();
  choose({});
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paintAll);
paintAll();
