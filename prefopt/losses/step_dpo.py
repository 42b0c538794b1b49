"""Step-DPO: compare one wrong step with the right one in its place, not whole solutions."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from prefopt._torch import F
from prefopt.losses._registry import register_loss
from prefopt.losses._weights import first_wrong_step, of_step, weighted_logratios
from prefopt.params import LossParams
from prefopt.scores import LossOutput, Need, Scores


class StepDPOParams(LossParams):
    beta: float = Field(0.4, gt=0, description="pull towards the reference: larger keeps the policy closer, 1/nat")
    scope: Literal["response", "first_error"] = Field(
        "response",
        description="what is compared: whole responses, for rows that hold one step behind a prefix; or, in full "
        "solutions with step labels, the first step in which the rejected one is wrong",
    )


@register_loss(
    "step_dpo",
    params=StepDPOParams,
    needs=lambda params: (
        {Need.REFERENCE} | ({Need.STEPS, Need.STEP_REWARDS} if params.scope == "first_error" else set())
    ),
    source="arXiv:2406.18629",
)
def step_dpo(scores: Scores, params: StepDPOParams) -> LossOutput:
    """Prefer the right step to the wrong one, both behind the same correct beginning.

        C_b    = sum of c_bt over the tokens t of step k_b,    R_b likewise
        loss_b = -log sigmoid(beta * (C_b - R_b))

    with c_bt, r_bt the token log-ratios log(policy / reference) of chosen and rejected, in nats, and k_b the first step
    of the rejected response that is wrong. With `scope: response` the row holds that step alone and all of its tokens
    count. With `first_error` k_b is the first rejected step whose reward is below 0.5; a pair without one is compared
    whole.

    Shapes: scores [B, 2, T], steps [B, 2, T], step_rewards [B, 2, S] -> losses [B], rewards [B, 2] (beta times the
    log-ratio of the whole response).
    Source: arXiv:2406.18629.
    Differs: beta is the paper's 0.4; the released scripts exchange it with that of the larger model. `first_error`
        is ours: the paper puts the correct steps into the prompt, which gives the same loss and gradient.
    Equals `dpo` on step pairs; `scdpo` keeps what follows the step.
    """
    step = scores.logratios
    if params.scope == "first_error":
        step = weighted_logratios(scores, of_step(scores, first_wrong_step(scores)))
    chosen, rejected = step.unbind(-1)  # [B] each
    return LossOutput(
        losses=-F.logsigmoid(params.beta * (chosen - rejected)),
        rewards=(params.beta * scores.logratios).detach(),
    )
