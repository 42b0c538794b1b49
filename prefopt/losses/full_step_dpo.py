"""Full-Step-DPO: every step counts, by the reward that a process reward model gives it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from prefopt._torch import F, torch
from prefopt.losses._registry import register_loss
from prefopt.losses._weights import softmax_over, spread_steps, step_rewards, weighted_logratios
from prefopt.params import LossParams
from prefopt.scores import LossOutput, Need, Scores


class FullStepDPOParams(LossParams):
    beta: float = Field(0.1, gt=0, description="pull towards the reference: larger keeps the policy closer, 1/nat")
    gamma: float = Field(
        0.5, ge=0, description="how far step rewards set the steps' weights apart; 0 for equal ones, dimensionless"
    )
    weight_scale: Literal["num_steps", "none"] = Field(
        "num_steps", description="weights of a response's steps add up to their number, or to 1"
    )


@register_loss(
    "full_step_dpo",
    params=FullStepDPOParams,
    needs={Need.REFERENCE, Need.STEPS, Need.STEP_REWARDS},
    source="arXiv:2502.14356 (pairwise form)",
)
def full_step_dpo(scores: Scores, params: FullStepDPOParams) -> LossOutput:
    """Push up the good steps of the chosen response most, and push down the bad steps of the rejected one most.

        a_bs   = scale * softmax_s(+gamma * q_bs) for the chosen response, softmax_s(-gamma * q_bs) for the rejected one
        C_b    = sum_t a_b,s(t) * c_bt,    R_b likewise
        loss_b = -log sigmoid(beta * (C_b - R_b))

    with q_bs the reward of step s, s(t) the step of token t, and c_bt, r_bt the token log-ratios log(policy /
    reference) of chosen and rejected, in nats. `scale` is the number of steps or 1. The weights are constants; the
    softmax runs over the steps that have scored tokens. A token in no step, such as the end token, weighs as much as
    the steps do on average.

    Shapes: scores [B, 2, T], steps [B, 2, T], step_rewards [B, 2, S] -> losses [B], rewards [B, 2] (beta times the
    unweighted log-ratio).
    Source: arXiv:2502.14356, from secondary descriptions that agree with its abstract; the text was not available.
    Differs: `num_steps` is the default, because beta then means what it means in `dpo`; weights that add up to 1 are
        `none`. The authors' code optimises `full_step_dpo_surrogate`, another form.
    Equals `dpo` at gamma = 0 with `weight_scale: num_steps`.
    """
    rewards, own = step_rewards(scores)  # [B, 2, S]
    sign = torch.tensor([1.0, -1.0], dtype=rewards.dtype, device=rewards.device).view(1, 2, 1)
    weights = softmax_over(sign * params.gamma * rewards, own)
    if params.weight_scale == "num_steps":
        weights = weights * own.sum(-1, keepdim=True)
    chosen, rejected = weighted_logratios(scores, spread_steps(scores, weights, own)).unbind(-1)  # [B] each
    return LossOutput(
        losses=-F.logsigmoid(params.beta * (chosen - rejected)),
        rewards=(params.beta * scores.logratios).detach(),
    )
