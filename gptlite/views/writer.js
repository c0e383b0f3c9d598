
// data: the shape of the model, its tensors as base64, its tokenizer, and how texts begin and end; see
// interop/page_weights.py. A token is a number, and its bytes are a text with one character, U+0000 to U+00FF, for each.

// ---- the weights

function decodeBase64(text) {
  const characters = atob(text), bytes = new Uint8Array(characters.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = characters.charCodeAt(i);
  return bytes.buffer;
}

function fromHalf(bits) {
  const exponent = (bits >> 10) & 31, fraction = bits & 1023;
  const size = exponent === 0 ? fraction * 2 ** -24 : (1024 + fraction) * 2 ** (exponent - 25);
  return bits >> 15 ? -size : size;
}

function decodeTensor({ shape, type, data, scales }) {
  const buffer = decodeBase64(data);
  if (type === "f32") return new Float32Array(buffer);
  if (type === "f16") return Float32Array.from(new Uint16Array(buffer), fromHalf);
  const whole = new Int8Array(buffer), scale = new Float32Array(decodeBase64(scales)), width = shape[1];
  return Float32Array.from(whole, (number, i) => number * scale[Math.floor(i / width)]);
}

// ---- the model: y = W x + b, LayerNorm, attention and feed-forward, one token at a time

// W (rows, x.length) holds the row of each output one after another.
function linear(W, x, rows, bias) {
  const y = new Float32Array(rows), width = x.length;
  for (let row = 0, at = 0; row < rows; row++) {
    let a = 0, b = 0, c = 0, d = 0, i = 0;
    for (; i + 3 < width; i += 4, at += 4) {
      a += W[at] * x[i];
      b += W[at + 1] * x[i + 1];
      c += W[at + 2] * x[i + 2];
      d += W[at + 3] * x[i + 3];
    }
    for (; i < width; i++, at++) a += W[at] * x[i];
    y[row] = a + b + c + d + (bias ? bias[row] : 0);
  }
  return y;
}

function layerNorm(x, weight, bias) {
  let mean = 0, variance = 0;
  for (const number of x) mean += number / x.length;
  for (const number of x) variance += (number - mean) ** 2 / x.length;
  const scale = 1 / Math.sqrt(variance + 1e-5);
  return x.map((number, i) => (number - mean) * scale * weight[i] + bias[i]);
}

const ACTIVATIONS = {
  relu: x => Math.max(x, 0),
  gelu: x => x / 2 * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3))),
};

class Model {
  constructor({ n_layer, n_head, n_embd, block_size, activation, scale, tensors }) {
    Object.assign(this, { n_layer, n_head, n_embd, block_size, scale, activate: ACTIVATIONS[activation] });
    this.weights = Object.fromEntries(tensors.map(tensor => [tensor.name, decodeTensor(tensor)]));
    this.head = this.weights["lm_head.weight"] ?? this.weights["wte.weight"];
    const cache = () => Array.from({ length: n_layer }, () => new Float32Array(block_size * n_embd));
    Object.assign(this, { keys: cache(), values: cache(), window: [] });
  }

  // Read the last tokens that fit the context, in place of what was read before. Returns the last one's logits.
  begin(tokens) {
    this.window = [];
    const read = tokens.slice(-this.block_size);
    read.slice(0, -1).forEach(token => this.hidden(token));
    return this.read(read.at(-1));
  }

  // Read one more token and return the logits of the next. A full context continues from its last half.
  read(token) {
    if (this.window.length === this.block_size) {
      const keep = Math.max(1, Math.floor(this.block_size / 2)) - 1;
      const last = keep ? this.window.slice(-keep) : [];
      this.window = [];
      last.forEach(each => this.hidden(each));
    }
    const x = this.hidden(token);
    return linear(this.head, layerNorm(x, this.weights["ln_f.weight"], this.weights["ln_f.bias"]), this.head.length / this.n_embd);
  }

