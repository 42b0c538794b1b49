"""TRL 1.16 is the oracle: its own loss functions and ours, on the same random log-probabilities.

TRL computes losses inside its trainers. Each test makes a trainer without running its constructor, gives it the few
attributes its loss reads and a model that answers with given numbers, and calls the method that the trainer calls.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from prefopt import Scores, get_loss
from prefopt.context import StepContext
from prefopt.losses import Objective

PAIRS, WIDTH, PROMPT = 6, 9, 2
"""Each row is a prompt of two tokens and a response of one to seven."""


@dataclass(frozen=True)
class Batch:
    """Random pairs: what TRL's collator gives, and what its model and ours say per token, `[2 * PAIRS, WIDTH - 1]`."""

    completion: Tensor
    policy: Tensor
    reference: Tensor
    sum_squares: Tensor

    @property
    def mask(self) -> Tensor:
        """Where a response token is predicted."""
        return self.completion[:, 1:].bool()

    def scores(self, policy: Tensor) -> Scores:
        """Chosen rows stand before rejected ones in TRL; here they stand side by side."""

        def pairs(values: Tensor) -> Tensor:
            return torch.stack(values.chunk(2), 1)

        return Scores(
            policy=pairs(policy),
            reference=pairs(self.reference),
            mask=pairs(self.mask),
            sum_squares=pairs(self.sum_squares),
        )


def batch(seed: int, dtype: torch.dtype) -> Batch:
    generator = torch.Generator().manual_seed(seed)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64).to(dtype)

    lengths = torch.randint(1, WIDTH - PROMPT + 1, (2 * PAIRS, 1), generator=generator)
    place = torch.arange(WIDTH)
    completion = ((place >= PROMPT) & (place < PROMPT + lengths)).long()
    inside = completion[:, 1:].bool()
    reference = (-3 * uniform(2 * PAIRS, WIDTH - 1)).where(inside, 0)  # TRL's kernel gives 0 outside
    policy = (reference + 2 * (uniform(2 * PAIRS, WIDTH - 1) - 0.5)).where(inside, 0)
    return Batch(completion, policy, reference, 0.05 + 0.9 * uniform(2 * PAIRS, WIDTH - 1))


class Answers:
    """A model that says what it was told to."""

    training = True

    def __init__(self, logps: Tensor, sum_squares: Tensor) -> None:
        zeros = torch.zeros_like(logps)
        self.outputs = SimpleNamespace(
            log_probs=logps,
            log_sum_sq_probs=sum_squares.log(),
            entropy=zeros,
            mean_logits=zeros,
            is_top1=zeros.bool(),
        )

    def __call__(self, **inputs: Any) -> SimpleNamespace:
        return self.outputs


ALONE = SimpleNamespace(device=torch.device("cpu"), gather=lambda x: x, gather_for_metrics=lambda x: x)


class InTraining(torch.nn.Module):
    """What the trainers ask about the model they train."""

    is_gradient_checkpointing = False


def stub(trainer: type, **attributes: Any) -> Any:
    made = object.__new__(trainer)
    made.__dict__.update(accelerator=ALONE, aux_loss_enabled=False, _metrics=defaultdict(lambda: defaultdict(list)))
    made.__dict__.update(attributes)
    return made


def trl_dpo(b: Batch, policy: Tensor, **options: Any) -> Tensor:
    """The scalar of TRL's `DPOTrainer` for this batch."""
    from trl import DPOTrainer

    settings: dict[str, Any] = {
        "loss_types": [options.pop("loss_type", "sigmoid")],
        "loss_weights": [1.0],
        "beta": 0.1,
        "label_smoothing": 0.0,
        "ld_alpha": None,
        "f_divergence_type": "reverse_kl",
        "f_alpha_divergence_coef": 0.5,
        "use_weighting": False,
        **options,
    }
    args = SimpleNamespace(gradient_checkpointing_kwargs=None, discopop_tau=settings.pop("discopop_tau", 0.05))
    model = Answers(policy, b.sum_squares)
    trainer = stub(
        DPOTrainer,
        model=InTraining(),
        ref_model=Answers(b.reference, b.sum_squares),
        args=args,
        precompute_ref_logps=False,
        _total_train_tokens=0,
        _tp_size=1,
        **settings,
    )
    ids = torch.zeros_like(b.completion)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "completion_mask": b.completion}
    loss: Tensor = trainer._compute_loss(model, inputs, return_outputs=False)
    return loss


