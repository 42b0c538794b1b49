"""How the gradients of two responses meet in the output head, without forming them.

With e_y - p(. | prefix) the residual of a token and h the state that predicts it, the gradient of log pi(y) in the head
is G(y) = sum_k (e_{y_k} - p_k) h_k^T, a matrix `[V, H]`. Every inner product of two such matrices is a sum over pairs
of tokens of products of two Gram matrices, at O(n+ n- (V + H)).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class TokenGradients:
    """A response's tokens as the head sees them: `residuals` `[N, V]` and `states` `[N, H]`, float32 or wider."""

    residuals: Tensor
    states: Tensor

    @classmethod
    def of(cls, logits: Tensor, labels: Tensor, states: Tensor) -> TokenGradients:
        """From logits `[N, V]` and states `[N, H]` that predict the labels, int64 `[N]`."""
        wide = torch.promote_types(logits.dtype, torch.float32)
        residuals = -logits.to(wide).softmax(-1)
        residuals[torch.arange(len(labels), device=labels.device), labels] += 1
        return cls(residuals, states.to(torch.promote_types(states.dtype, wide)))

    def within(self, vocabulary: Tensor) -> TokenGradients:
        """Only some tokens' columns, int64 `[v]`, without renormalising."""
        return TokenGradients(self.residuals[:, vocabulary], self.states)

    def agreement(self, other: TokenGradients) -> Tensor:
        """a_kk' = <e_{y_k} - p_k, e_{y'_k'} - p_k'>, `[N, N']`, each between -2 and 2."""
        return self.residuals @ other.residuals.T

    def products(self, other: TokenGradients) -> Tensor:
        """a_kk' <h_k, h_k'>, `[N, N']`: what each pair of tokens adds to <G(y), G(y')>."""
        return self.agreement(other) * (self.states @ other.states.T)


@dataclass(frozen=True)
class Interference:
    """How the head's gradients of a pair meet, scalars.

    `product` is <G+, G->, `chosen_square` and `rejected_square` the squared norms, in squared units of the state.
    """

    product: Tensor
    chosen_square: Tensor
    rejected_square: Tensor

    @property
    def cosine(self) -> Tensor:
        """Cosine of G+ and G-, -1 to 1."""
        return self.product / (self.chosen_square * self.rejected_square).sqrt()

    @property
    def ratio(self) -> Tensor:
        """<G+, G-> / |G+|^2: above 1 a step on the head alone lowers the chosen response, at equal coefficients."""
        return self.product / self.chosen_square


def interference(chosen: TokenGradients, rejected: TokenGradients) -> Interference:
    """How the head's gradients of one pair meet. Exact for the head; a proxy for the whole model.

    Source: arXiv:2410.08847, Theorem 6, the terms with the head as the parameter.
    """
    return Interference(
        product=chosen.products(rejected).sum(),
        chosen_square=chosen.products(chosen).sum(),
        rejected_square=rejected.products(rejected).sum(),
    )


@dataclass(frozen=True)
class NegativeTokens:
    """Influence of each token of a rejected response on the chosen ones: `scores` `[N-]`, `threshold` a scalar.

    `anchors` holds the same measure of each chosen response's own tokens `[N+]`, the chosen response being among those
    that are influenced. `selected` are the tokens above the threshold, bool `[N-]`.
    """

    scores: Tensor
    anchors: tuple[Tensor, ...]
    threshold: Tensor

    @property
    def selected(self) -> Tensor:
        """Tokens whose influence exceeds the threshold, bool `[N-]`."""
        return self.scores > self.threshold


def nthr(
    chosen: list[TokenGradients], rejected: TokenGradients, *, scale: float = 1.0, vocabulary: Tensor | None = None
) -> NegativeTokens:
    """Negative token hidden rewards: which tokens of a rejected response pull on the chosen ones.

        score_k' = sum over chosen responses and their tokens k of a_kk' <h_k, h_k'>
        threshold = scale * min over chosen responses of the mean score of their own tokens

    The scores of all tokens sum to the product of `interference` when there is one chosen response. For pairs they show
    which tokens to look at; nothing here changes a loss. `vocabulary` int64 `[v]` restricts the residuals to the tokens
    that occur, as the paper does, without renormalising.
    Source: arXiv:2505.18830, Sections 4 and 5.
    """
    if vocabulary is not None:
        chosen, rejected = [one.within(vocabulary) for one in chosen], rejected.within(vocabulary)

    def influence(tokens: TokenGradients) -> Tensor:
        return torch.stack([one.products(tokens).sum(0) for one in chosen]).sum(0)

    anchors = tuple(influence(one) for one in chosen)
    lowest = torch.stack([anchor.mean() for anchor in anchors]).min()
    return NegativeTokens(influence(rejected), anchors, scale * lowest)


def advantage_scale(success: float) -> float:
    """eta = 2 |1/2 - p| for a prompt with success rate p: what scales the negative advantage of selected tokens.

    Source: arXiv:2505.18830, appendix on training.
    """
    return 2 * abs(0.5 - success)