  // Add a token to the window and return its state after the last block.
  hidden(token) {
    const { weights, n_embd: C } = this, position = this.window.length;
    this.window.push(token);
    const x = weights["wte.weight"].slice(token * C, (token + 1) * C);
    const add = y => { for (let i = 0; i < C; i++) x[i] += y[i]; };
    add(weights["wpe.weight"].subarray(position * C, (position + 1) * C));
    for (let layer = 0; layer < this.n_layer; layer++) {
      const of = name => weights[`h.${layer}.${name}`];
      const apply = (name, y, rows) => linear(of(`${name}.weight`), y, rows, of(`${name}.bias`));
      const norm = name => layerNorm(x, of(`${name}.weight`), of(`${name}.bias`));
      const heads = this.attend(layer, position, apply("attn.c_attn", norm("ln_1"), 3 * C));
      add(apply("attn.c_proj", heads, C));
      add(apply("mlp.c_proj", apply("mlp.c_fc", norm("ln_2"), 4 * C).map(this.activate), C));
    }
    return x;
  }

  // softmax(q K^T * scale) V of each head, over all positions so far.
  attend(layer, position, qkv) {
    const { n_embd: C, n_head } = this, size = C / n_head, K = this.keys[layer], V = this.values[layer];
    K.set(qkv.subarray(C, 2 * C), position * C);
    V.set(qkv.subarray(2 * C), position * C);
    const heads = new Float32Array(C), weights = new Float32Array(position + 1);
    for (let first = 0; first < C; first += size) {
      let largest = -Infinity, total = 0;
      for (let s = 0; s <= position; s++) {
        let score = 0;
        for (let i = first; i < first + size; i++) score += qkv[i] * K[s * C + i];
        weights[s] = score * this.scale;
        largest = Math.max(largest, weights[s]);
      }
      for (let s = 0; s <= position; s++) total += weights[s] = Math.exp(weights[s] - largest);
      for (let s = 0; s <= position; s++) {
        const weight = weights[s] / total;
        for (let i = first; i < first + size; i++) heads[i] += weight * V[s * C + i];
      }
    }
    return heads;
  }
}

// ---- the tokenizer

class Tokenizer {
  constructor({ tokens, pattern }) {
    this.tokens = tokens;
    this.idOf = new Map(tokens.map((token, id) => [token, id]));
    this.pattern = pattern && new RegExp(pattern, "gu");
  }

  // The ids of a text, and the characters that have none.
  encode(text) {
    const ids = [], unknown = new Set();
    for (const piece of this.pattern ? text.match(this.pattern) ?? [] : text) {
      const parts = this.pattern ? this.merge(toBytes(piece)) : [toBytes(piece)];
      for (const part of parts) {
        if (this.idOf.has(part)) ids.push(this.idOf.get(part));
        else unknown.add(piece);
      }
    }
    return { ids, unknown: [...unknown] };
  }

  // Merge neighbours into a known token, that of the lowest id first, until there are none.
  merge(bytes) {
    const parts = [...bytes];
    const rank = i => this.idOf.get(parts[i] + parts[i + 1]) ?? Infinity;
    const ranks = parts.slice(1).map((_, i) => rank(i));
    while (ranks.length) {
      let best = 0;
      for (let i = 1; i < ranks.length; i++) if (ranks[i] < ranks[best]) best = i;
      if (ranks[best] === Infinity) break;
      parts.splice(best, 2, parts[best] + parts[best + 1]);
      ranks.splice(best, 1);
      if (best < ranks.length) ranks[best] = rank(best);
      if (best > 0) ranks[best - 1] = rank(best - 1);
    }
    return parts;
  }

  // The text of ids. last: whether no more follow, so that the beginning of a character is shown as one that is broken.
  decode(ids, last) {
    const bytes = Uint8Array.from(ids.map(id => this.tokens[id]).join(""), character => character.charCodeAt(0));
    return new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes, { stream: !last });
  }
}

const toBytes = text => String.fromCharCode(...new TextEncoder().encode(text));

// ---- the next token

// The n-th number in [0, 1) of a seed: a hash of both (the finalizer of MurmurHash3), so that no state is kept.
function uniform(seed, n) {
  let x = Math.imul(seed, 0x9e3779b1) ^ Math.imul(n + 1, 0x85ebca77);
  for (const factor of [0x85ebca6b, 0xc2b2ae35]) x = Math.imul(x ^ (x >>> 16), factor);
  return ((x ^ (x >>> 16)) >>> 0) / 2 ** 32;
}

