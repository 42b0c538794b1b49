"""Negative log-likelihood of the chosen response: plain supervised fine-tuning, or a term beside a pair loss."""

from __future__ import annotations

from prefopt.losses._registry import register_loss
from prefopt.params import LossParams
from prefopt.scores import LossOutput, Need, Scores


class NLLParams(LossParams):
    pass


@register_loss(
    "nll",
    params=NLLParams,
    needs={Need.LENGTHS},
    responses="single",
    aggregate="mean",
    aliases=("sft",),
    source="maximum likelihood; per-response mean as in arXiv:2404.19733 Eq. 1",
)
def nll(scores: Scores, params: NLLParams) -> LossOutput:
    """Make response 0 likelier, whatever else stands beside it.

        loss_b = -a_b / n_b

    with a the log-probability of response 0 under the policy, in nats, and n its length in tokens.

    Shapes: scores [B, R, T] -> losses [B], rewards [B, R] (log-probabilities, nats).
    Source: arXiv:2404.19733 Eq. 1 for the mean per response.
    Differs: other trainers average over the tokens of a batch, which makes a response's weight depend on its
        neighbours; here each response counts once, so accumulation and batch size change nothing.
    Added to `dpo` with a weight it is the objective of iterative reasoning preference optimization.
    """
    return LossOutput(losses=-scores.means[:, 0], rewards=scores.sums.detach())
