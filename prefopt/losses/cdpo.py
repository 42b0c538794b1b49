"""Critical-token DPO: of a wrong solution, push down the tokens that made it wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field, model_validator

from prefopt._torch import F, torch
from prefopt.errors import DataError
from prefopt.losses._registry import register_loss
from prefopt.losses._weights import contrast_weights, weighted_logratios
from prefopt.params import LossParams
from prefopt.scores import LossOutput, Need, Scores

if TYPE_CHECKING:
    from torch import Tensor


class CDPOParams(LossParams):
    beta: float = Field(0.1, gt=0, description="pull towards the reference: larger keeps the policy closer, 1/nat")
    only_neg: bool = Field(True, description="weigh rejected tokens only; false: chosen ones by s as well")

    @model_validator(mode="before")
    @classmethod
    def _not_the_conservative_one(cls, options: Any) -> Any:
        if "label_smoothing" in options:
            raise ValueError(
                "label_smoothing belongs to conservative DPO, called cDPO too: write `name: dpo` with label_smoothing. "
                "This loss weighs critical tokens."
            )
        return options


def contrast_scores(right: Tensor, wrong: Tensor, tokens: Tensor, *, contrast: float = 1.0) -> Tensor:
    """softmax((1 + contrast) * right - contrast * wrong) at the tokens, float32 or wider: the scores that cdpo reads.

    `right`, `wrong` `[..., V]` are the logits of a model of right and one of wrong solutions over one vocabulary, at
    the positions that predict `tokens` `[...]`.
    """
    dtype = torch.promote_types(right.dtype, torch.float32)
    logits = (1 + contrast) * right.to(dtype) - contrast * wrong.to(dtype)
    return torch.softmax(logits, -1).gather(-1, tokens.unsqueeze(-1)).squeeze(-1)


@register_loss("cdpo", params=CDPOParams, needs={Need.REFERENCE, Need.TOKEN_SCORES}, source="arXiv:2411.19943")
def cdpo(scores: Scores, params: CDPOParams) -> LossOutput:
    """Push down the critical tokens of the rejected response: those that only a model of wrong solutions would write.

        C_b    = sum_t c_bt, or sum_t s_bt * c_bt without `only_neg`
        R_b    = sum_t (1 - s_bt) * r_bt
        loss_b = -log sigmoid(beta * (C_b - R_b))

    with c_bt, r_bt the token log-ratios log(policy / reference) of chosen and rejected, in nats, and s in [0, 1] the
    contrastive score that comes with the data: softmax((1 + b) z+ - b z-) at the token, with z+, z- the logits of a
    model of right and one of wrong solutions. Critical tokens have s near 0. A token without a score (NaN) has weight 1
    on both sides.

    Shapes: scores [B, 2, T], token_scores [B, 2, T] -> losses [B], rewards [B, 2] (beta times the unweighted
    log-ratio).
    Metrics: cdpo/critical, mean of 1 - s over the rejected response: near 0, hardly anything is pushed down.
    Raises: `DataError` without `only_neg`, for a chosen response of which no token has a score.
    Source: arXiv:2411.19943.
    Differs: the released trainer compares position t of one response with position t of the other and averages over
        the padded matrix; the paper's sums over whole responses are taken here.
    Equals `dpo` where every score is 0. Not conservative DPO, which is `dpo` with `label_smoothing`.
    """
    score, critical = contrast_weights(scores)  # [B, 2, T] each
    if not params.only_neg:
        _refuse_unscored(scores)
    left = torch.ones_like(score) if params.only_neg else score
    weights = torch.stack([left[:, 0], critical[:, 1]], 1)
    chosen, rejected = weighted_logratios(scores, weights).unbind(-1)  # [B] each
    share = scores.total(critical.to(scores.policy.dtype)) / scores.mask.sum(-1).clamp(min=1)
    return LossOutput(
        losses=-F.logsigmoid(params.beta * (chosen - rejected)),
        rewards=(params.beta * scores.logratios).detach(),
        metrics={"cdpo/critical": share[:, 1].detach()},
    )


def _refuse_unscored(scores: Scores) -> None:
    assert scores.token_scores is not None  # a declared need, checked before the call
    scored = (~scores.token_scores[:, 0].isnan() & scores.mask[:, 0]).any(-1)
    missing = (~scored & scores.present[:, 0]).nonzero().flatten().tolist()
    if missing:
        rows = ", ".join(map(str, missing[:5]))
        raise DataError(
            f"loss 'cdpo' with only_neg: false weighs chosen tokens too, and chosen responses of rows {rows} of the "
            "batch have no token scores: give chosen_token_scores, or leave only_neg at true."
        )
