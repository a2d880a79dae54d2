"""What a finished run is scored by, beyond `revup.evaluate`: events whose predicate counting can't help with."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from revup.data.batches import Batches
from revup.data.corpus import Corpus
from revup.data.encode import NONE, TOKENS, UNK
from revup.data.knowledge import Observation
from revup.inference.measures import BATCH, Classification
from revup.inference.trained import Trained


def labelled_predicates(corpus: Corpus, observation: Observation) -> NDArray[np.bool_]:
    """Which words of the vocabulary, as predicates, carried an observed frame in training, [V].

    `<unk>` never does: it stands for any number of words, and what was seen of one says nothing of another.
    """
    split = corpus.split("train")
    preds = np.asarray(split.arrays["tokens"])[..., 0]
    labelled = np.zeros(len(corpus.vocabulary), bool)
    labelled[preds[split.seen(observation).observed]] = True
    labelled[UNK] = False
    return labelled


@torch.no_grad()
def unlabelled_scores(model: Trained, corpus: Corpus, observation: Observation, split: str = "test") -> dict[str, Any]:
    """Scores on the events whose predicate never carried an observed frame in training, and how many they are."""
    if not model.module.predicts_frames:
        return {"events": 0, "accuracy": None, "macro_f1": None}
    labelled = torch.from_numpy(labelled_predicates(corpus, observation)).to(model.device)
    part = corpus.split(split)
    score = Classification(part.classes)
    model.module.eval()
    for batch in Batches(part, Observation(0.0), BATCH, model.device).ordered():
        apart = batch.mask & (batch.reference != NONE) & ~labelled[batch.tokens[:, ::TOKENS]]
        if apart.any():
            chosen = model.module.frame_probabilities(batch).argmax(-1)
            score.add(*(x[apart].cpu().numpy() for x in (batch.reference, chosen)))
    found = score.scores()
    return {"events": score.events, "accuracy": found["accuracy"], "macro_f1": found["macro_f1"]}
