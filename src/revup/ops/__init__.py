"""The heavy tensor operations of the models: one interface, whose plain bodies are the equations.

    from revup import ops
    ops.attend(...)                 # the plain body, or a faster version where one applies
    with ops.using("plain"): ...    # every operation by its plain body

`operations` holds the interface; faster versions register beside it when their modules are imported: `triton/` has the
fused kernels, `chunked_loss` the loss over the vocabulary that never holds all logits, `deferred_gradients` what a step
does about weights that it uses several times. `dispatch` decides which version runs.
"""

from revup.ops import chunked_loss as chunked_loss
from revup.ops.deferred_gradients import defer_gradients as defer_gradients
from revup.ops.dispatch import OPERATIONS as OPERATIONS
from revup.ops.dispatch import using as using
from revup.ops.operations import *  # noqa: F403
