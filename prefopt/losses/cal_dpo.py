"""Cal-DPO: DPO whose implicit rewards are calibrated to the scale of true rewards."""

from __future__ import annotations

from pydantic import Field

from prefopt._torch import F
from prefopt.losses._registry import register_loss
from prefopt.params import LossParams
from prefopt.scores import LossOutput, Need, Scores


class CalDPOParams(LossParams):
    beta: float = Field(0.002, gt=0, description="sets the targets of the log-ratios, +-1/(2 beta) nats, 1/nat")
    calibration_weight: float = Field(
        0.5, ge=0, description="weight of the squared distances to the targets, dimensionless"
    )


@register_loss("cal_dpo", params=CalDPOParams, needs={Need.REFERENCE}, source="arXiv:2412.14516 and its authors' code")
def cal_dpo(scores: Scores, params: CalDPOParams) -> LossOutput:
    """Separate the pair and pull both log-ratios to fixed targets, so that the chosen one cannot fall along.

        loss_b = -log sigmoid(c_b - r_b) + w * [(c_b - 1 / (2 beta))^2 + (r_b + 1 / (2 beta))^2]

    with c, r the chosen and rejected log-ratios log(policy / reference), in nats, and w the calibration weight. The
    logistic term has no beta.

    Shapes: scores [B, 2, T] -> losses [B], rewards [B, 2].
    Metrics: cal_dpo/calibration, the squared distances, unweighted, nats squared.
    Source: arXiv:2412.14516; weight 0.5 and beta 0.002 from the authors' code.
    Differs: the authors' code adds batch means of the squared terms to each pair's loss; here each pair has its own,
        and the mean over the batch is the same. The weight in the paper could not be checked.
    At calibration_weight 0 it is `dpo` at beta 1; without the logistic term, at weight 1, it is `sppo_hard`.
    """
    chosen, rejected = scores.logratios.unbind(-1)  # [B] each
    target = 1 / (2 * params.beta)
    distance = (chosen - target) ** 2 + (rejected + target) ** 2
    return LossOutput(
        losses=-F.logsigmoid(chosen - rejected) + params.calibration_weight * distance,
        rewards=(params.beta * scores.logratios).detach(),
        metrics={"cal_dpo/calibration": distance.detach()},
    )