function choose(logits, { temperature, top_p }, number) {
  const likelier = (best, id) => logits[id] > logits[best] ? id : best;
  const likeliest = logits.reduce((best, _, id) => likelier(best, id), 0);
  if (temperature === 0) return likeliest;
  const weights = Array.from(logits, logit => Math.exp((logit - logits[likeliest]) / temperature));
  let ids = weights.map((_, id) => id), total = weights.reduce((sum, weight) => sum + weight);
  if (top_p < 1) {
    ids.sort((a, b) => weights[b] - weights[a] || a - b);
    let reached = 0, n = 0;
    while (n < ids.length && reached < top_p * total) reached += weights[ids[n++]];
    ids = ids.slice(0, n);
    total = reached;
  }
  let left = number * total;
  return ids.find(id => (left -= weights[id]) < 0) ?? likeliest;
}

// ---- a text, token by token

// Yields the text so far and its tokens; it ends at end-of-text, before the text `until`, or after `length` tokens.
function* write(prompt, settings) {
  const { ids, unknown } = tokenizer.encode(prompt);
  if (unknown.length) throw new Error(`The model has never seen ${unknown.slice(0, 5).join(" ")}: take it out of the beginning.`);
  let logits = model.begin(ids.length ? ids : [data.start]);
  const written = [];
  for (let n = 0; n < settings.length; n++) {
    for (const id of data.suppressed) logits[id] = -Infinity;
    const token = choose(logits, settings, uniform(settings.seed, n));
    if (token === data.end) break;
    written.push(token);
    const text = tokenizer.decode(written, false), stop = settings.until ? text.indexOf(settings.until) : -1;
    if (stop >= 0) {
      yield [text.slice(0, stop), written.length];
      return;
    }
    yield [text, written.length];
    if (n + 1 < settings.length) logits = model.read(token);
  }
  yield [tokenizer.decode(written, true), written.length];
}

const tokenizer = new Tokenizer(data.tokenizer);
const model = new Model(data);

// ---- what the buttons do

const byId = id => document.getElementById(id);
const controls = { write: byId("write"), stop: byId("stop") };
const SLICE = 30; // milliseconds of writing before the page is drawn again
let running = false;

function readSettings() {
  const inputs = [...document.querySelectorAll(".settings input")];
  const wrong = inputs.find(input => !input.checkValidity() || (input.type === "number" && input.value === ""));
  if (wrong) throw new Error(`${wrong.parentNode.firstChild.textContent.trim()}: ${wrong.validationMessage || "a number is missing."}`);
  const settings = Object.fromEntries(inputs.map(input => [input.id, input.type === "number" ? Number(input.value) : input.value]));
  return { ...settings, until: settings.until.replaceAll("\\n", "\n") };
}

function show(words, isProblem = false) {
  byId("state").textContent = words;
  byId("state").classList.toggle("problem", isProblem);
}

async function run() {
  running = true;
  controls.write.disabled = true;
  controls.stop.disabled = false;
  try {
    const prompt = data.normalize === "nfc" ? byId("prompt").value.normalize("NFC") : byId("prompt").value;
    const settings = readSettings(), texts = write(prompt, settings);
    byId("given").textContent = prompt;
    byId("written").textContent = "";
    const start = performance.now();
    for (let isOver = false; running && !isOver;) {
      const slice = performance.now();
      let text = "", n = 0;
      while (!isOver && performance.now() - slice < SLICE) {
        const { value, done } = texts.next();
        if (!done) [text, n] = value;
        isOver = done;
      }
      if (n) {
        byId("written").textContent = text;
        show(`${n} tokens, ${Math.round(1000 * n / (performance.now() - start)).toLocaleString("en")} a second`);
      }
      await new Promise(resolve => setTimeout(resolve));
    }
    byId("seed").value = (settings.seed + 1) % 2 ** 32;
  } catch (error) {
    show(error.message, true);
  }
  running = false;
  controls.write.disabled = false;
  controls.stop.disabled = true;
}

byId("prompt").value = data.prompt;
controls.write.addEventListener("click", run);
controls.stop.addEventListener("click", () => { running = false; });
byId("prompt").addEventListener("keydown", event => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !running) run();
});
