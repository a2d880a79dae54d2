"""The fused gradient of an embedding equals torch's, whatever is looked up how often."""

from __future__ import annotations

import pytest
import torch

from revup import ops
from revup.ops.triton import table_gradient


@pytest.mark.parametrize("count", [1, 7, 90])  # one row, several blocks
@pytest.mark.parametrize("frequent", [0, 1, 5, 8])  # the padding, the first and the last word among them
def test_table_gradient(count: int, frequent: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_gradient, "CHUNK", 8)
    monkeypatch.setattr(table_gradient, "ROWS", 2)
    which, d = torch.randint(9, (count,)), torch.randn(count, 5)
    which[: count // 2] = frequent
    found = table_gradient.table_gradient(d, which, which.sort(stable=True).indices, 9, 0)
    wanted = torch.ops.aten.embedding_dense_backward(d, which, 9, 0, False)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("lookups", "used"), [(1, (0,)), (2, (0, 1)), (3, (0, 1, 2)), (3, (0, 2)), (2, (1,))])
def test_deferred_lookups(lookups: int, used: tuple[int, ...]) -> None:
    """As many lookups as words are sorted for, more, fewer; and some without a gradient."""
    table = torch.nn.Embedding(9, 5, padding_idx=0)
    tokens = [torch.randint(9, (3, 4)) for _ in range(lookups)]
    wanted = torch.autograd.grad(sum((table(tokens[n]) ** 3).sum() for n in used), table.weight)[0]
    with ops.using("fused"):
        with ops.defer_gradients(table):
            rows = [ops.embed(table, each) for each in tokens]
        found = torch.autograd.grad(sum((rows[n] ** 3).sum() for n in used), table.weight)[0]
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