CASES: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
    "sigmoid": ({}, "dpo", {"beta": 0.1}),
    "hinge": ({"beta": 0.4}, "hinge", {"beta": 0.4}),
    "ipo": ({"beta": 0.3}, "ipo", {"tau": 0.3}),
    "exo_pair": ({"label_smoothing": 0.01}, "exo_pair", {"beta": 0.1, "epsilon": 0.01}),
    "nca_pair": ({}, "nca_pair", {"beta": 0.1}),
    "robust": ({"label_smoothing": 0.2}, "robust_dpo", {"beta": 0.1, "epsilon": 0.2}),
    "sppo_hard": ({}, "sppo_hard", {"beta": 0.1}),
    "apo_zero": ({}, "apo_zero", {"beta": 0.1}),
    "apo_down": ({}, "apo_down", {"beta": 0.1}),
    "discopop": ({"discopop_tau": 0.07}, "discopop", {"beta": 0.1, "tau": 0.07}),
    "sigmoid_norm": ({"beta": 2.0}, "ln_dpo", {"beta": 2.0}),
    "bco_pair": ({}, "bco_pair", {"beta": 0.1}),  # plainly called, delta is 0, and TRL has none
}
"""TRL's `loss_type` -> its options, our loss, our options. Each pair by itself."""

COUPLED: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
    "aot": ({"label_smoothing": 0.1}, "aot", {"beta": 0.1, "label_smoothing": 0.1}),
    "aot_unpaired": ({"label_smoothing": 0.1}, "aot_unpaired", {"beta": 0.1, "label_smoothing": 0.1}),
}
"""Those that sort over the batch: ours are told of the batch by a context."""

SEEDS = [0, 1, 2]


def assert_same(ours: Any, b: Batch, *, rtol: float = 1e-9, context: StepContext | None = None, **theirs: Any) -> None:
    """The mean of our losses and its gradient are TRL's scalar and its gradient."""
    policy = b.policy.clone().requires_grad_()
    found = ours(b.scores(policy), context).losses.mean()
    expected = trl_dpo(b, policy, **theirs)
    torch.testing.assert_close(found, expected, rtol=rtol, atol=rtol / 100)
    (one,), (other,) = (torch.autograd.grad(value, policy) for value in (found, expected))
    assert other.any()
    torch.testing.assert_close(one.where(b.mask, 0), other.where(b.mask, 0), rtol=rtol, atol=rtol / 100)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("loss_type", CASES)
def test_a_loss_type_is_our_loss(loss_type: str, seed: int) -> None:
    theirs, name, options = CASES[loss_type]
    rtol = 1e-7 if loss_type == "exo_pair" else 1e-9  # TRL takes log(epsilon) in float32
    assert_same(get_loss(name, **options), batch(seed, torch.float64), rtol=rtol, loss_type=loss_type, **theirs)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("loss_type", COUPLED)
def test_a_loss_type_that_sorts_the_batch_is_our_loss_in_a_context(loss_type: str, seed: int) -> None:
    theirs, name, options = COUPLED[loss_type]
    b = batch(seed, torch.float64)
    assert_same(get_loss(name, **options), b, context=StepContext(), loss_type=loss_type, **theirs)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("divergence", ["forward_kl", "js_divergence", "alpha_divergence"])
@pytest.mark.parametrize("alpha", [0.5, 0.25])
def test_f_divergences_agree_where_the_coefficient_is_1_minus_alpha(divergence: str, alpha: float, seed: int) -> None:
    ours = {
        "forward_kl": {"divergence": "forward_kl"},
        "js_divergence": {"divergence": "jensen_shannon"},
        "alpha_divergence": {"divergence": "alpha", "alpha": alpha},
    }[divergence]
    exact = divergence != "alpha_divergence"  # TRL computes that one in float32 whatever it is given
    b = batch(seed, torch.float64 if exact else torch.float32)
    theirs = {"f_divergence_type": divergence, "f_alpha_divergence_coef": 1 - alpha}
    assert_same(get_loss("f_dpo", beta=0.1, **ours), b, rtol=1e-9 if exact else 1e-4, **theirs)


@pytest.mark.parametrize("seed", SEEDS)
def test_ld_alpha_is_ld_dpo(seed: int) -> None:
    assert_same(get_loss("ld_dpo", beta=0.1, ld_alpha=0.3), batch(seed, torch.float64), ld_alpha=0.3)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("loss_type", ["sigmoid", "robust", "nca_pair", "exo_pair"])
