import subprocess
import sys

import torch

from gptlite.training.optim.uncompiled import AdamW


def test_an_update_is_that_of_torch():
    ours, theirs = (torch.nn.Parameter(torch.linspace(-1, 1, 12).view(3, 4)) for _ in range(2))
    settings = {"lr": 0.1, "betas": (0.9, 0.95), "weight_decay": 0.3, "fused": True}
    a, b = AdamW([ours], **settings), torch.optim.AdamW([theirs], **settings)
    for step in range(5):
        for p, optimizer in ((ours, a), (theirs, b)):
            (p**2 * (step + 1)).sum().backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
    assert ours.grad is None
    assert torch.equal(ours, theirs)


def test_optimizers_load_no_compiler():
    program = """
import sys, torch
from gptlite.training.optim.muon import Muon
from gptlite.training.optim.uncompiled import AdamW
p, q = (torch.nn.Parameter(torch.ones(2, 2)) for _ in range(2))
optimizers = AdamW([p], lr=0.1, fused=True), Muon([{"params": [q]}], lr=0.1, momentum=0.9, weight_decay=0.1)
(p.sum() + (q @ p).sum()).backward()
torch.nn.utils.clip_grad_norm_([p, q], 1.0)
for optimizer in optimizers:
    optimizer.step()
    optimizer.zero_grad()
assert "torch._dynamo" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
