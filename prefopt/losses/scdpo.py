"""Step-controlled DPO: right and wrong solutions that share a beginning, compared from the error to the end."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from prefopt._torch import F
from prefopt.losses._registry import register_loss
from prefopt.losses._weights import first_wrong_step, from_step, weighted_logratios
from prefopt.params import LossParams
from prefopt.scores import LossOutput, Need, Scores


class SCDPOParams(LossParams):
    beta: float = Field(0.1, gt=0, description="pull towards the reference: larger keeps the policy closer, 1/nat")
    scope: Literal["response", "suffix"] = Field(
        "response",
        description="what is compared: whole responses, for rows with the shared beginning in the prompt; or, in full "
        "solutions with step labels, everything from the first wrong step on",
    )


@register_loss(
    "scdpo",
    params=SCDPOParams,
    needs=lambda params: {Need.REFERENCE} | ({Need.STEPS, Need.STEP_REWARDS} if params.scope == "suffix" else set()),
    source="arXiv:2407.00782",
)
def scdpo(scores: Scores, params: SCDPOParams) -> LossOutput:
    """Prefer the right continuation to one that goes wrong, from the step where it does to the end.

        C_b    = sum of c_bt over the tokens t from step k_b on,    R_b likewise
        loss_b = -log sigmoid(beta * (C_b - R_b))

    with c_bt, r_bt the token log-ratios log(policy / reference) of chosen and rejected, in nats, and k_b the first step
    of the rejected response that is wrong. With `scope: response` the shared steps stand in the prompt and all tokens
    count. With `suffix` k_b is the first rejected step whose reward is below 0.5; a pair without one, for instance two
    solutions that share nothing, is compared whole. Both kinds of pairs belong into one data set.

    Shapes: scores [B, 2, T], steps [B, 2, T], step_rewards [B, 2, S] -> losses [B], rewards [B, 2] (beta times the
    log-ratio of the whole response).
    Source: arXiv:2407.00782.
    Differs: the paper adds two losses, naive and step-controlled; here, as in the released code, the rows of both are
        mixed, so that the terms are weighted by their numbers. `suffix` masks the shared steps instead of moving them.
    Equals `dpo` on full responses wherever the two share every token before the error.
    """
    suffix = scores.logratios
    if params.scope == "suffix":
        suffix = weighted_logratios(scores, from_step(scores, first_wrong_step(scores)))
    chosen, rejected = suffix.unbind(-1)  # [B] each
    return LossOutput(
        losses=-F.logsigmoid(params.beta * (chosen - rejected)),
        rewards=(params.beta * scores.logratios).detach(),
    )