def test_use_weighting_is_the_wpo_modifier_without_its_cap(loss_type: str, seed: int) -> None:
    theirs, name, options = CASES[loss_type]
    ours = get_loss(name, modify=[{"name": "wpo", "clamp": False}], **options)
    rtol = 1e-7 if loss_type == "exo_pair" else 1e-9
    assert_same(ours, batch(seed, torch.float64), rtol=rtol, loss_type=loss_type, use_weighting=True, **theirs)


@pytest.mark.parametrize("seed", SEEDS)
def test_sft_is_nll_over_the_tokens_of_the_batch_which_irpo_offers(seed: int) -> None:
    """TRL's weighted list of sigmoid and sft, its successor of `rpo_alpha`."""
    b = batch(seed, torch.float64)
    theirs = {"loss_types": ["sigmoid", "sft"], "loss_weights": [1.0, 0.7]}
    ours = get_loss("irpo", beta=0.1, alpha=0.7, nll_norm="batch_tokens")
    assert_same(ours, b, context=StepContext(), **theirs)


def test_sft_is_nll_where_all_responses_are_equally_long() -> None:
    b = batch(0, torch.float64)
    completion = torch.zeros_like(b.completion)
    completion[:, PROMPT : PROMPT + 4] = 1
    equal = Batch(completion, -1.0 - b.sum_squares, b.reference, b.sum_squares)
    filled = Batch(completion, equal.policy.where(equal.mask, 0), b.reference.where(equal.mask, 0), b.sum_squares)
    assert_same(Objective.of(get_loss("nll")), filled, loss_type="sft")


# The trainers without a reference compute log-probabilities from logits themselves.

VOCABULARY = 11


@dataclass(frozen=True)
class TextBatch:
    """Random ids and logits for pairs, `[2 * PAIRS, WIDTH, V]`; the prompt is one token, which nothing predicts."""

    ids: Tensor
    mask: Tensor
    logits: Tensor

    def trl(self) -> dict[str, Tensor]:
        labels = self.ids.masked_fill(~self.response, -100)
        rows: dict[str, Tensor] = {}
        for side, ids, attention, label in zip(
            ("chosen", "rejected"), self.ids.chunk(2), self.mask.long().chunk(2), labels.chunk(2), strict=True
        ):
            rows |= {f"{side}_input_ids": ids, f"{side}_attention_mask": attention, f"{side}_labels": label}
        return rows

    @property
    def response(self) -> Tensor:
        return self.mask & (torch.arange(WIDTH) > 0)

    def scores(self) -> Scores:
        logps = F.log_softmax(self.logits[:, :-1], -1).gather(-1, self.ids[:, 1:].unsqueeze(-1)).squeeze(-1)
        return Scores(
            policy=torch.stack(logps.chunk(2), 1),
            mask=torch.stack(self.response[:, 1:].chunk(2), 1),
        )


def text_batch(seed: int) -> TextBatch:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(2, WIDTH + 1, (2 * PAIRS, 1), generator=generator)
    logits = 2 * torch.randn(2 * PAIRS, WIDTH, VOCABULARY, generator=generator, dtype=torch.float64)
    ids = torch.randint(VOCABULARY, (2 * PAIRS, WIDTH), generator=generator)
    return TextBatch(ids, torch.arange(WIDTH) < lengths, logits.requires_grad_())


def trl_without_reference(trainer: type, b: TextBatch, **attributes: Any) -> Tensor:
    made = stub(trainer, is_encoder_decoder=False, pad_token_id=0, **attributes)
    loss: Tensor
    loss, _ = made.get_batch_loss_metrics(lambda *args, **kwargs: SimpleNamespace(logits=b.logits), b.trl())
    return loss


def assert_same_from_logits(ours: Any, theirs: Tensor, b: TextBatch, *, rtol: float = 1e-9) -> None:
    found = ours(b.scores(), StepContext()).losses.mean()
    torch.testing.assert_close(found, theirs, rtol=rtol, atol=rtol / 100)
    one, other = (torch.autograd.grad(value, b.logits)[0] for value in (found, theirs))
    assert other.any()
    torch.testing.assert_close(one, other, rtol=rtol, atol=rtol / 100)


def trl_cpo(b: TextBatch, **options: Any) -> Tensor:
    from trl.experimental.cpo import CPOTrainer

    return trl_without_reference(CPOTrainer, b, **{"alpha": 0.0, "label_smoothing": 0.0, **options})


