"""Before step 1: what cannot work is refused, and what is about to happen is written down."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers import PreTrainedTokenizerBase

from prefopt.data.rows import LENGTH
from prefopt.errors import ConfigError, RunError
from prefopt.losses import Objective
from prefopt.scores import Need
from prefopt.scoring.heads import causal_model

if TYPE_CHECKING:
    from prefopt.data.sampler import Rows
    from prefopt.scoring.policy import Scorer
    from prefopt.train.trainer import PreferenceTrainer

logger = logging.getLogger(__name__)


def check_vocabulary(
    model: nn.Module, tokenizer: PreTrainedTokenizerBase, *, reference: nn.Module | None = None
) -> None:
    """The tokenizer's ids fit the policy's embedding, and the policy's vocabulary is the reference's.

    Rows of an embedding beyond the tokenizer are padding and allowed.
    Raises: `ConfigError` with both sizes.
    """
    rows = causal_model(model).get_input_embeddings().weight.shape[0]
    largest = max(tokenizer.get_vocab().values(), default=0)
    if largest >= rows:
        raise ConfigError(
            f"the tokenizer has ids up to {largest}, the model's embedding {rows} rows: they do not belong together."
        )
    if reference is None:
        return
    theirs = causal_model(reference).get_input_embeddings().weight.shape[0]
    if theirs != rows and largest >= min(theirs, rows):
        raise ConfigError(
            f"the policy has {rows} token ids and the reference {theirs}: they do not share a vocabulary."
        )


def check_reference_tokenizer(ours: PreTrainedTokenizerBase, theirs: PreTrainedTokenizerBase) -> None:
    """Policy and reference must mean the same by an id.

    Raises: `ConfigError` with the first token that differs.
    """
    if ours.get_vocab() == theirs.get_vocab():
        return
    mine, other = ours.get_vocab(), theirs.get_vocab()
    token = next(t for t in sorted({*mine, *other}) if mine.get(t) != other.get(t))
    raise ConfigError(
        f"the reference's tokenizer differs from the policy's: token {token!r} is {mine.get(token)} here and "
        f"{other.get(token)} there."
    )


def warn_of_one_label(rows: Any, objective: Objective) -> None:
    """Say when a loss that tells desirable from undesirable responses is given one kind only."""
    if Need.LABELS not in objective.needs:
        return
    labels = set(rows["label"])
    if len(labels) == 1:
        kind = "desirable" if labels.pop() else "undesirable"
        text = "all %d rows are labelled %s: loss '%s' has nothing to tell them from."
        logger.warning(text, len(rows), kind, objective.name)


def check_positions(model: nn.Module, sets: Sequence[Any]) -> None:
    """No row is longer than a model with learned positions has positions.

    Raises: `ConfigError` with both numbers.
    """
    inner = causal_model(model)
    tables = [m for name, m in inner.named_modules() if isinstance(m, nn.Embedding) and _LEARNED.search(name)]
    known = getattr(inner.config.get_text_config(), "max_position_embeddings", None)
    if not tables or known is None:
        return
    longest = max((max(rows[LENGTH]) for rows in sets if len(rows)), default=0)
    if longest > known:
        raise ConfigError(
            f"the longest row has {longest:,} tokens, and {type(inner).__name__} has learned positions for {known:,}: "
            f"set data.max_length to {known}."
        )


_LEARNED = re.compile(r"(?:^|\.)(?:wpe|embed_positions|position_embeddings?|positional_embeddings?)$")


def check_words(rows: Rows, *, first: int = 100) -> None:
    """The tokenizer tells words apart: responses are not all made of one token, their ends aside.

    Raises: `RunError`.
    """
    bodies = [ids[:-1] for i in range(min(first, len(rows))) for ids in rows[i]["responses"]]
    found = {token for ids in bodies for token in ids}
    if len(found) == 1 and sum(map(len, bodies)) > first / 2:
        raise RunError(
            f"the responses of the first {min(first, len(rows))} rows have no token but {found.pop()}: the tokenizer "
            "maps all words to one id, so nothing can be learned from them."
        )


def allowed_gap(model: nn.Module, scorer: Scorer) -> float:
    """By how much a token's log-probability may differ between two ways to compute one thing, nats."""
    full = scorer.autocast is None and next(model.parameters()).dtype == torch.float32
    return 1e-3 if full else 0.1


@torch.no_grad()
def check_first_rows(trainer: PreferenceTrainer, *, same_reference: bool, rows: int = 4) -> dict[str, float]:
    """Score a few rows as training will, in training mode.

    Returns the largest difference between policy and reference per token, in nats, when they should be equal.
    Raises: `RunError` when every log-probability is exactly 0, or policy and reference disagree.
    """
    dataset: Rows = trainer.train_dataset
    batch = trainer._prepare_inputs(
        trainer.collator([{**dataset[i], "index": i} for i in range(min(rows, len(dataset)))])
    )
    model = trainer.model
    was = model.training
    model.train()  # a dropout that is still active shows here
    try:
        policy = trainer.scorer(model, batch).logps
    finally:
        model.train(was)
    scored = policy[batch["mask"]]
    if len(scored) and not scored.any():
        raise RunError(
            "every log-probability of the first rows is exactly 0: the model is certain of every token. The "
            "tokenizer maps all words to "
            "one id, or the vocabulary has one entry; nothing can be learned from that."
        )
    known = getattr(trainer.reference, "per_token", True)  # sums were compared when they were read
    reference = trainer.reference(batch) if same_reference and known else None
    if reference is None:
        return {}
    gap = float((policy - reference.logps).masked_fill(~batch["mask"], 0).abs().max())
    tolerance = allowed_gap(model, trainer.scorer)
    if not gap <= tolerance:
        raise RunError(
            f"policy and reference should be equal before the first step, but differ by up to {gap:.4g} nats per "
            "token (allowed "
            f"{tolerance:g}): dropout is active, or the reference is another model or runs in another precision."
        )
    return {"policy_equals_reference_to": gap}
