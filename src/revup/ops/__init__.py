"""The heavy tensor operations of the models: one interface, whose plain bodies are the equations.

    from revup import ops
    ops.attend(...)                 # the plain body, or a faster version where one applies
    with ops.using("plain"): ...    # every operation by its plain body

`operations` holds the interface; faster versions register with it when their modules are imported: `triton/` has the
fused kernels, `chunked_loss` the vocabulary loss that never stores all logits at once, `deferred_gradients` the
gradients of weights reused within a step. `dispatch` decides which version runs.
"""

from revup.ops import chunked_loss as chunked_loss
from revup.ops.deferred_gradients import defer_gradients as defer_gradients
from revup.ops.dispatch import OPERATIONS as OPERATIONS
from revup.ops.dispatch import using as using
from revup.ops.operations import *  # noqa: F403
