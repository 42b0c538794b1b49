"""The released form of Full-Step-DPO: a surrogate over all pairs within a group of responses to one prompt."""

from __future__ import annotations

from pydantic import Field

from prefopt._torch import torch
from prefopt.losses._registry import register_loss
from prefopt.losses._weights import constant, softmax_over, spread_steps, step_rewards, token_logratios
from prefopt.params import LossParams
from prefopt.scores import LossOutput, Need, Scores


class FullStepDPOSurrogateParams(LossParams):
    beta: float = Field(0.05, gt=0, description="scale of the reward gap that weighs a pair: larger saturates, 1/nat")
    token_rate: float = Field(
        1.0, ge=0, description="how much less a token counts that has moved the right way already, 1/nat"
    )
    reward_temp: float = Field(
        0.5, ge=0, description="how far step rewards set the tokens' weights apart; 0 for equal ones, dimensionless"
    )


@register_loss(
    "full_step_dpo_surrogate",
    params=FullStepDPOSurrogateParams,
    needs={Need.REFERENCE, Need.STEPS, Need.STEP_REWARDS, Need.EXTERNAL},
    responses="many",
    source="arXiv:2502.14356 (released code)",
    excused={"pulls_the_right_way": "the rewards say which responses are better, not their place in the row"},
)
def full_step_dpo_surrogate(scores: Scores, params: FullStepDPOSurrogateParams) -> LossOutput:
    """Pull up the better and push down the worse response of every pair in a group, token by token.

        gap_ij  = sigmoid(beta * (C_j - C_i)),    C_i = sum_t c_it
        P_i     = sum_t lp_it * sigmoid(-token_rate * c_it) * softmax_t(+reward_temp * q_it)
        N_j     = sum_t lp_jt * sigmoid(+token_rate * c_jt) * softmax_t(-reward_temp * q_jt)
        loss_b  = mean of -gap_ij * (P_i - N_j) over the pairs with R_i > R_j

    with lp_it the log-probability of token t of response i, c_it its log-ratio log(policy / reference), in nats, q_it
    the reward of its step and R_i the reward of the response. Everything but lp is a constant: the gradient is the
    objective, and the value, which may be negative, says little. The softmax runs over tokens, so a long step weighs
    more than a short one. A token in no step has the mean reward of the steps. A group without a pair gives 0.

    Shapes: scores [B, R, T], steps [B, R, T], step_rewards [B, R, S], external [B, R] -> losses [B], rewards [B, R].
    Metrics: full_step_dpo_surrogate/margin, mean of beta * (C_i - C_j) over the pairs; it should grow.
    Source: the authors' code for arXiv:2502.14356.
    Differs: the mask says which tokens are response tokens; the code takes those whose reward is not exactly 0. It
        averages over the pairs of a batch, this over those of each prompt, so that groups of any size count alike.
    With `token_rate: 0` and `reward_temp: 0` its gradient is half that of length-normalised log-probabilities, each
    pair weighted as in `dpo`; `full_step_dpo` is the pairwise form.
    """
    values = params.beta * scores.logratios.detach()  # [B, R]
    ratios = token_logratios(scores).detach()
    rewards = spread_steps(scores, *step_rewards(scores))  # [B, R, T]
    pull, push = (
        scores.total(
            scores.policy
            * constant(scores, torch.sigmoid(-sign * params.token_rate * ratios))
            * constant(scores, softmax_over(sign * params.reward_temp * rewards, scores.mask))
        )
        for sign in (1.0, -1.0)
    )  # P and N, [B, R] each; the number of tokens that the code multiplies and divides by cancels
    assert scores.external is not None  # a declared need, checked before the call
    better = scores.external.unsqueeze(2) > scores.external.unsqueeze(1)  # [B, R, R]: i beats j
    pairs = better & scores.present.unsqueeze(2) & scores.present.unsqueeze(1)
    gap = torch.sigmoid(values.unsqueeze(1) - values.unsqueeze(2))
    terms = -gap * (pull.unsqueeze(2) - push.unsqueeze(1))
    count = pairs.sum((1, 2)).clamp(min=1)
    margins = values.unsqueeze(2) - values.unsqueeze(1)
    return LossOutput(
        losses=terms.masked_fill(~pairs, 0).sum((1, 2)) / count,
        rewards=values,
        metrics={"full_step_dpo_surrogate/margin": margins.masked_fill(~pairs, 0).sum((1, 2)) / count},
    )
