"""RISE: pairs that differ by one injected error, beside ordinary pairs of right and wrong solutions."""

from __future__ import annotations

from pydantic import Field

from prefopt._torch import F
from prefopt.losses._registry import register_loss
from prefopt.params import LossParams
from prefopt.scores import LossOutput, Need, Scores


class RISEParams(LossParams):
    beta: float = Field(0.4, gt=0, description="pull towards the reference: larger keeps the policy closer, 1/nat")
    nll_weight: float = Field(
        0.0, ge=0, description="weight of the chosen response's NLL; holds its likelihood up, dimensionless"
    )


@register_loss(
    "rise",
    params=RISEParams,
    needs=lambda params: {Need.REFERENCE} | ({Need.LENGTHS} if params.nll_weight > 0 else set()),
    source="arXiv:2410.06638 (released code); NLL term after the paper",
)
def rise(scores: Scores, params: RISEParams) -> LossOutput:
    """Prefer a right step to the same step with a subtle error, and right solutions to wrong ones.

        loss_b = -log sigmoid(beta * (c_b - r_b)) - nll_weight * a_b / n_b

    with c, r the chosen and rejected log-ratios log(policy / reference), a the log-probability of the chosen response
    under the policy, in nats, and n its length in tokens. Edit pairs have the correct steps before the error in the
    prompt (`initial_reason_steps`), full pairs do not; both are rows of one data set.

    Shapes: scores [B, 2, T] -> losses [B], rewards [B, 2].
    Metrics: rise/nll, -a / n, nats per token, when it is part of the loss.
    Source: arXiv:2410.06638 and its released code.
    Differs: the code has no NLL, and so the default is 0; the paper's weight, which adapts, was not available to us,
        and ours is fixed. The paper adds the means of edit and full pairs; rows count alike here, as in the code.
    Equals `step_dpo` on edit pairs, and `dpo` altogether at nll_weight = 0.
    """
    chosen, rejected = scores.logratios.unbind(-1)  # [B] each
    losses = -F.logsigmoid(params.beta * (chosen - rejected))
    rewards = (params.beta * scores.logratios).detach()
    if params.nll_weight == 0:  # lengths are not asked for
        return LossOutput(losses=losses, rewards=rewards)
    nll = -scores.means[:, 0]
    return LossOutput(losses=losses + params.nll_weight * nll, rewards=rewards, metrics={"rise/nll": nll.detach()})
