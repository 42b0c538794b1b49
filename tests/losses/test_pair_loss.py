"""The signature other trainers use."""

from __future__ import annotations

import pytest
import torch

from prefopt import ConfigError, Scores, StepContext, get_loss, pair_loss

SUMS = [torch.tensor(values) for values in ([-5.0, -7.0], [-6.0, -6.5], [-5.5, -7.0], [-5.8, -6.6])]


def test_equals_the_loss_on_scores() -> None:
    losses, chosen, rejected = pair_loss("dpo", *SUMS, beta=0.2)
    out = get_loss("dpo", beta=0.2)(Scores.from_sums(torch.stack(SUMS[:2], -1), torch.stack(SUMS[2:], -1)))
    torch.testing.assert_close(losses, out.losses)
    torch.testing.assert_close(torch.stack([chosen, rejected], -1), out.rewards)


def test_takes_names_too() -> None:
    names = ["policy_chosen_logps", "policy_rejected_logps", "reference_chosen_logps", "reference_rejected_logps"]
    torch.testing.assert_close(pair_loss("dpo", **dict(zip(names, SUMS, strict=True)))[0], pair_loss("dpo", *SUMS)[0])


def test_a_loss_that_needs_lengths_says_so_and_then_uses_them() -> None:
    with pytest.raises(
        ConfigError, match="loss 'simpo' averages over tokens: pass chosen_lengths= and rejected_lengths="
    ):
        pair_loss("simpo", *SUMS[:2])
    lengths = {"chosen_lengths": torch.tensor([4, 2]), "rejected_lengths": torch.tensor([3, 5])}
    losses, _, _ = pair_loss("simpo", *SUMS[:2], **lengths, beta=2.0, gamma_beta_ratio=0.5)
    expected = -torch.nn.functional.logsigmoid(
        2 * (SUMS[0] / torch.tensor([4, 2]) - SUMS[1] / torch.tensor([3, 5]) - 0.5)
    )
    torch.testing.assert_close(losses, expected)


def test_what_is_missing_or_misspelt_is_said() -> None:
    with pytest.raises(ConfigError, match="loss 'dpo' needs the reference"):
        pair_loss("dpo", *SUMS[:2])
    with pytest.raises(ConfigError, match="reference: give both sides or neither; got only chosen"):
        pair_loss("dpo", *SUMS[:3])
    with pytest.raises(ConfigError, match=r"unknown loss 'dpoo'. Did you mean 'dpo'\?"):
        pair_loss("dpoo", *SUMS)
    with pytest.raises(ConfigError, match=r"loss 'rdpo' may mean robust_dpo .* refined_dpo .* r_dpo"):
        get_loss("rdpo")
    with pytest.raises(ConfigError, match="loss 'nll' reads more than sums of two responses"):
        pair_loss("nll", *SUMS[:2], chosen_lengths=SUMS[0], rejected_lengths=SUMS[0])


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("dr_dpo", {}),
        ("beta_dpo", {}),
        ("aot", {}),
        ("bco_pair", {}),
        ("irpo", {"nll_norm": "batch_tokens"}),
        ("dpo_shift", {"schedule": "linear_increase"}),
    ],
)
def test_a_loss_that_looks_beyond_its_pair_asks_for_a_context(name: str, options: dict[str, str]) -> None:
    sums = [torch.tensor(values) for values in ([-4.0, -6.0], [-5.0, -3.0], [-4.5, -5.0], [-3.5, -9.0])]
    lengths = {"chosen_lengths": torch.tensor([3.0, 4.0]), "rejected_lengths": torch.tensor([3.0, 2.0])}
    with pytest.raises(ConfigError, match=f"loss '{name}' looks beyond its own pair: pass context=StepContext"):
        pair_loss(name, *sums, **lengths, **options)
    context = StepContext(step=5, total_steps=10, draw=lambda _, count: torch.full((2, count), 0.5))  # type: ignore[arg-type]
    losses, _, _ = pair_loss(name, *sums, **lengths, context=context, **options)
    plain = get_loss(name, **options)(
        Scores.from_sums(
            torch.stack(sums[:2], -1), torch.stack(sums[2:], -1), lengths=torch.tensor([[3.0, 3.0], [4.0, 2.0]])
        )
    ).losses
    assert not torch.allclose(losses, plain), "the pairs given are the whole batch"
