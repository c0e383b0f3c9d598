
// data: {tokens: [[text, id, bits, rank, [[id, probability], ...]], ...], labels: {id: text}, context, peaks, end}
const { tokens, labels, context, peaks, end } = data;
const EDGES = [0.5, 1, 2, 3, 4, 6, 8, 11]; // bits at which the colour changes
const SURPRISE = 8;
const text = document.getElementById("text");
const level = bits => `b${EDGES.filter(edge => bits >= edge).length}`;
const percent = p => p >= 0.0995 ? `${(100 * p).toFixed(0)} %` : p >= 0.0001 ? `${(100 * p).toPrecision(2)} %` : p.toExponential(1);

// ---- the text: a newline stays one, with a faint sign that is not copied

function addToken(shown, id, className) {
  const span = add(text, "span", className);
  if (id === end) {
    add(span, "i", "end");
    span.append("\n");
  }
  shown.split(/(\n)/).forEach(piece => {
    if (piece === "\n") {
      add(span, "i", "newline");
    }
    span.append(piece);
  });
  return span;
}

const legend = document.getElementById("legend");
[0, ...EDGES].forEach((from, i) => {
  const range = i === EDGES.length ? `${from} +` : `${from}–${EDGES[i]}`;
  add(legend, "span", `swatch ${level(from)}`, range);
});
if (context) {
  addToken(context.text, context.id, "unscored").title = "the first token: there is nothing to predict it from";
}
const spans = tokens.map(([shown, id, bits], i) => {
  const span = addToken(shown, id, level(bits));
  span.id = `t${i + 1}`;
  span.dataset.i = i;
  span.tabIndex = -1;
  return span;
});

// ---- the selected token

let selected = 0;
function select(i) {
  const [, id, bits, rank, guesses] = tokens[i];
  spans[selected].classList.remove("now");
  spans[selected].tabIndex = -1;
  selected = i;
  spans[i].classList.add("now");
  spans[i].tabIndex = 0; // the whole text is one stop of the Tab key; arrow keys move inside it
  document.getElementById("token").textContent = labels[id];
  const facts = document.getElementById("facts");
  facts.replaceChildren();
  const rows = { surprise: `${bits.toFixed(2)} bits`, probability: percent(2 ** -bits), rank, id, place: `${i + 1} of ${tokens.length}` };
  Object.entries(rows).forEach(([name, value]) => {
    const row = add(facts, "tr");
    add(row, "td", "", name);
    add(row, "td", "", value);
  });
  const expected = document.getElementById("expected");
  expected.replaceChildren();
  const actual = guesses.some(([guess]) => guess === id) ? [] : [[id, 2 ** -bits]];
  [...guesses, ...actual].forEach(([guess, p]) => {
    const line = add(expected, "div", guess === id ? "guess came" : "guess");
    add(line, "div", "bar").style.width = `${100 * p}%`;
    add(line, "span", "token", labels[guess]);
    add(line, "span", "", percent(p));
  });
}

const tokenOf = event => event.target.closest("[data-i]");
for (const kind of ["pointerover", "focusin"]) {
  text.addEventListener(kind, event => tokenOf(event) && select(Number(tokenOf(event).dataset.i)));
}
const go = i => spans[i]?.focus();
document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey) {
    return;
  }
  if (event.key === "ArrowRight" || event.key === "ArrowLeft") {
    go(selected + (event.key === "ArrowRight" ? 1 : -1));
    event.preventDefault();
  } else if (event.key === "n") {
    go(tokens.findIndex(([, , bits], i) => i > selected && bits >= SURPRISE));
  }
});

// ---- the most surprising tokens, each a link to its place

peaks.forEach(i => {
  const link = add(document.getElementById("peaks"), "a");
  link.href = `#t${i + 1}`;
  add(link, "span", "token before", tokens.slice(Math.max(0, i - 4), i).map(([, id]) => labels[id]).join(""));
  add(link, "b", "token", labels[tokens[i][1]]);
  add(link, "span", "bits", `${tokens[i][2].toFixed(1)} bits`);
});
const follow = () => document.getElementById(location.hash.slice(1))?.focus();
addEventListener("hashchange", follow);
select(peaks[0] ?? 0);
follow();
