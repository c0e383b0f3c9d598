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
