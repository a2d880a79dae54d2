"""Compiles every kernel for a GPU that is not here: what the interpreter runs, a GPU's compiler may still refuse.

A program of its own (run by test_compile.py), since Triton can't leave its interpreter once it was imported with it.
Prints the kernels that no operation reached.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

import revup.ops.triton
from revup import ops
from revup.benchmark import RandomCorpus, Size
from revup.models.randomness import Draws
from revup.ops.triton import adam, gather, narrow_loss, products, recurrent, softmax_gradient
from revup.settings import Config, build_module

KINDS = {torch.float32: "*fp32", torch.float16: "*fp16", torch.bfloat16: "*bf16", torch.int64: "*i64"}
KINDS |= {torch.int32: "*i32", torch.bool: "*i1"}
TARGET = GPUTarget("cuda", 90, 32)
compiled: set[tuple[str, str, str]] = set()


def _kind(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return KINDS[value.dtype]
    return "i32" if isinstance(value, int) else "fp32"


def compile_only(self: Any, *args: Any, grid: Any, warmup: bool, **named: Any) -> None:
    given = dict(zip(self.arg_names, args, strict=False)) | {n: v for n, v in named.items() if n in self.arg_names}
    options = {n: v for n, v in named.items() if n not in self.arg_names}
    signature: dict[str, str] = {}
    constants: dict[tuple[int, ...], Any] = {}
    attributes: dict[tuple[int, ...], Any] = {}
    for place, (name, parameter) in enumerate(zip(self.arg_names, self.params, strict=True)):
        value = given[name]
        if isinstance(value, tuple):
            signature[name] = tuple(_kind(each) for each in value)  # type: ignore[assignment]
            attributes |= {(place, n): [["tt.divisibility", 16]] for n, x in enumerate(value) if torch.is_tensor(x)}
        elif parameter.is_constexpr or value is None:
            signature[name], constants[(place,)] = "constexpr", value
        else:
            signature[name] = _kind(value)
            if isinstance(value, torch.Tensor):
                attributes[(place,)] = [["tt.divisibility", 16]]
    if (key := (self.__name__, str(signature), str(constants))) not in compiled:
        compiled.add(key)
        triton.compile(ASTSource(self, signature, constants, attributes), TARGET, options)


def main() -> None:
    JITFunction.run = compile_only
    cpu, size = torch.device("cpu"), Size(words=40, frames=9, hidden=8, batch=4)
    corpus = RandomCorpus(size, 30)
    with ops.using("fused"):
        for model in ("revup", "ssdvae"):
            config = Config.make(model, overrides={"network": {"embedding": 5, "hidden": 8, "latent": 4, "frame": 6}})
            module = build_module(config, size.sizes).train()
            module.prepare(corpus, config.observation)
            batch = next(module.batches(corpus.split("train"), config.observation, size.batch, training=True).ordered())
            with ops.defer_gradients(module):
                loss = module(batch, Draws.seeded(3, batch.documents, cpu))
            loss.total.backward()
    for recurrent.WALKED in (128, 0):
        gru = torch.nn.GRU(6, 128, bidirectional=True, batch_first=True)
        recurrent.gru(torch.randn(3, 2, 6), None, gru.all_weights, True, torch.float16).sum().backward()
    one, zeros = torch.ones(()), torch.zeros(5000, dtype=torch.int64)
    many, few = torch.zeros(5000, 128, dtype=torch.bfloat16), torch.zeros(20, 128, dtype=torch.bfloat16)
    narrow_loss.losses(many, few, few[:, 0].float(), zeros, zeros > 0, one)
    narrow_loss.weight_gradients(many, few, few[:, 0].float(), one, zeros, one)
    for rows, depth, columns in ((200, 561, 128), (200, 128, 600), (5000, 256, 128)):
        a, w = torch.zeros(rows, depth, dtype=torch.bfloat16), torch.zeros(depth, columns, dtype=torch.bfloat16)
        products.product(a, w, w[0], True)
        products.product_gradient(a, a, w)
    adam.adam(one, one, (one, one), one, one, one, one, (0.9, 0.999), 1e-8)
    fields = [torch.zeros(3, 2, dtype=kind) for kind in (torch.int64, torch.bool, *[torch.float32] * 6)]
    gather.gather_rows(torch.zeros(2, dtype=torch.int64), fields, fields, one, [one, one])
    softmax_gradient.softmax_gradient(torch.zeros(1, 70000), torch.zeros(1, dtype=torch.long), torch.ones(1))
    kernels = {
        name
        for part in pkgutil.iter_modules(revup.ops.triton.__path__)
        for name, kernel in vars(importlib.import_module(f"revup.ops.triton.{part.name}")).items()
        if isinstance(kernel, JITFunction) and "program_id" in kernel.src
    }
    print("not compiled:", sorted(kernels - {name for name, *_ in compiled}))


if __name__ == "__main__":
    main()
