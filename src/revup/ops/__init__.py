"""The heavy tensor operations: one interface, whose plain bodies are the equations.

    from revup import ops
    ops.attend(...)                 # the plain body, or a faster version where one applies
    with ops.using("plain"): ...    # every operation by its plain body

`operations` holds the interface; `dispatch` decides which version runs; `triton/` holds the fused kernels,
`chunked_loss` the loss over the vocabulary that never holds all logits, `deferred_gradients` what a training step does
about weights that it uses several times.
"""

from revup.ops import chunked_loss  # noqa: F401 (registers its version)
from revup.ops.deferred_gradients import defer_gradients
from revup.ops.dispatch import OPERATIONS, using
from revup.ops.operations import (
    CountTables,
    FrameLosses,
    Knowledge,
    adam,
    attend,
    draw_frame,
    dropout,
    embed,
    frame_losses,
    gather_rows,
    gaussian_kl,
    gaussian_sample,
    gru,
    linear,
    masked_mean,
    mix,
    pooled_log_prior,
    vocabulary_loss,
)

__all__ = [
    "OPERATIONS",
    "CountTables",
    "FrameLosses",
    "Knowledge",
    "adam",
    "attend",
    "defer_gradients",
    "draw_frame",
    "dropout",
    "embed",
    "frame_losses",
    "gather_rows",
    "gaussian_kl",
    "gaussian_sample",
    "gru",
    "linear",
    "masked_mean",
    "mix",
    "pooled_log_prior",
    "using",
    "vocabulary_loss",
]
