"""What llama.cpp makes of a GGUF file: a process of its own, since its threads may outlive a test.

Reads one JSON object from standard input: path, n_ctx, texts to tokenize, prompts (ids), n_predict. Writes one line of
JSON: the ids of all texts, one after another, and for each prompt the log-probability of every id as the next one (none
where the likeliest is end-of-text or a part of a character), and the greedy ids that follow.
"""

from __future__ import annotations

import json
import os
import sys

import requests
import xllamacpp

job = json.load(sys.stdin)
params = xllamacpp.CommonParams()
params.model.path = job["path"]
params.n_ctx, params.n_parallel, params.n_gpu_layers, params.port, params.warmup = job["n_ctx"], 1, 0, 0, False
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
server = xllamacpp.Server(params)


def ask(path: str, **fields: object) -> dict:
    answer = requests.post(server.listening_address + path, json=fields, timeout=30)
    answer.raise_for_status()
    return answer.json()


ids = []
for first in range(0, len(job["texts"]), 500):
    ids += ask("/tokenize", content=job["texts"][first : first + 500], add_special=False, parse_special=False)["tokens"]
logprobs, greedy = [], []
for prompt in job["prompts"]:
    given = {"prompt": prompt, "temperature": 0, "cache_prompt": False, "return_tokens": True}
    first = ask("/completion", **given, n_predict=1, n_probs=job["n_ids"])
    found = first.get("completion_probabilities") or [{"top_logprobs": []}]
    logprobs.append({each["id"]: each["logprob"] for each in found[0]["top_logprobs"]})
    greedy.append(ask("/completion", **given, n_predict=job["n_predict"])["tokens"])
print("RESULT " + json.dumps({"ids": ids, "logprobs": logprobs, "greedy": greedy}), flush=True)
os._exit(0)