@pytest.mark.parametrize("seed", SEEDS)
def test_the_cpo_trainer_is_cpo_with_the_nll_over_the_tokens_of_the_batch(seed: int) -> None:
    b = text_batch(seed)
    theirs = trl_cpo(b, loss_type="sigmoid", beta=0.2, cpo_alpha=0.6)
    assert_same_from_logits(get_loss("cpo", beta=0.2, cpo_alpha=0.6, nll_norm="batch_tokens"), theirs, b)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_cpo_trainers_hinge_is_slic_without_nll(seed: int) -> None:
    b = text_batch(seed)
    theirs = trl_cpo(b, loss_type="hinge", beta=0.2, cpo_alpha=0.0)
    slic = get_loss("slic", delta=5.0, lam=0)

    def scaled(scores: Scores, _: StepContext) -> Any:
        return SimpleNamespace(losses=0.2 * slic(scores).losses)

    assert_same_from_logits(scaled, theirs, b)


@pytest.mark.parametrize("seed", SEEDS)
def test_simpo_is_simpo_with_gamma_over_beta(seed: int) -> None:
    b = text_batch(seed)
    theirs = trl_cpo(b, loss_type="simpo", beta=2.5, simpo_gamma=1.0, cpo_alpha=0.0)
    assert_same_from_logits(get_loss("simpo", beta=2.5, gamma_beta_ratio=0.4), theirs, b)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_orpo_trainer_is_orpo_where_no_prompt_token_is_predicted(seed: int) -> None:
    """Its NLL runs over prompt and response; with a prompt of one token, which nothing predicts, that is the response.

    TRL takes the odds in float32.
    """
    from trl.experimental.orpo import ORPOTrainer

    b = text_batch(seed)
    theirs = trl_without_reference(ORPOTrainer, b, beta=0.4, padding_value=0)
    assert_same_from_logits(get_loss("orpo", lam=0.4, nll_norm="batch_tokens"), theirs, b, rtol=1e-4)


class KTOAnswers(Answers):
    """Asked for mismatched rows, which have no ids of their own here, it gives their log-probabilities."""

    def __init__(self, logps: Tensor, mismatched: Tensor, sum_squares: Tensor) -> None:
        super().__init__(logps, sum_squares)
        self.mismatched = mismatched

    def __call__(self, **inputs: Any) -> SimpleNamespace:
        return SimpleNamespace(log_probs=self.mismatched) if (inputs["input_ids"] == 1).all() else self.outputs


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("drift", [1.5, -1.5], ids=["ahead", "clamped"])
def test_the_kto_trainer_is_kto(seed: int, drift: float) -> None:
    from trl import KTOTrainer

    b = batch(seed, torch.float64)
    mismatched = (b.reference + drift * b.sum_squares).where(b.mask, 0)
    policy = b.policy.clone().requires_grad_()
    labels = torch.arange(2 * PAIRS) % 3 > 0
    trainer = stub(
        KTOTrainer,
        model=InTraining(),
        ref_model=KTOAnswers(b.reference, b.reference, b.sum_squares),
        args=SimpleNamespace(gradient_checkpointing_kwargs=None),
        precompute_ref_logps=False,
        calculate_KL=True,
        loss_type="kto",
        beta=0.3,
        desirable_weight=1.2,
        undesirable_weight=0.8,
        _total_train_tokens=0,
        _tp_size=1,
    )
    ids = torch.zeros_like(b.completion)
    ones = torch.ones_like(ids)
    inputs = {
        "input_ids": ids,
        "attention_mask": ones,
        "completion_mask": b.completion,
        "KL_input_ids": ones,
        "KL_attention_mask": ones,
        "KL_completion_mask": b.completion,
        "label": labels,
    }
    expected = trainer._compute_loss(KTOAnswers(policy, mismatched, b.sum_squares), inputs, return_outputs=False)
    scores = Scores(
        policy=policy.unsqueeze(1),
        reference=b.reference.unsqueeze(1),
        mask=b.mask.unsqueeze(1),
        labels=labels,
        mismatched=(mismatched - b.reference).sum(-1),
    )
    ours = get_loss("kto", beta=0.3, desirable_weight=1.2, undesirable_weight=0.8)
    found = ours(scores, StepContext()).losses.mean()
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)
    (one,), (other,) = (torch.autograd.grad(value, policy) for value in (found, expected))
    torch.testing.assert_close(one.where(b.mask, 0), other.where(b.mask, 0), rtol=1e-9, atol=1e-11)
